"""What makes an answer follow from one person's rows to the bit: one zero and NaN, whole orders, exact sums."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from dp_polars._base.column_types import parts_of, with_leaves

if TYPE_CHECKING:
    from polars._typing import PolarsDataType


def of_one_kind(name: str, dtype: PolarsDataType, nan: float | None = float("nan")) -> pl.Expr:
    """Return a column of floats with one zero and one NaN, or `nan`: equal values are the same to the bit."""
    return _of_one_kind(pl.col(name), dtype, nan).alias(name)


def nested_of_one_kind(name: str, dtype: PolarsDataType) -> pl.Expr | None:
    """Return a column in which all floats, nested ones too, are of one kind; None where there are none."""
    return _nested(pl.col(name), dtype).alias(name) if has_floats(dtype) else None


def has_floats(dtype: PolarsDataType) -> bool:
    return any(part.is_float() for part in parts_of(dtype))


def _of_one_kind(value: pl.Expr, dtype: PolarsDataType, nan: float | None) -> pl.Expr:
    zero = pl.when(value == 0).then(pl.lit(0.0, dtype)).otherwise(value)
    return pl.when(value.is_nan()).then(pl.lit(nan, dtype)).otherwise(zero)


def _nested(value: pl.Expr, dtype: PolarsDataType) -> pl.Expr:
    if not has_floats(dtype):
        return value
    if isinstance(dtype, pl.List):
        return value.list.eval(_nested(pl.element(), dtype.inner))
    if isinstance(dtype, pl.Array):
        as_lists = value.arr.to_list().list.eval(_nested(pl.element(), dtype.inner))
        return as_lists.list.to_array(dtype.size).cast(dtype)
    if isinstance(dtype, pl.Struct):
        fields = [_nested(value.struct.field(of.name), of.dtype).alias(of.name) for of in dtype.fields]
        return pl.when(value.is_not_null()).then(pl.struct(fields))
    return _of_one_kind(value, dtype, float("nan"))


def has_order(dtype: PolarsDataType) -> bool:
    """Return whether values of a type have an order: Objects and Extension types have none."""
    return not any(part in {pl.Object, pl.Unknown} or isinstance(part, pl.BaseExtension) for part in parts_of(dtype))


def compared(name: str, dtype: PolarsDataType) -> pl.Expr:
    """Return what a column is compared by: Categoricals by their texts, as their numbers follow from other rows."""
    holds_categories = any(part == pl.Categorical for part in parts_of(dtype))
    as_texts = with_leaves(dtype, lambda leaf: pl.String() if leaf == pl.Categorical else leaf)
    return pl.col(name).cast(as_texts) if holds_categories else pl.col(name)


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
