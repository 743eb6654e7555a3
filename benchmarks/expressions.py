"""Expressions and mechanisms beside plain Polars, OpenDP and diffprivlib: one table of times, ratios and peak memory.

    python benchmarks/expressions.py [--rows 10_000_000] [--repeat 7] [--only WORD] [--no-memory]

The two sides of a work take turns in one process, so that a noisy moment hits both; times are medians. The peak of
memory is what one run adds to a process that holds the frame and nothing else, as a multiple of the column that is
asked about. Exits non-zero only where an answer is wrong: at a huge epsilon every private answer must be the true one.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
from turns import median_times

import dp_polars as dpp
from dp_polars._bins.candidates import Grid

MEBIBYTE = 2**20


@dataclass(frozen=True)
class Grouped:
    """A query per group of a frame of `g` and `x`."""

    name: str
    target: float | None
    rows: float  # of those asked for
    groups: int
    column: Callable[[np.random.Generator, int], pl.Series]
    private: Callable[[float], pl.Expr]
    plain: pl.Expr
    truth: pl.Expr  # what the private answer `x` must be, beside it as `true`
    is_true: pl.Expr

    def frame(self, rows: int, rng: np.random.Generator) -> pl.DataFrame:
        n = int(rows * self.rows)
        return pl.DataFrame({"g": rng.integers(0, self.groups, n), "x": self.column(rng, n)})

    def run(self, frame: pl.DataFrame, *, private: bool) -> pl.DataFrame:
        return frame.group_by("g").agg(self.private(0.5) if private else self.plain)

    def is_right(self, frame: pl.DataFrame) -> bool:
        answers = frame.group_by("g").agg(self.private(10.0**6), self.truth.alias("true"))
        return answers.select(self.is_true.all()).item()


def names(count: int) -> list[str]:
    return [f"category {i:05}" for i in range(count)]


def zipf(rng: np.random.Generator, rows: int, count: int, exponent: float = 1.3) -> np.ndarray:
    """Codes whose frequencies fall as those of real categories do."""
    weights = np.cumsum(np.arange(1, count + 1) ** -exponent)
    return np.searchsorted(weights, rng.random(rows) * weights[-1]).astype(np.int64)


def categories(rng: np.random.Generator, rows: int, *, count: int, nulls: float, kind: str, skewed: bool) -> pl.Series:
    # Where they are uniform, one of them is a fifth more frequent, or all ties in groups of a few rows.
    even = np.minimum(rng.integers(0, count + count // 5, rows), count - 1)
    codes = zipf(rng, rows, count) if skewed else even
    if kind == "Int64":
        return pl.Series(codes)
    column = pl.Series(names(count)).gather(codes)
    if nulls:
        column = column.zip_with(pl.Series(rng.random(rows) >= nulls), pl.Series([None], dtype=pl.String))
    types = {"Enum": pl.Enum(names(count)), "Categorical": pl.Categorical(), "String": pl.String()}
    return column.cast(types[kind])


def mode(
    groups: int, count: int, target: float, *, nulls: float = 0, kind: str = "Enum", skewed: bool = False
) -> Grouped:
    title = f"mode, {kind}, {'Zipf, ' if skewed else ''}{groups:,} groups × {count:,}"
    listed = {"Enum": None, "Int64": range(count)}.get(kind, names(count))
    return Grouped(
        title + (f", {nulls:.0%} nulls" if nulls else ""),
        target,
        1,
        groups,
        partial(categories, count=count, nulls=nulls, kind=kind, skewed=skewed),
        lambda epsilon: pl.col("x").dp.mode(listed, epsilon=epsilon),
        pl.col("x").mode().first(),
        pl.col("x").drop_nulls().mode(),
        pl.col("x").cast(pl.String).is_in(pl.col("true").cast(pl.List(pl.String))),
    )


def whole_numbers(rng: np.random.Generator, rows: int) -> pl.Series:
    return pl.Series(np.clip(rng.normal(50, 15, rows), 0, 100).astype(np.int64))


def uniform(rng: np.random.Generator, rows: int) -> pl.Series:
    return pl.Series(rng.integers(0, 101, rows))


def prices(rng: np.random.Generator, rows: int) -> pl.Series:
    return pl.Series(rng.gamma(2.0, 100.0, rows))


def skewed_prices(rng: np.random.Generator, rows: int) -> pl.Series:
    return pl.Series(rng.lognormal(3.0, 1.5, rows))


def median(
    kind: str,
    rows: float,
    groups: int,
    target: float | None,
    candidates: Grid | range,
    step: float,
    column: Callable[[np.random.Generator, int], pl.Series] | None = None,
) -> Grouped:
    last = 100 if isinstance(candidates, range) else step * (candidates.size - 1)
    return Grouped(
        f"median, {kind}, {groups:,} groups",
        target,
        rows,
        groups,
        column or (whole_numbers if isinstance(candidates, range) else prices),
        lambda epsilon: pl.col("x").dp.median(candidates, epsilon=epsilon),
        pl.col("x").median(),
        pl.col("x").quantile(0.5, "lower"),
        (pl.col("x") - pl.col("true").clip(0, last)).abs() <= step / 2 * (1 + 1e-6),
    )


MANY = dpp.grid(0, 1_000, step=0.000_001)
GROUPED = [
    mode(1_000, 100, 0.85),
    mode(1_000, 100, 0.85, skewed=True),
    mode(100_000, 100, 1.0),
    mode(10, 10_000, 0.8),
    mode(10, 10_000, 0.8, skewed=True),
    mode(1_000, 100, 1.1, nulls=0.05),
    *(
        mode(1_000, 100, target, kind=kind, skewed=skewed)
        for kind, target in [("String", 0.8), ("Categorical", 1.0), ("Int64", 0.9)]
        for skewed in (False, True)
    ),
    MEDIAN := median("integers, all rows", 1, 1_000, 1.2, range(101), 1),
    median("integers, uniform", 1, 1_000, 1.2, range(101), 1, uniform),
    median("integers, a tenth", 0.1, 100, 2, range(101), 1),
    median("integers, a tenth", 0.1, 10_000, 1.6, range(101), 1),
    NARROW := median("floats, 10³ points", 1, 1_000, None, dpp.grid(0, 10_000, step=10), 10),
    WIDE := median("floats, 10⁹ points", 1, 1_000, 1.7, MANY, 0.000_001),
    median("floats, log-normal, 10⁹ points", 1, 1_000, 1.4, MANY, 0.000_001, skewed_prices),
    median("floats, 10⁹ points", 1, 100_000, 3, MANY, 0.000_001),
]


@dataclass(frozen=True)
class Work:
    """Two ways to do something."""

    name: str
    target: float | None
    ours: Callable[[], object]
    other: Callable[[], object]
    is_right: Callable[[], bool] = lambda: True


def is_best(scores: np.ndarray) -> bool:
    """Whether a score of the best is chosen where the loss is huge; of floats, one as good within 10⁻⁴."""
    return scores[dpp.mechanisms.permute_and_flip(scores, epsilon=10**6, sensitivity=1)] >= scores.max() - 1e-4


def compared(rows: int, rng: np.random.Generator) -> Iterator[Callable[[], Work]]:
    """Work that is not a query beside the same query without privacy."""
    k = 10**6
    ahead = np.zeros(k, np.int64)
    ahead[k // 3] = k
    for name, target, scores in [
        ("scores, spread", 0.6, rng.permutation(k)),
        ("scores, one far ahead", 0.6, ahead),
        ("scores, all equal", 2, ahead * 0),
        ("integers, uniform 0 to 9", 0.3, rng.integers(0, 10, k)),
        ("integers, uniform 0 to 99", 0.5, rng.integers(0, 100, k)),
        ("integers, uniform 0 to 999", 0.5, rng.integers(0, 1000, k)),
        ("integers, uniform 0 to 10⁶", 0.5, rng.integers(0, k, k)),
        ("floats, uniform 0..10", 1.3, rng.random(k) * 10),
        ("floats, uniform 0..100", 1.3, rng.random(k) * 100),
    ]:
        yield partial(
            Work,
            f"permute_and_flip, 10⁶ {name}",
            target,
            partial(dpp.mechanisms.permute_and_flip, scores, epsilon=1, sensitivity=1),
            lambda scores=scores: (scores + rng.standard_exponential(k)).argmax(),
            partial(is_best, scores),
        )
    yield partial(nine_quantiles, rows, rng)
    yield partial(top_ten, rows, rng)
    yield partial(growth, rows, rng)
    yield partial(points, rows, rng)
    yield fresh_process
    yield partial(opendp, rng)
    yield partial(diffprivlib, rng)


def nine_quantiles(rows: int, rng: np.random.Generator) -> Work:
    frame = MEDIAN.frame(rows, rng)
    tenths = [i / 10 for i in range(1, 10)]

    def asked(alpha: float | list[float], epsilon: float) -> pl.DataFrame:
        return frame.group_by("g").agg(pl.col("x").dp.quantile(alpha, range(101), epsilon=epsilon))

    def is_right() -> bool:
        middle = asked(tenths, 10**6).select("g", pl.col("x").list.get(4)).sort("g")
        return middle.equals(frame.group_by("g").agg(pl.col("x").quantile(0.5, "lower").cast(pl.Int64)).sort("g"))

    return Work(
        "ours, nine quantiles beside a median", 3, partial(asked, tenths, 0.5), partial(asked, 0.5, 0.5), is_right
    )


def top_ten(rows: int, rng: np.random.Generator) -> Work:
    frame = GROUPED[0].frame(rows, rng)

    def asked(k: int | None) -> pl.DataFrame:
        x = pl.col("x").dp
        return frame.group_by("g").agg(x.mode(epsilon=0.5) if k is None else x.top_k(k, epsilon=0.5))

    return Work("ours, a top 10 of 100 beside a mode", 1.5, partial(asked, 10), partial(asked, None))


def growth(rows: int, rng: np.random.Generator) -> Work:
    large, small = MEDIAN.frame(rows, rng), MEDIAN.frame(rows // 10, rng)
    run = partial(MEDIAN.run, private=True)
    return Work("ours, all rows beside a tenth of them", 11, partial(run, large), partial(run, small))


def points(rows: int, rng: np.random.Generator) -> Work:
    frame = NARROW.frame(rows, rng)
    ours = partial(WIDE.run, frame, private=True)
    return Work("ours, 10⁹ grid points beside 10³", 1.1, ours, partial(NARROW.run, frame, private=True))


def fresh_process() -> Work:
    """All of a process: the imports and one median of 1,000 rows."""
    rows = "import polars as pl; frame = pl.DataFrame({'x': range(1000)})"
    ours = f"{rows}; import dp_polars; frame.select(pl.col('x').dp.median(range(1000), epsilon=1))"
    plain = f"{rows}; frame.select(pl.col('x').median())"

    def run(program: str) -> None:
        subprocess.run([sys.executable, "-c", program], check=True)

    return Work("a fresh process, a median of 1,000 rows", 1.4, partial(run, ours), partial(run, plain))


def opendp(rng: np.random.Generator) -> Work:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False)), dp.linf_distance(T=float)
    theirs = dp.m.make_noisy_max(*space, dp.max_divergence(), scale=2.0)
    scores = rng.permutation(10**5).astype(float)
    ours = partial(dpp.mechanisms.permute_and_flip, scores, epsilon=1, sensitivity=1)
    return Work("OpenDP make_noisy_max, 10⁵ scores", None, ours, partial(theirs, scores.tolist()))


def diffprivlib(rng: np.random.Generator) -> Work:
    from diffprivlib.mechanisms import PermuteAndFlip

    scores = rng.permutation(10**4).astype(float)
    ours = partial(dpp.mechanisms.permute_and_flip, scores, epsilon=1, sensitivity=1)
    utility = scores.tolist()
    return Work(
        "diffprivlib PermuteAndFlip, 10⁴ scores",
        None,
        ours,
        lambda: PermuteAndFlip(epsilon=1, sensitivity=1, utility=utility).randomise(),
    )


def peak(case: int, file: Path, *, private: bool) -> float:
    """Bytes that a query adds to the peak of a process that holds the frame."""
    command = [sys.executable, __file__, "--peak-of", str(case), str(file), "private" if private else "plain"]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def report_peak(case: str, file: str, side: str) -> None:
    """Print the bytes for `peak`, in the process of its own."""
    query = GROUPED[int(case)]
    query.run(query.frame(1_000, np.random.default_rng(0)), private=side == "private")  # what is loaded once
    frame = pl.read_ipc(file)
    frame.select(pl.all().max())  # all of it is in memory now, though it may be mapped
    before = resident("VmRSS")
    query.run(frame, private=side == "private")
    print(resident("VmHWM") - before)


def resident(field: str) -> int:
    """Bytes of memory that this process holds, or held at most (a child's `ru_maxrss` begins with its parent's)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) * 1024


