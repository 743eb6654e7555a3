"""Plans before `protect`: read them as nodes, describe them, and refuse visible mixing of people."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import polars as pl

from dp_polars._base.column_types import PrivacyUnit, parts_of
from dp_polars._sources import check as kinds
from dp_polars._sources.check import ColumnOrigin, Mixing, PlanNode, Read, Seen, followed, refuse_mixing
from dp_polars._sources.files import REMOTE, Identity, identities, refuse_repeated_files
from dp_polars._sources.flags import names_sorting_columns
from dp_polars._sources.marks import Reading, refuse_two_units
from dp_polars._sources.views import (
    columns_of_scans,
    dataset_of,
    files_of_arrow,
    files_of_scan,
    kind_of,
    names_of_csv,
    plan_nodes,
    serialized,
    serialized_scans,
    sources_read,
    visited,
)
from dp_polars._steps import nodes

#: It chooses one of several rows, and not always the same one.
ASOF = "`join_asof`"
# The kinds of mixing, by how functions use several rows.
_MIXES = (
    (nodes.COMBINING | nodes.COMPARING | nodes.BREAKING, kinds.REDUCTION),
    (nodes.MOVING | nodes.PLACING | nodes.FILLING | nodes.RESIZING | nodes.RANDOM, kinds.PLACE),
    (nodes.CODE, kinds.CODE),
    (nodes.SORTING, kinds.SORTED),
)
# The fields with inputs of an expression that Polars shows. Other kinds of expressions are unknown.
_INPUTS = {
    "Agg": ("arguments",),
    "Alias": ("expr",),
    "BinaryExpr": ("left", "right"),
    "Cast": ("expr",),
    "Explode": ("expr",),
    "Filter": ("input", "by"),
    "Function": ("input",),
    "Gather": ("expr", "idx"),
    "Rolling": ("function", "index_column"),
    "Slice": ("input", "offset", "length"),
    "Sort": ("expr",),
    "SortBy": ("expr", "by"),
    "StructEval": ("expr", "evaluation"),
    "Ternary": ("predicate", "truthy", "falsy"),
}
_BY_ROW = frozenset({"Alias", "BinaryExpr", "Cast", "StructEval", "Ternary"})
# Inputs that are sets or mappings. If they vary, they use all rows, so they may be a Series of constants.
_SETS: Mapping[str, set[int]] = {
    **nodes.SETS,
    "sql.is_in": {1},
    "str.contains_any": {1},
    "str.extract_many": {1},
    "str.find_many": {1},
    "str.replace_many": {1, 2},
}
# Polars' description of functions that it doesn't show -> the prefixes under which they are looked up in JSON.
_HIDDEN = {
    "array expr": ("arr.",),
    "binary expr": ("bin.",),
    "bitwise expr": ("bitwise_", "str.format"),
    "business": ("dt.add_business_day", "dt.business_day_count", "dt.is_business_day"),
    "categorical expr": ("cat.",),
    "cut": ("cut",),
    "extension expr": ("ext.",),
    "is_in": ("is_in",),
    "list expr": ("list.",),
    "list.eval": ("Eval", "arr.eval", "list."),
    "list.to_map": ("list.to_map",),
    "map_field_names": ("struct.map_field_names",),
    "range": ("range.",),
    "row_decode": ("row_decode",),
    "row_encode": ("row_encode",),
    "with_fields": ("struct.with_fields",),
}
# Prefixes in these descriptions that mean several rows, wherever they occur. Only sets of texts don't.
_HIDDEN_MIXING = (
    "approx_quantile",
    "corr",
    "ewm",
    "explode",
    "extract_many",
    "find_many",
    "qcut",
    "random",
    "reshape",
    "rolling",
)
_HIDDEN_CODE = frozenset(
    {"anonymousfunction", "cum_fold", "cum_reduce", "ffi plugin", "fold", "reduce", "rolling map", "rolling_map"}
)
_SAME_ROWS = frozenset({"Cache", "Filter", "MergeSorted", "SimpleProjection", "Sort", "Union"})
_BY_PLACE = {
    "ExtContext": "a horizontal concat",
    "Gather": "`gather`",
    "HConcat": "a horizontal concat",
    "Slice": "`head`, `limit`, `tail` or `slice`",
}
_MAPS = frozenset({"explode", "rechunk", "unnest", "unpivot"})
# Nodes that pass rows on without using values.
_PASSING = frozenset({"Cache", "SimpleProjection", "Union"})
# Joins by equal values, or without any.
_OF_EQUAL = frozenset({"Cross", "Full", "Inner", "Left", "Right", "Semi", "Anti"})
_TEXTS = (pl.String, pl.Categorical, pl.Enum)
_IS_OLD = pl.__version__.startswith("1.")
_EXTREMES = re.compile(r"\b(arg_)?(min|max) ")
_SORTED = re.compile(r"\b(Sort|SortBy|reverse|top_k|bottom_k)\b")
_JUST_SORTED = re.compile(
    r"((Alias|Filter|Slice|Function (drop_nans|drop_nulls|unique)) [^(]*\()*"
    r"(Sort|SortBy|Function (reverse|top_k|bottom_k))\b"
)
# In a streaming cross join, Polars 1 treats a null of a left row as a value, depending on other rows.
_JOINS = frozenset(
    {"AsOf", *([] if _IS_OLD else ["Cross"]), "Full", "IEJoin", "Inner", "Left", "Right", "Semi", "Anti"}
)
# Inputs that are sets, for functions that Polars does not show, if their types are unknown.
_SETS_OF_HIDDEN: Mapping[str, set[int]] = {**_SETS, "list.gather": {1}, "list.set_operation": {1}}
# Represents the columns of an expression that Polars does not show.
_UNSEEN = frozenset(["\0"])
_OF_PYTHON = Seen(kinds.CODE, "a Python function")
# Mixing that matters even within one person's rows. Everything else there only uses that person's rows.
_BEYOND = (kinds.CATEGORIES, kinds.CODE, kinds.GROUPS, kinds.SORTED, kinds.UNKNOWN, kinds.WINDOW)
_NO_ROWS = pl.LazyFrame()


def kind_of_function(name: str, parameters: object = None) -> Mixing | None:
    """Return how a function mixes rows, by its name. None: it is known to use its own row only."""
    first = parameters[0] if isinstance(parameters, (list, tuple)) and parameters else parameters
    if name == "fill_null_with_strategy" and str(first).lower() in {"zero", "one"}:
        return None
    if name == "str.strptime" and not first:
        return kinds.FORMAT
    if name in nodes.BY_ROW:
        return None
    return next((kind for functions, kind in _MIXES if name in functions), kinds.UNLISTED)


class _Made(NamedTuple):
    """The parts of an expression: columns, operations on several rows, and a text that describes it."""

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
    """A plan read as nodes; `sources` are the plan's nodes without inputs, in the order of `PlanNode.source`."""

    view: Any
    # Prefixes of functions to look up in JSON, among those that Polars doesn't show. None: nothing to look up.
    hidden: set[str] | None
    shown: set[str]
    sources: list[int]
    categories: set[str]  # columns that are, or contain, Categoricals anywhere

    @classmethod
    def of(cls, frame: pl.LazyFrame) -> tuple[PlanSteps, PlanNode]:
        plan = cls(visited(frame), hidden=None, shown=set(), sources=[], categories=set())
        while _is_hint(plan.view):  # a final hint changes nothing, because flags are removed
            plan.view.set_node(*plan.view.get_inputs())
        return plan, plan.step(plan.view.get_node())

    def is_hidden(self, name: str) -> bool:
        """Return whether a function of this name in JSON may be one that Polars does not show."""
        return name not in self.shown or name.startswith(tuple(self.hidden or ()))

    def may_be_categories(self, tree: object) -> bool:
        """Return whether an expression in JSON reads or makes categories."""
        names = {*nodes.of_kind(tree, "Column")}
        return (
            not names.isdisjoint(self.categories) or re.search('"(Categorical|Selector)"', json.dumps(tree)) is not None
        )

    def step(self, number: int) -> PlanNode:
        self.view.set_node(number)
        schema, inputs = self.view.get_schema(), self.view.get_inputs()
        columns = list(schema)
        self.categories |= {name for name, dtype in schema.items() if pl.Categorical in parts_of(dtype)}
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
        self.view.set_node(inputs[0])  # the expressions use its columns
        if kind == "Join" or said == "asof join":
            joined = self._join(node, columns, below)
            self.view.set_node(inputs[0])
            if joined.several == ASOF and any(self._has_categories(expr.node) for expr in exprs[:1]):
                joined = replace(joined, seen=(*joined.seen, Seen(kinds.CATEGORIES, ASOF)))
            if joined.several == ASOF and not self._is_sorted(node, inputs[0], exprs[0].node):
                joined = replace(joined, seen=(*joined.seen, self._unsorted(joined, exprs[0].output_name)))
            return joined
        if kind == "GroupBy":
            return self._group_by(node, columns, below)
        parts = {expr.output_name: self._made(expr.node) for expr in exprs}
        same = {name: ColumnOrigin(0, frozenset([name])) for name in columns if name in below[0].columns}
        seen, several = [one for value in parts.values() for one in value.seen], ""
        if kind in {"HStack", "Select"}:
            of = _origins(parts)
            others = {} if kind == "Select" else {name: one for name, one in same.items() if name not in parts}
            same = others | of
        elif kind == "MapFunction" or said == "hint ir":
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
        elif kind in _BY_PLACE:
            seen.append(Seen(kinds.PLACE, _BY_PLACE[kind]))
        elif said == "opaque python mapfunction" or said.startswith("apply inside groupby"):
            seen.append(_OF_PYTHON)
        elif kind not in _SAME_ROWS:
            seen.append(Seen(kinds.UNKNOWN, f"a step ({kind if node is not None else said.partition(' {')[0]})"))
        if kind in {"Sort", "Union"} and getattr(node, "slice", None) is not None:
            seen.append(Seen(kinds.PLACE, "`top_k` or `bottom_k`" if kind == "Sort" else "`head` of a concat"))
        return PlanNode(columns, below, same, tuple(seen), several=several)

    def _group_by(self, node: Any, columns: list[str], below: tuple[PlanNode, ...]) -> PlanNode:  # noqa: ANN401
        keys = {expr.output_name: self._made(expr.node) for expr in node.keys}
        inner = [self._made(expr.node) for expr in node.aggs]
        seen = [Seen(kinds.AGGREGATION, "`group_by`", frozenset().union(*(key.columns for key in keys.values())))]
        seen += [one for key in keys.values() for one in key.seen] + _beyond(inner)
        if node.options.slice is not None:
            seen.append(Seen(kinds.PLACE, "`head` of groups"))
        return PlanNode(columns, below, _origins(keys), tuple(seen))

    def _join(self, node: Any, columns: list[str], below: tuple[PlanNode, ...]) -> PlanNode:  # noqa: ANN401
        left, right = ([*step.columns] for step in below)
        origins = {name: ColumnOrigin(0, frozenset([name])) for name in columns if name in left}
        if node is None:  # join_asof: its `by` columns are left out on the right
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
            # Facts about columns on the right don't apply to those on the left.
            seen += [*one.seen, *(replace(value, keys=None) for value in two.seen)]
            if one.column is not None and two.column is not None:
                pairs.append((one.column, two.column))
        if how == "Right" and coalesced:
            origins = {name: of for name, of in origins.items() if name not in {one for one, _ in pairs}}
        for name in columns:
            if name not in origins:
                origin = name if name in right else name.removesuffix(suffix or "")
                origins[name] = ColumnOrigin(1, frozenset([origin]))
        self.view.set_node(node.input_left)
        if not (isinstance(how, str) and how in _OF_EQUAL) and any(
            self._has_categories(expr.node) for expr in node.left_on
        ):
            seen.append(Seen(kinds.CATEGORIES, "a join by an order"))
        if piece is not None:
            seen.append(Seen(kinds.PLACE, "`head` of a join"))
        if getattr(node, "predicate", None) is not None or (how if isinstance(how, str) else how[0]) not in _JOINS:
            seen.append(Seen(kinds.UNKNOWN, f"a join ({how})"))
        if isinstance(how, tuple):  # join_asof
            pairs += zip(how[4] or (), how[5] or (), strict=True)
        several = "" if how in ("Semi", "Anti") else ASOF if isinstance(how, tuple) else "`join`"
        return PlanNode(columns, below, origins, tuple(seen), pairs, several=several)

    def _is_sorted(self, node: Any, number: int, on: int) -> bool:  # noqa: ANN401
        """Return whether the plan sorts the left rows of a `join_asof`, and checks that both sides are sorted."""
        name = self._made(on).column
        while name is not None and (node is None or node.options[0][-1]):
            self.view.set_node(number)
            if _IS_OLD and self.view.get_schema()[name].is_float():  # NaN matches like the row before it
                return False
            kind, exprs = kind_of(self.view), {one.output_name: one.node for one in self.view.get_exprs()}
            if kind == "Sort":
                step = self.view.view_current_node()
                is_plain = not any(first for first, *_ in step.sort_options[1:])  # nulls first, and ascending
                return is_plain and self._made(step.by_column[0].node).column == name
            is_kept = kind in {"Cache", "Filter", "HStack", "Select", "SimpleProjection"}
            if not is_kept or (
                kind in {"HStack", "Select"} and name in exprs and self._made(exprs[name]).column != name
            ):
                return False
            (number,) = self.view.get_inputs()
        return False

    @staticmethod
    def _unsorted(joined: PlanNode, on: str) -> Seen:
        return Seen(kinds.UNSORTED, ASOF, frozenset(left for left, _ in joined.pairs or ()) - {on})

    def _made(self, number: int, *, is_constant: bool = False) -> _Made:
        try:
            view = self.view.view_expression(number)
        except NotImplementedError as error:
            return self._hidden(str(error).lower(), number)
        kind = type(view).__name__
        match kind:
            case "Column":
                return _Made(frozenset([view.name]), text=f"{view.name!r}", column=str(view.name))
            case "Literal":
                is_series = type(view.value).__name__ == "PySeries" and not is_constant
                return _Made(seen=(Seen(kinds.PLACE, "a Series"),) if is_series else (), text=f"{view.value!r}")
            case "Window":
                return self._window(view)
            case "StructField" | "Element":
                return _Made(_UNSEEN)
            case "Len":
                return _Made(seen=(Seen(kinds.REDUCTION, "`len`"),))
        if kind not in _INPUTS:
            return _Made(_UNSEEN, (Seen(kinds.UNKNOWN, f"an expression ({kind})"),))
        name, parameters = _named(kind, view)
        self.shown |= {kind, name}
        sets = {0} if (kind, name) == ("Agg", "implode") else _SETS.get(name, ())
        inputs = _inputs(kind, view)
        parts = [self._made(value, is_constant=is_constant or place in sets) for place, value in enumerate(inputs)]
        columns = frozenset[str]().union(*(part.columns for part in parts))
        seen = [one for part in parts for one in part.seen]
        text = f"{kind} {name} {parameters} ({', '.join(part.text for part in parts)})"
        mixes = None if kind in _BY_ROW else kind_of_function(name, parameters)
        if mixes is None and kind not in _BY_ROW | {"Function"}:
            mixes = kinds.UNKNOWN
        of_constants = mixes in (kinds.FORMAT, kinds.REDUCTION) and not columns and not seen
        if mixes is not None and not of_constants:
            seen.append(Seen(mixes, nodes.said(name)))
        is_unstable = name in nodes.UNSTABLE or (name in nodes.UNSTABLE_IF_NESTED and self._may_be_nested(inputs[0]))
        if is_unstable or (
            mixes is not None and any(part.seen for part in parts) and not _is_right(name, parts[0].text)
        ):
            seen.append(Seen(kinds.GROUPS, nodes.said(name)))
        if self._goes_by_numbers(kind, name, inputs, number):
            seen.append(Seen(kinds.CATEGORIES, nodes.said(name)))
        return _Made(columns, tuple(seen), text)

    def _leaves(self, number: int) -> list[Any]:
        """Return the types within an expression's type; none if Polars can't tell."""
        try:
            return [*parts_of(self.view.get_dtype(number))]
        except pl.exceptions.PolarsError:  # for a field in a struct, for example
            return []

    def _may_be_nested(self, number: int) -> bool:
        try:
            return bool(self.view.get_dtype(number).is_nested())
        except pl.exceptions.PolarsError:
            return True

    def _has_categories(self, *numbers: int) -> bool:
        return any(part == pl.Categorical for number in numbers for part in self._leaves(number))

    def _goes_by_numbers(self, kind: str, name: str, inputs: list[int], number: int) -> bool:
        """Return whether a function may use the numbers of categories: their order depends on all rows."""
        if not self._has_categories(*inputs):
            return name in nodes.BY_NUMBERS_OF_CATEGORIES and not all(map(self._leaves, inputs))
        if kind == "Cast":
            leaves, of = self._leaves(number), self._leaves(*inputs)
            return len(leaves) != len(of) or any(
                one == pl.Categorical and other not in _TEXTS for one, other in zip(of, leaves, strict=True)
            )
        name = nodes.operator_name(name)
        if name in nodes.LOOKED_UP and any(part.is_numeric() for one in inputs[:2] for part in self._leaves(one)):
            return True
        return kind != "Alias" and name not in nodes.BY_TEXTS_OF_CATEGORIES

    def _hidden(self, said: str, number: int) -> _Made:
        """Return the known facts of an expression that Polars only describes."""
        said = said.partition("[")[0]
        if said in {"element", "field"}:
            return _Made(_UNSEEN)
        if said in _HIDDEN_CODE:
            return _Made(seen=(_OF_PYTHON if said != "ffi plugin" else Seen(kinds.CODE, "a compiled plugin"),))
        self.hidden = self.hidden or set()
        if said.startswith(_HIDDEN_MIXING):
            return _Made(seen=(Seen(kinds.PLACE, f"`{said}`"),))
        if said not in _HIDDEN and not said.startswith("map."):
            return _Made(seen=(Seen(kinds.UNKNOWN, f"`{said}`"),))
        self.hidden.update(_HIDDEN.get(said, ("map.",)))
        return _Made(_UNSEEN, text=f"hidden {number}")

    def _window(self, view: Any) -> _Made:  # noqa: ANN401
        inner = self._made(view.function)
        keys = [self._made(number) for number in view.partition_by]
        by = frozenset(key.column for key in keys if key.column is not None)
        columns = inner.columns.union(*(key.columns for key in keys))
        # An order may depend on other people's rows, and then differs within one person's rows. The same is true of
        # parts of a person's rows.
        order = [] if view.order_by is None else [self._made(view.order_by)]
        seen = [Seen(kinds.WINDOW, "`over`", by), *(one for key in (*keys, *order) for one in key.seen)]
        if order and (_EXTREMES.search(inner.text) or _SORTED.search(inner.text)):
            seen.append(Seen(kinds.GROUPS, "`min`, `max` or a sorted column in an order"))
        if view.options.kind not in {"groups_to_rows", "join"}:
            seen.append(Seen(kinds.PLACE, '`over` with mapping_strategy="explode"'))
        return _Made(columns, (*seen, *_beyond([inner])), f"over {inner.text} {sorted(by)}")


