"""Sums and means: whole steps row by row, the noise's unit, and answers in the column's type."""

import math
import re
import warnings
from decimal import Decimal
from fractions import Fraction

import hypothesis.strategies as st
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings

import dp_polars as dpp
from dp_polars._base.numbers import show
from dp_polars._bins.binning import Clamping
from dp_polars._bins.weights import in_steps
from tests.helpers.alone import alone
from tests.helpers.noised import record
from tests.helpers.reference import pure_rho

# So little noise that there is none.
SURE = 10**30
INT64, UINT64 = (-(2**63), 2**63 - 1), (0, 2**64 - 1)


def nearest(value, step):
    """The nearest whole number of steps, ties to even."""
    return round(Fraction(value) / step)


def weights(column, lower, upper, step):
    return Clamping(Fraction(lower), Fraction(upper), Fraction(step)).weigh([column]).tolist()


INTEGERS = {
    pl.Int8: (-128, 127),
    pl.UInt8: (0, 255),
    pl.Int32: (-(2**31), 2**31 - 1),
    pl.Int64: INT64,
    pl.UInt64: UINT64,
    pl.Int128: (-(2**70), 2**70),
}


@given(st.data(), st.sampled_from(list(INTEGERS)))
@settings(max_examples=300, deadline=None)
def test_integers_become_their_nearest_steps_exactly(data, dtype):
    low, high = INTEGERS[dtype]
    near = st.integers(max(low, -50), min(high, 50))
    values = data.draw(st.lists(near | st.sampled_from([low, high]) | st.integers(low, high), min_size=1, max_size=20))
    step = data.draw(st.sampled_from([Fraction(1, 2), Fraction(1, 2**40), 1, 2, 3, 10, 1000, 2**33]))
    a, b = sorted(data.draw(st.lists(st.integers(-(2**30), 2**30), min_size=2, max_size=2, unique=True)))
    expected = [min(max(nearest(value, step), a), b) for value in values]
    assert weights(pl.Series(values, dtype=dtype), a * step, b * step, step) == expected


@given(st.lists(st.integers(-(10**6), 10**6), min_size=1), st.sampled_from(["0.001", "0.01", "0.02", "0.05", "1", "7"]))
@settings(deadline=None)
def test_decimals_become_their_nearest_steps_exactly(cents, step):
    values = [Decimal(n).scaleb(-2) for n in cents]
    column, width = pl.Series(values, dtype=pl.Decimal(20, 2)), Fraction(step)
    bound = 2**20 * width
    expected = [min(max(nearest(value, width), -(2**20)), 2**20) for value in values]
    assert weights(column, -bound, bound, width) == expected


def test_ties_go_to_even_and_bounds_are_kept():
    column = pl.Series([-15, -5, 5, 15, 25, 35, 1000, -1000])
    assert weights(column, -20, 30, 10) == [-2, 0, 0, 2, 2, 3, 3, -2]
    assert weights(column.cast(pl.Float64), -20, 30, 10) == [-2, 0, 0, 2, 2, 3, 3, -2]
    clamping = Clamping(Fraction(-20), Fraction(30), Fraction(10), doubled=True)
    doubled = clamping.weigh([column]).tolist()
    assert doubled == [2 * n - 1 for n in (-2, 0, 0, 2, 2, 3, 3, -2)]
    assert clamping.of_sums(clamping.added.weigh([column]).sum(), len(column)) == sum(doubled)


def test_floats_that_are_no_numbers():
    column = pl.Series([math.inf, -math.inf, 1e308, -1e308, 0.07, 5e-324, 0.29999999999999998])
    assert weights(column, -1, 1, Fraction(1, 100)) == [100, -100, 100, -100, 7, 0, 30]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert set(weights(pl.Series([math.nan, None]), 1, 2, 1)) <= {1, 2}  # within the bounds, whatever they are
    frame = pl.DataFrame({"x": [math.nan, None, math.inf, 0.5]})
    assert frame.select(dpp.sum("x", 0, 1, step=0.1, epsilon=SURE)).item() == 1.5
    assert frame.select(dpp.count("x", epsilon=SURE)).item() == 2
    assert frame.select(dpp.mean("x", 0, 1, step=0.1, epsilon=SURE)).item() == 0.75


