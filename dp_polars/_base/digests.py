"""Public frames as bytes, digests and lists of values."""

from __future__ import annotations

import hashlib
from io import BytesIO

import polars as pl

# Frames with up to this many rows are listed in full.
_MOST = 50


def ipc_of(frame: pl.DataFrame) -> bytes:
    """Return a frame as Arrow IPC: equal frames give equal bytes, for any layout in memory."""
    file = BytesIO()
    frame.rechunk().write_ipc(file, compat_level=pl.CompatLevel.oldest())
    return file.getvalue()


def sha256_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def listed(frame: pl.DataFrame) -> str:
    """List the rows of a public frame: all, or the first and last ones with a digest of all."""
    if frame.height <= _MOST:
        return ", ".join(_words(frame))
    ends = f"{', '.join(_words(frame.head(3)))}, …, {_words(frame.tail(1))[0]}"
    return f"{ends} ({frame.height:,} in all; SHA-256 of them as Arrow IPC: {sha256_of(ipc_of(frame))})"


def _words(frame: pl.DataFrame) -> list[str]:
    return [str(row[0]) if len(row) == 1 else f"({', '.join(map(str, row))})" for row in frame.rows()]
