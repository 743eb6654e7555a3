"""Cubes: what they answer, with which intervals, what they refuse, and what they carry."""

import gc
import itertools
import json
import math
import pickle
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from pyarrow import parquet

import dp_polars as dpp
from dp_polars._frames.cube import cube_of
from dp_polars._mechanisms.residuals import Noise, TablePlan, sum_bound
from dp_polars.analysis import simulate
from tests.helpers.refusals import refusals
from tests.registry import KEYS

HOSPITALS, YEARS, DIAGNOSES = ["A", "B", "C"], range(2020, 2025), ["flu", "cold"]
DIMENSIONS = {"hospital": HOSPITALS, "year": YEARS, "diagnosis": DIAGNOSES}
SURE = {"epsilon": 10_000}
YEAR, DIAGNOSIS = pl.col("year"), pl.col("diagnosis")


@pytest.fixture
def visits():
    """Of 4,000 patients, each with one to three rows in one cell; some with null or unlisted values."""
    rng, many = np.random.default_rng(28), 4000
    hospitals, years = rng.choice([*HOSPITALS, "D", None], many), rng.integers(2019, 2026, many)
    columns = {"patient": range(many), "hospital": hospitals, "year": years}
    people = pl.DataFrame({**columns, "diagnosis": rng.choice([*DIAGNOSES, "mumps", None], many)})
    return people.select(pl.all().repeat_by(1 + pl.col("patient") % 3)).explode(pl.all())


@pytest.fixture
def private(visits):
    return visits.dp.protect("patient", max_groups=1)


@pytest.fixture
def cube(private):
    return private.cube(DIMENSIONS, **SURE).release()


@pytest.fixture
def listed(visits):
    """The rows that count, one of each person."""
    return listed_of(visits, DIMENSIONS).unique()


def listed_of(rows, dimensions):
    return rows.filter(*(pl.col(name).is_in(list(values)) for name, values in dimensions.items()))


def counted(rows, dimensions, by, dtype):
    """The number of rows in each cell of some dimensions, in their order."""
    keys = pl.DataFrame(itertools.product(*(dimensions[name] for name in by)), list(by), orient="row")
    expected = rows.group_by(by).agg(count=pl.len().cast(dtype))
    return keys.join(expected, on=by, how="left", maintain_order="left").fill_null(0)


def made(counts, mechanism="discrete_laplace", rate=Fraction(1), **dimensions):
    """A cube of these counts, as a release would make it."""
    keys = pl.DataFrame(itertools.product(*dimensions.values()), list(dimensions), orient="row")
    sizes = [len(values) for values in dimensions.values()]
    claim = {"protection": "nobody", "loss": "epsilon=1", "columns": {"count": {}}}
    axes = tuple(range(len(sizes)))
    plan = TablePlan(tuple(sizes), (axes,), ((axes, Noise(mechanism, rate)),))
    return cube_of(keys.with_columns(count=pl.Series(counts, dtype=pl.Int64)), plan, json.dumps(claim))


@pytest.mark.parametrize("partitions", [None, 3])
def test_counts_are_those_of_people_in_listed_cells(visits, listed, engine, partitions):
    query = visits.lazy().dp.protect("patient", max_groups=1).cube(DIMENSIONS, **SURE)
    cube = query.release(engine=engine, partitions=partitions)
    assert_frame_equal(cube.to_frame(), counted(listed, DIMENSIONS, list(DIMENSIONS), pl.Int64))


def test_rows_are_counted_up_to_the_bounds(visits, listed):
    cube = visits.dp.protect("patient", max_rows=3).cube(DIMENSIONS, counts="rows", **SURE).release()
    assert cube.count().value == listed.select((1 + pl.col("patient") % 3).sum()).item()
    one = visits.dp.protect("patient", max_groups=1, max_rows_per_group=1).cube(DIMENSIONS, counts="rows", **SURE)
    assert one.release().count().value == listed.height