def _is_right(name: str, text: str) -> bool:
    """Return whether Polars computes a function for each group separately, if its input uses several rows."""
    if name in {"arg_max", "arg_min", "max", "min"} and _JUST_SORTED.match(text):
        return False
    return not _IS_OLD or name in nodes.NESTED_ON_POLARS_1


def _inputs(kind: str, view: Any) -> list[int]:  # noqa: ANN401
    """Return the numbers of an expression's inputs."""
    found: list[Any] = [getattr(view, place) for place in _INPUTS[kind]]
    numbers: list[Any] = [one for value in found for one in (value if isinstance(value, list) else [value])]
    return [getattr(one, "node", one) for one in numbers]


def _named(kind: str, view: Any) -> tuple[str, object]:  # noqa: ANN401
    """Return the name of an expression's operation, and its parameters."""
    match kind:
        case "Function":
            data = view.function_data  # for dt.replace it is no tuple
            function, *parameters = data if isinstance(data, tuple) else (data,)
            return nodes.name_in_plan(str(function)), parameters
        case "Agg":
            return str(view.name), [view.options]
        case "BinaryExpr":
            return str(view.op), []
        case "Cast":
            return "cast", [str(view.dtype), view.options]
    return nodes.function_name(kind), []


def _beyond(parts: Sequence[_Made]) -> list[Seen]:
    return [one for value in parts for one in value.seen if one.kind in _BEYOND]


