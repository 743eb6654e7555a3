"""Plans before `protect`: their steps, the words for them, and what visibly mixes people."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import polars as pl

from dp_polars._steps import nodes, scans
from dp_polars._steps import preparations as kinds
from dp_polars._steps.nodes import names
from dp_polars._steps.preparations import ColumnOrigin, Mixing, PlanNode, Read, Seen, followed, refuse_mixing

_REDUCTIONS = names(
    "agg_groups all any approx_n_unique approx_quantile arg_max arg_min arg_unique bin_quantiles bitwise_and "
    "bitwise_or bitwise_xor cat.get_categories corr correlation cov entropy has_nulls hist index_of is_duplicated "
    "is_empty is_sorted is_unique kurtosis max_by min_by mode n_unique null_count product q_cut qcut quantile "
    "search_sorted skew str.concat_vertical top_k top_k_by unique unique_counts value_counts"
)
_PLACES = names(
    "append arg_sort arg_where argwhere arr.explode concat cum_count cum_max cum_min cum_prod cum_sum diff drop_nans "
    "drop_nulls extend_constant fill_null_with_strategy gather_every interpolate interpolate_by is_first_distinct "
    "is_last_distinct pct_change peak_max peak_min random range.date_range range.datetime_range range.int_range "
    "range.linear_space range.time_range rank reverse rle rle_id sample shift shuffle"
)
#: Takes one of several rows, and not always the same one.
ASOF = "`join_asof`"
_RUNNING = ("ewm", "rolling", "random")
_PICKS = frozenset({"Explode", "Filter", "Gather", "Rolling", "Slice", "Sort", "SortBy"})
# Functions that take a whole Series as a constant.
_OF_SERIES = frozenset({"is_in", "replace", "replace_strict", "str.contains_any", "str.replace_many"})
_PYTHON = ("anonymous", "python", "fold", "apply", "reduce")
_SAME_ROWS = frozenset({"Cache", "Filter", "SimpleProjection", "Sort", "Union", "MergeSorted"})
_MAPS = frozenset({"explode", "rechunk", "unnest", "unpivot"})
# Nodes that hand rows on without a look at values.
_PASSING = frozenset({"Cache", "SimpleProjection", "Union"})
# Stands for the columns of an expression that Polars does not show.
_UNSEEN = frozenset(["\0"])
_OF_PYTHON = Seen(kinds.PYTHON, "a Python function")
# What Polars 1 does not show of functions that look at other rows.
_HIDDEN = ("corr", "ewm", "explode", "extract_many", "find_many", "qcut", "random", "rolling")


def kind_of_function(name: str, parameters: Sequence[object] = ()) -> Mixing | None:
    """Return what a function mixes, by its name in a plan; None where it looks at its own row alone."""
    if name == "fill_null_with_strategy" and [*parameters[:1]] in (["zero"], ["one"]):
        return None
    if name in {"set_sorted", "set_sorted_flag"}:
        return kinds.SORTED
    if name in _REDUCTIONS:
        return kinds.REDUCTION
    return kinds.PLACE if name in _PLACES or name.startswith(_RUNNING) else None


class _Made(NamedTuple):
    """What an expression is made of: columns, what mixes, and the words that say how."""

    columns: frozenset[str] = frozenset()
    seen: tuple[Seen, ...] = ()
    text: str = ""
    column: str | None = None


def _origins(parts: Mapping[str, _Made]) -> dict[str, ColumnOrigin]:
    of_rows = {name: part for name, part in parts.items() if not part.seen}
    return {
        name: ColumnOrigin(0, one.columns, "" if one.column is not None else one.text) for name, one in of_rows.items()
    }


@dataclass
class PlanSteps:
    """A plan read as steps; `sources` are the plan's nodes without inputs, in the order of `PlanNode.source`."""

    view: Any
    hidden: bool
    shown: set[str]
    sources: list[int]

    @classmethod
    def of(cls, frame: pl.LazyFrame) -> tuple[PlanSteps, PlanNode]:
        plan = cls(scans.visited(frame), hidden=False, shown=set(), sources=[])
        return plan, plan.step(plan.view.get_node())

    def step(self, number: int) -> PlanNode:
        self.view.set_node(number)
        columns, inputs = list(self.view.get_schema()), self.view.get_inputs()
        try:
            node, said = self.view.view_current_node(), ""
        except NotImplementedError as error:
            node, said = None, str(error).lower()
        if not inputs:
            self.sources.append(number)
            options = node.file_options if type(node).__name__ == "Scan" else None
            placed = () if options is None else of_rows(options.n_rows, options.row_index)
            return PlanNode(columns, seen=tuple(placed), source=len(self.sources) - 1)
        kind, exprs = type(node).__name__, self.view.get_exprs()
        below = tuple(map(self.step, inputs))
        self.view.set_node(inputs[0])  # whose columns the expressions are on
        if "asof join" in said or kind == "Join":
            return self._join(node, columns, below)
        if kind == "GroupBy":
            return self._group_by(node, columns, below)
        parts = {expr.output_name: self._made(expr.node) for expr in exprs}
        same = {name: ColumnOrigin(0, frozenset([name])) for name in columns if name in below[0].columns}
        seen, several = [one for value in parts.values() for one in value.seen], ""
        if kind in {"HStack", "Select"}:
            of = _origins(parts)
            others = {} if kind == "Select" else {name: one for name, one in same.items() if name not in parts}
            same = others | of
        elif kind == "MapFunction" or "hint" in said:
            name, *more = node.function if node is not None else ("hint",)
            changed = [*more[0]] if name in {"explode", "unnest"} else []
            same = {name: origin for name, origin in same.items() if name not in changed}
            if name == "unpivot":
                same = {name: origin for name, origin in same.items() if name in more[0]}
            several = f"`{name}`" if name in {"explode", "unpivot"} else ""
            if name.startswith("hint"):
                seen.append(Seen(kinds.SORTED, "`set_sorted`"))
            elif name not in _MAPS:
                seen.append(Seen(kinds.PLACE if name == "row_index" else kinds.UNKNOWN, f"`{name}`"))
        elif kind == "Distinct":
            seen.append(Seen(kinds.DISTINCT, "`unique`", frozenset(node.options[1] or columns)))
            if node.options[3] is not None:
                seen.append(Seen(kinds.PLACE, "`unique` with a slice"))
        elif kind in {"Slice", "HConcat", "ExtContext"}:
            what = "`head`, `limit`, `tail` or `slice`" if kind == "Slice" else "a horizontal concat"
            seen.append(Seen(kinds.PLACE, what))
        elif any(word in said for word in _PYTHON):
            seen.append(_OF_PYTHON)
        elif kind not in _SAME_ROWS:
            seen.append(Seen(kinds.UNKNOWN, f"a step ({said or kind})"))
        if kind == "Sort" and node.slice is not None:
            seen.append(Seen(kinds.PLACE, "`top_k` or `bottom_k`"))
        return PlanNode(columns, below, same, tuple(seen), several=several)

    def _group_by(self, node: Any, columns: list[str], below: tuple[PlanNode, ...]) -> PlanNode:  # noqa: ANN401
        keys = {expr.output_name: self._made(expr.node) for expr in node.keys}
        inner = [self._made(expr.node) for expr in node.aggs]
        seen = [Seen(kinds.AGGREGATION, "`group_by`", frozenset().union(*(key.columns for key in keys.values())))]
        seen += [one for key in keys.values() for one in key.seen] + _of_python(inner)
        if node.options.slice is not None:
            seen.append(Seen(kinds.PLACE, "`head` of groups"))
        return PlanNode(columns, below, _origins(keys), tuple(seen))

    def _join(self, node: Any, columns: list[str], below: tuple[PlanNode, ...]) -> PlanNode:  # noqa: ANN401
        left, right = ([*step.columns] for step in below)
        origins = {name: ColumnOrigin(0, frozenset([name])) for name in columns if name in left}
        if node is None:  # join_asof: what it goes `by` is left out on the right
            new, dropped, known = columns[len(left) :], set[str](), set[str]()
            for name in right:
                if new and (new[0] == name or (name in left and new[0].startswith(name))):
                    origins[new.pop(0)] = ColumnOrigin(1, frozenset([name]))
                else:
                    dropped.add(name)
            known = dropped & {*left}
            return PlanNode(columns, below, origins, pairs=[(name, name) for name in sorted(known)], several=ASOF)
        how, _, piece, suffix, coalesced, *_ = node.options
        pairs, seen = [], list[Seen]()
        for expr, other in zip(node.left_on, node.right_on, strict=True):
            self.view.set_node(node.input_left)
            one = self._made(expr.node)
            self.view.set_node(node.input_right)
            two = self._made(other.node)
            seen += [*one.seen, *two.seen]
            if one.column is not None and two.column is not None:
                pairs.append((one.column, two.column))
        if how == "Right" and coalesced:
            origins = {name: of for name, of in origins.items() if name not in {one for one, _ in pairs}}
        for name in columns:
            if name not in origins:
                origin = name if name in right else name.removesuffix(suffix or "")
                origins[name] = ColumnOrigin(1, frozenset([origin]))
        if piece is not None:
            seen.append(Seen(kinds.PLACE, "`head` of a join"))
        if isinstance(how, tuple):  # join_asof
            pairs += zip(how[4] or (), how[5] or (), strict=True)
        several = "" if how in ("Semi", "Anti") else ASOF if isinstance(how, tuple) else "`join`"
        return PlanNode(columns, below, origins, tuple(seen), pairs, several=several)

    def _made(self, number: int, *, is_constant: bool = False) -> _Made:
        try:
            view = self.view.view_expression(number)
        except NotImplementedError as error:
            said = str(error).lower()
            if any(word in said for word in _PYTHON):
                return _Made(seen=(_OF_PYTHON,))
            if said.startswith(_HIDDEN):
                return _Made(seen=(Seen(kinds.PLACE, f"`{said}`"),))
            self.hidden = True
            return _Made(_UNSEEN, text=f"hidden {number}")
        kind = type(view).__name__
        match kind:
            case "Column":
                return _Made(frozenset([view.name]), text=f"{view.name!r}", column=str(view.name))
            case "Literal":
                is_series = type(view.value).__name__ == "PySeries" and not is_constant
                return _Made(seen=(Seen(kinds.PLACE, "a Series"),) if is_series else (), text=f"{view.value!r}")
            case "Len":
                return _Made(seen=(Seen(kinds.REDUCTION, "`len`"),))
            case "Window":
                return self._window(view)
            case "StructField" | "Element":
                return _Made(_UNSEEN)
        name, inputs, parameters = _parts(kind, view)
        of_series = name in _OF_SERIES or (kind == "Agg" and name == "implode") or is_constant
        parts = [self._made(value, is_constant=of_series) for value in inputs]
        columns = frozenset[str]().union(*(part.columns for part in parts))
        seen = [one for part in parts for one in part.seen]
        text = f"{kind} {name} {parameters} ({', '.join(part.text for part in parts)})"
        if kind == "Function":
            self.shown.add(name)
            mixes = kind_of_function(name, parameters)
        elif kind in {"BinaryExpr", "Cast", "StructEval", "Ternary"}:
            mixes = None
        else:
            mixes = kinds.REDUCTION if kind == "Agg" else kinds.PLACE if kind in _PICKS else kinds.UNKNOWN
        if mixes is not None and (columns or seen or mixes is not kinds.REDUCTION):
            seen.append(Seen(mixes, f"`{name or nodes.function_name(kind)}`"))
        return _Made(columns, tuple(seen), text)

    def _window(self, view: Any) -> _Made:  # noqa: ANN401
        inner = self._made(view.function)
        keys = [self._made(number) for number in view.partition_by]
        by = frozenset(key.column for key in keys if key.column is not None)
        columns = inner.columns.union(*(key.columns for key in keys))
        # An order among all rows is another one in each person's rows, as soon as it goes by other people's.
        order = [] if view.order_by is None else self._made(view.order_by).seen
        seen = Seen(kinds.WINDOW, "`over`", by), *order, *_of_python([inner])
        return _Made(columns, seen, f"over {inner.text} {sorted(by)}")


