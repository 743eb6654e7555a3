"""Which of a person's rows count, for all tallies of a release at once: by one order of their groups and rows.

In NumPy, many people at a time. A *pair* is a person and one of their groups. A *cell* is a group and a code in one
integer, the code in the low bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dp_polars._base.arrays import Ints, begin_runs, lengths_from, owners, run_starts, sorted_words
from dp_polars._base.words import system_words

if TYPE_CHECKING:
    from dp_polars._base.words import WordSource

Marks = NDArray[np.bool_]

# Places of a table for each row, up to which pairs are numbered by it, not by sorting.
_PAIRS_PER_ROW = 4


@dataclass(frozen=True)
class Limits:
    """The most that counts of one person's rows in one output; None: all of them.

    Parameters
    ----------
    rows
        Rows in all. Not for counts of people.
    groups
        Groups in all.
    rows_per_group
        Rows in each group. Not for counts of people.
    """

    rows: int | None = None
    groups: int | None = None
    rows_per_group: int | None = None

    @property
    def everything(self) -> bool:
        """Whether there is no bound."""
        return self == Limits()


@dataclass(frozen=True)
class Layout:
    """How groups and codes are laid out in cells."""

    group_bits: int
    code_bits: int

    @classmethod
    def of(cls, groups: int, size: int, where: str = "") -> Layout:
        """Return the layout for this many groups and for codes below `size`; `where` begins the error."""
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
        """Bits of a cell."""
        return self.group_bits + self.code_bits


@dataclass(frozen=True, eq=False)
class Asked:
    """What one tally keeps of people's rows.

    Parameters
    ----------
    limits
        The bounds.
    evidence
        Shape (n,): the rows that say something. None: all of them.
    codes
        Shape (n,), where people count: rows of a person with the same group and code are one. None: rows count.
    """

    limits: Limits
    evidence: Marks | None = None
    codes: NDArray[np.integer] | None = None


@dataclass(frozen=True, eq=False)
class Stays:
    """What stays for a tally.

    Parameters
    ----------
    rows
        Ascending places of the rows that stay; where people count, of one row for each group and code of a person.
    whose
        Shape (n,), where people count: a number below n for the person, the group and the code of each row that is
        evidence; -1 for other rows.
    """

    rows: Ints
    whose: Ints | None = None


def keep(
    lengths: Ints, groups: NDArray[np.integer], tallies: Sequence[Asked], words: WordSource | None = None
) -> list[Stays]:
    """Return what stays for each tally, by one order of each person's groups and one of each person's rows.

    Both are uniformly random, independent of each other, and chosen by words of that person's own. A tally keeps, of
    its evidence, the first `limits.groups` groups, in each the first `limits.rows_per_group` rows, and of these the
    first `limits.rows`. Where people count, a code comes where its first row does. Orders are drawn only where a bound
    binds.

    Parameters
    ----------
    lengths
        Shape (p,): rows of each person; they add up to n.
    groups
        Shape (n,): the group of each row, person after person, and of each person group after group.
    tallies
        What is kept.
    """
    words = words or system_words()
    people, owner = len(lengths), owners(lengths)
    pair, person = _runs(owner, begin_runs(owner) | begin_runs(groups))
    views = [_View.of(asked, pair, len(person)) for asked in tallies]
    over_groups, over_rows, over_pair = np.zeros(people, bool), np.zeros(people, bool), np.zeros(len(person), bool)
    for limits, counts in ((view.limits, view.counts) for view in views):
        if limits.groups is not None:
            over_groups |= np.bincount(person[counts > 0], minlength=people) > limits.groups
        if limits.rows_per_group is not None:
            over_pair |= counts > limits.rows_per_group
        if limits.rows is not None:
            most = counts if limits.rows_per_group is None else np.minimum(counts, limits.rows_per_group)
            over_rows |= np.bincount(person, most, people) > limits.rows
    by_group = _Order.drawn(over_groups[person], person, words)
    if over_rows.any():
        by_row = _Order.drawn((over_pair | over_rows[person])[pair], person[pair], words)
        by_pair = by_row.within(pair)
    else:  # only the order within each pair is looked at
        by_row = by_pair = _Order.drawn(over_pair[pair], pair, words)
    return [view.stays(pair, by_group, by_pair, by_row) for view in views]


@dataclass(frozen=True, eq=False)
class _Order:
    """Some items one after the other, those of one label together."""

    items: Ints
    first: Ints  # where each label begins

    @classmethod
    def drawn(cls, some: Marks, labels: Ints, words: WordSource) -> _Order:
        """Return the marked items by label, which ascends already, in a random order where it is equal."""
        items = np.flatnonzero(some)
        labels = labels[items]
        return cls(items[_shuffle(labels, words)], run_starts(labels))

    def within(self, labels: Ints) -> _Order:
        """Return the same items by another label, in the same order where it is equal."""
        keys = labels[self.items].view(np.uint64)
        order, ascending = _placed(keys << _place_bits(keys))
        return _Order(self.items[order], run_starts(ascending))

    def keep_first(self, marks: Marks, most: int | None) -> None:
        """Take all marks away from the items of each label but the first `most` ones."""
        if most is None:
            return
        along = marks[self.items]
        ranks = np.cumsum(along, dtype=np.int64)
        ranks -= np.repeat(ranks[self.first] - along[self.first], lengths_from(self.first, len(ranks)))
        marks[self.items] = along & (ranks <= most)


@dataclass(frozen=True, eq=False)
class _View:
    """What is evidence for a tally: the rows, how many count in each pair, and where people count, whose each is."""

    limits: Limits
    marks: Marks  # where people count, one row of each group and code of a person
    counts: Ints
    whose: Ints | None = None

    @classmethod
    def of(cls, asked: Asked, pair: Ints, pairs: int) -> _View:
        rows = np.arange(len(pair)) if asked.evidence is None else np.flatnonzero(asked.evidence)
        owner = pair if asked.evidence is None else pair[rows]
        if asked.codes is None:
            marks = np.ones(len(pair), bool) if asked.evidence is None else asked.evidence.copy()
            return cls(asked.limits, marks, np.bincount(owner, minlength=pairs))
        numbers, of_numbers = _numbered(owner, asked.codes[rows], pairs)
        marks, last, whose = np.zeros(len(pair), bool), np.empty(len(of_numbers), np.int64), numbers
        last[numbers] = rows
        marks[last] = True
        if asked.evidence is not None:
            whose = np.full(len(pair), -1)
            whose[rows] = numbers
        return cls(asked.limits, marks, np.bincount(of_numbers, minlength=pairs), whose)

    def stays(self, pair: Ints, by_group: _Order, by_pair: _Order, by_row: _Order) -> Stays:
        """Return what the bounds leave."""
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

    def _first(self, whose: Ints, by_row: _Order) -> Marks:
        """Mark the first row of each group and code of a person; where no order was drawn, the one that is marked."""
        marks, first = np.zeros(len(whose), bool), np.empty(whose.max(initial=-1) + 1, np.int64)
        for order in (np.flatnonzero(self.marks), by_row.items[::-1]):  # where it is written to again, the last stays
            seen = order[whose[order] >= 0]
            first[whose[seen]] = seen
        marks[first] = True
        return marks


def random_few(lengths: Ints, most: int, words: WordSource) -> Marks:
    """Return which items stay, shape (n,): `most` random ones of each owner who has more, all of the others'."""
    owner = owners(lengths)
    stays = np.ones(len(owner), bool)
    _Order.drawn((lengths > most)[owner], owner, words).keep_first(stays, most)
    return stays


