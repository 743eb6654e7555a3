"""Variances and deviations: squares in a public step, intervals and errors by enumeration, laws by all noise."""

import itertools
import math
from fractions import Fraction

import hypothesis.strategies as st
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings

import dp_polars as dpp
from dp_polars import analysis
from dp_polars._bins.binning import Squares
from dp_polars._mechanisms.noise import noise_bound
from tests.statistical.goodness import check_sampler

SURE = 10**12
INT = pl.Int64()


def squares(low, high, step=1):
    return Squares(Fraction(low) * step, Fraction(high) * step, Fraction(step), doubled=True)


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_squares_are_the_nearest_multiples_of_their_step(data):
    ends = st.integers(-(2**29), 2**29) | st.integers(-9, 9) | st.integers(-(2**15), 2**15)
    low, high = sorted(data.draw(st.lists(ends, min_size=2, max_size=2, unique=True)))
    values = data.draw(st.lists(st.integers(low, high) | st.sampled_from([low, high]), min_size=1))
    row_weight, steps = squares(low, high), high - low
    q = 2**row_weight.shift
    assert steps**2 <= 2**30 * q
    assert q == 1 or steps**2 > 2**29 * q  # no coarser than it must be
    found = row_weight.weigh([pl.Series(values, dtype=pl.Int64)])
    assert found.dtype == np.int64
    for value, weight in zip(values, found.tolist(), strict=True):
        square, t = (2 * value - low - high) ** 2, Fraction(weight + row_weight.largest, 2)
        assert t.denominator == 1
        assert abs(t * q - square) <= Fraction(q, 2) * (q > 1)
        assert abs(weight) <= row_weight.largest <= 2**30


def test_the_ends_weigh_the_most_and_the_middle_the_least():
    for low, high in ((0, 1), (-4, 3), (0, 2**15), (0, 2**15 + 1), (-(2**29), 2**29), (0, 2**30)):
        row_weight = squares(low, high)
        middle = (low + high) // 2
        ends = row_weight.weigh([pl.Series([low, high, -(2**63), 2**63 - 1])])
        assert set(ends.tolist()) == {row_weight.largest}
        if (low + high) % 2 == 0:
            assert row_weight.weigh([pl.Series([middle])]).tolist() == [-row_weight.largest]


@pytest.mark.parametrize("on", ["expression", "frame"])
@pytest.mark.parametrize(
    ("values", "lower", "upper", "step"),
    [
        ([1, 2, 3, 90, None] * 9, 0, 60, None),
        ([1.0, 2.5, math.nan, None, math.inf, -7.25], -8, 8, 0.25),
        ([5] * 8, 0, 9, None),
        ([-1.0, 1.0], -1, 1, 1),
        ([True, False, True], 0, 1, None),
        ([0.123456789, 0.987654321, 0.5], 0, 1, 1e-9),
    ],
)
@pytest.mark.parametrize("ddof", [0, 1])
def test_without_noise_they_are_those_of_polars(values, lower, upper, step, on, ddof):
    frame = pl.DataFrame({"x": values}, strict=False)
    asked = (
        dpp.var("x", lower, upper, step=step, ddof=ddof, epsilon=SURE),
        dpp.std("x", lower, upper, step=step, ddof=ddof, epsilon=SURE).alias("s"),
    )
    var, std = (frame.select(asked) if on == "expression" else frame.dp.protect(None).agg(asked).release()).row(0)
    there = frame["x"].cast(pl.Float64).drop_nans().drop_nulls().clip(lower, upper)
    # Rounding of squares adds less than 2**-30 of the largest variance, that of values nothing here.
    assert var == pytest.approx(there.var(ddof=ddof), abs=2.0**-29 * ((upper - lower) / 2) ** 2 + 1e-12)
    assert std == math.sqrt(var)


