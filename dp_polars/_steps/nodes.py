"""Expressions as trees of nodes, and the names of Polars' functions, by their known properties."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import polars as pl
from polars.datatypes import DataTypeClass
from polars.exceptions import ComputeError

from dp_polars._base.calls import warn
from dp_polars._base.column_types import parts_of

if TYPE_CHECKING:
    from polars._typing import PolarsDataType


Tree: TypeAlias = Any  # an expression as JSON

TESTED = ("1.36.1", "2.1.x")
_NEWEST = (2, 1)


@cache
def warn_if_untested(version: str) -> None:
    """Warn once per process if Polars is newer than the tested versions."""
    if tuple(int(part) for part in version.split(".")[:2]) > _NEWEST:
        msg = (
            f"private frames were tested on Polars {' and '.join(TESTED)}, this is {version}: a step may have changed "
            "there, so that a row's result depends on other rows.\n\n"
            "Hint: use a tested version for what you publish, or a newer dp_polars."
        )
        warn(msg, UserWarning)


# Polars' namespaces of functions, in serialized expressions and in plans.
_NAMESPACES = {
    "Array": "arr.",
    "Binary": "bin.",
    "Bitwise": "bitwise_",
    "Boolean": "",
    "Business": "dt.",
    "Categorical": "cat.",
    "Ewm": "ewm_",
    "Extension": "ext.",
    "List": "list.",
    "Map": "map.",
    "Pow": "",
    "Range": "range.",
    "Sql": "sql.",
    "String": "str.",
    "Struct": "struct.",
    "Temporal": "dt.",
    "Trigonometry": "",
    "TruncArith": "trunc_",
}
# All functions of a window's rows share one name.
_MOVING = {"Rolling": "rolling_expr", "RollingFunctionBy": "rolling_expr_by"}
# Functions with other names in plans than in expressions.
_IN_PLANS = {
    "argwhere": "arg_where",
    "bin_intervals_uniform": "bin_quantiles",
    "bin_quantiles_uniform": "bin_quantiles",
    "bin_ranks": "bin_quantiles",
    "bin_ranks_uniform": "bin_quantiles",
    "concat": "concat_expr",
    "corr": "correlation",
    "qcut": "q_cut",
    "rle_id": "rleid",
    "sample": "random",
    "set_sorted": "set_sorted_flag",
    "shuffle": "random",
    "struct.drop_fields": "struct.drop",
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
class ExprNode:
    """A node of an expression.

    Its `kind` is "column", "literal", "series", "operator", "cast", "function", "other" (names, when-then: only their
    inputs matter) or "unknown". `dtypes` returns the types of the result. `tree` is the serialized node on the columns
    of `frame`. It may be rewritten.
    """

    kind: str
    name: str
    inputs: Sequence[ExprNode]
    dtypes: Callable[[], Sequence[PolarsDataType]]
    parameters: Any = None
    tree: Any = None
    frame: pl.LazyFrame | None = None

    @cached_property
    def varies(self) -> bool:
        """Whether it has one value per row, not a single one."""
        return self.kind == "column" or any(value.varies for value in self.inputs)

    @property
    def input_types(self) -> list[PolarsDataType]:
        return [dtype for value in self.inputs for dtype in value.dtypes()]


def operator_name(name: str) -> str:
    """Return an operator as users write it; a plan's begins with "Operator."."""
    name = name.removeprefix("Operator.")
    return _OPERATOR_NAMES.get(name, name)


def function_name(name: str, namespace: str | None = None) -> str:
    """Return a function's name in the form of the lists below."""
    boundary = r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])"
    snake = re.sub(boundary, "_", name).lower().replace("arc_", "arc")
    snake = _FUNCTION_NAMES.get(snake, snake)
    if namespace is None:
        return snake
    namespace = re.sub("(Expr|Function)$", "", namespace)
    return _MOVING.get(namespace) or _NAMESPACES.get(namespace, f"{namespace.lower()}.") + snake


