"""Steps on all rows of one person: how many rows a person has after them, and what private answers make of that."""

import copy
import pickle
from datetime import date, timedelta

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import dp_polars as dpp
from dp_polars._engines.polars.engine import PolarsEngine
from dp_polars._frames.frame import PersonGroupBy, PrivateGroupBy
from dp_polars._release.protection import Limits
from dp_polars.analysis import simulate
from tests.frames.asking import rows_of
from tests.helpers.needs import IS_OLD, need
from tests.helpers.refusals import refusals

VISITS = pl.DataFrame(
    {
        "p": [1, 1, 1, 2, 2, 3, None],
        "ward": ["A", "A", "B", "A", "B", "A", "A"],
        "cents": [5, 7, 7, 1, 2, 9, 4],
        "day": [date(2020, 1, 1) + timedelta(days=days) for days in (0, 0, 20, 3, 90, 5, 0)],
        "f": [0.0, -0.0, 1.5, float("nan"), 2.0, 2.0, 0.0],
    }
)
PUBLIC = pl.DataFrame({"ward": ["A", "B"], "floor": [1, 2]})
CENTS = pl.col("cents")


def protected(rows=VISITS, **bounds):
    return rows.dp.protect("p", **({"max_rows": 2} | bounds))


def limits_of(query):
    work = query.request.bind(PolarsEngine.of(*query._sources))
    return [spec.limits for spec in work.specs]


# Kinds of steps, and whether each person has one row at most after them, begun with one row for each.
STEPS = {
    "filter": (lambda frame: frame.filter(pl.col("total") > 3), True),
    "select": (lambda frame: frame.select("total"), True),
    "select of nothing": (lambda frame: frame.select(), True),
    "with_columns": (lambda frame: frame.with_columns(more=pl.col("total") + 1), True),
    "cast": (lambda frame: frame.cast({"total": pl.Float64}), True),
    "rename": (lambda frame: frame.rename({"total": "sum"}), True),
    "drop_nulls": (lambda frame: frame.drop_nulls(), True),
    "join": (lambda frame: frame.join(PUBLIC, on="ward"), True),
    "an inner join": (lambda frame: frame.join(PUBLIC, on="ward", how="inner"), True),
    "over": (lambda frame: frame.with_columns(most=pl.col("total").max().over("p")), True),
    "group_by": (lambda frame: frame.group_by("p").agg(pl.col("total").max(), pl.col("ward").min()), True),
    "group_by with more": (lambda frame: frame.group_by("p", "ward").agg(pl.col("total").max()), True),
}


@pytest.mark.parametrize("name", STEPS)
def test_rows_of_each_person_behind_every_kind_of_step(name):
    step, one_row = STEPS[name]
    for begun, has_one in (
        (lambda frame: frame, False),
        (lambda frame: frame.group_by("p").agg(pl.col("total").sum(), pl.col("ward").min()), True),
        (lambda frame: frame.group_by("p", "ward").agg(pl.col("total").sum()), False),
    ):
        frame = step(begun(protected(VISITS.rename({"cents": "total"}))))
        counts = rows_of(frame).group_by("p").len()["len"]
        says = frame._pipeline.calibration.__class__.__name__ == "OneRowEach"
        assert says == ((has_one and one_row) or name == "group_by")
        if says:
            assert counts.max() == 1


