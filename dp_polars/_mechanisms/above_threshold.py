"""The first candidate above a threshold, for every group."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dp_polars._base.numbers import Ints, Rng, ball, owners, positions, run_starts, slices, system_rng
from dp_polars._mechanisms.drawing import of_parts
from dp_polars._mechanisms.histograms import Histogram
from dp_polars._mechanisms.noisy_gap import LARGEST_GAP, Between, WithGap, joined_pairs
from dp_polars._mechanisms.racing import CHUNK, V_STEP, Floats, Real, Uniform, floor_of, is_less, leading_bits, wait_of

if TYPE_CHECKING:
    from flint import arb

# At a larger rate floats could overflow. A lower rate is as private, and at this one answers are as certain.
_LARGEST_RATE = Fraction(2**900)
# The largest threshold: no count is larger.
LARGEST_THRESHOLD = 2**62
# Relative errors of floats, with slack. Each float is the result of a few operations, and NumPy's exp, log1p and expm1
# are accurate to 4 units in the last place. T − q is computed as a whole number, exactly, plus a number below one,
# which adds an absolute error below 2**-51. λ·(T + z − q) is a sum of two floats, with errors relative to both. exp(−x)
# has at most the slope 1, so these errors bound the error of p.
_SLACK = 2.0**-40


@dataclass(frozen=True)
class CountRuns:
    """Candidates in their order, by runs of one count; flat, group after group."""

    # Shape (n,): the count, at most 2**62, and how many candidates in a row have it, at least 1.
    counts: Ints
    multiplicities: Ints
    sizes: Ints  # shape (g,): runs of each group


def first_reached(runs: CountRuns, threshold: Fraction, rate: Fraction, rng: Rng) -> tuple[Ints, Ints, Ints]:
    """Return the first candidate to reach the threshold in each group; shape (g,) each.

    The position in the flat runs, and the candidate's place in its run, from 0; −1 and 0 if none reaches it. Then by
    how many whole units it is above, at most LARGEST_GAP; −1 if none is.
    """
    return _Search(runs, threshold, min(rate, _LARGEST_RATE), rng).first()


@dataclass(frozen=True)
class _Search:
    """The inputs of the draw for some groups."""

    runs: CountRuns
    threshold: Fraction
    rate: Fraction
    rng: Rng

    @np.errstate(divide="ignore", invalid="ignore", over="ignore")  # infinite bounds; undecided if they meet
    def first(self) -> tuple[Ints, Ints, Ints]:
        groups, owner = len(self.runs.sizes), owners(self.runs.sizes)
        of_thresholds, of_runs, of_gaps = (self.rng(n) for n in (groups, len(owner), groups))
        missing = self._missing(_waits(of_thresholds).at(owner))
        hazards, m, v = _hazards(missing), self.runs.multiplicities, leading_bits(of_runs)
        reach_low, reach_high = _chance(hazards.low * m) * (1 - _SLACK), _chance(hazards.high * m) * (1 + _SLACK)
        possible = np.flatnonzero(v <= reach_high)
        heads = run_starts(owner[possible])
        first, drawn_for = possible[heads], owner[possible[heads]]

        found, places, gaps = np.full(groups, -1), np.zeros(groups, np.int64), np.full(groups, -1)
        of_first = hazards.at(first)
        waits = _waits(of_runs[first])
        places_found, are_whole = Between(waits.low / of_first.high, waits.high / of_first.low).floors()
        is_only = m[first] == 1
        more, are_certain = self._gaps(_waits(of_gaps[drawn_for]), missing.at(first)).floors()
        are_certain &= (are_whole | is_only) & (v[first] + V_STEP <= reach_low[first])
        found[drawn_for], places[drawn_for], gaps[drawn_for] = first, np.where(is_only, 0, places_found), more

        stops = np.append(heads[1:], len(possible))
        for i in np.flatnonzero(~are_certain).tolist():
            group, runs = int(drawn_for[i]), possible[heads[i] : stops[i]].tolist()
            uniforms = {run: Uniform(int(of_runs[run]), 64, self.rng) for run in runs}
            of_group = (Uniform(int(drawn[group]), 64, self.rng) for drawn in (of_thresholds, of_gaps))
            found[group], places[group], gaps[group] = self._exactly(uniforms, *of_group)
        return found, places, gaps

    def _missing(self, waits: Between) -> Between:
        """Return λ·(T + z − q) of each run, from λ·z."""
        whole, rate = math.floor(self.threshold), float(self.rate)
        part = float(self.threshold - whole)
        gaps = (whole - self.runs.counts) + part
        slack, gaps = (abs(gaps) + (part > 0)) * (rate * _SLACK), gaps * rate
        return Between(waits.low * (1 - _SLACK) + gaps - slack, waits.high * (1 + _SLACK) + gaps + slack)

    def _gaps(self, waits: Between, missing: Between) -> Between:
        """Return by how many whole units the answers are above, and less than one more, from fresh waits."""
        rate = float(self.rate)
        low, high = waits.low + np.maximum(-missing.high, 0), waits.high + np.maximum(-missing.low, 0)
        return Between(low / rate * (1 - _SLACK), high / rate * (1 + _SLACK))

    def _exactly(self, uniforms: dict[int, Uniform], of_threshold: Uniform, of_gap: Uniform) -> tuple[int, int, int]:
        """Return the run, the place in it and the gap of one group; `uniforms`: of runs that may be first."""
        z, more = wait_of(1, of_threshold), wait_of(1, of_gap)
        for run, uniform in uniforms.items():
            missing = _plus(z, self.rate * (self.threshold - int(self.runs.counts[run])))
            is_above = is_less(missing, _zero)
            place = 0 if is_above else _exact_place(missing, int(self.runs.multiplicities[run]), uniform)
            if place is not None:
                gap = floor_of(_over(more, missing if is_above else _zero, self.rate))
                return run, place, min(gap, LARGEST_GAP)
        return -1, 0, -1


def _waits(drawn: NDArray[np.uint64]) -> Between:
    """Return bounds of −log(1 − V), standard exponential variables."""
    v = leading_bits(drawn)
    return Between(-np.log1p(-v) * (1 - _SLACK), -np.log1p(-(v + V_STEP)) * (1 + _SLACK))


def _hazards(missing: Between) -> Between:
    """Return bounds of h = −log(1 − p), p = exp(−max(0, missing)): infinite if nothing is missing."""
    low = np.exp(-np.maximum(missing.high, 0)) * (1 - _SLACK)
    high = np.minimum(np.exp(-np.maximum(missing.low, 0)) * (1 + _SLACK), 1)
    return Between(-np.log1p(-low) * (1 - _SLACK), -np.log1p(-high) * (1 + _SLACK))


def _chance(hazard: Floats) -> Floats:
    return -np.expm1(-hazard)


def _zero(_: int) -> arb:
    return ball(0)


def _plus(value: Real, constant: Fraction) -> Real:
    return lambda bits: value(bits) + ball(constant)


def _over(more: Real, missing: Real, rate: Fraction) -> Real:
    return lambda bits: (more(bits) - missing(bits)) / ball(rate)


def _exact_place(missing: Real, number: int, uniform: Uniform) -> int | None:
    """Return the place of the run's first candidate to reach the threshold; None if none does."""

    def hazard(bits: int) -> arb:
        return -(-(-missing(bits)).exp()).log1p()

    if not is_less(uniform, lambda bits: -(-number * hazard(bits)).expm1()):
        return None
    drawn = wait_of(1, uniform)
    return floor_of(lambda bits: drawn(bits) / hazard(bits)) if number > 1 else 0


