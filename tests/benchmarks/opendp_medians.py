"""Grouped medians: this package beside OpenDP's Context and plain Polars.

    python tests/benchmarks/opendp_medians.py [--rows 1_000_000] [--repeat 5]

Needs `opendp[polars]`, which takes Polars 1.36.1 only. All draw at epsilon 1 from 100 candidates, one row per
person, with public group keys: OpenDP from a Context with `Margin(invariant="keys")`, we as an expression and as a
private frame. Everything is timed from the frame in memory to the collected answer. Exits non-zero where an answer is
wrong at a huge epsilon.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial

import numpy as np
import opendp.prelude as dp
import polars as pl

import dp_polars  # noqa: F401  registers .dp

CANDIDATES = list(range(100))
MIDDLE = partial(pl.col("x").quantile, 0.5)


def median_time(function: Callable[[], object], repeat: int) -> float:
    times = []
    for turn in range(repeat + 1):
        start = time.perf_counter()
        function()
        if turn:  # the first is for warming up
            times.append(time.perf_counter() - start)
    return statistics.median(times)


def context(frame: pl.DataFrame, epsilon: float) -> dp.Context:
    return dp.Context.compositor(
        data=frame.lazy(),
        privacy_unit=dp.unit_of(contributions=1),
        privacy_loss=dp.loss_of(epsilon=epsilon),
        split_evenly_over=1,
        margins=[dp.polars.Margin(by=["g"], invariant="keys", max_length=frame.height)],
    )


def theirs(frame: pl.DataFrame, epsilon: float) -> pl.DataFrame:
    query = context(frame, epsilon).query().group_by("g").agg(pl.col("x").fill_null(0).dp.median(CANDIDATES))
    return query.release().collect()


def as_expression(frame: pl.DataFrame, epsilon: float) -> pl.DataFrame:
    return frame.group_by("g").agg(pl.col("x").dp.median(CANDIDATES, epsilon=epsilon))


def as_private_frame(frame: pl.DataFrame, epsilon: float, groups: int) -> pl.DataFrame:
    private = frame.dp.protect(None).group_by({"g": range(groups)})
    return private.agg(pl.col("x").dp.median(CANDIDATES, epsilon=epsilon)).release()


def is_right(answer: pl.DataFrame, truth: pl.DataFrame, slack: int) -> bool:
    both = answer.join(truth, on="g")
    return both.height == truth.height and both["x"].is_between(both["lower"] - slack, both["higher"] + slack).all()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeat", type=int, default=5)
    arguments = parser.parse_args()
    dp.enable_features("contrib")
    rng = np.random.default_rng(0)
    print(f"polars {pl.__version__}, OpenDP {dp.__version__}, {arguments.rows:,} rows, {len(CANDIDATES)} candidates")
    print(f"{'groups':>8}  {'':<28}{'time':>12}{'beside plain Polars':>22}")
    wrong = 0
    for groups in (100, 10_000):
        values = np.clip(rng.normal(50, 15, arguments.rows), 0, 99).astype(np.int64)
        frame = pl.DataFrame({"g": np.arange(arguments.rows) % groups, "x": values})
        truth = frame.group_by("g").agg(lower=MIDDLE("lower"), higher=MIDDLE("higher"))
        runs: dict[str, Callable[[float], pl.DataFrame]] = {
            "dp_polars, expression": lambda epsilon, frame=frame: as_expression(frame, epsilon),
            "dp_polars, private frame": lambda epsilon, frame=frame, g=groups: as_private_frame(frame, epsilon, g),
            "OpenDP, Context": lambda epsilon, frame=frame: theirs(frame, epsilon),
        }
        plain = median_time(lambda frame=frame: frame.group_by("g").agg(pl.col("x").median()), arguments.repeat)
        print(f"{groups:>8,}  {'Polars, not private':<28}{plain * 1e3:>10.1f}ms{1:>21.2f}×")
        for name, run in runs.items():
            # OpenDP balances the rows below and above a candidate: among ties that may be a neighbour of the median.
            right = is_right(run(1e6), truth, slack=2 if name.startswith("OpenDP") else 0)
            wrong += not right
            seconds = median_time(lambda run=run: run(1.0), arguments.repeat)
            line = f"{'':>8}  {name:<28}{seconds * 1e3:>10.1f}ms{seconds / plain:>21.2f}×"
            print(line + ("" if right else "   WRONG ANSWER"), flush=True)
        made = median_time(lambda frame=frame: context(frame, 1.0), arguments.repeat)
        print(f"{'':>8}  {'  of this, making the Context':<28}{made * 1e3:>9.1f}ms")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
