"""Contribution limits of a frame, and other ones for a query of the same publication."""

from itertools import product

import polars as pl
import pytest

import dp_polars as dpp
from tests.helpers.refusals import refusals
from tests.registry import ASKS, NUMBERS, OF_NO_COLUMN

ROWS = pl.DataFrame(
    {"p": [i // 6 for i in range(60)], "g": [i % 3 for i in range(60)], "x": [i % 4 for i in range(60)]}
)
KEYS = {"g": [0, 1, 2]}
LIMITS = ("max_groups", "max_rows_per_group", "max_rows", "max_norm")
HUGE = {"epsilon": 10_000}


@pytest.mark.parametrize("frame", [dpp.protect, ROWS.dp.protect], ids=["without data", "with data"])
def test_a_frame_with_other_limits_is_as_if_protect_had_them(frame):
    """None is no limit, and what is left out stays; also after steps, and the frame itself stays as it is."""
    of_protect = {"max_groups": 1, "max_rows_per_group": 2, "max_rows": 3, "max_norm": 5}
    for values in product((..., None, 2), (..., None, 1), (..., None, 4), (..., None, 6)):
        given = {name: value for name, value in zip(LIMITS, values, strict=True) if value is not ...}
        limits = of_protect | given
        expected = frame("p", **limits, neighboring_relation="replace_one").filter(pl.col("x") > 0)
        first = frame("p", **of_protect, neighboring_relation="replace_one")
        for found in (
            first.with_limits(**given).filter(pl.col("x") > 0),
            first.filter(pl.col("x") > 0).with_limits(**given),
        ):
            assert found.protection == expected.protection
            assert repr(found) == repr(expected)
            assert (
                found.group_by(KEYS).agg(dpp.n_people(**HUGE))._asks
                == expected.group_by(KEYS).agg(dpp.n_people(**HUGE))._asks
            )
        assert first.protection.limits == of_protect


def test_the_same_rows_and_the_same_budget():
    budget = dpp.Budget(epsilon=30_000)
    private = ROWS.dp.protect("p", max_groups=3, max_rows_per_group=2, budget=budget)
    one = private.with_limits(max_groups=1).group_by(KEYS).agg(dpp.n_people(**HUGE), dpp.len(**HUGE)).release()
    # Ten people with two rows in each of three groups: a third of each counts everywhere.
    assert one.select("n_people", "len").rows() == [(3, 7)] * 3
    assert private.agg(dpp.len(**HUGE)).release().item() == 20
    assert budget.remaining == 0


@refusals(
    (lambda: dpp.protect("p").with_limits(max_rows=0), ValueError, "^max_rows must be at least 1, got 0"),
    (lambda: dpp.protect("p").with_limits(max_groups=1.0), TypeError, "^max_groups must be an integer, got 1.0"),
    (lambda: dpp.protect("p").with_limits(max_rows=True), TypeError, "^max_rows must be an integer, got True"),
    (lambda: dpp.protect("p").with_limits(max_rows_per_group="2"), TypeError, "^max_rows_per_group must be"),
    (lambda: dpp.protect("p", max_norm=0), ValueError, "^max_norm must be at least 1, got 0"),
    (lambda: dpp.protect("p").with_limits(max_norm=1.5), TypeError, "^max_norm must be an integer, got 1.5"),
    (lambda: dpp.protect(None, max_norm=3), ValueError, "^max_norm must be left out where privacy_unit is None"),
    (lambda: dpp.protect("p").with_limits(3), TypeError, "with_limits: too many positional arguments"),
    (lambda: dpp.protect("p").with_limits(rows=3), TypeError, "unexpected keyword argument 'rows'"),
    (lambda: dpp.protect(None).with_limits(max_rows=3), ValueError, "^max_rows must be left out where privacy_unit is"),
    (lambda: dpp.protect(None).with_limits(max_rows=None), ValueError, "^max_rows must be left out where privacy_unit"),
)
def test_what_is_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_a_publication_combines_queries_under_other_limits():
    """One budget and one charge; each query keeps the rows that its own limits let by, and a claim of its own."""
    budget = dpp.Budget(epsilon=30_000, delta=1e-6)
    private = ROWS.dp.protect("p", max_groups=3, max_rows_per_group=2, budget=budget)
    wide, narrow = private.group_by(KEYS), private.with_limits(max_groups=1, max_rows_per_group=1).group_by(KEYS)
    both = dpp.publication(wide=wide.agg(dpp.len(**HUGE), dpp.n_people(**HUGE)), narrow=narrow.agg(dpp.len(**HUGE)))
    assert both.explain()["limits"].to_list() == [
        "max_groups=3, max_rows_per_group=2",
        "max_groups=3",
        "max_groups=1, max_rows_per_group=1",
    ]
    released = both.release()
    assert released["wide"].rows() == [(0, 20, 10), (1, 20, 10), (2, 20, 10)]
    assert released["narrow"]["len"].to_list() == [3, 3, 3]  # a third of ten
    assert budget.log()["what"].to_list() == [
        "wide: len: number of rows",
        "wide: n_people: number of people",
        "narrow: len: number of rows",
    ]
    assert budget.spent == 30_000
    with pytest.raises(dpp.BudgetExceededError):
        narrow.agg(dpp.len(epsilon=1)).release()


def test_a_publication_shares_one_guarantee_over_queries_under_other_limits():
    private = ROWS.dp.protect("p", max_groups=3, max_rows_per_group=2)
    wide, narrow = (frame.group_by(KEYS).agg(dpp.len()) for frame in (private, private.with_limits(max_groups=1)))
    both = dpp.publication(wide=wide, narrow=narrow).scaled_to(epsilon=2, delta=1e-6)
    claims = [query._asks[0].query.claim for query in both.queries.values()]
    assert [claim.contributions.total for claim in claims] == [6, 2]
    assert len({claim.loss for claim in claims}) == 1


@pytest.mark.parametrize("limit", LIMITS)
def test_a_statistic_takes_no_limits_of_its_own(limit):
    for name, ask in {**ASKS, **NUMBERS}.items():
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{limit}'"):
            getattr(pl.col("x").dp, name)(*ask.arguments, **{"epsilon": 1} | ask.options | {limit: 2})
    for name in OF_NO_COLUMN:
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{limit}'"):
            getattr(dpp, name)(epsilon=1, **{limit: 2})
