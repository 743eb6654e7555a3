"""Privacy profiles of one release and of many, against direct integration and dp_accounting's own."""

import itertools
import math
import sys
from fractions import Fraction
from functools import partial
from itertools import accumulate
from statistics import NormalDist

import hypothesis.strategies as st
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings

import dp_polars as dpp
from dp_polars import analysis
from dp_polars._accounting import costs as conversions
from dp_polars._accounting.claims import Claim, claim_of_choice
from dp_polars._accounting.terms import Contributions, Loss
from dp_polars._base.numbers import as_fraction, ball, lower, precision, upper
from dp_polars.analysis import _profile
from dp_polars.analysis._profile import _rounded_losses
from tests.helpers.needs import need
from tests.helpers.pairs import deltas, gaussians, losses_of, response
from tests.helpers.reference import bounded_range_rho
from tests.helpers.refusals import refused
from tests.registry import MECHANISMS


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 2, 10])
def test_profiles_of_one_release(epsilon):
    flip, exponential = (analysis.privacy_profile(epsilon, m) for m in MECHANISMS)
    for t in np.linspace(0, epsilon, 7):
        below = 1 - math.exp((t - epsilon) / 2)
        assert flip.delta(t) == pytest.approx(below, abs=1e-15)
        assert exponential.delta(t) == pytest.approx(below**2 / (1 - math.exp(-epsilon)), abs=1e-15)
    for profile in (flip, exponential):
        assert profile.delta(epsilon) == profile.delta(epsilon + 1) == 0
        assert profile.epsilon(0) == epsilon
        assert profile.epsilon(0.999999) == 0
        for delta in (1e-12, 1e-6, profile.delta(epsilon / 3)):
            assert profile.delta(profile.epsilon(delta)) == pytest.approx(delta, rel=1e-3)
    assert analysis.privacy_profile(epsilon) == flip


@given(st.integers(1, 400), st.floats(0, 1), st.sampled_from(MECHANISMS))
def test_no_profile_is_rounded_down(hundredths, share, mechanism):
    loss = Fraction(hundredths, 100)
    t = as_fraction("t", round(share * hundredths / 100, 6))
    profile = analysis.privacy_profile(loss, mechanism)
    delta = profile.delta(t)
    with precision(300):
        below = 1 - (ball(t - loss) / 2).exp()
        exact = below if mechanism == "permute_and_flip" else below**2 / (1 - ball(-loss).exp())
        assert t >= loss or lower(exact) <= as_fraction("delta", delta) <= upper(exact) * (1 + Fraction(1, 2**50))
    if 0 < delta < 1:
        assert as_fraction("epsilon", profile.epsilon(delta)) >= min(t, loss) - Fraction(1, 10**9)


@pytest.mark.parametrize("times", range(2, 9))
@pytest.mark.parametrize("loss", [Fraction(1, 3), Fraction(1, 7), Fraction(2, 11)])
def test_sums_are_not_rounded_down(loss, times):
    """Nor at a delta that is so small that nothing else is proved."""
    assert analysis.compose([(0.1, "exponential")] * 3, delta=0) == 0.3
    assert Fraction(analysis.compose([(Fraction(1, 3), "exponential")], delta=0)) > Fraction(1, 3)
    flips = [(loss, "permute_and_flip")] * times
    assert as_fraction("loss", analysis.compose(flips, delta=0)) >= loss * times
    found = Fraction(str(analysis.compose(flips, delta=1e-300)))
    assert loss * times <= found <= loss * times * (1 + Fraction(1, 10**15))


def test_permute_and_flip_with_two_candidates_attains_its_profile():
    epsilon, profile = 1.5, analysis.privacy_profile(1.5)
    for t in np.linspace(0, 1.4, 8):
        # The scores at which the log-ratio of the best candidate's densities in the race is t.
        gap = (t + epsilon) / 2 / epsilon
        before = analysis.scores.selection_probabilities([0.0, gap], epsilon=epsilon, monotonic=True)
        after = analysis.scores.selection_probabilities([1.0, gap], epsilon=epsilon, monotonic=True)
        found = np.maximum(after - math.exp(t) * before, 0).sum()
        assert found == pytest.approx(profile.delta(t), abs=1e-14)


@pytest.mark.slow
@given(
    st.lists(st.integers(-6, 6), min_size=1, max_size=6),
    st.data(),
    st.sampled_from([0.2, 1, 4]),
    st.sampled_from(MECHANISMS),
)
@settings(deadline=None, max_examples=200)
def test_no_neighbors_are_worse_than_the_profile(scores, data, epsilon, mechanism):
    moved = data.draw(st.lists(st.floats(-1, 1), min_size=len(scores), max_size=len(scores)))
    pair = [
        analysis.scores.selection_probabilities(np.array(s, float), epsilon=epsilon, mechanism=mechanism)
        for s in (scores, np.add(scores, moved))
    ]
    profile = analysis.privacy_profile(epsilon, mechanism)
    for one, other in (pair, pair[::-1]):
        for t in np.linspace(0, epsilon, 9):
            assert np.maximum(one - math.exp(t) * other, 0).sum() <= profile.delta(t) + 1e-13


