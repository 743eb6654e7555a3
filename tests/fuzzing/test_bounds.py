"""Nobody adds more than the claim is charged for, and what is kept of everybody is the histogram of the reference.

Random rows, keys, people and bounds, seen through whole releases of engines that make histograms here.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import hypothesis.strategies as st
import polars as pl
import pytest

from dp_polars._release.protection import Limits, Protection
from tests.engines import test_conformance as suites
from tests.engines.conformance import Conformance, protected
from tests.fuzzing.exploring import explore
from tests.helpers import by_hand
from tests.registry import COLUMNS, UNITS, ask

ENGINES = {
    "in memory": suites.TestPolarsInMemory,
    "streaming": suites.TestPolarsStreaming,
    "in parts": suites.TestPolarsInParts,
    "toy": suites.TestToy,
}
# A person's codes are their own, so that codes tell whose they are.
PEOPLE, CODES, GROUPS = 6, 4, 4
MANY = 10**6


@dataclass(frozen=True)
class Case:
    """Rows (person, group, code), where any may be null or not listed, what is asked, and the bounds of one person."""

    rows: tuple[tuple[int | None, int | None, int | None], ...]
    groups: int
    asked: str
    options: tuple[tuple[str, Any], ...]
    bounds: tuple[tuple[str, int], ...]


@st.composite
def bounded(draw: st.DrawFn) -> Case:
    person = st.one_of(st.none(), st.integers(0, PEOPLE - 1), st.just(0))  # the first has many rows
    row = st.tuples(person, st.one_of(st.none(), st.integers(0, GROUPS)), st.one_of(st.none(), st.integers(0, CODES)))
    rows = draw(st.lists(row, max_size=60))
    asked = draw(st.sampled_from(["mode", "median", "quantile"]))
    options = {draw(st.sampled_from(["epsilon", "rho"])): 1}
    if asked == "mode" and draw(st.booleans()):
        options["counts"] = "rows"
    names = ["max_rows", "max_groups", "max_rows_per_group"]
    bounds = {name: draw(st.integers(1, 5)) for name in names if draw(st.booleans())}
    if not {"max_rows", "max_rows_per_group"} & set(bounds):
        bounds["max_rows"] = draw(st.integers(1, 9))
    groups = draw(st.integers(1, GROUPS))
    return Case(tuple(rows), groups, asked, tuple(options.items()), tuple(bounds.items()))


def check_bounds(suite: Conformance, case: Case) -> None:
    beyond = PEOPLE * CODES  # no candidate
    own = [(p, g, None if x is None or p is None else beyond if x == CODES else p * CODES + x) for p, g, x in case.rows]
    frame = pl.DataFrame(own, schema=dict.fromkeys("pgx", pl.Int64), orient="row")
    if case.asked != "mode":  # every value counts for its nearest candidate
        frame = frame.with_columns(x=pl.when(pl.col("x") < beyond).then("x"))
    candidates = list(range(beyond))
    arguments = (0.3, candidates) if case.asked == "quantile" else (candidates,)
    query = protected({"g": range(case.groups)}, "p", **dict(case.bounds)).agg(
        out=ask(case.asked, "x", *arguments, **dict(case.options))
    )
    (asked,) = query._asks
    claim, people = asked.query.claim.contributions, query._protection.counts_people(asked.query)
    told = suite.told(query, frame)["out"]
    contributing = Counter(
        (p, g, x) for p, g, x in frame.rows() if None not in (p, g, x) and g < case.groups and x < beyond
    )
    kept: Counter[tuple[int, int, int]] = Counter()
    for (group,), counts in told.items():
        kept.update({(code // CODES, group, code): n for code, n in counts.items()})
    most = Counter(dict.fromkeys(contributing, 1)) if people else contributing
    assert kept <= most, "what is counted is not there"
    limits = dict(case.bounds)
    for person in {p for p, _, _ in contributing}:
        here, there = (Counter({cell: n for cell, n in cells.items() if cell[0] == person}) for cells in (kept, most))
        by_group = Counter[int]()
        for (_, group, _), n in here.items():
            by_group[group] = 1 if people and asked.query.limits_people else by_group[group] + n
        sizes = by_group.values()
        assert sum(sizes) <= claim.total
        assert max(sizes, default=0) <= claim.per_group
        assert sum(size**2 for size in sizes) <= claim.squares
        assert len(sizes) <= limits.get("max_groups", case.groups)
        assert len(sizes) >= 1, "somebody is left out"
        if people:
            for group in by_group:  # all that a person has in a group that is kept
                assert sum(n for cell, n in here.items() if cell[1] == group) == sum(
                    n for cell, n in there.items() if cell[1] == group
                )
        else:
            least, largest = numbers_kept(there, limits)
            assert least <= here.total() <= largest


def numbers_kept(there: Counter[tuple[int, int, int]], limits: dict[str, int]) -> tuple[int, int]:
    """The least and the most rows of a person that may be kept: it hangs on which groups are."""
    by_group = Counter[int]()
    for (_, group, _), n in there.items():
        by_group[group] += n
    each = sorted(min(n, limits.get("max_rows_per_group", MANY)) for n in by_group.values())
    groups, total = min(limits.get("max_groups", MANY), len(each)), limits.get("max_rows", MANY)
    return min(sum(each[:groups]), total), min(sum(each[len(each) - groups :]), total)


@dataclass(frozen=True)
class Whole:
    """Rows of a column of some kind, people of some kind, and keys; nobody is over a bound."""

    kind: str
    unit: str
    rows: tuple[tuple[int | None, int | None, int | None], ...]  # the places of person, key and value
    keys: tuple[int, ...]


@st.composite
def whole(draw: st.DrawFn, kinds: frozenset[str]) -> Whole:
    kind = draw(st.sampled_from(sorted(name for name in COLUMNS if name in kinds)))
    unit = draw(st.sampled_from(sorted(name for name in UNITS if name in kinds)))
    people, values = UNITS[unit][1], COLUMNS[kind].values

    def place(of: list[Any]) -> st.SearchStrategy[int | None]:
        return st.one_of(st.none(), st.integers(0, len(of) - 1), st.integers(0, 1))

    rows = draw(st.lists(st.tuples(place(people), place([0] * 4), place(values)), max_size=40))
    keys = draw(st.lists(st.integers(0, 4), min_size=1, unique=True))
    return Whole(kind, unit, tuple(rows), tuple(keys))


def check_whole(suite: Conformance, case: Whole) -> None:
    column, (unit, people) = COLUMNS[case.kind], UNITS[case.unit]

    def at(values: list[Any], places: list[int | None], dtype: pl.DataType) -> pl.Series:
        return pl.Series([None if place is None else values[place] for place in places], dtype=dtype, strict=False)

    persons, keys, values = ([row[i] for row in case.rows] for i in range(3))
    frame = pl.DataFrame(
        {
            "p": at(people, persons, unit),
            "g": pl.Series(keys, dtype=pl.Int64),
            "x": at(column.values, values, column.dtype),
        }
    )
    asked, codes = {}, {}
    if column.categories is not None:
        asked["mode"] = ask("mode", "x", pl.Series(column.categories, dtype=column.dtype), epsilon=1)
        codes["mode"] = by_hand.category_code(column.categories)
    for i, (given, points) in enumerate(column.points):
        asked[f"quantile {i}"] = ask("quantile", "x", 0.3, given, rho=1)
        codes[f"quantile {i}"] = by_hand.nearest_code(points)
    query = protected({"g": case.keys}, "p", max_rows_per_group=MANY).agg(**asked)
    for name, found in suite.told(query, frame).items():
        expected = by_hand.histograms(
            frame.to_dicts(), [{"g": key} for key in case.keys], "x", codes[name], unit="p", people=name == "mode"
        )
        assert found == expected, name


# Cases that once were wrong, in this package or in a mutant of it (tests/mutation).
KNOWN = [
    Case(
        ((0, 0, 0),) * 12, 4, "median", (("rho", 1),), (("max_rows", 3), ("max_groups", 2), ("max_rows_per_group", 2))
    ),
    Case(((0, 0, 0),) * 12, 4, "median", (("rho", 1),), (("max_rows", 5), ("max_rows_per_group", 2))),
    Case(
        tuple((0, g, 0) for g in range(4)), 4, "median", (("rho", 1),), (("max_groups", 2), ("max_rows_per_group", 3))
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_nobody_adds_more_than_is_charged(engine, request):
    suite = ENGINES[engine]()
    explore(lambda case: check_bounds(suite, case), bounded(), examples=150, known=KNOWN, config=request.config)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_histograms_are_those_of_the_reference(engine, request):
    suite = ENGINES[engine]()
    kinds = suite.kinds - {"Struct", "List"}  # which the reference tells apart by how they print
    explore(lambda case: check_whole(suite, case), whole(kinds), examples=100, config=request.config)


def test_a_bound_that_is_not_enforced_is_found(monkeypatch):
    """The negative control: everything is kept, whatever the bounds."""
    monkeypatch.setattr(Protection, "drawn_limits", lambda *_: Limits())
    with pytest.raises(AssertionError):
        explore(lambda case: check_bounds(suites.TestToy(), case), bounded(), examples=100, shrinks=False)
