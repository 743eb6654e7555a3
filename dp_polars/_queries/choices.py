"""Choices by a score of the histogram: the mode and the quantiles."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from dp_polars._accounting.claims import Claim, Contributions, Loss, check_relation
from dp_polars._mechanisms.errors import error_bound
from dp_polars._numeric.numbers import Number, as_fraction, given, positive_int, show
from dp_polars._queries.candidates import Categories, Ordered, ordered
from dp_polars._queries.codings import CategoryCoding, Coding, NearestCoding
from dp_polars._queries.drawing import Draw, draw_from_rows, draw_groups
from dp_polars._queries.leads import lead_from_rows, lead_groups, type_with_lead, with_lead
from dp_polars._queries.query import Answers, Evidence, HistogramQuery, claim_with_lead
from dp_polars._queries.scores import CountScore, QuantileScore
from dp_polars._queries.steps import in_steps
from dp_polars._queries.units import Weights

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dp_polars._accounting.claims import NeighboringRelation
    from dp_polars._numeric.arrays import Ints
    from dp_polars._queries.candidates import Values
    from dp_polars._queries.encoding import Codes
    from dp_polars._queries.histograms import Histogram
    from dp_polars._queries.leads import Led
    from dp_polars._queries.query import Columns
    from dp_polars._queries.scores import Score

_LARGEST_DENOMINATOR = 10_000


class Choice(HistogramQuery):
    """One candidate of each group, by a score: one draw."""

    @property
    @abstractmethod
    def score(self) -> Score:
        """How good a candidate is."""

    @abstractmethod
    def named(self, codes: Ints, *columns: pl.DataType) -> pl.Series:
        """Return the candidates that the codes stand for; in the column's type, if that is given, for a mode."""

    def step(self, *columns: pl.DataType) -> Fraction:  # noqa: ARG002
        """Return what a weight of one stands for: a row or a person, or so much of the unit of the weights."""
        return Fraction(1)

    @property
    def counts_people(self) -> bool:
        return self.score.of_people

    @property
    def bounds_people(self) -> bool:
        return self.score.of_people

    def range_of(self, relation: NeighboringRelation, groups: int | None = None) -> Fraction:
        return self.score.range(relation, groups)

    def draw(self, *columns: pl.DataType) -> Draw:
        """Return what the kernel needs to know."""
        rate = self.claim.rate * self.step(*columns)
        return Draw(self.coding(*columns).size, self.score, rate, self.claim.mechanism)

    @abstractmethod
    def coding(self, *columns: pl.DataType) -> Coding:
        """Return the codes of rows of such columns."""

    def evidence(self, *columns: pl.DataType) -> tuple[Evidence, ...]:
        """Return what the histogram is of: the candidates, each row weighing one."""
        return (Evidence(self.coding(*columns)),)

    def scored(self, histogram: Histogram, *columns: pl.DataType) -> Histogram:  # noqa: ARG002
        """Return the histogram that is drawn from: with what has a constant score, if there is such a candidate."""
        return histogram

    def answers(self, histograms: Sequence[Histogram], *columns: pl.DataType) -> Answers:
        (histogram,) = histograms
        drawn = draw_groups(self.draw(*columns), self.scored(histogram, *columns))
        return Answers(self.named(drawn, *columns))

    def answers_of_codes(self, codes: Codes, weights: Ints | None, lengths: Ints, columns: Columns = ()) -> pl.Series:
        if weights is not None:
            return super().answers_of_codes(codes, weights, lengths, columns)
        return self.named(draw_from_rows(self.draw(*columns), codes, lengths), *columns)

    def error(self, size: int, beta: float, *columns: pl.DataType) -> float:  # noqa: ARG002
        """Return an error that is reached with probability at most `beta`, in rows or people."""
        return error_bound(size, beta, self.claim) / self.score.unit


class OfCategories(Choice):
    """One of a list of categories, by a score of its own."""

    candidates: Categories

    @property
    def fixed_type(self) -> pl.DataType | None:
        return None if self.candidates.values is None else self.candidates.values.dtype

    def answer_type(self, *columns: pl.DataType) -> pl.DataType:
        return self.candidates.for_column(columns[0]).dtype

    def coding(self, *columns: pl.DataType) -> Coding:
        return CategoryCoding(self.candidates, *columns[:1])

    def named(self, codes: Ints, *columns: pl.DataType) -> pl.Series:
        return self.candidates.for_column(columns[0] if columns else None).gather(codes)


