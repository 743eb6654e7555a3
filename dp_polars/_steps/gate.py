"""The row gate: accept an expression if each row's value depends only on that row; lists, by their elements."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import polars as pl
from polars.exceptions import ComputeError, PolarsError

from dp_polars._steps import nodes, rewriting, rules, trials
from dp_polars._steps.nodes import SETS, ExprNode, Tree, names
from dp_polars._steps.rules import Rule

if TYPE_CHECKING:
    from polars._typing import PolarsDataType


# Functions of a list's own elements, by the types that they accept. Each returns a value for each element, for some, or
# one value. Sums are for integers only: floats round by their order, and Decimals overflow.
_OF_ALL = {
    **dict.fromkeys(names("count first last len null_count"), "one"),
    **dict.fromkeys(names("reverse shift"), "each"),
    **dict.fromkeys(names("drop_nulls filter slice unique"), "some"),
}
_OF_NUMBERS = {"max": "one", "min": "one", "rank": "each"}  # floats, too
_OF_EXACT = {
    **_OF_NUMBERS,
    **dict.fromkeys(names("all any n_unique"), "one"),
    **dict.fromkeys(names("cum_count cum_max cum_min diff is_duplicated is_first_distinct is_unique sort"), "each"),
}
_OF_INTEGERS = {"cum_sum": "each", "sum": "one"}
TAKEN = frozenset({*_OF_ALL, *_OF_EXACT, *_OF_INTEGERS})


class Body:
    """An expression on a list's elements, as row-by-row expressions and functions of lists in between.

    `parts`: the row-by-row expressions, each on columns. `refused`: anything else.
    `together` builds the whole expression again.
    """

    def __init__(self, step: ExprNode) -> None:
        dtype: Any = step.inputs[0].dtypes()[0]
        self.columns: dict[str, Any] = {"element": dtype.inner}
        self.made: dict[str, Tree] = {"element": "Element"}
        self.lengths = {"element": "each"}  # whether a column has a value for each element, for some, or one value
        self.parts: list[ExprNode] = []
        self.refused, self.rewritten = "", False
        self.whole = self.part(self.lowered(deepcopy(step.tree["Eval"]["evaluation"])))
        if not self.refused and step.name == "list.eval" and not nodes.holds(self.whole, "Column"):
            self.refused = "no element is in it"

    def lowered(self, tree: Tree) -> Tree:
        """Replace elements and functions of a list by columns."""
        function = _function(tree)
        if function is None:
            match tree:
                case "Element" | {"Column": ""}:
                    return {"Column": "element"}
                case {"Column": _} | {"Selector": _}:
                    self.refused = "a column of the frame"
                case {"Literal": _}:
                    return tree
            return nodes.inside(tree, self.lowered)
        name, places = function
        if name == "len" and not places:
            return self.column(tree, "one", pl.get_index_type())
        trees = [place[key] for place, key in places]
        inputs = [self.part(self.lowered(item)) for item in trees]
        if self.refused:
            return tree
        types = [self.type(item) for item in inputs]
        taken = dict(_OF_ALL)
        if types[0].is_integer() or types[0].is_temporal() or types[0] in (pl.Boolean, pl.String):
            taken |= _OF_EXACT
        taken |= (_OF_NUMBERS if types[0].is_float() else {}) | (_OF_INTEGERS if types[0].is_integer() else {})
        length = taken.get(name)
        if name == "rank" and tree["Function"]["function"]["Rank"]["options"]["method"] in {"Ordinal", "Random"}:
            length = None
        if length is None or any(self.length(item) != "each" for item in inputs):
            self.refused = f"{name} of {types[0]}"
            return tree
        for (place, key), item in zip(places, inputs, strict=True):
            place[key] = item
        if name == "unique" and tree["Function"]["function"] != {"Unique": True}:
            tree["Function"]["function"], self.rewritten = {"Unique": True}, True  # in the list's order
        return self.column(tree, length, self.type(tree))

    def part(self, tree: Tree) -> Tree:
        """Note a part to prove row by row."""
        if not self.refused:
            names = {*nodes.of_kind(tree, "Column")}
            lengths = sorted(self.lengths[name] for name in names if self.lengths[name] != "one")
            if len(set(lengths)) > 1 or lengths.count("some") > 1:
                self.refused = "lists of several lengths"
            elif tree not in ({"Column": name} for name in self.columns):
                self.parts.append(nodes.read(tree, pl.LazyFrame(schema=self.columns)))
        return tree

    def column(self, tree: Tree, length: str, dtype: PolarsDataType) -> Tree:
        name = f"made {len(self.made)}"
        self.columns[name], self.lengths[name], self.made[name] = dtype, length, tree
        return {"Column": name}

    def type(self, tree: Tree) -> pl.DataType:
        return nodes.schema_of(tree, pl.LazyFrame(schema=self.columns)).dtypes()[0]

    def length(self, tree: Tree) -> str:
        names = nodes.of_kind(tree, "Column")
        return next((self.lengths[name] for name in names if self.lengths[name] != "one"), "one")

    def together(self) -> Tree:
        """Return the whole expression, with elements and functions in place of columns."""

        def put(tree: Tree) -> Tree:
            return nodes.changed(tree, "Column", lambda name: "Element" if name == "element" else put(self.made[name]))

        return put(self.whole)


def _function(tree: Tree) -> tuple[str, list[tuple[Any, str | int]]] | None:
    """Return the name of a function of a list's elements, and the places of its inputs. None: it is another one."""
    match tree:
        case "Len":
            return "len", []
        case {"Agg": {**kinds}}:
            (kind,) = kinds
            value: Any = kinds[kind]
            is_deep = isinstance(value, dict) and "input" in value
            return nodes.function_name(str(kind)), [(value, "input") if is_deep else (tree["Agg"], str(kind))]
        case {"Filter": {"input": _, "by": _} as place}:
            return "filter", [(place, "input"), (place, "by")]
        case {"Sort": {"expr": _} as place}:
            return "sort", [(place, "expr")]
        case {"Slice": {"input": _, "offset": {"Literal": _}, "length": {"Literal": _}} as place}:
            return "slice", [(place, "input")]
        case {"Function": {"input": inputs, "function": function}}:
            name = nodes.function_of(function)[0]
            is_public = all(isinstance(item, dict) and "Literal" in item for item in inputs[1:])
            if name in TAKEN and is_public:
                return name, [(inputs, 0)]
    return None


