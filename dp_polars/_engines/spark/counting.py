"""From rows to histograms and keys on Spark, in its own SQL: the duties of an engine (`_release/contract.py`).

One order of each person's groups and rows decides which rows count, for all specs.
The order comes from hashes of that person's own rows under a fresh seed.
So a task that Spark repeats keeps the same rows.
The seed need not be secret: the limits hold for every seed.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dp_polars._base.extras import require
from dp_polars._engines.spark.arithmetic import divide, long, sf, spark_types, total
from dp_polars._engines.spark.rows import (
    Groups,
    any_of,
    contributing,
    person_of,
    protected_rows,
    quoted,
    read,
    with_columns,
)
from dp_polars._engines.spark.tracks import Tracks
from dp_polars._engines.spark.weighing import columns_of_numbers, numbers_of_codes, parts_of_people, with_weights
from dp_polars._engines.spark.workers import MARKER, encoding, mapped, selecting
from dp_polars._mechanisms.person_weights import UNIT
from dp_polars._release.contract import MOST_IN_ALL, MOST_IN_GROUP, ROWS_CUT, PersonNumber
from dp_polars._release.protection import Limits
from dp_polars._statistics.statistic import COUNT

if TYPE_CHECKING:
    import polars as pl
    from pyspark.sql import Column, DataFrame

    from dp_polars._base.column_types import PrivacyUnit
    from dp_polars._engines.spark.rows import SpecColumns
    from dp_polars._release.contract import HistogramSpec, KeyWork, PerPerson


Window = require("pyspark.sql", extra="spark").Window


def fresh_seed() -> int:
    """Return 64 random bits as an integer for Spark's hashes."""
    return secrets.randbits(64) - 2**63


@dataclass(frozen=True)
class _Drawn:
    """How a track's rows are drawn: the same for all of its specs."""

    limits: Limits  # limits that may drop rows
    # If there are limits: the column that shows contributing rows, and whether people are counted.
    has: str | None = None
    people: bool = False

    @classmethod
    def of(cls, one: SpecColumns) -> _Drawn:
        limits = one.spec.limits
        if one.spec.people and one.spec.binning.size <= (limits.rows_per_group or 0):
            limits = replace(limits, rows_per_group=None)
        return cls(limits) if limits.everything else cls(limits, one.has, one.spec.people)

    @property
    def needs_order(self) -> bool:
        """Whether only some of a person's rows in a group may stay."""
        return (self.limits.rows, self.limits.rows_per_group) != (None, None)


# Columns that distinguish a person's rows in a group.
_ROW = ["first place", "copy"]


def cells_of_people(rows: DataFrame, person: Sequence[str], specs: Sequence[SpecColumns], seed: int) -> _Cells:
    """Return each person's sums in each cell, within the limits."""
    tracks, pair = Tracks(specs, _Drawn.of), [*person, "group"]
    drawn = [_Drawn.of(of[0]) for of in tracks.tracks]
    ranked = [track for track, one in enumerate(drawn) if one.needs_order]
    weights = [(one, one.spec.weight) for one in specs if one.spec.weight is not None]
    has_norms = any(one.code is not None or weight.limit is not None for one, weight in weights)
    if has_norms or any(not one.limits.everything for one in drawn):
        rows = rows.repartition(*person)  # one shuffle for all work on each person
    of_rows = [track for track in ranked if not drawn[track].people]
    # The order of a person's rows in a group. A code (if people count) or the row itself breaks all ties.
    place, row, codes = ["place"] * bool(ranked), _ROW * bool(of_rows), ["code", *tracks.values]
    if ranked:
        ordered = [one for track in ranked for one in tracks.tracks[track]]
        says = sorted({name for one in ordered for name in (one.has, one.units) if name is not None})
        rows = _placed(rows, pair, says, seed)

    def columns(one: SpecColumns) -> dict[str, Column]:
        found, track = {tracks.rows[one.number]: long(1)}, tracks.track_of[one.number]
        if one.units is not None:
            found[tracks.sum[one.number]] = one.of_row
        found |= {name: sf.col(name) for name in [*place * (track in ranked), *_ROW * (track in of_rows)]}
        return {name: sf.when(one.contributes, column) for name, column in found.items()}

    rows = tracks.coded(tracks.spread(rows, pair, columns))
    if len(of_rows) < len(drawn):  # if all tracks draw rows, no two are alike
        rows = rows.groupBy(*pair, "track", *codes, *row).agg(
            *(sf.min(name).alias(name) for name in place),
            *(sf.count(name).alias(name) for name in dict.fromkeys(tracks.rows.values())),
            *(total(sf.col(name)).alias(name) for name in dict.fromkeys(tracks.sum.values())),
        )
    limits = {track: one.limits for track, one in enumerate(drawn)}
    rows = bounded(rows, person, limits, [*place, *row, *codes], seed)
    return _Cells(parts_of_people(rows, person, tracks), ["group"], tracks)


