"""The interface of a statistic, lists of answers, and selected keys."""

from __future__ import annotations

import re
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
from dp_polars._accounting.costs import ALL, MechanismKind
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
from dp_polars._mechanisms.renyi_selection import RenyiSelection

# The types of the columns that a query reads, in their order.
Columns: TypeAlias = "tuple[pl.DataType, ...]"
# Draws that several statistics of a query use, by key.
DrawnOnce: TypeAlias = "dict[object, pl.Series]"


@dataclass(frozen=True)
class CountRule:
    """How one histogram counts rows: their codes, and their weights (None: 1 each)."""

    binning: Binning
    row_weight: Clamping | None = None

    def of_rows(self, columns: Sequence[pl.Series]) -> tuple[Codes, Ints | None]:
        """Return each row's code and weight, shape (n,) each; None for weights of 1."""
        return self.binning.encoder()(columns), None if self.row_weight is None else self.row_weight.weigh(columns)


class Asked(ABC):
    """The statistic, with its terms: its privacy claim follows from both."""

    mechanism_kind: ClassVar[MechanismKind] = "choice"
    terms: Terms
    in_parts: bool = False  # whether people beyond the contribution limits count in part

    def __post_init__(self) -> None:
        _ = self.claim  # raises if the terms don't fit

    @abstractmethod
    def __str__(self) -> str:
        """Return the statistic in a few words, for claims, messages and the ledger."""

    @cached_property
    def claim(self) -> Claim:
        """The privacy claim. Those of its draws are made from it."""
        terms, groups = self.terms, self.groups
        mechanism = check_mechanism(self.mechanism_kind, self.mechanism, terms.loss.unit)
        relation = terms.neighboring_relation or USUAL_RELATION  # a range of the caller's own is for any relation
        same_group, score_range = self.same_group_of(relation, groups), self.range_of(relation, groups)
        return Claim(
            *(terms.loss, mechanism, score_range, terms.contributions, terms.neighboring_relation),
            _draws=self.draws,
            _same_group=same_group,
            _groups=None if same_group == ALL else groups,
            _levels=self.levels_of(relation),
            _attained=terms.attained,
            _gap=terms.gap,
            delta=terms.delta,
            _loss_weight=terms.loss_weight,
            _is_asked=terms.mechanism is not None,
        )

    @abstractmethod
    def range_of(self, relation: NeighboringRelation, groups: int | None = None) -> Fraction:
        """Return the range of the claim: the most that one row (or person, if people count) changes.

        `groups` is the number of public groups; None if it is unknown, as in an expression.
        """

    def same_group_of(self, relation: NeighboringRelation, groups: int | None = None) -> Fraction:  # noqa: ARG002
        """Return the range if a row is exchanged within its group, as a part of `range_of`."""
        return ALL

    def levels_of(self, relation: NeighboringRelation) -> tuple[Fraction, ...]:  # noqa: ARG002
        """Return `same_group_of` for each draw of a list; empty if all are equal."""
        return ()

    @property
    def draws(self) -> int:
        """The number of draws that share the loss equally."""
        return 1

    @property
    def mechanism(self) -> str | None:
        """The mechanism by name; None: the better one for the unit of the loss."""
        return self.terms.mechanism

    @property
    def groups(self) -> int | None:
        """The number of public groups of the claim; None if it is unknown."""
        return self.terms.groups

    def with_terms(self, terms: Terms) -> Self:
        return replace(self, terms=terms)  # type: ignore[type-var]  # every statistic is a dataclass

    def with_loss(self, value: Fraction) -> Self:
        """Return the statistic at another loss in the same unit."""
        return self.with_terms(self.terms.with_loss(value))

    @property
    def clipping(self) -> str | None:
        """A sentence about clipped values; None if no value is clipped."""
        return None

    @property
    def clips_values(self) -> bool:
        """Whether values may be beyond their clipping bounds."""
        return self.clipping is not None

    @property
    def loss_units(self) -> tuple[Unit, ...]:
        """The units in which this statistic may be requested: see `Claim._loss_units`."""
        return self.claim._loss_units

    def in_unit(self, unit: Unit) -> Self:
        """Change the unit of the loss, not its number: the statistic stays as it is if it has only the other unit."""
        if unit == self.terms.loss.unit or unit not in self.loss_units:
            return self
        return self.with_terms(replace(self.terms, loss=replace(self.terms.loss, unit=unit)))


