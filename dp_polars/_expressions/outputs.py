"""The outputs of `agg` with `.dp`: the columns that they read, and the rows of these that count."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import polars as pl
from polars.exceptions import ComputeError

from dp_polars._expressions.expression import PrivateExpr
from dp_polars._expressions.sharing import OURS
from dp_polars._steps import nodes
from dp_polars._steps.nodes import OF_ALL_COLUMNS


def read_by_row(
    columns: Sequence[pl.Expr], output: str, *, counts_nulls: bool = False
) -> tuple[tuple[pl.Expr, ...], bool]:
    """Return the columns of an output, the first one without its last `filter`, and whether it had one.

    No row is left out of a column: if the condition is false or null, the value becomes null. Every statistic ignores
    null before any limit; one that `counts_nulls` gets a value instead, and ignores values. Weights need no filter
    then.
    """
    if any(_filtered(weights) is not None for weights in columns[1:]):
        msg = (
            f"Output {output!r}: weights must have no filter: what counts follows from the column alone.\n\n"
            'Hint: filter the column, pl.col("x").filter(…).dp.mode(…, counts=dpp.weights("w", …)): other rows weigh '
            "nothing."
        )
        raise ValueError(msg)
    if not columns or (found := _filtered(columns[0])) is None:
        return tuple(columns), False
    value, condition = found
    if counts_nulls:
        is_counted = (condition & value.is_null()).fill_null(value=False)
        return (pl.when(~is_counted).then(pl.lit(value=True)).otherwise(None),), True
    # Without `otherwise`, Polars 1 can't read it back from a pickle.
    return (pl.when(condition).then(value).otherwise(None), *columns[1:]), True


def _filtered(column: pl.Expr) -> tuple[pl.Expr, pl.Expr] | None:
    """Return the input of a column's last `filter`, and its condition; None if another call is last."""
    match column.meta.pop():
        case [inner] if inner.meta.undo_aliases().meta.eq(column.meta.undo_aliases()):  # a name
            return _filtered(inner)
        case [condition, value] if value.filter(condition).meta.eq(column):
            return value, condition
    return None


def outputs_of(
    expr: object, name: str | None, columns: Callable[[], pl.Schema] | None, left_out: Collection[str]
) -> Iterator[tuple[str | None, object]]:
    """Yield the answers of an argument of `agg`, each with its name; none of a column in `left_out`."""
    expr = getattr(expr, OURS, expr)
    if not isinstance(expr, PrivateExpr) or expr.named is None or expr.columns is None:
        yield name, expr
        return
    if name is not None:
        msg = (
            f"agg({name}=…): the keyword must name one output, but several columns are read.\n\n"
            'Hint: leave the keyword out, and rename all: pl.col("a", "b").dp.mean(…).name.suffix("_mean").'
        )
        raise ValueError(msg)
    asked, answers = _tree(expr.columns[0]), _tree(expr.named)
    for column in _chosen(_root(asked), columns, left_out):
        one = nodes.write(_of_column(asked, column))
        if one is None:
            msg = (
                "agg: an expression of several columns must have no NaN, infinity or very long float.\n\n"
                f"Hint: write it for one column, pl.col({column!r})."
            )
            raise ValueError(msg)
        if one.meta.has_multiple_outputs():
            raise _no_choice()
        yield None, expr._of_column(one, nodes.without_nan(_of_column(answers, column)).meta.output_name())


def _tree(expr: pl.Expr) -> Any:  # noqa: ANN401  # JSON
    try:
        return json.loads(expr.meta.serialize(format="json"))
    except (ComputeError, RecursionError) as error:
        msg = (
            "agg: an expression of several columns must be one that can be inspected, got a Python function or a very "
            f"deep one ({type(error).__name__}).\n\nHint: write it with native expressions."
        )
        raise ValueError(msg) from None


def _root(tree: object) -> object:
    first, *others = list(_roots(tree)) or [None]
    if first is None or any(other != first for other in others):
        raise _no_choice()
    return first


def _roots(tree: object) -> Iterator[object]:
    """Yield every choice of columns in an expression; None for a choice that a function turns into one column."""
    match tree:
        case {"Selector": choice}:
            yield choice
        case {"Literal": _}:
            return
        case {"Function": {"input": inputs, "function": function}} if nodes.function_of(function)[0] in OF_ALL_COLUMNS:
            yield from (None for _ in _roots(inputs))
        case dict():
            yield from _roots([*tree.values()])
        case list():
            for part in tree:
                yield from _roots(part)


def _of_column(tree: Any, name: str) -> Any:  # noqa: ANN401
    return nodes.changed(tree, "Selector", lambda _: {"Column": name})


def _chosen(choice: object, columns: Callable[[], pl.Schema] | None, left_out: Collection[str]) -> list[str]:
    """Return the names of the chosen columns: as written, or from a selector, in the frame's order."""
    match choice:
        case {"ByName": {"names": [*names], "strict": True}}:
            return names
    if columns is None:
        msg = (
            "agg: a selector, pl.all() or a pattern can't be resolved here: the query has no data yet.\n\n"
            'Hint: name the columns, pl.col("a", "b").dp.mean(…), or protect a frame with data.'
        )
        raise TypeError(msg)
    schema = columns()
    selected = pl.LazyFrame(schema=schema).select(nodes.without_nan({"Selector": choice})).collect_schema().names()
    if not (names := [name for name in selected if name not in left_out]):
        msg = (
            f"agg: a selector must stand for a column at least, got none of {schema.names()}; the privacy unit and the "
            'keys are always left out.\n\nHint: name the columns, pl.col("a", "b").dp.mean(…).'
        )
        raise ValueError(msg)
    return names


def _no_choice() -> ValueError:
    return ValueError(
        "agg: an expression must be about one choice of columns, and give one output for each.\n\n"
        'Hint: pl.col("a", "b").fill_null(0).dp.sum(…). A transformation that makes one column of several goes into '
        "with_columns before."
    )