def bounded(
    rows: DataFrame, person: Sequence[str], limits: Mapping[int, Limits], order: Sequence[str], seed: int
) -> DataFrame:
    """Return the rows of each track that stay: the first ones of each person and `group`, in one order for all tracks.

    Ties of a hash are broken by all columns that distinguish rows, and limits use row numbers.
    So a tie can't let a person keep more rows.
    Windows are ordered so that few of them need another sort.
    """
    owner, pair = [*person, "track"], ["group"]
    found: dict[str, Column] = {}
    groups, in_group, in_all = (
        {track: most for track, of in limits.items() if (most := getattr(of, name)) is not None}
        for name in ("groups", "rows_per_group", "rows")
    )
    if groups:
        rows = rows.withColumn("place of group", sf.xxhash64(sf.lit(seed), sf.lit(0), *person, "group"))
        pair = ["place of group", "group"]
    if in_group:
        found["row"] = sf.row_number().over(Window.partitionBy(*owner, *pair).orderBy(*order))
    if groups:
        found["number of group"] = sf.dense_rank().over(Window.partitionBy(*owner).orderBy(*pair))
    rows = _within(with_columns(rows, found), {"row": in_group, "number of group": groups}, len(limits))
    if in_all:
        of_all = Window.partitionBy(*owner).orderBy(order[0], "group", *order[1:])
        rows = rows.withColumn("row of all", sf.row_number().over(of_all))
    return _within(rows, {"row of all": in_all}, len(limits))


def _within(rows: DataFrame, limits: Mapping[str, Mapping[int, int]], tracks: int) -> DataFrame:
    """Drop rows with a number above their track's limit."""
    for name, most_of in limits.items():
        for most in sorted(set(most_of.values())):
            limited = [track for track, limit in most_of.items() if limit == most]
            is_within = sf.col(name) <= most
            rows = rows.filter(is_within if len(limited) == tracks else is_within | ~sf.col("track").isin(limited))
    return rows


def _placed(rows: DataFrame, pair: Sequence[str], says: Sequence[str], seed: int) -> DataFrame:
    """Give each row of a person and group a random number, `place`; `_ROW` distinguishes rows.

    `says` are the only columns that specs with row limits read. Rows with the same number agree in them.
    So the choice does not depend on the order of rows.
    """
    # Null does not change a hash: without the flags, nulls in different columns would give equal hashes.
    same = [column for name in says for column in (sf.col(name).isNull(), sf.col(name))]

    def place(copy: Column) -> Column:
        return sf.xxhash64(sf.lit(seed), sf.lit(1), *pair, *same, copy)

    rows = rows.withColumn("first place", place(sf.lit(1)))
    copies = Window.partitionBy(*pair, "first place").orderBy(*(says or ["first place"]))
    rows = rows.withColumn("copy", sf.row_number().over(copies).cast("long"))
    return rows.withColumn("place", place(sf.col("copy")))


def shown_keys(frame: DataFrame, work: KeyWork) -> DataFrame:
    """Return the plan of the shown keys, sorted in one partition. Run it only once.

    The executors draw. The place of a draw would reveal hidden keys, and so would the number of partitions.
    So all shown keys go to one partition and are sorted there.
    No range partitioning is used: its sampling would draw a second time.
    """
    names = list(work.types)
    fields = [spark_types.StructField(name, frame.schema[name].dataType) for name in names]
    if work.statistic.counts:
        fields.append(spark_types.StructField(COUNT, spark_types.LongType()))
    stage = selecting(work.statistic, work.types)
    drawn = mapped(_people_by_key(frame, work), stage, spark_types.StructType(fields))
    return drawn.repartition(1).sortWithinPartitions(*(sf.col(quoted(name)) for name in names))


