"""Where an expression may stand: every context of Polars, both engines, and how often Python is called there."""

import polars as pl
import pytest

import dp_polars as dpp
from tests.helpers.spies import forbid, watch
from tests.registry import ENGINES, GROUPS, ROWS, SURE, TRUE_ANSWERS, G, S, V, X, many_groups


@pytest.fixture(scope="module")
def frame():
    return many_groups()


@pytest.fixture
def calls(monkeypatch):
    return watch(monkeypatch)


by_query = pytest.mark.parametrize(("expr", "truth"), TRUE_ANSWERS.values(), ids=TRUE_ANSWERS)
by_engine = pytest.mark.parametrize("engine", ENGINES)

# Contexts with one answer per group: from a lazy frame to a frame with the columns g and y, one row per group.
BY_GROUP = {
    "agg": lambda lf, e: lf.group_by("g").agg(y=e),
    "agg in order": lambda lf, e: lf.group_by("g", maintain_order=True).agg(y=e),
    "agg of two keys": lambda lf, e: lf.group_by("g", G.alias("again")).agg(y=e).select("g", "y"),
    "agg with more": lambda lf, e: lf.group_by("g").agg(pl.len(), X.sum(), y=e).select("g", "y"),
    "over": lambda lf, e: lf.select("g", y=e.over("g")).unique(),
    "over in order": lambda lf, e: lf.select("g", y=e.over("g", order_by="t")).unique(),
    "over all together": lambda lf, e: lf.select(G.over("g", mapping_strategy="explode"), y=e.over("g")).unique(),
    "over, once each": lambda lf, e: lf.select(
        G.unique(maintain_order=True), y=e.over("g", mapping_strategy="explode")
    ),
    "with_columns over": lambda lf, e: lf.with_columns(y=e.over(["g", "t"])).select("g", "y").unique(),
    "dynamic": lambda lf, e: lf.group_by_dynamic("t", every="1i").agg(y=e).rename({"t": "g"}),
    "dynamic days": lambda lf, e: (
        lf.group_by_dynamic("when", every="1d").agg(G.first(), y=e).select("g", "y")  # calendar windows
    ),
    "dynamic by group": lambda lf, e: lf.group_by_dynamic("t", every="100i", group_by="g").agg(y=e).select("g", "y"),
}


@by_engine
@pytest.mark.parametrize("context", BY_GROUP)
@by_query
def test_each_group_gets_its_own_answer_from_one_draw(frame, calls, expr, truth, context, engine):
    answers = BY_GROUP[context](frame.lazy(), expr()).collect(engine=engine)
    assert dict(answers.iter_rows()) == {g: truth(g) for g in range(GROUPS)}
    # Never more draws than answers: a draw that is thrown away would be a release that nobody accounts for.
    assert sum(calls.drawn) == GROUPS
    if context.startswith("dynamic") and engine == "streaming":
        assert len(calls.drawn) + len(calls.encoded) <= GROUPS / 4
    else:
        assert calls.drawn == [GROUPS], "all groups are drawn in one call"
        assert calls.encoded in ([], [GROUPS * ROWS])


@by_query
def test_frames_that_are_no_plans(frame, calls, expr, truth):
    grouped = frame.group_by("g", maintain_order=True).agg(y=expr())
    assert grouped["y"].to_list() == [truth(g) for g in range(GROUPS)]
    assert frame.select(expr().over("g")).to_series().to_list() == [truth(g) for g in frame["g"]]
    for g, part in frame.group_by("g"):
        assert part.select(expr()).to_series().to_list() == [truth(g[0])]
    assert sorted(calls.drawn) == [1] * GROUPS + [GROUPS] * 2


