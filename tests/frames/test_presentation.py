"""How a release is shown: intervals that all hold, and groups of few people hidden; refusals come before the charge."""

import math
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import dp_polars as dpp
from dp_polars._mechanisms.noise import noise_bound
from dp_polars._release.contract import beta_of_each
from tests.helpers.alone import alone

SURE = 10**9
ROWS = pl.DataFrame(
    {
        "person": [1, 1, 2, 3, 3, 4, 5, 3],
        "ward": ["A", "A", "A", "A", "B", "B", "C", "A"],
        "x": [1, 2, 3, None, 5, 9, 9, 2],
        "name": ["u", "v", "u", "u", "v", "v", "u", "u"],
    }
).with_columns(e=pl.col("name").cast(pl.Enum(["u", "v"])))
WARDS = {"ward": ["A", "B", "C", "D"]}
X, NAME = pl.col("x"), pl.col("name")


def grouped(unit="person", **options):
    bounds = {} if unit is None else {"max_rows": 3}
    return ROWS.dp.protect(unit, **bounds, **options).group_by(WARDS)


def every_kind(loss=SURE):
    return {
        "rows": dpp.len(epsilon=loss),
        "sum": X.dp.sum(0, 9, epsilon=loss),
        "cost": X.dp.sum(0, 9, step=0.5, epsilon=loss),
        "mean": X.dp.mean(0, 9, epsilon=loss),
        "counts": NAME.dp.value_counts(["u", "v"], epsilon=loss),
        "mode": pl.col("e").dp.mode(epsilon=loss),
        "led": NAME.dp.mode(["u", "v"], epsilon=loss, gap=True),
        "median": X.dp.median(range(10), epsilon=loss),
        "list": X.dp.quantile([0.25, 0.75], range(10), epsilon=loss),
        "top": NAME.dp.top_k(2, ["u", "v"], epsilon=loss),
    }


@pytest.mark.parametrize("intervals", [False, True, "all"])
@pytest.mark.parametrize("sure", [False, True])
def test_all_other_outputs_of_groups_of_few_people_are_null(intervals, sure):
    query = grouped().agg(**every_kind(), people=dpp.n_people(epsilon=SURE))
    for least, shown in ((1, "ABC"), (2, "AB"), (3, "A"), (4, "")):
        found = query.release(intervals=intervals, min_people=least, sure=sure)
        assert found["people"].to_list() == [3, 2, 1, 0]
        assert found["ward"].to_list() == ["A", "B", "C", "D"]
        others = found.drop("ward", pl.selectors.starts_with("people"))
        assert others.width == {False: 10, True: 20, "all": 20}[intervals]
        for column in others.get_columns():
            assert [*column.is_null()] == [ward not in shown for ward in "ABCD"], column.name
    whole = query.release(intervals=intervals)
    assert_frame_equal(found.clear(), whole.clear())  # the same columns and types
    if intervals:
        assert found["people_low"].to_list() == found["people_high"].to_list() == [3, 2, 1, 0]


def test_sure_compares_the_lower_end_of_the_range_that_is_shown(tmp_path):
    budget = dpp.Budget(epsilon=9, path=tmp_path / "ledger.db")
    rows = pl.DataFrame({"p": range(5050), "g": np.repeat(np.arange(101), np.arange(101))})
    frame = rows.dp.protect("p", max_rows=1, budget=budget, dataset="rows").group_by({"g": range(101)})
    query = frame.agg(n=dpp.n_people(epsilon=0.5), s=dpp.sum("g", 0, 100, epsilon=0.5))
    n, of_people = query.release()["n"], query._asks[0].query
    (claim,), (bits,) = of_people.noise(), of_people.bits_of_parts()
    one_of_them, all_of_them = (noise_bound(claim, beta) / 2**bits for beta in (0.05, beta_of_each(202)))
    assert 0 < one_of_them < all_of_them
    for intervals, off in ((False, one_of_them), (True, one_of_them), ("all", all_of_them)):
        low = query.release(intervals=intervals or True)["n_low"]
        assert (n - low).is_between(off - 0.5, off + 1.5).all()  # n is rounded, and the end is rounded down
        for sure in (False, True):
            found = query.release(intervals=intervals, min_people=50, sure=sure)
            assert [*found["s"].is_not_null()] == [*((low if sure else n) >= 50)]
            assert found["n"].to_list() == n.to_list()
            assert 0 < found["s"].null_count() < 101
    assert budget.spent == 1


