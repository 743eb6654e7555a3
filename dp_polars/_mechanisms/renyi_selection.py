"""Selects which of the occurring keys are shown, by about the best coins that a loss in rho allows, without counts.

Proof: `docs/proofs/keys.md`, Theorems 5 and 6.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dp_polars._base.numbers import Ints, Rng, ball, precision, system_rng
from dp_polars._mechanisms.partition_selection import KeySelection
from dp_polars._mechanisms.racing import Uniform, is_less

# Tables have about 2·√(ln(1/δ)/rho) numbers of people. Beyond this many, there is none.
_LONGEST = 2**13
# A larger rho shows hardly more. Probabilities are at least e^−(√ln(1/δ) + √rho)², about, which floats represent.
_LARGEST_RHO, _SMALLEST_DELTA = Fraction(100), Fraction(1, 2**300)
# By which parts logits rise less than floats say is possible, until balls prove it. The first nearly always do.
_MARGINS = [2.0**-bits for bits in range(44, 0, -6)]
_BITS = 192


class Chance(NamedTuple):
    """A probability, exactly: `small`, or 1 − `small`; at most 1/2. So both ends are as exact."""

    small: float
    is_rest: bool

    @property
    def exact(self) -> Fraction:
        return 1 - Fraction(self.small) if self.is_rest else Fraction(self.small)


@dataclass(frozen=True)
class RenyiSelection(KeySelection):
    """Show a key of n people with the probability π(n), about the largest that δ-approximate rho-zCDP allows.

    Harrison & Manurangsi 2026 (arXiv 2603.09167), for all orders at once.

    `rho`, `delta`: the loss of one key, for one person more or less. `has_table` of them.
    """

    rho: Fraction
    delta: Fraction

    @staticmethod
    def has_table(rho: Fraction, delta: Fraction) -> bool:
        """Return whether the table of these losses is short enough to compute."""
        return _SMALLEST_DELTA <= delta < 1 and 4 * math.log(1 / delta) <= _LONGEST**2 * min(rho, _LARGEST_RHO)

    @property
    def table(self) -> tuple[Chance, ...]:
        """π(0), π(1), … up to the last one below 1."""
        return chances_for(min(self.rho, _LARGEST_RHO), self.delta)

    def draw(self, people: Ints) -> tuple[NDArray[np.bool_], None]:
        return self.shown(people, system_rng()), None

    def shown(self, people: Ints, rng: Rng) -> NDArray[np.bool_]:
        """Return whether each key is shown: True with probability π(people), exactly; never for a key of 0 people."""
        exact = [chance.exact for chance in self.table]
        # U is between word and word + 1 units of 2**-64, and π between `floor` and `floor` + 1 of them.
        floors = np.array([math.floor(chance * 2**64) for chance in exact], np.uint64)
        word, place = rng(len(people)), np.minimum(people, len(exact) - 1)
        floor = floors[place]
        shown: NDArray[np.bool_] = (word < floor) | (people >= len(exact))
        for i in np.flatnonzero(~shown & (word == floor) & (people > 0)).tolist():
            chance = exact[place[i]]
            shown[i] = is_less(Uniform(int(word[i]), 64, rng), lambda _, chance=chance: ball(chance))  # type: ignore[misc]
        return shown

    def chances(self, people: Ints) -> NDArray[np.float64]:
        floats = np.array([*(float(chance.exact) for chance in self.table), 1.0])
        return floats[np.minimum(people, len(floats) - 1)]

    def people_for(self, chance: float) -> int:
        return max(bisect_left(self.table, chance, key=lambda one: float(one.exact)), 1)


@lru_cache(maxsize=64)
def chances_for(rho: Fraction, delta: Fraction) -> tuple[Chance, ...]:
    """Return π(0), π(1), … up to the last one below 1: each is proved against the one before.

    All but δ of both laws are Bernoulli laws: for π(n − 1) with p = π(n − 1)/(1 − δ), and for π(n) with
    q = (π(n) − δ)/(1 − δ). For these, `_is_proved` means rho-zCDP.
    """
    share, least = 1 - delta, _float_below(delta)
    table, width = [Chance(0.0, False), _chance(delta, 1 - delta)], 1.0
    with precision(_BITS):
        while (left := 1 - table[-1].exact - delta) > 0:
            if left <= least:
                table.append(Chance(least, True))  # at most δ more
                continue
            start = p, rest = table[-1].exact / share, left / share
            logit = _log(p) - _log(rest)
            width = _largest_width(logit, width, float(rho))
            for margin in _MARGINS:
                end = logit + width * (1 - margin)
                small, of_rest = float(share) * _expit(end) + float(delta), float(share) * _expit(-end)
                chance = Chance(small, False) if small <= 1 / 2 else Chance(of_rest, True)
                then = (chance.exact - delta) / share, (1 - chance.exact) / share
                if _is_proved(start, then, rho):
                    break
            else:
                chance = _chance(table[-1].exact + delta, left)  # the same laws but for δ
            # After `least` the next one is 1. Anything below a proved probability is proved, too.
            table.append(Chance(max(chance.small, least), chance.is_rest))
    return tuple(table)


def _is_proved(smaller: tuple[Fraction, Fraction], larger: tuple[Fraction, Fraction], rho: Fraction) -> bool:
    """Return whether two Bernoulli laws are proved to be within rho·α of each other, both ways, for all orders α > 1.

    Each law: the probabilities of one and of zero. `docs/proofs/keys.md`, Theorem 6: one order t is enough, for which
    it computes whether the excess D and its derivatives have the right signs.
    """
    if smaller[0] + larger[0] > 1:  # zeros for ones, and the other way
        smaller, larger = larger[::-1], smaller[::-1]
    if not 0 < smaller[0] < larger[0] < 1:
        return False
    logit, end = (_log(one) - _log(zero) for one, zero in (smaller, larger))
    at = _closest_order(logit, end - logit, float(rho))
    one, zero, order, most = ball(smaller[0]), ball(smaller[1]), ball(Fraction(at)), ball(rho)
    start, lost = (one / zero).log(), (zero / ball(larger[1])).log()
    width = (ball(larger[0]) / ball(larger[1])).log() - start
    tilted = one * (width * order).exp()
    part = tilted / (zero + tilted)
    slope = most * (2 * order - 1) - (width * part - lost)
    if not 2 * most > width**2 * part * (1 - part):
        return False
    if at == 1:
        return bool(-start < width) and bool(slope > 0)
    excess = most * order * (order - 1) - ((zero + tilted).log() - order * lost)
    last = -2 * start / width
    above, below = order - last + 1, last - order
    if not (at > 1 and above > 0 and below > 0):
        return False
    return bool(excess > slope * above) and bool(excess > -slope * below)


def _largest_width(logit: float, guess: float, rho: float) -> float:
    """Return by how much the logit of a Bernoulli law may rise: approximately."""

    def room(width: float) -> float:
        start = logit if 2 * logit + width <= 0 else -logit - width
        order = _closest_order(start, width, rho)
        excess, slope, _ = _excess(start, width, rho, order)
        return slope if order == 1 else excess / (order * (order - 1))

    low = high = guess
    while room(high) > 0:
        low, high = high, 2 * high
    while room(low) <= 0:
        low, high = low / 2, low
    at_low, at_high = room(low), room(high)
    for _ in range(60):  # false position, at which an end that stays counts half
        middle = low + (high - low) * at_low / (at_low - at_high)
        if not low < middle < high:
            break
        at_middle = room(middle)
        if abs(at_middle) < 2.0**-48 * rho:
            return middle
        if at_middle > 0:
            low, at_low, at_high = middle, at_middle, at_high / 2
        else:
            high, at_high, at_low = middle, at_middle, at_low / 2
    return low


def _closest_order(start: float, width: float, rho: float) -> float:
    """Return the order t of at least 1 with the least excess: by Newton's method, from the right."""
    order = max(1.0, -2 * start / width)
    least = (order - 1) * (1 + 2.0**-40) if order > 2 + 2.0**-20 else 1.0  # floats show nothing just above 1
    for _ in range(20):
        _, slope, bend = _excess(start, width, rho, order)
        if not (bend > 0 and slope > 0):
            break
        before, order = order, max(least, order - slope / bend)
        if before - order <= 2.0**-50 * before:
            break
    return order