DECIMAL = pl.Series(["0.10", "0.20", "7.35"]).cast(pl.Decimal(10, 2))
COLUMNS = {
    "int": (pl.Series([1, 2, 9]), Fraction(1)),
    "boolean": (pl.Series([True, False, True]), Fraction(1)),
    "decimal 2": (DECIMAL, Fraction(1, 100)),
    "decimal 0": (pl.Series([1, 2, 9]).cast(pl.Decimal(10, 0)), Fraction(1)),
    "decimal 6": (DECIMAL.cast(pl.Decimal(20, 6)), Fraction(1, 10**6)),
    "float": (pl.Series([0.1, 0.2, 7.35]), None),
}
LAPLACE = {"mechanism": "discrete_laplace"}
STEPS = {
    "none": None,
    "int": 1,
    "float": 0.01,
    "half": 0.5,
    "decimal": Decimal("0.25"),
    "fraction": Fraction(1, 4),
    "coarse": Decimal("2.5"),
    "two": 2,
}


@pytest.mark.parametrize("loss", [{"epsilon": 0.1}, {"rho": 0.02}, {"rho": 0.02, **LAPLACE}], ids=str)
@pytest.mark.parametrize(
    ("on", "relation"),
    [("expression", "add_or_remove_one"), ("frame", "add_or_remove_one"), ("frame", "replace_one")],
)
@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("column", COLUMNS)
def test_noise_is_in_the_unit_of_what_it_is_added_to(column, step, on, relation, loss, monkeypatch):
    values, tick = COLUMNS[column]
    width = tick if STEPS[step] is None else Fraction(str(STEPS[step]))
    if width is None or (tick is not None and (width / tick).denominator != 1 and (tick / width).denominator != 1):
        return
    drawn = record(monkeypatch)
    low, high = -20, 10
    given_step = {} if STEPS[step] is None else {"step": STEPS[step]}
    exprs = [
        pl.col("x").dp.sum(low, high, **given_step, **loss),
        pl.col("x").dp.mean(low, high, **given_step, **loss).alias("mean"),
    ]
    frame = pl.DataFrame({"x": values})
    if on == "frame":
        alone(frame.dp.protect(None, neighboring_relation=relation).agg(exprs)).release()
    else:
        for expr in exprs:
            frame.select(expr)
    sum_, around, count = drawn
    units = [min(max(nearest(Fraction(str(float(value))), width), low / width), high / width) for value in values]
    assert sum_.values.tolist() == [sum(units)]
    assert around.values.tolist() == [sum(2 * n - (low + high) / width for n in units)]
    assert count.values.tolist() == [3]
    # The most that a row adds or removes, in the units that were added up: 20 of the column's, 30 as a distance in
    # halves of a step, and one.
    factor = 2 if relation == "replace_one" else 1
    # A frame without keys is one group: there a row of −20 in the place of one of 10 moves the sum by 30.
    largest = 30 if relation == "replace_one" else 20
    for draw, most, share in ((sum_, largest / width, 1), (around, 30 * factor / width, 2), (count, factor, 2)):
        given_loss = Fraction(next(str(value) for value in loss.values())) / share
        if relation == "replace_one" and share == 2:  # what goes and what comes cancel in the count, or in the sum
            given_loss *= 2
        x = draw.claim.rate * most
        if "epsilon" in loss:
            assert x == given_loss
        else:
            rho = pure_rho(x) if "mechanism" in loss else x**2 / 2
            assert float(rho) == pytest.approx(float(given_loss), rel=1e-12)
            assert rho <= given_loss * (1 + Fraction(1, 10**50))


@pytest.mark.parametrize(
    ("column", "step", "dtype", "answer"),
    [
        ("int", None, pl.Int64, 12),
        ("int", Decimal("0.5"), pl.Decimal(38, 1), Decimal("12.0")),
        ("int", 0.5, pl.Float64, 12.0),
        ("boolean", None, pl.Int64, 2),
        ("boolean", Decimal("0.125"), pl.Decimal(38, 3), Decimal("2.000")),
        ("decimal 2", None, pl.Decimal(38, 2), Decimal("7.65")),
        ("decimal 2", Decimal("0.001"), pl.Decimal(38, 3), Decimal("7.650")),
        ("decimal 2", 1, pl.Decimal(38, 2), Decimal("7.00")),
        ("decimal 2", 0.05, pl.Float64, 7.65),
        ("decimal 6", Decimal("0.01"), pl.Decimal(38, 6), Decimal("7.65")),
        ("float", 1, pl.Float64, 7.0),
        ("float", Decimal("0.01"), pl.Float64, 7.65),
    ],
)
def test_answers_have_the_columns_type_and_unit(column, step, dtype, answer):
    frame = pl.DataFrame({"x": COLUMNS[column][0]})
    expr = dpp.sum("x", -30, 30, step=step, epsilon=SURE)
    assert frame.lazy().select(expr).collect_schema()["x"] == dtype
    for found in (frame.select(expr), frame.dp.protect(None).agg(expr).release()):
        assert found["x"].dtype == dtype
        assert found["x"].to_list() == [answer]


