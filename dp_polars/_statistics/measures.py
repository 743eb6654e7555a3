"""Counts, sums, and numbers of distinct values; and losses from an error."""

from __future__ import annotations

import math
from abc import abstractmethod
from bisect import bisect_left
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import ClassVar, Literal, Self, TypeAlias, TypeVar

import numpy as np
import polars as pl

from dp_polars._accounting.claims import Claim
from dp_polars._accounting.costs import ALL, MechanismKind
from dp_polars._accounting.terms import (
    LARGEST,
    NeighboringRelation,
    Terms,
    Unit,
    Within,
    exact,
)
from dp_polars._base import column_types
from dp_polars._base.numbers import Ints, owners, show
from dp_polars._bins.binning import Binning, CategoryBinning, Clamping, OneCode
from dp_polars._bins.candidates import Categories
from dp_polars._bins.weights import (
    SMALLEST_SPAN,
    check_held,
    check_size,
    clamping_of,
    in_steps,
    step_by_default,
    type_in_steps,
)
from dp_polars._mechanisms.histograms import Histogram
from dp_polars._mechanisms.noise import LARGEST_VALUE, add_noise, check_scale, noise_bound, noise_of
from dp_polars._mechanisms.person_weights import bits_of_parts, bound_in_rows, ends_of, rounded
from dp_polars._statistics.statistic import FOUND_FIRST, CountRule, DrawnOnce, HistogramQuery, clipped_to, in_lists

# For sums of people's totals: the largest values in steps, if they have no bounds, and in last digits of a wide type.
# Then the step in which totals of floats and Decimals are added up to find their bounds.
_MOST_STEPS, _LARGEST_WIDE, _STEP_OF_TOTALS = 2**29, 2**62, Fraction(1, 100)
_LARGEST_STEP = 10**9  # in last digits
_ENDS = ("lower", "upper")
_WIDEST = 10**12  # last digits of a wide type between bounds that take the place of those that are found

# Digits of values, counted from the largest power of ten in the distance of found bounds.
_DIGITS = 6

BETA = 0.05  # a confidence interval contains the true number with a probability of 0.95

What: TypeAlias = Literal["rows", "people", "values", "nulls"]
MeasureT = TypeVar("MeasureT", bound="Measure")


@dataclass(frozen=True)
class SharedDraw:
    """One draw for statistics of a query: a sum of the same rows with noise added once; or Bernstein sums."""

    claim: Claim  # of this draw only; of Bernstein sums, of all together
    what: str  # a short description of the sums
    outputs: tuple[str, ...]  # the names of all outputs that follow from it
    sums: int = 1  # the number of sums, each with noise of its own at the rate of the claim

    @property
    def is_shared(self) -> bool:
        return len(self.outputs) > 1

    @property
    def parts(self) -> tuple[tuple[SharedDraw, int], ...]:
        """The keys of its sums."""
        return tuple((self, place) for place in range(self.sums))

    def __str__(self) -> str:
        return f"{', '.join(self.outputs)}: {self.what}"


