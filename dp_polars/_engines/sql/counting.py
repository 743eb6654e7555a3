"""From rows to histograms, as one SELECT: the duties of an engine (`_release/contract.py`).

Which of a person's groups and rows count is decided by numbers that all outputs share: hashes of the person, of what
the rows say, and of a secret that is drawn for each release. The bounds hold for every secret and every hash: only how
evenly rows are chosen rests on them.

What is held of a row is what the specs read: its person, its group, a code for each column that is coded, and a
weight for each that is added up. All but the person are integers, `ABSENT` where the row is no evidence. Nothing of
this raises for a value, so it does not matter when an engine leaves rows out.
"""

from __future__ import annotations

import operator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import TYPE_CHECKING

from dp_polars._bins.binning import CategoryBinning, Clamping, OneCode
from dp_polars._engines.sql.arithmetic import code, integer, is_evidence, units, within
from dp_polars._engines.sql.dialects import OF_GROUPS, OF_ROWS, cast, constant, ibis
from dp_polars._engines.sql.rows import check_public, comparable, public_table
from dp_polars._mechanisms.noise import LARGEST_VALUE
from dp_polars._release.contract import Product, gathered, reading_values
from dp_polars._release.protection import Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import polars as pl

    from dp_polars._base.column_types import PrivacyUnit
    from dp_polars._bins.binning import Binning, Clamping
    from dp_polars._engines.sql.dialects import Common, Dialect, Places, Table, Value
    from dp_polars._release.contract import HistogramSpec, Work


# The most bits that what a row says may have in an integer: alone, and with its time, for which 33 are left.
_MOST_SAID, _MOST_BITS = 62, 24
# The most codes of a list of which a set for each pair is held: to list the members of sets takes time for each code.
_MOST_CODES = 16
#: What stands where a spec has nothing in a cell, or a row is no evidence: no number is so far from 0.
ABSENT = -(2**63)


@dataclass(frozen=True)
class Counted:
    """All histograms of a release.

    Parameters
    ----------
    table
        Rows of integers: `part`, `group`, `code` and numbers, which are sums of weights, of rows or of people. A part
        is one grouping. A pair of a group and a code may come in several rows of a part, which add up.
    places
        Where the numbers of each spec are.
    """

    table: Table
    places: Places


def histograms(table: Table, work: Work, dialect: Dialect, common: Common) -> Counted:
    """Return the histograms of all specs, all of them from the same rows.

    Where no spec is bounded, each grouping is the native query itself. Otherwise all are made from one expression of
    bounded rows, which is computed once. Sums of weights are exact and then clamped to ±LARGEST_VALUE, which is
    what their noise is added to.

    Raises
    ------
    TypeError, ValueError
        If the engine is not known to give the codes or weights of every row.
    """
    make = _natively if all(spec.limits.everything for spec in work.specs) else _bounded
    parts, places = [], dict[int, tuple[int, str]]()
    for part, (counted, numbers) in enumerate(make(table, work, dialect, common)):
        parts.append((part, counted, len(numbers)))
        places |= {spec: (part, f"number{place}") for place, spec in enumerate(numbers)}
    width = max(numbers for *_, numbers in parts)
    absent = [{f"number{i}": integer(ABSENT) for i in range(numbers, width)} for *_, numbers in parts]
    columns = ["part", "group", "code", *(f"number{i}" for i in range(width))]
    tables = [
        counted.mutate(part=integer(part), **more).select(columns)
        for (part, counted, _), more in zip(parts, absent, strict=True)
    ]
    return Counted(reduce(lambda one, other: one.union(other), tables), [places[i] for i in range(len(work.specs))])


# --- What is read ---------------------------------------------------------------------------------------------------


def code_of(spec: HistogramSpec, table: Table, dialect: Dialect) -> tuple[Value | None, Value | None, Value | None]:
    """Return the column that is coded, its code, and its value where the code must be looked up in a list."""
    column = table[spec.names[0]] if spec.columns else None
    found = code(spec.binning, column, spec.types[0] if spec.columns else None, dialect)
    if found is None and not (isinstance(spec.binning, CategoryBinning) and spec.columns):
        msg = "candidates must be a list or a grid."
        raise TypeError(msg)
    value = comparable(column, column.type(), dialect) if found is None and column is not None else None
    return column, found, value


def columns_read(
    unit: PrivacyUnit | None, keys: pl.DataFrame | Product | None, specs: Sequence[HistogramSpec]
) -> list[str]:
    """Return the columns that a statement reads, each once."""
    names = [
        *(unit or ()),
        *(() if keys is None else keys.columns),
        *(name for spec in specs for name in spec.names),
    ]
    return [*dict.fromkeys(names)]


def _reading_values(table: Table, specs: Sequence[HistogramSpec]) -> tuple[Table, Sequence[HistogramSpec]]:
    """Return specs that count values, and the table with the columns for those that counted nulls."""
    found: dict[str, Value] = {}

    def put(new: str, old: str) -> None:
        found[new] = ibis.ifelse(table[old].isnull(), integer(0), ibis.null("int64"))

    specs = reading_values(specs, table.columns, put)
    return table.mutate(**found) if found else table, specs


