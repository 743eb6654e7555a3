"""The `.dp` accessor of expressions."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, cast

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


@share
class PrivateNamespace:
    """The methods `.dp` of a Polars expression: private choices and numbers about that expression."""

    def __init__(self, expr: pl.Expr) -> None:
        self.expr = expr

    def __repr__(self) -> str:
        asks = ", ".join(name for name in dir(self) if not name.startswith("_") and name != "expr")
        return f"<.dp of {self.expr}: {asks}>"

    mode: Final = _method(lambda: functions.choices.mode)
    median: Final = _method(lambda: functions.choices.median)
    quantile: Final = _method(lambda: functions.choices.quantile)
    first_above: Final = _method(lambda: functions.first_above.first_above)
    top_k: Final = _method(lambda: functions.tops.top_k)
    argmax: Final = _method(lambda: functions.argmax.argmax)
    argmin: Final = _method(lambda: functions.argmax.argmin)
    count: Final = _method(lambda: functions.measures.count)
    sum: Final = _method(lambda: functions.measures.sum)
    mean: Final = _method(lambda: functions.measures.mean)
    value_counts: Final = _method(lambda: functions.measures.value_counts)
