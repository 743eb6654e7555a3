"""What Polars shows of a plan before it is run.

It shows a plan node by node, with what is in memory left where it is, to engines that translate it
(`LazyFrame.visit`, made for the GPU). The JSON of a plan shows more; what is in memory is left out of it.
"""

from __future__ import annotations

import io
import json
import re
from typing import TYPE_CHECKING, Any

import polars as pl
from polars import exceptions

if TYPE_CHECKING:
    from collections.abc import Iterator

# How the bytes of a frame begin in JSON.
_BEGIN = b'"df":['
# What resolving a schema raises about paths, names and types, which are public. Everything else may quote a row.
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
    """Return the plan as Polars shows it. This resolves the schema once and for all: Polars keeps it."""
    # The optimizer would hide steps: a head on a frame in memory becomes a shorter frame.
    unoptimized = pl.QueryOptFlags.none()._pyoptflags
    try:
        # Polars 2.1 never returns from a visit to what Python resolves.
        unresolved = re.search(r"^\s*PythonDataset SCAN \[", frame._ldf.describe_plan(), re.MULTILINE)
        if unresolved is None:
            return frame._ldf.with_optimizations(unoptimized).visit()
    except _PUBLIC_ERRORS:
        raise
    except (Exception, exceptions.PanicException):
        unresolved = None
    if unresolved is not None:
        msg = (
            "protect: a Delta or Iceberg table shows its files only when Polars reads it (in `pl.scan_delta` or "
            "`pl.scan_iceberg`).\n\nHint: scan it through Arrow: "
            "pl.scan_pyarrow_dataset(DeltaTable(…).to_pyarrow_dataset()) for Delta, "
            "release(table.scan().to_arrow_batch_reader()) for Iceberg."
        )
        raise ValueError(msg)
    # Raised here, where no exception with private values is its context.
    msg = (
        "the columns of private rows must be known before the rows are read, but Polars could not find them out. Its "
        "message may hold values of rows and is not shown.\n\n"
        "Hint: check that the path names files of the right format, and give the schema: "
        'pl.scan_ndjson("visits.ndjson", schema={"age": pl.Int64}).'
    )
    raise ValueError(msg)


def holds_rows(frame: pl.LazyFrame) -> bool:
    """Return whether a plan that passed the gate has rows in memory: whether anything in it is not a scan of files."""
    hidden = False
    for plan in nodes(frame):
        kind = kind_of(plan)
        hidden |= kind is None
        if kind == "DataFrameScan" or (
            kind == "PythonScan"
            and type(dataset_of(plan.view_current_node().options[0])).__name__ != "FileSystemDataset"
        ):
            return True
    if not hidden:
        return False
    scans = serialized_scans(frame)
    return scans is None or any(set(scan["sources"]) != {"Paths"} for scan in scans)


def columns_of_scans(frame: pl.LazyFrame) -> list[list[tuple[str, pl.DataType]]]:
    """Return the columns of each source of a plan, in their order."""
    return [list(plan.get_schema().items()) for plan in nodes(frame) if not plan.get_inputs()]


def holds_python_or_memory(frame: pl.LazyFrame) -> bool:
    """Return whether a plan has a source that is read by Python, or rows in memory."""
    return bool({kind_of(plan) for plan in nodes(frame)} & {"DataFrameScan", "PythonScan"})


def nodes(frame: pl.LazyFrame) -> Iterator[Any]:
    """Yield the plan as Polars shows it, at one node after the other."""
    plan = visited(frame)
    waiting = [plan.get_node()]
    while waiting:
        plan.set_node(waiting.pop())
        waiting += plan.get_inputs()
        yield plan


def kind_of(plan: Any) -> str | None:  # noqa: ANN401
    """Return what a node is; None for a scan of IPC files, or of what is in memory."""
    try:
        return type(plan.view_current_node()).__name__
    except NotImplementedError:
        return None


def read_anew(frame: pl.LazyFrame) -> pl.LazyFrame:
    """Return the same plan, which holds no rows, without what Polars found out of its files."""
    return pl.LazyFrame.deserialize(io.BytesIO(frame.serialize()))


def module_of(function: object) -> str:
    """Return the module of a function, also of a partial one."""
    return str(getattr(getattr(function, "func", function), "__module__", ""))


def dataset_of(function: Any) -> object:  # noqa: ANN401
    """Return the pyarrow dataset that a Python source reads, None if it is no such source of Polars."""
    return function.args[0] if module_of(function) == "polars.io.pyarrow_dataset.anonymous_scan" else None


def serialized(frame: pl.LazyFrame) -> Any:  # noqa: ANN401
    """Return a plan as JSON shows it, without the rows that it holds in memory; None if JSON can't hold the plan."""
    file = _WithoutRows()
    try:
        frame._ldf.serialize_json(file)
    except exceptions.ComputeError:
        return None
    return _as_written(json.loads(file.getvalue()))


def _as_written(tree: Any) -> Any:  # noqa: ANN401
    """Return a plan's JSON without a wrapper that says what was found out of it already."""
    if isinstance(tree, dict):
        if tree.keys() == {"IR"} and "dsl" in tree["IR"]:
            return _as_written(tree["IR"]["dsl"])
        return {key: _as_written(value) for key, value in tree.items()}
    return [*map(_as_written, tree)] if isinstance(tree, list) else tree


class _WithoutRows(io.BytesIO):
    """Takes a plan as JSON, and leaves the bytes of frames out: `"df":[255,…]`."""

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
            # In a text, quotes are escaped.
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
    """Return every scan of a plan as JSON shows it; None if JSON can't hold the plan."""
    tree = serialized(frame)
    return None if tree is None else list(_scans(tree))


def _scans(tree: object) -> Iterator[Any]:
    """Yield every scan of a serialized plan."""
    if isinstance(tree, dict):
        if "unified_scan_args" in tree:
            yield tree
        tree = list(tree.values())
    if isinstance(tree, list):
        for value in tree:
            yield from _scans(value)
