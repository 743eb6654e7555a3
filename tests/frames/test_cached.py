"""Cached answers: the same query is answered once more for nothing, and only the same query."""

import copy
import logging
import math
import os
import pickle
import re
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import cached_property

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal, assert_series_equal
from pyarrow.dataset import dataset

import dp_polars as dpp
from dp_polars._accounting import ledger
from dp_polars._accounting.terms import Loss
from dp_polars._engines.polars.engine import PolarsEngine
from dp_polars._release import cached as release_module
from dp_polars._release.cached import stored_query_of, written
from dp_polars._release.contract import Output
from dp_polars._release.request import Request, with_ends
from dp_polars._sources.files import mark_of_files
from dp_polars._sources.marks import digest_of, mark_of, text_of_plan
from dp_polars._statistics.categories import Mode
from tests.helpers.needs import IS_OLD

ROWS = pl.DataFrame(
    {
        "p": [i // 2 for i in range(400)],
        "ward": ["A", "B"] * 200,
        "x": [i % 50 for i in range(400)],
        "f": [i / 7 for i in range(400)],
        "c": pl.Series(["u", "v"] * 200, dtype=pl.Categorical),
        "e": pl.Series(["u", "v"] * 200, dtype=pl.Enum(["u", "v"])),
        "t": [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=i) for i in range(400)],
        "d": [date(2026, 1, 1) + timedelta(days=i % 30) for i in range(400)],
        "m": pl.Series([Decimal(i) / 4 for i in range(400)], dtype=pl.Decimal(10, 2)),
    }
)
WARDS = {"ward": ["A", "B", "C"]}
X = pl.col("x")


def median(**options):
    return X.dp.median(range(50), **({"epsilon": 0.125} | options))


# Two draws of it are hardly ever the same.
GRID = X.dp.median(dpp.grid(0, 50, step=1e-9), epsilon=0.125)


def asked(budget, *exprs, rows=ROWS, steps=lambda frame: frame, keys=WARDS, dataset="visits", unit="p", **options):
    frame = steps(rows.dp.protect(unit, budget=budget, dataset=dataset, **({"max_rows": 2} if unit else {}) | options))
    grouped = frame if keys is None else frame.group_by(keys)
    return grouped.agg(*(exprs or [median()]))


def unbound(budget, **more):
    return dpp.protect("p", budget=budget, dataset="visits", max_rows=2, **more).group_by(WARDS).agg(median())


def test_the_same_query_is_answered_once_more_for_nothing(budget, caplog):
    caplog.set_level(logging.INFO, "dp_polars")
    first = asked(budget).release()
    assert [message.split()[-1] for message in caplog.messages] == ["begins.", "ended."]
    caplog.clear()
    assert budget.spent == Fraction(1, 8)
    for again in (asked(budget).release(), asked(dpp.Budget(epsilon=100, path=budget._path)).release()):
        assert_frame_equal(again, first)
    assert budget.spent == Fraction(1, 8)
    assert budget.log().height == 1
    assert [record.levelname for record in caplog.records] == ["INFO", "INFO"]
    assert "about 'visits' is returned once more" in caplog.text
    assert "nothing is charged. release(ignore_cache=True) draws anew." in caplog.text


def test_a_cached_answer_reads_no_row(budget, tmp_path):
    path, plain = tmp_path / "rows.parquet", ROWS.drop("c", "e")
    plain.write_parquet(path)
    rows = pl.scan_parquet(path, schema=plain.schema)
    first, query = asked(budget, rows=rows).release(), asked(budget, rows=rows)
    plain.clear().write_parquet(path)
    with pytest.warns(dpp.CachedAnswerWarning):
        assert_frame_equal(query.release(), first)


def test_fresh_draws_and_pays_anew_and_the_newest_is_cached(budget):
    first = asked(budget, GRID).release()
    second = asked(budget, GRID).release(ignore_cache=True)
    assert budget.spent == Fraction(1, 4)
    assert not first.equals(second)
    assert_frame_equal(asked(budget, GRID).release(), second)
    assert budget.answers().height == 2
    assert budget.spent == Fraction(1, 4)


def test_a_spent_budget_still_answers_what_it_keeps(tmp_path):
    budget = dpp.Budget(epsilon=0.125, path=tmp_path / "ledger.db")
    first = asked(budget).release()
    assert budget.remaining == 0
    assert_frame_equal(asked(budget).release(), first)
    for refused in (asked(budget, median(epsilon=0.1)).release, lambda: asked(budget).release(ignore_cache=True)):
        with pytest.raises(dpp.BudgetExceededError):
            refused()


def test_who_asks_at_once_may_pay_twice_and_never_not_at_all(budget):
    with ThreadPoolExecutor(4) as threads:
        released = list(threads.map(lambda _: asked(budget, GRID, keys=None).release().item(), range(8)))
    charges, answers = budget.log().height, budget.answers().height
    assert 1 <= answers == charges <= 4
    assert len(set(released)) <= charges


def test_without_a_name_nothing_is_cached(budget):
    query = asked(budget, GRID, dpp.len(epsilon=0.125), dataset=None)
    first, *others = (query.release(**how) for how in ({}, {}, {"ignore_cache": True}, {"intervals": True}))
    assert not any(first.equals(other.select(first.columns)) for other in others)
    assert budget.spent == 1
    assert budget.answers().is_empty()


def test_how_it_is_asked_and_counted_is_no_part_of_the_query(budget, engine):
    first, query = asked(budget).release(engine=engine, partitions=3), unbound(budget)
    for other in (query, copy.copy(query), pickle.loads(pickle.dumps(query))):
        for rows in (ROWS, ROWS.lazy()):
            assert_frame_equal(other.release(rows), first)
    assert_frame_equal(asked(budget).release(), first)
    assert budget.spent == Fraction(1, 8)


def test_into_a_file(budget, tmp_path):
    asked(budget).sink_parquet(tmp_path / "one.parquet", intervals=True)
    asked(budget).sink_parquet(tmp_path / "two.parquet", intervals=True)
    asked(budget).sink_parquet(tmp_path / "three.parquet", intervals=True, ignore_cache=True)
    assert budget.spent == Fraction(1, 4)
    assert_frame_equal(pl.read_parquet(tmp_path / "one.parquet"), pl.read_parquet(tmp_path / "two.parquet"))
    assert dpp.read_claim(tmp_path / "two.parquet")["loss"] == "epsilon=0.125"


@dataclass(frozen=True)
class Other(Mode):
    """A mode by another name."""


