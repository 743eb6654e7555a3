"""Polars' GPU engine, an affinity to it, and `collect_async`: what runs on the CPU, and what is refused.

No GPU is needed. cuDF's executor is a function that Polars hands the optimized plan. One that reads the plan in the
same way stands in its place. What a real one computes is not tested here.
"""

import asyncio
import sys
import types

import polars as pl
import pytest

import dp_polars as dpp

FRAME = pl.LazyFrame({"p": range(100), "g": ["a", "b"] * 50, "x": [1, 2] * 50})
SURE = {"epsilon": 10_000}
MEDIAN = FRAME.group_by("g", maintain_order=True).agg(dpp.median("x", range(5), **SURE))
PLAIN = {
    "group_by": MEDIAN,
    "over": FRAME.select("g", dpp.median("x", range(5), **SURE).over("g")).unique(maintain_order=True),
}
EXPRESSIONS = {
    "mode": dpp.mode("g", ["a", "b"], **SURE),
    "list": dpp.quantile("x", [0.1, 0.9], range(5), **SURE),
    "top": dpp.top_k("g", 1, ["a", "b"], **SURE),
    "argmax": dpp.argmax("x", sensitivity=1, **SURE),
    "sum": dpp.sum("x", 0, 5, **SURE),
    "len": dpp.len(**SURE),
}
GPUS = [
    "gpu",
    pytest.param(pl.GPUEngine(), id="object"),
    pytest.param(pl.GPUEngine(raise_on_fail=False), id="that may fall back"),
]
ANSWERS = [("a", 1), ("b", 2)]


class Executor:
    """What `cudf_polars` is to Polars; it notes what it can't read, and which plans it could run."""

    def __init__(self):
        self.unread, self.plans = [], 0

    def execute_with_cudf(self, plan, *_, config):
        self.plans += 1
        nodes = [plan.get_node()]
        try:
            while nodes:
                plan.set_node(nodes.pop())
                plan.view_current_node()
                expressions = [expr.node for expr in plan.get_exprs()]
                while expressions:
                    seen = plan.view_expression(expressions.pop())
                    parts = [getattr(seen, name, []) for name in ("expr", "input", "arguments", "function", "left")]
                    parts = [part for some in parts for part in (some if isinstance(some, list) else [some])]
                    expressions += [part for part in parts if type(part) is int]
                nodes += plan.get_inputs()
        except NotImplementedError as error:
            if config.config.get("raise_on_fail"):
                raise
            self.unread.append(str(error))  # and Polars goes on as if there were no GPU


@pytest.fixture
def gpu(monkeypatch):
    executor = Executor()
    package = types.ModuleType("cudf_polars")
    package.execute_with_cudf = executor.execute_with_cudf
    monkeypatch.setitem(sys.modules, "cudf_polars", package)
    return executor


@pytest.fixture
def prefers_gpu():
    with pl.Config():
        pl.Config.set_engine_affinity("gpu")
        yield


@pytest.mark.parametrize("engine", GPUS)
@pytest.mark.parametrize("plain", PLAIN)
def test_a_plain_expression_falls_back_to_the_cpu(plain, engine, gpu):
    assert PLAIN[plain].collect(engine=engine).rows() == ANSWERS
    assert gpu.plans == 1
    assert gpu.unread == ["anonymousfunction"]


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_no_gpu_can_read_any_expression(name, gpu):
    plan = FRAME.select(EXPRESSIONS[name])
    assert plan.collect(engine="gpu").height == 1
    assert gpu.unread == ["anonymousfunction"]
    with pytest.raises(pl.exceptions.ComputeError, match="anonymousfunction"):
        plan.collect(engine=pl.GPUEngine(raise_on_fail=True))


def test_the_executor_reads_what_polars_has(gpu):
    assert FRAME.group_by("g").agg(pl.col("x").sum()).collect(engine="gpu").height == 2
    assert (gpu.plans, gpu.unread) == (1, [])


@pytest.mark.parametrize("engine", GPUS)
def test_without_the_engine_polars_itself_refuses(engine, monkeypatch):
    monkeypatch.setitem(sys.modules, "cudf_polars", None)
    for plan in (FRAME, MEDIAN):
        with pytest.raises(ModuleNotFoundError, match="cudf_polars"):
            plan.collect(engine=engine)


def test_async_answers_are_answers():
    async def main():
        return await MEDIAN.collect_async(), await pl.collect_all_async([MEDIAN])

    one, (other,) = asyncio.run(main())
    assert one.rows() == other.rows() == ANSWERS


@pytest.mark.parametrize("engine", GPUS)
def test_a_private_frame_refuses_the_gpu_unpaid(engine, tmp_path):
    budget = dpp.Budget(epsilon=1)
    query = FRAME.dp.protect("p", budget=budget, max_rows=1).agg(dpp.len(epsilon=1))
    for release in (query.release, lambda **given: query.sink_parquet(tmp_path / "file", **given)):
        with pytest.raises(ValueError, match=r"^engine must be one of .*CPU's engines alone\.\n\nHint: leave it out"):
            release(engine=engine)
    assert budget.spent == 0
    assert not [*tmp_path.iterdir()]


def ways():
    """Yield private frames whose steps, joins and queries make plans of all kinds."""
    private, public = FRAME.dp.protect("p", max_rows=2, max_groups=2), pl.LazyFrame({"g": ["a", "b"], "y": [1, 2]})
    asks = {"n": dpp.n_people(epsilon=1), "m": dpp.mean("x", 0, 5, epsilon=1), "q": dpp.median("x", [1, 2], epsilon=1)}
    yield private.filter(pl.col("x") > 1).group_by({"g": ["a"]}).agg(**asks)
    yield private.join(public, on="g").agg(dpp.len(epsilon=1))
    yield FRAME.dp.protect("p", max_groups=1).keys("g", epsilon=1, delta=1e-6)
    yield FRAME.dp.protect(None).agg(dpp.mode("g", ["a", "b"], epsilon=1))
    yield private.agg(dpp.len(epsilon=1)).n_rows_dropped(1, epsilon=1)


def test_a_private_frame_takes_no_notice_of_the_affinity(gpu, prefers_gpu):
    for query in ways():
        query.explain()
        for partitions in (1, 2):
            query.release(partitions=partitions)
    assert gpu.plans == 0
    FRAME.collect()
    assert gpu.plans == 1


def test_a_private_frame_needs_no_gpu_where_one_is_preferred(prefers_gpu, monkeypatch):
    monkeypatch.setitem(sys.modules, "cudf_polars", None)
    for query in ways():
        query.release()


@pytest.mark.parametrize("name", ["remote", "collect_async"])
def test_a_private_frame_runs_nowhere_else(name):
    with pytest.raises(AttributeError, match=r"release\(\)"):
        getattr(FRAME.dp.protect("p"), name)
