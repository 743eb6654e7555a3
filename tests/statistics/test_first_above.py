"""The first above a threshold: what is claimed, bounded, refused and answered."""

import datetime as dt
import itertools
import math
import pickle
import re
from decimal import Decimal
from fractions import Fraction

import numpy as np
import polars as pl
import pytest

import dp_polars as dpp
from dp_polars import analysis
from dp_polars._mechanisms.above_threshold import Search, count_runs, first_above_groups
from dp_polars._mechanisms.histograms import Histogram
from tests.helpers.first_above_laws import log_law
from tests.registry import RELATIONS, SURE, X, under


def ask(**more):
    return dpp.first_above("x", range(5), **{"threshold": 3, "epsilon": 1, **more})


@pytest.mark.parametrize(("relation", "score_range"), [(RELATIONS[0], 2), (RELATIONS[1], 3)])
def test_the_rate_is_shared_by_the_threshold_and_the_counts(relation, score_range):
    claim = under(relation, ask(epsilon=6, contributions=2).query).claim
    assert (claim.mechanism, claim.score_range) == ("first_above", score_range)
    assert claim.rate == Fraction(6, 2 * score_range)
    people = dpp.protect("p", max_groups=4, max_rows_per_group=9, neighboring_relation=relation)
    grouped = people.group_by({"g": range(9)})
    (by_people,), (by_rows,) = (grouped.agg(a=ask(counts=counts))._asks for counts in ("people", "rows"))
    assert by_people.query.claim.rate == Fraction(1, 4 * score_range)  # the groups of a person, whatever the rows
    assert by_rows.query.claim.rate == Fraction(1, 36 * score_range)


def test_a_budget_in_rho_is_charged_as_for_all_that_is_pure():
    budget = dpp.Budget(rho=1)
    frame = pl.DataFrame({"x": [1] * 9}).dp.protect(None, budget=budget)
    frame.agg(a=ask(gap=True)).release()
    assert float(budget.spent) == pytest.approx(math.tanh(0.5))
    assert ask(gap=True).query.claim.cost("rho") == ask().query.claim.cost("rho")


@pytest.mark.parametrize("gap", [False, True])
def test_what_people_in_several_groups_lose_in_rho(gap):
    """One who takes the place of another, of one row a group: pairs of groups, each 3λ. Of several: all together."""

    def cost(*, distance=1, **bounds):
        frame = dpp.protect("p", neighboring_relation="replace_one", **bounds).group_by({"g": range(9)})
        (asked,) = frame.agg(a=ask(counts="rows", gap=gap))._asks
        return float(asked.query.claim.cost("rho", distance))

    def rho(x):
        return x * math.tanh(x / 2)

    assert cost(max_groups=4, max_rows_per_group=1) == pytest.approx(4 * rho(1 / 4))
    assert cost(max_groups=4, max_rows_per_group=2) == pytest.approx(rho(1))
    assert cost(max_groups=4, max_rows_per_group=1, distance=2) == pytest.approx(rho(2))


def test_it_composes_as_what_is_pure():
    claim = ask(gap=True).query.claim
    one = analysis.PrivacyProfile.of([claim])
    assert one.epsilon(0) == 1
    assert one.delta(0.5) == pytest.approx((1 - math.exp(-0.5)) / (1 + math.exp(-1)))
    assert one.rho == claim.cost("rho")
    many = analysis.compose([claim] * 50, delta=1e-6)
    assert many == pytest.approx(analysis.compose([dpp.len(epsilon=1).query.claim] * 50, delta=1e-6))


def test_it_is_asked_by_epsilon_only():
    with pytest.raises(ValueError, match=r"^the first above a threshold must be requested with epsilon, got rho=1"):
        dpp.first_above("x", [1], threshold=3, rho=1)
    assert dpp.first_above("x", [1], threshold=3).query.claim._is_open  # until scaled_to gives it an epsilon
    claim = ask().query.claim
    with pytest.raises(ValueError, match="same_group must be 1"):
        dpp.Claim(
            claim.loss, "first_above", Fraction(3), claim.contributions, "replace_one", _same_group=Fraction(2, 3)
        )
    with pytest.raises(ValueError, match="mechanism must be one of"):
        dpp.mode("x", [1], epsilon=1, mechanism="first_above")


