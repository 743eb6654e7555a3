"""Joins of private frames with each other, and with owned rows: what comes out, what is refused, what is kept."""

import copy
import itertools
import json
import pickle
from collections import Counter

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import dp_polars as dpp
from dp_polars._engines.polars.engine import PolarsEngine
from dp_polars._release.release import question_of
from dp_polars.analysis import simulate
from tests.frames.asking import rows_of
from tests.helpers.needs import need
from tests.helpers.refusals import refusals
from tests.registry import ENGINES, UNITS

HOWS = ("inner", "left", "semi", "anti")
VISITS = pl.DataFrame(
    {"p": [1, 1, 2, 3, 3, None, 4], "day": [1, 2, 1, 1, 1, 1, None], "cents": [10, 20, 30, 40, 50, 60, 70]}
)
PEOPLE = pl.DataFrame({"p": [1, 2, 2, 3, None, 5], "day": [1, 1, 2, 3, 1, 1], "plan": ["a", "b", "c", "a", "b", "c"]})
ITEMS = pl.DataFrame({"of_day": [1, 1, 2, None], "item": [7, 8, 9, 6]})


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


V, P, OWNED = protected(VISITS), protected(PEOPLE), dpp.owned(ITEMS)
OF_DAY = {"left_on": "day", "right_on": "of_day"}


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("on", [["p"], ["p", "day"], ["day", "p"]])
def test_a_join_of_private_frames_is_that_of_plain_python(how, on, engine):
    joined = V.join(P, on=on, how=how)
    found = rows_of(joined, VISITS, PEOPLE, engine=engine)
    people = VISITS.drop_nulls("p"), PEOPLE.drop_nulls("p")
    assert Counter(found.rows()) == by_hand(*people, on, on, how)
    assert found.columns == joined.columns
    names = ["p", "day", "cents", "plan"] if len(on) == 2 else ["p", "day", "cents", "day_right", "plan"]
    assert found.columns == (names if how in ("inner", "left") else VISITS.columns)


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("named_by", ["day", "p"])
def test_a_join_with_owned_rows_is_that_of_plain_python(how, named_by, engine):
    joined = V.join(OWNED, left_on=named_by, right_on="of_day", how=how)
    found = rows_of(joined, VISITS, ITEMS, engine=engine)
    assert Counter(found.rows()) == by_hand(VISITS, ITEMS, [named_by], ["of_day"], how)
    assert found.columns == joined.columns


@pytest.mark.parametrize("place", ["unit", "further", "owned"])
@pytest.mark.parametrize("name", [name for name in UNITS if name not in ("Float64", "Float32", "List", "Struct")])
def test_columns_of_every_type_may_be_joined(name, place, engine):
    dtype, values = UNITS[name]
    keys = pl.Series([*(values * 2)[:3], values[0], None], dtype=dtype)
    one, other = (pl.DataFrame({"k": keys, "n": range(5)}), pl.DataFrame({"k": keys[[3, 1, 4]], "m": range(3)}))
    on = {"unit": ["p"], "further": ["p", "k"], "owned": ["k"]}[place]
    one = one.rename({"k": "p"}) if place == "unit" else one.with_columns(p=1)
    if place != "owned":
        other = other.rename({"k": "p"}) if place == "unit" else other.with_columns(p=1)
    joined = protected(one).join(dpp.owned(other) if place == "owned" else protected(other), on=on, how="inner")
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
    people = P.join(OWNED, **OF_DAY, how="inner").with_columns(big=pl.col("item") > 7)
    joined = V.filter(pl.col("cents") > 10).join(people, on="p", how="inner").filter(pl.col("plan") != "c")
    joined = joined.join(V, on=["p", "day"], how="semi")
    assert len(joined._pipeline.origins) == 4
    found = rows_of(joined, VISITS, PEOPLE, ITEMS, VISITS)
    right = PEOPLE.drop_nulls().join(ITEMS, **OF_DAY, how="inner").with_columns(big=pl.col("item") > 7)
    expected = VISITS.drop_nulls("p").filter(pl.col("cents") > 10).join(right, on="p", how="inner")
    expected = expected.filter(pl.col("plan") != "c", pl.col("day").is_not_null())
    assert_frame_equal(found, expected, check_row_order=False)
    assert joined.agg(dpp.n_people(epsilon=10**6)).release().item() == expected["p"].n_unique()


def test_order_and_chunks_change_nothing(engine):
    joined = V.join(P, on="p", how="left").join(OWNED, **OF_DAY, how="left")
    expected = Counter(rows_of(joined, VISITS, PEOPLE, ITEMS).rows())
    for seed in range(5):
        tables = [table.sample(fraction=1, shuffle=True, seed=seed) for table in (VISITS, PEOPLE, ITEMS)]
        tables = [pl.concat([table[:seed], table[seed:]], rechunk=False) for table in tables]
        assert Counter(rows_of(joined, *tables, engine=engine).rows()) == expected