def _numbered(owner: Ints, labels: NDArray[np.integer], owners: int) -> tuple[Ints, Ints]:
    """Return a number for each pair of an owner and a label, shape (n,), and the owner of each number, ascending.

    Owners ascend already.
    """
    size = int(labels.max(initial=0)) + 1
    if size == 1:
        return _runs(owner, begin_runs(owner))
    if owners * size <= _PAIRS_PER_ROW * len(owner):
        at = owner * size
        at += labels.astype(np.int64)
        is_there = np.zeros(owners * size, bool)
        is_there[at] = True
        return (np.cumsum(is_there) - 1)[at], np.flatnonzero(is_there) // size
    bits = (size - 1).bit_length()
    if bits + owners.bit_length() > 64:  # only then: it is another sort
        labels = np.unique(labels, return_inverse=True)[1]
        bits = _bits(labels)
    keys = (owner.view(np.uint64) << np.uint64(bits)) | labels.astype(np.uint64)
    places = _place_bits(owner)
    has_room = bits + owners.bit_length() + int(places) <= 64
    order = _placed(keys << places)[0] if has_room else np.argsort(keys)
    numbers = np.empty(len(owner), np.int64)
    numbers[order], of_numbers = _runs(owner[order], begin_runs(keys[order]))
    return numbers, of_numbers


def _runs(owner: Ints, begins: Marks) -> tuple[Ints, Ints]:
    """Return the number of each run, row by row, and the owner of each run."""
    return np.cumsum(begins) - 1, owner[np.flatnonzero(begins)]


def _shuffle(labels: Ints, words: WordSource) -> Ints:
    """Return an order of the items by their labels, exactly uniform where these are equal."""
    bits = np.uint64(64 - max(_bits(labels), 1))
    keys = labels.view(np.uint64) << bits
    keys |= words(len(labels)) >> (np.uint64(64) - bits)
    order, ascending = _placed(keys)
    is_new = begin_runs(ascending)
    if is_new.all():
        return order
    # Too few bits for some: they are labels that share a number now, and get more.
    return order[_shuffle(np.cumsum(is_new) - 1, words)]


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
