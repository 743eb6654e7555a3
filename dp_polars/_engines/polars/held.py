"""Single rows of fine grids, held until answers are drawn: their values hardly ever repeat."""

from __future__ import annotations

from threading import Lock

import numpy as np
from numpy.typing import NDArray

from dp_polars._base.numbers import owners
from dp_polars._bins.binning import code_dtype
from dp_polars._mechanisms.histograms import Histogram, SingleRows

# The most rows held one by one, each of at most twelve bytes.
_MOST_HELD = 1 << 26


class Held:
    """Groups and codes of single rows; with too many rows, the number in each cell."""

    def __init__(self, groups: int, size: int) -> None:
        self._groups, self._size, self._number = groups, size, 0
        self._rows = list[tuple[NDArray[np.integer], NDArray[np.integer]]]()
        self._sums = list[Histogram]()
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
        self._sums.append(SingleRows(self._rows, self._groups, self._size).counted)
        self._rows, self._number = [], 0

    def histogram(self) -> Histogram:
        """Return the histogram of all rows."""
        if not self._sums:
            return SingleRows(self._rows, self._groups, self._size)
        self._add_up()
        parts = zip(*((owners(one.sizes), one.codes, one.weights) for one in self._sums), strict=True)
        groups, codes, rows = map(np.concatenate, parts)
        return Histogram.of_pairs(groups, codes, rows, self._groups)
