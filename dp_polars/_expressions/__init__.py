"""`.dp` on Polars expressions: the namespace, the private expression, and sharing `.dp` with OpenDP.

Imports `_statistics` and below. The input is rows, as Polars runs a plan; answers go into the plan's result.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dp_polars._expressions import best_rows as best_rows
    from dp_polars._expressions import choosing as choosing
    from dp_polars._expressions import measuring as measuring


_ON_DEMAND = ("best_rows", "choosing", "measuring")


def __getattr__(name: str) -> ModuleType:
    """Import a module of statistics on first use: a process needs few of them."""
    if name in _ON_DEMAND:
        return importlib.import_module(f"{__name__}.{name}")
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
