"""`filter` as the last step of a column in `agg`, and `where` of counts: rows that are ignored before any bound."""

import pickle

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import dp_polars as dpp
from dp_polars.analysis import simulate

X, C, W = pl.col("x"), pl.col("c"), pl.col("w")
SURE = {"epsilon": 10**6}
ROWS = pl.DataFrame(
    {
        "p": [1, 1, 2, 2, 3, None],
        "g": ["a", "a", "a", "b", "b", "b"],
        "x": [1, 5, 3, None, 9, 4],
        "w": [1, 2, 3, 4, 5, 6],
        "c": [True, False, True, True, None, True],
    }
)
# Of three people: x is 1 and 3, and missing once, where c is true.
ASKS = {
    "a mean": (X.filter(C).dp.mean(0, 10, **SURE), 2.0),
    "a sum of several conditions": ((X + 1).filter(C, W > 1).dp.sum(0, 10, **SURE), 4),
    "a count by a constraint": (X.filter(c=True).dp.count(**SURE), 2),
    "nulls": (X.filter(C).dp.null_count(**SURE), 1),
    "nulls of other rows": (X.filter(W > 4).dp.null_count(**SURE), 0),
    "a share": (dpp.share((X > 2).filter(C), **SURE), 0.5),
    "under another name": (X.filter(C).alias("y").name.suffix("_z").dp.median(range(10), **SURE), 1),
    "a total of people": (X.filter(C).dp.sum(0, 10, per_person=(0, 2), **SURE), 3),
    "a mode by weight": (X.filter(C).dp.mode([1, 9], counts=dpp.weights(W, max_weight=9), **SURE), 1),
    "a list": (X.filter(C).dp.top_k(1, [9, 3], **SURE), [3]),
    "counts": (X.filter(C).dp.value_counts([9, 1], **SURE), [{"value": 9, "count": 0}, {"value": 1, "count": 1}]),
    "rows": (dpp.len(where=C, **SURE), 3),
    "rows by a name": (dpp.len(where="c", **SURE), 3),
    "people": (dpp.n_people(where=C & (W > 1), **SURE), 1),
    "two columns and no filter": ((X + W).dp.sum(0, 20, **SURE), 29),
    "a constant": (pl.lit(3).filter(C).dp.sum(0, 10, **SURE), 9),
    "a constant condition": (X.filter(pl.lit(value=True)).dp.count(**SURE), 4),
}


@pytest.mark.parametrize("name", ASKS)
def test_rows_where_the_condition_is_not_true_are_ignored(name):
    expr, truth = ASKS[name]
    query = ROWS.dp.protect("p", max_rows=3).agg(a=expr)
    without = pickle.loads(pickle.dumps(dpp.protect("p", max_rows=3).agg(a=expr)))
    for released in (query.release(), without.release(ROWS)):
        (answer,) = released["a"].to_list()
        # Averages are of sums of parts, with a few parts of noise.
        assert answer == (pytest.approx(truth, abs=1e-4) if name in ("a mean", "a share") else truth)


def test_words_say_that_there_is_a_condition_and_not_which(tmp_path):
    budget = dpp.Budget(epsilon=2, path=tmp_path / "ledger.db")
    private = ROWS.dp.protect("p", max_rows=1, budget=budget, dataset="visits")
    query = private.agg(X.filter(X > 8).dp.sum(0, 9, epsilon=0.5), dpp.len(where=X > 8, epsilon=0.5))
    told = ["sum of values from 0 to 9, where a condition is true", "number of rows, where a condition is true"]
    assert query.explain()["selects"].to_list() == told
    assert query.explain()["candidates"].to_list() == [1, 1]
    assert f"x: {told[0]}, " in repr(query)
    query.sink_parquet(tmp_path / "answers.parquet")
    claimed = dpp.read_claim(tmp_path / "answers.parquet")["columns"]
    assert [column["selects"] for column in claimed.values()] == told
    (query,) = budget.answers()["query"]
    assert query == f"x: {told[0]}, len: {told[1]}"
    assert ", ".join(budget.log()["what"]) == query
    assert private.agg(X.dp.sum(0, 9, epsilon=0.5)).explain()["selects"].item() == "sum of values from 0 to 9"


def test_bounds_cut_only_people_of_whom_too_many_rows_fit():
    private = ROWS.dp.protect("p", max_rows=1)
    for expr, cut in ((dpp.len(**SURE), 2), (dpp.len(where=C, **SURE), 1), (X.filter(C).dp.count(**SURE), 0)):
        assert private.agg(expr).n_rows_dropped(1, **SURE).release().item() == cut


def test_simulated_rows_are_filtered_too():
    public = ROWS.drop_nulls("p")
    query = ROWS.dp.protect("p", max_rows=2).agg(X.filter(C).dp.mean(0, 10, rho=1), dpp.n_people(where=C, rho=1))
    assert simulate(query, public, allow_private=True)["true_answer"].to_list() == ["2.0", "2"]
    assert simulate(dpp.len(where=C, epsilon=1), ROWS)["true_answer"].to_list() == [4]


