"""Figures of the docs and the README that come from no other script.

python docs/make_figures.py [PAGE]

Those of a page are made by the page: its blocks are run, and a figure after a block is the `chart` that it leaves. With
the name of a page, such as gallery.md, only these are made.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path

import altair as alt
import numpy as np
import polars as pl

import dp_polars as dpp
from dp_polars import analysis, plot

HERE = Path(__file__).parent / "figures"
STATION = re.compile(r"^\| (\d+) \| (\w+) \| \[`([\w.]+)`\]\(\.\./(dp_polars/[\w/]+\.py)\) \|", re.MULTILINE)
# A block of a page, and the figure that follows it.
BLOCK = re.compile(r"^```python\n([\s\S]*?)^```$(?:\n+!\[[^\]]*\]\((figures/[\w/]+\.svg)\)$)?", re.MULTILINE)
PAGES = ["index.md", "gallery.md"]
BLUE, ORANGE = "#0072B2", "#D55E00"


def race() -> alt.Chart:
    """Where the arrival times of five candidates lie, and one race."""
    rng = np.random.default_rng(3)
    gaps, rate = [0, 1, 3, 4, 6], 0.5
    names = [f"gap {gap}" for gap in gaps]
    times = [v * np.exp(rate * gap) for v, gap in zip(rng.random(5), gaps, strict=True)]
    first = int(np.argmin(times))
    frame = pl.DataFrame(
        {
            "candidate": names,
            "until": [float(np.exp(rate * gap)) for gap in gaps],
            "time": times,
            "outcome": ["arrives first" if i == first else "too late" for i in range(5)],
        }
    )
    base = alt.Chart(frame).encode(y=alt.Y("candidate:N", sort=names, title=None))
    ranges = base.mark_bar(color="#dddddd", height=14).encode(
        x=alt.X("until:Q", title="arrival time T = V·exp(λ·gap); grey: where it may lie"), x2=alt.datum(0)
    )
    points = base.mark_point(filled=True, size=120, opacity=1).encode(
        x="time:Q",
        color=alt.Color(
            "outcome:N", scale=alt.Scale(domain=["arrives first", "too late"], range=[ORANGE, BLUE]), title=None
        ),
        shape=alt.Shape("outcome:N", scale=alt.Scale(domain=["arrives first", "too late"]), title=None),
    )
    return (ranges + points).properties(width=480, height=160).configure_legend(orient="top")


def percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.005 else "< 1%"


def epsilon() -> alt.HConcatChart:
    """How likely each answer is with one person's row and without it, at a small, a middling and a large epsilon."""
    names, with_them, without = ["flu", "asthma", "none"], [6, 5, 3], [5, 5, 3]
    series = ["with Anna's row", "without Anna's row"]
    panels = []
    for loss in (0.2, 1, 5):
        bars = pl.concat(
            pl.DataFrame(
                {
                    "diagnosis": names,
                    "data": [data] * 3,
                    "probability": analysis.scores.selection_probabilities(counts, epsilon=loss, monotonic=True),
                }
            )
            for data, counts in zip(series, (with_them, without), strict=True)
        ).with_columns(text=pl.col("probability").map_elements(percent, pl.String))
        axis = alt.Axis(title=None, labelFontSize=12, ticks=False, domain=False)
        base = alt.Chart(bars).encode(
            y=alt.Y("diagnosis:N", sort=names, axis=None if panels else axis, scale=alt.Scale(paddingInner=0.35)),
            yOffset=alt.YOffset("data:N", sort=series),
            x=alt.X("probability:Q", scale=alt.Scale(domain=[0, 1]), axis=None),
        )
        legend = alt.Legend(title=None, orient="top", labelFontSize=12, labelLimit=0)
        drawn = base.mark_bar(stroke="black", strokeWidth=0.7).encode(
            fill=alt.Fill(
                "data:N", sort=series, scale=alt.Scale(domain=series, range=["#0072B2", "#E69F00"]), legend=legend
            )
        )
        said = base.mark_text(align="left", dx=4, fontSize=11).encode(text="text:N")
        title = alt.TitleParams(
            f"ε = {loss}",
            subtitle=f"at most {np.exp(loss):.3g} times as likely",
            anchor="start",
            fontSize=14,
            subtitleFontSize=12,
        )
        panels.append(
            alt.LayerChart(
                layer=[drawn, said], width=190, height=130, title=title, view=alt.ViewBackground(stroke=None)
            )
        )
    return alt.HConcatChart(hconcat=panels, spacing=28)


