"""People in Polars: apply limits to encoded rows, count people per key, and describe each person."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from threading import Lock
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import polars as pl

from dp_polars._base.numbers import (
    lengths_from,
    offsets,
    run_lengths,
    run_starts,
    slices,
    sorted_words,
    system_rng,
)
from dp_polars._base.silence import in_parallel
from dp_polars._engines.polars.arithmetic import EXPRESSIONS
from dp_polars._engines.polars.bounding import BoundedRows, keep, random_few
from dp_polars._engines.polars.rows import (
    added_up,
    in_parts,
    is_a_person,
    is_somebody,
    own_keys,
    person_of,
    with_groups,
)
from dp_polars._mechanisms.person_weights import UNIT
from dp_polars._release.contract import MOST_IN_ALL, MOST_IN_GROUP, ROWS_CUT, PersonNumber
from dp_polars._sources.running import by_name, collected

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from polars._typing import EngineType

    from dp_polars._base.numbers import Ints
    from dp_polars._engines.polars.bounding import Marks, Stays
    from dp_polars._engines.polars.held import Held
    from dp_polars._release.contract import HistogramSpec, KeyWork, PerPerson
    from dp_polars._release.protection import Layout, Limits


# Rows that NumPy handles at once, so that temporaries stay in the cache.
_PEOPLE_ROWS = 1 << 17
# Up to this many bits of a cell, each part of the rows is counted in a table. With up to this many cells per row, all
# rows together are.
_TABLE_BITS, _CELLS_PER_ROW = 14, 2


#: The cells of each kind of specs, by the positions of its specs: `cell`, `rows` and `weight i`, each cell once.
CellsOfKinds: TypeAlias = "dict[tuple[int, ...], pl.DataFrame]"


@dataclass(frozen=True)
class AlikeSpecs:
    """Alike specs, the column of their codes (None: all are 0), and by position the columns of their weights."""

    numbers: tuple[int, ...]
    specs: tuple[HistogramSpec, ...]
    layout: Layout
    code: str | None
    weights: Mapping[int, str]

    @property
    def contributes(self) -> pl.Expr:
        """Whether a row counts before limits."""
        return pl.lit(value=True) if self.code is None else pl.col(self.code) < self.specs[0].binning.size

    @property
    def cell(self) -> pl.Expr:
        """Group and code in one integer."""
        unsigned = pl.UInt32 if self.layout.bits <= 32 else pl.UInt64
        cell = pl.col(str(self.code)).cast(unsigned) if self.layout.code_bits else pl.lit(0, unsigned)
        if self.layout.group_bits:
            cell += pl.col("group").cast(unsigned) * pl.lit(2**self.layout.code_bits, unsigned)
        return cell


def added_up_cells(
    rows: pl.LazyFrame, kinds: Sequence[AlikeSpecs], are_counted: Sequence[pl.Expr]
) -> tuple[pl.LazyFrame, list[Callable[[pl.DataFrame], pl.DataFrame]]]:
    """Return a plan that adds up rows that count for any kind, and a function for each kind's sums.

    The functions return each cell once: `cell`, `rows`, and the sums of weights under the names of its specs.
    All kinds have the same codes.
    """
    weights = list(dict.fromkeys(name for kind in kinds for name in kind.weights.values()))
    counts = {f"counts {place}": is_counted for place, is_counted in enumerate(are_counted)}
    # Select before filtering: Polars would move a filter into the shared plan, and split the branches.
    counted = rows.with_columns(kinds[0].cell.alias("cell"), **counts).select("cell", *counts, *weights)
    sums = []
    for place, (kind, flag) in enumerate(zip(kinds, counts, strict=True)):
        sums.append(pl.col(flag).cast(pl.Int64).sum().alias(f"rows {place}"))
        names = dict.fromkeys(kind.weights.values())
        sums += [pl.when(flag).then(pl.col(name).cast(pl.Int64)).sum().alias(f"{place} {name}") for name in names]
    found = counted.filter(pl.any_horizontal(*counts)).group_by("cell").agg(sums)
    return found, [partial(_of_kind, kind, place) for place, kind in enumerate(kinds)]


def _of_kind(kind: AlikeSpecs, place: int, cells: pl.DataFrame) -> pl.DataFrame:
    weights = {weight_name(number): f"{place} {name}" for number, name in kind.weights.items()}
    return cells.filter(pl.col(f"rows {place}") > 0).select("cell", rows=f"rows {place}", **weights)


def count_people(
    frame: pl.DataFrame, kinds: Sequence[AlikeSpecs], held: Mapping[tuple[int, ...], Held], engine: EngineType
) -> CellsOfKinds:
    """Return the cells of rows that stay. Kinds whose numbers are in `held` add their rows there instead.

    Polars' work depends only on the kinds, not on the rows.

    `frame`: `person` (`labels.labelled`), `group` if there are several, and the columns of `kinds`.
    It loses `person`.
    """
    if not kinds:
        return {}
    by_codes: dict[str | None, list[AlikeSpecs]] = {}
    for kind in kinds:
        if kind.numbers not in held:
            by_codes.setdefault(kind.code if kind.layout.code_bits else None, []).append(kind)
    # Polars adds up kinds with weights, and all kinds with the same codes. Other kinds are counted while limits apply.
    added_up = [alike for alike in by_codes.values() if any(kind.weights for kind in alike)]
    marked = {kind.numbers for alike in added_up for kind in alike}
    codes = Codes({kind.code: (frame[kind.code].to_numpy(), kind.specs[0].binning.size) for kind in kinds if kind.code})
    choices = _choices(kinds, codes, frame, marked)
    person, group = frame.drop_in_place("person"), frame.get_column("group", default=None)
    groups = np.zeros(frame.height, np.uint8) if group is None else group.to_numpy()
    counted = {kind.numbers: _Cells(kind.layout) for kind in kinds if kind.numbers not in marked.union(held)}
    _bound(choices, {**counted, **held}, by_person(person, groups, None if marked else codes), codes)
    bounded = {kind.numbers: kind for choice in choices for kind in choice.kinds}
    stays = {f"stays {kind.numbers}": choice.stays for choice in choices for kind in choice.kinds}
    totals = {name: clipped for choice in choices for name, (*_, clipped) in choice.totals.items()}
    # As columns of a frame with two names: Polars 1 confuses two arrays of equal name and length in its plans.
    arrays = {name: array for name, array in (stays | totals).items() if array is not None}
    frame = frame.hstack([pl.Series(name, array) for name, array in sorted(arrays.items())])
    found = {numbers: cells.found() for numbers, cells in counted.items()}
    plans, finds = [], []
    for alike in added_up:
        of = [bounded[kind.numbers] for kind in alike]
        plan, find = added_up_cells(frame.lazy(), of, [pl.col(f"stays {kind.numbers}") for kind in alike])
        plans.append(plan)
        finds.append({kind.numbers: find_of for kind, find_of in zip(alike, find, strict=True)})
    for cells, every in zip(collected(plans, engine), finds, strict=True):
        found |= {numbers: find(cells) for numbers, find in every.items()}
    return found


class Codes:
    """Codes of rows: each column with its number of codes, which is also the code of ignored rows."""

    def __init__(self, columns: Mapping[str, tuple[NDArray[np.unsignedinteger], int]]) -> None:
        self._columns, self.bits = dict(columns), 0
        self.all_count = {name for name, (codes, size) in columns.items() if codes.max(initial=0) < size}
        self._shifts: dict[str, int] = {}
        for name, (_, size) in reversed(self._columns.items()):
            self._shifts[name] = self.bits
            self.bits += size.bit_length()

    def packed(self, start: int, stop: int) -> NDArray[np.uint64]:
        """Pack all codes of some rows into one number for each row."""
        packed = np.zeros(stop - start, np.uint64)
        for name, (codes, _) in self._columns.items():
            packed |= codes[start:stop].astype(np.uint64) << np.uint64(self._shifts[name])
        return packed

    def unpacked(self, packed: Ints, name: str) -> NDArray[np.unsignedinteger]:
        codes, size = self._columns[name]
        mask = np.uint64((1 << size.bit_length()) - 1)
        return ((packed.view(np.uint64) >> np.uint64(self._shifts[name])) & mask).astype(codes.dtype)

    def at(self, rows: Ints, name: str) -> NDArray[np.unsignedinteger]:
        return self._columns[name][0][rows]


class _Cells:
    """The number of rows in each cell."""

    def __init__(self, layout: Layout) -> None:
        self._bits, self._code_bits = layout.bits, layout.code_bits
        self._type = np.dtype(np.uint32 if layout.bits <= 32 else np.uint64)
        self._table = np.zeros(1 << layout.bits if layout.bits <= _TABLE_BITS else 0, np.int64)
        self._cells: list[NDArray[np.unsignedinteger]] = []
        self._lock = Lock()

    def add(self, groups: NDArray[np.integer], codes: NDArray[np.integer] | None) -> None:
        cells = groups.astype(self._type)
        if codes is not None:
            cells <<= self._type.type(self._code_bits)
            cells |= codes.astype(self._type)
        if not len(self._table):
            self._cells.append(cells)
            return
        counts = np.bincount(cells.astype(np.int64), minlength=len(self._table))
        with self._lock:
            self._table += counts

    def found(self) -> pl.DataFrame:
        """Return each cell once, with its number of `rows`."""
        if len(self._table):
            cells = np.flatnonzero(self._table)
            return pl.DataFrame({"cell": cells.astype(self._type), "rows": self._table[cells]})
        cells = np.concatenate([np.empty(0, self._type), *self._cells])
        if 1 << self._bits <= _CELLS_PER_ROW * len(cells):
            counts = np.bincount(cells.view(np.dtype(f"i{cells.itemsize}")))
            found = np.flatnonzero(counts)
            return pl.DataFrame({"cell": found.astype(self._type), "rows": counts[found]})
        # Sorting words takes at most two thirds of the time of Polars' grouping, and less if few are equal.
        words = sorted_words(cells.astype(np.uint64))
        first = run_starts(words)
        return pl.DataFrame({"cell": words[first].astype(self._type), "rows": lengths_from(first, len(words))})


def _bound(
    choices: Sequence[_Choice], counted: Mapping[tuple[int, ...], _Cells | Held], people: ByPerson, codes: Codes
) -> None:
    """Mark or count the rows that stay."""
    bounds = offsets(people.lengths)

    def bound_slice(first: int, last: int) -> None:
        groups, tails = people.part(bounds[first], bounds[last])
        codes_of = cache(partial(codes.unpacked if people.is_packed else codes.at, tails))
        asked = [choice.asked(len(tails), codes_of) for choice in choices]
        for choice, stays in zip(choices, keep(people.lengths[first:last], groups, asked), strict=True):
            if choice.stays is not None:
                choice.mark(tails, stays)
                continue
            for kind in choice.kinds:
                code = codes_of(kind.code)[stays.rows] if kind.layout.code_bits else None
                counted[kind.numbers].add(groups[stays.rows], code)

    in_parallel(bound_slice, list(slices(people.lengths, _PEOPLE_ROWS, len(people.lengths))))


@dataclass(frozen=True, eq=False)
class ByPerson:
    """Rows sorted by person and then by group."""

    lengths: Ints  # rows of each person
    # From a range of rows to their groups and tails. A tail is the row's place, or all of its codes.
    part: Callable[[int, int], tuple[NDArray[np.integer], Ints]]
    is_packed: bool = False


def by_person(person: pl.Series, groups: NDArray[np.integer], codes: Codes | None = None) -> ByPerson:
    """Sort rows by person and group, with their codes if these are given and fit, else with their places."""
    places, most = len(person), int(groups.max(initial=0))
    place_bits, group_bits = max(places - 1, 0).bit_length(), most.bit_length()
    labels, least, span = labels_of(person, 64 - place_bits - group_bits)
    if codes is not None and not span.bit_length() + group_bits + codes.bits <= 64:
        codes = None
    if codes is None and span.bit_length() + group_bits + place_bits > 64:
        rows = np.lexsort((groups, labels))
        return ByPerson(run_lengths(labels[rows]), lambda start, stop: (groups[rows[start:stop]], rows[start:stop]))
    # Person, group and tail in one word: sorting words is several times as fast as hashing.
    words, bits = np.empty(places, np.uint64), place_bits if codes is None else codes.bits

    def make(start: int, stop: int) -> None:
        part = labels[start:stop].astype(np.uint64)
        part -= np.uint64(least % 2**64)
        part <<= np.uint64(group_bits)
        part |= groups[start:stop].astype(np.uint64)
        part <<= np.uint64(bits)
        tails = np.arange(start, stop, dtype=np.uint64) if codes is None else codes.packed(start, stop)
        np.bitwise_or(part, tails, out=words[start:stop])

    in_parallel(make, [(start, min(start + _PEOPLE_ROWS, places)) for start in range(0, places, _PEOPLE_ROWS)])
    words = sorted_words(words)

    def part(start: int, stop: int) -> tuple[NDArray[np.integer], Ints]:
        groups = (words[start:stop] >> np.uint64(bits)) & np.uint64((1 << group_bits) - 1)
        tails = words[start:stop] & np.uint64((1 << bits) - 1)
        return groups.view(np.int64), tails.view(np.int64)

    return ByPerson(run_lengths(words >> np.uint64(group_bits + bits)), part, codes is not None)


def labels_of(person: pl.Series, bits: int) -> tuple[NDArray[np.integer], int, int]:
    """Return a number for each row's person, the smallest number, and the largest minus the smallest.

    `person`: whole numbers (`labels.labelled`). They stay if their differences fit into `bits` bits.
    """
    values = person.to_numpy()
    least, greatest = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    if (greatest - least).bit_length() <= bits:
        return values, least, greatest - least
    return np.unique(values, return_inverse=True)[1], 0, len(values)


@dataclass(frozen=True, eq=False)
class _Choice:
    """Kinds that keep the same rows: same limits and contributing rows, perhaps different codes."""

    limits: Limits
    people: bool
    code: str | None  # None: all rows count, with one code
    size: int | None  # the code of rows that do not count. None: no such rows.
    stays: Marks | None  # one mark for each row. None: nothing is marked.
    kinds: list[AlikeSpecs] = field(default_factory=list)
    totals: dict[str, tuple[HistogramSpec, NDArray[np.signedinteger], Ints]] = field(default_factory=dict)

    def join(self, kind: AlikeSpecs, frame: pl.DataFrame) -> None:
        """Add a kind. If people count, a column of their totals replaces its weights."""
        if self.people:
            for number, name in kind.weights.items():
                spec, clipped = kind.specs[kind.numbers.index(number)], np.zeros(frame.height, np.int64)
                self.totals[f"total {number}"] = spec, frame[name].to_numpy(), clipped
            kind = replace(kind, weights={number: f"total {number}" for number in kind.weights})
        self.kinds.append(kind)

    def asked(self, rows: int, codes_of: Callable[[str], NDArray[np.unsignedinteger]]) -> BoundedRows:
        """Return the limits with the codes of some rows; `codes_of` finds the codes by column name."""
        codes = np.zeros(rows, np.uint8) if self.code is None else codes_of(self.code)
        return BoundedRows(
            self.limits, None if self.size is None else codes < self.size, codes if self.people else None
        )

    def mark(self, at: Ints, stays: Stays) -> None:
        """Mark the rows that stay. If people count, give these rows the person's total in a group and code."""
        assert self.stays is not None
        rows = at[stays.rows]
        self.stays[rows] = True
        if stays.whose is None:
            return
        seen = np.flatnonzero(stays.whose >= 0)
        for spec, weights, clipped in self.totals.values():
            totals = np.zeros(stays.whose.max(initial=-1) + 1, np.int64)
            np.add.at(totals, stays.whose[seen], weights[at[seen]].astype(np.int64, copy=False))
            clipped[rows] = np.clip(totals[stays.whose[stays.rows]], *spec.clamping.of_person)