def test_ddof_is_one_by_default_and_one_row_has_no_variance():
    for ask in (dpp.var, dpp.std):
        assert ask("x", 0, 3, epsilon=1).query == ask("x", 0, 3, ddof=1, epsilon=1).query
        assert str(ask("x", 0, 3, ddof=0, epsilon=1).query).endswith("from 0 to 3, ddof=0")
        for rows in ([], [3], [None, 3]):
            frame = pl.DataFrame({"x": rows}, {"x": pl.Int64})
            assert frame.select(ask("x", 0, 3, epsilon=SURE)).item() == 0
        query, drawn = ask("x", 0, 3, epsilon=1).query, [pl.Series([number]) for number in (0, 0, 2)]
        assert [end.item() for end in query.presented(drawn, 0.05, pl.Int64())[1:]] == [0, query.ends[1]]
        for wrong in (2, -1, True, "1"):
            with pytest.raises(ValueError, match="ddof must be 0 or 1, got"):
                ask("x", 0, 3, ddof=wrong, epsilon=1)
    assert dpp.var("x", 0, 3, epsilon=1).query.ends == (0, 4.5)


@pytest.mark.slow
@pytest.mark.parametrize("ddof", [0, 1])
@pytest.mark.parametrize("ask", [dpp.var, dpp.std])
def test_ranges_and_errors_hold_what_rounding_does(ask, ddof):
    """Without noise to speak of: the range of rounded values holds the number of the values themselves."""
    rng, seen = np.random.default_rng(4), 0
    for step in (0.25, 1, None):
        for _ in range(40):
            values = pl.Series("x", rng.uniform(-1, 1, 12).round(7))
            query = values.to_frame().dp.protect(None).agg(ask("x", -1, 1, step=step, ddof=ddof, epsilon=10**11))
            found, low, high = query.release(intervals=True).row(0)
            true = (values.var if ask is dpp.var else values.std)(ddof=ddof)
            assert low <= true <= high
            error = query._asks[0].query.error_among(12, 0.05, pl.Float64())
            assert abs(found - true) <= error
            assert error < 1.5 * (step or 1e-5) + 1e-3
            seen += abs(found - true) > error / 10
    assert seen > 10


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=30), st.sampled_from([1e-3, 0.25, 1]))
@settings(max_examples=100, deadline=None)
def test_rounding_to_the_step_moves_a_deviation_by_half_of_it(values, step):
    found = pl.DataFrame({"x": values}).select(dpp.std("x", -1, 1, step=step, ddof=0, epsilon=SURE)).item()
    assert abs(found - pl.Series(values).std(ddof=0)) <= step / 2 + 1e-6


def test_sums_of_as_many_rows_as_there_may_be_fit():
    row_weight = squares(0, 2**30)
    assert row_weight.largest * 2**32 <= 2**62
    assert row_weight.largest == 2**30


@pytest.mark.parametrize("ask", [dpp.var, dpp.std])
@pytest.mark.parametrize(("lower", "upper", "step"), [(-2, 2, 1), (0, 2**17, 1)])
@pytest.mark.parametrize("ddof", [0, 1])
def test_ranges_hold_all_totals_within_the_bounds_of_the_noise_and_no_more(ask, lower, upper, step, ddof, monkeypatch):
    query = ask("x", lower, upper, step=step, ddof=ddof, epsilon=9).query
    rng, (steps, largest, _) = np.random.default_rng(2), map(int, query.changes(INT))
    offs = {1: (3, 5, 2), 2**17: (2 * steps, 3 * largest, 2)}[1 if upper == 2 else 2**17]
    known = {(claim.score_range, 0.05 / 3): off for claim, off in zip(query.noise(INT), offs, strict=True)}
    monkeypatch.setattr(
        "dp_polars._statistics.averages.noise_bound", lambda claim, beta: known[claim.score_range, beta]
    )
    count = rng.integers(-1, 9, 300)
    totals = [rng.integers(-9 * steps, 9 * steps, 300), rng.integers(-9 * largest, 9 * largest, 300), count]
    answers, low, high = (one.to_numpy() for one in query.presented([*map(pl.Series, totals)], 0.05, INT))
    assert ((low <= answers) & (answers <= high)).all()
    tried = [
        query.of_totals([total + off * part for total, off, part in zip(totals, offs, parts, strict=True)], INT)
        for parts in itertools.product(np.linspace(-1, 1, 13), np.linspace(-1, 1, 3), np.linspace(-1, 1, 41))
    ]
    nobody, slack = count - offs[2] < 1 + ddof, 1e-9 * query.ends[1]
    assert (low[nobody] == 0).all()
    assert (high[nobody] == query.ends[1]).all()
    somebody = ~nobody
    assert somebody.sum() > 60
    least, most = np.minimum.reduce(tried), np.maximum.reduce(tried)
    assert (low[somebody] <= least[somebody] + slack).all()
    assert (high[somebody] >= most[somebody] - slack).all()
    # They are attained, but for the grid of what was tried, and what rounding of squares adds.
    if not ddof:
        assert low[somebody] == pytest.approx(least[somebody], abs=slack + 1e-4 * query.ends[1])
        assert high[somebody] == pytest.approx(most[somebody], abs=0.02 * query.ends[1])


