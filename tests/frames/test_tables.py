"""Cubes of tables: answers that agree, their intervals, what they refuse, and what they carry."""

import itertools
import math
import sys
import warnings
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import dp_polars as dpp
from dp_polars._frames import cube as released_cubes
from dp_polars._frames import cube_query as cubes
from dp_polars._mechanisms import graphical_models
from dp_polars.analysis import simulate
from tests.frames.test_cube import (
    assert_read_as_it_was_written,
    assert_refused_once_it_was_changed,
    counted,
    listed_of,
)
from tests.helpers.needs import need
from tests.helpers.refusals import refusals

DIMENSIONS = {"hospital": ["A", "B", "C"], "year": range(2020, 2025), "flu": [True, False], "age": range(4)}
TABLES = [("hospital",), ("year", "hospital"), ("flu", "year"), ("age", "hospital", "flu")]
SURE = {"rho": 10**7}
YEAR = pl.col("year")


@pytest.fixture(scope="module")
def visits():
    """Of 6,000 patients, one row each; some with null or unlisted values in a dimension."""
    rng, many = np.random.default_rng(45), 6000
    hospitals = rng.choice(["A", "B", "C", "D", None], many, p=[0.5, 0.3, 0.1, 0.05, 0.05])
    columns = {"patient": range(many), "hospital": hospitals, "year": rng.integers(2019, 2026, many)}
    return pl.DataFrame({**columns, "flu": rng.random(many) < 0.2, "age": rng.integers(0, 5, many)})


@pytest.fixture(scope="module")
def listed(visits):
    return listed_of(visits, DIMENSIONS)


@pytest.fixture(scope="module")
def private(visits):
    return visits.dp.protect("patient", max_groups=1)


@pytest.fixture(scope="module")
def cube(private):
    return private.cube(DIMENSIONS, tables=TABLES, rho=0.01).release()


@pytest.mark.parametrize("partitions", [None, 3])
def test_tables_are_of_the_rows_that_have_a_listed_value_in_every_dimension(visits, listed, engine, partitions):
    rows = visits.lazy()
    for private in (rows.dp.protect("patient", max_groups=1), rows.dp.protect(None)):
        sure = private.cube(DIMENSIONS, tables=TABLES, **SURE).release(engine=engine, partitions=partitions)
        for by in ["hospital", ["flu", "age"], ["hospital", "year"], ["hospital", "flu", "age"]]:
            names = [by] if isinstance(by, str) else by
            expected = counted(listed, DIMENSIONS, names, pl.Float64)
            assert_frame_equal(sure.counts(by=by).select(*names, "count"), expected, check_exact=True)
        assert sure.count(YEAR > 2022, pl.col("flu")).value == listed.filter(YEAR > 2022, pl.col("flu")).height
        assert math.isclose(sure.share(pl.col("flu"), by="year")["share"][2], listed.filter(YEAR == 2022)["flu"].mean())
        assert sure.top("age", pl.col("flu"), by="hospital").height == 3


def test_what_two_answers_share_agrees_to_the_last_digit(cube):
    whole = cube.count().value
    for by in ("hospital", "year", "flu", "age", ["hospital", "year"], ["flu", "year"], ["age", "flu", "hospital"]):
        assert cube.counts(by=by)["count"].sum() == whole
    by_year = cube.counts(by=["hospital", "year"])
    assert (
        by_year.group_by("hospital", maintain_order=True)
        .agg(pl.col("count").sum())
        .equals(cube.counts(by="hospital").select("hospital", "count"))
    )
    ages = cube.counts(pl.col("age") > 1, by=["flu", "hospital"]).filter("flu")["count"].sum()
    assert ages == cube.count(pl.col("flu"), pl.col("age") > 1).value
    assert cube.count(YEAR == 2021).value + cube.count(YEAR != 2021).value == whole
    frame = cube.to_frame()
    assert frame.height == 3 + 15 + 10 + 24
    assert frame.schema["count"] == pl.Float64
    assert frame[3:18].select("hospital", "year", "count").equals(by_year.select("hospital", "year", "count"))
    assert frame[:3]["year"].null_count() == 3


