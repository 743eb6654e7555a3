"""The methods of Polars' frames on a private frame: those that work row by row, and those that are refused."""

from __future__ import annotations

import copy
import math
import pickle
import re
import warnings
from datetime import date, datetime, time, timedelta

import polars as pl
import polars.selectors as cs
import pytest
from polars.testing import assert_frame_equal

import dp_polars as dpp
from dp_polars._frames import frame as refused_methods
from dp_polars._release import pipeline as pipeline
from dp_polars._release import request
from dp_polars._steps import nodes as versions
from tests.frames.asking import rows_of
from tests.helpers.needs import IS_OLD

FRAME = pl.DataFrame(
    {
        "p": [1, 2, 3, 4, 5],
        "f": [1.0, None, float("nan"), 0.0, float("inf")],
        "h": pl.Series([1.0, float("nan"), None, 2.0, 3.0], dtype=pl.Float32),
        "s": ["a", None, "b", "12", "2020-01-01"],
        "i": [None, 2, 3, 400, -5],
        "b": [True, None, False, True, True],
        "d": [date(2020, 1, 1), None, None, None, date(2021, 1, 1)],
        "w": [datetime(2020, 1, 1), None, None, None, datetime(2021, 1, 1)],
        "o": [time(1), None, None, None, time(2)],
        "v": [timedelta(1), None, None, None, timedelta(2)],
        "c": pl.Series(["x", None, "y", "x", "y"], dtype=pl.Categorical),
    }
)
PUBLIC = pl.LazyFrame({"k": ["a", "b"], "r": [1, 2]})
SAME = {
    "drop": lambda f: f.drop("s"),
    "drop several": lambda f: f.drop("s", "i"),
    "drop a list": lambda f: f.drop(["s", "i"]),
    "drop a selector": lambda f: f.drop(cs.string(), "i"),
    "drop what is not there": lambda f: f.drop("nowhere", strict=False),
    "drop nothing": lambda f: f.drop(),
    "rename": lambda f: f.rename({"s": "t"}),
    "rename by a function": lambda f: f.rename(lambda name: name if name == "p" else name.upper()),
    "rename in turn": lambda f: f.rename({"s": "i", "i": "s"}),
    "rename what is not there": lambda f: f.rename({"nowhere": "t"}, strict=False),
    "cast": lambda f: f.cast({"i": pl.Float64, "s": pl.Categorical}),
    "cast by type": lambda f: f.cast({pl.Boolean: pl.Int8}),
    "cast a selector": lambda f: f.cast({cs.float(): pl.String}),
    "cast to a Python type": lambda f: f.cast({"i": str}),
    "cast leniently": lambda f: f.cast({"i": pl.Int8, "s": pl.Int64}, strict=False),
    "drop_nulls": lambda f: f.drop_nulls(),
    "drop_nulls of one": lambda f: f.drop_nulls("s"),
    "drop_nulls of some": lambda f: f.drop_nulls(["s", "i"]),
    "drop_nulls of a selector": lambda f: f.drop_nulls(cs.string()),
    "drop_nulls of none": lambda f: f.drop_nulls([]),
    "drop_nans": lambda f: f.drop_nans(),
    "drop_nans of one": lambda f: f.drop_nans("f"),
    "drop_nans of none": lambda f: f.select("p", "s").drop_nans(),
    "fill_null with an int": lambda f: f.fill_null(0),
    "fill_null with a float": lambda f: f.fill_null(0.5),
    "fill_null with a text": lambda f: f.fill_null("z"),
    "fill_null with a truth": lambda f: f.fill_null(False),
    "fill_null with a date": lambda f: f.fill_null(date(2022, 1, 1)),
    "fill_null with a datetime": lambda f: f.fill_null(datetime(2022, 1, 1)),
    "fill_null with a time": lambda f: f.fill_null(time(3)),
    "fill_null with a duration": lambda f: f.fill_null(timedelta(3)),
    "fill_null with an expression": lambda f: f.select("p", "i", "f").fill_null(pl.col("p") * 2),
    "fill_null of one type": lambda f: f.fill_null(0.5, matches_supertype=False),
    "fill_nan": lambda f: f.fill_nan(1.5),
    "fill_nan with null": lambda f: f.fill_nan(None),
    "fill_nan with a column": lambda f: f.fill_nan(pl.col("i")),
    "with_columns_seq": lambda f: f.with_columns_seq(pl.col("i").abs(), j=pl.col("i") + 1),
    "select_seq": lambda f: f.select_seq("p", j=pl.col("i") + 1),
    "remove": lambda f: f.remove(pl.col("i") > 2),
    "remove by several": lambda f: f.remove(pl.col("i") > 2, s="b"),
    "remove by none": lambda f: f.remove(pl.lit(False)),
    "pipe": lambda f: f.pipe(lambda same, least: same.filter(pl.col("i") > least), 2),
}