def _choices(
    kinds: Sequence[AlikeSpecs], codes: Codes, frame: pl.DataFrame, marked: Collection[tuple[int, ...]]
) -> list[_Choice]:
    """Group kinds that keep the same rows."""
    found: dict[object, _Choice] = {}
    for kind in kinds:
        spec, all_count = kind.specs[0], kind.code is None or kind.code in codes.all_count
        # If people count, codes matter. Otherwise only the contributing rows matter, and nothing if all rows
        # contribute.
        code = None if all_count and not (spec.people and kind.layout.code_bits) else kind.code
        key = (spec.limits, spec.people, code, kind.numbers in marked)
        if key not in found:
            stays = np.zeros(frame.height, bool) if kind.numbers in marked else None
            found[key] = _Choice(spec.limits, spec.people, code, None if all_count else spec.binning.size, stays)
        found[key].join(kind, frame)
    return list(found.values())


def weight_name(number: int) -> str:
    """Return the column of a spec's weights, or of their sums."""
    return f"weight {number}"


def people_by_key(rows: pl.LazyFrame, work: KeyWork, engine: EngineType, partitions: int) -> tuple[pl.DataFrame, Ints]:
    """Return every key that a person has, once, and its number of people: see `Engine`, duty 8."""
    columns = _columns_of_keys(work.types)
    names = list(columns)
    if work.privacy_unit is None:
        plan = rows.select(**columns).drop_nulls().group_by(names).agg(pl.len().alias("people"))
        counted = collected([plan], engine)
    else:
        unit, schema = work.privacy_unit, rows.collect_schema()
        somebody = is_somebody(unit, schema)
        counted = []
        for part in in_parts(rows, unit, partitions):
            person_keys = part.select(person_of(unit, schema).alias("person"), **columns).drop_nulls(names)
            (lists,) = collected([_keys_of_people(person_keys, names).filter(somebody)], engine)
            counted.append(_bounded(lists, names, work.most, engine))
    found = counted[0] if len(counted) == 1 else added_up(counted, names, engine)
    keys = found.select(pl.col(key).alias(name) for key, name in zip(names, work.types, strict=True))
    return keys, found["people"].to_numpy().astype(np.int64)


