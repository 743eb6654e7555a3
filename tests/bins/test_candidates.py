"""The public answers: lists, ranges and grids, and what is refused of them."""

import math
import pickle
import time
import tracemalloc
import zoneinfo
from datetime import UTC, date, datetime, timedelta
from datetime import time as clock
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_series_equal

import dp_polars as dpp
from dp_polars._bins.candidates import MOST, Categories, Grid, Points, ordered, size_of
from tests.helpers.refusals import refused
from tests.helpers.shared_memory import texts_in_memory_of_ones_own

BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")


def points(grid):
    return grid.take(np.arange(grid.size)).to_list()


# Lists of categories


NUMBERS = {"array": np.asarray, "series": pl.Series, "arrow": pa.array, "chunks": lambda of: pa.chunked_array([of])}


@pytest.mark.parametrize("read", [Categories.of, ordered])
@pytest.mark.parametrize("given_as", NUMBERS)
def test_numbers_that_are_written_to_later_stay_as_they_were(given_as, read):
    """As ones, five candidates would count a row five times."""
    numbers = np.array([1, 2, 3, 4, 6])
    candidates = read(NUMBERS[given_as](numbers))
    numbers[:] = 1
    assert candidates.values.to_list() == [1, 2, 3, 4, 6]


def test_texts_whose_bytes_are_written_to_later_stay_as_they_were():
    """Texts of more than 12 bytes are not in Polars' columns themselves, which only refer to them."""
    for kind in (pl.Series, lambda texts: texts):
        texts, written = texts_in_memory_of_ones_own(["the first of them", "the second of them"])
        candidates = Categories.of(kind(texts))
        written[:] = ord("z")
        assert candidates.values.to_list() == ["the first of them", "the second of them"]


def test_every_way_to_give_categories_means_the_same():
    for given_as in (
        *(["b", "a"], ("b", "a"), pl.Series("name", ["b", "a"]), np.array(["b", "a"]), pa.array(["b", "a"])),
        *(pa.chunked_array([["b"], ["a"]]), pa.array(["b", "a"]).dictionary_encode(), pl.Enum(["b", "a"])),
        *(pl.Series(["b", "a"], dtype=pl.Enum(["a", "b", "c"])), pl.Series(["b", "a"], dtype=pl.Categorical)),
    ):
        values = Categories.of(given_as).for_column(pl.String())
        assert (values.dtype, values.to_list()) == (pl.String, ["b", "a"]), given_as


def test_categories_take_the_type_of_the_column_or_text():
    for given_as, column in (
        ([3, 1, 2], pl.Int8()),
        (range(3), pl.UInt64()),
        (np.array([2, 1], np.uint8), pl.Int64()),
        (pa.array([1, 2]), pl.Int128()),
        ([1.0, 2.0], pl.Int32()),
        ([2**64 - 1, 0], pl.UInt64()),
        ([True], pl.Boolean()),
        ([Decimal("1.5"), Decimal(2)], pl.Decimal(10, 2)),
        ([1, 2], pl.Decimal(10, 2)),
        ([date(2020, 2, 29)], pl.Date()),
        ([datetime(2020, 2, 29)], pl.Date()),
        ([datetime(2020, 2, 29, tzinfo=UTC)], pl.Datetime("ns", "Europe/Berlin")),
        ([timedelta(seconds=1)], pl.Duration("ms")),
        ([clock(12)], pl.Time()),
        (["a"], pl.Categorical()),
        (["a"], pl.Categorical(pl.Categories("name", "space"))),
        (["b", "a"], pl.Enum(["a", "b", "c"])),
    ):
        values = Categories.of(given_as).for_column(column)
        assert values.dtype == (pl.String if isinstance(column, pl.Categorical) else column)
        own = Categories.of(given_as).values
        assert values.cast(own.dtype).to_list() == own.to_list()


def test_the_type_of_the_column_can_name_the_categories():
    nothing, enum = Categories.of(None), pl.Enum(["z", "a"])
    assert nothing.for_column(pl.Boolean()).to_list() == [False, True]
    assert nothing.for_column(enum).to_list() == ["z", "a"]
    assert nothing.for_column(enum).dtype == enum
    refused(TypeError, "the column's type must be known", nothing.for_column, None)


