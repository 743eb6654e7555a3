"""People and their keys, by Polars: how many have each key, and how many rows or groups each of them has."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from dp_polars._base.process import silenced
from dp_polars._base.rng import system_words
from dp_polars._engines.polars.bounding import by_person
from dp_polars._release.contract import GROUPS, MOST_IN_ALL, MOST_IN_GROUP, ROWS, ROWS_CUT, ROWS_IN_GROUP
from dp_polars._release.protection import random_few
from dp_polars._steps.polars_rows import (
    added_up,
    by_name,
    collected,
    in_parts,
    is_a_person,
    is_somebody,
    own_keys,
    person_of,
    with_groups,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polars._typing import EngineType

    from dp_polars._base.column_types import PrivacyUnit
    from dp_polars._base.rng import Ints
    from dp_polars._release.contract import HistogramSpec, KeyWork, PerPerson


def people_by_key(rows: pl.LazyFrame, work: KeyWork, engine: EngineType, partitions: int) -> tuple[pl.DataFrame, Ints]:
    """Return every key that somebody has, once, and the number of people who have it: see `Engine`, duty 8."""
    names = [f"key {i}" for i in range(len(work.types))]
    columns = [
        pl.col(name).cast(dtype).alias(key) for key, (name, dtype) in zip(names, work.types.items(), strict=True)
    ]
    if work.privacy_unit is None:
        plan = rows.select(columns).drop_nulls().group_by(names).agg(pl.len().alias("people"))
        counted = collected([plan], engine)
    else:
        unit, schema = work.privacy_unit, rows.collect_schema()
        somebody = is_somebody(unit, schema)
        counted = []
        for part in in_parts(rows, unit, partitions):
            person_keys = part.select(person_of(unit, schema).alias("person"), *columns).drop_nulls(names)
            (lists,) = collected([_keys_of_people(person_keys, names).filter(somebody)], engine)
            counted.append(_bounded(lists, names, work.most, engine))
    found = counted[0] if len(counted) == 1 else added_up(counted, names, engine)
    keys = found.select(pl.col(key).alias(name) for key, name in zip(names, work.types, strict=True))
    return keys, found["people"].to_numpy().astype(np.int64)


def _keys_of_people(rows: pl.LazyFrame, names: list[str]) -> pl.LazyFrame:
    """Return every person and, in lists, that person's keys, each once."""
    if len(names) == 1:  # faster, above all for numbers
        return rows.group_by("person").agg(pl.col(names).unique())
    return rows.group_by("person", *names).agg().group_by("person").agg(names)


def _bounded(lists: pl.DataFrame, names: list[str], most: int, engine: EngineType) -> pl.DataFrame:
    """Return how many people have each key, when at most `most` random ones of each person's stay."""
    lengths = lists[names[0]].list.len().to_numpy().astype(np.int64)
    keys = pl.DataFrame([lists[name].explode(empty_as_null=False) for name in names])
    if lengths.max(initial=0) > most:
        keys = keys.filter(pl.Series(random_few(lengths, most, system_words())))
    return keys.lazy().group_by(names).agg(pl.len().alias("people")).collect(engine=by_name(engine))


def few_of_each(rows: pl.LazyFrame, unit: PrivacyUnit, most: int) -> pl.LazyFrame:
    """Return `most` random rows of each person who has more, and all of the others'; rows of nobody are gone already.

    They are chosen once, the first time that the plan is run: what a release reads twice is the same both times. So
    they are held in memory, with all of their columns.
    """
    chosen: list[pl.DataFrame] = []
    lock = Lock()

    @silenced
    def choose(frame: pl.DataFrame) -> pl.DataFrame:
        with lock:
            if not chosen:
                chosen.append(_few_rows(frame, unit, most))
            return chosen[0]

    return rows.map_batches(choose, predicate_pushdown=False, projection_pushdown=False, slice_pushdown=False)


def _few_rows(frame: pl.DataFrame, unit: PrivacyUnit, most: int) -> pl.DataFrame:
    people = frame.select(person_of(unit, frame.schema).alias("person")).to_series()
    places, lengths = by_person(people, np.zeros(len(people), np.uint8))
    stays = np.zeros(frame.height, bool)
    stays[places[random_few(lengths, most, system_words())]] = True
    return frame.filter(pl.Series(stays))


