"""Types of Spark, and codes, weights and their sums as its own arithmetic, equal to the encoders' on every row."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import polars as pl

from dp_polars._base import column_types
from dp_polars._base.extras import require
from dp_polars._bins.binning import Beyond, Binning, Clamping, FloatSteps, NearestBinning, OneCode, Pieces
from dp_polars._mechanisms.noise import LARGEST_VALUE

if TYPE_CHECKING:
    from polars._typing import PolarsDataType
    from pyspark.sql import Column, WindowSpec
    from pyspark.sql.types import DataType

    from dp_polars._release.contract import HistogramSpec


sf = require("pyspark.sql.functions", extra="spark")
spark_types = require("pyspark.sql.types", extra="spark")

_POLARS = {
    spark_types.BooleanType: pl.Boolean(),
    spark_types.ByteType: pl.Int8(),
    spark_types.ShortType: pl.Int16(),
    spark_types.IntegerType: pl.Int32(),
    spark_types.LongType: pl.Int64(),
    spark_types.FloatType: pl.Float32(),
    spark_types.DoubleType: pl.Float64(),
    spark_types.StringType: pl.String(),
    spark_types.DateType: pl.Date(),
    spark_types.TimestampType: pl.Datetime("us", "UTC"),
    spark_types.TimestampNTZType: pl.Datetime("us"),
    spark_types.DayTimeIntervalType: pl.Duration("us"),
}
# What holds the answers of a type that Spark has not.
_WIDER: dict[type[pl.DataType], pl.DataType] = {
    pl.UInt8: pl.Int16(),
    pl.UInt16: pl.Int32(),
    pl.UInt32: pl.Int64(),
    pl.UInt64: pl.Decimal(20, 0),
}


def polars_type(dtype: DataType) -> pl.DataType | None:
    """Return the Polars type that holds the same values and tells the same ones apart; None where there is none."""
    if isinstance(dtype, spark_types.DecimalType):
        return pl.Decimal(dtype.precision, dtype.scale)
    if isinstance(dtype, spark_types.StringType) and dtype != spark_types.StringType():
        return None  # its collation takes different texts for equal
    return _POLARS.get(type(dtype))


def made(dtype: PolarsDataType) -> pl.DataType:
    """Return a type as an instance, also where its class is given."""
    return dtype() if isinstance(dtype, type) else dtype


def answer_type(dtype: pl.DataType) -> pl.DataType | None:
    """Return the narrowest type that holds the answers and that Spark has; None where there is none."""
    if isinstance(dtype, (pl.Datetime, pl.Duration)):
        if dtype.time_unit == "ns":
            return None
        return pl.Duration("us") if isinstance(dtype, pl.Duration) else pl.Datetime("us", dtype.time_zone and "UTC")
    if isinstance(dtype, pl.List):
        inner = answer_type(made(dtype.inner))
        return None if inner is None else pl.List(inner)
    if isinstance(dtype, pl.Struct):
        fields = [(field.name, answer_type(made(field.dtype))) for field in dtype.fields]
        known = {name: kind for name, kind in fields if kind is not None}
        return pl.Struct(known) if len(known) == len(fields) else None
    dtype = _WIDER.get(dtype.base_type(), dtype)
    return dtype if isinstance(dtype, pl.Decimal) or dtype in _POLARS.values() else None


def spark_type(dtype: pl.DataType, column: tuple[pl.DataType, DataType] | None = None) -> DataType:
    """Return the Spark type of a type of `answer_type`.

    `column` has the Polars and the Spark type of a column whose values are in the answer: Spark's is narrower.
    """
    if column is not None and dtype == column[0]:
        return column[1]
    if isinstance(dtype, pl.List):
        return spark_types.ArrayType(spark_type(made(dtype.inner), column))
    if isinstance(dtype, pl.Struct):
        return spark_types.StructType(
            [spark_types.StructField(field.name, spark_type(made(field.dtype), column)) for field in dtype.fields]
        )
    if isinstance(dtype, pl.Decimal):
        return spark_types.DecimalType(dtype.precision, dtype.scale)
    return next(kind() for kind, known in _POLARS.items() if known == dtype)


# Digits after the point up to which Spark holds a decimal of 64 bits times the power of ten that makes it whole.
_MOST_DIGITS = 17
# Bits of a weight that are added up apart from the others.
_LOW_BITS = 16
# The physical integers of columns that are no integers.
_PHYSICAL: dict[pl.DataType, Callable[[Column], Column]] = {
    pl.Date(): sf.unix_date,
    pl.Datetime("us", "UTC"): sf.unix_micros,
}


def long(number: int) -> Column:
    return sf.lit(number).cast("long")


def clip(number: Column, low: int, high: int) -> Column:
    """Return what lies within the bounds; null becomes the largest."""
    return sf.greatest(long(low), sf.least(number, long(high)))


def divide(number: Column, by: Column) -> Column:
    """Return the quotient of two integers, towards 0."""
    return sf.call_function("div", number, by)


def is_present(value: Column, kind: DataType) -> Column:
    return value.isNotNull() & ~sf.isnan(value) if is_float(kind) else value.isNotNull()


def is_float(kind: DataType) -> bool:
    """Return whether a column may hold NaN and -0.0."""
    return isinstance(kind, (spark_types.FloatType, spark_types.DoubleType))


def code(binning: Binning, value: Column) -> Column | None:
    """Return the code of a value that is there. None: only a list, or Python, has it."""
    if isinstance(binning, OneCode):
        return long(0)
    if isinstance(binning, Beyond):
        return _code_by_comparing(binning, value)
    return _code_by_steps(binning, value) if isinstance(binning, NearestBinning) else None


def _code_by_comparing(binning: Beyond, value: Column) -> Column:
    """Return how many ends a number is above."""
    above, dtype = long(binning.thresholds.below), binning.column
    value = _PHYSICAL[dtype](value) if dtype in _PHYSICAL else value
    for end in binning.thresholds.values.tolist():
        above = above + (value > _constant(end, dtype)).cast("long")
    return above


def _constant(end: Any, dtype: pl.DataType | None) -> Column:  # noqa: ANN401
    """Return a physical integer, or a float, as the value of a column that `_PHYSICAL` does not have."""
    if isinstance(dtype, pl.Decimal):
        return sf.lit(Decimal(end).scaleb(-dtype.scale))
    if isinstance(dtype, pl.Duration):
        return sf.lit(timedelta(microseconds=end))
    if dtype == pl.Datetime("us"):
        return sf.lit(str(datetime(1970, 1, 1) + timedelta(microseconds=end))).cast("timestamp_ntz")
    return sf.lit(end)


def _code_by_steps(binning: NearestBinning, value: Column) -> Column | None:
    """Return the code of a value as Spark's own arithmetic; None where only Python has it."""
    steps, dtype = binning.steps, binning.column
    last = binning.size - 1
    if isinstance(steps, FloatSteps):
        place = (value.cast("double") - sf.lit(steps.start)) * sf.lit(steps.per_step) - sf.lit(0.5)
        # Clipped before it becomes an integer: beyond 64 bits Spark would raise.
        return sf.ceil(sf.greatest(sf.lit(0.0), sf.least(place, sf.lit(float(last))))).cast("long")
    if isinstance(steps, Pieces):
        return _code_by_pieces(steps, value, dtype)
    if steps is None or dtype is None or not (dtype in _PHYSICAL or dtype.is_integer()):
        return None
    physical = _PHYSICAL[dtype](value) if dtype in _PHYSICAL else value
    return clip(steps.place(clip(physical.cast("long"), steps.low, steps.high), long, divide), 0, last)


