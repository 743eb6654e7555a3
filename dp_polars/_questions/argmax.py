"""The best row by scores of the caller's own."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from dp_polars._accounting.claims import Claim
from dp_polars._base import column_types
from dp_polars._base.arrays import offsets, starts
from dp_polars._base.words import system_words
from dp_polars._codes.multiples import in_steps, type_in_steps
from dp_polars._draws.leads import type_with_lead, with_lead
from dp_polars._mechanisms.laws import LAWS
from dp_polars._mechanisms.own_sensitivities import MOST_ROWS, OwnSensitivities
from dp_polars._mechanisms.selection import best_rows, leading_rows
from dp_polars._questions.question import Query

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dp_polars._base.arrays import Ints

_INTEGERS = [pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64]


@dataclass(frozen=True)
class ArgMax(Query):
    """The row with the highest (or lowest) score, by scores of the caller's own.

    Parameters
    ----------
    claim, lowest
        Its claim, and whether the lowest score is the best.
    lead_step
        The unit of the lead. None: the last digit of the scores' type.
    of_floats
        Whether `lead_step` was given as a float or a Fraction: then leads are floats.
    """

    claim: Claim
    lowest: bool = False
    lead_step: Fraction | None = None
    of_floats: bool = False

    @property
    def fixed_type(self) -> pl.DataType | None:
        """Type of the answer, a row's position; with a lead, the scores' type decides."""
        return None if self.has_lead else pl.UInt32()

    def answer_type(self, *columns: pl.DataType) -> pl.DataType:
        (scores,) = columns
        _check_numbers("scores", scores)
        if not self.has_lead:
            return pl.UInt32()
        return type_with_lead(pl.UInt32(), type_in_steps(self._step(scores), scores, of_floats=self.of_floats))

    def _step(self, scores: pl.DataType) -> Fraction:
        """Return the unit of the lead; a ValueError where it must be given."""
        step = column_types.tick(scores) if self.lead_step is None else self.lead_step
        if step is None:
            msg = (
                f"lead_step must be given for scores of type {scores}.\n\n"
                "Hint: lead_step=0.01 rounds the lead down to hundredths. Choose it from public knowledge."
            )
            raise ValueError(msg)
        return step

    def answers_of_rows(self, columns: Sequence[pl.Series], lengths: Ints) -> pl.Series:
        """Draw the position of one row per group; null where no row has a finite score."""
        (values,) = columns
        self.answer_type(*(column.dtype for column in columns))
        scores, offered = column_types.exact_values(values), column_types.are_finite(values)
        tick = column_types.tick(values.dtype) or Fraction(1)
        rate, law, words = self.claim.rate * tick, LAWS[self.claim.mechanism], system_words()
        if not self.has_lead:
            chosen = best_rows(scores, lengths, rate, law, words, offered=offered, lowest=self.lowest)
            return _as_positions(chosen)
        step = self._step(values.dtype)
        chosen, leads = leading_rows(
            scores, lengths, rate, step / tick, law, words, offered=offered, lowest=self.lowest
        )
        in_type = in_steps(leads, step, type_in_steps(step, values.dtype, of_floats=self.of_floats))
        return with_lead(_as_positions(chosen), in_type, leads < 0)

    def __str__(self) -> str:
        return f"row with the {'lowest' if self.lowest else 'highest'} score{', and its lead' if self.has_lead else ''}"


@dataclass(frozen=True)
class ArgMaxOfOwn(Query):
    """The row with the highest (or lowest) score, where each row's score has a public sensitivity of its own."""

    claim: Claim
    lowest: bool = False

    @property
    def fixed_type(self) -> pl.DataType:
        """Type of the answer, a row's position."""
        return pl.UInt32()

    def answer_type(self, *columns: pl.DataType) -> pl.DataType:
        scores, sensitivities = columns
        _check_numbers("scores", scores)
        _check_numbers("sensitivities", sensitivities)
        return pl.UInt32()

    def answers_of_rows(self, columns: Sequence[pl.Series], lengths: Ints) -> pl.Series:
        """Draw the position of one row per group; null where no row has a finite score and sensitivity."""
        self.answer_type(*(column.dtype for column in columns))
        scores, sensitivities = columns
        rows, counts, eligible = own_sensitivities(scores, sensitivities, lengths, lowest=self.lowest)
        groups = np.flatnonzero(counts)
        chosen = np.full(len(lengths), -1, np.int64)
        if len(groups):
            best = eligible.best(self.claim.rate, LAWS[self.claim.mechanism], system_words())
            chosen[groups] = rows[best] - starts(lengths)[groups]
        return _as_positions(chosen)

    def __str__(self) -> str:
        return f"row with the {'lowest' if self.lowest else 'highest'} score, by sensitivities of their own"


def own_sensitivities(
    scores: pl.Series, sensitivities: pl.Series, lengths: Ints, *, lowest: bool
) -> tuple[Ints, Ints, OwnSensitivities]:
    """Return the rows that may win, how many each group has, and their scores with their sensitivities.

    A row may win whose score is finite, and whose sensitivity is finite and above 0. A ValueError where a group has too
    many of them.
    """
    numbers, weights = column_types.exact_values(scores), column_types.exact_values(sensitivities)
    is_there = column_types.are_finite(scores) & column_types.are_finite(sensitivities)
    rows = np.flatnonzero(is_there & (weights > 0).astype(bool))
    counts = np.diff(np.searchsorted(rows, offsets(lengths)))
    if not counts.max(initial=0) <= MOST_ROWS:
        msg = (
            f"a group must have at most {MOST_ROWS:,} rows with a sensitivity of their own, got {counts.max():,}: each "
            "is compared with all others.\n\nHint: offer fewer rows, or give one sensitivity for all of them."
        )
        raise ValueError(msg)
    ticks = [column_types.tick(column.dtype) or Fraction(1) for column in (scores, sensitivities)]
    eligible = OwnSensitivities(numbers[rows], weights[rows], counts[counts > 0], ticks[1] / ticks[0], lowest)
    return rows, counts, eligible


def _check_numbers(name: str, column: pl.DataType) -> None:
    is_wide = column.is_integer() and column not in _INTEGERS
    if column_types.family(column) != "number" or is_wide:
        msg = f"{name} must be integers of at most 64 bits, floats or decimals, got {column}."
        raise TypeError(msg)


def _as_positions(chosen: Ints) -> pl.Series:
    return pl.Series(chosen).cast(pl.UInt32, strict=False)  # −1, no score offered, becomes null