def of_rows(n_rows: object, row_index: object) -> Iterator[Seen]:
    """Yield operations of a file scan that depend on the places of rows."""
    if n_rows is not None:
        yield Seen(kinds.PLACE, "a scan with n_rows")
    if row_index is not None:
        yield Seen(kinds.PLACE, "a scan with a row index")


def hidden_mixing(tree: object, unit: Sequence[str], is_hidden: Callable[[str], bool]) -> Iterator[Seen]:
    """Yield mixing in expressions that Polars does not show, found in the JSON of a plan by hidden functions."""
    for value in tree if isinstance(tree, list) else ():
        yield from hidden_mixing(value, unit, is_hidden)
    for key, value in tree.items() if isinstance(tree, dict) else ():
        match key, value:
            case "GroupBy", {"input": below, "keys": keys}:
                yield from hidden_mixing([below, keys], unit, is_hidden)
                yield from _in_one_persons_rows(value.get("aggs"), unit)
            case "Over", {"function": function, "partition_by": list(by)}:
                yield from hidden_mixing([by, value.get("order_by")], unit, is_hidden)
                yield from _in_one_persons_rows(function, unit)
            case "Function", {"input": _, "function": _} if is_hidden(nodes.read({key: value}, _NO_ROWS).name):
                yield from _in_hidden({key: value}, unit)
            case (("Eval" | "StructEval"), {"expr": _, "evaluation": _}) if is_hidden(key):
                yield from _in_hidden({key: value}, unit)
            case _:
                yield from hidden_mixing(value, unit, is_hidden)