def _parts(kind: str, view: Any) -> tuple[str, list[int], Sequence[object]]:  # noqa: ANN401
    """Return the name of what an expression does, the numbers of its inputs, and its parameters."""
    match kind:
        case "Function":
            data = view.function_data  # of dt.replace no tuple
            function, *parameters = data if isinstance(data, tuple) else (data,)
            namespace, _, variant = str(function).rpartition(".")  # "StringFunction.Contains" or "abs"
            return nodes.function_name(variant, namespace or None), list(view.input), parameters
        case "Agg":
            return str(view.name), list(view.arguments), [view.options]
        case "BinaryExpr":
            return str(view.op), [view.left, view.right], []
        case "Ternary":
            return "when", [view.predicate, view.truthy, view.falsy], []
        case "Cast":
            return "cast", [view.expr], [str(view.dtype), view.options]
        case "StructEval":
            return "struct", [view.expr, *(expr.node for expr in view.evaluation)], []
    inputs = [getattr(view, name) for name in ("expr", "input") if hasattr(view, name)]
    return "", inputs, []


def _of_python(parts: Sequence[_Made]) -> list[Seen]:
    """Return what is seen that matters even among one person's rows: Python functions, windows and `set_sorted`."""
    return [one for value in parts for one in value.seen if one.kind in (kinds.PYTHON, kinds.SORTED, kinds.WINDOW)]