@pytest.mark.parametrize("mechanism", [*MECHANISMS, "discrete_laplace"])
@pytest.mark.parametrize("x", [0.001, 0.01, 0.3, 0.5, 1, 3, 7])
@pytest.mark.parametrize("step", [0.001, 0.0137, 0.5, 2])
def test_the_rounded_losses_are_those_of_a_pair_no_better(x, step, mechanism):
    masses = _rounded_losses(mechanism, x, step)
    losses, first = np.array(list(masses)) * step, np.array(list(masses.values()))
    second = first * np.exp(-losses)
    assert first.min() >= 0
    assert first.sum() == pytest.approx(1, abs=1e-12)
    assert second.sum() == pytest.approx(1, abs=1e-12)
    profile = analysis.PrivacyProfile.of([noise_claim(mechanism, epsilon=x)])
    for t in np.linspace(0, x, 5):
        found = np.maximum(first - math.exp(t) * second, 0).sum()
        assert found >= profile.delta(t) - (1e-12 if mechanism == "discrete_laplace" else 1e-13)
        assert found <= profile.delta(t) + step  # and only as much worse as the grid is coarse


@pytest.mark.parametrize(("epsilon", "times"), [(0.1, 100), (0.5, 7), (1, 2)])
def test_permute_and_flip_composes_as_the_laplace_mechanism(epsilon, times):
    pld = need("dp_accounting.pld.privacy_loss_distribution")
    laplace = pld.from_laplace_mechanism(1 / epsilon, value_discretization_interval=epsilon / 500)
    composed = laplace.self_compose(times)
    ours = analysis.privacy_profile(epsilon).compose(times)
    for delta in (1e-8, 1e-5, 0.01):
        assert ours.epsilon(delta) == pytest.approx(composed.get_epsilon_for_delta(delta), rel=1e-5)
        assert ours.delta(ours.epsilon(delta)) == pytest.approx(delta, rel=1e-3)


def test_the_exponential_mechanism_composes_better_than_whatever_has_a_pure_epsilon():
    pld = need("dp_accounting.pld.privacy_loss_distribution")
    common = need("dp_accounting.pld.common")
    ours = analysis.compose([(0.1, "exponential")] * 100, delta=1e-6)
    # The bound of dp_accounting's own event (in its repository after release 0.6.0): randomized response.
    anything = common.DifferentialPrivacyParameters(0.1, 0)
    theirs = pld.from_privacy_parameters(anything, value_discretization_interval=1e-4).self_compose(100)
    assert (ours, theirs.get_epsilon_for_delta(1e-6)) == (pytest.approx(2.42, abs=0.01), pytest.approx(4.77, abs=0.01))


@pytest.mark.slow
def test_two_releases_by_direct_integration():
    need("dp_accounting")
    # The exponential mechanism's dominating pair: losses on [−x, x] with density exp((s − x)/2)/2/(1 −
    # exp(−x)).
    x, steps = 1.0, 4000
    s = -x + 2 * x * (np.arange(steps) + 0.5) / steps
    mass = np.exp((s - x) / 2) / 2 / (1 - math.exp(-x)) * (2 * x / steps)
    total = np.add.outer(s, s)
    profile = analysis.privacy_profile(x, "exponential").compose(2)
    for t in (0.0, 0.5, 1.2, 1.9):
        exact = (np.multiply.outer(mass, mass) * np.maximum(1 - np.exp(t - total), 0)).sum()
        assert profile.delta(t) == pytest.approx(exact, rel=1e-3)
        assert profile.delta(t) >= exact * (1 - 1e-5)


def test_compose_takes_the_best_of_three_proofs():
    need("dp_accounting")
    few = [(1, "permute_and_flip"), (0.5, "exponential")]
    assert analysis.compose(few, delta=0) == 1.5  # pure
    assert 1.4 < analysis.compose(few, delta=1e-6) < 1.5
    flip, exponential = ([(0.01, m)] * 1000 for m in MECHANISMS)
    assert analysis.compose(flip, delta=1e-6) == pytest.approx(1.36292, abs=1e-4)  # as Laplace mechanisms
    # Many releases of bounded range: zCDP with about epsilon²/8 each, together 1/80, at the best order.
    assert analysis.compose(exponential, delta=1e-6) == pytest.approx(0.70021, abs=1e-4)
    tiny = analysis.compose(exponential, delta=1e-300)
    assert 1 < tiny < 1 / 80 + 2 * math.sqrt(math.log(1e300) / 80)


