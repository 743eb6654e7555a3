"""Rehearsals: how wrong each statistic of a publication would be on public rows, and why."""

import math

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import dp_polars as dpp
from dp_polars import analysis
from tests.registry import STATISTICS

WARDS = ["A", "B"]
# Lists, whose laws are estimated from many draws.
DRAWN = [name for name, one in STATISTICS.items() if one.way == "top_k" or isinstance((*one.arguments, 0)[0], list)]
# 300 people: two of three have one stay in each ward, the others five in ward A.
STAYS = pl.DataFrame(
    {
        "patient": [*range(200), *range(200), *[200 + number // 5 for number in range(500)]],
        "ward": ["A"] * 200 + ["B"] * 200 + ["A"] * 500,
        "days": [2] * 400 + [2, 4, 6, 8, 100] * 100,
        "drug": ["x"] * 400 + ["y"] * 500,
        "town": [
            f"town {number}" for number in (*range(200), *range(200), *(number // 5 % 4 for number in range(500)))
        ],
    }
)


def asked(private, **loss):
    by_ward = private.group_by({"ward": WARDS})
    counts = by_ward.agg(people=dpp.n_people(**loss), stays=dpp.len(**loss))
    return {
        "counts": counts,
        "values": by_ward.agg(
            total=dpp.sum("days", 0, 10, step=1, **loss),
            mean=dpp.mean("days", 0, 10, **loss),
            deviation=dpp.std("days", 0, 10, **loss),
            median=dpp.median("days", range(3, 11), **loss),
            quantiles=dpp.quantile("days", [0.5, 0.99], range(11), **loss),
            drug=dpp.mode("drug", ["x", "y"], **loss),
            each=dpp.value_counts("drug", ["x", "y"], **loss),
        ),
        "towns": private.keys("town", **loss, **({"delta": 1e-6} if loss else {})),
        "cells": private.with_limits(max_groups=1).cube({"ward": WARDS}, counts="rows", **loss),
        "tables": private.with_limits(max_groups=1).cube({"ward": WARDS}, tables=[("ward",), ()]),
        "cut": counts.n_rows_dropped(3, **loss),
    }


def publication(private=None, **more):
    private = dpp.protect("patient", max_groups=2, max_rows_per_group=2) if private is None else private
    return dpp.publication(asked(private, **more)).scaled_to(epsilon=1, delta=1e-6)


@pytest.fixture(scope="module")
def found():
    return analysis.simulate(publication(), STAYS)


def row(found, query, output):
    return found.filter(query=query, output=output).row(0, named=True)


def test_there_is_a_row_for_each_statistic(found):
    names = found.select("query", "output").rows()
    assert names[:2] == [("counts", "people"), ("counts", "stays")]
    assert [name for query, name in names if query == "values"] == [
        ask.name for ask in publication().queries["values"]._asks
    ]
    assert names[-5:] == [
        ("towns", "keys"),
        ("cells", "count"),
        ("tables", "count by ward"),
        ("tables", "count of all"),
        ("cut", "n_rows_dropped"),
    ]
    shown = ["size", "value", "noise", "dropped", "clipped", "error", "relative"]
    assert found.columns == ["query", "output", "groups", "error_unit", *shown]
    one = row(found, "counts", "stays")
    assert one["relative"] == one["error"] / one["value"]


def test_what_is_dropped_is_what_limits_take(found):
    """Of five stays in ward A two count, of the sum of the days of all that of two in five."""
    assert row(found, "counts", "people")["dropped"] == 0
    stays = row(found, "counts", "stays")
    assert (stays["value"], stays["size"], stays["groups"]) == (450, 450, 2)
    assert stays["dropped"] == pytest.approx((700 - 400) / 2, abs=1)
    assert row(found, "cells", "count")["dropped"] >= stays["dropped"]  # a person is in one ward
    drug = row(found, "values", "drug")
    assert drug["dropped"] == 0  # 100 people have y and 200 have x
    assert row(found, "values", "each")["dropped"] == 0


def test_what_is_clipped_is_what_bounds_take(found):
    assert row(found, "values", "total")["clipped"] == (100 * 90) / 2
    means = [(2 * 200 + 120 * 100) / 700 - (2 * 200 + 30 * 100) / 700, 0]
    assert row(found, "values", "mean")["clipped"] == pytest.approx(sum(means) / 2)
    by_ward = STAYS.group_by("ward").agg(raw=pl.col("days").std(), clipped=pl.col("days").clip(0, 10).std())
    moved = (by_ward["raw"] - by_ward["clipped"]).abs().mean()
    assert row(found, "values", "deviation")["clipped"] == pytest.approx(moved, rel=1e-6)
    # The medians are 4 and 2, and the lower end is 3.
    assert row(found, "values", "median")["clipped"] == 0.5
    assert row(found, "values", "quantiles")["clipped"] == pytest.approx((90 / 2 + 0) / 2)
    assert row(found, "counts", "stays")["clipped"] is None
    assert row(found, "values", "drug")["clipped"] is None


def test_the_noise_is_that_of_rows_that_no_limit_binds():
    """Then noise and error are those of `simulate` for a query alone."""
    few = STAYS.unique(["patient", "ward"], maintain_order=True)
    private = publication()
    found = analysis.simulate(private, few)
    for name in ("counts", "values", "cells"):
        alone = analysis.simulate(private.queries[name], few)
        for output, part in alone.group_by("output", maintain_order=True):
            one = row(found, name, output[0])
            expected = part["expected_error"].mean()
            if part["selects"][0].startswith("quantiles"):  # which are drawn
                assert one["error"] == pytest.approx(expected, rel=0.5)
            elif name != "cells":
                assert one["noise"] == pytest.approx(one["error"]) == pytest.approx(expected)
                assert one["dropped"] == pytest.approx(0, abs=1e-9)
            else:
                assert one["noise"] < one["error"]


def test_of_numbers_noise_and_drops_add_up_to_no_more_than_both(found):
    for one in found.filter(pl.col("query") != "towns").rows(named=True):
        if "quantiles" not in one["output"]:
            assert one["error"] <= (one["noise"] + one["dropped"]) * 1.001 + 1e-9, one["output"]
            assert one["error"] >= max(one["dropped"], 0) * 0.999 - one["noise"] - 1e-9


def test_towns_that_are_missing(found):
    """Four towns have 26 people, and 196 towns one."""
    selection = publication().queries["towns"]._asks[0].query.selection
    people = np.array([26] * 4 + [1] * 196)
    draws = [int((~selection.draw(people)[0]).sum()) for _ in range(4000)]
    one = row(found, "towns", "keys")
    assert (one["value"], one["error_unit"]) == (200, "keys")
    spread = max(np.std(draws), 0.05) / math.sqrt(len(draws))
    assert one["noise"] == pytest.approx(np.mean(draws), abs=6 * spread)
    assert one["error"] >= one["noise"] - 1e-9
    shown = selection.chances(np.array([1, 10, 10_000]))
    assert shown[0] <= 1e-6
    assert shown[2] == pytest.approx(1)


@pytest.mark.parametrize("threshold", [True, False])
def test_chances_are_those_of_draws(threshold):
    loss = {"rho": 0.5} if threshold else {"epsilon": 1}
    (ask,) = dpp.protect("p", max_groups=1).keys("k", delta=1e-3, **loss)._asks
    people = np.repeat(np.arange(1, 20), 3000)
    shown = ask.query.selection.draw(people)[0].reshape(19, 3000).mean(axis=1)
    chances = ask.query.selection.chances(np.arange(1, 20))
    assert np.abs(shown - chances).max() < 6 * 0.5 / math.sqrt(3000)
    assert chances[0] < 0.01 < 0.9 < chances[-1]


def test_tables_have_the_errors_of_their_releases(found):
    loss = publication().queries["tables"]
    query = dpp.publication(tables=loss).queries["tables"]
    counts = [query.release(STAYS).counts(by="ward")["count"].to_numpy() for _ in range(60)]
    errors = np.abs(np.array(counts) - [300, 200])
    one = row(found, "tables", "count by ward")
    assert one["value"] == 250
    assert one["error"] == pytest.approx(errors.mean(), rel=0.25)


def test_sizes_that_are_needed_are_those_of_each_query_and_of_the_answers_that_a_rehearsal_has(found):
    all_of = publication()
    needed = analysis.size_needed(all_of, 0.1)
    for name in ("counts", "values", "cells"):
        alone = analysis.size_needed(all_of.queries[name], 0.1)
        assert_frame_equal(needed.filter(query=name).drop("query"), alone)
    (ask,) = all_of.queries["towns"]._asks
    assert needed.filter(query="towns").row(0) == ("towns", "keys", ask.query.selection.people_for(0.95), "people")
    tables = needed.filter(query="tables")
    errors = all_of.queries["tables"].explain()["error_95"][:2].to_list()
    assert tables["size"].to_list() == [math.ceil(10 * error) for error in errors]
    with_values = analysis.size_needed(all_of, 0.1, rehearsal=found)
    size = {name: frame.filter(query="values") for name, frame in (("any", needed), ("known", with_values))}
    for output, factor in (("mean", 10), ("total", 10)):
        largest, known = (frame.filter(output=output).item(0, "size") for frame in size.values())
        value = row(found, "values", output)["value"]
        per_row = value / (1 if output == "mean" else row(found, "values", output)["size"])
        assert known > largest
        assert known == pytest.approx(largest * factor / per_row, rel=0.1)
    same = ["people", "stays", "keys", "count", "drug"]
    assert_frame_equal(with_values.filter(pl.col("output").is_in(same)), needed.filter(pl.col("output").is_in(same)))
    by_size = analysis.error_by_size(all_of, [100, 1000])
    assert by_size.columns[0] == "query"
    assert "towns" not in by_size["query"].to_list()
    assert by_size.height == 2 * (needed.height - 1)


def test_what_is_refused(found):
    all_of = publication()
    private = STAYS.dp.protect("patient", max_groups=2, max_rows_per_group=2)
    with pytest.raises(ValueError, match="got the very ones that the query protects"):
        analysis.simulate(publication(private), STAYS)
    assert analysis.simulate(publication(private), STAYS, allow_private=True).height == found.height
    with pytest.raises(ValueError, match="by and losses must be left out for a publication"):
        analysis.simulate(all_of, STAYS, losses=[1])
    waiting = dpp.publication(asked(private))
    with pytest.raises(ValueError, match="every output must have a loss"):
        analysis.simulate(waiting, STAYS, allow_private=True)
    with pytest.raises(ValueError, match="must have the names of the queries"):
        analysis.simulate(all_of, {"counts": STAYS})
    for wrong in (1, STAYS, analysis.simulate(dpp.publication(other=all_of.queries["counts"]), STAYS)):
        with pytest.raises(ValueError, match="rehearsal must be what simulate gave of this publication"):
            analysis.size_needed(all_of, rehearsal=wrong)
    with pytest.raises(ValueError, match="rehearsal must be what simulate gave of this publication"):
        analysis.size_needed(all_of.queries["counts"], rehearsal=found)


@pytest.mark.parametrize("unit", ["epsilon", "rho"])
@pytest.mark.parametrize("name", STATISTICS)
def test_every_statistic_is_rehearsed(name, unit):
    """Its error is that of `simulate` for the query alone, on average over the groups."""
    statistic = STATISTICS[name]
    # Each person has a row in each group: the limits drop nothing, at random or not.
    rows = pl.DataFrame({"p": [one // 2 for one in range(90)], "g": ["a", "b"] * 45, "x": [1, 2, 2, 3, 1, 0] * 15})
    rows = rows.with_columns(w=pl.col("x") * 1.5, y=pl.col("x"), c=pl.col("x") > 1)
    loss = {"epsilon": 1} if statistic.is_pure else {unit: 1}
    private = dpp.protect("p", max_groups=2, max_rows_per_group=1)
    asked = dpp.publication(one=private.group_by({"g": ["a", "b"]}).agg(answer=statistic.ask(**loss)))
    (one,) = analysis.simulate(asked, rows).rows(named=True)
    if one["noise"] is not None:
        assert 0 <= one["noise"] < float("inf")
        assert one["dropped"] == pytest.approx(0, abs=1e-6)
        assert one["noise"] == pytest.approx(one["error"], rel=1e-6) or name in DRAWN
    alone = analysis.simulate(asked.queries["one"], rows)
    assert one["error_unit"] == alone["error_unit"][0]
    assert one["groups"] == alone["expected_error"].drop_nulls().len()
    if name not in DRAWN:  # from many draws
        assert one["error"] == pytest.approx(alone["expected_error"].mean(), nan_ok=True)


def test_limits_that_are_found_have_no_row():
    by_ward = dpp.protect("patient").group_by({"ward": WARDS})
    asked = dpp.publication(counts=by_ward.agg(people=dpp.n_people(), stays=dpp.len())).scaled_to(epsilon=1, delta=1e-6)
    for _ in range(2):  # before the release they are found on the given rows, and later they are known
        assert analysis.simulate(asked, STAYS)["output"].to_list() == ["people", "stays"]
        assert analysis.size_needed(asked)["output"].to_list() == ["people", "stays"]
        asked.release(STAYS)
