"""Faults that record and replay must find out: the package is patched with each, and the checks must fail."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

import polars as pl
import pytest

import dp_polars as dpp
from dp_polars._bins.binning import Clamping
from dp_polars._engines.polars import engine as polars_engine
from dp_polars._engines.polars import rows as polars_rows
from dp_polars._engines.polars import weighing
from dp_polars._engines.polars.engine import PolarsEngine
from dp_polars._engines.polars.rows import listed, own_keys
from dp_polars._expressions.namespace import PrivateNamespace
from dp_polars._frames.cube_query import CubeQuery
from dp_polars._frames.query import PrivateQuery
from dp_polars._mechanisms.person_weights import UNIT_BITS, PersonWeight
from dp_polars._release import contract
from dp_polars._release.protection import Limits, Protection
from dp_polars._statistics.measures import Count
from tests.fuzzing.exploring import explore
from tests.registry import ASKS, COLUMNS, NUMBERS, OF_CONDITIONS, OF_FRAMES, OF_NO_COLUMN, UNITS
from tests.replay.cases import cases
from tests.replay.checks import check
from tests.replay.test_polars import ask

pytestmark = pytest.mark.slow


def found_out(way: str, tmp_path, *, kinds=frozenset({*COLUMNS, *UNITS}), only=lambda _: True, said: str) -> None:
    """The suite fails for a way to ask, by a check that says so."""

    def holds(case):
        check(case, partial(ask, case, "lazy", "in-memory", None, "released", tmp_path))

    # Coupled, so that what fails once fails again.
    searched = cases(way, kinds, UNITS).filter(lambda case: case.couples and only(case))
    with pytest.raises(AssertionError, match=said):
        explore(holds, searched, examples=60, shrinks=False)


# --- Record ---


@pytest.mark.parametrize(
    ("way", "bounds"),
    [
        ("mode", ["groups"]),
        ("n_people", ["groups"]),
        ("sum", ["groups"]),
        ("len", ["rows"]),
        ("median", ["rows_per_group", "rows"]),
        ("value_counts", ["groups", "rows"]),
    ],
)
def test_a_tally_that_forgets_a_bound(way, bounds, tmp_path, monkeypatch):
    limits = Protection.drawn_limits

    def forgets(protection, query, groups):
        return Limits(**{**limits(protection, query, groups).__dict__, **dict.fromkeys(bounds)})

    monkeypatch.setattr(Protection, "drawn_limits", forgets)
    monkeypatch.setattr(PersonWeight, "most", property(lambda _: 2**40))  # nobody counts in part
    found_out(way, tmp_path, said="moves? by more|more groups move")


def test_totals_of_people_that_are_not_clipped(tmp_path, monkeypatch):
    monkeypatch.setattr(Clamping, "of_person", (-(2**40), 2**40))
    found_out("sum", tmp_path, said="moves? by more")


def test_keys_of_which_nobody_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(Protection, "keys_per_person", property(lambda _: 1))
    few = polars_engine.people_by_key
    monkeypatch.setattr(
        polars_engine, "people_by_key", lambda rows, work, *more: few(rows, _replaced(work, most=9), *more)
    )
    found_out("keys", tmp_path, said="more keys move")


def _replaced(work: contract.KeyWork, **fields: Any) -> contract.KeyWork:
    return contract.KeyWork(**{**work.__dict__, **fields})


def test_a_mean_whose_parts_weigh_rows_differently(tmp_path, monkeypatch):
    """What a group adds up is not what it counts: rows count half as much as their values."""
    parts = weighing._parts
    monkeypatch.setattr(weighing, "_parts", lambda *of: parts(*of) // (2 if of[2] == UNIT_BITS else 1))
    found_out("mean", tmp_path, said="the parts keep different rows")


def test_public_values_that_the_engine_takes_for_one(tmp_path, monkeypatch):
    """Keys are compared without their case: a row of "a" counts in the groups of "a" and of "A"."""

    def lowered(exprs):
        return [expr.str.to_lowercase() for expr in exprs]

    monkeypatch.setattr(polars_engine, "fit_arrays", lambda *_: False)
    in_lower_case = pl.col("^key.*$").str.to_lowercase()
    for module in (polars_engine, polars_rows):
        monkeypatch.setattr(module, "FEW", 0)
        monkeypatch.setattr(module, "own_keys", lambda rows, keys: lowered(own_keys(rows, keys)))
        monkeypatch.setattr(module, "listed", lambda keys: listed(keys).with_columns(in_lower_case))
    # Where rows are people: the bounds of a person would cut what is counted twice.
    several = {"only": lambda case: case.unit is None and len(case.groups or ()) > 2}
    found_out("len", tmp_path, kinds=["String"], said="moves? by more", **several)


# --- Replay ---


def test_a_type_that_follows_the_data(tmp_path, monkeypatch):
    draw = Count._drawn

    def narrowed(count, totals, known, *columns):
        (found,) = draw(count, totals, known, *columns)
        return (found.cast(pl.Int64 if totals[0].max(initial=0) > 1 else pl.Int32),)

    monkeypatch.setattr(Count, "_drawn", narrowed)
    found_out("len", tmp_path, said="the answers follow the rows")


def test_a_log_line_with_a_count(tmp_path, monkeypatch):
    histograms = PolarsEngine._histograms

    def logged(engine, work):
        found = histograms(engine, work)
        logging.getLogger("dp_polars").debug("%d cells are counted", sum(len(one.codes) for one in found))
        return found

    monkeypatch.setattr(PolarsEngine, "_histograms", logged)
    found_out("mode", tmp_path, said="the logs follow the rows")


def test_a_plan_that_follows_the_data(tmp_path, monkeypatch):
    histograms = PolarsEngine._histograms

    def filtered(engine, work):
        rows = engine._read()
        rows = rows.filter(pl.lit(True)) if rows.select(pl.len()).collect().item() > 5 else rows
        monkeypatch.setattr(engine, "_read", lambda: rows)
        return histograms(engine, work)

    monkeypatch.setattr(PolarsEngine, "_histograms", filtered)
    found_out("mode", tmp_path, said="the asked follow the rows")


def test_an_order_that_follows_the_data(tmp_path, monkeypatch):
    """Flags are seen too: an answer is said to be sorted where its rows were."""
    assemble = contract.Work.assemble

    def sorted_or_not(work, histograms):
        found = assemble(work, histograms)
        return found.with_columns(pl.last().set_sorted()) if len(histograms[0].codes) > 1 else found

    monkeypatch.setattr(contract.Work, "assemble", sorted_or_not)
    several = {"only": lambda case: len(case.groups or ()) > 1}
    found_out("mode", tmp_path, **several, said="the answers follow the rows")


# --- What enters both checks ---


def test_every_way_to_ask_is_in_the_registry():
    """What is public and asks for private answers; `agg` asks for the others."""
    methods = {name for name in vars(PrivateNamespace) if not name.startswith("_")}
    assert methods == {*ASKS, *NUMBERS}
    public = {name: getattr(dpp, name) for name in dpp.__all__ if name != "col"}  # every attribute of it is a column
    returned = {name: getattr(value, "__annotations__", {}).get("return") for name, value in public.items()}
    functions = {name for name, kind in returned.items() if kind == "PrivateExpr"}
    assert functions == {*methods, *OF_NO_COLUMN, *OF_CONDITIONS}
    owners = [PrivateQuery, *(owner for owner in dpp.PrivateFrame.__mro__ if owner is not object)]
    asked = {
        name
        for owner in owners
        for name, method in vars(owner).items()
        if not name.startswith("_")
        and getattr(method, "__annotations__", {}).get("return") in (PrivateQuery.__name__, CubeQuery.__name__)
    }
    # `scaled_to` asks nothing new: its outputs are those of a query that was asked at these losses.
    assert asked == {"agg", *OF_FRAMES}
