"""What every answer is drawn from: the sum of weights of each code of each group."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dp_polars._numeric.arrays import Ints, lengths_from, offsets, owners, run_starts


@dataclass(frozen=True)
class Histogram:
    """Σ weight by group and code, of the pairs that have rows: by group, and by ascending code within it.

    Parameters
    ----------
    codes, weights
        Shape (n,): the code, and its weight (rows, people, or units of a public step).
    sizes
        Shape (g,): how many codes of each public group are here (may be 0).
    """

    codes: Ints
    weights: Ints
    sizes: Ints

    @classmethod
    def of_cells(
        cls, groups: NDArray[np.integer], codes: NDArray[np.integer], weights: NDArray[np.integer], number: int
    ) -> Histogram:
        """Return the histogram of pairs that are sorted by group and code, for so many groups."""
        sizes = np.bincount(groups, minlength=number)
        return cls(codes.astype(np.int64), weights.astype(np.int64), sizes)

    @classmethod
    def of_pairs(cls, groups: Ints, codes: Ints, weights: Ints | None, number: int) -> Histogram:
        """Return the histogram of pairs in any order, for so many groups; weights (None: ones) of a pair add up."""
        order = np.lexsort((codes, groups))
        groups, codes = groups[order], codes[order]
        first = run_starts(groups, codes)
        totals = lengths_from(first, len(order)) if weights is None else np.add.reduceat(weights[order], first)
        return cls.of_cells(groups[first], codes[first], totals, number)

    @classmethod
    def of_rows(cls, codes: NDArray[np.integer], weights: Ints | None, lengths: Ints, size: int) -> Histogram:
        """Return the histogram of rows, group after group; rows with the code `size` are ignored."""
        counts = np.flatnonzero(codes < size)
        own = None if weights is None else weights[counts]
        return cls.of_pairs(owners(lengths)[counts], codes[counts].astype(np.int64), own, len(lengths))

    def with_code(self, code: int, weight: int) -> Histogram:
        """Return the histogram with one more code, above all others, of the same weight in every group."""
        ends = np.cumsum(self.sizes)
        codes, weights = np.insert(self.codes, ends, code), np.insert(self.weights, ends, weight)
        return Histogram(codes, weights, self.sizes + 1)

    @property
    def totals(self) -> Ints:
        """The weight of each group in all, shape (g,)."""
        return np.diff(offsets(self.weights)[offsets(self.sizes)])

    def repeated(self, times: int) -> Histogram:
        """Return the histogram of all groups, one time after the other."""
        return Histogram(*(np.tile(column, times) for column in (self.codes, self.weights, self.sizes)))

    def part(self, first: int, last: int) -> Histogram:
        """Return the groups from `first` up to `last`."""
        ends = offsets(self.sizes)
        rows = slice(ends[first], ends[last])
        return Histogram(self.codes[rows], self.weights[rows], self.sizes[first:last])
