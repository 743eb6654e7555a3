"""From what was picked to a query, to messages at fields, and to code that runs as it stands."""

import datetime as dt
import math
import os
import re
import subprocess
import sys
import warnings
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import polars as pl
import pytest

import dp_polars as dpp
from tests.helpers.needs import need

need("altair")
need("vl_convert")

from dp_polars._publish import page
from dp_polars._publish.plan import (
    DELTAS,
    EPSILONS,
    PARTS,
    Draft,
    Plan,
    Written,
    as_code,
    at_known_limits,
    call,
    draft,
    dropped_by_limits,
    ends,
    field_of,
    laid_out,
    one,
    several,
    short,
    values_field_of,
)
from dp_polars._publish.schema import DEMO, Statistic, likely_unit, months_of, more_of, own_values, statistics_of
from dp_polars.analysis import size_needed

WARD, ODD = pl.Enum(["north", "south"]), 'it\'s "odd" {x}'
# By name: the type of a column, and its public values as they are written.
COLUMNS = {
    "patient": (pl.Int64(), None),
    "ward": (WARD, own_values(WARD)),
    "diagnosis": (pl.String(), "flu\nit's \"none\"\n'null'"),
    "kind": (pl.Categorical(), "a b c\nd"),
    "age": (pl.Int16(), "0..120"),
    "days": (pl.Float64(), "0..30 by 0.5"),
    "cost": (pl.Decimal(12, 2), "0..500 by 0.01"),
    "smoker": (pl.Boolean(), own_values(pl.Boolean())),
    "admitted": (pl.Date(), "2026-01-01..2026-12-31"),
    "seen": (pl.Datetime("us", "UTC"), "2026-01-01..2026-12-31 by 1d"),
    "class": (pl.Int8(), "1..5"),
    ODD: (pl.String(), "back\\slash\n{brace}"),
    "tags": (pl.List(pl.String()), None),
}
SCHEMA = pl.Schema({name: dtype for name, (dtype, _) in COLUMNS.items()})
VALUES = {name: values for name, (_, values) in COLUMNS.items() if values is not None}


