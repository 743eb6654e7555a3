"""How rows are counted: frozen values that say which code and which weight a row has.

An engine that runs NumPy asks for the encoder; one that runs SQL translates the value into its own words, and must
agree with them on every row.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from dp_polars._base import column_types
from dp_polars._codes.encoding import category_encoder, grid_steps, ordered_encoder, thresholds
from dp_polars._codes.grids import Grid

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dp_polars._base.arrays import Ints
    from dp_polars._codes.candidates import Categories, Ordered
    from dp_polars._codes.encoding import Codes, Encoder, FloatSteps, IntegerSteps, Thresholds

_INT64 = np.iinfo(np.int64)


class Coding(ABC):
    """Row by row from the columns that a query reads to codes below `size`; `size` itself is ignored."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of codes."""

    @abstractmethod
    def encoder(self) -> Callable[[Sequence[pl.Series]], Codes]:
        """Return what gives every row its code; made once, for many batches of rows."""

    def expression(self, columns: Sequence[pl.Expr], types: Sequence[pl.DataType]) -> pl.Expr | None:  # noqa: ARG002
        """Return the codes as Polars' own arithmetic, equal on every value of these types. None: there is none."""
        return None


class Weighing(ABC):
    """Row by row from the columns that a query reads to integer weights; arbitrary ones for rows that are ignored."""

    @property
    @abstractmethod
    def largest(self) -> int:
        """The largest weight of a row, or minus the smallest."""

    @property
    def of_person(self) -> tuple[int, int]:
        """Where people count: the ends to which the sum of a person's weights, in a group and code, is clipped."""
        return -self.largest, self.largest

    @abstractmethod
    def weigher(self) -> Callable[[Sequence[pl.Series]], Ints]:
        """Return what gives every row its weight; made once, for many batches of rows."""

    def expression(self, columns: Sequence[pl.Expr], types: Sequence[pl.DataType]) -> pl.Expr | None:  # noqa: ARG002
        """Return the weights as Polars' own arithmetic, equal on every value of these types; null where there is none.

        None: there is no such expression.
        """
        return None


@dataclass(frozen=True)
class CategoryCoding(Coding):
    """The position of the value among categories; null and other values are ignored.

    Without `column`, the type of the values, there is no encoder.
    """

    categories: Categories
    column: pl.DataType | None = None

    @property
    def values(self) -> pl.Series:
        """The values that the codes stand for, in the type of the answer."""
        return self.categories.for_column(self.column)

    @cached_property
    def size(self) -> int:
        return len(self.values)

    def encoder(self) -> Callable[[Sequence[pl.Series]], Codes]:
        return _of_one_column(category_encoder(self.categories, _known(self.column)))


@dataclass(frozen=True)
class NearestCoding(Coding):
    """The position of the candidate that is nearest to the value, ties down; null and NaN are ignored.

    Without `column`, the type of the values, there is no encoder.
    """

    candidates: Ordered
    column: pl.DataType | None = None

    @property
    def size(self) -> int:
        return self.candidates.size

    @property
    def steps(self) -> IntegerSteps | FloatSteps | None:
        """The codes as arithmetic, for engines that have no arrays; None where they are no arithmetic."""
        return grid_steps(self.candidates, _known(self.column))

    @property
    def thresholds(self) -> Thresholds | None:
        """The codes as comparisons, for engines that have no arrays; None for a grid, whose points are never made."""
        return None if isinstance(self.candidates, Grid) else thresholds(self.candidates, _known(self.column))

    def encoder(self) -> Callable[[Sequence[pl.Series]], Codes]:
        return _of_one_column(ordered_encoder(self.candidates, _known(self.column)))


@dataclass(frozen=True)
class OneCode(Coding):
    """One code for every row that has a value, or for every row where no column is read.

    With `nulls`, for every row that is null instead: NaN is no null.
    """

    nulls: bool = False

    @property
    def size(self) -> int:
        """One."""
        return 1

    def encoder(self) -> Callable[[Sequence[pl.Series]], Codes]:
        """Return what gives every row its code."""
        is_ignored = pl.Series.is_not_null if self.nulls else _is_missing
        return lambda columns: is_ignored(columns[0]).to_numpy().astype(np.uint8)

    def expression(self, columns: Sequence[pl.Expr], types: Sequence[pl.DataType]) -> pl.Expr:
        """Return the codes as Polars' own arithmetic."""
        return (~self.counts(columns, types)).cast(pl.UInt8)

    def counts(self, columns: Sequence[pl.Expr], types: Sequence[pl.DataType]) -> pl.Expr:
        """Return whether a row counts."""
        if not columns:
            return pl.lit(value=True)
        return columns[0].is_null() if self.nulls else column_types.has_value(columns[0], types[0])


def _is_missing(column: pl.Series) -> pl.Series:
    missing = column.is_null()
    return missing | column.is_nan().fill_null(value=False) if column.dtype.is_float() else missing