def name_in_plan(function: str) -> str:
    """Return the name of a function in a plan: "StringFunction.Contains" or "abs"."""
    namespace, _, variant = function.rpartition(".")
    name = function_name(variant, namespace or None)
    return _IN_PLANS.get(name, name)


def read(tree: Any, frame: pl.LazyFrame) -> ExprNode:  # noqa: ANN401
    """Return the nodes of an expression serialized as JSON, on the columns of `frame`."""

    def step(kind: str, name: str, *inputs: object, parameters: object = None) -> ExprNode:
        steps = [read(value, frame) for value in inputs]
        return ExprNode(kind, name, steps, dtypes, parameters, tree, frame=frame)

    @cache
    def dtypes() -> Sequence[PolarsDataType]:
        return schema_of(tree, frame).dtypes()

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
    """Return the expression for JSON. None: JSON can't represent it, because it lacks NaN and infinity."""
    try:
        expr = parse(json.dumps(tree))
    except ComputeError:
        return None
    return expr if tree_of(expr) == tree else None


def bases(*steps: ExprNode) -> set[DataTypeClass]:
    """Return the classes of the nodes' result types, including nested types."""
    return {part.base_type() for step in steps for dtype in step.dtypes() for part in parts_of(dtype)}


def function_of(function: Any) -> tuple[str, Any]:  # noqa: ANN401
    if isinstance(function, str):
        return function_name(function), None
    ((key, inner),) = function.items()
    if re.sub("(Expr|Function)$", "", key) in _NAMESPACES:
        if isinstance(inner, str):
            return function_name(inner, key), None
        ((variant, parameters),) = inner.items()
        name = function_name(variant, key)
        return name, parameters[1]["format"] if name == "str.strptime" else parameters
    if key == "Bin":  # breaks, or else a number of bins by the data's range, quantiles or ranks
        by_breaks = "Breaks" in inner["method"].get("Intervals", {}).get("spec", {})
        return "bin_intervals" if by_breaks else "bin_quantiles", None
    return function_name(key), inner


def _method_of_lists(evaluation: object, variant: str) -> str:
    """Return the method of lists that Polars 2 writes as an evaluation of a row's own elements."""
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
    """Return the expression for JSON, with 0 in place of NaN or infinity, which JSON lacks."""
    return parse(re.sub(r'\{"Float(16|32|64|)": null\}', r'{"Float\1": 0.0}', json.dumps(tree)))


def holds_answer(tree: Tree) -> bool:
    """Return whether a serialized expression or plan draws a private answer, by a Python function of this package."""
    functions = (one.get("function") for one in of_kind(tree, "AnonymousFunction") if isinstance(one, dict))
    return any(isinstance(one, list) and b"dp_polars._expressions" in bytes(one) for one in functions)


def of_kind(tree: Tree, kind: str) -> Iterator[Tree]:
    """Yield the contents of all nodes of a kind: for "Column" the names."""
    if isinstance(tree, dict):
        if kind in tree:
            yield tree[kind]
        tree = [] if "Literal" in tree else list(tree.values())
    if isinstance(tree, list):
        for value in tree:
            yield from of_kind(value, kind)


def changed(tree: Tree, kind: str, change: Callable[[Tree], Tree]) -> Tree:
    """Change each node of a kind in a serialized expression, except within such a node."""
    if isinstance(tree, dict) and (kind in tree or "Literal" in tree):
        return tree if "Literal" in tree else change(tree[kind])
    return inside(tree, lambda value: changed(value, kind, change))


def inside(tree: Tree, change: Callable[[Tree], Tree]) -> Tree:
    """Change the values of a dict or list; return anything else unchanged."""
    if isinstance(tree, dict):
        return {key: change(value) for key, value in tree.items()}
    return [change(value) for value in tree] if isinstance(tree, list) else tree


def holds(tree: Tree, *kinds: str) -> bool:
    return any(True for kind in kinds for _ in of_kind(tree, kind))


def tree_of(expr: pl.Expr) -> Tree:
    return json.loads(expr.meta.serialize(format="json"))


