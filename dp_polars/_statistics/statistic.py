"""A statistic: what every output must say, lists of answers, and selected keys."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import ClassVar, NamedTuple, Self, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars._accounting.claims import Claim, check_mechanism
from dp_polars._accounting.costs import ALL
from dp_polars._accounting.terms import USUAL_RELATION, Contributions, NeighboringRelation, Terms, Unit, exact
from dp_polars._base import column_types
from dp_polars._base.numbers import Floats, Ints, flag, plural, show
from dp_polars._bins.binning import Binning, Clamping, Codes
from dp_polars._bins.weights import ONE_EACH, Weights
from dp_polars._mechanisms.histograms import Histogram
from dp_polars._mechanisms.partition_selection import (
    GaussianThreshold,
    KeySelection,
    PartitionSelection,
    delta_of_one_key,
    threshold_for,
)

# The types of the columns that a query reads, in their order.
Columns: TypeAlias = "tuple[pl.DataType, ...]"
# What several statistics of a query share, and what was drawn of it.
DrawnOnce: TypeAlias = "dict[object, pl.Series]"


@dataclass(frozen=True)
class CountRule:
    """How rows are counted in one histogram: by their codes, and with their weights (None: 1 each)."""

    binning: Binning
    row_weight: Clamping | None = None

    def of_rows(self, columns: Sequence[pl.Series]) -> tuple[Codes, Ints | None]:
        """Return the code and the weight of every row, shape (n,) each; no weights: one each."""
        return self.binning.encoder()(columns), None if self.row_weight is None else self.row_weight.weigh(columns)


class Asked(ABC):
    """The statistic, with its privacy claim."""

    claim: Claim
    in_parts: bool = False  # whether people beyond the contribution limits count in part

    @abstractmethod
    def __str__(self) -> str:
        """Return the statistic in a few words, for claims, messages and the ledger."""

    def with_claim(self, claim: Claim) -> Self:
        return replace(self, claim=claim)  # type: ignore[type-var]  # every statistic is a dataclass

    @property
    def clipping(self) -> str | None:
        """Which values count as a clipping bound, as a sentence; None: no value has clipping bounds."""
        return None

    @property
    def clips_values(self) -> bool:
        """Whether values may lie beyond their clipping bounds."""
        return self.clipping is not None

    @property
    def loss_units(self) -> tuple[Unit, ...]:
        """In which units the same may be requested: see `Claim._loss_units`."""
        return self.claim._loss_units

    def in_unit(self, unit: Unit) -> Self:
        return self.with_claim(self.claim._in_unit(unit)) if unit in self.loss_units else self


class Query(Asked):
    """One statistic about columns: one answer for each group."""

    is_ordered: ClassVar[bool] = False  # whether answers lie on a line, so that one between two others makes sense
    # Whether two ends are drawn with every answer: each is a column of its own, of the answer's type.
    always_has_ends: ClassVar[bool] = False

    @property
    def finds(self) -> tuple[str, ...]:
        """Which clipping bounds, "lower" and "upper", are found privately before the answer."""
        return ()

    @property
    def left_out(self) -> tuple[str, str]:
        """The names of arguments that are found, and a call that gives such ones."""
        return " and ".join(self.finds), "mean(0, 100)"

    @property
    def needs_people(self) -> bool:
        """Whether there is no answer where it is not known who is a person."""
        return False

    @property
    def has_gap(self) -> bool:
        """Whether an answer is a struct of the choice (`answer`) and its gap (`gap`)."""
        return self.claim._gap

    @property
    @abstractmethod
    def fixed_type(self) -> pl.DataType | None:
        """The type of what is drawn; None where only the column's type names the candidates."""

    @abstractmethod
    def answer_type(self, *columns: pl.DataType) -> pl.DataType:
        """Return the answer's type for columns of these types; a TypeError where that can't be."""

    @abstractmethod
    def answers_of_rows(self, columns: Sequence[pl.Series], lengths: Ints) -> pl.Series:
        """Draw one answer per group.

        `columns`: what the query reads, of shape (n,): the rows of all groups, group after group.
        `lengths`: shape (g,): rows of each group; they add up to n.
        """


