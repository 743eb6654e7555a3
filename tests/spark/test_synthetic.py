"""Bins of synthetic rows on Spark: those of Polars; and a release of rounds, where the model is installed."""

import datetime as dt
import math
import warnings

import polars as pl
import pytest

import dp_polars as dpp
from tests.helpers.needs import need
from tests.spark.tools import MARKS, need_spark, to_polars, to_spark

need_spark()

import dp_polars.spark
from dp_polars._engines.spark.rows import binned

pytestmark = MARKS
ROWS = pl.DataFrame(
    {
        "p": range(9),
        "a `b": [-1, 0, 1, 2, 6, 7, 9, None, 3],
        "x": [-math.inf, -1.0, 0.0, 0.5, 1.0, 7.25, math.inf, math.nan, None],
        "day": [dt.date(2025, 1, 1) + dt.timedelta(days=i) for i in range(8)] + [None],
    }
)
DDL = "p bigint, `a ``b` int, x double, day date"


def test_bins_are_those_of_polars(spark):
    ends = {"a `b": pl.Series([0, 2, 7, 7]), "x": pl.Series([0.0, 0.5, 1.0, 5.0])}
    ends["day"] = pl.Series([dt.date(2025, 1, 1 + 3 * i) for i in range(4)])
    found = to_polars(binned(to_spark(spark, ROWS, DDL), ends)).sort("p")
    assert found["a `b"].to_list() == [0, 0, 0, 1, 1, 2, 2, None, 1]
    assert found["x"].to_list() == [0, 0, 0, 1, 2, 2, 2, None, None]
    assert found["day"].to_list() == [0, 0, 0, 1, 1, 1, 2, 2, None]


def mbi():
    with warnings.catch_warnings():  # of JAX's settings
        warnings.simplefilter("ignore")
        need("mbi")


def test_times_with_a_clock_need_a_column_of_numbers(spark):
    query = dpp.protect("p", max_groups=1).synthetic(
        {"t": dpp.grid(dt.datetime(2025, 1, 1), dt.datetime(2025, 1, 3), step="1d")}, rho=1
    )
    frame = to_spark(spark, pl.DataFrame({"p": [1], "t": [dt.datetime(2025, 1, 1)]}), "p bigint, t timestamp_ntz")
    mbi()
    with pytest.raises(TypeError, match="dimensions must have values here, got bins of 't'"):
        dpp.spark.release(query, frame)


def test_rounds_run_on_a_frame(spark):
    mbi()
    query = dpp.protect("p", max_groups=1).synthetic({"x": [0.0, 0.5, 5.0], "a `b": [0, 1, 2]}, rho=5)
    made = dpp.spark.release(query, to_spark(spark, ROWS, DDL))
    assert type(made) is dpp.Synthetic
    assert made.rows(5).height == 5
