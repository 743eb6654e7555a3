"""Sums of values that are clipped to public bounds, with noise."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

import polars as pl

from dp_polars._accounting.claims import Claim
from dp_polars._base import column_types
from dp_polars._base.numbers import show
from dp_polars._codes.codings import OneCode, Units
from dp_polars._codes.multiples import in_steps, type_in_steps
from dp_polars._codes.units import check_held, check_size, step_by_default, units_of
from dp_polars._mechanisms.noise import check_scale, noise_bound
from dp_polars._questions.measures import Multiple, Total
from dp_polars._questions.question import Evidence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dp_polars._accounting.terms import NeighboringRelation
    from dp_polars._base.arrays import Ints


@dataclass(frozen=True)
class Clipped(Total):
    """A number of values that are clipped to public bounds and rounded to a public step.

    Parameters
    ----------
    lower, upper
        Exact.
    step
        Exact. None: the last digit of the column's type, or what `step_by_default` says.
    """

    lower: Fraction
    upper: Fraction
    step: Fraction | None

    @property
    def _clipped_to(self) -> tuple[tuple[Fraction, Fraction], ...]:
        """All bounds, those by which a step is chosen first."""
        return ((self.lower, self.upper),)

    def units(self, *columns: pl.DataType) -> Units:
        """Return the values in whole units of the step; a TypeError or ValueError where a column has none."""
        (column,), step, ends = columns, self.step, self._clipped_to
        if step is None:
            step = step_by_default(ends[0][1] - ends[0][0], column, *ends)
        return units_of(self.lower, self.upper, step, column)

    def rounding(self, *columns: pl.DataType) -> Fraction:
        """Return how far a value between the bounds may be from what it counts as.

        A float is multiplied by a rounded factor, and the product is rounded, before it goes to the nearest step: with
        at most 2³⁰ steps, that moves where it turns by less than 2⁻²⁰ of a step. A column of unknown type is one of
        integers, if the step is 1.
        """
        step, tick = self.known_step(*columns), column_types.tick(columns[0]) if columns else None
        is_exact = step == 1 if not columns else tick is not None and (tick / step).denominator == 1
        return Fraction(0) if is_exact else step * (Fraction(1, 2) + Fraction(1, 2**20))

    def of_values(self, *columns: pl.DataType) -> str | None:
        """Return in which steps values count, where that rounds them."""
        if not columns or not self.rounding(*columns):
            return None
        by = "by default" if self.step is None else "as asked"
        return f"Values count in steps of {show(self.known_step(*columns))}, {by}: {self._rounded}."

    @property
    def _rounded(self) -> str:
        """What rounding does to the answer."""
        return "rounding moves the sum by at most half a step a row, in addition to the error"

    def known_step(self, *columns: pl.DataType) -> Fraction:
        """Return the step, or 1 if only the still unknown column type defines it (its last digit is at most 1)."""
        return self.units(*columns).step if columns else self.step or Fraction(1)

    @property
    def left_to_column(self) -> str | None:
        """The step: noise of the same scale in finer steps has a longer tail."""
        return "step" if self.step is None else None

    @property
    def error_unit(self) -> str:
        """What errors are measured in."""
        return "the column's unit"

    @property
    def is_one_sided(self) -> bool:
        """Whether no two values have different signs."""
        return self.lower >= 0 or self.upper <= 0


@dataclass(frozen=True)
class Sum(Clipped, Multiple):
    """The sum of values, clipped to public bounds, in units of a public step.

    Parameters
    ----------
    lower, upper, step, claim
        See above.
    of_floats
        Whether the step was given as a float or a Fraction: then the answer is a float.
    """

    of_floats: bool
    claim: Claim

    @property
    def fixed_type(self) -> pl.DataType | None:
        """Type of the answers; None where the column's type decides."""
        return pl.Float64() if self.of_floats else None

    def answer_type(self, *columns: pl.DataType) -> pl.DataType:
        """Return the answer's type for a column's; a TypeError where that can't be."""
        step = self.units(*columns).step
        check_scale(self._in_steps(step))
        return type_in_steps(step, *columns, of_floats=self.of_floats)

    def evidence(self, *columns: pl.DataType) -> tuple[Evidence, ...]:
        """Return what the histogram is of: the rows with a value, each weighing its units."""
        return (Evidence(OneCode(), self.units(*columns)),)

    @property
    def largest(self) -> Fraction:
        """The most that one row adds or takes away, in the column's unit."""
        return max(abs(self.lower), abs(self.upper))

    @property
    def adds_up(self) -> bool:
        """Whether no row takes away."""
        return self.lower >= 0

    @property
    def span(self) -> Fraction:
        """The most that one row in the place of another changes, in the column's unit: one without a value adds 0."""
        return max(self.upper, Fraction(0)) - min(self.lower, Fraction(0))

    def range_of(self, relation: NeighboringRelation, groups: int | None = None) -> Fraction:
        """Return what one row changes. In one group, a row that goes and one that comes change the same sum."""
        return self.span if relation == "replace_one" and groups == 1 else super().range_of(relation, groups)

    def _in_steps(self, step: Fraction) -> Claim:
        """Return the claim of the noise in whole units of a step."""
        return replace(self.claim, score_range=self.claim.score_range / step)

    def noise(self, *columns: pl.DataType) -> tuple[Claim, ...]:
        """Return the claim of the noise, in steps."""
        return (self._in_steps(self.known_step(*columns)),)

    def named(self, totals: Sequence[Ints], *columns: pl.DataType) -> pl.Series:
        """Return whole units of the step as numbers of the answer's type."""
        return in_steps(totals[0], self.units(*columns).step, self.answer_type(*columns))

    def answer_step(self, *columns: pl.DataType) -> Fraction:
        """Return the step."""
        return self.units(*columns).step

    def error(self, size: int, beta: float, *columns: pl.DataType) -> float | None:  # noqa: ARG002
        """Return an error in the column's unit; that of integers if only the still unknown type defines the step."""
        step = self.known_step(*columns)
        return float(noise_bound(self._in_steps(step), beta) * step)

    def __str__(self) -> str:
        return f"sum of values from {show(self.lower)} to {show(self.upper)}"


