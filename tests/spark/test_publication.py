"""Publications from Spark: what every door does, a folder for each query, and reports."""

import itertools
import re

import polars as pl
import pytest

import dp_polars as dpp
from tests.engines.publications import DIMENSIONS, ROWS, VISITS, Publications, publication
from tests.spark.tools import MARKS, need_spark, on_both, to_polars, to_spark

need_spark()

pytestmark = [*MARKS, on_both]
NUMBERS = itertools.count()


@pytest.mark.usefixtures("few_tasks")
class TestSpark(Publications):
    door = dpp.spark

    @pytest.fixture(autouse=True)
    def _session(self, spark, tmp_path):
        self.spark, self.folder = spark, tmp_path

    def table(self, frame):
        """From a file: only of what has a text answers are cached."""
        path = str(self.folder / f"{next(NUMBERS)}.parquet")
        frame.write_parquet(path)
        return self.spark.read.parquet(path)

    def to_polars(self, released):
        return to_polars(released)


@pytest.mark.parametrize("where", ["few_tasks", "on_executors"])
def test_each_query_has_its_folder(spark, tmp_path, request, where):
    request.getfixturevalue(where)
    frame, half, asked = to_spark(spark, VISITS), to_spark(spark, VISITS.head(450)), publication(epsilon=10**6)
    tables = {"by_ward": frame, "by_month": half, "in_all": frame}
    released = dpp.spark.release(asked, tables, path=tmp_path / "out", intervals=True)
    assert to_polars(released["by_month"])["rows"].to_list() == [150] * 3
    for name, answers in released.items():
        written = pl.read_parquet(tmp_path / "out" / name / "*.parquet")
        assert written.sort(written.columns).equals(to_polars(answers).sort(written.columns))
    odd = dpp.publication({"../by": asked.queries["in_all"]})
    with pytest.raises(ValueError, match="names of queries must be identifiers"):
        dpp.spark.release(odd, frame, path=tmp_path / "out")
    cube = dpp.protect("p", max_groups=1).cube(DIMENSIONS, rho=1)
    with pytest.raises(ValueError, match="must be left out"):
        dpp.spark.release(cube, to_spark(spark, ROWS), path=str(tmp_path / "answers"))


@pytest.mark.parametrize("where", ["few_tasks", "on_executors"])
def test_a_report_shows_what_spark_released_as_what_polars_did(spark, tmp_path, request, where, monkeypatch):
    """Of every kind of answer; what is nearly certain is the same on both."""
    request.getfixturevalue(where)
    huge = {"epsilon": 10**9}
    private = dpp.protect("patient", max_groups=3, max_rows_per_group=1)
    by_ward = private.group_by({"ward": ["A", "B", "C"]})
    asked = dpp.publication(
        by_ward=by_ward.agg(
            people=dpp.n_people(**huge),
            median=dpp.median("month", range(1, 13), confidence=0.9, **huge),
            ends=dpp.quantile("month", [0.1, 0.9], range(1, 13), **huge),
            top=dpp.mode("ward", ["B", "A", "C"], **huge),
            counts=dpp.value_counts("ward", ["A", "B", "C"], **huge),
            mean=dpp.mean("month", 0, 8, **huge),
            total=dpp.sum("month", 0, 8, **huge),
        ),
        wards=private.keys("ward", epsilon=10**3, delta=0.1),
        in_all=private.agg(rows=dpp.len(**huge)),
    )
    for name, released in (
        ("polars", asked.release(VISITS, intervals=True)),
        ("spark", dpp.spark.release(asked, to_spark(spark, VISITS), path=tmp_path / "out", intervals=True)),
    ):
        dpp.report(released, asked, tmp_path / f"{name}.html", name="Visits")
        dpp.report(released["by_ward"], asked.queries["by_ward"], tmp_path / f"{name} alone.html")
    for of in ("", " alone"):
        page, other = (_without_figures(tmp_path / f"{name}{of}.html") for name in ("polars", "spark"))
        assert page.splitlines() == other.splitlines()
        assert page.count("<tr>") > 3


def _without_figures(path):
    """A page without its figures, whose marks have numbers of their own."""
    return re.sub(r"<svg[\s\S]*?</svg>", "", path.read_text(encoding="utf-8"))


def test_where_the_third_fails_all_is_charged_and_nothing_is_cached(spark, few_tasks, tmp_path):
    frame, budget = to_spark(spark, VISITS), dpp.Budget(epsilon=1, delta=1e-6, path=tmp_path / "ledger.db")
    asked = publication(budget, "visits").scaled_to(epsilon=1, delta=1e-6)
    failing = frame.selectExpr("patient", "ward", "if(patient = 7, raise_error('secret'), month) AS month")
    with pytest.raises(dpp.ReleaseError) as error:
        dpp.spark.release(asked, {"by_ward": frame, "by_month": frame, "in_all": failing})
    assert "secret" not in str(error.value)
    assert budget.log().height == 4
    assert budget.answers().is_empty()
