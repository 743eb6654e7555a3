"""Paths, and files that are written whole or not at all."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedRandom
from pathlib import Path


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