JOINED = pl.DataFrame({"x": [1, 2, 3], "y": ["a", "b", "c"]})
ANSWERS = {
    "a loss": [median(epsilon=0.25)],
    "a loss, by a hair": [median(epsilon=Fraction(1, 8) + Fraction(1, 10**30))],
    "a loss in rho": [median(epsilon=None, rho=0.125)],
    "a mechanism": [median(mechanism="exponential")],
    "a quantile": [X.dp.quantile(0.51, range(50), epsilon=0.125)],
    "candidates": [X.dp.median(range(51), epsilon=0.125)],
    "a step of candidates": [X.dp.median(range(0, 50, 7), epsilon=0.125)],
    "listed candidates": [X.dp.median([0, 1, 5], epsilon=0.125)],
    "other listed candidates": [X.dp.median([0, 1, 6], epsilon=0.125)],
    "narrow candidates": [X.dp.median(pl.Series([0, 1, 5], dtype=pl.Int16), epsilon=0.125)],
    "float candidates": [X.dp.median([0.0, 1.0, 5.0], epsilon=0.125)],
    "another float": [X.dp.median([0.0, 1.0, np.nextafter(5.0, 6)], epsilon=0.125)],
    "a column": [pl.col("f").dp.median(range(50), epsilon=0.125)],
    "an expression": [(X + 1).dp.median(range(50), epsilon=0.125)],
    "another expression": [(X + 2).dp.median(range(50), epsilon=0.125)],
    "an alias": [median().alias("y")],
    "two outputs": [median(), median().alias("y")],
    "two outputs, the other way round": [median().alias("y"), median()],
    "a mode": [X.dp.mode(range(50), epsilon=0.125)],
    "a mode by rows": [X.dp.mode(range(50), epsilon=0.125, counts="rows")],
    "a mode or too few": [X.dp.mode(range(50), epsilon=0.125, too_few=5)],
    "a mode of texts": [pl.col("c").dp.mode(["u", "v"], epsilon=0.125)],
    "a mode of a text and a quote": [pl.col("c").dp.mode(["u", 'v"'], epsilon=0.125)],
    "a mode of others": [pl.col("c").dp.mode(["u", "v", "w"], epsilon=0.125)],
    "a mode of an Enum": [pl.col("e").dp.mode(["u", "v"], epsilon=0.125)],
    "a sum": [X.dp.sum(0, 50, epsilon=0.125)],
    "a sum to other bounds": [X.dp.sum(0, 51, epsilon=0.125)],
    "a sum in steps": [X.dp.sum(0, 50, step=5, epsilon=0.125)],
    "a mean": [X.dp.mean(0, 50, epsilon=0.125)],
    "people": [dpp.n_people(epsilon=0.125)],
    "rows": [dpp.len(epsilon=0.125)],
    "values": [X.dp.count(epsilon=0.125)],
    "a sum of some": [X.filter(X > 3).dp.sum(0, 50, epsilon=0.125)],
    "a sum of others": [X.filter(X > 4).dp.sum(0, 50, epsilon=0.125)],
    "some people": [dpp.n_people(where=X > 3, epsilon=0.125)],
    "other people": [dpp.n_people(where=X > 4, epsilon=0.125)],
    "some rows": [dpp.len(where=X > 3, epsilon=0.125)],
    "some values": [X.filter(X > 3).dp.count(epsilon=0.125)],
}
STEPS = {
    "a filter": lambda f: f.filter(X > 3),
    "another filter": lambda f: f.filter(X > 4),
    "a filter twice": lambda f: f.filter(X > 3).filter(X > 3),
    "a filter of NaN": lambda f: f.filter(pl.col("f") > float("nan")),
    "a filter of infinity": lambda f: f.filter(pl.col("f") > float("inf")),
    "a filter of minus infinity": lambda f: f.filter(pl.col("f") > float("-inf")),
    "a filter of 0.0": lambda f: f.filter(pl.col("f") == 0.0),
    "a filter of -0.0": lambda f: f.filter(pl.col("f") == -0.0),
    "a filter of a float": lambda f: f.filter(pl.col("f") > 0.1),
    "a filter of the next float": lambda f: f.filter(pl.col("f") > np.nextafter(0.1, 1)),
    "a filter of text": lambda f: f.filter(pl.col("c") == "u"),
    "a filter of a list": lambda f: f.filter(X.is_in(list(range(1000)))),
    "a filter of another list": lambda f: f.filter(X.is_in([*range(999), 2000])),
    "a filter of a time": lambda f: f.filter(pl.col("t") > datetime(2026, 2, 1, tzinfo=UTC)),
    "a filter of a microsecond later": lambda f: f.filter(pl.col("t") > datetime(2026, 2, 1, 0, 0, 0, 1, tzinfo=UTC)),
    "a time zone": lambda f: f.with_columns(x=pl.col("t").dt.convert_time_zone("Europe/Berlin").dt.hour()),
    "another time zone": lambda f: f.with_columns(x=pl.col("t").dt.convert_time_zone("Europe/London").dt.hour()),
    "a hash": lambda f: f.with_columns(x=X.hash(1) % 50),
    "another hash": lambda f: f.with_columns(x=X.hash(2) % 50),
    "a cast": lambda f: f.with_columns(x=X.cast(pl.Int32)),
    "a rename": lambda f: f.rename({"f": "g"}),
    "another rename, by a function": lambda f: f.rename(lambda name: "h" if name == "f" else name),
    "a fill": lambda f: f.fill_null(1),
    "another fill": lambda f: f.fill_null(2),
    "a join": lambda f: f.join(JOINED, on="x"),
    "an inner join": lambda f: f.join(JOINED, on="x", how="inner"),
    "a join with other rows": lambda f: f.join(JOINED.with_columns(y=pl.Series(["a", "b", "d"])), on="x"),
    "a join with rows in another order": lambda f: f.join(JOINED.reverse(), on="x"),
    "another rename, of what is read": lambda f: f.rename(lambda name: {"x": "f", "f": "x"}.get(name, name)),
    "all columns": lambda f: f.filter(pl.any_horizontal(pl.col("x", "f") > 3)),
    "a pattern": lambda f: f.with_columns(x=pl.max_horizontal(pl.col("^[xp]$"))),
}
EVERYTHING = {
    "the statistic": {},
    "another name": {"dataset": "visits "},
    "a name that looks like another": {"dataset": 'visits", "query": "'},
    "one group": {"keys": None},
    "other keys": {"keys": {"ward": ["A", "B"]}},
    "keys in another order": {"keys": {"ward": ["B", "A", "C"]}},
    "keys of another column": {"keys": {"c": ["u", "v"]}},
    "more keys": {"keys": {"ward": ["A", "B", "C"], "c": ["u"]}},
    "no unit": {"unit": None},
    "a bound": {"max_rows": 3},
    "a bound in groups": {"max_groups": 1},
    "a bound of each group": {"max_rows_per_group": 1},
    "a relation": {"neighboring_relation": "replace_one"},
    "a column's type": {"rows": ROWS.with_columns(pl.col("x").cast(pl.Int32))},
    "a type of a unit": {"rows": ROWS.with_columns(pl.col("p").cast(pl.Int32))},
    "a type of a key": {"rows": ROWS.with_columns(pl.col("ward").cast(pl.Categorical))},
    "an Enum of more, which is read": {
        "rows": ROWS.with_columns(pl.col("e").cast(pl.Enum(["u", "v", "w"]))),
        "exprs": [pl.col("e").dp.mode(epsilon=0.125)],
    },
    "a pattern that finds more": {
        "rows": ROWS.with_columns(pl.lit(1).alias("f").cast(pl.Int64)),
        "steps": lambda frame: frame.with_columns(x=pl.max_horizontal(pl.col("^[xpf]$"))),
    },
    **{name: {"exprs": exprs} for name, exprs in ANSWERS.items()},
    **{name: {"steps": steps} for name, steps in STEPS.items()},
}


