"""From a goal to the smallest loss that reaches it, and the bounds that hold for all scores."""

import math
from fractions import Fraction

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from dp_polars import analysis
from tests.reference import bounded_range_rho
from tests.registry import MECHANISMS

COMPARABLE = [*MECHANISMS, "report_noisy_max_laplace"]

scores_ = st.lists(st.integers(-40, 40), min_size=1, max_size=12)


@given(
    scores_,
    st.sampled_from([0.05, 0.5, 1, 3]),
    st.sampled_from(MECHANISMS),
    st.sampled_from([0.01, 0.2, 0.6]),
)
@settings(deadline=None, max_examples=100)
def test_errors_keep_the_bounds(scores, epsilon, mechanism, beta):
    k, errors = len(scores), max(scores) - np.array(scores)
    rate = epsilon / 2
    law = analysis.selection_probabilities(scores, epsilon=epsilon, mechanism=mechanism)
    for t in set(errors.tolist()) - {0}:
        bound = (k - 1) / 2 if mechanism == "permute_and_flip" else k
        assert law[errors >= t].sum() <= bound * math.exp(-rate * t) + 1e-13
    assert analysis.expected_error(scores, epsilon=epsilon, mechanism=mechanism) <= math.log(k) / rate + 1e-12
    worst = analysis.accuracy(k, epsilon=epsilon, mechanism=mechanism, beta=beta)
    assert law[(errors >= worst) & (errors > 0)].sum() <= beta + 1e-13


@pytest.mark.parametrize("k", [2, 3, 10, 1000])
@pytest.mark.parametrize("gap", [0.1, 1, 4])
def test_all_others_at_one_gap(k, gap):
    p = math.exp(-gap)
    law = analysis.selection_probabilities([0.0] + [-gap] * (k - 1), epsilon=1, monotonic=True)
    exact = 1 - (1 - (1 - p) ** k) / (k * p)
    assert law[1:].sum() == pytest.approx(exact, rel=1e-12)
    assert exact <= (k - 1) * p / 2


def test_accuracy_is_the_bound_solved_for_the_error():
    options = {"epsilon": 0.5, "sensitivity": 3, "beta": 0.01}
    assert analysis.accuracy(100, **options) == pytest.approx(math.log(99 / 0.02) / (0.5 / 6))
    assert analysis.accuracy(100, monotonic=True, **options) == pytest.approx(math.log(99 / 0.02) / (0.5 / 3))
    assert analysis.accuracy(100, mechanism="exponential", **options) == pytest.approx(math.log(100 / 0.01) / (0.5 / 6))
    rho = bounded_range_rho(2)  # of rate 1 for R = 2
    assert analysis.accuracy(100, rho=rho, beta=0.01) == pytest.approx(math.log(100 / 0.01) / 1)
    assert analysis.accuracy(10**9, epsilon=1) == pytest.approx(2 * math.log((10**9 - 1) / 0.1))


def test_where_nothing_can_go_wrong_the_error_and_the_loss_are_zero():
    for mechanism in MECHANISMS:
        assert analysis.accuracy(1, epsilon=1, mechanism=mechanism) == 0
        assert analysis.loss_for_accuracy(1, 5, mechanism=mechanism) == 0
    assert analysis.accuracy(2, epsilon=1, beta=0.6) == 0
    assert analysis.loss_for_accuracy(2, 5, beta=0.6) == 0
    assert analysis.loss_for([4, 4], probability_of_best=0.9) == 0
    assert analysis.loss_for([4], expected_error=0.01) == 0
    assert analysis.loss_for([4, 0], expected_error=2.001) == 0
    assert analysis.loss_for([4, 0], probability_of_best=0.499) == 0


@given(
    st.integers(2, 10**6),
    st.fractions("1/1000", 1000),
    st.sampled_from([0.001, 0.05, Fraction(1, 3)]),
    st.sampled_from(["epsilon", "rho"]),
    st.sampled_from(MECHANISMS),
    st.booleans(),
)
@settings(deadline=None, max_examples=100)
def test_loss_for_accuracy_is_the_inverse_of_accuracy(k, error, beta, unit, mechanism, monotonic):
    options = {"beta": beta, "mechanism": mechanism, "monotonic": monotonic, "sensitivity": 2}
    loss = analysis.loss_for_accuracy(k, error, unit=unit, **options)
    reached = analysis.accuracy(k, **{unit: loss}, **options)
    assert reached <= error
    assert reached == pytest.approx(float(error), rel=1e-12)
    assert analysis.accuracy(k, **{unit: loss * (1 - 1e-12)}, **options) > error


