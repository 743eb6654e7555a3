"""From rows to histograms on Spark, as native SQL: the duties of an engine (`_release/contract.py`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from dp_polars._bins.binning import CategoryBinning
from dp_polars._engines.spark.arithmetic import long, sf, total
from dp_polars._engines.spark.people import any_of, bounded
from dp_polars._engines.spark.rows import person_of, read, with_codes
from dp_polars._engines.spark.workers import MARKER, encoding, mapped

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from dp_polars._base.column_types import PrivacyUnit
    from dp_polars._engines.spark.rows import Groups, SpecColumns
    from dp_polars._release.contract import HistogramSpec


# The most cells of a group that its rows are taken to spread over.
_MOST_CELLS = 1000


def histograms(
    frame: DataFrame,
    privacy_unit: PrivacyUnit | None,
    groups: Groups,
    specs: Sequence[HistogramSpec],
    seed: int,
    *,
    to_driver: bool = False,
) -> list[DataFrame]:
    """Return the columns `group`, `spec`, `code` and `count` (all LongType); the counts of a triple add up.

    One pass over the rows serves all specs for which it matters whose a row is, another one all others. Sums of
    weights come once per triple, exact and then clamped to ±LARGEST_VALUE, which is what their noise is added to.
    With `to_driver` every triple comes once, however many rows there are.
    """
    by_person: dict[int, HistogramSpec] = {}
    others: dict[int, HistogramSpec] = {}
    for number, spec in enumerate(specs):
        (by_person if privacy_unit is not None and spec.by_person else others)[number] = spec
    passes = []
    if others:
        rows, asked = read(frame, privacy_unit, groups, others, looks_up=False)
        # The native query itself first; keys and categories see only its result.
        passes.append((rows.withColumns({one.keeps: one.is_evidence for one in asked}), asked, groups.names))
    if by_person:
        rows, asked = read(frame, privacy_unit, groups, by_person)
        rows = bounded(groups.in_groups(rows), person_of(privacy_unit), asked, seed)
        passes.append((rows, asked, ["group"]))
    found = []
    for rows, asked, by in passes:
        is_uncounted = not to_driver and _is_uncounted(frame, groups, asked)
        found.append(_histogram(rows, by, groups, asked, is_uncounted=is_uncounted, to_driver=to_driver))
    return found


def _histogram(
    rows: DataFrame,
    by: Sequence[str],
    groups: Groups,
    specs: Sequence[SpecColumns],
    *,
    is_uncounted: bool,
    to_driver: bool,
) -> DataFrame:
    """Count the rows that stay, for all specs at once; uncounted rows are returned themselves, with a count of 1."""
    # All specs of one code share their cells.
    sharing: dict[str | None, list[int]] = {}
    for one in specs:
        sharing.setdefault(one.code, []).append(one.number)
    later = {one.code: one.spec for one in specs if one.code is not None and one.values is not None}
    kinds = {one.code: one.values for one in specs if one.code in later and one.values is not None}
    nothing = sf.lit(None)
    counts = {one.number: f"count{one.number}" for one in specs}

    def cells(place: int, code: str | None, numbers: Sequence[int]) -> list[Column]:
        known = long(0) if code is None else sf.col(code)
        found = {"answer": sf.lit(place), "code": nothing.cast("long") if code in later else known}
        found |= {name: known if name == code else nothing.cast(kind) for name, kind in kinds.items()}
        for one in specs:
            counts_here = one.number in numbers
            found[counts[one.number]] = sf.when(sf.col(one.keeps), one.weight) if counts_here else nothing.cast("long")
        return [column.alias(name) for name, column in found.items()]

    parts = [cells(place, code, numbers) for place, (code, numbers) in enumerate(sharing.items())]
    rows = rows.filter(any_of(sf.col(one.keeps) for one in specs))
    if len(parts) == 1:
        rows = rows.select(*by, *parts[0])
    else:
        rows = rows.select(*by, _rows_of(parts)).filter(sf.coalesce(*counts.values()).isNotNull())
    if not is_uncounted:
        sums = {one.number: sf.sum if one.units is None else total for one in specs}
        rows = rows.groupBy(*by, "answer", "code", *later).agg(
            *(sums[number](sf.col(name)).alias(name) for number, name in counts.items())
        )
    if by != ["group"]:
        rows = groups.in_groups(rows)
    in_python = {name: spec for name, spec in later.items() if not isinstance(spec.binning, CategoryBinning)}
    listed = {name: spec.binning for name, spec in later.items() if isinstance(spec.binning, CategoryBinning)}
    for name, binning in listed.items():
        rows = with_codes(rows, name, f"{name} listed", binning.values, kinds[name])
    code = sf.coalesce("code", *(f"{name} listed" for name in listed))
    rows = rows.filter(any_of([code.isNotNull(), *(sf.col(name).isNotNull() for name in in_python)]))
    by_spec = [[long(number).alias("spec"), sf.col(name).alias("count")] for number, name in counts.items()]
    rows = rows.select("group", code.alias("code"), *in_python, _rows_of(by_spec)).filter(sf.col("count").isNotNull())
    if in_python:
        binnings = {one.number: one for one in specs if one.code in in_python}
        rows = mapped(
            rows,
            encoding({n: (one.code or "", one.spec.binning, one.spec.types[0]) for n, one in binnings.items()}),
            "group long, spec long, code long, count long",
        )
        if to_driver:  # where values have no codes until then, there may be as many as rows
            rows = rows.groupBy("group", "spec", "code").agg(sf.sum("count").alias("count"))
    return rows.select("group", "spec", "code", "count")


def _rows_of(parts: Iterable[Sequence[Column]]) -> Column:
    """Return what makes several rows of one."""
    return sf.inline(sf.array(*(sf.struct(*columns) for columns in parts)))


def _is_uncounted(rows: DataFrame, groups: Groups, specs: Sequence[SpecColumns]) -> bool:
    """Whether rows are sent to where they are drawn, shuffled once instead of twice. Sums must be counted first."""
    candidates = min(one.spec.binning.size for one in specs)
    return all(one.units is None for one in specs) and _are_few(rows, groups.number, candidates)


def _are_few(rows: DataFrame, groups: int, candidates: int) -> bool:
    """Whether counting would hardly make the rows fewer, by Spark's estimate of their number.

    This affects speed only, never the answer. The estimate comes from the sizes of files, which are compressed: it is
    too low by a factor of 4 or so. So rows are few up to some 2 per cell; with 2, two fifths of them are the first of
    their cell. Values are taken to be at no more than `_MOST_CELLS` of a grid's many points.
    """
    try:
        # Not of the optimized plan: the optimizer runs expressions on rows that it has at hand, and nothing is charged
        # yet.
        plan = rows._jdf.queryExecution().analyzed()
        columns = plan.output()
        width: int = 8 + sum(columns.apply(i).dataType().defaultSize() for i in range(columns.size()))
        size = int(str(plan.stats().sizeInBytes()))
    except Exception:  # a plan that has no statistics before it is optimized
        return False
    return 2 * size <= groups * min(candidates, _MOST_CELLS) * width


def union(groups: Groups, histograms: Sequence[DataFrame]) -> DataFrame:
    """Return all histograms and the markers of all groups, each group in one partition, sorted there."""
    zero = long(0)
    marker = [long(MARKER).alias("spec"), zero.alias("code"), zero.alias("count")]
    table = groups.table.select("group", *marker, *groups.names)
    nothing = [sf.lit(None).cast(kind).alias(name) for name, kind in zip(groups.names, groups.types, strict=True)]
    for counted in histograms:
        table = table.unionAll(counted.select("group", "spec", "code", "count", *nothing))
    return table.repartition("group").sortWithinPartitions("group")
