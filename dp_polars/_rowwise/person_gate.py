"""Person by person: the proof that a step makes what it gives of one person's own rows, whatever their order.

An expression is taken apart. What is computed from each row goes through the row gate, into columns of its own; so does
what is computed from what each person has. In between stand single functions of single columns, for which there is a
table of rules (person_rules.py). So nothing new has to be proved of row-by-row steps, and a function of a person's rows
meets nothing but a column, whose values were made one of a kind first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import polars as pl
from polars.exceptions import ComputeError

from dp_polars._base.privacy_units import as_arguments
from dp_polars._base.privacy_units import shown as shown_unit
from dp_polars._rowwise import categoricals, nodes, person_rules, trials
from dp_polars._rowwise.gate import fitting, in_full, row_by_row, shown
from dp_polars._rowwise.names import FUNCTIONS
from dp_polars._rowwise.nodes import Step, parts_of
from dp_polars._rowwise.zeros import of_one_kind

if TYPE_CHECKING:
    from polars._typing import PolarsDataType

    from dp_polars._base.privacy_units import PrivacyUnit
    from dp_polars._rowwise.rules import Rule

Tree: TypeAlias = Any  # an expression as JSON
# Returns a serialized function of another column.
_Of: TypeAlias = Callable[[Tree], Tree]

# Polars 2 gives the first or the last of equal values, by whether it knows the whole column to be sorted. Polars 1
# does not look at that; there a comparison in a descending group has its nulls elsewhere by other rows.
_ENDS = {} if pl.__version__.startswith("1.") else {"arg_max": pl.Expr.max, "arg_min": pl.Expr.min}


@dataclass(frozen=True)
class _Order:
    """Columns that rows are sorted by, and how."""

    columns: tuple[str, ...]
    descending: tuple[bool, ...]
    nulls_last: tuple[bool, ...]


@dataclass(frozen=True)
class _Value:
    """A part of an expression, on columns that hold what the functions in it give.

    `reads` are columns: rows of a person that are the same in them are the same here. `is_one`: there is one value for
    each person. `order` is the one in which the rows stand, if any; `along`: what a row has follows from that, too.
    """

    tree: Tree
    reads: frozenset[str] = frozenset()
    is_one: bool = True
    order: _Order | None = None
    along: bool = False


@dataclass(frozen=True)
class _Group:
    """Rows that one function sees: by which columns, in which order, and whether one row comes out for all of them."""

    keys: tuple[str, ...]
    constant: frozenset[str]
    order: _Order | None = None
    is_row: bool = False


@dataclass
class Taken:
    """Expressions taken apart.

    `levels` are columns to make first, each on those before it. `finals` are one value for each group; `outputs` what
    is left, row by row. `temporary` are the columns that were made.
    """

    levels: list[list[pl.Expr]] = field(default_factory=list)
    finals: list[pl.Expr] = field(default_factory=list)
    outputs: list[pl.Expr] = field(default_factory=list)
    temporary: list[str] = field(default_factory=list)

    def before(self, rows: pl.LazyFrame) -> pl.LazyFrame:
        """Return the rows with the columns that are made first."""
        for level in self.levels:
            rows = rows.with_columns(level)
        return rows


def looks_at_people(exprs: Iterable[pl.Expr]) -> bool:
    """Return whether one of the expressions has a window."""
    try:
        return any('"Over":' in expr.meta.serialize(format="json") for expr in exprs)
    except (ComputeError, RecursionError):  # the row gate says what is wrong
        return False


def over_people(exprs: Sequence[pl.Expr], schema: pl.Schema, unit: PrivacyUnit | None, call: str) -> Taken:
    """Take expressions apart that have one value for each row, with `over(unit, …)` in them.

    Parameters
    ----------
    exprs
        The expressions, of one or several outputs.
    schema
        The columns of the private frame.
    unit
        The columns that tell people apart. None: no window is taken.
    call
        The method that the user called.

    Raises
    ------
    TypeError, ValueError
        If a window leaves the unit out, if what it computes does not follow from the person's rows in any order, or if
        the rest of an expression is not row by row.
    """
    apart = _Apart(schema, unit, call)
    outputs = []
    for expr in exprs:
        tree, names = apart.read(expr, [*schema])
        if looks_at_people([expr]):
            outputs += [(apart.windows(tree), name) for tree, name in apart.single(tree, names)]
        else:
            outputs.append((tree, ""))
    apart.finish(outputs, apart.schema)
    return apart.taken


def of_groups(exprs: Sequence[pl.Expr], schema: pl.Schema, unit: PrivacyUnit, keys: Sequence[str], call: str) -> Taken:
    """Take expressions apart that have one value for each group of rows with the same keys, the unit among them.

    Parameters and errors are those of `over_people`. The outputs are on the keys and the finals.
    """
    apart = _Apart(schema, unit, call)
    apart.check_keys(keys)
    floats = [of_one_kind(name, schema[name]) for name in keys if schema[name].is_float()]
    if floats:
        apart.taken.levels.append(floats)
        apart.after |= dict.fromkeys((expr.meta.output_name() for expr in floats), 1)
    group = _Group(tuple(keys), frozenset(keys), is_row=True)
    outputs, taken = [], list(keys)
    for expr in exprs:
        tree, names = apart.read(expr, [name for name in schema if name not in keys])
        for single, name in apart.single(tree, names):
            value = apart.lower(single, group)
            if not value.is_one:
                apart.refuse(person_rules.SEVERAL, _named("a group's expression"))
            outputs.append((value.tree, name))
            taken.append(name)
    repeated = sorted({name for name in taken if taken.count(name) > 1})
    if repeated:
        msg = (
            f"{call}: outputs must be named unlike each other and unlike the keys, got several named {repeated}.\n\n"
            "Hint: use alias, or agg(name=…)."
        )
        raise ValueError(msg)
    apart.finish(outputs, {name: apart.schema[name] for name in (*keys, *apart.finals)})
    return apart.taken


class _Apart:
    """Takes the expressions of one step apart."""

    def __init__(self, schema: pl.Schema, unit: PrivacyUnit | None, call: str) -> None:
        self.columns, self.unit, self.call = schema, unit, call
        self.schema: dict[str, PolarsDataType] = dict(schema)
        self.taken = Taken()
        self.finals: list[str] = []
        self.orders: set[tuple[frozenset[str], _Order]] = set()  # by which rows have values of their own
        self.after: dict[str, int] = {}  # column -> after how many levels it is there
        self.found: dict[str, str] = {}  # what was made -> its column
        self.prefix = "of a person "
        while any(name.startswith(self.prefix) for name in schema):
            self.prefix += "and "

    # --- Expressions, and those of one output each

    def read(self, expr: pl.Expr, names: Sequence[str]) -> tuple[Tree, list[str]]:
        """Return an expression whose selectors name the columns that they select among these, and its outputs."""
        try:
            tree = json.loads(expr.meta.serialize(format="json"))
        except (ComputeError, RecursionError):
            row_by_row(expr, self.columns, self.call)  # which says what is wrong
            raise
        if categoricals.apart(tree) != tree:
            # The step is tried as it is, and that must not add to the Categories of the private rows.
            self.refuse(person_rules.NAMES_CATEGORIES, _named("cast"))
        apart = {name: categoricals.apart_type(dtype) for name, dtype in self.columns.items()}
        among = pl.LazyFrame(schema={name: apart[name] for name in names})
        with fitting(self.call):
            tree = _each(tree, "Selector", lambda selector: _by_name(among, selector))
            return tree, pl.LazyFrame(schema=apart).select(nodes.without_nan(tree)).collect_schema().names()

    def single(self, tree: Tree, names: Sequence[str]) -> Iterator[tuple[Tree, str]]:
        """Yield the expressions of one output each, and the names of these."""
        selected = [node["ByName"]["names"] for node in _nodes(tree, "Selector")]
        if any(len(columns) not in {1, len(names)} for columns in selected) or (len(names) > 1 and not selected):
            msg = (
                f"{self.call}: an expression about the rows of one person must have as many outputs as its selectors "
                "have columns.\n\nHint: name the columns one by one."
            )
            raise ValueError(msg)
        for place, name in enumerate(names):
            yield _each(tree, "Selector", partial(_column_at, place)), name

    def finish(self, outputs: Sequence[tuple[Tree, str]], schema: dict[str, PolarsDataType]) -> None:
        """Prove what is left of the outputs, row by row."""
        for tree, name in outputs:
            expr = row_by_row(in_full(tree, self.call), pl.Schema(schema), self.call)
            self.taken.outputs.append(expr if not name or tree == {"Column": name} else expr.alias(name))

    # --- Groups

    def check_keys(self, keys: Sequence[str]) -> None:
        """Refuse groups of which one may hold rows of several people, and keys that may not be told apart."""
        call = f"{self.call}: the columns of over" if self.call != "group_by" else "group_by: the columns"
        if self.unit is None or not {*self.unit} <= {*keys}:
            if self.unit is None:
                hint, why = "name the column that tells people apart in protect.", "there must be a privacy unit"
            else:
                hint = f"over({as_arguments(self.unit)}, …)."
                why = f"{call} must include the privacy unit {shown_unit(self.unit)}"
            msg = f"{why}, got {list(keys)}: rows of several people would be taken together.\n\nHint: {hint}"
            raise ValueError(msg)
        for name in keys:
            if name not in self.columns:
                msg = f"{call} must be columns of the frame, got {name!r}."
                raise ValueError(msg)
            if self.columns[name].is_nested() or self.columns[name] == pl.Object:
                msg = (
                    f"{call} must not be lists, arrays or structs, got {name!r} of {self.columns[name]}.\n\n"
                    "Hint: take a field or an element in the step before."
                )
                raise TypeError(msg)

    def windows(self, tree: Tree) -> Tree:
        """Return an expression of one value for each row, with a column in place of each window's functions."""
        return _each(tree, "Over", self.window)

    def window(self, node: Tree) -> Tree:
        if node["mapping"] != "GroupsToRows":
            self.refuse(person_rules.NOT_BY_ROWS, _named("over"))
        keys = [self.name_of(key, "over") for key in node["partition_by"] if not _is_constant(key)]
        self.check_keys(keys)
        floats = {name for name in keys if self.columns[name].is_float()}
        columns = tuple(self.make(of_one_kind(name, self.columns[name])) if name in floats else name for name in keys)
        order = None if node["order_by"] is None else self.order_of_window(*node["order_by"])
        group = _Group(columns, frozenset(keys) - floats, order)
        value = self.lower(node["function"], group)
        if not value.is_one and value.order != order:
            self.refuse(person_rules.SORTED_ROWS, _named("sort_by"))
        if value.along and order is not None:
            self.refuse_ties(order, frozenset(self.columns) - group.constant, "over", "as each row has its own value")
            # Rows that are the same in all columns may come in any order: one that is the same for all outputs.
            self.orders.add((frozenset(columns), order))
            if len(self.orders) > 1:
                self.refuse(person_rules.SEVERAL_ORDERS, _named("over"))
        return value.tree

    def order_of_window(self, by: Tree, options: Tree) -> _Order:
        """Return the order of a window; Polars has several columns as one."""
        columns, descending, last = [by], [options["descending"]], [options["nulls_last"]]
        match by:
            case {"Function": {"input": several, "function": {"RowEncode": {"Ordered": encoded}}}}:
                columns, descending, last = several, encoded["descending"], encoded["nulls_last"]
            case {"Function": {"input": several, "function": "AsStruct"}}:
                columns = several
        return self.order(columns, descending, last, "over")

    def order(self, columns: Sequence[Tree], descending: list[bool], nulls_last: list[bool], step: str) -> _Order:
        """Return an order by these columns; refuse values that may be equal without being the same."""
        names = tuple(self.name_of(column, step) for column in columns)
        for name in names:
            if name in self.schema and _is_inexact(self.schema[name]):
                self.refuse(person_rules.INEXACT_ORDER, _named(step), f" (by {name!r})")
        several = len(names)
        return _Order(names, *((tuple(given) * several)[:several] for given in (descending, nulls_last)))

    def name_of(self, tree: Tree, step: str) -> str:
        match tree:
            case {"Column": str(name)}:
                return name
        return self.refuse(person_rules.NO_COLUMN, _named(step))

    def refuse_ties(self, order: _Order, reads: frozenset[str], step: str, why: str) -> None:
        """Refuse an order in which rows that differ in what is read may tie."""
        missing = sorted(reads - set(order.columns))
        if missing:
            self.refuse(person_rules.TIES, _named(step), f" ({missing}, {why})")

    def refuse(self, rule: Rule, step: Step, details: str = "") -> NoReturn:
        """Raise what a rule says of a step."""
        raise ValueError(rule.message(self.call, shown(step), details))

    # --- One expression of one group

    def lower(self, tree: Tree, group: _Group, *, inside: bool = False) -> _Value:
        """Return an expression on columns in place of its functions of a group; `inside` one of them."""
        match tree:
            case {"Column": str(name)} if name in group.constant:
                return _Value(tree, is_one=not inside, order=group.order if inside else None)
            case {"Column": str(name)}:
                return _Value(tree, frozenset({name}), is_one=False, order=group.order)
            case {"Literal": _}:
                return _Value(tree)
            case {"Alias": [value, _]} | {"KeepName": value} | {"RenameAlias": {"expr": value}}:
                return self.lower(value, group, inside=inside)
            case {"Sort": {"expr": value, "options": options}}:
                return self.sorted(value, None, options, group)
            case {"SortBy": {"expr": value, "by": by, "sort_options": options}}:
                return self.sorted(value, by, options, group)
            case "Len":
                return self.function("len", (), None, lambda _: tree, group, inside=inside)
            case {"Agg": {**kinds}}:
                ((kind, of),) = kinds.items()
                return self.aggregate(str(kind), of, group, inside=inside)
            case {"Function": {"input": inputs, "function": function}}:
                name, parameters = nodes.function_of(function)
                if name not in FUNCTIONS:
                    write = _of_function(inputs[1:], function)
                    return self.function(name, inputs, parameters, write, group, inside=inside)
                return self.combined(tree, inputs, group, inside=inside)
            case {"BinaryExpr": {"left": left, "right": right}}:
                return self.combined(tree, [left, right], group, inside=inside)
            case {"Ternary": {"predicate": predicate, "truthy": truthy, "falsy": falsy}}:
                return self.combined(tree, [predicate, truthy, falsy], group, inside=inside)
            case {"Cast": {"expr": value}} | {"Eval": {"expr": value}}:
                return self.combined(tree, [value], group, inside=inside)
        kind = tree if isinstance(tree, str) else str(next(iter(tree)))
        return self.refuse_function(_named(nodes.function_name(kind)))

    def combined(self, tree: Tree, inputs: Sequence[Tree], group: _Group, *, inside: bool) -> _Value:
        """Return a step that looks at each row alone, or at what each person has; the row gate proves it later."""
        values = [self.lower(value, group, inside=inside) for value in inputs]
        rows = [value for value in values if not value.is_one]
        orders = {value.order for value in rows}
        if len(orders) > 1:
            self.refuse(person_rules.MIXED_ORDERS, _named("a group's expression"))
        return _Value(
            trials.with_inputs(tree, [value.tree for value in values]),
            frozenset[str]().union(*(value.reads for value in values)),
            is_one=not rows,
            order=next(iter(orders), None),
            along=any(value.along for value in rows),
        )

    def sorted(self, tree: Tree, by: Sequence[Tree] | None, options: Tree, group: _Group) -> _Value:
        """Return the rows in an order of their own."""
        value, step = self.lower(tree, group, inside=True), _named("sort" if by is None else "sort_by")
        if value.order is not None:
            self.refuse(person_rules.MIXED_ORDERS, step)
        if by is not None:
            order = self.order(by, options["descending"], options["nulls_last"], step.name)
            return _Value(value.tree, value.reads, value.is_one, order)
        if value.is_one:
            self.refuse(person_rules.ONE_ALREADY, step)
        column = {"Column": self.column(value)}
        order = self.order([column], [options["descending"]], [options["nulls_last"]], step.name)
        return _Value(column, frozenset(order.columns), is_one=False, order=order)

    def aggregate(self, kind: str, of: Tree, group: _Group, *, inside: bool) -> _Value:
        """Return what Polars calls an aggregation."""
        name, parameters, more = nodes.function_name(kind), None, []
        place = next((place for place in ("input", "expr") if isinstance(of, dict) and place in of), None)
        value = of if place is None else of[place]
        if kind == "Count":
            name = "len" if of["include_nulls"] else "count"
        elif kind == "Quantile":
            more = [of["quantile"]]
        elif place is not None:
            parameters = of

        def write(column: Tree) -> Tree:
            return {"Agg": {kind: column if place is None else {**of, place: column}}}

        return self.function(name, [value, *more], parameters, write, group, inside=inside)

    def function(
        self, name: str, inputs: Sequence[Tree], parameters: object, write: _Of, group: _Group, *, inside: bool
    ) -> _Value:
        """Return the column that holds what a function of a group gives."""
        if name not in person_rules.TAKEN:
            self.refuse_function(Step("unknown", name, (), list, parameters))
        value = self.lower(inputs[0], group, inside=True) if inputs else _Value(None, is_one=False)
        frame = pl.LazyFrame(schema=self.schema)
        more = [nodes.read(tree, frame) for tree in inputs[1:]]
        bare = Step("function", name, (), list, parameters)
        if value.is_one:
            self.refuse(person_rules.ONE_ALREADY, bare)
        column = self.column(value) if inputs else ""
        of = Step("column", "a column", (), lambda: [self.schema[column]])
        step = Step("function", name, [of, *more] if inputs else (), list, parameters)
        self.refuse_by_rule(step)
        needs_order = name in person_rules.FIRST_OF_ORDER | person_rules.ALONG_ORDER or person_rules.is_ordinal(step)
        if needs_order and value.order is None:
            self.refuse(person_rules.NO_ORDER, bare)
        if needs_order and value.along:
            self.refuse(person_rules.ALONG_ALREADY, bare)
        if value.order is not None and (needs_order or value.along):
            self.refuse_ties(value.order, value.reads, name, "as it reads them")
        # An order of the window itself is left to Polars, which may know nulls in it otherwise than sort_by does.
        is_sorted = name in person_rules.FIRST_OF_ORDER and value.order != group.order
        expr = self.written(name, column, write, value.order if is_sorted else None)
        if name in person_rules.ALONG_ORDER | person_rules.RANKS:
            order = value.order if needs_order else None
            if order is not None and len({*zip(order.descending, order.nulls_last, strict=True)}) > 1:
                self.refuse(person_rules.TWO_WAYS, bare)
            along = _over(expr, group.keys, order)
            return _Value({"Column": self.make(along)}, value.reads, False, value.order, needs_order or value.along)
        if group.is_row and not inside:
            return _Value({"Column": self.final(expr)})
        order = value.order if needs_order and not is_sorted else None
        return _Value({"Column": self.make(_over(expr, group.keys, order))})

    def written(self, name: str, column: str, write: _Of, order: _Order | None) -> pl.Expr:
        """Return a function of a column, of values that are one of a kind and add up in any order."""
        dtype, back = self.schema.get(column), None
        if dtype is not None and dtype.is_float() and name in {"max", "min", "n_unique", "rank"}:
            column = self.make(of_one_kind(column, dtype, nan=float("nan") if name == "n_unique" else None))
        if name in {"sum", "cum_sum"} and dtype != pl.Int64:
            column = self.make(pl.col(column).cast(pl.Int64, strict=False))
            back = dtype if dtype == pl.Duration else None
        value = pl.col(column)
        if order is not None:
            by = list(order.columns)
            value = value.sort_by(by, descending=list(order.descending), nulls_last=list(order.nulls_last))
        if name in _ENDS:
            return (value == _ENDS[name](pl.col(column))).arg_true().first()
        expr = in_full(write(json.loads(value.meta.serialize(format="json"))), self.call)
        return expr if back is None else expr.cast(back)

    def refuse_function(self, step: Step) -> NoReturn:
        """Refuse a function that is not taken."""
        self.refuse_by_rule(step)
        self.refuse(person_rules.UNKNOWN, step)

    def refuse_by_rule(self, step: Step) -> None:
        for rule in person_rules.REFUSED:
            if rule.refuses(step):
                self.refuse(rule, step)

    # --- Columns that are made

    def column(self, value: _Value) -> str:
        """Return the column of a value; one that is made for it, if it is none."""
        match value.tree:
            case {"Column": str(name)}:
                if name not in self.schema:
                    row_by_row(pl.col(name), self.columns, self.call)  # which says that it is not there
                return name
        return self.make(row_by_row(in_full(value.tree, self.call), pl.Schema(self.schema), self.call))

    def make(self, expr: pl.Expr) -> str:
        """Return the column that holds this expression of columns that there are."""
        text = expr.meta.serialize(format="json")
        if text not in self.found:
            level = max((self.after.get(name, 0) for name in _nodes(json.loads(text), "Column")), default=0)
            name = self.named(expr)
            if level == len(self.taken.levels):
                self.taken.levels.append([])
            self.taken.levels[level].append(expr.alias(name))
            self.after[name] = level + 1
            self.taken.temporary.append(name)
            self.found[text] = name
        return self.found[text]

    def final(self, expr: pl.Expr) -> str:
        """Return the column that holds this function of a group."""
        name = self.named(expr)
        self.taken.finals.append(expr.alias(name))
        self.finals.append(name)
        return name

    def named(self, expr: pl.Expr) -> str:
        """Return a new name for a column, whose type is then known."""
        name = f"{self.prefix}{len(self.schema)}"
        with fitting(self.call):
            (self.schema[name],) = pl.LazyFrame(schema=self.schema).select(expr).collect_schema().dtypes()
        return name


