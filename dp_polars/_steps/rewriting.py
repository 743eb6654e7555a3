"""Make operations safe: equivalent expressions, and null in place of errors."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import cache, reduce
from operator import add, getitem
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

import polars as pl

from dp_polars._steps import nodes, rules, trials, whole_numbers
from dp_polars._steps.nodes import ARITHMETIC, COMPARISONS, DIVISIONS, OF_ALL_COLUMNS, OF_CLOCKS, ExprNode, Tree

if TYPE_CHECKING:
    from polars._typing import Ambiguous, PolarsDataType, TimeUnit

    JsonTree = dict[str, Any]


# Returns an equivalent expression for an operation, given its inputs. None: it stays.
Spelling: TypeAlias = Callable[[ExprNode, Sequence[pl.Expr]], "pl.Expr | None"]

_MIRRORED = {"==": "Eq", "!=": "NotEq", "<": "Gt", "<=": "GtEq", ">": "Lt", ">=": "LtEq"}
# Intervals of the same length in every time zone, which fit into an hour.
_OF_HOURS = re.compile(r"-?(\d+(h|m|s|ms|us|ns))+")
_OF_AN_HOUR = re.compile(r"1h|(\d+(m|s|ms|us|ns))+")
_PARTS = ("year", "month", "day", "hour", "minute", "second", "microsecond")


def spelled_out(step: ExprNode) -> Tree | None:
    """Return an equivalent of an operation, as JSON. None: it stays."""
    spelling = SPELLINGS.get(step.name)
    if step.frame is None or not step.varies:
        return None
    tree = _of_one_type(step)
    if tree is None and spelling is not None:
        inputs = [tree for value in step.inputs for tree in outputs_of(value)]
        result = spelling(step, [pl.col(f"{n}") for n in range(len(inputs))])
        tree = None if result is None else filled(result, inputs)
    if tree is None:
        return None
    name, other = (_name(item, step.frame) for item in (step.tree, tree))
    return tree if name == other else {"Alias": [tree, name]}


def filled(expr: pl.Expr, inputs: Sequence[Tree]) -> Tree:
    """Put trees into an expression, in place of its columns 0, 1, …, as JSON."""
    return nodes.changed(nodes.tree_of(expr), "Column", lambda name: deepcopy(inputs[int(name)]))


def outputs_of(step: ExprNode) -> list[Tree]:
    """Split an expression with several outputs into single ones."""
    if not step.varies or step.frame is None or len(step.dtypes()) == 1:
        return [step.tree]
    return each_output(step.tree, step.frame)


def only_type(step: ExprNode) -> Any:  # noqa: ANN401
    (dtype,) = step.dtypes()
    return dtype


def each_output(tree: Tree, frame: pl.LazyFrame) -> list[Tree]:
    def several(tree: Tree) -> list[Tree]:
        match tree:
            case {"Selector": _}:
                return [{"Column": name} for name in nodes.schema_of(tree, frame)]
            case {"Function": {"input": inputs, "function": function} as node}:
                name = nodes.function_of(function)[0]
                if name == "struct.select_fields":
                    fields = [pl.col("0").struct.field(field) for field in nodes.schema_of(tree, frame)]
                    return [filled(field, inputs) for field in fields]
                if name in OF_ALL_COLUMNS:
                    return [{"Function": {**node, "input": [item for value in inputs for item in several(value)]}}]
        match tree:
            case dict():
                values = {key: several(value) for key, value in tree.items()}
                return [dict(zip(values, item, strict=True)) for item in _together([*values.values()])]
            case list():
                return [list(item) for item in _together([several(value) for value in tree])]
        return [tree]

    return several(tree)


def _together(parts: list[list[Tree]]) -> list[tuple[Tree, ...]]:
    """Combine the outputs of parts. Some parts have several outputs, the others one."""
    most = max((len(outputs) for outputs in parts if len(outputs) != 1), default=1)
    if any(len(outputs) not in {1, most} for outputs in parts):
        return []
    return [tuple(outputs[n if len(outputs) > 1 else 0] for outputs in parts) for n in range(most)]


def _name(tree: Tree, frame: pl.LazyFrame) -> str:
    return nodes.schema_of(tree, frame).names()[0]


# --- Types


def _of_one_type(step: ExprNode) -> Tree | None:
    """Give constants the type of the columns, if Polars would convert the columns otherwise."""
    if step.name not in {"when", "fill_null", "coalesce"} | COMPARISONS:
        return None
    places = range(1 if step.name == "when" else 0, len(step.inputs))
    types = {dtype for place in places if step.inputs[place].varies for dtype in step.inputs[place].dtypes()}
    if len(types) != 1:
        return None
    (dtype,) = types
    if not (dtype.is_nested() or (isinstance(dtype, pl.Enum) and step.name not in COMPARISONS)):
        return None
    constants = {place: step.inputs[place] for place in places if not step.inputs[place].varies}
    others = {place: value for place, value in constants.items() if {*value.dtypes()} - {dtype, pl.Null()}}
    if not others or any(value.kind == "series" for value in others.values()):
        return None
    inputs = [value.tree for value in step.inputs]
    for place, value in others.items():
        inputs[place] = filled(pl.col("0").cast(dtype), [value.tree])
    return trials.with_inputs(step.tree, inputs)


def _cast(step: ExprNode, inputs: Sequence[pl.Expr]) -> pl.Expr | None:
    (value,), source, target = inputs, only_type(step.inputs[0]), only_type(step)
    match source, target:
        case pl.Array(), pl.List() | pl.Array():
            return value.arr.to_list().cast(target)
        case pl.List(), pl.Array():
            return value.cast(pl.List(target.inner)).list.to_array(target.size)
        case pl.List(), pl.List():
            return value if source == target else value.list.eval(pl.element().cast(target.inner))
        case pl.Struct(), pl.Struct():
            known = {field.name for field in source.fields}
            fields = [
                (value.struct.field(name).cast(dtype) if name in known else pl.lit(None, dtype)).alias(name)
                for name, dtype in target.to_schema().items()
            ]
            return pl.when(value.is_not_null()).then(pl.struct(fields))
    return None


# --- Operators


def _operator(step: ExprNode, inputs: Sequence[pl.Expr]) -> pl.Expr | None:
    left, right = step.inputs
    if step.name in COMPARISONS and right.varies and not left.varies:
        # Polars 2.1 raises if the column is a single value.
        tree = {"BinaryExpr": {"left": {"Column": "1"}, "op": _MIRRORED[step.name], "right": {"Column": "0"}}}
        return nodes.without_nan(tree)
    if step.name != "/":
        return None
    types: list[Any] = step.input_types
    if not all(isinstance(dtype, pl.Duration) for dtype in types):
        return None
    per_unit = {"ms": 1_000_000, "us": 1_000, "ns": 1}
    one, two = (
        (value.to_physical().cast(pl.Int128) * per_unit[dtype.time_unit]).cast(pl.Float64)
        for value, dtype in zip(inputs, types, strict=True)
    )
    return one / two


# --- Several columns


def _sum_horizontal(step: ExprNode, inputs: Sequence[pl.Expr]) -> pl.Expr | None:
    """Add up in the order of the columns: Polars' own order depends on the number of threads."""
    dtype = only_type(step)
    types = step.input_types
    are_numbers = all(item.is_numeric() or item == pl.Boolean for item in types)
    if not are_numbers or not (dtype.is_float() or isinstance(dtype, pl.Decimal)):
        return None
    wide = pl.Decimal(38, dtype.scale) if isinstance(dtype, pl.Decimal) else dtype
    if step.parameters["ignore_nulls"]:
        inputs = [value.fill_null(pl.lit(0).cast(item)) for value, item in zip(inputs, types, strict=True)]
    return reduce(add, (value.cast(wide) for value in inputs))


