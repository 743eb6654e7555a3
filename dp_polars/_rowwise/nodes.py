"""What an expression is made of: its steps, under the names that its serialized form and a plan have in common."""

from __future__ import annotations

import io
import json
import re
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

import polars as pl
from polars.exceptions import ComputeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from polars._typing import PolarsDataType
    from polars.datatypes import DataTypeClass


# Where Polars keeps functions, in its serialized expressions and in its plans.
_NAMESPACES = {
    "Array": "arr.",
    "Binary": "bin.",
    "Bitwise": "bitwise_",
    "Boolean": "",
    "Business": "dt.",
    "Categorical": "cat.",
    "Extension": "ext.",
    "List": "list.",
    "Pow": "",
    "String": "str.",
    "Struct": "struct.",
    "Temporal": "dt.",
    "Trigonometry": "",
}
_FUNCTION_NAMES = {"atan2": "arctan2", "generic": "pow", "round_sf": "round_sig_figs", "z_fill": "zfill"}
_OPERATOR_NAMES = {
    "Plus": "+",
    "Minus": "-",
    "Multiply": "*",
    "TrueDivide": "/",
    "FloorDivide": "//",
    "Modulus": "%",
    "Eq": "==",
    "NotEq": "!=",
    "Lt": "<",
    "LtEq": "<=",
    "Gt": ">",
    "GtEq": ">=",
    "EqValidity": "eq_missing",
    "NotEqValidity": "ne_missing",
    "And": "&",
    "LogicalAnd": "&",
    "Or": "|",
    "LogicalOr": "|",
    "Xor": "^",
}


@dataclass(frozen=True)
class Step:
    """A node of an expression, in words that a serialized expression and a plan have in common.

    Its `kind` is "column", "literal", "series", "operator", "cast", "function", "other" (names, when-then:
    only their inputs matter) or "unknown". `dtypes` resolves the types of the result. `tree` is the serialized
    node, which may be rewritten, on the columns of `frame`; a plan has neither. For a step of a plan, `strict` says
    whether it raises on what does not fit.
    """

    kind: str
    name: str
    inputs: Sequence[Step]
    dtypes: Callable[[], Sequence[PolarsDataType]]
    parameters: Any = None
    tree: Any = None
    strict: bool = False
    frame: pl.LazyFrame | None = None

    @cached_property
    def varies(self) -> bool:
        """Whether it has one value per row, not one in all."""
        return self.kind == "column" or any(value.varies for value in self.inputs)


def operator_name(name: str) -> str:
    """Return an operator as one writes it; a plan's begins with "Operator."."""
    name = name.removeprefix("Operator.")
    return _OPERATOR_NAMES.get(name, name)


def function_name(name: str, namespace: str | None = None) -> str:
    """Return a function's name as the lists have it."""
    boundary = r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])"
    snake = re.sub(boundary, "_", name).lower().replace("arc_", "arc")
    snake = _FUNCTION_NAMES.get(snake, snake)
    if namespace is None:
        return snake
    namespace = re.sub("(Expr|Function)$", "", namespace)
    return _NAMESPACES.get(namespace, f"{namespace.lower()}.") + snake


def read(tree: Any, frame: pl.LazyFrame) -> Step:  # noqa: ANN401
    """Return the steps of an expression serialized as JSON, on the columns of `frame`."""

    def step(kind: str, name: str, *inputs: object, parameters: object = None) -> Step:
        steps = [read(value, frame) for value in inputs]
        return Step(kind, name, steps, dtypes, parameters, tree, frame=frame)

    @cache
    def dtypes() -> Sequence[PolarsDataType]:
        return frame.select(without_nan(tree)).collect_schema().dtypes()

    match tree:
        case {"Column": _} | {"Selector": _}:
            return step("column", "a column")
        case {"Literal": {"Dyn": _} | {"Scalar": _}}:
            return step("literal", "a literal")
        case {"Literal": {"Series": _}}:
            return step("series", "a Series")
        case {"Alias": [value, _]} | {"KeepName": value} | {"RenameAlias": {"expr": value}}:
            return step("other", "a name", value)
        case {"Ternary": {"predicate": predicate, "truthy": truthy, "falsy": falsy}}:
            return step("other", "when", predicate, truthy, falsy)
        case {"BinaryExpr": {"left": left, "op": str(operator), "right": right}}:
            return step("operator", operator_name(operator), left, right)
        case {"Cast": {"expr": value, "dtype": {"Literal": _}}}:
            return step("cast", "cast", value)
        case {"Function": {"input": inputs, "function": function}}:
            name, parameters = function_of(function)
            return step("function", name, *inputs, parameters=parameters)
        case {"Eval": {"expr": value, "evaluation": evaluation, "variant": "List" | "ListAgg" as variant}}:
            return step("function", _method_of_lists(evaluation, variant), value)
        case {"Eval": {"expr": value, "variant": "ArrayAgg" | {"Array": _}}}:
            return step("function", "arr.eval", value)
        case {"StructEval": {"expr": value, "evaluation": _}}:
            return step("function", "struct.with_fields", value)
        case {"AnonymousFunction": _}:
            return step("unknown", "a Python function")
        case {"Agg": {**kinds}} | {**kinds}:
            return step("unknown", function_name(str(next(iter(kinds)))))
        case _:
            return step("unknown", function_name(str(tree)))


