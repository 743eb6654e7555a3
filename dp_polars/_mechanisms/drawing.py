"""From codes or scores of many groups to one drawn answer per group, in slices of whole groups."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from dp_polars._base.numbers import (
    Ints,
    Rng,
    SignedInts,
    batches_of_like,
    begin_runs,
    joined,
    lengths_from,
    owners,
    positions,
    slices,
    starts,
    system_rng,
    uniform_below,
)
from dp_polars._base.silence import in_parallel
from dp_polars._bins.binning import Codes
from dp_polars._mechanisms import histograms
from dp_polars._mechanisms.histograms import Histogram, Runs, Score, SingleRows, Slots
from dp_polars._mechanisms.racing import FAR, Blocks, ExactBlocks, RacingLaw, race

T = TypeVar("T")

# Rows per slice of a thread: enough that two threads seldom wait for the interpreter, few enough to save memory.
SLICE_ROWS = 1 << 21
# Rows of a histogram, and groups with or without rows, per slice of a thread. Smaller histograms use smaller slices
# (1/8 of the rows, at least _FEWEST_ROWS), so that every thread gets work.
_GROUPS_ROWS, _FEWEST_ROWS = 1 << 19, 1 << 17
_GROUPS = 1 << 19
# A dense histogram is faster up to this number of candidates for each occupied one.
_DENSE_UP_TO = 5
# Rows or cells per chunk, so that temporaries stay in the cache.
_CHUNK = 1 << 17
# The number of rows in a group from which `_ranked_of_many` is faster, and the size of its sample.
_LONG, _SAMPLE = 1 << 15, 1 << 12


@dataclass(frozen=True)
class Draw:
    """The inputs of a draw: the number of candidates, the score and the rate."""

    size: int
    score: Score
    rate: Fraction
    law: RacingLaw
    rng: Callable[[], Rng] = system_rng


def draw_from_rows(draw: Draw, codes: Codes, lengths: Ints) -> Ints:
    """Return one code per group, from the codes of all rows, group after group; `draw.size` is ignored."""
    work = _draw_dense if histograms.is_dense(draw.size, codes, lengths) else _draw_sparse
    parts = histograms.of_row_slices(partial(work, draw), draw.size, codes, lengths, SLICE_ROWS)
    return np.concatenate([np.empty(0, np.int64), *parts])


def _draw_dense(draw: Draw, codes: Codes, lengths: Ints) -> Ints:
    """Draw with a counter for every candidate of every group."""
    return _draw_from_gaps(draw, gaps_of_rows(draw, codes, lengths))


def gaps_of_rows(draw: Draw, codes: Codes, lengths: Ints) -> SignedInts:
    """Return the gaps of all candidates of every group, shape (g, size)."""
    dtype = histograms.gap_dtype(int(lengths.max()), draw.score.unit)
    gaps = np.empty((len(lengths), draw.size), dtype)
    done = 0
    for a, b in slices(lengths, _CHUNK, max(1, _CHUNK // draw.size)):
        rows = lengths[a:b].sum()
        counts = histograms.counts_of(codes[done : done + rows], lengths[a:b], draw.size)
        gaps[a:b] = draw.score.dense_gaps(counts.astype(dtype))
        done += rows
    return gaps


def _draw_from_gaps(draw: Draw, gaps: SignedInts) -> Ints:
    """Draw from the gaps of all candidates of every group, shape (g, size)."""
    blocks = blocks_of_gaps(gaps)
    return race(blocks, draw.rate, draw.law, draw.rng()).blocks - blocks.starts


def blocks_of_gaps(gaps: SignedInts) -> Blocks:
    """Return a block for every candidate of every group, from their gaps, shape (g, size)."""

    def exact(group: int) -> ExactBlocks:
        return gaps[group].tolist().__getitem__, [1] * gaps.shape[1]

    return Blocks(gaps.ravel(), np.arange(len(gaps)) * gaps.shape[1], exact)


def _draw_sparse(draw: Draw, codes: Codes, lengths: Ints) -> Ints:
    """Draw with counters for the occupied candidates only; sorting finds them."""
    begins = starts(lengths)
    missing = int(begins.max() + lengths.max()) + 1 - len(codes)
    dtype: type[np.signedinteger] = np.int32 if draw.size < 2**31 - 1 else np.int64
    padded = np.concatenate([codes, np.full(missing, draw.size, codes.dtype)], dtype=dtype, casting="unsafe")

    def rows_of(groups: Ints) -> SignedInts:
        return _rectangle(padded, begins[groups], lengths[groups], draw.size)

    if draw.score.ranks is not None:  # faster: sorts only the rows near the quantile
        return _draw_by_ranks(draw, draw.score.ranks, lengths, rows_of)
    drawn = np.empty(len(lengths), np.int64)
    for groups in _of_like_length(lengths):
        drawn[groups] = _draw_from_blocks(draw, _runs(np.sort(rows_of(groups), axis=1), draw.size))
    return drawn


def _draw_by_ranks(draw: Draw, alpha: Fraction, lengths: Ints, rows_of: Callable[[Ints], SignedInts]) -> Ints:
    """Draw quantiles from the rows of the ranks near enough to matter."""
    drawn = np.empty(len(lengths), np.int64)
    waiting: list[tuple[Ints, Slots, Ints]] = []

    def draw_waiting() -> None:
        groups, slots, left_out = zip(*waiting, strict=True)
        order = np.concatenate(groups)

        def complete(position: int) -> Slots:
            rows = np.sort(rows_of(order[[position]]), axis=1)
            return histograms.slots_of_ranks(rows, 0, _totals(rows, draw.size), draw.size, alpha)

        first, offset = draw_from_slots(draw, joined(slots), np.concatenate(left_out), complete)
        drawn[order] = first + offset
        waiting.clear()

    far = far_gap(draw, alpha)
    for groups in _of_like_length(lengths, 2 * far // alpha.denominator + 4):
        waiting.append((groups, *_near_slots(rows_of(groups), draw.size, alpha, far)))
        if sum(len(slots.gaps) for _, slots, _ in waiting) >= _CHUNK:
            draw_waiting()
    if waiting:
        draw_waiting()
    return drawn


def _of_like_length(lengths: Ints, ranks: int | None = None) -> Iterator[Ints]:
    """Return all groups in batches of about the same length, which make rectangles without many gaps.

    A batch may be larger if only a few ranks of each group matter.
    """
    if len(lengths) * (int(lengths.max()) + 1) <= _CHUNK:
        return iter([np.arange(len(lengths))])

    def most(length: int) -> int:
        width = length + 1
        return _CHUNK // width if ranks is None else min(_CHUNK // min(ranks, width), 4 * _CHUNK // width)

    return batches_of_like(lengths, most)


def _rectangle(codes: SignedInts, begins: Ints, lengths: Ints, fill: int) -> SignedInts:
    """Return the rows of some groups as a matrix, filled up to one more than the longest has.

    Each group's start must be followed by at least that number of codes.
    """
    width = int(lengths.max()) + 1
    rows = sliding_window_view(codes, width)[begins]
    rows.ravel()[positions(np.arange(0, rows.size, width) + lengths, width - lengths)] = fill
    return rows


def _totals(rows: SignedInts, size: int) -> Ints:
    """Return the number of counted rows in each group."""
    totals: Ints = np.add.reduce((rows < size).view(np.uint8), axis=1, dtype=np.int64)
    return totals


def _near_slots(rows: SignedInts, size: int, alpha: Fraction, far: int) -> tuple[Slots, Ints]:
    """Return slots of the quantiles, and the number of codes they leave out, all with a gap of at least `far`."""
    totals = _totals(rows, size)
    first, last = near_ranks(totals, alpha, far)
    low, high = int(first.min()), min(int(last.max()) + 1, rows.shape[1])
    if rows.shape[1] < _LONG:
        rows = _ranked(rows, low, high)
    else:
        rows = np.stack([_ranked_of_many(row, low, high) for row in rows])
    left_out = np.maximum(size - 1 - rows[:, -1], 0).astype(np.int64)
    if low:
        left_out += rows[:, 0]
    return histograms.slots_of_ranks(rows, low, totals, size, alpha), left_out


def _ranked(rows: SignedInts, low: int, high: int) -> SignedInts:
    """Return each group's rows of the ranks from `low` up to, but not including, `high`, ascending; reorder `rows`."""
    if low:
        rows.partition(low, axis=1)
        rows = rows[:, low:]
    if high - low < rows.shape[1]:
        rows.partition(high - low - 1, axis=1)
        rows = rows[:, : high - low]
    rows.sort(axis=1)
    return rows


