"""Medians without candidates beside those on grids that a person would write, at the same loss.

    python benchmarks/grids.py [--releases 100] [--people 30000 3000] [--only cost] [--losses 1 0.2] [--seconds]

Each data set has 12 groups and up to four rows a person. Both release the number of people, with an eighth of the
weight; without candidates, bounds are paid for, too. Errors are mean absolute ones over groups and releases, of answers
that are shown: without candidates, those of groups with few people are null. "missed" marks those beyond the goal: 1.6
times that on `range(121)` for ages, 1.2 times the best of three for all others. With `--seconds`: processor time of
both, on 5 million rows.
"""

from __future__ import annotations

import argparse
import datetime as dt
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

import dp_polars as dpp

GROUPS = 12
DAY = dt.date(2023, 1, 1)


@dataclass(frozen=True)
class Column:
    """Values of a column, the grids that a person would write, and the goal."""

    values: Callable[[np.random.Generator, int], pl.Series]
    grids: tuple[Any, ...]
    goal: float = 1.2
    alpha: float = 0.5


def days(numbers: np.ndarray) -> pl.Series:
    return pl.Series(numbers).cast(pl.Int32).cast(pl.Date)


def costs(rng: np.random.Generator, rows: int) -> pl.Series:
    return pl.Series(((rng.pareto(1.3, rows) + 1) * 400).round(2))


COST_GRIDS = dpp.grid(0, 10_000, step=1), dpp.grid(0, 100_000, step=10), dpp.grid(1, 10**7, per_decade=50)
COLUMNS = {
    "ages": Column(lambda rng, rows: pl.Series(rng.normal(45, 20, rows).clip(0, 104).astype(int)), (range(121),), 1.6),
    "costs": Column(costs, COST_GRIDS),
    "costs, 0.9": Column(costs, COST_GRIDS, alpha=0.9),
    "delays": Column(
        lambda rng, rows: pl.Series((rng.gamma(1.5, 30, rows) - 25).astype(int)),
        (range(-60, 601), range(-200, 2001), dpp.grid(-1000, 1000, step=5)),
    ),
    "distances": Column(
        lambda rng, rows: pl.Series(rng.lognormal(6.5, 0.8, rows)),
        (dpp.grid(0, 5000, step=5), dpp.grid(0, 20_000, step=1), dpp.grid(1, 10**5, per_decade=100)),
    ),
    "dates": Column(
        lambda rng, rows: days(rng.integers(19_400, 20_000, rows)),
        (
            dpp.grid(DAY, dt.date(2024, 12, 31), step="1d"),
            dpp.grid(dt.date(2000, 1, 1), dt.date(2030, 1, 1), step="1d"),
            dpp.grid(dt.date(2020, 1, 1), dt.date(2025, 12, 24), step="7d"),
        ),
    ),
}


def made(column: Column, people: int, rng: np.random.Generator) -> pl.DataFrame:
    rows = rng.integers(1, 5, people)
    number = int(rows.sum())
    groups = rng.integers(0, GROUPS, number)
    return pl.DataFrame(
        {"person": np.repeat(np.arange(people), rows), "group": groups, "x": column.values(rng, number)}
    )


def asked(frame: pl.DataFrame, column: Column, loss: dict[str, float], grid: Any = None) -> dpp.PrivateQuery:
    private = frame.dp.protect("person", max_rows=4).group_by({"group": list(range(GROUPS))})
    people = dpp.n_people(loss_weight=0.125)  # as it is added, if the query has none
    return private.agg(x=pl.col("x").dp.quantile(column.alpha, grid), people=people).scaled_to(**loss)


def numbers(answers: pl.Series) -> np.ndarray:
    return answers.to_physical().cast(pl.Float64).to_numpy()


def error(
    frame: pl.DataFrame, column: Column, loss: dict[str, float], releases: int, grid: Any = None
) -> tuple[float, float]:
    """Return the mean absolute error of the answers that are shown, and how many are."""
    true = numbers(
        frame.group_by("group").agg(pl.col("x").to_physical().quantile(column.alpha, "lower")).sort("group")["x"]
    )
    query = asked(frame, column, loss, grid)
    off = np.abs(np.array([numbers(query.release()["x"]) for _ in range(releases)]) - true)
    shown = ~np.isnan(off)
    return float(off[shown].mean()) if shown.any() else np.nan, float(shown.mean())


def seconds(rng: np.random.Generator) -> None:
    for name in ("costs", "ages", "dates"):
        column = COLUMNS[name]
        frame, took = made(column, 2_000_000, rng), []
        for grid in (None, *column.grids):
            query, times = asked(frame, column, {"epsilon": 1}, grid), []
            for _ in range(3):
                begin = time.process_time()
                query.release()
                times.append(time.process_time() - begin)
            took.append(min(times))
        of_grids = "".join(f"{one:>7.2f} s" for one in took[1:])
        print(f"{name:<12}{frame.height:>10,} rows{took[0]:>7.2f} s without candidates; on grids{of_grids}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--releases", type=int, default=100)
    parser.add_argument("--people", type=int, nargs="+", default=[30_000, 3_000])
    parser.add_argument("--losses", nargs="+", default=["epsilon=1", "epsilon=0.3", "rho=0.02"])
    parser.add_argument("--only", default="", help="part of a column's name")
    parser.add_argument("--seconds", action="store_true")
    arguments = parser.parse_args()
    rng, missed = np.random.default_rng(3), 0
    if arguments.seconds:
        seconds(rng)
        return
    print(
        f"dp_polars {dpp.__version__}, {arguments.releases} releases; error without candidates, ratio, errors on grids"
    )
    for name, column in COLUMNS.items():
        for people in arguments.people if arguments.only in name else []:
            frame = made(column, people, rng)
            for text in arguments.losses:
                unit, _, value = text.partition("=")
                loss = {unit: float(value)}
                of_grids = [error(frame, column, loss, arguments.releases, one)[0] for one in column.grids]
                found, shown = error(frame, column, loss, arguments.releases)
                ratio = found / max(min(of_grids), 1e-9)
                missed += ratio > column.goal
                note = "missed" if ratio > column.goal else ""
                others = " ".join(f"{one:,.4g}" for one in of_grids)
                print(
                    f"{name:<12}{people:>8,}  {text:<12}{shown:>5.0%}{found:>10,.4g}{ratio:>6.2f} {note:<8}{others}",
                    flush=True,
                )
    print(f"{missed} missed")


if __name__ == "__main__":
    main()
