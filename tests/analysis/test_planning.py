"""From a goal to the smallest loss that reaches it, and the bounds that hold for all scores."""

import itertools
import math
from fractions import Fraction

import hypothesis.strategies as st
import numpy as np
import pytest
from flint import ctx
from hypothesis import example, given, settings

from dp_polars import analysis
from tests.helpers import reference
from tests.helpers.needs import need
from tests.helpers.reference import bounded_range_rho
from tests.helpers.refusals import refused
from tests.registry import MECHANISMS

COMPARABLE = [*MECHANISMS, "report_noisy_max_laplace"]

scores_ = st.lists(st.integers(-40, 40), min_size=1, max_size=12)


@given(scores_, st.sampled_from([0.05, 0.5, 1, 3]), st.sampled_from(MECHANISMS), st.sampled_from([0.01, 0.2, 0.6]))
@settings(deadline=None, max_examples=100)
def test_errors_keep_the_bounds(scores, epsilon, mechanism, beta):
    k, errors = len(scores), max(scores) - np.array(scores)
    rate = epsilon / 2
    law = analysis.scores.selection_probabilities(scores, epsilon=epsilon, mechanism=mechanism)
    for t in set(errors.tolist()) - {0}:
        bound = (k - 1) / 2 if mechanism == "permute_and_flip" else k
        assert law[errors >= t].sum() <= bound * math.exp(-rate * t) + 1e-13
    assert analysis.scores.expected_error(scores, epsilon=epsilon, mechanism=mechanism) <= math.log(k) / rate + 1e-12
    worst = analysis.scores.accuracy(k, epsilon=epsilon, mechanism=mechanism, confidence=1 - Fraction(str(beta)))
    assert law[(errors >= worst) & (errors > 0)].sum() <= beta + 1e-13


@pytest.mark.parametrize("k", [2, 3, 10, 1000])
@pytest.mark.parametrize("gap", [0.1, 1, 4])
def test_all_others_at_one_gap(k, gap):
    p = math.exp(-gap)
    law = analysis.scores.selection_probabilities([0.0] + [-gap] * (k - 1), epsilon=1, monotonic=True)
    exact = 1 - (1 - (1 - p) ** k) / (k * p)
    assert law[1:].sum() == pytest.approx(exact, rel=1e-12)
    assert exact <= (k - 1) * p / 2


# The largest mean error that any scores lead to.