@dataclass(frozen=True)
class Cut:
    """One of the specs of `PerPerson.cut`, and what its rows count by.

    Parameters
    ----------
    spec
        The spec.
    code, weight
        Its codes and weights, row by row. None: all are 0, or 1.
    """

    spec: HistogramSpec
    code: pl.Expr | None
    weight: pl.Expr | None

    def columns(self, number: int) -> list[pl.Expr]:
        """Return what of a row is needed."""
        code = pl.lit(0, pl.UInt8) if self.code is None else self.code
        weight = pl.lit(1) if self.weight is None else self.weight.cast(pl.Int64)
        return [
            pl.when(code < self.spec.binning.size).then(code).alias(f"code {number}"),
            *([weight.alias(f"weight {number}")] if self.clips else []),
        ]

    @property
    def clips(self) -> bool:
        return self.spec.people and self.weight is not None

    def of_groups(self, number: int) -> list[pl.Expr]:
        """Return, for each group of a person, how many rows or codes are evidence, and whether a sum is clipped."""
        code, weight = pl.col(f"code {number}"), pl.col(f"weight {number}")
        codes = code.drop_nulls()
        found = [(codes.n_unique() if self.spec.people else codes.len()).cast(pl.Int64).alias(f"code {number}")]
        if self.clips and self.spec.row_weight is not None:
            total = weight.filter(code.is_not_null())
            if self.spec.binning.size == 1:  # otherwise each row has the sum of its code already
                total = pl.when(codes.len() > 0).then(total.sum())
            ends = self.spec.row_weight.of_person
            found.append((~total.is_between(*ends)).any().alias(f"weight {number}"))
        return found

    def of_people(self, number: int) -> pl.Expr:
        """Return whether something of a person is left out, or clipped."""
        limits, counts = self.spec.limits, pl.col(f"code {number}")
        is_cut = pl.col(f"weight {number}").any() if self.clips else pl.lit(value=False)
        if limits.groups is not None:
            is_cut |= (counts > 0).sum() > limits.groups
        if limits.rows_per_group is not None:
            is_cut |= (counts > limits.rows_per_group).any()
        if limits.rows is not None:
            is_cut |= counts.sum() > limits.rows
        return is_cut

    def dropped(self, number: int) -> pl.Expr:
        """Return how many rows of a person are left out: see `PerPerson`."""
        limits, counts = self.spec.limits, pl.col(f"code {number}").clip(upper_bound=MOST_IN_GROUP)
        total = counts.sum().clip(upper_bound=MOST_IN_ALL)
        remaining = counts if limits.rows_per_group is None else counts.clip(upper_bound=limits.rows_per_group)
        remaining = remaining.sum().clip(upper_bound=MOST_IN_ALL)
        if limits.groups is not None:
            groups = (counts > 0).sum().cast(pl.Int64)
            on_average = (2 * limits.groups * remaining + groups) // (2 * groups)
            remaining = pl.when(groups > limits.groups).then(on_average).otherwise(remaining)
        if limits.rows is not None:
            remaining = remaining.clip(upper_bound=limits.rows)
        return total - remaining


def one_row_per_person(rows: pl.LazyFrame, per_person: PerPerson, cuts: Sequence[Cut] = ()) -> pl.LazyFrame:
    """Return one row for each person, with numbers of rows and groups: see `Engine`, duty 9. `cuts` are its `cut`."""
    unit, keys, schema = per_person.privacy_unit, per_person.keys, rows.collect_schema()
    rows = rows.filter(is_a_person(unit, schema))
    key_columns = own_keys(rows, keys)
    names = [expr.meta.output_name() for expr in key_columns]
    columns = [column for number, cut in enumerate(cuts) for column in cut.columns(number)]
    # A constant gets as many rows as the frame.
    rows = rows.with_columns(person_of(unit, schema).alias("person"), *key_columns, *columns)
    rows = rows.select("person", *names, *(column.meta.output_name() for column in columns))
    if keys is not None:
        rows = with_groups(rows, keys)
    by = ["person"] if keys is None else ["person", "group"]
    for number, cut in enumerate(cuts):
        if cut.clips and cut.spec.binning.size > 1:
            rows = rows.with_columns(pl.col(f"weight {number}").sum().over(*by, f"code {number}"))
    by_group = rows.group_by(by).agg(
        pl.len().cast(pl.Int64).alias(ROWS),
        *(expr for number, cut in enumerate(cuts) for expr in cut.of_groups(number)),
    )
    people = by_group.group_by("person").agg(
        pl.col(ROWS).sum(),
        pl.len().cast(pl.Int64).alias(GROUPS),
        pl.col(ROWS).max().alias(ROWS_IN_GROUP),
        *([pl.max_horizontal(cut.dropped(number) for number, cut in enumerate(cuts)).alias(ROWS_CUT)] if cuts else []),
        pl.any_horizontal(pl.lit(not cuts), *(cut.of_people(number) for number, cut in enumerate(cuts))).alias("cut"),
    )
    return people.filter("cut").select(ROWS, GROUPS, ROWS_IN_GROUP, *([ROWS_CUT] if cuts else []))
