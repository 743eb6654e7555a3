"""Polars believes that a column is sorted where a flag or a file says so: none of that may enter a private frame.

A false flag makes groups of runs, and binary searches of comparisons, in which one row decides over other rows.
"""

import io
import pickle
from datetime import date

import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import pytest

import dp_polars as dpp
from dp_polars._base.column_types import without_flags
from dp_polars._engines.polars.rows import may_filter_scans
from dp_polars._sources.flags import names_sorting_columns, unflagged
from tests.helpers.needs import IS_OLD

HUGE = 10**6  # a loss without noise
ENGINES = ["in-memory", "streaming"]
ROWS = pl.DataFrame(
    {
        "visit": [*range(150, 300), *range(150)],
        "person": ["c", "a", "b"] * 100,
        "code": [3, 1, 2, 1, 3, 2] * 50,
        "x": [0, 9] * 150,
        "day": [date(2024, 1, 1), date(2020, 1, 1)] * 150,
        "f": [0.0, 9.0] * 150,
    }
)
WITHOUT = {"all": ROWS, "without a person": ROWS.filter(pl.col("person") != "c"), "without a row": ROWS[1:]}
X = pl.col("x")


def flagged(rows, *, descending=False):
    return rows.with_columns(pl.all().set_sorted(descending=descending))


def parquet_of(rows, folder, *, column=None):
    """Write files that say that their first, or every, column is sorted, one file for each of these."""
    path = folder / f"{column}.parquet"
    sorting = [
        pyarrow.parquet.SortingColumn(place) for place in ([column] if column is not None else range(rows.width))
    ]
    pyarrow.parquet.write_table(rows.to_arrow(), path, sorting_columns=sorting)
    return path


def by_statistics(rows, folder):
    flagged(rows).lazy().sink_ipc(folder / "rows.arrow", _record_batch_statistics=True)
    return pl.scan_ipc(folder / "rows.arrow", _record_batch_statistics=True)


# Rows and a folder -> the rows with false flags, in every way that they may come in.
WAYS = {
    "a DataFrame": lambda rows, _: flagged(rows),
    "descending": lambda rows, _: flagged(rows, descending=True),
    "a LazyFrame": lambda rows, _: flagged(rows).lazy(),
    "LazyFrame.set_sorted": lambda rows, _: rows.lazy().set_sorted("person").set_sorted("x").set_sorted("code"),
    "a step above it": lambda rows, _: flagged(rows).lazy().with_columns(more=X + 1),
    "columns of it": lambda rows, _: flagged(rows).lazy().select(rows.columns),
    "a concat": lambda rows, _: pl.concat([flagged(rows[:7]).lazy(), flagged(rows[7:]).lazy()]),
    "joined tables": lambda rows, _: flagged(rows).lazy().join(flagged(rows).lazy().select("visit", y="x"), on="visit"),
    "serialized": lambda rows, _: pl.DataFrame.deserialize(io.BytesIO(flagged(rows).serialize())),
    "pickled": lambda rows, _: pickle.loads(pickle.dumps(flagged(rows))),
    "read_parquet": lambda rows, folder: pl.read_parquet(parquet_of(rows, folder, column=3)),
    "scan_parquet": lambda rows, folder: pl.scan_parquet(parquet_of(rows, folder, column=3)),
    "scan_parquet, by person": lambda rows, folder: pl.scan_parquet(parquet_of(rows, folder, column=1)),
    "scan_parquet, no statistics": lambda rows, folder: pl.scan_parquet(
        parquet_of(rows, folder), use_statistics=False, parallel="columns"
    ),
    "several files": lambda rows, folder: pl.scan_parquet([parquet_of(rows, folder, column=3)]).select(rows.columns),
    "Arrow": lambda rows, _: flagged(rows).to_arrow(),
    "an Arrow dataset": lambda rows, folder: pyarrow.dataset.dataset(parquet_of(rows, folder, column=3)),
    "a scan of it": lambda rows, folder: pl.scan_pyarrow_dataset(
        pyarrow.dataset.dataset(parquet_of(rows, folder, column=3))
    ),
}
if not IS_OLD:
    WAYS["IPC"] = by_statistics

PUBLIC = pl.DataFrame({"code": [1, 2, 3], "w": ["odd", "even", "odd"]})
LISTED = {"code": [1, 2, 3]}


def one_row_each(rows):
    return rows.group_by("person").first()


