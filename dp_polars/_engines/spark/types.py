"""Which Polars type a Spark column has, and which Spark type an answer gets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from dp_polars._base.process import require

if TYPE_CHECKING:
    from polars._typing import PolarsDataType
    from pyspark.sql.types import DataType


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
