"""What is taken of one person's rows gives a person the same whoever the others are: on expressions of all kinds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

import hypothesis.strategies as st
import polars as pl
import pytest
from polars import selectors as cs

from dp_polars._release import pipeline
from dp_polars._steps.scans import NO_FILTER_IN_SCANS
from tests.fuzzing.exploring import explore
from tests.fuzzing.expressions import Case, Tally, attempt, cases
from tests.helpers.needs import IS_OLD

Run = Callable[[pl.LazyFrame], pl.LazyFrame]
# What is asked of a person's rows, of any expression.
OF_GROUPS = [
    *("{}", "({}).{}()", "({}).sort().{}()", "({}).sort_by('c0').{}()", "({}).sort().{}().max()"),
    *("({}).filter(pl.col('c0').is_not_null()).{}()", "({}).sort_by('c0').drop_nulls().{}()", "({}).unique().{}()"),
    *("({}).sort_by('c0', descending=True).head(2).{}()", "({}).sort_by('c0').{}().sum()", "({}).sort_by('c0')"),
    *("({}).unique().sort().{}()", "({}).sort_by('c0').{}().implode()", "({}).drop_nulls().{}()"),
]
OF_ROWS = [
    *("({}).{}().over('p')", "({}).{}().over('p', 'c0')", "({}).{}().over('p', order_by='c0')", "({}).over('p')"),
    *("({}).{}().over('p', order_by='c0', descending=True)", "1 / ({}).{}().over('p', order_by='c0')"),
    "({}).{}().over('p', pl.col('c0').is_null(), order_by='c0')",
    "({}).{}().rolling_sum(2).over('p', order_by='c0')",
    "({}).rolling_mean(2, min_samples=1).{}().over('p', order_by='c0')",
]
FUNCTIONS = [
    *("sum", "min", "max", "n_unique", "len", "count", "null_count", "median", "any", "all", "mode", "mean"),
    *("first", "last", "arg_max", "diff", "shift", "cum_sum", "cum_max", "rank", "cum_count", "unique", "std"),
    *("var", "is_first_distinct", "is_duplicated", "has_nulls", "implode", "drop_nulls", "forward_fill", "pct_change"),
    *("rle_id", "sort", "cum_min"),
]


@dataclass(frozen=True)
class PersonCase:
    """An expression of all kinds, what is asked of it, and whose each row is."""

    case: Case
    way: str
    function: str
    people: tuple[int | None, ...]

    def build(self) -> pl.Expr | None:
        text = self.way.format(self.case.text, self.function)
        return Case(self.case.kinds, self.case.rows, text).build()

    def frame(self) -> pl.DataFrame:
        frame = self.case.frame(*range(len(self.case.rows)))
        return frame.with_columns(p=pl.Series(self.people[: frame.height], dtype=pl.Int64))

    def proved(self, expr: pl.Expr) -> Run:
        schema = self.frame().schema
        if self.way in OF_GROUPS:
            return pipeline.PersonGroups(("p",), (expr.alias("result"),)).proved(schema, ("p",))
        return pipeline.Expressions("with_columns", (expr.alias("result"),)).proved(schema, ("p",))

    def unproved(self, expr: pl.Expr) -> Run:
        if self.way in OF_GROUPS:
            return lambda rows: rows.drop_nulls("p").group_by("p").agg(expr.alias("result"))
        return lambda rows: rows.drop_nulls("p").with_columns(expr.alias("result"))


def person_cases() -> st.SearchStrategy[PersonCase]:
    people = st.lists(st.sampled_from([1, 1, 2, 3, None]), min_size=12, max_size=12).map(tuple)
    of_columns = cases().map(lambda case: replace(case, text="c0"))
    return st.builds(
        PersonCase, cases() | of_columns, st.sampled_from(OF_GROUPS + OF_ROWS), st.sampled_from(FUNCTIONS), people
    )


# A value twice, and rows that only their order tells apart.
TWICE = Case(("Int64", "String"), ((1, "a"), (1, "b"), (0, "c"), (1, "b")), "c1")
FLOATS = Case(("Int64", "Float64"), ((0, 0.1), (0, 0.2), (0, 0.3), (0, 1e16)), "c1")
KNOWN = [
    PersonCase(TWICE, "({}).{}()", "first", (1, 1, 1, 1)),
    PersonCase(TWICE, "({}).sort_by('c0').{}()", "last", (1, 1, 1, 1)),
    PersonCase(FLOATS, "({}).{}()", "sum", (1, 1, 1, 2)),
    PersonCase(FLOATS, "({}).{}().over('p')", "cum_sum", (1, 1, 1, 2)),
    PersonCase(Case(("Float64", "Int64"), ((0.0, 1), (-0.0, 2)), "c0"), "({}).{}()", "min", (1, 1)),
]


def check(case: PersonCase, tally: Tally | None = None, *, gated: bool = True) -> None:
    def prove(expr: pl.Expr) -> Run:
        run = (case.proved if gated else case.unproved)(expr)
        run(case.frame().lazy()).collect_schema()
        return run

    attempt(case, prove, lambda run: same_for_each_person(run, case.frame()), tally)


def same_for_each_person(run: Run, frame: pl.DataFrame) -> None:
    together = counted(run, frame)
    people = [person for person in frame.partition_by("p") if person["p"][0] is not None]
    assert sum((counted(run, person) for person in people), Counter()) == together, "each person alone"
    assert counted(run, frame.reverse()) == together, "in reversed order"
    short = pl.concat([frame[[*range(at, min(at + 2, frame.height))]] for at in range(0, frame.height, 2)])
    assert counted(run, short) == together, "in short chunks"
    assert counted(run, frame, "streaming") == together, "streaming"


def counted(run: Run, frame: pl.DataFrame, engine: str = "in-memory") -> Counter[str]:
    """The rows and how often each is there, to the bit; texts for categories."""
    rows = run(frame.lazy()).collect(engine=engine, optimizations=NO_FILTER_IN_SCANS)
    rows = rows.with_columns(cs.categorical().cast(pl.String))
    return Counter(map(repr, rows.select(pl.all().to_physical()).iter_rows()))


@pytest.mark.slow
def test_what_is_taken_follows_from_one_persons_rows(request):
    tally = Tally()
    explore(lambda case: check(case, tally), person_cases(), examples=1000, known=KNOWN, config=request.config)
    if request.config.getoption("--long") is None:  # else this would be a test of nothing
        assert tally.built > 500
        assert len(tally.accepted) > (25 if IS_OLD else 60)


@pytest.mark.parametrize("case", KNOWN, ids=lambda case: case.way.format(case.case.text, case.function))
def test_without_the_gate_known_cases_follow_from_the_order_of_the_rows(case):
    check(case)
    with pytest.raises(AssertionError):
        check(case, gated=False)
