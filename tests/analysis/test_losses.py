"""`loss_for` against brute force: the loss that it returns is enough, and the next smaller one is not."""

import datetime as dt
import math
from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np
import polars as pl
import pytest

import dp_polars as dpp
from dp_polars import analysis
from dp_polars._accounting.claims import Claim
from dp_polars._accounting.terms import Loss
from dp_polars._engines.polars.engine import PolarsEngine
from dp_polars._statistics.measures import Total
from dp_polars.analysis import _losses
from tests.helpers import reference
from tests.helpers.first_above_laws import log_law
from tests.helpers.refusals import refused
from tests.registry import ASKS, COLUMNS, COUNTED, NUMBERS, WEIGHT, quantile_scores

GROUPS = ["a", "b", "c"]


def below(loss, digits=4):
    """The next smaller loss of so many digits."""
    unit = 10.0 ** (math.floor(math.log10(loss)) - digits + 1)
    return (
        float(f"{loss - unit:.{digits}g}") if round(loss / unit) > 10 ** (digits - 1) else float(f"{loss - unit / 10}")
    )


def only(result):
    types = {"output": pl.String, "loss": pl.Float64, "loss_unit": pl.String, "epsilon_of_all": pl.Float64}
    assert result.schema == types
    return result["loss"].item()


def loss_of(expr, rows, *, by=True, unit="p", **options):
    frame = dpp.protect(unit, **({} if unit is None else {"max_groups": 3, "max_rows": 10**6}))
    frame = frame.group_by({"g": GROUPS}) if by else frame
    arguments = {
        name: options.pop(name) for name in ("groups", "confidence", "within", "allow_private") if name in options
    }
    assert not options
    return only(analysis.loss_for(frame.agg(expr), rows, **arguments))


def assert_smallest(loss, chances_at, *, groups=0.95, confidence=0.95):
    """The share of the groups that reach the probability is enough at the loss, and not at the one before."""
    found = {None: [(20, False)], 0: [(1e-6, True)]}.get(loss) or [(loss, True), (below(loss), False)]
    for value, is_enough in found:
        chances = chances_at(Fraction(str(value)))
        reached = sum(chance >= confidence for chance in chances)
        assert (reached >= Fraction(str(groups)) * len(chances)) == is_enough, (value, chances)


def people(counts):
    """Rows of the groups, each of one person with a value: group -> value -> people."""
    rows = [(g, value) for g, values in counts.items() for value, n in values.items() for _ in range(n)]
    return pl.DataFrame(rows, schema=["g", "x"], orient="row").with_columns(p=pl.int_range(pl.len()))


COUNTS = {"a": {"u": 9, "v": 7, "w": 1}, "b": {"u": 30, "v": 60, "w": 55}, "c": {"w": 4}}
VALUES = ["u", "v", "w", "z"]


@pytest.mark.parametrize("within", [0, 2, 5])
@pytest.mark.parametrize("share", [0.3, 0.5, 0.95, 1])
@pytest.mark.parametrize("terms", [{"epsilon": 1}, {"rho": 1}, {"epsilon": 1, "mechanism": "exponential"}])
def test_a_mode_by_enumeration(within, share, terms):
    expr = dpp.mode("x", VALUES, **terms)
    loss = loss_of(expr, people(COUNTS), within=within, groups=share)
    claim = dpp.protect("p", max_groups=3).group_by({"g": GROUPS}).agg(expr)._asks[0].query.claim

    def chances(value):
        rate = Claim(Loss(value, claim.loss.unit), claim.mechanism, Fraction(1), claim.contributions, None).rate
        found = []
        for group in GROUPS:
            counts = [COUNTS[group].get(value, 0) for value in VALUES]
            law = reference.floats(reference.law(counts, rate=rate, mechanism=claim.mechanism, digits=30))
            found.append(law[[max(counts) - count <= within for count in counts]].sum())
        return found

    assert_smallest(loss, chances, groups=share)


