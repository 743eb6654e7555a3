"""A filter inside `agg`: rows for which it is not true take no place among those that bounds keep, and the law holds.

All small data sets of one person's rows, in each of which a condition is true, false or null, with and without them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import polars as pl
import pytest

import dp_polars as dpp
from dp_polars._engines.polars_engine import PolarsEngine
from dp_polars._questions.measures import Count
from dp_polars._questions.modes import Mode
from tests.helpers.reference import floats, law

pytestmark = pytest.mark.slow

EPSILON = {"epsilon": 0.5}
X, C = pl.col("x"), pl.col("c")
SCHEMA = {"p": pl.Int64, "x": pl.Int64, "c": pl.Boolean}
CELLS = list(itertools.product([0, 1, None], [True, False, None]))
PEOPLE = [rows for n in (1, 2, 3) for rows in itertools.combinations_with_replacement(CELLS, n)]
# Nobody else has two rows: no bound cuts them. The last ones have a leader.
OTHERS = [[], [(0, True), (1, False), (1, True), (None, True)], [(1, True)] * 50]
# Each question, and the same one of rows that were filtered before.
ASKS: dict[str, tuple[dpp.PrivateExpr, dpp.PrivateExpr]] = {
    "mode": (X.filter(C).dp.mode([0, 1], **EPSILON), X.dp.mode([0, 1], **EPSILON)),
    "mode of rows": (
        X.filter(C).dp.mode([0, 1], counts="rows", **EPSILON),
        X.dp.mode([0, 1], counts="rows", **EPSILON),
    ),
    "mode by weight": (
        X.filter(C).dp.mode([0, 1], weights=X + 1, max_weight=2, **EPSILON),
        X.dp.mode([0, 1], weights=X + 1, max_weight=2, **EPSILON),
    ),
    "median": (X.filter(C).dp.median([0, 1], **EPSILON), X.dp.median([0, 1], **EPSILON)),
    "count": (X.filter(C).dp.count(**EPSILON), X.dp.count(**EPSILON)),
    "len": (dpp.len(where=C, **EPSILON), dpp.len(**EPSILON)),
    "n_people": (dpp.n_people(where=C, **EPSILON), dpp.n_people(**EPSILON)),
}


def rows(person: tuple[tuple[int | None, bool | None], ...], number: int) -> pl.DataFrame:
    others = [(1 + i, *cell) for i, cell in enumerate(OTHERS[number])]
    return pl.DataFrame([*((0, *cell) for cell in person), *others], SCHEMA, orient="row")


def histograms(query: dpp.PrivateQuery, data: pl.DataFrame, times: int) -> set[tuple[int, ...]]:
    """Every histogram that counting gives; of three rows at most, one that is kept by chance is missed by none."""
    engine = PolarsEngine(data.lazy(), data.lazy)
    work = query.request.bind(engine)
    size = work.tallies[0].coding.size
    found = set()
    for _ in range(times):
        [sparse] = engine.prepare_histograms(work)()
        dense = np.zeros(size, np.int64)
        dense[sparse.codes] = sparse.weights
        found.add(tuple(dense.tolist()))
    return found


def times(person: tuple[object, ...]) -> int:
    return 1 if len(person) <= 1 else 40  # (2/3)**40 < 1e-7


def lost(query: dpp.PrivateQuery, one: tuple[int, ...], two: tuple[int, ...]) -> float:
    """The largest log-ratio of what is drawn from two histograms."""
    [ask] = query.asks
    claim = ask.query.claim
    if isinstance(ask.query, Count):
        return float(claim.rate) * abs(one[0] - two[0])
    logs = [
        np.log(floats(law(scores(counts, ask.query), rate=rate, mechanism=claim.mechanism, digits=20)))
        for rate in [ask.query.draw(*[pl.Int64()] * len(ask.columns)).rate]
        for counts in (one, two)
    ]
    return float(np.abs(logs[0] - logs[1]).max())


def scores(counts: tuple[int, ...], query: object) -> list[int]:
    if isinstance(query, Mode):
        return list(counts)
    upto, total = np.cumsum(counts), sum(counts)
    return [-max(0, total - 2 * a, 2 * (a - n) - total + 1) for n, a in zip(counts, upto.tolist(), strict=True)]


@pytest.mark.parametrize("bounds", [{"max_rows": 1}, {"max_rows_per_group": 2}], ids=str)
@pytest.mark.parametrize("name", ASKS)
def test_rows_where_it_is_not_true_take_no_place(name: str, bounds: dict[str, int]) -> None:
    inside, before = ASKS[name]
    by_agg = dpp.protect("p", **bounds).agg(a=inside)
    by_frame = dpp.protect("p", **bounds).filter(C).agg(a=before)
    for person in PEOPLE:
        data = rows(person, 1)
        found = histograms(by_agg, data, times(person))
        assert found == histograms(by_frame, data, times(person))
        if not any(true for _, true in person):  # as if they were not there
            assert found == histograms(by_agg, rows((), 1), 1)


@pytest.mark.parametrize("relation", ["add_or_remove_one", "replace_one"])
@pytest.mark.parametrize("name", ASKS)
def test_the_released_law_keeps_its_bound(name: str, relation: str) -> None:
    query = dpp.protect("p", max_rows=1, neighboring_relation=relation).agg(a=ASKS[name][0])
    few: list[tuple[tuple[int | None, bool | None], ...]] = [(), *PEOPLE[: len(CELLS)], *PEOPLE[len(CELLS) :: 9]]
    worst = 0.0
    for number in range(len(OTHERS)):
        found = [histograms(query, rows(person, number), times(person)) for person in few]
        pairs: Callable[..., object] = itertools.combinations
        for one, two in pairs(found, 2) if relation == "replace_one" else ((found[0], other) for other in found):
            worst = max(worst, *(lost(query, a, b) for a, b in itertools.product(one, two)))
    assert worst <= 0.5 * (1 + 1e-9)
    assert worst >= 0.5 * (0.4 if name == "median" or relation == "replace_one" else 0.9)