def test_a_query_that_no_table_covers_is_refused_and_names_the_table(cube):
    for ask in (
        lambda: cube.counts(by=["year", "age"]),
        lambda: cube.count(YEAR > 2021, pl.col("age") == 2),
        lambda: cube.share(pl.col("age") == 2, by="year"),
        lambda: cube.top("age", by="year"),
    ):
        with pytest.raises(ValueError, match=r"got \['year', 'age'\], which none has") as raised:
            ask()
        assert "with ('year', 'age') among its tables" in str(raised.value)


def test_dimensions_may_have_more_combinations_than_fit_into_memory():
    rng = np.random.default_rng(1)
    values = rng.integers(0, 10, (5000, 12))
    rows = pl.DataFrame({f"d{i}": values[:, i] for i in range(12)})
    dimensions = {name: range(10) for name in rows.columns}
    tables = list(itertools.combinations(rows.columns, 2))
    for private in (rows.dp.protect(None), rows.with_row_index("p").dp.protect("p", max_groups=1)):
        sure = private.cube(dimensions, tables=tables, **SURE).release()
        for one in (("d0", "d11"), ("d4", "d5")):
            found = sure.counts(by=one)["count"].to_numpy().reshape(10, 10)
            expected = np.zeros((10, 10))
            np.add.at(expected, tuple(values[:, int(name[1:])] for name in one), 1)
            assert (found == expected).all()
    with pytest.raises(ValueError, match=r"at most 2\*\*62 combinations"):
        rows.dp.protect(None).cube({f"d{i}": range(50) for i in range(12)}, tables=tables, rho=1)


def test_sums_over_dimensions_are_those_of_all_combinations():
    rng = np.random.default_rng(2)
    sizes, tables = (3, 70, 5, 2, 40, 6), [(0, 1), (1, 4), (2,), (), (0, 2, 3, 5), (1, 2, 4)]
    codes = rng.integers(0, math.prod(sizes), 3000)
    weights = rng.integers(1, 5, 3000)
    for own in (weights, np.ones(3000, np.int64)):
        every = np.bincount(codes, own, math.prod(sizes)).astype(np.int64).reshape(sizes)
        for cached in (1, 1000, 1 << 17):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(cubes, "_CACHED", cached)
                patch.setattr(cubes, "_SLICE", 1000)
                found = cubes.sums_of(codes, own, sizes, tables)
            for axes in tables:
                assert np.array_equal(found[axes], every.sum(axis=tuple({*range(6)} - {*axes})))
    nothing = cubes.sums_of(codes[:0], weights[:0], sizes, tables)
    assert all(not table.any() for table in nothing.values())


def test_losses_are_parts_of_the_loss_and_are_charged_once(private, visits, tmp_path):
    budget = dpp.Budget(rho=1, path=tmp_path / "ledger.db")
    query = visits.dp.protect("patient", max_groups=1, budget=budget).cube(
        DIMENSIONS, tables=TABLES, rho=Fraction(1, 7)
    )
    assert query.loss.value == sum(ask.query.claim.loss.value for ask in query._asks) == Fraction(1, 7)
    assert {ask.query.claim.mechanism for ask in query._asks} == {"discrete_gaussian"}
    query.release().counts(by="year")
    assert budget.spent == Fraction(1, 7)
    twice = query.scaled_to(rho=Fraction(2, 7))
    assert twice._request.drawn == query._request.drawn
    assert [one.query.claim.loss.value for one in twice._asks] == [
        2 * one.query.claim.loss.value for one in query._asks
    ]


def test_a_guarantee_is_shared_in_rho(private):
    query = private.cube(DIMENSIONS, tables=TABLES, epsilon=1, delta=1e-6)
    assert query.loss.unit == "rho"
    assert 0.0279 < query.loss.value < 0.0281
    assert query.explain()["output"].to_list()[:4] == [
        *("count by hospital", "count by hospital, year", "count by year, flu", "count by hospital, flu, age")
    ]
    assert "For epsilon=1, delta=0.000001 in all, the unit is rho" in query.explain()["note"][0]
    whole = private.cube(DIMENSIONS, epsilon=1, delta=1e-6)
    assert str(whole.loss) == "epsilon=1"


def test_a_guaranteed_cube_explains_tables_that_are_not_drawn():
    few = {"a": [1, 2], "b": [1, 2]}
    query = dpp.protect("p", max_groups=1).cube(few, tables=[(), ("a", "b")], weights=[1, 1000], epsilon=1, delta=1e-6)
    found = query.explain()
    assert found.height > len(query._asks)
    assert found.filter(pl.col("mechanism").is_null())["note"].str.starts_with("Not drawn").all()
    assert found["note"].str.contains("In epsilon").sum() == 0


