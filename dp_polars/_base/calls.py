"""Calls that do not fit a function: errors that say how it is called."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

if TYPE_CHECKING:
    import inspect
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")


def called(function: Callable[P, T]) -> Callable[P, T]:
    """Let a function say how it is called, where its arguments do not fit: Python names inner classes then."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            if error.__traceback__ is None or error.__traceback__.tb_next is not None:
                raise  # not of this call, but of what the function did
        raise TypeError(_misfit(function, args, kwargs))

    return call


def _misfit(function: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]) -> str:
    import inspect

    signature = inspect.signature(function)
    *_, owner, name = ["", *function.__qualname__.split(".")]
    name = owner if name == "__init__" else name
    ways = {parameter.name: _way(parameter) for parameter in signature.parameters.values()}
    way = f"{name}({', '.join(filter(None, ways.values()))})"
    if next(iter(ways)) == "column":
        way += f", or column.dp.{name}({', '.join(filter(None, [*ways.values()][1:]))})"
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        return f"{name}: {error}.\n\nHint: {way}."
    return f"{name}: the arguments do not fit.\n\nHint: {way}."


def _way(parameter: inspect.Parameter) -> str:
    """Return how an argument is given; nothing for one that is seldom given."""
    if parameter.name == "self":
        return ""
    if parameter.kind is parameter.VAR_POSITIONAL:
        return "…"
    is_required = parameter.default is parameter.empty
    if parameter.kind is parameter.KEYWORD_ONLY:
        return f"{parameter.name}=…" if is_required or parameter.name == "epsilon" else ""
    return parameter.name if is_required else f"{parameter.name}=…"