def test_people_with_one_row_are_calibrated_to_one_row():
    people = protected(max_groups=2).group_by("p").agg(CENTS.sum())
    query = people.group_by({"cents": [9, 19]}).agg(
        dpp.n_people(epsilon=1), x=CENTS.dp.median(range(20), epsilon=1), y=CENTS.dp.sum(0, 20, epsilon=1)
    )
    assert limits_of(query) == [Limits()] * 3
    plain = VISITS.dp.protect(None).group_by({"cents": [9, 19]})
    same = plain.agg(x=CENTS.dp.median(range(20), epsilon=1), y=CENTS.dp.sum(0, 20, epsilon=1))
    by_name = {ask.name: ask.query.claim for ask in query.asks}
    for ask in same.asks:
        assert by_name[ask.name].contributions == ask.query.claim.contributions
        assert by_name[ask.name].rate == ask.query.claim.rate
    notes = query.explain()["note"].to_list()
    assert all(note.startswith("Each person has one row here") for note in notes)
    assert "that the bounds keep" not in "".join(notes)
    assert query.explain()["error_unit"].to_list()[:2] == ["people", "people"]
    assert "one row each" in repr(query)
    totals = people.agg(dpp.sum("cents", 0, 100, per_person=(0, 3), epsilon=1))
    assert totals.explain()["score_range"].item() == 3
    released = people.agg(dpp.sum("cents", 0, 100, per_person=(0, 3), epsilon=10**6)).release().item()
    assert released == rows_of(people)["cents"].clip(0, 3).sum()


def test_people_with_several_rows_are_bounded_as_ever():
    frame = protected(max_groups=1)
    query = frame.group_by("p", "ward").agg(CENTS.sum()).agg(CENTS.dp.median(range(20), epsilon=1))
    assert limits_of(query) == [Limits(rows_per_group=2)]
    assert "Drops rows beyond max_rows=2 of a person" in query.explain()["note"][0]


def test_without_any_bound_people_can_be_asked_for():
    spend = VISITS.dp.protect("p").group_by("p").agg(CENTS.sum())
    answer = spend.agg(dpp.n_people(epsilon=1000), x=CENTS.dp.median(range(30), epsilon=1000)).release()
    assert answer.rows() == [(3, 9)]
    work = spend.keys("cents", epsilon=1, delta=1e-9).request.bind(PolarsEngine(VISITS.lazy(), VISITS.lazy))
    assert work.most == 1


def test_rows_of_nobody_are_dropped_first():
    rows = pl.DataFrame({"p": [1.0, None, float("nan"), -0.0, 0.0], "x": [1, 2, 3, 4, 5]})
    frame = rows.dp.protect("p", max_rows=1)
    assert rows_of(frame.group_by("p").agg(pl.col("x").sum())).sort("p").rows() == [(0.0, 9), (1.0, 1)]
    assert sorted(rows_of(frame.with_columns(s=pl.col("x").sum().over("p")))["s"]) == [1, 9, 9]


def test_keys_of_floats_are_one_of_a_kind():
    got = rows_of(protected().group_by("p", "f").agg(pl.len()))
    assert sorted(map(repr, got.rows())) == [
        "(1, 0.0, 2)", "(1, 1.5, 1)", "(2, 2.0, 1)", "(2, nan, 1)", "(3, 2.0, 1)"
    ]  # fmt: skip


def test_first_visits_and_those_after_them():
    frame = VISITS.dp.protect("p")
    if IS_OLD:
        with pytest.raises(ValueError, match="needs Polars 2"):
            frame.filter(pl.col("day") == pl.col("day").min().over("p"))
        return
    firsts = frame.filter(pl.col("day") == pl.col("day").min().over("p"))
    assert_frame_equal(rows_of(firsts).sort("p", "cents"), VISITS[[0, 1, 3, 5]].sort("p", "cents"))
    again = frame.with_columns(gap=pl.col("day") - pl.col("day").min().over("p"))
    again = again.filter(pl.col("gap").dt.total_days().is_between(1, 30))
    assert rows_of(again)["day"].to_list() == [date(2020, 1, 21)]


FRAME, ALL, ONE = protected(), VISITS.dp.protect(None), {"ward": ["A"]}
PEOPLE = FRAME.group_by("p")
MIX = "must be given names of columns, .* or public keys"
OF_PEOPLE = r"^group_by: names .* tell of people\.\n\nHint: To ask about groups, list them"
AN_ANSWER = r"got a private answer[\s\S]*Hint: .*group_by\(unit\)\.agg"
TWICE = PEOPLE.agg(x=CENTS.max()).group_by("p")


