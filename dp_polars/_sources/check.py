"""Refuse tables with preprocessing that visibly mixes people: one table of kinds, and one walk, for all engines.

The data set is the table given to `protect` or to a release. Its preprocessing is the owner's responsibility.
This only finds slips: transformations that bring something of other people into a person's rows.
A reader for each engine's plans makes a `PlanNode` of each node (`_sources/plans.py`, `_engines/sql/reading.py`).
All decisions and messages are here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, NoReturn

from dp_polars._base.column_types import PrivacyUnit, shown

_UNCHECKED = "If you know that each person's rows follow from that person's: unchecked=True."
_AFTER = "do it after `protect`"
_WHY = "so one person could change what is in another's rows"


@dataclass(frozen=True)
class Mixing:
    """The effect of a transformation that mixes people, and a way out."""

    does: str
    hint: str


AGGREGATION = Mixing(
    f"combines rows of several people, {_WHY}",
    "group by {unit}, too, and leave it as it is; or use `protect` first: group_by(public keys).agg(…)",
)
WINDOW = Mixing(
    f"looks at rows of several people, {_WHY}",
    f"take one person's rows: over {{unit}}, which stays as it is; or {_AFTER}, by public keys",
)
REDUCTION = Mixing(
    f"combines all rows, {_WHY}",
    f"take it of one person's rows, over {{unit}}; use a public constant, for example last year's mean; or {_AFTER}",
)
PLACE = Mixing(
    f"picks or fills by the place among all rows, {_WHY}",
    "take it of one person's rows, by {unit}; filter by what the row itself holds; or limit each person's rows by "
    "`protect`: max_rows, max_groups",
)
DISTINCT = Mixing(
    f"compares the rows of several people and keeps one of them, {_WHY}",
    "include {unit} in the columns that are compared; or limit each person's rows by `protect`",
)
FORMAT = Mixing(
    f"takes its format from the first values of all rows, {_WHY}",
    'give the format: str.to_date("%Y-%m-%d"), str.to_datetime("%Y-%m-%d %H:%M:%S")',
)
CODE = Mixing(f"is code that may look at all rows, {_WHY}", f"use the engine's own expressions; or {_AFTER}")
NAMED = Mixing(
    "is, by its name, no function that the database itself has and computes of its arguments alone: a macro or a "
    f"function of somebody's may read any row, or give another value each time, {_WHY}",
    "use a built-in function of the engine, or operations of Ibis",
)
SAME_SOURCE = Mixing(
    f"brings in what was made of other people's rows of the same table, {_WHY}",
    "join it on {unit}; make it by {unit}; or publish it first, and join the published table",
)
BESIDE = Mixing(
    f"brings in a table about people, by other columns than {{unit}}, {_WHY}",
    "join it on {unit}, or leave that column out of it",
)
SORTED = Mixing(
    f"makes Polars trust that a whole column is sorted, {_WHY}", "leave it out: Polars knows what `sort` has sorted"
)
SORTED_FILE = replace(SORTED, hint=f"{_AFTER}; or read the file first: pl.read_parquet(…).lazy()")
UNSORTED = Mixing(
    f"goes by the order of the rows: if they are not sorted, a match depends on other rows, {_WHY}",
    "sort the rows right before, frame.sort(…).join_asof(…), and leave check_sortedness; or go by {unit}, too",
)
RANDOM = Mixing(
    "draws at random, and a row may be drawn several times: a person would count for more than the limits",
    "keep a part by a hash, or write the drawn rows to a table first",
)
TWO_UNITS = Mixing(
    f"has other columns as {{unit}} each time: a row belongs to several people, {_WHY}",
    "take the same columns for the unit wherever the table is read",
)
CATEGORIES = Mixing(
    f"goes by the numbers of categories, which are those of their first appearance in any row, {_WHY}",
    "take their texts, column.cast(pl.String), or an Enum of public categories",
)
GROUPS = Mixing(
    f"may come out otherwise where there are other groups, {_WHY}",
    "leave out the order, which it needs not; or name the inner value first: with_columns(inner=….over({unit}))",
)
UNLISTED = Mixing(
    f"is not known to look at one row alone, {_WHY}",
    f"take it of one person's rows, over {{unit}}; use a public constant; or {_AFTER}",
)
UNKNOWN = Mixing(f"can't be looked into, and may combine rows of several people, {_WHY}", f"leave it out; or {_AFTER}")
# Without a privacy unit every row is a person.
SEVERAL = Mixing("makes several rows of one, where every row is a person", "name the privacy unit")
TWICE = Mixing(
    "may read a row twice: they must be known to be different where every row is a person",
    "name each file once, without links to it, or name the privacy unit",
)

#: The kinds as users write them, for the page.
KINDS = {
    "`group_by` without the unit": AGGREGATION,
    "`over` without the unit": WINDOW,
    "sums, means, quantiles and other reductions of a column": REDUCTION,
    "`head`, `limit`, `tail`, `slice`, `sample`, `n_rows`, row numbers, ranks, shifts, running values, fills": PLACE,
    "`unique` of columns without the unit": DISTINCT,
    "`set_sorted`, but as the last transformation": SORTED,
    "`join_asof` of rows that the plan has not sorted, by other columns than the unit": UNSORTED,
    "a transformation that looks at values of a Parquet file whose footer names sorting columns": SORTED_FILE,
    "`map_batches`, `map_elements`, `map_groups`, compiled plugins": CODE,
    "`str.to_date`, `str.to_datetime`, `str.to_time`, `str.strptime` without a format": FORMAT,
    "`to_physical`, `hash`, `cast` to numbers, `join_asof` of Categoricals": CATEGORIES,
    "`min`, `max` of what is sorted, or in an order; on Polars 1 more functions of what looks at several rows": GROUPS,
    "functions that are on no list": UNLISTED,
    "`join` with a table made of the same rows, but on the unit": SAME_SOURCE,
    "`join` with a table that has a column of the unit's name, by others": BESIDE,
    "any other transformation": UNKNOWN,
    "`explode`, `unpivot` and `join` without a unit": SEVERAL,
    "a file that is named twice, without a unit": TWICE,
}


@dataclass(frozen=True)
class Seen:
    """An operation on several rows: its kind, its spelling, and its columns of the first input.

    It combines rows that agree in all `keys`. None: it combines all rows.
    """

    kind: Mixing
    what: str
    keys: frozenset[str] | None = None


class ColumnOrigin(NamedTuple):
    """The origin of a column: the number of an input, and the columns there from which each row's value is computed.

    `text` describes the computation, if the column is not just passed on. Columns with equal text have equal values.
    """

    place: int
    columns: frozenset[str]
    text: str = ""


@dataclass(frozen=True, eq=False)
class PlanNode:
    """A node of a plan, in a form that all engines share."""

    columns: Sequence[str]  # names of the output columns
    inputs: tuple[PlanNode, ...] = ()  # the nodes that it reads from
    # Origins of output columns. A column that doesn't depend on a single row of one input is left out. A union has
    # place 0, because its inputs have the same columns.
    origins: Mapping[str, ColumnOrigin] = field(default_factory=dict)
    seen: tuple[Seen, ...] = ()  # operations on several rows
    # The columns (left, right) that a join makes equal in its output. None: it is no join.
    pairs: Sequence[tuple[str, str]] | None = None
    source: Any = None  # the source of a node without inputs, as `is_same` of `refuse_mixing` compares it
    several: str = ""  # its spelling, if it may make several rows of one
    join: str = "`join`"  # the spelling of the operation that adds the second input

    @property
    def every(self) -> Iterator[PlanNode]:
        yield self
        for step in self.inputs:
            yield from step.every

    def first(self, name: str) -> tuple[PlanNode, str]:
        """Return the column that a column copies, through transformations of one table."""
        of = self.origins.get(name) if len(self.inputs) == 1 else None
        if of is None or of.text or len(of.columns) > 1 or not of.columns <= {*self.inputs[0].columns}:
            return self, name
        return self.inputs[0].first(*of.columns)

    @property
    def sources(self) -> list[Any]:
        return [step.source for step in self.every if not step.inputs]


@dataclass(frozen=True)
class Unit:
    """The columns that identify people in a node's rows, and texts by which the privacy unit is computed."""

    columns: tuple[frozenset[str], ...]
    computed_by: tuple[str, ...] = ()

    @property
    def all(self) -> frozenset[str]:
        return frozenset[str]().union(*self.columns)

    def below(self, step: PlanNode, place: int) -> Unit | None:
        """Return the same for an input. None: its columns don't identify people."""
        found, texts, there = list[frozenset[str]](), list[str](), {*step.inputs[place].columns}
        for of in self.columns:
            columns = frozenset[str]()
            for name in sorted(of):
                origin = step.origins.get(name, ColumnOrigin(place, frozenset()))
                names = origin.columns
                if origin.place != place and step.pairs is not None:  # the other side has an equal column
                    pairs = {pair[origin.place]: pair[place] for pair in step.pairs}
                    names = frozenset(pairs.get(one, "") for one in names) if {*names} <= {*pairs} else frozenset()
                if not names or not names <= there:
                    return None
                columns |= names
                texts += [origin.text] if origin.text else []
            found.append(columns)
        return Unit(tuple(found), (*self.computed_by, *texts))


