"""Groups that nobody lists: they are selected privately first, then answered, under one guarantee."""

from __future__ import annotations

import json
import pickle
from fractions import Fraction

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import dp_polars as dpp
from dp_polars._engines.polars.engine import PolarsEngine
from dp_polars._release.ruled import at_worst
from dp_polars._release.selected import _MOST_CELLS, SelectingRequest
from dp_polars._statistics.limits import LimitChoice
from dp_polars._statistics.statistic import KeysThatAreThere
from tests.frames.asking import people_with_rows
from tests.helpers.needs import need
from tests.helpers.refusals import refusals
from tests.registry import ENGINES, RELATIONS

GUARANTEE = {"epsilon": 40, "delta": 1e-6}


def visits(people=600, seed=1):
    """People with one to four rows in three large wards, in one of a single person, and in none."""
    return people_with_rows(
        lambda rng, number: {
            "ward": rng.choice(["A", "B", "C"], number, p=[0.5, 0.3, 0.2]),
            "year": rng.choice([2024, 2025], number),
            "days": rng.integers(0, 60, number),
            "kind": rng.choice(["x", "y"], number, p=[0.7, 0.3]),
        },
        {"p": [0, 1], "ward": ["alone", None], "year": 2024, "days": 1, "kind": "x"},
        people,
        seed,
    )


def report(private, *by):
    return private.group_by(*(by or ("ward",))).agg(
        people=dpp.n_people(),
        rows=dpp.len(),
        top=pl.col("kind").dp.mode(["x", "y"]),
        days=pl.col("days").dp.mean(),
    )


def true_answers(*by):
    rows = visits().drop_nulls().filter(pl.col("ward") != "alone")
    found = rows.group_by(by).agg(pl.col("p").n_unique().cast(pl.Int64), pl.len().cast(pl.Int64), pl.col("days").mean())
    return found.sort(by)


# --- Answers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", [*ENGINES, "auto"])
@pytest.mark.parametrize("by", [("ward",), ("ward", "year")], ids=str)
def test_groups_that_many_have_are_answered(engine, by):
    query = report(visits().dp.protect("p"), *by).scaled_to(epsilon=4000, delta=1e-6)
    released = query.release(engine=engine)
    true = true_answers(*by)
    assert released.select(by).equals(true.select(by))
    assert (released["people"] - true["p"]).abs().max() <= 2
    assert (released["rows"] - true["len"]).abs().max() <= 4
    assert (released["days"] - true["days"]).abs().max() <= 1
    assert set(released["top"]) == {"x"}
    assert query.found is not None
    first = next(iter(query.found))
    assert first.name == "max_groups of the groups"
    assert query._request.selections[0].ask.query.keys_per_person == first.value


def test_a_list_of_names_and_a_file_and_a_frame_that_comes_later(tmp_path):
    visits().write_parquet(tmp_path / "visits.parquet")
    scan = report(pl.scan_parquet(tmp_path / "visits.parquet").dp.protect("p"), ["ward", "year"])
    later = report(dpp.protect("p"), "ward", "year").scaled_to(**GUARANTEE)
    answers = [
        scan.scaled_to(**GUARANTEE).release(intervals=True),
        later.release(visits(), intervals=True),
        pickle.loads(pickle.dumps(later)).release(visits().to_arrow(), intervals=True),
    ]
    for released in answers:
        assert released["ward"].to_list() == ["A", "A", "B", "B", "C", "C"]
        assert released.columns[:6] == ["ward", "year", "people", "people_low", "people_high", "rows"]


def test_without_a_privacy_unit_rows_are_people():
    query = visits().dp.protect(None).group_by("ward").agg(n=dpp.len()).scaled_to(**GUARANTEE)
    assert isinstance(query._planned, SelectingRequest)
    assert query._planned.selections[0].limit is None
    assert query.release()["ward"].to_list() == ["A", "B", "C"]
    assert query.found is None


def test_limits_that_are_given_hold_for_the_selection():
    def planned(**limits):
        query = visits().dp.protect("p", **limits).group_by("ward").agg(n=dpp.n_people())
        return query._planned.selections[0].limit, query._planned.selections[0].ask.query.keys_per_person

    assert planned(max_groups=2) == (None, 2)
    assert planned(max_rows=3) == (None, 3)
    assert planned(max_rows_per_group=1)[0] is not None
    query = visits().dp.protect("p", max_groups=2, max_rows_per_group=2).group_by("ward").agg(n=dpp.len())
    assert query.scaled_to(**GUARANTEE).release()["ward"].to_list() == ["A", "B", "C"]