def test_two_frames_of_one_file_and_a_release_from_scans(tmp_path):
    VISITS.write_parquet(tmp_path / "visits.parquet")
    ITEMS.write_parquet(tmp_path / "items.parquet")
    visits = pl.scan_parquet(tmp_path / "visits.parquet")
    pairs = protected(visits, max_rows=10).join(protected(visits), on="p", how="inner")
    joined = pairs.join(dpp.owned(pl.scan_parquet(tmp_path / "items.parquet")), **OF_DAY, how="inner")
    query, people = joined.agg(dpp.len(epsilon=10**6)), VISITS.drop_nulls("p")
    expected = people.join(people, on="p").join(ITEMS, **OF_DAY).height
    for how in ({}, {"engine": "streaming"}, {"partitions": 3}):
        assert query.release(**how).item() == expected
    assert pickle.loads(pickle.dumps(query)).release().item() == expected
    assert pickle.loads(pickle.dumps(pairs)).columns == pairs.columns


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
    one, two = (protected(right, max_rows=most) for most in (1, 2))
    joined = protected(left).join(two, on="p", how="inner").join(protected(left), on="p")
    assert "steps:    join of 2 rows of each person, join of a private frame" in repr(joined)
    note = protected(left, max_rows=3).join(joined, on="p").agg(dpp.len(epsilon=1)).explain()["note"].item()
    assert "Before a join, 2 random rows of a person at most stay on its other side." in note
    note = protected(left).join(one, on="p").group_by("p").agg().agg(dpp.len(epsilon=1)).explain()["note"].item()
    assert "no further row is dropped" in note.lower()
    texts = set()
    for each in (one, two):
        query = protected(left, max_rows=3).join(each, on="p").agg(dpp.len(epsilon=1))
        engine = PolarsEngine.of(left.lazy(), right.lazy())
        question = question_of(query.request, engine, query.request.bind(engine), "", "a", "b")
        texts.add(json.dumps(json.loads(question.text)["steps"]))
    assert len(texts) == 2


def asked(frame, **options):
    return frame.agg(pl.col("cents").dp.median(range(101), **({"epsilon": 0.5} | options)))


def unbound(**options):
    people = dpp.protect("p", max_rows=3, **options).join(dpp.protect("p", **options), on="p", how="inner")
    return people.join(dpp.owned(), **OF_DAY, how="inner")


def test_a_release_takes_a_tuple_of_frames_in_the_order_of_the_joins():
    query = unbound().agg(dpp.n_people(epsilon=10**6))
    expected = VISITS.drop_nulls().join(PEOPLE, on="p").join(ITEMS, **OF_DAY)["p"].n_unique()
    for tables in ((VISITS, PEOPLE, ITEMS), (VISITS.lazy(), PEOPLE.to_arrow(), ITEMS)):
        assert query.release(tables).item() == expected
    result = simulate(query, (VISITS, PEOPLE, ITEMS))
    assert result["true_answer"].to_list() == [expected]
    bound = protected(VISITS, max_rows=3).join(P, on="p", how="inner").join(OWNED, **OF_DAY, how="inner")
    assert simulate(bound.agg(dpp.n_people(epsilon=10**6)), (VISITS, PEOPLE, ITEMS), private=True).equals(result)


@pytest.mark.parametrize("frames", [VISITS, (VISITS,), (VISITS, PEOPLE), (VISITS, PEOPLE, ITEMS, ITEMS)])
def test_another_number_of_frames_is_refused_before_the_charge(frames):
    budget = dpp.Budget(epsilon=1)
    query = asked(unbound(budget=budget))
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


def with_budget(frame=PEOPLE):
    return protected(frame, budget=dpp.Budget(epsilon=1))


def late(people, items=ITEMS):
    return asked(unbound()).release((VISITS, people, items))


NOT_ONE_TYPE = "the privacy unit 'p' must have one type in both frames, got Int64 and String"
WITH_DAY = dpp.protect("p", max_rows=3).join(dpp.protect("p"), on=["p", "day"])
REPLACED = protected(PEOPLE, neighboring_relation="replace_one")
PAIRED = "paired with itself: "
ONE_SIDE = "both frames must have rows, or neither: the "
SAME_UNIT, SAME_BUDGET = "must have the same privacy unit, got ", "the same budget, got "
PLANS = {"left_on": ["p", "day"], "right_on": ["p", "plan"]}
KINDS = "a public DataFrame or LazyFrame, another private frame or owned rows, got"
MEAN = pl.col("item") > pl.col("item").mean()


