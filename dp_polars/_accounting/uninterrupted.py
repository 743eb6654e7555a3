"""What must not stop half-way: it runs in a thread of its own, where nothing is ever raised from outside.

Python raises KeyboardInterrupt, and whatever else the handler of a signal raises, between any two instructions of the
main thread: also between taking a lock and the `try` that gives it back, and inside a `finally`. No other thread runs
such handlers. So a charge runs in another one, and only the wait for it can be interrupted.
"""

from __future__ import annotations

import _thread
import threading
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

# How long an interruption may wait: no signal ends a wait where its handler was set to go on (Polars sets one so).
_GLANCE_SECONDS = 0.05


class AbandonedError(RuntimeError):
    """The thread that waited was interrupted: nobody hears of the result."""


class _Call:
    """A call in another thread: what came out of it, and whether anybody waits for it."""

    def __init__(self) -> None:
        self.outcome: list[tuple[object, BaseException | None]] = []
        self.abandoned = False
        self.ended = _thread.allocate_lock()
        self.ended.acquire()

    def run(self, function: Callable[[], object]) -> None:
        _here.call = self
        try:
            self.outcome.append((function(), None))
        except BaseException as error:
            self.outcome.append((None, error))
        finally:
            self.ended.release()


class _Here(threading.local):
    call: _Call | None = None


_here = _Here()


def uninterrupted(function: Callable[[], T]) -> T:
    """Return `function()`, or raise its error. Interrupted, the wait ends at once, and the call when it may.

    Raises
    ------
    RuntimeError
        If such a call asks for another one, as the finalizer of an object could: it would wait for itself.
    """
    if _here.call is not None:
        msg = "A budget must not be used while the same thread uses one, as in the finalizer of an object."
        raise RuntimeError(msg)
    call = _Call()
    try:
        # Not threading.Thread, whose start waits in Python: interrupted there, it could leave the new thread waiting.
        _thread.start_new_thread(call.run, (function,))
        while not call.ended.acquire(timeout=_GLANCE_SECONDS):
            pass
    except BaseException:
        call.abandoned = True
        raise
    result, error = call.outcome.pop()
    if error is not None:
        try:
            raise error
        finally:
            del error  # whose traceback holds this frame
    return result  # type: ignore[return-value]


def check_wanted() -> None:
    """Raise, where this is such a call, if nobody waits for it any longer."""
    if _here.call is not None and _here.call.abandoned:
        raise AbandonedError
