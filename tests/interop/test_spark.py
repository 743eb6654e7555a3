"""Releases on a real Spark cluster: two executor processes of their own on this machine."""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import signal
import sys
import threading
import time
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import dp_polars as dpp
from dp_polars import _counting
from dp_polars._bounding import Kept
from dp_polars._random import system_words
from dp_polars.queries import Mode, Quantile
from tests import reference
from tests.statistical.goodness import check_sampler, fits

# Set where nothing may be skipped.
REQUIRED = bool(os.environ.get("REQUIRE_SPARK"))
if not REQUIRED:
    pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'dp-polars[spark]'")

from pyspark import cloudpickle  # noqa: E402
from pyspark.sql import SparkSession  # noqa: E402
from pyspark.sql import functions as sf  # noqa: E402

import dp_polars.spark  # noqa: E402
from dp_polars import _spark_counting, _spark_workers  # noqa: E402

pytestmark = [
    # One worker of pytest-xdist runs all of this, so that Spark starts once.
    pytest.mark.xdist_group("spark"),
    pytest.mark.filterwarnings("ignore:.*pandas:FutureWarning"),
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]

PARTITIONS = 6


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        message = "Java 17 or newer is missing: neither java nor JAVA_HOME was found"
        pytest.fail(message) if REQUIRED else pytest.skip(message)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    folder = tmp_path_factory.mktemp("spark")
    session = (
        SparkSession.builder.master("local-cluster[2,1,1024]")
        .config("spark.driver.memory", "1g")
        .config("spark.executor.memory", "1g")
        .config("spark.local.dir", str(folder / "local"))
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "OFF")
        .config("spark.sql.session.timeZone", "America/New_York")
        # Adaptive execution would put frames as small as these into one task.
        .config("spark.sql.shuffle.partitions", PARTITIONS)
        .config("spark.sql.adaptive.coalescePartitions.enabled", "false")
        .getOrCreate()
    )
    # The classes of this file are not importable on the executors.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    session.sparkContext.setCheckpointDir(str(folder / "checkpoints"))
    yield session
    session.stop()


def to_spark(spark, frame, schema=None):
    return spark.createDataFrame(frame.to_arrow(), schema)


def to_polars(frame):
    return pl.DataFrame(pl.from_arrow(frame.toArrow()))


# --- Counting -------------------------------------------------------------------------------------------------------

DDL = {
    "flag": "boolean",
    "tiny": "tinyint",
    "small": "smallint",
    "int": "int",
    "long": "bigint",
    "float": "float",
    "double": "double",
    "text": "string",
    "date": "date",
    "moment": "timestamp",
    "local": "timestamp_ntz",
    "length": "interval day to second",
    "money": "decimal(10,2)",
    "wide": "decimal(38,6)",
}


def every_type(rows=800):
    rng = np.random.default_rng(6)
    small = rng.integers(-3, 4, rows)
    # Around the hours that a change to summer time repeats or leaves out in New York, and before 1970.
    at = pl.Series(np.array([-86_400 * 366, 0, 1_583_650_800, 1_583_654_400, 1_604_206_800, 1_604_210_400] * rows)[:rows])
    at = at.gather(rng.permutation(rows)) * 1_000_000 + pl.Series(small)
    floats = pl.Series(np.where(rng.random(rows) < 0.1, np.nan, small / 2)) * pl.Series(rng.choice([1.0, -1.0], rows))
    frame = pl.DataFrame(
        {
            "flag": small > 0,
            "tiny": pl.Series(small * 42, dtype=pl.Int8),
            "small": pl.Series(small * 10_000, dtype=pl.Int16),
            "int": pl.Series(small * 700_000_000, dtype=pl.Int32),
            "long": small * (2**61),
            "float": floats.cast(pl.Float32),
            "double": floats,
            "text": pl.Series(["a", "A", "a ", "é", "e\u0301", "", "日本"]).gather(small + 3),
            "date": pl.Series(small * 5_000).cast(pl.Int32).cast(pl.Date),
            "moment": at.cast(pl.Datetime("us", "UTC")),
            "local": at.cast(pl.Datetime("us")),
            "length": pl.Series(small * 1_000_001).cast(pl.Duration("us")),
            "money": pl.Series([Decimal(int(i)) / 100 for i in small], dtype=pl.Decimal(10, 2)),
            "wide": pl.Series([Decimal(int(i)) * 10**29 for i in small], dtype=pl.Decimal(38, 6)),
        }
    )
    holes = [pl.when(pl.Series(rng.random(rows) > 0.1)).then(pl.col(name)).alias(name) for name in frame.columns]
    person = pl.Series("person", rng.integers(0, 60, rows))
    return frame.with_columns(holes).with_columns(person=pl.when(person > 0).then(person))


