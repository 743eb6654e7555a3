"""Choices among categories and numbers: modes and quantiles."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
import polars as pl

from dp_polars._accounting.claims import Claim
from dp_polars._accounting.terms import NeighboringRelation, Terms, exact
from dp_polars._base.numbers import Ints, as_fraction, show
from dp_polars._bins.binning import Binning, CategoryBinning, Codes, NearestBinning
from dp_polars._bins.candidates import (
    Categories,
    Ordered,
    Unselected,
    Values,
    ends_of,
    grid_between,
    ordered,
    widest_grid,
)
from dp_polars._bins.weights import ONE_EACH, Weights, in_steps
from dp_polars._mechanisms.drawing import Draw, draw_from_rows, draw_groups
from dp_polars._mechanisms.histograms import CountScore, Histogram, QuantileScore, Score
from dp_polars._mechanisms.noisy_gap import WithGap, gap_from_rows, gap_groups, type_with_gap, with_gap
from dp_polars._mechanisms.racing import LAWS, error_bound
from dp_polars._statistics.statistic import FOUND_FIRST, Columns, CountRule, HistogramQuery, clipped_to

_LARGEST_DENOMINATOR = 10_000
_MOST_ROWS = 2**40  # the most public rows at an end: with as many private ones, gaps fit into 62 bits
# What floats may have rounded off the bound of an error is far less than this share of it.
_ROUNDING = 1 + Fraction(1, 2**40)


class Choice(HistogramQuery):
    """One candidate of each group, by a score: one draw."""

    @property
    @abstractmethod
    def score(self) -> Score:
        """How good a candidate is."""

    @abstractmethod
    def named(self, codes: Ints, *columns: pl.DataType) -> pl.Series:
        """Return the candidates that the codes stand for; in the column's type, if that is given, for a mode."""

    @abstractmethod
    def binning(self, *columns: pl.DataType) -> Binning:
        """Return the codes of rows of such columns."""

    def count_rules(self, *columns: pl.DataType) -> tuple[CountRule, ...]:
        return (CountRule(self.binning(*columns), self.weights.units(*columns)),)

    def step(self, *columns: pl.DataType) -> Fraction:
        return step_of(self.weights, *columns)

    @property
    def counts_people(self) -> bool:
        return self.score.of_people

    def range_of(self, relation: NeighboringRelation, groups: int | None = None) -> Fraction:
        return self.score.range(relation, groups) * self.weights.most

    def same_group_of(self, relation: NeighboringRelation, groups: int | None = None) -> Fraction:
        return self.score.same_group(relation, groups)

    def draw(self, *columns: pl.DataType) -> Draw:
        rate = self.claim._rate_in(self.step(*columns))
        return Draw(self.binning(*columns).size, self.score, rate, LAWS[self.claim.mechanism])

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
        return error_bound(size, beta, self.claim) / self.score.unit


class Ranked(HistogramQuery):
    """A statistic by ranks among ordered candidates. None: those of `grid_between`, of bounds that are found."""

    is_ordered: ClassVar[bool] = True
    candidates: Ordered | None
    alphas: tuple[Fraction, ...]

    @property
    def finds(self) -> tuple[str, ...]:
        return ("lower", "upper") if self.candidates is None else ()

    @property
    def left_out(self) -> tuple[str, str]:
        return "candidates", "median(range(121))"

    @property
    def points(self) -> Ordered:
        """The candidates of a statistic that has them."""
        assert self.candidates is not None, "bounds are found before the answers"
        return self.candidates

    def points_of(self, *columns: pl.DataType) -> Ordered:
        """Return the candidates; before bounds are found the most that there may be."""
        return widest_grid(*columns) if self.candidates is None else self.candidates

    def with_bounds(self, column: pl.DataType, lower: Fraction | None = None, upper: Fraction | None = None) -> Self:
        assert lower is not None, "both bounds are found"
        assert upper is not None, "both bounds are found"
        return replace(self, candidates=grid_between(lower, upper, column))  # type: ignore[type-var]

    def least_people(self, counted: HistogramQuery, *columns: pl.DataType) -> int:
        missed = Fraction(self.error(self.points_of(*columns).size, 0.05) or 0)
        missed = max(missed / min(alpha, 1 - alpha) for alpha in self.alphas)
        return math.floor(max(missed, Fraction(counted.error(1, 0.05) or 0))) + 1

    @property
    def clipping(self) -> str:
        return FOUND_FIRST if self.candidates is None else clipped_to(*ends_of(self.candidates))

    def binning(self, *columns: pl.DataType) -> Binning:
        return NearestBinning(self.points_of(*columns), *columns)

    @property
    def _on(self) -> str:
        return f"on {'a grid that is found privately' if self.candidates is None else self.candidates}"


