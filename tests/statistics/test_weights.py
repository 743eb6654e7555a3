"""Modes by weight: what a row weighs, what is refused, and what a claim says."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import polars as pl
import pytest

import dp_polars as dpp
from dp_polars._mechanisms.drawing import Draw, draw_groups
from dp_polars._mechanisms.histograms import CountScore, Histogram
from dp_polars._mechanisms.racing import LAWS
from dp_polars.analysis import simulate
from tests.helpers import reference
from tests.statistical.goodness import fits

SURE, SMALL = {"epsilon": 10**6}, {"max_weight": Fraction(1, 2**40)}


def frame(weights, dtype=None):
    """One candidate for each weight."""
    return pl.DataFrame({"x": list(range(len(weights))), "w": pl.Series(weights, dtype=dtype, strict=False)})


@pytest.mark.parametrize(
    ("weights", "dtype", "most", "step", "heaviest"),
    [
        ([-5, 0, 2, 1, None], pl.Int8(), 100, None, [2]),
        ([50, 60, 70], pl.UInt64(), 50, None, [0, 1, 2]),  # all are clipped
        ([-(2**63), 2**63 - 1, 4], pl.Int64(), 5, None, [1]),
        ([True, False, None], pl.Boolean(), 1, None, [0]),
        ([-math.inf, math.nan, 0.1, None], pl.Float64(), 1, 0.1, [2]),
        ([math.inf, 3.0, 2.9], pl.Float64(), 3, 0.5, [0, 1, 2]),
        ([0.24, 0.26, 0.25], pl.Float32(), 2, 0.5, [1]),  # ties to even
        (["0.01", "0.03", "0.02"], pl.Decimal(9, 2), Decimal("0.02"), None, [1, 2]),
        (["0.01", "0.07", "0.02"], pl.Decimal(9, 2), 1, Decimal("0.1"), [1]),
    ],
)
def test_what_a_row_weighs(weights, dtype, most, step, heaviest):
    rows = frame([None if w is None else Decimal(w) for w in weights] if dtype == pl.Decimal else weights, dtype)
    expr = dpp.mode("x", range(len(weights)), counts=dpp.weights("w", max_weight=most, step=step), **SURE)
    found = {rows.select(expr).item() for _ in range(60)}
    found |= {rows.dp.protect(None).agg(expr).release().item() for _ in range(60)}
    assert found == set(heaviest)  # one of three is missed with a probability below 1e-20


@pytest.mark.parametrize(("negative", "dtype"), [(-3, pl.Int8()), (-3.0, pl.Float64()), (-(10**9), pl.Int64())])
def test_negative_weights_are_none(negative, dtype):
    """Else a row could move two candidates apart by twice as much as it is charged for."""
    rows = pl.DataFrame({"p": [1, 2, 3], "x": ["a", "a", "b"], "w": pl.Series([3, negative, 2], dtype=dtype)})
    options = {"counts": dpp.weights("w", max_weight=3, step=1), **SURE}
    for expr in (dpp.mode("x", ["b", "a"], **options), dpp.top_k("x", 1, ["b", "a"], **options).list.first()):
        assert rows.select(expr).item() == "a"
    for unit in (None, "p"):
        private = rows.dp.protect(unit, **({} if unit is None else {"max_groups": 1}))
        assert private.agg(dpp.mode("x", ["b", "a"], **options)).release().item() == "a"


def test_claim_and_error_are_in_the_unit_of_the_weights():
    weighed = (dpp.weights("w", max_weight=8, step=step) for step in (0.125, 4.0))
    fine, coarse = (dpp.mode("x", [1, 2, 3], counts=counts, epsilon=2).query for counts in weighed)
    assert fine.claim == coarse.claim
    assert fine.claim.score_range == 8
    assert fine.claim.rate == Fraction(1, 4)
    row = (
        dpp.protect("p", max_groups=1)
        .agg(dpp.mode("x", [1, 2, 3], counts=dpp.weights("w", max_weight=8), epsilon=2))
        .explain()
    )
    by_count = dpp.protect("p", max_groups=1).agg(dpp.mode("x", [1, 2, 3], epsilon=2)).explain()
    assert row["error_unit"].item() == "the weights' unit"
    assert row["error_95"].item() == pytest.approx(8 * math.log(20) / 2)
    # A gap of that much or more has a probability of 0.05 at most, and the gaps are whole steps.
    assert by_count["error_95"].item() == math.ceil(math.log(20) / 2) - 1 == 1
    assert fine.error(3, 0.05) == 11.875
    assert coarse.error(3, 0.05) == 8
    assert row["selects"].item() == "mode of 3 candidates by weights of up to 8"


def test_a_draw_counts_steps_and_its_rate_is_for_steps():
    """A gap of one step is `step` of the unit that the claim is in: exp(−rate·gap) must not depend on the step."""
    for step in (0.125, 0.5, 1, 4.0):
        query = dpp.mode("x", [1, 2, 3], counts=dpp.weights("w", max_weight=8, step=step), epsilon=2).query
        assert query.draw(pl.Int64(), pl.Float64()).rate == Fraction(1, 4) * Fraction(step)
    of_cents = dpp.mode("x", [1, 2, 3], counts=dpp.weights("w", max_weight=8), epsilon=2).query
    assert of_cents.draw(pl.Int64(), pl.Decimal(10, 2)).rate == Fraction(1, 400)


@pytest.mark.parametrize("mechanism", [None, "exponential"])
def test_a_rate_per_step_beyond_all_floats_chooses_the_best(mechanism):
    frame, step = pl.DataFrame({"x": [1, 2, 3, 2], "w": [2.0**45, 2.0**46, 2.0**45, 2.0**41]}), 2**40
    by = dpp.weights("w", max_weight=2**60, step=step)
    loss = {"epsilon": 2**1058, "counts": by, "mechanism": mechanism}
    modes = {f"gap {gap}": dpp.mode("x", [3, 2, 1], gap=gap, **loss) for gap in (False, True)}
    tops = {f"top {k}": dpp.top_k("x", k, [3, 2, 1], **loss) for k in (1, 3)}
    query = frame.dp.protect(None).agg(**modes, **tops)
    assert query.explain()["error_95"].max() < 1e-290
    answer = query.release().row(0, named=True)
    assert (answer["gap False"], answer["gap True"]["answer"]) == (2, 2)
    assert answer["gap True"]["gap"] in (33.0 * step, 34.0 * step)  # 34 steps, rounded down after a little noise
    assert answer["top 1"] == [2]
    assert answer["top 3"][0] == 2
    assert simulate(frame.dp.protect(None).agg(**modes), frame, allow_private=True)["expected_error"].to_list() == [
        0,
        0,
    ]


@pytest.mark.parametrize("unit", [None, "p"])
def test_simulated_in_the_unit_of_the_weights(unit):
    """Weights of halves: two of the candidates, four and one and a half apart."""
    rows = pl.DataFrame({"p": [1, 1, 2, 3], "x": ["a", "a", "b", "a"], "w": [2.5, 1.0, 1.5, 2.0]})
    expr = dpp.mode("x", ["a", "b"], counts=dpp.weights("w", max_weight=3, step=0.5), epsilon=1)
    result = simulate(dpp.protect(unit, **({} if unit is None else {"max_groups": 1})).agg(expr), rows)
    gap = 3.5 if unit == "p" else 4  # person 1 weighs no more than 3
    wrong = math.exp(-gap / 3) / 2
    assert result["true_answer"].item() == "a"
    assert result["probability_true"].item() == pytest.approx(1 - wrong)
    assert result["expected_error"].item() == pytest.approx(gap * wrong)
    assert result["error_unit"].item() == "the weights' unit"
    assert result["counted"].item() == (3 if unit == "p" else 4)
    assert result["left_out"].item() == 0
    if unit is None:
        assert simulate(expr, rows)["expected_error"].item() == pytest.approx(gap * wrong)


def test_too_few_is_a_weight():
    rows = pl.DataFrame({"x": ["a"] * 9, "w": [0.5] * 9})
    for few, answer in ((4, "a"), (5, None)):
        expr = dpp.mode("x", ["a", "b"], counts=dpp.weights("w", max_weight=1, step=0.5), too_few=few, **SURE)
        assert rows.select(expr).item() == answer


@pytest.mark.parametrize("mechanism", ["permute_and_flip", "joint"])
def test_top_k_by_weight(mechanism):
    """A person's weights for a candidate are clipped together: a has 3 + 2, b 4, c 3, where rows have 9.5, 4 and 3."""
    rows = pl.DataFrame(
        {"p": [1, 1, 1, 2, 3, 4, 5], "x": ["a", "a", "a", "a", "b", "b", "c"], "w": [2.5, 2.5, 2.5, 2.0, 2.0, 2.0, 3.0]}
    )
    options = {"counts": dpp.weights("w", max_weight=3, step=0.5), "mechanism": mechanism}
    expr = dpp.top_k("x", 3, ["c", "d", "b", "a"], **options, **SURE)
    assert rows.select(expr).item().to_list() == ["a", "b", "c"]
    query = rows.dp.protect("p", max_groups=1).agg(expr)
    assert query.release().item().to_list() == ["a", "b", "c"]
    told = query.explain()
    assert told["error_unit"].item() == "the weights' unit"
    assert told["score_range"].item() == (6 if mechanism == "joint" else 3)
    assert told["selects"].item().startswith("top 3 of 4 candidates by weights of up to 3")
    result = simulate(query, rows, allow_private=True)
    assert result["true_answer"].item().to_list() == ["a", "b", "c"]
    assert result["error_unit"].item() == "the weights' unit"
    assert result["counted"].item() == 5  # people, each once for each candidate
    small = dpp.top_k("x", 3, ["c", "d", "b", "a"], **options, epsilon=1)
    assert small.query.claim.score_range == told["score_range"].item()
    assert 0 < simulate(small, rows)["expected_error"].item() < 9.5


