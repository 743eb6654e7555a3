"""The public answers that a query may give: categories, sorted points, arithmetic grids."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars._numeric import column_types
from dp_polars._numeric.numbers import Number, as_fraction, given
from dp_polars._queries.durations import nanoseconds

# What users may give as a list of candidates: also anything that speaks Arrow's C interface (pyarrow arrays).
Values: TypeAlias = "Sequence[object] | range | pl.Series | NDArray[np.generic] | pl.Enum | object"
Temporal: TypeAlias = "date | datetime | timedelta | time"

# Beyond it a float64 no longer tells two grid points apart.
_LARGEST_SIZE = 2**53
# Ends of float grids, and one over their steps: inside it no arithmetic on points overflows.
_LARGEST_FLOAT = 2**1000
# Decimal places of decimal grids: with them 64-bit multiples of the last one fit into the 38 digits of Polars.
_MOST_PLACES = 18


@dataclass(frozen=True, eq=False)
class _Listed:
    """Candidates that are held as a Series; equal where type and values are."""

    values: pl.Series | None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, type(self)):
            return NotImplemented
        if self.values is None or other.values is None:
            return self.values is other.values
        return self.values.dtype == other.values.dtype and self.values.equals(other.values)

    def __hash__(self) -> int:
        return hash(None if self.values is None else (str(self.values.dtype), len(self.values)))


@dataclass(frozen=True, eq=False)
class Categories(_Listed):
    """A list of candidates without an order that matters; None: the type of the column names them."""

    @classmethod
    def of(cls, values: Values | None) -> Categories:
        """Return the categories of a list, a Series, an Arrow array or an Enum type."""
        if values is None:
            return cls(None)
        if isinstance(values, Grid):
            msg = "categories must be a list or a range, got a grid.\n\nHint: range(0, 11), or a list of the values."
            raise TypeError(msg)
        if isinstance(values, pl.Enum):
            values = values.categories
        series = _to_series(values)
        return cls(_check(series.cast(column_types.released(series.dtype))))

    def for_column(self, dtype: pl.DataType | None) -> pl.Series:
        """Return the candidates as a Series of the column's type (text for a Categorical), or as they were given."""
        if dtype is None:
            if self.values is None:
                msg = "the column's type must be known where only it names the candidates."
                raise TypeError(msg)
            return self.values
        if self.values is None:
            if isinstance(dtype, pl.Enum):
                return _check(pl.Series(dtype.categories, dtype=dtype))
            if dtype == pl.Boolean:
                return pl.Series([False, True])
            msg = (
                f"candidates must be given for a column of type {dtype}.\n\n"
                "Hint: they may be left out only where the type names them (Enum, Boolean). Take them from public "
                "knowledge, never from the data."
            )
            raise TypeError(msg)
        column, own = column_types.family(dtype), column_types.family(self.values.dtype)
        if dtype.is_float() or column is None or column != own:
            msg = f"candidates of type {self.values.dtype} can't be categories of a column of type {dtype}."
            if dtype.is_float() and own == "number":
                msg += "\n\nHint: round or cut the column to integers, decimals or categories first."
            raise TypeError(msg)
        answer = column_types.released(dtype)
        if self.values.dtype == answer:
            return self.values
        try:
            values = self.values.cast(answer)
        except pl.exceptions.PolarsError:
            values = None
        if values is None or values.cast(self.values.dtype).ne_missing(self.values).any():
            msg = f"candidates must be values that a column of type {dtype} can hold, got some that it can't."
            raise TypeError(msg)
        return _check_width(values)

    def __str__(self) -> str:
        return "the categories of the column's type" if self.values is None else _plural(len(self.values), "candidate")


@dataclass(frozen=True, eq=False)
class Points(_Listed):
    """Candidates in ascending order."""

    values: pl.Series

    @property
    def size(self) -> int:
        """Number of candidates."""
        return len(self.values)

    @property
    def dtype(self) -> pl.DataType:
        """Type of the answer."""
        return self.values.dtype

    def take(self, codes: NDArray[np.int64]) -> pl.Series:
        """Return the candidates at the given positions."""
        return self.values.gather(codes)

    def __str__(self) -> str:
        return _plural(self.size, "candidate")


