"""Histograms in SQL: bounds per person, large sums, and how little is asked of the database."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

import dp_polars as dpp
from dp_polars._mechanisms.person_weights import UNIT
from dp_polars._release.protection import Limits
from dp_polars._release.request import only_counted
from tests.engines.orders import BOUNDS, LARGEST, PEOPLE, about, crowd, limited, lost_by
from tests.helpers.runs import histograms_by, release_by
from tests.sql.tools import MARKS, counts, histograms_of, need_ibis
from tests.statistical.goodness import fits

need_ibis()

import ibis  # noqa: E402

from dp_polars._engines.sql import arithmetic, bounding, counting, dialects  # noqa: E402
from dp_polars._engines.sql.dialects import Select  # noqa: E402
from dp_polars._engines.sql.rows import Rows  # noqa: E402
from dp_polars.sql import TESTED, _SqlEngine  # noqa: E402

pytestmark = MARKS


def bounded(table, asked, secret=2**62 + 5, **words):
    """The histograms of `value` in the groups 0 … 4 of `g`, as Polars has them, under bounds of one's own."""
    query = about(asked)
    engine = _SqlEngine(table, only_counted(query._request))
    engine._dialect = replace(engine._dialect, **words)
    work = query._request.bind(engine)
    common = dialects.Common()
    work = replace(work, specs=limited(work, asked), outputs=())
    counted = counting.histograms(engine._table, work, engine._dialect, common)
    statement = Select.of(engine._backend, counted.table, common).sealed(secret)
    assert statement.sql.count(table.get_name()) == 1, "private rows are read twice"
    cells = engine._dialect.fetch(engine._backend, statement)
    frame = pl.DataFrame({name: np.asarray(values, np.int64) for name, values in cells.items()})
    return [
        frame.filter(pl.col("part") == part, pl.col(name) != counting.ABSENT)
        .group_by("group", "code")
        .agg(count=pl.col(name).sum())
        .sort("group", "code")
        for part, name in counted.places
    ]


# One row of a person in each group, which DuckDB takes by a race.
ONE_ROW = [(asked, Limits(groups=2)) for asked in ("mode", "mode of many")]
OF_ROWS = ("median", "len", "count", "weighed rows")
ONE_ROW += [(asked, Limits(groups=2, rows_per_group=1)) for asked in OF_ROWS]
# The same with another limit of groups for each column of codes.
APART = [("mode", Limits(groups=2)), ("median", Limits(groups=2, rows_per_group=1)), ("mode of many", Limits(groups=1))]
APART += [("len", Limits(rows_per_group=1)), ("count", Limits(groups=2, rows_per_group=1))]

# Several rows of a person in a group, which are a list in DuckDB.
SEVERAL = [(asked, Limits(groups=2, rows_per_group=3)) for asked in OF_ROWS[:3]]


@pytest.mark.parametrize(
    "together",
    [
        *([bound] for bounds in BOUNDS[:3] for bound in bounds),
        *BOUNDS,
        *([bound] for bound in ONE_ROW[:3]),
        *(SEVERAL, ONE_ROW, APART),
    ],
    ids=str,
)
def test_a_person_changes_the_histogram_by_no_more_than_the_bounds(engine, together):
    """Of one output, and of each of many in one statement."""
    frame = crowd(4)
    most = frame.group_by("person").len().sort("len", "person")["person"].to_list()
    everyone = bounded(engine.table(frame), together)
    # The rows of the others, in another order, keep all that they kept: the same secret chooses the same of them.
    gone = most[-1]
    others = frame.filter(pl.col("person") != gone).sample(fraction=1, shuffle=True, seed=7)
    without = bounded(engine.table(others), together)
    # Another secret keeps others.
    again = bounded(engine.table(frame), together, secret=7)
    for (asked, limits), one, other, third in zip(together, everyone, without, again, strict=True):
        lost = lost_by(one, other, limits, people=asked in PEOPLE, largest=LARGEST.get(asked, 1))
        assert lost.height > 0
        if asked in PEOPLE:
            assert lost["lost"].max() == LARGEST.get(asked, 1)
        assert not one.equals(third) or asked == "len"


# Numbers of groups and rows that are equal for many of one owner.
TIES = {
    "hashes": {},
    "all equal": {"order": lambda _, says, secret: ibis.ifelse(says[-1].notnull(), 1, 2)},
    "few": {"order": lambda _, says, secret: ibis.ifelse(says[-1] > 1, 1, 2)},
}