JOINS = {
    "join": lambda f: f.join(PUBLIC, left_on="s", right_on="k", how="left"),
    "inner join": lambda f: f.join(PUBLIC, left_on=["s"], right_on=["k"], how="inner"),
    "join by the unit": lambda f: f.join(PUBLIC.with_columns(k=pl.col("r")), left_on="p", right_on="k", how="inner"),
}


# What is off the short list of Polars 1.
NEED_POLARS_2 = {"cast", "fill_null with a text", "fill_null with an expression", "fill_nan with a column"}
NEED_POLARS_2 |= {f"fill_null with a {kind}" for kind in ("date", "datetime", "time", "duration")} | {
    "with_columns_seq"
}


@pytest.mark.parametrize("unit", ["p", None])
@pytest.mark.parametrize("name", [*SAME, *JOINS])
def test_a_method_does_what_polars_does_row_by_row(name: str, unit: str | None) -> None:
    step = {**SAME, **JOINS}[name]
    if IS_OLD and name in NEED_POLARS_2:
        with pytest.raises(ValueError, match=r"^\w+: `\w+` needs Polars 2\."):
            step(FRAME.dp.protect(unit))
        return
    native = step(FRAME.lazy()).collect()
    if unit is not None:
        native = native.cast({"p": pl.Int64})  # which private frames leave alone
    whole = rows_of(step(FRAME.dp.protect(unit)))
    order = "p" if name in JOINS else []
    assert_frame_equal(whole.sort(order) if order else whole, native.sort(order) if order else native)
    pipeline = step(dpp.protect(unit))  # the same without data
    alone = pl.concat([rows_of(pipeline, row) for row in FRAME.iter_slices(1)])
    together = rows_of(pipeline, FRAME)
    assert_frame_equal(together, alone, check_row_order=False, categorical_as_str=True, check_exact=True)


@pytest.mark.parametrize("how", ["left", "inner"])
def test_no_key_of_a_join_is_nan(how: str) -> None:
    nan = float("nan")
    private = pl.DataFrame({"p": [1], "k": [nan], "l": [[nan]], "j": [0.5]}).dp.protect("p")
    for name, key in (("k", nan), ("l", [nan]), ("l", [1.0])):
        with pytest.raises(ValueError, match=r"^join: the key '\w' of the public frame must not be .*NaN"):
            private.join(pl.DataFrame({name: [key], "v": [1]}), on=name, how=how)
    with pytest.raises(ValueError, match=r"^join: the key 'k' of the public frame must not be NaN"):
        private.join(pl.DataFrame({"j": [0.5], "k": [nan]}), on=["j", "k"], how=how)
    joined = private.join(pl.DataFrame({"j": [0.5], "v": [nan]}), on="j", how=how)
    assert math.isnan(rows_of(joined, pl.DataFrame({"p": [1], "k": [nan], "l": [[nan]], "j": [0.5]}))["v"].item())