def _weight_of(spec: HistogramSpec, table: Table, dialect: Dialect, otherwise: int = 0) -> Value:
    """Return the weight of a row before it is doubled; `otherwise` where it has none."""
    row_weight = spec.clamping
    return units(row_weight, table[spec.names[row_weight.column]], spec.types[row_weight.column], dialect, otherwise)


def people_of(table: Table, unit: PrivacyUnit, dialect: Dialect) -> dict[str, Value]:
    """Return the columns of a privacy unit, as `person0`, `person1` and so on."""
    return {f"person{i}": _person_of(table[name], dialect) for i, name in enumerate(unit)}


def person_in(rows: Table) -> list[str]:
    """Return which columns of rows are those of `people_of`."""
    return [name for name in rows.columns if name.startswith("person")]


def is_somebody(table: Table, unit: PrivacyUnit, dialect: Dialect) -> list[Value]:
    return [is_evidence(table[name], dialect) for name in unit]


def _person_of(unit: Value, dialect: Dialect) -> Value:
    """Return a column of a privacy unit, so that equal values are the same ones, in hashes too."""
    kind = unit.type()
    if kind.is_string():
        return dialect.binary(unit)
    if kind.is_floating():  # -0.0 is 0.0, also where it is less to an engine, or another text
        zero = constant("0", kind)
        return ibis.ifelse(unit.abs() == zero, zero, unit)
    return unit


def keys_of(table: Table, keys: pl.DataFrame | Product | None, dialect: Dialect) -> dict[str, Value]:
    """Return the key columns of the rows, as `k0`, `k1` and so on."""
    names = [] if keys is None else keys.columns
    return {f"k{i}": comparable(table[name], table.schema()[name], dialect) for i, name in enumerate(names)}


def in_groups(rows: Table, table: Table, keys: pl.DataFrame | Product | None, dialect: Dialect) -> Table:
    """Put the number of a public group, `group`, in the place of its keys; rows of other keys are left out."""
    if keys is None:
        return rows.mutate(group=integer(0))
    if isinstance(keys, Product):
        group = integer(0)
        for i, values in enumerate(keys.values):
            rows = in_groups(rows.rename(k0=f"k{i}") if i else rows, table, values.to_frame(), dialect)
            rows = rows.rename(**{f"place{i}": "group"})
        for i, stride in enumerate(keys.strides):
            group += rows[f"place{i}"] * integer(stride)
        return rows.mutate(group=group).drop(*(f"place{i}" for i in range(keys.width)))
    for key in keys.get_columns():
        check_public(key)
    kinds = [table.schema()[name] for name in keys.columns]
    listed = public_table(keys.get_columns(), kinds, dialect)
    names, public_names = [f"k{i}" for i in range(keys.width)], [f"p{i}" for i in range(keys.width)]
    rows = rows.inner_join(listed, [rows[one] == listed[other] for one, other in zip(names, public_names, strict=True)])
    return rows.rename(group="number").drop(*names, *public_names)


def _candidates(spec: HistogramSpec, table: Table, dialect: Dialect) -> Table:
    """Return the candidates of a list as `p0`, with their codes as `number`."""
    values = spec.binning.values  # type: ignore[attr-defined]
    check_public(values)
    return public_table([values], [table.schema()[spec.names[0]]], dialect)


def any_of(conditions: Iterable[Value]) -> Value:
    return reduce(operator.or_, conditions)


# --- Sums and numbers -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Number:
    """What a spec adds up in each cell: of the rows for which `counts` is true (None: of all)."""

    counts: Value | None
    weight: Value | None = None
    person: Value | None = None  # distinct ones


def _counted(rows: Table, by: Sequence[str], numbers: Sequence[_Number], dialect: Dialect) -> Table:
    """Return the cells that there are, with `number0`, `number1` and so on."""
    found = {f"number{i}": _found(rows, number, dialect) for i, number in enumerate(numbers)}
    return rows.group_by(list(by)).aggregate(**found)


def _found(rows: Table, number: _Number, dialect: Dialect) -> Value:
    some = cast(rows.count(where=number.counts), "int64")
    total = some
    if number.person is not None:
        total = cast(number.person.nunique(where=number.counts), "int64")
    elif number.weight is not None:
        weight = number.weight
        weight = weight if number.counts is None else ibis.ifelse(number.counts, weight, integer(0))
        total = dialect.total(weight, LARGEST_VALUE)
    return total if number.counts is None else ibis.ifelse(some > 0, total, integer(ABSENT))


def _of_person(weight: Value, row_weight: Clamping, dialect: Dialect) -> Value:
    """Return the sum of a person's weights, clipped to `row_weight.of_person`."""
    low, high = row_weight.of_person
    return within(dialect.total(weight, LARGEST_VALUE), low, high)


# --- Without bounds -------------------------------------------------------------------------------------------------


def _natively(table: Table, work: Work, dialect: Dialect, common: Common) -> list[tuple[Table, list[int]]]:
    """Count before anything else is done: what comes after that sees only its result."""
    groupings = gathered(work.specs, partial(_goes_with, several=len(work.privacy_unit or ()) > 1))
    if len(groupings) > 1:
        table = common.read_again(table, columns_read(work.privacy_unit, work.keys, work.specs))
    return [(_native(table, work, numbers, dialect), numbers) for numbers in groupings]


