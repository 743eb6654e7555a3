"""Figures of cubes."""

import polars as pl
import pytest

from tests.helpers.needs import need
from tests.helpers.refusals import refused

need("altair")

from dp_polars import plot

ROWS = pl.DataFrame({"ward": ["A", "B", "C"] * 200, "year": [2024] * 300 + [2025] * 300})
DIMENSIONS = {"ward": ["C", "A", "B", "D"], "year": [2023, 2024, 2025]}


@pytest.fixture(scope="module")
def cube():
    return ROWS.dp.protect(None).cube(DIMENSIONS, epsilon=0.5).release()


def points(chart):
    (values,) = chart.to_dict()["datasets"].values()
    return values


def test_a_panel_for_each_combination_with_the_numbers_and_their_ranges(cube):
    chart = plot.cube(cube, "year", by="ward")
    found = [(one["panel"], one["place"], one["number"], one["low"], one["high"]) for one in points(chart)]
    assert found == [(ward, str(year), *numbers) for ward, year, *numbers in cube.counts(by=["ward", "year"]).rows()]
    assert chart.to_dict()["facet"]["sort"] == ["C", "A", "B", "D"]
    text = str(chart.to_dict())
    assert "one person per row, add_or_remove_one, epsilon=0.5" in text
    assert "number of rows" in text


def test_shares_filters_and_panels_that_are_left_out(cube):
    chart = plot.cube(cube, "ward", pl.col("year") > 2023, by=["year"], share=pl.col("ward") == "A", most=2)
    assert "The first 2 of 3 panels." in str(chart.to_dict())
    # Of 2023 nothing is left, and so no share is known.
    assert {one["panel"] for one in points(chart)} == {"2024"}
    assert [one["number"] for one in points(chart)][:2] == [0.0, 1.0]


def test_one_panel_and_a_picture(cube, tmp_path):
    chart = plot.cube(cube, "ward")
    assert [one["place"] for one in points(chart)] == DIMENSIONS["ward"]
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


def test_counts_are_of_what_passes_the_filters(cube):
    chart = plot.cube(cube, "ward", pl.col("year") > 2024)
    expected = cube.counts(pl.col("year") > 2024, by=["ward"])
    assert [one["number"] for one in points(chart)] == expected.to_series(1).to_list()
    assert expected.to_series(1).to_list() != cube.counts(by=["ward"]).to_series(1).to_list()
