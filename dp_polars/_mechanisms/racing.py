"""The race of score blocks: its laws, its exact path, and the race by floats with proved bounds."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dp_polars._accounting.claims import Claim
from dp_polars._accounting.terms import Mechanism
from dp_polars._base.column_types import float_of
from dp_polars._base.numbers import (
    Ints,
    Rng,
    SignedInts,
    ball,
    lengths_from,
    lower,
    precision,
    run_starts,
    uniform_below,
    upper,
)

if TYPE_CHECKING:
    from flint import arb

Floats: TypeAlias = "NDArray[np.float64]"


@dataclass(frozen=True)
class RacingLaw:
    """The facts about a mechanism that a race needs.

    The log-density of −log g(W) must not fall faster than a slope of 1. So a choice at the rate ε/R is ε-DP, with its
    gap as well (`docs/proofs/gaps.md`).
    """

    # g in float64, shape (n,): ascending, from 1 − exp(−w) up to w, off by at most 8 units in the last place. g(0) is
    # 0. An infinite wait is allowed.
    values: Callable[[Floats], Floats]
    exact_value: Callable[[arb], arb]  # g in interval arithmetic
    # From the number of candidates, c: an error of t or more has a probability of at most c·exp(−rate·t).
    odds: Callable[[int], float]
    # Whether g(W) = V. That saves the logarithm of V.
    is_uniform: bool = False

    def log_odds(self, k: int, beta: float) -> float:
        """Return rate times an error that is reached with probability at most `beta`, with k candidates."""
        return 0.0 if k == 1 else max(0.0, math.log(self.odds(k) / beta))


# A mechanism without a key here does not race: it raises KeyError.
LAWS: dict[Mechanism, RacingLaw] = {
    # McKenna & Sheldon 2020: against each single candidate the chance is half its coin.
    "permute_and_flip": RacingLaw(
        lambda waits: -np.expm1(-waits), lambda wait: -(-wait).expm1(), lambda k: (k - 1) / 2, is_uniform=True
    ),
    "exponential": RacingLaw(lambda waits: waits, lambda wait: wait, float),
}


def error_bound(k: int, beta: float, claim: Claim) -> float:
    """Return an error that is reached with probability at most `beta`, in the units of the claim's range."""
    return LAWS[claim.mechanism].log_odds(k, beta) / float(claim.rate)


# A real number as a function: from the bits to use of each uniform to a ball that contains it.
Real: TypeAlias = "Callable[[int], arb]"


@dataclass
class Uniform:
    """A uniform real from 0 to 1, with its first `bits` bits drawn, as the integer `prefix`."""

    prefix: int
    bits: int
    rng: Rng

    def __call__(self, bits: int) -> arb:
        while self.bits < bits:
            self.prefix = self.prefix << 64 | int(self.rng(1)[0])
            self.bits += 64
        scale = 1 << self.bits
        return ball(Fraction(self.prefix, scale)).union(ball(Fraction(self.prefix + 1, scale)))


def first_arrival(
    gap: Callable[[int], Fraction | int],
    multiplicities: Sequence[int],
    words_drawn: Mapping[int, int],
    far: Sequence[int],
    far_word: int | None,
    rate: Fraction,
    law: RacingLaw,
    rng: Rng,
) -> int:
    """Return the position of the block that arrives first.

    `gap`, `multiplicities`: all blocks of one group, by position.
    `words_drawn`: the first 64 bits of the uniform of each block that floats could not rule out, by position.
    `far`: positions of the blocks that were not raced one by one.
    `far_word`: the first 64 bits of the uniform of all far candidates together; None if floats ruled them out.
    """

    def arrival(wait: Real, position: int) -> Real:
        return _log_arrival(law, wait, rate * gap(position))

    winner, best = -1, None
    for position, word in words_drawn.items():
        uniform = Uniform(word, 64, rng)
        time = arrival(wait_of(multiplicities[position], uniform), position)
        if best is None or is_less(time, best):
            winner, best = position, time
    if not far or far_word is None or best is None:
        return winner

    # The far candidates arrive in the order of their waits, but no earlier than a wait allows at the smallest far gap.
    # Once that is too late, all of them are.
    left = {position: multiplicities[position] for position in far}
    nearest = min(far, key=gap)
    wait = wait_of(sum(left.values()), Uniform(far_word, 64, rng))
    while is_less(arrival(wait, nearest), best):
        position = _uniform_position(left, rng)
        time = arrival(wait, position)
        if is_less(time, best):
            winner, best = position, time
        left[position] -= 1
        if not any(left.values()):
            break
        wait = _next_wait(wait, sum(left.values()), Uniform(0, 0, rng))
    return winner


