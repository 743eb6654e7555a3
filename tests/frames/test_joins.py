"""Joins of private frames with each other, and with owned rows: what comes out, what is refused, what is kept."""

import copy
import itertools
import json
import pickle
from collections import Counter
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import dp_polars as dpp
from dp_polars._engines.polars.engine import PolarsEngine
from dp_polars._release.release import question_of
from dp_polars.analysis import simulate
from tests.helpers.needs import need

HOWS = ("inner", "left", "semi", "anti")
ENGINES = ("in-memory", "streaming")
VISITS = pl.DataFrame(
    {"p": [1, 1, 2, 3, 3, None, 4], "day": [1, 2, 1, 1, 1, 1, None], "cents": [10, 20, 30, 40, 50, 60, 70]}
)
PEOPLE = pl.DataFrame({"p": [1, 2, 2, 3, None, 5], "day": [1, 1, 2, 3, 1, 1], "plan": ["a", "b", "c", "a", "b", "c"]})
ITEMS = pl.DataFrame({"of_day": [1, 1, 2, None], "item": [7, 8, 9, 6]})


def rows_of(private, *tables, engine="in-memory"):
    """The rows after all steps."""
    proved = private._pipeline.proved(*(table.collect_schema() for table in tables))
    return proved.rows(*(table.lazy() for table in tables)).collect(engine=engine)


def by_hand(left, right, left_on, right_on, how):
    """The same join in plain Python, as a count of rows (tuples): null equals nothing."""
    found = Counter()
    for row in left.rows(named=True):
        key = tuple(row[name] for name in left_on)
        partners = [
            other
            for other in right.rows(named=True)
            if None not in key and key == tuple(other[name] for name in right_on)
        ]
        if how in ("semi", "anti"):
            found[tuple(row.values())] += bool(partners) == (how == "semi")
            continue
        others = [name for name in right.columns if name not in right_on]
        if how == "left" and not partners:
            partners = [dict.fromkeys(others)]
        for other in partners:
            found[(*row.values(), *(other[name] for name in others))] += 1
    return +found


def protected(frame, **options):
    return frame.dp.protect("p", **options)


# What comes out


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("on", [["p"], ["p", "day"], ["day", "p"]])
def test_a_join_of_private_frames_is_that_of_plain_python(how, on, engine):
    joined = protected(VISITS).join(protected(PEOPLE), on=on, how=how)
    found = rows_of(joined, VISITS, PEOPLE, engine=engine)
    people = VISITS.drop_nulls("p"), PEOPLE.drop_nulls("p")
    assert Counter(found.rows()) == by_hand(*people, on, on, how)
    assert found.columns == joined.columns
    names = ["p", "day", "cents", "plan"] if len(on) == 2 else ["p", "day", "cents", "day_right", "plan"]
    assert found.columns == (names if how in ("inner", "left") else VISITS.columns)


@pytest.mark.parametrize("how", HOWS)
def test_a_join_with_owned_rows_is_that_of_plain_python(how, engine):
    joined = protected(VISITS).join(dpp.owned(ITEMS), left_on="day", right_on="of_day", how=how)
    found = rows_of(joined, VISITS, ITEMS, engine=engine)
    assert Counter(found.rows()) == by_hand(VISITS, ITEMS, ["day"], ["of_day"], how)
    assert found.columns == joined.columns


def test_owned_rows_may_be_named_by_the_unit():
    joined = protected(VISITS).join(dpp.owned(ITEMS), left_on="p", right_on="of_day", how="inner")
    assert Counter(rows_of(joined, VISITS, ITEMS).rows()) == by_hand(VISITS, ITEMS, ["p"], ["of_day"], "inner")


VALUES = {
    "Int8": ([1, 2, -3], pl.Int8),
    "UInt64": ([1, 2**64 - 1, 0], pl.UInt64),
    "Int128": ([1, 2**100, -(2**100)], pl.Int128),
    "String": (["a", "b", ""], pl.String),
    "Binary": ([b"a", b"b", b""], pl.Binary),
    "Boolean": ([True, False, True], pl.Boolean),
    "Enum": (["a", "b", "c"], pl.Enum(["c", "b", "a"])),
    "Categorical": (["a", "b", "c"], pl.Categorical),
    "Decimal": ([Decimal("1.50"), Decimal("-2.25"), Decimal(0)], pl.Decimal(10, 2)),
    "Date": ([date(2026, 1, 1), date(1900, 1, 1), date(2026, 1, 2)], pl.Date),
    "Datetime": ([datetime(2026, 1, n, tzinfo=UTC) for n in (1, 2, 3)], pl.Datetime("us", "UTC")),
    "Duration": ([timedelta(n) for n in (1, 0, -1)], pl.Duration),
    "Time": ([time(n) for n in (1, 2, 3)], pl.Time),
}


