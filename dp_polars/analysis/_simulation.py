"""What a private query would answer on public rows, how often, and how wrong: exact laws, not samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from dp_polars._accounting.claims import Claim, Loss
from dp_polars._engines.bounding import Kept
from dp_polars._engines.polars_engine import PolarsEngine
from dp_polars._expressions.expressions import PrivateExpr
from dp_polars._frames.query import PrivateQuery
from dp_polars._frames.release import bind
from dp_polars._numeric import column_types
from dp_polars._numeric.arrays import Ints, offsets, owners, positions, reduced
from dp_polars._numeric.numbers import given, positive_fraction
from dp_polars._queries.argmax import ArgMax
from dp_polars._queries.choices import Choice
from dp_polars._queries.histograms import Histogram
from dp_polars._queries.scores import Runs
from dp_polars.analysis._laws import block_probabilities

if TYPE_CHECKING:
    from fractions import Fraction

    from numpy.typing import NDArray

    from dp_polars._numeric.numbers import Number
    from dp_polars._queries.query import Columns, Query

# The columns of the result, after the keys.
SIMULATED = [
    "output",
    "selects",
    "mechanism",
    "loss",
    "loss_unit",
    "counted",
    "left_out",
    "true_answer",
    "probability_true",
    "expected_error",
    "error_unit",
    "answer_5",
    "answer_95",
]


# A hair less, so that a share that is met exactly (as in uniform laws) is not decided by rounding.
_SHARES = (0.05 * (1 - 1e-12), 0.95 * (1 - 1e-12))


@dataclass(frozen=True)
class _Blocks:
    """All answers of every group, from the lowest to the highest, in blocks that the mechanism can't tell apart.

    Parameters
    ----------
    gaps, errors
        Shape (n,): best score minus score as the mechanism sees it, and how wrong the answer truly is.
    multiplicities
        Shape (n,): answers in the block.
    sizes
        Shape (g,): blocks of each group, at least one.
    answer
        Block of each group, and position in it, shape (g,) each -> the answers.
    counted, left_out
        Shape (g,): rows or people that count, and those that the bounds dropped.
    """

    gaps: NDArray[np.float64]
    errors: NDArray[np.float64]
    multiplicities: Ints
    sizes: Ints
    answer: Callable[[Ints, Ints], pl.Series]
    counted: Ints
    left_out: Ints


@dataclass(frozen=True)
class _Output:
    """One output of a query on given rows."""

    name: str
    query: Query
    error_unit: str
    blocks: _Blocks
    score_unit: Fraction | int = 1


def simulate(
    query: PrivateQuery | PrivateExpr,
    frame: pl.DataFrame | pl.LazyFrame,
    *,
    by: str | Sequence[str] | None = None,
    losses: Iterable[Number] | None = None,
) -> pl.DataFrame:
    """Return how good the answers of a private query would be on a *public* frame. Not private itself.

    Give it last year's published data or made rows: the result shows true answers and exact probabilities. Nothing is
    drawn from the mechanism, and no budget is charged.

    Parameters
    ----------
    query
        A query of a private frame, with or without private rows of its own (they are not touched), or a private
        expression (without `over`).
    frame
        The public rows, with the columns that the query needs.
    by
        For an expression, the columns to group by: the groups are those of the public frame. None: one group. Must be
        left out for a query of a private frame, which has its keys.
    losses
        Losses to try, above 0, each in the unit of the output's own loss: what one person would lose to that output in
        all. None: the loss that each output asks for.

    Returns
    -------
    DataFrame
        One row per output, loss and group, in this order, groups in the order of the keys. The group's keys, then

        - `output`, `selects`, `mechanism` (String), `loss` (Float64), `loss_unit` (String: "epsilon" or "rho");
        - `counted`, `left_out` (Int64): how many rows or people count, and how many the query's bounds dropped. (In a
          mode that counts people, one counts for each of their candidates.)
        - `true_answer`: the answer without noise and without bounds, of several equally good ones the first; null in a
          group without evidence, like the next two columns;
        - `probability_true` (Float64): how probable an answer as good as the true one is;
        - `expected_error` (Float64) and `error_unit` (String: "rows", "people" or "score"): the mean of how much worse
          the private answer is. A mode: how many fewer rows or people have it. A quantile: how many ranks it is off.
          An argmax: how much lower (for argmin: higher) its score is.
        - `answer_5`, `answer_95`: the private answer is at least the one, and at most the other, with probability 0.95
          each. The order is that of the candidates for a quantile; for modes and argmax, from the worst answer to the
          best.

        `true_answer`, `answer_5` and `answer_95` have the answer's own type where all outputs share one, and are String
        otherwise.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, or a key column has the name of another column of the result.

    Notes
    -----
    The laws are exact to float64 (see `selection_probabilities`) for the histogram that is counted. Where a person of
    the public frame has more rows or groups than the query's bounds allow, a random subset of them is kept, as in a
    release: then the result holds for one such draw of the bounds, and `left_out` says how much they dropped. Errors
    are measured on all rows. It takes some 0.1 ms per output, loss and group.

    Examples
    --------
    >>> import polars as pl
    >>> import dp_polars as dpp
    >>> last_year = pl.DataFrame({"ward": ["A"] * 50 + ["B"] * 6, "age": [30, 40, 50, 60, 70] * 11 + [30]})
    >>> median = dpp.median("age", range(121), epsilon=1)
    >>> result = simulate(median, last_year, by="ward", losses=[0.2, 1])
    >>> result.select("ward", "loss", "true_answer", "answer_5", "answer_95").rows()
    [('A', 0.2, 50, 35, 66), ('B', 0.2, 40, 6, 113), ('A', 1.0, 50, 50, 50), ('B', 1.0, 40, 17, 92)]
    """
    if not isinstance(frame, (pl.DataFrame, pl.LazyFrame)):
        msg = f"frame must be a DataFrame or a LazyFrame, got {type(frame).__name__}."
        raise TypeError(msg)
    if isinstance(query, PrivateQuery):
        if by is not None:
            msg = f"by must be left out for a query of a private frame, which has its keys, got {given(by)}."
            raise ValueError(msg)
        keys, outputs = _of_query(query, frame.lazy())
    elif isinstance(query, PrivateExpr):
        keys, outputs = _of_expression(query, frame.lazy(), by)
    else:
        msg = f"query must be a PrivateQuery or a PrivateExpr, got {type(query).__name__}."
        raise TypeError(msg)
    clashes = sorted(set(keys.columns) & set(SIMULATED))
    if clashes:
        msg = f"keys must not be named like columns of the result, got {clashes}.\n\nHint: rename them first."
        raise ValueError(msg)
    tried = None if losses is None else _positive("losses", losses)
    parts = [_table(output, claim) for output in outputs for claim in _claims(output.query.claim, tried)]
    if len({part["true_answer"].dtype for part in parts}) > 1:
        parts = [part.with_columns(pl.col("true_answer", "answer_5", "answer_95").cast(pl.String)) for part in parts]
    return pl.concat([pl.concat([keys, part], how="horizontal") for part in parts])


def _positive(name: str, values: Iterable[Number]) -> list[Fraction]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        msg = f"{name} must be a list of numbers, got {given(values)}."
        raise TypeError(msg)
    exact = [positive_fraction(f"{name}[{i}]", value) for i, value in enumerate(values)]
    if not exact:
        msg = f"{name} must not be empty."
        raise ValueError(msg)
    return exact


def _claims(asked: Claim, losses: list[Fraction] | None) -> Iterator[Claim]:
    """Yield the claim that was asked for, or the same one at other losses."""
    if losses is None:
        yield asked
        return
    for value in losses:
        loss = Loss(value, asked.loss.unit)
        yield Claim.of(loss, asked.mechanism, asked.score_range, asked.contributions, asked.neighboring_relation)


def _of_query(query: PrivateQuery, rows: pl.LazyFrame) -> tuple[pl.DataFrame, list[_Output]]:
    # The rows are public, so their plan may hold what a private one may not: it is not checked.
    engine = PolarsEngine(rows, lambda: rows)
    work = bind(query, engine)
    unbounded = tuple(replace(tally, kept=Kept()) for tally in work.tallies)
    both = replace(work, tallies=(*unbounded, *work.tallies))
    histograms = engine.histograms(both)
    outputs = []
    for output in work.outputs:
        (tally,) = output.tallies
        everything, kept = histograms[tally], histograms[tally + len(unbounded)]
        blocks = _of_histograms(_choice(output.query), output.types, everything, kept)
        outputs.append(_Output(output.name, output.query, query.protection.counts(output.query), blocks))
    return pl.DataFrame() if work.keys is None else work.keys, outputs


def _choice(query: Query) -> Choice:
    if not isinstance(query, Choice):
        msg = f"query must be of modes and quantiles, got a {query}."
        raise TypeError(msg)
    return query


def _of_expression(
    expr: PrivateExpr, rows: pl.LazyFrame, by: str | Sequence[str] | None
) -> tuple[pl.DataFrame, list[_Output]]:
    if expr._columns is None:
        msg = "query must not be an expression with over.\n\nHint: leave over out and give its columns as by."
        raise ValueError(msg)
    name = expr.meta.output_name()
    lists = expr._columns[0].implode().alias("")
    grouped = (rows.select(lists) if by is None else rows.group_by(by, maintain_order=True).agg(lists)).collect()
    keys, column = grouped.drop(""), grouped[""]
    values, lengths = column.explode(empty_as_null=False), column.list.len().to_numpy().astype(np.int64)
    query, dtype = expr.query, values.dtype
    query.answer_type(dtype)
    if isinstance(query, ArgMax):
        blocks = _of_scores(values, lengths, query.lowest)
        return keys, [_Output(name, query, "score", blocks, column_types.tick(dtype) or 1)]
    coding = _choice(query).coding(dtype)
    histogram = Histogram.of_rows(coding.encoder()([values]), None, lengths, coding.size)
    blocks = _of_histograms(_choice(query), (dtype,), histogram, histogram)
    return keys, [_Output(name, query, "rows", blocks)]


def _of_histograms(query: Choice, types: Columns, everything: Histogram, kept: Histogram) -> _Blocks:
    """Return the blocks of a mode or a quantile; `kept`, the histogram after the bounds, is part of `everything`."""
    codes, truly, sizes = everything.codes, everything.weights, everything.sizes
    seen = np.zeros_like(truly)
    seen[_positions(everything, kept)] = kept.weights
    draw = query.draw(*types)
    all_runs, kept_runs = (Runs.of_counts(codes, counts, sizes) for counts in (truly, seen))
    true_slots, slots = (draw.score.slots(runs, draw.size) for runs in (all_runs, kept_runs))
    errors = true_slots.gaps / draw.score.unit
    order = np.arange(len(errors))
    if not query.is_ordered:  # from the worst to the best
        order = np.lexsort((slots.first, -errors, owners(slots.sizes)))
    # In a group of which nothing is kept all candidates are as good.
    gaps = np.where(np.repeat(kept_runs.totals == 0, slots.sizes), 0, slots.gaps)
    first = slots.first[order]

    def answer(block: Ints, position: Ints) -> pl.Series:
        start = first[block]
        return query.named(np.where(start >= 0, start + position, all_runs.nth_unoccupied(position)), *types)

    counted = kept_runs.totals
    return _Blocks(
        gaps[order].astype(np.float64),
        errors[order],
        slots.multiplicities[order],
        slots.sizes,
        answer,
        counted,
        all_runs.totals - counted,
    )


def _positions(everything: Histogram, part: Histogram) -> Ints:
    """Return where the pairs of a part stand in the whole."""
    bits = np.uint64(int(everything.codes.max(initial=0)).bit_length())

    def cells(each: Histogram) -> NDArray[np.uint64]:
        return owners(each.sizes).view(np.uint64) << bits | each.codes.astype(np.uint64)

    return np.searchsorted(cells(everything), cells(part))


def _of_scores(values: pl.Series, lengths: Ints, lowest: bool) -> _Blocks:
    """Return the blocks of an argmax, a row each. A group that offers no score has one block, whose answer is null."""
    numbers = column_types.exact_values(values)
    offered = np.isfinite(numbers) if values.dtype.is_float() else values.is_not_null().to_numpy()
    owner, position, numbers = (each[offered] for each in (owners(lengths), positions(0, lengths), numbers))
    counted = np.bincount(owner, minlength=len(lengths))
    best = np.repeat(reduced(np.minimum if lowest else np.maximum, numbers, counted), counted[counted > 0])
    high, low = (numbers, best) if lowest else (best, numbers)
    gaps = column_types.gaps_between(high, low).astype(np.float64)  # an infinite one has probability 0
    errors = gaps * float(column_types.tick(values.dtype) or 1)

    nothing = np.flatnonzero(counted == 0)
    owner, position = np.append(owner, nothing), np.append(position, np.full(len(nothing), -1))
    gaps, errors = np.append(gaps, np.zeros(len(nothing))), np.append(errors, np.zeros(len(nothing)))
    order = np.lexsort((position, -gaps, owner))
    rows = position[order]

    def answer(block: Ints, _: Ints) -> pl.Series:
        return pl.Series(rows[block]).cast(pl.UInt32, strict=False)  # −1 becomes null

    one, nobody = np.ones(len(rows), np.int64), np.zeros_like(counted)
    return _Blocks(gaps[order], errors[order], one, np.maximum(counted, 1), answer, counted, nobody)


def _table(output: _Output, claim: Claim) -> pl.DataFrame:
    """Return the result for one output at a claim, a row per group."""
    blocks, rate = output.blocks, claim.rate * output.score_unit
    bounds = offsets(blocks.sizes)
    begins = bounds[:-1]
    law = np.empty(len(blocks.gaps))
    ranges = np.empty((len(begins), 2, 2), np.int64)
    for group, (start, end) in enumerate(pairwise(bounds.tolist())):
        part = slice(start, end)
        law[part] = block_probabilities(blocks.gaps[part], blocks.multiplicities[part], rate, claim.mechanism)
        ranges[group] = [_at_share(share, law[part], blocks.multiplicities[part]) for share in _SHARES]
    ranges[:, :, 0] += begins[:, None]
    right = blocks.errors == 0
    # An error that overflows has probability 0.
    wrong = np.multiply(law, blocks.errors, out=np.zeros_like(law), where=law > 0)
    evidence = pl.Series(blocks.counted + blocks.left_out > 0)
    first_right = np.minimum.reduceat(np.where(right, np.arange(len(law)), len(law)), begins)
    return pl.DataFrame(
        {
            "counted": blocks.counted,
            "left_out": blocks.left_out,
            "true_answer": blocks.answer(first_right, np.zeros_like(first_right)),
            "probability_true": np.minimum(np.add.reduceat(np.where(right, law, 0), begins), 1),
            "expected_error": np.add.reduceat(wrong, begins),
            "answer_5": blocks.answer(*ranges[:, 0].T),
            "answer_95": blocks.answer(*ranges[:, 1].T),
        }
    ).select(
        pl.lit(output.name).alias("output"),
        pl.lit(str(output.query)).alias("selects"),
        pl.lit(claim.mechanism).alias("mechanism"),
        pl.lit(float(claim.loss.value)).alias("loss"),
        pl.lit(claim.loss.unit).alias("loss_unit"),
        "counted",
        "left_out",
        *(
            pl.when(evidence).then(pl.col(name)).alias(name)
            for name in ("true_answer", "probability_true", "expected_error")
        ),
        pl.lit(output.error_unit).alias("error_unit"),
        "answer_5",
        "answer_95",
    )


def _at_share(share: float, law: NDArray[np.float64], multiplicities: Ints) -> tuple[int, int]:
    """Return the block, and the place in it, of the first answer that so many of the draws don't exceed."""
    upto = np.cumsum(law)
    block = min(int(np.searchsorted(upto, share)), len(law) - 1)
    missing, size = share - (upto[block] - law[block]), int(multiplicities[block])
    return block, min(max(math.ceil(missing / law[block] * size) - 1, 0), size - 1)