@dataclass(frozen=True)
class Quantile(Ranked, Choice):
    """The candidate nearest to the lower α-quantile."""

    alpha: Fraction
    candidates: Ordered | None
    terms: Terms

    @property
    def alphas(self) -> tuple[Fraction, ...]:  # type: ignore[override]
        return (self.alpha,)

    @property
    def score(self) -> Score:
        return QuantileScore(self.alpha)

    @property
    def fixed_type(self) -> pl.DataType | None:
        return None if self.candidates is None else self.candidates.dtype

    def answer_type(self, *columns: pl.DataType) -> pl.DataType:
        self.binning(*columns).encoder()
        points = self.points_of(*columns)
        if self.candidates is None:  # no grid that may be found is refused later
            replace(self, candidates=points)
        return points.dtype

    def named(self, codes: Ints, *columns: pl.DataType) -> pl.Series:  # noqa: ARG002
        return self.points.take(codes)

    def __str__(self) -> str:
        name = "median" if self.alpha == Fraction(1, 2) else f"{show(self.alpha)}-quantile"
        return f"{name} {self._on}"


@dataclass(frozen=True)
class QuantileWithInterval(Quantile):
    """A quantile and two ends that hold the true one, each drawn at a third of the loss.

    The low end is the α-quantile of the rows and `a` more, public ones, that equal the first candidate; the high end
    that of the rows and `b` more that equal the last one: `docs/proofs/quantiles.md`, Theorem 4. A shift of the rank
    alone does not do: where αN is smaller, no candidate is low enough, and one after it is hardly worse than the best.
    """

    probability: Fraction  # that the ends hold the true quantile: above 1/2 and below 1
    always_has_ends: ClassVar[bool] = True
    draws: ClassVar[int] = 3

    def __post_init__(self) -> None:
        if not (self.claim._is_open or self.candidates is None or max(self.public_rows) <= _MOST_ROWS):
            msg = (
                f"interval must be requested with a larger loss than {self.claim.loss}: its ends would miss by more "
                "than 2**40 rows."
            )
            raise ValueError(msg)

    @property
    def public_rows(self) -> tuple[int, int]:
        """How many rows are added at the first candidate, for the low end, and at the last one, for the high end."""
        bound = error_bound(self.points.size, float(1 - self.probability) / 2, self.claim)
        num, den = self.alpha.numerator, self.alpha.denominator
        below, above = (math.ceil(Fraction(bound) * _ROUNDING / part) for part in (den - num, num))
        return max(1, below), max(1, above)

    def drawn(self, histograms: Sequence[Histogram], *columns: pl.DataType) -> tuple[pl.Series, ...]:
        (histogram,) = histograms
        draw, (below, above) = self.draw(*columns), self.public_rows
        of_ends = histogram.with_rows_at(0, below), histogram.with_rows_at(draw.size - 1, above)
        drawn = [draw_groups(draw, rows) for rows in (histogram, *of_ends)]
        return tuple(map(self.named, (drawn[0], np.minimum.reduce(drawn), np.maximum.reduce(drawn))))

    def drawn_types(self, *columns: pl.DataType) -> tuple[pl.DataType, ...]:
        return (self.answer_type(*columns),) * 3

    def note(self, size: int, alternative: HistogramQuery | None) -> str:  # noqa: ARG002
        bound = error_bound(size, 0.05, replace(self.claim, _draws=1)) / self.score.unit
        return (
            "Three draws share the loss equally, for the answer and both ends: error_95 is of each, and "
            f"{bound:.3g} without the interval."
        )

    def __str__(self) -> str:
        return f"{super().__str__()}, and ends that hold it with probability {show(self.probability)}"