DATES = [dt.date(2026, 1, 1) + dt.timedelta(days=3 * i) for i in range(20)]
ORDERED = {
    "a grid of integers": (range(20), 3, [2.9, 3, 3.1]),
    "a grid of floats": (dpp.grid(0, 1.9, step=0.1), 3, [0.29, 0.3, 0.31]),
    "dates": (DATES, 1, [2, 3, 3.5]),
    "points": (
        [float(v) for v in [0, 0.1, 0.2, 0.3, 0.4, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15.5]],
        3,
        [0.1, 1],
    ),
}


@pytest.mark.parametrize("name", ORDERED)
@pytest.mark.parametrize("alpha", [Fraction(1, 2), Fraction(1, 4)])
def test_a_quantile_by_enumeration(name, alpha):
    candidates, _, distances = ORDERED[name]
    values = pl.Series(list(candidates) if not hasattr(candidates, "take") else candidates.take(np.arange(20)))
    rng = np.random.default_rng(1)
    codes = {"a": rng.integers(0, 20, 31), "b": rng.integers(3, 8, 12), "c": np.array([4, 4, 4, 11])}
    rows = pl.concat([pl.DataFrame({"g": [g] * len(c), "x": values.gather(c)}) for g, c in codes.items()])
    rows = rows.with_columns(p=pl.int_range(pl.len()))
    query = dpp.protect("p", max_groups=3, max_rows=1).group_by({"g": GROUPS})
    query = query.agg(dpp.quantile("x", alpha, candidates, epsilon=1))
    (ask,) = query._asks
    exact = [Fraction(str(v)) for v in values] if values.dtype.is_numeric() else [(v - DATES[0]).days for v in values]
    for within in [0, *distances]:
        loss = only(analysis.loss_for(query, rows, within=within, groups=0.6))

        def chances(value, within=within):
            claim = replace(ask.query.claim, loss=Loss(value, "epsilon"))
            found = []
            for group in codes.values():
                scores = quantile_scores(np.bincount(group, minlength=20).tolist(), alpha.numerator, alpha.denominator)
                law = reference.floats(reference.law(scores, rate=claim.rate, mechanism=claim.mechanism, digits=30))
                true = scores.index(0)
                found.append(law[[abs(v - exact[true]) <= Fraction(str(within)) for v in exact]].sum())
            return found

        assert_smallest(loss, chances, groups=0.6)


def noise(rate, reach=20_000):
    """The law of discrete Laplace noise: values and probabilities."""
    x = np.arange(-reach, reach + 1)
    weights = np.exp(-abs(x) * float(rate))
    return x, weights / weights.sum()


def test_counts_by_enumeration():
    rows = people(COUNTS)
    for expr, r, numbers in ((dpp.n_people(epsilon=1), 3, 1), (dpp.value_counts("x", VALUES, epsilon=1), 3, 4)):
        for within in (0, 1, 30.5):
            query = dpp.protect("p", max_groups=3, max_rows_per_group=1).group_by({"g": GROUPS}).agg(expr)

            def chances(value, within=within, r=r, numbers=numbers):
                if numbers == 4:  # people may have several values in a group, so answers are rounded
                    return [(-math.expm1(-(math.floor(within) + 0.5) * value / r)) ** numbers] * 3
                x, law = noise(value / r)
                return [law[abs(x) <= within].sum() ** numbers] * 3

            assert_smallest(only(analysis.loss_for(query, rows, within=within)), chances)


def test_sums_are_in_the_columns_unit():
    rows = pl.DataFrame({"p": range(40), "x": [0.0, 2.5, 7.25, 50] * 10, "g": "a"})
    expr = dpp.sum("x", 0, 10, step=0.25, epsilon=1)
    loss = loss_of(expr, rows, within=20.1, unit=None)

    def chances(value):
        x, law = noise(value / 40)  # 40 steps of 0.25
        return [law[abs(x) <= 80].sum()] * 3

    assert_smallest(loss, chances)
    # In exact arithmetic: 0.3 is three steps of 0.1.
    expr = dpp.sum("x", 0, 1, step=0.1, epsilon=1)
    three, less, two = (loss_of(expr, rows, within=within, unit=None) for within in (0.3, 0.29, 0.2))
    assert three < less == two


