"""Expressions and mechanisms beside plain Polars, OpenDP and diffprivlib: one table of ratios of median times.

    python tests/benchmarks/expressions.py [--rows 10_000_000] [--repeat 7] [--only WORD]

Exits non-zero only where an answer is wrong: at a huge epsilon every private answer must be the true one.
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import polars as pl

import dp_polars as dpp


@dataclass(frozen=True)
class Work:
    name: str
    target: str
    private: Callable[[], object]
    plain: Callable[[], object]
    check: Callable[[], bool]


def median_times(functions: list[Callable[[], object]], repeat: int) -> list[float]:
    """Median seconds of each function; they take turns, so that a noisy moment hits all."""
    times: list[list[float]] = [[] for _ in functions]
    for turn in range(repeat + 1):
        for function, own in zip(functions, times, strict=True):
            start = time.perf_counter()
            function()
            if turn:  # the first is for warming up
                own.append(time.perf_counter() - start)
    return [statistics.median(own) for own in times]


def grouped(frame: pl.DataFrame, make: Callable[..., pl.Expr], plain: pl.Expr, loss: float = 0.5) -> tuple:
    """Private query, plain query, and whether they agree where the loss is huge."""

    def run(expr: pl.Expr) -> pl.DataFrame:
        return frame.group_by("g").agg(expr)

    def check() -> bool:
        both = run(make(epsilon=10**6)).rename({"x": "private"}).join(run(plain), on="g")
        different = both.filter((pl.col("private") - pl.col("x")).abs() > 1) if plain_is_number else both.filter(
            pl.col("private").cast(pl.String) != pl.col("x").cast(pl.String)
        )
        return different.height == 0

    plain_is_number = frame.select(plain).dtypes[0].is_numeric()
    return (lambda: run(make(epsilon=loss))), (lambda: run(plain)), check


def modes(rows: int, rng: np.random.Generator) -> list[Work]:
    works = []
    for groups, categories, nulls, kind, target in [
        (1_000, 100, 0, "Enum", "0.9"),
        (100_000, 100, 0, "Enum", "1.0"),
        (10, 10_000, 0, "Enum", "0.8"),
        (1_000, 100, 0.05, "Enum", "1.1"),
        (1_000, 100, 0, "String", "0.8"),
    ]:
        names = [f"category {i:05}" for i in range(categories)]
        # A clear winner in every group, so that the true mode is unique.
        codes = np.minimum(rng.integers(0, categories + categories // 5, rows), categories - 1)
        column = pl.Series("x", codes).cast(pl.UInt32).cast(pl.String)
        column = pl.Series("x", names).gather(codes).cast(pl.Enum(names) if kind == "Enum" else pl.String)
        if nulls:
            column = pl.select(pl.when(pl.Series(rng.random(rows) >= nulls)).then(column).alias("x")).to_series()
        frame = pl.DataFrame({"g": rng.integers(0, groups, rows), "x": column})
        candidates = None if kind == "Enum" else names
        plain = pl.col("x").drop_nulls().mode().first() if nulls else pl.col("x").mode().first()

        def make(*, epsilon: float, candidates: list[str] | None = candidates) -> pl.Expr:
            return pl.col("x").dp.mode(candidates, epsilon=epsilon)

        private, plain_run, check = grouped(frame, make, plain)
        if groups * 50 > rows:
            check = lambda: True  # noqa: E731  ties: the true mode is not unique
        title = f"mode, {kind}, {groups:,} groups × {categories:,}" + (", 5 % nulls" if nulls else "")
        plain_run = lambda frame=frame: frame.group_by("g").agg(pl.col("x").mode().first())  # noqa: E731
        works.append(Work(title, target, private, plain_run, check))
    return works


def medians(rows: int, rng: np.random.Generator) -> list[Work]:
    works = []
    for n, groups, target in [(rows, 1_000, "1.1"), (rows // 10, 100, "2"), (rows // 10, 10_000, "2")]:
        values = np.clip(rng.normal(50, 15, n), 0, 100).astype(np.int64)
        frame = pl.DataFrame({"g": rng.integers(0, groups, n), "x": values})

        def make(*, epsilon: float) -> pl.Expr:
            return pl.col("x").dp.median(range(101), epsilon=epsilon)

        works.append(
            Work(f"median, integers, {n:,} rows, {groups:,} groups", target, *grouped(frame, make, pl.col("x").median()))
        )
    for groups, points, target in [(1_000, 10**9, "1.7"), (1_000, 10**3, "-"), (100_000, 10**9, "3")]:
        frame = pl.DataFrame({"g": rng.integers(0, groups, rows), "x": rng.gamma(2.0, 100.0, rows)})
        step = 1000 / points if points > 1000 else 10

        def make(*, epsilon: float, grid: dpp.Grid = dpp.grid(0, points * step, step=step)) -> pl.Expr:
            return pl.col("x").dp.median(grid, epsilon=epsilon)

        private, plain, check = grouped(frame, make, pl.col("x").median())
        if groups == 100_000 or points == 1000:
            check = lambda: True  # noqa: E731  few rows in a group, or wide steps: the plain median interpolates
        works.append(Work(f"median, floats, {points:,} points, {groups:,} groups", target, private, plain, check))
    return works


def vectors(rng: np.random.Generator) -> list[Work]:
    k = 10**6
    spread = rng.permutation(k)
    ahead = np.zeros(k, np.int64)
    ahead[k // 3] = k
    works = []
    for name, scores, target in [("spread", spread, "0.6"), ("one far ahead", ahead, "0.6"), ("all equal", ahead * 0, "2")]:

        def check(scores: np.ndarray = scores) -> bool:
            return scores[dpp.permute_and_flip(scores, epsilon=10**6, sensitivity=1)] == scores.max()

        works.append(
            Work(
                f"permute_and_flip, 10⁶ scores, {name}",
                target,
                lambda scores=scores: dpp.permute_and_flip(scores, epsilon=1, sensitivity=1),
                lambda scores=scores: (scores + rng.standard_exponential(k)).argmax(),
                check,
            )
        )
    return works


def peers(rng: np.random.Generator) -> list[Work]:
    """The same selection by others, where they are installed: their time beside ours."""
    scores = rng.permutation(10**5).astype(float)
    ours = lambda: dpp.permute_and_flip(scores, epsilon=1, sensitivity=1)  # noqa: E731
    works = []
    if importlib.util.find_spec("opendp"):
        import opendp.prelude as dp

        dp.enable_features("contrib")
        space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.linf_distance(T=float)
        theirs = dp.m.make_noisy_max(*space, dp.max_divergence(), scale=2.0)
        listed = scores.tolist()
        works.append(Work("OpenDP make_noisy_max, 10⁵ scores", "-", ours, lambda: theirs(listed), lambda: True))
    if importlib.util.find_spec("diffprivlib"):
        from diffprivlib.mechanisms import PermuteAndFlip

        utility = scores.tolist()
        works.append(
            Work(
                "diffprivlib PermuteAndFlip, 10⁵ scores",
                "-",
                ours,
                lambda: PermuteAndFlip(epsilon=1, sensitivity=1, utility=utility).randomise(),
                lambda: True,
            )
        )
    return works


def growth(rows: int, rng: np.random.Generator) -> list[Work]:
    """Ten times the rows: both columns are ours, so the ratio is the growth."""

    def run(n: int) -> Callable[[], object]:
        frame = pl.DataFrame({"g": rng.integers(0, 1000, n), "x": rng.integers(0, 101, n)})
        return lambda: frame.group_by("g").agg(pl.col("x").dp.median(range(101), epsilon=0.5))

    return [Work(f"growth: {rows:,} rows beside a tenth of them", "11", run(rows), run(rows // 10), lambda: True)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    print(f"polars {pl.__version__}, numpy {np.__version__}, {pl.thread_pool_size()} threads, {arguments.rows:,} rows")
    print(f"{'work':<55}{'private':>11}{'plain':>11}{'ratio':>8}{'target':>8}")
    wrong = 0
    for make in (
        lambda: modes(arguments.rows, rng),
        lambda: medians(arguments.rows, rng),
        lambda: vectors(rng),
        lambda: peers(rng),
        lambda: growth(arguments.rows, rng),
    ):
        for work in make():
            if arguments.only not in work.name:
                continue
            right = work.check()
            wrong += not right
            ours, plain = median_times([work.private, work.plain], arguments.repeat)
            line = f"{work.name:<55}{ours * 1e3:>9.1f}ms{plain * 1e3:>9.1f}ms{ours / plain:>8.2f}{work.target:>8}"
            print(line + ("" if right else "   WRONG ANSWER"), flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
