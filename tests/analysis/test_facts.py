"""The facts that the package's privacy rests on, by computation on many neighbours."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from dp_polars import analysis
from dp_polars._accounting.costs import bounded_range_rho, laplace_rho
from dp_polars._base.numbers import as_fraction
from dp_polars.analysis._laws import block_log_factors, block_probabilities
from tests.helpers import reference
from tests.registry import MECHANISMS

ORDERS = [1.001, 1.5, 2, 4, 10, 40, 300]


def log_law(scores, rate, mechanism):
    gaps = np.max(scores) - np.asarray(scores, float)
    return block_log_factors(gaps, np.ones(len(gaps)), rate, mechanism) - rate * gaps


def renyi(log_p, log_q, order):
    logs = order * log_p - (order - 1) * log_q
    return (logs.max() + math.log(np.exp(logs - logs.max()).sum())) / (order - 1)


def neighbors(count=400):
    """Yield epsilon and the log-laws of both mechanisms on two neighbours with sensitivity 1."""
    rng = np.random.default_rng(210507260)
    for _ in range(count):
        k, epsilon = int(rng.integers(2, 7)), float(np.exp(rng.uniform(-2, 2.3)))
        scores = np.round(rng.normal(size=k) * np.exp(rng.uniform(-1, 3)), rng.integers(0, 3))
        moved = rng.choice([-1.0, 1.0], size=k) if rng.random() < 0.7 else rng.uniform(-1, 1, k)
        laws = {m: [log_law(s, epsilon / 2, m) for s in (scores, scores + moved)] for m in MECHANISMS}
        yield epsilon, laws
        # Two candidates at the gap where permute-and-flip is at its worst.
        pair = np.array([0.0, rng.uniform(0, 2)]), np.array([1.0, -1.0])
        yield epsilon, {m: [log_law(s, epsilon / 2, m) for s in (pair[0], sum(pair))] for m in MECHANISMS}


def test_permute_and_flip_is_not_bounded_range():
    # Ding et al. (2021, arXiv 2105.07260), Proposition 8 and Corollary 10: epsilon = 2, sensitivity 1.
    ratios = reference.log_ratios([1, -1], [0, 0], rate=1, mechanism="permute_and_flip")
    up, down = (float(r) for r in ratios)
    assert (up, down) == (pytest.approx(0.62308, abs=1e-5), pytest.approx(-2))
    assert up - down > 2.62
    log_p, log_q = (log_law(s, 1.0, "permute_and_flip") for s in ([0, 0], [1, -1]))
    # So epsilon²/8 is no rho for it, but f(epsilon) is.
    assert any(renyi(log_p, log_q, a) > a * 2**2 / 8 for a in ORDERS)
    assert all(renyi(log_p, log_q, a) <= a * float(laplace_rho(Fraction(2))) for a in ORDERS)
    log_p, log_q = (log_law(s, 1.0, "exponential") for s in ([0, 0], [1, -1]))
    assert all(renyi(log_p, log_q, a) <= a * float(bounded_range_rho(Fraction(2))) < a * 2**2 / 8 for a in ORDERS)


def test_permute_and_flip_has_the_trade_off_curve_of_the_laplace_mechanism():
    """Of every set of answers: its probability falls no further than h' = −min(h, 1 − h) allows."""
    rng, tight = np.random.default_rng(7), 0
    for _ in range(1500):
        k, x = int(rng.integers(2, 6)), float(np.exp(rng.uniform(-2, 1.5)))
        scores = rng.uniform(0, 1, k) * np.exp(rng.uniform(-1, 3))
        moved = scores - rng.choice([rng.uniform(0, 1, k), rng.integers(0, 2, k)])  # two scores move apart by 1 at most
        before, after = (np.exp(log_law(s, x, "permute_and_flip")) for s in (scores, moved))
        chosen = (np.arange(2**k)[:, None] >> np.arange(k)) & 1
        h, found = np.clip(chosen @ before, 0, 1), chosen @ after
        rest = np.maximum(1 - h, 1e-300)
        # Down to a half by 1 − h growing like exp, and then h falls like exp.
        least = np.where(
            h <= 0.5,
            h * math.exp(-x),
            np.where(rest * math.exp(x) <= 0.5, 1 - rest * math.exp(x), math.exp(-x) / 4 / rest),
        )
        assert (found >= least - 1e-12).all()
        tight += (np.abs(found - least)[(h > 1e-3) & (h < 1 - 1e-3)] < 1e-9).any()
    assert tight > 10  # attained


def test_the_zcdp_costs_hold_for_neighbors():
    tightest = dict.fromkeys(MECHANISMS, 0.0)
    for epsilon, laws in neighbors():
        rho = {
            "permute_and_flip": epsilon + math.expm1(-epsilon),
            "exponential": float(bounded_range_rho(as_fraction("epsilon", epsilon))),
        }
        for m, order in itertools.product(MECHANISMS, ORDERS):
            for pair in (laws[m], laws[m][::-1]):
                share = renyi(*pair, order) / (order * rho[m])
                tightest[m] = max(tightest[m], share)
    assert max(tightest.values()) <= 1 + 1e-9
    assert min(tightest.values()) > 0.9