def schema_of(tree: Tree, frame: pl.LazyFrame) -> pl.Schema:
    """Return the names and types of a serialized expression's outputs, on the columns of a frame."""
    return frame.select(without_nan(tree)).collect_schema()


def parse(text: str) -> pl.Expr:
    return pl.Expr.deserialize(io.BytesIO(text.encode()), format="json")


def names(text: str) -> frozenset[str]:
    return frozenset(text.split())


DIVISIONS = names("/ // %")
ARITHMETIC = DIVISIONS | names("+ - *")
COMPARISONS = names("== != < <= > >=")
OPERATORS = ARITHMETIC | COMPARISONS | names("eq_missing ne_missing & | ^")

# Functions of several columns of one row.
OF_COLUMNS = names("""
    all_horizontal any_horizontal arctan2 as_struct coalesce fill_null is_between is_close is_in max_horizontal
    mean_horizontal min_horizontal sum_horizontal
    arr.concat arr.contains bin.contains bin.ends_with bin.starts_with dt.business_day_count dt.combine
    dt.datetime_function dt.duration list.concat list.contains list.set_operation str.concat_horizontal
    str.ends_with str.format str.starts_with str.strip_prefix str.strip_suffix
""")
# Those that make one column of all selected ones. The others make one column for each.
OF_ALL_COLUMNS = names("""
    all_horizontal any_horizontal arr.concat as_struct coalesce list.concat max_horizontal mean_horizontal
    min_horizontal str.concat_horizontal sum_horizontal
""")
# Functions of one column: their other inputs must be public constants.
OF_ONE_COLUMN = names("""
    abs arccos arccosh arcsin arcsinh arctan arctanh bin_intervals bitwise_count_ones bitwise_count_zeros
    bitwise_leading_ones bitwise_leading_zeros bitwise_trailing_ones bitwise_trailing_zeros cbrt ceil clip cos cosh cot
    cut degrees erf erfc exp floor hash is_finite is_infinite is_nan is_not_nan is_not_null is_null log log1p negate not
    pow radians reinterpret replace replace_strict round round_sig_figs sign sin sinh sqrt tan tanh to_physical truncate
    arr.arg_max arr.arg_min arr.count_matches arr.get arr.join arr.length arr.max arr.median arr.min arr.shift arr.sort
    arr.std arr.sum arr.to_list arr.to_struct arr.var
    bin.base64_decode bin.base64_encode bin.get bin.head bin.hex_decode bin.hex_encode bin.reinterpret bin.size
    bin.slice bin.tail
    cat.ends_with cat.len_bytes cat.len_chars cat.slice cat.starts_with
    dt.add_business_day dt.base_utc_offset dt.cast_time_unit dt.century dt.convert_time_zone dt.date dt.day
    dt.days_in_month dt.dst_offset dt.hour dt.is_business_day dt.is_leap_year dt.iso_year dt.microsecond dt.millennium
    dt.millisecond dt.minute dt.month dt.month_end dt.month_start dt.nanosecond dt.offset_by dt.ordinal_day dt.quarter
    dt.replace_time_zone dt.round dt.second dt.time dt.time_stamp dt.to_string dt.total_days dt.total_hours
    dt.total_microseconds dt.total_milliseconds dt.total_minutes dt.total_nanoseconds dt.total_seconds dt.truncate
    dt.week dt.week_day dt.year
    ext.storage
    list.agg list.all list.any list.arg_max list.arg_min list.count_matches list.drop_nulls list.eval list.gather
    list.gather_every list.get list.join list.length list.max list.median list.min list.n_unique list.reverse list.shift
    list.slice list.sort list.std list.sum list.to_array list.to_struct list.var
    str.base64_decode str.base64_encode str.contains str.contains_any str.count_matches str.escape_regex str.extract
    str.extract_all str.extract_groups str.extract_many str.find str.find_many str.head str.hex_decode str.hex_encode
    str.json_path_match str.len_bytes str.len_chars str.lowercase str.normalize str.pad_end str.pad_start str.replace
    str.replace_many str.reverse str.slice str.split str.split_exact str.split_n str.strip_chars str.strip_chars_end
    str.strip_chars_start str.strptime str.tail str.titlecase str.to_decimal str.to_integer str.uppercase str.zfill
    struct.field_by_name struct.prefix_fields struct.rename_fields struct.select_fields struct.suffix_fields
""")
# Those with parameters that may differ in each row.
OF_ROWS_PARAMETERS = names("list.gather list.get list.shift list.slice str.head str.slice str.split str.tail")
FUNCTIONS = OF_COLUMNS | OF_ONE_COLUMN
# Row by row, too, but not to the bit for every type, or for rare types only.
OF_JSON = names("str.json_decode struct.json_encode")
UNPROVED = OF_JSON | names("""
    as_list decimal_arith lower_bound mm3_hash rechunk repeat repeat_by row_decode row_encode upper_bound
    arr.agg arr.all arr.any arr.dot arr.eval arr.mean arr.n_unique arr.reverse arr.slice arr.unique cat.physical cat.to
    dt.datetime dt.replace dt.with_time_unit ext.to list.diff list.mean list.to_map list.unique
    map.contains_key map.entries map.get map.keys map.length map.values
    range.date_ranges range.datetime_ranges range.int_ranges range.linear_spaces range.time_ranges
    list.item sql.binary sql.is_in sql.round sql.to_float str.split_regex
    struct.drop struct.map_field_names struct.with_fields trunc_int_div trunc_rem
""")
# Every function of a single row. A plan before `protect` may use all of them, a private frame only proved ones.
BY_ROW = FUNCTIONS | UNPROVED