def _in_hidden(tree: Any, unit: Sequence[str], *, is_constant: bool = False) -> Iterator[Seen]:  # noqa: ANN401
    """Yield mixing among all rows, in an expression or any of its parts."""
    match tree:
        case {"Over": {"function": function, "partition_by": list(by)} as window}:
            if not {*unit} <= {one.get("Column") for one in by if isinstance(one, dict)}:
                yield Seen(kinds.WINDOW, "`over`")
            for one in [*by, *(window.get("order_by") or [])[:1]]:
                yield from _in_hidden(one, unit)
            yield from _in_one_persons_rows(function, unit)
            return
        case {"Eval": {"expr": of, "evaluation": evaluation, "variant": variant}}:
            if variant == "Cumulative" or (isinstance(variant, dict) and "Cumulative" in variant):
                yield Seen(kinds.PLACE, "`cumulative_eval`")
            yield from _in_hidden(of, unit)  # an operation within a row's list uses only that row
            yield from _in_one_persons_rows(evaluation, unit)
            return
        case {"StructEval": {"expr": of, "evaluation": fields}}:
            for one in [of, *fields]:
                yield from _in_hidden(one, unit)
            return
        case {"Cast": {"expr": of}}:
            yield from _in_hidden(of, unit, is_constant=is_constant)
            return
        case {"Field": _} | {"DataTypeFunction": _} | {"Display": _}:
            return
    step = nodes.read(tree, _NO_ROWS)
    if step.kind == "series" and not is_constant:
        yield Seen(kinds.PLACE, "a Series")
    elif step.kind == "function":
        mixes = kind_of_function(step.name, step.parameters)
        if mixes is not None and not (mixes in (kinds.FORMAT, kinds.REDUCTION) and not step.varies):
            yield Seen(mixes, nodes.said(step.name))
    elif step.kind == "unknown":
        mixes = kind_of_function(step.name)
        yield Seen(kinds.UNKNOWN if mixes in (None, kinds.UNLISTED) else mixes, nodes.said(step.name))
    sets = _SETS_OF_HIDDEN.get(step.name, ()) if step.kind == "function" else ()
    for place, value in enumerate(step.inputs):
        if place in sets and value.varies:
            yield Seen(kinds.REDUCTION, nodes.said(step.name))
        yield from _in_hidden(value.tree, unit, is_constant=is_constant or place in sets)