@pytest.mark.parametrize(
    ("more", "error", "message"),
    [
        ({"threshold": 0}, ValueError, "threshold must be greater than 0, got 0."),
        ({"threshold": -2.5}, ValueError, "threshold must be greater than 0"),
        ({"threshold": math.nan}, ValueError, "threshold must be finite"),
        ({"threshold": "3"}, TypeError, "threshold must be a number"),
        ({"threshold": 2**63}, ValueError, r"threshold must be at most 2\*\*62"),
        ({"gap": 1}, TypeError, "gap must be True or False, got 1"),
        ({"counts": "groups"}, ValueError, "counts must be 'people' or 'rows', got 'groups'"),
    ],
)
def test_what_is_refused(more, error, message):
    with pytest.raises(error, match=f"^{message}"):
        ask(**more)


@pytest.mark.parametrize("size", [1, 4, 60])
def test_both_errors_hold_and_are_no_larger_than_they_must_be(size):
    """Among the worst counts of all, those at the bounds: by the exact law."""
    statistic = dpp.first_above("x", range(size), threshold=300, epsilon=0.5).query
    above, below = statistic.errors(size, 0.05)
    assert statistic.error(size, 0.05) == max(above, below)
    rate = float(statistic.claim.rate)
    assert above == pytest.approx(math.log(10) / rate)
    assert below == pytest.approx(math.log(10 * size) / rate)
    counts = np.full((1, size), 300 - below)
    found = 1 - np.exp(log_law(counts, 300, rate, 1)[0, -1])
    assert 0.045 <= found <= 0.05  # the bound of the union is nearly attained
    passed = np.zeros((1, size + 1))
    passed[0, 0] = 300 + above
    assert 1 - np.exp(log_law(passed, 300, rate, 1)[0, 0]) == pytest.approx(0.05)


def test_explain_says_both_errors_and_when_counts_are_better():
    frame = dpp.protect("p", max_groups=1, max_rows_per_group=1).group_by({"g": range(3)})
    explained = frame.agg(a=ask(threshold=20)).explain().row(0, named=True)
    assert explained["error_95"] == pytest.approx(math.log(50) * 2)
    assert explained["error_unit"] == "people"
    assert "Passes over no candidate with 4.61 more than the threshold" in explained["note"]
    assert "answers none with over 7.83 less: each with probability 0.95" in explained["note"]
    assert "Better: value_counts. One person counts for at most 1 of the candidates" in explained["note"]
    many = dpp.protect("p", max_groups=1).group_by({"g": range(3)})
    assert "value_counts" not in many.agg(a=ask(threshold=20)).explain()["note"].item()
    assert re.search("note: .*Passes over no candidate", repr(ask()))


def test_the_order_is_that_of_the_list():
    frame = pl.DataFrame({"x": ["a"] * 50 + ["b"] * 60 + ["c"] * 5})
    for order in itertools.permutations("abc"):
        first = next(name for name in order if name != "c")
        assert frame.select(X.dp.first_above(order, threshold=30, **SURE)).item() == first
    assert frame.select(X.dp.first_above(["c", "no such"], threshold=30, **SURE)).item() is None
    asked = X.dp.first_above(["c", "b"], threshold=Decimal("49.5"), gap=True, **SURE)
    assert frame.select(asked).item() == {"answer": "b", "gap": 10}
    assert frame.select(X.cast(pl.Enum(["c", "b", "a"])).dp.first_above(None, threshold=30, **SURE)).item() == "b"


@pytest.mark.parametrize(
    "candidates",
    [
        [dt.date(2024, 3, 1), dt.date(2024, 1, 1), dt.date(2024, 2, 1)],
        dpp.grid(dt.date(2024, 1, 1), dt.date(2024, 12, 1), step="1d"),
        pl.Series([dt.date(2024, 2, 1)]),
    ],
)
def test_dates(candidates):
    frame = pl.DataFrame({"x": [dt.date(2024, 2, 1)] * 30 + [dt.date(2024, 1, 1)] * 2})
    assert frame.select(X.dp.first_above(candidates, threshold=20.5, **SURE)).item() == dt.date(2024, 2, 1)


def test_people_count_once_for_each_candidate():
    rows = pl.DataFrame({"p": [1] * 40 + list(range(12)), "x": [1] * 40 + [3] * 12})
    for counts, answer in (("people", 3), ("rows", 1)):
        frame = rows.dp.protect("p", max_rows=100)
        assert frame.agg(a=ask(threshold=9.5, counts=counts, **SURE)).release().item() == answer


