"""`simulate` against brute force over all candidates, and against 100,000 releases of the same query."""

import datetime as dt
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import polars as pl
import pytest

import dp_polars as dpp
from dp_polars import analysis
from dp_polars._accounting.budget import Budget
from dp_polars._frames.protect import protect
from tests.helpers import reference
from tests.helpers.refusals import refused
from tests.registry import MECHANISMS, quantile_scores
from tests.statistical.goodness import cell_counts, fits

DRAWS = 100_000


def mode_scores(codes, size):
    return np.bincount(codes, minlength=size).tolist()


def median_scores(codes, size, alpha=Fraction(1, 2)):
    return quantile_scores(mode_scores(codes, size), alpha.numerator, alpha.denominator)


def expected_row(scores, rate, mechanism, *, seen=None, unit=1, by_score):
    """What one row of the result must say: law by the slow reference, all else by enumeration."""
    law = reference.floats(reference.law(scores if seen is None else seen, rate=rate, mechanism=mechanism, digits=30))
    errors = [(max(scores) - score) / unit for score in scores]
    order = sorted(range(len(scores)), key=lambda i: (-errors[i], i)) if by_score else range(len(scores))
    upto = np.cumsum(law[list(order)])
    at = [order[int(np.searchsorted(upto, share))] for share in (0.05, 0.95)]
    right = [i for i in range(len(scores)) if errors[i] == 0]
    of_scores = (law * errors).sum()
    distances = abs(np.arange(len(scores)) - right[0])
    return law, {
        "true_answer": right[0],
        "probability_true": law[right].sum(),
        "expected_error": of_scores if by_score else (law * distances).sum(),
        "expected_rank_error": None if by_score else of_scores,
        "answer_5": at[0],
        "answer_95": at[1],
    }


def assert_row(row, expected, answers):
    for name, value in expected.items():
        if value is None:
            assert row[name] is None, name
        elif name.endswith(("answer", "_5", "_95")):
            assert row[name] == answers[value], name
        else:
            assert row[name] == pytest.approx(value, rel=1e-11), name


CODES = [0, 0, 0, 1, 1, 2, 2, 2, 2, 5, 6]
SIZE = 8


def assert_draws_fit(drawn, row, law, at_other_losses):
    """The draws follow the law; the simulated probability fits them, those at 0.7 and 1.3 times the loss don't."""
    assert len(drawn) == DRAWS
    assert fits(cell_counts(drawn, law), law)
    hits = int((drawn == row["true_answer"]).sum())

    def agrees(p):
        return fits(np.array([hits, DRAWS - hits]), np.array([p, 1 - p]))

    assert agrees(row["probability_true"])
    assert not any(agrees(p) for p in at_other_losses["probability_true"])


@pytest.mark.parametrize("loss", [{"epsilon": 0.7}, {"rho": 0.05}, {"rho": 0.1, "mechanism": "permute_and_flip"}])
@pytest.mark.parametrize("kind", ["mode", "median", "quantile"])
def test_an_expression_agrees_with_brute_force_and_with_draws(kind, loss):
    expr = {
        "mode": lambda: dpp.mode("x", range(SIZE), **loss),
        "median": lambda: dpp.median("x", range(SIZE), **loss),
        "quantile": lambda: dpp.quantile("x", Fraction(1, 4), range(SIZE), **loss),
    }[kind]()
    alpha = Fraction(1, 4) if kind == "quantile" else Fraction(1, 2)
    scores = mode_scores(CODES, SIZE) if kind == "mode" else median_scores(CODES, SIZE, alpha)
    claim = expr.query.claim
    law, expected = expected_row(
        scores, claim.rate, claim.mechanism, unit=1 if kind == "mode" else alpha.denominator, by_score=kind == "mode"
    )
    public = pl.DataFrame({"x": CODES})
    (row,) = analysis.simulate(expr, public).rows(named=True)
    assert_row(row, expected, range(SIZE))
    unit = "rows" if kind == "mode" else "the column's unit"
    assert (row["output"], row["error_unit"], row["counted"], row["left_out"]) == ("x", unit, len(CODES), 0)
    assert row["ordered"] == (kind != "mode")
    assert (row["mechanism"], row["loss_unit"], row["loss"]) == (
        claim.mechanism,
        claim.loss.unit,
        float(claim.loss.value),
    )
    groups = pl.DataFrame({"g": np.repeat(np.arange(DRAWS, dtype=np.int32), len(CODES)), "x": CODES * DRAWS})
    drawn = groups.group_by("g").agg(expr)["x"].to_numpy()
    own = claim.loss.value
    others = analysis.simulate(expr, public, losses=[own * Fraction(7, 10), own * Fraction(13, 10)])
    assert_draws_fit(drawn, row, law, others)


