"""Apply contribution limits in SELECTs: by races, lists, and windows.

All outputs share the numbers that choose a person's groups and rows.
These are hashes of the person, of the columns that specs read, and of a secret drawn for each release.
The limits hold for every secret and every hash. Only the uniformity of the choice depends on them.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

from dp_polars._bins.binning import OneCode
from dp_polars._engines.sql.arithmetic import Number, cells_of, integer, of_person
from dp_polars._engines.sql.dialects import OF_GROUPS, OF_ROWS, all_rows, cast, constant, equal_ones_together, ibis
from dp_polars._engines.sql.rows import any_of, has, person_in, weight_in
from dp_polars._release.protection import Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dp_polars._engines.sql.dialects import Common, Dialect, Table, Value
    from dp_polars._engines.sql.rows import Rows
    from dp_polars._engines.sql.weighing import Weighing
    from dp_polars._release.contract import HistogramSpec


# The most bits of a row's packed columns in an integer: without a time, and with one of 33 bits.
_MOST_SAID, _MOST_BITS = 62, 24
# The most codes that sets represent: listing the members of sets takes time for each code.
_MOST_CODES = 16


def is_listed(spec: HistogramSpec) -> bool:
    """Return whether a list of each person's rows in a group is enough to apply a spec's limits."""
    return not spec.people and spec.limits.rows is None and spec.limits.rows_per_group is not None


def listed(
    rows: Rows,
    bounds: Mapping[tuple[str | None, Limits], int],
    dialect: Dialect,
    drawn: Callable[[Value, int, Value], Value],
    common: Common,
    numbers: Weighing | None,
) -> tuple[Table, Table]:
    """Return each person's groups with the sums of `numbers`, and their rows with a column `keeps0`, … for each limit.

    All limits have the same number of groups, and the same number of rows in each.
    Only a person's rows in a group of which some don't stay form a list.
    If each column has values in all rows or in none, the first rows of a random order stay for all outputs.
    Otherwise rows are ranked.
    """
    rows = replace(rows, table=common.once(rows.table))
    person = person_in(rows.table)
    pair = [*person, "group"]
    presence = {} if numbers is None else numbers.presence()
    names = _numbered(rows, [*(name for name, _ in bounds), *presence.values()])
    (limits,) = {limits for _, limits in bounds}
    groups, most = limits.groups, limits.rows_per_group or 0
    flags = [f"keeps{i}" for i in bounds.values()]
    held = _Held(_partial(rows, names), {})
    read, found = rows.read(rows.table), {"is_even": ibis.literal(value=True)}
    if held.width:
        read = read.mutate(marks=held.bits_of(rows, read))
        of_all, of_any = read["marks"].bit_and(), read["marks"].bit_or()
        found = {"bits": of_any, "is_even": of_all == of_any}
    found |= {"rows": cast(read.count(), "int64")}
    found |= {} if numbers is None else numbers.sums(read, known=presence)
    pairs = _with_presence(held.taken_apart(read.group_by(pair).aggregate(**found), names), names, presence)
    bounded = {name: names[name] for name, _ in bounds}
    pairs = _in_few_groups(common.once(pairs), _in_turn(rows, names, dict.fromkeys(bounded, groups)), dialect, common)
    pairs = pairs.mutate(**{f"keeps{i}": _counts(pairs, names[name]) for (name, _), i in bounds.items()})
    are_all = reduce(operator.and_, [pairs["rows"] <= most, *(pairs[f"stays{i}"] for i in bounded.values())])
    rest = common.once(pairs.filter(~are_all).select(*pair, "is_even", *flags))
    loose = rows.table.anti_join(rest, pair).mutate(**dict.fromkeys(flags, ibis.literal(value=True)))
    tight = rows.table.inner_join(rest.filter(any_of(rest[flag] for flag in flags)), pair)
    tight = tight.group_by([*pair, "is_even", *flags]).aggregate(said=tight["said"].collect())
    even, uneven = tight.filter(tight["is_even"]), tight.filter(~tight["is_even"])
    place, said = dialect.order([even[name] for name in person], [even["group"]], OF_ROWS), even["said"]
    # No order is needed if all rows may stay.
    said = ibis.ifelse(said.length() <= most, said, drawn(said, most, place))
    parts = [loose, even.select(*pair, *flags, said=said.unnest())]
    if held.width:
        said, stay = uneven["said"], {f"stays{i}": uneven[f"keeps{i}"] for i in bounds.values()}
        tight = uneven.select(*pair, **stay, said=said.sort().unnest(), copy=ibis.range(said.length()).unnest())
        owner, says = ([tight[name] for name in names] for names in (person, ["group", "said", "copy"]))
        tight = tight.mutate(place=dialect.order(owner, says, OF_ROWS))
        parts.append(_marked(rows.read(tight), bounds, ["said"]))
    return pairs, rows.read(all_rows([part.select("group", "said", *flags) for part in parts]))


def _numbered(rows: Rows, codes: Sequence[str | None]) -> dict[str | None, int]:
    """Return each code with a number; those that some rows may lack are first."""
    return {name: i for i, name in enumerate(sorted(dict.fromkeys(codes), key=lambda name: name not in rows.partial))}


def _partial(rows: Rows, names: Mapping[str | None, int]) -> dict[str, int]:
    """Return the codes that some rows may lack."""
    return {name: i for name, i in names.items() if name in rows.partial}


def _with_presence(pairs: Table, names: Mapping[str | None, int], presence: Mapping[str, str | None]) -> Table:
    """Add columns: 1 if a person has rows with a code, else 0."""
    has_some = {rows: pairs[f"has{names[code]}"] for rows, code in presence.items()}
    return pairs.mutate(**{rows: ibis.ifelse(one, integer(1), integer(0)) for rows, one in has_some.items()})


def _in_turn(
    rows: Rows, names: Mapping[str | None, int], most: Mapping[str | None, int | None]
) -> dict[str, tuple[str | None, int | None]]:
    """Return each code's limit of groups, as `stays0`, …, after the column of the groups that it counts (None: all)."""
    return {f"stays{names[name]}": (f"has{names[name]}" if name in rows.partial else None, most[name]) for name in most}


