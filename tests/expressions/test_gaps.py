"""Gaps of modes and argmax: types, units, and what can't be asked."""

import pickle
from decimal import Decimal
from fractions import Fraction

import polars as pl
import pytest

import dp_polars as dpp
from dp_polars._statistics import categories as modes
from dp_polars._statistics import extremes as argmax
from tests.helpers.reference import pure_rho
from tests.registry import COLUMNS, SURE, X


def type_with(answer, gap=None):
    return pl.Struct({"answer": answer, "gap": gap or pl.Int64})


@pytest.mark.parametrize("kind", [name for name, kind in COLUMNS.items() if kind.categories is not None])
def test_a_mode_keeps_the_type_of_the_column(kind):
    column = COLUMNS[kind]
    first, *others = column.categories
    rows = pl.DataFrame({"x": pl.Series([first] * 20 + others, dtype=column.dtype)})
    plain = rows.select(X.dp.mode(column.categories, **SURE)).to_series()
    led = rows.select(X.dp.mode(column.categories, gap=True, **SURE)).to_series()
    assert led.dtype == type_with(plain.dtype)
    assert led.struct.field("answer").to_list() == plain.to_list() == [first]
    assert led.struct.field("gap").item() in (18, 19, 20)


@pytest.mark.parametrize("dtype", [pl.Enum(["b", "a", "é"]), pl.Boolean()])
def test_candidates_that_the_type_names(dtype):
    rows = pl.DataFrame({"x": pl.Series([0] * 3 + [1] * 9).cast(dtype) if dtype == pl.Boolean else
                         pl.Series(["b"] * 3 + ["a"] * 9, dtype=dtype)})  # fmt: skip
    for column in (X, X.filter(X.is_not_null()), X.name.suffix("")):
        led = rows.select(column.dp.mode(gap=True, **SURE)).to_series()
        assert led.name == "x"
        assert led.dtype == type_with(dtype)
        assert led.struct.field("answer")[0] == rows["x"][-1]
        assert led.struct.field("gap")[0] in (5, 6)


VALUES = [1, 40, 7]
GAPS = {  # type of the scores, step, type of the gap, and the values that it may have
    "integers": (pl.Int32(), None, pl.Int64(), [32, 33]),
    "unsigned": (pl.UInt64(), 10, pl.Int64(), [30]),
    "integers by decimals": (pl.Int8(), Decimal("0.5"), pl.Decimal(38, 1), [Decimal("32.5"), Decimal(33)]),
    "integers by floats": (pl.Int8(), 0.25, pl.Float64(), [32.75, 33.0]),
    "integers by fractions": (pl.Int8(), Fraction(20, 3), pl.Float64(), [80 / 3]),
    "floats": (pl.Float64(), 8, pl.Float64(), [32.0]),
    "small floats": (pl.Float32(), 0.5, pl.Float64(), [32.5, 33.0]),
    "decimals": (pl.Decimal(10, 1), None, pl.Decimal(38, 1), [Decimal("32.9"), Decimal(33), Decimal("33.1")]),
    "decimals by decimals": (pl.Decimal(10, 1), Decimal("0.25"), pl.Decimal(38, 2), [Decimal("32.75"), Decimal(33)]),
    "decimals by integers": (pl.Decimal(38, 2), 10, pl.Decimal(38, 2), [Decimal(30)]),
}


@pytest.mark.parametrize("case", GAPS)
def test_gaps_have_the_type_of_the_scores_and_the_step(case):
    dtype, step, gap_type, possible = GAPS[case]
    rows = pl.DataFrame({"x": pl.Series(VALUES).cast(dtype)})
    for expr in (
        X.dp.argmax(sensitivity=1, gap=True, gap_step=step, epsilon=500),
        (100 - X).cast(dtype).dp.argmin(sensitivity=1, gap=True, gap_step=step, epsilon=500),
    ):
        led = rows.select(expr.alias("y")).to_series()
        assert led.dtype == type_with(pl.UInt32, gap_type)
        assert led.struct.field("answer").item() == 1
        assert led.struct.field("gap").item() in possible


def test_nobody_to_be_ahead_of():
    rows = pl.DataFrame({"g": [1, 1, 2, 2], "x": [5, None, None, None]})
    led = rows.group_by("g", maintain_order=True).agg(X.dp.argmax(sensitivity=1, gap=True, **SURE)).unnest("x")
    assert led.rows() == [(1, 0, None), (2, None, None)]
    assert rows.select(X.dp.mode([7], gap=True, **SURE)).unnest("x").row(0) == (7, None)
    # But "too few" is one more candidate.
    few = rows.select(X.dp.mode([7], gap=True, too_few=9, **SURE)).unnest("x")
    assert few.rows() in ([(None, 8)], [(None, 9)])