def _excess(start: float, width: float, rho: float, order: float) -> tuple[float, float, float]:
    """Return D(t) = rho·t·(t − 1) − K(t), and its first and second derivative.

    K(t) = φ(t) − φ(0) − t·(φ(1) − φ(0)), with φ(t) = ln(2·cosh((start + width·t)/2)).
    """
    y = start + width * order
    first, rise = _log_cosh(start), _log_cosh(start + width) - _log_cosh(start)
    tilt = math.tanh(y / 2)
    excess = rho * order * (order - 1) - (_log_cosh(y) - first - order * rise)
    return excess, rho * (2 * order - 1) - (width * tilt / 2 - rise), 2 * rho - width**2 * (1 - tilt**2) / 4


def _log_cosh(y: float) -> float:
    return abs(y) / 2 + math.log1p(math.exp(-abs(y)))


def _expit(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def _log(x: Fraction) -> float:
    return math.log(float(x))


def _chance(one: Fraction, zero: Fraction) -> Chance:
    """Return the probability `one`, rounded down."""
    return Chance(_float_below(one), False) if one <= zero else Chance(-_float_below(-zero), True)


def _float_below(x: Fraction) -> float:
    return float(x) if Fraction(float(x)) <= x else math.nextafter(float(x), -math.inf)