def _named(name: str) -> Step:
    """Return a step that is told by its name alone."""
    return Step("unknown", name, (), list)


def _over(expr: pl.Expr, keys: Sequence[str], order: _Order | None) -> pl.Expr:
    if order is None:
        return expr.over(keys)
    descending, nulls_last = order.descending[0], order.nulls_last[0]
    return expr.over(keys, order_by=list(order.columns), descending=descending, nulls_last=nulls_last)


def _of_function(more: Sequence[Tree], function: Tree) -> _Of:
    return lambda column: {"Function": {"input": [column, *more], "function": function}}


def _is_inexact(dtype: PolarsDataType) -> bool:
    """Return whether values that are equal may differ in their bits, or have another order in the next scan."""
    return any(part.is_float() or part.base_type() in {pl.Categorical, pl.Object} for part in parts_of(dtype)) or (
        dtype.is_nested()
    )


def _is_constant(tree: Tree) -> bool:
    return isinstance(tree, dict) and "Literal" in tree


def _nodes(tree: Tree, kind: str) -> Iterator[Tree]:
    """Yield what the nodes of a kind hold: of "Column" the names."""
    if isinstance(tree, dict):
        if kind in tree:
            yield tree[kind]
        tree = [] if "Literal" in tree else list(tree.values())
    if isinstance(tree, list):
        for value in tree:
            yield from _nodes(value, kind)


def _column_at(place: int, selector: Tree) -> Tree:
    """Return one column of a selector of names; its only one, if it has one."""
    names = selector["ByName"]["names"]
    return {"Column": names[place if len(names) > 1 else 0]}


def _each(tree: Tree, kind: str, change: Callable[[Tree], Tree]) -> Tree:
    """Return a serialized expression in which each node of a kind, but for those within such a one, is changed."""
    if isinstance(tree, list):
        return [_each(value, kind, change) for value in tree]
    if not isinstance(tree, dict) or "Literal" in tree:
        return tree
    if kind in tree:
        return change(tree[kind])
    return {key: _each(value, kind, change) for key, value in tree.items()}


def _by_name(frame: pl.LazyFrame, selector: Tree) -> Tree:
    """Return the selector of the columns of a frame that another one selects, by name."""
    names = frame.select(nodes.without_nan({"Selector": selector})).collect_schema().names()
    return {"Selector": {"ByName": {"names": names, "strict": True}}}