def units() -> alt.HConcatChart:
    """Errors of a count and of a mode against how many outputs share one guarantee, in both units, for three bounds."""
    numbers = [1, 2, 3, 5, 8, 12, 20, 30, 50]
    cases = {"1 group, 1 row": (1, 1), "4 groups, 1 row": (4, 1), "10 groups, 5 rows": (10, 5)}
    guarantee, found = dpp.Budget(epsilon=1, delta=1e-6), []
    for case, (groups, rows) in cases.items():
        private = dpp.protect("person", max_groups=groups, max_rows_per_group=rows).group_by({"group": range(20)})
        for number in numbers:
            for unit, loss in (("epsilon", guarantee.total), ("rho", guarantee.remaining.rho)):
                for output in (dpp.len(), dpp.mode("x", range(100))):
                    # The others take what is left of the guarantee.
                    query = private.agg(output.alias("x"), *(dpp.len().alias(f"{i}") for i in range(1, number)))
                    error = query.scaled_to(**{unit: loss}).explain()["error_95"][0]
                    what = "count of rows" if output.query.is_count else "mode of 100 categories"
                    found.append((case, number, unit, what, error))
    frame = pl.DataFrame(found, ["case", "outputs", "unit", "output", "error"], orient="row")
    names = ["count of rows", "mode of 100 categories"]
    legend = {"title": None, "orient": "top", "labelFontSize": 12, "labelLimit": 0}
    panels = []
    for case in cases:
        base = alt.Chart(frame.filter(case=case)).encode(
            x=alt.X(
                "outputs:Q",
                scale=alt.Scale(type="log", domain=[1, 50], nice=False),
                axis=alt.Axis(title="outputs that share the guarantee", values=[1, 2, 5, 10, 20, 50], grid=False),
            ),
            y=alt.Y(
                "error:Q",
                scale=alt.Scale(type="log", domain=[2, 20_000]),
                axis=alt.Axis(
                    title=None if panels else "95 % error",
                    values=[3, 10, 30, 100, 300, 1000, 3000, 10_000],
                    format=",d",
                    gridColor="#eeeeee",
                ),
            ),
            color=alt.Color(
                "unit:N", scale=alt.Scale(domain=["epsilon", "rho"], range=[BLUE, ORANGE]), legend=alt.Legend(**legend)
            ),
        )
        shape = alt.Shape("unit:N", scale=alt.Scale(domain=["epsilon", "rho"]), legend=alt.Legend(**legend))
        points = base.mark_point(filled=True, size=35, opacity=1).encode(shape=shape, detail="output:N")
        strokes = alt.Legend(**legend, symbolType="stroke", symbolSize=500, symbolStrokeColor="black")
        dash = alt.StrokeDash("output:N", sort=names, legend=strokes)
        title = alt.TitleParams(f"A person counts in {case}", anchor="start", fontSize=13)
        layers = [base.mark_line(strokeWidth=1.8).encode(strokeDash=dash), points]
        panels.append(alt.LayerChart(layer=layers, width=205, height=230, title=title))
    return alt.HConcatChart(hconcat=panels, spacing=22)


def simulations() -> tuple[alt.VConcatChart, alt.VConcatChart]:
    """The simulations of the page "Choose ε and check errors": at one loss, and at several."""
    rng = np.random.default_rng(8)
    wards = ["north"] * 1200 + ["south"] * 250 + ["west"] * 50
    last_year = pl.DataFrame({"ward": wards, "age": rng.normal(55, 18, 1500).round().clip(0, 100).astype(int)})
    median = dpp.median("age", range(121), epsilon=0.1)
    at_one = analysis.simulate(median, last_year, by="ward")
    at_several = analysis.simulate(median, last_year, by="ward", losses=[0.01, 0.03, 0.1, 0.3, 1])
    return plot.simulation(at_one), plot.simulation(at_several)


