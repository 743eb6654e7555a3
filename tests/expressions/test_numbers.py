"""Numbers as expressions: wherever an expression goes, one draw per group."""

import pickle

import numpy as np
import polars as pl
import pytest
from polars.exceptions import ComputeError

import dp_polars as dpp

SURE = 10**9
FRAME = pl.DataFrame({"g": [1, 1, 2, 2, 2], "x": [1, 2, 3, None, 5], "t": [1, 2, 3, 4, 5]})


def asks(**loss):
    return [
        dpp.len(**loss),
        dpp.count("x", **loss).alias("count"),
        dpp.sum("x", -5, 4, **loss).alias("sum"),
        dpp.mean("x", 0, 10, **loss).alias("mean"),
        dpp.value_counts("x", [1, 2], **loss).list.eval(pl.element().struct.field("count")).alias("counts"),
    ]


ONE, TWO = (2, 2, 3, 1.5, [1, 1]), (3, 2, 7, 4.0, [0, 0])


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
def test_everywhere(engine):
    lazy, exprs = FRAME.lazy(), asks(epsilon=SURE)
    assert lazy.select(exprs).collect(engine=engine).rows() == [(5, 4, 10, 2.75, [1, 1])]
    assert sorted(lazy.group_by("g").agg(exprs).collect(engine=engine).rows()) == [(1, *ONE), (2, *TWO)]
    windows = lazy.group_by_dynamic("t", every="2i").agg(exprs).collect(engine=engine)
    assert windows.rows() == [(0, 1, 1, 1, 1, [1, 0]), (2, 2, 2, 5, 2.5, [0, 1]), (4, 2, 1, 4, 5, [0, 0])]
    over = lazy.select("g", *(expr.over("g") for expr in exprs)).collect(engine=engine)
    assert over.rows() == [(1, *ONE)] * 2 + [(2, *TWO)] * 3
    empty = FRAME.clear().lazy()
    assert empty.select(exprs).collect(engine=engine).rows() == [(0, 0, 0, 5, [0, 0])]
    assert empty.group_by("g").agg(exprs).collect(engine=engine).rows() == []
    schema = lazy.select(exprs).collect_schema()
    assert schema == lazy.select(exprs).collect(engine=engine).schema


def test_every_group_has_noise_of_its_own_and_every_row_of_it_the_same():
    frame = pl.DataFrame({"g": np.repeat(np.arange(500), 3), "x": 1})
    found = frame.with_columns(n=dpp.len(epsilon=0.01).over("g"), s=dpp.sum("x", 0, 1, rho=0.0001).over("g"))
    by_group = found.group_by("g").agg(pl.col("n", "s").n_unique())
    assert (by_group["n"] == 1).all()
    assert (by_group["s"] == 1).all()
    assert found["n"].n_unique() > 100
    assert found["s"].n_unique() > 100
    assert frame.select(dpp.len(epsilon=0.001)).item() != frame.select(dpp.len(epsilon=0.001)).item()


def test_filters_and_chunks():
    chunks = pl.concat([FRAME[:2], FRAME[2:]], rechunk=False)
    late = pl.col("x").filter(pl.col("t") > 2)
    found = chunks.group_by("g", maintain_order=True).agg(
        late.dp.sum(0, 9, epsilon=SURE),
        late.dp.count(epsilon=SURE).alias("n"),
        late.dp.mean(0, 9, epsilon=SURE).alias("m"),
    )
    assert found.rows() == [(1, 0, 0, 4.5), (2, 8, 2, 4.0)]
    assert chunks.select((pl.col("x") > 2).dp.sum(0, 1, epsilon=SURE)).item() == 2


def test_names():
    found = FRAME.select(
        dpp.sum("x", 0, 5, epsilon=1).name.suffix("_s"),
        dpp.count("x", epsilon=1).name.prefix("n_"),
        dpp.len(epsilon=1),
        dpp.len(epsilon=1).alias("rows"),
        dpp.mean(pl.col("t").alias("y"), 0, 5, epsilon=1),
        dpp.sum(pl.col("x").alias("z"), 0, 5, epsilon=1).name.keep(),
    )
    assert found.columns == ["x_s", "n_x", "len", "rows", "y", "x"]