def test_no_group_at_all_is_an_answer(tmp_path):
    """Of three people no group is shown; every kind of answer is a column without rows."""
    budget = dpp.Budget(epsilon=2, delta=1e-6, path=tmp_path / "ledger.db")
    few = visits().filter(pl.col("p") < 3)
    query = (
        few.dp.protect("p", budget=budget, dataset="few")
        .group_by("ward")
        .agg(
            people=dpp.n_people(),
            sums=pl.col("days").dp.sum(),
            mean=pl.col("days").dp.mean(0, 60),
            std=pl.col("days").dp.std(0, 60),
            half=pl.col("days").dp.median(range(61)),
            fifths=pl.col("days").dp.quantile([0.2, 0.8], range(61)),
            top=pl.col("kind").dp.mode(["x", "y"]),
            counts=pl.col("kind").dp.value_counts(["x", "y"]),
            share=dpp.share(pl.col("days") > 3),
        )
        .scaled_to(epsilon=1, delta=5e-7)
    )
    released = query.release(intervals=True, min_people=3)
    again = query.release(intervals=True, min_people=3)
    assert released.height == 0
    assert_frame_equal(released, again)
    full = report(visits().dp.protect("p")).scaled_to(**GUARANTEE).release(intervals=True)
    assert released.schema["top"] == full.schema["top"]
    assert released.schema["people_low"] == full.schema["people_low"]
    assert "0 selected groups" in repr(query)
    assert query.explain().height == len(query._planned.every)


def test_min_people_hides_and_other_groups_stay():
    query = report(visits().dp.protect("p"), "ward").scaled_to(**GUARANTEE)
    assert query.release(min_people=10_000)["rows"].null_count() == 3


# --- What is charged --------------------------------------------------------------------------------------------------


def test_all_stages_are_charged_together_before_a_row_is_read(tmp_path):
    budget = dpp.Budget(epsilon=1, delta=1e-6, path=tmp_path / "ledger.db")
    query = report(visits().dp.protect("p", budget=budget)).scaled_to(epsilon=1, delta=1e-6)
    assert query.found is None
    query.release()
    log = budget.log()
    assert log.height == len(query._planned.every)
    assert log["what"].to_list()[:2] == [
        "max_groups of the groups: max_groups of the groups, found privately",
        "the groups: the 'ward' that enough people have",
    ]
    with pytest.raises(dpp.BudgetExceededError):
        query.release()
    assert budget.log().height == log.height


def test_a_release_that_fails_stays_charged(tmp_path, monkeypatch):
    budget = dpp.Budget(epsilon=1, delta=1e-6, path=tmp_path / "ledger.db")
    query = report(visits().dp.protect("p", budget=budget)).scaled_to(epsilon=1, delta=1e-6)
    monkeypatch.setattr(KeysThatAreThere, "released", lambda *_: 1 / 0)
    with pytest.raises(dpp.ReleaseError):
        query.release()
    assert budget.log().height == len(query._planned.every)


@pytest.mark.parametrize(
    "numbers", [GUARANTEE, {"epsilon": 1, "delta": 1e-6}, {"epsilon": Fraction(1, 10), "delta": 1e-8}]
)
@pytest.mark.parametrize("relation", RELATIONS)
def test_all_stages_cost_the_guarantee_together(numbers, relation):
    query = report(visits().dp.protect("p", neighboring_relation=relation)).scaled_to(**numbers)
    request = query._planned
    charged = request.claims
    assert sum(claim.delta for claim in charged) == request.selections[0].ask.query.claim.delta > 0
    if query.loss.unit == "epsilon":
        assert sum(claim.cost("epsilon") for claim in charged) == numbers["epsilon"]
    budget = dpp.Budget(epsilon=numbers["epsilon"], delta=numbers["delta"])
    assert budget._state.has_room(charged)
    part = sum(request.found_first[place].query.claim.loss.value for place in (0, 1)) / query.loss.value
    assert 0 < part < Fraction(1, 4)


