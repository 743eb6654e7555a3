"""Asks queries whose answers are cached, in processes that may be killed: forks of one that has imported all.

The arguments are the ledger and the number of a descriptor. For every line of stdin, the number of the first query,
a child asks one after the other, without an end; its process id is printed, and a line more once it has ended. A child
writes to the descriptor, one line each: "drawn qNUMBER" when an engine begins to draw, "released qNUMBER ANSWER" when a
release has returned.
"""

import os
import sys

import polars as pl

import dp_polars as dpp
from dp_polars._engines.polars.engine import PolarsEngine


def asked(budget, number):
    """A query of its own, whose answer is any of 2**40 numbers: two draws are never the same."""
    nobody = pl.DataFrame({"x": []}, {"x": pl.Int64})
    median = pl.col("x").dp.median(dpp.grid(0, 2**40, step=1), epsilon=0.125).alias(f"q{number}")
    return nobody.dp.protect(None, budget=budget, dataset="nobody").agg(median)


def ask(path, descriptor, number):
    """Ask without an end."""
    histograms = PolarsEngine._histograms

    def noted(engine, work):
        os.write(descriptor, f"drawn {work.outputs[0].name}\n".encode())
        return histograms(engine, work)

    PolarsEngine._histograms = noted
    budget = dpp.Budget(epsilon=10_000, path=path)
    while True:
        released = asked(budget, number).release()
        os.write(descriptor, f"released q{number} {released.item()}\n".encode())
        number += 1


def main():
    """Serve until stdin ends. Polars must not run here: its threads would not be in a fork."""
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            ask(sys.argv[1], int(sys.argv[2]), int(line))
        print(child, flush=True)
        os.waitpid(child, 0)
        print("ended", flush=True)


if __name__ == "__main__":
    main()
