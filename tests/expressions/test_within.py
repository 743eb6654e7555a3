"""Answers that are asked for by how wrong they may be: as expressions."""

import pickle
from fractions import Fraction

import polars as pl
import pytest

import dp_polars as dpp
from dp_polars import analysis
from dp_polars._accounting.terms import Within
from dp_polars._statistics import measures

FRAME = pl.DataFrame({"g": [1, 2] * 50, "x": [i % 9 for i in range(100)], "d": ["a", "b"] * 50})
# What asks by `within`, in the place of a loss.
ASKED = {
    "len": lambda **loss: dpp.len(**loss),
    "count": lambda **loss: dpp.count("x", **loss),
    "sum": lambda **loss: dpp.sum("x", 0, 8, step=1, **loss),
    "value_counts": lambda **loss: dpp.value_counts("d", ["a", "b"], **loss),
    "mode": lambda **loss: dpp.mode("d", ["a", "b"], **loss),
    "median": lambda **loss: dpp.median("x", range(9), **loss),
    "quantile": lambda **loss: dpp.quantile("x", 0.9, range(9), **loss),
    "quantiles": lambda **loss: dpp.quantile("x", [0.3, 0.6], range(9), **loss),
    "top_k": lambda **loss: dpp.top_k("d", 2, ["a", "b", "c"], **loss),
}


@pytest.mark.parametrize("more", [{}, {"contributions": 3}], ids=str)
@pytest.mark.parametrize("name", ASKED)
def test_the_loss_is_found_at_once_in_epsilon(name, more):
    expr = ASKED[name](within=25, **more)
    loss = expr.query.claim.loss
    assert loss.unit == "epsilon"
    assert expr.query == ASKED[name](epsilon=loss.value, **more).query
    size = expr.query.size_of()
    assert expr.query.error(size, 0.05) <= 25
    assert ASKED[name](epsilon=loss.value * Fraction(998, 1000), **more).query.error(size, 0.05) > 25
    assert FRAME.group_by("g").agg(expr).height == 2


def test_a_count_can_be_right():
    expr = dpp.len(within=0)
    assert expr.query.claim.loss.value == Fraction("3.664")  # 2q/(1 + q) = 0.05
    assert dpp.count("x", within=0).query.claim.loss.value == Fraction("3.664")
    assert dpp.value_counts("d", ["a"], within=0).query.claim.loss.value == Fraction("3.664")


def test_a_gaussian_by_name_has_its_loss_in_rho():
    expr = dpp.len(within=10, mechanism="discrete_gaussian")
    assert expr.query.claim.loss.unit == "rho"
    assert expr.query.claim == dpp.len(rho=expr.query.claim.loss.value).query.claim


def test_it_is_kept_by_all_that_keeps_a_private_expression():
    expr = dpp.mode("d", ["a", "b"], within=10)
    within = Within(Fraction(10))
    for kept in (expr, expr.alias("y"), expr.name.suffix("_y"), expr.over("g"), pickle.loads(pickle.dumps(expr))):
        assert kept.within == within
    assert dpp.mode("d", ["a", "b"], epsilon=1).within is None


def test_the_printed_expression_says_what_was_asked_and_what_it_takes():
    shown = repr(dpp.len(within=10))
    assert "loss:      epsilon=0.2844 in all" in shown
    assert "asked:     within=10" in shown
    unknown = repr(dpp.mean("x", 0, 8, within=0.5, rows=1000))
    assert "loss:      found by agg of a private frame, from within=0.5, rows=1000" in unknown
    assert "epsilon" not in unknown


# What has no loss on a plain frame, and why.
UNREACHED = {
    "step must be given": lambda: dpp.sum("x", 0, 8, within=100),
    "candidates must be given": lambda: pl.col("d").cast(pl.Enum(["a", "b"])).dp.mode(within=10),
    "must be used on a private frame": lambda: dpp.n_people(within=10),
    "would take epsilon=": lambda: dpp.sum("x", 0, 8, step=1, within=0.5),
    "is never reached: error_95 is 0.5 at least": lambda: dpp.quantile("x", [0.25, 0.5, 0.75], range(9), within=0.25),
    "must be smaller": lambda: dpp.mode("d", ["a"], within=1),
}


@pytest.mark.parametrize("message", UNREACHED)
def test_where_there_is_no_loss_a_plain_frame_says_so_before_a_draw(message, monkeypatch):
    monkeypatch.setattr(measures, "noise_of", lambda *_: pytest.fail("it was drawn"))
    expr = UNREACHED[message]()
    for ask in (
        lambda: FRAME.lazy().select(expr).collect_schema(),
        lambda: FRAME.select(expr),
        lambda: FRAME.group_by("g").agg(expr),
        lambda: FRAME.select(pl.col("g"), expr.over("g")),
    ):
        with pytest.raises(pl.exceptions.ComputeError, match=message):
            ask()


def test_it_is_not_simulated_either():
    with pytest.raises(ValueError, match="step must be given"):
        analysis.simulate(dpp.sum("x", 0, 8, within=100), FRAME)
    assert analysis.simulate(dpp.sum("x", 0, 8, step=1, within=100), FRAME)["loss"].item() == 0.2385


def test_a_private_frame_finds_a_loss_where_a_plain_one_has_none():
    private = FRAME.with_row_index("p").dp.protect("p", max_rows=1)
    for expr in (dpp.sum("x", 0, 8, within=100), dpp.n_people(within=10)):
        assert private.agg(expr).loss.unit == "epsilon"


AT_MOST_ONE = "at most one of within, epsilon, rho and loss_weight"


@pytest.mark.parametrize(
    ("ask", "error", "message"),
    [
        (lambda: dpp.len(within=1, epsilon=1), TypeError, f"{AT_MOST_ONE}.*got within and epsilon"),
        (lambda: dpp.len(within=1, rho=1), TypeError, "got within and rho"),
        (lambda: dpp.len(within=1, rho=1, epsilon=1), TypeError, "got within and epsilon and rho"),
        (lambda: dpp.len(within=-1), ValueError, "within must be at least 0, got -1"),
        (lambda: dpp.len(within=float("nan")), ValueError, "within must be finite"),
        (lambda: dpp.len(within="1"), TypeError, "within must be a number"),
        (lambda: dpp.mode("d", ["a", "b"], within=0), ValueError, "within must be greater than 0.*surely right"),
        (lambda: dpp.sum("x", 0, 8, within=0), ValueError, "Hint: within=0 is for counts"),
        (lambda: dpp.mean("x", 0, 8, within=0, rows=9), ValueError, "within must be greater than 0"),
        (lambda: dpp.mean("x", 0, 8, within=1), TypeError, "rows must be given with within.*Hint: rows=1000"),
        (lambda: dpp.mean("x", 0, 8, within=1, rows=0), ValueError, "rows must be at least 1"),
        (lambda: dpp.mean("x", 0, 8, epsilon=1, rows=9), TypeError, "rows must be left out without within, got 9"),
        (lambda: dpp.argmax("x", sensitivity=1, within=1), TypeError, "unexpected keyword argument 'within'"),
        (lambda: dpp.argmin("x", sensitivity=1, within=1), TypeError, "unexpected keyword argument 'within'"),
        (lambda: dpp.len(within=1, mechanism="gauss"), ValueError, "mechanism must be one of"),
    ],
)
def test_what_makes_no_sense_is_refused_at_once(ask, error, message):
    with pytest.raises(error, match=f"(?s){message}"):
        ask()