def test_delta_of_many_releases_falls_with_epsilon():
    need("dp_accounting")
    profile = analysis.privacy_profile(0.1, "exponential").compose(50)
    deltas = [profile.delta(t) for t in np.linspace(0, 5, 21)]
    assert all(a >= b for a, b in itertools.pairwise(deltas))
    assert deltas[-1] == 0
    assert analysis.privacy_profile(0.1).compose(2).compose(3) == analysis.privacy_profile(0.1).compose(6)
    assert all(profile.epsilon(d) <= t + 1e-3 for d, t in zip(deltas[:-1], np.linspace(0, 5, 21), strict=False))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_no_delta_is_rounded_to_zero(mechanism):
    need("dp_accounting")
    profile = analysis.PrivacyProfile.of([(Fraction("0.001"), mechanism)]).compose(10_000)
    assert profile.delta(Fraction("9.9")) == profile.delta(Fraction("9.9999999")) == 5e-324
    assert profile.delta(10) == 0  # the sum of the pure losses
    assert profile.delta(Fraction("9.9999999")) <= profile.delta(5) <= profile.delta(1) < 1e-20
    assert profile.epsilon(5e-324) > profile.epsilon(1e-300) > 1
    assert profile.epsilon(Fraction(1, 10**400)) == 10


@given(st.fractions(Fraction(1, 1000), 20), st.fractions(Fraction(1, 100), 30), st.floats(1e-320, 0.9))
@settings(max_examples=30)
def test_zcdp_is_rounded_up(rho, gap, delta):
    orders = []

    def moment(a):
        orders.append(a)
        return a * (1 + a) * ball(rho)

    def log_delta(epsilon):  # at the order that the search ends with, in more digits
        a = ball(Fraction(float(orders[-1])))
        return ball(rho) * a * (1 + a) - a * ball(epsilon) - a.log() - (1 + a) * (1 + 1 / a).log()

    proved = conversions.renyi_delta(moment, rho, rho + gap)
    assert proved == conversions.zcdp_delta(rho, rho + gap)
    with precision(300):
        assert log_delta(rho + gap) <= ball(as_fraction("delta", proved)).log() or proved == 1
    wanted = conversions.renyi_epsilon(moment, rho, delta)
    assert wanted == conversions.zcdp_epsilon(rho, delta)
    with precision(300):
        assert log_delta(as_fraction("epsilon", wanted)) <= ball(Fraction(delta)).log()


def divergence(losses, masses, order):
    """Return ln E e^((order − 1)·loss) over the first of a pair, which is (order − 1) times its Rényi divergence."""
    logs = (order - 1) * losses + np.log(masses)
    return logs.max() + math.log(np.exp(logs - logs.max()).sum())


@pytest.mark.parametrize("mechanism", [*MECHANISMS, "discrete_laplace"])
@pytest.mark.parametrize("x", [0.01, 0.5, 3, 20])
def test_divergences_are_those_of_the_pairs_or_by_rho(mechanism, x):
    """The moments of the pairs against their losses on a fine grid, which can only be worse than they are."""
    step = x / 4000
    masses = _rounded_losses(mechanism, x, step)
    losses, first = np.array(list(masses)) * step, np.array(list(masses.values()))
    losses, first = losses[first > 0], first[first > 0]
    profile = analysis.PrivacyProfile.of([noise_claim(mechanism, epsilon=x)] * 3)
    for order in (1.001, 1.3, 2, 7, 60, 900):
        exact, by_rho = divergence(losses, first, order), (order - 1) * order * float(profile.rho) / 3
        with precision(200):
            found = float(profile._log_moment(ball(Fraction(order) - 1))) / 3
        assert found == pytest.approx(min(exact, by_rho), rel=1e-4)
        assert found <= (order - 1) * x
    with precision(200):  # bounded range has a smaller rho than its pair, and at large orders the pair is less
        small, large = (float(profile._log_moment(ball(Fraction(a)))) / 3 / a for a in (1, 1000))
    assert large <= x * (1 + 1e-12)
    assert small <= 2 * float(profile.rho) / 3 * (1 + 1e-12)


