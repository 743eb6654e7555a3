"""What is asked of values of Ibis, and of the constants that they are given."""

from __future__ import annotations

import datetime as dt
import re
from math import inf
from typing import TYPE_CHECKING, Any, TypeAlias

from dp_polars._base.extras import require
from dp_polars._relational import step_rules as rules

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_ops: Any = require("ibis.expr.operations", extra="sql")

# A relation or a value of Ibis, which has no types of its own for mypy here.
Node: TypeAlias = Any

# What all engines take for the same: no references, no looking around, no possessive repeats.
_REGEX_PART = re.compile(
    r"(?:"
    r"[^\\\[\](){}*+?|^$]"  # a character
    r"|\\[dDwWsS.*+?()\[\]{}|^$\\/-]"
    r"|\[\^?(?:[A-Za-z0-9]-[A-Za-z0-9]|[\w .,:;@/+%&#!=])+-?\]"
    r"|\)"
    r")(?:[*+?]\??|\{\d{1,2}(?:,\d{1,2})?\})?"
    r"|\((?:\?:)?|\||\^|\$"
)
_MOST_REPEATS = 255  # Postgres'
_LONGEST_REGEX = 1000
_MOST_GROUPS = 9
_LARGEST_PLACE = 2**30
_FORMAT = re.compile(r"(?:[^%]|%[YmdHMSj])+")
_TIME = re.compile(r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d:\d\d(?:\.\d{1,6})?)?")


def operation_of(node: Node) -> str:
    """Return what Ibis calls an operation; nothing for a function of the user's, whatever its name."""
    name = type(node).__name__
    return name if getattr(_ops, name, None) is type(node) else ""


def flat(values: Iterable[object]) -> Iterator[Node]:
    """Return what stands in tuples, too."""
    for value in values:
        if isinstance(value, tuple):
            yield from flat(value)
        else:
            yield value


def is_value(node: Node) -> bool:
    """Return whether it is a value of Ibis."""
    return isinstance(node, _ops.Value)


def is_constant(node: Node) -> bool:
    """Return whether a value is the same for all rows; what is no value of Ibis is."""
    return not is_value(node) or not node.find(lambda part: operation_of(part) not in {"Literal", "Cast", "Negate"})


def is_exact(dtype: Any) -> bool:  # noqa: ANN401
    """Return whether equal values of a type are the same."""
    return any(getattr(dtype, f"is_{kind}")() for kind in rules.EXACT)


def is_same_type(one: Any, other: Any) -> bool:  # noqa: ANN401
    """Return whether two types differ at most in whether they hold nulls."""
    return bool(one.copy(nullable=True) == other.copy(nullable=True))


def is_of_one_type(left: Node, right: Node) -> bool:
    """Return whether two columns are equal where the values in them are."""
    kinds = [left.dtype, right.dtype]
    return is_same_type(*kinds) or any(
        all(getattr(kind, f"is_{of}")() for kind in kinds) for of in ("integer", "string")
    )


def meeting(node: Node, kind: str) -> list[list[Node]]:
    """Return the values of which an engine makes one type: those that are compared, and those that one column holds."""
    match kind:
        case "IfElse":
            found = [(node.true_expr, node.false_null_expr)]
        case "SearchedCase":
            found = [(*node.results, node.default)]
        case "SimpleCase":
            found = [(node.base, *node.cases), (*node.results, node.default)]
        case "DateDelta" | "TimestampDelta":
            found = [(node.left, node.right)]
        case "Lag" | "Lead":
            found = [(node.arg, node.default)]
        case "Array" if _are_structs_of_one_kind(node.args[0]):  # which `pivot_longer` makes rows of
            found = list(zip(*(value.values for value in node.args[0]), strict=True))
        case _ if kind in rules.COMPARISONS | rules.OF_SEVERAL | {"Array"}:
            found = [tuple(flat(node.args))]
        case _:
            found = []
    return [[value for value in values if is_value(value) and not value.dtype.is_null()] for values in found]


def mixes_types(values: Sequence[Node]) -> bool:
    """Return whether values meet that an engine casts to one type: texts to dates, or arrays to others.

    Not asked about: numbers, and how far away dates and timestamps are.
    """
    if len(values) < 2:
        return False
    if all(value.dtype.is_numeric() or value.dtype.is_boolean() for value in values):
        return False
    if all(value.dtype.is_string() for value in values):
        return False
    others = [value for value in values if not _says_a_time(value)]
    if others and all(value.dtype.is_date() or value.dtype.is_timestamp() for value in others):
        zoned = [value for value in others if value.dtype.is_timestamp() and operation_of(value) != "Literal"]
        return len({value.dtype.timezone for value in zoned}) > 1
    kinds = {value.dtype.copy(nullable=True) for value in values}
    return len(kinds) > 1 or next(iter(kinds)).is_nested()


def _are_structs_of_one_kind(values: Sequence[Node]) -> bool:
    return all(operation_of(value) == "StructColumn" for value in values) and len({v.names for v in values}) == 1


