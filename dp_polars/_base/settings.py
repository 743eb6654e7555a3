"""What a process may set, and code on private values must not hear: NumPy's errors, and warnings as errors.

A warning, or an error instead of one, would tell of a value. `warnings.catch_warnings` changes the filters of all
threads, and may leave them changed. So one filter stays in the list, and matches only where `deaf` is entered.
"""

from __future__ import annotations

import warnings
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar, copy_context
from functools import partial, wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

P = ParamSpec("P")
T = TypeVar("T")

_is_deaf = ContextVar("_is_deaf", default=False)


class _WhereDeaf(type):
    def __subclasscheck__(cls, subclass: type) -> bool:
        return _is_deaf.get()


class _AnyWarning(Warning, metaclass=_WhereDeaf):
    """Every warning where `deaf` is entered, none elsewhere."""


_FILTER = ("ignore", None, _AnyWarning, None, 0)
# Where filters change, Python repeats what it says once for each line. So this one is there from the start.
warnings.simplefilter("ignore", _AnyWarning)


def _enter() -> None:
    if [*warnings.filters[:1]] != [_FILTER]:  # others may have taken it away
        warnings.simplefilter("ignore", _AnyWarning)
    _is_deaf.set(True)
    np.seterr(all="ignore")


@contextmanager
def _block() -> Iterator[None]:
    before, errors = _is_deaf.get(), np.geterr()
    try:  # entered first: an interruption may come right after a call
        _enter()
        yield
    finally:
        if not before:  # a block inside another one may be closed long after that, where somebody keeps an error
            _is_deaf.set(False)
            np.seterr(**errors)


def _deafly(function: Callable[[], T]) -> T:
    errors = np.geterr()
    try:
        _enter()
        return function()
    finally:
        np.seterr(**errors)  # NumPy 1 keeps them for the thread


class _Deaf(AbstractContextManager[None]):
    def __init__(self) -> None:
        self._entered = _block()

    def __enter__(self) -> None:
        self._entered.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return self._entered.__exit__(kind, error, trace)

    def __call__(self, function: Callable[P, T]) -> Callable[P, T]:
        @wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> T:
            # What is set there goes with it, wherever an interruption comes; also what NumPy 2 sets.
            return copy_context().run(_deafly, partial(function, *args, **kwargs))

        return run


def deaf() -> _Deaf:
    """Run a function that this decorates, or a block, in this thread: there nothing warns, and no float raises.

    An interruption can't leave a function half-way. A block, in the main thread, may stay deaf after one.
    """
    return _Deaf()
