"""The seams: every row has the code and the weight that NumPy gives it, whatever SQL does with numbers."""

import datetime as dt
import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import polars as pl
import pytest

import dp_polars as dpp
from dp_polars._bins.binning import Beyond
from tests.registry import COLUMNS
from tests.sql.tools import MARKS, TYPES, histograms_of, need_ibis

need_ibis()

from dp_polars._engines.sql.arithmetic import code  # noqa: E402  # needs Ibis
from dp_polars._engines.sql.dialects import TESTED  # noqa: E402

pytestmark = MARKS
HUGE, TINY = 1.7976931348623157e308, 5e-324


def around(*values):
    """Floats, and their neighbours."""
    for value in values:
        yield from (math.nextafter(value, -math.inf), value, math.nextafter(value, math.inf))


def floats():
    """Ties of decimals, neighbours of ties, denormals, the largest, and what is no number."""
    rng = np.random.default_rng(11)
    values = [math.inf, -math.inf, math.nan, None, -0.0, 0.0, HUGE, -HUGE, TINY, -TINY, 2.2250738585072014e-308]
    ties = [i / 2 for i in range(-7, 8)] + [0.05, 0.15, 0.25, 0.35, 0.45, 1.05, 0.1 + 0.2, 1e15 + 0.5, 2.0**52 + 0.5]
    values += [*around(*ties), *around(*(-tie for tie in ties)), 2.0**53, -(2.0**63), 1e22, 1e-9, -1e-9, 1e-320, 1e300]
    values += (rng.integers(-400, 400, 300) / 20).tolist() + rng.normal(0, 3, 100).tolist()
    values += (10.0 ** rng.uniform(-300, 300, 40)).tolist() + (-(10.0 ** rng.uniform(-300, 300, 40))).tolist()
    return values


def integers():
    rng = np.random.default_rng(12)
    ends = [2**63 - 1, -(2**63), 2**63 - 2, 1 - 2**63, 2**62, -(2**62), 2**53 + 1, -(2**53) - 1, 2**31, -(2**31), None]
    return [
        *ends,
        *range(-60, 61),
        *rng.integers(-(2**63), 2**63, 200).tolist(),
        *rng.integers(-(10**9), 10**9, 50).tolist(),
    ]


def decimals(places):
    ends = [
        Decimal(n).scaleb(-places) for n in (2**63 - 1, -(2**63), 2**63, 10**19, -(10**19) + 1, 5 * 10**30, None) if n
    ]
    return [*ends, None, *(Decimal(i).scaleb(-places) for i in (0, *range(-301, 301, 4)))]


def rows(values, dtype):
    """One row of each value, and each row a group of its own."""
    return pl.DataFrame({"n": range(len(values)), "x": pl.Series(values, dtype=dtype, strict=False)})


def agree(engine, frame, **asked):
    """Every row has the same code and weight by SQL as by NumPy."""
    query = dpp.protect(None).group_by({"n": frame["n"]}).agg(**asked)
    table = engine.table(frame)
    for name, expected, got in histograms_of(frame, table, query):
        for one, other in zip(expected, got, strict=True):
            assert one.height > 1
            differ = other.join(one, on=["group", "code", "count"], how="anti").join(
                frame.with_columns(group=pl.col("n").cast(pl.Int64)), on="group"
            )
            assert other.equals(one), (name, differ, one.height, other.height)


def medians(*candidates):
    return {f"m{i}": dpp.median("x", each, epsilon=1) for i, each in enumerate(candidates)}


def sums(*bounds):
    made = {f"s{i}": dpp.sum("x", low, high, step=step, epsilon=1) for i, (low, high, step) in enumerate(bounds)}
    return (
        made
        | {f"a{i}": dpp.mean("x", low, high, step=step, epsilon=1) for i, (low, high, step) in enumerate(bounds)}
        | {f"v{i}": dpp.var("x", low, high, step=step, epsilon=1) for i, (low, high, step) in enumerate(bounds)}
    )


GRIDS_OF_FLOATS = [
    dpp.grid(-1, 1, step=0.1),
    dpp.grid(-0.75, 1.25, step=0.5),
    dpp.grid(0, 10, step=0.01),
    range(-3, 9, 3),
    range(11),
    dpp.grid(0, 1e12, step=1e10),  # near the start its products would be too small for Postgres
    dpp.grid(-1e300, 1e300, step=1e300),
    dpp.grid(0, Fraction(1, 2**960), step=Fraction(1, 2**970)),  # and here too large
    dpp.grid(2**52, 2**52 + 64, step=0.5),
    dpp.grid(1e15, 1e15 + 8, step=0.125),
    [0, 1],
    [7.0],
    [-1.5, -0.5, 0.5, 1.25],
    [-1e308, -1e-300, 0.0, TINY, 1e-300, 0.3, 1e15 + 1, 1e308],
    [i * i / 7 for i in range(300)],
]


@pytest.mark.parametrize("dtype", [pl.Float64(), pl.Float32()], ids=str)
def test_codes_of_floats(engine, dtype):
    engine.need(str(dtype))
    agree(engine, rows(floats(), dtype), **medians(*GRIDS_OF_FLOATS))


