"""Several outputs of one release, kept by one order of each person's groups and rows.

For all small people beside others: the exact law of all answers together, a mixture over all orders, with and without
the person, or with another one instead. It changes by no more than the sum of the outputs' claims.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from typing import TypeAlias

import numpy as np
import pytest

import dp_polars as dpp
from dp_polars._release.protection import Protection
from tests.engines.orders import Bounded, joint_law
from tests.helpers.reference import floats, law, together

pytestmark = pytest.mark.slow

Rows: TypeAlias = "list[tuple[int, int]]"
Numbers: TypeAlias = "tuple[int, ...]"

GROUPS, SIZE = 2, 2
WEIGHTS = (2, -1)  # of the codes
EVERYBODY = tuple(
    rows
    for n in range(4)
    for rows in itertools.combinations_with_replacement(itertools.product(range(GROUPS), range(SIZE)), n)
)
# Beside whom: nobody, one who is bounded, too, and many.
OTHERS = ((), (((0, 0), (0, 1), (1, 0)),), (((0, 0),),) * 9 + (((1, 1),),) * 9)
# The sums of higher orders lie far beyond the numbers that are looked at.
ORDERS = (1.5, 2, 3)


@dataclass(frozen=True)
class Answer:
    """One output: what it keeps, what that adds to a group's numbers, and the law of the answer to these."""

    spec: Bounded
    adds: Callable[[Rows], Numbers]
    mechanism: str
    rate: Fraction | float
    cost: float

    def chances(self, numbers: Numbers, low: int, high: int) -> np.ndarray:
        """The probability of each answer, but for a factor that is the same for all numbers from low to high."""
        if self.mechanism == "discrete_laplace":  # beyond these the ratios are those of the ends
            return np.exp(-float(self.rate) * np.abs(np.arange(low, high + 1) - numbers[0]))
        if self.mechanism == "discrete_gaussian":
            weights = np.exp(-((float(self.rate) * (np.arange(low - 7, high + 8) - numbers[0])) ** 2) / 2)
            return weights / weights.sum()
        return choice(numbers, self.rate, self.mechanism)


@cache
def choice(counts, rate, mechanism):
    return floats(law(counts, rate=rate, mechanism=mechanism, digits=20))


def counts(rows):
    return tuple(Counter(code for _, code in rows)[code] for code in range(SIZE))


def weighed(rows):
    return (sum(WEIGHTS[code] for _, code in rows),)


ASKED = {
    "len": (lambda loss: dpp.len(**loss), lambda rows: (len(rows),)),
    "n_people": (lambda loss: dpp.n_people(**loss), lambda rows: (int(len(rows) > 0),)),
    "sum": (lambda loss: dpp.sum("x", min(WEIGHTS), max(WEIGHTS), **loss), weighed),
    "mode": (lambda loss: dpp.mode("x", range(SIZE), **loss), counts),
    "mode of rows": (lambda loss: dpp.mode("x", range(SIZE), counts="rows", **loss), counts),
}


def asked(name, loss, relation, sees=None, **bounds):
    """An output of a private frame that is protected by these bounds."""
    make, adds = ASKED[name]
    all_bounds = {"max_rows": None, "max_groups": None, "max_rows_per_group": None, **bounds}
    protection = Protection(("p",), **all_bounds, neighboring_relation=relation)
    query = make(loss).query
    claim = query.under(protection.contributions(query, GROUPS), relation, GROUPS).claim
    spec = Bounded(protection.drawn_limits(query, GROUPS), protection.counts_people(query), sees)
    return Answer(spec, adds, claim.mechanism, claim.rate, float(claim.cost(next(iter(loss)))))


def total(ends, max_groups, loss, relation, sees=None):
    """A sum of which a person's part in each group is clipped: R is the largest end, and groups count as for people."""
    one = asked("n_people", loss, relation, sees, max_groups=max_groups)
    low, high = ends
    rate = one.rate / max(abs(low), abs(high))
    spec = replace(one.spec, people=False)
    return replace(one, spec=spec, rate=rate, adds=lambda rows: (min(max(weighed(rows)[0], low), high) if rows else 0,))


@cache
def added(answers, rows):
    """What one person adds to the numbers of each answer and group -> probability."""
    found = Counter()
    for outcome, chance in joint_law(rows, *(answer.spec for answer in answers)).items():
        numbers = tuple(
            tuple(answer.adds([row for row in stays if row[0] == group]) for group in range(GROUPS))
            for answer, stays in zip(answers, outcome, strict=True)
        )
        found[numbers] += chance
    return found