def test_divergences_prove_less_than_rho_where_delta_is_tiny_or_losses_are_large():
    flips = analysis.PrivacyProfile.of([(0.1, "permute_and_flip")] * 100)
    assert flips.epsilon(1e-12) == pytest.approx(6.97780, abs=1e-4)
    assert conversions.zcdp_epsilon(flips.rho, 1e-12) == pytest.approx(7.38176, abs=1e-4)
    mixed = [*[(0.1, "permute_and_flip")] * 100, (8, "exponential")]
    assert analysis.compose(mixed, delta=1e-12) == pytest.approx(14.6366, abs=1e-3)
    # One large loss, and noise that has rho only.
    claims = [noise_claim("discrete_gaussian", rho=0.1), noise_claim("discrete_laplace", epsilon=8)]
    profile = analysis.PrivacyProfile.of(claims)
    assert profile.epsilon(1e-6) < 8 + conversions.zcdp_epsilon(Fraction(1, 10), 1e-6) + 1e-9
    assert profile.epsilon(1e-6) < 0.8 * conversions.zcdp_epsilon(profile.rho, 1e-6)
    assert profile.delta(profile.epsilon(1e-6)) == pytest.approx(1e-6, rel=1e-3)


class Optimist:
    """A composition that finds no loss at all."""

    def get_delta_for_epsilon(self, epsilon):
        return 0.0

    def get_epsilon_for_delta(self, delta):
        return 0.0


def test_what_fft_can_not_see_is_left_to_zcdp(monkeypatch):
    monkeypatch.setattr(_profile, "_composed", lambda parts: Optimist())
    profile = analysis.privacy_profile(0.1).compose(100)
    assert profile.delta(6) == min(1e-10, conversions.zcdp_delta(profile.rho, Fraction(6))) > 0
    assert profile.delta(2) == 1e-10
    assert profile.epsilon(9e-11) > 1
    assert profile.epsilon(1e-10) == 0


@pytest.mark.parametrize("n", [25, 36, 50])
def test_deltas_and_epsilons_at_the_end_are_not_below_the_truth(n):
    need("dp_accounting")
    # All n losses are x with probability 2**-n.
    x = Fraction(1, 10)
    profile = analysis.privacy_profile(x).compose(n)
    for gap in (1e-4, 1e-2, 0.2, 1):
        assert profile.delta(n * x - Fraction(gap)) >= 2.0**-n * -math.expm1(-gap) * (1 - 1e-9)
    for delta in (1e-11, 1e-14, 1e-18):
        if delta * 2.0**n < 0.9:
            assert profile.epsilon(delta) >= float(n * x) + math.log1p(-delta * 2.0**n) - 1e-9


def test_claims_of_different_relations_do_not_compose():
    loss, bounds = Loss(Fraction(1), "epsilon"), Contributions(1, 1)
    relations = ("add_or_remove_one", "replace_one", None)
    claims = [claim_of_choice(loss, None, Fraction(1), bounds, relation) for relation in relations]
    assert analysis.compose(claims[1:], delta=0) == 2
    refused(ValueError, "releases must all be for one neighboring_relation", analysis.compose, claims, delta=0)


def test_claims_compose_with_all_that_a_person_loses():
    need("dp_accounting")
    loss = Loss.of(epsilon=1, rho=None)
    one = claim_of_choice(loss, "permute_and_flip", Fraction(2), Contributions(1, 1), None)
    assert analysis.PrivacyProfile.of([one]) == analysis.privacy_profile(1)
    # 7 rows, at most 3 in a group: two full groups and one row more, epsilon 3/7, 3/7 and 1/7.
    spread = claim_of_choice(loss, "permute_and_flip", Fraction(2), Contributions(7, 3), None)
    parts = (("permute_and_flip", Fraction(3, 7), 2), ("permute_and_flip", Fraction(1, 7), 1))
    assert analysis.PrivacyProfile.of([spread]).parts == parts
    assert analysis.compose([spread], delta=0) == 1
    assert analysis.compose([spread, one], delta=1e-5) < 2
    zcdp = claim_of_choice(Loss.of(epsilon=None, rho=0.125), None, Fraction(1), Contributions(1, 1), None)
    assert analysis.PrivacyProfile.of([zcdp]).parts == (("exponential", zcdp.rate, 1),)
    assert bounded_range_rho(zcdp.rate) == pytest.approx(0.125, rel=1e-25)


def noise_claim(mechanism, spread=(1, 1), draws=1, **loss):
    loss = Loss.of(**{"epsilon": None, "rho": None, **loss})
    return Claim(loss, mechanism, Fraction(3), Contributions(*spread), None, _draws=draws)