@dataclass(frozen=True)
class Search:
    """A search: the number of candidates, the threshold of the counts, and the rate."""

    size: int
    threshold: Fraction
    rate: Fraction
    rng: Callable[[], Rng] = system_rng


def first_above_groups(search: Search, histogram: Histogram) -> WithGap:
    """Return one code per group and how many whole rows it is above: −1 for both if none reaches the threshold."""
    return joined_pairs(of_parts(lambda part: _of_part(search, part), histogram))


def _of_part(search: Search, histogram: Histogram) -> WithGap:
    codes, gaps, rng = np.empty_like(histogram.sizes), np.empty_like(histogram.sizes), search.rng()
    for first, last in slices(histogram.sizes, CHUNK, CHUNK):
        begins, runs = count_runs(histogram.part(first, last), search.size)
        found, places, gaps[first:last] = first_reached(runs, search.threshold, search.rate, rng)
        codes[first:last] = np.where(found < 0, -1, begins[found] + places)
    return codes, gaps


def count_runs(histogram: Histogram, size: int) -> tuple[Ints, CountRuns]:
    """Return the runs of candidates with one count, in the order of their codes, and the first code of each.

    Only occupied codes are visited: all codes between two of them are one run of count 0.
    """
    groups = len(histogram.sizes)
    # Each group's occupied codes; before, between and after them the other codes, possibly none.
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