# Statistics without rows, and what each answers on rows: to the number.
QUERIES = {
    "a row of each person": (
        dpp.protect("person", max_rows=1).agg(n=dpp.len(epsilon=HUGE), people=dpp.n_people(epsilon=HUGE)),
        lambda rows: [(rows["person"].n_unique(),) * 2],
    ),
    "a filter": (
        dpp.protect("visit", max_rows=1).filter(X > 4).agg(n=dpp.n_people(epsilon=HUGE)),
        lambda rows: [(rows["x"].to_list().count(9),)],
    ),
    "a filter by equality": (
        dpp.protect(None).filter(X == 9).agg(n=dpp.len(epsilon=HUGE)),
        lambda rows: [(rows["x"].to_list().count(9),)],
    ),
    "a filter of rows": (
        dpp.protect(None)
        .filter(X > 4, X.is_not_null() if IS_OLD else pl.col("day") < date(2022, 1, 1))
        .agg(n=dpp.len(epsilon=HUGE)),
        lambda rows: [(rows["x"].to_list().count(9),)],
    ),
    "a filter of floats": (
        dpp.protect(None).filter(pl.col("f") > 4).agg(n=dpp.len(epsilon=HUGE)),
        lambda rows: [(rows["x"].to_list().count(9),)],
    ),
    "a column": (
        dpp.protect("visit", max_rows=1)
        .with_columns(y=X > 4)
        .agg(pl.col("y").cast(pl.Int64).dp.sum(0, 1, epsilon=HUGE)),
        lambda rows: [(rows["x"].to_list().count(9),)],
    ),
    "public keys": (
        dpp.protect("visit", max_groups=1, max_rows_per_group=1).group_by(LISTED).agg(n=dpp.len(epsilon=HUGE)),
        lambda rows: [(code, rows["code"].to_list().count(code)) for code in (1, 2, 3)],
    ),
    "keys of rows": (
        dpp.protect(None).group_by(LISTED).agg(n=dpp.len(epsilon=HUGE)),
        lambda rows: [(code, rows["code"].to_list().count(code)) for code in (1, 2, 3)],
    ),
    "people by keys": (
        dpp.protect("person", max_groups=3).group_by(LISTED).agg(n=dpp.n_people(epsilon=HUGE)),
        lambda rows: [(code, len({*rows.filter(pl.col("code") == code)["person"].to_list()})) for code in (1, 2, 3)],
    ),
    "a public table": (
        dpp.protect("visit", max_rows=1)
        .join(PUBLIC, on="code")
        .group_by({"w": ["odd", "even"]})
        .agg(n=dpp.n_people(epsilon=HUGE)),
        lambda rows: [("odd", len(rows) - rows["code"].to_list().count(2)), ("even", rows["code"].to_list().count(2))],
    ),
    "a median": (
        dpp.protect("visit", max_rows=1).agg(pl.col("code").dp.quantile(0.1, range(5), epsilon=HUGE)),
        lambda rows: [(1,)],
    ),
    "selected keys": (
        dpp.protect("visit", max_groups=1).keys("code", epsilon=HUGE, delta=1e-6),
        lambda rows: [(code,) for code in (1, 2, 3)],
    ),
}


@pytest.mark.parametrize("people", WITHOUT)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("way", WAYS)
def test_no_flag_enters_a_query(way, engine, people, tmp_path):
    rows = WITHOUT[people]
    frame = WAYS[way](rows, tmp_path)
    for name, (query, truth) in QUERIES.items():
        if way == "a concat" and query._protection.unit is None:
            continue  # refused: a row might be read twice
        if way == "joined tables" and query._protection.unit != ("visit",):
            continue  # joined by people's rows only
        # Polars can't count the rows of such an IPC file.
        parts = {"partitions": 1} if way == "IPC" and query._protection.unit is not None else {}
        assert query.release(frame, engine=engine, **parts).rows() == truth(rows), name