def test_the_privacy_unit_keeps_its_values_where_all_columns_are_meant() -> None:
    frame = pl.DataFrame({"p": [1.0, float("nan"), None], "x": [None, float("nan"), 2.0]})
    private = frame.dp.protect("p")
    for step in (
        private.fill_null(0),
        private.fill_nan(0),
        private.cast(pl.String),
        private.cast({cs.float(): pl.Int8}),
        private.drop(cs.float()),
    ):
        assert_frame_equal(rows_of(step, frame).select("p"), frame.select("p"))
    assert private.cast(pl.String).schema == {"p": pl.Float64, "x": pl.String}
    assert private.drop(cs.all()).columns == ["p"]


def test_columns_of_several_types_are_worked_on_one_by_one() -> None:
    # What does not fit becomes null, also with `strict`.
    assert rows_of(FRAME.dp.protect("p").cast({"i": pl.Int8, "s": pl.Int64}))["i"].to_list() == [None, 2, 3, None, -5]
    frame = pl.DataFrame({"p": [1], "f": [0.5], "h": pl.Series([0.5], dtype=pl.Float32)})
    private = frame.dp.protect("p").cast(pl.String)
    assert rows_of(private, frame).rows() == [(1, "0.5", "0.5")]
    if not IS_OLD:
        types = {"x": pl.Datetime("ms"), "y": pl.Date}
        units = pl.DataFrame({"p": [1], "x": [None], "y": [None]}, schema_overrides=types)
        filled = rows_of(units.dp.protect("p").fill_null(datetime(2020, 1, 1)).fill_null(date(2020, 1, 1)), units)
        assert filled.rows() == [(1, datetime(2020, 1, 1), date(2020, 1, 1))]
    last = frame.dp.protect("p").cast({cs.float(): pl.Int8, "f": pl.String})
    assert last.schema == {"p": pl.Int64, "f": pl.String, "h": pl.Int8}


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (
            lambda f: f.drop("p"),
            "drop: the privacy unit 'p' must stay as it is.\n\nHint: leave it out. It never appears",
        ),
        (lambda f: f.drop(["s", "p"]), "drop: the privacy unit 'p' must stay as it is"),
        (lambda f: f.drop("nowhere"), "drop: the expression must fit the columns"),
        (lambda f: f.drop(3), "drop: columns must be names or selectors, got 3"),
        (lambda f: f.rename({"p": "q"}), "rename: the privacy unit 'p' must keep its name"),
        (lambda f: f.rename({"s": "p"}), "rename: the privacy unit 'p' must keep its name, and no other"),
        (lambda f: f.rename({"p": "s", "s": "p"}), "rename: the privacy unit 'p' must keep its name"),
        (lambda f: f.rename(str.upper), "rename: the privacy unit 'p' must keep its name"),
        (lambda f: f.rename("s"), "rename: mapping must be a dict"),
        (lambda f: f.rename({"nowhere": "t"}), "nowhere"),
        (lambda f: f.cast({"p": pl.String}), "cast: the privacy unit 'p' must stay as it is"),
        (lambda f: f.cast({"c": pl.UInt32}), "cast: `cast` (may take a category's number|needs Polars 2)"),
        (lambda f: f.drop_nulls("nowhere"), "drop_nulls: the expression must fit the columns"),
        (lambda f: f.fill_null(strategy="forward"), "fill_null: `forward_fill` .* fills a row from the others"),
        (lambda f: f.fill_null(pl.col("i").mean()), "fill_null: `mean` combines several rows"),
        (lambda f: f.fill_nan(pl.col("f").max()), "fill_nan: `max` combines several rows"),
        (lambda f: f.fill_null(), "must specify either"),
        (lambda f: f.remove(pl.col("i") > pl.col("i").mean()), "remove: `mean` combines several rows"),
        (lambda f: f.with_columns_seq(p=pl.col("i")), "with_columns_seq: an expression must not change the privacy"),
        (lambda f: f.select_seq(pl.col("i").sum()), "select_seq: `sum` combines several rows"),
        (lambda f: f.join(PUBLIC, left_on="s"), "join: the keys must be given as `on`, or as"),
        (lambda f: f.join(PUBLIC), "join: the keys must be given as `on`, or as"),
        (lambda f: f.join(PUBLIC, "s", left_on="s", right_on="k"), "join: the keys must be given as `on`, or as"),
        (lambda f: f.join(PUBLIC, left_on=["s", "i"], right_on="k"), "join: left_on and right_on must name as many"),
        (lambda f: f.join(PUBLIC, left_on="s", right_on="t"), "right_on must name columns of the public frame"),
        (lambda f: f.join(PUBLIC, left_on=3, right_on="k"), "left_on must be the name of a column"),
        (lambda f: f.join(PUBLIC.rename({"r": "t"}), on="t"), "must have the join column 't'"),
        (
            lambda f: f.join(pl.LazyFrame({"p": ["a"]}), left_on="s", right_on="p"),
            "must not have a column named like the privacy unit",
        ),
    ],
)
def test_steps_that_are_refused(step, message: str) -> None:
    with pytest.raises((TypeError, ValueError, pl.exceptions.PolarsError), match=f"(?s){message}"):
        step(FRAME.dp.protect("p"))


