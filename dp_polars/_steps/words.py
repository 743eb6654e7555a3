"""Describe expressions for readers of a statement: `year = 2024` in place of Polars' own text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import polars as pl
from polars.exceptions import ComputeError

from dp_polars._steps.nodes import function_of, operator_name, parse, tree_of

_OPERATORS = {
    "==": "=",
    "!=": "≠",
    "<=": "≤",
    ">=": "≥",
    "*": "×",
    "-": "−",
    "&": "and",
    "|": "or",
    "^": "or else",
    "eq_missing": "equals, missing or not,",
    "ne_missing": "differs, missing or not, from",
    "//": "divided, without the rest, by",
    "%": "modulo",
}
# Words after a function's first input, and between the others.
_AFTER = {
    "is_in": ("is one of", ", "),
    "is_null": ("is missing", ""),
    "is_not_null": ("is not missing", ""),
    "is_nan": ("is NaN", ""),
    "is_not_nan": ("is not NaN", ""),
    "fill_null": ("or, if missing,", ", "),
    "str.starts_with": ("begins with", ", "),
    "str.ends_with": ("ends with", ", "),
    "str.contains": ("contains", ", "),
}
_CLOSED = {"Both": "", "Left": ", without the upper end", "Right": ", without the lower end", "None": ", without ends"}
_MOST_LISTED = 20


def in_words(expr: pl.Expr) -> str:
    """Describe an expression. Parts without a description are shown as in Polars."""
    try:
        return _said(tree_of(expr))
    except ComputeError:  # JSON can't represent it
        return _plain(expr)


def _said(tree: Any) -> str:  # noqa: ANN401
    match tree:
        case {"Column": str(name)}:
            return _name(name)
        case {"Selector": {"ByName": {"names": list(names)}}}:
            return ", ".join(map(_name, names))
        case {"Literal": {"Dyn": _} | {"Scalar": _} | {"Series": _}}:
            return _literal(tree)
        case {"Alias": [value, str(name)]}:
            said = _said(value)
            return said if said == _name(name) else f"{_name(name)} as {_in_brackets(value, said)}"
        case {"Ternary": {"predicate": predicate, "truthy": truthy, "falsy": falsy}}:
            return f"if {_said(predicate)}: {_inner(truthy)}, otherwise {_inner(falsy)}"
        case {"BinaryExpr": {"left": left, "op": str(operator), "right": right}}:
            name = operator_name(operator)
            return f"{_inner(left)} {_OPERATORS.get(name, name)} {_inner(right)}"
        case {"Cast": {"expr": value, "dtype": {"Literal": dtype}}}:
            return f"{_inner(value)} as {dtype if isinstance(dtype, str) else next(iter(dtype))}"
        case {"Function": {"input": [first, *others], "function": function}}:
            return _function(tree, *function_of(function), first, others)
    return _as_polars_writes(tree)


def _function(tree: object, name: str, parameters: object, first: object, others: Sequence[object]) -> str:
    if name == "not":
        return f"not {_inner(first)}"
    if name == "negate":
        return f"−{_inner(first)}"
    if name == "is_between" and isinstance(parameters, dict) and parameters.get("closed") in _CLOSED:
        low, high = map(_inner, others)
        return f"{_inner(first)} is between {low} and {high}{_CLOSED[parameters['closed']]}"
    if name in _AFTER:
        after, between = _AFTER[name]
        return " ".join(filter(None, [_inner(first), after, between.join(map(_inner, others))]))
    if parameters is not None:
        return _as_polars_writes(tree)
    what = name.rpartition(".")[2].replace("_", " ")
    return f"{what} of {', '.join(map(_inner, [first, *others]))}"


def _inner(tree: Any) -> str:  # noqa: ANN401
    return _in_brackets(tree, _said(tree))


def _in_brackets(tree: Any, said: str) -> str:  # noqa: ANN401
    """Put a part of an expression in brackets, unless it is a column or a value."""
    is_plain = isinstance(tree, dict) and {"Column", "Selector", "Literal"} & {*tree}
    return said if is_plain else f"({said})"


def _name(name: str) -> str:
    return name if name.isidentifier() else repr(name)


def _literal(tree: object) -> str:
    value = pl.select(parse(json.dumps(tree))).to_series()
    return ", ".join(_values(value.explode() if isinstance(value.dtype, (pl.List, pl.Array)) else value))


def _values(values: pl.Series) -> list[str]:
    shown = [
        "null" if one is None else repr(one) if isinstance(one, str) else str(one) for one in values[:_MOST_LISTED]
    ]
    return [*shown, f"… ({len(values):,} in all)"] if len(values) > _MOST_LISTED else shown


def _as_polars_writes(tree: object) -> str:
    return _plain(parse(json.dumps(tree)))


def _plain(expr: pl.Expr) -> str:
    return " ".join(str(expr).split())
