"""From rows to histograms on Spark, as native SQL: the duties of an engine (`_engines/contract.py`).

Which of a person's rows count is decided by hashes of that person's own rows under a fresh seed. So a task that Spark
runs again keeps the same rows. Nothing rests on the seed being secret: the bounds hold for every seed.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple
from decimal import Decimal
from typing import TYPE_CHECKING

import polars as pl

from dp_polars._base import column_types
from dp_polars._base.extras import require
from dp_polars._codes.codings import CategoryCoding, NearestCoding, OneCode, Units
from dp_polars._codes.encoding import FloatSteps
from dp_polars._mechanisms.noise import LARGEST_VALUE
from dp_polars.spark._column_types import types
from dp_polars.spark._workers import MARKER, encoding

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructField

    from dp_polars._codes.codings import Weighing
    from dp_polars._engines.bounding import Limits
    from dp_polars._engines.contract import Tally
    from dp_polars._questions.question import Columns

sf = require("pyspark.sql.functions", extra="spark")
Window = require("pyspark.sql", extra="spark").Window

# Public tables up to this size go to every executor, so that the private rows need not be sorted for the join.
_BROADCAST = 1 << 17
# The most cells of a group that its rows are taken to spread over.
_MOST_CELLS = 1000
# Digits after the point up to which Spark holds a decimal of 64 bits times the power of ten that makes it whole.
_MOST_DIGITS = 17
# Bits of a weight that are added up apart from the others.
_LOW_BITS = 16
# The physical integers of columns that are no integers.
_PHYSICAL: dict[pl.DataType, Callable[[Column], Column]] = {
    pl.Date(): sf.unix_date,
    pl.Datetime("us", "UTC"): sf.unix_micros,
}


def fresh_seed() -> int:
    """Return 64 random bits, as the integer that Spark's hashes take."""
    return secrets.randbits(64) - 2**63


def key_table(spark: SparkSession, keys: pl.DataFrame | None, fields: Iterable[StructField]) -> DataFrame:
    """Return the public keys in columns `k0`, `k1`, … of the types of `fields`, and each one's number, `group`."""
    numbers = pl.DataFrame({"group": pl.arange(1 if keys is None else keys.height, eager=True)})
    named = [] if keys is None else [column.alias(f"k{i}") for i, column in enumerate(keys.get_columns())]
    schema = types.StructType(
        [types.StructField(f"k{i}", field.dataType) for i, field in enumerate(fields)]
        + [types.StructField("group", types.LongType())]
    )
    return spark.createDataFrame(pl.DataFrame([*named, *numbers.get_columns()]).to_arrow(), schema)


def distinct(spark: SparkSession, constants: pl.DataFrame, fields: Iterable[StructField]) -> int:
    """Return how many rows of constants differ to Spark, in the types of `fields`."""
    table = key_table(spark, constants, fields).drop("group")
    if constants.height <= _BROADCAST:
        table = table.coalesce(1)  # no shuffle
    return int(table.distinct().count())


