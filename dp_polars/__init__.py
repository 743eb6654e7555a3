"""Private answers from Polars frames: importing this package adds `.dp` to expressions and frames."""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import TYPE_CHECKING

import dp_polars._expressions.namespace
import dp_polars._frames.accessor  # noqa: F401  these two register `.dp`

if TYPE_CHECKING:
    from dp_polars import analysis as analysis
    from dp_polars import opendp as opendp
    from dp_polars import plot as plot
    from dp_polars import spark as spark
    from dp_polars import sql as sql
    from dp_polars._accounting.amounts import BudgetExceededError
    from dp_polars._accounting.budgets import Budget
    from dp_polars._accounting.claims import Claim
    from dp_polars._accounting.large import LargeLossWarning
    from dp_polars._accounting.terms import Loss
    from dp_polars._base.extras import MissingExtraError
    from dp_polars._codes.grids import Grid, grid
    from dp_polars._expressions.argmax import argmax, argmin
    from dp_polars._expressions.choices import median, mode, quantile
    from dp_polars._expressions.expressions import PrivateExpr
    from dp_polars._expressions.measures import count, len, mean, n_people, sum, value_counts
    from dp_polars._expressions.namespace import PrivateNamespace
    from dp_polars._expressions.tops import top_k
    from dp_polars._frames.entrance import protect
    from dp_polars._frames.frame import PrivateFrame
    from dp_polars._frames.query import PrivateQuery, read_claim
    from dp_polars._frames.release import KeptAnswerWarning, ReleaseError
    from dp_polars._mechanisms.noise import discrete_gaussian, discrete_laplace
    from dp_polars._mechanisms.selection import exponential_mechanism, permute_and_flip

__all__ = [
    "Budget",
    "BudgetExceededError",
    "Claim",
    "Grid",
    "KeptAnswerWarning",
    "LargeLossWarning",
    "Loss",
    "MissingExtraError",
    "PrivateExpr",
    "PrivateFrame",
    "PrivateNamespace",
    "PrivateQuery",
    "ReleaseError",
    "argmax",
    "argmin",
    "count",
    "discrete_gaussian",
    "discrete_laplace",
    "exponential_mechanism",
    "grid",
    "len",
    "mean",
    "median",
    "mode",
    "n_people",
    "permute_and_flip",
    "protect",
    "quantile",
    "read_claim",
    "sum",
    "top_k",
    "value_counts",
]
__version__ = "0.1.0"

# Parts that are imported when they are first used -> the package that each can't do without.
_ON_DEMAND = {"analysis": "numpy", "opendp": "opendp", "plot": "altair", "spark": "pyspark", "sql": "ibis"}
# Where the public names are: what a process does not use, it does not load.
_HOMES = {
    "_accounting.amounts": ("BudgetExceededError",),
    "_accounting.budgets": ("Budget",),
    "_accounting.claims": ("Claim", "Loss"),
    "_accounting.large": ("LargeLossWarning",),
    "_expressions.argmax": ("argmax", "argmin"),
    "_expressions.choices": ("median", "mode", "quantile"),
    "_expressions.expressions": ("PrivateExpr",),
    "_expressions.measures": ("count", "len", "mean", "n_people", "sum", "value_counts"),
    "_expressions.namespace": ("PrivateNamespace",),
    "_expressions.tops": ("top_k",),
    "_frames.entrance": ("protect",),
    "_frames.frame": ("PrivateFrame",),
    "_frames.query": ("PrivateQuery", "read_claim"),
    "_frames.release": ("KeptAnswerWarning", "ReleaseError"),
    "_mechanisms.noise": ("discrete_gaussian", "discrete_laplace"),
    "_mechanisms.selection": ("exponential_mechanism", "permute_and_flip"),
    "_base.extras": ("MissingExtraError",),
    "_codes.grids": ("Grid", "grid"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    """Import what is public when it is first used."""
    if name in _ON_DEMAND:
        try:
            return importlib.import_module(f"dp_polars.{name}")
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != _ON_DEMAND[name]:
                raise
            from dp_polars._base.extras import MissingExtraError

            raise MissingExtraError(str(error)) from error
    if name in _HOME_OF:
        value = globals()[name] = getattr(importlib.import_module(f"dp_polars.{_HOME_OF[name]}"), name)
        return value
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)


def __dir__() -> list[str]:
    """List what is public and installed, for completion."""
    return [*__all__, *(name for name, package in _ON_DEMAND.items() if find_spec(package)), "__version__"]
