"""Numbers that are whole multiples of a public step: their type, and how they get it."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from dp_polars._base.numbers import show

if TYPE_CHECKING:
    from dp_polars._base.arrays import Ints

_MOST_PLACES = 38
# Floats hold the multiples of such a step, and its quotients with the floats of columns.
_LARGEST_TERM = 2**900


def check_terms(name: str, step: Fraction) -> None:
    """Refuse a step that is a ratio of too large integers; messages call it `name`."""
    if not max(step.numerator, step.denominator) <= _LARGEST_TERM:
        msg = f"{name} must be a ratio of integers of at most 2**900, got {show(step)}."
        raise ValueError(msg)


def type_in_steps(step: Fraction, column: pl.DataType, *, of_floats: bool) -> pl.DataType:
    """Return the type of multiples of a step for a column's; a ValueError where it can't hold the step itself.

    `of_floats`: the step was given as a float or Fraction.
    """
    if of_floats or column.is_float():
        return pl.Float64()
    scale = max(_places(step), column.scale if isinstance(column, pl.Decimal) else 0)
    dtype = pl.Decimal(38, scale) if isinstance(column, pl.Decimal) or scale else pl.Int64()
    if not step * 10**scale < (10**38 if isinstance(dtype, pl.Decimal) else 2**63):
        msg = f"step must be a number that {dtype} holds, got {show(step)}."
        raise ValueError(msg)
    return dtype


def in_steps(units: Ints, step: Fraction, dtype: pl.DataType) -> pl.Series:
    """Return whole units of a step as numbers of a type; what it can't hold becomes its largest, or smallest."""
    if dtype.is_float():
        if max(step.numerator, step.denominator) > 2**53:
            return pl.Series(units * float(step))
        # Both are exact floats where they are below 2**53, so the quotient is the float nearest to the number.
        return pl.Series(units * float(step.numerator) / float(step.denominator))
    scale = dtype.scale if isinstance(dtype, pl.Decimal) else None
    digits = int(step * 10 ** (scale or 0))
    most = min((2**63 if scale is None else 10**38) // digits, 2**63) - 1
    numbers = pl.Series(np.clip(units, -most, most))
    if scale is None:
        return numbers * digits
    import pyarrow as pa  # takes a third as long to import as this package: only decimals need it

    whole = numbers.cast(pl.Decimal(38, 0)) * Decimal(digits)
    # The same 128 bits with a point among them: Polars' own arithmetic runs out of digits on the way.
    return pl.Series(whole.to_arrow().view(pa.decimal128(38, scale)))


def _places(step: Fraction) -> int:
    """Return the decimal places of a step that is a decimal."""
    places = next((n for n in range(_MOST_PLACES + 1) if (step * 10**n).denominator == 1), None)
    if places is None:
        msg = f"step must have at most {_MOST_PLACES} decimal places for such a column, got {show(step)}."
        raise ValueError(msg)
    return places
