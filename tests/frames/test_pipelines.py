"""Pipelines that analysts write: what is taken is right and follows from each person's rows; what mixes people is not.

The table is in pipelines.py.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from functools import cache

import numpy as np
import polars as pl
import pytest
from polars import selectors as cs
from polars.testing import assert_frame_equal

import dp_polars  # noqa: F401
from dp_polars._frames.frame import PrivateFrame
from dp_polars._sources.running import NO_FILTER_IN_SCANS
from tests.frames.pipelines import BY_PERSON, BY_ROW, MIXED, REFUSED, Steps, lines, visits
from tests.helpers.needs import IS_OLD

UNITS = {"visits": "patient", "lines": "customer"}
ORDINARY = BY_ROW | BY_PERSON
# Polars 2 calls them bin_intervals and bin_quantiles; analysts go on writing the old names.
CUTS = pytest.mark.filterwarnings("ignore:.*cut:DeprecationWarning")


@cache
def rows_of(table: str) -> pl.DataFrame:
    return visits() if table == "visits" else lines()


@cache
def private_of(table: str) -> PrivateFrame:
    return rows_of(table).dp.protect(UNITS[table])


@cache
def hostile_rows(table: str) -> pl.DataFrame:
    """Edge cases of each type for four people and nobody: most rows tie in some columns, and some in all."""
    columns = {}
    for place, (name, dtype) in enumerate(rows_of(table).schema.items()):
        values = _hostile(dtype)
        rows = range(40)
        columns[name] = values.gather([(row * (place % 5 + 1) + row // 10) % len(values) for row in rows])
    frame = pl.DataFrame(columns).with_columns(
        pl.Series(UNITS[table], [[1, 2, 2, 3, None, 5, 5, 5][n % 8] for n in range(40)], dtype=pl.Int64)
    )
    return pl.concat([frame, frame[::3]])


def _hostile(dtype: pl.DataType) -> pl.Series:
    if isinstance(dtype, pl.List):
        inner = _hostile(dtype.inner)
        picks = [[], [0], [1, 2], [2, 1], [*range(len(inner))], [1, 1, 3]]
        values = [None, *(inner.gather(pick).to_list() for pick in picks)]
    elif isinstance(dtype, pl.Struct):
        fields = [_hostile(field.dtype).alias(field.name) for field in dtype.fields]
        return pl.DataFrame([field.gather([n % len(field) for n in range(5)]) for field in fields]).to_struct()
    elif isinstance(dtype, (pl.Enum, pl.Categorical)):
        categories = dtype.categories.to_list() if isinstance(dtype, pl.Enum) else ["acute", "planned", "", "é"]
        values = [None, *categories]
    elif isinstance(dtype, pl.Decimal):
        values = [None, "0", "-0.01", "99999999.99", "-99999999.99", "1.00"]
        return pl.Series(values).cast(dtype)
    elif dtype.is_float():
        odd = np.array([0x7FF8000000000001, 0xFFF8000000000000], dtype=np.uint64).view(np.float64)
        values = [None, 0.0, -0.0, *odd, np.inf, -np.inf, 1e300, -1e300, 5e-324, 0.1, 1.5, 2.0**54, 38.5]
    elif dtype.is_integer():
        low, high = pl.select(low=dtype.min(), high=dtype.max()).row(0)
        values = [None, 0, 1, low, high, low, high, 7]
    elif dtype == pl.String:
        values = [None, "", "A", "I10", "2023-02-30", "2023-02-28", "x" * 5000, "é🎉", "fall 1", "-1", "99999999999"]
    elif dtype == pl.Boolean:
        values = [None, True, False]
    elif dtype == pl.Date:
        values = [None, dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(2023, 3, 26), dt.date(2023, 3, 26)]
        return pl.concat([pl.Series(values, dtype=dtype), pl.Series([-(2**31), 2**31 - 1], dtype=pl.Int32).cast(dtype)])
    elif dtype == pl.Datetime:
        values = [None, dt.datetime(1, 1, 1), dt.datetime(2023, 3, 26, 2, 30), dt.datetime(2023, 3, 26, 2, 30)]
        return pl.concat([pl.Series(values, dtype=dtype), pl.Series([-(2**63) + 1, 2**63 - 1]).cast(dtype)])
    elif dtype == pl.Duration:
        return pl.Series([None, 0, 1, -1, -(2**63) + 1, 2**63 - 1]).cast(dtype)
    else:
        raise NotImplementedError(dtype)
    return pl.Series(values, dtype=dtype)


def taken(steps: Steps, table: str) -> PrivateFrame | None:
    """The private frame after these steps; None where Polars 1 takes too few."""
    try:
        return steps(private_of(table))
    except ValueError as error:
        if IS_OLD and "Polars 2" in str(error):
            return None
        raise
    except (TypeError, AttributeError):
        if IS_OLD and not is_of_this_polars(steps, table):
            return None
        raise


def is_of_this_polars(steps: Steps, table: str) -> bool:
    """Whether plain Polars knows the words: 1.36 lacks some methods and parameters."""
    try:
        steps(rows_of(table).lazy())
    except (TypeError, AttributeError):
        return False
    return True


def after(frame: PrivateFrame, rows: pl.DataFrame, engine: str = "in-memory") -> pl.DataFrame:
    """The rows of a private frame's steps, on other rows."""
    steps = frame._pipeline.proved(rows.schema).rows(rows.lazy())
    return steps.collect(engine=engine, optimizations=NO_FILTER_IN_SCANS)


