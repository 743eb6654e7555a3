"""One table, one unit: no row belongs to two people because its table is read twice."""

import itertools
from collections import Counter

import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pytest

import dp_polars as dpp
from tests.helpers.needs import IS_OLD
from tests.helpers.refusals import refused

VISITS = pl.DataFrame({"patient": [1, 2, 3], "doctor": [2, 3, 4], "ward": ["A", "B", "A"], "cents": [5, 6, 7]})
STAFF = pl.DataFrame({"id": [2, 3, 4], "grade": ["x", "y", "x"]})
SWAPPED = {"patient": "doctor", "doctor": "patient"}
patient, doctor, cents = map(pl.col, ("patient", "doctor", "cents"))
BY_DOCTOR = {"left_on": "patient", "right_on": "doctor"}
TWICE = r"a table that is read twice has one privacy unit: otherwise a row belongs to several people[^\0]*\n\nHint: "


def concat(one, other):
    return pl.concat([one, other], how="vertical")


# Plans whose unit is the patient.
REFUSED = {
    "a join with other columns": lambda v: v().join(v().drop("patient"), **BY_DOCTOR),
    "an anti join": lambda v: v().join(v().drop("patient"), **BY_DOCTOR, how="anti"),
    "a join with groups": lambda v: v().join(v().group_by("doctor").agg(n=pl.len()), **BY_DOCTOR),
    "a join with a window": lambda v: v().join(
        v().select(who="doctor", n=pl.len().over("doctor")), left_on="patient", right_on="who"
    ),
    "a concat with another name": lambda v: concat(
        v().select("patient", "cents"), v().select("cents", patient="doctor").select("patient", "cents")
    ),
    "swapped names": lambda v: concat(v(), v().rename(SWAPPED).select("patient", "doctor", "ward", "cents")),
    "a computed column": lambda v: concat(v(), v().with_columns(patient=doctor + 0)),
    "two computed columns": lambda v: concat(
        v().with_columns(patient=patient + 0), v().with_columns(patient=doctor + 0)
    ),
    "a computed column of what was swapped": lambda v: concat(
        v(), v().rename(SWAPPED).select("patient", "doctor", "ward", "cents")
    ).with_columns(patient=patient + 0),
    "what is cached": lambda v: v().cache().join(v().cache().filter(cents > 5).drop("patient"), **BY_DOCTOR),
    "a filter of each": lambda v: concat(v().filter(cents > 5), v().filter(cents < 7).with_columns(patient="doctor")),
}
ACCEPTED = {
    "a join with itself": lambda v: v().join(v().filter(cents > 5), on="patient", how="semi"),
    "a join of groups": lambda v: v().join(v().group_by("patient").agg(n=pl.len()), on="patient"),
    "another name for a time": lambda v: v().join(
        v().rename({"patient": "who"}).select("who", "ward"), left_on="patient", right_on="who"
    ),
    "a concat": lambda v: concat(v(), v().filter(cents > 5)),
    "one that is computed after a concat": lambda v: concat(v(), v()).with_columns(patient=doctor + patient),
    "one that is renamed after a concat": lambda v: concat(v(), v()).select("cents", patient="doctor"),
    "another table": lambda v: v().join(STAFF.lazy(), left_on="patient", right_on="id"),
}


def in_memory(frame, folder):
    return frame.lazy


def clones(frame, folder):
    return lambda: frame.clone().lazy()


def slices(frame, folder):
    numbers = itertools.count()
    longer = pl.concat([frame.head(1), frame], rechunk=True)
    return lambda: longer.slice(0 if next(numbers) else 1).lazy()


def in_pieces(frame, folder):
    several = pl.concat([frame[:1].clone(), frame[1:]], rechunk=False)
    return lambda: several.select(pl.all()).lazy()


def parquet(frame, folder, other="visits.parquet"):
    """Scans of a file by two names in turn."""
    frame.write_parquet(folder / "visits.parquet")
    names = itertools.cycle(["visits.parquet", other])
    return lambda: pl.scan_parquet(folder / next(names))


