"""A stream of statistics: 2,000 random counts of one table at a loss of 1 in all, by three ways to answer them.

    python examples/stream.py --out stream.png
    python examples/stream.py --small

The table has 200,000 rows in 1,000 cells (20,000 rows, 100 cells and 200 statistics with --small). Each statistic
counts the rows in a random half of the cells. The rows are synthetic, so the truth may be looked at.

- fresh noise: each of the m statistics has discrete Laplace noise of its own, at an m-th of epsilon.
- private multiplicative weights (Hardt & Rothblum 2010): a public guess of the table answers all statistics. A test
  finds the next one on which the guess is off by about the threshold; its noisy answer is published, and the guess is
  changed so that it agrees. After a number of such *hard* statistics the guess answers whatever still comes.
- a cube: one noisy count of each cell. Every statistic is a sum of them.

All three are 1-DP in all, where one row is added or removed; each function says why. The errors are those of the
answers to all m statistics, by streams of m statistics that spend epsilon = 1 each. Multiplicative weights have the
best of several settings (how many hard statistics, which threshold), which nobody knows in advance. docs/paper.md says
what the figure shows.
"""

from __future__ import annotations

import argparse
import itertools
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

import dp_polars as dpp
from dp_polars import plot
from dp_polars._base.numbers import system_rng
from dp_polars._mechanisms.above_threshold import CountRuns, first_reached

EPSILON = Fraction(1)
# The part of epsilon that pays for the number of all rows, which the first guess needs.
FOR_TOTAL = Fraction(1, 50)
HARD = (40, 200)  # how many hard statistics
THRESHOLDS = (0.001, 0.01, 0.02, 0.04)  # as shares of the rows
STREAMS = 10  # of one length; where multiplicative weights take long, fewer
BEST = "multiplicative weights, best setting"


class Size(NamedTuple):
    """How large the table is, and how many statistics come."""

    rows: int
    cells: int
    statistics: int
    lengths: tuple[int, ...]


FULL = Size(200_000, 1000, 2000, (10, 20, 50, 100, 200, 500, 1000, 2000))
SMALL = Size(20_000, 100, 200, (10, 20, 50, 100, 200))


def table(size: Size) -> tuple[pl.DataFrame, np.ndarray]:
    """Return rows in cells of log-normal sizes, and statistics: shape (statistics, cells), 1 where a cell counts."""
    rng = np.random.default_rng(28)
    weights = rng.lognormal(size=size.cells)
    counts = rng.multinomial(size.rows, weights / weights.sum())
    half = np.arange(size.cells) < size.cells // 2
    statistics = rng.permuted(np.tile(half, (size.statistics, 1)), axis=1)
    return pl.DataFrame({"cell": np.repeat(np.arange(size.cells), counts)}), statistics.astype(np.int64)


def truth(rows: pl.DataFrame, statistics: np.ndarray) -> np.ndarray:
    """Return the true answers, whole numbers. Adding or removing a row changes each of them by at most 1."""
    return statistics @ np.bincount(rows["cell"], minlength=statistics.shape[1])


def fresh(rows: pl.DataFrame, statistics: np.ndarray) -> np.ndarray:
    """Answer each statistic by noise of its own: a row changes m counts by 1 each, so the sensitivity is m."""
    return dpp.mechanisms.discrete_laplace(truth(rows, statistics), epsilon=EPSILON, sensitivity=len(statistics))


def cube(rows: pl.DataFrame, statistics: np.ndarray) -> np.ndarray:
    """Answer all statistics from one release: a row is in one cell, so noise of scale 1/epsilon on each is enough."""
    private = rows.dp.protect(None)  # every row is a person
    released = private.cube({"cell": range(statistics.shape[1])}, epsilon=EPSILON).release()
    return np.array([released.count(pl.col("cell").is_in(np.flatnonzero(q).tolist())).value for q in statistics])