class Query(Asked):
    """One statistic about columns: one answer for each group."""

    is_ordered: ClassVar[bool] = False  # whether answers are on a line, so that one between two others makes sense
    # Whether each answer has two ends, in columns of their own and of the answer's type.
    always_has_ends: ClassVar[bool] = False

    @property
    def finds(self) -> tuple[str, ...]:
        """The clipping bounds, "lower" and "upper", that are found privately before the answer."""
        return ()

    @property
    def left_out(self) -> tuple[str, str]:
        """The arguments that are found privately, and a call that sets them."""
        return " and ".join(self.finds), "mean(0, 100)"

    @property
    def needs_people(self) -> bool:
        """Whether this statistic requires a known privacy unit."""
        return False

    @property
    def has_gap(self) -> bool:
        """Whether an answer is a struct of the choice (`answer`) and its gap (`gap`)."""
        return self.terms.gap

    @property
    @abstractmethod
    def fixed_type(self) -> pl.DataType | None:
        """The type of a drawn answer; None if the column's type defines the candidates."""

    @abstractmethod
    def answer_type(self, *columns: pl.DataType) -> pl.DataType:
        """Return the answer's type for columns of these types; raise TypeError if they don't fit."""

    @abstractmethod
    def answers_of_rows(self, columns: Sequence[pl.Series], lengths: Ints) -> pl.Series:
        """Draw one answer per group.

        `columns`: the columns that the query reads, shape (n,): the rows of all groups, group after group.
        `lengths`: shape (g,): rows of each group; they add up to n.
        """