@pytest.mark.parametrize("epsilon", [0.05, 0.7, 2, 6])
def test_laplace_noise_of_neighbouring_integers_attains_its_profile(epsilon):
    # The claim's range is 3 units; its noise has the scale 3/epsilon, and 3 rows of one unit lie between neighbours.
    profile = analysis.PrivacyProfile.of([noise_claim("discrete_laplace", epsilon=epsilon)])
    x = np.arange(-4000, 4000)
    for shift, rate in ((1, epsilon), (3, epsilon / 3)):
        p = np.exp(-rate * np.abs(x)) * math.tanh(rate / 2)
        q = np.exp(-rate * np.abs(x - shift)) * math.tanh(rate / 2)
        for t in np.linspace(0, epsilon, 9):
            found = np.maximum(p - math.exp(t) * q, 0).sum()
            assert found <= profile.delta(t) + 1e-12
            if shift == 1:
                assert found == pytest.approx(profile.delta(t), abs=1e-12)
                assert profile.delta(t) == pytest.approx(
                    (math.exp(epsilon) - math.exp(t)) / (1 + math.exp(epsilon)), abs=1e-15
                )
                if 0 < t < epsilon:
                    assert profile.epsilon(profile.delta(t)) == pytest.approx(t, rel=1e-9)
    assert profile.delta(epsilon) == 0
    assert profile.epsilon(0) == epsilon
    assert profile.epsilon(0.999) == 0


@pytest.mark.parametrize("n", [2, 5])
def test_laplace_noise_composes_as_randomized_response(n):
    need("dp_accounting")
    x = 0.4
    profile = analysis.PrivacyProfile.of([noise_claim("discrete_laplace", epsilon=x)]).compose(n)
    heads, p = np.arange(n + 1), 1 / (1 + math.exp(-x))
    binomial = np.array([math.comb(n, k) for k in heads])
    one, other = binomial * p**heads * (1 - p) ** (n - heads), binomial * p ** (n - heads) * (1 - p) ** heads
    for t in np.linspace(0, n * x, 8)[:-1]:
        exact = np.maximum(one - math.exp(t) * other, 0).sum()
        assert exact * (1 - 1e-9) <= profile.delta(t) <= exact * (1 + 1e-2) + 1e-9
    # Better than what pure losses of any kind would give, never better than the truth.
    assert profile.epsilon(1e-3) < n * x


@pytest.mark.slow
@pytest.mark.parametrize("x", [0.0049, 0.0051, 0.02, 0.1, 0.4, 1, 1.7, 2.5, 3, 3.5])
def test_no_lattice_of_a_discrete_gaussian_loses_more_than_its_profile(x):
    """By the exact laws on whole numbers: also of numbers of steps that the proof does not look at one by one."""
    profile = analysis.PrivacyProfile.of([noise_claim("discrete_gaussian", rho=Fraction(str(x)) ** 2 / 2)])
    closest = 0.0
    for steps in (1, 2, 3, 5, 6, 7, 8, 9, 12, 30):
        p, q = gaussians(x, steps)
        for t in np.linspace(0, x**2 / 2 + 6 * x, 25):
            proved = profile.delta(t)
            for one, other in ((p, q), (q, p)):
                exact = np.maximum(one - math.exp(t) * other, 0).sum()
                assert exact <= proved * (1 + 1e-10) + 1e-15
                closest = max(closest, exact / proved if exact > 1e-9 else 0)
    # Never far above the truth: at t = 0 noise on counts attains it.
    assert closest > (1 - 1e-8 if 0.005 < x <= 3 else 0.9)
    # What the truth is not below: a continuous Gaussian of the same x would be too little.
    p, q = gaussians(x, 1)
    assert np.maximum(p - q, 0).sum() > math.erf(x / 2 / math.sqrt(2)) * (1 - 1e-9)


@pytest.mark.parametrize("x", [0.02, 0.1, 0.4, 0.9, 1.4, 2.0, 2.6, 3.0])
def test_the_shift_of_a_discrete_gaussian_is_enough_by_intervals(x):
    """Both errors of every test by a threshold, in balls: a Gaussian of that shift has no larger ones."""
    widest, root, normal = Fraction(_profile._widest_of(x)), ball(Fraction(2)).sqrt, NormalDist()
    with precision(160):
        for steps in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 15, 30)[: 7 if x < 0.1 else None]:
            h, shift = Fraction(x) / steps, ball(widest / steps)
            last = math.ceil((13.5 + x) / h) + 2
            masses = [(-ball((k * h) ** 2) / 2).exp() for k in range(last + math.ceil(8 / h))]
            beyond = masses[-1] * ball(Fraction(math.ceil(1 / h)))  # more than all of what is left out: k·h is above 20
            tails = list(accumulate(reversed(masses)))[::-1]
            total = 2 * tails[0] - masses[0]
            for k in range(last):
                # P(N ≥ k + 1), from below, and P(N ≥ k), from above
                first, second = tails[k + 1] / (total + 2 * beyond), (tails[k] + beyond) / total
                z = -normal.inv_cdf(float(first))
                z = ball(Fraction(z + 1e-13 * (1 + abs(z))))
                assert (z / root()).erfc() / 2 <= first
                assert ((z - shift) / root()).erfc() / 2 >= second


