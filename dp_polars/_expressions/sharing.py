"""One `.dp` on Polars expressions for this package and for OpenDP, which registers it too.

Whoever registers last would win. So the methods of both are put on one class: at once where OpenDP's Polars extra is
loaded, otherwise when it is: a finder on `sys.meta_path` waits for it. This package itself never imports OpenDP.
"""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    from dp_polars._base.numbers import Number
    from dp_polars._codes.candidates import Values

_THEIR_MODULE = "opendp.extras.polars"
# What our arguments are where they are not given: epsilon, rho, contributions, neighboring_relation, mechanism.
_OURS = (None, None, 1, "add_or_remove_one", None)

Accessor = TypeVar("Accessor", bound=type)


def share(ours: Accessor) -> Accessor:
    """Register a class as `.dp` of expressions, together with OpenDP's methods now and whenever these are loaded."""
    sys.meta_path.insert(0, _Watch(ours))
    _register(ours, sys.modules.get(_THEIR_MODULE))
    return ours


class _Watch(MetaPathFinder):
    """Lets others find OpenDP's module, and registers anew after each time that it runs (reloads, too)."""

    def __init__(self, ours: type) -> None:
        self._ours, self._asking = ours, False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the specification that the other finders have, with a loader that tells us."""
        if fullname != _THEIR_MODULE or self._asking:
            return None
        self._asking = True  # others may ask all finders, too
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
    both = ours if theirs is None else type(ours.__name__, (_Both, ours, theirs), {"_ours": ours, "_theirs": theirs})
    pl.api.register_expr_namespace("dp")(both)


def _unregister() -> None:
    """Take away the accessor that there is, if ours or OpenDP's: Polars would warn of another's only."""
    accessor = getattr(pl.Expr, "dp", None)
    if accessor is not None and accessor.__module__.partition(".")[0] in ("dp_polars", "opendp"):
        del pl.Expr.dp  # type: ignore[attr-defined]


class _Both:
    """The methods whose names both packages have: a call with an argument that only we have is ours."""

    _ours: ClassVar[Any]
    _theirs: ClassVar[Any]

    def median(
        self,
        candidates: Values,
        scale: float | None = None,
        *,
        epsilon: Number | None = None,
        rho: Number | None = None,
        contributions: int = 1,
        neighboring_relation: str = "add_or_remove_one",
        mechanism: str | None = None,
    ) -> pl.Expr:
        """Select the candidate nearest to the median: `dp_polars.median` where a loss is given, else OpenDP's."""
        if _is_theirs({"scale": scale}, epsilon, rho, contributions, neighboring_relation, mechanism):
            expr: pl.Expr = self._theirs.median(self, candidates, scale)
        else:
            expr = self._ours.median(
                self,
                candidates,
                epsilon=epsilon,
                rho=rho,
                contributions=contributions,
                neighboring_relation=neighboring_relation,
                mechanism=mechanism,
            )
        return expr

    def quantile(
        self,
        alpha: Number,
        candidates: Values,
        scale: float | None = None,
        *,
        epsilon: Number | None = None,
        rho: Number | None = None,
        contributions: int = 1,
        neighboring_relation: str = "add_or_remove_one",
        mechanism: str | None = None,
    ) -> pl.Expr:
        """Select the candidate nearest to a quantile: `dp_polars.quantile` where a loss is given, else OpenDP's."""
        if _is_theirs({"scale": scale}, epsilon, rho, contributions, neighboring_relation, mechanism):
            expr: pl.Expr = self._theirs.quantile(self, alpha, candidates, scale)
        else:
            expr = self._ours.quantile(
                self,
                alpha,
                candidates,
                epsilon=epsilon,
                rho=rho,
                contributions=contributions,
                neighboring_relation=neighboring_relation,
                mechanism=mechanism,
            )
        return expr

    def count(
        self,
        scale: float | None = None,
        signed: bool | None = None,
        *,
        epsilon: Number | None = None,
        rho: Number | None = None,
        contributions: int = 1,
        neighboring_relation: str = "add_or_remove_one",
        mechanism: str | None = None,
    ) -> pl.Expr:
        """Count the rows that have a value: `dp_polars.count` where a loss is given, else OpenDP's."""
        if _is_theirs({"scale": scale, "signed": signed}, epsilon, rho, contributions, neighboring_relation, mechanism):
            expr: pl.Expr = self._theirs.count(self, scale, signed)
        else:
            expr = self._ours.count(
                self,
                epsilon=epsilon,
                rho=rho,
                contributions=contributions,
                neighboring_relation=neighboring_relation,
                mechanism=mechanism,
            )
        return expr

    def sum(
        self,
        lower: Any = None,  # noqa: ANN401
        upper: Any = None,  # noqa: ANN401
        *,
        bounds: tuple[float, float] | None = None,
        scale: float | None = None,
        step: Number | None = None,
        epsilon: Number | None = None,
        rho: Number | None = None,
        contributions: int = 1,
        neighboring_relation: str = "add_or_remove_one",
        mechanism: str | None = None,
    ) -> pl.Expr:
        """Add up the values: `dp_polars.sum` where a loss is given, else OpenDP's, of `bounds` and `scale`."""
        if _is_theirs(
            {"bounds": bounds, "scale": scale}, epsilon, rho, contributions, neighboring_relation, mechanism, step
        ):
            expr: pl.Expr = self._theirs.sum(self, *_their_bounds(lower, upper, bounds, scale))
        else:
            expr = self._ours.sum(
                self,
                lower,
                upper,
                step=step,
                epsilon=epsilon,
                rho=rho,
                contributions=contributions,
                neighboring_relation=neighboring_relation,
                mechanism=mechanism,
            )
        return expr

    def mean(
        self,
        lower: Any = None,  # noqa: ANN401
        upper: Any = None,  # noqa: ANN401
        *,
        bounds: tuple[float, float] | None = None,
        scale: float | None = None,
        step: Number | None = None,
        epsilon: Number | None = None,
        rho: Number | None = None,
        contributions: int = 1,
        neighboring_relation: str = "add_or_remove_one",
        mechanism: str | None = None,
    ) -> pl.Expr:
        """Average the values: `dp_polars.mean` where a loss is given, else OpenDP's, of `bounds` and `scale`."""
        if _is_theirs(
            {"bounds": bounds, "scale": scale}, epsilon, rho, contributions, neighboring_relation, mechanism, step
        ):
            expr: pl.Expr = self._theirs.mean(self, *_their_bounds(lower, upper, bounds, scale))
        else:
            expr = self._ours.mean(
                self,
                lower,
                upper,
                step=step,
                epsilon=epsilon,
                rho=rho,
                contributions=contributions,
                neighboring_relation=neighboring_relation,
                mechanism=mechanism,
            )
        return expr


def _their_bounds(lower: object, upper: object, bounds: object, scale: object) -> tuple[object, object]:
    """Return OpenDP's bounds and scale, which are its first two arguments where they have no names."""
    own_bounds, own_scale = (lower, upper) if bounds is None else (bounds, lower)
    return own_bounds, own_scale if scale is None else scale


def _is_theirs(theirs: Mapping[str, object], *ours: object) -> bool:
    """Return whether a call has none of our arguments; refuse one that has some of both."""
    if ours in (_OURS, (*_OURS, None)):
        return True
    given = [name for name, value in theirs.items() if value is not None]
    if given:
        msg = (
            f"{given[0]} must be left out where epsilon, rho or another argument of dp_polars is given: it is "
            "OpenDP's.\n\n"
            "Hint: give epsilon or rho alone to draw by dp_polars, or scale alone to let OpenDP draw."
        )
        raise TypeError(msg)
    return False
