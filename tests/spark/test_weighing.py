"""Numbers by weights of people on Spark: to the last bit those of Polars."""

import numpy as np
import polars as pl
import pytest

import dp_polars as dpp
from dp_polars._bins.binning import OneCode
from dp_polars._engines.polars import engine as polars_engine
from dp_polars._mechanisms.person_weights import ARRAYS, UNIT, PersonWeight, bits_of_parts, part_of
from dp_polars._release.contract import ROWS_CUT, HistogramSpec, PerPerson
from dp_polars._release.protection import Limits
from tests.helpers.specs import as_frame
from tests.spark.tools import MARKS, need_spark, on_both, on_classic, to_polars, to_spark

need_spark()

from pyspark.sql import functions as sf

from dp_polars._engines.spark import counting, weighing
from dp_polars._engines.spark.rows import Groups

pytestmark = MARKS

WEIGHTS = [
    PersonWeight(None, 9, 1),
    PersonWeight(3, None, 1),
    PersonWeight(2, 7, 1),
    PersonWeight(None, 30, 2),
    PersonWeight(4, 33, 2),
]


def visits(rows=1500):
    """Rows of people of whom most have a few, and one has half of all; persons, keys and values are null at times."""
    rng = np.random.default_rng(11)
    person = np.where(rng.random(rows) < 0.5, 1, (rng.pareto(0.7, rows) * 4).astype(np.int64) % 90)

    def with_nulls(values, part=0.1):
        return pl.Series(values).set(pl.Series(rng.random(rows) < part), None)

    return pl.DataFrame(
        {
            "person": with_nulls(person, 0.02),
            "day": with_nulls(rng.integers(0, 3, rows).astype(np.float64) - 0.0, 0.02),
            "g": with_nulls(rng.integers(0, 40, rows) % (1 + person % 41)),
            "x": with_nulls(rng.normal(size=rows) * 3),
            "n": with_nulls(rng.integers(-(2**40), 2**40, rows)),
            "word": with_nulls(rng.choice(["a", "b", "c", "d"], rows)),
        },
        strict=False,
    ).with_columns(
        day=pl.when(pl.col("day") == 2).then(-0.0).otherwise("day"),
        text=pl.col("person").cast(pl.String) + "é",
    )


# What is asked: the statistic, of which column, and whether people count.
ASKED = [
    (dpp.len(epsilon=1), None, False),
    (dpp.n_people(epsilon=1), None, True),
    (dpp.count("x", epsilon=1), "x", False),
    (dpp.null_count("word", epsilon=1), "word", False),
    (dpp.sum("n", -(2**29), 2**29, epsilon=1), "n", False),
    (dpp.sum("x", -1, 3, step=0.25, per_person=(-2, 7), epsilon=1), "x", True),
    (dpp.mean("x", -1, 3, step=0.25, epsilon=1), "x", False),
    (dpp.var("n", -(2**29), 2**29, epsilon=1), "n", False),
    (dpp.value_counts("word", ["a", "b", "d"], epsilon=1), "word", False),
    (dpp.value_counts("word", ["a", "b", "d"], epsilon=1), "word", True),
]


def weighed_specs(frame, turn):
    """A spec of each statistic and part, each with another weight; and some whose people are drawn, or not weighed."""
    for number, (expr, column, people) in enumerate(ASKED):
        columns = () if column is None else (pl.col(column),)
        types = () if column is None else (frame.schema[column],)
        for part, rule in enumerate(expr.query.count_rules(*types)):
            weight = WEIGHTS[(number + part + turn) % len(WEIGHTS)]
            largest = 1 if rule.row_weight is None else rule.row_weight.largest
            yield HistogramSpec(columns, types, rule, Limits(), people, weight, bits_of_parts(largest))
    (of_words,) = ASKED[-1][0].query.count_rules(pl.String())
    yield HistogramSpec((pl.col("word"),), (pl.String(),), of_words, Limits(), people=True)
    (of_people,) = ASKED[1][0].query.count_rules()
    yield HistogramSpec((), (), of_people, Limits(rows_per_group=1), people=True)
    if turn % 2:  # beside specs with limits, which drop nothing here
        for expr, column in (
            (dpp.mode("word", ["a", "c"], epsilon=1), "word"),
            (dpp.median("x", [0, 3], epsilon=1), "x"),
        ):
            (rule,) = expr.query.count_rules(frame.schema[column])
            limits = Limits(groups=99, rows_per_group=10**6)
            yield HistogramSpec((pl.col(column),), (frame.schema[column],), rule, limits, people=column == "word")


@pytest.mark.parametrize(
    ("unit", "turn"), [(("person",), 0), (("day", "text"), 1), (("text",), 2), (("person",), 3), (("day", "text"), 4)]
)
@on_both
def test_weighed_numbers_are_those_of_polars(spark, few_tasks, unit, turn):
    frame = visits()
    keys = pl.DataFrame({"g": [*range(2, 37), 99]}) if turn != 3 else None
    specs = list(weighed_specs(frame, turn))
    rows = to_spark(spark, frame).repartition(3)
    parts = counting.histograms(rows, unit, Groups.of(rows, keys), specs, 1)
    assert len(parts) == 1  # one pass
    found = pl.concat([to_polars(part) for part in parts])
    assert not found["spec"].has_nulls()  # no row of no statistic
    found = found.group_by("spec", "group", "code").agg(pl.col("count").sum())
    expected = polars_engine.count(frame.lazy(), unit, keys, specs)
    in_part = [(one.weights % (1 << spec.bits) != 0).any() for one, spec in zip(expected, specs, strict=True)]
    assert sum(in_part) > 5  # limits bind
    for number, one in enumerate(expected):
        counts = found.filter(spec=number).drop("spec").sort("group", "code")
        assert counts.height > 0
        assert counts.equals(as_frame(one)), (specs[number], counts, as_frame(one))


