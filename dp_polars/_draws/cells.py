"""A histogram whose rows have a second digit, drawn row by row only where it is needed.

Every row gets a digit of `k` fair random bits, independent of everything else. Rows of one value then differ, and a
value that many rows have can be cut in two anywhere. All that is ever asked is how many rows lie on either side of a
*pair* (value, digit), whose code is value·2**k + digit. A cell is a run of 2**bits neighbouring pairs, with the number
of rows that lie there. At first each value is a cell; two steps make cells smaller.

- *Halving.* Rows are independent and each goes to the first half with probability 1/2, so of n rows a Binomial(n, 1/2)
  number does: as many as there are ones in n fair bits.
- *Drawing.* The last bits of all rows of a cell are drawn and sorted.

Both draw bits of rows that were not drawn before. Undrawn bits are independent of all drawn ones, and of every answer
that was drawn with their help. So whatever decides which cells are made smaller, the rows have at all times exactly the
law of independent digits (`tests/draws/test_cells.py` compares with digits drawn for each row).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dp_polars._base.arrays import (
    Ints,
    begin_runs,
    lengths_from,
    offsets,
    owners,
    positions,
    ranks_of_marks,
    run_starts,
    starts,
)

if TYPE_CHECKING:
    from dp_polars._base.words import WordSource

Bits = NDArray[np.uint8]

# Digits are the leading bits of 32.
MOST_BITS = 32
# A cell is halved while it has more rows than this plus twice the wanted ones: halving costs an eighth of a byte a row,
# drawing costs a digit and its place in a sort.
_ROWS_LEFT_WHOLE = 32
# Random bytes that are held at once.
_CHUNK = 1 << 22
_ONES = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(axis=1).astype(np.uint8)


@dataclass(frozen=True)
class Cells:
    """The cells of each group that have rows, ascending.

    Parameters
    ----------
    codes, bits, counts
        Shape (n,): the first pair, log2 of the number of pairs, and the number of rows, at least 1.
    sizes
        Shape (g,): cells of each group (may be 0).
    """

    codes: Ints
    bits: Bits
    counts: Ints
    sizes: Ints

    @classmethod
    def of_values(cls, values: Ints, counts: Ints, sizes: Ints, bits: int) -> Cells:
        """Return the cells of a histogram of values, each of 2**bits pairs."""
        return cls(values << bits, np.full(len(values), bits, np.uint8), counts, sizes)

    @property
    def totals(self) -> Ints:
        """Rows of each group."""
        return np.diff(offsets(self.counts)[offsets(self.sizes)])

    def at(self, positions: Ints | slice, sizes: Ints) -> Cells:
        """Return some of the cells; `sizes` says how many belong to each group."""
        return Cells(self.codes[positions], self.bits[positions], self.counts[positions], sizes)

    def group(self, group: int) -> Cells:
        """Return the cells of one group."""
        end = int(self.sizes[: group + 1].sum())
        return self.at(slice(end - int(self.sizes[group]), end), self.sizes[[group]])

    def cut(self, codes: Ints) -> tuple[Cells, Cells]:
        """Return the cells of each group up to a pair, shape (g,), and those beyond. No cell has the pair inside."""
        upto = ranks_of_marks(self.codes <= np.repeat(codes, self.sizes))
        begins = starts(self.sizes)
        sizes = upto[begins + self.sizes] - upto[begins]
        rest = self.sizes - sizes
        return self.at(positions(begins, sizes), sizes), self.at(positions(begins + sizes, rest), rest)

    def by_value(self, bits: int) -> Cells:
        """Return one cell of one pair, the value itself, for each value."""
        if not len(self.codes):
            return self
        values = self.codes >> bits
        new = begin_runs(values)
        new[starts(self.sizes)[self.sizes > 0]] = True
        at, upto = np.flatnonzero(new), ranks_of_marks(new)
        ends = offsets(self.sizes)
        counts = np.add.reduceat(self.counts, at)
        return Cells(values[at], np.zeros(len(at), np.uint8), counts, np.diff(upto[ends]))

    def replaced(self, groups: Mapping[int, Cells]) -> Cells:
        """Return all cells, with the cells of some groups replaced."""
        parts, done = [], 0
        for group, cells in sorted(groups.items()):
            parts += [self._between(done, group), cells]
            done = group + 1
        return _joined([*parts, self._between(done, len(self.sizes))])

    def _between(self, first: int, stop: int) -> Cells:
        ends = offsets(self.sizes)
        return self.at(slice(ends[first], ends[stop]), self.sizes[first:stop])

    def drawn(self, low: Ints, high: Ints, words: WordSource) -> tuple[Cells, Ints, Ints]:
        """Return cells of one pair for the rows whose rank in their group is from `low` up to, without, `high`.

        Returns
        -------
        cells
            The same rows, in smaller cells at these ranks. Rows of one pair are one cell.
        begin, end
            Shape (g,): where in `cells` the cells of these ranks begin and end.
        """
        running, begins = np.cumsum(self.counts), starts(self.totals)
        first = np.searchsorted(running, begins + low, side="right")
        stop = np.where(high > low, np.searchsorted(running, begins + high, side="left") + 1, first)
        inside = positions(first, stop - first)
        if not self.bits[inside].any():
            return self, first, stop
        group, counts = owners(stop - first), self.counts[inside]
        low, high = begins + low, begins + high
        window = _Window(
            self.codes[inside], self.bits[inside], counts, running[inside] - counts, group, low[group], high[group]
        )
        codes, bits, counts, owner, before, wanted = window.halved(words).with_digits(words)
        sizes, number = np.bincount(owner, minlength=len(low)), len(self.codes)
        # For each group: the cells before these ranks, the new ones, and the cells after them.
        old = starts(self.sizes)
        lengths = np.stack([first - old, sizes, old + self.sizes - stop], axis=1)
        places = positions(np.stack([old, number + starts(sizes), stop], axis=1).ravel(), lengths.ravel())
        both = _joined([self, Cells(codes, bits, counts, sizes)])
        cells = both.at(places, lengths.sum(axis=1))
        begin = starts(cells.sizes) + lengths[:, 0] + np.bincount(owner[before], minlength=len(low))
        return cells, begin, begin + np.bincount(owner[wanted], minlength=len(low))


def _joined(parts: list[Cells]) -> Cells:
    return Cells(*(np.concatenate([getattr(part, name) for part in parts]) for name in Cells.__dataclass_fields__))


@dataclass(frozen=True)
class _Window:
    """Cells of many groups, flat.

    Parameters
    ----------
    codes, bits, counts
        As of `Cells`.
    ranks, group
        Shape (n,): the rank of the first row among the rows of all groups, and the group of the cell.
    low, high
        Shape (n,): the ranks that are wanted in that group.
    """

    codes: Ints
    bits: Bits
    counts: Ints
    ranks: Ints
    group: Ints
    low: Ints
    high: Ints

    def at(self, positions: Ints) -> _Window:
        return _Window(*(getattr(self, name)[positions] for name in _COLUMNS))

    def wanted(self) -> Ints:
        """Return how many rows of each cell are wanted."""
        upto = np.minimum(self.ranks + self.counts, self.high)
        wanted: Ints = np.maximum(upto - np.maximum(self.ranks, self.low), 0)
        return wanted

    def are_large(self) -> NDArray[np.bool_]:
        """Return a mask of the cells to halve: those with far more rows than are wanted."""
        wanted = self.wanted()
        large: NDArray[np.bool_] = self.counts > 2 * wanted + _ROWS_LEFT_WHOLE
        return large & (wanted > 0) & (self.bits > 0)

    def halved(self, words: WordSource) -> _Window:
        """Return smaller cells, until none is large. At first only the outermost ones of a group are."""
        large = self.are_large()
        if not large.any():
            return self
        parts, window = [self.at(np.flatnonzero(~large))], self.at(np.flatnonzero(large))
        while len(window.codes):
            heads, bits = _binomial_halves(window.counts, words), window.bits - np.uint8(1)
            second = window.codes + (np.int64(1) << bits.astype(np.int64))
            halves = _Window(
                _in_turn(window.codes, second),
                _in_turn(bits, bits),
                _in_turn(heads, window.counts - heads),
                _in_turn(window.ranks, window.ranks + heads),
                *(np.repeat(column, 2) for column in (window.group, window.low, window.high)),
            )
            large = halves.are_large()
            parts.append(halves.at(np.flatnonzero(~large & (halves.counts > 0))))
            window = halves.at(np.flatnonzero(large))
        joined = _Window(*(np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS))
        return joined.at(np.argsort(joined.ranks, kind="stable"))

    def with_digits(self, words: WordSource) -> tuple[Ints, Bits, Ints, Ints, NDArray[np.bool_], NDArray[np.bool_]]:
        """Return the codes, bits and counts of cells that have one pair each wherever rows are wanted.

        Also return each cell's group, whether it lies before the wanted ranks, and whether it lies at them.
        """
        wanted = self.wanted() > 0
        split = np.flatnonzero(wanted & (self.bits > 0))
        rows, bits = self.counts[split], self.bits[split]
        total, width = int(rows.sum()), np.int64(bits.max(initial=0))
        digits = words(total // 2 + 1).view(np.uint32)[:total] >> np.repeat(np.uint32(MOST_BITS) - bits, rows)
        keys = np.repeat(np.arange(len(split)) << width, rows) + digits.astype(np.int64)
        keys.sort()
        new = run_starts(keys)
        keys = keys[new]
        # A cell becomes as many as its rows have pairs, or stays one.
        pieces = np.ones(len(wanted), np.int64)
        pieces[split] = np.bincount(keys >> width, minlength=len(split))
        origin = owners(pieces)
        at = positions(starts(pieces)[split], pieces[split])
        made_codes, made_bits, made_counts = self.codes[origin], self.bits[origin], self.counts[origin]
        made_codes[at] += keys & ((np.int64(1) << width) - 1)
        made_bits[at], made_counts[at] = 0, lengths_from(new, total)
        before = self.ranks + self.counts <= self.low
        return made_codes, made_bits, made_counts, self.group[origin], before[origin], wanted[origin]


_COLUMNS = tuple(_Window.__dataclass_fields__)


def _in_turn(first: NDArray[Any], second: NDArray[Any]) -> NDArray[Any]:
    return np.stack([first, second], axis=1).ravel()


def _binomial_halves(counts: Ints, words: WordSource) -> Ints:
    """Return how many of n fair coins come down heads, exactly, for each n of `counts` (at least 1)."""
    bounds = offsets((counts + 7) // 8)
    last = bounds[1:] - 1
    masks = (np.uint8(255) >> ((8 - counts % 8) % 8).astype(np.uint8)).astype(np.uint8)
    heads = np.zeros(len(counts), np.int64)
    for start in range(0, int(bounds[-1]), _CHUNK):
        stop = min(start + _CHUNK, int(bounds[-1]))
        coins = words((stop - start + 7) // 8).view(np.uint8)[: stop - start]
        ending = slice(*np.searchsorted(last, [start, stop]))
        coins[last[ending] - start] &= masks[ending]
        first = int(np.searchsorted(bounds, start, side="right")) - 1
        beyond = int(np.searchsorted(bounds, stop))
        cuts = np.maximum(bounds[first:beyond] - start, 0)
        heads[first:beyond] += np.add.reduceat(_ONES[coins], cuts, dtype=np.int64)
    return heads
