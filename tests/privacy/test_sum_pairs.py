"""Bernstein sums by brute force: what one person changes of all of them together, in both units and as (ε, δ)."""

import math
from fractions import Fraction

import numpy as np
import polars as pl
import pytest

import dp_polars as dpp
from dp_polars import analysis
from dp_polars._bins.binning import Products
from tests.privacy.test_numbers import BOUNDS, NORMS, ROUNDED, changes, laplace_divergence, largest

X = pl.col("x")
EPSILON = Fraction(1, 2)


SUMS = [2, 3]  # of the column: with a variance, three


def asked(low, high, sums=2, **loss):
    loss = loss or {"epsilon": EPSILON}
    spread = {"spread": X.dp.var(low, high, step=1, **loss)} if sums == 3 else {}
    return spread | {
        "rows": X.dp.count(**loss),
        "total": X.dp.sum(low, high, step=1, **loss),
        "mean": X.dp.mean(low, high, step=1, **loss),
        "share": dpp.share(X > 1, **loss),
    }


@pytest.mark.parametrize("sums", SUMS)
@pytest.mark.parametrize("ends", [(-4, 3), (-2, 2), (0, 3), (1, 2), (-9, 9)], ids=str)
@pytest.mark.parametrize("bounds", [BOUNDS[0], BOUNDS[4], BOUNDS[-1], *NORMS[:2]], ids=str)
def test_bernstein_sums_cost_what_their_statistics_pay(bounds, ends, sums, monkeypatch):
    """All people with up to three rows, and with many, in three groups; the loss is attained by some of them."""
    found, query = changes(monkeypatch, asked(*ends, sums), shares=True, **bounds)
    draws = {draw for ask in query._asks for draw in ask.query.shared}
    assert sorted(draw.sums for draw in draws) == [2, sums]
    paid = query.loss.value
    assert sum(claim.loss.value for claim in query._request.claims) == paid == (2 + sums) * EPSILON
    assert largest(found[""]) <= paid
    places = found[""][:sums], found[""][sums:]
    for drawn, (_, claim) in zip(places, query._request.charged, strict=True):
        worst = largest(drawn)
        assert worst <= claim.loss.value
        if 3 * bounds.get("max_rows_per_group", 99) >= claim.contributions.total:
            assert worst >= claim.loss.value * (1 - ROUNDED)


@pytest.mark.parametrize("steps", [1, 2, 3, 7, 1000, 1 << 15, (1 << 15) + 1, 46_341, 10**6, 2**30 - 1, 2**30, 2**31])
def test_rounded_products_of_a_row_are_whole_numbers_with_a_fixed_sum(steps):
    """Exactly: no row takes from a sum, and all sums of 64-bit numbers are those of Python's."""
    places = range(steps + 1) if steps <= 46_341 else [*range(50), *np.random.default_rng(1).integers(0, steps, 20_000)]
    places = np.unique(np.array([*places, steps // 2, steps - 1, steps], np.int64))
    rules = [Products(Fraction(-5), Fraction(steps - 5), Fraction(1), from_bound=of) for of in ("lower", None, "upper")]
    first, middle, last = (rule.of_units(places - 5) for rule in rules)
    by, whole = rules[0].per_step, rules[0].largest
    assert whole == by * steps
    assert whole <= max(1 << 30, steps)
    assert min(one.min() for one in (first, middle, last)) == 0
    assert (first + middle + last == whole).all()
    assert (first - last == by * (2 * places - steps)).all()
    off = 0
    for place, one, other, another in zip(places.tolist(), first.tolist(), middle.tolist(), last.tolist(), strict=True):
        assert [one, other, another] == [rule.of_units(place - 5) for rule in rules]
        off = max(off, abs(2 * (one * steps - place**2 * by)))
    assert off <= (0 if rules[0].is_exact else steps)
    assert rules[0].is_exact == (steps <= 1 << 15)


def test_two_draws_that_a_row_moves_in_full_would_cost_more(monkeypatch):
    """The control: a sum from the middle and a count, each at the rate of a pair."""
    found, query = changes(monkeypatch, {"mean": asked(-4, 3)["mean"]}, shares=True, **BOUNDS[4])
    first, second = (draw.values for draw in found[""])
    claim = found[""][0].claim
    assert largest(found[""]) <= query.loss.value
    centred, rows = np.abs(first - second).sum(axis=1), (first + second).sum(axis=1)
    assert float(claim.rate) * (centred + rows).max() > 1.9 * float(query.loss.value)


@pytest.mark.parametrize("sums", SUMS)
@pytest.mark.parametrize("bounds", [BOUNDS[4], NORMS[1]], ids=str)
def test_the_sums_of_a_person_are_a_count_in_the_other_unit(bounds, sums, monkeypatch):
    """The Rényi divergences of all that a person moves are at most those of rho."""
    found, query = changes(monkeypatch, asked(-4, 3, sums), shares=True, **bounds)
    scaled = np.unique(np.abs(np.concatenate([draw.scaled for draw in found[""]], axis=1)), axis=0)
    paid = sum(claim.cost("rho") for claim in query._request.claims)
    for order in (1.001, 2, 9, 50):
        worst = laplace_divergence(scaled, order).sum(axis=1).max()
        assert worst <= order * float(paid) * (1 + 1e-9)


def parts(value, width, sums):
    """What a row adds to each sum, in units of which it adds width or its square to all."""
    rest = width - value
    return (value, rest) if sums == 2 else (value**2, 2 * value * rest, rest**2)


@pytest.mark.parametrize("sums", SUMS)
@pytest.mark.parametrize("width", [1, 2, 5])
@pytest.mark.parametrize("epsilon", [0.2, 1, 3])
def test_neighbours_differ_by_epsilon_and_no_more_than_the_profile(width, epsilon, sums):
    """By the exact laws of all noisy sums, for each value of a row; and a row that moves both by all is caught.

    With noise that follows one law, the ratio of a sum's laws has at most 2·(what the row adds) + 1 values.
    """
    unit = sum(parts(0, width, sums))
    rate = epsilon / unit
    profile = analysis.PrivacyProfile.of(
        dpp.protect(None).agg(mean=X.dp.mean(0, width, step=1, epsilon=epsilon))._request.claims
    )
    for value in range(width + 1):
        logs, before = np.zeros(1), np.ones(1)
        for move in parts(value, width, sums):
            ratios, law = of_ratio(move, rate)
            logs, before = np.add.outer(logs, ratios).ravel(), np.multiply.outer(before, law).ravel()
        after = before * np.exp(logs)
        assert before.sum() == pytest.approx(1, rel=1e-9)
        assert after.sum() == pytest.approx(1, rel=1e-9)
        assert np.abs(logs).max() == pytest.approx(epsilon, rel=1e-9)
        for at in (0, epsilon / 3, 0.9 * epsilon):
            for one, other in ((before, after), (after, before)):
                delta = np.maximum(one - math.exp(at) * other, 0).sum()
                assert delta <= profile.delta(at) + 1e-9
    assert 2 * of_ratio(unit, rate)[0].max() > 1.9 * epsilon


def of_ratio(move, rate):
    """The logarithms of the ratio of noise that is moved and noise that is not, and how likely they are."""
    if not move:
        return np.zeros(1), np.ones(1)
    numbers = np.arange(move + 1)
    weights = np.exp(-rate * numbers) * math.tanh(rate / 2)
    weights[0], weights[-1] = 1 / (1 + math.exp(-rate)), math.exp(-rate * move) / (1 + math.exp(-rate))
    return rate * (2 * numbers - move), weights