# What is off the short list of Polars 1.
NEED_POLARS_2 = ["a filter of text", "a filter of a time", "a filter of a microsecond later", "a time zone"]
NEED_POLARS_2 += ["another time zone", "a hash", "another hash", "a fill", "another fill"]
NEED_POLARS_2 += ["all columns", "a pattern", "a pattern that finds more"]
for name in NEED_POLARS_2 if IS_OLD else []:
    del EVERYTHING[name]


def stored_query(budget, *, shown=None, **case):
    query = asked(budget, *case.pop("exprs", ()), **case)
    seen = []

    def noted(*arguments):
        seen.append(stored_query_of(*arguments))
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(release_module, "stored_query_of", noted)
        with pytest.raises(KeyboardInterrupt):
            query.release(**shown or {})
    return seen[0]


def test_no_two_queries_share_a_text(budget):
    texts = {name: stored_query(budget, **case).text for name, case in EVERYTHING.items()}
    assert len(set(texts.values())) == len(texts)
    for name, case in EVERYTHING.items():
        assert stored_query(budget, **case).text == texts[name]  # and each is its own, when it is asked again
    assert budget.spent == 0


def test_how_an_answer_is_shown_is_no_part_of_a_query(budget):
    ways = [
        {"intervals": True},
        {"intervals": "all"},
        {"min_people": 2},
        {"min_people": 90, "sure": True, "intervals": True},
    ]
    people = [dpp.n_people(epsilon=0.125)]
    assert len({stored_query(budget, exprs=people, shown=shown).text for shown in ({}, *ways)}) == 1


def every_kind():
    """An output of every kind of answer."""
    hours = dpp.grid(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 2, 1, tzinfo=UTC), step="1h")
    return {
        "people": dpp.n_people(epsilon=0.5),
        "sum": X.dp.sum(0, 50, epsilon=0.5),
        "halves": pl.col("f").dp.sum(0, 50, step=0.5, epsilon=0.5),
        "money": pl.col("m").dp.sum(Decimal(0), Decimal(100), epsilon=0.5),
        "quarters": pl.col("m").dp.sum(Decimal(0), Decimal(100), step=Decimal("0.25"), epsilon=0.5),
        "mean": X.dp.mean(0, 50, epsilon=0.5),
        "counts": pl.col("c").dp.value_counts(["u", "v"], epsilon=0.5),
        "counts of an Enum": pl.col("e").dp.value_counts(["u", "v"], epsilon=0.5),
        "counts of integers": X.dp.value_counts([1, 2, 3], epsilon=0.5),
        "mode": pl.col("e").dp.mode(epsilon=0.5),
        "text": pl.col("c").dp.mode(["u", "v"], epsilon=0.5),
        "led": pl.col("c").dp.mode(["u", "v"], epsilon=0.5, gap=True),
        "few": X.dp.mode([1, 2], epsilon=0.5, too_few=10**6),
        "float": pl.col("f").dp.median([0.5, 1.25, 3.0], epsilon=0.5),
        "time": pl.col("t").dp.median(hours, epsilon=0.5),
        "day": pl.col("d").dp.median([date(2026, 1, 1), date(2026, 1, 9)], epsilon=0.5),
        "list": X.dp.quantile([0.25, 0.75], range(50), epsilon=0.5),
        "top": X.dp.top_k(2, range(50), epsilon=0.5),
    }


def test_one_draw_is_shown_in_every_way(budget):
    """What is drawn under a seed of no kind: the same numbers come out of the ledger, with intervals and without."""
    make = lambda: asked(budget, *(expr.alias(name) for name, expr in every_kind().items()))  # noqa: E731
    plain = make().release()
    spent = budget.spent
    assert plain.columns == ["ward", *every_kind()]
    ranged, every = make().release(intervals=True), make().release(intervals="all")
    numbers = list(every_kind())[:9]
    for found in (ranged, every):
        ends = [f"{name}_{end}" for name in numbers for end in ("low", "high")]
        assert [name for name in found.columns if name not in plain.columns] == ends
        assert_frame_equal(found.select(plain.columns), plain)
    for name in numbers[:6]:
        assert (every[f"{name}_low"] <= ranged[f"{name}_low"]).all()
        assert (ranged[f"{name}_low"] <= plain[name]).all()
        assert (plain[name] <= ranged[f"{name}_high"]).all()
        assert (ranged[f"{name}_high"] <= every[f"{name}_high"]).all()
    assert_frame_equal(make().release(), plain)
    assert_frame_equal(make().release(intervals=True), ranged)
    assert plain["few"].null_count() == 3
    first = asked(budget, dpp.n_people(epsilon=1), dataset="begun with intervals").release(intervals=True)
    assert_frame_equal(asked(budget, dpp.n_people(epsilon=1), dataset="begun with intervals").release(), first[:, :2])
    assert budget.spent == spent + 1
    assert budget.log().height == len(make()._request.claims) + 1 < len(every_kind()) + 1
    assert budget.answers().height == 2


def test_nothing_but_what_was_drawn_is_cached(budget, monkeypatch):
    """An adversary reads the ledger: the keys, and for each output its noisy numbers, and no column more."""
    drawn = {}
    real = Output.drawn

    def noted(output, histograms, known):
        drawn[output.name] = real(output, histograms, known)
        return drawn[output.name]

    monkeypatch.setattr(Output, "drawn", noted)
    asked(budget, *(expr.alias(name) for name, expr in every_kind().items())).release(intervals=True, min_people=10**6)
    with closing(sqlite3.connect(budget._path)) as connection:
        (packed,) = connection.execute("SELECT answer FROM answers").fetchone()
    found = pl.read_ipc(packed)
    expected = [pl.Series(WARDS["ward"]), *(column for name in every_kind() for column in drawn[name])]
    assert found.columns == [str(place) for place in range(len(expected))]
    for column, own in zip(found.get_columns(), expected, strict=True):
        assert_series_equal(column, own, check_names=False)
    several = {"mean", "sum"}  # this sum shares the draws of a mean
    assert [len(drawn[name]) for name in every_kind()] == [1 + (name in several) for name in every_kind()]
    assert {name for name, columns in drawn.items() if columns[0].dtype == pl.Int64} >= {"people", "sum", "halves"}
    assert drawn["counts"][0].dtype == drawn["counts of an Enum"][0].dtype == pl.List(pl.Int64)


def test_the_order_of_columns_is_no_part_of_a_query(budget):
    other = {"rows": ROWS.select(reversed(ROWS.columns))}
    assert stored_query(budget, **other).text == stored_query(budget).text
    steps = {
        "steps": lambda frame: (
            frame.filter(X > 3)
            .rename(lambda name: name.upper() if name in ("x", "z", "e") else name)
            .with_columns(x=pl.col("X") + 1)
            .select("p", "ward", "x")
        )
    }
    assert stored_query(budget, **steps, **other).text == stored_query(budget, **steps).text