def test_it_is_the_released_number_that_counts():
    """The noise moves people over the line in both directions: an answer that is hidden tells of no true count."""
    private = pl.DataFrame({"g": np.repeat(np.arange(2000), 20)}).dp.protect(None).group_by({"g": range(2000)})
    found = private.agg(n=dpp.len(epsilon=0.1), s=dpp.sum("g", 0, 2000, epsilon=1)).release(min_people=20)
    assert [*found["s"].is_null()] == [*(found["n"] < 20)]
    assert 700 < found["s"].null_count() < 1300


def test_where_every_row_is_a_person_len_counts_people():
    asked = {"n": dpp.len(epsilon=SURE), "s": X.dp.sum(0, 99, epsilon=SURE)}
    query = grouped(None).agg(**asked)
    assert query.release(min_people=3)["n"].to_list() == [5, 2, 1, 0]
    assert [*query.release(min_people=2)["s"].is_null()] == [False, False, True, True]


NEEDED = "min_people must be given where exactly one output counts the people of a group, got "
NO_GROUPS, OF_KEYS = "min_people must be left out of a query for ", "keys: it counts no people of groups"
TWO = r"2: \['n', 'm'\][\s\S]*Hint: one dpp.n_people"
SURE_OF = r"sure must be left out without min_people[\s\S]*Hint: release\(min_people=20, sure=True\)"
EVERY = r'intervals must be True, False or "all", got \'every\'\.[\s\S]*Hint: True gives each number'
PEOPLE, OF_SOME = dpp.n_people(epsilon=1), dpp.n_people(where=X > 3, epsilon=1)
N, BOUNDED = grouped().agg(n=PEOPLE), ROWS.dp.protect("person", max_groups=1)
REFUSED = {
    "no number of people": (grouped().agg(n=dpp.len(epsilon=1)), {}, ValueError, NEEDED + "none"),
    "of some people": (grouped().agg(n=OF_SOME), {}, ValueError, NEEDED + "none"),
    "of some rows": (grouped(None).agg(n=dpp.len(where=X > 3, epsilon=1)), {}, ValueError, NEEDED + "none"),
    "of values": (grouped(None).agg(n=X.dp.count(epsilon=1)), {}, ValueError, NEEDED + "none"),
    "two numbers": (grouped().agg(n=PEOPLE, m=PEOPLE), {}, ValueError, NEEDED + TWO),
    "none": (N, {"min_people": 0}, ValueError, "min_people must be"),
    "a half": (N, {"min_people": 0.5}, TypeError, "min_people must be"),
    "a truth": (N, {"min_people": True}, TypeError, "min_people must"),
    "sure of what": (N, {"min_people": None, "sure": True}, ValueError, SURE_OF),
    "sure or not": (N, {"sure": 1}, TypeError, "sure must be True or F"),
    "keys": (BOUNDED.keys("ward", rho=1, with_counts=True, delta=1e-6), {}, ValueError, NO_GROUPS + OF_KEYS),
    "rows that are cut": (
        grouped().agg(n=PEOPLE, s=dpp.len(epsilon=1)).n_rows_dropped(1, epsilon=1),
        *({}, ValueError, NO_GROUPS + "n_rows_dropped"),
    ),
    "an unknown range": (N, {"intervals": "every"}, ValueError, EVERY),
    "a number": (N, {"intervals": 1}, TypeError, "intervals must be True, Fa"),
    "nothing": (N, {"intervals": None}, TypeError, "intervals must be True, F"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_can_not_be_shown_is_refused_before_the_charge(case, tmp_path):
    query, shown, kind, message = REFUSED[case]
    budget = dpp.Budget(epsilon=9, delta=0.1)
    query = dpp.PrivateQuery(query._request, query._source, budget)
    for release in (query.release, lambda **how: query.sink_parquet(tmp_path / "a.parquet", **how)):
        with pytest.raises(kind, match=message):
            release(**{"min_people": 2, **shown})
    assert budget.spent == 0
    assert [*tmp_path.iterdir()] == []


def test_a_file_has_what_is_shown_and_nothing_else(tmp_path):
    budget = dpp.Budget(epsilon=10**11, path=tmp_path / "ledger.db")
    query = grouped(budget=budget, dataset="visits").agg(**every_kind(), people=dpp.n_people(epsilon=SURE))
    file = tmp_path / "a.parquet"
    query.sink_parquet(file, intervals="all", min_people=3)
    found = query.release(intervals="all", min_people=3)
    assert_frame_equal(pl.read_parquet(file), found, categorical_as_str=True)
    assert pl.read_parquet(file)["mean"].null_count() == 3
    assert dpp.read_claim(file)["columns"].keys() == {*every_kind(), "people"}
    assert budget.answers().height == 1
    assert query.release()["mean"].null_count() == 0  # the ledger has the whole answer


def test_the_share_of_each_range_is_below_the_root():
    """(1 − β)^n >= 0.95 in exact arithmetic, and hardly more."""
    assert beta_of_each(1) == beta_of_each(0) == 0.05
    for numbers in (2, 3, 7, 10, 97, 1000, 4096):
        beta = Fraction(beta_of_each(numbers))
        assert (1 - beta) ** numbers >= Fraction(19, 20)
        assert (1 - beta * (1 + Fraction(1, 10**9))) ** numbers < Fraction(19, 20)
    for numbers in (10**6, 10**9, 10**12):
        assert beta_of_each(numbers) * numbers == pytest.approx(-math.log(0.95), rel=1e-5)


def test_one_number_has_the_range_that_it_has_by_itself(tmp_path):
    budget = dpp.Budget(epsilon=9, path=tmp_path / "ledger.db")
    frame = ROWS.dp.protect("person", max_rows=3, budget=budget, dataset="visits")
    for number, asked in enumerate((dpp.len(epsilon=0.1), X.dp.mean(0, 9, epsilon=0.1), X.dp.sum(0, 9, epsilon=0.1))):
        query = frame.agg(asked.alias("a"), mode=NAME.dp.mode(["u", "v"], epsilon=0.1))
        assert_frame_equal(query.release(intervals="all"), query.release(intervals=True))
        assert budget.answers().height == number + 1


@pytest.mark.parametrize("loss", [{"epsilon": 0.5}, {"rho": 0.05}], ids=str)
def test_all_numbers_of_a_release_are_inside_as_often_as_is_said(loss, tmp_path):
    """Of 4,000 releases of 20 numbers, means and counts among them."""
    releases, per_release = 4000, 4
    cells = releases * per_release
    asked = {
        "n": dpp.len(**loss),
        "s": dpp.sum("x", 0, 10, **loss),
        "m": dpp.mean("x", 0, 10, **loss),
        "c": dpp.value_counts("x", [3, 9], **loss),
    }
    query = alone(dpp.protect(None).group_by({"g": range(per_release)}).agg(**asked))
    width = noise_bound(query._asks[0].query.claim, beta_of_each(per_release * 5))
    one = pl.DataFrame({"g": np.repeat(np.arange(per_release), 30), "x": [3, 4] * (per_release * 15)})
    checked = query.release(one, intervals="all")
    assert set(checked["n_high"] - checked["n"]) == {width}
    # The numbers of all these releases are drawn at once; what presents them is told that each has twenty.
    many = pl.DataFrame({"g": np.repeat(np.arange(cells), 30), "x": [3, 4] * (cells * 15)})
    budget = dpp.Budget(**{next(iter(loss)): 10}, path=tmp_path / "ledger.db")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dp_polars._release.contract.beta_of_each", lambda numbers: beta_of_each(numbers // releases))
        every = many.dp.protect(None, budget=budget, dataset="many").group_by({"g": range(cells)}).agg(**asked)
        found = alone(every).release(intervals="all")
    inside = pl.col("n_low").is_between(0, 30) & (pl.col("n_high") >= 30)
    for name, true in (("n", 30), ("s", 105), ("m", 3.5)):
        inside &= (pl.col(f"{name}_low") <= true) & (pl.col(f"{name}_high") >= true)
    for place, true in ((0, 15), (1, 0)):
        low, high = (pl.col(f"c_{end}").list.get(place).struct.field("count") for end in ("low", "high"))
        inside &= (low <= true) & (high >= true)
    whole = found.with_columns(release=pl.col("g") // per_release).group_by("release").agg(inside.all()).to_series(1)
    error = 5 * math.sqrt(0.05 * 0.95 / releases)
    assert 0.95 - error <= whole.mean() <= 0.995


def test_ranges_hold_of_all_groups_and_not_of_those_that_are_shown():
    """Which groups `min_people` shows follows from the noise: 0 of some 50 intervals hold, where each has 5 people."""
    groups, people = 4000, 5
    rows = pl.DataFrame({"p": range(groups * people), "g": np.repeat(np.arange(groups), people)})
    query = rows.dp.protect("p", max_groups=1).group_by({"g": range(groups)}).agg(people=dpp.n_people(epsilon=0.5))
    released = query.release(intervals=True, min_people=13)
    inside = (pl.col("people_low") <= people) & (pl.col("people_high") >= people)
    share = released.select(inside.mean()).item()
    shown = released.filter(pl.col("people") >= 13)
    # The ends are rounded outward, so noise of up to 2·ln 20 + 1 is inside. The tolerance is eleven deviations.
    assert abs(share - (1 - math.exp(-math.log(20) - 0.5))) < 0.03
    assert 10 < shown.height < 150
    assert not shown.select(inside.any()).item()
