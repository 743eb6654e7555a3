"""The stream of statistics of examples/stream.py: its losses, its answers, and what docs/paper.md says of them."""

import re
import sys
from fractions import Fraction

import numpy as np
import polars as pl
import pytest

from tests.helpers.needs import need
from tests.helpers.places import ROOT

need("altair")
need("vl_convert")

import stream

ROWS, STATISTICS = stream.table(stream.SMALL)


def certain(monkeypatch):
    monkeypatch.setattr(stream, "EPSILON", Fraction(10**7))


@pytest.fixture
def losses(monkeypatch):
    """What is charged by each draw of `stream`: 3λ by a test of scores that move either way, and that of noise."""
    spent, scores, reached, noise = [], [], stream.first_reached, stream.dpp.mechanisms.discrete_laplace

    def spy_of_tests(runs, threshold, rate, words):
        spent.append(3 * rate)
        scores.append(runs.counts)
        return reached(runs, threshold, rate, words)

    def spy_of_noise(values, *, epsilon, sensitivity):
        spent.append(Fraction(epsilon) / sensitivity * getattr(values, "size", 1))
        return noise(values, epsilon=epsilon, sensitivity=sensitivity)

    monkeypatch.setattr(stream, "first_reached", spy_of_tests)
    monkeypatch.setattr(stream.dpp.mechanisms, "discrete_laplace", spy_of_noise)
    return spent, scores


@pytest.mark.parametrize("hard", [1, 7, 200])
def test_multiplicative_weights_spend_no_more_than_epsilon(losses, hard):
    spent, _ = losses
    _, tests = stream.multiplicative_weights(ROWS, STATISTICS, hard, 20)
    assert sum(spent) <= stream.EPSILON
    assert tests <= len(spent) - 1 <= hard
    if tests == hard:  # then all of it
        assert sum(spent) == stream.EPSILON


def test_fresh_noise_spends_epsilon(losses):
    spent, _ = losses
    stream.fresh(ROWS, STATISTICS)
    assert spent == [stream.EPSILON]  # a row may be in all of the statistics


def test_one_row_moves_each_score_of_a_test_by_at_most_one(losses, monkeypatch):
    _, scores = losses
    # The number of rows that is published is the same one for both tables.
    monkeypatch.setattr(stream.dpp.mechanisms, "discrete_laplace", lambda values, **_: 20_000)
    for rows in (ROWS, ROWS[1:]):
        stream.multiplicative_weights(rows, STATISTICS, 1, 10**6)
    moved = scores[0] - scores[1]
    assert set(moved.tolist()) == {-1, 0, 1}
    assert len(moved) == 2 * len(STATISTICS)


@pytest.mark.parametrize(("threshold", "still_hard"), [(50, 0.99), (500, 0.9)])
def test_answers_of_multiplicative_weights_are_off_by_the_threshold_at_most(monkeypatch, threshold, still_hard):
    certain(monkeypatch)
    answers, hard = stream.multiplicative_weights(ROWS, STATISTICS, len(STATISTICS), threshold)
    true = stream.truth(ROWS, STATISTICS)
    assert abs(answers - true).max() <= threshold
    # A guess that learns has fewer hard statistics than the first one, which is that all cells are alike.
    assert 0 < hard < still_hard * (abs(true - ROWS.height // 2) >= threshold).sum()


def test_after_the_hard_statistics_the_guess_answers(monkeypatch):
    certain(monkeypatch)
    same = np.repeat(STATISTICS[:1], 3, axis=0)
    answers, hard = stream.multiplicative_weights(ROWS, same, 1, 1)
    assert hard == 1
    # What was published answers the same statistic again. It is rounded down, so it may be off by one.
    assert len(set(answers.tolist())) == 1
    assert abs(answers[0] - stream.truth(ROWS, same)[0]) <= 1


def test_truth_is_what_polars_counts():
    asked = np.flatnonzero(STATISTICS[3]).tolist()
    assert len(asked) == stream.SMALL.cells // 2
    assert stream.truth(ROWS, STATISTICS)[3] == ROWS.filter(pl.col("cell").is_in(asked)).height


@pytest.mark.slow
def test_the_cube_errs_least_where_statistics_are_many():
    settings = stream.by_setting(stream.SMALL)
    assert settings.height == len(stream.SMALL.lengths) * len(stream.HARD) * len(stream.THRESHOLDS)
    assert (settings["hard"] <= settings.select(pl.min_horizontal("hard at most", "statistics")).to_series()).all()
    errors = stream.by_length(stream.SMALL, settings)
    assert errors["way"].unique(maintain_order=True).to_list() == ["fresh noise", stream.BEST, "cube"]
    fresh, weights, cube = (errors.filter(way=way)["error"].to_numpy() for way in ("fresh noise", stream.BEST, "cube"))
    lengths = np.array(stream.SMALL.lengths)
    # Noise of scale m: its mean is nearly m. These means are off by some 5 %.
    assert 0.7 < (fresh / lengths).mean() < 1.4
    # The sum of 50 noises, whose variance is 1/(cosh ε − 1): nearly normal, and off by √(2/π) deviations on average.
    expected = np.sqrt(50 / (np.cosh(1) - 1) * 2 / np.pi)
    assert 0.7 < cube.mean() / expected < 1.4
    assert cube[-1] < fresh[-1] / 5 < fresh[-1] < weights[-1]


def test_the_table_and_the_figure(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(stream, "SMALL", stream.Size(2000, 10, 20, (10, 20)))
    out = tmp_path / "stream.png"
    monkeypatch.setattr(sys, "argv", ["stream.py", "--small", "--out", str(out)])
    stream.main()
    said = capsys.readouterr().out
    assert re.search(r"statistics +┆ fresh noise +┆ multiplicative weights, best setting +┆ cube", said)
    assert "multiplicative weights, 20 statistics:" in said
    assert out.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert out.stat().st_size > 10_000


@pytest.mark.slow
def test_the_page_shows_what_comes_out(monkeypatch):
    page = (ROOT / "docs" / "paper.md").read_text()
    shown = {
        int(row[0].replace(",", "")): [float(cell.replace(",", "")) for cell in row[1:]]
        for row in re.findall(r"^\| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \| ([\d,]+) \|$", page, re.MULTILINE)
    }
    assert tuple(shown) == stream.FULL.lengths
    (hard,) = re.findall(r"The best setting for 2,000 queries: at most (\d+) hard ones, a threshold of ([\d,]+)", page)
    monkeypatch.setattr(stream, "HARD", (int(hard[0]),))
    monkeypatch.setattr(stream, "THRESHOLDS", (int(hard[1].replace(",", "")) / stream.FULL.rows,))
    size = stream.FULL._replace(lengths=(2000,))
    found = stream.by_length(size, stream.by_setting(size))["error"].to_list()
    # Fresh noise is off by 1 % here, the others by some 10 %.
    assert all(there / 2 < here < there * 2 for here, there in zip(found, shown[2000], strict=True))
