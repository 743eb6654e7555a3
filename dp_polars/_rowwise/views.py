"""What Polars shows of a plan before it is run.

It shows a plan node by node, with what is in memory left where it is, to engines that translate it
(`LazyFrame.visit`, made for the GPU). The JSON of a plan shows more, but holds what is in memory in full.
"""

from __future__ import annotations

import io
import json
import re
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl
from polars import exceptions

from dp_polars._rowwise import plan_rules, trials

if TYPE_CHECKING:
    from collections.abc import Iterator

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
        raise ValueError(plan_rules.UNRESOLVED.message("protect", "a Delta or Iceberg table"))
    # Raised here, where no exception with private values is its context.
    msg = (
        "the columns of private rows must be known before the rows are read, but Polars could not find them out. Its "
        "message may hold values of rows and is not shown.\n\n"
        "Hint: check that the path names files of the right format, and give the schema: "
        'pl.scan_ndjson("visits.ndjson", schema={"age": pl.Int64}).'
    )
    raise ValueError(msg)


def raises_on_twins(frame: pl.LazyFrame, place: int) -> bool:
    """Return whether a join of a plan, one of several, raises where each side has two rows of the same values.

    `join(validate=…)` shows in no node. So the plan is run without its rows: with two synthetic ones in the place of
    each source, and of both inputs of that join.
    """
    asked, read = set[int](), set[int]()

    def replace(plan: Any, *_: object) -> None:  # noqa: ANN401
        joins, waiting, sources = 0, [plan.get_node()], list[int]()
        while waiting:
            number = waiting.pop()
            plan.set_node(number)
            inputs = plan.get_inputs()
            joins += kind_of(plan) == "Join"
            if not asked and joins == place + 1:
                asked.update(inputs)
                sources += inputs
            elif inputs:
                waiting += inputs
            else:
                sources.append(number)
        for number in sources:
            plan.set_node(number)
            plan.set_udf(partial(twins, pl.Schema(plan.get_schema()), number))

    def twins(schema: pl.Schema, number: int, *_: object) -> pl.DataFrame:
        read.add(number)
        plain = {name: dtype for name, dtype in schema.items() if plan_rules.is_plain(dtype)}
        values = [trials.extremes(dtype)[1:2].alias(name) for name, dtype in plain.items()]
        rows = pl.DataFrame(schema=schema).clear(1).with_columns(value for value in values if len(value))
        return pl.concat([rows, rows])

    try:
        frame._ldf.with_optimizations(pl.QueryOptFlags.none()._pyoptflags).collect("in-memory", replace)
    except (exceptions.PolarsError, exceptions.PanicException):
        return True
    return not asked or not asked <= read


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


def serialized_scans(frame: pl.LazyFrame) -> list[Any] | None:
    """Return every scan of a plan as JSON shows it, with all that is in memory; None if JSON can't hold the plan."""
    file = io.BytesIO()
    try:
        frame._ldf.serialize_json(file)
    except exceptions.ComputeError:
        return None
    return list(_scans(json.loads(file.getvalue())))


def _scans(tree: object) -> Iterator[Any]:
    """Yield every scan of a serialized plan."""
    if isinstance(tree, dict):
        if "unified_scan_args" in tree:
            yield tree
        tree = list(tree.values())
    if isinstance(tree, list):
        for value in tree:
            yield from _scans(value)