def keys_of_each(rows: pl.LazyFrame, per_person: PerPerson, types: pl.Schema) -> pl.LazyFrame:
    """Return each person with a key, and the number of their keys: see `Engine`, duty 9."""
    unit, schema = per_person.privacy_unit, rows.collect_schema()
    columns = _columns_of_keys(types)
    person_keys = rows.filter(is_a_person(unit, schema)).select(person_of(unit, schema).alias("person"), **columns)
    person_keys, names = person_keys.drop_nulls(list(columns)), list(columns)
    number = pl.len()
    if len(names) == 1:  # faster, as below
        number = pl.col(names).n_unique()
    else:
        person_keys = person_keys.group_by("person", *names).agg()
    number = number.cast(pl.Int64).alias(PersonNumber.name(0))
    return person_keys.group_by("person").agg(number).drop("person")


def _columns_of_keys(types: pl.Schema) -> dict[str, pl.Expr]:
    return {f"key {i}": pl.col(name).cast(dtype) for i, (name, dtype) in enumerate(types.items())}


def _keys_of_people(rows: pl.LazyFrame, names: list[str]) -> pl.LazyFrame:
    if len(names) == 1:  # faster, most of all for numbers
        return rows.group_by("person").agg(pl.col(names).unique())
    return rows.group_by("person", *names).agg().group_by("person").agg(names)


