"""From values of a column to codes: the position of a row's candidate, or `size` for a row that is ignored.

Every step is row by row, so that a person's rows change only their own codes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars._base import column_types
from dp_polars._base.arrays import difference
from dp_polars._base.threads import in_parallel
from dp_polars._codes.candidates import OF_ITS_TYPE, Points
from dp_polars._codes.grids import Grid

if TYPE_CHECKING:
    from dp_polars._codes.candidates import Categories, Ordered

Codes: TypeAlias = "NDArray[np.unsignedinteger]"
Encoder: TypeAlias = Callable[[pl.Series], Codes]

_CHUNK = 1 << 17  # values whose temporaries stay in the cache
_TEXTS = 1 << 19  # values whose text is looked up at once
_PART = 1 << 20  # values that one thread takes at a time
_WIDEST_TABLE = 1 << 20
# Relative: a float is taken for the decimal that it prints as, at most half a unit in the last place away, so a
# value this little above the middle of two candidates is a tie.
_TIE = 2.0**-51
_TOO_WIDE = "candidates of a quantile must span less than 2**63 units of the column's type."


def code_dtype(size: int) -> np.dtype[np.unsignedinteger]:
    """Return the smallest unsigned type that holds the codes 0 … size."""
    return np.dtype(np.min_scalar_type(size))


def category_encoder(categories: Categories, dtype: pl.DataType) -> Encoder:
    """Return the encoder of a mode's column: a value outside the candidates is ignored."""
    values = categories.for_column(dtype)
    size, out = len(values), code_dtype(len(values))
    if column_types.family(dtype) == "text":
        enum = pl.Enum(values.cast(pl.String))

        def encode_text(column: pl.Series) -> Codes:
            physical = column.cast(enum, strict=False).to_physical()
            codes: Codes = physical.cast(column_types.from_numpy_dtype(out)).fill_null(size).to_numpy()
            return codes

        if dtype == enum:  # codes as they are
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
            # Everything below the lowest one wraps to somewhere far above.
            offset = difference(column, lowest)
            found: Codes = table[np.minimum(offset, np.uint64(beyond), out=offset).view(np.int64)]
            return found
    else:

        def look_up(column: NDArray[np.integer]) -> Codes:
            position = np.minimum(np.searchsorted(ascending, column), size - 1)
            return np.where(ascending[position] == column, rank[position], out.type(size))

    return lambda column: _without_nulls(_by_chunks(column_types.integers(column), look_up, out), column, size)


def _by_category(column: pl.Series, *, encode: Encoder) -> Codes:
    """Return the codes of a Categorical or an Enum: text is looked up once for each category, not for each row."""
    physical = column.to_physical()
    most = physical.max()
    if not isinstance(most, int) or not most < len(column):
        return encode(column)
    category = (physical.fill_null(most + 1) if physical.null_count() else physical).to_numpy().astype(np.intp)
    somewhere = np.zeros(most + 2, np.intp)
    somewhere[category] = np.arange(len(column))  # a row of each category that is there
    codes: Codes = encode(column.gather(somewhere))[category]
    return codes


def ordered_encoder(candidates: Ordered, dtype: pl.DataType) -> Encoder:
    """Return the encoder of a quantile's column: each value goes to its nearest candidate, ties down.

    Null and NaN are ignored. Between two integer-like types (integers, decimals, times) it is exact; where floats take
    part it is exact to the rounding of the floats.
    """
    column, of_candidates = column_types.family(dtype), column_types.family(candidates.dtype)
    if column in (None, "text", "boolean") or column != of_candidates:
        msg = f"candidates of type {candidates.dtype} can't be a quantile of a column of type {dtype}."
        if column == "text":
            msg += "\n\nHint: cast the column, or give it its type where it is read."
        elif dtype.is_temporal():
            msg += OF_ITS_TYPE
        raise TypeError(msg)
    size, out = candidates.size, code_dtype(candidates.size)
    unit = column_types.tick(dtype)
    exact = isinstance(candidates, Grid) or column_types.tick(candidates.dtype) is not None
    if unit is not None and exact:
        nearest = _nearest_of_integers(candidates, unit, dtype)
        if nearest is not None:
            return lambda values: _without_nulls(_by_chunks(column_types.integers(values), nearest, out), values, size)
    if column != "number":
        raise ValueError(_TOO_WIDE)
    of_floats = _nearest_of_floats(candidates)
    return lambda values: _by_chunks(column_types.floats(values), of_floats, out)


@dataclass(frozen=True)
class IntegerSteps:
    """The way from physical integers to the nearest points of a grid, ties down, all within 64 signed bits.

    The code of x is floor(((clip(x, low, high) − low)·whole + shift) / stride), clipped to the codes.
    """

    low: int
    high: int
    whole: int
    shift: int
    stride: int
    ends_are_points: bool  # low and high are the first and the last point: nothing is left to clip


