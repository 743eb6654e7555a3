"""Privacy by brute force where bounds are attained: by two candidates, a billion points, scores of the caller's own.

Rates are those of the claim that the query makes. `test_every_statistic.py` tries all small data sets.
"""

import functools
import itertools
from fractions import Fraction

import numpy as np
import pytest

import dp_polars as dpp
from dp_polars._accounting.claims import claim_for_scores
from dp_polars._accounting.costs import laplace_rho
from dp_polars._accounting.terms import Contributions, Loss
from dp_polars._mechanisms.histograms import QuantileScore
from dp_polars.analysis._laws import block_log_factors
from dp_polars.analysis.scores import privacy_loss
from tests.helpers import reference
from tests.privacy.datasets import ORDERS, all_counts, neighbors, quantile_score, renyi
from tests.registry import MECHANISMS, RELATIONS, under

pytestmark = pytest.mark.slow

SCORES = {"median": Fraction(1, 2), "quarter": Fraction(1, 4), "ninth decile": Fraction(9, 10)}


def query(alpha, size, *, relation, mechanism, contributions=1, epsilon=None, rho=None):
    """A query as users write it."""
    terms = {"contributions": contributions, "mechanism": mechanism}
    if alpha is None:
        return under(relation, dpp.mode("x", [str(i) for i in range(size)], epsilon=epsilon, rho=rho, **terms).query)
    return under(relation, dpp.quantile("x", alpha, range(size), epsilon=epsilon, rho=rho, **terms).query)


@functools.cache
def log_laws(size, rows, rate, mechanism):
    """log P of each candidate of a mode on each data set, shape (data sets, size)."""
    counts = all_counts(size, rows).tolist()
    laws = [reference.law(one, rate=rate, mechanism=mechanism, digits=17) for one in counts]
    return np.array([[float(p.log()) for p in law] for law in laws])


@functools.cache
def distances(size, rows):
    """Rows removed and rows added on the way from each data set to each other one."""
    change = all_counts(size, rows)[None, :, :] - all_counts(size, rows)[:, None, :]
    return np.maximum(-change, 0).sum(axis=2), np.maximum(change, 0).sum(axis=2)


def losses(size, rows, rate, mechanism):
    """The largest log-ratio between each data set and each other one."""
    laws = log_laws(size, rows, rate, mechanism)
    return (laws[:, None, :] - laws[None, :, :]).max(axis=2)


@pytest.mark.parametrize("contributions", [1, 2, 3])
def test_a_rate_a_little_too_high_is_found_out(contributions, relation, mechanism):
    """With two candidates and many rows the bound is attained."""
    epsilon, near = Fraction(4), neighbors(all_counts(2, 24), relation, contributions)
    asked = {"relation": relation, "mechanism": mechanism, "contributions": contributions, "epsilon": epsilon}
    rate = query(None, 2, **asked).claim.rate
    assert 0.99 * epsilon <= losses(2, 24, rate, mechanism)[near].max() <= epsilon * (1 + 1e-12)
    assert losses(2, 24, rate * Fraction(102, 100), mechanism)[near].max() > epsilon


# A quantile on a billion points


LAST = 10**9 - 1
# Where rows may lie: a crowd of candidates in between, which a row at its far end moves one way, and the few beyond its
# near end the other way. A replacement moves two scores of one group furthest apart with a third place for rows.
PLACES = {
    ("median", 2): [1, LAST - 1],
    ("median", 3): [1, 3, LAST - 1],
    ("quarter", 2): [1, LAST - 1],
    ("quarter", 3): [1, LAST - 3, LAST - 1],
    ("ninth decile", 2): [1, LAST - 1],
    ("ninth decile", 3): [1, 3, LAST - 1],
}