def test_sums_that_their_type_can_not_hold_are_its_ends():
    frame = pl.DataFrame({"x": [2**60] * 16})
    most = (2**63 // 2**31 - 1) * 2**31
    assert frame.select(dpp.sum("x", 0, 2**60, step=2**31, epsilon=SURE)).item() == most
    assert frame.select(dpp.sum(-pl.col("x"), -(2**60), 0, step=2**31, epsilon=SURE)).item() == -most
    wide = in_steps(np.array([2**62, 5]), Fraction(10**12), pl.Decimal(38, 10))
    assert wide.to_list() == [(10**16 - 1) * Decimal(10**12), Decimal(5 * 10**12)]
    deep = pl.DataFrame({"x": pl.Series([Decimal("1e-20")] * 3000, dtype=pl.Decimal(38, 28))})
    assert deep.select(dpp.sum("x", 0, Decimal("1e-20"), epsilon=SURE)).item() == Decimal("3e-17")


@given(st.lists(st.integers(-(2**62), 2**62), max_size=5), st.integers(0, 38), st.sampled_from([1, 5, 25, 100]))
@settings(deadline=None)
def test_decimal_answers_are_exact(units, scale, digits):
    step = Fraction(digits, 10**scale)
    found = in_steps(np.array(units, np.int64), step, pl.Decimal(38, scale))
    assert found.dtype == pl.Decimal(38, scale)
    assert [Fraction(value) for value in found.to_list()] == [n * step for n in units]


def test_unsigned_columns_beyond_63_bits():
    frame = pl.DataFrame({"x": pl.Series([2**64 - 1, 2**63, 0], dtype=pl.UInt64)})
    found = frame.select(dpp.sum("x", 0, 2**64, step=2.0**40, epsilon=SURE)).item()
    assert found == 2**64 + 2**63


@pytest.mark.parametrize("lower", [Decimal("0.1"), Decimal("0.5"), Decimal("-0.3")])
def test_a_mean_of_decimals_between_fractions(lower):
    frame = pl.DataFrame({"x": DECIMAL})
    found = frame.select(dpp.mean("x", lower, Decimal("0.9"), epsilon=SURE)).item()
    clipped = [max(Decimal(value), lower) for value in ("0.1", "0.2", "0.9")]
    assert found == pytest.approx(float(sum(clipped) / 3))


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: dpp.sum("x", 1, 1, epsilon=1), ValueError, "lower must be below upper, got lower=1 and upper=1"),
        (lambda: dpp.sum("x", 2, 1, epsilon=1), ValueError, "lower must be below upper"),
        (lambda: dpp.mean("x", math.nan, 1, epsilon=1), ValueError, "lower must be finite"),
        (lambda: dpp.mean("x", 0, math.inf, epsilon=1), ValueError, "upper must be finite"),
        (lambda: dpp.sum("x", "0", 1, epsilon=1), TypeError, "lower must be a number"),
        (lambda: dpp.sum("x", 0, True, epsilon=1), TypeError, "upper must be a number"),
        (lambda: dpp.sum("x", 0, 1, step=0, epsilon=1), ValueError, "step must be greater than 0, got 0"),
        (lambda: dpp.sum("x", 0, 1, step=-1, epsilon=1), ValueError, "step must be greater than 0"),
        (
            lambda: dpp.mean("x", 0, 1, step=0.3, epsilon=1),
            ValueError,
            "whole multiples of step, got 1 in steps of 0.3",
        ),
        (lambda: dpp.sum("x", 0, 2**31, step=1, epsilon=1), ValueError, "a value must be at most 2\\*\\*30 steps"),
        (lambda: dpp.mean("x", -(2**30), 1, step=1, epsilon=1), ValueError, "a value must be at most 2\\*\\*30 steps"),
        (lambda: dpp.sum("x", 0, 10**300, epsilon=1), ValueError, "must be at most 2\\*\\*500"),
        (lambda: dpp.sum("x", 0, 1e-300, step=1e-300, epsilon=1), ValueError, "step must be at least 2\\*\\*-500"),
        (lambda: dpp.sum("x", 0, 10, epsilon=1e-15), ValueError, "scale of at most 2\\*\\*50.*Hint: take a wider step"),
        (lambda: dpp.mean("x", 0, 10, rho=1e-30), ValueError, "scale of at most 2\\*\\*50"),
        (
            lambda: dpp.sum("x", 0, 1, epsilon=1, rho=1),
            TypeError,
            "at most one of within, epsilon, rho and loss_weight",
        ),
        (lambda: dpp.sum("x", 0, 1, epsilon=0), ValueError, "epsilon must be greater than 0"),
        (lambda: dpp.sum("x", 0, 1, epsilon=1, mechanism="discrete_gaussian"), ValueError, "give its loss as rho"),
        (lambda: dpp.mean("x", 0, 1, epsilon=1, mechanism="exponential"), ValueError, "mechanism must be one of"),
        (lambda: dpp.sum("x", 0, 1, epsilon=1, contributions=0), ValueError, "contributions must be at least 1"),
        (lambda: pl.select(x=1).select(dpp.sum(pl.all(), 0, 1, epsilon=1)), pl.exceptions.ComputeError, "one output"),
        (lambda: dpp.sum(3, 0, 1, epsilon=1), TypeError, "the column must be a name"),
    ],
)
def test_arguments(make, error, words):
    with pytest.raises(error, match=f"(?s){words}"):
        make()