@pytest.mark.parametrize("within", [0, 0.5, 2])
def test_means_by_enumeration(within):
    values = {"a": [0, 1, 2, 9, 10, 12], "b": [1] * 3, "c": [-3, 10]}
    rows = pl.DataFrame([(g, x) for g, all_of in values.items() for x in all_of], schema=["g", "x"], orient="row")
    loss = loss_of(dpp.mean("x", 0, 10, epsilon=1), rows, within=within, unit=None, confidence=0.8, groups=0.6)

    def chances(value):
        # A row moves the distances from 0 and from 10 by 10 in all.
        x, of_noise = noise(value / 10, 600)
        found = []
        for group in values.values():
            clipped = np.clip(group, 0, 10)
            first, second = clipped.sum() + x[:, None], (10 - clipped).sum() + x
            means = np.clip(5 + (first - second) / 2 / np.maximum((first + second) / 10, 1), 0, 10)
            found.append((np.outer(of_noise, of_noise) * (abs(means - clipped.mean()) <= within + 1e-9)).sum())
        return found

    assert_smallest(loss, chances, groups=0.6, confidence=0.8)


def test_the_chance_of_a_mean_is_that_of_releases():
    rng = np.random.default_rng(3)
    rows = pl.DataFrame({"x": rng.integers(0, 30, 300)})
    loss = only(analysis.loss_for(dpp.protect(None).agg(dpp.mean("x", 0, 30, epsilon=1)), rows, within=1))
    true = rows["x"].mean()
    copies = pl.concat([rows.with_columns(c=pl.lit(c)) for c in range(4000)])
    private = copies.lazy().dp.protect(None).group_by({"c": range(4000)})
    drawn = private.agg(dpp.mean("x", 0, 30, epsilon=loss)).release()
    near = (abs(drawn["x"] - true) <= 1).mean()
    assert abs(near - 0.95) < 0.02  # 5.8 standard deviations


@pytest.mark.slow
@pytest.mark.parametrize("terms", [{"epsilon": 1}, {"rho": 1}])
@pytest.mark.parametrize("k", [2, 6])
def test_top_k_by_releases(terms, k):
    rows = people({"a": dict(zip("abcdefgh", [90, 84, 71, 60, 52, 47, 35, 20], strict=True))})
    query = dpp.protect("p", max_groups=1)
    (unit,) = terms
    result = analysis.loss_for(query.agg(dpp.top_k("x", k, list("abcdefgh"), **terms)), rows, within=5)
    loss = result["loss"].item()
    assert loss == float(f"{loss:.2g}")
    assert result["loss_unit"].item() == unit
    truth = {"a": 90, "b": 84, "c": 71, "d": 60, "e": 52, "f": 47, "g": 35, "h": 20}
    ranked = sorted(truth.values(), reverse=True)
    copies = pl.concat([rows.with_columns(c=pl.lit(c)) for c in range(2000)])
    drawn = copies.group_by("c").agg(pl.col("x").dp.top_k(k, list("abcdefgh"), **{unit: loss}))["x"]
    missed = [
        max(best - truth[value] for best, value in zip(ranked, answer, strict=False)) for answer in drawn.to_list()
    ]
    assert 0.87 < np.mean([miss <= 5 for miss in missed]) < 0.995


@pytest.mark.parametrize(("within", "good"), [(0, [2]), (1, [2, 3, 5]), (3, [0, 2, 3, 5])])
def test_a_first_above_by_its_exact_law(within, good):
    """Of the counts 1, 0, 4, 5 and 0 the errors are 3, 4, 0, 0 and 4, and 1 of none; only the third is the true one."""
    rows = pl.DataFrame({"p": range(10), "x": [0] * 1 + [2] * 4 + [3] * 5})
    expr = dpp.first_above("x", range(5), threshold=4, epsilon=1)
    loss = loss_of(expr, rows, unit=None, by=False, within=within, groups=1, confidence=0.6)

    def chances(value):
        return [np.exp(log_law([[1, 0, 4, 5, 0]], 4, float(value) / 2, 1)[0])[good].sum()]

    assert_smallest(loss, chances, groups=1, confidence=0.6)