def test_huge_gaps_are_clamped():
    rows = pl.DataFrame({"x": pl.Series([2**64 - 1, 0], dtype=pl.UInt64)})
    led = rows.select(X.dp.argmax(sensitivity=1, gap=True, **SURE)).unnest("x")
    assert led.row(0) == (0, 2**62 - 1)
    led = rows.select(X.dp.argmax(sensitivity=1, gap=True, gap_step=1e-30, **SURE)).unnest("x")
    assert led["gap"].item() == pytest.approx(2**62 * 1e-30)


@pytest.mark.parametrize("name", ["mode", "argmax", "argmin"])
def test_a_gap_is_free_under_epsilon_and_refused_under_rho(name):
    options = {"candidates": [1, 2]} if name == "mode" else {"sensitivity": 2}
    method = getattr(X.dp, name)
    with_gap, without = (method(epsilon=3, gap=gap, **options).query.claim for gap in (True, False))
    assert with_gap.rate == without.rate
    assert with_gap.cost("epsilon") == without.cost("epsilon") == 3
    assert pure_rho(3) <= with_gap.cost("rho") <= pure_rho(3) * (1 + Fraction(1, 2**90))
    assert with_gap.cost("rho") > without.cost("rho")
    assert "and its gap" in repr(method(epsilon=3, gap=True, **options))
    with pytest.raises(ValueError, match="gap=True must be requested with epsilon, got rho=3: that a gap costs"):
        method(rho=3, gap=True, **options)
    with pytest.raises(TypeError, match=r"gap must be True or False, got 1\."):
        method(epsilon=3, gap=1, **options)


def test_steps_that_are_none():
    def ask(**options):
        return X.dp.argmax(sensitivity=1, epsilon=1, **options)

    with pytest.raises(ValueError, match=r"gap_step must be left out without gap=True, got 2\."):
        ask(gap_step=2)
    for step in (0, -1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=r"gap_step must be (greater than 0|finite)"):
            ask(gap=True, gap_step=step)
    with pytest.raises(ValueError, match=r"gap_step must be a ratio of integers of at most 2\*\*900"):
        ask(gap=True, gap_step=Fraction(1, 2**901))
    with pytest.raises(pl.exceptions.ComputeError, match="gap_step must be given for scores of type Float64"):
        pl.LazyFrame({"x": [1.0]}).select(ask(gap=True)).collect_schema()
    with pytest.raises(pl.exceptions.ComputeError, match="step must have at most 38 decimal places"):
        pl.LazyFrame({"x": [1]}).select(ask(gap=True, gap_step=Decimal("1e-40"))).collect_schema()
    for column, step, held in (([1], 2**63, "Int64"), ([Decimal("0.1")], 10**37, "Decimal")):
        rows = pl.LazyFrame({"x": column})
        with pytest.raises(pl.exceptions.ComputeError, match=f"step must be a number that {held}.* holds, got"):
            rows.select(ask(gap=True, gap_step=step)).collect_schema()
        assert rows.select(ask(gap=True, gap_step=step - 1)).collect().height == 1


def test_answer_and_gap_come_from_one_draw(monkeypatch):
    """Were an expression to name the draw twice, the two could be of two draws."""
    drawn = []
    for module, name in ((modes, "gap_from_rows"), (argmax, "best_rows_with_gap")):
        original = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *a, f=original, **k: (drawn.append(1), f(*a, **k))[1])
    rows = pl.DataFrame({"x": ["a", "b"]}, schema={"x": pl.Enum(["a", "b"])}).with_columns(n=pl.Series([1, 2]))
    rows.select(X.dp.mode(gap=True, epsilon=1))
    rows.select(pl.col("n").dp.argmax(sensitivity=1, gap=True, epsilon=1))
    rows.lazy().select(X.dp.mode(["a"], gap=True, epsilon=1)).collect(engine="streaming")
    assert len(drawn) == 3


def test_expressions_survive_pickling():
    expr = pickle.loads(pickle.dumps(X.dp.argmax(sensitivity=1, gap=True, gap_step=2, epsilon=500)))
    assert expr.query.claim._gap
    led = pl.DataFrame({"x": [0, 31]}).select(expr).unnest("x")
    assert led.row(0) == (1, 30)


# Sensitivities of their own