def test_categories_that_the_column_can_not_hold():
    for given_as, column, message in (
        (["a"], pl.Int64(), "candidates of type String can't be categories of a column of type Int64."),
        ([1], pl.String(), "candidates of type Int64 can't be categories of a column of type String."),
        ([1], pl.Boolean(), "candidates of type Int64 can't be categories of a column of type Boolean."),
        ([True], pl.Int64(), "candidates of type Boolean can't be categories of a column of type Int64."),
        ([1], pl.Date(), "candidates of type Int64 can't be categories of a column of type Date."),
        ([date(2020, 1, 1)], pl.Datetime("us"), "can't be categories of a column of type Datetime"),
        ([date(2020, 1, 1)], pl.Datetime("us", "UTC"), "can't be categories of a column of type Datetime"),
        ([clock(1)], pl.Duration(), "candidates of type Time can't be categories"),
        ([datetime(2020, 1, 1)], pl.Datetime("us", "UTC"), "can't be categories of a column of type Datetime"),
        ([datetime(2020, 1, 1, tzinfo=UTC)], pl.Datetime("us"), "can't be categories of a column of type Datetime"),
        (["a"], pl.List(pl.String), r"can't be categories of a column of type List\(String\)"),
        (["a"], pl.Binary(), "can't be categories of a column of type Binary"),
        (["a"], pl.Float64(), "the column must not hold floats, got Float64"),
        (None, pl.Float64(), "the column must not hold floats, got Float64"),
        (["a"], pl.Null(), "can't be categories of a column of type Null"),
        ([1.0], pl.Float64(), r"the column must not hold floats, got Float64: .*\n\nHint: make integers, decimals or"),
        ([1, 2], pl.Float32(), "the column must not hold floats, got Float32"),
        ([300], pl.Int8(), "candidates must be values that a column of type Int8 can hold"),
        ([-1], pl.UInt64(), "candidates must be values that a column of type UInt64 can hold"),
        ([1.5], pl.Int64(), "candidates must be values that a column of type Int64 can hold"),
        ([Decimal("1.555")], pl.Decimal(10, 2), "candidates must be values that a column of type Decimal"),
        (["a", "x"], pl.Enum(["a"]), "candidates must be values that a column of type Enum"),
        ([datetime(2020, 1, 1, 1)], pl.Date(), "candidates must be values that a column of type Date can hold"),
        ([timedelta(microseconds=1)], pl.Duration("ms"), "candidates must be values that a column of type Dur"),
        ([datetime(1500, 1, 1)], pl.Datetime("ns"), "candidates must be values that a column of type Datetime"),
        ([2**63 - 1], pl.Int128(), r"type Int128 must lie strictly between -2\*\*63 and 2\*\*63 - 1.$"),
        ([10**9], pl.Decimal(38, 10), "strictly between .* multiples of the last digit"),
        (
            None,
            pl.String(),
            r"must be given for a column of type String, as .*\n\nHint: list them from public knowledge",
        ),
        (None, pl.Categorical(), "candidates must be given for a column of type Categorical"),
        (None, pl.Enum([]), "candidates must not be empty"),
    ):
        refused((TypeError, ValueError), message, Categories.of(given_as).for_column, column)


# What is refused of every list

