"""What the tests with Spark share."""

from __future__ import annotations

import polars as pl
import pytest

from tests.helpers.needs import need
from tests.registry import COLUMNS

PARTITIONS = 6
# Types of the registry that Spark has, and what it calls them.
DDL = {
    "Boolean": "boolean",
    "Int8": "tinyint",
    "Int16": "smallint",
    "Int32": "int",
    "Int64": "bigint",
    "Float32": "float",
    "Float64": "double",
    "String": "string",
    "Date": "date",
    "Datetime in UTC": "timestamp",
    "Datetime": "timestamp_ntz",
    "Duration": "interval day to second",
    "Decimal": "decimal(10,2)",
    "wide Decimal": "decimal(38,6)",
}
MARKS = [
    pytest.mark.slow,
    # One worker of pytest-xdist runs all of this, so that Spark starts once.
    pytest.mark.xdist_group("spark"),
    pytest.mark.filterwarnings("ignore:.*pandas:FutureWarning"),
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]


def ddl(dtype):
    """What Spark calls a type of the registry."""
    if isinstance(dtype, pl.Decimal):
        return f"decimal({dtype.precision},{dtype.scale})"
    named = {kind.dtype: name for name, kind in COLUMNS.items()}
    return DDL[named[dtype]]


def need_spark():
    """Skip the module where there is no Spark, unless it is required."""
    need("pyspark")


def to_spark(spark, frame, schema=None):
    """A Spark DataFrame of the same rows."""
    return spark.createDataFrame(frame.to_arrow(), schema)


def to_polars(frame):
    """A Polars frame of the same rows."""
    return pl.DataFrame(pl.from_arrow(frame.toArrow()))
