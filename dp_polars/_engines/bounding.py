"""Which of a person's rows count: a random subset of their own, in NumPy, many people at once.

A *cell* is a group and a code in one integer, the code in the low bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dp_polars._base.arrays import Ints, lengths_from, owners, run_lengths, run_starts, starts
from dp_polars._base.words import system_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dp_polars._base.words import WordSource


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

    def most_people(self, *, people: bool) -> int:
        """Return how many people `keep` takes at once: a person's number shares one word with what is sorted."""
        return 1 << min(63, 64 - (self.bits if people else self.group_bits))


def keep(
    cells: NDArray[np.unsignedinteger],
    lengths: Ints,
    limits: Limits,
    layout: Layout,
    *,
    people: bool,
    weights: Sequence[Ints] = (),
    most: Sequence[tuple[int, int]] = (),
    words: WordSource | None = None,
) -> tuple[NDArray[np.uint64], list[Ints]]:
    """Return the cells that count, in any order, and their weights.

    What stays of a person's rows is a random subset of them, chosen by words of that person's own.

    Parameters
    ----------
    cells
        Shape (n,): the rows, person after person.
    lengths
        Shape (p,): rows of each person; they add up to n.
    limits
        The bounds. First that many random groups of a person stay, then that many random rows in each of them, and
        then that many random rows of all. Where a bound is None, its step is left out: with `max_rows` alone, all rows
        are as likely to stay, whatever group they are in.
    people
        Whether a person counts once per cell: equal rows of a person are one.
    weights
        Shape (n,) each: what goes along with the rows. Where people count, a person's weights in a cell add up.
    most
        Where people count, the least and the most that a person weighs in a cell, for each of `weights`.
    """
    words = words or system_words()
    person = owners(lengths).view(np.uint64)
    group_bits, code_bits = np.uint64(layout.group_bits), np.uint64(layout.code_bits)
    if people:
        keys = (person << np.uint64(layout.bits)) | cells
        if weights:
            order = np.argsort(keys)
            keys = keys[order]
            first = run_starts(keys)
            sums = (np.add.reduceat(weight[order], first) if len(first) else weight for weight in weights)
            weights = [np.clip(weight, *ends) for weight, ends in zip(sums, most, strict=True)]
        else:
            keys.sort()
            first = run_starts(keys)
        keys = keys[first]
        pairs, rows = keys >> code_bits, keys & np.uint64((1 << layout.bits) - 1)
    else:
        rows = cells.astype(np.uint64)
        pairs = (person << group_bits) | (rows >> code_bits)
        order = np.argsort(pairs)
        pairs, rows = pairs[order], rows[order]
        weights = [weight[order] for weight in weights]

    def only(stays: NDArray[np.bool_]) -> None:
        nonlocal pairs, rows, weights
        pairs, rows = pairs[stays], rows[stays]
        weights = [weight[stays] for weight in weights]

    # A pair is a person and a group; from here on the rows are sorted by it.
    if limits.groups is not None:
        first = run_starts(pairs)
        stays = random_few(run_lengths(pairs[first] >> group_bits), limits.groups, words)
        only(np.repeat(stays, lengths_from(first, len(pairs))))
    if limits.rows_per_group is not None:
        only(random_few(run_lengths(pairs), limits.rows_per_group, words))
    if limits.rows is not None:
        only(random_few(run_lengths(pairs >> group_bits), limits.rows, words))
    return rows, list(weights)


def random_few(lengths: Ints, most: int, words: WordSource) -> NDArray[np.bool_]:
    """Return which items stay, shape (n,): `most` random ones of each owner who has more, all of the others'."""
    over = lengths > most
    stays = np.repeat(~over, lengths)
    if not over.any():
        return stays
    items, lengths = np.flatnonzero(~stays), lengths[over]
    order = _shuffle(owners(lengths).view(np.uint64), words)
    # Each owner's items keep their places, so nothing can give an owner more than `most`.
    first = (starts(lengths)[:, None] + np.arange(most)).ravel()
    stays[items[order[first]]] = True
    return stays


def _shuffle(labels: NDArray[np.uint64], words: WordSource) -> Ints:
    """Return an order of the items that leaves ascending labels in place, exactly uniform among equal ones."""
    bits = np.uint64(max(int(labels[-1]).bit_length(), 1))
    keys = (labels << (np.uint64(64) - bits)) | (words(len(labels)) >> bits)
    order = np.argsort(keys)
    keys = keys[order]
    is_new = keys[1:] != keys[:-1]
    if is_new.all():
        return order
    # Too few bits for some: they are labels that share a number now, and get more.
    return order[_shuffle(np.concatenate([np.zeros(1, np.uint64), np.cumsum(is_new, dtype=np.uint64)]), words)]
