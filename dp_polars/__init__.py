"""Private answers from Polars frames: importing this package adds `.dp` to expressions and frames."""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import TYPE_CHECKING

import dp_polars._expressions.namespace
import dp_polars._frames.protect  # noqa: F401  these two register `.dp`
from dp_polars._base.calls import like as _like

if TYPE_CHECKING:
    from dp_polars import analysis as analysis
    from dp_polars import mechanisms as mechanisms
    from dp_polars import opendp as opendp
    from dp_polars import plot as plot
    from dp_polars import spark as spark
    from dp_polars import sql as sql
    from dp_polars._accounting.budget import Budget as Budget
    from dp_polars._accounting.claims import Claim as Claim
    from dp_polars._accounting.terms import BudgetExceededError as BudgetExceededError
    from dp_polars._accounting.terms import LargeLossWarning as LargeLossWarning
    from dp_polars._accounting.terms import Loss as Loss
    from dp_polars._base.extras import MissingExtraError as MissingExtraError
    from dp_polars._bins.candidates import Grid as Grid
    from dp_polars._bins.candidates import grid as grid
    from dp_polars._expressions.best_rows import argmax as argmax
    from dp_polars._expressions.best_rows import argmin as argmin
    from dp_polars._expressions.best_rows import first_above as first_above
    from dp_polars._expressions.choosing import WeightedCounts as WeightedCounts
    from dp_polars._expressions.choosing import median as median
    from dp_polars._expressions.choosing import mode as mode
    from dp_polars._expressions.choosing import quantile as quantile
    from dp_polars._expressions.choosing import top_k as top_k
    from dp_polars._expressions.choosing import weights as weights
    from dp_polars._expressions.expression import PrivateExpr as PrivateExpr
    from dp_polars._expressions.measuring import count as count
    from dp_polars._expressions.measuring import len as len
    from dp_polars._expressions.measuring import mean as mean
    from dp_polars._expressions.measuring import n_people as n_people
    from dp_polars._expressions.measuring import null_count as null_count
    from dp_polars._expressions.measuring import share as share
    from dp_polars._expressions.measuring import std as std
    from dp_polars._expressions.measuring import sum as sum
    from dp_polars._expressions.measuring import value_counts as value_counts
    from dp_polars._expressions.measuring import var as var
    from dp_polars._expressions.namespace import PrivateNamespace as PrivateNamespace
    from dp_polars._expressions.namespace import col as col
    from dp_polars._frames.claim_files import read_claim as read_claim
    from dp_polars._frames.cube import Cube as Cube
    from dp_polars._frames.cube import Number as Number
    from dp_polars._frames.cube import read_cube as read_cube
    from dp_polars._frames.cube_query import CubeQuery as CubeQuery
    from dp_polars._frames.frame import PrivateFrame as PrivateFrame
    from dp_polars._frames.protect import protect as protect
    from dp_polars._frames.publication import Publication as Publication
    from dp_polars._frames.publication import publication as publication
    from dp_polars._frames.publication import statement as statement
    from dp_polars._frames.query import PrivateQuery as PrivateQuery
    from dp_polars._frames.synthetic import FitError as FitError
    from dp_polars._frames.synthetic import Synthetic as Synthetic
    from dp_polars._frames.synthetic_query import SyntheticQuery as SyntheticQuery
    from dp_polars._publish.report import report as report
    from dp_polars._release.cached import CachedAnswerWarning as CachedAnswerWarning
    from dp_polars._release.release import ReleaseError as ReleaseError
    from dp_polars._statistics.statement import Statement as Statement


__version__ = "0.1.0"

# Parts that are imported when they are first used -> the package that each can't do without.
_ON_DEMAND = {
    "analysis": "numpy",
    "mechanisms": "numpy",
    "opendp": "opendp",
    "plot": "altair",
    "spark": "pyspark",
    "sql": "ibis",
}
# The public names, and where they are: what a process does not use, it does not load. Type checkers read them above.
_HOMES = {
    "_accounting.budget": ("Budget",),
    "_accounting.claims": ("Claim",),
    "_accounting.terms": ("BudgetExceededError", "LargeLossWarning", "Loss"),
    "_base.extras": ("MissingExtraError",),
    "_bins.candidates": ("Grid", "grid"),
    "_expressions.best_rows": ("argmax", "argmin", "first_above"),
    "_expressions.choosing": ("WeightedCounts", "median", "mode", "quantile", "top_k", "weights"),
    "_expressions.expression": ("PrivateExpr",),
    "_expressions.measuring": (
        "count",
        "len",
        "mean",
        "n_people",
        "null_count",
        "share",
        "std",
        "sum",
        "value_counts",
        "var",
    ),
    "_expressions.namespace": ("PrivateNamespace", "col"),
    "_frames.cube": ("Cube", "Number", "read_cube"),
    "_frames.cube_query": ("CubeQuery",),
    "_frames.claim_files": ("read_claim",),
    "_frames.frame": ("PrivateFrame",),
    "_frames.protect": ("protect",),
    "_frames.publication": ("Publication", "publication", "statement"),
    "_frames.query": ("PrivateQuery",),
    "_frames.synthetic": ("FitError", "Synthetic"),
    "_frames.synthetic_query": ("SyntheticQuery",),
    "_statistics.statement": ("Statement",),
    "_release.cached": ("CachedAnswerWarning",),
    "_release.release": ("ReleaseError",),
    "_publish.report": ("report",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}
# Classes of what functions return, and of errors: they are there, but nobody begins with them.
_UNLISTED = {
    "CubeQuery",
    "FitError",
    "Grid",
    "Loss",
    "MissingExtraError",
    "Number",
    "PrivateNamespace",
    "SyntheticQuery",
    "WeightedCounts",
}
__all__ = sorted({*_HOME_OF} - _UNLISTED)


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
    meant = None if name.startswith("_") else _like(name, [*__all__, *_ON_DEMAND])
    hint = "" if meant is None else f".\n\nHint: did you mean dp_polars.{meant}?"
    msg = f"module {__name__!r} has no attribute {name!r}{hint}"
    raise AttributeError(msg, name=name, obj=None)  # then a terminal doesn't repeat the hint


def __dir__() -> list[str]:
    """List what is public and installed, for completion."""
    return [*__all__, *(name for name, package in _ON_DEMAND.items() if find_spec(package)), "__version__"]
