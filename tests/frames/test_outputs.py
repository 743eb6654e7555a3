"""Several columns in one private answer of `agg`: one output for each, as if each had been written out."""

import pickle

import polars as pl
import pytest
from polars import selectors as cs
from polars.exceptions import ColumnNotFoundError, ComputeError, DuplicateError
from polars.testing import assert_frame_equal

import dp_polars as dpp
from dp_polars import analysis, plot
from dp_polars._engines.polars.engine import PolarsEngine
from dp_polars._release.cached import stored_query_of
from dp_polars._steps.nodes import OF_ALL_COLUMNS, OF_COLUMNS
from tests.registry import ASKS, NUMBERS

ROWS = pl.DataFrame(
    {
        "p": range(40),
        "g": ["u", "v"] * 20,
        "a": [1, 2, 3, None] * 10,
        "bb": [5, 0, 1, 2] * 10,
        "ab": [0.5, 1.5, 2.5, 0.0] * 10,
        "t": ["x", "y"] * 20,
    }
)
KEYS = {"g": ["u", "v"]}
ONE_OUTPUT = "the expression must have one output: with several, each column would be a release of its own"
CHOICE = "must be about one choice of columns, and give one output for each"
COUNTING = {name: ask for name, ask in {**ASKS, **NUMBERS}.items() if ask.counts}


def private():
    return ROWS.dp.protect("p", max_rows=1, max_groups=1)


def without_data():
    return dpp.protect("p", max_rows=1, max_groups=1)


def count(columns):
    return columns.dp.count(epsilon=1)


def names(query):
    return [ask.name for ask in query._asks]


def assert_same_query(query, expected, rows=ROWS):
    """One text means: the same outputs, columns, claims, bounds and specs, so that one cached answer serves both."""
    engine = PolarsEngine.of(rows.lazy())
    one, other = (
        stored_query_of(q._request, engine, q._request.bind(engine), "", "ours").text for q in (query, expected)
    )
    assert one == other
    assert repr(query) == repr(expected)
    assert_frame_equal(query.explain(), expected.explain())


@pytest.mark.parametrize("name", COUNTING)
def test_every_statistic_is_asked_of_each_column(name):
    def asked(column):
        ask = COUNTING[name]
        return getattr(column.dp, name)(*ask.arguments, **{"epsilon": 1} | ask.options)

    frame = private().group_by(KEYS)
    query = frame.agg(asked(pl.col("a", "bb")), dpp.len(epsilon=1))
    assert_same_query(query, frame.agg(asked(pl.col("a")), asked(pl.col("bb")), dpp.len(epsilon=1)))
    assert query.explain()["output"].to_list() == ["a", "bb", "len"]


STEPS = {
    "a value for null": lambda x: x.fill_null(0),
    "a cast": lambda x: (x + 1).cast(pl.Int64),
    "itself twice": lambda x: pl.when(x > 1).then(x),
    "a filter": lambda x: x.filter(pl.col("t") == "x"),
    "a filter by itself": lambda x: x.filter(x > 1),
    "names": lambda x: (x * 2).name.suffix("_twice"),
    "another column": lambda x: x.fill_null(pl.col("ab").cast(pl.Int64)),
}


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
@pytest.mark.parametrize("frame", [private, without_data])
def test_what_is_done_to_several_columns_is_done_to_each(step, frame):
    def asked(column):
        return step(column).dp.sum(0, 3, epsilon=1)

    query = frame().agg(asked(pl.col("bb", "a")))
    assert_same_query(query, frame().agg(asked(pl.col("bb")), asked(pl.col("a"))))