# Contexts with one answer for all rows: the last group's, so that the truth is known.
ALL_ROWS = {
    "select": lambda lf, e: lf.select(y=e),
    "select beside a column": lambda lf, e: lf.select("g", y=e),
    "with_columns": lambda lf, e: lf.with_columns(y=e),
    "in arithmetic": lambda lf, e: lf.select(y=pl.when(X > -100).then(e)),
    "filtered later": lambda lf, e: lf.with_columns(y=e).filter(X > GROUPS - 1),
    "a few rows later": lambda lf, e: lf.with_columns(y=e).head(3),
    "twice over": lambda lf, e: lf.select(y=e).select("y", z=pl.col("y")),
}


@by_engine
@pytest.mark.parametrize("context", ALL_ROWS.values(), ids=ALL_ROWS)
@by_query
def test_all_rows_get_the_same_answer_from_one_draw(frame, calls, expr, truth, context, engine):
    last = frame.filter(G == GROUPS - 1).lazy()
    answers = context(last, expr()).collect(engine=engine)["y"].to_list()
    assert answers == [truth(GROUPS - 1)] * max(len(answers), 1)
    assert calls.drawn == [1]
    assert calls.encoded in ([], [ROWS])


@by_engine
@by_query
def test_rows_can_be_filtered_by_an_answer(frame, calls, expr, truth, engine):
    last = frame.filter(G == GROUPS - 1).lazy()
    assert len(last.filter(expr() == truth(GROUPS - 1)).collect(engine=engine)) == ROWS
    assert calls.drawn == [1]


@by_query
def test_streaming_over_sorted_keys_draws_many_groups_at_once(frame, calls, expr, truth):
    """There Polars aggregates piece by piece: a call for each piece, but never one for each group."""
    plan = frame.lazy().with_columns(G.set_sorted()).group_by("g").agg(y=expr())
    assert dict(plan.collect(engine="streaming").iter_rows()) == {g: truth(g) for g in range(GROUPS)}
    assert sum(calls.drawn) == GROUPS
    assert len(calls.drawn) + len(calls.encoded) <= GROUPS / 4


@by_engine
@by_query
def test_windows_that_overlap_draw_once_each(frame, calls, expr, truth, engine):
    lf = frame.lazy()
    rolled = lf.rolling("t", period="1i").agg(y=expr()).collect(engine=engine)
    assert rolled["y"].to_list() == [truth(g) for g in frame["g"]]
    assert sum(calls.drawn) == len(frame)
    calls.clear()
    wide = lf.group_by_dynamic("t", every="1i", period="3i", closed="both").agg(y=expr()).collect(engine=engine)
    assert sum(calls.drawn) == len(wide) >= GROUPS
    assert len(calls.drawn) <= len(wide) / 2


@by_query
def test_rows_may_be_windows_of_an_expression(frame, calls, expr, truth):
    rolled = frame.lazy().select(y=expr().rolling("t", period="1i")).collect(engine="in-memory")
    assert rolled["y"].to_list() == [truth(g) for g in frame["g"]]
    assert sum(calls.drawn) == len(frame)


@by_engine
def test_filters_inside_an_aggregation(frame, calls, engine):
    """A filtered column is encoded where all groups are drawn, not group by group."""
    asked = {
        "none": X.filter(X > 1000).dp.median([7], **SURE),
        "above": X.filter(X > G).dp.median(range(100), **SURE),
        "in both": X.filter(X > G).dp.median(range(100), **SURE) - X.filter(X < G).dp.median(range(-50, 100), **SURE),
        "head": S.head(3).dp.mode(["a", "b", "c"], **SURE),
        "sorted": V.sort().dp.argmax(sensitivity=1, **SURE),
        "dropped": pl.when(X == G).then(X).drop_nulls().dp.median(range(100), **SURE),
    }
    answers = frame.lazy().group_by("g").agg(**asked).sort("g").collect(engine=engine)
    assert answers["none"].to_list() == [7] * GROUPS
    assert answers["above"].to_list() == [g + 9 for g in range(GROUPS)]
    assert answers["in both"].to_list() == [16] * GROUPS
    assert answers["head"].to_list() == ["abc"[g % 3] for g in range(GROUPS)]
    assert answers["sorted"].to_list() == [ROWS - 1] * GROUPS
    assert answers["dropped"].to_list() == list(range(GROUPS))
    assert calls.drawn == [GROUPS] * 7
    assert calls.encoded == []


