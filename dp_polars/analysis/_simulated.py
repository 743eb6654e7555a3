"""The laws of simulated answers: choices, thresholds, lists and numbers."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dp_polars._accounting.claims import Claim
from dp_polars._accounting.terms import Mechanism
from dp_polars._base import column_types
from dp_polars._base.numbers import Floats, Ints, offsets, owners, reduced, slices, starts
from dp_polars._bins.candidates import Grid, Ordered
from dp_polars._mechanisms.above_threshold import count_runs
from dp_polars._mechanisms.histograms import Histogram, Runs
from dp_polars._mechanisms.noise import check_scale, noise_bound
from dp_polars._mechanisms.person_weights import rounded
from dp_polars._mechanisms.racing import LAWS
from dp_polars._statistics.averages import Average, Mean
from dp_polars._statistics.categories import Choice, Quantile
from dp_polars._statistics.extremes import FirstAbove, own_sensitivities
from dp_polars._statistics.measures import Multiple, Total, ValueCounts
from dp_polars._statistics.of_shared_draws import Bernstein, Combined
from dp_polars._statistics.statistic import Columns, ListQuery, Mistakes
from dp_polars.analysis._laws import NoiseLaw, block_probabilities

# Slightly less, so that rounding does not decide about a level that is met exactly (as in uniform laws).
_SHARES = (0.05 * (1 - 1e-12), 0.95 * (1 - 1e-12))


# From a claim to the law of the answers: a row per group, with columns of `simulate`.
Law: TypeAlias = Callable[[Claim], pl.DataFrame]
# From the totals of a group and its true answer: the ends of the interval, and the mean error.
_OfGroup: TypeAlias = "Callable[[Sequence[int], float], tuple[Floats, float]]"


class Histograms(NamedTuple):
    """The histogram of all rows, and that of the rows that count."""

    everything: Histogram
    bounded: Histogram


def law_of_blocks(gaps: Floats, multiplicities: Ints, sizes: Ints, rate: Fraction, mechanism: Mechanism) -> Floats:
    """Return the probability of each block in its group."""
    parts = [slice(*ends) for ends in pairwise(offsets(sizes).tolist())]
    laws = (block_probabilities(gaps[part], multiplicities[part], rate, mechanism) for part in parts)
    return np.concatenate([np.empty(0), *laws])


@dataclass(frozen=True)
class AnswerBlocks:
    """All answers of every group, from the lowest to the highest, in blocks of equal probability."""

    # Shape (n,): best score minus score as in the mechanism, and the true error of the answer.
    gaps: Floats
    errors: Floats
    # Shape (n,): the mean distance of the answers from the true one if they are on a line. None: they are not.
    distances: Floats | None
    multiplicities: Ints  # shape (n,): answers in the block
    sizes: Ints  # shape (g,): blocks of each group, at least one
    answer: Callable[[Ints, Ints], pl.Series]  # block of each group, and position in it, shape (g,) each -> the answers
    has_truth: NDArray[np.bool_]  # shape (g,): whether the group has a true answer

    def law(self, rate: Fraction, mechanism: Mechanism) -> pl.DataFrame:
        begins = starts(self.sizes)
        law = law_of_blocks(self.gaps, self.multiplicities, self.sizes, rate, mechanism)
        ranges = np.empty((len(begins), 2, 2), np.int64)
        for group, (begin, size) in enumerate(zip(begins.tolist(), self.sizes.tolist(), strict=True)):
            part = slice(begin, begin + size)
            ranges[group] = [_at_share(share, law[part], self.multiplicities[part]) for share in _SHARES]
        ranges[:, :, 0] += begins[:, None]
        right = self.errors == 0
        first_right = np.minimum.reduceat(np.where(right, np.arange(len(law)), len(law)), begins)
        of_scores = _mean(law, self.errors, begins)
        # On a line, the mean distance from the true answer is the most useful error.
        on_the_line = None if self.distances is None else _mean(law, self.distances, begins)
        columns = {
            "true_answer": self.answer(first_right, np.zeros_like(first_right)),
            "probability_true": np.minimum(np.add.reduceat(np.where(right, law, 0), begins), 1),
            "expected_error": of_scores if on_the_line is None else on_the_line,
            "expected_rank_error": None if on_the_line is None else of_scores,
            "answer_5": self.answer(*ranges[:, 0].T),
            "answer_95": self.answer(*ranges[:, 1].T),
        }
        return _law_of_groups(columns, self.has_truth)


def _law_of_groups(columns: dict[str, Any], has_truth: NDArray[np.bool_]) -> pl.DataFrame:
    """Return the law of a statistic if some groups have no true answer."""
    law = pl.DataFrame(columns, schema_overrides={"expected_rank_error": pl.Float64})
    of_truth = [*columns][:-2]  # all but the ends of the interval
    return law.with_columns(pl.when(pl.Series(has_truth)).then(pl.col(name)).alias(name) for name in of_truth)


def _mean(law: Floats, errors: Floats, starts: Ints) -> Floats:
    """Return the mean of each group. An error that overflows has probability 0."""
    return np.add.reduceat(np.multiply(law, errors, out=np.zeros_like(law), where=law > 0), starts)


def of_histograms(statistic: Choice, types: Columns, scored: Histograms) -> AnswerBlocks:
    """Return the blocks of a mode or a quantile. The histogram after the limits is part of that of all rows."""
    everything, bounded = (statistic.scored(histogram, *types) for histogram in scored)
    groups = len(everything.sizes)
    codes, truly, sizes = everything.codes, everything.weights, everything.sizes
    seen = np.zeros_like(truly)
    seen[positions_of(everything, bounded)] = bounded.weights
    draw = statistic.draw(*types)
    all_runs, bounded_runs = (Runs.of_counts(codes, weights, sizes) for weights in (truly, seen))
    true_slots, slots = (draw.score.slots(runs, draw.size) for runs in (all_runs, bounded_runs))
    errors = true_slots.gaps.astype(np.float64) * float(statistic.step(*types) / draw.score.unit)
    # In a group without rows after the limits, all candidates are equally good.
    gaps = np.where(np.repeat(bounded_runs.totals == 0, slots.sizes), 0, slots.gaps)
    owner = owners(slots.sizes)
    order, distances = np.arange(len(errors)), None
    if isinstance(statistic, Quantile):
        right = np.flatnonzero(errors == 0)
        true_codes = slots.first[right[np.searchsorted(owner[right], np.arange(groups))]]
        distances = _distances(statistic.points, slots.first, slots.multiplicities, true_codes[owner])
    else:  # from the worst to the best
        order = np.lexsort((slots.first, -errors, owner))
    first = slots.first[order]

    def answer(block: Ints, position: Ints) -> pl.Series:
        start = first[block]
        return statistic.named(np.where(start >= 0, start + position, all_runs.nth_unoccupied(position)), *types)

    gaps, errors, sizes = gaps[order].astype(np.float64), errors[order], slots.sizes
    return AnswerBlocks(gaps, errors, distances, slots.multiplicities[order], sizes, answer, all_runs.totals > 0)


def _distances(candidates: Ordered, first: Ints, multiplicities: Ints, true: Ints) -> Floats:
    """Return the mean distance of the candidates from `first` on from the true one, which is never inside a block."""
    if isinstance(candidates, Grid):
        return abs(candidates.distances(first + (multiplicities - 1) / 2 - true))
    places = candidates.places()
    upto = np.append(0.0, np.cumsum(places))
    return abs((upto[first + multiplicities] - upto[first]) / multiplicities - places[true])


def positions_of(everything: Histogram, part: Histogram) -> Ints:
    """Return the positions of a part's pairs in the whole."""
    bits = np.uint64(int(everything.codes.max(initial=0)).bit_length())

    def cells(histogram: Histogram) -> NDArray[np.uint64]:
        return owners(histogram.sizes).astype(np.uint64) << bits | histogram.codes.astype(np.uint64)

    return np.searchsorted(cells(everything), cells(part))