def bits(frame: pl.DataFrame) -> pl.DataFrame:
    """Rows in one order, their floats to the bit."""
    frame = frame.with_columns(cs.categorical().cast(pl.String)).select(pl.all().to_physical())
    columns = []
    for column in frame:
        if column.dtype.is_float():
            whole = {4: np.uint32, 8: np.uint64}[column.to_numpy().itemsize]
            own = pl.Series(column.fill_null(0).to_numpy().view(whole))
            column = pl.select(pl.when(column.is_not_null()).then(own).alias(column.name)).to_series()
        elif column.dtype.is_nested():
            column = pl.Series(column.name, [repr(value) for value in column.to_list()], dtype=pl.String)
        columns.append(column)
    return pl.DataFrame(columns).sort(pl.all())


def same(one: pl.DataFrame, other: pl.DataFrame, how: str) -> None:
    assert bits(one).equals(bits(other)), f"{how}: {one} and {other}"


def chunked(frame: pl.DataFrame, size: int) -> pl.DataFrame:
    return pl.concat([frame[start : start + size] for start in range(0, frame.height, size)], rechunk=False)


def check_safe(frame: PrivateFrame, rows: pl.DataFrame, unit: str, people: Sequence[int], compared: pl.Expr) -> None:
    """Assert that the rows of people are the same to the bit, whoever else is there and in whatever order.

    Each of `people` is looked at alone; in other ways to run it, those for whom `compared` holds.
    """
    together = after(frame, rows)
    for person in people:
        by_themselves = after(frame, rows.filter(pl.col(unit) == person))
        same(by_themselves, together.filter(pl.col(unit) == person), f"{person} alone, and among all")
    shuffled = chunked(rows.sample(fraction=1, shuffle=True, seed=1), 7 if rows.height < 100 else 500)
    same(after(frame, shuffled).filter(compared), together.filter(compared), "shuffled, in chunks")
    same(after(frame, rows.reverse(), "streaming").filter(compared), together.filter(compared), "streaming")


def check(frame: PrivateFrame, plain: Steps, table: str) -> None:
    """Assert that a private frame's rows are those of plain Polars, and follow from each person's."""
    rows, unit = rows_of(table), UNITS[table]
    check_right(after(frame, rows), plain(rows.lazy()).collect())
    check_safe(frame, rows, unit, [5], pl.col(unit) % 10 == 5)
    check_safe(frame, hostile_rows(table), unit, [1, 2, 5], pl.lit(True))


def check_right(private: pl.DataFrame, plain: pl.DataFrame) -> None:
    """Assert that rows are those of plain Polars, but that sums of integers are Int64 and floats rounded otherwise."""
    wider = [name for name, dtype in plain.schema.items() if dtype.is_integer() and private[name].dtype == pl.Int64]
    plain = plain.with_columns(pl.col(wider).cast(pl.Int64))
    if IS_OLD:  # which keeps the digits of Decimals that it adds
        private, plain = (frame.with_columns(cs.decimal().cast(pl.Decimal(38, 2))) for frame in (private, plain))
    one, other = (_in_order(frame.select(plain.columns)) for frame in (private, plain))
    narrow = cs.by_dtype(pl.Float32)
    assert_frame_equal(one.select(~narrow), other.select(~narrow), rel_tol=1e-9, abs_tol=1e-9)
    assert_frame_equal(one.select(narrow), other.select(narrow), rel_tol=1e-6)