# Plans before `protect` on what holds flags -> how many rows come out, with and without them.
PLANS = {
    "filter": lambda rows: rows.filter(X > 4),
    "filter and select": lambda rows: rows.filter(X > 4).select("visit"),
    "a new column": lambda rows: rows.with_columns(y=X > 4).filter("y"),
    "rename": lambda rows: rows.rename({"x": "y"}).filter(pl.col("y") > 4),
    "group_by": lambda rows: rows.group_by("visit", "person").agg(X.sum(), n=pl.len()).filter(X > 4),
    "group_by person": lambda rows: rows.group_by("person").agg(pl.len(), pl.col("visit").first()),
    "over": lambda rows: rows.with_columns(y=X.max().over("visit")).filter(pl.col("y") > 4),
    "unique": lambda rows: rows.unique(["visit", "person"]),
    "join": lambda rows: rows.join(PUBLIC.lazy(), on="code").filter(pl.col("w") == "odd"),
    "semi-join": lambda rows: rows.join(PUBLIC.lazy().filter(pl.col("code") > 1), on="code", how="semi"),
    "itself": lambda rows: rows.join(rows.select("visit", y="x"), on="visit").filter(pl.col("y") > 4),
    "concat": lambda rows: pl.concat([rows, rows]).filter(X > 4),
    "sort": lambda rows: rows.sort("visit").filter(X > 4),
}


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("plan", PLANS)
def test_no_flag_of_a_frame_decides_in_a_plan(plan, engine, tmp_path):
    made, want = PLANS[plan], PLANS[plan](ROWS.lazy()).collect().height
    for way in ("a LazyFrame", "descending", "read_parquet"):
        query = made(WAYS[way](ROWS, tmp_path).lazy()).dp.protect("person" if "person" in plan else "visit", max_rows=2)
        assert query.agg(n=dpp.len(epsilon=HUGE)).release(engine=engine).item() == want, way
    files = pl.scan_parquet(parquet_of(ROWS, tmp_path, column=3))
    with pytest.raises(ValueError, match=r"footer names sorting columns .*\n\nHint: do it after `protect`"):
        made(files).dp.protect("visit")
    pyarrow.parquet.write_table(ROWS.to_arrow(), tmp_path / "plain.parquet")
    assert (
        made(pl.scan_parquet(tmp_path / "plain.parquet")).dp.protect("person" if "person" in plan else "visit").columns
    )


@pytest.mark.parametrize(
    "plan",
    [
        lambda rows: rows.set_sorted("x").filter(X > 4),
        lambda rows: rows.with_columns(X.set_sorted()),
        lambda rows: rows.sort("x").set_sorted("x", descending=True).select("visit", y=X > 4),
        lambda rows: rows.filter(X.set_sorted() > 4),
        lambda rows: rows.group_by("visit").agg(X.max().set_sorted()),
        lambda rows: rows.with_columns(X.max().set_sorted().over("visit")),
        lambda rows: rows.with_columns(pl.concat_list("x").list.eval(pl.element().set_sorted())),
        lambda rows: rows.group_by("visit").agg(pl.concat_list("x").list.eval(pl.element().set_sorted()).first()),
    ],
)
def test_a_plan_may_not_say_that_a_column_is_sorted(plan):
    rows = plan(ROWS.lazy())
    with pytest.raises(ValueError, match=r"protect: `set_sorted` makes Polars trust .*\n\nHint: leave it out"):
        rows.dp.protect("visit")
    with pytest.raises(ValueError, match="protect: `set_sorted`"):
        dpp.protect("visit", max_rows=1).agg(dpp.len(epsilon=1)).release(rows)
    assert rows.dp.protect("visit", unchecked=True).columns


@pytest.mark.parametrize("engine", ENGINES)
def test_unchecked_rows_lose_flags_too(engine):
    rows = ROWS.lazy().with_columns(X.set_sorted()).dp.protect("visit", max_rows=1, unchecked=True)
    assert rows.filter(X > 4).agg(dpp.len(epsilon=HUGE)).release(engine=engine).item() == 150


COUNTS = {(code, x): ROWS.filter(pl.col("code") == code, pl.col("x") == x).height for code in (1, 2, 3) for x in (0, 9)}


@pytest.mark.parametrize("engine", ENGINES)
def test_no_flag_enters_a_cube(engine):
    private = flagged(ROWS).dp.protect("visit", max_groups=1)
    cube = private.cube({"code": [1, 2, 3], "x": [0, 9]}, epsilon=HUGE).release(engine=engine)
    found = {key: cube.count(pl.col("code") == key[0], pl.col("x") == key[1]).value for key in COUNTS}
    assert found == COUNTS


def test_public_values_lose_flags_before_they_are_compared():
    """A value that is repeated counts a row twice: Polars finds no repetition in a column that it takes for sorted."""
    twice = pl.Series("code", [1, 2, 1]).set_sorted()
    frame = ROWS.dp.protect("visit", max_rows=1)
    with pytest.raises(ValueError, match="must not repeat"):
        frame.group_by({"code": twice})
    with pytest.raises(ValueError, match="must not repeat"):
        frame.group_by(twice.to_frame())
    with pytest.raises(ValueError, match="at most once"):
        frame.join(twice.to_frame().with_columns(w=1), on="code")
    with pytest.raises(ValueError, match="must not repeat"):
        frame.agg(pl.col("code").dp.mode(twice, epsilon=1))


