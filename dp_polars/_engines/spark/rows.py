"""Rows of Spark tables as columns of known types."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add, or_
from typing import TYPE_CHECKING, Any

import polars as pl

from dp_polars._base.column_types import PrivacyUnit
from dp_polars._base.extras import require
from dp_polars._bins.binning import OneCode
from dp_polars._engines.spark.arithmetic import (
    clip,
    code,
    divide,
    is_float,
    is_present,
    long,
    sf,
    spark_types,
    units,
)
from dp_polars._release.contract import HistogramSpec, Product, reading_values

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType


Window = require("pyspark.sql", extra="spark").Window

# Functions in other languages, rows in memory, randomness and clocks, as Spark names them in classes and messages.
_NO_TEXT = re.compile(
    r'"class": ?"[^"]*(?:UDF|UDAF|RDD|LocalRelation|Python|Pandas|MapElements|MapPartitions|TypedFilter|Aggregator'
    r'|Rand\w*|Uuid|Shuffle|Current\w+|Now|LocalTimestamp)"'
    r'|"(?:commonInlineUserDefined\w+|pythonUdf|javaUdf|\w*[lL]ocalRelation)": ?\{'
    r'|"functionName": ?"(?:rand\w*|uuid|shuffle|now|current_\w+|localtimestamp)"'
)
_NUMBER = re.compile(r'(?<=[^\\]"planId": ")\d+')


def text_of_frame(frame: DataFrame) -> str | None:
    """Return a digest of a frame's plan and of the files that it reads. None if no text describes the plan fully.

    No row is read. Spark's numbers of columns and plans are replaced by their order.
    """
    if hasattr(frame, "_jdf"):
        plan = frame._jdf.queryExecution().analyzed()
        # Neither text is complete: the short one omits columns, and the tree omits a character after LIKE.
        tree, shown = plan.toJSON(), re.sub(r"#\d+L?", "#", plan.toString())
        text = json.dumps([_renamed(json.loads(tree), {}), shown])
    else:
        from google.protobuf.json_format import MessageToJson

        numbers: dict[str, int] = {}
        tree = MessageToJson(frame._plan.to_proto(frame.sparkSession.client))
        text = _NUMBER.sub(lambda found: str(numbers.setdefault(found[0], len(numbers))), tree)
    if _NO_TEXT.search(tree):
        return None
    return hashlib.sha256(json.dumps([text, sorted(frame.inputFiles())]).encode()).hexdigest()


def binned(frame: DataFrame, ends: Mapping[str, pl.Series]) -> DataFrame:
    """Replace columns of numbers or dates by their bin numbers."""

    def bin_of(name: str, one: pl.Series) -> Column:
        column, kind = _typed(frame.schema, name), frame.schema[name].dataType
        above = (sf.when(column >= sf.lit(end).cast(kind), 1).otherwise(0) for end in one[1:-1])
        is_value = column.isNotNull() & ~sf.isnan(column) if is_float(kind) else column.isNotNull()
        return sf.when(is_value, reduce(add, above, sf.lit(0)).cast("bigint"))

    return with_columns(frame, {name: bin_of(name, one) for name, one in ends.items()})


def in_kept_parts(frame: DataFrame, keys: pl.DataFrame, most: int, unit: PrivacyUnit | None, secret: int) -> DataFrame:
    """Return rows of listed parts, and only those in `most` random parts of each person: see `Engine.keep_parts`.

    The parts themselves break ties of hashes, so a tie can't let a person keep more.
    """
    kinds, rank = frame.schema, f"part_{secret}"
    listed = key_table(frame.sparkSession, keys, [kinds[name].dataType for name in keys.columns]).drop("group")
    listed = listed.withColumnsRenamed({f"k{i}": f"{rank}_{i}" for i in range(keys.width)})
    parts, people = ([_one_zero(kinds, name) for name in names] for names in (keys.columns, unit or ()))
    is_listed = [part == sf.col(f"{rank}_{i}") for i, part in enumerate(parts)]
    rows = frame.join(sf.broadcast(listed) if keys.height <= BROADCAST else listed, is_listed, "left_semi")
    if unit is None or most >= keys.height:
        return rows
    for name in unit:
        rows = rows.filter(is_present(sf.col(quoted(name)), kinds[name].dataType))
    order = Window.partitionBy(*people).orderBy(sf.xxhash64(sf.lit(secret), *people, *parts), *parts)
    return rows.withColumn(rank, sf.dense_rank().over(order)).filter(sf.col(rank) <= most).drop(rank)


def _renamed(tree: Any, ids: dict[tuple[int, str], int]) -> Any:  # noqa: ANN401  # what JSON holds
    """Renumber a tree's columns in their order of appearance."""
    if isinstance(tree, dict):
        if {"id", "jvmId"} <= tree.keys():
            return ids.setdefault((tree["id"], tree["jvmId"]), len(ids))
        return {key: _renamed(value, ids) for key, value in tree.items()}
    return [_renamed(value, ids) for value in tree] if isinstance(tree, list) else tree


