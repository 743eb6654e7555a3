"""Plans before `protect`: what a LazyFrame already does to the rows.

A private frame counts on one person's rows being there whatever the others' are. A plan that carries a `head`, a
`unique`, an aggregation or a window breaks that before the frame begins. Polars shows a plan node by node, with
what is in memory left where it is, to engines that translate it (`LazyFrame.visit`, made for the GPU); what it does
not show is refused.
"""

from __future__ import annotations

import io
import json
import os
import re
import stat
from itertools import pairwise
from pathlib import Path
from posixpath import normpath
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import unquote, urlsplit
from urllib.request import url2pathname

import polars as pl
from polars import exceptions

from dp_polars._rowwise import steps, trials
from dp_polars._rowwise.gate import ALONE, Gate, divides_floats
from dp_polars._rowwise.steps import Step, bases

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

# Nodes that keep, drop, order or change rows one by one, if their expressions do.
_BY_ROW = frozenset({"Cache", "Filter", "HStack", "Select", "SimpleProjection", "Sort", "Union"})
_MAPS = frozenset({"rechunk", "unnest"})
_MAPS_TO_SEVERAL = frozenset({"explode", "unpivot"})
_WORDS = {
    "Distinct": "unique",
    "ExtContext": "with_context",
    "GroupBy": "group_by",
    "HConcat": "a horizontal concat",
    "Join": "a join",
    "MergeSorted": "merge_sorted",
    "PythonScan": "a Python source",
    "Slice": "head, tail or slice",
    "fill_null_with_strategy": "fill_null with a strategy",
    "hint_sorted": "set_sorted",
}

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

_REMOTE = re.compile(r"(?!file:)[a-z][a-z0-9+.-]+://", re.IGNORECASE)
# Stores of objects without links: two keys of one bucket are two objects.
_STORES = frozenset({"abfs", "abfss", "adl", "az", "azure", "gcs", "gs", "s3", "s3a"})

_STRICT_CAST = 0
# Whether a function raises on a value that does not fit, from its parameters and inputs as a plan shows them.
_STRICT: dict[str, Callable[[Sequence[Any], Sequence[int]], bool]] = {
    "arr.get": lambda parameters, _: not parameters[0],
    "dt.replace_time_zone": lambda parameters, _: parameters[0] not in {None, "UTC"},
    "list.gather": lambda parameters, _: not parameters[0],
    "list.get": lambda parameters, _: not parameters[0],
    "replace_strict": lambda _, inputs: len(inputs) < 4,
    "str.base64_decode": lambda parameters, _: parameters[0],
    "str.hex_decode": lambda parameters, _: parameters[0],
    "str.strptime": lambda parameters, _: parameters[1],
    "str.to_integer": lambda parameters, _: parameters[0],
}


def refuse_unsafe_plan(frame: pl.LazyFrame, *, several_rows: bool = False) -> None:
    """Refuse a plan in which one row may depend on other rows.

    Scans (files, memory, pyarrow datasets without a filter), row-by-row projections, filters and sorts pass. A sort
    passes because a private frame takes no notice of the order of rows. What a plan does not show stays the caller's
    word: that no file was made by such a step, that a CSV file's inferred schema is public, that no file changes
    between this look and the release. Casts and parsers that raise on what does not fit are refused; that no other
    step raises on a row is the caller's word, too.

    Parameters
    ----------
    frame
        The plan. Nothing is run; what it holds in memory is neither copied nor read.
    several_rows
        Whether a person may have several rows. Only then may a plan make several rows out of one, be a vertical
        concat, or read a file twice.

    Raises
    ------
    ValueError
        If the plan has a step that may look at other rows, one that raises on what does not fit, or one that Polars
        does not show; if it may read a file twice; or if its columns can't be found out.
    """
    plan = _visited(frame)
    gate = _PlanGate(plan, several_rows=several_rows)
    gate.check_node(plan.get_node())
    gate.check_hidden_scans(frame)
    if not several_rows:
        # A plan shows what Polars made of a concat: since Polars 2 that is one scan of all files.
        refuse_repeated_files(gate.files)