def _people_by_key(frame: DataFrame, work: KeyWork) -> DataFrame:
    """Return every key that a person has in `k0`, `k1`, …, and its number of people in `people`."""
    rows, names = _with_keys(frame, work.privacy_unit, work.types)
    if work.privacy_unit is not None:
        seed = fresh_seed()
        # The key itself breaks ties of the hash, so a tie can't let a person keep more.
        person = person_of(work.privacy_unit)
        order = Window.partitionBy(*person).orderBy(sf.xxhash64(sf.lit(seed), *person, *names), *names)
        rows = rows.select(*person, *names).distinct()
        rows = rows.withColumn("rank", sf.row_number().over(order)).filter(sf.col("rank") <= work.most)
    return rows.groupBy(*names).agg(sf.count(sf.lit(1)).alias("people"))


def _with_keys(frame: DataFrame, unit: PrivacyUnit | None, types: pl.Schema) -> tuple[DataFrame, list[str]]:
    """Return rows with a person and a key, and the names of the key columns."""
    names = [f"k{i}" for i in range(len(types))]
    rows = protected_rows(frame, unit, list(types), {})
    for name in names:
        rows = rows.filter(sf.col(name).isNotNull())
    return rows, names


def one_row_per_person(frame: DataFrame, per_person: PerPerson) -> DataFrame:
    """Return one row for each person, or for each person over a limit: see `Engine`, duty 9."""
    if per_person.by is not None:
        rows, names = _with_keys(frame, per_person.privacy_unit, per_person.by)
        person = person_of(per_person.privacy_unit)
        number = sf.count(sf.lit(1)).alias(PersonNumber.name(0))
        return rows.select(*person, *names).distinct().groupBy(*person).agg(number).drop(*person)
    groups = Groups.of(frame, per_person.keys)
    rows, specs = read(frame, per_person.privacy_unit, groups, dict(enumerate(per_person.specs)))
    person, tracks = person_of(per_person.privacy_unit), Tracks(specs)
    pair = [*person, "track", "group"]

    added_up = [one.number for one in specs if one.is_clipped]
    if per_person.numbers:
        added_up = [place for place, number in enumerate(per_person.numbers) if number.is_total]
    sums = {number: tracks.sum[number] for number in added_up}

    def columns(one: SpecColumns) -> dict[str, Column]:
        found = {tracks.rows[one.number]: sf.when(one.contributes, long(1))}
        return found | ({sums[one.number]: sf.when(one.contributes, one.of_row)} if one.number in sums else {})

    rows = groups.in_groups(rows)
    if not per_person.numbers:
        rows = rows.repartition(*person)  # one shuffle for all work on each person
    rows = tracks.spread(rows, [*person, "group"], columns, all_rows=True)
    rows = tracks.coded(rows, all_rows=True)
    has_code = any_of([sf.col("code").isNotNull(), *(sf.col(name).isNotNull() for name in tracks.values)])
    cells = rows.groupBy(*pair, "code", *tracks.values).agg(
        *(sf.count(sf.when(has_code, sf.col(name))).alias(name) for name in dict.fromkeys(tracks.rows.values())),
        *(total(sf.when(has_code, sf.col(name))).alias(name) for name in dict.fromkeys(sums.values())),
    )
    numbers = columns_of_numbers(tracks)
    cells = with_columns(cells, numbers_of_codes(tracks))
    of_group = [sf.sum(name).alias(name) for name in dict.fromkeys(numbers.values())]
    if per_person.numbers:
        of_group += [sf.max("code").alias("most"), sf.min("code").alias("least")]
        of_group += [total(sf.col(name)).alias(name) for name in dict.fromkeys(sums.values())]
        of_person = [
            _of_person(number, numbers[place], sums.get(place), tracks.track_of[place]).alias(number.name(place))
            for place, number in enumerate(per_person.numbers)
        ]
        return cells.groupBy(*pair).agg(*of_group).groupBy(*person).agg(*of_person).drop(*person)
    clipped = tracks.columns(
        {number: f"clipped {name}" for number, name in sums.items()},
        lambda one: (sums[one.number], one.spec.clamping.of_person),
        lambda one: sf.col(sums[one.number]) != one.of_total(sf.col(sums[one.number])),
    )
    cells = with_columns(cells, clipped)
    by_group = cells.groupBy(*pair).agg(*of_group, *(sf.bool_or(name).alias(name) for name in clipped))
    by_group = with_weights(by_group, pair[:-1], tracks)

    def kind(one: SpecColumns) -> tuple[object, ...]:
        of_person = one.spec.clamping.of_person if one.is_clipped else None
        return numbers[one.number], one.spec.limits, one.spec.weight, sums.get(one.number), of_person

    def dropped(one: SpecColumns) -> Column:
        return _dropped(numbers[one.number], one.spec.limits, is_weighed=one.spec.weight is not None)

    def is_cut(one: SpecColumns) -> Column:
        name, limits = numbers[one.number], one.spec.limits
        cut = [sf.bool_or(f"clipped {sums[one.number]}")] if one.is_clipped else []
        if one.spec.weight is not None:
            cut.append(sf.bool_or((sf.col(name) > 0) & (sf.col(f"weight of {name}") < UNIT)))
        for most, number in [
            (limits.rows, sf.sum(name)),
            (limits.groups, sf.count_if(sf.col(name) > 0)),
            (limits.rows_per_group, sf.max(name)),
        ]:
            cut += [] if most is None else [number > most]
        return any_of(cut or [sf.lit(False)])

    found = tracks.columns(tracks.count, kind, dropped)
    are_cut = tracks.columns({one: f"is cut {name}" for one, name in tracks.count.items()}, kind, is_cut)
    by_track = by_group.groupBy(*pair[:-1]).agg(*(one.alias(name) for name, one in {**found, **are_cut}.items()))
    most = sf.greatest(*found, *list(found)[:1])
    people = by_track.groupBy(*person).agg(
        sf.max(most).alias(ROWS_CUT), sf.bool_or(any_of(map(sf.col, are_cut))).alias("is cut")
    )
    return people.filter(sf.col("is cut")).select(ROWS_CUT)


