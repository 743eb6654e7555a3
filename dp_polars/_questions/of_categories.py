"""Questions about one of a list of categories: what they have in common, whatever is drawn."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING

from dp_polars._base.numbers import given, one_of, show
from dp_polars._codes.codings import CategoryCoding
from dp_polars._codes.units import Weights
from dp_polars._questions.question import Evidence, OfCodes

if TYPE_CHECKING:
    import polars as pl

    from dp_polars._base.numbers import Number
    from dp_polars._codes.candidates import Categories
    from dp_polars._codes.codings import Coding


class OfPeopleOrRows(OfCodes):
    """A question about candidates that people have, or rows: `of_people` says which."""

    of_people: bool

    @property
    def counts_people(self) -> bool:
        """Whether a person counts once for each candidate, where it is known who they are."""
        return self.of_people

    @property
    def bounds_people(self) -> bool:
        """Whether the range also bounds one person's effect on a group."""
        return self.of_people


class OfCategories(OfPeopleOrRows):
    """A question about candidates that people have, or rows, or that weigh something.

    With `weights`, R is that of counts times their largest, `weights.most`. A row adds at most that to one candidate.
    Where people count, a person's sum for a candidate in a group is clipped to [0, most]: so one person more adds
    between 0 and `most` to every sum, whatever the rows, where without weights it is 0 or 1 to every count. Loss and
    rate are in the unit of the weights; histograms count whole steps, hence `step` in the rate of a draw.
    """

    candidates: Categories
    weights: Weights | None

    @property
    def most(self) -> Fraction:
        """The most that one row, or person, adds to a candidate."""
        return most_of(self.weights)

    def values(self, *columns: pl.DataType) -> pl.Series:
        """Return the candidates; in the column's type, if that is given."""
        return self.candidates.for_column(columns[0] if columns else None)

    def coding(self, *columns: pl.DataType) -> Coding:
        """Return the codes of rows: positions of candidates."""
        return CategoryCoding(self.candidates, *columns[:1])

    def evidence(self, *columns: pl.DataType) -> tuple[Evidence, ...]:
        """Return what the histogram is of: the candidates, each row with its weight."""
        weighing = None if self.weights is None or not columns else self.weights.units(columns[1])
        return (Evidence(self.coding(*columns), weighing),)

    def step(self, *columns: pl.DataType) -> Fraction:
        """Return what a weight of one stands for: a row or a person; with weights, one step, in their unit."""
        return Fraction(1) if self.weights is None else self.weights.units(columns[1]).step

    def missed(self, bound: float, *columns: pl.DataType) -> float:
        """Return the largest error below a bound, which is reached with the probability that `error` may have.

        Errors are differences of two counts, or sums of weights: whole steps. A bound stays what it is where the step
        is not known yet.
        """
        step = self.step(*columns) if columns or self.weights is None else self.weights.step
        steps = bound / float(step or 1)
        return float((math.ceil(steps) - 1) * step) if step is not None and 0 < steps < 2**53 else bound

    @property
    def left_to_column(self) -> str | None:
        """The candidates, or the step of the weights: in finer steps, errors have a longer tail."""
        return "step" if self.weights is not None and self.weights.step is None else super().left_to_column

    @property
    def clips(self) -> str | None:
        """The weights of a person for a candidate, together."""
        return None if self.weights is None else f"clips a person's weights to {show(self.most)}"

    @property
    def error_unit(self) -> str | None:
        """What errors are measured in, where that is not rows or people."""
        return None if self.weights is None else "the weights' unit"

    @property
    def how(self) -> str:
        """How candidates are compared, where that is not by people."""
        return ("" if self.of_people else " by rows") + (
            "" if self.weights is None else f" by weights of up to {show(self.weights.most)}"
        )


def most_of(weights: Weights | None) -> Fraction:
    """Return the most that one row, or person, adds to a candidate."""
    return Fraction(1) if weights is None else weights.most


def weights_of(max_weight: Number | None, step: Number | None, *, weighted: bool) -> Weights | None:
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


def counts_people_of(counts: str) -> bool:
    """Return whether people are counted, from the word for people or rows."""
    return one_of("counts", counts, ("people", "rows"), "'people' or 'rows'") == "people"
