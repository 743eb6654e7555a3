"""Synthetic rows: what a release gives, what it refuses, and what is charged."""

import datetime as dt
import math
import pickle
import sys
import warnings
from fractions import Fraction

import numpy as np
import polars as pl
import pytest

import dp_polars as dpp
from dp_polars._frames import synthetic_query
from dp_polars._mechanisms import adaptive_tables
from tests.helpers.needs import IS_OLD, need
from tests.privacy.test_synthetic import Anything

SURE = {"rho": 10**6}
DIMENSIONS = {"age": dpp.grid(0, 100, step=20), "sex": ["f", "m"], "sick": [True, False]}


@pytest.fixture
def mbi():
    with warnings.catch_warnings():  # of JAX's settings
        warnings.simplefilter("ignore")
        return need("mbi")


@pytest.fixture(scope="module")
def people():
    """Of 4,000 people, one row each; some with null, NaN or unlisted values."""
    rng, many = np.random.default_rng(65), 4000
    age = rng.integers(0, 100, many)
    sick = rng.random(many) < age / 120
    sex = rng.choice(["f", "m", "x", None], many, p=[0.5, 0.4, 0.05, 0.05])
    cost = np.where(rng.random(many) < 0.1, np.nan, age * 3.5)
    return pl.DataFrame({"p": range(many), "age": age, "sex": sex, "sick": sick, "cost": cost})


