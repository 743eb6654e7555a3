"""Which Polars type a column of a database has, and whether the database tells the same values apart as Polars."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from dp_polars._base.process import require

if TYPE_CHECKING:
    from collections.abc import Collection

    from dp_polars._base.column_types import PrivacyUnit
    from dp_polars._engines.sql.dialects import Dialect


dt: Any = require("ibis.expr.datatypes", extra="sql")

_POLARS = {
    dt.Boolean: pl.Boolean(),
    dt.Int8: pl.Int8(),
    dt.Int16: pl.Int16(),
    dt.Int32: pl.Int32(),
    dt.Int64: pl.Int64(),
    dt.Float32: pl.Float32(),
    dt.Float64: pl.Float64(),
    dt.String: pl.String(),
    dt.Date: pl.Date(),
    dt.Time: pl.Time(),
}
# Digits of a second.
MICROSECONDS = 6
_HINTS: dict[Any, str] = {
    dt.UnsignedInteger: "cast it to a signed integer in Ibis first.",
    dt.Interval: "make it a number in Ibis first: t.departure.epoch_seconds() - t.arrival.epoch_seconds().",
    dt.Decimal: "cast it to a decimal of at most 38 digits in Ibis first.",
    dt.Timestamp: "cast it to a timestamp without a time zone, in microseconds, in Ibis first.",
}


def schema_of(table: Any, columns: Collection[str], only_counted: Collection[str]) -> pl.Schema:  # noqa: ANN401
    """Return the Polars types of these columns; of `only_counted`, any type in the place of whatever it is."""
    types = {}
    for name in columns:
        must_have(table, name, "the column")
        types[name] = pl.Binary() if name in only_counted else _polars_type(name, table.schema()[name])
    return pl.Schema(types)


def must_have(table: Any, name: str, what: str) -> None:  # noqa: ANN401
    if name not in table.columns:
        msg = f"the table must have {what} {name!r}, got the columns {list(table.columns)}."
        raise ValueError(msg)


def _polars_type(name: str, kind: Any) -> pl.DataType:  # noqa: ANN401
    if kind.is_decimal() and kind.precision is not None and kind.precision <= 38 and kind.scale is not None:
        return pl.Decimal(kind.precision, kind.scale)
    if kind.is_timestamp() and kind.timezone is None and (kind.scale is None or kind.scale <= MICROSECONDS):
        return pl.Datetime("us")
    known = _POLARS.get(type(kind))
    if known is not None:
        return known
    msg = (
        f"the column {name!r} must be text, a signed integer of at most 64 bits, a float, a decimal of known digits, a "
        f"boolean, a date, a time or a timestamp without a time zone, got {_called(kind)}."
    )
    hint = next((hint for kinds, hint in _HINTS.items() if isinstance(kind, kinds)), None)
    raise TypeError(msg if hint is None else f"{msg}\n\nHint: {hint}")


def _called(kind: Any) -> Any:  # noqa: ANN401
    """Return a type as Ibis calls it where there may be nulls, without the mark of a column that has none."""
    return kind.copy(nullable=True)


def check_types(dialect: Dialect, table: Any, found: dict[str, str], unit: PrivacyUnit) -> None:  # noqa: ANN401
    """Refuse columns whose type in the database, as it names it, compares values in a way of its own."""
    for name, kind in found.items():
        plain = kind.partition("(")[0]
        family = dialect.types.get(plain)
        is_known = family is not None and getattr(table.schema()[name], f"is_{family}")()
        if is_known or (name in unit and plain in dialect.unit_types):
            continue
        what = f"the privacy unit {name!r}" if name in unit else f"the column {name!r}"
        types = sorted({*dialect.types, *(dialect.unit_types if name in unit else ())})
        msg = (
            f"{what} must have one of {dialect.name}'s types {', '.join(types)}, got {kind} "
            f"({_called(table.schema()[name])} in Ibis).\n\nHint: {dialect.way_out}"
        )
        raise TypeError(msg)