def _bounded(lists: pl.DataFrame, names: list[str], most: int, engine: EngineType) -> pl.DataFrame:
    """Count the people with each key, if at most `most` random keys of each person stay."""
    lengths = lists[names[0]].list.len().to_numpy().astype(np.int64)
    keys = pl.DataFrame({name: lists[name].explode(empty_as_null=False) for name in names})
    if lengths.max(initial=0) > most:
        keys = keys.filter(pl.Series(random_few(lengths, most, system_rng())))
    return keys.lazy().group_by(names).agg(pl.len().alias("people")).collect(engine=by_name(engine))


@dataclass(frozen=True)
class Cut:
    """One of the specs of `PerPerson.cut`, with the expressions for its codes and weights."""

    spec: HistogramSpec
    # Computed row by row. None: all are 0, or 1.
    code: pl.Expr | None
    weight: pl.Expr | None

    def columns(self, number: int) -> list[pl.Expr]:
        """Return the columns to read."""
        code = pl.lit(0, pl.UInt8) if self.code is None else self.code
        weight = pl.lit(1) if self.weight is None else self.weight.cast(pl.Int64)
        return [
            pl.when(code < self.spec.binning.size).then(code).alias(f"code {number}"),
            *([weight.alias(f"weight {number}")] if self.clips else []),
        ]

    @property
    def clips(self) -> bool:
        return self.spec.people and self.weight is not None

    def of_groups(self, number: int) -> list[pl.Expr]:
        """Return for each group of a person how many rows or codes contribute, and whether a sum is clipped."""
        code, weight = pl.col(f"code {number}"), pl.col(f"weight {number}")
        codes = code.drop_nulls()
        found = [(codes.n_unique() if self.spec.people else codes.len()).cast(pl.Int64).alias(f"code {number}")]
        if self.clips and self.spec.row_weight is not None:
            total = weight.filter(code.is_not_null())
            if self.spec.binning.size == 1:  # else each row has the sum of its code already
                total = pl.when(codes.len() > 0).then(total.sum())
            ends = self.spec.row_weight.of_person
            found.append((~total.is_between(*ends)).any().alias(f"weight {number}"))
        return found

    def of_people(self, number: int) -> pl.Expr:
        """Return whether any of a person's rows is dropped, counted in part, or clipped."""
        limits, counts = self.spec.limits, pl.col(f"code {number}")
        is_cut = pl.col(f"weight {number}").any() if self.clips else pl.lit(value=False)
        if self.spec.weight is not None:
            is_cut |= ((counts > 0) & (self._of_row(number) < UNIT)).any()
        if limits.groups is not None:
            is_cut |= (counts > 0).sum() > limits.groups
        if limits.rows_per_group is not None:
            is_cut |= (counts > limits.rows_per_group).any()
        if limits.rows is not None:
            is_cut |= counts.sum() > limits.rows
        return is_cut

    def _of_row(self, number: int) -> pl.Expr:
        """Return the weight of each of a person's rows in a group, in parts, from the numbers of their groups."""
        weight, counts = self.spec.weight, pl.col(f"code {number}").clip(upper_bound=MOST_IN_GROUP)
        assert weight is not None
        of_row: pl.Expr = weight.of_rows(weight.norm(counts, EXPRESSIONS).sum(), counts, EXPRESSIONS)
        return of_row

    def dropped(self, number: int) -> pl.Expr:
        """Return how many of a person's rows are dropped: see `PerPerson`."""
        limits, counts = self.spec.limits, pl.col(f"code {number}").clip(upper_bound=MOST_IN_GROUP)
        total = counts.sum().clip(upper_bound=MOST_IN_ALL)
        if self.spec.weight is not None:
            parts = (self._of_row(number) * counts).sum()
            return total - (parts + UNIT // 2) // UNIT
        remaining = counts if limits.rows_per_group is None else counts.clip(upper_bound=limits.rows_per_group)
        remaining = remaining.sum().clip(upper_bound=MOST_IN_ALL)
        if limits.groups is not None:
            groups = (counts > 0).sum().cast(pl.Int64)
            on_average = (2 * limits.groups * remaining + groups) // (2 * groups)
            remaining = pl.when(groups > limits.groups).then(on_average).otherwise(remaining)
        if limits.rows is not None:
            remaining = remaining.clip(upper_bound=limits.rows)
        return total - remaining


def _of_groups(number: PersonNumber, place: int) -> pl.Expr:
    """Return one number for a group of a person: contributing rows or codes, or the largest or smallest code."""
    codes = pl.col(f"code {place}")
    match number.what:
        case "largest code":
            found = codes.max()
        case "smallest code":
            found = codes.min()
        case "largest total" | "smallest total":
            found = pl.when(codes.count() > 0).then(pl.col(f"weight {place}").filter(codes.is_not_null()).sum())
        case _:
            found = codes.drop_nulls().n_unique() if number.spec.people else codes.count()
    return found.cast(pl.Int64).alias(f"code {place}")


def _places(cuts: Sequence[Cut]) -> list[int]:
    """Return for each number the first one of the same rows in groups: several are about all rows."""
    of_all: dict[bool, int] = {}
    return [place if cut.spec.columns else of_all.setdefault(cut.spec.people, place) for place, cut in enumerate(cuts)]


def _of_person(number: PersonNumber, name: int, place: int) -> pl.Expr:
    """Return a person's number from the numbers of their groups, which are at a place."""
    of_groups = pl.col(f"code {place}")
    counted = of_groups.clip(upper_bound=number.most)
    match number.what:
        case "largest code" | "largest total":
            found = of_groups.max()
        case "smallest code" | "smallest total":
            found = of_groups.min()
        case "groups":
            found = (of_groups > 0).sum().cast(pl.Int64)
        case "rows":
            found = counted.sum()
        case "squares":
            found = (counted * counted).sum()
        case "most rows":
            found = counted.max()
    is_there = pl.lit(value=True) if number.is_end else of_groups.sum() > 0
    return pl.when(is_there).then(found).alias(number.name(name))


def one_row_per_person(rows: pl.LazyFrame, per_person: PerPerson, cuts: Sequence[Cut] = ()) -> pl.LazyFrame:
    """Return one row for each person: see `Engine`, duty 9. `cuts` are `per_person.cut`."""
    if per_person.by is not None:
        return keys_of_each(rows, per_person, per_person.by)
    unit, keys, schema = per_person.privacy_unit, per_person.keys, rows.collect_schema()
    rows = rows.filter(is_a_person(unit, schema))
    key_columns = own_keys(rows, keys)
    names = [expr.meta.output_name() for expr in key_columns]
    places = _places(cuts) if per_person.numbers else range(len(cuts))
    columns = [column for number in sorted({*places}) for column in cuts[number].columns(number)]
    # `with_columns` first, so that a constant has as many rows as the frame.
    rows = rows.with_columns(person_of(unit, schema).alias("person"), *key_columns, *columns)
    rows = rows.select("person", *names, *(column.meta.output_name() for column in columns))
    if keys is not None:
        rows = with_groups(rows, keys)
    by = ["person"] if keys is None else ["person", "group"]
    for number, cut in enumerate(cuts):
        if cut.clips and cut.spec.binning.size > 1:
            rows = rows.with_columns(pl.col(f"weight {number}").sum().over(*by, f"code {number}"))
    if per_person.numbers:
        numbers = per_person.numbers
        by_group = rows.group_by(by).agg(_of_groups(numbers[place], place) for place in sorted({*places}))
        people = by_group.group_by("person").agg(
            _of_person(one, number, place) for number, (one, place) in enumerate(zip(numbers, places, strict=True))
        )
        return people.drop("person")
    by_group = rows.group_by(by).agg(expr for number, cut in enumerate(cuts) for expr in cut.of_groups(number))
    people = by_group.group_by("person").agg(
        pl.max_horizontal(cut.dropped(number) for number, cut in enumerate(cuts)).alias(ROWS_CUT),
        pl.any_horizontal(cut.of_people(number) for number, cut in enumerate(cuts)).alias("cut"),
    )
    return people.filter("cut").select(ROWS_CUT)
