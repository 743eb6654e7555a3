"""The laws of private choices on public rows: all answers of a group, in blocks, and how probable each block is."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from dp_polars._base import column_types
from dp_polars._base.arrays import Ints, offsets, owners, reduced, starts
from dp_polars._codes.grids import Grid
from dp_polars._draws.scores import Runs
from dp_polars._mechanisms.laws import LAWS
from dp_polars._questions.argmax import own_sensitivities
from dp_polars._questions.choices import Quantile
from dp_polars.analysis._laws import block_probabilities

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dp_polars._accounting.claims import Claim
    from dp_polars._accounting.terms import Mechanism
    from dp_polars._codes.candidates import Ordered
    from dp_polars._draws.histograms import Histogram
    from dp_polars._questions.choices import Choice
    from dp_polars._questions.question import Columns

# Slightly less, so that rounding does not decide a share that is met exactly (as in uniform laws).
_SHARES = (0.05 * (1 - 1e-12), 0.95 * (1 - 1e-12))


class Histograms(NamedTuple):
    """The histogram of all rows, and that of the rows that count."""

    everything: Histogram
    bounded: Histogram


@dataclass(frozen=True)
class AnswerBlocks:
    """All answers of every group, from the lowest to the highest, in blocks that the mechanism can't tell apart.

    Parameters
    ----------
    gaps, errors
        Shape (n,): best score minus score as the mechanism sees it, and how much worse than the best the answer truly
        is.
    distances
        Shape (n,): how far the answers are from the true one, on average, where they lie on a line. None: they don't.
    multiplicities
        Shape (n,): answers in the block.
    sizes
        Shape (g,): blocks of each group, at least one.
    answer
        Block of each group, and position in it, shape (g,) each -> the answers.
    counted, left_out
        Shape (g,): rows or people that count, and those that don't: the bounds dropped them, or they have no person.
    has_truth
        Shape (g,): whether the group has a true answer.
    """

    gaps: NDArray[np.float64]
    errors: NDArray[np.float64]
    distances: NDArray[np.float64] | None
    multiplicities: Ints
    sizes: Ints
    answer: Callable[[Ints, Ints], pl.Series]
    counted: Ints
    left_out: Ints
    has_truth: NDArray[np.bool_]

    def law(self, rate: Fraction, mechanism: Mechanism) -> pl.DataFrame:
        """Return the law of the answers at a rate, a row per group."""
        ends = np.cumsum(self.sizes)
        starts = ends - self.sizes
        law = np.empty(len(self.gaps))
        ranges = np.empty((len(starts), 2, 2), np.int64)
        for group, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
            part = slice(start, end)
            law[part] = block_probabilities(self.gaps[part], self.multiplicities[part], rate, mechanism)
            ranges[group] = [_at_share(share, law[part], self.multiplicities[part]) for share in _SHARES]
        ranges[:, :, 0] += starts[:, None]
        right = self.errors == 0
        first_right = np.minimum.reduceat(np.where(right, np.arange(len(law)), len(law)), starts)
        of_scores = _mean(law, self.errors, starts)
        # Where the answers lie on a line, it tells most how far they are from the true one on it.
        on_the_line = None if self.distances is None else _mean(law, self.distances, starts)
        return pl.DataFrame(
            {
                "true_answer": self.answer(first_right, np.zeros_like(first_right)),
                "probability_true": np.minimum(np.add.reduceat(np.where(right, law, 0), starts), 1),
                "expected_error": of_scores if on_the_line is None else on_the_line,
                "expected_rank_error": None if on_the_line is None else of_scores,
                "answer_5": self.answer(*ranges[:, 0].T),
                "answer_95": self.answer(*ranges[:, 1].T),
            },
            schema_overrides={"expected_rank_error": pl.Float64},
        ).with_columns(
            pl.when(pl.Series(self.has_truth)).then(pl.col(name)).alias(name)
            for name in ("true_answer", "probability_true", "expected_error", "expected_rank_error")
        )


def _mean(law: NDArray[np.float64], errors: NDArray[np.float64], starts: Ints) -> NDArray[np.float64]:
    """Return the mean of each group. An error that overflows has probability 0."""
    wrong: NDArray[np.float64] = np.multiply(law, errors, out=np.zeros_like(law), where=law > 0)
    return np.add.reduceat(wrong, starts)


def of_histograms(question: Choice, types: Columns, scored: Histograms, counts: Histograms) -> AnswerBlocks:
    """Return the blocks of a mode or a quantile, from the weights that are scored, and from the rows or people.

    `bounded`, the histogram after the bounds, is part of `everything`.
    """
    everything, bounded = scored
    groups = len(everything.sizes)
    counted = counts.bounded.totals
    left_out = counts.everything.totals - counted
    everything, bounded = question.scored(everything, *types), question.scored(bounded, *types)
    codes, truly, sizes = everything.codes, everything.weights, everything.sizes
    seen = np.zeros_like(truly)
    seen[positions_of(everything, bounded)] = bounded.weights
    draw = question.draw(*types)
    all_runs, bounded_runs = (Runs.of_counts(codes, weights, sizes) for weights in (truly, seen))
    true_slots, slots = (draw.score.slots(runs, draw.size) for runs in (all_runs, bounded_runs))
    errors = true_slots.gaps.astype(np.float64) * float(question.step(*types) / draw.score.unit)
    # In a group without rows after the bounds, all candidates are equally good.
    gaps = np.where(np.repeat(bounded_runs.totals == 0, slots.sizes), 0, slots.gaps)
    owner = owners(slots.sizes)
    order, distances = np.arange(len(errors)), None
    if isinstance(question, Quantile):
        right = np.flatnonzero(errors == 0)
        true_codes = slots.first[right[np.searchsorted(owner[right], np.arange(groups))]]
        distances = _distances(question.candidates, slots.first, slots.multiplicities, true_codes[owner])
    else:  # from the worst to the best
        order = np.lexsort((slots.first, -errors, owner))
    first = slots.first[order]

    def answer(block: Ints, position: Ints) -> pl.Series:
        start = first[block]
        return question.named(np.where(start >= 0, start + position, all_runs.nth_unoccupied(position)), *types)

    return AnswerBlocks(
        gaps[order].astype(np.float64),
        errors[order],
        distances,
        slots.multiplicities[order],
        slots.sizes,
        answer,
        counted,
        left_out,
        all_runs.totals > 0,
    )


def _distances(candidates: Ordered, first: Ints, multiplicities: Ints, true: Ints) -> NDArray[np.float64]:
    """Return how far the candidates from `first` on are from the true one, on average; it is not inside a block."""
    if isinstance(candidates, Grid):
        return abs(candidates.distances(first + (multiplicities - 1) / 2 - true))
    places = candidates.places()
    upto = np.append(0.0, np.cumsum(places))
    return abs((upto[first + multiplicities] - upto[first]) / multiplicities - places[true])


def positions_of(everything: Histogram, part: Histogram) -> Ints:
    """Return where the pairs of a part stand in the whole."""
    bits = np.uint64(int(everything.codes.max(initial=0)).bit_length())

    def cells(histogram: Histogram) -> NDArray[np.uint64]:
        return owners(histogram.sizes).astype(np.uint64) << bits | histogram.codes.astype(np.uint64)

    return np.searchsorted(cells(everything), cells(part))


def of_scores(values: pl.Series, lengths: Ints, lowest: bool) -> AnswerBlocks:
    """Return the blocks of an argmax, a row each. A group that offers no score has one block, whose answer is null."""
    numbers = column_types.exact_values(values)
    rows = np.flatnonzero(column_types.are_finite(values))
    gaps = _from_the_best(numbers[rows], _counts(rows, lengths), lowest)
    return _of_rows(rows, lengths, gaps, gaps * float(column_types.tick(values.dtype) or 1))


def of_own_sensitivities(
    values: pl.Series, sensitivities: pl.Series, lengths: Ints, lowest: bool
) -> Callable[[Claim], AnswerBlocks]:
    """Return what gives, at a claim, the blocks of an argmax of rows with sensitivities of their own."""
    rows, counts, rows_offered = own_sensitivities(values, sensitivities, lengths, lowest=lowest)
    errors = _from_the_best(rows_offered.scores, counts, lowest) * float(column_types.tick(values.dtype) or 1)

    def blocks(claim: Claim) -> AnswerBlocks:
        gaps = rows_offered.gaps(claim.rate, LAWS[claim.mechanism]) if len(rows) else errors
        return _of_rows(rows, lengths, gaps, errors)

    return blocks


def _counts(rows: Ints, lengths: Ints) -> Ints:
    """Return how many of these rows each group has."""
    return np.diff(np.searchsorted(rows, offsets(lengths)))


def _from_the_best(numbers: column_types.Exact, counts: Ints, lowest: bool) -> NDArray[np.float64]:
    """Return how far each row's number is from the best one of its group."""
    best = np.repeat(reduced(np.minimum if lowest else np.maximum, numbers, counts), counts[counts > 0])
    high, low = (numbers, best) if lowest else (best, numbers)
    return column_types.gaps_between(high, low).astype(np.float64)  # an infinite one has probability 0


def _of_rows(rows: Ints, lengths: Ints, gaps: NDArray[np.float64], errors: NDArray[np.float64]) -> AnswerBlocks:
    """Return a block for each of the rows that may win."""
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

    one, nobody = np.ones(len(placed), np.int64), np.zeros_like(counted)
    return AnswerBlocks(
        gaps[order], errors[order], None, one, np.maximum(counted, 1), answer, counted, nobody, counted > 0
    )


def _at_share(share: float, law: NDArray[np.float64], multiplicities: Ints) -> tuple[int, int]:
    """Return the block, and the place in it, of the first answer that a given share of the draws does not exceed."""
    upto = np.cumsum(law)
    block = min(int(np.searchsorted(upto, share)), len(law) - 1)
    missing, size = share - (upto[block] - law[block]), int(multiplicities[block])
    return block, min(max(math.ceil(missing / law[block] * size) - 1, 0), size - 1)
