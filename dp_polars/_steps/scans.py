"""Private rows as Polars plans: what a plan reads, whose a row is, its key, parts of the people, and how plans are run.

What it reads are its views, files and scans, with marks that tell them from others.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import combinations, pairwise, product
from operator import and_, xor
from pathlib import Path
from posixpath import normpath
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args
from urllib.parse import unquote, urlsplit

import numpy as np
import polars as pl
from polars import exceptions
from polars.exceptions import PanicException, PolarsError

from dp_polars._base import column_types
from dp_polars._base.column_types import PrivacyUnit, parts_of
from dp_polars._base.numbers import given, one_of
from dp_polars._base.progress import at, is_terminal
from dp_polars._steps import nodes
from dp_polars._steps.preparations import TWICE, refuse
from dp_polars._steps.whole_numbers import of_one_kind

if TYPE_CHECKING:
    from polars._typing import EngineType


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
    # Raised here, where no exception with private values is its context.
    raise ValueError(msg)


def unflagged(frame: pl.LazyFrame) -> pl.LazyFrame:
    """Return the rows of a plan without sorted flags, as `column_types.without_flags` does.

    Parquet files whose footers name no sorting columns bring none: a scan of them stays, so that filters may enter it.
    """
    plan = visited(frame)
    while kind_of(plan) == "Filter":
        plan.set_node(*plan.get_inputs())
    is_scan = kind_of(plan) == "Scan" and plan.view_current_node().scan_type[0] == "parquet"
    if is_scan and names_sorting_columns(list(map(str, plan.view_current_node().paths))) is False:
        return frame
    return column_types.without_flags(frame)


def names_sorting_columns(files: Iterable[str]) -> bool | None:
    """Return whether the footer of a Parquet file names columns that Polars then takes for sorted; None: not known."""
    from pyarrow import parquet

    is_known = True
    for file in files:
        try:
            footer = None if REMOTE.match(file) else parquet.read_metadata(file)
        except Exception:  # encrypted, say
            footer = None
        if footer is None:
            is_known = False
        elif any(footer.row_group(number).sorting_columns for number in range(footer.num_row_groups)):
            return True
    return False if is_known else None


def rows_of_joined(frame: pl.LazyFrame) -> int | None:
    """Return how many rows the tables have that a plan joins; None: it joins none, or that is not known so easily.

    To count what a join gives takes as long as to run it.
    """
    from pyarrow import parquet

    rows, joins = 0, False
    try:
        for plan in plan_nodes(frame):
            node = None if plan.get_inputs() else plan.view_current_node()
            joins |= kind_of(plan) == "Join"
            if kind_of(plan) == "DataFrameScan" and node is not None:
                rows += pl.DataFrame._from_pydf(node.df).height
            elif node is not None:
                rows += sum(parquet.read_metadata(str(path)).num_rows for path in node.paths)
    except Exception:  # other files, those elsewhere, what is encrypted
        return None
    return rows if joins else None


def with_clean_memory(frame: pl.LazyFrame) -> pl.LazyFrame:
    """Return a plan that finds no sorted flags in the frames that it holds in memory.

    If steps could meet some, it is run. A plan can't be changed, but Polars' in-memory engine lets a function stand for
    a source.
    """
    number, is_flagged = 0, False
    for plan in plan_nodes(frame):
        number += 1
        is_flagged |= kind_of(plan) == "DataFrameScan" and _has_flags(
            pl.DataFrame._from_pydf(plan.view_current_node().df)
        )
    if not is_flagged or number == 1:
        return frame
    ldf = frame._ldf.with_optimizations(NO_FILTER_IN_SCANS._pyoptflags)
    return pl.DataFrame._from_pydf(ldf.collect("in-memory", _clean)).lazy()


def _has_flags(rows: pl.DataFrame) -> bool:
    return any(flags.get("SORTED_ASC") or flags.get("SORTED_DESC") for flags in rows.flags.values())


def _clean(plan: Any, *_: object) -> None:  # noqa: ANN401
    """Let frames without sorted flags stand in a plan for those that it holds in memory."""
    waiting = [plan.get_node()]
    while waiting:
        plan.set_node(waiting.pop())
        waiting += plan.get_inputs()
        if kind_of(plan) == "DataFrameScan":
            rows = pl.DataFrame._from_pydf(plan.view_current_node().df).select(list(plan.get_schema()))
            plan.set_udf(partial(_first, column_types.without_flags(rows)))


def _first(rows: pl.DataFrame, *_: object) -> pl.DataFrame:
    return rows


# How a plan names the formats of files whose schema may be given -> what reads them.
_READERS = {"Csv": ("scan_csv", "csv"), "NDJson": ("scan_ndjson", "ndjson")}


def _way_to_columns(frame: pl.LazyFrame) -> str:
    """Return what to do where Polars does not find out the columns of a plan's files, by their format."""
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
    """Return columns of local Parquet files that are intervals, or decimals of more digits than Polars has."""
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
    """Yield of each source of a plan its files, and the frame, pyarrow dataset or Python function that it is.

    That is None of a scan by Polars. Where Polars shows no scan of some, all scans come once more.
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


def module_of(function: object) -> str:
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
    if isinstance(tree, dict) and tree.keys() == {"IR"} and "dsl" in tree["IR"]:
        return _as_written(tree["IR"]["dsl"])
    return nodes.inside(tree, _as_written)


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
    if isinstance(tree, dict):
        if "unified_scan_args" in tree:
            yield tree
        tree = list(tree.values())
    for value in tree if isinstance(tree, list) else ():
        yield from _scans(value)


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
            path = f"{kind if kind in _STORES else 'unknown'}://{path}"
        files.append(path)
    return files


def names_of_csv(dataset: Any) -> tuple[str, ...]:  # noqa: ANN401
    """Return the names that a pyarrow dataset gives to the columns of its CSV files; none where the files have them."""
    scan = getattr(getattr(dataset, "format", None), "default_fragment_scan_options", None)
    return tuple(getattr(getattr(scan, "read_options", None), "column_names", ()))


_COMPARISONS = frozenset({"==", "<", "<=", ">", ">="})


def may_filter_scans(rows: pl.LazyFrame) -> bool:
    """Return whether each filter of a plan may be moved into a scan: it compares plainly, and stands right above one.

    Polars moves filters through other steps, and rewrites them there: so one that stands elsewhere keeps all where they
    are. A plan without filters has none to move.
    """
    plan = visited(rows)
    return _is_safe(plan, plan.get_node())


def _is_safe(plan: Any, number: int, *, filtered: bool = False) -> bool:  # noqa: ANN401
    """Return the same of what is below a node; `filtered` says that a filter stands right above it."""
    plan.set_node(number)
    kind = kind_of(plan)
    if kind is None:
        return False
    inputs, exprs = plan.get_inputs(), plan.get_exprs()
    is_parquet = kind == "Scan" and plan.view_current_node().scan_type[0] == "parquet"
    if filtered and kind != "Filter" and not is_parquet:
        return False
    if kind == "Filter":
        plan.set_node(inputs[0])  # whose columns the expression is on
        if not all(_is_plain(plan, expr.node) for expr in exprs):
            return False
    return all(_is_safe(plan, value, filtered=kind == "Filter") for value in inputs)


def _is_plain(plan: Any, number: int) -> bool:  # noqa: ANN401
    """Return whether an expression compares columns with constants of their types, once or more often."""
    try:
        view = plan.view_expression(number)
    except NotImplementedError:
        return False
    if type(view).__name__ != "BinaryExpr":
        return False
    operator = nodes.operator_name(str(view.op))
    if operator == "&":
        return _is_plain(plan, view.left) and _is_plain(plan, view.right)
    kinds = {type(plan.view_expression(side)).__name__ for side in (view.left, view.right)}
    types = [plan.get_dtype(side) for side in (view.left, view.right)]
    is_plain = types[0] == types[1] and types[0] != pl.Boolean and is_equal_by_value(types[0])
    return operator in _COMPARISONS and kinds == {"Column", "Literal"} and is_plain


_ESTIMATE = re.compile(r"ESTIMATED ROWS: \d+")
# What a plan's JSON says of Python code.
_PYTHON = ('"AnonymousFunction":', '"OpaquePython":', '"callback":')


def mark_of(frame: pl.LazyFrame) -> str:
    """Return the kinds of sources of a plan that passed the gate, and what tells its files from others.

    It reads no row, and never the sizes of files: they depend on rows, and the mark is public.
    """
    kinds, files = set(), []
    for found, of in sources_read(frame):
        kinds.add(module_of(of) if callable(of) else "files" if found else "memory")
        files += found
    return " and ".join(sorted(kinds)) + (f" {mark_of_files(files)}" if files else "")


def text_of_plan(frame: pl.LazyFrame) -> str | None:
    """Return a digest of a plan: of its steps, constants and files, and of what is in memory the columns alone.

    None where it has no text: it runs Python code, or JSON can't hold it.
    """
    found, shown = [], ""
    for plan in plan_nodes(frame):
        found.append(kind_of(plan))
        if found[-1] == "PythonScan" and dataset_of(plan.view_current_node().options[0]) is None:
            return None
    if found == ["DataFrameScan"]:
        tree: Any = sorted((name, str(dtype)) for name, dtype in plan.get_schema().items())
    else:
        tree = serialized(frame)
        # JSON has one word for infinities and NaN. How many rows Polars takes a file to have is left out.
        shown = _ESTIMATE.sub("", frame._ldf.describe_plan())
    text = json.dumps([tree, shown])
    if tree is None or any(word in text for word in _PYTHON):
        return None
    return hashlib.sha256(text.encode()).hexdigest()


def digest_of(frame: pl.LazyFrame, key: bytes) -> str | None:
    """Return a keyed digest of all rows that a plan holds in memory; "" without any, None where it can't be told.

    It takes no notice of the order of the rows: that of a `group_by`, say, is another one each time.
    """
    found = [_sums(of, key) for _, of in sources_read(frame) if isinstance(of, pl.DataFrame)]
    if None in found:
        return None
    return hashlib.blake2b(repr(found).encode(), key=key, digest_size=32).hexdigest() if found else ""


def _sums(rows: pl.DataFrame, key: bytes) -> tuple[int, ...] | None:
    """Return the number of rows, and two sums of hashes of them under the key."""
    texts = [pl.col(name).cast(pl.String) for name, dtype in rows.schema.items() if isinstance(dtype, pl.Categorical)]
    nested = [dtype for dtype in rows.dtypes if not isinstance(dtype, pl.Categorical)]
    if any(isinstance(part, (pl.Categorical, pl.Object)) for dtype in nested for part in parts_of(dtype)):
        return None  # categories are numbered anew by each process
    seeds = np.frombuffer(hashlib.blake2b(key, digest_size=16).digest(), np.uint64)
    try:
        compared = rows.with_columns(texts).select(sorted(rows.columns))
        sums = [int(compared.hash_rows(int(seed)).to_numpy().sum(dtype=np.uint64)) for seed in seeds]
    except (PolarsError, PanicException):
        return None
    return rows.height, *sums


@dataclass(frozen=True, eq=False)
class Reading:
    """One place where a table is read: its files, or a frame, an Arrow table or a dataset in memory.

    `order` are the columns of a CSV file in their order, where the reader may have named them. `columns` are those that
    say whose a row is, in the order of the privacy unit; `computed_by`: by what texts it is computed of them, if it is.
    None: nothing says it, or it is not known yet; `is_of_facts`: the table is joined to people's rows by other columns.
    """

    files: tuple[str, ...] = ()
    memory: Any = None
    order: tuple[str, ...] = ()
    columns: tuple[str, ...] | None = None
    computed_by: object = None
    is_of_facts: bool = False

    def may_be_one_with(self, other: Reading) -> bool:
        if self.files and other.files:
            return not are_different([*dict.fromkeys(self.files), *dict.fromkeys(other.files)])
        if self.memory is None or other.memory is None:
            return False
        return self.memory is other.memory or not all_places(self.memory).isdisjoint(all_places(other.memory))

    def has_unit_of(self, other: Reading) -> bool:
        """Return whether the same columns say whose a row is, if both read one table."""
        if self.is_of_facts or other.is_of_facts:
            return self.is_of_facts and other.is_of_facts
        if self.columns is None or other.columns is None or self.computed_by != other.computed_by:
            return False
        pairs = zip(self.columns, other.columns, strict=False)
        return len(self.columns) == len(other.columns) and all(self._is_column_of(other, *pair) for pair in pairs)

    def _is_column_of(self, other: Reading, name: str, of_other: str) -> bool:
        """Return whether a column is one of another reading, where names may be others: in memory, or of a CSV file."""
        if self.order or other.order:
            return any(pair == (name, of_other) for pair in zip(self.order, other.order, strict=False))
        places, others = _places(self.memory, name), _places(other.memory, of_other)
        return not places.isdisjoint(others) if places and others else name == of_other


def refuse_two_units(places: Iterable[Sequence[Reading]], call: str) -> None:
    """Refuse a table that is read at two of these places if other columns are the privacy unit there."""
    for one, other in (pair for several in combinations(places, 2) for pair in product(*several)):
        if not one.has_unit_of(other) and one.may_be_one_with(other):
            msg = (
                f"{call}: a table that is read twice has one privacy unit: otherwise a row belongs to several people, "
                "and goes with each of them.\n\nHint: take the same columns for the unit, unchanged, wherever the "
                "table is read; rows of the table that is protected can't be joined by other columns."
            )
            raise ValueError(msg)


def _places(table: Any, name: str) -> frozenset[int]:  # noqa: ANN401
    """Return where the values of a column begin in memory, which is also where those of a slice do.

    Where it is null is left out: columns that differ in their values may share that. Nested columns are no unit: all of
    them counts.
    """
    if isinstance(table, pl.DataFrame) and table.schema[name] in (pl.Int128, pl.UInt128):  # Arrow has no such type
        # Where a slice of it begins: it is taken for another column.
        return frozenset(piece._s.as_single_ptr() for piece in table.get_column(name).get_chunks() if len(piece))
    pieces = [] if table is None else _pieces(table, name)
    buffers = (piece.buffers()[1 : None if piece.type.num_fields else 2] for piece in pieces if len(piece))
    return frozenset(buffer.address for several in buffers for buffer in several if buffer)


def all_places(table: Any) -> frozenset[int]:  # noqa: ANN401
    """Return where the values of all columns begin in memory: of a frame, an Arrow table, or a dataset of one."""
    names = table.columns if isinstance(table, pl.DataFrame) else getattr(_of_arrow(table), "column_names", ())
    return frozenset[int]().union(*(_places(table, name) for name in names))


def _of_arrow(table: Any) -> Any:  # noqa: ANN401
    """Return the table of a dataset in memory, without a copy; anything else as it is."""
    return table.to_table() if type(table).__name__ == "InMemoryDataset" else table


def _pieces(table: Any, name: str) -> list[Any]:  # noqa: ANN401
    """Return the pieces of a column as Arrow has them, without a copy; none of a type that Arrow does not have."""
    if not isinstance(table, pl.DataFrame):
        table = _of_arrow(table)
        column = table.column(name) if hasattr(table, "column_names") else None
        return [] if column is None else list(getattr(column, "chunks", [column]))
    column = table.get_column(name)
    if column.dtype == pl.Object:
        return []
    column = column.to_physical() if isinstance(column.dtype, pl.Categorical) else column
    return [piece.to_arrow(compat_level=pl.CompatLevel.newest()) for piece in column.get_chunks()]


# On Polars 1, what stands in a plan twice becomes a column of one chunk. Where rows lie in several chunks, a plan then
# fails or not by one row.
_TWINS = not pl.__version__.startswith("1.")
ANY_FILTER = pl.QueryOptFlags(comm_subexpr_elim=_TWINS)
# In a scan, a filter leaves out row groups by what it gives on their least and largest values: x * 2 > 0 on a group
# with a value so large that it overflows is false, and the group's other rows are gone. NaN may be in neither. Where
# Polars takes a filtered scan that stands in a plan twice for one, it moves the filter all the same. Polars 1 needs
# that: otherwise it loses columns of a scan that is joined with itself.
NO_FILTER_IN_SCANS = pl.QueryOptFlags(comm_subexpr_elim=_TWINS, predicate_pushdown=False, comm_subplan_elim=not _TWINS)


# Public values with which a column is compared one by one, which is then faster than a table of them.
FEW = 8

_Engine: TypeAlias = Literal["auto", "in-memory", "streaming"]
_ENGINES: tuple[_Engine, ...] = get_args(_Engine)
# What Polars takes for "auto" where its settings name no engine. These may name a GPU, or another machine.
_AUTO: EngineType = "in-memory" if pl.__version__.startswith("1.") else "streaming"


def by_name(engine: EngineType) -> EngineType:
    """Return Polars' engine by its name, so that no setting of the process chooses it."""
    return _AUTO if engine == "auto" else engine


