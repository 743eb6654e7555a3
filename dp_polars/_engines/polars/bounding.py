"""Apply contribution limits: one random order of each person's groups, and one of their rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dp_polars._base.numbers import (
    Ints,
    Rng,
    begin_runs,
    marked_so_far,
    owners,
    sorted_words,
    system_rng,
)
from dp_polars._release.protection import Limits

Marks = NDArray[np.bool_]

_PAIRS_PER_ROW = 4  # up to this many (owner, label) pairs per row, a table numbers them, else a sort


@dataclass(frozen=True, eq=False)
class BoundedRows:
    """Rows of people, and the limits that one spec puts on them."""

    limits: Limits
    contributing: Marks | None = None  # shape (n,): rows with a value for the spec. None: all rows.
    # Shape (n,), if people count: a person's rows with the same group and code are one. None: rows count.
    codes: NDArray[np.integer] | None = None


@dataclass(frozen=True, eq=False)
class Stays:
    """The rows that stay for one spec."""

    # Places of the rows that stay, ascending. If people count: one row for each group and code of a person.
    rows: Ints
    # Shape (n,), if people count: each contributing row's number for its person, group and code. Numbers are hardly
    # above n; other rows have -1.
    whose: Ints | None = None


def keep(
    lengths: Ints, groups: NDArray[np.integer], specs: Sequence[BoundedRows], rng: Rng | None = None
) -> list[Stays]:
    """Return the rows that stay for each spec, by one order of each person's groups and one of their rows.

    Both orders are uniformly random and independent, and use random words of that person only.
    A spec keeps the first `limits.groups` groups of its contributing rows.
    In each group it keeps the first `limits.rows_per_group` rows, and of these the first `limits.rows`.
    If people count, a code has the place of its first row. Orders are drawn only for people over a limit.

    `lengths`: shape (p,): rows of each person; they add up to n.
    `groups`: shape (n,): the group of each row, sorted by person and then by group.
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
    else:  # only the order within each pair matters
        by_row = by_pair = _RandomOrder.drawn(over_pair[pair], pair, rng)
    return [view.stays(pair, by_group, by_pair, by_row) for view in views]


@dataclass(frozen=True, eq=False)
class _RandomOrder:
    """Items sorted by label, in a random order within each label."""

    items: Ints
    labels: NDArray[np.integer]  # ascending, one for each item

    @classmethod
    def drawn(cls, some: Marks, labels: Ints, rng: Rng) -> _RandomOrder:
        """Return the marked items. `labels` ascend already; items with equal labels are shuffled."""
        items = np.flatnonzero(some)
        labels = labels[items]
        return cls(items[_shuffle(labels, rng)], labels)

    def within(self, labels: Ints) -> _RandomOrder:
        """Return the same items sorted by another label, without changing the order within a label."""
        keys = labels[self.items].view(np.uint64)
        order, ascending = _placed(keys << _place_bits(keys))
        return _RandomOrder(self.items[order], ascending)

    def keep_first(self, marks: Marks, most: int | None) -> None:
        """Unmark all but the first `most` marked items of each label."""
        if most is None:
            return
        along = np.flatnonzero(marks[self.items])
        labels = self.labels[along]
        # An item is over the limit if the marked item `most` places before it has the same label.
        over = along[most:][np.flatnonzero(labels[most:] == labels[:-most])]
        marks[self.items[over]] = False


@dataclass(frozen=True, eq=False)
class _View:
    """The rows that contribute to a spec, and their number in each pair."""

    limits: Limits
    marks: Marks  # if people count, one row for each group and code of a person
    counts: Ints
    whose: Ints | None = None

    @classmethod
    def of(cls, asked: BoundedRows, pair: Ints, first: Ints) -> _View:
        """Return the view of rows. `pair` numbers their pairs, and `first` has the first row of each pair."""
        pairs = len(first)
        if asked.contributing is None and asked.codes is not None and not asked.codes.any():  # one row in each pair
            marks = np.zeros(len(pair), bool)
            marks[first] = True
            return cls(asked.limits, marks, np.ones(pairs, np.int64), pair)
        rows = np.arange(len(pair)) if asked.contributing is None else np.flatnonzero(asked.contributing)
        owner = pair if asked.contributing is None else pair[rows]
        if asked.codes is None:
            marks = np.ones(len(pair), bool) if asked.contributing is None else asked.contributing.copy()
            return cls(asked.limits, marks, np.bincount(owner, minlength=pairs))
        numbers = _numbered(owner, asked.codes[rows], pairs)
        marks, last, whose = np.zeros(len(pair), bool), np.full(numbers.max(initial=-1) + 1, -1), numbers
        last[numbers] = rows
        last = last[np.flatnonzero(last >= 0)]
        marks[last] = True
        if asked.contributing is not None:
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
        """Mark each person's first row of a group and code, or the marked one if no order was drawn."""
        marks, first = np.zeros(len(whose), bool), np.full(whose.max(initial=-1) + 1, -1)
        for order in (np.flatnonzero(self.marks), by_row.items[::-1]):  # of repeated writes, the last one counts
            seen = order[whose[order] >= 0]
            first[whose[seen]] = seen
        marks[first[first >= 0]] = True
        return marks


def random_few(lengths: Ints, most: int, rng: Rng) -> Marks:
    """Mark `most` random items of each owner with more, and all items of others, shape (n,)."""
    owner = owners(lengths)
    stays = np.ones(len(owner), bool)
    _RandomOrder.drawn((lengths > most)[owner], owner, rng).keep_first(stays, most)
    return stays


def _numbered(owner: Ints, labels: NDArray[np.integer], owners: int) -> Ints:
    """Return a number for each pair of an owner (ascending) and a label, shape (n,), hardly above n."""
    size = int(labels.max(initial=0)) + 1
    if owners * size <= _PAIRS_PER_ROW * len(owner):
        numbers = owner * size
        np.add(numbers, labels, out=numbers, casting="unsafe")  # adding uint64 labels would give floats
        return numbers
    bits = (size - 1).bit_length()
    if bits + owners.bit_length() > 64:  # only then, because it is another sort
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
    """Return an order of the items by label, exactly uniform among equal labels."""
    bits = np.uint64(64 - max(_bits(labels), 1))
    keys = labels.view(np.uint64) << bits
    keys |= rng(len(labels)) >> (np.uint64(64) - bits)
    order, ascending = _placed(keys)
    is_new = begin_runs(ascending)
    if is_new.all():
        return order
    # Random words collided for some items. The collisions become labels, and get more bits.
    return order[_shuffle(marked_so_far(is_new) - 1, rng)]


def _placed(keys: NDArray[np.uint64]) -> tuple[Ints, NDArray[np.uint64]]:
    """Sort keys by all but their last bits, which are replaced by places; return the places and the sorted keys.

    This takes one sort of 64-bit words.
    """
    places = _place_bits(keys)
    words = sorted_words((keys >> places << places) | np.arange(len(keys), dtype=np.uint64))
    return (words & ((np.uint64(1) << places) - np.uint64(1))).view(np.int64), words >> places


def _place_bits(items: NDArray[np.integer]) -> np.uint64:
    return np.uint64(max(len(items) - 1, 0).bit_length())


def _bits(labels: NDArray[np.integer]) -> int:
    return int(labels.max(initial=0)).bit_length()