def _code_by_pieces(pieces: Pieces, value: Column, dtype: pl.DataType | None) -> Column | None:
    """Return the code of a value by the steps of the piece in which it lies; None where only Python has it."""
    low, high, code = pieces.low, pieces.ends[-1], sf.lit(None).cast("long")
    if isinstance(pieces.steps[0], FloatSteps):
        inside = sf.greatest(sf.lit(low), sf.least(value.cast("double"), sf.lit(high)))
    elif dtype is None or not dtype.is_numeric() or (isinstance(dtype, pl.Decimal) and dtype.scale > _MOST_DIGITS):
        return None
    else:
        inside = _digits(value, dtype, low, high)
    for steps, end, first in reversed(list(zip(pieces.steps, pieces.ends, pieces.codes, strict=True))):
        if isinstance(steps, FloatSteps):
            place = sf.ceil((inside - sf.lit(steps.start)) * sf.lit(steps.per_step) - sf.lit(0.5)).cast("long")
        else:
            place = steps.place(inside, long, divide)
        last = sf.lit(end) if isinstance(end, float) else long(end)
        code = sf.when(inside <= last, place + long(first)).otherwise(code)
    return code


def weighs_exactly(spec: HistogramSpec) -> bool:
    """Whether Spark's arithmetic gives each row its weight."""
    if spec.row_weight is None:
        return True
    dtype = spec.types[spec.row_weight.column]
    return not (isinstance(dtype, pl.Decimal) and dtype.scale > _MOST_DIGITS)