def test_columns_in_which_people_are_counted_are_part_of_a_query(budget):
    asks = (
        lambda frame: frame.keys("ward", epsilon=1, delta=1e-6),
        lambda frame: frame.group_by(WARDS).agg(dpp.n_people(epsilon=1)).n_rows_dropped(1, epsilon=1),
    )
    for number, ask in enumerate(asks):
        one = dpp.Budget(epsilon=100, delta=0.1, path=budget._path.with_name(f"{number}.db"))
        rows = [ROWS, ROWS.select("ward", "p").with_columns(z=1), ROWS.with_columns(pl.col("p").cast(pl.Int32))]
        kept = []
        for each in rows:
            ask(each.dp.protect("p", budget=one, dataset="visits", max_groups=1)).release()
            kept.append(one.answers().height)
        assert kept == [1, 2, 3]


# Statistics of a frame, which is a function of its bounds: each has an answer of its own.
KEYS = {"epsilon": 1, "delta": 1e-6}
APART = {
    "keys": [
        lambda f: f(max_groups=1).keys("ward", **KEYS),
        lambda f: f(max_groups=2).keys("ward", **KEYS),
        lambda f: f(max_groups=1).keys("ward", "x", **KEYS),
        lambda f: f(max_groups=1).keys("ward", epsilon=1, delta=2e-6),
        lambda f: f(max_groups=1).keys("ward", rho=1, delta=1e-6),
        lambda f: f(max_groups=1).keys("ward", rho=1, delta=1e-6, with_counts=True),
    ],
    "rows that are cut": [
        lambda f: f(max_rows=1).agg(dpp.len(epsilon=1)).n_rows_dropped(1, epsilon=1),
        lambda f: f(max_rows=1).agg(dpp.len(epsilon=1)).n_rows_dropped(2, epsilon=1),
        lambda f: f(max_rows=2).agg(dpp.len(epsilon=1)).n_rows_dropped(1, epsilon=1),
        lambda f: f(max_rows=1).group_by({"ward": ["A"]}).agg(dpp.len(epsilon=1)).n_rows_dropped(1, epsilon=1),
        lambda f: f(max_rows=1).group_by({"ward": ["B"]}).agg(dpp.len(epsilon=1)).n_rows_dropped(1, epsilon=1),
    ],
    "other limits": [
        lambda f: f(max_rows=3).group_by(WARDS).agg(n=dpp.len(epsilon=1)),
        lambda f: f(max_rows=3).with_limits(max_rows=2).group_by(WARDS).agg(n=dpp.len(epsilon=1)),
        lambda f: f(max_rows=3).with_limits(max_groups=2).group_by(WARDS).agg(n=dpp.len(epsilon=1)),
        lambda f: f(max_rows=3).with_limits(max_rows_per_group=1).group_by(WARDS).agg(n=dpp.len(epsilon=1)),
        lambda f: f().with_limits(max_rows_per_group=1).group_by(WARDS).agg(n=dpp.len(epsilon=1)),
    ],
}


@pytest.mark.parametrize("asks", APART.values(), ids=APART)
def test_queries_of_every_kind_are_cached_and_told_apart(tmp_path, asks):
    budget = dpp.Budget(rho=100, delta=1e-3, path=tmp_path / "ledger.db")

    def frame(**bounds):
        return ROWS.dp.protect("p", budget=budget, dataset="visits", **bounds)

    first = [ask(frame).release() for ask in asks]
    spent, spent_delta = budget.spent, budget.spent_delta
    assert budget.log().height == budget.answers().height == len(asks)
    assert budget.answers()["query"].to_list() == budget.log()["what"].to_list()
    for ask, answer in zip(asks, first, strict=True):
        assert_frame_equal(ask(frame).release(), answer)
    assert (budget.spent, budget.spent_delta) == (spent, spent_delta)
    query = asks[0](frame)
    query.release(ignore_cache=True)
    assert budget.spent > spent
    assert budget.spent_delta == spent_delta + query.delta


def test_an_order_of_columns_that_a_step_looks_at_is_part_of_a_query(budget):
    def steps(frame):
        return frame.with_columns(t=pl.concat_str(pl.col("^[cw].*$")))

    case = {"steps": steps, "exprs": [pl.col("t").dp.mode(["uA", "Au"], epsilon=0.125)]}
    rows = ROWS.with_columns(pl.col("c").cast(pl.String))
    texts = {
        stored_query(budget, rows=rows.select(names), **case).text for names in (["p", "c", "ward"], ["p", "ward", "c"])
    }
    assert len(texts) == 2


def test_another_class_of_query_is_another_query(budget):
    query = asked(budget, pl.col("c").dp.mode(["u", "v"], epsilon=0.125))
    query.release()
    ask = query._asks[0]
    other = Other(ask.query.candidates, ask.query.terms)
    request = Request.of(query._request.pipeline, query._request.keys, [replace(ask, query=other)])
    dpp.PrivateQuery(request, ROWS.lazy(), budget).release()
    assert budget.spent == Fraction(1, 4)


@pytest.mark.parametrize("module", [pl, dpp])
def test_another_version_is_another_query(budget, monkeypatch, module):
    asked(budget).release()
    monkeypatch.setattr(module, "__version__", "0.0.1")
    asked(budget).release()
    assert budget.spent == Fraction(1, 4)


def test_the_rows_are_no_part_of_the_text(budget):
    first = stored_query(budget)
    assert stored_query(budget, rows=ROWS.reverse()) == first
    # Nor are the categories that a Categorical has seen.
    pl.Series(["never seen before", "nor this"], dtype=pl.Categorical)
    assert stored_query(budget) == first
    assert stored_query(budget, rows=ROWS.head(0)) == first


@pytest.mark.slow
def test_the_text_is_the_same_in_another_process(budget):
    code = """
import sys
sys.path.insert(0, sys.argv[2])
import dp_polars as dpp
from tests.frames.test_cached import EVERYTHING, stored_query
budget = dpp.Budget(epsilon=100, path=sys.argv[1])
print(hash("some seed"), [stored_query(budget, **case).text for case in EVERYTHING.values()])
"""
    here = [stored_query(budget, **case).text for case in EVERYTHING.values()]
    for seed in ("1", "2"):
        run = [sys.executable, "-c", code, str(budget._path), sys.path[0]]
        said = subprocess.run(
            run, env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)}, capture_output=True, text=True
        )
        assert said.returncode == 0, said.stderr
        assert said.stdout.split(" ", 1)[1] == f"{here}\n"


def test_where_values_lie_in_memory_is_no_part_of_the_text():
    texts = ["a long text of many letters", "another long text of many letters"]
    frames = [
        pl.DataFrame({"k": texts}),
        pl.concat([pl.DataFrame({"k": texts[:1]}), pl.DataFrame({"k": texts[1:]})], rechunk=False),
        pl.DataFrame({"k": ["x" * 50, *texts]})[1:],
        pl.DataFrame({"k": pl.Series(texts).set_sorted()}),
    ]
    assert len({str(written(frame)) for frame in frames}) == 1