def budget() -> alt.LayerChart:
    """A budget after the releases of a survey."""
    account = dpp.Budget(epsilon=1, name="survey 2026")
    survey = pl.DataFrame(
        {"person": range(500), "answer": ["yes", "no"] * 250, "age": [20 + i % 60 for i in range(500)]}
    )
    protected = survey.dp.protect("person", budget=account, max_rows=1)
    protected.agg(answer=pl.col("answer").dp.mode(["yes", "no"], epsilon=0.1)).release()
    protected.agg(
        age=pl.col("age").dp.median(range(121), epsilon=0.25),
        again=pl.col("answer").dp.mode(["yes", "no"], epsilon=0.05),
    ).release()
    protected.agg(oldest=pl.col("age").dp.quantile(0.9, range(121), epsilon=0.2)).release()
    return plot.budget(account)


def packages() -> alt.LayerChart:
    """The way of one query through the packages, by the stations that the page `how.md` lists."""
    page = (HERE.parent / "how.md").read_text(encoding="utf-8")
    stations = pl.DataFrame(
        [(int(number), moment, name, Path(path).parts[1]) for number, moment, name, path in STATION.findall(page)],
        ["number", "moment", "name", "package"],
        orient="row",
    )
    floors = ["_frames", "_engines", "_release", "_expressions", "_statistics", "_mechanisms", "_steps", "_accounting"]
    moments = stations["moment"].unique(maintain_order=True).to_list()
    across = alt.X("number:Q", scale=alt.Scale(domain=[0.4, 10.9]), axis=None)
    base = alt.Chart(stations).encode(
        x=across,
        y=alt.Y("package:N", sort=floors, scale=alt.Scale(domain=floors), axis=alt.Axis(title=None, grid=True)),
    )
    way = base.mark_line(color="#999999", strokeWidth=1.5).encode(order="number:Q")
    colors = alt.Scale(domain=moments, range=[BLUE, "#009E73", "#666666", ORANGE, "#CC79A7"])
    points = base.mark_point(filled=True, size=420, opacity=1).encode(
        color=alt.Color("moment:N", scale=colors, sort=moments, legend=alt.Legend(title=None, orient="top"))
    )
    numbers = base.mark_text(color="white", fontWeight="bold", fontSize=12).encode(text="number:Q")
    names = [
        base.mark_text(dy=side, fontSize=10, font="monospace", **halo)
        .encode(text="name:N")
        .transform_filter(f"datum.number % 2 == {odd}")
        for odd, side in ((1, -20), (0, 21))
        for halo in ({"stroke": "white", "strokeWidth": 4}, {})
    ]
    charge = stations.filter(name="Budget._charge").select(pl.col("number") + 0.53)
    assert charge.height == 1, "the line is after the charge"
    line = alt.Chart(charge).mark_rule(strokeDash=[4, 3]).encode(x=across)
    note = (
        alt.Chart(charge)
        .mark_text(align="left", dx=5, fontSize=11)
        .encode(x=across, y=alt.value(9), text=alt.value("from here on private rows are read"))
    )
    layers = [way, *names, line, note, points, numbers]
    return alt.LayerChart(layer=layers, width=860, height=380)


def of_page(page: str) -> None:
    """Run the blocks of a page in an empty folder, and save the charts that it shows."""
    path, namespace, here = HERE.parent / page, {"__name__": "__main__"}, Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for code, figure in BLOCK.findall(path.read_text(encoding="utf-8")):
                exec(compile(code, page, "exec"), namespace)
                if figure:
                    chart = namespace["chart"]
                    chart.save(path.parent / figure)
        finally:
            os.chdir(here)


def main() -> None:
    (HERE / "gallery").mkdir(parents=True, exist_ok=True)
    for page in sys.argv[1:] or PAGES:
        of_page(page)
    if sys.argv[1:]:
        return
    at_one, at_several = simulations()
    at_one.save(HERE / "simulation.png", scale_factor=1.5)
    at_several.save(HERE / "simulation_by_loss.png", scale_factor=1.5)
    budget().save(HERE / "budget.png", scale_factor=1.5)
    epsilon().save(HERE / "epsilon.png", scale_factor=1.5)
    units().save(HERE / "units.png", scale_factor=1.5)
    race().save(HERE / "race.png", scale_factor=1.5)
    packages().save(HERE / "packages.png", scale_factor=1.5)


if __name__ == "__main__":
    main()
