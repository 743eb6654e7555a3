"""Paths that users give."""

from __future__ import annotations

import os
from pathlib import Path


def expanded(path: str | os.PathLike[str]) -> Path:
    """Return a path in which a leading `~` is the home folder, as in Polars' own functions."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        msg = f"path must begin with an existing home folder, got {os.fspath(path)!r}."
        raise FileNotFoundError(msg) from None
