"""A filter inside `agg`: rows for which it is not true take no place among those that bounds keep, and the law holds.

All small data sets of one person's rows, in each of which a condition is true, false or null, with and without them.
"""

from __future__ import annotations

import itertools
from typing import Any

import polars as pl
import pytest

import dp_polars as dpp
from dp_polars._engines.polars.engine import PolarsEngine
from dp_polars._statistics.measures import Count
from tests.privacy.datasets import histograms, largest_loss, loss

pytestmark = pytest.mark.slow

EPSILON = {"epsilon": 0.5}
X, C = pl.col("x"), pl.col("c")
SCHEMA = {"p": pl.String, "group": pl.Int64, "x": pl.Int64, "c": pl.Boolean}
CELLS = list(itertools.product([0, 1, None], [True, False, None]))
PEOPLE = [rows for n in (1, 2, 3) for rows in itertools.combinations_with_replacement(CELLS, n)]
# Nobody else has two rows: no bound cuts them. The last ones have a clear winner.
OTHERS = [[], [(0, True), (1, False), (1, True), (None, True)], [(1, True)] * 50]
# Each query, and the same one of rows that were filtered before.
RULES: dict[str, dict[str, Any]] = {
    "mode": {},
    "mode of rows": {"counts": "rows"},
    "mode by weight": {"counts": dpp.weights(X + 1, max_weight=2)},
}
ASKS: dict[str, tuple[dpp.PrivateExpr, dpp.PrivateExpr]] = {
    **{name: tuple(x.dp.mode([0, 1], **rule, **EPSILON) for x in (X.filter(C), X)) for name, rule in RULES.items()},
    "median": (X.filter(C).dp.median([0, 1], **EPSILON), X.dp.median([0, 1], **EPSILON)),
    "count": (X.filter(C).dp.count(**EPSILON), X.dp.count(**EPSILON)),
    "len": (dpp.len(where=C, **EPSILON), dpp.len(**EPSILON)),
    "n_people": (dpp.n_people(where=C, **EPSILON), dpp.n_people(**EPSILON)),
}


def rows(people: list[tuple[tuple[int | None, bool | None], ...]], number: int) -> pl.DataFrame:
    """The data sets of these people and of the others, each a group of its own, in which nobody else has rows."""
    cells = [
        (f"{group} {who}", group, *cell)
        for group, person in enumerate(people)
        for who, own in enumerate([person, *((cell,) for cell in OTHERS[number])])
        for cell in own
    ]
    return pl.DataFrame(cells, SCHEMA, orient="row")


def counted(query: dpp.PrivateQuery, data: pl.DataFrame) -> list[set[tuple[int, ...]]]:
    """Every histogram that counting gives, of each data set. One of probability 1/3 is missed with (2/3)**40 < 1e-7."""
    size = query._request.bind(PolarsEngine.of(data.lazy())).specs[0].binning.size
    found = histograms(query, data, shape=(query._request.groups, size), times=40)
    return [set(of_group) for of_group in zip(*found, strict=True)]


def lost(query: dpp.PrivateQuery, one: tuple[int, ...], two: tuple[int, ...]) -> float:
    """The largest log-ratio of what is drawn from two histograms."""
    [ask] = query._asks
    if isinstance(ask.query, Count):
        (noise,) = ask.query.noise()  # people count in parts
        return float(noise.rate) * abs(one[0] - two[0])
    return loss(query, [one], [two])


@pytest.mark.parametrize("bounds", [{"max_rows": 1}, {"max_rows_per_group": 2}], ids=str)
@pytest.mark.parametrize("name", ASKS)
def test_rows_where_it_is_not_true_take_no_place(name: str, bounds: dict[str, int]) -> None:
    inside, before = ASKS[name]
    people, keys = [(), *PEOPLE], {"group": range(1 + len(PEOPLE))}
    data = rows(people, 1)
    found = counted(dpp.protect("p", **bounds).group_by(keys).agg(a=inside), data)
    assert found == counted(dpp.protect("p", **bounds).filter(C).group_by(keys).agg(a=before), data)
    for person, seen in zip(people, found, strict=True):
        if not any(true for _, true in person):  # as if they were not there
            assert seen == found[0]


@pytest.mark.parametrize("name", ASKS)
def test_the_released_law_keeps_its_bound(name: str, relation: str) -> None:
    frame, people = dpp.protect("p", max_rows=1, neighboring_relation=relation), [(), *PEOPLE]
    keys = {"group": range(len(people))}
    query = frame.group_by(keys).agg(a=ASKS[name][0])
    worst = 0.0
    for number in range(len(OTHERS)):
        first, *others = counted(query, rows(people, number))
        worst = max(worst, largest_loss(query, relation, first, others, lost))
    assert worst <= 0.5 * (1 + 1e-9)
    assert worst >= 0.5 * (0.4 if name == "median" or relation == "replace_one" else 0.9)
