"""Filters that reach a scan of a file: which, and that they keep the rows that they keep in memory."""

import operator
from datetime import date, datetime

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import dp_polars as dpp
from dp_polars._engines.polars import engine as polars_arrays
from dp_polars._engines.polars.engine import count_rows
from dp_polars._engines.polars.rows import may_filter_scans
from dp_polars._sources.running import ANY_FILTER, NO_FILTER_IN_SCANS
from tests.helpers.needs import IS_OLD
from tests.helpers.refusals import refused
from tests.helpers.specs import as_frame, spec_of

a, b, u, d, s, f = map(pl.col, "abudsf")
FRAME = pl.DataFrame(
    {"a": [1, 2], "b": [2, 1], "d": [date(2020, 1, 1)] * 2, "s": ["x", "y"], "f": [1.0, 2.0], "t": [True, False]}
).with_columns(u=a.cast(pl.UInt8), w=a.cast(pl.Int128))

PLAIN = {
    "equal": lambda rows: rows.filter(a == 2013),
    "the constant first": lambda rows: rows.filter(3 < a),  # noqa: SIM300
    "a date and a text": lambda rows: rows.filter(d >= date(2013, 1, 1), s == "x"),
    "and": lambda rows: rows.filter((a > 1) & (u < 200)),
    "two filters, and steps above": lambda rows: rows.filter(a < 3).filter(u <= 3).with_columns(z=a * 2).select("z"),
    "none": lambda rows: rows.with_columns(z=a * 2),
}
OTHERS = {
    "arithmetic": lambda rows: rows.filter(a * 2 > 3),
    "beyond the type": lambda rows: rows.filter(u > 300),
    "a float": lambda rows: rows.filter(f > 3),
    "a float constant": lambda rows: rows.filter(a > 2.5),
    "another time": lambda rows: rows.filter(d > datetime(2020, 1, 1)),
    "or": lambda rows: rows.filter((a > 1) | (u < 2)),
    "two columns": lambda rows: rows.filter(a == b),
    "unequal": lambda rows: rows.filter(a != 1),
    "a list": lambda rows: rows.filter(a.is_in([1])),
    "128 bits": lambda rows: rows.filter(pl.col("w") > pl.lit(1, pl.Int128)),
    "a boolean": lambda rows: rows.filter(pl.col("t") == pl.lit(value=True)),
    "not right above the scan": lambda rows: rows.with_columns(z=a * 2).filter(a > 1),
    "of what a step made": lambda rows: rows.with_columns(z=a * 2).filter(pl.col("z") > 1),
    "one of two": lambda rows: rows.filter(a > 1, f.is_nan()),
    "one of two filters": lambda rows: rows.filter(a > 1).filter(f.is_nan()),
    "below a concat": lambda rows: pl.concat([rows.filter(a > 1), rows.filter(f > 1)]),
}


@pytest.fixture(scope="module")
def scan(tmp_path_factory):
    file = tmp_path_factory.mktemp("scans") / "rows.parquet"
    FRAME.write_parquet(file)
    return pl.scan_parquet(file)


@pytest.mark.parametrize("plan", {**PLAIN, **OTHERS})
def test_plain_comparisons_may_reach_a_scan_and_other_filters_stay_where_they_are(scan, plan):
    assert may_filter_scans({**PLAIN, **OTHERS}[plan](scan)) == (plan in PLAIN)


def test_other_scans_are_not_filtered(scan, tmp_path):
    FRAME.select("a", "s").write_csv(tmp_path / "rows.csv")
    FRAME.write_ipc(tmp_path / "rows.arrow")
    for rows in (pl.scan_csv(tmp_path / "rows.csv"), pl.scan_ipc(tmp_path / "rows.arrow"), FRAME.lazy()):
        assert not may_filter_scans(rows.filter(a > 1))