def units(row_weight: Clamping, value: Column, dtype: pl.DataType) -> Column:
    """Return the weight of a value that is there, before it is doubled: the arithmetic of `Clamping.weigh`."""
    low, high = row_weight.ends
    return clip(_nearest(row_weight, value, dtype, low, high), low, high)


def _nearest(row_weight: Clamping, value: Column, dtype: pl.DataType, low: int, high: int) -> Column:
    """Return how many whole units are nearest to a value, ties to even.

    If that is beyond the bounds, any number beyond them is returned: the caller clips it.
    """
    tick = column_types.tick(dtype)
    if tick is None:
        # `rint` breaks ties as NumPy's does. Clipped before it becomes an integer: NaN is taken for the largest.
        ratio = value.cast("double") * sf.lit(float(1 / row_weight.step))
        return sf.rint(sf.greatest(sf.lit(float(low)), sf.least(ratio, sf.lit(float(high))))).cast("long")
    per_step = row_weight.step / tick
    if per_step < 1:
        steps = row_weight.ticks(tick)
        return clip(_digits(value, dtype, low // steps, -(-high // steps)), low // steps, -(-high // steps)) * steps
    per = int(per_step)
    physical = _digits(value, dtype, low * per, high * per)
    rest = sf.pmod(physical, long(per))
    whole = divide(physical - rest, long(per))
    return whole + (long(2) * rest + sf.pmod(whole, long(2)) > long(per)).cast("long")


def _digits(value: Column, dtype: pl.DataType, low: int, high: int) -> Column:
    """Return a value in units of its last digit, clipped to bounds of at most 2**62 of them."""
    if not isinstance(dtype, pl.Decimal):
        return clip(value.cast("long"), low, high)
    most = 10**dtype.precision - 1
    ends = [sf.lit(Decimal(min(max(end, -most), most)).scaleb(-dtype.scale)) for end in (low, high)]
    kind = spark_types.DecimalType(dtype.precision, dtype.scale)
    clipped = sf.greatest(ends[0].cast(kind), sf.least(value, ends[1].cast(kind)))
    # Up to 19 + `_MOST_DIGITS` + 2 = 38 digits: Spark rounds no product of that many.
    digits = clipped.cast(spark_types.DecimalType(19, dtype.scale)) * sf.lit(Decimal(10**dtype.scale))
    return digits.cast("long")


def total(weight: Column, window: WindowSpec | None = None) -> Column:
    """Return Σ weight, clamped to ±LARGEST_VALUE: exactly, for weights of at most 2**31 of fewer than 2**45 rows.

    Null where all weights are.

    Spark's sum of that many weights may leave 64 bits: whether it raised, or wrapped around, would depend on the rows.
    The sums of their high bits and of their low bits don't. Clamping the former changes no sum that is not clamped
    anyway.
    """
    parts = [sf.sum(part) for part in (sf.shiftright(weight, _LOW_BITS), weight.bitwiseAND(long(2**_LOW_BITS - 1)))]
    high, low = parts if window is None else [part.over(window) for part in parts]
    together = clip(high, -(2 ** (63 - _LOW_BITS)), 2 ** (62 - _LOW_BITS)) * long(2**_LOW_BITS) + low
    # Null, the sum of no weights, must stay so: clipped, it would be the largest.
    return sf.when(high.isNotNull(), clip(together, -LARGEST_VALUE, LARGEST_VALUE))
