"""Selected keys, and quantiles over people, as a user asks for them."""

import math
import pickle
import re
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import dp_polars as dpp
from tests.helpers.refusals import refusals
from tests.privacy.test_released import seen
from tests.registry import ENGINES, KEYS

LOSS = {"epsilon": 1, "delta": 1e-6}
SURE = {"epsilon": 10_000, "delta": 1e-9}


@pytest.fixture
def visits():
    """Of 300 patients: two towns of many, one of four, and one of a single patient; everyone in one or two years."""
    town = ["Bern"] * 150 + ["Olten"] * 145 + ["Chur"] * 4 + ["Twann"]
    rows = [(p, town[p], 2020 + year, 20 + p % 60) for p in range(300) for year in range(1 + p % 2)]
    rows += [(None, "Genf", 2020, 1)] * 500 + [(p, None, 2020, 1) for p in range(300)]
    schema = {"patient": pl.Int64, "town": pl.String, "year": pl.Int16, "age": pl.Int64}
    return pl.DataFrame(rows, schema, orient="row").sample(fraction=1, shuffle=True, seed=1)


@pytest.mark.parametrize("engine", [*ENGINES, "auto"])
@pytest.mark.parametrize("partitions", [None, 3])
@pytest.mark.parametrize("loss", [LOSS, {"rho": 0.1, "delta": 1e-6}])
def test_keys_that_many_have_come_out_sorted(visits, engine, partitions, loss):
    private = visits.lazy().dp.protect("patient", max_groups=2)
    released = private.keys("town", "year", **loss).release(engine=engine, partitions=partitions)
    keys = [(town, year) for town in ("Bern", "Olten") for year in (2020, 2021)]
    expected = pl.DataFrame(keys, {"town": pl.String, "year": pl.Int16}, orient="row")
    assert_frame_equal(released, expected)


def test_released_keys_go_into_the_next_query(visits):
    private = visits.dp.protect("patient", max_groups=2)
    towns = private.keys("town", **LOSS).release()
    ages = private.group_by(towns).agg(top=pl.col("town").dp.mode(towns["town"], epsilon=100)).release()
    assert_frame_equal(ages, towns.with_columns(top="town"))


def test_noisy_numbers_come_along(visits):
    released = visits.dp.protect("patient", max_groups=1).keys("town", rho=0.1, delta=1e-6, with_counts=True).release()
    assert released.schema == {"town": pl.String(), "count": pl.Int64()}
    found = dict(released.rows())
    assert set(found) == {"Bern", "Olten"}
    assert abs(found["Bern"] - 150) < 20
    assert abs(found["Olten"] - 145) < 20


def test_without_a_privacy_unit_rows_are_people(visits):
    assert visits.dp.protect(None).keys("town", **LOSS).release()["town"].to_list() == ["Bern", "Genf", "Olten"]


def test_keys_from_a_file_and_from_a_frame_that_comes_later(visits, tmp_path):
    visits.write_parquet(tmp_path / "visits.parquet")
    scan = pl.scan_parquet(tmp_path / "visits.parquet").dp.protect("patient", max_groups=1).keys("town", **LOSS)
    query = dpp.protect("patient", max_groups=1).keys("town", **LOSS)
    later = pickle.loads(pickle.dumps(query))
    for released in (scan.release(), query.release(visits), later.release(visits.to_arrow())):
        assert released["town"].to_list() == ["Bern", "Olten"]
    with pytest.raises(TypeError, match="release must be given a frame"):
        query.release()


@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_every_type_can_be_grouped_by(kind):
    dtype, values = KEYS[kind]
    frame = pl.DataFrame({"k": pl.Series(values * 50, dtype=dtype), "x": 1})
    released = frame.dp.protect(None).keys("k", **SURE).release()
    assert 0 < released.height <= len(values)
    assert released["k"].dtype == (pl.String() if isinstance(dtype, pl.Categorical) else dtype)
    counted = frame.dp.protect(None).group_by(released).agg(n=dpp.len(epsilon=100)).release()
    assert counted.height == released.height
    assert (counted["n"] - 50).abs().max() < 5