@dataclass(frozen=True)
class Read:
    """A source that preprocessing reads; `unit` is None if its rows can't be matched to people.

    `is_of_facts`: whether it is joined to people's rows by other columns than the privacy unit.
    """

    source: Any
    unit: Unit | None
    is_of_facts: bool = False


def refuse_mixing(
    step: PlanNode, unit: PrivacyUnit | None, call: str, is_same: Callable[[Any, Any], bool]
) -> list[Read]:
    """Refuse preprocessing that visibly mixes people, and return the sources that it reads.

    `step` is the last node, which returns the protected rows. Without a `unit` every row is a person.
    Missing columns are refused later.
    `call` begins messages, and `is_same` returns whether two sources may be the same table.
    """
    walk = _Walk(call, unit, is_same)
    if unit is None:
        walk.check_rows(step)
    elif not {*unit} <= {*step.columns}:
        return followed(step, None)
    else:
        walk.check(step, Unit(tuple(frozenset([name]) for name in unit)))
        walk.check_facts()
    return walk.reads


def followed(step: PlanNode, unit: PrivacyUnit | None) -> list[Read]:
    """Return the sources of unchecked preprocessing, with the columns that identify people."""
    walk = _Walk("", unit, lambda *_: False, is_checked=False)
    walk.check(step, Unit(tuple(frozenset([name]) for name in unit)) if unit and {*unit} <= {*step.columns} else None)
    walk.check_facts()
    return walk.reads


