"""What is kept of a person against the contributions that the claim reckons with: all small bounds, and whole releases.

No more may stay, or a person loses more than is charged; and a person with many rows reaches it, or the noise is for
rows that nobody can have.
"""

from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np
import polars as pl
import pytest

import dp_polars as dpp
from dp_polars._accounting.terms import Contributions
from dp_polars._engines.polars.bounding import BoundedRows, keep
from dp_polars._engines.polars.engine import PolarsEngine
from dp_polars._release.protection import Protection
from tests.engines.conformance import protected
from tests.helpers.runs import histograms_by

SIZE, MOST_GROUPS, MANY = 3, 4, 10**6
CANDIDATES = list(range(SIZE))
EXPRESSIONS = {
    "mode": lambda **loss: dpp.mode("x", CANDIDATES, **loss),
    "mode by rows": lambda **loss: dpp.mode("x", CANDIDATES, counts="rows", **loss),
    "median": lambda **loss: dpp.median("x", CANDIDATES, **loss),
    "people": lambda **loss: dpp.n_people(**loss),
    "rows": lambda **loss: dpp.len(**loss),
    "counts of values": lambda **loss: dpp.value_counts("x", CANDIDATES, **loss),
}
BOUNDS = ("max_rows", "max_groups", "max_rows_per_group")


def contributed(protection, query, groups, codes):
    """What one person adds to each group: what the range of the query is about."""
    if protection.counts_people(query) and query.bounds_people:
        return Counter(set(groups))
    return Counter(
        groups if not protection.counts_people(query) else [group for group, _ in set(zip(groups, codes, strict=True))]
    )


def kept_of(protection, query, groups, rows):
    """Group by group, what is kept of a person with these rows (group, code)."""
    where, codes = np.array(sorted(rows)).T
    of_people = codes if protection.counts_people(query) else None
    (found,) = keep(np.array([len(rows)]), where, [BoundedRows(protection.limits(query, groups), None, of_people)])
    return contributed(protection, query, where[found.rows].tolist(), codes[found.rows].tolist())


def within(found: Counter[int], bounds: Contributions) -> bool:
    sizes = list(found.values())
    squares = sum(size**2 for size in sizes)
    return sum(sizes) <= bounds.total and max(sizes) <= bounds.per_group and squares <= bounds.squares


def most_of(asked: str, max_rows: int | None, max_groups: int | None, per_group: int | None, groups: int) -> int:
    """How much a person with many rows counts for, as the arguments of `protect` say."""
    in_groups = min(max_groups or groups, groups)
    if asked in ("mode", "people"):  # once in each group
        each = 1
    elif asked == "counts of values":  # once for each value
        each = min(per_group or max_rows or SIZE, SIZE)
    else:
        each = per_group or max_rows or 0
    return min(max_rows or MANY, in_groups * each)


@pytest.mark.parametrize("asked", EXPRESSIONS)
@pytest.mark.parametrize("groups", range(1, MOST_GROUPS + 1))
def test_a_person_with_many_rows_has_just_the_contributions_that_are_charged(asked, groups):
    query = EXPRESSIONS[asked](rho=1).query
    rows = list(product(range(groups), CANDIDATES * 3))
    tried = 0
    for most in product((None, 1, 2, 3, 5, 8), (None, 1, 2, 3, 9), (None, 1, 2, 4)):
        protection = Protection(("p",), *most, "add_or_remove_one")
        try:
            bounds = protection.contributions(query, groups)
        except ValueError:
            assert most[0] is None
            assert most[2] is None
            continue
        found = kept_of(protection, query, groups, rows)
        assert within(found, bounds), most
        assert sum(found.values()) == bounds.total == most_of(asked, *most, groups), most
        # And each bound by itself, as the arguments say.
        assert len(found) <= (most[1] or groups), most
        assert sum(found.values()) <= (most[0] or len(rows)), most
        assert max(found.values()) <= (most[2] or len(rows)), most
        tried += 1
    assert tried > 50


def test_a_bound_that_is_not_enforced_would_be_found():
    """The negative control: five rows in one group, where two are charged for."""
    bounds = Protection(("p",), 5, 3, 2, "add_or_remove_one").contributions(EXPRESSIONS["median"](rho=1).query, 4)
    assert bounds == Contributions(5, 2)
    assert bounds.squares == 9
    assert within(Counter({0: 2, 1: 2, 2: 1}), bounds)
    assert not within(Counter({0: 5}), bounds)
    assert not within(Counter({0: 3, 1: 2}), bounds)
    assert not within(Counter({0: 2, 1: 2, 2: 2}), bounds)


@pytest.mark.parametrize("unit", ["epsilon", "rho"])
@pytest.mark.parametrize("asked", EXPRESSIONS)
@pytest.mark.parametrize(
    "most",
    [
        {"max_rows_per_group": 2, "max_groups": 2, "max_rows": 3},
        {"max_rows_per_group": 2, "max_groups": 3, "max_rows": 5},
        {"max_rows_per_group": 2, "max_rows": 5},
        {"max_rows_per_group": 3, "max_groups": 2},
        {"max_rows": 4, "max_groups": 2},
    ],
    ids=str,
)
def test_a_release_keeps_what_its_claim_is_charged_for(asked, most, unit):
    query = protected({"g": range(5)}, **most).agg(out=EXPRESSIONS[asked](**{unit: 1}))
    (ask,) = query._asks
    rng = np.random.default_rng(3)
    for n in (1, 2, 12, 40):
        spread = {"g": rng.integers(0, 5, n), "x": rng.integers(0, SIZE, n)}
        for columns in (spread, {"g": np.zeros(n, int), "x": spread["x"]}, {"g": np.arange(n) % 5, "x": spread["x"]}):
            rows = pl.LazyFrame({"p": [1] * n, **columns})
            engine = PolarsEngine.of(rows)
            (histogram,) = histograms_by(engine, query)
            owner = np.repeat(np.arange(5), histogram.sizes)
            groups, codes = (np.repeat(each, histogram.weights).tolist() for each in (owner, histogram.codes))
            found = contributed(query._protection, ask.query, groups, codes)
            assert within(found, ask.query.claim.contributions)
            assert len(found) <= most.get("max_groups", 5)


@pytest.mark.parametrize("wrap", [pl.struct, pl.concat_list])
def test_a_privacy_unit_with_categories_inside_is_refused(wrap):
    """People would be told apart by the numbers of categories, which other rows decide."""
    frame = pl.DataFrame({"name": pl.Series(["Ada", "Bob"], dtype=pl.Categorical)}).select(p=wrap("name"))
    with pytest.raises(TypeError, match="must not hold Categoricals inside a nested type"):
        frame.dp.protect("p").agg(n=dpp.n_people(epsilon=1)).release()
