"""The `.dp` accessor of expressions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, Final, NoReturn, ParamSpec, cast

import polars as pl

from dp_polars import _expressions as functions
from dp_polars._expressions.expressions import PrivateExpr
from dp_polars._expressions.sharing import share

if TYPE_CHECKING:
    from dp_polars._expressions.expressions import IntoColumn

P = ParamSpec("P")


class _Method:
    """A method made from a function about a column, which is loaded when the method is first used."""

    def __init__(self, load: Callable[[], Callable[..., PrivateExpr]]) -> None:
        self._load = load

    def __set_name__(self, owner: type, name: str) -> None:
        self._owner, self._name = owner, name

    def __get__(self, instance: object, owner: type | None = None) -> Any:  # noqa: ANN401  # a function or a method
        """Put the function itself in the place of this object, and return it."""
        import inspect

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
        setattr(self._owner, self._name, method)
        return method.__get__(instance, owner)


def _method(
    load: Callable[[], Callable[Concatenate[IntoColumn, P], PrivateExpr]],
) -> Callable[Concatenate[PrivateNamespace, P], PrivateExpr]:
    """Return a function about a column as a method: with its types, its signature and its docstring."""
    return cast("Callable[Concatenate[PrivateNamespace, P], PrivateExpr]", _Method(load))


# What to ask where users look for another method of `.dp`.
_A_QUANTILE = "ask a high or low quantile, .dp.quantile(0.99, …): an extreme is one person's value."
_PEOPLE = "dp_polars.n_people(epsilon=…) counts the people of a group; other distinct values are not counted."
_INSTEAD = {
    **dict.fromkeys(("max", "min", "arg_max", "arg_min"), _A_QUANTILE),
    **dict.fromkeys(("n_unique", "approx_n_unique", "n_people"), _PEOPLE),
    **dict.fromkeys(("len", "size"), "dp_polars.len(epsilon=…) counts the rows of a group."),
    **dict.fromkeys(("avg", "average"), ".dp.mean(lower, upper, epsilon=…)."),
    **dict.fromkeys(("hist", "histogram", "unique_counts"), ".dp.value_counts(candidates, epsilon=…)."),
    **dict.fromkeys(("first", "last", "item"), ".dp.mode(candidates, epsilon=…), or a quantile."),
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
                hint = _INSTEAD.get(name, "the page Which question? lists what can be asked.")
                msg = f".dp.{name}: there is no private answer of this name.\n\nHint: {hint}"
            raise AttributeError(msg, name=name, obj=self)

    mode: Final = _method(lambda: functions.choices.mode)
    median: Final = _method(lambda: functions.choices.median)
    quantile: Final = _method(lambda: functions.choices.quantile)
    first_above: Final = _method(lambda: functions.first_above.first_above)
    top_k: Final = _method(lambda: functions.tops.top_k)
    argmax: Final = _method(lambda: functions.argmax.argmax)
    argmin: Final = _method(lambda: functions.argmax.argmin)
    count: Final = _method(lambda: functions.counts.count)
    null_count: Final = _method(lambda: functions.counts.null_count)
    sum: Final = _method(lambda: functions.values.sum)
    mean: Final = _method(lambda: functions.values.mean)
    var: Final = _method(lambda: functions.values.var)
    std: Final = _method(lambda: functions.values.std)
    value_counts: Final = _method(lambda: functions.counts.value_counts)
