"""Prints what releases of edge cases answer, from fixed random words: `python -m tests.interop.answers [ENGINE]`.

With an engine that Polars shall prefer, all that a process may set about arithmetic and warnings is set otherwise, too.
"""

import hashlib
import sys
import warnings
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
import polars as pl

import dp_polars as dpp
from tests.helpers.spies import fix_words

EDGES = [0.0, -0.0, 5e-324, -1e-310, 2.0**-1022, 0.5, 3.5, 1e20, 1.7e308, -1.7e308, np.inf, -np.inf, np.nan, None]


def frame() -> pl.DataFrame:
    """Return rows of people whose bounds never choose between rows that differ, over all edge cases."""
    x = pl.Series(EDGES * 40, dtype=pl.Float64)
    number = pl.int_range(len(x), eager=True)
    return pl.DataFrame(
        {
            "p": number,
            "x": x,
            "single": x.cast(pl.Float32),
            "n": (x.clip(-9e18, 9e18).fill_nan(None)).cast(pl.Int64),
            "d": (x.clip(-9e17, 9e17).fill_nan(None)).cast(pl.Decimal(20, 1)),
            "word": pl.select(pl.when(number % 3 == 0).then(pl.lit("a")).otherwise(pl.lit("b"))).to_series(),
            "own": pl.select(pl.when(number % 2 == 0).then(5e-324).otherwise(1.5)).to_series(),
        }
    )


def answers() -> Iterator[tuple[str, object]]:
    """Yield the name of each answer, and the answer."""
    rows = frame()
    for column in ("x", "single", "n", "d"):
        loss = {"epsilon": 0.5}
        asked = {
            "points": dpp.median(column, [-1e300, -1.0, 0.0, 1e-310, 2.5, 1e300], **loss),
            "grid": dpp.quantile(column, 0.25, range(-50, 50), **loss),
            "list": dpp.quantile(column, [0.1, 0.5, 0.9], range(-50, 50), **loss),
            "sum": dpp.sum(column, -10, 10, step=0.5, **loss),
            "mean": dpp.mean(column, -10, 10, step=0.5, rho=0.1),
            "weighed": dpp.mode("word", ["a", "b", "c"], counts=dpp.weights(column, max_weight=4, step=1), **loss),
        }
        yield f"columns {column}", rows.select(expr.alias(name) for name, expr in asked.items() if name != "weighed")
        words = pl.DataFrame({"word": ["a", "b", "z"]})
        for unit, bound, partitions in ((None, None, 1), ("p", 1, 1), ("p", 2, 3)):
            private = rows.lazy().dp.protect(unit, max_rows=bound).with_columns(pl.col("x") * 3).group_by(words)
            yield f"people {column} {unit} {bound}", private.agg(**asked).release(intervals=True, partitions=partitions)
    for column in ("x", "n", "d"):
        for gap in (False, True):
            best = dpp.argmax(column, sensitivity=1, epsilon=1, gap=gap, gap_step=0.5 if gap else None)
            yield f"argmax {column} {gap}", rows.select(best)
    yield "own", rows.select(dpp.argmin("x", sensitivity=pl.col("own"), epsilon=1e-300))
    modes = {f"mode {i}": dpp.mode("word", ["a", "b"], epsilon=1, gap=bool(i)) for i in range(2)}
    yield "modes", rows.select(**modes, top=dpp.top_k("word", 2, list("abcdef"), epsilon=1))
    private = rows.dp.protect("p", max_groups=1).filter(pl.col("word") == "a")  # of several keys the order is chance
    yield "keys", private.keys("word", rho=0.1, delta=1e-6, with_counts=True).release()
    yield "rows", rows.dp.protect("p", max_rows=1).agg(dpp.len(epsilon=1)).n_rows_dropped(9, epsilon=1).release()
    for draw in (dpp.mechanisms.permute_and_flip, dpp.mechanisms.exponential_mechanism):
        for loss in (1e-280, 1, 20):
            yield f"{draw.__name__} {loss}", draw([EDGES[:9], [*range(9)]], epsilon=loss, sensitivity=1)
    yield "laplace", dpp.mechanisms.discrete_laplace([0] * 5000, epsilon=Fraction(1, 2**40), sensitivity=1)
    yield "gaussian", dpp.mechanisms.discrete_gaussian([0] * 5000, rho=1e-20, sensitivity=1)


def text_of(answer: object) -> str:
    """Return an answer as a text that tells every bit of it."""
    if isinstance(answer, pl.DataFrame):
        return hashlib.sha256(repr((answer.schema, answer.rows())).encode()).hexdigest()
    return hashlib.sha256(repr(np.asarray(answer).tolist()).encode()).hexdigest()


def _be_loud(engine: str) -> None:
    pl.Config.warn_unstable(True)
    pl.Config.set_streaming_chunk_size(7)
    pl.Config.set_engine_affinity(engine)
    np.seterr(all="raise")
    warnings.simplefilter("error")
    # On 1.36 with that affinity Polars says so of every function of a Series, also where the caller uses one.
    warnings.filterwarnings("ignore", "streaming mode")


if __name__ == "__main__":
    if sys.argv[1:]:
        _be_loud(sys.argv[1])
    fix_words()
    for name, answer in answers():
        print(name, text_of(answer))