class HistogramQuery(Query):
    """A statistic that histograms answer: on private frames and on any engine."""

    has_intervals: ClassVar[bool] = False  # whether an answer is a number with a confidence interval
    error_needs_rows: ClassVar[bool] = False  # whether errors depend on the number of rows in a group
    weighs_people: ClassVar[bool] = False  # whether people beyond the limits count in part; no noise is drawn for that
    is_count: ClassVar[bool] = False  # whether the answer is one or several whole numbers with noise, which may be 0

    of_people: bool = False  # whether candidates are compared by the people who have them
    weights: Weights = ONE_EACH  # the weights that compare candidates

    @property
    def clipping(self) -> str | None:
        return clipped_to(0, exact(self.weights.most), "Weights") if self.weights.is_column else None

    @property
    def counts_people(self) -> bool:
        """Whether a person counts once for each code, if the privacy unit is known."""
        return self.of_people

    @property
    def limits_people(self) -> bool:
        """Whether `range_of` also bounds one person's effect on a group, for any number of codes."""
        return self.counts_people

    @abstractmethod
    def count_rules(self, *columns: pl.DataType) -> tuple[CountRule, ...]:
        """Return the rule of each histogram for such columns; raise TypeError or ValueError if they don't fit."""

    @abstractmethod
    def drawn(self, histograms: Sequence[Histogram], *columns: pl.DataType) -> tuple[pl.Series, ...]:
        """Draw once for each group from its histograms, also for groups without rows.

        The draws are columns of `drawn_types`, a row per group. They are null only if the answer itself is null.
        Nothing else leaves this statistic.
        """

    def drawn_once(
        self,
        histograms: Sequence[Histogram],
        known: DrawnOnce,  # noqa: ARG002
        *columns: pl.DataType,
    ) -> tuple[pl.Series, ...]:
        """Return `drawn`, reusing the draws in `known`; new draws that others can use are added to it."""
        return self.drawn(histograms, *columns)

    def drawn_types(self, *columns: pl.DataType) -> tuple[pl.DataType, ...]:
        """Return the types of the columns of `drawn`: whole numbers (or lists of them), or the answers."""
        return (self.answer_type(*columns),)

    def presented(
        self,
        drawn: Sequence[pl.Series],
        beta: float | None,  # noqa: ARG002
        *columns: pl.DataType,  # noqa: ARG002
    ) -> tuple[pl.Series, ...]:
        """Return answers from drawn columns, and their two ends if the statistic `has_ends`.

        A group's answer and its ends depend only on its draws and on public values.

        `drawn`: columns from `drawn`, or some of their rows.
        `beta`: the probability with which a confidence interval may miss the number without noise. None: return no
        intervals.
        """
        return tuple(drawn)

    def has_ends(self, *, intervals: bool) -> bool:
        return self.always_has_ends or (intervals and self.has_intervals)

    def answer_width(self, *columns: pl.DataType) -> int:  # noqa: ARG002
        """Return the number of numbers or candidates in a group's answer."""
        return 1

    @property
    def fixed_size(self) -> int | None:
        """Number of codes; None if only the column's type defines it."""
        return None if self.fixed_type is None else self.count_rules()[0].binning.size

    def size_of(self, *columns: pl.DataType) -> int | None:
        size = self.fixed_size
        return self.count_rules(*columns)[0].binning.size if size is None and columns else size

    @abstractmethod
    def error(self, size: int, beta: float, *columns: pl.DataType) -> float | None:
        """Return an error that is exceeded with probability at most `beta`, for `size` candidates.

        The columns' types may be missing while they are unknown. None: see `error_among`.
        """

    def error_among(self, rows: int, beta: float, *columns: pl.DataType) -> float | None:  # noqa: ARG002
        """Return such an error for groups of at least `rows` rows, after all limits; None if rows don't matter."""
        return None

    @property
    def left_to_column(self) -> str | None:
        """The argument that errors depend on and the column's type will set; None if there is none.

        With finer steps of weights, errors have a longer tail.
        """
        return "step" if self.weights.step is None else "candidates" if self.fixed_size is None else None

    @property
    def error_unit(self) -> str | None:
        """The unit of errors; None for rows or people."""
        return "the weights' unit" if self.weights.is_column else None

    @property
    def adds_up(self) -> bool:
        """Whether every row adds to the answer, so that it is too low without some rows."""
        return False

    @property
    def clips(self) -> tuple[str, str] | None:
        """The part of a person's rows that is clipped together, if people count, and its clipping bounds, as texts.

        This comes after limits drop rows. None: nothing is clipped.
        """
        return ("total weight", f"0 … {exact(self.weights.most)}") if self.weights.is_column else None

    def alternative(self, *columns: pl.DataType) -> HistogramQuery | None:  # noqa: ARG002
        """Return another statistic at the same loss that may be more accurate; a note compares the two."""
        return None

    def of_values(self, *columns: pl.DataType) -> str | None:  # noqa: ARG002
        """Return how values of these types are changed before they count; None if they are not."""
        return None

    def least_people(self, counted: HistogramQuery, *columns: pl.DataType) -> int:  # noqa: ARG002
        """Return the noisy number of people from which on an answer hardly lies beyond all of their values.

        Groups without people are below it. Each is true with a probability of 0.95.
        """
        return 1

    def note(self, size: int, alternative: HistogramQuery | None) -> str | None:  # noqa: ARG002
        """Return advice before a release, or None. `alternative` has the same limits if it exists."""
        return None

    def bits_of_parts(self, *columns: pl.DataType) -> tuple[int, ...]:
        """Return, for each of `count_rules`, into how many parts a unit of its sums is divided, as a power of 2."""
        return (0,) * len(self.count_rules(*columns))

    def under(self, contributions: Contributions, relation: NeighboringRelation, groups: int | None = None) -> Self:
        """Return the same statistic at the rate that the same loss buys under these limits.

        `groups` is the number of public groups; None if it is unknown.
        """
        return self.with_terms(
            replace(self.terms, contributions=contributions, neighboring_relation=relation, groups=groups)
        )

    def with_bounds(
        self,
        column: pl.DataType,  # noqa: ARG002
        lower: Fraction | None = None,  # noqa: ARG002
        upper: Fraction | None = None,  # noqa: ARG002
    ) -> Self:
        """Return the statistic with found bounds, for the names in `finds`."""
        return self

    def answers_of_codes(self, codes: Codes, weights: Ints | None, lengths: Ints, columns: Columns = ()) -> pl.Series:
        """Draw one answer per group from its rows' codes, shape (n,), group after group."""
        (rule,) = self.count_rules(*columns)
        histogram = Histogram.of_rows(codes, weights, lengths, rule.binning.size)
        return self.presented(self.drawn([histogram], *columns), None, *columns)[0]

    def answers_of_rows(self, columns: Sequence[pl.Series], lengths: Ints) -> pl.Series:
        types = tuple(column.dtype for column in columns)
        (rule,) = self.count_rules(*types)
        return self.answers_of_codes(*rule.of_rows(columns), lengths, types)


