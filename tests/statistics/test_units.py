"""A statistic in another unit is the one that is requested there: its mechanism, its draws and its range follow."""

from fractions import Fraction

import pytest

from tests.registry import RELATIONS, STATISTICS, Statistic, under

# Five are one joint draw in epsilon, and rounds in rho.
EVERY = {**STATISTICS, "top 5": Statistic("top_k", (5, [1, 2, 3, 4, 5, 6]))}


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(("unit", "other"), [("epsilon", "rho"), ("rho", "epsilon")])
@pytest.mark.parametrize("statistic", [one for one in EVERY.values() if not one.is_pure], ids=lambda one: one.way)
def test_the_claim_in_another_unit_is_that_of_a_request_there(statistic, unit, other, relation):
    there, asked = (under(relation, statistic.ask(**{of: Fraction(1, 2)}).query) for of in (unit, other))
    there = there.in_unit(other)
    assert there.claim == asked.claim
    assert there.claim.score_range == there.range_of(relation)
    assert there.claim._draws == there.draws
