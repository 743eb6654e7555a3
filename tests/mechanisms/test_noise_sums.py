"""Sums of independent noise: their ranges against exact convolutions, and how often they hold."""

import math
from fractions import Fraction

import numpy as np
import pytest

from dp_polars._mechanisms.residuals import Noise, sum_bound, sum_bounds

MECHANISMS = ["discrete_laplace", "discrete_gaussian"]
RATES = [Fraction(1, 30), Fraction(1, 7), Fraction(9, 10), Fraction(1), Fraction(2), Fraction(5), Fraction(70)]


def pmf(mechanism, rate):
    """P(X = x), of x from −n to n: what is beyond has less than 1e-20."""
    if mechanism == "discrete_laplace":
        x = np.arange(-math.ceil(50 / rate), math.ceil(50 / rate) + 1)
        weights = np.exp(-abs(x) * float(rate))
    else:
        x = np.arange(-math.ceil(10 / rate) - 1, math.ceil(10 / rate) + 2)
        weights = np.exp(-((x * float(rate)) ** 2) / 2)
    return weights / weights.sum()


def trimmed(law):
    """A symmetric law without the ends that have less than 1e-18 each."""
    cut = int(np.flatnonzero(np.cumsum(law) > 1e-18)[0])
    return law[cut : len(law) - cut]


def outside(law, w):
    """P(|S| > w), of a symmetric law."""
    middle = len(law) // 2
    return 2 * law[middle + w + 1 :][::-1].sum()


def check(law, bound, beta):
    """Raise unless it is the smallest bound that fails as seldom as that; where that is too close, one more is."""
    assert outside(law, bound) <= beta
    assert bound == 0 or outside(law, bound - 1) > beta - 2e-9


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("rate", RATES, ids=str)
@pytest.mark.parametrize("beta", [0.05, 0.0253])
def test_few_draws_against_their_convolution(mechanism, rate, beta):
    one = law = pmf(mechanism, rate)
    for number in range(1, 13):
        check(law, sum_bound(Noise(mechanism, rate), number, beta), beta)
        law = trimmed(np.convolve(law, one))


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("rate", [Fraction(1), Fraction(4), Fraction(6)], ids=str)
def test_up_to_a_million_draws_against_their_convolution(mechanism, rate):
    law = trimmed(pmf(mechanism, rate))
    for doublings in range(1, 21):
        law = trimmed(np.convolve(law, law))
        check(law / law.sum(), sum_bound(Noise(mechanism, rate), 2**doublings, 0.05), 0.05)


@pytest.mark.parametrize("number", [1, 2, 10, 1000, 10**6])
@pytest.mark.parametrize("rate", [Fraction(1, 10**6), Fraction(1, 40), Fraction(1, 2)], ids=str)
def test_ranges_of_sums_cover_95_percent(number, rate):
    # A sum of m discrete Laplace variables is the difference of two negative binomial ones.
    rng, draws = np.random.default_rng(number), 200_000
    p = -math.expm1(-float(rate))
    sums = rng.negative_binomial(number, p, draws) - rng.negative_binomial(number, p, draws)
    bound = sum_bound(Noise("discrete_laplace", rate), number, 0.05)
    slack = 5 * math.sqrt(0.05 * 0.95 / draws)  # false alarms: below 1e-6
    assert np.mean(abs(sums) > bound) <= 0.05 + slack
    assert np.mean(abs(sums) >= bound) >= 0.05 - slack
    # Negative controls: a range that is a twentieth narrower, or wider.
    if rate < Fraction(1, 10):
        assert np.mean(abs(sums) > 0.95 * bound) > 0.05 + slack
        assert np.mean(abs(sums) >= 1.05 * bound) < 0.05 - slack


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("number", [2, 3, 10, 1000, 10**6, 10**7])
def test_wide_noise_is_bounded_as_a_continuous_one(mechanism, number):
    noise = Noise(mechanism, Fraction(1, 2**32))
    near = sum_bound(noise, number, 0.05) / math.sqrt(number * noise.variance)
    assert math.isclose(noise.variance, 2.0 ** (65 if mechanism == "discrete_laplace" else 64), rel_tol=1e-9)
    # A sum of m Laplace variables has the excess kurtosis 3/m.
    assert 1.9599 < near < 1.9601 + (0.3 / number if mechanism == "discrete_laplace" else 0)
    if (mechanism, number) == ("discrete_laplace", 2):  # whose sum is beyond ±x with probability (1 + x/2)·exp(−x)
        assert math.isclose((1 + near) * math.exp(-2 * near), 0.05, rel_tol=1e-6)
    as_narrow = sum_bound(Noise(mechanism, Fraction(1, 2**20)), number, 0.05) / sum_bound(noise, number, 0.05)
    assert math.isclose(as_narrow, 2.0**-12, rel_tol=2e-6)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_bounds_grow_with_the_number_of_draws_and_of_none_are_0(mechanism):
    noise = Noise(mechanism, Fraction(1, 2))
    numbers = np.array([[0, 1, 2, 3, 50], [51, 1000, 10**6, 10**7, 0]])
    bounds = sum_bounds(noise, numbers, 0.05)
    assert bounds.shape == numbers.shape
    assert bounds.dtype == np.int64
    assert bounds[0, 0] == bounds[1, 4] == 0
    in_order = bounds.ravel()[:-1]
    assert (np.diff(in_order) >= 0).all()
    assert in_order.tolist() == [0, *(sum_bound(noise, number, 0.05) for number in numbers.ravel()[1:-1].tolist())]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_variances_are_those_of_the_laws(mechanism):
    for rate in RATES[:-1]:
        law = pmf(mechanism, rate)
        x = np.arange(len(law)) - len(law) // 2
        assert math.isclose(Noise(mechanism, rate).variance, float(law @ x**2), rel_tol=1e-6)
