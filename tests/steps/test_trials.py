import json

import polars as pl
import pytest

from dp_polars._steps import nodes, trials

TYPES = [
    *(pl.Int8(), pl.UInt64(), pl.Int128(), pl.Float32(), pl.Boolean(), pl.String(), pl.Binary(), pl.Date(), pl.Time()),
    *(pl.Datetime("ms"), pl.Datetime("us", "America/Sao_Paulo"), pl.Datetime("ns", "UTC"), pl.Duration("us")),
    *(pl.Decimal(4, 2), pl.Decimal(38, 38), pl.Categorical(), pl.Enum(["low", "high"]), pl.Enum([]), pl.Null()),
    *(pl.Object(), pl.List(pl.Int64), pl.List(pl.List(pl.Datetime("ns"))), pl.Array(pl.Float64, 2)),
    *(pl.Array(pl.Date, (2, 3)), pl.Array(pl.Int8, 0), pl.Struct({"": pl.Int8}), pl.Struct({})),
    pl.Struct({"kind": pl.Enum(["a"]), "at": pl.Datetime("us", "UTC"), "cost": pl.Decimal(9, 2)}),
]


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_extremes_are_of_their_type_with_a_null(dtype):
    values = trials.extremes(dtype)
    assert values.dtype == trials.apart_type(dtype)
    assert values[0] is None
    assert len(values) > 1 or dtype in (pl.Null, pl.Object, pl.Enum([]), pl.Struct({}))


def test_extremes_hold_both_ends():
    assert trials.extremes(pl.Int8()).to_list() == [None, 0, 1, -128, 127]
    assert trials.extremes(pl.UInt64()).max() == 2**64 - 1
    assert [str(value) for value in trials.extremes(pl.Decimal(4, 2))] == ["None", "0.00", "0.01", "99.99", "-99.99"]
    years = trials.extremes(pl.Datetime("us")).dt.year()
    assert (years.min(), years.max()) == (1, 9999)
    assert 6 in trials.extremes(pl.Date()).dt.weekday()
    assert {0, 1, 3} <= set(trials.extremes(pl.List(pl.Int8)).list.len())


@pytest.mark.parametrize("dtype", [pl.Date(), pl.Datetime("ms"), pl.Datetime("us", "Asia/Tokyo")], ids=str)
def test_bounds_are_the_years_1_and_9999(dtype):
    ends = pl.Series(trials.bounds(dtype)).cast(dtype)
    if isinstance(dtype, pl.Datetime):
        ends = ends.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    assert ends.dt.strftime("%Y-%m-%d").to_list() == ["0001-01-01", "9999-12-31"]
    beyond = pl.Series([end + (1 if end > 0 else -1) for end in trials.bounds(dtype)]).cast(dtype)
    assert beyond.dt.convert_time_zone("UTC").dt.year().to_list() == [0, 10_000] if dtype != pl.Date else True
    assert [trials.bounds(other) for other in (pl.Datetime("ns"), pl.Int64(), pl.String(), pl.Time())] == [None] * 4


def test_what_a_row_gets_in_company():
    for text, dtype, depends in (
        ("x + 1", pl.Int64(), False),
        ("x.is_null()", pl.List(pl.Float64), False),
        ("x * float('nan')", pl.Float64(), False),  # NaN equals NaN
        ("0 - x", pl.Float64(), False),  # and −0 equals 0, whose sign other rules see to
        ("x.is_duplicated()", pl.String(), True),  # twice
        ("x.fill_null(strategy='forward')", pl.Int8(), True),  # after a null
        ("x.is_last_distinct() & x.is_null()", pl.Date(), True),  # the null row alone and beside another
        ("x.backward_fill().is_null() | x.has_nulls()", pl.Date(), True),  # before a null
    ):
        expr = eval(text, {"x": pl.col("0")})
        tree = expr.meta.serialize(format="json")
        assert trials.depends_on_company((dtype,), tree) is depends


SCHEMA = {"i": pl.Int64, "s": pl.String, "d": pl.Date, "l": pl.List(pl.Int64), "f": pl.Float64}


def failure(expr):
    step = nodes.read(json.loads(expr.meta.serialize(format="json")), pl.LazyFrame(schema=SCHEMA))
    return trials.failure(step)


def test_a_step_that_raises_on_some_value_fails_and_no_other_does():
    assert "conversion" in failure(pl.col("i").cast(pl.Int8))
    assert "length" in failure(pl.col("l") + pl.col("l"))
    assert failure(pl.col("s").str.contains("("))
    assert failure(pl.when(pl.col("i") > 0).then(pl.lit(300).cast(pl.Int8)))
    several = [pl.sum_horizontal("i", "f", "i", "f"), pl.all().is_null(), pl.sum_horizontal(pl.col("i", "f"))]
    for expr in (pl.col("i") + pl.col("f"), pl.col("f") == float("inf"), *several):
        assert failure(expr) is None


def test_a_twin_and_a_null_are_company():
    x, null = pl.col("0"), pl.col("0").is_null()
    for expr, depends in [(x + 1, False), (null | (x.count() > 1), True), (null & (x.null_count() > 1), True)]:
        text = expr.meta.serialize(format="json")
        assert trials.depends_on_company((pl.Int64(),), text) == depends
