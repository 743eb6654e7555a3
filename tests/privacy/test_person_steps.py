"""Steps on one person's rows: what the others contribute stays the same, and the released law keeps its bound.

All small data sets of two columns and three people, with and without one of them, behind every kind of step.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable

import numpy as np
import polars as pl
import pytest

import dp_polars as dpp
from dp_polars._frames.frame import PrivateFrame
from tests.privacy.datasets import histograms, largest_loss

pytestmark = pytest.mark.slow

EPSILON = 0.5
X, F = pl.col("x"), pl.col("f")
SCHEMA = {"p": pl.Int64, "x": pl.Int64, "f": pl.Float64}
# Rows of one person: a value twice, another zero, a null, NaN.
CELLS = [(0, -0.0), (1, 0.0), (1, float("nan")), (None, 1.0)]
PEOPLE = [list(rows) for n in (1, 2, 3) for rows in itertools.combinations_with_replacement(CELLS, n)]
STEPS: dict[str, Callable[[PrivateFrame], PrivateFrame]] = {
    "sum": lambda frame: frame.group_by("p").agg(X.sum()),
    "len": lambda frame: frame.group_by("p").agg(x=pl.len().cast(pl.Int64) - 1),
    "n_unique": lambda frame: frame.group_by("p").agg(x=F.n_unique()),
    "first": lambda frame: frame.group_by("p").agg(X.sort(nulls_last=True).first()),
    "spread": lambda frame: frame.group_by("p").agg(x=X.max() - X.min()),
    "step": lambda frame: frame.group_by("p").agg(X.sort().diff().max()),
    "least float": lambda frame: frame.group_by("p").agg(x=F.min().cast(pl.Int64)),
    "more": lambda frame: frame.group_by("p", "f").agg(X.sum()),
    "more twice": lambda frame: frame.group_by("p", "f").agg(X.sum()).group_by("p").agg(X.max()),
    "over": lambda frame: frame.with_columns(x=X - X.min().over("p")),
    "over more": lambda frame: frame.with_columns(x=pl.len().over("p", "f").cast(pl.Int64)),
    "rank": lambda frame: frame.with_columns(x=F.rank("dense").over("p").cast(pl.Int64)),
    "along": lambda frame: frame.select(X).with_columns(X.cum_sum().over("p", order_by="x")),
    "the first rows": lambda frame: frame.filter(X.min().over("p") == X),
    "people who come again": lambda frame: frame.filter(pl.len().over("p") > 1),
}
MEDIAN = dpp.quantile("x", 0.5, range(3), epsilon=EPSILON)
MODE = dpp.mode("x", range(3), epsilon=EPSILON)


def rows(*people: list[tuple[int | None, float]]) -> pl.DataFrame:
    cells = [(number, *cell) for number, cells in enumerate(people) for cell in cells]
    return pl.DataFrame(cells, SCHEMA, orient="row")


def sets() -> list[tuple[pl.DataFrame, pl.DataFrame]]:
    """Data sets of up to three people, each with the one that lacks its first person, whose rows are all that vary."""
    rng = np.random.default_rng(0)
    others = [[], *([PEOPLE[i]] for i in range(0, len(PEOPLE), 7))]
    others += [[PEOPLE[i] for i in rng.choice(len(PEOPLE), 2)] for _ in range(4)]
    return [(rows(person, *rest), rows([], *rest)) for person in PEOPLE for rest in others]


def counted(frame: PrivateFrame, data: pl.DataFrame, person: int | None = None) -> Counter[str]:
    """The rows after the steps, to the bit; without one person's."""
    after = frame._pipeline.proved(data.schema).rows(data.lazy()).collect()
    return Counter(map(repr, (row for row in after.iter_rows() if row[0] != person)))


@pytest.mark.parametrize("name", STEPS)
def test_what_the_others_contribute_stays_the_same(name: str) -> None:
    frame = STEPS[name](rows().dp.protect("p"))
    for data, without in sets():
        assert counted(frame, data, person=0) == counted(frame, without)


@pytest.mark.parametrize("name", STEPS)
def test_the_released_law_keeps_its_bound(name: str, relation: str) -> None:
    frame, worst = STEPS[name](dpp.protect("p", max_rows=3, neighboring_relation=relation)), 0.0
    for expr in (MEDIAN, MODE):
        query = frame.agg(expr)
        for rest in ([[(1, 0.0)]], [PEOPLE[3], PEOPLE[8]]):
            # No bound binds here: each person has three rows at most.
            without, *with_one = (histograms(query, rows(own, *rest), shape=(1, 3)) for own in ([], *PEOPLE))
            worst = max(worst, largest_loss(query, relation, without, with_one))
    assert 0.1 * EPSILON < worst <= EPSILON * (1 + 1e-9)
