"""Figures to plan by: what they hold, and that they render."""

import polars as pl
import pytest

from tests.helpers.needs import need

need("altair")
need("vl_convert")

import dp_polars as dpp
from dp_polars import analysis, plot

QUERY = (
    dpp.protect("patient", max_groups=1, max_rows_per_group=2)
    .group_by({"ward": ["A", "B"]})
    .agg(
        people=dpp.n_people(within=10),
        top=dpp.mode("reason", ["fall", "flu"], within=10),
        days=dpp.mean("days", 0, 30, step=1, epsilon=1),
    )
)
VISITS = pl.DataFrame({"p": [1, 1, 1, 2, 2, 3], "w": ["A", "A", "B", "A", "B", "C"]})


def points(chart):
    (frame,) = chart.to_dict()["datasets"].values()
    return pl.DataFrame(frame)


def drawn(chart, path):
    chart.save(path / "figure.png")
    return (path / "figure.png").read_bytes()[:4] == b"\x89PNG"


def test_errors_by_size_are_drawn_in_percent(tmp_path):
    errors = analysis.error_by_size(QUERY, [50, 100, 1_000_000])
    chart = plot.error_by_size(errors)
    shown = points(chart)
    assert shown.filter(output="people")["relative"].to_list() == pytest.approx([20, 10, 0.1])
    assert shown.filter(output="days")["relative"].to_list()[:2] == pytest.approx(
        (errors.filter(output="days")["relative"] * 100).to_list()[:2]
    )
    assert chart.to_dict()["layer"][0]["encoding"]["x"]["axis"]["title"] == "people or rows in the group"
    assert drawn(chart, tmp_path)


def test_what_is_not_known_is_left_out():
    bare = dpp.protect("patient", max_groups=1).agg(dpp.mode("ward", epsilon=1), dpp.n_people(epsilon=1))
    assert points(plot.error_by_size(analysis.error_by_size(bare, [10, 20])))["output"].unique().to_list() == [
        "n_people"
    ]


def test_the_right_top_is_drawn_by_its_lead(tmp_path):
    law = analysis.best_by_gap(QUERY, range(0, 40, 4))
    chart = plot.best_by_gap(law, width=200)
    assert points(chart)["probability"].to_list() == pytest.approx((law["probability"] * 100).to_list())
    assert chart.to_dict()["width"] == 200
    assert drawn(chart, tmp_path)


def test_dropped_rows_have_a_line_for_each_bound_on_groups(tmp_path):
    shares = analysis.dropped(VISITS, "p", by="w", max_groups=[1, 2, None], max_rows_per_group=[1, 2, None])
    shown = points(plot.dropped(shares))
    assert shown["line"].unique(maintain_order=True).to_list() == ["1 group", "2 groups", "all groups"]
    assert shown["max_rows_per_group"].to_list() == [1, 2] * 3
    assert shown["rows_dropped"].to_list() == pytest.approx(
        (shares.drop_nulls("max_rows_per_group")["rows_dropped"] * 100).to_list()
    )
    assert drawn(plot.dropped(shares), tmp_path)


@pytest.mark.parametrize("name", ["error_by_size", "best_by_gap", "dropped"])
def test_other_frames_are_refused(name):
    with pytest.raises(ValueError, match=rf"must have the columns of dp_polars.analysis.{name}, it lacks"):
        getattr(plot, name)(pl.DataFrame({"x": [1]}))