def _visited(frame: pl.LazyFrame) -> Any:  # noqa: ANN401
    """Return the plan as Polars shows it. This resolves the schema once and for all: Polars keeps it."""
    # The optimizer would hide steps: a head on a frame in memory becomes a shorter frame.
    unoptimized = pl.QueryOptFlags.none()._pyoptflags
    try:
        return frame._ldf.with_optimizations(unoptimized).visit()
    except _PUBLIC_ERRORS:
        raise
    except (Exception, exceptions.PanicException):
        pass
    # Raised here, where no exception with private values is its context.
    msg = (
        "the columns of private rows must be known before the rows are read, but Polars could not find them out. Its "
        "message may hold values of rows and is not shown.\n\n"
        "Hint: check that the path names files of the right format, and give the schema: "
        'pl.scan_ndjson("visits.ndjson", schema={"age": pl.Int64}).'
    )
    raise ValueError(msg)


class _PlanGate(Gate):
    def __init__(self, plan: Any, *, several_rows: bool) -> None:  # noqa: ANN401
        super().__init__("The plan given to protect")
        self.plan = plan
        self.several_rows = several_rows
        self.hidden = ""
        self.files: list[str] = []
        self.in_memory = False

    def check(self, step: Step, rows: Sequence[bool]) -> None:
        super().check(step, rows)
        if step.kind == "cast":
            raises = not trials.fits(*step.inputs[0].dtypes(), *step.dtypes(), strict=step.strict)
        else:
            raises = step.strict or (step.kind == "operator" and pl.Decimal in bases(step))
        if raises:
            raise self.refusal(step, "which raises on some values", "do it after protect.")
        if divides_floats(step, rows) and not rows[1]:
            raise self.refusal(step, ALONE, "divide after protect.")

    def check_node(self, number: int) -> None:
        """Refuse the node, or one that it reads from."""
        self.plan.set_node(number)
        inputs = self.plan.get_inputs()
        try:
            node = self.plan.view_current_node()
        except NotImplementedError as error:
            self.hidden = f"a step that Polars does not show ({error})"
            if inputs:
                self._refuse(self.hidden)
            return
        self._check_kind(node)
        expressions = self.plan.get_exprs()
        for value in inputs:
            self.check_node(value)
        if inputs:
            self.plan.set_node(inputs[0])  # whose columns the expressions are on
        for expression in expressions:
            step = self._read(expression.node)
            if not self.has_rows(step) and type(node).__name__ == "Sort":
                raise self.refusal(step, "which sorts by a constant")

    def check_hidden_scans(self, frame: pl.LazyFrame) -> None:
        """Refuse a scan that skips rows, where only the plan's JSON shows it (IPC; Hive before Polars 2)."""
        if not self.hidden:
            return
        file = io.BytesIO()
        try:
            if self.in_memory:  # which JSON would hold in full
                self._refuse(self.hidden)
            frame._ldf.serialize_json(file)
        except exceptions.ComputeError:
            self._refuse(self.hidden)
        for scan in _scans(json.loads(file.getvalue())):
            if not {"Ipc", "Parquet"}.issuperset(scan["scan_type"]):
                self._refuse(self.hidden)
            options = scan["unified_scan_args"]
            self._check_rows(options["pre_slice"], options["row_index"])
            if not self.several_rows:
                self.files += _files_of_scan(scan)

    def _check_kind(self, node: Any) -> None:  # noqa: ANN401
        kind = type(node).__name__
        if kind == "MapFunction":
            name = node.function[0]
            if name not in _MAPS | (_MAPS_TO_SEVERAL if self.several_rows else frozenset()):
                self._refuse(_WORDS.get(name, name))
        elif kind == "Scan":
            self._check_files(node.paths)
            self._check_rows(node.file_options.n_rows, node.file_options.row_index)
            if node.scan_type[0] == "csv":
                self._check_csv(json.loads(node.scan_type[1]))
        elif kind == "DataFrameScan":
            self.in_memory = True
        elif kind == "PythonScan" and (dataset := _dataset_of(node.options[0])) is not None:
            refuse_filter_of_arrow(dataset)
            if not self.several_rows:
                self.files += files_of_arrow(dataset)
        elif kind == "PythonScan" and _module_of(node.options[0]).startswith("polars.io.iceberg."):
            pass
        elif kind == "Union" and not self.several_rows:
            way_out = "concat frames before lazy(), scan several files at once, or name the privacy unit."
            raise self.refusal(Step("unknown", "a concat", (), list), "which may hold a row twice", way_out)
        elif kind not in _BY_ROW or getattr(node, "slice", None) is not None:
            self._refuse(_WORDS.get(kind, kind))

    def _check_files(self, paths: Sequence[object]) -> None:
        """Note the files; say that one is not there before anything is paid for it."""
        for path in map(str, paths):
            self.files.append(path)
            if not re.search(r"://|[*?\[]", path) and not Path(path).exists():
                msg = f"the plan given to protect must read files that are there, got {path!r}."
                raise FileNotFoundError(msg)

    def _check_csv(self, options: dict[str, Any]) -> None:
        skips = ["skip_rows_after_header", *(() if options["has_header"] else ("skip_rows", "skip_lines"))]
        for name in skips:
            if options[name]:
                self._refuse(f"a scan with {name}")

    def _check_rows(self, n_rows: object, row_index: object) -> None:
        if n_rows is not None:
            self._refuse("a scan with n_rows")
        if row_index is not None:
            self._refuse("a scan with a row index")

    def _refuse(self, name: str) -> NoReturn:
        way_out = "protect the frame first; filter, with_columns, select and join come after it."
        raise self.refusal(Step("unknown", name, (), list), "which may look at other rows", way_out) from None

    def _read(self, number: int) -> Step:
        """Return an expression of the plan as steps."""

        def step(kind: str, name: str, *inputs: int, parameters: object = None, strict: bool = False) -> Step:
            values = [self._read(value) for value in inputs]
            return Step(kind, name, values, lambda: [self.plan.get_dtype(number)], parameters, strict=strict)

        try:
            view = self.plan.view_expression(number)
        except NotImplementedError as error:
            return step("unknown", f"a step that Polars does not show ({error})")
        match type(view).__name__:
            case "Column":
                return step("column", "a column")
            case "Literal":
                series = type(view.value).__name__ == "PySeries"
                return step("series", "a Series") if series else step("literal", "a literal")
            case "Ternary":
                return step("other", "when", view.predicate, view.truthy, view.falsy)
            case "BinaryExpr":
                operator = str(view.op).removeprefix("Operator.")
                return step("operator", steps.operator_name(operator), view.left, view.right)
            case "Cast":
                return step("cast", "cast", view.expr, strict=view.options == _STRICT_CAST)
            case "Function":
                function, *parameters = view.function_data
                namespace, _, variant = str(function).rpartition(".")  # "StringFunction.Contains" or "abs"
                name = steps.function_name(variant, namespace or None)
                strict = name in _STRICT and _STRICT[name](parameters, view.input)
                return step(
                    "function", name, *view.input, parameters=parameters[0] if parameters else None, strict=strict
                )
            case "Agg":
                return step("unknown", view.name)
            case other:
                return step("unknown", "over" if other == "Window" else steps.function_name(other))


