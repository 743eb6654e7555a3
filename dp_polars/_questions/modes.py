"""The mode: the most common of a list of categories, or the one that weighs most."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from dp_polars._accounting.claims import Claim
from dp_polars._base.numbers import show
from dp_polars._codes.candidates import Categories
from dp_polars._codes.multiples import in_steps
from dp_polars._codes.units import Weights
from dp_polars._draws.leads import lead_from_rows, lead_groups, type_with_lead, with_lead
from dp_polars._draws.scores import CountScore
from dp_polars._questions.choices import Choice
from dp_polars._questions.of_categories import OfCategories
from dp_polars._questions.question import HistogramQuery

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dp_polars._accounting.terms import NeighboringRelation
    from dp_polars._base.arrays import Ints
    from dp_polars._codes.encoding import Codes
    from dp_polars._draws.drawing import Draw
    from dp_polars._draws.histograms import Histogram
    from dp_polars._draws.leads import Led
    from dp_polars._draws.scores import Score
    from dp_polars._questions.question import Columns

# The largest `too_few`, in steps: together with a sum of weights, which is at most 2**62, it fits into 64 bits.
_MOST_STEPS = 2**61


@dataclass(frozen=True)
class Mode(OfCategories, Choice):
    """The candidate that the most people have, or the most rows, or that weighs most.

    `too_few` is the constant score of one more candidate, whose answer is null. Under "add_or_remove_one" a row (or a
    person) moves the others in one direction and this one not at all, so R stays what it is: a replacement is two such
    moves. In a lead it counts like any other candidate.
    """

    candidates: Categories
    claim: Claim
    of_people: bool = True
    too_few: int | None = None
    weights: Weights | None = None

    @property
    def fixed_type(self) -> pl.DataType | None:
        """Type of the answers; None where only the column's type names the candidates."""
        return None if self.candidates.values is None else self._with_lead(self.candidates.values.dtype)

    def answer_type(self, *columns: pl.DataType) -> pl.DataType:
        """Return the answer's type for a column's; a TypeError where that can't be."""
        answer, constant, step = self.values(*columns).dtype, self.too_few, self.step(*columns)
        if constant is not None and (constant / step).denominator != 1:
            msg = f"too_few must be a whole multiple of the step of the weights, got {constant}."
            raise ValueError(msg)
        if constant is not None and not constant / step <= _MOST_STEPS:
            msg = f"too_few must be at most 2**61 steps of the weights, got {constant} in steps of {show(step)}."
            raise ValueError(msg)
        return self._with_lead(answer)

    def _with_lead(self, answer: pl.DataType) -> pl.DataType:
        """Return the type of the answers: rows and people are whole numbers, sums of weights floats."""
        return type_with_lead(answer, pl.Int64() if self.weights is None else pl.Float64()) if self.has_lead else answer

    def range_of(self, relation: NeighboringRelation, groups: int | None = None) -> Fraction:
        return super().range_of(relation, groups) * self.most

    def draw(self, *columns: pl.DataType) -> Draw:
        """Return what the kernel needs to know; the candidate for too few comes last."""
        draw = super().draw(*columns)
        return draw if self.too_few is None else replace(draw, size=draw.size + 1)

    def scored(self, histogram: Histogram, *columns: pl.DataType) -> Histogram:
        """Return the histogram that is drawn from; the candidate for too few comes last."""
        if self.too_few is None:
            return histogram
        return histogram.with_code(self.coding(*columns).size, int(self.too_few / self.step(*columns)))

    def named(self, codes: Ints, *columns: pl.DataType) -> pl.Series:
        """Return the candidates that the codes stand for; null for too few."""
        values = self.values(*columns)
        if self.too_few is None:
            return values.gather(codes)
        size = len(values)
        named = values.gather(np.minimum(codes, size - 1))
        return named.zip_with(pl.Series(codes < size), pl.Series([None], dtype=named.dtype))

    def _led(self, led: Led, *columns: pl.DataType) -> pl.Series:
        """Return what was drawn with its lead."""
        codes, leads = led
        in_units = pl.Series(leads) if self.weights is None else in_steps(leads, self.step(*columns), pl.Float64())
        return with_lead(self.named(codes, *columns), in_units, leads < 0)

    def drawn(self, histograms: Sequence[Histogram], *columns: pl.DataType) -> tuple[pl.Series, ...]:
        """Draw one answer per group from its histogram, also for groups without rows."""
        if not self.has_lead:
            return super().drawn(histograms, *columns)
        (histogram,) = histograms
        return (self._led(lead_groups(self.draw(*columns), self.scored(histogram, *columns)), *columns),)

    def answers_of_codes(self, codes: Codes, weights: Ints | None, lengths: Ints, columns: Columns = ()) -> pl.Series:
        """Draw one answer per group from the codes of its rows."""
        if self.too_few is None and self.has_lead and weights is None:
            return self._led(lead_from_rows(self.draw(*columns), codes, lengths), *columns)
        if self.too_few is None:
            return super().answers_of_codes(codes, weights, lengths, columns)
        return HistogramQuery.answers_of_codes(self, codes, weights, lengths, columns)

    def error(self, size: int, beta: float, *columns: pl.DataType) -> float:
        """Return an error that is exceeded with probability at most `beta`: in rows, people or the weights' unit."""
        return self.missed(super().error(size if self.too_few is None else size + 1, beta, *columns), *columns)

    @property
    def score(self) -> Score:
        return CountScore()

    def __str__(self) -> str:
        or_too_few = "" if self.too_few is None else f", or fewer than {self.too_few}"
        return f"mode of {self.candidates}{self.how}{or_too_few}{', and its lead' if self.has_lead else ''}"