@pytest.mark.parametrize("place", ["unit", "further", "owned"])
@pytest.mark.parametrize("name", VALUES)
def test_columns_of_every_type_may_be_joined(name, place, engine):
    values, dtype = VALUES[name]
    keys = pl.Series([*values, values[0], None], dtype=dtype)
    one, other = (pl.DataFrame({"k": keys, "n": range(5)}), pl.DataFrame({"k": keys[[3, 1, 4]], "m": range(3)}))
    if place == "unit":
        one, other = one.rename({"k": "p"}), other.rename({"k": "p"})
        joined, on = protected(one).join(protected(other), on="p", how="inner"), ["p"]
    elif place == "further":
        one, other = one.with_columns(p=1), other.with_columns(p=1)
        joined, on = protected(one).join(protected(other), on=["p", "k"], how="inner"), ["p", "k"]
    else:
        one = one.with_columns(p=1)
        joined, on = protected(one).join(dpp.owned(other), on="k", how="inner"), ["k"]
    found = rows_of(joined, one, other, engine=engine)
    assert Counter(found.rows()) == by_hand(one, other, on, on, "inner")
    assert found.height >= 3


@pytest.mark.parametrize("how", HOWS)
def test_categories_are_compared_as_text(how, engine):
    categories = [pl.Categories(f"joined {how} {engine} {n}") for n in range(2)]
    one = pl.DataFrame(
        {"p": ["a", "b", "c"], "k": ["x", "y", "z"]}, {"p": pl.Categorical(categories[0]), "k": pl.String}
    )
    other = pl.DataFrame(
        {"p": ["c", "d", "a"], "k": ["z", "y", "q"]}, {"p": pl.Categorical(categories[1]), "k": pl.Categorical}
    )
    for on in (["p"], ["p", "k"]):
        joined = protected(one).join(protected(other), on=on, how=how)
        found = rows_of(joined, one, other, engine=engine)
        assert Counter(found.rows()) == by_hand(one, other, on, on, how)
        assert found.schema["p"] == one.schema["p"]


@pytest.mark.parametrize("dtype", [pl.Float32, pl.Float64])
@pytest.mark.parametrize("how", HOWS)
def test_zeros_are_one_person_and_nan_is_nobody(how, dtype, engine):
    nan = float("nan")
    one = pl.DataFrame({"p": [0.0, -0.0, nan, -nan, None, 1.0], "n": range(6)}, {"p": dtype, "n": pl.Int64})
    other = pl.DataFrame({"p": [-0.0, nan, None, 2.0], "m": range(4)}, {"p": dtype, "m": pl.Int64})
    joined = protected(one).join(protected(other), on="p", how=how)
    found = rows_of(joined, one, other, engine=engine)
    expected = {"inner": [0, 1], "left": [0, 1, 5], "semi": [0, 1], "anti": [5]}
    assert sorted(found["n"]) == expected[how]
    if how == "left":
        assert found.sort("n")["m"].to_list() == [0, 0, None]


def test_names_that_clash_get_a_suffix_and_no_name_is_in_the_way():
    one = pl.DataFrame({"p": [1], "key0": [2], "x": [3], "key_": [0]})
    other = pl.DataFrame({"p": [1], "key0": [4], "x": [5], "key1": [6]})
    joined = protected(one).join(protected(other), on="p", how="inner")
    assert rows_of(joined, one, other).to_dicts() == [
        {"p": 1, "key0": 2, "x": 3, "key_": 0, "key0_right": 4, "x_right": 5, "key1": 6}
    ]


def test_steps_on_either_side_and_joins_of_joins():
    visits = protected(VISITS).filter(pl.col("cents") > 10)
    people = protected(PEOPLE).join(dpp.owned(ITEMS), left_on="day", right_on="of_day", how="inner")
    people = people.with_columns(big=pl.col("item") > 7)
    joined = visits.join(people, on="p", how="inner").filter(pl.col("plan") != "c")
    joined = joined.join(protected(VISITS), on=["p", "day"], how="semi")
    assert len(joined._pipeline.origins) == 4
    found = rows_of(joined, VISITS, PEOPLE, ITEMS, VISITS)
    right = PEOPLE.drop_nulls().join(ITEMS, left_on="day", right_on="of_day", how="inner")
    right = right.with_columns(big=pl.col("item") > 7)
    expected = VISITS.drop_nulls("p").filter(pl.col("cents") > 10).join(right, on="p", how="inner")
    expected = expected.filter(pl.col("plan") != "c", pl.col("day").is_not_null())
    assert_frame_equal(found, expected, check_row_order=False)
    query = joined.agg(dpp.n_people(epsilon=10**6))
    assert query.release().item() == expected["p"].n_unique()


