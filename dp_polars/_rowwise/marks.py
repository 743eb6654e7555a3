"""Where private rows lie, in words that no row decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dp_polars._rowwise.files import files_of_arrow, files_of_scan, mark_of_files
from dp_polars._rowwise.views import dataset_of, module_of, serialized_scans, visited

if TYPE_CHECKING:
    import polars as pl


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
