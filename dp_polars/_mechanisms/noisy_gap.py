"""Choices with their gap: permute-and-flip with a noisy gap."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars._base.column_types import float_of
from dp_polars._base.numbers import Ints, Rng, SignedInts, owners, run_starts, slices, starts, uniform_below
from dp_polars._bins.binning import Codes
from dp_polars._mechanisms import racing
from dp_polars._mechanisms.drawing import SLICE_ROWS, Draw, blocks_of_gaps, gaps_of_rows, of_group_slices
from dp_polars._mechanisms.histograms import Histogram, Runs, is_dense, of_row_slices
from dp_polars._mechanisms.racing import CHUNK, V_STEP, Blocks, Floats, RacingLaw, exponents_of, leading_bits

LARGEST_GAP = 2**62 - 1

# The error of the logarithm of an arrival time, with slack. A racing value, from the leading bits of V, is off by at
# most 2**-48 relative (a few NumPy functions, accurate to 4 units in the last place). Its logarithm is off by as much,
# plus 2**-51 of itself: it is at most 150, so 2**-43 in all. rate·gap is off by at most 40 units of 2**-53 relative or
# 2**-46 (`Blocks.gaps`), and the sum of both by one more.
_SLACK = 2.0**-40
_RELATIVE_SLACK = 2.0**-46
# A lower bound of rate·gap if its float is infinite.
_LARGEST_EXPONENT = 2.0**1023

# Shape (g,) each: a code or a position per group, and by how many whole units it beat the next candidate, at most
# LARGEST_GAP; −1 if there was no other.
WithGap: TypeAlias = "tuple[Ints, Ints]"


@dataclass(frozen=True)
class Between:
    """Lower and upper bounds of numbers, as floats, such as logarithms of arrival times: shape (n,)."""

    low: Floats
    high: Floats

    def at(self, positions: Ints) -> Between:
        return Between(self.low[positions], self.high[positions])

    def floors(self) -> tuple[Ints, NDArray[np.bool_]]:
        """Return the whole parts, at most LARGEST_GAP, and whether they are certain."""
        low, high = (np.floor(np.clip(bound, 0, 2.0**62)) for bound in (self.low, self.high))
        decided = low == high  # false for a bound that is no number
        whole = np.zeros(len(low), np.int64)
        whole[decided] = np.minimum(low[decided].astype(np.int64), LARGEST_GAP)
        return whole, decided


def race_with_gap(blocks: Blocks, rate: Fraction, unit: Fraction, law: RacingLaw, rng: Rng) -> WithGap:
    """Return the block that arrives first, for each group, and its gap in whole units; `unit`: in the unit of gaps.

    The blocks must include all candidates.
    """
    one_race = _Race(blocks, blocks.sizes(), rate, unit, law, rng)
    winners, noisy_gaps = np.empty_like(one_race.sizes), np.empty_like(one_race.sizes)
    for first, last in slices(one_race.sizes, CHUNK, CHUNK):
        winners[first:last], noisy_gaps[first:last] = one_race.of_groups(first, last)
    return winners, noisy_gaps


@dataclass(frozen=True)
class _Race:
    """The inputs of a race; `sizes` are the numbers of blocks of each group."""

    blocks: Blocks
    sizes: Ints
    rate: Fraction
    unit: Fraction
    law: RacingLaw
    rng: Rng

    def of_groups(self, first: int, last: int) -> tuple[Ints, Ints]:
        blocks, sizes, law = self.blocks, self.sizes[first:last], self.law
        begin, begins = int(blocks.starts[first]), starts(sizes)
        part = slice(begin, begin + int(sizes.sum()))
        m = None if blocks.multiplicities is None else blocks.multiplicities[part]
        exponents, drawn = exponents_of(blocks.gaps[part], self.rate), self.rng(part.stop - begin)

        # Blocks that may be first or second, by group and by their earliest possible time.
        candidates = _first_two(exponents, drawn, m, sizes, law)
        owner = owners(sizes)[candidates]
        heads = run_starts(owner)
        times = _log_times(drawn[candidates], exponents[candidates], None if m is None else m[candidates], law)
        order = np.lexsort((times.low, owner))
        candidates, times = candidates[order], times.at(order)
        next_low, next_high = (np.minimum.reduceat(_without(bound, heads), heads) for bound in (times.low, times.high))
        certain = times.high[heads] < next_low

        # The second arrival within the winner's block.
        winners, seconds = candidates[heads], np.zeros(len(sizes), np.uint64)
        winners_m = np.ones(len(sizes), np.int64) if m is None else m[winners].astype(np.int64)
        several = np.flatnonzero(winners_m > 1)
        seconds[several] = self.rng(len(several))
        at = winners[several]
        second = _log_second_times(drawn[at], seconds[several], exponents[at], winners_m[several], law)
        next_low[several] = np.minimum(next_low[several], second.low)
        next_high[several] = np.minimum(next_high[several], second.high)

        between = Between(next_low - times.high[heads], next_high - times.low[heads])
        noisy_gaps = _whole_units(between, float_of(self.rate * self.unit))
        has_one = (sizes if m is None else np.add.reduceat(m, begins, dtype=np.int64)) == 1
        certain &= has_one | (noisy_gaps >= 0)
        noisy_gaps[has_one] = -1
        stops = np.append(heads[1:], len(candidates))
        for group in np.flatnonzero(~certain).tolist():
            listed = candidates[heads[group] : stops[group]]
            drawn_words = dict(zip((listed - begins[group]).tolist(), drawn[listed].tolist(), strict=True))
            position, noisy_gaps[group] = self._exactly(first + group, drawn_words, int(seconds[group]))
            winners[group] = begins[group] + position
        return begin + winners, noisy_gaps

    def _exactly(self, group: int, drawn: dict[int, int], second: int) -> tuple[int, int]:
        """Return the winner's position in its group and its gap; `second` is the word of the first one listed."""
        gap, multiplicities = self.blocks.exact(group)
        guess = next(iter(drawn))
        words_drawn = {position: word for position, word in drawn.items() if multiplicities[position]}
        position, noisy_gap = racing.first_and_gap(
            gap, multiplicities, words_drawn, {guess: second}, self.rate, self.unit, self.law, self.rng
        )
        return position, -1 if noisy_gap is None else min(noisy_gap, LARGEST_GAP)