WIDE = pa.array([Decimal("1.5")], pa.decimal256(50, 2))
AT_THE_END = pl.Series([2**63 - 1], dtype=pl.Int128)
TWO_ZONES = [datetime(2020, 1, 1), datetime(2020, 1, 2, tzinfo=UTC)]
BAD_LISTS = [
    ([], ValueError, "candidates must not be empty."),
    (range(0), ValueError, "candidates must not be empty."),
    (pl.Series([], dtype=pl.String), ValueError, "candidates must not be empty."),
    ([1, None], ValueError, "candidates must not contain null."),
    ([None], ValueError, "candidates must not contain null."),
    (["a", None], ValueError, "candidates must not contain null."),
    (pa.array(["a", None]), ValueError, "candidates must not contain null."),
    (WIDE, TypeError, r"candidates must be of types that Polars knows, got decimal256\(50, 2\)\."),
    ([1.0, math.nan], ValueError, "candidates must not contain NaN."),
    ([1, 2, 1], ValueError, "candidates must not repeat, got 1 more than once."),
    (["a", "a"], ValueError, "candidates must not repeat, got 'a' more than once."),
    ([0.0, -0.0], ValueError, "candidates must not repeat, got "),
    ([1, 1.0], ValueError, "candidates must not repeat, got "),
    (["a", 1], TypeError, r"candidates must be of one type that Polars knows, got \['int', 'str'\]."),
    ([True, 1], TypeError, r"candidates must be of one type, got \['bool', 'int'\]."),
    # What Polars would change without a word.
    ([2**53 + 1, 0.5], TypeError, "candidates must be values that one .* exactly, got 9007199254740993 for Float64"),
    ([np.float32(0.1), 0.1], TypeError, "candidates must be values that one .* exactly, got 0.1 for Float32"),
    ([Fraction(1, 3)], TypeError, r"candidates must be values that .* exactly, got Fraction\(1, 3\) for Float64"),
    ([np.timedelta64(1, "ns")], TypeError, "candidates must be values that one Polars type holds exactly"),
    ([10**400, 0.5], TypeError, "candidates must be "),
    ([Decimal(10) ** 40], TypeError, "candidates must be "),
    ([np.longdouble(1) / 3], TypeError, "candidates must be of one type that Polars knows"),
    (np.array([1, 2], np.longdouble), TypeError, "candidates must be text, numbers, booleans or times, got Object"),
    (np.array([1, 2], object), TypeError, "candidates must be text, numbers, booleans or times, got Object"),
    ([np.uint64(2**63 + 1), np.int64(-1)], TypeError, "candidates must be of one type that Polars knows"),
    ([2**63 + 1, -1], TypeError, "candidates must be integers that fit into 64 bits"),
    (np.ma.array([1, 2], mask=[False, True]), ValueError, "candidates must not contain null."),
    (pl.Series([2**53 + 1, None]), ValueError, "candidates must not contain null."),
    (
        pd.Series([2**53 + 1, None], dtype="Int64"),
        (TypeError, ValueError),  # before pandas 3 a Series has no Arrow interface
        r"candidates must (not contain null|be a list, .*, got pandas\.Series)\.",
    ),
    ([Decimal(1), 1], TypeError, r"got \['Decimal', 'int'\]."),
    ([date(2020, 1, 1), datetime(2020, 1, 2)], TypeError, r"got \['date', 'datetime'\]."),
    (TWO_ZONES, TypeError, r"got \['datetime', 'datetime with time zone'\]."),
    ([5, 2**64], TypeError, r"candidates must be integers that fit into 64 bits."),
    ([-1, 2**63], TypeError, r"candidates must be integers that fit into 64 bits."),
    ([b"a"], TypeError, "candidates must be text, numbers, booleans or times, got Binary."),
    ([[1]], TypeError, r"candidates must be text, numbers, booleans or times, got List\(Int64\)."),
    (pl.DataFrame({"a": ["x"], "b": ["y"]}), TypeError, "candidates must be text, numbers, booleans or times, got Str"),
    (np.ones((2, 2)), TypeError, "candidates must be text, numbers, booleans or times, got Array"),
    ("abc", TypeError, "candidates must be a list, a range, a Series or a NumPy or Arrow array, got str."),
    (b"abc", TypeError, "got bytes."),
    ({1, 2}, TypeError, "got set."),
    ({"a": 1}, TypeError, "got dict."),
    ((x for x in "ab"), TypeError, "got generator."),
    (3, TypeError, "got int."),
    (pl.col("a"), TypeError, "got Expr."),
    (pl.String, TypeError, "got DataTypeClass."),
    (AT_THE_END, ValueError, r"type Int128 must lie strictly between -2\*\*63 and 2\*\*63"),
    ([Decimal(10) ** 30], ValueError, "strictly between .* multiples of the last digit"),
]


@pytest.mark.parametrize("read", [Categories.of, ordered])
@pytest.mark.parametrize(("given_as", "error", "message"), BAD_LISTS)
def test_lists_that_are_refused(given_as, error, message, read):
    refused(error, message, read, given_as)