STATISTICS = {
    "people": lambda: dpp.n_people(),
    "rows": lambda: dpp.len(),
    "sum": lambda: pl.col("days").dp.sum(0, 9),
    "people's sum": lambda: pl.col("days").dp.sum(0, 9, per_person=(0, 9)),
    "mean": lambda: pl.col("days").dp.mean(0, 9),
    "std": lambda: pl.col("days").dp.std(0, 9),
    "share": lambda: dpp.share(pl.col("days") > 3),
    "value counts": lambda: pl.col("kind").dp.value_counts(["x", "y"]),
    "mode": lambda: pl.col("kind").dp.mode(["x", "y"]),
    "mode of rows": lambda: pl.col("kind").dp.mode(["x", "y"], counts="rows"),
    "mode with gap": lambda: pl.col("kind").dp.mode(["x", "y"], gap=True),
    "exponential": lambda: pl.col("kind").dp.mode(["x", "y"], mechanism="exponential"),
    "permute and flip": lambda: pl.col("kind").dp.mode(["x", "y"], mechanism="permute_and_flip"),
    "median": lambda: pl.col("days").dp.median(range(61)),
    "quantiles": lambda: pl.col("days").dp.quantile([0.2, 0.5, 0.8], range(61)),
    "top k": lambda: pl.col("kind").dp.top_k(2, ["x", "y", "z"]),
    "first above": lambda: pl.col("days").dp.first_above(range(61), threshold=5),
    "laplace": lambda: dpp.len(mechanism="discrete_laplace"),
}


def claims_of(statistic, unit, relation):
    """The claims of a statistic for public groups, of which there are some, under several limits."""
    frame = pl.DataFrame({"p": [0], "g": ["0"], "days": [1], "kind": ["x"]})
    for number in (1, 2, 5, 60):
        keys = pl.DataFrame({"g": [str(i) for i in range(number)]})
        for limits in ({"max_groups": 1}, {"max_groups": 7}, {"max_rows": 1}, {"max_rows": 40}, {"max_norm": 3}):
            both = {"max_rows_per_group": 3, **limits}
            private = frame.dp.protect("p", neighboring_relation=relation, **both)
            query = private.group_by(keys).agg(statistic()).scaled_to(**{unit: Fraction(1, 3)})
            yield query._planned.asks[0].query.claim


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("unit", ["epsilon", "rho"])
@pytest.mark.parametrize("name", STATISTICS)
def test_whatever_is_selected_costs_no_more_than_is_charged(name, unit, relation):
    """In the other unit the costliest claim of the same loss is charged, and it is the same one for all groups."""
    other = "rho" if unit == "epsilon" else "epsilon"
    asked = STATISTICS[name]
    if unit == "rho" and name in ("mode with gap", "first above"):
        pytest.skip("in epsilon alone")
    claims = list(claims_of(asked, unit, relation))
    for claim in claims:
        worst = at_worst(claim, _MOST_CELLS)
        assert worst.loss == claim.loss
        assert worst.cost(claim.loss.unit) == claim.cost(claim.loss.unit)
        if claim._has_epsilon:
            assert claim.cost(other) <= worst.cost(other)
            assert not claim.delta


def test_charged_are_the_worst_claims():
    query = report(visits().dp.protect("p")).scaled_to(**GUARANTEE)
    request = query._planned
    for (_, claim), ask in zip(request.charged, request.every, strict=True):
        of_limit = isinstance(ask.query, LimitChoice) and ask is not request.selections[0].limit
        assert claim == (ask.query.claim if of_limit else at_worst(ask.query.claim, _MOST_CELLS))
        assert claim.delta == ask.query.claim.delta


@pytest.mark.parametrize("most", [1, 2, 9, 1000])
@pytest.mark.parametrize("relation", RELATIONS)
def test_a_selection_at_any_limit_keeps_its_loss_and_delta(most, relation):
    query = report(visits().dp.protect("p", neighboring_relation=relation)).scaled_to(**GUARANTEE)
    request = query._planned
    at = request.selections[0].at(most, relation).query
    expected = visits().dp.protect("p", max_groups=most, neighboring_relation=relation)
    loss, delta = at.claim.loss, at.claim.delta
    same = expected.keys("ward", **{loss.unit: loss.value}, delta=delta)._planned.asks[0].query
    assert replace_weight(at) == replace_weight(same)
    assert (loss, delta) == (request.selections[0].ask.query.claim.loss, request.selections[0].ask.query.claim.delta)


def replace_weight(statistic):
    claim = statistic.claim
    return statistic.columns, statistic.keys_per_person, claim.rate, claim.contributions, claim.delta, claim.mechanism


# --- Cached answers, words --------------------------------------------------------------------------------------------


