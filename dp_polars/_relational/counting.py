"""From rows to a histogram, as one SELECT: the duties of an engine (`_engines/contract.py`).

Which of a person's rows count is decided by a hash of the person, of what the rows say, and of a secret that is drawn
for each release. The bounds hold for every secret and every hash: only how evenly rows are chosen rests on them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dp_polars._codes.codings import CategoryCoding
from dp_polars._mechanisms.noise import LARGEST_VALUE
from dp_polars._relational.arithmetic import code, integer, is_evidence, weight
from dp_polars._relational.dialects import cast, constant, ibis
from dp_polars._relational.tables import check_public, comparable, public_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import polars as pl

    from dp_polars._engines.contract import Tally, Work
    from dp_polars._relational.dialects import Dialect, Table, Value


def histogram(table: Table, work: Work, alike: Sequence[Tally], secret: int, dialect: Dialect) -> Table:
    """Return `group`, `code`, `count` (rows or people), `weight0`, `weight1`, …, all of them integers of 64 bits.

    The tallies differ in their weights alone: they keep the same rows, so one SELECT answers all of them. A pair of a
    group and a code may come in several rows, which add up. Sums of weights are exact and then clamped to
    ±LARGEST_VALUE, which is what their noise is added to.

    Raises
    ------
    TypeError, ValueError
        If the engine is not known to give the codes or weights of every row.
    """
    tally = alike[0]
    rows = _evidence(table, work, alike, dialect)
    weights = {
        f"weight{i}": alike_tally.weighing.largest
        for i, alike_tally in enumerate(alike)
        if alike_tally.weighing is not None
    }
    places = [name for name in rows.columns if name in ("code", "value")]
    keys = [name for name in rows.columns if name.startswith("k")]
    if tally.limits.everything:
        # The native query itself first; everything after it sees only its result.
        rows = _counted(rows, [*keys, *places], weights, dialect, people=tally.people)
        return _looked_up(rows, table, work, tally, dialect)
    rows = _looked_up(rows, table, work, tally, dialect)
    rows = _bounded(rows, tally, weights, secret, dialect)
    return _counted(rows, ["group", "code"], weights, dialect)


def _evidence(table: Table, work: Work, alike: Sequence[Tally], dialect: Dialect) -> Table:
    """Return rows with a person and a value as `person`, `k0`, `k1`, …, `code` or `value`, and weights.

    Nothing of this raises for a value, so it does not matter when the engine leaves rows out.
    """
    tally = alike[0]
    chosen = {}
    needed = []
    if work.privacy_unit is not None:
        unit = table[work.privacy_unit]
        needed.append(is_evidence(unit, dialect))
        if tally.by_person:
            chosen["person"] = person_of(unit, dialect)
    if work.keys is not None:
        for i, name in enumerate(work.keys.columns):
            chosen[f"k{i}"] = comparable(table[name], table.schema()[name], dialect)
    columns = [table[column.meta.root_names()[0]] for column in tally.columns]
    needed += [is_evidence(column, dialect) for column in columns[:1]]  # a row without a weight has the weight 0
    found = code(tally.coding, columns[0] if columns else None, tally.types[0] if columns else None, dialect)
    if found is not None:
        chosen["code"] = found
    elif isinstance(tally.coding, CategoryCoding) and columns:
        chosen["value"] = comparable(columns[0], columns[0].type(), dialect)
    else:
        msg = "candidates must be a list or a grid."
        raise TypeError(msg)
    for number, alike_tally in enumerate(alike):
        if alike_tally.weighing is not None:
            chosen[f"weight{number}"] = weight(alike_tally.weighing, columns, alike_tally.types, dialect)
    return (table.filter(needed) if needed else table).select(**chosen)


def person_of(unit: Value, dialect: Dialect) -> Value:
    """Return the value of a privacy unit, so that equal people are the same ones, in hashes too."""
    kind = unit.type()
    if kind.is_string():
        return dialect.binary(unit)
    if kind.is_floating():  # -0.0 is 0.0
        zero = constant("0", kind)
        return ibis.ifelse(unit == zero, zero, unit)
    return unit


def _looked_up(rows: Table, table: Table, work: Work, tally: Tally, dialect: Dialect) -> Table:
    """Put the number of the group in the place of its keys, and the candidate's code in the place of a value.

    Rows of other keys, and of values that are no candidates, are left out.
    """
    rows = rows.mutate(group=integer(0)) if work.keys is None else in_groups(rows, table, work.keys, dialect)
    if isinstance(tally.coding, CategoryCoding):
        values = tally.coding.values
        check_public(values)
        kind = table.schema()[tally.columns[0].meta.root_names()[0]]
        listed = public_table([values], [kind], table.get_backend(), dialect)
        rows = rows.inner_join(listed, [rows["value"] == listed["p0"]])
        rows = rows.rename(code="number").drop("value", "p0")
    return rows


def in_groups(rows: Table, table: Table, keys: pl.DataFrame, dialect: Dialect) -> Table:
    """Put the number of a public group, `group`, in the place of its keys; rows of other keys are left out."""
    for key in keys.get_columns():
        check_public(key)
    kinds = [table.schema()[name] for name in keys.columns]
    listed = public_table(keys.get_columns(), kinds, table.get_backend(), dialect)
    names, public_names = [f"k{i}" for i in range(keys.width)], [f"p{i}" for i in range(keys.width)]
    rows = rows.inner_join(listed, [rows[one] == listed[other] for one, other in zip(names, public_names, strict=True)])
    return rows.rename(group="number").drop(*names, *public_names)


def _counted(
    rows: Table, by: Sequence[str], weights: Mapping[str, int], dialect: Dialect, *, people: bool = False
) -> Table:
    """Return each of the groups that there are, with the number of its rows, or people, and the sums of weights."""
    if people and weights:
        rows, people = _together(rows, by, weights, dialect), False
    count = cast(rows["person"].nunique() if people else rows.count(), "int64")
    return rows.group_by(list(by)).aggregate(count=count, **{name: _sum(rows[name], dialect) for name in weights})


def _together(rows: Table, by: Sequence[str], weights: Mapping[str, int], dialect: Dialect) -> Table:
    """Return one row for each person in each of the groups: its weights are sums, but at most the largest ones."""
    return rows.group_by(["person", *by]).aggregate(
        **{name: ibis.least(_sum(rows[name], dialect), integer(largest)) for name, largest in weights.items()}
    )


def _sum(weight: Value, dialect: Dialect) -> Value:
    """Return an exact sum, clamped to ±LARGEST_VALUE."""
    return dialect.total(weight, LARGEST_VALUE)


def few(rows: Table, owner: Sequence[str], by: Sequence[str], most: int | None, secret: int, dialect: Dialect) -> Table:
    """Keep the first `most` rows of each owner in a random order."""
    if most is None:
        return rows
    numbered = _ranked(rows, owner, by, secret, dialect)
    return numbered.filter(numbered["rank"] < most).drop("rank")


def _ranked(rows: Table, owner: Sequence[str], by: Sequence[str], secret: int, dialect: Dialect) -> Table:
    """Give each owner's rows numbers in a random order; what ties their hashes, `by` unties."""
    place = dialect.order(rows["person"], [rows[name] for name in by], secret)
    return rows.mutate(rank=ibis.row_number().over(group_by=list(owner), order_by=[place, *by]))


