"""Races that are too close for floats: decided by drawing more bits and computing with rigorous intervals."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from dp_polars._base.intervals import ball, ball_between, lower, precision, upper
from dp_polars._base.words import WordSource, uniform_below

if TYPE_CHECKING:
    from flint import arb

    from dp_polars._mechanisms.laws import RacingLaw

# A real number: how many bits of each uniform to use -> a ball that holds it.
Real: TypeAlias = "Callable[[int], arb]"


@dataclass
class Uniform:
    """A uniform real from 0 to 1 of which `bits` leading bits are drawn so far, as the integer `prefix`."""

    prefix: int
    bits: int
    words: WordSource

    def __call__(self, bits: int) -> arb:
        while self.bits < bits:
            self.prefix = self.prefix << 64 | int(self.words(1)[0])
            self.bits += 64
        scale = 1 << self.bits
        return ball_between(Fraction(self.prefix, scale), Fraction(self.prefix + 1, scale))


def first_arrival(
    gap: Callable[[int], Fraction | int],
    multiplicities: Sequence[int],
    words_drawn: Mapping[int, int],
    far: Sequence[int],
    far_word: int | None,
    rate: Fraction,
    law: RacingLaw,
    words: WordSource,
) -> int:
    """Return the position of the block that arrives first.

    Parameters
    ----------
    gap, multiplicities
        All blocks of one group, by position.
    words_drawn
        The first 64 bits of the uniform of each block that floats could not rule out, by position.
    far
        Positions of the blocks that were not raced one by one.
    far_word
        The first 64 bits of the uniform of all far candidates together; None where floats ruled them out.
    """

    def arrival(wait: Real, position: int) -> Real:
        return _log_arrival(law, wait, rate * gap(position))

    winner, best = -1, None
    for position, word in words_drawn.items():
        uniform = Uniform(word, 64, words)
        time = arrival(wait_of(multiplicities[position], uniform), position)
        if best is None or is_less(time, best):
            winner, best = position, time
    if not far or far_word is None or best is None:
        return winner

    # The far candidates arrive in the order of their waits, but no earlier than a wait allows at the smallest far gap:
    # once that is too late, all of them are.
    left = {position: multiplicities[position] for position in far}
    nearest = min(far, key=gap)
    wait = wait_of(sum(left.values()), Uniform(far_word, 64, words))
    while is_less(arrival(wait, nearest), best):
        position = _uniform_position(left, words)
        time = arrival(wait, position)
        if is_less(time, best):
            winner, best = position, time
        left[position] -= 1
        if not any(left.values()):
            break
        wait = _next_wait(wait, sum(left.values()), Uniform(0, 0, words))
    return winner


def first_and_lead(
    gap: Callable[[int], Fraction | int],
    multiplicities: Sequence[int],
    words_drawn: Mapping[int, int],
    second_words: Mapping[int, int],
    rate: Fraction,
    unit: Fraction,
    law: RacingLaw,
    words: WordSource,
) -> tuple[int, int | None]:
    """Return the position of the first block, and by how many whole units it leads; None: there is no other.

    Parameters
    ----------
    gap, multiplicities
        All blocks of one group, by position.
    words_drawn
        The first 64 bits of the uniform of each block that may arrive first or second, by position.
    second_words
        Those of what comes second within a block, as far as they are drawn: they must not be drawn afresh.
    unit
        The unit of the lead, in that of the gaps.
    """
    uniforms = {position: Uniform(word, 64, words) for position, word in words_drawn.items()}
    waits = {position: wait_of(multiplicities[position], uniform) for position, uniform in uniforms.items()}
    times = {position: _log_arrival(law, wait, rate * gap(position)) for position, wait in waits.items()}
    winner = _earliest(times)
    first = times.pop(winner)
    if multiplicities[winner] > 1:
        uniform = Uniform(second_words[winner], 64, words) if winner in second_words else Uniform(0, 0, words)
        after = _next_wait(waits[winner], multiplicities[winner] - 1, uniform)
        times[-1] = _log_arrival(law, after, rate * gap(winner))
    if not times:
        return winner, None
    second = times[_earliest(times)]
    return winner, floor_of(lambda bits: (second(bits) - first(bits)) / ball(rate * unit))


def _log_arrival(law: RacingLaw, wait: Real, exponent: Fraction) -> Real:
    """Return the logarithm of an arrival time, from the wait."""
    return lambda bits: law.exact_value(wait(bits)).log() + ball(exponent)


def _earliest(times: Mapping[int, Real]) -> int:
    """Return whose time is the first one."""
    first, *others = times
    for position in others:
        if is_less(times[position], times[first]):
            first = position
    return first


def wait_of(count: int, uniform: Uniform) -> Real:
    """Return the shortest of `count` independent waits, as a function of one uniform."""
    return lambda bits: -(-uniform(bits)).log1p() / count


def _next_wait(wait: Real, count: int, uniform: Uniform) -> Real:
    """Return the shortest of `count` independent waits that are known to be longer than `wait`."""
    more = wait_of(count, uniform)
    return lambda bits: wait(bits) + more(bits)


def is_less(a: Real, b: Real) -> bool:
    """Return whether a < b, with as many bits as that takes. They are equal with probability zero."""
    bits = 64
    while True:
        with precision(2 * bits + 64):
            x, y = a(bits), b(bits)
            if x < y:
                return True
            if x > y:
                return False
        bits *= 2


def floor_of(value: Real) -> int:
    """Return the integer part, with as many bits as that takes. The number is an integer with probability zero."""
    bits = 64
    while True:
        with precision(2 * bits + 64):
            enclosure = value(bits)
            if enclosure.is_finite():  # not so where all bits of a uniform are zero so far
                floor = math.floor(lower(enclosure))
                if floor == math.floor(upper(enclosure)):
                    return floor
        bits *= 2


def _uniform_position(weights: Mapping[int, int], words: WordSource) -> int:
    """Return a key with probability proportional to its weight, exactly."""
    index = int(uniform_below(np.array([sum(weights.values())]), words)[0])
    for position, weight in weights.items():
        if index < weight:
            return position
        index -= weight
    msg = "unreachable: an index below the sum of the weights lies in one of them"
    raise AssertionError(msg)
