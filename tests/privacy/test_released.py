"""What leaves with an answer: its bytes, flags and chunks depend on the drawn answers alone, not on private rows."""

import copy
import io
import pickle
from contextlib import nullcontext

import polars as pl
import pyarrow.dataset as ds
import pytest

import dp_polars as dpp
from dp_polars._steps.gate import row_by_row
from tests.helpers.needs import IS_OLD
from tests.registry import COLUMNS, ENGINES
from tests.replay.checks import seen

X = pl.col("x")
MANY = 10**6


def categorical(physical=pl.UInt32):
    return pl.Categorical(pl.Categories.random(physical=physical))


# Types that a mode can be asked of, and what makes them: a Categorical anew in each test. Arrow's files have no wide
# integers.
KINDS = {
    name: (lambda kind=kind: kind.dtype)
    for name, kind in COLUMNS.items()
    if kind.categories is not None and "128" not in name
}
KINDS |= {
    "Categorical": categorical,
    "global Categorical": pl.Categorical,
    "8-bit Categorical": lambda: categorical(pl.UInt8),
}
# Sorted or not, and without null: of one frame; others, and more, of another.
TEXTS = ["b", "a", "b"], ["zz", None, "y", "secret"], "b"


def rows_of(kind):
    """Values of one frame and of another, and the only candidate."""
    if "Categorical" in kind or kind == "String":
        return TEXTS
    values, candidate = COLUMNS[kind].values, COLUMNS[kind].categories[0]
    return [candidate, *values[:2]], [values[-1], None, values[0], values[-1]], candidate


GROUPS = 3


def frames(kind, *, sort=False):
    """Two private frames with the same public groups and different rows, flags and chunks, and the candidates."""
    make, (one, other, candidate) = KINDS[kind], rows_of(kind)
    for values, extra in ((one, 0), (other, 40)):
        dtype = make()
        if isinstance(dtype, pl.Categorical):
            pl.Series([f"private {i}" for i in range(extra)], dtype=dtype)
        column = pl.Series("x", values * GROUPS, dtype=dtype)
        group = pl.Series("g", [i % GROUPS for i in range(len(column))])
        frame = pl.DataFrame({"g": group, "x": column, "p": range(len(column))})
        if extra:
            frame = pl.concat([frame[:2], frame[2:]], rechunk=False)
        elif sort:
            frame = frame.sort("x")
        yield frame, [candidate]


def modes(kind, ask):
    """What is seen where the same is asked of both frames."""
    return [seen(ask(frame, X.dp.mode(candidates, epsilon=MANY))) for frame, candidates in frames(kind, sort=True)]


ASKS = {
    "select": lambda f, e: f.select(e),
    "filtered": lambda f, e: f.select(X.filter(pl.lit(True)).dp.mode(e.query.candidates.values, epsilon=MANY)),
    "group_by": lambda f, e: f.group_by("g", maintain_order=True).agg(e).select("x"),
    "over": lambda f, e: (
        f.rechunk().sort("g").head(6).with_columns(g=pl.Series([0, 0, 1, 1, 2, 2])).select(e.over("g"))
    ),
    "lazy": lambda f, e: f.lazy().select(e).collect(),
    "streaming": lambda f, e: f.lazy().select(e).collect(engine="streaming"),
    "streaming groups": lambda f, e: (
        f.lazy().group_by("g").agg(e).collect(engine="streaming").sort("g").select("x").rechunk()
    ),
}


@pytest.mark.parametrize("how", ASKS)
@pytest.mark.parametrize("kind", KINDS)
def test_an_expression_shows_nothing_but_its_answers(kind, how):
    one, other = modes(kind, ASKS[how])
    assert one == other