CHOICES = {
    "all": (lambda: pl.all(), ["a", "bb", "ab", "t"]),
    "all but one": (lambda: pl.exclude("bb"), ["a", "ab", "t"]),
    "a selector": (lambda: cs.numeric(), ["a", "bb", "ab"]),
    "a difference": (lambda: cs.numeric() - cs.by_name("a"), ["bb", "ab"]),
    "a type": (lambda: pl.col(pl.Float64), ["ab"]),
    "a pattern": (lambda: pl.col("^a.*$"), ["a", "ab"]),
    "a name and a pattern": (lambda: pl.col("bb", "^a.*$"), ["a", "bb", "ab"]),
    "names if they are there": (lambda: cs.by_name("bb", "none", require_all=False), ["bb"]),
    "places": (lambda: pl.nth(0, 2, 3), ["a", "bb"]),
}


@pytest.mark.parametrize(("choice", "expected"), CHOICES.values(), ids=CHOICES)
def test_a_selector_stands_for_columns_in_their_order_but_not_for_people_or_keys(choice, expected):
    query = private().group_by(KEYS).agg(count(choice()))
    assert sorted(names(query)) == sorted(expected)
    assert names(query) == [name for name in ROWS.columns if name in expected]
    assert_same_query(query, private().group_by(KEYS).agg(*(count(pl.col(name)) for name in expected)))


def test_names_stand_as_they_are_written_and_need_no_data():
    assert names(without_data().agg(count(pl.col("t", "a", "bb")))) == ["t", "a", "bb"]
    assert names(without_data().agg(count(cs.by_name("t", "a")))) == ["t", "a"]
    assert names(private().agg(count(pl.col("p", "a")))) == ["p", "a"]
    assert names(private().select("a", new="bb").agg(count(cs.integer()))) == ["a", "new"]


def test_keys_are_left_out_only_where_they_are_keys():
    assert names(private().agg(count(cs.string()))) == ["g", "t"]
    assert names(private().group_by({"t": ["x"], "g": ["u"]}).agg(count(pl.all()))) == ["a", "bb", "ab"]
    unit = ROWS.dp.protect(["p", "t"], max_rows=1)
    assert names(unit.agg(count(pl.all()))) == ["g", "a", "bb", "ab"]


@pytest.mark.parametrize(
    ("rename", "expected"),
    [
        (lambda e: e, ["a", "bb"]),
        (lambda e: e.name.suffix("_mean"), ["a_mean", "bb_mean"]),
        (lambda e: e.name.prefix("of_").name.to_uppercase(), ["OF_A", "OF_BB"]),
        (lambda e: e.name.map(lambda name: name[::-1] + "!"), ["a!", "bb!"]),
        (lambda e: e.name.replace("b", "c"), ["a", "cc"]),
        (lambda e: pickle.loads(pickle.dumps(e.name.suffix("_x"))), ["a_x", "bb_x"]),
    ],
)
def test_every_output_is_renamed(rename, expected):
    asked = rename(pl.col("a", "bb").dp.mean(0, 3, epsilon=1))
    assert isinstance(asked, dpp.PrivateExpr)
    assert names(private().agg(asked)) == names(without_data().agg(asked)) == expected


def test_each_output_costs_the_whole_loss():
    budget = dpp.Budget(epsilon=1)
    query = ROWS.dp.protect("p", max_rows=1, budget=budget).agg(cs.numeric().dp.mean(0, 3, step=0.5, epsilon=0.25))
    assert query.loss.value == 0.75
    assert query.explain()["epsilon"].to_list() == [0.25] * 3
    released = query.release()
    assert released.columns == ["a", "bb", "ab"]
    assert budget.spent == 0.75


@pytest.mark.filterwarnings("ignore::dp_polars.LargeLossWarning")
def test_each_output_answers_about_its_column():
    frame = private().group_by(KEYS)
    released = frame.agg(cs.numeric().filter(pl.col("t") == "x").dp.sum(0, 5, step=0.5, epsilon=10**6)).release()
    assert released.rows() == [("u", 40.0, 60.0, 30.0), ("v", 0.0, 0.0, 0.0)]


def test_engines_without_expressions_get_plain_columns():
    asks = without_data().agg(count(pl.col("a", "bb")))._asks
    assert [[column.meta.is_column() for column in ask.columns] for ask in asks] == [[True], [True]]


