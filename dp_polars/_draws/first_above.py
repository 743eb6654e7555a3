"""The first candidate above a threshold: from a histogram to runs of one count, and to one answer per group."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from dp_polars._base.arrays import owners, positions, run_starts, slices
from dp_polars._base.words import WordSource, system_words
from dp_polars._draws.drawing import of_parts
from dp_polars._mechanisms.racing import CHUNK
from dp_polars._mechanisms.thresholds import CountRuns, first_reached

if TYPE_CHECKING:
    from dp_polars._base.arrays import Ints
    from dp_polars._draws.histograms import Histogram

# One code per group, and how many whole rows it is above: −1 for both where no candidate reaches the threshold.
Above: TypeAlias = "tuple[Ints, Ints]"


@dataclass(frozen=True)
class Search:
    """What is looked for: the first of how many candidates with a count above which threshold, at which rate."""

    size: int
    threshold: Fraction
    rate: Fraction
    words: Callable[[], WordSource] = system_words


def first_above_groups(search: Search, histogram: Histogram) -> Above:
    """Return one code and its lead per group, shape (g,) each."""
    parts = of_parts(lambda part: _of_part(search, part), histogram)
    nothing = np.empty(0, np.int64)
    codes, leads = zip((nothing, nothing), *parts, strict=True)
    return np.concatenate(codes), np.concatenate(leads)


def _of_part(search: Search, histogram: Histogram) -> Above:
    codes, leads, words = np.empty_like(histogram.sizes), np.empty_like(histogram.sizes), search.words()
    for first, last in slices(histogram.sizes, CHUNK, CHUNK):
        begins, runs = count_runs(histogram.part(first, last), search.size)
        reached = first_reached(runs, search.threshold, search.rate, words)
        codes[first:last] = np.where(reached.runs < 0, -1, begins[reached.runs] + reached.places)
        leads[first:last] = reached.leads
    return codes, leads


def count_runs(histogram: Histogram, size: int) -> tuple[Ints, CountRuns]:
    """Return the runs of candidates with one count, in the order of their codes, and the first code of each.

    Only occupied codes are looked at: all those between two of them are one run of count 0.
    """
    groups = len(histogram.sizes)
    # For each group its occupied codes, and before, between and after them the others, of which there may be none.
    entries = 2 * histogram.sizes + 1
    ends = np.cumsum(entries)
    at = np.repeat(ends - entries, histogram.sizes) + 2 * positions(0, histogram.sizes) + 1
    first, counts = np.zeros(int(entries.sum()), np.int64), np.zeros(int(entries.sum()), np.int64)
    first[at], counts[at], first[at + 1] = histogram.codes, histogram.weights, histogram.codes + 1
    m = np.ones_like(first)
    rests = np.ones(len(first), bool)
    rests[at] = False
    upto = np.append(first[1:], 0)
    upto[ends - 1] = size
    m[rests] = (upto - first)[rests]
    some = np.flatnonzero(m > 0)
    owner = owners(entries)[some]
    heads = run_starts(owner, counts[some])
    starts = some[heads]
    sizes = np.bincount(owner[heads], minlength=groups)
    multiplicities = np.add.reduceat(m[some], heads) if len(heads) else m
    return first[starts], CountRuns(counts[starts], multiplicities, sizes)
