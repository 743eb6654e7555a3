"""The best row by a score, and the first candidate above a threshold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np
import polars as pl

from dp_polars._accounting.claims import range_of
from dp_polars._accounting.costs import MechanismKind
from dp_polars._accounting.terms import NeighboringRelation, Terms
from dp_polars._base import column_types
from dp_polars._base.numbers import Ints, as_fraction, offsets, positive_fraction, show, starts, system_rng
from dp_polars._bins.binning import Binning, CategoryBinning, NearestBinning
from dp_polars._bins.candidates import Categories, Grid, ends_of
from dp_polars._bins.weights import in_steps, type_in_steps
from dp_polars._mechanisms.above_threshold import LARGEST_THRESHOLD, Search, first_above_groups
from dp_polars._mechanisms.histograms import Histogram
from dp_polars._mechanisms.noise import noise_bound
from dp_polars._mechanisms.noisy_gap import type_with_gap, with_gap
from dp_polars._mechanisms.racing import LAWS
from dp_polars._mechanisms.selection import MOST_ROWS, OwnSensitivities, best_rows, best_rows_with_gap
from dp_polars._statistics.measures import counts_at_loss
from dp_polars._statistics.statistic import CountRule, HistogramQuery, Query, clipped_to

_INTEGERS = [pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64]


@dataclass(frozen=True)
class ArgMax(Query):
    """The row with the highest (or lowest) score, by the caller's own scores."""

    terms: Terms
    score_range: Fraction  # R, of the caller's sensitivity
    lowest: bool = False  # whether the lowest score is the best
    # The unit of the gap. None: the last digit of the scores' type.
    gap_step: Fraction | None = None
    of_floats: bool = False  # whether `gap_step` was given as a float or a Fraction: then gaps are floats

    def range_of(self, relation: NeighboringRelation, groups: int | None = None) -> Fraction:  # noqa: ARG002
        return self.score_range

    @property
    def fixed_type(self) -> pl.DataType | None:
        return None if self.has_gap else pl.UInt32()

    def answer_type(self, *columns: pl.DataType) -> pl.DataType:
        (scores,) = columns
        _check_numbers("scores", scores)
        if not self.has_gap:
            return pl.UInt32()
        return type_with_gap(pl.UInt32(), type_in_steps(self._step(scores), scores, of_floats=self.of_floats))

    def _step(self, scores: pl.DataType) -> Fraction:
        step = column_types.tick(scores) if self.gap_step is None else self.gap_step
        if step is None:
            msg = (
                f"gap_step must be given for scores of type {scores}.\n\n"
                "Hint: gap_step=0.01 rounds the gap down to hundredths. Choose it from public knowledge."
            )
            raise ValueError(msg)
        return step

    def answers_of_rows(self, columns: Sequence[pl.Series], lengths: Ints) -> pl.Series:
        (values,) = columns
        self.answer_type(*(column.dtype for column in columns))
        scores, offered = column_types.exact_values(values), column_types.are_finite(values)
        tick = column_types.tick(values.dtype) or Fraction(1)
        rate, law, rng = self.claim.rate * tick, LAWS[self.claim.mechanism], system_rng()
        if not self.has_gap:
            chosen = best_rows(scores, lengths, rate, law, rng, offered=offered, lowest=self.lowest)
            return _as_positions(chosen)
        step = self._step(values.dtype)
        chosen, gaps = best_rows_with_gap(
            scores, lengths, rate, step / tick, law, rng, offered=offered, lowest=self.lowest
        )
        in_type = in_steps(gaps, step, type_in_steps(step, values.dtype, of_floats=self.of_floats))
        return with_gap(_as_positions(chosen), in_type, gaps < 0)

    def __str__(self) -> str:
        return f"row with the {'lowest' if self.lowest else 'highest'} score{', and its gap' if self.has_gap else ''}"


@dataclass(frozen=True)
class ArgMaxOfOwn(Query):
    """The row with the highest (or lowest) score; each row's score has its own public sensitivity."""

    terms: Terms
    lowest: bool = False
    fixed_type: ClassVar[pl.DataType] = pl.UInt32()

    def range_of(self, relation: NeighboringRelation, groups: int | None = None) -> Fraction:  # noqa: ARG002
        return range_of(1, monotonic=False)

    def answer_type(self, *columns: pl.DataType) -> pl.DataType:
        scores, sensitivities = columns
        _check_numbers("scores", scores)
        _check_numbers("sensitivities", sensitivities)
        return pl.UInt32()

    def answers_of_rows(self, columns: Sequence[pl.Series], lengths: Ints) -> pl.Series:
        self.answer_type(*(column.dtype for column in columns))
        scores, sensitivities = columns
        rows, counts, eligible = own_sensitivities(scores, sensitivities, lengths, lowest=self.lowest)
        groups = np.flatnonzero(counts)
        chosen = np.full(len(lengths), -1, np.int64)
        if len(groups):
            best = eligible.best(self.claim.rate, LAWS[self.claim.mechanism], system_rng())
            chosen[groups] = rows[best] - starts(lengths)[groups]
        return _as_positions(chosen)

    def __str__(self) -> str:
        return f"row with the {'lowest' if self.lowest else 'highest'} score, by sensitivities of their own"


