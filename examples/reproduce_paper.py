"""The experiments of the permute-and-flip paper (McKenna & Sheldon 2020, arXiv 2010.12603), computed exactly.

    python examples/reproduce_paper.py --data dpbench --out paper

writes one figure (PNG) and one table (CSV) per experiment, and `known_values.csv`. The folder after --data holds the
histograms of DPBench (https://github.com/dpcomp-org/dpcomp_core, folder dpcomp_core/datafiles/1D) as NAME.n4096.npy;
without it, synthetic histograms of the same size, total and largest counts stand in. Nothing is sampled: all errors are
exact expectations. What they show is said in docs/paper.md.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np
import polars as pl
from lattice import lattice_scores, optimal_expected_error
from tqdm import tqdm

from dp_polars import analysis, plot

PF, EM, LAPLACE = "permute_and_flip", "exponential", "report_noisy_max_laplace"
NAMES = {PF: "permute-and-flip", EM: "exponential mechanism", LAPLACE: "report-noisy-max, Laplace noise"}
THRESHOLD = 2 * math.log((1 + math.sqrt(5)) / 2)
BINS = 1024
CANDIDATES = sorted({*np.geomspace(2, 10_000, 28).round().astype(int).tolist(), 10, 100, 1000})
LATTICES = [(3, 4), (4, 4), (5, 4), (6, 4), (4, 2), (4, 6), (4, 8)]  # candidates, levels
POINTS = 100  # of every curve of errors on data
EPSILONS = [*np.linspace(0.05, 0.95, 31).tolist(), THRESHOLD, *np.linspace(1, 2, 9).tolist()]
# Data set -> rows, largest count and second largest count of 1024 bins: what the stand-in has in common with it.
DATA_SETS = {
    "HEPTH": (347_414, 1_571, 1_510),
    "ADULTFRANK": (17_665, 16_836, 116),
    "MEDCOST": (9_415, 2_885, 332),
    "SEARCHLOGS": (335_889, 11_160, 7_756),
    "PATENT": (27_948_226, 59_602, 59_324),
}
Result = tuple[pl.DataFrame, Any]


def gap_error(n: int, p: float, mechanism: str) -> float:
    """Return the expected error, in units of 2Δ/ε, of one best candidate and n − 1 whose coin is p (Eqs. 7, 8)."""
    scores = np.full(n, math.log(p))
    scores[0] = 0
    return analysis.scores.expected_error(scores, epsilon=1, monotonic=True, mechanism=mechanism)


def worst_error(n: int, mechanism: str) -> tuple[float, float]:
    """Return the largest error over p, and that p: it has one peak, found by golden section on log p."""
    low, high, golden = -math.log(n) - 5, -1e-3, (math.sqrt(5) - 1) / 2
    while high - low > 1e-8:
        a, b = high - golden * (high - low), low + golden * (high - low)
        if gap_error(n, math.exp(a), mechanism) < gap_error(n, math.exp(b), mechanism):
            low = a
        else:
            high = b
    return gap_error(n, math.exp(low), mechanism), math.exp(low)


def mode_scores(counts: np.ndarray) -> np.ndarray:
    """Return the people per bin: one person moves one of them, so the scores are monotonic."""
    return counts


def median_scores(counts: np.ndarray) -> np.ndarray:
    """Return minus the people to add or remove until a bin is the median."""
    n, upto = counts.sum(), counts.cumsum()
    return -np.maximum(np.maximum(n - 2 * upto, 2 * (upto - counts) - n + 1), 0)


TASKS: dict[str, tuple[Callable[[np.ndarray], np.ndarray], bool]] = {
    "mode": (mode_scores, True),
    "median": (median_scores, False),
}


def load(folder: Path | None) -> dict[str, np.ndarray]:
    """Return the histograms of 1024 bins: from the folder, or synthetic ones."""
    if folder is not None:
        return {name: np.load(folder / f"{name}.n4096.npy").reshape(BINS, -1).sum(axis=1) for name in DATA_SETS}
    synthetic, rng = {}, np.random.default_rng(20201012)
    for name, (total, first, second) in DATA_SETS.items():
        weights, rest = rng.lognormal(sigma=2, size=BINS - 2), total - first - second
        low, high = 0.0, second / weights.min()
        for _ in range(100):
            factor = (low + high) / 2
            low, high = (factor, high) if np.minimum(factor * weights, second).sum() < rest else (low, factor)
        counts = np.minimum(low * weights, second).astype(np.int64)
        counts[np.argsort(counts)[: rest - counts.sum()]] += 1
        synthetic[name] = rng.permutation([first, second, *counts])
    return synthetic


def by_p(tick: Callable[[], object]) -> Result:
    """Errors against p for n = 3, and their ratio for several n."""
    rows = []
    for n in (2, 3, 4, 10):
        # With ε = Δ = 1, as in the paper: the unit 2Δ/ε is 2.
        coins = np.linspace(0.001, 0.999, 250).tolist()
        rows += [(n, p, 2 * gap_error(n, p, EM), 2 * gap_error(n, p, PF)) for p in coins]
        tick()
    frame = pl.DataFrame(rows, ["n", "p", EM, PF], orient="row").with_columns(ratio=pl.col(EM) / pl.col(PF))
    three = frame.filter(n=3).unpivot([PF, EM], index="p", variable_name="mechanism", value_name="error")
    left = plot.scores.lines(
        three.with_columns(pl.col("mechanism").replace_strict(NAMES)),
        "p",
        "error",
        "mechanism",
        x_title="p, the coin of the two worse candidates",
        y_title="expected error for n = 3 (ε = Δ = 1)",
        width=300,
        height=230,
    )
    right = plot.scores.lines(
        frame.with_columns(pl.format("n = {}", "n").alias("n")),
        "p",
        "ratio",
        "n",
        x_title="p, the coin of all worse candidates",
        y_title="error of EM / error of PF",
        y_domain=(1, 2),
        width=300,
        height=230,
    )
    return frame, side_by_side(left, right)


def by_n(tick: Callable[[], object]) -> Result:
    """Worst-case errors against n, and their bounds."""
    rows = []
    for n in CANDIDATES:
        rows.append((n, *(worst_error(n, mechanism)[0] for mechanism in (EM, PF)), math.log(n), math.log(n) / 4))
        tick()
    names = {PF: NAMES[PF], EM: NAMES[EM], "upper": "upper bound ln(n), any scores", "lower": "lower bound ln(n)/4"}
    frame = pl.DataFrame(rows, ["n", EM, PF, "upper", "lower"], orient="row")
    long = frame.unpivot(list(names), index="n", variable_name="line", value_name="error")
    chart = plot.scores.lines(
        long.with_columns(pl.col("line").replace_strict(names)),
        "n",
        "error",
        "line",
        x_title="n candidates",
        y_title="worst-case expected error (2Δ/ε)",
        log_x=True,
    )
    return frame, chart


def optimality(tick: Callable[[], object]) -> Result:
    """Mean errors over the lattice against the least of private mechanisms that look at differences of scores alone."""
    rows = []
    for n, levels in LATTICES:
        scores, orders = lattice_scores(n, levels)
        for epsilon in EPSILONS:
            least = optimal_expected_error(n, levels, epsilon)
            for mechanism in (PF, EM):
                errors = [analysis.scores.expected_error(row, epsilon=epsilon, mechanism=mechanism) for row in scores]
                error = np.average(errors, weights=orders)
                rows.append((n, levels, epsilon, mechanism, error, least, error / least))
            tick()
    columns = ["n", "levels", "epsilon", "mechanism", "mean_error", "least_mean_error", "ratio"]
    frame = pl.DataFrame(rows, columns, orient="row")
    panels = []
    for mechanism in (PF, EM):
        for fixed, varied, form in (("levels", "n", "n = {}"), ("n", "levels", "{} levels")):
            part = frame.filter(pl.col(fixed) == 4, pl.col("mechanism") == mechanism).sort(varied, "epsilon")
            lines = plot.scores.lines(
                part.with_columns(pl.format(form, varied).alias("series")),
                "epsilon",
                "ratio",
                "series",
                x_title="privacy loss ε",
                y_title="mean error / optimum",
                y_domain=(1, 1.012 if mechanism == PF else 1.9),
                width=280,
                height=170,
            )
            threshold = (
                alt.Chart(pl.DataFrame({"epsilon": [THRESHOLD]})).mark_rule(strokeDash=[4, 3]).encode(x="epsilon:Q")
            )
            title = f"{NAMES[mechanism]}, {'4 levels' if fixed == 'levels' else 'n = 4'}"
            panels.append(alt.layer(lines, threshold, title=heading(title)))
    return frame, alt.vconcat(side_by_side(*panels[:2]), side_by_side(*panels[2:]), spacing=20)


def curves(data: dict[str, np.ndarray], tick: Callable[[], object]) -> Result:
    """Error of the mode and the median against ε, up to where the exponential mechanism's is 1."""
    rows, panels = [], []
    for name, counts in data.items():
        for task, (scores_of, monotonic) in TASKS.items():
            scores = scores_of(counts)
            end = analysis.scores.loss_needed(scores, expected_error=1, monotonic=monotonic, mechanism=EM)
            for epsilon in np.linspace(end / POINTS, end, POINTS).tolist():
                for mechanism in (PF, EM, LAPLACE):
                    error = analysis.scores.expected_error(
                        scores, epsilon=epsilon, monotonic=monotonic, mechanism=mechanism
                    )
                    rows.append((name, task, epsilon, mechanism, error))
            tick()
    frame = pl.DataFrame(rows, ["data_set", "task", "epsilon", "mechanism", "error"], orient="row")
    for (name, task), part in frame.group_by("data_set", "task", maintain_order=True):
        chart = plot.scores.lines(
            part.with_columns(pl.col("mechanism").replace_strict(NAMES)),
            "epsilon",
            "error",
            "mechanism",
            x_title="privacy loss ε",
            y_title="error (people)",
            log_y=True,
            y_domain=(1, part["error"].max()),
            width=280,
            height=110,
        )
        panels.append(chart.properties(title=heading(f"{name}, {task}")))
    return frame, alt.concat(*panels, columns=2, spacing=14)