def test_they_pickle():
    exprs = [pickle.loads(pickle.dumps(expr)) for expr in asks(epsilon=SURE)[:4]]
    assert FRAME.select(exprs).row(0) == (5, 4, 10, 2.75)
    again = pickle.loads(pickle.dumps(dpp.n_people(rho=1)))
    assert again.query == dpp.n_people(rho=1).query
    assert pickle.loads(pickle.dumps(dpp.mean("x", 0, 1, rho=1).query.claim))._draws == 2


def test_a_plain_frame_does_not_know_who_is_a_person():
    words = (
        r"(?s)number of people: it must be used on a private frame that knows who is a person.*Hint: frame.dp.protect"
    )
    for lazy in (FRAME.lazy().select(dpp.n_people(epsilon=1)), FRAME.lazy().group_by("g").agg(dpp.n_people(epsilon=1))):
        with pytest.raises(pl.exceptions.ComputeError, match=words):
            lazy.collect_schema()
        with pytest.raises(pl.exceptions.ComputeError, match=words):
            lazy.collect()


def test_contributions_make_more_noise():
    one = dpp.len(epsilon=1).query.claim
    assert dpp.len(epsilon=1, contributions=3).query.claim.rate == one.rate / 3
    assert dpp.len(rho=0.5, contributions=3).query.claim.rate == one.rate / 3


def test_descriptions():
    assert "number of rows\nloss:      epsilon=1 in all (as rho: 0.462118)" in repr(dpp.len(epsilon=1))
    assert "as epsilon" not in repr(dpp.len(rho=1))
    assert "sum of values from 0 to 5" in str(dpp.sum("x", 0, 5, rho=1))
    assert "counts of 2 candidates" in str(dpp.value_counts("x", [1, 2], rho=1))


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: dpp.len(rho=1, epsilon=1), TypeError, "at most one of within, epsilon, rho and loss_weight"),
        (lambda: dpp.n_people(epsilon=float("nan")), ValueError, "epsilon must be finite"),
        (lambda: dpp.count("x", epsilon=-1), ValueError, "epsilon must be greater than 0"),
        (lambda: dpp.len(epsilon=1, mechanism="laplace"), ValueError, "mechanism must be one of"),
        (lambda: dpp.len(epsilon=1, mechanism="discrete_gaussian"), ValueError, "give its loss as rho"),
        (lambda: dpp.len(epsilon=1, contributions=True), TypeError, "contributions must be an integer"),
        (lambda: dpp.len(epsilon=2.0**-60), ValueError, "the noise must have a scale of at most 2\\*\\*50"),
        (lambda: pl.select(x=1).select(dpp.count(pl.all(), epsilon=1)), ComputeError, "one output"),
        (lambda: dpp.count(dpp.len(epsilon=1), epsilon=1), TypeError, "must not be a private answer itself"),
        (
            lambda: dpp.value_counts("x", None, epsilon=1),
            TypeError,
            "candidates must be given: every one of them gets a",
        ),
        (lambda: dpp.value_counts("x", [], epsilon=1), ValueError, "candidates must not be empty"),
        (lambda: dpp.value_counts("x", [1, 1], epsilon=1), ValueError, "candidates must not repeat"),
        (lambda: dpp.value_counts("x", [1, None], epsilon=1), ValueError, "candidates must not contain null"),
        (lambda: dpp.mode("x", [1], epsilon=1, counts="everyone"), ValueError, "counts must be 'people', 'rows' or"),
        (lambda: dpp.mode("x", [1], epsilon=1, too_few=0), ValueError, "too_few must be at least 1"),
        (lambda: dpp.mode("x", [1], epsilon=1, too_few=1.5), TypeError, "too_few must be an integer"),
        (lambda: dpp.mode("x", [1], epsilon=1, too_few=2**31), ValueError, "too_few must be below 2\\*\\*31"),
        (lambda: dpp.mode("x", [1], epsilon=1, mechanism="discrete_laplace"), ValueError, "mechanism must be one of"),
    ],
)
def test_arguments(make, error, words):
    with pytest.raises(error, match=words):
        make()


def test_a_value_count_of_another_type():
    with pytest.raises(pl.exceptions.ComputeError, match="column 'x', counts of 1 candidate"):
        FRAME.lazy().select(dpp.value_counts("x", ["a"], epsilon=1)).collect_schema()
