"""The `.dp` accessor of expressions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from dp_polars._expressions import argmax, choices, measures
from dp_polars._expressions.expressions import PrivateExpr
from dp_polars._expressions.sharing import share

if TYPE_CHECKING:
    from dp_polars._numeric.numbers import Number
    from dp_polars._queries.candidates import Values


@share
class PrivateNamespace:
    """The methods `.dp` of a Polars expression: private choices and numbers, with the expression as the column."""

    def __init__(self, expr: pl.Expr) -> None:
        self.expr = expr

    def mode(
        self,
        candidates: Values | None = None,
        *,
        epsilon: Number | None = None,
        rho: Number | None = None,
        counts: str = "people",
        too_few: int | None = None,
        lead: bool = False,
        contributions: int = 1,
        neighboring_relation: str = "add_or_remove_one",
        mechanism: str | None = None,
    ) -> PrivateExpr:
        """Select the most common candidate of each group: see `dp_polars.mode`."""
        return choices.mode(
            self.expr,
            candidates,
            counts=counts,
            too_few=too_few,
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
        return choices.median(
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
        alpha: Number,
        candidates: Values,
        *,
        epsilon: Number | None = None,
        rho: Number | None = None,
        contributions: int = 1,
        neighboring_relation: str = "add_or_remove_one",
        mechanism: str | None = None,
    ) -> PrivateExpr:
        """Select the candidate nearest to the α-quantile of each group: see `dp_polars.quantile`."""
        return choices.quantile(
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
        return argmax.argmax(
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
        return argmax.argmin(
            self.expr,
            sensitivity=sensitivity,
            monotonic=monotonic,
            lead=lead,
            lead_step=lead_step,
            epsilon=epsilon,
            rho=rho,
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
        return measures.count(
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
        return measures.sum(
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
        return measures.mean(
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
        return measures.value_counts(
            self.expr,
            candidates,
            epsilon=epsilon,
            rho=rho,
            contributions=contributions,
            neighboring_relation=neighboring_relation,
            mechanism=mechanism,
        )