def rows(height=600):
    """Rows of that schema, with nulls and with values and groups that are on no list."""
    number = pl.int_range(height, eager=True)
    frame = pl.DataFrame(
        {
            "patient": number // 3, "ward": ["north", "south", None] * (height // 3),
            "diagnosis": ["flu", 'it\'s "none"', "cancer"] * (height // 3), "kind": ["a b c", "d"] * (height // 2),
            "age": number % 99, "days": (number % 61) / 2, "cost": number % 700, "smoker": number % 2 == 0,
            "admitted": [dt.date(2026, 3, 1) + dt.timedelta(int(day) % 200) for day in number],
            "seen": [dt.datetime(2026, 3, 1) + dt.timedelta(int(day) % 200) for day in number],
            "class": number % 5 + 1, ODD: ["back\\slash", "{brace}", "x"] * (height // 3), "tags": [["x"]] * height,
        }
    )  # fmt: skip
    return frame.cast({name: dtype for name, dtype in SCHEMA.items() if name != "tags"})


def run(code, folder):
    script = folder / "release.py"
    script.write_text(code, encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.run(
        # What Ibis does with DuckDB's newer driver is deprecated.
        [sys.executable, "-W", "error", *["-W", "ignore::DeprecationWarning"] * ("ibis" in code), script.name],
        cwd=folder,
        env=environment,
        capture_output=True,
        encoding="utf-8",
        check=True,
    ).stdout


def full(file="visits.parquet", **picked):
    """Everything that can be asked of the columns of that schema."""
    plan = Plan(SCHEMA, file, "patient", {"ward": VALUES["ward"]}, VALUES, max_groups=2, max_rows_per_group=2, rows=500)
    statistics = dict.fromkeys(statistics_of(SCHEMA, "patient").values(), 1)
    return Plan(**{**vars(plan), "statistics": statistics, **picked})


def statistics(*asked, part=1):
    """Statistics as they are called, each with its column, and the part of the loss, or the error, of each."""
    return {Statistic(*one.split()): part for one in asked}


def by_error(statistics, **picked):
    """The same, of statistics with how far off each may be."""
    return full(statistics=statistics, by_error=True, **picked)


def test_limits_may_be_found_privately(tmp_path):
    asked = statistics("n_people", "mode diagnosis", "median age", "mean days")
    drafted = draft(full(statistics=asked, found=True))
    assert drafted.messages == {}
    assert "max_" not in drafted.code
    known = at_known_limits(drafted.query)
    assert size_needed(known, 0.1)["output"].to_list() == [ask.name for ask in drafted.query._asks]
    assert [line["error_95"] for line in drafted.explained[-4:]] == known.explain()["error_95"].to_list()
    html = page.outputs(drafted, drafted.query, 0.1)
    assert html.count("<tr>") == 5
    rows().write_parquet(tmp_path / "visits.parquet")
    assert "people" in run(drafted.code, tmp_path)
    # Where errors are said, limits are needed.
    assert "max_groups=2" in draft(by_error(statistics("n_people", part=100), found=True)).code
    assert at_known_limits(draft(full()).query) is not None


@pytest.mark.slow
@pytest.mark.parametrize("wants_errors", [False, True])
def test_every_statistic_becomes_code_that_runs(tmp_path, wants_errors):
    plan = full()
    assert len(plan.statistics) == 55
    if wants_errors:
        # Deviations cost as much as several means, and quantiles more than a median.
        least = {"first_above": 0, "quantile": -1, "var": -1}
        chosen = [asked for asked in plan.statistics if asked.ask not in ("var", "std") or asked == ("var", "days")]
        wanted = {q: plan.steps(q)[least[q.ask]] if q.ask in least else plan.usual(q) for q in chosen}
        plan = by_error(wanted, epsilon=20)
    else:
        plan = full(statistics={asked: PARTS[number % len(PARTS)] for number, asked in enumerate(plan.statistics)})
    drafted = draft(plan)
    assert drafted.messages == {}
    rows().write_parquet(tmp_path / "visits.parquet")
    said = run(drafted.code, tmp_path)
    # What the page guarantees is what the code asks: losses, errors, keys.
    asked = {}
    exec(drafted.code.split("shown =")[0].replace('"visits', f'"{tmp_path}/visits'), asked)
    columns = ["output", "selects", "error_95", "epsilon", "rho", "limits"]
    assert asked["query"].explain().select(columns).equals(drafted.query.explain().select(columns))
    assert f"shape: ({len(plan.statistics)}, 5)" in said
    # A second run is free: the ledger keeps the answers.
    assert run(drafted.code, tmp_path) == said
    assert all(len(line) <= 100 for line in drafted.code.splitlines())


@pytest.mark.parametrize("unit", ["patient", 'it\'s "odd" {x}', None])
@pytest.mark.parametrize("epsilon", EPSILONS[::7])
@pytest.mark.parametrize("delta", DELTAS[::4])
def test_what_is_guaranteed_is_shared_and_spent(tmp_path, unit, epsilon, delta):
    asked = {Statistic("len"): 1, Statistic("mode", "ward"): 2, Statistic("median", "admitted"): 0.5}
    file = 'it\'s "odd".parquet'
    plan = Plan(SCHEMA, file, unit, {}, VALUES, asked, epsilon=epsilon, delta=delta)
    drafted = draft(plan)
    assert drafted.messages == {}
    claims = {ask.name: ask.query.claim for ask in drafted.query._asks}
    costs = [claims[name].cost(drafted.query.loss.unit) for name in ("rows", "ward_mode", "admitted_median")]
    assert costs == pytest.approx([float(costs[0]) * part for part in (1, 2, 0.5)])
    guarantee = drafted.query.budget._guarantee
    assert (guarantee.epsilon, guarantee.delta) == (Fraction(str(epsilon)), Fraction(str(delta)))
    if drafted.query.loss.unit == "epsilon":
        assert drafted.query.loss.value == guarantee.epsilon
    else:  # what fits is at least the rho of the guarantee, and hardly any more would
        more = drafted.query.scaled_to(rho=drafted.query.loss.value * Fraction("1.001"))
        assert drafted.query.loss.value >= guarantee.rho
        assert not drafted.query.budget._state.has_room(ask.query.claim for ask in more._asks)
    assert drafted.query.budget._state.has_room(claims.values())
    assert f"scaled_to(epsilon={epsilon:g}, delta={short(delta)})" in drafted.code
    if (epsilon, delta) == (1, 1e-8):
        rows().write_parquet(tmp_path / file)
        assert "shape: (1, " in run(drafted.code, tmp_path)


MONTHS = months_of(SCHEMA)
NO_ZONES = pl.Schema({**SCHEMA, **dict.fromkeys(MONTHS, pl.Date()), "seen": pl.Datetime("us")})
BY_MONTH = {"ward": VALUES["ward"], "admitted_month": "2026-03..2026-05"}


@pytest.mark.parametrize("engine", ["polars", "duckdb"])
def test_texts_that_are_called_like_dates_offer_months(tmp_path, engine):
    if engine == "duckdb":
        need("ibis")
        need("duckdb")
    texts = ["2026-03-31", "2026-04-01 10:00:00", "no date", None]
    frame = pl.DataFrame({"patient": range(4000), "admitted_on": texts * 1000, "opinion": texts * 1000})
    months = months_of(frame.schema)
    assert months == {"admitted_on_month": "admitted_on"}
    schema = frame.schema | dict.fromkeys(months, pl.Date())
    keys = {"admitted_on_month": "2026-03..2026-05"}
    plan = Plan(schema, "visits.parquet", "patient", keys, {}, statistics("n_people"), months=months, engine=engine)
    drafted = draft(plan)
    assert drafted.messages == {}
    frame.write_parquet(tmp_path / "visits.parquet")
    found = re.findall(r"│ 2026-0(\d)-01 +┆ +(-?\d+)", run(drafted.code, tmp_path))
    assert [month for month, _ in found] == ["3", "4", "5"]
    assert [round(int(number), -3) for _, number in found] == [1000, 1000, 0]


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["polars", "duckdb"])
@pytest.mark.parametrize("apart", [False, True])
def test_months_and_several_tables_run_as_they_stand(tmp_path, engine, apart):
    if engine == "duckdb":
        need("ibis")
        need("duckdb")
    asked = statistics("n_people", "mean days", "std days", "var cost", "first_above seen_month", "quantile admitted")
    asked |= statistics("mode diagnosis", part=2)
    values = {**VALUES, "seen_month": "2026-01..2026-12", "days": "0..30", "cost": "0..500"}
    more = {"quantiles admitted": "0.1, 0.9", "threshold seen_month": "30", "weights diagnosis": "days up to 60"}
    picked = {"schema": NO_ZONES, "months": MONTHS, "keys": BY_MONTH, "values": values, "more": more}
    plan = full(statistics=asked, engine=engine, apart=apart, **picked)
    drafted = draft(plan)
    assert drafted.messages == {}
    rows().cast({"seen": pl.Datetime("us")}).write_parquet(tmp_path / "visits.parquet")
    said = run(drafted.code, tmp_path)
    if apart:
        assert f"shape: ({2 * len(asked)}, 6)" in said  # of explain
        assert "by_ward shape: (2, " in said
        assert "by_admitted_month shape: (3, " in said
    else:
        assert f"shape: ({len(asked)}, 5)" in said
        assert "shape: (6, " in said
    assert "2026-04" in said
    assert run(drafted.code, tmp_path) == said
    # What the page says is what the code asks, also where a query without data has no types.
    script = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Ibis, of DuckDB's newer driver
        exec(drafted.code.split("shown =")[0].replace('"visits', f'"{tmp_path}/visits'), script)
    columns = ["output", "selects", "error_95", "epsilon", "rho"]
    theirs = script["query"].explain()
    ours = drafted.publication.explain() if apart else drafted.query.explain()
    assert theirs.select(columns).equals(ours.select(columns))
    assert all(f"by_{name}" in page.seen(plan, drafted, Relative(), "", "") for name in BY_MONTH if apart)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["polars", "duckdb"])
@pytest.mark.parametrize("found", [False, True])
def test_groups_that_nobody_lists_are_selected_privately(tmp_path, engine, found):
    if engine == "duckdb":
        need("ibis")
        need("duckdb")
    asked = statistics("n_people", "mean days") | statistics("mode diagnosis", part=2)
    keys = {"ward": "", "smoker": "no value of it"}
    plan = full(statistics=asked, keys=keys, selected=True, found=found, engine=engine, epsilon=20, delta=1e-4)
    assert draft(plan).messages == {}
    drafted = draft(replace(plan, apart=True))
    assert drafted.messages == {}
    frame = rows(3000).drop("seen")
    frame.write_parquet(tmp_path / "visits.parquet")
    said = run(drafted.code, tmp_path)
    assert 'private.group_by("ward").agg(**outputs)' in drafted.code
    assert re.search("by_ward shape: .2, .*north.*south", said, re.DOTALL)
    assert re.search("by_smoker shape: .2, .*false.*true", said, re.DOTALL)
    seen = page.seen(plan, drafted, Relative(), "", "")
    assert seen.count("Groups: Shown with 95 % from") == 2
    # Errors are those of the query, and what a group must have follows from them.
    known = at_known_limits(drafted.query)
    explained = {one["output"]: one["error_95"] for one in drafted.explained}
    needed = dict(size_needed(known, 1).select("output", "size").iter_rows())
    assert needed["people"] == math.ceil(explained["people"])
    # A loss that follows from an error leaves nothing for the selection.
    assert "key ward" in draft(replace(plan, by_error=True)).messages


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["polars", "duckdb"])
@pytest.mark.parametrize(("unit", "found"), [("patient", True), ("patient", False), (None, False)])
def test_tables_that_agree_run_as_they_stand(tmp_path, engine, unit, found):
    if engine == "duckdb":
        need("ibis")
        need("duckdb")
    keys = {"ward": VALUES["ward"], "smoker": VALUES["smoker"]}
    plan = full(statistics=statistics("len"), keys=keys, unit=unit, cube=True, found=found, engine=engine, epsilon=20)
    drafted = draft(plan)
    assert drafted.messages == {}
    assert list(drafted.publication.queries) == ["answers", "cube"]
    assert ("once = private.with_limits(max_groups=1" in drafted.code) == (unit is not None)
    rows(3000).drop("seen").write_parquet(tmp_path / "visits.parquet")
    said = run(drafted.code, tmp_path)
    assert "answers shape: (4, " in said
    assert "cube <" in said
    seen = page.seen(plan, drafted, Relative(), "", "")
    assert all(f"count by {name}" in seen for name in ("ward", "smoker", "ward, smoker"))
    # What the page says is what the code asks.
    script = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Ibis, of DuckDB's newer driver
        exec(drafted.code.split("shown =")[0].replace('"visits', f'"{tmp_path}/visits'), script)
    columns = ["query", "output", "selects", "error_95", "epsilon", "rho"]
    assert script["query"].explain().select(columns).equals(drafted.publication.explain().select(columns))
    # One column has no tables that agree, and errors leave no loss for them.
    assert list(draft(replace(plan, keys={"ward": VALUES["ward"]})).publication.queries) == ["answers"]
    assert list(draft(by_error({Statistic("len"): 500}, keys=keys, cube=True)).publication.queries) == ["answers"]


