"""What is changed in an expression, so that no value makes it raise, and no row's result depends on other rows.

Casts and parsers become non-strict, dates are moved to where no function panics, local times that a clock change leaves
out become null. Floats are divided in one way only: Polars multiplies by a constant's reciprocal, but not where a row
is alone in its chunk, so that a row's last bit would depend on the number of the others.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, cast

import polars as pl

from dp_polars._rowwise import conditions, trials, whole_numbers
from dp_polars._rowwise.names import ARITHMETIC, DIVISIONS
from dp_polars._rowwise.nodes import Step
from dp_polars._rowwise.spelling import again, filled, only_type

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from polars._typing import Ambiguous, PolarsDataType, TimeUnit

    Tree = dict[str, Any]


@dataclass(frozen=True)
class Switch:
    """Where a function is told to give null for what does not fit: in its serialized parameters, and in a plan's."""

    path: Sequence[int | str]
    null: object
    place: int = 0


SWITCHES = {
    **dict.fromkeys(("arr.get", "bin.get", "list.gather", "list.get"), Switch((), True)),
    **dict.fromkeys(("bin.base64_decode", "bin.hex_decode", "str.base64_decode", "str.hex_decode"), Switch((), False)),
    "str.strptime": Switch((1, "strict"), False, place=1),
    "str.to_integer": Switch(("strict",), False),
}
_UNITS: dict[str, TimeUnit] = {"Milliseconds": "ms", "Microseconds": "us", "Nanoseconds": "ns"}


def before_trial(step: Step) -> bool:
    """Rewrite what a step does with values that don't fit; return whether anything was changed."""
    changed = False
    if step.kind == "cast":
        changed = _set(step.tree["Cast"], "options", "NonStrict", unless="Overflowing")
    elif step.name in SWITCHES:
        ((_, place),) = step.tree["Function"]["function"].items()
        path = [*place, *SWITCHES[step.name].path]
        for key in path[:-1]:
            place = place[key]
        changed = _set(place, path[-1], SWITCHES[step.name].null)
    elif step.name == "dt.replace_time_zone":
        ambiguous, zone = step.tree["Function"]["input"][1], step.tree["Function"]["function"]["TemporalExpr"]
        changed = _set(zone["ReplaceTimeZone"], 1, "Null")
        match ambiguous:
            case {"Literal": {"Scalar": {"String": "raise"} as scalar}}:
                changed = _set(scalar, "String", "null")
    if conditions.is_bounded(step):
        for value in conditions.varying(step):
            changed |= _bound_dates(value)
    return changed


def narrowing(step: Step) -> Callable[[Tree], Tree] | None:
    """Return what gives a step only values that it takes, and null for the others; None where it takes all.

    What it makes has the step in it: it is not walked again, but tried as a whole.
    """
    if step.name == "dt.datetime_function":
        return null_where_there_is_none
    narrow = _NARROWED.get("operator" if step.name in ARITHMETIC else step.name)
    template = narrow(step, [pl.col(f"{n}") for n in range(len(step.inputs))]) if narrow else None
    return None if template is None else lambda tree: filled(template, trials.inputs_of(tree))


def _fitting_operands(step: Step, inputs: Sequence[pl.Expr]) -> pl.Expr | None:
    """Give an operator Decimals of which the result has room; half a millionth of the room is left empty."""
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


def _fitting_decimals(step: Step, inputs: Sequence[pl.Expr]) -> pl.Expr | None:
    """Cast floats to Decimals where these have room."""
    (value,), dtype = inputs, only_type(step)
    if not isinstance(dtype, pl.Decimal) or not conditions.is_float(step.inputs[0]):
        return None
    room = 10.0 ** (dtype.precision - dtype.scale)
    most = min(room - 10.0**-dtype.scale, room * (1 - 2**-40))
    return again(step, [pl.when(value.cast(pl.Float64).abs() <= most).then(value)])


def _lists_that_add_up(step: Step, inputs: Sequence[pl.Expr]) -> pl.Expr | None:
    (value,), dtype = inputs, only_type(step.inputs[0])
    if not isinstance(dtype.inner, pl.Decimal):
        return None
    is_beyond = whole_numbers.is_beyond(pl.element(), dtype.inner)
    fits = value if is_beyond is None else pl.when(value.list.eval(is_beyond).list.any().not_()).then(value)
    return again(step, [fits.list.eval(whole_numbers.decimals(pl.element(), dtype.inner))])