def _goes_with(spec: HistogramSpec, other: HistogramSpec, *, several: bool) -> bool:
    """Return whether two histograms are of one grouping; `several`: people are told apart by several columns."""
    if any(one.people and (one.row_weight is not None or several) for one in (spec, other)):
        return False
    one, two = ((None, OneCode()) if isinstance(one.binning, OneCode) else _read(one) for one in (spec, other))
    return one == two


def _read(spec: HistogramSpec) -> tuple[str | None, Binning]:
    """Return what says which code a row has."""
    return spec.names[0] if spec.columns else None, spec.binning


def _native(table: Table, work: Work, numbers: list[int], dialect: Dialect) -> Table:
    table, specs = _reading_values(table, [work.specs[number] for number in numbers])
    chosen, needed = keys_of(table, work.keys, dialect), []
    by = list(chosen)
    people = [spec.people and work.privacy_unit is not None for spec in specs]
    if work.privacy_unit is not None:
        needed += is_somebody(table, work.privacy_unit, dialect)
        if any(people):
            chosen |= people_of(table, work.privacy_unit, dialect)
    is_one = len({_read(spec)[0] for spec in specs}) == 1
    for i, (number, spec) in enumerate(zip(numbers, specs, strict=True)):
        with _asked(_outputs(work)[number]):
            column, found, value = code_of(spec, table, dialect)
            listed = None if value is None else _candidates(spec, table, dialect)
            if spec.row_weight is not None:
                chosen[f"weight{i}"] = spec.clamping.of_units(_weight_of(spec, table, dialect), integer, dialect.divide)
        if column is not None and is_one:
            needed.append(is_evidence(column, dialect))
        elif column is not None:
            chosen[f"counts{i}"] = is_evidence(column, dialect)
        name = "code" if value is None else "value"
        chosen[name] = found if value is None else value
    by.append(name)
    rows = (table.filter(needed) if needed else table).select(**chosen)
    person = person_in(rows)
    if people[0] and specs[0].row_weight is not None:  # a grouping of its own
        clipped = _of_person(rows["weight0"], specs[0].row_weight, dialect)
        rows, people = rows.group_by([*person, *by]).aggregate(weight0=clipped), [False]
    elif len(person) > 1:  # a grouping of its own, too
        rows, people = rows.distinct(), [False]
    sums = [
        _Number(
            rows[f"counts{i}"] if f"counts{i}" in chosen else None,
            rows[f"weight{i}"] if f"weight{i}" in chosen else None,
            rows[person[0]] if people[i] else None,
        )
        for i in range(len(numbers))
    ]
    rows = in_groups(_counted(rows, by, sums, dialect), table, work.keys, dialect)
    if listed is not None:
        rows = rows.inner_join(listed, [rows["value"] == listed["p0"]]).rename(code="number")
    return rows


@contextmanager
def _asked(output: str | None) -> Iterator[None]:
    """Let errors in this context name the output."""
    try:
        yield
    except (TypeError, ValueError) as error:
        msg = f"Output {output!r}: {error}"
        raise type(error)(error if output is None else msg) from None


def _outputs(work: Work) -> list[str | None]:
    """Return an output that needs the spec, for each of them."""
    return [
        next((output.name for output in work.outputs if number in output.specs), None)
        for number in range(len(work.specs))
    ]


# --- With bounds ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rows:
    """Rows in listed groups: the columns of `people_of`, `group` and those that are named here.

    Parameters
    ----------
    table
        Without rows that are evidence for nothing.
    codes
        The code of each spec, or what is there where the code is 0; None: 0 in every row.
    weights
        The weight of each spec before it is doubled; None: one each.
    packed
        Where the column `said` is all that a row says: how many bits of it each column has, from the least on, and
        what 1 stands for there; 0 is `ABSENT`.
    """

    table: Table
    codes: tuple[str | None, ...]
    weights: tuple[str | None, ...]
    packed: Mapping[str, tuple[int, int]] | None = None

    @property
    def says(self) -> list[str]:
        """All that any output reads of a row, but its person and group."""
        if self.packed is not None:
            return ["said"]
        return [*dict.fromkeys(name for name in (*self.codes, *self.weights) if name is not None)]

    def read(self, table: Table, dialect: Dialect) -> Table:
        """Return rows with the columns that are packed in them."""
        if self.packed is None:
            return table
        found, below = {}, 0
        for name, (bits, one) in self.packed.items():
            place = dialect.divide(table["said"], integer(2**below)) & integer(2**bits - 1)
            found[name] = ibis.ifelse(place == integer(0), integer(ABSENT), place + integer(one - 1))
            below += bits
        return table.mutate(**found)


