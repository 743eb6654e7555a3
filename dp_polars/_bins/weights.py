"""Weights of rows: units, multiples of a step, and clamping."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

import numpy as np
import polars as pl

from dp_polars._base import column_types
from dp_polars._base.numbers import Ints, Number, as_fraction, given, positive_fraction, show
from dp_polars._bins.binning import Clamping

_MOST_PLACES = 38
# Multiples of such a step, and its quotients with floats, fit into floats.
_LARGEST_TERM = 2**900


def check_terms(name: str, step: Fraction) -> None:
    """Raise for a step that is a ratio of too large integers; messages call it `name`."""
    if not max(step.numerator, step.denominator) <= _LARGEST_TERM:
        msg = f"{name} must be a ratio of integers of at most 2**900, got {show(step)}."
        raise ValueError(msg)


def type_in_steps(step: Fraction, column: pl.DataType, *, of_floats: bool) -> pl.DataType:
    """Return the type of a column's multiples of a step; ValueError if the step itself does not fit.

    `of_floats`: the step was given as a float or Fraction.
    """
    if of_floats or column.is_float():
        return pl.Float64()
    places = next((n for n in range(_MOST_PLACES + 1) if (step * 10**n).denominator == 1), None)
    if places is None:
        msg = f"step must have at most {_MOST_PLACES} decimal places for such a column, got {show(step)}."
        raise ValueError(msg)
    scale = max(places, column.scale if isinstance(column, pl.Decimal) else 0)
    dtype = pl.Decimal(38, scale) if isinstance(column, pl.Decimal) or scale else pl.Int64()
    if not step * 10**scale < (10**38 if isinstance(dtype, pl.Decimal) else 2**63):
        msg = f"step must be a number that {dtype} holds, got {show(step)}."
        raise ValueError(msg)
    return dtype


def in_steps(units: Ints, step: Fraction, dtype: pl.DataType) -> pl.Series:
    """Return whole units of a step as numbers of a type; clipped to the range of the type."""
    if dtype.is_float():
        if max(step.numerator, step.denominator) > 2**53:
            return pl.Series(units * float(step))
        # Below 2**53 both are exact floats, so the quotient is the float nearest to the number.
        return pl.Series(units * float(step.numerator) / float(step.denominator))
    scale = dtype.scale if isinstance(dtype, pl.Decimal) else None
    digits = int(step * 10 ** (scale or 0))
    most = min((2**63 if scale is None else 10**38) // digits, 2**63) - 1
    numbers = pl.Series(np.clip(units, -most, most))
    if scale is None:
        return numbers * digits
    import pyarrow as pa  # takes a third as long to import as this package: only decimals need it

    whole = numbers.cast(pl.Decimal(38, 0)) * Decimal(digits)
    # The same 128 bits with a decimal point: Polars' own arithmetic would run out of digits.
    return pl.Series(whole.to_arrow().view(pa.decimal128(38, scale)))


# The largest value, in units of the step: the sum of 2**32 rows then fits into 62 bits.
_MOST_UNITS = 2**30
# Steps by default are a millionth of the bounds' distance, or less.
_DIGITS = 6
# All arithmetic on bounds and steps of this size fits into floats.
_LARGEST = 2**500


@lru_cache(maxsize=1024)  # of public arguments only; a release needs it several times
def clamping_of(
    lower: Fraction, upper: Fraction, step: Fraction | None, column: pl.DataType, ends: str = "lower and upper"
) -> Clamping:
    """Return the weights of a column's values; TypeError or ValueError if it has none. `ends` names the bounds."""
    tick = column_types.tick(column)
    if column_types.family(column) not in ("number", "boolean"):
        msg = (
            f"values must be numbers or booleans, got a column of type {column}.\n\n"
            "Hint: make numbers of them first, pl.col(…).cast(pl.Float64), say; of dates request a median."
        )
        raise TypeError(msg)
    if step is None:
        if tick is None:
            msg = (
                f"step must be given for a column of type {column}.\n\n"
                "Hint: step=0.01 adds values up in hundredths. Choose it from public knowledge."
            )
            raise ValueError(msg)
        step = tick
        check_held(lower, upper, step, column, ends)
    if tick is not None and (step / tick).denominator != 1 and (tick / step).denominator != 1:
        msg = f"step must be a whole multiple, or a whole part, of the last digit of {column}, got {show(step)}."
        raise ValueError(msg)
    units = Clamping(lower, upper, step)
    check_size(units)
    if tick is None:
        return units
    # Numbers between the column's digits and whole steps must fit into 64 bits.
    if not step / tick <= 2**62:
        msg = f"step must be at most 2**62 times the last digit of {column}, got {show(step)}."
        raise ValueError(msg)
    if column_types.is_wide(column) and not units.largest * (step / tick) < 2**63:
        msg = (
            f"{ends} must be below 2**63 times the last digit of {column}, got values from {show(lower)} to "
            f"{show(upper)}.\n\nHint: cast the column to a type with fewer digits, or to a float, first."
        )
        raise ValueError(msg)
    return units


