"""Adaptive tables: exact scores, weights, and the schedule of rounds."""

import random
from fractions import Fraction

import numpy as np
import pytest

from dp_polars._accounting.terms import Loss, Terms
from dp_polars._mechanisms.adaptive_tables import AdaptivePlan, _distance, weights_of
from dp_polars._mechanisms.graphical_models import Measured
from dp_polars._mechanisms.residuals import UNITS, Noise
from dp_polars._statistics.measures import Count


def claim_of(epsilon):
    return Count("rows", Terms.at(Loss(Fraction(epsilon), "epsilon"))).claim


def test_a_table_matters_as_much_as_it_tells_of_those_that_are_wanted():
    weights = dict(weights_of({(0, 1): Fraction(1), (1, 2): Fraction(1, 2)}))
    # 2·1 + 1·½ of (0, 1), 1·1 + 2·½ of (1, 2), 1 of (0,), 1 + ½ of (1,), ½ of (2,): times 2.
    assert weights == {(0, 1): 5, (1, 2): 4, (0,): 2, (1,): 3, (2,): 1}
    assert dict(weights_of({(0, 1): Fraction(7)})) == {(0, 1): 2, (0,): 1, (1,): 1}


@pytest.mark.parametrize("far", [1, 10**6, 2**45, 2**60])
def test_scores_are_exact(far):
    chance = random.Random(far)
    for _ in range(100):
        counts = [chance.randrange(far + 1) for _ in range(7)]
        modelled = [chance.choice([chance.random() * far, -1.0, float(2**70), 0.0]) for _ in range(7)]

        def exact(counts=counts, modelled=modelled):
            pairs = zip(counts, modelled, strict=True)
            return sum(abs(min(n, 2**45) * UNITS - round(Fraction(min(max(m, 0), 2**45)) * UNITS)) for n, m in pairs)

        assert _distance(np.array(counts), np.array(modelled)) == exact()
    plan = AdaptivePlan((2, 2), ((0,), (1,)), (((0,), 3), ((1,), 7)), ((0,), (1,)), 4, 100)
    claims = {(0,): claim_of(1), (1,): claim_of(1)}
    counts = {(0,): np.array([far, 0]), (1,): np.array([0, far])}
    scores = plan.scores(counts, {axes: np.array([0.0, 0.0]) for axes in counts}, claims)
    noise = int(2 * Noise("discrete_laplace", claim_of(1).rate).mean_size * UNITS)
    assert list(scores) == [weight * (min(far, 2**45) * UNITS - noise) for weight in (3, 7)]
    assert all(isinstance(score, int) for score in scores)


def test_wanted_tables_share_what_is_left_and_few_measured_ones_get_twice_as_much():
    pairs = ((0, 1), (0, 2), (1, 2), (2, 3))
    plan = AdaptivePlan((2, 2, 2, 2), ((0,),), tuple((axes, 1) for axes in pairs), pairs, 60, 100)
    few, half = ([Measured(axes, None, None) for axes in ((0,), *pairs[:many])] for many in (1, 2))
    assert [plan._units(2, left, few) for left in (40, 8, 1)] == [10, 4, 4]
    assert [plan._units(2, left, half) for left in (40, 8, 1)] == [10, 2, 2]


@pytest.mark.parametrize("rate", [Fraction(1, 50), Fraction(1), Fraction(4)])
def test_the_mean_size_of_noise_is_that_of_its_law(rate):
    x = np.arange(-4000, 4001)
    for mechanism, law in (
        ("discrete_laplace", -abs(x) * float(rate)),
        ("discrete_gaussian", -((x * float(rate)) ** 2) / 2),
    ):
        weights = np.exp(law)
        exact = abs(x) @ weights / weights.sum()
        # Of a Gaussian it is about that.
        assert (
            abs(Noise(mechanism, rate).mean_size - exact)
            <= (1e-9 if mechanism == "discrete_laplace" else 0.12) * exact + 0.02
        )
