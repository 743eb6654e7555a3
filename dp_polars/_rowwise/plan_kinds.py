"""The kinds of a plan's steps before `protect`: all that may be said of them, for their literals may be private."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dp_polars._rowwise.views import kind_of, nodes

if TYPE_CHECKING:
    import polars as pl

# Nodes that a plan shows -> what their step is called.
_KINDS = {
    "Filter": "filter",
    "GroupBy": "group_by",
    "HStack": "with_columns",
    "Join": "join",
    "Select": "select",
    "SimpleProjection": "select",
    "Sort": "sort",
    "Union": "concat",
}
_MAPS = ("explode", "rechunk", "unnest", "unpivot")
# None: a source that Polars does not show.
_SOURCES = (None, "Cache", "DataFrameScan", "PythonScan", "Scan")


def kinds_of_steps(frame: pl.LazyFrame) -> list[str]:
    """Return the kinds of a plan's steps, sorted, each once: no literal, no column and no number of them."""
    kinds = set[str]()
    for plan in nodes(frame):
        kind = kind_of(plan)
        if kind == "MapFunction":
            name = plan.view_current_node().function[0]
            kinds.add(name if name in _MAPS else "another step")
        elif kind not in _SOURCES:
            kinds.add(_KINDS.get(str(kind), "another step"))
    return sorted(kinds)
