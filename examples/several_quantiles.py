"""Several quantiles of private rows at once, compared with one query for each of them.

    python examples/several_quantiles.py

A list of m quantiles is drawn on ⌈log₂(m + 1)⌉ levels, each of which costs what one quantile does. Separate queries
share the loss among m of them. The table shows by how many rows the answers miss their quantiles: the mean over all
quantiles and 30 draws, of 10,000 rows at epsilon = 1. The rows are synthetic, so the truth may be looked at.
"""

from __future__ import annotations

import numpy as np
import polars as pl

import dp_polars as dpp

ROWS, DRAWS = 10_000, 30
LISTS = (3, 9, 33)


def skewed(rng: np.random.Generator) -> tuple[np.ndarray, range]:
    """Amounts with a long tail, on 4,096 candidates."""
    return rng.lognormal(5, 1, ROWS).clip(0, 4095).round().astype(np.int64), range(4096)


def mostly_zero(rng: np.random.Generator) -> tuple[np.ndarray, range]:
    """60 % zeros, the others even, on 101 candidates."""
    return np.where(rng.random(ROWS) < 0.6, 0, rng.integers(1, 101, ROWS)), range(101)


def misses(rows: np.ndarray, answers: np.ndarray, alphas: list[float]) -> float:
    """By how many rows answers of shape (draws, quantiles) miss, on average."""
    ordered, aim = np.sort(rows), np.array(alphas) * len(rows)
    below, upto = np.searchsorted(ordered, answers, "left"), np.searchsorted(ordered, answers, "right")
    return float(np.maximum(np.maximum(aim - upto, below - aim), 0).mean())


def compared(rows: np.ndarray, candidates: range, m: int) -> tuple[float, float]:
    """Return the mean miss of a list of m quantiles, and of m separate ones at a loss of 1/m each."""
    alphas = [round((i + 1) / (m + 1), 4) for i in range(m)]
    frame = pl.DataFrame({"draw": np.repeat(np.arange(DRAWS), len(rows)), "x": np.tile(rows, DRAWS)})
    grouped = frame.group_by("draw")
    x = pl.col("x")
    together = grouped.agg(x.dp.quantile(alphas, candidates, epsilon=1))["x"]
    apart = grouped.agg(x.dp.quantile(a, candidates, epsilon=1 / m).alias(str(a)) for a in alphas).drop("draw")
    return misses(rows, np.array(together.to_list()), alphas), misses(rows, apart.to_numpy(), alphas)


def table() -> pl.DataFrame:
    rng = np.random.default_rng(0)
    kinds = {"log-normal, 4,096 candidates": skewed(rng), "60 % zeros, 101 candidates": mostly_zero(rng)}
    found = [(name, m, *compared(rows, candidates, m)) for name, (rows, candidates) in kinds.items() for m in LISTS]
    return pl.DataFrame(found, ["rows", "quantiles", "a list", "separate"], orient="row")


def main() -> None:
    asked = dpp.quantile("x", [0.1, 0.5, 0.9], range(101), epsilon=1)
    print(asked)
    with pl.Config(tbl_hide_dataframe_shape=True, float_precision=2, fmt_str_lengths=40):
        print(table())


if __name__ == "__main__":
    main()
