"""`simulate` of counts, sums, means and value counts: against enumeration of the noise, and against many releases."""

import datetime as dt
import itertools
import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import polars as pl
import pytest

import dp_polars as dpp
from dp_polars import analysis
from dp_polars._accounting.claims import Claim
from dp_polars._accounting.terms import Contributions, Loss, Terms
from dp_polars._frames.protect import protect
from dp_polars._statistics.averages import Average
from dp_polars._statistics.measures import Count, Multiple, Total
from dp_polars.analysis._laws import NoiseLaw
from dp_polars.analysis._simulated import law_of_total
from tests.helpers.alone import alone
from tests.helpers.refusals import refused
from tests.statistical.goodness import fits

DRAWS = 100_000


def enumerated(rate, mechanism):
    """The law of the noise by its formula: values, probabilities."""
    scale = float(1 / rate)
    reach = math.ceil(45 * scale) + 2
    x = np.arange(-reach, reach + 1)
    weights = np.exp(-abs(x) / scale if mechanism == "discrete_laplace" else -((x / scale) ** 2) / 2)
    return x, weights / weights.sum()


def at_share(values, law, share):
    order = np.argsort(values, kind="stable")
    upto = np.cumsum(law[order])
    return values[order][np.searchsorted(upto, share)]


def rounded_laplace(scale):
    """The law of the whole number that is nearest to continuous noise."""
    x = np.arange(-60 * scale, 60 * scale + 1)
    law = np.exp(-abs(x) / scale) * math.sinh(0.5 / scale)
    law[x == 0] = -math.expm1(-0.5 / scale)
    return x, law


def claim(scale, mechanism):
    unit = "epsilon" if mechanism == "discrete_laplace" else "rho"
    value = 1 / Fraction(scale) if unit == "epsilon" else 1 / (2 * Fraction(scale) ** 2)
    return Claim(Loss(value, unit), mechanism, Fraction(1), Contributions(1, 1), "add_or_remove_one")


@pytest.mark.parametrize("mechanism", ["discrete_laplace", "discrete_gaussian"])
@pytest.mark.parametrize("scale", [Fraction(1, 1000), Fraction(1, 3), 1, 7, 300])
def test_the_law_of_noise_by_enumeration(scale, mechanism):
    made = claim(scale, mechanism)
    x, law = enumerated(made.rate, mechanism)
    noise = NoiseLaw(made)
    some = np.array([-9, -1, 0, 1, 2, 30])
    assert noise.probability(some) == pytest.approx([law[x == each].sum() for each in some], rel=1e-10, abs=1e-15)
    assert noise.up_to(some.astype(float)) == pytest.approx([law[x <= each].sum() for each in some], rel=1e-10)
    real = np.array([-30.0, -2.5, -1, 0, 0.25, 1, 7.75])
    means = [(law * np.maximum(x - each, 0)).sum() for each in real]
    assert noise.excess(real) == pytest.approx(means, rel=1e-10, abs=1e-15)
    assert noise.error(some) == pytest.approx([(law * abs(x + each)).sum() for each in some], rel=1e-10, abs=1e-15)


@pytest.mark.parametrize("mechanism", ["discrete_laplace", "discrete_gaussian"])
@pytest.mark.parametrize("scale", [Fraction(1, 3), 1, 7])
def test_the_law_of_rounded_noise_by_enumeration(scale, mechanism):
    bits = 12
    made = claim(scale * 2**bits, mechanism)
    parts, law = enumerated(made.rate, mechanism)
    x, noise = (parts + 2 ** (bits - 1)) >> bits, NoiseLaw(made, bits)
    some = np.array([-4, -1, 0, 1, 2, 5])
    assert noise.probability(some) == pytest.approx([law[x == each].sum() for each in some], rel=0.01, abs=1e-12)
    assert noise.up_to(some.astype(float)) == pytest.approx([law[x <= each].sum() for each in some], rel=0.01)
    assert noise.error(some) == pytest.approx([(law * abs(x + each)).sum() for each in some], rel=0.002)
    # The negative control: noise that is drawn in whole numbers has another law.
    there, here = (of.probability(np.array([0])).item() for of in (NoiseLaw(claim(scale, mechanism)), noise))
    assert abs(there / here - 1) > 5e-4


