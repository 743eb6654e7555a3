"""In SQL: selected keys, and people as rows."""

import datetime as dt
import math
from decimal import Decimal

import numpy as np
import polars as pl
import pytest

import dp_polars as dpp
from tests.helpers import by_hand
from tests.sql.tools import MARKS, need_ibis

need_ibis()

from dp_polars._engines.sql import people as people_in_sql  # noqa: E402
from dp_polars._engines.sql.dialects import Select  # noqa: E402
from dp_polars.sql import _SqlEngine  # noqa: E402

pytestmark = MARKS

MANY = 10**6


def found(table, query):
    """Key -> people, of every key that the engine finds."""
    sql = _SqlEngine(table)
    keys, people = sql.prepare_people_by_key(query._request.bind(sql))()
    rows = keys.rows()
    assert len(set(rows)) == len(rows)
    return dict(zip(rows, people.tolist(), strict=True)), keys.schema


def keys(*columns, unit="p", most=MANY, **options):
    bounds = {} if unit is None else {"max_groups": most}
    return dpp.protect(unit, **bounds).keys(*columns, **{"epsilon": 1, "delta": 1e-3, **options})


def crowd():
    """People who have up to 12 keys, of text and numbers."""
    rng = np.random.default_rng(8)
    person = np.repeat(np.arange(60), rng.integers(1, 13, 60))
    town = pl.Series(rng.integers(0, 6, len(person))).replace_strict(range(6), ["a", "b", "é", "", "a ", None])
    return pl.DataFrame({"p": person, "town": town, "year": rng.integers(2019, 2022, len(person))})


def by_secret(table, secret, most):
    """The number of people of each key, by a secret of one's own."""
    sql = _SqlEngine(table)
    work = keys("town", "year", most=most)._request.bind(sql)
    counted = people_in_sql.people_by_key(sql._table, work, sql._dialect)
    statement = Select.of(sql._backend, counted).sealed(secret)
    known, people = people_in_sql.in_polars(sql._dialect.fetch(sql._backend, statement), work.types)
    return dict(zip(known.rows(), people.tolist(), strict=True))


@pytest.mark.parametrize("most", [1, 3])
def test_a_person_changes_no_more_keys_than_the_bound(engine, most):
    """The rows of the others, in another order, keep what they kept: the same secret chooses the same of them."""
    frame = crowd()
    everyone = by_secret(engine.table(frame), 2**62 + 5, most)
    own = frame.drop_nulls().unique().group_by("p").len().sort("len", "p", descending=True)
    for gone in own["p"].head(3):
        others = frame.filter(pl.col("p") != gone).sample(fraction=1, shuffle=True, seed=7)
        without = by_secret(engine.table(others), 2**62 + 5, most)
        assert set(without) <= set(everyone)
        lost = [people - without.get(key, 0) for key, people in everyone.items()]
        assert set(lost) == {0, 1}
        assert sum(lost) == most
    assert sum(everyone.values()) == own["len"].clip(upper_bound=most).sum()
    assert everyone != by_secret(engine.table(frame), 7, most)


def test_keys_come_as_they_are(engine):
    """Quotes, separators, private characters, the ends of types: each key once, whatever it says."""
    texts = ["a", "A", "a ", "á", "", "'; --", '"', "\\", "\n", "\ue000", "\uf8ff", "𝛿", ":", "1:"]
    texts += ["a\0", "a\0b"] if engine.name != "postgres" else []
    numbers = [2**63 - 1, -(2**63), 0]
    rows = [(p, text, numbers[p % 3]) for p in range(9) for text in texts for _ in range(2)]
    frame = pl.DataFrame(rows, schema={"p": pl.Int64, "k": pl.String, "n": pl.Int64}, orient="row")
    expected = by_hand.people_by_key(frame.to_dicts(), ["k", "n"], "p")
    assert found(engine.table(frame), keys("k", "n"))[0] == expected
    one = found(engine.table(frame), keys("k", "n", most=1))[0]
    assert sum(one.values()) == 9


