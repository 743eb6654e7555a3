"""From codes or scores of many groups to one drawn answer per group, in slices of whole groups."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars import scores
from dp_polars._random import WordSource, system_words, uniform_below
from dp_polars.mechanisms import FAR, Blocks, ExactBlocks, race
from dp_polars.scores import Ints, Runs, Slots

if TYPE_CHECKING:
    from dp_polars._encoding import Codes
    from dp_polars.privacy import Mechanism

T = TypeVar("T")

# Rows, and cells of a dense histogram, that one slice works on: enough that two threads seldom wait for the interpreter,
# few enough that memory stays small.
_SLICE_ROWS = 1 << 19
_SLICE_CELLS = 1 << 19


@dataclass(frozen=True)
class Draw:
    """How to draw: of how many candidates, by which score, at which rate.

    `alpha` None: the mode (the count of a candidate); otherwise the α-quantile.
    """

    size: int
    alpha: Fraction | None
    rate: Fraction
    mechanism: Mechanism
    words: Callable[[], WordSource] = system_words


def draw_from_rows(draw: Draw, codes: Codes, lengths: Ints) -> Ints:
    """Return one code per group.

    Parameters
    ----------
    codes
        Shape (n,): the codes of all rows, group after group; `draw.size` is no evidence.
    lengths
        Shape (g,): rows of each group; they add up to n.
    """
    # A dense histogram costs its cells, a sparse one a sort of the rows.
    dense = len(lengths) * (draw.size + 1) <= 2 * len(codes) + _SLICE_CELLS
    bits = draw.size.bit_length()
    most = max(1, _SLICE_CELLS // (draw.size + 1)) if dense else 1 << min(40, 64 - bits)
    work = partial(_draw_dense if dense else _draw_sparse, draw)
    bounds = list(_slices(lengths, most))
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    parts = _in_parallel(lambda a, b: work(codes[offsets[a] : offsets[b]], lengths[a:b]), bounds)
    return np.concatenate([np.empty(0, np.int64), *parts])


def _slices(lengths: Ints, most_groups: int) -> Iterator[tuple[int, int]]:
    """Yield runs of whole groups of about `_SLICE_ROWS` rows and at most `most_groups` groups."""
    ends, start = np.cumsum(lengths), 0
    while start < len(lengths):
        before = ends[start] - lengths[start]
        stop = max(int(np.searchsorted(ends, before + _SLICE_ROWS, side="right")), start + 1)
        stop = min(stop, start + most_groups)
        yield start, stop
        start = stop


def _in_parallel(work: Callable[[int, int], T], bounds: Sequence[tuple[int, int]]) -> list[T]:
    """Run the slices on as many threads as Polars has: NumPy lets go of the interpreter while it computes."""
    if len(bounds) == 1:
        return [work(*bounds[0])]
    with ThreadPoolExecutor(pl.thread_pool_size()) as pool:
        return list(pool.map(lambda bound: work(*bound), bounds))


def _draw_dense(draw: Draw, codes: Codes, lengths: Ints) -> Ints:
    """Draw with a counter for every candidate of every group."""
    counts = _count(codes, lengths, draw.size)
    if draw.alpha is None:
        gaps = counts.max(axis=1, keepdims=True) - counts
    else:
        upto = np.cumsum(counts, axis=1)
        total = upto[:, -1:]
        gaps = scores.quantile_gap(upto - counts, upto, total, draw.alpha)
        gaps -= total == 0  # where nobody is, all candidates are as good
    starts = np.arange(len(lengths)) * draw.size

    def exact(group: int) -> ExactBlocks:
        return gaps[group].tolist().__getitem__, [1] * draw.size

    blocks = Blocks(gaps.ravel(), starts, exact)
    return race(blocks, draw.rate, draw.mechanism, draw.words()).blocks - starts


def _count(codes: Codes, lengths: Ints, size: int) -> Ints:
    """Return the counts of the codes below `size`, shape (g, size)."""
    groups, width = len(lengths), size + 1
    if groups == 1:
        total = np.zeros(width, np.int64)
        for start in range(0, len(codes), _SLICE_ROWS):
            total += np.bincount(codes[start : start + _SLICE_ROWS], minlength=width)
        return total[None, :size]
    cells = codes.astype(np.int64)
    cells += np.repeat(np.arange(groups) * width, lengths)
    return np.bincount(cells, minlength=groups * width).reshape(groups, width)[:, :size]


def _draw_sparse(draw: Draw, codes: Codes, lengths: Ints) -> Ints:
    """Draw with counters for the occupied candidates only, found by sorting."""
    bits = np.uint64(draw.size.bit_length())
    keys = codes.astype(np.uint64)
    keys |= np.repeat(np.arange(len(lengths), dtype=np.uint64) << bits, lengths)
    keys.sort()
    starts = np.cumsum(lengths) - lengths
    # Rows that are no evidence come last in their group.
    nothing = (np.arange(len(lengths), dtype=np.uint64) << bits) | np.uint64(draw.size)
    totals = np.searchsorted(keys, nothing) - starts
    if draw.alpha is None:
        return draw_from_runs(draw, _runs(keys, bits, starts, totals))
    far = math.ceil(Fraction(FAR) / draw.rate)
    runs = _runs(keys, bits, starts, totals, window=_near_ranks(totals, draw.alpha, far))

    def complete(group: int) -> Runs:
        return _runs(keys, bits, starts[group : group + 1], totals[group : group + 1])

    return draw_from_runs(draw, runs, complete)


def _near_ranks(totals: Ints, alpha: Fraction, far: int) -> tuple[Ints, Ints]:
    """Return, for each group, ranks outside which every candidate's gap is at least `far`."""
    num, den = alpha.numerator, alpha.denominator
    far = min(far, 2**62 // den)  # no group has as many rows
    low = np.maximum((num * totals - far) // den - 1, 0)
    high = np.minimum((num * totals + far) // den + 2, totals)
    return low, high


def _runs(
    keys: NDArray[np.uint64],
    bits: np.uint64,
    starts: Ints,
    totals: Ints,
    window: tuple[Ints, Ints] | None = None,
) -> Runs:
    """Return the occupied codes of the sorted rows, or of those whose ranks lie in the window."""
    groups = len(starts)
    low, high = (np.zeros(groups, np.int64), totals) if window is None else window
    lengths = high - low
    ends = np.cumsum(lengths)
    rows = np.repeat(starts + low - ends + lengths, lengths)
    rows += np.arange(len(rows))
    keys = keys[rows]
    new = np.ones(len(keys), bool)
    np.not_equal(keys[1:], keys[:-1], out=new[1:])
    at = np.flatnonzero(new)
    sizes = np.diff(np.searchsorted(at, ends), prepend=0)
    below = rows[at] - np.repeat(starts, sizes)
    # A run ends where the next one begins, the last of a group where its window does.
    upto = np.append(below[1:], 0)
    upto[np.cumsum(sizes)[sizes > 0] - 1] = high[sizes > 0]
    codes = (keys[at] & ((np.uint64(1) << bits) - np.uint64(1))).astype(np.int64)
    return Runs(codes, below, upto, sizes, totals, low > 0, high < totals)


def draw_from_runs(draw: Draw, runs: Runs, complete: Callable[[int], Runs] | None = None) -> Ints:
    """Return one code per group.

    Parameters
    ----------
    runs
        The histogram; where it is open at an end, all that it leaves out has a gap of at least FAR/rate.
    complete
        Group -> its complete histogram. Needed where one is open.
    """
    slots = _slots(draw, runs)
    starts = np.cumsum(slots.sizes) - slots.sizes

    def all_slots(group: int) -> Slots:
        """Return all slots of a group: those of `slots` first, then the ones left out."""
        start, size = int(starts[group]), int(slots.sizes[group])
        near = slice(start, start + size)
        if complete is None:
            return Slots(slots.gaps[near], slots.first[near], slots.multiplicities[near], slots.sizes[[group]])
        whole = _slots(draw, complete(group))
        is_left_out = ~np.isin(whole.first, slots.first[near])
        order = np.argsort(is_left_out, kind="stable")
        return Slots(whole.gaps[order], whole.first[order], whole.multiplicities[order], whole.sizes)

    def exact(group: int) -> ExactBlocks:
        whole = all_slots(group)
        return whole.gaps.tolist().__getitem__, whole.multiplicities.tolist()

    words = draw.words()
    left_out = None
    if complete is not None and (runs.open_left | runs.open_right).any():
        left_out = draw.size - np.add.reduceat(slots.multiplicities, starts)
    blocks = Blocks(slots.gaps, starts, exact, slots.multiplicities, left_out)
    winners = race(blocks, draw.rate, draw.mechanism, words)
    first, count = slots.first[winners.blocks], slots.multiplicities[winners.blocks]
    for group, position in winners.left_out.items():
        whole = all_slots(group)
        first[group], count[group] = whole.first[position], whole.multiplicities[position]
    offset = uniform_below(count, words)
    return np.where(first >= 0, first + offset, _nth_unoccupied(runs, offset))


def _slots(draw: Draw, runs: Runs) -> Slots:
    if draw.alpha is None:
        return scores.mode_slots(runs, draw.size)
    return scores.quantile_slots(runs, draw.size, draw.alpha)


def _nth_unoccupied(runs: Runs, n: Ints) -> Ints:
    """Return, for each group, the n-th code (from 0) that has no run."""
    within = np.arange(len(runs.codes)) - np.repeat(np.cumsum(runs.sizes) - runs.sizes, runs.sizes)
    owner = np.repeat(np.arange(len(runs.sizes)), runs.sizes)
    passed = owner[runs.codes - within <= n[owner]]
    return n + np.bincount(passed, minlength=len(runs.sizes))
