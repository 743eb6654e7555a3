"""Releases on Spark beside the same queries without privacy: ratios of median times, and peak memory.

    python benchmarks/spark.py [--rows 1_000_000 10_000_000] [--groups 1_000 100_000] [--repeat 3] [--only WORD]

Starts two executor processes on this machine (and with `SPARK_API_MODE=connect` a server of Spark Connect), has them
make the rows as Parquet in a temporary folder, and queries these files; each query runs three times on the first of
them to warm up. Beside the ratio of times stands that of processor seconds, which tells more on a busy machine. Memory
is what the processes have resident at most while a query runs: the driver (Python and its JVM) and the larger executor
(its JVM and its Python workers).
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from turns import peak

import dp_polars as dpp
import dp_polars.spark

CATEGORIES = [f"category {i:02}" for i in range(100)]


def session(folder: Path, executor_memory: int) -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return (
        SparkSession.builder.master(f"local-cluster[2,1,{executor_memory}]")
        .config("spark.executor.memory", f"{executor_memory}m")
        .config("spark.driver.memory", "1g")
        .config("spark.checkpoint.dir", str(folder / "checkpoints"))
        .config("spark.local.dir", str(folder / "spark"))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "OFF")
        .getOrCreate()
    )


def make_rows(spark: SparkSession, folder: Path, rows: int, groups: int) -> DataFrame:
    """Rows of a person (of rows/10, who come to 2 groups at most), a category of 100 (one twice as common), an age.

    And a year, 2024 in three of four rows, a hospital of three (2 at most of each person), and four amounts.
    """
    path = str(folder / f"{rows}-{groups}")

    def below(bound: int, *values: Column | int) -> Column:
        return sf.pmod(sf.xxhash64(*(sf.lit(value) for value in values)), sf.lit(bound))

    row, person = sf.col("id"), sf.col("person")
    (
        spark.range(rows, numPartitions=max(8, rows // 5_000_000))
        .withColumn("person", below(rows // 10, row, 1))
        .select(
            "person",
            below(groups, person, below(2, row, 2)).cast("int").alias("g"),
            sf.format_string("category %02d", sf.least(below(101, row, 3), sf.lit(99))).alias("x"),
            below(101, row, 4).cast("int").alias("age"),
            sf.when(below(4, row, 5) == 0, 2023).otherwise(2024).alias("year"),
            sf.substring(sf.lit("ABC"), below(3, person, below(2, row, 2)).cast("int") + 1, sf.lit(1)).alias(
                "hospital"
            ),
            *((below(10_000, row, 6 + i) / 100).alias(f"amount{i}") for i in range(4)),
        )
        .write.parquet(path)
    )
    return spark.read.parquet(path)


@dataclass(frozen=True)
class Process:
    parent: int
    resident: int  # bytes
    seconds: float  # of processors, with those of children that have ended
    command: str


def processes() -> dict[int, Process]:
    """This process and all below it."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                command = (folder / "cmdline").read_text()
            except OSError:
                continue
            ticks = sum(int(field) for field in fields[11:15])
            found[int(folder.name)] = Process(
                int(fields[1]), int(fields[21]) * os.sysconf("SC_PAGE_SIZE"), ticks / os.sysconf("SC_CLK_TCK"), command
            )

    def is_own(pid: int) -> bool:
        return pid == os.getpid() or (pid in found and is_own(found[pid].parent))

    return {pid: process for pid, process in found.items() if is_own(pid)}


def resident() -> tuple[int, int]:
    """Bytes of the driver and of the larger executor, each with its children."""
    found = processes()

    def total(pid: int) -> int:
        return found[pid].resident + sum(total(child) for child in found if found[child].parent == pid)

    sizes = [total(pid) for pid in found if "CoarseGrainedExecutorBackend" in found[pid].command]
    return total(os.getpid()) - sum(sizes), max(sizes, default=0)


def seconds() -> tuple[float, float]:
    """Time of the clock and of the processors."""
    return time.perf_counter(), sum(process.seconds for process in processes().values())


@dataclass(frozen=True)
class Work:
    """A private query, and what it is compared with: the same one without privacy, if nothing else is said."""

    name: str
    query: dpp.PrivateQuery
    plain: Callable[[], DataFrame]
    frame: DataFrame


