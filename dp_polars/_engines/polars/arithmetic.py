"""Weights of people as Polars expressions."""

from __future__ import annotations

from typing import ClassVar

import polars as pl


class _Expressions:
    """Arithmetic of Polars: see `_mechanisms.person_weights.Arithmetic`."""

    choose: ClassVar = staticmethod(lambda condition, yes, no: pl.when(condition).then(yes).otherwise(no))
    quotient: ClassVar = staticmethod(lambda number, by: number // by)

    @staticmethod
    def whole(number: int) -> pl.Expr:
        return pl.lit(number, pl.Int64)

    @staticmethod
    def scaled_root(unit: float, limit: float, by: pl.Expr) -> pl.Expr:
        return (unit * (limit / by.cast(pl.Float64)).sqrt()).floor().cast(pl.Int64)


EXPRESSIONS = _Expressions()