@dataclass(frozen=True)
class Measure(HistogramQuery):
    """Numbers for each group, with noise.

    If people may count in part (`in_parts`), sums of weights count in parts of 2**−`bits_of_parts` units.
    """

    in_parts: bool = field(default=False, kw_only=True)
    # The draws that other statistics also use, in the order of its count rules. Empty: its draws are its own.
    # With shared draws, `claim` is its own loss: all that share them pay for the draws.
    shared: tuple[SharedDraw, ...] = field(default=(), kw_only=True)
    mechanism_kind: ClassVar[MechanismKind] = "number"
    has_intervals: ClassVar[bool] = True
    weighs_people: ClassVar[bool] = True

    @property
    @abstractmethod
    def largest(self) -> Fraction:
        """The most that one row adds to a number, or subtracts."""

    @property
    @abstractmethod
    def exchanged(self) -> Fraction:
        """The most that a number changes if another row of its group replaces a row; of several draws, jointly.

        It is `largest` if all rows move a number in one direction: then the two cancel in part. It has no default,
        because too small a number would be a wrong claim: `docs/proofs/spreads.md`, Theorems 4 and 5.
        """

    def range_of(self, relation: NeighboringRelation, groups: int | None = None) -> Fraction:  # noqa: ARG002
        """Return the effect of one row: a replacement removes one row and adds another, in the same group or not."""
        return self.largest if relation == "add_or_remove_one" else 2 * self.largest

    def same_group_of(self, relation: NeighboringRelation, groups: int | None = None) -> Fraction:
        return ALL if relation == "add_or_remove_one" else self.exchanged / self.range_of(relation, groups)

    @property
    def alone(self) -> Self:
        """The same statistic with draws of its own."""
        return replace(self, shared=()) if self.shared else self

    def with_terms(self, terms: Terms) -> Self:
        if self.shared and super().with_terms(terms).claim == self.claim:
            return self
        return checked(super(Measure, self.alone).with_terms(terms))

    def changes(self, *columns: pl.DataType) -> tuple[Fraction, ...]:  # noqa: ARG002
        """Return the most that one row changes each draw, in its whole units, divided by the claim's range."""
        return (Fraction(1),)

    def bits_of_parts(self, *columns: pl.DataType) -> tuple[int, ...]:
        return tuple(bits_of_parts(one) if self.in_parts else 0 for one in self.units_of_row(*columns))

    def units_of_row(self, *columns: pl.DataType) -> tuple[int, ...]:
        """Return the most that one row adds to each draw, or removes, in its whole units."""
        return tuple(int(self.largest * change) for change in self.changes(*columns))

    def noise(self, *columns: pl.DataType) -> tuple[Claim, ...]:
        """Return the claim of each draw, with its range in parts: their joint cost sets their rates.

        Without the column's type, ranges are as exact as is known.
        """
        scales = [*zip(self.changes(*columns), self.bits_of_parts(*columns), strict=True)]
        claims = [draw.claim for draw in self.shared for _ in draw.parts] or [self.claim] * len(scales)
        return tuple(
            replace(claim, score_range=claim.score_range * change * 2**bits)
            for claim, (change, bits) in zip(claims, scales, strict=True)
        )

    def error(self, size: int, beta: float, *columns: pl.DataType) -> float | None:  # noqa: ARG002
        (claim,), (bits,) = self.noise(*columns), self.bits_of_parts(*columns)
        return bound_in_rows(noise_bound(claim, beta), bits)


class Total(Measure):
    """One number for each group, from the sums of its rows' weights."""

    is_ordered: ClassVar[bool] = True
    fixed_size: ClassVar[int] = 1

    def range_of(self, relation: NeighboringRelation, groups: int | None = None) -> Fraction:
        is_exchanged = relation == "replace_one" and groups == 1
        return self.exchanged if is_exchanged else super().range_of(relation, groups)

    @abstractmethod
    def named(self, totals: Sequence[Ints], *columns: pl.DataType) -> pl.Series:
        """Return the answers for sums of weights, in whole units, with or without noise: (g,) for each."""

    def drawn_of_totals(self, totals: Sequence[Ints], *columns: pl.DataType) -> tuple[pl.Series, ...]:
        """Add noise once to each histogram's sums of weights, shape (g,): a sum per group."""
        return self._drawn(totals, {}, *columns)

    def _drawn(self, totals: Sequence[Ints], known: DrawnOnce, *columns: pl.DataType) -> tuple[pl.Series, ...]:
        shared = [part for draw in self.shared for part in draw.parts]
        draws: Sequence[tuple[SharedDraw, int] | None] = shared or (None,) * len(totals)
        drawn = []
        for draw, total, claim in zip(draws, totals, self.noise(*columns), strict=True):
            found = None if draw is None else known.get(draw)
            if found is None:
                found = pl.Series(noisy(total, claim))
                if draw is not None:
                    known[draw] = found
            drawn.append(found)
        return tuple(drawn)

    def drawn(self, histograms: Sequence[Histogram], *columns: pl.DataType) -> tuple[pl.Series, ...]:
        assert not self.shared, "a draw that others share is drawn once"
        return self.drawn_once(histograms, {}, *columns)

    def drawn_once(
        self, histograms: Sequence[Histogram], known: DrawnOnce, *columns: pl.DataType
    ) -> tuple[pl.Series, ...]:
        return self._drawn([totals_of(histogram) for histogram in histograms], known, *columns)

    def drawn_types(self, *columns: pl.DataType) -> tuple[pl.DataType, ...]:  # noqa: ARG002
        return (pl.Int64(),) * len(self.changes())