def test_a_named_data_set_selects_once(tmp_path):
    budget = dpp.Budget(epsilon=100, delta=1e-5, path=tmp_path / "ledger.db")
    rows = visits()

    def asked(*by):
        return report(rows.dp.protect("p", budget=budget, dataset="visits"), *by).scaled_to(epsilon=30, delta=1e-6)

    first, second = asked(), asked()
    one = first.release(intervals=True)
    spent = budget.log().height
    two = second.release(intervals=True)
    assert one.equals(two)
    assert first.found == second.found
    assert budget.log().height == spent
    other = asked("year")
    assert other.release()["year"].to_list() == [2024, 2025]
    assert budget.log().height > spent


def test_explain_shows_all_stages_and_later_what_was_found():
    query = report(visits().dp.protect("p"))
    before = query.explain()
    assert before["output"].to_list()[:2] == ["max_groups of the groups", "the groups"]
    scaled = query.scaled_to(epsilon=4, delta=1e-6)
    planned = scaled.explain()
    (of_groups,) = planned.filter(pl.col("output") == "the groups").to_dicts()
    assert "Shown with 95 % from" in of_groups["note"]
    assert "The limit is found first" in of_groups["note"]
    assert of_groups["error_95"] == scaled._planned.selections[0].ask.query.selection.people_for(0.95)
    people = planned.filter(pl.col("output") == "people").to_dicts()[0]
    assert "Groups are selected first; error_95 is for 10 of them." in people["note"]
    assert people["groups"] is None
    scaled.release()
    after = scaled.explain()
    assert "Found max_groups of the groups" in " ".join(after["note"])
    assert after.filter(pl.col("output") == "people")["groups"].to_list() == [3]
    assert after["epsilon"].to_list()[:2] == planned["epsilon"].to_list()[:2]
    assert "selected group" in repr(scaled)
    assert "selected by 'ward'" in repr(visits().dp.protect("p").group_by("ward"))


def test_statement_report_and_file_have_all_stages(tmp_path):
    budget = dpp.Budget(epsilon=40, delta=1e-6, name="visits of selected groups")
    query = report(visits().dp.protect("p", budget=budget)).scaled_to(**GUARANTEE)
    before = query.statement(name="Visits")
    assert "are selected privately" in before.to_markdown()
    query.sink_parquet(tmp_path / "answers.parquet")
    claim = dpp.read_claim(tmp_path / "answers.parquet")
    assert {"the groups", "max_groups of the groups", "people"} <= {*claim["columns"]}
    assert claim["groups"] == 3
    facts = json.dumps(dpp.statement(budget, [query]).facts)
    assert "max_groups of the groups" in facts
    text = query.statement(name="Visits").to_markdown()
    assert "were selected privately" in text
    answers = pl.read_parquet(tmp_path / "answers.parquet")
    page = dpp.report(answers, query, tmp_path / "page.html", name="Visits").read_text("utf-8")
    assert "the groups" in page.replace("\xa0", " ")


def test_a_publication_takes_queries_of_selected_groups():
    private = visits().dp.protect("p")
    both = dpp.publication(report=report(private), rows=private.agg(n=dpp.len())).scaled_to(**GUARANTEE)
    released = both.release()
    assert released["report"]["ward"].to_list() == ["A", "B", "C"]
    assert both.queries["report"].found is not None


def test_a_query_may_be_scaled_again():
    once = report(visits().dp.protect("p")).scaled_to(epsilon=1, delta=1e-6)
    twice = once.scaled_to(epsilon=2, delta=1e-6)
    assert twice.loss.value > once.loss.value
    assert twice._planned.selections[0].ask.query.claim.delta == once._planned.selections[0].ask.query.claim.delta


def test_what_was_found_is_taken_by_later_queries():
    query = report(visits().dp.protect("p")).scaled_to(**GUARANTEE)
    released = query.release()
    assert {"max_norm"} <= {*query.found.limits} <= {"max_norm", "max_groups", "max_rows"}
    later = visits().dp.protect("p").with_limits(found=query.found).group_by(released.select("ward"))
    assert later.agg(dpp.len(epsilon=1)).release().height == 3
    assert dpp.analysis.simulate(query, visits(), allow_private=True).height > 0
    assert query.n_rows_dropped(50, epsilon=50).release().height == 1


def private():
    return visits().dp.protect("p")