@pytest.mark.parametrize("x", [0.006, 0.05, *np.linspace(0.1, 3, 30).round(3).tolist()])
def test_no_smaller_shift_is_enough(x):
    """What noise on counts loses at epsilon 0 is what the Gaussian has, but for a billionth of the shift."""
    whole = np.arange(-math.ceil(40 / x), math.ceil(40 / x) + 1)
    exact = 1 / np.exp(-((whole * x) ** 2) / 2).sum()
    least = 2 * NormalDist().inv_cdf((1 + exact) / 2)
    assert least < _profile._widest_of(x) <= least * (1 + 3e-9)
    assert exact < _profile._gaussian_delta(_profile._widest_of(x), 0.0) <= exact * (1 + 5e-9)


@pytest.mark.parametrize(("rho", "times"), [(0.02, 1), (0.02, 50), (0.5, 7), (0.0001, 3)])
def test_discrete_gaussians_compose_to_one(rho, times):
    claim = noise_claim("discrete_gaussian", rho=rho)
    profile = analysis.PrivacyProfile.of([claim]).compose(times)
    assert profile.epsilon(0) == math.inf
    assert float(profile.rho) == pytest.approx(times * rho)
    x = math.sqrt(2 * rho)
    least, most = (_profile._gaussian_epsilon(math.sqrt(times) * s, 1e-6) for s in (x, x * (1 + x**2 / 18)))
    assert least <= profile.epsilon(1e-6) <= most
    assert profile.epsilon(1e-6) < (1 if rho == 0.5 else 0.96) * conversions.zcdp_epsilon(profile.rho, 1e-6)
    assert profile.delta(profile.epsilon(1e-6)) == pytest.approx(1e-6, rel=1e-6)
    assert profile.epsilon(1e-300) > profile.epsilon(1e-12) > profile.epsilon(1e-6)
    assert 0 < profile.delta(100) < 1e-20
    assert profile.epsilon(0.9) == 0
    need("dp_accounting")
    mixed = analysis.PrivacyProfile.of([claim, (0.3, "exponential"), noise_claim("discrete_laplace", epsilon=0.2)])
    assert mixed.epsilon(0) == math.inf
    assert float(mixed.rho) == pytest.approx(rho + float(bounded_range_rho(0.3)) + 0.2 * math.tanh(0.1))
    alone = [analysis.compose([one], delta=1e-6) for one in (claim, (0.3, "exponential"))]
    assert max(alone) < mixed.epsilon(1e-6) < sum(alone) + 0.2


def test_two_gaussians_and_a_count_by_exact_convolution():
    need("dp_accounting")
    x, epsilon = 0.5, 0.7
    claims = [noise_claim("discrete_gaussian", rho=Fraction(1, 8))] * 2
    profile = analysis.PrivacyProfile.of([*claims, noise_claim("discrete_laplace", epsilon=epsilon)])
    for steps in (1, 2, 4):
        one = losses_of(*gaussians(x, steps))
        epsilons = np.array([0.0, 0.5, 1, 2, 3, 4])
        exact = deltas([one, one, response(epsilon)], epsilons)
        proved = np.array([profile.delta(t) for t in epsilons])
        assert (exact <= proved * (1 + 1e-9)).all()
        assert (proved < 1.1 * exact)[:4].all()


@pytest.mark.slow
@pytest.mark.parametrize(
    "parts",
    [
        ((Fraction(1, 1000), 5000),),
        ((Fraction(1, 3), 77),),
        ((Fraction(1, 25), 5), (Fraction(1, 5), 105)),
        ((Fraction(1, 10_000), 100_000),),
    ],
    ids=str,
)
def test_the_rounding_of_many_is_added(parts):
    """Exact binomials: such losses lie on the grid, which adds nothing. The bare library is up to 3e-12 too low."""
    need("dp_accounting")
    claims = [(noise_claim("discrete_laplace", epsilon=x), n) for x, n in parts]
    counts = tuple(("discrete_laplace", x, n) for x, n in parts)
    profile = analysis.PrivacyProfile(counts, sum(claim.cost("rho") * n for claim, n in claims))
    with precision(128):
        losses = [(ball(Fraction(1)), Fraction(0))]
        for x, n in parts:
            chance = 1 / (1 + ball(-x).exp())
            mass, more = (1 - chance) ** n, []
            for k in range(n + 1):
                more.append((mass, (2 * k - n) * x))
                mass *= chance / (1 - chance) * ball(Fraction(n - k, k + 1))
            more = [(mass, loss) for mass, loss in more if mass > 1e-30]
            losses = [(one * mass, at + loss) for one, at in losses for mass, loss in more]
        for delta in (1e-10, 1e-9, 1e-7, 1e-3, 0.1):
            for epsilon, proved in (
                (profile.epsilon(delta), delta),
                (profile.epsilon(delta) / 2, profile.delta(profile.epsilon(delta) / 2)),
            ):
                at = as_fraction("epsilon", epsilon)
                truth = sum(mass * (1 - ball(at - loss).exp()) for mass, loss in losses if loss > at)
                assert upper(truth) <= as_fraction("delta", proved)
                assert epsilon == 0 or as_fraction("delta", proved) <= upper(truth) * Fraction(21, 20)