class HistogramQuery(Query):
    """A statistic that histograms answer: on private frames and on any engine."""

    has_intervals: ClassVar[bool] = False  # whether an answer is a number with a range
    error_needs_rows: ClassVar[bool] = False  # whether errors depend on how many rows a group has
    weighs_people: ClassVar[bool] = False  # whether people beyond the limits count in part: nothing is drawn of them
    is_count: ClassVar[bool] = False  # whether the answer is one or several whole numbers with noise, which may be 0

    of_people: bool = False  # whether candidates are compared by the people who have them
    weights: Weights = ONE_EACH  # by which candidates are compared

    @property
    def clipping(self) -> str | None:
        return clipped_to(0, exact(self.weights.most), "Weights") if self.weights.is_column else None

    @property
    def counts_people(self) -> bool:
        """Whether a person counts once for each code, where it is known who they are."""
        return self.of_people

    @property
    def limits_people(self) -> bool:
        """Whether `range_of` also bounds one person's effect on a group, however many codes they count for."""
        return self.counts_people

    @abstractmethod
    def range_of(self, relation: NeighboringRelation, groups: int | None = None) -> Fraction:
        """Return the most that one row (or person, where people count) changes what the claim's range is about.

        `groups` is how many public groups there are; None where that is not known, as in an expression.
        """

    def same_group_of(self, relation: NeighboringRelation, groups: int | None = None) -> Fraction:  # noqa: ARG002
        """Return the range of a row that is exchanged for another one of its group, as a share of `range_of`."""
        return ALL

    def levels_of(self, relation: NeighboringRelation) -> tuple[Fraction, ...]:  # noqa: ARG002
        """Return the same for each draw of a list, where it differs; empty: it does not."""
        return ()

    @abstractmethod
    def count_rules(self, *columns: pl.DataType) -> tuple[CountRule, ...]:
        """Return what the histograms are of, for such columns; a TypeError or ValueError where there are none."""

    @abstractmethod
    def drawn(self, histograms: Sequence[Histogram], *columns: pl.DataType) -> tuple[pl.Series, ...]:
        """Draw once for each group from its histograms, also for groups without rows.

        The draws are columns of `drawn_types`, a row per group, without null but for an answer that is null itself:
        all that leaves this statistic, and nothing but what was drawn.
        """

    def drawn_once(
        self,
        histograms: Sequence[Histogram],
        known: DrawnOnce,  # noqa: ARG002
        *columns: pl.DataType,
    ) -> tuple[pl.Series, ...]:
        """Return what `drawn` does, with what other statistics of the query drew before; what they share is added."""
        return self.drawn(histograms, *columns)

    def drawn_types(self, *columns: pl.DataType) -> tuple[pl.DataType, ...]:
        """Return the types of the columns of `drawn`: whole numbers (or lists of them), or the answers themselves."""
        return (self.answer_type(*columns),)

    def presented(
        self,
        drawn: Sequence[pl.Series],
        beta: float | None,  # noqa: ARG002
        *columns: pl.DataType,  # noqa: ARG002
    ) -> tuple[pl.Series, ...]:
        """Return the answers that drawn columns stand for, and their two ends where the statistic `has_ends`.

        The answer of a group, and its ends, follow from what was drawn for it, and from what is public.

        `drawn`: what `drawn` gave, or some of its rows.
        `beta`: with which probability a confidence interval may fail to hold the number without noise. None: no
        intervals are wanted.
        """
        return tuple(drawn)

    def has_ends(self, *, intervals: bool) -> bool:
        return self.always_has_ends or (intervals and self.has_intervals)

    def answer_width(self, *columns: pl.DataType) -> int:  # noqa: ARG002
        """Return how many numbers or candidates a group's answer has."""
        return 1

    @property
    def fixed_size(self) -> int | None:
        """Number of codes; None where only the column's type tells it."""
        return None if self.fixed_type is None else self.count_rules()[0].binning.size

    def size_of(self, *columns: pl.DataType) -> int | None:
        size = self.fixed_size
        return self.count_rules(*columns)[0].binning.size if size is None and columns else size

    @abstractmethod
    def error(self, size: int, beta: float, *columns: pl.DataType) -> float | None:
        """Return an error that is exceeded with probability at most `beta` where there are `size` candidates.

        The columns' types may be left out where they are not known yet. None: see `error_among`.
        """

    def error_among(self, rows: int, beta: float, *columns: pl.DataType) -> float | None:  # noqa: ARG002
        """Return such an error among at least `rows` rows, after all bounds; None: it does not depend on them."""
        return None

    @property
    def left_to_column(self) -> str | None:
        """Which argument that errors depend on is left to the column's type; None: no such one.

        In finer steps of weights, errors have a longer tail.
        """
        return "step" if self.weights.step is None else "candidates" if self.fixed_size is None else None

    @property
    def error_unit(self) -> str | None:
        """The unit of errors, if that is not rows or people."""
        return "the weights' unit" if self.weights.is_column else None

    @property
    def adds_up(self) -> bool:
        """Whether every row adds to the answer, so that it is too low without some of them."""
        return False

    @property
    def clips(self) -> tuple[str, str] | None:
        """The part of a person's rows that is clipped together, if people count, and its clipping bounds, as texts.

        That is in addition to the rows that limits drop. None: nothing.
        """
        return ("total weight", f"0 … {exact(self.weights.most)}") if self.weights.is_column else None

    def alternative(self, *columns: pl.DataType) -> HistogramQuery | None:  # noqa: ARG002
        """Return another statistic at the same loss that may answer this one better; a note compares the two."""
        return None

    def of_values(self, *columns: pl.DataType) -> str | None:  # noqa: ARG002
        """Return what is done to values of these types before they count; None: nothing."""
        return None

    def least_people(self, counted: HistogramQuery, *columns: pl.DataType) -> int:  # noqa: ARG002
        """Return from how many people on, by a noisy number of them, an answer hardly lies beyond all of their values.

        Groups without people have fewer, too, both with a probability of 0.95.
        """
        return 1

    def note(self, size: int, alternative: HistogramQuery | None) -> str | None:  # noqa: ARG002
        """Return what to know before a release; None: nothing. `alternative` is under the same limits, if it can be."""
        return None

    def bits_of_parts(self, *columns: pl.DataType) -> tuple[int, ...]:
        """Return for each of `count_rules` in how many parts a unit of its sums is counted, as a power of 2."""
        return (0,) * len(self.count_rules(*columns))

    def under(self, contributions: Contributions, relation: NeighboringRelation, groups: int | None = None) -> Self:
        """Return the same statistic with the rate that the same loss pays for under these limits.

        `groups` is how many public groups there are; None where that is not known.
        """
        same_group = self.same_group_of(relation, groups)
        return self.with_claim(
            replace(
                self.claim,
                score_range=self.range_of(relation, groups),
                _same_group=same_group,
                _groups=None if same_group == ALL else groups,
                _levels=self.levels_of(relation),
                contributions=contributions,
                neighboring_relation=relation,
            )
        )

    def on(self, terms: Terms) -> Self:
        """Return the same statistic with the claim of an expression's terms, at the range that the statistic has."""
        return self.under(terms.contributions, USUAL_RELATION)

    def with_bounds(
        self,
        column: pl.DataType,  # noqa: ARG002
        lower: Fraction | None = None,  # noqa: ARG002
        upper: Fraction | None = None,  # noqa: ARG002
    ) -> Self:
        """Return the statistic with the bounds that were found, those of `finds`."""
        return self

    def answers_of_codes(self, codes: Codes, weights: Ints | None, lengths: Ints, columns: Columns = ()) -> pl.Series:
        """Draw one answer per group from the codes of its rows, shape (n,), group after group."""
        (rule,) = self.count_rules(*columns)
        histogram = Histogram.of_rows(codes, weights, lengths, rule.binning.size)
        return self.presented(self.drawn([histogram], *columns), None, *columns)[0]

    def answers_of_rows(self, columns: Sequence[pl.Series], lengths: Ints) -> pl.Series:
        types = tuple(column.dtype for column in columns)
        (rule,) = self.count_rules(*types)
        return self.answers_of_codes(*rule.of_rows(columns), lengths, types)