# Functions, and other kinds of expressions, that use several rows, by how they use them.
COMBINING = names("""
    agg_groups all any approx_n_unique approx_quantile arg_max arg_min bitwise_and bitwise_or bitwise_xor correlation
    count entropy has_nulls hist implode is_empty is_sorted kurtosis len max max_by mean median min min_by mode n_unique
    null_count product quantile skew std sum var cat.get_categories str.concat_vertical
""")
MOVING = names("""
    eval ewm_mean ewm_mean_by ewm_std ewm_sum ewm_sum_by ewm_var over rolling rolling_expr rolling_expr_by
""")
PLACING = names("""
    arg_sort arg_where bottom_k cum_count cum_max cum_min cum_prod cum_sum diff first first_non_null gather gather_every
    index_of item last last_non_null pct_change peak_max peak_min range range.date_range range.datetime_range
    range.int_range range.linear_space range.time_range rank reverse rle rleid search_sorted shift
    shift_and_fill slice sort sort_by top_k top_k_by
""")
FILLING = names("extend_constant fill_null_with_strategy interpolate interpolate_by")
COMPARING = names(
    "arg_unique is_duplicated is_first_distinct is_last_distinct is_unique unique unique_counts value_counts"
)
RESIZING = names("append arr.explode concat_expr drop_nans drop_nulls explode filter reshape")
BREAKING = names("bin_quantiles q_cut")
SORTING = names("set_sorted_flag")
RANDOM = names("list.sample random")
CODE = names("cum_fold_horizontal cum_reduce_horizontal ffi_plugin fold_horizontal reduce_horizontal") | {
    "a Python function"
}

TAKEN = {"operator": OPERATORS, "function": FUNCTIONS, "cast": names("cast"), "other": frozenset({"a name", "when"})}

# The operations that are accepted on Polars 1, with kinds of values. Numbers are integers of up to 64 bits, and floats
# of 32 or 64 bits. Its casts and functions of other types use whole columns.
NUMBERS, TEXTS, BOOLEANS = names("number"), names("text"), names("boolean")
PLAIN, ANY = NUMBERS | TEXTS | BOOLEANS, names("any")
ON_POLARS_1 = {
    ARITHMETIC | names("negate"): NUMBERS,
    COMPARISONS | names("eq_missing ne_missing fill_null is_in when"): PLAIN,
    names("& | ^ not all_horizontal any_horizontal"): BOOLEANS,
    names("cast"): PLAIN,
    names("is_nan is_not_nan"): NUMBERS,
    names("is_null is_not_null"): ANY,
    names("""
        str.concat_horizontal str.contains str.contains_any str.count_matches str.ends_with str.escape_regex str.extract
        str.find str.head str.len_bytes str.len_chars str.lowercase str.normalize str.pad_end str.pad_start str.replace
        str.replace_many str.reverse str.slice str.starts_with str.strip_chars str.strip_chars_end str.strip_chars_start
        str.strip_prefix str.strip_suffix str.tail str.titlecase str.uppercase str.zfill
    """): TEXTS,
}
# On Polars 1, the inputs of these must have one kind, and their columns one type.
OF_ONE_TYPE = OPERATORS | names("fill_null is_in when")

