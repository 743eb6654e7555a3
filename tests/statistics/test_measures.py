"""Numbers with noise: bounds of the noise, intervals, clamps and value counts."""

import math
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from flint import arb, ctx

import dp_polars as dpp
from dp_polars._accounting.claims import Claim
from dp_polars._accounting.terms import Contributions, Loss
from dp_polars._mechanisms.histograms import Histogram
from dp_polars._mechanisms.noise import LARGEST_VALUE, noise_bound
from dp_polars._statistics.measures import BETA, checked, noisy, totals_of
from tests.helpers.alone import alone

SCALES = [Fraction(1, 100), Fraction(1, 3), Fraction(7, 10), Fraction(1), Fraction(5, 2), Fraction(40), Fraction(4095)]
SCALES += [Fraction(4097), Fraction(123_457, 3), Fraction(10**6)]


def claim_of(scale, mechanism):
    """The claim whose noise has this scale, or standard deviation."""
    if mechanism == "discrete_laplace":
        return Claim(Loss(1 / scale, "epsilon"), mechanism, Fraction(1), Contributions(1, 1), "add_or_remove_one")
    loss = Loss(1 / (2 * scale**2), "rho")
    return Claim(loss, mechanism, Fraction(1), Contributions(1, 1), "add_or_remove_one")


def tail(scale, mechanism, bound):
    """P(|noise| > bound), in many digits."""
    s = arb(scale.numerator) / scale.denominator
    if mechanism == "discrete_laplace":
        q = (-1 / s).exp()
        return 2 * q ** (bound + 1) / (1 + q)
    if scale > 5000:
        # Poisson summation: the sum over integers from n on is the integral from n − 1/2, but for f′/24 and less.
        at = arb(bound) + arb(1) / 2
        return (at / (s * arb(2).sqrt())).erfc() * (1 + arb(0, 9 * float(1 / scale**2)))
    last = math.ceil(40 * scale) + 5
    above = sum(((-arb(n * n) / (2 * s * s)).exp() for n in range(bound + 1, last)), arb(0))
    inside = sum(((-arb(n * n) / (2 * s * s)).exp() for n in range(1, bound + 1)), arb(0))
    return 2 * above / (1 + 2 * above + 2 * inside)


@pytest.mark.parametrize("beta", [0.05, 0.025, 1e-6, 1e-9, 1e-12, 1e-15])
@pytest.mark.parametrize("mechanism", ["discrete_laplace", "discrete_gaussian"])
@pytest.mark.parametrize("scale", [scale for scale in SCALES if scale != 4095])
def test_the_bound_of_the_noise_is_the_smallest(scale, mechanism, beta):
    bound = noise_bound(claim_of(scale, mechanism), beta)
    with ctx.workprec(128):
        assert tail(scale, mechanism, bound) <= beta
        assert bound == 0 or tail(scale, mechanism, bound - 1) > beta


@pytest.mark.parametrize("relation", ["add_or_remove_one", "replace_one"])
@pytest.mark.parametrize("scale", [Fraction(1, 20), Fraction(1, 4), Fraction(1, 2), 1, 7, Fraction(100, 3), 6000])
@pytest.mark.parametrize(("unit", "mechanism"), [("epsilon", "discrete_laplace"), ("rho", "discrete_gaussian")])
def test_error_95_is_the_least_that_noise_is_at_most_with_95_percent(unit, mechanism, scale, relation):
    """P(|noise| <= error_95) is 95 % at least, and that of one step less is not: "nearer than" would be false."""
    loss = {unit: 1 / Fraction(scale) if unit == "epsilon" else 1 / (2 * Fraction(scale) ** 2)}
    steps = {"rows": 1, "values": 1, "sum": 3, "floats": Fraction(1, 4), "counts": 1}
    query = dpp.protect(None, neighboring_relation=relation).agg(
        rows=dpp.len(**loss),
        values=dpp.count("x", **loss),
        sum=dpp.sum("x", 0, 9, step=3, **loss),
        floats=dpp.sum("x", -1, 0.5, step=0.25, **loss),
        counts=dpp.value_counts("x", [1, 2], **loss),
    )
    query = alone(query)
    for ask, error in zip(query._asks, query.explain()["error_95"], strict=True):
        step = steps[ask.name]
        within, in_steps = Fraction(error) / step, 1 / (ask.query.claim.rate * step)
        assert within.denominator == 1
        with ctx.workprec(128):
            assert tail(in_steps, mechanism, int(within)) <= 0.05
            assert within == 0 or tail(in_steps, mechanism, int(within) - 1) > 0.05
    if relation == "add_or_remove_one":
        assert [1 / ask.query.claim.rate for ask in query._asks] == [scale, scale, scale * 9, scale, scale]