def multiplicative_weights(
    rows: pl.DataFrame, statistics: np.ndarray, hard: int, threshold: int
) -> tuple[np.ndarray, int]:
    """Answer by private multiplicative weights. Return the answers, and how many statistics were hard.

    A part of epsilon pays for the number of rows, once. The rest is shared by at most `hard` tests. A test looks at
    both signed errors of the guess, statistic after statistic, until one is at least about the threshold: the first
    above a threshold of counts that a row moves by at most 1 each, but not all the same way. At a rate λ it costs 3λ
    (docs/proofs/first-above.md). By how much it was above comes with it at no cost, and that is the noisy answer. The
    next test has a new noisy threshold. Losses add up, for statistics and guesses that depend on earlier answers, too.

    The guess depends on what was published alone, so floats may compute it. Scores are whole numbers, and the test
    draws exactly. Its new weights are the old ones times e^η within the statistic and 1 outside, made to add up again;
    Hardt & Rothblum take one small η for all, here η is what makes the guess agree with the answer, which errs less.
    """
    true = truth(rows, statistics)
    total = max(dpp.mechanisms.discrete_laplace(rows.height, epsilon=EPSILON * FOR_TOTAL, sensitivity=1), 2)
    rate = EPSILON * (1 - FOR_TOTAL) / hard / 3
    words, guess = system_rng(), np.full(statistics.shape[1], total / statistics.shape[1])
    public, answers, start, tests = statistics.astype(float), np.empty(len(statistics), np.int64), 0, 0
    while start < len(statistics):
        answers[start:] = guessed = np.rint(public[start:] @ guess).astype(np.int64)
        if tests == hard:
            break
        off = true[start:] - guessed
        signed = np.stack([off, -off], axis=1).ravel()
        runs = CountRuns(signed, np.ones_like(signed), np.array([len(signed)]))
        found, _, gaps = first_reached(runs, Fraction(threshold), rate, words)
        if found[0] < 0:
            break
        ahead, is_below = divmod(int(found[0]), 2)
        error = threshold + int(gaps[0])
        at, tests = start + ahead, tests + 1
        answers[at] = np.clip(guessed[ahead] + (-error if is_below else error), 1, total - 1)
        within = guess @ public[at]
        factors = np.where(statistics[at], answers[at] / within, (total - answers[at]) / (total - within))
        guess *= factors
        start = at + 1
    return answers, tests


def streams(statistics: np.ndarray, length: int, number: int) -> list[np.ndarray]:
    """Return streams of a length, each of which has a loss of its own. A long one comes several times."""
    begins = itertools.cycle(range(0, len(statistics), length))
    return [statistics[begin : begin + length] for begin in itertools.islice(begins, number)]


def by_setting(size: Size) -> pl.DataFrame:
    """Return, for each length and setting of multiplicative weights, how many statistics were hard, and the error."""
    rows, statistics = table(size)
    thresholds, found = [round(share * size.rows) for share in THRESHOLDS], []
    for length, most, threshold in itertools.product(size.lengths, HARD, thresholds):
        for stream in streams(statistics, length, min(STREAMS, size.statistics // length)):
            answers, hard = multiplicative_weights(rows, stream, min(most, length), threshold)
            found.append((length, most, threshold, hard, float(abs(answers - truth(rows, stream)).mean())))
    frame = pl.DataFrame(found, ["statistics", "hard at most", "threshold", "hard", "error"], orient="row")
    keys = frame.columns[:3]
    return frame.group_by(keys, maintain_order=True).agg(pl.col("hard", "error").mean())


def by_length(size: Size, settings: pl.DataFrame) -> pl.DataFrame:
    """Return the mean error of each way for each length; that of multiplicative weights by the best of the settings."""
    rows, statistics = table(size)
    parts = [settings.group_by("statistics").agg(pl.col("error").min(), way=pl.lit(BEST))]
    for name, answers in {"fresh noise": fresh, "cube": cube}.items():
        for length in size.lengths:
            asked = streams(statistics, length, STREAMS)
            errors = [abs(answers(rows, stream) - truth(rows, stream)).mean() for stream in asked]
            parts.append(pl.DataFrame({"statistics": length, "error": float(np.mean(errors)), "way": name}))
    order = pl.col("way").replace_strict({"fresh noise": 0, BEST: 1, "cube": 2})
    return pl.concat(parts).sort(order, "statistics")


def chart(errors: pl.DataFrame) -> Any:
    """Draw the errors over the number of statistics."""
    return plot.scores.lines(
        errors,
        "statistics",
        "error",
        "way",
        x_title="statistics, at ε = 1 in all",
        y_title="mean error of an answer (rows)",
        log_x=True,
        log_y=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="a tenth of the rows, cells and statistics")
    parser.add_argument("--out", type=Path, help="where to write the figure (PNG)")
    arguments = parser.parse_args()
    size = SMALL if arguments.small else FULL
    settings = by_setting(size)
    errors = by_length(size, settings)
    with pl.Config(tbl_hide_dataframe_shape=True, float_precision=0, fmt_str_lengths=40, tbl_rows=20):
        print(errors.pivot("way", index="statistics", values="error"))
        print(f"multiplicative weights, {size.statistics:,} statistics:")
        print(settings.filter(statistics=size.statistics).drop("statistics"))
    if arguments.out:
        chart(errors).save(arguments.out, scale_factor=1.5)


if __name__ == "__main__":
    main()
