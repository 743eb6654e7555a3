"""What one person changes in synthetic rows: whole transcripts on tiny domains, by exact laws.

A guarantee holds for any model that follows from earlier answers, so the model here is any function of these: it needs
no package, and it may be as wrong as it can be.
"""

import itertools
import math
import random
from dataclasses import replace
from fractions import Fraction

import numpy as np
import polars as pl
import pytest

import dp_polars as dpp
from dp_polars._accounting import costs
from dp_polars._accounting.terms import Contributions, Loss
from dp_polars._engines.polars.engine import PolarsEngine
from dp_polars._frames import synthetic_query
from dp_polars._frames.cube_query import of_table
from dp_polars._mechanisms import adaptive_tables
from dp_polars._mechanisms.adaptive_tables import AdaptivePlan
from dp_polars._mechanisms.residuals import UNITS
from dp_polars._statistics.measures import Count
from tests.helpers.reference import floats, law
from tests.registry import RELATIONS

DIMENSIONS = {"a": [0, 1], "b": [0, 1, 2]}
SHAPE = (2, 3)
NODES, WEIGHTS = np.polynomial.legendre.leggauss(8)  # exact for polynomials of these degrees
PEOPLE = [{"max_groups": 1}, {"max_rows": 1}, {"max_rows": 2}, {"max_groups": 2, "max_rows_per_group": 1}]


class Anything:
    """A model that is any function of the noisy tables, and far off where it can be."""

    def __init__(self, sizes, measured, warm_start=None):
        seen = [(one.axes, one.noise.rate, one.counts.tolist()) for one in measured]
        self.random, self.sizes, self.total = random.Random(repr(seen)), sizes, 5.0
        self.tables = {}

    def table(self, axes):
        if axes not in self.tables:
            cells = math.prod(self.sizes[axis] for axis in axes)
            self.tables[axes] = np.array([self.random.choice([0.0, 0.3, 1.7, 4.0, 1e4]) for _ in range(cells)])
        return self.tables[axes]


@pytest.fixture(autouse=True)
def any_model(monkeypatch):
    monkeypatch.setattr(adaptive_tables, "fit", Anything)
    monkeypatch.setattr(adaptive_tables, "cells_of", lambda sizes, tables: 0)
    monkeypatch.setattr(synthetic_query, "imported", lambda: None)


def work_of(query):
    frame = pl.LazyFrame(schema={"p": pl.Int64, "a": pl.Int64, "b": pl.Int64})
    return query._request.bind(PolarsEngine.of(frame))


def played(work, cells, script, monkeypatch):
    """Return the transcript of a script on the counts of all cells, and the log-probability of each of its draws."""
    logs, choices, numbers = [], iter(script["choices"]), iter(script["numbers"])

    def chosen(scores, lengths, rate, racing, rng):
        word = {one: word for word, one in adaptive_tables.LAWS.items()}[racing]
        place = next(choices) % len(scores)
        logs.append(float(law(list(scores), rate=rate, mechanism=word, digits=30)[place].log()))
        return np.array([place])

    def noise_of(claim, count):
        noise = np.array([next(numbers) for _ in range(count)]) - noise_of.counts
        if claim.mechanism == "discrete_laplace":
            logs.append(-float(claim.rate * int(abs(noise).sum())))
        else:
            logs.append(-float(claim.rate**2 * int((noise**2).sum()) / 2))
        return noise

    def noisy(axes, counts, claim):
        noise_of.counts = counts
        return original(axes, counts, claim)

    original = adaptive_tables._noisy
    with monkeypatch.context() as patch:
        patch.setattr(adaptive_tables, "best_rows", chosen)
        patch.setattr(adaptive_tables, "noise_of", noise_of)
        patch.setattr(adaptive_tables, "_noisy", noisy)
        groups = np.flatnonzero(cells)
        histogram = work.histogram(groups, np.zeros_like(groups), cells[groups])
        drawn = work.assemble([histogram])
    return drawn, logs


