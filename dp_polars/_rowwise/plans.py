"""Plans before `protect`: what they read, and whether they visibly mix people.

The data set is the table that is handed over. What made it is looked at for slips alone: see `preparations`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from dp_polars._rowwise import preparations as kinds
from dp_polars._rowwise.files import (
    files_of_arrow,
    files_of_scan,
    identities,
    names_of_csv,
    refuse_repeated_files,
)
from dp_polars._rowwise.one_unit import Reading, Whose, refuse_two_units
from dp_polars._rowwise.plan_steps import ASOF, Plan, hidden_mixing, of_rows
from dp_polars._rowwise.preparations import Read, Seen, Step, followed, refuse_mixing
from dp_polars._rowwise.views import (
    columns_of_scans,
    dataset_of,
    holds_python_or_memory,
    read_anew,
    serialized,
    serialized_scans,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dp_polars._rowwise.files import Identity


@dataclass(frozen=True)
class Preparation:
    """What a plan reads, and whether it may give other rows each time: then it is run once, and kept."""

    readings: tuple[Reading, ...]
    varies: bool


def preparation_of(
    frame: pl.LazyFrame,
    keys: tuple[str, ...] | None = None,
    call: str = "protect",
    *,
    is_owned: bool = False,
    unchecked: bool = False,
) -> Preparation:
    """Return what a plan reads; refuse one that visibly mixes people.

    Parameters
    ----------
    frame
        The plan. It is not run on its rows; what it holds in memory is neither copied nor read.
    keys
        The columns that say whose a row is: the privacy unit, or for owned rows those of their join. Empty: not known
        yet, so that the plan must be looked at again. None: every row is a person.
    call
        What the user called, to begin messages with.
    is_owned
        Whether the rows belong to all who name them.
    unchecked
        Whether not to look for what mixes people.

    Raises
    ------
    ValueError
        If the plan visibly mixes people, a file is not there, or its columns can't be found out.
    """
    plan, step = Plan.of(frame)
    readings, seen = _readings(frame, plan)
    seen += _hidden_steps(frame, plan, keys or ())
    if seen:
        step = Step(
            step.columns, (step,), {name: kinds.Origin(0, frozenset([name])) for name in step.columns}, tuple(seen)
        )
    if not all(one.columns for one in step.every):
        msg = f"{call}: a plan without columns loses the number of its rows.\n\nHint: leave one column in."
        raise ValueError(msg)
    if unchecked or keys == ():
        reads = followed(step, keys)
    else:
        reads = refuse_mixing(step, keys, call, lambda one, other: _may_be_one(readings, one, other))
    if keys is None and not unchecked:
        refuse_repeated_files(files_of(readings))
    varies = any(one.seen or one.several == ASOF for one in step.every) or any(
        reading.memory is None and not reading.files for reading in readings
    )
    found = tuple(_with_unit(readings, read, is_owned=is_owned) for read in reads)
    if keys and not unchecked and not is_owned and {*keys} <= {*step.columns}:
        refuse_two_units([[reading] for reading in found], call)
    return Preparation(found, varies)


def files_of(readings: Sequence[Reading]) -> tuple[str, ...]:
    """Return the files of the tables that a plan reads."""
    return tuple(file for reading in readings for file in reading.files)


def refuse_rewritten_files(
    frame: pl.LazyFrame, files: Sequence[str], known: tuple[Identity, ...] | None = None
) -> None:
    """Refuse a plan if its files are others than before: in what they are, or in their columns.

    `known` is what they were at `protect`. Polars may have found out a plan's columns long before, and reads some files
    by the places of the columns. What is in memory is not serialized, so such a plan's columns are not compared.
    """
    is_another = known is not None and identities(files) != known
    if not is_another and files and not holds_python_or_memory(frame):
        is_another = columns_of_scans(read_anew(frame)) != columns_of_scans(frame)
    if is_another:
        msg = (
            "release: a file that was rewritten may have other rows, or other columns, than when it was looked at "
            "(since it was scanned, or since `protect`; another mode, or another link to it, looks the same).\n\n"
            "Hint: scan it anew and protect that."
        )
        raise ValueError(msg)


def reading_of_arrow(dataset: Any, whose: Whose) -> Reading:  # noqa: ANN401
    """Return what a pyarrow dataset reads."""
    files = tuple(files_of_arrow(dataset))
    return Reading(whose, files, None if files else dataset, names_of_csv(dataset))


def _may_be_one(readings: Sequence[Reading], one: object, other: object) -> bool:
    assert isinstance(one, int)
    assert isinstance(other, int)
    return one == other or readings[one].may_be_one_with(readings[other])


def _with_unit(readings: Sequence[Reading], read: Read, *, is_owned: bool) -> Reading:
    """Return a source with whose its rows are."""
    assert isinstance(read.source, int)
    unit, columns, computed_by = read.unit, None, None
    if unit is not None:
        computed_by = unit.computed_by or None
        columns = tuple(name for of in unit.columns for name in sorted(of))
    return replace(readings[read.source], whose=Whose(columns, computed_by, is_owned, read.is_of_facts))


def _readings(frame: pl.LazyFrame, plan: Plan) -> tuple[list[Reading], list[Seen]]:
    """Return the sources of a plan, and what scans that Polars does not show do by the places of rows."""
    readings, hidden = list[Reading](), list[int]()
    seen = list[Seen]()
    for number in plan.sources:
        plan.view.set_node(number)
        try:
            node = plan.view.view_current_node()
        except NotImplementedError:
            hidden.append(len(readings))
            readings.append(Reading(Whose(None)))
            continue
        readings.append(_reading(node, plan.view.get_schema()))
        if type(node).__name__ == "Scan":
            _check_files(node.paths)
            seen += _of_csv(json.loads(node.scan_type[1])) if node.scan_type[0] == "csv" else []
    if hidden:  # IPC; Hive before Polars 2
        scans = serialized_scans(frame)
        if scans is None:
            return readings, [*seen, Seen(kinds.UNKNOWN, "a scan")]
        files = []
        for scan in scans:
            options = scan["unified_scan_args"]
            seen += of_rows(options["pre_slice"], options["row_index"])
            files.append(tuple(files_of_scan(scan)))
        # Polars may have made one scan of several: then each may read all files.
        if len(files) != len(hidden):
            files = [tuple(file for several in files for file in several)] * len(hidden)
        for place, of in zip(hidden, files, strict=True):
            readings[place] = replace(readings[place], files=of)
    return readings, seen


def _reading(node: Any, columns: Iterable[str]) -> Reading:  # noqa: ANN401
    """Return what a source reads."""
    whose = Whose(None)
    match type(node).__name__:
        case "Scan":
            order = tuple(columns) if node.scan_type[0] == "csv" else ()
            return Reading(whose, tuple(map(str, node.paths)), order=order)
        case "DataFrameScan":
            return Reading(whose, memory=pl.DataFrame._from_pydf(node.df))
    dataset = dataset_of(node.options[0])
    return Reading(whose) if dataset is None else reading_of_arrow(dataset, whose)


def _check_files(paths: Sequence[object]) -> None:
    """Say that a file is not there before anything is paid for it."""
    for path in map(str, paths):
        if not re.search(r"://|[*?\[]", path) and not Path(path).exists():
            msg = f"the plan must read files that exist, got {path!r}."
            raise FileNotFoundError(msg)


def _of_csv(options: dict[str, Any]) -> list[Seen]:
    """Return what a scan of a CSV file does by the places of rows; what stands above a header is none."""
    skips = ["skip_rows_after_header", *(() if options["has_header"] else ("skip_rows", "skip_lines"))]
    return [Seen(kinds.PLACE, f"a scan with {name}") for name in skips if options[name]]


def _hidden_steps(frame: pl.LazyFrame, plan: Plan, keys: tuple[str, ...]) -> list[Seen]:
    """Return what mixes in expressions that Polars does not show."""
    if not plan.hidden:
        return []
    tree = serialized(frame)
    return [Seen(kinds.UNKNOWN, "an expression")] if tree is None else [*hidden_mixing(tree, keys, plan.shown)]
