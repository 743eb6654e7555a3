"""From rows to histograms on Spark, as native SQL: the semantics of `_counting`.

Which of a person's rows count is decided by hashes of that person's own rows under a fresh seed. So a task that Spark
runs again keeps the same rows. Nothing rests on the seed being secret: the bounds hold for every seed.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from dp_polars._extras import require
from dp_polars._spark_workers import MARKER, encoding
from dp_polars.queries import Mode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from dp_polars._bounding import Kept
    from dp_polars.queries import Counted

sf = require("pyspark.sql.functions", extra="spark")
types = require("pyspark.sql.types", extra="spark")
Window = require("pyspark.sql", extra="spark").Window

# Public tables up to this size go to every executor, so that the private rows need not be sorted for the join.
_BROADCAST = 1 << 17


@dataclass(frozen=True)
class Output:
    """What is counted for one output.

    Parameters
    ----------
    column
        The name of the column that is asked about, and its Polars type.
    query
        What is asked.
    kept
        The most that is kept of one person's rows.
    people
        Whether distinct people are counted per candidate, rather than rows.
    """

    column: str
    dtype: pl.DataType
    query: Counted
    kept: Kept
    people: bool


def key_table(spark: SparkSession, keys: pl.DataFrame | None, fields: StructType) -> DataFrame:
    """Return the public keys in columns `k0`, `k1`, … of the types of `fields`, and each one's number, `group`."""
    numbers = pl.DataFrame({"group": pl.arange(1 if keys is None else keys.height, eager=True)})
    named = [] if keys is None else [column.alias(f"k{i}") for i, column in enumerate(keys.get_columns())]
    schema = types.StructType(
        [types.StructField(f"k{i}", field.dataType) for i, field in enumerate(fields)]
        + [types.StructField("group", types.LongType())]
    )
    return spark.createDataFrame(pl.DataFrame([*named, *numbers.get_columns()]).to_arrow(), schema)


def histogram(
    rows: DataFrame,
    privacy_unit: str | None,
    key_columns: Sequence[str],
    keys: DataFrame,
    number_of_keys: int,
    output: Output,
    seed: int | None = None,
) -> DataFrame:
    """Return the columns `group`, `code` and `count` (all LongType) of one output; each pair once, if it has rows."""
    seed = int.from_bytes(os.urandom(8), signed=True) if seed is None else seed
    query, kept = output.query, output.kept
    rows = _evidence(rows, privacy_unit, key_columns, output.column)
    key_names = [f"k{i}" for i in range(len(key_columns))]

    def listed(rows: DataFrame) -> DataFrame:
        """Put the number of the group in the place of its key; rows of other keys are left out."""
        if not key_names:
            return rows.withColumn("group", sf.lit(0).cast("long"))
        table = sf.broadcast(keys) if number_of_keys <= _BROADCAST else keys
        return rows.join(table, key_names).drop(*key_names)

    def coded(rows: DataFrame, query: Mode) -> DataFrame:
        """Put the candidate's code in the place of a mode's value; other values are left out."""
        values = query.candidates.for_column(output.dtype)
        table = pl.DataFrame({"value": values, "code": pl.arange(len(values), eager=True)}).to_arrow()
        schema = types.StructType([rows.schema["value"], types.StructField("code", types.LongType())])
        codes = rows.sparkSession.createDataFrame(table, schema)
        return rows.join(sf.broadcast(codes) if len(values) <= _BROADCAST else codes, "value").drop("value")

    count = (sf.count_distinct("person") if output.people else sf.count(sf.lit(1))).alias("count")
    if kept.everything:
        # The native query itself; everything after it sees only its result.
        rows = listed(rows.groupBy(*key_names, "value").agg(count))
        if isinstance(query, Mode):
            return coded(rows, query).select("group", "code", "count")
    elif isinstance(query, Mode):
        rows = _few_groups(coded(listed(rows), query).repartition("person"), kept, seed)
        return rows.groupBy("group", "code").agg(count)
    else:
        rows = _few_rows(listed(rows).repartition("person"), kept, seed)
        rows = rows.groupBy("group", "value").agg(count)
    encode = encoding(query, output.dtype)
    encoded = rows.select("group", "value", "count").mapInArrow(encode, "group long, code long, count long")
    return encoded.groupBy("group", "code").agg(sf.sum("count").alias("count"))


def union(keys: DataFrame, histograms: Sequence[DataFrame]) -> DataFrame:
    """Return all histograms and the markers of all groups, each group in one partition, sorted there."""
    zero = sf.lit(0).cast("long")
    key_names = [name for name in keys.columns if name != "group"]
    table = keys.select(
        "group", sf.lit(MARKER).cast("long").alias("output"), zero.alias("code"), zero.alias("count"), *key_names
    )
    nothing = [sf.lit(None).cast(keys.schema[name].dataType).alias(name) for name in key_names]
    for position, counted in enumerate(histograms):
        output = sf.lit(position).cast("long").alias("output")
        table = table.unionAll(counted.select("group", output, "code", "count", *nothing))
    return table.repartition("group").sortWithinPartitions("group", "output", "code")


def _evidence(rows: DataFrame, privacy_unit: str | None, key_columns: Sequence[str], column: str) -> DataFrame:
    """Return the rows that have a value and a person, as the columns `person`, `k0`, `k1`, … and `value`."""
    chosen = [rows[_quoted(name)].alias(f"k{i}") for i, name in enumerate(key_columns)]
    chosen.append(rows[_quoted(column)].alias("value"))
    if privacy_unit is not None:
        person = rows[_quoted(privacy_unit)]
        if _is_float(rows, privacy_unit):
            person = person + sf.lit(0.0).cast(rows.schema[privacy_unit].dataType)  # -0.0 is 0.0, in hashes too
        chosen.append(person.alias("person"))
    rows = rows.select(*chosen)
    for name in {"value", "person"}.intersection(rows.columns):
        rows = rows.filter(sf.col(name).isNotNull())
        if _is_float(rows, name):
            rows = rows.filter(~sf.isnan(name))
    return rows


def _few_groups(rows: DataFrame, kept: Kept, seed: int) -> DataFrame:
    """Keep the rows of random groups of each person."""
    if kept.groups is None:
        return rows
    # The group itself breaks ties of the hash: a tie can't let a person keep more.
    order = Window.partitionBy("person").orderBy("hash", "group")
    rows = rows.withColumn("hash", sf.xxhash64(sf.lit(seed), "person", "group"))
    return (
        rows.withColumn("rank", sf.dense_rank().over(order)).filter(sf.col("rank") <= kept.groups).drop("rank", "hash")
    )


def _few_rows(rows: DataFrame, kept: Kept, seed: int) -> DataFrame:
    """Keep random rows of each person, within all bounds."""
    rows = _few_groups(rows, kept, seed)
    # Equal rows of a person are told apart by a number, so that the choice does not hang on the order of Spark's rows.
    same = ["person", "group", "value"]
    rows = rows.withColumn("copy", sf.row_number().over(Window.partitionBy(*same).orderBy("value")))
    for most, owner, salt in [(kept.rows_per_group, ["person", "group"], 1), (kept.rows, ["person"], 2)]:
        if most is not None:
            order = Window.partitionBy(*owner).orderBy(sf.xxhash64(sf.lit(seed), sf.lit(salt), *same, "copy"))
            rows = rows.withColumn("rank", sf.row_number().over(order)).filter(sf.col("rank") <= most).drop("rank")
    return rows


def _is_float(rows: DataFrame, name: str) -> bool:
    return isinstance(rows.schema[name].dataType, (types.FloatType, types.DoubleType))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
