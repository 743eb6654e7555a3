"""The best row by scores of the caller's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from dp_polars._accounting.claims import Claim, Loss
from dp_polars._mechanisms.selection import best_rows
from dp_polars._numeric import column_types
from dp_polars._numeric.words import system_words
from dp_polars._queries.query import Query

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dp_polars._numeric.arrays import Ints
    from dp_polars._numeric.numbers import Number

_INTEGERS = [pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64]


@dataclass(frozen=True)
class ArgMax(Query):
    """The row with the highest (or lowest) score, by scores of the caller's own."""

    claim: Claim
    lowest: bool = False

    @property
    def fixed_type(self) -> pl.DataType:
        """Type of the answer, a row's position."""
        return pl.UInt32()

    def answer_type(self, *columns: pl.DataType) -> pl.DataType:
        (column,) = columns
        is_wide = column.is_integer() and column not in _INTEGERS
        if column_types.family(column) != "number" or is_wide:
            msg = f"scores must be integers of at most 64 bits, floats or decimals, got {column}."
            raise TypeError(msg)
        return pl.UInt32()

    def answers_of_rows(self, columns: Sequence[pl.Series], lengths: Ints) -> pl.Series:
        """Draw the position of one row per group; null where no row has a finite score."""
        (values,) = columns
        self.answer_type(values.dtype)
        scores, offered = column_types.exact_values(values), values.is_not_null().to_numpy()
        rate, mechanism = self.claim.rate * (column_types.tick(values.dtype) or 1), self.claim.mechanism
        chosen = best_rows(scores, lengths, rate, mechanism, system_words(), offered=offered, lowest=self.lowest)
        return pl.Series(chosen).cast(pl.UInt32, strict=False)  # −1, no score offered, becomes null

    def __str__(self) -> str:
        return f"row with the {'lowest' if self.lowest else 'highest'} score"


def ask_argmax(
    *,
    sensitivity: Number,
    monotonic: bool,
    epsilon: Number | None,
    rho: Number | None,
    mechanism: str | None,
    lowest: bool,
) -> ArgMax:
    """Return the query of these arguments."""
    return ArgMax(Claim.for_scores(Loss.of(epsilon=epsilon, rho=rho), mechanism, sensitivity, monotonic), lowest)
