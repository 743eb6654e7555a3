"""Weights as Polars' own arithmetic: equal to the encoder's on every value, in both engines, and nothing raises."""

import math
from decimal import Decimal
from fractions import Fraction

import hypothesis.strategies as st
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings

from dp_polars._bins.binning import Clamping, OneCode, Squares

ENGINES = ("in-memory", "streaming")
INTEGERS = [
    *(pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.Int128),
    *(pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64, pl.UInt128),
]
FLOATS = [pl.Float32, pl.Float64, *([pl.Float16] if hasattr(pl, "Float16") else [])]
STEPS = [Fraction(step) for step in ("1/3", "1/100", "0.1", "1/8", "1", "2", "3", "7", "10", "1000")]


def check(values, units):
    """Compare the expression with the encoder, on one chunk and on several."""
    expression = units.expression([pl.col("x")], [values.dtype]).alias("x")
    assert expression is not None
    missing = values.is_null() | (values.is_nan() if values.dtype.is_float() else pl.Series([False]))
    expected = pl.Series("x", units.weigh([values])).set(missing.fill_null(value=False), None)
    frame = values.alias("x").to_frame()
    parts = pl.concat([frame[:1], frame[1:]], rechunk=False)
    for rows in (frame, parts):
        plan = rows.lazy().select(expression)
        assert plan.collect_schema()["x"] == pl.Int64
        for engine in ENGINES:
            assert plan.collect(engine=engine)["x"].equals(expected)


def units(low, high, step, *, doubled=False, kind=Clamping):
    return kind(low * step, high * step, Fraction(step), doubled)


# What weights are made of the units of values.
MADE = st.sampled_from([{}, {"doubled": True}, {"doubled": True, "kind": Squares}])


def bounds(data):
    ends = st.integers(-(2**30), 2**30) | st.integers(-9, 9)
    return sorted(data.draw(st.lists(ends, min_size=2, max_size=2, unique=True)))


def with_neighbours(values):
    values = np.asarray(values, np.float64)
    return np.concatenate([values, np.nextafter(values, np.inf), np.nextafter(values, -np.inf)])


@pytest.mark.parametrize("step", [*STEPS, Fraction(1, 2**400), Fraction(2**400), Fraction(1, 10**9)])
@pytest.mark.parametrize("dtype", FLOATS)
def test_floats_at_ties_and_edges(step, dtype):
    halves = np.arange(-2001, 2002) * float(step / 2)
    ends = np.array([2**30, 2**30 + 0.5, 2**30 - 0.5, 7, 7.5]) * float(step)
    tiny, huge = np.finfo(np.float64).smallest_subnormal, np.finfo(np.float64).max
    odd = [0.0, -0.0, tiny, -tiny, np.finfo(np.float64).tiny, huge, -huge, math.inf, -math.inf, math.nan]
    with np.errstate(all="ignore"):
        values = pl.Series(np.concatenate([with_neighbours(halves), with_neighbours([*ends, *-ends]), odd]))
    values = pl.concat([values, pl.Series([None], dtype=pl.Float64)]).cast(dtype)
    for low, high in [(-(2**30), 2**30), (-700, 1001), (3, 7), (-7, -3)]:
        check(values, units(low, high, step))
    check(values, units(-700, 1001, step, doubled=True))
    check(values, units(-700, 1001, step, doubled=True, kind=Squares))
    check(values, units(-(2**29), 2**29 - 1, step, doubled=True, kind=Squares))


@pytest.mark.parametrize("step", STEPS)
def test_any_bits_are_a_float_that_is_weighed_alike(step):
    bits = np.random.default_rng(0).integers(0, 2**64, 200_000, np.uint64)
    check(pl.Series(bits.view(np.float64)), units(-(2**30), 2**30, step))
    money = np.random.default_rng(1).integers(-(10**7), 10**7, 200_000) / 200  # halves of a cent, rounded to a float
    with np.errstate(all="ignore"):
        check(pl.Series(with_neighbours(money)), units(-(10**6), 10**6, step))


@pytest.mark.slow
@given(st.data())
@settings(max_examples=200, deadline=None)
def test_floats(data):
    dtype = data.draw(st.sampled_from(FLOATS))
    step = data.draw(st.sampled_from(STEPS) | st.fractions(Fraction(1, 10**6), 10**6, max_denominator=10**6))
    low, high = bounds(data)
    around = st.integers(2 * low - 4, 2 * high + 4).map(lambda n: float(n * step / 2))
    values = data.draw(st.lists(st.none() | st.floats() | around, min_size=1, max_size=20))
    column = pl.Series(values, dtype=pl.Float64).cast(dtype)
    check(column, units(low, high, step, **data.draw(MADE)))


@pytest.mark.slow
@given(st.data(), st.sampled_from(INTEGERS))
@settings(max_examples=400, deadline=None)
def test_integers(data, dtype):
    limits = pl.select(pl.lit(0, dtype).lower_bound(), pl.lit(0, dtype).upper_bound().alias("most")).row(0)
    least, most = limits
    step = data.draw(st.sampled_from([Fraction(1, 2), Fraction(1, 2**40), *map(Fraction, (1, 2, 3, 10, 1000, 2**31))]))
    low, high = bounds(data)
    near = st.integers(max(least, -50), min(most, 50))
    ties = st.integers(2 * low - 4, 2 * high + 4).map(lambda n: min(max(int(n * step / 2), least), most))
    any_of = st.none() | near | ties | st.sampled_from(limits) | st.integers(least, most)
    values = data.draw(st.lists(any_of, min_size=1))
    check(pl.Series(values, dtype=dtype), units(low, high, step, **data.draw(MADE)))