def test_rows_have_the_types_and_the_tables_of_the_private_ones(mbi, people):
    query = people.dp.protect("p", max_groups=1).synthetic(DIMENSIONS, workload=[("age", "sick"), ("sex",)], **SURE)
    with pytest.warns(dpp.LargeLossWarning):
        made = query.scaled_to(rho=10**5).release()
    listed = people.filter(pl.col("sex").is_in(["f", "m"]))
    rows = made.rows(listed.height)
    assert rows.schema == people.select(*DIMENSIONS).schema
    assert rows.height == listed.height
    assert rows["age"].is_between(0, 100).all()
    for frame in (rows, made.rows(listed.height)):
        by_bin, true = (
            one.group_by((pl.col("age") // 20).clip(0, 4), "sick").len().sort("age", "sick")["len"].cast(pl.Int64)
            for one in (frame, listed)
        )
        assert (by_bin - true).abs().max() <= 15
    counts = made.counts(by=["age", "sick"])
    true = listed.group_by(pl.col("age") // 20 * 20, "sick").len()
    both = counts.join(true, on=["age", "sick"], how="left").with_columns(pl.col("len").fill_null(0))
    assert (both["count"] - both["len"]).abs().max() < 3
    assert ((both["count_low"] <= both["len"]) & (both["len"] <= both["count_high"])).all()
    assert made.error(by=["sick", "age"]).distance < 0.01
    assert ["age", "sick"] in made.measured


def test_values_beyond_a_grid_are_in_the_outer_bins_and_no_value_is_in_none(mbi):
    rows = pl.DataFrame({"x": [-5.0, 0.0, 0.99, 1.0, 2.0, 99.0, math.inf, -math.inf, math.nan, None]})
    dated = rows.with_columns(day=pl.date_range(pl.date(2025, 1, 1), pl.date(2025, 1, 10)))
    grids = {"x": [0.0, 1.0, 2.0], "day": dpp.grid(dt.date(2025, 1, 1), dt.date(2025, 1, 11), step="5d")}
    if IS_OLD:  # dates are not compared there
        with pytest.raises(ValueError, match="needs Polars 2"):
            dated.dp.protect(None).synthetic(grids, rho=15, method="fixed").release()
        dated, grids = rows, {"x": grids["x"]}
    made = dated.dp.protect(None).synthetic(grids, rho=15, method="fixed").release()
    # Rows: six finite ones and two infinities; the bin [1, 2] has its upper end.
    assert made.counts(by="x")["count"].round().to_list() == [4, 4]
    if IS_OLD:
        return
    assert made.counts(by="day")["count"].round().to_list() == [5, 3]
    drawn = made.rows(1000)
    assert drawn.schema == {"x": pl.Float64, "day": pl.Date}
    assert drawn["x"].is_between(0, 2).all()
    assert drawn["day"].n_unique() == 11


def test_bins_of_integers_hold_whole_numbers(mbi):
    frame = pl.DataFrame({"n": np.arange(3000) % 7}, schema={"n": pl.UInt8})
    made = frame.dp.protect(None).synthetic({"n": [0.0, 1.5, 6.5, 7.0]}, rho=15).release()
    assert made.dimensions["n"].to_list() == [0, 2, 7]
    drawn = made.rows(5000)["n"]
    assert drawn.dtype == pl.UInt8
    assert set(drawn) <= {*range(8)}
    with pytest.raises(ValueError, match="values of its column's type, UInt8"):
        frame.dp.protect(None).synthetic({"n": dpp.grid(0, 1000, step=500)}, rho=1)


@pytest.mark.parametrize("unit", ["epsilon", "rho"])
def test_a_release_is_charged_once_in_all_and_before_a_row_is_read(mbi, people, unit):
    budget = dpp.Budget(**{unit: 2})
    query = people.dp.protect("p", max_groups=1, budget=budget).synthetic(DIMENSIONS, **{unit: Fraction(3, 2)})
    assert query.loss.value == Fraction(3, 2)
    made = query.release()
    assert budget.remaining == Fraction(1, 2)
    made.rows(10)
    made.counts(by="age")
    assert budget.remaining == Fraction(1, 2)
    with pytest.raises(dpp.BudgetExceededError):
        query.release()
    assert made.claim["loss"] == f"{unit}=1.5"
    assert f"{unit}=1.5" in repr(made)
    assert len(made.measured) >= 3


def test_a_guarantee_and_a_loss_that_is_said_later(people):
    private = dpp.protect("p", max_groups=1)
    query = private.synthetic(DIMENSIONS)
    assert query.explain()["rho"].null_count() == 5
    scaled = query.scaled_to(epsilon=1, delta=1e-6)
    assert scaled.loss == private.synthetic(DIMENSIONS, epsilon=1, delta=1e-6).loss
    pure = query.scaled_to(epsilon=1)
    assert {ask.query.claim.mechanism for ask in pure._asks} == {"discrete_laplace", "permute_and_flip"}
    in_rho = pure._request.with_asks(query.scaled_to(rho=0.1)._asks)
    assert {ask.query.claim.mechanism for ask in in_rho.asks} == {"discrete_gaussian", "exponential"}
    assert in_rho.loss.value == Fraction(1, 10)
    assert pure.loss.value == 1
    with pytest.raises(ValueError, match="every output must have a loss"):
        query.release(people)
    explained = scaled.explain()
    assert explained["output"].to_list() == [
        "count by age",
        "count by sex",
        "count by sick",
        "chosen tables",
        "choices",
    ]
    assert "Answers decide" in explained["note"][3]


def test_who_may_be_in_several_cells_counts_by_rows_under_limits(mbi):
    rows = pl.DataFrame({"p": [0] * 50 + [*range(1, 100)], "a": [0] * 50 + [1] * 99})
    with pytest.raises(ValueError, match="the rows of one person must be bounded"):
        rows.dp.protect("p").synthetic({"a": [0, 1]}, rho=1)
    query = rows.dp.protect("p", max_rows=3).synthetic({"a": [0, 1]}, rho=19)
    assert query._asks[0].query.counted == "rows"
    assert [ask.query.claim.contributions.total for ask in query._asks] == [3, 3, 3]
    made = query.release()
    counts = made.counts(by="a")["count"]
    assert abs(counts[0] - 3) < 9
    assert abs(counts[1] - 99) < 9
    one = rows.dp.protect("p", max_rows=1).synthetic({"a": [0, 1]}, rho=1)
    assert one._asks[0].query.counted == "people"


@pytest.mark.parametrize("unit", ["epsilon", "rho"])
def test_fixed_tables_are_those_of_a_cube(mbi, people, unit):
    tables = [("age", "sick"), ("sex", "sick")]
    private = people.dp.protect("p", max_groups=1)
    query = private.synthetic(DIMENSIONS, workload=tables, method="fixed", **{unit: 1})
    assert query.loss.value == 1
    if unit == "rho":
        dimensions = {"age": range(5), "sex": ["f", "m"], "sick": [True, False]}
        cube = dpp.protect("p", max_groups=1).cube(dimensions, tables=tables, rho=1)
        assert {str(a.name): a.query.claim for a in query._asks} == {str(a.name): a.query.claim for a in cube._asks}
    made = query.release()
    assert len(made.measured) == len(query._asks)
    assert made.rows(7).height == 7


def test_intervals_of_measured_tables_hold(monkeypatch):
    monkeypatch.setattr(adaptive_tables, "fit", Anything)
    monkeypatch.setattr(adaptive_tables, "cells_of", lambda sizes, tables: 0)
    monkeypatch.setattr(synthetic_query, "imported", lambda: None)
    frame = pl.DataFrame({"a": [0, 1, 1] * 40, "b": [0, 1, 2, 2] * 30})
    query = frame.dp.protect(None).synthetic({"a": [0, 1], "b": [0, 1, 2]}, epsilon=1)
    held, several = {("a",): [], ("b",): [], ("a", "b"): []}, 0
    monkeypatch.setattr(dpp.Synthetic, "_model", property(lambda made: Anything((2, 3), made._measured)))
    for _ in range(300):
        made = query.release()
        several += made.measured.count(["a", "b"]) > 1
        for by, found in held.items():
            counts = made.counts(by=list(by))
            if counts["count_low"].null_count() == 0:
                true = counts.join(frame.group_by(by).len(), on=by, how="left")["len"].fill_null(0)
                found.append(counts["count_low"][0] <= true[0] <= counts["count_high"][0])
    assert several > 20  # the narrowest of several was shown
    for found in held.values():
        assert len(found) > 100
        assert sum(found) / len(found) > 0.95 - 4 * math.sqrt(0.05 * 0.95 / len(found))
    with pytest.raises(ValueError, match="the dimensions of a table that was measured"):
        _unmeasured(made).error(by=["a", "b"])


def _unmeasured(made):
    return dpp.Synthetic(made._dimensions, made._measured[:2], made._claim)


def test_what_is_refused_before_a_charge(mbi, people, monkeypatch):
    private = people.dp.protect("p", max_groups=1)
    with pytest.raises(ValueError, match="at most max_model_size cells, 9, got 10"):
        private.synthetic(DIMENSIONS, rho=1, max_model_size=9)
    with pytest.raises(ValueError, match="must hold at most max_model_size numbers, 19, got 20"):
        private.synthetic(DIMENSIONS, rho=1, max_model_size=19, method="fixed")
    with pytest.raises(ValueError, match="workload must be a list of tuples of names of dimensions"):
        private.synthetic(DIMENSIONS, rho=1, workload=[("age", "other")])
    with pytest.raises(ValueError, match="must have each dimension in one of them, got 'sick' in none"):
        private.synthetic(DIMENSIONS, rho=1, workload=[("age", "sex")])
    with pytest.raises(ValueError, match="must be finite and ascend"):
        private.synthetic({"cost": [0.0, 5.0, 4.0]}, rho=1)
    with pytest.raises(ValueError, match="from 2 to 1,001 ends, got 1"):
        private.synthetic({"cost": [0.5]}, rho=1)
    with pytest.raises(ValueError, match="must have the dimension 'height'"):
        private.synthetic({"height": dpp.grid(0, 200, step=50)}, rho=1)
    with pytest.raises(ValueError, match=r"scale of at most 2\*\*20"):
        private.synthetic(DIMENSIONS, rho=1e-16)
    with pytest.raises(TypeError, match="dimensions must be a dict"):
        private.synthetic(["age"], rho=1)
    with pytest.raises(ValueError, match="no dimension may be named like a column of its answers"):
        people.with_columns(count=1).dp.protect("p", max_groups=1).synthetic({"count": [1]}, rho=1)
    made = private.synthetic(DIMENSIONS, rho=1).release()
    for wrong in ("height", ["age", "age"], [], 3):
        with pytest.raises(ValueError, match="by must name dimensions, each once"):
            made.counts(by=wrong)
    monkeypatch.setitem(sys.modules, "mbi", None)
    budget = dpp.Budget(rho=1)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'dp-polars\[synthetic\]'"):
        people.dp.protect("p", max_groups=1, budget=budget).synthetic(DIMENSIONS, rho=1).release()
    assert budget.remaining == 1


def test_no_table_makes_the_model_larger_than_it_may_be(mbi):
    rng = np.random.default_rng(3)
    base = rng.integers(0, 6, 3000)
    frame = pl.DataFrame({name: (base + rng.integers(0, 2, 3000)) % 6 for name in "abcd"})
    query = frame.dp.protect(None).synthetic(dict.fromkeys("abcd", range(6)), rho=5, max_model_size=80)
    made = query.release()
    pairs = {tuple(names) for names in made.measured if len(names) > 1}
    assert 1 <= len(pairs) <= 2  # of 36 numbers each; three in a chain would have 108


def test_it_is_released_without_rows_in_a_pickle(mbi, people):
    query = dpp.protect("p", max_groups=1).synthetic({"sex": ["f", "m"], "sick": [True, False]}, rho=1)
    made = pickle.loads(pickle.dumps(query)).release(people)
    again = pickle.loads(pickle.dumps(made))
    assert again.counts(by="sex")["count_low"].to_list() == made.counts(by="sex")["count_low"].to_list()


def test_what_has_no_place_for_rows_says_so():
    query = dpp.protect("p", max_groups=1).synthetic({"sex": ["f", "m"]}, rho=1)
    with pytest.raises(TypeError, match="there is no page of synthetic rows"):
        dpp.report(None, query, "page.html")
    with pytest.raises(TypeError, match="there is no page of synthetic rows"):
        dpp.report({"rows": None}, dpp.publication(rows=query), "page.html")
    assert "permute_and_flip" not in query.statement().to_markdown()
    assert "choices of tables" in query.statement().to_markdown()


def test_what_was_written_is_read(mbi, people, tmp_path):
    made = people.dp.protect("p", max_groups=1).synthetic(DIMENSIONS, rho=1, method="fixed").release()
    made.write(tmp_path / "made.parquet")
    again = dpp.Synthetic.read(tmp_path / "made.parquet")
    assert again.claim == made.claim == dpp.read_claim(tmp_path / "made.parquet")
    assert repr(again) == repr(made)
    assert again.measured == made.measured
    assert again.counts(by=["age", "sex"]).drop("count").equals(made.counts(by=["age", "sex"]).drop("count"))
    people.write_parquet(tmp_path / "other.parquet")
    with pytest.raises(ValueError, match=r"must have been written by Synthetic\.write"):
        dpp.Synthetic.read(tmp_path / "other.parquet")


def test_a_publication_takes_synthetic_rows(mbi, people, tmp_path):
    budget = dpp.Budget(epsilon=1, delta=1e-6, path=tmp_path / "ledger.db")
    private = people.dp.protect("p", max_groups=1, budget=budget)
    asked = dpp.publication(
        people=private.group_by({"sex": ["f", "m"]}).agg(n=dpp.n_people()),
        rows=private.synthetic(DIMENSIONS, loss_weight=3),
    ).scaled_to()
    losses = [query.loss.value for query in asked.queries.values()]
    assert losses[1] == 3 * losses[0]
    released = asked.release()
    assert released["rows"].rows(10).columns == [*DIMENSIONS]
    assert budget.remaining == 0
    page = dpp.report(released, asked, tmp_path / "page.html", name="All").read_text()
    assert '<section id="q0">' in page
    assert '<section id="q1">' not in page
    assert "rows: choices: choices of tables" in budget.log()["what"]


def test_an_answer_is_cached(mbi, people, tmp_path):
    budget = dpp.Budget(rho=9, path=tmp_path / "ledger.db")
    private = people.dp.protect("p", max_groups=1, budget=budget, dataset="people")
    one, other = (private.synthetic({"age": DIMENSIONS["age"]}, rho=1).release() for _ in range(2))
    assert budget.spent == 1
    assert [each.counts.tolist() for each in one._measured] == [each.counts.tolist() for each in other._measured]
    private.synthetic({"age": dpp.grid(0, 100, step=25)}, rho=1).release()
    assert budget.spent == 2


def test_rows_of_a_cube_agree_with_its_tables(mbi, people):
    dimensions = {"sex": ["f", "m"], "sick": [True, False]}
    private = people.dp.protect("p", max_groups=1)
    cube = private.cube(dimensions, tables=[("sex", "sick"), ("sex",), ()], rho=5).release()
    rows = cube.rows(round(cube.count().value))
    both = rows.group_by("sex", "sick").len().join(cube.counts(by=["sex", "sick"]), on=["sex", "sick"])
    assert both.height == 4
    assert (both["len"] - both["count"]).abs().max() < 5
    with pytest.raises(TypeError, match="rows: the cube must have been requested with tables"):
        private.cube(dimensions, epsilon=1).release().rows(3)
    wide = {f"d{i}": [0, 1, 2, 3] for i in range(11)}
    frame = pl.DataFrame({name: [0] * 9 for name in wide})
    pairs = [(one, other) for one in wide for other in wide if one < other]
    with pytest.raises(ValueError, match="must hold at most 2,097,152 numbers"):
        frame.dp.protect(None).cube(wide, tables=pairs, rho=1).release().rows(3)
