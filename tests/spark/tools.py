"""What the tests with Spark share."""

from __future__ import annotations

import os
import socket
import warnings
from dataclasses import replace

import polars as pl
import pytest

import dp_polars as dpp
from tests.helpers.needs import need
from tests.registry import COLUMNS

PARTITIONS = 6
# Whether Spark's sessions speak gRPC to a server of Spark Connect, or Py4J.
CONNECT = os.environ.get("SPARK_API_MODE") == "connect"
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
on_classic = pytest.mark.skipif(CONNECT, reason="asks the JVM of a classic session")
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


def with_class(query, kind):
    """The same query, asked by objects of another class."""
    asks = tuple(
        replace(ask, query=kind(**{name: getattr(ask.query, name) for name in ("alpha", "candidates", "claim")}))
        for ask in query.asks
    )
    return dpp.PrivateQuery(replace(query.request, asks=asks), (), query.budget)


def session_of(builder):
    """A session, classic or of Spark Connect: its server then has a port of its own."""
    if CONNECT:
        from pyspark.sql.connect.client import DefaultChannelBuilder

        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        DefaultChannelBuilder.default_port = staticmethod(lambda: port)
        builder = builder.config("spark.connect.grpc.binding.port", port)
    with warnings.catch_warnings():  # of what the server has as it starts, and no session of Spark Connect may set
        warnings.simplefilter("ignore")
        return builder.getOrCreate()


def need_spark():
    """Skip the module where there is no Spark, unless it is required."""
    need("pyspark")


def to_spark(spark, frame, schema=None):
    """A Spark DataFrame of the same rows."""
    return spark.createDataFrame(frame.to_arrow(), schema)


def partitions_of(frame):
    """In how many partitions rows of a frame lie."""
    from pyspark.sql import functions as sf

    return frame.select(sf.spark_partition_id()).distinct().count()


def to_polars(frame):
    """A Polars frame of the same rows."""
    return pl.DataFrame(pl.from_arrow(frame.toArrow()))
