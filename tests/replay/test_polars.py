"""Record and replay (Cebere et al. 2026, arXiv 2602.17454) of every way to ask, on Polars."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from functools import partial

import hypothesis.strategies as st
import polars as pl
import pyarrow.dataset as ds
import pytest

import dp_polars as dpp
from dp_polars._accounting import budget as budgets
from dp_polars._frames.cube_query import CubeQuery
from tests.fuzzing.exploring import explore
from tests.helpers.needs import IS_OLD
from tests.registry import COLUMNS, MULTIPLYING, OF_NO_COLUMN, UNITS
from tests.replay.cases import WAYS, Case, cases
from tests.replay.checks import check
from tests.replay.doors import PARTITION_BYTES

pytestmark = pytest.mark.slow

# How private rows are given.
FORMS = ["bound", "lazy", "parquet", "dataset", "arrow"]
# Into how many parts people are divided: a public number, or as the frame's size says, also where that makes several.
MANY = "many"
PARTS = [None, 3, MANY]
# What is done with the answers.
ENDS = ["released", "cached", "written"]
_FILES = 3
_KINDS = {*COLUMNS, *UNITS}
# What can be compared, sorted and joined.
_PLAIN = {"Int64", "String", "Date"}


def given(case: Case, side: int, form: str, folder):
    """The rows of one side in some form; files have the same names on both sides."""
    frame = case.in_chunks(side)
    if form == "bound":
        return frame
    if form == "lazy" or any(name in str(frame.schema) for name in ("128", "Struct", "Categorical")):
        return frame.lazy()
    if form == "arrow":
        return frame.to_arrow()
    shutil.rmtree(folder / "rows", ignore_errors=True)
    (folder / "rows").mkdir()
    for number in range(_FILES):
        part = frame[number * frame.height // _FILES : (number + 1) * frame.height // _FILES]
        part.write_parquet(folder / "rows" / f"{number}.parquet", row_group_size=2)
    files = [folder / "rows" / f"{number}.parquet" for number in range(_FILES)]
    return pl.scan_parquet(files) if form == "parquet" else ds.dataset(files)


def ask(case: Case, form: str, engine: str, parts: int | None, end: str, folder, side: int):
    found, more = {}, {}

    def rows_given():
        return None if form == "bound" else given(case, side, form, folder)

    ledger = folder / "ledger.db"
    if end == "cached":
        for file in folder.glob("ledger*"):
            file.unlink()
        budgets._newest.clear()  # this process has seen a ledger of that name
        budget = dpp.Budget(rho=10**6, delta=0.5, path=ledger)
        more = {"budget": budget, "dataset": "visits"}
    protect = partial(dpp.protect, **more)
    if form == "bound":
        protect = partial(given(case, side, form, folder).dp.protect, **more)
    query = case.query(protect)
    rows = rows_given()
    found |= {"words": repr(query), "loss": query.loss, "explained": query.explain().rows()}
    found["stated"] = query.statement().facts | {"ledger": None}
    options = {"intervals": case.intervals, "engine": engine, "partitions": parts}
    if isinstance(query, CubeQuery):
        del options["intervals"]
        if end == "written" and "128" not in case.key:
            query.release(rows, **options).write(folder / "answers.parquet")
            found["file"] = (folder / "answers.parquet").read_bytes()
            return found
    elif end == "written" and "128" not in case.key:  # Arrow, which writes the file, has no integers of 128 bits
        query.sink_parquet(folder / "answers.parquet", rows, **options)
        found["file"] = (folder / "answers.parquet").read_bytes()
        return found
    found["answers"] = query.release(rows, **options)
    if end == "cached":
        again, first = query.release(rows_given(), **options), found["answers"]
        if isinstance(query, CubeQuery):
            again, first = again.to_frame(), first.to_frame()
        found |= {"again": again.equals(first), "charged": budget.log().rows(), "file": _told(ledger)}
    return found


def _told(ledger):
    """Return what a ledger says, but for the digests of rows in memory and their keys, which nothing else holds."""
    with closing(sqlite3.connect(ledger)) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        assert "datasets" in tables
        told = {name: connection.execute(f"SELECT * FROM {name}").fetchall() for name in tables if name != "datasets"}
        return told | {"datasets": connection.execute("SELECT about FROM datasets").fetchall()}


@pytest.mark.parametrize("way", WAYS)
def test_answers_follow_from_the_outputs_and_inputs_move_as_claimed(way, tmp_path):
    check_cases(cases(way, _KINDS, _KINDS), 30, tmp_path)


@pytest.mark.parametrize("step", MULTIPLYING)
def test_steps_that_multiply_rows(step, tmp_path):
    # Coupled: a step may bring people over the bounds who were within them.
    of_people = st.sampled_from(WAYS).flatmap(lambda way: cases(way, _PLAIN, _PLAIN))
    of_people = of_people.filter(lambda case: case.unit is not None and case.couples)
    check_cases(of_people.map(lambda case: replace(case, step=step)), 12, tmp_path)


def check_cases(of_people, examples, tmp_path):
    answered = []
    # Polars 1 filters columns of few types on private frames.
    has_filters = not IS_OLD
    ways = st.tuples(of_people, *map(st.sampled_from, (FORMS, ["in-memory", "streaming"], PARTS, ENDS, [False, True])))

    def holds(example):
        case, form, engine, parts, end, is_filtered = example
        case = replace(case, filtered=is_filtered and (has_filters or case.asked[0][0] in OF_NO_COLUMN))
        few = None if parts == MANY else parts
        with pytest.MonkeyPatch.context() as patch:
            if parts == MANY:
                patch.setattr(*PARTITION_BYTES)
            # How many parts there are follows from the number of rows, as the docs say: so does how often is asked.
            left_out = ["asked"] if parts == MANY else []
            answered.append(check(case, partial(ask, case, form, engine, few, end, tmp_path), leaves_out=left_out))

    explore(holds, ways, examples=examples)
    assert sum(answered) > len(answered) * 0.8, "hardly anything is answered"