def _first_two(exponents: Floats, drawn: NDArray[np.uint64], m: SignedInts | None, sizes: Ints, law: RacingLaw) -> Ints:
    """Return the positions of all blocks that may arrive first or second in their groups, ascending."""
    begins, low = starts(sizes), _bound(leading_bits(drawn), exponents, m, law, -1)
    # By then, the two blocks with the earliest possible times have arrived.
    latest = np.full(len(sizes), -math.inf)
    rest = low
    for _ in range(2):
        least = np.minimum.reduceat(rest, begins)
        at = np.flatnonzero(rest == np.repeat(least, sizes))
        at = at[run_starts(owners(sizes)[at])]
        m_at = None if m is None else m[at]
        np.maximum(latest, _log_times(drawn[at], exponents[at], m_at, law).high, out=latest)
        rest = _without(rest, at)
    return np.flatnonzero(low <= np.repeat(latest, sizes))


def _without(times: Floats, positions: Ints) -> Floats:
    rest = times.copy()
    rest[positions] = math.inf
    return rest


def _whole_units(noisy_gaps: Between, unit: float) -> Ints:
    """Return noisy_gaps in whole units, from bounds in multiples of 1/rate; −1 if floats leave it undecided."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        low, high = noisy_gaps.low / unit * (1 - _RELATIVE_SLACK), noisy_gaps.high / unit * (1 + _RELATIVE_SLACK)
        whole, decided = Between(low, high).floors()
    return np.where(decided, whole, -1)


def _log_times(drawn: NDArray[np.uint64], exponents: Floats, m: SignedInts | None, law: RacingLaw) -> Between:
    """Return bounds of the logarithms of arrival times."""
    v = leading_bits(drawn)
    return Between(*(_bound(v + i * V_STEP, exponents, m, law, sign) for i, sign in ((0, -1), (1, 1))))


def _bound(v: Floats, exponents: Floats, m: SignedInts | None, law: RacingLaw, sign: int) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        if m is None and law.is_uniform:
            return _widened(v, exponents, m, sign)
        waits = -np.log1p(-v)
        return _widened(law.values(waits if m is None else waits / m), exponents, m, sign)


def _log_second_times(
    drawn: NDArray[np.uint64], seconds: NDArray[np.uint64], exponents: Floats, m: Ints, law: RacingLaw
) -> Between:
    """Return bounds of the logarithms of the second arrival times of blocks of several candidates.

    With m candidates the first one waits −log(1 − V)/m, and the second one −log(1 − V′)/(m − 1) longer.
    """
    v, other = leading_bits(drawn), leading_bits(seconds)
    with np.errstate(divide="ignore"):
        waits = (-np.log1p(-(v + i)) / m - np.log1p(-(other + i)) / (m - 1) for i in (0.0, V_STEP))
        low, high = (law.values(wait) for wait in waits)
    return Between(_widened(low, exponents, None, -1), _widened(high, exponents, None, 1))


def _widened(value: Floats, exponents: Floats, m: SignedInts | None, sign: int) -> Floats:
    """Return a bound of the logarithm of the arrival time: from below (`sign` −1) or above (1)."""
    if sign < 0:
        exponents = np.minimum(exponents, _LARGEST_EXPONENT)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        bound = np.log(value)
        bound += sign * _SLACK
        bound += exponents * (1 + sign * _RELATIVE_SLACK)
    if m is not None:
        bound[m == 0] = math.inf
    return bound


def type_with_gap(answer: pl.DataType, noisy_gap: pl.DataType) -> pl.Struct:
    return pl.Struct({"answer": answer, "gap": noisy_gap})


def with_gap(answers: pl.Series, noisy_gaps: pl.Series, is_alone: NDArray[np.bool_]) -> pl.Series:
    """Return answers with their gaps; null if there was no other candidate."""
    shown = noisy_gaps.zip_with(pl.Series(~is_alone), pl.Series([None], dtype=noisy_gaps.dtype))
    return pl.DataFrame({"answer": answers, "gap": shown}).to_struct()


def gap_from_rows(draw: Draw, codes: Codes, lengths: Ints) -> WithGap:
    """Return one code and its gap per group, from the codes of its rows; `draw.size` is ignored."""
    if not is_dense(draw.size, codes, lengths):
        return gap_groups(draw, Histogram.of_rows(codes, None, lengths, draw.size))

    def of_slice(codes: Codes, lengths: Ints) -> WithGap:
        blocks = blocks_of_gaps(gaps_of_rows(draw, codes, lengths))
        winners, noisy_gaps = _race(draw, blocks, draw.rng())
        return winners - blocks.starts, noisy_gaps

    return joined_pairs(of_row_slices(of_slice, draw.size, codes, lengths, SLICE_ROWS))


def gap_groups(draw: Draw, histogram: Histogram) -> WithGap:
    """Return one code and its gap per group; for a group without rows, the code is uniform."""
    return joined_pairs(of_group_slices(partial(_gap_from_runs, draw), histogram))


def _gap_from_runs(draw: Draw, runs: Runs) -> WithGap:
    slots = draw.score.slots(runs, draw.size)
    rng = draw.rng()
    blocks = Blocks(slots.gaps, slots.begins, lambda group: slots.of_group(group).exact(), slots.multiplicities)
    winners, noisy_gaps = _race(draw, blocks, rng)
    first, count = (column[winners].astype(np.int64) for column in (slots.first, slots.multiplicities))
    offset = uniform_below(count, rng)
    # If the winner is a code without rows, the slot has no first code.
    return np.where(first < 0, runs.nth_unoccupied(offset), first + offset), noisy_gaps


def _race(draw: Draw, blocks: Blocks, rng: Rng) -> WithGap:
    return race_with_gap(blocks, draw.rate, Fraction(draw.score.unit), draw.law, rng)


def joined_pairs(parts: Sequence[WithGap]) -> WithGap:
    nothing = np.empty(0, np.int64)
    codes, noisy_gaps = zip((nothing, nothing), *parts, strict=True)
    return np.concatenate(codes), np.concatenate(noisy_gaps)
