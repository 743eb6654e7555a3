"""The first of the candidates, in their public order, that about a threshold of people or rows have."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import polars as pl

from dp_polars._accounting.claims import Claim
from dp_polars._base.numbers import as_fraction, positive_fraction, show
from dp_polars._codes.candidates import Categories
from dp_polars._codes.codings import CategoryCoding, Coding, NearestCoding
from dp_polars._codes.grids import Grid
from dp_polars._draws.first_above import Search, first_above_groups
from dp_polars._draws.leads import type_with_lead, with_lead
from dp_polars._mechanisms.noise import noise_bound
from dp_polars._mechanisms.thresholds import LARGEST_THRESHOLD
from dp_polars._questions.measures import counts_at_loss
from dp_polars._questions.of_categories import OfPeopleOrRows
from dp_polars._questions.question import HistogramQuery

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dp_polars._accounting.terms import NeighboringRelation
    from dp_polars._base.arrays import Ints
    from dp_polars._draws.histograms import Histogram


@dataclass(frozen=True)
class FirstAbove(OfPeopleOrRows):
    """The first candidate, in the order of the codes, with a count of at least about `threshold`; null if none has.

    Let λ be the rate, and let a group lose i rows (or people) and get j. Then its answers on both sides, with their
    leads, differ by a loss of at most λ·(i + 2j) one way and λ·(2i + j) the other way: `docs/proofs/first-above.md`.
    So R is 2 for a row that comes or goes, and 3 for one that takes the place of another, in the same group or in
    another one. A person who counts once for each candidate moves all counts of a group by 0 or 1 in one direction,
    and is as one row.
    """

    threshold: Fraction
    candidates: Categories | Grid
    claim: Claim
    of_people: bool = True

    def range_of(self, relation: NeighboringRelation, groups: int | None = None) -> Fraction:  # noqa: ARG002
        """Return R of one row, or person: see the class."""
        return Fraction(2 if relation == "add_or_remove_one" else 3)

    def coding(self, *columns: pl.DataType) -> Coding:
        """Return the codes of rows: positions of candidates; of a grid, of the nearest one."""
        if isinstance(self.candidates, Grid):
            return NearestCoding(self.candidates, *columns)
        return CategoryCoding(self.candidates, *columns)

    def _values_type(self, *columns: pl.DataType) -> pl.DataType:
        """Return the candidates' type; a TypeError where a column has none of that."""
        if isinstance(self.candidates, Grid):
            if columns:
                self.coding(*columns).encoder()
            return self.candidates.dtype
        return self.candidates.for_column(columns[0] if columns else None).dtype

    def _with_lead(self, answer: pl.DataType) -> pl.DataType:
        return type_with_lead(answer, pl.Int64()) if self.has_lead else answer

    @property
    def fixed_type(self) -> pl.DataType | None:
        """Type of the answers; None where only the column's type names the candidates."""
        if isinstance(self.candidates, Categories) and self.candidates.values is None:
            return None
        return self._with_lead(self._values_type())

    def answer_type(self, *columns: pl.DataType) -> pl.DataType:
        """Return the answer's type for a column's; a TypeError where that can't be."""
        return self._with_lead(self._values_type(*columns))

    def search(self, *columns: pl.DataType) -> Search:
        """Return what the kernel needs to know."""
        return Search(self.coding(*columns).size, self.threshold, self.claim.rate)

    def named(self, codes: Ints, *columns: pl.DataType) -> pl.Series:
        """Return the candidates that the codes stand for; null for −1."""
        of_some = codes.clip(0)
        if isinstance(self.candidates, Grid):
            values = self.candidates.take(of_some)
        else:
            values = self.candidates.for_column(columns[0] if columns else None).gather(of_some)
        return values.zip_with(pl.Series(codes >= 0), pl.Series([None], dtype=values.dtype))

    def drawn(self, histograms: Sequence[Histogram], *columns: pl.DataType) -> tuple[pl.Series, ...]:
        """Draw one answer per group from its histogram, also for groups without rows."""
        (histogram,) = histograms
        codes, leads = first_above_groups(self.search(*columns), histogram)
        named = self.named(codes, *columns)
        return (with_lead(named, pl.Series(leads), codes < 0) if self.has_lead else named,)

    def errors(self, size: int, beta: float) -> tuple[float, float]:
        """Return how far above T a candidate may be that was passed over, and how far below it the answer.

        Each is exceeded with probability at most `beta`. The first candidate with a count of T + t or more is passed
        over only if ν − z < −t, which has the probability exp(−λt)/2; and if any such candidate is passed over, it is,
        as the candidates are passed in their order. One with a count of T − t or less is the answer only if ν − z >= t,
        which is as rare; that is so of any of them with at most `size` times that probability.
        """
        above, below = (max(0.0, math.log(number / (2 * beta))) / float(self.claim.rate) for number in (1, size))
        return above, below

    def error(self, size: int, beta: float, *columns: pl.DataType) -> float:  # noqa: ARG002
        """Return the larger one of both errors."""
        return max(self.errors(size, beta))

    def alternative(self, *columns: pl.DataType) -> HistogramQuery | None:
        """Return the counts of all candidates at the same loss: which one is the first above is then free to see."""
        if isinstance(self.candidates, Grid) or (self.candidates.values is None and not columns):
            return None
        return counts_at_loss(self.claim, self.candidates.for_column(columns[0] if columns else None))

    def note(self, size: int, alternative: HistogramQuery | None) -> str:
        """Return what both errors are, and whether to look at noisy counts instead."""
        above, below = self.errors(size, 0.05)
        notes = []
        if alternative is not None:
            noise = alternative.claim
            if noise_bound(noise, 0.05 / size) < self.error(size, 0.05):
                notes.append(
                    f"Better: value_counts. One person counts for at most {noise.contributions.per_group} of the "
                    f"candidates of a group, so at the same loss none of its {size:,} counts is off by more than "
                    f"{noise_bound(noise, 0.05 / size):.3g}, with probability 0.95, and they show all of them."
                )
        more, less = (show(as_fraction("error", bound), 3, up=True) for bound in (above, below))
        notes.append(
            f"Passes over no candidate with {more} more than the threshold, and answers none with over {less} less: "
            "each with probability 0.95."
        )
        return " ".join(notes)

    def __str__(self) -> str:
        by_rows = "" if self.of_people else " by rows"
        return (
            f"first of {self.candidates} above {show(self.threshold)}{by_rows}"
            f"{', and its lead' if self.has_lead else ''}"
        )


def as_threshold(value: object) -> Fraction:
    """Return a threshold of counts, exactly."""
    exact = positive_fraction("threshold", value)
    if not exact <= LARGEST_THRESHOLD:
        msg = f"threshold must be at most 2**62, got {value!r}: no count is larger."
        raise ValueError(msg)
    return exact