@pytest.mark.parametrize("how", [how for how in ASKS if how != "filtered"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_list_shows_nothing_but_its_answers(kind, how):
    both = [
        (frame, X.dp.top_k(1, candidates, epsilon=MANY, mechanism=mechanism))
        for mechanism in ("permute_and_flip", "joint")
        for frame, candidates in frames(kind, sort=True)
    ]
    assert len({repr(seen(ASKS[how](*each))) for each in both}) == 1
    released = [frame.dp.protect("p").agg(expr).release() for frame, expr in both]
    assert len({repr(seen(each)) for each in released}) == 1


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("keys", [False, True])
@pytest.mark.parametrize("unit", [None, "p"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_private_frame_shows_nothing_but_its_answers(kind, unit, keys, engine):
    def ask(frame, expr):
        private = frame.dp.protect(unit, max_groups=GROUPS if unit and keys else None)
        if keys:
            private = private.group_by({"g": range(GROUPS)})
        return private.agg(expr).release(engine=engine)

    one, other = modes(kind, ask)
    assert one == other


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("kind", KINDS)
def test_keys_show_nothing_of_the_rows(kind, engine):
    def ask(given_as_frame):
        for frame, candidates in frames(kind, sort=True):
            keys = pl.DataFrame({"x": candidates}) if given_as_frame else {"x": candidates}
            query = frame.dp.protect("p").group_by(keys).agg(pl.col("g").dp.mode([7], epsilon=1))
            yield seen(query.release(engine=engine))

    assert len({repr(what) for given in (False, True) for what in ask(given)}) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_of_answers_shows_nothing_else(kind, tmp_path):
    files = []
    for frame, candidates in frames(kind, sort=True):
        query = frame.dp.protect("p").agg(X.dp.mode(candidates, epsilon=MANY))
        query.sink_parquet(tmp_path / "answers.parquet")
        files.append((tmp_path / "answers.parquet").read_bytes())
    assert files[0] == files[1]


def test_a_quantile_and_an_argmax_show_nothing_but_their_answers():
    one, other = (
        seen(frame.select(a=X.dp.median([5], epsilon=1), b=pl.lit(0).dp.argmax(epsilon=MANY, sensitivity=1)))
        for frame in (pl.DataFrame({"x": [1, 2, 3]}), pl.DataFrame({"x": [9, None, 1, 1]}))
    )
    assert one == other


# Categories


@pytest.mark.parametrize("make", [lambda: pl.Categorical(), categorical, lambda: categorical(pl.UInt8)])
def test_no_public_text_is_put_into_the_mapping_of_private_rows(make):
    dtype = make()
    column = pl.Series("x", ["a", "b"], dtype=dtype)
    before = pl.Series(["public 1"], dtype=dtype).to_physical().item()
    frame = column.to_frame().with_columns(p=pl.Series([1, 2]))
    asked = X.dp.mode(["never", "a"], epsilon=1)
    frame.select(asked)
    frame.with_columns(y=asked.over("p"))
    frame.group_by("p").agg(X.filter(pl.lit(True)).dp.mode(["nor this"], epsilon=1))
    private = frame.dp.protect("p")
    if not IS_OLD:
        private = private.filter(X == "b").with_columns(y=X.cast(pl.String))
    private.agg(asked).release()
    keyed = frame.dp.protect("p", max_groups=1).group_by({"x": ["no key", "a"]})
    keyed.agg(pl.col("p").dp.mode([1], epsilon=1)).release()
    assert pl.Series(["public 2"], dtype=dtype).to_physical().item() == before + 1


def test_groups_of_a_categorical_are_those_of_its_texts():
    frame = pl.DataFrame({"x": pl.Series(["b", "a", "b", None, "c"], dtype=categorical()), "y": [1, 2, 1, 3, 3]})
    query = frame.dp.protect(None).group_by({"x": ["a", "b"]}).agg(pl.col("y").dp.mode([1, 2, 3], epsilon=MANY))
    assert query.release().rows() == [("a", 2), ("b", 1)]
    simulated = dpp.analysis.simulate(query, frame, allow_private=True)
    assert simulated["x"].dtype == pl.String
    assert simulated["counted"].to_list() == [1, 2]


def test_candidates_and_keys_given_as_categories_are_texts():
    dtype = categorical()
    given = pl.Series("x", ["a", "b"], dtype=dtype)
    frame = pl.DataFrame({"x": given, "p": [1, 2]})
    assert frame.select(X.dp.mode(given, epsilon=MANY)).schema == {"x": pl.String}
    assert frame.cast({"x": pl.String}).select(X.dp.mode(given, epsilon=MANY)).schema == {"x": pl.String}
    for keys in ({"x": given}, given.to_frame()):
        for private in (frame, frame.cast({"x": pl.String})):
            query = private.dp.protect(None).group_by(keys).agg(pl.col("p").dp.mode([1], epsilon=1))
            assert query.release().schema == {"x": pl.String, "p": pl.Int64}
    simulated = dpp.analysis.simulate(X.dp.mode(given, epsilon=1), frame)
    assert simulated["true_answer"].dtype == pl.String


FEW = {pl.UInt8: 2**8 - 1, pl.UInt16: 2**16 - 1}
STEPS = {
    "==": X == "new",
    "is_in": X.is_in(["new"]),
    "fill_null": X.fill_null("new"),
    "coalesce": pl.coalesce(X, pl.lit("new")),
    "when": pl.when(X == "new").then(X).otherwise(pl.lit("new")),
    "replace": X.replace("new", "other"),
    "replace_strict": X.replace_strict({"new": 1}, default=None),
    "cast": X.cast(pl.String),
    "list": pl.concat_list(X).list.contains("new"),
    "format": pl.format("{} new", X),
    "constant": pl.lit("new").cast(pl.Categorical),
}


def outcome(frame, expr):
    try:
        return str(frame.dp.protect("p").with_columns(y=expr))
    except Exception as error:
        return type(error), str(error)


@pytest.mark.slow
@pytest.mark.parametrize("physical", FEW)
def test_how_many_categories_the_rows_have_is_not_seen(physical):
    found = []
    for number in (2, FEW[physical] - 1, FEW[physical]):
        dtype = pl.Categorical(pl.Categories("many", "test", physical))
        frame = pl.DataFrame({"x": pl.Series([f"s{i}" for i in range(number)], dtype=dtype)}).with_row_index("p")
        asked = X.dp.mode(["absent", "nowhere"], epsilon=1)
        of_p = pl.col("p").dp.mode([0], epsilon=1)
        assert frame.select(asked)["x"].dtype == pl.String
        assert frame.dp.protect("p").agg(asked).release()["x"].dtype == pl.String
        keyed = frame.dp.protect("p", max_groups=1).group_by({"x": ["absent", "s0"]}).agg(of_p)
        assert keyed.release()["x"].to_list() == ["absent", "s0"]
        steps = {name: outcome(frame, e) for name, e in STEPS.items()}
        found.append(steps)
        for name, e in STEPS.items():
            if isinstance(steps[name], str):
                frame.dp.protect("p").with_columns(y=e).agg(of_p).release()
        del frame, dtype, keyed
    assert found[0] == found[1] == found[2]
    for name in ("==", "cast"):
        assert isinstance(found[0][name], tuple if IS_OLD else str)
    assert isinstance(found[0]["fill_null"], tuple)


def test_a_constant_of_few_categories_is_refused():
    few = categorical(pl.UInt8)
    with pytest.raises(pl.exceptions.ComputeError if IS_OLD else ValueError, match="insert more categories"):
        row_by_row(pl.lit("a").cast(few), pl.Schema({"x": pl.Int64}), "It")


def test_a_proof_leaves_the_named_categories_as_they_are():
    dtype = categorical()
    texts = pl.Schema({"x": pl.String})
    for cast in () if IS_OLD else (X.cast(dtype), X.cast(dtype, strict=False)):  # rewritten, and not
        proved = row_by_row(cast, texts, "It")
        assert pl.DataFrame({"x": ["a"]}).select(proved).schema == {"x": dtype}
    seen = pl.Series(["public 1"], dtype=dtype)  # as long as it is there, so are its Categories
    before = seen.to_physical().item()
    for expr in (X == "public 2", X.fill_null("public 3"), pl.lit("public 4").cast(dtype), X.is_in(["public 5"])):
        with pytest.raises(ValueError, match="needs Polars 2") if IS_OLD else nullcontext():
            row_by_row(expr, pl.Schema({"x": dtype}), "It")
    assert pl.Series(["public 6"], dtype=dtype).to_physical().item() == before + 1


@pytest.mark.parametrize(
    "dtype",
    [
        pl.List(pl.Categorical),
        pl.Array(pl.Categorical, 1),
        pl.Struct({"a": pl.Categorical}),
        pl.List(pl.Struct({"a": pl.List(pl.Categorical)})),
    ],
)
def test_a_unit_of_nested_categories_is_refused(dtype):
    frame = pl.DataFrame(schema={"p": dtype, "x": pl.Int64})
    asked = X.dp.mode([1], epsilon=1)
    for bind in (lambda: frame.dp.protect("p"), lambda: dpp.protect("p").agg(asked).release(frame)):
        with pytest.raises(TypeError, match=r"'p' must not hold Categoricals inside a nested type.*\n\nHint: cast"):
            bind()
    as_text = frame.select(x="x", p=pl.Series([], dtype=pl.List(pl.String)))
    as_text.dp.protect("p").agg(asked).release()


# Pickles

SECRET = "secret-hiv-7"
ROWS = pl.DataFrame({"p": [SECRET, "b"], "x": [1, 2]})
MODE = X.dp.mode([1, 2], epsilon=MANY)


def bound_to(frame):
    private = frame.dp.protect("p", max_groups=1)
    groups = private.group_by({"x": [1]})
    return [private, private.filter(X > 0), private.agg(MODE), groups, groups.agg(y=MODE)]


def in_memory():
    file = io.BytesIO()
    ROWS.write_parquet(file)
    return {
        "DataFrame": ROWS,
        "LazyFrame": ROWS.lazy().filter(X > 0),
        **({} if pl.__version__.startswith("1.") else {"bytes": pl.scan_parquet(io.BytesIO(file.getvalue()))}),
        "concat": pl.concat([ROWS.lazy(), ROWS.lazy()]),
        "Arrow": pl.scan_pyarrow_dataset(ds.dataset(ROWS.to_arrow())),
    }


@pytest.mark.parametrize("kind", in_memory())
def test_rows_in_memory_are_not_pickled(kind):
    for bound in bound_to(in_memory()[kind]):
        for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
            with pytest.raises(TypeError, match=r"no rows in memory to be pickled.*\n\nHint: build the query without"):
                pickle.dumps(bound, protocol=protocol)
        for again in (copy.copy(bound), copy.deepcopy(bound)):
            assert repr(again).partition(" at ")[0] == repr(bound).partition(" at ")[0]
    assert copy.deepcopy(bound_to(ROWS)[2]).release()["x"].item() in (1, 2)


def scans(folder):
    ROWS.write_parquet(folder / "a.parquet")
    ROWS.write_csv(folder / "a.csv")
    ROWS.write_ipc(folder / "a.ipc")
    return [
        pl.scan_parquet(folder / "a.parquet"),
        pl.scan_csv(folder / "a.csv", schema=ROWS.schema).filter(X > 0),
        pl.scan_ipc(folder / "a.ipc"),
        pl.scan_pyarrow_dataset(ds.dataset(folder / "a.parquet")),
    ]


def test_scans_of_files_and_queries_without_data_are_pickled(tmp_path):
    for scan in scans(tmp_path):
        for bound in bound_to(scan):
            sent = pickle.dumps(bound)
            assert SECRET.encode() not in sent
            again = pickle.loads(sent)
            assert type(again) is type(bound)
            if isinstance(again, dpp.PrivateQuery):
                assert again.release().height == bound.release().height
    pipeline = pickle.loads(pickle.dumps(dpp.protect("p").filter(X > 0).agg(MODE)))
    assert pipeline.release(ROWS)["x"].item() in (1, 2)
