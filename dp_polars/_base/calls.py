"""Calls of this package: warnings at the caller's line, tracebacks, and messages for bad calls."""

from __future__ import annotations

import inspect
import sys
import warnings
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from functools import wraps
from types import FrameType, FunctionType, TracebackType
from typing import TYPE_CHECKING, NoReturn, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


def caller() -> tuple[FrameType, int]:
    """Return the frame that called this package, and its depth in the stack, from any depth within the package."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and _is_ours(frame):
        frame, level = frame.f_back, level + 1
    return frame, level


def warn(message: str, category: type[Warning]) -> None:
    """Warn at the line that called this package, so that Python's filters match that line."""
    warnings.warn(message, category, stacklevel=caller()[1])


def called(function: Callable[P, T]) -> Callable[P, T]:
    """Report bad calls with the public signature: Python would name inner classes.

    The traceback of another error shows the function and the line that raised, and no other frame of this package.
    Python's development mode (`python -X dev`) shows all.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            inside = None if error.__traceback__ is None else error.__traceback__.tb_next
            if inside is not None or not isinstance(error, TypeError):  # the function raised it, not this call
                if not sys.flags.dev_mode:
                    error.__traceback__ = _ends_of(inside)
                raise
        raise TypeError(_misfit(function, args, kwargs))

    return call


def _ends_of(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback with only the first and the last frame of this package."""
    frames = []
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    inner = [one for one in frames if _is_ours(one.tb_frame)][1:-1]
    shown = None
    for one in reversed(frames):
        if one not in inner:
            shown = TracebackType(shown, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return shown


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] == "dp_polars"


Class = TypeVar("Class", bound=type)


def all_called(cls: Class) -> Class:
    """Apply `called` to all public methods of a class."""
    for name, method in list(vars(cls).items()):
        if isinstance(method, FunctionType) and not name.startswith("_"):
            setattr(cls, name, called(method))
    return cls


def like(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is closest to a misspelt one."""
    return next(iter(get_close_matches(name, sorted(known), 1)), None)


class Suggesting:
    """Suggests what to write for a missing attribute, such as one of Polars. No attribute is created.

    Python's own suggestion appears in terminals only, and finds no method for `.max`.
    So the hint is in the message, and without `obj` a terminal doesn't repeat it.
    """

    _who = ""  # its name for users, if its class has another one

    if not TYPE_CHECKING:  # so that type checkers only know the existing attributes

        def __getattr__(self, name: str) -> NoReturn:
            hint = None if name.startswith("_") else self._instead_of(name)
            msg = f"{self._who or f'{type(self).__name__!r} object'} has no attribute {name!r}"
            raise AttributeError(msg + (f".\n\nHint: {hint}" if hint else ""), name=name, obj=None if hint else self)

    def _instead_of(self, name: str) -> str | None:
        """Return a hint for a missing attribute."""
        meant = like(name, (known for known in dir(type(self)) if not known.startswith("_")))
        return None if meant is None else f"did you mean {meant}?"


def _misfit(function: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]) -> str:
    signature = inspect.signature(function)
    *_, owner, name = ["", *function.__qualname__.split(".")]
    name = owner if name == "__init__" else name
    unknown = [] if _takes_all(signature) else [one for one in kwargs if one not in signature.parameters]
    found = {one: like(one, {*signature.parameters} - {"self"}) for one in unknown}
    ways = {one.name: _way(one, one.name in found.values()) for one in signature.parameters.values()}
    way = f"{name}({', '.join(filter(None, ways.values()))})"
    if owner == "PrivateNamespace":
        way = f"column.dp.{way}"
    elif next(iter(ways)) == "column":
        way += f", or column.dp.{name}({', '.join(filter(None, [*ways.values()][1:]))})"
    try:
        signature.bind(*args, **kwargs)
        why = "the arguments do not fit"
    except TypeError as error:
        why = str(error)
    meant = "".join(f"{other} instead of {one}: " for one, other in found.items() if other is not None)
    return f"{name}: {why}.\n\nHint: {meant}{way}."


def _takes_all(signature: inspect.Signature) -> bool:
    return any(one.kind is one.VAR_KEYWORD for one in signature.parameters.values())


def _way(parameter: inspect.Parameter, is_meant: bool) -> str:
    """Return how an argument is passed; nothing for a rare one, unless it is meant."""
    if parameter.name == "self":
        return ""
    if parameter.kind is parameter.VAR_POSITIONAL:
        return "…"
    is_required = parameter.default is parameter.empty
    if parameter.kind is parameter.KEYWORD_ONLY:
        return f"{parameter.name}=…" if is_required or is_meant or parameter.name == "epsilon" else ""
    return parameter.name if is_required else f"{parameter.name}=…"
