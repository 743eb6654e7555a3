"""Neighbouring data sets, and what is asked of them: made by hypothesis from the registry's types and ways to ask."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import hypothesis.strategies as st
import polars as pl

import dp_polars as dpp
from tests.registry import (
    ASKS,
    COLUMNS,
    COUNTED,
    KEYS,
    LISTS,
    MULTIPLYING,
    NUMBERS,
    OF_CONDITIONS,
    OF_FRAMES,
    OF_NO_COLUMN,
    RELATIONS,
    UNITS,
    WEIGHT,
)

# Every way to ask that engines answer.
WAYS = [*COUNTED, *NUMBERS, *OF_NO_COLUMN, *OF_CONDITIONS, *OF_FRAMES]
# Those about people, for whom there must be a unit, all groups together.
OF_PEOPLE = [way for way in OF_FRAMES if way not in ("keys", "cube")]
# Where no expressions are run, conditions are columns.
ONLY_KINDS = dict.fromkeys(OF_CONDITIONS, frozenset({"Boolean"}))
_ROWS, _PEOPLE = 10, 4
_NAN = -1
LOSSES: list[dict[str, Any]] = [{"epsilon": 1}, {"rho": Fraction(1, 2)}]

# The places of a row's person, key and value among those of their types, and its weight; None: null.
Row = tuple["int | None", "int | None", "int | None", "int | None"]


@dataclass(frozen=True)
class Case:
    """Two neighbouring data sets, and a release of each.

    Parameters
    ----------
    kind, key, unit
        Names in `COLUMNS`, `KEYS` and `UNITS`. Without a unit every row is a person.
    base
        The rows that both have.
    one, other
        The rows of one person: in the first data set, and in the second.
    groups
        Places of public keys; None: one group.
    asked
        A way to ask, which of its queries, and in which loss; more of them in one release.
    bounds
        Of `protect`, its relation too.
    intervals
        Whether numbers come with intervals.
    couples
        Whether others may be over the bounds: then random choices must be coupled.
    salt
        What everything else follows from: the order of rows, and the forced outputs.
    filtered
        Whether only rows of a positive weight count in the outputs of `agg`.
    step
        A step that makes several rows of one, before the query: in `MULTIPLYING`.
    """

    kind: str
    key: str
    unit: str | None
    base: tuple[Row, ...]
    one: tuple[Row, ...]
    other: tuple[Row, ...]
    groups: tuple[int, ...] | None
    asked: tuple[tuple[str, int, int], ...]
    bounds: tuple[tuple[str, Any], ...]
    intervals: bool
    couples: bool
    salt: int
    filtered: bool = False
    step: str | None = None

    @property
    def relation(self) -> str:
        return dict(self.bounds)["neighboring_relation"]

    def frame(self, side: int) -> pl.DataFrame:
        """The rows of one side, in an order of its own."""
        rows = [*self.base, *(self.one, self.other)[side]]
        random.Random(f"{self.salt} {side}").shuffle(rows)
        people = [None if self.unit is None else row[0] for row in rows]
        return pl.DataFrame(
            {
                "p": _at(UNITS[self.unit or "Int64"], people),
                "g": _at((COLUMNS[self.key].dtype, COLUMNS[self.key].values), [row[1] for row in rows]),
                "x": _at((COLUMNS[self.kind].dtype, COLUMNS[self.kind].values), [row[2] for row in rows]),
                WEIGHT: pl.Series([row[3] for row in rows], dtype=pl.Int64),
                **({LISTS: self._lists(rows)} if self.step == "explode" else {}),
            }
        )

    @staticmethod
    def _lists(rows: list[Row]) -> pl.Series:
        return pl.Series([[0] * (1 + (key or 0) % 3) for _, key, _, _ in rows], dtype=pl.List(pl.Int64))

    def in_chunks(self, side: int) -> pl.DataFrame:
        """The rows of one side in several chunks of its own."""
        frame, rng = self.frame(side), random.Random(f"chunks {self.salt} {side}")
        ends = sorted(rng.randrange(frame.height + 1) for _ in range(rng.randrange(4)))
        return pl.concat([frame[a:b] for a, b in zip([0, *ends], [*ends, frame.height], strict=True)], rechunk=False)

    @property
    def keys(self) -> pl.DataFrame | None:
        """The public groups."""
        if self.groups is None:
            return None
        column = COLUMNS[self.key]
        dtype = pl.String() if isinstance(column.dtype, pl.Categorical) else column.dtype
        return pl.DataFrame({"g": pl.Series([column.values[place] for place in self.groups], dtype=dtype)})

    def query(self, protect: Callable[..., Any], **more: Any) -> dpp.PrivateQuery:
        """The query, to private rows that `protect` makes."""
        private = protect(None if self.unit is None else "p", **dict(self.bounds), **more)
        if self.step is not None:
            private = MULTIPLYING[self.step](private)
        (way, which, loss), *_ = self.asked
        if way in OF_FRAMES:
            queries = OF_FRAMES[way](private, self.keys, "g", LOSSES[loss])
            return queries[which % len(queries)]
        people = self.unit is not None
        where = pl.col(WEIGHT) > 0 if self.filtered else None
        asks = {f"{name} {i}": query(name, self.kind, n, m, people, where) for i, (name, n, m) in enumerate(self.asked)}
        return (private if self.keys is None else private.group_by(self.keys)).agg(**asks)


def _at(of: tuple[pl.DataType, list[Any]], places: list[int | None]) -> pl.Series:
    dtype, values = of
    found = [None if place is None else math.nan if place == _NAN else values[place % len(values)] for place in places]
    return pl.Series(found, dtype=dtype, strict=False)


def query(name: str, kind: str, which: int, loss: int, people: bool, where: pl.Expr | None = None) -> dpp.PrivateExpr:
    """One of the queries of a way to ask about a column `x`."""
    if name in OF_NO_COLUMN:
        return getattr(dpp, name)(where=where, **LOSSES[loss])
    if name in OF_CONDITIONS:
        condition = pl.col("x") if kind == "Boolean" else pl.col(WEIGHT) > 1
        condition = condition if where is None else condition.filter(where)
        return getattr(dpp, name)(condition, **LOSSES[loss])
    known = {**ASKS, **NUMBERS}[name].about(COLUMNS[kind])
    known = [options for options in known if people or "per_person" not in options]
    options = known[which % len(known)]
    # A gap is free, and the first above a threshold is drawn, in pure differential privacy alone.
    is_pure = options.get("gap") or name == "first_above"
    x = pl.col("x") if where is None else pl.col("x").filter(where)
    return getattr(x.dp, name)(**options, **LOSSES[0 if is_pure else loss])


def kinds_of(way: str) -> list[str]:
    """The columns that can be asked this."""
    known = {**ASKS, **NUMBERS}
    return [name for name, column in COLUMNS.items() if way not in known or known[way].about(column)]


@st.composite
def cases(draw: st.DrawFn, way: str, kinds: Collection[str], units: Collection[str]) -> Case:
    """Cases that ask one way, perhaps beside others, of columns, keys and units of these types."""
    kind = draw(st.sampled_from([name for name in kinds_of(way) if name in kinds]))
    key = draw(st.sampled_from([name for name in KEYS if name in kinds]))
    needs_people = way == "n_people" or way in OF_PEOPLE
    has_people = needs_people or draw(st.integers(0, 5)) > 0
    unit = draw(st.sampled_from([name for name in UNITS if name in units])) if has_people else None
    couples = way == "keys" or draw(st.booleans())  # keys that are found twice must be the same
    relation = draw(st.sampled_from(RELATIONS))

    people = 1 if unit is None else min(_PEOPLE, len(UNITS[unit][1]) - 1)
    others = st.one_of(st.none(), st.integers(1, people)) if unit else st.none()
    nan = [_NAN] if COLUMNS[kind].dtype.is_float() else []
    few_keys, values = min(5, len(COLUMNS[key].values)), len(COLUMNS[kind].values)

    def rows(person: st.SearchStrategy[int | None], most: int) -> tuple[Row, ...]:
        value = st.sampled_from([None, *nan, *range(values), *(place for place in range(min(2, values)))])
        place = st.sampled_from([None, *range(few_keys), 0, 0])
        weight = st.sampled_from([None, -1, 0, 1, 2, 5, 2**63 - 1, -(2**63)])
        return tuple(draw(st.lists(st.tuples(person, place, value, weight), max_size=most)))

    # Of 128 bits, public keys must fit into 64.
    listed = [place for place in range(few_keys) if "128" not in key or abs(COLUMNS[key].values[place]) < 2**63]
    groups = draw(st.lists(st.sampled_from(listed), min_size=1, unique=True))
    asked_about = COLUMNS[kind].categories or COLUMNS[kind].values
    counted = [place for place, value in enumerate(COLUMNS[kind].values) if value in asked_about]

    def person() -> tuple[Row, ...]:
        """Any rows; or many in every group, which no bound leaves as they are."""
        if unit is None or draw(st.booleans()):
            return rows(st.just(0), _ROWS if unit else 1)
        some = draw(st.lists(st.sampled_from(counted), min_size=1, max_size=2, unique=True))
        weight = draw(st.sampled_from([1, 2, 5]))
        return tuple((0, group, value, weight) for group in listed for value in some) * 2

    base, one, other = rows(others, _ROWS), person(), ()
    if relation == "replace_one":
        other = person()
    elif unit is None and not one:
        one = ((0, 0, 0, 1),)
    if unit is not None and not couples:  # one row each, within all bounds
        base = tuple({row[0]: row for row in base}.values())
    bounds = draw(_bounds(way)) if unit is not None else {}
    is_grouped = way == "cube" or (way != "keys" and draw(st.integers(0, 3)) > 0)
    asked = [(way, draw(st.integers(0, 20)), draw(st.integers(0, 1)))]
    if way not in OF_FRAMES:
        more = [name for name in WAYS if name not in OF_FRAMES and kind in kinds_of(name)]
        more = [name for name in more if name != "n_people" or unit is not None]
        also = st.tuples(st.sampled_from(more), st.integers(0, 20), st.integers(0, 1))
        asked += draw(st.lists(also, max_size=2))
    return Case(
        kind, key, unit, base, one, other,
        tuple(groups) if is_grouped else None,
        tuple(asked),
        (*bounds.items(), ("neighboring_relation", relation)),
        draw(st.booleans()), couples, draw(st.integers(0, 999)),
    )  # fmt: skip


@st.composite
def _bounds(draw: st.DrawFn, way: str) -> dict[str, int]:
    names = ("max_rows", "max_groups", "max_rows_per_group")
    bounds = {name: draw(st.integers(1, 3)) for name in names if draw(st.booleans())}
    if way == "keys" and not {"max_rows", "max_groups"} & set(bounds):
        bounds["max_groups"] = draw(st.integers(1, 3))
    if way != "keys" and not {"max_rows", "max_rows_per_group"} & set(bounds):
        bounds[draw(st.sampled_from(["max_rows", "max_rows_per_group"]))] = draw(st.integers(1, 3))
    return bounds