def _ranked_of_many(rows: SignedInts, low: int, high: int) -> SignedInts:
    """Return the result of `_ranked` for one long group, in a time that hardly depends on equal rows.

    NumPy's partition takes 50 times as long if most rows are equal. Two rows around these ranks are estimated from a
    sample, and only the rows between the two are sorted.
    """
    sample = np.sort(rows[:: len(rows) // _SAMPLE])
    # A rank estimated from the sample is off by about the root of its size, so it rarely fails; then we sort.
    stride, margin = len(rows) / len(sample), math.isqrt(len(sample)) * 2
    places = (int(low / stride) - margin, int(high / stride) + margin)
    a, b = (sample[min(max(place, 0), len(sample) - 1)] for place in places)
    below = int(np.count_nonzero(rows < a))
    if below > low or int(np.count_nonzero(rows <= b)) < high:
        return np.sort(rows)[low:high]
    lowest = min(int(np.count_nonzero(rows == a)), high - below)
    between = np.sort(rows[np.flatnonzero((rows > a) & (rows < b))])[: max(high - below - lowest, 0)]
    highest = max(high - below - lowest - len(between), 0)
    return np.concatenate([np.full(lowest, a), between, np.full(highest, b)])[low - below :]


def far_gap(draw: Draw, alpha: Fraction) -> int:
    """Return the gap from which candidates are far. It is at most 2**62/den: no group has a larger gap."""
    return min(math.ceil(Fraction(FAR) / draw.rate), 2**62 // alpha.denominator)


def near_ranks(totals: Ints, alpha: Fraction, far: int) -> tuple[Ints, Ints]:
    """Return, for each group, ranks outside which every candidate's gap is at least `far`."""
    num, den = alpha.numerator, alpha.denominator
    low = np.maximum((num * totals - far) // den - 1, 0)
    high = np.minimum((num * totals + far) // den + 2, totals)
    return low, high


def _runs(rows: SignedInts, size: int) -> Runs:
    """Return the histogram of sorted rows, shape (g, n)."""
    new = begin_runs(rows)
    at = np.flatnonzero(new)
    codes, counts = rows.ravel()[at], lengths_from(at, rows.size)
    occupied = codes < size
    new &= rows < size
    sizes = new.sum(axis=1)
    return Runs.of_counts(codes[occupied].astype(np.int64), counts[occupied], sizes)


def draw_groups(draw: Draw, histogram: Histogram) -> Ints:
    """Return one code per group, shape (g,); a uniform one for a group without rows."""
    if isinstance(histogram, SingleRows) and draw.score.ranks is not None:
        drawn = _draw_selected(draw, draw.score.ranks, histogram) if histogram.may_select else None
        return draw_from_rows(draw, *histogram.by_group()) if drawn is None else drawn
    parts = of_group_slices(partial(draw_from_runs, draw), histogram)
    return np.concatenate([np.empty(0, np.int64), *parts])


def of_group_slices(work: Callable[[Runs], T], histogram: Histogram) -> list[T]:
    """Return the results of `work` on whole groups of a histogram, slice by slice, in their order."""
    return of_parts(lambda part: work(Runs.of_counts(part.codes, part.weights, part.sizes)), histogram)


def of_parts(work: Callable[[Histogram], T], histogram: Histogram, draws: int = 1) -> list[T]:
    """Return the results of `work`, which makes `draws` draws per group, on slices of whole groups, in their order."""
    rows = min(_GROUPS_ROWS, max(_FEWEST_ROWS, len(histogram.codes) // 8))
    parts = slices(histogram.sizes, max(1, rows // draws), max(1, _GROUPS // draws))
    return in_parallel(lambda first, last: work(histogram.part(first, last)), list(parts))


def draw_from_runs(draw: Draw, runs: Runs) -> Ints:
    if draw.score.ranks is not None:
        drawn = _draw_near_runs(draw, draw.score.ranks, runs)
        if drawn is not None:
            return drawn
    groups = len(runs.sizes)
    if 0 < groups * draw.size <= _DENSE_UP_TO * len(runs.codes):
        weights = runs.upto - runs.below
        # Differences of counts are no larger than the counts. A sum of weights may not fit into 64 bits.
        most = weights if draw.score.ranks is None else runs.totals
        counts = np.zeros((groups, draw.size), histograms.gap_dtype(int(most.max()), draw.score.unit))
        counts[owners(runs.sizes), runs.codes] = weights
        return _draw_from_gaps(draw, draw.score.dense_gaps(counts))
    return _draw_from_blocks(draw, runs)


def _draw_selected(draw: Draw, alpha: Fraction, rows: SingleRows) -> Ints | None:
    """Draw quantiles from rows in any order; None if too many are near enough to matter."""
    far = far_gap(draw, alpha)
    runs = rows.near(lambda totals: near_ranks(totals, alpha, far))
    if runs is None:
        return None
    drawn = _draw_near_runs(draw, alpha, runs, rows.of_group)
    return _draw_from_blocks(draw, runs) if drawn is None else drawn


def _draw_near_runs(
    draw: Draw, alpha: Fraction, runs: Runs, all_of: Callable[[int], Runs] | None = None
) -> Ints | None:
    """Draw quantiles from the runs near enough to matter; None if these are all, or not far fewer.

    A run is near if it has a row of a rank in `near_ranks`.

    `all_of`: group -> all of its runs, if `runs` may lack some that are not near. Then None means that it lacks none.
    """
    ends, before = np.cumsum(runs.sizes), starts(runs.totals)
    first, last = near_ranks(runs.totals, alpha, far_gap(draw, alpha))
    if not (first.any() or (last < runs.totals).any()):
        return None
    running = runs.upto if len(ends) == 1 else runs.upto + np.repeat(before, runs.sizes)
    start = np.searchsorted(running, before + first, side="right")
    stop = np.minimum(np.searchsorted(running, before + last, side="right") + 1, ends)
    sizes = stop - start
    if all_of is None and 2 * sizes.sum() >= len(runs.codes):
        return None
    at = positions(start, sizes)
    near_runs = Runs(runs.codes[at], runs.below[at], runs.upto[at], sizes, runs.totals)
    # If nothing is left out, any valid index is right.
    low = np.where(first > 0, runs.codes[np.minimum(start, len(runs.codes) - 1)], 0)
    high = np.where(last < runs.totals, runs.codes[stop - 1] + 1, draw.size)

    def own(group: int) -> Runs:
        part = slice(ends[group] - runs.sizes[group], ends[group])
        return Runs(runs.codes[part], runs.below[part], runs.upto[part], runs.sizes[[group]], runs.totals[[group]])

    def complete(group: int) -> Slots:
        return draw.score.slots((all_of or own)(group), draw.size)

    slots = histograms.quantile_slots(near_runs, draw.size, alpha, low, high)
    code, offset = draw_from_slots(draw, slots, low + (draw.size - high), complete)
    return code + offset


def _draw_from_blocks(draw: Draw, runs: Runs) -> Ints:
    """Draw from the score blocks of a histogram; few occupied candidates are enough."""
    first, offset = draw_from_slots(draw, draw.score.slots(runs, draw.size))
    chosen, rest = first + offset, first < 0
    if rest.any():
        chosen[rest] = runs.nth_unoccupied(offset)[rest]
    return chosen


def draw_from_slots(
    draw: Draw, slots: Slots, left_out: Ints | None = None, complete: Callable[[int], Slots] | None = None
) -> tuple[Ints, Ints]:
    """Return, for each group, the first code of the drawn slot, and the drawn code's distance from it.

    `left_out`: shape (g,): the number of codes without a slot, all with a gap of at least FAR/rate. None: none.
    `complete`: group -> all of its slots. Needed if codes are left out.
    """

    def all_slots(group: int) -> Slots:
        """Return all slots of a group: those of `slots` first, then the ones left out."""
        raced = slots.of_group(group)
        if complete is None:
            return raced
        whole = complete(group)
        is_left_out = (whole.multiplicities > 0) & ~np.isin(whole.first, raced.first[raced.multiplicities > 0])
        return joined([raced, whole.part(is_left_out)])

    rng = draw.rng()
    m = slots.multiplicities
    blocks = Blocks(slots.gaps, slots.begins, lambda group: all_slots(group).exact(), m, left_out)
    winners = race(blocks, draw.rate, draw.law, rng)
    first, count = (column[winners.blocks].astype(np.int64) for column in (slots.first, slots.multiplicities))
    for group, position in winners.left_out.items():
        whole = all_slots(group)
        first[group], count[group] = whole.first[position], whole.multiplicities[position]
    return first, uniform_below(count, rng)
