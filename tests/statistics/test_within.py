"""Errors as `within` asks for them: whole numbers where only these occur, and those of means among many rows."""

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from flint import arb, ctx

import dp_polars as dpp
from dp_polars import analysis
from dp_polars._accounting.terms import Loss
from dp_polars._mechanisms.noise import noise_bound
from dp_polars._statistics.measures import check_within, error_95, with_loss_for
from tests.statistics.test_measures import tail


@pytest.mark.parametrize("within", [0, 1, 7, 100, 10**5])
@pytest.mark.parametrize("mechanism", ["discrete_laplace", "discrete_gaussian"])
def test_the_loss_of_a_count_is_the_smallest_by_the_exact_law(mechanism, within):
    claim = dpp.len(within=within, mechanism=mechanism).query.claim
    digit = Fraction(10) ** (len(str(int(claim.loss.value * 10**20))) - 24)
    less = replace(claim, loss=Loss(claim.loss.value - digit, claim.loss.unit))
    assert (claim.loss.value / digit).denominator == 1
    with ctx.workprec(256):
        assert tail(1 / claim.rate, mechanism, within) <= arb(1) / 20
        assert tail(1 / less.rate, mechanism, within) > arb(1) / 20


@pytest.mark.parametrize(("k", "within"), [(2, 1), (2, 3), (5, 4), (9, 1), (9, 11)])
@pytest.mark.parametrize("mechanism", ["permute_and_flip", "exponential"])
def test_a_mode_is_further_off_with_at_most_5_percent_by_the_exact_law(mechanism, k, within):
    """Where all others are one more than `within` behind: that is the worst case."""
    claim = dpp.mode("x", range(k), within=within, mechanism=mechanism).query.claim
    options = {"epsilon": claim.loss.value, "monotonic": True, "mechanism": mechanism}
    law = analysis.scores.selection_probabilities([within + 1] + [0] * (k - 1), **options)
    wrong = 1 - law[0]
    assert wrong <= 0.05
    # Of two candidates, nothing is given away but by the union over them, or by the last digit.
    if k == 2 and mechanism == "permute_and_flip":
        assert wrong > 0.0499


def test_errors_of_modes_and_top_k_are_whole_numbers():
    for epsilon in (0.1, 0.37, 1, 2.5):
        for query in (
            dpp.mode("x", range(5), epsilon=epsilon).query,
            dpp.top_k("x", 3, range(5), epsilon=epsilon).query,
            dpp.top_k("x", 3, range(5), epsilon=epsilon, mechanism="joint").query,
        ):
            assert query.error(5, 0.05).is_integer()
            # What is not reached but with 5 % is one more at most.
            bound = np.log(5 * 5 * 5 / 0.05) / float(query.claim.rate)
            assert 0 <= query.error(5, 0.05) < bound


def test_the_error_just_below_a_whole_bound_is_one_less():
    """An error of t or more has the probability β = exp(−λt)/2·(k − 1): for t up to 3 the error is 2, with 1 − β."""
    query = dpp.mode("x", [1, 2], epsilon=1).query
    assert [query.error(2, float(np.exp(-t) / 2)) for t in (2.999, 3.001)] == [2, 3]
    assert query.error(1, 0.05) == 0


def test_weights_err_in_whole_steps_and_are_bounded_where_the_step_is_not_known():
    weighed = (dpp.weights("w", max_weight=9, step=step) for step in (0.3, None))
    known, unknown = (dpp.mode("x", [1, 2, 3], counts=counts, epsilon=3).query for counts in weighed)
    bound = 9 * np.log(20) / 3
    assert known.error(3, 0.05) == pytest.approx(np.floor(bound / 0.3) * 0.3)
    assert unknown.error(3, 0.05) == pytest.approx(bound)
    types = pl.Int64(), pl.Decimal(9, 1)
    assert unknown.error(3, 0.05, *types) == pytest.approx(np.floor(bound / 0.1) * 0.1)
    assert unknown.error(3, 0.05, pl.Int64(), pl.Int32()) == np.floor(bound)


@pytest.mark.parametrize("loss", [{"epsilon": 8}, {"rho": 4}], ids=str)
def test_the_error_of_a_mean_by_enumeration(loss):
    """All sums of some rows, and all noise that is as likely as it says: the largest error, and no more."""
    query = dpp.mean("x", -2, 2, step=1, **loss).query
    off, by = (noise_bound(claim, 0.025) for claim in query.noise())
    assert by > 0
    attained = 0
    for rows in range(1, 40):
        bound = query.error_among(rows, 0.05)
        totals = np.arange(-4 * rows, 4 * rows + 1)  # in halves of a step: from −4 to 4 a row
        worst = max(
            np.abs(query.of_totals([totals + x, np.full(len(totals), rows + y)]) - totals / rows / 2).max()
            for x, y in itertools.product(range(-off, off + 1), range(-by, by + 1))
        )
        assert worst <= bound + 1e-9
        attained += worst > bound - 1e-9
    assert attained > 30
    # Where all of it may be noise, nothing is known.
    assert query.error_among(1, 0.05) == 4


def test_more_rows_have_smaller_errors_and_so_has_a_larger_loss():
    errors = [dpp.mean("x", 0, 30, step=1, epsilon=1).query.error_among(rows, 0.05) for rows in (3, 9, 99, 999, 10**6)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.001
    by_loss = [dpp.mean("x", 0, 30, step=1, rho=rho).query.error_among(99, 0.05) for rho in (0.01, 0.1, 1, 10)]
    assert by_loss == sorted(by_loss, reverse=True)


def test_a_mean_has_the_step_of_its_column():
    fine, coarse = (dpp.mean("x", 0, 9, within=0.5, rows=2000).query, dpp.mean("x", 0, 9, step=3, epsilon=1).query)
    types = pl.Decimal(9, 2)
    found = with_loss_for(fine, dpp.mean("x", 0, 9, within=0.5, rows=2000).within, types)
    assert error_95(found, dpp.mean("x", 0, 9, within=0.5, rows=2000).within.rows, types) <= 0.5
    assert coarse.error(1, 0.05) is None


def test_only_means_depend_on_rows_and_only_counts_may_be_right():
    mean = dpp.mean("x", 0, 9, step=1, epsilon=1).query
    assert mean.error_needs_rows
    assert not mean.is_count
    for query in (dpp.len(epsilon=1).query, dpp.n_people(epsilon=1).query, dpp.value_counts("x", [1], epsilon=1).query):
        assert query.is_count
        assert not query.error_needs_rows
        check_within(query, dpp.len(within=0).within)
        assert query.error_among(1000, 0.05) is None
