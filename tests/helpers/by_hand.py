"""Codes and histograms in plain Python: what engines must agree with."""

from __future__ import annotations

import datetime as dt
import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from dp_polars._release.contract import PersonNumber
    from dp_polars._release.protection import Limits

CodeOf: TypeAlias = Callable[[Any], "int | None"]
Row: TypeAlias = "dict[str, Any]"
# A column, or several.
Unit: TypeAlias = "str | Sequence[str]"
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
    """What a row weighs: its value in whole steps, at least `least` and at most `most` of them; 0 without a value.

    Where people count, the sum of a person's weights lies between the ends of `of_person`.
    """

    column: str
    least: int
    most: int
    step: Fraction
    of_person: tuple[int, int]
    around: Callable[[int], int] = int

    def __call__(self, row: Row) -> int:
        value = row[self.column]
        if value is None or value != value:
            return 0
        if isinstance(value, float) and math.isinf(value):
            return self.around(self.most if value > 0 else self.least)
        return self.around(min(max(round(Fraction(value) / self.step), self.least), self.most))


def weight_of(
    column: str, upper: float, step: float, lower: float = 0, of_person: tuple[float, float] | None = None
) -> WeightOf:
    """Weights of a column, clipped to [lower, upper], in steps: the nearest, ties to even."""
    exact = Fraction(str(step))
    low, high = (int(end / exact) for end in of_person or (-upper, upper))
    return WeightOf(column, int(lower / exact), int(upper / exact), exact, (low, high))


def around(column: str, upper: float, step: float, lower: float = 0) -> WeightOf:
    """Distances from the middle of [lower, upper], in halves of a step."""
    plain = weight_of(column, upper, step, lower)
    return replace(plain, around=lambda units: 2 * units - plain.least - plain.most)


def squares(column: str, upper: float, step: float, lower: float = 0) -> WeightOf:
    """Squares of these distances around half of the largest, in the finest step of at most 2^30 to it."""
    distances = around(column, upper, step, lower)
    largest = (distances.most - distances.least) ** 2
    q = next(2**k for k in range(64) if largest <= 2**30 * 2**k)

    def rounded(square: int) -> int:
        return math.floor(Fraction(square, q) + Fraction(1, 2))

    return replace(distances, around=lambda units: 2 * rounded(distances.around(units) ** 2) - rounded(largest))


def person_of(row: Row, number: int, unit: Unit | None) -> tuple[Any, ...] | None:
    """Whose a row is; None: nobody's."""
    names = (unit,) if isinstance(unit, str) else unit
    person = (number,) if names is None else tuple(row[name] for name in names)
    return person if all(value is not None and value == value for value in person) else None


def contributing_rows(
    rows: Iterable[Row], keys: Sequence[Row] | None, column: str, code_of: CodeOf, unit: Unit | None
) -> list[tuple[Any, tuple[Any, ...], int, Row]]:
    """Person, key, code and the row itself, of the rows that count."""
    names = [] if keys is None else list(keys[0])
    listed = {()} if keys is None else {tuple(key.values()) for key in keys}
    found = []
    for number, row in enumerate(rows):
        person = person_of(row, number, unit)
        key = tuple(row[name] for name in names)
        code = None if row[column] is None else code_of(row[column])
        if person is not None and key in listed and code is not None:
            found.append((person, key, code, row))
    return found


def histograms(
    rows: Iterable[Row],
    keys: Sequence[Row] | None,
    column: str,
    code_of: CodeOf,
    *,
    unit: Unit | None = None,
    people: bool = False,
    weigh: WeightOf | None = None,
) -> Histograms:
    """The histogram of every public group, where nobody is over a bound."""
    counted: dict[tuple[Any, ...], Counter[int]] = defaultdict(Counter)
    together: Counter[tuple[str, tuple[Any, ...], int]] = Counter()
    for number, (person, key, code, row) in enumerate(contributing_rows(rows, keys, column, code_of, unit)):
        together[repr(person) if people else str(number), key, code] += 1 if weigh is None else weigh(row)
    least, most = (1, 1) if weigh is None else weigh.of_person
    for (_, key, code), weight in together.items():
        counted[key][code] += min(max(weight, least), most) if people else weight
    listed = [()] if keys is None else [tuple(key.values()) for key in keys]
    return {key: dict(counted[key]) for key in listed}


