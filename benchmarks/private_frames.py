"""Private frames beside the same queries of plain Polars: times, their ratios, and peak memory.

    python benchmarks/private_frames.py [--scale 1] [--rounds 3] [--only WORD] [--folder DIR]

Each side of each case runs in processes of its own, the two sides in turn, so that a noisy moment hits both and
peaks of memory don't mix. The file of 10⁸ rows is made in a temporary folder and deleted afterwards. Exits non-zero
only where a histogram is wrong.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet

import dp_polars as dpp
from dp_polars._engines.polars.engine import PolarsEngine
from tests.helpers.runs import histograms_by

MODE = dpp.mode("value", range(100), epsilon=1)
FILE_ROWS = 100_000_000
FILE = "visits.parquet"


@dataclass(frozen=True)
class Sides:
    """Two ways to the same columns `key`, `value` (where it is a histogram) and `count`."""

    private: Callable[[], pl.DataFrame]
    plain: Callable[[], pl.DataFrame]
    agree: Callable[[pl.DataFrame, pl.DataFrame], bool]


@dataclass(frozen=True)
class Case:
    name: str
    most: float  # times the plain query
    peak: int | None  # MiB
    make: Callable[[float, Path], Sides]
    runs: int  # in one process, after one that warms up; 0: only that one


def histogram(
    rows: pl.LazyFrame, unit: str | None, keys: int, groups: int | None = None, *, kept: pl.Expr | None = None
) -> pl.DataFrame:
    frame = dpp.protect(unit, max_groups=groups)
    query = (frame if kept is None else frame.filter(kept)).group_by({"key": range(keys)}).agg(MODE)
    engine = PolarsEngine.of(rows, "streaming")
    (found,) = histograms_by(engine, query)
    owner = np.repeat(np.arange(keys), found.sizes)
    return pl.DataFrame({"key": owner, "value": found.codes, "count": found.weights})


def same(private: pl.DataFrame, plain: pl.DataFrame) -> bool:
    columns = [pl.col("key", "value", "count").cast(pl.Int64)]
    return private.select(columns).equals(plain.select(columns).sort("key", "value"))


def no_more(private: pl.DataFrame, plain: pl.DataFrame) -> bool:
    """Bounded counts: in the same cells, never more people than there are."""
    numbers = pl.col("key", "value", "count").cast(pl.Int64)
    both = private.select(numbers).join(plain.select(numbers), on=["key", "value"], suffix="_of_all")
    return both.height == private.height > 0 and both.select((pl.col("count") <= pl.col("count_of_all")).all()).item()


def people_in_memory(scale: float, folder: Path) -> Sides:
    rows, rng = int(10**7 * scale), np.random.default_rng(0)
    frame = pl.DataFrame(
        {
            "person": rng.integers(0, rows // 10, rows),
            "key": rng.integers(0, 1000, rows),
            "value": rng.integers(0, 100, rows),
        }
    ).lazy()
    return Sides(lambda: histogram(frame, "person", 1000, 2), lambda: people(frame), no_more)


def people(frame: pl.LazyFrame) -> pl.DataFrame:
    counted = frame.group_by("key", "value").agg(pl.col("person").n_unique().alias("count"))
    return counted.collect(engine="streaming")


def rows_of_file(scale: float, folder: Path) -> Sides:
    frame = pl.scan_parquet(folder / FILE)
    return Sides(
        lambda: histogram(frame, None, 1000),
        lambda: frame.group_by("key", "value").agg(pl.len().alias("count")).collect(engine="streaming"),
        same,
    )


def one_year_of_file(scale: float, folder: Path) -> Sides:
    """A tenth of the rows, by a public column that the file is sorted by."""
    frame, kept = pl.scan_parquet(folder / FILE), pl.col("year") == 3

    def plain() -> pl.DataFrame:
        counted = frame.filter(kept).group_by("key", "value").agg(pl.len().alias("count"))
        return counted.collect(engine="streaming")

    return Sides(lambda: histogram(frame, None, 1000, kept=kept), plain, same)


def people_of_file(scale: float, folder: Path) -> Sides:
    frame = pl.scan_parquet(folder / FILE)
    return Sides(lambda: histogram(frame, "person", 1000, 2), lambda: people(frame), no_more)


def many_groups(scale: float, folder: Path) -> Sides:
    rows, groups, rng = int(10**7 * scale), int(10**6 * scale), np.random.default_rng(0)
    frame = pl.DataFrame({"key": rng.integers(0, groups, rows), "value": rng.integers(0, 100, rows)}).lazy()

    def drawn() -> pl.DataFrame:
        return frame.dp.protect(None).group_by({"key": range(groups)}).agg(MODE).release(engine="streaming")

    def plain() -> pl.DataFrame:
        return frame.group_by("key").agg(pl.col("value").mode().first()).collect(engine="streaming")

    return Sides(drawn, plain, lambda private, plain: plain["key"].is_in(private["key"].implode()).all())


def many_counts(scale: float, folder: Path) -> Sides:
    rows, groups, rng = int(10**7 * scale), int(10**6 * scale), np.random.default_rng(0)
    frame = pl.DataFrame({"key": rng.integers(0, groups, rows)}).lazy()

    def drawn() -> pl.DataFrame:
        asked = dpp.len(epsilon=1000)
        return frame.dp.protect(None).group_by({"key": range(groups)}).agg(asked).release(engine="streaming")

    def plain() -> pl.DataFrame:
        return frame.group_by("key").len().collect(engine="streaming")

    return Sides(drawn, plain, lambda private, plain: plain.join(private, on=["key", "len"]).height == plain.height)


def selected_keys(scale: float, folder: Path) -> Sides:
    """Selected keys, one of each person."""
    rows, rng = int(10**7 * scale), np.random.default_rng(0)
    person = rng.integers(0, rows // 2, rows)
    frame = pl.DataFrame({"person": person, "key": person * 2_654_435_761 % (rows // 10)}).lazy()

    def drawn() -> pl.DataFrame:
        private = frame.dp.protect("person", max_groups=1)
        return private.keys("key", epsilon=20, delta=1e-6).release(engine="streaming")

    def plain() -> pl.DataFrame:
        return frame.group_by("key").agg(pl.col("person").n_unique().alias("count")).collect(engine="streaming")

    def agree(private: pl.DataFrame, plain: pl.DataFrame) -> bool:
        """Of more than two people a key is shown but for a chance of e⁻²⁰; of none it never is."""
        sure = plain.filter(pl.col("count") > 2)["key"]
        return private["key"].is_in(plain["key"].implode()).all() and sure.is_in(private["key"].implode()).all()

    return Sides(drawn, plain, agree)


COLUMNS = ["a", "b", "c", "d", "e"]


def five_columns(scale: float, folder: Path) -> Sides:
    """Five outputs of five columns beside one output, both private: what reading once is worth."""
    path, rng = folder / f"five-{scale:g}.parquet", np.random.default_rng(0)
    if not path.exists():
        rows = int(10**7 * scale)
        frame = pl.DataFrame(
            {name: rng.integers(0, 100, rows) for name in COLUMNS} | {"key": rng.integers(0, 1000, rows)}
        )
        frame.write_parquet(path)

    def release(*names: str) -> pl.DataFrame:
        asked = [dpp.median(name, range(100), epsilon=10**6) for name in names]
        rows = pl.scan_parquet(path)
        return rows.dp.protect(None).group_by({"key": range(1000)}).agg(*asked).release(engine="streaming")

    return Sides(lambda: release(*COLUMNS), lambda: release("a"), lambda five, one: five.select("key", "a").equals(one))


def medians(scale: float, rows: int, groups: int, names: list[str]) -> Sides:
    """Medians of some columns in memory, beside those of plain Polars."""
    number, rng = int(rows * scale), np.random.default_rng(0)
    frame = pl.DataFrame(
        {"key": rng.integers(0, groups, number)} | {name: rng.integers(0, 100, number) for name in names}
    )
    keys = {"key": range(groups)}

    def drawn(epsilon: float = 0.5) -> pl.DataFrame:
        asked = [dpp.median(name, range(100), epsilon=epsilon) for name in names]
        return frame.dp.protect(None).group_by(keys).agg(*asked).release()

    def plain() -> pl.DataFrame:
        return frame.group_by("key").agg(pl.col(name).median() for name in names)

    def agree(private: pl.DataFrame, plain: pl.DataFrame) -> bool:
        true = frame.group_by("key").agg(pl.col(name).quantile(0.5, "lower").cast(pl.Int64) for name in names)
        return true.join(drawn(10**6), on=["key", *names]).height == true.height

    return Sides(drawn, plain, agree)


def many_small_groups(scale: float, folder: Path) -> Sides:
    return medians(scale, 10**6, 10_000, ["a"])


def five_medians(scale: float, folder: Path) -> Sides:
    return medians(scale, 5 * 10**6, 1_000, COLUMNS)


def report(scale: float, folder: Path) -> Sides:
    """Five numbers and a choice per group, beside the same without privacy."""
    rows, rng = int(10**7 * scale), np.random.default_rng(0)
    frame = pl.DataFrame(
        {
            "key": rng.integers(0, 1000, rows),
            "delay": rng.integers(0, 60, rows),
            "cost": rng.random(rows) * 1500,
            "days": rng.integers(0, 90, rows),
            "value": rng.integers(0, 100, rows),
        }
    ).lazy()
    late, cost, days = pl.col("delay") > 15, pl.col("cost"), pl.col("days")

    def drawn() -> pl.DataFrame:
        return (
            frame.dp.protect(None)
            .group_by({"key": range(1000)})
            .agg(
                visits=dpp.len(epsilon=100),
                late=late.dp.sum(0, 1, epsilon=100),
                cost=cost.dp.sum(0, 1000, step=0.01, epsilon=100),
                stay=days.dp.mean(0, 60, epsilon=100),
                top=MODE,
            )
            .release()
        )

    def plain() -> pl.DataFrame:
        asked = [pl.len().alias("visits"), late.sum().alias("late"), cost.clip(0, 1000).sum().alias("cost")]
        asked += [days.clip(0, 60).mean().alias("stay"), pl.col("value").mode().first().alias("top")]
        return frame.group_by("key").agg(asked).collect()

    def agree(private: pl.DataFrame, plain: pl.DataFrame) -> bool:
        both = private.join(plain, on="key", suffix="_true")
        off = (pl.col(name) - pl.col(f"{name}_true") for name in ("visits", "late"))
        return both.select(pl.all_horizontal(each.abs().max() <= 1 for each in off)).item()

    return Sides(drawn, plain, agree)


def five_sums(scale: float, folder: Path) -> Sides:
    """Sums of five columns of floats, people bounded, beside what bounds need at the least: the rows of each person."""
    rows, rng = int(10**7 * scale), np.random.default_rng(0)
    frame = pl.DataFrame(
        {"person": rng.integers(0, rows // 10, rows), "key": rng.integers(0, 10, rows)}
        | {name: rng.random(rows) for name in COLUMNS}
    ).lazy()

    def drawn(**bounds: int) -> pl.DataFrame:
        asked = [dpp.sum(name, 0, 1, step=0.01, epsilon=10**6) for name in COLUMNS]
        private = frame.dp.protect("person", **bounds or {"max_groups": 2, "max_rows_per_group": 3})
        return private.group_by({"key": range(10)}).agg(*asked).release()

    def agree(private: pl.DataFrame, plain: pl.DataFrame) -> bool:
        """Bounds that drop nothing: the plain sums of rounded values."""
        sums = frame.group_by("key").agg(pl.col(COLUMNS).round(2).sum()).sort("key").collect()
        wide = drawn(max_groups=10, max_rows_per_group=100)
        few = private.select((pl.col(name) < wide[name]).all() for name in COLUMNS)
        return all(few.row(0)) and all((wide[name] - sums[name]).abs().max() < 0.1 for name in COLUMNS)

    return Sides(drawn, lambda: frame.group_by("person").agg(pl.all()).collect(engine="streaming"), agree)


CASES = [
    Case("10⁷ rows of 10⁶ people, 2 groups each: people per category", 2.5, None, people_in_memory, 3),
    Case("10⁷ rows of 10⁶ people in memory: five sums beside each person's rows", 1, 1400, five_sums, 1),
    Case("10⁸ rows in Parquet, one person each: rows per category", 1.3, 1024, rows_of_file, 1),
    Case("10⁸ rows in Parquet, 10⁷ people, 2 groups each: people per category", 2, 2048, people_of_file, 0),
    Case("10⁸ rows in Parquet, filtered to one year of ten: rows per category", 1.3, 1024, one_year_of_file, 1),
    Case("10⁷ rows, 10⁶ public groups: a mode", 2, None, many_groups, 2),
    Case("10⁷ rows, 10⁶ public groups: a number of rows", 1.3, None, many_counts, 2),
    Case("10⁷ rows of 4·10⁶ people, 10⁶ selected keys, one each", 1.5, None, selected_keys, 2),
    Case("10⁷ rows, 1,000 groups: len, two sums, a mean, a mode", 1.5, None, report, 2),
    Case("10⁶ rows, 10,000 groups × 100: a median", 2, None, many_small_groups, 6),
    Case("5·10⁶ rows, 1,000 groups: five medians of five columns", 1.6, None, five_medians, 6),
    Case("10⁷ rows in Parquet, 1,000 groups: five medians beside one, both private", 5, None, five_columns, 2),
]


def write_file(path: Path, rows: int) -> None:
    rng, writer, step = np.random.default_rng(0), None, 1_000_000
    for start in range(0, rows, step):
        table = pl.DataFrame(
            {
                "person": rng.integers(0, rows // 10, step),
                "key": rng.integers(0, 1000, step),
                "value": rng.integers(0, 100, step),
                "year": np.full(step, start * 10 // rows),
            }
        ).to_arrow()
        writer = writer or pyarrow.parquet.ParquetWriter(path, table.schema)
        writer.write_table(table, row_group_size=500_000)
    writer.close()


def run_side(case: Case, side: str, scale: float, folder: Path) -> None:
    """In a process of its own: print the seconds and CPU seconds of the fastest run, and the peak in MiB."""
    run = getattr(case.make(scale, folder), side)
    times = []
    for _ in range(case.runs + 1):
        start, cpu = time.perf_counter(), time.process_time()
        run()
        times.append((time.perf_counter() - start, time.process_time() - cpu))
    print(json.dumps([*(min(column) for column in zip(*times[1:] or times, strict=True)), peak_memory()]))


def peak_memory() -> float:
    """Peak resident memory of this process, MiB."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # bytes on macOS
    # On Linux `getrusage` also knows the peak of the process that started this one.
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 2**10


