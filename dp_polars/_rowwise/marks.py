"""Where private rows lie, in words that no row decides."""

from __future__ import annotations

import hashlib
import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from polars.exceptions import PanicException, PolarsError

from dp_polars._rowwise.files import files_of_arrow, files_of_scan, mark_of_files
from dp_polars._rowwise.nodes import parts_of
from dp_polars._rowwise.views import dataset_of, kind_of, module_of, nodes, serialized, serialized_scans, visited

if TYPE_CHECKING:
    from collections.abc import Iterable

_ESTIMATE = re.compile(r"ESTIMATED ROWS: \d+")
# What a plan's JSON says of Python code.
_PYTHON = ('"AnonymousFunction":', '"OpaquePython":', '"callback":')


def mark_of(frame: pl.LazyFrame) -> str:
    """Return the kinds of sources of a plan that passed the gate, and what tells its files from others.

    It reads no row, and never the sizes of files: they depend on rows, and the mark is public.
    """
    plan = visited(frame)
    waiting, kinds, files, hidden = [plan.get_node()], set(), [], False
    while waiting:
        plan.set_node(waiting.pop())
        inputs = plan.get_inputs()
        waiting += inputs
        if inputs:
            continue
        try:
            node = plan.view_current_node()
        except NotImplementedError:  # a scan of IPC files, or of what is in memory
            hidden = True
            continue
        kind, found = type(node).__name__, []
        if kind == "Scan":
            found = list(map(str, node.paths))
        elif kind == "PythonScan":
            dataset = dataset_of(node.options[0])
            found = [] if dataset is None else files_of_arrow(dataset)
            if dataset is None:
                kinds.add(module_of(node.options[0]))
                continue
        kinds.add("files" if found else "memory")
        files += found
    if hidden:
        for scan in serialized_scans(frame) or ():
            in_files = bool(scan["sources"].get("Paths"))
            kinds.add("files" if in_files else "memory")
            files += files_of_scan(scan) if in_files else []
    return " and ".join(sorted(kinds)) + (f" {mark_of_files(files)}" if files else "")


def text_of_plan(frame: pl.LazyFrame) -> str | None:
    """Return a digest of a plan: of its steps, constants and files, and of what is in memory the columns alone.

    None where it has no text: it runs Python code, or JSON can't hold it.
    """
    found, shown = [], ""
    for plan in nodes(frame):
        found.append((kind_of(plan), plan.get_schema()))
        if found[-1][0] == "PythonScan" and dataset_of(plan.view_current_node().options[0]) is None:
            return None
    if len(found) == 1 and found[0][0] == "DataFrameScan":
        tree: Any = sorted((name, str(dtype)) for name, dtype in found[0][1].items())
    else:
        tree = serialized(frame)
        # JSON has one word for infinities and NaN. How many rows Polars takes a file to have is left out.
        shown = _ESTIMATE.sub("", frame._ldf.describe_plan())
    text = json.dumps([tree, shown])
    if tree is None or any(word in text for word in _PYTHON):
        return None
    return hashlib.sha256(text.encode()).hexdigest()


def digest_of(frames: Iterable[pl.LazyFrame], key: bytes) -> str | None:
    """Return a keyed digest of all rows that plans hold in memory; "" without any, None where it can't be told.

    It takes no notice of the order of the rows: that of a `group_by`, say, is another one each time.
    """
    found = [
        _sums(pl.DataFrame._from_pydf(plan.view_current_node().df), key)
        for frame in frames
        for plan in nodes(frame)
        if kind_of(plan) == "DataFrameScan"
    ]
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
