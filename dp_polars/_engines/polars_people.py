"""People and their keys, by Polars: how many have each key, and how many rows or groups each of them has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from dp_polars._base.words import system_words
from dp_polars._engines.bounding import random_few
from dp_polars._engines.contract import GROUPS, ROWS, ROWS_IN_GROUP
from dp_polars._engines.polars_rows import added_up, by_name, collected, in_parts, is_a_person, listed, own_keys

if TYPE_CHECKING:
    from polars._typing import EngineType

    from dp_polars._base.arrays import Ints
    from dp_polars._engines.contract import KeyWork, PerPerson


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
        somebody = is_a_person("person", rows.collect_schema()[work.privacy_unit])
        counted = []
        for part in in_parts(rows, work.privacy_unit, partitions):
            person_keys = part.select(pl.col(work.privacy_unit).alias("person"), *columns).drop_nulls(names)
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


def one_row_per_person(rows: pl.LazyFrame, per_person: PerPerson) -> pl.LazyFrame:
    """Return one row for each person, with numbers of rows and groups: see `Engine`, duty 9."""
    unit, keys = per_person.privacy_unit, per_person.keys
    rows = rows.filter(is_a_person(unit, rows.collect_schema()[unit]))
    key_columns = own_keys(rows, keys)
    rows = rows.select(pl.col(unit).alias("person"), *key_columns)
    names = [expr.meta.output_name() for expr in key_columns]
    if keys is not None:
        rows = rows.join(listed(keys), on=names).drop(names)
    by_group = rows.group_by(pl.all()).agg(pl.len().cast(pl.Int64).alias(ROWS))
    return (
        by_group.group_by("person")
        .agg(
            pl.col(ROWS).sum(),
            pl.len().cast(pl.Int64).alias(GROUPS),
            pl.col(ROWS).max().alias(ROWS_IN_GROUP),
        )
        .drop("person")
    )