def own_sensitivities(
    scores: pl.Series, sensitivities: pl.Series, lengths: Ints, *, lowest: bool
) -> tuple[Ints, Ints, OwnSensitivities]:
    """Return the rows that may win, their number in each group, and their scores with their sensitivities.

    A row may win if its score is finite, and its sensitivity is finite and above 0. ValueError if a group has too many
    of them.
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
    return pl.Series(chosen).cast(pl.UInt32, strict=False)  # −1, no score, becomes null


@dataclass(frozen=True)
class FirstAbove(HistogramQuery):
    """The first candidate, in the order of the codes, with a count of at least about `threshold`; null if none has.

    R is 2 if a row is added or removed, and 3 if one replaces another: `docs/proofs/first-above.md`. A person who
    counts once for each candidate moves all counts of a group by 0 or 1 in one direction, so R is as for one row.
    """

    threshold: Fraction
    candidates: Categories | Grid
    terms: Terms
    of_people: bool = True
    mechanism_kind: ClassVar[MechanismKind] = "threshold"

    @property
    def clipping(self) -> str | None:
        return clipped_to(*ends_of(self.candidates)) if isinstance(self.candidates, Grid) else None

    def range_of(self, relation: NeighboringRelation, groups: int | None = None) -> Fraction:  # noqa: ARG002
        return Fraction(2 if relation == "add_or_remove_one" else 3)

    def binning(self, *columns: pl.DataType) -> Binning:
        if isinstance(self.candidates, Grid):
            return NearestBinning(self.candidates, *columns)
        return CategoryBinning(self.candidates, *columns)

    def count_rules(self, *columns: pl.DataType) -> tuple[CountRule, ...]:
        return (CountRule(self.binning(*columns)),)

    @property
    def fixed_type(self) -> pl.DataType | None:
        if isinstance(self.candidates, Categories) and self.candidates.values is None:
            return None
        return self.answer_type()

    def answer_type(self, *columns: pl.DataType) -> pl.DataType:
        if isinstance(self.candidates, Grid) and columns:
            self.binning(*columns).encoder()
        values = self.named(np.array([], np.int64), *columns).dtype
        return type_with_gap(values, pl.Int64()) if self.has_gap else values

    def search(self, *columns: pl.DataType) -> Search:
        return Search(self.binning(*columns).size, self.threshold, self.claim.rate)

    def named(self, codes: Ints, *columns: pl.DataType) -> pl.Series:
        """Return the candidates of the codes; null for −1."""
        of_some = codes.clip(0)
        if isinstance(self.candidates, Grid):
            values = self.candidates.take(of_some)
        else:
            values = self.candidates.for_column(columns[0] if columns else None).gather(of_some)
        return values.zip_with(pl.Series(codes >= 0), pl.Series([None], dtype=values.dtype))

    def drawn(self, histograms: Sequence[Histogram], *columns: pl.DataType) -> tuple[pl.Series, ...]:
        (histogram,) = histograms
        codes, gaps = first_above_groups(self.search(*columns), histogram)
        named = self.named(codes, *columns)
        return (with_gap(named, pl.Series(gaps), codes < 0) if self.has_gap else named,)

    def errors(self, size: int, beta: float) -> tuple[float, float]:
        """Return how far above T a candidate before the answer may be, and how far below it the answer.

        Each is exceeded with probability at most `beta`: `docs/proofs/first-above.md`, Theorem 5.
        """
        above, below = (max(0.0, math.log(number / (2 * beta))) / float(self.claim.rate) for number in (1, size))
        return above, below

    def error(self, size: int, beta: float, *columns: pl.DataType) -> float:  # noqa: ARG002
        return max(self.errors(size, beta))

    def alternative(self, *columns: pl.DataType) -> HistogramQuery | None:
        if isinstance(self.candidates, Grid) or (self.candidates.values is None and not columns):
            return None
        return counts_at_loss(self.terms, self.candidates.for_column(columns[0] if columns else None))

    def note(self, size: int, alternative: HistogramQuery | None) -> str:
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
            f"first of {self.candidates} above {show(self.threshold)}{by_rows}{', and its gap' if self.has_gap else ''}"
        )


def as_threshold(value: object) -> Fraction:
    exact = positive_fraction("threshold", value)
    if not exact <= LARGEST_THRESHOLD:
        msg = f"threshold must be at most 2**62, got {value!r}: no count is larger."
        raise ValueError(msg)
    return exact
