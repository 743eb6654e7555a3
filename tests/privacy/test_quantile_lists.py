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
from tests.privacy.datasets import all_counts, neighbors
from tests.privacy.lists import law_of_list
from tests.registry import MECHANISMS, RELATIONS

pytestmark = pytest.mark.slow

QUARTILES = (Fraction(1, 4), Fraction(1, 2), Fraction(3, 4))
LISTS = {
    "quartiles": QUARTILES,
    "thirds": (Fraction(1, 3), Fraction(2, 3)),
    "middle and end": (Fraction(1, 2), Fraction(9, 10)),
    "one": (Fraction(1, 4),),
    "four": (Fraction(1, 5), Fraction(2, 5), Fraction(1, 2), Fraction(9, 10)),
}
# Candidates, rows and digits.
SIZES = [(2, 6, 2), (3, 4, 2), (2, 10, 1)]
ORDERS = np.array([1.001, 1.05, 1.3, 1.7, 2, 3, 5, 9, 17, 30, 50])


def query(name, size, *, relation, mechanism, contributions=1, epsilon=None, rho=None):
    """A list as users ask for it, also where it has one answer."""
    terms = {"contributions": contributions, "neighboring_relation": relation, "mechanism": mechanism}
    return dpp.quantile("x", LISTS[name], range(size), epsilon=epsilon, rho=rho, **terms).query


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
    return (laws[:, None, :] - laws[None, :, :]).max(axis=2)[near]


def divergences(laws, near):
    """Rényi divergences, divided by the order, shape (orders, pairs)."""
    p, q = (laws[place] for place in np.nonzero(near))
    a = ORDERS[:, None, None]
    exponents = a * p + (1 - a) * q
    top = exponents.max(axis=2)
    return (top + np.log(np.exp(exponents - top[..., None]).sum(axis=2))) / ((a - 1) * a)[..., 0]


@pytest.mark.parametrize("contributions", [1, 2])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(4)])
def test_no_pair_of_neighbors_loses_more_than_epsilon(epsilon, name, sizes, contributions, relation, mechanism):
    asked = query(name, sizes[0], relation=relation, mechanism=mechanism, contributions=contributions, epsilon=epsilon)
    laws = log_laws(name, *sizes, asked.claim.rate, mechanism)
    near = neighbors(all_counts(*sizes[:2]), relation, contributions)
    assert losses(laws, near).max() <= epsilon * (1 + 1e-9)
    # In the budget of the other unit the claim charges what the divergences come to, or more.
    assert divergences(laws, near).max() <= asked.claim.cost("rho") * (1 + 1e-9)


@pytest.mark.parametrize("contributions", [1, 2])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("name", LISTS)
@pytest.mark.parametrize("rho", [Fraction(1, 100), Fraction(2)])
def test_no_pair_of_neighbors_loses_more_than_rho(rho, name, sizes, contributions, relation, mechanism):
    asked = query(name, sizes[0], relation=relation, mechanism=mechanism, contributions=contributions, rho=rho)
    laws = log_laws(name, *sizes, asked.claim.rate, mechanism)
    near = neighbors(all_counts(*sizes[:2]), relation, contributions)
    assert divergences(laws, near).max() <= rho * (1 + 1e-9)
    assert losses(laws, near).max() <= asked.claim.cost("epsilon") * (1 + 1e-9)


@pytest.mark.parametrize("epsilon", [Fraction(2), Fraction(8)])
def test_the_bound_is_attained_on_both_levels_together(epsilon):
    """So a rate a little too high, or the whole loss spent on each level, is found out."""
    asked = query("quartiles", 2, relation=RELATIONS[0], mechanism=MECHANISMS[0], epsilon=epsilon)
    near = neighbors(all_counts(2, 10), RELATIONS[0])
    worst = losses(log_laws("quartiles", 2, 10, 1, asked.claim.rate, MECHANISMS[0]), near).max()
    assert 0.999 * epsilon <= worst <= epsilon * (1 + 1e-9)
    more = log_laws("quartiles", 2, 10, 1, asked.claim.rate * Fraction(102, 100), MECHANISMS[0])
    assert losses(more, near).max() > epsilon
    with_digits = log_laws("quartiles", 2, 6, 2, asked.claim.rate, MECHANISMS[0])
    near = neighbors(all_counts(2, 6), RELATIONS[0])
    assert 0.75 * epsilon <= losses(with_digits, near).max() <= epsilon * (1 + 1e-9)


@pytest.mark.parametrize(("total", "per_group"), [(1, 1), (2, 1), (3, 2)])
def test_no_person_loses_more_over_all_groups(total, per_group, relation, mechanism):
    """Groups are drawn independently, so what one person loses in each of them adds up."""
    for loss in ({"epsilon": Fraction(2)}, {"rho": Fraction(1, 5)}):
        asked = query("quartiles", 2, relation=relation, mechanism=mechanism, **loss)
        claim = asked.under(Contributions(total, per_group), relation).claim
        laws = log_laws("quartiles", 2, 6, 2, claim.rate, mechanism)
        counts = all_counts(2, 6)
        ways = [np.eye(len(laws), dtype=bool), *(neighbors(counts, relation, 1 + more) for more in range(per_group))]
        for measured, cost in ((losses, "epsilon"), (divergences, "rho")):
            one = [float(measured(laws, way).max()) for way in ways]
            full, rest = claim.contributions.full_groups, claim.contributions.rest
            # Of a replacement the row that comes may lie in another group than the one that goes.
            apart = 0.0
            if relation == "replace_one":
                alone = neighbors(all_counts(2, 6), "add_or_remove_one", per_group)
                apart = 2 * full * float(measured(laws, alone).max())
                if rest:
                    apart += 2 * float(measured(laws, neighbors(all_counts(2, 6), "add_or_remove_one", rest)).max())
            assert max(full * one[per_group] + one[rest], apart) <= claim.cost(cost) * (1 + 1e-9)