@pytest.mark.parametrize(
    ("where", "true"),
    [
        ((), pl.lit(value=True)),
        ((YEAR == 2024,), YEAR == 2024),
        ((YEAR == 2024, DIAGNOSIS == "flu"), (YEAR == 2024) & (DIAGNOSIS == "flu")),
        (((YEAR > 2021) | (pl.col("hospital") == "A"),), (YEAR > 2021) | (pl.col("hospital") == "A")),
        ((YEAR.is_in([2020, 2023]) & ~(DIAGNOSIS == "flu"),), YEAR.is_in([2020, 2023]) & (DIAGNOSIS != "flu")),
        ((YEAR.replace_strict({2021: True, 2022: False}, default=None),), YEAR == 2021),
        ((YEAR.eq(YEAR.max()),), YEAR == 2024),
        ((YEAR.max().eq(2024),), pl.lit(value=True)),
        ((pl.lit(value=False),), pl.lit(value=False)),
    ],
    ids=["all", "one", "two filters", "or", "is_in", "replaced", "the last year", "true for all", "none"],
)
def test_filters_and_roll_ups(cube, listed, where, true):
    rows = listed.filter(true)
    assert cube.count(*where).value == rows.height
    for by in ("hospital", ["year"], ["diagnosis", "hospital"], ["year", "diagnosis", "hospital"]):
        names = [by] if isinstance(by, str) else by
        found = cube.counts(*where, by=by)
        assert found.schema == {
            **{name: {"year": pl.Int64()}.get(name, pl.String()) for name in names},
            **dict.fromkeys(["count", "count_low", "count_high"], pl.Int64()),
        }
        assert_frame_equal(found.select([*names, "count"]), counted(rows, DIMENSIONS, names, pl.Int64))


def test_shares_are_of_the_count_with_the_condition_left_out(cube, listed):
    flu = DIAGNOSIS == "flu"
    for where in ((), (YEAR >= 2023,)):
        rows = listed.filter(*where)
        expected = rows.group_by("hospital").agg(share=flu.mean()).sort("hospital")
        assert_frame_equal(cube.share(flu, *where, by="hospital").select("hospital", "share"), expected)
        assert math.isclose(cube.share(flu, *where).value, rows.select(flu.mean()).item())
    found = cube.share(YEAR == 2020, DIAGNOSIS == "flu", by=["year", "hospital"])
    assert found.filter(YEAR == 2020)["share"].to_list() == [1.0] * 3
    assert found.filter(YEAR != 2020)["share"].to_list() == [0.0] * 12
    assert found.columns == ["year", "hospital", "share", "share_low", "share_high"]


def test_the_top_is_ranked_by_count_and_equal_counts_by_the_order_of_values():
    cube = made([5, 9, 9, 1, 7, 7, 7, 8], a=["x", "y"], b=[40, 30, 20, 10])
    assert cube.top("b", by="a", k=3).select("a", "b", "count").rows() == [
        *(("x", 30, 9), ("x", 20, 9), ("x", 40, 5)),
        *(("y", 10, 8), ("y", 40, 7), ("y", 30, 7)),
    ]
    assert cube.top("b").select("b", "count").rows() == [(30, 16)]
    assert cube.top("b", pl.col("a") == "y", k=99)["b"].to_list() == [10, 40, 30, 20]
    assert cube.top("a", by=["b"], k=2)["a"].to_list() == ["y", "x", "x", "y", "x", "y", "y", "x"]
    assert_frame_equal(cube.top("b", k=4).sort("b"), cube.counts(by="b").sort("b"))


def test_parts_add_up_to_their_sum_exactly_and_counts_stay_negative():
    cube = made([-3, 5, -2, 4, 0, -8], a=["x", "y"], b=[1, 2, 3])
    assert cube.counts(by="a")["count"].to_list() == [0, -4]
    assert cube.counts(by="b")["count"].to_list() == [1, 5, -10]
    assert cube.counts(by="b")["count"].sum() == cube.count().value == -4
    assert cube.count(pl.col("b") == 3).value == -10
    large = 2**50 + 1
    assert made([large, -3, large, large], a=[0, 1], b=[0, 1]).count().value == 3 * large - 3