VALUES = [
    *(None, True, False, 1, 0, "1", "", "None", 1.0, 0.0, -0.0, float("nan"), float("inf"), Fraction(1)),
    *(Fraction(1, 2), 2**60, 2**60 + 1, Fraction(1, 3), Fraction(1, 3) + Fraction(1, 2**90)),
    *((), (1,), ((1,),), (1, 2), ("1", 2), ("12",), ("1", "2"), [1, 2], ("1, 2",), ('1", "2',)),
    *(pl.Int64(), pl.Int32(), pl.Datetime("us"), pl.Datetime("us", "UTC"), pl.Enum(["a"]), pl.Enum(["b"])),
    *(pl.Series([1]), pl.Series("x", [1]), pl.Series([1.0]), pl.Series([None], dtype=pl.Int64), pl.Series([0])),
    *(pl.Series(["1"]), pl.Series(["a"], dtype=pl.Enum(["a"])), pl.Series(["a"]), pl.Series([-0.0]), pl.Series([0.0])),
    *(pl.DataFrame({"x": [1]}), pl.DataFrame({"y": [1]}), pl.DataFrame({"x": [1], "y": [1]}), pl.DataFrame()),
    *(pl.col("x"), pl.col("y"), pl.col("x").alias("y"), pl.lit(1), pl.lit("1"), pl.lit(1.0), pl.lit(None)),
    *(pl.Schema({"x": pl.Int64()}), pl.Schema({"x": pl.Int32()}), pl.Schema({"y": pl.Int64()})),
    *(Loss(Fraction(1), "epsilon"), Loss(Fraction(1), "rho"), Loss(Fraction(2), "rho")),
]


def test_no_two_values_are_written_alike():
    assert len({str(written(value)) for value in VALUES}) == len(VALUES)


@dataclass
class Hides:
    """Has something beside its fields."""

    x: int

    def __post_init__(self) -> None:
        self.y = self.x

    @cached_property
    def derived(self) -> int:
        return self.x


@dataclass
class Derives:
    """Has only what follows from its fields."""

    x: int

    @cached_property
    def derived(self) -> int:
        return self.x + 1


class Opaque:
    """Has no fields."""


@pytest.mark.parametrize("value", [Hides(1), Opaque(), {1: 2}, {1}, len, int, np.int64(1), (1, Opaque()), object()])
def test_what_can_not_be_written_down_is_refused(value):
    words = r"(?s)must consist of values that can be written down, got .*Hint: leave dataset"
    with pytest.raises(TypeError, match=words):
        written(value)


def test_what_follows_from_the_fields_is_not_hidden():
    one = Derives(1)
    before = written(one)
    assert one.derived == 2
    assert written(one) == before


def test_a_query_that_hides_something_is_refused_before_it_is_charged(budget):
    query = asked(budget, pl.col("c").dp.mode(["u", "v"], epsilon=0.125))
    query._asks[0].query.__dict__["secret"] = 7
    with pytest.raises(TypeError, match="must consist of values that can be written down"):
        query.release()
    assert budget.spent == 0


def test_a_name_that_a_step_gives_is_part_of_the_query(tmp_path):
    budget = dpp.Budget(epsilon=10**9, path=tmp_path / "ledger.db")
    rows = pl.DataFrame({"x": [1.0, 1.0], "y": [0.0, 0.0]})
    made = rows.dp.protect(None, budget=budget, dataset="ours").with_columns(a=pl.col("x"), b=pl.col("x") + 9)

    def total(names):
        renamed = made.rename(lambda name: names.get(name, name))
        return renamed.agg(s=dpp.sum("v", 0, 100, step=1, epsilon=10**6)).release().item()

    assert (total({"a": "v", "b": "w"}), total({"a": "w", "b": "v"})) == (2, 20)


def test_the_engine_is_part_of_the_query():
    class Other(PolarsEngine):
        pass

    query = ROWS.dp.protect(None).agg(n=dpp.len(epsilon=1))
    texts = set()
    for kind in (PolarsEngine, Other):
        engine = kind.of(ROWS.lazy())
        texts.add(stored_query_of(query._request, engine, query._request.bind(engine), "", "ours").text)
    assert len(texts) == 2


def sources(folder):
    """The same rows in several places, and how to change each of them."""
    plain = ROWS.select("p", "x", "ward")
    for kind in ("parquet", "ipc", "csv"):
        getattr(plain, f"write_{kind}")(folder / f"rows.{kind}")
    (folder / "parts").mkdir()
    plain.write_parquet(folder / "parts" / "1.parquet")
    return {
        "parquet": lambda: pl.scan_parquet(folder / "rows.parquet"),
        "ipc": lambda: pl.scan_ipc(folder / "rows.ipc"),
        "csv": lambda: pl.scan_csv(folder / "rows.csv", schema=plain.schema),
        "folder": lambda: pl.scan_parquet(folder / "parts" / "*.parquet"),
        "url": lambda: pl.scan_parquet(f"file://{folder}/rows.parquet"),
        "arrow": lambda: dataset(folder / "rows.parquet"),
    }


CHANGED = {"parquet": "rows.parquet", "ipc": "rows.ipc", "csv": "rows.csv", "folder": "parts/1.parquet"}


@pytest.mark.parametrize("kind", ["parquet", "ipc", "csv", "folder", "url", "arrow"])
def test_files_that_changed_are_said_beside_a_cached_answer(tmp_path, kind):
    budget = dpp.Budget(epsilon=1, path=tmp_path / "ledger.db")
    source, path = sources(tmp_path)[kind], tmp_path / CHANGED.get(kind, "rows.parquet")

    def release(**options):
        return unbound(budget).release(source(), **options)

    first = release()
    assert_frame_equal(release(), first)  # and no warning
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))
    with pytest.warns(dpp.CachedAnswerWarning, match=CHANGED_FILES) as said:
        assert_frame_equal(release(), first)
    assert said[0].filename == __file__
    assert budget.spent == Fraction(1, 8)
    release(ignore_cache=True)
    release()
    copy = path.with_name("copy")
    copy.write_bytes(path.read_bytes())
    os.utime(copy, ns=(0, path.stat().st_mtime_ns))
    copy.replace(path)  # another inode of the same time
    with pytest.warns(dpp.CachedAnswerWarning, match=CHANGED_FILES):
        release()
    assert budget.spent == Fraction(1, 4)


CHANGED_FILES = (
    r"(?s)^the answer about 'visits' is returned once more, from \d{4}-\d\d-\d\d, and nothing is charged; but it was "
    r"drawn from another source, or from files that have changed since\..*"
    r"Hint: release\(ignore_cache=True\) .*charged\. .*another dataset"
)