@pytest.mark.slow
@pytest.mark.parametrize("people", [False, True])
def test_a_query_agrees_with_brute_force_and_with_releases(people):
    # Every person has one row in each of two groups at most; in the release there are 100,000 groups of other people.
    unit, bounds = ("p", {"max_groups": 2, "max_rows_per_group": 1}) if people else (None, {})

    def query(groups):
        return (
            protect(unit, **bounds)
            .group_by({"g": range(groups)})
            .agg(
                pl.col("x").dp.mode(range(SIZE), epsilon=1.5).alias("top"),
                pl.col("x").dp.median(range(SIZE), rho=0.5).alias("middle"),
            )
        )

    rows = pl.DataFrame({"g": np.repeat(np.arange(2), len(CODES)), "x": CODES + [1] * len(CODES)})
    public = rows.with_columns(p=pl.int_range(pl.len()) % len(CODES))
    result = analysis.simulate(query(2), public)
    assert result.get_column("output").to_list() == ["top", "top", "middle", "middle"]
    assert result.get_column("g").to_list() == [0, 1, 0, 1]
    assert result["error_unit"].to_list() == ["people"] * 2 + ["the column's unit"] * 2
    many = pl.DataFrame({"g": np.repeat(np.arange(DRAWS), len(CODES)), "x": CODES * DRAWS})
    person = pl.col("g") // 2 * len(CODES) + pl.int_range(pl.len()) % len(CODES)
    released = query(DRAWS).release(many.with_columns(p=person))
    for name, scores in (("top", mode_scores(CODES, SIZE)), ("middle", median_scores(CODES, SIZE))):
        (ask,) = (ask for ask in query(2)._asks if ask.name == name)
        claim = ask.query.claim
        assert claim.contributions.total == (2 if people else 1)
        law, expected = expected_row(
            scores, claim.rate, claim.mechanism, unit=1 if name == "top" else 2, by_score=name == "top"
        )
        row = result.row(by_predicate=(pl.col("g") == 0) & (pl.col("output") == name), named=True)
        assert_row(row, expected, range(SIZE))
        own = claim.loss.value
        others = analysis.simulate(query(2), public, losses=[own * Fraction(7, 10), own * Fraction(13, 10)])
        others = others.filter(pl.col("g") == 0, pl.col("output") == name)
        assert_draws_fit(released[name].to_numpy(), row, law, others)


@pytest.mark.parametrize("lowest", [False, True])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_argmax_agrees_with_brute_force_and_with_draws(mechanism, lowest):
    scores = [3, 5, 5, 1, -2, 4]
    ask = dpp.argmin if lowest else dpp.argmax
    expr = ask("s", epsilon=1, sensitivity=Fraction(1, 2), mechanism=mechanism)
    better = [-s for s in scores] if lowest else scores
    law, expected = expected_row(better, expr.query.claim.rate, mechanism, by_score=True)
    public = pl.DataFrame({"s": scores})
    (row,) = analysis.simulate(expr, public).rows(named=True)
    assert_row(row, expected, range(len(scores)))
    assert (row["error_unit"], row["counted"], row["left_out"]) == ("score", len(scores), 0)
    groups = pl.DataFrame({"g": np.repeat(np.arange(DRAWS), len(scores)), "s": scores * DRAWS})
    drawn = groups.group_by("g").agg(expr)["s"].to_numpy()
    assert fits(cell_counts(drawn, law), law)


