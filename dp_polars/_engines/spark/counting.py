"""From rows to histograms and keys on Spark, as native SQL: the duties of an engine (`_release/contract.py`).

Which rows of a person count follows from one order of that person's groups and rows, for all specs. The numbers of both
are hashes of that person's own rows under a fresh seed. So a task that Spark runs again keeps the same rows. Nothing
rests on the seed being secret: the bounds hold for every seed.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dp_polars._base.extras import require
from dp_polars._bins.binning import CategoryBinning
from dp_polars._engines.spark.arithmetic import divide, long, sf, spark_types, total
from dp_polars._engines.spark.rows import (
    Groups,
    any_of,
    coded_later,
    person_of,
    protected_rows,
    quoted,
    read,
    rows_of,
    spread,
    with_codes,
    with_columns,
)
from dp_polars._engines.spark.weighing import draws_nothing, parts_of_people, with_weights
from dp_polars._engines.spark.workers import MARKER, encoding, mapped, selecting
from dp_polars._mechanisms.person_weights import UNIT
from dp_polars._release.contract import MOST_IN_ALL, MOST_IN_GROUP, ROWS_CUT, PersonNumber
from dp_polars._statistics.statistic import COUNT

if TYPE_CHECKING:
    import polars as pl
    from pyspark.sql import Column, DataFrame, WindowSpec

    from dp_polars._base.column_types import PrivacyUnit
    from dp_polars._engines.spark.rows import SpecColumns
    from dp_polars._release.contract import HistogramSpec, KeyWork, PerPerson, PersonNumber
    from dp_polars._release.protection import Limits


Window = require("pyspark.sql", extra="spark").Window


def fresh_seed() -> int:
    """Return 64 random bits, as the integer that Spark's hashes take."""
    return secrets.randbits(64) - 2**63


def bounded(rows: DataFrame, person: Sequence[str], specs: Sequence[SpecColumns], seed: int) -> DataFrame:
    """Say in `keeps…` which rows of a person and `group` stay for which spec: the first ones, in one order for all.

    Ties of a hash are broken by what it is made of, and what counts are running numbers: a tie can't let a person keep
    more. Windows come in an order in which few of them need a sort of their own.
    """
    rows, pair, order = rows.repartition(*person), [*person, "group"], list[str]()
    limits = {one.keeps: one.spec.limits for one in specs}
    if any(most.groups is not None for most in limits.values()):
        rows = rows.withColumn("place of group", sf.xxhash64(sf.lit(seed), sf.lit(0), *person, "group"))
        pair.insert(-1, "place of group")
    ranked = [one for one in specs if (one.spec.limits.rows, one.spec.limits.rows_per_group) != (None, None)]
    # Where rows are not bounded, any row of a code stands for all of them.
    unordered = [one for one in specs if one not in ranked and one.spec.people and one.code is not None]
    rows = one_each(rows, unordered, pair, order)
    if ranked:
        says = sorted({name for one in ranked for name in (one.has, one.units) if name is not None})
        rows, order = _placed(rows, person, pair, says, seed), ["place", "copy", *says]
    rows = one_each(rows, [one for one in specs if one not in unordered], pair, order)
    in_group = _along(pair, order)
    # A group's rows are peers in this window, whatever their order: all of them have the number of their group.
    in_groups = Window.partitionBy(*person).orderBy(*pair[len(person) :])
    in_groups = in_groups.rangeBetween(Window.unboundedPreceding, Window.currentRow)
    # The number of a row in its group, and that of the group: of those that contribute to the spec.
    bounded_in_group = [name for name, most in limits.items() if (most.groups, most.rows_per_group) != (None, None)]
    bounded_groups = [name for name, most in limits.items() if most.groups is not None]
    rows = with_columns(rows, {f"{name} row": _number(sf.col(name), in_group) for name in bounded_in_group})
    firsts = {name: sf.col(name) & (sf.col(f"{name} row") == 1) for name in bounded_groups}
    rows = with_columns(rows, {f"{name} group": _number(first, in_groups) for name, first in firsts.items()})
    rows = _within(rows, "row", {name: most.rows_per_group for name, most in limits.items()})
    rows = _within(rows, "group", {name: most.groups for name, most in limits.items()})
    in_all = _along(person, [*order[:1], "group", *order[1:]])
    rows = with_columns(
        rows,
        {f"{name} of all": _number(sf.col(name), in_all) for name, most in limits.items() if most.rows is not None},
    )
    return _within(rows, "of all", {name: most.rows for name, most in limits.items()})


