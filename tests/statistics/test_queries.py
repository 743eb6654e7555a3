"""What is asked: frozen values, their claims in exact numbers, and how they print."""

import dataclasses
import math
import pickle
from decimal import Decimal
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dp_polars as dpp
from dp_polars._accounting.terms import Contributions
from dp_polars._bins.binning import Clamping
from dp_polars._statistics.categories import Mode, Quantile
from dp_polars._statistics.extremes import ArgMax
from dp_polars._statistics.statistic import describe
from tests.helpers.reference import bounded_range_rho
from tests.registry import under

X = pl.col("x")
ADD, REPLACE = "add_or_remove_one", "replace_one"


def mode(**arguments):
    return X.dp.mode(["a", "b"], **arguments).query


def quantile(alpha=Fraction(1, 2), **arguments):
    return X.dp.quantile(alpha, [1, 2, 4], **arguments).query


def argmax(**arguments):
    return X.dp.argmax(**arguments).query


# The rates of docs/proofs/ranges.md, computed here by hand.


@pytest.mark.parametrize(
    ("query", "score_range"),
    [
        (mode(epsilon=1), 1),
        (under(REPLACE, mode(epsilon=1)), 2),
        (quantile(epsilon=1), 2),
        (under(REPLACE, quantile(epsilon=1)), 4),
        (quantile(0.9, epsilon=1), 18),
        (quantile(0.1, epsilon=1), 18),
        (quantile(Fraction(1, 3), epsilon=1), 4),
        (under(REPLACE, quantile(Decimal("0.25"), epsilon=1)), 12),
        (quantile(0.9999, epsilon=1), 19_998),
        (argmax(epsilon=1, sensitivity=5), 10),
        (argmax(epsilon=1, sensitivity=5, monotonic=True), 5),
        (argmax(epsilon=1, sensitivity=Decimal("0.1")), Fraction(1, 5)),
        (argmax(epsilon=1, sensitivity=0.1, monotonic=np.True_), Fraction(1, 10)),
    ],
)
def test_the_range_of_each_score(query, score_range):
    assert query.claim.score_range == score_range
    assert query.claim.rate == Fraction(1) / score_range


@pytest.mark.parametrize("ask", [mode, quantile])
@pytest.mark.parametrize("rows", [1, 2, 3, np.int64(7), 10**6])
def test_all_rows_of_a_person_may_lie_in_one_group(ask, rows):
    plain = ask(epsilon=0.5).claim
    claim = ask(epsilon=0.5, contributions=rows).claim
    assert claim.contributions == Contributions(int(rows), int(rows))
    assert claim.rate == plain.rate / int(rows)
    assert claim.cost("epsilon") == Fraction(1, 2)
    many, one = ask(rho=0.5, contributions=rows).claim.rate * int(rows), ask(rho=0.5).claim.rate
    assert many == pytest.approx(one, rel=1e-25)


@pytest.mark.parametrize("value", [1, 0.1, Fraction(1, 3), Decimal("0.25"), np.float32(0.1), np.int8(3), 1e-9, 10**9])
def test_epsilon_flips_and_rho_weighs(value):
    exact = Fraction(str(value))
    pure = argmax(epsilon=value, sensitivity=1, monotonic=True).claim
    assert pure.mechanism == "permute_and_flip"
    assert pure.rate == exact
    assert pure.cost("epsilon") == exact
    concentrated = argmax(rho=value, sensitivity=1, monotonic=True).claim
    assert concentrated.mechanism == "exponential"
    # By bounded range, and the rate is rounded down: a hair above the root of 8·rho.
    assert exact * (1 - Fraction(1, 2**90)) <= bounded_range_rho(concentrated.rate) <= exact
    assert concentrated.rate**2 > 8 * exact
    assert concentrated.cost("rho") == exact


def test_a_float_is_the_decimal_that_it_prints_as():
    assert mode(epsilon=0.1) == mode(epsilon=Fraction(1, 10)) == mode(epsilon=Decimal("0.1"))
    assert sum(mode(epsilon=0.1).claim.loss.value for _ in range(10)) == 1
    assert quantile(0.9, epsilon=1) == quantile(Fraction(9, 10), epsilon=1)
    assert X.dp.median([1, 2, 4], epsilon=1).query == quantile(0.5, epsilon=1)


