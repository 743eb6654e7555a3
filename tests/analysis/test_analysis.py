"""The laws of the mechanisms in float64, against the rigorous ones of `reference`."""

import itertools
import math
import subprocess
import sys
import tracemalloc
from decimal import Decimal
from fractions import Fraction

import hypothesis.strategies as st
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings

from dp_polars import analysis
from dp_polars._accounting.claims import claim_of_choice
from dp_polars._accounting.terms import Contributions, Loss
from dp_polars.analysis._laws import block_probabilities
from tests.helpers import reference
from tests.helpers.refusals import refused
from tests.registry import MECHANISMS

COMPARABLE = [*MECHANISMS, "report_noisy_max_laplace"]
RNG = np.random.default_rng(20201024)

scores_ = st.lists(st.integers(-40, 40), min_size=1, max_size=12)
losses_ = st.sampled_from([0.01, 0.3, 1, 2.5, 20])


def relative_error(found, exact):
    exact = reference.floats(exact)
    seen = exact > 1e-290
    return np.max(np.abs(found[seen] / exact[seen] - 1))


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(
    ("scores", "rate"),
    [
        ([0], 1),
        ([0, 0], 1),
        ([0, -1], 1),
        ([3, 2, 2, -5], 0.5),
        ([0] * 44 + [-1], 1),  # the sum of coins on both sides of where the integral is cut
        ([0] * 45 + [-1], 1),
        ([0] * 46 + [-1], 1),
        ([0, -500, -600, -640], 1),
        (RNG.normal(size=200) * 30, 1),
        (-RNG.integers(0, 100_000, 300) / 7, 0.01),
        (-RNG.integers(0, 300, 1000), 0.1),
        (-RNG.integers(0, 300, 1000), 0.001),
        (-RNG.integers(0, 12, 10_000), 0.1),
        (-(RNG.integers(0, 12, 10_000) ** 2), 0.7),
    ],
)
def test_probabilities_keep_twelve_digits(scores, rate, mechanism):
    exact = reference.law(scores, rate=rate, mechanism=mechanism, digits=30)
    found = analysis.scores.selection_probabilities(scores, epsilon=rate, monotonic=True, mechanism=mechanism)
    assert found.shape == (len(scores),)
    assert found.dtype == np.float64
    assert relative_error(found, exact) < 2e-13


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(
    ("gaps", "multiplicities"),
    [
        ([0], [10**15]),
        ([0, 1], [1, 10**9]),
        ([0, 1, 3, 10], [1, 100, 50, 10**9]),
        ([0, 500, 650], [1, 10**12, 10**9]),
        ([0, 45, 46], [3, 10**9, 10**18]),
        (list(range(12)), [10**8 + i for i in range(12)]),
    ],
)
def test_blocks_of_any_size_keep_twelve_digits(gaps, multiplicities, mechanism):
    exact = reference.law([-g for g in gaps], multiplicities, rate=1, mechanism=mechanism, digits=30)
    found = block_probabilities(np.array(gaps, float), multiplicities, 1.0, mechanism)
    assert relative_error(found, exact) < 2e-13


def test_report_noisy_max_keeps_twelve_digits():
    for scores, rate in (
        *(([0], 1), ([0, 0], 1), ([0, -50, -60, -61], 1), ([7, 4, 4, 4, -2], Fraction(1, 3)), ([0] * 15 + [-40], 1)),
        (-RNG.integers(0, 40, 12), Fraction(1, 5)),
    ):
        options = {"epsilon": 2 * rate, "mechanism": "report_noisy_max_laplace", "sensitivity": 1}
        found = analysis.scores.selection_probabilities(scores, **options)
        assert relative_error(found, reference.noisy_max_law(scores, rate=rate)) < 2e-13


def test_report_noisy_max_with_noise_2_sensitivity_over_epsilon_keeps_epsilon():
    largest = 0.0
    for scores, moved in itertools.product([[0, 0], [0, -1, -1], [0, -90]], [(1, -1), (-1, 1)]):
        neighbor = [s + moved[i > 0] for i, s in enumerate(scores)]
        laws = [
            analysis.scores.selection_probabilities(s, epsilon=1.5, mechanism="report_noisy_max_laplace")
            for s in (scores, neighbor)
        ]
        largest = max(largest, np.max(np.abs(np.log(laws[0] / laws[1]))))
    assert 1.45 < largest < 1.5 + 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_million_different_scores(mechanism):
    scores = RNG.normal(size=1_000_000)
    tracemalloc.start()
    found = analysis.scores.selection_probabilities(scores, epsilon=20, mechanism=mechanism)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert abs(found.sum() - 1) < 1e-13
    assert peak < 200e6
    assert found[scores.argmax()] == found.max()


