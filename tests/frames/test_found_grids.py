"""Medians and other quantiles without candidates: their grid is found before the answers."""

from __future__ import annotations

import datetime as dt
import itertools
import json
import re

import numpy as np
import polars as pl
import pytest

import dp_polars as dpp
from dp_polars._engines.polars.engine import PolarsEngine
from dp_polars._mechanisms.histograms import Histogram
from tests.helpers.refusals import refusals
from tests.registry import RELATIONS

KEYS = {"g": ["A", "B", "nobody"]}


def stays(people=3000, seed=1):
    rng = np.random.default_rng(seed)
    rows = np.minimum(rng.geometric(0.5, people), 9)
    number = int(rows.sum())
    days = pl.Series(rng.integers(19_000, 20_000, number)).cast(pl.Int32).cast(pl.Date)
    delay = pl.Series((rng.normal(-20, 60, number) * 10**6).astype(int)).cast(pl.Duration("us"))
    return pl.DataFrame(
        {
            "p": np.repeat(np.arange(people), rows),
            "g": rng.choice(["A", "B"], number),
            "age": rng.integers(18, 95, number),
            "cost": rng.pareto(1.1, number) * 100,
            "paid": pl.Series(rng.integers(0, 10**5, number)).cast(pl.Decimal(12, 2)),
            "day": days,
            "delay": delay,
            "at": days.cast(pl.Datetime("us")) + delay,
            "none": pl.Series([None] * number, dtype=pl.Float64),
            "seven": 7,
        }
    )


COLUMNS = ["age", "cost", "paid", "day", "delay", "at", "none", "seven"]


def medians(private, columns=COLUMNS):
    return private.group_by(KEYS).agg(*(pl.col(name).dp.median() for name in columns))


# --- What is found ----------------------------------------------------------------------------------------------------


def test_answers_are_near_the_medians_and_of_nobody_null():
    rows = stays(60_000)  # limits leave rows out by chance: of 3,000 people, that moved a median by 2 at times
    query = medians(rows.dp.protect("p")).scaled_to(epsilon=5000)
    answers = query.release().sort("g")
    true = rows.group_by("g").agg(pl.col(COLUMNS).quantile(0.5, "lower")).sort("g")
    for name in ("age", "seven"):
        assert (answers[name][:2] - true[name]).abs().max() <= 1
    for name in ("cost", "paid"):
        assert (answers[name][:2].cast(pl.Float64) / true[name].cast(pl.Float64) - 1).abs().max() < 0.1
    assert (answers["delay"][:2] - true["delay"]).abs().max() < dt.timedelta(seconds=9)
    for name in ("day", "at"):
        assert (answers[name][:2].cast(pl.Date) - true[name].cast(pl.Date)).abs().max() <= dt.timedelta(days=60)
    assert answers.columns == ["g", *COLUMNS, "n_people"]
    assert answers[2].select(COLUMNS).null_count().sum_horizontal().item() == len(COLUMNS)
    assert answers.schema == pl.Schema(
        {
            "g": pl.String(),
            "age": pl.Int64(),
            "cost": pl.Float64(),
            "paid": pl.Decimal(38, 2),
            "day": pl.Date(),
            "delay": pl.Duration("us"),
            "at": pl.Datetime("us"),
            "none": pl.Float64(),
            "seven": pl.Int64(),
            "n_people": pl.Int64(),
        }
    )
    found = {one.name: one.value for one in query.found}
    assert 95 <= found["upper of age"] <= 200
    assert found["lower of day"] <= 2022
    assert found["upper of day"] >= 2024
    assert "upper of age: " in repr(query.found)


def test_lists_and_intervals_have_found_grids_too():
    query = (
        stays()
        .dp.protect("p")
        .group_by(KEYS)
        .agg(
            dpp.n_people(),
            ages=pl.col("age").dp.quantile([0.25, 0.5, 0.75]),
            age=pl.col("age").dp.median(confidence=0.9),
        )
        .scaled_to(rho=100)
    )
    answers = query.release().sort("g")
    assert answers.columns == ["g", "n_people", "ages", "age", "age_low", "age_high"]
    assert answers["ages"][:2].list.get(1).is_between(50, 62).all()
    assert (answers["age_low"][:2] <= answers["age"][:2]).all()
    assert answers[2].select("ages", "age", "age_low", "age_high").null_count().sum_horizontal().item() == 4
    # One column, one grid.
    assert [one.outputs for one in query.found if one.what == "upper"] == [("ages", "age")]


