"""The first above a threshold: densities of (answer, gap) of neighbouring scores, and laws of small data sets."""

import itertools
import math

import numpy as np
import pytest

import dp_polars as dpp
from tests.helpers.first_above_laws import log_law
from tests.privacy.datasets import all_counts, neighbors
from tests.registry import X, under

pytestmark = pytest.mark.slow

NODES, WEIGHTS = np.polynomial.legendre.leggauss(6)


def log_densities(scores, gaps, threshold, rate):
    """log of the density of (answer, gap), shape (candidates, gaps).

    With u = exp(−rate·z), uniform, a candidate is passed over with the chance 1 − min(1, w·u), w = exp(rate·(q − T)),
    and its gap is ℓ with the density rate·w·u·exp(−rate·ℓ) where ν = T + z + ℓ − q is not below 0.
    """
    w = np.exp(rate * (np.asarray(scores, float) - threshold))
    result = np.empty((len(w), len(gaps)))
    for i, gap in np.ndindex(result.shape):
        own = w[i] * math.exp(-rate * gaps[gap])
        last = min(1, 1 / own, *(1 / w[:i]))  # beyond it ν would be below 0, or one before it reaches the threshold
        u = last * (NODES + 1) / 2
        passed = np.prod(1 - w[:i, None] * u, axis=0)
        result[i, gap] = math.log(rate * (own * u * passed) @ WEIGHTS * last / 2)
    return result


def log_none(scores, threshold, rate):
    w = np.exp(rate * (np.asarray(scores, float) - threshold))
    last = min(1, 1 / w.max())
    u = last * (NODES + 1) / 2
    return math.log(np.prod(1 - w[:, None] * u, axis=0) @ WEIGHTS * last / 2)


def largest_loss(rng, rate, low, high, times):
    """The largest log-ratio of neighbours whose scores differ by `low` up to `high`, with any gaps."""
    largest, threshold = 0.0, 3.0
    for _ in range(times):
        scores = rng.normal(2, 3, rng.integers(1, 6)) if rng.random() < 0.5 else rng.integers(0, 7, 4).astype(float)
        ends = np.array(list(itertools.product([low, high], repeat=len(scores))))
        changes = [ends[rng.integers(len(ends))], np.full(len(scores), high), rng.uniform(low, high, len(scores))]
        kinks = scores - threshold
        gaps = np.concatenate([[1e-9, 30], rng.exponential(3, 3), kinks[kinks > 0], kinks[kinks > 0] + 1e-9])
        here = log_densities(scores, gaps, threshold, rate)
        for change in changes:
            there = log_densities(scores + change, gaps, threshold, rate)
            none = abs(log_none(scores, threshold, rate) - log_none(scores + change, threshold, rate))
            largest = max(largest, none, abs(here - there).max())
    return largest


@pytest.mark.parametrize(("relation", "low"), [("add_or_remove_one", 0.0), ("replace_one", -1.0)])
def test_densities_of_neighbouring_scores_stay_within_epsilon(relation, low):
    claim = under(relation, dpp.first_above("x", [1, 2], threshold=3, epsilon=1, gap=True).query).claim
    assert claim.rate == (1 / 2 if low == 0 else claim.loss.value / 3)
    largest = largest_loss(np.random.default_rng(28), float(claim.rate), low, 1.0, 600)
    assert 0.99 <= largest <= 1 + 1e-9  # so a rate a little too high is found out


def test_one_way_costs_half():
    """Why the range is 3 for one who takes the place of another in another group: 1 there, and 2 here."""
    rng, rate = np.random.default_rng(5), 0.5
    up = down = 0.0
    for _ in range(300):
        counts = rng.integers(0, 6, 3)
        more = counts + rng.integers(0, 2, 3)
        one, other = log_law([counts, more], 2.5, rate)
        up, down = max(up, (one - other).max()), max(down, (other - one).max())
    assert 0.99 * 2 * rate <= up <= 2 * rate + 1e-9
    assert 0.9 * rate <= down <= rate + 1e-9


@pytest.mark.parametrize("gap", [False, True])
@pytest.mark.parametrize("threshold", [0.5, 2, 4])
def test_all_small_data_sets(threshold, gap, relation):
    """All neighbouring data sets of up to seven rows, all answers, all gaps: exact probabilities."""
    claim = under(relation, X.dp.first_above(range(3), threshold=threshold, epsilon=1, gap=gap).query).claim
    counts = all_counts(3, 7)

    def largest(factor):
        logs = log_law(counts, threshold, float(claim.rate) * factor, 8 if gap else 1)
        return max(abs(logs[i] - logs[j]).max() for i, j in np.argwhere(neighbors(counts, relation)))

    assert largest(1) <= 1 + 1e-9
    assert largest(1.15) > 1


def test_people_with_any_candidates(relation):
    """One person moves all counts by 0 or 1; one who takes their place moves them by −1 to 1."""
    claim = under(relation, X.dp.first_above(range(3), threshold=1, epsilon=1, gap=True).query).claim
    counts = np.array(list(itertools.product(range(4), repeat=3)))
    logs = log_law(counts, 1, float(claim.rate), 6)
    change = counts[:, None] - counts[None]
    near = abs(change).max(axis=2) <= 1
    if relation == "add_or_remove_one":
        near &= (change >= 0).all(axis=2) | (change <= 0).all(axis=2)
    found = max(abs(logs[i] - logs[j]).max() for i, j in np.argwhere(near))
    assert 0.97 <= found <= 1 + 1e-9