@lru_cache(maxsize=1024)
def step_by_default(span: Fraction, column: pl.DataType, *ends: tuple[Fraction, Fraction]) -> Fraction | None:
    """Return the default step of values; None: the last digit of the column's type, or none at all.

    For floats, and Decimals with a last digit that is too fine, it is the power of ten at or below a millionth of
    `span`. It is larger if sums would not fit into 62 bits, and smaller if the bounds, `ends`, are no multiples.
    """
    tick = column_types.tick(column)
    if not column.is_float() and not (isinstance(column, pl.Decimal) and tick is not None and not _fit(tick, ends)):
        return None
    step = Fraction(10) ** (math.floor(math.log10(span)) - _DIGITS)
    while step * 10**_DIGITS > span:  # the logarithm is a float
        step /= 10
    step = step if tick is None else max(step, tick)
    while not _fit(step, ends):
        step *= 10
    finer = step
    while _fit(finer, ends) and (tick is None or finer >= tick):
        if all((end / finer).denominator == 1 for pair in ends for end in pair):
            return finer
        finer /= 10
    msg = (
        f"step must be given where no power of ten divides the bounds, got {' and '.join(map(show, ends[0]))}.\n\n"
        "Hint: round the bounds outward, or give a step of which they are multiples."
    )
    raise ValueError(msg)


def _fit(step: Fraction, ends: Iterable[tuple[Fraction, Fraction]]) -> bool:
    """Return whether sums of values between these bounds fit into 62 bits, in such steps."""
    return all(max(abs(low), abs(high), high - low) <= _MOST_UNITS * step for low, high in ends)


def check_held(lower: Fraction, upper: Fraction, digit: Fraction, column: pl.DataType, ends: str) -> None:
    """Raise for bounds, called `ends`, that are no whole multiples of the last digit of a column's type."""
    if any((end / digit).denominator != 1 for end in (lower, upper)):
        msg = f"{ends} must be values that a column of type {column} can hold."
        raise ValueError(msg)


def check_size(units: Clamping) -> None:
    """Raise for bounds that are more than 2**30 steps from zero, or apart: sums would not fit into 64 bits."""
    if not max(Fraction(units.largest), (units.upper - units.lower) / units.step) <= _MOST_UNITS:
        msg = (
            "a value must be at most 2**30 steps, so that sums fit into 64 bits, got values from "
            f"{show(units.lower)} to {show(units.upper)} in steps of {show(units.step)}.\n\nHint: take a wider step."
        )
        raise ValueError(msg)