#: Describes the clipping of a statistic that finds its bounds privately.
FOUND_FIRST = "Clipping bounds are found privately, before the answer."


def clipped_to(low: object, high: object, what: str = "Values") -> str:
    """Describe clipping: quantiles are those of clipped values, too."""
    low, high = by_thousands(low), by_thousands(high)
    beyond = f"{what} below {low} count as {low}, and {what.lower()} above {high} as {high}"
    return f"{beyond}, which no confidence interval covers."


def by_thousands(value: object) -> str:
    """Return a bound with commas between thousands, from five digits on: four may be a year."""
    text = str(value).removesuffix(".0")
    return re.sub(r"^-?\d{5,}(?![^.])", lambda digits: f"{int(digits[0]):,}", text)


def of_histogram(query: Query, asker: str, way_out: str) -> HistogramQuery:
    if not isinstance(query, HistogramQuery):
        msg = (
            f"{asker} must be given a statistic that counts or adds up rows, got an argmax: its scores would be raw "
            "rows.\n\n"
            f"Hint: {way_out}"
        )
        raise TypeError(msg)
    return query


def terms_with_gap(terms: Terms, *, gap: bool) -> Terms:
    has_gap = flag("gap", gap)
    if has_gap and terms.loss.unit != "epsilon":
        msg = (
            f"gap=True must be requested with epsilon, got {terms.loss}: that a gap costs nothing is true of pure "
            "differential privacy only. In rho the loss that is known of a choice does not cover its gap.\n\n"
            "Hint: epsilon=…, which a budget in rho takes too; or request counts in addition to the choice."
        )
        raise ValueError(msg)
    return replace(terms, gap=has_gap)


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
    """How wrong each group's list is, compared with the best one; each field has the shape (g,)."""

    right: NDArray[np.bool_]  # whether the whole list is as good as the best one
    wrong: Floats  # how far off it is, in `ListQuery.distance_unit`, such as on average over the list
    worst: Floats  # how far off its worst answer is, in the same unit
    # The error in rows or people, if `wrong` measures something else. None: there is no such number.
    ranks: Floats | None = None


