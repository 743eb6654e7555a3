"""From rows to histograms on Spark, as native SQL: the duties of an engine (`_engines/contract.py`).

Which of a person's rows count is decided by hashes of that person's own rows under a fresh seed. So a task that Spark
runs again keeps the same rows. Nothing rests on the seed being secret: the bounds hold for every seed.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from decimal import Decimal
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

import polars as pl

from dp_polars._base import column_types
from dp_polars._base.extras import require
from dp_polars._codes.codings import CategoryCoding, NearestCoding, OneCode, Units
from dp_polars._codes.encoding import FloatSteps
from dp_polars._engines.bounding import Limits
from dp_polars._engines.contract import alike
from dp_polars._mechanisms.noise import LARGEST_VALUE
from dp_polars.spark._column_types import types
from dp_polars.spark._workers import MARKER, encoding

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession, WindowSpec
    from pyspark.sql.types import StructField

    from dp_polars._base.privacy_units import PrivacyUnit
    from dp_polars._codes.codings import Coding, Weighing
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
# In which order a person's groups come.
_GROUP = ["number of group", "group"]
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


@dataclass(frozen=True)
class Groups:
    """The public groups: the private columns that hold their keys, the keys with their numbers, how many there are."""

    columns: Sequence[str]
    table: DataFrame
    number: int

    @classmethod
    def of(cls, frame: DataFrame, keys: pl.DataFrame | None) -> Groups:
        """Return the groups with these keys. None: one group."""
        columns = [] if keys is None else keys.columns
        table = key_table(frame.sparkSession, keys, [frame.schema[name] for name in columns])
        return cls(columns, table, 1 if keys is None else keys.height)

    @property
    def names(self) -> list[str]:
        """The columns of keys in rows that are not `listed` yet."""
        return [f"k{i}" for i in range(len(self.columns))]

    def listed(self, rows: DataFrame) -> DataFrame:
        """Put the number of the group in the place of its key; rows of other keys are left out."""
        if not self.columns:
            return rows.withColumn("group", _long(0))
        table = sf.broadcast(self.table) if self.number <= _BROADCAST else self.table
        return rows.join(table, self.names).drop(*self.names)


@dataclass(frozen=True)
class Counted:
    """A tally, its number, and columns: of its codes, and of whether a row stays. Tallies that are alike share them."""

    number: int
    tally: Tally
    code: str
    stays: str

    @property
    def weight(self) -> str | None:
        """The column of weights. None: one each."""
        return None if self.tally.weighing is None else f"weight{self.number}"

    @property
    def weight_of_person(self) -> Column:
        """What a person weighs in a group and code, of the sum of the weights there."""
        if self.weight is None or self.tally.weighing is None:
            return _long(1)
        return _clip(sf.col(self.weight), *self.tally.weighing.of_person)

    @property
    def is_native(self) -> bool:
        """Whether Spark finds the codes. If not, values stand in their place, and are coded when they are counted."""
        coding = self.tally.coding
        return not isinstance(coding, NearestCoding) or _code_by_arithmetic(coding, sf.lit(0)) is not None


def counted(tallies: Sequence[Tally]) -> list[Counted]:
    """Return the tallies with their columns."""
    codes, stays = (
        {number: f"{word}{together[0]}" for together in found for number in together}
        for word, found in [
            ("code", alike([replace(tally, limits=Limits(), people=False) for tally in tallies])),
            ("stays", alike(tallies)),
        ]
    )
    return [Counted(number, tally, codes[number], stays[number]) for number, tally in enumerate(tallies)]


def histograms(
    frame: DataFrame,
    privacy_unit: PrivacyUnit | None,
    groups: Groups,
    tallies: Sequence[Tally],
    seed: int | None = None,
) -> list[DataFrame]:
    """Return the columns `group`, `tally`, `code` and `count` (all LongType); the counts of a triple add up.

    One pass over the rows serves all tallies for which it matters whose a row is, another one all others. Sums of
    weights come once per triple, exact and then clamped to ±LARGEST_VALUE, which is what their noise is added to.
    """
    by_person: list[Counted] = []
    others: list[Counted] = []
    for one in counted(tallies):
        (by_person if privacy_unit is not None and one.tally.by_person else others).append(one)
    found = []
    if others:
        rows = read(frame, privacy_unit, groups, others)
        rows = rows.withColumns({one.stays: sf.col(one.code).isNotNull() for one in others})
        # The native query itself first; the keys see only its result.
        found.append(_histogram(rows, groups, others, is_uncounted=_is_uncounted(frame, groups, others)))
    if by_person:
        rows = groups.listed(read(frame, privacy_unit, groups, by_person))
        rows = _bounded(rows, by_person, fresh_seed() if seed is None else seed)
        found.append(_histogram(rows, groups, by_person, is_uncounted=_is_uncounted(frame, groups, by_person)))
    return found


def _histogram(rows: DataFrame, groups: Groups, tallies: Sequence[Counted], *, is_uncounted: bool) -> DataFrame:
    """Count the rows that stay, for all tallies at once; uncounted rows are returned themselves, with a count of 1."""
    by = ["group"] if "group" in rows.columns else groups.names
    # All tallies of one code share their cells.
    sharing: dict[str | None, list[int]] = {}
    for one in tallies:
        sharing.setdefault(None if isinstance(one.tally.coding, OneCode) else one.code, []).append(one.number)
    values = {one.code: rows.schema[one.code].dataType for one in tallies if not one.is_native}
    counts = {one.number: f"count{one.number}" for one in tallies}
    never = sf.expr("false")

    def cells(place: int, code: str | None, numbers: Sequence[int]) -> list[Column]:
        known = _long(0) if code is None else sf.col(code)
        found = {"answer": sf.lit(place), "code": sf.lit(None).cast("long") if code in values else known}
        found |= {name: known if name == code else sf.lit(None).cast(kind) for name, kind in values.items()}
        for one in tallies:
            weight = _long(1) if one.weight is None else sf.col(one.weight)
            found[counts[one.number]] = sf.when(sf.col(one.stays) if one.number in numbers else never, weight)
        return [column.alias(name) for name, column in found.items()]

    parts = [cells(place, code, numbers) for place, (code, numbers) in enumerate(sharing.items())]
    rows = rows.select(*by, *parts[0]) if len(parts) == 1 else rows.select(*by, _rows_of(parts))
    rows = rows.filter(sf.coalesce(*counts.values()).isNotNull())
    if not is_uncounted:
        sums = {one.number: sf.sum if one.weight is None else _clamped_sum for one in tallies}
        rows = rows.groupBy(*by, "answer", "code", *values).agg(
            *(sums[number](sf.col(name)).alias(name) for number, name in counts.items())
        )
    if by != ["group"]:
        rows = groups.listed(rows)
    by_tally = [[_long(number).alias("tally"), sf.col(name).alias("count")] for number, name in counts.items()]
    rows = rows.select("group", "code", *values, _rows_of(by_tally)).filter(sf.col("count").isNotNull())
    if values:
        codings = {one.number: (one.code, one.tally.coding, one.tally.types[0]) for one in tallies if not one.is_native}
        rows = rows.mapInArrow(encoding(codings), "group long, tally long, code long, count long")
    return rows.select("group", "tally", "code", "count")


def _rows_of(parts: Iterable[Sequence[Column]]) -> Column:
    """Return what makes several rows of one."""
    return sf.inline(sf.array(*(sf.struct(*columns) for columns in parts)))


def _bounded(rows: DataFrame, tallies: Sequence[Counted], seed: int) -> DataFrame:
    """Say in `stays…` which of a person's rows stay for which tally: the first ones, in one order for all tallies.

    The numbers of groups and of rows are hashes. That of a row is made of all that any tally sees in it, and of the
    number of the copy among a person's equal rows: so the choice does not depend on the order of rows. Ties of a hash
    are broken by what it is made of, and what counts are running numbers: a tie can't let a person keep more.
    """
    person = person_in(rows)
    pair = [*person, *_GROUP]  # rows that are bounded together: a person's in a group
    rows = rows.filter(_any(sf.col(one.code).isNotNull() for one in tallies)).repartition(*person)
    rows = rows.withColumn("number of group", sf.xxhash64(sf.lit(seed), sf.lit(0), *person, "group"))
    order = ["group"]
    if any((one.tally.limits.rows, one.tally.limits.rows_per_group) != (None, None) for one in tallies):
        seen = sorted({name for one in tallies for name in (one.code, one.weight) if name is not None})
        rows, order = _numbered(rows, seen, seed), ["number", "copy", *seen]
    rows = one_of_each(rows, tallies, pair, order).withColumns(
        {one.weight: one.weight_of_person for one in tallies if one.tally.people and one.weight is not None}
    )
    limits = {one.stays: one.tally.limits for one in tallies}
    in_group, in_groups = _along(pair, order), _along(person, [*_GROUP, *order])
    # The number of a row in its group, and that of the group: of those that have evidence for the tally.
    rows = rows.withColumns(
        {
            f"{name} row": _number(sf.col(name), in_group)
            for name, most in limits.items()
            if most.groups or most.rows_per_group
        }
    )
    rows = rows.withColumns(
        {
            f"{name} group": _number(sf.col(name) & (sf.col(f"{name} row") == 1), in_groups)
            for name, most in limits.items()
            if most.groups
        }
    )
    rows = _within(rows, "row", {name: most.rows_per_group for name, most in limits.items()})
    rows = _within(rows, "group", {name: most.groups for name, most in limits.items()})
    in_all = _along(person, [order[0], "group", *order[1:]])
    rows = rows.withColumns(
        {f"{name} of all": _number(sf.col(name), in_all) for name, most in limits.items() if most.rows}
    )
    return _within(rows, "of all", {name: most.rows for name, most in limits.items()})


def _numbered(rows: DataFrame, seen: Sequence[str], seed: int) -> DataFrame:
    """Give each row a random `number`; of a person's rows that agree in all that is seen, each has one of `copy`."""
    # Null changes no hash: without the flags, nulls in different columns would be one.
    same = [column for name in seen for column in (sf.col(name).isNull(), sf.col(name))]
    person = person_in(rows)

    def number(copy: Column) -> Column:
        return sf.xxhash64(sf.lit(seed), sf.lit(1), *person, "group", *same, copy)

    # With the hash of first copies in it, this sort leaves little to do for the next one: most rows have no copy.
    rows = rows.withColumn("number", number(sf.lit(1)))
    rows = rows.withColumn("copy", sf.row_number().over(_along([*person, *_GROUP, "number", *seen], ["number"])))
    return rows.withColumn("number", number(sf.col("copy")))