@dataclass(frozen=True)
class Weights:
    """Weights of rows in a choice: a column's values, clipped to [0, `most`], in whole units of a public step.

    R of a choice is R of counts times `most`: if people count, a person's sum for a candidate in a group is clipped
    to [0, `most`]. Loss and rate are in the unit of the weights, and histograms count whole steps.
    """

    most: Fraction
    step: Fraction | None  # None: the last digit of the column's type
    is_column: bool = True  # False: no column is read, and a row or person weighs 1

    @classmethod
    def of(cls, most: Number, step: Number | None) -> Weights:
        exact, width = positive_fraction("max_weight", most), None if step is None else as_fraction("step", step)
        check_bounds(Fraction(0), exact, width, "max_weight")
        return cls(exact, width)

    def units(self, *columns: pl.DataType) -> Clamping | None:
        """Return the weights of the second column; TypeError or ValueError if it has none.

        None: no column is read, or none is known yet.
        """
        if not (self.is_column and columns):
            return None
        try:
            units = clamping_of(Fraction(0), self.most, self.step, columns[1], "max_weight")
        except TypeError:
            msg = f"weights must be numbers or booleans, got a column of type {columns[1]}."
            raise TypeError(msg) from None
        return replace(units, column=1)

    def missed(self, bound: float, *columns: pl.DataType) -> float:
        """Return the largest error below a bound that `error` reaches with its probability.

        Errors are differences of two counts, or sums of weights: whole steps. The bound is unchanged if the step is
        unknown.
        """
        units = self.units(*columns)
        step = self.step if units is None else units.step
        steps = bound / float(step or 1)
        return float((math.ceil(steps) - 1) * step) if step is not None and 0 < steps < 2**53 else bound


#: For choices without weights.
ONE_EACH = Weights(Fraction(1), Fraction(1), is_column=False)


def bounds_of(lower: Number, upper: Number, step: Number | None) -> tuple[Fraction, Fraction, Fraction | None]:
    low, high = as_fraction("lower", lower), as_fraction("upper", upper)
    width = None if step is None else as_fraction("step", step)
    if not low < high:
        msg = f"lower must be below upper, got lower={lower!r} and upper={upper!r}."
        raise ValueError(msg)
    check_bounds(low, high, width, "lower and upper")
    return low, high, width


#: The least distance between found clipping bounds of floats.
SMALLEST_SPAN = Fraction(1, 100)


def bounds_given(
    lower: Number | None, upper: Number | None, step: Number | None
) -> tuple[tuple[Fraction, Fraction, Fraction | None], tuple[str, ...]]:
    """Return clipping bounds and the step, and the names of missing bounds; placeholders replace them."""
    finds = tuple(name for name, end in (("lower", lower), ("upper", upper)) if end is None)
    width = positive_fraction("step", step) if finds and step is not None else Fraction(1)
    if lower is None:
        lower = Fraction(0) if upper is None else min(as_fraction("upper", upper) - width, Fraction(0))
    if upper is None:
        upper = as_fraction("lower", lower) + width
    return bounds_of(lower, upper, step), finds


def ends_of_person(per_person: object, step: Fraction | None) -> tuple[Fraction, Fraction]:
    hint = "\n\nHint: per_person=(0, 500) clips the total of a person in a group to 0 … 500."
    if not isinstance(per_person, (tuple, list)) or len(per_person) != 2:
        msg = f"per_person must be a pair (lo, hi) or None, got {given(per_person)}.{hint}"
        raise TypeError(msg)
    low, high = (as_fraction(f"per_person[{i}]", end) for i, end in enumerate(per_person))
    if not low < high:
        msg = f"per_person must be (lo, hi) with lo below hi, got ({show(low)}, {show(high)}).{hint}"
        raise ValueError(msg)
    check_bounds(low, high, step, "per_person")
    return low, high


def check_bounds(low: Fraction, high: Fraction, step: Fraction | None, ends: str) -> None:
    """Raise for bounds, called `ends`, that are no whole multiples of the step, or too large."""
    if not max(abs(low), abs(high)) <= _LARGEST:
        msg = f"{ends} must be at most 2**500, got more."
        raise ValueError(msg)
    if step is None:
        return
    if not step > 0:
        msg = f"step must be greater than 0, got {show(step)}."
        raise ValueError(msg)
    if not step * _LARGEST >= 1:
        msg = "step must be at least 2**-500, got less."
        raise ValueError(msg)
    check_terms("step", step)
    if any((end / step).denominator != 1 for end in (low, high)):
        got = " and ".join(show(end) for end in (low, high) if end)
        msg = f"{ends} must be whole multiples of step, got {got} in steps of {show(step)}.\n\nHint: round outward."
        raise ValueError(msg)
    check_size(Clamping(low, high, step))