def _in_few_groups(
    pairs: Table, bounds: Mapping[str, tuple[str | None, int | None]], dialect: Dialect, common: Common
) -> Table:
    """Add a column for each limit: whether it is one of the first groups of its person with another column, if any."""
    limited = {name: (seen, most) for name, (seen, most) in bounds.items() if most is not None}
    always = {name: ibis.literal(value=True) for name in bounds}
    if not limited:
        return pairs.mutate(**always)
    person = person_in(pairs)
    crowded = pairs.group_by(person).aggregate(groups=pairs.count())
    smallest = min(most for _, most in limited.values())
    crowded = common.once(crowded.filter(crowded["groups"] > smallest).select(person))
    tight = _staying(pairs.semi_join(crowded, person).mutate(**always), limited, dialect)
    loose = pairs.anti_join(crowded, person).mutate(**always)
    columns = [*pairs.columns, *bounds]
    return common.once(loose.select(columns).union(tight.select(columns)))


def _counts(pairs: Table, number: int) -> Value:
    """Return whether a pair has contributing rows and stays."""
    return pairs[f"has{number}"] & pairs[f"stays{number}"]


def packed(rows: Rows, specs: Sequence[HistogramSpec]) -> Rows:
    """Pack each row's columns into one integer if they fit: grouping by it is faster."""
    ends = _ends(rows, specs)
    fields = {name: (_bits((low, high)), low) for name in rows.says for low, high in [ends.get(name, (0, 0))]}
    if sum(bits for bits, _ in fields.values()) > _MOST_SAID:
        return rows
    said, below = integer(0), 0
    for name, (bits, one) in fields.items():
        place = ibis.ifelse(has(rows.table, name), rows.table[name] - integer(one - 1), integer(0))
        said, below = said + place * integer(2**below), below + bits
    return replace(rows, table=rows.table.select(*person_in(rows.table), "group", said=said), packed=fields)


