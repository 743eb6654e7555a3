"""Top-k lists: bounds that are nearly attained, and costs; `test_every_statistic.py` tries all small data sets."""

import functools
import itertools
import math
from fractions import Fraction

import numpy as np
import polars as pl
import pytest

import dp_polars as dpp
from dp_polars._accounting.terms import Contributions
from dp_polars._mechanisms import top_k as joint
from dp_polars._mechanisms.histograms import Histogram
from dp_polars._mechanisms.top_k import Ranking
from tests.helpers.reference import bounded_range_rho
from tests.helpers.top_k_laws import law_of
from tests.registry import ASKS, RELATIONS, under

pytestmark = pytest.mark.slow

MECHANISMS = ASKS["top_k"].mechanisms


def query(k, mechanism, relation, *, contributions=1, size=3, **loss):
    given = {"contributions": contributions, "mechanism": mechanism, **loss}
    return under(relation, dpp.top_k("x", k, [str(i) for i in range(size)], **given).query)


@functools.cache
def log_laws(most, size, k, rate, mechanism):
    """log P of each list on all data sets of counts up to `most`, shape (most + 1, …, lists)."""
    every = itertools.product(range(most + 1), repeat=size)
    # Only differences matter.
    laws = [law_of([n - min(one) for n in one], k, rate, mechanism) for one in every]
    return np.log(laws).reshape(*[most + 1] * size, -1)


def largest(most, changes, size, k, rate, mechanism):
    """The largest log-ratio of the laws of all pairs of data sets that differ by one of these changes."""
    laws, found = log_laws(most, size, k, rate, mechanism), []
    for change in changes:
        low, high = (
            tuple(slice(max(0, sign * step), most + 1 - max(0, -sign * step)) for step in change) for sign in (-1, 1)
        )
        found.append(np.abs(laws[low] - laws[high]).max())
    return max(found)


@pytest.mark.parametrize("k", [1, 2])
def test_the_loss_of_rounds_is_nearly_attained(k, mechanism):
    """A rate a little too high is found out: between two candidates, or three, of very different counts."""
    epsilon, size, most = Fraction(4), k + 1, 14
    moves = np.array(list(itertools.product((0, 1), repeat=size)))
    rate = query(k, mechanism, "add_or_remove_one", size=size, epsilon=epsilon).claim.rate
    found = largest(most, moves, size, k, rate, mechanism)
    assert 0.95 * epsilon <= found <= epsilon * (1 + 1e-9)
    assert largest(most, moves, size, k, rate * Fraction(11, 10), mechanism) > epsilon


def test_the_loss_of_a_joint_draw_is_nearly_attained():
    """R = 2 is not too much: one row more for the second candidate, and a million candidates without rows."""
    epsilon, size = Fraction(4), 10**6
    rate = query(2, "joint", "add_or_remove_one", epsilon=epsilon).claim.rate

    def log_share(second, rate):
        """ln P of the list that has the second candidate first and the first one second."""
        histogram = Histogram(np.array([0, 1]), np.array([60, second]), np.array([2]))
        steps = joint._Steps.of(Ranking.of(histogram, size), 2)
        logs, _ = steps.log_multiplicities()
        terms = logs - float(rate) * steps.errors
        return -float(rate) * (60 - second) - terms.max() - math.log(np.exp(terms - terms.max()).sum())

    loss = log_share(3, rate) - log_share(2, rate)
    assert 0.99 * epsilon <= loss <= epsilon * (1 + 1e-9)
    # So a mode's R, of 1, would be too little.
    assert log_share(3, 2 * rate) - log_share(2, 2 * rate) > 1.2 * epsilon


def test_one_row_in_the_place_of_another_moves_joint_scores_by_three_at_most():
    """All small counts, all moves of up to two from one candidate and to another: as in Theorem 2, in halves of M."""
    size, most, heaviest = 4, 5, 2
    for k in (2, 3):
        lists = np.array(list(itertools.permutations(range(size), k)))

        def errors(counts, k=k, lists=lists):
            best = -np.sort(-counts, axis=1)[:, None, :k]
            return (best - counts[:, lists]).max(axis=2)

        counts = np.array(list(itertools.product(range(heaviest, most + heaviest), repeat=size)))
        before, worst, of_one = errors(counts), 0, 0
        for gone, come in itertools.product(range(heaviest + 1), repeat=2):
            for one, other in itertools.permutations(range(size), 2):
                after = counts.copy()
                after[:, one] -= gone
                after[:, other] += come
                moved = errors(after) - before
                ranges = (moved.max(axis=1) - moved.min(axis=1)).max()
                worst, of_one = max(worst, ranges), max(of_one, ranges if not come else 0)
        assert (worst, of_one) == (3 * heaviest, 2 * heaviest)
        claim = query(k, "joint", "replace_one", size=size, epsilon=1, counts="rows").claim
        assert claim._same_group * claim.score_range == 3
        assert query(k, "joint", "replace_one", size=size, epsilon=1).claim._same_group == 1


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("loss", [{"epsilon": Fraction(3, 2)}, {"rho": Fraction(1, 8)}], ids=str)
def test_costs_follow_from_the_draws(loss, mechanism):
    """In both units, over groups and rows: never below what the rate costs, and no more than what was asked."""
    asked = query(4, mechanism, "replace_one", size=6, **loss).under(Contributions(6, 2), "replace_one")
    claim, draws = asked.claim, 1 if mechanism == "joint" else 4
    assert claim._draws == draws
    assert claim.score_range == (4 if mechanism == "joint" else 2)
    x = claim.rate * claim.score_range
    assert claim.cost("epsilon") >= draws * x * 6
    if mechanism != "permute_and_flip":
        # Three groups of two rows each; at the loss that was asked, the rate is rounded down by a hair.
        truth = draws * 3 * bounded_range_rho(2 * x)
        assert truth * (1 - Fraction(1, 2**60)) <= claim.cost("rho") <= truth * (1 + Fraction(1, 2**60))
    unit, value = next(iter(loss.items()))
    assert claim.cost(unit) == value
    twice = {"epsilon": 2 * value, "rho": draws * 3 * bounded_range_rho(4 * x)}[unit]
    rel = 0.3 if mechanism == "permute_and_flip" and unit == "rho" else 1e-12
    if rel == 0.3:
        twice = 4 * value
    assert float(claim.cost(unit, distance=Fraction(2))) == pytest.approx(float(twice), rel=rel)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_person_counts_once_for_each_candidate_on_a_private_frame(mechanism):
    """Whatever the rows of one person are, no count changes by more than one, in one direction."""
    # Without the person, "a" is ahead by one; with a thousand rows of theirs in "b" the two are as good.
    rows = [("p", "a"), *[("q", "b")] * 1000]
    frame = pl.DataFrame(rows, schema=["who", "x"], orient="row")
    private = frame.dp.protect("who")
    query = private.agg(dpp.top_k("x", 1, ["a", "b"], epsilon=10**6, mechanism=mechanism))
    assert {query.release()["x"].item().to_list()[0] for _ in range(60)} == {"a", "b"}
    (explained,) = query.explain().to_dicts()
    assert explained["score_range"] == 1


def test_the_top_1_has_the_range_of_a_mode(relation):
    for mechanism in MECHANISMS:
        assert query(1, mechanism, relation, epsilon=2).claim.score_range == (1 if relation == RELATIONS[0] else 2)