@pytest.mark.parametrize("dtype", [pl.Float64(), pl.Float32()], ids=str)
def test_weights_of_floats(engine, dtype):
    engine.need(str(dtype))
    steps = [
        (-3, 3, 1), (-0.3, 1.5, 0.1), (0, 9, 0.5), (1, 4, 0.25), (-7, -2, 1), (0, 10**9, 1),
        (-(5 * 10**8), 5 * 10**8, 1),
    ]  # fmt: skip
    steps += [
        (0, 10**150, 10**149),
        (-(2**450), 2**450, 2**440),
        (-(10**20), 10**20, 10**19),
        (0, Fraction(1, 10**100), Fraction(1, 10**102)),
    ]
    steps += [(Fraction(2**30 - n, 10), Fraction(2**30, 10), Fraction(1, 10)) for n in (1, 5, 2**29)]
    agree(engine, rows(floats(), dtype), **sums(*steps))


def test_codes_of_integers(engine):
    grids = [
        range(-3, 9, 3),
        range(-100, 101),
        range(0, 10**6, 7),
        dpp.grid(-3, 5 * 2**58 - 3, step=5 * 2**20),
        dpp.grid(-(2**60), 2**60, step=2**57),
        dpp.grid(-(2**62), 2**62, step=2**60),  # beyond 64 bits on the way: by floats
        dpp.grid(-(10**9), 10**9, step=0.25),
        dpp.grid(-1, 1, step=0.1),
        dpp.grid(0.5, 99.5, step=3),
        [-3, -2, 1],
        [-(2**63) + 1, -5, 0, 2**63 - 2],
        [-0.5, 0.25, 3.0, 1e300],
        [2**63 - 3, 2**63 - 2],
        [Decimal("0.5"), Decimal("1.25"), Decimal(7)],
    ]
    agree(engine, rows(integers(), pl.Int64), **medians(*grids))


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize(
    "ends",
    [
        range(58),
        [2**63 - 3, 2**63 - 2, 2**63 - 1],
        [-(2**63), 1 - 2**63],
        [Fraction(1, 4), Fraction(1, 2), 2],
        [5],
        [0, 1, 3, 50],
    ],
    ids=str,
)
def test_codes_of_integers_beyond_ends(engine, ends, closed):
    """Ends that follow one another need no comparison, and repeated ones do."""
    binning = Beyond(tuple(map(Fraction, ends)), pl.Int64(), closed=closed)
    frame = rows([value for value in integers() if value is not None], pl.Int64)
    table = engine.table(frame)
    found = code(binning, table.x, pl.Int64(), TESTED[table.get_backend().name])
    codes = pl.from_arrow(table.select("n", code=found).to_pyarrow()).sort("n")["code"]
    assert codes.to_list() == binning.encoder()([frame["x"]]).tolist()
    assert codes.n_unique() > 1


def test_weights_of_integers(engine):
    bounds = [(-3, 3, 1), (0, 84, 84), (-6, 4, 2), (-9, 9, 3), (-10, 25, 5), (-3, 3, 0.5), (0, 10, Fraction(1, 3))]
    bounds += [
        (2**70, 2**71, 2**62), (-(2**71), -(2**70), 2**62), (-(2**61), 2**60, 2**60), (0, 2**62, 2**62),
        (0, 2**80, 2**62), (-(2**91), 2**91, 2**62), (-(2**29), 2**29, 1),
    ]  # fmt: skip
    agree(engine, rows(integers(), pl.Int64), **sums(*bounds))


