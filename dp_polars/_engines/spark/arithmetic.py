"""Spark types, and Spark's own arithmetic for codes, weights and sums, equal to the encoders on every row."""

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
# A wider type for answers of a type that Spark lacks.
_WIDER: dict[type[pl.DataType], pl.DataType] = {
    pl.UInt8: pl.Int16(),
    pl.UInt16: pl.Int32(),
    pl.UInt32: pl.Int64(),
    pl.UInt64: pl.Decimal(20, 0),
}


def polars_type(dtype: DataType) -> pl.DataType | None:
    """Return the Polars type with the same values and the same equality. None: there is none."""
    if isinstance(dtype, spark_types.DecimalType):
        return pl.Decimal(dtype.precision, dtype.scale)
    if isinstance(dtype, spark_types.StringType) and dtype != spark_types.StringType():
        return None  # its collation treats different texts as equal
    return _POLARS.get(type(dtype))


def made(dtype: PolarsDataType) -> pl.DataType:
    """Return a type as an instance, also if its class is given."""
    return dtype() if isinstance(dtype, type) else dtype


def answer_type(dtype: pl.DataType) -> pl.DataType | None:
    """Return the narrowest Spark type, as a Polars type, that fits the answers. None: there is none."""
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

    `column`: the Polars and Spark types of a column with the answer's values. Spark's type is narrower.
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


# With up to this many digits, Spark can multiply a 64-bit decimal by a power of ten to make it whole.
_MOST_DIGITS = 17
# The low bits of a weight, which are added up separately.
_LOW_BITS = 16
# Physical integers of columns that aren't integers.
_PHYSICAL: dict[pl.DataType, Callable[[Column], Column]] = {
    pl.Date(): sf.unix_date,
    pl.Datetime("us", "UTC"): sf.unix_micros,
}


def long(number: int) -> Column:
    return sf.lit(number).cast("long")


def clip(number: Column, low: int, high: int) -> Column:
    """Clip a number to the bounds; null becomes the upper one."""
    return sf.greatest(long(low), sf.least(number, long(high)))


def divide(number: Column, by: Column) -> Column:
    """Divide two integers, rounding towards 0."""
    return sf.call_function("div", number, by)


def is_present(value: Column, kind: DataType) -> Column:
    return value.isNotNull() & ~sf.isnan(value) if is_float(kind) else value.isNotNull()


def is_float(kind: DataType) -> bool:
    """Return whether a column may contain NaN and -0.0."""
    return isinstance(kind, (spark_types.FloatType, spark_types.DoubleType))


def code(binning: Binning, value: Column) -> Column | None:
    """Return the code of a value that is not null. None: only a list or Python can code it."""
    if isinstance(binning, OneCode):
        return long(0)
    if isinstance(binning, Beyond):
        return _code_by_comparing(binning, value)
    return _code_by_steps(binning, value) if isinstance(binning, NearestBinning) else None


def _code_by_comparing(binning: Beyond, value: Column) -> Column:
    """Count the ends that a number is above."""
    above, dtype = long(binning.thresholds.below), binning.column
    value = _PHYSICAL[dtype](value) if dtype in _PHYSICAL else value
    for end in binning.thresholds.values.tolist():
        above = above + (value > _constant(end, dtype)).cast("long")
    return above


def _constant(end: Any, dtype: pl.DataType | None) -> Column:  # noqa: ANN401
    """Return a physical integer or a float as a constant of the column's type, if `_PHYSICAL` lacks that type."""
    if isinstance(dtype, pl.Decimal):
        return sf.lit(Decimal(end).scaleb(-dtype.scale))
    if isinstance(dtype, pl.Duration):
        return sf.lit(timedelta(microseconds=end))
    if dtype == pl.Datetime("us"):
        return sf.lit(str(datetime(1970, 1, 1) + timedelta(microseconds=end))).cast("timestamp_ntz")
    return sf.lit(end)