def _says_a_time(node: Node) -> bool:
    """Return whether a text is a constant that all engines take for a date or a timestamp."""
    try:
        return _TIME.fullmatch(_text(node)) is not None and bool(dt.datetime.fromisoformat(_text(node)))
    except ValueError:
        return False


def is_never_zero(node: Node) -> bool:
    """Return whether a value is never 0; null it may be."""
    if operation_of(node) == "NullIf":
        return operation_of(node.null_if_expr) == "Literal" and node.null_if_expr.value == 0
    return operation_of(node) == "Literal" and bool(node.value)


def is_whole_pattern(node: Node) -> bool:
    """Return whether no backslash is left over at the end: Postgres raises where a text is compared as far as there."""
    if operation_of(node) != "Literal":
        return False
    pattern: str = node.value or ""
    return (len(pattern) - len(pattern.rstrip("\\"))) % 2 == 0


def origins_of(field: Node) -> list[Node] | None:
    """Return the values of which a step makes a column; None for one of a table, or of what is not known."""
    relation, name = field.rel, field.name
    kind = operation_of(relation)
    if kind in {"Project", "JoinChain"}:
        return [relation.values[name]]
    if kind == "Aggregate":
        return [{**relation.groups, **relation.metrics}[name]]
    if kind in rules.SETS - {"Distinct"}:
        return [relation.left.fields[name], relation.right.fields[name]]
    if kind == "FillNull":
        given = relation.replacements
        filled = given if is_value(given) else given.get(name)
        return [relation.parent.fields[name], *([filled] if is_value(filled) else [])]
    if kind == "TableUnnest" and name in {relation.column_name, relation.offset}:
        return None
    if kind in rules.SAME_ROWS | rules.ONE_BY_ONE | {"Distinct"}:
        return [relation.parent.fields[name]]
    return None


# --- Constants ------------------------------------------------------------------------------------------------------


def _text(node: Node) -> str:
    """Return a constant text, and one that nothing takes for another value."""
    return node.value if operation_of(node) == "Literal" and isinstance(node.value, str) else "\\"


def _is_plain_regex(pattern: str) -> bool:
    """Return whether all engines take a regular expression, and none of them gives up on it."""
    rest, before, repeats = pattern, "(", 1
    while rest:
        part = _REGEX_PART.match(rest)
        if part is None:
            return False
        before, rest = part[0], rest[part.end() :]
        counts = re.search(r"\{(?:\d+,)?(\d+)\}$", before) if not before.endswith("\\}") else None
        repeats *= max(int(counts[1]), 1) if counts else 1
    try:
        groups = re.compile(pattern).groups
    except re.error:
        return False
    empty = re.search(r"(?<!\\)(?:\((?:\?:)?[|)]|\|[|)]|\|$|^\|)", pattern)
    return (
        bool(pattern)
        and not empty
        and repeats <= _MOST_REPEATS
        and len(pattern) <= _LONGEST_REGEX
        and groups <= _MOST_GROUPS
    )


def _takes_pattern(node: Node, kind: str) -> bool:
    pattern = _text(node.pattern)
    if not _is_plain_regex(pattern):
        return False
    groups = re.compile(pattern).groups
    if kind == "RegexReplace":
        named = [int(number) for number in re.findall(r"\\(\d)", _text(node.replacement))]
        plain = re.sub(r"\\\d", "", _text(node.replacement))
        return max(named, default=0) <= groups and "\\" not in plain and "$" not in plain
    if kind == "RegexExtract":
        return node.index is None or (operation_of(node.index) == "Literal" and 0 <= (node.index.value or 0) <= groups)
    return True


def takes_constants(node: Node, kind: str) -> bool:
    """Return whether every engine takes the constants that a function of a text or a time is given."""
    if kind in rules.REGEXES:
        return _takes_pattern(node, kind)
    if kind == "Strftime":
        return _FORMAT.fullmatch(_text(node.format_str)) is not None and not node.arg.dtype.is_time()
    if kind == "Translate":
        texts = [_text(node.from_str), _text(node.to_str)]
        return len(texts[0]) == len(texts[1]) and "\\" not in "".join(texts)
    if kind == "StringFind":
        return node.end is None and (node.start is None or _is_place(node.start))
    if kind in {"LPad", "RPad"} and _text(node.pad) in {"", "\\"}:
        return False
    if kind in rules.WITH_PLACES:
        low = 0 if kind in {"LPad", "RPad", "Repeat"} else -_LARGEST_PLACE
        return all(_is_place(value, low) for value in flat(node.args[1:]) if _is_number(value))
    return True


def _is_number(value: Node) -> bool:
    return is_value(value) and not value.dtype.is_string()


def _is_place(node: Node, low: int = 0) -> bool:
    """Return whether a number is a constant distance to a place, of at least `low`."""
    return low <= _place(node) <= _LARGEST_PLACE


def _place(node: Node) -> float:
    """Return a constant number; one that is in no range where it isn't written as one."""
    sign = 1
    if operation_of(node) == "Negate":
        sign, node = -1, node.arg
    return sign * node.value if operation_of(node) == "Literal" and isinstance(node.value, int) else inf
