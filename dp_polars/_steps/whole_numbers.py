"""Make answers depend on rows to the bit: one zero, one NaN, and exact sums of lists."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from dp_polars._base.column_types import parts_of

if TYPE_CHECKING:
    from polars._typing import PolarsDataType


def of_one_kind(name: str, dtype: PolarsDataType) -> pl.Expr:
    """Return a column of floats with one zero and one NaN, so that equal values have equal bits."""
    value = pl.col(name)
    zero = pl.when(value == 0).then(pl.lit(0.0, dtype)).otherwise(value)
    return pl.when(value.is_nan()).then(pl.lit(float("nan"), dtype)).otherwise(zero).alias(name)


def has_floats(dtype: PolarsDataType) -> bool:
    return any(part.is_float() for part in parts_of(dtype))


#: Floats are rounded to multiples of this.
STEP = 2.0**-40
#: The largest float that counts. Larger ones become null.
LARGEST = 2.0**54
_LARGEST_WHOLE = 2**94
_LARGEST_POWER_OF_TEN = 28  # 10²⁸ < 2⁹⁴


def has_whole_numbers(dtype: PolarsDataType) -> bool:
    """Return whether values of a type can be counted in whole units: Booleans, integers, floats and Decimals can."""
    return (dtype.is_numeric() and dtype.base_type() != getattr(pl, "UInt128", None)) or dtype == pl.Boolean


def whole(value: pl.Expr, dtype: PolarsDataType) -> pl.Expr:
    """Return values as whole numbers, Int128; null and values beyond the limit become null."""
    if dtype.is_float():
        number = value.cast(pl.Float64)
        # Scaling by a power of two is exact, so the value itself is rounded to a whole number.
        return pl.when(number.abs() <= LARGEST).then(number * (1 / STEP)).round().cast(pl.Int128, strict=False)
    number = value.to_physical().cast(pl.Int128)
    return pl.when(_fits(number)).then(number) if _may_be_beyond(dtype) else number


def is_beyond(value: pl.Expr, dtype: PolarsDataType) -> pl.Expr | None:
    """Return whether values are beyond the limit, never null. None: values of this type never are."""
    if dtype.is_float():
        return (value.cast(pl.Float64).abs() <= LARGEST).not_().fill_null(value=False)
    if _may_be_beyond(dtype):
        return _fits(value.to_physical().cast(pl.Int128)).not_().fill_null(value=False)
    return None


def sum_of(total: pl.Expr, dtype: PolarsDataType) -> pl.Expr:
    """Return a sum of whole numbers as floats of the values' type."""
    return (total.cast(pl.Float64) * STEP).cast(dtype)


def mean_of(total: pl.Expr, count: pl.Expr, dtype: PolarsDataType) -> pl.Expr:
    """Return the mean from the sum of whole numbers and the number of values; null if there are none."""
    # One division by a full column: Polars multiplies by a constant's reciprocal, except for a single row.
    mean = total.cast(pl.Float64) / (count.cast(pl.Float64) * _units(dtype))
    return pl.when(count > 0).then(mean).cast(_float(dtype))


def decimals(value: pl.Expr, dtype: pl.Decimal) -> pl.Expr:
    """Return Decimals of 38 digits with sums that never raise; null and values beyond the limit become null."""
    wide = value.cast(pl.Decimal(38, dtype.scale))
    return pl.when(_fits(value.to_physical().cast(pl.Int128))).then(wide) if _may_be_beyond(dtype) else wide


def _fits(number: pl.Expr) -> pl.Expr:
    # Not `abs`, which wraps around at the smallest number.
    return number.is_between(pl.lit(-_LARGEST_WHOLE, pl.Int128), pl.lit(_LARGEST_WHOLE, pl.Int128))


def _may_be_beyond(dtype: PolarsDataType) -> bool:
    if isinstance(dtype, pl.Decimal):
        return dtype.precision > _LARGEST_POWER_OF_TEN
    return dtype == pl.Int128


def _units(dtype: PolarsDataType) -> float:
    """Return the number of a type's units in 1."""
    if dtype.is_float():
        return 1 / STEP
    return 10.0**dtype.scale if isinstance(dtype, pl.Decimal) else 1.0


def _float(dtype: PolarsDataType) -> PolarsDataType:
    return dtype if dtype.is_float() else pl.Float64()
