"""A column or an output with an empty name, as pandas writes an index into a CSV, is one like any other."""

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import dp_polars as dpp
from dp_polars._publish.plan import Plan, Statistic, draft
from dp_polars._release.public_keys import public_keys
from tests.helpers.needs import need

SURE = 10**6
col = pl.col
ROWS = pl.DataFrame(
    {
        "who": [number // 2 for number in range(400)],
        "ward": ["a", "b"] * 200,
        "days": [number % 5 for number in range(400)],
        "ill": [number % 3 == 0 for number in range(400)],
        "parts": [[1, 2]] * 400,
    }
)
BEDS = pl.DataFrame({"ward": ["a", "b"], "beds": [10, 20]})

# What is asked of a private frame, of public beds and of what a column is called there.
ASKED = {
    "keys": lambda p, _, n: p.group_by({n("ward"): ["a", "b"]}).agg(rows=dpp.len(epsilon=SURE)),
    "a frame of keys": lambda p, _, n: p.group_by(BEDS.select(col("ward").alias(n("ward")))).agg(
        people=dpp.n_people(epsilon=SURE)
    ),
    "a mean": lambda p, _, n: p.agg(x=dpp.mean(n("days"), 0, 9, epsilon=SURE)),
    "a sum, named by its column": lambda p, _, n: p.agg(dpp.sum(n("days"), 0, 9, epsilon=SURE)),
    "deviations": lambda p, _, n: p.agg(x=col(n("days")).dp.std(0, 9, epsilon=SURE)),
    "counts": lambda p, _, n: p.agg(x=dpp.count(n("days"), epsilon=SURE), y=dpp.null_count(n("days"), epsilon=SURE)),
    "conditions": lambda p, _, n: p.agg(
        x=dpp.len(where=n("ill"), epsilon=SURE), y=dpp.share(col(n("days")) == 2, epsilon=SURE)
    ),
    "value counts": lambda p, _, n: p.agg(x=dpp.value_counts(n("days"), [0, 1, 2], epsilon=SURE)),
    "a mode": lambda p, _, n: p.agg(x=dpp.mode(n("ill"), [True, False], epsilon=SURE)),
    "a median": lambda p, _, n: p.agg(x=dpp.median(n("days"), range(9), epsilon=SURE)),
    "weights": lambda p, _, n: p.agg(
        x=dpp.mode(n("ill"), [True, False], counts=dpp.weights(n("days"), max_weight=5), epsilon=SURE)
    ),
    "several": lambda p, _, n: p.with_columns(more=col(n("days"))).agg(
        col(n("days"), "more").dp.mean(0, 9, epsilon=SURE)
    ),
    "a filter": lambda p, _, n: p.agg(x=col(n("days")).filter(col(n("ward")) == "a").dp.mean(0, 9, epsilon=SURE)),
    "steps": lambda p, _, n: (
        p.filter(col(n("days")) > 1)
        .with_columns(y=col(n("days")) + 1)
        .select(n("days"), "y")
        .drop_nulls(n("days"))
        .agg(x=dpp.mean("y", 0, 9, epsilon=SURE))
    ),
    "a new name": lambda p, _, n: p.rename({n("days"): "other"}).agg(x=dpp.mean("other", 0, 9, epsilon=SURE)),
    "a column left out": lambda p, _, n: p.drop(n("days")).agg(x=dpp.len(epsilon=SURE)),
    "another type": lambda p, _, n: p.cast({n("days"): pl.Int16}).agg(x=dpp.mean(n("days"), 0, 9, epsilon=SURE)),
    "elements": lambda p, _, n: p.explode(n("parts")).agg(x=dpp.mean(n("parts"), 0, 9, epsilon=SURE)),
    "a public table": lambda p, beds, n: p.join(beds, on=n("ward"), how="left").agg(
        x=dpp.mean(n("beds"), 0, 30, epsilon=SURE)
    ),
    "a public table by another name": lambda p, beds, n: p.join(
        beds.rename({n("ward"): "there"}), left_on=n("ward"), right_on="there", how="inner"
    ).agg(x=dpp.mean(n("beds"), 0, 30, epsilon=SURE)),
    "keys that are found": lambda p, _, n: p.keys(n("ward"), epsilon=20, delta=1e-5),
    "keys of two columns": lambda p, _, n: p.keys(n("ward"), n("ill"), rho=20, delta=1e-5),
}


def asked(name, unnamed):
    def named(column):
        return "" if column == unnamed else column

    rows, beds = (one.rename(named) for one in (ROWS, BEDS))
    return ASKED[name](rows.dp.protect(named("who"), max_rows=2, max_groups=2, max_rows_per_group=2), beds, named)


@pytest.mark.parametrize("unnamed", ["who", "ward", "days", "ill", "parts", "beds"])
@pytest.mark.parametrize("name", ASKED)
def test_an_empty_name_changes_no_answer(name, unnamed):
    right, found = (asked(name, one).release() for one in (None, unnamed))
    right = right.rename({unnamed: ""}, strict=False)
    assert_frame_equal(found, right, abs_tol=0.1, check_row_order=not name.startswith("keys of two"))


def private(**limits):
    return ROWS.rename({"ward": ""}).dp.protect("who", **(limits or {"max_rows": 2, "max_groups": 1}))


def test_an_output_may_have_no_name(tmp_path):
    budget = dpp.Budget(epsilon=9, path=tmp_path / "ledger.db")
    query = ROWS.dp.protect("who", max_rows=2, budget=budget).agg(**{"": dpp.mean("days", 0, 9, epsilon=1)})
    assert query.release(intervals=True).columns == ["", "_low", "_high"]
    assert "\n''  " in str(query.explain())
    assert "\n'': " in str(query.explain())
    assert dpp.statement(budget).to_markdown()
    by_alias = ROWS.dp.protect("who", max_rows=2).agg(dpp.mean("days", 0, 9, epsilon=1).alias(""))
    assert by_alias.release().columns == [""]


def test_a_dimension_of_a_cube_may_have_no_name(tmp_path):
    dimensions = {"": ["a", "b"], "days": range(5)}
    cube = private().cube(dimensions, rho=SURE).release()
    assert cube.counts(by="").columns[0] == ""
    cube.write(tmp_path / "cube.parquet")
    again = dpp.read_cube(tmp_path / "cube.parquet")
    assert_frame_equal(again.counts(by=["", "days"]), cube.counts(by=["", "days"]))
    tables = private().cube(dimensions, tables=[[""], ["days"], []], rho=1).explain()
    assert tables["output"].to_list() == ["count by ''", "count by 'days'", "count of all"]


def test_files_and_arrow_keep_an_empty_name(tmp_path):
    query = private().group_by({"": ["a", "b"]}).agg(people=dpp.n_people(epsilon=SURE))
    query.sink_parquet(tmp_path / "answers.parquet")
    assert pl.read_parquet(tmp_path / "answers.parquet").columns == ["", "people"]
    keys = BEDS.select(col("ward").alias(""))
    assert public_keys(keys.to_arrow()).columns == public_keys(keys).columns == [""]
    ROWS.drop("parts").rename({"who": ""}).write_csv(tmp_path / "rows.csv")
    scan = pl.scan_csv(tmp_path / "rows.csv").dp.protect("", max_rows=2)
    assert scan.agg(dpp.sum("days", 0, 9, epsilon=SURE)).release().item() == ROWS["days"].sum()


def test_what_is_made_before_protect_may_have_no_name():
    rows = ROWS.lazy().rename({"who": ""})
    totals = rows.group_by("").agg(col("days").sum())
    for plan in (
        totals,
        rows.join(totals.select("", total="days"), on="").group_by("").agg(days=col("total").first()),
        rows.with_columns(days=col("days").sum().over("")).unique(""),
        rows.rename({"": "q"})
        .join(totals.rename({"": "q"}), on="q", suffix="_all")
        .unique("q")
        .drop("days")
        .rename({"days_all": "days"}),
    ):
        unit = "q" if "q" in plan.collect_schema() else ""
        query = plan.dp.protect(unit, max_rows=1).agg(dpp.sum("days", 0, 8, epsilon=SURE))
        assert query.release().item() == ROWS["days"].sum()


def test_plots_and_reports_show_what_has_no_name(tmp_path):
    need("altair")
    query = private().group_by({"": ["a", "b"]}).agg(mean=dpp.mean("days", 0, 9, epsilon=1))
    of_all = private().agg(**{"": dpp.mean("days", 0, 9, epsilon=1)})
    for one in (query, of_all):
        assert dpp.plot.answers(one.release(), one).to_dict()
        assert dpp.report(one.release(), one, tmp_path / "report.html").exists()
    cube = private().cube({"": ["a", "b"], "days": range(5)}, rho=1).release()
    assert dpp.plot.cube(cube, "days", by="").to_dict()


def test_the_planner_asks_about_what_has_no_name(tmp_path, monkeypatch):
    schema = ROWS.rename({"who": "", "days": "days"}).drop("parts").schema
    by_unit = Plan(
        schema, unit="", keys={"ward": "a\nb"}, values={"days": "0..9"}, statistics={Statistic("mean", "days"): 1}
    )
    other = ROWS.rename({"days": ""}).drop("parts").schema
    asked = Plan(other, unit="who", keys={"ward": "a\nb"}, values={"": "0..9"}, statistics={Statistic("mean", ""): 1})
    keys = ROWS.rename({"ward": ""}).drop("parts").schema
    by_key = Plan(
        keys, unit="who", keys={"": "a\nb"}, values={"days": "0..9"}, statistics={Statistic("mean", "days"): 1}
    )
    for number, plan in enumerate((by_unit, asked, by_key)):
        drafted = draft(plan)
        assert not drafted.messages
        (tmp_path / f"{number}").mkdir()
        monkeypatch.chdir(tmp_path / f"{number}")  # where the code makes its ledger
        exec(compile(drafted.code, "planned", "exec"), {})


def test_a_database_reads_no_column_without_a_name():
    ibis = need("ibis")
    need("duckdb")
    from dp_polars import sql

    table = ibis.duckdb.connect().create_table("rows", ROWS.drop("parts").to_arrow())
    named = sql.release(dpp.protect("who", max_rows=2).agg(**{"": dpp.len(epsilon=SURE)}), table)
    assert named.columns == [""]
    budget = dpp.Budget(epsilon=9)
    for column, unit, keys in (("who", "", {}), ("ward", "who", {"": ["a"]})):
        private = dpp.protect(unit, max_rows=2, max_groups=1, budget=budget)
        query = (private.group_by(keys) if keys else private).agg(dpp.len(epsilon=1))
        with pytest.raises(ValueError, match=r'(?s)must have a name.*Hint: table\.rename\(place=""\)'):
            sql.release(query, table.rename({"": column}))
    assert budget.spent == 0


def test_tables_of_other_packages_keep_an_empty_name():
    query = dpp.protect("", max_rows=2).agg(dpp.sum("days", 0, 9, epsilon=SURE))
    rows = ROWS.drop("parts").rename({"who": ""})
    need("pandas")
    for table in (rows.to_arrow(), rows.to_pandas()):
        assert query.release(table).item() == ROWS["days"].sum()