def write(tree: dict[str, Any]) -> pl.Expr | None:
    """Return the expression that JSON stands for, None where JSON can't hold it: it has no NaN and no infinity."""
    try:
        expr = _parse(json.dumps(tree))
    except ComputeError:
        return None
    return expr if json.loads(expr.meta.serialize(format="json")) == tree else None


def bases(*steps: Step) -> set[DataTypeClass]:
    """Return the classes of the types of the steps' results, nested ones among them."""
    return {part.base_type() for step in steps for dtype in step.dtypes() for part in parts_of(dtype)}


def parts_of(dtype: PolarsDataType) -> Iterator[PolarsDataType]:
    """Yield a type, and those nested in it."""
    yield dtype
    if isinstance(dtype, (pl.List, pl.Array)):
        yield from parts_of(dtype.inner)
    if isinstance(dtype, pl.Struct):
        for field in dtype.fields:
            yield from parts_of(field.dtype)
    if isinstance(dtype, pl.BaseExtension):
        yield from parts_of(dtype.ext_storage())


def is_opaque(dtype: PolarsDataType) -> bool:
    """Return whether a type is or holds one of which nothing is known: an Extension, an Object."""
    return any(isinstance(part, (pl.BaseExtension, pl.Object)) for part in parts_of(dtype))


def function_of(function: Any) -> tuple[str, Any]:  # noqa: ANN401
    """Return the name and the parameters of a serialized function."""
    if isinstance(function, str):
        return function_name(function), None
    ((key, inner),) = function.items()
    if re.sub("(Expr|Function)$", "", key) in _NAMESPACES:
        if isinstance(inner, str):
            return function_name(inner, key), None
        ((variant, parameters),) = inner.items()
        name = function_name(variant, key)
        return name, parameters[1]["format"] if name == "str.strptime" else parameters
    if key == "Bin":  # breaks, or else as many bins of the data's range, quantiles or ranks
        by_breaks = "Breaks" in inner["method"].get("Intervals", {}).get("spec", {})
        return "bin_intervals" if by_breaks else "bin_quantiles", None
    return function_name(key), inner


def _method_of_lists(evaluation: object, variant: str) -> str:
    """Return which method of lists Polars 2 spells as an evaluation over a row's own elements."""
    match evaluation:
        case {"Function": {"input": ["Element"], "function": "Reverse"}}:
            return "list.reverse"
        case {"Function": {"input": ["Element"], "function": {"Boolean": {"Any": _}}}}:
            return "list.any"
        case {"Function": {"input": ["Element"], "function": {"Boolean": {"All": _}}}}:
            return "list.all"
        case {"Agg": {"NUnique": "Element"}}:
            return "list.n_unique"
        case {"Agg": {"Item": _}}:
            return "list.item"
        case _:
            return "list.eval" if variant == "List" else "list.agg"


def without_nan(tree: object) -> pl.Expr:
    """Return the expression that JSON stands for, with 0 where JSON could not hold a NaN or an infinity."""
    return _parse(re.sub(r'\{"Float(16|32|64|)": null\}', r'{"Float\1": 0.0}', json.dumps(tree)))


def _parse(text: str) -> pl.Expr:
    return pl.Expr.deserialize(io.BytesIO(text.encode()), format="json")