@settings(deadline=None, max_examples=60)
@given(st.fractions(Fraction(1, 10**6), 50))
def test_permute_and_flip_under_rho_costs_what_a_laplace_mechanism_costs(rho):
    claim = mode(rho=rho, mechanism="permute_and_flip").claim
    assert claim.mechanism == "permute_and_flip"
    x = float(claim.rate)
    exact = x + math.expm1(-x) if x > 1e-3 else x**2 / 2 - x**3 / 6 + x**4 / 24
    assert exact == pytest.approx(float(rho), rel=1e-9)
    assert claim.cost("rho") == rho
    # Not what holds of bounded range, which would be a larger rate, and false.
    assert claim.rate < mode(rho=rho).claim.rate


def test_the_cost_in_the_other_unit():
    cost = mode(epsilon=2, mechanism="exponential").claim.cost("rho")
    assert cost == pytest.approx(bounded_range_rho(2), rel=1e-25)
    assert 0.474 < cost < 0.475
    assert float(mode(epsilon=2).claim.cost("rho")) == pytest.approx(1 + math.exp(-2))
    assert mode(rho=0.5).claim.cost("epsilon") == mode(rho=0.5).claim.rate > 2
    assert mode(epsilon=2).claim.cost("epsilon", distance=3) == 6


def test_bounds_that_a_frame_knows_change_the_rate_and_not_the_loss():
    query = mode(epsilon=1, contributions=9)
    spread = query.under(Contributions(6, 2), REPLACE)
    assert spread.claim.loss == query.claim.loss
    assert spread.claim.rate == Fraction(1, 6 * 2)
    assert spread.candidates == query.candidates
    one = quantile(0.9, rho=0.02).under(Contributions(4, 1), ADD)
    # Four groups of one row each cost four times ρ of one, not sixteen times.
    assert 4 * bounded_range_rho(one.claim.rate * 18) == pytest.approx(Fraction(1, 50), rel=1e-25)


# Values


FOUR = [mode(epsilon=1), X.dp.mode(epsilon=1).query, quantile(0.9, rho=1), argmax(epsilon=1, sensitivity=1)]