def test_a_cube_that_is_too_large_is_refused_at_the_field_of_groups():
    keys = {"age": "0..30000", "class": "1..120", "smoker": "false\ntrue", "diagnosis": "flu\nother\nnone"}
    plan = full(statistics=statistics("len"), keys=keys, apart=True, cube=True)
    assert "cube" in draft(plan).messages["keys"]


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["polars", "duckdb"])
@pytest.mark.parametrize("name", ["visits[1].parquet", "all*.parquet", "what?.parquet"])
def test_the_name_of_a_file_is_no_pattern(tmp_path, name, engine):
    if engine == "duckdb":
        need("ibis")
        need("duckdb")
    drafted = draft(full(name, statistics={Statistic("len"): 20}, engine=engine))
    rows().drop("seen").write_parquet(tmp_path / name)
    (tmp_path / re.sub(r"[*?]|\[1\]", "1", name)).write_text("the pattern would take this one as well")
    assert "shape: (2, " in run(drafted.code, tmp_path)
    assert "glob" not in draft(full(statistics={Statistic("len"): 20})).code


@pytest.mark.parametrize(
    ("more", "where", "said"),
    [
        ({"quantiles age": "0.5, 2"}, "quantiles age", "quantile"),
        ({"quantiles age": "half"}, "quantiles age", "quantile"),
        ({"threshold class": "many"}, "threshold class", "threshold must be"),
        ({"threshold class": "0"}, "threshold class", "threshold must be"),
        ({"weights diagnosis": "days"}, "weights diagnosis", "max_weight"),
        ({"weights diagnosis": "days up to x"}, "weights diagnosis", "max_weight"),
    ],
)
def test_what_is_wrong_with_further_texts_is_said_at_their_fields(more, where, said):
    asked = statistics("n_people", "quantile age", "first_above class", "mode diagnosis")
    drafted = draft(full(statistics=asked, more=more))
    assert said in drafted.messages[where]
    assert len(drafted.query._asks) == 3
    fields = {f"{kind} {column}": "" for kind, column in more_of(asked)}
    assert [*fields] == ["quantiles age", "threshold class", "weights diagnosis"]
    shown = "".join(page.further_fielded(fields, drafted.messages))
    assert said in shown
    assert "Weights (none: each person counts once) of diagnosis" in shown


