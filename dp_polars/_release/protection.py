"""What one person may contribute: the protection of a frame, and the bounds on a person's rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from dp_polars._accounting.terms import Contributions, NeighboringRelation, check_relation, in_words
from dp_polars._base.column_types import PrivacyUnit, privacy_unit_of, shown, text_of
from dp_polars._base.numbers import (
    Ints,
    Rng,
    begin_runs,
    marked_so_far,
    owners,
    positive_int,
    sorted_words,
    system_rng,
)
from dp_polars._questions.question import HistogramQuery

Marks = NDArray[np.bool_]

_PAIRS_PER_ROW = 4  # places of a table for each row, up to which pairs are numbered by it, not by sorting


@dataclass(frozen=True)
class Limits:
    """The most that counts of one person's rows in one output; None: all of them."""

    rows: int | None = None  # rows in all. Not for counts of people.
    groups: int | None = None  # groups in all
    rows_per_group: int | None = None  # rows in each group. Not for counts of people.

    @property
    def everything(self) -> bool:
        return self == Limits()


@dataclass(frozen=True)
class Layout:
    """How groups and codes are laid out in cells."""

    group_bits: int
    code_bits: int

    @classmethod
    def of(cls, groups: int, size: int, where: str = "") -> Layout:
        layout = cls(max(groups - 1, 0).bit_length(), (size - 1).bit_length())
        if not layout.bits <= 64:
            msg = (
                f"{where}groups times candidates must fit into 64 bits, got {groups:,} groups and {size:,} candidates."
                "\n\n"
                "Hint: take fewer groups, or a wider step between the candidates."
            )
            raise ValueError(msg)
        return layout

    @property
    def bits(self) -> int:
        return self.group_bits + self.code_bits


@dataclass(frozen=True, eq=False)
class BoundedRows:
    """What one spec keeps of people's rows."""

    limits: Limits
    evidence: Marks | None = None  # shape (n,): the rows that say something. None: all of them.
    # Shape (n,), where people count: rows of a person with the same group and code are one. None: rows count.
    codes: NDArray[np.integer] | None = None


@dataclass(frozen=True, eq=False)
class Stays:
    """What stays for a spec."""

    # Ascending places of the rows that stay; where people count, of one row for each group and code of a person.
    rows: Ints
    # Shape (n,), where people count: a number for the person, the group and the code of each row that is evidence, none
    # much above n; -1 for other rows.
    whose: Ints | None = None


def keep(
    lengths: Ints, groups: NDArray[np.integer], specs: Sequence[BoundedRows], rng: Rng | None = None
) -> list[Stays]:
    """Return what stays for each spec, by one order of each person's groups and one of each person's rows.

    Both are uniformly random, independent of each other, and chosen by words of that person's own. A spec keeps, of
    its evidence, the first `limits.groups` groups, in each the first `limits.rows_per_group` rows, and of these the
    first `limits.rows`. Where people count, a code comes where its first row does. Orders are drawn only where a bound
    binds.

    `lengths`: shape (p,): rows of each person; they add up to n.
    `groups`: shape (n,): the group of each row, person after person, and of each person group after group.
    """
    rng = rng or system_rng()
    people, owner = len(lengths), owners(lengths)
    begins = begin_runs(owner) | begin_runs(groups)
    first = np.flatnonzero(begins)
    pair, person = marked_so_far(begins) - 1, owner[first]
    views = [_View.of(asked, pair, first) for asked in specs]
    over_groups, over_rows, over_pair = np.zeros(people, bool), np.zeros(people, bool), np.zeros(len(person), bool)
    for limits, counts in ((view.limits, view.counts) for view in views):
        if limits.groups is not None:
            over_groups |= np.bincount(person[np.flatnonzero(counts)], minlength=people) > limits.groups
        if limits.rows_per_group is not None:
            over_pair |= counts > limits.rows_per_group
        if limits.rows is not None:
            most = counts if limits.rows_per_group is None else np.minimum(counts, limits.rows_per_group)
            over_rows |= np.bincount(person, most, people) > limits.rows
    by_group = _RandomOrder.drawn(over_groups[person], person, rng)
    if over_rows.any():
        by_row = _RandomOrder.drawn((over_pair | over_rows[person])[pair], person[pair], rng)
        by_pair = by_row.within(pair)
    else:  # only the order within each pair is looked at
        by_row = by_pair = _RandomOrder.drawn(over_pair[pair], pair, rng)
    return [view.stays(pair, by_group, by_pair, by_row) for view in views]


