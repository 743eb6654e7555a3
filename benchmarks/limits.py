"""Releases without contribution limits, which find them, beside the best fixed limit at the whole loss.

    python benchmarks/limits.py [--releases 200] [--people 30000 3000 200] [--only hospital] [--losses 0.2 0.003]
    python benchmarks/limits.py --rows

Numbers of rows and people of the synthetic stays of `limits_study.py`, of a person a row, and of a Pareto tail. The
package releases both. The best fixed limit is the one that its formula prefers. Errors are mean absolute ones over the
groups, in percent of the mean number. "missed" marks those beyond the goal: 1.3 times the best with several groups and
3,000 people or more, 2 points with one group, 3 times with 200 people. The Pareto tail is not counted with one group
and with a loss in rho.

`--rows`: instead, modes by rows with a loss in rho, by the share of the highest count that is missed: with both limits
that are found, and with `max_rows` alone.
"""

from __future__ import annotations

import argparse

import numpy as np
import polars as pl
from limits_study import FIXED, HOSPITALS, LOSSES, MONTHS, Numbers, numbers, several, stays

import dp_polars as dpp


class Released:
    """The rows of a data set of the study, and its statistic."""

    def __init__(self, of: Numbers):
        self.of = of
        cells = np.repeat(np.arange(len(of.person)), of.rows.astype(int))
        self.rows = pl.DataFrame({"person": of.person[cells], "group": of.group[cells]})
        self.truth = np.bincount(of.group, of.rows, of.groups)

    def error(self, loss, releases, **limits):
        """The mean absolute error of so many releases, in percent, and what they found."""
        errors, found = [], []
        for _ in range(releases):
            frame = self.rows.dp.protect("person", **limits)
            if self.of.groups > 1:
                frame = frame.group_by({"group": list(range(self.of.groups))})
            statistic = dpp.n_people() if self.of.by_people else dpp.len()
            query = frame.agg(n=statistic).scaled_to(**{loss.unit: loss.value})
            answers = query.release().get_column("n").to_numpy()
            errors.append(np.abs(answers - self.truth).mean())
            if not limits:
                found.append(str(query.found))
        return 100 * float(np.mean(errors)) / self.of.mean, found


def modes_of_rows(people, rng):
    """The people and the groups of rows by name, each in 24 groups."""
    person, cell, hospital = stays(people, rng)
    yield "hospital", person, hospital
    yield "month", person, cell % MONTHS
    yield "a row a person", *several(np.ones(people, int), MONTHS, rng)
    yield "1 to 12 rows", *several(rng.integers(1, 13, people), MONTHS, rng)


def modes(people, releases, rng) -> None:
    """Print how many percent of the highest count modes miss, with two limits and with one."""
    for name, person, group in modes_of_rows(people, rng):
        law = rng.dirichlet(np.full(10, 1.5), HOSPITALS).cumsum(1)
        code = (rng.random(len(person))[:, None] > law[group]).sum(1).clip(max=9)
        counts = np.bincount(group * 10 + code, minlength=240).reshape(24, 10)
        missed = 100 * (1 - counts / counts.max(1, keepdims=True))
        rows = pl.DataFrame({"person": person, "group": group, "code": code})
        for loss in (loss for loss in LOSSES if loss.unit == "rho"):
            errors = []
            for limits in ({}, {"max_rows_per_group": None}):
                frame = rows.dp.protect("person", **limits).group_by({"group": list(range(24))})
                query = frame.agg(n=pl.col("code").dp.mode(range(10), counts="rows")).scaled_to(rho=loss.value)
                answers = [query.release().sort("group")["n"].to_numpy() for _ in range(releases)]
                errors.append(np.mean([missed[np.arange(24), one].mean() for one in answers]))
            print(
                f"{name:<20}{people:>8,}  {loss!s:<12}{errors[0]:>8.2f} %{errors[1]:>8.2f} %"
                f"{errors[0] / errors[1]:>6.2f}  {str(query.found).partition(' (')[0]}",
                flush=True,
            )


def best_fixed(of: Numbers, loss):
    """The limit with the least expected error at the whole loss, by its argument."""
    candidates = FIXED[of.groups >= FIXED] if of.by_people else FIXED
    best = int(min(candidates, key=lambda limit: of.error(limit, loss)))
    return {"max_groups": best} if of.by_people else {"max_norm": best}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--releases", type=int, default=200)
    parser.add_argument("--people", type=int, nargs="+", default=[30_000, 3_000, 200])
    parser.add_argument("--only", default="", help="part of a data set's name")
    parser.add_argument("--losses", nargs="+", default=[str(float(loss.value)) for loss in LOSSES])
    parser.add_argument("--rows", action="store_true", help="modes by rows, with two limits beside one")
    arguments = parser.parse_args()
    if arguments.rows:
        for people in arguments.people:
            modes(people, arguments.releases, np.random.default_rng(7))
        return
    rng, missed = np.random.default_rng(7), 0
    print(f"dp_polars {dpp.__version__}, {arguments.releases} releases; error, of the best fixed limit, ratio")
    for people in arguments.people:
        for of in numbers(people, rng):
            if arguments.only not in of.name:
                continue
            released = Released(of)
            for loss in LOSSES:
                if str(float(loss.value)) not in arguments.losses:
                    continue
                fixed = best_fixed(of, loss)
                error, found = released.error(loss, arguments.releases)
                best, _ = released.error(loss, arguments.releases, **fixed)
                if people < 3_000:
                    is_bad = error > 3 * best
                elif of.groups > 1:
                    is_bad = error > 1.3 * best
                else:
                    is_bad = error > best + 2
                told_apart = "Pareto" in of.name and (of.groups == 1 or loss.unit == "rho")
                missed += is_bad and not told_apart
                often = max(set(found), key=found.count)
                print(
                    f"{of.name:<28}{of.groups:>4}{people:>8,}  {loss!s:<14}{error:>9.2f} %{best:>9.2f} %"
                    f"{error / best:>6.2f}{' missed' if is_bad else '':<8}{fixed}  {often}",
                    flush=True,
                )
    print(f"{missed} missed")


if __name__ == "__main__":
    main()
