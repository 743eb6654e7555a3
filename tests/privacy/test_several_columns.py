"""A unit of two columns: what comes of one combination does not touch the others, also where one column is the same.

All small data sets of three people are tried, with and without one of them, and with null in either column, behind what
is made of their rows before `protect`. Then the law of a whole release keeps its bound.
"""

from __future__ import annotations

import functools
import itertools
from collections import Counter
from collections.abc import Callable

import polars as pl
import pytest

import dp_polars as dpp
from tests.privacy.datasets import check_alone, histograms, largest_loss

pytestmark = pytest.mark.slow

UNIT = ["q", "p"]
X = pl.col("x")
SCHEMA = {"p": pl.String, "q": pl.String, "x": pl.Int64}
# People who differ in one column, or are one text together.
PEOPLE = [("a", "bc"), ("ab", "c"), ("a", "c")]
# What a person may have.
CELLS: list[list[int | None]] = [[], [0], [1, 1], [2, None, 0]]
NOBODY = [(None, "bc", 1), ("a", None, 1), (None, None, 2)]
EPSILON = 0.5
MEDIAN = dpp.quantile("x", 0.5, range(3), epsilon=EPSILON)
MODE = dpp.mode("x", range(3), epsilon=EPSILON)
STEPS: dict[str, Callable[[pl.LazyFrame], pl.LazyFrame]] = {
    "nothing": lambda frame: frame,
    "sum": lambda frame: frame.group_by("p", "q").agg(X.sum()),
    "more": lambda frame: frame.group_by("p", "x", "q").agg(n=pl.len().cast(pl.Int64)),
    "over": lambda frame: frame.with_columns(x=X - X.min().over("q", "p")),
    "the first rows": lambda frame: frame.filter(X.min().over("p", "q") == X),
    "unique": lambda frame: frame.unique(),
    "alone": lambda frame: frame.unique(["p", "q", "x"], keep="none"),
    "join": lambda frame: frame.join(OTHER.lazy(), on=["p", "q"], how="inner"),
    "semi": lambda frame: frame.join(OTHER.lazy(), on=["q", "p"], how="semi"),
    "anti": lambda frame: frame.join(OTHER.lazy(), on=["q", "p", "x"], how="anti"),
}


def rows(*chosen: int) -> pl.DataFrame:
    cells = [(*person, x) for person, one in zip(PEOPLE, chosen, strict=True) for x in CELLS[one]]
    return pl.DataFrame(cells + NOBODY, SCHEMA, orient="row")


OTHER = pl.DataFrame([("a", "bc", 1), ("a", "bc", 0), ("ab", "c", 2), (None, "c", 0)], SCHEMA, orient="row")


def after(name: str, data: pl.DataFrame) -> list[Counter[tuple[object, ...]]]:
    """The rows after the steps, of each person."""
    plan = STEPS[name](data.lazy())
    plan.dp.protect(UNIT)  # takes it
    by_person: dict[tuple[str, str], Counter[tuple[object, ...]]] = {person: Counter() for person in PEOPLE}
    for row in plan.collect().rows(named=True):
        if row["p"] is not None and row["q"] is not None:
            by_person[row["p"], row["q"]][tuple(sorted((name, str(value)) for name, value in row.items()))] += 1
    return list(by_person.values())


@pytest.mark.parametrize("name", STEPS)
def test_what_comes_of_a_person_is_what_comes_of_that_person_alone(name: str) -> None:
    assert True in check_alone(lambda chosen: after(name, rows(*chosen)), range(len(CELLS)))


@pytest.mark.parametrize("name", ["nothing", "sum", "over", "alone"])
def test_the_released_law_keeps_its_bound(name: str, relation: str) -> None:
    frame, worst = dpp.protect(UNIT, max_rows=3, neighboring_relation=relation), 0.0
    for expr in (MEDIAN, MODE):
        query = frame.agg(expr)

        @functools.cache
        def counted(*chosen: int, query: dpp.PrivateQuery = query) -> object:
            return histograms(query, STEPS[name](rows(*chosen).lazy()).collect(), shape=(1, 3))

        for others in itertools.product(range(len(CELLS)), repeat=2):
            for place in range(len(PEOPLE)):
                found = [counted(*others[:place], own, *others[place:]) for own in range(len(CELLS))]
                worst = max(worst, largest_loss(query, relation, found[0], found))
    assert 0.1 * EPSILON < worst <= EPSILON * (1 + 1e-9)