def rows_of_people(
    table: Table,
    unit: PrivacyUnit,
    keys: pl.DataFrame | Product | None,
    specs: Sequence[HistogramSpec],
    dialect: Dialect,
    outputs: Sequence[str | None] = (),
) -> Rows:
    """Return the rows of somebody in a listed group that are evidence for at least one spec."""
    table, specs = _reading_values(table, specs)
    chosen = {**people_of(table, unit, dialect), **keys_of(table, keys, dialect)}
    codes, weights = dict[int, str | None](), dict[int, str | None]()
    places: dict[object, str] = {}
    lists: dict[str, Table] = {}
    for number in sorted(range(len(specs)), key=lambda n: specs[n].reading_order):
        spec = specs[number]
        with _asked(outputs[number] if outputs else None):
            column, found, value = code_of(spec, table, dialect)
            has_value = column is not None and is_evidence(column, dialect)
            if spec.row_weight is not None:
                row_weight = spec.clamping
                of = spec.names[row_weight.column]
                tells = isinstance(spec.binning, OneCode) and row_weight.column == 0
                weight = places.setdefault(
                    (of, row_weight.lower, row_weight.upper, row_weight.step, tells), f"weight{number}"
                )
                weights[number] = weight
                chosen[weight] = _weight_of(spec, table, dialect, ABSENT if tells else 0)
                if tells:
                    places.setdefault(of, weight)
            if column is None:
                codes[number] = None
                continue
            read = spec.names[0] if isinstance(spec.binning, OneCode) else _read(spec)
            codes[number] = name = places.setdefault(read, f"code{number}")
            if value is not None:
                chosen[name], lists[name] = value, _candidates(spec, table, dialect)
            elif name not in chosen:
                chosen[name] = ibis.ifelse(has_value, found, integer(ABSENT))
                places.setdefault(spec.names[0], name)
    rows = table.filter(is_somebody(table, unit, dialect)).select(**chosen)
    rows = in_groups(rows, table, keys, dialect)
    for name, listed in lists.items():
        rows = rows.left_join(listed, [rows[name] == listed["p0"]]).drop(name, "p0")
        rows = rows.mutate(**{name: ibis.coalesce(rows["number"], integer(ABSENT))}).drop("number")
    ordered = [tuple(names.get(number) for number in range(len(specs))) for names in (codes, weights)]
    known = [name for name in dict.fromkeys(ordered[0]) if name is not None]
    if None not in ordered[0]:
        rows = rows.filter(any_of(has(rows, name) for name in known))
    return Rows(rows, codes=ordered[0], weights=ordered[1])


def has(rows: Table, name: str) -> Value:
    return rows[name] != integer(ABSENT)


def _bounded(table: Table, work: Work, dialect: Dialect, common: Common) -> list[tuple[Table, list[int]]]:
    """Count what the bounds leave of the rows of people."""
    specs = work.specs if work.keys is not None else [replace(spec, limits=_of_one_group(spec)) for spec in work.specs]
    rows = rows_of_people(table, work.privacy_unit or (), work.keys, specs, dialect, _outputs(work))
    # By which code, of the rows that are evidence for what (None: for anything), and whether people count.
    groupings: dict[tuple[str | None, str | None, bool], list[int]] = {}
    for number, spec in enumerate(specs):
        by = None if isinstance(spec.binning, OneCode) else rows.codes[number]
        groupings.setdefault((by, rows.codes[number] if spec.people else by, spec.people), []).append(number)
    if dialect.race is not None:
        rows = _packed(rows, specs)
        read = _read_of_winners(rows, specs)
        if _is_one_row_a_group(specs) and (dialect.has_structs or all(map(_is_short, read.values()))):
            return [*_raced(rows, specs, groupings, read, dialect, dialect.race, common)]
    bounds: dict[tuple[str | None, Limits], int] = {}  # by which code, and what stays -> number
    for name, spec in zip(rows.codes, specs, strict=True):
        bounds.setdefault((name, spec.limits), len(bounds))

    def bounds_of(numbers: Iterable[int]) -> dict[tuple[str | None, Limits], int]:
        of = {(rows.codes[number], specs[number].limits) for number in numbers}
        return {bound: number for bound, number in bounds.items() if bound in of}

    counts_rows = bounds_of(number for number, spec in enumerate(specs) if not spec.people)
    pairs: Table | None = None
    if dialect.drawn is not None and rows.packed is not None and all(map(_is_listed, specs)):
        pairs, of_rows = _listed(rows, bounds, counts_rows, dialect, dialect.drawn, common)
    else:
        rows = replace(rows, table=common.once(rows.table))
        split = _split(rows, bounds, len(groupings) > 1, dialect, common)
        of_rows = _first(*split, counts_rows, rows.says)
    if sum(not people for *_, people in groupings) > 1:
        of_rows = common.once(of_rows)
    parts = []
    for (name, only, people), numbers in groupings.items():
        weights = {number: _weight(specs[number], rows.weights[number], dialect) for number in numbers}
        if people and pairs is not None:
            found = pairs
        elif people:
            loose, tight = (_one_each(part, name, only, numbers, specs, weights, dialect) for part in split)
            found = _first(
                loose, tight, {(None, limits): i for (_, limits), i in bounds_of(numbers).items()}, _named(name)
            )
            weights = {n: weight and _column(f"weight{n}") for n, weight in weights.items()}
        else:
            found = of_rows if name is None else of_rows.filter(has(of_rows, name))
        sums = []
        for number in numbers:
            code_name, limits = rows.codes[number], specs[number].limits
            counts = [found[f"keeps{bounds[code_name, limits]}"]]
            counts += [has(found, one) for one in _named(code_name) if only is None]
            weight = weights[number]
            sums.append(_Number(reduce(operator.and_, counts), weight and weight(found)))
        counted = _counted(found, ["group", *_named(name)], sums, dialect)
        parts.append((counted.mutate(code=integer(0)) if name is None else counted.rename(code=name), numbers))
    return parts