# Inputs of functions that may be a Series, because they are sets or mappings.
SETS = {
    "dt.add_business_day": {2},
    "dt.business_day_count": {2},
    "dt.is_business_day": {1},
    "is_in": {1},
    "replace": {1, 2},
    "replace_strict": {1, 2},
}
# Categories are numbered by first appearance in any row. These functions only use a category's text.
OF_CATEGORIES = names("""
    as_struct coalesce ext.storage fill_null is_in is_not_null is_null replace replace_strict
    cat.ends_with cat.len_bytes cat.len_chars cat.slice cat.starts_with list.concat list.contains list.get
    list.length str.concat_horizontal str.format struct.field_by_name struct.select_fields
""")
# More functions with this property, allowed before `protect`, for one row and for several.
BY_TEXTS_OF_CATEGORIES = (
    OF_CATEGORIES
    | COMPARISONS
    | names("""
    append arg_max arg_min arg_sort arg_unique cast count drop_nulls eq_missing explode extend_constant
    fill_null_with_strategy filter first first_non_null gather gather_every has_nulls implode index_of is_duplicated
    is_empty is_first_distinct is_last_distinct is_sorted is_unique item last last_non_null len max max_by min min_by
    mode n_unique ne_missing null_count rank rechunk repeat reverse rle rleid shift shift_and_fill slice sort sort_by
    ternary top_k_by unique unique_counts value_counts arr.contains arr.explode arr.get arr.length arr.to_list
    list.drop_nulls list.eval list.gather list.item list.join list.n_unique list.reverse list.set_operation list.shift
    list.slice list.sort list.unique struct.drop struct.map_field_names struct.prefix_fields struct.rename_fields
    struct.suffix_fields struct.with_fields
""")
)
# These look up a category by its text, not by its number.
LOOKED_UP = COMPARISONS | names("eq_missing ne_missing is_in list.contains replace replace_strict")
# Functions that use category numbers, if Polars does not show the type.
BY_NUMBERS_OF_CATEGORIES = names("""
    arr.arg_max arr.arg_min arr.max arr.min bitwise_and bitwise_or bitwise_xor cat.physical cum_max cum_min hash
    list.max list.min max_horizontal min_horizontal mm3_hash peak_max peak_min reinterpret repeat_by row_encode
    struct.json_encode to_physical
""")
# For equal values, Polars returns NaN or a number, depending on the number of groups.
UNSTABLE = names("entropy kurtosis skew")
# On lists, arrays and structs they return null, but 0 if the rows are one group of one row.
UNSTABLE_IF_NESTED = names("arg_max arg_min")
# These also use several rows of a group. Polars 1 computes them for each group separately.
NESTED_ON_POLARS_1 = names("""
    all any arg_sort arg_unique bottom_k count cum_count cum_max cum_min cum_prod cum_sum diff drop_nans drop_nulls
    explode first_non_null last_non_null
    fill_null_with_strategy filter first gather has_nulls implode interpolate is_duplicated is_first_distinct
    is_last_distinct is_sorted is_unique last len max mean median min mode n_unique over pct_change peak_max peak_min
    quantile rank reverse rle rleid rolling_expr shift shift_and_fill slice sort sort_by std str.concat_vertical sum
    top_k unique unique_counts value_counts var
""")
# Operations allowed on Extension types and Objects: they only pass, count or open them.
OF_OPAQUE = names("ext.storage is_not_null is_null struct.field_by_name")
# Functions that may return a local time that a clock change skips or repeats.
OF_CLOCKS = names("dt.add_business_day dt.combine dt.month_end dt.month_start dt.offset_by dt.round dt.truncate")
# Functions of several columns, including nested ones, that never convert one column to another's type.
OF_MIXED_TYPES = names("arr.contains as_struct is_in list.contains")
OF_TEXTS = names("str.concat_horizontal str.format")
OF_SIGNED_ZEROS = names("arctan2 cot pow") | OF_TEXTS