@dataclass(frozen=True)
class RowsCut(Sum):
    """How many rows of people are left out, each person's clipped: a person changes it by `upper` at most."""

    @classmethod
    def of(cls, most: int, claim: Claim) -> RowsCut:
        """Return the number of rows, up to `most` of each person."""
        return cls(Fraction(0), Fraction(most), Fraction(1), of_floats=False, claim=claim)

    def rounding(self, *columns: pl.DataType) -> Fraction:  # noqa: ARG002
        """Return 0: rows are whole."""
        return Fraction(0)

    @property
    def error_unit(self) -> str:
        """What errors are measured in."""
        return "rows"

    def __str__(self) -> str:
        return f"number of rows over a bound, up to {show(self.upper)} of a person"


@dataclass(frozen=True)
class SumOfPeople(Sum):
    """The sum of people's totals: the values of one person in a group add up, and that total is clipped.

    With [lo, hi] the bounds of a total, a person who comes or goes changes the sum of a group by at most
    max(│lo│, │hi│), whatever rows they have: by their total, for a person without a value adds 0. Under "replace_one"
    and in one group, the change is the difference of two numbers from {0} ∪ [lo, hi]. So all of it is as for a row of a
    `Sum` from lo to hi.

    Parameters
    ----------
    lowest, highest
        Exact: lo and hi. They are whole multiples of the step.
    """

    lowest: Fraction
    highest: Fraction

    @property
    def _clipped_to(self) -> tuple[tuple[Fraction, Fraction], ...]:
        return (self.lowest, self.highest), (self.lower, self.upper)

    def units(self, *columns: pl.DataType) -> Units:
        """Return the values in whole units of the step, and the ends of totals; an error where a column has none."""
        units, (column,) = super().units(*columns), columns
        if self.step is None:
            check_held(self.lowest, self.highest, units.step, column, "per_person")
        check_size(replace(units, lower=self.lowest, upper=self.highest))
        return replace(units, ends_of_person=(self.lowest, self.highest))

    @property
    def counts_people(self) -> bool:
        """A person counts once."""
        return True

    @property
    def bounds_people(self) -> bool:
        """One person's effect on a group is that of their total."""
        return True

    @property
    def needs_people(self) -> bool:
        """It must be known who is a person."""
        return True

    @property
    def is_one_sided(self) -> bool:
        """Whether no two totals have different signs."""
        return self.lowest >= 0 or self.highest <= 0

    @property
    def largest(self) -> Fraction:
        """The most that one person adds or takes away, in the column's unit."""
        return max(abs(self.lowest), abs(self.highest))

    @property
    def adds_up(self) -> bool:
        """Whether no person takes away."""
        return self.lowest >= 0

    @property
    def span(self) -> Fraction:
        """The most that one person in the place of another changes, in the column's unit."""
        return max(self.highest, Fraction(0)) - min(self.lowest, Fraction(0))

    @property
    def clips(self) -> str:
        """Which totals are clipped."""
        return f"clips a person's total to {show(self.lowest)} … {show(self.highest)}"

    def __str__(self) -> str:
        return f"{super().__str__()}, per person from {show(self.lowest)} to {show(self.highest)}"
