"""Sums of people's totals: what is clipped, what is charged, and what is refused."""

import datetime as dt
import math
from decimal import Decimal
from fractions import Fraction

import polars as pl
import pytest

import dp_polars as dpp
from dp_polars._accounting.terms import Contributions
from dp_polars._mechanisms.noise import noise_bound
from dp_polars.analysis import simulate

SURE = {"epsilon": 10**12}
KEYS = {"g": [0, 1]}
CENTS = pl.Decimal(9, 2)


def visits(values, dtype=None):
    """Person, group and value of each row."""
    people, groups, column = zip(*values, strict=True)
    return pl.DataFrame({"p": people, "g": groups, "x": pl.Series(column, dtype=dtype, strict=False)})


def total(frame, lower, upper, ends, **options):
    grouped = frame.dp.protect("p").group_by(KEYS)
    return grouped.agg(x=dpp.sum("x", lower, upper, per_person=ends, **{**SURE, **options})).release()["x"].to_list()


def test_values_are_clipped_first_and_then_the_total_of_a_person_in_a_group():
    frame = visits([(1, 0, 9), (1, 0, 9), (1, 0, -9), (1, 1, 2), (2, 0, -1), (2, 0, None), (None, 0, 5), (3, 7, 5)])
    assert total(frame, -2, 4, (-3, 5)) == [(4 + 4 - 2 > 5) * 5 - 1, 2]
    assert total(frame, -9, 9, (-3, 5)) == [5 - 1, 2]
    assert total(frame, 0, 3, (0, 100)) == [6, 2]


def test_a_person_without_a_value_adds_nothing():
    frame = visits([(1, 0, None), (2, 0, 1), (3, 1, None)], pl.Int64())
    assert total(frame, 0, 5, (3, 5)) == [3, 0]
    assert total(frame, 0, 5, (-5, -3)) == [-3, 0]
    nan = visits([(1, 0, float("nan")), (2, 0, 1.0), (3, 1, float("nan"))])
    assert total(nan, 0, 5, (3, 5), step=0.5) == [3.0, 0.0]


@pytest.mark.parametrize(
    ("dtype", "values", "step", "ends", "answer", "type_"),
    [
        (pl.Int8(), [100, 100], None, (0, 150), 150, pl.Int64()),
        (pl.UInt64(), [2**64 - 1, 3], 10, (0, 50), 50, pl.Int64()),
        (pl.Boolean(), [True, True, None], None, (0, 1), 1, pl.Int64()),
        (pl.Float32(), [1.26, float("inf")], 0.5, (-1, 150), 101.5, pl.Float64()),
        (CENTS, [Decimal("1.25"), Decimal("0.01")], None, (0, Decimal("1.5")), Decimal("1.26"), pl.Decimal(38, 2)),
        (CENTS, [Decimal("1.25"), Decimal("7")], Decimal("0.5"), (0, 8), Decimal("8.0"), pl.Decimal(38, 2)),
    ],
)
def test_types_and_steps(dtype, values, step, ends, answer, type_):
    frame = visits([(1, 0, value) for value in values], dtype)
    upper = 1 if dtype == pl.Boolean() else 100
    query = frame.dp.protect("p").agg(x=dpp.sum("x", 0, upper, step=step, per_person=ends, **SURE))
    released = query.release()
    assert released.schema["x"] == type_
    assert released.item() == answer


@pytest.mark.parametrize(
    ("ends", "relation", "groups", "expected", "same_group"),
    [
        ((-2, 5), "add_or_remove_one", 3, 5, 1),
        ((-7, 5), "add_or_remove_one", 1, 7, 1),
        ((0, 5), "replace_one", 1, 5, 1),
        ((2, 5), "replace_one", 1, 5, 1),
        ((-5, -2), "replace_one", 1, 5, 1),
        ((0, 5), "replace_one", 3, 10, Fraction(1, 2)),
        ((-2, 5), "replace_one", 1, 7, 1),
        ((-7, 5), "replace_one", 1, 12, 1),
        ((-2, 5), "replace_one", 3, 10, Fraction(7, 10)),
    ],
)
def test_one_person_changes_a_group_by_their_total(ends, relation, groups, expected, same_group):
    private = dpp.protect("p", max_rows_per_group=9, neighboring_relation=relation).group_by({"g": range(groups)})
    claim = private.agg(x=dpp.sum("x", -100, 100, per_person=ends, rho=1))._asks[0].query.claim
    assert claim.score_range == expected
    assert claim._same_group == same_group
    assert claim.contributions == Contributions(groups, 1)


@pytest.mark.parametrize(
    ("bounds", "groups"),
    [
        ({}, 5),
        ({"max_groups": 2}, 2),
        ({"max_rows_per_group": 7}, 5),
        ({"max_rows": 3}, 3),
        ({"max_rows": 3, "max_groups": 2}, 2),
        ({"max_rows": 4}, 4),
    ],
)
def test_bounds_count_as_for_people(bounds, groups):
    private = dpp.protect("p", **bounds).group_by({"g": range(5)})
    query = private.agg(x=dpp.sum("x", 0, 9, per_person=(0, 20), epsilon=1), n=dpp.n_people(epsilon=1))
    totals, people = (ask.query.claim for ask in query._asks)
    assert totals.contributions == people.contributions == Contributions(groups, 1)
    assert (totals.rate * 20, totals.score_range) == (people.rate, 20)
    assert not query.explain()["limits"].fill_null("").str.contains("max_rows_per_group").any()