def test_two_numbers_in_parentheses_are_no_range():
    for given_as, hint in (
        ((-60, 1440), r"range\(-60, 1441\) has all between them. If you mean just the two: \[-60, 1440\]\."),
        ((0.5, 2), r"dp_polars\.grid\(0.5, 2, step=…\) has all between them"),
        ((date(2020, 1, 1), date(2021, 1, 1)), r"dp_polars\.grid\(datetime.date\(2020, 1, 1\), "),
    ):
        refused(TypeError, rf"got \(.*\): these would be just two candidates\.\n\nHint: {hint}", ordered, given_as)
        assert ordered(list(given_as)).size == 2
        assert ordered((*given_as, given_as[1] + (given_as[1] - given_as[0]))).size == 3


def test_too_many_categories_are_refused_before_they_are_made():
    ranges = (range(10**9), range(10**30), range(10**9, 0, -1), range(0, 10**9, 7))
    words = r"candidates must be at most 10,000,000 values, got [\d,]+\.\n\nHint: make fewer"
    for many in (*ranges, pl.Series([0]).new_from_index(0, MOST + 1)):
        refused(ValueError, words, Categories.of, many)
    assert len(Categories.of(range(10**6)).for_column(pl.Int64())) == 10**6


def test_sizes_are_known_without_a_look():
    for values in (range(0, 10, 3), range(10, 0, -3), range(5, 5), range(5, 0), [1, 2], pl.Series([1, 2, 3])):
        assert size_of(values) == len(values)
    assert size_of(range(0, 10**30, 10**29)) == 10
    assert size_of(pa.array([1])) == 1
    assert [size_of(values) for values in ("abc", 3, iter([1]))] == [0, 0, 0]


def test_a_mode_takes_no_grid_and_a_quantile_what_is_finite_and_has_an_order():
    refused(TypeError, "candidates must be a list or a range, got a grid", Categories.of, dpp.grid(0, 3, step=1))
    for given_as in (["a"], [True], pl.Enum(["a"]), pl.Series(["a"], dtype=pl.Categorical)):
        refused(TypeError, "candidates", ordered, given_as)
    for end in (math.inf, -math.inf):
        refused(ValueError, r"candidates must be finite, got an infinite one\.", ordered, [0.0, end])


# Candidates in order


def test_lists_are_sorted_and_keep_their_type():
    assert ordered([2.5, -1, 7]).values.to_list() == [-1, 2.5, 7]
    answers = ordered(pl.Series([9, 1, 4], dtype=pl.Int8))
    assert answers.dtype == pl.Int8
    assert answers.take(np.array([2, 0, 1, 2])).to_list() == [9, 1, 4, 9]


def test_evenly_spaced_lists_are_grids():
    for given_as in (
        *([4, 2, 6], pl.Series([250, 0, 125], dtype=pl.UInt8), [2**64 - 1, 2**64 - 3, 2**64 - 5]),
        *([-(2**63), -1, 2**63 - 2], [Decimal("0.5"), Decimal("0.25"), Decimal("0.75")]),
        *([date(2020, 1, 8), date(2020, 1, 1)], [clock(3), clock(1), clock(2)], [timedelta(0), timedelta(hours=2)]),
        [datetime(2020, 1, 1, tzinfo=BERLIN), datetime(2020, 1, 2, tzinfo=BERLIN)],
    ):
        grid = ordered(given_as)
        assert isinstance(grid, Grid)
        assert points(grid) == sorted(given_as)
        assert grid.dtype == pl.Series(given_as).dtype


def test_other_lists_are_points():
    for given_as in ([1, 2, 4], [5], [0.0, 1.0, 2.0], [-(2**63), 2**63 - 1], [Decimal("1e-20")]):
        found = ordered(given_as)
        assert (type(found), found.size) == (Points, len(given_as))
        assert found.take(np.arange(found.size)).to_list() == sorted(given_as)


def test_ranges_are_grids():
    for given_as in (range(101), range(100, -1, -5), range(-7, 8, 3), range(2**53)):
        grid = ordered(given_as)
        assert (grid.dtype, grid.size) == (pl.Int64, len(given_as))
        ends = grid.take(np.array([0, grid.size - 1])).to_list()
        assert ends == sorted([given_as[0], given_as[-1]])
    words = r"a grid must have at most 2\*\*53 points, got [\s\S]*Hint: take a wider"
    for wide in (range(2**54), range(2**80)):
        refused(ValueError, words, ordered, wide)