REFUSED = {
    "a keyword": (lambda: private().agg(x=count(pl.col("a", "bb"))), r"agg\(x=…\): the keyword must name one output"),
    "one name": (lambda: private().agg(count(pl.col("a", "bb")).alias("x")), r"got several named \['x'\]"),
    "the name of a key": (lambda: private().group_by(KEYS).agg(count(pl.col("a", "g"))), r"several named \['g'\]"),
    "no column": (lambda: private().agg(count(pl.col("^z.*$"))), "must stand for a column at least, got none of"),
    "only keys": (lambda: private().group_by(KEYS).agg(count(cs.by_name("g", "p") & cs.all())), "keys are always left"),
    "one of several": (lambda: private().agg(pl.max_horizontal(pl.col("a", "bb")).dp.sum(0, 1, epsilon=1)), CHOICE),
    "two choices": (lambda: private().agg((pl.col("a", "bb") + pl.col("bb", "a")).dp.sum(0, 1, epsilon=1)), CHOICE),
    "fields": (lambda: private().agg(count(pl.col("a").struct.field("x", "y"))), CHOICE),
    "fields of several": (lambda: private().agg(count(pl.col("a", "bb").struct.field("x", "y"))), CHOICE),
    "NaN": (lambda: private().agg(count(pl.col("a", "bb") * float("nan"))), "must have no NaN, infinity or very long"),
    "Python": (
        lambda: private().agg(count(pl.col("a", "bb").map_elements(lambda x: x, pl.Int64))),
        "output 'a': a Python function can't be inspected",
    ),
    "weights": (lambda: pl.col("a", "bb").dp.mode([1], counts=dpp.weights("ab", max_weight=1), epsilon=1), ONE_OUTPUT),
    "two weights": (
        lambda: pl.col("a").dp.mode([1], counts=dpp.weights(pl.col("a", "bb"), max_weight=1), epsilon=1),
        ONE_OUTPUT,
    ),
    "scores": (lambda: pl.col("a", "bb").dp.argmax(sensitivity=1, epsilon=1), ONE_OUTPUT),
    "over": (lambda: count(pl.col("a", "bb")).over("g"), ONE_OUTPUT),
    "simulate": (lambda: analysis.simulate(count(pl.col("a", "bb")), ROWS), ONE_OUTPUT),
    "boxes": (
        lambda: plot.box(ROWS, pl.col("a", "bb").dp.quantile([0.1, 0.2, 0.3, 0.4, 0.5], [1, 2], epsilon=1)),
        ONE_OUTPUT,
    ),
}