@pytest.mark.parametrize("mechanism", ["discrete_laplace", "discrete_gaussian"])
def test_hardly_any_noise_has_a_bound(mechanism):
    for scale in (Fraction(1, 2**900), Fraction(1, 10**6), Fraction(1, 64)):
        assert noise_bound(claim_of(scale, mechanism), 1e-15) == 0


GROUPS = 40_000


@pytest.mark.parametrize("loss", [{"epsilon": 0.3}, {"rho": 0.02}], ids=str)
def test_ranges_cover_the_true_number_as_often_as_they_say(loss):
    per_group = 30
    frame = pl.DataFrame({"g": np.repeat(np.arange(GROUPS), per_group), "x": np.tile(np.arange(per_group), GROUPS)})
    query = (
        frame.dp.protect(None)
        .group_by({"g": range(GROUPS)})
        .agg(
            rows=dpp.len(**loss),
            values=dpp.count("x", **loss),
            sum=dpp.sum("x", 0, 29, **loss),
            tenths=dpp.sum(pl.col("x") / 10, 0, 3, step=0.1, **loss),
            mean=dpp.mean("x", 0, 29, **loss),
            counts=dpp.value_counts("x", [3, 99], **loss),
        )
    )
    found = alone(query).release(intervals=True)
    assert found.columns == [
        "g",
        *(
            name + end
            for name in ("rows", "values", "sum", "tenths", "mean", "counts")
            for end in ("", "_low", "_high")
        ),
    ]
    truth = {"rows": 30, "values": 30, "sum": 435, "tenths": 43.5, "mean": 14.5}
    error = 5 * math.sqrt(0.05 * 0.95 / GROUPS)  # 5 standard deviations
    for name, true in truth.items():
        low, high = found[f"{name}_low"], found[f"{name}_high"]
        assert ((low <= found[name]) & (found[name] <= high)).all()
        covered = ((low <= true + 1e-9) & (true - 1e-9 <= high)).mean()
        assert 0.95 - error <= covered, (name, covered)
        assert covered <= (0.999 if name == "mean" else 0.97), (name, covered)
    ends = [
        found["counts" + end].explode().struct.field("count").to_numpy().reshape(-1, 2) for end in ("", "_low", "_high")
    ]
    for n, true in enumerate((1, 0)):
        covered = ((ends[1][:, n] <= true) & (true <= ends[2][:, n])).mean()
        assert 0.95 - error <= covered <= 0.97
    # A range is the released number and the noise's law, and nothing else.
    for name in ("rows", "values", "sum"):
        assert found.select(pl.col(f"{name}_high") - pl.col(name)).n_unique() == 1
        assert found.select(pl.col(name) - pl.col(f"{name}_low")).n_unique() == 1