class Multiple(Total):
    """A total as the answer, in units of a step."""

    @abstractmethod
    def answer_step(self, *columns: pl.DataType) -> Fraction:
        """Return the answer's unit: the answer for a total of one."""

    def presented(self, drawn: Sequence[pl.Series], beta: float | None, *columns: pl.DataType) -> tuple[pl.Series, ...]:
        (claim,), (bits,) = self.noise(*columns), self.bits_of_parts(*columns)
        return tuple(self.named([one], *columns) for one in _shown(drawn[0].to_numpy(), claim, bits, beta))


def _shown(parts: Ints, claim: Claim, bits: int, beta: float | None) -> tuple[Ints, ...]:
    """Return draws in parts as whole numbers, and the ends of their confidence intervals, if any."""
    if beta is None:
        return (rounded(parts, bits),)
    return rounded(parts, bits), *ends_of(parts, noise_bound(claim, beta), bits)


def totals_of(histogram: Histogram) -> Ints:
    """Return the weight of each group, shape (g,), in a histogram with one code."""
    total = np.zeros(len(histogram.sizes), np.int64)
    total[histogram.sizes > 0] = histogram.weights
    return total


def noisy(totals: Ints, claim: Claim) -> Ints:
    """Add the noise of a claim to numbers; clamp to 62 bits before and after."""
    clamped: Ints = np.clip(totals, -LARGEST_VALUE, LARGEST_VALUE)
    return add_noise(clamped, noise_of(claim, len(totals)))


@dataclass(frozen=True)
class Count(Multiple):
    """How many rows, distinct people, rows with a value, or nulls."""

    counted: What
    terms: Terms
    adds_up: ClassVar[bool] = True
    is_count: ClassVar[bool] = True
    fixed_type: ClassVar[pl.DataType] = pl.Int64()
    largest: ClassVar[Fraction] = Fraction(1)
    exchanged: ClassVar[Fraction] = Fraction(1)  # every row adds

    @property
    def counts_people(self) -> bool:
        return self.counted == "people"

    needs_people = counts_people

    def answer_type(self, *columns: pl.DataType) -> pl.DataType:  # noqa: ARG002
        return pl.Int64()

    def count_rules(self, *columns: pl.DataType) -> tuple[CountRule, ...]:  # noqa: ARG002
        return (CountRule(OneCode(nulls=self.counted == "nulls")),)

    def named(self, totals: Sequence[Ints], *columns: pl.DataType) -> pl.Series:  # noqa: ARG002
        return pl.Series(totals[0])

    def answer_step(self, *columns: pl.DataType) -> Fraction:  # noqa: ARG002
        return Fraction(1)

    def __str__(self) -> str:
        return f"number of {'rows with a value' if self.counted == 'values' else self.counted}"


@dataclass(frozen=True)
class ValueCounts(Measure):
    """How many rows or people every candidate has."""

    candidates: Categories
    terms: Terms
    groups: ClassVar[None] = None  # those of the claim are the counts of all candidates
    counts_people: ClassVar[bool] = True
    limits_people: ClassVar[bool] = False  # the number of codes per person is reported, not limited
    is_count: ClassVar[bool] = True
    largest: ClassVar[Fraction] = Fraction(1)
    exchanged: ClassVar[Fraction] = Fraction(1)  # every row adds
    adds_up: ClassVar[bool] = True

    @property
    def fixed_type(self) -> pl.DataType | None:
        return self.answer_type()

    def answer_type(self, *columns: pl.DataType) -> pl.DataType:
        values = self.candidates.for_column(columns[0] if columns else None)
        return pl.List(pl.Struct({"value": values.dtype, "count": pl.Int64}))

    def binning(self, *columns: pl.DataType) -> Binning:
        return CategoryBinning(self.candidates, *columns)

    def count_rules(self, *columns: pl.DataType) -> tuple[CountRule, ...]:
        return (CountRule(self.binning(*columns)),)

    def answer_width(self, *columns: pl.DataType) -> int:
        return self.binning(*columns).size

    def drawn(self, histograms: Sequence[Histogram], *columns: pl.DataType) -> tuple[pl.Series, ...]:
        (histogram,) = histograms
        counts = noisy(self.counts_of(histogram, *columns), *self.noise(*columns))
        return (in_lists(pl.Series(counts), self.answer_width(*columns)),)

    def drawn_types(self, *columns: pl.DataType) -> tuple[pl.DataType, ...]:  # noqa: ARG002
        return (pl.List(pl.Int64()),)

    def presented(self, drawn: Sequence[pl.Series], beta: float | None, *columns: pl.DataType) -> tuple[pl.Series, ...]:
        (claim,), (bits,) = self.noise(*columns), self.bits_of_parts(*columns)
        return tuple(
            self.named(counts, *columns) for counts in _shown(drawn[0].explode().to_numpy(), claim, bits, beta)
        )

    def counts_of(self, histogram: Histogram, *columns: pl.DataType) -> Ints:
        groups, size = len(histogram.sizes), self.binning(*columns).size
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