@pytest.mark.parametrize("mechanism", COMPARABLE)
def test_tied_candidates_share_their_block(mechanism):
    scores = RNG.integers(-5, 1, 50)
    found = analysis.scores.selection_probabilities(scores, epsilon=1, mechanism=mechanism)
    values, counts = np.unique(scores, return_counts=True)
    blocks = block_probabilities((values.max() - values).astype(float), counts, 0.5, mechanism)
    for value, total in zip(values, blocks, strict=True):
        assert np.ptp(found[scores == value]) == 0
        assert found[scores == value].sum() == pytest.approx(total, rel=1e-13)


@given(scores_, losses_, st.sampled_from(COMPARABLE), st.randoms(), st.integers(-1000, 1000))
@settings(deadline=None, max_examples=50)
def test_order_and_a_common_shift_do_not_matter(scores, epsilon, mechanism, random, shift):
    order = random.sample(range(len(scores)), len(scores))
    law = analysis.scores.selection_probabilities(scores, epsilon=epsilon, mechanism=mechanism)
    moved = analysis.scores.selection_probabilities(
        [scores[i] + shift for i in order], epsilon=epsilon, mechanism=mechanism
    )
    assert np.array_equal(law[order], moved)
    assert law.sum() == pytest.approx(1, abs=1e-13)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("loss", [{"epsilon": 0.7}, {"rho": 0.2}])
@pytest.mark.parametrize("monotonic", [True, False])
def test_the_rate_is_that_of_the_claim(mechanism, loss, monotonic):
    score_range = Fraction(3) if monotonic else Fraction(6)
    claim = claim_of_choice(
        Loss.of(**{"epsilon": None, "rho": None} | loss), mechanism, score_range, Contributions(1, 1), None
    )
    options = {"sensitivity": 3, "monotonic": monotonic, "mechanism": mechanism} | loss
    found = analysis.scores.selection_probabilities([9, 4, 0, 0], **options)
    exact = reference.law([9, 4, 0, 0], rate=claim.rate, mechanism=mechanism, digits=30)
    assert relative_error(found, exact) < 1e-14


def test_the_unit_chooses_the_mechanism():
    for loss, mechanism in (({"epsilon": 1}, "permute_and_flip"), ({"rho": 0.1}, "exponential")):
        by_unit = analysis.scores.expected_error([3, 1, 0], **loss)
        assert by_unit == analysis.scores.expected_error([3, 1, 0], **loss, mechanism=mechanism)


def test_kinds_of_scores():
    law = analysis.scores.selection_probabilities([2, 0, 0], epsilon=1)
    three = [5, 3, 3]
    arrays = [np.array(three, dtype) for dtype in (np.int8, np.uint64, np.float32)]
    for scores in (
        *(three, tuple(three), *arrays, np.array(three)[::-1][::-1], pl.Series(three), [5.0, 3, 3]),
        *([2**63 - 1, 2**63 - 3, 2**63 - 3], [-(2**63) + 2, -(2**63), -(2**63)]),
        np.array([2**64 - 1, 2**64 - 3, 2**64 - 3], np.uint64),
    ):
        assert np.array_equal(analysis.scores.selection_probabilities(scores, epsilon=1), law), scores


def test_scores_as_far_apart_as_they_can_be():
    integers = np.array([2**63 - 1, -(2**63)])
    assert analysis.scores.expected_error(integers, epsilon=1e-18, monotonic=True) == pytest.approx(
        2.0**64 * analysis.scores.selection_probabilities([0, -1], epsilon=1e-18 * 2**64, monotonic=True)[1]
    )
    floats = [1.7e308, -1.7e308]
    assert analysis.scores.selection_probabilities(floats, epsilon=1) == pytest.approx([1, 0], abs=1e-14)
    assert analysis.scores.probability_of_best(floats, epsilon=1) == 1
    assert analysis.scores.expected_error(floats, epsilon=1) == 0


@pytest.mark.parametrize("mechanism", COMPARABLE)
def test_the_summaries_are_those_of_the_law(mechanism):
    scores = RNG.integers(0, 30, 40)
    options = {"epsilon": 0.4, "mechanism": mechanism}
    law = analysis.scores.selection_probabilities(scores, **options)
    errors = scores.max() - scores
    assert analysis.scores.expected_error(scores, **options) == pytest.approx(law @ errors, rel=1e-12)
    assert analysis.scores.probability_of_best(scores, **options) == pytest.approx(law[errors == 0].sum(), rel=1e-12)
    for beta in (0.001, 0.05, 0.3, 0.5, 0.9, 0.999):
        quantile = analysis.scores.error_quantile(scores, confidence=1 - Fraction(str(beta)), **options)
        assert law[errors > quantile].sum() <= beta
        smaller = [e for e in errors if e < quantile]
        assert all(law[errors > e].sum() > beta for e in smaller)
        assert quantile in errors


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_expected_error_against_the_reference(mechanism):
    scores = [-10, -3, 0, 0, -1]
    exact = reference.law(scores, rate=Fraction(1, 2), mechanism=mechanism)
    expected = float(reference.expectation(exact, [10, 3, 0, 0, 1]))
    assert analysis.scores.expected_error(scores, epsilon=1, mechanism=mechanism) == pytest.approx(expected, rel=1e-14)