@dataclass(frozen=True, eq=False)
class _RandomOrder:
    """Some items one after the other, those of one label together."""

    items: Ints
    labels: NDArray[np.integer]  # ascending: one of each item

    @classmethod
    def drawn(cls, some: Marks, labels: Ints, rng: Rng) -> _RandomOrder:
        """Return the marked items by label, which ascends already, in a random order where it is equal."""
        items = np.flatnonzero(some)
        labels = labels[items]
        return cls(items[_shuffle(labels, rng)], labels)

    def within(self, labels: Ints) -> _RandomOrder:
        """Return the same items by another label, in the same order where it is equal."""
        keys = labels[self.items].view(np.uint64)
        order, ascending = _placed(keys << _place_bits(keys))
        return _RandomOrder(self.items[order], ascending)

    def keep_first(self, marks: Marks, most: int | None) -> None:
        """Take all marks away from the items of each label but the first `most` ones."""
        if most is None:
            return
        along = np.flatnonzero(marks[self.items])
        labels = self.labels[along]
        # An item is over the bound if the marked one `most` places before it is of the same label.
        over = along[most:][np.flatnonzero(labels[most:] == labels[:-most])]
        marks[self.items[over]] = False


@dataclass(frozen=True, eq=False)
class _View:
    """What is evidence for a spec: the rows, how many count in each pair, and where people count, whose each is."""

    limits: Limits
    marks: Marks  # where people count, one row of each group and code of a person
    counts: Ints
    whose: Ints | None = None

    @classmethod
    def of(cls, asked: BoundedRows, pair: Ints, first: Ints) -> _View:
        """Return the view of rows of these pairs, each of which begins at its first row."""
        pairs = len(first)
        if asked.evidence is None and asked.codes is not None and not asked.codes.any():  # one row of each pair
            marks = np.zeros(len(pair), bool)
            marks[first] = True
            return cls(asked.limits, marks, np.ones(pairs, np.int64), pair)
        rows = np.arange(len(pair)) if asked.evidence is None else np.flatnonzero(asked.evidence)
        owner = pair if asked.evidence is None else pair[rows]
        if asked.codes is None:
            marks = np.ones(len(pair), bool) if asked.evidence is None else asked.evidence.copy()
            return cls(asked.limits, marks, np.bincount(owner, minlength=pairs))
        numbers = _numbered(owner, asked.codes[rows], pairs)
        marks, last, whose = np.zeros(len(pair), bool), np.full(numbers.max(initial=-1) + 1, -1), numbers
        last[numbers] = rows
        last = last[np.flatnonzero(last >= 0)]
        marks[last] = True
        if asked.evidence is not None:
            whose = np.full(len(pair), -1)
            whose[rows] = numbers
        return cls(asked.limits, marks, np.bincount(pair[last], minlength=pairs), whose)

    def stays(self, pair: Ints, by_group: _RandomOrder, by_pair: _RandomOrder, by_row: _RandomOrder) -> Stays:
        marks = self.marks
        if self.whose is not None and (self.limits.rows, self.limits.rows_per_group) != (None, None):
            marks = self._first(self.whose, by_row)
        if self.limits.groups is not None and len(by_group.items):
            groups = self.counts > 0
            by_group.keep_first(groups, self.limits.groups)
            marks &= groups[pair]
        by_pair.keep_first(marks, self.limits.rows_per_group)
        by_row.keep_first(marks, self.limits.rows)
        return Stays(np.flatnonzero(marks), self.whose)

    def _first(self, whose: Ints, by_row: _RandomOrder) -> Marks:
        """Mark the first row of each group and code of a person; where no order was drawn, the one that is marked."""
        marks, first = np.zeros(len(whose), bool), np.full(whose.max(initial=-1) + 1, -1)
        for order in (np.flatnonzero(self.marks), by_row.items[::-1]):  # where it is written to again, the last stays
            seen = order[whose[order] >= 0]
            first[whose[seen]] = seen
        marks[first[first >= 0]] = True
        return marks


def random_few(lengths: Ints, most: int, rng: Rng) -> Marks:
    """Return which items stay, shape (n,): `most` random ones of each owner who has more, all of the others'."""
    owner = owners(lengths)
    stays = np.ones(len(owner), bool)
    _RandomOrder.drawn((lengths > most)[owner], owner, rng).keep_first(stays, most)
    return stays