def noisy_max(curves: pl.DataFrame) -> Result:
    """Error of report-noisy-max, and of the exponential mechanism, over that of permute-and-flip (Figure 4)."""
    wide = curves.pivot("mechanism", index=["data_set", "task", "epsilon"], values="error")
    share = pl.col("epsilon") / pl.col("epsilon").max().over("data_set", "task")
    frame = wide.select("data_set", "task", "epsilon", share.alias("share"), pl.col(LAPLACE, EM) / pl.col(PF))
    panels = []
    for mechanism in (LAPLACE, EM):
        top = frame[mechanism].max()
        for task in TASKS:
            chart = plot.scores.lines(
                frame.filter(task=task),
                "share",
                mechanism,
                "data_set",
                x_title="ε, as a share of that at which EM errs by one person",
                y_title="error / error of PF",
                y_domain=(1, math.ceil(4 * top) / 4),
                width=280,
                height=170,
            )
            panels.append(chart.properties(title=heading(f"{NAMES[mechanism]}, {task}")))
    return frame, alt.concat(*panels, columns=2, spacing=14)


def at_50(data: dict[str, np.ndarray], tick: Callable[[], object]) -> Result:
    """Errors at the ε where the exponential mechanism's is 50, in people and in the paper's unit."""
    rows = []
    for task, (scores_of, monotonic) in TASKS.items():
        # The paper scores the mode by 2·count, to use that counts are monotonic: its errors are doubled.
        for unit, factor in (("paper", 2 if task == "mode" else 1), ("people", 1)):
            for name, counts in data.items():
                scores = scores_of(counts)
                epsilon = analysis.scores.loss_needed(
                    scores, expected_error=50 / factor, monotonic=monotonic, mechanism=EM
                )
                errors = [
                    factor
                    * analysis.scores.expected_error(scores, epsilon=epsilon, monotonic=monotonic, mechanism=mechanism)
                    for mechanism in (EM, PF, LAPLACE)
                ]
                rows.append((task, unit, name, epsilon, *errors, errors[0] / errors[1]))
                tick()
    frame = pl.DataFrame(rows, ["task", "unit", "data_set", "epsilon", EM, PF, LAPLACE, "ratio"], orient="row")
    long = frame.filter(unit="paper").unpivot(
        [PF, EM, LAPLACE], index=["task", "data_set"], variable_name="mechanism", value_name="error"
    )
    long = long.with_columns(pl.col("mechanism").replace_strict(NAMES), text=pl.col("error").round(1).cast(pl.String))
    panels = []
    for task in TASKS:
        axis = alt.Axis(title=f"expected error of the {task} (the paper's unit)", titleFontWeight="normal")
        base = alt.Chart(long.filter(task=task), width=250, height=alt.Step(13)).encode(
            y=alt.Y("data_set:N", sort=list(data), title=None, scale=alt.Scale(paddingInner=0.25)),
            yOffset=alt.YOffset("mechanism:N", sort=list(NAMES.values())),
            x=alt.X("error:Q", scale=alt.Scale(domain=[0, 110]), axis=axis),
        )
        fills = alt.Scale(domain=list(NAMES.values()), range=["#0072B2", "#E69F00", "#FFFFFF"])
        legend = alt.Legend(title=None, orient="top", labelLimit=0)
        bars = base.mark_bar(stroke="black", strokeWidth=0.7).encode(
            fill=alt.Fill("mechanism:N", sort=list(NAMES.values()), scale=fills, legend=legend)
        )
        panels.append(bars + base.mark_text(align="left", dx=3, fontSize=10).encode(text="text:N"))
    return frame, alt.hconcat(*panels, spacing=20)


