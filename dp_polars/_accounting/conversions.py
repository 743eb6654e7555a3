"""What a loss in zero-concentrated or pure DP means in (epsilon, delta), rounded so that it stays true."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from dp_polars._base.intervals import ball, precision, upper
from dp_polars._base.numbers import float_up

if TYPE_CHECKING:
    from flint import arb

    from dp_polars._accounting.terms import Unit

_BITS = 128
# A rho up to this, and its inverse, are held by floats, also squared and multiplied by orders.
_LARGEST = Fraction(2**500)
# exp of it is 0 in float64.
_UNDERFLOW = -1000

# Any order α > 1 gives a proof (Canonne, Kamath & Steinke 2020, arXiv 2004.00010, Corollary 13), so a search
# among these multiples of the α − 1 that is best for Gaussian noise needs no certainty.
_ORDERS = np.exp(np.linspace(-2, 2, 801))


def zcdp_delta(rho: Fraction, epsilon: Fraction) -> float:
    """Return a delta that rho-zCDP proves, rounded up: above 0, however small it is."""
    if epsilon <= rho:
        return 1.0
    t, r = float(epsilon), float(rho)
    best = min(max((epsilon - rho) / (2 * rho), Fraction(1, 2**500)), Fraction(2**500))
    above_one = float(best) * _ORDERS
    order = 1 + above_one
    logs = above_one * (order * r - t) - np.log(above_one) + order * np.log(above_one / order)
    with precision(_BITS):
        a = Fraction(float(above_one[logs.argmin()]))
        log = ball(a * ((1 + a) * rho - epsilon)) - ball(a).log() - ball(1 + a) * ball(1 / a).log1p()
        # Below the smallest float, and without numbers of as many digits as the exponent is large.
        return min(1.0, float_above(log.max(ball(_UNDERFLOW)).exp()))


def zcdp_epsilon(rho: Fraction, delta: float) -> float:
    """Return an epsilon that rho-zCDP proves, rounded up."""
    r = float(rho)
    above_one = math.sqrt(-math.log(delta) / r) * _ORDERS
    order = 1 + above_one
    logs = -math.log(delta) - np.log(above_one) + order * np.log(above_one / order)
    with precision(_BITS):
        a = Fraction(float(above_one[(order * r + logs / above_one).argmin()]))
        log = -ball(Fraction(delta)).log() - ball(a).log() - ball(1 + a) * ball(1 / a).log1p()
        return max(0.0, float_above(ball((1 + a) * rho) + log / ball(a)))


class EpsilonAt(NamedTuple):
    """What a budget means in (epsilon, delta): `spent` for what is charged so far, `total` once all of it is."""

    spent: float
    total: float


def epsilon_at(unit: Unit, loss: Fraction, delta: Fraction, gone: Fraction) -> float:
    """Return an epsilon that is proved at `delta` for a sum of losses and a sum of deltas, rounded up."""
    left = delta_left(delta, gone)
    if left is None:
        return math.inf
    if loss == 0:
        return 0.0
    if unit == "epsilon":
        return pure_epsilon(loss, left)
    below = -float_up(-left)
    # What a loss proves, a larger one proves, too.
    return zcdp_epsilon(max(loss, 1 / _LARGEST), below) if below > 0 and loss <= _LARGEST else math.inf


def pure_epsilon(epsilon: Fraction, delta: Fraction) -> float:
    """Return the least epsilon that is proved at `delta` for whatever is `epsilon`-DP, rounded up.

    Randomized response dominates it (Kairouz, Oh & Viswanath 2015, arXiv 1311.0776): δ(t) = (e^ε − e^t)/(1 + e^ε).
    """
    with precision(_BITS):
        least = ball(-epsilon).exp()
        share = 1 - ball(delta) * (1 + least)  # exp(t − ε)
        return 0.0 if share <= least else max(0.0, float_above(ball(epsilon) + share.max(least).log()))


def delta_left(delta: Fraction, spent: Fraction) -> Fraction | None:
    """Return what is left of `delta` where `spent` of it is gone; None where that is more.

    What is approximately private with probability 1 − spent has δ ≤ spent + (1 − spent)·δ′, δ′ being that of the rest
    (Bun & Steinke 2016, arXiv 1605.02065, section 8).
    """
    return None if spent >= 1 or delta < spent else (delta - spent) / (1 - spent)


def float_above(value: arb) -> float:
    """Return a float that is not below any number of the ball."""
    return float_up(upper(value))