@dataclass(frozen=True)
class Mode(OfCategories):
    """The candidate that the most people have, or the most rows, or that weighs most.

    `too_few` is the constant score of one more candidate, whose answer is null. Under "add_or_remove_one" a row (or a
    person) moves the others in one direction and this one not at all, so R stays what it is: a replacement is two such
    moves. In a lead it counts like any other candidate.

    With `weights`, R is their largest, `weights.most`. A row adds at most that to one candidate. Where people count, a
    person's sum for a candidate in a group is clipped to [0, most]: so one person more adds between 0 and `most` to
    every sum, whatever the rows, and the difference of two sums changes by at most `most`. A replacement is two such
    moves. Loss and rate are in the unit of the weights; histograms count whole steps, hence `step` in the rate.
    """

    candidates: Categories
    claim: Claim
    of_people: bool = True
    too_few: int | None = None
    weights: Weights | None = None

    @property
    def counts_people(self) -> bool:
        """Whether a person counts once for each candidate, where it is known who they are."""
        return self.of_people

    @property
    def bounds_people(self) -> bool:
        """Whether the range also bounds one person's effect on a group."""
        return self.of_people

    @property
    def fixed_type(self) -> pl.DataType | None:
        """Type of the answers; None where only the column's type names the candidates."""
        known = super().fixed_type
        return known if known is None else self._with_lead(known)

    def answer_type(self, *columns: pl.DataType) -> pl.DataType:
        """Return the answer's type for a column's; a TypeError where that can't be."""
        answer, constant, step = super().answer_type(*columns), self.too_few, self.step(*columns)
        if constant is not None and (constant / step).denominator != 1:
            msg = f"too_few must be a whole multiple of the step of the weights, got {constant}."
            raise ValueError(msg)
        return self._with_lead(answer)

    def _with_lead(self, answer: pl.DataType) -> pl.DataType:
        """Return the type of the answers: rows and people are whole numbers, sums of weights floats."""
        return type_with_lead(answer, pl.Int64() if self.weights is None else pl.Float64()) if self.has_lead else answer

    def range_of(self, relation: NeighboringRelation, groups: int | None = None) -> Fraction:
        return super().range_of(relation, groups) * (1 if self.weights is None else self.weights.most)

    def evidence(self, *columns: pl.DataType) -> tuple[Evidence, ...]:
        if self.weights is None or not columns:
            return super().evidence(*columns)
        return (Evidence(self.coding(*columns), self.weights.units(columns[1])),)

    def step(self, *columns: pl.DataType) -> Fraction:
        return Fraction(1) if self.weights is None else self.weights.units(columns[1]).step

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
        if self.too_few is None:
            return super().named(codes, *columns)
        size = len(self.candidates.for_column(columns[0] if columns else None))
        named = super().named(np.minimum(codes, size - 1), *columns)
        return named.zip_with(pl.Series(codes < size), pl.Series([None], dtype=named.dtype))

    def _led(self, led: Led, *columns: pl.DataType) -> pl.Series:
        """Return what was drawn with its lead."""
        codes, leads = led
        in_units = pl.Series(leads) if self.weights is None else in_steps(leads, self.step(*columns), pl.Float64())
        return with_lead(self.named(codes, *columns), in_units, leads < 0)

    def answers(self, histograms: Sequence[Histogram], *columns: pl.DataType) -> Answers:
        """Draw one answer per group from its histogram, also for groups without rows."""
        if not self.has_lead:
            return super().answers(histograms, *columns)
        (histogram,) = histograms
        return Answers(self._led(lead_groups(self.draw(*columns), self.scored(histogram, *columns)), *columns))

    def answers_of_codes(self, codes: Codes, weights: Ints | None, lengths: Ints, columns: Columns = ()) -> pl.Series:
        """Draw one answer per group from the codes of its rows."""
        if self.too_few is None and self.has_lead and weights is None:
            return self._led(lead_from_rows(self.draw(*columns), codes, lengths), *columns)
        if self.too_few is None:
            return super().answers_of_codes(codes, weights, lengths, columns)
        return HistogramQuery.answers_of_codes(self, codes, weights, lengths, columns)

    def error(self, size: int, beta: float, *columns: pl.DataType) -> float:
        """Return an error that is reached with probability at most `beta`: in rows, people or the weights' unit."""
        return super().error(size if self.too_few is None else size + 1, beta, *columns)

    @property
    def error_unit(self) -> str | None:
        """What errors are measured in, where that is not rows or people."""
        return None if self.weights is None else "the weights' unit"

    @property
    def score(self) -> Score:
        return CountScore()

    def __str__(self) -> str:
        what = "" if self.of_people else " by rows"
        if self.weights is not None:
            what += f" by weights of up to {show(self.weights.most)}"
        few = "" if self.too_few is None else f", or fewer than {self.too_few}"
        return f"mode of {self.candidates}{what}{few}{', and its lead' if self.has_lead else ''}"


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