def test_other_preprocessing_is_another_data_set(tmp_path):
    """Every other way to make the rows is drawn and charged; the same one is not, also in another order."""
    budget, made = dpp.Budget(epsilon=10, path=tmp_path / "ledger.db"), sources(tmp_path)
    query = unbound(budget)
    plain = ROWS.select("p", "x", "ward")
    first = query.release(plain)
    same_rows = [plain.lazy(), plain.reverse(), plain.select("x", "ward", "p"), pl.concat([plain[:7], plain[7:]])]
    for same in (*same_rows, plain.to_arrow(), plain.reverse().to_arrow()):
        assert_frame_equal(query.release(same), first)
    assert budget.spent == Fraction(1, 8)
    others = [
        lambda: plain.lazy().filter(X > 3),
        lambda: plain.lazy().filter(X > 4),
        lambda: plain.lazy().filter(pl.col("ward").is_in(pl.Series(["A"]))),
        lambda: plain.lazy().filter(pl.col("ward").is_in(pl.Series(["B"]))),
        lambda: ROWS.select("p", "x", "ward", "e").lazy(),
        *made.values(),
        lambda: made["parquet"]().filter(X > 3),
        lambda: made["parquet"]().group_by("p").agg(X.sum(), pl.col("ward").first()),
        lambda: pl.concat([made["parquet"](), made["folder"]()]),
    ]
    for number, other in enumerate(others, 2):
        drawn, again = query.release(other()), other()
        assert budget.spent == Fraction(number, 8)
        if isinstance(again, pl.LazyFrame):
            again.collect_schema()  # a plan that was looked at is the same
        assert_frame_equal(query.release(again), drawn)
        assert budget.spent == Fraction(number, 8)
    below = made["parquet"]()
    below.collect_schema()
    query.release(below.filter(X > 3))
    assert budget.spent == Fraction(number, 8)


@pytest.mark.parametrize(
    "step",
    [
        lambda x: x > X,
        lambda x: X.fill_null(x) < 7,
        lambda x: X.clip(0, x) < 7,
        lambda x: X.pow(x) < 7,
        lambda x: X.cast(pl.Float64).is_in([x]),
        lambda x: X.replace({7: x}) < 7,
        lambda x: pl.lit({"f": x}).struct.field("f") < 7,
        lambda x: pl.lit(x, dtype=pl.Float32) > X,
    ],
)
def test_numbers_without_a_word_in_json_are_told_apart(tmp_path, step):
    numbers = [math.inf, -math.inf, math.nan, 1.0]
    for plan in (sources(tmp_path)["parquet"](), ROWS.lazy()):
        texts = {text_of_plan(plan.filter(step(number))) for number in numbers}
        assert None not in texts
        assert len(texts) == len(numbers)
        assert text_of_plan(plan.filter(step(math.inf))) in texts


@pytest.mark.parametrize("frame", [ROWS.head(3), ROWS.with_columns(X + 1), pl.concat([ROWS, ROWS.head(1)])])
def test_other_rows_in_memory_are_refused_under_the_same_name(budget, frame):
    words = r"^the data set 'visits' must have the same rows as [\s\S]*Hint: give"
    asked(budget).release()
    for rows in (frame, frame.sample(fraction=1, shuffle=True)):
        for fresh in (False, True):
            with pytest.raises(ValueError, match=words):
                asked(budget, rows=rows).release(ignore_cache=fresh)
    asked(budget, rows=ROWS.sample(fraction=1, shuffle=True)).release()
    assert budget.spent == Fraction(1, 8)


@pytest.mark.parametrize("library", ["arrow", "pandas"])
def test_rows_of_other_libraries_are_cached_like_those_of_polars(budget, library):
    query = unbound(budget)
    plain = ROWS.select("p", "x", "ward")
    first = query.release(getattr(plain, f"to_{library}")())
    assert_frame_equal(query.release(getattr(plain.reverse(), f"to_{library}")()), first)
    assert budget.spent == Fraction(1, 8)
    with pytest.raises(ValueError, match=r"^the data set 'visits' must have the same rows as "):
        query.release(getattr(plain.head(3), f"to_{library}")())
    assert budget.spent == Fraction(1, 8)


def test_values_that_change_places_are_other_rows(budget):
    key = bytes(32)
    one = pl.DataFrame({"a": [1, 2, None], "b": ["x", "y", None], "n": [[1], [], None], "s": [{"q": 1}] * 3})
    same = [one, one.reverse(), one.select(reversed(one.columns)), one.with_columns(pl.col("b").cast(pl.Categorical))]
    others = [
        one.with_columns(b=pl.Series(["y", "x", None])),
        one.with_columns(a=pl.Series([2, 1, None])),
        one.with_columns(a=pl.Series([1, 2, 0])),
        one.with_columns(n=pl.Series([[], [1], None])),
        one.head(2),
        pl.concat([one, one]),
        one.rename({"a": "b", "b": "a"}),
    ]
    assert len({digest_of(frame.lazy(), key) for frame in same}) == 1
    assert len({digest_of(frame.lazy(), key) for frame in (one, *others)}) == len(others) + 1
    assert digest_of(one.lazy(), bytes([1] * 32)) != digest_of(one.lazy(), key)


def test_what_has_no_text_is_not_cached(budget, tmp_path):
    python = ROWS.lazy().map_batches(lambda frame: frame)
    objects = ROWS.with_columns(o=pl.Series([object()] * ROWS.height, dtype=pl.Object))
    stream = ROWS.to_arrow().to_reader
    for number, rows in enumerate((python, python, stream(), stream(), objects, objects), 1):
        unbound(budget, unchecked=True).release(rows)
        assert budget.spent == Fraction(number, 8)
    assert budget.answers().is_empty()


def test_keys_and_digests_of_rows_stay_in_the_ledger(budget):
    query = asked(budget)
    query.release()
    query.release()
    with closing(sqlite3.connect(budget._path)) as connection:
        ((key, digest),) = connection.execute("SELECT key, rows FROM datasets").fetchall()
    query.sink_parquet(budget._path.with_name("released.parquet"))
    claim = dpp.read_claim(budget._path.with_name("released.parquet"))
    shown = [
        budget.log(),
        budget.answers(),
        query.statement().to_markdown(),
        dpp.statement(budget, [query]).to_markdown(),
        claim,
    ]
    text = " ".join(str(one.rows() if isinstance(one, pl.DataFrame) else one) for one in shown)
    assert digest not in text
    assert key.hex() not in text
    assert repr(key) not in text


def test_a_mark_tells_of_no_size(tmp_path):
    """Two files of other rows, with one path, inode and time, have one mark."""
    path, marks = tmp_path / "rows.csv", set()
    for rows in (1, 1000):
        with path.open("w") as file:  # the same inode
            file.write("x\n" + "1\n" * rows)
        os.utime(path, ns=(7, 7))
        marks.add(mark_of(pl.scan_csv(path, schema={"x": pl.Int64})))
    assert len(marks) == 1
    assert {mark_of(ROWS.head(n).lazy()) for n in (0, 1, 400)} == {"memory"}
    (mark,) = marks
    assert re.fullmatch("files [0-9a-f]{64}", mark)


def test_remote_files_are_known_by_their_names():
    one, two = ["s3://bucket/a.parquet"], ["s3://bucket/b.parquet"]
    assert mark_of_files(one) == mark_of_files(one * 2) != mark_of_files(two)
    assert mark_of_files([*one, *two]) == mark_of_files([*two, *one]) != mark_of_files(one)