def test_the_schema_is_public() -> None:
    private, unbound = FRAME.dp.protect("p").select("p", j=pl.col("i") / 2), dpp.protect("p")
    assert private.columns == ["p", "j"]
    assert private.schema == private.collect_schema() == {"p": pl.Int64, "j": pl.Float64}
    for ask in (lambda: unbound.columns, lambda: unbound.schema, unbound.collect_schema):
        with pytest.raises(TypeError, match="must be built on data to have columns"):
            ask()


METHODS = sorted(
    name
    for name in {*dir(pl.LazyFrame), *dir(pl.DataFrame)}
    if not name.startswith("_") and name not in dir(dpp.PrivateFrame)
)


@pytest.mark.parametrize("name", METHODS)
def test_a_method_that_is_refused_says_why_and_what_to_do(name: str) -> None:
    private = FRAME.dp.protect("p")
    with pytest.raises(AttributeError, match=rf"^{name}: this [^\n]+\.\n\nHint: .+\.$"):
        getattr(private, name)
    assert not hasattr(private, name)


def test_few_methods_are_refused_without_a_reason_of_their_own() -> None:
    last = refused_methods.METHODS[-1].why
    of_columns = {f"{name}_horizontal" for name in ("max", "mean", "min", "sum")}
    others = {"deserialize", "drop_in_place", "flags", "from_lazyframe_resolver", "get_column_index"}
    found = {name for name in METHODS if last in refused_methods.refusal(name)}
    assert found <= of_columns | others | {"match_to_schema", "n_chunks"}


@pytest.mark.parametrize(
    ("method", "reason", "hint"),
    [
        ("dp", "frame is already protected", "go on with filter"),
        ("head", "keeps rows by their place", "leave it out, or filter"),
        ("is_unique", "compares a row with the others", "leave it out: `protect` limits"),
        ("sum", "would show the result without noise", "agg"),
        ("sort", "goes by the order of the rows", "sort the answers"),
        ("with_row_index", "goes by the order of the rows", "leave it out"),
        ("shift", "takes values from other rows", "constants"),
        ("to_pandas", "shows private rows", "release"),
        ("write_csv", "shows private rows", "release"),
        ("lazy", "does nothing here", "leave it out"),
    ],
)
def test_reasons(method: str, reason: str, hint: str) -> None:
    with pytest.raises(AttributeError, match=rf"^{method}: this .*{reason}[\s\S]*Hint: .*{re.escape(hint)}"):
        getattr(FRAME.dp.protect("p"), method)
    groups = FRAME.dp.protect("p").group_by({"s": ["a"]})
    for name in ("len", "mean", "head", "map_groups"):
        with pytest.raises(AttributeError, match=rf"^{name}: this "):
            getattr(groups, name)


