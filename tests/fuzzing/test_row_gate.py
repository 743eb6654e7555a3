"""What the row gate accepts gives the same for a row whatever the others are: on expressions of all kinds."""

from __future__ import annotations

import datetime as dt
from contextlib import nullcontext, suppress
from decimal import Decimal

import polars as pl
import pytest
from polars.testing import assert_series_equal

from dp_polars._sources.running import NO_FILTER_IN_SCANS
from dp_polars._steps import gate
from tests.fuzzing.exploring import explore
from tests.fuzzing.expressions import Case, Tally, attempt, cases
from tests.helpers.needs import IS_OLD

# What searches found, or would have found before the gate was as it is.
KNOWN = [
    Case(("Float64",), ((49.0,), (49.0,)), "c0 / 49"),
    Case(("Float64",), ((49.0,), (49.0,)), "c0 // 49"),
    Case(("Float64", "Float64"), ((-0.0, 0.0), (0.0, 0.0)), "1 / (0 - c0)"),
    Case(("Int64",), ((1,), (5,)), "c0 - c0.mean()"),
    Case(("String",), (("2020-01-31",), ("12",)), "c0.str.to_date()"),
    Case(("Float64",), ((0.5,), (2.0,)), "c0.cut([1.0]).to_physical()"),
    Case(("List of floats",), (([1e16, *[1.0] * 128, -1e16],), ([None],)), "c0.list.sum()"),
    Case(("Categorical",), (("a",), ("b",)), "c0.hash()"),
    Case(("Date",), ((None,), (None,)), "c0.dt.year()"),
    # Polars 1.36 takes the category of this number, which other rows decide.
    Case(("named Categorical",), (("日本",), ("a",)), "c0.replace(1, 2)"),
    # Polars 1.36 rounds to what a Decimal of ten digits does not hold, and raises in the comparison.
    Case(("Decimal", "Decimal"), ((Decimal("99999999.99"), Decimal(0)), (None, None)), "c0.round(1) > c1"),
    # The sign of a zero depends on the number of rows, and a text among numbers shows it.
    Case(("Float64", "Boolean"), ((0.0, True), (0.0, True)), "pl.when(c1).then(0 - c0).otherwise(pl.lit('a'))"),
    Case(("Float64",), ((0.0,), (0.0,)), "(0 - c0).fill_null('a')"),
    Case(("Float64",), ((0.0,), (0.0,)), "pl.coalesce(0 - c0, pl.lit('a'))"),
    # On Polars 1.36 another row's null decided these.
    Case(("Int64",), ((0,), (None,)), "c0.cast(pl.Enum(['a', 'b']))"),
    Case(("UInt64", "Date"), ((1, dt.date(2020, 1, 1)), (None, None)), "pl.max_horizontal(c0, c1)"),
    Case(("Datetime", "Date"), ((None, None), (None, None)), "c0.is_in([dt.datetime(2021, 3, 28, 2, 30)])"),
    # On Polars 1.36 what stood twice had one chunk, the rows several.
    Case(("Int64",), ((5,), (None,), (7,)), "pl.coalesce(c0 + pl.lit(3).abs(), c0 - pl.lit(3).abs())"),
    Case(
        ("Int64",), ((5,), (None,), (7,)), "(pl.date(2020, c0, 1) > pl.date(2020, 1, 1)) | (c0 > pl.date(2020, 1, 1))"
    ),
    # Polars crashed where these were tried.
    Case(("Struct",), ((None,), (None,)), "pl.arctan2(c0, c0)"),
    Case(("Struct",), ((None,), (None,)), "c0.log10()"),
]


def unchanged(expr: pl.Expr, *_: object) -> pl.Expr:
    """No gate at all."""
    return expr


def check(case: Case, pass_by=gate.row_by_row, tally: Tally | None = None) -> None:
    def prove(expr: pl.Expr) -> pl.Expr | None:
        safe = pass_by(expr, case.schema, "filter")
        return safe if len(pl.LazyFrame(schema=case.schema).select(safe).collect_schema()) == 1 else None

    attempt(case, prove, lambda safe: check_rows(case, safe), tally)


def check_rows(case: Case, safe: pl.Expr) -> None:
    places = range(len(case.rows))
    whole = result(case.frame(*places), safe)
    alone = pl.concat([result(case.frame(place), safe) for place in places])
    same(whole, alone, "each row alone")
    backwards = list(places)[::-1]
    same(whole, result(case.frame(*backwards), safe).gather(backwards), "in reversed order")
    short = pl.concat([case.frame(*places[i : i + 2]) for i in places[::2]], rechunk=False)
    same(whole, result(short, safe), "in short chunks")
    same(whole, result(case.frame(*places), safe, engine="streaming"), "streaming")
    twice = result(case.frame(*places, *places), safe)
    same(whole, twice.tail(len(case.rows)), "after as many other rows")
    null = case.frame().clear(1)
    for place in places:
        row = case.frame(place)
        for others, own in (([row, row], 1), ([row, null], 0), ([null, row], 1)):
            beside = result(pl.concat(others, rechunk=True), safe)
            same(whole[place : place + 1], beside[own : own + 1], "each row twice, or beside a null")


def result(frame: pl.DataFrame, expr: pl.Expr, engine: str = "in-memory") -> pl.Series:
    """What the expression gives for each row; texts for categories, whose numbers tell of other rows."""
    plan = frame.lazy().with_columns(expr.alias("result")).select("result")
    made = plan.collect(engine=engine, optimizations=NO_FILTER_IN_SCANS).to_series()
    return made.cast(pl.String) if isinstance(made.dtype, pl.Categorical) else made


def same(whole: pl.Series, other: pl.Series, how: str) -> None:
    try:
        assert_series_equal(whole, other, check_exact=True)
    except AssertionError as error:
        msg = f"all rows together give another result than {how}: {whole.to_list()} and {other.to_list()}"
        raise AssertionError(msg) from error


@pytest.mark.slow
def test_what_the_gate_accepts_is_row_by_row(request):
    tally = Tally()
    explore(lambda case: check(case, tally=tally), cases(), examples=5000, known=KNOWN, config=request.config)
    if request.config.getoption("--long") is None:  # else this would be a test of nothing
        assert tally.built > 4000
        assert len(tally.accepted) > (50 if IS_OLD else 500)


@pytest.mark.slow
def test_without_the_gate_the_search_finds_what_looks_at_other_rows():
    def alike(case: Case) -> None:
        with suppress(AssertionError) if raises(case) else nullcontext():
            check(case, unchanged)

    def raises(case: Case) -> bool:
        expr = case.build()
        try:
            return expr is None or result(case.frame(*range(len(case.rows))), expr) is None
        except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
            return True

    with pytest.raises(AssertionError, match="all rows together give another result"):
        explore(alike, cases(), examples=500, shrinks=False)


@pytest.mark.parametrize("case", [KNOWN[0], KNOWN[3]], ids=lambda case: case.text)
def test_without_the_gate_known_cases_depend_on_other_rows(case):
    check(case)
    with pytest.raises(AssertionError, match="all rows together give another result"):
        check(case, unchanged)
