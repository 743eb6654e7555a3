"""The public answers that a query may give: categories, sorted points, grids."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Sized
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars._base import column_types
from dp_polars._base.numbers import given, kind, plural
from dp_polars._base.public import unshared
from dp_polars._codes.grids import Grid, as_grid, distance_unit, grid, kind_of

# The most categories in a list, and the most public groups: that number can be drawn from at once.
MOST = 10_000_000
# What users may give as a list of candidates: also anything that speaks Arrow's C interface (pyarrow arrays).
Values: TypeAlias = "Sequence[object] | range | pl.Series | NDArray[np.generic] | pl.Enum | object"


NO_FLOATS = (
    "{} must not hold floats, got {}: floats that are meant to be equal often differ in their last digit.\n\n"
    'Hint: make integers, decimals or categories of them first: pl.col("x").round().cast(pl.Int64, strict=False).'
)

OF_ITS_TYPE = "\n\nHint: give values of the column's type, for example datetime.date(2026, 1, 31) of dates."


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
    def of(cls, values: Values | None, name: str = "candidates") -> Categories:
        """Return the categories of a list, a Series, an Arrow array or an Enum type; messages call them `name`."""
        if values is None:
            return cls(None)
        if isinstance(values, Grid):
            msg = f"{name} must be a list or a range, got a grid.\n\nHint: range(0, 11), or a list of the values."
            raise TypeError(msg)
        if isinstance(values, pl.Enum):
            values = values.categories
        if not size_of(values) <= MOST:  # before anything of that size is built
            msg = (
                f"{name} must be at most {MOST:,} values, got {size_of(values):,}.\n\n"
                'Hint: make fewer categories, such as bands of numbers: pl.col("x") // 10 * 10.'
            )
            raise ValueError(msg)
        series = _to_series(values, name)
        return cls(_check(series.cast(column_types.released(series.dtype)), name))

    def for_column(self, dtype: pl.DataType | None) -> pl.Series:
        """Return the candidates as a Series of the column's type (text for a Categorical), or as they were given."""
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
                f"candidates must be given for a column of type {dtype}.\n\n"
                "Hint: they may be left out only where the type names them (Enum, Boolean). Take them from public "
                "knowledge, never from the data."
            )
            raise TypeError(msg)
        column, of_candidates = column_types.family(dtype), column_types.family(self.values.dtype)
        if column is None or column != of_candidates:
            msg = f"candidates of type {self.values.dtype} can't be categories of a column of type {dtype}."
            if isinstance(dtype, (pl.List, pl.Array)):
                msg += "\n\nHint: make a row of each element first: frame.explode(…)."
            elif dtype.is_temporal():
                msg += OF_ITS_TYPE
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
        return "the categories of the column's type" if self.values is None else plural(len(self.values), "candidate")


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

    def places(self) -> NDArray[np.float64]:
        """Return how far each candidate is from the first one, in `distance_unit`."""
        tick = column_types.tick(self.dtype)
        values = column_types.floats(self.values) if tick is None else column_types.integers(self.values)
        unit = float(Fraction(tick or 1) / distance_unit(self.dtype)[1])
        places: NDArray[np.float64] = np.multiply(values - values[0], unit, dtype=np.float64)
        return places

    def __str__(self) -> str:
        return plural(self.size, "candidate")


Ordered: TypeAlias = "Points | Grid"


def ordered(values: Values) -> Ordered:
    """Return the candidates of a quantile: a grid or a range as it is, anything else sorted."""
    if isinstance(values, Grid):
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
    """Return why a pair is no list of candidates, though it looks like a range."""
    pair = f"{given(low)}, {given(high)}"
    between = f"dp_polars.grid({pair}, step=…)"
    if isinstance(low, int) and isinstance(high, int):
        between = f"range({low}, {high + 1})"
    return (
        f"candidates must be a range, a grid or a list, got ({pair}): these would be just two candidates.\n\n"
        f"Hint: {between} has all between them. If you mean just the two: [{pair}]."
    )


def size_of(values: Values) -> int:
    """Return how many values there are, without reading them; 0 if that can't be known."""
    if isinstance(values, range):  # len() raises beyond 2**63
        return max(0, -((values.start - values.stop) // values.step))
    return len(values) if isinstance(values, Sized) and not isinstance(values, (str, bytes)) else 0


def _to_series(values: Values, name: str = "candidates") -> pl.Series:
    """Return values as a Series that holds each of them exactly, in memory of its own; messages call them `name`."""
    if (
        isinstance(values, range)
        and values
        and max(map(abs, (values[0], values[-1], values.step, values.stop))) < 2**62
    ):
        return pl.int_range(values.start, values.stop, values.step, eager=True).alias("")  # no look at each number
    if np.ma.is_masked(values):
        msg = f"{name} must not contain null."
        raise ValueError(msg)
    if isinstance(values, np.ndarray):
        values = pl.Series(values)
    if hasattr(values, "__arrow_c_array__") or hasattr(values, "__arrow_c_stream__"):  # as a Series has
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
    if "bool" in kinds and len(kinds) > 1:  # Polars would take True for 1
        msg = f"{name} must be of one type, got {kinds}."
        raise TypeError(msg)
    dtype = (pl.UInt64() if max(values) >= 2**63 else pl.Int64()) if kinds == ["int"] else None
    try:
        if kinds == ["datetime", "datetime with time zone"]:
            raise TypeError
        series = pl.Series(values, dtype=dtype, strict=kinds != ["float", "int"])
        as_held = series.to_list() if column_types.family(series.dtype) else values
    except (
        TypeError,
        ValueError,
        OverflowError,
        RuntimeError,
        pl.exceptions.PolarsError,
        pl.exceptions.PanicException,
    ):
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
    """Return candidates; refuse none at all, null, NaN, types without candidates, and repetitions."""
    if not len(values) >= 1:
        msg = f"{name} must not be empty."
        raise ValueError(msg)
    if values.null_count() or values.dtype == pl.Null:
        msg = f"{name} must not contain null."
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
    """Return candidates; refuse 128-bit integers and decimals beyond 64 bits."""
    if not column_types.fit_into_64_bits(values):
        msg = (
            f"{name} of type {values.dtype} must lie strictly between -2**63 and 2**63 - 1"
            f"{' multiples of the last digit' if isinstance(values.dtype, pl.Decimal) else ''}."
        )
        raise ValueError(msg)
    return values
