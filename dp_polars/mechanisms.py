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
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from dp_polars import _exact

if TYPE_CHECKING:
    from dp_polars._random import WordSource
    from dp_polars.privacy import Mechanism

# Blocks whose coin exp(−rate·gap) is below exp(−FAR), less than 2**-64, are raced all together.
FAR = 45.0

# V is drawn in two halves of 32 bits. The first one, in float32, rules most racers out; the second is drawn for the
# few that are left, and float64 holds the leading 53 bits.
_FIRST_STEP = np.float32(2.0**-32)
_V_BITS = 53
_V_STEP = 2.0**-_V_BITS
# Relative errors of arrival times, with room to spare. rate·gap is off by at most 4 units of 2**-53 relative, and once
# rounded to float32 by 2**-24 relative; below FAR that is 2**-45 or 2**-18 absolute, which is what exp then has
# relative. The few other operations of a time add under 2**-48 or 2**-20: NumPy's exp, log1p and expm1 are accurate to 4
# units in the last place.
_SLACK = 2.0**-38
_FIRST_SLACK = np.float32(2.0**-14)

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
    alive, drawn, exponents, far = _rule_out(blocks, rate, mechanism, words)
    drawn = drawn.astype(np.uint64) << np.uint64(32) | words(len(drawn)) >> np.uint64(32)
    owner = np.searchsorted(blocks.starts, alive, side="right") - 1
    low, high = _sharp_times(
        drawn, exponents, None if blocks.multiplicities is None else blocks.multiplicities[alive], mechanism
    )
    bound, kept = _survivors(low, high, np.flatnonzero(np.diff(owner, prepend=-1)), _SLACK)
    alive, owner, drawn = alive[kept], owner[kept], drawn[kept]

    winners = np.empty(len(sizes), np.int64)
    winners[owner] = alive
    undecided = np.zeros(len(sizes), bool)
    if len(alive) > len(sizes):
        undecided |= np.bincount(owner, minlength=len(sizes)) > 1
    far_drawn = None
    if far.any():
        far_drawn = words(len(sizes))
        nearest = math.exp(FAR) * (1 - float(_FIRST_SLACK))  # near and far were told apart in float32
        with np.errstate(invalid="ignore"):  # an infinite bound times no far candidates
            undecided |= (far > 0) & (_leading(far_drawn) * nearest <= bound * far)

    result = Winners(winners)
    for group in np.flatnonzero(undecided).tolist():
        start, size = int(blocks.starts[group]), int(sizes[group])
        gap, multiplicities = blocks.exact(group)
        is_far = np.ones(len(multiplicities), bool)
        is_far[:size] = _exponents(blocks.gaps[start : start + size], rate)[1] > FAR
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
) -> tuple[Ints, NDArray[np.uint32], Floats, Ints]:
    """Return the few blocks that may win by crude bounds, and how many candidates of each group are far.

    Of the blocks: their positions, the first 32 bits of their V, and rate·gap. All in batches that stay in the cache; a
    group may be cut in two, for whoever is late in a part of it is late.
    """
    plain = mechanism == "permute_and_flip" and blocks.multiplicities is None
    far = np.zeros(len(blocks.starts), np.int64) if blocks.left_out is None else blocks.left_out.copy()
    parts = []
    for near, exponents, scale in _near_batches(blocks, rate, far):
        np.exp(scale, out=scale)
        if blocks.multiplicities is not None:
            scale /= blocks.multiplicities[near]
        drawn = words(len(near) // 2 + 1).view(np.uint32)[: len(near)]
        # v/m <= F⁻¹(v) <= v/(1 − v)/m for both mechanisms: bounds without a logarithm.
        v = drawn.astype(np.float32)
        v *= _FIRST_STEP
        low = v * scale
        high = low + _FIRST_STEP * scale
        if not plain:
            with np.errstate(divide="ignore"):
                high /= np.maximum(1 - v - np.float32(2.0**-23), 0)
        first, last = np.searchsorted(blocks.starts, near[[0, -1]], side="right")
        starts = np.searchsorted(near, blocks.starts[first - 1 : last])
        starts[0] = 0
        starts = starts[np.diff(starts, append=len(near)) > 0]  # groups without a near block in this batch
        kept = _survivors(low, high, starts, _FIRST_SLACK)[1]
        parts.append((near[kept], drawn[kept], exponents[kept]))
    alive, words_drawn, kept_exponents = (np.concatenate(part) for part in zip(*parts, strict=True))
    return alive, words_drawn, kept_exponents, far


def _near_batches(blocks: Blocks, rate: Fraction, far: Ints) -> Iterator[tuple[Ints, Floats, NDArray[np.float32]]]:
    """Yield the positions of the blocks that are raced one by one, ascending, and their rate·gap in both precisions.

    Adds to `far`, group by group, how many candidates the other blocks have.
    """
    pending: list[tuple[Ints, Floats, NDArray[np.float32]]] = []
    count = 0
    for begin in range(0, len(blocks.gaps), CHUNK):
        exponents, rough = _exponents(blocks.gaps[begin : begin + CHUNK], rate)
        near = np.arange(begin, begin + len(rough))
        if rough.max() > FAR:
            first, last = np.searchsorted(blocks.starts, near[[0, -1]], side="right")
            starts = np.maximum(blocks.starts[first - 1 : last] - begin, 0)
            kept = np.flatnonzero(rough <= FAR)
            if blocks.multiplicities is None:
                sizes = np.diff(np.searchsorted(kept, starts), append=len(kept))
                far[first - 1 : last] += np.diff(starts, append=len(rough)) - sizes
            else:
                m = blocks.multiplicities[begin : begin + CHUNK].copy()
                m[kept] = 0
                far[first - 1 : last] += np.add.reduceat(m, starts)
            near, exponents, rough = near[kept], exponents[kept], rough[kept]
        pending.append((near, exponents, rough))
        count += len(near)
        if count >= CHUNK // 2 or (count and begin + CHUNK >= len(blocks.gaps)):
            yield pending[0] if len(pending) == 1 else tuple(map(np.concatenate, zip(*pending, strict=True)))
            pending, count = [], 0


def _exponents(gaps: NDArray[np.integer] | Floats, rate: Fraction) -> tuple[Floats, NDArray[np.float32]]:
    """Return rate·gap in both precisions."""
    with np.errstate(over="ignore"):  # infinite: far
        exponents = gaps * float(rate)
        return exponents, exponents.astype(np.float32)


def _leading(words: NDArray[np.uint64]) -> Floats:
    """Return the leading bits of V: V itself lies less than `_V_STEP` above."""
    v = (words >> np.uint64(64 - _V_BITS)).astype(np.float64)
    v *= _V_STEP
    return v


def _sharp_times(
    words: NDArray[np.uint64], exponents: Floats, m: Ints | None, mechanism: Mechanism
) -> tuple[Floats, Floats]:
    """Return bounds of arrival times that are as sharp as the bits drawn."""
    v, scale = _leading(words), np.exp(exponents)
    with np.errstate(divide="ignore"):  # log1p(−1) is −inf, and rightly so
        low, high = np.log1p(-v), np.log1p(-(v + _V_STEP))
    if m is not None:
        low, high = low / m, high / m
    if mechanism == "permute_and_flip":
        low, high = np.expm1(low), np.expm1(high)
    return -low * scale, -high * scale


T = TypeVar("T", np.float32, np.float64)


def _survivors(low: NDArray[T], high: NDArray[T], starts: Ints, slack: T | float) -> tuple[NDArray[T], Ints]:
    """Return the latest time by which each group has a winner, and the racers that may arrive by then."""
    bound = (
        np.minimum.reduceat(high, starts) * (1 + slack) if len(starts) > 1 else high.min(keepdims=True) * (1 + slack)
    )
    latest = bound if len(bound) == 1 else np.repeat(bound, np.diff(starts, append=len(low)))
    return bound, np.flatnonzero(low <= latest)