@refusals(
    (lambda: private().group_by("ward").agg(dpp.len(epsilon=1)), ValueError, "must have no loss of its own"),
    (lambda: private().group_by("ward").agg(dpp.len(within=9)), ValueError, "must have no loss of its own"),
    (lambda: private().group_by("word").agg(dpp.len()), ValueError, "word"),
    (lambda: private().group_by("ward", 3), TypeError, "^group_by must be given names of columns"),
    (lambda: private().group_by(pl.col("ward")), TypeError, "^group_by must be given names of columns"),
    (lambda: private().group_by("ward", "ward"), ValueError, "^group_by must be given each column once"),
    (lambda: private().group_by([]), ValueError, "^group_by must be given at least one column"),
    (lambda: report(private()).release(), ValueError, "every output must have a loss"),
    (lambda: report(private()).scaled_to(epsilon=1), ValueError, "epsilon and delta"),
    (lambda: report(private().with_columns(ward=pl.col("days") / 2)), TypeError, "floats|Float64"),
    (
        lambda: visits().dp.protect("p", max_groups=None, max_rows=None).group_by("ward").agg(dpp.n_people()),
        ValueError,
        "max_groups must be given",
    ),
    (
        lambda: dpp.publication(a=report(private()), by={"year": [2024, 2025]}),
        TypeError,
        "must list its groups",
    ),
    (
        lambda: report(private()).scaled_to(**GUARANTEE).n_rows_dropped(9, epsilon=1),
        ValueError,
        "^n_rows_dropped must have all limits",
    ),
    (
        lambda: dpp.analysis.loss_for(report(private()).scaled_to(**GUARANTEE), visits(), within={"rows": 9}),
        ValueError,
        "^query must have all limits",
    ),
    (  # one person's group is selected with a probability of delta
        lambda: dpp.analysis.simulate(report(private()).scaled_to(**GUARANTEE), visits().head(1)),
        ValueError,
        "^query must select a group on these rows",
    ),
)
def test_what_is_refused_is_free(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_simulate_selects_groups_on_public_rows():
    query = report(private()).scaled_to(**GUARANTEE)
    simulated = dpp.analysis.simulate(query, visits())
    assert query.found is None
    assert {*simulated["output"]} == {"people", "rows", "top", "days"}
    true = visits().group_by("ward").agg(pl.col("p").n_unique())
    people = simulated.filter(output="people")
    assert {*people["ward"]} <= {*true["ward"]}
    assert people.height >= 3
    assert (people["expected_error"] < 9).all()


def test_opendp_takes_no_query_of_selected_groups():
    need("opendp")
    from dp_polars import opendp

    with pytest.raises(TypeError, match=r"^query must be given all limits and clipping bounds"):
        opendp.as_measurement(report(dpp.protect("p")).scaled_to(**GUARANTEE))


def test_before_it_is_scaled_no_claim_is_the_worst():
    open_claim = report(private())._planned.asks[0].query.claim
    assert at_worst(open_claim, _MOST_CELLS) is open_claim


def test_the_engine_counts_keys_of_people():
    """Nulls and people without a key have none; equal keys of a person are one."""
    rows = pl.DataFrame({"p": [1, 1, 1, 2, 2, 3, None], "g": ["a", "a", "b", "c", None, None, "a"], "h": [1] * 7})
    query = rows.dp.protect("p").group_by("g", "h").agg(dpp.n_people()).scaled_to(epsilon=1, delta=1e-6)
    engine = PolarsEngine.of(rows.lazy())
    stage = query._planned.stage(query._planned.bind(engine), engine)
    (histogram,) = engine.prepare_histograms(stage)()
    beyond = query._planned.selections[0].limit.query.beyond(histogram)
    assert beyond[:4].tolist() == [2, 1, 0, 0]


@pytest.mark.parametrize("by", [("ward",), ("ward", "year")], ids=str)
@pytest.mark.parametrize("given", [{"max_rows_per_group": 2}, {"max_groups": 9, "max_rows_per_group": 2}], ids=str)
def test_answers_have_the_noise_of_the_selected_groups(by, given):
    """Their claims are those of the same losses for as many public groups, under the same limits, found or given."""
    query = visits().dp.protect("p", **given).group_by(*by).agg(n=dpp.n_people(), top=top_kind())
    query = query.scaled_to(**GUARANTEE)
    released = query.release()
    settled = query._request
    limits = dict(settled.limits)
    for ask in settled.asks:
        private = visits().dp.protect("p", **given, **limits.get(ask.name, {}))
        loss, of_output = ask.query.claim.loss, {"n": dpp.n_people, "top": top_kind}[ask.name]
        same = private.group_by(released.select(by)).agg(**{ask.name: of_output(**{loss.unit: loss.value})})
        (expected,) = same._planned.asks
        assert ask.query.claim.rate == expected.query.claim.rate
        assert ask.query.claim.contributions == expected.query.claim.contributions


def top_kind(**loss):
    return pl.col("kind").dp.mode(["x", "y"], counts="rows", **loss)