@by_engine
def test_many_expressions_in_one_query(frame, calls, engine):
    asked = [expr().alias(name) for name, (expr, _) in TRUE_ANSWERS.items()]
    answers = frame.lazy().group_by("g").agg(asked).sort("g").collect(engine=engine)
    for name, (_, truth) in TRUE_ANSWERS.items():
        assert answers[name].to_list() == [truth(g) for g in range(GROUPS)]
    assert calls.drawn == [GROUPS] * len(TRUE_ANSWERS)
    price = frame.lazy().group_by("g").agg(X.get(V.dp.argmax(sensitivity=1, **SURE)), best=V.max()).sort("g")
    truth = frame.group_by("g", maintain_order=True).agg(X.get(V.arg_max()))
    assert price.collect(engine=engine)["x"].to_list() == truth["x"].to_list()


@by_engine
def test_nothing_and_empty_groups(frame, calls, engine):
    """No rows: one answer of a whole frame, none of its groups; a group that a filter empties gets its answer."""
    nobody = frame.lazy().filter(G < 0)
    for name, (expr, _) in TRUE_ANSWERS.items():
        whole = nobody.select(y=expr()).collect(engine=engine)
        assert whole.height == 1
        assert (whole["y"].null_count() == 1) == name.startswith(("arg", "first above"))
        assert nobody.group_by("g").agg(y=expr()).collect(engine=engine).height == 0
        assert nobody.with_columns(y=expr().over("g")).collect(engine=engine).height == 0
    calls.clear()
    emptied = (
        frame.lazy()
        .group_by("g")
        .agg(
            mode=S.filter(G > 3).dp.mode(["a", "b", "c"], **SURE),
            median=X.filter(G > 3).dp.median(range(100), **SURE),
            argmax=V.filter(G > 3).dp.argmax(sensitivity=1, **SURE),
        )
    )
    answers = emptied.sort("g").collect(engine=engine)
    assert answers.height == GROUPS
    assert answers["mode"].null_count() == answers["median"].null_count() == 0
    assert answers["argmax"].is_null().to_list() == [g <= 3 for g in range(GROUPS)]
    assert answers["median"][4:].to_list() == list(range(4, GROUPS))
    assert calls.drawn == [GROUPS] * 3


def test_lists_are_groups_too(frame, calls):
    lists = frame.group_by("g", maintain_order=True).agg("x")
    median = pl.element().dp.median(range(-10, 61), **SURE)
    assert lists.select(X.list.eval(median).list.first())["x"].to_list() == list(range(GROUPS))
    assert lists.select(X.list.agg(median))["x"].to_list() == list(range(GROUPS))
    assert sum(calls.drawn) == 2 * GROUPS


@by_engine
def test_there_are_as_many_releases_as_expressions_in_plans_that_run(frame, calls, engine):
    def fine(most=10**9):
        return X.dp.median(dpp.grid(0, most, step=1), epsilon=1 / most)

    expr, by_group = fine(), frame.lazy().group_by("g")
    twice = by_group.agg(a=expr, b=expr).collect(engine=engine)
    assert (twice["a"] != twice["b"]).any()
    assert calls.drawn == [GROUPS] * 2
    a, b = frame.lazy().select(fine().alias(name) for name in "ab").collect(engine=engine).row(0)
    assert a != b
    calls.clear()
    # One object twice in a select: two draws, or one where the optimizer of Polars sees that they are the same.
    frame.lazy().select(a=expr, b=expr).collect(engine=engine)
    assert calls.drawn in ([1], [1, 1])
    calls.clear()
    plan = frame.lazy().select(fine(10**15))
    assert plan.collect(engine=engine).item() != plan.collect(engine=engine).item()
    assert calls.drawn == [1, 1]
    calls.clear()
    plan = by_group.agg(y=expr)  # used twice in another plan
    joined = plan.join(plan, on="g").collect(engine=engine)
    assert joined["y"].equals(joined["y_right"], check_names=False)
    assert calls.drawn == [GROUPS]
    calls.clear()
    frame.lazy().with_columns(y=expr).select("x").collect(engine=engine)  # nobody reads it
    assert calls.drawn == []


