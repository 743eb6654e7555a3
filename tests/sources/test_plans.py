import io
import pathlib
import pickle
import shutil
from datetime import date
from types import SimpleNamespace

import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pyarrow.fs
import pytest

import dp_polars as dpp
from dp_polars._sources.files import refuse_repeated_files
from dp_polars._sources.plans import preprocessing_of
from tests.helpers.needs import IS_OLD, need
from tests.helpers.refusals import refused

HIDDEN = "can't be (inspected|looked into)"
FRAME = pl.DataFrame(
    {
        "person": ["ann", "bob", "ann"],
        "group": ["x", "y", "x"],
        "value": [1, 2, 3],
        "cost": [0.5, 1.5, 2.5],
        "day": [date(2020, 1, 1), date(2020, 1, 2), date(2020, 1, 3)],
        "codes": [[1], [1, 2], []],
        "place": [{"ward": 1}, {"ward": 2}, {"ward": 3}],
    }
)
value, group, cost, day = pl.col("value"), pl.col("group"), pl.col("cost"), pl.col("day")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plans")
    FRAME.write_parquet(folder / "visits.parquet")
    FRAME.write_ipc(folder / "visits.arrow")
    FRAME.write_ndjson(folder / "visits.ndjson")
    FRAME.drop("codes", "place").write_csv(folder / "visits.csv")
    FRAME.write_parquet(folder / "hive", partition_by="group")
    for name in ("visits.parquet", "visits.arrow"):
        for month in ("may", "june"):
            (folder / month).mkdir(exist_ok=True)
            shutil.copy(folder / name, folder / month / name)
    # Other names of the same files.
    (folder / "linked").mkdir()
    for name in ("visits.parquet", "visits.arrow"):
        (folder / "linked" / f"symbolic-{name}").symlink_to(folder / name)
        (folder / "linked" / f"hard-{name}").hardlink_to(folder / name)
    (folder / "linked hive" / "group=x").mkdir(parents=True)
    shutil.copy(folder / "visits.parquet", folder / "linked hive" / "group=x")
    (folder / "linked hive" / "group=y").symlink_to("group=x")
    return folder


def below(folder, *months):
    """A pyarrow dataset of files whose paths are relative to a folder."""
    return pyarrow.dataset.dataset(
        [f"{month}/visits.parquet" for month in months],
        filesystem=pyarrow.fs.SubTreeFileSystem(str(folder), pyarrow.fs.LocalFileSystem()),
    )


def dataset_of_buffers(path):
    form = pyarrow.dataset.ParquetFileFormat()
    fragments = [form.make_fragment(pa.BufferReader(path.read_bytes())) for _ in range(2)]
    return pyarrow.dataset.FileSystemDataset(fragments, fragments[0].physical_schema, form)


def twice(scan):
    """A concat that Polars 2 makes one scan of all files of."""
    return lambda folder: pl.concat([scan(folder), scan(folder)])


def parquet(*names):
    """A scan of one file of a folder, or of several."""
    return lambda folder: pl.scan_parquet([folder / name for name in names] if len(names) > 1 else folder / names[0])


def ipc(*names):
    return lambda folder: pl.scan_ipc([folder / name for name in names] if len(names) > 1 else folder / names[0])


def urls(scan, *names):
    return lambda folder: scan([(folder / name).as_uri() for name in names])


def arrow(*names):
    return lambda folder: pl.scan_pyarrow_dataset(pyarrow.dataset.dataset([folder / name for name in names]))