def on_cpu(engine: object) -> _Engine:
    """Return the name of an engine on which the steps of private frames were tried."""
    if isinstance(engine, pl.GPUEngine) or (isinstance(engine, str) and engine == "gpu"):
        msg = (
            f"engine must be one of {list(_ENGINES)}, got {given(engine)}: whether a step looks at other rows was "
            "tried on the CPU's engines alone.\n\nHint: leave it out."
        )
        raise ValueError(msg)
    return one_of("engine", engine, _ENGINES)


def is_a_person(unit: PrivacyUnit, schema: pl.Schema, of: Callable[[str], pl.Expr] = pl.col) -> pl.Expr:
    """Return whether a row says whose it is: no column of the unit is null or NaN. `of` gives them by name."""
    return reduce(and_, (column_types.has_value(of(name), schema[name]) for name in unit))


def person_of(unit: PrivacyUnit, schema: pl.Schema) -> pl.Expr:
    """Return what people are grouped by: the column itself, or of several a struct that is equal where all are."""
    if len(unit) == 1:
        return pl.col(unit[0])
    return pl.struct(compared(name, schema) for name in unit)


def is_somebody(unit: PrivacyUnit, schema: pl.Schema) -> pl.Expr:
    person = pl.col("person")
    return is_a_person(unit, schema, (lambda _: person) if len(unit) == 1 else person.struct.field)