def _placed(rows: DataFrame, person: Sequence[str], pair: Sequence[str], says: Sequence[str], seed: int) -> DataFrame:
    """Give each row a random number, `place`, and one among a person's rows that say the same, `copy`.

    The values that a row `says` are all that any spec with bounds of rows reads of it. So the choice does not depend
    on the order of rows, since rows with the same number say the same.
    """
    # Null changes no hash: without the flags, nulls in different columns would be one.
    same = [column for name in says for column in (sf.col(name).isNull(), sf.col(name))]

    def place(copy: Column) -> Column:
        return sf.xxhash64(sf.lit(seed), sf.lit(1), *person, "group", *same, copy)

    # With the place of first copies in it, this sort leaves little to do for the next one: most rows have no copy.
    rows = rows.withColumn("place", place(sf.lit(1)))
    rows = rows.withColumn("copy", sf.row_number().over(_along([*pair, "place", *says], ["place"])))
    return rows.withColumn("place", place(sf.col("copy")))


def one_each(rows: DataFrame, specs: Sequence[SpecColumns], pair: Sequence[str], order: Sequence[str]) -> DataFrame:
    """Say in `keeps…` which rows contribute; where people count, the first of each code.

    `pair` are the columns of a person and a group. The weight of a person's rows of a code together is found, too.
    """
    found = {}
    for one in specs:
        found[one.keeps] = one.contributes
        if one.spec.people:
            same = pair if one.code is None else [*pair, one.code]
            found[one.keeps] &= _number(one.contributes, _along(same, order)) == 1
            if one.together is not None:
                found[one.together] = total(sf.when(one.contributes, one.of_row), Window.partitionBy(*same))
    return with_columns(rows, found)


def _along(owner: Sequence[str], order: Sequence[str]) -> WindowSpec:
    window = Window.partitionBy(*owner)
    window = window.orderBy(*order) if order else window
    return window.rowsBetween(Window.unboundedPreceding, Window.currentRow)


def _number(is_one: Column, window: WindowSpec) -> Column:
    """Return of how many rows of the window a condition is true."""
    return sf.count(sf.when(is_one, long(1))).over(window)


def _within(rows: DataFrame, word: str, bounds: Mapping[str, int | None]) -> DataFrame:
    return with_columns(
        rows,
        {name: sf.col(name) & (sf.col(f"{name} {word}") <= most) for name, most in bounds.items() if most is not None},
    )


def shown_keys(frame: DataFrame, work: KeyWork) -> DataFrame:
    """Return the plan of the keys that are shown, sorted in one partition: to be run once.

    The executors draw. Where a draw stood among others would tell of keys that are not shown, and so would how many
    partitions there are: so all that is shown goes to one, and is sorted there. No range of keys is sampled for that:
    it would be one more draw.
    """
    names = list(work.types)
    fields = [spark_types.StructField(name, frame.schema[name].dataType) for name in names]
    if work.statistic.counts:
        fields.append(spark_types.StructField(COUNT, spark_types.LongType()))
    stage = selecting(work.statistic, work.types)
    drawn = mapped(_people_by_key(frame, work), stage, spark_types.StructType(fields))
    return drawn.repartition(1).sortWithinPartitions(*(sf.col(quoted(name)) for name in names))


def _people_by_key(frame: DataFrame, work: KeyWork) -> DataFrame:
    """Return every key that somebody has in `k0`, `k1`, …, and in `people` the number of people who have it."""
    rows, names = _with_keys(frame, work.privacy_unit, work.types)
    if work.privacy_unit is not None:
        seed = fresh_seed()
        # The key itself breaks ties of the hash: a tie can't let a person keep more.
        person = person_of(work.privacy_unit)
        order = Window.partitionBy(*person).orderBy(sf.xxhash64(sf.lit(seed), *person, *names), *names)
        rows = rows.select(*person, *names).distinct()
        rows = rows.withColumn("rank", sf.row_number().over(order)).filter(sf.col("rank") <= work.most)
    return rows.groupBy(*names).agg(sf.count(sf.lit(1)).alias("people"))


def _with_keys(frame: DataFrame, unit: PrivacyUnit | None, types: pl.Schema) -> tuple[DataFrame, list[str]]:
    """Return the rows of somebody with a key, and the columns of that."""
    names = [f"k{i}" for i in range(len(types))]
    rows = protected_rows(frame, unit, list(types), {})
    for name in names:
        rows = rows.filter(sf.col(name).isNotNull())
    return rows, names


