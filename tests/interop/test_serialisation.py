"""Expressions and plans that travel: pickled, copied, serialized, to other threads, forks and processes."""

import copy
import io
import os
import pickle
import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from datetime import date

import polars as pl
import pytest

import dp_polars as dpp

pytestmark = pytest.mark.slow

X, S = pl.col("x"), pl.col("s")
SURE = {"epsilon": 10_000}
FRAME = pl.DataFrame(
    {"g": [1] * 5 + [2] * 5, "x": [3] * 5 + [8] * 5, "s": ["a", "b", "a", "a", "c", "b", "b", "b", "a", "c"]}
)
EXPRESSIONS = {
    "mode": (S.dp.mode(["a", "b", "c"], **SURE), ["a", "b"]),
    "mode of an enum": (S.cast(pl.Enum(["c", "b", "a"])).dp.mode(**SURE), ["a", "b"]),
    "median": (X.dp.median(range(10), **SURE), [3, 8]),
    "quantile": (X.dp.quantile(0.9, dpp.grid(0, 10**7, step=0.01), rho=10**9), [3.0, 8.0]),
    "days": (
        pl.date(2020, 1, X).dp.median([date(2020, 1, d) for d in (3, 8, 9)], **SURE),
        [date(2020, 1, 3), date(2020, 1, 8)],
    ),
    "argmax": (X.filter(S == "a").dp.argmax(sensitivity=1, **SURE), None),
    "renamed": (X.dp.median([3, 8], **SURE).alias("y").name.prefix("z_"), [3, 8]),
}
COPIES = {
    "pickle": lambda e: pickle.loads(pickle.dumps(e)),
    "oldest pickle": lambda e: pickle.loads(pickle.dumps(e, protocol=2)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


@pytest.mark.parametrize("again", COPIES.values(), ids=COPIES)
@pytest.mark.parametrize(("expr", "truth"), EXPRESSIONS.values(), ids=EXPRESSIONS)
def test_copies_ask_the_same(expr, truth, again):
    other = again(expr)
    assert type(other) is dpp.PrivateExpr
    assert other.query == expr.query
    assert repr(other) == repr(expr)
    assert other.meta.output_name() == expr.meta.output_name()
    assert again(expr.over("g")).query == expr.query
    answers = FRAME.group_by("g", maintain_order=True).agg(y=other)
    if truth is not None:
        assert answers["y"].to_list() == truth
    assert answers.schema["y"] == FRAME.group_by("g").agg(y=expr).schema["y"]
    # A copy of a copy that was used before is as good.
    assert FRAME.select(again(other)).schema == FRAME.select(expr).schema


def plan():
    return (
        FRAME.lazy()
        .group_by("g", maintain_order=True)
        .agg(expr.alias(name) for name, (expr, truth) in EXPRESSIONS.items() if truth is not None)
    )


TRUTH = {name: truth for name, (_, truth) in EXPRESSIONS.items() if truth is not None}


def test_plans_survive_serialization():
    again = pl.LazyFrame.deserialize(io.BytesIO(plan().serialize()))
    assert again.collect_schema() == plan().collect_schema()
    for engine in ("in-memory", "streaming"):
        assert again.collect(engine=engine).drop("g").to_dict(as_series=False) == TRUTH
    assert pickle.loads(pickle.dumps(plan())).collect().drop("g").to_dict(as_series=False) == TRUTH


def test_expressions_survive_polars_own_serialization():
    """They come back as plain expressions, with the same effect."""
    expr, truth = EXPRESSIONS["median"]
    again = pl.Expr.deserialize(expr.meta.serialize())
    assert FRAME.group_by("g", maintain_order=True).agg(again)["x"].to_list() == truth


# Cold: without cloudpickle, as code that the functions are found in by their names.
READER = """
    import sys
    sys.modules["cloudpickle"] = None
    import io, pickle
    import polars as pl
    sent = pickle.load(sys.stdin.buffer)
    answers = pl.LazyFrame.deserialize(io.BytesIO(sent["plan"])).collect()
    assert answers.drop("g").to_dict(as_series=False) == sent["truth"], answers
    expr = pickle.loads(sent["expr"])
    assert type(expr).__name__ == "PrivateExpr"
    print(expr)
"""


def run(script, sent=b""):
    """Standard output of a Python script in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(script)],
        input=sent,
        capture_output=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def test_plans_and_expressions_travel_to_other_processes():
    expr = EXPRESSIONS["median"][0]
    sent = {"plan": plan().serialize(), "truth": TRUTH, "expr": pickle.dumps(expr)}
    assert run(READER, pickle.dumps(sent)).strip() == str(expr)


# Nobody shares a stream of random words. The grid has 2**52 points: two equal answers among 30 draws come by chance
# with a probability of 1e-13.
VAST = X.dp.median(dpp.grid(0, 2**52 - 1, step=1), epsilon=1e-300)


def test_threads_and_copies_draw_different_answers():
    copies = [again(VAST) for again in COPIES.values()] * 4
    with ThreadPoolExecutor(8) as pool:
        for exprs in ([VAST] * 30, copies):
            answers = list(pool.map(lambda expr: FRAME.select(expr).item(), exprs))
            assert len(set(answers)) == len(exprs)


FORKS = """
    import os, warnings
    import numpy as np
    import dp_polars as dpp
    from dp_polars._mechanisms import drawing

    warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of forks beside threads
    draw = dpp.median("x", dpp.grid(0, 2**52 - 1, step=1), epsilon=1e-300).query.draw()

    def answer():
        # In NumPy: the threads of Polars don't survive a fork.
        os.write(1, b"%d\\n" % drawing.draw_from_rows(draw, np.zeros(3, np.uint64), np.array([3]))[0])

    answer()
    for _ in range(6):
        child = os.fork()
        if child == 0:
            answer()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    answer()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_forks_draw_different_answers():
    answers = run(FORKS).split()
    assert len(answers) == len(set(answers)) == 8
