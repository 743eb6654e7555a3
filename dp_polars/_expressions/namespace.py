"""The `.dp` accessor of expressions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from dp_polars import _expressions
from dp_polars._expressions.expressions import PrivateExpr
from dp_polars._expressions.sharing import share

if TYPE_CHECKING:
    from dp_polars._base.numbers import Number
    from dp_polars._codes.candidates import Values
    from dp_polars._expressions.expressions import IntoColumn
    from dp_polars._questions.quantile_lists import Alphas


@share
class PrivateNamespace:
    """The methods `.dp` of a Polars expression: private choices and numbers about that expression."""

    def __init__(self, expr: pl.Expr) -> None:
        self.expr = expr

    def __repr__(self) -> str:
        asks = ", ".join(name for name in dir(self) if not name.startswith("_") and name != "expr")
        return f"<.dp of {self.expr}: {asks}>"

    def mode(
        self,
        candidates: Values | None = None,
        *,
        epsilon: Number | None = None,
        rho: Number | None = None,
        counts: str = "people",
        too_few: int | None = None,
        weights: IntoColumn | None = None,
        max_weight: Number | None = None,
        step: Number | None = None,
        lead: bool = False,
        contributions: int = 1,
        neighboring_relation: str = "add_or_remove_one",
        mechanism: str | None = None,
    ) -> PrivateExpr:
        """Select the most common candidate of each group: see `dp_polars.mode`."""
        return _expressions.choices.mode(
            self.expr,
            candidates,
            counts=counts,
            too_few=too_few,
            weights=weights,
            max_weight=max_weight,
            step=step,
            lead=lead,
            epsilon=epsilon,
            rho=rho,
            contributions=contributions,
            neighboring_relation=neighboring_relation,
            mechanism=mechanism,
        )

    def median(
        self,
        candidates: Values,
        *,
        epsilon: Number | None = None,
        rho: Number | None = None,
        contributions: int = 1,
        neighboring_relation: str = "add_or_remove_one",
        mechanism: str | None = None,
    ) -> PrivateExpr:
        """Select the candidate nearest to the median of each group: see `dp_polars.median`."""
        return _expressions.choices.median(
            self.expr,
            candidates,
            epsilon=epsilon,
            rho=rho,
            contributions=contributions,
            neighboring_relation=neighboring_relation,
            mechanism=mechanism,
        )

    def quantile(
        self,
        alpha: Number | Alphas,
        candidates: Values,
        *,
        epsilon: Number | None = None,
        rho: Number | None = None,
        contributions: int = 1,
        neighboring_relation: str = "add_or_remove_one",
        mechanism: str | None = None,
    ) -> PrivateExpr:
        """Select the candidate nearest to the α-quantile of each group, or to several: see `dp_polars.quantile`."""
        return _expressions.choices.quantile(
            self.expr,
            alpha,
            candidates,
            epsilon=epsilon,
            rho=rho,
            contributions=contributions,
            neighboring_relation=neighboring_relation,
            mechanism=mechanism,
        )

    def argmax(
        self,
        *,
        sensitivity: Number | pl.Expr,
        monotonic: bool = False,
        lead: bool = False,
        lead_step: Number | None = None,
        epsilon: Number | None = None,
        rho: Number | None = None,
        mechanism: str | None = None,
    ) -> PrivateExpr:
        """Select the row with the highest score in each group: see `dp_polars.argmax`."""
        return _expressions.argmax.argmax(
            self.expr,
            sensitivity=sensitivity,
            monotonic=monotonic,
            lead=lead,
            lead_step=lead_step,
            epsilon=epsilon,
            rho=rho,
            mechanism=mechanism,
        )

    def argmin(
        self,
        *,
        sensitivity: Number | pl.Expr,
        monotonic: bool = False,
        lead: bool = False,
        lead_step: Number | None = None,
        epsilon: Number | None = None,
        rho: Number | None = None,
        mechanism: str | None = None,
    ) -> PrivateExpr:
        """Select the row with the lowest score in each group: see `dp_polars.argmin`."""
        return _expressions.argmax.argmin(
            self.expr,
            sensitivity=sensitivity,
            monotonic=monotonic,
            lead=lead,
            lead_step=lead_step,
            epsilon=epsilon,
            rho=rho,
            mechanism=mechanism,
        )

    def top_k(
        self,
        k: int,
        candidates: Values | None = None,
        *,
        epsilon: Number | None = None,
        rho: Number | None = None,
        counts: str = "people",
        weights: IntoColumn | None = None,
        max_weight: Number | None = None,
        step: Number | None = None,
        contributions: int = 1,
        neighboring_relation: str = "add_or_remove_one",
        mechanism: str | None = None,
    ) -> PrivateExpr:
        """Select the k most common candidates of each group, best first: see `dp_polars.top_k`."""
        return _expressions.tops.top_k(
            self.expr,
            k,
            candidates,
            counts=counts,
            weights=weights,
            max_weight=max_weight,
            step=step,
            epsilon=epsilon,
            rho=rho,
            contributions=contributions,
            neighboring_relation=neighboring_relation,
            mechanism=mechanism,
        )

    def count(
        self,
        *,
        epsilon: Number | None = None,
        rho: Number | None = None,
        contributions: int = 1,
        neighboring_relation: str = "add_or_remove_one",
        mechanism: str | None = None,
    ) -> PrivateExpr:
        """Count the rows of each group that have a value: see `dp_polars.count`."""
        return _expressions.measures.count(
            self.expr,
            epsilon=epsilon,
            rho=rho,
            contributions=contributions,
            neighboring_relation=neighboring_relation,
            mechanism=mechanism,
        )

    def sum(
        self,
        lower: Number,
        upper: Number,
        *,
        step: Number | None = None,
        epsilon: Number | None = None,
        rho: Number | None = None,
        contributions: int = 1,
        neighboring_relation: str = "add_or_remove_one",
        mechanism: str | None = None,
    ) -> PrivateExpr:
        """Add up the values of each group, clipped to public bounds: see `dp_polars.sum`."""
        return _expressions.measures.sum(
            self.expr,
            lower,
            upper,
            step=step,
            epsilon=epsilon,
            rho=rho,
            contributions=contributions,
            neighboring_relation=neighboring_relation,
            mechanism=mechanism,
        )

    def mean(
        self,
        lower: Number,
        upper: Number,
        *,
        step: Number | None = None,
        epsilon: Number | None = None,
        rho: Number | None = None,
        contributions: int = 1,
        neighboring_relation: str = "add_or_remove_one",
        mechanism: str | None = None,
    ) -> PrivateExpr:
        """Average the values of each group, clipped to public bounds: see `dp_polars.mean`."""
        return _expressions.measures.mean(
            self.expr,
            lower,
            upper,
            step=step,
            epsilon=epsilon,
            rho=rho,
            contributions=contributions,
            neighboring_relation=neighboring_relation,
            mechanism=mechanism,
        )

    def value_counts(
        self,
        candidates: Values,
        *,
        epsilon: Number | None = None,
        rho: Number | None = None,
        contributions: int = 1,
        neighboring_relation: str = "add_or_remove_one",
        mechanism: str | None = None,
    ) -> PrivateExpr:
        """Count every candidate in each group: see `dp_polars.value_counts`."""
        return _expressions.measures.value_counts(
            self.expr,
            candidates,
            epsilon=epsilon,
            rho=rho,
            contributions=contributions,
            neighboring_relation=neighboring_relation,
            mechanism=mechanism,
        )
