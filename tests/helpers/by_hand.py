"""Codes and histograms in plain Python: what engines must agree with."""

from __future__ import annotations

import datetime as dt
import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from dp_polars._engines.bounding import Limits

CodeOf: TypeAlias = Callable[[Any], "int | None"]
Row: TypeAlias = "dict[str, Any]"
# Key -> code -> weight.
Histograms: TypeAlias = "dict[tuple[Any, ...], dict[int, int]]"

_MICROSECOND = dt.timedelta(microseconds=1)


def category_code(candidates: Sequence[Any]) -> CodeOf:
    """A value's position among the candidates."""
    return lambda value: candidates.index(value) if value in candidates else None


def nearest_code(points: Sequence[Any]) -> CodeOf:
    """The position of the candidate that is nearest to a value, ties down; NaN has none."""
    exact = [_number(point) for point in points]
    middles = [(a + b) / 2 for a, b in pairwise(exact)]
    return lambda value: None if value != value else bisect_left(middles, _number(value))


def _number(value: Any) -> Any:
    """A value on the axis of its type, exactly; times in microseconds."""
    if isinstance(value, dt.datetime):
        return Fraction((value - dt.datetime(1970, 1, 1, tzinfo=value.tzinfo)) // _MICROSECOND)
    if isinstance(value, dt.date):
        return _number(dt.datetime(value.year, value.month, value.day))
    if isinstance(value, dt.time):
        return _number(dt.datetime.combine(dt.date(1970, 1, 1), value))
    if isinstance(value, dt.timedelta):
        return Fraction(value // _MICROSECOND)
    if isinstance(value, float):  # taken for the decimal that it prints as
        return value if math.isinf(value) else Fraction(str(value))
    return Fraction(value)


@dataclass(frozen=True)
class WeightOf:
    """What a row weighs: its value in whole steps, at least `least` and at most `most` of them; 0 without a value."""

    column: str
    least: int
    most: int
    step: Fraction

    def __call__(self, row: Row) -> int:
        value = row[self.column]
        if value is None or value != value:
            return 0
        if isinstance(value, float) and math.isinf(value):
            return self.most if value > 0 else self.least
        return min(max(round(Fraction(value) / self.step), self.least), self.most)


def weight_of(column: str, upper: float, step: float, lower: float = 0) -> WeightOf:
    """Weights of a column, clipped to [lower, upper], in steps: the nearest, ties to even."""
    exact = Fraction(str(step))
    return WeightOf(column, int(lower / exact), int(upper / exact), exact)


def evidence(
    rows: Iterable[Row],
    keys: Sequence[Row] | None,
    column: str,
    code_of: CodeOf,
    unit: str | None,
) -> list[tuple[Any, tuple[Any, ...], int, Row]]:
    """Person, key, code and the row itself, of the rows that count."""
    names = [] if keys is None else list(keys[0])
    listed = {()} if keys is None else {tuple(key.values()) for key in keys}
    found = []
    for number, row in enumerate(rows):
        person = number if unit is None else row[unit]
        key = tuple(row[name] for name in names)
        code = None if row[column] is None else code_of(row[column])
        if person is not None and person == person and key in listed and code is not None:
            found.append((person, key, code, row))
    return found


def histograms(
    rows: Iterable[Row],
    keys: Sequence[Row] | None,
    column: str,
    code_of: CodeOf,
    *,
    unit: str | None = None,
    people: bool = False,
    weigh: WeightOf | None = None,
) -> Histograms:
    """The histogram of every public group, where nobody is over a bound."""
    counted: dict[tuple[Any, ...], Counter[int]] = defaultdict(Counter)
    whose: Counter[tuple[str, tuple[Any, ...], int]] = Counter()
    for person, key, code, row in evidence(rows, keys, column, code_of, unit):
        before = whose[repr(person), key, code]
        most = 1 if weigh is None else weigh.most
        weight = 1 if weigh is None else weigh(row)
        if people:
            weight = min(weight, most - before)
        whose[repr(person), key, code] += weight
        counted[key][code] += weight
    listed = [()] if keys is None else [tuple(key.values()) for key in keys]
    return {key: dict(counted[key]) for key in listed}


def cut(
    found: Iterable[tuple[Any, tuple[Any, ...], int, int]], limits: Limits, people: bool | tuple[int, int]
) -> set[Any]:
    """Of whom limits leave something out, of evidence (person, key, code, weight); or clip a sum to two ends."""
    own: dict[Any, list[tuple[tuple[Any, ...], int]]] = defaultdict(list)
    sums: Counter[tuple[Any, tuple[Any, ...], int]] = Counter()
    for person, key, code, weight in found:
        own[person].append((key, code))
        sums[person, key, code] += weight
    over = set()
    for person, cells in own.items():
        groups = Counter(key for key, _ in (set(cells) if people else cells))
        numbers = {"rows": groups.total(), "groups": len(groups), "rows_per_group": max(groups.values())}
        if any(most is not None and numbers[name] > most for name, most in vars(limits).items()):
            over.add(person)
    if isinstance(people, tuple):
        over |= {person for (person, *_), total in sums.items() if not people[0] <= total <= people[1]}
    return over


def people_by_key(rows: Iterable[Row], columns: Sequence[str], unit: str | None) -> dict[tuple[Any, ...], int]:
    """The people of each key in some columns, where nobody is over a bound."""
    pairs = set()
    for number, row in enumerate(rows):
        person, key = number if unit is None else row[unit], tuple(row[name] for name in columns)
        if person is not None and person == person and None not in key:
            pairs.add((repr(person), key))
    return dict(Counter(key for _, key in pairs))


def per_person(rows: Iterable[Row], keys: Sequence[Row] | None, unit: str) -> dict[str, int]:
    """How many rows, or listed groups, each person has who has some."""
    own = defaultdict(list)
    for row in rows:
        if row[unit] is not None and row[unit] == row[unit]:
            key = None if keys is None else {name: row[name] for name in keys[0]}
            if keys is None or (key in keys and key not in own[repr(row[unit])]):
                own[repr(row[unit])].append(key)
    return {person: len(found) for person, found in own.items() if found}