def test_explain_has_the_error_of_each_table(private):
    query = private.cube(DIMENSIONS, tables=TABLES, rho=0.01)
    found = query.explain()
    assert found["output"].to_list()[:2] == ["count by hospital", "count by hospital, year"]
    assert found["groups"].to_list()[:4] == [3, 15, 10, 24]
    released = query.release()
    for name, error in found.select("output", "error_95").rows()[:4]:
        counts = released.counts(by=name.removeprefix("count by ").split(", "))
        assert np.allclose(counts["count_high"] - counts["count"], error, atol=2e-5)
    assert math.isclose(found["rho"].sum(), 0.01)
    weighed = private.cube(DIMENSIONS, tables=TABLES, weights=[100, 1, 1, 1], rho=0.01).explain()
    assert weighed["error_95"][0] < 0.8 * found["error_95"][0]
    statement = query.statement(name="Visits").to_markdown()
    assert "count by hospital, year" in statement
    assert "hospital: " in statement


@pytest.mark.slow
@pytest.mark.parametrize("rho", [0.001, 0.1, 1, 10])
def test_ranges_hold_95_times_of_100(visits, rho):
    dimensions = {"hospital": ["A", "B", "C"], "flu": [True, False], "day": range(50)}
    rows = visits.with_columns(day=pl.col("patient") % 50)
    tables = [("hospital", "flu"), ("day",), ("flu", "day")]
    query = rows.dp.protect(None).cube(dimensions, tables=tables, rho=rho)
    sure = rows.dp.protect(None).cube(dimensions, tables=tables, **SURE).release()
    asks = [
        lambda cube: cube.counts(by=["hospital", "flu"])[1],
        lambda cube: cube.counts(by="day")[17],
        lambda cube: cube.counts(pl.col("day") < 30, by="flu")[1],
        lambda cube: cube.counts(by=["flu", "day"])[60],
    ]
    truths = [ask(sure)["count"].item() for ask in asks]
    inside, releases = np.zeros(len(asks)), 2000
    for _ in range(releases):
        cube = query.release()
        for i, ask in enumerate(asks):
            (row,) = ask(cube).to_dicts()
            inside[i] += row["count_low"] <= truths[i] <= row["count_high"]
    share = inside / releases
    # Three standard deviations of chance are 0.015. Where noise is hardly more than one, it has steps.
    assert (share > 0.935).all(), share
    assert (share < (0.97 if rho <= 1 else 1.01)).all(), share


def test_all_ranges_hold_together_where_that_is_asked(cube, private):
    each, together = (cube.counts(by=["hospital", "year"], intervals=intervals) for intervals in (True, "all"))
    assert (together["count_high"] > each["count_high"]).all()
    whole = private.cube(DIMENSIONS, epsilon=1).release()
    one, many = (whole.counts(by="year", intervals=intervals) for intervals in (True, "all"))
    assert (many["count_low"] < one["count_low"]).all()
    for wrong in (False, "each", 1):
        with pytest.raises(ValueError, match="intervals must be True or"):
            cube.counts(by="year", intervals=wrong)


def test_a_range_does_not_depend_on_the_order_of_by(cube):
    names = ["hospital", "flu", "age"]
    widths = set()
    for by in itertools.permutations(names):
        found = cube.counts(pl.col("age") > 1, pl.col("flu") | (pl.col("age") == 3), by=by).sort(names)
        widths.add(tuple((found["count_high"] - found["count"]).to_list()))
    assert len(widths) == 1
    assert 0.0 in next(iter(widths))  # a combination that the filters leave out is known


def test_what_was_written_is_read(cube, sparse, tmp_path):
    path = tmp_path / "cube.parquet"
    assert_read_as_it_was_written(cube, path, ["flu"], YEAR > 2021)
    assert "table by (hospital, year): 15 cells, standard deviation" in repr(cube)
    for other in (sparse.nonnegative(), sparse.whole(), sparse.nonnegative().whole()):
        assert_read_as_it_was_written(other, path, ["day"], YEAR > 2021)


@pytest.mark.parametrize("change", ["values", "rows", "order", "one number"])
def test_a_file_that_was_changed_is_refused(cube, tmp_path, change):
    assert_refused_once_it_was_changed(cube, tmp_path / "cube.parquet", change)


