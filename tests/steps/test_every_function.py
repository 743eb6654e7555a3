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

from dp_polars._steps import nodes, plans
from dp_polars._steps import preparations as kinds
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