def _mean_horizontal(step: ExprNode, inputs: Sequence[pl.Expr]) -> pl.Expr | None:
    dtype = only_type(step)
    if not dtype.is_float() or pl.String in nodes.bases(*step.inputs):
        return None
    numbers = [value.cast(dtype) for value in inputs]
    if not step.parameters["ignore_nulls"]:
        return reduce(add, numbers) / pl.lit(float(len(numbers)), dtype)
    total = reduce(add, (number.fill_null(0) for number in numbers))
    count = reduce(add, (value.is_not_null().cast(dtype) for value in inputs))
    return pl.when(count > 0).then(total / count)


def _largest_horizontal(step: ExprNode, inputs: Sequence[pl.Expr]) -> pl.Expr | None:
    dtype = only_type(step)
    if not dtype.is_float() or len(inputs) < 2:
        return None
    lists = pl.concat_list([value.cast(dtype) for value in inputs]).list
    return lists.max() if step.name == "max_horizontal" else lists.min()


def _clip(step: ExprNode, inputs: Sequence[pl.Expr]) -> pl.Expr | None:
    """Clip by columns: null there means no bound."""
    if not rules.parameters_vary(step):
        return None
    value, *bounds = inputs
    dtype, clipped = only_type(step), value
    typed = [bound.cast(dtype) for bound in bounds]
    if step.parameters["has_max"]:
        clipped = pl.when(value > typed[-1]).then(typed[-1]).otherwise(value)
    if step.parameters["has_min"]:
        clipped = pl.when(value < typed[0]).then(typed[0]).otherwise(clipped)
    return pl.when(value.is_nan()).then(value).otherwise(clipped) if dtype.is_float() else clipped