@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize(
    ("together", "patches"),
    [
        *((bounds, {}) for bounds in BOUNDS),
        (SEVERAL, {}),
        (ONE_ROW, {}),
        (ONE_ROW, {"_MOST_BITS": 0}),
        (APART, {}),
        (ONE_ROW[:2], {}),
        *(([bound], {}) for bound in ONE_ROW[:3]),
    ],
    ids=[
        *(str(bounds[0][1]) for bounds in BOUNDS),
        *("several rows", "one row", "one row, too long for an integer", "other groups", "people alone"),
        *(f"{asked} alone" for asked, _ in ONE_ROW[:3]),
    ],
)
def test_a_hostile_person_changes_no_more_than_the_bounds(engine, together, patches, ties, monkeypatch):
    """Of 400 rows, most of them equal, in all groups; and the others keep what they kept, in whatever order."""
    for name, value in patches.items():
        monkeypatch.setattr(bounding, name, value)
    values = [0] * 150 + [4] * 100 + [1, 2, None] * 50
    own = pl.DataFrame(
        {"person": 99, "g": [i % 7 for i in range(400)], "value": values, "w": [i % 4 for i in range(400)]}
    )
    others = crowd(4)
    frame = pl.concat([others, own.cast(dict(others.schema))]).sample(fraction=1, shuffle=True, seed=3)
    everyone = bounded(engine.table(frame), together, **TIES[ties])
    without = bounded(engine.table(others), together, **TIES[ties])
    lost = [
        lost_by(one, other, limits, people=asked in PEOPLE, largest=LARGEST.get(asked, 1))
        for one, other, (asked, limits) in zip(everyone, without, together, strict=True)
    ]
    assert any(one.height > 0 for one in lost) or ties == "all equal"


def test_a_row_wins_alike_whether_an_integer_holds_what_it_says(engine, monkeypatch):
    if not TESTED[engine.name].has_structs:
        pytest.skip("no race without such an integer")
    table = engine.table(crowd(4))
    packed = bounded(table, ONE_ROW)
    monkeypatch.setattr(bounding, "_MOST_BITS", 0)
    assert all(one.equals(other) for one, other in zip(packed, bounded(table, ONE_ROW), strict=True))


def test_the_same_groups_of_a_person_stay_in_whatever_way_they_are_found(engine, monkeypatch):
    """By windows and by races; for people, who alone need no winner, and for one output, too."""
    table, together = engine.table(crowd(4)), [*ONE_ROW[:2], *ONE_ROW[3:5], *APART]

    def of_groups(histograms, asked):
        """What does not depend on who wins: of rows, how many there are in each group."""
        return [
            one if name in PEOPLE else one.group_by("group", maintain_order=True).agg(pl.col("count").sum())
            for one, (name, _) in zip(histograms, asked, strict=True)
        ]

    ways = [together[:4], together[:2], APART, *([one] for one in together)]
    with monkeypatch.context() as races_alone:
        races_alone.setattr(counting, "split_rows", None)
        found = [of_groups(bounded(table, asked), asked) for asked in ways]
    monkeypatch.setattr(counting, "is_one_row_a_group", lambda *_: False)
    expected = dict(zip(map(str, together), of_groups(bounded(table, together), together), strict=True))
    assert all(one["count"].sum() > 0 for one in expected.values())
    for asked, histograms in zip(ways, found, strict=True):
        for bound, one in zip(asked, histograms, strict=True):
            assert one.equals(expected[str(bound)]), asked


