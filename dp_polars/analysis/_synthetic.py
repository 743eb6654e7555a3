"""Rows to rehearse on, from public things alone: a schema, candidates and keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from dp_polars._base import column_types
from dp_polars._base.numbers import as_fraction, given, positive_int
from dp_polars._base.process import called
from dp_polars._bins.candidates import Categories, grid, ordered

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dp_polars._base.numbers import Number
    from dp_polars._bins.candidates import Values


_SEED = 0
_MOST_SKEW = 4
_TEXTS = tuple("abcdefghij")
_FIRST, _LAST = date(2024, 1, 1), date(2024, 12, 31)


@called
def synthetic(
    schema: Mapping[str, pl.DataType | type[pl.DataType]],
    *,
    people: int,
    rows: int,
    values: Mapping[str, Values] | None = None,
    privacy_unit: str | Sequence[str] | None = None,
    skew: Number = 0.5,
) -> pl.DataFrame:
    """Return synthetic rows to try a query on before any is private: they follow from public things alone.

    No private row is read: `schema` holds the types of columns, which are taken as public here as everywhere. The same
    arguments give the same rows. Nothing about real rows follows from them but what is put in: try several sizes.

    Parameters
    ----------
    schema
        The type of every column by its name, such as `frame.collect_schema()`: numbers, text, categories, booleans,
        dates and times.
    people, rows
        How many people there are, and how many rows in all: at least one for each of them.
    values
        The public values of columns, by name: candidates and keys, as lists, ranges, grids, Series or arrays. Columns
        without any get a few by their type: whole numbers from 0 to 99, other numbers from 0 to 99.99, the letters a to
        j, the categories of an Enum, the days or hours of 2024, the minutes of a day.
    privacy_unit
        The column, or columns, that tell people apart. None: the first one. Theirs are whole numbers from 0 on, or such
        numbers as text; of other types, `values` must give as many as there are people.
    skew
        How unequal people are, from 0 to 4. At 0 rows fall to people at random. At 0.5 a minority has many rows, at 1
        or more a few people have most of them.

    Returns
    -------
    DataFrame
        With these columns and types, without null, in no order. Columns are independent of each other. The
        person of rank r has one row and, of the rows left over, a share in proportion to 1/r^skew, so that
        some have many rows. Text, categories and booleans are as frequent as 1/r, r their place in the list,
        so that groups have different sizes. Numbers and times lie between their smallest and largest value,
        most of them in the middle: each is the mean of two that are evenly spread.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

    Examples
    --------
    >>> import polars as pl
    >>> schema = {"patient": pl.Int64, "ward": pl.Enum(["A", "B"]), "age": pl.Int8}
    >>> rows = synthetic(schema, people=100, rows=300, values={"age": range(121)})
    >>> rows.schema == pl.Schema(schema), rows.height, rows["patient"].n_unique()
    (True, 300, 100)
    """
    types = _types(schema)
    positive_int("people", people)
    if not positive_int("rows", rows) >= people:
        msg = f"rows must be at least people, {people:,}, for each has one, got {rows:,}."
        raise ValueError(msg)
    inequality = as_fraction("skew", skew)
    if not 0 <= inequality <= _MOST_SKEW:
        msg = f"skew must be from 0 to {_MOST_SKEW}, got {skew!r}."
        raise ValueError(msg)
    chosen = {} if values is None else values
    if not isinstance(chosen, Mapping):
        msg = f"values must be a dict of columns and their public values, got {given(values)}."
        raise TypeError(msg)
    unit = [privacy_unit] if isinstance(privacy_unit, str) else list(privacy_unit or [next(iter(types))])
    for name, columns in (("values", chosen), ("privacy_unit", unit)):
        missing = sorted(set(columns) - set(types))
        if missing:
            msg = f"{name} must name columns of the schema, got {missing} where they are {list(types)}."
            raise ValueError(msg)
    random = np.random.default_rng(_SEED)
    weights = np.arange(1, people + 1) ** -float(inequality)
    others = random.choice(people, rows - people, p=weights / weights.sum())
    owner = random.permutation(np.append(np.arange(people), others))
    return pl.DataFrame(
        [
            _people(name, dtype, chosen.get(name), people).gather(owner)
            if name in unit
            else _drawn(name, dtype, chosen.get(name), rows, random)
            for name, dtype in types.items()
        ]
    )


def _types(schema: Mapping[str, pl.DataType | type[pl.DataType]]) -> pl.Schema:
    try:
        types = pl.DataFrame(schema=dict(schema)).schema
    except (TypeError, ValueError, pl.exceptions.PolarsError):
        types = pl.Schema()
    if not types:
        msg = (
            f"schema must be the types of columns by their names, got {given(schema)}.\n\n"
            'Hint: {"patient": pl.Int64, "ward": pl.String}, or frame.collect_schema().'
        )
        raise TypeError(msg)
    for name, dtype in types.items():
        if column_types.family(dtype) is None:
            msg = (
                f"schema must have numbers, text, categories, booleans, dates and times, got {dtype} of column "
                f"{name!r}.\n\nHint: leave the column out, and add it to the rows yourself if the query needs it."
            )
            raise TypeError(msg)
    return types


def _people(name: str, dtype: pl.DataType, values: Values | None, people: int) -> pl.Series:
    """Return a value for each person."""
    if values is not None:
        series = Categories.of(values, f"values[{name!r}]").for_column(None)
        if not len(series) >= people:
            msg = f"values[{name!r}] must have one for each of {people:,} people, got {len(series):,}."
            raise ValueError(msg)
        return _as(name, dtype, series[:people])
    if not (dtype.is_integer() or isinstance(dtype, (pl.String, pl.Categorical))):
        msg = (
            f"values must be given for the privacy unit {name!r} of type {dtype}: they make up people by whole numbers "
            f'and text only.\n\nHint: values={{"{name}": […]}}, or privacy_unit="…" where it is another column.'
        )
        raise ValueError(msg)
    numbers = pl.Series(range(people), dtype=pl.Int64)
    return _as(name, dtype, numbers if dtype.is_integer() else numbers.cast(pl.String))


def _drawn(name: str, dtype: pl.DataType, values: Values | None, rows: int, random: np.random.Generator) -> pl.Series:
    """Return a value for each row."""
    chosen = _default(dtype) if values is None else values
    if column_types.family(dtype) in ("text", "boolean"):
        series = _as(name, dtype, Categories.of(chosen, f"values[{name!r}]").for_column(None))
        weights = 1 / np.arange(1, len(series) + 1)
        return series.gather(random.choice(len(series), rows, p=weights / weights.sum()))
    points = ordered(chosen)
    middle: NDArray[np.float64] = random.random((2, rows)).mean(axis=0)
    return _as(name, dtype, points.take((middle * points.size).astype(np.int64)))


def _as(name: str, dtype: pl.DataType, series: pl.Series) -> pl.Series:
    """Return values in the type of a column."""
    try:
        cast = series.cast(dtype)
    except pl.exceptions.PolarsError:
        cast = None
    if cast is None or (not dtype.is_float() and cast.cast(series.dtype).ne_missing(series).any()):
        msg = f"values[{name!r}] must be values that a column of type {dtype} can hold, got {series.dtype}."
        raise ValueError(msg)
    return cast.alias(name)


def _default(dtype: pl.DataType) -> Values:
    """Return some values of a type."""
    if isinstance(dtype, pl.Enum):
        return dtype.categories
    if isinstance(dtype, pl.Decimal):
        last_digit, digits = Decimal(1).scaleb(-dtype.scale), min(2, (dtype.precision or 38) - dtype.scale)
        return grid(0, 10**digits - last_digit, step=last_digit)
    defaults: dict[object, Values] = {
        pl.Boolean: [False, True],
        pl.Date: pl.date_range(_FIRST, _LAST, eager=True),
        pl.Duration: [timedelta(hours=hours) for hours in range(100)],
        pl.Time: grid(time(0), time(23, 59), step="1m"),
    }
    if isinstance(dtype, pl.Datetime):
        return pl.datetime_range(_FIRST, _LAST, "1h", time_unit=dtype.time_unit, time_zone=dtype.time_zone, eager=True)
    if dtype.is_float():
        return grid(0, 99.99, step=0.01)
    return defaults.get(dtype.base_type(), range(100) if dtype.is_integer() else _TEXTS)
