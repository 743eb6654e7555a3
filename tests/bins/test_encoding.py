"""From values to codes: every value to its candidate (modes) or to its nearest one (quantiles), row by row."""

import math
from datetime import UTC, date, datetime, timedelta
from datetime import time as clock
from decimal import Decimal
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import dp_polars as dpp
from dp_polars._bins import binning as encoding
from dp_polars._bins.binning import category_encoder, code_dtype, ordered_encoder
from dp_polars._bins.candidates import Categories, Grid, ordered
from tests.helpers.refusals import refused

INTEGERS = [pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64, pl.Int128, pl.UInt128]


def exact_candidates(candidates):
    if isinstance(candidates, Grid):
        return [candidates.start + i * candidates.step for i in range(candidates.size)]
    return [Fraction(x) for x in candidates.values.to_list()]


def nearest(candidates, value):
    """By the definition: nearest in exact numbers, ties down; `size` for what does not contribute."""
    exact = exact_candidates(candidates)
    if value is None or value != value:
        return len(exact)
    if math.isinf(value):
        return 0 if value < 0 else len(exact) - 1
    return min(range(len(exact)), key=lambda i: (abs(exact[i] - Fraction(value)), i))


def encode(candidates, column):
    codes = ordered_encoder(candidates, column.dtype)(column)
    assert codes.dtype == code_dtype(candidates.size)
    return codes.tolist()


@st.composite
def integer_columns(draw):
    """A column of some integer type, its values anywhere in it or close to one place in it."""
    dtype = draw(st.sampled_from(INTEGERS))()
    bits = int(str(dtype).lstrip("UInt"))
    low, high = (0, 2**bits - 1) if dtype.is_unsigned_integer() else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    center = draw(st.integers(low, high) | st.sampled_from([low, high]))
    value = st.integers(low, high) | st.integers(max(low, center - 30), min(high, center + 30))
    return pl.Series(draw(st.lists(st.none() | value, max_size=12)), dtype=dtype), center


@st.composite
def integer_candidates(draw, center):
    """Whole numbers close to a center, as 64 bits can hold them: a grid of them, or a list."""
    low = draw(st.integers(center - 40, center + 40))
    offsets = draw(st.lists(st.integers(0, 60), min_size=1, max_size=12, unique=True))
    step, size = draw(st.integers(1, 9)), draw(st.integers(1, 12))
    low = min(max(low, -(2**63)), 2**64 - 1 - max(max(offsets), step * size))
    values = [low + offset for offset in offsets]
    as_grid = draw(st.booleans())
    top = low + step * (size - 1) if as_grid else max(values)
    assume(top < 2**63 or low >= 0)
    return dpp.grid(low, top, step=step) if as_grid else ordered(values)


@pytest.mark.slow
@settings(deadline=None, max_examples=400)
@given(integer_columns(), st.data())
def test_integers_go_to_the_nearest_integer(column_and_center, data):
    column, center = column_and_center
    candidates = data.draw(integer_candidates(center))
    assume(str(column.dtype) not in ("Int128", "UInt128") or abs(exact_candidates(candidates)[-1]) < 2**62)
    assert encode(candidates, column) == [nearest(candidates, x) for x in column.to_list()]


def test_integers_beyond_64_bits_go_to_the_nearest_candidate_too():
    column = pl.Series([2**64 - 1, 2**64, 2**100, 0, -(2**100), None], dtype=pl.Int128)
    candidates = ordered([7, 2**64 - 2**20, 2**64 - 1])
    assert encode(candidates, column) == [nearest(candidates, x) for x in column.to_list()]


@pytest.mark.slow
@settings(deadline=None, max_examples=300)
@given(st.data())
def test_numbers_of_all_kinds_go_to_the_nearest_rational(data):
    """Grids with rational steps and lists, columns of integers, decimals and binary fractions: exact ties and all."""
    start = Fraction(data.draw(st.integers(-200, 200)), data.draw(st.integers(1, 7)))
    step = Fraction(data.draw(st.integers(1, 9)), data.draw(st.integers(1, 8)))
    size = data.draw(st.integers(1, 12))
    candidates = dpp.grid(start, start + step * (size - 1), step=step)
    quarters = data.draw(st.lists(st.none() | st.integers(-1000, 1000), max_size=12))
    kind = data.draw(st.sampled_from(["int", "decimal", "float64", "float32"]))
    if kind == "int":
        column = pl.Series(quarters, dtype=pl.Int16)
    elif kind == "decimal":
        column = pl.Series([None if q is None else Decimal(q) / 4 for q in quarters], dtype=pl.Decimal(20, 2))
    else:
        # A float is taken for the decimal that it prints as: at a tie of thirds it may fall to either side.
        assume(all((start + step * i / 2).denominator in (1, 2, 4, 8) for i in range(2 * size)))
        dtype = pl.Float64 if kind == "float64" else pl.Float32
        column = pl.Series([None if q is None else q / 4 for q in quarters], dtype=dtype)
    assert encode(candidates, column) == [nearest(candidates, x) for x in column.to_list()]