def _of_one_group(spec: HistogramSpec) -> Limits:
    """Return the limits of a spec where there is but one group: all of a person's rows are in it."""
    limits = spec.limits
    most = min((most for most in (limits.rows, limits.rows_per_group) if most is not None), default=None)
    return Limits(groups=limits.groups, rows_per_group=most)


def _is_listed(spec: HistogramSpec) -> bool:
    """Return whether a list of a person's rows in each group shows what the bounds leave."""
    if spec.people:
        return isinstance(spec.binning, OneCode) and spec.row_weight is None
    return spec.limits.rows is None and spec.limits.rows_per_group is not None


def _listed(
    rows: Rows,
    bounds: Mapping[tuple[str | None, Limits], int],
    of_rows: Mapping[tuple[str | None, Limits], int],
    dialect: Dialect,
    drawn: Callable[[Value, int, Value], Value],
    common: Common,
) -> tuple[Table, Table]:
    """Return each person's groups, and the rows in them, with `keeps0`, `keeps1`, … of `bounds` and `of_rows`.

    The rows of a person in a group are a list. Where each column of what they say has a value in all of them or in
    none, the first of the list in a random order are those that stay for every output; elsewhere rows are ranked.
    """
    person = person_in(rows.table)
    pair = [*person, "group"]
    names = {name: i for i, name in enumerate(dict.fromkeys(name for name, _ in bounds))}
    read = rows.read(rows.table, dialect)
    marks = [integer(1) if name is None else ibis.ifelse(has(read, name), integer(1), integer(0)) for name in names]
    read = read.mutate(marks=reduce(operator.add, (mark * integer(2**i) for i, mark in enumerate(marks))))
    of_all, of_any = read["marks"].bit_and(), read["marks"].bit_or()
    pairs = read.group_by(pair).aggregate(said=read["said"].collect(), is_even=of_all == of_any, marks=of_any)
    seen = {f"has{i}": pairs["marks"] & integer(2**i) != integer(0) for i in names.values()}
    place = dialect.order([pairs[name] for name in person], [pairs["group"]], OF_ROWS)
    pairs = common.once(pairs.mutate(**seen, place=place).drop("marks"))
    stays = {f"stays{i}": (f"has{names[name]}", limits.groups) for (name, limits), i in bounds.items() if limits.groups}
    pairs = _in_few_groups(pairs, stays, dialect, common)
    keeps = {i: [f"has{names[name]}"] + [f"stays{i}"] * (f"stays{i}" in stays) for (name, _), i in bounds.items()}
    pairs = pairs.mutate(
        **{f"keeps{i}": reduce(operator.and_, (pairs[of] for of in all_of)) for i, all_of in keeps.items()}
    )
    if not of_rows:
        return pairs, pairs
    most = {i: limits.rows_per_group or 0 for (_, limits), i in of_rows.items()}
    even, uneven = pairs.filter(pairs["is_even"]), pairs.filter(~pairs["is_even"])
    flags = [f"keeps{i}" for i in most]
    # Of fewer rows than any bound lets by, no order is needed.
    said = ibis.ifelse(
        even["said"].length() <= min(most.values()),
        even["said"],
        drawn(even["said"], max(most.values()), even["place"]),
    )
    places = {"at": ibis.range(said.length()).unnest()} if len({*most.values()}) > 1 else {}
    even = even.select("group", *flags, said=said.unnest(), **places)
    if places:
        even = even.mutate(**{f"keeps{i}": even[f"keeps{i}"] & (even["at"] < n) for i, n in most.items()})
    said = uneven["said"]
    tight = uneven.select(*pair, *stays, said=said.sort().unnest(), copy=ibis.range(said.length()).unnest())
    owner, says = ([tight[name] for name in names] for names in (person, ["group", "said", "copy"]))
    tight = _marked(rows.read(tight.mutate(place=dialect.order(owner, says, OF_ROWS)), dialect), of_rows, ["said"])
    parts = [part.select("group", "said", *flags) for part in (even, tight)]
    return pairs, rows.read(parts[0].union(parts[1]), dialect)


def _in_few_groups(
    pairs: Table, bounds: Mapping[str, tuple[str | None, int]], dialect: Dialect, common: Common
) -> Table:
    """Say of each person's groups whether each stays, as `_staying` does of those of people who are crowded."""
    if not bounds:
        return pairs
    person = person_in(pairs)
    crowded = pairs.group_by(person).aggregate(groups=pairs.count())
    least = min(most for _, most in bounds.values())
    crowded = common.once(crowded.filter(crowded["groups"] > least).select(person))
    tight = _staying(pairs.semi_join(crowded, person), bounds, dialect)
    loose = pairs.anti_join(crowded, person).mutate(**dict.fromkeys(bounds, ibis.literal(value=True)))
    columns = [*pairs.columns, *bounds]
    return common.once(loose.select(columns).union(tight.select(columns)))


def _packed(rows: Rows, specs: Sequence[HistogramSpec]) -> Rows:
    """Return rows of which one integer says all, where it holds that: an engine that groups by it takes less time."""
    ends = _ends(rows, specs)
    packed = {name: (_bits((low, high + 1)), low) for name in rows.says for low, high in [ends.get(name, (0, 0))]}
    if sum(bits for bits, _ in packed.values()) > _MOST_SAID:
        return rows
    said, below = integer(0), 0
    for name, (bits, one) in packed.items():
        place = ibis.ifelse(has(rows.table, name), rows.table[name] - integer(one - 1), integer(0))
        said, below = said + place * integer(2**below), below + bits
    return replace(rows, table=rows.table.select(*person_in(rows.table), "group", said=said), packed=packed)


