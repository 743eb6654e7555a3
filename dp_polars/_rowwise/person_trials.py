"""Each step on the rows of people tried on synthetic ones: the others must not matter."""

from __future__ import annotations

import struct
from collections import Counter
from typing import TYPE_CHECKING

import polars as pl
from polars.exceptions import PanicException, PolarsError

from dp_polars._rowwise import person_rules, trials
from dp_polars._rowwise.categoricals import apart_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from polars._typing import EngineType, PolarsDataType

    from dp_polars._base.privacy_units import PrivacyUnit
    from dp_polars._rowwise.rules import Rule

    Run = Callable[[pl.LazyFrame], pl.LazyFrame]

# Rows of all people together, a quarter of them twice; how far a row is from the next one in the shuffled frame.
_ROWS, _STEP = 48, 29
# Whose the rows are, in turn; but the first one, of nulls, is all that one person has. A row that is there twice
# has one owner.
_OWNERS = [1, 1, 2, None, 2, 2, 1, 2, 2, 2, 2, 2]

_ANOTHER_NAN = struct.unpack("<d", (0xFFF8_0000_0000_0001).to_bytes(8, "little"))[0]


def refuse_company(run: Run, schema: pl.Schema, unit: PrivacyUnit, call: str) -> None:
    """Refuse a step that raises on synthetic rows, or gives a person others where other people are there.

    It is run on the rows of all, of each person alone, in other orders, in other chunks, streamed and not optimized: a
    person's rows must be the same ones to the bit, in any order.
    """
    rule = _broken(run, _people(schema, unit), unit)
    if rule is not None:
        raise ValueError(rule.message(call, "the step"))


def _broken(run: Run, frame: pl.DataFrame, unit: PrivacyUnit) -> Rule | None:
    """Return the rule that a step breaks on these rows, if any."""
    try:
        together = _rows(run(frame.lazy()))
        by_themselves: Counter[str] = Counter()
        for person in frame.partition_by(unit, maintain_order=True):
            by_themselves += _rows(run(person.lazy()))
        if by_themselves != together or any(_rows(*way) != together for way in _ways(run, frame)):
            return person_rules.COMPANY
        run(frame.clear().lazy()).collect(engine="in-memory")
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


def _people(schema: pl.Schema, unit: PrivacyUnit) -> pl.DataFrame:
    """Return rows of extreme values of some people, each with several rows, some of them twice; one is nobody."""
    numbers = [number % (_ROWS * 3 // 4) for number in range(_ROWS)]
    columns = {}
    for place, (name, dtype) in enumerate(schema.items(), 1):
        values = pl.concat([trials.extremes(dtype), *_floats(dtype)])
        # The second part is for columns whose place is a multiple of how many values they have.
        picks = [(number * place + number // len(values)) % len(values) for number in numbers]
        columns[name] = values.gather(picks)
    for place, name in enumerate(unit):  # of several columns, some people differ in one of them alone
        people = trials.extremes(schema[name])  # nobody first
        there = min(len(people) - 1, 3) or 1
        owners = [0 if person is None else 1 + person % there for person in _OWNERS]
        whose = [owners[(number + place) % len(owners)] if number else 1 for number in numbers]
        columns[name] = people.gather([owner % len(people) for owner in whose])
    return pl.DataFrame(columns)


def _floats(dtype: PolarsDataType) -> list[pl.Series]:
    """Return floats that equal others or add up with rounding, also nested ones; none of types that hold none."""
    if dtype.is_float():
        return [pl.Series([-0.0, _ANOTHER_NAN, 0.1, 0.7, 5e-324, 2.0**54, 2.0**55], dtype=pl.Float64).cast(dtype)]
    if isinstance(dtype, (pl.List, pl.Array)):
        size = dtype.size if isinstance(dtype, pl.Array) else 2
        found = [
            pl.concat([values.gather([(start + n) % len(values) for n in range(size)]).implode() for start in range(3)])
            for values in _floats(dtype.inner)
        ]
        return [values.list.to_array(size) if isinstance(dtype, pl.Array) else values for values in found]
    if isinstance(dtype, pl.Struct):
        fields = [(of.name, [trials.extremes(of.dtype), *_floats(of.dtype)][-1][:3]) for of in dtype.fields]
        if any(_floats(of.dtype) for of in dtype.fields):
            return [
                pl.DataFrame({name: values.gather([0, -1, 0]) for name, values in fields})
                .to_struct()
                .cast(apart_type(dtype))
            ]
    return []


def _rows(plan: pl.LazyFrame, engine: EngineType = "in-memory", optimized: bool = True) -> Counter[str]:
    """Return the rows of a plan, to the bit, and how often each is there."""
    flags = pl.QueryOptFlags(predicate_pushdown=False) if optimized else pl.QueryOptFlags.none()
    frame = plan.collect(engine=engine, optimizations=flags)
    return Counter(map(repr, frame.select(pl.all().to_physical()).iter_rows()))