@given(scores_, losses_)
@settings(deadline=None, max_examples=100)
def test_permute_and_flip_is_never_worse_than_the_exponential_mechanism(scores, epsilon):
    # McKenna & Sheldon (2020), Theorem 2: at the same rate, and for every size of error.
    errors = max(scores) - np.array(scores)
    laws = [analysis.scores.selection_probabilities(scores, epsilon=epsilon, mechanism=m) for m in MECHANISMS]
    for t in set(errors.tolist()):
        flip, exponential = (law[errors >= t].sum() for law in laws)
        assert flip <= exponential + 1e-13
        assert exponential <= 2 * flip + 1e-13  # and never more than twice as good
    best = [analysis.scores.expected_error(scores, epsilon=epsilon, mechanism=m) for m in MECHANISMS]
    assert best[0] <= best[1] * (1 + 1e-13)


@given(scores_, losses_, losses_, st.sampled_from(COMPARABLE))
@settings(deadline=None, max_examples=60)
def test_a_larger_loss_is_never_less_accurate(scores, epsilon, more, mechanism):
    options = {"mechanism": mechanism}
    errors = max(scores) - np.array(scores)
    less = analysis.scores.selection_probabilities(scores, epsilon=epsilon, **options)
    larger = analysis.scores.selection_probabilities(scores, epsilon=epsilon + more, **options)
    for t in set(errors.tolist()):
        assert larger[errors >= t].sum() <= less[errors >= t].sum() + 1e-13


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(
    ("scores", "neighbor"),
    [
        ([0, 0], [1, -1]),
        ([5, 3, 0, 0], [4, 4, 1, -1]),
        ([0, -3000, -3001, -9000], [-1, -2999, -3002, -9001]),  # coins far below 1e-308
        ([10**6, 0, 1], [10**6 - 1, 1, 0]),
        ([0.25, -1234.5, 3.125], [0.5, -1233.75, 2.125]),
    ],
)
def test_privacy_loss_keeps_its_digits_for_tiny_probabilities(scores, neighbor, mechanism):
    exact = reference.largest_loss(scores, neighbor, rate=Fraction(3, 4), mechanism=mechanism)
    assert analysis.scores.privacy_loss(scores, neighbor, epsilon=1.5, mechanism=mechanism) == pytest.approx(
        exact, abs=1e-12
    )


@given(st.data(), losses_, st.sampled_from(MECHANISMS), st.booleans())
@settings(deadline=None, max_examples=100)
def test_neighbors_lose_at_most_epsilon(data, epsilon, mechanism, monotonic):
    scores = data.draw(scores_)
    steps = st.floats(0 if monotonic else -1, 1)
    moved = data.draw(st.lists(steps, min_size=len(scores), max_size=len(scores)))
    neighbor = np.add(scores, moved)
    found = analysis.scores.privacy_loss(
        np.array(scores, float), neighbor, epsilon=epsilon, mechanism=mechanism, monotonic=monotonic
    )
    assert found <= epsilon * (1 + 1e-12) + 1e-12


FUNCTIONS = {
    "selection_probabilities": analysis.scores.selection_probabilities,
    "expected_error": analysis.scores.expected_error,
    "error_quantile": analysis.scores.error_quantile,
    "probability_of_best": analysis.scores.probability_of_best,
    "privacy_loss": lambda scores, **options: analysis.scores.privacy_loss(scores, [1, 2], **options),
    "neighbor": lambda scores, **options: analysis.scores.privacy_loss([1, 2], scores, **options),
}