def of_rows(n_rows: object, row_index: object) -> Iterator[Seen]:
    """Yield what a scan of files does by the places of rows."""
    if n_rows is not None:
        yield Seen(kinds.PLACE, "a scan with n_rows")
    if row_index is not None:
        yield Seen(kinds.PLACE, "a scan with a row index")


def hidden_mixing(tree: object, unit: Sequence[str], shown: set[str], *, inside: bool = False) -> Iterator[Seen]:
    """Yield what mixes in expressions that Polars does not show, in the JSON of a plan."""
    for value in tree if isinstance(tree, list) else ():
        yield from hidden_mixing(value, unit, shown, inside=inside)
    for key, value in tree.items() if isinstance(tree, dict) else ():
        match key, value:
            case "GroupBy", {"input": below, "keys": keys}:
                yield from hidden_mixing([below, keys], unit, shown)
                yield from _in_one_persons_rows(value.get("aggs"), unit)
            case "Over", {"partition_by": list()}:
                yield from _in_one_persons_rows({key: value} if inside else value["function"], unit)
            case "Function", {"input": inputs, "function": function}:
                name, more = nodes.function_of(function)
                if name == "range":
                    name = nodes.function_name(next(iter(more)), "range")
                is_hidden = inside or name not in shown
                if is_hidden and (mixes := kind_of_function(name)) is not None:
                    yield Seen(mixes, f"`{name}`")
                yield from hidden_mixing(inputs, unit, shown, inside=is_hidden)
            case "Eval", {"expr": of}:  # what is done in the list of a row is that row's
                yield from hidden_mixing(of, unit, shown, inside=True)
                yield from _in_one_persons_rows(value.get("evaluation"), unit)
            case "StructEval", {"expr": of, "evaluation": fields}:
                yield from hidden_mixing([of, fields], unit, shown, inside=True)
            case ("Agg" | "Len" | "AnonymousFunction") | (
                "AnonymousAgg" | "Explode" | "Filter" | "Gather" | "Rolling" | "Slice" | "Sort" | "SortBy"
            ), _ if inside:
                yield Seen(kinds.REDUCTION if key in {"Agg", "Len"} else kinds.PLACE, f"`{nodes.function_name(key)}`")
            case _:
                yield from hidden_mixing(value, unit, shown, inside=inside)