@dataclass(frozen=True, repr=False)
class Grid:
    """A public arithmetic range of candidates, both ends included, never materialised. Made by `grid`.

    Parameters
    ----------
    start, step
        Exact, in units of 1 (numbers) or in nanoseconds (times; those of dates count from 1970).
    size
        Number of candidates.
    dtype
        Type of the answer.
    """

    start: Fraction
    step: Fraction
    size: int
    dtype: pl.DataType

    def __post_init__(self) -> None:
        if not self.size <= _LARGEST_SIZE:
            msg = f"a grid must have at most 2**53 points, got {self.size:,}.\n\nHint: take a wider step."
            raise ValueError(msg)
        unit = column_types.tick(self.dtype)
        low, high = (0, 2**64) if self.dtype == pl.UInt64 else (-(2**63), 2**63)
        if unit is not None and not (
            low <= self.start / unit and self.start + self.step * (self.size - 1) < high * unit
        ):
            msg = f"the points of a grid of {self.dtype} must fit into 64 bits."
            raise ValueError(msg)
        if unit is None and not (
            max(abs(self.start), abs(self.start + self.step * (self.size - 1))) <= _LARGEST_FLOAT
            and self.step * _LARGEST_FLOAT >= 1
        ):
            msg = "the points of a grid of Float64 must lie within ±2**1000, and its step must be at least 2**-1000."
            raise ValueError(msg)

    def take(self, codes: NDArray[np.int64]) -> pl.Series:
        """Return the candidates at the given positions.

        A float is the exact point rounded once where start and step need no more than 53 bits.
        """
        unit = column_types.tick(self.dtype) or Fraction(1)
        start, step = self.start / unit, self.step / unit
        denominator = math.lcm(start.denominator, step.denominator) if self.dtype.is_float() else 1
        first, stride = int(start * denominator), int(step * denominator)
        if not self.dtype.is_float():
            # Modulo 2**64 on the way, but every point itself fits.
            physical = codes.astype(np.uint64) * np.uint64(stride % 2**64) + np.uint64(first % 2**64)
            return _from_integers(physical, self.dtype)
        if max(abs(first), abs(first + stride * (self.size - 1)), denominator) <= 2**53:
            # Both are exact floats, so the quotient is the float nearest to the point: 7 steps of 0.01 are 0.07.
            return pl.Series((codes * stride + first) / denominator, dtype=pl.Float64)
        return pl.Series(float(start) + codes * float(step), dtype=pl.Float64)

    def __repr__(self) -> str:
        first, last = self.take(np.array([0, self.size - 1]))
        return f"<Grid: {self}, {first} to {last}, {self.dtype}>"

    def __str__(self) -> str:
        return _plural(self.size, "grid point")


Ordered: TypeAlias = "Points | Grid"


def grid(start: Number | Temporal, stop: Number | Temporal, *, step: Number | timedelta | str) -> Grid:
    """Return a public arithmetic range of candidates, both ends included, that is never materialised.

    Parameters
    ----------
    start, stop
        The first and the last candidate: numbers (int, float, Fraction or Decimal; a float is the decimal that it
        prints as), dates, datetimes, times or timedeltas.
    step
        The distance of two neighbours: a number, or for temporal ends a timedelta or a fixed Polars duration
        string ("1d" is 24 hours, "1h30m"). It must be positive and land on `stop`.

    Returns
    -------
    Grid
        Up to 2**53 points. Answers are Int64 (or UInt64) where both numbers are integers, Decimal where one is a
        Decimal and none a float or Fraction, else Float64; temporal answers have the type of `start`.

    Raises
    ------
    TypeError
        If the ends are not of one type, or the step does not go with them.
    ValueError
        If the step is not positive or does not land on `stop`, or there are too many points.

    Examples
    --------
    >>> import dp_polars as dpp
    >>> str(dpp.grid(0, 1_000_000, step=0.01))
    '100,000,001 grid points'
    """
    if isinstance(start, (date, timedelta, time)):
        first, last, distance, dtype = _temporal_ends(start, stop, step)
    else:
        first, last = as_fraction("start", start), as_fraction("stop", stop)
        distance = as_fraction("step", step)
        dtype = _number_dtype([start, stop, step], [first, last, distance])
    if not distance > 0:
        msg = f"step must be greater than 0, got {step!r}."
        raise ValueError(msg)
    if not last >= first:
        msg = f"stop must not be below start, got start={start!r} and stop={stop!r}."
        raise ValueError(msg)
    steps = (last - first) / distance
    if steps.denominator != 1:
        msg = (
            f"step must land on stop exactly, got start={start!r}, stop={stop!r}, step={step!r}.\n\n"
            f"Hint: from start, {math.floor(steps):,} whole steps fit."
        )
        raise ValueError(msg)
    return Grid(first, distance, int(steps) + 1, dtype)


