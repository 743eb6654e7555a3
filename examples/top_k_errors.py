"""How far off are the ways to find the top k? The largest count missed, on average, at the same loss.

    python examples/top_k_errors.py

The counts are flat: 2,000 candidates, each with 0.9 % less than the one before, from 750 on. So 7 rows lie between the
best ones, and 5 between those around the 30th.

- rounds: k rounds of permute-and-flip without replacement, at a k-th of epsilon each.
- joint: one exponential mechanism on all lists of k candidates.
- Gumbel: k rounds of the exponential mechanism, at a k-th of rho each: one-shot Gumbel noise.
- ranked counts: noise on all counts, at all of epsilon, because one person has one candidate; then sorted.
"""

from __future__ import annotations

import numpy as np
import polars as pl

import dp_polars as dpp

COUNTS = np.round(750 * np.exp(-np.arange(2000) / 108)).astype(np.int64)
WAYS = {
    "rounds": {"epsilon": 1, "mechanism": "permute_and_flip"},
    "joint": {"epsilon": 1, "mechanism": "joint"},
    "Gumbel": {"rho": 0.05},
}
# How many equal groups are simulated, by 200 lists each. Few of the short lists miss anything.
GROUPS = {3: 60, 10: 6, 30: 4}
# The figures of the first trial, on flat counts about which no more is known. They were rounded, from few draws.
TRIAL = {3: [1.0, 1.5, 2.0, 0.0], 10: [20, 16, 11, 0.0], 30: [106, 58, 32, 0.9]}


def errors(k: int) -> list[float]:
    """Return the mean of the largest count missed, by each of the ways and by ranked counts."""
    groups = GROUPS[k]
    group = pl.DataFrame({"x": np.repeat(np.arange(len(COUNTS)), COUNTS)})
    frame = group.join(pl.DataFrame({"g": range(groups)}), how="cross")
    found = []
    for arguments in WAYS.values():
        top = dpp.top_k("x", k, range(len(COUNTS)), **arguments)
        found.append(dpp.analysis.simulate(top, frame, by="g")["expected_error"].mean())
    noisy = dpp.mechanisms.discrete_laplace(np.tile(COUNTS, (200 * groups, 1)), epsilon=1, sensitivity=1)
    ties = np.random.default_rng().random(noisy.shape)  # not in the order of the true counts
    best = np.argsort(-noisy - ties, axis=1)[:, :k]
    return [*found, float((COUNTS[:k] - COUNTS[best]).max(axis=1).mean())]


def main() -> None:
    print(f"{'k':>3}{'':>8}" + "".join(f"{way:>15}" for way in (*WAYS, "ranked counts")))
    for k, trial in TRIAL.items():
        for what, row in (("here", errors(k)), ("trial", trial)):
            print(f"{k:>3}{what:>8}" + "".join(f"{error:>15.1f}" for error in row))


if __name__ == "__main__":
    main()