def _in_order(frame: pl.DataFrame) -> pl.DataFrame:
    frame = frame.with_columns(cs.categorical().cast(pl.String))
    exact = [name for name, dtype in frame.schema.items() if not dtype.is_nested() and not dtype.is_float()]
    return frame.sort(*exact, cs.float().round(5)) if exact or frame.select(cs.float()).width else frame


def of_table(name: str) -> str:
    return name.partition(":")[0]


def test_the_table_is_as_large_as_it_says():
    assert not BY_ROW.keys() & BY_PERSON.keys()
    assert len(ORDINARY) >= 180
    assert len(BY_PERSON) >= len(ORDINARY) / 3
    assert len(MIXED) >= 65
    assert REFUSED.keys() <= ORDINARY.keys()


@CUTS
@pytest.mark.parametrize("name", [name for name in BY_ROW if name not in REFUSED])
def test_ordinary_pipelines_are_taken_and_right_and_safe(name):
    table = of_table(name)
    frame = taken(BY_ROW[name], table)
    if frame is not None:
        check(frame, BY_ROW[name], table)


@CUTS
@pytest.mark.parametrize("name", BY_PERSON)
def test_pipelines_on_a_persons_rows_are_taken_before_protect_alone(name):
    table = of_table(name)
    if not is_of_this_polars(BY_PERSON[name], table):
        return
    rows, unit = rows_of(table), UNITS[table]
    plan = BY_PERSON[name](rows.lazy())
    plan.dp.protect(unit)
    together = plan.collect()
    with pytest.raises((ValueError, AttributeError), match=r"before `protect`|this makes groups"):
        BY_PERSON[name](private_of(table))
    for person in (5, 15, 25):
        alone = BY_PERSON[name](rows.lazy().filter(pl.col(unit) == person)).collect()
        check_right(alone, together.filter(pl.col(unit) == person))


@pytest.mark.parametrize("name", REFUSED)
def test_refused_pipelines_have_a_way_on(name):
    table, refused = of_table(name), REFUSED[name]
    with pytest.raises(
        (ValueError, TypeError, AttributeError), match=f"{refused.why}|Polars 2" if IS_OLD else refused.why
    ):
        ORDINARY[name](private_of(table))
    frame = taken(refused.instead, table)
    if frame is not None:
        check(frame, ORDINARY[name], table)


@CUTS
@pytest.mark.parametrize("name", MIXED)
def test_what_mixes_people_is_refused(name):
    with pytest.raises((ValueError, TypeError, AttributeError), match=r"Hint|one person|people|unit"):
        MIXED[name](private_of("visits"))


@pytest.mark.skipif(IS_OLD, reason="Polars 1 has no Extensions.")
def test_extensions_and_objects_are_carried_along():
    place = pl.Extension("geo", pl.Categorical(), None)
    rows = pl.DataFrame({"p": [1, 1, 2], "x": [1.0, 2.0, 4.0], "o": [object(), None, object()], "c": ["b", "a", None]})
    rows = rows.with_columns(e=pl.col("c").cast(pl.Categorical).ext.to(place)).with_columns(st=pl.struct("e", "x"))
    private = rows.dp.protect("p")
    carried = after(private.with_columns(y=pl.col("x") + 1), rows)
    assert sorted(carried["y"]) == [2.0, 3.0, 5.0]
    assert carried.schema == {**rows.schema, "y": pl.Float64}


@CUTS
@pytest.mark.skipif(IS_OLD, reason="The pipelines are written for Polars 2.")
@pytest.mark.parametrize("name", MIXED)
def test_what_is_said_to_mix_people_does(name):
    """The control of the test above: on a plain frame, some person's rows are others alone, or in another order."""
    rows = rows_of("visits").head(400)
    together = MIXED[name](rows.lazy()).collect()
    people = (rows.filter(patient=person) for person in range(40))
    assert any(differs(name, together, some) for some in (rows.sample(fraction=1, shuffle=True, seed=1), *people))


def differs(name: str, together: pl.DataFrame, rows: pl.DataFrame) -> bool:
    """Whether some rows give others than are there of them together."""
    try:
        found = MIXED[name](rows.lazy()).collect()
    except pl.exceptions.PolarsError:
        return True
    if "visit" in together.columns:
        together = together.filter(pl.col("visit").is_in(rows["visit"].to_list()))
    return not bits(found).equals(bits(together))
