"""People and their keys on Spark, as native SQL: how many have each key, and how much each of them has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dp_polars._engines.spark.arithmetic import sf
from dp_polars._engines.spark.bounding import Window, any_of, fresh_seed, one_each
from dp_polars._engines.spark.rows import Groups, evidence, person_of, quoted, read
from dp_polars._engines.spark.types import spark_types
from dp_polars._engines.spark.workers import mapped, selecting
from dp_polars._questions.unlisted_keys import COUNT
from dp_polars._release.contract import GROUPS, MOST_IN_ALL, MOST_IN_GROUP, ROWS, ROWS_CUT, ROWS_IN_GROUP

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from dp_polars._release.contract import KeyWork, PerPerson
    from dp_polars._release.protection import Limits


def shown_keys(frame: DataFrame, work: KeyWork) -> DataFrame:
    """Return the plan of the keys that are shown, sorted in one partition: to be run once.

    The executors draw. Where a draw stood among others would tell of keys that are not shown, and so would how many
    partitions there are: so all that is shown goes to one, and is sorted there. No range of keys is sampled for that:
    it would be one more draw.
    """
    names = list(work.types)
    fields = [spark_types.StructField(name, frame.schema[name].dataType) for name in names]
    if work.question.counts:
        fields.append(spark_types.StructField(COUNT, spark_types.LongType()))
    stage = selecting(work.question, work.types)
    drawn = mapped(_people_by_key(frame, work), stage, spark_types.StructType(fields))
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
        person = person_of(work.privacy_unit)
        order = Window.partitionBy(*person).orderBy(sf.xxhash64(sf.lit(seed), *person, *names), *names)
        rows = rows.select(*person, *names).distinct()
        rows = rows.withColumn("rank", sf.row_number().over(order)).filter(sf.col("rank") <= work.most)
    return rows.groupBy(*names).agg(sf.count(sf.lit(1)).alias("people"))


def one_row_per_person(frame: DataFrame, per_person: PerPerson) -> DataFrame:
    """Return one row for each person, or for each who is cut, with numbers of rows and groups: see `Engine`, duty 9."""
    groups = Groups.of(frame, per_person.keys)
    rows, specs = read(frame, per_person.privacy_unit, groups, dict(enumerate(per_person.cut)))
    rows, person = groups.in_groups(rows), person_of(per_person.privacy_unit)
    pair = [*person, "group"]
    if specs:  # one shuffle for all windows
        rows = one_each(rows.repartition(*person), specs, pair, [])
    limits = {one.keeps: one.spec.limits for one in specs}
    clipped = {one.together: one.of_person for one in specs if one.together is not None}
    by_group = rows.groupBy(*pair).agg(
        sf.count(sf.lit(1)).alias(ROWS),
        *(sf.count_if(name).alias(name) for name in limits),
        *(sf.bool_or(sf.col(name) != inside).alias(name) for name, inside in clipped.items()),
    )
    cut = [sf.bool_or(name) for name in clipped]
    for name, bounds in limits.items():
        for bound, number in [
            (bounds.rows, sf.sum(name)),
            (bounds.groups, sf.count_if(sf.col(name) > 0)),
            (bounds.rows_per_group, sf.max(name)),
        ]:
            cut += [] if bound is None else [number > bound]
    dropped = [_dropped(name, bounds) for name, bounds in limits.items()]
    people = by_group.groupBy(*person).agg(
        *([sf.greatest(*dropped, dropped[0]).alias(ROWS_CUT)] if dropped else []),
        sf.sum(ROWS).alias(ROWS),
        sf.count(sf.lit(1)).alias(GROUPS),
        sf.max(ROWS).alias(ROWS_IN_GROUP),
        any_of([sf.lit(not specs), *cut]).alias("is cut"),
    )
    return people.filter(sf.col("is cut")).select(ROWS, GROUPS, ROWS_IN_GROUP, *([ROWS_CUT] if dropped else []))


def _dropped(name: str, limits: Limits) -> Column:
    """Return how many rows of a person are left out, of those that a spec may keep in each group: see `PerPerson`."""
    counts = sf.least(sf.col(name), sf.lit(MOST_IN_GROUP))
    remaining = counts if limits.rows_per_group is None else sf.least(counts, sf.lit(limits.rows_per_group))
    total, remaining = (sf.least(sf.sum(number), sf.lit(MOST_IN_ALL)) for number in (counts, remaining))
    if limits.groups is not None:
        groups = sf.count_if(sf.col(name) > 0)
        twice, by = remaining * (2 * limits.groups) + groups, groups * 2
        # Integers: the quotient of a multiple is nearest to a whole number by far more than a float rounds.
        on_average = sf.round((twice - twice % by) / by).cast("long")
        remaining = sf.when(groups > limits.groups, on_average).otherwise(remaining)
    return total - (remaining if limits.rows is None else sf.least(remaining, sf.lit(limits.rows)))