def _ends(rows: Rows, specs: Sequence[HistogramSpec]) -> dict[str, tuple[int, int]]:
    """Return between which ends the codes and weights of rows lie; where all codes are 0, they are left out."""
    ends: dict[str, tuple[int, int]] = {}
    for name, weight, spec in zip(rows.codes, rows.weights, specs, strict=True):
        if weight is not None:
            low, high = spec.clamping.ends
            ends[weight] = min(low, 0), max(high, 0)
        if name is not None and not isinstance(spec.binning, OneCode):
            ends[name] = 0, spec.binning.size - 1
    return ends


def _named(name: str | None) -> list[str]:
    return [] if name is None else [name]


def _column(name: str) -> Callable[[Table], Value]:
    return lambda rows: rows[name]


def _weight(spec: HistogramSpec, name: str | None, dialect: Dialect) -> Callable[[Table], Value] | None:
    """Return what gives the weight of a row; None: one each."""
    return None if name is None else lambda rows: spec.clamping.of_units(rows[name], integer, dialect.divide)


def _split(
    rows: Rows,
    bounds: Mapping[tuple[str | None, Limits], int],
    is_read_again: bool,
    dialect: Dialect,
    common: Common,
) -> tuple[Table, Table]:
    """Return the rows that all bounds let by, and those that are ranked, with `place` and `copy`, their numbers.

    The latter are all rows of a person in groups with more than the smallest bound on them, or in all groups where the
    person has more groups or rows than the smallest bound on these. `stays0` and so on say whether a bound lets
    their group stay; `even`, whether all rows that are ranked with a row are evidence for everything.
    """
    person = person_in(rows.table)
    pair = [*person, "group"]
    table = rows.read(rows.table, dialect)
    pairs, crowds = table.group_by(pair), []
    codes = {i: name for (name, limits), i in bounds.items() if limits.groups is not None and name is not None}
    seen = {f"has{i}": table.count(where=has(table, name)) > 0 for i, name in codes.items()}
    names = dict.fromkeys(name for name, _ in bounds if name is not None)
    full = [has(table, name) for name in names]
    seen["full"] = table.count(where=reduce(operator.and_, full) if full else None)
    pairs = pairs.aggregate(rows=cast(table.count(), "int64"), **seen)
    smallest = {
        what: min(most)
        for what in ("rows_per_group", "groups", "rows")
        if (most := [getattr(limits, what) for _, limits in bounds if getattr(limits, what) is not None])
    }
    if "groups" in smallest or "rows" in smallest:
        sums = {"in_all": cast(pairs["rows"].sum(), "int64"), "even": (pairs["rows"] == pairs["full"]).all()}
        people = pairs.group_by(person).aggregate(groups=pairs.count(), **sums)
        pairs = people.inner_join(pairs, person)
        columns = {"groups": "groups", "rows": "in_all"}
        crowds = [pairs[column] > smallest[what] for what, column in columns.items() if what in smallest]
    else:
        pairs = pairs.mutate(even=pairs["rows"] == pairs["full"])
    if "rows_per_group" in smallest:
        crowds.append(pairs["rows"] > smallest["rows_per_group"])
    crowded = pairs.filter(any_of(crowds))
    if "groups" in smallest:
        every = len(bounds) == 1  # of the rows is evidence for it
        of_groups = {
            f"stays{i}": (None if every or i not in codes else f"has{i}", limits.groups)
            for (_, limits), i in bounds.items()
            if limits.groups is not None
        }
        crowded = _staying(crowded, of_groups, dialect)
    stays = [name for name in crowded.columns if name.startswith("stays")]
    crowded = common.once(crowded.select(*pair, "even", *stays))
    loose = rows.table.anti_join(crowded, pair)
    if len(stays) == len(bounds):
        crowded = crowded.filter(any_of(crowded[name] for name in stays))
    tight = rows.table
    if "rows" in smallest or "rows_per_group" in smallest:
        # Equal rows are told apart by a number. Which gets which does not matter: they say the same.
        says = ["group", *rows.says]
        tight = dialect.copies(tight.semi_join(crowded, pair), [*person, *says])
        says.append("copy")
        owner, said = ([tight[name] for name in names] for names in (person, says))
        tight = tight.mutate(place=dialect.order(owner, said, OF_ROWS))
    tight = common.once(crowded.inner_join(tight, pair).select(*tight.columns, "even", *stays))
    loose = common.once(loose) if is_read_again else loose
    return rows.read(loose, dialect), rows.read(tight, dialect)


def _staying(crowded: Table, bounds: Mapping[str, tuple[str | None, int]], dialect: Dialect) -> Table:
    """Say of the groups of crowded people whether each stays, by the bound on those in which a column is true."""
    person = person_in(crowded)
    crowded = crowded.mutate(place=dialect.order([crowded[name] for name in person], [crowded["group"]], OF_GROUPS))
    until = ibis.cumulative_window(group_by=person, order_by=["place", "group"])
    return crowded.mutate(
        **{
            name: _place(None if seen is None else crowded[seen], until) <= most
            for name, (seen, most) in bounds.items()
        }
    )


