"""What an expression is made of: its steps by name, and which functions look at one row alone.

The lists hold what was tried on extreme rows of every type on Polars 1.36.1 and 2.1.0: a frame at once, its
rows one by one, its rows reversed, and short chunks must agree. What is not listed is refused, also what a later
Polars will add.
"""

from __future__ import annotations

import io
import json
import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import polars as pl
from polars.exceptions import ComputeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from polars._typing import PolarsDataType
    from polars.datatypes import DataTypeClass


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


DIVISIONS = _names("/ // %")
ARITHMETIC = DIVISIONS | _names("+ - *")
OPERATORS = ARITHMETIC | _names("== != < <= > >= eq_missing ne_missing & | ^")

# Functions of several columns of the same row.
OF_COLUMNS = _names(
    """
    all_horizontal any_horizontal arctan2 as_struct coalesce fill_null is_between is_close is_in
    max_horizontal mean_horizontal min_horizontal sum_horizontal
    arr.contains bin.contains bin.ends_with bin.starts_with dt.business_day_count dt.combine dt.duration
    list.concat list.contains list.set_operation str.concat_horizontal str.ends_with str.format
    str.starts_with str.strip_prefix str.strip_suffix
    """
)
# Functions of one column: their further inputs must be public constants.
OF_ONE_COLUMN = _names(
    """
    abs arccos arccosh arcsin arcsinh arctan arctanh bin_intervals bitwise_count_ones bitwise_count_zeros
    bitwise_leading_ones bitwise_leading_zeros bitwise_trailing_ones bitwise_trailing_zeros cbrt ceil clip
    cos cosh cot cut degrees erf erfc exp floor hash is_finite is_infinite is_nan is_not_nan is_not_null
    is_null log log1p negate not pow radians reinterpret replace replace_strict round round_sig_figs sign sin
    sinh sqrt tan tanh to_physical truncate
    arr.arg_max arr.arg_min arr.count_matches arr.get arr.join arr.length arr.max arr.median arr.min
    arr.shift arr.sort arr.std arr.sum arr.to_list arr.var
    bin.base64_decode bin.base64_encode bin.get bin.head bin.hex_decode bin.hex_encode bin.reinterpret
    bin.size bin.slice bin.tail
    cat.ends_with cat.len_bytes cat.len_chars cat.slice cat.starts_with
    dt.add_business_day dt.base_utc_offset dt.cast_time_unit dt.century dt.convert_time_zone dt.date dt.day
    dt.days_in_month dt.dst_offset dt.hour dt.is_business_day dt.is_leap_year dt.iso_year dt.microsecond
    dt.millennium dt.millisecond dt.minute dt.month dt.month_end dt.month_start dt.nanosecond dt.offset_by
    dt.ordinal_day dt.quarter dt.replace_time_zone dt.round dt.second dt.time dt.time_stamp dt.to_string
    dt.total_days dt.total_hours dt.total_microseconds dt.total_milliseconds dt.total_minutes
    dt.total_nanoseconds dt.total_seconds dt.truncate dt.week dt.week_day dt.year
    list.all list.any list.arg_max list.arg_min list.count_matches list.drop_nulls list.gather
    list.gather_every list.get list.join list.length list.max list.median list.min list.n_unique
    list.reverse list.shift list.slice list.sort list.std list.sum list.var
    str.base64_decode str.base64_encode str.contains str.contains_any str.count_matches str.escape_regex
    str.extract str.extract_all str.extract_groups str.extract_many str.find str.find_many str.head
    str.hex_decode str.hex_encode str.json_path_match str.len_bytes str.len_chars str.lowercase str.normalize
    str.pad_end str.pad_start str.replace str.replace_many str.reverse str.slice str.split str.split_exact
    str.split_n str.strip_chars str.strip_chars_end str.strip_chars_start str.strptime str.tail str.titlecase
    str.to_decimal str.to_integer str.uppercase str.zfill
    struct.field_by_name struct.prefix_fields struct.rename_fields struct.select_fields
    struct.suffix_fields
    """
)
if pl.__version__.startswith("1."):
    # There, arrays show what is behind a null, and some functions of lists fail on nulls.
    OF_ONE_COLUMN -= _names("arr.get arr.max arr.min list.gather list.reverse")
FUNCTIONS = OF_COLUMNS | OF_ONE_COLUMN

