"""TPC-H reports, and the same queries without privacy: ratios of times in one run.

    pip install tpchgen-cli
    python benchmarks/tpch.py [--scale 1] [--rounds 5] [--only WORD] [--folder DIR]

`tpchgen-cli` makes the tables, in seconds; they stay in the folder, if one is given. The sides of a case take turns.
Exits non-zero only where an answer is wrong: each query is also released with next to no noise and with bounds that
drop no row, and compared with the plain one. Times are of bounds that drop rows.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import warnings
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from functools import cache, partial
from pathlib import Path
from typing import Any

import ibis
import numpy as np
import polars as pl

import dp_polars as dpp
import dp_polars.sql

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.turns import median_times

SURE = 10**9  # a loss at which there is next to no noise
TABLES = ("customer", "lineitem", "nation", "orders", "part", "region", "supplier")
FLAGS = pl.DataFrame(
    [(flag, status) for flag in "ANR" for status in "FO"], ["l_returnflag", "l_linestatus"], orient="row"
)
NATIONS = {"n_name": ["INDIA", "INDONESIA", "JAPAN", "CHINA", "VIETNAM"]}
BOUNDS = {"max_groups": 4, "max_rows_per_group": 20}

# The plain queries. {person} and {source} are who a row is of, and the join that finds it; or neither.
PRICED = """
SELECT {person} l_returnflag, l_linestatus, CAST(l_quantity AS DOUBLE) AS quantity,
       CAST(l_extendedprice AS DOUBLE) AS price, CAST(l_discount AS DOUBLE) AS discount,
       CAST(l_extendedprice * (1 - l_discount) AS DOUBLE) AS disc_price,
       CAST(l_extendedprice * (1 - l_discount) * (1 + l_tax) AS DOUBLE) AS charge
FROM {source} WHERE l_shipdate <= DATE '1998-09-02'
"""
Q1 = """
SELECT l_returnflag, l_linestatus, SUM(quantity) AS sum_qty, SUM(price) AS sum_price, SUM(disc_price) AS sum_disc,
       SUM(charge) AS sum_charge, AVG(quantity) AS avg_qty, AVG(price) AS avg_price, AVG(discount) AS avg_disc,
       COUNT(*) AS len
FROM ({rows}) GROUP BY ALL ORDER BY ALL
"""
Q5_ROWS = """
SELECT o_custkey, n_name, CAST(l_extendedprice * (1 - l_discount) AS DOUBLE) AS revenue
FROM customer, orders, lineitem, supplier, nation, region
WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND l_suppkey = s_suppkey AND c_nationkey = s_nationkey
  AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey AND r_name = 'ASIA'
  AND o_orderdate >= DATE '1994-01-01' AND o_orderdate < DATE '1995-01-01'
"""
Q5 = "SELECT n_name, SUM(revenue) AS revenue FROM ({rows}) GROUP BY ALL ORDER BY ALL"
Q6_ROWS = """
SELECT {person} CAST(l_extendedprice * l_discount AS DOUBLE) AS revenue FROM {source}
WHERE l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1995-01-01' AND l_discount BETWEEN 0.05 AND 0.07
  AND l_quantity < 24
"""
Q14_ROWS = """
SELECT {person} CAST(l_extendedprice * (1 - l_discount) AS DOUBLE) AS revenue,
       CASE WHEN p_type LIKE 'PROMO%' THEN CAST(l_extendedprice * (1 - l_discount) AS DOUBLE) ELSE 0 END AS promo
FROM {source} JOIN part ON l_partkey = p_partkey
WHERE l_shipdate >= DATE '1995-09-01' AND l_shipdate < DATE '1995-10-01'
"""
Q14 = "SELECT SUM(promo) AS promo, SUM(revenue) AS revenue FROM ({rows})"
Q19_ROWS = """
SELECT {person} CAST(l_extendedprice * (1 - l_discount) AS DOUBLE) AS revenue
FROM {source} JOIN part ON l_partkey = p_partkey
WHERE l_shipmode IN ('AIR', 'AIR REG') AND l_shipinstruct = 'DELIVER IN PERSON' AND (
  (p_brand = 'Brand#12' AND p_container IN ('SM CASE', 'SM BOX', 'SM PACK', 'SM PKG')
   AND l_quantity BETWEEN 1 AND 11 AND p_size BETWEEN 1 AND 5)
  OR (p_brand = 'Brand#23' AND p_container IN ('MED BAG', 'MED BOX', 'MED PKG', 'MED PACK')
      AND l_quantity BETWEEN 10 AND 20 AND p_size BETWEEN 1 AND 10)
  OR (p_brand = 'Brand#34' AND p_container IN ('LG CASE', 'LG BOX', 'LG PACK', 'LG PKG')
      AND l_quantity BETWEEN 20 AND 30 AND p_size BETWEEN 1 AND 15))
