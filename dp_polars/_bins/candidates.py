"""Public candidates: lists of values, and grids of numbers and times."""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence, Sized
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import TypeAlias, overload

import numpy as np
import polars as pl
from numpy.typing import NDArray
from polars.exceptions import PanicException, PolarsError

from dp_polars._base import column_types
from dp_polars._base.column_types import unshared
from dp_polars._base.numbers import Number, as_fraction, given, kind, plural, positive_int

Temporal: TypeAlias = "date | datetime | timedelta | time"

# Beyond it a float64 can't distinguish neighbouring grid points.
_LARGEST_SIZE = 2**53
# The largest end of a float grid, and the largest 1/step: then no arithmetic on points overflows.
_LARGEST_FLOAT = 2**1000
# Decimal places of decimal grids: then 64-bit multiples of the last one fit into the 38 digits of Polars.
_MOST_PLACES = 18
# With 254 candidates per decade, two of them would round to the same three digits.
_MOST_PER_DECADE = 250
# The units of durations, as Polars writes them, in nanoseconds.
_UNITS = {
    "ns": 1,
    "us": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
    "d": 86_400 * 10**9,
    "w": 7 * 86_400 * 10**9,
}


@dataclass(frozen=True, repr=False)
class Grid:
    """Evenly spaced public candidates, both ends included, which take no memory. Made by `grid`.

    Parameters
    ----------
    start, step
        Exact, in units of 1 (numbers) or in nanoseconds (times; dates count from 1970).
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
        unit, last = column_types.tick(self.dtype), self.start + self.step * (self.size - 1)
        low, high = (0, 2**64) if self.dtype == pl.UInt64 else (-(2**63), 2**63)
        if unit is not None and not (low <= self.start / unit and last < high * unit):
            msg = f"the points of a grid of {self.dtype} must fit into 64 bits."
            raise ValueError(msg)
        is_within = max(abs(self.start), abs(last)) <= _LARGEST_FLOAT and self.step * _LARGEST_FLOAT >= 1
        if unit is None and not is_within:
            msg = "the points of a grid of Float64 must lie within ±2**1000, and its step must be at least 2**-1000."
            raise ValueError(msg)

    def take(self, codes: NDArray[np.int64]) -> pl.Series:
        """Return the candidates at the given positions.

        A float is the exact point, rounded once, if start and step need no more than 53 bits.
        """
        unit = column_types.tick(self.dtype) or Fraction(1)
        start, step = self.start / unit, self.step / unit
        denominator = math.lcm(start.denominator, step.denominator) if self.dtype.is_float() else 1
        first, stride = int(start * denominator), int(step * denominator)
        if not self.dtype.is_float():
            # Intermediate results are modulo 2**64, but every point itself fits.
            physical = codes.astype(np.uint64) * np.uint64(stride % 2**64) + np.uint64(first % 2**64)
            return _from_integers(physical, self.dtype)
        if max(abs(first), abs(first + stride * (self.size - 1)), denominator) <= 2**53:
            # Both are exact floats, so the quotient is the float nearest to the point: 7 steps of 0.01 are 0.07.
            return pl.Series((codes * stride + first) / denominator, dtype=pl.Float64)
        return pl.Series(float(start) + codes * float(step), dtype=pl.Float64)

    def distances(self, steps: NDArray[np.floating] | NDArray[np.integer]) -> NDArray[np.float64]:
        """Convert numbers of steps to distances in `distance_unit`."""
        step = float(self.step / distance_unit(self.dtype)[1])
        distances: NDArray[np.float64] = np.multiply(steps, step, dtype=np.float64)
        return distances

    def __repr__(self) -> str:
        first, last = self.take(np.array([0, self.size - 1]))
        return f"<Grid: {self}, {first} to {last}, {self.dtype}>"

    def __str__(self) -> str:
        return plural(self.size, "grid point")


@overload
def grid(start: Number | Temporal, stop: Number | Temporal, *, step: Number | timedelta | str) -> Grid: ...


@overload
def grid(start: Number, stop: Number, *, per_decade: int) -> pl.Series: ...


def grid(
    start: Number | Temporal,
    stop: Number | Temporal,
    *,
    step: Number | timedelta | str | None = None,
    per_decade: int | None = None,
) -> Grid | pl.Series:
    """Return public candidates between two ends, both included: evenly spaced ones, or with even ratios.

    Evenly spaced candidates take no memory. Those with even ratios fit values of any scale: 181
    candidates from 1 to 1e9 are at most 6 % from any value between.

    Parameters
    ----------
    start, stop
        The first and the last candidate: numbers (int, float, Fraction or Decimal; a float is the decimal that it
        prints as), dates, datetimes, times or timedeltas. With `per_decade`: numbers above 0.
    step
        The distance between two neighbours: a number, or for temporal ends a timedelta or a fixed Polars duration
        string ("1d" is 24 hours, "1h30m"). It must be positive, and a whole number of steps must lead from `start` to
        `stop`.
    per_decade
        Instead of `step`: how many candidates there are from 1 to 10, from 10 to 100 and so on, from 1 to 250.
        They are 10^(k/per_decade) for every whole k, rounded to three significant digits, if that is between
        `start` and `stop`. With more of them, three digits could hardly distinguish neighbours.

    Returns
    -------
    Grid or Series
        With `step` a Grid of up to 2**53 points. Answers are Int64 (or UInt64) if both numbers are integers, Decimal if
        one is a Decimal and none a float or Fraction, else Float64; temporal answers have the type of `start`. With
        `per_decade` a Series in ascending order, the same on every platform. Its type follows the same rules, with one
        exception. It is Float64 if the ends are integers and a candidate is not (from 1 to 10 there is 1.58), or is
        beyond 64 bits.

    Raises
    ------
    TypeError
        If the ends are not of one type, or the step does not fit them; if both or none of `step` and `per_decade` are
        given.
    ValueError
        If the step is not positive or does not land on `stop`, or there are too many points; with `per_decade`, if
        `start` is not above 0.

    Examples
    --------
    >>> import dp_polars as dpp
    >>> str(dpp.grid(0, 1_000_000, step=0.01))
    '100,000,001 grid points'
    >>> dpp.grid(1, 100, per_decade=5).to_list()
    [1.0, 1.58, 2.51, 3.98, 6.31, 10.0, 15.8, 25.1, 39.8, 63.1, 100.0]
    """
    if (step is None) == (per_decade is None):
        how = "neither" if step is None else "both"
        msg = (
            f"grid must get either step or per_decade, got {how}.\n\n"
            "Hint: step=0.5 for even distances, per_decade=20 for even ratios."
        )
        raise TypeError(msg)
    if per_decade is not None:
        return _with_even_ratios(start, stop, positive_int("per_decade", per_decade))
    if isinstance(start, (date, timedelta, time)):
        first, last, distance, dtype = _temporal_ends(start, stop, step)
    else:
        first, last = as_fraction("start", start), as_fraction("stop", stop)
        distance = as_fraction("step", step)
        dtype = _number_dtype([start, stop, step], [first, last, distance])
    if not distance > 0:
        msg = f"step must be greater than 0, got {step!r}."
        raise ValueError(msg)
    _check_order(start, stop, first, last)
    steps = (last - first) / distance
    if steps.denominator != 1:
        msg = (
            f"step must land on stop exactly, got start={start!r}, stop={stop!r}, step={step!r}.\n\n"
            f"Hint: from start, {math.floor(steps):,} whole steps fit."
        )
        raise ValueError(msg)
    return Grid(first, distance, int(steps) + 1, dtype)


def _check_order(start: object, stop: object, first: Fraction, last: Fraction) -> None:
    if not last >= first:
        msg = f"stop must not be below start, got start={start!r} and stop={stop!r}."
        raise ValueError(msg)


def _with_even_ratios(start: object, stop: object, per_decade: int) -> pl.Series:
    """Return both ends and, strictly between them, 10^(k/per_decade) rounded to three significant digits."""
    if not per_decade <= _MOST_PER_DECADE:
        msg = (
            f"per_decade must be at most {_MOST_PER_DECADE}, got {per_decade:,}: three digits tell hardly more "
            "candidates apart."
        )
        raise ValueError(msg)
    first, last = as_fraction("start", start), as_fraction("stop", stop)
    if not first > 0:
        msg = f"start must be greater than 0 with per_decade, got {start!r}.\n\nHint: step=… takes any start."
        raise ValueError(msg)
    _check_order(start, stop, first, last)
    if not (first * _LARGEST_FLOAT >= 1 and last <= _LARGEST_FLOAT):
        msg = "start and stop must lie between 2**-1000 and 2**1000 with per_decade, got others."
        raise ValueError(msg)
    digits = [_three_digits(place, per_decade) for place in range(per_decade)]
    lowest, highest = (math.floor(math.log10(end.numerator) - math.log10(end.denominator)) for end in (first, last))
    # One decade more at both ends, because logarithms are rounded.
    between = (digit * Fraction(10) ** (decade - 2) for decade in range(lowest - 1, highest + 2) for digit in digits)
    points = sorted({first, last, *(point for point in between if first < point < last)})
    dtype = _number_dtype([start, stop], [first, last, *points])
    unit = column_types.tick(dtype)
    if isinstance(dtype, pl.Decimal) and not last * 10**dtype.scale < 2**63:
        msg = f"the points of a grid of {dtype} must fit into 64 bits."
        raise ValueError(msg)
    if unit is None or any((point / unit).denominator != 1 for point in points) or not last / unit < 2**64:
        _number_dtype([start, stop, 1.0], points)  # the ends must fit into floats
        return pl.Series([float(point) for point in points])
    return _from_integers(np.array([int(point / unit) for point in points], np.uint64), dtype)


def _three_digits(place: int, per_decade: int) -> int:
    """Return 100·10^(place/per_decade), rounded to a whole number, for 0 <= place < per_decade: exactly.

    It is the first n with n + 1/2 above that: (2n + 1)^d > 2^d·10^(2d + place), d = `per_decade`. No power is a tie: it
    is a whole number, or irrational.
    """
    power = 2**per_decade * 10 ** (2 * per_decade + place)
    numbers = range(100, 1000)
    return numbers[bisect_left(numbers, True, key=lambda n: (2 * n + 1) ** per_decade > power)]


def distance_unit(dtype: pl.DataType) -> tuple[str, int]:
    """Return the unit of candidates' distances, and its size in units of 1, or in nanoseconds."""
    if not dtype.is_temporal():
        return "the column's unit", 1
    return ("days", 86_400 * 10**9) if dtype == pl.Date else ("seconds", 10**9)


