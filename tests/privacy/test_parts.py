"""Disjoint parts: what one person changes in all answers of a publication, by the exact law of small data sets.

What counts of each small person is counted by the engine, for every choice of parts. The law of all answers together is
then a mixture over these choices, with and without the person, or with another one instead.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction
from functools import cache

import numpy as np
import polars as pl
import pytest

import dp_polars as dpp
from dp_polars._engines.polars import rows as rows_of_polars
from dp_polars._engines.polars.engine import PolarsEngine
from dp_polars._release.contract import PartChoice
from dp_polars._release.release import keep_parts
from tests.helpers.reference import floats, law, together

pytestmark = pytest.mark.slow

PARTS, SIZE = 3, 2
BY = {"part": range(PARTS)}
CELLS = [*itertools.product(range(PARTS), range(SIZE))]
# Up to two rows, or one in each part.
PEOPLE = [rows for n in range(3) for rows in itertools.combinations_with_replacement(CELLS, n)]
PEOPLE += [tuple(enumerate(values)) for values in itertools.product(range(SIZE), repeat=PARTS)]
# Beside whom: nobody, one who has several parts, too, and many.
OTHERS = ((), (((0, 0), (1, 1)),), (((0, 0),),) * 5 + (((1, 1),),) * 5)
ORDERS = (1.5, 2, 3)
LOSSES = {"epsilon": {"epsilon": 1}, "rho": {"rho": Fraction(1, 2)}}


def asked(unit, loss, relation, max_parts, names=("number", "choice")):
    """Two queries of parts: a number, and a choice; or one of them."""
    private = dpp.protect(unit, neighboring_relation=relation)
    number = dpp.len(**LOSSES[loss]) if unit is None else dpp.n_people(**LOSSES[loss])
    choice = dpp.mode("value", range(SIZE), **LOSSES[loss])
    queries = {"number": private.agg(n=number), "choice": private.agg(top=choice)}
    return dpp.publication({name: queries[name] for name in names}, by=BY, max_parts=max_parts)


def counted(publication, rows, monkeypatch):
    """What one person adds to the numbers of each query and part -> probability: one for each choice of parts."""
    frame = pl.DataFrame(
        [(1, *row) for row in rows], {"person": pl.Int64, "part": pl.Int64, "value": pl.Int64}, orient="row"
    )
    found = Counter()
    protection = publication.queries["number"]._protection
    has, most = len({part for part, _ in rows}), protection.parts.most
    subsets = [()] if protection.unit is None else [*itertools.combinations(range(has), min(most, has))]
    for subset in subsets:
        stays = [place in subset for place in range(has)]
        monkeypatch.setattr(rows_of_polars, "random_few", lambda *_, stays=stays: np.array(stays, bool))
        choice, source = PartChoice(), PolarsEngine.of(frame.lazy())._source
        numbers = []
        for query in publication.queries.values():
            engine = PolarsEngine(source)
            keep_parts(query._request, engine, choice)
            work = query._request.bind(engine)
            (histogram,) = engine.prepare_histograms(work)()
            size = work.specs[0].binning.size
            table = np.zeros((PARTS, size), np.int64)
            groups = np.repeat(np.arange(PARTS), histogram.sizes)
            table[groups, histogram.codes] = histogram.weights
            numbers.append(tuple(map(tuple, table.tolist())))
        found[tuple(numbers)] += Fraction(1, len(subsets))
    return found


@cache
def choice(counts, rate, mechanism):
    return floats(law(counts, rate=rate, mechanism=mechanism, digits=20))


def chances(query, counts, low, high):
    claim = query._asks[0].query.claim
    rate = float(claim.rate)
    if claim.mechanism == "discrete_laplace":  # beyond these the ratios are those of the ends
        return np.exp(-rate * np.abs(np.arange(low, high + 1) - counts[0]))
    if claim.mechanism == "discrete_gaussian":
        weights = np.exp(-((rate * (np.arange(low - 5, high + 6) - counts[0])) ** 2) / 2)
        return weights / weights.sum()
    return choice(counts, claim.rate, claim.mechanism)


def laws(publication, of_people, others):
    """Rows of one more person -> the law of the answers in all parts, a mixture over all choices of parts.

    It is a list of the laws for each choice, each a list by query and part: the answers there are independent.
    """
    beside = Counter({of_nobody(publication): Fraction(1)})
    for rows in others:
        beside = together(beside, of_people[rows])
    mixed = {rows: together(beside, found) for rows, found in of_people.items()}
    every = [numbers for mixture in mixed.values() for numbers in mixture]
    counts = [count for numbers in every for of_part in numbers[0] for count in of_part]
    ends = min(counts), max(counts)
    found = {}
    for rows, mixture in mixed.items():
        whole = 0
        for numbers, chance in mixture.items():
            own = np.array([float(chance)])
            for query, parts in zip(publication.queries.values(), numbers, strict=True):
                for of_part in parts:
                    own = np.multiply.outer(own, chances(query, of_part, *ends)).ravel()
            whole = whole + own
        found[rows] = whole
    return found


def of_nobody(publication):
    return tuple(((0,) * (1 if name == "number" else SIZE),) * PARTS for name in publication.queries)


def worst(publication, unit, relation, others, monkeypatch, people=PEOPLE):
    """The largest log-ratio over what is charged; in rho, the largest Renyi divergence over order times that."""
    of_people = {rows: counted(publication, rows, monkeypatch) for rows in {*people, *others}}
    found, cost = laws(publication, of_people, others), float(publication.loss.value)
    gone = np.array([found[rows] for rows in people])
    come = gone[:1] if relation == "add_or_remove_one" else gone
    largest = 0.0
    for other in come:
        if publication.loss.unit == "epsilon":
            largest = max(largest, float(np.abs(np.log(gone) - np.log(other)).max()) / cost)
            continue
        for order, (p, q) in itertools.product(ORDERS, ((gone, other), (other, gone))):
            divergence = np.log(np.exp(order * np.log(p) + (1 - order) * np.log(q)).sum(axis=-1)) / (order - 1)
            largest = max(largest, float(divergence.max()) / (order * cost))
    return largest


UNITS = [("person", 1), ("person", 2), ("person", 3), (None, 1)]


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(("unit", "max_parts"), UNITS)
def test_parts_cost_no_more_than_is_charged(unit, max_parts, loss, relation, monkeypatch):
    publication = asked(unit, loss, relation, max_parts)
    people = [rows for rows in PEOPLE if len(rows) <= 1] if unit is None else PEOPLE
    every = OTHERS if loss == "epsilon" and unit is not None else OTHERS[:1]
    largest = max(worst(publication, unit, relation, others, monkeypatch, people) for others in every)
    assert largest <= 1 + 1e-9
    # A mode is charged as if all that leave a part came back to it, which moves its scores twice as far.
    least = (0.95, 0.6) if relation == "add_or_remove_one" else (0.7, 0.3)
    assert largest > least[loss != "epsilon"]


@pytest.mark.parametrize(("unit", "max_parts"), UNITS)
def test_a_person_attains_what_is_charged(unit, max_parts, relation, monkeypatch):
    """So no smaller number of parts is enough: a person leaves some parts and enters others."""
    publication = asked(unit, "epsilon", relation, max_parts, ["number"])
    people = [rows for rows in PEOPLE if len(rows) <= 1] if unit is None else PEOPLE
    assert 0.99 < worst(publication, unit, relation, (), monkeypatch, people) <= 1 + 1e-9


@pytest.mark.parametrize("max_parts", [1, 2])
def test_two_people_lose_no_more_than_the_map_says(max_parts, monkeypatch):
    publication = asked("person", "epsilon", "add_or_remove_one", max_parts, ["number"])
    people = [rows for rows in PEOPLE if len(rows) <= 2]
    of_people = {rows: counted(publication, rows, monkeypatch) for rows in people}
    pairs = {both: together(of_people[both[0]], of_people[both[1]]) for both in itertools.product(people, repeat=2)}
    found = laws(publication, pairs, ())
    logs = np.log(np.array([found[both] for both in pairs]))
    nobody = np.log(found[((), ())])
    most = float(np.abs(logs - nobody).max())
    protection = publication.queries["number"]._protection
    (claim,) = {*publication.queries["number"]._planned.claims}
    said = protection.changed_parts * protection.parts_of_people(Fraction(2)) * claim.cost("epsilon", 2)
    assert float(publication.loss.value) < most <= float(said) * (1 + 1e-9)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_person_in_more_parts_would_be_found(loss, relation, monkeypatch):
    """The negative control: two parts of a person count, and one is paid for."""
    one, two = (asked("person", loss, relation, most, ["number"]) for most in (1, 2))
    most = worst(two, "person", relation, (), monkeypatch) * float(two.loss.value)
    assert most / float(one.loss.value) > (1.4 if loss == "epsilon" else 1.1)
    assert two.loss.value == one.loss.value * (2 if relation == "add_or_remove_one" else Fraction(3, 2))


@pytest.mark.parametrize("max_parts", [1, 2])
def test_selected_keys_of_one_person_are_shown_with_delta_in_all(max_parts, relation):
    """A person alone has a key of their own in each of the parts that count."""
    private = dpp.protect("person", max_groups=1, neighboring_relation=relation)
    keys = dpp.publication(keys=private.keys("value", epsilon=1, delta=1e-3), by=BY, max_parts=max_parts)
    (ask,) = keys.queries["keys"]._asks
    shown = float(ask.query.selection.chances([1])[0])
    changed = min(PARTS, max_parts * (1 if relation == "add_or_remove_one" else 2))
    assert keys.delta == changed * ask.query.claim.delta
    assert 1 - (1 - shown) ** max_parts <= float(keys.delta) * (1 + 1e-9)
    assert math.isclose(float(keys.loss.value), changed)


def test_the_forced_choices_are_those_that_the_engine_may_make(monkeypatch):
    publication = asked("person", "epsilon", "add_or_remove_one", 2)
    rows = ((0, 0), (1, 1), (2, 0))
    found = counted(publication, rows, monkeypatch)
    numbers = sorted(tuple(count for (count,) in numbers[0]) for numbers in found)
    assert numbers == [(0, 1, 1), (1, 0, 1), (1, 1, 0)]
    assert {*found.values()} == {Fraction(1, 3)}