def test_order_and_chunks_change_nothing(engine):
    joined = (
        protected(VISITS)
        .join(protected(PEOPLE), on="p", how="left")
        .join(dpp.owned(ITEMS), left_on="day", right_on="of_day", how="left")
    )
    expected = Counter(rows_of(joined, VISITS, PEOPLE, ITEMS).rows())
    for seed in range(5):
        tables = [table.sample(fraction=1, shuffle=True, seed=seed) for table in (VISITS, PEOPLE, ITEMS)]
        tables = [pl.concat([table[:seed], table[seed:]], rechunk=False) for table in tables]
        assert Counter(rows_of(joined, *tables, engine=engine).rows()) == expected


def test_two_frames_of_one_file_and_a_release_from_scans(tmp_path):
    VISITS.write_parquet(tmp_path / "visits.parquet")
    ITEMS.write_parquet(tmp_path / "items.parquet")
    visits = pl.scan_parquet(tmp_path / "visits.parquet")
    items = dpp.owned(pl.scan_parquet(tmp_path / "items.parquet"))
    pairs = protected(visits, max_rows=10).join(protected(visits), on="p", how="inner")
    query = pairs.join(items, left_on="day", right_on="of_day", how="inner").agg(dpp.len(epsilon=10**6))
    people = VISITS.drop_nulls("p")
    expected = people.join(people, on="p").join(ITEMS, left_on="day", right_on="of_day").height
    assert query.release().item() == expected
    assert query.release(engine="streaming").item() == expected
    assert query.release(partitions=3).item() == expected
    assert pickle.loads(pickle.dumps(query)).release().item() == expected
    assert pickle.loads(pickle.dumps(pairs)).columns == pairs.columns


# Bounds of the right frame


@pytest.mark.parametrize("partitions", [None, 3])
def test_one_person_with_thousands_of_rows_on_the_right_counts_once(engine, partitions):
    left = pl.DataFrame({"p": [0, 0, 1, 2, None], "x": range(5)})
    right = pl.DataFrame({"p": [0] * 5000 + [1, None], "y": range(5002)})
    totals = protected(left).group_by("p").agg(pl.col("x").sum())
    query = totals.join(protected(right, max_rows=1), on="p", how="inner").agg(
        rows=dpp.len(epsilon=10**6), y=pl.col("y").dp.sum(0, 10**4, epsilon=10**6), people=dpp.n_people(epsilon=10**6)
    )
    assert {ask.query.claim.contributions.total for ask in query.asks} == {1}
    for tables in [None] * 3:
        rows, y, people = query.release(tables, engine=engine, partitions=partitions).row(0)
        assert (rows, people) == (2, 2)
        assert 0 <= y - 5000 < 5000
    # Without a bound, the outputs must have one, and it counts what comes out.
    with pytest.raises(ValueError, match="the rows of one person must be bounded"):
        totals.join(protected(right), on="p", how="inner").agg(dpp.len(epsilon=1))
    bounded = protected(left, max_rows=7).join(protected(right), on="p", how="inner").agg(dpp.len(epsilon=10**6))
    assert bounded.release(engine=engine, partitions=partitions).item() == 7 + 1


def test_two_rows_on_the_right_are_two():
    left, right = pl.DataFrame({"p": [0]}), pl.DataFrame({"p": [0] * 5})
    one, two = (protected(left).group_by("p").agg().join(protected(right, max_rows=n), on="p") for n in (1, 2))
    assert one.agg(dpp.len(epsilon=10**6)).release().item() == 1
    with pytest.raises(ValueError, match="the rows of one person must be bounded"):
        two.agg(dpp.len(epsilon=1))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [pl.Int64, pl.String, pl.Float64, pl.Int128, pl.Categorical, pl.Date])
def test_the_rows_that_stay_on_the_right_are_a_uniform_choice(dtype):
    people = pl.Series("p", [0, 1, 2, 3], dtype=pl.Int64).cast(pl.String if dtype == pl.Categorical else dtype)
    people = people.cast(dtype)
    right = pl.DataFrame({"p": people[[0] * 4 + [1, 1, 2]], "y": [1, 1, 1, 2, 5, 5, 9]})
    left = pl.DataFrame({"p": people})
    joined = protected(left).join(protected(right, max_rows=2), on="p", how="inner")
    seen = Counter()
    for _ in range(900):
        found = rows_of(joined, left, right)["y"].to_list()
        assert sorted(found)[-3:] == [5, 5, 9]
        seen[tuple(sorted(found)[:-3])] += 1
    # Of four rows, two: three of the six choices hold the 2. By equal rows alone, it would be one of two.
    assert seen.keys() == {(1, 1), (1, 2)}
    assert 360 < seen[1, 2] < 540


