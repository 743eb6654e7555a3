"""The names that users call: signatures, and that a method and its function are one."""

import collections
import inspect
import pydoc

import numpy as np
import polars as pl
import pytest

import dp_polars as dpp
from dp_polars._expressions.namespace import PrivateNamespace
from tests.registry import ASKS, LOSS, NUMBERS
from tests.registry import MISSING as EMPTY

METHODS = {**ASKS, **NUMBERS}


def parameters(function):
    """Names and defaults: those that may be positional, and the keyword-only ones."""
    found = [p for p in inspect.signature(function).parameters.values() if p.name != "self"]
    return tuple(
        {p.name: p.default for p in found if (p.kind is p.KEYWORD_ONLY) == keyword_only}
        for keyword_only in (False, True)
    )


def test_the_accessor_says_what_it_is():
    assert repr((pl.col("x") + 1).dp).startswith('<.dp of [(col("x")) + (dyn int: 1)]: argmax, argmin, ')
    for name in METHODS:
        assert f" {name}," in repr(pl.col("x").dp).replace(">", ",")


@pytest.mark.parametrize("name", METHODS)
def test_methods_and_functions_have_exactly_these_parameters_and_say_what_they_do(name):
    method, function, known = getattr(PrivateNamespace, name), getattr(dpp, name), METHODS[name]
    assert parameters(method) == (known.positional, known.keywords)
    assert parameters(function) == ({"column": EMPTY, **known.positional}, known.keywords)
    sections = ("Parameters", "Returns", "Raises", "Examples")
    assert [one for one in sections if f"\n{one}\n{'-' * len(one)}\n" not in inspect.getdoc(method)] == []
    assert "\ncolumn\n" in inspect.getdoc(function)
    assert "\ncolumn\n" not in inspect.getdoc(method)
    example = inspect.getdoc(method).partition("\nExamples\n")[2]
    assert ".dp.protect(" in example or name in ("argmax", "argmin")  # their scores would be raw rows


def test_methods_are_methods():
    for name in METHODS:
        method = inspect.unwrap(vars(PrivateNamespace)[name])
        assert inspect.isfunction(method)
        assert method.__qualname__ == f"PrivateNamespace.{name}"
        shown = pydoc.render_doc(getattr(pl.col("x").dp, name), renderer=pydoc.plaintext)
        signature, _, text = shown.partition("method of")
        assert f"\n{name}(" in signature
        assert "column" not in signature
        assert "Parameters\n" in text


def test_no_docstring_is_a_copy_of_others():
    """A text for parameters may be shared once: where it is said, and where it is said again."""
    owners = (PrivateNamespace, dpp.PrivateFrame, dpp.PrivateQuery, dpp.Publication, dpp.Budget, dpp.PrivateExpr)
    found = [getattr(dpp, name) for name in dpp.__all__ if name != "col"]
    found += [value for owner in owners for name, value in vars(owner).items() if name[0] != "_" and callable(value)]
    texts = {id(one): inspect.getdoc(one) or "" for one in found}
    assert max(collections.Counter(texts.values()).values()) == 1
    paragraphs = collections.Counter(part for text in texts.values() for part in {*text.split("\n\n")})
    long = {part: times for part, times in paragraphs.items() if len(part) > 150 and times > 2}
    assert long == {}


def test_mechanisms_and_grids_have_exactly_these_parameters():
    scores, claimed = {"scores": EMPTY}, {"sensitivity": EMPTY, "monotonic": False}
    assert parameters(dpp.mechanisms.permute_and_flip) == (scores, {"epsilon": EMPTY, **claimed})
    assert parameters(dpp.mechanisms.exponential_mechanism) == (scores, {**LOSS, **claimed})
    assert parameters(dpp.grid) == ({"start": EMPTY, "stop": EMPTY}, {"step": None, "per_decade": None})


@pytest.mark.parametrize("name", METHODS)
def test_a_method_and_its_function_ask_the_same(name):
    positional, keywords = METHODS[name].arguments, METHODS[name].example
    by_method = getattr(pl.col("x").dp, name)(*positional, **keywords)
    by_name = getattr(dpp, name)("x", *positional, **keywords)
    by_expression = getattr(dpp, name)(pl.col("x"), *positional, **keywords)
    assert type(by_method) is type(by_name) is type(by_expression) is dpp.PrivateExpr
    assert by_method.query == by_name.query == by_expression.query
    assert set(by_method.meta.root_names()) == set(by_name.meta.root_names()) == {"x"}
    assert by_name.meta.output_name() == by_method.meta.output_name() == "x"


def test_a_median_is_the_quantile_at_one_half():
    assert dpp.median("x", [1, 2], epsilon=1).query == dpp.quantile("x", 0.5, [1, 2], epsilon=1).query


def test_argmin_is_the_argmax_of_the_negated_scores():
    frame = pl.DataFrame({"x": [300, 0, 900]})
    claim = {"epsilon": 1, "sensitivity": 1}
    assert frame.select(dpp.argmin("x", **claim)).item() == 1
    assert frame.select(dpp.argmax("x", **claim)).item() == 2
    assert frame.select((-pl.col("x")).dp.argmax(**claim)).item() == 1


def test_the_mechanisms_stand_alone():
    assert dpp.mechanisms.permute_and_flip([0, 900, 1], epsilon=1, sensitivity=1) == 1
    assert dpp.mechanisms.exponential_mechanism(np.array([[0, 900], [900, 0]]), rho=1, sensitivity=1).tolist() == [1, 0]


def test_importing_the_package_registers_the_accessor():
    # Where OpenDP's extra is loaded, too, it stands on one class with its methods.
    assert isinstance(pl.col("x").dp, PrivateNamespace)
    assert {name for name in vars(PrivateNamespace) if not name.startswith("_")} == set(METHODS)


@pytest.mark.parametrize("name", ["len", "n_people"])
def test_numbers_of_rows_take_no_column(name):
    assert parameters(getattr(dpp, name)) == ({}, {"where": None, **NUMBERS["count"].keywords})
    expr = getattr(dpp, name)(epsilon=1)
    assert expr.meta.output_name() == name
    assert expr.meta.root_names() == []


def test_all_exported_names():
    names = {*METHODS, "grid", "PrivateExpr", "len", "n_people"}
    assert names <= set(dir(dpp))
    assert all(getattr(dpp, name).__module__.startswith("dp_polars.") for name in names)