@pytest.mark.parametrize("on", ["expression", "frame"])
@pytest.mark.parametrize(
    ("dtype", "arguments", "words"),
    [
        (pl.Float64, (0, math.pi), "step must be given where no power of ten divides the bounds, got 0 and 3.14.*Hint"),
        (pl.String, (0, 1), "values must be numbers or booleans, got a column of type String"),
        (pl.Date, (0, 1), "values must be numbers or booleans"),
        (pl.Int64, (0, Decimal("0.5")), "must be values that a column of type Int64 can hold"),
        (pl.Decimal(9, 2), (0, Decimal("0.005")), "must be values that a column"),
        (pl.Int64, (0, 3, 1.5), "step must be a whole multiple, or a whole part"),
        (pl.Int64, (0, 2**31), "a value must be at most 2\\*\\*30 steps"),
        (pl.Int64, (0, 2**65, 2**65), "step must be at most 2\\*\\*62 times the last digit"),
        (pl.Decimal(38, 10), (0, 10**9, 1), "below 2\\*\\*63 times the last digit.*Hint: cast"),
        (pl.Decimal(38, 10), (-(10**9), 0, 1), "below 2\\*\\*63 times the last digit.*Hint: cast"),
    ],
)
def test_types(dtype, arguments, words, on, monkeypatch):
    frame, budget = pl.DataFrame({"x": []}, {"x": dtype}), dpp.Budget(epsilon=10**40)
    lower, upper, *step = arguments
    asks = (dpp.sum, dpp.mean) if "Hint: cast" not in words else (dpp.sum,)
    for ask in asks:
        expr = ask("x", lower, upper, step=step[0] if step else None, epsilon=10**20)
        if on == "expression":
            with pytest.raises(pl.exceptions.ComputeError, match=f"(?s)column 'x'.*{words}"):
                frame.lazy().select(expr).collect_schema()
        else:
            with pytest.raises((TypeError, ValueError), match=f"(?s)Output 'x'.*{words}"):
                frame.dp.protect(None, budget=budget).agg(expr)
            query = dpp.protect(None, budget=budget).agg(expr)
            with pytest.raises((TypeError, ValueError), match=f"(?s)Output 'x'.*{words}"):
                query.release(frame)
    assert budget.spent == 0


def test_a_scale_beyond_64_bits_is_refused_before_it_is_charged():
    budget = dpp.Budget(epsilon=1)
    frame = pl.DataFrame({"x": pl.Series([], dtype=pl.Decimal(18, 9))})
    for ask in (dpp.sum, dpp.mean):
        query = dpp.protect(None, budget=budget).agg(ask("x", 0, 1, epsilon=1e-8))
        with pytest.raises(ValueError, match=r"(?s)Output 'x': the noise must have a scale of at most 2\*\*50"):
            query.release(frame)
    assert budget.spent == 0
    # In coarse steps a large sum is small.
    assert dpp.sum("x", 0, 2**60, step=2**31, epsilon=1).query.claim.rate == Fraction(1, 2**60)


