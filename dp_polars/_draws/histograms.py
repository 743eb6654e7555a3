"""What every answer is drawn from: the sum of weights of each code of each group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dp_polars._base.arrays import Ints, lengths_from, offsets, owners, run_starts, slices, starts
from dp_polars._base.threads import in_parallel

# Rows, and cells of a dense histogram, that a thread works on before it takes the next.
_SLICE_ROWS = 1 << 20
_SLICE_CELLS = 1 << 19


@dataclass(frozen=True)
class Histogram:
    """Σ weight of each (group, code) that has rows, ordered by group and then by code.

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
        """Return the histogram of pairs that are sorted by group and code."""
        sizes = np.bincount(groups, minlength=number)
        return cls(codes.astype(np.int64), weights.astype(np.int64), sizes)

    @classmethod
    def of_pairs(cls, groups: Ints, codes: Ints, weights: Ints | None, number: int) -> Histogram:
        """Return the histogram of pairs in any order; the weights (None: ones) of equal pairs add up."""
        order = np.lexsort((codes, groups))
        groups, codes = groups[order], codes[order]
        first = run_starts(groups, codes)
        totals = lengths_from(first, len(order)) if weights is None else np.add.reduceat(weights[order], first)
        return cls.of_cells(groups[first], codes[first], totals, number)

    @classmethod
    def of_rows(cls, codes: NDArray[np.integer], weights: Ints | None, lengths: Ints, size: int) -> Histogram:
        """Return the histogram of rows, group after group; rows with the code `size` are ignored."""
        if weights is not None:
            counts = np.flatnonzero(codes < size)
            return cls.of_pairs(owners(lengths)[counts], codes[counts].astype(np.int64), weights[counts], len(lengths))
        dense = len(lengths) * (size + 1) <= len(codes) + _SLICE_CELLS
        most = max(1, _SLICE_CELLS // (size + 1)) if dense else _SLICE_ROWS
        count = cls._of_few_codes if dense else cls._of_many_codes
        bounds = offsets(lengths)
        parts = in_parallel(
            lambda a, b: count(codes[bounds[a] : bounds[b]], lengths[a:b], size),
            list(slices(lengths, _SLICE_ROWS, most)),
        )
        return cls.joined(parts)

    @classmethod
    def joined(cls, parts: Sequence[Histogram]) -> Histogram:
        """Return the histogram of the groups of all parts."""
        nothing = np.empty(0, np.int64)
        return cls(
            *(np.concatenate([nothing, *(getattr(part, name) for part in parts)]) for name in cls.__dataclass_fields__)
        )

    @classmethod
    def _of_few_codes(cls, codes: NDArray[np.integer], lengths: Ints, size: int) -> Histogram:
        """Count with a counter for every code of every group."""
        cells = np.bincount(_cells(codes, lengths, size), minlength=len(lengths) * (size + 1))
        counts = cells.reshape(len(lengths), size + 1)[:, :size]
        groups, occupied = np.nonzero(counts)
        return cls.of_cells(groups, occupied, counts[groups, occupied], len(lengths))

    @classmethod
    def _of_many_codes(cls, codes: NDArray[np.integer], lengths: Ints, size: int) -> Histogram:
        """Count by sorting."""
        if not len(lengths) * (size + 1) < 2**63:
            counts = np.flatnonzero(codes < size)
            return cls.of_pairs(owners(lengths)[counts], codes[counts].astype(np.int64), None, len(lengths))
        cells = np.sort(_cells(codes, lengths, size))
        first = run_starts(cells)
        groups, occupied = np.divmod(cells[first], size + 1)
        counted = occupied < size
        return cls.of_cells(groups[counted], occupied[counted], lengths_from(first, len(cells))[counted], len(lengths))

    def with_code(self, code: int, weight: int) -> Histogram:
        """Return the histogram with one more code, above all others, of the same weight in every group."""
        ends = np.cumsum(self.sizes)
        codes, weights = np.insert(self.codes, ends, code), np.insert(self.weights, ends, weight)
        return Histogram(codes, weights, self.sizes + 1)

    def with_rows_at(self, code: int, rows: int) -> Histogram:
        """Return the histogram with more rows of one code in every group; no other code is below it, or none above."""
        at = np.cumsum(self.sizes) if code else starts(self.sizes)
        groups = np.insert(owners(self.sizes), at, np.arange(len(self.sizes)))
        codes, weights = np.insert(self.codes, at, code), np.insert(self.weights, at, rows)
        if not len(codes):
            return self
        first = run_starts(groups, codes)
        return self.of_cells(groups[first], codes[first], np.add.reduceat(weights, first), len(self.sizes))

    @property
    def totals(self) -> Ints:
        """The total weight of each group, shape (g,)."""
        return np.diff(offsets(self.weights)[offsets(self.sizes)])

    def repeated(self, times: int) -> Histogram:
        """Return the histogram of `times` copies of all groups, one copy after the other."""
        return Histogram(*(np.tile(column, times) for column in (self.codes, self.weights, self.sizes)))

    def part(self, first: int, last: int) -> Histogram:
        """Return the groups from `first` up to `last`."""
        ends = offsets(self.sizes)
        rows = slice(ends[first], ends[last])
        return Histogram(self.codes[rows], self.weights[rows], self.sizes[first:last])


def _cells(codes: NDArray[np.integer], lengths: Ints, size: int) -> Ints:
    """Return a number for the group and code of each row, ascending with the group and then with the code."""
    cells = np.repeat(np.arange(len(lengths)) * (size + 1), lengths)
    # NumPy adds int64 and uint64 as floats, whatever type the result has, and so rounds cells from 2**53 on.
    cells += codes.view(np.int64) if codes.dtype == np.uint64 else codes
    return cells