@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=FUNCTIONS)
def test_bad_scores_and_parameters(function):
    for scores, error, words in (
        ([], ValueError, "at least one score"),
        ([1, math.nan], ValueError, "finite"),
        ([1, math.inf], ValueError, "finite"),
        ([1, -math.inf], ValueError, "finite"),
        (pl.Series([1, None]), ValueError, "finite"),
        ([[1, 2]], TypeError, r"shape \(1, 2\)"),
        (3, TypeError, "vector"),
        (["a", "b"], TypeError, "integers or floats"),
        ([True, False], TypeError, "bool"),
        ([Decimal(1), Decimal(2)], TypeError, "Decimal"),
        ([1 + 2j, 2], TypeError, "complex"),
    ):
        refused(error, words, function, scores, epsilon=1)
    for options, error, words in (
        ({}, TypeError, "exactly one of epsilon and rho"),
        ({"epsilon": 1, "rho": 1}, TypeError, "exactly one of epsilon and rho"),
        ({"epsilon": 0}, ValueError, "epsilon must be greater than 0"),
        ({"rho": -1}, ValueError, "rho must be greater than 0"),
        ({"epsilon": math.nan}, ValueError, "epsilon must be finite"),
        ({"rho": math.inf}, ValueError, "rho must be finite"),
        ({"epsilon": True}, TypeError, "epsilon must be a number"),
        ({"epsilon": "1"}, TypeError, "epsilon must be a number"),
        ({"epsilon": 1, "sensitivity": 0}, ValueError, "sensitivity must be greater than 0"),
        ({"epsilon": 1, "sensitivity": math.nan}, ValueError, "sensitivity must be finite"),
        ({"epsilon": 1, "monotonic": 1}, TypeError, "monotonic must be True or False"),
        ({"epsilon": 1, "mechanism": "laplace"}, ValueError, "mechanism must be one of"),
        ({"epsilon": 1, "sensitivity": 1e-320}, ValueError, "between 2"),
    ):
        refused(error, words, function, [1, 2], **options)


def test_bad_parameters_of_single_functions():
    for confidence in (0, 1, 1.5, math.nan, 1 - Fraction(1, 10**400), Fraction(1, 10**30)):
        refused(ValueError, "confidence must", analysis.scores.error_quantile, [1, 2], epsilon=1, confidence=confidence)
    law, loss, race = (
        analysis.scores.selection_probabilities,
        analysis.scores.privacy_loss,
        {"mechanism": "report_noisy_max_laplace"},
    )
    refused(ValueError, "epsilon, got rho", law, [1, 2], rho=1, **race)
    refused(ValueError, "mechanism must be one of", loss, [1, 2], [1, 2], epsilon=1, **race)
    refused(ValueError, r"the shape of scores \(2,\)", loss, [1, 2], [1, 2, 3], epsilon=1)


@pytest.mark.slow
def test_optional_packages_are_not_imported_before_they_are_needed():
    program = (
        "import sys, dp_polars.analysis as a; a.privacy_profile(1).delta(0.5); "
        "assert not {'scipy', 'dp_accounting'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_integers_beyond_floats_are_shifted_before_they_are_rounded():
    small, law = [3, 2, 0], analysis.scores.selection_probabilities([3, 2, 0], epsilon=1)
    for shift in (2**53, 2**63, 2**64 - 4, 2**200):
        scores = [score + shift for score in small]
        assert analysis.scores.selection_probabilities(scores, epsilon=1) == pytest.approx(law, rel=1e-14)
        assert analysis.scores.privacy_loss(scores, [shift, shift, shift + 1], epsilon=1) == pytest.approx(
            analysis.scores.privacy_loss(small, [0, 0, 1], epsilon=1)
        )
    # Beside a float, beyond it, and over more than 64 bits.
    assert analysis.scores.selection_probabilities([2**53 + 1, 2**53, 0.5], epsilon=1)[1] == pytest.approx(
        analysis.scores.selection_probabilities([1, 0, -1000], epsilon=1)[1]
    )
    ends = [2**63 - 1, -(2**63)]
    assert analysis.scores.privacy_loss(ends, ends[::-1], epsilon=Fraction(1, 2**60), monotonic=True) == pytest.approx(
        16 + math.log(2 - math.exp(-16))
    )
    scores = np.array([2**63 - 1, -(2**63), 2**60])
    neighbor = np.array([2**63 - 2, -(2**63) + 1, 2**60 + 1])
    exact = reference.largest_loss(scores.tolist(), neighbor.tolist(), rate=1, mechanism="permute_and_flip")
    assert analysis.scores.privacy_loss(scores, neighbor, epsilon=2) == pytest.approx(exact, abs=1e-12)
    assert exact == pytest.approx(2, abs=1e-12)
    assert analysis.scores.privacy_loss([3, 1], np.array([2, 2], np.uint8), epsilon=2) > 0


@pytest.mark.parametrize("mechanism", [None, "exponential", "report_noisy_max_laplace"])
def test_no_probability_is_rounded_to_zero(mechanism):
    law = analysis.scores.selection_probabilities([0, -1e4, -1e308, -1e308], epsilon=1, mechanism=mechanism)
    assert law.tolist() == [pytest.approx(1), 5e-324, 5e-324, 5e-324]