def show(name: str, times: list[float], target: float | None, more: str = "", *, right: bool = True) -> None:
    ratio, goal = times[0] / times[1], "-" if target is None else f"{target:g}"
    cells = f"{times[0] * 1e3:>9.1f}ms{times[1] * 1e3:>9.1f}ms{ratio:>8.2f}{goal:>8}"
    print(f"{name:<48}{cells}{more}{'' if right else '   WRONG ANSWER'}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--only", default="", help="only work whose name has this in it")
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument("--peak-of", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.peak_of:
        report_peak(*arguments.peak_of)
        return 0

    warnings.simplefilter("ignore", dpp.LargeLossWarning)  # answers are checked at such losses
    rng, wrong = np.random.default_rng(0), 0
    print(f"polars {pl.__version__}, numpy {np.__version__}, {pl.thread_pool_size()} threads, {arguments.rows:,} rows")
    print(
        f"{'work':<48}{'ours':>11}{'other':>11}{'ratio':>8}{'target':>8}   peak beyond the frame, of the column's MiB"
    )
    for case, query in enumerate(GROUPED):
        if arguments.only not in query.name:
            continue
        frame = query.frame(arguments.rows, rng)
        right, more = query.is_right(frame), ""
        sides = [partial(query.run, frame, private=private) for private in (True, False)]
        times = median_times(sides, arguments.repeat)
        if not arguments.no_memory:
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder, "frame.arrow")
                frame.write_ipc(file)
                size = frame["x"].estimated_size()
                peaks = [peak(case, file, private=private) / size for private in (True, False)]
            more = f"   {peaks[0]:.1f}×, plain {peaks[1]:.1f}× of {size / MEBIBYTE:.0f}"
        show(query.name, times, query.target, more, right=right)
        wrong += not right
    for make in compared(arguments.rows, rng):
        try:
            work = make()
        except ImportError as error:
            if not arguments.only:
                print(f"left out, it can't be imported here ({error})")
            continue
        if arguments.only in work.name:
            right = work.is_right()
            show(work.name, median_times([work.ours, work.other], arguments.repeat), work.target, right=right)
            wrong += not right
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