@pytest.mark.parametrize("protect", [dpp.protect, ROWS.dp.protect])
def test_a_name_needs_a_budget_with_a_path(protect, tmp_path):
    for given, said in ((None, "none"), (dpp.Budget(epsilon=1), "one without a path")):
        with pytest.raises(ValueError, match=rf"budget must have a path where dataset is given, .* got {said}\."):
            protect("p", dataset="visits", budget=given)
    one = dpp.Budget(epsilon=1, path=tmp_path / "ledger.db")
    for name in ("", 7, b"visits", ["visits"]):
        with pytest.raises(TypeError, match=r"^dataset must be a name or None, got "):
            protect("p", dataset=name, budget=one)
    with pytest.raises(TypeError, match="budget must be a Budget or None"):
        protect("p", dataset=None, budget="ledger.db")


# What fails -> whether the release does, and whether it is charged again: what was only not shown is there.
FAILURES = {
    "_engines.polars.engine.PolarsEngine._histograms": (True, True),
    "_release.contract.Shown.columns": (True, False),
    "_release.contract._as_ipc": (False, True),
    "_accounting.ledger.write": (False, True),
}


@pytest.mark.parametrize("target", FAILURES)
def test_what_fails_is_charged_and_cached_once_there_is_an_answer(budget, monkeypatch, caplog, target):
    def fail(*_):
        raise OSError

    fails, is_charged_again = FAILURES[target]
    with monkeypatch.context() as patch:
        patch.setattr(f"dp_polars.{target}", fail)
        with pytest.raises(dpp.ReleaseError) if fails else nullcontext():
            assert asked(budget).release().columns == ["ward", "x"]
    lost = "The answer about 'visits' could not be cached: released again, it is charged again."
    assert caplog.messages == ([] if fails else [lost])
    assert budget.spent == Fraction(1, 8)
    assert budget.answers().is_empty() == is_charged_again
    assert asked(budget).release(intervals=True).columns == ["ward", "x"]
    assert budget.spent == Fraction(1, 4 if is_charged_again else 8)
    assert budget.answers().height == 1


EDITS = [
    "UPDATE answers SET answer = x'00'", "UPDATE answers SET answer = 'text'", "UPDATE answers SET answer = NULL",
    "UPDATE answers SET dataset = 'another'", "UPDATE answers SET text = 'another'",
    "UPDATE answers SET text = 'another', key = digest_of('another')", "UPDATE answers SET microseconds = 0",
    "UPDATE answers SET source = 'another'", "UPDATE answers SET id = 7 WHERE id = 1", "DROP INDEX answers_by_key",
    "DROP TABLE answers",
]  # fmt: skip


@pytest.mark.parametrize("edit", EDITS)
def test_an_answer_that_was_changed_is_damage(budget, edit):
    asked(budget).release()
    with closing(sqlite3.connect(budget._path)) as connection, connection:
        connection.create_function("digest_of", 1, ledger.digest_of_text)
        connection.execute(edit)
    # That the bytes of an answer do not fit is found when it is asked for; all else when the ledger is opened.
    with pytest.raises(ValueError, match=r"(?s)ledger\.db' is damaged: .*Hint: a new ledger would"):
        asked(dpp.Budget(epsilon=100, path=budget._path)).release()


def test_an_answer_that_is_gone_is_drawn_and_paid_once_more(budget):
    asked(budget).release()
    with closing(sqlite3.connect(budget._path)) as connection, connection:
        connection.execute("DELETE FROM answers")
    asked(dpp.Budget(epsilon=100, path=budget._path)).release()
    assert budget.spent == Fraction(1, 4)


def test_answers_are_listed(budget):
    assert budget.answers().schema == {
        "when": pl.Datetime("us", "UTC"),
        "dataset": pl.String,
        "query": pl.String,
        "loss": pl.String,
        "bytes": pl.Int64,
        "source": pl.String,
        "text": pl.String,
    }
    before = datetime.now(UTC)
    asked(budget, median(), dpp.n_people(epsilon=0.125).alias("n")).release()
    asked(budget, dataset="other").release()
    listed = budget.answers()
    assert listed.drop("when", "bytes", "source", "text").rows() == [
        ("visits", "x: median on 50 grid points, n: number of people", "epsilon=0.25"),
        ("other", "x: median on 50 grid points", "epsilon=0.125"),
    ]
    assert before <= listed["when"][0] <= listed["when"][1] <= datetime.now(UTC)
    assert (listed["bytes"] > 100).all()
    assert listed["source"].to_list() == ["memory", "memory"]
    assert dpp.Budget(epsilon=1).answers().is_empty()


def test_a_cell_that_runs_again_makes_no_new_budget(tmp_path):
    one = dpp.Budget(epsilon=1, name="of a cell")
    del one
    words = r"(?s)got 'of a cell' again: .*cell of a notebook runs again.*Hint: give it a path"
    with pytest.raises(ValueError, match=words):
        dpp.Budget(epsilon=1, name="of a cell")
    with pytest.raises(ValueError, match="epsilon must be greater than 0"):
        dpp.Budget(epsilon=0, name="never made")
    dpp.Budget(rho=1, name="never made")
    dpp.Budget(epsilon=1), dpp.Budget(epsilon=1)  # without a name there is none to be confused
    for path in (None, "1.db", "1.db", "2.db"):  # with a path it may be shared
        dpp.Budget(epsilon=1, name="shared", path=path and tmp_path / path)


