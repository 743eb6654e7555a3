"""Noise beside OpenDP's exact samplers: vectors of integers at scale 2, in one process and one thread.

    python benchmarks/noise.py [--count 100_000] [--repeat 7]

Exits non-zero where ours is not at least 200 times as fast.
"""

from __future__ import annotations

import argparse
import sys
from fractions import Fraction
from functools import partial

import numpy as np
import opendp.prelude as dp
from turns import median_times

from dp_polars._mechanisms.noise import discrete_gaussian, discrete_laplace

WANTED = 200
DEVIATIONS = {"discrete Laplace": 2.787, "discrete Gaussian": 2.0}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--repeat", type=int, default=7)
    arguments = parser.parse_args()
    dp.enable_features("contrib")
    integers = dp.vector_domain(dp.atom_domain(T=int))
    values = np.arange(arguments.count)
    runs = {
        "discrete Laplace": (
            partial(discrete_laplace, values, epsilon=Fraction(1, 2), sensitivity=1),
            partial(dp.m.make_laplace(integers, dp.l1_distance(T=int), scale=2.0), values.tolist()),
        ),
        "discrete Gaussian": (
            partial(discrete_gaussian, values, rho=Fraction(1, 8), sensitivity=1),
            partial(dp.m.make_gaussian(integers, dp.l2_distance(T=float), scale=2.0), values.tolist()),
        ),
    }
    print(f"OpenDP {dp.__version__}, {arguments.count:,} integers, scale 2")
    wrong = 0
    for name, both in runs.items():
        ours, theirs = median_times(both, arguments.repeat)
        # Laplace noise of scale 2 has the deviation 2.79, Gaussian noise 2.
        spread = float(np.std(both[0]() - values))
        wrong += not 0.95 < spread / DEVIATIONS[name] < 1.05
        each = f"ours {ours / arguments.count * 1e9:,.1f} ns, OpenDP {theirs / arguments.count * 1e9:,.0f} ns a sample"
        print(f"{name:<20}{each}: {theirs / ours:,.0f} times as fast (wanted: {WANTED})")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