@pytest.mark.parametrize("numbers", [dpp.value_counts("w", range(2), epsilon=1), dpp.len(epsilon=1)], ids=["w", "len"])
@pytest.mark.parametrize("asked", ["median", "mode"])
def test_a_group_without_a_value_takes_no_place_of_one_with_it_beside_numbers(engine, asked, numbers):
    """A row may contribute to a number, and not to the only choice."""
    frame = pl.DataFrame({"person": [i // 2 for i in range(200)], "g": [0, 1] * 100, "value": [None, 1] * 100, "w": 1})
    query = (
        dpp.protect("person", max_groups=1, max_rows_per_group=1)
        .group_by({"g": [0, 1]})
        .agg(x=getattr(dpp, asked)("value", range(3), epsilon=1), numbers=numbers)
    )
    chosen, counted = counts(engine.table(frame), query)
    assert sum(count for *_, count in chosen) == 100
    assert sum(count for *_, count in counted) > 0


@pytest.mark.parametrize("asked", ["median", "mode"])
def test_a_release_has_many_outputs(engine, asked):
    """More than an integer has bits, each of its own column; and not as many as make a statement too deep."""
    names = [f"x{i}" for i in range(120)]
    frame = pl.DataFrame({"person": [1, 2, 3, 4], "g": [0, 0, 1, 2], **{x: [i % 5] * 4 for i, x in enumerate(names)}})
    table, groups = (
        engine.table(frame),
        dpp.protect("person", max_groups=1, max_rows_per_group=1).group_by({"g": [0, 1]}),
    )

    def released(number):
        outputs = {x: getattr(dpp, asked)(x, range(5), epsilon=1e5) for x in names[:number]}
        return dpp.sql.release(groups.agg(**outputs), table)

    assert released(65).row(0)[1:] == tuple(i % 5 for i in range(65))
    if asked == "median" and engine.name == "duckdb":
        with pytest.raises(ValueError, match="must have fewer outputs: Ibis can't write so long a statement"):
            released(120)


ALIKE = [Limits(rows, groups, 2) for rows, groups in [(None, None), (None, 5), (4, 5)]]
ALIKE += [Limits(rows_per_group=1), Limits(groups=5, rows_per_group=1), Limits(rows=4)]


@pytest.mark.parametrize("limits", ALIKE, ids=str)
@pytest.mark.parametrize("bits", [62, 0], ids=["one integer", "columns"])
def test_outputs_with_the_same_bounds_keep_all_that_these_let_by(engine, limits, bits, monkeypatch):
    """A row without a value takes no place among those with one, of people who have both, or both sorts of groups."""
    monkeypatch.setattr(bounding, "_MOST_SAID", bits)
    TESTED[engine.name].written.clear()
    frame, asked = crowd(4), ("len", "count", "median")
    found = bounded(engine.table(frame), [(one, limits) for one in asked])
    for one, rows in zip(found, (frame, *[frame.drop_nulls("value")] * 2), strict=True):
        pairs = rows.filter(pl.col("g") < 5).group_by("person", "g").len()
        pairs = pairs.with_columns(pl.col("len").clip(upper_bound=limits.rows_per_group or 30))
        people = pairs.group_by("person").agg(pl.col("len").sum())["len"].clip(upper_bound=limits.rows or 1000)
        assert one["count"].sum() == people.sum()


@pytest.mark.parametrize("asked", [dpp.mode("value", range(5), epsilon=1), dpp.len(epsilon=1)], ids=["mode", "len"])
def test_bounds_hold_also_for_rows_that_are_drawn_at_random(engine, asked):
    """A statement that read them twice, for who has too much and for what is counted, would see two samples."""
    frame = pl.DataFrame({"person": [i // 40 for i in range(20_000)], "g": [i % 40 for i in range(20_000)]})
    frame = frame.with_columns(value=pl.lit(1))
    table = engine.table(frame)
    table = table.filter(ibis.random() < 0.5)
    query = dpp.protect("person", max_groups=1, max_rows_per_group=1).group_by({"g": range(40)}).agg(x=asked)
    sql = _SqlEngine(table)
    (found,) = histograms_by(sql, query)
    # In parts, of which each of a person's groups loses less than one.
    in_parts = asked.query.weighs_people
    lost = 500 * (UNIT if in_parts else 1) - found.weights.sum()
    assert 0 <= lost < (500 * 40 if in_parts else 1)


def test_sums_beyond_64_bits_are_clamped(engine):
    """A sum of 64 bits would raise, or wrap around, by what the rows hold."""
    sql = _SqlEngine(engine.table(pl.DataFrame({"g": [0] * 5, "w": [2**62] * 5})))
    for sign in (1, -1):
        rows = sql._table.select("g", weight0=sql._table.w * sign)
        counted = arithmetic.cells_of(rows, ["g"], [arithmetic.Number(None, rows["weight0"])])
        statement = Select.of(sql._backend, counted)
        assert sql._dialect.fetch(sql._backend, statement)["number0"].tolist() == [sign * (2**62 - 1)]


# What statements call their tables, but for random bits, and parts of them.
NAMES = [*(f"dp_polars_{number}" for number in range(6)), "dp_polars_4611686018427387909_0", "counted", "row"]


@pytest.mark.parametrize(
    ("bounds", "more"),
    [
        ({}, {}),
        ({"max_groups": 5, "max_rows_per_group": 30}, {}),
        ({"max_rows_per_group": 30}, {"middle": dpp.median("w", range(3), epsilon=1)}),
    ],
    ids=["native", "bounded", "both"],
)
def test_a_table_may_have_any_name(engine, bounds, more):
    """Nothing that a statement names by itself stands in the place of the table that is asked about."""
    frame = crowd(6)
    modes = {name: dpp.mode(name, [0, 2], epsilon=1) for name in ("value", "w")}
    query = dpp.protect("person", **bounds).group_by({"g": range(2)}).agg(**modes, **more)
    table = engine.table(frame).get_name()
    for name in NAMES:
        engine.rename(table, name)
        for _, expected, got in histograms_of(frame, engine.reader.table(name), query):
            assert all(one.height > 0 and one.equals(other) for one, other in zip(expected, got, strict=True)), name
        table = name
    engine.owner.raw_sql(f'DROP TABLE "{table}"')


def test_a_release_is_one_select_of_a_user_who_may_only_read(engine, monkeypatch):
    """All outputs are of one statement, and so of one state of the table; only integers come back.

    Two more count the keys and the candidates, over constants alone.
    """
    query = (
        dpp.protect("p", max_groups=1, max_rows_per_group=2)
        .group_by({"g": ["a", "b"]})
        .agg(
            top=dpp.mode("x", [1, 2], epsilon=1),
            same=dpp.mode("x", [1, 2], rho=1),
            mean=dpp.mean("x", 0, 4, epsilon=1),
            rows=dpp.count("x", epsilon=1),
        )
    )
    frame = pl.DataFrame({"p": [1, 2, 3], "g": ["a", "b", "c"], "x": [1, 2, 3]})
    table = engine.table(frame)
    before = engine.tables()
    sql = _SqlEngine(table, only_counted(query._request))
    fetched = []

    def fetch(backend, statement):
        found = fetched_by(backend, statement)
        fetched.append((statement.sql, found))
        return found

    fetched_by = sql._dialect.fetch
    sql._dialect = replace(sql._dialect, fetch=fetch)

    released = release_by(query, sql)
    assert released.shape == (2, 5)
    assert [table.get_name() in statement for statement, _ in fetched] == [False, False, True]
    for statement, found in fetched:
        assert statement.upper().startswith(("SELECT", "WITH"))
        assert statement.count(";") == 0
        assert all(values.dtype == np.int64 for values in found.values())
    assert engine.tables() == before
    assert release_by(query, _SqlEngine(table)).shape == (2, 5)


@pytest.mark.parametrize("steps", [False, True], ids=["table", "sums of floats"])
def test_each_stage_reads_private_rows_once(engine, steps):
    """A row per person is made once for all limits and bounds, and limits and weights share the groups of people."""
    query = (
        dpp.protect("p")
        .group_by({"g": ["a", "b", "c"]})
        .agg(n=dpp.n_people(), cost=dpp.mean("x"), top=dpp.mode("k", [1, 2]), half=dpp.median("k", range(9)))
        .scaled_to(epsilon=10**5, delta=1e-6)
    )
    number = np.arange(4000)
    frame = pl.DataFrame({"p": number // 4, "g": list("abca") * 1000, "x": number % 7 / 3, "k": number % 3 % 2 + 1})
    table = engine.table(frame)
    rows = table.group_by("p", "g", "k").aggregate(x=table.x.sum()) if steps else table
    sql, fetched = _SqlEngine(rows, only_counted(query._request)), []
    fetched_by = sql._dialect.fetch

    def fetch(backend, statement):
        fetched.append(statement.sql)
        return fetched_by(backend, statement)

    sql._dialect = replace(sql._dialect, fetch=fetch)
    released = release_by(query, sql)
    assert released["n"].to_list() == [1000] * 3
    stages = [text for text in fetched if table.get_name() in text]
    assert [text.count(table.get_name()) for text in stages] == [1, 1]
    assert all(len(text) < 60_000 for text in stages)


def test_the_reader_of_these_tests_may_not_create_tables(engine):
    if engine.name == "postgres":
        with pytest.raises(Exception, match=r"permission denied|read-only"):
            engine.reader.raw_sql("CREATE TEMP TABLE t (i int)")


def test_every_release_has_a_secret_of_its_own(engine):
    frame = pl.DataFrame({"p": [1, 1], "x": [1, 2]})
    query = dpp.protect("p", max_rows=1).agg(dpp.median("x", [1, 2], epsilon=1))
    sql = _SqlEngine(engine.table(frame))
    told = []
    sql._dialect = replace(sql._dialect, fetch=lambda _, statement: told.append(statement.sql))
    for _ in range(3):
        with pytest.raises(TypeError):  # of nothing that was fetched
            sql.prepare(query._request.bind(sql))()
    assert len(set(told)) == len(told) == 3
    assert told[0] not in repr(sql)
    assert not any(slot in text for slot in (dialects.OF_GROUPS, dialects.OF_ROWS) for text in told)


def test_a_statement_is_written_once_and_anew_where_types_or_the_query_change(engine):
    """Ibis takes longer to write one than the engine takes to run it on few rows."""
    frame = pl.DataFrame({"p": [0, 1, 2, 3], "x": [1, 2, 2, 2]})
    name = engine.table(frame).get_name()
    TESTED[engine.name].written.clear()  # of which the oldest make room for new ones

    def released(most=1, candidates=(1, 2)):
        query = dpp.protect("p", max_rows=most).agg(dpp.value_counts("x", candidates, epsilon=1e6))
        writing = engine.reader.table(name)
        before = len(TESTED[engine.name].written)
        counts = dpp.sql.release(query, writing).item().to_list()
        return [one["count"] for one in counts], len(TESTED[engine.name].written) - before

    assert released()[0] == [1, 3]
    assert released() == ([1, 3], 0)
    assert released(most=2) == ([1, 3], 1)
    assert released(candidates=(2, 1))[0] == [3, 1]
    engine.owner.raw_sql(
        f'ALTER TABLE "{name}" ALTER COLUMN x TYPE {"DOUBLE" if engine.name == "duckdb" else "numeric"}'
    )
    with pytest.raises(TypeError, match=r"float|candidates|integers"):
        released()
    engine.owner.raw_sql(f'ALTER TABLE "{name}" ALTER COLUMN x TYPE smallint')
    assert released() == ([1, 3], 2)
    engine.owner.raw_sql(f'DROP TABLE "{name}"')


def test_an_engine_that_is_not_tested_is_refused(engine, monkeypatch):
    monkeypatch.setattr("dp_polars.sql.TESTED", {"another": None})
    with pytest.raises(ValueError, match=r"tested engines \['another'\], got [\s\S]*Hint: if Polars reads its tables"):
        dpp.sql.release(dpp.protect(None).agg(dpp.len(epsilon=1)), engine.table(crowd(5)))


def test_a_row_that_contributes_to_nothing_does_not_raise():
    """Whatever it says: an integer of 64 bits holds what counts, and no more."""
    con = ibis.duckdb.connect()
    con.raw_sql("CREATE TABLE said (time BIGINT, x BIGINT, counts BOOLEAN)")
    con.raw_sql(f"INSERT INTO said VALUES (64, {2**63 - 1}, false), (32, {-(2**63)}, false), ({2**63 - 1}, 3, true)")
    said = con.table("said")
    rows = Rows(said, ("x",), (None,), frozenset())
    found = bounding._winner(rows, said, said["time"], {"x": (0, 7)}, said["counts"])
    assert said.aggregate(**found).to_polars()["x"].to_list() == [3]


def test_equal_rows_are_as_many_where_no_list_is_drawn_from(monkeypatch):
    """Of 99 rows A and one B of each person, one in a hundred that stay is B, in whatever way rows are told apart."""
    monkeypatch.setitem(TESTED, "duckdb", replace(TESTED["duckdb"], drawn=None))
    con = ibis.duckdb.connect()
    con.raw_sql(
        "CREATE TABLE rows AS SELECT p, CAST(i = 0 AS INTEGER) AS x FROM range(800) AS a(p), range(100) AS b(i)"
    )
    query = dpp.protect("p", max_groups=1, max_rows_per_group=2).agg(x=dpp.median("x", range(2), epsilon=1))
    (found,) = counts(con.table("rows"), query)
    stayed = [sum(count for *_, code, count in found if code == value) for value in range(2)]
    assert sum(stayed) == 1600
    assert fits(stayed, [99 / 100, 1 / 100])
