"""Filters that a scan may use: those for which a file's extremes say the same as its rows.

A scan of Parquet leaves out row groups by what a filter gives on their least and largest values. For x * 2 > 0 that is
wrong where the largest overflows, and NaN may be in neither: one row would take the group's others with it. A plain
comparison of an integer, a date or a text with a constant of the same type follows the order of the extremes.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from dp_polars._base import column_types
from dp_polars._rowwise import nodes
from dp_polars._rowwise.views import visited

_COMPARISONS = frozenset({"==", "<", "<=", ">", ">="})


def may_filter_scans(rows: pl.LazyFrame) -> bool:
    """Return whether each filter of a plan may be moved into a scan: it compares plainly, and stands right above one.

    Polars moves filters through other steps, and rewrites them there: so one that stands elsewhere keeps all where they
    are. A plan without filters has none to move.
    """
    plan = visited(rows)
    return _is_safe(plan, plan.get_node())


def _is_safe(plan: Any, number: int, *, filtered: bool = False) -> bool:  # noqa: ANN401
    """Return the same of what is below a node; `filtered` says that a filter stands right above it."""
    plan.set_node(number)
    try:
        node = plan.view_current_node()
    except NotImplementedError:
        return False
    kind, inputs, exprs = type(node).__name__, plan.get_inputs(), plan.get_exprs()
    if filtered and not (kind == "Filter" or (kind == "Scan" and node.scan_type[0] == "parquet")):
        return False
    if kind == "Filter":
        plan.set_node(inputs[0])  # whose columns the expression is on
        if not all(_is_plain(plan, expr.node) for expr in exprs):
            return False
    return all(_is_safe(plan, value, filtered=kind == "Filter") for value in inputs)


def _is_plain(plan: Any, number: int) -> bool:  # noqa: ANN401
    """Return whether an expression compares columns with constants of their types, once or more often."""
    try:
        view = plan.view_expression(number)
    except NotImplementedError:
        return False
    if type(view).__name__ != "BinaryExpr":
        return False
    operator = nodes.operator_name(str(view.op))
    if operator == "&":
        return _is_plain(plan, view.left) and _is_plain(plan, view.right)
    kinds = {type(plan.view_expression(side)).__name__ for side in (view.left, view.right)}
    types = [plan.get_dtype(side) for side in (view.left, view.right)]
    return operator in _COMPARISONS and kinds == {"Column", "Literal"} and types[0] == types[1] and _has_order(types[0])


def _has_order(dtype: pl.DataType) -> bool:
    return dtype in (pl.Date, pl.String) or (dtype.is_integer() and not column_types.is_wide(dtype))
