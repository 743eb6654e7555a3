"""Arrays of integers: their names, and the arithmetic of groups that stand one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = "NDArray[np.int64]"
SignedInts: TypeAlias = "NDArray[np.signedinteger]"  # of 32 bits where they suffice: half the time


def offsets(lengths: Ints) -> Ints:
    """Return where each group begins, and where the last one ends."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])


def slices(lengths: Ints, rows: int, most_groups: int) -> Iterator[tuple[int, int]]:
    """Yield runs of whole groups, of at most so many rows (or one group) and at most `most_groups` groups."""
    ends, start = np.cumsum(lengths), 0
    while start < len(lengths):
        before = ends[start] - lengths[start]
        stop = max(int(np.searchsorted(ends, before + rows, side="right")), start + 1)
        stop = min(stop, start + most_groups)
        yield start, stop
        start = stop


def run_starts(labels: NDArray[np.integer]) -> Ints:
    """Return where each run of equal labels begins."""
    is_start = np.ones(len(labels), bool)
    np.not_equal(labels[1:], labels[:-1], out=is_start[1:])
    return np.flatnonzero(is_start)


def run_lengths(labels: NDArray[np.integer]) -> Ints:
    """Return the length of each run of equal labels."""
    return np.diff(run_starts(labels), append=len(labels))
