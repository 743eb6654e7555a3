"""What raises where a number, a time or a text leaves its type: the error would tell that there is such a row."""

from __future__ import annotations

import datetime as dt
from math import inf
from typing import TYPE_CHECKING, Any

from dp_polars._relational import step_rules as rules
from dp_polars._relational.ranges import (
    ARITHMETIC,
    INT32,
    LARGEST,
    LEAST,
    NONE,
    YEARS,
    Ranges,
    ends_of,
    moved_by,
    point,
    whole,
    within,
)
from dp_polars._relational.values import (
    flat,
    is_constant,
    is_exact,
    is_never_zero,
    is_same_type,
    is_value,
    is_whole_pattern,
    meeting,
    mixes_types,
    operation_of,
    takes_constants,
)

if TYPE_CHECKING:
    from dp_polars._relational.ranges import Ends
    from dp_polars._relational.values import Node
    from dp_polars._rowwise.rules import Rule

# The floats that are integers of 64 bits, and integers that are floats.
_INTEGERS_OF_FLOATS = (-(2**63), 2**63 - 1024)
_EXACT_FLOAT = 10**15
# How far the ends of floats may be off after some roundings.
_ROUNDED = {32: 1e-5, 64: 1e-12}
_TINY = 1e-290
_DIGITS = 6  # of microseconds
# DuckDB adds and multiplies decimals of at most 18 digits in 64 bits.
_DECIMAL = 10**18 - 1
# What nanoseconds of 64 bits reach.
_NANOSECONDS = (point(dt.date(1678, 1, 1)), point(dt.date(2262, 1, 1)))
# The longest text, in characters of four bytes: Postgres and SQLite hold a gigabyte, or a little less.
_LONGEST = 2**27


def _is_rounded_within(ends: Ends, kind: Any, outer: Ends) -> bool:  # noqa: ANN401
    """Return whether values that engines have rounded before stay inside a range of integers when they are rounded."""
    if not kind.is_floating():
        return within(whole(ends), outer)
    off = _ROUNDED[32 if kind.is_float32() else 64]
    low, high = (end + sign * off * abs(end) for end, sign in zip(ends, (-1, 1), strict=True))
    return within((low, high), (outer[0] - 0.5, outer[1] + 0.5))