def test_explain_and_the_ledger_say_what_is_clipped():
    budget = dpp.Budget(epsilon=9)
    private = visits([(1, 0, 2.5)]).dp.protect("p", max_groups=1, budget=budget).group_by(KEYS)
    query = private.agg(x=dpp.sum("x", -1, 4, step=0.5, per_person=(-2, 10), epsilon=1))
    (row,) = query.explain().to_dicts()
    assert row["selects"] == "sum of values from -1 to 4, per person from -2 to 10"
    assert row["error_unit"] == "the column's unit"
    (noise,), (bits,) = (of(pl.Float64()) for of in (query._asks[0].query.noise, query._asks[0].query.bits_of_parts))
    assert row["error_95"] == (noise_bound(noise, 0.05) / 2**bits + 0.5) / 2  # in halves, to the nearest one
    assert row["error_95"] == pytest.approx(10 * math.log(20) + 0.25, abs=0.001)
    assert row["note"].startswith(
        "Counts people beyond max_groups=1 in part, so their rows count less; "
        "clips a person's total to -2 … 10. "
        "The error is that of the noise alone."
    )
    query.release()
    assert budget.log()["what"].item() == "x: sum of values from -1 to 4, per person from -2 to 10"
    assert query._request.drops()
    assert dpp.protect("p").agg(x=dpp.sum("x", 0, 1, per_person=(0, 2), epsilon=1))._request.drops()
    from_0 = dpp.protect("p", max_groups=1).group_by(KEYS).agg(x=dpp.sum("x", -1, 4, per_person=(0, 5), epsilon=1))
    assert "in part, which makes it too low; clips a person's total to 0 … 5." in from_0.explain()["note"].item()


def test_a_simulation_takes_clipped_totals_for_the_truth():
    """Each row without a person is taken for one person; people in two groups are kept in one."""
    rows = visits([(1, 0, 3), (1, 0, 3), (2, 0, 1), (None, 0, 9), (None, 0, None), (None, 0, 1), (None, 1, 2)])
    query = dpp.protect("p", max_groups=1).group_by(KEYS).agg(x=dpp.sum("x", 0, 9, per_person=(2, 5), epsilon=1))
    found = simulate(query, rows)
    assert found["true_answer"].to_list() == [5 + 2 + 5 + 2, 2]
    assert found.select("counted", "left_out").rows() == [(2, 2), (0, 1)]
    assert found["error_unit"].to_list() == ["the column's unit"] * 2
    assert found["answer_5"][0] < 7 < found["answer_95"][0]
    with pytest.raises(ValueError, match="must be one of a private frame with a privacy unit, for a sum of values"):
        simulate(dpp.sum("x", 0, 9, per_person=(2, 5), epsilon=1), rows)


def test_sums_of_the_largest_totals_fit_into_62_bits():
    """2**30 steps of a row, and 2**30 of a person: no more."""
    assert total(visits([(1, 0, 2**40)] * 3), 0, 2**30, (0, 2**30)) == [2**30, 0]
    for ends, steps in (((0, 2**30 + 1), None), ((-(2**30), 1), None), ((0, 2**31), 1)):
        with pytest.raises(ValueError, match=r"must be at most 2\*\*30 steps"):
            total(visits([(1, 0, 1)]), 0, 9, ends, step=steps)


PAIR = r"per_person must be a pair \(lo, hi\) or None, got .*Hint: per_person=\(0"
ORDERED = r"per_person must be \(lo, hi\) with lo below hi, got .*Hint: "
MULTIPLES = "per_person must be whole multiples of step, got 0.3 .*Hint: round out"
REFUSED = [
    *(
        (ends, {}, TypeError, PAIR)
        for ends in (5, "ab", (1,), (1, 2, 3), {0, 1}, {"lo": 0, "hi": 1}, pl.Series([0, 1]))
    ),
    *((ends, {}, TypeError, r"per_person\[[01]\] must be") for ends in ((None, 1), ("a", 1), (0, dt.date(2020, 1, 1)))),
    *((ends, {}, ValueError, ORDERED) for ends in ((1, 0), (1, 1), (0, 0))),
    ((0, 0.3), {"step": 0.5}, ValueError, MULTIPLES),
]


@pytest.mark.parametrize(("ends", "options", "error", "words"), REFUSED)
def test_ends_are_an_ordered_pair_of_multiples_of_the_step_for_all_rows(ends, options, error, words):
    with pytest.raises(error, match=f"(?s)^{words}"):
        dpp.sum("x", 0, 9, per_person=ends, epsilon=1, **options)


def test_ends_that_the_column_can_not_hold_are_refused_and_not_charged():
    budget = dpp.Budget(epsilon=9)
    private = visits([(1, 0, 5)]).dp.protect("p", budget=budget)
    with pytest.raises(ValueError, match="per_person must be values that a column of type Int64 can hold"):
        private.agg(dpp.sum("x", 0, 9, per_person=(0, 2.5), epsilon=1)).release()
    assert budget.spent == 0


def test_who_is_a_person_must_be_known():
    asked = dpp.sum("x", 0, 9, per_person=(0, 5), epsilon=1)
    with pytest.raises(pl.exceptions.ComputeError, match="must be used on a private frame that knows who is a person"):
        visits([(1, 0, 1)]).lazy().select(asked).collect_schema()
    with pytest.raises(ValueError, match="privacy_unit must be given for a sum of values from 0 to 9, per person"):
        dpp.protect(None).agg(asked)


def test_it_shares_the_people_of_a_count():
    """A mean total is the quotient of two answers about the same people."""
    private = dpp.protect("p", max_groups=1, max_rows=1).group_by(KEYS)
    query = private.agg(x=dpp.sum("x", 0, 9, per_person=(1, 5), epsilon=1000), n=dpp.count("x", epsilon=1))
    rows = pl.DataFrame({"p": [i // 2 for i in range(200)], "g": [i % 2 for i in range(200)], "x": [9] * 200})
    assert query.release(rows)["x"].sum() == 5 * 100