def as_grid(ascending: pl.Series) -> Grid | None:
    """Return evenly spaced integers or times as a grid, which needs no search."""
    unit = column_types.tick(ascending.dtype)
    deep = isinstance(ascending.dtype, pl.Decimal) and ascending.dtype.scale > _MOST_PLACES
    if unit is None or deep or len(ascending) == 1:
        return None
    physical = column_types.integers(ascending)
    steps = np.unique(np.diff(physical))
    step = int(physical[1]) - int(physical[0])
    if len(steps) > 1 or step >= 2**63:
        return None
    return Grid(int(physical[0]) * unit, step * unit, len(ascending), ascending.dtype)


def kind_of(value: object) -> str:
    """Return the name of a type; datetimes with and without a time zone are different types."""
    return type(value).__name__ + (" with time zone" if getattr(value, "tzinfo", None) else "")


def _from_integers(physical: NDArray[np.uint64], dtype: pl.DataType) -> pl.Series:
    """Return a column of an integer-like type from its physical integers (modulo 2**64)."""
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
    unit = None
    with suppress(TypeError, PolarsError):
        ends = pl.Series([start, stop], strict=True)
        unit = column_types.tick(ends.dtype)
    if unit is None or ends.null_count() or kind_of(start) != kind_of(stop):
        msg = f"start and stop must be of one type, got {given(start)} and {given(stop)}."
        raise TypeError(msg)
    distance = Fraction(_nanoseconds(step))
    if (distance / unit).denominator != 1:
        resolution = "days" if ends.dtype == pl.Date else "microseconds"
        msg = f"step must be a whole number of {resolution} for {ends.dtype}, got {step!r}."
        raise ValueError(msg)
    first, last = (int(end) * unit for end in column_types.integers(ends))
    return first, last, distance, ends.dtype