def ordered(values: Values) -> Ordered:
    """Return the candidates of a quantile: a grid or a range as it is, anything else sorted."""
    if isinstance(values, Grid):
        return values
    if isinstance(values, range) and values[1:]:
        low, high = min(values[0], values[-1]), max(values[0], values[-1])
        return grid(low, high, step=abs(values.step))
    series = _check(_to_series(values))
    if column_types.family(series.dtype) in (None, "text", "boolean"):
        msg = f"candidates of a quantile must be numbers or times, got {series.dtype}."
        raise TypeError(msg)
    if series.dtype.is_float() and not series.is_finite().all():
        msg = "candidates must be finite, got an infinite one."
        raise ValueError(msg)
    return _as_grid(series.sort())


def _as_grid(ascending: pl.Series) -> Ordered:
    """Return evenly spaced integers or times as the grid that they are: nothing has to be searched in it."""
    unit = column_types.tick(ascending.dtype)
    deep = isinstance(ascending.dtype, pl.Decimal) and ascending.dtype.scale > _MOST_PLACES
    if unit is None or deep or len(ascending) == 1:
        return Points(ascending)
    physical = column_types.integers(ascending)
    steps = np.unique(np.diff(physical))
    step = int(physical[1]) - int(physical[0])
    if len(steps) > 1 or step >= 2**63:
        return Points(ascending)
    return Grid(int(physical[0]) * unit, step * unit, len(ascending), ascending.dtype)


def _to_series(values: Values) -> pl.Series:
    if isinstance(values, pl.Series):
        return values.alias("")
    if np.ma.is_masked(values):
        msg = "candidates must not contain null."
        raise ValueError(msg)
    if isinstance(values, np.ndarray):
        return pl.Series(values.copy())  # whoever writes into the array later must not change what was checked
    if hasattr(values, "__arrow_c_array__") or hasattr(values, "__arrow_c_stream__"):
        of_arrow: Any = values
        return pl.Series(of_arrow)
    if isinstance(values, (str, bytes)) or not isinstance(values, Sequence):
        msg = f"candidates must be a list, a range, a Series or a NumPy or Arrow array, got {type(values).__name__}."
        if isinstance(values, Iterable) and not isinstance(values, (str, bytes)):
            msg += "\n\nHint: list(…) or sorted(…) makes a list."
        raise TypeError(msg)
    kinds = sorted({_kind(value) for value in values})
    if "bool" in kinds and len(kinds) > 1:  # Polars would take True for 1
        msg = f"candidates must be of one type, got {kinds}."
        raise TypeError(msg)
    dtype = (pl.UInt64() if max(values) >= 2**63 else pl.Int64()) if kinds == ["int"] else None
    try:
        if kinds == ["datetime", "datetime with time zone"]:
            raise TypeError
        series = pl.Series(values, dtype=dtype, strict=kinds != ["float", "int"])
        kept = series.to_list() if column_types.family(series.dtype) else values
    except (
        TypeError,
        ValueError,
        OverflowError,
        RuntimeError,
        pl.exceptions.PolarsError,
        pl.exceptions.PanicException,
    ):
        what = f"of one type that Polars knows, got {kinds}" if dtype is None else "integers that fit into 64 bits"
        msg = f"candidates must be {what}."
        raise TypeError(msg) from None
    for value, stays in zip(values, kept, strict=True):
        exact = value.item() if isinstance(value, np.generic) else value
        if not (stays is value or stays == exact or (stays != stays and exact != exact)):  # the last one is NaN
            msg = (
                f"candidates must be values that one Polars type holds exactly, got {given(value)} for {series.dtype}."
                "\n\nHint: give all in one type, as a Series or a NumPy array."
            )
            raise TypeError(msg)
    return series