def of_scores(values: pl.Series, lengths: Ints, lowest: bool) -> Callable[[Claim], AnswerBlocks]:
    """Return a function from a claim to the blocks of an argmax: one per row; a null one if no row has a score."""
    numbers = column_types.exact_values(values)
    rows = np.flatnonzero(column_types.are_finite(values))
    gaps = _from_the_best(numbers[rows], _counts(rows, lengths), lowest)
    blocks = _of_rows(rows, lengths, gaps, gaps * float(column_types.tick(values.dtype) or 1))
    return lambda _: blocks


def of_own_sensitivities(
    values: pl.Series, sensitivities: pl.Series, lengths: Ints, lowest: bool
) -> Callable[[Claim], AnswerBlocks]:
    """Return a function from a claim to the blocks of an argmax of rows with sensitivities of their own."""
    rows, counts, rows_offered = own_sensitivities(values, sensitivities, lengths, lowest=lowest)
    errors = _from_the_best(rows_offered.scores, counts, lowest) * float(column_types.tick(values.dtype) or 1)

    def blocks(claim: Claim) -> AnswerBlocks:
        gaps = rows_offered.gaps(claim.rate, LAWS[claim.mechanism]) if len(rows) else errors
        return _of_rows(rows, lengths, gaps, errors)

    return blocks