def buffers(column):
    """The memory of a column."""
    array = column.to_arrow(compat_level=pl.CompatLevel.newest())
    return [bytes(buffer) for buffer in array.buffers() if buffer is not None]


@pytest.mark.parametrize("categorical", [False, True])
def test_keys_that_are_not_shown_leave_nothing(categorical):
    """Of two frames with the same keys that are shown, every byte is the same: neither others nor the order show."""
    shown = [f"a town with a long name, number {i}" for i in range(9)]
    left = []
    for seed, others in ((1, []), (2, [f"secret-{i}-hiv-positive" for i in range(100)])):
        rows = [(f"{key} {i}", key, "x") for key in shown for i in range(200)]
        rows += [(f"{key} alone", key, "y") for key in others]
        kinds = {"k": pl.Categorical() if categorical else pl.String(), "e": pl.Enum(["x", "y"])}
        frame = pl.DataFrame(rows, {"p": pl.String, **kinds}, orient="row").sample(fraction=1, shuffle=True, seed=seed)
        released = frame.dp.protect("p", max_groups=1).keys("k", "e", epsilon=1, delta=1e-12).release()
        assert released["k"].to_list() == shown
        assert b"secret" not in pickle.dumps(released)
        left.append((*seen(released), buffers(released["k"])))
    assert left[0] == left[1]


def test_booleans_that_are_not_shown_leave_no_bits():
    """The bits after the last key of a filtered column are those of others: a file of the keys would hold them."""
    (ask,) = dpp.protect("p", max_groups=1).keys("k", epsilon=1, delta=1e-12)._asks
    for one in (False, True):
        found = [[one], [one, not one], [not one, one]]
        everybody = [np.array([10**6 if key == one else 1 for key in keys]) for keys in found]
        left = [
            ask.query.released(pl.DataFrame({"k": keys}), people) for keys, people in zip(found, everybody, strict=True)
        ]
        assert [released["k"].to_list() for released in left] == [[one]] * 3
        assert seen(left[0]) == seen(left[1]) == seen(left[2])
    assert ask.query.released(pl.DataFrame({"k": []}, {"k": pl.Boolean}), np.array([], int))["k"].dtype == pl.Boolean


def test_a_filtered_column_would_have_told():
    """The control: a filter leaves the texts of other rows where they are."""
    frame = pl.DataFrame({"k": ["secret-of-somebody-else", "a town with a long name"]})
    assert any(b"secret" in buffer for buffer in buffers(frame.filter(pl.col("k").str.starts_with("a"))["k"]))
    assert buffers(pl.Series([False])) != buffers(pl.Series([False, True]).filter([True, False]))


def test_explain_says_what_it_costs_and_how_many_people_a_key_needs():
    query = dpp.protect("patient", max_groups=2).keys("town", epsilon=1, delta=1e-6)
    assert query.explain().row(0, named=True) == {
        "output": "keys",
        "selects": "the 'town' that enough people have",
        "error_95": 32.0,
        "error_unit": "people",
        "mechanism": "partition_selection",
        "candidates": None,
        "neighboring_relation": "add_or_remove_one",
        "privacy_unit": "patient",
        "limits": None,
        "score_range": 1.0,
        "rate": 0.5,
        "delta": 1e-6,
        "groups": None,
        "epsilon": 1.0,
        "rho": pytest.approx(2 * 0.5 * math.tanh(0.25), rel=1e-15),
        "note": (
            "Shown with 95 % from 32 people on, with 50 % from 27, with 5 % from 23. "
            "A person counts for at most 2 keys. "
            "The release costs epsilon=1, delta=0.000001 (rho=0.244919; ε = 1 at δ = 10⁻⁶)."
        ),
    }
    (row,) = (
        dpp.protect("patient", max_groups=2).keys("a", "b", rho=0.1, delta=1e-6, with_counts=True).explain().to_dicts()
    )
    assert row["selects"] == "the 'a', 'b' that enough people have, with their number"
    assert row["epsilon"] is None
    assert (row["rho"], row["delta"]) == (0.1, 1e-6)
    said = re.fullmatch(
        r"Shown with 95 % from (\d+) people on, with 50 % from (\d+), with 5 % from (\d+)\. "
        r"The noisy number of people must reach (\d+)\. A person counts for at most 2 keys\. .*",
        row["note"],
    )
    shown_95, shown_50, shown_5, threshold = map(int, said.groups())
    assert shown_5 < shown_50 == threshold < shown_95 == row["error_95"]