def test_answers_are_cached(visits, tmp_path):
    budget = dpp.Budget(rho=10, path=tmp_path / "ledger.db")
    private = visits.dp.protect("patient", max_groups=1, budget=budget, dataset="visits")
    first, again = (private.cube(DIMENSIONS, tables=TABLES, rho=1).release() for _ in range(2))
    assert again.to_frame().equals(first.to_frame())
    assert budget.spent == 1
    private.cube(DIMENSIONS, tables=TABLES[1:], rho=1).release()
    assert budget.spent == 2


@pytest.fixture(scope="module")
def sparse(visits):
    dimensions = {"hospital": ["A", "B", "C", "E"], "year": range(2020, 2025), "day": range(30)}
    rows = visits.with_columns(day=pl.col("patient") % 20)[:600]
    tables = [("hospital",), ("hospital", "year"), ("hospital", "year", "day")]
    return rows.dp.protect(None).cube(dimensions, tables=tables, rho=0.05).release()


@pytest.fixture
def mbi():
    with warnings.catch_warnings():  # of JAX's settings
        warnings.simplefilter("ignore")
        return need("mbi")


@pytest.mark.parametrize("way", ["a distribution", "it would be too large", "the extra is not there"])
def test_no_number_is_negative_and_answers_agree(sparse, way, monkeypatch, request):
    if way == "the extra is not there":
        monkeypatch.setitem(sys.modules, "mbi", None)
    else:
        request.getfixturevalue("mbi")
    if way == "it would be too large":
        monkeypatch.setattr(released_cubes, "_LARGEST_MODEL", 0)
    assert sparse.to_frame()["count"].min() < -3
    found = sparse.nonnegative()
    assert found.to_frame()["count"].min() >= 0
    assert found.counts(by=["hospital", "year"])["count"].sum() == found.counts(by="day")["count"].sum()
    if way == "a distribution":
        assert abs(sparse.count().value - found.count().value) < 0.1
    else:  # far nearer to the fit than counts that are cut at 0
        clipped = sparse.counts(by=["hospital", "year", "day"])["count"].clip(0).sum()
        assert sparse.count().value < found.count().value < (sparse.count().value + clipped) / 2
    before, after = (one.counts(by=["hospital", "day"]) for one in (sparse, found))
    assert after["count_low"].equals(before["count_low"].clip(0))
    assert after["count_high"].equals(before["count_high"].clip(0))
    share = found.share(pl.col("hospital") == "E", by="year")
    assert share["share"].is_between(0, 1).all()


def related(people):
    """Six columns, each like the one before."""
    rng = np.random.default_rng(5)
    columns, code = {}, rng.integers(0, 5, people) * rng.integers(0, 2, people)
    for name in "abcdef":
        code = np.where(rng.random(people) < 0.7, code, rng.integers(0, 5, people))
        columns[name] = code
    return pl.DataFrame(columns)


@pytest.mark.parametrize(("people", "many", "part"), [(1000, 8, 0.75), (30_000, 36, 1.01)])
def test_of_few_people_numbers_are_less_off_without_negative_ones(mbi, people, many, part, monkeypatch):
    rows, pairs = related(people), list(itertools.combinations("abcdef", 2))
    query = rows.dp.protect(None).cube(dict.fromkeys("abcdef", range(5)), tables=pairs, rho=0.02)
    # One ratio is 0.68 or 0.994, with a standard deviation of 0.041 or 0.015: 8 or 36 are 4 of theirs away.
    cubes = [query.release() for _ in range(many)]

    def off(several):
        apart = 0
        for by, one in itertools.product(pairs, several):
            true = one.counts(by=by).join(rows.group_by(by).len(), on=by, how="left")["len"].fill_null(0)
            apart += (one.counts(by=by)["count"] - true).abs().sum()
        return apart

    found = off([cube.nonnegative() for cube in cubes])
    assert found < part * off(cubes)
    monkeypatch.setattr(released_cubes, "_LARGEST_MODEL", 0)
    assert found < (1 + part) / 2 * off([cube.nonnegative() for cube in cubes])