def _ends(rows: Rows, specs: Sequence[HistogramSpec]) -> dict[str, tuple[int, int]]:
    """Return the smallest and largest code or weight of each column; columns with code 0 only are left out."""
    ends: dict[str, tuple[int, int]] = {}
    for name, weight, spec in zip(rows.codes, rows.weights, specs, strict=True):
        if weight is not None:
            low, high = spec.clamping.ends
            ends[weight] = min(low, 0), max(high, 0)
        if name is not None and not isinstance(spec.binning, OneCode):
            ends[name] = 0, spec.binning.size - 1
    return ends


def split_rows(
    rows: Rows,
    bounds: Mapping[tuple[str | None, Limits], int],
    is_read_again: bool,
    dialect: Dialect,
    common: Common,
    of_numbers: Weighing | None,
) -> tuple[Table | None, tuple[Table, Table]]:
    """Return each person's groups with the sums of `of_numbers`, if any are needed, and the rows in two parts.

    These are the rows that stay under all limits, and the rows to rank, with numbers `place` and `copy`.

    Rows are ranked in groups with more rows of a person than the smallest limit.
    They are ranked in all of a person's groups if the person has too many groups or rows.
    `stays0` and so on: whether the group stays under a limit.
    `even`: whether all rows that are ranked together contribute to everything.
    """
    person = person_in(rows.table)
    pair = [*person, "group"]
    table = rows.read(rows.table)
    pairs, crowds = table.group_by(pair), []
    codes = {i: name for (name, limits), i in bounds.items() if limits.groups is not None and name in rows.partial}
    seen = {f"has{i}": table.count(where=has(table, name)) > 0 for i, name in codes.items()}
    names = dict.fromkeys(name for name, _ in bounds if name in rows.partial)
    full = [has(table, name) for name in names]
    seen["full"] = table.count(where=reduce(operator.and_, full) if full else None)
    sums = {} if of_numbers is None else of_numbers.sums(table)
    pairs = pairs.aggregate(rows=cast(table.count(), "int64"), **seen, **sums)
    numbers = None
    if of_numbers is not None:
        pairs = common.once(pairs)
        numbers = pairs.select(*pair, *sums)
    smallest = {
        what: min(most)
        for what in ("rows_per_group", "groups", "rows")
        if (most := [getattr(limits, what) for _, limits in bounds if getattr(limits, what) is not None])
    }
    if "groups" in smallest or "rows" in smallest:
        of_all = {"in_all": cast(pairs["rows"].sum(), "int64"), "even": (pairs["rows"] == pairs["full"]).all()}
        people = pairs.group_by(person).aggregate(groups=pairs.count(), **of_all)
        pairs = people.inner_join(pairs, person)
        columns = {"groups": "groups", "rows": "in_all"}
        crowds = [pairs[column] > smallest[what] for what, column in columns.items() if what in smallest]
    else:
        pairs = pairs.mutate(even=pairs["rows"] == pairs["full"])
    if "rows_per_group" in smallest:
        crowds.append(pairs["rows"] > smallest["rows_per_group"])
    crowded = pairs.filter(any_of(crowds))
    if "groups" in smallest:
        of_groups = {
            f"stays{i}": (f"has{i}" if i in codes else None, limits.groups)
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
        # A number distinguishes equal rows. Any numbering works, because equal rows agree in all columns.
        says = ["group", *rows.says]
        tight = dialect.copies(tight.semi_join(crowded, pair), [*person, *says])
        says.append("copy")
        owner, said = ([tight[name] for name in names] for names in (person, says))
        tight = tight.mutate(place=dialect.order(owner, said, OF_ROWS))
    tight = common.once(crowded.inner_join(tight, pair).select(*tight.columns, "even", *stays))
    loose = common.once(loose) if is_read_again else loose
    return numbers, (rows.read(loose), rows.read(tight))


def _staying(crowded: Table, bounds: Mapping[str, tuple[str | None, int]], dialect: Dialect) -> Table:
    """Add whether each group of crowded people stays: limits count the groups in which a column is true."""
    person = person_in(crowded)
    crowded = crowded.mutate(place=dialect.order([crowded[name] for name in person], [crowded["group"]], OF_GROUPS))
    until = ibis.cumulative_window(group_by=person, order_by=["place", "group"])
    return crowded.mutate(
        **{
            name: _place(None if seen is None else crowded[seen], until) <= most
            for name, (seen, most) in bounds.items()
        }
    )


def is_one_row_a_group(rows: Rows, specs: Sequence[HistogramSpec]) -> bool:
    """Return whether one row per person and group counts, or people count, with one limit of groups for each code.

    One integer must have a bit for each column that rows may contribute to.
    """
    codes = {*rows.codes}
    limits = {(name, spec.limits.groups) for name, spec in zip(rows.codes, specs, strict=True)}
    return len(limits) == len(codes) <= _MOST_SAID and all(
        spec.limits == Limits(groups=spec.limits.groups, rows_per_group=None if spec.people else 1)
        and not (spec.people and spec.row_weight is not None)
        for spec in specs
    )


def read_of_winners(rows: Rows, specs: Sequence[HistogramSpec]) -> dict[str | None, dict[str, tuple[int, int]]]:
    """Return the columns to read from winners with a value in each column, with their smallest and largest values."""
    ends, read = _ends(rows, specs), dict[str | None, dict[str, tuple[int, int]]]()
    for name, weight, spec in zip(rows.codes, rows.weights, specs, strict=True):
        if weight is not None:
            read.setdefault(name, {})[weight] = ends[weight]
        if not (spec.people or name is None or isinstance(spec.binning, OneCode)):
            read.setdefault(name, {})[name] = ends[name]
    return read


def is_short(ends: Mapping[str, tuple[int, int]]) -> bool:
    """Return whether values between these ends and a time fit into one integer."""
    return sum(map(_bits, ends.values())) <= _MOST_BITS


def _bits(ends: tuple[int, int]) -> int:
    """Return the bits of a number between these ends, or of none."""
    return (ends[1] - ends[0] + 1).bit_length()


def raced(
    rows: Rows,
    specs: Sequence[HistogramSpec],
    groupings: Mapping[tuple[str | None, bool], list[int]],
    read: Mapping[str | None, Mapping[str, tuple[int, int]]],
    dialect: Dialect,
    common: Common,
    of_numbers: Weighing | None,
) -> tuple[Table, list[tuple[Table, list[int]]]]:
    """Apply the limits if people count, or one row per person and group: the winner of a race.

    Returns each person's groups with the sums of `of_numbers`, and then the counts.

    Equal rows become one row with a number of copies, and race as often.
    So a row needs no number, and no window sorts all rows.
    Ties of times are broken by the rows' own columns, never by anything else.
    If an engine finds the pairs with distinct rows only, it groups just the rows of other pairs.
    """
    person = person_in(rows.table)
    pair = [*person, "group"]
    most = {name: spec.limits.groups for name, spec in zip(rows.codes, specs, strict=True)}
    presence = {} if of_numbers is None else of_numbers.presence()
    codes = [] if of_numbers is None else of_numbers.codes
    names = _numbered(rows, [*rows.codes, *codes])  # columns that rows contribute to
    sizes = {by: specs[numbers[0]].binning.size for (by, people), numbers in groupings.items() if people and by}
    held = _Held.of(_partial(rows, names), sizes)
    sets = {by: f"set{i}" for i, by in enumerate(held.sizes)}

    def aggregated(said: Table, differ: Callable[[Value, Value], Value] | None = None) -> Table:
        copies = said["copies"] if "copies" in said.columns else None
        place = dialect.order([said[name] for name in person], [said[name] for name in ("group", *rows.says)], OF_ROWS)
        time = dialect.time(place) if copies is None else dialect.race(place, copies)
        found: dict[str, Value] = {}
        if differ is not None:
            found["differ"] = differ(place if rows.packed is None else said["said"], said.count())
        if held.width:
            found["bits"] = held.bits_of(rows, said).bit_or()
        if of_numbers is not None:
            found |= of_numbers.sums(said, copies, known=presence)
        for name, ends in read.items():
            where = has(said, name) if name in rows.partial else None
            won = _winner(rows, said, time, ends, where)
            found |= {f"{of}_of{names[name]}": value for of, value in won.items()}
        return said.group_by(pair).aggregate(**found)

    if not read:
        said = rows.read(common.once(rows.table))
        pairs = aggregated(said)
    elif dialect.differ is None:
        said = rows.read(common.once(equal_ones_together(rows.table)))
        pairs = aggregated(said)
    else:  # grouping rows is slow, and few pairs have equal rows
        table = common.once(rows.table)
        said = rows.read(table)
        every = common.once(aggregated(said, dialect.differ))
        alike = table.semi_join(every.filter(~every["differ"]), pair)
        parts = [every.filter("differ").drop("differ"), aggregated(rows.read(common.once(equal_ones_together(alike))))]
        pairs = parts[0].union(parts[1].select(parts[0].columns))
    pairs = common.once(held.taken_apart(pairs, names))
    pairs = _in_few_groups(pairs, _in_turn(rows, names, most), dialect, common)

    parts = []
    for (by, people), numbers in groupings.items():
        if by in sets and people:
            counted = _members(pairs.filter(_counts(pairs, names[by])), sets[by], by, sizes[by], len(numbers))
        elif people and by is not None:
            cells = said.filter(has(said, by))
            cells = cells if most[by] is None else cells.anti_join(pairs.filter(~pairs[f"stays{names[by]}"]), pair)
            cells = cells.select(*pair, by).distinct()
            counted = cells_of(cells, ["group", by], [Number(None)] * len(numbers))
        elif by is None:  # for a cube
            counted = cells_of(pairs, ["group"], [Number(_counts(pairs, names[rows.codes[n]])) for n in numbers])
        else:
            winners = pairs.filter(_counts(pairs, names[by])).mutate(**{by: pairs[f"{by}_of{names[by]}"]})
            weights = {number: rows.weights[number] for number in numbers}
            weigh = [
                weight_in(specs[number], f"{weight}_of{names[by]}", dialect) if weight else None
                for number, weight in weights.items()
            ]
            counted = cells_of(winners, ["group", by], [Number(None, one and one(winners)) for one in weigh])
        parts.append((counted.mutate(code=integer(0)) if by is None else counted.rename(code=by), numbers))
    return _with_presence(pairs, names, presence), parts


@dataclass(frozen=True)
class _Held:
    """Bits of an integer for a person's rows in a group: the columns that they contribute to, and codes.

    Parameters
    ----------
    names
        The columns that some rows contribute to and others don't, each with its number.
    sizes
        The columns with a set of codes, each with its number of codes.
    """

    names: Mapping[str, int]
    sizes: Mapping[str, int]

    @classmethod
    def of(cls, names: Mapping[str, int], sizes: Mapping[str, int]) -> _Held:
        """Return the sets that fit. `sizes` has the columns of codes by which people are counted."""
        held = cls(names, {})
        for by, size in sizes.items():
            if size <= _MOST_CODES and held.width + size <= _MOST_SAID:
                held = replace(held, sizes={**held.sizes, by: size})
        return held

    @property
    def width(self) -> int:
        """The number of bits."""
        return len(self.names) + sum(self.sizes.values())

    def bits_of(self, rows: Rows, said: Table) -> Value:
        """Return the bits of each row."""
        marks = (ibis.ifelse(rows.has(said, name), integer(2**i), integer(0)) for name, i in self.names.items())
        bits, below = reduce(operator.add, marks, integer(0)), len(self.names)
        for name, size in self.sizes.items():
            one = ibis.ifelse(has(said, name), integer(2**below), integer(0))
            code = cast(ibis.ifelse(has(said, name), said[name], integer(0)), "int32")
            bits, below = bits + (one << code), below + size
        return bits

    def taken_apart(self, pairs: Table, names: Mapping[str | None, int]) -> Table:
        """Replace the bits of pairs by `set0`, …, and by `has0`, … for all names: of others, each pair has rows."""
        every = dict.fromkeys((f"has{i}" for i in names.values()), ibis.literal(value=True))
        if not self.width:
            return pairs.mutate(**every)
        found = every | {f"has{i}": self._part(pairs, i) != integer(0) for i in self.names.values()}
        below = len(self.names)
        for i, size in enumerate(self.sizes.values()):
            found[f"set{i}"], below = self._part(pairs, below, size), below + size
        return pairs.mutate(**found).drop("bits")

    def _part(self, pairs: Table, first: int, size: int = 1) -> Value:
        return (pairs["bits"] >> constant(first, "int32")) & integer(2**size - 1)


def _members(pairs: Table, of: str, name: str, size: int, numbers: int) -> Table:
    """Count the pairs with each code in their set; pairs with equal sets are counted first."""
    sets = pairs.group_by(["group", of]).aggregate(pairs=cast(pairs.count(), "int64"))
    sets = sets.mutate(**{name: cast(ibis.range(size).unnest(), "int64")})
    sets = sets.filter((cast(sets[of], "int64") >> cast(sets[name], "int32")) & integer(1) == integer(1))
    return cells_of(sets, ["group", name], [Number(None, sets["pairs"])] * numbers)


def _winner(
    rows: Rows, said: Table, time: Value, ends: Mapping[str, tuple[int, int]], where: Value | None
) -> dict[str, Value]:
    """Return the columns of the row with the least time; `ends` are the smallest and largest value of each column."""
    if not is_short(ends):
        key = ibis.struct({"time": time, **{name: said[name] for name in ends}})
        return {name: said[name].argmin(key, where=where) for name in ends}
    # Engines find the smallest integer faster: the last bits of the time become those of the columns.
    key, below, places = time & integer(-(2 ** sum(map(_bits, ends.values())))), 0, {}
    for name, (low, high) in ends.items():
        key = key + rows.place(said, name, low, high) * integer(2**below)
        places[name], below = below, below + _bits((low, high))
    least = key.min(where=where)
    return {
        name: ((least >> constant(places[name], "int32")) & integer(2 ** _bits(between) - 1)) + integer(between[0] - 1)
        for name, between in ends.items()
    }


def one_each(
    rows: Table,
    name: str,
    numbers: Sequence[int],
    specs: Sequence[HistogramSpec],
    weights: Mapping[int, Callable[[Table], Value] | None],
) -> Table:
    """Return one row for each person, group and code, with its first row's number, and clipped weights."""
    rows = rows.filter(has(rows, name))
    found = {"count": rows.count()}
    for number in numbers:
        row_weight, weight = specs[number].row_weight, weights[number]
        if row_weight is not None and weight is not None:
            found[f"weight{number}"] = of_person(weight(rows), row_weight)
    if "place" in rows.columns:
        found["place"] = rows["place"].min()
    stays = [name_of for name_of in rows.columns if name_of.startswith("stays")]
    return rows.group_by([*person_in(rows), "group", name, *stays]).aggregate(**found)


def first(loose: Table, tight: Table, bounds: Mapping[tuple[str | None, Limits], int], says: Sequence[str]) -> Table:
    """Add columns `keeps0`, `keeps1`, …: whether limit i keeps the row."""
    columns = [name for name in loose.columns if name in tight.columns]
    flags = [f"keeps{i}" for i in bounds.values()]
    shared = {limits: i for (_, limits), i in bounds.items()}
    if len(shared) < len(bounds):
        # Limits that agree share one ranking of the rows that contribute to everything: windows take most of the time.
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
                # If all rows of an owner stay or all go until here, plain row numbers equal those among kept rows.
                is_whole = limits.groups is limits.rows_per_group is None or what == "rows_per_group"
                every = len(bounds) == 1 or (name is None and is_whole)
                at[name, limits] = _place(None if every else tight[f"keeps{bounds[name, limits]}"], until)
            tight = tight.mutate(
                **{f"keeps{bounds[of]}": tight[f"keeps{bounds[of]}"] & (at[of] <= most[of]) for of in most}
            )
    return tight


def _place(counts: Value | None, until: Value) -> Value:
    """Return how many rows of a window count until here (None: all), in the way that is fastest for engines."""
    return ibis.row_number().over(until) + 1 if counts is None else cast(counts, "int32").sum().over(until)