@refusals(
    (lambda: FRAME.group_by("p", ONE), TypeError, MIX),
    (lambda: FRAME.group_by(ONE, "p"), TypeError, MIX),
    (lambda: FRAME.group_by("p", pl.col("ward", "cents")), TypeError, MIX),
    (lambda: FRAME.group_by("ward"), ValueError, r"must include the privacy unit, got \['ward'\]"),
    (lambda: ALL.group_by("ward"), ValueError, OF_PEOPLE),
    (lambda: FRAME.group_by("p", "ward", "ward"), ValueError, "each column once"),
    (lambda: PEOPLE.agg(CENTS.max().alias("p")), ValueError, r"several named \['p'\]"),
    (lambda: TWICE.agg(pl.len().alias("x"), x=pl.col("x").min()), ValueError, r"several named \['x'\]"),
    (lambda: FRAME.group_by("p", "nowhere").agg(pl.len()), ValueError, "must be columns of the frame, got 'nowhere'"),
    (lambda: PEOPLE.agg(CENTS.dp.sum(0, 1, epsilon=1)), TypeError, AN_ANSWER),
    (lambda: ALL.with_columns(x=CENTS.sum().over("p")), ValueError, "there must be a privacy unit"),
    (lambda: FRAME.with_columns(p=CENTS.max().over("p")), ValueError, "must not change the privacy unit"),
)
def test_group_by_takes_names_or_public_keys_and_no_mix(call, error, words):
    with pytest.raises(error, match=words):
        call()


