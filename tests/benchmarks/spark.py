"""Releases on Spark beside the same queries without privacy: ratios of median times, and peak memory.

    python tests/benchmarks/spark.py [--rows 1_000_000 10_000_000] [--groups 1_000 100_000] [--repeat 3] [--only WORD]

Starts two executor processes on this machine, has them make the rows as Parquet in a temporary folder, and queries
these files. Memory is what the processes have resident at most while a query runs: the driver (Python and its JVM) and
the larger executor (its JVM and its Python workers).
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

import dp_polars as dpp
import dp_polars.spark

CATEGORIES = [f"category {i:02}" for i in range(100)]


def session(folder: Path, executor_memory: int) -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = (
        SparkSession.builder.master(f"local-cluster[2,1,{executor_memory}]")
        .config("spark.executor.memory", f"{executor_memory}m")
        .config("spark.driver.memory", "1g")
        .config("spark.local.dir", str(folder / "spark"))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "OFF")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    return spark


def make_rows(spark: SparkSession, folder: Path, rows: int, groups: int) -> DataFrame:
    """Rows of a group, a category of 100 (one of them twice as common), an age, and a person of rows/10."""
    path = str(folder / f"{rows}-{groups}")
    word = sf.xxhash64("id")
    category = sf.least(sf.pmod(word, sf.lit(101)), sf.lit(99))
    (
        spark.range(rows, numPartitions=max(8, rows // 5_000_000))
        .select(
            sf.pmod(sf.xxhash64("id", sf.lit(1)), sf.lit(groups)).cast("int").alias("g"),
            sf.format_string("category %02d", category).alias("x"),
            sf.pmod(sf.xxhash64("id", sf.lit(2)), sf.lit(101)).cast("int").alias("age"),
            sf.pmod(sf.xxhash64("id", sf.lit(3)), sf.lit(rows // 10)).alias("person"),
        )
        .write.parquet(path)
    )
    return spark.read.parquet(path)


def processes() -> dict[int, tuple[int, int, str]]:
    """Parent, resident bytes and command of every process."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                command = (folder / "cmdline").read_text()
            except OSError:
                continue
            found[int(folder.name)] = (int(fields[1]), int(fields[21]) * os.sysconf("SC_PAGE_SIZE"), command)
    return found


def resident() -> tuple[int, int]:
    """Bytes of the driver and of the larger executor, each with its children."""
    found = processes()

    def total(pid: int) -> int:
        return found[pid][1] + sum(total(child) for child in found if found[child][0] == pid)

    def is_below(pid: int, top: int) -> bool:
        return pid == top or (pid in found and is_below(found[pid][0], top))

    executors = [pid for pid in found if "CoarseGrainedExecutorBackend" in found[pid][2] and is_below(pid, os.getpid())]
    sizes = [total(pid) for pid in executors]
    return total(os.getpid()) - sum(sizes), max(sizes, default=0)


@contextmanager
def peak() -> Iterator[list[int]]:
    """Peak bytes of the driver and of the larger executor within the block."""
    most, done = [0, 0], threading.Event()

    def watch() -> None:
        while not done.wait(0.2):
            for i, size in enumerate(resident()):
                most[i] = max(most[i], size)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield most
    finally:
        done.set()
        watcher.join()


def works(frame: DataFrame, groups: int) -> Iterator[tuple[str, dpp.PrivateQuery, Callable[[], DataFrame]]]:
    """Name, private query and the query without privacy."""
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
        print(
            f"{'rows':>12} {'groups':>8}  {'query':<38} {'plain s':>8} {'private s':>9} {'ratio':>6} "
            f"{'driver':>8} {'executor':>9}"
        )
        for rows in args.rows:
            for groups in args.groups:
                frame = make_rows(spark, folder, rows, groups)
                for work, query, plain in works(frame, groups):
                    if args.only not in work:
                        continue
                    times: list[list[float]] = [[], []]
                    with peak() as most:
                        for turn in range(args.repeat + 1):
                            start = time.perf_counter()
                            plain().write.format("noop").mode("overwrite").save()
                            middle = time.perf_counter()
                            answers = dp_polars.spark.release(
                                query, frame, path=folder / f"{rows}-{groups}-{work}-{turn}"
                            )
                            end = time.perf_counter()
                            assert answers.count() == groups
                            if turn:  # the first is for warming up
                                times[0].append(middle - start)
                                times[1].append(end - middle)
                    a, b = (statistics.median(own) for own in times)
                    sizes = "".join(f"{size / 2**20:>7,.0f} M" for size in most)
                    print(f"{rows:>12,} {groups:>8,}  {work:<38} {a:>8.2f} {b:>9.2f} {b / a:>6.2f} {sizes}", flush=True)
        spark.stop()


if __name__ == "__main__":
    main()