def _of_person(number: PersonNumber, numbers: str, sums: str | None, track: int) -> Column:
    """Return a person's number from their groups: from columns of the numbers of rows, and of sums."""
    column = {"largest code": "most", "smallest code": "least"}.get(number.what, sums or numbers)
    of_group = sf.when(sf.col("track") == track, sf.col(column))
    counted = sf.least(of_group, sf.when(sf.col("track") == track, long(number.most)))
    match number.what:
        case "largest code" | "largest total":
            found = sf.max(of_group)
        case "smallest code" | "smallest total":
            found = sf.min(of_group)
        case "groups":
            found = sf.count_if(of_group > 0)
        case "rows":
            found = sf.sum(counted)
        case "squares":
            found = sf.sum(counted * counted)
        case "most rows":
            found = sf.max(counted)
    return found if number.is_end else sf.when(found > 0, found)


def _dropped(name: str, limits: Limits, *, is_weighed: bool) -> Column:
    """Return how many of a person's rows are dropped: see `PerPerson`."""
    counts = sf.least(sf.col(name), sf.lit(MOST_IN_GROUP))
    remaining = counts if limits.rows_per_group is None else sf.least(counts, sf.lit(limits.rows_per_group))
    sums = [sf.sum(counts), sf.sum(remaining)]
    if is_weighed:
        sums[1] = divide(sf.sum(counts * sf.col(f"weight of {name}")) + long(UNIT // 2), long(UNIT))
    total, remaining = (sf.least(number, sf.lit(MOST_IN_ALL)) for number in sums)
    if limits.groups is not None:
        groups = sf.count_if(sf.col(name) > 0)
        twice, by = remaining * (2 * limits.groups) + groups, groups * 2
        # The quotient is a whole number. A float's rounding error is far smaller than 1/2.
        on_average = sf.round((twice - twice % by) / by).cast("long")
        remaining = sf.when(groups > limits.groups, on_average).otherwise(remaining)
    return total - (remaining if limits.rows is None else sf.least(remaining, sf.lit(limits.rows)))


# Rows of a group are assumed to spread over at most this many cells.
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

    Specs that depend on people share one pass over the rows, and all others share another one.
    Sums of weights come once per triple. They are exact and then clamped to ±LARGEST_VALUE, before noise is added.
    With `to_driver` every triple comes once, however many rows there are.
    """
    by_person: dict[int, HistogramSpec] = {}
    others: dict[int, HistogramSpec] = {}
    for number, spec in enumerate(specs):
        (by_person if privacy_unit is not None and spec.by_person else others)[number] = spec
    passes = []
    if others:
        rows, asked = read(frame, privacy_unit, groups, others)
        # The native query runs first. Keys and categories are applied to its result only.
        passes.append(_cells_of_rows(rows, groups.names, asked))
    if by_person:
        rows, asked = read(frame, privacy_unit, groups, by_person)
        rows = contributing(groups.in_groups(rows), asked)
        passes.append(cells_of_people(rows, person_of(privacy_unit), asked, seed))
    found = []
    for cells in passes:
        # Uncounted rows are shuffled only once, to where answers are drawn. Sums must be counted first.
        candidates = min(one.spec.binning.size for one in cells.tracks.specs)
        are_counts = all(one.is_count for one in cells.tracks.specs)
        is_uncounted = not to_driver and are_counts and _are_few(frame, groups.number, candidates)
        found.append(_histogram(cells, groups, is_uncounted=is_uncounted, to_driver=to_driver))
    return found


@dataclass(frozen=True)
class _Cells:
    """Columns of counts to add up by `by` (groups or their keys), track and code."""

    rows: DataFrame
    by: Sequence[str]
    tracks: Tracks


def _cells_of_rows(rows: DataFrame, by: Sequence[str], specs: Sequence[SpecColumns]) -> _Cells:
    """Return each row's weights, without limits; codes of lists are found later."""
    tracks, rows = Tracks(specs), contributing(rows, specs)

    def columns(one: SpecColumns) -> dict[str, Column]:
        return {tracks.count[one.number]: sf.when(one.contributes, one.of_row)}

    return _Cells(tracks.spread(rows, by, columns), by, tracks)


def _histogram(cells: _Cells, groups: Groups, *, is_uncounted: bool, to_driver: bool) -> DataFrame:
    """Add up each cell's rows for all specs at once. If `is_uncounted`, each row keeps its own count."""
    rows, tracks, is_by_key = cells.rows, cells.tracks, cells.by != ["group"]
    if not is_uncounted:
        values = tracks.all_values if is_by_key else tracks.values
        rows = rows.groupBy(*cells.by, "track", "code", *values).agg(*tracks.added_up(tracks.count))
    if is_by_key:
        rows = tracks.coded(groups.in_groups(rows))
    rows = tracks.by_spec(rows, ["group", "code", *tracks.values])
    if tracks.values:
        later = {one.number: (tracks.value_of(one), one.spec.binning, one.spec.types[0]) for one in tracks.in_python}
        rows = mapped(rows, encoding(later), "group long, spec long, code long, count long")
        if to_driver:  # uncoded values may have as many cells as rows
            rows = rows.groupBy("group", "spec", "code").agg(sf.sum("count").alias("count"))
    return rows.select("group", "spec", "code", "count")


def _are_few(rows: DataFrame, groups: int, candidates: int) -> bool:
    """Whether counting would hardly reduce the number of rows, by Spark's estimate.

    This affects speed only, never the answer.
    The estimate uses the sizes of compressed files, and is too low by a factor of about 4.
    So rows are few up to about 2 per cell; with 2, two fifths of them are the first of their cell.
    Values are assumed to be at no more than `_MOST_CELLS` points of a grid.
    """
    try:
        # The analyzed plan, because the optimizer runs expressions on rows in memory, and nothing is charged yet.
        plan = rows._jdf.queryExecution().analyzed()
        columns = plan.output()
        width: int = 8 + sum(columns.apply(i).dataType().defaultSize() for i in range(columns.size()))
        size = int(str(plan.stats().sizeInBytes()))
    except Exception:  # some plans have no statistics before they are optimized
        return False
    return 2 * size <= groups * min(candidates, _MOST_CELLS) * width


def union(groups: Groups, histograms: Sequence[DataFrame]) -> DataFrame:
    """Return all histograms and a marker for every group, each group sorted in one partition."""
    zero = long(0)
    marker = [long(MARKER).alias("spec"), zero.alias("code"), zero.alias("count")]
    table = groups.table.select("group", *marker, *groups.names)
    nothing = [sf.lit(None).cast(kind).alias(name) for name, kind in zip(groups.names, groups.types, strict=True)]
    for counted in histograms:
        table = table.unionAll(counted.select("group", "spec", "code", "count", *nothing))
    return table.repartition("group").sortWithinPartitions("group")
