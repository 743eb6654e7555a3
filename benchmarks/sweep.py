"""One statistic at a time over numbers of groups, limits, grids and kinds of people, beside plain queries.

    python benchmarks/sweep.py [--engine polars duckdb postgres spark] [--rows 200_000] [--repeat 3] [--cpu]
                               [--groups 1 3 10 50 1_000] [--limits 1x1 2x1 2x2 50x50] [--statistics WORD …]
                               [--people numbers] [--spread few many]

Rows are those of rows/5 people. A person comes to two groups at most (`few`), or each row lies in any group (`many`).
`plain` counts distinct people by group (where every row is a person, rows). `pairs` groups by person and group, which
is what limits need at least. Both are milliseconds; of statistics the table shows ratios to `plain`, and `*` where no
other number of groups above takes two thirds of the time. With `--cpu` they are of processor time, of engines that run
in this process. Exits non-zero only where an answer with next to no noise is wrong; modes and medians are compared
where limits drop nothing.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import dp_polars as dpp

sys.path.insert(0, str(Path(__file__).parents[1]))
GROUPS = [1, 3, 10, 50, 1000]
STATISTICS: dict[str, Callable[[float], Any]] = {
    "n_people": lambda loss: dpp.n_people(epsilon=loss),
    "len": lambda loss: dpp.len(epsilon=loss),
    "mode of 121": lambda loss: dpp.mode("age", range(121), epsilon=loss),
    "median of 121": lambda loss: dpp.median("age", range(121), epsilon=loss),
    "median of 10^6": lambda loss: dpp.median("paid", dpp.grid(0, 10**6, step=1), epsilon=loss),
    "median of 10^9": lambda loss: dpp.median("paid", dpp.grid(0, 10**9, step=1), epsilon=loss),
}
# What is read as a person: nobody, where every row is one.
PEOPLE = {"numbers": "person", "texts": "name", "rows": None}


def made(rows: int, groups: list[int]) -> pl.DataFrame:
    """Rows, with a column of groups for each number of them, and each way in which a person's rows are spread."""
    rng = np.random.default_rng(1)
    person, one_of_two, anywhere = (rng.integers(0, most, rows) for most in (max(rows // 5, 1), 2, 2**31))
    home = rng.integers(0, 2**31, (2, max(rows // 5, 1)))[one_of_two, person]
    spread = {"few": home, "many": anywhere}
    return pl.DataFrame(
        {
            "person": person,
            "name": pl.Series(person).cast(pl.String) + " of the people",
            "age": rng.integers(0, 121, rows),
            "paid": rng.gamma(2, 1e5, rows).astype(np.int64).clip(0, 10**6),
            **{f"{name}{n}": (of % n).astype(np.int32) for name, of in spread.items() for n in groups},
        }
    )


@dataclass(frozen=True)
class Side:
    """An engine with the rows: what runs a private query, and the two plain ones, by columns."""

    private: Callable[[Any], pl.DataFrame]
    plain: Callable[[str, str | None], object]
    pairs: Callable[[str, str], object]


@contextmanager
def on_polars(frame: pl.DataFrame) -> Iterator[Side]:
    def plain(group: str, person: str | None) -> object:
        counted = pl.len() if person is None else pl.col(person).n_unique()
        return frame.lazy().group_by(group).agg(counted).collect()

    def pairs(group: str, person: str) -> object:
        return frame.lazy().group_by(person, group).agg(pl.len()).group_by(group).agg(pl.len()).collect()

    yield Side(lambda query: query(frame.lazy().dp.protect).release(), plain, pairs)


def of_sql(con: Any) -> Side:
    import dp_polars.sql

    table = con.table("rows")

    def run(sql: str) -> object:
        with con._safe_raw_sql(sql) as found:
            return found.fetchall()

    def plain(group: str, person: str | None) -> object:
        counted = "COUNT(*)" if person is None else f"COUNT(DISTINCT {person})"
        return run(f"SELECT {group}, {counted} FROM rows GROUP BY 1")

    def pairs(group: str, person: str) -> object:
        by = f"SELECT {person}, {group} AS g, COUNT(*) FROM rows GROUP BY 1, 2"
        return run(f"SELECT g, COUNT(*) FROM ({by}) AS s GROUP BY 1")

    return Side(lambda query: dp_polars.sql.release(query(dpp.protect), table), plain, pairs)


@contextmanager
def on_duckdb(frame: pl.DataFrame) -> Iterator[Side]:
    import ibis

    con = ibis.duckdb.connect()
    con.create_table("rows", frame.to_arrow())
    yield of_sql(con)
    con.disconnect()


@contextmanager
def on_postgres(frame: pl.DataFrame) -> Iterator[Side]:
    from tests.sql.conftest import Server

    kinds = {pl.Int64: "bigint", pl.Int32: "integer", pl.String: "text"}
    columns = ", ".join(f"{name} {kinds[type(dtype)]}" for name, dtype in frame.schema.items())
    with tempfile.TemporaryDirectory(prefix="pg-") as folder:
        server = Server(Path(folder))
        try:
            server.sql("postgres", "CREATE DATABASE clinic")
            con = server.connect("owner")
            con.raw_sql(f"CREATE UNLOGGED TABLE rows ({columns})").close()
            with con.con.cursor().copy("COPY rows FROM STDIN WITH (FORMAT csv)") as copy:
                for part in frame.iter_slices(100_000):
                    copy.write(part.write_csv(include_header=False))
            con.con.commit()
            con.raw_sql("ANALYZE rows").close()
            con.raw_sql("SET work_mem = '256MB'").close()
            yield of_sql(con)
            con.disconnect()
        finally:
            server.stop()


@contextmanager
def on_spark(frame: pl.DataFrame) -> Iterator[Side]:
    from pyspark.sql import functions as sf
    from spark import session

    import dp_polars.spark

    with tempfile.TemporaryDirectory() as folder:
        frame.write_parquet(Path(folder) / "rows.parquet")
        spark = session(Path(folder), 1024)
        rows = spark.read.parquet(str(Path(folder) / "rows.parquet"))

        def plain(group: str, person: str | None) -> object:
            counted = sf.count(sf.lit(1)) if person is None else sf.count_distinct(person)
            return rows.groupBy(group).agg(counted).collect()

        def pairs(group: str, person: str) -> object:
            return rows.groupBy(person, group).count().groupBy(group).count().collect()

        def private(query: Any) -> pl.DataFrame:
            released = dp_polars.spark.release(query(dpp.protect), rows)
            found = pl.from_arrow(released.toArrow())
            assert isinstance(found, pl.DataFrame)
            return found

        yield Side(private, plain, pairs)
        spark.stop()


ENGINES = {"polars": on_polars, "duckdb": on_duckdb, "postgres": on_postgres, "spark": on_spark}


@dataclass(frozen=True)
class Cell:
    """Which people, in which groups, under which limits of groups and of rows in each."""

    unit: str | None
    group: str
    number: int
    limits: tuple[int, int] | None

    def query(self, statistic: str, loss: float) -> Callable[[Any], Any]:
        """What makes the private query of what protects rows."""
        bounds = (
            {} if self.limits is None else dict(zip(("max_groups", "max_rows_per_group"), self.limits, strict=True))
        )
        asked = STATISTICS[statistic](loss)
        return lambda protect: protect(self.unit, **bounds).group_by({self.group: range(self.number)}).agg(x=asked)

    def is_right(self, statistic: str, found: pl.DataFrame, frame: pl.DataFrame) -> bool | None:
        """Whether an answer is the true one; None where limits drop rows at random."""
        answers = dict(zip(found[self.group].to_list(), found["x"].to_list(), strict=True))
        if sorted(answers) != list(range(self.number)):
            return False
        unit = "row" if self.unit is None else self.unit
        rows = frame.with_row_index("row").select("age", "paid", g=self.group, unit=unit)
        most, cap = self.limits or (self.number, rows.height)
        pairs = rows.group_by("unit", "g").len("n").with_columns(pl.col("n").cast(pl.Int64))
        pairs = pairs.with_columns(m=pl.lit(1) if statistic == "n_people" else pl.col("n").clip(upper_bound=cap))
        limit = min(most, self.number) * (1 if statistic == "n_people" else cap)
        pairs = pairs.with_columns(part=(limit / pl.col("m").sum().over("unit")).clip(upper_bound=1))
        if statistic in ("n_people", "len"):
            sums = pairs.group_by("g").agg((pl.col("m") * pl.col("part")).sum()).rows()
            true = dict.fromkeys(answers, 0.0) | dict(sums)
            # Weights are rounded down to parts of 2**-20, and what they make to whole numbers.
            return all(abs(answers[g] - true[g]) <= 1 + rows.height / 2**20 for g in answers)
        drops = pairs.select((pl.len().over("unit") > most).any() | (pl.col("n") > cap).any()).item()
        if drops:
            return None
        if statistic.startswith("mode"):
            counts = rows.group_by("g", "age").agg(pl.col("unit").n_unique().alias("people"))
            best = counts.filter(pl.col("people") == pl.col("people").max().over("g"))
            true_modes = set(best.select("g", "age").rows())
            return all((g, answers[g]) in true_modes for g in set(rows["g"].to_list()))
        column = "age" if statistic == "median of 121" else "paid"
        ends = rows.group_by("g").agg(
            pl.col(column).quantile(0.5, "lower").alias("low"), pl.col(column).quantile(0.5, "higher").alias("high")
        )
        return all(low <= answers[g] <= high for g, low, high in ends.rows())


def seconds(*, cpu: bool) -> float:
    return time.process_time() if cpu else time.perf_counter()


def median_times(runs: list[Callable[[], object] | None], repeat: int, *, cpu: bool) -> list[float]:
    """Return the median time of each, which take turns; NaN for None."""
    times: list[list[float]] = [[] for _ in runs]
    for _ in range(repeat):
        for run, of_run in zip(runs, times, strict=True):
            start = seconds(cpu=cpu)
            if run is not None:
                run()
            of_run.append(math.nan if run is None else seconds(cpu=cpu) - start)
    return [statistics.median(of_run) for of_run in times]


def sweep(side: Side, frame: pl.DataFrame, args: argparse.Namespace, asked: list[str]) -> int:
    """Print a table, and return how many answers are wrong."""
    wrong = 0
    for people in args.people:
        unit = PEOPLE[people]
        for limits in [None] if unit is None else args.limits:
            for spread in args.spread[:1] if unit is None else args.spread:
                lines = []
                for number in args.groups:
                    cell = Cell(unit, f"{spread}{number}", number, limits)
                    runs: list[Callable[[], object] | None] = [partial(side.plain, cell.group, unit), None]
                    if unit is not None:
                        runs[1] = partial(side.pairs, cell.group, unit)
                    for statistic in asked:
                        if unit is None and statistic == "n_people":  # nobody is known
                            runs.append(None)
                            continue
                        query = cell.query(statistic, 10**6)  # warms up, too
                        if cell.is_right(statistic, side.private(query), frame) is False:
                            wrong += 1
                            print(f"WRONG: {statistic}, {cell}", flush=True)
                        runs.append(partial(side.private, cell.query(statistic, 1)))
                    plain, pairs, *found = median_times(runs, args.repeat, cpu=args.cpu)
                    lines.append((number, plain, pairs, found))
                show(f"{people}, {spread}, {'no limits' if limits is None else 'x'.join(map(str, limits))}", lines)
    return wrong


def show(what: str, lines: list[tuple[int, float, float, list[float]]]) -> None:
    for place, (number, plain, pairs, found) in enumerate(lines):
        ratios = []
        for of, one in enumerate(found):
            more = [later[3][of] for later in lines[place + 1 :]]
            ratios.append(f"{one / plain:>15.2f}{'*' if more and one > 1.5 * min(more) else ' '}")
        print(f"{what:<28}{number:>7,}{plain * 1000:>9.0f}{pairs * 1000:>9.0f}{''.join(ratios)}", flush=True)


def limits_of(text: str) -> tuple[int, int]:
    groups, rows = map(int, text.split("x"))
    return groups, rows


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--engine", nargs="+", choices=ENGINES, default=["polars", "duckdb", "postgres"])
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--groups", type=int, nargs="+", default=GROUPS)
    parser.add_argument("--limits", type=limits_of, nargs="+", default=[(1, 1), (2, 1), (2, 2), (50, 50)])
    parser.add_argument("--statistics", nargs="+", default=[""])
    parser.add_argument("--people", nargs="+", choices=PEOPLE, default=["numbers"])
    parser.add_argument("--spread", nargs="+", choices=["few", "many"], default=["few", "many"])
    parser.add_argument("--cpu", action="store_true")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    frame, wrong = made(args.rows, args.groups), 0
    asked = [name for name in STATISTICS if any(word in name for word in args.statistics)]
    for engine in args.engine:
        print(f"{engine:<28}{'groups':>7}{'plain':>9}{'pairs':>9}{''.join(f'{name:>16}' for name in asked)}")
        with ENGINES[engine](frame) as side:
            wrong += sweep(side, frame, args, asked)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