EXTREMES = {
    "Int8": (pl.Int8, [-128, -127, -1, 0, 1, 126, 127]),
    "Int64": (pl.Int64, [-(2**63), -(2**63) + 1, -(2**53) - 1, 0, 2**53 + 1, 2**63 - 2, 2**63 - 1]),
    "UInt32": (pl.UInt32, [0, 1, 2**31 - 1, 2**31, 2**32 - 1]),
    "UInt64": (pl.UInt64, [0, 1, 2**63 - 1, 2**63, 2**64 - 1]),
    "Date": (pl.Date, [date(1, 1, 1), date(1969, 12, 31), date(1970, 1, 1), date(9999, 12, 31)]),
    "String": (pl.String, ["", "\0", "a", "a" * 100, "a" * 100 + "b", "b", "é", "\U0010ffff", "\uffff"]),
}


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
@pytest.mark.parametrize("kind", EXTREMES)
def test_a_filter_in_the_scan_keeps_what_it_keeps_in_memory(kind, engine, tmp_path, monkeypatch):
    """All pairs of a row group of two or three values and a constant; with nulls, and NaN in another column."""
    dtype, values = EXTREMES[kind]
    column = pl.Series("x", [*values, None], dtype=dtype)
    first, second = np.meshgrid(np.arange(len(column)), np.arange(len(column)))
    groups = np.stack([first.ravel(), second.ravel(), np.full(first.size, len(values))], axis=1)
    groups[:, 2] = np.where(np.arange(first.size) % 2, first.ravel(), len(values))
    frame = pl.DataFrame({"x": column.gather(groups.ravel()), "n": np.arange(groups.size)}).with_columns(
        y=pl.when(pl.col("n") % 2 == 0).then(float("nan")).otherwise(1.0)
    )
    frame.write_parquet(tmp_path / "rows.parquet", row_group_size=3)
    spec = spec_of(frame, "n", dpp.mode("n", range(frame.height), epsilon=1).query)
    scanned = []
    monkeypatch.setattr(polars_arrays, "may_filter_scans", lambda rows: scanned.append(may_filter_scans(rows)) or True)
    for constant in values:
        for compare in (operator.eq, operator.lt, operator.le, operator.gt, operator.ge):
            condition = compare(pl.col("x"), pl.lit(constant, dtype))
            filtered = pl.scan_parquet(tmp_path / "rows.parquet").filter(condition)
            found = count_rows(filtered, None, [spec], [[0]], engine)[0]
            expected = count_rows(frame.filter(condition).lazy(), None, [spec], [[0]], engine)[0]
            assert_frame_equal(as_frame(found), as_frame(expected))
    assert len(scanned) == 2 * 5 * len(values)
    assert all(scanned)


@pytest.mark.parametrize("unit", ["a", None])
@pytest.mark.parametrize("condition", [None, a > 1, f > 1])
def test_what_stands_twice_is_no_column_of_its_own_on_polars_1(scan, unit, condition, monkeypatch):
    """Such a column has one chunk there, the rows have several: what is made of both fails, or not, by one row."""
    flags = []

    def noting(collect):
        def collected(*args, **kwargs):
            flags.append(kwargs.get("optimizations"))
            return collect(*args, **kwargs)

        return collected

    monkeypatch.setattr(pl, "collect_all", noting(pl.collect_all))
    monkeypatch.setattr(pl.LazyFrame, "collect", noting(pl.LazyFrame.collect))
    private = dpp.protect(unit, max_rows=1 if unit else None)
    query = (private if condition is None else private.filter(condition)).agg(n=dpp.len(epsilon=1))
    flags.clear()
    query.release(scan)
    own = [flag for flag in flags if flag is ANY_FILTER or flag is NO_FILTER_IN_SCANS]
    assert own
    assert all(flag.comm_subexpr_elim is not IS_OLD for flag in own)


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
def test_a_plain_filter_saves_reading_and_no_other_does(tmp_path, engine):
    """The file's first half is damaged: it is never looked at, or the release fails."""
    file = tmp_path / "rows.parquet"
    rows = 20_000
    frame = pl.DataFrame({"year": np.repeat([2012, 2013], rows), "x": np.random.default_rng(0).random(2 * rows)})
    frame.write_parquet(file, row_group_size=rows, compression="uncompressed")
    content = bytearray(file.read_bytes())
    content[100 : rows * 8] = bytes(rows * 8 - 100)  # of the first row group
    file.write_bytes(content)
    kept = pl.col("year") == 2013
    for when in ("after protect", "before protect"):

        def released(condition, when=when):
            query, scan = dpp.protect(None), pl.scan_parquet(file)
            query, scan = (
                (query.filter(condition), scan) if when == "after protect" else (query, scan.filter(condition))
            )
            return query.agg(dpp.len(epsilon=1000)).release(scan, engine=engine).item()

        assert abs(released(kept) - rows) <= 1
        refused(dpp.ReleaseError, None, released, kept & (pl.col("x") >= 0))
