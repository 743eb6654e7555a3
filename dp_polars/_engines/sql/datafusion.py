"""The ways of DataFusion, which runs in this process on Arrow's columns."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from dp_polars._base.process import require
from dp_polars._engines.sql.dialects import Dialect, by_arrow, cast, constant, function, ibis, types_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from numpy.typing import NDArray

    from dp_polars._engines.sql.dialects import Backend, Statement, Table, Value


_sql: Any = require("sqlglot.expressions", extra="sql")

_QUOTIENT = "dp_polars_quotient"
_ZONED = "timestamp with a time zone"
_arrow_cast = function("arrow_cast", (None, "string"), "int64")
_md5 = function("md5", (None,), "string")
_range = function("range", ("int64", "int64"), "array<int64>")
_quotient_of = function(_QUOTIENT, ("int64", "int64"), "int64")


def _ticks(value: Value) -> Value:
    return _arrow_cast(value, "Int64")


def _said(value: Value) -> Value:
    """Return a text of a value. No value raises: dates and times that have no name in a calendar come as integers."""
    kind = value.type()
    if kind.is_string() or kind.is_binary():
        return _md5(value)
    return cast(_ticks(value) if kind.is_temporal() else value, "string")


def _order(person: Sequence[Value], says: Sequence[Value], secret: int) -> Value:
    numbers = [number for value in (*says, *person) if (number := _number(value)) is not None]
    if len(numbers) == len(says) + len(person):
        return _mixed(numbers, secret)
    texts = [ibis.literal(f"{secret}"), *(_said(value) for value in (*says, person[0]))]
    place = _md5(_joined(len(texts))(ibis.literal(":"), *texts))
    for value in person[1:]:
        place = _md5(_joined(2)(ibis.literal(":"), place, _said(value)))
    return place


def _number(value: Value) -> Value | None:
    """Return the integer of 64 bits that a value is, without an error for any; None: it is not one."""
    kind = value.type()
    if kind.is_temporal():
        return _ticks(value)
    return cast(value, "int64") if kind.is_signed_integer() else None


def _mixed(numbers: Sequence[Value], secret: int) -> Value:
    """Return a hash of integers: SplitMix64's bits of their sum, each times a secret factor.

    All wraps around in 64 bits. Texts of MD5 would take four times as long to be made and sorted.
    """
    seeds = np.random.SeedSequence(secret).generate_state(1 + len(numbers), np.uint64).astype(np.int64).tolist()
    mixed = constant(seeds[0], "int64")
    for number, factor in zip(numbers, seeds[1:], strict=True):
        mixed = mixed + number * constant(factor | 1, "int64")
    # G. L. Steele et al. (2014): Fast splittable pseudorandom number generators, without the last step, for low bits.
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        high = (mixed >> constant(shift, "int64")) & constant(2 ** (64 - shift) - 1, "int64")
        mixed = (mixed ^ high) * constant(factor - 2**64, "int64")
    return mixed


def _copies(rows: Table, _: Sequence[str]) -> Table:
    """Return the rows, numbered among equal ones: to group them is ten times as fast as a window."""
    distinct = rows.group_by(rows.columns).aggregate(copies=rows.count())
    return distinct.mutate(copy=_range(constant(0, "int64"), distinct["copies"]).unnest()).drop("copies")


@cache
def _joined(texts: int) -> Callable[..., Value]:
    return function("concat_ws", ["string"] * (1 + texts), "string")


def _total(numbers: Value, largest: int) -> Value:
    """Return an exact sum, clamped: one of 64 bits wraps around."""
    wide = "decimal(38, 0)"
    low, high = (constant(str(end), wide) for end in (-largest, largest))
    return cast(ibis.greatest(low, ibis.least(cast(numbers, wide).sum(), high)), "int64")


def _compile(backend: Backend, table: Table) -> str:
    """Return the SELECT; for the division of integers, which `/` is here, Ibis has no word."""
    tree = backend.compiler.to_sqlglot(table)
    for node in list(tree.find_all(_sql.Anonymous)):
        if node.name == _QUOTIENT:
            number, by = (_sql.Paren(this=side) for side in node.expressions)
            node.replace(_sql.Paren(this=_sql.Div(this=number, expression=by, typed=True, safe=False)))
    sql: str = tree.sql(backend.dialect)
    return sql


def _describe(backend: Backend, table: Table, columns: Collection[str]) -> dict[str, str]:
    """Return the types as Arrow has them."""
    schema = backend.con.sql(backend.compile(table.select(*columns), limit=None)).schema() if columns else ()
    return {one.name: _ZONED if getattr(one.type, "tz", None) else str(one.type) for one in schema}


def _prepare(backend: Backend, sql: str) -> None:
    backend.con.sql(sql)  # which plans it; it is run when its rows are asked for


def _fetch(backend: Backend, statement: Statement) -> dict[str, NDArray[Any]]:
    """Compute each table that is named, in turn, and then the statement.

    DataFusion itself would compute one anew wherever it is named: of rows that are drawn, or of the first ones that
    come, a person would then count for more than the bounds.
    """
    context, registered = backend.con, []
    try:
        for name, sql in statement.named:
            context.register_view(name, context.sql(sql).cache())
            registered.append(name)
        found = context.sql(statement.last)
        # Without their schemas: parts of a union differ in whether a column may be null.
        parts = [pa.RecordBatch.from_arrays(part.columns, statement.columns) for part in found.collect()]
        schema = pa.schema([(name, kind.type) for name, kind in zip(statement.columns, found.schema(), strict=True)])
        return by_arrow(statement, pa.Table.from_batches(parts, schema))
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        msg = "DataFusion has panicked."
        raise RuntimeError(msg) from None  # which is no error to Python, and so would not be shielded
    finally:
        for name in registered:
            context.deregister_table(name)


DATAFUSION = Dialect(
    name="datafusion",
    types=types_of(
        boolean="bool",
        integer="int8, int16, int32, int64",
        floating="float, double",
        decimal="decimal128",
        string="string, large_string, string_view",
        date="date32[day]",
        time="time64[ns]",
        timestamp="timestamp[us]",
    ),
    unit_types=frozenset(
        {
            *("uint8", "uint16", "uint32", "uint64", "binary", "large_binary", "binary_view"),
            *("timestamp[s]", "timestamp[ms]", "timestamp[ns]", _ZONED),
        }
    ),
    way_out="cast it in Ibis first: timestamps to timestamp(6); or, what Ibis has no type for, in a view.",
    describe=_describe,
    prepare=_prepare,
    divide=_quotient_of,
    # Which Arrow compares byte by byte anyway; but bytes that are no text are not taken for one on their way here.
    binary=lambda text: cast(text, "binary"),
    order=_order,
    fetch=_fetch,
    oldest=(51, 0),
    # To Arrow -0.0 is less than 0.0.
    double=lambda number: constant(number + 0.0, "float64"),
    total=_total,
    compile=_compile,
    ticks=_ticks,
    copies=_copies,
    once="AS",
)
