"""Times of several ways to do a thing, which take turns in one process."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable


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
