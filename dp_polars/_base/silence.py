"""Run code on private values without warnings and without float errors, in this thread and in others."""

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
A = TypeVar("A")
B = TypeVar("B")

#: Whether this code runs within `silenced`.
is_silenced = ContextVar("is_silenced", default=False)


class _WhereSilenced(type):
    def __subclasscheck__(cls, subclass: type) -> bool:
        return is_silenced.get()


class _AnyWarning(Warning, metaclass=_WhereSilenced):
    """Matches every warning within `silenced`, and none elsewhere."""


_FILTER = ("ignore", None, _AnyWarning, None, 0)
# If filters change, Python shows old warnings again. So this filter is set at the start.
warnings.simplefilter("ignore", _AnyWarning)


def silenced(function: Callable[P, T]) -> Callable[P, T]:
    """Return the function without warnings and without float errors in this thread.

    It runs in its own context. Its settings end with the context, even after an interruption.
    """

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        return copy_context().run(silently, *args, **kwargs)

    def silently(*args: P.args, **kwargs: P.kwargs) -> T:
        errors = np.geterr()
        try:
            if [*warnings.filters[:1]] != [_FILTER]:  # somebody may have removed it
                warnings.simplefilter("ignore", _AnyWarning)
            is_silenced.set(True)
            np.seterr(all="ignore")
            return function(*args, **kwargs)
        finally:
            np.seterr(**errors)  # NumPy 1 stores them per thread

    return run


def in_parallel(work: Callable[[A, B], T], parts: Sequence[tuple[A, B]]) -> list[T]:
    """Return the results of all parts in order, from silenced threads, as many as Polars uses."""
    work = silenced(work)
    if len(parts) == 1:
        return [work(*parts[0])]
    with ThreadPoolExecutor(pl.thread_pool_size()) as pool:
        return list(pool.map(lambda part: work(*part), parts))
