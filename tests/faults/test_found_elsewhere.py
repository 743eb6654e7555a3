"""Faults that audits of other libraries found, and what each would do here (docs/comparison.md)."""

from __future__ import annotations

import datetime as dt
import math
import pickle
import re
import warnings
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest

import dp_polars as dpp
from dp_polars import analysis
from dp_polars._accounting import costs as conversions
from dp_polars._accounting.terms import Loss
from dp_polars._base.numbers import as_fraction, ball, lower, precision, upper
from dp_polars._mechanisms import partition_selection as key_selection
from dp_polars._mechanisms.histograms import Histogram
from dp_polars._mechanisms.noise import gaussian_noise, laplace_noise
from dp_polars._steps.gate import row_by_row
from tests.helpers import reference
from tests.helpers.needs import IS_OLD, need
from tests.helpers.noised import record
from tests.registry import MECHANISMS
from tests.statistical.goodness import cell_counts, fits

if TYPE_CHECKING:
    from collections.abc import Callable

NAN = math.nan


def renyi(p: list[float], q: list[float], order: float) -> float:
    """The Rényi divergence of two distributions; of order 1 that of Kullback and Leibler."""
    if order == 1:
        return math.fsum(a * math.log(a / b) for a, b in zip(p, q, strict=True))
    return math.log(math.fsum(a**order * b ** (1 - order) for a, b in zip(p, q, strict=True))) / (order - 1)


def drawn_of(monkeypatch, frames, ask):
    """What the noise is added to in a release on each of the frames, and its claim."""
    found = []
    for frame in frames:
        drawn = record(monkeypatch)
        ask(frame).release()
        (one,) = drawn
        found.append(one)
    return found


# --- opendp #2911: noisy max, which is permute-and-flip, was charged epsilon²/8 in zCDP ------------------------------
def test_noisy_max_is_not_charged_as_bounded_range():
    """(0, 0) and (1, −1) at epsilon = 2: 0.69 where epsilon²/8 is 0.5. A release costs more, and no less is taken."""
    p, q = ([float(x) for x in reference.law(s, rate=1, mechanism="permute_and_flip")] for s in ([0, 0], [1, -1]))
    orders = [1, 1.5, 2, 4]
    true = max(max(renyi(p, q, order), renyi(q, p, order)) / order for order in orders)
    assert true > 1.3 * 2**2 / 8
    budget = dpp.Budget(rho=Fraction(1, 2))  # what the fault would charge
    frame = pl.DataFrame({"x": ["a", "b"]}).dp.protect(None, budget=budget, neighboring_relation="replace_one")
    query = frame.agg(dpp.mode("x", ["a", "b"], epsilon=2))
    claim = query._asks[0].query.claim
    assert claim.mechanism == "permute_and_flip"
    assert claim.cost("rho") >= true
    with pytest.raises(dpp.BudgetExceededError):
        query.release()
    assert budget.spent == 0


# --- opendp #2939: `cut` makes null of NaN, but the result was taken to have no nulls, and its count to be public ---


def cut(breaks: list[float], labels: list[str] | None = None) -> pl.Expr:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # since Polars 2.1
        return pl.col("x").fill_null(0.0).cut(breaks, labels=labels)


def refused_on_polars_1(column: pl.Expr) -> bool:
    """Whether this is Polars 1, which takes no such step on a private frame."""
    if not IS_OLD:
        return False
    with pytest.raises(ValueError, match="needs Polars 2"):
        row_by_row(column, pl.Schema({"x": pl.Float64()}), "select")
    return True


