"""Count people in part, as SELECTs: no row is dropped, but people beyond the limits get smaller weights.

Rows are first grouped by person and group, so everything else has few rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dp_polars._bins.binning import OneCode
from dp_polars._engines.sql.arithmetic import ABSENT, floating, integer, of_sums, total_of, within
from dp_polars._engines.sql.dialects import cast, ibis
from dp_polars._engines.sql.rows import any_of, named, person_in, weight_in
from dp_polars._mechanisms.person_weights import UNIT, UNIT_BITS, PersonWeight, part_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from dp_polars._engines.sql.dialects import Common, Dialect, Table, Value
    from dp_polars._engines.sql.rows import Rows
    from dp_polars._release.contract import HistogramSpec


@dataclass(frozen=True)
class Columns:
    """Arithmetic of an engine's columns: see `_mechanisms.person_weights.Arithmetic`."""

    dialect: Dialect

    def whole(self, number: int) -> Value:
        return integer(number)

    def choose(self, condition: Value, yes: Value, no: Value) -> Value:
        return ibis.ifelse(condition, yes, no)

    def quotient(self, number: Value, by: Value) -> Value:
        return self.dialect.divide(number, by)

    def scaled_root(self, unit: float, limit: float, by: Value) -> Value:
        root = (floating(limit) / cast(by, "float64")).sqrt()
        return cast((floating(unit) * root).floor(), "int64")


def weighed(
    rows: Rows,
    by: Sequence[str],
    put_in_groups: Callable[[Table], Table],
    specs: Mapping[int, HistogramSpec],
    groups: int,
    dialect: Dialect,
    common: Common,
    pairs: Table | None = None,
) -> Iterator[tuple[Table, list[int]]]:
    """Yield weighted sums by `group` and `code`, with the positions of their specs.

    Parameters
    ----------
    by
        The columns that determine a row's group. `put_in_groups` replaces them by `group`.
    groups
        The number of groups.
    pairs
        The result of `Weighing.of_people` for a single code, as a named table, if it is known already.
    """
    for weighing in weighings(rows, specs, dialect, common):
        is_known = pairs is not None and weighing.code is None
        found = pairs if is_known else put_in_groups(weighing.of_people(by))
        cells = weighing.cells(found, is_named=is_known, is_one_group=groups == 1)
        code = cells.mutate(code=integer(0)) if weighing.code is None else cells.rename(code=weighing.code)
        yield code, [*weighing.specs]


def weighings(rows: Rows, specs: Mapping[int, HistogramSpec], dialect: Dialect, common: Common) -> list[Weighing]:
    """Return the specs by the columns of their codes, those with a single code first."""
    codes: dict[str | None, list[int]] = {}
    for number, spec in specs.items():
        codes.setdefault(None if isinstance(spec.binning, OneCode) else rows.codes[number], []).append(number)
    together = sorted(codes.items(), key=lambda one: one[0] is not None)
    of = Columns(dialect)
    return [
        Weighing(rows, code, {number: specs[number] for number in numbers}, of, common) for code, numbers in together
    ]


@dataclass(frozen=True)
class _Kind:
    """The inputs of a person's weight: the code of contributing rows, whether people count, the limits."""

    code: str | None
    people: bool
    weight: PersonWeight | None  # None: everybody counts in full
    is_everywhere: bool  # whether every person in a group has contributing rows there
    is_counted: bool  # whether their number matters

    @property
    def rows(self) -> str:
        """The column with a person's number of contributing rows, unless it `is_known`."""
        return f"rows_of_{self.code}"

    @property
    def is_known(self) -> bool:
        """Whether it is enough that a person has contributing rows, and everybody has."""
        return self.is_everywhere and not self.is_counted

    def is_there(self, found: Table) -> Value:
        """Return whether a person has contributing rows."""
        return ibis.literal(value=True) if self.is_everywhere else found[self.rows] > integer(0)

    def number(self, found: Table) -> Value:
        """Return how many rows of a person would count without limits: one per group and code if people count."""
        if not self.people:
            return found[self.rows]
        return integer(1) if self.is_everywhere else ibis.ifelse(self.is_there(found), integer(1), integer(0))

    @property
    def limited(self) -> PersonWeight | None:
        """The weight, if it has a limit."""
        return None if self.weight is None or self.weight.limit is None else self.weight

    def norm(self, number: Value, of: Columns) -> Value | None:
        """Return a group's part of a person's norm, if there is a limit."""
        is_one = self.is_everywhere and self.limited is not None and self.limited.cap == 1
        return self.limited and self.limited.norm(integer(1) if is_one else number, of)