def _in_one_persons_rows(tree: object, unit: Sequence[str]) -> Iterator[Seen]:
    """Yield mixing that matters within one person's rows too, in JSON: code, windows by other keys, unknown parts."""
    for value in tree if isinstance(tree, list) else ():
        yield from _in_one_persons_rows(value, unit)
    for key, value in tree.items() if isinstance(tree, dict) else ():
        match key, value:
            case (("AnonymousFunction" | "AnonymousAgg"), _):
                yield _OF_PYTHON
            case "SubPlan", _:
                yield Seen(kinds.UNKNOWN, "a plan in an expression")
            case "Function", {"input": _, "function": function}:
                name, _ = nodes.function_of(function)
                mixes = kind_of_function(name)
                if mixes in _BEYOND:
                    yield Seen(mixes, nodes.said(name))
            case "Over", {"partition_by": by}:
                if not isinstance(by, list) or not {*unit} <= {
                    one.get("Column") for one in by if isinstance(one, dict)
                }:
                    yield Seen(kinds.WINDOW, "`over`")
        yield from _in_one_persons_rows(value, unit)


def _by_numbers(tree: object, is_hidden: Callable[[str], bool], of: Callable[[object], bool]) -> Iterator[Seen]:
    """Yield uses of category numbers in expressions that Polars does not show, in the JSON of a plan.

    `of`: whether an expression may have categories.
    """
    for value in tree if isinstance(tree, list) else ():
        yield from _by_numbers(value, is_hidden, of)
    for key, value in tree.items() if isinstance(tree, dict) else ():
        inner = of
        match key, value:
            case "Function", {"input": _, "function": function} if of(value):
                name, _ = nodes.function_of(function)
                if is_hidden(name):
                    inner = _always
                    if name in nodes.BY_NUMBERS_OF_CATEGORIES:
                        yield Seen(kinds.CATEGORIES, nodes.said(name))
            case (("Eval" | "StructEval"), {"expr": _, "evaluation": evaluation}) if of(value):
                inner = _always
                if any(map(_is_to_number, nodes.of_kind(evaluation, "Cast"))):
                    yield Seen(kinds.CATEGORIES, "`cast`")
        yield from _by_numbers(value, is_hidden, inner)


