"""From rows to histograms, as one SELECT: the duties of an engine (`_release/contract.py`).

A row has only the columns that the specs read: its person, its group, codes, and weights.
All but the person are integers, with `ABSENT` if the row doesn't contribute.
No value makes this raise, so an engine may leave rows out at any time.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import TYPE_CHECKING

from dp_polars._bins.binning import OneCode
from dp_polars._engines.sql.arithmetic import ABSENT, Number, cells_of, integer, is_present, of_person
from dp_polars._engines.sql.bounding import (
    first,
    is_listed,
    is_one_row_a_group,
    is_short,
    listed,
    one_each,
    packed,
    raced,
    read_of_winners,
    split_rows,
)
from dp_polars._engines.sql.dialects import all_rows, cast
from dp_polars._engines.sql.rows import (
    asked,
    candidates_of,
    code_of,
    columns_read,
    has,
    in_groups,
    is_somebody,
    keys_of,
    named,
    people_of,
    person_in,
    read_of,
    rows_of_people,
    values_read,
    weight_in,
    weight_of,
)
from dp_polars._engines.sql.weighing import weighed, weighings
from dp_polars._release.contract import gathered
from dp_polars._release.protection import Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from dp_polars._engines.sql.dialects import Common, Dialect, Places, Table, Value
    from dp_polars._engines.sql.rows import Rows
    from dp_polars._engines.sql.weighing import Weighing
    from dp_polars._release.contract import HistogramSpec, Work


@dataclass(frozen=True)
class Counted:
    """All histograms of a release.

    Parameters
    ----------
    table
        Rows of integers: `part`, `group`, `code` and numbers, which are sums of weights, of rows or of people.
        A part is one grouping. Several rows of a part may have the same group and code. They add up.
    places
        The part and column of each spec's numbers.
    """

    table: Table
    places: Places


def histograms(table: Table, work: Work, dialect: Dialect, common: Common) -> Counted:
    """Return the histograms of all specs, all from the same rows.

    Without limits, each grouping is the native query itself.
    Otherwise all groupings use one expression of limited rows, which is computed once.
    Sums of weights are exact and then clamped to ±LARGEST_VALUE, before noise is added.

    Raises
    ------
    TypeError, ValueError
        If the engine is not known to give the codes or weights of every row.
    """
    make = (
        _of_people if any(spec.weight is not None or not spec.limits.everything for spec in work.specs) else _natively
    )
    parts, places = [], dict[int, tuple[int, str]]()
    for part, (counted, numbers) in enumerate(make(table, work, dialect, common)):
        parts.append((part, counted, len(numbers)))
        places |= {spec: (part, f"number{place}") for place, spec in enumerate(numbers)}
    width = max(numbers for *_, numbers in parts)
    absent = [{f"number{i}": integer(ABSENT) for i in range(numbers, width)} for *_, numbers in parts]
    columns = ["part", "group", "code", *(f"number{i}" for i in range(width))]
    tables = [
        counted.mutate(
            part=integer(part), **more, **{name: cast(counted[name], "int64") for name in ("group", "code")}
        ).select(columns)
        for (part, counted, _), more in zip(parts, absent, strict=True)
    ]
    return Counted(all_rows(tables), [places[i] for i in range(len(work.specs))])


def _natively(table: Table, work: Work, dialect: Dialect, common: Common) -> list[tuple[Table, list[int]]]:
    """Count first: everything later sees only the counts."""
    groupings = gathered(work.specs, partial(_goes_with, several=len(work.privacy_unit or ()) > 1))
    if len(groupings) > 1:
        table = common.read_again(table, columns_read(work.privacy_unit, work.columns, work.specs))
    return [(_native(table, work, numbers, dialect), numbers) for numbers in groupings]


def _goes_with(spec: HistogramSpec, other: HistogramSpec, *, several: bool) -> bool:
    """Return whether two histograms share a grouping; `several`: the privacy unit has several columns."""
    if any(one.people and (one.row_weight is not None or several) for one in (spec, other)):
        return False
    one, two = ((None, OneCode()) if isinstance(one.binning, OneCode) else read_of(one) for one in (spec, other))
    return one == two


def _native(table: Table, work: Work, numbers: list[int], dialect: Dialect) -> Table:
    table, specs = values_read(table, [work.specs[number] for number in numbers])
    chosen, needed = keys_of(table, work.keys, dialect), []
    by = list(chosen)
    people = [spec.people and work.privacy_unit is not None for spec in specs]
    if work.privacy_unit is not None:
        needed += is_somebody(table, work.privacy_unit, dialect)
        if any(people):
            chosen |= people_of(table, work.privacy_unit, dialect)
    is_one = len({read_of(spec)[0] for spec in specs}) == 1
    for i, (number, spec) in enumerate(zip(numbers, specs, strict=True)):
        with asked(_outputs(work)[number]):
            column, found, value = code_of(spec, table, dialect)
            candidates = None if value is None else candidates_of(spec, table, dialect)
            if spec.row_weight is not None:
                chosen[f"weight{i}"] = spec.clamping.of_units(weight_of(spec, table, dialect), integer, dialect.divide)
        if column is not None and is_one:
            needed.append(is_present(column, dialect))
        elif column is not None:
            chosen[f"counts{i}"] = is_present(column, dialect)
        name = "code" if value is None else "value"
        chosen[name] = found if value is None else value
    by.append(name)
    rows = (table.filter(needed) if needed else table).select(**chosen)
    person = person_in(rows)
    if people[0] and specs[0].row_weight is not None:  # always its own grouping
        clipped = of_person(rows["weight0"], specs[0].row_weight)
        rows, people = rows.group_by([*person, *by]).aggregate(weight0=clipped), [False]
    elif len(person) > 1:  # always its own grouping, too
        rows, people = rows.distinct(), [False]
    sums = [
        Number(
            rows[f"counts{i}"] if f"counts{i}" in chosen else None,
            rows[f"weight{i}"] if f"weight{i}" in chosen else None,
            rows[person[0]] if people[i] else None,
        )
        for i in range(len(numbers))
    ]
    rows = in_groups(cells_of(rows, by, sums), table, work.keys, dialect)
    if candidates is not None:
        rows = rows.inner_join(candidates, [rows["value"] == candidates["p0"]]).rename(code="number")
    return rows


def _outputs(work: Work) -> list[str | None]:
    """Return for each spec an output that needs it."""
    return [
        next((output.name for output in work.outputs if number in output.specs), None)
        for number in range(len(work.specs))
    ]


def _of_people(table: Table, work: Work, dialect: Dialect, common: Common) -> list[tuple[Table, list[int]]]:
    """Count people in part, or count the rows that limits keep, or both, from the same rows."""
    specs, unit, keys = work.specs, work.privacy_unit or (), work.keys
    drawn = [number for number, spec in enumerate(specs) if not spec.limits.everything]
    others = {number: spec for number, spec in enumerate(specs) if spec.limits.everything}
    are_drawn = len(drawn) > 0
    # If nothing is drawn, pairs of a person and a group are matched to groups: there are fewer pairs than rows.
    rows = rows_of_people(table, unit, keys, specs, dialect, _outputs(work), with_groups=are_drawn)
    if are_drawn:
        rows = packed(rows, specs)
    numbers = {weighing.code: weighing for weighing in weighings(rows, others, dialect, common)}
    if len(numbers) > 1 or (are_drawn and numbers.keys() - {None}):
        rows = replace(rows, table=common.once(rows.table))
    parts: list[tuple[Table, list[int]]] = []
    pairs: Table | None = None
    if are_drawn:
        of_drawn = [specs[number] for number in drawn]
        pairs, found = _bounded(rows.of(drawn), of_drawn, numbers.get(None), dialect, common)
        parts = [(counted, [drawn[place] for place in places]) for counted, places in found]

    def put_in_groups(pairs: Table) -> Table:
        return pairs if are_drawn else in_groups(pairs, table, keys, dialect)

    by = ["group"] if are_drawn else [*keys_of(table, keys, dialect)]
    return [*parts, *weighed(rows, by, put_in_groups, others, work.groups, dialect, common, pairs)]


def _bounded(
    rows: Rows,
    specs: Sequence[HistogramSpec],
    of_numbers: Weighing | None,
    dialect: Dialect,
    common: Common,
) -> tuple[Table | None, list[tuple[Table, list[int]]]]:
    """Count the rows that the limits keep.

    Also returns the sums of `of_numbers` for each person and group, if they are computed on the way.
    """
    # By code, and whether people count.
    groupings: dict[tuple[str | None, bool], list[int]] = {}
    for number, spec in enumerate(specs):
        by = None if isinstance(spec.binning, OneCode) else rows.codes[number]
        assert by is not None or spec.row_weight is None, "sums are weighted, not drawn"
        groupings.setdefault((by, spec.people), []).append(number)
    read = read_of_winners(rows, specs)
    if is_one_row_a_group(rows, specs) and (dialect.has_structs or all(map(is_short, read.values()))):
        return raced(rows, specs, groupings, read, dialect, common, of_numbers)
    bounds: dict[tuple[str | None, Limits], int] = {}  # by code and limits -> number
    for name, spec in zip(rows.codes, specs, strict=True):
        bounds.setdefault((name, spec.limits), len(bounds))

    def bounds_of(numbers: Iterable[int]) -> dict[tuple[str | None, Limits], int]:
        of = {(rows.codes[number], specs[number].limits) for number in numbers}
        return {bound: number for bound, number in bounds.items() if bound in of}

    counts_rows = bounds_of(number for number, spec in enumerate(specs) if not spec.people)
    pairs: Table | None = None
    if dialect.drawn is not None and rows.packed is not None and all(map(is_listed, specs)):
        pairs, of_rows = listed(rows, bounds, dialect, dialect.drawn, common, of_numbers)
    else:
        rows = replace(rows, table=common.once(rows.table))
        pairs, split = split_rows(rows, bounds, len(groupings) > 1, dialect, common, of_numbers)
        of_rows = first(*split, counts_rows, rows.says)
    if sum(not people for _, people in groupings) > 1:
        of_rows = common.once(of_rows)
    parts = []
    for (name, people), numbers in groupings.items():
        weights = {number: weight_in(specs[number], rows.weights[number], dialect) for number in numbers}
        if people:
            assert name is not None, "people of one code alone are counted where one row of a group is"
            loose, tight = (one_each(part, name, numbers, specs, weights) for part in split)
            found = first(loose, tight, {(None, limits): i for (_, limits), i in bounds_of(numbers).items()}, [name])
            weights = {n: weight and _column(f"weight{n}") for n, weight in weights.items()}
        else:
            found = of_rows if name is None else of_rows.filter(has(of_rows, name))
        sums = []
        for number, weight in weights.items():
            code = rows.codes[number]
            counts = [found[f"keeps{bounds[code, specs[number].limits]}"]]
            counts += [has(found, one) for one in named(code) if name is None]
            sums.append(Number(reduce(operator.and_, counts), weight and weight(found)))
        counted = cells_of(found, ["group", *named(name)], sums)
        parts.append((counted.mutate(code=integer(0)) if name is None else counted.rename(code=name), numbers))
    return pairs, parts


def _column(name: str) -> Callable[[Table], Value]:
    return lambda rows: rows[name]