@dataclass(frozen=True)
class Units(Weighing):
    """Values clipped to public bounds, in whole units of a public step: the nearest one, ties to even.

    Parameters
    ----------
    lower, upper, step
        Exact. The bounds are whole multiples of the step.
    doubled
        Whether the weight is the distance from the middle of the bounds, in halves of a step.
    column
        Which of the columns that the query reads holds the values. Null and NaN are 0.
    ends_of_person
        Exact: what `of_person` is, in multiples of the step. None: as for every weighing.
    """

    lower: Fraction
    upper: Fraction
    step: Fraction
    doubled: bool = False
    column: int = 0
    ends_of_person: tuple[Fraction, Fraction] | None = None

    @property
    def ends(self) -> tuple[int, int]:
        """The bounds, in steps."""
        return int(self.lower / self.step), int(self.upper / self.step)

    @property
    def of_person(self) -> tuple[int, int]:
        if self.ends_of_person is None:
            return super().of_person
        low, high = (int(end / self.step) for end in self.ends_of_person)
        return low, high

    @property
    def largest(self) -> int:
        if self.doubled:
            return int((self.upper - self.lower) / self.step)
        return int(max(abs(self.lower), abs(self.upper)) / self.step)

    def ticks(self, tick: Fraction) -> int:
        """Return how many steps one last digit spans, at least 1.

        If that is beyond the bounds, any larger number is returned: the value is clipped anyway.
        """
        return min(int(tick / self.step), 2**31)

    def weigher(self) -> Callable[[Sequence[pl.Series]], Ints]:
        """Return what gives every row its weight."""
        low, high = self.ends

        def weigh(columns: Sequence[pl.Series]) -> Ints:
            weights: Ints = self.of_units(np.clip(self._units(columns[self.column], low, high), low, high))
            return weights

        return weigh

    def of_units(self, units: Any, constant: Callable[[int], Any] = int) -> Any:  # noqa: ANN401
        """Return the weights of values in whole units, by the operators of an array or of an expression.

        `constant` makes a number of 64 bits of theirs.
        """
        if not self.doubled:
            return units
        return units * constant(2) - constant(sum(self.ends))

    def expression(self, columns: Sequence[pl.Expr], types: Sequence[pl.DataType]) -> pl.Expr | None:
        """Return the weights as Polars' own arithmetic: the steps of `weigher`, so that each value rounds alike.

        Values are clipped before anything can overflow, and no value raises. Null and NaN give null.
        """
        column, dtype = columns[self.column], types[self.column]
        low, high = self.ends
        if dtype.is_float():
            # One product, rounded to the nearest float, and then to the nearest whole number, both with ties to even.
            ratio = column.cast(pl.Float64) * pl.lit(float(1 / self.step), pl.Float64)
            inside = ratio.clip(pl.lit(float(low), pl.Float64), pl.lit(float(high), pl.Float64))
            units = inside.round(mode="half_to_even").cast(pl.Int64, strict=False)  # only NaN becomes null
        else:
            whole = self._whole(column, dtype, low, high)
            if whole is None:
                return None
            units = whole.clip(_int64(low), _int64(high))
        weights: pl.Expr = self.of_units(units, _int64)
        return weights

    def _whole(self, column: pl.Expr, dtype: pl.DataType, low: int, high: int) -> pl.Expr | None:
        """Return `_units` of a type without floats, as an expression."""
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
        """Return the nearest whole units, exactly where the column holds no floats.

        For a value beyond the bounds any number beyond them is returned: it is clipped anyway.

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
        # 64 bits hold `per`. Unsigned integers stay unsigned, because half of them are beyond int64.
        wide = inside.astype(np.uint64 if physical.dtype == np.uint64 else np.int64)
        whole, rest = (part.astype(np.int64) for part in np.divmod(wide, per))
        nearest: Ints = whole + (2 * rest + whole % 2 > per)
        return nearest


# The largest square, in units of their step: it is held as twice that, less the largest.
_MOST_SQUARES = 30


@dataclass(frozen=True)
class Squares(Units):
    """Squares of the distances from the middle of the bounds, around half of the largest one. They are `doubled`.

    With H steps between the bounds, a distance d has −H to H halves of a step. d² is rounded to whole multiples of
    q = 2**shift, the nearest one, ties up: the smallest q with which there are at most 2**30 of them. So d² becomes t
    from 0 to T, and the weight is 2t − T, from −T to T. All numbers on the way are below 2**61. Up to H = 2**15 nothing
    is rounded; beyond, d² is off by at most q/2, which is less than H²/2**30.
    """

    @property
    def shift(self) -> int:
        """The power of 2 whose multiples squares become: q = 2**shift."""
        steps = super().largest
        return ((steps * steps - 1) >> _MOST_SQUARES).bit_length()

    @property
    def half(self) -> int:
        """What is added to a square before it is rounded down."""
        return (1 << self.shift) >> 1

    @property
    def largest(self) -> int:
        steps = super().largest
        return (steps * steps + self.half) >> self.shift

    def of_units(self, units: Any, constant: Callable[[int], Any] = int) -> Any:  # noqa: ANN401
        """Return the weights of values in whole units: see `Units.of_units`."""
        distances = super().of_units(units, constant)
        squares = distances * distances
        if self.shift:
            squares = (squares + constant(self.half)) // constant(1 << self.shift)
        return squares * constant(2) - constant(self.largest)


def _int64(value: int) -> pl.Expr:
    return pl.lit(value, pl.Int64)


def _within(info: np.iinfo[Any], low: int, high: int) -> tuple[int, int]:
    """Return bounds that an integer type can hold."""
    return min(max(low, info.min), info.max), min(max(high, info.min), info.max)


def _of_one_column(encoder: Encoder) -> Callable[[Sequence[pl.Series]], Codes]:
    return lambda columns: encoder(columns[0])


def _known(column: pl.DataType | None) -> pl.DataType:
    if column is None:
        msg = "unreachable: rows are coded where their type is known"
        raise AssertionError(msg)
    return column