def test_argmax_of_scores_that_are_missing_far_apart_or_decimal():
    def one(series, **kwargs):
        expr = dpp.argmax("s", epsilon=2, sensitivity=1, monotonic=True)
        return analysis.simulate(expr, pl.DataFrame({"s": series}), **kwargs).row(0, named=True)

    assert one(pl.Series([None, 2, 1, None]))["true_answer"] == 1
    floats = one([math.nan, 2.0, math.inf, 1.75, -math.inf, None])
    assert (floats["true_answer"], floats["counted"]) == (1, 2)
    assert floats["expected_error"] == pytest.approx(0.25 * math.exp(-0.5) / 2)
    assert one([1.7e308, -1.7e308])["expected_error"] == 0
    far = one(pl.Series([2**63 - 1, -(2**63), 2**63 - 2]))
    assert far["expected_error"] == pytest.approx(math.exp(-2) / 2)
    assert one(pl.Series([2**64 - 1, 2**64 - 2, 0], dtype=pl.UInt64))["expected_error"] == far["expected_error"]
    tenths = one(pl.Series([Decimal("0.5"), Decimal("0.3")]))
    assert tenths["expected_error"] == pytest.approx(0.2 * math.exp(-0.4) / 2)
    nothing = one(pl.Series([None, None], dtype=pl.Int64))
    assert (nothing["true_answer"], nothing["probability_true"], nothing["answer_5"]) == (None, None, None)
    groups = pl.DataFrame({"g": ["a", "b", "a", "c"], "s": [1.0, math.nan, 2.0, 7.0]})
    found = analysis.simulate(dpp.argmax("s", epsilon=2, sensitivity=1), groups, by="g")
    assert found["true_answer"].to_list() == [1, None, 0]
    assert found["answer_95"].to_list() == [1, None, 0]


def test_bounds_drop_rows_and_errors_are_measured_on_all():
    # Everybody has one value, so that it does not matter which rows are dropped.
    codes = [0] * 6 + [1] * 8 + [2] * 8
    people = [1] * 6 + [2] * 8 + [3] * 4 + [4] * 4
    public = pl.DataFrame({"p": people, "x": codes})
    query = protect("p", max_rows=2).agg(
        pl.col("x").dp.median(range(4), epsilon=1), pl.col("x").dp.mode(range(4), epsilon=1).alias("m")
    )
    median, mode = analysis.simulate(query, public).rows(named=True)
    assert (median["counted"], median["left_out"], median["error_unit"]) == (8, 14, "the column's unit")
    kept = [0, 0, 1, 1, 2, 2, 2, 2]
    claim = query._asks[0].query.claim
    _, expected = expected_row(
        median_scores(codes, 4), claim.rate, claim.mechanism, seen=median_scores(kept, 4), unit=2, by_score=False
    )
    assert_row(median, expected, range(4))
    # One group: nobody's people are dropped, and two of them have a 2.
    assert (mode["counted"], mode["left_out"], mode["error_unit"]) == (4, 0, "people")
    claim = query._asks[1].query.claim
    _, expected = expected_row([1, 1, 2, 0], claim.rate, claim.mechanism, by_score=True)
    assert_row(mode, expected, range(4))


def test_errors_of_a_mode_are_measured_on_people_whose_groups_were_dropped():
    # All 40 people are in both groups, and one group of each counts: about 20 people a group.
    public = pl.DataFrame(
        {"p": list(range(40)) * 2, "g": [0] * 40 + [1] * 40, "x": ["a"] * 30 + ["b"] * 10 + ["a"] * 30 + ["b"] * 10}
    )
    query = protect("p", max_groups=1).group_by({"g": [0, 1]}).agg(pl.col("x").dp.mode(["a", "b"], epsilon=0.1))
    result = analysis.simulate(query, public)
    assert result["counted"].sum() == 40
    assert (result["counted"] + result["left_out"]).to_list() == [40, 40]
    assert result["true_answer"].to_list() == ["a", "a"]
    for row in result.rows(named=True):
        assert row["expected_error"] == pytest.approx((1 - row["probability_true"]) * 20)


def test_a_group_whose_rows_are_all_left_out_is_answered_uniformly():
    # One person with 64 groups of whom one is kept.
    public = pl.DataFrame({"p": 1, "g": range(64), "x": 2})
    query = protect("p", max_rows=1).group_by({"g": range(64)}).agg(pl.col("x").dp.median(range(4), epsilon=9))
    result = analysis.simulate(query, public)
    dropped = result.filter(pl.col("counted") == 0)
    assert (dropped.height, set(dropped["left_out"])) == (63, {1})
    assert set(dropped["true_answer"]) == {2}
    assert dropped["probability_true"].to_numpy() == pytest.approx(1 / 4)
    assert dropped["answer_5"].to_list() == [0] * 63
    assert dropped["answer_95"].to_list() == [3] * 63
    kept = result.filter(pl.col("counted") == 1)
    assert kept["probability_true"].item() > 0.98


