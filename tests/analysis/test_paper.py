"""Known values of the permute-and-flip paper (McKenna & Sheldon 2020, arXiv 2010.12603)."""

import math

import numpy as np
import pytest

from dp_polars import analysis
from tests.registry import MECHANISMS


def worst_case(n, mechanism):
    """Return the largest expected error over scores (0, −g, …, −g) with λ = 1, and p = exp(−g) there."""

    def error(p):
        gap = -math.log(p)
        scores = np.r_[0.0, np.full(n - 1, -gap)]
        return analysis.expected_error(scores, epsilon=1, monotonic=True, mechanism=mechanism)

    # The error has one peak: golden section on log p.
    low, high, golden = -math.log(n) - 5.0, -1e-3, (math.sqrt(5) - 1) / 2
    while high - low > 1e-9:
        a, b = high - golden * (high - low), low + golden * (high - low)
        if error(math.exp(a)) < error(math.exp(b)):
            low = a
        else:
            high = b
    return error(math.exp(low)), math.exp(low)


def test_largest_errors_for_three_candidates():
    for mechanism, error, p in zip(MECHANISMS, (0.6515, 0.9261), (0.321, 0.232), strict=True):
        found, at = worst_case(3, mechanism)
        # ε = Δ = 1: the unit 2Δ/ε is 2.
        assert 2 * found == pytest.approx(error, abs=5e-5)
        assert at == pytest.approx(p, abs=5e-4)


@pytest.mark.parametrize(
    ("n", "exponential", "flip"),
    [
        (2, 0.27846, 0.18394),
        (10, 1.10100, 0.89323),
        (100, 2.62865, 2.42793),
        (1000, 4.42050, 4.26541),
        (10_000, 6.36018, 6.23992),
    ],
)
def test_worst_cases(n, exponential, flip):
    assert worst_case(n, "exponential")[0] == pytest.approx(exponential, abs=5e-6)
    assert worst_case(n, "permute_and_flip")[0] == pytest.approx(flip, abs=5e-6)


def test_the_mode_of_hepth(dpbench):
    counts = np.load(dpbench / "HEPTH.n4096.npy").reshape(1024, -1).sum(axis=1)
    errors = {m: analysis.expected_error(counts, epsilon=0.04, monotonic=True, mechanism=m) for m in MECHANISMS}
    assert errors["exponential"] / errors["permute_and_flip"] == pytest.approx(1.84, abs=0.005)
    needed = analysis.loss_for(
        counts, expected_error=errors["permute_and_flip"], monotonic=True, mechanism="exponential"
    )
    assert needed / 0.04 == pytest.approx(1.27, abs=0.005)


def test_laplace_noise_gets_worse_without_end_beside_permute_and_flip():
    for exponent in (0.01, 1, 5, 30):
        laplace, exponential, flip = (
            analysis.selection_probabilities([0, -exponent], epsilon=1, monotonic=True, mechanism=m)[1]
            for m in ("report_noisy_max_laplace", "exponential", "permute_and_flip")
        )
        assert laplace / flip == pytest.approx(1 + exponent / 2, rel=1e-9)
        assert exponential / flip == pytest.approx(2 / (1 + math.exp(-exponent)), rel=1e-9)