def test_errors_that_cost_more_than_the_guarantee_have_no_code_and_those_that_nobody_can_afford_a_message():
    wanted = statistics("n_people", part=5) | statistics("mode ward", part=20)
    drafted = draft(by_error(wanted))
    assert "which is more than the guarantee" in drafted.messages["cost"]
    assert "There is no code yet" in page.seen(by_error(wanted), drafted, Relative(), "", "")
    assert drafted.code == ""
    assert [ask.name for ask in drafted.query._asks] == ["people", "ward_mode"]
    enough = draft(by_error(wanted, epsilon=3))
    assert enough.messages == {}
    assert "scaled_to" not in enough.code
    assert "dpp.Budget(epsilon=3, delta=1e-6, " in enough.code
    assert "n_people(within=5)" in enough.code
    # Half of its step is 0.25.
    drafted = draft(by_error({Statistic("n_people"): 50, Statistic("mean", "days"): 0.2501}))
    assert "a loss above 20 protects nobody" in drafted.messages[field_of(Statistic("mean", "days"))]
    assert [ask.name for ask in drafted.query._asks] == ["people"]
    assert "protects nobody" in draft(full(epsilon=30)).messages["cost"]


def test_synthetic_rows_have_the_people_that_were_picked_or_are_refused(tmp_path):
    asked = {Statistic("n_people"): 20, Statistic("len"): 20}
    drafted = draft(Plan(DEMO, None, "diagnosis", {}, {}, asked))
    assert 'privacy_unit="diagnosis"' in drafted.code
    assert "shape: (2, " in run(drafted.code, tmp_path)
    people = {}
    exec(drafted.code.split("query =")[0].replace("synthetic-budget", f"{tmp_path}/other"), people)
    assert people["rows"].collect()["diagnosis"].n_unique() == 5000
    asked = {Statistic("len"): 20}
    drafted = draft(Plan(DEMO, None, "ward", {}, {}, asked))
    assert drafted.query is None
    assert "values must be given for the privacy unit 'ward'" in drafted.messages["unit"]
    assert draft(Plan(DEMO, "visits.parquet", "ward", {}, {}, asked)).messages == {}


