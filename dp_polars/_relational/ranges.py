"""How large values of Ibis may be, and how wide the type is in which an engine computes them."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from functools import reduce
from math import ceil, exp, floor, inf, nextafter, sqrt
from operator import add, mul, sub, truediv
from typing import TYPE_CHECKING, Any

from dp_polars._base.extras import require
from dp_polars._relational import step_rules as rules
from dp_polars._relational.values import flat, is_value, operation_of, origins_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dp_polars._relational.values import Node

_ops: Any = require("ibis.expr.operations", extra="sql")

Ends = tuple[float, float]

ANY: Ends = (-inf, inf)
NONE: Ends = (inf, -inf)  # of what is always null
_SIGNED: list[Ends] = [(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64)]
INT8, _, INT32, INT64 = _SIGNED
# The largest floats of 32 and 64 bits, with a margin for what is rounded on the way, and the least of both.
LARGEST = {32: 1e38, 64: 1e308}
LEAST = {32: 2.0**-149, 64: 5e-324}
ARITHMETIC = {"Add": add, "Multiply": mul, "Subtract": sub}
_DAY = 86_400 * 10**6
_EPOCH = dt.datetime(1970, 1, 1)
# The most microseconds that a unit of time has, by Ibis' short name.
_UNITS: dict[object, int] = {unit: days * _DAY for unit, days in {"D": 1, "W": 7, "M": 31, "Q": 92, "Y": 366}.items()}
_UNITS |= {"h": 3600 * 10**6, "m": 60 * 10**6, "s": 10**6, "ms": 1000, "us": 1, "ns": 1}
_EXTRACTED = {
    "DayOfWeekIndex": (0, 6),
    "ExtractDay": (1, 31),
    "ExtractDayOfYear": (1, 366),
    "ExtractHour": (0, 24),
    "ExtractMicrosecond": (0, 61 * 10**6),
    "ExtractMillisecond": (0, 61 * 1000),
    "ExtractMinute": (0, 60),
    "ExtractMonth": (1, 12),
    "ExtractQuarter": (1, 4),
    "ExtractSecond": (0, 61),
    "ExtractWeekOfYear": (1, 53),
    "StringFind": (-1, 2**30),
    "StringLength": (0, 2**30),
}
_KNOWN = {**_EXTRACTED, "Hash": (-(2**63), 2**64), "Sign": (-1, 1)}
_COUNTS = {"Count", "CountDistinct", "CountStar", "DenseRank", "MinRank", "RowNumber"}
_OF_ONE = {"Alias", "First", "Last", "Max", "Min", "NullIf"}
# Functions that give floats where they are given one, and decimals where they are given decimals.
_OF_ALIKE = rules.OF_SEVERAL | ARITHMETIC.keys() | {"Abs", "Modulus", "Negate", "NullIf", "Round"}
# How long the texts of columns are taken to be, in characters.
_TEXT = 2**20


def point(value: dt.date) -> int:
    """Return a time in microseconds."""
    at = value if isinstance(value, dt.datetime) else dt.datetime.combine(value, dt.time())
    return (at.replace(tzinfo=None) - _EPOCH) // dt.timedelta(microseconds=1)


def moved_by(node: Node) -> float:
    """Return how far a constant interval moves a time at most, in microseconds; infinity where that is not known."""
    length = _UNITS.get(getattr(getattr(node.dtype, "unit", None), "short", None))
    if operation_of(node) != "Literal" or node.value is None or length is None:
        return inf
    return int(node.value) * length


YEARS = (point(dt.date(1, 1, 1)), point(dt.date(9999, 12, 31)) + _DAY - 1)


def within(inner: Ends, outer: Ends) -> bool:
    """Return whether a range is inside another one; the empty one is."""
    return inner[0] > inner[1] or (outer[0] <= inner[0] and inner[1] <= outer[1])


def ends_of(kind: Any) -> Ends:  # noqa: ANN401
    """Return the largest whole numbers of an integer's or a decimal's type."""
    if kind.is_boolean():
        return (0, 1)
    if kind.is_integer():
        return kind.bounds.lower, kind.bounds.upper
    if kind.is_decimal() and kind.precision is not None:
        largest = 10 ** (kind.precision - (kind.scale or 0)) - 1
        return -largest - 1, largest + 1
    return ANY


def _hull(found: Iterable[Ends]) -> Ends:
    return reduce(lambda one, other: (min(one[0], other[0]), max(one[1], other[1])), found, NONE)


def _both(one: Ends, other: Ends) -> Ends:
    return max(one[0], other[0]), min(one[1], other[1])


def _wider(one: Ends, other: Ends) -> Ends:
    """Return the type that has room for both; of one with a sign and one without, what is in both."""
    if 0 in (one[0], other[0]):
        return _both(one, other)
    return _hull((one, other))


def _corners(how: Callable[[float, float], float], one: Ends, other: Ends) -> Ends:
    """Return the range of what is monotone in both; ∞ - ∞ is anything, and 0 · ∞ is 0."""
    try:
        found = [how(left, right) for left in one for right in other]
    except OverflowError:
        return ANY
    if any(value != value for value in found):
        return ANY if how is not mul else _hull((value, value) for value in (0, *found) if value == value)
    return min(found), max(found)


def whole(ends: Ends) -> Ends:
    """Return the range after values are rounded to integers."""
    return (
        ends[0] if abs(ends[0]) == inf else floor(ends[0]),
        ends[1] if abs(ends[1]) == inf else ceil(ends[1]),
    )


class Ranges:
    """What is known of values, without a row.

    Parameters
    ----------
    backend
        What Ibis calls the engine.
    """

    def __init__(self, backend: str) -> None:
        self.backend = backend
        self._found: dict[tuple[str, Node], Any] = {}

    def _once(self, how: str, node: Node) -> Any:  # noqa: ANN401
        if (how, node) not in self._found:
            self._found[how, node] = getattr(self, how)(node)
        return self._found[how, node]

    def ends(self, node: Node) -> Ends:
        """Return the least and the largest value that there may be; of times, in microseconds."""
        low, high = self._once("_ends", node)
        return ANY if low <= high and inf in (low, -high) else (low, high)

    def holder(self, node: Node) -> Ends:
        """Return the ends of the narrowest type in which an engine may hold an integer."""
        found: Ends = self._once("_holder", node)
        return found

    def least(self, node: Node) -> float:
        """Return a lower bound on the absolute value of a number that is not 0."""
        found: float = self._once("_smallest", node)
        return found

    def length(self, node: Node) -> float:
        """Return the most characters that a text may have, if those of columns have at most a megabyte."""
        found: float = self._once("_characters", node)
        return found

    # --- Ranges

    def _ends(self, node: Node) -> Ends:
        kind = operation_of(node)
        if kind == "Literal":
            return self._constant(node)
        if kind == "Field":
            origins = origins_of(node)
            return self._of_column(node) if origins is None else _hull(map(self.ends, origins))
        if kind in _KNOWN:
            return _KNOWN[kind]
        if kind in rules.TRUE_OR_FALSE:
            return (0, 1)
        if kind in _COUNTS:
            return (0, 2**62)
        if kind in _OF_ONE:
            return self.ends(node.args[0])
        of = getattr(self, f"_of_{kind.lower()}", None)
        return ANY if of is None else of(node)

    def _of_column(self, field: Node) -> Ends:
        """Return the range of a table's column; of other columns nothing is known."""
        if self.backend == "sqlite":  # of whatever size an integer is declared
            return INT64 if field.dtype.is_integer() or field.dtype.is_boolean() else ANY
        # A decimal may be NaN in Postgres.
        known = not field.dtype.is_decimal() or self.backend in rules.TESTED - {"postgres"}
        return ends_of(field.dtype) if known and operation_of(field.rel) in rules.TABLES else ANY

    def _constant(self, node: Node) -> Ends:
        value = node.value
        if value is None:
            return NONE
        if isinstance(value, dt.date):
            return (point(value),) * 2
        if not node.dtype.is_numeric() or value != value:
            return ANY
        number = int(value) if abs(value) < inf and value == int(value) else float(value)
        return (number, number)

    def _of_add(self, node: Node) -> Ends:
        found = self.exact(node)
        wraps = node.dtype.is_integer() and not within(found, self.holder(node))
        return ANY if wraps else found

    _of_subtract = _of_multiply = _of_negate = _of_abs = _of_add

    def exact(self, node: Node) -> Ends:
        """Return the range of what arithmetic gives, as if every type were wide enough."""
        kind, found = operation_of(node), [self.ends(value) for value in node.args]
        low, high = found[0]
        if NONE in found:
            return NONE
        if kind == "Negate":
            return (-high, -low)
        if kind == "Abs":
            return (max(low, -high, 0), max(-low, high))
        return _corners(ARITHMETIC[kind], *found)

    def _of_divide(self, node: Node) -> Ends:
        one, other = self.ends(node.left), self.ends(node.right)
        if NONE in (one, other):
            return NONE
        if inf in map(abs, other) and not node.right.dtype.is_integer():
            return ANY  # NaN
        if other[0] <= 0 <= other[1]:
            if node.right.dtype.is_floating():  # -0.0 is not 0 to all engines
                return ANY
            other = (-self.least(node.right), self.least(node.right))
        return _corners(truediv, one, other)

    def _of_modulus(self, node: Node) -> Ends:
        low, high = self.ends(node.right)
        if inf in map(abs, self.ends(node.left)) and not node.left.dtype.is_integer():
            return ANY  # NaN
        return (-max(-low, high), max(-low, high))

    def _of_power(self, node: Node) -> Ends:
        if operation_of(node.right) != "Literal":
            return ANY
        try:
            size = nextafter(float(max(map(abs, self.ends(node.left)))) ** node.right.value, inf)
        except OverflowError:
            return ANY
        return (-size, size)

    def _of_ceil(self, node: Node) -> Ends:
        return whole(self.ends(node.arg))

    _of_floor = _of_ceil

    def _of_floordivide(self, node: Node) -> Ends:
        return whole(self._of_divide(node))

    def _of_round(self, node: Node) -> Ends:
        digits = 0 if node.digits is None else self.ends(node.digits)[0]
        low, high = whole(self.ends(node.arg))
        margin = 0 if digits >= 0 else 10.0 ** min(-digits, 308)
        return (low - margin, high + margin)

    def _of_clip(self, node: Node) -> Ends:
        low, high = self.ends(node.arg)
        for end, cut in ((node.upper, min), (node.lower, max)):
            if end is None:
                continue
            limit = self.ends(end)
            if operation_of(end) == "Literal" and limit != NONE:
                low, high = cut(low, limit[0]), cut(high, limit[1])
            else:
                low, high = ANY if limit == NONE else _hull((limit, (low, high)))
        return (low, high)

    def _of_greatest(self, node: Node) -> Ends:
        constants = [self.ends(value)[0] for value in flat(node.args) if operation_of(value) == "Literal"]
        low, high = self._of_coalesce(node)
        return (max([low, *(one for one in constants if one < inf)]), high)

    def _of_least(self, node: Node) -> Ends:
        constants = [self.ends(value)[1] for value in flat(node.args) if operation_of(value) == "Literal"]
        low, high = self._of_coalesce(node)
        return (low, min([high, *(one for one in constants if one > -inf)]))

    def _of_coalesce(self, node: Node) -> Ends:
        return _hull(map(self.ends, flat(node.args)))

    def _of_ifelse(self, node: Node) -> Ends:
        chosen, condition = self.ends(node.true_expr), node.bool_expr
        if operation_of(condition) == "Between" and condition.arg == node.true_expr:
            between = [self.ends(value) for value in (condition.lower_bound, condition.upper_bound)]
            chosen = _both(chosen, (between[0][0], between[1][1])) if NONE not in between else NONE
        return _hull((chosen, self.ends(node.false_null_expr)))

    def _of_searchedcase(self, node: Node) -> Ends:
        return _hull(map(self.ends, (*node.results, node.default)))

    _of_simplecase = _of_searchedcase

    def _of_lag(self, node: Node) -> Ends:
        return _hull(self.ends(value) for value in (node.arg, node.default) if value is not None)

    _of_lead = _of_lag

    def _of_windowfunction(self, node: Node) -> Ends:
        return self.ends(node.func)

    def _of_bitwiseand(self, node: Node) -> Ends:
        sides = [self.ends(node.left), self.ends(node.right)]
        masks = [high for low, high in sides if low >= 0]
        return (0, min(masks)) if masks else self._of_bitwiseor(node)

    def _of_bitwiseor(self, node: Node) -> Ends:
        holder = self.holder(node)
        return holder if all(within(self.ends(value), holder) for value in node.args) else ANY

    _of_bitwisexor = _of_bitwisenot = _of_bitwiseor

    def _of_bucket(self, node: Node) -> Ends:
        return (0, len(node.buckets) + 1)

    def _of_exp(self, node: Node) -> Ends:
        low, high = (min(max(end, -700), 700) for end in self.ends(node.arg))
        return (0, nextafter(exp(high), inf)) if low <= high else NONE

    def _of_sqrt(self, node: Node) -> Ends:
        high = self.ends(node.arg)[1]
        return (0, high if high == inf else sqrt(max(high, 0)) + 1)

    def _of_ln(self, node: Node) -> Ends:
        low, high = self.ends(node.arg)
        return (-1100, 1100) if low > 0 and high < inf else ANY

    _of_log2 = _of_log10 = _of_ln

    def _of_cast(self, node: Node) -> Ends:
        to, kind, (low, high) = node.to, node.arg.dtype, self.ends(node.arg)
        if to.is_integer() and (kind.is_numeric() or kind.is_boolean()):
            return _both(INT64 if self.backend == "sqlite" else ends_of(to), whole((low, high)))
        if (to.is_numeric() and kind.is_numeric()) or to.is_timestamp():
            return (low, high)
        return self._of_date(node) if to.is_date() else ends_of(to)

    _of_trycast = _of_cast

    def _of_extractyear(self, node: Node) -> Ends:
        return (0, 10_000) if within(self.ends(node.arg), YEARS) else ANY

    _of_extractisoyear = _of_extractyear

    def _of_extractepochseconds(self, node: Node) -> Ends:
        return (-(10**12), 10**12) if within(self.ends(node.arg), YEARS) else ANY

    def _of_date(self, node: Node) -> Ends:
        low, high = self.ends(node.arg)
        return (low if abs(low) == inf else low // _DAY * _DAY, high)

    def _of_datetruncate(self, node: Node) -> Ends:
        low, high = self.ends(node.arg)
        return (max(low - 366 * _DAY, YEARS[0]) if low >= YEARS[0] else -inf, high)

    _of_timestamptruncate = _of_datetruncate

    def _of_dateadd(self, node: Node, sign: int = 1) -> Ends:
        low, high = self.ends(node.left)
        step = sign * moved_by(node.right)
        return ANY if abs(step) == inf else (low + min(step, 0), high + max(step, 0))

    def _of_datesub(self, node: Node) -> Ends:
        return self._of_dateadd(node, -1)

    _of_timestampadd, _of_timestampsub = _of_dateadd, _of_datesub

    def _of_datedelta(self, node: Node) -> Ends:
        known = all(within(self.ends(value), YEARS) for value in (node.left, node.right))
        return (-(10**18), 10**18) if known else ANY

    _of_timestampdelta = _of_datedelta

    # --- Types

    def is_float(self, node: Node) -> bool:
        """Return whether an engine has a float there for sure: to some, a float that is written out is a decimal."""
        kind = operation_of(node)
        if kind == "Literal" or not node.dtype.is_floating():
            return False
        if kind == "Field" and (origins := origins_of(node)) is not None:
            return all(map(self.is_float, origins))
        if kind in _OF_ALIKE:
            return any(self.is_float(value) for value in flat(node.args) if is_value(value))
        return kind not in _OF_ONE | {"Lag", "Lead", "WindowFunction"} or self.is_float(node.args[0])

    def digits(self, node: Node) -> int | None:
        """Return how many digits a number has after its point, as a decimal; None: not known."""
        kind = operation_of(node)
        if kind == "Literal" and node.value is not None:
            exponent = Decimal(str(node.value)).as_tuple().exponent
            return max(-exponent, 0) if isinstance(exponent, int) else None
        if node.dtype.is_integer() or node.dtype.is_null():
            return 0
        values = [value for value in flat(node.args) if is_value(value) and value.dtype.is_numeric()]
        if kind == "Field":
            values = origins_of(node) or []
        elif kind not in _OF_ALIKE | {"Alias"}:
            values = []
        if not values:
            found: int | None = node.dtype.scale if node.dtype.is_decimal() else None
            return found
        known = [digits for digits in map(self.digits, values) if digits is not None]
        if len(known) < len(values):
            return None
        return sum(known) if kind == "Multiply" else max(known)

    def _holder(self, node: Node) -> Ends:
        kind = operation_of(node)
        if kind == "Literal":
            value = self.ends(node)
            return next((ends for ends in _SIGNED if within(value, ends)), INT8)
        if kind == "Field" and (origins := origins_of(node)) is not None:
            return reduce(_both, map(self.holder, origins), INT64) if origins else INT8
        if kind in {"Field", "Cast"} | rules.ROUNDINGS | {"FloorDivide"}:
            return ends_of(node.dtype) if node.dtype.is_integer() else INT8
        if kind in _COUNTS | {"Sum"}:
            return INT64
        if kind in _OF_ONE | {"Abs", "Lag", "Lead", "Negate", "WindowFunction"}:
            return self.holder(node.args[0])
        if kind in _EXTRACTED.keys() | {"ExtractYear"}:
            return INT32
        if kind in rules.OF_TWO | {"Clip", "Coalesce", "Greatest", "Least"}:
            values = [value for value in flat(node.args) if is_value(value)]
        elif kind == "IfElse":
            values = [node.true_expr, node.false_null_expr]
        elif kind in {"SearchedCase", "SimpleCase"}:
            values = [*node.results, node.default]
        else:
            return INT8
        return reduce(_wider, map(self.holder, values))

    def _smallest(self, node: Node) -> float:
        kind, (low, high) = operation_of(node), self.ends(node)
        if low > 0 or high < 0:
            return float(max(low, -high))
        if node.dtype.is_integer() or node.dtype.is_boolean():
            return 1
        if node.dtype.is_decimal() and node.dtype.scale is not None:
            return 10.0 ** -int(node.dtype.scale)
        found = LEAST[32 if node.dtype.is_float32() else 64]
        if kind == "Literal":
            return abs(float(node.value or 1))
        if kind == "Round" and node.digits is not None:
            return max(found, 0.5 * float(10.0 ** -max(self.ends(node.digits)[0], 0.0)))
        if kind in {"Abs", "Alias", "Cast", "Negate", "NullIf"}:
            return self.least(node.args[0]) if node.args[0].dtype.is_numeric() else found
        if kind in {"Clip", "Coalesce", "Greatest", "Least"}:
            return min(self.least(value) for value in flat(node.args) if is_value(value))
        if kind == "Multiply":
            return float(max(found, self.least(node.left) * self.least(node.right)))
        if kind == "Divide":
            return float(max(found, self.least(node.left) / min(max(map(abs, self.ends(node.right))), LARGEST[64])))
        if kind == "Field" and (origins := origins_of(node)):
            return min(map(self.least, origins))
        return found

    def _characters(self, node: Node) -> float:
        kind = operation_of(node)
        if kind == "Literal":
            return len(str(node.value))
        if kind == "Field":
            return max(map(self.length, origins)) if (origins := origins_of(node)) else _TEXT
        values = [value for value in flat(node.args) if is_value(value) and not value.dtype.is_boolean()]
        known = sum(map(self.length, values))
        if kind in {"Substring", "StrRight"} and (parameter := node.args[-1]) is not None:
            return min(known, max(map(abs, self.ends(parameter))))
        if kind in {"Coalesce", "IfElse", "NullIf", "SearchedCase", "SimpleCase"}:
            return max(map(self.length, values), default=0)
        if kind == "Repeat":
            return self.length(node.arg) * max(self.ends(node.times)[1], 0)
        if kind in {"LPad", "RPad"}:
            return max(self.length(node.arg), self.ends(node.length)[1])
        if kind in {"RegexReplace", "StringReplace"}:
            return (self.length(node.arg) + 1) * (self.length(node.args[-1]) + 1)
        if kind in {"Capitalize", "Lowercase", "Uppercase"}:
            return 3 * known
        return known if node.dtype.is_string() else 400