def test_keys_that_polars_has_not_are_none(engine):
    """Infinite, far and impossible times, and a NaN of decimals: no error may tell of them."""
    zero = "CAST('NaN' AS numeric)" if engine.name == "postgres" else "NULL"
    table = engine.view(
        "SELECT p, CAST(d AS date) AS d, CAST(t AS timestamp) AS t, CAST(c AS time) AS c, "
        "CAST(m AS decimal(10, 2)) AS m FROM (VALUES "
        "(1, 'infinity', '-infinity', '24:00:00', 0.5), (2, '-infinity', 'infinity', '23:59:59.999999', 1.50), "
        f"(3, '9999-12-31', '9999-12-31 23:59:59.999999', '00:00:00', {zero}), "
        "(4, '0001-01-01', '0001-01-01 00:00:00', NULL, -99999999.99)) AS v(p, d, t, c, m)"
    )
    last, first = dt.datetime.max, dt.datetime.min
    assert found(table, keys("d"))[0] == {(last.date(),): 1, (first.date(),): 1}
    assert found(table, keys("t")) == ({(last,): 1, (first,): 1}, {"t": pl.Datetime("us")})
    sql = _SqlEngine(table)
    times, _ = sql.prepare_people_by_key(keys("c")._request.bind(sql))()
    assert sorted(times["c"].to_physical().to_list()) == [0, 86_399_999_999_000]
    decimals, schema = found(table, keys("m"))
    assert set(decimals) == {(Decimal("0.50"),), (Decimal("1.50"),), (Decimal("-99999999.99"),)}
    assert schema == {"m": pl.Decimal(10, 2)}


def test_decimals_whose_digits_ibis_has_guessed_too_low_are_no_keys(engine):
    table = engine.table(
        pl.DataFrame({"p": [1, 2, 3], "m": pl.Series(["0.50", "0.25", "9.00"], dtype=pl.Decimal(10, 2))})
    )
    table = table.mutate(m=table.m * table.m)
    assert table.schema()["m"].scale == 2
    assert set(found(table, keys("m"))[0]) == {(Decimal("0.25"),), (Decimal(81),)}


def test_shown_keys_are_those_of_polars(engine):
    frame = crowd()
    query = keys("year", "town", most=15, rho=10_000, epsilon=None, with_counts=True)
    released = dpp.sql.release(query, engine.table(frame))
    expected = query.release(frame)
    assert released.schema == expected.schema
    large = [one.filter(pl.col("count") > 3) for one in (released, expected)]
    assert large[0].equals(large[1])
    assert large[0].height > 10


def test_keys_of_a_type_of_sql_alone_are_free(engine):
    table = engine.view("SELECT 1 AS p, INTERVAL '1' DAY AS u")
    budget = dpp.Budget(epsilon=1, delta=2e-3)
    with pytest.raises(TypeError, match=r"the column 'u' must be text, .*got"):
        dpp.sql.release(keys("u", unit="p"), table, budget=budget)
    assert budget.spent == 0


def test_people_as_rows_beside_columns_of_the_same_names(engine):
    """`count` and `person` are columns of the table; a person of NaN is nobody."""
    people = [*[float(i // (1 + i % 3)) for i in range(100)], math.nan, None, -0.0]
    frame = pl.DataFrame({"count": people, "person": [i % 4 for i in range(103)], "group": [1] * 103})
    table = engine.table(frame)
    for one in (None, {"person": [3, 0, 9]}, {"group": [1], "person": [2]}):
        private = dpp.protect("count", max_groups=1, max_rows_per_group=1)
        asked = (private if one is None else private.group_by(one)).agg(dpp.len(epsilon=1))
        query = asked.n_rows_dropped(9, epsilon=10_000)
        assert dpp.sql.release(query, table).item() == query.release(frame).item()


def test_a_cached_answer_is_drawn_anew_where_it_is_asked_fresh(engine, tmp_path):
    budget = dpp.Budget(epsilon=3, path=tmp_path / "ledger.db")
    table = engine.table(pl.DataFrame({"p": range(100)}))
    query = dpp.protect("p", budget=budget, dataset="people").agg(n=dpp.n_people(epsilon=0.5))
    first = dpp.sql.release(query, table)
    assert dpp.sql.release(query, table).equals(first)
    assert budget.spent == 0.5
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dp_polars.sql._SqlEngine.mark", lambda _: "another engine")
        with pytest.warns(dpp.CachedAnswerWarning) as said:
            again = dpp.sql.release(query, table)
    assert again.equals(first)
    assert said[0].filename == __file__
    dpp.sql.release(query, table, ignore_cache=True)
    assert budget.spent == 1
    assert budget.answers()["source"].to_list() == [engine.name] * 2