def scripts(number):
    chance = random.Random(3)
    for _ in range(number):
        far = chance.choice([0, 3, 10, 100])
        yield {
            "choices": [chance.randrange(99) for _ in range(99)],
            "numbers": [chance.randint(-far, far) for _ in range(999)],
        }


def moves(total, relation):
    """Every change of the cells that a person's rows may make."""
    rows = [np.zeros(6, np.int64)]
    for many in range(1, total + 1):
        places = itertools.combinations_with_replacement(range(6), many)
        rows += [np.bincount(cells, minlength=6) for cells in places]
    if relation == "add_or_remove_one":
        return rows[1:]
    return [b - a for a, b in itertools.product(rows, repeat=2) if (a != b).any()]


@pytest.mark.parametrize("bounds", PEOPLE, ids=str)
def test_no_transcript_of_a_tiny_domain_loses_more_than_its_claims(bounds, relation, monkeypatch):
    query = dpp.protect("p", **bounds, neighboring_relation=relation).synthetic(DIMENSIONS, epsilon=2)
    work, chance, largest = work_of(query), random.Random(1), 0.0
    total = 1 if 1 in bounds.values() and "max_rows_per_group" not in bounds else 2
    changes = moves(total, relation)
    for script in scripts(60):
        change = chance.choice(changes)
        cells = np.array([chance.choice([0, 1, 2, 5]) for _ in range(6)]) + np.maximum(-change, 0)
        one, logs = played(work, cells, script, monkeypatch)
        other, other_logs = played(work, cells + change, script, monkeypatch)
        assert one.equals(other)
        lost = abs(sum(logs) - sum(other_logs))
        largest = max(largest, lost)
        assert lost <= 2 + 1e-9
    assert largest > 0.6


@pytest.mark.parametrize("bounds", PEOPLE, ids=str)
def test_choices_pay_for_all_rows_of_a_person(bounds, relation):
    """Each row moves a difference of scores by the range: scripts at random seldom come near all of them."""
    query = dpp.protect("p", **bounds, neighboring_relation=relation).synthetic(DIMENSIONS, epsilon=2)
    total = 1 if 1 in bounds.values() and "max_rows_per_group" not in bounds else 2
    for part in (Fraction(1), Fraction(1, 9)):
        claim = query._request.rounds[1].of_part(part)
        lost = claim.rate * claim.score_range * total
        assert claim.loss.value * (1 - Fraction(1, 2**60)) <= lost <= claim.loss.value


