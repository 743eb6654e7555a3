"""Steps on several rows of a person, or on two tables: what comes of a person is what comes of that person alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import hypothesis.strategies as st
import polars as pl
import pytest

import dp_polars as dpp
from dp_polars._release.pipeline import Pipeline
from dp_polars._steps.scans import NO_FILTER_IN_SCANS
from tests.fuzzing.exploring import explore
from tests.registry import OF_PEOPLE_STEPS
from tests.replay.cases import Case, cases

# Of a bounded join, rows of the right frame are chosen at random: record and replay couples the choices.
STEPS = sorted(OF_PEOPLE_STEPS.keys() - {"bounded private join"})
# What can be compared, sorted and joined.
PLAIN = {"Int64", "String", "Date", "Boolean", "Enum", "Time"}


@st.composite
def of_people(draw: st.DrawFn) -> Case:
    case = draw(cases("n_people", PLAIN, PLAIN))
    return replace(case, step=draw(st.sampled_from(STEPS)))


def rows_of(pipeline: Pipeline, *tables: pl.DataFrame, engine: str = "in-memory") -> Counter[str]:
    """The rows of somebody after all steps, to the bit, and how often each is there."""
    proved = pipeline.proved(*(table.schema for table in tables))
    rows = proved.rows(*(table.lazy() for table in tables)).collect(engine=engine, optimizations=NO_FILTER_IN_SCANS)
    return Counter(map(repr, rows.drop_nulls("p").select(pl.all().to_physical()).iter_rows()))


def check(case: Case, pipeline: Pipeline | None = None) -> None:
    pipeline = pipeline or case.query(dpp.protect).request.pipeline
    tables = [case.frame(0), case.further(0)][: 1 + case.has_further]
    together = rows_of(pipeline, *tables)
    people = tables[0]["p"].drop_nulls().unique()
    alone = [[table.filter(p=one) if "p" in table.columns else table for table in tables] for one in people]
    assert sum((rows_of(pipeline, *own) for own in alone), Counter()) == together, "each person alone"
    assert rows_of(pipeline, *(table.reverse() for table in tables)) == together, "in reversed order"
    assert rows_of(pipeline, *tables, engine="streaming") == together, "streaming"


@pytest.mark.slow
def test_what_comes_of_a_person_is_what_comes_of_that_person_alone(request):
    explore(check, of_people(), examples=200, config=request.config)


@pytest.mark.parametrize(
    ("step", "looks_at_others"),
    [
        ("private join", lambda rows, further: rows.join(further.drop("p"), on="g", how="inner")),
        ("unique", lambda rows: rows.unique(["g"], keep="none")),
        ("over", lambda rows: rows.with_columns(pl.col("x").max())),
    ],
)
def test_steps_that_look_at_others_are_found(step, looks_at_others):
    """The negative control: the step is exchanged for one that takes people together."""

    def holds(case):
        pipeline = case.query(dpp.protect).request.pipeline
        proved = pipeline.proved(*(table.schema for table in [case.frame(0), case.further(0)][: 1 + case.has_further]))
        check(case, replace(pipeline, proof=replace(proved, runs=(looks_at_others, *proved.runs[1:]))))

    with pytest.raises(AssertionError, match="each person alone"):
        explore(holds, of_people().map(lambda case: replace(case, step=step)), examples=100, shrinks=False)