def _replace_strict(step: ExprNode, inputs: Sequence[pl.Expr]) -> pl.Expr | None:
    """Return null for values without a replacement, or the row's own default if that is a column."""
    value, old, new, *default = inputs
    if default and not step.inputs[3].varies:
        return None
    found = again(step, [value, old, new, pl.lit(None)])
    if not default:
        return found
    return pl.when(value.is_in(old, nulls_equal=True)).then(found).otherwise(default[0].cast(step.dtypes()[0]))


# --- Lists


def _list_added(step: ExprNode, inputs: Sequence[pl.Expr]) -> pl.Expr | None:
    """Add up whole numbers, for sums of floats and for all means."""
    (value,), inner = inputs, only_type(step.inputs[0]).inner
    is_sum = step.name == "list.sum"
    if not (inner.is_float() if is_sum else whole_numbers.has_whole_numbers(inner)):
        return None
    total = value.list.eval(whole_numbers.whole(pl.element(), inner)).list.sum()
    if is_sum:
        return with_odd_numbers(value, inner, whole_numbers.sum_of(total, inner))
    return with_odd_numbers(value, inner, whole_numbers.mean_of(total, value.list.drop_nulls().list.len(), inner))


def with_odd_numbers(value: pl.Expr, inner: PolarsDataType, result: pl.Expr) -> pl.Expr:
    """Return the result, or NaN or an infinity if a list contains one, as in Polars."""
    result = _unless_beyond(value, inner, result)
    if not inner.is_float():
        return result
    has_nan = value.list.eval(pl.element().is_nan()).list.any()
    low, high = value.list.min(), value.list.max()
    # JSON lacks NaN. An infinity outweighs all other numbers: adding the smallest and largest gives the sum.
    known = pl.when(has_nan).then(pl.lit("NaN").cast(inner)).when(low.is_infinite() | high.is_infinite())
    return known.then(low + high).otherwise(result)


def _unless_beyond(value: pl.Expr, inner: PolarsDataType, result: pl.Expr) -> pl.Expr:
    """Return the result, or null if an element of a list is too large to be added."""
    is_beyond = whole_numbers.is_beyond(pl.element(), inner)
    return result if is_beyond is None else pl.when(value.list.eval(is_beyond).list.any().not_()).then(result)