def test_names_of_outputs_are_apart_and_as_they_are_shown():
    plan = full(keys={"ward": "north\nsouth", "kind": "d"})
    names = [*plan.named()]
    assert len(names) == len({*names, *plan.keys}) - 2
    schema, asked = pl.Schema({"people": pl.Int64(), "rows": pl.Boolean()}), statistics("n_people", "len", part=10)
    clash = Plan(schema, "f.parquet", "people", {"rows": "true\nfalse"}, {}, asked, max_rows_per_group=1)
    assert [*clash.named()] == ["people", "rows_"]
    assert draft(clash).messages == {}
    names = ["µg_mean", "ﬁ_mean", "fi_mean"]  # Python reads the first two as other names
    asked = laid_out(call("dict", **dict.fromkeys(names, 1)))
    assert [*eval(asked)] == names
    assert str(call("f", é_mean=1)) == "f(é_mean=1)"
    names = ["", " a", "a\nb", "\u202ea", "'a'", "é b.c"]
    shown = [page.shown(name) for name in names]
    assert [name == seen for name, seen in zip(names, shown, strict=True)] == [False] * 5 + [True]
    assert all(seen.isprintable() for seen in shown)
    assert len(set(shown)) == len(names)


@pytest.mark.parametrize(
    ("picked", "where", "said"),
    [
        ({"unit": "person"}, "unit", "the frame must have the privacy unit 'person' as a column, got the columns"),
        ({"keys": {"ward": "north\nnull"}}, "key ward", "keys of column 'ward' must not contain null"),
        ({"keys": {"ward": "north\neast"}}, "key ward", "keys of column 'ward' must be values of its type"),
        ({"keys": {"age": "x"}}, "key age", "keys of column 'age' must be values of its type, Int16, got String"),
        ({"keys": {"diagnosis": ""}}, "key diagnosis", "keys of column 'diagnosis' must not be empty"),
        ({"keys": {"class": "1\n1"}}, "key class", "must not repeat, got 1 more than once"),
        ({"values": {"diagnosis": ""}}, "value diagnosis", "candidates must not be empty"),
        ({"values": {"class": "x"}}, "value class", "can't be categories of a column of type Int8"),
        ({"values": {"age": "young"}}, "value age", "candidates of a quantile must be numbers"),
        ({"values": {}}, "value days", "lower must be a number"),
        ({"values": {"days": "0..x"}}, "value days", "upper must be a number"),
        ({"values": {"days": "30..0 by 1"}}, "value days", "lower must be below upper"),
        (
            {"values": {"days": "0..3.14159265358979"}},
            "value days",
            "step must be given where no power of ten divides the bounds",
        ),
        ({"values": {"age": "0..120 by 0"}}, "value age", "step must be"),
    ],
)
def test_what_does_not_fit_is_said_at_its_field(picked, where, said):
    asked = statistics("n_people", "mode diagnosis", "mode class", "median age", "mean days", "sum days")
    values = {} if picked.get("values") == {} else {**VALUES, "class": "1..5", **picked.get("values", {})}
    plan = full(**{**picked, "values": values, "statistics": asked})
    drafted = draft(plan)
    assert said in drafted.messages[where]
    if where.startswith(("unit", "key")):
        assert (drafted.query, drafted.code) == (None, "")
    else:  # the others are asked all the same
        assert "people" in [ask.name for ask in drafted.query._asks]
        left_out = {name for name, asked in plan.named().items() if values_field_of(asked) in drafted.messages}
        assert {ask.name for ask in drafted.query._asks} == {*plan.named()} - left_out
        assert left_out
        assert not any(name in drafted.code for name in left_out)