# The inputs of functions that may be a Series, for they are taken as a set or a mapping.
SETS = {
    "dt.add_business_day": {2},
    "dt.business_day_count": {2},
    "dt.is_business_day": {1},
    "replace": {1, 2},
    "replace_strict": {1, 2},
}
# A category's number is that of its first appearance in any row. These functions look at its text only.
OF_CATEGORIES = _names(
    """
    as_struct coalesce fill_null is_in is_not_null is_null replace replace_strict
    cat.ends_with cat.len_bytes cat.len_chars cat.slice cat.starts_with list.concat list.contains list.get
    list.length str.concat_horizontal str.format struct.field_by_name struct.select_fields
    """
)
# Steps that may add categories to those that there are.
OF_NEW_CATEGORIES = _names("cast coalesce fill_null replace replace_strict when")
if pl.__version__.startswith("1."):
    OF_NEW_CATEGORIES |= _names("is_in list.contains")
# Functions that may land on a local time that a clock change leaves out or has twice.
OF_CLOCKS = _names("dt.add_business_day dt.combine dt.month_end dt.month_start dt.offset_by dt.round dt.truncate")
# Functions that add up the elements of a row in another order where any row has a null among its own.
OF_SUMS = _names("arr.sum list.sum")
# Functions of several columns, nested ones too, that convert none to the type of another.
OF_MIXED_TYPES = _names("arr.contains as_struct is_in list.contains")
# Sums over several columns, whose order hangs on the engine's threads where there are more than two.
OF_LONG_SUMS = _names("mean_horizontal sum_horizontal")
# Functions that make texts of all that they are given.
OF_TEXTS = _names("str.concat_horizontal str.format")
# Functions that show the bits of a float: those of a NaN or of −0 depend on how Polars came to it.
OF_FLOAT_BITS = _names("max_horizontal min_horizontal reinterpret")
OF_SIGNED_ZEROS = _names("arctan2 cot pow") | OF_TEXTS

# Where Polars keeps functions, in its serialized expressions and in its plans.
_NAMESPACES = {
    "Array": "arr.",
    "Binary": "bin.",
    "Bitwise": "bitwise_",
    "Boolean": "",
    "Business": "dt.",
    "Categorical": "cat.",
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
    node, which may be rewritten; a plan has none. Of a plan's step, `strict` says whether it raises on what does
    not fit.
    """

    kind: str
    name: str
    inputs: Sequence[Step]
    dtypes: Callable[[], Sequence[PolarsDataType]]
    parameters: Any = None
    tree: Any = None
    strict: bool = False


def operator_name(name: str) -> str:
    """Return an operator as one writes it."""
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
        return Step(kind, name, steps, dtypes, parameters, tree)

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
            name, parameters = _function(function)
            return step("function", name, *inputs, parameters=parameters)
        case {"Eval": {"expr": value, "evaluation": evaluation, "variant": "List" | "ListAgg"}}:
            return step("function", _method_of_lists(evaluation), value)
        case {"AnonymousFunction": _}:
            return step("unknown", "a Python function")
        case {"Agg": {**kinds}} | {**kinds}:
            return step("unknown", function_name(str(next(iter(kinds)))))
        case _:
            return step("unknown", function_name(str(tree)))


def write(tree: dict[str, Any], what: str) -> pl.Expr:
    """Return the expression that JSON stands for; refuse what JSON can't hold."""
    try:
        expr = _parse(json.dumps(tree))
    except ComputeError:
        expr = None  # JSON has no NaN and no infinity
    if expr is None or json.loads(expr.meta.serialize(format="json")) != tree:
        msg = (
            f"{what} must have no NaN, infinity or very long float beside a cast or a division.\n\n"
            "Hint: give the cast or division a step of its own, a with_columns before this one."
        )
        raise ValueError(msg)
    return expr


def bases(*steps: Step) -> set[DataTypeClass]:
    """Return the classes of the types of the steps' results, nested ones among them."""
    return {base for step in steps for dtype in step.dtypes() for base in bases_of(dtype)}


def bases_of(dtype: PolarsDataType) -> Iterator[DataTypeClass]:
    """Yield the class of a type, and those of the types nested in it."""
    yield dtype.base_type()
    if isinstance(dtype, (pl.List, pl.Array)):
        yield from bases_of(dtype.inner)
    if isinstance(dtype, pl.Struct):
        for field in dtype.fields:
            yield from bases_of(field.dtype)


def _function(function: Any) -> tuple[str, Any]:  # noqa: ANN401
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


def _method_of_lists(evaluation: object) -> str:
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
        case _:
            return "list.eval"


def without_nan(tree: object) -> pl.Expr:
    """Return the expression that JSON stands for, with 0 where JSON could not hold a NaN or an infinity."""
    return _parse(re.sub(r'\{"Float(16|32|64|)": null\}', r'{"Float\1": 0.0}', json.dumps(tree)))


def _parse(text: str) -> pl.Expr:
    return pl.Expr.deserialize(io.BytesIO(text.encode()), format="json")