# From a folder with the frame's files, or from the frame itself, to a plan.
ACCEPTED = {
    "a frame": lambda lf: lf,
    "filter": lambda lf: lf.filter(value > 1, group == "x"),
    "remove": lambda lf: lf.remove(value > 1),
    "select": lambda lf: lf.select("person", twice=value * 2),
    "with_columns": lambda lf: lf.with_columns(group.str.to_uppercase(), day.dt.year().alias("year"), one=1),
    "with_columns_seq": lambda lf: lf.with_columns_seq(value.abs()),
    "nested": lambda lf: lf.with_columns(pl.when(value.is_in([1, 2])).then(cost.clip(0, 1)).otherwise(cost).round(1)),
    "cast": lambda lf: lf.cast({"value": pl.Float32, "group": pl.Categorical}),
    "casts that fit": lambda lf: lf.cast({"value": pl.Float64, "cost": pl.String, "day": pl.Datetime("us")}),
    "a lenient cast": lambda lf: lf.cast({"value": pl.Int8}, strict=False),
    "a replacement for all": lambda lf: lf.with_columns(value.replace_strict({1: 2}, default=0)),
    "a time zone taken off": lambda lf: lf.with_columns(day.cast(pl.Datetime("us")).dt.replace_time_zone("UTC")),
    "parse": lambda lf: lf.with_columns(group.str.to_date("%Y-%m-%d", strict=False)),
    "replace": lambda lf: lf.with_columns(value.replace([1, 2], [3, 4])),
    "a ratio of columns": lambda lf: lf.with_columns(cost / value),
    "rename": lambda lf: lf.rename({"value": "number"}),
    "drop": lambda lf: lf.drop("codes"),
    "drop_nulls": lambda lf: lf.drop_nulls(),
    "drop_nans": lambda lf: lf.drop_nans("cost"),
    "fill_null": lambda lf: lf.fill_null(0),
    "unnest": lambda lf: lf.unnest("place"),
    "sort": lambda lf: lf.sort("day", value.abs()),
    "cache": lambda lf: lf.cache(),
    "clear": lambda lf: lf.clear(),
    "sql": lambda lf: lf.sql("select person, value + 1 as value from self where cost > 1"),
    "match_to_schema": lambda lf: lf.match_to_schema(FRAME.schema),
    "pipe": lambda lf: lf.pipe(lambda same: same.filter(value > 1)),
}
SCANS = {
    "parquet": parquet("visits.parquet"),
    "parquet files": lambda folder: pl.scan_parquet(
        [folder / "visits.parquet", folder / "may" / "visits.parquet"], include_file_paths="file"
    ),
    "a pattern": parquet("*/visits.parquet"),
    "a folder and a file": parquet("may/*.parquet", "june/visits.parquet"),
    "a folder of ipc and a file": ipc("may/*.arrow", "june/visits.arrow"),
    "one link": parquet("linked/symbolic-visits.parquet"),
    "one URL": lambda folder: pl.scan_parquet((folder / "visits.parquet").as_uri()),
    "URLs": urls(pl.scan_parquet, "may/visits.parquet", "june/visits.parquet"),
    "pyarrow files": arrow("may/visits.parquet", "june/visits.parquet"),
    "pyarrow below a folder": lambda folder: pl.scan_pyarrow_dataset(below(folder, "may", "june")),
    "pyarrow memory": lambda _: pl.scan_pyarrow_dataset(pyarrow.dataset.dataset(FRAME.to_arrow())),
    "hive": parquet("hive"),
    "csv": lambda folder: pl.scan_csv(folder / "visits.csv", try_parse_dates=True).filter(value > 1),
    "ipc": lambda folder: pl.scan_ipc(folder / "visits.arrow").select("person"),
    "ndjson": lambda folder: pl.scan_ndjson(folder / "visits.ndjson"),
    "pyarrow": lambda folder: pl.scan_pyarrow_dataset(pyarrow.dataset.dataset(folder / "visits.parquet")),
    "pyarrow without filters": lambda folder: pl.scan_pyarrow_dataset(
        pyarrow.dataset.dataset(folder / "visits.parquet"), allow_pyarrow_filter=False
    ),
    "csv after a title": lambda folder: pl.scan_csv(folder / "visits.csv", skip_rows=1),
}
# One row twice, by two names of one file.
REPEATED = {
    "concat": twice(parquet("visits.parquet")),
    "concat of csv": twice(lambda folder: pl.scan_csv(folder / "visits.csv")),
    "concat of ipc": twice(ipc("visits.arrow")),
    "concat of ndjson": twice(lambda folder: pl.scan_ndjson(folder / "visits.ndjson")),
    "concat of filtered rows": twice(lambda folder: pl.scan_parquet(folder / "visits.parquet").filter(value > 1)),
    "concat of columns": twice(lambda folder: pl.scan_csv(folder / "visits.csv").select("person")),
    "relaxed concat": lambda folder: pl.concat([parquet("visits.parquet")(folder)] * 2, how="vertical_relaxed"),
    "diagonal concat": lambda folder: pl.concat([parquet("visits.parquet")(folder)] * 2, how="diagonal"),
    "union all": lambda folder: pl.scan_parquet(folder / "visits.parquet").sql(
        "select person from self union all select person from self"
    ),
    "a list": parquet("visits.parquet", "visits.parquet"),
    "a list of ipc": ipc("visits.arrow", "visits.arrow"),
    "a list of csv": lambda folder: pl.scan_csv([folder / "visits.csv"] * 2),
    "a list of ndjson": lambda folder: pl.scan_ndjson([folder / "visits.ndjson"] * 2),
    "missing columns": lambda folder: pl.scan_parquet([folder / "visits.parquet"] * 2, missing_columns="insert"),
    "a pattern and a file": parquet("*.parquet", "visits.parquet"),
    "patterns of ipc": ipc("*.arrow", "vis*.arrow"),
    "a folder and its file": parquet("may/*.parquet", "may/visits.parquet"),
    "two ways": parquet("visits.parquet", "may/../visits.parquet"),
    "a symbolic link": parquet("visits.parquet", "linked/symbolic-visits.parquet"),
    "a hard link": parquet("visits.parquet", "linked/hard-visits.parquet"),
    "links of ipc": ipc("linked/*.arrow"),
    "a linked folder": parquet("linked hive"),
    "a linked folder and a pattern": parquet("linked hive/**/*.parquet"),
    "a URL": urls(pl.scan_parquet, "visits.parquet", "linked/hard-visits.parquet"),
    "a URL of ipc": urls(pl.scan_ipc, "visits.arrow", "linked/hard-visits.arrow"),
    "pyarrow": arrow("visits.parquet", "visits.parquet"),
    "pyarrow links": arrow("visits.parquet", "linked/hard-visits.parquet"),
    "pyarrow union": lambda folder: pl.scan_pyarrow_dataset(
        pyarrow.dataset.dataset([pyarrow.dataset.dataset(folder / "visits.parquet") for _ in range(2)])
    ),
    "pyarrow memory": lambda _: pl.scan_pyarrow_dataset(
        pyarrow.dataset.dataset([pyarrow.dataset.dataset(FRAME.to_arrow()) for _ in range(2)])
    ),
    "pyarrow buffers": lambda folder: pl.scan_pyarrow_dataset(dataset_of_buffers(folder / "visits.parquet")),
    "pyarrow below a folder": lambda folder: pl.scan_pyarrow_dataset(below(folder, "may", "may")),
}
SEVERAL_ROWS = {
    "explode": lambda _: FRAME.lazy().explode("codes"),
    "unpivot": lambda _: FRAME.lazy().select("value", "cost").unpivot(value_name="number"),
    "concat": lambda _: pl.concat([FRAME.lazy(), FRAME.lazy().filter(value > 1)]),
    "diagonal concat": lambda _: pl.concat(
        [FRAME.lazy().select("value"), FRAME.lazy().select("value", "cost")], how="diagonal"
    ),
}