def links(frame, folder):
    (folder / "link.parquet").symlink_to(folder / "visits.parquet")
    return parquet(frame, folder, "link.parquet")


def patterns(frame, folder):
    frame.write_parquet(folder / "visits2.parquet")
    return parquet(frame, folder, "vis*.parquet")


def ipc(frame, folder):
    frame.write_ipc(folder / "visits.arrow")
    return lambda: pl.scan_ipc(folder / "visits.arrow")


def csv(frame, folder):
    frame.write_csv(folder / "visits.csv")
    return lambda: pl.scan_csv(folder / "visits.csv", schema=frame.schema)


def arrow(frame, folder):
    frame.write_parquet(folder / "visits.parquet")
    return lambda: pl.scan_pyarrow_dataset(pyarrow.dataset.dataset(str(folder / "visits.parquet")))


SOURCES = [in_memory, clones, slices, in_pieces, parquet, links, patterns, ipc, csv, arrow]


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", REFUSED)
def test_a_table_that_is_read_twice_has_one_unit(tmp_path, name, source):
    table = source(VISITS, tmp_path)
    refused(ValueError, f"^protect: {TWICE}", REFUSED[name](table).dp.protect, "patient")


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", ACCEPTED)
def test_the_same_unit_may_be_read_twice(tmp_path, name, source):
    if name == "another table" and source in {ipc}:
        STAFF.write_ipc(tmp_path / "staff.arrow")
        plan = source(VISITS, tmp_path)().join(pl.scan_ipc(tmp_path / "staff.arrow"), left_on="patient", right_on="id")
    else:
        plan = ACCEPTED[name](source(VISITS, tmp_path))
    plan.dp.protect("patient")


def people_changed(plan, all_rows):
    """By person: whose rows of the plan change if all rows go in which that person is the unit of any reading."""

    def found(rows):
        out = plan(lambda: rows.lazy()).collect()
        return {who: Counter(map(repr, out.filter(patient == who).rows())) for who in range(1, 5)}

    before = found(all_rows)
    return {
        who: [
            other
            for other, rows in found(all_rows.filter(patient != who, doctor != who)).items()
            if other != who and rows != before[other]
        ]
        for who in range(1, 5)
    }


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_does_change_others(name):
    """For each refused plan some small table has a person who takes another one's rows along."""
    tables = [
        pl.DataFrame({"patient": p, "doctor": d, "ward": ["A"] * 3, "cents": [5, 6, 7]})
        for p in itertools.product((1, 2, 3), repeat=3)
        for d in itertools.product((2, 3), repeat=3)
    ]
    assert any(any(people_changed(REFUSED[name], rows).values()) for rows in tables[:60])


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_is_accepted_changes_nobody_else(name):
    """Here a person's rows are those of the patient, or of what the plan computes from a row."""
    plan = ACCEPTED[name]
    unit = {"one that is computed after a concat": doctor + patient, "one that is renamed after a concat": doctor}
    whose = unit.get(name, patient)
    for p, d in itertools.product(itertools.product((1, 2), repeat=3), itertools.product((1, 2), repeat=3)):
        rows = pl.DataFrame({"patient": p, "doctor": d, "ward": ["A", "B", "A"], "cents": [5, 6, 7]})
        before = plan(lambda rows=rows: rows.lazy()).collect()
        for who in range(1, 5):
            after = plan(lambda rows=rows, who=who: rows.filter(whose != who).lazy()).collect()
            assert Counter(after.rows()) == Counter(before.filter(patient != who).rows())