def test_what_the_noise_does_not_explain_is_no_distribution(mbi, sparse, monkeypatch):
    nearest = sparse.nonnegative()
    monkeypatch.setattr(graphical_models, "_STEPS", 0)  # a fit that is far off
    flat = sparse.nonnegative()
    monkeypatch.setattr(released_cubes, "_LARGEST_MODEL", 0)
    assert flat.to_frame().equals(sparse.nonnegative().to_frame())
    assert not flat.to_frame().equals(nearest.to_frame())


def test_of_noise_alone_numbers_are_those_of_a_distribution(mbi, monkeypatch):
    pairs = list(itertools.combinations("abcdef", 2))
    query = related(1000).dp.protect(None).cube(dict.fromkeys("abcdef", range(5)), tables=pairs, rho=1e-6)
    cubes = [query.release() for _ in range(5)]
    found = [cube.nonnegative().to_frame() for cube in cubes]
    monkeypatch.setattr(released_cubes, "_LARGEST_MODEL", 0)
    assert not any(one.equals(cube.nonnegative().to_frame()) for one, cube in zip(found, cubes, strict=True))


def test_whole_numbers_agree(sparse, cube, private):
    for base in (sparse, sparse.nonnegative()):
        found = base.whole()
        assert found.to_frame().schema["count"] == pl.Int64
        assert (found.to_frame()["count"] - base.to_frame()["count"]).abs().max() < 1
        assert found.counts(by=["hospital", "year"])["count"].sum() == found.counts(by="hospital")["count"].sum()
        parts = (
            found.counts(by=["hospital", "year"]).group_by("hospital", maintain_order=True).agg(pl.col("count").sum())
        )
        assert parts.equals(found.counts(by="hospital").select("hospital", "count"))
        assert (found.to_frame()["count"].min() >= 0) == (base is not sparse)
        assert isinstance(found.count().value, int)
    drawn = private.cube(DIMENSIONS, epsilon=1).release()
    assert drawn.whole() is drawn
    with pytest.raises(ValueError, match=r"whole: of two tables one must have all dimensions of the other"):
        cube.whole()


NAMES = [f"d{i}" for i in range(13)]


def tables(f, tables=TABLES, rho=1, **options):
    return f.cube(DIMENSIONS, tables=tables, rho=rho, **options)


@refusals(
    (lambda f: tables(f, ("year",)), TypeError, "tables must be a list of tuples"),
    (lambda f: tables(f, "year"), TypeError, "tables must be a list of tuples"),
    (lambda f: tables(f, []), ValueError, "at least one"),
    (lambda f: tables(f, [("age", "sex")]), ValueError, "'sex'"),
    (lambda f: tables(f, [("year", "year")]), ValueError, "a dimension twice"),
    (lambda f: tables(f, [("year", "age"), ("age", "year")]), ValueError, "it twice"),
    (lambda f: tables(f, [("year",), ("hospital", "flu")]), ValueError, "got 'age' in none"),
    (lambda f: tables(f, weights=[1, 2]), ValueError, "one for each table"),
    (lambda f: tables(f, weights=[1, 2, 0, 1]), ValueError, "weights"),
    (lambda f: tables(f, weights=3), TypeError, "weights must be a list"),
    (lambda f: tables(f, None, weights=[1]), TypeError, "left out without tables"),
    (lambda f: tables(f, rho=None, epsilon=1), ValueError, "epsilon alone"),
    (lambda f: tables(f, delta=1e-6), TypeError, "delta must be left out with rho"),
    (lambda f: tables(f, rho=1e-15), ValueError, r"2\*\*20"),
    (lambda f: f.cube({name: [0, 1] for name in NAMES}, tables=[NAMES], rho=1), ValueError, "at most 2,048 subsets"),
    (
        lambda f: f.cube({name: range(3000) for name in NAMES[:3]}, tables=[NAMES[:2], NAMES[1:3]], rho=1),
        *(ValueError, "at most 10,000,000 cells"),
    ),
    (lambda f: simulate(tables(f), pl.DataFrame(), allow_private=True), TypeError, "without tables"),
    (
        lambda f: tables(f).n_rows_dropped(1, epsilon=1),
        TypeError,
        "a cube must be requested without tables",
    ),
    (
        lambda f: f.cube(DIMENSIONS, epsilon=1).release().nonnegative(),
        *(TypeError, "nonnegative: the cube must have been requested with tables"),
    ),
)
def test_wrong_arguments_are_refused(private, call, error, words):
    with pytest.raises(error, match=words):
        call(private)