@pytest.mark.parametrize("query", FOUR)
def test_queries_are_frozen_values(query):
    for place, name in ((query, "claim"), (query.claim, "rate")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(place, name, None)

    again = pickle.loads(pickle.dumps(query))
    assert again == query
    assert hash(again) == hash(query)
    assert len({query, again}) == 1


def test_what_makes_queries_differ():
    queries = [
        mode(epsilon=1),
        mode(epsilon=2),
        mode(rho=1),
        mode(epsilon=1, mechanism="exponential"),
        mode(epsilon=1, contributions=2),
        under(REPLACE, mode(epsilon=1)),
        X.dp.mode(["b", "a"], epsilon=1).query,
        X.dp.mode(epsilon=1).query,
        quantile(epsilon=1),
        quantile(0.4, epsilon=1),
        X.dp.median([1, 2, 5], epsilon=1).query,
        argmax(epsilon=1, sensitivity=1),
        X.dp.argmin(epsilon=1, sensitivity=1).query,
    ]
    assert len(set(queries)) == len(queries)
    assert all((a == b) == (i == j) for i, a in enumerate(queries) for j, b in enumerate(queries))


def test_the_types_of_answers():
    assert mode(epsilon=1).answer_type(pl.Enum(["b", "a"])) == pl.Enum(["b", "a"])
    assert mode(epsilon=1).fixed_type == pl.String
    assert X.dp.mode(epsilon=1).query.fixed_type is None
    assert quantile(epsilon=1).answer_type(pl.Float32()) == pl.Int64
    assert X.dp.median(dpp.grid(0, 1, step=0.1), rho=1).query.answer_type(pl.Int8()) == pl.Float64
    scores = argmax(epsilon=1, sensitivity=1)
    for dtype in (pl.Int8(), pl.UInt64(), pl.Float32(), pl.Float64(), pl.Decimal(38, 2)):
        assert scores.answer_type(dtype) == pl.UInt32
    for dtype in (pl.String(), pl.Boolean(), pl.Int128(), pl.UInt128(), pl.Date(), pl.List(pl.Int64)):
        with pytest.raises(TypeError, match="scores must be integers of at most 64 bits, floats or decimals, got"):
            scores.answer_type(dtype)


# How they print


PRINTED = [
    (
        mode(epsilon=0.5, contributions=3),
        "selects:   mode of 2 candidates",
        "loss:      epsilon=0.5 in all (as rho: 0.106531)",
        "mechanism: permute_and_flip, rate 0.166667 for R = 1 per row",
        "relation:  add_or_remove_one, rows of one person: 3",
    ),
    (
        under(REPLACE, X.dp.quantile(0.9, dpp.grid(0, 10**6, step=0.01), rho=0.02).query),
        "selects:   0.9-quantile on 100,000,001 grid points",
        "loss:      rho=0.02 in all (as epsilon: 0.566)",
        "mechanism: exponential, rate 0.0157222 for R = 36 per row",
        "relation:  replace_one, rows of one person: 1",
    ),
    (
        argmax(epsilon=1, sensitivity=5),
        "selects:   row with the highest score",
        "loss:      epsilon=1 in all (as rho: 0.36788)",
        "mechanism: permute_and_flip, rate 0.1 for R = 10",
        "relation:  that of the given sensitivity",
    ),
]


def test_statistics_say_what_they_claim():
    assert [type(query) for query, *_ in PRINTED] == [Mode, Quantile, ArgMax]
    for query, *lines in PRINTED:
        assert describe(query).splitlines() == lines
    assert str(X.dp.median([0.5], epsilon=1).query) == "median on 1 candidate"
    assert str(X.dp.argmin(epsilon=1, sensitivity=5).query) == "row with the lowest score"
    assert str(X.dp.mode(epsilon=1).query) == "mode of the categories of the column's type"


# Values in whole units of a step.


def clamping_of(values, lower, upper, step):
    return Clamping(Fraction(lower), Fraction(upper), Fraction(step)).weigh([values]).tolist()


def test_values_too_large_for_floats_weigh_without_a_warning():
    """A warning would say that such a value is there; here warnings are errors."""
    assert clamping_of(pl.Series([1e308, -1e308, math.inf, math.nan, None, 0.26]), -1, 2, Fraction(1, 10)) == [
        20, -10, 20, 0, 0, 3,
    ]  # fmt: skip


def test_steps_far_below_a_columns_last_digit():
    tiny = Fraction(1, 10**40)
    assert clamping_of(pl.Series([-(2**63), -1, 0, 1, 2**63 - 1]), -2 * tiny, 3 * tiny, tiny) == [-2, -2, 0, 3, 3]


@pytest.mark.parametrize(
    ("dtype", "upper", "step"),
    [
        (pl.Decimal(38, 10), 10**10, 100),  # values are looked at in 64 bits
        (pl.Decimal(38, 30), 10, 1),
        (pl.Int64(), 2**63, 2**63),
    ],
)
def test_bounds_that_64_bits_of_a_columns_digits_do_not_hold_are_refused(dtype, upper, step):
    for ask in (dpp.sum, dpp.mean):
        query = ask("x", 0, upper, step=step, epsilon=1).query
        with pytest.raises(ValueError, match=r"must be (below 2\*\*63|at most 2\*\*62) times the last digit of"):
            query.answer_type(dtype)


def test_steps_that_floats_can_not_hold_are_refused():
    tiny, long = Fraction(1, 10**400), Fraction(10**400 + 1, 10**400)
    for step, message in ((tiny, r"step must be at least 2\*\*-500"), (long, r"of at most 2\*\*900")):
        with pytest.raises(ValueError, match=message):
            dpp.sum("x", 0, step, step=step, epsilon=1)


def test_noise_is_as_large_as_its_steps_not_as_the_bounds():
    assert dpp.sum("x", 0, 2**60, step=2**40, epsilon=1).query.answer_type(pl.Int64()) == pl.Int64()
    with pytest.raises(ValueError, match="the noise must have a scale of at most"):
        dpp.sum("x", 0, 1, step=Fraction(1, 2**30), epsilon=Fraction(1, 2**21))