@pytest.mark.parametrize("mechanism", ["discrete_laplace", "discrete_gaussian"])
def test_each_range_is_that_of_the_sum_of_its_cells_noises(mechanism):
    cube = made(range(24), mechanism, Fraction(1, 3), a=[0, 1], b=[0, 1, 2], c=range(4))
    two, four, six, nine = (sum_bound(Noise(mechanism, Fraction(1, 3)), cells, 0.05) for cells in (2, 4, 6, 9))
    number = cube.count(pl.col("c") < 3, pl.col("a") == 0)
    assert (number.value - number.low, number.high - number.value) == (nine, nine)
    found = cube.counts(pl.col("c") <= pl.col("b"), by=["b"])  # 2, 4 and 6 cells
    for end, sign in (("count_low", -1), ("count_high", 1)):
        assert ((found[end] - found["count"]) * sign).to_list() == [two, four, six]
    assert cube.count(pl.lit(value=False)) == (0, 0, 0)
    assert two < four < six < nine


@pytest.mark.slow
@pytest.mark.parametrize("loss", [{"epsilon": 0.5}, {"rho": 0.1}], ids=str)
def test_ranges_hold_the_number_without_noise_95_times_of_100(visits, listed, loss):
    private = visits.dp.protect("patient", max_groups=1)
    query = private.cube(DIMENSIONS, **loss)
    sure = private.cube(DIMENSIONS, **SURE).release()
    asks = [
        lambda cube: cube.count(YEAR > 2021),
        lambda cube: cube.count(),
        lambda cube: cube.counts(by="hospital").select("count", "count_low", "count_high").row(1),
        lambda cube: cube.counts(DIAGNOSIS == "flu", by=["year", "hospital"]).rows()[4][2:],
        lambda cube: cube.share(DIAGNOSIS == "flu", YEAR < 2022),
        lambda cube: cube.share(DIAGNOSIS == "flu", by="year").rows()[2][1:],
    ]
    truths = [ask(sure)[0] for ask in asks]
    inside, releases = np.zeros(len(asks)), 1000
    for _ in range(releases):
        cube = query.release()
        for i, ask in enumerate(asks):
            _, low, high = ask(cube)
            inside[i] += low <= truths[i] <= high
    # Below 0.9 by chance: once in 10⁹ times.
    assert (inside / releases > 0.91).all(), inside
    # Intervals of counts are no wider than they must be, but for the steps of whole numbers.
    assert (inside[:4] / releases < 0.99).all(), inside


def test_a_share_is_unknown_where_the_whole_is_not_above_0_and_stays_within_0_and_1():
    cube = made([3, -5, 0, 0, -4, 10, 8, -1], a=[0, 1, 2, 3], b=[0, 1])
    found = cube.share(pl.col("b") == 0, by="a")
    assert found["share"].to_list() == [None, None, 0.0, 1.0]
    assert (found["share_low"] >= 0).all()
    assert (found["share_high"] <= 1).all()
    assert (found["share_low"] <= found["share_high"]).all()
    assert found.filter(pl.col("a") < 2).select("share_low", "share_high").rows() == [(0.0, 1.0)] * 2
    # Worst corners, each part at √0.95.
    off = sum_bound(Noise("discrete_laplace", Fraction(1)), 1, 1 - math.sqrt(0.95))
    (part, rest) = made([100, 300], b=[0, 1]).count(pl.col("b") == 0).value, 300
    share = made([100, 300], b=[0, 1]).share(pl.col("b") == 0)
    assert math.isclose(share.low, (part - off) / (part - off + rest + off))
    assert math.isclose(share.high, (part + off) / (part + off + rest - off))
    assert share.value == 0.25


@pytest.mark.parametrize("kind", [kind for kind in KEYS if "128" not in kind])
def test_dimensions_have_the_type_of_their_column_in_memory_and_in_files(kind, tmp_path):
    dtype, values = KEYS[kind]
    rows = pl.DataFrame({"k": pl.Series([values[0]] * 3 + [values[1]] * 2 + [None], dtype=dtype)})
    cube = rows.dp.protect(None).cube({"k": values[:2]}, **SURE).release()
    expected = pl.String() if isinstance(dtype, pl.Categorical) else rows.schema["k"]
    cube.write(tmp_path / "cube.parquet")
    for each in (cube, dpp.read_cube(tmp_path / "cube.parquet"), pickle.loads(pickle.dumps(cube))):
        assert each.dimensions["k"].dtype == expected
        assert each.counts(by="k").select("k", "count").rows() == [(values[0], 3), (values[1], 2)]
        assert each.count(pl.col("k") == pl.lit(values[1], dtype=expected)).value == 2


