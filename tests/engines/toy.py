"""An engine in pure Python, written from nothing but the docstrings of `dp_polars/_release/contract.py`.

It shows that they suffice. It is no example of a fast engine.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from operator import itemgetter
from random import SystemRandom
from typing import Any

import numpy as np
import polars as pl

from dp_polars._base.numbers import Ints
from dp_polars._mechanisms.histograms import Histogram
from dp_polars._mechanisms.person_weights import ARRAYS, UNIT, PersonWeight, part_of
from dp_polars._release.contract import (
    ROWS_CUT,
    HistogramSpec,
    KeyWork,
    LocalEngine,
    PerPerson,
    PersonNumber,
    Work,
)
from dp_polars._release.protection import Limits
from tests.helpers.by_hand import cut, rows_cut

Row = dict[str, Any]
CountRule = tuple[int, int, int, float]  # group, code, weight, the row's number
_NUMBER = itemgetter(3)


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

    def distinct(self, lists: Sequence[pl.DataFrame]) -> list[int]:
        return [len(set(constants.rows())) for constants in lists]

    def prepare_histograms(self, work: Work) -> Callable[[], list[Histogram]]:
        self._check_unit(work.privacy_unit if work.per_person is None else work.per_person.privacy_unit)
        return lambda: self._histograms(work)

    def prepare_people_by_key(self, work: KeyWork) -> Callable[[], tuple[pl.DataFrame, Ints]]:
        self._check_unit(work.privacy_unit)
        return lambda: self._people_by_key(work)

    def _histograms(self, work: Work) -> list[Histogram]:
        rows = list(self._rows) if work.per_person is None else _people(list(self._rows), work.per_person)
        order = _Order(rows)
        return [_histogram(rows, work, spec, order) for spec in work.specs]

    def _people_by_key(self, work: KeyWork) -> tuple[pl.DataFrame, Ints]:
        keys = _keys_of(self._rows, work.privacy_unit, work.types)
        people = Counter(key for own in keys.values() for key in _few(sorted(own), work.most))
        return pl.DataFrame(list(people), work.types, orient="row"), np.array(list(people.values()), np.int64)

    def _check_unit(self, unit: tuple[str, ...] | None) -> None:
        for name in unit or ():
            self._must_have(name)
            if self._types[name].is_nested():
                msg = f"the privacy unit {name!r} must be a value that Python can hash."
                raise TypeError(msg)

    def _must_have(self, name: str) -> None:
        if name not in self._types:
            msg = f"the rows must have the column {name!r}, got the columns {list(self._types)}."
            raise ValueError(msg)


class _Order:
    """A number for each row, and for each group of each person: once for all specs of a release."""

    def __init__(self, rows: list[Row]) -> None:
        self.of_groups: defaultdict[tuple[object, int], float] = defaultdict(SystemRandom().random)
        self.of_rows = [SystemRandom().random() for _ in rows]


def _histogram(rows: list[Row], work: Work, spec: HistogramSpec, order: _Order) -> Histogram:
    weights: Counter[tuple[int, int]] = Counter()
    for person, found in _by_person(rows, work.privacy_unit, work.keys, spec, order).items():
        if spec.weight is not None:
            weights.update(_parts(found, spec, spec.weight))
            continue
        one_each = _one_each(found, spec) if spec.people else found
        for group, code, weight, _ in _first(one_each, person, spec.limits, order):
            weights[group, code] += weight
    cells = sorted(weights)
    sizes = Counter(group for group, _ in cells)
    return Histogram(
        np.array([code for _, code in cells], np.int64),
        np.array([weights[cell] for cell in cells], np.int64),
        np.array([sizes[group] for group in range(work.groups)], np.int64),
    )


def _numbers(found: list[CountRule], spec: HistogramSpec) -> Counter[int]:
    """Return how many rows, or codes, of a person contribute in each group."""
    return Counter(group for group, *_ in (_one_each(found, spec) if spec.people else found))


def _of_groups(numbers: Counter[int], weight: PersonWeight) -> dict[int, int]:
    """Return what a row of a person weighs in each group."""
    norm = sum(int(weight.norm(rows, ARRAYS)) for rows in numbers.values())
    return {group: int(weight.of_rows(norm, rows, ARRAYS)) for group, rows in numbers.items()}


def _parts(found: list[CountRule], spec: HistogramSpec, weight: PersonWeight) -> Counter[tuple[int, int]]:
    """Return what is added up for a person in each group and code, in parts."""
    of_group = _of_groups(_numbers(found, spec), weight)
    totals = Counter[tuple[int, int]]()
    for group, code, value, _ in _one_each(found, spec) if spec.people else found:
        totals[group, code] += value
    return Counter({cell: int(part_of(total, of_group[cell[0]], spec.bits, ARRAYS)) for cell, total in totals.items()})


def _one_each(found: list[CountRule], spec: HistogramSpec) -> list[CountRule]:
    """Return one row of a person for each group and code."""
    together: dict[tuple[int, int], list[CountRule]] = defaultdict(list)
    for row in found:
        together[row[0], row[1]].append(row)
    least, most = (1, 1) if spec.row_weight is None else spec.row_weight.of_person
    return [
        (group, code, min(max(sum(row[2] for row in same), least), most), min(row[3] for row in same))
        for (group, code), same in together.items()
    ]


def _first(found: list[CountRule], person: object, limits: Limits, order: _Order) -> list[CountRule]:
    """Return what stays of one person's rows."""
    groups = sorted({row[0] for row in found}, key=lambda group: order.of_groups[person, group])[: limits.groups]
    by_group = [sorted((row for row in found if row[0] == group), key=_NUMBER) for group in groups]
    return sorted((row for same in by_group for row in same[: limits.rows_per_group]), key=_NUMBER)[: limits.rows]


