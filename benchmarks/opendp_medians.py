"""Grouped medians: this package beside OpenDP's Context and plain Polars.

    python benchmarks/opendp_medians.py [--rows 1_000_000] [--repeat 5]

Needs `opendp[polars]`, which takes Polars 1.36.1 only. All draw at epsilon 1 from 100 candidates, one row per
person, with public group keys: OpenDP from a Context with `Margin(invariant="keys")`, we as an expression and as a
private frame. Everything is timed from the frame in memory to the collected answer. Exits non-zero where an answer is
wrong at a huge epsilon.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial

import numpy as np
import opendp.prelude as dp
import polars as pl
from turns import median_times

import dp_polars  # noqa: F401  registers .dp

CANDIDATES = list(range(100))
MIDDLE = partial(pl.col("x").quantile, 0.5)


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
    print(f"{'groups':>8}  {'':<30}{'time':>12}{'beside plain Polars':>22}")
    wrong = 0
    for groups in (100, 10_000):
        values = np.clip(rng.normal(50, 15, arguments.rows), 0, 99).astype(np.int64)
        frame = pl.DataFrame({"g": np.arange(arguments.rows) % groups, "x": values})
        truth = frame.group_by("g").agg(lower=MIDDLE("lower"), higher=MIDDLE("higher"))
        runs: dict[str, Callable[[float], object]] = {
            "Polars, not private": lambda _, frame=frame: frame.group_by("g").agg(pl.col("x").median()),
            "dp_polars, expression": lambda epsilon, frame=frame: as_expression(frame, epsilon),
            "dp_polars, private frame": lambda epsilon, frame=frame, g=groups: as_private_frame(frame, epsilon, g),
            "OpenDP, Context": lambda epsilon, frame=frame: theirs(frame, epsilon),
            "  of this, making the Context": lambda epsilon, frame=frame: context(frame, epsilon),
        }
        times = median_times([partial(run, 1.0) for run in runs.values()], arguments.repeat)
        for name, seconds in zip(runs, times, strict=True):
            # OpenDP balances the rows below and above a candidate: among ties that may be a neighbour of the median.
            slack = {"dp_polars, expression": 0, "dp_polars, private frame": 0, "OpenDP, Context": 2}.get(name)
            right = slack is None or is_right(runs[name](1e6), truth, slack)
            wrong += not right
            line = f"{groups:>8,}  {name:<30}{seconds * 1e3:>10.1f}ms{seconds / times[0]:>21.2f}×"
            print(line + ("" if right else "   WRONG ANSWER"), flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