@by_query
def test_plans_are_resolved_and_explained_without_a_draw(frame, monkeypatch, expr, truth):
    forbid(monkeypatch)
    for context in [*BY_GROUP.values(), *ALL_ROWS.values()]:
        plan = context(frame.lazy(), expr())
        dtype = plan.collect_schema()["y"]
        answer = dtype.inner if isinstance(dtype, pl.List) else dtype
        assert answer in (pl.Int64, pl.Float64, pl.String, pl.Enum(["a", "b", "c"]), pl.UInt32, pl.Null)
        for optimized in (True, False):
            plan.explain(optimized=optimized)
            plan.explain(optimized=optimized, format="tree")
        plan.explain(engine="streaming")
    assert repr(expr())
    with pytest.raises(AssertionError, match="something was drawn"):
        frame.select(expr())


@pytest.fixture(scope="module")
def files(frame, tmp_path_factory):
    """The rows in three files of many row groups."""
    folder = tmp_path_factory.mktemp("rows")
    for i in range(3):
        frame[i * 400 : (i + 1) * 400].write_parquet(folder / f"{i}.parquet", row_group_size=90)
    return folder / "*.parquet"


# What an optimizer might push below the draw, or split it for: each is one draw over all rows, or over those named.
PUSHED = {
    "filter by the answer": (lambda lf, e: lf.filter(e.is_not_null()), 1),
    "and by the rows": (lambda lf, e: lf.filter(e.is_not_null() & (G < 3)), 1),
    "filter later": (lambda lf, e: lf.with_columns(y=e).filter(G < 3), 1),
    "filter later by the answer": (lambda lf, e: lf.with_columns(y=e).filter(pl.col("y").is_not_null()), 1),
    "head": (lambda lf, e: lf.with_columns(y=e).head(2), 1),
    "two sources": (lambda lf, e: pl.concat([lf, lf]).filter(e.is_not_null()), 2),
    "a join": (lambda lf, e: lf.join(lf.select("g", z="x").unique("g"), on="g").filter(e.is_not_null()), 1),
    "lists": (lambda lf, e: lf.with_columns(z=pl.lit([1, 2])).explode("z").filter(e.is_not_null()), 2),
    "in turns": (lambda lf, e: lf.select(e.alias("y")).with_columns(z=pl.col("y")).head(1), 1),
}


@by_engine
@pytest.mark.parametrize(("context", "times"), PUSHED.values(), ids=PUSHED)
@by_query
def test_no_optimization_moves_a_draw(files, calls, expr, truth, context, times, engine):
    plan = context(pl.scan_parquet(files), expr())
    assert plan.collect(engine=engine).height > 0
    assert calls.drawn == [1]
    assert calls.encoded in ([], [times * GROUPS * ROWS])


@by_query
def test_results_in_pieces_are_one_draw(files, calls, expr, truth, tmp_path):
    plan = pl.scan_parquet(files).with_columns(y=expr())
    plan.sink_parquet(tmp_path / "answers.parquet")
    assert pl.read_parquet(tmp_path / "answers.parquet")["y"].n_unique() == 1
    pieces = plan.collect_batches(chunk_size=50, engine="streaming")
    assert len({str(piece["y"].to_list()[0]) for piece in pieces}) == 1
    assert calls.drawn == [1, 1]