def _numbered(owner: Ints, labels: NDArray[np.integer], owners: int) -> Ints:
    """Return a number for each pair of an owner (ascending) and a label, shape (n,), none much above n."""
    size = int(labels.max(initial=0)) + 1
    if owners * size <= _PAIRS_PER_ROW * len(owner):
        numbers = owner * size
        np.add(numbers, labels, out=numbers, casting="unsafe")  # uint64 labels would make floats
        return numbers
    bits = (size - 1).bit_length()
    if bits + owners.bit_length() > 64:  # only then: it is another sort
        labels = np.unique(labels, return_inverse=True)[1]
        bits = _bits(labels)
    keys = (owner.view(np.uint64) << np.uint64(bits)) | labels.astype(np.uint64)
    places = _place_bits(owner)
    has_room = bits + owners.bit_length() + int(places) <= 64
    order = _placed(keys << places)[0] if has_room else np.argsort(keys)
    numbers = np.empty(len(owner), np.int64)
    numbers[order] = marked_so_far(begin_runs(keys[order])) - 1
    return numbers


def _shuffle(labels: Ints, rng: Rng) -> Ints:
    """Return an order of the items by their labels, exactly uniform where these are equal."""
    bits = np.uint64(64 - max(_bits(labels), 1))
    keys = labels.view(np.uint64) << bits
    keys |= rng(len(labels)) >> (np.uint64(64) - bits)
    order, ascending = _placed(keys)
    is_new = begin_runs(ascending)
    if is_new.all():
        return order
    # Too few bits for some: they are labels that share a number now, and get more.
    return order[_shuffle(marked_so_far(is_new) - 1, rng)]


def _placed(keys: NDArray[np.uint64]) -> tuple[Ints, NDArray[np.uint64]]:
    """Return the order of the keys by all but their last bits, which make room for the place, and these in that order.

    It is one sort of one word.
    """
    places = _place_bits(keys)
    words = sorted_words((keys >> places << places) | np.arange(len(keys), dtype=np.uint64))
    return (words & ((np.uint64(1) << places) - np.uint64(1))).view(np.int64), words >> places


def _place_bits(items: NDArray[np.integer]) -> np.uint64:
    return np.uint64(max(len(items) - 1, 0).bit_length())


def _bits(labels: NDArray[np.integer]) -> int:
    return int(labels.max(initial=0)).bit_length()


_BOUNDS = ("max_rows", "max_groups", "max_rows_per_group")