@pytest.mark.parametrize("loss", [{"epsilon": 0.1}, {"rho": Fraction(1, 300)}], ids=str)
def test_ends_that_follow_from_a_release_without_ranges_are_those_of_one_with(tmp_path, loss, relation):
    money, tenths = pl.col("m"), Decimal("0.1")
    asked = {
        "people": dpp.n_people(**loss),
        "rows": dpp.len(**loss),
        "values": X.dp.count(**loss),
        "sum": X.dp.sum(-3, 50, **loss),
        "fives": X.dp.sum(0, 50, step=5, **loss),
        "tenths": X.dp.sum(0, 50, step=tenths, **loss),
        "halves": X.dp.sum(0, 50, step=0.5, **loss),
        "yes": pl.col("yes").dp.sum(0, 1, **loss),
        "floats": pl.col("f").dp.sum(0, 50, step=Fraction(1, 3), **loss),
        "money": money.dp.sum(0, 100, **loss),
        "quarters": money.dp.sum(0, 100, step=Decimal("0.25"), **loss),
        "person": money.dp.sum(0, 100, per_person=(0, 150), **loss),
    }
    budget = dpp.Budget(**{next(iter(loss)): 100}, path=tmp_path / "ledger.db")
    rows = ROWS.with_columns(yes=X % 3 == 0)
    protected = rows.dp.protect("p", max_rows=2, budget=budget, dataset="rows", neighboring_relation=relation)
    query = protected.group_by(WARDS).agg(**asked, mean=X.dp.mean(0, 50, **loss))
    released, ranged = query.release(), query.release(intervals=True)
    ends = [f"{name}_{end}" for name in asked for end in ("low", "high")]
    found = with_ends(released, query._asks)
    assert found.columns == [*released.columns, *ends]
    for ask in query._asks[:-1]:
        low, high = (found[end] - ranged[end].cast(pl.Float64) for end in (f"{ask.name}_low", f"{ask.name}_high"))
        # Some people may count in part. So these ends contain those of the release, and are a step wider at most.
        assert ask.query.in_parts
        step = float(ask.query.answer_step(released[ask.name].dtype))
        assert low.is_between(-1.001 * step, 0.001 * step).all(), ask.name
        assert high.is_between(-0.001 * step, 1.001 * step).all(), ask.name
    assert_frame_equal(found.select(released.columns), released)
    assert with_ends(ranged, query._asks) is not ranged
    assert_frame_equal(with_ends(ranged, query._asks), ranged)  # it has its ends
    hidden = with_ends(query.release(min_people=10**6), query._asks)
    assert hidden["sum_low"].null_count() == hidden["money_high"].null_count() == 3
    # Where nobody can be beyond the limits, they are the same.
    whole = rows.dp.protect("p", max_groups=3, budget=budget, dataset="rows", neighboring_relation=relation)
    query = whole.group_by(WARDS).agg(people=asked["people"], person=asked["person"])
    found, ranged = with_ends(query.release(), query._asks), query.release(intervals=True)
    ends = [f"{name}_{end}" for name in ("people", "person") for end in ("low", "high")]
    assert_frame_equal(found.select(ends), ranged.select(pl.col(ends).cast(pl.Float64)))


SCALED = {"the guarantee": {"epsilon": 1, "delta": 1e-6}, "all that is left": {}}
GROUPS = {"listed": {"hospital": ["A", "B"]}, "selected": "hospital", "none": None}


def reported(budget, how, keys="selected", limits=None, asks=None):
    """A report by one guarantee, as the README has it."""
    rows = pl.LazyFrame(
        {
            "patient": [i // 2 for i in range(4000)],
            "hospital": (["A"] * 3 + ["B"]) * 1000,
            "sick": ["flu", "none"] * 2000,
            "cost": [90 + 7 * i % 1000 for i in range(4000)],
        }
    )
    asks = asks or {
        "people": dpp.n_people(),
        "cost": pl.col("cost").dp.mean(),
        "top": pl.col("sick").dp.mode(["flu", "none"]),
    }
    frame = rows.dp.protect("patient", budget=budget, dataset="visits", **limits or {})
    query = frame.agg(**asks) if GROUPS[keys] is None else frame.group_by(GROUPS[keys]).agg(**asks)
    return query.scaled_to(**how)


@pytest.mark.parametrize("keys", GROUPS)
@pytest.mark.parametrize("how", SCALED)
def test_a_report_that_took_the_whole_guarantee_is_returned_in_another_process(how, keys, tmp_path):
    def opened():
        return dpp.Budget(epsilon=1, delta=1e-6, path=tmp_path / "ledger.db")

    budget = opened()
    first = reported(budget, SCALED[how], keys)
    released, spent = first.release(), opened().log()
    for _ in range(2):
        again = reported(opened(), SCALED[how], keys)
        assert again._request.claims == first._request.claims
        assert_frame_equal(again.release(), released)
    assert_frame_equal(opened().log(), spent)
    other = {"rows": dpp.len()}
    with pytest.raises(ValueError, match=r"dataset=…\)|requested .* remaining 0"):  # it was never released
        reported(opened(), SCALED[how], keys, asks=other).release()
    assert_frame_equal(opened().log(), spent)


def test_each_report_of_a_shared_budget_gets_the_losses_that_it_had(tmp_path):
    def released():
        budget = dpp.Budget(epsilon=1, delta=1e-6, path=tmp_path / "ledger.db")
        gaussian = {"rows": dpp.len(mechanism="discrete_gaussian")}
        asks = [
            (None, {"epsilon": 0.25, "delta": 1e-7}, "selected"),
            (gaussian, {"epsilon": 0.5, "delta": 5e-7}, "none"),
        ]
        asks += [({"rows": dpp.len()}, {}, "selected")]
        limits = {"max_groups": 2, "max_rows_per_group": 2}
        queries = [(how, keys, limits if one else None, one) for one, how, keys in asks]
        return [reported(budget, *query).release() for query in queries], budget.log()

    (found, log), (again, later) = released(), released()
    for one, other in zip(found, again, strict=True):
        assert_frame_equal(one, other)
    assert_frame_equal(log, later)


def test_a_publication_that_took_the_whole_guarantee_is_returned_once_more(tmp_path):
    def published():
        budget = dpp.Budget(epsilon=1, delta=1e-6, path=tmp_path / "ledger.db")
        frame = ROWS.dp.protect("p", max_rows=2, budget=budget, dataset="visits")
        queries = {"all": frame.agg(dpp.len()), "wards": frame.group_by(WARDS).agg(dpp.n_people(), X.dp.mean(0, 50))}
        return dpp.publication(**queries).scaled_to().release(), budget.log()

    (found, log), (again, later) = published(), published()
    assert_frame_equal(log, later)
    for name, frame in found.items():
        assert_frame_equal(frame, again[name])


def test_a_first_release_that_left_nothing_to_keys_is_returned(tmp_path):
    def found():
        budget = dpp.Budget(epsilon=1, delta=1e-6, path=tmp_path / "ledger.db")
        return asked(budget, dpp.len(mechanism="discrete_gaussian")).scaled_to().release(), budget.spent

    (released, spent), (again, later) = found(), found()
    assert_frame_equal(again, released)
    assert later == spent


def test_a_publication_is_known_if_all_of_its_queries_are(tmp_path):
    budget = dpp.Budget(epsilon=1, delta=1e-6, path=tmp_path / "ledger.db")
    frame = ROWS.dp.protect("p", max_rows=2, budget=budget, dataset="visits")
    rows, ages = frame.agg(dpp.len()), frame.group_by(WARDS).agg(X.dp.mode(range(50)))
    dpp.publication(rows=rows, ages=ages).scaled_to().release()
    dpp.publication(rows=rows, ages=ages).scaled_to()
    with pytest.raises(ValueError, match="something left"):
        dpp.publication(rows=rows, ages=frame.agg(X.dp.median(range(50)))).scaled_to()


def test_other_rows_of_a_spent_budget_are_refused_by_name(tmp_path):
    def asked_of(rows, dataset):
        budget = dpp.Budget(epsilon=1, delta=1e-6, path=tmp_path / "ledger.db")
        return asked(budget, dpp.len(), rows=rows, dataset=dataset).scaled_to(epsilon=1, delta=1e-6)

    asked_of(ROWS, "visits").release()
    with pytest.raises(ValueError, match="must have the same rows"):
        asked_of(ROWS.head(100), "visits").release()
    with pytest.raises(dpp.BudgetExceededError):
        asked_of(ROWS.head(100), "others").release()
