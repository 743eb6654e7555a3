"""Each step on the rows of people tried on synthetic ones: the others must not matter."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import polars as pl
from polars.exceptions import PanicException, PolarsError

from dp_polars._rowwise import person_rules, trials
from dp_polars._rowwise.categoricals import apart_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from polars._typing import EngineType

    from dp_polars._rowwise.rules import Rule

    Run = Callable[[pl.LazyFrame], pl.LazyFrame]

# Rows of all people together, and how far a row is from the one that comes after it in the shuffled frame.
_ROWS, _STEP = 48, 29


def refuse_company(run: Run, schema: pl.Schema, unit: str, call: str) -> None:
    """Refuse a step that raises on synthetic rows, or gives a person others where other people are there.

    It is run on the rows of all, of each person alone, in other orders, in other chunks, streamed and not optimized: a
    person's rows must be the same ones to the bit, in any order.
    """
    rule = _broken(run, _people(schema, unit), unit)
    if rule is not None:
        raise ValueError(rule.message(call, "the step"))


def _broken(run: Run, frame: pl.DataFrame, unit: str) -> Rule | None:
    """Return the rule that a step breaks on these rows, if any."""
    try:
        together = _rows(run(frame.lazy()))
        by_themselves: Counter[str] = Counter()
        for person in frame.partition_by(unit, maintain_order=True):
            by_themselves += _rows(run(person.lazy()))
        if by_themselves != together or any(_rows(*way) != together for way in _ways(run, frame)):
            return person_rules.COMPANY
        run(frame.clear().lazy()).collect()
    except (PolarsError, PanicException):
        return person_rules.RAISING
    return None


def _ways(run: Run, frame: pl.DataFrame) -> Iterator[tuple[pl.LazyFrame, EngineType, bool]]:
    """Yield the same rows in other orders and chunks, and other ways to run the step on them."""
    backwards, shuffled = frame.reverse(), frame[[row * _STEP % frame.height for row in range(frame.height)]]
    chunks = pl.concat([frame[start : start + 5] for start in range(0, frame.height, 5)], rechunk=False)
    yield run(backwards.lazy()), "in-memory", True
    yield run(shuffled.lazy()), "in-memory", True
    yield run(chunks.lazy()), "in-memory", True
    yield run(frame.lazy()), "streaming", True
    yield run(shuffled.lazy()), "streaming", True
    yield run(frame.lazy()), "in-memory", False


def _people(schema: pl.Schema, unit: str) -> pl.DataFrame:
    """Return rows of extreme values of some people, each with several rows, some of them twice; one is nobody."""
    others = {name: dtype for name, dtype in schema.items() if name != unit}
    rows = trials.made_up(pl.Schema(others)) if others else pl.DataFrame({"": range(8)})
    rows = rows[[number * _STEP % rows.height for number in range(_ROWS * 3 // 4)]]
    rows = pl.concat([rows, rows[: _ROWS - rows.height]])
    people = trials.extremes(schema[unit])
    # Rows that are twice there are so for one person: their places differ by a multiple of the number of people.
    people = people.gather([number % min(len(people), 4) for number in range(rows.height)])
    return rows.with_columns(people.alias(unit)).select(
        pl.col(name).cast(apart_type(dtype)) for name, dtype in schema.items()
    )


def _rows(plan: pl.LazyFrame, engine: EngineType = "in-memory", optimized: bool = True) -> Counter[str]:
    """Return the rows of a plan, to the bit, and how often each is there."""
    flags = pl.QueryOptFlags(predicate_pushdown=False) if optimized else pl.QueryOptFlags.none()
    frame = plan.collect(engine=engine, optimizations=flags)
    return Counter(map(repr, frame.select(pl.all().to_physical()).iter_rows()))