def _by_person(
    rows: list[Row], unit: tuple[str, ...] | None, keys: pl.DataFrame | None, spec: HistogramSpec, order: _Order
) -> dict[object, list[CountRule]]:
    """Return what each person's rows say, of those that count."""
    names = [column.meta.root_names()[0] for column in spec.columns]
    columns = [
        pl.Series([row[name] for row in rows], dtype=dtype) for name, dtype in zip(names, spec.types, strict=True)
    ]
    codes = spec.binning.encoder()(columns).tolist() if columns else [0] * len(rows)
    weights = [1] * len(rows) if spec.row_weight is None else spec.row_weight.weigh(columns).tolist()
    people: dict[object, list[CountRule]] = defaultdict(list)
    for number, (row, code, weight) in enumerate(zip(rows, codes, weights, strict=True)):
        person, group = _person(row, number, unit), _group_of(row, keys)
        if _is_somebody(person) and group is not None and code != spec.binning.size:
            people[person].append((group, code, weight, order.of_rows[number]))
    return people


def _group_of(row: Row, keys: pl.DataFrame | None) -> int | None:
    if keys is None:
        return 0
    key = tuple(row[name] for name in keys.columns)
    return next((group for group, listed in enumerate(keys.rows()) if listed == key), None)


def _person(row: Row, number: int, unit: tuple[str, ...] | None) -> tuple[object, ...]:
    return (number,) if unit is None else tuple(row[name] for name in unit)


def _is_somebody(person: tuple[object, ...]) -> bool:
    return all(value is not None and value == value for value in person)  # NaN is not itself


def _keys_of(rows: Iterable[Row], unit: tuple[str, ...] | None, columns: Iterable[str]) -> dict[Any, set[Any]]:
    """Return the keys that each person has, if any."""
    keys = defaultdict(set)
    for number, row in enumerate(rows):
        key, person = tuple(row[name] for name in columns), _person(row, number, unit)
        if _is_somebody(person) and None not in key:
            keys[person].add(key)
    return keys


def _people(rows: list[Row], per_person: PerPerson) -> list[Row]:
    """Return a row for each person, or for each who is cut."""
    unit, keys = per_person.privacy_unit, per_person.keys
    if per_person.by is not None:
        return [{PersonNumber.name(0): len(own)} for own in _keys_of(rows, unit, per_person.by).values()]
    if per_person.numbers:
        found = [_by_person(rows, unit, keys, one.spec, _Order(rows)) for one in per_person.numbers]
        every = dict.fromkeys(person for of in found for person in of)
        return [
            {
                PersonNumber.name(place): _number(of[person], one) if person in of else None
                for place, (one, of) in enumerate(zip(per_person.numbers, found, strict=True))
            }
            for person in every
        ]
    over, dropped = set(), Counter[object]()
    for spec in per_person.cut:
        held = _by_person(rows, unit, keys, spec, _Order(rows)).items()
        found = [(person, (group,), code, weight) for person, own in held for group, code, weight, _ in own]
        clips = spec.row_weight.of_person if spec.people and spec.row_weight is not None else spec.people
        over |= cut(found, spec.limits, clips)
        if spec.weight is None:
            dropped |= Counter(rows_cut(found, spec.limits, clips))
            continue
        for person, own in held:
            numbers = _numbers(own, spec)
            of_group = _of_groups(numbers, spec.weight)
            counted = sum(rows * of_group[group] for group, rows in numbers.items())
            over |= {person} if min(of_group.values()) < UNIT else set()
            dropped |= Counter({person: numbers.total() - (counted + UNIT // 2) // UNIT})
    return [{ROWS_CUT: dropped[person]} for person in over]


def _number(found: list[CountRule], number: PersonNumber) -> int:
    """Return a number of one person, of the contributing rows."""
    pick = max if number.what.startswith("largest") else min
    if number.what.endswith("total"):
        return pick(sum(value for one, _, value, _ in found if one == group) for group, *_ in found)
    if number.what.endswith("code"):
        return pick(code for _, code, *_ in found)
    counts = [min(rows, number.most) for rows in _numbers(found, number.spec).values()]
    if number.what in ("groups", "most rows"):
        return len(counts) if number.what == "groups" else max(counts)
    return sum(counts) if number.what == "rows" else sum(rows * rows for rows in counts)


def _few(items: list[Any], most: int) -> list[Any]:
    return items if len(items) <= most else SystemRandom().sample(items, most)