_ONE_BY_ONE = "\n\nHint: name the columns one by one."


def row_by_row(expr: pl.Expr, frame_schema: pl.Schema, what: str) -> pl.Expr:
    """Return an expression that gives each row its own result and never raises; refuse any other.

    The expression has one output: see `one_output_each`. `what` begins messages, for example "filter".
    The result is `expr` itself, or an equivalent with null in place of errors: see rewriting.py.
    Dates beyond the years 1 to 9999 are moved into them.
    Float division is rounded correctly, as for a single row in a chunk.
    An expression of constants stays constant (a `select` of constants has one row).

    Raises TypeError if `expr` is no expression.
    Raises ValueError if a part is not known to be row by row, or raises on some value of its input types.
    Raises ValueError also if a column is named like a pattern. Polars' errors about the schema are raised, too.
    """
    if not isinstance(expr, pl.Expr):
        msg = f"{what}: a step must be a Polars expression, got {type(expr).__name__}."
        raise TypeError(msg)
    with suppress(ComputeError, RecursionError):  # `_read` explains the error
        if nodes.holds_answer(nodes.tree_of(expr)):
            msg = (
                f"{what}: a step must not hold a private answer, which is drawn from all rows.\n\n"
                'Hint: put it into agg: private.agg(pl.col("x").dp.mean(…)), release() it, and put the number into the '
                "step."
            )
            raise ValueError(msg)
    refuse_patterns(frame_schema)
    frame = pl.LazyFrame(schema={name: trials.apart_type(dtype) for name, dtype in frame_schema.items()})
    tree, step = _read(expr, frame, what)
    gate = Gate(what)
    names_categories = step.tree != tree
    try:
        with fitting(what):
            gate.walk(step)
            if len(step.dtypes()) != 1:
                msg = f"{what}: an expression must have one output here, got {len(step.dtypes())}.{_ONE_BY_ONE}"
                raise ValueError(msg)
            if gate.rewritten:
                expr = in_full(trials.home(step.tree), what)
            tried = nodes.without_nan(step.tree) if names_categories else expr
            frame.select(tried).collect_schema()
    except _RaisesError as error:
        failure = trials.failure_on(frame.collect(engine="in-memory"), nodes.without_nan(trials.apart(tree)))
        if failure is None:
            raise ValueError(*error.args) from None
        msg = f"{what}: the expression must be one that Polars can run: {failure}"
        if "not supported for dtype `str`" in str(failure):
            msg += "\n\nHint: make dates, times or numbers of the texts first: pl.col(…).str.to_date(strict=False)."
        raise ValueError(msg) from None
    if step.kind == "column":  # an unchanged column never raises
        return expr
    failure = trials.failure_on(trials.made_up(frame_schema), tried)
    if failure is not None:
        msg = f"{what}: the expression must be one that Polars can run, got on synthetic rows: {failure}"
        raise ValueError(msg)
    return expr


