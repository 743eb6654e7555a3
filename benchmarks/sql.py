"""Releases in a database beside the same queries without privacy: ratios of times in one run, and memory.

    python benchmarks/sql.py [--engine duckdb postgres] [--rows 10_000_000] [--repeat 3] [--only WORD]

DuckDB runs in this process, on a file in a temporary folder.
Postgres is a cluster of its own (tests/sql/conftest.py).
Each turn runs the query without privacy and then the release. Memory is what this process has resident at most while a
release runs, above what it had before the first; with DuckDB its engine is in it.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ibis
from turns import peak

import dp_polars as dpp
import dp_polars.sql

sys.path.insert(0, str(Path(__file__).parents[1]))
CATEGORIES = [f"category {i:02}" for i in range(100)]
GROUPS = 1000

# Rows of a person (of rows/10, who come to 2 groups at most), a category of 100 (one twice as common), an age.
DUCKDB = """
CREATE TABLE rows AS
SELECT person, CAST(hash(person, hash(i, 2) % 2, 5) % {groups} AS INTEGER) AS g,
       'category ' || lpad(CAST(least(hash(i, 3) % 101, 99) AS VARCHAR), 2, '0') AS x,
       CAST(hash(i, 4) % 101 AS INTEGER) AS age
FROM (SELECT i, CAST(hash(i, 1) % ({rows} // 10) AS BIGINT) AS person FROM range({rows}) AS t(i))
"""
POSTGRES = """
CREATE UNLOGGED TABLE rows AS
SELECT person, ((hashint8extended(person, hashint8extended(i, 2) & 1) & 2147483647) % {groups})::integer AS g,
       'category ' || lpad(least((hashint8extended(i, 3) & 2147483647) % 101, 99)::text, 2, '0') AS x,
       ((hashint8extended(i, 4) & 2147483647) % 101)::integer AS age
FROM (SELECT i, (hashint8extended(i, 1) & 2147483647) % ({rows} / 10) AS person
      FROM generate_series(1::bigint, {rows}) AS t(i)) AS s
"""


def works() -> Iterator[tuple[str, dpp.PrivateQuery, str, float]]:
    """Name, private query, the query without privacy, and the ratio that is aimed at."""
    keys = {"g": range(GROUPS)}
    mode = dpp.mode("x", CATEGORIES, epsilon=0.5)
    median = dpp.median("age", range(101), epsilon=0.5)
    counts, distinct = "SELECT g, {} , COUNT(*) FROM rows GROUP BY 1, 2", "COUNT(DISTINCT person)"
    by_mode, by_age = counts.format("x"), counts.format("age")
    yield "mode, one person per row", dpp.protect(None).group_by(keys).agg(mode), by_mode, 1.3
    yield "median, one person per row", dpp.protect(None).group_by(keys).agg(median), by_age, 1.3
    yield (
        "sum, one person per row",
        dpp.protect(None).group_by(keys).agg(dpp.sum("age", 0, 100, epsilon=1)),
        "SELECT g, SUM(age) FROM rows GROUP BY 1",
        1.3,
    )
    people = by_mode.replace("COUNT(*)", distinct)
    yield "mode, people in any groups", dpp.protect("person").group_by(keys).agg(mode), people, 1.3
    yield "mode, people in 2 groups", dpp.protect("person", max_groups=2).group_by(keys).agg(mode), people, 2
    yield (
        "median, people in 2 groups, 1 row each",
        dpp.protect("person", max_groups=2, max_rows_per_group=1).group_by(keys).agg(median),
        by_age.replace("COUNT(*)", distinct),
        2,
    )
    numbers = {"people": dpp.n_people(epsilon=1), "rows": dpp.len(epsilon=1), "sum": dpp.sum("age", 0, 100, epsilon=1)}
    bounded = dpp.protect("person", max_groups=2, max_rows_per_group=5).group_by(keys)
    yield (
        "people, rows and a sum, people in 2 groups",
        bounded.agg(**numbers),
        f"SELECT g, {distinct}, COUNT(*), SUM(age) FROM rows GROUP BY 1",
        2.5,
    )
    yield (
        "people, mode and median, people in 2 groups",
        bounded.agg(people=dpp.n_people(epsilon=1), top=mode, age=median),
        f"SELECT g, {distinct}, MODE() WITHIN GROUP (ORDER BY x), PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY age) "
        "FROM rows GROUP BY 1",
        3,
    )


def resident() -> int:
    """Bytes that this process has resident."""
    fields = Path("/proc/self/statm").read_text(encoding="ascii").split()
    return int(fields[1]) * 4096


def fetched(found: Any) -> object:
    """All rows that a query without privacy gives."""
    return found.fetchall()


def measure(con: Any, rows: int, repeat: int, only: str) -> None:
    """Print a line for each query."""
    table = con.table("rows")
    before = resident()
    for name, query, plain, aim in works():
        if only not in name:
            continue
        times: dict[str, list[float]] = {"plain": [], "private": []}
        sides: list[tuple[str, Callable[[], object]]] = [
            ("plain", lambda plain=plain: fetched(con.raw_sql(plain))),
            ("private", lambda query=query: dp_polars.sql.release(query, table)),
        ]
        with peak(lambda: [resident()], 0.05) as most:
            for _ in range(repeat):
                for side, run in sides:
                    start = time.perf_counter()
                    run()
                    times[side].append(time.perf_counter() - start)
        plainly, privately = (statistics.median(times[side]) for side in ("plain", "private"))
        print(
            f"{con.name:<11}{rows:>12,}  {name:<40}{plainly:>9.2f}{privately:>9.2f}{privately / plainly:>7.2f}{aim:>6}"
            f"{(most[0] - before) / 2**20:>8.0f}",
            flush=True,
        )


@contextmanager
def on_duckdb(rows: int) -> Iterator[Any]:
    """A file of DuckDB."""
    with tempfile.TemporaryDirectory() as folder:
        con = ibis.duckdb.connect(Path(folder) / "rows.duckdb")
        con.raw_sql(DUCKDB.format(rows=rows, groups=GROUPS))
        yield con
        con.disconnect()


@contextmanager
def on_postgres(rows: int) -> Iterator[Any]:
    """A server of its own."""
    from tests.sql.conftest import Server

    with tempfile.TemporaryDirectory(prefix="pg-") as folder:
        server = Server(Path(folder))
        try:
            server.sql("postgres", "CREATE DATABASE clinic")
            server.sql("clinic", POSTGRES.format(rows=rows, groups=GROUPS), "VACUUM ANALYZE rows")
            con = server.connect("owner")
            con.raw_sql("SET work_mem = '256MB'")
            yield con
            con.disconnect()
        finally:
            server.stop()


def main() -> None:
    parser = argparse.ArgumentParser()
    engines = {"duckdb": on_duckdb, "postgres": on_postgres}
    parser.add_argument("--engine", nargs="+", choices=engines, default=["duckdb", "postgres"])
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    print(f"{'engine':<11}{'rows':>12}  {'query':<40}{'plain s':>9}{'private s':>9}{'ratio':>7}{'aim':>6}{'MiB':>8}")
    for engine in args.engine:
        for rows in args.rows:
            with engines[engine](rows) as con:
                measure(con, rows, args.repeat, args.only)


if __name__ == "__main__":
    main()