def _code_by_steps(binning: NearestBinning, value: Column) -> Column | None:
    """Return a value's code in Spark's own arithmetic. None: only Python can code it."""
    steps, dtype = binning.steps, binning.column
    last = binning.size - 1
    if isinstance(steps, FloatSteps):
        place = (value.cast("double") - sf.lit(steps.start)) * sf.lit(steps.per_step) - sf.lit(0.5)
        # Clip before the cast: Spark raises for values beyond 64 bits.
        return sf.ceil(sf.greatest(sf.lit(0.0), sf.least(place, sf.lit(float(last))))).cast("long")
    if isinstance(steps, Pieces):
        return _code_by_pieces(steps, value, dtype)
    if steps is None or dtype is None or not (dtype in _PHYSICAL or dtype.is_integer()):
        return None
    physical = _PHYSICAL[dtype](value) if dtype in _PHYSICAL else value
    return clip(steps.place(clip(physical.cast("long"), steps.low, steps.high), long, divide), 0, last)


def _code_by_pieces(pieces: Pieces, value: Column, dtype: pl.DataType | None) -> Column | None:
    """Return a value's code by the steps of its piece. None: only Python can code it."""
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
    """Whether Spark's arithmetic computes each row's weight."""
    if spec.row_weight is None:
        return True
    dtype = spec.types[spec.row_weight.column]
    return not (isinstance(dtype, pl.Decimal) and dtype.scale > _MOST_DIGITS)


def units(row_weight: Clamping, value: Column, dtype: pl.DataType) -> Column:
    """Return the weight of a value that is not null, before it is doubled: the arithmetic of `Clamping.weigh`."""
    low, high = row_weight.ends
    return clip(_nearest(row_weight, value, dtype, low, high), low, high)


def _nearest(row_weight: Clamping, value: Column, dtype: pl.DataType, low: int, high: int) -> Column:
    """Round a value to the nearest whole unit, ties to even.

    A result beyond the bounds may be any number beyond them: the caller clips it.
    """
    tick = column_types.tick(dtype)
    if tick is None:
        # `rint` breaks ties as NumPy does. Clip before the cast to an integer: NaN counts as the largest value.
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
    """Return a value in units of its last digit, clipped to bounds of at most 2**62 units."""
    if not isinstance(dtype, pl.Decimal):
        return clip(value.cast("long"), low, high)
    most = 10**dtype.precision - 1
    ends = [sf.lit(Decimal(min(max(end, -most), most)).scaleb(-dtype.scale)) for end in (low, high)]
    kind = spark_types.DecimalType(dtype.precision, dtype.scale)
    clipped = sf.greatest(ends[0].cast(kind), sf.least(value, ends[1].cast(kind)))
    # At most 19 + `_MOST_DIGITS` + 2 = 38 digits: Spark does not round such a product.
    digits = clipped.cast(spark_types.DecimalType(19, dtype.scale)) * sf.lit(Decimal(10**dtype.scale))
    return digits.cast("long")


def total(weight: Column, window: WindowSpec | None = None) -> Column:
    """Return Σ weight, clamped to ±LARGEST_VALUE: exact for fewer than 2**45 rows with weights of at most 2**31.

    Null if all weights are null.

    Spark's own sum may leave 64 bits, and the rows would decide whether it raises or wraps around.
    The sums of high bits and of low bits stay within 64 bits.
    Clamping the high sum changes only totals that are clamped anyway.
    """
    parts = [sf.sum(part) for part in (sf.shiftright(weight, _LOW_BITS), weight.bitwiseAND(long(2**_LOW_BITS - 1)))]
    high, low = parts if window is None else [part.over(window) for part in parts]
    together = clip(high, -(2 ** (63 - _LOW_BITS)), 2 ** (62 - _LOW_BITS)) * long(2**_LOW_BITS) + low
    # The sum of no weights is null and must stay null: clipping would make it the largest value.
    return sf.when(high.isNotNull(), clip(together, -LARGEST_VALUE, LARGEST_VALUE))
