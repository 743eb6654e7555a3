"""What every answer is drawn from: the sum of weights of each code of each group."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dp_polars._numeric.arrays import Ints, offsets


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
    def of_rows(cls, codes: NDArray[np.integer], weights: Ints | None, lengths: Ints, size: int) -> Histogram:
        """Return the histogram of rows, group after group; rows with the code `size` are ignored."""
        counts = np.flatnonzero(codes < size)
        groups = np.repeat(np.arange(len(lengths)), lengths)[counts]
        own = codes[counts].astype(np.int64)
        order = np.lexsort((own, groups))
        groups, own = groups[order], own[order]
        is_new = np.ones(len(order), bool)
        is_new[1:] = (groups[1:] != groups[:-1]) | (own[1:] != own[:-1])
        first = np.flatnonzero(is_new)
        each = np.ones(len(order), np.int64) if weights is None else weights[counts][order]
        totals = np.add.reduceat(each, first) if len(first) else each
        return cls.of_cells(groups[first], own[first], totals, len(lengths))

    def part(self, first: int, last: int) -> Histogram:
        """Return the groups from `first` up to `last`."""
        ends = offsets(self.sizes)
        rows = slice(ends[first], ends[last])
        return Histogram(self.codes[rows], self.weights[rows], self.sizes[first:last])