def equal_rho(tick: Callable[[], object]) -> Result:
    """Error of permute-and-flip over that of the exponential mechanism at the same rho."""
    rhos = np.geomspace(1e-3, 300, 60).tolist()
    rates = {(rho, mechanism): rate_at(rho, mechanism) for rho in rhos for mechanism in (EM, PF)}
    rows = []
    for n in (2, 10, 1000):
        worst = {mechanism: worst_error(n, mechanism)[0] for mechanism in (EM, PF)}
        rows += [
            (f"worst case, n = {n}", rho, worst[PF] / rates[rho, PF] / (worst[EM] / rates[rho, EM])) for rho in rhos
        ]
    for rho in rhos:
        ratios = []
        for exponent in np.geomspace(1e-4, 10, 120).tolist():
            scores = [0, -exponent / rates[rho, PF]]
            errors = {
                mechanism: analysis.scores.expected_error(
                    scores, epsilon=rates[rho, mechanism], monotonic=True, mechanism=mechanism
                )
                for mechanism in (EM, PF)
            }
            ratios.append(errors[PF] / errors[EM])
        rows.append(("best case for PF, n = 2", rho, min(ratios)))
    tick()
    frame = pl.DataFrame(rows, ["scores", "rho", "ratio"], orient="row")
    chart = plot.scores.lines(
        frame,
        "rho",
        "ratio",
        "scores",
        x_title="privacy loss ρ (zCDP), the same for both",
        y_title="error of PF / error of EM",
        y_domain=(0, 2),
        log_x=True,
        height=240,
    )
    level = alt.Chart(pl.DataFrame({"ratio": [1.0]})).mark_rule(color="#666666").encode(y="ratio:Q")
    return frame, alt.layer(level, chart)


