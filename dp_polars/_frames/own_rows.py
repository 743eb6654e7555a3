"""Refusals of transformations of one person's rows after `protect`, with the code to use before it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

import polars as pl
from polars.exceptions import ComputeError

from dp_polars._steps import nodes

if TYPE_CHECKING:
    from dp_polars._base.column_types import PrivacyUnit
    from dp_polars._steps.nodes import Tree


def refuse_own_rows(call: str, recipe: str, unit: PrivacyUnit, *, has_rows: bool, max_rows: object = ...) -> NoReturn:
    """Refuse a call that reads several rows of one person; `recipe` is the code for the frame before `protect`."""
    protect = f"protect({code_of(unit[0] if len(unit) == 1 else list(unit))}, "
    protect += "…)" if max_rows is ... else f"{code_of(max_rows=max_rows)})"
    prepared = f"frame.{recipe}.dp.{protect}"
    if not has_rows:
        prepared = f"release(frame.{recipe}), for dp_polars.{protect} takes prepared rows"
    msg = (
        f"{call} looks at several rows of one person, and a transformation after `protect` must look at one row "
        "alone.\n\n"
        f"Hint: write it before `protect`: {prepared}."
    )
    raise ValueError(msg)


def refuse_windows(call: str, exprs: Iterable[pl.Expr], unit: PrivacyUnit | None, *, has_rows: bool) -> None:
    """Refuse windows over one person's rows. The row gate explains all other refusals."""
    if unit is not None:
        for recipe in (found for expr in exprs for found in _windows(expr, unit)):
            refuse_own_rows(f"{call}: `over`", recipe, unit, has_rows=has_rows)


def _windows(expr: pl.Expr, unit: PrivacyUnit) -> Iterator[str]:
    """Yield code that makes columns of the windows over the unit in an expression."""
    try:
        tree = nodes.tree_of(expr)
    except (ComputeError, RecursionError):  # the row gate reports the error
        return
    whole, name = tree["Alias"] if isinstance(tree, dict) and "Alias" in tree else (tree, "")
    for node in nodes.of_kind(tree, "Over"):
        keys = [*nodes.of_kind(node["partition_by"], "Column")]
        if {*unit} <= {*keys}:
            of = name if whole == {"Over": node} else "own"
            yield f"with_columns({f'{of}=' if of.isidentifier() else ''}{_window(node, keys)})"


def _window(node: Any, keys: list[str]) -> str:  # noqa: ANN401
    order: dict[str, object] = {}
    if node["order_by"] is not None:
        by = [*nodes.of_kind(node["order_by"], "Column")]
        flags = {flag: [*nodes.of_kind(node["order_by"], flag)] for flag in ("descending", "nulls_last")}
        order = {"order_by": by[0] if len(by) == 1 else by}
        order |= {flag: True for flag, values in flags.items() if True in values or [True] in values}
    return f"{_function(node['function'])}.over({code_of(*keys, **order)})"


def _function(tree: Tree) -> str:
    """Return a function of one column as code; "…" if it has parameters."""
    if tree == "Len":
        return "pl.len()"
    columns = [*dict.fromkeys(nodes.of_kind(tree, "Column"))]
    column = f"pl.col({code_of(*columns) or '…'})"
    name = _name_of(tree)
    if name is None:
        return f"{column}.…"
    method = getattr(pl.col(columns[0]), name, None) if len(columns) == 1 else None
    try:
        is_it = method is not None and nodes.tree_of(method()) == tree
    except TypeError:  # it has parameters
        is_it = False
    return f"{column}.{name}()" if is_it else f"{column}.…"


def _name_of(tree: Tree) -> str | None:
    """Return the name of the function that a tree calls last."""
    match tree:
        case {"Agg": kind}:
            return nodes.function_name(next(iter(kind)))
        case {"Function": {"function": function}}:
            return nodes.function_of(function)[0]
    return None


def private_call(expr: object) -> str:
    """Return the code of the private function with the name of a plain one, as a hint; without one, nothing."""
    if not isinstance(expr, pl.Expr):
        return ""
    try:
        tree: Any = nodes.tree_of(expr)
    except (ComputeError, RecursionError):
        return ""
    tree = tree["Alias"][0] if isinstance(tree, dict) and "Alias" in tree else tree
    columns = [*dict.fromkeys(nodes.of_kind(tree, "Column"))]
    name = _name_of(tree)
    is_one = name is not None and len(columns) == 1 and hasattr(pl.col(columns[0]).dp, name)  # type: ignore[attr-defined]
    return f"pl.col({code_of(*columns)}).dp.{name}(…) is private. " if is_one else ""


def code_of(*arguments: object, **named: object) -> str:
    """Return arguments as code: names, lists of them and numbers; "…" for others, and nothing for None."""
    given = [_code(one) for one in arguments]
    return ", ".join(given + [f"{name}={_code(one)}" for name, one in named.items() if one is not None])


def _code(value: object) -> str:
    if isinstance(value, pl.Expr) and value.meta.is_column():
        value = value.meta.output_name()
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_code, value))}]"
    if isinstance(value, (bool, int)):
        return repr(value)
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else "…"