def _bounded(rows: Table, tally: Tally, weights: Mapping[str, int], secret: int, dialect: Dialect) -> Table:
    """Keep random rows of each person, within all bounds; where people count, a person's rows of a code are one."""
    limits, says = tally.limits, ["group", "code"]

    def first(rows: Table, owner: Sequence[str], by: Sequence[str], most: int | None, stage: int) -> Table:
        return few(rows, owner, by, most, secret ^ stage, dialect)

    if tally.people and dialect.collects and limits.groups is not None and not weights:
        groups = rows.group_by("person", "group").aggregate(codes=rows["code"].collect(distinct=True))
        groups = first(groups, ["person"], ["group"], limits.groups, 0)
        rows = groups.select("person", "group", code=groups["codes"].unnest())
    else:
        if tally.people:
            rows = _together(rows, says, weights, dialect) if weights else rows.select("person", *says).distinct()
        else:
            says += weights
        if limits.groups is not None:
            # Rank groups only for people who exceed the bound; most don't.
            groups = rows.select("person", "group").distinct()
            group_counts = groups.group_by("person").aggregate(groups=groups.count())
            groups = groups.semi_join(group_counts.filter(group_counts["groups"] > limits.groups), "person")
            groups = _ranked(groups, ["person"], ["group"], secret, dialect)
            rows = rows.anti_join(groups.filter(groups["rank"] >= limits.groups), ["person", "group"])
    if not tally.people and (limits.rows, limits.rows_per_group) != (None, None):
        # Equal rows of a person are told apart by a number. Which gets which does not matter: they say the same.
        rows = rows.mutate(copy=ibis.row_number().over(group_by=["person", *says]))
        says.append("copy")
    rows = first(rows, ["person", "group"], says, limits.rows_per_group, 1)
    return first(rows, ["person"], says, limits.rows, 2)
