"""Person by person: the proof that a step makes what it gives of one person's own rows, whatever their order.

An expression is taken apart. What is computed from each row goes through the row gate, into columns of its own; so does
what is computed from what each person has. In between stand single functions of single columns, for which there is a
table of rules (person_rules.py). So nothing new has to be proved of row-by-row steps, and a function of a person's rows
meets nothing but a column, whose values were made one of a kind first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import polars as pl
from polars.exceptions import ComputeError

from dp_polars._base.column_types import PrivacyUnit, as_arguments, is_opaque
from dp_polars._base.column_types import shown as shown_unit
from dp_polars._steps import nodes, person_rules, trials, whole_numbers
from dp_polars._steps.gate import fitting, in_full, row_by_row
from dp_polars._steps.nodes import FUNCTIONS, ExprNode, Tree
from dp_polars._steps.person_rules import Group, PersonColumns, SortKeys, TakenApart, Value, has_order, over, step_named
from dp_polars._steps.rewriting import SPELLINGS, filled
from dp_polars._steps.whole_numbers import nested_of_one_kind, of_one_kind

if TYPE_CHECKING:
    from polars._typing import PolarsDataType


# Returns a serialized function of another column.
_Of: TypeAlias = Callable[[Tree], Tree]

# Polars 2 gives the first or the last of equal values, by whether it knows the whole column to be sorted. Polars 1
# does not look at that; there a comparison in a descending group has its nulls elsewhere by other rows.
IS_POLARS_1 = pl.__version__.startswith("1.")
_FLAGS = ("descending", "nulls_last")
_ENDS = {} if IS_POLARS_1 else {"arg_max": pl.Expr.max, "arg_min": pl.Expr.min}


_ANY_ORDER = SortKeys((), (), ())


class _AgainError(Exception):
    """What must be known before an expression is taken apart."""


def _taken(make: Callable[[_Apart], None], schema: pl.Schema, unit: PrivacyUnit | None, call: str) -> TakenApart:
    """Return what is taken apart; it begins again where an order must tell more rows apart."""
    needs: set[str] = set()
    while True:
        apart = _Apart(schema, unit, call, frozenset(needs))
        try:
            make(apart)
        except _AgainError as again:
            needs.add(*again.args)
        else:
            return apart.taken


def looks_at_people(exprs: Iterable[pl.Expr]) -> bool:
    try:
        return any('"Over":' in expr.meta.serialize(format="json") for expr in exprs)
    except (ComputeError, RecursionError):  # the row gate says what is wrong
        return False


def over_people(exprs: Sequence[pl.Expr], schema: pl.Schema, unit: PrivacyUnit | None, call: str) -> TakenApart:
    """Take expressions apart that have one value for each row, with `over(unit, …)` in them.

    Without a `unit` no window is taken. `call` is the method that the user called.

    Raises TypeError or ValueError if a window leaves the unit out, if what it computes does not follow from the
    person's rows in any order, or if the rest of an expression is not row by row.
    """

    def make(apart: _Apart) -> None:
        outputs = list[tuple[Tree, str | None]]()
        read = [apart.read(expr, [*schema]) for expr in exprs]
        apart.prepare(tree for tree, _ in read)
        for expr, (tree, names) in zip(exprs, read, strict=True):
            if looks_at_people([expr]):
                outputs += [(apart.windows(single), name) for single, name in apart.single(tree, names)]
            else:
                outputs.append((tree, None))
        apart.finish(outputs, apart.schema)

    return _taken(make, schema, unit, call)


def of_groups(
    exprs: Sequence[pl.Expr], schema: pl.Schema, unit: PrivacyUnit, keys: Sequence[str], call: str
) -> TakenApart:
    """Take expressions apart that have one value for each group of rows with the same keys, the unit among them.

    Parameters and errors are those of `over_people`. The outputs are on the keys and the finals.
    """

    def make(apart: _Apart) -> None:
        apart.check_keys(keys)
        read = [apart.read(expr, [name for name in schema if name not in keys]) for expr in exprs]
        apart.prepare(tree for tree, _ in read)
        floats = [of_one_kind(name, schema[name]) for name in keys if schema[name].is_float()]
        if floats:
            apart.taken.levels.append(floats)
            apart.after |= dict.fromkeys((expr.meta.output_name() for expr in floats), 1)
        group = Group(tuple(keys), frozenset(keys), is_row=True)
        outputs, taken = [], list(keys)
        for tree, names in read:
            for single, name in apart.single(tree, names):
                outputs.append((apart.of_group(single, group), name))
                taken.append(name)
        repeated = sorted({name for name in taken if taken.count(name) > 1})
        if repeated:
            msg = (
                f"{call}: outputs must be named unlike each other and unlike the keys, got several named {repeated}."
                "\n\nHint: use alias, or agg(name=…)."
            )
            raise ValueError(msg)
        apart.finish(outputs, {name: apart.schema[name] for name in (*keys, *apart.finals)})

    return _taken(make, schema, unit, call)


class _Apart(PersonColumns):
    """Takes the expressions of one step apart."""

    def __init__(self, schema: pl.Schema, unit: PrivacyUnit | None, call: str, needs: frozenset[str]) -> None:
        super().__init__(schema, unit, call)
        self.needs = needs
        self.behind: list[str] = []  # the columns that go behind each order, so that rows that tie are the same
        self.follows_order = False  # whether a column was made that follows an order

    # --- Orders in which rows tie only if they are the same

    def prepare(self, trees: Iterable[Tree]) -> None:
        """Find the columns that an order must tell rows apart by, and make their equal values the same to the bit.

        For one value of each person these are the columns that are read; for a value of each row all of the frame, as
        a later step may read any. Rows that tie in an order that ends with them are the same in all that is read.
        """
        ordered = [tree for tree in trees if has_order(tree)]
        read = {name for tree in ordered for name in _names_in(tree)}
        self.behind = [name for name in self.columns if name in read or "all columns" in self.needs]
        kinds = ((name, nested_of_one_kind(name, self.columns[name])) for name in self.behind)
        self.taken.rows = [expr for _, expr in kinds if expr is not None]
        if "numbers" in self.needs:
            self.taken.number = f"{self.prefix}{len(self.schema)}"
            self.schema[self.taken.number] = pl.UInt32()
            self.taken.temporary.append(self.taken.number)

    def need(self, what: str) -> None:
        if what not in self.needs:
            raise _AgainError(what)

    def whole_order(self, order: SortKeys, step: str, group: Group, *, along: bool) -> SortKeys:
        """Return an order in which rows tie only if they are the same in all that is read.

        Several values that follow an order must find rows that are the same in one and the same order: that of their
        number, which is any.
        """
        further = [self.in_order(name, step) for name in self.behind if name not in group.constant]
        if along:
            if self.follows_order:
                self.need("numbers")
            further += [self.taken.number] if self.taken.number else []
        further = [name for name in further if name not in order.columns]
        down, last = ((flags[:1] or (False,)) * len(further) for flags in (order.descending, order.nulls_last))
        return SortKeys((*order.columns, *further), order.descending + down, order.nulls_last + last)

    def follow(self, expr: pl.Expr, value: Value, name: str, group: Group, *keys: str) -> str:
        """Return the column of what has a value for each row that follows an order."""
        order = self.whole_order(value.order or _ANY_ORDER, name, group, along=True)
        keys = (*self.keys_of(value, group), *keys)
        self.follows_order = True
        return self.make(over(expr, keys, self.one_way(order, value, group, keys)))

    def one_way(self, order: SortKeys, value: Value, group: Group, keys: tuple[str, ...]) -> SortKeys:
        """Return an order of a value, by ranks if it has several directions."""
        ways = {*zip(order.descending, order.nulls_last, strict=True)}
        # On Polars 1 a window of several columns has nulls elsewhere than one of a single column, and than `sort_by`.
        is_of_several = value.order == group.order and value.order is not None and len(value.order.columns) > 1
        if len(ways) < 2 and (not IS_POLARS_1 or is_of_several or ways <= {(False, False)}):
            return order
        ranks = []
        for name, down, last in zip(order.columns, order.descending, order.nulls_last, strict=True):
            rank = self.make(pl.col(name).rank("dense", descending=down).over(keys))
            ranks.append(self.make(pl.col(rank).fill_null(2**32 - 1 if last else 0)))
        flags = (False,) * len(ranks)
        return SortKeys(tuple(ranks), flags, flags)

    def in_order(self, name: str, step: str) -> str:
        """Return the column that values of this one are compared by: of Categoricals, their texts."""
        dtype = self.schema.get(name, pl.Null())
        if not whole_numbers.has_order(dtype):
            self.refuse(person_rules.NO_ORDER_OF_VALUES, step_named(step), f" ({name!r} of {dtype})")
        by = whole_numbers.compared(name, dtype)
        return name if by.meta.is_column() else self.make(by)

    # --- Expressions, and those of one output each

    def read(self, expr: pl.Expr, names: Sequence[str]) -> tuple[Tree, list[str]]:
        """Return an expression whose selectors name the columns that they select among these, and its outputs."""
        try:
            tree = nodes.tree_of(expr)
        except (ComputeError, RecursionError):
            row_by_row(expr, self.columns, self.call)  # which says what is wrong
            raise
        if trials.apart(tree) != tree:
            # The step is tried as it is, and that must not add to the Categories of the private rows.
            self.refuse(person_rules.NAMES_CATEGORIES, step_named("cast"))
        apart = {name: trials.apart_type(dtype) for name, dtype in self.columns.items()}
        among = pl.LazyFrame(schema={name: apart[name] for name in names})
        with fitting(self.call):
            tree = nodes.changed(tree, "Selector", lambda selector: _by_name(among, selector))
            return tree, nodes.schema_of(tree, pl.LazyFrame(schema=apart)).names()

    def single(self, tree: Tree, names: Sequence[str]) -> Iterator[tuple[Tree, str]]:
        """Yield the expressions of one output each, and the names of these."""
        selected = [node["ByName"]["names"] for node in nodes.of_kind(tree, "Selector")]
        if any(len(columns) not in {1, len(names)} for columns in selected) or (len(names) > 1 and not selected):
            msg = (
                f"{self.call}: an expression about the rows of one person must have as many outputs as its selectors "
                "have columns.\n\nHint: name the columns one by one."
            )
            raise ValueError(msg)
        for place, name in enumerate(names):
            yield nodes.changed(tree, "Selector", partial(_column_at, place)), name

    def finish(self, outputs: Sequence[tuple[Tree, str | None]], schema: dict[str, PolarsDataType]) -> None:
        for tree, name in outputs:
            expr = self.row_by_row(tree, schema)
            self.taken.outputs.append(expr if name is None or tree == {"Column": name} else expr.alias(name))

    # --- Groups

    def check_keys(self, keys: Sequence[str]) -> None:
        """Refuse groups of which one may hold rows of several people, and keys that may not be told apart."""
        call = f"{self.call}: the columns of over" if self.call != "group_by" else "group_by: the columns"
        if self.unit is None or not {*self.unit} <= {*keys}:
            hint, why = "name the column that tells people apart in protect.", "there must be a privacy unit"
            if self.unit is not None:
                hint = f"over({as_arguments(self.unit)}, …)."
                why = f"{call} must include the privacy unit {shown_unit(self.unit)}"
            got = [name if name in self.columns else "an expression" for name in keys]
            msg = f"{why}, got {got}: rows of several people would be taken together.\n\nHint: {hint}"
            raise ValueError(msg)
        for name in keys:
            if name not in self.schema:
                msg = f"{call} must be columns of the frame, got {name!r}."
                raise ValueError(msg)
            if self.schema[name].is_nested() or is_opaque(self.schema[name]):
                msg = (
                    f"{call} must not be lists, arrays, structs, Extensions or Objects, got {name!r} of "
                    f"{self.schema[name]}.\n\nHint: take a field, an element or the storage in the step before."
                )
                raise TypeError(msg)

    def windows(self, tree: Tree) -> Tree:
        """Return an expression of one value for each row, with a column in place of each window's functions."""
        return nodes.changed(self.with_names(tree), "Over", self.window)

    def with_names(self, tree: Tree) -> Tree:
        """Return an expression in which the fields of structs have names of their own, whatever their inputs become."""
        match tree:
            case {"Function": {"input": inputs, "function": "AsStruct" as function}}:
                named = [{"Alias": [self.with_names(of), self.output_name(of)]} for of in inputs]
                return {"Function": {"input": named, "function": function}}
            case {"Literal": _}:
                return tree
        return nodes.inside(tree, self.with_names)

    def window(self, node: Tree) -> Tree:
        if node["mapping"] != "GroupsToRows":
            self.refuse(person_rules.NOT_BY_ROWS, step_named("over"))
        keys = [self.key_of(key) for key in node["partition_by"] if not (isinstance(key, dict) and "Literal" in key)]
        self.check_keys(keys)
        floats = {name for name in keys if self.schema[name].is_float()}
        columns = tuple(self.make(of_one_kind(name, self.schema[name])) if name in floats else name for name in keys)
        group = Group(columns, frozenset(keys) - floats)
        order = None if node["order_by"] is None else self.order_of_window(*node["order_by"], group=group)
        group = replace(group, order=order)
        value = self.lower(node["function"], group)
        if not value.is_one and (value.order != order or value.where is not None):
            self.refuse(person_rules.SORTED_ROWS, step_named("sort_by"))
        if value.along:
            self.need("all columns")
        return value.tree

    def order_of_window(self, by: Tree, options: Tree, *, group: Group) -> SortKeys:
        columns, descending, last = [by], [options["descending"]], [options["nulls_last"]]
        match by:
            case {"Function": {"input": several, "function": {"RowEncode": {"Ordered": encoded}}}}:
                columns, descending, last = several, encoded["descending"], encoded["nulls_last"]
            case {"Function": {"input": several, "function": "AsStruct"}}:
                columns = several
        return self.order(columns, (descending, last), "over", group)

    def order(
        self, columns: Sequence[Tree], flags: Sequence[list[bool]], step: str, group: Group, where: str | None = None
    ) -> SortKeys:
        """Return an order by these columns, or by expressions, of the rows that there are."""
        names = []
        for tree in columns:
            by = self.lower(tree, replace(group.within, order=None))
            if by.order is not None or (not by.is_one and by.where != where):
                self.refuse(person_rules.MIXED_ORDERS, step_named(step))
            names.append(self.in_order(self.column(by), step))
        several = len(names)
        return SortKeys(tuple(names), *((tuple(given) * several)[:several] for given in flags))

    def key_of(self, tree: Tree) -> str:
        """Return the column of a window's key; of an expression, one that is made, whatever it is named."""
        match tree:
            case {"Column": str(name)}:
                return name
        return self.make(row_by_row(in_full(tree, self.call), self.columns, self.call))

    # --- One expression of one group

    def of_group(self, tree: Tree, group: Group) -> Tree:
        """Return an output of a group: one value, or a list of values in an order."""
        value = self.lower(tree, group)
        if value.is_one:
            return value.tree
        if value.order is None:
            self.refuse(person_rules.SEVERAL, step_named("a group's expression"))
        return {"Column": self.final(self.in_its_order(value, "sort_by", group))}

    def lower(self, tree: Tree, group: Group) -> Value:
        """Return an expression on columns in place of its functions of a group."""
        match tree:
            case {"Column": str(name)} if name in group.constant:
                return Value(tree, is_one=not group.is_inside, order=group.order if group.is_inside else None)
            case {"Column": str()}:
                return Value(tree, is_one=False, order=group.order)
            case {"Literal": _}:
                return Value(tree)
            case {"Alias": [value, _]} | {"KeepName": value} | {"RenameAlias": {"expr": value}}:
                return self.lower(value, group)
            case {"Sort": {"expr": value, "options": options}}:
                return self.sorted(value, None, options, group)
            case {"SortBy": {"expr": value, "by": by, "sort_options": options}}:
                return self.sorted(value, by, options, group)
            case {"Filter": {"input": value, "by": condition}}:
                return self.filtered(value, condition, group)
            case {"Slice": {"input": value, "offset": offset, "length": length}}:
                return self.sliced(value, self.constant(offset, "slice"), self.constant(length, "slice"), group)
            case {"Gather": {"expr": value, "idx": place, "returns_scalar": True}}:
                match place:
                    case {"Function": {"input": [by], "function": "ArgMax" | "ArgMin" as end}}:
                        return self.most("max_by" if end == "ArgMax" else "min_by", value, by, group)
                return self.got(value, self.constant(place, "gather"), group)
            case {"Function": {"input": [value, number], "function": {"TopK": {"descending": smallest}}}}:
                in_order = {"Sort": {"expr": value, "options": {"descending": not smallest, "nulls_last": True}}}
                return self.sliced(in_order, 0, self.constant(number, "top_k"), group)
            case {"Function": {"input": [begin, end], "function": {"Range": {"IntRange": {"step": 1}}}}}:
                return self.numbers(tree, begin, end, group)
            case "Len":
                return self.function("len", (), None, lambda _: tree, group)
            case {"Agg": {**kinds}}:
                ((kind, of),) = kinds.items()
                return self.aggregate(str(kind), of, group)
            case {"Function": {"input": inputs, "function": function}}:
                name, parameters = nodes.function_of(function)
                if name in person_rules.IN_OTHER_WORDS:
                    if self.lower(inputs[0], group.within).order is None:
                        self.refuse(person_rules.NO_ORDER, step_named(name))
                    words = person_rules.IN_OTHER_WORDS[name](*(pl.col(f"{n}") for n in range(len(inputs))))
                    return self.lower(filled(words, inputs), group)
                if name in person_rules.SHORTER:
                    return self.shorter(name, inputs[0], group)
                if name in person_rules.BY:
                    return self.most(name, inputs[0], inputs[1], group)
                if name not in FUNCTIONS and name not in SPELLINGS:

                    def write(column: Tree) -> Tree:
                        return {"Function": {"input": [column, *inputs[1:]], "function": function}}

                    return self.function(name, inputs, parameters, write, group)
                names = map(self.output_name, inputs) if name == "as_struct" else ()
                return self.combined(tree, inputs, group, names=tuple(names))
            case {"BinaryExpr": {"left": left, "right": right}}:
                return self.combined(tree, [left, right], group)
            case {"Ternary": {"predicate": predicate, "truthy": truthy, "falsy": falsy}}:
                return self.combined(tree, [predicate, truthy, falsy], group)
            case {"Cast": {"expr": value}} | {"Eval": {"expr": value}}:
                return self.combined(tree, [value], group)
        kind = tree if isinstance(tree, str) else str(next(iter(tree)))
        return self.refuse_function(step_named(nodes.function_name(kind)))

    def output_name(self, tree: Tree) -> str:
        return in_full(tree, self.call).meta.output_name()

    def combined(self, tree: Tree, inputs: Sequence[Tree], group: Group, *, names: Sequence[str] = ()) -> Value:
        """Return a step on each row, which the row gate proves later; `names` are those of a struct's fields."""
        values = [self.lower(value, group) for value in inputs]
        rows = [value for value in values if not value.is_one]
        if len({(value.order, value.where) for value in rows}) > 1:
            self.refuse(person_rules.MIXED_ORDERS, step_named("a group's expression"))
        first = rows[0] if rows else Value(None)
        trees = [value.tree for value in values]
        named = [{"Alias": list(pair)} for pair in zip(trees, names, strict=True)] if names else trees
        written = trials.with_inputs(tree, named)
        return Value(written, not rows, first.order, any(value.along for value in rows), first.where)

    def rows(self, tree: Tree, name: str, group: Group, *, ordered: bool = False) -> Value:
        """Return the rows that a function is given; refuse one value for all of them, or rows without an order."""
        value = self.lower(tree, group.within)
        if value.is_one:
            self.refuse(person_rules.ONE_ALREADY, step_named(name))
        if ordered and value.order is None:
            self.refuse(person_rules.NO_ORDER, step_named(name))
        return value

    def sorted(self, tree: Tree, by: Sequence[Tree] | None, options: Tree, group: Group) -> Value:
        step = step_named("sort" if by is None else "sort_by")
        value = self.rows(tree, step.name, group)
        if value.order is not None and by is not None:
            self.refuse(person_rules.MIXED_ORDERS, step)
        if by is None:  # in another order they may have stood before
            order = SortKeys((self.in_order(self.column(value), step.name),), *((options[flag],) for flag in _FLAGS))
        else:
            order = self.order(by, [options[flag] for flag in _FLAGS], step.name, group, value.where)
        return replace(value, order=order)

    # --- Some of a person's rows

    def filtered(self, tree: Tree, condition: Tree, group: Group) -> Value:
        value, holds = self.rows(tree, "filter", group), self.lower(condition, group.within)
        if not holds.is_one and (holds.order, holds.where) != (value.order, value.where):
            self.refuse(person_rules.MIXED_ORDERS, step_named("filter"))
        column = self.column(holds)
        if self.schema[column] not in {pl.Boolean, pl.Null}:
            self.refuse(person_rules.NO_CONDITION, step_named("filter"), f" (by {self.schema[column]})")
        return self.some(value, pl.col(column).cast(pl.Boolean), along=holds.along)

    def some(self, value: Value, holds: pl.Expr, *, along: bool = False) -> Value:
        """Return those of a value's rows for which a condition holds, too."""
        holds = holds.fill_null(value=False)
        where = self.make(holds if value.where is None else holds & pl.col(value.where))
        return replace(value, where=where, along=value.along or along)

    def shorter(self, name: str, tree: Tree, group: Group) -> Value:
        """Return the rows without nulls or NaN, one of equal values each, or the most frequent ones."""
        value = self.rows(tree, name, group)
        column = pl.col(self.checked(name, value))
        if name == "drop_nulls":
            return self.some(value, column.is_not_null())
        if name == "drop_nans":
            is_float = self.schema[column.meta.output_name()].is_float()
            return self.some(value, column.is_nan().fill_null(value=False).not_()) if is_float else value
        # One of the rows with equal values. Their other columns may differ, and a later order looks at these where it
        # ties: so it is the first one by the columns that are read. Without an order any will do.
        one = self.one_kind(column.meta.output_name())
        keys = (*self.keys_of(value, group), one)
        order = self.whole_order(_ANY_ORDER, name, group, along=False)
        holds = pl.col(self.make(over(pl.int_range(pl.len()), keys, order))) == 0
        if name == "mode":
            number = self.make(pl.len().over(keys))
            holds &= pl.col(number) == pl.col(self.make(pl.col(number).max().over(self.keys_of(value, group))))
        return self.some(Value({"Column": one}, is_one=False, where=value.where), holds)

    def checked(self, name: str, value: Value) -> str:
        """Return the column of a value that a function may be given."""
        column = self.column(value)
        self.refuse_by_rule(ExprNode("function", name, (self.node_of(column),), list))
        return column

    def node_of(self, column: str) -> ExprNode:
        return ExprNode("column", "a column", (), lambda: [self.schema[column]])

    def sliced(self, tree: Tree, offset: int, length: int | None, group: Group) -> Value:
        value = self.rows(tree, "slice", group, ordered=True)
        place = pl.col(self.follow(pl.int_range(pl.len()), value, "slice", group))
        begin: pl.Expr | int = offset
        if offset < 0:
            begin = pl.col(self.make(pl.len().over(self.keys_of(value, group)))).cast(pl.Int64) + offset
        holds = place >= begin
        return self.some(value, holds if length is None else holds & (place < begin + length), along=True)

    def numbers(self, tree: Tree, begin: Tree, end: Tree, group: Group) -> Value:
        """Return the numbers of the rows in the order of a window, from any number on."""
        first, rest = self.constant(begin, "range.int_range"), end
        match end:
            case {"BinaryExpr": {"left": "Len", "op": "Plus", "right": right}}:
                first, rest = first - self.constant(right, "range.int_range"), "Len"
        if first != 0 or rest != "Len":
            self.refuse_function(step_named("range.int_range"))
        if group.order is None:
            self.refuse(person_rules.NO_ORDER, step_named("range.int_range"))
        value = Value(None, is_one=False, order=group.order)
        number = self.follow(in_full(tree, self.call), value, "range.int_range", group)
        return replace(value, tree={"Column": number}, along=True)

    def got(self, tree: Tree, place: int, group: Group) -> Value:
        """Return the value at a place of an order; null if there are fewer."""
        value = self.rows(tree, "gather", group, ordered=True)
        return self.hold(self.in_its_order(value, "gather", group).slice(place, 1).first(), group)

    def most(self, name: str, tree: Tree, by: Tree, group: Group) -> Value:
        """Return the value where another one is largest or smallest; of several, the least in the order of rows."""
        value, other = (self.rows(part, name, group) for part in (tree, by))
        if (other.order, other.where) != (value.order, value.where) or value.order is not None:
            self.refuse(person_rules.MIXED_ORDERS, step_named(name))
        column = self.checked(name, other)
        if self.schema[column].is_float():
            column = self.one_kind(column, nan=None)
        order = SortKeys((column,), (name == "max_by",), (True,))
        value = self.some(replace(value, order=order), pl.col(column).is_not_null())
        return self.hold(self.in_its_order(value, name, group).first(), group)

    def in_its_order(self, value: Value, name: str, group: Group) -> pl.Expr:
        """Return the rows of a value that there are, in its order."""
        column = _where(pl.col(self.column(value)), value.where)
        if value.order is None:
            return column
        whole = self.whole_order(value.order, name, group, along=value.along)
        if not whole.columns:  # all rows are the same then
            return column
        nested = [name for name in whole.columns if self.schema[name].is_nested()]
        if IS_POLARS_1 and (nested or value.where is not None):
            self.refuse(person_rules.ORDER_ON_POLARS_1, step_named(name), f" ({nested or 'filtered'})")
        by = [_where(pl.col(name), value.where) for name in whole.columns]
        return column.sort_by(by, descending=list(whole.descending), nulls_last=list(whole.nulls_last))

    def keys_of(self, value: Value, group: Group) -> tuple[str, ...]:
        """Return the columns by which the rows of a value are told from those of others, and from those left out."""
        return group.keys if value.where is None else (*group.keys, value.where)

    # --- Functions of a group

    def aggregate(self, kind: str, of: Tree, group: Group) -> Value:
        name, parameters, more = nodes.function_name(kind), None, []
        place = next((place for place in ("input", "expr") if isinstance(of, dict) and place in of), None)
        value = of if place is None else of[place]
        if kind == "Count":
            name = "len" if of["include_nulls"] else "count"
        elif kind == "Quantile":
            more, parameters = [of["quantile"]], of
        elif kind in {"Std", "Var"}:
            value, parameters = of
        elif place is not None:
            parameters = of

        def write(column: Tree) -> Tree:
            return {"Agg": {kind: column if place is None else {**of, place: column}}}

        return self.function(name, [value, *more], parameters, write, group)

    def function(self, name: str, inputs: Sequence[Tree], parameters: object, write: _Of, group: Group) -> Value:
        """Return the column that holds what a function of a group gives."""
        if name not in person_rules.TAKEN:
            self.refuse_function(ExprNode("unknown", name, (), list, parameters))
        value = self.lower(inputs[0], group.within) if inputs else Value(None, is_one=False)
        frame = pl.LazyFrame(schema=self.schema)
        more = [nodes.read(tree, frame) for tree in inputs[1:]]
        bare = ExprNode("function", name, (), list, parameters)
        if value.is_one:
            self.refuse(person_rules.ONE_ALREADY, bare)
        column = self.column(value) if inputs else ""
        step = ExprNode("function", name, [self.node_of(column), *more] if inputs else (), list, parameters)
        self.refuse_by_rule(step)
        if name in person_rules.FIRST_OF_ORDER | person_rules.ALONG_ORDER and value.order is None:
            self.refuse(person_rules.NO_ORDER, bare)
        if name in person_rules.ONE_FOR_EACH_ROW:
            tree = {"Column": self.of_each_row(step, column, write, value, group)}
            ordered = name in person_rules.ALONG_ORDER | person_rules.FIRST_OF_EQUAL or person_rules.is_ordinal(step)
            return replace(value, tree=tree, along=value.along or ordered)
        if name in person_rules.FIRST_OF_ORDER:
            return self.of_order(name, column, write, value, group)
        return self.of_any_order(step, column, write, value, group)

    def of_each_row(self, step: ExprNode, column: str, write: _Of, value: Value, group: Group) -> str:
        name, keys = step.name, self.keys_of(value, group)
        if name in person_rules.OF_EQUAL:
            equal = self.one_kind(column)
            number = self.make(pl.len().over(*keys, equal))
            if name in person_rules.FIRST_OF_EQUAL:
                place = pl.col(self.follow(pl.int_range(pl.len()), value, name, group, equal))
                return self.make(place == (0 if name == "is_first_distinct" else pl.col(number).cast(pl.Int64) - 1))
            return self.make(pl.col(number) > 1 if name == "is_duplicated" else pl.col(number) == 1)
        if name == "cum_sum":
            return self.running_sum(column, write, value, group)
        if name == "rolling_expr":
            return self.rolling(column, step.parameters, write, value, group)
        if name in person_rules.ALONG_ORDER or person_rules.is_ordinal(step):
            kind = self.one_kind(column, nan=None) if name == "rank" else column
            return self.follow(self.written(kind, write), value, name, group)
        return self.make(self.written(self.one_kind(column, nan=None), write).over(keys))

    def running_sum(self, column: str, write: _Of, value: Value, group: Group) -> str:
        """Return the column of sums up to each row; null for all rows of a group in which a value is beyond."""
        dtype = self.schema[column]
        if not (dtype.is_float() or dtype.is_decimal()):
            number, back = self.as_integers(column)
            total = self.follow(self.written(number, write), value, "cum_sum", group)
            return total if back is None else self.make(pl.col(total).cast(back))
        number, is_beyond = self.whole(column, is_sum=True)
        total = self.follow(self.written(number, write), value, "cum_sum", group)
        found = whole_numbers.sum_of(pl.col(total), dtype) if dtype.is_float() else pl.col(total)
        return self.unless_beyond(found, is_beyond, value, group)

    def rolling(self, column: str, parameters: Any, write: _Of, value: Value, group: Group) -> str:  # noqa: ANN401
        """Return the column of sums or means of the last rows up to each; null as in `running_sum`."""
        dtype, options = self.schema[column], parameters["options"]
        number, is_beyond = self.whole(column, is_sum=False)

        def of_last(expr: pl.Expr) -> pl.Expr:
            total = self.follow(pl.col(self.make(expr)).cum_sum(), value, "rolling_expr", group)
            before = pl.col(total).shift(options["window_size"], fill_value=0)
            return pl.col(total) - pl.col(self.follow(before, value, "rolling_expr", group))

        total = of_last(pl.col(number).fill_null(0))
        count = of_last(pl.col(number).is_not_null().cast(pl.Int64))
        if parameters["function"] == "Mean":
            found = whole_numbers.mean_of(total, count, dtype)
        else:
            found = whole_numbers.sum_of(total, dtype) if dtype.is_float() else total
        (planned,) = self.types(self.written(column, write), of_group=False)
        found = pl.when(count >= options["min_periods"]).then(found.cast(planned, strict=False))
        return self.unless_beyond(found, is_beyond, value, group)

    def unless_beyond(self, found: pl.Expr, is_beyond: str | None, value: Value, group: Group) -> str:
        """Return the column of what is found; null for all rows of a group in which a value is beyond."""
        if is_beyond is None:
            return self.make(found)
        any_beyond = pl.col(self.make(pl.col(is_beyond).any().over(self.keys_of(value, group))))
        return self.make(pl.when(any_beyond.not_()).then(found))

    def of_order(self, name: str, column: str, write: _Of, value: Value, group: Group) -> Value:
        if name in _ENDS and (self.schema[column].is_float() or value.where is not None):
            column = self.one_kind(column, nan=None)
        value = replace(value, tree={"Column": column})
        # An order of the window itself is left to Polars, which may know nulls in it otherwise than sort_by does.
        of_window = value.order == group.order
        rows = self.in_its_order(replace(value, order=None) if of_window else value, name, group)
        if name in _ENDS:
            expr = (rows == _ENDS[name](_where(pl.col(column), value.where))).arg_true().first()
        else:
            expr = in_full(write(nodes.tree_of(rows)), self.call)
        if not of_window:
            return self.hold(expr, group)
        order = self.whole_order(value.order or _ANY_ORDER, name, group, along=value.along)
        order = self.one_way(order, value, group, group.keys)
        return Value({"Column": self.make(over(expr, group.keys, order))})

    def of_any_order(self, step: ExprNode, column: str, write: _Of, value: Value, group: Group) -> Value:
        name, where = step.name, value.where
        if where is not None and name in {"len", "null_count", "has_nulls"}:
            holds = pl.col(where) if name == "len" else pl.col(where) & pl.col(column).is_null()
            counted = pl.col(self.make(holds))
            return self.hold(counted.any() if name == "has_nulls" else counted.sum(), group)
        given = step.parameters if isinstance(step.parameters, dict) else {}
        ignores = name in person_rules.WITHOUT_NULLS or given.get("ignore_nulls", False)
        if where is not None and ignores:
            column, where = self.make(pl.when(pl.col(where)).then(pl.col(column))), None
        dtype = self.schema.get(column)
        if dtype is not None:
            if name in person_rules.ADDED and person_rules.is_added_whole(name, dtype):
                return self.added(name, column, step.parameters, group)
            if name in person_rules.MIDDLES and (dtype.is_float() or dtype.is_decimal()):
                return self.middle(step, column, group)
            if name == "sum":
                column, back = self.as_integers(column)
                found = self.hold(self.written(column, write), group)
                return found if back is None else self.then(pl.col(found.tree["Column"]).cast(back), group)
            if name in {"max", "min", "n_unique"}:
                column = self.one_kind(column, nan=float("nan") if name == "n_unique" else None)
        rows = _where(pl.col(column), where)
        return self.hold(in_full(write(nodes.tree_of(rows)), self.call), group)

    def written(self, column: str, write: _Of) -> pl.Expr:
        return in_full(write({"Column": column}), self.call)


def _where(expr: pl.Expr, where: str | None) -> pl.Expr:
    return expr if where is None else expr.filter(pl.col(where))


def _names_in(tree: Tree) -> Iterator[str]:
    yield from nodes.of_kind(tree, "Column")
    for selector in nodes.of_kind(tree, "Selector"):
        yield from selector["ByName"]["names"]


def _column_at(place: int, selector: Tree) -> Tree:
    """Return one column of a selector of names; its only one, if it has one."""
    names = selector["ByName"]["names"]
    return {"Column": names[place if len(names) > 1 else 0]}


def _by_name(frame: pl.LazyFrame, selector: Tree) -> Tree:
    names = nodes.schema_of({"Selector": selector}, frame).names()
    return {"Selector": {"ByName": {"names": names, "strict": True}}}
