"""What a rate costs, and the rate that a loss pays for: exact rationals, a cost rounded up and a rate down.

`x` is a rate times a range: the pure epsilon of one row in one group. A person who has several rows there has that
often x, and the costs of groups add up.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

from dp_polars._base.intervals import ball, precision, upper

if TYPE_CHECKING:
    from collections.abc import Callable

    from dp_polars._accounting.claims import Contributions, Mechanism, Unit

# Irrational rates and costs are rounded to this many significant bits: far below what any choice could show.
BITS = 96
# Enough for a guess next to the answer; the search after it needs no more than luck.
_SECANTS = 30


def scaled_cost(unit: Unit, mechanism: Mechanism, x: Fraction, contributions: Contributions) -> Fraction:
    """Return the cost of a release whose rate times range is `x`, rounded up where it is irrational."""
    if unit == "epsilon":
        return x * contributions.total
    if mechanism in ("permute_and_flip", "exponential"):
        # Once for each group, and all rows that a group may hold of a person move it together.
        rho_of = laplace_rho if mechanism == "permute_and_flip" else bounded_range_rho
        return contributions.full_groups * rho_of(x * contributions.per_group) + rho_of(x * contributions.rest)
    # A Gaussian of deviation σ and sensitivity d has d²/(2σ²) (Canonne, Kamath & Steinke 2020, arXiv 2004.00010,
    # Theorem 14). Discrete Laplace is x-DP in a group, and so x²/2-zCDP (Bun & Steinke 2016, arXiv 1605.02065,
    # Proposition 1.4). Between two neighbouring integers it is randomized response: no Laplace curve holds for it.
    # A key shown by partition selection is (x, δ)-DP: with probability 1 − δ it is as x-DP (Kairouz, Oh &
    # Viswanath 2015, arXiv 1311.0776), and so δ-approximately x²/2-zCDP (Bun & Steinke 2016, section 8).
    return x**2 * contributions.squares / 2


def scaled_rate(unit: Unit, mechanism: Mechanism, loss: Fraction, contributions: Contributions) -> Fraction:
    """Return the largest rate times range that a loss pays for, rounded down."""
    if unit == "epsilon":
        return loss / contributions.total
    if mechanism in ("permute_and_flip", "exponential"):
        return _invert_down(loss, mechanism, contributions)
    return _sqrt_down(2 * loss / contributions.squares)


def laplace_rho(x: Fraction) -> Fraction:
    """Return x + exp(−x) − 1, rounded up: the rho of a Laplace mechanism with epsilon x.

    Permute-and-flip's trade-off curve is never worse than that mechanism's. It is not bounded range, and neither x²/8
    nor `bounded_range_rho` is true of it (Ding et al. 2021, arXiv 2105.07260, Proposition 8 and Corollary 10).
    """
    if x == 0:
        return Fraction(0)
    with precision(_bits_for(x)):
        return round_up(upper(ball(x) + (-ball(x)).expm1()))


def bounded_range_rho(x: Fraction) -> Fraction:
    """Return y − 1 − ln y for y = x/(exp(x) − 1), rounded up: the rho of whatever has bounded range x.

    Harrison & Manurangsi 2026 (arXiv 2510.25746): it is attained as the order goes to 1. It is x²/8 − x⁴/576 + … for
    a small x, never above x²/8 (Cesar & Rogers 2021), and less than x for a large one.
    """
    if x == 0:
        return Fraction(0)
    with precision(_bits_for(x)):
        exact = ball(x)
        kept = -(-exact).expm1()  # 1 − exp(−x)
        if x < 1:
            above = (exact * (-exact).exp() - kept) / kept  # y − 1
            rho = above - above.log1p()
        else:  # exp(−x) may be too small for a logarithm
            rho = exact * (-exact).exp() / kept - 1 - (exact / kept).log() + exact
        return min(round_up(upper(rho)), x**2 / 8)  # for a tiny x both round to the same


def _bits_for(x: Fraction) -> int:
    """Return enough bits for a result of about x²: the leading zeros of a small x are lost twice, or thrice."""
    return BITS + 3 * max(0, floor_log2(1 / x)) + 32


def _invert_down(rho: Fraction, mechanism: Mechanism, contributions: Contributions) -> Fraction:
    """Return the largest x (to `BITS` bits) whose cost is at most `rho`: a secant's guess, made certain."""

    def cost(steps: int) -> Fraction:
        return scaled_cost("rho", mechanism, steps * step, contributions)

    # The costs are at most x, and x²/8 or x²/2, a group: so the answer lies above this, but for a hair of rounding.
    square = (8 if mechanism == "exponential" else 2) * rho / contributions.squares
    low = max(_sqrt_down(square), rho / contributions.total)
    step = _last_bit(low)
    before, guess = math.floor(low / step), math.ceil(2 * low / step)
    cost_before, cost_guess = cost(before), cost(guess)
    for _ in range(_SECANTS):
        # A cost is convex and grows, so the secants close in on the answer.
        if abs(guess - before) <= 1 or cost_guess == cost_before:
            break
        ahead = math.floor((rho - cost_guess) * (guess - before) / (cost_guess - cost_before))
        before, cost_before = guess, cost_guess
        guess = max(guess + ahead, 1)
        cost_guess = cost(guess)
    return _largest(lambda steps: cost(steps) <= rho, guess) * step


def _largest(holds: Callable[[int], bool], guess: int) -> int:
    """Return the largest number for which something holds that holds up to some number, by a search around `guess`."""
    low, reach = guess, 1
    while not holds(low):
        low, reach = low - reach, 2 * reach
    high, reach = low + 1, 1
    while holds(high):
        low, high, reach = high, high + reach, 2 * reach
    while high - low > 1:
        middle = (low + high) // 2
        if holds(middle):
            low = middle
        else:
            high = middle
    return low


def floor_log2(x: Fraction) -> int:
    """Return the largest n with 2**n <= x, or one less."""
    return x.numerator.bit_length() - x.denominator.bit_length() - 1


def _sqrt_down(x: Fraction) -> Fraction:
    """Return √x where it is rational, otherwise the nearest below of `BITS` bits."""
    root = Fraction(math.isqrt(x.numerator), math.isqrt(x.denominator))
    if root**2 == x:
        return root
    shift = max(0, BITS - floor_log2(x) // 2)
    return Fraction(math.isqrt(math.floor(x * 4**shift)), 2**shift)


def round_up(x: Fraction) -> Fraction:
    """Return the nearest above of `BITS` bits, so that ledgers stay short."""
    step = _last_bit(x)
    return math.ceil(x / step) * step


def round_down(x: Fraction) -> Fraction:
    """Return the nearest below of `BITS` bits."""
    step = _last_bit(x)
    return math.floor(x / step) * step


def _last_bit(x: Fraction) -> Fraction:
    return Fraction(2) ** (floor_log2(x) - BITS)