def test_groups_without_contributing_rows():
    query = (
        protect(None)
        .group_by({"g": ["a", "b", "c"]})
        .agg(pl.col("x").dp.median(range(10), epsilon=5), m=pl.col("x").dp.mode(range(10), epsilon=5))
    )
    public = pl.DataFrame({"g": ["a", "a", "a", "b", "z"], "x": [4, 4, 4, None, 1]})
    result = analysis.simulate(query, public)
    for name in ("true_answer", "probability_true", "expected_error"):
        assert result[name].is_null().to_list() == [False, True, True] * 2
    assert result["answer_5"].to_list() == [4, 0, 0] * 2
    assert result["answer_95"].to_list() == [4, 9, 9] * 2
    nothing = analysis.simulate(query, public.clear())
    assert nothing["counted"].to_list() == [0] * 6
    for frame in (public.clear(), public.filter(g="b")):
        (row,) = analysis.simulate(dpp.mode("x", range(10), epsilon=5), frame).rows(named=True)
        assert (row["true_answer"], row["answer_5"], row["answer_95"]) == (None, 0, 9)
    assert analysis.simulate(dpp.mode("x", range(10), epsilon=5), public.clear(), by="g").height == 0


def test_ties():
    expr = dpp.mode("x", ["a", "b", "c"], epsilon=1)
    (row,) = analysis.simulate(expr, pl.DataFrame({"x": ["b", "a", "a", "b"]})).rows(named=True)
    assert row["true_answer"] == "a"
    coin = math.exp(-2)
    assert row["expected_error"] == pytest.approx(2 * coin * (1 - 1 + 1 / 3))  # p·∫(1 − t)² dt
    assert row["probability_true"] == pytest.approx(1 - coin / 3)


def test_each_loss_is_that_of_a_query_built_with_it():
    public = pl.DataFrame({"p": range(40), "x": [3, 3, 1, 7] * 10})

    def query(a, b):
        return (
            protect("p", max_rows=3, neighboring_relation="replace_one")
            .group_by({"x": range(8)})
            .agg(
                pl.col("x").dp.quantile(0.3, range(8), epsilon=a).alias("q"),
                pl.col("x").dp.mode(range(8), rho=b, mechanism="permute_and_flip").alias("m"),
            )
        )

    tried = analysis.simulate(query(9, 9), public, losses=[0.25, Fraction(1, 2), 2])
    assert tried["loss"].unique().to_list() == [0.25, 0.5, 2.0]
    assert tried["loss_unit"].to_list() == ["epsilon"] * 24 + ["rho"] * 24
    for loss in (0.25, 0.5, 2):
        alone = analysis.simulate(query(loss, loss), public)
        assert alone.equals(tried.filter(pl.col("loss") == loss))
    expr = analysis.simulate(dpp.argmax("x", rho=9, sensitivity=1), public, losses=[0.5])
    assert expr.equals(analysis.simulate(dpp.argmax("x", rho=0.5, sensitivity=1), public))


DAY = dt.date(2024, 1, 1)


def test_answers_have_the_type_of_the_query():
    for series, expr, true in (
        (pl.Series("x", ["b", "b", None], dtype=pl.Enum(["a", "b"])), dpp.mode("x", epsilon=9), "b"),
        (pl.Series("x", [True, True, False]), dpp.mode("x", epsilon=9), True),
        (pl.Series("x", [DAY, DAY]), dpp.mode("x", [DAY, DAY + dt.timedelta(1)], epsilon=9), DAY),
        (pl.Series("x", [DAY] * 9), dpp.median("x", dpp.grid(DAY, DAY + dt.timedelta(9), step="1d"), epsilon=9), DAY),
        (
            pl.Series("x", [Decimal("1.25")] * 9),
            dpp.median("x", dpp.grid(Decimal(0), Decimal(9), step=Decimal("0.05")), epsilon=9),
            Decimal("1.25"),
        ),
        (pl.Series("x", [0.07, math.nan, 0.07]), dpp.median("x", dpp.grid(0, 10**7, step=0.01), epsilon=99), 0.07),
        (pl.Series("x", [2**64 - 1] * 2, dtype=pl.UInt64), dpp.mode("x", [1, 2**64 - 1], epsilon=9), 2**64 - 1),
    ):
        public = series.to_frame()
        result = analysis.simulate(expr, public)
        assert result["true_answer"].item() == true
        assert result["answer_95"].item() == true
        released = public.select(expr)["x"].dtype
        assert {result[name].dtype for name in ("true_answer", "answer_5", "answer_95")} == {released}
        assert result.schema.names() == [
            *("output", "true_answer", "probability_true", "expected_error", "error_unit", "expected_rank_error"),
            *("answer_5", "answer_95", "counted", "left_out", "selects", "mechanism", "loss", "loss_unit", "ordered"),
        ]


