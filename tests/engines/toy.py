"""An engine in pure Python, written from nothing but the docstrings of `dp_polars/_engines/contract.py`.

It shows that they suffice. It is no example of a fast engine.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from random import Random, SystemRandom
from typing import Any

import numpy as np
import polars as pl

from dp_polars._base.arrays import Ints
from dp_polars._draws.histograms import Histogram
from dp_polars._engines.bounding import Limits
from dp_polars._engines.contract import PER_PERSON, KeyWork, LocalEngine, PerPerson, Tally, Work

Row = dict[str, Any]
Evidence = tuple[int, int, int]  # group, code, weight


class ToyEngine(LocalEngine):
    """Rows as dicts.

    Parameters
    ----------
    rows
        The private rows.
    types
        The type of each column.
    """

    rows_are = "the list of dicts"
    counts_per_person = True

    def __init__(self, rows: Iterable[Row], types: dict[str, pl.DataType]) -> None:
        self._rows, self._types = rows, types

    def schema(self, columns: Collection[str]) -> pl.Schema:
        for name in columns:
            self._must_have(name)
        return pl.Schema({name: self._types[name] for name in columns})

    def distinct(self, constants: pl.DataFrame) -> int:
        return len(set(constants.rows()))

    def prepare_histograms(self, work: Work) -> Callable[[], list[Histogram]]:
        self._check_unit(work.privacy_unit if work.per_person is None else work.per_person.privacy_unit)
        return lambda: self._histograms(work)

    def prepare_people_by_key(self, work: KeyWork) -> Callable[[], tuple[pl.DataFrame, Ints]]:
        self._check_unit(work.privacy_unit)
        return lambda: self._people_by_key(work)

    def _histograms(self, work: Work) -> list[Histogram]:
        rows = list(self._rows) if work.per_person is None else _people(self._rows, work.per_person)
        seed = SystemRandom().getrandbits(256)  # one for all: a mean's sum and its number are of the same rows
        return [_histogram(rows, work, tally, Random(seed)) for tally in work.tallies]

    def _people_by_key(self, work: KeyWork) -> tuple[pl.DataFrame, Ints]:
        keys = defaultdict(set)
        for number, row in enumerate(self._rows):
            key = tuple(row[name] for name in work.types)
            person = number if work.privacy_unit is None else row[work.privacy_unit]
            if _is_somebody(person) and None not in key:
                keys[person].add(key)
        people = Counter(key for own in keys.values() for key in _few(sorted(own), work.most, SystemRandom()))
        return pl.DataFrame(list(people), work.types, orient="row"), np.array(list(people.values()), np.int64)

    def _check_unit(self, unit: str | None) -> None:
        if unit is not None:
            self._must_have(unit)
            if self._types[unit].is_nested():
                msg = f"the privacy unit {unit!r} must be a value that Python can hash."
                raise TypeError(msg)

    def _must_have(self, name: str) -> None:
        if name not in self._types:
            msg = f"the rows must have the column {name!r}, got the columns {list(self._types)}."
            raise ValueError(msg)


def _histogram(rows: list[Row], work: Work, tally: Tally, random: Random) -> Histogram:
    people = defaultdict(list)
    for person, evidence in _evidence(rows, work, tally):
        people[person].append(evidence)
    weights: Counter[tuple[int, int]] = Counter()
    for own in people.values():
        if tally.people:
            most, together = 1 if tally.weighing is None else tally.weighing.largest, Counter[tuple[int, int]]()
            for group, code, weight in own:
                together[group, code] += weight
            own = [(group, code, min(weight, most)) for (group, code), weight in sorted(together.items())]
        for group, code, weight in _bounded(own, tally.limits, random):
            weights[group, code] += weight
    cells = sorted(weights)
    sizes = Counter(group for group, _ in cells)
    return Histogram(
        np.array([code for _, code in cells], np.int64),
        np.array([weights[cell] for cell in cells], np.int64),
        np.array([sizes[group] for group in range(work.groups)], np.int64),
    )


def _evidence(rows: list[Row], work: Work, tally: Tally) -> Iterator[tuple[object, Evidence]]:
    """Yield whose a row is, and what it says, of the rows that count."""
    names = [column.meta.root_names()[0] for column in tally.columns]
    columns = [
        pl.Series([row[name] for row in rows], dtype=dtype) for name, dtype in zip(names, tally.types, strict=True)
    ]
    codes = tally.coding.encoder()(columns).tolist() if columns else [0] * len(rows)
    weights = [1] * len(rows) if tally.weighing is None else tally.weighing.weigher()(columns).tolist()
    keys = None if work.keys is None else {key: group for group, key in enumerate(work.keys.rows())}
    for number, (row, code, weight) in enumerate(zip(rows, codes, weights, strict=True)):
        person = number if work.privacy_unit is None else row[work.privacy_unit]
        group = 0 if keys is None or work.keys is None else keys.get(tuple(row[name] for name in work.keys.columns))
        if _is_somebody(person) and group is not None and code != tally.coding.size:
            yield person, (group, code, weight)


def _is_somebody(person: object) -> bool:
    return person is not None and person == person  # NaN is not itself


def _people(rows: Iterable[Row], per_person: PerPerson) -> list[Row]:
    """Return a row for each person."""
    people, keys = defaultdict(list), per_person.keys
    for row in rows:
        if _is_somebody(person := row[per_person.privacy_unit]):
            people[person].append(row)
    if keys is None:
        return [{PER_PERSON: len(own)} for own in people.values()]
    listed = [{tuple(row[name] for name in keys.columns) for row in own} & set(keys.rows()) for own in people.values()]
    return [{PER_PERSON: len(own)} for own in listed if own]


def _bounded(own: list[Evidence], limits: Limits, random: Random) -> list[Evidence]:
    """Return what stays of one person's rows."""
    groups = _few(sorted({group for group, _, _ in own}), limits.groups, random)
    by_group = [[row for row in own if row[0] == group] for group in groups]
    return _few([row for rows in by_group for row in _few(rows, limits.rows_per_group, random)], limits.rows, random)


def _few(items: list[Any], most: int | None, random: Random) -> list[Any]:
    return items if most is None or len(items) <= most else random.sample(items, most)