def test_small_integers_leave_no_small_type(engine):
    """32767 * 3 would leave the column's type, and 100 - (-100) that of a byte."""
    for name in ("Int8", "Int16", "Int32"):
        if name in TYPES[engine.name]:
            dtype = COLUMNS[name].dtype
            low, high = dtype.min(), dtype.max()
            low, high = pl.select(low).item(), pl.select(high).item()
            values = [low, low + 1, -1, 0, 1, high - 1, high, None]
            candidates = [dpp.grid(low, high, step=high - low), dpp.grid(low, high, step=0.25), range(-100, 101)]
            asked = medians(*candidates, [low, high]) | sums(
                (0, 84, 84), (low // 4 + 1, high // 4, 1), (-(2**29), 2**29, 1)
            )
            agree(engine, rows(values, dtype), **asked)


@pytest.mark.parametrize(("digits", "places"), [(10, 2), (38, 6), (38, 0), (18, 18), (38, 18)])
def test_codes_and_weights_of_decimals(engine, digits, places):
    values = [value for value in decimals(places) if value is None or abs(value) < Decimal(10) ** (digits - places)]
    unit = Decimal(1).scaleb(-places)
    asked = medians(
        dpp.grid(-100 * unit, 100 * unit, step=unit),
        dpp.grid(-100 * unit, 95 * unit, step=5 * unit),
        [-7 * unit, unit, 90 * unit],
        [-1, 0, 1],
    )
    asked |= sums((-2 * unit, 2 * unit, unit), (-100 * unit, 60 * unit, 20 * unit), (-3 * unit, 3 * unit, unit / 4))
    asked["mode"] = dpp.mode("x", [unit, -unit, 0 * unit], epsilon=1)
    agree(engine, rows(values, pl.Decimal(digits, places)), **asked)


def test_booleans_are_added_up(engine):
    agree(engine, rows([True, False, None, True], pl.Boolean), **sums((0, 1, None), (-6, 4, 2), (0, 1, 0.25)))


def test_codes_of_times(engine):
    moments = [
        dt.datetime(1, 1, 1),
        dt.datetime(1582, 10, 4, 12),
        dt.datetime(1969, 12, 31, 23, 59, 59, 999999),
        dt.datetime(1970, 1, 1),
        dt.datetime(2000, 2, 29, 23, 59, 59, 500000),
        dt.datetime(2255, 6, 6, 0, 0, 0, 1),
        dt.datetime(9999, 12, 31, 23, 59, 59, 999999),
        *(
            dt.datetime(2020, 1, 1) + dt.timedelta(hours=11, minutes=59, seconds=59, microseconds=i)
            for i in range(999_990, 1_000_012)
        ),
        None,
    ]
    day = dt.timedelta(days=1)
    spans = [
        dpp.grid(dt.datetime(2020, 1, 1), dt.datetime(2021, 1, 1), step="1d"),
        dpp.grid(dt.datetime(1900, 1, 1), dt.datetime(2300, 1, 1), step="1h"),
        dpp.grid(dt.datetime(2020, 1, 1, 12), dt.datetime(2020, 1, 1, 12, 0, 0, 10), step="2us"),
        dpp.grid(dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31), step="1d"),
        [moments[2], moments[3], moments[5]],
        [dt.date(2020, 1, 1), dt.date(2020, 1, 2), dt.date(2100, 1, 1)],
    ]
    agree(engine, rows(moments, pl.Datetime("us")), **medians(*spans))
    days = [None if moment is None else moment.date() for moment in moments]
    candidates = [
        dpp.grid(dt.date(1950, 1, 1), dt.date(2000, 1, 1), step="1d"),
        dpp.grid(dt.date(2000, 1, 2), dt.date(2001, 1, 1), step="5d"),
        dpp.grid(dt.datetime(2019, 12, 31, 12), dt.datetime(2020, 1, 3, 12), step=day / 4),
        days[1:4],
    ]
    agree(engine, rows(days, pl.Date), **medians(*candidates))
    times = [None if moment is None else moment.time() for moment in moments]
    candidates = [
        dpp.grid(dt.time(0), dt.time(23, 59, 59), step="1s"),
        dpp.grid(dt.time(11, 59, 59, 999_990), dt.time(12), step="5us"),
        [dt.time(1), dt.time(12), dt.time(12, 0, 0, 1)],
        pl.Series([500, 43_200_000_000_500, 43_200_000_001_500]).cast(pl.Time),  # in nanoseconds
    ]
    agree(engine, rows(times, pl.Time), **medians(*candidates))


ODD_TEXTS = ["a", "A", "a ", " a", "é", "e\u0301", "", "日本", "ß", "ss", "İ", "i", "'", "''", '"', "\\", "\\n", "\n"]
ODD_TEXTS += ["\t", "%s", "%", "{}", ":x", "$1", "$$", "--", "/*", ";", "\x1e", "\x1f", "\ue000", "\ue001", "\uffff"]
ODD_TEXTS += ["😀", "NULL", "null", "a\u200b", "~", ","]


def test_texts_are_compared_byte_by_byte_and_quoted(engine):
    """Also where they are candidates, keys and people: nothing is unescaped, trimmed, folded or taken for a place."""
    frame = pl.DataFrame(
        {
            "x": [text for i, text in enumerate(ODD_TEXTS) for _ in range(1 + i % 3)],
            "p": [f"{text}" for i, text in enumerate(ODD_TEXTS) for _ in range(1 + i % 3)],
        }
    ).with_columns(k=pl.col("x").reverse())
    candidates = ODD_TEXTS[::2]
    for unit, bounds in ((None, {}), ("p", {"max_rows_per_group": 100})):
        query = (
            dpp.protect(unit, **bounds)
            .group_by({"k": ODD_TEXTS[1:]})
            .agg(x=dpp.mode("x", candidates, epsilon=1), n=dpp.value_counts("x", candidates, epsilon=1))
        )
        for _, expected, got in histograms_of(frame, engine.table(frame), query):
            assert got[0].equals(expected[0])
            assert got[0].height > 5


def test_many_public_texts(engine):
    """Lists of 20,000 keys and 1,000 candidates are constants of the statement."""
    frame = pl.DataFrame(
        {"k": [f"key {i}" for i in range(0, 30_000, 3)], "x": [f"value {i % 1100}" for i in range(10_000)]}
    )
    query = (
        dpp.protect(None)
        .group_by({"k": [f"key {i}" for i in range(20_000)]})
        .agg(x=dpp.mode("x", [f"value {i}" for i in range(1000)], epsilon=1))
    )
    ((_, expected, got),) = histograms_of(frame, engine.table(frame), query)
    assert got[0].equals(expected[0])
