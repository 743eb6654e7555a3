"""The lock file next to a ledger, which every transaction holds, and the lock of this process.

SQLite's own locks are dropped when any descriptor of the ledger is closed in the process; this one is not.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from dp_polars._accounting.uninterrupted import check_wanted

try:
    import fcntl
except ImportError:  # Windows: there SQLite's own locks belong to a handle, and closing another drops none
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_BUSY_SECONDS = 60
_PAUSE_SECONDS = 0.002

# Code inside SQLite in this process holds this lock, and so does a fork: a child must not inherit an open ledger,
# because its SQLite would believe that it holds the file's locks. No thread waits for another process with it.
lock = threading.RLock()

# The lock files that are open in this process.
_descriptors: set[int] = set()


def _after_fork_in_child() -> None:
    """Close the lock files: if the parent dies, its child must not go on to hold its locks."""
    while _descriptors:
        os.close(_descriptors.pop())
    lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=_after_fork_in_child)


@contextmanager
def held(path: Path, deadline: float) -> Iterator[None]:
    """Hold the lock file next to the ledger: no thread and no process has another transaction.

    The lock belongs to a descriptor that is opened here: neither closing the ledger nor another descriptor of the
    lock drops it, and a crash does. The lock file is never deleted: a waiting process may have it open.
    """
    if fcntl is None:
        yield
        return
    name = path.with_name(f"{path.name}-lock")
    while True:
        with lock:
            number = _open_lock(name, path)
            _descriptors.add(number)
        try:
            while not _has_locked(number, path):
                pause(path, deadline)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(number), name.stat()):  # else somebody removed the file meanwhile
                    yield
                    return
        finally:
            # Explicitly: a child that was forked a moment ago may have a copy of the descriptor.
            with suppress(OSError):
                fcntl.flock(number, fcntl.LOCK_UN)
            with lock:
                _descriptors.discard(number)
                os.close(number)


def _open_lock(name: Path, path: Path) -> int:
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        with suppress(FileNotFoundError):
            return os.open(name, flags)
        try:
            number = os.open(name, flags | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            return os.open(name, flags)
        with suppress(OSError):  # every user with read access to the ledger may lock it
            found = path.stat()
            if os.geteuid() == 0:
                os.fchown(number, found.st_uid, found.st_gid)
            os.fchmod(number, stat.S_IMODE(found.st_mode))
    except OSError as error:
        msg = (
            f"{name_of(path)} could not be locked: {error}. Nothing was released.\n\n"
            f"Hint: {str(name)!r} must be readable for all who use the ledger, like the ledger."
        )
        raise type(error)(msg) from error
    return number


def _has_locked(number: int, path: Path) -> bool:
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        msg = (
            f"{name_of(path)} could not be locked: {error}. Nothing was released.\n\n"
            "Hint: keep it on a local file system, which has locks (flock)."
        )
        raise OSError(msg) from error
    return True


def deadline_from_now() -> float:
    """Return the time at which waiting for the ledger gives up."""
    return time.monotonic() + _BUSY_SECONDS


def pause(path: Path, deadline: float) -> None:
    """Wait a moment; raise once the deadline is over, or if nobody waits for the charge any longer."""
    check_wanted()
    if time.monotonic() >= deadline:
        msg = f"{name_of(path)} was busy for {_BUSY_SECONDS} seconds. Nothing was released."
        raise TimeoutError(msg)
    time.sleep(_PAUSE_SECONDS)


def name_of(path: Path) -> str:
    """Return what errors call the ledger."""
    return f"The ledger {str(path)!r}"