def test_what_has_rho_only_composes_by_it():
    """The noise of keys, shifts that are large, and very many releases."""
    keys = dpp.protect("p", max_groups=1).keys("g", rho=0.1, delta=1e-8)._asks[0].query.claim
    profile = analysis.PrivacyProfile.of([keys])
    left = float((Fraction(1, 10**6) - keys.delta) / (1 - keys.delta))
    assert profile.epsilon(1e-6) == pytest.approx(conversions.zcdp_epsilon(profile.rho, left), rel=1e-12)
    assert profile.delta(5) == pytest.approx(float(keys.delta) + conversions.zcdp_delta(profile.rho, Fraction(5)))
    large = analysis.PrivacyProfile.of([noise_claim("discrete_gaussian", rho=5)])
    assert large.epsilon(1e-6) == conversions.zcdp_epsilon(large.rho, 1e-6)
    many = analysis.PrivacyProfile.of([noise_claim("discrete_gaussian", rho=Fraction(1, 10**9))]).compose(10**9)
    assert many.epsilon(1e-6) == conversions.zcdp_epsilon(many.rho, 1e-6)


def test_claims_of_noise_compose_over_groups_and_draws():
    spread = noise_claim("discrete_laplace", (7, 3), epsilon=1)
    third = Fraction(1, 7)
    profile = analysis.PrivacyProfile.of([spread])
    assert (profile.parts, profile.rho) == ((("discrete_laplace", Fraction(1), 1),), spread.cost("rho"))
    mean = noise_claim("discrete_laplace", (7, 3), draws=2, epsilon=1)
    profile = analysis.PrivacyProfile.of([mean])
    assert (profile.parts, profile.rho) == ((("discrete_laplace", Fraction(1, 2), 2),), mean.cost("rho"))
    apart = noise_claim("discrete_laplace", (7, 1), epsilon=1)
    assert analysis.PrivacyProfile.of([apart]).parts == (("discrete_laplace", third, 7),)
    assert analysis.compose([mean], delta=0) == 1
    gaussian = analysis.PrivacyProfile.of([noise_claim("discrete_gaussian", (7, 3), draws=2, rho=Fraction(1, 4))])
    assert float(gaussian.rho) == pytest.approx(0.25)


def partitions(total, largest):
    if total == 0:
        yield ()
    for part in range(min(total, largest), 0, -1):
        for rest in partitions(total - part, part):
            yield (part, *rest)


@pytest.mark.parametrize("spread", [(3, 2), (4, 2), (4, 3), (5, 4), (6, 3), (6, 1)])
@pytest.mark.parametrize("x", [0.1, 0.5, 1.0, 2.0])
def test_no_spread_of_rows_loses_more_than_is_composed(x, spread):
    """Randomized response in every group that a person has rows in: filling groups would be too little."""
    total, per_group = spread
    claim = noise_claim("discrete_laplace", spread, epsilon=Fraction(str(x)) * total)
    ((mechanism, loss, times),) = analysis.PrivacyProfile.of([claim]).parts
    assert mechanism == "discrete_laplace"
    epsilons = np.linspace(0, total * x, 25)[:-1]
    composed = deltas([response(float(loss))] * times, epsilons)
    found = [deltas([response(x * n) for n in parts], epsilons) for parts in partitions(total, per_group)]
    assert (np.max(found, axis=0) <= composed * (1 + 1e-9) + 1e-15).all()
    if (x, spread) == (1.0, (4, 3)):
        filled, alike = (deltas([response(x * n) for n in parts], [3.0]).item() for parts in ((3, 1), (2, 2)))
        assert (filled, alike) == (pytest.approx(0.4402, abs=1e-4), pytest.approx(0.4904, abs=1e-4))
        assert analysis.PrivacyProfile.of([claim]).delta(3) >= alike


