"""The line that shows how far a release is."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from threading import Event, Lock, Thread

from dp_polars._base.silence import silenced

# Until a line is shown, and between two of its states.
_SECONDS = 1.0
_line: ContextVar[_Line | None] = ContextVar("_line", default=None)


@contextmanager
def shown(step: str) -> Iterator[None]:
    """Show, after a second, which step the block is at; it is one step unless `at` says otherwise."""
    if not (is_terminal() or _is_notebook()):
        yield
        return
    line = _Line(step)
    token = _line.set(line)
    try:
        with suppress(Exception):  # where no thread is to be had
            Thread(target=silenced(line.tell), name="dp_polars progress", daemon=True).start()
        yield
    finally:
        _line.reset(token)
        line.end()


def at(step: int, of: int) -> None:
    """Say which step the release is at: numbers that follow from the query alone, but for parts on a terminal."""
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
    """A line on the screen, from a thread of its own. Nothing that fails there fails the release."""

    def __init__(self, step: str) -> None:
        self._step, self.at, self.of = step, 1, 1
        self._done, self._lock, self._start = Event(), Lock(), time.monotonic()
        self._width = 0  # of what is on the screen

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