@pytest.mark.parametrize("step", [1, 2, 3, 256, Fraction(1, 2)])
@pytest.mark.parametrize("dtype", [pl.Int8, pl.UInt8])
def test_every_small_integer(dtype, step):
    values = pl.Series(np.arange(256, dtype=np.uint8).view(np.int8 if dtype == pl.Int8 else np.uint8))
    for low, high in [(-(2**30), 2**30), (-1, 1), (5, 9), (-300, 300)]:
        check(values, units(low, high, Fraction(step)))
        check(values, units(low, high, Fraction(step), doubled=True))
        check(values, units(low, high, Fraction(step), doubled=True, kind=Squares))


@pytest.mark.parametrize("dtype", [pl.Int64, pl.UInt64, pl.Int128, pl.UInt128])
def test_the_ends_of_wide_integers(dtype):
    least, most = pl.select(pl.lit(0, dtype).lower_bound(), pl.lit(0, dtype).upper_bound().alias("most")).row(0)
    inside = {value for end in (2**62, 2**63, 2**64) for d in (-1, 0, 1) for value in (end + d, -end + d)}
    values = [least, least + 1, *sorted(value for value in inside if least <= value <= most), most - 1, most, None]
    for step, most_units in [(1, 2**30), (2**31, 2**30), (2**33, 2**29), (3 * 2**30, 2**30), (2**62, 1)]:
        check(pl.Series(values, dtype=dtype), units(-most_units, most_units, Fraction(step)))


def test_unsigned_integers_beyond_64_bits_with_a_sign_are_left_to_numpy():
    wide = units(0, 4, Fraction(2**62))
    assert wide.expression([pl.col("x")], [pl.UInt64()]) is None
    assert wide.weigh([pl.Series([2**64 - 1], dtype=pl.UInt64)]).tolist() == [4]
    assert wide.expression([pl.col("x")], [pl.String()]) is None


@pytest.mark.slow
@given(st.data())
@settings(max_examples=200, deadline=None)
def test_decimals(data):
    scale = data.draw(st.integers(0, 6))
    tick = Fraction(1, 10**scale)
    step = data.draw(st.sampled_from([tick, tick / 10, 5 * tick, 100 * tick]))
    low, high = bounds(data)
    digits = st.integers(-(10**37), 10**37) | st.integers(-(10**4), 10**4)
    values = data.draw(st.lists(st.none() | digits, min_size=1, max_size=20))
    scaled = [None if value is None else Decimal(value).scaleb(-scale) for value in values]
    column = pl.Series(scaled, dtype=pl.Decimal(38, scale))
    check(column, units(low, high, step, **data.draw(MADE)))


@pytest.mark.parametrize(("low", "high"), [(0, 1), (-5, 5), (0, 3), (1, 2)])
def test_booleans_and_durations(low, high):
    for step in (Fraction(1), Fraction(1, 2)):
        check(pl.Series([True, False, None]), units(low, high, step))
    for unit in ("ms", "us", "ns"):
        counts = pl.Series([0, 1, 499, 500, 501, 1500, 2500, -500, -1500, 2**62, -(2**62), None], dtype=pl.Int64)
        check(counts.cast(pl.Duration(unit)), units(low, high, Fraction(10**9)))


def test_what_a_plan_does_around_it_changes_nothing():
    """Polars folds constants and moves steps: the weights of literals and of computed columns are the same."""
    weigh = units(-500, 500, Fraction(1, 100))
    values = [0.005, 0.015, 1.005, 2.675, -0.005, 4.999999, math.inf, -math.inf]
    expected = weigh.weigh([pl.Series(values)])
    expression = weigh.expression([pl.col("x")], [pl.Float64()]).alias("x")
    literals = pl.select(
        weigh.expression([pl.lit(value, pl.Float64)], [pl.Float64()]).alias(str(i)) for i, value in enumerate(values)
    )
    assert literals.row(0) == tuple(expected)
    computed = pl.LazyFrame({"y": values}).with_columns(x=pl.col("y") * 1.0)
    for engine in ENGINES:
        assert computed.select(expression).collect(engine=engine)["x"].to_list() == expected.tolist()
        summed = computed.with_columns(w=expression).filter(pl.col("w") > -500).select(pl.col("w").sum())
        assert summed.collect(engine=engine).item() == expected[expected > -500].sum()


@pytest.mark.parametrize("nulls", [False, True])
def test_whether_there_is_a_value_or_a_null(nulls):
    one = OneCode(nulls)
    for values in (
        *(pl.Series([1.5, math.nan, None, math.inf, -0.0]), pl.Series([1, None, 0]), pl.Series(["", None, "a"])),
        *(pl.Series([[1], None, []]), pl.Series([None, None], dtype=pl.Null), pl.Series([True, None, False])),
    ):
        code = one.expression([pl.col("x")], [values.dtype]).alias("x")
        for engine in ENGINES:
            found = values.alias("x").to_frame().lazy().select(code).collect(engine=engine)["x"]
            assert found.dtype == pl.UInt8
            assert found.to_list() == one.encoder()([values]).tolist()
            assert not nulls or (found == 0).to_list() == values.is_null().to_list()  # NaN is none
    assert pl.select(one.expression([], [])).item() == 0
