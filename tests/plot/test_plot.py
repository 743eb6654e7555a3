"""The figures: what they hold, that every reader can tell their series apart, and that they render to PNG."""

import datetime as dt
import re
import struct
import subprocess
import sys
from decimal import Decimal
from functools import partial

import numpy as np
import polars as pl
import pytest

from tests.helpers.needs import need
from tests.helpers.refusals import refused

need("altair")
need("vl_convert")

import itertools

import dp_polars as dpp
from dp_polars import analysis, plot
from dp_polars._accounting.budget import Budget
from dp_polars._frames.protect import protect
from dp_polars.plot import _charts, _figures

THREE = ["permute_and_flip", "exponential", "report_noisy_max_laplace"]


def png_size(chart, path):
    """Render without a browser; width and height from the file itself."""
    chart.save(path, scale_factor=1)
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert data[-8:-4] == b"IEND"
    width, height = struct.unpack(">II", data[16:24])
    assert 200 < width < 1200
    assert 40 < height < 1600
    return width, height


def texts(chart):
    """All titles, labels and names in a chart."""
    found, stack = [], [chart.to_dict()]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            stack += [value for key, value in node.items() if key != "datasets"]
        elif isinstance(node, list):
            stack += node
        elif isinstance(node, str):
            found.append(node)
    return " | ".join(found)


def lacks(chart, words):
    """Which of these words, one a line or apart by |, no text of a chart has."""
    return [word for word in re.split(r"\s*[|\n]\s*", words.strip()) if word not in texts(chart)]


def rows(chart):
    """All data of a chart."""
    return [row for data in chart.to_dict()["datasets"].values() for row in data]


def public(groups, rows_each, *, seed=3):
    rng = np.random.default_rng(seed)
    n = groups * rows_each
    return pl.DataFrame(
        {
            "region": np.repeat(np.arange(groups), rows_each),
            "income": rng.gamma(3, 12, n).round(),
            "job": rng.choice(["nurse", "driver", "clerk"], n, p=[0.4, 0.35, 0.25]),
            "day": rng.integers(0, 9, n),
        }
    ).with_columns(day=dt.date(2024, 1, 1) + pl.duration(days="day"))


def test_error_curve(tmp_path):
    scores, losses = [12, 9, 9, 0], np.geomspace(0.01, 3, 12)
    chart = plot.scores.error_curve(scores, losses, mechanisms=THREE, monotonic=True)
    png_size(chart, tmp_path / "curve.png")
    points = rows(chart)
    assert len(points) == 3 * len(losses)
    for point in points:
        mechanism = {"p": THREE[0], "e": THREE[1], "r": THREE[2]}[point["mechanism"][0]]
        exact = analysis.scores.expected_error(scores, epsilon=point["loss"], monotonic=True, mechanism=mechanism)
        assert point["error"] == pytest.approx(exact)
    assert lacks(chart, "privacy loss ε of one person | expected error (units of the scores) | permute-and-flip") == []
    rho = plot.scores.error_curve(scores, [0.1, 1], unit="rho", sensitivity=2)
    assert "privacy loss ρ of one person" in texts(rho)
    assert rows(rho)[0]["error"] == pytest.approx(
        analysis.scores.expected_error(scores, rho=0.1, sensitivity=2, mechanism="permute_and_flip")
    )