def test_candidates_do_not_change_with_what_they_came_from():
    array, series, listed = np.array([5, 1, 2]), pl.Series([5, 1, 2]), [5, 1, 2]
    found = [read(source) for source in (array, series, listed) for read in (Categories.of, ordered)]
    array[:], series[0], listed[0] = 7, 7, 7
    assert {tuple(sorted(candidates.values.to_list())) for candidates in found} == {(1, 2, 5)}


def test_candidates_are_values():
    assert Categories.of(["a", "b"]) == Categories.of(pl.Series(["a", "b"]))
    assert Categories.of(["a", "b"]) != Categories.of(["b", "a"])
    assert Categories.of(["1"]) != Categories.of([1])
    assert Categories.of(None) == Categories.of(None)
    assert Categories.of(None) != Categories.of([True, False])
    assert Categories.of(["a"]) != ordered([1])
    assert ordered([1.5, 2]) == ordered([2, 1.5])
    assert dpp.grid(0, 1, step=0.1) == dpp.grid(0.0, Fraction(1), step=Fraction(1, 10))
    assert dpp.grid(0, 1, step=0.1) != dpp.grid(0, 1, step=0.2)
    for value in (Categories.of(["a"]), Categories.of(None), ordered([1.5, 2]), dpp.grid(0, 9, step=3)):
        again = pickle.loads(pickle.dumps(value))
        assert again == value
        assert hash(again) == hash(value)


def test_what_they_say():
    for candidates, said in (
        (Categories.of(["a"]), "1 candidate"),
        (Categories.of(list(range(1000))), "1,000 candidates"),
        (ordered([0.5, 2]), "2 candidates"),
        (Categories.of(None), "the categories of the column's type"),
        (dpp.grid(0, 10**9, step=1), "1,000,000,001 grid points"),
    ):
        assert str(candidates) == said


# Grids


LEAP = [date(2020, 2, 28), date(2020, 2, 29), date(2020, 3, 1)]


def test_grids_of_all_types():
    for start, stop, step, dtype, expected in (
        (0, 6, 2, pl.Int64(), [0, 2, 4, 6]),
        (5, 5, 1, pl.Int64(), [5]),
        (-5, -1, np.int8(2), pl.Int64(), [-5, -3, -1]),
        (2**63, 2**64 - 1, 2**63 - 1, pl.UInt64(), [2**63, 2**64 - 1]),
        (-(2**63), 2**63 - 1, 2**64 - 1, pl.Int64(), [-(2**63), 2**63 - 1]),
        (0, 0.3, 0.1, pl.Float64(), [0.0, 0.1, 0.2, 0.3]),
        (0.1, 0.7, 0.3, pl.Float64(), [0.1, 0.4, 0.7]),
        (0, 1, Fraction(1, 3), pl.Float64(), [0.0, 1 / 3, 2 / 3, 1.0]),
        (0, np.float32(0.2), 0.1, pl.Float64(), [0.0, 0.1, 0.2]),
        (Decimal("-0.5"), 1, Decimal("0.75"), pl.Decimal(38, 2), [Decimal(x) for x in ("-0.5", "0.25", "1")]),
        (Decimal(0), Decimal(9), Decimal(9), pl.Decimal(38, 0), [Decimal(0), Decimal(9)]),
        (Decimal(0), 1.0, 0.5, pl.Float64(), [0.0, 0.5, 1.0]),
        (Decimal("1e-18"), Decimal("9.000000000000000001"), 9, pl.Decimal(38, 18), None),
        (LEAP[0], LEAP[-1], "1d", pl.Date(), LEAP),
        (date(1960, 1, 1), date(1960, 1, 15), timedelta(weeks=2), pl.Date(), [date(1960, 1, 1), date(1960, 1, 15)]),
        (datetime(2020, 1, 1), datetime(2020, 1, 1, 3), "1h30m", pl.Datetime("us"), None),
        (datetime(2020, 1, 1), datetime(2020, 1, 1, 0, 0, 0, 2), "1us", pl.Datetime("us"), None),
        (timedelta(0), timedelta(hours=1), "20m", pl.Duration("us"), [timedelta(minutes=20 * i) for i in range(4)]),
        (clock(1), clock(2), "30m", pl.Time(), [clock(1), clock(1, 30), clock(2)]),
    ):
        grid = dpp.grid(start, stop, step=step)
        assert grid.dtype == dtype
        got = points(grid)
        assert got[0] == start
        assert got[-1] == (float(str(stop)) if dtype == pl.Float64 else stop)
        if expected is not None:
            assert got == expected
        assert grid.take(np.array([], np.int64)).dtype == dtype


