"""The script that computes the paper's experiments again, its known values, and the page that shows them."""

import csv
import math
import re
import sys
from functools import partial

import numpy as np
import polars as pl
import pytest

from dp_polars import analysis
from tests.helpers.needs import need
from tests.helpers.places import ROOT

for package in ("altair", "vl_convert", "scipy", "tqdm"):
    need(package)

import reproduce_paper

pytestmark = pytest.mark.slow

SMALL = {"CANDIDATES": [2, 10, 100, 1000, 10_000], "LATTICES": [(4, 2), (4, 8), (3, 4)]}
# Total, largest and second largest count of 1024 bins of the files in dpcomp-org/dpcomp_core, folder
# dpcomp_core/datafiles/1D (Hay et al., SIGMOD 2016).
FIGURES = {
    "HEPTH": (347_414, 1_571, 1_510),
    "ADULTFRANK": (17_665, 16_836, 116),
    "MEDCOST": (9_415, 2_885, 332),
    "SEARCHLOGS": (335_889, 11_160, 7_756),
    "PATENT": (27_948_226, 59_602, 59_324),
}


@pytest.fixture
def paper(monkeypatch):
    epsilons = [0.2, 0.35, 0.375, 0.6, reproduce_paper.THRESHOLD, 2.0]
    for name, value in {**SMALL, "EPSILONS": epsilons}.items():
        monkeypatch.setattr(reproduce_paper, name, value)
    return reproduce_paper


def test_errors_are_equations_7_and_8(paper):
    for n in (2, 3, 4, 10, 1000):
        for p in (0.001, 0.1, 0.5, 0.999):
            exponential = -math.log(p) * (1 - 1 / (1 + (n - 1) * p))
            flip = -math.log(p) * (1 - (1 - (1 - p) ** n) / (n * p))
            assert paper.gap_error(n, p, paper.EM) == pytest.approx(exponential, rel=1e-11)
            assert paper.gap_error(n, p, paper.PF) == pytest.approx(flip, rel=1e-9)


def test_the_median_score_is_the_people_to_add_or_remove(paper):
    counts = np.array([3, 0, 4, 1, 1])
    people = np.repeat(np.arange(5), counts)

    def is_median(values, candidate):
        return 2 * (values < candidate).sum() < len(values) <= 2 * (values <= candidate).sum()

    for candidate, score in enumerate(paper.median_scores(counts).tolist()):
        # Adding people at the candidate is the best that one can do.
        changed = [np.r_[people, np.full(k, candidate)] for k in range(20)]
        assert -score == next(k for k, values in enumerate(changed) if is_median(values, candidate))


@pytest.fixture(params=["synthetic histograms", "DPBench"])
def data(request):
    return request.getfixturevalue("dpbench") if request.param == "DPBench" else None


def test_all_figures_and_tables_are_written(paper, data, tmp_path, monkeypatch, capsys):
    out = tmp_path / "deep" / "out"
    arguments = ["reproduce_paper.py", "--out", str(out), *([] if data is None else ["--data", str(data)])]
    monkeypatch.setattr(sys, "argv", arguments)
    steps = 4 + len(paper.CANDIDATES) + len(paper.LATTICES) * len(paper.EPSILONS) + 10 + 20 + 1
    monkeypatch.setattr(paper, "STEPS", steps)
    monkeypatch.setattr(paper, "POINTS", 12)
    paper.main()
    said = capsys.readouterr()
    assert ("synthetic histograms stand in" in said.out) == (data is None)
    assert f"{steps}/{steps}" in said.err  # the progress bar ends at its end
    figures = ["equal_rho", "mode_and_median", "mode_and_median_at_50", "optimality", "report_noisy_max"]
    figures += ["worst_case_by_n", "worst_case_by_p"]
    assert sorted(path.stem for path in out.glob("*.png")) == figures
    for name in figures:
        image = (out / f"{name}.png").read_bytes()
        assert image[:8] == b"\x89PNG\r\n\x1a\n"
        assert 20_000 < len(image) < 1_000_000
        assert pl.read_csv(out / f"{name}.csv").height >= 5
    known = pl.read_csv(out / "known_values.csv")
    assert known.height == (16 if data is None else 18)
    assert known["agrees"].all(), known.filter(~pl.col("agrees"))
    curves = pl.read_csv(out / "mode_and_median.csv").pivot("mechanism", index=["data_set", "task", "epsilon"])
    assert curves.height == 10 * 12
    # Theorem 2: permute-and-flip is never worse than the exponential mechanism.
    assert (curves["permute_and_flip"] <= curves["exponential"] * (1 + 1e-12)).all()
    # On these data also than report-noisy-max with Laplace noise, which is better than the former at first.
    ratios = pl.read_csv(out / "report_noisy_max.csv")
    assert ratios.height == 10 * 12
    assert ((ratios["exponential"] >= 1 - 1e-12) & (ratios["exponential"] < 2)).all()
    assert (ratios["report_noisy_max_laplace"] >= 1 - 1e-9).all()
    first, last = (ratios.group_by("data_set", "task").agg(at) for at in (pl.all().first(), pl.all().last()))
    assert (first["report_noisy_max_laplace"] <= first["exponential"] + 1e-9).all()
    assert (last["report_noisy_max_laplace"] > last["exponential"]).all()
    if data is not None:  # what the page says
        assert last["report_noisy_max_laplace"].min() == pytest.approx(3.05, abs=0.05)
        assert last["report_noisy_max_laplace"].max() == pytest.approx(5.71, abs=0.05)
    assert (pl.read_csv(out / "optimality.csv")["ratio"] > 1 - 1e-6).all()
    bounds = pl.read_csv(out / "worst_case_by_n.csv")
    for mechanism in ("exponential", "permute_and_flip"):
        assert (bounds["lower"] <= bounds[mechanism]).all()
        assert (bounds[mechanism] <= bounds["upper"]).all()


