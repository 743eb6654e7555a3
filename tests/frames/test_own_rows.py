"""What is tried on one person's rows after `protect`: one refusal, which shows what to write before it."""

import re
from datetime import date

import polars as pl
import pytest

import dp_polars as dpp
from tests.helpers.needs import IS_OLD

VISITS = pl.DataFrame(
    {
        "patient": [1, 1, 2],
        "month": [1, 2, 1],
        "day": [date(2026, 1, 1), date(2026, 1, 9), date(2026, 1, 3)],
        "ward": ["A", "B", "A"],
        "cents": [500, 700, 900],
    }
)
PEOPLE = pl.DataFrame({"patient": [1, 2], "plan": ["x", "y"]})
cents, day = pl.col("cents"), pl.col("day")
# What is tried on a private frame, and the recipe, which runs on the rows and is what was meant.
TRIED = {
    "a window": (
        lambda f: f.with_columns(day.diff().over("patient", order_by="day")),
        'frame.with_columns(pl.col("day").diff().over("patient", order_by="day")).dp.protect("patient", …)',
    ),
    "a named window": (
        lambda f: f.select(total=cents.sum().over("patient")),
        'frame.with_columns(total=pl.col("cents").sum().over("patient")).dp.protect("patient", …)',
    ),
    "a window in a condition": (
        lambda f: f.filter(cents.max().over("patient", "ward") > 600),
        'frame.with_columns(own=pl.col("cents").max().over("patient", "ward")).dp.protect("patient", …)',
    ),
    "a window by several columns, backwards": (
        lambda f: f.with_columns(n=cents.cum_sum().over("patient", order_by=["day", "ward"], descending=True)),
        'frame.with_columns(n=pl.col("cents").cum_sum().over("patient", order_by=["day", "ward"], descending=True))'
        '.dp.protect("patient", …)',
    ),
    "how many rows a person has": (
        lambda f: f.remove(pl.len().over("patient") > 5),
        'frame.with_columns(own=pl.len().over("patient")).dp.protect("patient", …)',
    ),
    "a window that is read": (
        lambda f: f.agg(cents.max().over("patient").dp.mean(0, 9, epsilon=1)),
        'frame.with_columns(pl.col("cents").max().over("patient")).dp.protect("patient", …)',
    ),
    "a window of a longer expression": (
        lambda f: f.with_columns(x=(cents * 2).quantile(0.5).over("patient")),
        'frame.with_columns(x=pl.col("cents").….over("patient")).dp.protect("patient", …)',
    ),
    "groups": (
        lambda f: f.group_by("patient").agg(cents.sum()),
        'frame.group_by("patient").agg(…).dp.protect("patient", max_rows=1)',
    ),
    "groups in order": (
        lambda f: f.group_by(pl.col("patient"), maintain_order=True).len(),
        'frame.group_by("patient", maintain_order=True).agg(…).dp.protect("patient", max_rows=1)',
    ),
    "groups of more columns": (
        lambda f: f.group_by(["patient", "ward"]),
        'frame.group_by("patient", "ward").agg(…).dp.protect("patient", …)',
    ),
    "groups by a computed key": (
        lambda f: f.group_by("patient", year=day.dt.year()),
        'frame.group_by("patient", year=…).agg(…).dp.protect("patient", …)',
    ),
    "distinct rows": (lambda f: f.unique(), 'frame.unique().dp.protect("patient", …)'),
    "distinct rows of some columns": (
        lambda f: f.unique(["patient", "ward"], keep="last"),
        'frame.unique(["patient", "ward"], keep="last").dp.protect("patient", …)',
    ),
    "distinct rows of another column": (
        lambda f: f.unique("ward"),
        'frame.unique(["patient", "ward"]).dp.protect("patient", …)',
    ),
    "a join": (
        lambda f: f.join(PEOPLE.dp.protect("patient"), on="patient"),
        'frame.join(other, on="patient", how="left").dp.protect("patient", …)',
    ),
    "a join of two names": (
        lambda f: f.join(dpp.protect("patient"), left_on=["patient"], right_on=["patient"], how="inner"),
        'frame.join(other, left_on=["patient"], right_on=["patient"], how="inner").dp.protect("patient", …)',
    ),
}