def test_flags_go_and_values_stay():
    kinds = {
        "integers": pl.Series([3, None, 1]),
        "texts": pl.Series(["b", None, "a"]),
        "bytes": pl.Series([b"b", None, b"a"]),
        "decimals": pl.Series(["1.5", None, "0.5"]).cast(pl.Decimal(10, 2)),
        "wide": pl.Series([3, None, 1], dtype=pl.Int128),
        "enum": pl.Series(["b", None, "a"], dtype=pl.Enum(["a", "b"])),
        "categories": pl.Series(["b", None, "a"], dtype=pl.Categorical),
        "lists": pl.Series([[3], None, [1, 2]]),
        "arrays": pl.Series([[3, 1], None, [1, 2]], dtype=pl.Array(pl.Int64, 2)),
        "structs": pl.Series([{"a": 3}, None, {"a": 1}]),
        "nothing": pl.Series([None, None, None]),
        "": pl.Series([3.0, float("nan"), -0.0]),
        "^.*$": pl.Series([True, None, False]),
    }
    frame = pl.DataFrame({name: values.set_sorted() for name, values in kinds.items()})
    for found in (without_flags(frame), *(without_flags(frame.lazy()).collect(engine=engine) for engine in ENGINES)):
        assert found.equals(frame)
        assert found.schema == frame.schema
        assert not any(flag for flags in found.flags.values() for flag in flags.values())
    objects = pl.DataFrame({"o": pl.Series([object()] * 2, dtype=pl.Object), "x": pl.Series([2, 1]).set_sorted()})
    assert not without_flags(objects)["x"].flags["SORTED_ASC"]


def test_fields_and_elements_have_no_flags():
    """They come out of structs and lists without, so that nothing has to look into these."""
    x = pl.Series("x", [3, 1, 2]).set_sorted()
    found = [
        pl.DataFrame({"x": x}).to_struct("s").struct.field("x"),
        pl.DataFrame({"s": pl.DataFrame({"x": x}).to_struct("s")}).unnest("s")["x"],
        x.implode().explode(),
        x.reshape((3, 1)).explode(),
    ]
    assert not any(flag for column in found for flag in column.flags.values())


@pytest.mark.parametrize("ordered", [False, True])
def test_an_ordered_dictionary_says_nothing_of_rows(ordered):
    """Arrow's mark is about the order of categories, and Polars takes none of it."""
    codes = pa.DictionaryArray.from_arrays(
        pa.array([0, 1, 2] * 50, pa.int32()), pa.array(["c", "a", "b"]), ordered=ordered
    )
    table = pa.table({"d": codes, "visit": range(150)})
    query = dpp.protect("visit", max_groups=1, max_rows_per_group=1).group_by({"d": ["a", "c"]})
    for rows in (table, pl.DataFrame(table), pyarrow.dataset.dataset(table)):
        assert query.agg(dpp.len(epsilon=HUGE)).release(rows).rows() == [("a", 50), ("c", 50)]


def test_a_filter_still_enters_a_scan_without_sorting_columns(tmp_path):
    pyarrow.parquet.write_table(ROWS.to_arrow(), tmp_path / "plain.parquet")
    plain = unflagged(pl.scan_parquet(tmp_path / "plain.parquet")).filter(X > 4)
    assert may_filter_scans(plain)
    marked = unflagged(pl.scan_parquet(parquet_of(ROWS, tmp_path, column=3))).filter(X > 4)
    assert not may_filter_scans(marked)
    twice = unflagged(pl.scan_parquet(tmp_path / "plain.parquet").filter(X > 4)).filter(pl.col("code") == 1)
    assert may_filter_scans(twice)


def test_a_file_that_cannot_be_known_is_taken_to_be_marked(tmp_path, monkeypatch):
    assert names_sorting_columns(["s3://bucket/rows.parquet"]) is None
    pyarrow.parquet.write_table(ROWS.to_arrow(), tmp_path / "plain.parquet")
    monkeypatch.setattr("dp_polars._sources.flags.names_sorting_columns", lambda _: None)
    assert not may_filter_scans(unflagged(pl.scan_parquet(tmp_path / "plain.parquet")).filter(X > 4))
