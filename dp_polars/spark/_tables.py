"""Public tables on Spark: keys and candidates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from dp_polars._engines.contract import Product
from dp_polars.spark._arithmetic import long, sf
from dp_polars.spark._column_types import types

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

# Public tables up to this size go to every executor, so that the private rows need not be sorted for the join.
_BROADCAST = 1 << 17


def key_table(spark: SparkSession, keys: pl.DataFrame | None, kinds: Iterable[DataType]) -> DataFrame:
    """Return the public keys in columns `k0`, `k1`, … of these types, and each one's number, `group`."""
    numbers = pl.DataFrame({"group": pl.arange(1 if keys is None else keys.height, eager=True)})
    named = [] if keys is None else [column.alias(f"k{i}") for i, column in enumerate(keys.get_columns())]
    schema = types.StructType(
        [types.StructField(f"k{i}", kind) for i, kind in enumerate(kinds)]
        + [types.StructField("group", types.LongType())]
    )
    return spark.createDataFrame(pl.DataFrame([*named, *numbers.get_columns()]).to_arrow(), schema)


def distinct(spark: SparkSession, constants: pl.DataFrame, kinds: Iterable[DataType]) -> int:
    """Return how many rows of constants differ to Spark, in these types."""
    table = key_table(spark, constants, kinds).drop("group")
    if constants.height <= _BROADCAST:
        table = table.coalesce(1)  # no shuffle
    return int(table.distinct().count())


@dataclass(frozen=True)
class Groups:
    """The public groups: the private columns of their keys, and their types; the keys with their numbers; how many.

    A `Product` has several tables, one for each column, and how far apart in them the numbers are.
    """

    columns: Sequence[str]
    types: Sequence[DataType]
    table: DataFrame
    number: int
    factors: Sequence[tuple[Groups, int]] = ()

    @classmethod
    def of(cls, frame: DataFrame, keys: pl.DataFrame | Product | None) -> Groups:
        """Return the groups with these keys. None: one group."""
        if isinstance(keys, Product):
            factors = [cls.of(frame, values.to_frame()) for values in keys.values]
            kinds = [kind for one in factors for kind in one.types]
            strided = list(zip(factors, keys.strides, strict=True))
            return cls(keys.columns, kinds, factors[0].table, keys.height, strided)
        columns = [] if keys is None else keys.columns
        kinds = [frame.schema[name].dataType for name in columns]
        return cls(columns, kinds, key_table(frame.sparkSession, keys, kinds), 1 if keys is None else keys.height)

    @property
    def names(self) -> list[str]:
        """The columns of keys in rows that are not yet `in_groups`."""
        return [f"k{i}" for i in range(len(self.columns))]

    def in_groups(self, rows: DataFrame) -> DataFrame:
        """Put the number of the group in the place of its key; rows of other keys are left out."""
        if not self.columns:
            return rows.withColumn("group", long(0))
        if self.factors:
            group = long(0)
            for i, (one, stride) in enumerate(self.factors):
                rows = one.in_groups(rows.withColumnRenamed(f"k{i}", "k0")).withColumnRenamed("group", f"place{i}")
                group = group + sf.col(f"place{i}") * long(stride)
            return rows.withColumn("group", group).drop(*(f"place{i}" for i in range(len(self.factors))))
        table = sf.broadcast(self.table) if self.number <= _BROADCAST else self.table
        return rows.join(table, self.names).drop(*self.names)


def with_columns(rows: DataFrame, columns: dict[str, Column]) -> DataFrame:
    """Add columns, if any: Spark Connect takes no empty list of them."""
    return rows.withColumns(columns) if columns else rows


def with_codes(rows: DataFrame, values: str, code: str, categories: pl.Series, kind: DataType) -> DataFrame:
    """Add the codes of values, of this type, that are among the categories; null for others."""
    table = pl.DataFrame({values: categories, code: pl.arange(len(categories), eager=True)}).to_arrow()
    schema = types.StructType([types.StructField(values, kind), types.StructField(code, types.LongType())])
    codes = rows.sparkSession.createDataFrame(table, schema)
    return rows.join(sf.broadcast(codes) if len(categories) <= _BROADCAST else codes, values, "left")