def one_row_per_person(frame: DataFrame, per_person: PerPerson) -> DataFrame:
    """Return one row for each person, or for each who is cut: see `Engine`, duty 9."""
    if per_person.by is not None:
        rows, names = _with_keys(frame, per_person.privacy_unit, per_person.by)
        person = person_of(per_person.privacy_unit)
        number = sf.count(sf.lit(1)).alias(PersonNumber.name(0))
        return rows.select(*person, *names).distinct().groupBy(*person).agg(number).drop(*person)
    groups = Groups.of(frame, per_person.keys)
    rows, specs = read(frame, per_person.privacy_unit, groups, dict(enumerate(per_person.specs)))
    rows, person = groups.in_groups(rows), person_of(per_person.privacy_unit)
    pair = [*person, "group"]
    if per_person.numbers:
        found = [(one.number, per_person.numbers[one.number], one) for one in specs]
        rows = rows.groupBy(*pair).agg(*(_of_group(*one) for one in found))
        return rows.groupBy(*person).agg(*(_of_person(*one[:2]) for one in found)).drop(*person)
    rows = one_each(rows.repartition(*person), specs, pair, [])  # one shuffle for all windows
    limits = {one.keeps: one.spec.limits for one in specs}
    weights = {one.keeps: one.spec.weight for one in specs if one.spec.weight is not None}
    clipped = {name: one.of_total(sf.col(name)) for one in specs if (name := one.together) is not None}
    by_group = rows.groupBy(*pair).agg(
        *(sf.count_if(name).alias(name) for name in limits),
        *(sf.bool_or(sf.col(name) != inside).alias(name) for name, inside in clipped.items()),
    )
    by_group = with_weights(by_group, person, weights)
    cut = [sf.bool_or(name) for name in clipped]
    cut += [sf.bool_or((sf.col(name) > 0) & (sf.col(f"weight of {name}") < UNIT)) for name in weights]
    for name, bounds in limits.items():
        for bound, number in [
            (bounds.rows, sf.sum(name)),
            (bounds.groups, sf.count_if(sf.col(name) > 0)),
            (bounds.rows_per_group, sf.max(name)),
        ]:
            cut += [] if bound is None else [number > bound]
    dropped = [_dropped(name, bounds, is_weighed=name in weights) for name, bounds in limits.items()]
    people = by_group.groupBy(*person).agg(
        sf.greatest(*dropped, dropped[0]).alias(ROWS_CUT), any_of(cut).alias("is cut")
    )
    return people.filter(sf.col("is cut")).select(ROWS_CUT)


def _of_group(place: int, number: PersonNumber, of: SpecColumns) -> Column:
    """Return what a group of a person has: how many rows or codes contribute, or the end of their codes."""
    match number.what:
        case "largest code":
            found = sf.max(str(of.code))
        case "smallest code":
            found = sf.min(str(of.code))
        case _ if number.spec.people and of.code is not None:
            found = sf.count_distinct(sf.when(of.contributes, sf.col(of.code)))
        case _:
            found = sf.count_if(of.contributes)
            found = sf.least(found, long(1)) if number.spec.people else found
    return found.cast("long").alias(f"n{place}")


def _of_person(place: int, number: PersonNumber) -> Column:
    """Return a number of each person, from those of the groups."""
    of_group = sf.col(f"n{place}")
    counted = sf.least(of_group, long(number.most))
    match number.what:
        case "largest code":
            found = sf.max(of_group)
        case "smallest code":
            found = sf.min(of_group)
        case "groups":
            found = sf.count_if(of_group > 0)
        case "rows":
            found = sf.sum(counted)
        case "squares":
            found = sf.sum(counted * counted)
    return (found if number.what.endswith("code") else sf.when(found > 0, found)).alias(number.name(place))