def refuse_filter_of_arrow(dataset: object) -> None:
    """Refuse a pyarrow dataset with a filter of its own.

    Arrow leaves out row groups by their least and largest values, and NaN is in neither: whether one person's NaN is
    read would hang on the others' values.
    """
    if getattr(dataset, "_scan_options", {}).get("filter") is not None:
        msg = "a pyarrow dataset must have no filter of its own.\n\nHint: filter after protect."
        raise ValueError(msg)


def refuse_repeated_files(files: Sequence[str]) -> None:
    """Refuse files, as paths or URLs, of which two may be one: its rows would count twice.

    Local files are told apart by their numbers in the file system, which sees through links and ways of writing a
    path. Files elsewhere are taken for different where they are different objects of one bucket. One name can't
    repeat by itself.
    """
    if any(map(_REMOTE.match, files)):
        different = len(files) == 1 or _are_different_objects(files)
    else:
        different = _are_different_files(files)
    if not different:
        msg = (
            "the plan given to protect must read files that are known to be different where every row is a person, "
            "got some that may be one file.\n\n"
            "Hint: name each file once, without links to it, or name the privacy unit."
        )
        raise ValueError(msg)


def _are_different_files(files: Sequence[str]) -> bool:
    seen: set[tuple[object, ...]] = set()
    for file in files:
        paths = {file}
        if file.lower().startswith("file:"):  # Polars decodes some of them, depending on its version
            paths = {re.sub("^file:(//)?", "", file, flags=re.IGNORECASE), url2pathname(urlsplit(file).path)}
        found = [(path, path.stat()) for path in map(Path, paths) if path.exists()]
        if any(stat.S_ISDIR(status.st_mode) for _, status in found) or (not found and len(files) > 1):
            return False
        # Some file systems of Windows number nothing.
        own = {
            (status.st_dev, status.st_ino) if status.st_ino else (os.path.normcase(path.resolve()),)
            for path, status in found
        }
        if own & seen:
            return False
        seen |= own
    return True


