"""`.dp` of expressions, shared with OpenDP whenever its module is imported."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, TypeVar, cast

import polars as pl

from dp_polars._base.calls import called

_THEIR_MODULE = "opendp.extras.polars"
# OpenDP's expressions have ours here: a call without a loss may mean either, and a private frame uses ours.
OURS = "_of_dp_polars"

Accessor = TypeVar("Accessor", bound=type)


def share(ours: Accessor) -> Accessor:
    """Register a class as `.dp` of expressions, together with OpenDP's methods now and whenever these are loaded."""
    sys.meta_path.insert(0, _Watch(ours))
    _register(ours, sys.modules.get(_THEIR_MODULE))
    return ours


class _Watch(MetaPathFinder):
    """Lets other finders find OpenDP's module, and registers again each time it runs (also at reloads)."""

    def __init__(self, ours: type) -> None:
        self._ours, self._asking = ours, False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the specification from the other finders, with a loader that registers our methods."""
        if fullname != _THEIR_MODULE or self._asking:
            return None
        self._asking = True  # other finders may ask all finders, too
        try:
            found = (finder.find_spec(fullname, path, target) for finder in sys.meta_path)
            spec = next((spec for spec in found if spec is not None), None)
        finally:
            self._asking = False
        if spec is not None and spec.loader is not None:
            spec.loader.exec_module = self._then_register(spec.loader.exec_module)  # type: ignore[assignment]
        return spec

    def _then_register(self, exec_module: Callable[[ModuleType], None]) -> Callable[[ModuleType], None]:
        def run(module: ModuleType) -> None:
            _unregister()
            try:
                exec_module(module)
            finally:
                _register(self._ours, module)

        return run


def _register(ours: type, module: ModuleType | None) -> None:
    theirs = getattr(module, "DPExpr", None)
    _unregister()
    both = ours
    if theirs is not None:
        shared = [name for name in vars(ours) if not name.startswith("_") and hasattr(theirs, name)]
        methods: dict[str, Any] = {name: _shared(name, ours, theirs) for name in shared}
        methods["expr"] = property(lambda self: self._expr)  # their methods read it
        # A pickle would look for this class by its name in a module, and no module has it.
        both = type(ours.__name__, (ours, theirs), methods | {"__reduce__": lambda self: (_accessor, (self._expr,))})
    pl.api.register_expr_namespace("dp")(both)


def _accessor(expr: pl.Expr) -> object:
    """Return `.dp` of an expression: the accessor of the process that reads a pickle."""
    return expr.dp  # type: ignore[attr-defined]


def _unregister() -> None:
    """Remove the current accessor if it is ours or OpenDP's: then Polars warns only about others."""
    accessor = getattr(pl.Expr, "dp", None)
    if accessor is not None and accessor.__module__.partition(".")[0] in ("dp_polars", "opendp"):
        del pl.Expr.dp  # type: ignore[attr-defined]


def _shared(name: str, ours: type, theirs: type) -> Callable[..., pl.Expr]:
    """Return a method of both packages: ours for a keyword that only we have, or a place after all of theirs."""
    our, their = getattr(ours, name), getattr(theirs, name)
    our_parameters, their_parameters = inspect.signature(our).parameters, inspect.signature(their).parameters
    keywords = {name: p for name, p in our_parameters.items() if p.kind is p.KEYWORD_ONLY}
    places = [p for name, p in our_parameters.items() if name not in keywords]
    # If our parameters begin with theirs, their further ones follow ours. Otherwise both are optional, and theirs are
    # keywords.
    goes_on = list(their_parameters)[: len(places)] == [p.name for p in places]
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD if goes_on else inspect.Parameter.KEYWORD_ONLY
    only_theirs = [
        p.replace(default=None, kind=kind) for name, p in their_parameters.items() if name not in our_parameters
    ]
    only_ours = {name: p for name, p in our_parameters.items() if name not in their_parameters}
    first, *others = places
    signature = inspect.Signature(
        [first, *(others if goes_on else [p.replace(default=None) for p in others]), *only_theirs, *keywords.values()],
        return_annotation=pl.Expr,
    )

    def method(self: object, /, *args: Any, **kwargs: Any) -> pl.Expr:  # noqa: ANN401
        defaults = all(kwargs.get(name, p.default) == p.default for name, p in only_ours.items())
        if defaults and len(args) < len(their_parameters):  # one of them is `self`
            unnamed = {name: value for name, value in kwargs.items() if name not in only_ours}
            asked = None
            with suppress(AttributeError, TypeError, ValueError):  # arguments that only they have
                asked = cast("pl.Expr", our(self, *args, **kwargs))
            try:
                answer = cast("pl.Expr", their(self, *args, **unnamed))
            except (TypeError, ValueError):  # arguments that only we have
                if asked is None:
                    raise
                return asked
            if asked is not None:
                setattr(answer, OURS, asked)
            return answer
        given = signature.bind(self, *args, **kwargs).arguments
        for p in only_theirs:
            if given.pop(p.name, None) is not None:
                msg = (
                    f"{p.name} must be left out where epsilon, rho or another argument of dp_polars is given: it is "
                    "OpenDP's.\n\n"
                    "Hint: give epsilon or rho alone to draw by dp_polars, or scale alone to let OpenDP draw."
                )
                raise TypeError(msg)
        return cast("pl.Expr", our(given.pop(first.name), **given))

    method.__name__, method.__qualname__, method.__module__ = name, f"{ours.__qualname__}.{name}", ours.__module__
    method.__doc__ = f"By `dp_polars.{name}` where a loss is given, else by OpenDP.\n\n{inspect.getdoc(our)}"
    method.__signature__ = signature  # type: ignore[attr-defined]
    return called(method)