def _counts(rows: Ints, lengths: Ints) -> Ints:
    return np.diff(np.searchsorted(rows, offsets(lengths)))


def _from_the_best(numbers: column_types.Exact, counts: Ints, lowest: bool) -> Floats:
    best = np.repeat(reduced(np.minimum if lowest else np.maximum, numbers, counts), counts[counts > 0])
    high, low = (numbers, best) if lowest else (best, numbers)
    return column_types.gaps_between(high, low).astype(np.float64)  # an infinite one has probability 0


def _of_rows(rows: Ints, lengths: Ints, gaps: Floats, errors: Floats) -> AnswerBlocks:
    counted = _counts(rows, lengths)
    owner = owners(counted)
    position = rows - starts(lengths)[owner]
    nothing = np.flatnonzero(counted == 0)
    owner, position = np.append(owner, nothing), np.append(position, np.full(len(nothing), -1))
    gaps, errors = np.append(gaps, np.zeros(len(nothing))), np.append(errors, np.zeros(len(nothing)))
    order = np.lexsort((position, -errors, owner))
    placed = position[order]

    def answer(block: Ints, _: Ints) -> pl.Series:
        return pl.Series(placed[block]).cast(pl.UInt32, strict=False)  # −1 becomes null

    one = np.ones(len(placed), np.int64)
    return AnswerBlocks(gaps[order], errors[order], None, one, np.maximum(counted, 1), answer, counted > 0)


def _at_share(share: float, law: Floats, multiplicities: Ints) -> tuple[int, int]:
    """Return the block, and the place in it, of the first answer that a given part of the draws does not exceed."""
    upto = np.cumsum(law)
    block = min(int(np.searchsorted(upto, share)), len(law) - 1)
    missing, size = share - (upto[block] - law[block]), int(multiplicities[block])
    return block, min(max(math.ceil(missing / law[block] * size) - 1, 0), size - 1)


_FAR, _WIDTH = 45.0, 1.0
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)
_THRESHOLD_CELLS = 1 << 18  # runs times nodes per batch


NEAR = "probability_near"  # column with the probabilities of near answers; `simulate` does not show it


