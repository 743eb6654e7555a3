"""Sums of whole numbers are exact, and the same in any order, alone or among others, on every path of Polars."""

import itertools
import math
import random
import struct
from decimal import Decimal
from fractions import Fraction

import numpy as np
import polars as pl
import pytest

from dp_polars._steps import whole_numbers

STEP, LARGEST = Fraction(whole_numbers.STEP), whole_numbers.LARGEST
FLOATS = [0.0, -0.0, 0.1, -1.5, 1e-300, 5e-324, 2.0**-41, 3 * 2.0**-41, 1e12 + 0.3, LARGEST, -LARGEST, 0.7, None]
BEYOND = [math.nextafter(LARGEST, math.inf), -1e300, math.nan, math.inf, -math.inf]
NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8_0000_0000_0123))[0]


def summed(rows, dtype):
    """The sum and mean of the values of each group, which are lists of a row elsewhere."""
    w = whole_numbers
    value = pl.col("x")
    mark = w.is_beyond(value, dtype)
    rows = rows.with_columns(w=w.whole(value, dtype), b=pl.lit(value=False) if mark is None else mark)
    found = rows.group_by("p").agg(t=pl.col("w").sum(), n=pl.col("w").count(), b=pl.col("b").any())
    return found.select(
        "p",
        total="t",
        beyond="b",
        sum=w.sum_of(pl.col("t"), pl.Float64()),
        mean=w.mean_of(pl.col("t"), pl.col("n"), dtype),
    )


def rows_of_people(values, people=40, seed=1, most=9):
    rng = random.Random(seed)
    return [(person, rng.choice(values)) for person in range(people) for _ in range(rng.randint(1, most))]


def bits(plan, engine="in-memory"):
    return {row[0]: repr(row[1:]) for row in plan.collect(engine=engine).rows()}


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        (FLOATS, pl.Float64()),
        ([*FLOATS, *BEYOND, NAN], pl.Float64()),
        ([0.5, -0.25, 3e38, math.nan, None], pl.Float32()),
        ([2**63 - 1, -(2**63), 0, 7, None], pl.Int64()),
        ([2**94, 2**94 + 1, -(2**127), 3, None], pl.Int128()),
        ([Decimal("1.25"), Decimal("-9999999999.99"), None], pl.Decimal(12, 2)),
        ([Decimal(2**94) / 100, Decimal(10) ** 35, Decimal("0.01"), None], pl.Decimal(38, 2)),
        ([True, False, None], pl.Boolean()),
    ],
)
def test_an_answer_is_the_same_to_the_bit_alone_and_in_company(values, dtype):
    frame = pl.DataFrame(rows_of_people(values), schema={"p": pl.Int64, "x": dtype}, orient="row")
    together = bits(summed(frame.lazy(), dtype))
    for person in frame.partition_by("p"):
        (key,) = person["p"].unique()
        assert bits(summed(person.lazy(), dtype)) == {key: together[key]}
    for seed in range(3):
        shuffled = frame.sample(fraction=1, shuffle=True, seed=seed)
        chunks = pl.concat([shuffled[start : start + 7] for start in range(0, frame.height, 7)], rechunk=False)
        for rows, engine in itertools.product((shuffled, chunks), ("in-memory", "streaming")):
            assert bits(summed(rows.lazy(), dtype), engine) == together


def exact(value, unit):
    return round(Fraction(value) / unit)


