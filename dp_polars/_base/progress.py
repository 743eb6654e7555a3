"""A sign of life of a release that takes long, for a person who looks on: which scan or statement it is at.

What is shown follows from the query alone, but for the time and the number of parts that people are divided into: both
are for the person at the screen. Nothing is shown where standard error is neither a terminal nor a notebook.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from importlib import import_module
from threading import Event, Lock, Thread
from typing import Any

from dp_polars._base.settings import deaf

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
        line.start()
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
    """Return whether standard error is a terminal."""
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
        self._bar: Any = None

    def start(self) -> None:
        """Begin to look at the clock."""
        with suppress(Exception):  # where no thread is to be had
            Thread(target=deaf(self._tell), name="dp_polars progress", daemon=True).start()

    def end(self) -> None:
        """Clear the line for good."""
        self._done.set()
        with self._lock, suppress(Exception):
            if self._bar is not None:
                self._bar.close()

    def _tell(self) -> None:
        while not self._done.wait(_SECONDS):
            with self._lock, suppress(Exception):
                if not self._done.is_set():
                    self._bar = self._bar or _bar(self._start)
                    self._bar.total, self._bar.n = self.of, self.at - 1
                    self._bar.set_description(f"release: {self._step} {self.at} of {self.of}")


def _bar(start: float) -> Any:  # noqa: ANN401
    """Return tqdm's bar, where it is installed, of a work that began a while ago."""
    try:
        bars = import_module("tqdm")
    except ImportError:
        return _Text(start)
    bar = bars.tqdm(total=1, file=_Screen(), leave=False, position=0, bar_format="{desc} [{elapsed}]")
    bar.start_t -= time.monotonic() - start
    return bar


class _Screen:
    """Standard error, but nothing raises there: tqdm would hold its lock for good, and all that need it would wait."""

    def __init__(self) -> None:
        self._stream = sys.stderr
        self.encoding = getattr(self._stream, "encoding", None)

    def write(self, text: str) -> None:
        with suppress(Exception):
            self._stream.write(text)

    def flush(self) -> None:
        with suppress(Exception):
            self._stream.flush()


class _Text:
    """What a line needs of tqdm's bar, in plain text."""

    def __init__(self, start: float) -> None:
        self._start, self._screen, self._width = start, _Screen(), 0

    def set_description(self, text: str) -> None:
        text += f" [{time.monotonic() - self._start:.0f} s]"
        print(f"\r{text:<{self._width}}", end="", file=self._screen, flush=True)
        self._width = len(text)

    def close(self) -> None:
        print("\r" + " " * self._width, end="\r", file=self._screen, flush=True)
