"""`.dp` on Polars expressions: the namespace, the private expression, and sharing `.dp` with OpenDP.

Imports `_questions` and below. Here rows come in as Polars runs a plan, and answers go out into its result.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dp_polars._expressions import argmax as argmax
    from dp_polars._expressions import choices as choices
    from dp_polars._expressions import counts as counts
    from dp_polars._expressions import first_above as first_above
    from dp_polars._expressions import tops as tops
    from dp_polars._expressions import values as values


_ON_DEMAND = ("argmax", "choices", "counts", "first_above", "tops", "values")


def __getattr__(name: str) -> ModuleType:
    """Import a module of questions when it is first used: a process asks few of those that there are."""
    if name in _ON_DEMAND:
        return importlib.import_module(f"{__name__}.{name}")
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