def counts_at_loss(terms: Terms, values: pl.Series) -> ValueCounts:
    return checked(ValueCounts(Categories.of(values), replace(terms, mechanism=None, gap=False)))


def checked(query: QueryT, *, in_parts: bool | None = None) -> QueryT:
    """Return the query with `in_parts` set; raise if its noise does not fit into 64 bits."""
    if not isinstance(query, Measure):
        return query
    query = query if in_parts is None else replace(query, in_parts=in_parts)
    for claim in query.noise():
        check_scale(claim)
    return query


QueryT = TypeVar("QueryT", bound=HistogramQuery)

# The losses in the search: all numbers of four significant digits from 1e-30 to 1e30, by their places.
_PLACES = range(-30 * 9000, 30 * 9000)


def loss_at(place: int, digits: int = 4) -> Fraction:
    """Return the number at a place among all numbers of this many significant digits; 1 is at place 0."""
    first: int = 10 ** (digits - 1)
    decade, further = divmod(place, 9 * first)
    return (first + further) * Fraction(f"1e{decade - digits + 1}")


def error_95(query: HistogramQuery, rows: int | None, *columns: pl.DataType) -> float | None:
    """Return the 95 % error of groups of `rows` rows (None: of all groups); None if it is unknown."""
    if query.claim._is_open:
        return None
    if rows is not None:
        return query.error_among(rows, BETA, *columns)
    size = query.size_of(*columns)
    return None if size is None else query.error(size, BETA, *columns)


def check_within(query: HistogramQuery, within: Within) -> None:
    if within.value == 0 and not query.is_count:
        msg = (
            "within must be greater than 0, got 0: no loss makes this answer surely right.\n\n"
            "Hint: within=0 is for counts; a small number such as within=1 is for all others."
        )
        raise ValueError(msg)
    if query.error_needs_rows and within.rows is None:
        msg = (
            "rows must be given with within: the fewer rows a group has, the further off is this answer.\n\n"
            "Hint: rows=1000 is for groups of at least 1,000 rows with a value. Choose it from public knowledge."
        )
        raise TypeError(msg)


def at_most(query: QueryT, unit: Unit) -> QueryT:
    """Return the statistic at the largest loss in this unit that a search may find, with the unit's mechanism."""
    return query.with_loss(Fraction(LARGEST)).in_unit(unit)


def with_loss_for(query: QueryT, within: Within, *columns: pl.DataType) -> QueryT:
    """Return the statistic at the smallest loss of four significant digits with an `error_95` of at most `within`.

    The loss has the unit of the statistic's claim. No error grows with the loss, so bisection finds the smallest one.

    Raises ValueError if there is no such loss, or it is above 20, or the column's type must be known.
    """
    if query.left_to_column is not None and not columns:
        msg = (
            f"{query.left_to_column} must be given with {within}: the loss depends on it, and here only the column's "
            f"type tells it.\n\nHint: give {query.left_to_column}=…, or use a private frame that has data."
        )
        raise ValueError(msg)

    def at(place: int) -> QueryT:
        return query.with_loss(loss_at(place))

    def error_at(place: int) -> float | None:
        with suppress(ValueError):  # a rate too small, or noise that does not fit into 64 bits
            return error_95(at(place), within.rows, *columns)
        return None

    def suffices(place: int) -> bool:
        error = error_at(place)
        return error is not None and error <= float(within.value)

    place = _PLACES[0] + bisect_left(_PLACES, True, key=suffices)
    if place not in _PLACES:
        msg = (
            f"{within} is never reached: error_95 is {error_at(_PLACES[-1])} at least, however large the loss.\n\n"
            "Hint: a larger within, or epsilon or rho."
        )
        raise ValueError(msg)
    if place == _PLACES[0] or error_at(place - 1) is None:
        msg = (
            f"{within} must be smaller: every loss that can be drawn with reaches it (any does where there is one "
            "candidate), so none is the smallest.\n\nHint: give epsilon or rho."
        )
        raise ValueError(msg)
    found = at(place)
    if found.claim.loss.value > LARGEST:
        msg = (
            f"{within} would take {found.claim.loss}: a loss above {LARGEST} protects nobody.\n\n"
            "Hint: a larger within, or tighter contribution limits or clipping bounds."
        )
        raise ValueError(msg)
    return found


