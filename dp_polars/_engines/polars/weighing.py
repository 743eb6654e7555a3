"""People by Polars: numbers in which nobody's rows are dropped, but people beyond the limits count in part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import polars as pl

from dp_polars._engines.polars.arithmetic import EXPRESSIONS
from dp_polars._engines.polars.people import AlikeSpecs, weight_name
from dp_polars._mechanisms.person_weights import UNIT, PersonWeight, part_of
from dp_polars._sources.running import collected

if TYPE_CHECKING:
    from polars._typing import EngineType

    from dp_polars._release.contract import HistogramSpec


def weigh_people(frame: pl.DataFrame, kinds: Sequence[AlikeSpecs], engine: EngineType) -> list[pl.DataFrame]:
    """Return the sums of parts of each kind: columns `cell` and `weight i` of each of its specs, each cell once.

    `frame`: `person`, `group` where there are several, and the columns that `kinds` name.
    """
    by_codes: dict[str | None, list[int]] = {}
    for place, kind in enumerate(kinds):
        by_codes.setdefault(kind.code if kind.layout.code_bits else None, []).append(place)
    plans, places = [], []
    for code, of_code in by_codes.items():
        for place, plan in zip(
            of_code, _weighed(frame, code, [kinds[place] for place in of_code], engine), strict=True
        ):
            plans.append(plan)
            places.append(place)
    found = dict(zip(places, collected(plans, engine), strict=True))
    return [found[place] for place in range(len(kinds))]


def _weighed(
    frame: pl.DataFrame, code: str | None, kinds: Sequence[AlikeSpecs], engine: EngineType
) -> list[pl.LazyFrame]:
    """Return the plans that add up the parts of kinds with these codes (None: of one code)."""
    groups = ["group"] if "group" in frame.columns else []
    by = [*groups, *([] if code is None else [code])]
    sums = [one for i, kind in enumerate(kinds) for one in _sums(i, kind)]
    # A row of a person, a group and a code. What contributes to none of the kinds is left out.
    pairs = frame.lazy().filter(pl.any_horizontal(kind.is_evidence for kind in kinds)).group_by("person", *by).agg(sums)
    pairs = pairs.with_columns(_number(i, kind).alias(f"n {i}") for i, kind in enumerate(kinds))
    if code is not None:  # the codes of a person in a group, of which each has the weight of one row
        pairs = pairs.with_columns(pl.col(f"n {i}").sum().over("person", *groups) for i in range(len(kinds)))
    pairs = collected([pairs], engine)[0].lazy()
    weights = {i: weight for i, kind in enumerate(kinds) if (weight := _weight(kind)).limit is not None}
    if weights:
        norms = {f"norm {i}": weight.norm(pl.col(f"n {i}"), EXPRESSIONS).sum() for i, weight in weights.items()}
        of_groups = pairs if code is None else pairs.unique(["person", *groups])
        people = of_groups.group_by("person").agg(**norms)
        beyond = people.filter(
            pl.any_horizontal(weight.is_beyond(pl.col(f"norm {i}"), EXPRESSIONS) for i, weight in weights.items())
        )
        # People within the limits are not looked at again.
        pairs = pairs.join(beyond, on="person", how="left", nulls_equal=True)
    return [_cells(pairs, i, kind) for i, kind in enumerate(kinds)]


def _weight(kind: AlikeSpecs) -> PersonWeight:
    weight = kind.specs[0].weight
    assert weight is not None
    return weight


def _sums(i: int, kind: AlikeSpecs) -> list[pl.Expr]:
    """Return how many rows of a pair contribute, and the sums of what they add up to."""
    counts, names = kind.is_evidence, dict.fromkeys(kind.weights.values())
    sums = [pl.when(counts).then(pl.col(name).cast(pl.Int64)).sum().alias(f"{i} {name}") for name in names]
    # The sum of a constant would be that of one row.
    rows = pl.len().cast(pl.Int64) if kind.code is None else counts.cast(pl.Int64).sum()
    return [rows.alias(f"rows {i}"), *sums]


def _number(i: int, kind: AlikeSpecs) -> pl.Expr:
    """Return how many rows count in a pair: where people count, one."""
    rows = pl.col(f"rows {i}")
    return (rows > 0).cast(pl.Int64) if kind.specs[0].people else rows


def _total(i: int, kind: AlikeSpecs, number: int, spec: HistogramSpec) -> pl.Expr:
    """Return a person's sum in a group and code."""
    counted = _number(i, kind)
    if number not in kind.weights:
        return counted
    total: pl.Expr = spec.clamping.of_sums(
        pl.col(f"{i} {kind.weights[number]}"), pl.col(f"rows {i}"), EXPRESSIONS.whole
    )
    if spec.people:
        low, high = (EXPRESSIONS.whole(end) for end in spec.clamping.of_person)
        total = pl.when(pl.col(f"rows {i}") > 0).then(total.clip(low, high)).otherwise(EXPRESSIONS.whole(0))
    return total


def _cells(pairs: pl.LazyFrame, i: int, kind: AlikeSpecs) -> pl.LazyFrame:
    """Return the sums of a kind's parts in each cell."""
    weight, layout = _weight(kind), kind.layout
    of_person = EXPRESSIONS.whole(UNIT)
    if weight.limit is not None:
        norm = pl.col(f"norm {i}").fill_null(0)
        of_person = weight.of_norm(norm, EXPRESSIONS)
    of_row = weight.of_rows(of_person, pl.col(f"n {i}"), EXPRESSIONS)
    parts = {
        weight_name(number): part_of(_total(i, kind, number, spec), pl.col("of row"), spec.bits, EXPRESSIONS)
        for number, spec in zip(kind.numbers, kind.specs, strict=True)
    }
    unsigned = pl.UInt32 if layout.bits <= 32 else pl.UInt64
    cell = pl.col(str(kind.code)).cast(unsigned) if layout.code_bits else pl.lit(0, unsigned)
    if layout.group_bits:
        cell += pl.col("group").cast(unsigned) * pl.lit(2**layout.code_bits, unsigned)
    counted = pairs.filter(pl.col(f"rows {i}") > 0).with_columns(of_row.alias("of row"))
    return counted.select(cell.alias("cell"), **parts).group_by("cell").agg(pl.all().sum())