def test_a_count_after_cut_is_of_the_values_that_are_there_and_gets_noise(monkeypatch):
    """One NaN more or less moves the count by one, which is charged; the fault gave the count away for nothing."""
    if refused_on_polars_1(cut([1.5])):
        return

    def ask(frame):
        query = frame.dp.protect(None, neighboring_relation="replace_one").agg(n=cut([1.5]).dp.count(epsilon=1))
        assert query.loss == Loss(Fraction(1), "epsilon")
        return query

    frames = [pl.DataFrame({"x": [first, *[1.0] * 15]}) for first in (NAN, 2.0)]
    with_nan, without = drawn_of(monkeypatch, frames, ask)
    assert with_nan.claim.cost("epsilon") == without.claim.cost("epsilon") == 1
    assert (with_nan.values.tolist(), without.values.tolist()) == ([15], [16])
    assert abs(with_nan.scaled - without.scaled).item() <= 1


# --- opendp #2944: `cut().to_physical()` numbers the bins by where they first appear ---------------------------------


REFUSED = re.compile("may take a category's number, which other rows decide|needs Polars 2")


def physical(values: list[float]) -> list[int] | None:
    """The codes as a private frame makes them; None where it refuses the step."""
    frame = pl.DataFrame({"x": values})
    try:
        safe = row_by_row(cut([1.0]).to_physical(), frame.schema, "select")
    except ValueError as error:
        assert REFUSED.search(str(error))  # noqa: PT017
        return None
    return frame.select(safe).to_series().to_list()


def test_one_row_does_not_change_the_codes_of_all_others():
    """The rows of the report: where its codes are 0 a hundred times, one row before them made them 1."""
    alone, beside = physical([0.5] * 100), physical([2.0] + [0.5] * 100)
    assert (alone is None) == (beside is None)
    if alone is not None and beside is not None:  # since Polars 2.1 the bins are an Enum
        assert alone == beside[1:]


# --- opendp #2945: a group of k rows was taken to change by at most k: if all are replaced, it changes by 2k -----
@pytest.mark.parametrize("unit", ["epsilon", "rho"])
def test_three_rows_replaced_are_six_rows_changed(monkeypatch, unit):
    """From 10, 10, 10 to −10, −10, −10 the sum moves by 60. Noise for 30 loses twice epsilon, four times rho."""

    def ask(frame):
        protected = frame.dp.protect("p", max_rows_per_group=3, max_groups=1, neighboring_relation="replace_one")
        return protected.group_by({"a": ["a"]}).agg(pl.col("b").dp.sum(-10, 10, **{unit: 1}))

    frames = [pl.DataFrame({"a": ["a"] * 3, "p": [1] * 3, "b": [value] * 3}) for value in (10, -10)]
    found = drawn_of(monkeypatch, frames, ask)
    moved = abs(found[0].values - found[1].values).item()
    assert moved == 60 * 2**17  # in parts
    rate = float(found[0].claim.rate)
    lost = moved * rate if unit == "epsilon" else (moved * rate) ** 2 / 2
    assert lost == pytest.approx(1, rel=1e-12)