def _nanoseconds(step: object) -> int:
    """Return a fixed duration, a timedelta or a string such as "1h30m", in nanoseconds."""
    if isinstance(step, timedelta):
        return step // timedelta(microseconds=1) * 1000
    if not isinstance(step, str):
        msg = f"step must be a timedelta or a duration string between times, got {given(step)}."
        raise TypeError(msg)
    if re.fullmatch(r"-?(\d+[a-z]+)*\d+(mo|q|y)(\d+[a-z]+)*", step):
        msg = (
            f"step must be a fixed duration, got {step!r}.\n\n"
            "Hint: months, quarters and years vary in length; pass a list such as pl.date_range(…, eager=True)."
        )
        raise ValueError(msg)
    parts = re.fullmatch(r"(-?)((?:\d+(?:ns|us|ms|s|m|h|d|w))+)", step)
    if parts is None:
        msg = f'step must be a duration such as "1d" or "1h30m", got {step!r}.'
        raise ValueError(msg)
    total = sum(int(n) * _UNITS[unit] for n, unit in re.findall(r"(\d+)(ns|us|ms|s|m|h|d|w)", parts[2]))
    return -total if parts[1] else total


# The most categories in a list, and the most public groups: one draw can process this many.
MOST = 10_000_000
# A list of candidates from a user: also an object with Arrow's C interface (pyarrow arrays).
Values: TypeAlias = "Sequence[object] | range | pl.Series | NDArray[np.generic] | pl.Enum | object"

