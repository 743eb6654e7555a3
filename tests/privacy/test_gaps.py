"""The gap is free: densities of (answer, gap) of neighbouring scores; `test_every_statistic.py` has laws."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from tests.helpers import reference
from tests.registry import MECHANISMS, X

pytestmark = pytest.mark.slow

NODES, WEIGHTS = np.polynomial.legendre.leggauss(8)


def log_densities(scores, found_gaps, rate, mechanism):
    """log of the density of (answer, gap), shape (candidates, gaps).

    Candidate i wins by at least ℓ if its arrival time, exp(rate·ℓ) times over, is before all others. With
    permute-and-flip, given its uniform v, another one comes later with probability 1 − v·exp(rate·(ℓ + q_j − q_i)), if
    that is above 0; with the exponential mechanism, all times are exponential.
    """
    scores = np.asarray(scores, float)
    result = np.empty((len(scores), len(found_gaps)))
    for i in range(len(scores)):
        factors = np.exp(rate * (np.subtract.outer(found_gaps, scores[i] - np.delete(scores, i))))
        if mechanism == "exponential":
            others = factors.sum(axis=1)
            density = rate * others / (1 + others) ** 2
        else:
            last = np.minimum(1, 1 / factors.max(axis=1))[:, None]  # beyond, somebody is surely earlier
            v = last * (NODES + 1) / 2
            later = 1 - factors[:, None, :] * v[:, :, None]
            each = [factors[:, None, j] * v * np.delete(later, j, axis=2).prod(axis=2) for j in range(len(scores) - 1)]
            density = rate * (sum(each) * WEIGHTS * last / 2).sum(axis=1)
        result[i] = np.log(density)
    return result


def neighbours(rng, scores, sensitivity, monotonic):
    """Scores of neighbours: at the ends of what may change, and in between."""
    low = 0 if monotonic else -sensitivity
    ends = list(itertools.product([low, sensitivity], repeat=len(scores)))
    inside = rng.uniform(low, sensitivity, (3, len(scores)))
    changes = np.concatenate([np.array(ends)[rng.permutation(len(ends))[:9]], inside])
    return scores + changes * (rng.choice([-1, 1]) if monotonic else 1)


@pytest.mark.parametrize("monotonic", [False, True])
def test_densities_of_a_thousand_score_vectors_stay_within_epsilon(monotonic, mechanism):
    rng, largest, epsilon, sensitivity = np.random.default_rng(14), 0.0, 1.0, 1.5
    claim = X.dp.argmax(sensitivity=sensitivity, monotonic=monotonic, epsilon=1, mechanism=mechanism, gap=True,
                        gap_step=1).query.claim  # fmt: skip
    rate = float(claim.rate)
    for _ in range(1_000):
        size = rng.integers(2, 7)
        # Integers have ties: several candidates of one score.
        scores = rng.integers(0, 4, size).astype(float) if rng.random() < 0.5 else rng.normal(0, 3, size)
        kinks = abs(np.subtract.outer(scores, scores)).ravel()
        found_gaps = np.concatenate([[1e-9, 20], rng.exponential(3, 6), kinks + 1e-9, kinks + 1e-3])
        here = log_densities(scores, found_gaps, rate, mechanism)
        for other in neighbours(rng, scores, sensitivity, monotonic):
            there = log_densities(other, found_gaps, rate, mechanism)
            largest = max(largest, abs(here - there).max())
    assert largest <= epsilon * (1 + 1e-9)
    assert largest >= 0.99 * epsilon  # so a rate a little too high is found out


def test_the_densities_are_those_of_the_race(mechanism):
    """What the test above rests on: against the law of the race, whose draws have tests of their own."""
    scores, rate, step = [3, 1, 1, 0], Fraction(1, 2), Fraction(1, 1000)
    for gap in (Fraction(1, 10), Fraction(5, 2)):
        found = np.exp(log_densities(scores, [float(gap + step / 2)], float(rate), mechanism))[:, 0]
        for i, score in enumerate(scores):
            others = [s for j, s in enumerate(scores) if j != i]
            first, last = (
                float(reference.law([score - at, *others], rate=rate, mechanism=mechanism)[0])
                for at in (gap, gap + step)
            )
            assert found[i] == pytest.approx((first - last) / float(step), rel=1e-5)


def test_what_a_gap_loses_in_rho():
    """Why rho is refused: with its gap, a choice loses more than the exponential mechanism is charged without."""
    edges = np.array([-math.inf, *range(-30, 31), math.inf])

    def exponential(gap):
        """Law of the whole part of the difference of two scores with Gumbel noise: a logistic distribution."""
        return np.diff(1 / (1 + np.exp(gap - edges)))

    def permute_and_flip(gap):
        """With exponential noise: a Laplace distribution."""
        tail = np.exp(-abs(edges - gap)) / 2
        return np.diff(np.where(edges < gap, tail, 1 - tail))

    for mechanism, law in zip(MECHANISMS, (permute_and_flip, exponential), strict=True):
        p, q = law(0), law(1)
        largest = max(math.log((p**a * q ** (1 - a)).sum()) / (a - 1) / a for a in (1.001, 1.5, 2, 5, 20))
        claim = X.dp.mode(["a", "b"], epsilon=1, mechanism=mechanism, gap=True).query.claim
        without = X.dp.mode(["a", "b"], epsilon=1, mechanism=mechanism).query.claim
        assert largest <= claim.cost("rho") == pytest.approx(math.tanh(0.5), rel=1e-15)  # x·tanh(x/2)
        if mechanism == "exponential":
            assert largest > Fraction(1, 8) > without.cost("rho")
