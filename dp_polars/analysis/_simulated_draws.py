"""How good lists of answers are on public rows: many draws, where the exact laws of lists are out of reach."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from dp_polars._base.arrays import slices
from dp_polars._questions.lists import Mistakes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dp_polars._accounting.claims import Claim
    from dp_polars._base.arrays import Ints
    from dp_polars._draws.histograms import Histogram
    from dp_polars._questions.lists import ListQuery
    from dp_polars._questions.question import Columns

# Draws of each list. Their mean is off by some 7 % of the standard deviation of one draw.
DRAWS = 200
# The most draws that exceed either end of a range.
_BEYOND = DRAWS // 20
# Rows of copied histograms, and answers, that are held at once.
_CELLS = 1 << 20


def law_of_lists(
    question: ListQuery, types: Columns, everything: Histogram, bounded: Histogram
) -> Callable[[Claim], pl.DataFrame]:
    """Return what estimates how good the lists are at a claim, from `DRAWS` draws, a row per group.

    Parameters
    ----------
    question
        Says how a list is drawn, and how wrong it is (`ListQuery.mistakes`).
    everything, bounded
        The histogram of all rows, which a list is compared with, and of those that count, from which it is drawn.
    """

    def law(claim: Claim) -> pl.DataFrame:
        asked = question.with_claim(claim)
        most = max(1, _CELLS // (DRAWS * question.width))
        sizes = np.maximum(everything.sizes, bounded.sizes)
        parts = [
            _of_part(asked, types, everything.part(first, last), bounded.part(first, last))
            for first, last in slices(sizes, _CELLS // DRAWS, most)
        ]
        return pl.concat(parts) if parts else _of_part(asked, types, everything, bounded)

    return law


def _of_part(question: ListQuery, types: Columns, everything: Histogram, bounded: Histogram) -> pl.DataFrame:
    """Return the row of each group: the columns of `simulate` that its law fills."""
    codes, mistakes = _draws(question, types, everything, bounded)
    right, wrong, _, ranks = mistakes
    if question.is_ordered:  # each answer of a list lies on a line of its own
        ends = np.sort(codes, axis=0)[[_BEYOND, DRAWS - 1 - _BEYOND]]
    else:  # from the worst list to the best
        order = np.argsort(-wrong, axis=0, kind="stable")[[_BEYOND, DRAWS - 1 - _BEYOND]]
        ends = np.take_along_axis(codes, order[:, :, None], axis=0)
    return pl.DataFrame(
        {
            "true_answer": question.named(question.true_codes(everything, *types), *types),
            "probability_true": right.mean(axis=0),
            "expected_error": wrong.mean(axis=0),
            "expected_rank_error": None if ranks is None else ranks.mean(axis=0),
            "answer_5": question.named(ends[0], *types),
            "answer_95": question.named(ends[1], *types),
        },
        schema_overrides={"expected_rank_error": pl.Float64},
    ).with_columns(
        pl.when(pl.Series(everything.totals > 0)).then(pl.col(name)).alias(name)
        for name in ("true_answer", "probability_true", "expected_error", "expected_rank_error")
    )


def share_within(question: ListQuery, types: Columns, histogram: Histogram, within: float) -> NDArray[np.float64]:
    """Return in which share of `DRAWS` draws all answers of a group are this near to the true ones, shape (g,)."""
    most = max(1, _CELLS // (DRAWS * question.width))
    parts = [histogram.part(*ends) for ends in slices(histogram.sizes, _CELLS // DRAWS, most)]
    mistakes = [_draws(question, types, part, part)[1] for part in parts]
    return np.concatenate([np.empty(0), *((part.worst <= within).mean(axis=0) for part in mistakes)])


def _draws(question: ListQuery, types: Columns, everything: Histogram, bounded: Histogram) -> tuple[Ints, Mistakes]:
    """Return `DRAWS` lists of each group, shape (draws, g, width), and how wrong they are, shape (draws, g)."""
    groups, drawn, mistakes = len(bounded.sizes), [], []
    copies = min(DRAWS, max(1, _CELLS // max(1, len(bounded.codes), len(everything.codes), groups * question.width)))
    for start in range(0, DRAWS, copies):
        number = min(copies, DRAWS - start)
        drawn.append(question.draw_codes(bounded.repeated(number), *types))
        mistakes.append(question.mistakes(drawn[-1], everything.repeated(number), *types))
    right, wrong, worst = (
        np.concatenate([getattr(batch, name) for batch in mistakes]).reshape(DRAWS, groups)
        for name in ("right", "wrong", "worst")
    )
    ranks = [batch.ranks for batch in mistakes if batch.ranks is not None]
    of_ranks = np.concatenate(ranks).reshape(DRAWS, groups) if ranks else None
    return np.concatenate(drawn).reshape(DRAWS, groups, question.width), Mistakes(right, wrong, worst, of_ranks)