def law_of_first_above(statistic: FirstAbove, types: Columns, histograms: Histograms, within: float = 0) -> Law:
    """Return a function from a claim to the law of the answers.

    An answer's error is how far it is below the threshold, or one before it is above, whichever is more: 0 for the true
    answer. It is measured on all rows, also on dropped ones. `NEAR` is the probability of the true answer, and of any
    other one with an error of at most `within`, if that is above 0.
    """
    everything, bounded = histograms
    search = statistic.search(*types)
    counts = np.zeros((len(everything.codes) + 1, 2), np.int64)  # of all rows, and of the counted ones; last: none
    counts[:-1, 0] = everything.weights
    counts[positions_of(everything, bounded), 1] = bounded.weights
    pairs, labels = np.unique(counts, axis=0, return_inverse=True)
    labels = labels.ravel()
    # Runs of candidates with equal counts in both; those without rows have the first label, (0, 0).
    first, runs = count_runs(Histogram(everything.codes, labels[:-1], everything.sizes), search.size)
    truly, seen = pairs[runs.counts].T
    bounds = offsets(runs.sizes)

    def law(claim: Claim) -> pl.DataFrame:
        parts = [slice(begin, end) for begin, end in pairwise(bounds)]
        groups = [
            _of_group(
                *(first[part], runs.multiplicities[part], truly[part], seen[part]), search.threshold, claim.rate, within
            )
            for part in parts
        ]
        columns = list(zip(*groups, strict=True)) or [()] * 6
        true, low, high = (statistic.named(np.array(columns[i], np.int64), *types) for i in (0, 3, 4))
        numbers = {"probability_true": columns[1], "expected_error": columns[2], NEAR: columns[5]}
        return pl.DataFrame(
            {
                "true_answer": true,
                **{name: np.array(column, np.float64) for name, column in numbers.items()},
                "answer_5": low,
                "answer_95": high,
            }
        )

    return law


def _of_group(
    first: Ints, m: Ints, truly: Ints, seen: Ints, threshold: Fraction, rate: Fraction, within: float
) -> tuple[int, float, float, int, int, float]:
    """Return the true code (−1: none), its probability, the mean error, the codes of both ends, and `NEAR`."""
    aim, least = float(threshold), math.ceil(threshold)
    # The first one of a run that truly reaches the threshold is separate: only it is right.
    parts = np.where((truly >= least) & (m > 1), 2, 1)
    are_later = np.zeros(int(parts.sum()), bool)
    are_later[np.cumsum(parts)[parts == 2] - 1] = True
    first, m, truly, seen, parts = (np.repeat(column, parts) for column in (first, m, truly, seen, parts))
    first = first + are_later
    m = np.where(parts == 1, m, np.where(are_later, m - 1, 1))

    integral = _Integral.of(np.multiply(aim - seen, float(rate), dtype=np.float64), m)
    law = integral.law()
    errors = np.maximum(np.maximum.accumulate(np.append(0.0, truly - aim)), np.append(aim - truly, 0.0))
    reached = np.append(truly >= least, True)
    right = int(np.argmax(reached))
    codes = np.append(first, -1)
    ends = (integral.at_share(share, law) for share in _SHARES)
    low, high = (int(codes[run]) + place for run, place in ends)
    is_near = errors <= within if within else np.arange(len(law)) == right
    chances = min(float(law[right]), 1.0), min(float(law[is_near].sum()), 1.0)
    return int(codes[right]), chances[0], float(law @ errors), low, high, chances[1]


