"""Paths, and files that are written completely or not at all."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedRandom
from pathlib import Path


def expanded(path: str | os.PathLike[str]) -> Path:
    """Return a path with the home folder in place of a leading `~`, as in Polars' own functions."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        msg = f"path must begin with an existing home folder, got {os.fspath(path)!r}."
        raise FileNotFoundError(msg) from None


@contextmanager
def replacing(path: Path) -> Iterator[BufferedRandom]:
    """Open a new file that replaces the one at `path` when the block ends, but not if the block raises.

    It gets the mode of the replaced file, or that of any new file. A link stays, and leads to the new file.
    If Linux supports unnamed files here, the file has no name until it is complete.
    Then a killed process leaves nothing, or, between two calls, a complete file next to `path`.
    Elsewhere it may leave a file, complete or not.
    """
    target = Path(os.path.realpath(path))
    mode = None
    with suppress(FileNotFoundError):  # a name that is too long raises now, not at the end
        found = target.stat().st_mode
        if not stat.S_ISREG(found):
            msg = f"path must be a file, or nothing yet, got {str(path)!r}: a device, a pipe or the like."
            raise ValueError(msg)
        mode = stat.S_IMODE(found)
    name = target.with_name(f".{target.name[:50]}-{secrets.token_hex(8)}")  # names have at most 255 bytes
    of_new = 0o666 if mode is None else mode
    unnamed = _unnamed(target.parent, of_new)
    descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, of_new) if unnamed is None else unnamed
    try:
        with os.fdopen(descriptor, "w+b") as file:
            if mode is not None:  # the process's mask may have removed bits
                os.fchmod(descriptor, mode)
            yield file
            file.flush()
            os.fsync(descriptor)
            if unnamed is not None:
                # With a folder. Without one, Python would link to the link in /proc.
                os.link(_place(descriptor), name, src_dir_fd=descriptor, follow_symlinks=True)
        name.replace(target)
    except BaseException:
        with suppress(FileNotFoundError):
            name.unlink()
        raise


def _unnamed(folder: Path, mode: int) -> int | None:
    """Return a new file without a name in a folder. None: the system lacks such files, or can't name them later."""
    with suppress(AttributeError, OSError):
        descriptor = os.open(folder, os.O_RDWR | os.O_TMPFILE, mode)
        if _place(descriptor).exists():
            return descriptor
        os.close(descriptor)
    return None


def _place(descriptor: int) -> Path:
    return Path(f"/proc/self/fd/{descriptor}")