#: The clipping of a statistic whose bounds are found.
FOUND_FIRST = "Clipping bounds are found privately, before the answer."


def clipped_to(low: object, high: object, what: str = "Values") -> str:
    """Say what values count as: with which ends, a median as well as a mean is one of clipped values."""
    beyond = f"{what} below {low} count as {low}, and {what.lower()} above {high} as {high}"
    return f"{beyond}, which no confidence interval covers."


def of_histogram(query: Query, asker: str, way_out: str) -> HistogramQuery:
    if not isinstance(query, HistogramQuery):
        msg = (
            f"{asker} must be given a statistic that counts or adds up rows, got an argmax: its scores would be raw "
            "rows.\n\n"
            f"Hint: {way_out}"
        )
        raise TypeError(msg)
    return query


def claim_with_gap(claim: Claim, *, gap: bool) -> Claim:
    if not flag("gap", gap):
        return claim
    if claim.loss.unit != "epsilon":
        msg = (
            f"gap=True must be requested with epsilon, got {claim.loss}: that a gap costs nothing is true of pure "
            "differential privacy only. In rho the loss that is known of a choice does not cover its gap.\n\n"
            "Hint: epsilon=…, which a budget in rho takes too; or request counts in addition to the choice."
        )
        raise ValueError(msg)
    return replace(claim, _gap=True)