NO_FLOATS = (
    "{} must not hold floats, got {}: floats that are meant to be equal often differ in their last digit.\n\n"
    'Hint: make integers, decimals or categories of them first: pl.col("x").round().cast(pl.Int64, strict=False).'
)

FILL_NULLS = (
    '\n\nHint: give rows without a value one of their own, pl.col("x").fill_null("unknown") in with_columns, and list '
    "that."
)

# Errors from Polars for values that make no Series.
_NO_SERIES = (TypeError, ValueError, OverflowError, RuntimeError, PolarsError, PanicException)


def casting(given: pl.DataType, dtype: pl.DataType) -> str:
    """Return a hint for public values of a type that can't be compared with a column of another type."""
    if isinstance(dtype, (pl.List, pl.Array)):
        return "\n\nHint: make a row of each element first: frame.explode(…)."
    if isinstance(dtype, pl.Datetime):
        zone = dtype.time_zone
        if given == pl.Date:
            return '\n\nHint: make days of the column first, pl.col("at").dt.date(); or give datetimes.'
        if isinstance(given, pl.Datetime):
            to = "None" if zone is None else f'"{zone}"'
            return f"\n\nHint: give times of the column's time zone: pl.Series(values).dt.replace_time_zone({to})."
    if dtype.is_temporal():
        return "\n\nHint: give values of the column's type, for example datetime.date(2026, 1, 31) of dates."
    of_values, of_column = column_types.family(given), column_types.family(dtype)
    if (of_values, of_column) == ("number", "text"):
        return '\n\nHint: give texts, ["1", "2"]; or cast the column first: pl.col("x").cast(pl.Int64, strict=False).'
    target = {"text": "String", "number": "Int64", "boolean": "Boolean"}.get(of_values or "")
    way = "" if target is None else f'; or cast the column first: pl.col("x").cast(pl.{target}, strict=False)'
    return f"\n\nHint: give values of the column's type{way}."


@dataclass(frozen=True, eq=False)
class _Listed:
    """Candidates in a Series; equal if type and values are equal."""

    values: pl.Series | None

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        if self.values is None or other.values is None:
            return self.values is other.values
        return self.values.dtype == other.values.dtype and self.values.equals(other.values)

    def __hash__(self) -> int:
        return hash(None if self.values is None else (str(self.values.dtype), len(self.values)))