def asks_of_every_type(frame):
    """Modes and medians of all columns, of some of their values."""
    for name, dtype in frame.schema.items():
        values = frame[name].drop_nulls()
        if dtype.is_float():
            values = values.drop_nans()
        values = values.unique().sort()
        if name != "wide":  # beyond 64 bits
            if not dtype.is_float():
                yield name, dpp.mode(name, values.shuffle(3).head(max(2, len(values) - 1)), epsilon=1).query
            if name not in ("flag", "text"):
                yield name, dpp.median(name, values[1:], epsilon=1).query
    yield "wide", dpp.median("wide", [Decimal(-1), Decimal(5) / 10, Decimal(10**6)], epsilon=1).query
    yield "long", dpp.quantile("long", 0.3, range(-100, 101), epsilon=1).query
    yield "double", dpp.median("double", dpp.grid(-1, 1, step=0.01), epsilon=1).query
    yield "money", dpp.median("money", dpp.grid(Decimal(-1), Decimal(1), step=Decimal("0.001")), epsilon=1).query
    yield "money", dpp.mode("money", [0], epsilon=1).query
    yield "tiny", dpp.mode("tiny", range(-128, 128), epsilon=1).query
    yield "date", dpp.median("date", dpp.grid(dt.date(1950, 1, 1), dt.date(2000, 1, 1), step="1d"), epsilon=1).query


def both_histograms(spark, frame, ddl, unit, keys, outputs):
    """The histograms of all outputs, by Polars and by Spark."""
    schema = ", ".join(f"`{name}` {ddl[name]}" for name in frame.columns)
    rows = to_spark(spark, frame, schema)
    table = _spark_counting.key_table(spark, keys, [rows.schema[name] for name in keys.columns])
    parts = []
    for position, (column, query, kept, people) in enumerate(outputs):
        output = _spark_counting.Output(column, frame.schema[column], query, kept, people)
        counted = _spark_counting.histogram(rows, unit, keys.columns, table, keys.height, output)
        parts.append(counted.withColumn("output", sf.lit(position)))
    united = parts[0]
    for part in parts[1:]:
        united = united.unionByName(part)
    on_spark = to_polars(united)
    by_polars = _counting.count(
        frame.lazy(), unit, keys, [_counting.Output(str(i), pl.col(c), *rest) for i, (c, *rest) in enumerate(outputs)]
    )
    types = {"group": pl.Int64, "code": pl.Int64, "count": pl.Int64}
    for position, expected in enumerate(by_polars):
        got = on_spark.filter(pl.col("output") == position).drop("output").sort("group", "code")
        yield outputs[position], expected.cast(types), got.cast(types)


@pytest.mark.parametrize(
    ("unit", "key_columns"), [(None, ["text", "flag"]), ("person", ["moment"]), ("double", ["money", "date"])]
)
def test_spark_counts_what_polars_counts(spark, unit, key_columns):
    frame = every_type()
    keys = frame.select(key_columns).drop_nulls().unique(maintain_order=True)
    keys = keys.head(keys.height // 2 + 1)
    protection = dpp.protect(unit, max_groups=None if unit is None else 100, max_rows_per_group=unit and 1000).protection
    outputs = [
        (column, query, protection.kept(query, keys.height), protection.counts_people(query))
        for column, query in asks_of_every_type(frame.drop("person"))
    ]
    total = 0
    for output, expected, got in both_histograms(spark, frame, {**DDL, "person": "bigint"}, unit, keys, outputs):
        assert_frame_equal(got, expected, obj=str(output))
        total += expected.height
    assert total > 500