def describe(query: Query) -> str:
    claim, lines = query.claim, {"selects": str(query), "loss": str(query.claim)}
    if not claim._is_open:
        other: Unit = "rho" if claim.loss.unit == "epsilon" else "epsilon"
        draws = "" if claim._draws == 1 else f", in each of {claim._draws} draws"
        relation, per_row = "that of the given sensitivity", ""
        if claim.neighboring_relation is not None:
            relation = f"{claim.neighboring_relation}, rows of one person: {claim.contributions.total}"
            per_row = " per row"
        has_other = other == "rho" or claim._has_epsilon
        lines["loss"] += " in all" + (f" (as {other}: {show(claim.cost(other), up=True)})" if has_other else "")
        rate = f"{claim.mechanism}, rate {show(claim.rate)} for R = {show(claim.score_range)}{per_row}" + draws
        lines |= {"mechanism": rate, "relation": relation}
        if isinstance(query, HistogramQuery) and query.fixed_size is not None:
            note = query.note(query.fixed_size, query.alternative())
            lines |= {} if note is None else {"note": note}
    return "\n".join(f"{key + ':':<11}{text}" for key, text in lines.items())


class Mistakes(NamedTuple):
    """How wrong the list of each group is, compared with the best one; each field has the shape (g,)."""

    right: NDArray[np.bool_]  # whether the whole list is as good as the best one
    wrong: Floats  # how far off it is, in `ListQuery.distance_unit`: on average over the list, say
    worst: Floats  # how far off its worst answer is, in the same unit
    # How many rows or people it is off, where `wrong` is about something else. None: there is no such number.
    ranks: Floats | None = None


class ListQuery(HistogramQuery):
    """A statistic whose answer is a list of `width` candidates for each group.

    A class says how codes are drawn (`draw_codes`), which would be right (`true_codes`), and how wrong others are
    (`mistakes`). Expressions, engines and `analysis.simulate`, which draws many lists, need no more.
    """

    @property
    @abstractmethod
    def width(self) -> int:
        """How many answers a list has."""

    @abstractmethod
    def binning(self, *columns: pl.DataType) -> Binning:
        """Return the codes of rows of such columns."""

    def count_rules(self, *columns: pl.DataType) -> tuple[CountRule, ...]:
        return (CountRule(self.binning(*columns), self.weights.units(*columns)),)

    @abstractmethod
    def draw_codes(self, histogram: Histogram, *columns: pl.DataType) -> Ints:
        """Draw the codes of each group's list, shape (g, width)."""

    @abstractmethod
    def true_codes(self, histogram: Histogram, *columns: pl.DataType) -> Ints:
        """Return the codes of each group's best list, shape (g, width); groups without rows get any codes."""

    @abstractmethod
    def mistakes(self, codes: Ints, histogram: Histogram, *columns: pl.DataType) -> Mistakes:
        """Return how wrong lists of codes, shape (g, width), are; groups without rows get any numbers."""

    @abstractmethod
    def named(self, codes: Ints, *columns: pl.DataType) -> pl.Series:
        """Return the lists of candidates that codes of shape (g, width) stand for."""

    @property
    def distance_unit(self) -> str | None:
        """What `Mistakes.wrong` is measured in. None: rows, or people."""
        return None

    def answer_width(self, *columns: pl.DataType) -> int:  # noqa: ARG002
        return self.width

    def drawn(self, histograms: Sequence[Histogram], *columns: pl.DataType) -> tuple[pl.Series, ...]:
        (histogram,) = histograms
        return (self.named(self.draw_codes(histogram, *columns), *columns),)


def in_lists(values: pl.Series, width: int) -> pl.Series:
    groups = len(values) // width
    return values.reshape((groups, width)).arr.to_list() if groups else values.implode().clear()


COUNT = "count"
_CHANCES = (95, 50, 5)  # with which it is said from how many people on a key is shown, in percent