def histogram(
    rows: DataFrame,
    privacy_unit: str | None,
    key_columns: Sequence[str],
    keys: DataFrame,
    number_of_keys: int,
    tallies: Mapping[int, Tally],
    seed: int | None = None,
) -> DataFrame:
    """Return the columns `group`, `tally`, `code` and `count` (all LongType); the counts of a triple add up.

    The tallies, by their numbers, differ in their weights alone: all of them are of one choice of rows. Where a
    histogram would hardly be shorter than the rows, the rows themselves are returned, each with a count of 1: the task
    that draws adds them up, and they are shuffled once instead of twice. Sums of weights come once per pair, exact and
    then clamped to ±LARGEST_VALUE, which is what their noise is added to.
    """
    seed = fresh_seed() if seed is None else seed
    tally, *_ = tallies.values()
    coding, limits = tally.coding, tally.limits
    weighings = {
        f"weight{number}": alike_tally.weighing
        for number, alike_tally in tallies.items()
        if alike_tally.weighing is not None
    }
    rows = evidence(rows, privacy_unit, key_columns, [_name_of(column) for column in tally.columns])
    key_names = [f"k{i}" for i in range(len(key_columns))]

    def listed(rows: DataFrame) -> DataFrame:
        """Put the number of the group in the place of its key; rows of other keys are left out."""
        if not key_names:
            return rows.withColumn("group", sf.lit(0).cast("long"))
        table = sf.broadcast(keys) if number_of_keys <= _BROADCAST else keys
        return rows.join(table, key_names).drop(*key_names)

    is_uncounted = not tally.people and not weighings and _are_few(rows, number_of_keys, coding.size)

    def counted(rows: DataFrame, *by: str) -> DataFrame:
        if is_uncounted:
            return rows.select(*by, _long(1).alias("rows"))
        if tally.people and weighings:
            rows = _one_per_person(rows, weighings, *by)
        number = sf.count_distinct("person") if tally.people and not weighings else sf.count(sf.lit(1))
        return rows.groupBy(*by).agg(
            number.alias("rows"), *(_clamped_sum(sf.col(name)).alias(name) for name in weighings)
        )

    answer = "value"
    rows = rows.withColumns({name: _weight(weighing, tally.types) for name, weighing in weighings.items()})
    rows = rows.drop("weighs")
    if isinstance(coding, OneCode):
        answer = "code"
        rows = rows.withColumn(answer, sf.lit(0).cast("long")).drop("value")
    elif isinstance(coding, NearestCoding) and (code := _code_by_arithmetic(coding)) is not None:
        answer = "code"
        rows = rows.withColumn(answer, code).drop("value")
    if limits.everything:
        # The native query itself first; everything after it sees only its result.
        rows = listed(counted(rows, *key_names, answer))
        if isinstance(coding, CategoryCoding):
            rows = _coded(rows, coding)
    else:
        rows = listed(rows)
        if isinstance(coding, CategoryCoding):
            answer, rows = "code", _coded(rows, coding)
        rows = rows.repartition("person")
        bound_groups_only = (limits.rows, limits.rows_per_group) == (None, None)
        rows = _few_groups(rows, limits, seed) if bound_groups_only else _few_rows(rows, tally, weighings, seed)
        rows = counted(rows, "group", answer)
    answer = "code" if "code" in rows.columns else "value"
    counts = [
        (number, "rows" if alike_tally.weighing is None else f"weight{number}")
        for number, alike_tally in tallies.items()
    ]
    counts_by_tally = [sf.struct(_long(number).alias("tally"), sf.col(name).alias("count")) for number, name in counts]
    rows = rows.select("group", answer, sf.inline(sf.array(*counts_by_tally))).select("group", "tally", answer, "count")
    if answer == "code":
        return rows
    return rows.mapInArrow(encoding(coding, tally.types), "group long, tally long, code long, count long")


def column_of(tally: Tally) -> str | None:
    """Return the name of the column that a tally codes; None: it counts rows."""
    return _name_of(tally.columns[0]) if tally.columns else None


def _name_of(column: pl.Expr) -> str:
    return column.meta.root_names()[0]


def weighs_exactly(tally: Tally) -> bool:
    """Whether Spark's arithmetic gives each row its weight."""
    if tally.weighing is None:
        return True
    if not isinstance(tally.weighing, Units):
        return False
    dtype = tally.types[tally.weighing.column]
    return not (isinstance(dtype, pl.Decimal) and dtype.scale > _MOST_DIGITS)


def _weight(weighing: Weighing, dtypes: Columns) -> Column:
    """Return the weight of a row, of types that `weighs_exactly`: the arithmetic of `Units.weigher`, in Spark's."""
    if not isinstance(weighing, Units):
        msg = "unreachable: such weights are refused"
        raise AssertionError(msg)
    low, high = int(weighing.lower / weighing.step), int(weighing.upper / weighing.step)
    value, dtype = sf.col("weighs" if weighing.column else "value"), dtypes[weighing.column]
    units = _clip(_units(weighing, value, dtype, low, high), low, high)
    if weighing.column:  # of values themselves, missing ones are left out
        missing = value.isNull() | sf.isnan(value) if dtype.is_float() else value.isNull()
        units = sf.when(missing, _long(0)).otherwise(units)
    return sf.lit(2).cast("long") * units - _long(low + high) if weighing.doubled else units


def _one_per_person(rows: DataFrame, weighings: Mapping[str, Weighing], *by: str) -> DataFrame:
    """Add up a person's weights, clipped to what they may weigh together."""
    together = [
        _clip(_clamped_sum(sf.col(name)), *weighing.of_person).alias(name) for name, weighing in weighings.items()
    ]
    return rows.groupBy("person", *by).agg(*together)