def _in_one_persons_rows(tree: object, unit: Sequence[str]) -> Iterator[Seen]:
    """Yield what mixes even there, in the JSON of an expression: Python functions, and windows by other keys."""
    for value in tree if isinstance(tree, list) else ():
        yield from _in_one_persons_rows(value, unit)
    for key, value in tree.items() if isinstance(tree, dict) else ():
        if key == "AnonymousFunction":
            yield _OF_PYTHON
        if key == "Function" and kind_of_function(nodes.function_of(value["function"])[0]) is kinds.SORTED:
            yield Seen(kinds.SORTED, "`set_sorted`")
        by = value.get("partition_by") if key == "Over" and isinstance(value, dict) else None
        if by is not None and not {*unit} <= {one.get("Column") for one in by if isinstance(one, dict)}:
            yield Seen(kinds.WINDOW, "`over`")
        yield from _in_one_persons_rows(value, unit)


# Nodes that a plan shows -> what their step is called.
_KINDS = {
    "Filter": "filter",
    "GroupBy": "group_by",
    "HStack": "with_columns",
    "Join": "join",
    "Select": "select",
    "SimpleProjection": "select",
    "Sort": "sort",
    "Union": "concat",
}
_WORDLESS = ("explode", "rechunk", "unnest", "unpivot")
# None: a source that Polars does not show.
_SOURCES = (None, "Cache", "DataFrameScan", "PythonScan")