def test_the_first_of_top_k_by_weight_has_the_law_of_a_mode():
    """At a k-th of the loss; sums of 0, 1 and 2.5 in steps of a half."""
    rows = pl.DataFrame({"g": np.repeat(np.arange(4000), 3), "x": [1, 2, 2] * 4000, "w": [1.0, 1.5, 1.0] * 4000})
    options = {"counts": dpp.weights("w", max_weight=2, step=0.5), "mechanism": "permute_and_flip"}
    expr = dpp.top_k("x", 2, [0, 1, 2], epsilon=4, **options).list.first().alias("first")
    drawn = rows.group_by("g").agg(expr)["first"].to_numpy()
    law = [float(p) for p in reference.law([0, 2, 5], rate=Fraction(1, 2), mechanism="permute_and_flip", digits=20)]
    assert fits(np.bincount(drawn, minlength=3), law)
    assert not fits(np.bincount(drawn, minlength=3), [1 / 3] * 3)


def test_a_gap_is_in_the_unit_of_the_weights():
    rows = pl.DataFrame({"p": [1, 1, 2, 3], "x": ["a", "a", "b", "a"], "w": [2.5, 1.0, 1.25, 2.0]})
    expr = dpp.mode("x", ["a", "b"], counts=dpp.weights("w", max_weight=3, step=0.25), gap=True, **SURE)
    near = {"answer": "a", "gap": 4.25}, {"answer": "a", "gap": 4.0}  # rounded down, with hardly any noise
    assert rows.select(expr).item() in near
    assert rows.dp.protect("p", max_groups=1).agg(expr).release().item()["gap"] in (3.75, 3.5)
    assert rows.lazy().select(expr).collect_schema() == {"x": pl.Struct({"answer": pl.String, "gap": pl.Float64})}


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({}, TypeError, r"missing a required .*: 'max_weight'"),
        ({"max_weight": "3"}, TypeError, "max_weight must be a number"),
        ({"max_weight": 3, "of": "person"}, ValueError, "of must be 'people' or 'rows', got 'person'"),
        ({"max_weight": 0}, ValueError, "max_weight must be greater than 0"),
        ({"max_weight": math.nan}, ValueError, "max_weight must be"),
        ({"max_weight": 1, "step": 0}, ValueError, "step must be greater than 0"),
        ({"max_weight": 1, "step": 0.3}, ValueError, "max_weight must be whole multiples of step"),
        ({"max_weight": 2**31, "step": 1}, ValueError, r"at most 2\*\*30 steps"),
        ({"column": 3, "max_weight": 1}, TypeError, "the column must be a name or a Polars expression"),
        ({"column": pl.all(), "max_weight": 1}, ValueError, "must have one output"),
    ],
)
def test_arguments(options, error, words):
    with pytest.raises(error, match=words):
        dpp.mode("x", [1], counts=dpp.weights(**{"column": "w", **options}), epsilon=1)