def works(frame: DataFrame, groups: int) -> Iterator[Work]:
    """All that is measured."""
    for name, query, plain in by_category(frame, groups):
        yield Work(name, query, plain, frame)
    of_year = frame.filter("year = 2024")
    first = (
        dpp.protect("person", max_groups=2, max_rows_per_group=1)
        .group_by({"hospital": ["A", "B", "C"]})
        .agg(
            people=dpp.n_people(epsilon=0.25),
            top=dpp.mode("x", CATEGORIES[:3], epsilon=0.5),
            age=dpp.median("age", range(121), epsilon=0.5),
        )
    )
    answers = [sf.count_distinct("person"), sf.mode("x"), sf.median("age")]
    yield Work("the README's first query", first, lambda: of_year.groupBy("hospital").agg(*answers), of_year)
    amounts = [f"amount{i}" for i in range(4)]
    private = dpp.protect("person", max_groups=2, max_rows_per_group=5).group_by({"g": range(groups)})
    eight = {f"sum{i}": dpp.sum(name, 0, 100, step=0.01, epsilon=1) for i, name in enumerate(amounts)}
    one = private.agg(sum0=eight["sum0"])
    eight |= {f"mean{i}": dpp.mean(name, 0, 100, step=0.01, epsilon=1) for i, name in enumerate(amounts[:3])}
    both = private.agg(**eight, rows=dpp.len(epsilon=1))
    yield Work("eight outputs, beside one (private)", both, lambda: dp_polars.spark.release(one, frame), frame)


def by_category(frame: DataFrame, groups: int) -> Iterator[tuple[str, dpp.PrivateQuery, Callable[[], DataFrame]]]:
    """Name, private query and the query without privacy, of one output."""
    keys = {"g": range(groups)}
    mode = dpp.mode("x", CATEGORIES, epsilon=0.5)
    median = dpp.median("age", range(101), epsilon=0.5)
    people = dpp.protect("person", max_groups=2)
    counts, distinct = sf.count(sf.lit(1)), sf.count_distinct("person")
    yield (
        "mode, one person per row",
        dpp.protect(None).group_by(keys).agg(mode),
        lambda: frame.groupBy("g", "x").agg(counts),
    )
    yield (
        "median, one person per row",
        dpp.protect(None).group_by(keys).agg(median),
        lambda: frame.groupBy("g", "age").agg(counts),
    )
    yield (
        "mode, people in any groups",
        dpp.protect("person").group_by(keys).agg(mode),
        lambda: frame.groupBy("g", "x").agg(distinct),
    )
    yield "mode, people in 2 groups", people.group_by(keys).agg(mode), lambda: frame.groupBy("g", "x").agg(distinct)
    yield (
        "median, people in 2 groups, 1 row each",
        dpp.protect("person", max_groups=2, max_rows_per_group=1).group_by(keys).agg(median),
        lambda: frame.groupBy("g", "age").agg(distinct),
    )


HEAD = (
    f"{'rows':>12} {'groups':>8}  {'query':<38} {'plain s':>8} {'private s':>9} {'ratio':>6} {'of CPU':>6} "
    f"{'driver':>8} {'executor':>8}"
)


def measured(work: Work, repeat: int, warm_up: int) -> str:
    """A line of the table: medians of `repeat` turns after those for warming up."""
    turns = []
    with peak(resident, 0.2) as most:
        for turn in range(-warm_up, repeat):
            start = seconds()
            work.plain().write.format("noop").mode("overwrite").save()
            middle = seconds()
            answers = dp_polars.spark.release(work.query, work.frame)
            end = seconds()
            assert answers.count() == work.query._request.groups
            if turn >= 0:
                turns.append([b - a for a, b in zip(start + middle, middle + end, strict=True)])
    wall, cpu, private_wall, private_cpu = (statistics.median(own) for own in zip(*turns, strict=True))
    sizes = "".join(f"{size / 2**20:>7,.0f} M" for size in most)
    return f"{wall:>8.2f} {private_wall:>9.2f} {private_wall / wall:>6.2f} {private_cpu / cpu:>6.2f} {sizes}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--groups", type=int, nargs="+", default=[1_000, 100_000])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--executor-memory", type=int, default=1024, help="MiB of each of the two JVMs")
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spark = session(folder, args.executor_memory)
        print(HEAD)
        is_warm = set()
        for rows in args.rows:
            for groups in args.groups:
                frame = make_rows(spark, folder, rows, groups)
                for work in works(frame, groups):
                    if args.only in work.name:
                        line = measured(work, args.repeat, 0 if work.name in is_warm else 3)
                        print(f"{rows:>12,} {groups:>8,}  {work.name:<38} {line}", flush=True)
                        is_warm.add(work.name)
        spark.stop()


if __name__ == "__main__":
    main()
