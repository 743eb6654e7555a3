"""Private choices from Polars frames: importing this package registers `.dp` on expressions and frames."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

from dp_polars.budget import Budget as Budget
from dp_polars.budget import BudgetExceededError as BudgetExceededError
from dp_polars.candidates import Grid as Grid
from dp_polars.candidates import grid as grid
from dp_polars.expressions import PrivateExpr as PrivateExpr
from dp_polars.frame import PrivateFrame as PrivateFrame
from dp_polars.frame import protect as protect
from dp_polars.namespace import PrivateNamespace as PrivateNamespace
from dp_polars.namespace import argmax as argmax
from dp_polars.namespace import argmin as argmin
from dp_polars.namespace import median as median
from dp_polars.namespace import mode as mode
from dp_polars.namespace import quantile as quantile
from dp_polars.release import PrivateQuery as PrivateQuery
from dp_polars.release import ReleaseError as ReleaseError
from dp_polars.release import read_claim as read_claim
from dp_polars.selection import exponential_mechanism as exponential_mechanism
from dp_polars.selection import permute_and_flip as permute_and_flip

__version__ = "0.1.0"

if TYPE_CHECKING:
    from dp_polars import analysis as analysis
    from dp_polars import opendp as opendp
    from dp_polars import plot as plot
    from dp_polars import spark as spark

_ON_DEMAND = ("analysis", "opendp", "plot", "spark")


def __getattr__(name: str) -> ModuleType:
    """Import what not everyone needs, when it is first asked for: `dp_polars.analysis` and the adapters."""
    if name in _ON_DEMAND:
        return importlib.import_module(f"dp_polars.{name}")
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
