"""Files that a plan reads: none may be read twice where every row is a person.

Whether two names are of one file is asked of the file system; what can't be told apart counts as one.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from itertools import pairwise
from pathlib import Path
from posixpath import normpath
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import unquote, urlsplit

import polars as pl

from dp_polars._rowwise.preparations import TWICE, refuse
from dp_polars._rowwise.views import visited

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Identity: TypeAlias = "tuple[str, int, int, int, int, int]"

REMOTE = re.compile(r"(?!file:)[a-z][a-z0-9+.-]+://", re.IGNORECASE)
# Stores of objects without links: two keys of one bucket are two objects.
_STORES = frozenset({"abfs", "abfss", "adl", "az", "azure", "gcs", "gs", "s3", "s3a"})


def refuse_repeated_files(files: Sequence[str]) -> None:
    """Refuse files, as paths or URLs, of which two may be one: its rows would count twice.

    Local files are told apart by their numbers in the file system, which sees through links and ways of writing a
    path. Files elsewhere are taken for different where they are different objects of one bucket. One name can't
    repeat by itself.
    """
    if not are_different(files):
        refuse("protect", TWICE, "a scan of several files", None)


def are_different(files: Sequence[str]) -> bool:
    """Return whether no two of these files, as paths or URLs, may be one."""
    if any(map(REMOTE.match, files)):
        return len(files) == 1 or _are_different_objects(files)
    return _are_different_files(files)


def identities(files: Iterable[str]) -> tuple[Identity, ...]:
    """Return what each local file is: its path, its number in the file system, its size, and when it was changed.

    A file that was rewritten, or replaced, is another one. Nothing is known about files elsewhere.
    """
    return tuple(
        (str(path.absolute()), status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
        for file in files
        if not REMOTE.match(file)
        for path, status in _local(file)
    )


def _local(file: str) -> list[tuple[Path, os.stat_result]]:
    """Return the local files that a path or a URL may name."""
    paths = {file}
    if file.lower().startswith("file:"):  # Polars decodes some of them, depending on its version
        from urllib.request import url2pathname  # brings a client of the network along

        paths = {re.sub("^file:(//)?", "", file, flags=re.IGNORECASE), url2pathname(urlsplit(file).path)}
    return [(path, path.stat()) for path in map(Path, sorted(paths)) if path.exists()]


def _are_different_files(files: Sequence[str]) -> bool:
    seen: set[tuple[object, ...]] = set()
    for file in files:
        found = _local(file)
        if any(stat.S_ISDIR(status.st_mode) for _, status in found) or (not found and len(files) > 1):
            return False
        # Some file systems of Windows number nothing.
        identity = {
            (status.st_dev, status.st_ino) if status.st_ino else (os.path.normcase(path.resolve()),)
            for path, status in found
        }
        if identity & seen:
            return False
        seen |= identity
    return True


def mark_of_files(files: Iterable[str]) -> str:
    """Return a digest that changes where local files were replaced or changed; it has only the names of remote ones.

    The size of a file is left out: it depends on its rows, and the mark is public.
    """
    files = tuple(files)
    marks: set[tuple[object, ...]] = {(file,) for file in files if REMOTE.match(file)}
    marks |= {(path, inode, changed) for path, _, inode, _, changed, _ in identities(files)}
    return hashlib.sha256(ascii(sorted(marks, key=ascii)).encode()).hexdigest()


def _are_different_objects(files: Sequence[str]) -> bool:
    parts = [urlsplit(file) for file in files]
    if len({(part.scheme, part.netloc) for part in parts}) > 1 or parts[0].scheme not in _STORES:
        return False
    if any(re.search(r"[*?\[{#]", file) for file in files):
        return False
    keys = sorted(normpath("/" + unquote(part.path).lstrip("/")).rstrip("/") + "/" for part in parts)
    return not any(after.startswith(before) for before, after in pairwise(keys))  # the same, or in a folder


def files_of_scan(scan: dict[str, Any]) -> list[str]:
    """Return the files of a serialized scan, its patterns and folders resolved where they are local."""
    sources, options = scan["sources"], scan["unified_scan_args"]
    files = []
    for path in sources.get("Paths", []):
        name = next(iter(path.values()))  # {"inner": …}, or before Polars 2 {"Local": …} or {"Cloud": {"uri": …}}
        files.append(name["uri"] if isinstance(name, dict) else name)
    if not files or any(map(REMOTE.match, files)):
        return files + ["memory://"] * len(sources.get("Buffers", []))
    # With a schema nothing is read, and the format does not matter.
    same = pl.scan_parquet(
        files,
        schema={"": pl.Null},
        glob=options["glob"],
        hidden_file_prefix=options["hidden_file_prefix"],
        hive_partitioning=False,
    )
    return list(map(str, visited(same).view_current_node().paths))


def files_of_arrow(dataset: Any) -> list[str]:  # noqa: ANN401
    """Return the files of a pyarrow dataset as paths or URLs."""
    if type(dataset).__name__ == "InMemoryDataset":
        return []
    files = []
    for fragment in dataset.get_fragments():
        system, path = getattr(fragment, "filesystem", None), getattr(fragment, "path", "")
        while system is not None and system.type_name == "subtree":
            system, path = system.base_fs, f"{system.base_path}/{path}"
        kind = "memory" if system is None else system.type_name.rpartition("+")[2]  # "py::fsspec+s3"
        if kind not in {"local", "file"}:
            path = f"{kind if kind in _STORES else 'unknown'}://{path}"
        files.append(path)
    return files


def names_of_csv(dataset: Any) -> tuple[str, ...]:  # noqa: ANN401
    """Return the names that a pyarrow dataset gives to the columns of its CSV files; none where the files have them."""
    scan = getattr(getattr(dataset, "format", None), "default_fragment_scan_options", None)
    return tuple(getattr(getattr(scan, "read_options", None), "column_names", ()))