@pytest.mark.parametrize(("make", "words"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()


@pytest.mark.parametrize("choice", [cs.numeric(), pl.all(), pl.col("^a.*$"), pl.nth(0), pl.col("a", "bb").exclude("a")])
def test_a_selector_needs_data(choice):
    hint = r'Hint: name the columns, pl\.col\("a", "b"\)\.dp\.mean\(…\), or protect a frame with data'
    with pytest.raises(TypeError, match=rf"the query has no data yet\.\s+{hint}"):
        without_data().agg(count(choice))


def test_what_does_not_fit_names_the_output():
    with pytest.raises(TypeError, match="Output 't_mean': values must be numbers"):
        private().agg(pl.col("a", "t").dp.mean(0, 1, epsilon=1).name.suffix("_mean"))
    with pytest.raises(ColumnNotFoundError, match="output 'none'"):
        private().agg(count(pl.col("a", "none")))


@pytest.mark.parametrize(
    "run",
    [
        lambda e: ROWS.select(e),
        lambda e: ROWS.lazy().select(e).collect_schema(),
        lambda e: ROWS.group_by("g").agg(e),
        lambda e: ROWS.with_columns(e.alias("x")),
        lambda e: ROWS.select(e.name.suffix("_x")),
    ],
)
def test_a_plain_frame_refuses_several_columns(run):
    for columns in (pl.col("a", "bb"), cs.numeric(), cs.date(), pl.col("^z$")):
        with pytest.raises(ComputeError, match=ONE_OUTPUT):
            run(count(columns))


def test_the_text_tells_of_several_columns():
    assert "one output for each, in agg of a private frame" in repr(count(pl.col("a", "bb")))
    assert "one output for each" not in repr(count(pl.col("a")))


BOTH, FLAGS, LISTS = pl.col("a", "bb"), pl.col("c", "d"), pl.col("l", "m")
OF_SEVERAL = {
    "all_horizontal": pl.all_horizontal(FLAGS),
    "any_horizontal": pl.any_horizontal(FLAGS),
    "arr.concat": pl.concat_arr(BOTH),
    "arctan2": pl.arctan2(BOTH, BOTH),
    "as_struct": pl.struct(BOTH),
    "coalesce": pl.coalesce(BOTH),
    "fill_null": BOTH.fill_null(BOTH),
    "is_between": BOTH.is_between(BOTH, BOTH),
    "is_close": BOTH.is_close(BOTH),
    "is_in": BOTH.is_in([1, 2]),
    "max_horizontal": pl.max_horizontal(BOTH),
    "mean_horizontal": pl.mean_horizontal(BOTH),
    "min_horizontal": pl.min_horizontal(BOTH),
    "sum_horizontal": pl.sum_horizontal(BOTH),
    "dt.datetime_function": pl.datetime(2000, BOTH, 1),
    "dt.duration": pl.duration(days=BOTH),
    "list.concat": pl.concat_list(BOTH),
    "list.contains": pl.col("l").list.contains(BOTH),
    "list.set_operation": LISTS.list.set_union(LISTS),
    "str.concat_horizontal": pl.concat_str(BOTH),
    "str.format": pl.format("{}!", BOTH),
}


@pytest.mark.parametrize(("name", "expr"), OF_SEVERAL.items(), ids=OF_SEVERAL)
def test_polars_makes_one_column_of_all_that_are_selected_where_we_say_so(name, expr):
    """Every function of several columns that is not of one method."""
    assert name in OF_COLUMNS
    names_read = {"a": pl.Int64, "bb": pl.Int64, "c": pl.Boolean, "d": pl.Boolean}
    rows = pl.LazyFrame(schema={**names_read, "l": pl.List(pl.Int64), "m": pl.List(pl.Int64)})
    try:
        outputs = len(rows.select(expr).collect_schema())
    except DuplicateError:  # several, named alike
        outputs = 2
    assert (outputs == 1) == (name in OF_ALL_COLUMNS)
    if name in OF_ALL_COLUMNS:
        with pytest.raises(ValueError, match=CHOICE):
            without_data().agg(count(expr))
    elif name in ("dt.datetime_function", "dt.duration", "list.contains"):  # not named by the columns
        with pytest.raises(ValueError, match="got several named"):
            without_data().agg(count(expr))
    else:
        assert len(names(without_data().agg(count(expr)))) == 2


def test_every_function_of_several_columns_was_tried():
    assert {name for name in OF_COLUMNS if "." not in name} | OF_ALL_COLUMNS <= set(OF_SEVERAL)


def test_columns_without_a_name_keep_it_as_outputs_and_as_keys():
    rows = pl.DataFrame({"": ["x"] * 300 + ["y"] * 300, "a": range(600)})
    private = rows.dp.protect("a", max_groups=1, max_rows=1)
    for kinds in (["y", "x"], pl.Enum(["y", "x"])):
        released = private.group_by({"": kinds}).agg(column_0=dpp.len(epsilon=50)).release()
        assert released.columns == ["", "column_0"]
        assert released[""].to_list() == ["y", "x"]
    released = private.agg(pl.col("").dp.count(epsilon=50), column_0=dpp.len(epsilon=50)).release(intervals=True)
    assert released.columns == ["", "_low", "_high", "column_0", "column_0_low", "column_0_high"]
    shown = private.keys("", rho=1, delta=0.01, with_counts=True).release()
    assert shown.columns == ["", "count"]
    assert shown[""].to_list() == ["x", "y"]