def test_what_a_release_reads_twice_is_chosen_once():
    left = pl.DataFrame({"p": range(50)})
    right = pl.DataFrame({"p": [i // 9 for i in range(450)], "y": range(450)})
    joined = protected(left).join(protected(right, max_rows=2), on="p", how="inner")
    plan = joined._pipeline.proved(left.schema, right.schema).rows(left.lazy(), right.lazy())
    for engine in (*ENGINES, *ENGINES):
        assert Counter(plan.collect(engine=engine)["y"]) == Counter(plan.collect()["y"])
    assert plan.filter(pl.col("p") == 3).select("y").collect().height == 2
    assert len({tuple(rows_of(joined, left, right)["y"].sort()) for _ in range(5)}) > 1


@pytest.mark.parametrize(
    ("bounds", "most"),
    [
        ({}, None),
        ({"max_rows": 3}, 3),
        ({"max_groups": 2}, None),
        ({"max_rows_per_group": 2}, None),
        ({"max_groups": 2, "max_rows_per_group": 2}, 4),
        ({"max_rows": 3, "max_groups": 2, "max_rows_per_group": 2}, 3),
        ({"max_rows": 9, "max_groups": 2, "max_rows_per_group": 2}, 4),
    ],
)
@pytest.mark.parametrize("how", HOWS)
def test_how_many_rows_stay_on_the_right(bounds, most, how):
    left = pl.DataFrame({"p": [1, 2], "day": [1, 1]})
    right = pl.DataFrame({"p": [1] * 20, "day": [1] * 20, "y": range(20)})
    for on in (["p"], ["p", "day"]):
        joined = protected(left, max_rows=50).join(protected(right, **bounds), on=on, how=how)
        filters = how in ("semi", "anti")
        step = joined._pipeline.steps[0]
        assert step.most == (None if filters and on == ["p"] else most)
        expected = {"inner": most or 20, "left": (most or 20) + 1, "semi": 1, "anti": 1}
        assert rows_of(joined, left, right).height == expected[how]
        note = joined.agg(dpp.len(epsilon=1)).explain()["note"].item()
        assert ("on its other side" in note) == (step.most is not None)
        assert joined._pipeline.calibration.max_rows == 50
    one = protected(left).group_by("p").agg().join(protected(right, **bounds).group_by("p").agg(), on="p")
    assert one._pipeline.steps[-1].most is None  # each person has one row there already
    assert one.agg(dpp.len(epsilon=1)).asks[0].query.claim.contributions.total == 1


def test_the_bounds_of_the_right_frame_are_said_and_part_of_the_question():
    left, right = pl.DataFrame({"p": [1, 2]}), pl.DataFrame({"p": [1, 1], "y": [1, 2]})
    joined = protected(left).join(protected(right, max_rows=2), on="p", how="inner").join(protected(left), on="p")
    assert "steps:    join of 2 rows of each person, join of a private frame" in repr(joined)
    two = protected(left, max_rows=3).join(joined, on="p").agg(dpp.len(epsilon=1))
    note = two.explain()["note"].item()
    assert "Before a join, 2 random rows of a person at most stay on its other side." in note
    assert (
        "no further row is dropped"
        in protected(left)
        .join(protected(right, max_rows=1), on="p")
        .group_by("p")
        .agg()
        .agg(dpp.len(epsilon=1))
        .explain()["note"]
        .item()
        .lower()
    )
    texts = set()
    for most in (1, 2):
        query = protected(left, max_rows=3).join(protected(right, max_rows=most), on="p").agg(dpp.len(epsilon=1))
        engine = PolarsEngine.of(left.lazy(), right.lazy())
        question = question_of(query.request, engine, query.request.bind(engine), "", "a", "b")
        texts.add(json.dumps(json.loads(question.text)["steps"]))
    assert len(texts) == 2


# Rows that come later


def asked(frame, **options):
    return frame.agg(pl.col("cents").dp.median(range(101), **({"epsilon": 0.5} | options)))


def unbound():
    return (
        dpp.protect("p", max_rows=3)
        .join(dpp.protect("p"), on="p", how="inner")
        .join(dpp.owned(), left_on="day", right_on="of_day", how="inner")
    )


def test_a_release_takes_a_tuple_of_frames_in_the_order_of_the_joins():
    query = unbound().agg(dpp.n_people(epsilon=10**6))
    expected = VISITS.drop_nulls().join(PEOPLE, on="p").join(ITEMS, left_on="day", right_on="of_day")["p"].n_unique()
    for tables in ((VISITS, PEOPLE, ITEMS), (VISITS.lazy(), PEOPLE.to_arrow(), ITEMS)):
        assert query.release(tables).item() == expected
    result = simulate(query, (VISITS, PEOPLE, ITEMS))
    assert result["true_answer"].to_list() == [expected]
    bound = (
        protected(VISITS, max_rows=3)
        .join(protected(PEOPLE), on="p", how="inner")
        .join(dpp.owned(ITEMS), left_on="day", right_on="of_day", how="inner")
    )
    assert simulate(bound.agg(dpp.n_people(epsilon=10**6)), (VISITS, PEOPLE, ITEMS), private=True).equals(result)


@pytest.mark.parametrize("frames", [VISITS, (VISITS,), (VISITS, PEOPLE), (VISITS, PEOPLE, ITEMS, ITEMS)])
def test_another_number_of_frames_is_refused_before_the_charge(frames):
    budget = dpp.Budget(epsilon=1)
    joined = (
        dpp.protect("p", max_rows=3, budget=budget)
        .join(dpp.protect("p", budget=budget), on="p")
        .join(dpp.owned(), left_on="day", right_on="of_day")
    )
    query = asked(joined)
    got = f"a tuple of {len(frames)}" if isinstance(frames, tuple) else "one"
    for call in (query.release, lambda frames: simulate(query, frames)):
        with pytest.raises(TypeError, match=f"a tuple of 3 frames, in the order of the joins, got {got}"):
            call(frames)
    with pytest.raises(TypeError, match="must be given one frame, got a tuple of 2"):
        asked(dpp.protect("p", max_rows=1)).release((VISITS, PEOPLE))
    assert budget.spent == 0


def test_one_reader_is_not_read_for_two_tables():
    query = dpp.protect("p").join(dpp.protect("p"), on="p", how="inner").agg(dpp.n_people(epsilon=10**6))
    table = VISITS.to_arrow()
    reader = table.to_reader()
    with pytest.raises(ValueError, match="got one RecordBatchReader twice"):
        query.release((reader, reader))
    assert query.release((reader, table.to_reader())).item() == query.release((table, table)).item() == 4


def test_a_step_is_refused_when_the_rows_come():
    with pytest.raises(ValueError, match="the right frame must have the join column 'day', got the columns"):
        asked(dpp.protect("p", max_rows=3).join(dpp.protect("p"), on=["p", "day"])).release(
            (VISITS, PEOPLE.drop("day"))
        )
    query = asked(unbound())
    with pytest.raises(ValueError, match="the frame must have the privacy unit 'p' as a column"):
        query.release((VISITS, PEOPLE.drop("p"), ITEMS))
    with pytest.raises(TypeError, match="the privacy unit 'p' must have one type in both frames, got Int64 and String"):
        query.release((VISITS, PEOPLE.cast({"p": pl.String}), ITEMS))
    with pytest.raises(ValueError, match=r"protect: .*picks or fills by the place"):
        query.release((VISITS, PEOPLE.lazy().slice(1, 2), ITEMS))
    with pytest.raises(ValueError, match=r"protect: .*combines all rows"):
        query.release((VISITS, PEOPLE, ITEMS.lazy().filter(pl.col("item") > pl.col("item").mean())))


@pytest.mark.parametrize(
    ("package", "call"),
    [
        ("opendp", lambda query: dpp.opendp.as_measurement(query)),
        ("ibis", lambda query: dpp.sql.release(query, None)),
        ("pyspark", lambda query: dpp.spark.release(query, None)),
    ],
)
def test_adapters_of_one_table_say_to_join_first(package, call):
    need(package)
    for query in (unbound(), dpp.protect("p").join(dpp.owned(), on="day")):
        with pytest.raises(TypeError, match=r"about one table: it joins[\s\S]*Hint: join the tables first"):
            call(query.agg(dpp.n_people(epsilon=1)))


# Refusals: one sentence each, before anything is charged


def test_frames_that_do_not_promise_the_same_are_refused():
    visits = protected(VISITS)
    for other, match in [
        (PEOPLE.dp.protect(None), "there must be a privacy unit"),
        (PEOPLE.dp.protect("day"), "must have the same privacy unit, got 'p' and 'day'"),
        (protected(PEOPLE, neighboring_relation="replace_one"), "the same neighboring_relation, got 'add_or"),
        (protected(PEOPLE, budget=dpp.Budget(epsilon=1)), "the same budget, got one with a budget and one"),
    ]:
        for one, two in ((visits, other), (other, visits)):
            with pytest.raises(ValueError, match=match.replace("'p' and 'day'", ".*").replace("'add_or", "")):
                one.join(two, on="p")
    with pytest.raises(ValueError, match="got two budgets"):
        protected(VISITS, budget=dpp.Budget(epsilon=1)).join(protected(PEOPLE, budget=dpp.Budget(epsilon=1)), on="p")


def test_one_ledger_is_one_budget(tmp_path):
    paths = [tmp_path / "a.db", tmp_path / "a.db", tmp_path / "b.db"]
    one, same, another = (dpp.Budget(epsilon=1, path=path) for path in paths)
    visits = protected(VISITS, max_rows=3, budget=one)
    asked(visits.join(protected(PEOPLE, budget=same), on="p")).release()
    assert float(one.spent) == float(same.spent) == 0.5
    assert one.log().height == 1
    with pytest.raises(ValueError, match="got two budgets"):
        visits.join(protected(PEOPLE, budget=another), on="p")


def test_a_join_without_the_unit_is_refused():
    visits, people = protected(VISITS), protected(PEOPLE)
    with pytest.raises(ValueError, match=r"must be joined on the privacy unit 'p', paired with itself: got \['day'\]"):
        visits.join(people, on="day")
    with pytest.raises(ValueError, match="paired with itself: the right columns lack it"):
        visits.join(people, left_on="p", right_on="day")
    with pytest.raises(ValueError, match="paired with itself: the left columns lack it"):
        visits.join(people, left_on="day", right_on="p")
    with pytest.raises(ValueError, match="paired with itself: got"):
        visits.join(people, left_on=["p", "day"], right_on=["day", "p"])


def test_rows_on_one_side_only_are_refused():
    for one, other in ((protected(VISITS), dpp.protect("p")), (dpp.protect("p"), protected(VISITS))):
        with pytest.raises(TypeError, match=r"both frames must have rows, or neither: the .* has none yet"):
            one.join(other, on="p")
    with pytest.raises(TypeError, match="both frames must have rows, or neither: the other has rows"):
        dpp.protect("p").join(dpp.owned(ITEMS), on="p")


@pytest.mark.parametrize(
    ("dtype", "what"),
    [
        (pl.Float64, "floats"),
        (pl.Float32, "floats"),
        (pl.List(pl.Int64), "List"),
        (pl.Struct({"a": pl.Int64}), "Struct"),
    ],
)
def test_columns_that_engines_compare_differently_are_refused(dtype, what):
    one, other = (pl.DataFrame({"p": [1], "k": [None]}, {"p": pl.Int64, "k": dtype}) for _ in range(2))
    with pytest.raises(TypeError, match=f"join: the columns 'k' must not be .*{what}"):
        protected(one).join(protected(other), on=["p", "k"])
    with pytest.raises(TypeError, match=f"join: the columns 'k' must not be .*{what}"):
        protected(one).join(dpp.owned(other.drop("p")), on="k")
    if dtype in (pl.Float64, pl.Float32):  # the unit may be a float where it is compared with itself alone
        one = one.cast({"p": dtype})
        with pytest.raises(TypeError, match="must not be floats"):
            protected(one).join(dpp.owned(other.select(q="k")), left_on="p", right_on="q")


def test_columns_of_two_types_are_refused():
    with pytest.raises(TypeError, match="'day' and 'plan' must have one type in both frames, got Int64 and String"):
        protected(VISITS).join(protected(PEOPLE), left_on=["p", "day"], right_on=["p", "plan"])
    with pytest.raises(TypeError, match="'day' must have one type in both frames, got Int64 and Int32"):
        protected(VISITS).join(protected(PEOPLE.cast({"day": pl.Int32})), on=["p", "day"])


def test_how_and_kinds_of_frames():
    with pytest.raises(ValueError, match='how must be "left", "inner", "semi" or "anti", got \'full\''):
        protected(VISITS).join(protected(PEOPLE), on="p", how="full")
    with pytest.raises(TypeError, match="a public DataFrame or LazyFrame, another private frame or owned rows, got"):
        protected(VISITS).join([1], on="p")


def test_owned_rows_are_private(tmp_path):
    with pytest.raises(ValueError, match="must not have a column named like the privacy unit, 'p'"):
        protected(VISITS).join(dpp.owned(PEOPLE), on="day")
    with pytest.raises(ValueError, match="there must be a privacy unit, got None: one row may own many"):
        VISITS.dp.protect(None).join(dpp.owned(ITEMS), left_on="day", right_on="of_day")
    for items in (ITEMS.lazy().filter(pl.col("item") > pl.col("item").mean()), ITEMS.lazy().head(2)):
        with pytest.raises(ValueError, match=r"^join: `(mean|head)`[\s\S]*unchecked=True"):
            protected(VISITS.lazy()).join(dpp.owned(items), left_on="day", right_on="of_day")
    with pytest.raises(TypeError, match="owned rows must be a LazyFrame, a DataFrame or None, got"):
        dpp.owned([1])
    with pytest.raises(TypeError, match=r"got PrivateFrame\.[\s\S]*Hint: a private frame has its own privacy unit"):
        dpp.owned(VISITS.dp.protect(None))
    with pytest.raises(TypeError, match="dataset must be a name or None, got ''"):
        dpp.owned(ITEMS, dataset="")
    owned = dpp.owned(ITEMS.with_columns(secret=pl.lit("s3cr3t")))
    with pytest.raises(TypeError, match="must not be collected"):
        owned.collect()
    joined = protected(VISITS.lazy()).join(owned, left_on="day", right_on="of_day")
    query = joined.agg(dpp.n_people(epsilon=1))
    for thing in (owned, joined, query, joined.group_by({"day": [1]})):
        assert "s3cr3t" not in repr(thing)
        with pytest.raises(TypeError, match="must be bound to no rows in memory to be pickled"):
            pickle.dumps(thing)
    assert copy.deepcopy(owned) is owned
    # Only the right side holds rows in memory.
    VISITS.write_parquet(tmp_path / "v.parquet")
    scanned = protected(pl.scan_parquet(tmp_path / "v.parquet"))
    for other in (owned, protected(PEOPLE)):
        pickle.dumps(scanned)
        left, right = ("day", "of_day") if other is owned else ("p", "p")
        with pytest.raises(TypeError, match="must be bound to no rows in memory to be pickled"):
            pickle.dumps(scanned.join(other, left_on=left, right_on=right))


def test_the_repr_says_whose_bounds_hold():
    joined = (
        protected(VISITS, max_rows=3)
        .join(protected(PEOPLE, max_rows=99), on="p")
        .join(dpp.owned(ITEMS), left_on="day", right_on="of_day")
    )
    assert "steps:    join of 99 rows of each person, join of owned rows" in repr(joined)
    assert "max_rows=3" in repr(joined)
    assert repr(joined).count("99") == 1
    assert joined.protection == protected(VISITS, max_rows=3).protection


def test_steps_say_whether_they_multiply_rows():
    visits, people, items = protected(VISITS), protected(PEOPLE), dpp.owned(ITEMS)
    for how in HOWS:
        joins = [visits.join(people, on="p", how=how), visits.join(items, left_on="day", right_on="of_day", how=how)]
        assert [join._pipeline.steps[-1].multiplies for join in joins] == [how in ("inner", "left")] * 2
        assert not visits.join(pl.DataFrame({"day": [1]}), on="day", how=how)._pipeline.steps[-1].multiplies
    assert not visits.filter(pl.col("day") > 0)._pipeline.steps[-1].multiplies


# Joins with public keys


@pytest.mark.parametrize("how", ["semi", "anti"])
def test_public_keys_may_repeat_where_they_only_filter(how, engine):
    public = pl.DataFrame({"day": [1, 1, None, 3], "p": [7, 8, 9, 9]})
    joined = protected(VISITS).join(public, on="day", how=how)
    assert Counter(rows_of(joined, VISITS, engine=engine).rows()) == by_hand(VISITS, public, ["day"], ["day"], how)
    people = protected(VISITS).join(public.lazy(), left_on="p", right_on="day", how=how)
    assert Counter(rows_of(people, VISITS).rows()) == by_hand(VISITS, public, ["p"], ["day"], how)
    with pytest.raises(ValueError, match="NaN"):
        protected(VISITS).join(pl.DataFrame({"day": [float("nan")]}), on="day", how=how)


# Answers that are kept


@pytest.fixture
def budget(tmp_path):
    return dpp.Budget(epsilon=100, path=tmp_path / "ledger.db")


def kept_query(budget, *, people=PEOPLE, items=ITEMS, names=("visits", "people", "items"), step=lambda f: f, grid=1e-9):
    visits = protected(VISITS, budget=budget, max_rows=5, dataset=names[0])
    right = step(protected(people, budget=budget, dataset=names[1]))
    joined = visits.join(right, on="p", how="inner").join(
        dpp.owned(items, dataset=names[2]), left_on="day", right_on="of_day", how="inner"
    )
    return joined.agg(pl.col("cents").dp.median(dpp.grid(0, 100, step=grid), epsilon=0.5))


def test_an_answer_is_kept_where_all_tables_have_a_name(budget):
    first = kept_query(budget).release()
    assert float(budget.spent) == 0.5
    assert kept_query(budget).release().equals(first)
    assert budget.answers()["dataset"].to_list() == ["visits and people and items"]
    assert float(budget.spent) == 0.5
    others = [
        kept_query(budget, names=("visits", "people 2", "items")),
        kept_query(budget, names=("visits", "people", "items 2")),
        kept_query(budget, names=("visits and people", "items", "x")),
        kept_query(budget, names=("visits", "people and items", "x")),
        kept_query(budget, step=lambda f: f.filter(pl.col("day") > 0)),
        kept_query(budget, step=lambda f: f.filter(pl.col("day") > 1)),
        kept_query(budget, step=lambda f: f.rename({"plan": "q"})),
        kept_query(budget, people=PEOPLE.with_columns(z=1)),
    ]
    for number, query in enumerate(others):
        query.release()
        assert float(budget.spent) == 1 + number / 2
    for number, names in enumerate([("visits", None, "items"), ("visits", "people", None), (None, "people", "items")]):
        for _ in range(2):
            kept_query(budget, names=names).release()
        assert float(budget.spent) == 1 + len(others) / 2 - 0.5 + number + 1
    assert budget.answers().height == 1 + len(others)


@pytest.mark.parametrize("how", HOWS)
def test_an_order_of_columns_of_the_left_is_no_part_of_a_question(budget, how):
    def released(visits):
        joined = protected(visits, budget=budget, max_rows=5, dataset="v").join(
            protected(PEOPLE, budget=budget, dataset="p"), on=["p", "day"], how=how
        )
        return joined.agg(pl.col("cents").dp.median(range(101), epsilon=0.5)).release()

    first = released(VISITS)
    assert released(VISITS.select("cents", "day", "p")).equals(first)
    assert float(budget.spent) == 0.5
    released(VISITS.cast({"cents": pl.Int32}))  # of another type
    assert float(budget.spent) == 1


def test_no_digest_of_private_rows_enters_the_ledger(budget):
    texts = set()
    for items in (ITEMS, ITEMS.with_columns(pl.col("item") + 1), ITEMS.head(1), pl.concat([ITEMS] * 3)):
        for people in (PEOPLE, PEOPLE.head(2), PEOPLE.with_columns(plan=pl.lit("zzz"))):
            query = kept_query(budget, people=people, items=items)
            engine = PolarsEngine.of(*query._sources)
            question = question_of(query.request, engine, query.request.bind(engine), "a", "b", "c")
            texts.add((question.text, question.source))
    assert len(texts) == 1
    ((_, source),) = texts
    assert source == "memory; memory; memory"


@pytest.mark.parametrize("changed", ["people", "items"])
def test_another_file_of_any_table_is_seen(budget, tmp_path, changed):
    tables = {"people": PEOPLE, "items": ITEMS}
    for name, table in tables.items():
        table.write_parquet(tmp_path / name)

    def query():
        return kept_query(budget, **{name: pl.scan_parquet(tmp_path / name) for name in tables})

    old = query()
    first = old.release()
    tables[changed].head(3).write_parquet(tmp_path / "new")
    (tmp_path / "new").replace(tmp_path / changed)
    with pytest.warns(dpp.KeptAnswerWarning, match="drawn from another source"):
        assert query().release().equals(first)
    with pytest.raises(ValueError, match="a file that was rewritten"):
        old.release(fresh=True)
    assert float(budget.spent) == 0.5


def test_a_spent_budget_reads_no_table(tmp_path):
    budget = dpp.Budget(epsilon=0.1)
    missing = pl.LazyFrame({"of_day": [1], "item": [1]})
    query = asked(
        protected(VISITS, budget=budget, max_rows=1).join(dpp.owned(missing), left_on="day", right_on="of_day")
    )
    with pytest.raises(dpp.BudgetExceededError):
        query.release()
    assert budget.spent == 0


def test_explain_and_other_questions_take_joins():
    joined = protected(VISITS, max_groups=5, max_rows=9).join(protected(PEOPLE), on="p", how="inner")
    assert asked(joined).explain()["groups"].to_list() == [1]
    keys = joined.keys("plan", epsilon=10**6, delta=0.5).release()
    assert {"a"} <= {*keys["plan"]} <= {"a", "b", "c"}
    rows = joined.rows_per_person(0.5, range(10), epsilon=10**6).release()
    assert rows.item() == 2
    grouped = joined.group_by({"plan": ["a", "c", "x"]}).agg(dpp.n_people(epsilon=10**6)).release()
    assert grouped.rows() == [("a", 2), ("c", 1), ("x", 0)]


def test_every_pair_of_frames_is_checked_for_rows():
    kinds = [VISITS, VISITS.lazy()]
    for one, other in itertools.product(kinds, repeat=2):
        assert (
            protected(one)
            .join(protected(other), on="p")
            .join(dpp.owned(ITEMS), left_on="day", right_on="of_day")
            .columns
        )
