"""Private values run where nothing warns and no float raises, in this thread and in others."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from functools import wraps
from typing import ParamSpec, TypeVar

import numpy as np
import polars as pl

P = ParamSpec("P")
T = TypeVar("T")

#: Whether this runs in what `silenced` runs.
is_silenced = ContextVar("is_silenced", default=False)


class _WhereSilenced(type):
    def __subclasscheck__(cls, subclass: type) -> bool:
        return is_silenced.get()


class _AnyWarning(Warning, metaclass=_WhereSilenced):
    """Every warning in what `silenced` runs, none elsewhere."""


_FILTER = ("ignore", None, _AnyWarning, None, 0)
# Where filters change, Python repeats what it says once for each line. So this one is there from the start.
warnings.simplefilter("ignore", _AnyWarning)


def silenced(function: Callable[P, T]) -> Callable[P, T]:
    """Return a function during which nothing warns, and no float raises, in this thread.

    It runs in a context of its own. Settings there go with it, wherever an interruption comes.
    """

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        return copy_context().run(silently, *args, **kwargs)

    def silently(*args: P.args, **kwargs: P.kwargs) -> T:
        errors = np.geterr()
        try:
            if [*warnings.filters[:1]] != [_FILTER]:  # others may have taken it away
                warnings.simplefilter("ignore", _AnyWarning)
            is_silenced.set(True)
            np.seterr(all="ignore")
            return function(*args, **kwargs)
        finally:
            np.seterr(**errors)  # NumPy 1 keeps them for the thread

    return run


def in_parallel(work: Callable[[int, int], T], parts: Sequence[tuple[int, int]]) -> list[T]:
    """Return the results of all parts in their order, worked on by as many threads as Polars has: silenced ones."""
    work = silenced(work)
    if len(parts) == 1:
        return [work(*parts[0])]
    with ThreadPoolExecutor(pl.thread_pool_size()) as pool:
        return list(pool.map(lambda part: work(*part), parts))
