"""Pairs of sums by brute force: what one person changes of both together, in both units and as (ε, δ)."""

import math
from fractions import Fraction

import numpy as np
import polars as pl
import pytest

import dp_polars as dpp
from dp_polars import analysis
from tests.privacy.test_numbers import BOUNDS, NORMS, ROUNDED, changes, laplace_divergence, largest

X = pl.col("x")
EPSILON = Fraction(1, 2)


def asked(low, high, **loss):
    loss = loss or {"epsilon": EPSILON}
    return {
        "rows": X.dp.count(**loss),
        "total": X.dp.sum(low, high, step=1, **loss),
        "mean": X.dp.mean(low, high, step=1, **loss),
        "share": dpp.share(X > 1, **loss),
    }


@pytest.mark.parametrize("ends", [(-4, 3), (-2, 2), (0, 3), (1, 2), (-9, 9)], ids=str)
@pytest.mark.parametrize("bounds", [BOUNDS[0], BOUNDS[4], BOUNDS[-1], *NORMS[:2]], ids=str)
def test_a_pair_costs_what_its_statistics_pay(bounds, ends, monkeypatch):
    """All people with up to three rows, and with many, in three groups; the loss is attained by some of them."""
    found, query = changes(monkeypatch, asked(*ends), shares=True, **bounds)
    draws = {draw for ask in query._asks for draw in ask.query.shared}
    assert sorted(draw.sums for draw in draws) == [2, 2]
    paid = query.loss.value
    assert sum(claim.loss.value for claim in query._request.claims) == paid == 4 * EPSILON
    assert largest(found[""]) <= paid
    for place, (_, claim) in enumerate(query._request.charged):
        worst = largest(found[""][2 * place : 2 * place + 2])
        assert worst <= claim.loss.value
        if 3 * bounds.get("max_rows_per_group", 99) >= claim.contributions.total:
            assert worst >= claim.loss.value * (1 - ROUNDED)


def test_two_draws_that_a_row_moves_in_full_would_cost_more(monkeypatch):
    """The control: a sum from the middle and a count, each at the rate of a pair."""
    found, query = changes(monkeypatch, {"mean": asked(-4, 3)["mean"]}, shares=True, **BOUNDS[4])
    first, second = (draw.values for draw in found[""])
    claim = found[""][0].claim
    assert largest(found[""]) <= query.loss.value
    centred, rows = np.abs(first - second).sum(axis=1), (first + second).sum(axis=1)
    assert float(claim.rate) * (centred + rows).max() > 1.9 * float(query.loss.value)


@pytest.mark.parametrize("bounds", [BOUNDS[4], NORMS[1]], ids=str)
def test_the_pair_of_a_person_is_a_count_in_the_other_unit(bounds, monkeypatch):
    """The Rényi divergences of all that a person moves are at most those of rho."""
    found, query = changes(monkeypatch, asked(-4, 3), shares=True, **bounds)
    scaled = np.unique(np.abs(np.concatenate([draw.scaled for draw in found[""]], axis=1)), axis=0)
    paid = sum(claim.cost("rho") for claim in query._request.claims)
    for order in (1.001, 2, 9, 50):
        worst = laplace_divergence(scaled, order).sum(axis=1).max()
        assert worst <= order * float(paid) * (1 + 1e-9)


def law(shift, rate, last):
    weights = np.exp(-rate * np.abs(np.arange(-last, last + 1) - shift))
    return weights * math.tanh(rate / 2)


@pytest.mark.parametrize("width", [1, 2, 5])
@pytest.mark.parametrize("epsilon", [0.2, 1, 3])
def test_neighbours_differ_by_epsilon_and_no_more_than_the_profile(width, epsilon):
    """By the exact laws of both noisy sums, for each value of a row; and a row that moves both by all is caught."""
    rate, last = epsilon / width, math.ceil(60 * width / epsilon) + width
    profile = analysis.PrivacyProfile.of(
        dpp.protect(None).agg(mean=X.dp.mean(0, width, step=1, epsilon=epsilon))._request.claims
    )
    before = np.outer(law(0, rate, last), law(0, rate, last))
    for value in range(width + 1):
        after = np.outer(law(value, rate, last), law(width - value, rate, last))
        logs = np.log(after / before)
        assert np.abs(logs).max() == pytest.approx(epsilon, rel=1e-9)
        for at in (0, epsilon / 3, 0.9 * epsilon):
            for one, other in ((before, after), (after, before)):
                delta = np.maximum(one - math.exp(at) * other, 0).sum()
                assert delta <= profile.delta(at) + 1e-9
    both = np.outer(law(width, rate, last), law(width, rate, last))
    assert np.log(both / before).max() > 1.9 * epsilon