@dataclass(frozen=True, eq=False)
class Categories(_Listed):
    """A list of candidates in no particular order; None: the column's type lists them."""

    @classmethod
    def of(cls, values: Values | None, name: str = "candidates") -> Categories:
        """Return the categories of a list, a Series, an Arrow array or an Enum type; messages call them `name`."""
        if values is None:
            return cls(None)
        if isinstance(values, Grid):
            msg = f"{name} must be a list or a range, got a grid.\n\nHint: range(0, 11), or a list of the values."
            raise TypeError(msg)
        if isinstance(values, pl.Enum):
            values = values.categories
        if not size_of(values) <= MOST:  # before anything of that size exists
            msg = (
                f"{name} must be at most {MOST:,} values, got {size_of(values):,}.\n\n"
                'Hint: make fewer categories, such as bands of numbers: pl.col("x") // 10 * 10.'
            )
            raise ValueError(msg)
        series = _to_series(values, name)
        return cls(_check(series.cast(column_types.released(series.dtype)), name))

    def for_column(self, dtype: pl.DataType | None) -> pl.Series:
        """Return the candidates as a Series of the column's type (text for a Categorical), or as given."""
        if dtype is None:
            if self.values is None:
                msg = "the column's type must be known where only it names the candidates."
                raise TypeError(msg)
            return self.values
        if dtype.is_float():
            raise TypeError(NO_FLOATS.format("the column", dtype))
        if self.values is None:
            if isinstance(dtype, pl.Enum):
                return _check(pl.Series(dtype.categories, dtype=dtype))
            if dtype == pl.Boolean:
                return pl.Series([False, True])
            msg = (
                f"candidates must be given for a column of type {dtype}, as the type names none.\n\n"
                "Hint: list them from public knowledge, never from the data. Or let a private query select them: leave "
                "epsilon, rho and within out, and call query.scaled_to(epsilon=1, delta=1e-6)."
            )
            raise TypeError(msg)
        column, of_candidates = column_types.family(dtype), column_types.family(self.values.dtype)
        is_midnight = self.values.dtype == pl.Date and isinstance(dtype, pl.Datetime)  # and no other time of its day
        if column is None or column != of_candidates or is_midnight:
            msg = f"candidates of type {self.values.dtype} can't be categories of a column of type {dtype}."
            raise TypeError(msg + casting(self.values.dtype, dtype))
        answer = column_types.released(dtype)
        if self.values.dtype == answer:
            return self.values
        try:
            values = self.values.cast(answer)
        except PolarsError:
            values = None
        if values is None or values.cast(self.values.dtype).ne_missing(self.values).any():
            msg = (
                f"candidates must be values that a column of type {dtype} can hold, got some that it can't.\n\n"
                "Hint: leave these out; or cast the column first to a type that holds them: "
                f"{_cast_to(self.values.dtype)}."
            )
            raise TypeError(msg)
        return _check_width(values)

    def __str__(self) -> str:
        return "the categories of the column's type" if self.values is None else plural(len(self.values), "candidate")


#: For how many candidates errors are shown before candidates are selected.
REFERENCE_CANDIDATES = 10


@dataclass(frozen=True, eq=False)
class Unselected(Categories):
    """Candidates that are selected privately before the answer.

    Until then others of the same type stand for them: nothing is drawn of these.
    """

    values: None = None

    def for_column(self, dtype: pl.DataType | None) -> pl.Series:
        if dtype is None or dtype.is_float() or isinstance(dtype, pl.Enum) or dtype == pl.Boolean:
            return super().for_column(dtype)
        family, released = column_types.family(dtype), column_types.released(dtype)
        if family is None:
            msg = f"candidates must be text, numbers, booleans or times, got a column of type {dtype}."
            raise TypeError(msg + casting(dtype, dtype))
        numbers = range(REFERENCE_CANDIDATES)
        if family == "text":
            return pl.Series(map(str, numbers), dtype=released)
        if isinstance(released, pl.Decimal):
            return pl.Series([Decimal(one).scaleb(-released.scale) for one in numbers], dtype=released)
        return _from_integers(np.array(numbers, np.uint64), released)

    def __str__(self) -> str:
        return "candidates that are selected privately"


@dataclass(frozen=True, eq=False)
class Points(_Listed):
    """Candidates in ascending order."""

    values: pl.Series

    @property
    def size(self) -> int:
        return len(self.values)

    @property
    def dtype(self) -> pl.DataType:
        return self.values.dtype

    def take(self, codes: NDArray[np.int64]) -> pl.Series:
        return self.values.gather(codes)

    def places(self) -> NDArray[np.float64]:
        """Return the distance of each candidate from the first one, in `distance_unit`."""
        tick = column_types.tick(self.dtype)
        values = column_types.floats(self.values) if tick is None else column_types.integers(self.values)
        unit = float(Fraction(tick or 1) / distance_unit(self.dtype)[1])
        places: NDArray[np.float64] = np.multiply(values - values[0], unit, dtype=np.float64)
        return places

    def __str__(self) -> str:
        return plural(self.size, "candidate")