def test_ranges_hold_the_number_without_noise_with_95_percent():
    rng = np.random.default_rng(1)
    for values in ([0.0, 8.0] * 30, [8.0] * 40, rng.normal(4, 1, 50).tolist()):
        rows = pl.DataFrame({"g": np.repeat(np.arange(4000), len(values)), "x": values * 4000})
        query = rows.dp.protect(None).group_by({"g": range(4000)}).agg(dpp.std("x", 0, 8, step=0.25, ddof=0, epsilon=2))
        found, true = query.release(intervals=True), pl.Series(values).clip(0, 8)
        true = ((true * 4).round() / 4).std(ddof=0)
        held = found.select((pl.col("x_low") <= true + 1e-9) & (pl.col("x_high") >= true - 1e-9)).to_series().mean()
        assert held >= 0.95


@pytest.mark.parametrize("ask", [dpp.var, dpp.std])
@pytest.mark.parametrize(("lower", "upper"), [(-1, 1), (0, 2**16)])
@pytest.mark.parametrize("ddof", [0, 1])
def test_the_error_among_some_rows_holds_for_all_noise_within_its_bounds(ask, lower, upper, ddof):
    """Of rows at the ends, in the middle, and in the proportions between."""
    query = ask("x", lower, upper, step=1, ddof=ddof, epsilon=40).query
    off, of_squares, by = (noise_bound(claim, 0.05 / 3) for claim in query.noise(INT))
    least = by + 2
    ends = pl.Series([lower, (lower + upper) // 2, upper])
    sums = [piece.of_rows([ends])[1] for piece in query.count_rules(INT)[:2]]
    bound, worst = query.error_among(least, 0.05, INT), 0.0
    for rows in (least, least + 1, least + 5):
        for few in range(rows + 1):
            for more in range(rows + 1 - few):
                numbers = np.array([few, rows - few - more, more])
                totals = [int(part @ numbers) for part in sums] + [rows]
                true = query.of_totals([np.array([total]) for total in totals], INT)[0]
                signs = itertools.product((-1, 1), (-1, 1), range(-by, by + 1))
                noise = np.array([(a * off, b * of_squares, c) for a, b, c in signs]).T
                noisy = query.of_totals([total + part for total, part in zip(totals, noise, strict=True)], INT)
                worst = max(worst, float(abs(noisy - true).max()))
    assert worst <= bound + 1e-9
    assert worst > 0.5 * bound
    assert query.error_among(by, 0.05, INT) == query.ends[1]
    assert query.error_among(10**7, 0.05, INT) < 0.01 * query.ends[1]
    assert query.error(1, 0.05, INT) is None


def test_within_finds_a_loss_for_groups_of_some_rows():
    query = dpp.std("x", 0, 30, step=1, within=2, rows=5000).query
    assert query.error_among(5000, 0.05) <= 2
    assert 0 < query.claim.loss.value < 1
    with pytest.raises(TypeError, match="rows must be given with within"):
        dpp.var("x", 0, 30, step=1, within=2)


def law_of(query, values, types):
    """All answers, and their probabilities: by enumeration of the noise of three draws."""
    parts, answers = [], []
    for claim in query.noise(*types):
        scale = float(1 / claim.rate)
        x = np.arange(-math.ceil(16 * scale) - 1, math.ceil(16 * scale) + 2)
        weights = np.exp(-abs(x) / scale if claim.mechanism == "discrete_laplace" else -((x / scale) ** 2) / 2)
        parts.append((x, weights / weights.sum()))
    totals = [
        int((codes == 0) @ (1 if weights is None else weights) if weights is not None else (codes == 0).sum())
        for codes, weights in (piece.of_rows([values]) for piece in query.count_rules(*types))
    ]
    for x, y in itertools.product(*(part[0] for part in parts[:1]), parts[2][0]):
        distance, count = totals[0] + x, max(totals[2] + y, 1)
        # By the definition: mean square less squared mean, in halves of a step.
        row_weight = query.squares(*types)
        of_squares = ((totals[1] + parts[1][0]) / count + row_weight.largest) / 2 * 2**row_weight.shift
        answers.append(of_squares - (distance / count) ** 2)
    h = float(query.upper - query.lower) / 2
    variance = np.clip(np.array(answers) * float(query.known_step(*types) / 2) ** 2, 0, h * h)
    if query.ddof:
        counts = np.tile(totals[2] + parts[2][0], len(parts[0][0]))[:, None]
        variance = np.where(counts > 1, variance * counts / np.maximum(counts - 1, 1), 0)
    shares = np.einsum("i,k,j->ikj", parts[0][1], parts[2][1], parts[1][1]).reshape(variance.shape)
    return variance.ravel(), shares.ravel()


VALUES = pl.Series([0, 3, 1, 3, 2, 3, 0, 1])


@pytest.mark.parametrize("mechanism", ["discrete_laplace", "discrete_gaussian"])
@pytest.mark.parametrize("on", ["expression", "frame"])
def test_answers_have_the_exact_law(on, mechanism):
    draws = 30_000
    rows = pl.DataFrame({"g": np.repeat(np.arange(draws), len(VALUES)), "x": VALUES.to_list() * draws})

    def asked(factor):
        loss = {"epsilon": 6 * factor} if mechanism == "discrete_laplace" else {"rho": 3 * factor**2}
        return dpp.var("x", 0, 3, **loss)

    answers, shares = law_of(asked(Fraction(1)).query, VALUES, (INT,))
    order = np.argsort(answers)
    upto = np.cumsum(shares[order])
    cuts = np.unique(answers[order][np.searchsorted(upto, np.arange(1, 20) / 20)]) + 1e-9
    exact = np.bincount(np.searchsorted(cuts, answers), shares, len(cuts) + 1)

    def draw(factor):
        expr = asked(factor)
        if on == "expression":
            found = rows.group_by("g").agg(expr)
        else:
            found = rows.dp.protect(None).group_by({"g": range(draws)}).agg(expr).release()
        return np.searchsorted(cuts, found["x"].to_numpy())

    check_sampler(draw, exact / exact.sum())


@pytest.mark.parametrize("loss", [{"epsilon": 6}, {"rho": 3}, {"epsilon": 60}], ids=str)
@pytest.mark.parametrize("ask", [dpp.var, dpp.std])
@pytest.mark.parametrize("values", [VALUES, pl.Series([3, 3]), pl.Series([0, 3] * 30)], ids=len)
def test_simulate_knows_the_law(ask, values, loss):
    expr = ask("x", 0, 3, ddof=len(values) % 3 % 2, **loss)
    (row,) = analysis.simulate(expr, pl.DataFrame({"x": values})).rows(named=True)
    answers, shares = law_of(expr.query, values, (INT,))
    answers = np.sqrt(answers) if ask is dpp.std else answers
    true = (values.var if ask is dpp.var else values.std)(ddof=expr.query.ddof)
    assert row["true_answer"] == pytest.approx(true)
    assert row["probability_true"] is None
    assert row["expected_error"] == pytest.approx(shares @ abs(answers - true), rel=2e-3)
    for name, share in (("answer_5", 0.05), ("answer_95", 0.95)):
        near = 0.003 * expr.query.ends[1]
        assert shares[answers <= row[name] + near].sum() >= share - 1e-3
        assert shares[answers < row[name] - near].sum() <= share + 1e-3
    assert row["error_unit"] == expr.query.error_unit
    assert row["counted"] == len(values)


def test_a_group_without_rows_has_no_variance_to_be_off_from():
    rows = pl.DataFrame({"g": [1], "x": [2]})
    query = dpp.protect(None).group_by({"g": [1, 2]}).agg(dpp.var("x", 0, 3, epsilon=3))
    found = analysis.simulate(query, rows)
    assert found["true_answer"].to_list() == [0, None]
    assert found["expected_error"].is_null().to_list() == [False, True]