@pytest.mark.parametrize(
    ("values", "dtype", "unit"),
    [
        (FLOATS, pl.Float64(), STEP),
        ([1e9 + 0.001, 1e9, 1e9 - 0.002], pl.Float64(), STEP),
        ([2.0**-40, 0.0, 2.0**-39], pl.Float64(), STEP),
        ([2**63 - 1, 2**63 - 2, -(2**63), None], pl.Int64(), 1),
        ([Decimal("1.25"), Decimal("-9999999999.99"), None], pl.Decimal(12, 2), Fraction(1, 100)),
    ],
)
def test_sums_are_exact_and_means_are_right(values, dtype, unit):
    rows = rows_of_people(values)
    frame = pl.DataFrame(rows, schema={"p": pl.Int64, "x": dtype}, orient="row")
    for person, total, beyond, _, mean in summed(frame.lazy(), dtype).collect().rows():
        numbers = [exact(value, unit) for key, value in rows if key == person and value is not None]
        count = len(numbers)
        assert (total, beyond) == (sum(numbers), False)
        if not numbers:
            assert mean is None
            continue
        centre = Fraction(sum(numbers), count)
        assert mean == pytest.approx(float(centre * unit), rel=2**-51, abs=0)


def test_as_many_of_the_largest_as_there_may_be_rows_do_not_wrap():
    largest = whole_numbers._LARGEST_WHOLE
    assert 2**32 * largest + 2**31 < 2**127
    assert int(LARGEST) * int(1 / STEP) == largest
    assert largest > 10**whole_numbers._LARGEST_POWER_OF_TEN
    assert 2**32 * largest < 10**38  # the digits of a Decimal
    frame = pl.DataFrame({"p": [1] * 100_000, "x": [LARGEST] * 100_000})
    (row,) = summed(frame.lazy(), pl.Float64()).collect().rows()
    assert row == (1, 100_000 * largest, False, 100_000 * LARGEST, LARGEST)


@pytest.mark.parametrize("value", [*BEYOND, NAN])
def test_what_is_beyond_is_no_number_and_is_marked(value):
    column, dtype = pl.col("x"), pl.Float64()
    frame = pl.DataFrame({"x": [value, None, LARGEST, -0.0]})
    mark = whole_numbers.is_beyond(column, dtype)
    found = frame.select(w=whole_numbers.whole(column, dtype), b=mark)
    assert found["w"].to_list() == [None, None, whole_numbers._LARGEST_WHOLE, 0]
    assert found["b"].to_list() == [True, False, False, False]


def test_sums_of_decimals_never_raise():
    dtype = pl.Decimal(38, 2)
    most = [Decimal(10) ** 35, Decimal(2**94) / 100, None]
    frame = pl.DataFrame({"x": pl.Series(most * 1000, dtype=dtype)})
    assert frame.select(whole_numbers.decimals(pl.col("x"), dtype).sum()).item() == Decimal(2**94) / 100 * 1000


# --- Floats that are equal are the same to the bit: two zeros, and NaN with any bits

WAYS = {
    "Float64": (pl.Float64, np.uint64, [0, 1 << 63], [0x7FF8 << 48, 0xFFF8 << 48, (0x7FF8 << 48) + 5], 48, 0x7FF0),
    "Float32": (pl.Float32, np.uint32, [0, 1 << 31], [0x7FC0 << 16, 0xFFC0 << 16, (0x7FC0 << 16) + 5], 16, 0x7F80),
}


def words_of(column, word):
    return column.to_numpy(allow_copy=True).view(word).tolist()


@pytest.mark.parametrize("kind", WAYS)
def test_equal_floats_are_the_same_to_the_bit(kind):
    dtype, word, zeros, nans, shift, infinite = WAYS[kind]
    others = [1 << shift, infinite << shift, (infinite << shift) - 1, (0x8000 | infinite) << shift]
    floats = np.array([*zeros, *nans, *others], word).view(word.__name__.replace("uint", "float"))
    frame = pl.DataFrame({"x": pl.Series(floats, dtype=dtype)})
    assert len(set(words_of(frame["x"], word))) == len(floats)  # so there is something to make alike
    found = words_of(frame.select(whole_numbers.of_one_kind("x", dtype()))["x"], word)
    assert found[: len(zeros)] == [0] * len(zeros)
    assert len({*found[len(zeros) : -len(others)]}) == 1
    assert found[-len(others) :] == others