def ask_quantile(alpha: object, candidates: Values | None, terms: Terms, interval: object = None) -> Quantile:
    exact, values = as_alpha("quantile", alpha), None if candidates is None else ordered(candidates)
    if interval is None:
        return Quantile(exact, values, terms)
    hint = "confidence=0.95 gives ends that hold the true quantile with probability 0.95."
    probability = _between("confidence", interval, Fraction(1, 2), hint)
    return QuantileWithInterval(exact, values, terms, probability)


def as_alpha(name: str, value: object) -> Fraction:
    """Return which quantile is requested, as an exact fraction."""
    return _between(name, value, Fraction(0), "0.5 is the median, 0.9 the 90th percentile.")


def _between(name: str, value: object, low: Fraction, hint: str) -> Fraction:
    """Return a number between `low` and 1 as an exact fraction."""
    exact = as_fraction(name, value)
    if not low < exact < 1:
        msg = f"{name} must lie strictly between {show(low)} and 1, got {value!r}.\n\nHint: {hint}"
        raise ValueError(msg)
    if not exact.denominator <= _LARGEST_DENOMINATOR:
        msg = (
            f"{name} must be a fraction with a denominator of at most {_LARGEST_DENOMINATOR:,}, got {value!r}.\n\n"
            "Hint: round it to four decimals."
        )
        raise ValueError(msg)
    return exact


def step_of(weights: Weights, *columns: pl.DataType) -> Fraction:
    """Return what a weight of one stands for: a row or a person; with weights, one step, in their unit."""
    units = weights.units(*columns)
    return Fraction(1) if units is None else units.step


def how(query: HistogramQuery) -> str:
    """Return how candidates are compared, if not by people."""
    by_weights = f" by weights of up to {exact(query.weights.most)}" if query.weights.is_column else ""
    return ("" if query.of_people else " by rows") + by_weights


# The largest `too_few`, in steps: together with a sum of weights, which is at most 2**62, it fits into 64 bits.
_MOST_STEPS = 2**61


class OfCategories(HistogramQuery):
    """A choice among categories of one column."""

    candidates: Categories

    @property
    def selects(self) -> bool:
        """Whether the candidates are selected privately before the answer."""
        return isinstance(self.candidates, Unselected)

    def among(self, values: pl.Series) -> OfCategories:
        """Return the statistic of these candidates, at the same loss."""
        return replace(self, candidates=Categories(values))  # type: ignore[type-var]  # every statistic is a dataclass

    def values(self, *columns: pl.DataType) -> pl.Series:
        return self.candidates.for_column(columns[0] if columns else None)

    def binning(self, *columns: pl.DataType) -> Binning:
        return CategoryBinning(self.candidates, *columns[:1])


@dataclass(frozen=True)
class NoCandidate(HistogramQuery):
    """A choice among categories of which none was selected: the answer of each group is null."""

    asked: OfCategories  # whose candidates are not selected
    terms: Terms
    fixed_type: ClassVar[None] = None

    @property
    def of_people(self) -> bool:  # type: ignore[override]
        return self.asked.of_people

    @property
    def left_to_column(self) -> None:
        return None

    def range_of(self, relation: NeighboringRelation, groups: int | None = None) -> Fraction:
        return self.asked.range_of(relation, groups)

    @cached_property
    def claim(self) -> Claim:
        return self.asked.with_terms(self.terms).claim

    def count_rules(self, *columns: pl.DataType) -> tuple[CountRule, ...]:
        return self.asked.count_rules(*columns)  # as before the charge, so that no engine refuses it now

    def size_of(self, *columns: pl.DataType) -> int:  # noqa: ARG002
        return 0

    def answer_type(self, *columns: pl.DataType) -> pl.DataType:
        return self.asked.answer_type(*columns)

    def drawn(self, histograms: Sequence[Histogram], *columns: pl.DataType) -> tuple[pl.Series, ...]:
        (histogram,) = histograms
        return (pl.Series([None] * len(histogram.sizes), dtype=self.answer_type(*columns)),)

    def error(self, size: int, beta: float, *columns: pl.DataType) -> None:  # noqa: ARG002
        return None

    def __str__(self) -> str:
        return f"{self.asked}: none was"