@pytest.mark.parametrize("name", [*ACCEPTED, *SCANS])
def test_accepted(name, folder):
    preprocessing_of(ACCEPTED[name](FRAME.lazy()) if name in ACCEPTED else SCANS[name](folder))


@pytest.mark.parametrize("name", SEVERAL_ROWS)
def test_a_row_may_become_several_where_a_person_may_have_several(name, folder):
    preprocessing_of(SEVERAL_ROWS[name](folder), ("person",))
    words = r"^protect: (`explode`|`unpivot`|a table that is read twice) (makes several rows|may read a row twice)"
    refused(ValueError, words, preprocessing_of, SEVERAL_ROWS[name](folder))


@pytest.mark.parametrize("name", REPEATED)
def test_no_file_may_be_read_twice_where_every_row_is_a_person(name, folder):
    # Before Polars 2 a concat of scans is seen as one.
    words = r"^protect: a (scan of several files|table that is read twice) .* known to be different .*\n\nHint: "
    refused(ValueError, words, REPEATED[name](folder).dp.protect, None)
    REPEATED[name](folder).dp.protect("person", max_rows=1)


def test_a_dataset_given_to_release_may_not_repeat_a_file_and_bytes_may_not_repeat(folder):
    dataset = pyarrow.dataset.dataset([str(folder / "visits.parquet")] * 2)
    asked = dpp.median("value", range(3), epsilon=1)
    with pytest.raises(ValueError, match="known to be different"):
        dpp.protect(None, budget=dpp.Budget(epsilon=1)).agg(asked).release(dataset)
    assert dpp.protect("person", max_rows=1).agg(asked).release(dataset).height == 1
    data = (folder / "visits.parquet").read_bytes()
    for plan in (pl.scan_parquet([data, data]), pl.concat([pl.scan_parquet(data), pl.scan_parquet(data)])):
        words = "known to be different|can't be inspected|can't be looked into|a concat may hold"
        refused(ValueError, words, preprocessing_of, plan)


