"""Contribution limits and clipping bounds that are found privately: `docs/proofs/limits.md`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar, Literal

import numpy as np
import polars as pl

from dp_polars._accounting.claims import Claim
from dp_polars._accounting.terms import Loss, NeighboringRelation, Terms
from dp_polars._base.numbers import Ints, system_rng
from dp_polars._bins.binning import Beyond
from dp_polars._bins.candidates import bound_in_units, bounds_of
from dp_polars._mechanisms.histograms import Histogram
from dp_polars._mechanisms.limit_rule import PARTS, LimitKind, Rule
from dp_polars._mechanisms.noise import add_noise, noise_bound, noise_of
from dp_polars._mechanisms.racing import error_bound
from dp_polars._statistics.statistic import CountRule, HistogramQuery

# The rate of the noise on the number of people, and on what they lose, as a part of that of the choice.
_OF_NUMBERS, _NUMBERS = Fraction(1, 4), 2
# And the largest such rate: beyond it, what a quarter more of a choice costs in rho is less than the noise.
_LARGEST_RATE = Fraction(1)
#: What may be found: limits by the names of their arguments, and ends of clipping bounds.
What = Literal["max_groups", "max_candidates", "max_norm", "max_rows", "max_rows_per_group", "lower", "upper"]


def is_bound(what: str) -> bool:
    """Return whether a choice is of a clipping bound, not of a contribution limit."""
    return what in ("lower", "upper")


@dataclass(frozen=True)
class LimitChoice(HistogramQuery):
    """The choice of a limit, or of one clipping bound, how many people are beyond it, and how much of them is lost.

    The scores are those of a `Rule`, whose range is R. A quarter of a range more pays for discrete Laplace noise on the
    number of people beyond what was chosen, at a quarter of the choice's rate, or 1; another one for that on what they
    lose: `docs/proofs/limits.md`.
    """

    what: What
    of: str  # the outputs that it serves, for people
    is_drawn: bool  # whether these draw a person's rows, or groups
    terms: Terms
    of_ranks: bool = False  # whether it bounds the grid of quantiles, of which no value may be beyond
    kind: LimitKind | None = None  # None: of a clipping bound
    rule: Rule[Any] | None = None  # None: the loss is not known yet
    # For a bound of people's totals: the step in which they are counted. None: for a bound of values.
    step_of_totals: Fraction | None = None
    fixed_type: ClassVar[pl.DataType] = pl.Int64()

    @property
    def is_bound(self) -> bool:
        return is_bound(self.what)

    @property
    def squares(self) -> bool:
        """Whether a person's number is a sum of squares, of which a candidate is the root."""
        return self.kind == "norm"

    @property
    def _known(self) -> Rule[Any]:
        assert self.rule is not None, "a release has a loss"
        return self.rule

    @property
    def values(self) -> tuple[Fraction, ...]:
        """The limits that may be found."""
        return tuple(map(Fraction, self._known.candidates))

    def values_of(self, *columns: pl.DataType) -> tuple[Fraction, ...]:
        """Return what may be found for a column of this type."""
        return self.read_as(self.values, *columns)

    def read_as(self, values: tuple[Fraction, ...], *columns: pl.DataType) -> tuple[Fraction, ...]:
        """Return what candidates are for a column of this type: for quantiles of durations seconds, of dates years."""
        return bounds_of(self.what, values, *columns) if columns and self.of_ranks else values

    def of_rows(self, column: pl.DataType) -> Beyond:
        """Return which numbers that are counted the values of a column are beyond."""
        counted = self.values_of(column) if self.of_ranks else map(Fraction, self._known.counted)
        ends = sorted(bound_in_units(end, column) for end in counted)
        return Beyond(tuple(ends), column, closed=self.what == "lower")

    def range_of(self, relation: NeighboringRelation, groups: int | None = None) -> Fraction:  # noqa: ARG002
        return self.range_of_scores + _NUMBERS * _OF_NUMBERS

    @property
    def range_of_scores(self) -> int:
        return 2 if self.is_drawn or (self.is_bound and not self.of_ranks) else 1

    def count_rules(self, *columns: pl.DataType) -> tuple[CountRule, ...]:  # noqa: ARG002
        counted = self._known.counted
        if self.step_of_totals is not None:
            step, is_lower = self.step_of_totals, self.what == "lower"
            return (CountRule(Beyond(tuple(sorted(end / step for end in counted)), pl.Int64(), closed=is_lower)),)
        if self.is_bound:  # how many are passed is a person's number
            ends = tuple(map(Fraction, range(len(counted))))
        else:
            ends = tuple(Fraction(one) ** (2 if self.squares else 1) for one in counted)
        return (CountRule(Beyond(ends, pl.Int64())),)

    def size_of(self, *columns: pl.DataType) -> int | None:  # noqa: ARG002
        return None if self.rule is None else len(self.rule.candidates)

    def answer_type(self, *columns: pl.DataType) -> pl.DataType:  # noqa: ARG002
        return pl.Int64()

    def drawn_types(self, *columns: pl.DataType) -> tuple[pl.DataType, ...]:  # noqa: ARG002
        return (pl.Int64(),) * 3

    def beyond(self, histogram: Histogram) -> Ints:
        """Return how many people are beyond each number that is counted."""
        passed = np.zeros(len(self._known.counted) + 1, np.int64)
        passed[histogram.codes] = histogram.weights
        if self.what == "lower":  # the smallest codes are furthest beyond
            passed = passed[::-1]
        numbers: Ints = np.cumsum(passed[::-1])[::-1][1:]
        return numbers

    def noise(self, most: int = 1) -> Claim:
        """Return the claim of the noise on a number that a person changes by at most `most`."""
        loss = Loss(min(self.claim.rate * _OF_NUMBERS, _LARGEST_RATE), "epsilon")
        return replace(self.claim, loss=loss, mechanism="discrete_laplace", score_range=Fraction(most))

    def drawn(self, histograms: Sequence[Histogram], *columns: pl.DataType) -> tuple[pl.Series, ...]:  # noqa: ARG002
        (histogram,) = histograms
        rule, beyond = self._known, self.beyond(histogram)
        place = rule.place(beyond, self.claim, system_rng())
        people, lost = beyond[-len(rule.candidates) :][[place]], self.parts_lost(beyond, place)
        noisy = (add_noise(one, noise_of(self.noise(most), 1)) for one, most in ((people, 1), (lost, PARTS)))
        return pl.Series([place]), *map(pl.Series, noisy)

    def people_bound(self, beta: float) -> int:
        """Return how far the number of people may be off."""
        return noise_bound(self.noise(), beta)

    def parts_lost(self, beyond: Ints, place: int) -> Ints:
        """Return how much all people lose, in parts of the most that counts of one person: the shape is (1,)."""
        parts = self._known.parts_lost(place, self.kind)
        in_between = beyond - np.append(beyond[1:], 0)
        return np.array([in_between[-len(parts) :] @ parts])

    def lost(self, place: int, parts: int, beta: float) -> tuple[Fraction, Fraction]:
        """Return how much all people lose, of what was drawn in parts, and how far it may be off.

        For quantiles, which lose nothing by a value beyond, 0.
        """
        if self.of_ranks:
            return Fraction(0), Fraction(0)
        one = self._known.most_lost(place, self.kind) / PARTS
        return one * parts, one * noise_bound(self.noise(PARTS), beta)

    def error(self, size: int, beta: float, *columns: pl.DataType) -> float | None:  # noqa: ARG002
        return float(error_bound(size, beta, self.claim))

    def __str__(self) -> str:
        return f"{self.what} of {self.of}, found privately"
