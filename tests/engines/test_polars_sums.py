"""Rows that Polars groups and adds up by itself, against the same rows counted in arrays."""

import math
from datetime import date, datetime
from decimal import Decimal

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import dp_polars as dpp
from dp_polars._engines.polars import engine as polars_engine
from dp_polars._engines.polars.engine import count_rows, grouped
from dp_polars._release.contract import HistogramSpec, gathered
from tests.helpers.specs import as_frame, spec_of

ROWS = 3000
ENUM = pl.Enum(["a", "b", "c", "d"])
UINT64 = [2**64 - 1, 2**63, 2**63 - 1, 0]
# A column's type, its values, and listed ones: of few values, many side by side, and many far apart.
KEYS = {
    "booleans": (pl.Boolean, [True, False], [True]),
    "enums": (ENUM, ["a", "b", "c", "d"], ["d", "b"]),
    "texts": (pl.String, ["", "a", "b", "ä", "c" * 40], ["", "c" * 40, "ä", "zz"]),
    "many texts": (pl.String, [f"t{i}" for i in range(300)], [f"t{i}" for i in range(0, 300, 2)]),
    "small integers": (pl.Int8, range(-128, 128), range(-100, 100)),
    "integers": (pl.Int64, range(-50, 50), range(-20, 20)),
    "integers far apart": (pl.Int64, [i * 10**15 for i in range(50)], [i * 10**15 for i in range(0, 50, 3)]),
    "unsigned integers": (pl.UInt64, UINT64, UINT64[:3]),
    "one integer": (pl.Int32, range(5), [3]),
    "days": (pl.Date, [date(2024, 1, d) for d in range(1, 31)], [date(2024, 1, d) for d in range(5, 25)]),
}
# What is left to the arrays: values that Polars may take for equal where we don't, or the other way round.
OTHERS = {
    "times": (pl.Datetime("ms"), [datetime(2024, 1, 1), datetime(2024, 1, 2)], [datetime(2024, 1, 2)]),
    "decimals": (pl.Decimal(10, 2), [Decimal("1.00"), Decimal("2.50")], [Decimal("2.50")]),
    "wide integers": (pl.Int128, [2**100, 5], [2**100]),
    "categories": (pl.Categorical, ["a", "b", "c"], ["c", "a"]),
}


def rows_of(dtype, values):
    """Rows with keys, values and numbers of many types; with nulls, in several chunks."""
    rng = np.random.default_rng(0)

    def some(values, dtype=None):
        drawn = [None if rng.random() < 0.1 else values[rng.integers(len(values))] for _ in range(ROWS)]
        return pl.Series(drawn, dtype=dtype)

    frame = pl.DataFrame(
        {
            "key": some(list(values), pl.String if dtype == pl.Categorical else dtype).cast(dtype),
            "sex": some(["f", "m", "x"]),
            "code": some(list(range(12)), pl.Int16),
            "price": some([*rng.normal(5, 9, 50), math.nan, math.inf, -math.inf, 0.005, 0.015, 1e-320], pl.Float64),
            "cents": some([Decimal(int(n)).scaleb(-2) for n in rng.integers(-(10**6), 10**6, 50)], pl.Decimal(12, 2)),
            "age": some([*range(100), 2**63 - 1, -(2**63)], pl.Int64),
            "smokes": some([True, False]),
            "notes": some([["a"], []], pl.List(pl.String)),
        }
    )
    return pl.concat([frame[i : i + 700] for i in range(0, ROWS, 700)], rechunk=False)


def numbers(frame):
    """Tallies of numbers: of rows, of values and of sums, also of computed columns."""
    asked = [
        *(
            (None, dpp.len(epsilon=1)),
            ("notes", dpp.count("notes", epsilon=1)),
            ("price", dpp.count("price", epsilon=1)),
        ),
        ("price", dpp.sum("price", -5, 20, step=0.01, epsilon=1)),
        ("cents", dpp.sum("cents", -100, 500, step=5, epsilon=1)),
        ("age", dpp.sum("age", 0, 90, step=3, epsilon=1)),
        ("smokes", dpp.sum("smokes", 0, 1, epsilon=1)),
        (pl.col("price") * pl.col("age"), dpp.sum("price", -1000, 1000, step=0.25, epsilon=1)),
    ]
    specs = [spec_of(frame, column, asked.query) for column, asked in asked]
    mean = dpp.mean("price", 0, 10, step=0.1, epsilon=1).query
    return [*specs, *(spec_of(frame, "price", mean, part=part) for part in range(len(mean.changes())))]


def choices(frame):
    """Tallies with codes."""
    return [
        spec_of(frame, "sex", dpp.mode("sex", ["m", "f", "d"], epsilon=1).query),
        spec_of(frame, "code", dpp.mode("code", range(2, 9), epsilon=1).query),
        spec_of(frame, "smokes", dpp.value_counts("smokes", [True, False], epsilon=1).query),
    ]


def both(frame, keys, specs, monkeypatch, *, is_grouped=True):
    """The histograms by groups and by arrays; and whether Polars groups is as expected."""
    plans = []

    def noting(*arguments):
        plans.append(grouped(*arguments))
        return plans[-1]

    monkeypatch.setattr(polars_engine, "grouped", noting)
    arguments = (frame.lazy(), keys, specs, gathered(specs, HistogramSpec.counts_like), "streaming")
    found = count_rows(*arguments)
    assert [plan is not None for plan in plans] == [is_grouped]
    monkeypatch.setattr(polars_engine, "grouped", lambda *_: None)
    expected = count_rows(*arguments)
    for number in range(len(specs)):
        assert_frame_equal(as_frame(found[number]), as_frame(expected[number]))
    return plans[0]