def _list_diff(step: ExprNode, inputs: Sequence[pl.Expr]) -> pl.Expr | None:
    n, nulls = step.parameters["n"], step.parameters["null_behavior"]
    (value,) = inputs
    result = value.list.eval(pl.element() - pl.element().shift(n))
    return result if nulls == "Ignore" else result.list.slice(n) if n >= 0 else None


def _of_array(step: ExprNode, inputs: Sequence[pl.Expr]) -> pl.Expr:
    """Do the same to an array as to lists."""
    dtype = only_type(step.inputs[0])
    lists = inputs[0].arr.to_list()
    if step.name != "arr.eval":
        result: pl.Expr = getattr(lists.list, step.name.removeprefix("arr."))()
        return result
    variant, body = step.tree["Eval"]["variant"], step.tree["Eval"]["evaluation"]
    kind = "ListAgg" if variant == "ArrayAgg" else "List"
    result = nodes.without_nan({"Eval": {"expr": nodes.tree_of(lists), "evaluation": body, "variant": kind}})
    return result.list.to_array(dtype.size) if variant == {"Array": {"as_list": False}} else result


# --- Structs


def _with_fields(step: ExprNode, inputs: Sequence[pl.Expr]) -> pl.Expr | None:
    (value,), dtype = inputs, only_type(step.inputs[0])
    if not isinstance(dtype, pl.Struct):
        return None

    def of_row(names: list[str]) -> Tree:
        return nodes.tree_of(value.struct.field(names[0])) if len(names) == 1 else {"Field": names}

    fields = {field.name: value.struct.field(field.name) for field in dtype.fields}
    for body in step.tree["StructEval"]["evaluation"]:
        if nodes.holds(body, "Column", "Selector"):
            return None
        tree = nodes.changed(body, "Field", of_row)
        name = _name(tree, pl.LazyFrame(schema={"0": dtype}))
        fields[name] = nodes.without_nan(tree).alias(name)
    return pl.when(value.is_not_null()).then(pl.struct(*fields.values()))


# --- Dates and times


def _dt_replace(step: ExprNode, inputs: Sequence[pl.Expr]) -> pl.Expr | None:
    value, *given, _ = inputs
    dtype = only_type(step)
    parts = {}
    for name, part, source in zip(_PARTS, given, step.inputs[1:], strict=False):
        of_polars, parts[name] = getattr(value.dt, name)(), part
        if source.dtypes() == [pl.Null()]:
            parts[name] = of_polars if dtype != pl.Date or name in _PARTS[:3] else pl.lit(0)
        elif source.varies:
            parts[name] = pl.coalesce(part.cast(pl.Int64), of_polars.cast(pl.Int64))
    if dtype == pl.Date:
        return pl.date(parts["year"], parts["month"], parts["day"])
    if not isinstance(dtype, pl.Datetime):
        return None
    match step.inputs[-1].tree:
        case {"Literal": {"Scalar": {"String": "earliest" | "latest" | "raise" | "null" as word}}}:
            result = pl.datetime(**parts, time_unit=dtype.time_unit, time_zone=dtype.time_zone, ambiguous=word)
        case _:
            return None
    if dtype.time_unit == "ns":
        result = result + pl.duration(nanoseconds=value.dt.nanosecond() % 1000, time_unit="ns")
    return result