def refuse(call: str, kind: Mixing, what: str, unit: PrivacyUnit | None) -> NoReturn:
    """Raise with the reason and the ways out."""
    by = "the privacy unit" if unit is None else f"the privacy unit {shown(unit)}"
    does, hint = (text.replace("{unit}", by) for text in (kind.does, kind.hint))
    msg = f"{call}: {what} {does}.\n\nHint: {hint}. {_UNCHECKED}"
    raise ValueError(msg)


@dataclass
class _Walk:
    call: str
    unit: PrivacyUnit | None
    is_same: Callable[[Any, Any], bool]
    is_checked: bool = True
    reads: list[Read] = field(default_factory=list)
    # A table joined by other columns, the table that it is joined to, and how.
    facts: list[tuple[PlanNode, PlanNode, str]] = field(default_factory=list)

    def check(self, step: PlanNode, unit: Unit | None) -> None:
        """Refuse a node or any node below it; `unit` has the columns that identify the people of its rows."""
        below = [None if unit is None else unit.below(step, place) for place in range(len(step.inputs))]
        self._check_seen(step, below[0] if below else None)
        if not step.inputs:
            self.reads.append(Read(step.source, unit))
        is_known = any(of is not None for of in below)
        for place, (one, of) in enumerate(zip(step.inputs, below, strict=True)):
            if step.pairs is not None and unit is not None and is_known and of is None:
                names = unit.all.union(*(other.all for other in below if other is not None))
                # Other columns of a unit with several columns.
                names -= {pair[place] for pair in step.pairs if pair[1 - place] in names}
                self._check_beside(one, names, step.join, is_left=place == 0)
                self.facts.append((one, step.inputs[1 - place], step.join))
            else:
                if step.pairs is not None and unit is not None and of is not None and place:
                    # Its people are in a column of another name, but it has a column of the unit's name, too: either
                    # may say whose a row is.
                    self._check_beside(one, unit.all - of.all, step.join, is_left=False)
                self.check(one, of)

    def _check_beside(self, table: PlanNode, names: frozenset[str], join: str, *, is_left: bool) -> None:
        """Refuse a table about people that is joined by other columns; on the left, also one without its unit."""
        for one in table.every if is_left else [table]:
            if not names.isdisjoint(one.columns):
                self._refuse(BESIDE, join)

    def check_facts(self) -> None:
        """Refuse a table made of the rows that it joins, or of several rows of another table about people."""
        of_people = [read.source for read in self.reads]
        for table, rows, join in self.facts:
            mixes = any(one.seen for one in table.every)
            beside = rows.sources if mixes else []
            if any(self.is_same(one, other) for one in table.sources for other in (*of_people, *beside)):
                self._refuse(SAME_SOURCE, join)
            if mixes and any(not {*(self.unit or ())}.isdisjoint(one.columns) for one in table.every if not one.inputs):
                self._refuse(BESIDE, join)
            self.reads += [Read(source, None, is_of_facts=True) for source in table.sources]

    def check_rows(self, step: PlanNode) -> None:
        """Refuse operations that combine rows, or make several of one, if every row is a person."""
        for one in step.every:
            self._check_seen(one, None)
            if one.several:
                self._refuse(SEVERAL, one.several)
        sources = step.sources
        if any(self.is_same(one, other) for place, one in enumerate(sources) for other in sources[:place]):
            self._refuse(TWICE, "a table that is read twice")
        self.reads += [Read(source, None) for source in sources]

    def _check_seen(self, step: PlanNode, unit: Unit | None) -> None:
        for one in step.seen:
            if unit is None or one.keys is None:
                self._refuse(one.kind, one.what)
            elif not unit.all <= one.keys:
                names, keys = ({*map(step.inputs[0].first, of)} for of in (unit.all, one.keys))
                if not names <= keys:
                    self._refuse(one.kind, one.what)

    def _refuse(self, kind: Mixing, what: str) -> None:
        if self.is_checked:
            refuse(self.call, kind, what, self.unit)