def _always(_: object) -> bool:
    return True


def _is_to_number(cast: Any) -> bool:  # noqa: ANN401
    return not re.search("String|Categorical|Enum", json.dumps(cast.get("dtype")))


# Nodes that a plan shows -> names of their transformations.
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
    """Return the kinds of a plan's transformations, sorted and distinct, and the names of files read from URLs.

    It returns no literal, column, or number of transformations, and no query of a URL, which may contain a password.
    The kinds are None if files that Polars needs to show the plan are missing.
    """
    kinds, urls = set[str](), list[str]()
    try:
        for plan in plan_nodes(frame):
            kind = kind_of(plan)
            if kind == "MapFunction":
                name = plan.view_current_node().function[0]
                kinds.add(name if name in _WORDLESS else "another step")
            elif kind == "Scan":
                paths = map(str, plan.view_current_node().paths)
                urls += [PurePosixPath(urlsplit(path).path).name for path in paths if REMOTE.match(path)]
            elif kind not in _SOURCES:
                kinds.add(_KINDS.get(str(kind), "another step"))
    except (ValueError, OSError, pl.exceptions.PolarsError):
        return None, urls
    return sorted(kinds), urls


def preprocessing_of(
    frame: pl.LazyFrame,
    unit: PrivacyUnit | None = None,
    *,
    unchecked: bool = False,
) -> tuple[tuple[Reading, ...], bool]:
    """Return the reads of a plan, and whether its rows may differ each time; refuse a plan that visibly mixes people.

    The plan is not run on its rows. Its rows in memory are neither copied nor read.

    Raises ValueError also if a file is missing, or its columns can't be determined.
    """
    plan, step = PlanSteps.of(frame)
    readings, seen = _readings(frame, plan)
    seen += _of_sorting_columns(frame)
    if plan.hidden is not None:
        tree = serialized(frame)
        unknown = [Seen(kinds.UNKNOWN, "an expression")]
        seen += unknown if tree is None else hidden_mixing(tree, unit or (), plan.is_hidden)
        seen += _by_numbers(tree, plan.is_hidden, plan.may_be_categories)
    if seen:
        same = {name: ColumnOrigin(0, frozenset([name])) for name in step.columns}
        step = PlanNode(step.columns, (step,), same, tuple(seen))
    if not all(one.columns for one in step.every):
        msg = "protect: a plan without columns loses the number of its rows.\n\nHint: leave one column in."
        raise ValueError(msg)
    if unchecked:
        reads = followed(step, unit)
    else:
        reads = refuse_mixing(
            step, unit, "protect", lambda one, other: one == other or readings[one].may_be_one_with(readings[other])
        )
    if unit is None and not unchecked:
        refuse_repeated_files(files_of(readings))
    varies = any(one.seen or one.several == ASOF for one in step.every)
    varies = varies or any(reading.memory is None and not reading.files for reading in readings)
    found = tuple(_with_unit(readings, read) for read in reads)
    if unit is not None and not unchecked and {*unit} <= {*step.columns}:
        refuse_two_units([[reading] for reading in found], "protect")
    return found, varies