def test_probabilities(tmp_path):
    scores, names = [80, 120, 117, 3], ["none", "flu", "asthma", "other"]
    chart = plot.scores.probabilities(scores, candidates=names, epsilon=0.1, monotonic=True, mechanisms=THREE)
    png_size(chart, tmp_path / "bars.png")
    exact = {
        mechanism: analysis.scores.selection_probabilities(scores, epsilon=0.1, monotonic=True, mechanism=mechanism)
        for mechanism in THREE
    }
    bars = rows(chart)
    labels = [bar["candidate"] for bar in bars[: len(bars) // 3]]
    assert labels == ["flu (score 120)", "asthma (score 117)", "none (score 80)", "1 others together"]
    found = np.array([bar["probability"] for bar in bars]).reshape(3, 4)
    assert found == pytest.approx(np.array([exact[mechanism][[1, 2, 0, 3]] for mechanism in THREE]))
    assert bars[0]["text"] == "62.5%"
    assert "probability of being chosen, ε = 0.1" in texts(chart)


def query(groups):
    return (
        protect(None)
        .group_by({"region": range(groups)})
        .agg(
            pl.col("income").dp.median(range(201), epsilon=0.3),
            pl.col("job").dp.mode(["nurse", "driver", "clerk"], rho=0.1),
        )
    )


def test_simulation_over_losses(tmp_path):
    frame = analysis.simulate(query(12), public(11, 80), losses=[0.03, 0.1, 1])
    chart = plot.simulation(frame)
    png_size(chart, tmp_path / "losses.png")
    said = texts(chart)
    words = """
        income by region: median on 201 grid points | job by region: mode of 3 candidates
        exponential mechanism; line and band | loss ε of one person to this output | loss ρ of one person to this output
        expected error (people) | expected error (in the column's unit) | probability of the true answer
    """
    assert lacks(chart, words) == []
    assert "median and middle 80% of 11 groups" in said  # of the twelfth nothing is known
    part = frame.filter(pl.col("output") == "job", pl.col("loss") == 0.1).drop_nulls("true_answer")
    middles = [row["middle"] for row in rows(chart) if row["loss"] == 0.1]
    assert any(m == pytest.approx(part["probability_true"].median()) for m in middles)
    alone = plot.simulation(analysis.simulate(dpp.median("income", range(201), rho=0.1), public(1, 50), losses=[1, 2]))
    assert "groups" not in texts(alone)
    assert "expected error (in the column's unit)" in texts(alone)


def charged(charges, **total):
    ledger = Budget(**total)
    for what, epsilon in charges:
        claim = dpp.mode("x", [1, 2], epsilon=epsilon).query.claim
        ledger._charge([(what, claim)], privacy_unit=None, neighboring_relation="add_or_remove_one")
    return ledger


def test_budget(tmp_path):
    chart = plot.budget(charged([("top: mode of 12", 0.5), ('age: "median"', 0.25)], epsilon=2))
    png_size(chart, tmp_path / "budget.png")
    steps = {row["what"]: (row["before"], row["after"]) for row in rows(chart) if "what" in row}
    assert steps == {"top: mode of 12": (0, 0.5), 'age: "median"': (0.5, 0.75), "left": (0.75, 2)}
    assert "ε: 0.75 of 2 spent, 1.25 left" in texts(chart)
    assert "1. top: mode of 12" in texts(chart)
    png_size(plot.budget(Budget(rho=1)), tmp_path / "empty.png")


def test_lines(tmp_path):
    points = pl.DataFrame({"x": [0, 1, 10, 1000] * 2, "y": [0.5, 1, 2, 0.0] * 2, "plan": ["b"] * 4 + ["a"] * 4})
    chart = plot.scores.lines(points, "x", "y", "plan", x_title="rows", y_title="time (s)", log_x=True, log_y=True)
    png_size(chart, tmp_path / "lines.png")
    assert {(row["x"], row["y"]) for row in rows(chart)} == {(1, 1), (10, 2)}
    encoding = chart.to_dict()["layer"][0]["encoding"]
    assert encoding["color"]["scale"]["domain"] == encoding["strokeDash"]["scale"]["domain"] == ["b", "a"]
    with pytest.raises(ValueError, match="a point that can be drawn"):
        plot.scores.lines(points.head(1), "x", "y", "plan", x_title="rows", y_title="s", log_x=True)
    seven = pl.DataFrame({"x": range(7), "y": range(7), "plan": range(7)})
    with pytest.raises(ValueError, match="at most 6 different values, got 7"):
        plot.scores.lines(seven, "x", "y", "plan", x_title="", y_title="")


# What people see who lack one kind of cones: linear RGB times a matrix (Machado, Oliveira & Fernandes 2009).
SEEN = {
    "all": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritan": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
DARK = "#121212"  # a page of Chromium in dark mode


def linear(color):
    channels = np.array([int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def luminance(color):
    """Relative luminance of WCAG 2.1: what is left of a colour in grey print."""
    return float(linear(color) @ XYZ[1])


def contrast(one, other):
    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


def cielab(color, seen):
    xyz = XYZ @ np.clip(np.array(SEEN[seen]) @ linear(color), 0, 1) / [0.95047, 1, 1.08883]
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def least_difference(colors, seen):
    pairs = itertools.combinations([cielab(color, seen) for color in colors], 2)
    return min(np.linalg.norm(one - other) for one, other in pairs)


@pytest.mark.parametrize("seen", SEEN)
def test_colours_differ_for_everybody(seen):
    assert least_difference(_charts.COLORS, seen) > 26
    assert least_difference(_charts.FILLS, seen) > 26


def test_the_simulation_finds_colours_that_some_people_confuse():
    red, green = "#B04040", "#607020"
    assert least_difference([red, green], "all") > 40
    assert least_difference([red, green], "deutan") < 20


@pytest.mark.parametrize("page", ["#FFFFFF", DARK])
def test_colours_are_seen_on_light_and_on_dark_pages(page):
    assert all(contrast(color, page) >= 3 for color in _charts.COLORS)


def test_series_stay_apart_without_colour():
    assert len({tuple(dash) for dash in _charts.DASHES}) == len(_charts.DASHES) == len(_charts.COLORS)
    shades = [luminance(color) for color in _charts.FILLS]
    for a, b in itertools.pairwise(shades):
        assert (b + 0.05) / (a + 0.05) > 1.8
    assert all(contrast("#111111", shade) >= 7 for shade in _figures._SHADES)


def test_a_missing_extra_is_named():
    code = "import sys; sys.modules['altair'] = None; import dp_polars.analysis; import dp_polars.plot"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "the package altair must be installed" in run.stderr
    assert "pip install 'dp-polars[plot]'" in run.stderr


TOWNS = ["Ahlbeck", "Bansin", "Koserow"]


def answered(**kwargs):
    rng = np.random.default_rng(4)
    calls = pl.DataFrame(
        {
            "caller": range(330),
            "town": np.repeat(TOWNS, [10, 300, 20]),
            "minutes": rng.gamma(3, 6, 330).round(),
            "reason": rng.choice(["billing", "fault"], 330),
        }
    )
    asked = (
        protect("caller", max_groups=1, max_rows_per_group=1)
        .group_by({"town": TOWNS})
        .agg(
            reason=pl.col("reason").dp.mode(["billing", "fault"], rho=1, too_few=5),
            callers=dpp.n_people(rho=5),
            minutes=pl.col("minutes").dp.sum(0, 60, step=0.5, rho=1),
            wait=pl.col("minutes").dp.mean(0, 60, step=0.5, rho=1),
            each=pl.col("reason").dp.value_counts(["billing", "fault"], rho=1),
        )
    )
    return (
        asked.release(calls, intervals=True),
        plot.answers(asked.release(calls, intervals=True), asked, **kwargs),
        asked,
    )


def test_answers_with_their_gaps():
    calls = pl.DataFrame({"reason": ["billing"] * 90})
    asked = protect(None).agg(
        n=dpp.len(epsilon=9), reason=pl.col("reason").dp.mode(["billing", "fault"], epsilon=9, gap=True)
    )
    chart = plot.answers(asked.release(calls, intervals=True), asked)
    (text,) = (row["text"] for row in rows(chart) if "text" in row)
    assert re.fullmatch(r"billing \(ahead by \d+\)", text)
    only = protect(None).agg(reason=pl.col("reason").dp.mode(["billing"], epsilon=9, gap=True))
    (text,) = (row["text"] for row in rows(plot.answers(only.release(calls), only)))
    assert text == "billing"  # of which no other candidate is behind
    assert "bounds" not in texts(chart)  # every row is a person: none is dropped


@pytest.mark.slow
def test_answers(tmp_path):
    released, in_order, asked = answered()
    assert '["Ahlbeck", "Bansin", "Koserow"]' in texts(in_order)
    chart = plot.answers(released, asked, sort="largest")
    png_size(chart, tmp_path / "answers.png")
    said = texts(chart)
    assert lacks(chart, "Answers by town | callers | wait | reason") == []
    for words in (
        "of clipped values within the contribution limits, lies in the interval with a probability of 95 %.",
        "No interval covers what limits take away: counts and sums are too low if people have more.",
        "Differential privacy with ε = 30.05 and δ = 0.000001 (ρ = 9).",
        "One person: all rows with one value of 'caller'.",
    ):
        assert words in caption(chart)
    assert "ε = 30.05 at δ = 10⁻⁶" in asked.explain()["note"][0]
    assert "add_or_remove_one" not in said
    assert "max_groups" not in said
    assert '["Bansin", ' in said  # the largest first, by the first number
    ranked = released.sort("callers", descending=True)
    for name in ("callers", "minutes", "wait"):
        shown = [tuple(released_row) for released_row in ranked.select(name, f"{name}_low", f"{name}_high").rows()]
        data = [
            [(row["number"], row["low"], row["high"]) for row in rows_ if "low" in row] for rows_ in datasets(chart)
        ]
        assert shown in data
    words = [[row["text"] for row in rows_] for rows_ in datasets(chart) if "text" in rows_[0]]
    counts = [
        ", ".join(f"{one['value']}: {one['count']}" for one in sorted(each, key=lambda one: -one["count"]))
        for each in ranked["each"].to_list()
    ]
    assert words == [[reason or "–" for reason in ranked["reason"]], counts]
    assert "The first" not in said
    # Nothing but the release is in the figure.
    assert set().union(*map(set, rows(chart))) == {"rank", "number", "low", "high", "text"}


def datasets(chart):
    return list(chart.to_dict()["datasets"].values())


def panels(chart):
    """Each panel of marks that has a heading: its heading, its first mark, and its rows."""
    whole = chart.to_dict()

    def walk(node, data):
        data = node.get("data", data)
        if "layer" in node and node.get("title"):
            first = node["layer"][0]
            yield " ".join(node["title"]["text"]), first, whole["datasets"][first.get("data", data)["name"]]
        for inner in (*node.get("vconcat", ()), *node.get("hconcat", ())):
            yield from walk(inner, data)

    return list(walk(whole, None))


def bars(chart, name):
    """The number, low and high of each group, in the panel of this name."""
    (data,) = [data for title, _, data in panels(chart) if title == name]
    return [tuple(row[key] for key in ("number", "low", "high")) for row in data]


def caption(chart):
    """The lines below a figure, as one text."""
    whole = chart.to_dict()
    inner = whole if "orient" in whole["title"] else whole["vconcat"][0]
    assert inner["title"]["orient"] == "bottom"
    return " ".join(inner["title"]["text"])


@pytest.mark.slow
def test_bars_of_counts_and_sums_follow_from_the_query():
    """Those that a release with intervals has; a mean's do not."""
    released, _, asked = answered()
    released = released.with_columns(cents=pl.col("minutes").cast(pl.Decimal(10, 2)))
    bare = released.select(pl.exclude("^.*_low$", "^.*_high$"))
    chart = plot.answers(bare, asked)
    for name in ("callers", "minutes"):
        expected = released.select(pl.col(name, f"{name}_low", f"{name}_high").cast(pl.Float64)).rows()
        assert bars(plot.answers(released, asked), name) == expected
        # Some people may count in part: so ends that follow from rounded answers contain the others, by one at most.
        for (number, low, high), (exact, lower, upper) in zip(bars(chart, name), expected, strict=True):
            assert number == exact
            assert lower - 1 <= low <= lower
            assert upper <= high <= upper + 1
    assert bars(chart, "wait") == [(wait, None, None) for wait in released["wait"]]
    assert "There is no interval of wait: release(intervals=True) has it." in caption(chart)
    # The step is the last digit of the answer's type, where the column's type defines it.
    rows_ = pl.DataFrame({"x": ["1.5", "2.5"] * 50}).with_columns(pl.col("x").cast(pl.Decimal(10, 2)))
    asked = rows_.dp.protect(None).agg(x=pl.col("x").dp.sum(0, 5, epsilon=0.1))
    released = asked.release(intervals=True)
    (of_query,) = bars(plot.answers(released.select("x"), asked), "x")
    assert of_query == pytest.approx(released.cast(pl.Float64).row(0))


@pytest.mark.slow
def test_lists_are_words_and_intervals_are_bars(tmp_path):
    calls = pl.DataFrame({"minutes": [i % 30 for i in range(900)], "reason": ["a", "a", "b"] * 300})
    calls = calls.with_columns(
        day=pl.date(2020, 1, 1) + pl.duration(days="minutes"), pause=pl.duration(minutes="minutes")
    )
    days = dpp.grid(dt.date(2020, 1, 1), dt.date(2020, 2, 1), step="1d")
    pauses = dpp.grid(dt.timedelta(0), dt.timedelta(hours=1), step="1m")
    asked = protect(None).agg(
        middle=pl.col("minutes").dp.median(range(30), confidence=0.95, epsilon=3),
        day=pl.col("day").dp.median(days, confidence=0.9, epsilon=3),
        pause=pl.col("pause").dp.median(pauses, confidence=0.95, epsilon=3),
        quarters=pl.col("minutes").dp.quantile([0.25, 0.5, 0.75], range(30), epsilon=1000),
        top=pl.col("reason").dp.top_k(2, ["a", "b"], epsilon=1000),
        each=pl.col("reason").dp.value_counts(list("cbadefg"), epsilon=1000),
    )
    released = asked.release(calls)
    chart = plot.answers(released, asked)
    png_size(chart, tmp_path / "answers.png")
    row = released.row(0, named=True)
    assert bars(chart, "middle") == [tuple(float(row[name]) for name in ("middle", "middle_low", "middle_high"))]
    shown = [tuple(dt.date.fromisoformat(day[:10]) for day in days) for days in bars(chart, "day")]
    assert shown == [(row["day"], row["day_low"], row["day_high"])]
    words = [one["text"] for one in rows(chart) if "text" in one]
    assert re.fullmatch(r"\d+m \(\d+m to \d+m\)", words[0])
    assert words[1:3] == ["7, 14, 22", "a, b"]
    assert re.fullmatch("a: 600, b: 300(, [cdefg]: 0){3}, …", words[3])
    for words in (
        "middle: the quantile, of clipped values, lies in the interval with a probability of 95 %.",
        "day: the quantile, of clipped values, lies in the interval with a probability of 90 %.",
        "Only 5 of a list are shown: each.",
    ):
        assert words in caption(chart)
    shown = pl.DataFrame({"pauses": [[dt.timedelta(minutes=5), dt.timedelta(hours=1)]]})
    asked = protect(None).agg(pauses=pl.col("pause").dp.quantile([0.25, 0.5], pauses, epsilon=1))
    assert [row["text"] for row in rows(plot.answers(shown, asked))] == ["5m, 1h"]


@pytest.mark.parametrize("as_key", [True, False])
def test_no_bar_is_drawn_from_what_is_named_like_its_ends(as_key):
    private = pl.DataFrame({"ward_low": [1], "ward_high": [2], "x": [5]}).dp.protect(None)
    if as_key:
        query = private.group_by({"ward_low": [1], "ward_high": [2]}).agg(ward=pl.col("x").dp.sum(0, 9, epsilon=1))
    else:
        query = private.agg(ward=dpp.len(epsilon=1), ward_low=dpp.len(epsilon=1), ward_high=dpp.len(epsilon=1))
    with pytest.raises(ValueError, match=r"like the ends of a bar, got \['ward_high', 'ward_low'\]"):
        plot.answers(query.release(), query)


def test_what_can_not_be_drawn_is_refused():
    curve, nan = plot.scores.error_curve, float("nan")
    for losses in ([], [1]):
        refused(ValueError, "losses must be at least two", curve, [1, 2], losses)
    refused(ValueError, "mechanisms at least one", curve, [1, 2], [1, 2], mechanisms=[])
    refused(ValueError, r"losses\[1\] must be", curve, [1, 2], [1, nan])
    refused(ValueError, "mechanism must be one of", curve, [1, 2], [1, 2], mechanisms=["laplace"])
    refused(ValueError, "unit must be", curve, [1, 2], [1, 2], unit="delta")
    refused(ValueError, "must not all be equal", curve, [2, 2], [1, 2])
    refused(ValueError, "scores must be finite", curve, [2, nan], [1, 2])
    bars = partial(plot.scores.probabilities, [1, 2])
    refused(ValueError, r"as many as the 2 scores .* got 1 and 2", bars, candidates=["a"], epsilon=1)
    for mechanisms in ([], [*THREE, "exponential"]):
        refused(ValueError, "mechanisms from one to 3", bars, epsilon=1, mechanisms=mechanisms)
    refused(ValueError, "most must be at least 1", bars, epsilon=1, most=0)
    refused(TypeError, "exactly one of epsilon and rho", bars)
    refused(ValueError, "must be given its loss as epsilon", bars, rho=1, mechanisms=["report_noisy_max_laplace"])
    refused(ValueError, "mechanism must be one of", bars, epsilon=1, mechanisms=["laplace"])
    frame = analysis.simulate(dpp.median("income", range(201), epsilon=0.3), public(1, 20))
    refused(ValueError, r"lacks \['answer_5', 'loss'\]", plot.simulation, frame.drop("answer_5", "loss"))
    refused(ValueError, "a row with a true answer", plot.simulation, frame.clear())
    released, _, asked = answered()
    no_query = dpp.len(epsilon=1)
    refused(TypeError, "query must be a PrivateQuery, got PrivateExpr", plot.answers, released, no_query)
    refused(ValueError, r"lacks \['wait'\]", plot.answers, released.drop("wait"), asked)
    refused(ValueError, "released must have a row, got none", plot.answers, released.clear(), asked)
    refused(ValueError, "sort must be one of", plot.answers, released, asked, sort="town")
    refused(ValueError, "most must be at least 1", plot.answers, released, asked, most=0)
    keys = pl.DataFrame({"person": range(9), "town": ["a"] * 9}).dp.protect("person", max_groups=1)
    keys = keys.keys("town", epsilon=9, delta=1e-3)
    words = r"^query must have answers for groups, got a query of keys"
    refused(ValueError, words, plot.answers, keys.release(), keys)


# --- Figures by the kind of keys, and how they look

MONTHS = [dt.date(2024, 1, 1), dt.date(2024, 2, 1), dt.date(2024, 3, 1), dt.date(2024, 4, 1)]
REGIONS = [f"region {number}" for number in range(8)]


def by_keys(**keys):
    """A query of made-up groups, and its release with intervals; no group has a row."""
    empty = pl.DataFrame(schema={"p": pl.Int64, "x": pl.Int64} | {k: pl.Series(v).dtype for k, v in keys.items()})
    query = empty.dp.protect("p", max_groups=1).group_by(keys).agg(people=dpp.n_people(epsilon=1))
    return query.release(intervals=True), query


def marks(chart):
    """What kinds of marks a figure has."""
    found, stack = set(), [chart.to_dict()]
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            found |= {node["mark"]["type"]} if "mark" in node else set()
            stack += node.values()
        elif isinstance(node, list):
            stack += node
    return found


@pytest.mark.parametrize(
    ("keys", "expected", "is_faceted"),
    [
        ({"month": MONTHS}, {"area", "line", "point"}, False),
        ({"year": range(2020, 2026)}, {"area", "line", "point"}, False),
        ({"month": ["2024-01", "2024-02", "2024-03"]}, {"area", "line", "point"}, False),
        ({"region": REGIONS[:6], "month": MONTHS}, {"area", "line", "point"}, False),
        ({"region": REGIONS[:7], "month": MONTHS}, {"area", "line"}, True),
        ({"region": REGIONS}, {"rule", "tick", "point"}, False),
        ({"number": range(5)}, {"rule", "tick", "point"}, False),  # a whole number that is no time
        ({"region": REGIONS, "kind": ["a", "b"]}, {"rule", "tick", "point"}, False),
        ({"region": ["a", "b"], "kind": REGIONS}, {"rect", "text"}, False),
        ({"a": ["x", "y"], "b": ["x", "y"], "c": ["x", "y"]}, {"rule", "tick", "point"}, False),
    ],
)  # fmt: skip
def test_a_figure_fits_its_keys_and_has_all_numbers(keys, expected, is_faceted):
    released, query = by_keys(**keys)
    chart = plot.answers(released, query)
    assert marks(chart) == expected
    assert ('"facet"' in chart.to_json()) == is_faceted
    found = sorted((row["number"], row["low"], row["high"]) for row in rows(chart))
    assert found == sorted(map(tuple, released.select("people", "people_low", "people_high").cast(pl.Float64).rows()))


def test_lines_go_through_time_in_its_order_also_when_groups_are_sorted():
    released, query = by_keys(region=REGIONS[:3], month=MONTHS)
    chart = plot.answers(released, query, sort="largest")
    for _, (region,) in enumerate(released.select("region").unique().rows()):
        drawn = [(row["time"][:10], row["number"]) for row in rows(chart) if row["series"] == region]
        expected = released.filter(region=region).select(pl.col("month").cast(pl.String), pl.col("people").cast(float))
        assert sorted(drawn) == expected.rows()


def test_texts_sizes_and_names_are_those_that_are_given(tmp_path):
    released, query = by_keys(region=["N", "S"])
    look = {"title": "A title", "subtitle": "Under it", "caption": "Source: a register"}
    labels = {"people": "People", "region": "Region", "N": "North"}
    chart = plot.answers(released, query, labels=labels, width=300, height=99, **look)
    said = texts(chart)
    assert lacks(chart, "A title | Under it | People") == []
    assert '["North", "S"]' in said
    assert "people" not in said
    assert caption(chart) == "Source: a register"
    assert '"height": 99' in chart.to_json()
    usual = plot.answers(released, query, labels=labels)
    assert "People by Region" in texts(usual)
    # The title can be replaced without what is said of privacy.
    assert caption(usual.properties(title="Mine")) == caption(usual)
    assert "ε = 1" in caption(usual)
    bare = plot.answers(released, query, title="", caption="")
    assert "title" not in bare.to_dict()
    for name in ("figure.svg", "figure.png", "figure.html"):
        chart.save(tmp_path / name)
        assert (tmp_path / name).stat().st_size > 2000
    assert "Source: a register" in (tmp_path / "figure.svg").read_text(encoding="utf-8")


def test_a_figure_is_readable_where_600_pixels_are_shown(tmp_path):
    rows_ = VISITS.with_columns(kind=pl.lit("a"))
    many = {f"output {number}": pl.col("days").dp.mean(0, 9, epsilon=1) for number in range(9)}
    query = rows_.dp.protect("p", max_rows=1).group_by({"ward": ["A", "B"]}).agg(**many)
    width, _ = png_size(plot.answers(query.release(intervals=True), query), tmp_path / "figure.png")
    assert 500 < width < 720


def test_ends_of_an_interval_stand_out_of_the_dot_at_any_size():
    released, query = by_keys(region=["N", "S"])
    (_, first, _), = panels(plot.answers(released, query))  # fmt: skip
    assert first["mark"]["type"] == "rule"
    layers = re.findall(r'"type": "(tick|point)"', plot.answers(released, query).to_json())
    assert layers == ["tick", "tick", "point"]
    whole = plot.answers(released, query).to_dict()
    marks_ = [layer["mark"] for layer in whole["vconcat"][0]["vconcat"][0]["hconcat"][0]["layer"]]
    sizes = {one["type"]: one.get("size") for one in marks_}
    assert sizes["tick"] > 1.5 * (4 * sizes["point"] / np.pi) ** 0.5  # a tick is longer than the dot is wide


def other_figures():
    """Figures that are not of a release, each of which takes a look."""
    query = dpp.protect("p", max_groups=1).agg(
        people=dpp.n_people(epsilon=1), reason=dpp.mode("reason", ["flu", "cold"], epsilon=0.1)
    )
    rows_of = analysis.synthetic({"p": pl.Int64}, people=100, rows=900, privacy_unit="p")
    dropped = analysis.rows_dropped(rows_of, "p", max_rows_per_group=[1, 2, 5])
    budget = Budget(epsilon=1)
    private = public(2, 30).with_row_index("p").dp.protect("p", budget=budget, max_rows=1)
    private.agg(n=dpp.n_people(epsilon=0.5)).release()
    points = pl.DataFrame({"n": [1, 2], "s": [0.1, 0.3], "plan": ["a", "a"]})
    simulated = analysis.simulate(dpp.median("income", range(200), epsilon=1), public(2, 30), by="region")
    return {
        "simulation": partial(plot.simulation, simulated),
        "budget": partial(plot.budget, budget),
        "error_by_size": partial(plot.error_by_size, analysis.error_by_size(query, [50, 500])),
        "best_by_gap": partial(plot.best_by_gap, analysis.best_by_gap(query, [0, 5, 50])),
        "rows_dropped": partial(plot.rows_dropped, dropped),
        "lines": partial(plot.scores.lines, points, "n", "s", "plan", x_title="rows", y_title="time"),
        "error_curve": partial(plot.scores.error_curve, [9, 5, 1], [0.1, 1]),
        "probabilities": partial(plot.scores.probabilities, [9, 5, 1], candidates=["x", "y", "z"], epsilon=1),
    }


LABELS = {
    "simulation": {"income": "Income", "region": "Region"},
    "budget": {"n: number of people": "People of the region"},
    "error_by_size": {"people": "Persons"},
    "best_by_gap": {"reason": "Why they came"},
    "lines": {"a": "A plan", "rows": "Number of rows"},
    "error_curve": {"permute-and-flip": "ours"},
    "probabilities": {"x": "The first"},
}


@pytest.mark.parametrize(
    "name",
    ["simulation", "budget", "error_by_size", "best_by_gap", "rows_dropped", "lines", "error_curve", "probabilities"],
)
def test_every_other_figure_takes_a_look_too(name, tmp_path):
    make = other_figures()[name]
    usual, size = make(), {} if name == "simulation" else {"width": 333, "height": 222}
    words = {"title": "A title", "subtitle": "Under it", "caption": "Source: a register"}
    labels = LABELS.get(name, {})
    chart = make(**words, **size, labels=labels)
    assert lacks(chart, "A title | Under it | Source: a register") == []
    said = chart.to_json()
    assert [word for word in labels.values() if word not in said] == []
    assert [one for one in size.values() if f": {one}" not in said] == []
    assert "A title" not in texts(usual)
    chart.save(tmp_path / "figure.svg")
    assert "Source: a register" in (tmp_path / "figure.svg").read_text(encoding="utf-8")
    refused(TypeError, "'titel' must be left out", make, titel="x")
    refused(TypeError, "title must be a text, got 3", make, title=3)
    if name == "simulation":
        refused(TypeError, "width must be left out", make, width=300)
    if name == "budget":  # its own title is another one
        assert "spent" in texts(usual)
        assert "0.5 of 1 spent" not in texts(chart)


def test_a_look_that_can_not_be_is_refused():
    released, query = by_keys(region=["N", "S"])
    for look, error, words in (
        ({"titel": "x"}, TypeError, "'titel' must be left out: a figure takes title, subtitle"),
        ({"title": 3}, TypeError, "title must be a text, got 3"),
        ({"labels": ["x"]}, TypeError, "labels must be a dict of texts, got list"),
        ({"labels": {"x": 3}}, TypeError, "labels must be a dict of texts"),
        ({"width": 0}, ValueError, "width must be at least 1"),
    ):
        refused(error, words, plot.answers, released, query, **look)


# --- Box plots of released lists of quantiles

FIVE = [0.05, 0.25, 0.5, 0.75, 0.95]
COLUMNS = {"rank", "low", "box_low", "middle", "box_high", "high"}
VISITS = pl.DataFrame({"ward": ["A", "B", "C", "D"] * 300, "days": [i % 40 for i in range(1200)], "p": range(1200)})


def asked(**more):
    return (
        VISITS.dp.protect("p", max_rows=1)
        .group_by({"ward": ["A", "B", "C", "Z"]})
        .agg(stay=pl.col("days").dp.quantile(FIVE, range(60), epsilon=2), n=dpp.len(epsilon=1), **more)
    )


def test_a_box_per_group(tmp_path):
    query = asked()
    released = query.release(intervals=True)
    assert '["A", "B", "C", "Z"]' in texts(plot.box(released, query))
    chart = plot.box(released, query, sort="largest")
    png_size(chart, tmp_path / "box.png")
    said = texts(chart)
    assert "stay by ward" in said
    boxes = "Boxes go from the 0.25 to the 0.75 quantile, with a line at 0.5. Whiskers go to 0.05 and 0.95. "
    assert caption(chart) == f"{boxes}Differential privacy with ε = 3. One person: all rows with one value of 'p'."
    ranked = released.sort(pl.col("stay").list.get(2), descending=True, maintain_order=True)
    assert str(ranked["ward"].to_list()).replace("'", '"') in said  # the largest first, and named by the key alone
    data = rows(chart)
    found = sorted(
        [row["rank"], *(row[name] for name in ("low", "box_low", "middle", "box_high", "high"))] for row in data
    )
    assert found == [[i, *map(float, five)] for i, five in enumerate(ranked["stay"].to_list())]
    # Nothing but the release is in the figure.
    assert set().union(*map(set, data)) == COLUMNS


def test_groups_that_are_hidden_come_last():
    query = asked(people=dpp.n_people(epsilon=9))
    released = query.release(min_people=100)
    assert released["stay"].is_null().to_list() == [False, False, False, True]
    data = rows(plot.box(released, query, most=3, sort="largest"))
    assert len([row for row in data if row["middle"] is not None]) == 3


def test_quartiles_are_boxes_without_whiskers(tmp_path):
    query = asked(quartiles=pl.col("days").dp.quantile([0.25, 0.5, 0.75], range(60), epsilon=2))
    released = query.release()
    chart = plot.box(released, query, output="quartiles")
    png_size(chart, tmp_path / "quartiles.png")
    said = caption(chart)
    assert "Boxes go from the 0.25 to the 0.75 quantile, with a line at 0.5." in said
    assert "Whiskers" not in said
    data = rows(chart)
    assert set().union(*map(set, data)) == {"rank", "box_low", "middle", "box_high"}
    found = sorted([row["rank"], *(row[name] for name in ("box_low", "middle", "box_high"))] for row in data)
    assert found == [[i, *map(float, three)] for i, three in enumerate(released["quartiles"].to_list())]
    refused(ValueError, r"query must have one list of three or five quantiles, got 2", plot.box, released, query)


def test_boxes_of_an_expression_of_dates_and_of_many_groups(tmp_path):
    day = (pl.lit(dt.date(2024, 1, 1)) + pl.duration(days="days")).alias("day")
    expr = day.dp.quantile(FIVE, dpp.grid(dt.date(2024, 1, 1), dt.date(2024, 6, 1), step="1d"), epsilon=1)
    chart = plot.box(VISITS.group_by("ward").agg(expr), expr, most=2)
    png_size(chart, tmp_path / "days.png")
    said = caption(chart)
    assert "The first 2 of 4 groups are shown." in said
    assert said.endswith("Differential privacy with ε = 1. One person: at most 1 row.")
    assert "temporal" in texts(chart)
    assert {row["rank"] for row in rows(chart)} == {0, 1}
    money = pl.DataFrame({"x": [Decimal("1.50")] * 99})
    expr = pl.col("x").dp.quantile(FIVE, dpp.grid(Decimal(0), Decimal(3), step=Decimal("0.5")), rho=5)
    one = plot.box(money.select(expr), expr)
    png_size(one, tmp_path / "one.png")
    assert "all rows" in texts(one)
    assert "(ρ = 5)" in caption(one)
    assert [row["middle"] for row in rows(one)] == [1.5]


def test_bad_boxes():
    query = asked()
    released = query.release()
    two = asked(other=pl.col("days").dp.quantile(FIVE, range(30), epsilon=1))
    assert "other by ward" in texts(plot.box(two.release(), two, output="other"))
    halves = dpp.quantile("days", [0.25, 0.75], range(60), epsilon=1)
    hours = pl.col("t").dp.quantile(FIVE, [dt.timedelta(hours=i) for i in range(5)], epsilon=1)
    times = pl.DataFrame({"t": [dt.timedelta(hours=1)] * 9}).select(hours)
    listed, got = "list of three or five quantiles", r".\n\nHint: dp_"
    no_column = "with a column 'stay' and a group"
    for arguments, error, words in (
        ((released, pl.col("days")), TypeError, "query must be a PrivateQuery or a PrivateExpr, got Expr"),
        ((released.lazy(), query), TypeError, "released must be a DataFrame, got LazyFrame"),
        ((released.drop("stay"), query), ValueError, no_column),
        ((released.clear(), query), ValueError, no_column),
        ((released, halves), ValueError, rf"query must have one {listed}, got 0{got}polars.quantile"),
        ((two.release(), two), ValueError, r"got 2.\n\nHint: output= one of \['other', 'stay'\]"),
        ((times, hours), TypeError, "numbers, dates or datetimes, got lists of Duration"),
    ):
        refused(error, words, plot.box, *arguments)
    refused(ValueError, rf"output must be a {listed} of the query, got 'n'{got}", plot.box, released, query, output="n")
    refused(ValueError, "most must be at least 1", plot.box, released, query, most=0)


# --- Figures to plan by

QUERY = (
    dpp.protect("patient", max_groups=1, max_rows_per_group=2)
    .group_by({"ward": ["A", "B"]})
    .agg(
        people=dpp.n_people(within=10),
        top=dpp.mode("reason", ["fall", "flu"], within=10),
        days=dpp.mean("days", 0, 30, step=1, epsilon=1),
    )
)
DROPPED = pl.DataFrame({"p": [1, 1, 1, 2, 2, 3], "w": ["A", "A", "B", "A", "B", "C"]})


def test_errors_by_size_are_drawn_in_percent(tmp_path):
    errors = analysis.error_by_size(QUERY, [50, 100, 1_000_000])
    chart = plot.error_by_size(errors)
    shown = pl.DataFrame(rows(chart))
    assert shown.filter(output="people")["relative"].to_list() == pytest.approx([20, 10, 0.1], rel=1e-3)
    assert shown.filter(output="days")["relative"].to_list()[:2] == pytest.approx(
        (errors.filter(output="days")["relative"] * 100).to_list()[:2]
    )
    assert chart.to_dict()["layer"][0]["encoding"]["x"]["axis"]["title"] == "people or rows in the group"
    png_size(chart, tmp_path / "figure.png")


def test_what_is_not_known_is_left_out():
    bare = dpp.protect("patient", max_groups=1).agg(dpp.mode("ward", epsilon=1), dpp.n_people(epsilon=1))
    shown = rows(plot.error_by_size(analysis.error_by_size(bare, [10, 20])))
    assert {row["output"] for row in shown} == {"n_people"}


def test_the_right_top_is_drawn_by_its_gap(tmp_path):
    law = analysis.best_by_gap(QUERY, range(0, 40, 4))
    chart = plot.best_by_gap(law, width=200)
    assert pl.DataFrame(rows(chart))["probability"].to_list() == pytest.approx((law["probability"] * 100).to_list())
    assert chart.to_dict()["width"] == 200
    png_size(chart, tmp_path / "figure.png")


def test_dropped_rows_have_a_line_for_each_bound_on_groups(tmp_path):
    shares = analysis.rows_dropped(DROPPED, "p", by="w", max_groups=[1, 2, None], max_rows_per_group=[1, 2, None])
    shown = pl.DataFrame(rows(plot.rows_dropped(shares)))
    assert shown["line"].unique(maintain_order=True).to_list() == ["1 group", "2 groups", "all groups"]
    assert shown["max_rows_per_group"].to_list() == [1, 2] * 3
    assert shown["rows_dropped"].to_list() == pytest.approx(
        (shares.drop_nulls("max_rows_per_group")["rows_dropped"] * 100).to_list()
    )
    png_size(plot.rows_dropped(shares), tmp_path / "figure.png")


@pytest.mark.parametrize("name", ["error_by_size", "best_by_gap", "rows_dropped"])
def test_other_frames_are_refused(name):
    with pytest.raises(ValueError, match=rf"must have the columns of dp_polars.analysis.{name}, it lacks"):
        getattr(plot, name)(pl.DataFrame({"x": [1]}))


# --- Figures of cubes

ROWS = pl.DataFrame({"ward": ["A", "B", "C"] * 200, "year": [2024] * 300 + [2025] * 300})
DIMENSIONS = {"ward": ["C", "A", "B", "D"], "year": [2023, 2024, 2025]}


@pytest.fixture(scope="module")
def cube():
    return ROWS.dp.protect(None).cube(DIMENSIONS, epsilon=0.5).release()


def test_a_panel_for_each_combination_with_the_numbers_and_their_ranges(cube):
    chart = plot.cube(cube, "year", by="ward")
    found = [(one["panel"], one["place"], one["number"], one["low"], one["high"]) for one in rows(chart)]
    assert found == [(ward, str(year), *numbers) for ward, year, *numbers in cube.counts(by=["ward", "year"]).rows()]
    assert chart.to_dict()["vconcat"][0]["vconcat"][0]["facet"]["sort"] == ["C", "A", "B", "D"]
    assert caption(chart).endswith("Differential privacy with ε = 0.5. One person: every row is a person of its own.")
    assert "number of rows" in texts(chart)


def test_shares_filters_and_panels_that_are_left_out(cube):
    chart = plot.cube(cube, "ward", pl.col("year") > 2023, by=["year"], share=pl.col("ward") == "A", most=2)
    assert "The first 2 of 3 panels." in str(chart.to_dict())
    # Of 2023 nothing is left, and so no share is known.
    assert {one["panel"] for one in rows(chart)} == {"2024"}
    assert [one["number"] for one in rows(chart)][:2] == [0.0, 1.0]
    chart = plot.cube(cube, "ward", pl.col("year") > 2024)
    expected = cube.counts(pl.col("year") > 2024, by=["ward"])
    assert [one["number"] for one in rows(chart)] == expected.to_series(1).to_list()
    assert expected.to_series(1).to_list() != cube.counts(by=["ward"]).to_series(1).to_list()


def test_one_panel_and_a_picture(cube, tmp_path):
    chart = plot.cube(cube, "ward")
    assert [one["place"] for one in rows(chart)] == DIMENSIONS["ward"]
    chart.save(tmp_path / "cube.png")
    plot.cube(cube, "year", by="ward").save(tmp_path / "cubes.png")
    assert min(file.stat().st_size for file in tmp_path.iterdir()) > 5000


def test_wrong_arguments(cube):
    for ask, error, message in (
        (lambda: plot.cube(ROWS, "ward"), TypeError, "cube must be a Cube"),
        (lambda: plot.cube(cube, "age"), ValueError, "must name dimensions"),
        (lambda: plot.cube(cube, "ward", by="ward"), ValueError, "each dimension once"),
        (lambda: plot.cube(cube, "ward", most=0), ValueError, "most must be"),
    ):
        refused(error, message, ask)