def test_lists_of_quantiles_by_releases():
    rng = np.random.default_rng(4)
    rows = pl.DataFrame({"x": rng.normal(50, 15, 500).round().clip(0, 100).astype(int)})
    alphas, candidates = [0.25, 0.5, 0.75], range(101)
    query = dpp.protect(None).agg(dpp.quantile("x", alphas, candidates, epsilon=1))
    loss = only(analysis.loss_for(query, rows, within=3))
    assert loss == float(f"{loss:.2g}")
    copies = pl.concat([rows.with_columns(c=pl.lit(c)) for c in range(2000)])
    drawn = np.array(copies.group_by("c").agg(pl.col("x").dp.quantile(alphas, candidates, epsilon=loss))["x"].to_list())
    true = np.sort(rows["x"].to_numpy())[[math.ceil(alpha * 500) - 1 for alpha in alphas]]
    assert 0.87 < (abs(drawn - true).max(axis=1) <= 3).mean() < 0.995


def test_the_rows_that_bounds_keep_are_the_truth():
    rows = pl.DataFrame({"p": [1] * 500 + [2, 3, 4], "x": ["u"] * 500 + ["v"] * 3})
    bound = dpp.protect("p", max_rows=2).agg(
        n=dpp.len(epsilon=1),
        by_rows=dpp.mode("x", ["u", "v"], counts="rows", epsilon=1),
        most=dpp.mode("x", ["u", "v"], epsilon=1),
    )
    loose = dpp.protect("p", max_rows=600).agg(dpp.mode("x", ["u", "v"], counts="rows", epsilon=1))
    n, by_rows, most = analysis.loss_for(bound, rows, within={"n": 10})["loss"]
    assert_smallest(n, lambda loss: [-math.expm1(-10.5 * loss / 2)])  # a count of people in part, rounded
    # Of person 1 two rows count, so that v wins by 1 of 5 rows; without that bound u would by 497, at R = 600.
    gap_1, gap_497, gap_2 = math.log(10) * 2, math.log(10) * 600 / 497, math.log(10) / 2
    assert by_rows == pytest.approx(gap_1, rel=1e-3)
    assert only(analysis.loss_for(loose, rows)) == pytest.approx(gap_497, rel=1e-3)
    assert most == pytest.approx(gap_2, rel=1e-3)


def test_groups_without_rows_have_no_true_answer_but_a_count():
    rows = people({"a": {"u": 5}, "b": {"u": 4, "v": 1}})
    mode = dpp.mode("x", ["u", "v"], epsilon=1)
    frame = dpp.protect("p", max_groups=2)
    (two, three), (half,) = (
        [only(analysis.loss_for(frame.group_by({"g": groups}).agg(mode), rows, groups=share)) for groups in some]
        for share, some in ((0.95, (["a", "b"], GROUPS)), (0.5, (GROUPS,)))
    )
    assert half < two == three  # "c" has no rows
    assert loss_of(mode, rows.clear()) is None
    nobody = rows.clear().with_columns(pl.col("x").cast(pl.Int64))
    quantile, mean, top = dpp.median("x", range(5), epsilon=1), dpp.mean("x", 0, 5, epsilon=1), [1, 2]
    for expr in (quantile, mean, dpp.top_k("x", 2, top, epsilon=1)):
        query = dpp.protect("p", max_groups=1, max_rows=1).group_by({"g": GROUPS}).agg(expr)
        assert only(analysis.loss_for(query, nobody, within=1)) is None
    assert loss_of(dpp.n_people(epsilon=1), rows.clear(), within=9) == loss_of(dpp.n_people(epsilon=1), rows, within=9)
    # With a constant candidate, that there are too few is an answer like any other.
    assert loss_of(dpp.mode("x", ["u", "v"], too_few=9, epsilon=1), rows.clear()) > 0


