"""(Epsilon, delta) of discrete Gaussians drawn together, by intervals: `docs/proofs/composition.md`.

A move is a number's change over the deviation of its noise. Moves come with their multiplicity.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, pairwise
from statistics import NormalDist
from typing import TypeAlias

from dp_polars._accounting.costs import round_down, round_up
from dp_polars._base.numbers import ball, precision, upper

Moves: TypeAlias = "Iterable[tuple[Fraction, int | Fraction]]"

_BITS = 160
_LARGEST = 3  # larger moves are left to rho
# Lattices are tried one by one, until a shift this much above the move is enough for all others.
_FINE = 1 + Fraction(1, 2000)
_MOST = 10**8  # Gaussians
_TAIL = Fraction(27, 2)  # thresholds beyond this number of deviations are left out, also after the shift
# Added to a delta for these thresholds, and for the factors between fine lattices and a Gaussian.
TAILS = Fraction(1, 10**24)


def shift_of(moves: Moves) -> Fraction | None:
    """Return the shift of a continuous Gaussian that dominates the discrete ones, rounded up. None: none is proved."""
    found = [(move, n) for move, n in moves if move]
    if any(move > _LARGEST for move, _ in found) or sum(n for _, n in found) > _MOST:
        return None
    with precision(_BITS):
        squares = sum((n * widened(move) ** 2 for move, n in found), Fraction(0))
        return round_up(upper(ball(squares).sqrt())) if squares else squares


def likely_shift(moves: Moves) -> float:
    """Approximate `shift_of` quickly in floats, by the threshold that nearly always needs the largest shift."""
    squares = 0.0
    for move, n in moves:
        x = float(move)
        if not x:
            continue
        at_zero = 1 / (1 + 2 * sum(math.exp(-((k * x) ** 2) / 2) for k in range(1, math.ceil(9 / x) + 1)))
        squares += float(n) * max(2 * NormalDist().inv_cdf((1 + at_zero) / 2), float(_FINE) * x) ** 2
    return math.sqrt(squares)


def likely_factor(moves: Moves, shift: Fraction) -> Fraction:
    """Return approximately the factor by which moves may grow to reach this shift by `likely_shift`."""
    found, (low, high) = [*moves], (0.0, 1.0)
    while likely_shift((move * Fraction(high), n) for move, n in found) < shift:
        low, high = high, 2 * high
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        is_less = likely_shift((move * Fraction(middle), n) for move, n in found) < shift
        low, high = (middle, high) if is_less else (low, middle)
    return Fraction(low)


@lru_cache(maxsize=1024)
def widened(move: Fraction) -> Fraction:
    """Return the smallest shift of a continuous Gaussian that dominates discrete ones with this move, rounded up.

    It covers all numbers of steps that may make up the move: `docs/proofs/composition.md`, Theorem 6.
    """
    widest, steps = _FINE * move, 1
    while 2 * move >= steps or _of_fine(move, steps) > widest:  # at most seven: one step nearly always needs the most
        widest, steps = max(widest, steps * _widest_threshold(move / steps, move)), steps + 1
    return widest


def _of_fine(move: Fraction, steps: int) -> Fraction:
    """Return a shift that is enough for lattices with at least this number of steps, above twice the move."""
    with precision(_BITS):
        return round_up(upper(ball(move) / ball(1 - (2 * move / steps) ** 2).sqrt()))


def _widest_threshold(step: Fraction, move: Fraction) -> Fraction:
    """Return the largest difference of two thresholds, for a lattice with this step in deviations."""
    last = math.ceil((_TAIL + move) / step) + 2
    with precision(_BITS):
        half = ball(step**2 / 2)
        # P(N ≥ k) for k = 0, 1, …, up to a factor. The tail beyond twice as many is below 2**-120 of the last one.
        masses = [(-half * k * k).exp() for k in range(2 * last - 1, -1, -1)]
        above = list(accumulate(masses))[::-1][: last + 1]
        all_of_it, root = above[0] + above[1], ball(Fraction(2)).sqrt()
        from flint import arb  # a slow import that few processes need

        beyond = arb(0, 2.0**-120)
        points = [root * (2 * one * (1 + beyond) / all_of_it).erfcinv() for one in above[1:]]
        return max(upper(after - before) for before, after in pairwise([-points[0], *points]))


def delta_of(shift: Fraction, epsilon: Fraction) -> Fraction:
    """Return the delta of a Gaussian with this shift (Balle & Wang 2018, arXiv 1805.06530, Theorem 8), rounded up."""
    if not shift:
        return Fraction(0)
    with precision(_BITS):
        mu, t, root = ball(shift), ball(epsilon), ball(Fraction(2)).sqrt()
        below, beyond = ((t / mu - mu / 2) / root).erfc() / 2, ((t / mu + mu / 2) / root).erfc() / 2
        return min(Fraction(1), max(Fraction(0), upper(below - t.exp() * beyond)) + TAILS)


@lru_cache(maxsize=64)
def largest_shift(epsilon: Fraction, delta: Fraction) -> Fraction:
    """Return a shift above all shifts that satisfy (epsilon, delta), by a relative 2**-60 at most."""
    low, high = Fraction(0), Fraction(1)
    while delta_of(high, epsilon) <= delta:
        low, high = high, 2 * high
    while high - low > high / 2**60:
        middle = round_down((low + high) / 2)
        low, high = (middle, high) if delta_of(middle, epsilon) <= delta else (low, middle)
    return high


def epsilon_of(shift: Fraction, delta: Fraction) -> Fraction | None:
    """Return the smallest epsilon, to a relative 2**-44, of a shift at a delta. None: none is proved."""
    if delta <= 2 * TAILS:
        return None
    low, high = Fraction(0), Fraction(1, 2**20)
    if delta_of(shift, low) <= delta:
        return low
    while delta_of(shift, high) > delta:
        low, high = high, 2 * high
    while high - low > high / 2**44:
        middle = (low + high) / 2
        low, high = (low, middle) if delta_of(shift, middle) <= delta else (middle, high)
    return high