@pytest.mark.parametrize("scale", [5_000, 10**6, 2**45])
def test_the_law_of_wide_noise_by_closed_forms(scale):
    q = math.exp(-1 / scale)
    at = np.array([0.0, scale // 3, 2 * scale])
    laplace = NoiseLaw(claim(scale, "discrete_laplace"))
    assert laplace.probability(at) == pytest.approx(math.tanh(0.5 / scale) * q**at, rel=1e-7)
    assert laplace.up_to(at) == pytest.approx(1 - q ** (at + 1) / (1 + q), rel=1e-7)
    tail = -math.expm1(-1 / scale)
    assert laplace.error(at.astype(np.int64)) == pytest.approx(at + 2 * q ** (at + 1) / ((1 + q) * tail), rel=1e-7)
    gauss = NoiseLaw(claim(scale, "discrete_gaussian"))
    z = at / scale
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    beyond = np.array([math.erfc(each / math.sqrt(2)) / 2 for each in z])
    assert gauss.probability(at) == pytest.approx(density / scale, rel=1e-7)
    assert gauss.error(at.astype(np.int64)) == pytest.approx(at + 2 * scale * (density - z * beyond), rel=1e-6)
    assert gauss.up_to(at - 0.5) == pytest.approx(1 - beyond, rel=1e-7)


ROWS = pl.DataFrame({"x": [3.0, 7.5, 2.25, -4.0, 9.0, None, math.nan, 0.5]})
MECHANISMS = [{"epsilon": 0.8}, {"rho": 0.3}, {"rho": 0.3, "mechanism": "discrete_laplace"}]
# Name -> expression, its true answer, its step.
ONE_DRAW = {
    "len": (lambda **loss: dpp.len(**loss), 8, 1),
    "count": (lambda **loss: dpp.count("x", **loss), 6, 1),
    "sum": (lambda **loss: dpp.sum("x", -1, 8, step=0.25, **loss), 20.25, 0.25),
}


@pytest.mark.parametrize("loss", MECHANISMS)
@pytest.mark.parametrize("kind", ONE_DRAW)
def test_counts_and_sums_agree_with_enumeration_and_with_draws(kind, loss):
    ask, true, step = ONE_DRAW[kind]
    expr = ask(**loss)
    (row,) = analysis.simulate(expr, ROWS).rows(named=True)
    made = expr.query.noise(*([pl.Float64()] if kind == "sum" else []))[0]
    x, law = enumerated(made.rate, made.mechanism)
    assert row["true_answer"] == true
    assert row["probability_true"] == pytest.approx(law[x == 0].item(), rel=1e-11)
    assert row["expected_error"] == pytest.approx((law * abs(x)).sum() * step, rel=1e-11)
    assert row["expected_rank_error"] is None
    ends = [true + step * at_share(x, law, share) for share in (0.05, 0.95)]
    assert [row["answer_5"], row["answer_95"]] == pytest.approx(ends)
    assert row["error_unit"] == ("the column's unit" if kind == "sum" else "rows")
    assert (row["counted"], row["left_out"], row["ordered"]) == (8 if kind == "len" else 6, 0, True)
    many = pl.concat([ROWS] * DRAWS).with_columns(g=pl.int_range(pl.len()) // 8)
    drawn = many.group_by("g").agg(a=expr)["a"].to_numpy()
    steps = np.rint((drawn - true) / step)

    def agrees(simulated, scale):
        """Whether the draws lie inside the simulated range as often as the law at this scale has it."""
        ends = [round((simulated[name] - true) / step) for name in ("answer_5", "answer_95")]
        x, law = enumerated(1 / Fraction(scale), made.mechanism)
        share = law[(x >= ends[0]) & (x <= ends[1])].sum()
        assert 0.9 <= share < 0.98
        within = int(((steps >= ends[0]) & (steps <= ends[1])).sum())
        return fits(np.array([within, DRAWS - within]), np.array([share, 1 - share]))

    assert agrees(row, 1 / made.rate)
    own = expr.query.claim.loss.value
    for factor in (Fraction(7, 10), Fraction(13, 10)):
        (other,) = analysis.simulate(expr, ROWS, losses=[own * factor]).rows(named=True)
        other_rate = replace(made, loss=Loss(own * factor, made.loss.unit)).rate
        assert not agrees(other, 1 / other_rate)


@pytest.mark.parametrize("loss", [{"epsilon": 3}, {"rho": 0.7}])
@pytest.mark.parametrize("values", [[3.0, 7.5, 2.25, -4.0, 9.0], [8.0] * 40, [1.0]])
def test_means_agree_with_enumeration_and_with_draws(values, loss):
    low, high, step = -1, 8, 0.25
    rows = pl.DataFrame({"x": values})
    expr = dpp.mean("x", low, high, step=step, **loss)
    (row,) = analysis.simulate(expr, rows).rows(named=True)
    clipped = np.clip(values, low, high)
    true = clipped.mean()
    (x, of_sum), (y, of_count) = (enumerated(each.rate, each.mechanism) for each in expr.query.noise(pl.Float64()))
    # The noise of the sum is in halves of a step.
    sums = (clipped - 3.5).sum() + step / 2 * x
    means = np.clip(3.5 + sums[:, None] / np.maximum(len(values) + y, 1), low, high).ravel()
    law = (of_sum[:, None] * of_count).ravel()
    assert (row["true_answer"], row["probability_true"]) == (pytest.approx(true), None)
    assert row["expected_error"] == pytest.approx((law * abs(means - true)).sum(), rel=1e-6)
    for name, share in (("answer_5", 0.05), ("answer_95", 0.95)):
        assert law[means <= row[name] + 1e-9].sum() >= share - 1e-6
        assert law[means < row[name] - 1e-6].sum() <= share + 1e-6
    assert (row["counted"], row["error_unit"], row["ordered"]) == (len(values), "the column's unit", True)
    many = pl.concat([rows] * 20_000).with_columns(g=pl.int_range(pl.len()) // len(values))
    errors = abs(many.group_by("g").agg(a=expr)["a"].to_numpy() - true)
    assert abs(errors.mean() - row["expected_error"]) < 5 * errors.std() / math.sqrt(20_000)


def test_a_mean_with_much_noise_is_close():
    # The noisy counts are added up in stretches here.
    expr = dpp.mean("x", 0, 10, step=1, epsilon=0.004)
    rows = pl.DataFrame({"x": [2] * 3_000 + [7] * 1_000})
    (row,) = analysis.simulate(expr, rows).rows(named=True)
    drawn = pl.concat([rows.with_columns(g=g) for g in range(2_000)]).group_by("g").agg(a=expr)["a"].to_numpy()
    errors = abs(drawn - row["true_answer"])
    assert abs(errors.mean() - row["expected_error"]) < 5 * errors.std() / math.sqrt(2_000)
    for name, share in (("answer_5", 0.05), ("answer_95", 0.95)):
        assert abs((drawn <= row[name]).mean() - share) < 5 * math.sqrt(share * (1 - share) / 2_000)


def test_value_counts_have_one_row_for_a_group():
    rows = pl.DataFrame({"g": [1, 1, 1, 2], "x": ["a", "a", "b", "z"]})
    expr = dpp.value_counts("x", ["a", "b", "c"], epsilon=0.5)
    first, second = analysis.simulate(expr, rows, by="g").rows(named=True)
    x, law = enumerated(Fraction(1, 2), "discrete_laplace")
    assert [each["count"] for each in first["true_answer"]] == [2, 1, 0]
    assert [each["value"] for each in first["answer_5"]] == ["a", "b", "c"]
    assert first["probability_true"] == pytest.approx(law[x == 0].item() ** 3)
    assert first["expected_error"] == pytest.approx((law * abs(x)).sum())
    bound = at_share(x, law, 0.95)
    assert [each["count"] for each in first["answer_95"]] == [2 + bound, 1 + bound, bound]
    assert (first["counted"], first["error_unit"], first["ordered"]) == (3, "rows", False)
    assert [each["count"] for each in second["true_answer"]] == [0, 0, 0]


def people_query(**bounds):
    return alone(
        protect("p", **bounds)
        .group_by({"g": ["u", "v"]})
        .agg(
            people=dpp.n_people(epsilon=1),
            visits=dpp.len(epsilon=1),
            cost=pl.col("x").dp.sum(0, 10, epsilon=1),
            stay=pl.col("x").dp.mean(0, 10, epsilon=1),
            each=pl.col("x").dp.value_counts([1, 2, 3], epsilon=1),
            middle=pl.col("x").dp.median(range(11), epsilon=1),
        )
    )


def test_bounds_drop_rows_and_people():
    # Everybody has one value, so that it does not matter which rows are dropped.
    public = pl.DataFrame({"p": [1] * 5 + [2] * 2 + [3], "g": ["u"] * 8, "x": [1] * 5 + [2] * 2 + [3]})
    result = analysis.simulate(people_query(max_groups=2, max_rows_per_group=2), public)
    u = {row["output"]: row for row in result.filter(g="u").rows(named=True)}
    assert [*u] == ["people", "visits", "cost", "stay", "each", "middle"]
    counted = [(row["counted"], row["left_out"]) for row in u.values()]
    assert counted == [(3, 0), (5, 3), (5, 3), (5, 3), (3, 0), (5, 3)]
    answers = {name: row["true_answer"] for name, row in u.items()}
    stay = answers.pop("stay")
    assert float(stay) == 12 / 8
    assert answers == {"people": "3", "visits": "8", "cost": "12", "each": "1: 1, 2: 1, 3: 1", "middle": "1"}
    # Three rows are missing; the noise has scale 4, for a person counts for four of them. Answers are rounded.
    x, law = rounded_laplace(4)
    assert u["visits"]["expected_error"] == pytest.approx((law * abs(x - 3)).sum())
    assert u["visits"]["probability_true"] == pytest.approx(law[x == 3].item())
    x, law = rounded_laplace(40)
    assert u["cost"]["expected_error"] == pytest.approx((law * abs(x - 3)).sum())
    v = {row["output"]: row for row in result.filter(g="v").rows(named=True)}
    answers = ["0", "0", "0", None, "1: 0, 2: 0, 3: 0", None]
    assert [row["true_answer"] for row in v.values()] == answers
    assert v["stay"]["expected_error"] is None


@pytest.mark.parametrize("nobody", [None, math.nan])
def test_rows_without_a_person_are_left_out(nobody):
    people = pl.Series([1.0, 1.0, 2.0, nobody, nobody], strict=False)
    public = pl.DataFrame({"p": people, "g": ["u"] * 5, "x": [1, 1, 2, 3, 3]})
    result = analysis.simulate(people_query(max_groups=2, max_rows_per_group=2), public).filter(g="u")
    assert result["output"].to_list() == ["people", "visits", "cost", "stay", "each", "middle"]
    found = result.select("counted", "left_out", "true_answer").rows()
    assert found[:3] == [(2, 2, "4"), (3, 2, "5"), (3, 2, "10")]
    assert found[3:] == [(3, 2, "2.0"), (2, 2, "1: 1, 2: 1, 3: 2"), (3, 2, "2")]


def test_small_groups_have_the_largest_errors_of_quantiles():
    sizes = [29, 300, 3_000]
    rng = np.random.default_rng(2)
    rows = pl.concat([pl.DataFrame({"g": [n] * n, "x": rng.normal(50, 10, n).round()}) for n in sizes])
    result = analysis.simulate(dpp.median("x", range(121), epsilon=0.02), rows, by="g").sort("g")
    errors, ranks = result["expected_error"].to_list(), result["expected_rank_error"].to_list()
    assert errors == sorted(errors, reverse=True)
    assert ranks[0] < ranks[1]  # which is why ranks are not what to look at


def test_distances_of_quantiles():
    for candidates, unit, distances in (
        ([0, 1, 2, 50], "the column's unit", [2, 1, 0, 48]),
        ([0.5, 2.0, 2.5], "the column's unit", [1.5, 0, 0.5]),
        ([dt.date(2024, 1, day) for day in (1, 2, 9)], "days", [1, 0, 7]),
        ([dt.date(2024, 1, day) for day in (1, 2, 3)], "days", [1, 0, 1]),
        ([dt.datetime(2024, 1, 1, hour) for hour in (0, 1, 5)], "seconds", [3600, 0, 4 * 3600]),
        ([dt.timedelta(minutes=m) for m in (0, 1, 2)], "seconds", [60, 0, 60]),
    ):
        at = distances.index(0)
        rows = pl.DataFrame({"x": [candidates[at]] * 3})
        expr = dpp.median("x", candidates, epsilon=0.5)
        (row,) = analysis.simulate(expr, rows).rows(named=True)
        assert row["error_unit"] == unit
        # In units of half a row, what is below three equal values is worse by 3, and what is above them by 4.
        gaps = np.array([3] * at + [0] + [4] * (len(distances) - at - 1))
        law = analysis.scores.selection_probabilities(-gaps, epsilon=Fraction(1, 2), sensitivity=2, monotonic=True)
        assert row["probability_true"] == pytest.approx(law[at])
        assert row["expected_error"] == pytest.approx((law * distances).sum())
        assert row["expected_rank_error"] == pytest.approx((law * gaps / 2).sum())


@pytest.mark.parametrize("few", [1, 4])
def test_too_few_is_an_answer(few):
    rows = pl.DataFrame({"g": ["u"] * 6 + ["v"], "x": ["a"] * 5 + ["b", "b"]})
    query = (
        protect(None)
        .group_by({"g": ["u", "v", "w"]})
        .agg(m=pl.col("x").dp.mode(["a", "b", "c"], epsilon=1, too_few=few))
    )
    result = analysis.simulate(query, rows)
    assert result["true_answer"].to_list() == ["a", "b" if few == 1 else None, None]
    assert result["counted"].to_list() == [6, 1, 0]
    for row, counts in zip(result.rows(named=True), ([5, 1, 0], [0, 1, 0], [0, 0, 0]), strict=True):
        law = analysis.scores.selection_probabilities([*counts, few], epsilon=1, monotonic=True)
        errors = max(*counts, few) - np.array([*counts, few])
        assert row["probability_true"] == pytest.approx(law[errors == 0].sum())
        assert row["expected_error"] == pytest.approx((law * errors).sum())


def test_losses_of_numbers_are_those_of_queries_built_with_them_but_of_people_expressions_know_nothing():
    asks = [lambda **a: dpp.len(**a), lambda **a: dpp.sum("x", 0, 8, step=0.5, **a)]
    for ask, unit in itertools.product(asks, ["epsilon", "rho"]):
        tried = analysis.simulate(ask(**{unit: 9}), ROWS, losses=[0.25, 2])
        for loss in (0.25, 2):
            assert analysis.simulate(ask(**{unit: loss}), ROWS).equals(tried.filter(pl.col("loss") == loss))
    refused(ValueError, "with a privacy unit, for a number of people", analysis.simulate, dpp.n_people(epsilon=1), ROWS)


@dataclass(frozen=True)
class Tens(Count):
    """A count in tens: a total that is its answer, in another unit."""

    def answer_step(self, *columns):
        return Fraction(10)

    def named(self, totals, *columns):
        return pl.Series(totals[0] * 10)


def test_a_new_total_is_simulated_in_its_unit_or_not_at_all():
    rows, terms = [np.array([7])], Terms.at(Loss(Fraction(1, 3), "epsilon"))
    x, p = enumerated(terms.loss.value, "discrete_laplace")
    for query, unit in ((Count("rows", terms), 1), (Tens("rows", terms), 10)):
        (law,) = law_of_total(query, (), rows, rows)(query.claim).rows(named=True)
        assert law["expected_error"] == pytest.approx(unit * (p * abs(x)).sum(), rel=1e-9)
        assert law["true_answer"] == 7 * unit
    with pytest.raises(TypeError, match="answer_step"):
        type("Stepless", (Multiple,), dict.fromkeys(Multiple.__abstractmethods__ - {"answer_step"}))()
    known = {name: getattr(Count, name) for name in Total.__abstractmethods__}
    unknown = type("Unknown", (Total,), {**known, "__post_init__": lambda _: None})()
    refused(TypeError, r"^simulate: the law of a Unknown is not known", law_of_total, unknown, (), [], [])


class AnotherMean(Average):
    """A mean that is not known as one."""

    def __init__(self, mean):
        self.mean, self.terms = mean, mean.terms

    def __str__(self):
        return str(self.mean)

    def with_terms(self, terms):
        return type(self)(self.mean.with_terms(terms))

    def noise(self, *columns):
        return self.mean.noise(*columns)

    def bits_of_parts(self, *columns):
        return self.mean.bits_of_parts(*columns)

    def of_totals(self, totals, *columns):
        return self.mean.of_totals(totals, *columns)


AnotherMean.__abstractmethods__ = frozenset()


@pytest.mark.parametrize("loss", [{"epsilon": 1}, {"rho": 0.1}, {"epsilon": 100}], ids=str)
def test_a_new_average_is_simulated_without_a_law_of_its_own(loss):
    mean, types = dpp.mean("x", 0, 30, **loss).query, (pl.Int64(),)
    rows = [np.array([-340, 50]), np.array([25, 6])]
    exact, found = (law_of_total(one, types, rows, rows)(mean.claim) for one in (mean, AnotherMean(mean)))
    assert found["true_answer"].equals(exact["true_answer"])
    for name in ("expected_error", "answer_5", "answer_95"):
        assert found[name].to_list() == pytest.approx(exact[name].to_list(), rel=5e-3, abs=1e-3)


@pytest.mark.parametrize("draws", [1, 2, 3, 4])
def test_an_average_may_have_one_draw_or_several(draws):
    """The error of a sum of draws, against the sum of their noise by convolution."""
    mean, totals = dpp.mean("x", 0, 30, epsilon=1).query, [np.array([7])] * draws
    (_, noise), several = mean.noise(pl.Int64()), AnotherMean(mean)
    several.with_terms = lambda _: several
    several.noise, several.bits_of_parts = (lambda *_: (noise,) * draws), (lambda *_: (0,) * draws)
    several.of_totals = lambda totals, *_: np.asarray(sum(totals), float)
    (found,) = law_of_total(several, (), totals, totals)(mean.claim)["expected_error"]
    x, law = enumerated(noise.rate, "discrete_laplace")
    of_sum, reach = law, len(x) // 2
    for _ in range(draws - 1):
        of_sum = np.convolve(of_sum, law)
    exact = of_sum @ abs(np.arange(len(of_sum)) - draws * reach)
    assert found == pytest.approx(exact, rel=0.003 if draws <= 3 else 0.01)


@pytest.mark.parametrize("loss", [{"epsilon": 0.5}, {"rho": 0.05}], ids=str)
def test_a_sum_that_shares_draws_has_their_law(loss):
    """Against many releases: the mean error, and how often the ends are passed. At other losses it is alone."""
    groups = 20_000
    frame = pl.DataFrame({"g": [0] * 30, "x": [*range(10)] * 3}).with_columns(p=pl.int_range(30) // 2)
    asked = {"rows": dpp.count("x", **loss), "total": dpp.sum("x", 0, 9, **loss), "mean": dpp.mean("x", 0, 9, **loss)}
    bounds = {"max_rows": 2}
    law = analysis.simulate(dpp.protect("p", **bounds).group_by({"g": [0]}).agg(**asked), frame).row(1, named=True)
    many = (
        frame.drop("g").join(pl.DataFrame({"g": range(groups)}), how="cross").with_columns(p=pl.struct("p", "g").hash())
    )
    drawn = dpp.protect("p", **bounds).group_by({"g": range(groups)}).agg(**asked).release(many.lazy())["total"]
    true = float(law["true_answer"])
    assert true == 135
    off = (drawn - true).abs()
    assert law["expected_error"] == pytest.approx(off.mean(), abs=5 * off.std() / groups**0.5)
    for end, below in (("answer_5", drawn < float(law["answer_5"])), ("answer_95", drawn > float(law["answer_95"]))):
        assert below.mean() == pytest.approx(0.05, abs=0.008), end
    (unit,) = loss
    own = analysis.simulate(dpp.protect("p", **bounds).agg(dpp.sum("x", 0, 9, **loss)), frame)["expected_error"].item()
    tried = analysis.simulate(dpp.protect("p", **bounds).agg(**asked), frame, losses=[loss[unit]])
    assert tried.filter(output="total")["expected_error"].item() == pytest.approx(own)
    assert law["expected_error"] < 0.8 * own