def _are_different_objects(files: Sequence[str]) -> bool:
    parts = [urlsplit(file) for file in files]
    if len({(part.scheme, part.netloc) for part in parts}) > 1 or parts[0].scheme not in _STORES:
        return False
    if any(re.search(r"[*?\[{#]", file) for file in files):
        return False
    keys = sorted(normpath("/" + unquote(part.path).lstrip("/")).rstrip("/") + "/" for part in parts)
    return not any(after.startswith(before) for before, after in pairwise(keys))  # the same, or in a folder


def _files_of_scan(scan: dict[str, Any]) -> list[str]:
    """Return the files of a serialized scan, its patterns and folders resolved where they are local."""
    sources, options = scan["sources"], scan["unified_scan_args"]
    files = []
    for path in sources.get("Paths", []):
        name = next(iter(path.values()))  # {"inner": …}, or before Polars 2 {"Local": …} or {"Cloud": {"uri": …}}
        files.append(name["uri"] if isinstance(name, dict) else name)
    if not files or any(map(_REMOTE.match, files)):
        return files + ["memory://"] * len(sources.get("Buffers", []))
    # With a schema nothing is read, and the format does not matter.
    same = pl.scan_parquet(
        files,
        schema={"": pl.Null},
        glob=options["glob"],
        hidden_file_prefix=options["hidden_file_prefix"],
        hive_partitioning=False,
    )
    return list(map(str, _visited(same).view_current_node().paths))


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


def _module_of(function: object) -> str:
    """Return the module of a function, also of a partial one."""
    return str(getattr(getattr(function, "func", function), "__module__", ""))


def holds_rows(frame: pl.LazyFrame) -> bool:
    """Return whether a plan that passed the gate has rows in memory: whether anything in it is not a scan of files."""
    plan = _visited(frame)
    waiting, hidden = [plan.get_node()], False
    while waiting:
        plan.set_node(waiting.pop())
        waiting += plan.get_inputs()
        try:
            node = plan.view_current_node()
        except NotImplementedError:  # a scan of IPC files, or of what is in memory
            hidden = True
            continue
        kind = type(node).__name__
        if kind == "DataFrameScan" or (
            kind == "PythonScan" and type(_dataset_of(node.options[0])).__name__ != "FileSystemDataset"
        ):
            return True
    if not hidden:
        return False
    file = io.BytesIO()
    try:
        frame._ldf.serialize_json(file)
    except exceptions.ComputeError:
        return True
    return any(set(scan["sources"]) != {"Paths"} for scan in _scans(json.loads(file.getvalue())))


def _dataset_of(function: Any) -> object:  # noqa: ANN401
    """Return the pyarrow dataset that a Python source reads, None if it is no such source of Polars."""
    return function.args[0] if _module_of(function) == "polars.io.pyarrow_dataset.anonymous_scan" else None


def _scans(tree: object) -> Iterator[Any]:
    """Yield every scan of a serialized plan."""
    if isinstance(tree, dict):
        if "unified_scan_args" in tree:
            yield tree
        tree = list(tree.values())
    if isinstance(tree, list):
        for value in tree:
            yield from _scans(value)