def test_explode_goes_before_as_the_hint_says() -> None:
    assert rows_of(pl.LazyFrame({"p": [1, 2], "l": [[1, 2], [3]]}).explode("l").dp.protect("p")).height == 3


def test_a_private_frame_is_no_container() -> None:
    private = FRAME.dp.protect("p")
    for use, call in [(len, "len"), (list, "iter"), (lambda f: f["s"], r"frame\[…\]"), (bool, "len")]:
        hint = r"agg\(dp_polars\.len\(epsilon=…\)\) counts rows" if call == "len" else "request private answers"
        with pytest.raises(TypeError, match=rf"^{call}: this .*\n\nHint: {hint}"):
            use(private)


def test_what_python_looks_for_is_found_missing_as_ever() -> None:
    private = FRAME.dp.protect("p")
    for name in ("_repr_html_", "__array__", "__dataframe__", "__arrow_c_stream__", "_ldf", "_df", "nothing"):
        with pytest.raises(AttributeError, match=f"^'PrivateFrame' object has no attribute '{name}'"):
            getattr(private, name)
    for bound in (private, private.group_by({"i": [1]})):
        assert copy.deepcopy(bound) is bound
        with pytest.raises(TypeError, match=r"^a PrivateFrame must be bound to no rows in memory to be pickled"):
            pickle.dumps(bound)
    assert copy.copy(private) is private
    pipeline = dpp.protect("p").drop("s").rename({"i": "j"}).cast({"j": pl.Int8}).fill_null(0).drop_nulls()
    again = pickle.loads(pickle.dumps(pipeline))
    assert_frame_equal(rows_of(again, FRAME), rows_of(pipeline, FRAME))


def test_a_newer_polars_is_warned_of_once(monkeypatch: pytest.MonkeyPatch) -> None:
    versions.warn_if_untested.cache_clear()
    monkeypatch.setattr(pl, "__version__", "2.2.0")
    with pytest.warns(UserWarning, match=r"tested on Polars 1\.36\.1 and 2\.1\.x, this is 2\.2\.0") as found:
        dpp.protect("p")
    assert found[0].filename == __file__
    FRAME.dp.protect("p").drop("s")  # a second warning would be an error
    for version in ("1.36.1", "1.40.0", "2.1.9", "2.1.0b1"):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            versions.warn_if_untested(version)
    for version in ("2.10.0", "3.0.0rc1"):
        with pytest.warns(UserWarning, match=f"this is {version}"):
            versions.warn_if_untested(version)


def test_a_select_of_nothing_is_refused():
    """Without a column, a frame has no rows: their number would be lost."""
    frame = pl.DataFrame({"p": range(5), "x": range(5)})
    with pytest.raises(ValueError, match="select: at least one column must stay"):
        dpp.protect(None).select().agg(dpp.len(epsilon=1000)).release(frame)
    kept = dpp.protect("p", max_rows=1).select().agg(dpp.n_people(epsilon=1000)).release(frame)
    assert abs(kept.item() - 5) <= 1


@pytest.fixture
def proofs(monkeypatch):
    """The expressions that were proved, one after the other."""
    proved, row_by_row = [], pipeline.row_by_row

    def noting(expr, *args):
        proved.append(expr)
        return row_by_row(expr, *args)

    for module in (pipeline, request):
        monkeypatch.setattr(module, "row_by_row", noting)
    return proved


def eight_filters(private):
    for number in range(8):
        private = private.filter(pl.col("i") < 10 - number)
    return private


MEDIAN = pl.col("i").dp.median(range(9), epsilon=1)