def compared(name: str, schema: pl.Schema) -> pl.Expr:
    """Return a column whose equal values are the same to the bit."""
    if isinstance(schema[name], (pl.Categorical, pl.Enum)):
        # The text, because the number of a category may be another one in the next scan.
        return pl.col(name).cast(pl.String)
    return of_one_kind(name, schema[name]) if schema[name].is_float() else pl.col(name)


def in_parts(rows: pl.LazyFrame, unit: PrivacyUnit, partitions: int) -> Iterator[pl.LazyFrame]:
    """Yield the rows in parts, all rows of a person in one of them. A terminal shows at which one the release is."""
    if partitions == 1:
        yield rows
        return
    schema = rows.collect_schema()
    hashes = [compared(name, schema).hash(int.from_bytes(os.urandom(8), "little")) for name in unit]
    part = reduce(xor, hashes) % partitions
    for number in range(partitions):
        if is_terminal():  # what a notebook shows is stored with it, and how many parts there are tells of the rows
            at(number + 2, partitions + 1)  # they were counted first
        yield rows.filter(part == number)


def own_keys(rows: pl.LazyFrame, keys: pl.DataFrame | None) -> list[pl.Expr]:
    names, schema = [] if keys is None else keys.columns, rows.collect_schema()
    return [pl.col(name).cast(column_types.released(schema[name])).alias(f"key {i}") for i, name in enumerate(names)]


