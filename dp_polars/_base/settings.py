"""What a process may set, and code on private values must not hear: NumPy's errors, and warnings as errors.

A warning, or an error instead of one, would tell of a value. `warnings.catch_warnings` changes the filters of all
threads, and may leave them changed. So one filter stays in the list, and matches only where `deaf` is entered.
"""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

_is_deaf = ContextVar("_is_deaf", default=False)


class _WhereDeaf(type):
    def __subclasscheck__(cls, subclass: type) -> bool:
        return _is_deaf.get()


class _AnyWarning(Warning, metaclass=_WhereDeaf):
    """Every warning where `deaf` is entered, none elsewhere."""


_FILTER = ("ignore", None, _AnyWarning, None, 0)
# Where filters change, Python repeats what it says once for each line. So this one is there from the start.
warnings.simplefilter("ignore", _AnyWarning)


@contextmanager
def deaf() -> Iterator[None]:
    """Run a block, or a function that this decorates, in which nothing warns, and no float raises, in this thread."""
    if [*warnings.filters[:1]] != [_FILTER]:  # others may have taken it away
        warnings.simplefilter("ignore", _AnyWarning)
    token = _is_deaf.set(True)
    try:
        with np.errstate(all="ignore"):
            yield
    finally:
        _is_deaf.reset(token)