def test_the_exponential_mechanism_has_bounded_range():
    widest = 0.0
    for epsilon, laws in neighbors():
        ratios = np.subtract(*laws["exponential"])
        widest = max(widest, np.ptp(ratios) / epsilon)
    assert 0.99 < widest <= 1 + 1e-12


def test_no_neighbors_pass_the_laplace_trade_off():
    closest = 0.0
    for epsilon, laws in neighbors():
        log_p, log_q = laws["permute_and_flip"]
        for t in np.linspace(-epsilon, epsilon, 13)[:-1]:
            laplace = 1 - math.exp((t - epsilon) / 2)
            for one, other in ((log_p, log_q), (log_q, log_p)):
                delta = np.maximum(np.exp(one) - np.exp(t + other), 0).sum()
                closest = max(closest, delta / laplace)
    assert 0.99 < closest <= 1 + 1e-12


def test_far_candidates_win_rarely_but_not_never():
    for mechanism in MECHANISMS:
        assert 0 < block_probabilities(np.array([0, 45.0]), [1, 1], 1.0, mechanism)[1] < 2.0**-64
        many = block_probabilities(np.array([0, 45.0]), [1, 10**9], 1.0, mechanism)[1]
        assert 2.0**-36.1 < many < 2.0**-35


def test_at_equal_rho_the_exponential_mechanism_has_the_larger_rate_and_less_than_twice():
    for rho in (1e-4, 0.01, 1, 5.8, 5.86, 50, 100):
        flip, exponential = (
            analysis.scores.selection_probabilities([1, 0], rho=rho, monotonic=True, mechanism=m)[1] for m in MECHANISMS
        )
        # For two candidates: p/2 and p/(1 + p).
        rates = -math.log(2 * flip), -math.log(exponential / (1 - exponential))
        assert rates[0] < rates[1] < 2 * rates[0]


def worst_case(n, mechanism):
    """Return the largest expected error over scores (0, −g, …, −g) with λ = 1, and p = exp(−g) there."""

    def error(p):
        gap = -math.log(p)
        scores = np.r_[0.0, np.full(n - 1, -gap)]
        return analysis.scores.expected_error(scores, epsilon=1, monotonic=True, mechanism=mechanism)

    # The error has one peak: golden section on log p.
    low, high, golden = -math.log(n) - 5.0, -1e-3, (math.sqrt(5) - 1) / 2
    while high - low > 1e-9:
        a, b = high - golden * (high - low), low + golden * (high - low)
        if error(math.exp(a)) < error(math.exp(b)):
            low = a
        else:
            high = b
    return error(math.exp(low)), math.exp(low)


def test_worst_cases():
    for n, *errors in (
        (2, 0.27846, 0.18394),
        (10, 1.10100, 0.89323),
        (100, 2.62865, 2.42793),
        (1000, 4.42050, 4.26541),
        (10_000, 6.36018, 6.23992),
    ):
        for mechanism, error in zip(("exponential", "permute_and_flip"), errors, strict=True):
            assert worst_case(n, mechanism)[0] == pytest.approx(error, abs=5e-6)
    for mechanism, error, p in zip(MECHANISMS, (0.6515, 0.9261), (0.321, 0.232), strict=True):
        found, at = worst_case(3, mechanism)
        # ε = Δ = 1: the unit 2Δ/ε is 2.
        assert 2 * found == pytest.approx(error, abs=5e-5)
        assert at == pytest.approx(p, abs=5e-4)


def test_the_mode_of_hepth(dpbench):
    counts = np.load(dpbench / "HEPTH.n4096.npy").reshape(1024, -1).sum(axis=1)
    errors = {m: analysis.scores.expected_error(counts, epsilon=0.04, monotonic=True, mechanism=m) for m in MECHANISMS}
    assert errors["exponential"] / errors["permute_and_flip"] == pytest.approx(1.84, abs=0.005)
    needed = analysis.scores.loss_needed(
        counts, expected_error=errors["permute_and_flip"], monotonic=True, mechanism="exponential"
    )
    assert needed / 0.04 == pytest.approx(1.27, abs=0.005)


def test_laplace_noise_gets_worse_without_end_beside_permute_and_flip():
    for exponent in (0.01, 1, 5, 30):
        laplace, exponential, flip = (
            analysis.scores.selection_probabilities([0, -exponent], epsilon=1, monotonic=True, mechanism=m)[1]
            for m in ("report_noisy_max_laplace", "exponential", "permute_and_flip")
        )
        assert laplace / flip == pytest.approx(1 + exponent / 2, rel=1e-9)
        assert exponential / flip == pytest.approx(2 / (1 + math.exp(-exponent)), rel=1e-9)
