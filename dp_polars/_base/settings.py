"""What a process may set, and code on private values must not hear: NumPy's errors, and warnings as errors.

A warning, or an error instead of one, would tell of a value. `warnings.catch_warnings` changes the filters of all
threads, and may leave them changed. So one filter stays in the list, and matches only in what `deaf` runs.
"""

from __future__ import annotations

import warnings
from contextvars import ContextVar, copy_context
from functools import partial, wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")

_is_deaf = ContextVar("_is_deaf", default=False)


class _WhereDeaf(type):
    def __subclasscheck__(cls, subclass: type) -> bool:
        return _is_deaf.get()


class _AnyWarning(Warning, metaclass=_WhereDeaf):
    """Every warning in what `deaf` runs, none elsewhere."""


_FILTER = ("ignore", None, _AnyWarning, None, 0)
# Where filters change, Python repeats what it says once for each line. So this one is there from the start.
warnings.simplefilter("ignore", _AnyWarning)


def _enter() -> None:
    if [*warnings.filters[:1]] != [_FILTER]:  # others may have taken it away
        warnings.simplefilter("ignore", _AnyWarning)
    _is_deaf.set(True)
    np.seterr(all="ignore")


def is_deaf() -> bool:
    """Whether this runs in what `deaf` runs."""
    return _is_deaf.get()


def deaf(function: Callable[P, T]) -> Callable[P, T]:
    """Return a function during which nothing warns, and no float raises, in this thread.

    It runs in a context of its own. What is set there goes with it, wherever an interruption comes.
    """

    @wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        return copy_context().run(_deafly, partial(function, *args, **kwargs))

    return run


def _deafly(function: Callable[[], T]) -> T:
    errors = np.geterr()
    try:
        _enter()
        return function()
    finally:
        np.seterr(**errors)  # NumPy 1 keeps them for the thread