def _is_one_row_a_group(specs: Sequence[HistogramSpec]) -> bool:
    """Return whether one row counts of a person in a group, or people alone, in as many groups for all."""
    groups = specs[0].limits.groups
    return any(not spec.people for spec in specs) and all(
        spec.limits == Limits(groups=groups, rows_per_group=None if spec.people else 1)
        and not (spec.people and spec.row_weight is not None)
        for spec in specs
    )


def _read_of_winners(rows: Rows, specs: Sequence[HistogramSpec]) -> dict[str | None, dict[str, tuple[int, int]]]:
    """Return what is read of the winner among the rows that are evidence for something, between which ends."""
    ends, read = _ends(rows, specs), dict[str | None, dict[str, tuple[int, int]]]()
    for name, weight, spec in zip(rows.codes, rows.weights, specs, strict=True):
        if weight is not None:
            read.setdefault(name, {})[weight] = ends[weight]
        if not (spec.people or name is None or isinstance(spec.binning, OneCode)):
            read.setdefault(name, {})[name] = ends[name]
    return read


def _is_short(ends: Mapping[str, tuple[int, int]]) -> bool:
    """Return whether an integer holds what lies between ends, and a time."""
    return sum(map(_bits, ends.values())) <= _MOST_BITS


def _bits(ends: tuple[int, int]) -> int:
    return (ends[1] - ends[0]).bit_length()


def _raced(
    rows: Rows,
    specs: Sequence[HistogramSpec],
    groupings: Mapping[tuple[str | None, str | None, bool], list[int]],
    read: Mapping[str | None, Mapping[str, tuple[int, int]]],
    dialect: Dialect,
    race: Callable[[Value, Value], Value],
    common: Common,
) -> Iterator[tuple[Table, list[int]]]:
    """Yield what the bounds leave where one row counts of a person in a group: the winner of a race.

    Rows that say the same are one with a number of copies, and run as often. So a row needs no number, and no window
    puts all rows in an order. Equal times are decided by what the rows say, so that nothing else decides.
    """
    person = person_in(rows.table)
    pair = [*person, "group"]
    most = specs[0].limits.groups
    said = common.once(rows.table.group_by(rows.table.columns).aggregate(copies=rows.table.count()))
    said = rows.read(said, dialect)
    time = dialect.order([said[name] for name in person], [said[name] for name in ("group", *rows.says)], OF_ROWS)
    time = race(time, said["copies"])
    names = {name: i for i, name in enumerate(dict.fromkeys(rows.codes))}  # what rows are evidence for
    where = {name: None if name is None else has(said, name) for name in names}
    found = {f"has{i}": said.count(where=where[name]) > 0 for name, i in names.items()}
    for name, ends in read.items():
        won = _winner(said, time, ends, where[name], dialect)
        found |= {f"{of}_of{names[name]}": value for of, value in won.items()}
    sizes = {by: specs[numbers[0]].binning.size for (by, _, people), numbers in groupings.items() if people and by}
    sets = {by: f"set{names[by]}" for by, size in sizes.items() if size <= _MOST_CODES}
    found |= {of: _set_of(said, by) for by, of in sets.items()}
    pairs = common.once(said.group_by(pair).aggregate(**found))
    if most is not None:
        stays = {f"stays{i}": (None if name is None else f"has{i}", most) for name, i in names.items()}
        pairs = _in_few_groups(pairs, stays, dialect, common)

    def keeps(name: str | None) -> list[Value]:
        return [pairs[f"has{names[name]}"], *([] if most is None else [pairs[f"stays{names[name]}"]])]

    for (by, only, people), numbers in groupings.items():
        if by in sets and people:
            counted = _members(pairs.filter(keeps(by)), sets[by], by, sizes[by], len(numbers), dialect)
        elif people and by is not None:
            cells = said.filter(has(said, by)).select(*pair, by).distinct()
            cells = cells if most is None else cells.anti_join(pairs.filter(~pairs[f"stays{names[only]}"]), pair)
            counted = _counted(cells, ["group", by], [_Number(None)] * len(numbers), dialect)
        else:
            winners, sums = pairs, []
            if by is not None:
                winners = pairs.filter(keeps(by)).mutate(**{by: pairs[f"{by}_of{names[by]}"]})
            for number in numbers:
                name, weight = rows.codes[number], rows.weights[number]
                weigh = _weight(specs[number], f"{weight}_of{names[name]}", dialect) if weight else None
                counts = reduce(operator.and_, keeps(name)) if by is None else None
                sums.append(_Number(counts, weigh and weigh(winners)))
            counted = _counted(winners, ["group", *_named(by)], sums, dialect)
        yield (counted.mutate(code=integer(0)) if by is None else counted.rename(code=by)), numbers


def _set_of(said: Table, name: str) -> Value:
    """Return the codes that rows say, as the bits of an integer; what other rows say must not raise."""
    code_ = ibis.ifelse(has(said, name), said[name], integer(0))
    return cast((integer(1) << cast(code_, "int32")).bit_or(where=has(said, name)), "int32")