@pytest.mark.parametrize("relation_factor", [("add_or_remove_one", 2), ("replace_one", 4)], ids=str)
@pytest.mark.parametrize("weights", [None, [1, Fraction(5, 2), 3]], ids=str)
def test_a_person_moves_differences_of_scores_by_the_range_at_most(relation_factor, weights):
    relation, factor = relation_factor
    dimensions = {"a": [0, 1], "b": [0, 1], "c": [0, 1]}
    private = dpp.protect(None, neighboring_relation=relation)
    query = private.synthetic(dimensions, weights=weights, rho=1)
    plan, (tables, choices) = query._request.adaptive, query._request.rounds
    assert choices.claim.score_range == factor * choices.largest_weight
    claims = {axes: tables.of_part(Fraction(1, 9)) for axes, _ in plan.weights}
    rng, largest = np.random.default_rng(4), 0
    single = np.eye(8, dtype=np.int64).reshape(8, 2, 2, 2)
    changes = [*single] if factor == 2 else [b - a for a, b in itertools.product(single, repeat=2)]

    def of(cells):
        return {axes: cells.sum(axis=tuple({0, 1, 2} - {*axes})).ravel() for axes in claims}

    for _ in range(40):
        cells = rng.integers(0, 4, (2, 2, 2)) + 1
        modelled = {axes: rng.choice([0, 0.4, 2.6, 1e14], len(counts)) for axes, counts in of(cells).items()}
        before = plan.scores(of(cells), modelled, claims)
        for change in changes:
            moved = plan.scores(of(cells + change), modelled, claims) - before
            largest = max(largest, max(moved) - min(moved))
    assert largest <= choices.claim.score_range * UNITS
    # Under add or remove, nearly all of it; a pair and a single dimension can't both have the largest weight.
    assert largest >= choices.claim.score_range * UNITS * (0.9 if weights is None else 0.6)


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["epsilon", "rho"])
def test_a_choice_has_the_law_of_the_race(unit):
    query = dpp.protect(None).synthetic(DIMENSIONS, **{unit: 5})
    plan, (tables, choices) = query._request.adaptive, query._request.rounds
    counts = {(0,): np.array([3, 1]), (1,): np.array([2, 1, 1]), (0, 1): np.array([1, 1, 1, 1, 0, 0])}
    model = Anything(SHAPE, [])
    model.tables = {(0,): np.array([2.5, 1.5]), (1,): np.ones(3), (0, 1): np.array([4.0, 0, 0, 0, 0, 0])}
    claims, choice = dict.fromkeys(counts, tables.of_part(Fraction(1, 2))), choices.of_part(Fraction(1, 2))
    rate = choice._rate_in(Fraction(1, UNITS))
    assert choice.mechanism == {"epsilon": "permute_and_flip", "rho": "exponential"}[unit]
    scores = list(plan.scores(counts, model.tables, claims))
    expected = floats(law(scores, rate=rate, mechanism=choice.mechanism, digits=30))
    many = 10_000
    found = [plan.chosen(counts, model, claims, choice) for _ in range(many)]
    for axes, probability in zip(claims, expected, strict=True):
        deviation = math.sqrt(probability * (1 - probability) / many)
        assert abs(found.count(axes) / many - probability) < 5 * deviation + 1e-9
    # A negative control: half of the rate is another law.
    other = floats(law(scores, rate=rate / 2, mechanism=choice.mechanism, digits=30))
    assert max(abs(np.array(other) - expected)) > 0.05


@pytest.mark.parametrize("unit", ["epsilon", "rho"])
def test_rounds_add_up_to_their_loss_whatever_is_drawn(unit, relation, monkeypatch):
    query = dpp.protect("p", max_rows=2, neighboring_relation=relation).synthetic(DIMENSIONS, **{unit: 3})
    work, spent, claim_of = work_of(query), [], synthetic_query.ChosenTables.of_part

    def noted(self, part):
        claim = claim_of(self, part)
        spent.append((type(self), claim))
        return claim

    monkeypatch.setattr(synthetic_query.ChosenTables, "of_part", noted)
    cells, lengths = np.array([4, 0, 1, 3, 2, 2]), set()
    for script in scripts(30):
        spent.clear()
        drawn, _ = played(work, cells, script, monkeypatch)
        choices = [claim.loss.value for kind, claim in spent if kind is synthetic_query.Choices]
        whole = {type(one): one.claim.loss.value for one in query._request.rounds}
        assert sum(choices) == whole[synthetic_query.Choices]
        parts = [loss / whole[synthetic_query.Choices] for loss in choices]
        rounds = drawn.height - len(DIMENSIONS)
        assert len(parts) == rounds <= work.plan.rounds
        rates = [Fraction(rate) for rate in drawn["rate"][len(DIMENSIONS) :]]
        for axes, part, rate in zip(drawn["axes"][len(DIMENSIONS) :], parts, rates, strict=True):
            # The noise of a table is that of a cube of this table alone, at the part of the loss.
            table = [list(DIMENSIONS)[axis] for axis in axes]
            loss = whole[synthetic_query.ChosenTables] * part
            private = dpp.protect("p", max_rows=2, neighboring_relation=relation)
            dimensions = {name: DIMENSIONS[name] for name in table}
            alone = private.cube(dimensions, counts="rows", **{unit: loss})._asks[0].query.claim
            assert rate == alone.rate
        lengths.add(rounds)
    assert len(lengths) > 1  # the pace follows from what was drawn
    assert query.loss.value == sum(ask.query.claim.loss.value for ask in query._asks) == 3