@pytest.mark.parametrize("asked", [numbers, choices, lambda frame: numbers(frame) + choices(frame)[:1]])
@pytest.mark.parametrize("kind", KEYS)
def test_groups_are_those_of_arrays(kind, asked, monkeypatch):
    dtype, values, listed = KEYS[kind]
    frame = rows_of(dtype, values)
    specs = asked(frame)
    keys = pl.DataFrame({"key": pl.Series(list(listed), dtype=dtype)})
    plan = both(frame, keys, specs, monkeypatch)
    numeric = [name for name in plan.collect_schema() if name.startswith(("rows", "weight"))]
    assert {plan.collect_schema()[name] for name in numeric} == {pl.Int64}  # 32 bits would overflow
    two = keys.join(pl.DataFrame({"sex": ["x", "f"]}), how="cross").sample(fraction=1, shuffle=True, seed=1)
    both(frame, two, specs, monkeypatch)
    both(frame, None, specs, monkeypatch)
    both(frame[:0], two, specs, monkeypatch)
    both(frame[:0], None, specs, monkeypatch)


@pytest.mark.parametrize("kind", OTHERS)
def test_other_types_are_left_to_the_arrays(kind, monkeypatch):
    dtype, values, listed = OTHERS[kind]
    frame = rows_of(dtype, values)
    keys = pl.DataFrame({"key": pl.Series(listed, dtype=pl.String if dtype == pl.Categorical else dtype)})
    both(frame, keys, numbers(frame), monkeypatch, is_grouped=False)


def test_weights_of_choices(monkeypatch):
    frame = rows_of(*KEYS["integers"][:2])
    query = dpp.mode("code", range(12), counts=dpp.weights("price", max_weight=20, step=0.01), epsilon=1).query
    types = (pl.Int16(), pl.Float64())
    plain = spec_of(frame, "code", dpp.mode("code", range(12), epsilon=1).query)
    rule = query.count_rules(*types)[0]
    spec = type(plain)((pl.col("code"), pl.col("price")), types, rule, plain.limits, people=False)
    both(frame, pl.DataFrame({"key": range(-20, 20)}), [spec, plain], monkeypatch)


def test_medians_and_many_combinations_are_left_to_the_arrays(monkeypatch):
    frame = rows_of(*KEYS["integers"][:2])
    median = spec_of(frame, "age", dpp.median("age", range(100), epsilon=1).query)
    both(frame, None, [*numbers(frame), median], monkeypatch, is_grouped=False)
    monkeypatch.setattr(polars_engine, "_MOST_GROUPED", 41 * 8)
    keys = pl.DataFrame({"key": range(-20, 20)})
    both(frame, keys, choices(frame)[1:2], monkeypatch)
    monkeypatch.setattr(polars_engine, "_MOST_GROUPED", 41 * 8 - 1)
    both(frame, keys, choices(frame)[1:2], monkeypatch, is_grouped=False)


def test_a_weight_that_is_no_arithmetic_of_polars_is_numpys(monkeypatch):
    frame = pl.DataFrame({"key": [1, 1, 2], "x": pl.Series([2**64 - 1, 1, None], dtype=pl.UInt64)})
    huge = spec_of(frame, "x", dpp.sum("x", 0, 2**64, step=2**62, epsilon=1).query)
    both(frame, pl.DataFrame({"key": [1, 2]}), [huge], monkeypatch, is_grouped=False)


@pytest.mark.parametrize("kind", ["integers", "integers far apart", "texts", "many texts", "days"])
def test_values_that_nobody_listed_need_no_memory(kind, monkeypatch):
    """However many different values the private rows hold, groups are bounded by what is public."""
    dtype, _, listed = KEYS[kind]
    private = pl.Series(range(10_000), dtype=pl.Int32 if dtype == pl.Date else pl.Int64).cast(dtype)
    frame = pl.DataFrame({"key": private, "code": private})
    keys = pl.DataFrame({"key": pl.Series(list(listed), dtype=dtype)})
    spec = spec_of(frame, "code", dpp.mode("code", keys["key"], epsilon=1).query)
    plan = both(frame, keys, [spec], monkeypatch)
    span = 2 * len(listed) + 1
    assert plan.select(pl.col("key 0").n_unique()).collect().item() <= span
    assert plan.collect().height <= span**2


def test_constants_and_columns_by_the_names_of_ours(monkeypatch):
    """A constant counts for every row, and no column of the private rows is taken for one of the plan's."""
    frame = rows_of(*KEYS["integers"][:2]).rename({"key": "row", "code": "rows 0", "price": "key 0", "age": "weight 0"})
    keys = pl.DataFrame({"row": range(-20, 20)})
    specs = [
        spec_of(frame, None, dpp.len(epsilon=1).query),
        spec_of(frame, "weight 0", dpp.sum("weight 0", 0, 90, epsilon=1).query),
        spec_of(frame, "key 0", dpp.sum("key 0", 0, 90, step=0.5, epsilon=1).query),
        spec_of(frame, pl.lit(2.5), dpp.sum("key 0", 0, 90, step=0.5, epsilon=1).query),
        spec_of(frame, "rows 0", dpp.mode("rows 0", range(5), epsilon=1).query),
    ]
    both(frame, keys, specs, monkeypatch)
    both(frame, None, specs, monkeypatch)