# --- opendp #2949: a bound on groups outlived the column of groups ---------------------------------------------------
@pytest.mark.parametrize("loss", [{"rho": 0.5}, {"epsilon": 1}], ids=str)
def test_bounds_hold_on_the_groups_that_are_released(monkeypatch, loss):
    """Two people with a row in each of 100 groups, and all groups made one: the fault lets one person add 100."""
    rows = pl.DataFrame({"id": [0] * 100 + [1] * 100, "g": [*range(100)] * 2})

    def ask(frame):
        protected = frame.dp.protect("id", max_rows_per_group=1, max_groups=100)
        return protected.with_columns(g=pl.lit(0, dtype=pl.Int64)).group_by({"g": [0]}).agg(n=dpp.len(**loss))

    found = drawn_of(monkeypatch, (rows, rows.filter(pl.col("id") == 1)), ask)
    # In parts: a hundredth of each row, rounded down.
    assert [each.values.tolist() for each in found] == [[2 * 100 * (2**20 // 100)], [100 * (2**20 // 100)]]
    moved = abs(found[0].scaled - found[1].scaled).item()
    assert (moved if "epsilon" in loss else moved**2 / 2) <= 1.0 * float(next(iter(loss.values()))) * (1 + 1e-12)


# --- diffprivlib #107: all probabilities underflow, and a quantile raises on some data -------------------------------
def test_a_quantile_of_equal_values_among_others_has_an_answer():
    """The data of the report; its probabilities are all 0, and their sum divides them into NaN."""
    rng = np.random.default_rng(0)
    values = np.concatenate([np.full(800_000, 65_000), rng.integers(0, 500_000, 200_000)])
    for epsilon in (0.3, 0.5, 1):
        # Every other candidate is 100,000 rows away: its coin is below exp(−10,000).
        asked = pl.col("x").dp.median(range(500_001), epsilon=epsilon)
        assert pl.DataFrame({"x": values}).select(asked).item() == 65_000


# --- dp_accounting: the Rényi accountant ignores how often an exponential mechanism runs -----------------------------


def exact_epsilon(p: float, q: float, times: int, delta: float) -> float:
    """The least epsilon at `delta` of `times` independent coins, heads with probability p or q: by all their counts."""
    heads = np.arange(times + 1)
    ways = np.array([math.lgamma(times + 1) - math.lgamma(k + 1) - math.lgamma(times - k + 1) for k in heads.tolist()])
    first, second = (ways + heads * math.log(c) + (times - heads) * math.log1p(-c) for c in (p, q))
    low, high = 0.0, times * abs(math.log(p / q) - math.log1p(-p) + math.log1p(-q))
    for _ in range(60):
        middle = (low + high) / 2
        over = float(np.maximum(np.exp(first) - np.exp(middle + second), 0).sum())
        low, high = (middle, high) if over > delta else (low, middle)
    return high


@pytest.mark.parametrize("times", [2, 10, 100])
def test_a_hundred_releases_are_not_charged_as_one(times):
    """Two candidates whose scores are (0, 0), or (1, −1), at epsilon = 0.1: the true loss of all is above that of one.

    The fault charges the loss of one, whatever `times` is: about 0.1, where a hundred lose more than 1.
    """
    epsilon, delta = 0.1, 1e-11
    first, second = (
        float(reference.law(scores, rate=Fraction(epsilon) / 2, mechanism="exponential")[0])
        for scores in ([0, 0], [1, -1])
    )
    assert math.log(second / (1 - second)) == pytest.approx(epsilon)
    true = max(exact_epsilon(*pair, times, delta) for pair in ((first, second), (second, first)))
    assert true > epsilon >= analysis.compose([(epsilon, "exponential")], delta=delta)  # what the fault says
    assert true <= analysis.compose([(epsilon, "exponential")] * times, delta=delta)
    budget = dpp.Budget(rho=1)
    frame = pl.DataFrame({"x": ["a"]}).dp.protect(None, budget=budget, neighboring_relation="replace_one")
    query = frame.agg(dpp.mode("x", ["a", "b"], epsilon=epsilon, mechanism="exponential"))
    claim = query._asks[0].query.claim
    assert claim.cost("rho") >= reference.bounded_range_rho(Fraction(1, 10))
    spent = []
    for _ in range(times):
        query.release()
        spent.append(budget.spent)
    assert spent == [claim.cost("rho") * n for n in range(1, times + 1)]
    assert true <= budget.epsilon_at(delta).spent


# --- smartnoise-sdk #621: a logarithm was missing in the formula of composition --------------------------------------
def test_a_hundred_counts_cost_what_they_lose_and_hardly_more():
    """Counts with discrete Laplace noise lose ±epsilon, as randomized response does: so the truth is a binomial sum.

    Kairouz et al.'s formula lies above it. Without its logarithm it is useless, and what is left is the plain sum.
    """
    need("dp_accounting")
    epsilon, times, delta = 0.1, 100, 1e-6
    heads = 1 / (1 + math.exp(-epsilon))
    true = exact_epsilon(heads, 1 - heads, times, delta)
    left = times * epsilon * math.tanh(epsilon / 2)
    formula, without = (left + epsilon * math.sqrt(2 * times * term) for term in (math.log(1 / delta), 1 / delta))
    ours = analysis.compose([dpp.len(epsilon=epsilon).query.claim] * times, delta=delta)
    assert true <= ours <= 1.001 * true
    assert ours < formula < times * epsilon < without


# --- opendp #2820: a delta of zCDP was rounded down ------------------------------------------------------------------
@pytest.mark.parametrize(
    ("rho", "epsilon"),
    [(0.05, 0.25), (5e-30, 1e-13), *((rho, rho * times) for rho in (1e-9, 0.02, 1.0, 7.0) for times in (1.5, 3, 11))],
)
def test_the_delta_of_zcdp_is_the_next_float_above_its_formula(rho, epsilon, monkeypatch):
    """The first two are those of the report: one unit too low, and an order so large that α − 1 is rounded.

    With one order to choose from, the formula has one true value. The float below the answer would be too low; a float
    is the decimal that it prints as.
    """
    monkeypatch.setattr(conversions, "_FARTHEST", (0.0, 0.0))
    exact = Fraction(rho), Fraction(epsilon)
    found = conversions.zcdp_delta(*exact)
    with precision(2000):
        a = Fraction(float((exact[1] - exact[0]) / (2 * exact[0])))  # α − 1
        power = ((ball(a * ((1 + a) * exact[0] - exact[1]))).exp() * ball(a / (1 + a)) ** ball(1 + a)) / ball(a)
        assert ball(as_fraction("delta", math.nextafter(found, 0))) < power <= ball(as_fraction("delta", found))


# --- opendp #2802: the exponent of a tail bound was rounded down -----------------------------------------------------
@pytest.mark.parametrize(("variance", "reached"), [(Fraction(3, 31), 10), (Fraction(10), 72), (Fraction(513, 10), 172)])
def test_a_threshold_is_as_exact_as_its_delta(variance, reached):
    """Deltas down to 1e-225, the report's, just above and just below a tail: their thresholds differ by one.

    x²/(2σ²) is no float there. One that is rounded moves the tail by 1e-14 or more, and both deltas to one side.
    """
    with precision(400):
        weights = [(-ball(Fraction(x * x) / (2 * variance))).exp() for x in range(reached + 600)]
        tail = sum(weights[reached:]) / (2 * sum(weights) - 1)  # what is left out is below 1e-400 of it
        above, below = upper(tail * (1 + ball(Fraction(1, 10**30)))), lower(tail * (1 - ball(Fraction(1, 10**30))))
    assert below < above < 1e-100
    assert float(below) == float(above)
    assert key_selection.threshold_for(variance, above, 1) == reached + 1
    assert key_selection.threshold_for(variance, below, 1) == reached + 2


# --- opendp #2922: the delta of a threshold left out what is exactly at the threshold --------------------------------
@pytest.mark.slow
@pytest.mark.parametrize("loss", [{"epsilon": 1}, {"rho": 0.5, "with_counts": True}], ids=str)
def test_keys_of_one_person_are_shown_as_seldom_as_delta_says(loss):
    """100,000 people with a key of their own: the report's, of which 1.3 % were shown where delta said 0.5 %."""
    delta, number = Fraction(1, 100), 100_000
    selection = dpp.protect("p", max_groups=1).keys("k", delta=delta, **loss)._asks[0].query.selection
    if "epsilon" in loss:
        chance = float(delta)
        others = [chance * math.exp(-1), chance * math.e]
    else:
        steps = np.arange(-60, 61)
        weights = np.exp(-(steps**2) / (2 * float(selection.variance)))
        chance, *others = (
            float(weights[steps >= selection.threshold - lone].sum() / weights.sum()) for lone in (1, 0, 2)
        )
    assert chance <= float(delta) < max(others)
    shown, _ = selection.draw(np.ones(number, np.int64))
    counts = [number - int(shown.sum()), int(shown.sum())]
    assert fits(counts, [1 - chance, chance])
    assert not any(fits(counts, [1 - other, other]) for other in others)


# --- smartnoise-sdk #622, PipelineDP #551: values were clipped in a copy, or only after they were added up -----------
@pytest.mark.parametrize("unit", [None, "p"])
def test_values_are_clipped_before_they_are_added_up(unit, monkeypatch):
    """One of 100 rows is 1,000, and 1 is the most that a row adds. What is clipped afterwards moves by 99."""
    rows = pl.DataFrame({"p": range(100), "x": [1000] + [0] * 99})
    bounds = {} if unit is None else {"max_rows": 1}
    asked = pl.col("x").dp.sum(0, 1, epsilon=1)
    found = drawn_of(monkeypatch, (rows, rows[1:]), lambda frame: frame.dp.protect(unit, **bounds).agg(asked))
    moved = abs(found[0].scaled - found[1].scaled).item()
    assert moved == 1 == float(found[0].claim.cost("epsilon"))
    late = (frame["x"].sum() for frame in (rows, rows[1:]))
    assert abs(np.subtract(*(min(total, len(rows)) for total in late))) > 1  # so there is something to find


# --- PipelineDP #552: a loss was divided among numbers that one bound holds for together -----------------------------
@pytest.mark.parametrize("loss", [{"epsilon": 1}, {"rho": 0.5}], ids=str)
def test_a_hundred_groups_have_the_noise_of_one(loss, monkeypatch):
    """A person is in one group of the hundred: the fault takes a hundred times the noise."""
    rates = []
    for groups in (1, 100):
        drawn = record(monkeypatch)
        frame = pl.DataFrame({"p": range(100), "g": range(100), "x": range(100)}).dp.protect("p", max_rows=1)
        frame.group_by({"g": [*range(groups)]}).agg(pl.col("x").dp.sum(0, 1, **loss)).release()
        rates.append([each.claim.rate for each in drawn])
        assert sum(each.claim.cost(next(iter(loss))) for each in drawn) == Fraction(next(iter(loss.values())))
    assert rates == [[Fraction(1, 2**20)], [Fraction(1, 2**20)]]  # in parts


# --- smartnoise-sdk #572: whether a quantile crashed told how many rows there are ------------------------------------
@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("alpha", [0.5, 0.999])
def test_one_row_more_is_no_crash(mechanism, alpha):
    """The report's 1,491 and 1,492 zeros beside a one: exp of the scores is above 0, or 0 and a crash."""
    for zeros in (1491, 1492):
        frame = pl.DataFrame({"x": [0] * zeros + [1]})
        asked = pl.col("x").dp.quantile(alpha, [0, 1], epsilon=1, mechanism=mechanism)
        found = {frame.select(asked).item() for _ in range(20)}
        assert found <= {0, 1}
        assert found == {0} or alpha > 0.9
    with np.errstate(under="ignore"):
        assert [math.exp(-zeros / 2) > 0 for zeros in (1491, 1492)] == [False, False]


# --- opendp #2837, #2937: numbers that wrap around -------------------------------------------------------------------
def test_a_sum_of_dates_does_not_wrap_around(monkeypatch):
    """The report's 108,882 and 108,883 rows of one day: the second sum of 32 bits is negative."""
    day = dt.date(2024, 1, 1)
    days = [pl.DataFrame({"d": pl.repeat(day, n, eager=True).to_physical()}) for n in (108_882, 108_883)]
    assert days[0]["d"].dtype == pl.Int32
    asked = pl.col("d").dp.sum(0, 20_000, epsilon=1)
    found = [one.values.item() for one in drawn_of(monkeypatch, days, lambda frame: frame.dp.protect(None).agg(asked))]
    assert found == [19_723 * 108_882, 19_723 * 108_883]
    assert np.array(found).astype(np.int32).tolist() == [19_723 * 108_882, 19_723 * 108_883 - 2**32]


def test_counts_beyond_32_bits_are_what_they_are():
    """2³¹ rows of one value beat 2³¹ − 1 of another: as 32 bits with a sign they are the fewest."""
    counts = np.array([2**31 - 1, 1, 2**31 - 1, 2**32 + 1], np.int64)
    found = Histogram.of_pairs(np.zeros(4, np.int64), np.array([0, 1, 1, 2]), counts, 1)
    assert found.weights.tolist() == [2**31 - 1, 2**31, 2**32 + 1]
    assert found.weights.astype(np.int32).argmax() == 0
    asked = dpp.mode("x", ["a", "b"], epsilon=10**6).query
    two = Histogram(found.codes[:2], found.weights[:2], np.array([2]))
    assert asked.drawn([two], pl.String())[0].to_list() == ["b"]


# --- opendp #2708: the last one of many got no noise -----------------------------------------------------------------


def every_place_varies(draw: Callable[[], np.ndarray], times: int = 64) -> bool:
    """Whether no place has the same answer each time. By chance, one of few answers has with 2⁻⁶³."""
    return bool(np.ptp([draw() for _ in range(times)], axis=0).all())


@pytest.mark.parametrize("count", [1, 2, 9, 2**14, 2**14 + 1])
@pytest.mark.parametrize("noise", [laplace_noise, gaussian_noise])
def test_the_last_number_has_noise_as_all_others(noise, count):
    """As the report's test does: 64 draws of which the last place must not always be the same."""
    places = np.unique([0, 1, count // 2, count - 2, count - 1]) % count

    def draw() -> np.ndarray:
        return noise(count, Fraction(100))[places]

    def without_the_last() -> np.ndarray:
        return draw() * (places != count - 1)

    assert every_place_varies(draw)
    assert not every_place_varies(without_the_last)


# --- opendp #2639: a biased sampler, which a test with too few samples let pass --------------------------------------


def faulty_quotient(x: Fraction, k: int) -> Fraction:
    """x/k as the library for rational numbers had it: (a/b)/k with (b // g)·k below, g the divisor of a and k."""
    g = math.gcd(x.numerator, k) if x else 1
    return Fraction(x.numerator // g, (x.denominator // g) * k)


def coin(x: Fraction, quotient: Callable[[Fraction, int], Fraction]) -> float:
    """The chance of heads of the coin exp(−x), as Canonne, Kamath & Steinke flip it: by coins of x/1, x/2, x/3, …"""
    chance, here = 0.0, 1.0
    for k in range(1, 40):
        further = min(1.0, float(quotient(x, k)))
        chance += here * (1 - further) * (k % 2)
        here *= further
    return chance


def laplace_law(scale: int, quotient: Callable[[Fraction, int], Fraction], far: int) -> np.ndarray:
    """P(noise = x) for x from −far to far, what is beyond at the ends: remainders by such coins, then by exp(−1)."""
    remainder = np.array([coin(Fraction(u, scale), quotient) for u in range(scale)])
    size = np.concatenate([remainder * math.exp(-v) for v in range(60)])
    law = np.concatenate([size[:0:-1], size])
    law /= law.sum()
    middle = len(size) - 1
    inside = law[middle - far : middle + far + 1].copy()
    inside[0] += law[: middle - far].sum()
    inside[-1] += law[middle + far + 1 :].sum()
    return inside


@pytest.mark.slow
@pytest.mark.parametrize("scale", [3, 6, 15])
def test_a_sampler_with_the_faulty_division_would_be_found_out(scale):
    """2/3 divided by 2 was 1/2. A thousand samples, as many as the test had, would have let it pass here as well."""
    far, number = 4 * scale, 400_000
    true, faulty = (laplace_law(scale, quotient, far) for quotient in (lambda x, k: x / k, faulty_quotient))
    weights = np.exp(-abs(np.arange(-far, far + 1)) / scale)
    weights[[0, -1]] /= 1 - math.exp(-1 / scale)
    assert true == pytest.approx(weights / weights.sum(), rel=1e-9)
    ours = np.clip(laplace_noise(number, Fraction(scale)), -far, far) + far
    assert fits(cell_counts(ours, true), true)
    drawn = np.random.default_rng(0).choice(2 * far + 1, number, p=faulty / faulty.sum())
    assert not fits(cell_counts(drawn, true), true)
    assert fits(cell_counts(drawn[:1000], true), true)


# --- qsv #2228: answers have noise, but which values there are comes from the rows -----------------------------------

SECRET = "Little-Hampstead-on-Sea"


def held(frame: pl.DataFrame) -> bytes:
    """All bytes that a frame holds, also those that no row shows."""
    arrays = (chunk for column in frame.to_arrow(compat_level=pl.CompatLevel.newest()) for chunk in column.chunks)
    return b"".join(bytes(buffer) for array in arrays for buffer in array.buffers() if buffer is not None)


@pytest.mark.parametrize("dtype", [pl.String, pl.Categorical])
def test_a_value_that_is_not_released_is_nowhere_in_an_answer(dtype):
    """One person lives where nobody else does: no type, category or buffer of an answer names the place."""
    towns = pl.Series(["Oslo"] * 5000 + [SECRET], dtype=dtype)
    protected = pl.DataFrame({"p": range(5001), "town": towns}).dp.protect("p", max_rows=1)
    budget = {"delta": Fraction(1, 10**12), "epsilon": 1}
    answers = [
        protected.keys("town", **budget).release(),
        protected.group_by({"town": ["Oslo", "Bern"]}).agg(n=dpp.len(epsilon=1)).release(),
        protected.agg(dpp.mode("town", ["Oslo", "Bern"], epsilon=1)).release(),
        protected.agg(dpp.value_counts("town", ["Oslo", "Bern"], epsilon=1)).release(),
        pl.DataFrame({"town": towns}).select(pl.col("town").dp.mode(["Oslo", "Bern"], epsilon=1)),
    ]
    assert answers[0]["town"].to_list() == ["Oslo"]
    shown = [repr(query).encode() for query in (protected, protected.agg(dpp.len(epsilon=1)))]
    assert not any(SECRET.encode() in each for each in [*map(held, answers), *map(pickle.dumps, answers), *shown])
    assert all(each.schema.get("town", pl.String) == pl.String for each in answers[:3])  # no categories
    if dtype == pl.String:  # so there is something to find: a text stays when its row goes
        assert SECRET.encode() in held(pl.DataFrame({"town": towns.filter(towns != SECRET)}))


# --- DuckDB's extension `privacy`: what is not declared is public, and delta may be 1/N ------------------------------
def test_nothing_is_public_because_nobody_said_what_it_is():
    """Who is a person must be said, a column of that name be there, and a row of nobody counts for nothing."""
    frame = pl.DataFrame({"p": [1, None, None], "x": [1, 1, 1]})
    with pytest.raises(TypeError, match="missing a required argument: 'privacy_unit'"):
        frame.dp.protect()
    with pytest.raises(ValueError, match="must have the privacy unit 'q' as a column"):
        frame.dp.protect("q")
    protected = frame.dp.protect("p", max_rows=5)
    assert protected.agg(n=dpp.len(epsilon=10**6)).release().item() == 1
    with pytest.raises(ValueError, match="looks at several rows of one person"):
        protected.join(frame.dp.protect(None), on="x")


def test_no_delta_follows_from_the_number_of_rows():
    claims = set()
    for people in (10, 1000):
        protected = pl.DataFrame({"p": range(people), "k": "a"}).dp.protect("p", max_groups=1)
        with pytest.raises(TypeError, match="delta must be given with a loss"):
            protected.keys("k", epsilon=1)
        query = protected.keys("k", epsilon=1, delta=Fraction(1, 1000))
        claims.add(query._asks[0].query.claim)
        claims.add(protected.agg(dpp.n_people(epsilon=1))._asks[0].query.claim)
    assert len(claims) == 2  # one of each kind
