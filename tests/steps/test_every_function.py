"""Every function, expression and plan node of the installed Polars is on a list: what is on none is refused.

Polars names all of its own where it is given one that is not there, so nothing is left to a list of methods.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import polars as pl
import pytest

from dp_polars._sources import check as kinds
from dp_polars._sources import plans
from dp_polars._steps import nodes
from tests.helpers.needs import IS_OLD
from tests.helpers.refusals import refused

LISTS = {
    name: getattr(nodes, name)
    for name in (
        *("BREAKING", "CODE", "COMBINING", "COMPARING", "FILLING"),
        *("MOVING", "PLACING", "RANDOM", "RESIZING", "SORTING"),
    )
}
FRAME = pl.LazyFrame({"a": [1], "person": [1]})


@cache
def filtered() -> Any:
    return json.loads(FRAME.filter(pl.col("a") > 0).serialize(format="json"))["Filter"]


def named(tree: object) -> list[str]:
    """Return the names that Polars knows where this plan has one that it does not know."""
    with pytest.raises(pl.exceptions.ComputeError) as error:
        pl.LazyFrame.deserialize(io.BytesIO(json.dumps(tree).encode()), format="json")
    _, *found = re.findall(r"`(\w+)`", str(error.value)) if "unknown variant" in str(error.value) else [""]
    return found


def of_predicate(predicate: object) -> list[str]:
    return named({"Filter": {**filtered(), "predicate": predicate}})


def functions() -> Iterator[Any]:
    """Yield each function as JSON has it, without its parameters."""
    for one in of_predicate({"Function": {"input": [], "function": "Nothing"}}):
        variants = of_predicate({"Function": {"input": [], "function": {one: "Nothing"}}})
        is_room = one != "Bin" and nodes.function_of({one: "nothing"})[0] != nodes.function_name(one)
        yield from ({one: variant} for variant in variants) if variants and is_room else [one]


def name_of(function: Any) -> str:
    # Which bins are meant stands in their parameters.
    return "bin_quantiles" if function == "Bin" else nodes.function_of(function)[0]


@pytest.mark.filterwarnings("ignore")
def test_every_function_is_on_one_list():
    found = {name_of(one) for one in functions()}
    assert len(found) > 300
    for name in found:
        on = [of for of, members in {**LISTS, "BY_ROW": nodes.BY_ROW}.items() if name in members]
        assert len(on) == 1, (name, on)


# Expressions that are no functions: by row, or looked at in a way of their own.
OWN = {
    *("Alias", "BinaryExpr", "Cast", "Column", "DataTypeFunction", "Display", "Element", "Field", "KeepName"),
    *("Literal", "RenameAlias", "Selector", "StructEval", "Ternary"),
    *("Agg", "AnonymousFunction", "Eval", "Function", "Over", "PipeWithDtype", "SubPlan"),
}


@pytest.mark.filterwarnings("ignore")
def test_every_expression_is_known():
    several = set().union(*LISTS.values())
    assert {one for one in of_predicate("Nothing") if nodes.function_name(one) not in several} - OWN == set()
    aggregations = {nodes.function_name(one) for one in of_predicate({"Agg": "Nothing"})}
    assert aggregations - several == set()
    variants = of_predicate({"Eval": {"expr": {"Column": "a"}, "evaluation": "Element", "variant": "Nothing"}})
    assert {*variants} == {"List", "ListAgg", "Array", "ArrayAgg", "Cumulative"}
    window = {"function": {"Column": "a"}, "partition_by": [], "order_by": None, "mapping": "Nothing"}
    assert {*of_predicate({"Over": window})} == {"GroupsToRows", "Explode", "Join"}


# What a plan's JSON may hold: what Polars shows as other nodes, what the check takes, and what it refuses.
RESOLVED = {"IR", "MatchToSchema", "PipeWithSchema", "Pivot", "Resolver", "SQL"}
READ = {"DataFrameScan", "PythonScan", "Scan"}
TAKEN = {"Distinct", "GroupBy", "HStack", "Join", "MapFunction", "Select"} | plans._SAME_ROWS
REFUSED = {"Recursive", "Sink", "SinkMultiple", "WorkingTable"} | plans._BY_PLACE.keys()


@pytest.mark.filterwarnings("ignore")
def test_every_node_of_a_plan_is_known():
    assert {*named("Nothing")} - RESOLVED - READ - TAKEN - REFUSED == set()
    maps = {*named({"MapFunction": {"input": filtered()["input"], "function": "Nothing"}})}
    resolved = {"FillNan", "Rename", "Stats"}
    taken = {one for one in maps if nodes.function_name(one) in plans._MAPS}
    assert maps - resolved - taken == {"Hint", "OpaquePython", "RowIndex"}


def test_no_function_is_on_two_lists():
    every = [nodes.BY_ROW, *LISTS.values()]
    assert sum(map(len, every)) == len(frozenset().union(*every))


@pytest.mark.parametrize("name", ["a_function_of_a_later_polars", "list.a_function", "str.a_function"])
def test_what_is_on_no_list_is_refused_with_all_ways_on(name, monkeypatch):
    assert plans.kind_of_function(name) is kinds.UNLISTED
    monkeypatch.setattr(nodes, "name_in_plan", lambda _: name)
    plan = FRAME.with_columns(pl.col("a").abs())
    words = rf"^protect: `{re.escape(name)}` is not known to look at one row alone, [\s\S]*over the privacy unit"
    error = refused(ValueError, words, plan.dp.protect, "person")
    assert "public constant" in str(error)
    assert "unchecked=True" in str(error)
    FRAME.with_columns(pl.col("a").abs().over("person")).dp.protect("person", max_rows=1)


# Every method of a LazyFrame: what makes no plan, what is taken before `protect`, and what is refused, on some columns.
NO_PLAN = set(
    """
    clone collect collect_async collect_batches collect_schema columns describe deserialize dtypes execute explain fetch
    from_lazyframe_resolver profile remote schema serialize show show_graph sink_batches sink_delta sink_iceberg width
    """.split()  # noqa: SIM905
)
ROWS = pl.LazyFrame({"person": [1, 1], "a": [1, 2], "l": [[1], [2]], "s": [{"f": 1}, {"f": 2}]})
FLAT = ROWS.select("person", "a")
a = pl.col("a")
TAKEN_METHODS = {
    "cache": lambda: ROWS.cache(),
    "cast": lambda: ROWS.cast({"a": pl.Float64}),
    "clear": lambda: ROWS.clear(),
    "drop": lambda: ROWS.drop("l"),
    "drop_nans": lambda: FLAT.cast({"a": pl.Float64}).drop_nans(),
    "drop_nulls": lambda: ROWS.drop_nulls(),
    "explode": lambda: ROWS.explode("l"),
    "fill_nan": lambda: FLAT.cast({"a": pl.Float64}).fill_nan(0),
    "fill_null": lambda: FLAT.fill_null(0),
    "filter": lambda: ROWS.filter(a > 1),
    "group_by": lambda: ROWS.group_by("person").agg(a.sum()),
    "group_by_dynamic": lambda: ROWS.group_by_dynamic("a", every="1i", group_by="person").agg(pl.len()),
    "join": lambda: FLAT.join(FLAT, on="person"),
    "join_asof": lambda: FLAT.sort("a").join_asof(FLAT.sort("a"), on="a", by="person"),
    "join_where": lambda: FLAT.join_where(pl.LazyFrame({"b": [1]}), a < pl.col("b")),
    "lazy": lambda: ROWS.lazy(),
    "match_to_schema": lambda: ROWS.match_to_schema(ROWS.collect_schema()),
    "melt": lambda: FLAT.unpivot("a", index="person"),
    "merge_sorted": lambda: FLAT.merge_sorted(FLAT, key="a"),
    "pipe": lambda: ROWS.pipe(lambda rows: rows.filter(a > 1)),
    "pipe_with_schema": lambda: ROWS.pipe_with_schema(lambda rows, _: rows.filter(a > 1)),
    "pivot": lambda: FLAT.with_columns(k=1).pivot(
        "k", on_columns=[1], index="person", values="a", aggregate_function="sum"
    ),
    "remove": lambda: ROWS.remove(a > 1),
    "rename": lambda: ROWS.rename({"a": "b"}),
    "rolling": lambda: FLAT.sort("a").rolling("a", period="2i", group_by="person").agg(pl.len()),
    "select": lambda: ROWS.select("person", a + 1),
    "select_seq": lambda: ROWS.select_seq("person", a + 1),
    "sort": lambda: ROWS.sort("a"),
    "sql": lambda: ROWS.sql("select person, a + 1 as b from self"),
    "unique": lambda: FLAT.unique(["person", "a"]),
    "unnest": lambda: ROWS.unnest("s"),
    "unpivot": lambda: FLAT.unpivot("a", index="person"),
    "update": lambda: FLAT.update(FLAT.select("person", "a"), on="person"),
    "with_columns": lambda: ROWS.with_columns(b=a + 1),
    "with_columns_seq": lambda: ROWS.with_columns_seq(b=a + 1),
}
REFUSED_METHODS = {
    "approx_n_unique": lambda: FLAT.approx_n_unique(),
    "bottom_k": lambda: FLAT.bottom_k(1, by="a"),
    "count": lambda: FLAT.count(),
    "first": lambda: FLAT.first(),
    "gather": lambda: FLAT.gather([0]),
    "gather_every": lambda: FLAT.gather_every(2),
    "head": lambda: FLAT.head(1),
    "inspect": lambda: FLAT.inspect(),
    "interpolate": lambda: FLAT.interpolate(),
    "last": lambda: FLAT.last(),
    "limit": lambda: FLAT.limit(1),
    "map_batches": lambda: FLAT.map_batches(lambda rows: rows, schema=FLAT.collect_schema()),
    "max": lambda: FLAT.max(),
    "mean": lambda: FLAT.mean(),
    "median": lambda: FLAT.median(),
    "min": lambda: FLAT.min(),
    "null_count": lambda: FLAT.null_count(),
    "quantile": lambda: FLAT.quantile(0.5),
    "reverse": lambda: FLAT.reverse(),
    "set_sorted": lambda: FLAT.set_sorted("a").filter(a > 1),
    "shift": lambda: FLAT.shift(1, fill_value=0),
    "sink_csv": lambda: FLAT.sink_csv("rows", lazy=True),
    "sink_ipc": lambda: FLAT.sink_ipc("rows", lazy=True),
    "sink_ndjson": lambda: FLAT.sink_ndjson("rows", lazy=True),
    "sink_parquet": lambda: FLAT.sink_parquet("rows", lazy=True),
    "slice": lambda: FLAT.slice(1),
    "std": lambda: FLAT.std(),
    "sum": lambda: FLAT.sum(),
    "tail": lambda: FLAT.tail(1),
    "top_k": lambda: FLAT.top_k(1, by="a"),
    "var": lambda: FLAT.var(),
    "with_context": lambda: FLAT.with_context(FLAT.select(b="a")).select("person", pl.col("b").sum()),
    "with_row_count": lambda: FLAT.with_row_index(),
    "with_row_index": lambda: FLAT.with_row_index(),
}


def test_every_method_of_a_frame_is_on_one_list():
    methods = {name for name in dir(pl.LazyFrame) if not name.startswith("_")} - {"dp"}
    lists = [NO_PLAN, TAKEN_METHODS.keys(), REFUSED_METHODS.keys()]
    assert methods - set().union(*lists) == set()
    assert sum(map(len, lists)) == len(set().union(*lists))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [*TAKEN_METHODS, *REFUSED_METHODS])
def test_a_method_of_a_frame_is_taken_or_refused(name):
    if not hasattr(pl.LazyFrame, name):
        return
    if name in TAKEN_METHODS and not (IS_OLD and name == "join_where"):  # a cross join in Polars 1
        plans.preprocessing_of(TAKEN_METHODS[name](), ("person",))
    else:
        made = (TAKEN_METHODS | REFUSED_METHODS)[name]()
        refused(ValueError, r"^protect: [\s\S]*\n\nHint: ", plans.preprocessing_of, made, ("person",))