def _units(weighing: Units, value: Column, dtype: pl.DataType, low: int, high: int) -> Column:
    """Return how many whole units are nearest to a value, ties to even.

    If that is beyond the bounds, any number beyond them is returned: the caller clips it.
    """
    tick = column_types.tick(dtype)
    if tick is None:
        # `rint` breaks ties as NumPy's does. Clipped before it becomes an integer: NaN is taken for the largest.
        ratio = value.cast("double") * sf.lit(float(1 / weighing.step))
        return sf.rint(sf.greatest(sf.lit(float(low)), sf.least(ratio, sf.lit(float(high))))).cast("long")
    per_step = weighing.step / tick
    if per_step < 1:
        steps = weighing.ticks(tick)
        return _clip(_physical(value, dtype, low // steps, -(-high // steps)), low // steps, -(-high // steps)) * steps
    per = int(per_step)
    physical = _physical(value, dtype, low * per, high * per)
    rest = sf.pmod(physical, _long(per))
    whole = sf.call_function("div", physical - rest, _long(per))
    return whole + (sf.lit(2).cast("long") * rest + sf.pmod(whole, _long(2)) > _long(per)).cast("long")


def _physical(value: Column, dtype: pl.DataType, low: int, high: int) -> Column:
    """Return a value in units of its last digit, clipped to bounds of at most 2**62 of them."""
    if not isinstance(dtype, pl.Decimal):
        return _clip(value.cast("long"), low, high)
    most = 10**dtype.precision - 1
    ends = [sf.lit(Decimal(min(max(end, -most), most)).scaleb(-dtype.scale)) for end in (low, high)]
    kind = types.DecimalType(dtype.precision, dtype.scale)
    clipped = sf.greatest(ends[0].cast(kind), sf.least(value, ends[1].cast(kind)))
    # Up to 19 + `_MOST_DIGITS` + 2 = 38 digits: Spark rounds no product of that many.
    digits = clipped.cast(types.DecimalType(19, dtype.scale)) * sf.lit(Decimal(10**dtype.scale))
    return digits.cast("long")


def _clip(number: Column, low: int, high: int) -> Column:
    return sf.greatest(_long(low), sf.least(number, _long(high)))


def _long(number: int) -> Column:
    return sf.lit(number).cast("long")


def _clamped_sum(weight: Column) -> Column:
    """Return Σ weight, clamped to ±LARGEST_VALUE: exactly, for weights of at most 2**31 of fewer than 2**45 rows.

    Spark's sum of that many weights may leave 64 bits: whether it raised, or wrapped around, would depend on the rows.
    The sums of their high bits and of their low bits don't. Clamping the former changes no sum that is not clamped
    anyway.
    """
    high = sf.sum(sf.shiftright(weight, _LOW_BITS))
    low = sf.sum(weight.bitwiseAND(_long(2**_LOW_BITS - 1)))
    together = _clip(high, -(2 ** (63 - _LOW_BITS)), 2 ** (62 - _LOW_BITS)) * _long(2**_LOW_BITS) + low
    return _clip(together, -LARGEST_VALUE, LARGEST_VALUE)


def _coded(rows: DataFrame, coding: CategoryCoding) -> DataFrame:
    """Put the candidate's code in the place of a value; other values are left out."""
    values = coding.values
    table = pl.DataFrame({"value": values, "code": pl.arange(len(values), eager=True)}).to_arrow()
    schema = types.StructType([rows.schema["value"], types.StructField("code", types.LongType())])
    codes = rows.sparkSession.createDataFrame(table, schema)
    return rows.join(sf.broadcast(codes) if len(values) <= _BROADCAST else codes, "value").drop("value")


def _are_few(rows: DataFrame, groups: int, candidates: int) -> bool:
    """Whether counting would hardly make the rows fewer, by Spark's estimate of their number.

    This affects speed only, never the answer. The estimate comes from the sizes of files, which are compressed: it is
    too low by a factor of 4 or so. So rows are few up to some 2 per cell; with 2, two fifths of them are the first of
    their cell. Values are taken to be at no more than `_MOST_CELLS` of a grid's many points.
    """
    try:
        # Not of the optimized plan: the optimizer runs expressions on rows that it has at hand, and nothing is charged
        # yet.
        plan = rows._jdf.queryExecution().analyzed()
        columns = plan.output()
        width: int = 8 + sum(columns.apply(i).dataType().defaultSize() for i in range(columns.size()))
        size = int(str(plan.stats().sizeInBytes()))
    except Exception:  # a plan that has no statistics before it is optimized
        return False
    return 2 * size <= groups * min(candidates, _MOST_CELLS) * width


def _code_by_arithmetic(coding: NearestCoding) -> Column | None:
    """Return the code of `value` as Spark's own arithmetic; None where only Python has it."""
    steps, dtype, value = coding.steps, coding.column, sf.col("value")
    last = coding.size - 1
    if isinstance(steps, FloatSteps):
        place = (value.cast("double") - sf.lit(steps.start)) * sf.lit(steps.per_step) - sf.lit(0.5)
        # Clipped before it becomes an integer: beyond 64 bits Spark would raise.
        return sf.ceil(sf.greatest(sf.lit(0.0), sf.least(place, sf.lit(float(last))))).cast("long")
    if steps is None or dtype is None or not (dtype in _PHYSICAL or dtype.is_integer()):
        return None
    low, high, whole, shift, stride = (sf.lit(number).cast("long") for number in astuple(steps)[:5])
    physical = _PHYSICAL[dtype](value) if dtype in _PHYSICAL else value
    place = (sf.greatest(low, sf.least(physical.cast("long"), high)) - low) * whole + shift
    # `div` rounds towards 0, not down: below 0, that is clipped anyway.
    return sf.greatest(sf.lit(0), sf.least(sf.call_function("div", place, stride), sf.lit(last))).cast("long")


def union(keys: DataFrame, histograms: Sequence[DataFrame]) -> DataFrame:
    """Return all histograms and the markers of all groups, each group in one partition, sorted there."""
    zero = sf.lit(0).cast("long")
    key_names = [name for name in keys.columns if name != "group"]
    table = keys.select(
        "group", sf.lit(MARKER).cast("long").alias("tally"), zero.alias("code"), zero.alias("count"), *key_names
    )
    nothing = [sf.lit(None).cast(keys.schema[name].dataType).alias(name) for name in key_names]
    for counted in histograms:
        table = table.unionAll(counted.select("group", "tally", "code", "count", *nothing))
    return table.repartition("group").sortWithinPartitions("group")


def evidence(
    rows: DataFrame, privacy_unit: str | None, key_columns: Sequence[str], columns: Sequence[str]
) -> DataFrame:
    """Return the rows that have a value (if one is read) and a person.

    Their columns are `person`, `k0`, `k1`, …, `value`, and `weighs` where another column holds the weights.
    """
    chosen = [rows[quoted(name)].alias(f"k{i}") for i, name in enumerate(key_columns)]
    chosen += [rows[quoted(column)].alias(name) for name, column in zip(("value", "weighs"), columns, strict=False)]
    if privacy_unit is not None:
        person = rows[quoted(privacy_unit)]
        if _is_float(rows, privacy_unit):
            person = person + sf.lit(0.0).cast(rows.schema[privacy_unit].dataType)  # -0.0 is 0.0, in hashes too
        chosen.append(person.alias("person"))
    rows = rows.select(*chosen)
    for name in {"value", "person"}.intersection(rows.columns):
        rows = rows.filter(sf.col(name).isNotNull())
        if _is_float(rows, name):
            rows = rows.filter(~sf.isnan(name))
    return rows


def _few_groups(rows: DataFrame, limits: Limits, seed: int) -> DataFrame:
    """Keep the rows of random groups of each person."""
    if limits.groups is None:
        return rows
    # The group itself breaks ties of the hash: a tie can't let a person keep more.
    order = Window.partitionBy("person").orderBy("place of group", "group")
    rows = rows.withColumn("place of group", _place_of_group(seed))
    rows = rows.withColumn("rank", sf.dense_rank().over(order)).filter(sf.col("rank") <= limits.groups)
    return rows.drop("rank", "place of group")


def _few_rows(rows: DataFrame, tally: Tally, weighings: Mapping[str, Weighing], seed: int) -> DataFrame:
    """Keep random rows of each person, within all bounds; where people count, equal rows of a person are one."""
    limits, evidence = tally.limits, [name for name in ("value", "code") if name in rows.columns]
    evidence += [] if tally.people else weighings
    same = ["person", "group", *evidence]
    if tally.people:
        rows = _one_per_person(rows, weighings, *same[1:]) if weighings else rows.select(same).distinct()
    else:
        # Equal rows of a person are told apart by a number, so that the choice does not hang on the order of rows.
        # With the order of the groups in it, one sort serves this window and the next.
        groups = ["group"] if limits.groups is None else [_place_of_group(seed), "group"]
        equal_rows = Window.partitionBy("person", *groups, *evidence)
        rows = rows.withColumn("copy", sf.row_number().over(equal_rows.orderBy(evidence[0])))
        same.append("copy")
    rows = _few_groups(rows, limits, seed)
    for most, owner, salt in [(limits.rows_per_group, ["person", "group"], 1), (limits.rows, ["person"], 2)]:
        if most is not None:
            order = Window.partitionBy(*owner).orderBy(sf.xxhash64(sf.lit(seed), sf.lit(salt), *same))
            rows = rows.withColumn("rank", sf.row_number().over(order)).filter(sf.col("rank") <= most).drop("rank")
    return rows


def _place_of_group(seed: int) -> Column:
    """Return what puts the groups of a person in a random order."""
    return sf.xxhash64(sf.lit(seed), "person", "group")


def _is_float(rows: DataFrame, name: str) -> bool:
    return isinstance(rows.schema[name].dataType, (types.FloatType, types.DoubleType))


def quoted(name: str) -> str:
    """Return a name of a column as Spark reads it, whatever it holds."""
    return "`" + name.replace("`", "``") + "`"