@dataclass(frozen=True)
class FloatSteps:
    """The way from floats to the nearest points of a grid: ceil((x − start)·per_step − 0.5), clipped to the codes."""

    start: float
    per_step: float

    @classmethod
    def of(cls, grid: Grid) -> FloatSteps:
        """Return the way to the points of this grid; ties, up to the rounding of the floats, go down."""
        return cls(float(grid.start), float(1 / grid.step) * (1 - _TIE))


def grid_steps(candidates: Ordered, dtype: pl.DataType) -> IntegerSteps | FloatSteps | None:
    """Return how the codes that `ordered_encoder` gives follow by arithmetic; None where they don't."""
    if not isinstance(candidates, Grid):
        return None
    unit = column_types.tick(dtype)
    if unit is None:
        return FloatSteps.of(candidates)
    steps = _integer_steps(candidates, unit, _physical(dtype))
    # What doesn't fit into 64 bits is found by floats, as in the encoder.
    return FloatSteps.of(candidates) if steps is None and dtype.is_integer() else steps


@dataclass(frozen=True)
class Thresholds:
    """The way from values to the nearest of some points, ties down: the code is `below` + how many values are less.

    The values are in ascending order: physical integers of the column, or floats, and then so is what is compared.
    """

    below: int
    values: NDArray[Any]


def thresholds(points: Points, dtype: pl.DataType) -> Thresholds:
    """Return how the codes that `ordered_encoder` gives follow by comparing; a ValueError where they don't."""
    unit = column_types.tick(dtype)
    if unit is not None and column_types.tick(points.dtype) is not None:
        found = _integer_thresholds(points, unit, dtype)
        if found is not None:
            return found
    if column_types.family(dtype) != "number":
        raise ValueError(_TOO_WIDE)
    return _float_thresholds(points)


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


def _nearest_of_integers(
    candidates: Ordered, unit: Fraction, column: pl.DataType
) -> Callable[[NDArray[np.integer]], NDArray[np.integer]] | None:
    """Return the exact way from physical integers to codes; None where it does not fit into 64 bits."""
    if isinstance(candidates, Points):
        found = _integer_thresholds(candidates, unit, column)
        if found is None:
            return None
        reachable, below = found.values, found.below
        return lambda x: np.searchsorted(reachable, x) + below

    dtype = _physical(column)
    steps = _integer_steps(candidates, unit, dtype)
    if steps is None:
        return None
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
        return x if steps.ends_are_points else np.clip(x, 0, candidates.size - 1, out=x)

    return nearest


def _integer_thresholds(points: Points, unit: Fraction, column: pl.DataType) -> Thresholds | None:
    """Return the exact thresholds of physical integers; None where they don't fit into 64 bits."""
    dtype = _physical(column)
    info = np.iinfo(dtype)
    physical = column_types.integers(points.values)
    ratio = (column_types.tick(points.dtype) or Fraction(1)) / unit
    # An integer lies above the middle of two candidates where it lies above the floor of that.
    if ratio == 1 and physical.dtype == dtype:
        middles = (physical[:-1] & physical[1:]) + ((physical[:-1] ^ physical[1:]) >> 1)
    else:
        middles = (
            (physical[:-1].astype(object) + physical[1:].astype(object)) * ratio.numerator // (2 * ratio.denominator)
        )
    if column_types.is_wide(column) and ((middles < info.min) | (middles >= info.max)).any():
        return None
    below = int(np.count_nonzero(middles < info.min))
    return Thresholds(below, np.minimum(middles[below:], info.max).astype(dtype))


def _float_thresholds(points: Points) -> Thresholds:
    """Return the middles of points as floats."""
    values = column_types.floats(points.values)
    middles = values[:-1] / 2 + values[1:] / 2
    return Thresholds(0, middles + np.abs(middles) * _TIE)


def _nearest_of_floats(candidates: Ordered) -> Callable[[NDArray[np.float64]], NDArray[np.generic]]:
    """Return the way from floats to codes; NaN, which is ignored, goes to `size`."""
    size = candidates.size
    if isinstance(candidates, Points):
        middles = _float_thresholds(candidates).values
        return lambda x: np.where(np.isnan(x), size, np.searchsorted(middles, x))

    steps = FloatSteps.of(candidates)

    def nearest(x: NDArray[np.float64]) -> NDArray[np.float64]:
        with np.errstate(over="ignore"):  # infinite: beyond the ends
            x = x - steps.start
            x *= steps.per_step
        x -= 0.5
        np.ceil(x, out=x)
        np.clip(x, 0, size - 1, out=x)
        return np.fmin(x, size, out=x)  # of a NaN and a number, the number

    return nearest


def _by_chunks(values: Any, encode: Callable[[Any], NDArray[Any]], out: np.dtype[Any], rows: int = _CHUNK) -> Codes:  # noqa: ANN401
    """Return the codes of a column, or of an array, chunk by chunk; threads take the next chunk in turn."""
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