def test_days_of_a_grid_in_a_time_zone_have_24_hours():
    # The clocks went forward on 29 March 2020.
    grid = dpp.grid(datetime(2020, 3, 28, tzinfo=BERLIN), datetime(2020, 3, 30, 1, tzinfo=BERLIN), step="1d")
    assert grid.dtype == pl.Datetime("us", "Europe/Berlin")
    assert [p.hour for p in points(grid)] == [0, 0, 1]


DAYS = (date(2020, 1, 1), date(2020, 1, 2))
THREE_FIT = r"^step must land on stop exactly, got start=0, stop=10, step=3\.\n\nHint: from start, 3 whole steps fit\.$"
BAD_GRIDS = [
    ((0, 10, 0), ValueError, r"^step must be greater than 0, got 0\.$"),
    ((0, 10, -1), ValueError, r"^step must be greater than 0, got -1\.$"),
    ((10, 0, -1), ValueError, "step must be greater than 0"),
    ((10, 0, 1), ValueError, r"^stop must not be below start, got start=10 and stop=0\.$"),
    ((0, 10, 3), ValueError, THREE_FIT),
    ((0, 1, 0.3), ValueError, "step must land on stop exactly"),
    ((0, math.nan, 1), ValueError, "stop must be finite, got nan"),
    ((-math.inf, 0, 1), ValueError, "start must be finite, got -inf"),
    ((0, 1, math.inf), ValueError, "step must be finite, got inf"),
    ((0, Decimal("Infinity"), 1), ValueError, "stop must be finite"),
    ((True, 2, 1), TypeError, "start must be a number .*, got True"),
    (("a", "b", 1), TypeError, "start must be a number .*, got 'a'"),
    ((0, 10, "1d"), TypeError, "step must be a number .*, got '1d'"),
    ((0, 10, timedelta(1)), TypeError, "step must be a number"),
    ((0, date(2020, 1, 1), 1), TypeError, "stop must be a number"),
    ((0, 10**18, 1), ValueError, r"at most 2\*\*53 points, got 1,000,000,000,000,000,001\.\n\nHint: take a wider step"),
    ((0, 2**64, 2**63), ValueError, "points of a grid of Int64 must fit into 64 bits"),
    ((-1, 2**63, 2**63 + 1), ValueError, "points of a grid of Int64 must fit into 64 bits"),
    ((Decimal(0), Decimal(10) ** 20, Decimal(10) ** 20), ValueError, "points of a grid of Decimal.* must fit into 64"),
    ((Decimal("1e-30"), Decimal(1), Decimal(1)), ValueError, "decimal grid must have at most 18 decimal places"),
    ((0, Fraction(10) ** 400, Fraction(10) ** 399), ValueError, r"Float64 must lie within ±2\*\*1000"),
    ((0, 1e-319, 1e-320), ValueError, r"its step must be at least 2\*\*-1000"),
    ((2**53 + 1, 2**53 + 5, 2.0), ValueError, "an integer of a grid of Float64 must be a float64 exactly, got 900719"),
    ((0, 10**300, 1e299), ValueError, "an integer of a grid of Float64 must be a float64 exactly"),
    ((*DAYS, 1), TypeError, "step must be a timedelta or a duration string .*, got 1"),
    ((*DAYS, "0d"), ValueError, "step must be greater than 0, got '0d'"),
    ((*DAYS, "-1d"), ValueError, "step must be greater than 0, got '-1d'"),
    ((*DAYS, timedelta(-1)), ValueError, "step must be greater than 0"),
    ((*DAYS, "2d"), ValueError, "step must land on stop exactly"),
    ((*DAYS, "1h"), ValueError, "whole number of days for Date, got '1h'"),
    ((*DAYS, "soon"), ValueError, 'must be a duration such as "1d" or "1h30m", got \'soon'),
    ((*DAYS, ""), ValueError, "step must be a duration such as"),
    ((date(2020, 1, 1), datetime(2020, 1, 2), "1d"), TypeError, "start and stop must be of one type"),
    ((date(2020, 1, 1), 5, "1d"), TypeError, "start and stop must be of one type"),
    ((date(2020, 1, 1), None, "1d"), TypeError, "start and stop must be of one type"),
    ((datetime(2020, 1, 1), datetime(2020, 1, 2), "1ns"), ValueError, "whole number of microseconds for Datetime"),
    ((datetime(2020, 1, 1, tzinfo=UTC), datetime(2020, 1, 2), "1h"), TypeError, "start and stop must be of one type"),
    ((clock(1), timedelta(1), "1h"), TypeError, "start and stop must be of one type"),
]