def test_the_stand_in_has_the_shape_of_the_data(paper, data):
    histograms = paper.load(data)
    assert all(len(counts) == 1024 for counts in histograms.values())
    assert {name: (counts.sum(), *np.sort(counts)[:-3:-1]) for name, counts in histograms.items()} == FIGURES


def test_the_page_shows_what_comes_out(paper, dpbench):
    frame, _ = paper.at_50(paper.load(dpbench), lambda: None)
    page = (ROOT / "docs" / "paper.md").read_text()
    table = re.findall(r"^\| ([A-Z]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", page, re.MULTILINE)
    assert [row[0] for row in table] == list(paper.DATA_SETS)
    for name, *shown in table:
        (mode,), (median,) = (
            frame.filter(task=task, unit="paper", data_set=name).rows() for task in ("mode", "median")
        )
        computed = [f"{mode[5]:.1f}", f"{mode[7]:.2f}", f"{median[5]:.1f}", f"{median[7]:.2f}"]
        assert shown == computed
    people = frame.filter(task="mode", unit="people")["ratio"]
    assert ", ".join(f"{ratio:.2f}" for ratio in people[:-1]) + f" and {people[-1]:.2f}" in " ".join(page.split())
    for figure in re.findall(r"\((figures/\w+\.png)\)", page):
        assert (ROOT / "docs" / figure).read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_at_equal_rho(paper):
    frame, _ = paper.equal_rho(lambda: None)
    for n, crossing in ((2, 1.96), (10, 10.34), (1000, 135.1)):
        worst = frame.filter(scores=f"worst case, n = {n}")
        assert (worst.filter(pl.col("rho") < crossing * 0.99)["ratio"] > 1).all()
        assert (worst.filter(pl.col("rho") > crossing * 1.01)["ratio"] < 1).all()
        rates = [paper.rate_at(crossing, mechanism) for mechanism in (paper.PF, paper.EM)]
        errors = [paper.worst_error(n, mechanism)[0] for mechanism in (paper.PF, paper.EM)]
        assert errors[0] / rates[0] == pytest.approx(errors[1] / rates[1], rel=2e-3)
    # Two nearly tied candidates: permute-and-flip is better at every rho, by 0.03%, 0.3% and 2.7% at best.
    best = frame.filter(scores="best case for PF, n = 2")
    assert (best["ratio"] < 1).all()
    gains = [1 - np.interp(math.log(rho), best["rho"].log(), best["ratio"]) for rho in (0.01, 0.1, 1)]
    assert gains == pytest.approx([0.00028, 0.0028, 0.027], rel=0.1)
    for rho in (1e-4, 0.01, 1, 5, 20):
        flip, exponential = (paper.rate_at(rho, mechanism) for mechanism in (paper.PF, paper.EM))
        assert flip > exponential / 2
        gap = math.sqrt(min(rho, 1)) / 100 / flip
        error = partial(analysis.scores.expected_error, [0, -gap], rho=rho, monotonic=True)
        assert error(mechanism=paper.PF) < error(mechanism=paper.EM) * (1 - 1e-9)


def test_tables_are_plain_csv(paper, tmp_path):
    frame, _ = paper.by_p(lambda: None)
    frame.write_csv(tmp_path / "p.csv")
    with (tmp_path / "p.csv").open() as file:
        first = next(csv.DictReader(file))
    assert list(first) == ["n", "p", "exponential", "permute_and_flip", "ratio"]