@dataclass(frozen=True)
class _Integral:
    """Nodes and weights of the integrand; λ·(T − q) and the multiplicity of each run."""

    nodes: Floats
    weights: Floats
    missing: Floats
    m: Ints

    @classmethod
    def of(cls, missing: Floats, m: Ints) -> _Integral:
        kinks = np.maximum.accumulate(-missing)
        kinks = np.unique(kinks[(kinks > 0) & (kinks < _FAR)])
        ends = np.union1d(np.arange(0, _FAR + _WIDTH, _WIDTH), kinks)
        half = np.diff(ends)[:, None] / 2
        nodes = (ends[:-1, None] + half * (1 + _NODES)).ravel()
        return cls(nodes, (half * _WEIGHTS).ravel() * np.exp(-nodes), missing, m)

    def _log_passed(self, nodes: Floats, runs: slice) -> Floats:
        """Return the log of the chance that one candidate is below the threshold, shape (runs, nodes)."""
        with np.errstate(divide="ignore"):  # −inf if nothing is missing
            return np.log1p(-np.exp(-np.maximum(self.missing[runs, None] + nodes, 0)))

    def law(self) -> Floats:
        """Return the probability of each run, and last that of no answer."""
        law, rest = np.zeros(len(self.m)), 0.0
        step = max(1, _THRESHOLD_CELLS // len(self.m))
        for start in range(0, len(self.nodes), step):
            part = slice(start, start + step)
            passed = self._log_passed(self.nodes[part], slice(None)) * self.m[:, None]
            before = np.exp(np.cumsum(np.vstack([np.zeros((1, passed.shape[1])), passed]), axis=0))
            law += (before[:-1] * -np.expm1(passed)) @ self.weights[part]
            rest += float(before[-1] @ self.weights[part])
        return np.append(law, rest)

    def at_share(self, share: float, law: Floats) -> tuple[int, int]:
        """Return the run, and the place in it, of the first answer that a given part of the draws does not exceed."""
        upto = np.cumsum(law)
        run = min(int(np.searchsorted(upto, share)), len(self.m))
        if run == len(self.m) or self.m[run] == 1:
            return run, 0
        before, step = np.zeros(len(self.nodes)), max(1, _THRESHOLD_CELLS // len(self.nodes))
        for start in range(0, run, step):
            part = slice(start, min(start + step, run))
            before += (self._log_passed(self.nodes, part) * self.m[part, None]).sum(axis=0)
        before, passed = np.exp(before) * self.weights, self._log_passed(self.nodes, slice(run, run + 1))[0]
        missing = share - (upto[run - 1] if run else 0.0)

        def are_enough(number: int) -> bool:
            return float(before @ -np.expm1(passed * number)) >= missing

        return run, bisect_left(range(1, int(self.m[run])), True, key=are_enough)


DRAWS = 200  # draws of each list. Their mean is off by some 7 % of the standard deviation of one draw.
_BEYOND = DRAWS // 20  # the most draws beyond either end of an interval
_DRAWN_CELLS = 1 << 20  # rows of copied histograms, and answers, per batch


def law_of_lists(statistic: ListQuery, types: Columns, everything: Histogram, bounded: Histogram) -> Law:
    """Return a function from a claim to the estimated quality of lists of the counted rows, from `DRAWS` draws."""

    def law(claim: Claim) -> pl.DataFrame:
        asked = statistic.with_loss(claim.loss.value)
        most = max(1, _DRAWN_CELLS // (DRAWS * statistic.width))
        sizes = np.maximum(everything.sizes, bounded.sizes)
        parts = [
            _of_part(asked, types, everything.part(first, last), bounded.part(first, last))
            for first, last in slices(sizes, _DRAWN_CELLS // DRAWS, most)
        ]
        return pl.concat(parts) if parts else _of_part(asked, types, everything, bounded)

    return law


def _of_part(statistic: ListQuery, types: Columns, everything: Histogram, bounded: Histogram) -> pl.DataFrame:
    codes, mistakes = _draws(statistic, types, everything, bounded)
    right, wrong, _, ranks = mistakes
    if statistic.is_ordered:  # each answer of a list is on a line of its own
        ends = np.sort(codes, axis=0)[[_BEYOND, DRAWS - 1 - _BEYOND]]
    else:  # from the worst list to the best
        order = np.argsort(-wrong, axis=0, kind="stable")[[_BEYOND, DRAWS - 1 - _BEYOND]]
        ends = np.take_along_axis(codes, order[:, :, None], axis=0)
    columns = {
        "true_answer": statistic.named(statistic.true_codes(everything, *types), *types),
        "probability_true": right.mean(axis=0),
        "expected_error": wrong.mean(axis=0),
        "expected_rank_error": None if ranks is None else ranks.mean(axis=0),
        "answer_5": statistic.named(ends[0], *types),
        "answer_95": statistic.named(ends[1], *types),
    }
    return _law_of_groups(columns, everything.totals > 0)


def share_within(statistic: ListQuery, types: Columns, histogram: Histogram, within: float) -> Floats:
    """Return the part of `DRAWS` draws in which all answers of a group are this near to the true ones, shape (g,)."""
    most = max(1, _DRAWN_CELLS // (DRAWS * statistic.width))
    parts = [histogram.part(*ends) for ends in slices(histogram.sizes, _DRAWN_CELLS // DRAWS, most)]
    mistakes = [_draws(statistic, types, part, part)[1] for part in parts]
    return np.concatenate([np.empty(0), *((part.worst <= within).mean(axis=0) for part in mistakes)])


def _draws(statistic: ListQuery, types: Columns, everything: Histogram, bounded: Histogram) -> tuple[Ints, Mistakes]:
    """Return `DRAWS` lists of each group, shape (draws, g, width), and their errors, shape (draws, g)."""
    groups, drawn, mistakes = len(bounded.sizes), [], []
    copies = min(
        DRAWS, max(1, _DRAWN_CELLS // max(1, len(bounded.codes), len(everything.codes), groups * statistic.width))
    )
    for start in range(0, DRAWS, copies):
        number = min(copies, DRAWS - start)
        drawn.append(statistic.draw_codes(bounded.repeated(number), *types))
        mistakes.append(statistic.mistakes(drawn[-1], everything.repeated(number), *types))
    right, wrong, worst = (
        np.concatenate([getattr(batch, name) for batch in mistakes]).reshape(DRAWS, groups)
        for name in ("right", "wrong", "worst")
    )
    ranks = [batch.ranks for batch in mistakes if batch.ranks is not None]
    of_ranks = np.concatenate(ranks).reshape(DRAWS, groups) if ranks else None
    return np.concatenate(drawn).reshape(DRAWS, groups, statistic.width), Mistakes(right, wrong, worst, of_ranks)


_END = 0.05  # both ends of a confidence interval are exceeded with this probability
_CELLS = 2049  # noisy counts in the sum for a mean's law
_ALL_CELLS = 97**3  # also for all draws of another average together: 97 for each of a variance's three


def law_of_total(statistic: Total, types: Columns, truly: list[Ints], bounded: Sequence[Any]) -> Law:
    """Return a function from a claim to the law of a count, a sum or an average, a row per group.

    `truly`, `bounded`: for each histogram, the sum of weights of each group in whole units, shape (g,): of all rows,
    and of the counted ones. Those of an average may be floats.
    """
    if isinstance(statistic, Combined):
        return _law_of_combined(statistic, types, truly, bounded)
    if isinstance(statistic, Multiple):
        return law_of_numbers(statistic, types, truly[0], bounded[0])
    if not isinstance(statistic, Average):
        msg = f"simulate: the law of a {type(statistic).__name__} is not known."
        raise TypeError(msg)

    def law(claim: Claim) -> pl.DataFrame:
        asked = statistic.with_loss(claim.loss.value)
        claims, true = asked.noise(*types), asked.of_totals(truly, *types)
        for noise in claims:
            check_scale(noise)
        is_of_two = isinstance(asked, Mean) and not isinstance(asked, Bernstein)  # a sum and a count
        of_group = _of_mean(asked, types) if is_of_two else _of_average(asked, types)  # type: ignore[arg-type]
        ends, errors = np.empty((len(true), 2)), np.empty(len(true))
        for group, totals in enumerate(zip(*(part.tolist() for part in bounded), strict=True)):
            ends[group], errors[group] = of_group(totals, true[group])
        unknown = pl.Series([None] * len(true), dtype=pl.Float64)
        columns = {"true_answer": true, "probability_true": unknown, "expected_error": errors}
        columns |= {"answer_5": ends[:, 0], "answer_95": ends[:, 1]}
        return _law_of_groups(columns, asked.rows_of(truly, *types) > 0)

    return law


def law_of_numbers(statistic: Multiple | ValueCounts, types: Columns, truly: Ints, bounded: Ints) -> Law:
    """Return a function from a claim to the law of numbers with one noise: of all rows `truly`, of the counted ones."""
    size, (bits,) = statistic.answer_width(*types), statistic.bits_of_parts(*types)
    step = 1.0 if isinstance(statistic, ValueCounts) else float(statistic.answer_step(*types))

    def named(numbers: Ints) -> pl.Series:
        of = numbers if isinstance(statistic, ValueCounts) else [numbers]
        return statistic.named(of, *types)  # type: ignore[arg-type]

    def law(claim: Claim) -> pl.DataFrame:
        (noise,) = statistic.with_loss(claim.loss.value).noise(*types)
        check_scale(noise)
        noisy, bound, bias = NoiseLaw(noise, bits), noise_bound(noise, 2 * _END), bounded - truly
        return pl.DataFrame(
            {
                "true_answer": named(truly),
                "probability_true": noisy.probability(bias).reshape(-1, size).prod(axis=1),
                "expected_error": noisy.error(bias).reshape(-1, size).mean(axis=1) * step,
                "answer_5": named(bounded + rounded(-bound, bits)),
                "answer_95": named(bounded + rounded(bound, bits)),
            }
        )

    return law


def _law_of_combined(statistic: Combined, types: Columns, truly: Sequence[Any], bounded: Sequence[Any]) -> Law:
    """Return a function from a claim to the law of a number from several draws, by all combinations of their noise.

    It is in the unit of its answers, and the noise is the same in all groups.
    """

    def law(claim: Claim) -> pl.DataFrame:
        asked, step = statistic.with_loss(claim.loss.value), float(statistic.answer_step(*types))
        if not isinstance(asked, Combined):  # at another loss it has draws of its own
            in_steps = (np.rint(statistic.of_totals(one, *types) / step).astype(np.int64) for one in (truly, bounded))
            return law_of_numbers(asked, types, *in_steps)(claim)
        noise, law = _joint_cells(asked, types)
        off = asked.of_totals(noise, *types)
        order = np.argsort(off)
        off, probabilities = off[order], law[order]
        upto = np.cumsum(probabilities)
        ends = off[np.searchsorted(upto, [_END, 1 - _END])]
        true, among = asked.of_totals(truly, *types), asked.of_totals(bounded, *types)
        # E│X + b│ = b·(1 − 2·P(X < −b)) + E X − 2·E(X; X < −b)
        bias, means = among - true, np.append(0.0, np.cumsum(off * probabilities))
        below = np.searchsorted(off, -bias)
        errors = bias * (1 - 2 * np.append(0.0, upto)[below]) + means[-1] - 2 * means[below]

        def named(sums: Floats) -> pl.Series:
            return asked.named([np.rint(sums / step).astype(np.int64)], *types)

        return pl.DataFrame(
            {
                "true_answer": named(true),
                "probability_true": pl.Series([None] * len(true), dtype=pl.Float64),
                "expected_error": errors,
                "answer_5": named(among + ends[0]),
                "answer_95": named(among + ends[1]),
            }
        )

    return law


def _of_mean(statistic: Mean, types: Columns) -> _OfGroup:
    """Return the law of a mean: given the noisy count, it is linear in the noise of the sum, clipped."""
    of_sum, of_count = statistic.noise(*types)
    bits, bits_of_count = statistic.bits_of_parts(*types)
    noisy, (off, shares) = NoiseLaw(of_sum), cells_of_noise(of_count, bits_of_count)
    low, high = statistic.ends
    middle, unit = (low + high) / 2, float(statistic.units(*types).step) / 2

    def of_group(totals: Sequence[float], true: float) -> tuple[Floats, float]:
        distance, count = totals
        per_unit = np.maximum(count + off, 1) / unit * 2.0**bits  # in parts

        def noise_at(mean: Any) -> Any:  # noqa: ANN401
            """Return the noise of the sum, for each noisy count, that gives this mean before clipping."""
            return (mean - middle) * per_unit - distance * 2.0**bits

        def up_to(means: Floats) -> Floats:
            return np.asarray(noisy.up_to(np.floor(noise_at(means[:, None]))) @ shares)

        at, at_low, at_high = noise_at(true), noise_at(low), noise_at(high)
        above = noisy.excess(at) - noisy.excess(at_high)
        below = noisy.excess(-at) - noisy.excess(-at_low)
        return _quantiles(up_to, low, high), float(((above + below) / per_unit) @ shares)

    return of_group


def _of_average(statistic: Average, types: Columns) -> _OfGroup:
    """Return the law of any average: from all combinations of the noise of its draws."""
    noise, law = _joint_cells(statistic, types)

    def of_group(totals: Sequence[float], true: float) -> tuple[Floats, float]:
        answers = statistic.of_totals([total + part for total, part in zip(totals, noise, strict=True)], *types)
        order = np.argsort(answers)
        upto = np.cumsum(law[order])
        return answers[order[np.searchsorted(upto, [_END, 1 - _END])]], float(law @ abs(answers - true))

    return of_group


def _joint_cells(statistic: Total, types: Columns) -> tuple[list[Floats], Floats]:
    """Return all combinations of the noise of its draws, in whole units, and their probabilities."""
    claims, bits = statistic.noise(*types), statistic.bits_of_parts(*types)
    cells = round(_ALL_CELLS ** (1 / len(claims)))
    means, shares = zip(*(_coarse_cells(claim, cells // 2) for claim in claims), strict=True)
    units = [np.ldexp(of_draw, -bit) for of_draw, bit in zip(means, bits, strict=True)]
    return [part.ravel() for part in np.meshgrid(*units, indexing="ij")], reduce(np.multiply.outer, shares).ravel()


def _coarse_cells(claim: Claim, most: int) -> tuple[Floats, Floats]:
    """Return means of the noise in at most `most` stretches on either side of 0, wider ones far off; their weights."""
    law, reach = NoiseLaw(claim), noise_bound(claim, 1e-9)
    ends = np.unique(np.ceil(reach * np.linspace(0, 1, most + 1) ** 2))  # each stretch ends with one of these
    upto, above = law.up_to(ends), law.excess(ends)
    beyond = above + ends * (1 - upto)  # E(X; X > end)
    shares = np.append(-np.diff(1 - upto), 1 - upto[-1])
    means = np.append(-np.diff(beyond), beyond[-1]) / np.where(shares > 0, shares, 1)
    middle = 2 * upto[0] - 1  # P(X = 0)
    return np.concatenate([-means[::-1], [0.0], means]), np.concatenate([shares[::-1], [middle], shares])


def cells_of_noise(claim: Claim, bits: int) -> tuple[Floats, Floats]:
    """Return values of the noise of a count, and their probabilities: one each, or the middles of even stretches.

    The claim is in parts of 2**−bits, and values are in whole numbers.
    """
    reach = noise_bound(claim, 1e-9)
    width = -(-(2 * reach + 1) // _CELLS)
    first = np.arange(-reach, reach + 1, width).astype(np.float64)
    law = NoiseLaw(claim)
    shares = law.up_to(first + width - 1) - law.up_to(first - 1)
    return np.ldexp(first + (width - 1) / 2, -bits), shares / shares.sum()


def _quantiles(up_to: Callable[[Floats], Floats], low: float, high: float) -> Floats:
    """Return the first values that are not exceeded with these probabilities, by bisection."""
    shares = np.array([_END, 1 - _END])
    below, above = np.full(2, low), np.full(2, high)
    above[up_to(below) >= shares] = low
    for _ in range(50):
        middle = (below + above) / 2
        enough = up_to(middle) >= shares
        above, below = np.where(enough, middle, above), np.where(enough, below, middle)
    return above
