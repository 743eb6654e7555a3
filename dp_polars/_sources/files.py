"""Identify files, and find out whether two may be the same."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from posixpath import normpath
from typing import TypeAlias
from urllib.parse import unquote, urlsplit

from dp_polars._sources.check import TWICE, refuse

Identity: TypeAlias = "tuple[str, int, int, int, int, int]"

REMOTE = re.compile(r"(?!file:)[a-z][a-z0-9+.-]+://", re.IGNORECASE)
# Object stores without links: two keys of a bucket are two objects.
STORES = frozenset({"abfs", "abfss", "adl", "az", "azure", "gcs", "gs", "s3", "s3a"})


def refuse_repeated_files(files: Sequence[str]) -> None:
    """Refuse files (paths or URLs) if two of them may be the same: its rows would count twice.

    Local files are compared by their numbers in the file system, which works for links and spellings of a path.
    Remote files count as different if they are different objects of one bucket.
    A single name can't repeat a file.
    """
    if not are_different(files):
        refuse("protect", TWICE, "a scan of several files", None)


def are_different(files: Sequence[str]) -> bool:
    if any(map(REMOTE.match, files)):
        return len(files) == 1 or _are_different_objects(files)
    return _are_different_files(files)


def identities(files: Iterable[str]) -> tuple[Identity, ...]:
    """Return for each local file its path, number in the file system, size, and time of change.

    A rewritten or replaced file is a different one. Nothing is known about remote files.
    """
    return tuple(
        (str(path.absolute()), status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        for file in files
        if not REMOTE.match(file)
        for path, status in _local(file)
    )


def _local(file: str) -> list[tuple[Path, os.stat_result]]:
    paths = {file}
    if file.lower().startswith("file:"):  # Polars decodes some of them, depending on its version
        from urllib.request import url2pathname  # it imports a network client

        paths = {re.sub("^file:(//)?", "", file, flags=re.IGNORECASE), url2pathname(urlsplit(file).path)}
    return [(path, path.stat()) for path in map(Path, sorted(paths)) if path.exists()]


def _are_different_files(files: Sequence[str]) -> bool:
    seen: set[tuple[object, ...]] = set()
    for file in files:
        found = _local(file)
        if any(stat.S_ISDIR(status.st_mode) for _, status in found) or (not found and len(files) > 1):
            return False
        # Some file systems on Windows have no file numbers.
        identity = {
            (status.st_dev, status.st_ino) if status.st_ino else (os.path.normcase(path.resolve()),)
            for path, status in found
        }
        if identity & seen:
            return False
        seen |= identity
    return True


def mark_of_files(files: Iterable[str]) -> str:
    """Return a digest that changes if local files are replaced or changed; remote files only enter by name.

    Sizes are left out: they depend on rows, and the mark is public.
    """
    files = tuple(files)
    marks: set[tuple[object, ...]] = {(file,) for file in files if REMOTE.match(file)}
    marks |= {(path, inode, changed) for path, _, inode, _, changed, _ in identities(files)}
    return hashlib.sha256(ascii(sorted(marks, key=ascii)).encode()).hexdigest()


def _are_different_objects(files: Sequence[str]) -> bool:
    parts = [urlsplit(file) for file in files]
    if len({(part.scheme, part.netloc) for part in parts}) > 1 or parts[0].scheme not in STORES:
        return False
    if any(re.search(r"[*?\[{#]", file) for file in files):
        return False
    keys = sorted(normpath("/" + unquote(part.path).lstrip("/")).rstrip("/") + "/" for part in parts)
    return not any(after.startswith(before) for before, after in pairwise(keys))  # equal, or in a folder