def test_names_in_memory_are_seen_through():
    visits, renamed = VISITS, VISITS.rename(SWAPPED)
    unit = VISITS.rename({"patient": "who"})
    refused(ValueError, TWICE, concat(visits.lazy(), renamed.select(visits.columns).lazy()).dp.protect, "patient")
    visits.lazy().join(unit.lazy(), left_on="patient", right_on="who").dp.protect("patient")
    # A row of another table may name the same people.
    visits.lazy().join(STAFF.lazy(), left_on="patient", right_on="id").dp.protect("patient")
    # Each piece counts.
    pieces = pl.concat([VISITS.clone(), VISITS.sort("cents")], rechunk=False)
    last = pieces[VISITS.height :].rename(SWAPPED).select(VISITS.columns)
    refused(ValueError, TWICE, concat(pieces.lazy(), last.lazy()).dp.protect, "patient")
    # What is null may be shared by columns that differ.
    nulls = VISITS.with_columns(pl.when(doctor > 2).then(doctor).alias("doctor"))
    shared = [nulls.select("ward", patient=of) for of in (doctor, doctor + 1)]
    refused(ValueError, TWICE, concat(*(frame.lazy() for frame in shared)).dp.protect, "patient")


@pytest.mark.parametrize("dtype", [pl.String, pl.Boolean, pl.Categorical, pl.Date, pl.Int8, pl.Int128])
def test_columns_of_every_type_are_found_in_memory(dtype):
    visits = VISITS.with_columns((patient - 1 if dtype == pl.Boolean else patient).cast(pl.Int32))
    if dtype in (pl.String, pl.Categorical):
        visits = visits.with_columns(patient.cast(pl.String), doctor.cast(pl.String))
    visits = visits.with_columns(patient.cast(dtype), doctor.cast(dtype))
    same = visits.clone().select("patient", "doctor").lazy()
    concat(visits.lazy().select("patient", "doctor"), same).dp.protect("patient")
    both = concat(visits.lazy().select("patient"), same.select(patient="doctor"))
    refused(ValueError, TWICE, both.dp.protect, "patient")


@pytest.mark.parametrize("nested", [pl.struct, pl.concat_list, pl.concat_arr])
def test_tables_of_nested_columns_are_found_in_memory(nested):
    visits = VISITS.select(both=nested("patient", "doctor"))
    renamed = visits.rename({"both": "two"}).lazy()
    parts = {
        pl.struct: lambda name, place: pl.col(name).struct[place],
        pl.concat_list: lambda name, place: pl.col(name).list.get(place, null_on_oob=True),
        pl.concat_arr: lambda name, place: pl.col(name).arr.get(place, null_on_oob=True),
    }
    one = visits.lazy().select(patient=parts[nested]("both", 0))
    other = renamed.select(patient=parts[nested]("two", 1))
    words = "needs Polars 2|does not show|is read twice has one" if IS_OLD else TWICE
    refused(ValueError, words, concat(one, other).dp.protect, "patient")


def published(one, other):
    """A release of two tables, each of which is asked about by itself."""
    private = dpp.protect("patient", max_rows=3)
    two = dpp.publication(one=private.agg(dpp.len(epsilon=1000)), other=private.agg(dpp.len(epsilon=1000)))
    return two.release({"one": one, "other": other})


@pytest.mark.parametrize("source", SOURCES)
def test_tables_of_one_publication_have_one_unit(tmp_path, source):
    table = source(VISITS, tmp_path)
    of_doctors = table().drop("patient").rename({"doctor": "patient"})
    refused(ValueError, f"^publication: {TWICE}", published, table(), of_doctors)
    one, other = table(), table().filter(pl.col("cents") > 5)  # a pattern names two files
    released = published(one, other)
    assert [released[name].item() for name in ("one", "other")] == [one.collect().height, other.collect().height]


