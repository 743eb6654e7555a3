"""Many integer scores of one group: they race as blocks of equal score, found by counting the gaps that matter."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dp_polars._base.words import WordSource, uniform_below
from dp_polars._mechanisms.racing import FAR, Blocks, ExactBlocks, race

if TYPE_CHECKING:
    from dp_polars._mechanisms.laws import RacingLaw

# The number of scores from which blocks are faster than a racer for each, and the most different gaps that are counted.
_MANY = 1 << 12
_MOST_GAPS = 1 << 20
# Gaps up to which all are counted, and gaps that fit into 8 bits.
_SMALL, _NARROW = 1 << 12, 1 << 8
# Gaps up to which a comparison each is faster than counting, and random positions that are looked at first.
_FEW_GAPS = 16
_TRIES = 256


def best_integer(
    scores: NDArray[Any], rate: Fraction, law: RacingLaw, words: WordSource, *, lowest: bool = False
) -> int | None:
    """Return the position of the chosen score; None where scores are no integers, or a racer each is as fast.

    Only gaps of up to FAR/rate are counted. The scores beyond are left out of the race as far candidates are.
    """
    if scores.dtype.kind not in "iu" or len(scores) < _MANY:
        return None
    low, high = int(scores.min()), int(scores.max())
    top, window = low if lowest else high, math.floor(Fraction(FAR) / rate)
    if min(high - low, window) > _MOST_GAPS:
        return None
    counted, most = scores, min(high - low, window)
    if high - low < _SMALL:  # faster to count than to leave out
        most = high - low
    elif high - low > window:
        counted = scores[np.flatnonzero(scores <= top + window if lowest else scores >= top - window)]
    if counted.itemsize < 8:
        counted = counted.astype(np.int64)
    best = counted.dtype.type(top)
    counts = _counts(counted - best if lowest else best - counted, most)
    occupied = np.flatnonzero(counts[: window + 1])

    def exact(_: int) -> ExactBlocks:
        # All blocks: those of the window first, as they ascend.
        values, every = np.unique(scores, return_counts=True)
        order = slice(None) if lowest else slice(None, None, -1)
        distances = [abs(top - value) for value in values[order].tolist()]
        return distances.__getitem__, every[order].tolist()

    start = np.zeros(1, np.int64)
    blocks = Blocks(occupied, start, exact, counts[occupied], np.array([len(scores) - counts[occupied].sum()]))
    winners = race(blocks, rate, law, words)
    gap = int(exact(0)[0](winners.left_out[0]) if winners.left_out else occupied[winners.blocks[0]])
    return _place_of(scores, top + gap if lowest else top - gap, words)


def _place_of(scores: NDArray[Any], score: int, words: WordSource) -> int:
    """Return a uniform position among those of a score: the first of some random positions that has it, if one does."""
    tried = uniform_below(np.full(_TRIES, len(scores)), words)
    found = np.flatnonzero(scores[tried] == score)
    if len(found):
        return int(tried[found[0]])
    places = np.flatnonzero(scores == score)
    return int(places[uniform_below(np.array([len(places)]), words)[0]])


def _counts(gaps: NDArray[np.integer], most: int) -> NDArray[np.int64]:
    """Return how many gaps there are of each size up to `most`."""
    if most >= _NARROW:
        return np.bincount(gaps.astype(np.intp, copy=False)).astype(np.int64, copy=False)
    narrow = gaps.astype(np.uint8)
    if most < _FEW_GAPS:
        return np.array([np.count_nonzero(narrow == gap) for gap in range(most + 1)])
    # Two at a time: repeated increments of the same few counters wait for each other.
    even = len(narrow) // 2 * 2
    pairs = np.bincount(narrow[:even].view(np.uint16), minlength=_NARROW**2).reshape(_NARROW, _NARROW)
    counts: NDArray[np.int64] = pairs.sum(axis=0) + pairs.sum(axis=1)
    return counts + np.bincount(narrow[even:], minlength=_NARROW)
