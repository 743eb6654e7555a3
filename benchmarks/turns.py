"""Times of several ways to do a thing, which take turns in one process, and memory while a block runs."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager


def median_times(functions: list[Callable[[], object]], repeat: int) -> list[float]:
    """Median seconds of each function; they take turns, so that a noisy moment hits all."""
    times: list[list[float]] = [[] for _ in functions]
    for turn in range(repeat + 1):
        for function, own in zip(functions, times, strict=True):
            start = time.perf_counter()
            function()
            if turn:  # the first is for warming up
                own.append(time.perf_counter() - start)
    return [statistics.median(own) for own in times]


@contextmanager
def peak(resident: Callable[[], Sequence[int]], every: float) -> Iterator[list[int]]:
    """The most bytes that `resident` tells within the block, each by itself; it is asked once in `every` seconds."""
    most, done = [*resident()], threading.Event()

    def watch() -> None:
        while not done.wait(every):
            most[:] = map(max, most, resident())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield most
    finally:
        done.set()
        watcher.join()