def test_columns_of_csv_files_are_told_apart_by_their_places(tmp_path):
    VISITS.write_csv(tmp_path / "visits.csv")

    def scan(*names, **options):
        return pl.scan_csv(tmp_path / "visits.csv", **options).select(names)

    def dataset(*names):
        read = pyarrow.csv.ReadOptions(column_names=names, skip_rows=1)
        csv = pyarrow.dataset.CsvFileFormat(read_options=read)
        return pl.scan_pyarrow_dataset(pyarrow.dataset.dataset(str(tmp_path / "visits.csv"), format=csv))

    types = dict.fromkeys(["patient", "doctor", "ward", "cents"], pl.String)
    names, swapped = [*types], ["doctor", "patient", "ward", "cents"]
    pairs = [
        (scan("patient", new_columns=names), scan("patient", new_columns=swapped)),
        (scan("patient"), scan("patient", with_column_names=lambda _: swapped)),
        (scan("patient", schema=types), scan("patient", schema=dict.fromkeys(swapped, pl.String))),
        (scan("patient", has_header=False, new_columns=names), scan("patient", has_header=False, new_columns=swapped)),
        (dataset(*names), dataset(*swapped)),
        (scan("patient"), dataset(*swapped)),
    ]
    for one, other in pairs:
        refused(ValueError, f"^publication: {TWICE}", published, one, other)
        refused(ValueError, TWICE, one.join(other, on="patient").dp.protect, "patient")
    published(scan("patient"), scan("patient", new_columns=["patient", "x", "y", "z"]))
    published(dataset(*names), dataset(*names))


@pytest.mark.parametrize("cached", [False, True])
def test_one_step_may_compute_two_units(cached):
    plan = VISITS.lazy().with_columns(one=patient + 1, two=doctor + 1)
    plan = plan.cache() if cached else plan
    both = concat(*(plan.select("cents", patient=of) for of in ("one", "two")))
    refused(ValueError, TWICE, both.dp.protect, "patient")
    if cached:
        concat(*(plan.select("cents", patient="one") for _ in range(2))).dp.protect("patient")


def test_one_that_is_computed_has_one_plan_and_computed_twice_it_is_not_known():
    plan = VISITS.lazy().with_columns(patient=patient + doctor)
    published(plan, plan)
    refused(ValueError, f"^publication: {TWICE}", published, plan, VISITS.lazy().with_columns(patient=patient * doctor))
    once = [VISITS.lazy().with_columns(patient=of + 0) for of in (patient, doctor)]
    refused(ValueError, TWICE, concat(*once).with_columns(patient=patient + 1).dp.protect, "patient")
    # Two steps that compute it after a third one, which both of them read.
    third = VISITS.lazy().with_columns(patient=patient + 0).cache()
    both = concat(*(third.with_columns(patient=of + 1) for of in (patient, doctor)))
    refused(ValueError, TWICE, both.dp.protect, "patient")


def test_arrow_tables_and_datasets_are_seen_when_they_are_released(tmp_path):
    table = VISITS.to_arrow()
    swapped = table.rename_columns(["doctor", "patient", "ward", "cents"])
    VISITS.write_parquet(tmp_path / "visits.parquet")
    dataset = pyarrow.dataset.dataset(str(tmp_path / "visits.parquet"))
    for same in (table, dataset, pyarrow.dataset.dataset(table)):
        assert published(same, same).keys() == {"one", "other"}
    batch, of_doctors = (columns.combine_chunks().to_batches()[0] for columns in (table, swapped))
    published(batch, batch)
    memory = pyarrow.dataset.dataset(pa.table(table))
    for one, other in (
        (table, swapped),
        (dataset, pl.scan_parquet(tmp_path / "visits.parquet").rename(SWAPPED)),
        (pyarrow.dataset.dataset(table), pyarrow.dataset.dataset(swapped)),
        (batch, of_doctors),
        (memory, pl.scan_pyarrow_dataset(memory).rename(SWAPPED)),
    ):
        refused(ValueError, f"^publication: {TWICE}", published, one, other)


def test_rows_of_people_are_no_facts_of_another_query():
    """What is joined by other columns belongs to nobody there, and to its people in another query of a publication."""
    budget = dpp.Budget(epsilon=2)
    wards = pl.LazyFrame({"patient": [1, 2], "ward": ["A", "B"]}).join(VISITS.lazy().select("ward", "cents"), on="ward")
    queries = {
        name: rows.dp.protect("patient", max_rows=1, budget=budget).agg(n=dpp.len(epsilon=1))
        for name, rows in {"visits": VISITS.lazy(), "wards": wards}.items()
    }
    with pytest.raises(ValueError, match="publication: a table that is read twice has one privacy unit"):
        dpp.publication(queries).release()
    assert budget.spent == 0
