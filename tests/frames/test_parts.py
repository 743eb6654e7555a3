"""Publications of disjoint parts: what counts of a person, what it costs, and who else follows."""

from __future__ import annotations

import itertools
from fractions import Fraction

import polars as pl
import pytest
from scipy import stats

import dp_polars as dpp
from dp_polars._engines.polars.engine import PolarsEngine
from dp_polars._release.contract import PartChoice
from dp_polars._release.release import keep_parts
from dp_polars.analysis import simulate, size_needed
from tests.engines.toy import ToyEngine

REGIONS = ["N", "S", "E", "W"]
WHO = 300
VISITS = pl.DataFrame(
    {
        "patient": [number // 4 for number in range(4 * WHO)],
        "region": [*REGIONS] * WHO,
        "who": [number // 4 for number in range(4 * WHO)],
        "month": [1 + number % 3 for number in range(4 * WHO)],
        "age": [number % 90 for number in range(4 * WHO)],
    }
)
SURE = {"epsilon": 10**6}
BY = {"region": REGIONS}


def queries(private, **loss):
    return {
        "in_all": private.agg(people=dpp.n_people(**loss)),
        "by_month": private.group_by({"month": [1, 2, 3]}).agg(
            people=dpp.n_people(**loss), top=dpp.mode("age", range(90), **loss)
        ),
    }


def protected(budget=None, dataset=None, **limits):
    return VISITS.dp.protect("patient", budget=budget, dataset=dataset, **{"max_groups": 1, **limits})


def parts_of(query, rows, choice):
    """Which people count in which parts, as the engine counts them."""
    engine = PolarsEngine.of(rows.lazy()) if isinstance(rows, pl.DataFrame) else PolarsEngine(rows)
    keep_parts(query._request, engine, choice)
    return engine._read().select("patient", "region").unique().collect()


@pytest.mark.parametrize("max_parts", [1, 2, 4])
def test_every_query_sees_the_same_parts(max_parts):
    private = protected()
    who = private.group_by({"who": range(WHO)})
    asked = {"one": who.agg(n=dpp.n_people(**SURE)), "other": private.agg(n=dpp.n_people(**SURE))}
    asked["filtered"] = private.filter(pl.col("age") >= 0).group_by({"who": range(WHO)}).agg(n=dpp.n_people(**SURE))
    released = dpp.publication(asked, by=BY, max_parts=max_parts).release()
    assert released["one"].columns == ["region", "who", "n"]
    assert released["one"].equals(released["filtered"])
    by_person = released["one"].group_by("who").agg(pl.col("n").sum())["n"]
    assert by_person.to_list() == [max_parts] * WHO
    in_all = released["one"].group_by("region", maintain_order=True).agg(pl.col("n").sum())
    assert in_all.equals(released["other"])
    if max_parts < 4:
        again = dpp.publication(asked, by=BY, max_parts=max_parts).release()
        assert not again["one"].equals(released["one"])


@pytest.mark.parametrize("max_parts", [1, 2])
def test_each_choice_of_parts_is_as_likely(max_parts):
    """300 people, ten times: a false alarm in some 10**9 runs."""
    (query,) = dpp.publication(n=protected().agg(n=dpp.n_people(**SURE)), by=BY, max_parts=max_parts).queries.values()
    found = [parts_of(query, VISITS, PartChoice()) for _ in range(10)]
    sets = pl.concat(found_one.group_by("patient").agg(pl.col("region").sort()) for found_one in found)
    numbers = sets.group_by("region").len()
    expected = [*itertools.combinations(sorted(REGIONS), max_parts)]
    assert sorted(map(tuple, numbers["region"].to_list())) == expected
    assert stats.chisquare(numbers["len"].to_numpy()).pvalue > 1e-9


def test_a_choice_that_is_not_uniform_would_be_found():
    numbers = [900, 700, 700, 700]
    assert stats.chisquare(numbers).pvalue < 1e-6


def test_nobody_and_rows_of_no_part_count_for_nothing():
    rows = pl.DataFrame({"patient": [1, 1, None, 2, 3], "region": ["N", "X", "N", None, "S"]})
    released = dpp.publication(
        n=rows.dp.protect("patient", max_rows=1).agg(people=dpp.n_people(**SURE), rows=dpp.len(**SURE)), by=BY
    ).release()
    assert released["n"].rows() == [("N", 1, 1), ("S", 1, 1), ("E", 0, 0), ("W", 0, 0)]


def test_rows_that_are_people_are_in_one_part(relation):
    rows = pl.DataFrame({"region": ["N", "N", "S", "X"]})
    private = rows.dp.protect(None, neighboring_relation=relation)
    asked = dpp.publication(n=private.agg(n=dpp.len(**SURE)), by=BY)
    assert asked.release()["n"]["n"].to_list() == [2, 1, 0, 0]
    assert asked.loss.value == SURE["epsilon"] * (1 if relation == "add_or_remove_one" else 2)
    with pytest.raises(ValueError, match="max_parts must be 1"):
        dpp.publication(n=private.agg(n=dpp.len(**SURE)), by=BY, max_parts=2)


def test_several_columns_make_parts_of_their_combinations():
    by = {"region": ["N", "S"], "month": [1, 2, 3]}
    released = dpp.publication(n=protected().agg(n=dpp.n_people(**SURE)), by=by, max_parts=6).release()["n"]
    true = VISITS.group_by("region", "month").agg(n=pl.col("patient").n_unique())
    assert released.columns == ["region", "month", "n"]
    wanted = released.select("region", "month").join(true, on=["region", "month"], how="left")["n"].fill_null(0)
    assert released["n"].to_list() == wanted.to_list()


def test_limits_hold_in_each_part():
    """A person with two months in each of two regions counts in one month of each."""
    rows = pl.DataFrame({"patient": [1] * 4, "region": ["N", "N", "S", "S"], "month": [1, 2, 1, 2]})
    query = rows.dp.protect("patient", max_groups=1).group_by({"month": [1, 2]})
    asked = dpp.publication(n=query.agg(mode=dpp.mode("month", [1, 2], too_few=1, **SURE)), by=BY, max_parts=2)
    (one,) = asked.queries.values()
    engine = PolarsEngine.of(rows.lazy())
    keep_parts(one._request, engine, PartChoice())
    (histogram,) = engine.prepare_histograms(one._request.bind(engine))()
    assert histogram.totals.reshape(4, 2).sum(axis=1).tolist() == [1, 1, 0, 0]


FACTORS = [(1, "add_or_remove_one", 1), (3, "add_or_remove_one", 3), (1, "replace_one", 2), (3, "replace_one", 4)]


@pytest.mark.parametrize(("max_parts", "relation", "times"), FACTORS)
@pytest.mark.parametrize("target", [{"epsilon": 1}, {"rho": Fraction(1, 10)}, {"epsilon": 1, "delta": 1e-6}], ids=str)
def test_one_guarantee_is_shared_over_the_parts_that_are_paid(max_parts, relation, times, target, tmp_path):
    budget = dpp.Budget(**target, path=tmp_path / "ledger.db")
    private = protected(budget, neighboring_relation=relation)
    asked = dpp.publication(queries(private), by=BY, max_parts=max_parts).scaled_to(**target)
    of_part = [ask.query.claim.loss.value for query in asked.queries.values() for ask in query._asks]
    assert asked.loss.value == times * sum(of_part)
    if "delta" not in target:
        assert {asked.loss.unit: asked.loss.value} == target
    unit = asked.loss.unit
    explained = asked.explain()
    assert explained[unit].sum() == pytest.approx(float(asked.loss.value))
    assert explained["note"].str.contains(f"may change {times} part").all()
    asked.release()
    assert budget.remaining == 0
    assert len(budget.log()) == times * len(of_part)
    stated = dpp.statement(budget, [asked])
    assert sum(Fraction(one["loss"]["exact"]) for one in stated.facts["releases"][0]["outputs"]) == times * of_part[0]
    text = stated.to_markdown()
    assert f"{max_parts} of 4 parts by region" in text
    assert [one["recorded"] for one in stated.facts["ledger"]["entries"]] == ["in_all"] * times + [
        "by_month"
    ] * 2 * times


def test_losses_that_are_given_are_scaled_to_all_parts():
    asked = dpp.publication(queries(protected(), epsilon=1), by=BY, max_parts=2)
    assert asked.loss.value == 6
    assert asked.scaled_to(epsilon=1).loss.value == 1


def test_selected_keys_have_their_delta_in_each_part(relation):
    private = VISITS.dp.protect("patient", max_groups=1, neighboring_relation=relation)
    asked = dpp.publication(months=private.keys("month"), by=BY, max_parts=2).scaled_to(epsilon=8, delta=1e-4)
    times = 2 if relation == "add_or_remove_one" else 4
    assert asked.delta == times * asked.queries["months"]._asks[0].query.claim.delta
    assert asked.delta <= Fraction("1e-4")
    released = asked.release()["months"]
    assert released.columns == ["region", "month"]
    assert {*released["region"]} == {*REGIONS}


def test_answers_are_cached_with_their_parts(tmp_path):
    budget = dpp.Budget(epsilon=10, path=tmp_path / "ledger.db")
    private = protected(budget, "visits")

    def release(**how):
        return dpp.publication(queries(private, epsilon=1), **how).release()

    one, again = release(by=BY), release(by=BY)
    assert all(one[name].equals(again[name]) for name in one)
    assert budget.spent == 3
    release(by=BY, max_parts=2)
    assert budget.spent == 9


def test_one_query_of_parts_is_released_with_its_parts():
    asked = dpp.publication({"one": protected().group_by({"who": range(WHO)}).agg(n=dpp.n_people(**SURE))}, by=BY)
    assert asked.queries["one"].release()["n"].sum() == WHO


def test_simulations_and_sizes_follow():
    public = pl.DataFrame(VISITS.to_dict(as_series=False))
    asked = dpp.publication(queries(protected()), by=BY).scaled_to(epsilon=2)
    found = simulate(asked, public)
    assert found["groups"].to_list()[0] == 4
    assert found.filter(query="in_all")["dropped"].item() == pytest.approx(0.75 * WHO, rel=0.2)
    alone = simulate(asked.queries["in_all"], public)
    assert alone["region"].to_list() == REGIONS
    assert (alone["counted"] + alone["left_out"]).to_list() == [WHO] * 4
    several = dpp.publication(queries(protected(), epsilon=1), by=BY, max_parts=2).queries["in_all"]
    tried = simulate(several, public, losses=[1, 2])
    assert simulate(several, public)["loss"].to_list() == [2] * 4
    assert tried["loss"].to_list() == [1] * 4 + [2] * 4
    widths = (tried["answer_95"] - tried["answer_5"]).to_list()
    assert sum(widths[4:]) < sum(widths[:4])
    assert size_needed(asked, 0.1).height > 0
    keys = dpp.publication(months=protected().keys("month", epsilon=1, delta=1e-3), by=BY)
    assert simulate(keys, public)["value"].item() == 12


def test_a_report_shows_the_parts(tmp_path):
    asked = dpp.publication(queries(protected()), by=BY).scaled_to(epsilon=20)
    path = dpp.report(asked.release(), asked, tmp_path / "page.html", name="Visits")
    page = path.read_text(encoding="utf-8")
    assert "Each person counts in at most 1 of 4 parts by region" in page
    assert "No limit drops anything" not in page


REFUSED = {
    "the query 'q' must be one of agg or keys": lambda p: p.cube({"month": [1, 2, 3]}, epsilon=1),
    "which is about all parts together": lambda p: (
        p.with_limits(max_rows=1).agg(n=dpp.len(epsilon=1)).n_rows_dropped(3, epsilon=1)
    ),
    "no key and no output named like a column of by": lambda p: p.group_by({"region": ["N"]}).agg(dpp.n_people()),
    "must not change the privacy unit": lambda p: p.with_columns(region=pl.lit("N")).agg(dpp.n_people()),
    "must keep its name": lambda p: p.rename({"region": "area"}).agg(dpp.n_people()),
}


@pytest.mark.parametrize("says", REFUSED)
def test_a_query_that_is_not_of_parts_is_refused(says):
    with pytest.raises((TypeError, ValueError), match=says):
        dpp.publication(q=REFUSED[says](protected()), by=BY)


def test_a_query_of_parts_is_taken_into_nothing_about_all_parts():
    """A number over all parts together moves as far as a person has parts, which its claim does not say."""
    private = protected()
    query = private.group_by({"month": [1, 2, 3]}).agg(n=dpp.n_people(rho=1))
    asked = dpp.publication(q=query, by=BY, max_parts=2).queries["q"]
    assert query.n_rows_dropped(3, rho=1).loss.value == 1
    with pytest.raises(TypeError, match="not about disjoint parts"):
        asked.n_rows_dropped(3, rho=1)
    for more in ({}, {"by": BY}):
        with pytest.raises(ValueError, match="of the disjoint parts of another publication"):
            dpp.publication(q=asked, **more)


def test_limits_that_are_found_privately_are_refused():
    staged = VISITS.dp.protect("patient").group_by({"month": [1, 2, 3]}).agg(dpp.n_people())
    with pytest.raises(TypeError, match="would be found in all parts together"):
        dpp.publication(q=staged, by=BY)


@pytest.mark.parametrize(
    ("by", "says"),
    [
        (["N"], "by must be a dict"),
        ({"patient": [1, 2]}, "must not name the privacy unit"),
        ({"nowhere": ["N"]}, "nowhere"),
        ({"region": []}, "region"),
        ({"age": [0.5]}, "must be"),
    ],
)
def test_wrong_parts_are_refused(by, says):
    with pytest.raises((TypeError, ValueError, pl.exceptions.PolarsError), match=says):
        dpp.publication(q=protected().agg(dpp.n_people(epsilon=1)), by=by)


def test_other_tables_and_engines_without_parts_are_refused():
    one, other = protected(), protected()
    with pytest.raises(ValueError, match="must be of one protected table"):
        dpp.publication(one=one.agg(dpp.n_people()), other=other.agg(dpp.n_people()), by=BY)
    with pytest.raises(ValueError, match="max_parts must be left out"):
        dpp.publication(one=one.agg(dpp.n_people()), max_parts=2)
    with pytest.raises(ValueError, match="max_parts"):
        dpp.publication(one=one.agg(dpp.n_people()), by=BY, max_parts=0)
    later = dpp.protect("patient", max_groups=1)
    asked = dpp.publication(one=later.agg(dpp.n_people(epsilon=1)), by=BY)
    with pytest.raises(ValueError, match="must be given one table"):
        asked.release({"one": VISITS})
    assert asked.release(VISITS)["one"].height == 4
    with pytest.raises(TypeError, match="can't be queried in parts"):
        keep_parts(asked.queries["one"]._request, ToyEngine([], {"region": pl.String()}), PartChoice())
