"""Private rows as Polars plans: whose a row is, its key, parts of the people, and how plans are run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from operator import and_, xor
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import polars as pl

from dp_polars._base import column_types
from dp_polars._base.numbers import given, one_of
from dp_polars._base.process import at, is_terminal
from dp_polars._steps.whole_numbers import of_one_kind

if TYPE_CHECKING:
    from polars._typing import EngineType

    from dp_polars._base.column_types import PrivacyUnit


# On Polars 1, what stands in a plan twice becomes a column of one chunk. Where rows lie in several chunks, a plan then
# fails or not by one row.
_TWINS = not pl.__version__.startswith("1.")
ANY_FILTER = pl.QueryOptFlags(comm_subexpr_elim=_TWINS)
# In a scan, a filter leaves out row groups by what it gives on their least and largest values: x * 2 > 0 on a group
# with a value so large that it overflows is false, and the group's other rows are gone. NaN may be in neither. Where
# Polars takes a filtered scan that stands in a plan twice for one, it moves the filter all the same. Polars 1 needs
# that: otherwise it loses columns of a scan that is joined with itself.
NO_FILTER_IN_SCANS = pl.QueryOptFlags(comm_subexpr_elim=_TWINS, predicate_pushdown=False, comm_subplan_elim=not _TWINS)


# Public values with which a column is compared one by one, which is then faster than a table of them.
FEW = 8

_Engine: TypeAlias = Literal["auto", "in-memory", "streaming"]
_ENGINES: tuple[_Engine, ...] = get_args(_Engine)
# What Polars takes for "auto" where its settings name no engine. These may name a GPU, or another machine.
_AUTO: EngineType = "in-memory" if pl.__version__.startswith("1.") else "streaming"


def by_name(engine: EngineType) -> EngineType:
    """Return Polars' engine by its name, so that no setting of the process chooses it."""
    return _AUTO if engine == "auto" else engine


def on_cpu(engine: object) -> _Engine:
    """Return the name of an engine on which the steps of private frames were tried."""
    if isinstance(engine, pl.GPUEngine) or (isinstance(engine, str) and engine == "gpu"):
        msg = (
            f"engine must be one of {list(_ENGINES)}, got {given(engine)}: whether a step looks at other rows was "
            "tried on the CPU's engines alone.\n\nHint: leave it out."
        )
        raise ValueError(msg)
    return one_of("engine", engine, _ENGINES)


def is_a_person(unit: PrivacyUnit, schema: pl.Schema, of: Callable[[str], pl.Expr] = pl.col) -> pl.Expr:
    """Return whether a row says whose it is: no column of the unit is null or NaN. `of` gives them by name."""
    return reduce(and_, (column_types.has_value(of(name), schema[name]) for name in unit))


def person_of(unit: PrivacyUnit, schema: pl.Schema) -> pl.Expr:
    """Return what people are grouped by: the column itself, or of several a struct that is equal where all are."""
    if len(unit) == 1:
        return pl.col(unit[0])
    return pl.struct(compared(name, schema) for name in unit)


def is_somebody(unit: PrivacyUnit, schema: pl.Schema) -> pl.Expr:
    """Return whether "person", which is `person_of` these columns, is somebody."""
    person = pl.col("person")
    return is_a_person(unit, schema, (lambda _: person) if len(unit) == 1 else person.struct.field)


def compared(name: str, schema: pl.Schema) -> pl.Expr:
    """Return a column whose equal values are the same to the bit."""
    if isinstance(schema[name], (pl.Categorical, pl.Enum)):
        # The text, because the number of a category may be another one in the next scan.
        return pl.col(name).cast(pl.String)
    return of_one_kind(name, schema[name]) if schema[name].is_float() else pl.col(name)


def in_parts(rows: pl.LazyFrame, unit: PrivacyUnit, partitions: int) -> Iterator[pl.LazyFrame]:
    """Yield the rows in parts, all rows of a person in one of them. A terminal shows at which one the release is."""
    if partitions == 1:
        yield rows
        return
    schema = rows.collect_schema()
    hashes = [compared(name, schema).hash(int.from_bytes(os.urandom(8), "little")) for name in unit]
    part = reduce(xor, hashes) % partitions
    for number in range(partitions):
        if is_terminal():  # what a notebook shows is stored with it, and how many parts there are tells of the rows
            at(number + 2, partitions + 1)  # they were counted first
        yield rows.filter(part == number)


def own_keys(rows: pl.LazyFrame, keys: pl.DataFrame | None) -> list[pl.Expr]:
    """Return the columns that rows are grouped by, as they are released."""
    names, schema = [] if keys is None else keys.columns, rows.collect_schema()
    return [pl.col(name).cast(column_types.released(schema[name])).alias(f"key {i}") for i, name in enumerate(names)]


def is_equal_by_value(dtype: pl.DataType) -> bool:
    """Return whether `==` on a column and literals of this type finds what is equal to us."""
    is_whole = dtype.is_integer() and not column_types.is_wide(dtype)
    return is_whole or dtype in (pl.Date, pl.String, pl.Boolean)


def with_groups(rows: pl.LazyFrame, keys: pl.DataFrame) -> pl.LazyFrame:
    """Return the rows of listed keys, with the number of their `group` in place of the columns of `own_keys`."""
    names = [f"key {i}" for i in range(keys.width)]
    if keys.height > FEW or not all(map(is_equal_by_value, keys.dtypes)):
        return rows.join(listed(keys), on=names).drop(names)
    # Comparing with few keys is faster than a join, which gathers every column.
    group = pl.lit(None, pl.UInt8)
    for number, key in enumerate(keys.iter_rows()):
        is_key = (pl.col(name) == pl.lit(value, of) for name, value, of in zip(names, key, keys.dtypes, strict=True))
        group = pl.when(reduce(and_, is_key)).then(pl.lit(number, pl.UInt8)).otherwise(group)
    return rows.with_columns(group.alias("group")).drop(names).filter(pl.col("group").is_not_null())


def listed(keys: pl.DataFrame) -> pl.LazyFrame:
    """Return the public keys, and the number of each group."""
    return (
        keys.lazy()
        .select(pl.col(name).alias(f"key {i}") for i, name in enumerate(keys.columns))
        .with_row_index("group")
    )


def added_up(parts: Sequence[pl.DataFrame], names: Sequence[str], engine: EngineType) -> pl.DataFrame:
    """Return each combination of these columns once, with the sums of all others over the parts."""
    together = pl.concat(parts).lazy().group_by(names).agg(pl.exclude(names).sum())
    return together.collect(engine=by_name(engine))


def collected(plans: Sequence[pl.LazyFrame], engine: EngineType) -> list[pl.DataFrame]:
    """Return what plans on private rows give. Each plan reads its rows by itself."""
    return pl.collect_all(plans, engine=by_name(engine), optimizations=NO_FILTER_IN_SCANS)