@pytest.mark.parametrize(("arguments", "error", "message"), BAD_GRIDS)
def test_grids_that_are_refused(arguments, error, message):
    start, stop, step = arguments
    refused(error, message, dpp.grid, start, stop, step=step)


def test_calendar_steps_are_refused_with_a_way_out():
    words = r"step must be a fixed duration, got [\s\S]*Hint: months[\s\S]*pass a list"
    for step in ("1mo", "1q", "1y", "2mo", "1y6mo", "1mo2d", "1d1mo", "-1mo"):
        refused(ValueError, words, dpp.grid, date(2020, 1, 1), date(2021, 1, 1), step=step)
    with pytest.raises(TypeError):
        dpp.grid(0, 10, 1)  # the step is a keyword


def _rounded(value: Decimal) -> Fraction:
    """To three significant digits."""
    with localcontext() as context:
        context.prec = 3
        return Fraction(+value)


@pytest.mark.parametrize("per_decade", [1, 3, 20, 100, 250])
def test_logarithmic_grids_are_powers_rounded_to_three_digits(per_decade):
    with localcontext() as context:
        context.prec = 60
        powers = [Decimal(10) ** (Decimal(k) / per_decade) for k in range(-5 * per_decade, 9 * per_decade + 1)]
    expected = [_rounded(power) for power in powers]
    assert len(set(expected)) == len(expected)
    assert dpp.grid(1e-5, 10**9, per_decade=per_decade).to_list() == [float(point) for point in expected]
    inner = [float(point) for point in expected if Fraction("0.0333") < point < Fraction("7.07")]
    assert dpp.grid(0.0333, 7.07, per_decade=per_decade).to_list() == [0.0333, *inner, 7.07]


def test_254_candidates_per_decade_would_repeat_digits():
    assert len({round(100 * 10 ** (k / 254)) for k in range(254)}) < 254
    with pytest.raises(ValueError, match=r"^per_decade must be at most 250, got 251: three digits tell hardly more"):
        dpp.grid(1, 10, per_decade=251)


def test_types_of_logarithmic_grids():
    for start, stop, per_decade, expected in (
        (1, 1000, 1, pl.Series([1, 10, 100, 1000])),
        (100, 1000, 4, pl.Series([100, 178, 316, 562, 1000])),
        (10, 100, 4, pl.Series([10.0, 17.8, 31.6, 56.2, 100.0])),  # not all are whole
        (1.0, 100, 1, pl.Series([1.0, 10.0, 100.0])),
        (5, 5, 20, pl.Series([5])),
        (1.121, 1.3, 20, pl.Series([1.121, 1.26, 1.3])),  # 10^(1/20) is more than 1.121, but rounded to 1.12
        (np.int8(2), 4, 1, pl.Series([2, 4])),
        (2**63, 2**64 - 1, 2, pl.Series([2**63, 10**19, 2**64 - 1], dtype=pl.UInt64)),
        (10**19, 10**20, 1, pl.Series([1e19, 1e20])),
        (Fraction(1, 3), Fraction(5, 2), 2, pl.Series([1 / 3, 1.0, 2.5])),
        (Decimal("0.5"), 7, 2, pl.Series(["0.50", "1.00", "3.16", "7.00"]).cast(pl.Decimal(38, 2))),
    ):
        assert_series_equal(dpp.grid(start, stop, per_decade=per_decade), expected, check_exact=True)


