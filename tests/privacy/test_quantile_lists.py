"""Lists of quantiles by brute force: all levels together, all digits of all rows, all pairs of small neighbours.

The laws are those of `tests/privacy/lists.py`, from the definition; `tests/statistical/test_list_draws.py` shows that
draws follow them. Rates are those of the claim that the query makes.
"""

import functools
import math
from fractions import Fraction

import numpy as np
import pytest

import dp_polars as dpp
from dp_polars._accounting.terms import Contributions
from tests.privacy.datasets import ORDERS, all_counts, neighbors, renyi
from tests.privacy.lists import law_of_list
from tests.registry import MECHANISMS, RELATIONS, under

pytestmark = pytest.mark.slow

QUARTILES = (Fraction(1, 4), Fraction(1, 2), Fraction(3, 4))
LISTS = {
    "quartiles": QUARTILES,
    "thirds": (Fraction(1, 3), Fraction(2, 3)),
    "middle and end": (Fraction(1, 2), Fraction(9, 10)),
    "one": (Fraction(1, 4),),
    "four": (Fraction(1, 5), Fraction(2, 5), Fraction(1, 2), Fraction(9, 10)),
}
LOSSES = {"epsilon": [Fraction(1, 2), Fraction(4)], "rho": [Fraction(1, 100), Fraction(2)]}
# Candidates, rows and digits.
SIZES = [(2, 6, 2), (3, 4, 2), (2, 10, 1)]


def query(name, size, *, relation, mechanism, contributions=1, epsilon=None, rho=None):
    """A list as users ask for it, also where it has one answer."""
    terms = {"contributions": contributions, "mechanism": mechanism}
    return under(relation, dpp.quantile("x", LISTS[name], range(size), epsilon=epsilon, rho=rho, **terms).query)


@functools.cache
def log_laws(name, size, rows, digits, rate, mechanism):
    """log P of every list on every data set, shape (data sets, lists); no list is impossible on one set only."""
    asked = query(name, size, relation=RELATIONS[0], mechanism=mechanism, epsilon=1)
    laws = [law_of_list(tuple(one), asked.root, rate, mechanism, digits) for one in all_counts(size, rows).tolist()]
    lists = sorted(laws[0])
    assert all(sorted(law) == lists for law in laws)
    assert all(list(answers) == sorted(answers) for answers in lists)
    return np.array([[math.log(law[answers]) for answers in lists] for law in laws])


def losses(laws, near):
    """What is lost in epsilon and in rho, at most."""
    p, q = (laws[place] for place in np.nonzero(near))
    return {"epsilon": (p - q).max(), "rho": max((renyi(p, q, order) / order).max() for order in ORDERS)}


@pytest.mark.parametrize("contributions", [1, 2])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("loss", [{unit: x} for unit, of in LOSSES.items() for x in of], ids=str)
def test_no_pair_of_neighbors_loses_more_than_is_charged(loss, name, sizes, contributions, relation, mechanism):
    """In the unit of the loss what was asked, and in the other one what the claim charges there."""
    claim = query(name, sizes[0], relation=relation, mechanism=mechanism, contributions=contributions, **loss).claim
    (unit, value), laws = next(iter(loss.items())), log_laws(name, *sizes, claim.rate, mechanism)
    assert claim.cost(unit) == value
    for charged, lost in losses(laws, neighbors(all_counts(*sizes[:2]), relation, contributions)).items():
        assert lost <= claim.cost(charged) * (1 + 1e-9)


@pytest.mark.parametrize("epsilon", [Fraction(2), Fraction(8)])
def test_the_bound_is_attained_on_both_levels_together(epsilon):
    """So a rate a little too high, or the whole loss spent on each level, is found out."""
    asked = query("quartiles", 2, relation=RELATIONS[0], mechanism=MECHANISMS[0], epsilon=epsilon)
    near = neighbors(all_counts(2, 10), RELATIONS[0])
    worst = losses(log_laws("quartiles", 2, 10, 1, asked.claim.rate, MECHANISMS[0]), near)["epsilon"]
    assert 0.999 * epsilon <= worst <= epsilon * (1 + 1e-9)
    more = log_laws("quartiles", 2, 10, 1, asked.claim.rate * Fraction(102, 100), MECHANISMS[0])
    assert losses(more, near)["epsilon"] > epsilon
    with_digits = log_laws("quartiles", 2, 6, 2, asked.claim.rate, MECHANISMS[0])
    near = neighbors(all_counts(2, 6), RELATIONS[0])
    assert 0.75 * epsilon <= losses(with_digits, near)["epsilon"] <= epsilon * (1 + 1e-9)


@pytest.mark.parametrize(("total", "per_group"), [(1, 1), (2, 1), (3, 2)])
def test_no_person_loses_more_over_all_groups(total, per_group, relation, mechanism):
    """Groups are drawn independently, so what one person loses in each of them adds up."""
    for loss in ({"epsilon": Fraction(2)}, {"rho": Fraction(1, 5)}):
        asked = query("quartiles", 2, relation=relation, mechanism=mechanism, **loss)
        claim = asked.under(Contributions(total, per_group), relation).claim
        laws = log_laws("quartiles", 2, 6, 2, claim.rate, mechanism)
        counts = all_counts(2, 6)
        ways = [np.eye(len(laws), dtype=bool), *(neighbors(counts, relation, 1 + more) for more in range(per_group))]
        one, full, rest = [losses(laws, way) for way in ways], claim.contributions.full_groups, claim.contributions.rest
        for cost in ("epsilon", "rho"):
            # Of a replacement the row that comes may lie in another group than the one that goes.
            apart = 0.0
            if relation == "replace_one":
                alone = [losses(laws, neighbors(counts, "add_or_remove_one", n))[cost] for n in (per_group, rest)]
                apart = 2 * full * alone[0] + 2 * alone[1]
            assert max(full * one[per_group][cost] + one[rest][cost], apart) <= claim.cost(cost) * (1 + 1e-9)
