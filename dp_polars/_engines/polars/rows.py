"""Rows of people in Polars: their person, their group, and parts of the people."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from operator import and_, xor
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from dp_polars._base import column_types
from dp_polars._base.column_types import PrivacyUnit
from dp_polars._base.numbers import owners, system_rng
from dp_polars._base.progress import at, is_terminal
from dp_polars._engines.polars.bounding import random_few
from dp_polars._sources.running import by_name, collected
from dp_polars._sources.views import kind_of, visited
from dp_polars._steps import nodes
from dp_polars._steps.whole_numbers import of_one_kind

if TYPE_CHECKING:
    from polars._typing import EngineType


_COMPARISONS = frozenset({"==", "<", "<=", ">", ">="})


def may_filter_scans(rows: pl.LazyFrame) -> bool:
    """Return whether each filter of a plan is a plain comparison right above a scan.

    Polars may move only such filters into a scan. It would rewrite other filters on the way.
    So a single other filter keeps all filters where they are.
    """
    plan = visited(rows)
    return _is_safe(plan, plan.get_node())


def _is_safe(plan: Any, number: int, *, filtered: bool = False) -> bool:  # noqa: ANN401
    """Return the same for the plan below a node; `filtered`: the node is right below a filter."""
    plan.set_node(number)
    kind = kind_of(plan)
    if kind is None:
        return False
    inputs, exprs = plan.get_inputs(), plan.get_exprs()
    is_parquet = kind == "Scan" and plan.view_current_node().scan_type[0] == "parquet"
    if filtered and kind != "Filter" and not is_parquet:
        return False
    if kind == "Filter":
        plan.set_node(inputs[0])  # the expression uses its columns
        if not all(_is_plain(plan, expr.node) for expr in exprs):
            return False
    return all(_is_safe(plan, value, filtered=kind == "Filter") for value in inputs)


def _is_plain(plan: Any, number: int) -> bool:  # noqa: ANN401
    """Return whether an expression consists of comparisons of columns with constants of their types."""
    try:
        view = plan.view_expression(number)
    except NotImplementedError:
        return False
    if type(view).__name__ != "BinaryExpr":
        return False
    operator = nodes.operator_name(str(view.op))
    if operator == "&":
        return _is_plain(plan, view.left) and _is_plain(plan, view.right)
    kinds = {type(plan.view_expression(side)).__name__ for side in (view.left, view.right)}
    types = [plan.get_dtype(side) for side in (view.left, view.right)]
    is_plain = types[0] == types[1] and types[0] != pl.Boolean and is_equal_by_value(types[0])
    return operator in _COMPARISONS and kinds == {"Column", "Literal"} and is_plain


# Up to this many public values, comparing one by one is faster than a table.
FEW = 8


def is_a_person(unit: PrivacyUnit, schema: pl.Schema, of: Callable[[str], pl.Expr] = pl.col) -> pl.Expr:
    """Return whether a row has a person: no column of the unit is null or NaN. `of` returns columns by name."""
    return reduce(and_, (column_types.has_value(of(name), schema[name]) for name in unit))


def person_of(unit: PrivacyUnit, schema: pl.Schema) -> pl.Expr:
    """Return the person of each row: the column itself, or a struct of several columns."""
    if len(unit) == 1:
        return pl.col(unit[0])
    return pl.struct(compared(name, schema) for name in unit)


def is_somebody(unit: PrivacyUnit, schema: pl.Schema) -> pl.Expr:
    person = pl.col("person")
    return is_a_person(unit, schema, (lambda _: person) if len(unit) == 1 else person.struct.field)


def compared(name: str, schema: pl.Schema) -> pl.Expr:
    """Return a column in which equal values have equal bits."""
    if isinstance(schema[name], (pl.Categorical, pl.Enum)):
        # As text, because a category may have another number in the next scan.
        return pl.col(name).cast(pl.String)
    return of_one_kind(name, schema[name]) if schema[name].is_float() else pl.col(name)


def in_parts(rows: pl.LazyFrame, unit: PrivacyUnit, partitions: int) -> Iterator[pl.LazyFrame]:
    """Yield the rows in parts with whole people. A terminal shows the progress."""
    if partitions == 1:
        yield rows
        return
    schema = rows.collect_schema()
    hashes = [compared(name, schema).hash(int.from_bytes(os.urandom(8), "little")) for name in unit]
    part = reduce(xor, hashes) % partitions
    for number in range(partitions):
        if is_terminal():  # not in notebooks: they store the output, and the number of parts depends on the rows
            at(number + 2, partitions + 1)  # the first step counted the rows
        yield rows.filter(part == number)


def own_keys(rows: pl.LazyFrame, keys: pl.DataFrame | None) -> list[pl.Expr]:
    names, schema = [] if keys is None else keys.columns, rows.collect_schema()
    return [pl.col(name).cast(column_types.released(schema[name])).alias(f"key {i}") for i, name in enumerate(names)]


def in_kept_parts(
    rows: pl.LazyFrame, keys: pl.DataFrame, most: int, unit: PrivacyUnit | None, engine: EngineType
) -> pl.LazyFrame:
    """Return rows of listed parts, and only those in `most` random parts of each person: see `Engine.keep_parts`.

    To choose them, each person's parts are read if there are more than `most`.
    """
    schema = rows.collect_schema()
    people = [compared(name, schema).alias(f"person {place}") for place, name in enumerate(unit or ())]
    places = [f"key {place}" for place in range(keys.width)]
    public = keys.select(pl.col(name).alias(place) for name, place in zip(keys.columns, places, strict=True))
    of_row = [expr.meta.undo_aliases() for expr in (*people, *own_keys(rows, keys))]
    if unit is None or most >= keys.height:
        return rows.join(public.lazy(), left_on=of_row[len(people) :], right_on=places, how="semi")
    names = [person.meta.output_name() for person in people]
    of_people = rows.filter(is_a_person(unit, schema)).with_columns(*people, *own_keys(rows, keys))
    pairs = with_groups(of_people.select(*names, *places), keys).unique().group_by(names).agg(pl.col("group").sort())
    (lists,) = collected([pairs], engine)
    lengths = lists["group"].list.len().to_numpy().astype(np.int64)
    number = lists["group"].explode(empty_as_null=False)
    stays = pl.Series(random_few(lengths, most, system_rng()))
    pairs_of_people = lists.select(names)[owners(lengths)].get_columns()
    chosen = pl.DataFrame([*pairs_of_people, *public.select(pl.all().gather(number))]).filter(stays)
    return rows.join(chosen.lazy(), left_on=of_row, right_on=[*names, *places], how="semi")


def is_equal_by_value(dtype: pl.DataType) -> bool:
    """Return whether `==` of a column and literals of this type finds the values that we treat as equal."""
    is_whole = dtype.is_integer() and not column_types.is_wide(dtype)
    return is_whole or dtype in (pl.Date, pl.String, pl.Boolean)


def with_groups(rows: pl.LazyFrame, keys: pl.DataFrame) -> pl.LazyFrame:
    """Return rows with listed keys, and their `group` number in place of the columns of `own_keys`."""
    names = [f"key {i}" for i in range(keys.width)]
    if keys.height > FEW or not all(map(is_equal_by_value, keys.dtypes)):
        return rows.join(listed(keys), on=names).drop(names)
    # With few keys, comparing is faster than a join, which gathers every column.
    group = pl.lit(None, pl.UInt8)
    for number, key in enumerate(keys.iter_rows()):
        is_key = (pl.col(name) == pl.lit(value, of) for name, value, of in zip(names, key, keys.dtypes, strict=True))
        group = pl.when(reduce(and_, is_key)).then(pl.lit(number, pl.UInt8)).otherwise(group)
    return rows.with_columns(group.alias("group")).drop(names).filter(pl.col("group").is_not_null())


def listed(keys: pl.DataFrame) -> pl.LazyFrame:
    numbered = (pl.col(name).alias(f"key {i}") for i, name in enumerate(keys.columns))
    return keys.lazy().select(numbered).with_row_index("group")


def added_up(parts: Sequence[pl.DataFrame], names: Sequence[str], engine: EngineType) -> pl.DataFrame:
    """Add up parts: each combination of these columns once, with sums of all other columns."""
    together = pl.concat(parts).lazy().group_by(names).agg(pl.exclude(names).sum())
    return together.collect(engine=by_name(engine))