def rate_at(rho: float, mechanism: str) -> float:
    """Return λ for R = 1: by the law of two candidates one apart, p/2 for PF and p/(1 + p) for EM."""
    worse = float(analysis.scores.selection_probabilities([1, 0], rho=rho, monotonic=True, mechanism=mechanism)[1])
    return -math.log(2 * worse if mechanism == PF else worse / (1 - worse))


def known_values(data: dict[str, np.ndarray], results: dict[str, pl.DataFrame], *, is_real: bool) -> pl.DataFrame:
    """Return known values next to the computed ones."""
    rows: list[tuple[str, float, float, float]] = []
    for mechanism, error, p in ((EM, 0.9261, 0.232), (PF, 0.6515, 0.321)):
        found, at = worst_error(3, mechanism)
        rows += [(f"largest error, n = 3, {NAMES[mechanism]}", error, 2 * found, 5e-5), ("its p", p, at, 5e-4)]
    published = {EM: (0.27846, 1.10100, 2.62865, 4.42050, 6.36018), PF: (0.18394, 0.89323, 2.42793, 4.26541, 6.23992)}
    for mechanism, values in published.items():
        for n, value in zip((2, 10, 100, 1000, 10_000), values, strict=True):
            found = results["worst_case_by_n"].row(by_predicate=pl.col("n") == n, named=True)[mechanism]
            rows.append((f"worst case in 2Δ/ε, n = {n:,}, {NAMES[mechanism]}", value, found, 5e-6))
    ratios = results["optimality"].filter(mechanism=PF)
    above = ratios.filter(pl.col("epsilon") >= THRESHOLD)["ratio"].max()
    below = ratios.filter(n=4, levels=8)["ratio"].max()
    rows.append(("largest ratio of PF to the optimum, ε above 0.9624", 1.0, above, 1e-5))
    rows.append(("largest ratio of PF to the optimum, n = 4, 8 levels", 1.011, below, 5e-4))
    if is_real:
        scores = mode_scores(data["HEPTH"])
        errors = {
            m: analysis.scores.expected_error(scores, epsilon=0.04, monotonic=True, mechanism=m) for m in (EM, PF)
        }
        needed = analysis.scores.loss_needed(scores, expected_error=errors[PF], monotonic=True, mechanism=EM)
        rows.append(("HEPTH mode, ε = 0.04: error of EM / error of PF", 1.84, errors[EM] / errors[PF], 5e-3))
        rows.append(("HEPTH mode, ε = 0.04: budget EM needs for PF's error", 1.27, needed / 0.04, 5e-3))
    columns = ["what", "known", "computed", "rounding"]
    agrees = (pl.col("known") - pl.col("computed")).abs() <= pl.col("rounding")
    return pl.DataFrame(rows, columns, orient="row").with_columns(agrees=agrees)


