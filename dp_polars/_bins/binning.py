"""The bin of each row: binnings, and their encoders on Polars."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, partial
from operator import floordiv
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars._base import column_types
from dp_polars._base.numbers import Ints, difference
from dp_polars._base.silence import in_parallel
from dp_polars._bins.candidates import Categories, Digits, Grid, Ordered, Points, casting

Codes: TypeAlias = "NDArray[np.unsignedinteger]"
Encoder: TypeAlias = Callable[[pl.Series], Codes]

_CHUNK = 1 << 17  # values per chunk, so that temporaries stay in the cache
_TEXTS = 1 << 19  # texts per look-up
_PART = 1 << 20  # values per part of a thread
_WIDEST_TABLE = 1 << 20
# Relative: a float means the decimal that it prints as, at most half a unit in the last place away. So a value this
# little above the middle of two candidates is a tie.
_TIE = 2.0**-51
_TOO_WIDE = "candidates of a quantile must span less than 2**63 units of the column's type."


def code_dtype(size: int) -> np.dtype[np.unsignedinteger]:
    """Return the smallest unsigned type for the codes 0 … size."""
    return np.dtype(np.min_scalar_type(size))


def category_encoder(categories: Categories, dtype: pl.DataType) -> Encoder:
    """Return the encoder of a mode's column; values outside the candidates are ignored."""
    values = categories.for_column(dtype)
    size, out = len(values), code_dtype(len(values))
    if column_types.family(dtype) == "text":
        enum = pl.Enum(values.cast(pl.String))

        def encode_text(column: pl.Series) -> Codes:
            physical = column.cast(enum, strict=False).to_physical()
            return physical.cast(column_types.from_numpy_dtype(out)).fill_null(size).to_numpy()

        if dtype == enum:  # these codes need no change
            return encode_text
        encode_part = encode_text if dtype == pl.String else partial(_by_category, encode=encode_text)
        return lambda column: _by_chunks(column, encode_part, out, _TEXTS)

    wanted = column_types.integers(values)
    order = np.argsort(wanted, kind="stable")
    ascending, rank = wanted[order], order.astype(out)
    lowest = ascending[:1]
    beyond = int(difference(ascending[-1:], lowest)[0]) + 1
    if beyond <= _WIDEST_TABLE:
        table = np.full(beyond + 1, size, out)
        table[difference(ascending, lowest).view(np.int64)] = rank

        def look_up(column: NDArray[np.integer]) -> Codes:
            # A value below the lowest one wraps to a large number.
            offset = difference(column, lowest)
            return table[np.minimum(offset, np.uint64(beyond), out=offset).view(np.int64)]
    else:

        def look_up(column: NDArray[np.integer]) -> Codes:
            position = np.minimum(np.searchsorted(ascending, column), size - 1)
            return np.where(ascending[position] == column, rank[position], out.type(size))

    return lambda column: _without_nulls(_by_chunks(column_types.integers(column), look_up, out), column, size)


def _by_category(column: pl.Series, *, encode: Encoder) -> Codes:
    """Return the codes of a Categorical or an Enum: text is looked up once per category, not per row."""
    physical = column.to_physical()
    most = physical.max()
    if not isinstance(most, int) or not most < len(column):
        return encode(column)
    category = (physical.fill_null(most + 1) if physical.null_count() else physical).to_numpy().astype(np.intp)
    somewhere = np.zeros(most + 2, np.intp)
    somewhere[category] = np.arange(len(column))  # one row of each category that occurs
    codes: Codes = encode(column.gather(somewhere))[category]
    return codes