def _lists_of_the_size(step: Step, inputs: Sequence[pl.Expr]) -> pl.Expr:
    (value,) = inputs
    return again(step, [pl.when(value.list.len() == step.parameters).then(value)])


_NARROWED = {
    "operator": _fitting_operands,
    "cast": _fitting_decimals,
    "list.sum": _lists_that_add_up,
    "list.to_array": _lists_of_the_size,
}


def after_trial(step: Step) -> bool:
    """Rewrite where a row's float would depend on the other rows; return whether anything was changed."""
    divisor = step.inputs[1] if step.name in DIVISIONS else None
    if divisor is not None and conditions.divides_floats(step):
        # A full column as divisor, so that Polars divides, and never multiplies by a reciprocal: a column, too, may
        # be known to be one value (a literal, a Hive key).
        _set_zeros(divisor.tree, step.inputs[0], step)
    elif divisor is not None and divisor.varies and conditions.is_float(divisor):
        _set_zeros(divisor.tree, divisor, divisor)
    elif conditions.shows_zeros(step):
        floats = [value for value in conditions.varying(step) if conditions.is_float(value)]
        for value in floats:
            _set_zeros(value.tree, value, value)
        return bool(floats)
    else:
        return False
    return True


def null_where_there_is_none(tree: Tree) -> Tree:
    """Return `pl.datetime` of the same parts that gives null, where the one given raises: there is no such time."""
    *parts, ambiguous = tree["Function"]["input"]
    options = tree["Function"]["function"]["TemporalExpr"]["DatetimeFunction"]
    zone = options["time_zone"]
    template = _datetime(options["time_unit"], zone and zone["inner"], ambiguous["Literal"]["Scalar"]["String"])
    return cast("Tree", filled(pl.Expr.deserialize(io.StringIO(template), format="json"), parts))


@cache
def _datetime(time_unit: str, time_zone: str | None, ambiguous: Ambiguous | Literal["raise"]) -> str:
    """Return the serialized expression on columns named by the places of the parts."""
    unit = _UNITS[time_unit]
    year, month, day, hour, minute, second, microsecond = (
        pl.col(f"{place}").cast(pl.Int64, strict=False) for place in range(7)
    )
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
    if time_zone is not None:
        moment = moment.dt.replace_time_zone(
            time_zone, ambiguous="null" if ambiguous == "raise" else ambiguous, non_existent="null"
        )
    return moment.meta.serialize(format="json")


def _bound_dates(value: Step) -> bool:
    """Make dates stay where no function panics on them."""
    dtypes = value.dtypes()
    ends = [_constant(end, dtypes[0]) for end in trials.bounds(dtypes[0]) or ()] if dtypes else []
    if ends:
        clip = {"Clip": {"has_min": True, "has_max": True}}
        put(value.tree, {"Function": {"input": [dict(value.tree), *ends], "function": clip}})
    return bool(ends)


def _set_zeros(tree: Tree, column: Step, typed: Step) -> None:
    """Add zeros, which are a full column where `column` is one, and make −0 to 0 on every path.

    Polars' own x + 0 and 0 − x give 0 or −0 for the same x, by whether the row is alone in its chunk.
    """
    zero = {"Literal": {"Dyn": {"Float": 0.0}}}
    negative = _operator(_cast(dict(column.tree), "Float64"), "Lt", zero)
    zeros = _operator(_cast(negative, str(typed.dtypes()[0])), "Multiply", zero)
    put(tree, _operator(dict(tree), "Plus", zeros))


def _set(place: Any, key: str | int, value: object, *, unless: object = None) -> bool:  # noqa: ANN401
    if place[key] in (value, unless):
        return False
    place[key] = value
    return True


def put(tree: Tree, other: Tree) -> None:
    """Put another expression in place of one."""
    tree.clear()
    tree.update(other)


def _operator(left: object, name: str, right: object) -> dict[str, object]:
    return {"BinaryExpr": {"left": left, "op": name, "right": right}}


def _cast(value: object, dtype: str) -> dict[str, object]:
    return {"Cast": {"expr": value, "dtype": {"Literal": dtype}, "options": "NonStrict"}}


def _constant(value: int, dtype: PolarsDataType) -> Any:  # noqa: ANN401
    return json.loads(pl.lit(value, dtype=pl.Int64).cast(dtype).meta.serialize(format="json"))