@pytest.mark.skipif(IS_OLD, reason="functions of dates need Polars 2")
def test_keys_may_be_expressions_under_names_of_their_own():
    frame, month = protected(), pl.col("day").dt.month()
    want = VISITS.filter(pl.col("p").is_not_null()).group_by("p", month.alias("month")).agg(CENTS.sum())
    for of in (frame.group_by("p", month.alias("month")), frame.group_by("p", month=month)):
        assert_frame_equal(rows_of(of.agg(CENTS.sum())), want, check_row_order=False)
    assert frame.group_by(pl.col("p"), pl.col("ward")).agg(pl.len()).columns == ["p", "ward", "len"]
    with pytest.raises(ValueError, match=r"name of a key must be that of no column, got 'day'[\s\S]*alias"):
        frame.group_by("p", pl.col("day").dt.month()).agg(CENTS.sum())
    with pytest.raises(ValueError, match="must not change the privacy unit"):
        frame.group_by(pl.col("p") // 2, "ward")
    with pytest.raises(ValueError, match="combines several rows"):
        frame.group_by("p", high=CENTS.mean() < CENTS).agg(pl.len())


def test_the_unit_may_stand_anywhere():
    assert isinstance(PEOPLE, PersonGroupBy)
    assert isinstance(FRAME.group_by(ONE), PrivateGroupBy)
    assert FRAME.group_by("ward", "p").agg(pl.len()).columns == ["p", "ward", "len"]
    assert FRAME.select(total=CENTS.sum().over("p")).columns == ["p", "total"]


def test_columns_with_names_like_ours_are_left_alone():
    rows = VISITS.rename({"cents": "of a person 5"})
    frame = rows.dp.protect("p").with_columns(most=pl.col("of a person 5").cast(pl.Int8).max().over("p"))
    assert frame.columns == [*rows.columns, "most"]
    assert_frame_equal(rows_of(frame).select(rows.columns), rows.filter(pl.col("p").is_not_null()))


def test_selectors_of_other_columns_see_no_column_that_is_made():
    days = FRAME.select(pl.col("cents", "p"), pl.col("day").n_unique().over("p").alias("days"))
    assert days.columns == ["cents", "p", "days"]
    nulls = FRAME.with_columns(pl.all().is_null().name.suffix("_null"), total=(CENTS + 1).sum().over("p"))
    assert nulls.columns == [*VISITS.columns, *(f"{name}_null" for name in VISITS.columns), "total"]
    assert rows_of(FRAME.select(pl.lit(1).alias("one"), total=CENTS.sum().over("p")))["one"].to_list() == [1] * 6


def test_reprs_name_the_step_and_show_no_row():
    groups = FRAME.group_by("p", "ward")
    assert "person:   'p', 'ward'" in repr(groups)
    assert "steps:    group_by, with_columns" in repr(groups.agg(pl.len()).with_columns(x=pl.len().over("p")))
    assert copy.deepcopy(groups) is groups
    with pytest.raises(AttributeError, match=r"^head: this keeps rows by their place"):
        groups.head()


@pytest.mark.parametrize("streams", [False, True])
def test_a_release_of_files_and_of_parts_of_the_people(tmp_path, streams):
    VISITS.write_parquet(tmp_path / "visits.parquet")
    frame = pl.scan_parquet(tmp_path / "visits.parquet").dp.protect("p", max_rows=2)
    query = frame.group_by("p", "ward").agg(CENTS.sum()).agg(x=CENTS.dp.mode(range(30), epsilon=1000))
    one = query.release(engine="streaming" if streams else "in-memory", partitions=3)
    assert one.item() in {12, 7, 1, 2, 9}
    people = frame.group_by("p").agg(CENTS.sum()).agg(x=CENTS.dp.median(range(30), epsilon=1000))
    assert people.release(partitions=2, engine="streaming" if streams else "in-memory").item() == 9


def test_engines_without_expressions_refuse_the_steps():
    ibis, sql = need("ibis"), need("dp_polars.sql")
    query = dpp.protect("p").group_by("p").agg(CENTS.sum()).agg(CENTS.dp.median(range(30), epsilon=1))
    with pytest.raises(TypeError, match="must not have row operations"):
        sql.release(query, ibis.memtable(VISITS.drop_nulls("p")))


def test_pickles_simulations_and_measurements_of_opendp_take_the_steps():
    query = dpp.protect("p").group_by("p").agg(CENTS.sum()).agg(x=CENTS.dp.median(range(30), epsilon=1000))
    assert pickle.loads(pickle.dumps(query)).release(VISITS).item() == 9
    assert simulate(query, VISITS).select("true_answer", "counted", "left_out").rows() == [(9, 3, 0)]
    need("opendp.prelude").enable_features("contrib", "honest-but-curious")
    measurement = need("dp_polars.opendp").as_measurement(query)
    assert measurement.map(1) == 1000.0
    assert measurement(VISITS).item() == 9


@pytest.mark.slow
def test_explain_says_how_floats_of_a_person_are_added():
    frame = pl.DataFrame({"p": [1, 1, 2], "cost": [0.5, 1.0, 2.0], "n": [1, 2, 3]})
    private, words = frame.dp.protect("p", max_rows=2), "count to the nearest 2⁻⁴⁰"

    def note(step):
        return step.agg(people=dpp.n_people(epsilon=1)).explain()["note"][0]

    assert words in note(private.group_by("p").agg(pl.col("cost").sum()))
    assert words in note(private.with_columns(mean=pl.col("cost").mean().over("p")).drop("n"))
    assert words not in note(private.group_by("p").agg(pl.col("n").mean(), pl.col("cost").max()))
    assert words not in note(private.with_columns(pl.col("cost") * 2))
    lists = frame.select("p", costs=pl.concat_list("cost"), ns=pl.concat_list("n")).dp.protect("p", max_rows=2)
    if not IS_OLD:
        assert words in note(lists.with_columns(pl.col("costs").list.sum()))
        assert words in note(lists.with_columns(pl.col("costs").list.mean().max().over("p")))
        assert words not in note(lists.with_columns(pl.col("costs").list.max(), pl.col("ns").list.mean()))