@pytest.mark.parametrize(
    ("dtype", "bounds", "step"),
    [
        (pl.Float64, (0, 10), Fraction(1, 10**5)),
        (pl.Float32, (0, 9.99), Fraction(1, 10**6)),
        (pl.Float64, (-1, 1), Fraction(1, 10**6)),
        (pl.Float64, (0, 10**6), 1),
        (pl.Float64, (0, 999_999), Fraction(1, 10)),
        (pl.Float64, (-5, 0.12345678), Fraction(1, 10**8)),  # finer, so that the bounds are multiples
        (pl.Float64, (10**9, 10**9 + 1), 1),  # larger, so that sums fit into 62 bits
        (pl.Float64, (0, 10**12), 10**6),
        (pl.Decimal(20, 2), (0, 100), Fraction(1, 100)),  # the last digit, where it does
        (pl.Decimal(38, 12), (0, 100), Fraction(1, 10**4)),
        (pl.Decimal(9, 6), (0, 2000), Fraction(1, 10**3)),
        (pl.Int64, (0, 100), 1),
    ],
)
def test_the_step_by_default(dtype, bounds, step):
    for ask in (dpp.sum, dpp.mean, dpp.var, dpp.std):
        query = ask("x", *bounds, epsilon=1).query
        assert query.known_step(dtype if isinstance(dtype, pl.DataType) else dtype()) == step
        said = ask("x", *bounds, step=Fraction(step), epsilon=1).query
        column = dtype if isinstance(dtype, pl.DataType) else dtype()
        assert query.units(column) == said.units(column)
        assert query.noise(column) == said.noise(column)
    note = pl.DataFrame({"x": []}, {"x": dtype}).dp.protect(None).agg(dpp.sum("x", *bounds, epsilon=1)).explain()
    rounds = dtype != pl.Int64 and step != Fraction(1, 100)
    assert (f"Values count in steps of {show(Fraction(step))}: " in note["note"].item()) == rounds


def test_the_step_by_default_is_that_of_a_persons_total():
    query = dpp.sum("x", 0, 10, per_person=(0, 500), epsilon=1).query
    assert query.known_step(pl.Float64()) == Fraction(1, 10**4)
    frame = pl.DataFrame({"p": [1] * 90 + [2], "x": [9.87654321] * 90 + [0.5]})
    query = frame.dp.protect("p").agg(dpp.sum("x", 0, 10, per_person=(0, 500), epsilon=10**11))
    assert query.release().item() == pytest.approx(500.5, abs=1e-3)


def test_a_note_says_up_to_how_many_rows_rounding_is_less_than_the_error():
    rows = pl.DataFrame({"p": [1], "x": [0.5]}).dp.protect("p", max_rows=2)
    (one,) = rows.agg(dpp.sum("x", 0, 1, epsilon=1)).explain().rows(named=True)
    most = int(re.search(r"in groups of up to ([\d,]+) rows by less than that", one["note"])[1].replace(",", ""))
    rounding = Fraction(1, 10**6) * (Fraction(1, 2) + Fraction(1, 2**20))
    assert most * rounding <= Fraction(one["error_95"]) < (most + 1) * rounding
    (exact,) = rows.agg(dpp.sum("p", 0, 1, epsilon=1)).explain().rows(named=True)
    assert "rounding" not in exact["note"]


@given(st.lists(st.floats(-3, 5), min_size=1, max_size=40), st.sampled_from([None, 0.5, 0.125]))
@settings(max_examples=60, deadline=None)
def test_ranges_and_errors_of_means_hold_what_rounding_does(values, step):
    query = pl.DataFrame({"x": values}).dp.protect(None).agg(dpp.mean("x", -3, 5, step=step, epsilon=10**11))
    found, low, high = query.release(intervals=True).row(0)
    true = math.fsum(values) / len(values)
    assert low - 1e-12 <= true <= high + 1e-12
    assert abs(found - true) <= query._asks[0].query.error_among(len(values), 0.05, pl.Float64()) + 1e-12


@pytest.mark.parametrize(
    ("ends", "shown"),
    [((0, 100_000), ("0", "100,000")), ((-25_000.5, 2013), ("-25,000.5", "2013")), ((-1.0, 5e6), ("-1", "5,000,000"))],
)
def test_clipping_bounds_are_said_with_commas_between_thousands(ends, shown):
    low, high = shown
    said = pl.col("x").dp.sum(*ends, step=0.5, epsilon=1).query.clipping
    assert said.startswith(f"Values below {low} count as {low}, and values above {high} as {high}, ")
    grid = pl.col("x").dp.median([float(ends[0]), float(ends[1])], epsilon=1).query.clipping
    assert grid == said