def _members(pairs: Table, of: str, name: str, size: int, numbers: int, dialect: Dialect) -> Table:
    """Return how many pairs have each code in their set; pairs with the same set are counted first."""
    sets = pairs.group_by(["group", of]).aggregate(pairs=cast(pairs.count(), "int64"))
    sets = sets.mutate(**{name: cast(ibis.range(size).unnest(), "int64")})
    sets = sets.filter((cast(sets[of], "int64") >> cast(sets[name], "int32")) & integer(1) == integer(1))
    return _counted(sets, ["group", name], [_Number(None, sets["pairs"])] * numbers, dialect)


def _winner(
    said: Table, time: Value, ends: Mapping[str, tuple[int, int]], where: Value | None, dialect: Dialect
) -> dict[str, Value]:
    """Return what the row of the least time says, column -> value, by the least and the largest that each may say."""
    bits = {name: _bits(between) for name, between in ends.items()}
    if not _is_short(ends):
        key = ibis.struct({"time": time, **{name: said[name] for name in ends}})
        return {name: said[name].argmin(key, where=where) for name in ends}
    # Engines find the least integer faster. Times are below 2**6.
    packed = cast(time * constant(2.0 ** (57 - sum(bits.values())), "float64"), "int64")
    for name, (low, high) in ends.items():  # what other rows say, too, must not raise
        packed = packed * integer(2 ** bits[name]) + (within(said[name], low, high) - integer(low))
    least, found = packed.min(where=where), {}
    for name, (low, _) in reversed([*ends.items()]):
        found[name] = (least & integer(2 ** bits[name] - 1)) + integer(low)
        least = dialect.divide(least, integer(2 ** bits[name]))
    return found


def _one_each(
    rows: Table,
    name: str | None,
    only: str | None,
    numbers: Sequence[int],
    specs: Sequence[HistogramSpec],
    weights: Mapping[int, Callable[[Table], Value] | None],
    dialect: Dialect,
) -> Table:
    """Return one row for each person, group and code, with the number of the first of its rows, and clipped weights."""
    rows = rows if only is None else rows.filter(has(rows, only))
    found = {"count": rows.count()}
    for number in numbers:
        row_weight, weight = specs[number].row_weight, weights[number]
        if row_weight is not None and weight is not None:
            found[f"weight{number}"] = _of_person(weight(rows), row_weight, dialect)
    if "place" in rows.columns:
        found["place"] = rows["place"].min()
    stays = [name_of for name_of in rows.columns if name_of.startswith("stays")]
    return rows.group_by([*person_in(rows), "group", *_named(name), *stays]).aggregate(**found)


def _first(loose: Table, tight: Table, bounds: Mapping[tuple[str | None, Limits], int], says: Sequence[str]) -> Table:
    """Return rows of which `keeps0`, `keeps1`, … say whether a bound keeps those that are evidence for it."""
    columns = [name for name in loose.columns if name in tight.columns]
    flags = [f"keeps{i}" for i in bounds.values()]
    shared = {limits: i for (_, limits), i in bounds.items()}
    if len(shared) < len(bounds):
        # What keeps the same of rows that are evidence for everything is ranked once: windows are what takes long.
        even = _marked(tight.filter(tight["even"]), {(None, limits): i for limits, i in shared.items()}, says)
        even = even.mutate(**{f"keeps{i}": even[f"keeps{shared[limits]}"] for (_, limits), i in bounds.items()})
        tight = _marked(tight.filter(~tight["even"]), bounds, says)
        tight = tight.select(*columns, *flags).union(even.select(*columns, *flags))
    else:
        tight = _marked(tight, bounds, says)
    loose = loose.mutate(**dict.fromkeys(flags, ibis.literal(value=True))).select(*columns, *flags)
    return loose.union(tight.select(*columns, *flags))


def _marked(tight: Table, bounds: Mapping[tuple[str | None, Limits], int], says: Sequence[str]) -> Table:
    order_by = ["place", "group", *says, *(["copy"] if "copy" in tight.columns else [])]
    keeps = {}
    for (name, limits), i in bounds.items():
        counts = [] if name is None else [has(tight, name)]
        counts += [] if limits.groups is None else [tight[f"stays{i}"]]
        keeps[f"keeps{i}"] = reduce(operator.and_, counts) if counts else ibis.literal(value=True)
    tight = tight.mutate(**keeps)
    for what, owner in (("rows_per_group", [*person_in(tight), "group"]), ("rows", person_in(tight))):
        most = {of: most for of in bounds if (most := getattr(of[1], what)) is not None}
        if most:
            if len(bounds) == 1:
                tight = tight.filter(tight[name] for name in keeps)
            until = ibis.cumulative_window(group_by=owner, order_by=order_by)
            at = {}
            for name, limits in most:
                # Where all rows of the owner stay or go until here, their number in the order is that among these.
                is_whole = limits.groups is limits.rows_per_group is None or what == "rows_per_group"
                every = len(bounds) == 1 or (name is None and is_whole)
                at[name, limits] = _place(None if every else tight[f"keeps{bounds[name, limits]}"], until)
            tight = tight.mutate(
                **{f"keeps{bounds[of]}": tight[f"keeps{bounds[of]}"] & (at[of] <= most[of]) for of in most}
            )
    return tight


def _place(counts: Value | None, until: Value) -> Value:
    """Return how many rows of a window count until here (None: all), by what takes engines the least time."""
    return ibis.row_number().over(until) + 1 if counts is None else cast(counts, "int32").sum().over(until)
