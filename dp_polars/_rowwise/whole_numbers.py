"""Numbers as whole numbers of 128 bits, whose sums are the same in any order and on every path of an engine.

A float counts to the nearest 2⁻⁴⁰, an integer as it is, a Decimal by its last digit. Each value is checked before it is
added: at most 2⁵⁴ for floats, and 2⁹⁴ as a whole number for all, so that the sum of 2³² values is at most 2¹²⁶ and
never wraps. What is beyond (NaN and infinities among it) is null here; `is_beyond` tells it from a null. Squares are
those of each value's distance from the mean, in 2⁻⁴⁶ of the largest distance. The proofs are in
docs/proofs/whole-numbers.md.

All is row by row, or on one value for each group, except for the sums, which the caller takes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from polars._typing import PolarsDataType

#: A float counts to the nearest multiple of this.
STEP = 2.0**-40
#: The largest float that counts.
LARGEST = 2.0**54
_LARGEST_WHOLE = 2**94
_LARGEST_POWER_OF_TEN = 28  # 10²⁸ < 2⁹⁴
_PARTS = 2.0**46  # of the largest distance from the mean


def has_whole_numbers(dtype: PolarsDataType) -> bool:
    """Return whether values of a type are whole numbers of something: Booleans, integers, floats and Decimals are."""
    return (dtype.is_numeric() and dtype.base_type() != getattr(pl, "UInt128", None)) or dtype == pl.Boolean


def whole(value: pl.Expr, dtype: PolarsDataType) -> pl.Expr:
    """Return values as whole numbers, Int128; null is null, and so is what is beyond."""
    if dtype.is_float():
        number = value.cast(pl.Float64)
        # Scaling by a power of two is exact, so that what is rounded to a whole number is the value itself.
        return pl.when(number.abs() <= LARGEST).then(number * (1 / STEP)).round().cast(pl.Int128, strict=False)
    number = value.to_physical().cast(pl.Int128)
    return pl.when(_fits(number)).then(number) if _may_be_beyond(dtype) else number


def is_beyond(value: pl.Expr, dtype: PolarsDataType) -> pl.Expr | None:
    """Return whether values are beyond what counts, never null; None if those of the type never are."""
    if dtype.is_float():
        return (value.cast(pl.Float64).abs() <= LARGEST).not_().fill_null(value=False)
    if _may_be_beyond(dtype):
        return _fits(value.to_physical().cast(pl.Int128)).not_().fill_null(value=False)
    return None


def sum_of(total: pl.Expr, dtype: PolarsDataType) -> pl.Expr:
    """Return a sum of whole numbers as floats of the type that the values had."""
    return (total.cast(pl.Float64) * STEP).cast(dtype)


def mean_of(total: pl.Expr, count: pl.Expr, dtype: PolarsDataType) -> pl.Expr:
    """Return the mean from the sum of whole numbers and the number of values; null if there are none."""
    # One division, by a full column: Polars multiplies by a constant's reciprocal, but not where a row is alone.
    mean = total.cast(pl.Float64) / (count.cast(pl.Float64) * _units(dtype))
    return pl.when(count > 0).then(mean).cast(_float(dtype))


def centre_of(total: pl.Expr, count: pl.Expr) -> pl.Expr:
    """Return the whole number nearest to the mean; null if there are no values."""
    number = count.cast(pl.Int128)
    return (total + number // 2) // number


def share_of(distance: pl.Expr, largest: pl.Expr) -> pl.Expr:
    """Return a whole number's distance from the centre in parts of the group's largest: 2⁴⁶ at most, Int128.

    Null where all values are one.
    """
    share = distance.cast(pl.Float64) / largest.cast(pl.Float64)
    return pl.when(largest > 0).then(share * _PARTS).round().cast(pl.Int128, strict=False)


def variance_of(
    squares: pl.Expr, shares: pl.Expr, largest: pl.Expr, count: pl.Expr, ddof: int, dtype: PolarsDataType
) -> pl.Expr:
    """Return the variance from the sum of the squared shares, that of the shares, and the largest distance.

    Null where there are not more values than `ddof`.
    """
    number = count.cast(pl.Float64)
    total = shares.cast(pl.Float64)
    unit = largest.cast(pl.Float64) / (number * 0 + _units(dtype) * _PARTS)
    around_mean = squares.cast(pl.Float64) - total * total / number
    # Where all values are one, engines differ in the sign of the zero.
    variance = pl.when(around_mean > 0).then(around_mean / (number - ddof) * unit * unit).otherwise(0.0)
    return pl.when(count > ddof).then(variance).cast(_float(dtype))


def decimals(value: pl.Expr, dtype: pl.Decimal) -> pl.Expr:
    """Return Decimals of 38 digits whose sums never raise; null is null, and so is what is beyond."""
    wide = value.cast(pl.Decimal(38, dtype.scale))
    return pl.when(_fits(value.to_physical().cast(pl.Int128))).then(wide) if _may_be_beyond(dtype) else wide


def _fits(number: pl.Expr) -> pl.Expr:
    # Not by `abs`, which wraps at the least number.
    return number.is_between(pl.lit(-_LARGEST_WHOLE, pl.Int128), pl.lit(_LARGEST_WHOLE, pl.Int128))


def _may_be_beyond(dtype: PolarsDataType) -> bool:
    if isinstance(dtype, pl.Decimal):
        return dtype.precision > _LARGEST_POWER_OF_TEN
    return dtype == pl.Int128


def _units(dtype: PolarsDataType) -> float:
    """Return how many of a type's whole numbers make 1."""
    if dtype.is_float():
        return 1 / STEP
    return 10.0**dtype.scale if isinstance(dtype, pl.Decimal) else 1.0


def _float(dtype: PolarsDataType) -> PolarsDataType:
    return dtype if dtype.is_float() else pl.Float64()
