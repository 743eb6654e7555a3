"""The candidates of each group from the most common one on, and k draws without replacement from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dp_polars._base.arrays import Ints, lengths_from, offsets, owners, positions, run_starts, starts
from dp_polars._base.words import uniform_below
from dp_polars._draws.histograms import Histogram
from dp_polars._mechanisms.racing import Blocks, ExactBlocks, race

if TYPE_CHECKING:
    from dp_polars._draws.drawing import Draw


@dataclass(frozen=True)
class Ranking:
    """All candidates of some groups in *levels* of one count, the highest first; equal ones in no order that matters.

    The *place* of a candidate is its position in this order, from 0. Those without rows are the last level of a group.

    Parameters
    ----------
    histogram
        The histogram that is ranked, without zeros.
    ranked
        Shape (n,): the occupied codes, by group and place.
    size
        Number of candidates.
    counts, multiplicities, above
        Shape (l,): the count of each level, how many candidates have it, and how many of the group have more.
    levels
        Shape (g,): levels of each group.
    """

    histogram: Histogram
    ranked: Ints
    size: int
    counts: Ints
    multiplicities: Ints
    above: Ints
    levels: Ints

    @classmethod
    def of(cls, histogram: Histogram, size: int) -> Ranking:
        """Return the ranking of `size` candidates by a histogram of counts, none of them negative."""
        histogram = _without_zeros(histogram)
        counts, sizes = histogram.weights, histogram.sizes
        owner = owners(sizes)
        order = stable_order(owner, counts.max(initial=0) - counts)
        counts = counts[order]
        first = run_starts(owner, counts) if len(counts) else np.empty(0, np.int64)
        levels = np.bincount(owner[first], minlength=len(sizes))
        rest, has_rest = np.cumsum(levels), sizes < size
        last, unoccupied = rest[has_rest], (size - sizes)[has_rest]
        return cls(
            histogram,
            histogram.codes[order],
            size,
            np.insert(counts[first], last, 0),
            np.insert(lengths_from(first, len(counts)), last, unoccupied),
            np.insert(first - starts(sizes)[owner[first]], last, sizes[has_rest]),
            levels + has_rest,
        )

    def part(self, first: int, last: int) -> Ranking:
        """Return the groups from `first` up to `last`."""
        ends, rows = offsets(self.levels), offsets(self.histogram.sizes)
        levels = slice(ends[first], ends[last])
        return Ranking(
            self.histogram.part(first, last),
            self.ranked[rows[first] : rows[last]],
            self.size,
            self.counts[levels],
            self.multiplicities[levels],
            self.above[levels],
            self.levels[first:last],
        )

    def codes_at(self, places: Ints) -> Ints:
        """Return the codes of the candidates at these places, shape (g, k)."""
        sizes = self.histogram.sizes[:, None]
        begins = starts(self.histogram.sizes)[:, None]
        codes = np.empty_like(places)
        occupied = places < sizes
        codes[occupied] = self.ranked[(begins + places)[occupied]]
        group, _ = at = np.nonzero(~occupied)
        # The n-th code (from 0) without rows comes after the occupied ones that have at most n such codes before them.
        nth, width = (places - sizes)[at], self.size + 1
        without_rows = self.histogram.codes - positions(0, self.histogram.sizes)
        cells = owners(self.histogram.sizes) * width + without_rows
        codes[at] = nth + np.searchsorted(cells, group * width + nth, side="right") - begins[group, 0]
        return codes


def counts_at(histogram: Histogram, codes: Ints) -> Ints:
    """Return the counts of these codes, shape (g, k)."""
    width = 1 + max(int(histogram.codes.max(initial=0)), int(codes.max(initial=0)))
    cells = owners(histogram.sizes) * width + histogram.codes
    wanted = np.arange(len(codes))[:, None] * width + codes
    at = np.minimum(np.searchsorted(cells, wanted), max(len(cells) - 1, 0))
    if not len(cells):
        return np.zeros_like(codes)
    return np.where(cells[at] == wanted, histogram.weights[at], 0)


def _without_zeros(histogram: Histogram) -> Histogram:
    occupied = histogram.weights > 0
    if occupied.all():
        return histogram
    sizes = np.bincount(owners(histogram.sizes)[occupied], minlength=len(histogram.sizes))
    return Histogram(histogram.codes[occupied], histogram.weights[occupied], sizes)


def stable_order(groups: Ints, keys: Ints) -> Ints:
    """Return the stable order by group and key; groups ascend already, and no key is negative."""
    if not len(keys):
        return np.empty(0, np.int64)
    width, bits = int(keys.max()) + 1, len(keys).bit_length()
    if (int(groups[-1]) + 1) * width >> 63 - bits:
        return np.lexsort((keys, groups))
    # One integer holds group, key and position: a sort of integers takes a fraction of the time.
    packed = (groups * width + keys) << bits | np.arange(len(keys))
    packed.sort()
    packed &= (1 << bits) - 1
    return packed


def peel(draw: Draw, histogram: Histogram, k: int) -> Ints:
    """Return k distinct codes per group, shape (g, k): each one drawn from those that are left.

    k rounds with the draw's rate. By the exponential mechanism that is the law of the first k arrivals of one race
    (one-shot Gumbel: Durfee & Rogers 2019, arXiv 1905.04273).
    """
    ranking, words = Ranking.of(histogram, draw.size), draw.words()
    begins, left = starts(ranking.levels), ranking.multiplicities.copy()
    places = np.empty((len(ranking.levels), k), np.int64)
    for turn in range(k if len(begins) else 0):
        best = np.maximum.reduceat(np.where(left > 0, ranking.counts, -1), begins)
        # The gap of a level that is used up means nothing: a block without candidates never wins.
        gaps = np.maximum(np.repeat(best, ranking.levels) - ranking.counts, 0)

        def exact(group: int, gaps: Ints = gaps) -> ExactBlocks:
            levels = slice(begins[group], begins[group] + ranking.levels[group])
            return gaps[levels].tolist().__getitem__, left[levels].tolist()

        won = race(Blocks(gaps, begins, exact, left), draw.rate, draw.law, words).blocks
        places[:, turn] = free_place(places[:, :turn], ranking.above[won], uniform_below(left[won], words))
        left[won] -= 1
    return ranking.codes_at(places)


def free_place(taken: Ints, first: Ints, n: Ints) -> Ints:
    """Return, for each group, the n-th place (from 0) from `first` on that is not taken; `taken` has shape (g, t)."""
    n = n + first - (taken < first[:, None]).sum(axis=1)
    # How many free places lie before each taken one.
    free_before = np.sort(taken, axis=1) - np.arange(taken.shape[1])
    place: Ints = n + (free_before <= n[:, None]).sum(axis=1)
    return place
