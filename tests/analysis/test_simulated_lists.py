"""Simulated lists: many draws, beside the exact laws where there are some, and beside releases."""

import datetime as dt
from fractions import Fraction

import numpy as np
import polars as pl
import pytest

import dp_polars as dpp
from dp_polars import analysis
from dp_polars.analysis import _simulated as module
from tests.registry import MECHANISMS

X = pl.col("x")
QUARTILES = [0.25, 0.5, 0.75]


def two_groups():
    rng = np.random.default_rng(5)
    return pl.DataFrame({"g": ["a"] * 300 + ["b"] * 40, "x": rng.integers(0, 50, 340)})


@pytest.mark.slow
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_list_of_one_is_like_its_exact_law(mechanism, monkeypatch):
    monkeypatch.setattr(module, "DRAWS", 20_000)
    monkeypatch.setattr(module, "_BEYOND", 1_000)
    frame, options = two_groups(), {"by": "g", "losses": [0.05, 0.3]}
    ask = {"epsilon": 1, "mechanism": mechanism}
    exact = analysis.simulate(X.dp.quantile(0.3, range(50), **ask), frame, **options)
    found = analysis.simulate(X.dp.quantile([0.3], range(50), **ask), frame, **options)
    for name in ("g", "output", "loss", "counted", "left_out", "error_unit", "mechanism"):
        assert found[name].to_list() == exact[name].to_list()
    assert found["true_answer"].list.first().to_list() == exact["true_answer"].to_list()
    for row, (true, wrong, ranks) in zip(
        exact.rows(named=True),
        found.select("probability_true", "expected_error", "expected_rank_error").rows(),
        strict=True,
    ):
        # Seven standard deviations of a mean of 20,000; an error is at most 49, or as many rows as the group has.
        assert abs(true - row["probability_true"]) < 7 * 0.5 / 20_000**0.5
        assert abs(wrong - row["expected_error"]) < 7 * (49 * row["expected_error"] / 20_000) ** 0.5
        assert abs(ranks - row["expected_rank_error"]) < 7 * (300 * row["expected_rank_error"] / 20_000) ** 0.5
    for end, tolerance in (("answer_5", 2), ("answer_95", 2)):
        assert (found[end].list.first() - exact[end]).abs().max() <= tolerance


def test_a_private_frame_with_lists_and_numbers_beside_them():
    frame = two_groups().with_columns(p=pl.int_range(pl.len()) // 3)
    query = (
        dpp.protect("p", max_rows_per_group=2, max_groups=1)
        .group_by({"g": ["a", "b", "nobody"]})
        .agg(q=X.dp.quantile(QUARTILES, range(50), epsilon=30), n=dpp.n_people(epsilon=1))
    )
    found = analysis.simulate(query, frame)
    lists = found.filter(output="q")
    assert lists["counted"].to_list() == [200, 27, 0]
    assert (lists["counted"] + lists["left_out"]).to_list() == [300, 40, 0]
    assert found["true_answer"].dtype == pl.String  # beside numbers
    true = [", ".join(str(int(v)) for v in each) for each in _lower(frame)]
    assert lists["true_answer"].to_list() == [*true, None]
    assert lists["expected_error"].is_null().to_list() == [False, False, True]
    assert lists["ordered"].all()
    assert set(lists["selects"]) == {"quantiles (0.25, 0.5, 0.75) on 50 grid points"}


def _lower(frame):
    for group in ("a", "b"):
        rows = np.sort(frame.filter(g=group)["x"].to_numpy())
        yield rows[[int(np.ceil(Fraction(a) * len(rows))) - 1 for a in QUARTILES]]


def test_errors_are_those_of_releases_and_ends_hold_most_of_them():
    frame = two_groups()
    expr = X.dp.quantile(QUARTILES, range(50), epsilon=1)
    found = analysis.simulate(expr, frame, by="g")
    assert found.schema["true_answer"] == pl.List(pl.Int64)
    copies = pl.concat([frame.with_columns(draw=pl.lit(i)) for i in range(300)])
    answers = copies.group_by("draw", "g").agg(expr)
    for row in found.rows(named=True):
        released = np.array(answers.filter(g=row["g"])["x"].to_list())
        off = np.abs(released - row["true_answer"]).mean(axis=1)
        assert abs(off.mean() - row["expected_error"]) < 7 * off.std() * (1 / 300 + 1 / module.DRAWS) ** 0.5
        for end, beyond in (("answer_5", released < row["answer_5"]), ("answer_95", released > row["answer_95"])):
            assert (beyond.mean(axis=0) < 0.15).all(), end  # 0.05, of which the end itself is uncertain


def test_the_unit_is_that_of_the_candidates():
    days = [dt.date(2020, 1, 1) + dt.timedelta(days=i) for i in range(60)]
    expr = X.dp.quantile(QUARTILES, days, epsilon=100)
    row = analysis.simulate(expr, pl.DataFrame({"x": days * 5})).row(0, named=True)
    assert row["error_unit"] == "days"
    assert row["true_answer"] == [days[14], days[29], days[44]]
    assert row["expected_error"] < 1


@pytest.mark.parametrize("cells", [1, 2_000])
def test_draws_in_parts_are_all_draws(cells, monkeypatch):
    monkeypatch.setattr(module, "_CELLS", cells)
    expr = X.dp.quantile(QUARTILES, range(50), epsilon=10**4)
    found = analysis.simulate(expr, two_groups(), by="g")
    assert found["probability_true"].to_list() == [1, 1]
    assert (
        found["answer_5"].to_list() == found["answer_95"].to_list() == [each.tolist() for each in _lower(two_groups())]
    )


def test_lists_are_drawn_from_the_rows_that_bounds_keep_and_rows_without_a_person_are_part_of_the_truth():
    frame = pl.DataFrame({"p": [0] * 1000 + list(range(1, 51)), "x": [90] * 1000 + [10] * 50})
    asked = dpp.quantile("x", [0.25, 0.5], range(101), epsilon=1000)
    found = analysis.simulate(dpp.protect("p", max_rows=1).agg(q=asked), frame)
    assert found["true_answer"].item().to_list() == [90, 90]
    assert found["answer_5"].item().to_list() == found["answer_95"].item().to_list() == [10, 10]
    frame = pl.DataFrame({"p": [1, 2, None, None]})
    found = analysis.simulate(dpp.protect("p", max_rows=1).agg(n=dpp.len(epsilon=1)), frame)
    assert found.select("true_answer", "counted", "left_out").row(0) == (4, 2, 2)
