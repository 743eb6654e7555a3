"""Modes and top k without candidates: these are selected privately first, over all groups together."""

from __future__ import annotations

import datetime as dt
import json
import pickle
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

import polars as pl
import pytest

import dp_polars as dpp
from dp_polars._bins.candidates import REFERENCE_CANDIDATES, Unselected
from dp_polars._engines.polars.engine import PolarsEngine
from dp_polars._release.ruled import at_worst
from dp_polars._release.selected import _MOST_CELLS, SelectingRequest
from dp_polars._statistics.statistic import KeysThatAreThere
from tests.frames.asking import people_with_rows
from tests.helpers.needs import need
from tests.helpers.refusals import refusals
from tests.registry import ENGINES, RELATIONS

SURE = {"epsilon": 4000, "delta": 1e-6}
GUARANTEE = {"epsilon": 40, "delta": 1e-6}
WARDS = {"ward": ["A", "B", "nowhere"]}


def visits(people=600, seed=1):
    """People with one to four rows: drugs that many have, one of a single person, and one without a value."""
    return people_with_rows(
        lambda rng, number: {
            "ward": rng.choice(["A", "B"], number),
            "drug": rng.choice(["x", "y", "z"], number, p=[0.6, 0.3, 0.1]),
            "days": rng.integers(0, 60, number),
        },
        {"p": [0, 1], "ward": "A", "drug": ["rare", None], "days": 1},
        people,
        seed,
    )


def best(private, **more):
    return private.agg(top=pl.col("drug").dp.mode(), two=pl.col("drug").dp.top_k(2), **more)


# --- Answers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", [*ENGINES, "auto"])
@pytest.mark.parametrize("by", [None, WARDS, "ward"], ids=str)
def test_values_that_many_have_are_the_candidates(engine, by):
    private = visits().dp.protect("p")
    query = best(private if by is None else private.group_by(by), all=dpp.top_k("drug", 9, counts="rows"))
    query = query.scaled_to(**SURE)
    released = query.release(engine=engine)
    full = released.head(1 if by is None else 2)
    assert set(full["top"]) == {"x"}
    assert full["two"].to_list() == [["x", "y"]] * full.height
    assert full["all"].to_list() == [["x", "y", "z"]] * full.height
    assert released.schema["all"] == pl.List(pl.String)
    after = query.explain().filter(pl.col("output").is_in(["top", "two", "all"]))
    assert after["candidates"].to_list() == [3, 3, 3]
    assert after["selects"].to_list()[:2] == ["mode of 3 candidates", "top 2 of 3 candidates"]
    assert next(one for one in query.found if one.what == "max_candidates").name == "max_candidates of top, two, all"


VALUES = {
    "text": pl.Series(["7"]),
    "category": pl.Series(["7"], dtype=pl.Categorical),
    "small": pl.Series([7], dtype=pl.Int8),
    "large": pl.Series([7], dtype=pl.UInt64),
    "wide": pl.Series([7], dtype=pl.Int128),
    "decimal": pl.Series([Decimal("1.25")], dtype=pl.Decimal(9, 2)),
    "digits": pl.Series([Decimal("0.7").scaleb(-37)], dtype=pl.Decimal(38, 38)),
    "day": pl.Series([dt.date(2026, 1, 2)]),
    "time": pl.Series([dt.datetime(2026, 1, 2)], dtype=pl.Datetime("ms")).dt.replace_time_zone("Europe/Zurich"),
    "clock": pl.Series([dt.time(9)]),
    "for": pl.Series([dt.timedelta(seconds=3)], dtype=pl.Duration("ns")),
}


@pytest.mark.parametrize("name", VALUES)
def test_every_type_that_keys_may_have(name):
    value = VALUES[name]
    frame = pl.DataFrame({"p": range(400), "x": pl.concat([value] * 400)})
    query = frame.dp.protect("p", max_rows=1).agg(dpp.mode("x")).scaled_to(**SURE)
    expected = value.cast(pl.String) if value.dtype == pl.Categorical else value
    assert query.release().to_series().equals(expected, check_dtypes=True)
    stand_ins = Unselected(None).for_column(value.dtype)
    assert stand_ins.dtype == expected.dtype
    assert stand_ins.n_unique() == REFERENCE_CANDIDATES
    assert not stand_ins.null_count()


def test_a_type_that_names_candidates_needs_no_selection():
    frame = visits().with_columns(often=pl.col("days") < 50, kind=pl.col("drug").cast(pl.Enum(["rare", "x", "y", "z"])))
    query = frame.dp.protect("p", max_rows=4).agg(pl.col("often", "kind").dp.mode()).scaled_to(epsilon=400)
    assert not isinstance(query._planned, SelectingRequest)
    assert query.release().row(0) == (True, "x")
    assert query.delta == 0