def _by_the_clock(step: ExprNode, inputs: Sequence[pl.Expr]) -> pl.Expr | None:
    """Compute with local times, and return null for results that the clock skips.

    For repeated times, the one with the same offset is used, or else the first.
    """
    if not rules.is_local(step.inputs[0]):
        return None
    value, dtype = inputs[0], only_type(step.inputs[0])
    interval = step.inputs[1].tree.get("Literal", {}).get("Scalar", {}).get("String", "") if step.inputs[1:] else ""
    if step.name == "dt.offset_by" and _OF_HOURS.fullmatch(interval):
        return again(step, [value.dt.convert_time_zone("UTC"), *inputs[1:]]).dt.convert_time_zone(dtype.time_zone)
    naive = again(step, [value.dt.replace_time_zone(None), *inputs[1:]])
    if step.name in {"dt.round", "dt.truncate"} and _OF_AN_HOUR.fullmatch(interval):
        moment = (naive - _offset(value)).cast(pl.Datetime(dtype.time_unit))
        return moment.dt.replace_time_zone("UTC").dt.convert_time_zone(dtype.time_zone)
    first, second = (_in_zone(naive, dtype.time_zone, which) for which in ("earliest", "latest"))
    return pl.when(_offset(second) == _offset(value)).then(second).otherwise(first)


def _offset(value: pl.Expr) -> pl.Expr:
    return value.dt.base_utc_offset() + value.dt.dst_offset()


def again(step: ExprNode, inputs: Sequence[pl.Expr]) -> pl.Expr:
    return nodes.without_nan(trials.with_inputs(step.tree, [*map(nodes.tree_of, inputs)]))


def _strptime(step: ExprNode, inputs: Sequence[pl.Expr]) -> pl.Expr | None:
    """Parse a local time, and return null if the clock skips it."""
    if step.parameters is None or "%z" in step.parameters or not rules.is_local(step):
        return None
    dtype = only_type(step)
    word = step.inputs[1].tree["Literal"]["Scalar"]["String"]
    naive = inputs[0].str.to_datetime(step.parameters, time_unit=dtype.time_unit, strict=False)
    return _in_zone(naive, dtype.time_zone, word)


def _in_zone(naive: pl.Expr, zone: str, word: Ambiguous | Literal["raise"]) -> pl.Expr:
    return naive.dt.replace_time_zone(zone, ambiguous="null" if word == "raise" else word, non_existent="null")


def _add_business_days(step: ExprNode, inputs: Sequence[pl.Expr]) -> pl.Expr | None:
    """Return null if the first day is no business day."""
    if step.parameters["roll"] != "Raise":
        return _by_the_clock(step, inputs)
    value, days, holidays = inputs
    step.tree["Function"]["function"]["Business"]["AddBusinessDay"]["roll"] = "Forward"
    is_one = {"Business": {"IsBusinessDay": {"week_mask": step.parameters["week_mask"]}}}
    there_is = nodes.without_nan({"Function": {"input": [*map(nodes.tree_of, (value, holidays))], "function": is_one}})
    return again(step, [pl.when(there_is).then(value), days, holidays])


SPELLINGS: dict[str, Spelling] = {
    **dict.fromkeys(ARITHMETIC | COMPARISONS, _operator),
    **dict.fromkeys(OF_CLOCKS, _by_the_clock),
    **dict.fromkeys(("arr.eval", "arr.mean", "arr.sum"), _of_array),
    "cast": _cast,
    "clip": _clip,
    "dt.add_business_day": _add_business_days,
    "dt.replace": _dt_replace,
    "list.diff": _list_diff,
    "list.item": lambda _, inputs: pl.when(inputs[0].list.len() == 1).then(inputs[0].list.first()),
    "list.mean": _list_added,
    "list.sum": _list_added,
    **dict.fromkeys(("max_horizontal", "min_horizontal"), _largest_horizontal),
    "mean_horizontal": _mean_horizontal,
    "replace_strict": _replace_strict,
    "str.strptime": _strptime,
    "struct.with_fields": _with_fields,
    "sum_horizontal": _sum_horizontal,
}


# Serialized parameters that make a function return null for unfitting values, with their values.
_SWITCHES: dict[str, tuple[tuple[int | str, ...], bool]] = {
    **dict.fromkeys(("arr.get", "bin.get", "list.gather", "list.get"), ((), True)),
    **dict.fromkeys(("bin.base64_decode", "bin.hex_decode", "str.base64_decode", "str.hex_decode"), ((), False)),
    "str.strptime": ((1, "strict"), False),
    "str.to_integer": (("strict",), False),
}
_UNITS: dict[str, TimeUnit] = {"Milliseconds": "ms", "Microseconds": "us", "Nanoseconds": "ns"}


