"""Rows that need no person, added up by Polars itself: grouped by public keys and candidates where these are few."""

from __future__ import annotations

import math
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING

import polars as pl

from dp_polars._bins.binning import CategoryBinning, OneCode
from dp_polars._steps.polars_rows import FEW, is_equal_by_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dp_polars._release.contract import HistogramSpec


# Combinations of public values by which rows are grouped: a table of them stays in the cache.
_MOST_COMBINATIONS = 1 << 17


def grouped(
    rows: pl.LazyFrame, keys: pl.DataFrame | None, specs: Sequence[HistogramSpec], together: Sequence[Sequence[int]]
) -> pl.LazyFrame | None:
    """Return the sums of all specs for each combination of listed values; None where that is not Polars' to find.

    That is so where a binning or a row weight is no arithmetic of Polars, or where there are too many combinations.
    Public sizes and types alone decide it.

    Returns
    -------
    LazyFrame
        `key i`; `column n 0` where the codes of spec n are those of categories; for the first spec n of each kind
        `rows n`, how many rows count, and for each one with weights `weight n`, their sum. A value that is not listed
        may be null, or stand for itself.
    """
    schema = rows.collect_schema()
    named = [] if keys is None else [pl.col(key.name).alias(f"key {place}") for place, key in enumerate(keys)]
    values = (
        []
        if keys is None
        else [(f"key {i}", key.unique(maintain_order=True), schema[key.name]) for i, key in enumerate(keys)]
    )
    read, sums = list[pl.Expr](), list[pl.Expr]()
    for numbers in together:
        first = specs[numbers[0]]
        names = [f"column {numbers[0]} {place}" for place in range(len(first.columns))]
        named += [column.alias(name) for column, name in zip(first.columns, names, strict=True)]
        counted = pl.col("row")
        if isinstance(first.binning, CategoryBinning):
            values.append((names[0], first.binning.values, first.types[0]))
        elif not isinstance(first.binning, OneCode):
            return None
        elif names:
            read.append(first.binning.counts([pl.col(names[0])], first.types).alias(f"is there {numbers[0]}"))
            counted = pl.col(f"is there {numbers[0]}").cast(pl.Int64)  # in 32 bits, their number could overflow
        sums.append(counted.sum().alias(f"rows {numbers[0]}"))
        for number in numbers:
            row_weight = specs[number].row_weight
            if row_weight is not None:
                weight = row_weight.expression([pl.col(name) for name in names], first.types)
                if weight is None:
                    return None
                read.append(weight.alias(f"weight {number}"))
                sums.append(pl.col(f"weight {number}").sum())
    by = [_listed(pl.col(name), listed, dtype) for name, listed, dtype in values]
    columns = [column for column, _ in filter(None, by)]
    if None in by or math.prod(most for _, most in filter(None, by)) > _MOST_COMBINATIONS:
        return None
    # Under names of our own, so that no column's name can be in the way. A constant gets as many rows as the frame.
    named.append(pl.lit(1, pl.Int64).alias("row"))
    plan = rows.with_columns(named).select(column.meta.output_name() for column in named).select(*columns, "row", *read)
    return plan.group_by(name for name, *_ in values).agg(sums) if values else plan.select(sums)


def _listed(column: pl.Expr, values: pl.Series, dtype: pl.DataType) -> tuple[pl.Expr, int] | None:
    """Return a column with few values that are not listed, and how many it has at most, with null.

    The values have the column's type, but are texts for a Categorical. None where Polars may take other values for
    equal than we do. It is no filter of rows: Polars may move a filter into a scan.
    """
    if not len(values):
        return None
    if dtype == pl.Boolean:
        return column, 3
    if isinstance(dtype, pl.Enum):
        return column, len(dtype.categories) + 1
    if not is_equal_by_value(dtype):
        return None
    most = len(values)
    is_listed = column.is_in(values.implode())
    if most <= FEW:
        is_listed = reduce(or_, [column == pl.lit(value, dtype) for value in values])
    elif dtype != pl.String:
        least, greatest = (values.sort()[place] for place in (0, -1))
        ends = values.sort().to_physical()
        span = int(ends[-1]) - int(ends[0]) + 1
        if span <= 2 * most:
            most, is_listed = span, column.is_between(pl.lit(least, dtype), pl.lit(greatest, dtype))
    return pl.when(is_listed).then(column), most + 1
