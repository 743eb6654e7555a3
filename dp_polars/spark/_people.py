"""People and their keys on Spark, as native SQL: how many have each key, and how much each of them has."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from dp_polars._engines.contract import GROUPS, ROWS, ROWS_IN_GROUP
from dp_polars._questions.unlisted_keys import COUNT
from dp_polars.spark._column_types import types
from dp_polars.spark._counting import (
    Groups,
    Window,
    counted,
    evidence,
    fresh_seed,
    one_of_each,
    person_in,
    quoted,
    read,
    sf,
)
from dp_polars.spark._workers import selecting

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from dp_polars._engines.contract import KeyWork, PerPerson


def shown_keys(frame: DataFrame, work: KeyWork) -> DataFrame:
    """Return the plan of the keys that are shown, sorted in one partition: to be run once.

    The executors draw. Where a draw stood among others would tell of keys that are not shown, and so would how many
    partitions there are: so all that is shown goes to one, and is sorted there. No range of keys is sampled for that:
    it would be one more draw.
    """
    names = list(work.types)
    fields = [types.StructField(name, frame.schema[name].dataType) for name in names]
    if work.question.counts:
        fields.append(types.StructField(COUNT, types.LongType()))
    drawn = _people_by_key(frame, work).mapInArrow(selecting(work.question, work.types), types.StructType(fields))
    return drawn.repartition(1).sortWithinPartitions(*(sf.col(quoted(name)) for name in names))


def _people_by_key(frame: DataFrame, work: KeyWork) -> DataFrame:
    """Return every key that somebody has in `k0`, `k1`, …, and in `people` the number of people who have it."""
    names = [f"k{i}" for i in range(len(work.types))]
    rows = evidence(frame, work.privacy_unit, list(work.types), {})
    for name in names:
        rows = rows.filter(sf.col(name).isNotNull())
    if work.privacy_unit is not None:
        seed = fresh_seed()
        # The key itself breaks ties of the hash: a tie can't let a person keep more.
        person = person_in(rows)
        order = Window.partitionBy(*person).orderBy(sf.xxhash64(sf.lit(seed), *person, *names), *names)
        rows = rows.select(*person, *names).distinct()
        rows = rows.withColumn("rank", sf.row_number().over(order)).filter(sf.col("rank") <= work.most)
    return rows.groupBy(*names).agg(sf.count(sf.lit(1)).alias("people"))


def one_row_per_person(frame: DataFrame, per_person: PerPerson) -> DataFrame:
    """Return one row for each person, or for each who is cut, with numbers of rows and groups: see `Engine`, duty 9."""
    groups, tallies = Groups.of(frame, per_person.keys), counted(per_person.cut)
    rows = groups.listed(read(frame, per_person.privacy_unit, groups, tallies))
    person = person_in(rows)
    pair = [*person, "group"]
    rows = one_of_each(rows, tallies, pair, pair)
    limits = {one.stays: one.tally.limits for one in tallies}
    clipped = [one for one in tallies if one.tally.people and one.weight is not None]
    by_group = rows.groupBy(*pair).agg(
        sf.count(sf.lit(1)).alias(ROWS),
        *(sf.count_if(name).alias(name) for name in limits),
        *(sf.bool_or(sf.col(one.weight) != one.weight_of_person).alias(one.weight) for one in clipped),
    )
    cut = [sf.bool_or(one.weight) for one in clipped]
    for name, bounds in limits.items():
        for bound, number in [
            (bounds.rows, sf.sum(name)),
            (bounds.groups, sf.count_if(sf.col(name) > 0)),
            (bounds.rows_per_group, sf.max(name)),
        ]:
            cut += [] if bound is None else [number > bound]
    people = by_group.groupBy(*person).agg(
        sf.sum(ROWS).alias(ROWS),
        sf.count(sf.lit(1)).alias(GROUPS),
        sf.max(ROWS).alias(ROWS_IN_GROUP),
        reduce(or_, cut, sf.lit(not tallies)).alias("is cut"),
    )
    return people.filter(sf.col("is cut")).select(ROWS, GROUPS, ROWS_IN_GROUP)