class Overflow(Ranges):
    """What an engine raises on."""

    def refusal(self, node: Node, kind: str) -> Rule | None:
        """Return why a function of one row is refused, if it may raise on values that a column may well have."""
        values = [value for value in flat(node.args) if is_value(value)]
        if kind in rules.WITH_CONSTANTS and not all(map(is_constant, flat(node.args[1:]))):
            return rules.PARAMETER
        if self.backend == "sqlite" and kind in rules.IN_PYTHON:
            return rules.IN_SQLITE
        met = meeting(node, kind)
        if any(map(mixes_types, met)):
            return rules.MIXED
        if kind in rules.DIVISIONS and not is_never_zero(node.right):
            return rules.ZEROS
        if kind == "Power" and not (
            operation_of(node.right) == "Literal"
            and node.right.dtype.is_integer()
            and node.right.value is not None
            and node.right.value >= 0
        ):
            return rules.POWERS
        if kind in rules.PATTERNS and not is_whole_pattern(node.pattern):
            return rules.ESCAPES
        if not takes_constants(node, kind) or (kind == "Literal" and not self.is_plain(node)):
            return rules.CONSTANTS
        if node.dtype.is_string() and self.is_too_long(node):
            return rules.LONG
        if kind in rules.DOMAINS and not (_is_clipped(node.arg) and within(self.ends(node.arg), rules.DOMAINS[kind])):
            return rules.OUTSIDE
        if self.rounds_too_far(node, kind):
            return rules.OUTSIDE
        if self.backend == "datafusion" and kind == "Power" and node.left.dtype.is_integer():
            return rules.POWERS  # which raises beyond 64 bits, as no product does
        if self.leaves_the_years(node, kind):
            return rules.TIMES
        if self.leaves_its_type(node, kind):
            return rules.OVERFLOWS
        mixed = kind not in rules.OF_ANY_NUMBER and any(self.mixes_decimals(one, kind) for one in met or [values])
        mixed = mixed or (kind in rules.OF_BITS and self.mixes_signs(values))
        raises = self.backend not in rules.ON_SOME_ENGINES.get(kind, {self.backend})
        if mixed or raises or not self.is_held(node, kind):
            return rules.STRUCTS if kind == "StructField" else rules.CASTS
        return None

    def adds_too_much(self, value: Node) -> bool:
        """Return whether a sum of a person's integers may leave 64 bits, in which some engines add them up."""
        return not within(self.ends(value), INT32) and self.backend not in rules.SUMS_NEVER_RAISE

    def leaves_its_type(self, node: Node, kind: str) -> bool:
        """Return whether arithmetic may raise because a number is too large for its type, or a float too small."""
        if kind not in rules.OF_NUMBERS:
            return False
        sides = [value for value in node.args if is_value(value)]
        kinds = [value.dtype for value in sides]
        if self.backend == "sqlite":
            return kind == "Abs" and not self._is_no_least(node.arg)
        divides = kind == "FloorDivide" and self.backend not in rules.FLOATS_NEVER_RAISE
        if divides or kind in {"Divide", "Power"} or any(map(self.is_float, sides)):
            return self.backend not in rules.FLOATS_NEVER_RAISE and not self._float_fits(kind, sides)
        if any(one.is_decimal() or one.is_floating() for one in kinds):
            return kind in ARITHMETIC and not self._decimal_fits(node, kind, sides)
        if self.backend in rules.INTEGERS_NEVER_RAISE and kind != "Abs":
            return False
        if kind in rules.DIVISIONS:  # of the least integer by -1
            low, high = self.ends(node.right)
            return low <= -1 <= high and -self.ends(node.left)[0] > self.holder(node.left)[1]
        return not within(self.exact(node), self.holder(node))

    def _float_fits(self, kind: str, sides: list[Node]) -> bool:
        """Return whether a float is not too large, and not too small unless it is 0."""
        if kind == "Modulus":  # of decimals, of which Postgres makes a float again
            return min(map(self.least, sides)) >= _TINY
        if kind in {"Abs", "Negate"}:
            return True
        if any(value.dtype.is_decimal() and value.dtype.precision is None for value in sides):
            return False
        bits = 32 if any(value.dtype.is_float32() for value in sides) else 64
        sizes = [max(map(abs, self.ends(value))) for value in sides]
        # An integer may be as large as a sum.
        sizes = [
            1e40 if value.dtype.is_integer() and size == inf else size for value, size in zip(sides, sizes, strict=True)
        ]
        small = [self.least(value) for value in sides]
        try:
            match kind:
                case "Multiply":
                    size, least = sizes[0] * sizes[1], small[0] * small[1]
                    least = max(least, small[0] if small[1] >= 1 else 0, small[1] if small[0] >= 1 else 0)
                case "Divide" | "FloorDivide":
                    size, least = sizes[0] / small[1], small[0] / max(min(sizes[1], 1.8e308), 1)
                case "Power":
                    size, least = float(sizes[0]) ** sides[1].value, float(min(small[0], 1)) ** sides[1].value
                case _:
                    size, least = sum(sizes), 1
        except OverflowError:
            return False
        return size <= LARGEST[bits] and least >= LEAST[bits]

    def _is_no_least(self, node: Node) -> bool:
        """Return whether a number of SQLite is not the least integer, which has no absolute value."""
        if operation_of(node) in rules.OF_SEVERAL:
            return all(self._is_no_least(value) for value in flat(node.args) if is_value(value))
        return self.ends(node)[0] > -(2**63) or self.is_float(node)

    def _decimal_fits(self, node: Node, kind: str, sides: list[Node]) -> bool:
        known = [self.digits(value) for value in sides]
        scales = [digits for digits in known if digits is not None]
        if len(scales) < len(known):
            return False
        found = [self.exact(node), *map(self.ends, sides)]
        scale = 10 ** (sum(scales) if kind == "Multiply" else max(scales))
        return all(abs(end) * scale <= _DECIMAL for ends in found for end in ends if ends != NONE)

    def mixes_decimals(self, values: list[Node], kind: str) -> bool:
        """Return whether decimals meet numbers that engines cast to another type, which may not hold them."""
        if kind == "Clip" and values[0].dtype.is_integer() and any(value.dtype.is_floating() for value in values):
            return True  # of which Ibis says that they make integers
        decimals = [value for value in values if value.dtype.is_decimal()]
        if not decimals or self.backend == "sqlite":
            return False
        if self.backend == "duckdb" and any((one.dtype.precision, one.dtype.scale) == (38, 0) for one in decimals):
            return True  # a HUGEINT, perhaps, of which Ibis knows no more
        if kind not in rules.COMPARISONS and any(map(self.is_float, values)):
            return True  # of which Ibis says that they make decimals
        sizes = [abs(end) for value in values for end in self.ends(value) if self.ends(value) != NONE]
        if any(value.dtype.is_floating() for value in values):
            if self.backend == "postgres":  # a decimal of any size becomes a float
                return any(map(self.is_float, values)) and any(value.dtype.precision is None for value in decimals)
            return self.backend != "duckdb" and any(size > _EXACT_FLOAT for size in sizes)
        scale = max(value.dtype.scale or 0 for value in decimals)
        known = all(value.dtype.scale is not None for value in decimals) or self.backend == "postgres"
        return not known or any(size * 10**scale > 10**38 for size in sizes if size < inf or self.backend != "postgres")

    def mixes_signs(self, values: list[Node]) -> bool:
        """Return whether bits of integers meet of which one type has no sign: DataFusion casts the others to it."""
        signed = [value for value in values if value.dtype.is_signed_integer()]
        return self.backend not in rules.TESTED - {"datafusion"} and (
            len(signed) < len(values) and not all(self.ends(value)[0] >= 0 for value in signed)
        )

    def rounds_too_far(self, node: Node, kind: str) -> bool:
        """Return whether the type of what is rounded may not hold it."""
        if kind not in rules.ROUNDINGS | {"FloorDivide"}:
            return False
        found, of, to = self.ends(node), node.args[0].dtype, node.dtype
        if to.is_integer():
            return not _is_rounded_within(found, of, _INTEGERS_OF_FLOATS)
        if to.is_decimal():
            return self.backend != "sqlite" and not within(found, _held(to))
        if kind == "Round" and self.ends(node.digits)[0] < 0:
            return not within(found, self.holder(node.arg) if of.is_integer() else (-LARGEST[32], LARGEST[32]))
        return False

    def is_plain(self, node: Node) -> bool:
        """Return whether every engine takes a constant: DuckDB raises for others as soon as there is a row."""
        kind, value = node.dtype, node.value
        if kind.is_interval() and value is not None:
            return abs(moved_by(node)) <= YEARS[1] - YEARS[0]
        if kind.is_decimal() and kind.precision is None and value is not None:
            return not value.is_finite() or (abs(value) < _EXACT_FLOAT and value == round(value, 3))
        return True

    def is_held(self, node: Node, kind: str) -> bool:
        """Return whether what casts values to a type, or puts them into a column of one, takes all of them."""
        if kind == "Cast":
            return self.fits(node.arg, node.to)
        if kind in {"Lag", "Lead"}:
            return node.default is None or self.fits(node.default, node.arg.dtype)
        return kind != "Array" or all(self._is_held(value, node.dtype.value_type) for value in flat(node.args))

    def _is_held(self, node: Node, to: Any) -> bool:  # noqa: ANN401
        if operation_of(node) == "StructColumn" and to.is_struct():
            fields = list(zip(node.values, to.types, strict=True))
            # How far away a time is, is not asked there.
            cast = any(_is_time(value.dtype) and not is_same_type(value.dtype, held) for value, held in fields)
            return not cast and all(self._is_held(value, held) for value, held in fields)
        # A sum is wider than Ibis says.
        return self.fits(node, to) and (not to.is_integer() or within(self.ends(node), ends_of(to)))

    def fits(self, node: Node, to: Any) -> bool:  # noqa: ANN401
        """Return whether a type holds all values that are cast to it."""
        kind, ends = node.dtype, self.ends(node)
        if is_same_type(kind, to) or kind.is_null():
            return True
        if operation_of(node) == "Literal" and node.value is None:
            return True
        if to.is_string():
            # DataFusion takes no bytes that are no text.
            is_text = not kind.is_binary() or self.backend in rules.TESTED - {"datafusion"}
            return is_text and (is_exact(kind) or kind.is_numeric())
        if to.is_integer() and kind.is_boolean():
            return True
        if to.is_integer() or (to.is_decimal() and to.precision is not None):
            held = _INTEGERS_OF_FLOATS if to.is_int64() and not kind.is_integer() else _held(to)
            return bool(kind.is_numeric()) and _is_rounded_within(ends, kind, held)
        if to.is_float64():
            return bool(kind.is_numeric()) and (not kind.is_decimal() or kind.precision is not None)
        if to.is_timestamp():
            fits = to.scale is None or to.scale <= _DIGITS
            return bool(fits and (kind.is_date() or kind.is_timestamp()))
        return bool(kind.is_timestamp() and (to.is_date() or (to.is_time() and kind.timezone is None)))

    def leaves_the_years(self, node: Node, kind: str) -> bool:
        """Return whether a function of times may raise on one that is far away, such as Postgres' `infinity`."""
        times = [value for value in flat(node.args) if is_value(value) and _is_time(value.dtype)]
        tried = kind == "TryCast" and node.to.is_timestamp()
        if tried and times and (node.to.timezone is not None or _digits(node.to) != _DIGITS):
            return True  # DuckDB raises all the same
        if self.backend == "duckdb" and any(map(_is_coarse, times)) and not (tried or kind in rules.OF_ANY_TIME):
            return True
        finest = max((_digits(value.dtype) for value in times), default=0)
        years = _NANOSECONDS if finest > _DIGITS else YEARS
        if kind in rules.COMPARISONS | rules.OF_SEVERAL | {"Array", "Lag", "Lead"}:
            # Dates that meet timestamps are cast, and microseconds that meet nanoseconds.
            cast = [value for value in times if _digits(value.dtype) < (finest if finest > _DIGITS else 0)]
            return self.backend != "sqlite" and len(cast) < len(times) and not self._are_within(cast, years)
        if kind == "Cast":
            if self.backend == "sqlite" or (node.to.is_string() and self.backend in rules.TIMES_AS_TEXT):
                return False
            return not is_same_type(node.to, node.arg.dtype) and not self._are_within(times, YEARS)
        zoned = self.backend == "datafusion" and any(
            value.dtype.is_timestamp() and value.dtype.timezone for value in times
        )
        if zoned and kind in rules.IN_NANOSECONDS_WITH_A_ZONE:
            return not self._are_within(times, _NANOSECONDS)
        if kind not in rules.OF_TIMES or not times:
            return False
        if kind == "Time" and times[0].dtype.timezone is not None:
            return True  # which DuckDB has no cast for, once there is a row
        if kind == "ExtractEpochSeconds" and self.backend == "datafusion" and times[0].dtype.is_date():
            return True  # the same
        if self.backend in rules.TESTED and self.backend not in rules.OF_TIMES[kind]:
            return False
        nanoseconds = (
            kind in rules.IN_NANOSECONDS
            if self.backend == "datafusion"
            else kind == "Strftime"
            and getattr(times[0].dtype, "scale", None) != _DIGITS
            and not times[0].dtype.is_date()
        )
        years = _NANOSECONDS if nanoseconds or (len(times) > 1 and finest > _DIGITS) else YEARS
        moved = kind in rules.MOVES and not within(self.ends(node), YEARS)
        return moved or not self._are_within(times, years)

    def is_too_long(self, node: Node) -> bool:
        """Return whether a text may be longer than engines hold."""
        return self.length(node) > _LONGEST

    def _are_within(self, values: list[Node], years: Ends) -> bool:
        return all(within(self.ends(value), years) for value in values)


def _is_clipped(node: Node) -> bool:
    """Return whether a number keeps to the ends of its range exactly: no arithmetic has rounded it."""
    while operation_of(node) in rules.ROUNDINGS or (operation_of(node) == "Cast" and node.to.is_decimal()):
        node = node.args[0]
    return operation_of(node) == "Clip"


def _is_time(kind: Any) -> bool:  # noqa: ANN401
    return bool(kind.is_date() or kind.is_timestamp())


def _digits(kind: Any) -> int:  # noqa: ANN401
    """Return how many digits of a second times of a type have; fewer than none for a date."""
    scale = -1 if kind.is_date() else kind.scale
    return _DIGITS if scale is None else int(scale)


def _is_coarse(node: Node) -> bool:
    """Return whether a column holds seconds or milliseconds, of which DuckDB casts all that it is asked about."""
    return node.dtype.is_timestamp() and _digits(node.dtype) < _DIGITS and operation_of(node) != "Literal"


def _held(kind: Any) -> Ends:  # noqa: ANN401
    """Return which whole numbers a type holds."""
    low, high = ends_of(kind)
    return (low, high) if kind.is_integer() else (low + 1, high - 1)
