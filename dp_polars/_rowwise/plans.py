"""Plans before `protect`: what a LazyFrame already does to the rows.

A private frame counts on one person's rows being there whatever the others' are. A plan that carries a `head`, a
`unique`, an aggregation or a window breaks that before the frame begins, unless it looks at one person's rows. Polars
shows a plan node by node; what it does not show is refused.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import polars as pl

from dp_polars._rowwise import nodes, plan_rules, rules
from dp_polars._rowwise.files import (
    files_of_arrow,
    files_of_scan,
    identities,
    names_of_csv,
    refuse_filter_of_arrow,
    refuse_repeated_files,
)
from dp_polars._rowwise.gate import Gate
from dp_polars._rowwise.lenient import SWITCHES
from dp_polars._rowwise.nodes import Step
from dp_polars._rowwise.one_unit import Reading, Whose, refuse_two_units
from dp_polars._rowwise.plan_people import PlanPeople
from dp_polars._rowwise.views import (
    columns_of_scans,
    dataset_of,
    holds_python_or_memory,
    raises_on_twins,
    read_anew,
    serialized_scans,
    visited,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from dp_polars._rowwise.files import Identity
    from dp_polars._rowwise.plan_people import Keys

# Nodes that keep, drop, order or change rows one by one, if their expressions do.
_BY_ROW = frozenset({"Cache", "Filter", "HStack", "Select", "SimpleProjection", "Sort", "Union"})
# Nodes that bring rows together, which may be one person's.
_OF_PEOPLE = frozenset({"GroupBy", "Join"})
_MAPS = frozenset({"rechunk", "unnest"})
_MAPS_TO_SEVERAL = frozenset({"explode", "unpivot"})
_HIDDEN = "a step that Polars does not show"
_STRICT_CAST = 0


def refuse_unsafe_plan(
    frame: pl.LazyFrame, keys: Keys = None, call: str = "protect", *, is_owned: bool = False
) -> tuple[Reading, ...]:
    """Refuse a plan in which one row may depend on other rows, but for those of the same person.

    Scans (files, memory, pyarrow datasets without a filter), row-by-row projections, filters and sorts pass. A sort
    passes because a private frame takes no notice of the order of rows. So do joins, groups and windows of the rows of
    one person, which are tried on synthetic people. We don't check what a plan does not show: that
    no file was written by such a step, and that a CSV file's inferred schema is public. Casts and parsers that raise on
    what does not fit are refused; we don't check that no other step raises on a row.

    Parameters
    ----------
    frame
        The plan. It is not run on its rows; what it holds in memory is neither copied nor read.
    keys
        The columns that say whose a row is: the privacy unit, or for owned rows those of their join. Empty: not known
        yet, so that the plan must be looked at again. None: every row is a person. Otherwise a person may have several
        rows, and only then may a plan make several rows out of one, be a vertical concat, or read a file twice.
    call
        What the user called, to begin messages with.
    is_owned
        Whether the rows belong to all who name them.

    Returns
    -------
    tuple
        The tables that the plan reads.

    Raises
    ------
    ValueError
        If the plan has a step that may look at other rows, one that raises on what does not fit, or one that Polars
        does not show; if it reads a table twice with other columns as the unit, or, where every row is a person, may
        read a file twice; or if its columns can't be found out.
    """
    plan = visited(frame)
    has_unit = (
        keys is not None and keys != () and not is_owned and {*keys} <= {*plan.get_schema()}
    )  # that it is not there is said later
    whose = Whose(keys if has_unit else None, is_owned=is_owned)
    gate = _PlanGate(plan, call, several_rows=keys is not None, number=id(frame))
    gate.check_node(plan.get_node(), keys, whose)
    gate.check_hidden_scans(frame)
    if any(raises_on_twins(frame, place) for place in range(gate.people.joins)):
        raise ValueError(plan_rules.VALIDATED.message(call, "`join`"))
    if keys is None:
        # A plan shows what Polars made of a concat: since Polars 2 that is one scan of all files.
        refuse_repeated_files(files_of(gate.readings))
    elif has_unit:
        refuse_two_units(gate.readings, call)
    return tuple(gate.readings)


def files_of(readings: Sequence[Reading]) -> tuple[str, ...]:
    """Return the files of the tables that a plan reads."""
    return tuple(file for reading in readings for file in reading.files)


def refuse_rewritten_files(
    frame: pl.LazyFrame, files: Sequence[str], known: tuple[Identity, ...] | None = None
) -> None:
    """Refuse a plan that passed the gate if its files are others than before: in what they are, or in their columns.

    `known` is what they were at `protect`. Polars may have found out a plan's columns long before, and reads some files
    by the places of the columns. What is in memory is not serialized, so such a plan's columns are not compared.
    """
    is_another = known is not None and identities(files) != known
    if not is_another and files and not holds_python_or_memory(frame):
        is_another = columns_of_scans(read_anew(frame)) != columns_of_scans(frame)
    if is_another:
        raise ValueError(plan_rules.REWRITTEN.message("release", "a file that was rewritten"))


def _reading(node: Any, columns: Iterable[str], whose: Whose) -> Reading:  # noqa: ANN401
    """Return what a source reads."""
    match type(node).__name__:
        case "Scan":
            order = tuple(columns) if node.scan_type[0] == "csv" else ()
            return Reading(whose, tuple(map(str, node.paths)), order=order)
        case "DataFrameScan":
            return Reading(whose, memory=pl.DataFrame._from_pydf(node.df))
    return reading_of_arrow(dataset_of(node.options[0]), whose)


def reading_of_arrow(dataset: Any, whose: Whose) -> Reading:  # noqa: ANN401
    """Return what a pyarrow dataset reads."""
    files = tuple(files_of_arrow(dataset))
    return Reading(whose, files, None if files else dataset, names_of_csv(dataset))


class _PlanGate(Gate):
    listed = rules.LISTED + plan_rules.BEFORE_PROTECT

    def __init__(self, plan: Any, call: str, *, several_rows: bool, number: int) -> None:  # noqa: ANN401
        super().__init__(call)
        self.plan = plan
        self.people = PlanPeople(plan, call, number)
        self.keys: Keys = None  # in the rows that the next expression is on
        self.several_rows = several_rows
        self.hidden = ""
        self.readings: list[Reading] = []
        self.in_memory = False

    def check_node(self, number: int, keys: Keys, whose: Whose) -> None:
        """Refuse the node, or one that it reads from; `keys` and `whose` say whose a row is that comes out of it."""
        self.plan.set_node(number)
        inputs = self.plan.get_inputs()
        if not self.plan.get_schema():
            self._refuse("a plan without columns")
        try:
            node = self.plan.view_current_node()
        except NotImplementedError as error:
            self.hidden = str(error)
            if inputs:
                self._refuse(_HIDDEN, self.hidden)
            self.readings.append(Reading(whose))
            return
        self._check_kind(node)
        if not inputs:
            self.readings.append(_reading(node, self.plan.get_schema(), whose))
        expressions = self.plan.get_exprs()
        below = self.people.followed(node, inputs, keys)
        if type(node).__name__ == "GroupBy":
            self.people.check_groups(node, inputs[0], below[0])
        elif type(node).__name__ == "Join":
            self.people.check_join(node, inputs, below)
        owners = self.people.whose(node, number, inputs, whose)
        for value, of, of_whom in zip(inputs, below, owners, strict=True):
            self.check_node(value, of, of_whom)
        if type(node).__name__ in _OF_PEOPLE:
            return
        if inputs:
            self.plan.set_node(inputs[0])  # whose columns the expressions are on
        self.keys = below[0] if inputs else None
        for expression in expressions:
            step = self._read(expression.node)
            self.walk(step)
            if not step.varies and type(node).__name__ == "Sort":
                self._refuse("a sort by a constant")

    def prove(self, step: Step) -> None:
        """Refuse a division by what may be one value for all rows because one person alone has them."""
        if self.people.are_there and step.varies:
            self.refuse_by((plan_rules.DIVIDED,), step)

    def check_hidden_scans(self, frame: pl.LazyFrame) -> None:
        """Refuse a scan that skips rows, where only the plan's JSON shows it (IPC; Hive before Polars 2)."""
        if not self.hidden:
            return
        scans = None if self.in_memory else serialized_scans(frame)  # which would hold in full what is in memory
        if scans is None:
            self._refuse(_HIDDEN, self.hidden)
        files = []
        for scan in scans:
            if not {"Ipc", "Parquet"}.issuperset(scan["scan_type"]):
                self._refuse(_HIDDEN, self.hidden)
            options = scan["unified_scan_args"]
            self._check_rows(options["pre_slice"], options["row_index"])
            files.append(tuple(files_of_scan(scan)))
        # Polars may have made one scan of several: then each may read all files.
        if len(files) != len(self.readings):
            files = [tuple(file for several in files for file in several)] * len(self.readings)
        self.readings = [replace(one, files=of) for one, of in zip(self.readings, files, strict=True)]

    def _check_kind(self, node: Any) -> None:  # noqa: ANN401
        kind = type(node).__name__
        if kind == "MapFunction":
            name = node.function[0]
            if name not in _MAPS | (_MAPS_TO_SEVERAL if self.several_rows else frozenset()):
                self._refuse(name)
        elif kind == "Scan":
            self._check_files(node.paths)
            self._check_rows(node.file_options.n_rows, node.file_options.row_index)
            if node.scan_type[0] == "csv":
                self._check_csv(json.loads(node.scan_type[1]))
        elif kind == "DataFrameScan":
            self.in_memory = True
        elif kind == "PythonScan" and (dataset := dataset_of(node.options[0])) is not None:
            refuse_filter_of_arrow(dataset)
        elif kind == "Union" and not self.several_rows:
            self._refuse("a concat")
        elif kind not in _BY_ROW | _OF_PEOPLE or getattr(node, "slice", None) is not None:
            self._refuse(kind)

    def _check_files(self, paths: Sequence[object]) -> None:
        """Say that a file is not there before anything is paid for it."""
        for path in map(str, paths):
            if not re.search(r"://|[*?\[]", path) and not Path(path).exists():
                msg = f"the plan given to {self.what} must read files that exist, got {path!r}."
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

    def _refuse(self, name: str, details: str | None = None) -> NoReturn:
        step = Step("unknown", name, (), list, details)
        rule = next(rule for rule in plan_rules.PLANS if rule.refuses(step))
        raise self.refusal(step, rule) from None

    def _read(self, number: int) -> Step:
        """Return an expression of the plan as steps."""

        def step(kind: str, name: str, *inputs: int, parameters: object = None, strict: bool = False) -> Step:
            values = [self._read(value) for value in inputs]
            return Step(kind, name, values, lambda: [self.plan.get_dtype(number)], parameters, strict=strict)

        try:
            view = self.plan.view_expression(number)
        except NotImplementedError as error:
            return step("unknown", _HIDDEN, parameters=str(error))
        match type(view).__name__:
            case "Column":
                return step("column", "a column")
            case "Literal":
                series = type(view.value).__name__ == "PySeries"
                return step("series", "a Series") if series else step("literal", "a literal")
            case "Ternary":
                return step("other", "when", view.predicate, view.truthy, view.falsy)
            case "BinaryExpr":
                return step("operator", nodes.operator_name(str(view.op)), view.left, view.right)
            case "Cast":
                return step("cast", "cast", view.expr, strict=view.options == _STRICT_CAST)
            case "Function":
                function, *parameters = view.function_data
                namespace, _, variant = str(function).rpartition(".")  # "StringFunction.Contains" or "abs"
                name = nodes.function_name(variant, namespace or None)
                switch = SWITCHES.get(name)
                strict = switch is not None and parameters[switch.place] != switch.null
                return step(
                    "function", name, *view.input, parameters=parameters[0] if parameters else None, strict=strict
                )
            case "Agg":
                return step("unknown", view.name)
            case "Window" if self.keys is not None:
                self.people.check_window(view, self.keys)
                return step("column", "a column")
            case other:
                return step("unknown", "over" if other == "Window" else nodes.function_name(other))