def first_and_gap(
    gap: Callable[[int], Fraction | int],
    multiplicities: Sequence[int],
    words_drawn: Mapping[int, int],
    second_words: Mapping[int, int],
    rate: Fraction,
    unit: Fraction,
    law: RacingLaw,
    rng: Rng,
) -> tuple[int, int | None]:
    """Return the position of the first block, and by how many whole units it beats the second; None: there is no other.

    `gap`, `multiplicities`: all blocks of one group, by position.
    `words_drawn`: the first 64 bits of the uniform of each block that may arrive first or second, by position.
    `second_words`: the drawn words for the second arrival within a block: they must not be drawn afresh.
    `unit`: the unit of that number, in the unit of the gaps.
    """
    uniforms = {position: Uniform(word, 64, rng) for position, word in words_drawn.items()}
    waits = {position: wait_of(multiplicities[position], uniform) for position, uniform in uniforms.items()}
    times = {position: _log_arrival(law, wait, rate * gap(position)) for position, wait in waits.items()}
    winner = _earliest(times)
    first = times.pop(winner)
    if multiplicities[winner] > 1:
        uniform = Uniform(second_words[winner], 64, rng) if winner in second_words else Uniform(0, 0, rng)
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
    first, *others = times
    for position in others:
        if is_less(times[position], times[first]):
            first = position
    return first


def wait_of(count: int, uniform: Uniform) -> Real:
    """Return the shortest of `count` independent waits, as a function of one uniform."""
    return lambda bits: -(-uniform(bits)).log1p() / count


def _next_wait(wait: Real, count: int, uniform: Uniform) -> Real:
    """Return the shortest of `count` independent waits, given that all are longer than `wait`."""
    more = wait_of(count, uniform)
    return lambda bits: wait(bits) + more(bits)


def is_less(a: Real, b: Real) -> bool:
    """Return whether a < b, with as many bits as necessary. They are equal with probability zero."""
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
    """Return the integer part, with as many bits as necessary. The number is an integer with probability zero."""
    bits = 64
    while True:
        with precision(2 * bits + 64):
            enclosure = value(bits)
            if enclosure.is_finite():  # infinite while all bits of a uniform are zero
                floor = math.floor(lower(enclosure))
                if floor == math.floor(upper(enclosure)):
                    return floor
        bits *= 2


def _uniform_position(weights: Mapping[int, int], rng: Rng) -> int:
    """Return a key with probability proportional to its weight, exactly."""
    ends = [*accumulate(weights.values())]
    index = int(uniform_below(np.array(ends[-1:]), rng)[0])
    return [*weights][bisect_right(ends, index)]


# Blocks with a coin exp(−rate·gap) below exp(−FAR), less than 2**-64, are raced all together.
FAR = 45.0

# V is drawn in two halves of 32 bits. The first half, in float32, rules out most racers. The second half is drawn for
# the few others, and float64 represents the leading 53 bits.
_FIRST_UNIT = np.float32(2.0**32)
_V_BITS = 53
V_STEP = 2.0**-_V_BITS
# Relative errors of arrival times, with slack. rate·gap is off by at most 40 units of 2**-53 relative (see
# `Blocks.gaps`), in float32 by 4 of 2**-24. Below FAR that is 2**-42 or 2**-16 absolute, and so the relative error of
# exp. The few other operations of a time add under 2**-45 or 2**-20: NumPy's exp, log1p and expm1 are accurate to 4
# units in the last place.
_SLACK = 2.0**-38
_FIRST_SLACK = np.float32(2.0**-14)

# Racers per chunk, so that temporaries stay in the cache.
CHUNK = 1 << 16

GapArray: TypeAlias = "NDArray[Any]"  # of integers or float64
# All blocks of one group, exactly: position -> gap, and multiplicities.
ExactBlocks: TypeAlias = "tuple[Callable[[int], Fraction | int], Sequence[int]]"


class Gaps(Protocol):
    """Best score minus score of many blocks: an array, or an object that computes slices on request."""

    def __len__(self) -> int: ...

    def __getitem__(self, blocks: slice, /) -> GapArray: ...


@dataclass(frozen=True)
class Blocks:
    """The score blocks of many groups, flat: group i owns the blocks from `starts[i]` up to the next start."""

    # Shape (n,): integers, or floats; zero for at least one block of each group. Floats are off by at most 2**-48 of
    # themselves (2**-53 if they were rounded once) and by 2**-46/rate in addition.
    gaps: Gaps
    starts: Ints  # shape (g,), strictly ascending: no group is empty
    # Group -> its blocks in exact numbers, in their order, then the left-out ones. Called only for races that floats
    # leave undecided.
    exact: Callable[[int], ExactBlocks]
    # Shape (n,): how many candidates have this score; a block of none never wins. None: one each.
    multiplicities: SignedInts | None = None
    # Shape (g,): the candidates that have no block here because their gap is FAR/rate or more. None: none.
    left_out: Ints | None = None

    def sizes(self) -> Ints:
        return lengths_from(self.starts, len(self.gaps))


