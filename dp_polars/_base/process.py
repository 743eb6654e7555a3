"""What a process sets, does and says: threads, progress, extras, paths, callers, calls and digests."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import os
import secrets
import stat
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from functools import wraps
from io import BufferedRandom, BytesIO
from pathlib import Path
from threading import Event, Lock, Thread
from types import FrameType, FunctionType, TracebackType
from typing import Any, ParamSpec, TypeVar

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

    It runs in a context of its own. What is set there goes with it, wherever an interruption comes.
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


class MissingExtraError(AttributeError):
    """A part of this package is asked for by its name (`dp_polars.spark`), and its extra is not installed.

    The message has the command that installs it. `import dp_polars.spark` raises a ModuleNotFoundError instead, as any
    import of what is missing.
    """


def require(module: str, *, extra: str) -> Any:  # noqa: ANN401
    """Import a module of an optional extra, or say how to install it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not module.startswith(error.name):
            raise
        package = module.partition(".")[0]
        msg = f"the package {package} must be installed for this.\n\nHint: pip install 'dp-polars[{extra}]'"
        raise ModuleNotFoundError(msg, name=error.name) from error


def expanded(path: str | os.PathLike[str]) -> Path:
    """Return a path in which a leading `~` is the home folder, as in Polars' own functions."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        msg = f"path must begin with an existing home folder, got {os.fspath(path)!r}."
        raise FileNotFoundError(msg) from None


@contextmanager
def replacing(path: Path) -> Iterator[BufferedRandom]:
    """Open a new file that takes the place of the one at `path` when the block ends, whole; not if the block raises.

    It has the mode of the file that was there, or that of any new file. A link stays, and leads to the new file. Where
    Linux has files without a name, it has none until it is whole, so that a process that is killed leaves nothing but,
    between two calls, a whole file next to `path`. Elsewhere such a file may be left, whole or not.
    """
    target = Path(os.path.realpath(path))
    mode = None
    with suppress(FileNotFoundError):  # a name that is too long is an error now, not when all is written
        found = target.stat().st_mode
        if not stat.S_ISREG(found):
            msg = f"path must be a file, or nothing yet, got {str(path)!r}: a device, a pipe or the like."
            raise ValueError(msg)
        mode = stat.S_IMODE(found)
    name = target.with_name(f".{target.name[:50]}-{secrets.token_hex(8)}")  # no name has more than 255 bytes
    of_new = 0o666 if mode is None else mode
    unnamed = _unnamed(target.parent, of_new)
    descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, of_new) if unnamed is None else unnamed
    try:
        with os.fdopen(descriptor, "w+b") as file:
            if mode is not None:  # the process may mask some of it
                os.fchmod(descriptor, mode)
            yield file
            file.flush()
            os.fsync(descriptor)
            if unnamed is not None:
                # Without a folder Python would make a link to the link in /proc.
                os.link(_place(descriptor), name, src_dir_fd=descriptor, follow_symlinks=True)
        name.replace(target)
    except BaseException:
        with suppress(FileNotFoundError):
            name.unlink()
        raise


def _unnamed(folder: Path, mode: int) -> int | None:
    """Return a new file of a folder that has no name; None where there are none, or they could not get one."""
    with suppress(AttributeError, OSError):
        descriptor = os.open(folder, os.O_RDWR | os.O_TMPFILE, mode)
        if _place(descriptor).exists():
            return descriptor
        os.close(descriptor)
    return None


def _place(descriptor: int) -> Path:
    return Path(f"/proc/self/fd/{descriptor}")


def caller() -> tuple[FrameType, int]:
    """Return the frame that called this package, however deep in it we are, and how deep that is."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and _is_ours(frame):
        frame, level = frame.f_back, level + 1
    return frame, level


def warn(message: str, category: type[Warning]) -> None:
    """Warn at the line that called this package: Python's filters then know that line."""
    warnings.warn(message, category, stacklevel=caller()[1])


def called(function: Callable[P, T]) -> Callable[P, T]:
    """Let a function say how it is called, where its arguments do not fit: Python names inner classes then.

    The traceback of another error shows the function and the line that raised, and no other frame of this package.
    Python's development mode (`python -X dev`) shows all.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            inside = None if error.__traceback__ is None else error.__traceback__.tb_next
            if inside is not None or not isinstance(error, TypeError):  # not of this call, but of what the function did
                if not sys.flags.dev_mode:
                    error.__traceback__ = _ends_of(inside)
                raise
        raise TypeError(_misfit(function, args, kwargs))

    return call


def _ends_of(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback of which this package has the first frame and the last one."""
    frames = []
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    inner = [one for one in frames if _is_ours(one.tb_frame)][1:-1]
    shown = None
    for one in reversed(frames):
        if one not in inner:
            shown = TracebackType(shown, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return shown


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] == "dp_polars"


Class = TypeVar("Class", bound=type)


def all_called(cls: Class) -> Class:
    """Let all public methods of a class be `called`."""
    for name, method in list(vars(cls).items()):
        if isinstance(method, FunctionType) and not name.startswith("_"):
            setattr(cls, name, called(method))
    return cls


def _misfit(function: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]) -> str:
    signature = inspect.signature(function)
    *_, owner, name = ["", *function.__qualname__.split(".")]
    name = owner if name == "__init__" else name
    ways = {parameter.name: _way(parameter) for parameter in signature.parameters.values()}
    way = f"{name}({', '.join(filter(None, ways.values()))})"
    if next(iter(ways)) == "column":
        way += f", or column.dp.{name}({', '.join(filter(None, [*ways.values()][1:]))})"
    try:
        signature.bind(*args, **kwargs)
        why = "the arguments do not fit"
    except TypeError as error:
        why = str(error)
    return f"{name}: {why}.\n\nHint: {way}."


def _way(parameter: inspect.Parameter) -> str:
    """Return how an argument is given; nothing for one that is seldom given."""
    if parameter.name == "self":
        return ""
    if parameter.kind is parameter.VAR_POSITIONAL:
        return "…"
    is_required = parameter.default is parameter.empty
    if parameter.kind is parameter.KEYWORD_ONLY:
        return f"{parameter.name}=…" if is_required or parameter.name == "epsilon" else ""
    return parameter.name if is_required else f"{parameter.name}=…"


# Frames of up to this many rows are listed in full.
_MOST = 50


def ipc_of(frame: pl.DataFrame) -> bytes:
    """Return a frame as Arrow IPC, the same bytes however its values lie in memory."""
    file = BytesIO()
    frame.rechunk().write_ipc(file, compat_level=pl.CompatLevel.oldest())
    return file.getvalue()


def sha256_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def listed(frame: pl.DataFrame) -> str:
    """Return the rows of a public frame: all of them, or the first and the last ones with a digest of all."""
    if frame.height <= _MOST:
        return ", ".join(_words(frame))
    ends = f"{', '.join(_words(frame.head(3)))}, …, {_words(frame.tail(1))[0]}"
    return f"{ends} ({frame.height:,} in all; SHA-256 of them as Arrow IPC: {sha256_of(ipc_of(frame))})"


def _words(frame: pl.DataFrame) -> list[str]:
    return [str(row[0]) if len(row) == 1 else f"({', '.join(map(str, row))})" for row in frame.rows()]
