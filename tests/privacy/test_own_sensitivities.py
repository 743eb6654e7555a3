"""Argmax by sensitivities of their own, by brute force: revenues of all small sets of bids, and of their neighbours."""

import itertools
from fractions import Fraction

import numpy as np
import polars as pl
import pytest

from dp_polars._mechanisms.racing import LAWS, error_bound
from dp_polars._statistics.extremes import own_sensitivities
from tests.helpers import reference
from tests.privacy.datasets import renyi
from tests.registry import V, X

pytestmark = pytest.mark.slow

PRICES = [1, 2, 3, 6]
MOST_BUYERS = 6


def all_bids():
    """How many buyers bid each price at most, for all sets of up to MOST_BUYERS of them."""
    return [
        counts for counts in itertools.product(range(MOST_BUYERS + 1), repeat=len(PRICES)) if sum(counts) <= MOST_BUYERS
    ]


def log_laws(claim, sensitivities):
    """log P of each price on each set of bids, from the gaps that the kernel finds."""
    laws = {}
    for counts in all_bids():
        revenues = [price * sum(counts[i:]) for i, price in enumerate(PRICES)]
        laws[counts] = log_law(claim, revenues, sensitivities)
    return laws


def neighbours(laws, changes):
    """Pairs of sets of bids that differ by one buyer, or by one bid."""
    for counts in laws:
        for change in changes:
            other = tuple(n + c for n, c in zip(counts, change, strict=True))
            if other in laws:
                yield counts, other


UNITS = [tuple(int(i == j) for j in range(len(PRICES))) for i in range(len(PRICES))]
ONE_BUYER = UNITS
ONE_BID = [tuple(a - b for a, b in zip(one, other, strict=True)) for one in UNITS for other in UNITS if one != other]


@pytest.mark.parametrize("changes", [ONE_BUYER, ONE_BID], ids=["one buyer", "one bid"])
@pytest.mark.parametrize("epsilon", [Fraction(1, 2), Fraction(3)])
def test_revenues_lose_no_more_than_epsilon(epsilon, changes, mechanism):
    claim = X.dp.argmax(sensitivity=V, epsilon=epsilon, mechanism=mechanism).query.claim
    laws = log_laws(claim, PRICES)
    largest = max(abs(laws[a] - laws[b]).max() for a, b in neighbours(laws, changes))
    assert 0.3 * epsilon < largest <= epsilon * (1 + 1e-12)
    if epsilon > 1:  # sensitivities that are too small are found out
        wrong = log_laws(claim, [price / 8 for price in PRICES])
        assert max(abs(wrong[a] - wrong[b]).max() for a, b in neighbours(wrong, changes)) > epsilon


def test_revenues_lose_no_more_than_rho(mechanism):
    claim = X.dp.argmax(sensitivity=V, rho=Fraction(1, 4), mechanism=mechanism).query.claim
    laws = log_laws(claim, PRICES)
    for a, b in neighbours(laws, ONE_BUYER):
        for p, q in ((laws[a], laws[b]), (laws[b], laws[a])):
            for order in (1.01, 2, 5, 30):
                assert renyi(p, q, order) / order <= 0.25 * (1 + 1e-9)


def log_law(claim, scores, own):
    """log P of each row, from the gaps that the kernel finds."""
    _, _, rows = own_sensitivities(pl.Series(scores), pl.Series(own), np.array([len(own)]), lowest=False)
    gaps = rows._exact_gaps(0, rows._weights(claim.rate, LAWS[claim.mechanism])[0])
    exact = [-gaps(i) for i in range(len(own))]
    law = reference.law(exact, rate=claim.rate, mechanism=claim.mechanism, digits=20)
    return np.array([float(p.log()) for p in law])


def test_scores_that_move_as_far_as_they_may_either_way(mechanism):
    claim, largest = X.dp.argmax(sensitivity=V, epsilon=2, mechanism=mechanism).query.claim, 0.0
    for own in ([1, 4], [1, 1], [2, 1, 7]):
        for scores in itertools.product([0, 3, 40, 60], repeat=len(own)):
            here = log_law(claim, scores, own)
            for change in itertools.product([-1, 1], repeat=len(own)):
                there = log_law(claim, [q + c * w for q, c, w in zip(scores, change, own, strict=True)], own)
                largest = max(largest, abs(here - there).max())
    assert 0.5 * 2 < largest <= 2 * (1 + 1e-12)


def test_epsilon_is_attained(mechanism):
    """So R is 2, and a rate a little too high is found out: one dear row falls, and very many cheap ones rise."""
    claim, many = X.dp.argmax(sensitivity=V, epsilon=2, mechanism=mechanism).query.claim, 500
    own = np.array([1.0, 2.0**12, *[1.0] * many])
    _, _, rows = own_sensitivities(pl.Series(own), pl.Series(own), np.array([len(own)]), lowest=False)
    weight = rows._weights(claim.rate, LAWS[mechanism])[0]
    # What is left of each score above t times its sensitivity: the best row, the dear one, and the others.
    scores = np.array([0.0, -1.0, *[-2.0] * many]) + weight * own
    change = own * [-1, -1, *[1] * many]
    loss = abs(log_law(claim, scores, own) - log_law(claim, scores + change, own)).max()
    assert 0.98 * 2 < loss <= 2 * (1 + 1e-12)


def test_the_error_stays_within_its_bound():
    """q_i >= q_j − 2·t·D_j with probability 0.95, by the exact law; and that is more than with one sensitivity."""
    prices = np.arange(1, 501)
    bids = np.random.default_rng(3).gamma(4.0, 8.0, 5_000).clip(0, 500)
    revenues = prices * (bids >= prices[:, None]).sum(axis=1)
    claim = X.dp.argmax(sensitivity=V, epsilon=1).query.claim
    _, _, rows = own_sensitivities(pl.Series(revenues), pl.Series(prices), np.array([len(prices)]), lowest=False)
    least = (revenues - 2 * rows._weights(claim.rate, LAWS[claim.mechanism])[0] * prices).max()
    law = np.exp(log_law(claim, revenues, prices))
    assert law[revenues < least].sum() <= 0.05
    # With one sensitivity for all, even though these revenues are monotonic.
    plain = X.dp.argmax(sensitivity=500, monotonic=True, epsilon=1).query.claim
    assert revenues.max() - least < 0.7 * error_bound(len(prices), 0.05, plain)
    one_for_all = reference.law(revenues.tolist(), rate=plain.rate, mechanism=plain.mechanism, digits=20)
    errors = revenues.max() - revenues
    assert (law * errors).sum() < 0.7 * (reference.floats(one_for_all) * errors).sum()


@pytest.mark.parametrize("scores", [pl.Decimal(9, 2), pl.Float64])
@pytest.mark.parametrize("own", [pl.Decimal(9, 1), pl.Decimal(9, 3), pl.Float64])
def test_gaps_are_in_units_and_not_in_last_digits(scores, own):
    def gaps(scores, own):
        texts = pl.Series(["0.5", "7.25", "7"]).cast(scores), pl.Series(["1.5", "2.0", "0.5"]).cast(own)
        _, _, rows = own_sensitivities(*texts, np.array([3]), lowest=False)
        return rows.gaps(Fraction(1), LAWS["permute_and_flip"]).tolist()

    assert gaps(scores, own) == pytest.approx(gaps(pl.Float64, pl.Float64), rel=1e-5)  # t has 20 bits
