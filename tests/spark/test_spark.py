"""Releases on a real Spark cluster: two executor processes of their own on this machine."""

import contextlib
import datetime as dt
import json
import logging
import math
import os
import re
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter
from dataclasses import replace
from decimal import Context, Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import dp_polars as dpp
from dp_polars._bins.binning import Clamping, Squares
from dp_polars._engines.polars import engine as polars_engine
from dp_polars._release.contract import Output, PerPerson
from dp_polars._release.protection import Limits
from dp_polars._statistics.categories import Quantile
from tests.engines.orders import (
    ASKED,
    BOUNDS,
    LARGEST,
    PEOPLE,
    Bounded,
    about,
    crowd,
    follows,
    joint_law,
    limited,
    lost_by,
)
from tests.helpers import reference
from tests.helpers.places import ROOT
from tests.helpers.specs import as_frame, spec_of
from tests.helpers.spies import fix_words
from tests.registry import COLUMNS
from tests.spark.tools import (
    CONNECT,
    DDL,
    MARKS,
    PARTITIONS,
    need_spark,
    on_both,
    on_classic,
    partitions_of,
    started,
    to_polars,
    to_spark,
    two_hosts,
    with_class,
)
from tests.statistical.goodness import check_sampler

need_spark()

import pyspark.errors
from pyspark import cloudpickle
from pyspark.sql import Window
from pyspark.sql import functions as sf

import dp_polars.spark
from dp_polars._engines.spark import arithmetic as _arithmetic
from dp_polars._engines.spark import counting as _counting
from dp_polars._engines.spark import rows as _tables
from dp_polars._engines.spark import workers as _workers
from dp_polars._engines.spark.rows import text_of_frame

# What the driver draws is in `test_driver.py`.
pytestmark = [*MARKS, pytest.mark.usefixtures("on_executors")]


@pytest.fixture(scope="module", autouse=True)
def _by_value():
    # The classes of this file are not importable on the executors.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])


# --- Counting -------------------------------------------------------------------------------------------------------


def every_type(rows=800):
    """A column of each type, by its name in the registry, and a person."""
    rng = np.random.default_rng(6)

    def some(kind):
        values = [*kind.values, *([math.nan] if kind.dtype.is_float() else [None])]
        return pl.Series([*values, None], dtype=kind.dtype).gather(rng.integers(0, len(values) + 1, rows))

    frame = pl.DataFrame({name: some(COLUMNS[name]) for name in DDL})
    person = pl.Series("person", rng.integers(0, 60, rows))
    return frame.with_columns(person=pl.when(person > 0).then(person))


def asks_of_every_type():
    """Modes and quantiles of all columns, also on grids with more points than anybody lists."""
    for name in DDL:
        kind = COLUMNS[name]
        if kind.categories is not None:
            yield name, dpp.mode(name, kind.categories, epsilon=1).query
        for given_as, _ in kind.points:
            yield name, dpp.median(name, given_as, epsilon=1).query
    yield "Int64", dpp.quantile("Int64", 0.3, range(-100, 101), epsilon=1).query
    yield "Int64", dpp.median("Int64", dpp.grid(-3, 5 * 2**58 - 3, step=5 * 2**20), epsilon=1).query
    yield "Int64", dpp.median("Int64", dpp.grid(-(2**60), 2**60, step=2**57), epsilon=1).query
    yield "Int32", dpp.median("Int32", dpp.grid(-(10**9), 10**9, step=0.25), epsilon=1).query
    yield "Int16", dpp.median("Int16", dpp.grid(-7, 10**6, step=1), epsilon=1).query
    yield "Int8", dpp.mode("Int8", range(-128, 128), epsilon=1).query
    yield "Float64", dpp.median("Float64", dpp.grid(-1, 1, step=0.01), epsilon=1).query
    yield "Float32", dpp.median("Float32", dpp.grid(-1, 1, step=0.001), epsilon=1).query
    yield "Duration", dpp.median("Duration", dpp.grid(dt.timedelta(0), dt.timedelta(5), step="1s"), epsilon=1).query
    days = [dt.datetime(1969, 1, 1), dt.datetime(2021, 1, 1)]
    yield "Datetime", dpp.median("Datetime", dpp.grid(*days, step="1d"), epsilon=1).query
    utc = [day.replace(tzinfo=dt.UTC) for day in days]
    yield "Datetime in UTC", dpp.median("Datetime in UTC", dpp.grid(*utc, step="1h"), epsilon=1).query
    yield "Decimal", dpp.median("Decimal", dpp.grid(Decimal(-1), Decimal(1), step=Decimal("0.001")), epsilon=1).query
    yield "Decimal", dpp.mode("Decimal", [0], epsilon=1).query
    yield "Date", dpp.median("Date", dpp.grid(dt.date(1950, 1, 1), dt.date(2000, 1, 1), step="1d"), epsilon=1).query


@pytest.fixture(params=["counted", "uncounted"])
def way(request, monkeypatch):
    """Whether Spark counts rows before the shuffle; by itself, it goes by their number."""
    monkeypatch.setattr(_counting, "_are_few", lambda *_: request.param == "uncounted")


def both_histograms(spark, frame, ddl, unit, keys, outputs):
    """The histograms of all outputs, by Polars and by Spark, which makes them in one pass."""
    schema = ", ".join(f"`{name}` {ddl[name]}" for name in frame.columns)
    specs = [spec_of(frame, *rest, people=people) for *rest, people in outputs]
    on_spark = spark_counts(to_spark(spark, frame, schema), unit, keys, specs)
    by_polars = polars_engine.count(frame.lazy(), unit and (unit,), keys, specs)
    for position, expected in enumerate(by_polars):
        yield outputs[position], as_frame(expected), on_spark[position]


def spark_counts(rows, unit, keys, specs, seed=None):
    """The histogram of each spec, by Spark."""
    seed = _counting.fresh_seed() if seed is None else seed
    parts = _counting.histograms(rows, unit and (unit,), _tables.Groups.of(rows, keys), specs, seed)
    found = pl.concat([to_polars(part) for part in parts])
    found = found.group_by("spec", "group", "code").agg(pl.col("count").sum()).sort("group", "code")
    return [found.filter(spec=number).drop("spec") for number in range(len(specs))]