def test_every_loss_or_none():
    rows = people(COUNTS)
    assert loss_of(dpp.mode("x", ["u"], epsilon=1), rows) == 0
    assert loss_of(dpp.mode("x", VALUES, epsilon=1), rows, within=60) == 0
    assert loss_of(dpp.top_k("x", 2, VALUES, epsilon=1), rows, within=60) == 0
    numbers = pl.DataFrame({"p": range(20), "x": range(20), "g": "a"})
    assert loss_of(dpp.median("x", range(20), epsilon=1), numbers, within=20) == 0
    assert loss_of(dpp.mean("x", 0, 19, epsilon=1), numbers, within=19, unit=None) == 0
    # Where a million rows of a person may count, in parts, the noise of smaller losses does not fit into 64 bits.
    assert 0.001 < loss_of(dpp.mean("x", 0, 19, epsilon=1), numbers, within=19) < 0.003
    # At the smallest losses its noise does not fit into 64 bits, so it can't be asked for.
    wide = dpp.protect("p", max_rows=1000).agg(dpp.sum("x", 0, 2**30, epsilon=1))
    assert only(analysis.loss_for(wide, numbers, within=2**60)) == math.ceil(1000 / 2**20 * 1e7) / 1e7
    assert only(analysis.loss_for(wide, numbers, within=2**20)) is None
    # Even at 20: a gap of 1 at R = 3 times 20 people.
    twenty = dpp.protect("p", max_rows=20).agg(dpp.median("x", range(20), epsilon=1))
    assert only(analysis.loss_for(twenty, numbers.head(2))) is None
    last = loss_of(dpp.n_people(epsilon=1), rows, within=0, confidence=0.995)
    assert 15 < last < 20


def test_a_loss_from_which_on_the_answer_is_near():
    """In the column's unit, a larger loss may make a quantile worse: far candidates may have few rows between them."""
    rows = pl.DataFrame({"x": [0] * 45 + [100] * 6 + [1000] * 50})
    query = dpp.protect(None).agg(dpp.median("x", [*range(101), 1000], epsilon=1))
    loss = only(analysis.loss_for(query, rows, within=100))
    scores = [-11] * 100 + [0, -2]  # in halves of a row

    def chance(value):
        claim = replace(query._asks[0].query.claim, loss=Loss(Fraction(str(value)), "epsilon"))
        law = reference.floats(reference.law(scores, rate=claim.rate, mechanism=claim.mechanism, digits=30))
        return law[:101].sum()

    assert_smallest(loss, lambda value: [chance(value)])
    assert chance(1e-6) > 0.95  # by chance alone: one of 102 is far away
    assert all(chance(loss * factor) >= 0.95 for factor in (1, 1.1, 2, 5))


def test_share_and_within_are_exact_and_weights_have_a_unit():
    rows = people({"a": {"u": 5}, "b": {"u": 9}, "c": {"u": 20}})
    mode = dpp.mode("x", ["u", "v"], epsilon=1)
    by_share = [
        loss_of(mode, rows, groups=share) for share in (Fraction(1, 3), Fraction(34, 100), Fraction(2, 3), 0.67, 1)
    ]
    assert by_share == sorted(by_share)
    assert by_share[0] < by_share[1] == by_share[2] < by_share[3] == by_share[4]
    rows = pl.DataFrame({"p": range(60), "x": ["u", "v", "w"] * 20, "w": [5.0, 4.5, 1] * 20, "g": "a"})
    mode = dpp.mode("x", ["u", "v", "w"], counts=dpp.weights("w", max_weight=5, step=0.5), epsilon=1)
    # v has 10 less than u, w has 80.
    assert 0 < loss_of(mode, rows, within=10) == loss_of(mode, rows, within=79.9) < loss_of(mode, rows, within=9.9)
    assert loss_of(mode, rows, within=80) == 0