def test_bounds_of_quantiles_are_their_own():
    """A mean clips some people; a quantile, whose answer may lie among these, none."""
    query = (
        stays()
        .dp.protect("p")
        .group_by(KEYS)
        .agg(mean=pl.col("cost").dp.mean(), high=pl.col("cost").dp.quantile(0.9))
        .scaled_to(epsilon=2)
    )
    query.release()
    assert {"upper of mean", "upper of high"} <= {one.name for one in query.found}
    targets = {one.name: one.query.rule.targets for one in query._planned.choices}
    assert max(targets["upper of high"]) < min(targets["upper of mean"])  # people who may be beyond


# --- Groups of few people ---------------------------------------------------------------------------------------------


def test_groups_of_few_people_are_null_by_default():
    rows = stays(400).with_columns(g=pl.when(pl.col("p") < 390).then(pl.lit("A")).otherwise(pl.lit("B")))
    private = rows.dp.protect("p", max_rows=3).group_by(KEYS)
    query = private.agg(people=dpp.n_people(), age=pl.col("age").dp.median(), n=dpp.len()).scaled_to(epsilon=4)
    answers = query.release().sort("g")
    assert answers["age"].is_null().to_list() == [False, True, True]
    assert answers["n"].null_count() == 0  # numbers are shown, with their intervals
    assert answers.columns == ["g", "people", "age", "n"]  # it counts people already
    shown = private.agg(people=dpp.n_people(), age=pl.col("age").dp.median()).scaled_to(epsilon=40)
    assert shown.release(min_people=1).sort("g")["age"][:2].null_count() == 0
    least = query._asks[1].query.least_people(query._asks[0].query)
    assert f"Groups of fewer than {least:,} people, by people, show null" in query.explain()["note"].str.join(" ")[0]


def test_people_who_are_rows_are_counted_as_rows():
    query = stays().dp.protect(None).agg(pl.col("age").dp.median()).scaled_to(epsilon=5)
    assert query.release().columns == ["age", "n_people"]
    assert "Added: it decides where quantiles are null" in query.explain()["note"].str.join(" ")[0]


def test_a_name_that_is_taken_is_not_taken_again():
    named = stays().rename({"g": "n_people"}).dp.protect("p").group_by({"n_people": ["A"]})
    query = named.agg(n_people_2=pl.col("age").dp.median()).scaled_to(epsilon=5)
    assert query.release().columns == ["n_people", "n_people_2", "n_people_3"]


def test_a_cached_release_hides_the_same_groups(tmp_path):
    budget = dpp.Budget(epsilon=9000, path=tmp_path / "ledger.db")

    def asked():
        private = stays().dp.protect("p", budget=budget, dataset="stays")
        return medians(private, ["age", "day"]).scaled_to(epsilon=5000)

    first, again = asked().release(), asked().release()
    assert first.equals(again)
    assert first["age"].null_count() == 1
    every = asked().release(min_people=1)
    assert budget.spent == 5000
    assert every["age"].null_count() <= 1


