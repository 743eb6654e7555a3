"""Publications from Spark: one charge for all queries, and a folder for each."""

import re

import polars as pl
import pytest

import dp_polars as dpp
from tests.spark.tools import MARKS, need_spark, on_both, to_polars, to_spark

need_spark()

pytestmark = [*MARKS, on_both]

VISITS = pl.DataFrame(
    {"patient": [number // 3 for number in range(900)], "ward": ["A", "B", "C"] * 300, "month": [1, 2, 3] * 300}
)


def publication(budget=None, dataset=None, **loss):
    private = dpp.protect("patient", max_groups=3, max_rows_per_group=1, budget=budget, dataset=dataset)
    return dpp.publication(
        by_ward=private.group_by({"ward": ["A", "B", "C"]}).agg(people=dpp.n_people(**loss)),
        by_month=private.group_by({"month": [1, 2, 3]}).agg(rows=dpp.len(**loss)),
        in_all=private.agg(month=dpp.median("month", range(1, 13), **loss)),
    )


@pytest.mark.parametrize("where", ["few_tasks", "on_executors"])
def test_each_query_has_its_frame_and_its_folder(spark, tmp_path, request, where):
    request.getfixturevalue(where)
    frame, half = to_spark(spark, VISITS), to_spark(spark, VISITS.head(450))
    asked = publication(epsilon=10**6)
    tables = {"by_ward": frame, "by_month": half, "in_all": frame}
    released = dpp.spark.release(asked, tables, path=tmp_path / "out", ranges=True)
    assert to_polars(released["by_ward"]).sort("ward").rows() == [(ward, 300, 300, 300) for ward in "ABC"]
    assert to_polars(released["by_month"])["rows"].to_list() == [150] * 3
    for name, answers in released.items():
        written = pl.read_parquet(tmp_path / "out" / name / "*.parquet")
        assert written.sort(written.columns).equals(to_polars(answers).sort(written.columns))
    with pytest.raises(ValueError, match="must have the names of the queries"):
        dpp.spark.release(asked, {"by_ward": frame})
    odd = dpp.publication({"../by": asked.queries["in_all"]})
    with pytest.raises(ValueError, match="names of queries must be identifiers"):
        dpp.spark.release(odd, frame, path=tmp_path / "out")


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
            median=dpp.median("month", range(1, 13), interval=0.9, **huge),
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
        ("polars", asked.release(VISITS, ranges=True)),
        ("spark", dpp.spark.release(asked, to_spark(spark, VISITS), path=tmp_path / "out", ranges=True)),
    ):
        asked.report(tmp_path / f"{name}.html", name="Visits")
        dpp.report(released["by_ward"], asked.queries["by_ward"], tmp_path / f"{name} alone.html")
    for of in ("", " alone"):
        page, other = (_without_figures(tmp_path / f"{name}{of}.html") for name in ("polars", "spark"))
        assert page.splitlines() == other.splitlines()
        assert page.count("<tr>") > 3


def _without_figures(path):
    """A page without its figures, whose marks have numbers of their own."""
    return re.sub(r"<svg[\s\S]*?</svg>", "", path.read_text(encoding="utf-8"))


def test_it_is_charged_as_one_and_kept_for_each(spark, few_tasks, tmp_path):
    VISITS.write_parquet(tmp_path / "visits.parquet")
    frame = spark.read.parquet(str(tmp_path / "visits.parquet"))
    budget = dpp.Budget(epsilon=1, delta=1e-6, path=tmp_path / "ledger.db")
    asked = publication(budget, "visits").scaled_to(epsilon=1, delta=1e-6)
    released = {name: to_polars(one) for name, one in dpp.spark.release(asked, frame).items()}
    again = {name: to_polars(one) for name, one in dpp.spark.release(asked, frame).items()}
    assert all(released[name].sort("*").equals(again[name].sort("*")) for name in released)
    assert budget.remaining == 0
    assert budget.log()["what"].str.split(":").list.first().to_list() == ["by_ward", "by_month", "in_all"]
    with pytest.raises(dpp.BudgetExceededError):
        dpp.spark.release(asked, frame, fresh=True)


def test_where_the_third_fails_all_is_charged_and_nothing_is_kept(spark, few_tasks, tmp_path):
    frame, budget = to_spark(spark, VISITS), dpp.Budget(epsilon=1, delta=1e-6, path=tmp_path / "ledger.db")
    asked = publication(budget, "visits").scaled_to(epsilon=1, delta=1e-6)
    failing = frame.selectExpr("patient", "ward", "if(patient = 7, raise_error('secret'), month) AS month")
    with pytest.raises(dpp.ReleaseError) as error:
        dpp.spark.release(asked, {"by_ward": frame, "by_month": frame, "in_all": failing})
    assert "secret" not in str(error.value)
    assert budget.log().height == 3
    assert budget.answers().is_empty()
    assert asked.last is None


ROWS = pl.DataFrame(
    {
        "p": [i % 70 for i in range(700)],
        "g": [["A", "B", "Z", None][i % 4] for i in range(700)],
        "y": [2020 + i % 7 % 3 for i in range(700)],
    }
)
DIMENSIONS = {"g": ["B", "A", "C"], "y": [2022, 2020]}


@pytest.mark.usefixtures("few_tasks")
def test_a_cube_is_that_of_polars(spark, tmp_path):
    rows = to_spark(spark, ROWS, "p long, g string, y long")
    for tables in (None, [("y",), ("g",), ()], [("y", "g")]):
        # 10 rows of each person, at most: none is dropped.
        loss = {"rho": 10**7} if tables else {"epsilon": 10**5}
        query = dpp.protect("p", max_rows=10).cube(DIMENSIONS, counts="rows", tables=tables, **loss)
        cube, there = dpp.spark.release(query, rows), query.release(ROWS)
        assert isinstance(cube, dpp.Cube)
        assert cube.to_frame().equals(there.to_frame())
        assert cube.counts(by="y")["count"].sum() == cube.count().value > 200
        assert repr(cube) == repr(there)
        assert cube.counts(by="y").equals(there.counts(by="y"))
    budget = dpp.Budget(rho=10, path=tmp_path / "ledger.db")
    kept = dpp.protect("p", max_groups=1, budget=budget, dataset="rows").cube(
        DIMENSIONS, rho=1, tables=[("g",), ("y",)]
    )
    rows.write.parquet(str(tmp_path / "rows"))
    rows = spark.read.parquet(str(tmp_path / "rows"))
    first, again = (dpp.spark.release(kept, rows) for _ in range(2))
    assert first.to_frame().equals(again.to_frame())
    assert first.count() == again.count()
    for wrong in ({"ranges": True}, {"path": str(tmp_path / "answers")}):
        with pytest.raises(ValueError, match="must be left out"):
            dpp.spark.release(kept, rows, **wrong)
    assert budget.spent == 1
    people = dpp.protect("p", max_groups=1).cube(DIMENSIONS, epsilon=10**5)
    assert dpp.spark.release(people, rows).count().value == 50  # the others have a year that is not listed
    few = dpp.protect("p", max_groups=2, max_rows_per_group=1)
    some = dpp.spark.release(few.cube(DIMENSIONS, counts="rows", tables=[("g",), ("y",)], rho=10**9), rows)
    own = ROWS.filter(pl.col("g").is_in(["A", "B", "C"]), pl.col("y").is_in([2022, 2020]))
    kept = own.unique().group_by("p").agg(pl.len().clip(upper_bound=2))["len"].sum()
    assert some.counts(by="g")["count"].sum() == some.counts(by="y")["count"].sum() == kept
    every_row = dpp.protect(None).cube({"g": ["A", "B"]}, epsilon=10**5)
    assert dpp.spark.release(every_row, rows).counts(by="g")["count"].to_list() == [175, 175]