def test_different_objects_of_one_bucket_pass():
    for name in ("s3://bucket/a.parquet", "s3://bucket/folder/", "https://host/a.parquet?version=1"):
        refuse_repeated_files([name])
    refuse_repeated_files(["s3://bucket/a.parquet", "s3://bucket/b.parquet", "s3://bucket/a.parquet.parquet"])
    refuse_repeated_files([f"abfss://box@account.dfs.core.windows.net/a{c}b.parquet" for c in "-/"])


def test_what_may_be_one_object_is_refused():
    for files in (
        ["s3://bucket/a.parquet", "s3://bucket/a.parquet"],
        ["s3://bucket/a b.parquet", "s3://bucket/a%20b.parquet"],
        ["s3://bucket/a.parquet", "s3://bucket//x/../a.parquet"],
        ["s3://bucket/folder", "s3://bucket/folder-2/b.parquet", "s3://bucket/folder/a.parquet"],
        ["s3://bucket", "s3://bucket/a.parquet"],
        ["s3://bucket/*.parquet", "s3://bucket/a.parquet"],
        ["s3://bucket/a.parquet", "s3://other/b.parquet"],
        ["s3://bucket/a.parquet", "s3a://bucket/b.parquet"],
        ["s3://bucket/a.parquet?versionId=1", "s3://bucket/b.parquet"],
        ["s3://bucket/a.parquet", "visits.parquet"],
        ["https://host/a.parquet", "https://host/b.parquet"],
        ["hdfs://host/a.parquet", "hdfs://host/b.parquet"],
    ):
        for given in (files, files[::-1]):
            refused(ValueError, "known to be different", refuse_repeated_files, given)


def test_what_is_no_file_that_is_there_is_refused(folder):
    for files in ([folder.as_uri()], [str(folder / "visits.parquet"), (folder / "gone.parquet").as_uri()]):
        refused(ValueError, "known to be different", refuse_repeated_files, files)


def test_a_url_that_may_be_either_of_two_files_is_not_beside_one_of_them(tmp_path):
    for name in ("a b", "a%20b"):
        (tmp_path / name).write_text(name)
    url = f"file://{tmp_path}/a%20b"
    refuse_repeated_files([url])
    for other in ("a b", "a%20b"):
        refused(ValueError, "may read a row twice", refuse_repeated_files, [str(tmp_path / other), url])


def test_a_scan_of_bytes_is_not_pickled():
    file = io.BytesIO()
    FRAME.write_ipc(file)
    rows = pl.scan_ipc(file.getvalue())
    if IS_OLD:
        refused(ValueError, HIDDEN, rows.dp.protect, "person")
        return
    query = rows.dp.protect("person").agg(n=dpp.n_people(epsilon=1))
    refused(TypeError, "no rows in memory", pickle.dumps, query)


