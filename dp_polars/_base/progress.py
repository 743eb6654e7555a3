"""A line that shows the progress of a release."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from threading import Event, Lock, Thread

from dp_polars._base.silence import silenced

# The delay before the line appears, and between its updates.
_SECONDS = 1.0
_line: ContextVar[_Line | None] = ContextVar("_line", default=None)


@contextmanager
def shown(step: str) -> Iterator[None]:
    """Show, after a second, the current step of the block; it is a single step unless `at` is called."""
    if not (is_terminal() or _is_notebook()):
        yield
        return
    line = _Line(step)
    token = _line.set(line)
    try:
        with suppress(Exception):  # if no thread is available
            Thread(target=silenced(line.tell), name="dp_polars progress", daemon=True).start()
        yield
    finally:
        _line.reset(token)
        line.end()


def at(step: int, of: int) -> None:
    """Set the current step. Steps depend only on the query, except for parts on a terminal."""
    line = _line.get()
    if line is not None:
        line.at, line.of = step, of


def is_terminal() -> bool:
    with suppress(Exception):
        return sys.stderr is not None and sys.stderr.isatty()
    return False


def _is_notebook() -> bool:
    with suppress(Exception):
        return hasattr(sys.modules["IPython"].get_ipython(), "kernel")
    return False


class _Line:
    """A line on the screen, from its own thread. Its failures never fail the release."""

    def __init__(self, step: str) -> None:
        self._step, self.at, self.of = step, 1, 1
        self._done, self._lock, self._start = Event(), Lock(), time.monotonic()
        self._width = 0  # of the text on the screen

    def end(self) -> None:
        self._done.set()
        with self._lock:
            if self._width:
                self._show("", end="\r")

    def tell(self) -> None:
        while not self._done.wait(_SECONDS):
            with self._lock:
                if not self._done.is_set():
                    seconds = time.monotonic() - self._start
                    self._show(f"release: {self._step} {self.at} of {self.of} [{seconds:.0f} s]")

    def _show(self, text: str, end: str = "") -> None:
        with suppress(Exception):
            print(f"\r{text:<{self._width}}", end=end, file=sys.stderr, flush=True)
            self._width = len(text)