def laws(answers, others):
    """Rows of one more person -> the law of all answers together, flat; a mixture over all orders."""
    beside = Counter({tuple(((0,) * len(answer.adds(())),) * GROUPS for answer in answers): Fraction(1)})
    for rows in others:
        beside = together(beside, added(answers, rows))
    mixed = {rows: together(beside, added(answers, rows)) for rows in EVERYBODY}
    ends = [
        [
            (min(numbers), max(numbers))
            for group in range(GROUPS)
            for numbers in [[each[place][group][0] for mixture in mixed.values() for each in mixture]]
        ]
        for place in range(len(answers))
    ]
    found = {}
    for rows, mixture in mixed.items():
        law_of_all = 0
        for numbers, chance in mixture.items():
            own = np.array([float(chance)])
            for answer, of_groups, limits in zip(answers, numbers, ends, strict=True):
                for of_group, (low, high) in zip(of_groups, limits, strict=True):
                    own = np.multiply.outer(own, answer.chances(of_group, low, high)).ravel()
            law_of_all = law_of_all + own
        found[rows] = law_of_all
    return found


def worst(answers, relation, unit, others):
    """The largest log-ratio over the sum of the claims; in rho, the largest Renyi divergence over order times that."""
    found = laws(answers, others)
    cost = sum(answer.cost for answer in answers)
    gone = np.array(list(found.values()))
    come = gone[:1] if relation == "add_or_remove_one" else gone[1:]
    largest = 0.0
    for other in come:  # without the person, or with another one
        if unit == "epsilon":
            largest = max(largest, float(np.abs(np.log(gone) - np.log(other)).max()) / cost)
            continue
        for order, (p, q) in itertools.product(ORDERS, ((gone, other), (other, gone))):
            divergence = np.log(np.exp(order * np.log(p) + (1 - order) * np.log(q)).sum(axis=-1)) / (order - 1)
            largest = max(largest, float(divergence.max()) / (order * cost))
    return largest


def cases(loss, relation):
    """Two and three outputs under one set of limits, with contributing rows, people and totals of their own."""

    def under(*outputs, **limits):
        return tuple(asked(name, loss, relation, sees, **limits) for name, sees in outputs)

    return {
        "rows in other groups": under(("len", (0,)), ("len", (1,)), max_groups=1, max_rows_per_group=1),
        "rows and people": under(("n_people", None), ("len", (1,)), max_groups=1, max_rows=2),
        "choices": under(("mode", None), ("mode of rows", None), max_rows=1),
        "totals": (total((-1, 2), 1, loss, relation), *under(("n_people", (0,)), max_groups=1)),
        "three": under(("mode", (0, 1)), ("len", (0,)), ("n_people", None), max_groups=2, max_rows=1),
    }


CASES = ["rows in other groups", "rows and people", "choices", "totals", "three"]


@pytest.mark.parametrize("unit", ["epsilon", "rho"])
@pytest.mark.parametrize("case", CASES)
def test_outputs_together_cost_at_most_the_sum_of_their_claims(case, unit, relation):
    answers = cases({unit: 1 if unit == "epsilon" else 2}, relation)[case]
    every = OTHERS if unit == "epsilon" else OTHERS[:2]
    largest = max(worst(answers, relation, unit, others) for others in every)
    assert largest <= 1 + 1e-9
    # In rho, choices under `replace_one` do not attain their charge.
    assert largest > (0.68 if (case, unit, relation) == ("choices", "rho", "replace_one") else 0.7)


def test_a_person_who_attains_the_sum_of_claims():
    """So the sum is no more than is needed."""
    sees, limits = (None, (0,), None), {"max_groups": 1, "max_rows_per_group": 2}
    answers = tuple(asked("len", {"epsilon": 1}, "add_or_remove_one", each, **limits) for each in sees)
    assert worst(answers, "add_or_remove_one", "epsilon", OTHERS[0]) > 0.99


@pytest.mark.parametrize("unit", ["epsilon", "rho"])
def test_an_output_that_keeps_more_than_its_claim_would_be_found(unit):
    """The negative control: one of two outputs has the limits of the other, which are wider than what it pays for."""
    limits = {"max_groups": 1, "max_rows_per_group": 1}, {"max_rows_per_group": 2}
    few, many = (asked("len", {unit: 1}, "add_or_remove_one", **each) for each in limits)
    assert worst((replace(few, spec=many.spec), many), "add_or_remove_one", unit, OTHERS[0]) > 1.5