def _within(lower: Fraction, upper: Fraction, free: tuple[str, ...], most: Fraction) -> tuple[Fraction, Fraction]:
    """Return two ends that are at most so far apart; `free`: which of them may be moved."""
    if upper - lower <= most:
        return lower, upper
    return (lower, lower + most) if "upper" in free else (upper - most, upper)


@dataclass(frozen=True)
class Clipped(Total):
    """A number about values that are clipped to public clipping bounds and rounded to a public step."""

    # Exact.
    lower: Fraction
    upper: Fraction
    # Exact. None: the last digit of the column's type, or the result of `step_by_default`.
    step: Fraction | None
    # The bounds that are found privately. Placeholders are in use until then.
    finds: tuple[str, ...] = field(default=(), kw_only=True)
    _rounded: ClassVar[str] = "rounding moves the sum by at most half a step a row, in addition to the error"
    error_unit: ClassVar[str] = "the column's unit"

    @property
    def _clipped_to(self) -> tuple[tuple[Fraction, Fraction], ...]:
        """All bounds, first those that clip one row, or one person: they decide the step and R."""
        return ((self.lower, self.upper),)

    @property
    def sought(self) -> tuple[Fraction, Fraction]:
        """The bounds of which some may be found privately: `finds` says which."""
        return self.lower, self.upper

    def with_sought(self, lower: Fraction, upper: Fraction) -> Self:
        return replace(self, lower=lower, upper=upper)

    def until_found(self, column: pl.DataType) -> Self:
        """Return the statistic with others in the place of bounds that are found, so that 64 bits hold them."""
        most = self._widest(column)
        return self if most is None or not self.finds else self.with_sought(*_within(*self.sought, self.finds, most))

    def _widest(self, column: pl.DataType) -> Fraction | None:
        """Return how far apart bounds are at most that take the place of others. None: 64 bits hold all of them."""
        tick = column_types.tick(column)
        has_step = self.step is not None or tick is None or not column_types.is_wide(column)
        return None if has_step or tick is None else _WIDEST * tick

    @property
    def clipping(self) -> str | None:
        if self.finds:
            return FOUND_FIRST
        return clipped_to(exact(self.lower), exact(self.upper))

    @property
    def _between(self) -> str:
        if self.finds:
            return "within clipping bounds that are found privately"
        return f"from {exact(self.lower)} to {exact(self.upper)}"

    def with_bounds(self, column: pl.DataType, lower: Fraction | None = None, upper: Fraction | None = None) -> Self:
        """Return the statistic with the found bounds, rounded outward to whole multiples of the step.

        A default step is at least a millionth of the largest power of ten in their distance.
        """
        low, high = self.sought
        lower, upper, step = self._outward(column, low if lower is None else lower, high if upper is None else upper)
        return replace(self.with_sought(lower, upper), step=step, finds=())

    def _outward(
        self, column: pl.DataType, lower: Fraction, upper: Fraction
    ) -> tuple[Fraction, Fraction, Fraction | None]:
        """Return bounds that were found, rounded outward, and the step."""
        tick, step = column_types.tick(column), self.step
        least = step or tick
        if not lower < upper:
            upper = lower + (least or SMALLEST_SPAN)
        if step is None:
            by_span = Fraction(10) ** (math.floor(math.log10(upper - lower)) - _DIGITS)
            step = by_span if least is None or by_span > least else None
        unit = step or least or Fraction(1)
        return math.floor(lower / unit) * unit, math.ceil(upper / unit) * unit, step

    def units(self, *columns: pl.DataType) -> Clamping:
        (column,), step, ends = columns, self.step, self._clipped_to
        if step is None:
            step = step_by_default(ends[0][1] - ends[0][0], column, *ends)
        return clamping_of(self.lower, self.upper, step, column)

    def rounding(self, *columns: pl.DataType) -> Fraction:
        """Return how far a value between the bounds may be from its rounded value.

        A float is multiplied by a rounded factor, and the product is rounded, before it goes to the nearest step. With
        at most 2³⁰ steps, that moves the turning point by less than 2⁻²⁰ of a step. If the step is 1, a column of
        unknown type counts as one of integers.
        """
        step, tick = self.known_step(*columns), column_types.tick(columns[0]) if columns else None
        is_exact = step == 1 if not columns else tick is not None and (tick / step).denominator == 1
        return Fraction(0) if is_exact else step * (Fraction(1, 2) + Fraction(1, 2**20))

    def of_values(self, *columns: pl.DataType) -> str | None:
        if not columns or not self.rounding(*columns):
            return None
        return f"Values count in steps of {show(self.known_step(*columns))}: {self._rounded}."

    def known_step(self, *columns: pl.DataType) -> Fraction:
        """Return the step; 1 if only the still unknown column type defines it (its last digit is at most 1)."""
        return self.units(*columns).step if columns else self.step or Fraction(1)

    @property
    def left_to_column(self) -> str | None:
        """The step: noise of the same scale in finer steps has a longer tail."""
        return "step" if self.step is None else None