@pytest.mark.parametrize(
    ("text", "dtype", "value"),
    [
        ("null", pl.String(), None), ("None", pl.Int8(), None), ("'null'", pl.String(), "null"),
        ("'broken", pl.String(), "'broken"), (r"'a\'b'", pl.String(), "a'b"), (" a b ", pl.String(), "a b"),
        ("3", pl.String(), "3"), ("3", pl.Int8(), 3), ("3.5", pl.Float32(), 3.5),
        ("3.50", pl.Decimal(8, 2), Decimal("3.50")), ("x", pl.Int8(), "x"), ("True", pl.Boolean(), True),
        ("no", pl.Boolean(), "no"), ("2026-02-03", pl.Date(), dt.date(2026, 2, 3)),
        ("2026-02-30", pl.Date(), "2026-02-30"), ("2026-02", pl.Date(), dt.date(2026, 2, 1)),
        ("2026-13", pl.Date(), "2026-13"), ("2026-02-03 04:05", pl.Datetime(), dt.datetime(2026, 2, 3, 4, 5)),
        ("2026-02-03", pl.Datetime("ms", "UTC"), dt.datetime(2026, 2, 3, tzinfo=dt.UTC)),
        ("04:05", pl.Time(), dt.time(4, 5)), ("1h", pl.Duration(), "1h"),
    ],
)  # fmt: skip
def test_a_line_is_a_value_of_the_type_or_the_text_itself(text, dtype, value):
    read = one(text, dtype)
    assert (read, type(read)) == (value, type(value))