def test_in_the_other_unit_no_schedule_costs_more():
    x, n = Fraction(3), 12
    chance = random.Random(6)
    query = dpp.protect(None).synthetic(DIMENSIONS, epsilon=3)
    tables, choices = query._request.rounds
    for _ in range(50):
        cuts = sorted(chance.randrange(n + 1) for _ in range(4))
        parts = [Fraction(b - a, n) for a, b in itertools.pairwise([0, *cuts, n]) if a < b]
        for one, curve in ((tables, costs.pure_rho), (choices, costs.laplace_rho)):
            assert sum(curve(one.claim.loss.value * part) for part in parts) <= one.claim.cost("rho")
        assert sum(costs.pure_rho(x * part) for part in parts) <= costs.pure_rho(x)
    for relation in RELATIONS:
        private = dpp.protect("p", max_rows=2, neighboring_relation=relation)
        request = private.synthetic({"a": [0], "b": [0, 1]}, epsilon=3)._request
        chosen = request.rounds[0]
        for axes in request.weights:
            for part in (Fraction(1), Fraction(1, 4)):
                query = Count(chosen.counted, chosen.terms.times(part))
                of_axes = of_table(request.protection, request.sizes, axes[0], query).claim
                assert of_axes.cost("epsilon") == chosen.claim.cost("epsilon") * part
                assert of_axes.cost("rho") / part <= chosen.claim.cost("rho")
    in_rho = dpp.protect(None).synthetic(DIMENSIONS, rho=Fraction(1, 2))._request
    choices, most = in_rho.rounds[1], in_rho.adaptive.rounds
    for _ in range(20):
        cuts = sorted(chance.randrange(most + 1) for _ in range(chance.randrange(most)))
        parts = [Fraction(b - a, most) for a, b in itertools.pairwise([0, *cuts, most]) if a < b]
        spent = sum(choices.of_part(part).cost("epsilon") for part in parts)
        assert spent <= choices.claim.cost("epsilon")
    assert choices.claim._draws == most
    assert choices.claim.contributions == Contributions(1, 1)


@pytest.mark.parametrize("order", [1.5, 2, 8, 40])
def test_a_choice_in_rho_keeps_its_divergence(order, relation):
    query = dpp.protect("p", max_rows=2, neighboring_relation=relation).synthetic(DIMENSIONS, rho=2)
    plan, (tables, choices) = query._request.adaptive, query._request.rounds
    choice, claims = choices.of_part(Fraction(1, 3)), {}
    for axes, _ in plan.weights:
        claims[axes] = tables.of_part(Fraction(1, 3))
    rate, chance, largest = choice._rate_in(Fraction(1, UNITS)), np.random.default_rng(8), 0.0

    def of(cells):
        return {axes: cells.reshape(SHAPE).sum(axis=tuple({0, 1} - {*axes})).ravel() for axes in claims}

    changes = moves(2, relation)
    for _ in range(150):
        change = changes[chance.integers(len(changes))]
        cells = chance.integers(0, 5, 6) + np.maximum(-change, 0)
        modelled = {axes: chance.choice([0, 1.25, 3, 9], len(counts)) for axes, counts in of(cells).items()}
        p, q = (
            np.array(floats(law(list(plan.scores(of(one), modelled, claims)), rate=rate, mechanism="exponential")))
            for one in (cells, cells + change)
        )
        divergence = math.log((p**order * q ** (1 - order)).sum()) / (order - 1)
        largest = max(largest, divergence / order)
        assert divergence <= order * float(choice.loss.value) * (1 + 1e-9)
    assert largest > 0.1 * float(choice.loss.value)