def test_answers_of_several_types_are_text():
    query = protect(None).agg(
        pl.col("x").dp.mode(["a", "b"], epsilon=1), pl.col("y").dp.median(dpp.grid(0, 1, step=0.5), epsilon=1)
    )
    result = analysis.simulate(query, pl.DataFrame({"x": ["b"] * 9, "y": [0.5] * 9}))
    assert result["true_answer"].to_list() == ["b", "0.5"]
    assert result["selects"].to_list() == ["mode of 2 candidates", "median on 3 grid points"]


def test_a_fine_grid_costs_its_rows():
    rng = np.random.default_rng(5)
    rows = pl.DataFrame({"g": rng.integers(0, 3, 2000), "x": rng.normal(500, 10, 2000)})
    expr = dpp.median("x", dpp.grid(0, 10**7, step=0.01), epsilon=1)
    result = analysis.simulate(expr, rows, by="g")
    groups = rows.group_by("g", maintain_order=True).agg(
        pl.col("x").quantile(0.5, "lower").alias("lower"), n=pl.col("x").filter(pl.col("x") < 600).len()
    )
    assert result["g"].equals(groups["g"])
    assert (result["true_answer"] - groups["lower"]).abs().max() <= 0.0051
    assert (result["answer_5"] < result["true_answer"]).all()
    assert (result["true_answer"] < result["answer_95"]).all()
    # At the same distance from the ends of a stretch, the place inside it is uniform.
    far = analysis.simulate(
        dpp.median("x", dpp.grid(0, 99, step=1), epsilon=1), pl.DataFrame({"x": pl.Series([], dtype=pl.Int64)})
    )
    assert (far["answer_5"].item(), far["answer_95"].item()) == (4, 94)


def test_expressions_and_lazy_frames():
    public = pl.LazyFrame({"g": [1, 1, 2], "h": ["u", "v", "u"], "x": [3, 4, 5]})
    expr = pl.col("x").filter(pl.col("x") > 3).dp.mode(range(6), epsilon=9).alias("top")
    result = analysis.simulate(expr, public, by=["g", "h"])
    assert result.select("g", "h", "output", "true_answer").rows() == [
        (1, "u", "top", None),
        (1, "v", "top", 4),
        (2, "u", "top", 5),
    ]
    # A public plan may hold what a private one may not.
    query = protect(None).agg(pl.col("x").dp.median(range(6), epsilon=99))
    assert analysis.simulate(query, public.sort("x").head(1))["true_answer"].item() == 3


def test_private_rows_and_budget_are_not_touched(tmp_path):
    file = tmp_path / "private.parquet"
    pl.DataFrame({"x": [1, 2, 3]}).write_parquet(file)
    budget = Budget(epsilon=1)
    query = pl.scan_parquet(file).dp.protect(None, budget=budget).agg(pl.col("x").dp.median(range(5), epsilon=1))
    file.unlink()
    assert analysis.simulate(query, pl.DataFrame({"x": [4, 4]}))["true_answer"].item() == 4
    assert budget.spent == 0


def test_bad_input():
    public, simulate = pl.DataFrame({"x": [1, 2], "loss": [1, 2]}), analysis.simulate
    expr = dpp.mode("x", [1, 2], epsilon=1)
    query = protect(None).agg(expr)
    for bad in (0, -1, math.nan, math.inf):
        refused(ValueError, r"losses\[1\] must be", simulate, expr, public, losses=[1, bad])
    refused(ValueError, "losses must not be empty", simulate, expr, public, losses=[])
    for bad in (1, "1"):
        refused(TypeError, "losses must be a list of numbers", simulate, expr, public, losses=bad)
    refused(TypeError, r"losses\[0\] must be a number", simulate, expr, public, losses=["1"])
    refused(
        TypeError,
        "query must be a PrivateQuery, a publication or a PrivateExpr, got Expr",
        simulate,
        pl.col("x"),
        public,
    )
    refused(ValueError, "by must be left out", simulate, query, public, by="x")
    refused(ValueError, r"must not be an expression with over[\s\S]*Hint", simulate, expr.over("x"), public)
    refused(ValueError, r"named like columns of the result, got \['loss'\]", simulate, expr, public, by="loss")
    for ask in (expr, query):
        refused(TypeError, "DataFrame", simulate, ask, {"x": [1]})
    words = "can't be categories of a column of type String"
    refused(TypeError, words, simulate, expr, pl.DataFrame({"x": ["a"]}))
    refused(pl.exceptions.ColumnNotFoundError, "x", simulate, expr, pl.DataFrame({"y": ["a"]}))
