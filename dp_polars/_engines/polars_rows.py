"""Private rows as Polars plans: whose a row is, its key, parts of the people, and how plans are run."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import polars as pl

from dp_polars._base import column_types
from dp_polars._base.progress import steps

if TYPE_CHECKING:
    from polars._typing import EngineType


# On Polars 1, what stands in a plan twice becomes a column of one chunk. Where rows lie in several chunks, a plan then
# fails or not by one row.
_TWINS = not pl.__version__.startswith("1.")
ANY_FILTER = pl.QueryOptFlags(comm_subexpr_elim=_TWINS)
# In a scan, a filter leaves out row groups by what it gives on their least and largest values: x * 2 > 0 on a group
# with a value so large that it overflows is false, and the group's other rows are gone. NaN may be in neither.
NO_FILTER_IN_SCANS = pl.QueryOptFlags(comm_subexpr_elim=_TWINS, predicate_pushdown=False)


# What Polars takes for "auto" where its settings name no engine. These may name a GPU, or another machine.
_AUTO: EngineType = "in-memory" if pl.__version__.startswith("1.") else "streaming"


def by_name(engine: EngineType) -> EngineType:
    """Return Polars' engine by its name, so that no setting of the process chooses it."""
    return _AUTO if engine == "auto" else engine


def is_a_person(privacy_unit: str, dtype: pl.DataType) -> pl.Expr:
    """Return whether a row says whose it is: neither null nor NaN."""
    return column_types.has_value(pl.col(privacy_unit), dtype)


def in_parts(rows: pl.LazyFrame, privacy_unit: str, partitions: int) -> Iterator[pl.LazyFrame]:
    """Yield the rows in parts, all rows of a person in one of them; each is a step of the release."""
    if partitions == 1:
        yield rows
        return
    unit = pl.col(privacy_unit)
    if isinstance(rows.collect_schema()[privacy_unit], (pl.Categorical, pl.Enum)):
        # The text, because the number of a category may be another one in the next scan.
        unit = unit.cast(pl.String)
    part = unit.hash(int.from_bytes(os.urandom(8), "little")) % partitions
    for number in steps(range(partitions)):
        yield rows.filter(part == number)


def own_keys(rows: pl.LazyFrame, keys: pl.DataFrame | None) -> list[pl.Expr]:
    """Return the columns that rows are grouped by, as they are released."""
    names, schema = [] if keys is None else keys.columns, rows.collect_schema()
    return [pl.col(name).cast(column_types.released(schema[name])).alias(f"key {i}") for i, name in enumerate(names)]


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
    """Return what plans on private rows give. Several plans must not share a scan of private rows that is filtered."""
    return pl.collect_all(plans, engine=by_name(engine), optimizations=NO_FILTER_IN_SCANS)
