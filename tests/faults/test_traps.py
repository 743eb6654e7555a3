"""What looked right and counted nothing: values of another type than the column's, and what a row's own list holds."""

import datetime as dt
import math
import re

import polars as pl
import pytest

import dp_polars as dpp
from tests.helpers.needs import IS_OLD

SURE = 10**6
DAY, MOMENT = dt.date(2026, 1, 2), dt.datetime(2026, 1, 2, 8)
ROWS = pl.DataFrame(
    {
        "p": range(300),
        "at": [dt.datetime(2026, 1, 1 + number % 3, 8) for number in range(300)],
        "zip": [str(8000 + number % 3) for number in range(300)],
        "n": [number % 3 for number in range(300)],
        "wait": [dt.timedelta(hours=number % 3) for number in range(300)],
        "open": [number % 3 == 0 for number in range(300)],
    }
).with_columns(local=pl.col("at").dt.replace_time_zone("Europe/Paris"), day=pl.col("at").dt.date())
AT, ZIP, N, WAIT, LOCAL = map(pl.col, ("at", "zip", "n", "wait", "local"))

# A column, public values of another type, and what to write.
OF_OTHER_TYPES = [
    ("at", [DAY], 'days of the column first, pl.col("at").dt.date(); or give datetimes'),
    ("local", [DAY], "days of the column first"),
    ("local", [MOMENT], 'pl.Series(values).dt.replace_time_zone("Europe/Paris")'),
    ("at", [MOMENT.replace(tzinfo=dt.UTC)], "pl.Series(values).dt.replace_time_zone(None)"),
    ("zip", [8001], 'give texts, ["1", "2"]; or cast the column first: pl.col("x").cast(pl.Int64, strict=False)'),
    ("n", ["1"], 'or cast the column first: pl.col("x").cast(pl.String, strict=False)'),
    ("n", [True], 'or cast the column first: pl.col("x").cast(pl.Boolean, strict=False)'),
    ("wait", [1], "give values of the column's type"),
    ("day", [20260102], "datetime.date(2026, 1, 31)"),
    ("day", [MOMENT], 'pl.col("x").cast(pl.Datetime)'),
]


def released(ask):
    query = ask()
    return query.release() if private_rows(query) else query.release(ROWS)


def private_rows(query):
    return query._source is not None


@pytest.mark.parametrize(("column", "values", "hint"), OF_OTHER_TYPES)
def test_public_values_of_another_type_are_refused_before_the_charge(column, values, hint, tmp_path):
    budget = dpp.Budget(epsilon=9, path=tmp_path / "ledger.db")
    for private in (ROWS.dp.protect("p", max_rows=1, budget=budget), dpp.protect("p", max_rows=1, budget=budget)):
        asked = {
            "keys": lambda of=private: of.group_by({column: values}).agg(dpp.len(epsilon=1)),
            "a frame of keys": lambda of=private: of.group_by(pl.DataFrame({column: values})).agg(dpp.len(epsilon=1)),
            "two keys": lambda of=private: of.group_by({"open": [True], column: values}).agg(dpp.len(epsilon=1)),
            "a mode": lambda of=private: of.agg(dpp.mode(column, values, epsilon=1)),
            "value counts": lambda of=private: of.agg(dpp.value_counts(column, values, epsilon=1)),
            "the best": lambda of=private: of.agg(dpp.top_k(column, 1, values, epsilon=1)),
            "a cube": lambda of=private: of.cube({column: values, "open": [True]}, counts="rows", epsilon=1),
        }
        for ask in asked.values():
            with pytest.raises(TypeError, match=re.escape(hint)):
                released(ask)
    for how in ("left", "inner", "semi", "anti"):
        with pytest.raises(TypeError, match=re.escape("join: the public column 'there'")) as caught:
            ROWS.dp.protect("p").join(pl.DataFrame({"there": values}), left_on=column, right_on="there", how=how)
        assert "Hint: " in str(caught.value)
    assert budget.spent == 0
    with pytest.raises(pl.exceptions.ComputeError, match=re.escape(hint)):
        ROWS.select(pl.col(column).dp.mode(values, epsilon=1))


def test_days_are_counted_once_the_column_is_one_of_days():
    if not IS_OLD:  # it takes few steps
        private = ROWS.dp.protect("p", max_rows=1).with_columns(AT.dt.date())
        assert private.group_by({"at": [DAY]}).agg(n=dpp.len(epsilon=SURE)).release()["n"].item() == 100
    assert ROWS.dp.protect("p", max_rows=1).agg(dpp.median("at", [DAY], epsilon=1)).release().item() == DAY