def ordered_encoder(candidates: Ordered, dtype: pl.DataType) -> Encoder:
    """Return the encoder of a quantile's column: each value goes to its nearest candidate, ties down.

    Null and NaN are ignored. Between two integer-like types (integers, decimals, times) it is exact. With floats, it is
    exact up to their rounding.
    """
    column, of_candidates = column_types.family(dtype), column_types.family(candidates.dtype)
    if column in (None, "text", "boolean") or column != of_candidates:
        msg = f"candidates of type {candidates.dtype} can't be a quantile of a column of type {dtype}."
        raise TypeError(msg + casting(candidates.dtype, dtype))
    size, out = candidates.size, code_dtype(candidates.size)
    way = _way_to(candidates, dtype)
    if way is None:
        raise ValueError(_TOO_WIDE)
    if isinstance(way, Pieces):
        return _encoder_by_pieces(way, size, dtype)
    if isinstance(way, FloatSteps) or (isinstance(way, Thresholds) and way.values.dtype.kind == "f"):
        of_floats = _nearest_of_floats(way, size)
        return lambda values: _by_chunks(column_types.floats(values), of_floats, out)
    nearest = _nearest_of_integers(way, size, _physical(dtype))
    return lambda values: _without_nulls(_by_chunks(column_types.integers(values), nearest, out), values, size)


@dataclass(frozen=True)
class IntegerSteps:
    """Maps physical integers to the nearest points of a grid, ties down, all within 64 signed bits.

    The code of x is floor(((clip(x, low, high) − low)·whole + shift) / stride), clipped to the codes.
    """

    low: int
    high: int
    whole: int
    shift: int
    stride: int
    ends_are_points: bool  # low and high are the first and the last point: nothing is left to clip

    def place(self, inside: Any, constant: Callable[[int], Any], divide: Callable[[Any, Any], Any]) -> Any:  # noqa: ANN401
        """Return the codes of values that are clipped to `low` and `high`, by the operators of an engine's columns.

        The codes must still be clipped if the ends are no points. `constant` makes a 64-bit number of the engine;
        `divide` may round towards 0 or down: they differ only below 0, and that is clipped.
        """
        place = inside - constant(self.low)
        if self.whole != 1:
            place = place * constant(self.whole)
        if self.shift:
            place = place + constant(self.shift)
        return place if self.stride == 1 else divide(place, constant(self.stride))


@dataclass(frozen=True)
class FloatSteps:
    """Maps floats to the nearest points of a grid: ceil((x − start)·per_step − 0.5), clipped to the codes."""

    start: float
    per_step: float


@dataclass(frozen=True)
class Thresholds:
    """Maps values to the nearest of some points, ties down: the code is `below` + the number of smaller values.

    `values` ascend: physical integers of the column, or floats. Then the compared values are floats, too.
    """

    below: int
    values: NDArray[Any]


@dataclass(frozen=True)
class Pieces:
    """Maps values to the nearest points of `Digits`: by steps within the piece that contains a value.

    A piece has the values above the end of the one before it, up to its own. Values above the last end, or below the
    first point, were clipped before.
    """

    ends: tuple[Any, ...]  # the last point of each piece: physical integers, or floats
    codes: tuple[int, ...]  # of each piece's first point
    sizes: tuple[int, ...]
    steps: tuple[Any, ...]  # all IntegerSteps that don't multiply, or all FloatSteps

    @property
    def low(self) -> Any:  # noqa: ANN401
        """The first point."""
        return self.steps[0].low if isinstance(self.steps[0], IntegerSteps) else self.steps[0].start

    @classmethod
    def of(cls, digits: Digits, column: pl.DataType) -> Pieces:
        ways = [_way_to(grid, column) for _, grid in digits.pieces]
        ends = [grid.start + grid.step * (grid.size - 1) for _, grid in digits.pieces]
        tick = column_types.tick(column)
        return cls(
            tuple(float(end) if tick is None else int(end / tick) for end in ends),
            tuple(code for code, _ in digits.pieces),
            tuple(grid.size for _, grid in digits.pieces),
            tuple(ways),
        )


def _physical(dtype: pl.DataType) -> np.dtype[np.integer]:
    return column_types.integers(pl.Series([], dtype=dtype)).dtype