@dataclass(frozen=True)
class Digits:
    """Public candidates of three significant digits and 0 between, without memory: evenly spaced in each decade.

    The place p means p steps up to ±1,000. Beyond, it means m·10^k steps of its sign. Here m has three digits and |p| =
    m + 900·k. Codes count from the place `first`.
    """

    first: int
    last: int
    step: Fraction  # a power of ten, in units of 1 (numbers) or in nanoseconds
    dtype: pl.DataType

    @classmethod
    def between(cls, lower: Fraction, upper: Fraction, step: Fraction, dtype: pl.DataType) -> Digits:
        """Return the candidates from `lower`, at most 0, to `upper`, at least 0: each has at most three digits."""
        return cls(-_place_of(-lower / step), _place_of(upper / step), step, dtype)

    @property
    def size(self) -> int:
        return self.last - self.first + 1

    @cached_property
    def pieces(self) -> tuple[tuple[int, Grid], ...]:
        """Evenly spaced parts in ascending order, each after the code of its first point. Parts share their ends."""
        most = max(self.last, -self.first)
        cuts = (sign * cut for cut in range(1000, most, 900) for sign in (-1, 1))
        ends = sorted({self.first, self.last, *(cut for cut in cuts if self.first < cut < self.last)})
        found = []
        for low, high in pairwise(ends if len(ends) > 1 else ends * 2):
            start, stop = self._steps(np.array([low, high])).tolist()
            step = (stop - start) // max(high - low, 1) or 1
            found.append((low - self.first, Grid(start * self.step, step * self.step, high - low + 1, self.dtype)))
        return tuple(found)

    @staticmethod
    def _steps(places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the distances of places from 0, in steps."""
        sizes = abs(places)
        decades = np.maximum((sizes - 100) // 900, 0)
        steps: NDArray[np.int64] = np.sign(places) * (sizes - 900 * decades) * 10**decades
        return steps

    def take(self, codes: NDArray[np.int64]) -> pl.Series:
        steps = self._steps(codes.astype(np.int64) + self.first)
        return Grid(Fraction(0), self.step, int(abs(steps).max(initial=0)) + 1, self.dtype).take(steps)

    def places(self) -> NDArray[np.float64]:
        """Return the distance of each candidate from the first one, in `distance_unit`."""
        steps = self._steps(np.arange(self.first, self.last + 1))
        places: NDArray[np.float64] = (steps - steps[0]) * float(self.step / distance_unit(self.dtype)[1])
        return places

    def __str__(self) -> str:
        return f"{plural(self.size, 'point')} of three digits"


def _place_of(steps: Fraction) -> int:
    """Return the place of a number of steps that has three digits at most, or is below 1,000."""
    decade = 0
    while steps > 1000:
        steps, decade = steps / 10, decade + 1
    return math.ceil(steps) + 900 * decade


Ordered: TypeAlias = "Points | Grid | Digits"

# The most whole numbers, and the most points of a grid of datetimes.
_MOST_WHOLE = 2**16
_DAY = 86_400 * 10**9
_STEPS = tuple(minutes * 60 * 10**9 for minutes in (1, 5, 15, 60))
# The least number of decimal places of floats, and the powers of ten from their last place to the largest bound.
_FLOAT_PLACES, _USUAL_POWERS, _MOST_POWERS = 3, 6, 15
# The largest bound of exact types, in units of their last digit.
_MOST_UNITS = 10**18
#: A grid of a quantile of dates may end at the beginning of these years, from the usual ones away. Their distance has
#: less than 2**63 nanoseconds.
YEARS: dict[str, tuple[int, ...]] = {
    "lower": (*range(2025, 2010, -1), *range(2010, 1850, -5)),
    "upper": (*range(2000, 2016, 5), *range(2018, 2040), *range(2040, 2141, 5)),
}


def bounds_of(what: str, sizes: Sequence[Fraction], dtype: pl.DataType) -> tuple[Fraction, ...]:
    """Return the bounds that a search for a column of this type may find: these, or as many years."""
    return tuple(map(Fraction, YEARS[what])) if _has_days(dtype) else tuple(sizes)


def bound_in_units(bound: Fraction, dtype: pl.DataType) -> Fraction:
    """Return a bound in units of a grid: for dates and datetimes it is a year, for durations in seconds."""
    if _has_days(dtype):
        return Fraction((date(int(bound), 1, 1) - date(1970, 1, 1)).days * _DAY)
    return bound * 10**9 if dtype == pl.Duration else bound


def _has_days(dtype: pl.DataType) -> bool:
    return dtype == pl.Date or isinstance(dtype, pl.Datetime)


def grid_rule(dtype: pl.DataType) -> str:
    """Describe the candidates that `grid_between` returns for a column of this type."""
    if dtype == pl.Date:
        return "days"
    if _has_days(dtype):
        return f"the finest steps of 1, 5, 15 or 60 minutes that give at most {_MOST_WHOLE:,} points, else days"
    return (f"whole numbers, up to {_MOST_WHOLE:,}, else " if dtype.is_integer() else "") + "three significant digits"


def widest_grid(dtype: pl.DataType) -> Grid | Digits:
    """Return the largest public grid for a quantile of such a column."""
    lower, upper = (YEARS["lower"][-1], YEARS["upper"][-1]) if _has_days(dtype) else (-(10**12), 10**12)
    if dtype.is_integer():
        lower, upper = -_MOST_WHOLE // 2, _MOST_WHOLE // 2 - 1
    return grid_between(Fraction(lower), Fraction(upper), dtype)


def grid_between(lower: Fraction, upper: Fraction, dtype: pl.DataType) -> Grid | Digits:
    """Return the public candidates of a quantile between two bounds, as of `bound_in_units`, for a column of this type.

    Dates have days. Datetimes have the first of 1, 5, 15 and 60 minutes with at most 2**16 candidates, else days.
    Integers have whole numbers, if there are at most 2**16. All others have three significant digits.
    """
    family, tick = column_types.family(dtype), column_types.tick(dtype)
    is_deep = isinstance(dtype, pl.Decimal) and dtype.scale > _MOST_PLACES
    if (family not in ("number", "duration") and not _has_days(dtype)) or is_deep:
        msg = (
            f"candidates must be given for a column of type {dtype}: there are no usual ones.\n\n"
            'Hint: dp_polars.grid(start, stop, step=…); or cast the column first: pl.col("x").cast(pl.Float64).'
        )
        raise TypeError(msg)
    if _has_days(dtype):
        low, high = (bound_in_units(end, dtype) for end in (lower, max(upper, lower + 1)))
        steps = () if dtype == pl.Date else _STEPS
        step = next((step for step in steps if (high - low) / step < _MOST_WHOLE), _DAY)
        return Grid(low, Fraction(step), int((high - low) / step) + 1, dtype)
    unit = bound_in_units(Fraction(1), dtype)
    most = max(-lower, upper) * unit if tick is None else _MOST_UNITS * tick
    low, high = max(lower * unit, -most), min(upper * unit, most)
    answer = dtype
    if dtype.is_integer():
        answer, first, last = pl.Int64(), math.floor(low), math.ceil(high)
        if last - first < _MOST_WHOLE:
            return Grid(Fraction(first), Fraction(1), last - first + 1, answer)
    elif dtype.is_numeric():
        answer = pl.Decimal(38, dtype.scale) if isinstance(dtype, pl.Decimal) else pl.Float64()
    powers = range(-_MOST_PLACES, _MOST_PLACES + 1)
    power = next(power for power in powers if max(-low, high) <= Fraction(10) ** power * unit)
    places = max(power - _MOST_POWERS, min(-_FLOAT_PLACES, power - _USUAL_POWERS))
    return Digits.between(low, high, max(Fraction(10) ** places * unit, tick or Fraction(0)), answer)


def ends_of(candidates: Ordered) -> tuple[object, object]:
    """Return the first and the last candidate: values beyond them count as the nearer one."""
    first, last = candidates.take(np.array([0, candidates.size - 1])).to_list()
    return first, last


def ordered(values: Values) -> Ordered:
    """Return the candidates of a quantile: a grid or a range unchanged, anything else sorted."""
    if isinstance(values, (Grid, Digits)):
        return values
    if isinstance(values, tuple) and len(values) == 2:
        raise TypeError(_just_two(*values))
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
    ascending = series.sort()
    return as_grid(ascending) or Points(ascending)


def _just_two(low: object, high: object) -> str:
    """Return why a pair is no list of candidates, although it looks like a range."""
    pair = f"{given(low)}, {given(high)}"
    between = f"dp_polars.grid({pair}, step=…)"
    if isinstance(low, int) and isinstance(high, int):
        between = f"range({low}, {high + 1})"
    return (
        f"candidates must be a range, a grid or a list, got ({pair}): these would be just two candidates.\n\n"
        f"Hint: {between} has all between them. If you mean just the two: [{pair}]."
    )


def size_of(values: Values) -> int:
    """Return the number of values without reading them; 0 if it is unknown."""
    if isinstance(values, range):  # len() raises beyond 2**63
        return max(0, -((values.start - values.stop) // values.step))
    return len(values) if isinstance(values, Sized) and not isinstance(values, (str, bytes)) else 0


def _cast_to(dtype: pl.DataType) -> str:
    text = isinstance(dtype, (pl.String, pl.Enum, pl.Categorical))
    return f'pl.col("x").cast(pl.{"String" if text else dtype.base_type()})'


def _to_series(values: Values, name: str = "candidates") -> pl.Series:
    """Return a Series with the exact values in memory of its own; messages call them `name`."""
    if isinstance(values, range) and values:
        start, stop, step = values.start, values.stop, values.step
        if max(map(abs, (values[0], values[-1], step, stop))) < 2**62:
            return pl.int_range(start, stop, step, eager=True).alias("")  # reads no single number
    if np.ma.is_masked(values):
        msg = f"{name} must not contain null.{FILL_NULLS}"
        raise ValueError(msg)
    if isinstance(values, np.ndarray):
        values = pl.Series(values)
    if hasattr(values, "__arrow_c_array__") or hasattr(values, "__arrow_c_stream__"):  # such as a Series
        series = column_types.of_arrow(name, values, pl.Series)
        return series if series.dtype == pl.Object else unshared(series.to_frame()).to_series()  # objects are refused
    if isinstance(values, (str, bytes)) or not isinstance(values, Sequence):
        msg = f"{name} must be a list, a range, a Series or a NumPy or Arrow array, got {kind(values)}."
        if isinstance(values, pl.Expr):
            msg += (
                "\n\nHint: an expression has no values yet. pl.date_range(…, eager=True) has, and so has "
                'dp_polars.grid(start, stop, step="1d").'
            )
        elif isinstance(values, Iterable) and not isinstance(values, (str, bytes)):
            msg += "\n\nHint: list(…) or sorted(…) makes a list."
        raise TypeError(msg)
    kinds = sorted({kind_of(value) for value in values})
    if "bool" in kinds and len(kinds) > 1:  # Polars would convert True to 1
        msg = f"{name} must be of one type, got {kinds}."
        raise TypeError(msg)
    dtype = (pl.UInt64() if max(values) >= 2**63 else pl.Int64()) if kinds == ["int"] else None
    try:
        if kinds == ["datetime", "datetime with time zone"]:
            raise TypeError
        series = pl.Series(values, dtype=dtype, strict=kinds != ["float", "int"])
        as_held = series.to_list() if column_types.family(series.dtype) else values
    except _NO_SERIES:
        what = f"of one type that Polars knows, got {kinds}" if dtype is None else "integers that fit into 64 bits"
        msg = f"{name} must be {what}."
        raise TypeError(msg) from None
    for value, stays in zip(values, as_held, strict=True):
        exact = value.item() if isinstance(value, np.generic) else value
        if not (stays is value or stays == exact or (stays != stays and exact != exact)):  # the last one is NaN
            msg = (
                f"{name} must be values that one Polars type holds exactly, got {given(value)} for {series.dtype}."
                "\n\nHint: give all in one type, as a Series or a NumPy array."
            )
            raise TypeError(msg)
    return series


def _check(values: pl.Series, name: str = "candidates") -> pl.Series:
    """Return candidates; raise if there are none, or for null, NaN, types without candidates, and repetitions."""
    if not len(values) >= 1:
        msg = f"{name} must not be empty."
        raise ValueError(msg)
    if values.null_count() or values.dtype == pl.Null:
        msg = f"{name} must not contain null.{FILL_NULLS}"
        raise ValueError(msg)
    if values.dtype.is_float() and values.is_nan().any():
        msg = f"{name} must not contain NaN."
        raise ValueError(msg)
    if column_types.family(values.dtype) is None:
        msg = f"{name} must be text, numbers, booleans or times, got {values.dtype}."
        raise TypeError(msg)
    if values.n_unique() != len(values):
        msg = f"{name} must not repeat, got {values.filter(values.is_duplicated())[0]!r} more than once."
        raise ValueError(msg)
    return _check_width(values, name)


def _check_width(values: pl.Series, name: str = "candidates") -> pl.Series:
    """Return candidates; raise for 128-bit integers and decimals beyond 64 bits."""
    if column_types.is_wide(values.dtype) and not column_types.are_within_64_bits(values).all():
        msg = (
            f"{name} of type {values.dtype} must lie strictly between -2**63 and 2**63 - 1"
            f"{' multiples of the last digit' if isinstance(values.dtype, pl.Decimal) else ''}."
        )
        raise ValueError(msg)
    return values