def test_rows_that_can_not_win():
    rows = pl.DataFrame(
        {"x": [9.0, None, float("nan"), 8.0, 7.0, 6.0, 5.0, 1.0],
         "v": [0.0, 1.0, 1.0, -1.0, None, float("inf"), float("nan"), 2.0]}
    )  # fmt: skip
    best = X.dp.argmax(sensitivity=pl.col("v"), **SURE)
    assert rows.select(best).item() == 7
    assert rows.head(7).select(best).item() is None
    assert rows.select(best.over("v"))["x"].to_list() == [None] * 7 + [0]


@pytest.mark.parametrize("score", ["Int8", "UInt64", "Float32", "Decimal"])
@pytest.mark.parametrize("own", ["Int64", "UInt8", "Float64", "Decimal"])
def test_types_of_sensitivities(score, own):
    types = {"Decimal": pl.Decimal(20, 3)}
    rows = pl.DataFrame(
        [pl.Series("x", [1, 90, 60]).cast(types.get(score) or getattr(pl, score)),
         pl.Series("v", [1, 2, 1]).cast(types.get(own) or getattr(pl, own))]
    )  # fmt: skip
    for name, truth in (("argmax", 1), ("argmin", 0)):
        expr = getattr(X.dp, name)(sensitivity=pl.col("v"), epsilon=100)
        assert rows.select(expr).item() == truth
        assert rows.lazy().select(expr).collect(engine="streaming").item() == truth
        assert rows.select(pickle.loads(pickle.dumps(expr))).item() == truth


def test_one_sensitivity_in_a_column_is_that_of_twice_the_distance():
    """Equal sensitivities Δ: scores (q_i − best)/(2Δ), R = 2: the law of argmax with R = 4Δ."""
    from dp_polars.analysis import simulate

    rows = pl.DataFrame({"x": [0, 3, 7, 5], "v": [2] * 4})
    own = simulate(X.dp.argmax(sensitivity=pl.col("v"), epsilon=2), rows)
    plain = simulate(X.dp.argmax(sensitivity=4, epsilon=2), rows)
    for name in ("true_answer", "probability_true", "expected_error"):
        assert own[name].to_list() == pytest.approx(plain[name].to_list())
    at_losses = simulate(X.dp.argmax(sensitivity=pl.col("v"), epsilon=2), rows, losses=[2, 100])
    assert at_losses["probability_true"][0] == own["probability_true"][0] < at_losses["probability_true"][1]


def test_what_can_not_be_asked_of_sensitivities():
    own = pl.col("v")
    with pytest.raises(ValueError, match="monotonic must be left out where sensitivity is a column"):
        X.dp.argmax(sensitivity=own, monotonic=True, epsilon=1)
    with pytest.raises(TypeError, match="monotonic must be True or False"):
        X.dp.argmax(sensitivity=own, monotonic=None, epsilon=1)
    for options in ({"gap": True}, {"gap_step": 1}):
        with pytest.raises(ValueError, match="gap and gap_step must be left out where sensitivity is a column"):
            X.dp.argmin(sensitivity=own, epsilon=1, **options)
    with pytest.raises(ValueError, match="the expression must have one output"):
        X.dp.argmax(sensitivity=pl.all(), epsilon=1)
    with pytest.raises(TypeError, match="the expression must not be a private answer itself"):
        X.dp.argmax(sensitivity=X.dp.median([1], epsilon=1), epsilon=1)
    frame = pl.LazyFrame({"x": [1, 2], "v": ["a", "b"], "w": [True, False]})
    for column in ("v", "w"):
        with pytest.raises(pl.exceptions.ComputeError, match="sensitivities must be integers of at most 64"):
            frame.select(X.dp.argmax(sensitivity=pl.col(column), epsilon=1)).collect_schema()
    with pytest.raises(Exception, match="must have a value for every row"):
        frame.select(X.dp.argmax(sensitivity=pl.lit(1), epsilon=1)).collect()
    with pytest.raises(TypeError, match="got an argmax: its scores would be raw rows"):
        dpp.protect(None).agg(X.dp.argmax(sensitivity=own, epsilon=1))


def test_groups_with_too_many_rows():
    rows = pl.DataFrame({"x": range(4097), "v": [1] * 4097})
    best = X.dp.argmax(sensitivity=pl.col("v"), epsilon=10**6)
    with pytest.raises(Exception, match=r"a group must have at most 4,096 rows with a sensitivity[^,]*, got 4,097"):
        rows.select(best)
    assert rows.head(4096).select(best).item() == 4095
    # Rows that can't win don't count.
    assert rows.with_columns(v=pl.when(X > 4095).then(0).otherwise(1)).select(best).item() == 4095