# Public tables up to this size are broadcast, so that a join need not sort the private rows.
BROADCAST = 1 << 17


def key_table(spark: SparkSession, keys: pl.DataFrame | None, kinds: Iterable[DataType]) -> DataFrame:
    """Return the public keys as `k0`, `k1`, … of these types, with each key's number as `group`."""
    numbers = pl.DataFrame({"group": pl.arange(1 if keys is None else keys.height, eager=True)})
    named = [] if keys is None else [column.alias(f"k{i}") for i, column in enumerate(keys.get_columns())]
    fields = [spark_types.StructField(f"k{i}", kind) for i, kind in enumerate(kinds)]
    schema = spark_types.StructType(fields).add("group", spark_types.LongType())
    return spark.createDataFrame(pl.DataFrame([*named, *numbers.get_columns()]).to_arrow(), schema)


def distinct(spark: SparkSession, lists: Sequence[pl.DataFrame], kinds: Sequence[Sequence[DataType]]) -> list[int]:
    """Return how many distinct rows each list of constants has in Spark's types, by one job for all lists."""
    schema, columns, parts = spark_types.StructType().add("list", spark_types.LongType()), dict[object, str](), []
    for number, (constants, types) in enumerate(zip(lists, kinds, strict=True)):
        named = [pl.Series("list", [number], pl.Int64).new_from_index(0, constants.height)]
        for place, (values, kind) in enumerate(zip(constants, types, strict=True)):
            same = kind, types[:place].count(kind)  # lists share columns of the same type
            if same not in columns:
                columns[same] = f"k{len(columns)}"
                schema = schema.add(columns[same], kind)
            named.append(values.alias(columns[same]))
        parts.append(pl.DataFrame(named))
    constants = pl.concat(parts, how="diagonal_relaxed")
    table = spark.createDataFrame(constants.to_arrow(), schema)
    if constants.height <= BROADCAST:
        table = table.coalesce(1)  # avoids a shuffle
    found = {row["list"]: row["count"] for row in table.distinct().groupBy("list").count().collect()}
    return [found.get(number, 0) for number in range(len(lists))]


@dataclass(frozen=True)
class Groups:
    """The public groups: the private key columns with their types, the numbered keys, and the number of groups.

    A `Product` has one table for each column, and the stride of its numbers.
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
        """The key columns of rows before `in_groups`."""
        return [f"k{i}" for i in range(len(self.columns))]

    def in_groups(self, rows: DataFrame) -> DataFrame:
        """Replace keys by the number of their group; drop rows with other keys."""
        if not self.columns:
            return rows.withColumn("group", long(0))
        if self.factors:
            group = long(0)
            for i, (one, stride) in enumerate(self.factors):
                rows = one.in_groups(rows.withColumnRenamed(f"k{i}", "k0")).withColumnRenamed("group", f"place{i}")
                group = group + sf.col(f"place{i}") * long(stride)
            return rows.withColumn("group", group).drop(*(f"place{i}" for i in range(len(self.factors))))
        table = sf.broadcast(self.table) if self.number <= BROADCAST else self.table
        return rows.join(table, self.names).drop(*self.names)


def with_columns(rows: DataFrame, columns: dict[str, Column]) -> DataFrame:
    """Add columns, if any: Spark Connect rejects an empty list."""
    return rows.withColumns(columns) if columns else rows


@dataclass(frozen=True)
class SpecColumns:
    """A spec and the columns that it reads. Specs share columns."""

    number: int  # the spec's position in the release
    spec: HistogramSpec
    # A column that is null if a row doesn't contribute; otherwise it has the code, unless all are 0. None: all rows
    # contribute.
    has: str | None
    # If only a list or Python can code values: the type of this column, which then has values in place of codes.
    values: DataType | None
    # The weight of a row before it is doubled. None: each row has weight 1.
    units: str | None

    @property
    def code(self) -> str | None:
        """The column of codes. None: 0 in every row."""
        return None if isinstance(self.spec.binning, OneCode) else self.has

    @property
    def contributes(self) -> Column:
        return sf.expr("true") if self.has is None else sf.col(self.has).isNotNull()

    @property
    def is_clipped(self) -> bool:
        """Whether a person's sum of weights in a group and code is clipped."""
        return self.spec.people and self.units is not None

    @property
    def of_row(self) -> Column:
        return long(1) if self.units is None else self.spec.clamping.of_units(sf.col(self.units), long, divide)

    def of_total(self, weights: Column) -> Column:
        """Clip a sum of weights in a group and code, if it is one person's sum."""
        return clip(weights, *self.spec.clamping.of_person) if self.is_clipped else weights

    @property
    def is_count(self) -> bool:
        """Whether only ones are added up."""
        return self.units is None and self.spec.weight is None


def any_of(conditions: Iterable[Column]) -> Column:
    """Combine conditions by "or", as a balanced tree: Spark Connect allows 100 levels of a plan."""
    found = [*conditions]
    while len(found) > 1:
        found = [reduce(or_, found[i : i + 2]) for i in range(0, len(found), 2)]
    return found[0]