@refusals(
    # Frames that do not promise the same.
    (lambda: V.join(PEOPLE.dp.protect(None), on="p"), ValueError, "there must be a privacy unit"),
    (lambda: PEOPLE.dp.protect(None).join(V, on="p"), ValueError, "there must be a privacy unit"),
    (lambda: V.join(PEOPLE.dp.protect("day"), on="p"), ValueError, f"{SAME_UNIT}'p' and 'day'"),
    (lambda: PEOPLE.dp.protect("day").join(V, on="p"), ValueError, SAME_UNIT),
    (lambda: V.join(REPLACED, on="p"), ValueError, "the same neighboring_relation, got 'add_or"),
    (lambda: REPLACED.join(V, on="p"), ValueError, "the same neighboring_relation, got "),
    (lambda: V.join(with_budget(), on="p"), ValueError, f"{SAME_BUDGET}one with a budget and one"),
    (lambda: with_budget().join(V, on="p"), ValueError, f"{SAME_BUDGET}one with a budget and one"),
    (lambda: with_budget(VISITS).join(with_budget(), on="p"), ValueError, "got two budgets"),
    # Joins without the unit.
    (lambda: V.join(P, on="day"), ValueError, rf"must be joined on the privacy unit 'p', {PAIRED}got \['day'\]"),
    (lambda: V.join(P, left_on="p", right_on="day"), ValueError, f"{PAIRED}the right columns lack it"),
    (lambda: V.join(P, left_on="day", right_on="p"), ValueError, f"{PAIRED}the left columns lack it"),
    (lambda: V.join(P, left_on=["p", "day"], right_on=["day", "p"]), ValueError, f"{PAIRED}got"),
    # Rows on one side alone.
    (lambda: V.join(dpp.protect("p"), on="p"), TypeError, f"{ONE_SIDE}.* has none yet"),
    (lambda: dpp.protect("p").join(V, on="p"), TypeError, f"{ONE_SIDE}.* has none yet"),
    (lambda: dpp.protect("p").join(OWNED, on="p"), TypeError, f"{ONE_SIDE}other has rows"),
    # Columns of two types, and other arguments.
    (lambda: V.join(P, **PLANS), TypeError, "'day' and 'plan' must have one type in both frames, got Int64 and String"),
    (
        lambda: V.join(protected(PEOPLE.cast({"day": pl.Int32})), on=["p", "day"]),
        *(TypeError, "'day' must have one type in both frames, got Int64 and Int32"),
    ),
    (lambda: V.join(P, on="p", how="full"), ValueError, 'how must be "left", "inner", "semi" or "anti", got \'full\''),
    (lambda: V.join([1], on="p"), TypeError, KINDS),
    # Owned rows.
    (lambda: V.join(dpp.owned(PEOPLE), on="day"), ValueError, "not have a column named like the privacy unit, 'p'"),
    (
        lambda: VISITS.dp.protect(None).join(OWNED, **OF_DAY),
        *(ValueError, "there must be a privacy unit, got None: one row may own many"),
    ),
    (lambda: V.join(dpp.owned(ITEMS.lazy().filter(MEAN)), **OF_DAY), ValueError, r"^join: `mean`[\s\S]*unchecked=True"),
    (lambda: V.join(dpp.owned(ITEMS.lazy().head(2)), **OF_DAY), ValueError, r"^join: `head`[\s\S]*unchecked=True"),
    (lambda: dpp.owned([1]), TypeError, "owned rows must be a LazyFrame, a DataFrame or None, got"),
    (
        lambda: dpp.owned(VISITS.dp.protect(None)),
        *(TypeError, r"got PrivateFrame\.[\s\S]*Hint: a private frame has its own privacy unit"),
    ),
    (lambda: dpp.owned(ITEMS, dataset=""), TypeError, "dataset must be a name or None, got ''"),
    (lambda: OWNED.collect(), TypeError, "must not be collected"),
    # Rows that come later.
    (lambda: late(PEOPLE.drop("p")), ValueError, "the frame must have the privacy unit 'p' as a column"),
    (lambda: late(PEOPLE.cast({"p": pl.String})), TypeError, NOT_ONE_TYPE),
    (lambda: late(PEOPLE.lazy().slice(1, 2)), ValueError, r"protect: .*picks or fills by the place"),
    (lambda: late(PEOPLE, ITEMS.lazy().filter(pl.col("item").mean() > 1)), ValueError, r"protect: .*combines all rows"),
    (
        lambda: asked(WITH_DAY).release((VISITS, PEOPLE.drop("day"))),
        *(ValueError, "the right frame must have the join column 'day', got the columns"),
    ),
)
def test_joins_that_are_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_one_ledger_is_one_budget(tmp_path):
    paths = [tmp_path / "a.db", tmp_path / "a.db", tmp_path / "b.db"]
    one, same, another = (dpp.Budget(epsilon=1, path=path) for path in paths)
    visits = protected(VISITS, max_rows=3, budget=one)
    asked(visits.join(protected(PEOPLE, budget=same), on="p")).release()
    assert float(one.spent) == float(same.spent) == 0.5
    assert one.log().height == 1
    with pytest.raises(ValueError, match="got two budgets"):
        visits.join(protected(PEOPLE, budget=another), on="p")


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