@dataclass(frozen=True)
class Winners:
    """The winner of each group: `blocks[i]` is a position in the flat blocks.

    If a candidate without a block won, it is −1, and `left_out` maps the group to the position in its exact blocks.
    """

    blocks: Ints
    left_out: dict[int, int] = field(default_factory=dict)


def race(blocks: Blocks, rate: Fraction, law: RacingLaw, rng: Rng) -> Winners:
    if not len(blocks.starts):
        return Winners(np.empty(0, np.int64))
    sizes = blocks.sizes()
    alive, first_bits, gaps, far = _rule_out(blocks, rate, law, rng)
    drawn = first_bits.astype(np.uint64) << np.uint64(32) | rng(len(alive)) >> np.uint64(32)
    owner = np.searchsorted(blocks.starts, alive, side="right") - 1
    m = None if blocks.multiplicities is None else blocks.multiplicities[alive]
    low, high = _sharp_times(drawn, exponents_of(gaps, rate), m, law)
    bound = np.minimum.reduceat(high, run_starts(owner)) * (1 + _SLACK)
    possible = np.flatnonzero(low <= bound[owner])
    alive, owner, drawn = alive[possible], owner[possible], drawn[possible]

    winners = np.empty(len(sizes), np.int64)
    winners[owner] = alive
    undecided = np.zeros(len(sizes), bool)
    if len(alive) > len(sizes):
        undecided |= np.bincount(owner, minlength=len(sizes)) > 1
    far_drawn = None
    if far.any():
        far_drawn = rng(len(sizes))
        nearest = math.exp(FAR) * (1 - _SLACK)
        with np.errstate(invalid="ignore"):  # an infinite bound times no far candidates
            undecided |= (far > 0) & (leading_bits(far_drawn) * nearest <= bound * far)

    result = Winners(winners)
    for group in np.flatnonzero(undecided).tolist():
        start, size = int(blocks.starts[group]), int(sizes[group])
        gap, multiplicities = blocks.exact(group)
        is_far = np.ones(len(multiplicities), bool)
        is_far[:size] = ~_are_near(blocks.gaps[start : start + size], rate)
        raced = {int(alive[i]) - start: int(drawn[i]) for i in np.flatnonzero(owner == group)}
        others = [i for i in np.flatnonzero(is_far).tolist() if multiplicities[i]]
        far_word = None if far_drawn is None else int(far_drawn[group])
        position = first_arrival(gap, multiplicities, raced, others, far_word, rate, law, rng)
        winners[group] = start + position if position < size else -1
        if position >= size:
            result.left_out[group] = position
    return result