@pytest.mark.parametrize("candidates", [dpp.grid(0, 1, step=0.1), ordered([i / 10 for i in range(11)])])
def test_decimal_ties_of_floats_go_down(candidates):
    # In binary 0.15 lies below, 0.35 above the middle of its neighbours.
    ties = [0.05, 0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.95]
    assert encode(candidates, pl.Series(ties)) == list(range(10))
    above = [math.nextafter(tie, 2) + 1e-14 for tie in ties]
    assert encode(candidates, pl.Series(above)) == list(range(1, 11))


def test_all_hundredths_of_a_large_grid():
    candidates = dpp.grid(0, 10**6, step=0.01)
    codes = np.random.default_rng(3).integers(0, candidates.size, 100_000)
    assert encode(candidates, candidates.take(codes)) == codes.tolist()
    jitter = np.random.default_rng(4).uniform(-0.0049, 0.0049, len(codes))
    assert encode(candidates, candidates.take(codes) + pl.Series(jitter)) == codes.tolist()


@pytest.mark.parametrize("candidates", [dpp.grid(0, 10, step=0.01), ordered([0.0, 0.3, 10.0]), dpp.grid(0, 9, step=1)])
@pytest.mark.parametrize("dtype", [pl.Float64, pl.Float32])
def test_special_floats(candidates, dtype):
    huge = 1.7e308 if dtype == pl.Float64 else 3e38
    column = pl.Series([math.nan, None, math.inf, -math.inf, -0.0, 0.0, huge, -huge, 5e-324], dtype=dtype)
    top, nothing = candidates.size - 1, candidates.size
    assert encode(candidates, column) == [nothing, nothing, top, 0, 0, 0, top, 0, 0]


