"""Private answers per group from real data, and what they cost in time.

    python examples/quickstart.py

Part 1: the RAND Health Insurance Experiment (1974–1982; 20,190 person-years, shipped inside statsmodels). For every
insurance plan, named by the share of the bill that the family paid itself: the most common health status and the
median number of visits to a doctor. Part 2: a million synthetic rows, timed against plain Polars.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import numpy as np
import polars as pl
import statsmodels.datasets.randhie as randhie

import dp_polars as dpp

HEALTH = ["excellent", "good", "fair", "poor"]
YEARS = 5  # nobody took part for longer, so one person has at most five rows


def rand_experiment() -> pl.DataFrame:
    years = pl.read_csv(Path(randhie.__file__).with_name("randhie.csv"), infer_schema_length=None)
    share = (pl.col("lncoins").exp() - 1).round().cast(pl.Int64)
    health = (
        pl.when(pl.col("hlthp") == 1)
        .then(pl.lit("poor"))
        .when(pl.col("hlthf") == 1)
        .then(pl.lit("fair"))
        .when(pl.col("hlthg") == 1)
        .then(pl.lit("good"))
        .otherwise(pl.lit("excellent"))
    )
    return years.select(plan=pl.format("pays {} %", share), health=health, visits="mdvis")


def part_1() -> None:
    years = rand_experiment()
    answers = years.group_by("plan").agg(
        health=pl.col("health").dp.mode(HEALTH, epsilon=0.5, contributions=YEARS),
        visits=pl.col("visits").dp.median(range(101), epsilon=0.5, contributions=YEARS),
    )
    truth = years.group_by("plan").agg(
        true_health=pl.col("health").mode().first(),
        true_visits=pl.col("visits").median(),
        person_years=pl.len(),
    )
    print(f"RAND Health Insurance Experiment, {years.height:,} person-years.")
    print("epsilon = 0.5 for each column, one person has at most five rows; the plans are public.")
    print("The true answers are next to the private ones only to compare: a real release would not show them.\n")
    with pl.Config(tbl_hide_dataframe_shape=True, tbl_hide_column_data_types=True):
        print(answers.join(truth, on="plan").sort(pl.col("plan").str.extract(r"(\d+)").cast(pl.Int64)))


def seconds(query: pl.LazyFrame) -> float:
    times = []
    for _ in range(7):
        start = time.perf_counter()
        query.collect()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def part_2() -> None:
    rng = np.random.default_rng(1)
    rows = 1_000_000
    synthetic = pl.LazyFrame(
        {
            "region": rng.integers(0, 1000, rows),
            "diagnosis": pl.Series(rng.integers(0, 100, rows))
            .cast(pl.String)
            .cast(pl.Enum([str(i) for i in range(100)])),
            "age": rng.integers(0, 101, rows),
        }
    ).group_by("region")
    print(f"\n{rows:,} synthetic rows, 1,000 groups, median of 7 runs:")
    for name, private, plain in [
        ("mode of 100 categories", dpp.mode("diagnosis", epsilon=0.5), pl.col("diagnosis").mode().first()),
        ("median on 101 candidates", dpp.median("age", range(101), epsilon=0.5), pl.col("age").median()),
    ]:
        ours, theirs = seconds(synthetic.agg(private)), seconds(synthetic.agg(plain))
        print(f"  {name:<26} private {ours * 1e3:6.1f} ms, plain Polars {theirs * 1e3:6.1f} ms: {ours / theirs:.2f}×")


if __name__ == "__main__":
    part_1()
    part_2()
