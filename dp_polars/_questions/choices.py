"""Choices by a score of the histogram, one draw each; the quantiles among them."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import polars as pl

from dp_polars._accounting.claims import Claim
from dp_polars._base.numbers import as_fraction, show
from dp_polars._codes.candidates import Ordered, ordered
from dp_polars._codes.codings import Coding, NearestCoding
from dp_polars._draws.drawing import Draw, draw_from_rows, draw_groups
from dp_polars._draws.scores import QuantileScore
from dp_polars._mechanisms.laws import LAWS, error_bound
from dp_polars._questions.question import OfCodes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dp_polars._accounting.terms import NeighboringRelation, Terms
    from dp_polars._base.arrays import Ints
    from dp_polars._codes.candidates import Values
    from dp_polars._codes.encoding import Codes
    from dp_polars._draws.histograms import Histogram
    from dp_polars._draws.scores import Score
    from dp_polars._questions.question import Columns

_LARGEST_DENOMINATOR = 10_000


class Choice(OfCodes):
    """One candidate of each group, by a score: one draw."""

    @property
    @abstractmethod
    def score(self) -> Score:
        """How good a candidate is."""

    @abstractmethod
    def named(self, codes: Ints, *columns: pl.DataType) -> pl.Series:
        """Return the candidates that the codes stand for; in the column's type, if that is given, for a mode."""

    def step(self, *columns: pl.DataType) -> Fraction:  # noqa: ARG002
        """Return what a weight of one stands for: a row or a person; with weights, one step, in their unit."""
        return Fraction(1)

    @property
    def counts_people(self) -> bool:
        return self.score.of_people

    @property
    def bounds_people(self) -> bool:
        return self.score.of_people

    def range_of(self, relation: NeighboringRelation, groups: int | None = None) -> Fraction:
        return self.score.range(relation, groups)

    def same_group_of(self, relation: NeighboringRelation, groups: int | None = None) -> Fraction:
        return self.score.same_group(relation, groups)

    def draw(self, *columns: pl.DataType) -> Draw:
        """Return what the kernel needs to know."""
        rate = self.claim.rate_in(self.step(*columns))
        return Draw(self.coding(*columns).size, self.score, rate, LAWS[self.claim.mechanism])

    def scored(self, histogram: Histogram, *columns: pl.DataType) -> Histogram:  # noqa: ARG002
        """Return the histogram that is drawn from: with what has a constant score, if there is such a candidate."""
        return histogram

    def drawn(self, histograms: Sequence[Histogram], *columns: pl.DataType) -> tuple[pl.Series, ...]:
        (histogram,) = histograms
        codes = draw_groups(self.draw(*columns), self.scored(histogram, *columns))
        return (self.named(codes, *columns),)

    def answers_of_codes(self, codes: Codes, weights: Ints | None, lengths: Ints, columns: Columns = ()) -> pl.Series:
        if weights is not None:
            return super().answers_of_codes(codes, weights, lengths, columns)
        return self.named(draw_from_rows(self.draw(*columns), codes, lengths), *columns)

    def error(self, size: int, beta: float, *columns: pl.DataType) -> float:  # noqa: ARG002
        """Return an error that is exceeded with probability at most `beta`, in rows or people."""
        return error_bound(size, beta, self.claim) / self.score.unit


@dataclass(frozen=True)
class Quantile(Choice):
    """The candidate nearest to the lower α-quantile."""

    alpha: Fraction
    candidates: Ordered
    claim: Claim

    @property
    def is_ordered(self) -> bool:
        """Whether answers lie on a line."""
        return True

    @property
    def score(self) -> Score:
        return QuantileScore(self.alpha)

    @property
    def fixed_type(self) -> pl.DataType:
        return self.candidates.dtype

    def answer_type(self, *columns: pl.DataType) -> pl.DataType:
        self.coding(*columns).encoder()
        return self.candidates.dtype

    def coding(self, *columns: pl.DataType) -> Coding:
        return NearestCoding(self.candidates, *columns)

    def named(self, codes: Ints, *columns: pl.DataType) -> pl.Series:  # noqa: ARG002
        return self.candidates.take(codes)

    def __str__(self) -> str:
        name = "median" if self.alpha == Fraction(1, 2) else f"{show(self.alpha)}-quantile"
        return f"{name} on {self.candidates}"


def ask_quantile(alpha: object, candidates: Values, terms: Terms) -> Quantile:
    """Return the quantile of these arguments."""
    exact = as_alpha("alpha", alpha)
    return Quantile(exact, ordered(candidates), Claim.on(terms, "choice")).on(terms)


def as_alpha(name: str, value: object, parts: int = 1) -> Fraction:
    """Return which quantile is asked for, as an exact fraction; what is left of 1 may be divided into parts."""
    exact = as_fraction(name, value)
    if not 0 < exact < 1:
        msg = (
            f"{name} must lie strictly between 0 and 1, got {value!r}.\n\n"
            "Hint: 0.5 is the median, 0.9 the 90th percentile."
        )
        raise ValueError(msg)
    largest = _LARGEST_DENOMINATOR // parts
    if not exact.denominator <= largest:
        msg = (
            f"{name} must be a fraction with a denominator of at most {largest:,}, got {value!r}.\n\n"
            f"Hint: round it to {'four' if parts == 1 else 'three'} decimals."
        )
        raise ValueError(msg)
    return exact