def check(case: Case, folder: Path) -> bool:
    """Whether both sides agree, on a hundredth of the rows."""
    sides = case.make(0.01, folder)
    return sides.agree(sides.private(), sides.plain())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1, help="of the full number of rows")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default="")
    parser.add_argument("--folder", type=Path, help="where the file is made; default: the system's temporary folder")
    parser.add_argument("--side", nargs=2, metavar=("CASE", "SIDE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore", dpp.LargeLossWarning)  # answers are checked at such losses
    if arguments.side:
        number, side = arguments.side
        run_side(CASES[int(number)], side, arguments.scale, arguments.folder)
        return 0

    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        return table(arguments.scale, arguments.rounds, arguments.only, Path(name))


def table(scale: float, rounds: int, only: str, folder: Path) -> int:
    print(f"polars {pl.__version__}, numpy {np.__version__}, {pl.thread_pool_size()} threads, scale {scale:g}")
    print("ratio: of wall-clock seconds, and of CPU seconds, which other programs on the machine disturb less")
    print(f"{'case':<76}{'private':>9}{'plain':>9}{'ratio':>7}{'CPU':>6}{'most':>6}{'MiB':>7}{'plain':>7}{'most':>6}")
    chosen = [(number, case) for number, case in enumerate(CASES) if only in case.name]
    small = folder / "small"
    small.mkdir()
    write_file(small / FILE, FILE_ROWS // 100)
    if any("Parquet" in case.name for _, case in chosen):
        needed, free = int(2e9 * scale), shutil.disk_usage(folder).free
        if free < 2 * needed:
            print(f"the file needs up to {needed:,} bytes of {folder}, where {free:,} are free")
            return 2
        write_file(folder / FILE, int(FILE_ROWS * scale))

    wrong = 0
    for number, case in chosen:
        right = check(case, small)
        wrong += not right
        best = {}
        for _ in range(rounds):
            for side in ("plain", "private"):
                command = [
                    sys.executable,
                    __file__,
                    "--scale",
                    str(scale),
                    "--folder",
                    folder,
                    "--side",
                    str(number),
                    side,
                ]
                out = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
                figures = json.loads(out)
                best[side] = [min(pair) for pair in zip(figures, best.get(side, figures), strict=True)]
        (seconds, cpu, peak), (plain, plain_cpu, plain_peak) = best["private"], best["plain"]
        print(
            f"{case.name:<76}{seconds:>8.2f}s{plain:>8.2f}s{seconds / plain:>7.2f}{cpu / plain_cpu:>6.2f}{case.most:>6}"
            f"{peak:>7.0f}{plain_peak:>7.0f}{case.peak or '':>6}" + ("" if right else "   WRONG"),
            flush=True,
        )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