def before_trial(step: ExprNode) -> bool:
    """Rewrite the handling of unfitting values; return whether anything changed."""
    changed = False
    if step.kind == "cast":
        changed = _set(step.tree["Cast"], "options", "NonStrict", unless="Overflowing")
    elif step.name in _SWITCHES:
        ((_, place),) = step.tree["Function"]["function"].items()
        path, null = _SWITCHES[step.name]
        keys: list[int | str] = [*place, *path]
        changed = _set(reduce(getitem, keys[:-1], place), keys[-1], null)
    elif step.name == "dt.replace_time_zone":
        ambiguous, zone = step.tree["Function"]["input"][1], step.tree["Function"]["function"]["TemporalExpr"]
        changed = _set(zone["ReplaceTimeZone"], 1, "Null")
        match ambiguous:
            case {"Literal": {"Scalar": {"String": "raise"} as scalar}}:
                changed = _set(scalar, "String", "null")
    if step.kind != "operator" and step.name not in {"a name", "is_null", "is_not_null"}:
        for value in rules.varying(step):
            changed |= _bound_dates(value)
    return changed


def narrowing(step: ExprNode) -> Callable[[JsonTree], JsonTree] | None:
    """Return a function that nulls values which an operation does not accept. None: it accepts all values.

    The rewritten expression contains the operation. It is not walked again, but tried as a whole.
    """
    if step.name == "dt.datetime_function":
        return null_where_there_is_none
    narrow = _NARROWED.get("operator" if step.name in ARITHMETIC else step.name)
    template = narrow(step, [pl.col(f"{n}") for n in range(len(step.inputs))]) if narrow else None
    return None if template is None else lambda tree: filled(template, trials.inputs_of(tree))


def _fitting_operands(step: ExprNode, inputs: Sequence[pl.Expr]) -> pl.Expr | None:
    """Null Decimals for which an operator's result has no room; half a millionth of the room stays empty."""
    dtype = step.dtypes()[0]
    if not isinstance(dtype, pl.Decimal) or trials.failure(step) is None:
        return None
    room = 10.0 ** (38 - dtype.scale) * (1 - 2**-20)
    left, right = (value.cast(pl.Float64).abs() for value in inputs)
    if step.name in DIVISIONS:
        fits = (right > 0) & (left < right * room)
    else:
        fits = (left * right if step.name == "*" else left + right) < room
    return again(step, [pl.when(fits).then(inputs[0]), inputs[1]])


def _fitting_decimals(step: ExprNode, inputs: Sequence[pl.Expr]) -> pl.Expr | None:
    """Cast floats to Decimals if they fit, else return null."""
    (value,), dtype = inputs, only_type(step)
    if not isinstance(dtype, pl.Decimal) or not rules.is_float(step.inputs[0]):
        return None
    room = 10.0 ** (dtype.precision - dtype.scale)
    most = min(room - 10.0**-dtype.scale, room * (1 - 2**-40))
    return again(step, [pl.when(value.cast(pl.Float64).abs() <= most).then(value)])


def _lists_that_add_up(step: ExprNode, inputs: Sequence[pl.Expr]) -> pl.Expr | None:
    (value,), dtype = inputs, only_type(step.inputs[0])
    if not isinstance(dtype.inner, pl.Decimal):
        return None
    fits = _unless_beyond(value, dtype.inner, value)
    return again(step, [fits.list.eval(whole_numbers.decimals(pl.element(), dtype.inner))])


_NARROWED: dict[str, Spelling] = {
    "operator": _fitting_operands,
    "cast": _fitting_decimals,
    "list.sum": _lists_that_add_up,
    "list.to_array": lambda step, of: again(step, [pl.when(of[0].list.len() == step.parameters).then(of[0])]),
}