def _of_sorting_columns(frame: pl.LazyFrame) -> Iterator[Seen]:
    """Yield uses of values of Parquet files that Polars treats as sorted."""
    if any(map(_looks_at_values, plan_nodes(frame))):
        files = [file for several, of in sources_read(frame) if of is None for file in several]
        if names_sorting_columns(files):
            yield Seen(kinds.SORTED_FILE, "a step on a Parquet file whose footer names sorting columns")


def _is_hint(plan: Any) -> bool:  # noqa: ANN401
    """Return whether a node is `LazyFrame.set_sorted`."""
    try:
        node = plan.view_current_node()
    except NotImplementedError as error:
        return str(error).lower() == "hint ir"
    return type(node).__name__ == "MapFunction" and str(node.function[0]).startswith("hint")


def _looks_at_values(plan: Any) -> bool:  # noqa: ANN401
    if kind_of(plan) == "Select":
        with suppress(NotImplementedError):
            return any(type(plan.view_expression(expr.node)).__name__ != "Column" for expr in plan.get_exprs())
    return bool(plan.get_inputs()) and kind_of(plan) not in _PASSING and not _is_hint(plan)


def files_of(readings: Sequence[Reading]) -> tuple[str, ...]:
    return tuple(file for reading in readings for file in reading.files)