def test_owned_rows_are_private(tmp_path):
    owned = dpp.owned(ITEMS.with_columns(secret=pl.lit("s3cr3t")))
    joined = protected(VISITS.lazy()).join(owned, **OF_DAY)
    query = joined.agg(dpp.n_people(epsilon=1))
    VISITS.write_parquet(tmp_path / "v.parquet")
    scanned = protected(pl.scan_parquet(tmp_path / "v.parquet"))
    pickle.dumps(scanned)
    right_alone = [scanned.join(owned, **OF_DAY), scanned.join(P, on="p")]
    for thing in (owned, joined, query, joined.group_by({"day": [1]}), *right_alone):
        assert "s3cr3t" not in repr(thing)
        with pytest.raises(TypeError, match="must be bound to no rows in memory to be pickled"):
            pickle.dumps(thing)
    assert copy.deepcopy(owned) is owned


def test_the_repr_says_whose_bounds_hold():
    left = protected(VISITS, max_rows=3)
    joined = left.join(protected(PEOPLE, max_rows=99), on="p").join(OWNED, **OF_DAY)
    assert "steps:    join of 99 rows of each person, join of owned rows" in repr(joined)
    assert "max_rows=3" in repr(joined)
    assert repr(joined).count("99") == 1
    assert joined.protection == left.protection


def test_steps_say_whether_they_multiply_rows():
    for how in HOWS:
        joins = [V.join(P, on="p", how=how), V.join(OWNED, **OF_DAY, how=how)]
        assert [join._pipeline.steps[-1].multiplies for join in joins] == [how in ("inner", "left")] * 2
        assert not V.join(pl.DataFrame({"day": [1]}), on="day", how=how)._pipeline.steps[-1].multiplies
    assert not V.filter(pl.col("day") > 0)._pipeline.steps[-1].multiplies


@pytest.mark.parametrize("how", ["semi", "anti"])
def test_public_keys_may_repeat_where_they_only_filter(how, engine):
    public = pl.DataFrame({"day": [1, 1, None, 3], "p": [7, 8, 9, 9]})
    joined = V.join(public, on="day", how=how)
    assert Counter(rows_of(joined, VISITS, engine=engine).rows()) == by_hand(VISITS, public, ["day"], ["day"], how)
    people = V.join(public.lazy(), left_on="p", right_on="day", how=how)
    assert Counter(rows_of(people, VISITS).rows()) == by_hand(VISITS, public, ["p"], ["day"], how)
    with pytest.raises(ValueError, match="NaN"):
        V.join(pl.DataFrame({"day": [float("nan")]}), on="day", how=how)


def kept_query(budget, *, people=PEOPLE, items=ITEMS, names=("visits", "people", "items"), step=lambda f: f):
    visits = protected(VISITS, budget=budget, max_rows=5, dataset=names[0])
    right, owned = step(protected(people, budget=budget, dataset=names[1])), dpp.owned(items, dataset=names[2])
    joined = visits.join(right, on="p", how="inner").join(owned, **OF_DAY, how="inner")
    return joined.agg(pl.col("cents").dp.median(dpp.grid(0, 100, step=1e-9), epsilon=0.5))


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


def test_a_spent_budget_reads_no_table():
    budget = dpp.Budget(epsilon=0.1)
    missing = pl.LazyFrame({"of_day": [1], "item": [1]})
    query = asked(protected(VISITS, budget=budget, max_rows=1).join(dpp.owned(missing), **OF_DAY))
    with pytest.raises(dpp.BudgetExceededError):
        query.release()
    assert budget.spent == 0


def test_explain_and_other_questions_take_joins():
    joined = protected(VISITS, max_groups=5, max_rows=9).join(P, on="p", how="inner")
    assert asked(joined).explain()["groups"].to_list() == [1]
    keys = joined.keys("plan", epsilon=10**6, delta=0.5).release()
    assert {"a"} <= {*keys["plan"]} <= {"a", "b", "c"}
    rows = joined.rows_per_person(0.5, range(10), epsilon=10**6).release()
    assert rows.item() == 2
    grouped = joined.group_by({"plan": ["a", "c", "x"]}).agg(dpp.n_people(epsilon=10**6)).release()
    assert grouped.rows() == [("a", 2), ("c", 1), ("x", 0)]


def test_every_pair_of_frames_is_checked_for_rows():
    for one, other in itertools.product([VISITS, VISITS.lazy()], repeat=2):
        assert protected(one).join(protected(other), on="p").join(OWNED, **OF_DAY).columns