@functools.cache
def log_laws_of_cells(places, rows, alpha, rate, mechanism):
    """log P of one candidate of each cell on all data sets with rows at these places, shape (data sets, cells)."""
    cells = np.unique([0, *places, *(place + 1 for place in places)])
    in_cell, counts = np.diff(cells, append=LAST + 1), all_counts(len(places), rows)
    per_cell = np.zeros((len(counts), len(cells)), np.int64)
    per_cell[:, np.searchsorted(cells, places)] = counts
    scores = np.array([[quantile_score(one, cell, alpha) for cell in range(len(cells))] for one in per_cell.tolist()])
    gaps = (scores.max(axis=1, keepdims=True) - scores).astype(float)
    return np.array([block_log_factors(one, in_cell, rate, mechanism) for one in gaps]) - float(rate) * gaps


@pytest.mark.parametrize(("places", "rows", "contributions"), [(3, 11, 1), (2, 32, 1), (2, 32, 2), (2, 32, 3)])
@pytest.mark.parametrize("score", SCORES)
def test_a_quantile_on_a_billion_points_loses_epsilon(score, places, rows, contributions, relation, mechanism):
    alpha, epsilon = SCORES[score], Fraction(1)
    asked = {"relation": relation, "mechanism": mechanism, "contributions": contributions, "epsilon": epsilon}
    rate = query(alpha, LAST + 1, **asked).claim.rate
    laws = log_laws_of_cells(tuple(PLACES[score, places]), rows, alpha, rate, mechanism)
    found = (laws[:, None, :] - laws[None, :, :]).max(axis=2)[
        neighbors(all_counts(places, rows), relation, contributions)
    ]
    assert found.max() <= epsilon * (1 + 1e-9)
    if relation == "add_or_remove_one":
        assert found.max() >= 0.99 * epsilon
    elif places == 3:
        # Two scores of one group move apart by 2·den; by R only those of two groups.
        assert found.max() >= 0.99 * epsilon * 2 * alpha.denominator / QuantileScore(alpha).range(relation)


@pytest.mark.parametrize("score", SCORES)
def test_a_replacement_in_one_group_may_lose_all_of_epsilon(score, mechanism):
    alpha, relation, bounds, places, rows = SCORES[score], "replace_one", Contributions(1, 1), 3, 11
    asked = query(alpha, LAST + 1, relation=relation, mechanism=mechanism, epsilon=1)
    rate = asked.under(bounds, relation, 1).claim.rate
    assert rate >= asked.under(bounds, relation).claim.rate
    near = neighbors(all_counts(places, rows), relation, 1)

    def worst(rate):
        laws = log_laws_of_cells(tuple(PLACES[score, places]), rows, alpha, rate, mechanism)
        return (laws[:, None, :] - laws[None, :, :]).max(axis=2)[near].max()

    assert 0.99 <= worst(rate) <= 1 + 1e-9
    assert worst(rate * Fraction(102, 100)) > 1  # the control


@pytest.mark.parametrize("score", SCORES)
def test_a_row_that_leaves_one_group_and_enters_another_may_lose_all_of_epsilon(score, mechanism):
    """On a private frame of two groups, which are drawn independently: what the two rows lose adds up."""
    alpha = SCORES[score]
    expr = dpp.quantile("x", alpha, dpp.grid(0, LAST, step=1), epsilon=1, mechanism=mechanism)

    def claim_of(groups):
        private = dpp.protect("person", max_rows=1, neighboring_relation="replace_one")
        return private.group_by({"g": range(groups)}).agg(expr)._asks[0].query.claim

    removed, added = distances(2, 20)

    def worst(rate):
        most = np.zeros(2)
        for places in ((1, LAST - 1), (1, 3), (LAST - 3, LAST - 1)):
            laws = log_laws_of_cells(places, 20, alpha, rate, mechanism)
            pairs = (laws[:, None, :] - laws[None, :, :]).max(axis=2)
            leaves, enters = (pairs[(removed == n) & (added == 1 - n)].max() for n in (1, 0))
            most = np.maximum(most, [leaves, enters])
        return most.sum()

    assert 0.99 <= worst(claim_of(2).rate) <= 1 + 1e-9
    if score != "median":
        assert worst(claim_of(1).rate) > 1.3  # the control: at the rate of one group