@dataclass(frozen=True)
class Weighing:
    """Specs with a single code (`code` is None), or with the codes of one column."""

    rows: Rows
    code: str | None
    specs: Mapping[int, HistogramSpec]
    of: Columns
    common: Common

    def _kind(self, number: int) -> _Kind:
        spec, code = self.specs[number], self.rows.codes[number]
        is_everywhere = code == self.code or code not in self.rows.partial
        counted = {self.rows.codes[one] for one, other in self.specs.items() if other.row_weight or not other.people}
        return _Kind(code, spec.people, spec.weight, is_everywhere, code in counted)

    @property
    def codes(self) -> list[str | None]:
        """The code of the rows that contribute to each spec."""
        return [self.rows.codes[number] for number in self.specs]

    def of_people(self, by: Sequence[str]) -> Table:
        """Return a row for each person, group and code, with its number of rows and the sums of their weights."""
        table = self.rows.read(self.rows.table)
        if self.code is not None:
            table = table.filter(self.rows.has(table, self.code))
        return table.group_by([*person_in(table), *by, *named(self.code)]).aggregate(**self.sums(table))

    def sums(self, table: Table, copies: Value | None = None, known: Collection[str] = ()) -> dict[str, Value]:
        """Return these numbers and sums as aggregates over rows with a number of copies (None: one).

        Columns in `known` are left out: see `presence`.
        """
        found: dict[str, Value] = {}
        for number, spec in self.specs.items():
            code, weigh = self.rows.codes[number], weight_in(spec, self.rows.weights[number], self.of.dialect)
            counts = None if code in (None, self.code) else self.rows.has(table, code)
            some = cast(table.count(where=counts), "int64") if copies is None else total_of(_or_0(copies, counts))
            kind = self._kind(number)
            if not kind.is_known and kind.rows not in known:
                found[kind.rows] = some
            if weigh is not None:
                weight = weigh(table) if copies is None else weigh(table) * cast(copies, "int64")
                found[f"total{number}"] = total_of(_or_0(weight, counts), of_sums(spec, some))
        return found

    def presence(self) -> dict[str, str | None]:
        """Return the columns for which it is enough to know whether rows exist, with the codes of these rows."""
        kinds = map(self._kind, self.specs)
        return {kind.rows: kind.code for kind in kinds if not kind.is_counted and not kind.is_known}

    def cells(self, found: Table, *, is_named: bool, is_one_group: bool) -> Table:
        """Return the weighted sums in each group and code, as `number0` and so on, from the result of `of_people`."""
        kinds = {kind: i for i, kind in enumerate(dict.fromkeys(map(self._kind, self.specs)))}
        is_limited = any(kind.limited for kind in kinds) and not is_one_group
        if not is_named and (is_limited or self.code is not None):
            found = self.common.once(found)  # before numbers, so that constants stay constants
        found = found.mutate(**{f"n{i}": kind.number(found) for kind, i in kinds.items()})
        if self.code is None:
            found = self._with_weights(found, kinds, is_limited=is_limited)
        else:  # each code of a person in a group has the weight of one row
            pair = [*person_in(found), "group"]
            pairs = found.group_by(pair).aggregate(**{f"n{i}": total_of(found[f"n{i}"]) for i in kinds.values()})
            pairs = self._with_weights(self.common.once(pairs) if is_limited else pairs, kinds, is_limited=is_limited)
            less = pairs.filter(any_of(pairs[f"weight{i}"] < integer(UNIT) for i in kinds.values()))
            weights = {f"weight{i}": integer(UNIT) for i in kinds.values()}
            found = _with_more(found, less.select(*pair, *weights), pair, weights)
        sums = {}
        for place, number in enumerate(self.specs):
            kind = self._kind(number)
            counted, weight = (found[f"{name}{kinds[kind]}"] for name in ("n", "weight"))
            sums[f"number{place}"] = parts = total_of(self._part(found, number, counted, weight))
            if not kind.is_everywhere:
                some = found.count(where=kind.is_there(found))
                sums[f"number{place}"] = ibis.ifelse(some > 0, parts, integer(ABSENT))
        return found.group_by(["group", *named(self.code)]).aggregate(**sums)

    def _with_weights(self, pairs: Table, kinds: Mapping[_Kind, int], *, is_limited: bool) -> Table:
        """Add the weight of each of a person's rows in a group, in parts: `weight0` and so on, of `n0` and so on."""
        weights = {i: kind.weight for kind, i in kinds.items() if kind.weight is not None}
        found = {i: kind.norm(pairs[f"n{i}"], self.of) for kind, i in kinds.items()}
        norms = {i: norm for i, norm in found.items() if norm is not None}
        if is_limited:
            person, parts = person_in(pairs), pairs.mutate(**{f"norm{i}": norm for i, norm in norms.items()})
            sums = {f"norm{i}": total_of(parts[f"norm{i}"]) for i in norms}
            people = parts.group_by(person).aggregate(**sums)
            beyond = people.filter(any_of(weights[i].is_beyond(people[f"norm{i}"], self.of) for i in norms))
            # Only people beyond a limit are joined: others need no second look.
            pairs = _with_more(pairs, beyond, person, dict.fromkeys(sums, integer(0)))
            norms = {i: pairs[f"norm{i}"] for i in norms}
        of_rows = {f"weight{i}": integer(UNIT) for i in kinds.values()}
        of_rows |= {f"weight{i}": one.of_rows(norms.get(i), pairs[f"n{i}"], self.of) for i, one in weights.items()}
        return pairs.mutate(**of_rows)

    def _part(self, found: Table, number: int, counted: Value, weight: Value) -> Value:
        """Return the number that a person adds to a group and code, in parts; `counted` without limits."""
        spec, kind, total = self.specs[number], self._kind(number), counted
        if f"total{number}" in found.columns:
            total = found[f"total{number}"]
            if spec.people:
                clipped = within(total, *spec.clamping.of_person)
                total = ibis.ifelse(kind.is_there(found), clipped, integer(0))
        if spec.bits == UNIT_BITS:  # `part_of` is the product: a row adds one at most, so it is as small
            return total * weight
        # Most people count in full.
        return ibis.ifelse(
            weight == integer(UNIT), total * integer(2**spec.bits), part_of(total, weight, spec.bits, self.of)
        )


def _or_0(number: Value, where: Value | None) -> Value:
    return number if where is None else ibis.ifelse(where, number, integer(0))


def _with_more(table: Table, some: Table, by: Sequence[str], columns: Mapping[str, Value]) -> Table:
    """Add columns from a table of some of the rows; other rows get the given values."""
    renamed = {name: f"own_{name}" for name in by}
    joined = table.left_join(some.rename({new: name for name, new in renamed.items()}), [*renamed.items()])
    more = {name: ibis.coalesce(joined[name], otherwise) for name, otherwise in columns.items()}
    return joined.select(*table.columns, **more)