class ListQuery(HistogramQuery):
    """A statistic with a list of `width` candidates for each group as its answer.

    A class defines how codes are drawn (`draw_codes`), the right ones (`true_codes`), and the errors of others
    (`mistakes`). Expressions, engines and `analysis.simulate`, which draws many lists, need no more.
    """

    @property
    @abstractmethod
    def width(self) -> int:
        """The number of answers in a list."""

    @property
    @abstractmethod
    def draws(self) -> int:
        """The number of draws that share the loss equally: a privacy claim, so it has no default."""

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
        """Return the codes of each group's best list, shape (g, width); any codes for groups without rows."""

    @abstractmethod
    def mistakes(self, codes: Ints, histogram: Histogram, *columns: pl.DataType) -> Mistakes:
        """Return the errors of lists of codes, shape (g, width); any numbers for groups without rows."""

    @abstractmethod
    def named(self, codes: Ints, *columns: pl.DataType) -> pl.Series:
        """Return the lists of candidates for codes of shape (g, width)."""

    @property
    def distance_unit(self) -> str | None:
        """The unit of `Mistakes.wrong`. None: rows, or people."""
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
_CHANCES = (95, 50, 5)  # in percent: the chances for which we report how many people a shown key needs


@dataclass(frozen=True)
class KeysThatAreThere(Asked):
    """The combinations of values in some columns that enough people have; none of the values is null."""

    columns: tuple[str, ...]  # names of the key columns
    terms: Terms  # of all keys together
    keys_per_person: int  # the most keys for which one person counts
    counts: bool = False  # whether to add the noisy numbers of people
    mechanism_kind: ClassVar[MechanismKind] = "keys"

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
        """Return the statistic with the mechanism that fits the loss's unit.

        A replaced person removes one of at most g keys each, and the new one adds one: 2g keys change by one.
        """
        changed = Contributions(keys_per_person * (1 if relation == "add_or_remove_one" else 2), 1)
        mechanism = "discrete_gaussian_threshold" if counts else None
        terms = replace(terms, mechanism=mechanism, contributions=changed, neighboring_relation=relation, delta=delta)
        return cls(columns, terms, keys_per_person, counts)

    def range_of(self, relation: NeighboringRelation, groups: int | None = None) -> Fraction:  # noqa: ARG002
        return Fraction(1)

    @property
    def loss_units(self) -> tuple[Unit, ...]:
        """The units in which this may be requested: partition selection has no numbers of people."""
        return ("rho",) if self.counts else super().loss_units

    def __post_init__(self) -> None:
        if not self.claim._is_open:
            _ = self.selection  # raises if it can't be drawn

    @cached_property
    def selection(self) -> KeySelection:
        return _SELECTIONS[self.claim.mechanism](self)

    @property
    def people_needed(self) -> tuple[float | None, str]:
        """The number of people from which on a key is shown with a probability of 0.95, and details as sentences."""
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

        Keys of 128-bit types that `group_by` rejects are not shown. That depends on the key only.
        """
        shown, noisy = self.selection.draw(people)
        for column in keys:
            if column_types.is_wide(column.dtype):
                shown &= column_types.are_within_64_bits(column)
        return shown, noisy

    def released(self, keys: pl.DataFrame, people: Ints) -> pl.DataFrame:
        """Draw once for every key that occurs, and return the shown ones: see `KeyWork.assemble`."""
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


def _by_renyi(query: KeysThatAreThere) -> KeySelection:
    claim = query.claim
    rho, delta = claim.rate**2 / 2, delta_of_one_key(claim.delta, claim.contributions.total)
    return RenyiSelection(rho, delta) if RenyiSelection.has_table(rho, delta) else _by_threshold(query)


_SELECTIONS = {
    "partition_selection": _by_partition,
    "renyi_partition_selection": _by_renyi,
    "discrete_gaussian_threshold": _by_threshold,
}


def _anew(column: pl.Series) -> pl.Series:
    """Return the values in memory of their own.

    Rows that are left out stay in the buffers of a filtered column: texts, and the bits after the last one of booleans.
    """
    column = column.rechunk()
    if column.dtype == pl.Boolean:
        return pl.Series(column.name, column.to_numpy())
    return pl.Series(column.name, column.to_arrow()) if column.dtype == pl.String else column