def test_the_unit_is_that_of_the_outputs_own_loss():
    query = dpp.protect("p", max_groups=3).group_by({"g": GROUPS})
    query = query.agg(a=dpp.n_people(rho=1), b=dpp.n_people(epsilon=1), c=dpp.mode("x", VALUES, rho=0.1))
    result = analysis.loss_for(query, people(COUNTS).lazy(), within={"a": 10, "b": 10})
    assert result["output"].to_list() == ["a", "b", "c"]
    assert result["loss_unit"].to_list() == ["rho", "epsilon", "rho"]
    rho = result["loss"][0]
    x = np.arange(-2000, 2001)
    for value, is_enough in ((rho, True), (below(rho), False)):
        law = np.exp(-(x**2) * (value / 3))  # variance 3/(2·rho)
        assert (law[abs(x) <= 10].sum() / law.sum() >= 0.95) == is_enough
    assert result.equals(analysis.loss_for(query, people(COUNTS), within={"a": 10, "b": 10, "c": 0}))


def test_what_all_need_together_is_said_with_each():
    query = dpp.protect("p", max_groups=3).group_by({"g": GROUPS})

    def asked(a, b, c):
        return query.agg(a=dpp.n_people(rho=a), b=dpp.n_people(epsilon=b), c=dpp.mode("x", VALUES, rho=c))

    result = analysis.loss_for(asked(1, 1, 0.1), people(COUNTS), within=10)
    (whole,) = result["epsilon_of_all"].unique()
    assert f"ε = {whole:.4g} at δ = 10⁻⁶" in asked(*result["loss"]).explain()["note"][0]
    # An output for which any loss will do adds nothing, and of one without a loss there is no whole.
    free = analysis.loss_for(asked(1, 1, 0.1), people(COUNTS), within={"a": 10, "b": 10, "c": 100})
    assert free["loss"][2] == 0 < free["epsilon_of_all"][2] < whole
    summed = dpp.protect("p", max_groups=3, max_rows=1).group_by({"g": GROUPS})
    none = analysis.loss_for(summed.agg(dpp.n_people(), y=dpp.sum("y", 0, 9**9)), people(COUNTS).with_columns(y=0))
    assert none["epsilon_of_all"].to_list() == [None] * 2
    nothing = analysis.loss_for(asked(1, 1, 0.1), people(COUNTS), within=10**9)
    assert nothing["epsilon_of_all"].to_list() == [0.0] * 3


def test_what_is_refused():
    rows = people(COUNTS)
    query = dpp.protect("p", max_groups=3).group_by({"g": GROUPS}).agg(n=dpp.n_people(epsilon=1))
    keys = dpp.protect("p", max_groups=1).keys("g", epsilon=1, delta=1e-8)
    asked = partial(analysis.loss_for, query, rows)
    refused(TypeError, "query must be a PrivateQuery, got", analysis.loss_for, dpp.n_people(epsilon=1), rows)
    refused(TypeError, "query must be one for answers, got one for keys", analysis.loss_for, keys, rows)
    refused(TypeError, "rows must be a DataFrame or a LazyFrame, got", analysis.loss_for, query, {"g": []})
    refused(ValueError, r"groups must be above 0 and at most 1, got 1\.1", asked, groups=1.1)
    refused(ValueError, "groups must be above 0 and at most 1, got 0", asked, groups=0)
    refused(TypeError, "groups must be a number", asked, groups="all")
    for probability in (0, 1, 1.5):
        refused(ValueError, "confidence must lie strictly between 0 and 1", asked, confidence=probability)
    refused(ValueError, "within must be 0 or more, got -1", asked, within=-1)
    refused(ValueError, "within must be finite", asked, within=float("nan"))
    refused(ValueError, r"within\['n'\] must be 0 or more, got -2", asked, within={"n": -2})
    refused(TypeError, r"within\['n'\] must be a number", asked, within={"n": "a few"})
    names = r"within must name outputs of the query, got \['m'\] where they are \['n'\]"
    refused(ValueError, names, asked, within={"m": 1})