def scaled_error(coins, mechanism):
    """λ times the mean error where the best candidate has the coin 1 and the others have these."""
    gaps = -np.log(np.append(1.0, coins))
    return analysis.scores.expected_error(-gaps, epsilon=1, monotonic=True, mechanism=mechanism)


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(("k", "steps"), [(2, 4000), (3, 60), (4, 25)])
def test_no_scores_on_a_fine_grid_are_worse(k, steps, mechanism):
    worst = analysis.scores.worst_expected_error(k, epsilon=1, monotonic=True, mechanism=mechanism)
    coins = np.linspace(0.02, 1, steps)
    tried = [scaled_error(np.array(c), mechanism) for c in itertools.combinations_with_replacement(coins, k - 1)]
    assert worst * 0.997 <= max(tried) <= worst * (1 + 1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("k", [2, 3, 5, 9, 30])
def test_no_scores_that_a_search_finds_are_worse(k, mechanism):
    optimize = need("scipy.optimize")
    worst = analysis.scores.worst_expected_error(k, epsilon=1, monotonic=True, mechanism=mechanism)
    rng, found = np.random.default_rng(k), []
    for _ in range(5):
        start = rng.uniform(0.5, 4, k - 1)
        search = optimize.minimize(
            lambda gaps: -scaled_error(np.exp(-np.abs(gaps)), mechanism), start, method="L-BFGS-B"
        )
        found.append(-search.fun)
        # Two-valued scores, which a search may never come near: some candidates right behind, others far.
        near = rng.integers(0, k)
        found.append(scaled_error(np.append(np.full(near, rng.uniform()), np.full(k - 1 - near, 1e-9)), mechanism))
    assert max(found) == pytest.approx(worst, rel=1e-6)
    assert max(found) <= worst * (1 + 1e-12)


@given(st.lists(st.floats(1e-9, 1), min_size=2, max_size=6), st.sampled_from(MECHANISMS))
@settings(deadline=None, max_examples=200)
def test_two_coins_at_their_mean_are_no_better(coins, mechanism):
    """The step of the proof that the worst scores have one gap."""
    mean = [sum(coins[:2]) / 2] * 2
    assert scaled_error(np.array(coins), mechanism) <= scaled_error(np.array(mean + coins[2:]), mechanism) + 1e-12


def test_the_worst_expected_error_in_closed_form():
    special = need("scipy.special")
    for k in (2, 3, 100, 10**6, 10**9, 10**15):
        found = analysis.scores.worst_expected_error(k, epsilon=1, monotonic=True, mechanism="exponential")
        # The error x·mp/(1 + mp), m = k − 1, p = exp(−x), is largest where x = 1 + mp, and there it is mp.
        assert found == pytest.approx(special.lambertw((k - 1) / math.e).real, rel=1e-12)
        flip = analysis.scores.worst_expected_error(k, epsilon=1, monotonic=True)
        assert found / 2 < flip < found < math.log(k)
    # Arguments mean what they mean elsewhere.
    one = analysis.scores.worst_expected_error(7, epsilon=1, monotonic=True)
    assert analysis.scores.worst_expected_error(7, epsilon=0.5, sensitivity=3) == pytest.approx(one * 12)
    assert analysis.scores.worst_expected_error(7, rho=0.02) == analysis.scores.worst_expected_error(
        7, rho=0.02, mechanism="exponential"
    )
    for mechanism in MECHANISMS:
        assert analysis.scores.worst_expected_error(1, epsilon=1, mechanism=mechanism) == 0
    refused(ValueError, "k must be at least 1", analysis.scores.worst_expected_error, 0, epsilon=1)
    other = {"mechanism": "report_noisy_max_laplace"}
    refused(ValueError, "mechanism must be one of", analysis.scores.worst_expected_error, 2, epsilon=1, **other)


# Permute-and-flip errs more than half as much as the exponential mechanism, always.


@given(st.lists(st.fractions(0, 30), min_size=2, max_size=7), st.fractions(Fraction(1, 9), 3))
@example([Fraction(24), Fraction(51, 2)], Fraction(409813, 136611))
@settings(deadline=None, max_examples=40)
def test_every_worse_candidate_wins_more_than_half_as_often_as_by_the_exponential_mechanism(gaps, rate):
    scores = [Fraction(0), *(-gap for gap in gaps)]
    # Of gaps of 30 at a rate of 3, the two differ by e⁻¹⁸⁰: in as many digits as there are by default.
    flip, exponential = (reference.law(scores, rate=rate, mechanism=m) for m in MECHANISMS)
    for score, ours, theirs in zip(scores, flip, exponential, strict=True):
        if score != max(scores):
            with ctx.workprec(1000):
                assert 2 * ours > theirs


def test_two_is_not_reached_but_approached():
    ratios = [
        analysis.scores.expected_error([0, -gap], epsilon=1, monotonic=True, mechanism="exponential")
        / analysis.scores.expected_error([0, -gap], epsilon=1, monotonic=True)
        for gap in (0.1, 1, 5, 20)
    ]
    assert sorted(ratios) == ratios
    assert 2 - 1e-8 < ratios[-1] < 2


def test_accuracy_is_the_bound_solved_for_the_error():
    options = {"epsilon": 0.5, "sensitivity": 3, "confidence": 0.99}
    assert analysis.scores.accuracy(100, **options) == pytest.approx(math.log(99 / 0.02) / (0.5 / 6))
    assert analysis.scores.accuracy(100, monotonic=True, **options) == pytest.approx(math.log(99 / 0.02) / (0.5 / 3))
    assert analysis.scores.accuracy(100, mechanism="exponential", **options) == pytest.approx(
        math.log(100 / 0.01) / (0.5 / 6)
    )
    rho = bounded_range_rho(2)  # of rate 1 for R = 2
    assert analysis.scores.accuracy(100, rho=rho, confidence=0.99) == pytest.approx(math.log(100 / 0.01) / 1)
    assert analysis.scores.accuracy(10**9, epsilon=1) == pytest.approx(2 * math.log((10**9 - 1) / 0.1))


def test_where_nothing_can_go_wrong_the_error_and_the_loss_are_zero():
    for mechanism in MECHANISMS:
        assert analysis.scores.accuracy(1, epsilon=1, mechanism=mechanism) == 0
        assert analysis.scores.loss_needed(1, error=5, mechanism=mechanism) == 0
    assert analysis.scores.accuracy(2, epsilon=1, confidence=0.4) == 0
    assert analysis.scores.loss_needed(2, error=5, confidence=0.4) == 0
    assert analysis.scores.loss_needed([4, 4], probability_of_best=0.9) == 0
    assert analysis.scores.loss_needed([4], expected_error=0.01) == 0
    assert analysis.scores.loss_needed([4, 0], expected_error=2.001) == 0
    assert analysis.scores.loss_needed([4, 0], probability_of_best=0.499) == 0


@given(
    st.integers(2, 10**6),
    st.fractions("1/1000", 1000),
    st.sampled_from([0.001, 0.05, Fraction(1, 3)]),
    st.sampled_from(["epsilon", "rho"]),
    st.sampled_from(MECHANISMS),
    st.booleans(),
)
@settings(deadline=None, max_examples=100)
def test_the_loss_for_an_error_of_any_scores_is_the_inverse_of_accuracy(k, error, beta, unit, mechanism, monotonic):
    options = {"confidence": 1 - Fraction(str(beta)), "mechanism": mechanism, "monotonic": monotonic, "sensitivity": 2}
    loss = analysis.scores.loss_needed(k, error=error, unit=unit, **options)
    reached = analysis.scores.accuracy(k, **{unit: loss}, **options)
    assert reached <= error
    assert reached == pytest.approx(float(error), rel=1.1e-11)  # floats of losses have 12 digits
    assert analysis.scores.accuracy(k, **{unit: loss * (1 - 1e-12)}, **options) > error


@pytest.mark.parametrize(
    ("mechanism", "unit"), [*((m, "epsilon") for m in COMPARABLE), *((m, "rho") for m in MECHANISMS)]
)
@pytest.mark.parametrize("goal", [{"expected_error": 0.7}, {"expected_error": 1e-6}, {"probability_of_best": 0.93}])
@pytest.mark.parametrize("scores", [[9, 7, 7, 0, -30], [0.25, 0, -1e6], [3e-5, 1e-5, 0, 1e5, 1e5 - 3]])
def test_loss_for_is_the_smallest_that_reaches_the_goal(scores, goal, mechanism, unit):
    options = {"mechanism": mechanism, "sensitivity": 1.5}
    loss = analysis.scores.loss_needed(scores, unit=unit, **goal, **options)
    [(name, wanted)] = goal.items()
    sign = 1 if name == "expected_error" else -1

    def shortfall(loss):
        return sign * (getattr(analysis.scores, name)(scores, **{unit: loss}, **options) - wanted)

    assert shortfall(loss) <= 0
    assert shortfall(loss * (1 - 1e-11)) > 0


@pytest.mark.parametrize("mechanism", COMPARABLE)
@pytest.mark.parametrize("confidence", [0.6, 0.95, 0.999])
def test_the_loss_for_an_error_on_scores_is_the_smallest(mechanism, confidence):
    options = {"mechanism": mechanism, "confidence": confidence, "sensitivity": 1.5}
    for scores, error in (([9, 7, 7, 0, -30], 2), ([9, 7, 7, 0, -30], 8.5), ([0.25, 0, -1e6], 0.1)):
        loss = analysis.scores.loss_needed(scores, error=error, **options)
        # At 0 every loss reaches it: three fifths of the candidates are near enough.
        assert analysis.scores.error_quantile(scores, epsilon=loss or 1e-6, **options) <= error
        assert loss == 0 or analysis.scores.error_quantile(scores, epsilon=loss * (1 - 1e-11), **options) > error


@pytest.mark.parametrize("k", [2, 10, 10**6])
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("unit", ["epsilon", "rho"])
def test_the_loss_for_a_mean_error_of_any_scores_is_the_inverse_of_the_worst_one(k, mechanism, unit):
    for error in (0.01, 3):
        loss = analysis.scores.loss_needed(k, expected_error=error, unit=unit, mechanism=mechanism)
        worst = analysis.scores.worst_expected_error(k, **{unit: loss}, mechanism=mechanism)
        assert worst <= error
        assert worst == pytest.approx(error, rel=1.1e-11)


@pytest.mark.slow
def test_goals_at_the_edge_of_float64_are_reached():
    for mechanism in COMPARABLE:
        options = {"mechanism": mechanism, "sensitivity": 5}
        for scores in ([3, 0], [1e-5, 0, 0, -1e12], list(range(40))):
            loss = analysis.scores.loss_needed(scores, probability_of_best=1 - 2**-53, **options)
            assert analysis.scores.probability_of_best(scores, epsilon=loss, **options) >= 1 - 2**-53
            loss = analysis.scores.loss_needed(scores, expected_error=1e-200, **options)
            assert 0 < analysis.scores.expected_error(scores, epsilon=loss, **options) <= 1e-200


def test_loss_for_uses_the_mechanism_of_the_unit():
    goal = {"scores": [9, 5, 0], "expected_error": 0.3}
    flip = analysis.scores.loss_needed(**goal)
    assert flip == analysis.scores.loss_needed(**goal, mechanism="permute_and_flip")
    assert flip < analysis.scores.loss_needed(**goal, mechanism="exponential")
    rho = analysis.scores.loss_needed(**goal, unit="rho")
    assert rho == analysis.scores.loss_needed(**goal, unit="rho", mechanism="exponential")
    # At the same rate.
    assert rho == pytest.approx(
        float(bounded_range_rho(analysis.scores.loss_needed(**goal, mechanism="exponential"))), rel=1e-12
    )


def test_bad_input():
    accuracy, for_goal = analysis.scores.accuracy, analysis.scores.loss_needed
    race = {"mechanism": "report_noisy_max_laplace"}
    refused(ValueError, "k must be at least 1", accuracy, 0, epsilon=1)
    refused(TypeError, "k must be an integer", accuracy, 2.5, epsilon=1)
    refused(TypeError, "exactly one of epsilon and rho", accuracy, 2)
    refused(ValueError, "confidence must lie", accuracy, 2, epsilon=1, confidence=1)
    refused(ValueError, "confidence must be finite", accuracy, 2, epsilon=1, confidence=math.nan)
    refused(ValueError, "one of", accuracy, 2, epsilon=1, **race)
    refused(ValueError, "error must be greater than 0", for_goal, 2, error=0)
    refused(ValueError, "unit must be", for_goal, 2, error=1, unit="delta")
    refused(ValueError, "sensitivity must be", for_goal, 2, error=1, sensitivity=-1)
    refused(TypeError, "exactly one of error, expected_error .* got none", for_goal, [1, 2])
    refused(
        TypeError,
        "got expected_error and probability_of_best",
        for_goal,
        [1, 2],
        expected_error=1,
        probability_of_best=0.5,
    )
    refused(TypeError, "scores must be a vector for probability_of_best", for_goal, 2, probability_of_best=0.5)
    refused(ValueError, "scores must be at least 1", for_goal, 0, error=1)
    refused(ValueError, "confidence must lie", for_goal, 2, error=1, confidence=1)
    refused(ValueError, "one of", for_goal, 2, error=1, **race)
    refused(ValueError, "expected_error must be greater", for_goal, [1, 2], expected_error=0)
    refused(ValueError, "probability_of_best must lie", for_goal, [1, 2], probability_of_best=1)
    refused(ValueError, "at least one score", for_goal, [], expected_error=1)
    refused(ValueError, "finite", for_goal, [1, math.inf], expected_error=1)
    refused(ValueError, "unit must be", for_goal, [1, 2], expected_error=0.1, unit="e")
    refused(ValueError, "one of", for_goal, [1, 2], expected_error=0.1, mechanism="x")
    refused(ValueError, "epsilon, got rho", for_goal, [1, 2], expected_error=0.1, unit="rho", **race)