@dataclass(frozen=True)
class Mode(OfCategories, Choice):
    """The candidate that the most people have, or the most rows, or that weighs most.

    `too_few` is the constant score of one more candidate, whose answer is null. Under "add_or_remove_one" a row (or a
    person) moves the others in one direction and this one not at all, so R stays what it is: a replacement is two such
    moves. In a gap it counts like any other candidate.
    """

    candidates: Categories
    terms: Terms
    of_people: bool = True
    too_few: int | None = None
    weights: Weights = ONE_EACH

    @property
    def counts_people(self) -> bool:
        return self.of_people

    @property
    def fixed_type(self) -> pl.DataType | None:
        return None if self.candidates.values is None else self._with_gap(self.candidates.values.dtype)

    def answer_type(self, *columns: pl.DataType) -> pl.DataType:
        answer, constant, step = self.values(*columns).dtype, self.too_few, self.step(*columns)
        if constant is not None and (constant / step).denominator != 1:
            msg = f"too_few must be a whole multiple of the step of the weights, got {constant}."
            raise ValueError(msg)
        if constant is not None and not constant / step <= _MOST_STEPS:
            msg = f"too_few must be at most 2**61 steps of the weights, got {constant} in steps of {show(step)}."
            raise ValueError(msg)
        return self._with_gap(answer)

    def _with_gap(self, answer: pl.DataType) -> pl.DataType:
        """Return the type of the answers: rows and people are whole numbers, sums of weights floats."""
        gap = pl.Float64() if self.weights.is_column else pl.Int64()
        return type_with_gap(answer, gap) if self.has_gap else answer

    def draw(self, *columns: pl.DataType) -> Draw:
        """Return what the kernel needs to know; the candidate for too few comes last."""
        draw = super().draw(*columns)
        return draw if self.too_few is None else replace(draw, size=draw.size + 1)

    def scored(self, histogram: Histogram, *columns: pl.DataType) -> Histogram:
        if self.too_few is None:
            return histogram
        return histogram.with_rows_at(self.binning(*columns).size, int(self.too_few / self.step(*columns)))

    def named(self, codes: Ints, *columns: pl.DataType) -> pl.Series:
        values = self.values(*columns)
        if self.too_few is None:
            return values.gather(codes)
        size = len(values)
        named = values.gather(np.minimum(codes, size - 1))
        return named.zip_with(pl.Series(codes < size), pl.Series([None], dtype=named.dtype))

    def _shown_with_gap(self, drawn: WithGap, *columns: pl.DataType) -> pl.Series:
        codes, gaps = drawn
        in_units = in_steps(gaps, self.step(*columns), pl.Float64()) if self.weights.is_column else pl.Series(gaps)
        return with_gap(self.named(codes, *columns), in_units, gaps < 0)

    def drawn(self, histograms: Sequence[Histogram], *columns: pl.DataType) -> tuple[pl.Series, ...]:
        if not self.has_gap:
            return super().drawn(histograms, *columns)
        (histogram,) = histograms
        return (self._shown_with_gap(gap_groups(self.draw(*columns), self.scored(histogram, *columns)), *columns),)

    def answers_of_codes(self, codes: Codes, weights: Ints | None, lengths: Ints, columns: Columns = ()) -> pl.Series:
        if self.too_few is None and self.has_gap and weights is None:
            return self._shown_with_gap(gap_from_rows(self.draw(*columns), codes, lengths), *columns)
        if self.too_few is None:
            return super().answers_of_codes(codes, weights, lengths, columns)
        return HistogramQuery.answers_of_codes(self, codes, weights, lengths, columns)

    def error(self, size: int, beta: float, *columns: pl.DataType) -> float:
        return self.weights.missed(super().error(size if self.too_few is None else size + 1, beta, *columns), *columns)

    @property
    def score(self) -> Score:
        return CountScore()

    def __str__(self) -> str:
        or_too_few = "" if self.too_few is None else f", or fewer than {self.too_few}"
        return f"mode of {self.candidates}{how(self)}{or_too_few}{', and its gap' if self.has_gap else ''}"