def test_a_query_without_data_is_released_from_a_frame(visits, listed):
    query = dpp.protect("patient", max_groups=1).filter(YEAR < 2023).cube(DIMENSIONS, **SURE)
    assert query.release(visits).count().value == listed.filter(YEAR < 2023).height
    with pytest.raises(TypeError, match="release must be given a frame"):
        query.release()


def test_answers_are_cached_and_fresh_ones_are_charged(visits, tmp_path):
    budget = dpp.Budget(epsilon=10, path=tmp_path / "ledger.db")
    private = visits.dp.protect("patient", max_groups=1, budget=budget, dataset="visits")

    def ask(**options):
        return private.cube(DIMENSIONS, epsilon=1).release(**options)

    first = ask()
    assert_frame_equal(ask().to_frame(), first.to_frame())
    assert budget.spent == 1
    assert not ask(ignore_cache=True).to_frame().equals(first.to_frame())
    assert budget.spent == 2
    # The same cells by group_by are another query.
    private.group_by(DIMENSIONS).agg(count=dpp.n_people(epsilon=1)).release()
    assert budget.spent == 3


def test_simulate_takes_it_as_the_count_in_each_cell(visits):
    private = dpp.protect(None)
    same = private.group_by(DIMENSIONS).agg(count=dpp.len(epsilon=2))
    assert_frame_equal(simulate(private.cube(DIMENSIONS, epsilon=2), visits), simulate(same, visits))
    # Of people in several cells, a cube has one at random and noise in whole numbers; a count has a part of each.
    private = dpp.protect("patient", max_groups=1)
    cube = simulate(private.cube(DIMENSIONS, epsilon=2), visits)
    count = simulate(private.group_by(DIMENSIONS).agg(count=dpp.n_people(epsilon=2)), visits)
    assert_frame_equal(cube.select("true_answer", "loss"), count.select("true_answer", "loss"))
    alone = cube["left_out"] == 0
    assert set(cube["probability_true"].filter(alone).round(9)) == {round(math.tanh(1), 9)}


def test_who_is_cut_may_be_asked(visits):
    query = visits.dp.protect("patient", max_groups=1, max_rows_per_group=1).cube(DIMENSIONS, counts="rows", epsilon=1)
    true = listed_of(visits, DIMENSIONS).group_by("patient").len().filter(pl.col("len") > 1).height
    assert abs(query.n_rows_dropped(1, epsilon=100).release().item() - true) <= 1


def test_a_cube_carries_nothing_but_what_was_released(tmp_path):
    secret = "Tuberculosis"
    rows = pl.DataFrame(
        {"patient": ["Ada-Lovelace", "Alan-Turing"] * 50, "diagnosis": ["flu", secret] * 50, "cost": [77_777_777] * 100}
    )
    budget = dpp.Budget(epsilon=10, path=tmp_path / "ledger.db")
    private = rows.dp.protect("patient", max_groups=1, budget=budget)
    cube = private.cube({"diagnosis": ["flu", "cold"]}, epsilon=1).release()
    cube.write(tmp_path / "cube.parquet")
    seen = [pickle.dumps(cube), (tmp_path / "cube.parquet").read_bytes(), repr(cube).encode()]
    seen += [str(cube.claim).encode(), repr(vars(cube)).encode()]
    for found in seen:
        for private_value in (secret, "Ada-Lovelace", "Alan-Turing", "77777777", "ledger.db"):
            assert private_value.encode() not in found
    reached, left = {}, [cube]
    while left:
        one = left.pop()
        if id(one) not in reached and not isinstance(one, (type, type(gc))) and not callable(one):
            reached[id(one)] = one
            left += gc.get_referents(one)
    kinds = {type(one).__name__ for one in reached.values()}
    assert kinds.isdisjoint({"DataFrame", "LazyFrame", "CubeQuery", "CubeRequest", "Budget", "PrivateFrame"}), kinds
    values = [one for one in reached.values() if isinstance(one, pl.Series)]
    assert sorted(map(len, values)) == [2, 2]