@pytest.mark.parametrize(
    ("mechanism", "unit"), [*((m, "epsilon") for m in COMPARABLE), *((m, "rho") for m in MECHANISMS)]
)
@pytest.mark.parametrize("goal", [{"expected_error": 0.7}, {"expected_error": 1e-6}, {"probability_of_best": 0.93}])
@pytest.mark.parametrize("scores", [[9, 7, 7, 0, -30], [0.25, 0, -1e6], [3e-5, 1e-5, 0, 1e5, 1e5 - 3]])
def test_loss_for_is_the_smallest_that_reaches_the_goal(scores, goal, mechanism, unit):
    options = {"mechanism": mechanism, "sensitivity": 1.5}
    loss = analysis.loss_for(scores, unit=unit, **goal, **options)
    [(name, wanted)] = goal.items()
    sign = 1 if name == "expected_error" else -1

    def shortfall(loss):
        return sign * (getattr(analysis, name)(scores, **{unit: loss}, **options) - wanted)

    assert shortfall(loss) <= 0
    assert shortfall(loss * (1 - 1e-11)) > 0


def test_goals_at_the_edge_of_float64_are_reached():
    for mechanism in COMPARABLE:
        options = {"mechanism": mechanism, "sensitivity": 5}
        for scores in ([3, 0], [1e-5, 0, 0, -1e12], list(range(40))):
            loss = analysis.loss_for(scores, probability_of_best=1 - 2**-53, **options)
            assert analysis.probability_of_best(scores, epsilon=loss, **options) >= 1 - 2**-53
            loss = analysis.loss_for(scores, expected_error=1e-200, **options)
            assert 0 < analysis.expected_error(scores, epsilon=loss, **options) <= 1e-200


def test_loss_for_uses_the_mechanism_of_the_unit():
    goal = {"scores": [9, 5, 0], "expected_error": 0.3}
    flip = analysis.loss_for(**goal)
    assert flip == analysis.loss_for(**goal, mechanism="permute_and_flip")
    assert flip < analysis.loss_for(**goal, mechanism="exponential")
    rho = analysis.loss_for(**goal, unit="rho")
    assert rho == analysis.loss_for(**goal, unit="rho", mechanism="exponential")
    # At the same rate.
    assert rho == pytest.approx(float(bounded_range_rho(analysis.loss_for(**goal, mechanism="exponential"))), rel=1e-12)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: analysis.accuracy(0, epsilon=1), ValueError, "k must be at least 1"),
        (lambda: analysis.accuracy(2.5, epsilon=1), TypeError, "k must be an integer"),
        (lambda: analysis.accuracy(2), TypeError, "exactly one of epsilon and rho"),
        (lambda: analysis.accuracy(2, epsilon=1, beta=0), ValueError, "beta must lie"),
        (lambda: analysis.accuracy(2, epsilon=1, beta=float("nan")), ValueError, "beta must be finite"),
        (lambda: analysis.accuracy(2, epsilon=1, mechanism="report_noisy_max_laplace"), ValueError, "one of"),
        (lambda: analysis.loss_for_accuracy(2, 0), ValueError, "error must be greater than 0"),
        (lambda: analysis.loss_for_accuracy(2, 1, unit="delta"), ValueError, "unit must be"),
        (lambda: analysis.loss_for_accuracy(2, 1, sensitivity=-1), ValueError, "sensitivity must be"),
        (lambda: analysis.loss_for([1, 2]), TypeError, "exactly one of expected_error"),
        (
            lambda: analysis.loss_for([1, 2], expected_error=1, probability_of_best=0.5),
            TypeError,
            "exactly one of expected_error",
        ),
        (lambda: analysis.loss_for([1, 2], expected_error=0), ValueError, "expected_error must be greater"),
        (
            lambda: analysis.loss_for([1, 2], probability_of_best=1),
            ValueError,
            "probability_of_best must lie",
        ),
        (lambda: analysis.loss_for([], expected_error=1), ValueError, "at least one score"),
        (lambda: analysis.loss_for([1, math.inf], expected_error=1), ValueError, "finite"),
        (lambda: analysis.loss_for([1, 2], expected_error=0.1, unit="e"), ValueError, "unit must be"),
        (lambda: analysis.loss_for([1, 2], expected_error=0.1, mechanism="x"), ValueError, "one of"),
        (
            lambda: analysis.loss_for([1, 2], expected_error=0.1, unit="rho", mechanism="report_noisy_max_laplace"),
            ValueError,
            "epsilon, got rho",
        ),
    ],
)
def test_bad_input(call, error, words):
    with pytest.raises(error, match=words):
        call()