@dataclass(frozen=True)
class Part:
    """How much of a person counts: rows of a group up to a cap, then all groups by a norm of a power up to a limit."""

    cap: int | None
    limit: int | None
    power: int

    def of_rows(self, numbers: dict[Any, int]) -> dict[Any, int]:
        """What a row weighs in each group where a person has so many, in parts of 2^-20."""
        counted = {group: min(n, self.cap or n) for group, n in numbers.items()}
        norm, weight = sum(n**self.power for n in counted.values()), 1 << 20
        if self.limit is not None and norm > self.limit:
            if self.power == 1:
                weight = self.limit * weight // norm
            else:  # a root, a hair below
                weight = math.floor(weight * (1 - 2.0**-50) * math.sqrt(self.limit / norm))
        return {group: weight * n // numbers[group] for group, n in counted.items()}


def weighed(
    rows: Iterable[Row],
    keys: Sequence[Row] | None,
    column: str,
    code_of: CodeOf,
    part: Part,
    bits: int,
    *,
    unit: Unit,
    people: bool = False,
    weigh: WeightOf | None = None,
) -> dict[tuple[Any, ...], dict[int, Fraction]]:
    """The histogram of every public group, of people who count in part: sums are cut toward zero, to 2^-bits."""
    sums: dict[str, Counter[tuple[tuple[Any, ...], int]]] = defaultdict(Counter)
    numbers: dict[str, Counter[tuple[Any, ...]]] = defaultdict(Counter)
    for person, key, code, row in contributing_rows(rows, keys, column, code_of, unit):
        own, cell = repr(person), (key, code)
        if not people or cell not in sums[own]:
            numbers[own][key] += 1
        sums[own][cell] += 1 if weigh is None else weigh(row)
    least, most = (1, 1) if weigh is None else weigh.of_person
    listed = [()] if keys is None else [tuple(key.values()) for key in keys]
    counted: dict[tuple[Any, ...], dict[int, Fraction]] = {key: {} for key in listed}
    for person, cells in sums.items():
        weights = part.of_rows(numbers[person])
        for (key, code), total in cells.items():
            clipped = min(max(total, least), most) if people else total
            exact = Fraction(clipped * weights[key], 1 << 20)
            counted[key][code] = counted[key].get(code, Fraction(0)) + Fraction(math.trunc(exact * 2**bits), 2**bits)
    return counted


def cut(
    found: Iterable[tuple[Any, tuple[Any, ...], int, int]], limits: Limits, people: bool | tuple[int, int]
) -> set[Any]:
    """Of whom limits leave something out, of rows (person, key, code, weight); or clip a sum to two ends."""
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


def rows_cut(
    found: Iterable[tuple[Any, tuple[Any, ...], int, int]], limits: Limits, people: bool | tuple[int, int]
) -> dict[Any, int]:
    """How many rows of each person limits leave out, on average over all choices of groups, ties up."""
    own: dict[Any, list[tuple[tuple[Any, ...], int]]] = defaultdict(list)
    for person, key, code, _ in found:
        own[person].append((key, code))
    left_out = {}
    for person, cells in own.items():
        groups = Counter(key for key, _ in (set(cells) if people else cells))
        most = min(limits.groups or len(groups), len(groups))
        kept = [
            sum(min(groups[key], limits.rows_per_group or groups[key]) for key in chosen)
            for chosen in combinations(groups, most)
        ]
        stays = math.floor(Fraction(sum(kept), len(kept)) + Fraction(1, 2))
        left_out[person] = groups.total() - min(stays, limits.rows or stays)
    return left_out


def people_by_key(rows: Iterable[Row], columns: Sequence[str], unit: Unit | None) -> dict[tuple[Any, ...], int]:
    """The people of each key in some columns, where nobody is over a bound."""
    pairs = set()
    for number, row in enumerate(rows):
        person, key = person_of(row, number, unit), tuple(row[name] for name in columns)
        if person is not None and None not in key:
            pairs.add((repr(person), key))
    return dict(Counter(key for _, key in pairs))


def numbers(
    rows: Iterable[Row], keys: Sequence[Row] | None, unit: Unit, number: PersonNumber, column: str | None
) -> list[int]:
    """The number of each person who has one. `column`: that of the contributing values; None: all rows contribute."""
    ends = getattr(number.spec.binning, "ends", ())
    own: dict[str, dict[str, list[Any]]] = defaultdict(lambda: defaultdict(list))
    for place, row in enumerate(rows):
        key, person = None if keys is None else {name: row[name] for name in keys[0]}, person_of(row, place, unit)
        value = None if column is None else row[column]
        is_there = column is None or (value is not None and value == value)
        if person is not None and is_there and (keys is None or key in keys):
            own[repr(person)][repr(key)].append(value)
    found = []
    for groups in own.values():
        counts = [min(1 if number.spec.people else len(values), number.most) for values in groups.values()]
        values = [value for of_group in groups.values() for value in of_group if ends]
        if number.what.endswith("total"):
            low, high = number.spec.clamping.ends
            totals = [sum(min(max(round(value), low), high) for value in of_group) for of_group in groups.values()]
            found.append((max if number.what == "largest total" else min)(totals))
        elif number.what == "largest code":
            found.append(max(sum(value > end for end in ends) for value in values))
        elif number.what == "smallest code":
            found.append(min(sum(value >= end for end in ends) for value in values))
        else:
            squares = sum(count**2 for count in counts)
            of = {"rows": sum(counts), "squares": squares, "most rows": max(counts), "groups": len(counts)}
            found.append(of[number.what])
    return found