@pytest.mark.parametrize("mechanism", ["permute_and_flip", "exponential"])
@pytest.mark.parametrize("x", [0.2, 0.7, 1.5])
def test_of_choices_full_groups_are_the_worst_spread(x, mechanism):
    def pair(loss):  # on a grid that halves every step between two losses
        masses = _rounded_losses(mechanism, loss, x / 24)
        return np.array(list(masses)) * (x / 24), np.array(list(masses.values()))

    epsilons = np.linspace(0, 4 * x, 13)[:-1]
    for filled, others in (((3, 1), [(2, 2), (2, 1, 1)]), ((2, 2), [(2, 1, 1)]), ((3, 3), [(2, 2, 2)])):
        worst = deltas([pair(x * n) for n in filled], epsilons)
        for parts in others:
            assert (deltas([pair(x * n) for n in parts], epsilons) <= worst + 2e-3 * x).all()


@pytest.mark.parametrize("loss", [{"epsilon": 1}, {"rho": Fraction(1, 4)}], ids=str)
def test_a_replaced_number_composes_as_two_people(loss):
    """`compose` and budgets take the same rho, and both sums are the pure loss."""
    for bounds in ({"max_rows": 1}, {"max_rows": 4, "max_rows_per_group": 3}):
        private = dpp.protect("p", **bounds, neighboring_relation="replace_one").group_by({"g": range(5)})
        ask = private.agg(dpp.len(**loss, mechanism="discrete_laplace"))._asks[0]
        profile, claim = analysis.PrivacyProfile.of([ask.query.claim]), ask.query.claim
        assert profile.parts == (("discrete_laplace", claim.rate * claim.contributions.total, 2),)
        pure = claim.rate * claim.score_range * claim.contributions.total
        assert (profile._pure(), profile.rho) == (pure, claim.cost("rho"))


@pytest.mark.parametrize("groups", [1, 2, 3, 9])
@pytest.mark.parametrize(
    "bounds", [{"max_rows": 1}, {"max_rows": 4, "max_rows_per_group": 3}, {"max_rows": 6}], ids=str
)
def test_replaced_numbers_compose_as_they_are_charged(bounds, groups):
    """The squared shifts of Gaussians are twice their rho, and what is pure adds up to the epsilon, or to more."""
    private = dpp.protect("p", **bounds, max_groups=2, neighboring_relation="replace_one")
    grouped = private.group_by({"g": range(groups)})
    x = pl.col("x")
    for loss, number in itertools.product(
        ({"epsilon": 1}, {"rho": 0.1}, {"rho": 0.1, "mechanism": "discrete_laplace"}), range(5)
    ):
        asked = (dpp.len, dpp.n_people, partial(x.dp.sum, -4, 3), partial(x.dp.mean, 0, 3), partial(x.dp.var, -4, 3))
        claim = grouped.agg(asked[number](**loss))._asks[0].query.claim
        profile = analysis.PrivacyProfile.of([claim])
        assert profile.rho == claim.cost("rho")
        if claim._has_epsilon:
            assert profile._pure() == claim.cost("epsilon")
        else:
            assert sum(n * shift**2 for _, shift, n in profile.parts) == claim._squares * claim.rate**2
            assert profile.epsilon(1e-6) < conversions.zcdp_epsilon(claim.loss.value, 1e-6)
            # No move of a draw is longer than the longest part, by which the noise is widened.
            row = claim.rate * claim.score_range * claim.contributions.per_group
            assert max(shift for _, shift, _ in profile.parts) <= row


def test_bad_input_and_a_missing_extra_are_named(monkeypatch):
    profile, compose = analysis.privacy_profile, analysis.compose
    one = profile(1)
    refused(ValueError, "epsilon must be greater than 0", profile, 0)
    refused(ValueError, "mechanism must be one of", profile, 1, "laplace")
    refused(ValueError, "epsilon must be at least 0", one.delta, -0.1)
    refused(ValueError, "epsilon must be finite", one.delta, math.nan)
    refused(ValueError, "delta must be at least 0 and below 1", one.epsilon, 1)
    refused(ValueError, "delta must be at least 0", one.epsilon, -1e-9)
    refused(ValueError, "times must be at least 1", one.compose, 0)
    refused(ValueError, "at least one release", compose, [], delta=0)
    refused(ValueError, "epsilon must be greater", compose, [(-1, "exponential")], delta=0)
    for releases in ([0.1], [(0.1,)], ["ab"]):
        refused(TypeError, r"releases\[0\] must be a claim or a pair", compose, releases, delta=0)
    profile = analysis.privacy_profile(0.123).compose(3)
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    monkeypatch.delitem(sys.modules, "dp_accounting.pld.privacy_loss_distribution", raising=False)
    monkeypatch.delitem(sys.modules, "dp_accounting.pld", raising=False)
    refused(ModuleNotFoundError, r"pip install 'dp-polars\[accounting\]'", profile.epsilon, 1e-6)
    assert profile.epsilon(0) == pytest.approx(0.369)
