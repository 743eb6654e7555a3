"""Synthetic rows: from public things alone, the same each time, of every type that can be asked about."""

import datetime as dt

import polars as pl

import dp_polars as dpp
from dp_polars.analysis import synthetic
from tests.helpers.refusals import refused

TYPES = {
    "p": pl.Int64,
    "int8": pl.Int8,
    "uint64": pl.UInt64,
    "int128": pl.Int128,
    "float32": pl.Float32,
    "float": pl.Float64,
    "decimal": pl.Decimal(10, 2),
    "share": pl.Decimal(4, 4),
    "text": pl.String,
    "category": pl.Categorical(),
    "enum": pl.Enum(["x", "y", "z"]),
    "boolean": pl.Boolean,
    "date": pl.Date,
    "milliseconds": pl.Datetime("ms", "Europe/Berlin"),
    "nanoseconds": pl.Datetime("ns"),
    "duration": pl.Duration("ms"),
    "time": pl.Time,
}


def test_all_types_and_the_numbers_that_were_asked_for():
    rows = synthetic(TYPES, people=200, rows=3000)
    assert rows.schema == pl.DataFrame(schema=TYPES).schema
    assert rows.height == 3000
    assert rows["p"].n_unique() == 200
    assert rows.null_count().sum_horizontal().item() == 0
    assert rows.equals(synthetic(pl.DataFrame(schema=TYPES).schema, people=200, rows=3000))
    # A minority has many rows, and everybody has one.
    of_people = rows["p"].value_counts()["count"].sort()
    assert of_people[0] >= 1
    assert of_people[-1] > 3 * of_people.median()
    # Not sorted by people: the first rows are of many.
    assert rows["p"].head(100).n_unique() > 50
    for name in ("text", "category", "enum"):
        counts = rows.group_by(name).len()["len"].sort(descending=True)
        assert counts[0] > 1.6 * counts[1] > 2 * counts[2]
    assert set(rows["text"]) == set("abcdefghij")
    assert rows["boolean"].sum() < 1200
    for name, low, high in (("int8", 0, 99), ("float", 0, 99.99), ("share", 0, 0.9999)):
        assert low <= rows[name].min() < low + (high - low) / 4
        assert high >= rows[name].max() > high - (high - low) / 4
        assert rows[name].cast(pl.Float64).is_between(low + (high - low) / 4, high - (high - low) / 4).mean() > 0.7
    assert rows["date"].dt.year().unique().to_list() == [2024]
    assert rows["nanoseconds"].dt.year().unique().to_list() == [2024]


def test_public_values_are_taken():
    values = {
        "ward": ["B", "A"],
        "age": range(30, 40),
        "cost": dpp.grid(0, 10, step=0.5),
        "day": [dt.date(2026, 5, 1), dt.date(2026, 5, 9)],
        "month": pl.Series([4, 5, 6]),
        "p": [f"N{i}" for i in range(1000)],
    }
    schema = {"ward": pl.Enum(["A", "B"]), "age": pl.Int8, "cost": pl.Float64, "day": pl.Datetime("us")}
    schema |= {"month": pl.UInt8, "p": pl.Categorical()}
    rows = synthetic(schema, people=40, rows=1000, values=values, privacy_unit="p")
    assert rows.schema == pl.Schema(schema)
    assert rows["ward"].value_counts(sort=True)["ward"].to_list() == ["B", "A"]
    assert set(rows["age"]) == set(range(30, 40))
    assert set(rows["cost"] * 2) <= set(range(21))
    assert set(rows["day"].dt.day()) == {1, 9}
    assert set(rows["month"]) == {4, 5, 6}
    assert set(rows["p"].cast(pl.String)) == {f"N{i}" for i in range(40)}


def test_the_first_column_is_the_privacy_unit_unless_others_are_named():
    schema = {"a": pl.String, "b": pl.Int64, "c": pl.Int16}
    first, named = synthetic(schema, people=50, rows=90), synthetic(schema, people=50, rows=90, privacy_unit="b")
    assert set(first["a"]) == {str(i) for i in range(50)}
    assert set(named["b"]) == set(range(50))
    of_categories = synthetic({"a": pl.Categorical()}, people=50, rows=90)
    assert set(of_categories["a"].cast(pl.String)) == set(first["a"])
    both = synthetic(schema, people=50, rows=90, privacy_unit=["a", "c"])
    assert both.select("a", "c").n_unique() == 50


def test_a_query_is_rehearsed_on_them():
    schema = pl.Schema({"patient": pl.Int64(), "ward": pl.String(), "days": pl.Float64()})
    rows = synthetic(schema, people=300, rows=900, values={"ward": ["A", "B"], "days": dpp.grid(0, 30, step=0.5)})
    query = dpp.protect("patient", max_groups=2, max_rows_per_group=4).group_by({"ward": ["A", "B"]})
    query = query.agg(patients=dpp.n_people(epsilon=1), days=dpp.mean("days", 0, 30, step=0.5, epsilon=1))
    needed = dpp.analysis.loss_for_query(query, rows, within={"patients": 20, "days": 2})
    assert needed["loss"].is_between(0.2, 6).all()
    law = dpp.analysis.simulate(query, rows)
    assert law["left_out"].sum() > 0


def test_what_is_refused():
    schema = {"p": pl.Int64, "x": pl.String}

    def asked(schema=schema, people=5, rows=9, **options):
        return synthetic(schema, people=people, rows=rows, **options)

    held = r" must be values that a column of type Int8 can hold"
    named = r"values must name columns of the schema, got \['y'\] where they are \['p', 'x'\]"
    refused(TypeError, "people must be an integer, got", asked, people=2.5)
    refused(ValueError, "people must be at least 1, got 0", asked, people=0)
    refused(TypeError, "rows must be an integer", asked, rows="many")
    refused(ValueError, "rows must be at least people, 10, for each has one, got 9", asked, people=10)
    for wrong in ({}, None, [pl.Int64], {"p": "Int64?"}, {"p": 5}):
        refused(TypeError, "schema must be the types of columns by their names, got", asked, wrong)
    refused(TypeError, r"got List\(Int64\) of column 'x'", asked, {"p": pl.Int64, "x": pl.List(pl.Int64)})
    refused(TypeError, "values must be a dict of columns and their public values, got", asked, values=["a"])
    refused(ValueError, named, asked, values={"y": [1]})
    refused(ValueError, r"privacy_unit must name columns of the schema, got \['y'\]", asked, privacy_unit="y")
    refused(TypeError, r"values\['x'\] must be of one type", asked, values={"x": ["a", 1]})
    refused(ValueError, r"values\['x'\] must not be empty", asked, values={"x": []})
    refused(ValueError, rf"values\['n'\]{held}", asked, {"p": pl.Int64, "n": pl.Int8}, values={"n": range(300)})
    refused(ValueError, r"values\['p'\] must have one for each of 5 people, got 2", asked, values={"p": [1, 2]})
    refused(ValueError, "values must be given for the privacy unit 'd' of type Date", asked, {"d": pl.Date})
    refused(ValueError, rf"values\['p'\]{held}", asked, {"p": pl.Int8}, people=200, rows=200)