@pytest.mark.parametrize("loss", [{"epsilon": 1}, {"rho": 1}])
def test_a_replaced_person_has_twice_the_keys(loss):
    one, two = (
        dpp.protect("p", max_groups=3, neighboring_relation=relation).keys("k", delta=1e-6, **loss)
        for relation in ("add_or_remove_one", "replace_one")
    )
    assert [query._asks[0].query.claim.contributions.total for query in (one, two)] == [3, 6]
    assert (two.explain()["error_95"] > one.explain()["error_95"]).all()
    assert two.loss == one.loss


def test_the_bound_is_the_smaller_one_of_groups_and_rows():
    for bounds, expected in (({"max_groups": 3}, 3), ({"max_rows": 2}, 2), ({"max_groups": 3, "max_rows": 2}, 2)):
        note = dpp.protect("p", **bounds).keys("k", **LOSS).explain()["note"].item()
        assert f"A person counts for at most {expected} keys." in note
    assert "A person counts for at most 1 key." in dpp.protect(None).keys("k", **LOSS).explain()["note"].item()


def test_keys_are_charged_with_their_delta(visits):
    budget = dpp.Budget(epsilon=2, delta=2e-6)
    private = visits.dp.protect("patient", max_groups=1, budget=budget)
    query = private.keys("town", epsilon=1, delta=1e-6)
    assert (query.loss, query.delta) == (query._asks[0].query.claim.loss, Fraction(1, 10**6))
    towns = query.release()
    with pytest.raises(dpp.BudgetExceededError):
        query.release()
    private.group_by(towns).agg(n=dpp.n_people(epsilon=1)).release()
    assert budget.remaining == 0
    assert budget.log()["what"].to_list() == ["keys: the 'town' that enough people have", "n: number of people"]
    with pytest.raises((ValueError, dpp.BudgetExceededError)):
        dpp.protect("patient", max_groups=1, budget=dpp.Budget(epsilon=5)).keys("town", **LOSS).release(visits)


def test_the_repr_of_keys():
    assert repr(dpp.protect("p", max_groups=1).keys("k", **LOSS)) == (
        "<PrivateQuery: selected keys, one person per 'p', add_or_remove_one, max_groups=1\n"
        "  keys: the 'k' that enough people have, epsilon=1, delta=1e-06, partition_selection\n"
        "  costs: epsilon=1, delta=0.000001 (rho=0.462118; ε = 1 at δ = 10⁻⁶)>"
    )


COUNTED = {"rho": 1, "delta": 1e-6}


def keys_of(values, column="k"):
    return pl.DataFrame({"k": values}).dp.protect(None).keys(column, **LOSS)


NO_KEYS = "^keys: the column 'k' must hold text, integers"
ONE = dpp.protect("p", max_groups=1)
P, NOBODY, FRAME = dpp.protect("p"), dpp.protect(None), pl.DataFrame({"p": [1]})
NAMED_COUNT = "^keys: no column may be named 'count' with with_counts=True"
NO_BOUND = "^keys: max_groups must be given where there is a privacy unit"
NAMES, RATE = "keys must be given names of columns, got ", Fraction(1, 2**110)


