"""Work on several threads: NumPy lets go of the interpreter while it computes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import polars as pl

from dp_polars._base.settings import deaf

T = TypeVar("T")


def in_parallel(work: Callable[[int, int], T], parts: Sequence[tuple[int, int]]) -> list[T]:
    """Return the results of all parts in their order, worked on by as many threads as Polars has: deaf ones."""
    work = deaf(work)
    if len(parts) == 1:
        return [work(*parts[0])]
    with ThreadPoolExecutor(pl.thread_pool_size()) as pool:
        return list(pool.map(lambda part: work(*part), parts))