def test_a_step_is_proved_once(proofs, tmp_path):
    private = eight_filters(FRAME.dp.protect("p", max_rows=1))
    assert len(proofs) == 8
    assert private.agg(MEDIAN).release().height == 1
    assert len(proofs) == 8  # a column as it is needs no proof
    query = private.agg((pl.col("i") + 1).dp.median(range(9), epsilon=1))
    assert len(proofs) == 9
    assert query.release().height == 1
    assert len(proofs) == 10
    assert private.schema == FRAME.schema
    assert len(proofs) == 10
    # Without rows, when rows come.
    query = eight_filters(dpp.protect("p", max_rows=1)).agg(MEDIAN)
    assert len(proofs) == 10
    query.release(FRAME)
    assert len(proofs) == 18
    # The text of a query needs no proof.
    budget = dpp.Budget(epsilon=1, path=tmp_path / "ledger.db")
    private = eight_filters(FRAME.dp.protect("p", max_rows=1, budget=budget, dataset="ours"))
    private = private.rename(lambda name: name if name == "p" else name.upper())
    private.agg(pl.col("I").dp.median(range(9), epsilon=1)).release()
    assert len(proofs) == 26


def test_a_pickle_holds_no_proof_and_its_steps_are_proved_anew(proofs, tmp_path):
    FRAME.write_parquet(tmp_path / "rows.parquet")
    private = eight_filters(pl.scan_parquet(tmp_path / "rows.parquet").dp.protect("p", max_rows=1))
    again = pickle.loads(pickle.dumps(private))
    assert private._pipeline.proof is not None
    assert again._pipeline.proof is None
    assert again.schema == FRAME.schema
    assert len(proofs) == 16
    query = pickle.loads(pickle.dumps(private.agg(MEDIAN)))
    assert len(proofs) == 16
    assert query._request.pipeline.proof is None
    query.release()
    assert len(proofs) == 24


OTHERS = [FRAME.drop("d"), FRAME.with_columns(z=1), FRAME.cast({"i": pl.Int32}), FRAME.select(reversed(FRAME.columns))]


@pytest.mark.parametrize("other", OTHERS)
def test_steps_do_not_run_on_columns_that_they_were_not_proved_on(other, proofs):
    private = eight_filters(FRAME.dp.protect("p"))
    with pytest.raises(TypeError, match="The rows must have the columns that they had"):
        private._pipeline.proof.rows(other.lazy())
    count = len(proofs)
    assert private._pipeline.proved(other.schema).schemas[0] == other.schema
    assert len(proofs) == count + 8


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
@pytest.mark.parametrize("values", [[[3], None, [1, 2], [None]], [{"a": 1}, None, {"a": 2}, {"a": None}]])
def test_a_nested_null_finds_no_public_key_however_many_rows_there_are(how, values):
    rows, public = pl.DataFrame({"p": [1, 2, 3, 4], "l": values}), pl.DataFrame({"l": values[1:]})
    steps = rows.dp.protect("p").join(public if how in {"semi", "anti"} else public.with_columns(q=1), on="l", how=how)
    for frame in (rows, *rows.partition_by("p"), rows.reverse(), rows[:2]):
        for engine in ("in-memory", "streaming"):
            joined = rows_of(steps, frame, engine=engine)
            found = set(joined.drop_nulls("q")["p"] if how == "left" else joined["p"])
            assert found == set(frame["p"]) & ({1, 2} if how == "anti" else {3, 4})


@pytest.mark.parametrize("how", ["semi", "anti"])
def test_public_keys_may_repeat_where_they_only_filter(how, engine):
    rows = pl.DataFrame({"p": [1, 1, 2, 3, 3, None, 4], "day": [1, 2, 1, 1, 3, 1, None]})
    public = pl.DataFrame({"day": [1, 1, None, 3], "other": [7, 8, 9, 9]})
    private = rows.dp.protect("p")
    for left, right in (("day", "day"), ("p", "day")):
        joined = private.join(public.lazy(), left_on=left, right_on=right, how=how)
        expected = rows.join(public, left_on=left, right_on=right, how=how)
        assert_frame_equal(rows_of(joined, rows, engine=engine), expected, check_row_order=False)
    with pytest.raises(ValueError, match="NaN"):
        private.join(pl.DataFrame({"day": [float("nan")]}), on="day", how=how)
