"""Numbers by weights of people, as native SQL: nobody's rows are dropped, but people beyond the limits count in part.

One pass over the rows gives both a person's norm and what it scales: a frame that is read twice may give other rows.
All that is added up are integers, so a task that Spark runs again gives the same numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from dp_polars._base.extras import require
from dp_polars._bins.binning import NearestBinning
from dp_polars._engines.spark.arithmetic import divide, long, sf, total
from dp_polars._engines.spark.rows import coded_later, spread, with_columns
from dp_polars._mechanisms.person_weights import PersonWeight, part_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from dp_polars._engines.spark.rows import SpecColumns
    from dp_polars._release.contract import HistogramSpec


Window = require("pyspark.sql", extra="spark").Window


class _Columns:
    """The arithmetic of Spark."""

    whole: ClassVar = staticmethod(long)
    quotient: ClassVar = staticmethod(divide)
    choose: ClassVar = staticmethod(lambda condition, yes, no: sf.when(condition, yes).otherwise(no))

    @staticmethod
    def scaled_root(unit: float, limit: float, by: Column) -> Column:
        return sf.floor(sf.lit(unit) * sf.sqrt(sf.lit(limit) / by.cast("double")))


_OF = _Columns()


def draws_nothing(spec: HistogramSpec) -> bool:
    """Whether all rows of everybody count, fully or in part, under codes that Spark's own arithmetic or a list has."""
    limits, one_each = spec.limits, spec.people and spec.binning.size <= (spec.limits.rows_per_group or 0)
    is_bounded = (limits.rows, limits.groups) != (None, None) or not (limits.rows_per_group is None or one_each)
    return spec.weight is not None or not (is_bounded or isinstance(spec.binning, NearestBinning))


def with_weights(
    pairs: DataFrame, owner: Sequence[str], weights: Mapping[str, PersonWeight], is_first: Column | None = None
) -> DataFrame:
    """Add what a row of a person in a group weighs, in parts: `weight of …` for each column of numbers of rows.

    `owner`: the columns of a person. `is_first`: which of the rows of a person and a group stands for them; None: there
    is one.
    """
    norms = {}
    for name, weight in weights.items():
        if weight.limit is not None:
            norm = weight.norm(sf.col(name), _OF)
            norm = norm if is_first is None else sf.when(is_first, norm).otherwise(long(0))
            norms[f"norm of {name}"] = sf.sum(norm).over(Window.partitionBy(*owner))
    pairs = with_columns(pairs, norms)
    found = {}
    for name, weight in weights.items():
        norm = sf.col(f"norm of {name}") if f"norm of {name}" in norms else None
        found[f"weight of {name}"] = weight.of_rows(norm, sf.col(name), _OF)
    return with_columns(pairs, found)


def parts_of_people(
    rows: DataFrame, person: Sequence[str], specs: Sequence[SpecColumns], drawn: Sequence[SpecColumns]
) -> DataFrame:
    """Return what each person adds to each cell: `group`, `answer`, code, and a column for each spec (`spread`).

    `drawn` are the other specs. Which of their rows stay is known: then rows lie by person already.
    """
    # Specs of the same rows and codes share their number, and those that weigh rows alike their sum.
    rows_of = _named("rows", {one.number: (one.has, one.code) for one in specs})
    weighs = [one for one in specs if one.units is not None]
    sum_of = _named("sum", {one.number: (one.has, one.code, one.units, one.spec.row_weight) for one in weighs})
    kinds = {one.number: (rows_of[one.number], one.spec.people, one.spec.weight) for one in specs}
    number_of = _named("number", kinds)
    weights = {number_of[one.number]: one.spec.weight for one in specs if one.spec.weight is not None}
    has_codes = any(one.code is not None for one in specs if one.spec.weight is not None)
    if not drawn and (has_codes or any(weight.limit is not None for weight in weights.values())):
        rows = rows.repartition(*person)  # one shuffle for all that is found of a person
    columns = {rows_of[one.number]: (one, sf.when(one.contributes, long(1))) for one in specs}
    columns |= {sum_of[one.number]: (one, sf.when(one.contributes, one.of_row)) for one in weighs}
    columns |= {one.count: (one, one.kept) for one in drawn}
    owner, cell = [*person, "answer"], ["group", "code", *coded_later(drawn)]
    pairs = spread(rows, [*person, "group"], [*specs, *drawn], columns).groupBy(*owner, *cell)
    pairs = pairs.agg(
        *(sf.count(name).alias(name) for name in dict.fromkeys(rows_of.values())),
        *(total(sf.col(name)).alias(name) for name in dict.fromkeys(sum_of.values())),
        *(one.added_up for one in drawn),
    )
    counted = {}
    for one in specs:
        found = sf.col(rows_of[one.number])
        counted[number_of[one.number]] = (found > 0).cast("long") if one.spec.people else found  # a code counts once
    pairs = with_columns(pairs, counted)
    is_first = None
    if has_codes:
        in_group = Window.partitionBy(*owner, "group")
        more = {name: sf.sum(name).over(in_group) for name in weights}
        pairs = pairs.withColumns({**more, "is first": sf.col("code") == sf.min("code").over(in_group)})
        is_first = sf.col("is first")
    pairs = with_weights(pairs, owner, weights, is_first)
    totals = {f"total{one.number}": _total(one, rows_of, sum_of) for one in specs}
    pairs = with_columns(pairs, totals)
    parts = []
    for one in specs:
        part = sf.col(f"total{one.number}")
        if one.spec.weight is not None:
            part = part_of(part, sf.col(f"weight of {number_of[one.number]}"), one.spec.bits, _OF)
        parts.append(sf.when(sf.col(rows_of[one.number]) > 0, part).alias(one.count))
    return pairs.select("answer", *cell, *parts, *(one.count for one in drawn))


def _named(word: str, kinds: Mapping[int, object]) -> dict[int, str]:
    """Return a name for each number, the same one where the kinds are."""
    names: dict[object, str] = {}
    return {number: names.setdefault(kind, f"{word}{number}") for number, kind in kinds.items()}


def _total(one: SpecColumns, rows_of: Mapping[int, str], sum_of: Mapping[int, str]) -> Column:
    """Return a person's sum in a group and code."""
    if one.units is None:
        return long(1) if one.spec.people else sf.col(rows_of[one.number])
    return one.of_total(sf.col(sum_of[one.number]))