def one_of_each(rows: DataFrame, tallies: Sequence[Counted], pair: Sequence[str], order: Sequence[str]) -> DataFrame:
    """Say in `stays…` which rows are evidence; where people count, the first of each code, which weighs as all do.

    `pair` are the columns of a person and a group.
    """
    found = {}
    for one in tallies:
        code, tally = sf.col(one.code), one.tally
        found[one.stays] = code.isNotNull()
        if tally.people:
            same = pair if isinstance(tally.coding, OneCode) else [*pair, one.code]
            found[one.stays] &= sf.count(code).over(_along(same, order)) == 1
            if one.weight is not None:
                weight = sf.when(code.isNotNull(), sf.col(one.weight))
                found[one.weight] = _clamped_sum(weight, Window.partitionBy(*same))
    return rows.withColumns(found)


def _along(owner: Sequence[str], order: Sequence[str]) -> WindowSpec:
    """Return the window of an owner's rows up to this one."""
    return Window.partitionBy(*owner).orderBy(*order).rowsBetween(Window.unboundedPreceding, Window.currentRow)


def _number(is_one: Column, window: WindowSpec) -> Column:
    """Return how many are ones so far."""
    return sf.count(sf.when(is_one, 1)).over(window)


def _within(rows: DataFrame, word: str, bounds: Mapping[str, int | None]) -> DataFrame:
    """Let only rows stay whose numbers are within the bounds."""
    return rows.withColumns(
        {name: sf.col(name) & (sf.col(f"{name} {word}") <= most) for name, most in bounds.items() if most is not None}
    )