def test_only_one_text_stands_in_quotes():
    for text in ("'a', 'b'", "'a', {[]: 1}", "'a'" + " + 'a'" * 20_000, "'a' 'b'"):
        assert one(text, pl.String()) == text


def test_two_ends_are_a_range_or_a_grid():
    assert several("1..3", pl.Int8()) == range(1, 4)
    assert several("0..120", pl.Float64()) == Written(range(121), "range(121)")
    points = several("0..1 by 0.25", pl.Float64())
    assert str(points.code) == "dpp.grid(0, 1, step=0.25)"
    assert points.value == dpp.grid(0, 1, step=0.25)
    assert ends("-5..-1.5 step 0.5", pl.Float64()) == (-5, -1.5, 0.5)
    months = several("2026-11..2027-02", pl.Date()).value.to_list()
    assert months == [dt.date(2026, 11, 1), dt.date(2026, 12, 1), dt.date(2027, 1, 1), dt.date(2027, 2, 1)]
    assert several("2026-01-01..2026-03-01", pl.Date()).value.size == 60
    assert several("0..3", pl.String()) == ["0..3"]
    assert several("a\n\n b \n", pl.String()) == ["a", "b"]


@pytest.mark.parametrize(
    "value",
    [
        "plain", "it's", 'a "quote"', "both ' and \"", "back\\slash\n\t\0", "\u2028 é {x}", "", ["a, b", 'c"'],
        {"a b": [1, None]},
    ],
)  # fmt: skip
def test_code_of_a_value_is_that_value(value):
    assert eval(laid_out(as_code(value))) == value
    many = [value] * 40
    broken = laid_out(as_code(many), "x = ")
    assert eval(broken.removeprefix("x = ")) == many


def test_bounds_are_tried_on_synthetic_people():
    frame = dropped_by_limits(full(), people=300, rows_each=5, skew=1, max_groups=[1, 2], max_rows_per_group=[1, 50])
    assert frame["rows_dropped"].is_between(0, 1).all()
    assert frame.filter(max_groups=1, max_rows_per_group=1)["rows_dropped"].item() > 0.5
    with pytest.raises(ValueError, match="privacy_unit must be given"):
        dropped_by_limits(full(unit=None), people=3, rows_each=1, skew=0, max_groups=[1], max_rows_per_group=[1])


class Relative:
    """As a slider."""

    value = 10


def test_a_plan_without_a_unit_says_that_none_was_given_and_nothing_picked_is_no_query():
    drafted = draft(full(unit=...))
    assert drafted.query is None
    assert [*drafted.messages] == ["unit"]
    assert drafted.messages["unit"].startswith("privacy_unit must be given, and none was.")
    assert "There is no query yet" in page.seen(full(unit=...), drafted, Relative(), "", "")
    assert "No synthetic people can be made" in page.dropped(full(unit=...), drafted, 3, 0)
    assert [*page.figures(drafted)] == []
    assert "no query yet" in page.whole(full(unit=...), drafted, [], "")
    assert "how many people" in statistics_of(SCHEMA, ...)
    assert draft(full(statistics={})) == draft(full(statistics={}, keys={}))
    assert draft(full(statistics={})) == Draft(None, {"statistics": "Pick at least one statistic."})