def test_logarithmic_grids_that_are_refused():
    one = {"per_decade": 1}
    for ends, options, error, message in (
        ((0, 1), one, ValueError, r"^start must be greater than 0 with per_decade, got 0\.\n\nHint: step"),
        ((-1, 1), one, ValueError, "start must be greater than 0 with per_decade, got -1"),
        ((2, 1), one, ValueError, "stop must not be below start, got start=2 and stop=1"),
        ((1, math.inf), one, ValueError, "stop must be finite"),
        ((1e-310, 1), one, ValueError, r"must lie between 2\*\*-1000 and 2\*\*1000"),
        ((1, 10**400), one, ValueError, r"must lie between 2\*\*-1000 and 2\*\*1000"),
        ((1, 10**25), one, ValueError, "an integer of a grid of Float64 must be a float64 exactly"),
        ((Decimal(1), Decimal(10**19)), one, ValueError, "points of a grid of Decimal.* must fit into 64"),
        ((True, 2), one, TypeError, "start must be a number"),
        ((date(2020, 1, 1), date(2021, 1, 1)), one, TypeError, "start must be a number"),
        ((1, 2), {"per_decade": 0}, ValueError, "per_decade must be at least 1, got 0"),
        ((1, 2), {"per_decade": 2.0}, TypeError, r"per_decade must be an integer, got 2\.0"),
        ((1, 2), {"per_decade": 2, "step": 1}, TypeError, r"^grid must get either step or per_decade, got both\."),
        ((1, 2), {}, TypeError, r"^grid must get either step or per_decade, got neither\.\n\nHint: step=0\.5 for"),
    ):
        refused(error, message, dpp.grid, *ends, **options)


def test_a_median_on_a_logarithmic_grid_needs_no_scale():
    frame = pl.DataFrame({"x": [3, 47, 7_000_000] * 50, "y": [0.02, 0.3, 40.0] * 50})
    asked = [
        dpp.median(name, dpp.grid(*ends, per_decade=20), epsilon=100)
        for name, *ends in (("x", 1, 10**9), ("y", 1e-6, 1e6))
    ]
    assert frame.dp.protect(None).agg(*asked).release().row(0) == (44.7, 0.316)
    assert frame.select(asked).row(0) == (44.7, 0.316)


def test_large_grids_cost_nothing():
    tracemalloc.start()
    begin = time.perf_counter()
    grids = [
        dpp.grid(0, 1e13, step=0.01),
        dpp.grid(0, 10**9, step=1),
        dpp.grid(Decimal(0), Decimal(10**13), step=Decimal("0.01")),
        dpp.grid(datetime(1900, 1, 1), datetime(2100, 1, 1), step="1us"),
    ]
    for grid in grids:
        assert grid.size > 10**9
        dpp.median("x", grid, epsilon=1)
        assert grid.take(np.array([grid.size - 1])).len() == 1
    elapsed = time.perf_counter() - begin
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert elapsed < 1
    assert peak < 1e6


@settings(deadline=None)
@given(st.integers(-(10**12), 10**12), st.integers(1, 10**6), st.integers(0, 12), st.integers(0, 10**6), st.data())
def test_float_points_are_the_decimals_they_stand_for(first, stride, places, size, data):
    scale = 10**places
    start, step = Fraction(first, scale), Fraction(stride, scale)
    grid = dpp.grid(start, start + step * size, step=step)
    codes = np.array(data.draw(st.lists(st.integers(0, size), max_size=5)), np.int64)
    if max(abs(first), abs(first + stride * size)) <= 2**53:
        assert grid.take(codes).to_list() == [float(start + step * int(code)) for code in codes]
    else:
        expected = [float(start + step * int(code)) for code in codes]
        assert grid.take(codes).to_list() == pytest.approx(expected, rel=1e-15)


@settings(deadline=None)
@given(st.integers(-(2**63), 2**63 - 1), st.integers(1, 2**64), st.integers(0, 2**53 - 1), st.data())
def test_integer_points_are_exact_up_to_the_ends(first, step, size, data):
    last = first + step * min(size, (2**63 - 1 - first) // step)
    grid = dpp.grid(first, last, step=step)
    codes = data.draw(st.lists(st.integers(0, grid.size - 1), max_size=5))
    assert grid.take(np.array(codes, np.int64)).to_list() == [first + step * code for code in codes]