def refuse_rewritten_files(
    frame: pl.LazyFrame, files: Sequence[str], known: tuple[Identity, ...] | None = None
) -> None:
    """Refuse a plan if its files have changed: the files themselves, or their columns.

    `known`: the files at `protect`. Polars may have resolved the columns long before, and reads some files by the
    places of columns. Frames in memory are not serialized, so such a plan's columns are not compared.
    """
    is_another = known is not None and identities(files) != known
    of_code_or_memory = {"DataFrameScan", "PythonScan"}
    if not is_another and files and of_code_or_memory.isdisjoint(map(kind_of, plan_nodes(frame))):
        anew = pl.LazyFrame.deserialize(io.BytesIO(frame.serialize()))
        is_another = columns_of_scans(anew) != columns_of_scans(frame)
    if is_another:
        msg = (
            "release: a file that was rewritten may have other rows, or other columns, than when it was looked at "
            "(since it was scanned, or since `protect`; another mode, or another link to it, looks the same).\n\n"
            "Hint: scan it anew and protect that."
        )
        raise ValueError(msg)


def reading_of_arrow(dataset: Any) -> Reading:  # noqa: ANN401
    files = tuple(files_of_arrow(dataset))
    return Reading(files, None if files else dataset, names_of_csv(dataset))


def _with_unit(readings: Sequence[Reading], read: Read) -> Reading:
    """Attach the privacy unit to a source."""
    reading: Reading = replace(readings[read.source], is_of_facts=read.is_of_facts)
    if read.unit is None:
        return reading
    columns = tuple(name for of in read.unit.columns for name in sorted(of))
    return replace(reading, columns=columns, computed_by=read.unit.computed_by or None)


def _readings(frame: pl.LazyFrame, plan: PlanSteps) -> tuple[list[Reading], list[Seen]]:
    """Return the sources of a plan, and operations of hidden scans that depend on the places of rows."""
    readings, hidden = list[Reading](), list[int]()
    seen = list[Seen]()
    for number in plan.sources:
        plan.view.set_node(number)
        try:
            node = plan.view.view_current_node()
        except NotImplementedError:
            hidden.append(len(readings))
            readings.append(Reading())
            continue
        readings.append(_reading(node, plan.view.get_schema()))
        if type(node).__name__ != "Scan":
            continue
        for path in map(str, node.paths):  # missing files raise before anything is charged
            if not re.search(r"://|[*?\[]", path) and not Path(path).exists():
                msg = f"the plan must read files that exist, got {path!r}."
                raise FileNotFoundError(msg)
        if node.scan_type[0] == "csv":
            options = json.loads(node.scan_type[1])
            # Lines above a header are no rows.
            skips = ["skip_rows_after_header", *(() if options["has_header"] else ("skip_rows", "skip_lines"))]
            seen += [Seen(kinds.PLACE, f"a scan with {name}") for name in skips if options[name]]
    if hidden:  # IPC; Hive before Polars 2
        every = serialized_scans(frame)
        if every is None:
            return readings, [*seen, Seen(kinds.UNKNOWN, "a scan")]
        files = []
        for scan in every:
            options = scan["unified_scan_args"]
            seen += of_rows(options["pre_slice"], options["row_index"])
            files.append(tuple(files_of_scan(scan)))
        # Polars may have merged several scans: then each scan may read all files.
        if len(files) != len(hidden):
            files = [tuple(file for several in files for file in several)] * len(hidden)
        for place, of in zip(hidden, files, strict=True):
            readings[place] = replace(readings[place], files=of)
    return readings, seen


def _reading(node: Any, columns: Iterable[str]) -> Reading:  # noqa: ANN401
    match type(node).__name__:
        case "Scan":
            order = tuple(columns) if node.scan_type[0] == "csv" else ()
            return Reading(tuple(map(str, node.paths)), order=order)
        case "DataFrameScan":
            return Reading(memory=pl.DataFrame._from_pydf(node.df))
    dataset = dataset_of(node.options[0])
    return Reading() if dataset is None else reading_of_arrow(dataset)