@dataclass(frozen=True)
class Protection:
    """Who a person is, and how much of a person's data may count."""

    unit: PrivacyUnit | None  # the columns whose values together tell people apart; None: every row is another person
    # How much of one person counts in one output: rows in all, groups, and rows in each group. None: not bounded.
    max_rows: int | None
    max_groups: int | None
    max_rows_per_group: int | None
    neighboring_relation: NeighboringRelation

    @property
    def privacy_unit(self) -> str | None:
        """The privacy unit as a text: the name of one column, or several as JSON."""
        return text_of(self.unit)

    @classmethod
    def of(
        cls,
        privacy_unit: str | Sequence[str] | None,
        max_rows: int | None,
        max_groups: int | None,
        max_rows_per_group: int | None,
        neighboring_relation: str,
    ) -> Protection:
        unit, relation = privacy_unit_of(privacy_unit), check_relation(neighboring_relation)
        asked = zip(_BOUNDS, (max_rows, max_groups, max_rows_per_group), strict=True)
        given = {name: value for name, value in asked if value is not None}
        return cls(unit, None, None, None, relation).with_limits(**given)

    def with_limits(self, **given: int | None) -> Protection:
        """Return the protection with other limits, by their names. None: no such limit."""
        if self.unit is None and given:
            msg = (
                f"{', '.join(given)} must be left out where privacy_unit is None: every row is a person.\n\n"
                "Hint: in protect, name the column that tells people apart."
            )
            raise ValueError(msg)
        limits = {name: value if value is None else positive_int(name, value) for name, value in given.items()}
        return replace(self, **limits)  # type: ignore[arg-type]  # by their names

    def refuse_no_unit(self, call: str, why: str = "every row is a person") -> None:
        if self.unit is None:
            msg = (
                f"{call}: there must be a privacy unit, got None: {why}.\n\n"
                "Hint: name the column that tells people apart, in protect."
            )
            raise ValueError(msg)

    @property
    def bounds(self) -> dict[str, int]:
        bounds = {name: getattr(self, name) for name in _BOUNDS}
        return {name: value for name, value in bounds.items() if value is not None}

    def bounds_of(self, query: HistogramQuery) -> dict[str, int]:
        bounds = self.bounds
        if self._bounds_groups_only(query):
            bounds.pop("max_rows_per_group", None)
        return bounds

    def counts_people(self, query: HistogramQuery) -> bool:
        return self.privacy_unit is not None and query.counts_people

    def counts(self, query: HistogramQuery) -> Literal["people", "rows"]:
        return "people" if self.privacy_unit is None or self.counts_people(query) else "rows"

    def _bounds_groups_only(self, query: HistogramQuery) -> bool:
        return self.counts_people(query) and query.bounds_people

    def contributions(self, query: HistogramQuery, groups: int) -> Contributions:
        """Return the contribution bounds used to calibrate `query` over this number of public groups."""
        if query.needs_people and self.privacy_unit is None:
            msg = (
                f"privacy_unit must be given for a {query}.\n\n"
                "Hint: in protect, name the column that tells people apart."
            )
            raise ValueError(msg)
        if self.privacy_unit is None:
            return Contributions(1, 1)
        in_groups = min(self.max_groups or groups, groups)
        if self._bounds_groups_only(query):
            return Contributions(min(self.max_rows or in_groups, in_groups), 1)
        per_group = self.max_rows_per_group or self.max_rows
        if self.counts_people(query) and query.fixed_size is not None:  # a person counts once for each candidate
            per_group = min(per_group or query.fixed_size, query.fixed_size)
        if per_group is None:
            msg = (
                f"the rows of one person must be bounded for a {query}.\n\n"
                "Hint: give protect or with_limits max_rows, or max_rows_per_group (with max_groups if there are many "
                "groups)."
            )
            raise ValueError(msg)
        total = min(self.max_rows or in_groups * per_group, in_groups * per_group)
        return Contributions(total, min(per_group, total))

    def limits(self, query: HistogramQuery, groups: int) -> Limits:
        """Return what must be enforced so that no person exceeds `contributions`."""
        if self.privacy_unit is None:
            return Limits()
        bounds = self.contributions(query, groups)
        if self._bounds_groups_only(query):
            return Limits(groups=bounds.total if bounds.total < groups else None)
        in_groups = min(self.max_groups or groups, groups)
        return Limits(
            rows=bounds.total if bounds.total < in_groups * bounds.per_group else None,
            groups=in_groups if in_groups < groups else None,
            # Where a person may have no more rows in all than in one group, the bound on all of them will do.
            rows_per_group=bounds.per_group
            if in_groups * bounds.per_group <= bounds.total or bounds.per_group < bounds.total
            else None,
        )

    def dropping(self, query: HistogramQuery, groups: int) -> dict[str, int]:
        """Return the bounds, by name, beyond which a person may have rows, which are then dropped."""
        limits, bounds = self.limits(query, groups), self.bounds
        # A person counts once for each candidate, so a bound of all of them drops nothing.
        is_all = self.counts_people(query) and limits.rows_per_group == query.fixed_size
        enforced = {
            "max_rows": limits.rows,
            "max_groups": limits.groups,
            "max_rows_per_group": None if is_all else limits.rows_per_group,
        }
        # What no bound of its own says is said by that of all rows.
        given = ((name, value) for name, value in enforced.items() if value is not None)
        names = {name if bounds.get(name) == value else "max_rows" for name, value in given}
        return {name: value for name, value in bounds.items() if name in names}

    @property
    def keys_per_person(self) -> int:
        """For how many keys that nobody listed one person may count."""
        if self.privacy_unit is None:
            return 1
        bounds = [bound for bound in (self.max_groups, self.max_rows) if bound is not None]
        if not bounds:
            msg = (
                "keys: max_groups must be given where there is a privacy unit, got None: nobody knows how many keys "
                "there are.\n\nHint: protect(…, max_groups=3) keeps 3 random keys of a person who has more."
            )
            raise ValueError(msg)
        return min(bounds)

    def __str__(self) -> str:
        if self.unit is None:
            return f"one person per row, {self.neighboring_relation}"
        bounds = [in_words(self.bounds)] if self.bounds else []
        return ", ".join([f"one person per {shown(self.unit)}", self.neighboring_relation, *bounds])