def test_a_range_of_a_mean_of_hardly_anybody_is_mostly_everything():
    frame = pl.DataFrame({"x": [4] * GROUPS, "g": range(GROUPS)})
    query = frame.dp.protect(None).group_by({"g": range(GROUPS)}).agg(m=dpp.mean("x", 0, 10, epsilon=0.001))
    found = query.release(intervals=True)
    assert found.select((pl.col("m_low") <= pl.col("m")) & (pl.col("m") <= pl.col("m_high"))).to_series().all()
    assert found.select(((pl.col("m_low") == 0) & (pl.col("m_high") == 10)).mean()).item() > 0.8
    assert 0.945 < found.select(pl.lit(4).is_between("m_low", "m_high").mean()).item() < 0.985


def test_totals_are_clamped_to_62_bits(monkeypatch):
    query = dpp.len(epsilon=1).query
    totals = np.array([2**63 - 1, -(2**63), 5])
    found = noisy(totals, query.claim)
    assert 2**62 - 1000 < found[0] <= LARGEST_VALUE
    assert -LARGEST_VALUE <= found[1] < 1000 - 2**62
    drawn = query.drawn([Histogram(np.zeros(3, int), totals, np.ones(3, int))])
    answers, low, high = query.presented(drawn, BETA)
    assert answers.dtype == low.dtype == high.dtype == pl.Int64


def test_noise_that_does_not_fit_is_refused_however_a_claim_is_made():
    query = dpp.len(epsilon=Fraction(1, 2**50)).query
    with pytest.raises(ValueError, match=r"scale of at most 2\*\*50"):
        dpp.len(epsilon=Fraction(1, 2**50 + 1))
    with pytest.raises(ValueError, match=r"scale of at most 2\*\*50"):
        query.under(Contributions(2, 1), "add_or_remove_one")
    with pytest.raises(ValueError, match=r"scale of at most 2\*\*50"):
        query.with_loss(Fraction(1, 2**51))
    assert checked(query) is query


@pytest.mark.parametrize(
    ("dtype", "candidates", "values"),
    [
        (pl.Int8, [3, 1], [1, 1, 3, 5, None]),
        (pl.Decimal(10, 2), [3, 1], [1, 1, 3, 5, None]),
        (pl.String, ["b", "a"], ["a", "a", "b", "c", None]),
        (pl.Enum(["a", "b", "c"]), ["b", "a"], ["a", "a", "b", "c", None]),
        (pl.Categorical, ["b", "a"], ["a", "a", "b", "c", None]),
        (pl.Boolean, [True, False], [False, False, True, None, None]),
    ],
    ids=str,
)
def test_value_counts_are_in_the_order_of_the_candidates(dtype, candidates, values):
    frame = pl.DataFrame({"g": [1] * 5, "x": pl.Series(values, dtype=dtype)})
    expr = dpp.value_counts("x", candidates, epsilon=10**9)
    out = pl.List(pl.Struct({"value": pl.String if dtype == pl.Categorical else dtype, "count": pl.Int64}))
    assert frame.lazy().select(expr).collect_schema()["x"] == out
    private = frame.dp.protect(None).group_by({"g": [0, 1]}).agg(expr).release()
    assert private["x"].dtype == out
    expected = [{"value": candidates[0], "count": 1}, {"value": candidates[1], "count": 2}]
    assert private["x"].to_list() == [[{**one, "count": 0} for one in expected], expected]
    assert frame.select(expr)["x"].to_list() == [expected]
    assert frame.clear().group_by("g").agg(expr)["x"].to_list() == []
    assert frame.group_by("g").agg(expr)["x"].to_list() == [expected]


def test_the_ranges_use_95_percent():
    assert BETA == 0.05


def test_groups_without_rows_stand_between_the_others():
    histogram = Histogram(np.zeros(2, np.int64), np.array([5, 7]), np.array([0, 1, 0, 1, 0]))
    assert totals_of(histogram).tolist() == [0, 5, 0, 7, 0]
    frame = pl.DataFrame({"g": [2, 2, 4], "x": [1, 1, 1]})
    released = frame.dp.protect(None).group_by({"g": range(1, 6)}).agg(n=dpp.len(epsilon=10**6)).release()
    assert released["n"].to_list() == [0, 2, 0, 1, 0]