def _any(conditions: Iterable[Column]) -> Column:
    return reduce(or_, conditions)


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


def _weight(weighing: Weighing, values: Sequence[Column], dtypes: Columns) -> Column:
    """Return the weight of a row, of types that `weighs_exactly`: the arithmetic of `Units.weigher`, in Spark's."""
    if not isinstance(weighing, Units):
        msg = "unreachable: such weights are refused"
        raise AssertionError(msg)
    low, high = int(weighing.lower / weighing.step), int(weighing.upper / weighing.step)
    value, dtype = values[weighing.column], dtypes[weighing.column]
    units = _clip(_units(weighing, value, dtype, low, high), low, high)
    if weighing.column:  # of values themselves, missing ones are no evidence
        units = sf.when(_is_missing(value, is_float=dtype.is_float()), _long(0)).otherwise(units)
    return sf.lit(2).cast("long") * units - _long(low + high) if weighing.doubled else units


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


def _clamped_sum(weight: Column, window: WindowSpec | None = None) -> Column:
    """Return Σ weight, clamped to ±LARGEST_VALUE: exactly, for weights of at most 2**31 of fewer than 2**45 rows.

    Null where all weights are.

    Spark's sum of that many weights may leave 64 bits: whether it raised, or wrapped around, would depend on the rows.
    The sums of their high bits and of their low bits don't. Clamping the former changes no sum that is not clamped
    anyway.
    """
    parts = [sf.sum(part) for part in (sf.shiftright(weight, _LOW_BITS), weight.bitwiseAND(_long(2**_LOW_BITS - 1)))]
    high, low = parts if window is None else [part.over(window) for part in parts]
    together = _clip(high, -(2 ** (63 - _LOW_BITS)), 2 ** (62 - _LOW_BITS)) * _long(2**_LOW_BITS) + low
    # Null, the sum of no weights, must stay so: clipped, it would be the largest.
    return sf.when(high.isNotNull(), _clip(together, -LARGEST_VALUE, LARGEST_VALUE))