ERRORS = {
    "a transformation after it": (
        (X.filter(C) + 1).dp.sum(0, 9, epsilon=1),
        "Output|`filter` changes the number of rows",
    ),
    "a function after it": (X.filter(C).abs().dp.sum(0, 9, epsilon=1), "`filter` changes the number of rows"),
    "a filter in it": (X.filter(C).filter(C).dp.sum(0, 9, epsilon=1), "`filter` changes[\\s\\S]*or filter last"),
    "other rows": (X.filter(X.mean() < X).dp.sum(0, 9, epsilon=1), "`mean` combines several rows"),
    "other rows, of a count": (dpp.len(where=X.mean() < X, epsilon=1).alias("x"), "`mean` combines several rows"),
    "a Python function": (
        X.filter(X.map_elements(bool, return_dtype=pl.Boolean)).dp.count(epsilon=1),
        "a Python function can't be inspected",
    ),
    "no Boolean": (X.filter(X).dp.count(epsilon=1), "Boolean"),
    "no Boolean, of a count": (dpp.len(where=X, epsilon=1).alias("x"), "Boolean"),
}


@pytest.mark.parametrize("name", ERRORS)
def test_what_is_refused_names_the_output_and_costs_nothing(name):
    expr, message = ERRORS[name]
    budget = dpp.Budget(epsilon=1)
    with pytest.raises(ValueError, match=f"output 'x'.*({message})"):
        ROWS.dp.protect("p", max_rows=1, budget=budget).agg(expr)
    assert budget.spent == 0


def test_a_flag_counts_people_where_no_filter_runs():
    """What the hint says for SQL and Spark."""
    flagged = ROWS.with_columns(flag=C.fill_null(value=False).cast(pl.Int64))
    query = flagged.dp.protect("p", max_rows=1).agg(
        flag=pl.col("flag").dp.sum(0, 1, per_person=(0, 1), **SURE), people=dpp.n_people(where=C, **SURE)
    )
    assert query.release().row(0) == (2, 2)
    assert query.explain()["score_range"].to_list() == [1, 1]


@pytest.mark.parametrize("column", [X, X.filter(C)])
@pytest.mark.parametrize("weights", [W.filter(C), W.filter(C).alias("x")])
def test_weights_have_no_filter(column, weights):
    expr = column.dp.mode([1], counts=dpp.weights(weights, max_weight=1), epsilon=1)
    with pytest.raises(ValueError, match=r"Output 'x': weights must have no filter[\s\S]*Hint: filter the column"):
        dpp.protect("p").agg(expr)


@pytest.mark.parametrize("where", [True, 3, pl.lit(value=True), pl.all(), pl.col("^c$"), dpp.count("x", epsilon=1)])
def test_a_condition_must_read_columns(where):
    for count in (dpp.len, dpp.n_people):
        with pytest.raises(TypeError, match=r"where must be one condition that reads columns, got .*\n\nHint: where="):
            count(where=where, epsilon=1)


def test_plain_frames_filter_as_polars_does(engine):
    lazy = ROWS.lazy()
    asked = {"n": dpp.len(where=C, **SURE), "mean": X.filter(C).dp.mean(0, 10, **SURE)}
    one = lazy.select(
        dpp.len(where=C, **SURE), X.filter(C).dp.mode([1, 9], counts=dpp.weights(W.filter(C), max_weight=9), **SURE)
    )
    assert one.collect(engine=engine).rows() == [(4, 1)]
    groups = lazy.group_by("g").agg(**asked, none=dpp.len(where=W > 9, **SURE)).collect(engine=engine).sort("g")
    expected = {"g": ["a", "b"], "n": [2, 2], "mean": [2.0, 4.0], "none": [0, 0]}
    assert_frame_equal(groups, pl.DataFrame(expected))
    assert lazy.select(dpp.len(where=C, **SURE).over("g")).collect(engine=engine)["len"].to_list() == [2] * 6
    # A condition that is one for all rows.
    assert lazy.select(dpp.len(where=X.max() > 8, **SURE)).collect(engine=engine).item() == 6
    assert lazy.select(dpp.len(where=X.max() > 9, **SURE)).collect(engine=engine).item() == 0


def test_plain_frames_refuse_what_they_can_not_count():
    with pytest.raises(pl.exceptions.PolarsError, match="it must be used on a private frame"):
        ROWS.select(dpp.n_people(where=C, epsilon=1))
    with pytest.raises(pl.exceptions.PolarsError, match="Boolean"):
        ROWS.select(dpp.len(where=X, epsilon=1))
    weighed = X.filter(C).dp.mode([1], counts=dpp.weights(W, max_weight=1), epsilon=1)
    with pytest.raises((ValueError, pl.exceptions.PolarsError), match="value for every row"):
        ROWS.select(weighed)