def test_counts_that_are_no_word_and_no_weights():
    for counts in ("w", None, dpp.weights):
        with pytest.raises(ValueError, match=r"counts must be 'people', 'rows' or dp_polars\.weights"):
            dpp.mode("x", [1], counts=counts, epsilon=1)


@pytest.mark.parametrize(
    ("dtype", "options", "words"),
    [
        (pl.Float64(), {}, "step must be given for a column of type Float64"),
        (pl.String(), {}, "weights must be numbers or booleans, got a column of type String"),
        (pl.Int64(), {"step": 0.5, "max_weight": 0.5}, None),
        (pl.Int64(), {"max_weight": 0.5}, "max_weight must be values that a column of type Int64 can hold"),
        (pl.Int64(), {"too_few": 3, "step": 2}, "too_few must be a whole multiple of the step"),
        (pl.Float64(), {"too_few": 4, "step": Fraction(1, 2**59), **SMALL}, None),
        (pl.Float64(), {"too_few": 4, "step": Fraction(1, 2**60), **SMALL}, r"at most 2\*\*61"),
    ],
)
def test_types_of_weights(dtype, options, words):
    by = {"max_weight": 2, **options}
    few = by.pop("too_few", None)
    expr = dpp.mode("x", [0, 1], counts=dpp.weights("w", **by), too_few=few, epsilon=1)
    rows = pl.DataFrame({"x": [0], "w": [None]}, schema={"x": pl.Int64, "w": dtype})
    if words is None:
        rows.dp.protect(None).agg(expr).release()
        return
    with pytest.raises(pl.exceptions.PolarsError, match=f"(?s){words}"):
        rows.lazy().select(expr).collect_schema()
    with pytest.raises((TypeError, ValueError), match=words):
        rows.dp.protect(None).agg(expr)


@pytest.mark.parametrize("number", [2, 3, 4, 5])
def test_sums_that_leave_64_bits_together_are_told_apart(number):
    # Spark's sums are clamped to 2**62 - 1 each. Those of all candidates may add up to any number modulo 2**64.
    largest = 2**62 - 1
    weights = np.full(number, largest - 2**40)
    weights[-1] = largest
    histogram = Histogram(np.arange(number), weights, np.array([number]))
    draw = Draw(number, CountScore(), Fraction(1), LAWS["permute_and_flip"])
    assert draw_groups(draw, histogram).tolist() == [number - 1]