# --- Losses -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("relation", RELATIONS)
def test_bounds_of_quantiles_have_the_range_of_one_person(relation):
    """Brute force: people who are beyond any number of bounds come, go, or take each other's places."""
    query = medians(stays(50).dp.protect("p", neighboring_relation=relation), ["age"]).scaled_to(epsilon=1)
    choices = [ask.query for ask in query._planned.choices if ask.query.is_bound]
    assert len(choices) == 2
    for choice in choices:
        assert choice.range_of_scores == choice.rule.score_range == 1
        assert set(choice.rule.targets) == {0}
        size = len(choice.rule.counted)

        def scores(codes, choice=choice, size=size):
            passed = np.bincount(codes, minlength=size + 1)
            there = np.flatnonzero(passed)
            return choice.rule.scores(choice.beyond(Histogram(there, passed[there], np.array([len(there)]))))

        codes, people = [0, 1, size // 2, size - 1, size], [*range(size + 1)] * 3
        for one, other in itertools.product(codes, codes):
            moved = scores([*people, one]) - scores([*people, other] if relation == "replace_one" else people)
            assert moved.max() - moved.min() <= 1


@pytest.mark.parametrize(
    "dtype", [pl.Int8, pl.UInt64, pl.Int128, pl.Float32, pl.Decimal(38, 18), pl.Date, pl.Datetime("ns")], ids=str
)
def test_whatever_is_found_is_answered(dtype):
    """A release is charged before bounds are found: no pair of them may fail, or change a type."""
    rows = pl.DataFrame({"p": [1], "x": [1]}).with_columns(pl.col("x").cast(pl.Int32).cast(dtype))
    asked = {"one": dpp.median("x"), "list": dpp.quantile("x", [0.1, 0.5]), "ends": dpp.median("x", confidence=0.9)}
    query = rows.dp.protect("p", max_rows=1).agg(**asked).scaled_to(epsilon=1)
    request = query._planned
    work = request.bind(PolarsEngine.of(rows.lazy()))
    types = {output.name: output.types for output in work.outputs}
    request = request.of_types(types)
    lowers, uppers = (
        values for values, one in zip(request._values(), request.choices, strict=True) if one.query.is_bound
    )
    for low, high in itertools.product(lowers[::6], uppers[::6]):
        found = request._with([low, high])
        bound = found.bind(PolarsEngine.of(rows.lazy()))
        for output, before in zip(bound.outputs, work.outputs, strict=True):
            assert output.dtype == before.dtype
            assert output.query.claim.rate == before.query.claim.rate


def test_all_is_charged_before_a_row_is_read():
    budget = dpp.Budget(epsilon=1, delta=1e-6)
    query = medians(stays(50).dp.protect("p", budget=budget), ["age"]).scaled_to(epsilon=1)
    query.release()
    assert budget.spent == 1
    whats = budget.log()["what"].str.split(":").list.first().to_list()
    assert whats == ["max_rows of age", "lower of age", "upper of age", "max_groups of n_people", "age", "n_people"]
    parts = [float(ask.query.claim.loss.value) for ask in query._planned.choices if ask.query.of_ranks]
    assert 0 < sum(parts) <= 0.2


# --- What is said and refused -----------------------------------------------------------------------------------------


def test_explain_says_the_grid_and_what_it_costs():
    query = medians(stays(50).dp.protect("p"))
    before = dict(query.explain().select("output", "note").rows())
    assert "whole numbers, up to 65,536, else three significant digits." in before["age"]
    assert "Its grid is found first: days." in before["day"]
    assert "the finest steps of 1, 5, 15 or 60 minutes" in before["at"]
    scaled = query.scaled_to(epsilon=1)
    lines = {row["output"]: row for row in scaled.explain().rows(named=True)}
    assert "error_95 is for 65,536 candidates, the most that there may be; for 100 it is" in lines["age"]["note"]
    assert lines["age"]["candidates"] == 65_536
    assert lines["age"]["selects"] == "median on a grid that is found privately"
    scaled.release()
    after = {row["output"]: row for row in scaled.explain().rows(named=True)}
    assert after["age"]["error_95"] < lines["age"]["error_95"]
    assert after["cost"]["selects"].endswith("of three digits")
    assert "Its grid is found first" not in " ".join(row["note"] for row in after.values())


def test_a_query_without_data_takes_them():
    query = medians(dpp.protect("p"), ["age", "day"]).scaled_to(epsilon=400)
    assert "Its grid is found first." in " ".join(query.explain()["note"])
    assert query.release(stays()).sort("g")["age"][:2].is_between(50, 62).all()


def test_statement_and_report_have_the_grid(tmp_path):
    budget = dpp.Budget(epsilon=9)
    query = medians(stays().dp.protect("p", budget=budget), ["age", "cost"]).scaled_to(epsilon=9)
    answers = query.release()
    assert re.search(r"\d points of three digits, from -?[\d.]+ to ", json.dumps(dpp.statement(budget, [query]).facts))
    page = dpp.report(answers, query, tmp_path / "page.html", name="Stays").read_text("utf-8")
    assert "upper of cost" in page.replace("\xa0", " ")


def test_a_released_query_is_simulated_on_its_grid():
    query = medians(stays().dp.protect("p"), ["age", "cost"]).scaled_to(epsilon=9)
    assert dpp.analysis.simulate(query, stays(60), allow_private=True).height > 0
    query.release()
    assert dpp.analysis.simulate(query, stays(), allow_private=True).height > 0


@refusals(
    (
        lambda: stays(9).dp.protect("p", max_rows=3).agg(pl.col("age").dp.median(epsilon=1)),
        ValueError,
        r"(?s)^Output 'age' must have no loss of its own without candidates: .*give candidates, as in median\(range",
    ),
    (
        lambda: stays(9).dp.protect("p", max_rows=3).agg(pl.col("age").dp.median(within=5)),
        ValueError,
        "^Output 'age' must have no loss of its own without candidates",
    ),
    (
        lambda: stays(9).select(pl.col("age").dp.median(epsilon=1)),
        pl.exceptions.ComputeError,
        "candidates must be given on a plain frame",
    ),
    (
        lambda: stays(9).dp.protect("p", max_rows=3).agg(pl.col("g").dp.median()),
        TypeError,
        "candidates must be given for a column of type String",
    ),
)
def test_what_is_refused_is_free(call, error, words):
    with pytest.raises(error, match=words):
        call()