def adds_floats(expr: pl.Expr, frame_schema: pl.Schema, what: str) -> bool:
    """Return whether a row-by-row expression adds up floats of a list, which count to the nearest 2⁻⁴⁰."""
    frame = pl.LazyFrame(schema={name: trials.apart_type(dtype) for name, dtype in frame_schema.items()})
    with suppress(PolarsError, ValueError):  # `row_by_row` explains the error
        return rules.adds_floats(_read(expr, frame, what)[1])
    return False


@contextmanager
def fitting(what: str) -> Iterator[None]:
    """Turn Polars' refusal into an error that the expression does not fit the columns."""
    try:
        yield
    except PolarsError as error:
        msg = f"{what}: the expression must fit the columns: {str(error).partition(chr(10))[0]}"
        raise type(error)(msg) from None


def refuse_patterns(names: Iterable[str]) -> None:
    """Refuse columns with a name that Polars treats as a pattern: it would select all matching columns."""
    for name in names:
        if name == "*" or (name.startswith("^") and name.endswith("$")):
            msg = (
                f"no column of private rows must be named like a pattern, got {name!r}: Polars would take the columns "
                "that fit it.\n\nHint: rename it before `protect`."
            )
            raise ValueError(msg)


class _RaisesError(ValueError):
    """An operation raises on some value, or on all."""


class Gate:
    """Refuses operations that may raise, or use another row; rewrites those that can be made safe."""

    def __init__(self, what: str) -> None:
        self.what, self.rewritten = what, False

    def refusal(self, step: ExprNode, rule: Rule, details: str = "") -> ValueError:
        """Return the error: the refused operation, the reason, and a way out."""
        if step.kind == "unknown" and step.parameters:
            details = f" ({step.parameters})"
        return ValueError(rule.message(self.what, shown(step), details))

    def walk(self, step: ExprNode) -> None:
        """Refuse an operation by the rules, its inputs first. A rewritten operation is walked in its place."""
        tree = None
        with suppress(PolarsError):  # the walk explains the error
            tree = None if rules.NEEDS_POLARS_2.refuses(step) else rewriting.spelled_out(step)
        if tree is not None and step.frame is not None:
            rewriting.put(step.tree, tree)
            self.rewritten = True
            self.walk(nodes.read(step.tree, step.frame))
            return
        if step.kind in {"column", "literal"}:
            return
        named = (*rules.NAMED, rules.NEEDS_POLARS_2)
        self.refuse_by(named if rules.is_spelled_on_polars_2(step) else rules.UNLISTED, step)
        sets = SETS.get(step.name, ())
        for place, value in enumerate(step.inputs):
            # A Series of several lists is matched to rows by place, so it is walked, too.
            if value.kind != "series" or place not in sets or (step.name == "is_in" and not rules.is_set(value)):
                self.walk(value)
        self.refuse_by((rules.NEEDS_POLARS_2,), step)
        if step.varies:
            self.refuse_by(rules.LISTED, step)
        self.prove(step)

    def refuse_by(self, table: tuple[Rule, ...], step: ExprNode) -> None:
        for rule in table:
            if rule.refuses(step):
                raise self.refusal(step, rule)

    def prove(self, step: ExprNode) -> None:
        if step.name == "a name":
            return
        rewrite = None
        if step.varies:
            if step.name in {"list.agg", "list.eval"}:
                self.prove_elements(step)
            self.rewritten |= rewriting.before_trial(step)
            rewrite = rewriting.narrowing(step)
        failure = trials.failure(step, rewrite)
        if failure is not None:
            rule = next(rule for rule in rules.RAISING if rule.refuses(step))
            raise _RaisesError(*self.refusal(step, rule, f" ({failure})").args)
        if not step.varies:
            return
        if trials.depends_on_company(*_as_run(step, rewrite)):
            raise self.refusal(step, rules.COMPANY)
        if rewrite is not None:
            rewriting.put(step.tree, rewrite(step.tree))
            self.rewritten = True
        else:
            self.rewritten |= rewriting.after_trial(step)

    def prove_elements(self, step: ExprNode) -> None:
        """Prove operations on the elements of a row's own list."""
        body = Body(step)
        if body.refused:
            raise self.refusal(step, rules.OWN_LIST, f" ({body.refused})")
        for part in body.parts:
            self.walk(part)
        step.tree["Eval"]["evaluation"] = body.together()
        self.rewritten |= body.rewritten


