"""Counts with noise: of rows, of people, and of every candidate."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

import numpy as np
import polars as pl

from dp_polars._accounting.claims import Claim, check_mechanism
from dp_polars._accounting.costs import ALL
from dp_polars._accounting.terms import check_relation
from dp_polars._base.arrays import owners
from dp_polars._codes.candidates import Categories
from dp_polars._codes.codings import CategoryCoding, OneCode
from dp_polars._mechanisms.noise import LARGEST_VALUE, add_noise, check_scale, noise_bound, noise_of
from dp_polars._questions.lists import in_lists
from dp_polars._questions.question import Evidence, HistogramQuery, OfCodes

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from dp_polars._accounting.terms import NeighboringRelation
    from dp_polars._base.arrays import Ints
    from dp_polars._codes.codings import Coding
    from dp_polars._draws.histograms import Histogram

# The ends of a range hold the true number with a probability of 0.95.
BETA = 0.05

What: TypeAlias = Literal["rows", "people", "values", "nulls", "cut"]
MeasureT = TypeVar("MeasureT", bound="Measure")


class Measure(HistogramQuery):
    """Numbers for each group, with noise."""

    @property
    def counts_people(self) -> bool:
        """Whether a person counts once for each code, where it is known who they are."""
        return False

    @property
    def bounds_people(self) -> bool:
        """Whether `range_of` also bounds one person's effect on a group."""
        return False

    @property
    def has_ranges(self) -> bool:
        """Numbers have ranges."""
        return True

    @property
    @abstractmethod
    def largest(self) -> Fraction:
        """The most that one row adds to a number, or takes away."""

    @property
    def is_one_sided(self) -> bool:
        """Whether all rows move a number in one direction: then what goes and what comes partly cancel."""
        return True

    def range_of(self, relation: NeighboringRelation, groups: int | None = None) -> Fraction:  # noqa: ARG002
        """Return what one row changes: a replacement removes one row and adds another, in the same group or not."""
        return self.largest if relation == "add_or_remove_one" else 2 * self.largest

    def same_group_of(self, relation: NeighboringRelation, groups: int | None = None) -> Fraction:
        """Return a half where a replaced row changes no number by more than one row alone does."""
        return self.largest / self.range_of(relation, groups) if self.is_one_sided else ALL

    def with_claim(self, claim: Claim) -> Self:
        """Return the same question with another claim, whose noise must fit into 64 bits."""
        return checked(super().with_claim(claim))

    def noise(self, *columns: pl.DataType) -> tuple[Claim, ...]:  # noqa: ARG002
        """Return the claim of each draw, in whole numbers; without the column's type, as far as it is known."""
        return (self.claim,)

    def error(self, size: int, beta: float, *columns: pl.DataType) -> float | None:  # noqa: ARG002
        """Return an error that is exceeded with probability at most `beta`."""
        return float(noise_bound(self.claim, beta))


class Total(Measure):
    """One number for each group, from the sums of its rows' weights."""

    @property
    def is_ordered(self) -> bool:
        """Whether answers lie on a line."""
        return True

    @property
    def fixed_size(self) -> int:
        """One number."""
        return 1

    @property
    def parts(self) -> int:
        """Number of histograms."""
        return 1

    def range_of(self, relation: NeighboringRelation, groups: int | None = None) -> Fraction:
        """Return what one row changes. In one group, a row that goes and one that comes change the same number."""
        return self.largest if groups == 1 and self.is_one_sided else super().range_of(relation, groups)

    @abstractmethod
    def named(self, totals: Sequence[Ints], *columns: pl.DataType) -> pl.Series:
        """Return the answers that sums of weights stand for, with or without noise: (g,) for each histogram."""

    def drawn_of_totals(self, totals: Sequence[Ints], *columns: pl.DataType) -> tuple[pl.Series, ...]:
        """Draw from the sum of weights of each group, shape (g,), for each histogram: each with noise on it, once."""
        return tuple(pl.Series(noisy(*one)) for one in zip(totals, self.noise(*columns), strict=True))

    def drawn(self, histograms: Sequence[Histogram], *columns: pl.DataType) -> tuple[pl.Series, ...]:
        """Draw a whole number for each group and histogram, also for groups without rows."""
        return self.drawn_of_totals([totals_of(histogram) for histogram in histograms], *columns)

    def drawn_types(self, *columns: pl.DataType) -> tuple[pl.DataType, ...]:  # noqa: ARG002
        """Return a whole number for each histogram."""
        return (pl.Int64(),) * self.parts


class Multiple(Total):
    """A total that is the answer, in units of a step."""

    @abstractmethod
    def answer_step(self, *columns: pl.DataType) -> Fraction:
        """Return what a total of one is in the answer's unit."""

    def presented(self, drawn: Sequence[pl.Series], beta: float | None, *columns: pl.DataType) -> tuple[pl.Series, ...]:
        """Return the totals in the answer's unit, and the ends of their ranges."""
        numbers, (claim,) = drawn[0].to_numpy(), self.noise(*columns)
        return tuple(self.named([numbers + off], *columns) for off in _offsets(claim, beta))


def _offsets(claim: Claim, beta: float | None) -> tuple[int, ...]:
    """Return how far a number, and the ends of its range where it has one, are from what was drawn."""
    if beta is None:
        return (0,)
    bound = noise_bound(claim, beta)
    return 0, -bound, bound


def totals_of(histogram: Histogram) -> Ints:
    """Return the weight of each group, shape (g,), of a histogram with one code."""
    total = np.zeros(len(histogram.sizes), np.int64)
    total[histogram.sizes > 0] = histogram.weights
    return total