@dataclass(frozen=True)
class KeysThatAreThere(Asked):
    """The keys in some columns that enough people have: combinations of values, none of them null."""

    columns: tuple[str, ...]  # names of the key columns
    claim: Claim  # by "partition_selection" or "discrete_gaussian_threshold", of all keys together
    keys_per_person: int  # for how many keys one person counts, at most
    counts: bool = False  # whether the noisy numbers of people come along

    @classmethod
    def of(
        cls,
        columns: tuple[str, ...],
        terms: Terms,
        delta: Fraction,
        keys_per_person: int,
        relation: NeighboringRelation,
        *,
        counts: bool,
    ) -> KeysThatAreThere:
        """Return the statistic by the mechanism that the unit of the loss chooses.

        A replaced person takes away one of at most g keys each, and the new one adds one: 2g keys change by one.
        """
        changed = Contributions(keys_per_person * (1 if relation == "add_or_remove_one" else 2), 1)
        mechanism = check_mechanism("keys", None, terms.loss.unit)
        claim = Claim(
            terms.loss, mechanism, Fraction(1), changed, relation, delta=delta, _loss_weight=terms.loss_weight
        )
        return cls(columns, claim, keys_per_person, counts)

    @property
    def loss_units(self) -> tuple[Unit, ...]:
        """In which units the same may be requested: partition selection has no numbers of people."""
        return ("rho",) if self.counts else super().loss_units

    def __post_init__(self) -> None:
        if not self.claim._is_open:
            _ = self.selection  # refuses what can't be drawn

    @cached_property
    def selection(self) -> KeySelection:
        return _SELECTIONS[self.claim.mechanism](self)

    @property
    def people_needed(self) -> tuple[float | None, str]:
        """From how many people on a key is shown with a probability of 0.95, and more of that as sentences."""
        per_person = f"A person counts for at most {plural(self.keys_per_person, 'key')}."
        if self.claim._is_open:
            return None, f"{str(self.claim).capitalize()}: so no error is known. {per_person}"
        selection = self.selection
        shown, half, rarely = (selection.people_for(chance / 100) for chance in _CHANCES)
        notes = [f"Shown with 95 % from {shown:,} people on, with 50 % from {half:,}, with 5 % from {rarely:,}."]
        if isinstance(selection, GaussianThreshold):
            notes.append(f"The noisy number of people must reach {selection.threshold:,}.")
        return float(shown), " ".join([*notes, per_person])

    def types(self, schema: pl.Schema) -> pl.Schema:
        types = {}
        for name in self.columns:
            column_types.must_have(name, schema, "key column {}")
            dtype = schema[name]
            if column_types.family(dtype) is None or dtype.is_float():
                msg = f"keys: the column {name!r} must hold text, integers, decimals, booleans or times, got {dtype}."
                if dtype.is_float():
                    msg += "\n\nHint: round or cut it to integers, decimals or categories first."
                raise TypeError(msg)
            types[name] = column_types.released(dtype)
        return pl.Schema(types)

    def drawn(self, keys: Sequence[pl.Series], people: Ints) -> tuple[NDArray[np.bool_], Ints | None]:
        """Draw once for each key: whether it is shown, and its noisy number, if there is one.

        Keys of 128-bit types that `group_by` would not take are not shown. That is a rule on the key alone.
        """
        shown, noisy = self.selection.draw(people)
        for column in keys:
            if column_types.is_wide(column.dtype):
                shown &= column_types.are_within_64_bits(column)
        return shown, noisy

    def released(self, keys: pl.DataFrame, people: Ints) -> pl.DataFrame:
        """Draw once for every key that somebody has, and return those that are shown: see `KeyWork.assemble`."""
        shown, noisy = self.drawn(keys.get_columns(), people)
        counted = [pl.Series(COUNT, noisy)] if self.counts else []
        left = keys.select(self.columns).with_columns(counted).filter(pl.Series(shown)).sort(self.columns)
        return pl.DataFrame({column.name: _anew(column) for column in left.get_columns()})

    def __str__(self) -> str:
        names = ", ".join(map(repr, self.columns))
        return f"the {names} that enough people have" + (", with their number" if self.counts else "")


def _by_partition(query: KeysThatAreThere) -> KeySelection:
    claim = query.claim
    return PartitionSelection(claim.rate, delta_of_one_key(claim.delta, claim.contributions.total))


def _by_threshold(query: KeysThatAreThere) -> KeySelection:
    variance = 1 / query.claim.rate**2
    return GaussianThreshold(variance, threshold_for(variance, query.claim.delta, query.keys_per_person))


_SELECTIONS = {"partition_selection": _by_partition, "discrete_gaussian_threshold": _by_threshold}


def _anew(column: pl.Series) -> pl.Series:
    """Return the values in memory of their own.

    Rows that are left out stay in the buffers of a filtered column: texts, and the bits after the last one of booleans.
    """
    column = column.rechunk()
    if column.dtype == pl.Boolean:
        return pl.Series(column.name, column.to_numpy())
    return pl.Series(column.name, column.to_arrow()) if column.dtype == pl.String else column