def _as_run(
    step: ExprNode, rewrite: Callable[[dict[str, Any]], dict[str, Any]] | None
) -> tuple[tuple[PolarsDataType, ...], str]:
    """Return the types of an operation's columns, and the operation on these columns as JSON, as it will run."""
    tree, dtypes = trials.on_columns(step)
    if rewrite is not None:
        return tuple(dtypes), json.dumps(rewrite(tree))
    frame = pl.LazyFrame(schema={f"{n}": dtype for n, dtype in enumerate(dtypes)})
    as_run = nodes.read(deepcopy(tree), frame)  # `after_trial` rewrites it
    rewriting.after_trial(as_run)
    return tuple(dtypes), json.dumps(as_run.tree)


def one_output_each(exprs: Iterable[pl.Expr], schema: pl.Schema, what: str) -> list[pl.Expr]:
    frame = pl.LazyFrame(schema={name: trials.apart_type(dtype) for name, dtype in schema.items()})
    singles: list[pl.Expr] = []
    for expr in exprs:
        if not isinstance(expr, pl.Expr) or not expr.meta.has_multiple_outputs():
            singles.append(expr)
            continue
        tree, _ = _read(expr, frame, what)
        try:
            found = nodes.schema_of(trials.apart(tree), frame)
        except PolarsError:  # `row_by_row` explains the error
            singles.append(expr)
            continue
        with fitting(what):
            several = [in_full(item, what) for item in rewriting.each_output(tree, frame)]
            types = [nodes.schema_of(trials.apart(nodes.tree_of(item)), frame) for item in several]
        if [pair for item in types for pair in item.items()] != [*found.items()]:
            msg = f"{what}: an expression must have an output for each column that it selects, got {expr}.{_ONE_BY_ONE}"
            raise ValueError(msg)
        singles += several
    return singles


def shown(step: ExprNode) -> str:
    """Return how a user may have written an operation."""
    if step.name == "str.strptime":
        return f"`str.to_{step.dtypes()[0].base_type().__name__.lower()}`"
    return nodes.said(step.name)


def _read(expr: pl.Expr, frame: pl.LazyFrame, what: str) -> tuple[Any, ExprNode]:
    try:
        tree = nodes.tree_of(expr)
        return tree, nodes.read(trials.apart(tree), frame)
    except (ComputeError, RecursionError) as error:
        msg = (
            f"{what}: the expression must be one that can be inspected, got a Python function or a very deep one "
            f"({type(error).__name__}).\n\nHint: write it with native expressions, in several steps."
        )
        raise ValueError(msg) from None


def in_full(tree: dict[str, Any], what: str) -> pl.Expr:
    """Return the expression for JSON; refuse expressions that JSON can't represent."""
    expr = nodes.write(tree)
    if expr is None:
        msg = (
            f"{what}: the expression must have no NaN, infinity or very long float next to a cast or a division.\n\n"
            "Hint: give the cast or division a step of its own, a with_columns before this one."
        )
        raise ValueError(msg)
    return expr
