"""What counts of a person against the contributions that the claim reckons with: all small bounds, and whole releases.

No more may count, or a person loses more than is charged; and a person with many rows reaches it, or the noise is for
rows that nobody can have. Rows are drawn for choices; for numbers all of them are weighted.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import product

import numpy as np
import polars as pl
import pytest

import dp_polars as dpp
from dp_polars._accounting.terms import Contributions
from dp_polars._engines.polars.bounding import BoundedRows, keep
from dp_polars._engines.polars.engine import PolarsEngine
from dp_polars._mechanisms.person_weights import ARRAYS, UNIT
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
CHOICES = ("mode", "mode by rows", "median")
NUMBERS = tuple(name for name in EXPRESSIONS if name not in CHOICES)


def contributed(protection, query, groups, codes):
    """What one person adds to each group: what the range of the query is about."""
    if protection.counts_people(query) and query.limits_people:
        return Counter(set(groups))
    return Counter(
        groups if not protection.counts_people(query) else [group for group, _ in set(zip(groups, codes, strict=True))]
    )


def weighed(query, groups, weights, bits):
    """What one person adds to each group in parts, of a number that nothing is drawn for."""
    found = Counter()
    for group, weight in zip(groups, weights, strict=True):
        found[group] += weight
    return [Fraction(number, 2**bits) for number in found.values()]


def kept_of(protection, query, groups, rows):
    """Group by group, what is kept of a person with these rows (group, code)."""
    where, codes = np.array(sorted(rows)).T
    of_people = codes if protection.counts_people(query) else None
    (found,) = keep(
        np.array([len(rows)]), where, [BoundedRows(protection.drawn_limits(query, groups), None, of_people)]
    )
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


@pytest.mark.parametrize("asked", CHOICES)
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


@pytest.mark.parametrize("asked", NUMBERS)
@pytest.mark.parametrize("unit", ["epsilon", "rho"])
@pytest.mark.parametrize("groups", range(1, MOST_GROUPS + 1))
def test_a_person_with_many_rows_counts_for_just_the_norm_that_is_charged(asked, unit, groups):
    """In full within the limits; beyond them less, but by no more than rounding takes away."""
    query, tried = EXPRESSIONS[asked](**{unit: 1}).query, 0
    power, counted = 1 if unit == "epsilon" else 2, query.fixed_size or 10**6
    for most in product((None, 1, 2, 3, 5, 8), (None, 1, 2, 3, 9), (None, 1, 2, 4), (None, 1, 3)):
        max_rows, max_groups, per_group, max_norm = most
        protection = Protection(("p",), max_rows, max_groups, per_group, "add_or_remove_one", max_norm)
        try:
            bounds = protection.contributions(query, groups)
        except ValueError:
            assert (max_rows, per_group, max_norm) == (None, None, None)
            continue
        limit = bounds.total if power == 1 else bounds.squares
        if max_norm is None:
            assert bounds.total == most_of(asked, max_rows, max_groups, per_group, groups), most
        weight = protection.weight(query, groups)
        rows = np.full(groups, 1 if asked == "people" else SIZE if asked == "counts of values" else counted)
        if weight is None:
            assert sum(rows**power) <= limit, most
            continue
        of_rows = weight.of_rows(weight.norm(rows, ARRAYS).sum(), rows, ARRAYS)
        parts = [int(of_row) * int(n) for of_row, n in zip(of_rows, rows, strict=True)]
        norm = sum(Fraction(part, UNIT) ** power for part in parts)
        assert norm <= limit, most
        could = sum(min(int(n), per_group or int(n)) ** power for n in rows)  # under the cap
        lost = Fraction(int(rows.sum()) + groups, UNIT)  # each row, and each group, by a part at most
        assert norm >= min(limit, could) * (1 - lost) ** 2 - lost, most
        tried += 1
    assert tried > 50 or (asked == "people" and groups == 1)  # of one group, a person is in no more


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
            if ask.query.in_parts:
                (bits,) = ask.query.bits_of_parts(pl.Int64())
                found = weighed(ask.query, owner.tolist(), histogram.weights.tolist(), bits)
                bounds, power = ask.query.claim.contributions, 1 if unit == "epsilon" else 2
                assert 0 < sum(number**power for number in found) <= (bounds.total if power == 1 else bounds.squares)
                continue
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