def _kind(value: object) -> str:
    return type(value).__name__ + (" with time zone" if getattr(value, "tzinfo", None) else "")


def _plural(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def _check(values: pl.Series) -> pl.Series:
    if not len(values) >= 1:
        msg = "candidates must be at least one value, got none."
        raise ValueError(msg)
    if values.null_count() or values.dtype == pl.Null:
        msg = "candidates must not contain null."
        raise ValueError(msg)
    if values.dtype.is_float() and values.is_nan().any():
        msg = "candidates must not contain NaN."
        raise ValueError(msg)
    if column_types.family(values.dtype) is None:
        msg = f"candidates must be text, numbers, booleans or times, got {values.dtype}."
        raise TypeError(msg)
    if values.n_unique() != len(values):
        msg = f"candidates must not repeat, got {values.filter(values.is_duplicated())[0]!r} more than once."
        raise ValueError(msg)
    return _check_width(values)


def _check_width(values: pl.Series) -> pl.Series:
    if not column_types.fit_into_64_bits(values):
        msg = (
            f"candidates of type {values.dtype} must lie strictly between -2**63 and 2**63 - 1"
            f"{' multiples of the last digit' if isinstance(values.dtype, pl.Decimal) else ''}."
        )
        raise ValueError(msg)
    return values


def _from_integers(physical: NDArray[np.uint64], dtype: pl.DataType) -> pl.Series:
    """Return the column of an integer-like type that has these physical integers (modulo 2**64)."""
    if dtype == pl.UInt64:
        return pl.Series(physical)
    signed = pl.Series(physical.view(np.int64))
    if isinstance(dtype, pl.Decimal):
        return (signed.cast(pl.Decimal(38, dtype.scale)) * Decimal(1).scaleb(-dtype.scale)).cast(dtype)
    return (signed.cast(pl.Int32) if dtype == pl.Date else signed).cast(dtype)


def _number_dtype(ends: list[object], exact: list[Fraction]) -> pl.DataType:
    if any(isinstance(value, (float, np.floating, Fraction)) for value in ends):
        for value in ends:
            if isinstance(value, (int, np.integer)) and column_types.float_of(int(value)) != int(value):
                msg = f"an integer of a grid of Float64 must be a float64 exactly, got {value!r}."
                raise ValueError(msg)
        return pl.Float64()
    if any(isinstance(value, Decimal) for value in ends):
        for scale in range(_MOST_PLACES + 1):
            if all((value * 10**scale).denominator == 1 for value in exact):
                return pl.Decimal(38, scale)
        msg = f"a decimal grid must have at most {_MOST_PLACES} decimal places, got {ends!r}."
        raise ValueError(msg)
    if exact[0] >= 0 and 2**63 <= exact[1] < 2**64:
        return pl.UInt64()
    return pl.Int64()


def _temporal_ends(start: object, stop: object, step: object) -> tuple[Fraction, Fraction, Fraction, pl.DataType]:
    try:
        ends = pl.Series([start, stop], strict=True)
    except (TypeError, pl.exceptions.PolarsError):
        msg = f"start and stop must be of one type, got {given(start)} and {given(stop)}."
        raise TypeError(msg) from None
    unit = column_types.tick(ends.dtype)
    if unit is None or ends.null_count() or _kind(start) != _kind(stop):
        msg = f"start and stop must be of one type, got {given(start)} and {given(stop)}."
        raise TypeError(msg)
    distance = Fraction(nanoseconds(step))
    if (distance / unit).denominator != 1:
        resolution = "days" if ends.dtype == pl.Date else "microseconds"
        msg = f"step must be a whole number of {resolution} for {ends.dtype}, got {step!r}."
        raise ValueError(msg)
    first, last = (int(end) * unit for end in column_types.integers(ends))
    return first, last, distance, ends.dtype