@dataclass(frozen=True)
class Sum(Clipped, Multiple):
    """The sum of values, clipped to public clipping bounds, in units of a public step."""

    of_floats: bool  # whether the step was given as a float or a Fraction: then the answer is a float
    terms: Terms

    @property
    def fixed_type(self) -> pl.DataType | None:
        return pl.Float64() if self.of_floats else None

    def answer_type(self, *columns: pl.DataType) -> pl.DataType:
        for claim in self.noise(*columns):
            check_scale(claim)
        return type_in_steps(self.known_step(*columns), *columns, of_floats=self.of_floats)

    def count_rules(self, *columns: pl.DataType) -> tuple[CountRule, ...]:
        return (CountRule(OneCode(), self.units(*columns)),)

    @property
    def largest(self) -> Fraction:
        return max(map(abs, self._clipped_to[0]))

    @property
    def adds_up(self) -> bool:
        return self._clipped_to[0][0] >= 0

    @property
    def exchanged(self) -> Fraction:
        low, high = self._clipped_to[0]
        return max(high, Fraction(0)) - min(low, Fraction(0))  # a row without a value adds 0

    def changes(self, *columns: pl.DataType) -> tuple[Fraction, ...]:
        return (1 / self.known_step(*columns),)

    def named(self, totals: Sequence[Ints], *columns: pl.DataType) -> pl.Series:
        return in_steps(totals[0], self.units(*columns).step, self.answer_type(*columns))

    def answer_step(self, *columns: pl.DataType) -> Fraction:
        return self.units(*columns).step

    def error(self, size: int, beta: float, *columns: pl.DataType) -> float | None:
        """Return an error in the column's unit; as for integers if only the still unknown type defines the step."""
        return float((super().error(size, beta, *columns) or 0) * self.known_step(*columns))

    def of_values(self, *columns: pl.DataType) -> str | None:
        """Return the effect of rounding. No confidence interval covers it, as the number of rows is unknown."""
        said = super().of_values(*columns)
        if said is None or self.claim._is_open:
            return said
        rows = int((self.error(1, BETA, *columns) or 0) / self.rounding(*columns))
        return f"{said[:-1]}: in groups of up to {rows:,} rows by less than that."

    def __str__(self) -> str:
        return f"sum of values {self._between}"


@dataclass(frozen=True)
class RowsCut(Sum):
    """The number of people's dropped rows, clipped for each person: one person changes it by at most `upper`."""

    error_unit: ClassVar[str] = "rows"

    @classmethod
    def of(cls, most: int, terms: Terms) -> RowsCut:
        return cls(Fraction(0), Fraction(most), Fraction(1), of_floats=False, terms=terms)

    @property
    def clipping(self) -> str:
        return clipped_to(0, exact(self.upper), "Row counts")

    def rounding(self, *columns: pl.DataType) -> Fraction:  # noqa: ARG002
        return Fraction(0)

    def __str__(self) -> str:
        return f"number of rows over a limit, up to {show(self.upper)} of a person"


