"""Public lists as tables in the SQL text itself: nothing is created in the database, so no right to write is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from dp_polars._engines.sql.dialects import ibis
from dp_polars._engines.sql.types import MICROSECONDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dp_polars._engines.sql.dialects import Dialect, Table, Value


# Code points for private use, of which some are in no text.
_SEPARATORS = range(0xE000, 0xF900)


def public_table(columns: Sequence[pl.Series], types: Sequence[Value], dialect: Dialect) -> Table:
    """Return a table with the rows of `columns` as `p0`, `p1`, …, and their numbers as `number`.

    It is one text constant that the engine takes apart: as many constants as values would take Ibis minutes.

    Parameters
    ----------
    columns
        Without null. A text must not hold NUL, which no database can be given.
    types
        What they are in the database, for Ibis.
    """
    numbers = pl.Series("number", range(len(columns[0]))).cast(pl.String)
    texts = [numbers, *(_text(column).alias(f"p{i}") for i, column in enumerate(columns))]
    between, after = _unused(texts)
    rows = pl.select(pl.concat_str(texts, separator=between)).to_series().str.join(after).item()
    table = ibis.literal(rows).split(after).unnest().name("row").as_table()
    fields = table.row.split(between)
    values = {f"p{i}": comparable(fields[i + 1], kind, dialect) for i, kind in enumerate(types)}
    # No row repeats. But without DISTINCT Postgres would take the text apart anew for each row that it is joined with.
    return table.select(number=fields[0].cast("int64"), **values).distinct()


def comparable(value: Value, kind: Value, dialect: Dialect) -> Value:
    """Return a text as a value of a type, or a column as it is; both so that equal values are the same ones."""
    if kind.is_string():
        return dialect.binary(value)
    if value.type() != kind:
        # Not in the column's own digits: a time between two that it can hold would become one of them.
        value = value.cast(kind.copy(scale=MICROSECONDS) if kind.is_timestamp() else kind)
    return dialect.ticks(value) if dialect.ticks is not None and kind.is_temporal() else value


def check_public(values: pl.Series) -> None:
    """Refuse what the engine can't be told, or would round."""
    if values.dtype == pl.String and values.str.contains("\0", literal=True).any():
        msg = "public texts must not hold the character NUL: databases take none."
        raise ValueError(msg)
    if isinstance(values.dtype, (pl.Date, pl.Datetime)) and not values.dt.year().is_between(1, 9999).all():
        msg = "public times must lie in the years 1 to 9999."
        raise ValueError(msg)
    if values.dtype == pl.Time and (values.to_physical() % 1000 != 0).any():
        msg = "public times must be whole microseconds."
        raise ValueError(msg)


def _text(values: pl.Series) -> pl.Series:
    """Return values as texts that every engine reads, in full: Polars' own cast cuts a time's microseconds."""
    if values.dtype == pl.Boolean:
        return values.cast(pl.Int8).cast(pl.String)
    if isinstance(values.dtype, pl.Datetime):
        return values.dt.strftime("%Y-%m-%d %H:%M:%S%.6f")
    return values.dt.strftime("%H:%M:%S%.6f") if values.dtype == pl.Time else values.cast(pl.String)


def _unused(texts: Sequence[pl.Series]) -> tuple[str, str]:
    """Return two characters that are in no text."""
    used: set[str] = set()
    for text in texts:
        used.update(text.str.extract_all("[\ue000-\uf8ff]").explode().drop_nulls().unique().to_list())
    free = [chr(point) for point in _SEPARATORS if chr(point) not in used]
    if len(free) < 2:
        msg = "public texts must leave two of Unicode's characters for private use (U+E000 to U+F8FF) unused."
        raise ValueError(msg)
    return free[0], free[1]