# Scores of the caller's own


@pytest.mark.parametrize("monotonic", [True, False])
@pytest.mark.parametrize("sensitivity", [1, 2])
def test_own_scores_lose_no_more_than_they_say(sensitivity, monotonic, mechanism):
    steps = range(-sensitivity, sensitivity + 1)
    changes = [c for c in itertools.product(steps, repeat=3) if not monotonic or min(c) >= 0 or max(c) <= 0]
    vectors = np.array(list(itertools.product(range(6), repeat=2)))
    vectors = np.column_stack([np.full(len(vectors), 3), vectors])  # only differences count
    for loss in (Loss(Fraction(3), "epsilon"), Loss(Fraction(1, 4), "rho")):
        rate = claim_for_scores(loss, mechanism, sensitivity, monotonic).rate

        @functools.cache
        def log_law(scores, rate=rate):
            law = reference.law(scores, rate=rate, mechanism=mechanism, digits=17)
            return np.array([float(p.log()) for p in law])

        largest = 0.0
        for scores, change in itertools.product(vectors.tolist(), changes):
            changed = [s + c for s, c in zip(scores, change, strict=True)]
            p = log_law(tuple(s - max(scores) for s in scores))
            q = log_law(tuple(s - max(changed) for s in changed))
            if loss.unit == "epsilon":
                largest = max(largest, float((p - q).max()))
            else:
                largest = max(largest, *(renyi(p, q, order) / order for order in ORDERS))
        assert largest <= loss.value * (1 + 1e-9)
        if (loss.unit, mechanism) == ("epsilon", "permute_and_flip"):
            assert largest >= 0.99 * loss.value


def test_losses_in_two_groups_add_up():
    # What `worst` of test_every_statistic.py rests on, from the joint law of a frame of two groups.
    laws = log_laws(2, 3, Fraction(1), "permute_and_flip")
    near = neighbors(all_counts(2, 3), "add_or_remove_one", 1)
    pairs = losses(2, 3, Fraction(1), "permute_and_flip")
    joint = max(
        (laws[a][:, None] + laws[b][None, :] - laws[c][:, None] - laws[d][None, :]).max()
        for a, c in np.argwhere(near)
        for b, d in np.argwhere(near)
    )
    assert joint == pytest.approx(2 * pairs[near].max(), rel=1e-12)


# Permute-and-flip is not bounded-range (design, zCDP)


def test_the_counterexample():
    ratios = reference.log_ratios([1, -1], [0, 0], rate=1, mechanism="permute_and_flip", digits=30)
    ratios = [float(r) for r in ratios]
    assert ratios == pytest.approx([np.log(2 - np.exp(-2)), -2.0], rel=1e-12)
    assert max(ratios) - min(ratios) == pytest.approx(2.62308, abs=1e-5)  # more than epsilon = 2
    assert privacy_loss([0, 0], [1, -1], epsilon=2) == pytest.approx(2.0, rel=1e-12)  # and yet epsilon-DP
    # So rho = epsilon²/8 is false for it, already for Kullback-Leibler, and the claim's own rho holds.
    kl = sum(0.5 * -r for r in ratios)
    assert kl > 2**2 / 8
    assert kl <= laplace_rho(Fraction(2))
    assert query(None, 2, relation=RELATIONS[1], mechanism=MECHANISMS[0], epsilon=2).claim.cost("rho") > kl
    # The exponential mechanism is bounded-range on the same pair.
    ratios = [float(r) for r in reference.log_ratios([1, -1], [0, 0], rate=1, mechanism="exponential", digits=30)]
    assert max(ratios) - min(ratios) <= 2 + 1e-12


def test_the_false_rho_of_permute_and_flip_would_be_found():
    laws, near = log_laws(2, 12, Fraction(1), "permute_and_flip"), neighbors(all_counts(2, 12), "replace_one")
    found = max(renyi(laws[:, None], laws, order)[near].max() / order for order in ORDERS)
    assert found > 2**2 / 8
    assert found <= laplace_rho(Fraction(2))