def test_no_rows_are_kept_and_nothing_is_charged():
    rows = people(COUNTS)
    budget = dpp.Budget(epsilon=1, name="nothing is charged")
    query = rows.dp.protect("p", max_groups=3, budget=budget).group_by({"g": GROUPS}).agg(dpp.n_people(epsilon=1))
    with pytest.raises(ValueError, match="loss_for must be given public or synthetic rows, got the very ones"):
        analysis.loss_for(query, rows)
    assert only(analysis.loss_for(query, rows, allow_private=True, within=9)) == only(
        analysis.loss_for(query, people(COUNTS), within=9)
    )
    assert budget.spent == 0


@pytest.mark.parametrize("name", [*COUNTED, *NUMBERS])
@pytest.mark.parametrize("kind", ["Boolean", "Int64", "Float64", "wide Decimal", "Enum", "Datetime in UTC", "Duration"])
def test_every_statistic_as_simulate_says(kind, name):
    column, known = COLUMNS[kind], {**ASKS, **NUMBERS}[name]
    values = pl.Series("x", (column.values * 40)[:40] + column.values[:1] * 12 + [None], dtype=column.dtype)
    rows = pl.DataFrame(
        {"p": range(53), WEIGHT: [1, 2, 3, 0, 2] * 10 + [1] * 3, "g": ["a"] * 40 + ["b"] * 13}
    ).with_columns(values)
    frame = dpp.protect("p", max_rows=1).group_by({"g": GROUPS})
    for given in known.about(column):
        query = frame.agg(getattr(pl.col("x").dp, name)(**given, epsilon=1))
        loss = only(analysis.loss_for(query, rows, groups=1, confidence=0.9))

        def chances(value, query=query):
            return analysis.simulate(query, rows, losses=[value])["probability_true"].drop_nulls().to_list()

        at_loss = chances({None: 20, 0: 1e-6}.get(loss, loss))
        if not at_loss:  # of means, which have no such probability
            assert loss is None or loss > 0
        elif name == "top_k" or isinstance(given.get("quantile"), list):  # by draws
            assert loss is None or min(at_loss) > 0.75
        else:
            assert_smallest(loss, chances, groups=1, confidence=0.9)


class WithoutALaw(Total):
    """A mean that is not known as one."""

    def __init__(self, mean):
        self.mean, self.terms = mean, mean.terms

    def __str__(self):
        return "number without a law"

    def with_terms(self, terms):
        return type(self)(self.mean.with_terms(terms))

    def noise(self, *columns):
        return self.mean.noise(*columns)

    def bits_of_parts(self, *columns):
        return self.mean.bits_of_parts(*columns)

    def named(self, totals, *columns):
        return self.mean.named(totals, *columns)


WithoutALaw.__abstractmethods__ = frozenset()


def test_numbers_without_a_law_are_drawn():
    rows = pl.DataFrame({"x": np.random.default_rng(3).integers(0, 30, 300)})
    query = dpp.protect(None).agg(dpp.mean("x", 0, 30, epsilon=1))
    engine = PolarsEngine.of(rows.lazy())
    work = query._request.bind(engine)
    histograms, (output,) = engine.prepare_histograms(work)(), work.outputs
    found = {}
    for statistic in (output.query, WithoutALaw(output.query)):
        chances, digits = _losses._chances(statistic, output.types, histograms, Fraction(1))
        assert _losses._has_truth(statistic, output.types, histograms).tolist() == [True]
        found[digits] = _losses._smallest_loss(output.query.claim, chances, np.array([0]), Fraction(1), 0.95, digits)
        assert chances(replace(output.query.claim, loss=Loss(Fraction(1, 10**6), "epsilon"))).item() < 0.3
    assert found.keys() == {2, 4}
    assert 0.7 < found[2] / found[4] < 1.4