def assert_read_as_it_was_written(cube, path, bys, condition):
    cube.write(path)
    for again in (dpp.read_cube(path), pickle.loads(pickle.dumps(cube))):
        assert_frame_equal(again.to_frame(), cube.to_frame(), check_exact=True)
        for by in bys:
            assert_frame_equal(again.counts(condition, by=by), cube.counts(condition, by=by), check_exact=True)
            assert_frame_equal(again.share(condition, by=by), cube.share(condition, by=by))
        assert again.count() == cube.count()
        assert repr(again) == repr(cube)
        assert again.claim == cube.claim == dpp.read_claim(path)
        assert again.dimensions.keys() == cube.dimensions.keys()
        assert all(again.dimensions[name].equals(cube.dimensions[name]) for name in cube.dimensions)
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_what_was_written_is_read(private, tmp_path):
    path, bys = tmp_path / "cube.parquet", ["hospital", ["diagnosis", "hospital"], ["diagnosis", "year"]]
    assert_read_as_it_was_written(private.cube(DIMENSIONS, rho=0.3).release(), path, bys, YEAR > 2021)
    assert pl.read_parquet(path).height == 30


def test_a_failed_write_leaves_the_old_file(cube, tmp_path, monkeypatch):
    path = tmp_path / "cube.parquet"
    cube.write(path)
    before = path.read_bytes()

    def fails(*_):
        msg = "disk"
        raise OSError(msg)

    monkeypatch.setattr(parquet, "write_table", fails)
    with pytest.raises(OSError, match="disk"):
        cube.write(path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["cube.parquet"]


CHANGES = {
    "values": lambda f: f.with_columns(hospital=pl.when(YEAR == 2020).then(pl.lit("Z")).otherwise("hospital")),
    "nulls": lambda f: f.with_columns(count=pl.when(YEAR != 2020).then("count")),
    "one number": lambda f: f.with_columns(count=pl.when(pl.int_range(pl.len()) == 7).then(0.0).otherwise("count")),
    "rows": lambda f: f[:-1],
    "columns": lambda f: f.drop("year"),
    "order": lambda f: f.sort("year", "count"),
    "no claim": lambda f: f,
}


def assert_refused_once_it_was_changed(cube, path, change):
    cube.write(path)
    table = parquet.read_table(path)
    metadata = {} if change == "no claim" else table.schema.metadata
    parquet.write_table(CHANGES[change](pl.DataFrame(table)).to_arrow().replace_schema_metadata(metadata), path)
    with pytest.raises(ValueError, match=r"must have been written by Cube\.write"):
        dpp.read_cube(path)


@pytest.mark.parametrize("change", ["values", "nulls", "rows", "columns", "order", "no claim"])
def test_a_file_that_is_no_cube_or_was_changed_is_refused(cube, tmp_path, change):
    assert_refused_once_it_was_changed(cube, tmp_path / "cube.parquet", change)


def test_repr_says_what_it_is(cube):
    assert repr(cube) == (
        "<Cube: one person per 'patient', add_or_remove_one, max_groups=1, epsilon=10000\n"
        "  hospital: 3 values ('A', 'B', 'C')\n"
        "  year: 5 values (2020, 2021, 2022, 2023, …)\n"
        "  diagnosis: 2 values ('flu', 'cold')\n"
        "  count: number of people, 30 cells, discrete_laplace, standard deviation 1.79e-14\n"
        "  methods: count(…), counts(by=…), share(…), top(…), to_frame(), write(path)>"
    )


def test_a_histogram_of_a_cube_can_not_be_changed(cube):
    with pytest.raises(AttributeError):
        cube._tables = ()
    cube.dimensions["year"] = pl.Series([1])
    assert cube.dimensions["year"].to_list() == list(YEARS)


@refusals(
    (lambda c: c.count(pl.col("age") > 3), ValueError, "a filter must be one expression over the dimensions"),
    (lambda c: c.count(pl.col("count") > 3), ValueError, "got the column 'count'"),
    (lambda c: c.count(pl.all() == 3), ValueError, "several columns"),
    (lambda c: c.count(pl.col("year", "hospital").is_null()), ValueError, "several columns"),
    (lambda c: c.count(YEAR), TypeError, "must be true or false"),
    (lambda c: c.count(YEAR.filter(YEAR > 2021) == 2022), TypeError, "must be true or false"),
    (lambda c: c.count(True), TypeError, "must be a Polars expression"),
    (lambda c: c.count("year"), TypeError, "must be a Polars expression"),
    (lambda c: c.counts(by="age"), ValueError, "by must name dimensions of the cube"),
    (lambda c: c.counts(by=[]), ValueError, "by must name a dimension"),
    (lambda c: c.counts(by=["year", "year"]), ValueError, "each dimension once"),
    (lambda c: c.counts(by=[3]), ValueError, "by must name dimensions of the cube"),
    (lambda c: c.top("age"), ValueError, "dimension must name dimensions"),
    (lambda c: c.top("year", by=["year"]), ValueError, "must leave out the dimension that is ranked"),
    (lambda c: c.top("year", k=0), ValueError, "k must be"),
    (lambda c: c.share("flu"), TypeError, "must be a Polars expression"),
    (lambda c: c.counts("year"), TypeError, "Hint: counts"),
)
def test_queries_that_it_can_not_answer_say_so(cube, call, error, words):
    with pytest.raises(error, match=words):
        call(cube)


FEW = {"year": [2020]}
SEVERAL_CELLS = r'counts="people" must be used if a person is in one cell[\s\S]*Hint: protect\(…, max_groups=1\)'


@pytest.mark.parametrize("dimensions", [["hospital", "year"], {"hospital": ["A"], "year": None}])
def test_a_cube_without_values_names_a_query_that_selects_them(dimensions):
    rows = pl.DataFrame({"patient": range(2000), "hospital": "A", "year": 2020})
    private = rows.dp.protect("patient", max_groups=1)
    with pytest.raises(TypeError) as refused:
        private.cube(dimensions, epsilon=1)
    code = str(refused.value).partition("people have: ")[2].removesuffix(".")
    names = [name for name in ("hospital", "year") if f'"{name}"' in code]
    released = eval(code, {"private": private, "dp_polars": dpp}).release()
    assert released.select(names).rows() == [tuple({"hospital": "A", "year": 2020}[name] for name in names)]


@refusals(
    (lambda f: f(1).cube(["year"], epsilon=1), TypeError, "dimensions must be a dict"),
    (lambda f: f(1).cube({}, epsilon=1), ValueError, "at least one column"),
    (lambda f: f(1).cube({"count": [1]}, epsilon=1), ValueError, "named like a column of its answers"),
    (lambda f: f(1).cube({"share_low": [1]}, epsilon=1), ValueError, "named like a column of its answers"),
    (lambda f: f(1).cube({"year": range(4000), "hospital": range(4000)}, epsilon=1), ValueError, "at most 10,000,000"),
    (lambda f: f(1).cube({"year": [2020, 2020]}, epsilon=1), ValueError, "year"),
    (lambda f: f(1).cube({"age": [1]}, epsilon=1), ValueError, "'age'"),
    (lambda f: f(1).cube(FEW).release(), ValueError, "every output must have a loss, got none for 'count'"),
    (lambda f: f(1).cube(FEW, epsilon=1, rho=1), TypeError, "epsilon"),
    (lambda f: f(1).cube(FEW, epsilon=1, counts="visits"), ValueError, "counts must be"),
    (lambda f: f(1).cube(DIMENSIONS, epsilon=1e-12), ValueError, "scale"),
    (lambda f: f(1).cube(FEW, epsilon=1).release(intervals=True), TypeError, "intervals"),
    (lambda f: f(1).cube(FEW, epsilon=1).sink_parquet("x"), TypeError, r"release\(\)\.write\(path\)"),
    (lambda f: f(2).cube(DIMENSIONS, epsilon=1), ValueError, SEVERAL_CELLS),
    (lambda f: f(2).cube(DIMENSIONS, counts="rows", epsilon=1), ValueError, "the rows of one person must be bounded"),
)
def test_wrong_arguments_are_refused_before_the_charge(visits, call, error, words):
    budget = dpp.Budget(epsilon=10)
    with pytest.raises(error, match=words):
        call(lambda groups: visits.dp.protect("patient", max_groups=groups, budget=budget))
    assert budget.spent == 0


def test_where_a_person_is_in_one_cell_people_are_counted(visits):
    visits.dp.protect("patient", max_groups=2).cube(FEW, epsilon=1)  # there is one cell
    visits.dp.protect("patient", max_rows=1).cube(DIMENSIONS, epsilon=1)
    assert visits.dp.protect(None).cube(DIMENSIONS, **SURE).explain()["error_unit"].to_list() == ["people"]