def steps_and_urls(frame: pl.LazyFrame) -> tuple[list[str] | None, list[str]]:
    """Return the kinds of a plan's steps, sorted, each once, and the names of files that it reads from URLs.

    It returns no literal, no column and no number of steps, and no query of a URL, which may hold a password. The
    kinds are None where files are gone without which Polars shows no plan.
    """
    kinds, urls = set[str](), list[str]()
    try:
        for plan in scans.plan_nodes(frame):
            kind = scans.kind_of(plan)
            if kind == "MapFunction":
                name = plan.view_current_node().function[0]
                kinds.add(name if name in _WORDLESS else "another step")
            elif kind == "Scan":
                paths = map(str, plan.view_current_node().paths)
                urls += [PurePosixPath(urlsplit(path).path).name for path in paths if scans.REMOTE.match(path)]
            elif kind not in _SOURCES:
                kinds.add(_KINDS.get(str(kind), "another step"))
    except (ValueError, OSError, pl.exceptions.PolarsError):
        return None, urls
    return sorted(kinds), urls


def preparation_of(
    frame: pl.LazyFrame,
    keys: tuple[str, ...] | None = None,
    call: str = "protect",
    *,
    is_owned: bool = False,
    unchecked: bool = False,
) -> tuple[tuple[scans.Reading, ...], bool]:
    """Return what a plan reads, and whether it may give other rows each time; refuse one that visibly mixes people.

    The plan is not run on its rows; what it holds in memory is neither copied nor read.

    `keys`: the columns that say whose a row is: the privacy unit, or for owned rows those of their join. Empty: not
        known yet, so that the plan must be looked at again. None: every row is a person.
    `is_owned`: whether the rows belong to all who name them.

    Raises ValueError also if a file is not there, or its columns can't be found out.
    """
    plan, step = PlanSteps.of(frame)
    readings, seen = _readings(frame, plan)
    seen += _of_sorting_columns(frame)
    if plan.hidden:
        tree = scans.serialized(frame)
        unknown = [Seen(kinds.UNKNOWN, "an expression")]
        seen += unknown if tree is None else hidden_mixing(tree, keys or (), plan.shown)
    if seen:
        same = {name: ColumnOrigin(0, frozenset([name])) for name in step.columns}
        step = PlanNode(step.columns, (step,), same, tuple(seen))
    if not all(one.columns for one in step.every):
        msg = f"{call}: a plan without columns loses the number of its rows.\n\nHint: leave one column in."
        raise ValueError(msg)
    if unchecked or keys == ():
        reads = followed(step, keys)
    else:
        reads = refuse_mixing(
            step, keys, call, lambda one, other: one == other or readings[one].may_be_one_with(readings[other])
        )
    if keys is None and not unchecked:
        scans.refuse_repeated_files(files_of(readings))
    varies = any(one.seen or one.several == ASOF for one in step.every)
    varies = varies or any(reading.memory is None and not reading.files for reading in readings)
    found = tuple(_with_unit(readings, read, is_owned=is_owned) for read in reads)
    if keys and not unchecked and not is_owned and {*keys} <= {*step.columns}:
        scans.refuse_two_units([[reading] for reading in found], call)
    return found, varies


def _of_sorting_columns(frame: pl.LazyFrame) -> Iterator[Seen]:
    """Yield what Polars believes of Parquet files, where a step looks at their values."""
    if any(map(_looks_at_values, scans.plan_nodes(frame))):
        files = [file for several, of in scans.sources_read(frame) if of is None for file in several]
        if scans.names_sorting_columns(files):
            yield Seen(kinds.SORTED_FILE, "a step on a Parquet file whose footer names sorting columns")


def _looks_at_values(plan: Any) -> bool:  # noqa: ANN401
    if scans.kind_of(plan) == "Select":
        with suppress(NotImplementedError):
            return any(type(plan.view_expression(expr.node)).__name__ != "Column" for expr in plan.get_exprs())
    return bool(plan.get_inputs()) and scans.kind_of(plan) not in _PASSING


def files_of(readings: Sequence[scans.Reading]) -> tuple[str, ...]:
    return tuple(file for reading in readings for file in reading.files)


