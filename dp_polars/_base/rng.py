"""Random bits from the system, and arrays of numbers that threads share."""

from __future__ import annotations

import os
import timeit
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, TypeAlias

import numpy as np
import polars as pl
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR
from numpy.typing import NDArray

# n -> n independent uniform 64-bit words. Tests inject their own.
WordSource: TypeAlias = Callable[[int], NDArray[np.uint64]]

_ZEROS = memoryview(bytes(1 << 20))


def system_words() -> WordSource:
    """Return a new stream of words: AES-256 in counter mode under a key from the operating system.

    Every call of a mechanism makes its own, so forks, threads and copies never share a stream.
    """
    encryptor = Cipher(AES256(os.urandom(32)), CTR(bytes(16))).encryptor()

    def draw(count: int) -> NDArray[np.uint64]:
        out = np.empty(count, np.uint64)
        view = out.view(np.uint8).data
        # In chunks that stay in the cache: 14 times as fast as os.urandom.
        for start in range(0, len(view), len(_ZEROS)):
            piece = view[start : start + len(_ZEROS)]
            encryptor.update_into(_ZEROS[: len(piece)], piece)
        return out

    return draw


def uniform_below(bounds: NDArray[np.int64], words: WordSource) -> NDArray[np.int64]:
    """Return, for each bound m >= 1, an exactly uniform integer from 0 to m − 1."""
    out = np.zeros(len(bounds), np.int64)
    pending = np.flatnonzero(bounds > 1)
    while len(pending):
        m = bounds[pending].astype(np.uint64)
        word = words(len(pending))
        # The words from 2**64 mod m on are a whole number of rounds of m; the few below are drawn again.
        accepted = word >= (~m + np.uint64(1)) % m
        out[pending[accepted]] = (word[accepted] % m[accepted]).astype(np.int64)
        pending = pending[~accepted]
    return out


Ints: TypeAlias = "NDArray[np.int64]"
SignedInts: TypeAlias = "NDArray[np.signedinteger]"  # of 32 bits where they suffice: half the time

# Words from which on one sort of them is worth all threads.
_MANY_WORDS = 1 << 20


def offsets(lengths: Ints) -> Ints:
    """Return where each group begins, and where the last one ends."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])


def ranks_of_marks(marks: NDArray[np.bool_]) -> Ints:
    """Return how many places before each place are marked, and last how many are in all."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(marks)])


def starts(lengths: Ints) -> Ints:
    return np.cumsum(lengths) - lengths


def owners(lengths: Ints) -> Ints:
    return np.repeat(np.arange(len(lengths), dtype=np.int64), lengths)


def positions(first: Ints | int, lengths: Ints) -> Ints:
    """Return, for every row, first[group] plus the row's place in its group."""
    at = np.repeat(first - starts(lengths), lengths)
    at += np.arange(len(at))
    return at


def lengths_from(starts: Ints, total: int) -> Ints:
    """Return how many rows each group has, from where it begins."""
    lengths = np.empty_like(starts)
    np.subtract(starts[1:], starts[:-1], out=lengths[:-1])
    lengths[-1:] = total - starts[-1:]
    return lengths


def reduced(operation: np.ufunc, values: NDArray[Any], lengths: Ints) -> NDArray[Any]:
    """Return what, say, `numpy.maximum` makes of the values of each group that has some."""
    return operation.reduceat(values, starts(lengths)[lengths > 0]) if len(values) else values


def slices(lengths: Ints, rows: int, most_groups: int) -> Iterator[tuple[int, int]]:
    """Yield runs of whole groups: at most `rows` rows (or one group) and at most `most_groups` groups."""
    ends, start = np.cumsum(lengths), 0
    while start < len(lengths):
        before = ends[start] - lengths[start]
        stop = max(int(np.searchsorted(ends, before + rows, side="right")), start + 1)
        stop = min(stop, start + most_groups)
        yield start, stop
        start = stop


def begin_runs(labels: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Return whether each label is the first one of a run of equal labels, along the last axis."""
    begins = np.ones(labels.shape, bool)
    np.not_equal(labels[..., 1:], labels[..., :-1], out=begins[..., 1:])
    return begins


def run_starts(*labels: NDArray[np.integer]) -> Ints:
    """Return where each run of equal labels (or pairs of labels) begins."""
    begins = begin_runs(labels[0])
    for other in labels[1:]:
        begins |= begin_runs(other)
    return np.flatnonzero(begins)


def run_lengths(labels: NDArray[np.integer]) -> Ints:
    return lengths_from(run_starts(labels), len(labels))


def sorted_words(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return words in ascending order, by the sort that is the faster one on this processor."""
    return _faster_sort()(words)


@cache
def _faster_sort() -> Callable[[NDArray[np.uint64]], NDArray[np.uint64]]:
    """Measure NumPy's sort and Polars', on words that are no data.

    NumPy's takes half as long with AVX-512 and as long with AVX2, but four times as long without.
    """
    words = np.arange(1 << 14, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)

    def seconds(sort: Callable[[NDArray[np.uint64]], object]) -> float:
        return min(timeit.repeat(lambda: sort(words), number=1, repeat=3))

    return np.sort if seconds(np.sort) < seconds(_sorted_by_polars) else _sorted_by_polars


def _sorted_by_polars(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    return pl.Series(words).sort(multithreaded=len(words) >= _MANY_WORDS).to_numpy()


def difference(high: NDArray[np.integer], low: NDArray[np.integer]) -> NDArray[np.uint64]:
    """Return high − low modulo 2**64: the true one where it is not negative, however the numbers are signed."""
    return _modulo(high) - _modulo(low)


def _modulo(numbers: NDArray[np.integer]) -> NDArray[np.uint64]:
    """Return integers modulo 2**64, without a copy where they are as wide."""
    wide = numbers if numbers.dtype.itemsize == 8 else numbers.astype(np.int64)
    return wide.view(np.uint64)
