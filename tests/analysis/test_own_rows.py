"""`simulate` knows the rows that a query protects, however they come, and takes copies for other rows."""

import datetime as dt
import gc
import pickle
import weakref
from decimal import Decimal

import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import dp_polars as dpp
from dp_polars.analysis import simulate
from tests.helpers.refusals import refused

REFUSED = "simulate must be given public or synthetic rows, got the very ones that the query protects"


def rows():
    return pl.DataFrame({"p": range(6), "x": ["u", "v", "u"] * 2, "n": [1.5, None, 2.5] * 2})


def query(frame):
    return frame.dp.protect("p", max_groups=1).agg(dpp.n_people(epsilon=1))


SAME = {
    "the frame": lambda frame: frame,
    "lazy": lambda frame: frame.lazy(),
    "a clone": lambda frame: frame.clone(),
    "a slice": lambda frame: frame.slice(2, 3),
    "a column more": lambda frame: frame.with_columns(m=pl.lit(1)),
    "a column less": lambda frame: frame.select("p", "n"),
    "a plan": lambda frame: frame.lazy().filter(pl.col("n") > 1).with_columns(p=pl.col("p") + 1),
    "a concat": lambda frame: pl.concat([pl.DataFrame(frame.to_dict(as_series=False)), frame], rechunk=False),
}


@pytest.mark.parametrize("name", SAME)
@pytest.mark.parametrize("protected", [lambda frame: frame, lambda frame: frame.lazy().filter(pl.col("n") < 9)])
def test_the_rows_in_memory_are_refused(name, protected):
    frame = rows()
    again = SAME[name](frame)
    refused(ValueError, REFUSED, simulate, query(protected(frame)), again)
    assert simulate(query(protected(frame)), again, allow_private=True).height == 1


def test_other_rows_are_not_refused():
    frame = rows()
    protected = query(frame)
    copy = pl.DataFrame(frame.to_dict(as_series=False))
    lazy = copy.lazy()
    for other in (copy, lazy, lazy.map_batches(lambda part: part), frame.clear(), lazy.group_by("p").first()):
        assert simulate(protected, other).height == 1
    # Built without data, a query protects none yet.
    assert simulate(dpp.protect("p", max_groups=1).agg(dpp.n_people(epsilon=1)), frame).height == 1
    assert simulate(dpp.len(epsilon=1), frame).height == 1


VALUES = {
    "text": ["a", "b"],
    "long text": ["a" * 40, "b" * 40],
    "booleans": [True, False],
    "dates": [dt.date(2026, 1, 1)] * 2,
    "times": [dt.time(1)] * 2,
    "decimals": [Decimal("1.5")] * 2,
    "enums": pl.Series(["a", "b"], dtype=pl.Enum(["a", "b"])),
    "structs": [{"a": 1}, {"a": 2}],
    "lists": [[1], [2]],
}


@pytest.mark.parametrize("name", VALUES)
def test_one_column_of_any_type_tells_them(name):
    column = pl.Series("x", VALUES[name])
    frame = pl.DataFrame({"p": [1, 2], "wide": pl.Series([1, 2], dtype=pl.Int128)}).with_columns(column)
    public = frame.select(pl.Series("p", [3, 4]), "x")
    refused(ValueError, REFUSED, simulate, query(frame), public)
    assert simulate(query(frame), pl.DataFrame({"p": [3, 4]})).height == 1


@pytest.mark.parametrize("kind", ["parquet", "ipc", "csv"])
def test_the_files_are_refused(kind, tmp_path, monkeypatch):
    frame, link = rows(), tmp_path / "link"
    frame.write_parquet(tmp_path / "a.parquet")
    frame.write_ipc(tmp_path / "a.ipc")
    frame.write_csv(tmp_path / "a.csv")
    scan = {"parquet": pl.scan_parquet, "ipc": pl.scan_ipc, "csv": pl.scan_csv}[kind]
    path = tmp_path / f"a.{kind}"
    protected = query(scan(path).filter(pl.col("n") > 0) if kind == "parquet" else scan(path))
    (tmp_path / f"b.{kind}").write_bytes(path.read_bytes())
    link.symlink_to(path)
    monkeypatch.chdir(tmp_path)
    for again in (path, f"a.{kind}", link):
        refused(ValueError, REFUSED, simulate, protected, scan(again).select("p", "x"))
        assert simulate(protected, scan(again), allow_private=True).height == 1
    assert simulate(protected, scan(tmp_path / f"b.{kind}")).height == 1
    assert simulate(protected, frame).height == 1


def test_datasets_of_arrow_are_refused(tmp_path):
    rows().write_parquet(tmp_path / "a.parquet")
    dataset, other = (ds.dataset(tmp_path / "a.parquet") for _ in range(2))
    protected = query(pl.scan_pyarrow_dataset(dataset))
    refused(ValueError, REFUSED, simulate, protected, pl.scan_pyarrow_dataset(dataset))
    assert simulate(protected, pl.scan_pyarrow_dataset(other).select("p")).height == 1
    table = pa.table({"p": [1, 2]})
    assert simulate(protected, pl.DataFrame(table)).height == 1


def test_no_row_is_read_or_kept(tmp_path):
    frame = rows()
    frame.write_parquet(tmp_path / "a.parquet")
    stays = query(pl.scan_parquet(tmp_path / "a.parquet"))
    before = pickle.dumps(stays)
    other = pl.DataFrame({"p": range(3)})
    simulate(stays, other)
    assert pickle.dumps(stays) == before
    bound, alive = query(frame), weakref.ref(frame)
    refused(ValueError, REFUSED, simulate, bound, frame)
    del frame
    gc.collect()
    assert alive() is None


def test_the_message_says_what_to_do():
    frame = rows()
    words = r"(?s)The result is not private.*Hint: .*synthetic\(schema.*allow_private=True"
    refused(ValueError, words, simulate, query(frame), frame)
    of_rows = frame.dp.protect("p", max_rows=1).agg(dpp.len(epsilon=1))
    refused(ValueError, REFUSED, simulate, of_rows, frame, losses=[1, 2])