@pytest.mark.parametrize(
    ("unit", "key_columns"),
    [(None, ["String", "Boolean"]), ("person", ["Datetime in UTC"]), ("Float64", ["Decimal", "Date"])],
)
@on_both
def test_spark_counts_what_polars_counts(spark, few_tasks, way, unit, key_columns):
    frame = every_type()
    keys = frame.select(key_columns).drop_nulls().unique(maintain_order=True)
    keys = keys.head(keys.height // 2 + 1)
    protection = dpp.protect(unit, max_rows_per_group=unit and 1000).protection
    asked = list(asks_of_every_type())
    if unit is not None:  # a few of each kind are enough
        asked = [(column, query) for column, query in asked if column in ("String", "Float32", "Datetime")]
    outputs = [
        (column, query, protection.drawn_limits(query, keys.height), protection.counts_people(query))
        for column, query in asked
    ]
    for output, expected, got in both_histograms(spark, frame, {**DDL, "person": "bigint"}, unit, keys, outputs):
        assert expected.height > 1
        assert got.equals(expected), (output, expected, got)


def bounded_specs(frame, bounds):
    """Those of one query."""
    return limited(about(bounds)._request.bind(polars_engine.PolarsEngine.of(frame.lazy())), bounds)


@pytest.mark.parametrize("bounds", BOUNDS, ids=lambda bounds: str(bounds[0][1]))
def test_a_person_changes_the_histograms_by_no_more_than_the_bounds(spark, few_tasks, way, bounds):
    frame, keys = crowd(4), pl.DataFrame({"g": range(5)})
    gone = frame.group_by("person").len().sort("len")["person"].last()
    everyone = spark_counts(to_spark(spark, frame), "person", keys, bounded_specs(frame, bounds), 1)
    # The rows of the others, in another order and divided otherwise, keep all that they kept.
    others = frame.filter(pl.col("person") != gone).sample(fraction=1, shuffle=True, seed=7)
    without = spark_counts(to_spark(spark, others).repartition(3), "person", keys, bounded_specs(others, bounds), 1)
    for (asked, limits), one, other in zip(bounds, everyone, without, strict=True):
        largest = LARGEST.get(asked, 1)
        lost = lost_by(one, other, limits, people=asked in PEOPLE, largest=largest)["lost"].sum()
        # Nothing is thrown away that fits: that person fills the bounds.
        counts = {"len": True, "count": pl.col("value").is_not_null()}.get(asked, pl.col("value") < 5)
        own = frame.filter(pl.col("person") == gone, pl.col("g") < 5, counts)
        own = own.select("g", "value").unique() if asked in ("value_counts", "mode") else own
        held = own.group_by("g").len()["len"].clip(upper_bound=limits.rows_per_group or 1000).sort()
        fewest = min(limits.rows or 1000, held.head(limits.groups or 5).sum())  # if the groups with the fewest stay
        assert lost >= (1 if asked == "weighed" else fewest) > 0


@pytest.mark.parametrize("bounds", BOUNDS[:2], ids=lambda bounds: str(bounds[0][1]))
def test_the_same_seed_keeps_the_same_rows(spark, few_tasks, bounds):
    """Of several specs in one pass, wherever rows lie and however often a task runs; many rows are equal."""
    frame, keys = crowd(3), pl.DataFrame({"g": range(5)})
    specs = bounded_specs(frame, bounds)
    first = spark_counts(to_spark(spark, frame), "person", keys, specs, 5)
    shuffled = to_spark(spark, frame.sample(fraction=1, shuffle=True, seed=2)).repartition(3)
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        again = spark_counts(shuffled, "person", keys, specs, 5)
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
    assert all(one.height and one.equals(two) for one, two in zip(first, again, strict=True))
    others = spark_counts(shuffled, "person", keys, specs, 6)
    for (asked, _), one, two in zip(bounds, first, others, strict=True):
        assert not one.equals(two) or asked in ("mode", "len")


@pytest.mark.parametrize("bounds", BOUNDS, ids=lambda bounds: str(bounds[0][1]))
def test_bounds_hold_where_all_hashes_are_the_same(spark, few_tasks, bounds, monkeypatch):
    monkeypatch.setattr(_counting.sf, "xxhash64", lambda *_: sf.lit(7).cast("long"))
    frame = crowd(4)
    most = frame.group_by("person").len().sort("len")["person"].last()
    frame = frame.filter(person=most)
    specs = bounded_specs(frame, bounds)
    found = spark_counts(to_spark(spark, frame), "person", pl.DataFrame({"g": range(5)}), specs)
    for (asked, limits), counts in zip(bounds, found, strict=True):
        largest = LARGEST.get(asked, 1)
        per_group = counts.group_by("group").agg(pl.col("count").sum())
        assert 0 < per_group.height <= (limits.groups or 5)
        assert per_group["count"].max() <= (limits.rows_per_group or 30) * largest
        assert per_group["count"].sum() <= (limits.rows or 30) * largest
        assert asked not in PEOPLE or counts["count"].max() <= largest


def test_rows_that_differ_in_where_null_is_have_numbers_of_their_own(spark, few_tasks):
    """Spark's hash passes over null, so that of (1, null) is that of (null, 1): the joint law would be another."""
    codes = {0: (1, None), 1: (None, 1), 2: (2, 2)}
    rows = [(p, *both) for p in range(3000) for both in codes.values()]
    frame = pl.DataFrame(rows, schema={"person": pl.Int64, "a": pl.Int64, "b": pl.Int64}, orient="row")
    specs = [spec_of(frame, name, ASKED["median"].query, Limits(rows=1)) for name in "ab"]
    keys = pl.DataFrame({"person": range(3000)})
    one, two = spark_counts(to_spark(spark, frame), "person", keys, specs)
    sees = [tuple(row for row, both in codes.items() if both[column] is not None) for column in (0, 1)]
    expected = Counter()
    for ((row_a,), (row_b,)), chance in joint_law(
        tuple((0, row) for row in codes), *(Bounded(Limits(rows=1), sees=own) for own in sees)
    ).items():
        expected[codes[row_a[1]][0], codes[row_b[1]][1]] += chance
    assert expected == {(1, 1): Fraction(1, 3), (2, 2): Fraction(1, 3), (1, 2): Fraction(1, 6), (2, 1): Fraction(1, 6)}
    assert follows(list(zip(one["code"].to_list(), two["code"].to_list(), strict=True)), expected)


PARTS = ("Join", "Window", "Sort", "Aggregate", "Generate", "Repartition", "Filter", "Project")


@on_classic
@pytest.mark.parametrize("unit", [None, "person"])
def test_a_plan_is_as_large_for_many_statistics_as_for_a_few(spark, few_tasks, way, unit):
    """One join finds the codes of all lists, and one order serves all limits, in all columns of four types."""
    kinds = {"text": "string", "whole": "long", "day": "date", "money": "decimal(9,2)"}
    counts = {"text": ["a", "b"], "whole": [1, 2], "day": [dt.date(2024, 1, 1)], "money": [Decimal("0.25")]}
    names = {f"{name}{i}": name for i in range(6) for name in kinds}
    rows = spark.createDataFrame([], ", ".join(f"{name} {kinds[of]}" for name, of in names.items()) + ", person long")
    empty = pl.DataFrame(schema={name: pl.Series(counts[of]).dtype for name, of in names.items()})
    empty = empty.with_columns(pl.selectors.decimal().cast(pl.Decimal(9, 2)))
    limits = Limits() if unit is None else Limits(groups=1, rows_per_group=2)

    def parts(most, plan_of):
        specs = []
        for name, of in names.items():
            if int(name[-1]) < most:
                specs.append(
                    spec_of(empty, name, dpp.mode(name, counts[of], epsilon=1).query, limits, people=bool(unit))
                )
                if of == "whole":
                    specs.append(spec_of(empty, name, dpp.median(name, range(9), epsilon=1).query, limits))
                    specs.append(spec_of(empty, name, dpp.sum(name, 0, 9, epsilon=1).query, limits))
        plan = Counter()
        for frame in plan_of(specs):
            nodes = re.findall(r"^[ :+-]*(\w+)", frame._jdf.queryExecution().optimizedPlan().toString(), re.MULTILINE)
            plan.update(node for node in nodes if node in PARTS)
        return plan

    def of_cells(specs):
        return _counting.histograms(rows, unit and (unit,), _tables.Groups.of(rows, None), specs, 1)

    few, many = parts(2, of_cells), parts(6, of_cells)
    assert few == many
    assert few["Join"] == 1
    if unit is not None:
        per_person = partial(PerPerson, (unit,), None)
        few, many = (
            parts(most, lambda specs: [_counting.one_row_per_person(rows, per_person(tuple(specs)))]) for most in (2, 6)
        )
        assert few == many
        assert few["Join"] == 1


# --- Weights --------------------------------------------------------------------------------------------------------

UNITS = {
    "boolean": [(0, 1, 1), (-4, 6, 2), (Fraction(-1, 3), Fraction(1, 3), Fraction(1, 3)), (2, 3, 1)],
    "tinyint": [(-128, 127, 1), (-40, 80, 2), (-42, 21, 7), (300, 400, 4), (-1, 1, Fraction(1, 8)), (-500, -300, 10)],
    "int": [(-(2**30), 2**30, 1), (-(2**31), 2**31, 2**10), (-90, 60, 6), (0, 5, Fraction(1, 1000))],
    "bigint": [
        (-(2**30), 2**30, 1),
        (-(2**62), 2**62, 2**33),
        (-(2**62), 2**62, 2**62),
        (-(3**38), 3**38, 3**38),
        (-15, 10, 5),
        (-1, 1, Fraction(1, 10**9)),
        (Fraction(-1, 10**40), Fraction(3, 10**40), Fraction(1, 10**40)),
    ],
    "float": [(-1, 1, Fraction(1, 10)), (-1000, 3000, 1), (-(2**20), 2**20, Fraction(1, 2**10)), (0, 10**38, 10**35)],
    "double": [
        (-1, 1, Fraction(1, 10)),
        (Fraction(-1, 3), 1, Fraction(1, 3)),
        (-1000, 3000, 1),
        (-(2**30), 2**30, 1),
        (0, 10**307, 10**299),
        (0, Fraction(1, 10**300), Fraction(1, 10**308)),
        (0, Fraction(1, 2**850), Fraction(1, 2**870)),
    ],
    "decimal(10,2)": [
        (-(10**6), 10**6, Fraction(1, 100)),
        (-1, 1, Fraction(2, 100)),
        (-(10**12), 10**12, 10**4),
        (-1, 2, Fraction(1, 10**4)),
    ],
    "decimal(38,17)": [(-20, 40, Fraction(1, 1000)), (-40, 46, 2), (Fraction(-1, 10**8), 0, Fraction(1, 10**17))],
    "decimal(38,0)": [(-(2**62), 2**62, 2**40), (-9, 10**9, 3)],
    "decimal(4,4)": [(-3, 3, 1), (Fraction(-1, 2), 1, Fraction(1, 100)), (-1, 1, Fraction(1, 10**6))],
}


def values_of(kind, dtype):
    """Values on the edges of a type and of its units, ties among them, and random ones."""
    rng = np.random.default_rng(8)
    if kind == "boolean":
        return pl.Series([False, True])
    if dtype.is_float():
        ties = np.arange(-2000, 2000) / 2
        found = np.concatenate(
            [ties, ties / 10, ties / 3, ties * 2.0**-10, rng.normal(size=500) * 10.0 ** rng.integers(-5, 7, 500)]
        )
        found = np.concatenate([found, np.nextafter(found, np.inf), np.nextafter(found, -np.inf)])
        extremes = [np.inf, -np.inf, -0.0, 5e-324, -5e-324, 2.0**-880, 1.5e-305, 1.7e308, -1.7e308, 2.5e299, 1e22]
        return pl.Series([*found, *extremes]).cast(dtype)
    if kind.startswith("decimal"):
        most = 10**dtype.precision - 1
    else:
        most = 2 ** ({"tinyint": 8, "int": 32, "bigint": 64}[kind] - 1) - 1
    whole = [
        0,
        *range(-200, 201),
        *(near + off for i in range(127) for near in (2**i, 3**i, 10**i) for off in (-1, 0, 1)),
    ]
    whole += [
        int(n) * 10 ** int(e) for n, e in zip(rng.integers(-(2**40), 2**40, 500), rng.integers(0, 20, 500), strict=True)
    ]
    whole = sorted({min(max(n, -most), most) for n in [*whole, *(-n for n in whole)]})
    if kind.startswith("decimal"):
        return pl.Series([Decimal(n).scaleb(-dtype.scale, REFERENCE) for n in whole], dtype=dtype)
    return pl.Series([*whole, -most - 1], dtype=dtype)


REFERENCE = Context(prec=60)


@pytest.mark.parametrize("kind", UNITS)
def test_a_row_weighs_on_spark_what_it_weighs_on_polars(spark, few_tasks, kind):
    dtype = _arithmetic.polars_type(spark.createDataFrame([], f"value {kind}").schema["value"].dataType)
    values = values_of(kind, dtype)
    asked = [
        made(Fraction(lower), Fraction(upper), Fraction(step), doubled)
        for lower, upper, step in UNITS[kind]
        for made, doubled in ((Clamping, False), (Clamping, True), (Squares, True))
        if made is Clamping or (upper - lower) / step <= 2**30
    ]
    rows = to_spark(spark, values.alias("value").to_frame(), f"value {kind}")
    weighed = to_polars(
        rows.select(
            "value",
            *(
                units.of_units(
                    _arithmetic.units(units, sf.col("value"), dtype), _arithmetic.long, _arithmetic.divide
                ).alias(str(i))
                for i, units in enumerate(asked)
            ),
        )
    )
    assert weighed.height == len(values)
    for i, units in enumerate(asked):
        expected = units.weigh([weighed["value"].cast(dtype)])
        assert weighed[str(i)].to_list() == expected.tolist(), units
        if not dtype.is_float():  # and by the words of the contract, in exact numbers
            for value, weight in zip(values.cast(pl.Int8) if kind == "boolean" else values, expected, strict=True):
                clipped = min(max(Fraction(value), units.lower), units.upper)
                nearest = round(clipped / units.step)  # ties to even
                whole = 2 * nearest - int((units.lower + units.upper) / units.step) if units.doubled else nearest
                if isinstance(units, Squares):
                    square, q = whole**2, 1 << units.shift
                    whole = 2 * math.floor(Fraction(square, q) + Fraction(1, 2)) - units.largest
                assert whole == weight, (value, units)


def test_sums_beyond_64_bits_are_clamped(spark, few_tasks):
    """Spark's own sum would raise, or wrap around, by what the rows hold."""
    rows = spark.createDataFrame(
        [(2**62, 2), (2**62, 1), (-(2**62), 0), (-(2**62), 0), (-(2**62), 0), (5, 3), (-7, 3), (-1, 4)],
        "w bigint, g int",
    )
    got = rows.groupBy("g").agg(_arithmetic.total(sf.col("w")).alias("sum")).orderBy("g")
    most = 2**62 - 1
    assert to_polars(got)["sum"].to_list() == [-most, most, most, -2, -1]


# --- Drawing --------------------------------------------------------------------------------------------------------


@on_classic
def test_rows_are_counted_before_the_shuffle_where_they_are_many(spark, tmp_path):
    spark.range(4096).select("id", (sf.col("id") % 7).alias("g")).write.parquet(str(tmp_path / "rows"))
    rows = spark.read.parquet(str(tmp_path / "rows"))
    assert not _counting._are_few(rows, 1, 100)
    assert _counting._are_few(rows, 100, 100)
    assert not _counting._are_few(rows.crossJoin(rows), 100, 100)
    assert _counting._are_few(spark.range(100), 1, 1000)
    assert not _counting._are_few(spark.range(100), 1, 10)
    assert not _counting._are_few(spark.range(10**6), 1, 2**50)  # the values of a fine grid repeat
    assert not _counting._are_few(spark.sql("select * from values (current_timestamp()) as t(x)"), 10, 10)


@given(st.lists(st.integers(1, 9), max_size=12), st.lists(st.integers(0, 7), max_size=30), st.integers(1, 12))
@example([2, 9, 1], [3, 3, 3], 3)  # one group in all tables
def test_groups_that_batches_cut_are_whole_again(sizes, cuts, most_rows):
    groups = np.repeat(np.arange(len(sizes)) * 3, sizes)
    markers = np.append(True, groups[1:] != groups[:-1])[: len(groups)]
    table = pa.table(
        {
            "group": groups,
            "spec": np.where(markers, -1, 0),
            "code": np.where(markers, 0, np.arange(len(groups)) % 2),
            "count": np.where(markers, 0, 1),
            "k0": pa.array(["key" if marker else None for marker in markers]),
        }
    )
    batches, start = [], 0
    for cut in [*cuts, len(groups)]:
        piece = table.slice(start, cut)
        batches.append(
            pa.RecordBatch.from_arrays([column.combine_chunks() for column in piece.columns], piece.column_names)
        )
        start += cut
    parts = list(_workers.whole_groups(batches, most_rows))
    together = pa.concat_tables([table.slice(0, 0), *parts])
    assert together.schema.equals(table.schema)
    got, expected = (
        pl.DataFrame(counted).group_by("group", "spec", "code", "k0").agg(pl.col("count").sum())
        for counted in (together, table)
    )
    assert_frame_equal(got, expected, check_row_order=False)
    groups_of_parts = [group for part in parts for group in set(part["group"].to_pylist())]
    assert len(groups_of_parts) == len(sizes)  # none is in two parts


@pytest.mark.parametrize("nullable", [True, False])
def test_a_long_group_is_added_up_on_its_way(nullable):
    schema = pa.schema([pa.field(name, pa.int64(), nullable) for name in _workers.COUNTED])
    rows, marker = (
        pa.record_batch(columns, schema)
        for columns in ([[0] * 4, [0] * 4, [1, 2, 1, 2], [1] * 4], [[0], [-1], [0], [0]])
    )
    (group,) = _workers.whole_groups([rows] * 500 + [marker] + [rows] * 500, most_rows=8)
    assert group.num_rows <= 2 * 8 + 8
    assert group.schema.equals(schema)
    counts = pl.DataFrame(group).group_by("spec", "code").agg(pl.col("count").sum()).sort("spec", "code")
    assert counts.rows() == [(-1, 0, 0), (0, 1, 2000), (0, 2, 2000)]


@pytest.mark.parametrize("distinct", [100, 10**6])
def test_a_group_of_a_million_rows(spark, way, tmp_path, distinct):
    rows = spark.range(1_200_000, numPartitions=2).select((sf.col("id") % distinct).alias("x"))
    query = dpp.protect(None).agg(dpp.median("x", dpp.grid(0, 10**6, step=0.01), epsilon=1000))
    released = to_polars(dp_polars.spark.release(query, rows, path=tmp_path / "released"))
    assert released.item() == pytest.approx({100: 49.5, 10**6: 499_900}[distinct], rel=0.2)


def test_a_group_without_its_key_is_not_drawn():
    """What a plan that divides a group between two tasks would give the second one."""
    query = dpp.mode("x", [1, 2], epsilon=1).query
    batch = pa.RecordBatch.from_pydict({"group": [0], "spec": [0], "code": [1], "count": [5]})
    draw = _workers.drawing(
        [_workers.Answer(Output("x", query, (pl.Int64(),), (0,)), pl.Int64(), (pl.Int64(),))], ["x"]
    )
    with pytest.raises(RuntimeError, match="Every group must come with its key"):
        list(draw([batch]))


def test_answers_follow_the_exact_law(spark, few_tasks):
    """10,000 groups with the same rows are 10,000 draws; 0.7 and 1.3 times the rate must be told from it."""
    groups, far = 10_000, 12
    counts = {0: 3, 1: 1, 2: 0, 3: 4}
    values = spark.createDataFrame(pa.table({"value": [value for value, n in counts.items() for _ in range(n)]}))
    rows = spark.range(groups).withColumnRenamed("id", "g").crossJoin(values)
    drawn, claims = {}, {}
    for factor in (Fraction(1), Fraction(7, 10), Fraction(13, 10)):
        query = (
            dpp.protect(None)
            .group_by({"g": range(groups)})
            .agg(
                mode=dpp.mode("value", range(4), epsilon=Fraction(3, 4) * factor),
                median=dpp.median("value", range(4), epsilon=2 * factor, mechanism="exponential"),
                rows=dpp.len(epsilon=Fraction(1, 2) * factor),
                sum=dpp.sum("value", 0, 4, rho=2 * factor**2),
                counts=dpp.value_counts("value", [2, 3], epsilon=Fraction(1, 2) * factor),
            )
        )
        released = to_polars(dp_polars.spark.release(query, rows, intervals=True))
        assert released["g"].sort().to_list() == list(range(groups))
        each = released.select("g", "counts").explode("counts").unnest("counts")
        drawn[factor] = released.join(each.pivot("value", index="g", values="count"), on="g")
        claims[factor] = {ask.name: ask.query.claim for ask in query._asks}
    mode, median = claims[Fraction(1)]["mode"], claims[Fraction(1)]["median"]
    assert (mode.mechanism, median.mechanism) == ("permute_and_flip", "exponential")
    assert claims[Fraction(7, 10)]["median"].rate == median.rate * Fraction(7, 10)
    # The median of 0 0 0 1 3 3 3 3: the rows that must come or go until a value is it, in halves.
    for name, claim, scores in [("mode", mode, [3, 1, 0, 4]), ("median", median, [-2, 0, -1, -1])]:
        law = reference.floats(reference.law(scores, rate=claim.rate, mechanism=claim.mechanism, digits=20))
        check_sampler(lambda factor, name=name: drawn[factor][name].to_numpy(), law)
    # Numbers: the cells of the law at its ends hold the tails.
    at = np.arange(-200, 201)
    for name, output, true in [("rows", "rows", 8), ("sum", "sum", 13), ("2", "counts", 0), ("3", "counts", 4)]:
        assert claims[1][output].mechanism == ("discrete_gaussian" if name == "sum" else "discrete_laplace")
        # The scale is that of a row: 1 / epsilon, or 4 / sqrt(2 rho) = 2.
        weights = np.exp(-(at**2) / 8) if name == "sum" else np.exp(-np.abs(at) / 2)
        law = np.bincount(np.clip(at, -far, far) + far, weights / weights.sum())

        def cells(factor, name=name, true=true):
            return np.clip(drawn[factor][name].to_numpy() - true, -far, far) + far

        check_sampler(cells, law)
    # Two outputs and two candidates have noise of their own.
    one = drawn[1].select("rows", "2", "3")
    for a, b in [("rows", "2"), ("rows", "3"), ("2", "3")]:
        assert abs(one.select(pl.corr(a, b)).item()) < 0.1
    # Noise of this scale is at most 6 with probability 0.962.
    held = drawn[1].select(pl.lit(8).is_between("rows_low", "rows_high").mean()).item()
    assert 0.95 < held < 0.975


@on_both
def test_numbers_of_nobody_and_of_columns_of_any_type(spark, visits):
    """One group, with no keys; `count` reads what nothing else can be asked of, and no row is there at first."""
    huge = {"epsilon": 10**9}
    query = dpp.protect("person", max_rows=5).agg(
        rows=dpp.len(**huge),
        people=dpp.n_people(**huge),
        stay=dpp.count("stay", **huge),
        month=dpp.count("month", **huge),
        collated=dpp.count("collated", **huge),
        age=dpp.sum("age", 0, 50, **huge),
        mean=dpp.mean("age", 0, 50, **huge),
    )
    nobody = to_polars(dp_polars.spark.release(query, visits.filter("age > 99")))
    assert nobody.rows() == [(0, 0, 0, 0, 0, 0, 25.0)]
    assert to_polars(dp_polars.spark.release(query, visits)).rows() == [(2, 2, 0, 2, 2, 70, 35.0)]
    # Without a column at all, and without people.
    alone = dpp.protect(None).agg(dpp.len(**huge))
    assert to_polars(dp_polars.spark.release(alone, visits)).item() == 2
    choices = (
        dpp.mode("diagnosis", ["flu", "none"], epsilon=1),
        dpp.median("age", pl.Series([7], dtype=pl.UInt64), epsilon=1),
    )
    query = dpp.protect("person", max_rows=1).agg(*choices)
    released = to_polars(dp_polars.spark.release(query, visits.filter("age > 99")))
    assert released.schema == {"diagnosis": pl.String, "age": pl.Decimal(20, 0)}
    assert released["age"].to_list() == [7]
    assert released["diagnosis"].is_in(["flu", "none"]).all()


@pytest.mark.parametrize("ansi", ["true", "false"])
@pytest.mark.parametrize("unit", [None, "person"])
def test_a_release_has_the_same_answers_with_and_without_ansi(spark, few_tasks, ansi, unit):
    """Where a number leaves its type, Spark raises with ANSI; without, it wraps around or gives null."""
    extremes = {
        "float": pl.Series([None, math.nan, math.inf, -math.inf, 1e308, -1e308, 0.25, -0.0, 5e-324]),
        "whole": pl.Series([2**63 - 1, -(2**63), 0, None, 7, 7, -5, 2**62, -(2**62)]),
        "money": pl.Series([10**35, -(10**35), None, 1, -3, 0, 9]).cast(pl.Decimal(38, 2)),
    }
    n = 504
    frame = pl.DataFrame(
        {"person": [i // 9 for i in range(n)], "g": [i % 4 for i in range(n)]}
        | {name: values.gather([i % len(values) for i in range(n)]) for name, values in extremes.items()}
    )
    huge = {"epsilon": 10**15}
    asked = {
        "rows": dpp.len(**huge),
        "floats": dpp.count("float", **huge),
        "of floats": dpp.sum("float", -1, 1, step=0.125, **huge),
        "mean of floats": dpp.mean("float", -1, 1, step=0.125, **huge),
        "median of floats": dpp.median("float", dpp.grid(-1, 1, step=0.01), **huge),
        "of integers": dpp.sum("whole", -(2**62), 2**62, step=2**33, **huge),
        "few integers": dpp.sum("whole", -10, 10, **huge),
        "median of integers": dpp.median("whole", dpp.grid(-(2**60), 2**60, step=2**57), **huge),
        "most common": dpp.mode("whole", [7, 2**63 - 1], **huge),
        "of decimals": dpp.sum("money", -5, 5, step=0.01, **huge),
        "mean of decimals": dpp.mean("money", -(10**6), 10**6, **huge),
    }
    if unit is not None:
        asked["of people"] = dpp.sum("whole", -(2**62), 2**62, step=2**33, per_person=(-(2**62), 2**62), **huge)
        asked["people"] = dpp.n_people(**huge)
    query = dpp.protect(unit, max_rows=unit and 1000).group_by({"g": range(4)}).agg(**asked)
    kinds = {"person": "bigint", "g": "bigint", "float": "double", "whole": "bigint", "money": "decimal(38,2)"}
    rows = to_spark(spark, frame, ", ".join(f"`{name}` {kind}" for name, kind in kinds.items()))
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        released = to_polars(dp_polars.spark.release(query, rows))
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
    assert_frame_equal(released.sort("g"), query.release(frame).sort("g"))


def test_many_groups_of_many_candidates_are_drawn_in_parts(monkeypatch):
    monkeypatch.setattr(_workers, "_ROWS", 20)
    query = dpp.value_counts("x", range(8), epsilon=100).query
    output = Output("x", query, (pl.Int64(),), (0,))
    answer = _workers.Answer(output, output.dtype, query.drawn_types(pl.Int64()))
    batch = pa.RecordBatch.from_pydict(
        {
            "group": [group for group in range(9) for _ in range(2)],
            "spec": [-1, 0] * 9,
            "code": [0, 3] * 9,
            "count": [0, 7] * 9,
            "k0": [key for group in range(9) for key in (f"key {group}", None)],
        }
    )
    drawn = [pl.DataFrame(pl.from_arrow(part)) for part in _workers.drawing([answer], ["k", "x"])([batch])]
    assert max(part.height for part in drawn) == 2
    together = pl.concat(drawn)
    assert together["k"].to_list() == [f"key {group}" for group in range(9)]
    assert together["x"].to_list() == [[0, 0, 0, 7, 0, 0, 0, 0]] * 9


def test_executors_hear_nothing_of_what_a_process_sets(monkeypatch):
    """Their stages, on floats whose arithmetic raises, from the same random words."""
    fix_words(monkeypatch.setattr)
    asked = dpp.median("x", [-1e300, 0.0, 1e-310, 2.5], epsilon=1).query
    values = [0.0, 5e-324, -1e-310, 1e-20, 3.5, 1.7e308, np.inf, np.nan] * 2
    rows = {"group": [0] * 16, "spec": [0] * 16, "code": [None] * 16, "x": values, "count": [10] * 16}
    own = (pl.Float64(),)
    encode = _workers.encoding({0: ("x", asked.count_rules(*own)[0].binning, *own)})
    draw = _workers.drawing([_workers.Answer(Output("x", asked, own, (0,)), *own, own)], ["x"])
    marker = {"group": [0], "spec": [-1], "code": [0], "count": [0]}

    def found():
        drawn = []
        with np.errstate(all="raise"):
            for batch in encode([pa.RecordBatch.from_pydict(rows)]):
                with pytest.raises(FloatingPointError):  # Spark itself hears all between two batches
                    np.float64(1e-310) * 0.3
                codes = pl.DataFrame(pl.from_arrow(batch))
                histogram = pl.concat([pl.DataFrame(marker), codes], how="diagonal").select(_workers.COUNTED)
                drawn += [each.to_pydict() for each in draw(histogram.to_arrow().to_batches())]
        return drawn

    assert found() == found()
    assert len(found()) == 1


FINE = dpp.grid(0, 2**53 - 1, step=1)


class Repeating(Quantile):
    """A sampler whose tasks share their random words."""

    def draw(self, *columns):
        return replace(super().draw(*columns), rng=_same_words)


def _same_words():
    stream = np.random.default_rng(0)
    return lambda count: stream.integers(0, 2**64, count, dtype=np.uint64)


@on_both
def test_no_two_tasks_share_a_stream_of_random_words(spark):
    """Without rows, answers are uniform over 2**53 points: any two of 6,000 are equal with probability 2e-9."""
    nobody = spark.createDataFrame([], "g long, x long")

    def answers(kind):
        query = dpp.protect(None).group_by({"g": range(3_000)}).agg(x=dpp.median("x", FINE, epsilon=1))
        released = dp_polars.spark.release(with_class(query, kind), nobody)
        assert partitions_of(released) == PARTITIONS
        return to_polars(released)["x"].to_list()

    assert len(set(answers(Quantile) + answers(Quantile))) == 6_000
    assert len(set(answers(Repeating))) < 1_000


# --- One release, once ----------------------------------------------------------------------------------------------


def logged(log, pause, first=None):
    """A quantile that notes its draws in a file and then takes its time; one of them does something `first`."""

    class Logged(Quantile):
        def drawn(self, histograms, *columns):
            drawn = super().drawn(histograms, *columns)
            is_first = first is not None and is_new(log.with_suffix(".first"))
            with log.open("a") as file:
                file.write(json.dumps([os.getpid(), is_first, drawn[0].to_list()]) + "\n")
            if is_first:
                first()
            time.sleep(pause)
            return drawn

    return Logged


def is_new(file):
    """Make a file, and return whether it was not there."""
    try:
        file.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def draws_of(log):
    """Process, whether it was the one that did something, and answers, of each draw so far."""
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


GROUPS = 60


def of_nobody(spark, log, budget, pause=0, first=None):
    """A query and no rows, so that answers are uniform over 2**53 points, and each one tells which draw it is."""
    query = dpp.protect(None, budget=budget).group_by({"g": range(GROUPS)})
    query = query.agg(x=dpp.median("x", FINE, epsilon=1))
    return with_class(query, logged(log, pause, first)), spark.createDataFrame([], "g long, x long")


def release_logged(spark, tmp_path, pause, *, to_file, disturb=None, first=None):
    """Release what tells of its draws, and return of how many groups draws are not published."""
    log, budget = tmp_path / "draws", dpp.Budget(epsilon=1)
    watcher = threading.Thread(target=disturb or (lambda log: None), args=[log], daemon=True)
    watcher.start()
    path = tmp_path / "released" if to_file else None
    released = dp_polars.spark.release(*of_nobody(spark, log, budget, pause, first), path=path)
    watcher.join()
    assert budget.remaining == 0
    assert budget.log().height == 1
    once, again = to_polars(released).sort("g"), to_polars(released).sort("g")
    assert once.equals(again)  # nothing draws again
    assert once["g"].to_list() == list(range(GROUPS))
    drawn = [(answer, is_first) for _, is_first, answers in draws_of(log) for answer in answers]
    assert any(is_first for _, is_first in drawn) == (first is not None)
    assert set(once["x"]) <= {answer for answer, is_first in drawn if not is_first}
    assert once["x"].n_unique() == GROUPS
    if to_file:
        assert pl.read_parquet(path / "*.parquet").sort("g").equals(once)
    return len(drawn) - GROUPS


EVERY_QUERY = {
    "answers": lambda private: private.group_by({"g": range(3)}).agg(
        rows=dpp.len(epsilon=1),
        people=dpp.n_people(epsilon=1),
        mode=dpp.mode("x", range(9), epsilon=1),
        ways=dpp.median("x", FINE, epsilon=1),
        ends=dpp.quantile("x", [0.1, 0.9], [0.5, 3.5, 7.5], epsilon=1),
        total=dpp.sum("x", 0, 9, epsilon=1, per_person=(0, 20)),
        mean=dpp.mean("y", 0, 9, step=0.5, epsilon=1),
        counts=dpp.value_counts("x", range(9), epsilon=1),
    ),
    "keys": lambda private: private.keys("g", epsilon=1, delta=0.1),
    "cut": lambda private: private.group_by({"g": range(3)}).agg(dpp.len(epsilon=1)).n_rows_dropped(1, epsilon=1),
    "cube": lambda private: private.cube({"g": range(3), "x": range(9)}, counts="rows", rho=1),
    "tables": lambda private: private.cube(
        {"g": range(3), "x": range(9)}, counts="rows", rho=1, tables=[("g",), ("x",)]
    ),
}


@on_both
@pytest.mark.parametrize("most_cells", [0, 2**60])
@pytest.mark.parametrize("name", EVERY_QUERY)
def test_a_query_reads_its_rows_once(spark, tmp_path, monkeypatch, name, most_cells):
    """So sums of floats and picks in what made them may be others each time: all outputs are of the same rows."""
    monkeypatch.setattr(dp_polars.spark, "_MOST_CELLS", most_cells)
    log = tmp_path / "reads"

    def noting(batches):
        with log.open("a") as file:
            file.write("read\n")
        yield from batches

    rows = pl.DataFrame({"p": [i // 6 for i in range(60)], "g": [i % 3 for i in range(60)]})
    rows = rows.with_columns(x=pl.col("p") % 9, y=pl.col("g") / 3)
    frame = to_spark(spark, rows).coalesce(1)
    frame = frame.mapInArrow(noting, frame.schema)
    released = dpp.spark.release(EVERY_QUERY[name](dpp.protect("p", max_rows_per_group=1, max_groups=2)), frame)
    if not isinstance(released, dpp.Cube):
        to_polars(released)
    assert log.read_text() == "read\n"


@on_both
def test_a_cached_answer_goes_where_a_new_one_goes(spark, tmp_path):
    pl.DataFrame({"p": range(60), "g": [1, 2] * 30, "x": [3.5] * 60}).write_parquet(tmp_path / "rows.parquet")
    frame = spark.read.parquet(str(tmp_path / "rows.parquet"))
    budget = dpp.Budget(epsilon=1, path=tmp_path / "ledger.db")
    grouped = dpp.protect("p", max_rows=1, budget=budget, dataset="visits").group_by({"g": [1, 2, 3]})
    query = grouped.agg(x=dpp.median("x", FINE, epsilon=0.25), n=dpp.len(epsilon=0.25))
    first = dp_polars.spark.release(query, frame, path=tmp_path / "one")
    again = dp_polars.spark.release(query, frame, path=tmp_path / "two")
    checkpoint = dp_polars.spark.release(query, frame)
    assert again.schema == checkpoint.schema == first.schema
    expected = to_polars(first).sort("g")
    for one in (to_polars(again), to_polars(checkpoint), pl.read_parquet(tmp_path / "two" / "*.parquet")):
        assert one.sort("g").equals(expected)
    assert budget.spent == 0.5
    assert not to_polars(dp_polars.spark.release(query, frame, ignore_cache=True)).sort("g").equals(expected)
    assert budget.spent == 1
    assert budget.answers()["source"].to_list() == ["Spark DataFrame"] * 2


@on_both
def test_columns_that_the_schema_has_without_nulls_share_their_number_of_rows(spark, tmp_path):
    rows = {"p": range(60), "g": [1, 2] * 30, "x": [3, 3, None, None] * 15, "y": [1, 4] * 30, "f": [1.5] * 60}
    pl.DataFrame(rows).write_parquet(tmp_path / "rows.parquet")
    frame = spark.read.parquet(str(tmp_path / "rows.parquet"))
    for made, expected in (
        (frame, []),
        (frame.withColumn("x", sf.coalesce("x", sf.lit(0))), ["rows, x"]),
        (frame.select("p", "g", *(sf.coalesce(one, sf.lit(0)).alias(one) for one in "xyf")), ["rows, x, y"]),
        (frame.select("p", "g", "f", "y", (sf.coalesce("x", sf.lit(0)) + sf.col("y")).alias("x")), []),
    ):
        budget = dpp.Budget(rho=10**9)
        grouped = dpp.protect("p", max_groups=1, max_rows_per_group=1, budget=budget).group_by({"g": [1, 2]})
        means = {name: dpp.mean(name, 0, 10, step=1, rho=10**6) for name in ("x", "y", "f")}
        query = grouped.agg(rows=dpp.len(rho=10**6), **means)
        released = to_polars(dp_polars.spark.release(query, made)).sort("g")
        names = [what.partition(":")[0] for what in budget.log()["what"] if "number of rows" in what]
        assert [one for one in names if "," in one] == expected
        assert budget.spent == 4 * 10**6
        true = to_polars(made).group_by("g").agg(pl.len(), pl.col("x", "y").mean()).sort("g")
        assert released["rows"].to_list() == true["len"].to_list()
        for name in ("x", "y"):
            assert released[name].to_list() == pytest.approx(true[name].to_list(), abs=0.01)


def test_other_preprocessing_is_another_data_set(spark, tmp_path):
    pl.DataFrame({"p": range(60), "g": ["a%", "a#"] * 30, "x": [3.5] * 60}).write_parquet(tmp_path / "rows.parquet")
    pl.DataFrame({"p": range(9), "g": ["a%"] * 9, "x": [3.5] * 9}).write_parquet(tmp_path / "more.parquet")
    budget = dpp.Budget(epsilon=1000, path=tmp_path / "ledger.db")
    query = dpp.protect("p", budget=budget, dataset="visits").agg(n=dpp.n_people(epsilon=1))

    def of(name="rows.parquet"):
        return spark.read.parquet(str(tmp_path / name))

    def partner(side):
        one, two = of().alias("one"), of("more.parquet").alias("two")
        return one.join(two, sf.col(f"{side}.p") == 3, "cross").select("one.*")

    window = Window.partitionBy("p").orderBy("x")
    others = [
        of,
        lambda: of("more.parquet"),
        lambda: of().filter("x > 3"),
        lambda: of().filter("x > 2"),
        lambda: of().filter("g = '#1'"),
        lambda: of().filter("g = '#2'"),
        lambda: of().filter(sf.expr("g like 'a#%' escape '#'")),
        lambda: of().filter(sf.expr("g like 'a#%' escape '~'")),
        lambda: of().filter(sf.col("g").isin("a%", "b")),
        lambda: of().filter(sf.col("g").isin("a%", "c")),
        lambda: of().withColumn("s", sf.sum("x").over(window)),
        lambda: of().withColumn("s", sf.count("x").over(window)),
        lambda: of().select("p", *[(sf.col("x") + i).alias(f"x{i}") for i in range(40)]),
        lambda: of().select("p", *[(sf.col("x") + i).alias(f"x{i}") for i in range(39)], sf.lit(2).alias("x39")),
        lambda: of().join(of("more.parquet"), "p"),
        lambda: partner("one"),
        lambda: partner("two"),
    ]
    assert len({text_of_frame(other()) for other in others}) == len(others)
    assert [text_of_frame(other()) for other in others] == [text_of_frame(other()) for other in others]
    for number, other in enumerate(others[1:3], 1):
        drawn = to_polars(dp_polars.spark.release(query, other()))
        assert budget.spent == number
        assert to_polars(dp_polars.spark.release(query, other())).equals(drawn)
        assert budget.spent == number
    without = [
        lambda: of().withColumn("y", sf.udf(lambda x: x, "double")("x")),
        lambda: of().mapInPandas(lambda parts: parts, of().schema),
        lambda: spark.createDataFrame([(1, 2.0)], ["p", "x"]),
        lambda: of().filter(sf.rand(3) < 2),
        lambda: of().withColumn("y", sf.current_timestamp()),
    ]
    assert [text_of_frame(other()) for other in without] == [None] * len(without)
    for again in (3, 4):
        dp_polars.spark.release(query, without[0]())
        assert budget.spent == again


@on_both
@pytest.mark.parametrize("to_file", [True, False])
def test_an_undisturbed_release_draws_each_group_once(spark, tmp_path, to_file):
    assert release_logged(spark, tmp_path, 0, to_file=to_file) == 0


def executor_of(pid):
    """The executor's JVM that started a Python worker."""
    while b"CoarseGrainedExecutorBackend" not in Path(f"/proc/{pid}/cmdline").read_bytes():
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid


@on_both
@pytest.mark.parametrize(("to_file", "drawn_before"), [(True, 0), (True, 3), (False, 3)])
def test_an_executor_killed_in_the_middle_of_a_draw(spark, tmp_path, to_file, drawn_before):
    def kill(log):
        while len(drawn := draws_of(log)) <= drawn_before:
            time.sleep(0.02)
        os.kill(executor_of(drawn[-1][0]), signal.SIGKILL)

    # What it was drawing is drawn again by another, and only that is published.
    assert release_logged(spark, tmp_path, 1.5, to_file=to_file, disturb=kill) > 0


def fail():
    msg = "secret-hiv"
    raise ValueError(msg)


@on_both
@pytest.mark.parametrize("to_file", [True, False])
def test_a_task_that_fails_after_its_draw(spark, tmp_path, to_file):
    """Spark runs it again, which draws anew: what the failed one drew is not published."""
    assert release_logged(spark, tmp_path, 0, to_file=to_file, first=fail) > 0


def in_a_process(function, *arguments):
    """Run a function of this file in a process of its own, which has a session of its own."""
    code = f"from {__name__} import *; {function.__name__}(*{arguments!r})"
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=False)


def release_and_die(folder, most_cells):
    """A release whose first draw kills the driver: where Spark Connect is spoken, that is the client."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    dp_polars.spark._MOST_CELLS = most_cells
    folder, driver = Path(folder), os.getpid()
    budget = dpp.Budget(epsilon=2, path=folder / "ledger.db")
    query, nobody = of_nobody(
        started(folder), folder / "draws", budget, pause=15, first=lambda: os.kill(driver, signal.SIGKILL)
    )
    dp_polars.spark.release(query, nobody, path=folder / "released")


def is_running(pid):
    """Whether there is a process, and it has not ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes() != b""
    return False


@on_both
@pytest.mark.parametrize("most_cells", [0, 2**60])
def test_a_driver_that_dies_between_charge_and_answer(spark, tmp_path, most_cells):
    """While executors draw, or itself: the charge stays, nothing is published, and the next release is another draw."""
    died = in_a_process(release_and_die, str(tmp_path), most_cells)
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()
    drawn = draws_of(tmp_path / "draws")
    while any(is_running(pid) for pid, *_ in drawn):  # until Spark's processes have gone, too
        time.sleep(0.1)
    assert any(is_first for _, is_first, _ in drawn)
    budget = dpp.Budget(epsilon=2, path=tmp_path / "ledger.db")
    assert budget.spent == 1
    assert not [*(tmp_path / "released").glob("[!_]*"), *(tmp_path / "released").glob("_SUCCESS")]
    released = dp_polars.spark.release(*of_nobody(spark, tmp_path / "again", budget), path=tmp_path / "released again")
    assert budget.spent == 2
    assert not set(to_polars(released)["x"]) & {answer for _, _, answers in drawn for answer in answers}


def release_twice_with_slow_tasks(folder, master):
    """Releases in each of which a task sleeps after its draw, on a cluster that then runs another beside it."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    dp_polars.spark._MOST_CELLS = 0
    speculation = {"spark.speculation": "true", "spark.speculation.efficiency.enabled": "false"}
    speculation |= {f"spark.speculation.{name}": value for name, value in SPECULATION.items()}
    spark = started(Path(folder), master, **speculation)
    for to_file in (True, False):
        own = Path(folder) / f"to file {to_file}"
        own.mkdir()
        assert release_logged(spark, own, 0, to_file=to_file, first=partial(time.sleep, 45)) > 0
    spark.stop()


SPECULATION = {"interval": "200ms", "minTaskRuntime": "1s", "multiplier": "1", "quantile": "0.1"}


@on_both
def test_a_slow_task_that_runs_beside_another_one_like_it(tmp_path):
    """Spark takes another host for that, so workers of one machine have different addresses here."""
    with two_hosts(tmp_path) as master:
        done = in_a_process(release_twice_with_slow_tasks, str(tmp_path), master)
    assert done.returncode == 0, done.stderr.decode()


# --- Refusals -------------------------------------------------------------------------------------------------------


@pytest.fixture
def visits(spark):
    # Not of rows at hand: of these, Spark's optimizer makes all columns, also those that nothing reads.
    return (
        spark.range(1, 3)
        .select(
            sf.col("id").cast("int").alias("person"),
            sf.expr("if(id = 1, 'A', 'B')").alias("ward"),
            sf.expr("if(id > 0, 'flu', null)").alias("diagnosis"),
            sf.expr("cast(20 + 10 * id as int)").alias("age"),
            sf.lit(None).cast("array<int>").alias("stay"),
        )
        .withColumns(
            {
                "month": sf.expr("make_ym_interval(1, 2)"),
                "collated": sf.expr("ward collate utf8_lcase"),
                "fails": sf.expr("if(age > 0, cast(raise_error('secret-hiv') as string), 'flu')"),
            }
        )
    )


def asking(*exprs, keys=None, **arguments):
    frame = dpp.protect("person", max_groups=1, max_rows_per_group=1, **arguments)
    return frame.group_by(keys or {"ward": ["A", "B"]}).agg(*(exprs or [dpp.mode("diagnosis", ["flu"], epsilon=1)]))


# What does not fit the columns, or is an expression, is in the conformance suite.
REFUSED = {
    "not a query": (lambda: pl.col("x"), TypeError, "query must be a PrivateQuery, got Expr"),
    "data": (
        lambda: pl.DataFrame({"x": [1]}).dp.protect(None).agg(dpp.mode("x", [1], epsilon=1)),
        TypeError,
        "query must be built without data",
    ),
    "two budgets": (lambda: asking(budget=dpp.Budget(epsilon=1)), TypeError, "budget must be left out"),
    "array": (lambda: asking(dpp.mode("stay", [1], epsilon=1)), TypeError, "'stay' must be text .* got array<int>"),
    "months": (lambda: asking(dpp.mode("month", [1], epsilon=1)), TypeError, "got interval year to month"),
    "collation": (lambda: asking(keys={"collated": ["a"]}), TypeError, "got string collate UTF8_LCASE"),
    "padded text": (
        lambda: asking(dpp.mode("padded", ["flu"], epsilon=1)),
        TypeError,
        r"'padded' must not be padded text, got char\(8\)",
    ),
    "several people as one": (
        lambda: dpp.protect("collated", max_groups=1).agg(dpp.mode("ward", ["A"], epsilon=1)),
        TypeError,
        "the privacy unit 'collated' must have no collation",
    ),
    "people": (
        lambda: dpp.protect("patient", max_groups=1).agg(dpp.n_people(epsilon=1)),
        ValueError,
        "must have the privacy unit 'patient' as a column",
    ),
    "numbers of text": (
        lambda: asking(dpp.sum("ward", 0, 1, epsilon=1).alias("w")),
        TypeError,
        "Output 'w': values must be numbers or booleans",
    ),
    "counted and asked": (
        lambda: asking(dpp.count("stay", epsilon=1), dpp.mode("stay", [1], epsilon=1).alias("top")),
        TypeError,
        "'stay' must be text .* got array<int>",
    ),
    "many digits": (
        lambda: asking(dpp.mean("fine", 0, 1, step=Decimal("0.01"), epsilon=1)),
        TypeError,
        r"Output 'fine': decimals .* at most 17 digits after the point, got .* Decimal\(precision=38, scale=18\)",
    ),
    "ends of intervals": (
        lambda: asking(dpp.len(epsilon=1), dpp.n_people(epsilon=1).alias("len_low")),
        ValueError,
        r"like the ends of a confidence interval, got \['len_low'\]",
    ),
    "nanoseconds": (
        lambda: asking(dpp.median("time", pl.Series([dt.datetime(2020, 1, 1)], dtype=pl.Datetime("ns")), epsilon=1)),
        TypeError,
        "Output 'time': candidates must have a type that Spark has, got Datetime",
    ),
}


@on_both
@pytest.mark.parametrize("case", REFUSED)
def test_what_can_not_run_on_spark_is_refused_before_the_charge(visits, case):
    make, kind, message = REFUSED[case]
    budget = dpp.Budget(epsilon=1)
    spark = visits.sparkSession
    spark.sql("create table if not exists padded (padded char(8)) using parquet")
    frame = visits.withColumn("time", sf.lit(dt.datetime(2020, 1, 1)).cast("timestamp_ntz")).crossJoin(
        spark.table("padded")
    )
    frame = frame.withColumn("fine", sf.col("age").cast("decimal(38,18)"))
    with pytest.raises(kind, match=message):
        dp_polars.spark.release(make(), frame, budget=budget, intervals=True)
    assert budget.spent == 0


def test_totals_of_people_that_spark_can_not_add_up_are_refused(visits):
    frame = visits.withColumn("fine", sf.col("age").cast("decimal(38,18)"))
    engine = dp_polars.spark._SparkEngine(frame, None)
    work = dpp.protect("person", max_rows=1).agg(dpp.len(epsilon=1)).n_rows_dropped(1, epsilon=1)._request.bind(engine)
    rows = pl.DataFrame(schema={"fine": pl.Decimal(38, 18)})
    total = spec_of(rows, "fine", dpp.sum("fine", 0, 1, step=Decimal("0.01"), epsilon=1).query, people=True)
    with pytest.raises(TypeError, match=r"n_rows_dropped: decimals .* at most 17 digits after .*, got .* scale=18\)"):
        engine.prepare(replace(work, per_person=replace(work.per_person, cut=(total,))))


@on_both
def test_frames_that_are_not_batches_of_a_spark_session_are_refused(spark):
    for frame in (pl.DataFrame({"ward": ["A"]}), spark.readStream.format("rate").load()):
        with pytest.raises(TypeError, match="frame must be a batch DataFrame"):
            dp_polars.spark.release(asking(), frame)


@on_both
def test_executors_with_another_version_are_refused_before_the_charge(visits, tmp_path, monkeypatch):
    budget = dpp.Budget(epsilon=1)
    monkeypatch.setattr(_workers, "_ready", set())
    monkeypatch.setattr(_workers, "VERSION", "0.0.1")
    with pytest.raises(RuntimeError, match=rf"must have dp_polars 0\.0\.1, got {dpp.__version__}\.\s+Hint: install"):
        dp_polars.spark.release(asking(), visits, budget=budget, path=tmp_path / "released")
    assert budget.spent == 0
    assert not _workers._ready


def release_without_the_package(folder):
    """Executors import whatever they like, but for this package."""
    python = Path(folder) / "python"
    hidden = "sys.modules['dp_polars'] = None; sys.argv = sys.argv[2:]"
    start = f"import runpy, sys; {hidden}; runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{start}" "$@"\n')
    python.chmod(0o755)
    spark, budget = started(Path(folder), "local[1]", python=python), dpp.Budget(epsilon=1)
    dp_polars.spark._MOST_CELLS = 0
    rows, path = spark.createDataFrame([(1, "A", "flu")], "person int, ward string, diagnosis string"), folder + "/new"
    with pytest.raises(RuntimeError, match=r"imports dp_polars failed on Spark's executors\.\s+Hint: install"):
        dp_polars.spark.release(asking(), rows, budget=budget, path=path)
    assert budget.spent == 0
    _workers._ready.add(spark)  # as if it had been there, and an executor without it had come since
    with pytest.raises(dpp.ReleaseError) as caught:
        dp_polars.spark.release(asking(), rows, budget=budget, path=path)
    assert caught.value.__cause__ is caught.value.__context__ is None
    assert budget.remaining == 0
    spark.stop()


@on_both
def test_executors_without_the_package_are_refused_before_the_charge(tmp_path):
    done = in_a_process(release_without_the_package, str(tmp_path))
    assert done.returncode == 0, done.stderr.decode()


def not_available(settings, name, default=None):
    """A server that keeps its settings to itself."""
    raise pyspark.errors.PySparkException(f"{name} is not available")


@on_both
def test_answers_need_a_place(spark, visits, tmp_path, monkeypatch):
    budget = dpp.Budget(epsilon=1)
    twice = asking(dpp.mode("diagnosis", ["flu"], epsilon=1).alias("WARD"))
    for query, path, message in (
        (asking(), tmp_path, "path must be a folder that does not exist yet"),
        (asking(), tmp_path / "a[1]", "path must have none of the characters"),
        (asking(), "~/released", r"path must not begin with ~, got '~/released'"),
        (twice, tmp_path / "released", r"differ by more than case, got \['ward', 'WARD'\]"),
    ):
        with pytest.raises(ValueError, match=message):
            dp_polars.spark.release(query, visits, budget=budget, path=path)
    if CONNECT:
        monkeypatch.setattr(type(spark.conf), "get", not_available)
    else:
        monkeypatch.setattr(type(spark.sparkContext), "getCheckpointDir", lambda self: None)
    for query in (asking(), dpp.protect("person", max_groups=1).keys("ward", epsilon=1, delta=0.1)):
        with pytest.raises(
            ValueError, match=r'where executors draw .* directory\.\s+Hint: release\(…, path="s3://…/released"\), or '
        ):
            dp_polars.spark.release(query, visits, budget=budget)
    assert budget.spent == 0
    with pytest.raises(dpp.BudgetExceededError):  # no row is read: one of them would raise
        dp_polars.spark.release(
            asking(dpp.mode("fails", ["flu"], epsilon=2)), visits, budget=budget, path=tmp_path / "released"
        )
    assert budget.spent == 0
    assert not (tmp_path / "released").exists()


@on_both
def test_nothing_of_rows_that_are_at_hand_is_run_before_the_charge(spark, tmp_path):
    """Spark's optimizer casts the rows of a small local frame on the driver, and its errors quote them."""
    frame = spark.createDataFrame(pa.table({"text": ["secret-hiv"]})).select(sf.col("text").cast("int").alias("x"))
    with pytest.raises(Exception, match="secret-hiv"):
        frame.collect() if CONNECT else frame._jdf.queryExecution().optimizedPlan()
    budget = dpp.Budget(epsilon=1)
    query = dpp.protect(None).agg(dpp.median("x", range(10), epsilon=1))
    with pytest.raises(dpp.ReleaseError) as caught:
        dp_polars.spark.release(query, frame, budget=budget, path=tmp_path / "released")
    assert "secret" not in str(caught.value)
    assert budget.remaining == 0


@on_both
@pytest.mark.parametrize("where", ["file", "checkpoint", "driver"])
def test_failures_show_no_rows_and_publish_nothing(visits, tmp_path, where, monkeypatch, caplog, capfd):
    """Spark logs errors with their place in the query, and the client of Spark Connect all of them if asked to."""
    if where == "driver":
        monkeypatch.setattr(dp_polars.spark, "_MOST_CELLS", 10**6)
    logs = [logging.getLogger(name) for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger")]
    logs += [logging.getLogger(name) for name in ("pyspark.sql.connect.logging", "py4j.clientserver")]
    for log in logs:
        monkeypatch.setattr(log, "disabled", False)
        log.addHandler(caplog.handler)
        caplog.set_level(logging.DEBUG, log.name)
    plain = visits.sparkSession.createDataFrame([(1, "A", "flu")], "person int, ward string, diagnosis string")
    casts = plain.withColumn("casts", sf.expr("cast(concat('secret-', diagnosis) as int)"))
    path = tmp_path / "released"
    try:
        for frame, asked in (
            (visits, dpp.mode("fails", ["flu"], epsilon=1)),
            (casts, dpp.median("casts", [1, 2], epsilon=1)),
        ):
            budget = dpp.Budget(epsilon=1)
            caplog.clear()
            with pytest.raises(dpp.ReleaseError) as caught:
                dp_polars.spark.release(asking(asked), frame, budget=budget, path=path if where == "file" else None)
            shown = "".join(traceback.format_exception(caught.value))
            assert "secret" not in shown + "".join(capfd.readouterr())
            assert "secret-flu" not in caplog.text  # where plans are, with their constants
            assert caught.value.__cause__ is caught.value.__context__ is None
            assert not hasattr(caught.value, "__notes__")
            assert not list(path.rglob("*.parquet"))
            assert budget.remaining == 0  # the charge stays
        with pytest.raises(Exception, match="secret-flu"):
            casts.collect()
        assert "secret-flu" in caplog.text  # the same loggers, once nothing private runs
    finally:
        for log in logs:
            log.removeHandler(caplog.handler)


@on_both
@pytest.mark.parametrize("zone", ["+05:30", "PST", "Asia/Tokyo"])
def test_moments_are_the_same_in_every_zone_of_the_session(spark, tmp_path, zone):
    moments = [dt.datetime(2021, 1, day, tzinfo=dt.UTC) for day in (1, 2, 4)]
    to_spark(spark, pl.DataFrame({"moment": moments[1:2] * 9})).write.parquet(str(tmp_path / "rows"))
    rows = spark.read.parquet(str(tmp_path / "rows"))
    budget = dpp.Budget(epsilon=10_000, path=tmp_path / "ledger.db")
    query = dpp.protect(None, budget=budget, dataset="moments").agg(
        dpp.median("moment", moments, epsilon=1000),
        n=dpp.len(epsilon=1000),
        both=dpp.quantile("moment", [0.1, 0.9], moments, epsilon=1000),
        led=dpp.mode("moment", moments, epsilon=1000, gap=True),
    )
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        for number, shown in enumerate(({}, {"intervals": "all", "min_people": 9}, {"ignore_cache": True})):
            released = dp_polars.spark.release(query, rows, path=tmp_path / f"released {number}", **shown)
            columns = [sf.unix_seconds(name) for name in ("moment", "led.answer")]
            columns += [sf.unix_seconds(sf.col("both")[place]) for place in (0, 1)]
            assert [*released.select(*columns).first()] == [moments[1].timestamp()] * 4
            assert released.schema["both"].dataType.elementType == released.schema["moment"].dataType
        assert budget.spent == 8000
        hidden = dp_polars.spark.release(query, rows, path=tmp_path / "hidden", min_people=10).first()
        assert [*hidden] == [None, 9, None, None]
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)


@on_both
def test_the_page_on_spark_runs(spark, monkeypatch, capsys):
    page = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")
    code = re.search(r"^```py\n([\s\S]*?)^```$", page, re.MULTILINE)[1]
    rows = [(1, "A", "flu", 30), (2, "B", "flu", 40)]
    names = {
        "dpp": dpp,
        "DIAGNOSES": ["flu", "none"],
        "spark_frame": spark.createDataFrame(rows, "patient_id int, hospital string, diagnosis string, age int"),
        "budget": dpp.Budget(epsilon=1),
    }
    monkeypatch.setattr(dp_polars.spark, "_MOST_CELLS", 1 << 18)
    exec(code, names)
    assert to_polars(names["result"])["hospital"].sort().to_list() == ["A", "B", "C"]
    assert names["budget"].remaining == 0
    notebook = re.search(r"^%pip install dp-polars\n([\s\S]*?)^```$", page, re.MULTILINE)[1]
    names["spark_frame"].createOrReplaceTempView("visits")
    exec(notebook, {"spark": spark})
    assert re.fullmatch(r"\+-+\+\n\| *n\|\n\+-+\+\n\| *-?\d+\|\n\+-+\+\n\n", capsys.readouterr().out)


def test_spark_is_an_attribute_of_the_package():
    assert dpp.spark.release is dp_polars.spark.release