def is_equal_by_value(dtype: pl.DataType) -> bool:
    """Return whether `==` on a column and literals of this type finds what is equal to us."""
    is_whole = dtype.is_integer() and not column_types.is_wide(dtype)
    return is_whole or dtype in (pl.Date, pl.String, pl.Boolean)


def with_groups(rows: pl.LazyFrame, keys: pl.DataFrame) -> pl.LazyFrame:
    """Return the rows of listed keys, with the number of their `group` in place of the columns of `own_keys`."""
    names = [f"key {i}" for i in range(keys.width)]
    if keys.height > FEW or not all(map(is_equal_by_value, keys.dtypes)):
        return rows.join(listed(keys), on=names).drop(names)
    # Comparing with few keys is faster than a join, which gathers every column.
    group = pl.lit(None, pl.UInt8)
    for number, key in enumerate(keys.iter_rows()):
        is_key = (pl.col(name) == pl.lit(value, of) for name, value, of in zip(names, key, keys.dtypes, strict=True))
        group = pl.when(reduce(and_, is_key)).then(pl.lit(number, pl.UInt8)).otherwise(group)
    return rows.with_columns(group.alias("group")).drop(names).filter(pl.col("group").is_not_null())


def listed(keys: pl.DataFrame) -> pl.LazyFrame:
    numbered = (pl.col(name).alias(f"key {i}") for i, name in enumerate(keys.columns))
    return keys.lazy().select(numbered).with_row_index("group")


def added_up(parts: Sequence[pl.DataFrame], names: Sequence[str], engine: EngineType) -> pl.DataFrame:
    """Return each combination of these columns once, with the sums of all others over the parts."""
    together = pl.concat(parts).lazy().group_by(names).agg(pl.exclude(names).sum())
    return together.collect(engine=by_name(engine))


def collected(plans: Sequence[pl.LazyFrame], engine: EngineType) -> list[pl.DataFrame]:
    """Return what plans on private rows give. Each plan reads its rows by itself."""
    return pl.collect_all(plans, engine=by_name(engine), optimizations=NO_FILTER_IN_SCANS)
