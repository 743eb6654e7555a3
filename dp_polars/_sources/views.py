"""Polars' view of a plan: its nodes, its sources with their files, and its text without rows."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import polars as pl
from polars import exceptions
from polars.exceptions import PanicException

from dp_polars._sources.files import REMOTE, STORES
from dp_polars._steps import nodes

# The first characters of a frame's bytes in JSON.
_BEGIN = b'"df":['
# Errors of resolving a schema about paths, names and types, which are public. Other errors may quote a row.
_PUBLIC_ERRORS = (
    FileNotFoundError,
    PermissionError,
    exceptions.ColumnNotFoundError,
    exceptions.DuplicateError,
    exceptions.InvalidOperationError,
    exceptions.SchemaError,
    exceptions.SchemaFieldNotFoundError,
    exceptions.StructFieldNotFoundError,
)


def visited(frame: pl.LazyFrame) -> Any:  # noqa: ANN401
    """Return Polars' view of a plan. This resolves the schema permanently, because Polars caches it."""
    # Without optimizations, which would hide transformations: a head on a frame in memory becomes a shorter frame.
    unoptimized = pl.QueryOptFlags.none()._pyoptflags
    try:
        # Polars 2.1 hangs when it visits a source that Python resolves.
        unresolved = re.search(r"^\s*PythonDataset SCAN \[", frame._ldf.describe_plan(), re.MULTILINE)
        if unresolved is None:
            return frame._ldf.with_optimizations(unoptimized).visit()
    except _PUBLIC_ERRORS:
        raise
    except (Exception, PanicException):
        unresolved = None
    msg = (
        "protect: a Delta or Iceberg table shows its files only when Polars reads it (in `pl.scan_delta` or "
        "`pl.scan_iceberg`).\n\nHint: scan it through Arrow: "
        "pl.scan_pyarrow_dataset(DeltaTable(…).to_pyarrow_dataset()) for Delta, "
        "release(table.scan().to_arrow_batch_reader()) for Iceberg."
    )
    if unresolved is None:
        msg = (
            "the columns of private rows must be known before the rows are read, but Polars could not find them out. "
            f"Its message may hold values of rows and is not shown.\n\nHint: {_way_to_columns(frame)}."
        )
    # Raised here, so that no exception with private values is its context.
    raise ValueError(msg)


# A plan's name for file formats with an optional schema -> their readers.
_READERS = {"Csv": ("scan_csv", "csv"), "NDJson": ("scan_ndjson", "ndjson")}


def _way_to_columns(frame: pl.LazyFrame) -> str:
    """Return a hint for files with columns that Polars can't resolve, by their format."""
    check = "check that the path names files of the right format"
    for scan in serialized_scans(frame) or []:
        (name,) = [*scan["scan_type"]][:1] or [""]
        if name in _READERS:
            reader, ending = _READERS[name]
            return f'{check}, and give the schema: pl.{reader}("visits.{ending}", schema={{"age": pl.Int64}})'
        if name in {"Parquet", "Ipc"}:
            odd = _intervals_of(files_of_scan(scan)) if name == "Parquet" else []
            found = f" ({', '.join(map(repr, odd))} in this one)" if odd else ""
            return (
                f"{check}. Polars reads no file in which a column is an interval or has more than 38 digits{found}: "
                "such a file can be released as a dataset of Arrow, dp_polars.protect(…).agg(…).release("
                f'pyarrow.dataset.dataset("visits.{name.lower()}", format="{name.lower()}"))'
            )
    return f"{check}, and give the schema"


def _intervals_of(files: Iterable[str]) -> list[str]:
    """Return columns of local Parquet files that are intervals, or decimals with too many digits for Polars."""
    from pyarrow import parquet

    found = dict[str, None]()
    for file in files:
        try:
            schema = parquet.ParquetFile(file).schema
        except Exception:
            return []
        columns = map(schema.column, range(len(schema)))
        found |= {one.path: None for one in columns if one.converted_type == "INTERVAL" or one.precision > 38}
    return [*found]


def sources_read(frame: pl.LazyFrame) -> Iterator[tuple[list[str], Any]]:
    """Yield each source's files, and its frame, pyarrow dataset or Python function.

    The latter is None for a scan by Polars. If Polars hides some scans, all scans are yielded once more.
    """
    hidden = False
    for plan in plan_nodes(frame):
        kind = kind_of(plan)
        hidden |= kind is None
        if kind == "Scan":
            yield list(map(str, plan.view_current_node().paths)), None
        elif kind == "DataFrameScan":
            yield [], pl.DataFrame._from_pydf(plan.view_current_node().df)
        elif kind == "PythonScan":
            function = plan.view_current_node().options[0]
            dataset = dataset_of(function)
            yield ([], function) if dataset is None else (files_of_arrow(dataset), dataset)
    scans = serialized_scans(frame) if hidden else []
    for scan in [{"sources": {}}] if scans is None else scans:
        yield files_of_scan(scan) if scan["sources"].get("Paths") else [], None


def holds_rows(frame: pl.LazyFrame) -> bool:
    sources = sources_read(frame)
    return any(not files if of is None else type(of).__name__ != "FileSystemDataset" for files, of in sources)