def refuse_rewritten_files(
    frame: pl.LazyFrame, files: Sequence[str], known: tuple[scans.Identity, ...] | None = None
) -> None:
    """Refuse a plan if its files are others than before: in what they are, or in their columns.

    `known` is what they were at `protect`. Polars may have found out a plan's columns long before, and reads some files
    by the places of the columns. What is in memory is not serialized, so such a plan's columns are not compared.
    """
    is_another = known is not None and scans.identities(files) != known
    of_code_or_memory = {"DataFrameScan", "PythonScan"}
    if not is_another and files and of_code_or_memory.isdisjoint(map(scans.kind_of, scans.plan_nodes(frame))):
        anew = pl.LazyFrame.deserialize(io.BytesIO(frame.serialize()))
        is_another = scans.columns_of_scans(anew) != scans.columns_of_scans(frame)
    if is_another:
        msg = (
            "release: a file that was rewritten may have other rows, or other columns, than when it was looked at "
            "(since it was scanned, or since `protect`; another mode, or another link to it, looks the same).\n\n"
            "Hint: scan it anew and protect that."
        )
        raise ValueError(msg)


def reading_of_arrow(dataset: Any) -> scans.Reading:  # noqa: ANN401
    files = tuple(scans.files_of_arrow(dataset))
    return scans.Reading(files, None if files else dataset, scans.names_of_csv(dataset))


def _with_unit(readings: Sequence[scans.Reading], read: Read, *, is_owned: bool) -> scans.Reading:
    """Return a source with whose its rows are."""
    reading: scans.Reading = replace(readings[read.source], is_owned=is_owned, is_of_facts=read.is_of_facts)
    if read.unit is None:
        return reading
    columns = tuple(name for of in read.unit.columns for name in sorted(of))
    return replace(reading, columns=columns, computed_by=read.unit.computed_by or None)


def _readings(frame: pl.LazyFrame, plan: PlanSteps) -> tuple[list[scans.Reading], list[Seen]]:
    """Return the sources of a plan, and what scans that Polars does not show do by the places of rows."""
    readings, hidden = list[scans.Reading](), list[int]()
    seen = list[Seen]()
    for number in plan.sources:
        plan.view.set_node(number)
        try:
            node = plan.view.view_current_node()
        except NotImplementedError:
            hidden.append(len(readings))
            readings.append(scans.Reading())
            continue
        readings.append(_reading(node, plan.view.get_schema()))
        if type(node).__name__ != "Scan":
            continue
        for path in map(str, node.paths):  # that a file is not there is said before anything is paid for it
            if not re.search(r"://|[*?\[]", path) and not Path(path).exists():
                msg = f"the plan must read files that exist, got {path!r}."
                raise FileNotFoundError(msg)
        if node.scan_type[0] == "csv":
            options = json.loads(node.scan_type[1])
            # What stands above a header is no row.
            skips = ["skip_rows_after_header", *(() if options["has_header"] else ("skip_rows", "skip_lines"))]
            seen += [Seen(kinds.PLACE, f"a scan with {name}") for name in skips if options[name]]
    if hidden:  # IPC; Hive before Polars 2
        every = scans.serialized_scans(frame)
        if every is None:
            return readings, [*seen, Seen(kinds.UNKNOWN, "a scan")]
        files = []
        for scan in every:
            options = scan["unified_scan_args"]
            seen += of_rows(options["pre_slice"], options["row_index"])
            files.append(tuple(scans.files_of_scan(scan)))
        # Polars may have made one scan of several: then each may read all files.
        if len(files) != len(hidden):
            files = [tuple(file for several in files for file in several)] * len(hidden)
        for place, of in zip(hidden, files, strict=True):
            readings[place] = replace(readings[place], files=of)
    return readings, seen


def _reading(node: Any, columns: Iterable[str]) -> scans.Reading:  # noqa: ANN401
    match type(node).__name__:
        case "Scan":
            order = tuple(columns) if node.scan_type[0] == "csv" else ()
            return scans.Reading(tuple(map(str, node.paths)), order=order)
        case "DataFrameScan":
            return scans.Reading(memory=pl.DataFrame._from_pydf(node.df))
    dataset = scans.dataset_of(node.options[0])
    return scans.Reading() if dataset is None else reading_of_arrow(dataset)