def refused(call, frame):
    with pytest.raises(ValueError, match="a transformation after `protect` must look at one row alone") as said:
        call(frame)
    return str(said.value)


@pytest.mark.parametrize("name", TRIED)
def test_what_looks_at_a_persons_rows_shows_the_recipe(name):
    call, recipe = TRIED[name]
    text = refused(call, VISITS.dp.protect("patient", max_rows=2))
    assert re.match(r"\w+(: `over`| with a private frame)? looks at several rows of one person", text)
    assert "\n\nHint: write it before `protect`: frame." in text
    assert recipe in text


@pytest.mark.parametrize("name", TRIED)
def test_a_query_without_data_takes_prepared_rows(name):
    call, recipe = TRIED[name]
    text, (made, protect) = refused(call, dpp.protect("patient")), recipe.split(".dp.")
    assert f"{made}), for dp_polars.{protect} takes prepared rows." in text
    assert "Hint: write it before `protect`: release(frame." in text


@pytest.mark.parametrize(
    "name", [name for name, (_, recipe) in TRIED.items() if ".…" not in recipe and "=…" not in recipe]
)
def test_the_recipe_runs(name):
    code = TRIED[name][1].replace(", …)", ", max_rows=5)").replace(".agg(…)", ".agg(pl.len())")
    made = eval(code, {"pl": pl, "frame": VISITS, "other": PEOPLE})
    assert made.agg(dpp.n_people(epsilon=10**6)).release().item() == 2


def test_a_unit_of_several_columns_is_named_whole():
    private = VISITS.dp.protect(["patient", "month"])
    text = refused(lambda f: f.group_by("month", "patient"), private)
    assert 'frame.group_by("month", "patient").agg(…).dp.protect(["month", "patient"], max_rows=1)' in text
    text = refused(lambda f: f.with_columns(cents.sum().over("patient", "month")), private)
    assert '.over("patient", "month")).dp.protect(["month", "patient"], …)' in text
    assert 'unique(["month", "patient", "ward"])' in refused(lambda f: f.unique(["ward"]), private)


@pytest.mark.parametrize(
    "step",
    [
        lambda f: f.with_columns(cents.sum().over("ward")),
        lambda f: f.filter(cents.sum().over("ward", "month") > 3),
        lambda f: f.with_columns(cents.sum().over(pl.col("patient") // 2)),
        lambda f: f.with_columns(cents.sum().over("patient")),
    ],
)
def test_windows_of_other_columns_are_left_to_the_row_gate(step):
    with pytest.raises(ValueError, match=r"combines several rows|Polars 2" if IS_OLD else "combines several rows"):
        step(VISITS.dp.protect(["patient", "month"]))


def test_groups_of_other_columns_are_names_or_public_keys():
    private = VISITS.dp.protect("patient")
    with pytest.raises(
        TypeError,
        match=r"group_by must be given public keys or names of columns, got year\.\n\nHint: group_by\(\{'year'",
    ):
        private.group_by({"ward": ["A"]}, year=day.dt.year())


def test_where_every_row_is_a_person_no_recipe_is_shown():
    rows = VISITS.dp.protect(None)
    with pytest.raises(ValueError, match="compares a row with the others"):
        rows.unique()
    assert "selected by 'patient'" in repr(rows.group_by("patient"))
    with pytest.raises(ValueError, match="there must be a privacy unit"):
        rows.join(rows, on="patient")


def test_what_belongs_before_protect_is_charged_as_protect_says():
    """A plan that looks as if each person had one row changes nothing."""
    people = VISITS.lazy().group_by("patient").agg(cents.sum()).dp.protect("patient")
    with pytest.raises(ValueError, match="the rows of one person must be bounded"):
        people.agg(dpp.len(epsilon=1))
    (ask,) = people.with_limits(max_rows=3).agg(dpp.len(epsilon=1))._asks
    assert ask.query.claim.contributions.total == 3
