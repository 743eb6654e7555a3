"""The `.dp` accessor of expressions, and the outputs of `agg` that are written with it."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, Final, NoReturn, ParamSpec, Protocol, cast

import polars as pl
from polars.exceptions import ComputeError

from dp_polars import _expressions as functions
from dp_polars._base.calls import called, like
from dp_polars._expressions.expression import IntoColumn, PrivateExpr
from dp_polars._expressions.sharing import OURS, share
from dp_polars._steps import nodes
from dp_polars._steps.nodes import OF_ALL_COLUMNS

if TYPE_CHECKING:
    from polars._typing import PolarsDataType, PythonDataType

    class Column(pl.Expr):
        """What type checkers take a column of `col` for: an expression with `.dp`. No object has this class."""

        @property
        def dp(self) -> PrivateNamespace: ...


P = ParamSpec("P")


class _Method:
    """A method made from a function about a column, which is loaded when the method is first used."""

    def __init__(self, load: Callable[[], Callable[..., PrivateExpr]]) -> None:
        self._load = load

    def __set_name__(self, owner: type, name: str) -> None:
        self._owner, self._name = owner, name

    def __get__(self, instance: object, owner: type | None = None) -> Any:  # noqa: ANN401  # a function or a method
        """Put the function itself in the place of this object, and return it."""
        function = self._load()

        def method(self: PrivateNamespace, /, *args: Any, **kwargs: Any) -> PrivateExpr:  # noqa: ANN401
            return function(self.expr, *args, **kwargs)

        signature = inspect.signature(function)
        expr, *rest = signature.parameters.values()
        itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        method.__name__, method.__qualname__ = self._name, f"{self._owner.__qualname__}.{self._name}"
        method.__doc__, method.__module__ = function.__doc__, self._owner.__module__
        method.__annotations__ = {name: note for name, note in function.__annotations__.items() if name != expr.name}
        method.__signature__ = signature.replace(parameters=[itself, *rest])  # type: ignore[attr-defined]
        setattr(self._owner, self._name, called(method))
        return getattr(owner if instance is None else instance, self._name)


def _method(
    load: Callable[[], Callable[Concatenate[IntoColumn, P], PrivateExpr]],
) -> Callable[Concatenate[PrivateNamespace, P], PrivateExpr]:
    """Return a function about a column as a method: with its types, its signature and its docstring."""
    return cast("Callable[Concatenate[PrivateNamespace, P], PrivateExpr]", _Method(load))


# What to ask where users look for another method of `.dp`.
_A_QUANTILE = "ask a high or low quantile, .dp.quantile(0.99, …): an extreme is one person's value."
_PEOPLE = "dp_polars.n_people(epsilon=…) counts the people of a group; other distinct values are not counted."
_INSTEAD = {
    **dict.fromkeys(("max", "min"), _A_QUANTILE),
    "arg_max": f".dp.argmax(…), of public candidates with their scores. For the largest value {_A_QUANTILE}",
    "arg_min": f".dp.argmin(…), of public candidates with their scores. For the smallest value {_A_QUANTILE}",
    **dict.fromkeys(("n_unique", "approx_n_unique", "n_people"), _PEOPLE),
    **dict.fromkeys(("len", "size"), "dp_polars.len(epsilon=…) counts the rows of a group."),
    **dict.fromkeys(("avg", "average"), ".dp.mean(lower, upper, epsilon=…)."),
    **dict.fromkeys(("hist", "histogram", "unique_counts"), ".dp.value_counts(candidates, epsilon=…)."),
    **dict.fromkeys(("first", "last", "item"), ".dp.mode(candidates, epsilon=…), or a quantile."),
    **dict.fromkeys(("share", "proportion", "ratio"), 'dp_polars.share(pl.col("age") >= 65, epsilon=…).'),
    "unique": 'the keys that enough people have: frame.dp.protect("patient", …).keys("column", …).',
    "quantiles": ".dp.quantile([0.25, 0.5, 0.75], candidates, epsilon=…).",
    "percentile": ".dp.quantile(0.9, candidates, epsilon=…).",
}


@share
class PrivateNamespace:
    """The methods `.dp` of a Polars expression: private choices and numbers about that expression."""

    def __init__(self, expr: pl.Expr) -> None:
        self.expr = expr

    def __repr__(self) -> str:
        asks = ", ".join(name for name in dir(self) if not name.startswith("_") and name != "expr")
        return f"<.dp of {self.expr}: {asks}>"

    if not TYPE_CHECKING:  # so that a type checker knows the methods that there are

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("_"):
                msg = f"{type(self).__name__!r} object has no attribute {name!r}"
            else:
                meant = like(name, {one for one in dir(type(self)) if one[0] != "_"})
                other = "the page Which statistic, which method lists all."
                hint = _INSTEAD.get(name, other if meant is None else f"did you mean .dp.{meant}(…)?")
                msg = f".dp.{name}: there is no private answer of this name.\n\nHint: {hint}"
            raise AttributeError(msg, name=name, obj=self)

    mode: Final = _method(lambda: functions.choosing.mode)
    median: Final = _method(lambda: functions.choosing.median)
    quantile: Final = _method(lambda: functions.choosing.quantile)
    first_above: Final = _method(lambda: functions.best_rows.first_above)
    top_k: Final = _method(lambda: functions.choosing.top_k)
    argmax: Final = _method(lambda: functions.best_rows.argmax)
    argmin: Final = _method(lambda: functions.best_rows.argmin)
    count: Final = _method(lambda: functions.measuring.count)
    null_count: Final = _method(lambda: functions.measuring.null_count)
    sum: Final = _method(lambda: functions.measuring.sum)
    mean: Final = _method(lambda: functions.measuring.mean)
    var: Final = _method(lambda: functions.measuring.var)
    std: Final = _method(lambda: functions.measuring.std)
    value_counts: Final = _method(lambda: functions.measuring.value_counts)


class Col(Protocol):
    """What type checkers take `col` for; its calls and attributes are those of `polars.col`."""

    def __call__(
        self,
        name: str | PolarsDataType | PythonDataType | Iterable[str] | Iterable[PolarsDataType | PythonDataType],
        *more_names: str | PolarsDataType | PythonDataType,
    ) -> Column:
        """Return one or several columns, by name or type."""

    def __getattr__(self, name: str) -> Column:
        """Return the column of this name."""


# Polars' own, with a type that says that its columns have `.dp`.
col: Col = pl.col  # type: ignore[assignment]  # `.dp` is registered, which its type does not say


def read_by_row(
    columns: Sequence[pl.Expr], output: str, *, counts_nulls: bool = False
) -> tuple[tuple[pl.Expr, ...], bool]:
    """Return the columns of an output, the first one without its last `filter`, and whether it had one.

    No row is left out of a column: where the condition is false or null, the value is null, which every statistic
    ignores before any bound; one that `counts_nulls` ignores what is not null instead. Weights need no filter then.
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
    # Without `otherwise`, Polars 1 could not read it back from a pickle.
    return (pl.when(condition).then(value).otherwise(None), *columns[1:]), True


def _filtered(column: pl.Expr) -> tuple[pl.Expr, pl.Expr] | None:
    """Return what a column's last `filter` filters, and its condition; None if the last transformation is another."""
    match column.meta.pop():
        case [inner] if inner.meta.undo_aliases().meta.eq(column.meta.undo_aliases()):  # a name
            return _filtered(inner)
        case [condition, value] if value.filter(condition).meta.eq(column):
            return value, condition
    return None


def outputs_of(
    expr: object, name: str | None, columns: Callable[[], pl.Schema] | None, left_out: Collection[str]
) -> Iterator[tuple[str | None, object]]:
    """Yield the answers that an argument of `agg` stands for, each with its name there; of no column in `left_out`."""
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
        yield None, expr.of_column(one, nodes.without_nan(_of_column(answers, column)).meta.output_name())


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
    """Yield every choice of columns in an expression; None for one of which a function makes a single column."""
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
    """Return the names of the chosen columns: as they are written, or those of a selector, in the frame's order."""
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