def contributing(rows: DataFrame, specs: Sequence[SpecColumns]) -> DataFrame:
    """Drop rows that contribute to no spec, if a single column shows this.

    With a condition on many columns, Spark's optimizer tries all combinations of their old and new names.
    """
    columns = {one.has for one in specs}
    return rows.filter(specs[0].contributes) if len(columns) == 1 else rows


def rows_of(parts: Iterable[Sequence[Column]]) -> Column:
    return sf.inline(sf.array(*(sf.struct(*columns) for columns in parts)))


def protected_rows(
    rows: DataFrame, privacy_unit: PrivacyUnit | None, key_columns: Sequence[str], values: Mapping[str, Column]
) -> DataFrame:
    """Return rows with a person: the columns `person0`, …, `k0`, …, and those of `values`."""
    kinds = rows.schema
    chosen = [_typed(kinds, name).alias(f"k{i}") for i, name in enumerate(key_columns)]
    chosen += [column.alias(name) for name, column in values.items()]
    if privacy_unit is None:
        return rows.select(*chosen)
    people = dict(zip(person_of(privacy_unit), privacy_unit, strict=True))
    somebody = [is_present(sf.col(of), kinds[name].dataType) for of, name in people.items()]
    rows = rows.select(*chosen, *(_one_zero(kinds, name).alias(of) for of, name in people.items()))
    for is_somebody in somebody:
        rows = rows.filter(is_somebody)
    return rows


def person_of(privacy_unit: PrivacyUnit | None) -> list[str]:
    """Return the person columns of `protected_rows`. Spark hashes them in this order."""
    return [f"person{i}" for i, _ in enumerate(privacy_unit or ())]


def read(
    frame: DataFrame,
    privacy_unit: PrivacyUnit | None,
    groups: Groups,
    specs: Mapping[int, HistogramSpec],
) -> tuple[DataFrame, list[SpecColumns]]:
    """Return the contributing rows, and each spec's columns in them."""
    nulls: dict[str, Column] = {}
    kinds = frame.schema

    def put(new: str, old: str) -> None:
        nulls[new] = sf.when(sf.col(quoted(old)).isNull(), long(0))

    specs = dict(zip(specs, reading_values([*specs.values()], kinds.names, put), strict=True))
    names = dict.fromkeys(name for spec in specs.values() for name in spec.names)
    values = {name: f"value{i}" for i, name in enumerate(names)}
    columns = {new: nulls[name] if name in nulls else _one_zero(kinds, name) for name, new in values.items()}
    types_of = {name: spark_types.LongType() if name in nulls else kinds[name].dataType for name in names}
    rows = protected_rows(frame, privacy_unit, groups.columns, columns)
    chosen: dict[str, Column] = {}
    places: dict[object, str] = {}
    asked = []
    for number in sorted(specs, key=lambda number: specs[number].reading_order):
        spec = specs[number]
        has: str | None = None
        weight: str | None = None
        of = [values[name] for name in spec.names]
        there = [is_present(sf.col(values[name]), types_of[name]) for name in spec.names]
        if spec.row_weight is not None:
            row_weight = spec.clamping
            i = row_weight.column
            tells = isinstance(spec.binning, OneCode) and i == 0
            same_units = of[i], row_weight.lower, row_weight.upper, row_weight.step, tells
            weight = places.setdefault(same_units, f"units{number}")
            found = sf.when(there[i], units(row_weight, sf.col(of[i]), spec.types[i]))
            chosen[weight] = found if tells else found.otherwise(long(0))
            if tells:
                places.setdefault(of[0], weight)
        uncoded: DataType | None = None
        if of:
            same_codes = of[0] if isinstance(spec.binning, OneCode) else (of[0], spec.binning)
            has = places.setdefault(same_codes, f"code{number}")
            known = code(spec.binning, sf.col(of[0]))
            if known is None:
                uncoded = types_of[spec.names[0]]
            if has not in chosen:
                chosen[has] = sf.when(there[0], sf.col(of[0]) if known is None else known)
                places.setdefault(of[0], has)
        asked.append(SpecColumns(number, spec, has, uncoded, weight))
    rows = with_columns(rows, chosen)
    return rows.drop(*values.values()), sorted(asked, key=lambda one: one.number)


def _typed(kinds: StructType, name: str) -> Column:
    """Cast a column to the type that was checked: Spark Connect analyses a frame anew at each run."""
    return sf.col(quoted(name)).cast(kinds[name].dataType)


def _one_zero(kinds: StructType, name: str) -> Column:
    """Replace -0.0 by 0.0, so that their hashes are equal too."""
    column, kind = _typed(kinds, name), kinds[name].dataType
    return column + sf.lit(0.0).cast(kind) if is_float(kind) else column


def quoted(name: str) -> str:
    """Quote a column name for Spark."""
    return "`" + name.replace("`", "``") + "`"