class Noted:
    """The transcript of releases, as somebody sees it who knows all rows but for whether one more person is there."""

    def __init__(self, work, without, with_one, monkeypatch):
        self.work, self.log, both = work, 0.0, (without, with_one)
        self.sides = [work.histogram(*listed(cells)) for cells in both]
        self.tables = [
            {axes: cells.reshape(SHAPE).sum(axis=tuple({0, 1} - {*axes})).ravel() for axes, _ in work.plan.weights}
            for cells in both
        ]
        chosen, noisy = AdaptivePlan.chosen, adaptive_tables._noisy

        def choice(plan, tables, model, claims, claim):
            axes = chosen(plan, tables, model, claims, claim)
            place = [*claims].index(axes)
            modelled = {one: model.table(one) for one in claims}
            rate = claim._rate_in(Fraction(1, UNITS))
            logs = []
            for tables_of in self.tables:
                scores = [int(one) for one in plan.scores(tables_of, modelled, claims)]
                logs.append(log_law(scores, float(rate))[place])
            self.log += logs[1] - logs[0]
            return axes

        def table(axes, counts, claim):
            found = noisy(axes, counts, claim)
            apart = [abs(found.counts - tables_of[axes]).sum() for tables_of in self.tables]
            self.log += float(claim.rate) * (apart[0] - apart[1])
            return found

        monkeypatch.setattr(AdaptivePlan, "chosen", choice)
        monkeypatch.setattr(adaptive_tables, "_noisy", table)

    def ratios(self, side, many):
        """Return the log-likelihood ratio of transcripts: no attack on a person's membership is better."""
        found = []
        for _ in range(many):
            self.log = 0.0
            self.work.assemble([self.sides[side]])
            found.append(self.log)
        return np.array(found)


def listed(cells):
    groups = np.flatnonzero(cells)
    return groups, np.zeros_like(groups), cells[groups]


def log_law(scores, rate):
    """Return the log-probabilities of few candidates by permute-and-flip."""
    coins = np.exp(rate * (np.array(scores, float) - max(scores)))
    factors = 1 - coins[:, None] * (NODES + 1) / 2
    others = np.array([np.delete(factors, place, axis=0).prod(axis=0) for place in range(len(coins))])
    flipped = others @ WEIGHTS / 2
    return rate * (np.array(scores, float) - max(scores)) + np.log(flipped)


def ends_of(share, many, chance):
    """Return what a probability is below, and above, but for this chance each (Chernoff & Hoeffding)."""

    def apart(q):
        terms = [p * math.log(p / other) for p, other in ((share, q), (1 - share, 1 - q)) if p > 0]
        return many * sum(terms) > -math.log(chance)

    ends = []
    for far in (0.0, 1.0):
        near = share
        for _ in range(50):
            middle = (near + far) / 2
            near, far = (near, middle) if apart(middle) else (middle, far)
        ends.append(far)
    return ends


def audited(noted, many):
    """Return an epsilon that the releases do not keep, but for a chance of 1e-6: by the best of few thresholds."""
    without, with_one = (noted.ratios(side, many) for side in (0, 1))
    found = 0.0
    for threshold in np.linspace(-2, 2, 9):
        lows, highs = zip(
            *(ends_of(float((one > threshold).mean()), many, 1e-6 / 36) for one in (without, with_one)), strict=True
        )
        for high, low in ((lows[1], highs[0]), (1 - highs[0], 1 - lows[1])):
            found = max(found, math.log(max(high, 1e-9) / low))
    return found


@pytest.mark.slow
def test_an_attack_on_membership_is_no_better_than_the_claim(monkeypatch):
    query = dpp.protect(None).synthetic(DIMENSIONS, epsilon=2)
    cells = np.array([3, 0, 1, 2, 0, 1])
    noted = Noted(work_of(query), cells, cells + np.eye(6, dtype=int)[1], monkeypatch)
    assert abs(noted.ratios(0, 100)).max() <= 2 + 1e-9
    found = audited(noted, 600)
    assert 0 < found <= 2
    # A negative control: noise for four times the loss that is claimed.
    draw = adaptive_tables.noise_of
    monkeypatch.setattr(
        adaptive_tables,
        "noise_of",
        lambda claim, count: draw(replace(claim, loss=Loss(4 * claim.loss.value, "epsilon")), count),
    )
    assert audited(noted, 600) > 2