"""
REVENUE = "SELECT SUM(revenue) AS revenue FROM ({rows})"
README = """
SELECT hospital, COUNT(DISTINCT patient) AS people, MODE(diagnosis) AS top, MEDIAN(age) AS age
FROM visits WHERE year = 2024 GROUP BY ALL ORDER BY ALL
"""

Release = Callable[[dpp.PrivateQuery], pl.DataFrame]
Query = Callable[[float, dict[str, int]], dpp.PrivateQuery]  # of a loss for each output, and bounds


@dataclass(frozen=True)
class Case:
    """A private query, where it is released, and what it is measured by."""

    name: str
    target: float
    query: Query
    release: Release
    plain: Callable[[], pl.DataFrame]
    bare: Callable[[], pl.DataFrame] | None = None  # the plain query without the join that finds the person
    bounds: dict[str, int] | None = None  # None: every row is a person
    other: Query | None = None  # instead of the plain query: another private one
    checked: tuple[str, ...] | None = None  # the columns that are compared; None: all


def of_q1(
    loss: float, bounds: dict[str, int] | None, outputs: int = 8, frame: dpp.PrivateFrame | None = None
) -> dpp.PrivateQuery:
    spent = {"epsilon": loss}
    asked = {
        "sum_qty": dpp.sum("quantity", 0, 50, step=1, **spent),
        "sum_price": dpp.sum("price", 0, 110_000, step=1, **spent),
        "sum_disc": dpp.sum("disc_price", 0, 110_000, step=1, **spent),
        "sum_charge": dpp.sum("charge", 0, 120_000, step=1, **spent),
        "avg_qty": dpp.mean("quantity", 0, 50, step=1, **spent),
        "avg_price": dpp.mean("price", 0, 110_000, step=1, **spent),
        "avg_disc": dpp.mean("discount", 0, 0.1, step=0.01, **spent),
        "len": dpp.len(**spent),
    }
    if frame is None:
        frame = dpp.protect(None) if bounds is None else dpp.protect("o_custkey", **bounds)
    return frame.group_by(FLAGS).agg(**dict(list(asked.items())[:outputs]))


def revenue(*names: str, keys: dict[str, list[str]] | None = None) -> Query:
    def query(loss: float, bounds: dict[str, int]) -> dpp.PrivateQuery:
        bounds = bounds if keys else {"max_rows": bounds["max_rows_per_group"]}
        frame = dpp.protect("o_custkey", **bounds)
        asked = {name: dpp.sum(name, 0, 110_000, step=1, epsilon=loss) for name in names}
        return (frame.group_by(keys) if keys else frame).agg(**asked)

    return query


def of_readme(loss: float, bounds: dict[str, int]) -> dpp.PrivateQuery:
    return (
        dpp.protect("patient", **bounds)
        .group_by({"hospital": ["A", "B", "C"]})
        .agg(
            people=dpp.n_people(epsilon=loss),
            top=dpp.mode("diagnosis", ["flu", "asthma", "none"], epsilon=loss),
            age=dpp.median("age", range(121), epsilon=loss),
        )
    )


def plain_q1(rows: pl.LazyFrame) -> pl.LazyFrame:
    sums = {"sum_qty": "quantity", "sum_price": "price", "sum_disc": "disc_price", "sum_charge": "charge"}
    means = {"avg_qty": "quantity", "avg_price": "price", "avg_disc": "discount"}
    return (
        rows.group_by(FLAGS.columns)
        .agg(
            *(pl.sum(column).alias(name) for name, column in sums.items()),
            *(pl.mean(column).alias(name) for name, column in means.items()),
            len=pl.len(),
        )
        .sort(FLAGS.columns)
    )


class Scanned:
    """The tables in files, read by Polars, and what Q1 and Q5 make of them."""

    def __init__(self, folder: Path) -> None:
        day, price, left = pl.col("o_orderdate").dt.year(), as_float("l_extendedprice"), 1 - as_float("l_discount")
        tables = {name: pl.scan_parquet(folder / f"{name}.parquet") for name in TABLES}
        self.orders = tables["orders"].select("o_orderkey", "o_custkey")
        self.orders_of_1994 = tables["orders"].filter(day == 1994).select("o_orderkey", "o_custkey")
        self.customers = tables["customer"].select(pl.col("c_custkey").alias("o_custkey"), "c_nationkey")
        self.priced = (
            tables["lineitem"]
            .filter(pl.col("l_shipdate") <= date(1998, 9, 2))
            .with_columns(as_float("l_quantity").alias("quantity"), price.alias("price"))
            .with_columns(as_float("l_discount").alias("discount"), (price * left).alias("disc_price"))
            .with_columns((pl.col("disc_price") * (1 + as_float("l_tax"))).alias("charge"))
            .select("l_orderkey", *FLAGS.columns, "quantity", "price", "discount", "disc_price", "charge")
        )
        self.items = tables["lineitem"].select("l_orderkey", "l_suppkey", (price * left).alias("revenue"))
        self.suppliers = (
            tables["supplier"]
            .join(tables["nation"], left_on="s_nationkey", right_on="n_nationkey")
            .join(tables["region"].filter(pl.col("r_name") == "ASIA"), left_on="n_regionkey", right_on="r_regionkey")
            .select("s_suppkey", "s_nationkey", "n_name")
        )

    def q1(self, loss: float, bounds: dict[str, int]) -> dpp.PrivateQuery:
        rows = self.orders.join(self.priced, left_on="o_orderkey", right_on="l_orderkey")
        return of_q1(loss, bounds, frame=rows.dp.protect("o_custkey", **bounds))

    def plain_q1(self) -> pl.LazyFrame:
        return plain_q1(self.orders.join(self.priced, left_on="o_orderkey", right_on="l_orderkey"))

    def q5(self, loss: float, bounds: dict[str, int]) -> dpp.PrivateQuery:
        rows = self.lines_of_1994().dp.protect("o_custkey", **bounds)
        return rows.group_by(NATIONS).agg(revenue=dpp.sum("revenue", 0, 110_000, step=1, epsilon=loss))

    def lines_of_1994(self) -> pl.LazyFrame:
        return (
            self.orders_of_1994.join(self.customers, "o_custkey")
            .join(self.items, left_on="o_orderkey", right_on="l_orderkey")
            .join(self.suppliers, left_on=["l_suppkey", "c_nationkey"], right_on=["s_suppkey", "s_nationkey"])
        )

    def plain_q5(self) -> pl.LazyFrame:
        return self.lines_of_1994().group_by("n_name").agg(pl.sum("revenue")).sort("n_name")


def as_float(column: str) -> pl.Expr:
    return pl.col(column).cast(pl.Float64)


def totals(rows: pl.LazyFrame) -> Query:
    people = rows.group_by("patient").agg(years=pl.col("age").sum()).dp.protect("patient", max_rows=1)
    return lambda loss, _: people.agg(middle=pl.col("years").dp.median(range(10_001), epsilon=loss))


def plain_totals(rows: pl.LazyFrame) -> pl.LazyFrame:
    return rows.group_by("patient").agg(pl.sum("age").alias("years")).select(pl.median("years").alias("middle"))


def by_the_faster_engine(plan: pl.LazyFrame) -> Callable[[], pl.DataFrame]:
    """What runs a plan by the engine of Polars that is the faster one for it."""

    @cache
    def faster() -> Callable[[], pl.DataFrame]:
        sides = [partial(plan.collect, engine=engine) for engine in ("streaming", "in-memory")]
        seconds = median_times(sides, 1)
        return sides[seconds.index(min(seconds))]

    return lambda: faster()()


def plain_readme(rows: pl.DataFrame) -> pl.DataFrame:
    return (
        rows.lazy()
        .filter(pl.col("year") == 2024)
        .group_by("hospital")
        .agg(pl.n_unique("patient").alias("people"), pl.col("diagnosis").mode().first().alias("top"), pl.median("age"))
        .sort("hospital")
        .collect(engine="streaming")
    )


def visits(rows: int) -> pl.DataFrame:
    """As in the README, ten rows of a person on the average: a third of the people has more than the bounds keep."""
    rng = np.random.default_rng(0)
    names = {"hospital": ["A", "B", "C"], "diagnosis": ["flu", "asthma", "none", "other"]}
    drawn = {name: pl.Series(values).gather(rng.integers(0, len(values), rows)) for name, values in names.items()}
    people, years, ages = (
        rng.integers(0, max(rows // 10, 1), rows),
        rng.integers(2023, 2025, rows),
        rng.integers(0, 100, rows),
    )
    return pl.DataFrame({"patient": people, "year": years, **drawn, "age": ages})


def answer(con: Any, statement: str) -> pl.DataFrame:
    """What a statement gives."""
    result = con.raw_sql(statement)
    fetch = "to_arrow_table" if hasattr(result, "to_arrow_table") else "fetch_arrow_table"  # before DuckDB 2
    return pl.DataFrame(getattr(result, fetch)())


def view(con: Any, statement: str) -> Any:
    """A statement as a table of Ibis."""
    name = f"view{zlib.crc32(statement.encode())}"
    con.raw_sql(f"CREATE OR REPLACE VIEW {name} AS {statement}")
    return con.table(name)


def cases(con: Any, scale: float, folder: Path, tables: Path) -> list[Case]:
    joined = "lineitem JOIN orders ON l_orderkey = o_orderkey"
    person = {"person": "o_custkey,", "source": joined}
    alone = {"person": "", "source": "lineitem"}

    def duckdb(name: str, target: float, query: Query, rows: str, plain: str, **more: Any) -> Case:
        bare = None if "{source}" not in rows else plain.format(rows=rows.format(**alone))
        table, joining = view(con, rows.format(**person)), plain.format(rows=rows.format(**person))
        return Case(
            f"{name}, DuckDB",
            target,
            query,
            lambda asked: dp_polars.sql.release(asked, table),
            lambda: answer(con, joining),
            None if bare is None else lambda: answer(con, bare),
            **{"bounds": BOUNDS, **more},
        )

    def one_of_q1(loss: float, bounds: dict[str, int]) -> dpp.PrivateQuery:
        return of_q1(loss, bounds, 1)

    lines = answer(con, PRICED.format(**person))
    stays, visited = visits(int(10**7 * scale)), {"max_groups": 2, "max_rows_per_group": 1}
    stays.write_parquet(folder / "visits.parquet")
    con.raw_sql(f"CREATE TABLE visits AS SELECT * FROM '{folder / 'visits.parquet'}'")
    of_2024 = view(con, "SELECT * FROM visits WHERE year = 2024")
    in_2024 = stays.lazy().filter(pl.col("year") == 2024)

    def polars(name: str, target: float, query: Query, **more: Any) -> Case:
        return Case(
            f"{name}, Polars",
            target,
            query,
            lambda asked: asked.release(lines),
            lambda: plain_q1(lines.lazy()).collect(engine="streaming"),
            **more,
        )

    scanned = Scanned(tables)

    def of_files(name: str, target: float, query: Query, plan: pl.LazyFrame) -> Case:
        return Case(
            f"{name}, Polars", target, query, lambda asked: asked.release(), by_the_faster_engine(plan), bounds=BOUNDS
        )

    return [
        polars("Q1 per customer, joined before", 10, of_q1, bounds=BOUNDS),
        polars("Q1, every row a person", 5, of_q1),
        of_files("Q1 of joined line items", 2.5, scanned.q1, scanned.plain_q1()),
        of_files("Q5 of joined line items", 2, scanned.q5, scanned.plain_q5()),
        Case(
            "the median of each person's total, Polars",
            1.5,
            totals(stays.lazy()),
            lambda asked: asked.release(),
            by_the_faster_engine(plain_totals(stays.lazy())),
            bounds={},
        ),
        duckdb("Q1 per customer", 10, of_q1, PRICED, Q1),
        duckdb("Q5 per customer", 1.4, revenue("revenue", keys=NATIONS), Q5_ROWS, Q5),
        duckdb("Q6 per customer", 1.3, revenue("revenue"), Q6_ROWS, REVENUE),
        duckdb("Q14 per customer", 1.5, revenue("promo", "revenue"), Q14_ROWS, Q14),
        duckdb("Q19 per customer", 1.2, revenue("revenue"), Q19_ROWS, REVENUE),
        polars("Q1 per customer: eight outputs against one", 2, of_q1, bounds=BOUNDS, other=one_of_q1),
        duckdb("Q1 per customer: eight outputs against one", 2, of_q1, PRICED, Q1, other=one_of_q1),
        Case(
            "the README's first query, Polars",
            2,
            of_readme,
            lambda asked: asked.release(in_2024),
            lambda: plain_readme(stays),
            bounds=visited,
            checked=("people",),
        ),
        Case(
            "the README's first query, DuckDB",
            2.5,
            of_readme,
            lambda asked: dp_polars.sql.release(asked, of_2024),
            lambda: answer(con, README),
            bounds=visited,
            checked=("people",),
        ),
    ]


def is_right(case: Case) -> bool:
    """Whether a release with next to no noise, and bounds that drop no row, gives the plain answers."""
    loose = None if case.bounds is None else {"max_groups": 6, "max_rows_per_group": 10**4}
    found, plain = case.release(case.query(SURE, loose)), case.plain()
    numbers = [name for name, dtype in plain.schema.items() if dtype.is_numeric() or dtype.is_decimal()]
    names = list(case.checked or numbers)
    keys = [
        name for name in found.columns if name in plain.columns and name not in numbers and name not in ("top", "age")
    ]
    both = (
        plain.join(found, on=keys, suffix="_found")
        if keys
        else plain.hstack(found.rename(lambda name: f"{name}_found"))
    )
    off = (both[f"{name}_found"].cast(pl.Float64) / both[name].cast(pl.Float64) - 1 for name in names)
    return both.height == plain.height > 0 and all(bool((each.abs() < 1e-3).all()) for each in off)


def measure(case: Case, rounds: int) -> bool:
    """Print a line for a case; return whether its answers are right."""
    right, query = is_right(case), case.query(1.0, case.bounds)
    sides: list[Callable[[], object]] = [lambda: case.release(query)]
    if case.other is None:
        sides.append(case.plain)
    else:
        beside = case.other(1.0, case.bounds)
        sides.append(lambda: case.release(beside))
    sides += [] if case.bare is None or case.other is not None else [case.bare]
    private, plain, *bare = median_times(sides, rounds)
    brackets = "".join(f"({private / seconds:.2f})" for seconds in bare)
    print(
        f"{case.name:<52}{private:>9.3f}{plain:>9.3f}{private / plain:>8.2f}{brackets:>10}{case.target:>8}"
        + ("" if right else "   WRONG"),
        flush=True,
    )
    return right


def make_tables(folder: Path, scale: float) -> None:
    """Let `tpchgen-cli` make what is not there."""
    tool = shutil.which("tpchgen-cli", path=f"{Path(sys.executable).parent}:{sys.exec_prefix}/bin") or shutil.which(
        "tpchgen-cli"
    )
    if tool is None:
        sys.exit("tpchgen-cli makes the tables: pip install tpchgen-cli")
    missing = [name for name in TABLES if not (folder / f"{name}.parquet").exists()]
    if missing:
        command = [tool, "parquet", "-s", f"{scale:g}", "--tables", ",".join(missing), "-o", str(folder)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1, help="of TPC-H, and of the ten million visits")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="")
    parser.add_argument("--folder", type=Path, help="where the tables lie, or are made; default: a temporary folder")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as name:
        folder = (arguments.folder or Path(name)) / f"tpch-{arguments.scale:g}"
        folder.mkdir(parents=True, exist_ok=True)
        make_tables(folder, arguments.scale)
        con = ibis.duckdb.connect(Path(name) / "tpch.duckdb")
        for table in TABLES:
            con.raw_sql(f"CREATE TABLE {table} AS SELECT * FROM '{folder / table}.parquet'")
        print(
            f"polars {pl.__version__}, duckdb {con.version}, {pl.thread_pool_size()} threads, scale {arguments.scale:g}"
        )
        print(f"{'(beside the plain query without the join to orders)':>88}")
        print(f"{'case':<52}{'private':>9}{'beside':>9}{'ratio':>8}{'':>10}{'target':>8}")
        chosen = [case for case in cases(con, arguments.scale, Path(name), folder) if arguments.only in case.name]
        right = [measure(case, arguments.rounds) for case in chosen]
        con.disconnect()
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