def ask_mode(
    candidates: Values | None,
    *,
    counts: str = "people",
    too_few: int | None = None,
    weighted: bool = False,
    max_weight: Number | None = None,
    step: Number | None = None,
    lead: bool = False,
    epsilon: Number | None,
    rho: Number | None,
    contributions: int,
    neighboring_relation: str,
    mechanism: str | None,
) -> Mode:
    """Return the query of these arguments."""
    check_counts(counts)
    few = None if too_few is None else positive_int("too_few", too_few)
    if few is not None and not few < 2**31:
        msg = f"too_few must be below 2**31, got {few}."
        raise ValueError(msg)
    weights = _weights_of(max_weight, step, weighted=weighted)
    claim = _claim_of(
        CountScore(),
        Loss.of(epsilon=epsilon, rho=rho),
        contributions,
        neighboring_relation,
        mechanism,
        Fraction(1) if weights is None else weights.most,
    )
    claim = claim_with_lead(claim, lead=lead)
    return Mode(Categories.of(candidates), claim, counts == "people", few, weights)


def _weights_of(max_weight: Number | None, step: Number | None, *, weighted: bool) -> Weights | None:
    """Return the weights of these arguments, if there are any."""
    if not weighted:
        for name, value in (("max_weight", max_weight), ("step", step)):
            if value is not None:
                msg = f"{name} must be left out where there are no weights, got {given(value)}."
                raise TypeError(msg)
        return None
    if max_weight is None:
        msg = (
            "max_weight must be given where there are weights: it bounds what one row, or one person, can change.\n\n"
            "Hint: choose it from public knowledge; larger weights count as max_weight."
        )
        raise TypeError(msg)
    return Weights.of(max_weight, step)


def ask_quantile(
    alpha: object,
    candidates: Values,
    *,
    epsilon: Number | None,
    rho: Number | None,
    contributions: int,
    neighboring_relation: str,
    mechanism: str | None,
) -> Quantile:
    """Return the query of these arguments."""
    loss, exact = Loss.of(epsilon=epsilon, rho=rho), as_alpha("alpha", alpha)
    claim = _claim_of(QuantileScore(exact), loss, contributions, neighboring_relation, mechanism)
    return Quantile(exact, ordered(candidates), claim)


def as_alpha(name: str, value: object) -> Fraction:
    """Return which quantile is asked for, as an exact fraction."""
    exact = as_fraction(name, value)
    if not 0 < exact < 1:
        msg = (
            f"{name} must lie strictly between 0 and 1, got {value!r}.\n\n"
            "Hint: 0.5 is the median, 0.9 the 90th percentile."
        )
        raise ValueError(msg)
    if not exact.denominator <= _LARGEST_DENOMINATOR:
        msg = (
            f"{name} must be a fraction with a denominator of at most {_LARGEST_DENOMINATOR:,}, got {value!r}.\n\n"
            "Hint: round it to four decimals."
        )
        raise ValueError(msg)
    return exact


def _claim_of(
    score: Score,
    loss: Loss,
    contributions: int,
    neighboring_relation: str,
    mechanism: str | None,
    largest: Fraction = Fraction(1),
) -> Claim:
    relation = check_relation(neighboring_relation)
    return Claim.of(loss, mechanism, score.range(relation) * largest, in_one_group(contributions), relation)


def check_counts(counts: str) -> None:
    """Refuse what is not the word for people or rows."""
    if counts not in ("people", "rows"):
        msg = f"counts must be 'people' or 'rows', got {given(counts)}."
        raise ValueError(msg)


def in_one_group(contributions: int) -> Contributions:
    """Return the bounds of an expression, which can't know the groups: all rows of a person may lie in one."""
    rows = positive_int("contributions", contributions)
    return Contributions(rows, rows)
