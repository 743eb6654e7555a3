"""Pages for contributors name the code as it is: the way of one query, and what a new class must define."""

import importlib
import re
import sys
import threading
from inspect import unwrap
from operator import attrgetter

import polars as pl
import pytest

import dp_polars as dpp
from dp_polars._statistics import averages, categories, measures, statistic
from tests.helpers.places import ROOT
from tests.test_docs import STATION

HOW = (ROOT / "docs" / "how.md").read_text(encoding="utf-8")
EXTENDING = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
(QUERY,) = re.findall(r"^The query is `(.+)`\.$", HOW, re.MULTILINE)
STATIONS = STATION.findall(HOW)


def key_of(name, path):
    """Return the class of a station, or the code of its function."""
    found = unwrap(attrgetter(name)(importlib.import_module(path.removesuffix(".py").replace("/", "."))))
    return found if isinstance(found, type) else found.__code__


def stations_of(query):
    """Return the numbers of the stations that a query calls, in the order of time; of a class, any method."""
    number_of = {key_of(name, path): int(number) for number, name, path in STATIONS}
    visits = {"patient": [1, 2, 3, 4], "ward": ["A", "B"] * 2, "diagnosis": ["Flu", "flu", "Cold", "Flu"]}
    names = {"pl": pl, "visits": pl.DataFrame(visits), "budget": dpp.Budget(epsilon=1)}
    names |= {"wards": ["A", "B"], "illnesses": ["cold", "flu"]}
    seen = []

    def look(frame, event, _):
        if event == "call":
            kinds = type(frame.f_locals.get("self")).__mro__
            seen.extend(number_of[key] for key in (frame.f_code, *kinds) if key in number_of)

    before = sys.getprofile()
    threading.setprofile(look)
    sys.setprofile(look)
    try:
        eval(query, names)
    finally:
        sys.setprofile(before)
        threading.setprofile(None)
    return seen


def first_missing(query):
    """Return the first station that a query does not call after those before it; None: it calls all."""
    seen = iter(stations_of(query))
    return next((number for number in range(1, len(STATIONS) + 1) if number not in seen), None)


@pytest.mark.parametrize(
    ("without", "missing"), [("", None), (", budget=budget", 7), (".str.to_lowercase()", 6), (".release()", 4)]
)
def test_a_query_calls_the_stations_of_the_page_in_their_order(without, missing):
    assert without in QUERY
    assert first_missing(QUERY.replace(without, "")) == missing


# The classes of which a new one is made, and what it defines, as names in backticks.
ROW = re.compile(r"^\| `(\w+)`(): [\w ]+ \| (.+) \|$", re.MULTILINE)
SENTENCE = re.compile(r"class on `(\w+)`(?: and `(\w+)`)?(?: \([^)]*\))? with (.+)\.$", re.MULTILINE)
RECIPES = {(one, other): listed for one, other, listed in ROW.findall(EXTENDING) + SENTENCE.findall(EXTENDING)}


def must_define(classes):
    """Return what is abstract in a class on these, and the field of every statistic."""
    homes = (averages, categories, measures, statistic)
    bases = [next(getattr(home, name) for home in homes if hasattr(home, name)) for name in classes if name]
    return {*type("New", tuple(bases), {}).__abstractmethods__, "terms"}


@pytest.mark.parametrize("classes", RECIPES, ids="-".join)
def test_a_recipe_lists_all_that_a_class_must_define(classes):
    assert {*re.findall(r"`(\w+)`", RECIPES[classes])} == must_define(classes)


def test_there_is_a_recipe_for_each_base_class():
    assert {*RECIPES} == {("Multiple", ""), ("Average", ""), ("OfCategories", "Choice"), ("ListQuery", "")}