def _dropped(name: str, limits: Limits, *, is_weighed: bool) -> Column:
    """Return how many rows of a person are left out, of those that a spec may keep in each group: see `PerPerson`."""
    counts = sf.least(sf.col(name), sf.lit(MOST_IN_GROUP))
    remaining = counts if limits.rows_per_group is None else sf.least(counts, sf.lit(limits.rows_per_group))
    sums = [sf.sum(counts), sf.sum(remaining)]
    if is_weighed:
        sums[1] = divide(sf.sum(counts * sf.col(f"weight of {name}")) + long(UNIT // 2), long(UNIT))
    total, remaining = (sf.least(number, sf.lit(MOST_IN_ALL)) for number in sums)
    if limits.groups is not None:
        groups = sf.count_if(sf.col(name) > 0)
        twice, by = remaining * (2 * limits.groups) + groups, groups * 2
        # Integers: the quotient of a multiple is nearest to a whole number by far more than a float rounds.
        on_average = sf.round((twice - twice % by) / by).cast("long")
        remaining = sf.when(groups > limits.groups, on_average).otherwise(remaining)
    return total - (remaining if limits.rows is None else sf.least(remaining, sf.lit(limits.rows)))


# The most cells of a group that its rows are taken to spread over.
_MOST_CELLS = 1000


def histograms(
    frame: DataFrame,
    privacy_unit: PrivacyUnit | None,
    groups: Groups,
    specs: Sequence[HistogramSpec],
    seed: int,
    *,
    to_driver: bool = False,
) -> list[DataFrame]:
    """Return the columns `group`, `spec`, `code` and `count` (all LongType); the counts of a triple add up.

    One pass over the rows serves all specs for which it matters whose a row is, another one all others. Sums of
    weights come once per triple, exact and then clamped to ±LARGEST_VALUE, which is what their noise is added to.
    With `to_driver` every triple comes once, however many rows there are.
    """
    by_person: dict[int, HistogramSpec] = {}
    others: dict[int, HistogramSpec] = {}
    for number, spec in enumerate(specs):
        (by_person if privacy_unit is not None and spec.by_person else others)[number] = spec
    passes, person = [], person_of(privacy_unit)
    if others:
        rows, asked = read(frame, privacy_unit, groups, others, looks_up=False)
        # The native query itself first; keys and categories see only its result.
        rows = rows.withColumns({one.keeps: one.contributes for one in asked})
        passes.append((_kept(rows, groups.names, asked), groups.names, asked))
    if by_person:
        rows, asked = read(frame, privacy_unit, groups, by_person)
        rows = groups.in_groups(rows).filter(any_of(one.contributes for one in asked))
        drawn, weighed = ([one for one in asked if draws_nothing(one.spec) == nothing] for nothing in (False, True))
        rows = bounded(rows, person, drawn, seed) if drawn else rows
        cells = parts_of_people(rows, person, weighed, drawn) if weighed else _kept(rows, ["group"], asked)
        passes.append((cells, ["group"], asked))
    found = []
    for cells, by, asked in passes:
        # Rows are sent to where they are drawn, shuffled once instead of twice. Sums must be counted first.
        candidates = min(one.spec.binning.size for one in asked)
        are_counts = all(one.is_count for one in asked)
        is_uncounted = not to_driver and are_counts and _are_few(frame, groups.number, candidates)
        found.append(_histogram(cells, by, groups, asked, is_uncounted=is_uncounted, to_driver=to_driver))
    return found


def _kept(rows: DataFrame, by: Sequence[str], specs: Sequence[SpecColumns]) -> DataFrame:
    """Return what the rows that stay add to each cell."""
    rows = rows.filter(any_of(sf.col(one.keeps) for one in specs))
    return spread(rows, by, specs, {one.count: (one, one.kept) for one in specs})


def _histogram(
    rows: DataFrame,
    by: Sequence[str],
    groups: Groups,
    specs: Sequence[SpecColumns],
    *,
    is_uncounted: bool,
    to_driver: bool,
) -> DataFrame:
    """Add up the rows of each cell, for all specs at once; uncounted ones are returned with counts of their own."""
    later = coded_later(specs)
    if not is_uncounted:
        rows = rows.groupBy(*by, "answer", "code", *later).agg(*(one.added_up for one in specs))
    if by != ["group"]:
        rows = groups.in_groups(rows)
    listed = [name for name, one in later.items() if isinstance(one.spec.binning, CategoryBinning)]
    in_python = [name for name in later if name not in listed]
    for name in listed:
        binning, kind = later[name].spec.binning, later[name].values
        assert isinstance(binning, CategoryBinning)
        assert kind is not None
        rows = with_codes(rows, name, f"{name} listed", binning.values, kind)
    code = sf.coalesce("code", *(f"{name} listed" for name in listed))
    rows = rows.filter(any_of([code.isNotNull(), *(sf.col(name).isNotNull() for name in in_python)]))
    by_spec = [[long(one.number).alias("spec"), sf.col(one.count).alias("count")] for one in specs]
    rows = rows.select("group", code.alias("code"), *in_python, rows_of(by_spec)).filter(sf.col("count").isNotNull())
    if in_python:
        binnings = {one.number: one for one in specs if one.code in in_python}
        rows = mapped(
            rows,
            encoding({n: (one.code or "", one.spec.binning, one.spec.types[0]) for n, one in binnings.items()}),
            "group long, spec long, code long, count long",
        )
        if to_driver:  # where values have no codes until then, there may be as many as rows
            rows = rows.groupBy("group", "spec", "code").agg(sf.sum("count").alias("count"))
    return rows.select("group", "spec", "code", "count")


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


def union(groups: Groups, histograms: Sequence[DataFrame]) -> DataFrame:
    """Return all histograms and the markers of all groups, each group in one partition, sorted there."""
    zero = long(0)
    marker = [long(MARKER).alias("spec"), zero.alias("code"), zero.alias("count")]
    table = groups.table.select("group", *marker, *groups.names)
    nothing = [sf.lit(None).cast(kind).alias(name) for name, kind in zip(groups.names, groups.types, strict=True)]
    for counted in histograms:
        table = table.unionAll(counted.select("group", "spec", "code", "count", *nothing))
    return table.repartition("group").sortWithinPartitions("group")
