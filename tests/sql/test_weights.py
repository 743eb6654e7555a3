"""Numbers in SQL: everybody's rows count, and people beyond the limits in part, to the last bit as by Polars."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

import dp_polars as dpp
from dp_polars._mechanisms.person_weights import ARRAYS, UNIT, PersonWeight
from tests.sql.tools import MARKS, histograms_of, need_ibis

need_ibis()

from dp_polars._engines.sql import counting, weighing  # noqa: E402
from dp_polars._engines.sql.dialects import TESTED, Select  # noqa: E402
from dp_polars.sql import _SqlEngine  # noqa: E402

pytestmark = MARKS


def crowd(seed=1, people=300):
    """People of whom most have few rows, some have hundreds, and one has a thousand in all groups."""
    rng = np.random.default_rng(seed)
    person = np.repeat(np.arange(people), rng.zipf(1.5, people) % 300)
    person = rng.permutation(np.concatenate([person, np.full(1000, people)]))
    rows = len(person)
    group = rng.integers(0, 30, rows) % (1 + person % 30)
    group[person == people] = rng.integers(0, 30, np.count_nonzero(person == people))
    value = pl.Series(rng.integers(0, 6, rows) % (1 + person % 6)).replace(3, None)
    return pl.DataFrame(
        {
            "person": person,
            "name": pl.Series([None if one % 17 == 5 else f"é{one}" for one in person]),
            "town": person % 7,
            "group": group,
            "year": group % 3,
            "value": value,
            "is_known": value.replace(2, None) < 2,
            "price": pl.Series(rng.normal(2, 3, rows)).set(pl.Series(rng.integers(0, 9, rows) == 0), float("nan")),
            "paid": rng.integers(-(10**6), 10**6, rows),
        }
    )


LIMITS = [
    {"max_groups": 2, "max_rows_per_group": 3},
    {"max_rows": 7},
    {"max_rows": 4, "max_rows_per_group": 2},
    {"max_rows_per_group": 2},
    {"max_norm": 5},
    {"max_norm": 5, "max_rows_per_group": 2},
    {"max_groups": 40, "max_rows_per_group": 400},
]
KEYS = {
    "one group": None,
    "listed": {"group": [0, 1, 2, 7, 29]},
    "two columns": {"group": [4, 1], "year": [0, 1, 2]},
    "many": {"group": range(2000)},
}
# Random ones are chosen for these.
BESIDE = {
    "alone": {},
    "mode": {"top": dpp.mode("value", range(5), epsilon=1)},
    "median": {"middle": dpp.median("price", range(5), epsilon=1)},
    "both": {"top": dpp.mode("value", range(5), epsilon=1), "middle": dpp.median("price", range(5), epsilon=1)},
}


def numbers(loss):
    """What is asked of everybody."""
    asked = {loss: 1}
    return {
        "rows": dpp.len(**asked),
        "values": dpp.count("value", **asked),
        "nulls": dpp.null_count("value", **asked),
        "people": dpp.n_people(**asked),
        "sum": dpp.sum("price", -1, 5, step=0.25, **asked),
        "mean": dpp.mean("price", -1, 5, step=0.25, **asked),
        "large": dpp.sum("paid", -900_000, 100, **asked),
        "variance": dpp.var("value", 0, 4, **asked),
        "share": dpp.share("is_known", **asked),
        "totals": dpp.sum("value", 0, 5, per_person=(1, 7), **asked),
        "counts": dpp.value_counts("value", range(5), **asked),
    }


def agree(engine, frame, query, names):
    for name, expected, found in histograms_of(frame, engine.table(frame), query):
        if name in names:
            for one, other in zip(expected, found, strict=True):
                assert one.equals(other), name
                assert one.height > 0


@pytest.mark.parametrize("loss", ["epsilon", "rho"])
@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("limits", LIMITS, ids=str)
def test_numbers_are_those_of_polars(engine, limits, keys, loss):
    frame, private = crowd(), dpp.protect("person", **limits)
    asked = numbers(loss)
    agree(engine, frame, (private if KEYS[keys] is None else private.group_by(KEYS[keys])).agg(**asked), asked)


@pytest.mark.parametrize("beside", [name for name in BESIDE if name != "alone"])
@pytest.mark.parametrize(
    "limits",
    [{"max_groups": 2, "max_rows_per_group": 3}, {"max_groups": 2, "max_rows_per_group": 1}, {"max_rows": 4}],
    ids=str,
)
@pytest.mark.parametrize("bits", [62, 0], ids=["one integer", "columns"])
def test_numbers_are_those_of_polars_also_beside_what_is_chosen(engine, limits, beside, bits, monkeypatch):
    """In all ways in which rows are chosen, of which some find numbers on the way."""
    if not bits:
        monkeypatch.setattr(counting, "packed", lambda rows, _: rows)
    TESTED[engine.name].written.clear()
    frame, asked = crowd(), numbers("epsilon")
    for some in (asked, {"people": asked["people"]}, {"rows": asked["rows"], "sum": asked["sum"]}):
        query = dpp.protect("person", **limits).group_by({"group": [0, 2, 5]}).agg(**some, **BESIDE[beside])
        agree(engine, frame, query, some)


@pytest.mark.parametrize("unit", ["name", ("town", "name"), ("person", "town")], ids=str)
@pytest.mark.parametrize("beside", BESIDE)
def test_people_are_texts_or_several_columns(engine, unit, beside):
    asked = numbers("rho")
    private = dpp.protect(unit, max_groups=2, max_rows_per_group=2).group_by({"group": [0, 1, 5]})
    agree(engine, crowd(), private.agg(**asked, **BESIDE[beside]), asked)


@pytest.mark.parametrize("weight", [PersonWeight(cap, 37, power) for cap in (None, 3) for power in (1, 2)], ids=str)
def test_weights_are_those_of_the_reference(engine, weight):
    """Of norms from 1 to more than 64 bits hold of rows: the floats of engines are those of NumPy."""
    rng = np.random.default_rng(3)
    norms = np.unique(
        np.concatenate([np.arange(1, 400), 2 ** rng.integers(1, 60, 3000) + rng.integers(0, 2**20, 3000)])
    )
    rows = rng.integers(0, 2**40, len(norms)) >> rng.integers(0, 40, len(norms))
    table = engine.table(pl.DataFrame({"person": norms, "paid": rows}, schema={"person": pl.Int64, "paid": pl.Int64}))
    sql = _SqlEngine(table)
    of = weighing.Columns(sql._dialect)
    found = table.mutate(weight=weight.of_rows(table.person, table.paid, of))
    cells = sql._dialect.fetch(sql._backend, Select.of(sql._backend, found))
    expected = weight.of_rows(norms, rows, ARRAYS)
    by_rows = dict(zip(zip(norms.tolist(), rows.tolist(), strict=True), expected.tolist(), strict=True))
    same = zip(cells["person"].tolist(), cells["paid"].tolist(), cells["weight"].tolist(), strict=True)
    assert {(norm, of_row): one for norm, of_row, one in same} == by_rows
    assert set(by_rows.values()) > {0, UNIT}


def test_nobody_is_looked_up_where_no_limit_can_bind(engine):
    """Then the statement groups by person once, and joins nothing."""
    frame = crowd(people=30)
    table = engine.table(frame)

    def statement(**limits):
        query = dpp.protect("person", **limits).group_by({"year": [0, 1, 2]}).agg(rows=dpp.len(epsilon=1))
        sql = _SqlEngine(table)
        sent = []
        sql._dialect = replace(sql._dialect, fetch=lambda _, one: sent.append(one.sql))
        with pytest.raises(TypeError):  # of nothing that was fetched
            sql.prepare(query._request.bind(sql))()
        return sent[0].upper()

    assert "LEFT" in statement(max_groups=2, max_rows_per_group=2)
    assert "LEFT" not in statement(max_groups=3, max_rows_per_group=2)
