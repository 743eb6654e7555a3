"""The race: score blocks and a rate in, one winner per group out.

Every candidate gets an independent V uniform on (0, 1) and the arrival time F⁻¹(V)·exp(rate·gap); the first to
arrive wins. F⁻¹(V) = V makes it permute-and-flip (McKenna & Sheldon 2020; −log V is the exponential noise of Ding et
al. 2021), F⁻¹(V) = −log(1 − V) the exponential mechanism (McSherry & Talwar 2007, as a Gumbel race). A block of m
candidates that share one score is one racer: the smallest of its m values.

Floats bound the arrival times from both sides and rule out who provably comes later. What they can't decide goes to
`_exact`. So every choice has exactly the probability that the formulas give.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dp_polars import _exact

if TYPE_CHECKING:
    from dp_polars._random import WordSource
    from dp_polars.privacy import Mechanism

# Blocks whose coin exp(−rate·gap) is below exp(−FAR), less than 2**-64, are raced all together.
FAR = 45.0

# The floats of V: its leading 53 bits, from below.
_V_BITS = 53
_V_STEP = 2.0**-_V_BITS
# Relative error of any arrival time below, with room to spare. The product rate·gap of a near block is off by at most 4
# units of 2**-53 relative, so by 2**-45 absolute, which is what exp then has relative; log1p, expm1, exp and the few
# other operations of a time add under 2**-48 (NumPy's are accurate to 4 units in the last place).
_SLACK = 2.0**-38

# Racers whose temporaries stay in the cache.
CHUNK = 1 << 15

Ints: TypeAlias = "NDArray[np.int64]"
Floats: TypeAlias = "NDArray[np.float64]"
# All blocks of one group, exactly: position -> gap, and multiplicities.
ExactBlocks: TypeAlias = "tuple[Callable[[int], Fraction | int], Sequence[int]]"


class Gaps(Protocol):
    """Best score minus score of many blocks: an array, or what computes its slices when they are asked for."""

    def __len__(self) -> int: ...

    def __getitem__(self, blocks: slice, /) -> NDArray[np.integer] | Floats: ...


@dataclass(frozen=True)
class Blocks:
    """The score blocks of many groups, flat: group i owns the blocks from `starts[i]` up to the next start.

    Parameters
    ----------
    gaps
        Shape (n,): integers, or floats that were rounded once; zero for at least one block of each group.
    starts
        Shape (g,), strictly ascending: no group is empty.
    exact
        Group -> its blocks in exact numbers, in their order, and after them those left out. Called only for races that
        floats can't decide.
    multiplicities
        Shape (n,): how many candidates share the score. None: one each.
    left_out
        Shape (g,): how many candidates have no block here because their gap is FAR/rate or more. None: none.
    """

    gaps: Gaps
    starts: Ints
    exact: Callable[[int], ExactBlocks]
    multiplicities: Ints | None = None
    left_out: Ints | None = None

    def sizes(self) -> Ints:
        """Return the number of blocks of each group."""
        return np.diff(self.starts, append=len(self.gaps))


@dataclass(frozen=True)
class Winners:
    """Who won each group: `blocks[i]` is a position in the flat blocks.

    Where a candidate without a block won, it is −1, and `left_out` maps the group to the position in its exact blocks.
    """

    blocks: Ints
    left_out: dict[int, int] = field(default_factory=dict)


def race(blocks: Blocks, rate: Fraction, mechanism: Mechanism, words: WordSource) -> Winners:
    """Return the block that arrives first, for each group."""
    sizes = blocks.sizes()
    alive, drawn, scale, far = _rule_out(blocks, rate, mechanism, words)
    m = np.ones(1) if blocks.multiplicities is None else blocks.multiplicities[alive]
    low, high = _sharp_times(_leading(drawn), scale * m, m, mechanism)
    owner = np.searchsorted(blocks.starts, alive, side="right") - 1
    first = np.flatnonzero(np.diff(owner, prepend=-1))
    bound, kept = _survivors(low, high, first, len(alive))
    alive, owner, drawn = alive[kept], owner[kept], drawn[kept]

    winners = np.empty(len(sizes), np.int64)
    winners[owner] = alive
    undecided = np.zeros(len(sizes), bool)
    if len(alive) > len(sizes):
        undecided |= np.bincount(owner, minlength=len(sizes)) > 1
    far_drawn = None
    if far.any():
        far_drawn = words(len(sizes))
        with np.errstate(invalid="ignore"):  # an infinite bound times no far candidates
            undecided |= (far > 0) & (_leading(far_drawn) * math.exp(FAR) <= bound * far)

    result = Winners(winners)
    for group in np.flatnonzero(undecided).tolist():
        start, size = int(blocks.starts[group]), int(sizes[group])
        gap, multiplicities = blocks.exact(group)
        is_far = np.ones(len(multiplicities), bool)
        is_far[:size] = _exponents(blocks.gaps[start : start + size], rate) > FAR
        position = _exact.first_arrival(
            gap,
            multiplicities,
            {int(alive[i]) - start: int(drawn[i]) for i in np.flatnonzero(owner == group)},
            np.flatnonzero(is_far).tolist(),
            None if far_drawn is None else int(far_drawn[group]),
            rate,
            mechanism,
            words,
        )
        winners[group] = start + position if position < size else -1
        if position >= size:
            result.left_out[group] = position
    return result


def _rule_out(
    blocks: Blocks, rate: Fraction, mechanism: Mechanism, words: WordSource
) -> tuple[Ints, NDArray[np.uint64], Floats, Ints]:
    """Return the few blocks that may win by crude bounds, and how many candidates of each group are far.

    Of the blocks: their positions, their words, and exp(rate·gap)/m. All in batches that stay in the cache; a group may
    be cut in two, for whoever is late in a part of it is late.
    """
    m, far = blocks.multiplicities, np.zeros(len(blocks.starts), np.int64)
    parts = []
    for near, scale in _near_batches(blocks, rate):
        first, last = np.searchsorted(blocks.starts, near[[0, -1]], side="right")
        starts = np.searchsorted(near, blocks.starts[first - 1 : last])
        starts[0] = 0
        far[first - 1 : last] -= (
            np.diff(starts, append=len(near)) if m is None else np.add.reduceat(np.append(m[near], 0), starts)
        )
        np.exp(scale, out=scale)
        if m is not None:
            scale /= m[near]
        drawn = words(len(near))
        v = _leading(drawn)
        low = v * scale
        plain = mechanism == "permute_and_flip" and m is None
        high = low + _V_STEP * scale if plain else _crude_high(v, scale)
        kept = _survivors(low, high, starts[np.diff(starts, append=len(near)) > 0], len(near))[1]
        parts.append((near[kept], drawn[kept], scale[kept]))
    far += blocks.sizes() if m is None else np.add.reduceat(m, blocks.starts)
    if blocks.left_out is not None:
        far += blocks.left_out
    alive, words_drawn, scales = (np.concatenate(part) for part in zip(*parts, strict=True))
    return alive, words_drawn, scales, far


def _near_batches(blocks: Blocks, rate: Fraction) -> Iterator[tuple[Ints, Floats]]:
    """Yield the positions of the blocks that are raced one by one, ascending, and their rate·gap."""
    pending: list[tuple[Ints, Floats]] = []
    count = 0
    for begin in range(0, len(blocks.gaps), CHUNK):
        exponents = _exponents(blocks.gaps[begin : begin + CHUNK], rate)
        if exponents.max() <= FAR:
            near = np.arange(begin, begin + len(exponents))
        else:
            near = np.flatnonzero(exponents <= FAR)
            exponents = exponents[near]
            near += begin
        pending.append((near, exponents))
        count += len(near)
        if count >= CHUNK // 2 or (count and begin + CHUNK >= len(blocks.gaps)):
            positions, scales = zip(*pending, strict=True)
            yield (np.concatenate(positions), np.concatenate(scales)) if len(pending) > 1 else pending[0]
            pending, count = [], 0


def _exponents(gaps: NDArray[np.integer] | Floats, rate: Fraction) -> Floats:
    """Return rate·gap."""
    with np.errstate(over="ignore"):  # infinite: far
        return gaps * float(rate)


def _leading(words: NDArray[np.uint64]) -> Floats:
    """Return the leading bits of V: V itself lies less than `_V_STEP` above."""
    v = (words >> np.uint64(64 - _V_BITS)).astype(np.float64)
    v *= _V_STEP
    return v


def _crude_high(v: Floats, scale: Floats) -> Floats:
    """Return upper bounds of arrival times, without a logarithm: v/m <= F⁻¹(v) <= v/(1 − v)/m, for both."""
    v = v + _V_STEP
    with np.errstate(divide="ignore"):
        return v / (1 - v) * scale


def _sharp_times(
    v: Floats, scale: Floats, m: NDArray[np.generic], mechanism: Mechanism
) -> tuple[Floats, Floats]:
    """Return bounds of arrival times that are as sharp as the bits drawn."""
    with np.errstate(divide="ignore"):  # log1p(−1) is −inf, and rightly so
        smallest = [np.log1p(-v) / m, np.log1p(-(v + _V_STEP)) / m]
    if mechanism == "permute_and_flip":
        smallest = [np.expm1(x) for x in smallest]
    return -smallest[0] * scale, -smallest[1] * scale


def _survivors(
    low: Floats, high: Floats, starts: Ints, count: int
) -> tuple[Floats, Ints]:
    """Return the latest time by which each group has a winner, and the racers that may arrive by then."""
    if len(starts) == 1:
        bound = high.min(keepdims=True) * (1 + _SLACK)
        return bound, np.flatnonzero(low <= bound)
    bound = np.minimum.reduceat(high, starts) * (1 + _SLACK)
    return bound, np.flatnonzero(low <= np.repeat(bound, np.diff(starts, append=count)))