@refusals(
    (lambda: ONE.keys(**LOSS), ValueError, "^keys must be given at least one column"),
    (lambda: ONE.keys(1, **LOSS), TypeError, f"^{NAMES}1"),
    (lambda: ONE.keys(pl.col("k"), **LOSS), TypeError, f"^{NAMES}Expr"),
    (lambda: ONE.keys(["k"], **LOSS), TypeError, f"^{NAMES}list"),
    (lambda: ONE.keys("k", "x", "k", **LOSS), ValueError, "^keys must be given each column once"),
    (lambda: ONE.keys("k", epsilon=1), TypeError, "^keys: delta must be given with a loss, got epsilon=1 alone"),
    (lambda: ONE.keys("k", **LOSS, rho=1), TypeError, "^at most one of .* must be given, got epsilon and rho"),
    (lambda: ONE.keys("k", epsilon=math.nan, delta=1e-6), ValueError, "^epsilon must be finite"),
    (lambda: ONE.keys("k", epsilon=1, delta=0), ValueError, "^delta must be greater than 0"),
    (lambda: ONE.keys("k", rho=1, delta=1), ValueError, "^delta must be at least 0 and below 1"),
    (lambda: ONE.keys("k", rho=1, delta=math.nan), ValueError, "^delta must be finite"),
    (lambda: ONE.keys("k", epsilon=1, delta=Fraction(1, 2**1001)), ValueError, "^delta must lie between"),
    (lambda: ONE.keys("k", rho=RATE, delta=0.1), ValueError, "^the noise of a key must have"),
    (lambda: ONE.keys("k", **COUNTED, with_counts=1), TypeError, "^with_counts must be True or False, got 1"),
    (lambda: ONE.keys("k", **LOSS, with_counts=True), ValueError, "^with_counts must be left out with epsilon"),
    (lambda: ONE.keys("k", "count", **COUNTED, with_counts=True), ValueError, NAMED_COUNT),
    (lambda: dpp.protect("p", max_rows_per_group=1).keys("k", **LOSS), ValueError, NO_BOUND),
    (lambda: keys_of([1.0]), TypeError, NO_KEYS),
    (lambda: keys_of([b"a"]), TypeError, NO_KEYS),
    (lambda: keys_of([[1]]), TypeError, NO_KEYS),
    (lambda: keys_of([{"a": 1}]), TypeError, NO_KEYS),
    (lambda: keys_of([None]), TypeError, NO_KEYS),
    (lambda: keys_of(["a"], "elsewhere"), ValueError, "the frame must have the key column 'elsewhere'"),
    (lambda: keys_of(["a"]).collect(), AttributeError, "each release costs again: query.release"),
    (lambda: pickle.dumps(keys_of(["a"])), TypeError, "must be bound to no rows in memory to be pickled"),
)
def test_arguments_are_checked_where_they_are_written(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_keys_are_not_simulated(visits):
    with pytest.raises(TypeError, match=r"^query must be one for answers, got one for keys[\s\S]*Hint: query.explain"):
        dpp.analysis.simulate(dpp.protect("patient", max_groups=1).keys("town", **LOSS), visits)


@pytest.mark.parametrize("dtype", [pl.Int128, pl.UInt128])
def test_keys_that_no_file_holds_are_refused_for_free(dtype, tmp_path):
    budget = dpp.Budget(epsilon=10, delta=0.5)
    frame = pl.DataFrame({"p": [1, 2], "k": pl.Series([1, 1], dtype=dtype)}).dp.protect(
        "p", max_groups=1, budget=budget
    )
    for query in (
        frame.keys("k", epsilon=1, delta=0.1),
        frame.group_by({"k": [1]}).agg(dpp.n_people(epsilon=1)),
        frame.agg(pl.col("k").dp.mode([1, 2], epsilon=1)),
    ):
        with pytest.raises(TypeError, match=rf"sink_parquet can't write keys or answers of the type {dtype.__name__}"):
            query.sink_parquet(tmp_path / "file.parquet")
        assert not (tmp_path / "file.parquet").exists()
    assert budget.spent == 0