def _integer_steps(grid: Grid, unit: Fraction, dtype: np.dtype[np.integer]) -> IntegerSteps | None:
    info = np.iinfo(dtype)
    start, step = grid.start / unit, grid.step / unit
    whole = math.lcm(start.denominator, step.denominator)
    first, stride = int(start * whole), int(step * whole)
    last = first + stride * (grid.size - 1)
    low = min(max(first // whole, info.min), info.max)
    high = min(max(-(-last // whole), info.min), info.max)
    # The nearest point, ties down, is floor((x·whole − first + ceil(stride/2) − 1) / stride).
    shift = low * whole - first + (stride + 1) // 2 - 1
    if (high - low) * whole + abs(shift) + stride >= 2**63:
        return None
    return IntegerSteps(low, high, whole, shift, stride, whole == 1 and low == first)


def _encoder_by_pieces(way: Pieces, size: int, dtype: pl.DataType) -> Encoder:
    out, ends, codes = code_dtype(size), np.array(way.ends), np.array(way.codes)
    if isinstance(way.steps[0], FloatSteps):
        starts, per_steps = (np.array([getattr(one, name) for one in way.steps]) for name in ("start", "per_step"))

        def of_floats(x: NDArray[np.float64]) -> NDArray[np.float64]:
            x = np.clip(x, way.low, way.ends[-1])
            piece = np.minimum(np.searchsorted(ends, x), len(ends) - 1)  # NaN is above the last end
            place: NDArray[np.float64] = np.ceil((x - starts[piece]) * per_steps[piece] - 0.5) + codes[piece]
            return np.fmin(place, size, out=place)

        return lambda values: _by_chunks(column_types.floats(values), of_floats, out)
    info = np.iinfo(_physical(dtype))
    low, high = (min(max(end, info.min), info.max) for end in (way.low, way.ends[-1]))
    offsets, strides = np.array([(one.shift - one.low, one.stride) for one in way.steps]).T

    def of_integers(x: NDArray[np.integer]) -> NDArray[np.int64]:
        inside = np.clip(x, low, high).astype(np.int64)
        piece = np.searchsorted(ends, inside)
        place: NDArray[np.int64] = (inside + offsets[piece]) // strides[piece] + codes[piece]
        return place

    return lambda values: _without_nulls(_by_chunks(column_types.integers(values), of_integers, out), values, size)


def _way_to(candidates: Ordered, column: pl.DataType) -> IntegerSteps | FloatSteps | Thresholds | Pieces | None:
    """Return the map from values to the nearest candidate; for numbers beyond 64 bits, with floats."""
    if isinstance(candidates, Digits):
        return Pieces.of(candidates, column)
    way: IntegerSteps | Thresholds | None = None
    unit = column_types.tick(column)
    if isinstance(candidates, Grid):
        way = None if unit is None else _integer_steps(candidates, unit, _physical(column))
    elif unit is not None and column_types.tick(candidates.dtype) is not None:
        way = _integer_thresholds(candidates, unit, column)
    if way is not None or column_types.family(column) != "number":
        return way
    # Ties, up to the rounding of the floats, go down.
    if isinstance(candidates, Grid):
        return FloatSteps(float(candidates.start), float(1 / candidates.step) * (1 - _TIE))
    values = column_types.floats(candidates.values)
    middles = values[:-1] / 2 + values[1:] / 2
    return Thresholds(0, middles + np.abs(middles) * _TIE)


def _nearest_of_integers(
    steps: IntegerSteps | Thresholds, size: int, dtype: np.dtype[np.integer]
) -> Callable[[NDArray[np.integer]], NDArray[np.integer]]:
    if isinstance(steps, Thresholds):
        return lambda x: np.searchsorted(steps.values, x) + steps.below
    low, whole, shift, stride = steps.low, steps.whole, steps.shift, steps.stride

    def nearest(x: NDArray[np.integer]) -> NDArray[np.integer]:
        x = np.clip(x, low, steps.high)
        if dtype == np.uint64:
            x -= np.uint64(low)
        x = x.astype(np.int64, copy=False)
        if dtype != np.uint64 and low:
            x -= low
        if whole != 1:
            x *= whole
        if shift:
            x += shift
        if stride != 1:
            x //= stride
        return x if steps.ends_are_points else np.clip(x, 0, size - 1, out=x)

    return nearest


def _integer_thresholds(points: Points, unit: Fraction, column: pl.DataType) -> Thresholds | None:
    """Return the exact thresholds of physical integers; None if they don't fit into 64 bits."""
    dtype = _physical(column)
    info = np.iinfo(dtype)
    physical = column_types.integers(points.values)
    ratio = (column_types.tick(points.dtype) or Fraction(1)) / unit
    # An integer is above the middle of two candidates if it is above the floor of the middle.
    if ratio == 1 and physical.dtype == dtype:
        middles = (physical[:-1] & physical[1:]) + ((physical[:-1] ^ physical[1:]) >> 1)
    else:
        exact = physical.astype(object)
        middles = (exact[:-1] + exact[1:]) * ratio.numerator // (2 * ratio.denominator)
    if column_types.is_wide(column) and ((middles < info.min) | (middles >= info.max)).any():
        return None
    below = int(np.count_nonzero(middles < info.min))
    return Thresholds(below, np.minimum(middles[below:], info.max).astype(dtype))


def _nearest_of_floats(
    steps: FloatSteps | Thresholds, size: int
) -> Callable[[NDArray[np.float64]], NDArray[np.generic]]:
    """Return a function from floats to codes; NaN, which is ignored, becomes `size`."""
    if isinstance(steps, Thresholds):
        return lambda x: np.where(np.isnan(x), size, np.searchsorted(steps.values, x))

    def nearest(x: NDArray[np.float64]) -> NDArray[np.float64]:
        with np.errstate(over="ignore"):  # infinite: beyond the ends
            x = x - steps.start
            x *= steps.per_step
        x -= 0.5
        np.ceil(x, out=x)
        np.clip(x, 0, size - 1, out=x)
        return np.fmin(x, size, out=x)  # for a NaN and a number, the number

    return nearest


def _by_chunks(values: Any, encode: Callable[[Any], NDArray[Any]], out: np.dtype[Any], rows: int = _CHUNK) -> Codes:  # noqa: ANN401
    """Return the codes of a column, or of an array, chunk by chunk; each thread works on the next free chunk."""
    codes = np.empty(len(values), out)

    def encode_part(start: int, stop: int) -> None:
        for begin in range(start, stop, rows):
            part = slice(begin, min(begin + rows, stop))
            codes[part] = encode(values[part])

    in_parallel(encode_part, [(a, min(a + _PART, len(values))) for a in range(0, len(values), _PART)])
    return codes


def _without_nulls(codes: Codes, column: pl.Series, size: int) -> Codes:
    if column.null_count():
        codes[column.is_null().to_numpy()] = size
    return codes


_INT64 = np.iinfo(np.int64)


class Binning(ABC):
    """Maps rows of a query's columns to codes below `size`; the code `size` is ignored."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of codes."""

    @abstractmethod
    def encoder(self) -> Callable[[Sequence[pl.Series]], Codes]:
        """Return a function from columns to codes; it is made once, for many batches of rows."""

    def expression(self, columns: Sequence[pl.Expr], types: Sequence[pl.DataType]) -> pl.Expr | None:  # noqa: ARG002
        """Return the codes as a Polars expression, equal on every value of these types. None: there is none."""
        return None


@dataclass(frozen=True)
class CategoryBinning(Binning):
    """The position of the value among categories; null and other values are ignored.

    Without `column`, the type of the values, there is no encoder.
    """

    categories: Categories
    column: pl.DataType | None = None

    @property
    def values(self) -> pl.Series:
        """The values of the codes, in the type of the answer."""
        return self.categories.for_column(self.column)

    @cached_property
    def size(self) -> int:
        return len(self.values)

    def encoder(self) -> Callable[[Sequence[pl.Series]], Codes]:
        encode = category_encoder(self.categories, _known(self.column))
        return lambda columns: encode(columns[0])


@dataclass(frozen=True)
class NearestBinning(Binning):
    """The position of the nearest candidate, ties down; null and NaN are ignored.

    Without `column`, the type of the values, there is no encoder.
    """

    candidates: Ordered
    column: pl.DataType | None = None

    @property
    def size(self) -> int:
        return self.candidates.size

    @property
    def steps(self) -> IntegerSteps | FloatSteps | Pieces | None:
        """The codes as arithmetic, for engines without arrays; None if they are no arithmetic."""
        dtype = _known(self.column)
        if isinstance(self.candidates, Points):
            return None
        way = _way_to(self.candidates, dtype)
        # Only Python computes decimals as floats.
        return None if isinstance(way, Thresholds) or (isinstance(way, FloatSteps) and dtype.is_decimal()) else way

    @property
    def thresholds(self) -> Thresholds | None:
        """The codes as comparisons, for engines without arrays; None for a grid, which never lists its points.

        ValueError if they don't fit into 64 bits.
        """
        if not isinstance(self.candidates, Points):
            return None
        way = _way_to(self.candidates, _known(self.column))
        if not isinstance(way, Thresholds):
            raise ValueError(_TOO_WIDE)
        return way

    def encoder(self) -> Callable[[Sequence[pl.Series]], Codes]:
        encode = ordered_encoder(self.candidates, _known(self.column))
        return lambda columns: encode(columns[0])


@dataclass(frozen=True)
class Beyond(Binning):
    """The number of ascending public ends below a number; with `closed`, also equal ones. Null and NaN are ignored.

    Without `column`, the type of the values, there is no encoder.
    """

    ends: tuple[Fraction, ...]
    column: pl.DataType | None = None
    closed: bool = False
    steps: ClassVar[None] = None

    @property
    def size(self) -> int:
        return len(self.ends) + 1

    @cached_property
    def thresholds(self) -> Thresholds:
        dtype = _known(self.column)
        tick = column_types.tick(dtype)
        if tick is None:
            floats = np.array([float(end) for end in self.ends])
            return Thresholds(0, np.nextafter(floats, -np.inf) if self.closed else floats)
        info = np.iinfo(np.int64 if dtype.is_decimal() else _physical(dtype))
        whole = [math.ceil(end / tick) - 1 if self.closed else math.floor(end / tick) for end in self.ends]
        below = sum(end < info.min for end in whole)
        values = [min(end, info.max) for end in whole[below:]]
        return Thresholds(below, np.array(values, info.dtype))

    def encoder(self) -> Callable[[Sequence[pl.Series]], Codes]:
        dtype, out = _known(self.column), code_dtype(self.size)
        if column_types.tick(dtype) is None:
            of_floats = _nearest_of_floats(self.thresholds, self.size)
            return lambda columns: _by_chunks(column_types.floats(columns[0]), of_floats, out)
        ways = self.thresholds

        def above(values: NDArray[np.integer]) -> NDArray[np.integer]:
            return np.searchsorted(ways.values, values) + ways.below

        return lambda columns: _without_nulls(
            _by_chunks(column_types.integers(columns[0]), above, out), columns[0], self.size
        )


@dataclass(frozen=True)
class OneCode(Binning):
    """One code for every row with a value, or for every row if no column is read.

    With `nulls`, for every row that is null instead: NaN is no null.
    """

    nulls: bool = False
    size: ClassVar[int] = 1

    def encoder(self) -> Callable[[Sequence[pl.Series]], Codes]:
        is_ignored = pl.Series.is_not_null if self.nulls else _is_missing
        return lambda columns: is_ignored(columns[0]).to_numpy().astype(np.uint8)

    def expression(self, columns: Sequence[pl.Expr], types: Sequence[pl.DataType]) -> pl.Expr:
        zero, one = (pl.lit(code, pl.UInt8) for code in (0, 1))
        return pl.when(self.counts(columns, types)).then(zero).otherwise(one)

    def counts(self, columns: Sequence[pl.Expr], types: Sequence[pl.DataType]) -> pl.Expr:
        if not columns:
            return pl.lit(value=True)
        return columns[0].is_null() if self.nulls else column_types.has_value(columns[0], types[0])


def _is_missing(column: pl.Series) -> pl.Series:
    missing = column.is_null()
    return missing | column.is_nan().fill_null(value=False) if column.dtype.is_float() else missing


@dataclass(frozen=True)
class Clamping:
    """Weights of rows: values within public clipping bounds, in units of a public step: the nearest, ties to even.

    Ignored rows have arbitrary weights.
    """

    # Exact. The bounds are whole multiples of the step.
    lower: Fraction
    upper: Fraction
    step: Fraction
    doubled: bool = False  # whether the weight is the distance from the middle of the bounds, in halves of a step
    # The place of the column of values among the query's columns. Null and NaN are 0.
    column: int = 0
    # Exact: `of_person` in multiples of the step. None: as for a row.
    ends_of_person: tuple[Fraction, Fraction] | None = None
    # Whether the weight is the distance from this bound, in steps.
    from_bound: Literal["lower", "upper"] | None = None

    @property
    def ends(self) -> tuple[int, int]:
        return int(self.lower / self.step), int(self.upper / self.step)

    @property
    def of_person(self) -> tuple[int, int]:
        """If people count: the ends to which the sum of a person's weights, in a group and code, is clipped."""
        if self.ends_of_person is None:
            return -self.largest, self.largest
        low, high = (int(end / self.step) for end in self.ends_of_person)
        return low, high

    @property
    def largest(self) -> int:
        """The largest weight of a row, or minus the smallest."""
        if self.doubled or self.from_bound is not None:
            return int((self.upper - self.lower) / self.step)
        return int(max(abs(self.lower), abs(self.upper)) / self.step)

    @property
    def added(self) -> Clamping:
        """Weights of rows that several clampings may have in common: `of_sums` maps their sums to sums of this one."""
        return replace(self, doubled=False, from_bound=None) if type(self) is Clamping else self

    def of_sums(self, sums: Any, rows: Any, constant: Callable[[int], Any] = int) -> Any:  # noqa: ANN401
        """Return the sum of the weights of a number of rows, from their sum of `added`."""
        if self.added == self:
            return sums
        low, high = self.ends
        if self.from_bound == "lower":
            return sums - rows * constant(low)
        if self.from_bound == "upper":
            return rows * constant(high) - sums
        return sums * constant(2) - rows * constant(low + high)

    def ticks(self, tick: Fraction) -> int:
        """Return the number of steps in one last digit, at least 1.

        If it is beyond the bounds, the result may be any larger number: the value is clipped anyway.
        """
        return min(int(tick / self.step), 2**31)

    def weigh(self, columns: Sequence[pl.Series]) -> Ints:
        """Return the weight of every row."""
        low, high = self.ends
        weights: Ints = self.of_units(np.clip(self._units(columns[self.column], low, high), low, high))
        return weights

    def of_units(
        self,
        units: Any,  # noqa: ANN401
        constant: Callable[[int], Any] = int,
        divide: Callable[[Any, Any], Any] = floordiv,  # noqa: ARG002  # for squares
    ) -> Any:  # noqa: ANN401
        """Return the weights of values in whole units, by the operators of an array, of an expression or of a column.

        `constant` makes a 64-bit number of that kind, `divide` the quotient of two numbers from 0 on.
        """
        low, high = self.ends
        if self.from_bound == "lower":
            return units - constant(low)
        if self.from_bound == "upper":
            return constant(high) - units
        return units * constant(2) - constant(low + high) if self.doubled else units

    def expression(self, columns: Sequence[pl.Expr], types: Sequence[pl.DataType]) -> pl.Expr | None:
        """Return the weights as a Polars expression: the same operations as `weigh`, so that each value rounds alike.

        Values are clipped before anything can overflow, and no value raises. Null and NaN give null. None: there is no
        such expression.
        """
        column, dtype = columns[self.column], types[self.column]
        low, high = self.ends
        if dtype.is_float():
            # One product, rounded to the nearest float, and then to the nearest whole number, both with ties to even.
            ratio = column.cast(pl.Float64) * pl.lit(float(1 / self.step), pl.Float64)
            # By cases: `clip` takes twice as long. Polars sorts NaN above all numbers; it must stay NaN.
            least, most = (pl.lit(float(end), pl.Float64) for end in (low, high))
            below, above = ratio < least, (ratio > most) & ratio.is_not_nan()
            inside = pl.when(below).then(least).when(above).then(most).otherwise(ratio)
            units = inside.round(mode="half_to_even").cast(pl.Int64, strict=False)  # only NaN becomes null
        else:
            whole = self._whole(column, dtype, low, high)
            if whole is None:
                return None
            units = whole.clip(_int64(low), _int64(high))
        weights: pl.Expr = self.of_units(units, _int64)
        return weights

    def _whole(self, column: pl.Expr, dtype: pl.DataType, low: int, high: int) -> pl.Expr | None:
        """Return `_units` for a type without floats, as an expression."""
        tick = column_types.tick(dtype)
        if tick is None:
            return None
        per_step, steps = self.step / tick, self.ticks(tick)
        ends = (low // steps, -(-high // steps)) if per_step < 1 else (low * int(per_step), high * int(per_step))
        if dtype == pl.UInt64 and max(ends) > _INT64.max:
            return None  # half of them are beyond int64
        bounds = _within(_INT64, *ends)
        physical = column.to_physical()
        if dtype == pl.UInt64 or column_types.is_wide(dtype):
            wide = pl.Int128() if dtype == pl.Decimal else dtype
            unsigned = wide.is_unsigned_integer()
            physical = physical.clip(*(pl.lit(max(end, 0) if unsigned else end, wide) for end in bounds))
        inside = physical.cast(pl.Int64).clip(*map(_int64, bounds))
        if per_step <= 1:
            return inside * _int64(steps) if per_step < 1 else inside
        per = _int64(int(per_step))
        whole, rest = inside // per, inside % per
        return whole + (_int64(2) * rest + whole % _int64(2) > per).cast(pl.Int64)

    def _units(self, column: pl.Series, low: int, high: int) -> Ints:
        """Return the nearest whole units, exactly if the column has no floats.

        For a value beyond the bounds, the result is any number beyond them: it is clipped anyway.

        The step is a whole multiple or a whole part of a column's last digit, and the bounds are at most 2**62 of that.
        """
        tick = column_types.tick(column.dtype)
        if tick is None:
            # A warning would reveal a value. Infinite ones are beyond the bounds, NaN is ignored.
            with np.errstate(over="ignore", invalid="ignore"):
                ratio = column_types.floats(column) * float(1 / self.step)
                rounded: Ints = np.nan_to_num(np.rint(np.clip(ratio, low, high))).astype(np.int64)
            return rounded
        physical = column_types.integers(column)
        per_step = self.step / tick  # physical units in a step, or one over the steps in such a unit
        if per_step < 1:
            steps = self.ticks(tick)
            inside = np.clip(physical, *_within(np.iinfo(physical.dtype), low // steps, -(-high // steps)))
            finer: Ints = inside.astype(np.int64) * steps
            return finer
        per = int(per_step)
        inside = np.clip(physical, *_within(np.iinfo(physical.dtype), low * per, high * per))
        if per == 1:  # after clipping, within int64
            exact: Ints = inside.astype(np.int64)
            return exact
        # `per` fits into 64 bits. Unsigned integers stay unsigned, because half of them are beyond int64.
        wide = inside.astype(np.uint64 if physical.dtype == np.uint64 else np.int64)
        whole, rest = (part.astype(np.int64) for part in np.divmod(wide, per))
        nearest: Ints = whole + (2 * rest + whole % 2 > per)
        return nearest


# The largest square, in bits of units of their step; the stored weight is twice a square, minus the largest.
_MOST_SQUARES = 30


@dataclass(frozen=True)
class Squares(Clamping):
    """Squares of the distances from the middle of the bounds, around half of the largest one. They are `doubled`.

    With H steps between the bounds, a distance d has −H to H halves of a step. d² is rounded to the nearest whole
    multiple of q = 2**shift, ties up. q is the smallest one with at most 2**30 multiples. So d² becomes t from 0 to T,
    and the weight is 2t − T, from −T to T. All intermediate numbers are below 2**61. Up to H = 2**15 nothing is
    rounded. Beyond, d² is off by at most q/2, which is less than H²/2**30.
    """

    @property
    def shift(self) -> int:
        """The exponent of the unit of squares, q = 2**shift."""
        steps = super().largest
        return ((steps * steps - 1) >> _MOST_SQUARES).bit_length()

    @property
    def half(self) -> int:
        """Added to a square before it is rounded down."""
        return (1 << self.shift) >> 1

    @property
    def largest(self) -> int:
        steps = super().largest
        return (steps * steps + self.half) >> self.shift

    def of_units(
        self,
        units: Any,  # noqa: ANN401
        constant: Callable[[int], Any] = int,
        divide: Callable[[Any, Any], Any] = floordiv,
    ) -> Any:  # noqa: ANN401
        distances = super().of_units(units, constant)
        squares = distances * distances
        if self.shift:
            squares = divide(squares + constant(self.half), constant(1 << self.shift))
        return squares * constant(2) - constant(self.largest)


@dataclass(frozen=True)
class Products(Clamping):
    """Products of two distances of a value from the clipping bounds, in parts of their squared distance.

    Let H steps be between the bounds, and k from the lower one to a value. Then it is k²·g/H or (H − k)²·g/H, each
    rounded to the nearest whole number, ties up; or the rest of both to g·H (`from_bound` None), near 2k·(H − k)·g/H.
    The rest is never below 0, and the first two differ by g·(2k − H) exactly: `docs/proofs/sum-pairs.md`, Theorem 6.
    g is such that g·H is at most 2**30, or H if that is more: a multiple of H, if possible. Then nothing is rounded.
    """

    @property
    def steps(self) -> int:
        return int((self.upper - self.lower) / self.step)

    @property
    def per_step(self) -> int:
        """The factor g."""
        finest = 1 << _MOST_SQUARES
        return finest // self.steps**2 * self.steps or max(1, finest // self.steps)

    @property
    def is_exact(self) -> bool:
        return self.per_step % self.steps == 0

    @property
    def largest(self) -> int:
        return self.per_step * self.steps

    def of_units(
        self,
        units: Any,  # noqa: ANN401
        constant: Callable[[int], Any] = int,
        divide: Callable[[Any, Any], Any] = floordiv,
    ) -> Any:  # noqa: ANN401
        (low, high), by, steps = self.ends, self.per_step, self.steps
        distances = constant(high) - units if self.from_bound == "upper" else units - constant(low)
        if self.is_exact:
            squares = distances * distances * constant(by // steps)
        else:
            squares = divide(distances * distances * constant(by) + constant(steps // 2), constant(steps))
        return squares if self.from_bound else (distances * constant(by) - squares) * constant(2)


def _int64(value: int) -> pl.Expr:
    return pl.lit(value, pl.Int64)


def _within(info: np.iinfo[Any], low: int, high: int) -> tuple[int, int]:
    return min(max(low, info.min), info.max), min(max(high, info.min), info.max)


def _known(column: pl.DataType | None) -> pl.DataType:
    assert column is not None, "rows are coded where their type is known"
    return column