def after_trial(step: ExprNode) -> bool:
    """Rewrite operations if a row's float would depend on other rows; return whether anything changed."""
    divisor = step.inputs[1] if step.name in DIVISIONS else None
    if divisor is not None and step.kind == "operator" and step.inputs[0].varies and rules.is_float(step):
        # The divisor must be a full column: then Polars divides, and never multiplies by a reciprocal. Even a column
        # may be known to be a single value (a literal, a Hive key).
        _set_zeros(divisor.tree, step.inputs[0], step)
    elif divisor is not None and divisor.varies and rules.is_float(divisor):
        _set_zeros(divisor.tree, divisor, divisor)
    elif rules.shows_zeros(step):
        floats = [value for value in rules.varying(step) if rules.is_float(value)]
        for value in floats:
            _set_zeros(value.tree, value, value)
        return bool(floats)
    else:
        return False
    return True


def null_where_there_is_none(tree: JsonTree) -> JsonTree:
    """Return `pl.datetime` of the same parts with null in place of an error: such a time does not exist."""
    *parts, ambiguous = tree["Function"]["input"]
    options = tree["Function"]["function"]["TemporalExpr"]["DatetimeFunction"]
    zone = options["time_zone"]
    moment = _datetime(options["time_unit"], zone and zone["inner"], ambiguous["Literal"]["Scalar"]["String"])
    return cast("JsonTree", filled(moment, parts))


@cache
def _datetime(time_unit: str, time_zone: str | None, ambiguous: Ambiguous | Literal["raise"]) -> pl.Expr:
    """Return the expression on columns that are named by the places of the parts."""
    unit = _UNITS[time_unit]
    columns = (pl.col(f"{place}").cast(pl.Int64, strict=False) for place in range(7))
    year, month, day, hour, minute, second, microsecond = columns
    is_leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
    last_day = pl.when(month != 2).then(30 + (month + month // 8) % 2).when(is_leap).then(29).otherwise(28)
    there_is = (
        year.is_between(*((1678, 2261) if unit == "ns" else (1, 9999)))
        & month.is_between(1, 12)
        & day.is_between(1, last_day)
        & hour.is_between(0, 23)
        & minute.is_between(0, 59)
        & second.is_between(0, 59)
        & microsecond.is_between(0, 999_999)
    )
    parts = (pl.when(there_is).then(year), month, day, hour, minute, second, microsecond)
    moment = pl.datetime(*parts, time_unit=unit)
    return moment if time_zone is None else _in_zone(moment, time_zone, ambiguous)


def _bound_dates(value: ExprNode) -> bool:
    """Limit dates to the range in which no function panics."""
    dtypes = value.dtypes()
    ends = trials.bounds(dtypes[0]) if dtypes else None
    if ends is not None:
        inside = pl.col("0").clip(*(pl.lit(end, dtype=pl.Int64).cast(dtypes[0]) for end in ends))
        put(value.tree, filled(inside, [dict(value.tree)]))
    return ends is not None


def _set_zeros(tree: JsonTree, column: ExprNode, typed: ExprNode) -> None:
    """Add zeros, a full column if `column` is one, so that −0 becomes 0 in every case.

    Polars' own x + 0 and 0 − x return 0 or −0 for the same x. It depends on whether the row has its own chunk.
    """
    is_negative = pl.col("1").cast(pl.Float64, strict=False) < 0.0
    zeros = is_negative.cast(typed.dtypes()[0], strict=False) * 0.0
    put(tree, filled(pl.col("0") + zeros, [dict(tree), column.tree]))


def _set(place: Any, key: str | int, value: object, *, unless: object = None) -> bool:  # noqa: ANN401
    if place[key] in (value, unless):
        return False
    place[key] = value
    return True


def put(tree: JsonTree, other: JsonTree) -> None:
    tree.clear()
    tree.update(other)