@pytest.mark.parametrize("ansi", ["true", "false"])
@pytest.mark.parametrize("weight", [*WEIGHTS, PersonWeight(None, 2**62, 2), PersonWeight(None, 2**40, 1)], ids=str)
def test_the_arithmetic_of_weights_is_exact(spark, few_tasks, weight, ansi):
    """Of numbers of rows, norms and sums of any size, which no table here could have."""
    rng = np.random.default_rng(3)
    near = [max(0, (1 << bit) + off) for bit in range(62) for off in (-1, 0, 1)]
    n = np.array([*near, *(2 ** rng.uniform(0, 62, 2000)).astype(np.int64)])
    norm = np.maximum(rng.permutation(n), 1)
    norm[:2] = weight.most if weight.limit else 1, (weight.most if weight.limit else 0) + 1
    total = rng.permutation(n) * rng.choice([-1, 1], len(n))
    of_person = weight.of_norm(norm, ARRAYS) if weight.limit else np.full(len(n), UNIT)
    expected = {"person": of_person, "row": weight.of_rows(norm, n, ARRAYS)}
    expected["part"] = part_of(total, expected["row"], 0, ARRAYS)
    expected["fine part"] = part_of(total >> 22, expected["row"], 19, ARRAYS)
    of = weighing._OF
    rows = to_spark(spark, pl.DataFrame({"n": n, "norm": norm, "total": total}))
    found_of_person = weight.of_norm(sf.col("norm"), of) if weight.limit else sf.lit(UNIT).cast("long")
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        rows = rows.withColumn("person", found_of_person)
        rows = rows.withColumn("row", weight.of_rows(sf.col("norm"), sf.col("n"), of))
        rows = rows.withColumn("part", part_of(sf.col("total"), sf.col("row"), 0, of))
        rows = rows.withColumn("fine part", part_of(sf.shiftright("total", 22), sf.col("row"), 19, of))
        found = to_polars(rows.select(*expected))
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
    assert found.equals(pl.DataFrame({name: pl.Series(values) for name, values in expected.items()}))


CUT = {
    "rows": [(ASKED[0], WEIGHTS[0])],
    "people": [(ASKED[1], PersonWeight(None, 5, 2))],
    "codes of people": [(ASKED[9], WEIGHTS[2])],
    "several": [(ASKED[2], WEIGHTS[1]), (ASKED[3], WEIGHTS[2]), (ASKED[8], WEIGHTS[4])],
}


@pytest.mark.parametrize("case", CUT)
@on_both
def test_people_who_count_in_part_are_cut(spark, few_tasks, case):
    """And how many rows that is: of a person, for whom that is most, to the nearest whole number."""
    frame, keys = visits(700), pl.DataFrame({"g": range(12)})
    specs, rows_of_specs = [], []
    for (expr, column, people), weight in CUT[case]:
        columns, types = ((pl.col(column),), (frame.schema[column],)) if column else ((), ())
        (rule,) = expr.query.count_rules(*types)
        specs.append(HistogramSpec(columns, types, rule, Limits(), people, weight, bits=20))
        counts = {"x": pl.col("x").is_not_null(), "word": pl.col("word").is_in(["a", "b", "d"]), None: True}[column]
        rows = frame.filter(counts if rule.binning != OneCode(nulls=True) else pl.col("word").is_null())
        rows_of_specs.append(rows.unique(["person", "g", *([column] if column else [])]) if people else rows)
    expected = []
    for (person,), _ in frame.filter(pl.col("person").is_not_null(), pl.col("g") < 12).group_by("person"):
        cut = []
        for spec, contributing in zip(specs, rows_of_specs, strict=True):
            numbers = contributing.filter(person=person).filter(pl.col("g") < 12)["g"].value_counts()["count"].to_list()
            norm = sum(int(spec.weight.norm(n, ARRAYS)) for n in numbers)
            of_row = [int(spec.weight.of_rows(norm, n, ARRAYS)) for n in numbers]
            parts = sum(n * row for n, row in zip(numbers, of_row, strict=True))
            cut.append((any(row < UNIT for row in of_row), sum(numbers) - (parts + UNIT // 2) // UNIT))
        if any(is_cut for is_cut, _ in cut):
            expected.append(max(number for _, number in cut))
    per_person = PerPerson(("person",), keys, tuple(specs))
    found = to_polars(counting.one_row_per_person(to_spark(spark, frame), per_person))
    assert len(expected) > 2
    assert sorted(found[ROWS_CUT].to_list()) == sorted(expected)


@on_classic
def test_weighed_numbers_need_no_person_where_no_norm_binds(spark, few_tasks):
    """A cap alone needs no shuffle by person, and no window."""
    frame = visits(50)
    (rule,) = ASKED[0][0].query.count_rules()
    rows = to_spark(spark, frame)

    def plan(weight):
        specs = [HistogramSpec((), (), rule, Limits(), people=False, weight=weight, bits=20)]
        (counts,) = counting.histograms(rows, ("person",), Groups.of(rows, None), specs, 1)
        return counts._jdf.queryExecution().executedPlan().toString()

    assert "Window" not in plan(PersonWeight(3, None, 1))
    assert "Window" in plan(PersonWeight(3, 9, 1))