def columns_of_scans(frame: pl.LazyFrame) -> list[list[tuple[str, pl.DataType]]]:
    return [list(plan.get_schema().items()) for plan in plan_nodes(frame) if not plan.get_inputs()]


def plan_nodes(frame: pl.LazyFrame) -> Iterator[Any]:
    """Yield Polars' view of the plan at each of its nodes."""
    plan = visited(frame)
    waiting = [plan.get_node()]
    while waiting:
        plan.set_node(waiting.pop())
        waiting += plan.get_inputs()
        yield plan


def kind_of(plan: Any) -> str | None:  # noqa: ANN401
    """Return a node's kind. None: a scan of IPC files, or of memory."""
    try:
        return type(plan.view_current_node()).__name__
    except NotImplementedError:
        return None


def module_of(function: object) -> str:
    return str(getattr(getattr(function, "func", function), "__module__", ""))


def dataset_of(function: Any) -> object:  # noqa: ANN401
    """Return the pyarrow dataset that a Python source reads. None: it is no such source."""
    return function.args[0] if module_of(function) == "polars.io.pyarrow_dataset.anonymous_scan" else None


def has_python_source(frame: pl.LazyFrame) -> bool:
    with suppress(Exception, PanicException):  # unreadable files, which raise messages that may contain values
        return re.search(r"^\s*PYTHON", frame._ldf.describe_plan(), re.MULTILINE | re.IGNORECASE) is not None
    return False


def serialized(frame: pl.LazyFrame) -> Any:  # noqa: ANN401
    """Return a plan as JSON, without its rows in memory. None: JSON can't represent the plan."""
    file = _WithoutRows()
    try:
        frame._ldf.serialize_json(file)
    except exceptions.ComputeError:
        return None
    return _as_written(json.loads(file.getvalue()))


def _as_written(tree: Any) -> Any:  # noqa: ANN401
    """Return a plan's JSON without a wrapper for results of resolving it."""
    if isinstance(tree, dict) and tree.keys() == {"IR"} and "dsl" in tree["IR"]:
        return _as_written(tree["IR"]["dsl"])
    return nodes.inside(tree, _as_written)


class _WithoutRows(io.BytesIO):
    """Receives a plan as JSON, and drops the bytes of frames: `"df":[255,…]`."""

    _is_in_rows = False
    _held = b""

    def write(self, text: Any) -> int:  # noqa: ANN401  # bytes
        number, text = len(text), self._held + bytes(text)
        self._held = b""
        while text:
            if self._is_in_rows:
                _, end, text = text.partition(b"]")
                self._is_in_rows = not end
                continue
            # JSON escapes quotes within texts.
            before, begin, text = text.partition(_BEGIN)
            super().write(before if begin else before[: -len(_BEGIN)])
            if begin:
                super().write(b'"df":null')
                self._is_in_rows = True
            else:
                self._held = before[-len(_BEGIN) :]
        return number

    def getvalue(self) -> bytes:
        return super().getvalue() + self._held


def serialized_scans(frame: pl.LazyFrame) -> list[Any] | None:
    """Return every scan of a plan as JSON. None: JSON can't represent the plan."""
    tree = serialized(frame)
    return None if tree is None else list(_scans(tree))


def _scans(tree: object) -> Iterator[Any]:
    if isinstance(tree, dict):
        if "unified_scan_args" in tree:
            yield tree
        tree = list(tree.values())
    for value in tree if isinstance(tree, list) else ():
        yield from _scans(value)


def files_of_scan(scan: dict[str, Any]) -> list[str]:
    """Return the files of a serialized scan, with local patterns and folders resolved."""
    sources, options = scan["sources"], scan["unified_scan_args"]
    files = []
    for path in sources.get("Paths", []):
        name = next(iter(path.values()))  # {"inner": …}, or before Polars 2 {"Local": …} or {"Cloud": {"uri": …}}
        files.append(name["uri"] if isinstance(name, dict) else name)
    if not files or any(map(REMOTE.match, files)):
        return files + ["memory://"] * len(sources.get("Buffers", []))
    # With a schema nothing is read, and the format does not matter.
    given = {name: options[name] for name in ("glob", "hidden_file_prefix")}
    same = pl.scan_parquet(files, schema={"": pl.Null}, hive_partitioning=False, **given)
    return list(map(str, visited(same).view_current_node().paths))


def files_of_arrow(dataset: Any) -> list[str]:  # noqa: ANN401
    if type(dataset).__name__ == "InMemoryDataset":
        return []
    files = []
    for fragment in dataset.get_fragments():
        system, path = getattr(fragment, "filesystem", None), getattr(fragment, "path", "")
        while system is not None and system.type_name == "subtree":
            system, path = system.base_fs, f"{system.base_path}/{path}"
        kind = "memory" if system is None else system.type_name.rpartition("+")[2]  # "py::fsspec+s3"
        if kind not in {"local", "file"}:
            path = f"{kind if kind in STORES else 'unknown'}://{path}"
        files.append(path)
    return files


def names_of_csv(dataset: Any) -> tuple[str, ...]:  # noqa: ANN401
    """Return a pyarrow dataset's names for the columns of its CSV files; none if the files have names."""
    scan = getattr(getattr(dataset, "format", None), "default_fragment_scan_options", None)
    return tuple(getattr(getattr(scan, "read_options", None), "column_names", ()))