def test_it_is_kept_pickled_and_described():
    asked = ask(gap=True)
    assert str(asked.query) == "first of 5 candidates above 3, and its gap"
    assert str(ask(counts="rows", threshold=2.5).query) == "first of 5 candidates above 2.5 by rows"
    query = dpp.protect("p", max_groups=1).group_by({"g": [1, 2]}).agg(a=asked)
    assert pickle.loads(pickle.dumps(query))._asks[0].query == asked.query.under(
        query._asks[0].query.claim.contributions, "add_or_remove_one", 2
    )


def test_runs_of_one_count():
    counts = np.array([[0, 0, 3, 3, 0, 2, 2, 2], [0] * 8, [1] * 8, [4, 0, 0, 0, 0, 0, 0, 4]])
    groups, codes = np.nonzero(counts)
    first, runs = count_runs(Histogram.of_cells(groups, codes, counts[groups, codes], 4), 8)
    assert runs.sizes.tolist() == [4, 1, 1, 3]
    assert runs.counts.tolist() == [0, 3, 0, 2, 0, 1, 4, 0, 4]
    assert runs.multiplicities.tolist() == [2, 2, 1, 3, 8, 8, 1, 6, 1]
    assert first.tolist() == [0, 2, 4, 5, 0, 0, 0, 1, 7]
    nothing = np.empty(0, np.int64)
    codes, gaps = first_above_groups(Search(8, Fraction(2), Fraction(1)), Histogram(nothing, nothing, nothing))
    assert len(codes) == len(gaps) == 0


def test_the_simulated_law_is_the_exact_one():
    rows = pl.DataFrame({"x": [0] * 1 + [2] * 4 + [3] * 5})  # counts 1 0 4 5 0
    asked = dpp.first_above("x", range(5), threshold=4, epsilon=1, gap=True)
    result = analysis.simulate(asked, rows, losses=[0.3, 1, 5])
    for row, epsilon in zip(result.iter_rows(named=True), (0.3, 1, 5), strict=True):
        law = np.exp(log_law([[1, 0, 4, 5, 0]], 4, epsilon / 2, 1)[0])
        assert row["true_answer"] == 2
        assert row["probability_true"] == pytest.approx(law[2], abs=1e-13)
        assert row["expected_error"] == pytest.approx(law @ [3, 4, 0, 0, 4, 1], abs=1e-12)
        upto = np.cumsum(law)
        answers = [*range(5), None]
        assert row["answer_5"] == answers[int(np.searchsorted(upto, 0.05))]
        assert row["answer_95"] == answers[int(np.searchsorted(upto, 0.95))]
        assert (row["counted"], row["error_unit"], row["mechanism"]) == (10, "rows", "first_above")
    assert not result["ordered"].any()


def test_a_simulated_range_ends_inside_a_run():
    rows = pl.DataFrame({"x": [7, 7, 995]})
    asked = dpp.first_above("x", range(1_000), threshold=6, epsilon=1)
    row = analysis.simulate(asked, rows).row(0, named=True)
    counts = np.zeros((1, 1_000))
    counts[0, [7, 995]] = 2, 1
    # In chunks of equal candidates the law is that of one by one.
    u, weights = ((np.polynomial.legendre.leggauss(600)[i] + 1 - i) / 2 for i in range(2))
    w = np.exp(0.5 * (counts[0] - 6))[:, None]
    upto = 1 - np.cumprod(1 - w * u, axis=0) @ weights
    assert row["answer_5"] == int(np.searchsorted(upto, 0.05))
    assert row["answer_95"] == int(np.searchsorted(upto, 0.95)) or upto[-1] < 0.95
    assert row["true_answer"] is None
    assert row["probability_true"] == pytest.approx(1 - upto[-1], abs=1e-12)
    assert row["expected_error"] == pytest.approx((1 - upto[-1]) * 0 + np.diff(upto, prepend=0) @ (6 - counts[0]))


def test_bounds_of_a_private_frame_are_simulated():
    rows = pl.DataFrame({"p": [1] * 6 + [2] * 6, "g": [0, 1] * 6, "x": [1, 1, 2, 2, 3, 3] * 2})
    frame = dpp.protect("p", max_groups=1).group_by({"g": [0, 1, 2]})
    query = frame.agg(a=dpp.first_above("x", range(4), threshold=2, epsilon=1))
    result = analysis.simulate(query, rows)
    assert result["true_answer"].to_list() == [1, 1, None]
    assert result["counted"].sum() + result["left_out"].sum() == 12
    assert result["left_out"].sum() == 6
