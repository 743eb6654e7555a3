"""Rows of DuckDB of which no value raises: what may fail on a row is null there, as DuckDB's TRY makes it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, TypeAlias

from dp_polars._base.process import require

# A connection and a table of Ibis, which has no types of its own for mypy here.
Backend: TypeAlias = Any
Table: TypeAlias = Any

_ops: Any = require("ibis.expr.operations", extra="sql")
_sql: Any = require("sqlglot.expressions", extra="sql")
_parsed: Any = require("sqlglot", extra="sql").parse_one

_FALLIBLE = (_sql.Add, _sql.Div, _sql.Func, _sql.IntDiv, _sql.Mod, _sql.Mul, _sql.Neg, _sql.Sub)
# Which DuckDB takes in no TRY, or whose parts it takes one by one.
_NOT_IN_TRY = (_sql.AggFunc, _sql.Lambda, _sql.Query, _sql.Subquery, _sql.Unnest, _sql.Explode, _sql.Window)
_CHOICES = (_sql.And, _sql.Case, _sql.Coalesce, _sql.If, _sql.Or)


def lenient(backend: Backend, table: Table) -> Table:
    """Return the rows of an expression, null where a function, a cast or a sum of two values raises.

    Each such node has a TRY of its own: DuckDB takes an expression that stands in two of them out of both, but none
    that is a TRY itself. Aggregates and windows can't be wrapped. What DuckDB does not take this way stays as it is.
    """
    if isinstance(table.op(), _ops.DatabaseTable):
        return table
    with suppress(Exception):  # which the expression itself raises again, before the charge
        backend._run_pre_execute_hooks(table)  # what Ibis itself holds as tables
        # Parts of Ibis' own tree stand in several places, and some where no walk finds them.
        tree = _parsed(backend.compile(table, limit=None), read=backend.dialect)
        for node in reversed([*tree.find_all(_sql.Cast, *_FALLIBLE)]):
            _wrap(node)
        sql = tree.sql(backend.dialect)
        backend.raw_sql(f"DESCRIBE {sql}").fetchall()
        return _ops.SQLQueryResult(sql, table.schema(), backend).to_expr()
    return table


def _wrap(node: Any) -> None:  # noqa: ANN401
    """Put a node into a TRY, or a cast into one that tries."""
    if node.find(_sql.Identifier) is None or isinstance(node, _CHOICES):
        return
    if type(node) is _sql.Cast:
        node.replace(_sql.TryCast(this=node.this, to=node.to))
    elif node.find(*_NOT_IN_TRY) is None and not isinstance(node.parent, (_sql.Window, _sql.Filter, _sql.IgnoreNulls)):
        node.replace(_sql.Anonymous(this="TRY", expressions=[node.copy()]))