def test_expressions_conditions_and_options_share_a_selection_by_column():
    query = (
        visits()
        .dp.protect("p")
        .agg(
            upper=pl.col("drug").str.to_uppercase().dp.mode(),
            week=(pl.col("days") // 7).dp.mode(counts="rows"),
            late=pl.col("drug").filter(pl.col("days") > 30).dp.mode(),
            few=pl.col("drug").dp.mode(too_few=10**6),
            gap=pl.col("drug").dp.mode(gap=True),
            days=pl.col("drug").dp.top_k(2, counts=dpp.weights("days", max_weight=60)),
        )
        .scaled_to(**SURE)
    )
    assert [one.outputs for one in query._planned.selections] == [(0,), (1,), (2,), (3, 4, 5)]
    (row,) = query.release().to_dicts()
    assert (row["upper"], row["late"], row["few"], row["days"]) == ("X", "x", None, ["x", "y"])
    assert row["gap"]["answer"] == "x"
    assert row["week"] in range(9)


def test_a_person_with_one_row_needs_no_limit():
    one_each = visits().unique("p")
    for private in (one_each.dp.protect("p", max_rows=1), one_each.dp.protect(None)):
        query = private.agg(top=dpp.mode("drug")).scaled_to(**SURE)
        (selection,) = query._planned.selections
        assert selection.limit is None
        assert selection.ask.query.keys_per_person == 1
        assert query.release().item() == "x"
        assert query.found is None


@pytest.mark.parametrize("by", [None, WARDS, "ward"], ids=str)
def test_where_no_value_is_selected_answers_are_null(tmp_path, by):
    budget = dpp.Budget(epsilon=2, delta=1e-6, path=tmp_path / "ledger.db")
    private = visits().filter(pl.col("p") < 3).dp.protect("p", budget=budget, dataset="few")
    query = best(
        private if by is None else private.group_by(by),
        people=dpp.n_people(),
        gap=pl.col("drug").dp.mode(gap=True),
        weights=pl.col("drug").dp.mode(counts=dpp.weights("days", max_weight=60)),
    ).scaled_to(epsilon=1, delta=5e-7)
    released = query.release(intervals=True)
    assert released.select("top", "two", "gap", "weights").null_count().row(0) == (released.height,) * 4
    assert query.release(intervals=True).equals(released)
    assert query.explain().height == len(query._planned.every)
    text = query.statement(name="Few").to_markdown()
    assert "none was" in text
    full = best(visits().dp.protect("p"), gap=pl.col("drug").dp.mode(gap=True)).scaled_to(**GUARANTEE).release()
    assert all(released.schema[name] == full.schema[name] for name in full.columns)


def test_a_frame_that_comes_later():
    query = best(dpp.protect("p").group_by(WARDS)).scaled_to(**SURE)
    for each in (query, pickle.loads(pickle.dumps(query))):
        assert each.release(visits().to_arrow())["top"].to_list()[:2] == ["x", "x"]


# --- What is charged --------------------------------------------------------------------------------------------------


def test_all_stages_are_charged_together_before_a_row_is_read(tmp_path, monkeypatch):
    budget = dpp.Budget(epsilon=1, delta=1e-6, path=tmp_path / "ledger.db")
    query = best(visits().dp.protect("p", budget=budget)).scaled_to(epsilon=1, delta=1e-6)
    monkeypatch.setattr(KeysThatAreThere, "released", lambda *_: 1 / 0)
    with pytest.raises(dpp.ReleaseError):
        query.release()
    assert budget.log()["what"].to_list()[:2] == [
        "max_candidates of top, two: max_candidates of top, two, found privately",
        "candidates of top, two: the 'drug' that enough people have",
    ]
    assert budget.log().height == len(query._planned.every)
    with pytest.raises(dpp.BudgetExceededError):
        query.release()


@pytest.mark.parametrize("by", [None, WARDS, "ward"], ids=str)
@pytest.mark.parametrize("relation", RELATIONS)
def test_all_stages_cost_the_guarantee_together(relation, by):
    private = visits().dp.protect("p", neighboring_relation=relation)
    query = best(private if by is None else private.group_by(by), day=dpp.mode("days")).scaled_to(epsilon=1, delta=1e-6)
    charged, request = query._planned.claims, query._planned
    deltas = [one.ask.query.claim.delta for one in request.selections]
    assert min(deltas) > 0
    assert sum(claim.delta for claim in charged) == sum(deltas)
    assert dpp.Budget(epsilon=1, delta=1e-6)._state.has_room(charged)
    if query.loss.unit == "epsilon":
        assert sum(claim.cost("epsilon") for claim in charged) == 1


@pytest.mark.parametrize("by", [None, WARDS], ids=str)
@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("unit", ["epsilon", "rho"])
@pytest.mark.parametrize("limits", [{}, {"max_groups": 2, "max_rows_per_group": 3}, {"max_rows": 2}, {"max_rows": 9}])
def test_however_many_are_selected_no_more_is_charged(limits, unit, relation, by):
    """Fewer candidates than a list has need fewer draws of the same loss. That costs more in rho of one in epsilon."""
    private = dpp.protect("p", **limits, neighboring_relation=relation)
    request = (
        (private if by is None else private.group_by(by))
        .agg(top=dpp.mode("drug"), four=dpp.top_k("drug", 4), seven=dpp.top_k("drug", 7))
        ._planned
    )
    asks = []
    for ask in (replace(one, query=one.query.in_unit(unit)) for one in request.every):
        terms = ask.query.terms
        delta = Fraction(1, 10**6) if ask.query.claim._needs_delta else terms.delta
        asks.append(ask.with_terms(replace(terms.with_loss(Fraction(1, 3)), delta=delta)))
    request = request.with_asks(asks)
    charged, costs = dict(request.charged), set()
    for number in range(1, 10):
        values = pl.Series([str(place) for place in range(number)])
        settled = request._among(request.selections[0], values)._for_groups()
        for before, after in zip(request.asks, settled.asks, strict=True):
            claim, paid = after.query.claim, charged[str(before)]
            assert claim.loss == paid.loss
            assert all(claim.cost(each) <= paid.cost(each) for each in ("epsilon", "rho"))
            assert getattr(after.query, "k", number) <= number
            costs.add((before.name, claim.cost("rho" if unit == "epsilon" else "epsilon")))
    assert len(costs) > 3  # how many there are decides what they cost in the other unit


def test_selections_are_charged_at_their_worst():
    request = best(visits().dp.protect("p").group_by(WARDS)).scaled_to(**GUARANTEE)._planned
    claims = dict(request.charged)
    for selection in request.selections:
        for ask in selection.asks:
            assert claims[str(ask)] == at_worst(ask.query.claim, _MOST_CELLS)


# --- The columns that are read ----------------------------------------------------------------------------------------


def test_a_column_may_be_called_as_those_that_tell_people_apart():
    """An expression of the privacy unit is selected beside it, not in its place."""
    frame = pl.DataFrame({"_": [number // 2 for number in range(800)], "x": ["a", "b"] * 400})
    query = frame.dp.protect("_").agg(kind=(pl.col("_") * 0).dp.mode(), x=dpp.mode("x")).scaled_to(**SURE)
    assert query.release().row(0)[0] == 0


def test_the_selection_counts_people_over_all_groups():
    """Each person once for each value, without nulls, and in whatever group the rows are."""
    rows = pl.DataFrame(
        {"p": [1, 1, 1, 2, 2, 3, None], "g": list("abzabzz"), "x": ["u", "u", "v", "u", None, "w", "u"]}
    )
    query = rows.dp.protect("p").group_by({"g": ["a", "b"]}).agg(dpp.mode("x")).scaled_to(epsilon=1, delta=1e-6)
    engine, request = PolarsEngine.of(rows.lazy()), query._planned
    work = request.bind(engine)
    limit = request.stage(work, engine)
    (histogram,) = engine.prepare_histograms(limit)()
    assert request.selections[0].limit.query.beyond(histogram)[:4].tolist() == [3, 1, 0, 0]
    after, then = request.settled(pl.DataFrame({"0": [1], "1": [0], "2": [0]}), work)
    keys, people = engine.prepare_people_by_key(after.stage(then, engine))()
    assert sorted(zip(keys.to_series().to_list(), people.tolist(), strict=True)) == [("u", 2), ("v", 1), ("w", 1)]


# --- Cached answers, words --------------------------------------------------------------------------------------------


def test_a_named_data_set_selects_once(tmp_path):
    budget = dpp.Budget(epsilon=100, delta=1e-5, path=tmp_path / "ledger.db")
    rows = visits()

    def asked(candidates=None):
        private = rows.dp.protect("p", budget=budget, dataset="visits").group_by(WARDS)
        return private.agg(top=pl.col("drug").dp.mode(candidates)).scaled_to(epsilon=20, delta=1e-6)

    first, second = asked(), asked()
    one = first.release()
    spent = budget.log().height
    assert second.release().equals(one)
    assert second.found == first.found
    assert budget.log().height == spent
    asked(["x", "y", "z"]).release()
    assert budget.log().height > spent


def test_explain_shows_all_stages_and_later_what_was_selected():
    query = best(visits().dp.protect("p").group_by(WARDS)).scaled_to(epsilon=4, delta=1e-6)
    planned = query.explain()
    assert planned["output"].to_list()[:2] == ["max_candidates of top, two", "candidates of top, two"]
    (of_values,) = planned.filter(pl.col("output") == "candidates of top, two").to_dicts()
    assert "Shown with 95 % from" in of_values["note"]
    (top,) = planned.filter(pl.col("output") == "top").to_dicts()
    assert "Candidates are selected first, over all rows; error_95 is for 10 of them." in top["note"]
    assert top["candidates"] is None
    assert top["error_95"] > 0
    query.release()
    assert "Found max_candidates of top, two" in " ".join(query.explain()["note"])
    unbound = best(dpp.protect("p")).scaled_to(epsilon=4, delta=1e-6).explain()
    assert "Candidates are selected first" in unbound.filter(pl.col("output") == "top")["note"].item()


def test_statement_report_and_file_have_all_stages(tmp_path):
    budget = dpp.Budget(epsilon=40, delta=1e-6, name="visits")
    query = best(visits().dp.protect("p", budget=budget).group_by(WARDS)).scaled_to(**GUARANTEE)
    assert "candidates that are selected privately" in query.statement(name="Visits").to_markdown()
    query.sink_parquet(tmp_path / "answers.parquet")
    claim = dpp.read_claim(tmp_path / "answers.parquet")
    assert {"candidates of top, two", "max_candidates of top, two", "top"} <= {*claim["columns"]}
    assert "candidates of top, two" in json.dumps(dpp.statement(budget, [query]).facts)
    assert "Candidates of top: x, y, z." in query.statement(name="Visits").to_markdown()
    answers = pl.read_parquet(tmp_path / "answers.parquet")
    page = dpp.report(answers, query, tmp_path / "page.html", name="Visits").read_text("utf-8")
    assert "candidates was found privately" in page.replace("\xa0", " ")


def test_a_publication_takes_such_queries():
    private = visits().dp.protect("p")
    both = dpp.publication(best=best(private), rows=private.agg(n=dpp.len())).scaled_to(**GUARANTEE)
    assert both.release()["best"]["top"].item() == "x"
    assert both.queries["best"].found is not None


def test_later_queries_take_what_was_found_but_no_limit_of_candidates():
    query = best(visits().dp.protect("p").group_by(WARDS)).scaled_to(**GUARANTEE)
    query.release()
    assert {*query.found.limits} == {"max_groups"}
    assert dpp.analysis.simulate(query, visits(), allow_private=True).height > 0


def test_simulate_selects_candidates_on_public_rows():
    simulated = dpp.analysis.simulate(best(private()).scaled_to(**SURE), visits())
    assert {*simulated["output"]} == {"top", "two"}
    assert (simulated["expected_error"] < 9).all()


def private(**columns):
    return visits().with_columns(**columns).dp.protect("p")


@refusals(
    (lambda: private().agg(dpp.mode("drug", epsilon=1)), TypeError, "must be given for a column of type String"),
    (lambda: private().agg(dpp.top_k("drug", 2, within=9)), TypeError, "candidates must be given for a column"),
    (lambda: private().agg(dpp.mode("drug"), dpp.len(within=9)), ValueError, "^within must be left out"),
    (lambda: private().agg(dpp.mode("drug")).scaled_to(epsilon=1), ValueError, "epsilon and delta"),
    (lambda: private().agg(dpp.mode("drug")).release(), ValueError, "every output must have a loss"),
    (lambda: private().agg((pl.col("days") / 2).dp.mode()), TypeError, "must not hold floats"),
    (lambda: private(days=pl.concat_list("days")).agg(dpp.mode("days")), TypeError, "candidates must be"),
    (lambda: private().agg(dpp.value_counts("drug", None)), TypeError, "candidates must be given: every one"),
    (
        lambda: dpp.publication(a=best(private()), by={"ward": ["A", "B"]}),
        TypeError,
        "must list its candidates",
    ),
    (
        lambda: dpp.analysis.simulate(best(private()).scaled_to(**GUARANTEE), visits().head(1)),
        ValueError,
        "^query must select a candidate of top, two on these rows",
    ),
)  # fmt: skip
def test_what_is_refused_is_free(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_opendp_takes_no_query_that_selects_candidates():
    need("opendp")
    from dp_polars import opendp

    with pytest.raises(TypeError, match=r"^query must be given all limits and clipping bounds"):
        opendp.as_measurement(best(dpp.protect("p")).scaled_to(**GUARANTEE))
