"""From histograms to score blocks, and the range R of each score.

Codes are positions of candidates; a histogram says how many rows (or people) each candidate of each group has. A
*slot* is a block of codes that share one score.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from dp_polars.privacy import NeighboringRelation

Ints = NDArray[np.int64]


def mode_range(relation: NeighboringRelation) -> Fraction:
    """Return R of one row for a candidate's count: a row moves one count, a replacement two, apart."""
    return Fraction(1 if relation == "add_or_remove_one" else 2)


def quantile_range(alpha: Fraction, relation: NeighboringRelation) -> Fraction:
    """Return R of one row for the quantile score with α = num/den.

    A row moves num·N − den·A by num or num − den, and likewise den·L − num·N + 1; so a score moves by at most
    max(num, den − num), and two of them apart by twice that. A replacement may remove a row in one group and add
    one in another: twice again.
    """
    one = 2 * max(alpha.numerator, alpha.denominator - alpha.numerator)
    return Fraction(one if relation == "add_or_remove_one" else 2 * one)


def quantile_gap(below: Ints, upto: Ints, total: Ints, alpha: Fraction) -> Ints:
    """Return how far a candidate is from being the lower α-quantile, in units of 1/den rows; 0 where it is.

    Parameters
    ----------
    below, upto
        Rows strictly below the candidate, and at or below it.
    total
        All rows of the group, at least one.
    """
    num, den = alpha.numerator, alpha.denominator
    short = num * total - den * upto
    over = den * below - num * total + 1
    return np.maximum(np.maximum(short, over), 0)


@dataclass(frozen=True)
class Runs:
    """A sparse histogram: the occupied codes of each group, ascending.

    Parameters
    ----------
    codes, below, upto
        Shape (n,): the code, the group's rows strictly below it, and at or below it.
    sizes
        Shape (g,): occupied codes of each group (may be 0).
    totals
        Shape (g,): rows of each group.
    open_left, open_right
        Shape (g,), bool: whether codes were left out below the first or above the last one listed.
    """

    codes: Ints
    below: Ints
    upto: Ints
    sizes: Ints
    totals: Ints
    open_left: NDArray[np.bool_]
    open_right: NDArray[np.bool_]

    @classmethod
    def of_counts(cls, codes: Ints, counts: Ints, sizes: Ints) -> Runs:
        """Return the complete histogram with these counts, given by group and ascending code."""
        ends = np.cumsum(sizes)
        running = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
        before = np.repeat(running[ends - sizes], sizes)
        nothing = np.zeros(len(sizes), bool)
        totals = running[ends] - running[ends - sizes]
        return cls(codes, running[:-1] - before, running[1:] - before, sizes, totals, nothing, nothing)


@dataclass(frozen=True)
class Slots:
    """Score blocks by group: `gaps`, `first` code and `multiplicities` of shape (n,), `sizes` of shape (g,).

    A slot is the codes from `first` on; where `first` is −1, all codes of the group that no other slot names.
    """

    gaps: Ints
    first: Ints
    multiplicities: Ints
    sizes: Ints


def mode_slots(runs: Runs, size: int) -> Slots:
    """Return a slot for each occupied code, and one for all others of the group (its `first` is −1)."""
    counts = runs.upto - runs.below
    groups, ends = len(runs.sizes), np.cumsum(runs.sizes)
    best = np.zeros(groups, np.int64)
    occupied = runs.sizes > 0
    if len(counts):
        best[occupied] = np.maximum.reduceat(counts, (ends - runs.sizes)[occupied])
    rest = ends[size > runs.sizes]
    gaps = np.repeat(best, runs.sizes) - counts
    return Slots(
        np.insert(gaps, rest, best[size > runs.sizes]),
        np.insert(runs.codes, rest, -1),
        np.insert(np.ones_like(counts), rest, (size - runs.sizes)[size > runs.sizes]),
        runs.sizes + (size > runs.sizes),
    )


def quantile_slots(runs: Runs, size: int, alpha: Fraction) -> Slots:
    """Return a slot for each occupied code and for each stretch between them."""
    groups = len(runs.sizes)
    owner = np.repeat(np.arange(groups), runs.sizes)
    total = runs.totals[owner]
    n = 2 * len(runs.codes) + groups
    at = 2 * np.arange(len(runs.codes)) + owner + 1  # the runs; what follows each stands right after it
    head = 2 * (np.cumsum(runs.sizes) - runs.sizes) + np.arange(groups)

    gaps, first, until = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.int64)
    gaps[head] = alpha.numerator * runs.totals
    gaps[at] = quantile_gap(runs.below, runs.upto, total, alpha)
    gaps[at + 1] = quantile_gap(runs.upto, runs.upto, total, alpha)
    first[head], first[at], first[at + 1] = 0, runs.codes, runs.codes + 1
    until[:-1], until[at] = first[1:], runs.codes + 1
    last = head + 2 * runs.sizes
    until[last] = size
    until[head[runs.open_left]] = 0
    until[last[runs.open_right]] = first[last[runs.open_right]]

    kept = until > first
    sizes = np.add.reduceat(kept, head, dtype=np.int64)
    return Slots(gaps[kept], first[kept], (until - first)[kept], sizes)