def noisy(totals: Ints, claim: Claim) -> Ints:
    """Return numbers with the noise of a claim; clamped to 62 bits before and after."""
    clamped: Ints = np.clip(totals, -LARGEST_VALUE, LARGEST_VALUE)
    return add_noise(clamped, noise_of(claim, len(totals)))


@dataclass(frozen=True)
class Count(Multiple):
    """How many rows, distinct people, rows with a value, or nulls; or people over a bound, each of them one row."""

    counted: What
    claim: Claim

    @property
    def counts_people(self) -> bool:
        """Whether a person counts once."""
        return self.counted == "people"

    @property
    def bounds_people(self) -> bool:
        """Whether one person's effect on a group is at most 1: there is one code."""
        return self.counted == "people"

    @property
    def needs_people(self) -> bool:
        """Whether it must be known who is a person."""
        return self.counted == "people"

    @property
    def adds_up(self) -> bool:
        """Every row, or person, adds one."""
        return True

    @property
    def is_count(self) -> bool:
        """Rows, values or people are counted."""
        return True

    @property
    def fixed_type(self) -> pl.DataType:
        """Type of the answers."""
        return pl.Int64()

    def answer_type(self, *columns: pl.DataType) -> pl.DataType:  # noqa: ARG002
        """Return the answer's type."""
        return pl.Int64()

    def evidence(self, *columns: pl.DataType) -> tuple[Evidence, ...]:  # noqa: ARG002
        """Return what the histogram is of: every row, every row with a value, or every null."""
        return (Evidence(OneCode(nulls=self.counted == "nulls")),)

    @property
    def largest(self) -> Fraction:
        """One row, or person, adds one."""
        return Fraction(1)

    def named(self, totals: Sequence[Ints], *columns: pl.DataType) -> pl.Series:  # noqa: ARG002
        """Return the numbers."""
        return pl.Series(totals[0])

    def answer_step(self, *columns: pl.DataType) -> Fraction:  # noqa: ARG002
        """Return one row, or person."""
        return Fraction(1)

    def __str__(self) -> str:
        what = {"values": "rows with a value", "cut": "people over a bound"}.get(self.counted, self.counted)
        return f"number of {what}"


@dataclass(frozen=True)
class ValueCounts(OfCodes, Measure):
    """How many rows or people every candidate has."""

    candidates: Categories
    claim: Claim

    @property
    def counts_people(self) -> bool:
        """Whether a person counts once for each candidate, where it is known who they are."""
        return True

    @property
    def is_count(self) -> bool:
        """Rows or people are counted."""
        return True

    @property
    def fixed_type(self) -> pl.DataType | None:
        """Type of the answers, by that of the candidates."""
        return self._type(None)

    def _type(self, column: pl.DataType | None) -> pl.DataType:
        return pl.List(pl.Struct({"value": self.candidates.for_column(column).dtype, "count": pl.Int64}))

    def answer_type(self, *columns: pl.DataType) -> pl.DataType:
        """Return the answer's type for a column's; a TypeError where that can't be."""
        return self._type(*columns)

    def coding(self, *columns: pl.DataType) -> Coding:
        """Return the codes of rows: positions of candidates."""
        return CategoryCoding(self.candidates, *columns)

    def answer_width(self, *columns: pl.DataType) -> int:
        """Return how many counts a group's answer has."""
        return self.coding(*columns).size

    @property
    def largest(self) -> Fraction:
        """One row adds one to one count."""
        return Fraction(1)

    @property
    def adds_up(self) -> bool:
        """Every row adds one to a count."""
        return True

    def drawn(self, histograms: Sequence[Histogram], *columns: pl.DataType) -> tuple[pl.Series, ...]:
        """Draw the counts of all candidates of each group."""
        (histogram,) = histograms
        counts = noisy(self.counts_of(histogram, *columns), self.claim)
        return (in_lists(pl.Series(counts), self.answer_width(*columns)),)

    def drawn_types(self, *columns: pl.DataType) -> tuple[pl.DataType, ...]:  # noqa: ARG002
        """Return a list of counts."""
        return (pl.List(pl.Int64()),)

    def presented(self, drawn: Sequence[pl.Series], beta: float | None, *columns: pl.DataType) -> tuple[pl.Series, ...]:
        """Return the counts with their candidates, and the ends of their ranges."""
        counts = drawn[0].explode().to_numpy()
        return tuple(self.named(counts + off, *columns) for off in _offsets(self.claim, beta))

    def counts_of(self, histogram: Histogram, *columns: pl.DataType) -> Ints:
        """Return the count of every candidate, group after group."""
        groups, size = len(histogram.sizes), self.coding(*columns).size
        counts = np.zeros(groups * size, np.int64)
        counts[owners(histogram.sizes) * size + histogram.codes] = histogram.weights
        return counts

    def named(self, counts: Ints, *columns: pl.DataType) -> pl.Series:
        """Return a list for each group from the counts of all candidates, group after group."""
        values = self.candidates.for_column(columns[0] if columns else None)
        size = len(values)
        named = values.gather(np.tile(np.arange(size), len(counts) // size))
        return in_lists(pl.DataFrame({"value": named, "count": counts}).to_struct(), size)

    def __str__(self) -> str:
        return f"counts of {self.candidates}"


def counts_at_loss(claim: Claim, values: pl.Series) -> ValueCounts:
    """Return the counts of all candidates at the loss of another claim, and under its bounds."""
    noise = check_mechanism("number", None, claim.loss.unit)
    counts = ValueCounts(Categories.of(values), replace(claim, mechanism=noise, draws=1, lead=False))
    return counts.under(claim.contributions, check_relation(str(claim.neighboring_relation)))


def checked(query: MeasureT) -> MeasureT:
    """Return the query; refuse noise that does not fit into 64 bits."""
    for claim in query.noise():
        check_scale(claim)
    return query