def test_the_page_escapes_what_it_shows():
    evil = "<script>alert(1)</script>"
    schema = pl.Schema({"patient": pl.Int64(), evil: pl.Enum([evil, "b"])})
    asked = {Statistic("mode", evil): 20, Statistic("n_people"): 20}
    plan = Plan(schema, evil, "patient", {evil: own_values(schema[evil])}, {evil: own_values(schema[evil])}, asked)
    drafted = draft(plan)
    shown = [
        page.columns(schema),
        page.message({"unit": evil}, "unit"),
        page.fielded(evil, "", note=evil),
        page.outputs(drafted, drafted.query, 0.1),
        *page.figures(drafted),
        page.seen(plan, drafted, Relative(), "", ""),
        page.whole(plan, drafted, [], ""),
        page.quiet(evil),
        *page.each_fielded("", "value", {evil: ""}, {f"value {evil}": evil}),
        next(page.shares(plan, drafted, dict.fromkeys(asked, ""))),
        page.statement(drafted.query, evil),
    ]
    assert not any("<script>" in part for part in shown)
    assert all("&lt;script&gt;" in part for part in shown)
    assert "<mark>TO BE STATED</mark>" in shown[-1]


def test_the_page_begins_with_the_guarantee():
    plan = full(statistics={Statistic("n_people"): 1, Statistic("mode", "ward"): 1}, epsilon=0.5, delta=1e-9)
    drafted = draft(plan)
    said = page.costs(plan, drafted, drafted.query)
    assert "<strong>ε = 0.5, δ = 1e-9</strong>" in said
    assert "in all, the unit is epsilon: errors are 0." in said
    assert "ε = 0.5, δ = 1e-9</div>" in page.whole(plan, drafted, [], "")
    # A first value needs a loss in epsilon, and with it all others have one.
    many = {asked: 1 for asked in full().statistics if asked.ask != "first_above"}
    for other, words in (
        (full(epsilon=2, statistics=many), "in all, the unit is rho: errors are 0."),
        (by_error({Statistic("n_people"): 20}), "These errors cost epsilon=0.2921"),
    ):
        drafted = draft(other)
        assert words in page.costs(other, drafted, drafted.query)
    assert [short(number) for number in (1, 0.5, 1e-4, 1e-6, 1e-12)] == ["1", "0.5", "0.0001", "1e-6", "1e-12"]


def test_the_likely_unit():
    for names, unit in (
        *((["ward", "Patient"], "Patient"), (["ward", "customer_id", "id"], "customer_id"), (["id", "age"], "id")),
        *((["ward", "age"], None), (["new_patient_code", "n"], "new_patient_code"), (["id", "customer"], "customer")),
        (["patient_weight", "customer_id"], "customer_id"),  # not the first
    ):
        assert likely_unit(pl.Schema(dict.fromkeys(names, pl.Int64()))) == unit
        assert likely_unit(pl.Schema(dict.fromkeys(names, pl.Float64()))) is None


def test_columns_named_like_a_pattern_are_refused_and_those_that_can_not_be_typed_not_offered_for_groups():
    for name in ("^a.*$", "*"):
        plan = Plan(pl.Schema({name: pl.Int64(), "b": pl.Int8()}), "f.parquet", name, {}, {}, statistics("len"))
        drafted = draft(plan)
        assert "named like a pattern" in drafted.messages["unit"]
        assert "No synthetic people can be made" in page.dropped(plan, drafted, 3, 0.5)
    assert page.may_group(pl.Datetime("us", "UTC"))
    refused = [pl.Duration(), pl.Null(), pl.Binary(), pl.List(pl.Int8), pl.Struct({"a": pl.Int8})]
    assert not any(map(page.may_group, refused))


@pytest.mark.parametrize("name", ["dp_polars/_publish/notebook.py", "examples/tour.py"])
def test_marimo_starts_without_a_warning(name):
    need("marimo")
    from marimo._ast.parse import parse_notebook

    found = parse_notebook((Path(__file__).parents[2] / name).read_text(encoding="utf-8"))
    assert found.valid
    assert [one.description for one in found.violations] == []
