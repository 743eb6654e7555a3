"""What a loss in zero-concentrated or pure DP means in (epsilon, delta), rounded so that it stays true."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from dp_polars._base.intervals import ball, lower, precision, upper
from dp_polars._base.numbers import float_up

if TYPE_CHECKING:
    from collections.abc import Callable

    from flint import arb

    from dp_polars._accounting.terms import Unit

_BITS = 128
# A rho up to this, and its inverse, are held by floats, also squared and multiplied by orders.
_LARGEST = Fraction(2**500)
# An order, less one, that is smaller would be rounded away; it proves next to nothing more.
_SMALLEST_ORDER = 2.0**-50
# exp of it is 0 in float64.
_UNDERFLOW = -1000

# Any order α > 1 gives a proof (Canonne, Kamath & Steinke 2020, arXiv 2004.00010, Proposition 12 and Corollary 13), so
# a search needs no certainty. It takes 40 steps, by thirds, between two multiples of the α − 1 that is about the best
# for Gaussian noise (their logarithms). What has a pure loss, too, may have its best order far above.
_THIRDS, _FARTHEST = 40, (-2.0, 6.0)

# a > 0 -> a times a bound on the Rényi divergence of order 1 + a.
LogMoment: TypeAlias = "Callable[[arb], arb]"


def zcdp_delta(rho: Fraction, epsilon: Fraction) -> float:
    """Return a delta that rho-zCDP proves, rounded up: above 0, however small it is."""
    return renyi_delta(_of_zcdp(rho), rho, epsilon)


def zcdp_epsilon(rho: Fraction, delta: float) -> float:
    """Return an epsilon that rho-zCDP proves, rounded up."""
    return renyi_epsilon(_of_zcdp(rho), rho, delta)


def _of_zcdp(rho: Fraction) -> LogMoment:
    return lambda a: a * (1 + a) * ball(rho)


def renyi_delta(log_moment: LogMoment, rho: Fraction, epsilon: Fraction) -> float:
    """Return a delta that divergences of at most rho times their order prove, rounded up: above 0, however small."""
    if epsilon <= rho:
        return 1.0
    around = float(min(max((epsilon - rho) / (2 * rho), 1 / _LARGEST), _LARGEST))
    with precision(_BITS):
        log = _least(lambda a: log_moment(a) - a * ball(epsilon) + _log_share(a), around)
        # Below the smallest float, and without numbers of as many digits as the exponent is large.
        return min(1.0, float_above(log.max(ball(_UNDERFLOW)).exp()))


def renyi_epsilon(log_moment: LogMoment, rho: Fraction, delta: float) -> float:
    """Return an epsilon that divergences of at most rho times their order prove, rounded up."""
    around = math.sqrt(-math.log(delta) / float(rho))
    with precision(_BITS):
        log = -ball(Fraction(delta)).log()
        return max(0.0, float_above(_least(lambda a: (log_moment(a) + _log_share(a) + log) / a, around)))


def _log_share(a: arb) -> arb:
    """Return the logarithm of (1 − 1/α)^α/(α − 1), for α = 1 + a."""
    return -a.log() - (1 + a) * (1 / a).log1p()


def best_order(epsilon: Fraction, delta: Fraction) -> float:
    """Return about the order, less one, at which the largest rho proves (epsilon, delta) by `divergence_for`."""
    log = -math.log(float_up(delta))
    share = log / float(min(max(epsilon, 1 / _LARGEST), _LARGEST))
    # Where delta is large, no order far above its inverse is needed.
    around = min(max(share + math.sqrt(share * (share + 1)), _SMALLEST_ORDER), 1 / float_up(delta), float(_LARGEST))
    with precision(_BITS):
        most = ball(epsilon)
        return _least_at(lambda a: (-most).max((_log_share(a) - ball(delta).log()) / a - most) / (1 + a), around)


def divergence_for(epsilon: Fraction, delta: Fraction, order: Fraction) -> Fraction:
    """Return the largest divergence of an order that proves (epsilon, delta), rounded down; it may be below 0.

    At most epsilon: more than that is proved where delta is large.
    """
    with precision(_BITS):
        a = ball(order - 1)
        return min(epsilon, lower(ball(epsilon) + (ball(delta).log() - _log_share(a)) / a))


def epsilon_of_divergence(divergence: Fraction, delta: Fraction, order: Fraction) -> float:
    """Return an epsilon that a divergence of an order proves at a delta, rounded up."""
    with precision(_BITS):
        a = ball(order - 1)
        return max(0.0, float_above(ball(divergence) + (_log_share(a) - ball(delta).log()) / a))


def _least(value: Callable[[arb], arb], around: float) -> arb:
    """Return about the least value."""
    return value(ball(Fraction(_least_at(value, around))))


def _least_at(value: Callable[[arb], arb], around: float) -> float:
    """Return about where the least value is."""

    def at(log: float) -> arb:
        return value(ball(Fraction(around * math.exp(log))))

    low, high = _FARTHEST
    for _ in range(_THIRDS):
        third = (high - low) / 3
        if at(low + third).mid() <= at(high - third).mid():
            high -= third
        else:
            low += third
    return around * math.exp((low + high) / 2)


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
