"""Per person: the law of a whole released frame, for all small frames with and without one person.

The frames' other people have so few rows that no bound binds; the person who is added is bounded at random.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import polars as pl
import pytest

import dp_polars as dpp
from dp_polars._frames.query import PrivateQuery
from tests.helpers.reference import bounded_range_rho
from tests.privacy.datasets import histograms, largest_loss, loss

pytestmark = pytest.mark.slow

GROUPS, SIZE = 3, 3
KEYS = {"group": range(GROUPS)}
EPSILON = 0.5
# How often a frame is counted to see what the random bounds can keep. A person has at most 3 rows, so there are at most
# 3 ways to keep some; one of probability 1/3 is missed with probability (2/3)**30 < 1e-5. To miss one makes the test
# weaker, never wrong.
SEEDS = 30

BASES = [
    [],
    [("b", 0, 0)],
    [("b", 0, 1), ("c", 0, 2)],
    [("b", 0, 0), ("c", 1, 0), ("d", 0, 0), ("e", 2, 2)],
    [
        (f"{group} {i}", group, 1) for i in range(80) for group in range(GROUPS)
    ],  # one gaps by far: there the bound is attained
]


def frame(rows: list[tuple[str, int, int]]) -> pl.DataFrame:
    return pl.DataFrame(rows, {"person": pl.String, "group": pl.Int64, "value": pl.Int64}, orient="row")


def counted(query: PrivateQuery, rows: list[tuple[str, int, int]], times: int = 1) -> set[tuple[tuple[int, ...], ...]]:
    return histograms(query, frame(rows), shape=(GROUPS, SIZE), times=times)


def persons() -> list[list[tuple[str, int, int]]]:
    """All people with up to three rows in up to three groups."""
    cells = list(itertools.product(range(GROUPS), range(SIZE)))
    return [
        [("a", group, value) for group, value in rows]
        for n in (1, 2, 3)
        for rows in itertools.combinations_with_replacement(cells, n)
    ]


MODE = dpp.mode("value", range(SIZE), epsilon=EPSILON)
MEDIAN = dpp.median("value", range(SIZE), epsilon=EPSILON)


def weighed(of: str = "people", too_few: int | None = None) -> dpp.PrivateExpr:
    """The value that weighs most; one row of the last value, and two of any, weigh as much as one person may."""
    weights = dpp.weights(pl.col("value") + 1, max_weight=2, of=of)
    return dpp.mode("value", range(SIZE), counts=weights, too_few=too_few, epsilon=EPSILON)


NINTH = dpp.quantile("value", 0.9, range(SIZE), epsilon=EPSILON, mechanism="exponential")


@pytest.mark.parametrize(
    ("bounds", "expr", "tight"),
    [
        ({"max_groups": 2}, MODE, 0.99),
        ({"max_groups": 1}, dpp.mode("value", range(SIZE), epsilon=EPSILON, mechanism="exponential"), 0.6),
        ({"max_rows": 2}, MODE, 0.99),
        ({}, MODE, 0.99),
        ({"max_rows": 2}, MEDIAN, 0.5),
        ({"max_rows_per_group": 1, "max_groups": 2}, MEDIAN, 0.5),
        ({"max_rows_per_group": 2, "max_groups": 2, "max_rows": 3}, NINTH, 0.2),
        ({"max_rows_per_group": 1}, MEDIAN, 0.5),
        ({"max_rows": 2}, dpp.mode("value", range(SIZE), epsilon=EPSILON, counts="rows"), 0.99),
        (
            {"max_rows_per_group": 2, "max_groups": 1},
            dpp.mode("value", range(SIZE), epsilon=EPSILON, counts="rows"),
            0.99,
        ),
        ({"max_groups": 2}, dpp.mode("value", range(SIZE), epsilon=EPSILON, too_few=2), 0.99),
        ({"max_groups": 1}, dpp.mode("value", range(SIZE), epsilon=EPSILON, too_few=80), 0.5),
        ({"max_rows": 2}, dpp.mode("value", range(SIZE), epsilon=EPSILON, too_few=3, counts="rows"), 0.99),
        ({"max_groups": 2}, weighed(), 0.99),
        ({"max_groups": 1}, weighed(too_few=2), 0.99),
        ({"max_rows": 2}, weighed(of="rows"), 0.99),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else None,
)
def test_adding_a_person_costs_at_most_the_loss(bounds: dict[str, int], expr: dpp.PrivateExpr, tight: float) -> None:
    query = dpp.protect("person", **bounds).group_by(KEYS).agg(expr)
    rng = np.random.default_rng(0)
    people = persons()
    chosen = [people[i] for i in rng.choice(len(people), 12, replace=False)]
    chosen += [[("a", g, 0) for g in range(GROUPS)], [("a", 0, 0)] * 3, [("a", 0, v) for v in range(SIZE)]]
    worst = 0.0
    for base in (BASES[1], BASES[3], BASES[4]):
        found = [counted(query, base + person, 1 if len(person) == 1 else SEEDS) for person in chosen]
        worst = max(worst, largest_loss(query, "add_or_remove_one", counted(query, base), found))
    assert tight * EPSILON <= worst <= EPSILON * (1 + 1e-12)


@pytest.mark.parametrize("too_few", [None, 1, 2, 80])
def test_replacing_a_person_costs_at_most_the_loss(too_few: int | None) -> None:
    expr = dpp.mode("value", range(SIZE), epsilon=EPSILON, too_few=too_few)
    query = dpp.protect("person", max_groups=2, neighboring_relation="replace_one").group_by(KEYS).agg(expr)
    assert query._asks[0].query.claim.score_range == 2
    cells = [(0, 0), (1, 0)], [(0, 1), (1, 1)], [(0, 0), (1, 0), (2, 0)]
    people = [[("a", group, value) for group, value in own] for own in cells]
    worst = max(
        largest_loss(query, "replace_one", (), [counted(query, base + person, SEEDS) for person in people])
        for base in (BASES[0], BASES[-1])
    )
    assert (0.4 if too_few == 80 else 0.99) * EPSILON <= worst <= EPSILON * (1 + 1e-12)


def test_a_person_with_more_rows_than_the_bound_would_cost_more() -> None:
    """The control: the same comparison on unbounded histograms fails."""
    bounded = dpp.protect("person", max_groups=1).group_by(KEYS).agg(MODE)
    unbounded = dpp.protect("person").group_by(KEYS).agg(MODE)
    person = [("a", g, 0) for g in range(GROUPS)]
    [without] = counted(unbounded, BASES[1])
    [with_all] = counted(unbounded, BASES[1] + person)
    assert loss(bounded, with_all, without) > 2 * EPSILON


@pytest.mark.parametrize(("total", "per_group"), [(1, 1), (3, 1), (5, 2), (4, 4)])
def test_the_other_unit_is_charged_the_cost_of_the_same_rate(mechanism: str, total: int, per_group: int) -> None:
    expr = dpp.median("value", range(SIZE), rho=0.02, mechanism=mechanism)
    query = (
        dpp.protect("person", max_rows=total, max_rows_per_group=per_group).group_by({"group": range(100)}).agg(expr)
    )
    [ask] = query._asks
    x = float(ask.query.claim.rate) * 2
    assert query.explain()["epsilon"].item() == pytest.approx(x * total, rel=1e-12)
    k, rest = divmod(total, per_group)
    f = bounded_range_rho if mechanism == "exponential" else lambda y: y + math.expm1(-y)
    assert float(k * f(x * per_group) + f(x * rest)) == pytest.approx(0.02, rel=1e-9)
    budget = dpp.Budget(epsilon=Fraction(10**6))
    charged = dpp.protect("person", budget=budget, max_rows=total, max_rows_per_group=per_group)
    rows = frame([("a", 0, 1)])
    charged.group_by({"group": range(100)}).agg(expr).release(rows)
    assert float(budget.spent) == pytest.approx(x * total, rel=1e-12)
    assert budget.spent >= ask.query.claim.rate * 2 * total