@dataclass(frozen=True)
class SumOfPeople(Sum):
    """The sum of people's totals: the values of one person in a group add up, and that total is clipped to [lo, hi].

    A person without a value adds 0. So everything is as for a row of a `Sum` from lo to hi: `docs/proofs/numbers.md`.
    """

    # Exact: lo and hi. They are whole multiples of the step. If they are found (`finds`), others take their place.
    lowest: Fraction
    highest: Fraction
    # Which bounds of values were left out, as totals are clipped: these are as far as sums fit into 64 bits.
    free: tuple[str, ...] = field(default=(), kw_only=True)
    counts_people: ClassVar[bool] = True
    limits_people: ClassVar[bool] = True  # one person's effect on a group is their clipped total
    needs_people: ClassVar[bool] = True

    @property
    def _clipped_to(self) -> tuple[tuple[Fraction, Fraction], ...]:
        return (self.lowest, self.highest), (self.lower, self.upper)

    @property
    def sought(self) -> tuple[Fraction, Fraction]:
        return self.lowest, self.highest

    def with_sought(self, lower: Fraction, upper: Fraction) -> Self:
        return replace(self, lowest=lower, highest=upper)

    def with_bounds(self, column: pl.DataType, lower: Fraction | None = None, upper: Fraction | None = None) -> Self:
        found = super().with_bounds(column, lower, upper)
        of_values = self._of_values(column, found.step or column_types.tick(column) or Fraction(1))
        return replace(found, lower=of_values.lower, upper=of_values.upper)

    def until_found(self, column: pl.DataType) -> Self:
        most, found = self._widest(column), super().until_found(column)
        if most is None or not self.finds or not self.free:
            return found
        lower, upper = _within(self.lower, self.upper, self.free, most)
        return replace(found, lower=lower, upper=upper)

    def _of_values(self, column: pl.DataType, step: Fraction) -> Clamping:
        """Return the bounds of values in whole steps: those that were given, but no further out than sums allow."""
        most, tick = _MOST_STEPS * step, column_types.tick(column)
        if tick is not None and column_types.is_wide(column):
            most = min(most, math.floor(_LARGEST_WIDE * tick / step) * step)
        low = -most if "lower" in self.free else max(min(self.lower, most), -most)
        high = most if "upper" in self.free else max(min(self.upper, most), -most)
        return Clamping(math.floor(low / step) * step, math.ceil(high / step) * step, step)

    def totals(self, column: pl.DataType) -> Clamping:
        """Return the weights of values while the clipping bounds of totals are found."""
        tick = column_types.tick(column)
        least = _STEP_OF_TOTALS if tick is None else max(tick, min(_STEP_OF_TOTALS, _LARGEST_STEP * tick))
        return self._of_values(column, self.step or least)

    def units(self, *columns: pl.DataType) -> Clamping:
        units, (column,) = super().units(*columns), columns
        if self.step is None:
            check_held(self.lowest, self.highest, units.step, column, "per_person")
        check_size(replace(units, lower=self.lowest, upper=self.highest))
        return replace(units, ends_of_person=(self.lowest, self.highest))

    @property
    def clips(self) -> tuple[str, str]:
        if self.finds:
            return "total", "bounds that are found privately"
        return "total", f"{exact(self.lowest)} … {exact(self.highest)}"

    @property
    def clips_values(self) -> bool:
        return len(self.free) < len(_ENDS)

    @property
    def clipping(self) -> str | None:
        return super().clipping if self.clips_values else None

    def __str__(self) -> str:
        if self.finds:
            return "sum of values, per person within clipping bounds that are found privately"
        if not self.clips_values:
            return f"sum of values, per person from {exact(self.lowest)} to {exact(self.highest)}"
        return f"{super().__str__()}, per person from {exact(self.lowest)} to {exact(self.highest)}"


def sum_of_found_totals(
    ends: tuple[Fraction, Fraction, Fraction | None], free: tuple[str, ...], terms: Terms, *, of_floats: bool
) -> SumOfPeople:
    """Return a sum for which the clipping bounds of totals are found; those in `free`, of values, are left out.

    Totals of values of one sign have 0 for one bound.
    """
    lower, upper, step = ends
    is_known = {"lower": "lower" not in free and lower >= 0, "upper": "upper" not in free and upper <= 0}
    finds = tuple(name for name in _ENDS if not is_known[name])
    width = step or Fraction(1)
    lowest, highest = (-width, Fraction(0)) if is_known["upper"] else (Fraction(0), width)
    return SumOfPeople(*ends, of_floats, terms, lowest, highest, finds=finds, free=free)