# How users write operations that have other names in Polars.
_WRITTEN = {
    "arr.concat": "pl.concat_arr",
    "arr.length": "arr.len",
    "arg_where": "arg_true",
    "as_struct": "pl.struct",
    "bin.base64_decode": "bin.decode",
    "bin.base64_encode": "bin.encode",
    "bin.hex_decode": "bin.decode",
    "bin.hex_encode": "bin.encode",
    "bin_quantiles": "bin_quantiles, bin_intervals without breaks",
    "coalesce": "pl.coalesce",
    "correlation": "pl.corr",
    "dt.add_business_day": "dt.add_business_days",
    "dt.business_day_count": "pl.business_day_count",
    "dt.datetime_function": "pl.datetime, pl.date, pl.time",
    "dt.duration": "pl.duration",
    "dt.time_stamp": "dt.timestamp, dt.epoch",
    "dt.to_string": "dt.to_string, dt.strftime",
    "dt.week_day": "dt.weekday",
    "concat_expr": "append, pl.concat",
    "eval": "cumulative_eval",
    "fill_null_with_strategy": "forward_fill, backward_fill, fill_null(strategy=…)",
    "ffi_plugin": "a compiled plugin",
    "first_non_null": "first(ignore_nulls=True)",
    "fold_horizontal": "pl.fold",
    "gather": "gather, get",
    "last_non_null": "last(ignore_nulls=True)",
    "list.concat": "pl.concat_list, list.concat",
    "list.eval": "list.eval, list.filter, list.unique",
    "list.get": "list.get, list.first, list.last",
    "list.length": "list.len",
    "list.set_operation": "list.set_union, list.set_difference, list.set_intersection, list.set_symmetric_difference",
    "list.slice": "list.slice, list.head, list.tail",
    "log": "log, log10",
    "negate": "neg",
    "not": "~",
    "pow": "pow, **",
    "q_cut": "qcut",
    "random": "sample, shuffle",
    "range": "pl.int_range",
    "range.int_range": "pl.int_range",
    "rleid": "rle_id",
    "rolling_expr": "rolling_…",
    "rolling_expr_by": "rolling_…_by",
    "set_sorted_flag": "set_sorted",
    "shift_and_fill": "shift(fill_value=…)",
    "slice": "slice, head, tail, limit",
    "str.base64_decode": "str.decode",
    "str.base64_encode": "str.encode",
    "str.concat_horizontal": "pl.concat_str",
    "str.concat_vertical": "str.join",
    "str.format": "pl.format",
    "str.hex_decode": "str.decode",
    "str.hex_encode": "str.encode",
    "str.lowercase": "str.to_lowercase",
    "str.replace": "str.replace, str.replace_all",
    "str.split_n": "str.splitn",
    "str.strptime": "str.to_datetime, str.to_date, str.to_time, str.strptime",
    "str.titlecase": "str.to_titlecase",
    "str.uppercase": "str.to_uppercase",
    "struct.field_by_name": "struct.field",
    "struct.select_fields": "struct.field",
    "top_k": "top_k, bottom_k",
    "top_k_by": "top_k_by, bottom_k_by",
}


def written(name: str) -> list[str]:
    return _WRITTEN.get(name, name).split(", ")


def said(name: str) -> str:
    """Return how a user may have written a function, for a message."""
    first, *others = (way if way.startswith("a ") else f"`{way}`" for way in written(name))
    return f"{first} (or {', '.join(others)})" if others else first
