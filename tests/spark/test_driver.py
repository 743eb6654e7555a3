"""Small histograms of Spark come to the driver, which draws."""

import polars as pl
import pytest
from polars import selectors as cs
from polars.testing import assert_frame_equal

import dp_polars as dpp
from dp_polars._release.protection import Limits
from tests.helpers.specs import spec_of
from tests.spark.tools import MARKS, need_spark, on_both, to_polars, to_spark

need_spark()

import dp_polars.spark
from dp_polars._engines.spark import counting as _counting
from dp_polars._engines.spark import rows as _tables

pytestmark = [*MARKS, on_both, pytest.mark.usefixtures("few_tasks")]

ROWS = pl.DataFrame(
    {
        "p": [i // 4 for i in range(800)],
        "g": [["A", "B", "Z", None][i // 4 % 4] for i in range(800)],
        "x": [0.5 + i * i % 7 for i in range(800)],
    }
)
DDL = "p long, g string, x double"
POINTS = [0.5, 1.7, 2.0, 4.9, 6.5]  # no steps: only Python has their codes


@pytest.fixture
def drawn_by(monkeypatch):
    """Where releases were drawn, as they come."""
    found = []

    def spy(name, where):
        original = getattr(dp_polars.spark, name)

        def spied(*args):
            found.append(where)
            return original(*args)

        monkeypatch.setattr(dp_polars.spark, name, spied)

    spy("drawing", "executors")
    spy("_collecting", "driver")
    return found


def test_where_it_is_drawn_changes_no_answer(spark, tmp_path, monkeypatch, drawn_by):
    """That follows from the numbers of groups and candidates: 3 groups of 5 + 1 + 1 cells are 21."""
    query = (
        dpp.protect("p", max_groups=1, max_rows_per_group=4)
        .group_by({"g": ["B", "A", "C"]})
        .agg(
            dpp.median("x", POINTS, epsilon=10**5),
            total=dpp.sum("x", 0, 8, step=0.5, epsilon=10**5),
            people=dpp.n_people(epsilon=10**5),
        )
    )
    answers = []
    for most in (21, 20):
        monkeypatch.setattr(dp_polars.spark, "_MOST_CELLS", most)
        released = dpp.spark.release(query, to_spark(spark, ROWS, DDL), path=tmp_path / f"{most}", intervals=True)
        answers.append(to_polars(released).sort("g"))
        assert answers[-1]["x"][-1] in POINTS  # of nobody, at random
    assert drawn_by == ["driver", "executors"]
    ends = cs.ends_with("_low", "_high")  # of noise in parts, each rounded outward
    one, other = (answer.with_columns(x=pl.when(pl.col("people") > 0).then("x")) for answer in answers)
    assert_frame_equal(one.select(~ends), other.select(~ends))
    assert_frame_equal(one.select(ends.cast(float)), other.select(ends.cast(float)), abs_tol=1, rel_tol=0)
    assert answers[0]["people"].to_list() == [50, 50, 0]
    totals = [ROWS.filter(g=group)["x"].sum() for group in "ABC"]
    assert answers[0]["total"].to_list() == totals


@pytest.mark.parametrize("unit", [None, "p"])
def test_each_cell_comes_to_the_driver_once(spark, monkeypatch, unit):
    """Also where few rows would be shuffled uncounted, and where Python codes them in several batches."""
    monkeypatch.setattr(_counting, "_are_few", lambda *_: True)
    rows = to_spark(spark, ROWS, DDL).repartition(5)
    limits = Limits() if unit is None else Limits(groups=1)
    median, mode = dpp.median("x", POINTS, epsilon=1).query, dpp.mode("g", ["A", "B"], epsilon=1).query
    specs = [spec_of(ROWS, "x", median, limits), spec_of(ROWS, "g", mode, limits)]
    parts = _counting.histograms(rows, unit and (unit,), _tables.Groups.of(rows, None), specs, 0, to_driver=True)
    cells = pl.concat(map(to_polars, parts))
    assert len(cells) == cells.select("spec", "group", "code").n_unique() == 4 + 2
    assert cells.filter(spec=0)["count"].sum() == 800