UNLIKE = [
    *(AT == DAY, DAY == AT, AT != DAY, AT.eq_missing(DAY), AT.ne_missing(DAY), AT.is_in([DAY]), pl.col("day") == AT),
    *(LOCAL == DAY, pl.col("day") == MOMENT, AT.replace({DAY: DAY}) > MOMENT),
    *(ZIP == 8001, ZIP.is_in([8001]), N == "1", N.is_in(["1"]), N.is_between(pl.lit("0"), pl.lit("1"))),
    *(pl.col("day") > 20260101, WAIT > 1, WAIT == 1, ZIP == DAY, N == DAY, N < DAY, AT > 2026, LOCAL == MOMENT),
    pl.concat_list("at", "at").list.contains(DAY),
    pl.concat_list("at", "at").list.count_matches(DAY) > 0,
    pl.concat_list("n", "n").list.contains("1"),
    N.replace_strict({"1": 2}, default=0) > 0,
]
ALIKE = [
    *(AT >= DAY, AT.is_between(DAY, DAY), AT == MOMENT, AT.dt.date() == DAY, AT.dt.date().is_in([DAY]), LOCAL > DAY),
    *(ZIP == "8001", ZIP.is_in(["8001", None]), N == 1.5, N.is_in([1]), N.is_in([]), pl.col("open") == 1),
    *(WAIT.gt(dt.timedelta(hours=1)), N.replace({1: 2}) > 0, ZIP.replace_strict({"8001": 1}, default=0) > 0),
]


@pytest.mark.skipif(IS_OLD, reason="Polars 1 takes few types")
@pytest.mark.parametrize("condition", UNLIKE, ids=str)
def test_conditions_on_unlike_types_are_refused_with_what_to_write(condition):
    private = ROWS.dp.protect("p", max_rows=1)
    asked = [
        lambda: private.filter(condition),
        lambda: private.with_columns(x=condition),
        lambda: private.agg(dpp.len(where=condition, epsilon=1)),
        lambda: private.agg(dpp.share(condition, epsilon=1)),
        lambda: private.agg(N.filter(condition).dp.mean(0, 2, epsilon=1)),
    ]
    for ask in asked:
        with pytest.raises(ValueError, match=r"unlike types|takes a day for its midnight") as caught:
            ask()
        assert re.search(r"Hint: .*(cast\(pl\.Int64|dt\.date\(\) == date)", str(caught.value))


@pytest.mark.skipif(IS_OLD, reason="Polars 1 takes few types")
@pytest.mark.parametrize("condition", ALIKE, ids=str)
def test_conditions_on_like_types_are_taken(condition):
    counted = ROWS.dp.protect("p", max_rows=1).filter(condition).agg(dpp.len(epsilon=SURE)).release().item()
    assert counted == ROWS.filter(condition).height


# --- What a row's own list holds

NAN, INF = math.nan, math.inf
LISTS = [
    *(
        [1.0, 2.0],
        [NAN, 1.0],
        [INF, 1.0],
        [-INF, 2.0],
        [INF, -INF],
        [NAN, INF],
        [None, INF],
        [None, NAN],
        [600.0, None],
    ),
    *([], [None], None, [1e300, INF], [-1e300, -INF], [NAN, -INF, 1e300], [0.0, -0.0], [INF, INF]),
]


@pytest.mark.skipif(IS_OLD, reason="Polars 1 takes no lists")
@pytest.mark.parametrize("inner", [pl.Float64, pl.Float32])
@pytest.mark.parametrize("name", ["sum", "mean"])
@pytest.mark.parametrize("is_array", [False, True])
def test_a_rows_own_nan_and_infinities_stay_in_sums_and_means(inner, name, is_array):
    lists = [row for row in LISTS if row is None or len(row) == 2] if is_array else LISTS
    dtype = pl.Array(inner, 2) if is_array else pl.List(inner)
    rows = pl.DataFrame({"p": range(len(lists)), "x": lists}, schema={"p": pl.Int64, "x": dtype})
    value = getattr(pl.col("x").arr if is_array else pl.col("x").list, name)()
    private = rows.dp.protect("p", max_rows=1)
    made = private.with_columns(y=value)
    asked = [pl.col("y").is_nan(), pl.col("y") == INF, pl.col("y") == -INF, pl.col("y").is_null(), pl.col("y") > 500]
    found = [made.filter(one).agg(dpp.len(epsilon=SURE)).release().item() for one in asked]
    assert found == [rows.with_columns(y=value).filter(one).height for one in asked]
    for row in range(rows.height):
        one = rows[row : row + 1].dp.protect("p", max_rows=1).with_columns(y=value).filter(pl.col("y") > 500)
        assert one.agg(dpp.len(epsilon=SURE)).release().item() == rows[row : row + 1].filter(value > 500).height
