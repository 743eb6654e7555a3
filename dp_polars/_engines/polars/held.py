"""Single rows of fine grids, held until answers are drawn: their values hardly ever repeat."""

from __future__ import annotations

from threading import Lock

import numpy as np
from numpy.typing import NDArray

from dp_polars._base.numbers import Ints, lengths_from, run_starts, sorted_words
from dp_polars._bins.binning import code_dtype
from dp_polars._mechanisms.histograms import Histogram, SingleRows

# The most rows held one by one, each of at most twelve bytes.
_MOST_HELD = 1 << 26


class Held:
    """Groups and codes of single rows; with too many rows, the number in each cell."""

    def __init__(self, groups: int, size: int) -> None:
        self._groups, self._size, self._number = groups, size, 0
        self._rows = list[tuple[NDArray[np.integer], NDArray[np.integer]]]()
        self._sums = list[tuple[NDArray[np.uint64], Ints]]()
        self._lock = Lock()

    def add(self, groups: NDArray[np.integer], codes: NDArray[np.integer] | None) -> None:
        """Hold rows that count. None: all codes are 0."""
        codes = np.zeros(len(groups), np.uint8) if codes is None else codes
        groups = groups.astype(code_dtype(self._groups), copy=False)
        with self._lock:
            self._rows.append((groups, codes))
            self._number += len(codes)
            if self._number > _MOST_HELD:
                self._add_up()

    def _add_up(self) -> None:
        size = np.uint64(self._size)
        parts = [groups.astype(np.uint64) * size + codes.astype(np.uint64) for groups, codes in self._rows]
        cells = sorted_words(np.concatenate([np.empty(0, np.uint64), *parts]))
        first = run_starts(cells)
        self._sums.append((cells[first], lengths_from(first, len(cells))))
        self._rows, self._number = [], 0

    def histogram(self) -> Histogram:
        """Return the histogram of all rows."""
        if not self._sums:
            return SingleRows(self._rows, self._groups, self._size)
        self._add_up()
        cells, rows = (np.concatenate(column) for column in zip(*self._sums, strict=True))
        order = np.argsort(cells, kind="stable")
        cells, rows = cells[order], rows[order]
        first = run_starts(cells)
        groups, codes = np.divmod(cells[first], np.uint64(self._size))
        return Histogram.of_cells(groups.astype(np.int64), codes, np.add.reduceat(rows, first), self._groups)
