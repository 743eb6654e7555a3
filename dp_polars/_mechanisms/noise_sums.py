"""Sums of independent noise: how far such a sum is off, with an error bound for every step that is not exact.

The probability that a sum S of m draws lies within ±w follows from the characteristic function φ of one draw. Both laws
are symmetric and log-concave, so φ is real, and here it is positive and falls from 0 to π:

    P_N(w) = (2w + 1)/N + (2/N)·Σ φ(t)^m·sin((w + ½)t)/sin(t/2),   t = 2πj/N, j from 1 to (N − 1)/2

is the probability that S lies within ±w of a multiple of N. That is too large by P(|S| >= N − w) at most, which a
Chernoff bound keeps below `_TAIL` by the choice of N. The terms beyond some j are left out: with sin(t/2) >= t/π they
add up to at most φ(t)^m·(1 + ln N) there, also below `_TAIL`. Angles are below 10⁵, and powers of φ above exp(−32): so
rounding adds less than 1e-10. `_SLACK` covers all three.

Where each draw counts a number of times of its own, the sum S is on no lattice. So a normal G is added, of a deviation
s that is a small part of that of S, with which φ falls fast: P(│S│ <= w + d) >= P(│S + G│ <= w) − P(│G│ > d). With
t = 2πj/L for j from 1 on,

    P_L(w) = 2w/L + Σ 2/(πj)·sin(wt)·exp(−(st)²/2)·∏ φ(c·t)

is the probability that S + G lies within ±w of a multiple of L. That is too large by P(│S + G│ >= L − w) at most, which
the choice of L keeps below `_TAIL`. Terms beyond s·t = `_FAR` add up to less than 1e-12, and rounding adds less than
1e-10 (where φ is above exp(−30), its logarithm is off by less than 1e-11).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np

from dp_polars._mechanisms.noise import noise_bound_at

if TYPE_CHECKING:
    from collections.abc import Sequence
    from fractions import Fraction

    from numpy.typing import NDArray

    from dp_polars._accounting.terms import Mechanism
    from dp_polars._base.rng import Ints

    Floats = NDArray[np.float64]


_TAIL = 1e-11
_SLACK = 1e-9
# A higher rate has less noise, and of this one a draw is other than 0 with a probability below 1e-27.
_HIGHEST_RATE = 64.0
# Below this standard deviation a discrete Gaussian is summed up. From it on, φ is a sum of bells around the multiples
# of 2π (Poisson): all but three of them together are below exp(−39) of it.
_SMALL = 1
# Standard deviations to each side of which a mean of many draws is off with a probability of about 0.05 (or a half).
_NEAR = (1.8, 2.4)
# The deviation of G, as a share of that of S; the part of β that G gets; where its terms end.
_OF_NORMAL, _NORMAL_BETA, _FAR = 1 / 200, 1e-3, 7.5
# Factors of draws whose characteristic functions are looked at together.
_AT_ONCE = 64


@dataclass(frozen=True)
class Noise:
    """The law of one draw: "discrete_laplace" or "discrete_gaussian" at a rate, as of a claim."""

    mechanism: Mechanism
    rate: Fraction

    @cached_property
    def _rate(self) -> float:
        return min(float(self.rate), _HIGHEST_RATE)

    @property
    def precision(self) -> float:
        """One over the variance, of a discrete Gaussian that is not small: the square of the rate."""
        return self._rate**2

    @cached_property
    def variance(self) -> float:
        """The variance of one draw; of a discrete Gaussian that is not small an upper bound, off by 1e-6 of it."""
        if self.mechanism == "discrete_laplace":
            return float(0.5 / np.sinh(self._rate / 2) ** 2)
        weights, squares = self._weights
        return 2 * float(weights @ squares) if len(squares) else self._rate**-2

    @cached_property
    def _weights(self) -> tuple[Floats, Floats]:
        """The probabilities of 1, 2, … of a small discrete Gaussian, and their squares; else nothing."""
        scale = 1 / self._rate
        if scale >= _SMALL:
            return np.empty(0), np.empty(0)
        squares = np.arange(1.0, math.ceil(14 * scale) + 2) ** 2
        weights = np.exp(-squares / (2 * scale**2))
        return weights / (1 + 2 * weights.sum()), squares

    def log_characteristic(self, t: Floats) -> Floats:
        """Return ln φ(t), for t from 0 to π: relative to itself, off by some units in the last place."""
        if self.mechanism == "discrete_laplace":
            laplace: Floats = -np.log1p((np.sin(t / 2) / math.sinh(self._rate / 2)) ** 2)
            return laplace
        weights, squares = self._weights
        if not len(weights):
            beside = -2 * math.pi / self._rate**2  # the bells on both sides, as shares of that in the middle
            shares = np.exp(beside * (math.pi - t)) + np.exp(beside * (math.pi + t))
            bells: Floats = -((t / self._rate) ** 2) / 2 + np.log1p(shares) - math.log1p(2 * math.exp(beside * math.pi))
            return bells
        summed: Floats = np.log1p(-4 * (np.sin(np.outer(t / 2, np.sqrt(squares))) ** 2 @ weights))
        return summed

    def chernoff(self, number: int, beta: float) -> float:
        """Return an x with P(|S| >= x) <= beta, for the sum of this number of draws."""
        if self.mechanism == "discrete_gaussian":  # subgaussian: Canonne, Kamath & Steinke 2020, Corollary 17
            return math.sqrt(2 * number * math.log(2 / beta)) / self._rate
        s = self._rate * np.geomspace(1e-4, 0.999, 200)  # the bound holds at each
        generating = -np.log1p(-((np.sinh(s / 2) / math.sinh(self._rate / 2)) ** 2))
        return float(((number * generating + math.log(2 / beta)) / s).min())


def sum_bounds(noise: Noise, numbers: Ints, beta: float) -> Ints:
    """Return for each number of draws the smallest w with P(|their sum| > w) <= beta; one more where that is too close.

    Parameters
    ----------
    numbers
        How many draws are added up, from 0 to 10⁷. Each number is looked up once.
    beta
        From 0.001 to 0.5.
    """
    distinct, places = np.unique(numbers, return_inverse=True)
    bounds = np.array([sum_bound(noise, number, beta) for number in distinct.tolist()], np.int64)
    return bounds[places.reshape(numbers.shape)]


@lru_cache(maxsize=1 << 16)
def sum_bound(noise: Noise, number: int, beta: float) -> int:
    """Return the smallest w with P(|S| > w) <= beta, S being the sum of the draws: see `sum_bounds`."""
    if number == 0:
        return 0
    if number == 1:
        return noise_bound_at(noise.mechanism, noise.rate, beta)
    most = math.ceil(noise.chernoff(number, _TAIL))
    period = 2 * most + 1
    points = _points(noise, number, period)
    t: Floats = np.arange(1.0, points + 1) * (2 * math.pi / period)
    weights = np.exp(number * noise.log_characteristic(t)) / np.sin(t / 2)

    def holds(w: int) -> bool:
        inside = (2 * w + 1 + 2 * float(weights @ np.sin((w + 0.5) * t))) / period
        return inside >= 1 - beta + _SLACK

    # `high` holds always: at first by Chernoff's bound. The brackets only make it faster.
    low, high = -1, most
    for deviations in _NEAR:
        tried = min(most, math.floor(deviations * math.sqrt(number * noise.variance)))
        if low < tried < high:
            low, high = (low, tried) if holds(tried) else (tried, high)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _points(noise: Noise, number: int, period: int) -> int:
    """Return up to which j terms are looked at: those beyond add up to `_TAIL` at most, or there are none."""
    enough = math.log(_TAIL / (1 + math.log(period)))
    low, high = 0, (period - 1) // 2
    while high - low > 1:
        middle = (low + high) // 2
        value = float(noise.log_characteristic(np.array([middle * (2 * math.pi / period)]))[0])
        low, high = (low, middle) if number * value <= enough else (middle, high)
    return high


@dataclass(frozen=True, eq=False)
class WeightedNoise:
    """Draws of one discrete Gaussian that count `factors` times, shape (k,), and how many of each there are."""

    noise: Noise
    factors: Floats
    numbers: Ints

    @classmethod
    def of(cls, noise: Noise, factors: Floats, repeated: int) -> WeightedNoise:
        """Return draws with these factors, each repeated; equal factors together, but for 2**-40 of the largest."""
        sizes = np.abs(factors)
        largest = float(sizes.max(initial=0))
        if not largest:
            return cls(noise, np.empty(0), np.empty(0, np.int64))
        _, first, numbers = np.unique(np.rint(sizes / largest * 2.0**40), return_index=True, return_counts=True)
        return cls(noise, sizes[first], numbers * repeated)

    @property
    def squares(self) -> float:
        """The sum of the squares of what bounds the deviation of each."""
        return float(self.numbers @ self.factors**2) / self.noise.precision

    def log_characteristic(self, t: Floats) -> Floats:
        """Return ln φ(t) of the sum, for any t."""
        found = np.zeros(len(t))
        for start in range(0, len(self.factors), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            angles = np.remainder(np.outer(self.factors[part], t), 2 * math.pi)
            folded = np.minimum(angles, 2 * math.pi - angles)
            logs = self.noise.log_characteristic(folded.ravel()).reshape(folded.shape)
            found += self.numbers[part] @ logs
        return found


def weighted_bound(draws: Sequence[WeightedNoise], beta: float) -> float:
    """Return a w with P(|S| > w) <= beta, S being the sum of all draws: at most 2 % above the smallest.

    All draws are discrete Gaussian. `beta` is from 1e-5 to 0.5.
    """
    deviation = math.sqrt(sum(one.squares for one in draws))
    if not deviation:
        return 0.0
    s, of_normal = deviation * _OF_NORMAL, _NORMAL_BETA * beta
    most = math.sqrt(2 * math.log(2 / _TAIL) * (deviation**2 + s**2))  # subgaussian: Canonne, Kamath & Steinke 2020
    period = 2 * most
    j: Floats = np.arange(1.0, math.ceil(_FAR / s * period / (2 * math.pi)) + 1)
    t = j * (2 * math.pi / period)
    weights = np.exp(sum((one.log_characteristic(t) for one in draws), -((s * t) ** 2) / 2)) * (2 / math.pi) / j

    def holds(w: float) -> bool:
        return 2 * w / period + float(weights @ np.sin(w * t)) >= 1 - beta + of_normal + _SLACK

    low, high = 0.0, most  # `high` holds always, by Chernoff's bound
    while high - low > s / 16:
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high - NormalDist().inv_cdf(of_normal / 2) * s * (1 + 1e-6)