@pytest.mark.parametrize(
    "candidates",
    [dpp.grid(Fraction(-(2**1000)), Fraction(2**1000), step=Fraction(2**999)), ordered([-1.7e308, 1e-320, 1.7e308])],
)
def test_candidates_at_the_ends_of_the_floats(candidates):
    column = pl.Series([-1.79e308, 0.0, 1.79e308, None])
    assert encode(candidates, column) == [0, candidates.size // 2, candidates.size - 1, candidates.size]


TIMES = [
    (
        dpp.grid(date(2020, 1, 1), date(2020, 1, 31), step="1d"),
        pl.Series([datetime(2020, 1, 1, 12), datetime(2020, 1, 1, 12, 0, 0, 1), None, datetime(1900, 1, 1)]),
        [0, 1, 31, 0],
    ),
    (
        ordered([datetime(2020, 1, 1, 9), datetime(2020, 1, 3)]),
        pl.Series([date(2020, 1, 1), date(2020, 1, 2), date(2020, 1, 3), None]),
        [0, 0, 1, 2],
    ),
    (
        ordered([datetime(2020, 1, 1, tzinfo=UTC), datetime(2020, 1, 2, tzinfo=UTC), datetime(2020, 2, 1, tzinfo=UTC)]),
        pl.Series([datetime(2020, 1, 1), datetime(2020, 1, 2), datetime(2021, 1, 1)])
        .dt.replace_time_zone("Europe/Berlin")
        .dt.cast_time_unit("ms"),
        [0, 1, 2],
    ),
    (
        dpp.grid(timedelta(0), timedelta(hours=2), step="1h"),
        pl.Series([timedelta(minutes=30), timedelta(minutes=31), timedelta(-5), None], dtype=pl.Duration("ns")),
        [0, 1, 0, 3],
    ),
    (
        ordered([clock(8), clock(9), clock(17)]),
        pl.Series([clock(8, 30), clock(8, 30, 0, 1), clock(23), clock(0), None]),
        [0, 1, 2, 0, 3],
    ),
    (
        dpp.grid(datetime(1900, 1, 1), datetime(2100, 1, 1), step="1us"),
        pl.Series([datetime(1900, 1, 1, 0, 0, 0, 7), datetime(1700, 1, 1), datetime(2200, 1, 1)]),
        [7, 0, 73_049 * 86_400 * 10**6],
    ),
]


@pytest.mark.parametrize(("candidates", "column", "expected"), TIMES)
def test_times_go_to_the_nearest_time(candidates, column, expected):
    assert encode(candidates, column) == expected


def test_columns_that_have_no_such_quantile():
    for candidates, column, message in (
        (ordered([1]), pl.String(), "candidates of type Int64 can't be a quantile of a column of type String."),
        (ordered([1]), pl.Boolean(), "of type Int64 can't be a quantile of a column of type Boolean."),
        (ordered([1]), pl.Date(), "of type Int64 can't be a quantile of a column of type Date."),
        (ordered([1]), pl.Enum(["a"]), "can't be a quantile of a column of type Enum"),
        (ordered([1]), pl.Categorical(), "can't be a quantile of a column of type Categorical"),
        (ordered([1]), pl.List(pl.Int64), "can't be a quantile of a column of type List"),
        (ordered([1]), pl.Null(), "can't be a quantile of a column of type Null"),
        (ordered([clock(1)]), pl.Duration(), "of type Time can't be a quantile of a column of type Duration"),
        (ordered([date(2020, 1, 1)]), pl.Datetime("us", "UTC"), "of type Date can't be a quantile of a column of type"),
    ):
        refused(TypeError, message, ordered_encoder, candidates, column)


# Modes


def test_spans_of_63_bits_are_refused_and_shorter_ones_are_exact():
    """280 years are 2**62.93 nanoseconds, 500 years 2**63.8: their distances overflow, and far dates would be near."""
    dtype = pl.Datetime("ns")
    first = date(1750, 1, 1)
    days = [first + timedelta(days=n) for n in (0, 1, 40_000, 102_267)]
    fits = ordered(dpp.grid(first, days[-1], step="1d"))
    codes = ordered_encoder(fits, dtype)(pl.Series(days).cast(dtype))
    assert codes.tolist() == [0, 1, 40_000, 102_267]
    with pytest.raises(ValueError, match=r"must span less than 2\*\*63 units of the column's type"):
        ordered_encoder(ordered(dpp.grid(date(1700, 1, 1), date(2200, 1, 1), step="1d")), dtype)


@pytest.mark.parametrize("dtype", [pl.String, pl.Categorical, pl.Enum([f"{i}" for i in range(40)])])
@pytest.mark.parametrize("count", [1, 3, 40])
def test_text_has_the_codes_of_its_categories(dtype, count, monkeypatch):
    """In several parts, some with more categories than rows, some with nulls alone, some where a null comes first."""
    monkeypatch.setattr(encoding, "_PART", 7)
    rng = np.random.default_rng(count)
    known = [None, *map(str, rng.permutation(40)[:count].tolist())]
    values = [None] * 8 + [known[i] for i in rng.integers(0, len(known), 100)]
    listed = ["7", "0", *(str(i) for i in range(20, 40)), "13"]
    encode = category_encoder(Categories.of(listed), pl.Series([], dtype=dtype).dtype)
    expected = [listed.index(value) if value in listed else len(listed) for value in values]
    assert encode(pl.Series(values, dtype=dtype)).tolist() == expected


def test_a_value_that_is_no_candidate_does_not_contribute():
    for candidates, column, expected in (
        (["b", "a"], pl.Series(["a", "b", "c", None, ""]), [1, 0, 2, 2, 2]),
        (["b", "a"], pl.Series(["a", "b", "c", None], dtype=pl.Categorical), [1, 0, 2, 2]),
        (["b", "a"], pl.Series(["a", "b", "c", None], dtype=pl.Enum(["a", "c", "b"])), [1, 0, 2, 2]),
        (["", "ü"], pl.Series(["ü", "", "u"]), [1, 0, 2]),
        ([3, 1, 2], pl.Series([1, 2, 3, 4, 0, -5, None, 2**63 - 1]), [1, 2, 0, 3, 3, 3, 3, 3]),
        ([3, 1, 2**40], pl.Series([1, 2, 3, 4, 0, 2**40, None]), [1, 3, 0, 3, 3, 2, 3]),
        ([2**64 - 1, 5], pl.Series([5, 2**64 - 1, 2**63, 0, None], dtype=pl.UInt64), [1, 0, 2, 2, 2]),
        ([-(2**63), 2**63 - 1], pl.Series([2**63 - 1, -(2**63), -1, 0]), [1, 0, 2, 2]),
        ([-128, 127], pl.Series([-128, 127, 0], dtype=pl.Int8), [0, 1, 2]),
        ([0, 5], pl.Series([0, 5, None, 1], dtype=pl.Int16), [0, 1, 2, 2]),
        ([7, 2**62], pl.Series([7, 2**62, 2**100, -(2**100), None], dtype=pl.Int128), [0, 1, 2, 2, 2]),
        ([7, 2**62], pl.Series([7, 2**62, 2**100, None], dtype=pl.UInt128), [0, 1, 2, 2]),
        ([True], pl.Series([True, False, None]), [0, 1, 1]),
        (None, pl.Series([True, False, None]), [1, 0, 2]),
        (None, pl.Series(["y", None, "x"], dtype=pl.Enum(["x", "y", "unused"])), [1, 3, 0]),
        ([date(2020, 1, 1)], pl.Series([date(2020, 1, 1), date(2020, 1, 2), None]), [0, 1, 1]),
        (
            [Decimal("1.5"), Decimal(2)],
            pl.Series([Decimal("1.50"), Decimal("2.01"), Decimal(10) ** 20, None], dtype=pl.Decimal(38, 2)),
            [0, 2, 2, 2],
        ),
        ([clock(1)], pl.Series([clock(1), clock(2), None]), [0, 1, 1]),
        ([timedelta(1)], pl.Series([timedelta(1), timedelta(2), None], dtype=pl.Duration("ms")), [0, 1, 1]),
        (
            [datetime(2020, 1, 1, tzinfo=UTC)],
            pl.Series([datetime(2020, 1, 1), datetime(2020, 1, 2)]).dt.replace_time_zone("UTC"),
            [0, 1],
        ),
    ):
        codes = category_encoder(Categories.of(candidates), column.dtype)(column)
        assert codes.tolist() == expected


@pytest.mark.slow
@settings(deadline=None, max_examples=200)
@given(integer_columns(), st.data())
def test_categories_of_integers(column_and_center, data):
    column, center = column_and_center
    seen = sorted({x for x in column.to_list() if x is not None and -(2**63) < x < 2**63 - 1})
    values = data.draw(st.lists(st.sampled_from([*seen, min(max(center, 0), 100)]), min_size=1, unique=True))
    codes = category_encoder(Categories.of(values), column.dtype)(column)
    assert codes.tolist() == [values.index(x) if x in values else len(values) for x in column.to_list()]


# All of them


@pytest.mark.parametrize("size", [1, 254, 255, 256, 65_534, 65_535, 65_536, 2**32 - 1, 2**32])
def test_codes_are_as_small_as_they_can_be(size):
    dtype = code_dtype(size)
    assert dtype.kind == "u"
    assert np.iinfo(dtype).max >= size
    assert dtype.itemsize == 1 or np.iinfo(f"u{dtype.itemsize // 2}").max < size


@pytest.mark.parametrize(
    ("encoder", "column"),
    [
        (ordered_encoder(ordered(range(100)), pl.Int64()), pl.Series(np.arange(-50, 70_000) % 131)),
        (ordered_encoder(dpp.grid(0, 1, step=0.001), pl.Float64()), pl.Series(np.arange(70_050) / 70_000)),
        (category_encoder(Categories.of([3, 1, 2]), pl.Int64()), pl.Series(np.arange(70_050) % 5)),
        (category_encoder(Categories.of(["a", "b"]), pl.String()), pl.Series(["a", "b", "c"] * 23_350)),
    ],
)
def test_codes_are_made_row_by_row(encoder, column):
    """So that one person's rows change only their own codes: whatever stands beside a row, above or below."""
    whole = encoder(column)
    assert (encoder(column.reverse())[::-1] == whole).all()
    cut = len(column) // 3
    assert (np.concatenate([encoder(column[:cut]), encoder(column[cut:])]) == whole).all()
    assert encoder(column[:0]).tolist() == []
    holes = column.to_frame("x").select(pl.when(pl.int_range(pl.len()) % 7 != 0).then("x")).to_series()
    kept = np.arange(len(column)) % 7 != 0
    assert (encoder(holes)[kept] == whole[kept]).all()
    assert (encoder(holes)[~kept] == encoder(holes)[0]).all()
