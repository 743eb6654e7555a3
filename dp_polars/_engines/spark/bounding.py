"""Which of a person's rows count, on Spark: by one order of their groups and rows for all specs.

The numbers of groups and of rows are hashes of that person's own rows under a fresh seed. So a task that Spark runs
again keeps the same rows. Nothing rests on the seed being secret: the bounds hold for every seed.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

from dp_polars._base.process import require
from dp_polars._engines.spark.arithmetic import long, sf, total
from dp_polars._engines.spark.rows import with_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, WindowSpec

    from dp_polars._engines.spark.rows import SpecColumns


Window = require("pyspark.sql", extra="spark").Window


def fresh_seed() -> int:
    """Return 64 random bits, as the integer that Spark's hashes take."""
    return secrets.randbits(64) - 2**63


def bounded(rows: DataFrame, person: Sequence[str], specs: Sequence[SpecColumns], seed: int) -> DataFrame:
    """Say in `keeps…` which rows of a person and `group` stay for which spec: the first ones, in one order for all.

    Ties of a hash are broken by what it is made of, and what counts are running numbers: a tie can't let a person keep
    more. Windows come in an order in which few of them need a sort of their own.
    """
    if all(one.has is not None for one in specs):
        rows = rows.filter(any_of(one.is_evidence for one in specs))
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
    # The number of a row in its group, and that of the group: of those that have evidence for the spec.
    rows = with_columns(
        rows,
        {
            f"{name} row": _number(sf.col(name), in_group)
            for name, most in limits.items()
            if (most.groups, most.rows_per_group) != (None, None)
        },
    )
    rows = with_columns(
        rows,
        {
            f"{name} group": _number(sf.col(name) & (sf.col(f"{name} row") == 1), in_groups)
            for name, most in limits.items()
            if most.groups is not None
        },
    )
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

    What a row `says` is all that any spec with bounds of rows reads of it: the choice does not depend on the order of
    rows, since rows with the same number say the same.
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
    """Say in `keeps…` which rows are evidence; where people count, the first of each code.

    `pair` are the columns of a person and a group. What a person's rows of a code weigh together is found, too.
    """
    found = {}
    for one in specs:
        found[one.keeps] = one.is_evidence
        if one.spec.people:
            same = pair if one.code is None else [*pair, one.code]
            found[one.keeps] &= _number(one.is_evidence, _along(same, order)) == 1
            if one.together is not None:
                found[one.together] = total(sf.when(one.is_evidence, one.of_row), Window.partitionBy(*same))
    return with_columns(rows, found)


def any_of(conditions: Iterable[Column]) -> Column:
    """Return whether at least one condition holds, as a balanced tree: Spark Connect takes 100 levels of a plan."""
    found = [*conditions]
    while len(found) > 1:
        found = [reduce(or_, found[i : i + 2]) for i in range(0, len(found), 2)]
    return found[0]


def _along(owner: Sequence[str], order: Sequence[str]) -> WindowSpec:
    """Return the window of an owner's rows up to this one."""
    window = Window.partitionBy(*owner)
    window = window.orderBy(*order) if order else window
    return window.rowsBetween(Window.unboundedPreceding, Window.currentRow)


def _number(is_one: Column, window: WindowSpec) -> Column:
    """Return of how many rows of the window a condition is true."""
    return sf.count(sf.when(is_one, long(1))).over(window)


def _within(rows: DataFrame, word: str, bounds: Mapping[str, int | None]) -> DataFrame:
    """Let only rows stay whose numbers are within the bounds."""
    return with_columns(
        rows,
        {name: sf.col(name) & (sf.col(f"{name} {word}") <= most) for name, most in bounds.items() if most is not None},
    )