def heading(text: str) -> Any:
    return alt.TitleParams(text, anchor="start", frame="group", fontSize=13)


def side_by_side(*charts: Any) -> Any:
    return alt.hconcat(*charts, spacing=24).resolve_scale(color="independent", strokeDash="independent")


def run(data: dict[str, np.ndarray], out: Path, bar: Any) -> dict[str, pl.DataFrame]:
    """Write a figure and a table for every experiment, and return the tables."""
    tables: dict[str, pl.DataFrame] = {}
    experiments: dict[str, Callable[[], Result]] = {
        "worst_case_by_p": lambda: by_p(bar.update),
        "worst_case_by_n": lambda: by_n(bar.update),
        "optimality": lambda: optimality(bar.update),
        "mode_and_median": lambda: curves(data, bar.update),
        "report_noisy_max": lambda: noisy_max(tables["mode_and_median"]),
        "mode_and_median_at_50": lambda: at_50(data, bar.update),
        "equal_rho": lambda: equal_rho(bar.update),
    }
    for name, experiment in experiments.items():
        bar.set_description(name)
        tables[name], chart = experiment()
        tables[name].write_csv(out / f"{name}.csv")
        chart.save(out / f"{name}.png", scale_factor=1.5)
    return tables


# As many as there are calls of `tick`.
STEPS = 4 + len(CANDIDATES) + len(LATTICES) * len(EPSILONS) + 10 + 20 + 1


def main() -> None:
    parser = argparse.ArgumentParser(description="Reproduce the experiments of the permute-and-flip paper.")
    parser.add_argument("--data", type=Path, help="folder of the DPBench histograms; without it synthetic ones")
    parser.add_argument("--out", type=Path, default=Path("paper"), help="folder for figures and tables")
    arguments = parser.parse_args()
    data = load(arguments.data)
    if arguments.data is None:
        print("No --data: synthetic histograms stand in for DPBench. What depends on them is not the paper's.")
    arguments.out.mkdir(parents=True, exist_ok=True)
    with tqdm(total=STEPS, unit="step") as bar:
        results = run(data, arguments.out, bar)
    checked = known_values(data, results, is_real=arguments.data is not None)
    checked.write_csv(arguments.out / "known_values.csv")
    with pl.Config(tbl_rows=-1, fmt_str_lengths=80, tbl_hide_dataframe_shape=True, tbl_width_chars=120):
        print(checked)
        print(results["mode_and_median_at_50"].select("task", "unit", "data_set", EM, PF, LAPLACE, "ratio"))
    print(f"Figures and tables are in {arguments.out}.")


if __name__ == "__main__":
    main()
