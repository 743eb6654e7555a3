"""Limits and bounds are drawn with the exact law of their scores."""

from fractions import Fraction

import numpy as np
import pytest

from dp_polars._accounting.terms import Loss
from dp_polars._mechanisms.limit_rule import bound_rule, bounds_up_to, limit_rule
from tests.helpers import reference
from tests.helpers.limits import claim_of, drawn
from tests.statistical.goodness import check_sampler

DRAWS = 1_500
PEOPLE = np.array([1, 1, 1, 2, 2, 3, 5, 5, 8, 13] * 3)
LOSSES = {"permute_and_flip": Loss(Fraction(1, 2), "epsilon"), "exponential": Loss(Fraction(1, 20), "rho")}


def rules(loss):
    return {
        "linear": limit_rule("linear", loss, 3, Fraction(6), most=14),
        "root": limit_rule("root", loss, 3, Fraction(6), most=14),
        "selection": limit_rule("selection", loss, 3, Fraction(6), most=14),
        "bound": bound_rule(loss, Fraction(1), bounds_up_to(Fraction(1), Fraction(50))),
    }


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", LOSSES)
@pytest.mark.parametrize("kind", ["linear", "root", "selection", "bound"])
def test_a_limit_is_drawn_with_its_probability(kind, mechanism):
    """By the reference's law of the defined scores; it is told from half and twice the rate."""
    loss = LOSSES[mechanism]
    rule = rules(loss)[kind]
    beyond = np.array([(b < PEOPLE).sum() for b in rule.counted])
    surplus = np.array([n - t for n, t in zip(beyond[-len(rule.targets) :], rule.targets, strict=True)])
    if kind in ("selection", "bound"):
        surplus = np.maximum(surplus, 2 * beyond[-len(surplus) :] - len(PEOPLE))
    scores = [-max(int(s), 0) - o for s, o in zip(surplus, rule.offsets, strict=True)]
    epsilon = claim_of(rule, loss).rate * rule.score_range
    law = reference.floats(reference.law(scores, rate=epsilon / rule.score_range, mechanism=mechanism, digits=30))

    def places(factor):
        # The loss of a choice with `factor` times the rate: the offsets stay what they are.
        other = loss.value * factor if loss.unit == "epsilon" else loss.value * factor**2
        place = {value: i for i, value in enumerate(rule.candidates)}
        return np.array([place[drawn(rule, beyond, Loss(other, loss.unit))] for _ in range(DRAWS)])

    check_sampler(places, law / law.sum(), controls=(Fraction(1, 2), Fraction(2)))