def _is_uncounted(rows: DataFrame, groups: Groups, tallies: Sequence[Counted]) -> bool:
    """Whether rows are sent to where they are drawn, shuffled once instead of twice. Sums must be counted first."""
    candidates = min(one.tally.coding.size for one in tallies)
    return all(one.weight is None for one in tallies) and _are_few(rows, groups.number, candidates)


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


def _code_by_arithmetic(coding: NearestCoding, value: Column) -> Column | None:
    """Return the code of a value as Spark's own arithmetic; None where only Python has it."""
    steps, dtype = coding.steps, coding.column
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
    rows: DataFrame, privacy_unit: PrivacyUnit | None, key_columns: Sequence[str], values: Mapping[str, str]
) -> DataFrame:
    """Return the rows of somebody: the columns `person0`, …, `k0`, …, and those of `values` by their new names."""
    chosen = [rows[quoted(name)].alias(f"k{i}") for i, name in enumerate(key_columns)]
    chosen += [_one_zero(rows, name).alias(alias) for name, alias in values.items()]
    if privacy_unit is None:
        return rows.select(*chosen)
    people = {f"person{i}": name for i, name in enumerate(privacy_unit)}
    is_nobody = _any(_is_missing(sf.col(of), is_float=_is_float(rows, name)) for of, name in people.items())
    person = [_one_zero(rows, name).alias(of) for of, name in people.items()]
    return rows.select(*chosen, *person).filter(~is_nobody)


def person_in(rows: DataFrame) -> list[str]:
    """Return which columns of rows say whose they are. They are hashed one after the other, as Spark does."""
    return [name for name in rows.columns if name.startswith("person")]


def read(frame: DataFrame, privacy_unit: PrivacyUnit | None, groups: Groups, tallies: Sequence[Counted]) -> DataFrame:
    """Return the evidence with each tally's codes, null where a row is none, and its weights."""
    names = dict.fromkeys(_name_of(column) for one in tallies for column in one.tally.columns)
    values = {name: f"value{i}" for i, name in enumerate(names)}
    rows = evidence(frame, privacy_unit, groups.columns, values)
    kinds, weights = rows.schema, {}
    codes = set()
    for one in tallies:
        tally, columns = one.tally, [values[_name_of(column)] for column in one.tally.columns]
        if one.weight is not None and tally.weighing is not None:
            weights[one.weight] = _weight(tally.weighing, [sf.col(name) for name in columns], tally.types)
        if one.code in codes:
            continue
        codes.add(one.code)
        if isinstance(tally.coding, CategoryCoding):
            rows = _with_categories(rows, one.code, tally.coding.values.alias(columns[0]), kinds[columns[0]])
        elif columns:
            is_missing = _is_missing(sf.col(columns[0]), is_float=_is_float(rows, columns[0]))
            rows = rows.withColumn(one.code, sf.when(~is_missing, _code(tally.coding, sf.col(columns[0]))))
        else:
            rows = rows.withColumn(one.code, _long(0))
    return rows.withColumns(weights).drop(*values.values())


def _code(coding: Coding, value: Column) -> Column:
    """Return the code of a value that is there; the value itself where only Python has it."""
    if isinstance(coding, OneCode):
        return _long(0)
    code = _code_by_arithmetic(coding, value) if isinstance(coding, NearestCoding) else None
    return value if code is None else code


def _with_categories(rows: DataFrame, code: str, categories: pl.Series, field: StructField) -> DataFrame:
    """Add the codes of values that are among the categories."""
    table = pl.DataFrame({categories.name: categories, code: pl.arange(len(categories), eager=True)}).to_arrow()
    schema = types.StructType([field, types.StructField(code, types.LongType())])
    codes = rows.sparkSession.createDataFrame(table, schema)
    return rows.join(sf.broadcast(codes) if len(categories) <= _BROADCAST else codes, categories.name, "left")


def _one_zero(rows: DataFrame, name: str) -> Column:
    """Return a column in which -0.0 is 0.0, in hashes too."""
    column = rows[quoted(name)]
    return column + sf.lit(0.0).cast(rows.schema[name].dataType) if _is_float(rows, name) else column


def _is_missing(value: Column, *, is_float: bool) -> Column:
    return value.isNull() | sf.isnan(value) if is_float else value.isNull()


def _is_float(rows: DataFrame, name: str) -> bool:
    return isinstance(rows.schema[name].dataType, (types.FloatType, types.DoubleType))


def quoted(name: str) -> str:
    """Return a name of a column as Spark reads it, whatever it holds."""
    return "`" + name.replace("`", "``") + "`"