def _rule_out(
    blocks: Blocks, rate: Fraction, law: RacingLaw, rng: Rng
) -> tuple[Ints, NDArray[np.uint32], GapArray, Ints]:
    """Return the few blocks that may win by crude bounds, and the number of far candidates of each group.

    The blocks are given by their positions, the first 32 bits of their V, and their gaps. Batches are small enough for
    the cache. A batch may end within a group: a block that loses within a part of a group also loses in the group. If a
    batch continues the group of the batch before, V rules out most blocks without more work: no time is less than V.
    """
    plain = law.is_uniform and blocks.multiplicities is None
    far = np.zeros(len(blocks.starts), np.int64) if blocks.left_out is None else blocks.left_out.copy()
    parts = []
    end, earliest = 0, math.inf  # end of the last group begun; an upper bound on its first arrival so far
    for raced, gaps, m in _near_batches(blocks, rate, far):
        # Bounds without a logarithm, for every law: v/m <= g(−log(1 − v)/m) <= v/(1 − v)/m, with v in units of 2**-32.
        v = rng(len(raced) // 2 + 1).view(np.uint32)[: len(raced)]
        goes_on = raced[-1] < end
        if goes_on and m is None and earliest < _FIRST_UNIT - 1:
            possible = np.flatnonzero(v <= np.uint32(math.ceil(earliest)))
            if not len(possible):
                continue
            raced, v, gaps = raced[possible], v[possible], gaps[possible]
        scale = _rough_exponents(gaps, rate)
        np.exp(scale, out=scale)
        low = v.astype(np.float32)
        low *= scale
        high = np.add(low, scale, out=scale)
        with np.errstate(divide="ignore"):  # infinite if v is all ones, or m is zero
            if not plain:
                high /= (~v).astype(np.float32)
            if m is not None:
                weights = m.astype(np.float32)
                high /= weights
        first, last = np.searchsorted(blocks.starts, raced[[0, -1]], side="right")
        starts = np.searchsorted(raced, blocks.starts[first - 1 : last])
        starts[0] = 0
        sizes = lengths_from(starts, len(raced))
        some = sizes > 0  # without groups that have no near block in this batch
        bound = np.minimum.reduceat(high, starts[some])
        with np.errstate(over="ignore", invalid="ignore"):  # no number is below infinity times zero
            bound *= (1 + _FIRST_SLACK) if plain else (1 + _FIRST_SLACK) * _FIRST_UNIT
            if goes_on:
                bound[0] = min(bound[0], earliest)
            latest = np.repeat(bound, sizes[some])
            if m is not None:
                latest *= weights
        possible = np.flatnonzero(low < latest)
        parts.append((raced[possible], v[possible], gaps[possible]))
        end, earliest = blocks.starts[last] if last < len(blocks.starts) else len(blocks.gaps), float(bound[-1])
    alive, first_bits, gaps = (np.concatenate(part) for part in zip(*parts, strict=True))
    return alive, first_bits, gaps, far


def _near_batches(blocks: Blocks, rate: Fraction, far: Ints) -> Iterator[tuple[Ints, GapArray, SignedInts | None]]:
    """Yield the positions of the blocks that are raced one by one, ascending, their gaps and multiplicities.

    Adds to `far`, group by group, the number of candidates in the other blocks.
    """
    pending: list[tuple[Ints, GapArray, SignedInts | None]] = []
    count, total = 0, len(blocks.gaps)
    step = -(-total // -(-total // CHUNK))
    for begin in range(0, total, step):
        gaps = blocks.gaps[begin : begin + step]
        m = None if blocks.multiplicities is None else blocks.multiplicities[begin : begin + step]
        is_near = _are_near(gaps, rate)
        if is_near.all():
            raced = np.arange(begin, begin + len(gaps))
        else:
            raced = np.flatnonzero(is_near)
            first, last = np.searchsorted(blocks.starts, [begin, begin + len(gaps) - 1], side="right")
            starts = np.maximum(blocks.starts[first - 1 : last] - begin, 0)
            weights = ~is_near if m is None else np.where(is_near, 0, m)
            far[first - 1 : last] += np.add.reduceat(weights, starts, dtype=np.int64)
            gaps, m = gaps[raced], None if m is None else m[raced]
            raced += begin
        pending.append((raced, gaps, m))
        count += len(raced)
        if count >= step // 2 or (count and begin + step >= total):
            yield pending[0] if len(pending) == 1 else _merge(pending)
            pending, count = [], 0


def _merge(batches: list[tuple[Ints, GapArray, SignedInts | None]]) -> tuple[Ints, GapArray, SignedInts | None]:
    raced, gaps, m = zip(*batches, strict=True)
    return np.concatenate(raced), np.concatenate(gaps), None if m[0] is None else np.concatenate(m)


def _are_near(gaps: GapArray, rate: Fraction) -> NDArray[np.bool_]:
    """Return which blocks are raced one by one: rate·gap is at most FAR, up to the rounding of a float."""
    most = Fraction(FAR) / rate
    limit = float_of(most) if gaps.dtype.kind == "f" else min(math.floor(most), np.iinfo(gaps.dtype).max)
    return gaps <= limit


def exponents_of(gaps: GapArray, rate: Fraction | float) -> Floats:
    with np.errstate(over="ignore"):  # infinite: far
        return np.multiply(gaps, float(rate), dtype=np.float64)


def _rough_exponents(gaps: GapArray, rate: Fraction) -> NDArray[np.float32]:
    """Return rate·gap of near blocks in float32."""
    if gaps.dtype.kind == "f":
        return exponents_of(gaps, rate).astype(np.float32)
    rough = gaps.astype(np.float32)
    rough *= np.float32(float(min(rate, Fraction(2**100))))  # at such a rate, the only near whole gap is zero
    return rough


def leading_bits(words: NDArray[np.uint64]) -> Floats:
    """Return the leading bits of V: V itself is less than `V_STEP` above."""
    v = (words >> np.uint64(64 - _V_BITS)).astype(np.float64)
    v *= V_STEP
    return v


def _sharp_times(
    words: NDArray[np.uint64], exponents: Floats, m: SignedInts | None, law: RacingLaw
) -> tuple[Floats, Floats]:
    """Return bounds of arrival times, as sharp as the drawn bits allow."""
    v, scale = leading_bits(words), np.exp(exponents)
    with np.errstate(divide="ignore"):  # log1p(−1) is −inf, as it should be
        low, high = -np.log1p(-v), -np.log1p(-(v + V_STEP))
    if m is not None:
        low, high = low / m, high / m
    return law.values(low) * scale, law.values(high) * scale