def test_files_without_numbers_are_told_apart_by_their_paths(folder, monkeypatch):
    stat = pathlib.Path.stat

    def without_numbers(path, **options):
        return SimpleNamespace(st_mode=stat(path, **options).st_mode, st_dev=0, st_ino=0)

    monkeypatch.setattr(pathlib.Path, "stat", without_numbers)
    one = str(folder / "visits.parquet")
    refuse_repeated_files([one, str(folder / "may" / "visits.parquet")])
    with pytest.raises(ValueError, match="known to be different"):
        refuse_repeated_files([one, str(folder / "linked" / "symbolic-visits.parquet")])


UNREADABLE = {
    "ndjson": (pl.scan_ndjson, b'{"value":1}\n{"value":SECRET}\n'),
    "an ndjson list": (pl.scan_ndjson, b'["SECRET"]\n'),
    "csv without rows": (pl.scan_csv, b""),
    "parquet": (pl.scan_parquet, b"PAR1SECRETPAR1"),
    "ipc": (pl.scan_ipc, b"SECRET"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_file_without_a_schema_says_nothing_of_its_rows(name, tmp_path):
    scan, data = UNREADABLE[name]
    (tmp_path / "file").write_bytes(data)
    budget = dpp.Budget(epsilon=1)
    query = dpp.protect(None, budget=budget).agg(dpp.median("value", range(3), epsilon=1))
    for act in (lambda lf: lf.dp.protect(None), lambda lf: lf.filter(value > 1).dp.protect("value"), query.release):
        words = r"must be known before the rows are read[^\n]*\n\nHint: [^\n]*$"
        error = refused(ValueError, words, act, scan(tmp_path / "file"))
        assert error.__context__ is None
        assert "character" not in str(error)
    assert budget.spent == 0


def test_a_schema_is_found_out_once_and_with_it_a_malformed_file_fails_paid(tmp_path):
    (tmp_path / "file").write_bytes(b'{"value":1}\n{"value":SECRET}\n')
    budget = dpp.Budget(epsilon=1)
    frame = pl.scan_ndjson(tmp_path / "file", schema={"value": pl.Int64})
    query = frame.dp.protect(None, budget=budget).agg(dpp.median("value", range(3), epsilon=1))
    refused(dpp.ReleaseError, None, query.release)
    assert budget.spent == 1
    (tmp_path / "file").write_bytes(b'{"value":1}\n')
    frame = pl.scan_ndjson(tmp_path / "file").dp.protect(None)
    (tmp_path / "file").write_bytes(b'{"value":SECRET}\n')
    assert frame.filter(value > 1).collect_schema() == {"value": pl.Int64}
    with pytest.raises(ValueError, match="a file that was rewritten"):
        frame.filter(value > 1).agg(dpp.median("value", range(3), epsilon=1)).release()


TWO = pl.DataFrame({"person": [7] * 500, "value": range(500)})
FORMS = {
    "ipc": (pl.scan_ipc, pl.DataFrame.write_ipc),
    "parquet": (pl.scan_parquet, pl.DataFrame.write_parquet),
    "csv": (pl.scan_csv, pl.DataFrame.write_csv),
    "ndjson": (pl.scan_ndjson, pl.DataFrame.write_ndjson),
}
REWRITTEN = {
    "swapped columns": lambda frame: frame.select(person="value", value="person").select("value", "person"),
    "another type": lambda frame: frame.with_columns(value * 0.5),
    "other rows": lambda frame: frame.with_columns(value + 1),
}


@pytest.mark.parametrize("change", REWRITTEN)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("unit", ["person", None])
def test_a_file_that_is_rewritten_after_protect_is_free(form, change, unit, tmp_path):
    scan, write = FORMS[form]
    file = tmp_path / "file"
    write(TWO, file)
    budget = dpp.Budget(epsilon=2)
    query = scan(file).dp.protect(unit, budget=budget, max_rows=1 if unit else None).agg(n=dpp.len(epsilon=1))
    write(REWRITTEN[change](TWO), file)
    words = r"^release: a file that was rewritten may have other rows, or other columns, [\s\S]*Hint"
    refused(ValueError, words, query.release)
    assert budget.spent == 0
    scan(file).dp.protect(unit, budget=budget, max_rows=1 if unit else None).agg(n=dpp.len(epsilon=1)).release()
    assert budget.spent == 1


@pytest.mark.parametrize("change", ["swapped columns", "another type"])
@pytest.mark.parametrize("form", ["ipc", "parquet"])
@pytest.mark.parametrize("when", ["before protect", "before release", "below a select"])
def test_a_file_whose_columns_were_found_out_before_it_was_rewritten_is_free(form, change, when, tmp_path):
    scan, write = FORMS[form]
    file = tmp_path / "file"
    write(TWO, file)
    rows = scan(file)
    if when == "below a select":
        rows = rows.select("value", "person")
    rows.collect_schema()
    write(REWRITTEN[change](TWO), file)
    budget = dpp.Budget(epsilon=1)
    begun, given = (rows.dp, ()) if when == "before protect" else (dpp, (rows,))
    query = begun.protect("person", max_rows=1, budget=budget).agg(n=dpp.len(epsilon=1))
    refused(ValueError, "a file that was rewritten", query.release, *given)
    assert budget.spent == 0


def test_a_file_of_arrow_or_beside_memory_that_is_replaced_is_another_one(tmp_path):
    file = tmp_path / "file"
    TWO.write_parquet(file)
    asked = dpp.len(epsilon=1)
    queries = [
        rows.dp.protect("person", max_rows=1).agg(n=asked)
        for rows in (
            pl.scan_pyarrow_dataset(pyarrow.dataset.dataset(file)),
            pl.concat([pl.scan_parquet(file), TWO.lazy()]),
            pl.scan_parquet(tmp_path.as_uri() + "/file"),
        )
    ]
    for query in queries:
        assert query.release().height == 1
    TWO.write_parquet(tmp_path / "other")
    (tmp_path / "other").replace(file)  # with the same bytes
    for query in queries:
        refused(ValueError, "a file that was rewritten", query.release)


@pytest.mark.parametrize(
    "make", [pl.LazyFrame.lazy, lambda rows: rows.with_columns(x=1), lambda rows: rows.filter(True)]
)
def test_a_plan_that_drops_all_columns_is_refused(make):
    """Polars 1 forgets the number of rows with them."""
    for rows in (make(FRAME.lazy().drop(pl.all())), make(FRAME.lazy().select([])), make(pl.LazyFrame())):
        refused(ValueError, r"^protect: a plan without columns loses the number of its rows\.", rows.dp.protect, None)
    with pytest.raises(ValueError, match=r"^release: a table without columns loses the number of its rows\."):
        dpp.protect(None).agg(n=dpp.len(epsilon=1)).release(pa.table({"a": [1]}).select([]))


def test_no_column_is_named_like_a_pattern():
    rows = pl.DataFrame({"^x$": [1, 1, 1], "x": [1, 2, 3]})
    for act in (
        lambda: rows.dp.protect("^x$"),
        lambda: rows.dp.protect("x"),
        lambda: rows.select("x").dp.protect("x").with_columns(pl.col("x").alias("^y$")),
        lambda: rows.select("x").dp.protect(None).rename({"x": "^x$"}),
        lambda: dpp.protect("x").agg(dpp.n_people(epsilon=1)).release(rows),
    ):
        refused(ValueError, r"no column of private rows must be named like a pattern, got '\^[xy]\$'", act)
    assert rows.rename({"^x$": "^x$y"}).dp.protect("x").columns == ["^x$y", "x"]
    for unit in ("x", "*", None):
        like = rows.rename({"^x$": "*"}).dp.protect
        refused(ValueError, r"no column of private rows must be named like a pattern, got '\*'", like, unit)
    assert rows.rename({"^x$": "**"}).dp.protect("x").columns == ["**", "x"]


def test_delta(tmp_path):
    deltalake = need("deltalake")
    table = str(tmp_path / "table")
    for _ in range(2):
        TWO.write_delta(table, mode="append")
    rows = pl.scan_delta(table)
    if IS_OLD:  # a scan of its files
        preprocessing_of(rows)
    else:
        for plan in (rows, rows.filter(value > 1), pl.concat([rows, rows])):
            with pytest.raises(ValueError, match=r"^protect: a Delta or Iceberg table shows its files only when"):
                plan.dp.protect("person", max_rows=1)
    arrow = deltalake.DeltaTable(table).to_pyarrow_dataset()
    rows = pl.scan_pyarrow_dataset(arrow).with_columns(person="value")
    query = rows.dp.protect("person", max_rows=1).agg(n=dpp.len(epsilon=1000))
    assert query.release().item() == 500
    with pytest.raises(ValueError, match="known to be different"):  # its files show no local paths
        rows.dp.protect(None)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_iceberg(tmp_path):
    sql = need("pyiceberg.catalog.sql")
    catalog = sql.SqlCatalog("own", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=tmp_path.as_uri())
    catalog.create_namespace("own")
    table = catalog.create_table("own.visits", schema=TWO.to_arrow().schema)
    table.append(TWO.to_arrow())
    with pytest.raises(ValueError, match=r"^protect: a Delta or Iceberg table shows its files only when"):
        pl.scan_iceberg(table).dp.protect("person", max_rows=1)
    query = dpp.protect("person", max_rows=1).agg(n=dpp.len(epsilon=1000))
    assert query.release(table.scan().to_arrow_batch_reader()).item() == 1
    catalog.close()


def test_what_a_schema_tells_is_said():
    for plan, error in (
        (lambda lf: lf.select("nothing"), pl.exceptions.ColumnNotFoundError),
        (lambda lf: lf.select(value, value), pl.exceptions.DuplicateError),
        (lambda lf: lf.filter(value + 1), pl.exceptions.InvalidOperationError),
        (lambda lf: lf.match_to_schema({**FRAME.schema, "value": pl.String}), pl.exceptions.SchemaError),
        (lambda lf: lf.select(pl.col("place").struct.field("nothing")), pl.exceptions.StructFieldNotFoundError),
    ):
        refused(error, None, plan(FRAME.lazy()).dp.protect, None)


def test_nothing_is_run_changed_copied_or_serialized(folder):
    calls = []
    preprocessing_of(pl.scan_parquet(folder / "visits.parquet").pipe(lambda lf: lf.filter(value > 1)))
    plan = FRAME.lazy().map_batches(lambda frame: calls.append(frame) or frame, schema=FRAME.schema)
    refused(ValueError, "a Python function is code", preprocessing_of, plan)
    assert calls == []
    plan = FRAME.lazy().filter(value > 1)
    before = plan.explain()
    preprocessing_of(plan)
    assert plan.explain() == before
    assert plan.collect().height == 2
    # What can't be serialized at all would show it.
    frame = pl.DataFrame(
        {"value": [1, 2], "thing": [object(), object()]}, schema={"value": pl.Int64, "thing": pl.Object}
    )
    preprocessing_of(frame.lazy().filter(value > 1))


@pytest.mark.parametrize("name", ["Slice", "unique", 'a"b', "FILTER\nSLICE", "len()", "BooleanFunction.IsNull"])
def test_no_name_fools_the_walk(name):
    frame = pl.LazyFrame({name: [1, 2]})
    preprocessing_of(frame.filter(pl.col([name]) > 1).rename({name: name + "x"}))
    of_all = frame.filter(pl.col([name]) == pl.col([name]).max())
    refused(ValueError, r"^protect: `max` combines all rows", preprocessing_of, of_all)
    concat = pl.concat([frame, frame.head(1)])  # which is looked into
    refused(ValueError, "^protect: .*head", preprocessing_of, concat, (name,))


def test_a_file_that_is_not_there_is_said_so_and_costs_nothing(tmp_path):
    schema = {"value": pl.Int64}
    there, gone = tmp_path / "there.csv", tmp_path / "gone.csv"
    there.write_text("value\n1\n")
    query = dpp.protect(None, budget=dpp.Budget(epsilon=2)).agg(dpp.median("value", range(3), epsilon=1))
    for path in (there, tmp_path / "th*.csv"):
        preprocessing_of(pl.scan_csv(path, schema=schema))
    refused(FileNotFoundError, r"gone\.csv", query.release, pl.scan_csv(gone, schema=schema))
    assert query.budget.spent == 0
    assert query.release(pl.scan_csv(there, schema=schema)).height == 1
    refused(FileNotFoundError, None, preprocessing_of, pl.scan_parquet(pathlib.Path("nowhere.parquet")))
