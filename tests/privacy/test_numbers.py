"""Per person: what gets noise, for all small frames with and without one person, and the exact loss of that.

All numbers of a release are sums over people, and how much of a person counts depends on nobody else. So a person
changes them by the same vectors in every frame. Nothing is drawn of anybody: one release shows it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import polars as pl
import pytest

import dp_polars as dpp
from dp_polars._accounting.claims import Claim
from dp_polars._accounting.terms import Contributions, Loss
from dp_polars._engines.polars import weighing
from dp_polars._frames.query import PrivateQuery
from dp_polars._mechanisms import noise
from tests.helpers.alone import alone
from tests.helpers.noised import record
from tests.helpers.reference import pure_rho
from tests.privacy.datasets import renyi
from tests.registry import STATISTICS

GROUPS, VALUES = 3, (-4, 1, 3)
EPSILON, RHO = Fraction(1, 2), Fraction(1, 4)
NUMBERS = {name: statistic for name, statistic in STATISTICS.items() if statistic.is_number}
# Numbers that all rows move in one direction: of a person who comes in another's place, some moves cancel.
ONE_SIDED = [name for name in NUMBERS if name.endswith((" 0", "len", "people", "count"))]
# Several draws share the loss, one of them a count.
OF_SEVERAL = {"mean": 2, "var": 3, "fine var": 3, "std": 3, "share": 2}
OF_VARIANCES = ("var", "fine var", "std")
# A person counts once in each group, however many rows they have.
OF_PEOPLE = [name for name, statistic in NUMBERS.items() if statistic.of_people]
SCHEMA = {"person": pl.String, "group": pl.Int64, "x": pl.Int64}
# People beyond the limits count in whole parts, rounded down: that takes less than this of what is charged.
ROUNDED = Fraction(1, 2**14)


def asks(**loss: object) -> dict[str, dpp.PrivateExpr]:
    """Every number of the registry."""
    return {name: statistic.ask(**loss) for name, statistic in NUMBERS.items()}


def persons() -> list[list[tuple[int, int]]]:
    """All people with up to three rows in up to three groups, and some with very many: their groups and values."""
    cells = list(itertools.product(range(GROUPS), VALUES))
    few = [list(rows) for n in range(4) for rows in itertools.combinations_with_replacement(cells, n)]
    many = []
    for places in ((0,), (1,), (0, 1), (0, 1, 2)):
        many += [[(group, value) for group in places] * 40 for value in VALUES]
        many += [list(itertools.product(places, VALUES)) * times for times in (1, 7)]
    many += [[(0, 3)] * 9 + [(1, -4)] * 2, [(0, -4)] * 5 + [(1, 1)] * 2 + [(2, 3)], [(0, 3)] * 5 + [(0, -4)]]
    return few + many


BOUNDS = [
    {"max_groups": 3}
    | {name: n for name, n in zip(("max_rows", "max_groups", "max_rows_per_group"), bounds, strict=True) if n}
    for bounds in itertools.product((None, 1, 2, 3), (None, 1, 2), (None, 1, 2))
    if bounds[0] or bounds[2]  # numbers of rows need one of them
]
NORMS = [{"max_norm": 1}, {"max_norm": 3}, {"max_norm": 2, "max_rows_per_group": 1}, {"max_norm": 5}]


class Draw(NamedTuple):
    """One draw: the claim that gives the noise its scale, and the whole numbers of each person, shape (people, n)."""

    claim: Claim
    values: np.ndarray

    @property
    def scaled(self) -> np.ndarray:
        """The numbers in units of the noise's scale."""
        return self.values * float(self.claim.rate)


def changes(
    monkeypatch: pytest.MonkeyPatch,
    exprs: dict[str, dpp.PrivateExpr],
    scaled: Callable[[PrivateQuery], PrivateQuery] = lambda query: query,
    *,
    shares: bool = False,
    **protection: object,
) -> tuple[dict[str, list[Draw]], PrivateQuery]:
    """What a person adds to each output: the numbers of all draws, before the noise.

    Each person is in a world of its own, of three groups: all worlds are one release.
    """
    worlds = persons()
    rows = [(str(world), 3 * world + group, value) for world, person in enumerate(worlds) for group, value in person]
    query = scaled(dpp.protect("person", **protection).group_by({"group": range(3 * len(worlds))}).agg(**exprs))
    query = query if shares else alone(query)
    both = []
    for pairs in (0, 1 << 40):  # people are counted by hashing, or in a table: in both ways alike
        with monkeypatch.context() as patch:
            patch.setattr(weighing, "_FEW_PAIRS", pairs)
            patch.setattr(weighing, "_PAIRS_PER_ROW", 0)
            both.append(record(patch))
            query.release(pl.DataFrame(rows, SCHEMA, orient="row"))
    hashed, drawn = both
    assert all((one.values == other.values).all() for one, other in zip(hashed, drawn, strict=True))
    parts, found = iter(drawn), {}
    if shares:
        found[""] = [Draw(one.claim, one.values.reshape(len(worlds), -1)) for one in drawn]
        return found, query
    for ask in query._asks:
        of_ask = [next(parts) for _ in range(ask.query.claim._draws)]
        found[ask.name] = [Draw(one.claim, one.values.reshape(len(worlds), -1)) for one in of_ask]
    assert not list(parts)
    return found, query


def largest(draws: list[Draw], relation: str = "add_or_remove_one") -> Fraction:
    """The largest loss of a change between two neighbouring frames, exactly: in ε of Laplace noise, rho of Gaussian."""
    norms = []
    for claim, values in draws:
        power = 1 if claim.mechanism == "discrete_laplace" else 2
        moves = values if relation == "add_or_remove_one" else values[:, None] - values
        norms.append((np.abs(moves) ** power).sum(axis=-1).ravel())
    worst = Fraction(0)
    for one in np.unique(np.stack(norms, axis=1), axis=0).tolist():
        losses = (
            claim.rate * norm if claim.mechanism == "discrete_laplace" else claim.rate**2 * norm / 2
            for (claim, _), norm in zip(draws, one, strict=True)
        )
        worst = max(worst, sum(losses, Fraction(0)))
    return worst


LOSSES = {"epsilon": EPSILON}, {"rho": RHO}


def check_costs(found, query, relation, attained):
    """No number costs more than its loss, in exact fractions, and those that are said to attain it cost as much."""
    for ask in query._asks:
        claim = ask.query.claim
        cost, paid = largest(found[ask.name], relation), claim.loss.value
        assert cost <= paid, ask.name
        if attained(ask.name, claim):
            assert cost >= paid * (1 - ROUNDED), (ask.name, float(cost / paid))


def most_in_group(name, bounds):
    """How much a person can have in one group."""
    if name in OF_PEOPLE:
        return 1
    cap = bounds.get("max_rows_per_group", 99)
    return min(cap, len(VALUES)) if name == "value_counts" else cap


@pytest.mark.parametrize("bounds", [*BOUNDS, *NORMS], ids=str)
def test_no_person_changes_a_number_by_more_than_the_loss_pays_for(bounds, monkeypatch):
    """A person with enough rows attains it, where three groups have room for that."""

    def attained(name, claim):
        most, spread = most_in_group(name, bounds), claim.contributions
        if claim.loss.unit == "epsilon":
            return name not in OF_SEVERAL and GROUPS * most >= spread.total
        # The counts of different values are charged as if they were one.
        is_one = name not in OF_SEVERAL and (name != "value_counts" or spread.total == 1)
        return is_one and GROUPS * most**2 >= spread.squares

    for loss in LOSSES:
        found, query = changes(monkeypatch, asks(**loss), **bounds)
        check_costs(found, query, "add_or_remove_one", attained)


@pytest.mark.parametrize("bounds", [BOUNDS[4], NORMS[1]], ids=str)
@pytest.mark.parametrize("loss", [*LOSSES, {"epsilon": 1, "delta": 1e-6}], ids=str)
def test_nor_where_the_unit_is_chosen_last(bounds, loss, monkeypatch):
    """Losses are open, and scaled to a guarantee after the limits were looked at."""
    found, query = changes(monkeypatch, asks(), lambda query: query.scaled_to(**loss), **bounds)
    units = {ask.query.claim.loss.unit for ask in query._asks}
    assert units == {"epsilon" if loss == LOSSES[0] else "rho"}
    check_costs(found, query, "add_or_remove_one", lambda name, _: name in ("len", "sum", "count"))


@pytest.mark.parametrize("loss", [{"epsilon": 10**9}, {"rho": 10**15}], ids=str)
def test_numbers_are_in_the_same_parts_in_both_units(loss):
    """In five groups a norm of 3 binds in ε, and not in rho."""
    frame = pl.DataFrame({"person": ["a"] * 5 + ["b"], "group": [0, 1, 2, 3, 4, 0], "x": [1] * 6})
    grouped = dpp.protect("person", max_norm=3).group_by({"group": range(5)})
    released = grouped.agg(n=dpp.n_people()).scaled_to(**loss).release(frame)
    assert released["n"].to_list() == [2, 1, 1, 1, 1]  # 3/5 of one person is nearer to one than to none


@pytest.mark.slow
@pytest.mark.parametrize("bounds", [*BOUNDS[::3], *NORMS], ids=str)
def test_nor_does_a_replacement(bounds, monkeypatch):
    """Two people attain it, each in a group of their own."""

    def attained(name, claim):
        if name in OF_SEVERAL or most_in_group(name, bounds) < claim.contributions.total:
            return False
        return (
            claim.loss.unit == "epsilon"
            or name in ONE_SIDED
            or (name, claim.contributions.total)
            == (
                "value_counts",
                1,
            )
        )

    for loss in LOSSES:
        found, query = changes(monkeypatch, asks(**loss), **bounds, neighboring_relation="replace_one")
        check_costs(found, query, "replace_one", attained)


@pytest.mark.slow
@pytest.mark.parametrize("keys", [None, {"group": [0]}], ids=["no group", "one key"])
@pytest.mark.parametrize("bounds", [{"max_rows": 1}, {"max_rows": 2}, {"max_rows_per_group": 2}, {"max_norm": 2}])
def test_nor_does_a_replacement_in_one_group(bounds, keys, monkeypatch):
    """What goes and what comes move the same number, unless there is one for each candidate."""
    private = dpp.protect("person", **bounds, neighboring_relation="replace_one")
    grouped = private if keys is None else private.group_by(keys)
    everyone = [person for person in persons() if {group for group, _ in person} <= {0}]
    for loss in LOSSES:
        query, found = alone(grouped.agg(**asks(**loss))), {}
        for person in everyone:
            with monkeypatch.context() as patch:
                parts = iter(record(patch))
                query.release(pl.DataFrame([("a", *row) for row in person], SCHEMA, orient="row"))
            for ask in query._asks:
                drawn = [next(parts) for _ in range(ask.query.claim._draws)]
                found.setdefault(ask.name, []).append(drawn)
        draws = {
            name: [Draw(of[0].claim, np.stack([one.values for one in of])) for of in zip(*people, strict=True)]
            for name, people in found.items()
        }
        check_costs(draws, query, "replace_one", lambda name, _: name in ONE_SIDED)


# Statistics of the same rows, that share their sums, at losses that differ.
SHARED = {
    "report": ("count", "sum from 0", "mean", "sum"),
    "above": ("count", "sum above 0", "mean"),
    "spread": ("count", "var", "std", "sum"),
    "sums": ("sum", "sum from 0", "sum above 0", "sum below 0"),
    "all": (
        "count",
        "sum",
        "sum from 0",
        "sum above 0",
        "sum below 0",
        "sum in halves",
        "mean",
        "var",
        "fine var",
        "std",
    ),
}


def shared_asks(names, unit):
    losses = (EPSILON if unit == "epsilon" else RHO, Fraction(1, 3), Fraction(1, 4))
    return {name: NUMBERS[name].ask(**{unit: losses[place % 3]}) for place, name in enumerate(names)}


@pytest.mark.parametrize("names", SHARED.values(), ids=SHARED)
@pytest.mark.parametrize("bounds", [BOUNDS[4], BOUNDS[-1], NORMS[1]], ids=str)
@pytest.mark.parametrize("unit", ["epsilon", "rho"])
def test_statistics_that_share_sums_cost_their_losses_together(names, bounds, unit, relation, monkeypatch):
    """All draws of the query together; and the losses are used: no less noise is enough for some person."""
    found, query = changes(monkeypatch, shared_asks(names, unit), shares=True, **bounds, neighboring_relation=relation)
    paid = sum(ask.query.claim.loss.value for ask in query._asks)
    assert query.loss.value == paid == sum(claim.loss.value for claim in query._request.claims)
    cost = largest(found[""], relation)
    assert cost <= paid
    for draw, (_, claim) in zip(found[""], query._request.charged, strict=False):
        if len(found[""]) == len(query._request.charged):
            assert largest([draw], relation) <= claim.loss.value
    if relation == "add_or_remove_one":
        assert any(len(getattr(ask.query, "shared", ())) for ask in query._asks) or names == SHARED["sums"]
        assert cost >= paid * Fraction(1, 4)


def test_draws_that_are_shared_by_name_alone_would_cost_more(monkeypatch):
    """The control: the same noise at the losses of two reports is charged as one of them."""
    found, query = changes(monkeypatch, shared_asks(SHARED["report"], "epsilon"), shares=True, **BOUNDS[4])
    one, _ = changes(monkeypatch, shared_asks(SHARED["report"][:1], "epsilon"), shares=True, **BOUNDS[4])
    paid = sum(ask.query.claim.loss.value for ask in query._asks)
    assert largest(found[""] + one[""]) > paid


def test_bounds_left_out_are_those_of_the_public_groups(monkeypatch):
    """The worlds above need max_groups; without it, a person may be in all of three groups."""
    for bounds in ({"max_rows_per_group": 2}, {"max_rows": 2}, {"max_rows_per_group": 1, "max_rows": 2}):
        some, all_ = (
            alone(dpp.protect("person", **bounds, **more).group_by({"group": range(n)}).agg(**asks(epsilon=1)))
            for n, more in ((3, {}), (900, {"max_groups": 3}))
        )
        assert [ask.query.claim for ask in some._asks] == [ask.query.claim for ask in all_._asks]


def test_a_person_beyond_the_bounds_would_cost_more(monkeypatch):
    """The control: the noise of bounded people, on numbers that nobody bounded."""
    bounded = alone(dpp.protect("person", max_rows=1).group_by({"group": range(2)}).agg(**asks(epsilon=EPSILON)))
    found, loose = changes(monkeypatch, asks(epsilon=EPSILON), max_rows=3, max_rows_per_group=3, max_groups=3)
    for few, many in zip(bounded._asks, loose._asks, strict=True):
        cost = largest(found[many.name]) * few.query.claim.rate / many.query.claim.rate
        assert cost >= Fraction(19, 10) * EPSILON, many.name


def test_a_mean_costs_both_of_its_halves(monkeypatch):
    halves = [
        (one.values - other.values) * float(one.claim.rate)
        for one, other in zip(
            noised(monkeypatch, [("b", 0, 1), ("a", 0, 3)]), noised(monkeypatch, [("b", 0, 1)]), strict=True
        )
    ]
    assert [float(np.abs(half).sum()) for half in halves] == pytest.approx([EPSILON / 2, EPSILON / 2], rel=1e-12)


def test_every_number_of_several_draws_is_known():
    assert {name for name, ask in asks(epsilon=1).items() if ask.query.claim._draws > 1} == {*OF_SEVERAL}


@pytest.mark.parametrize("name", OF_SEVERAL)
def test_several_draws_cost_an_equal_share_each(name, relation, monkeypatch):
    """Each is attained: by the values at the ends, and by a row alone."""
    found, query = changes(
        monkeypatch, {name: asks(epsilon=EPSILON)[name]}, max_rows=1, max_groups=3, neighboring_relation=relation
    )
    draws = found[name]
    assert len(draws) == query._asks[0].query.claim._draws == OF_SEVERAL[name]
    for draw in draws:
        assert EPSILON / len(draws) * (1 - ROUNDED) <= largest([draw], relation) <= EPSILON / len(draws)


def noised(monkeypatch, rows):
    drawn = record(monkeypatch)
    query = alone(dpp.protect("person", max_rows=1).agg(pl.col("x").dp.mean(-4, 3, epsilon=EPSILON)))
    query.release(pl.DataFrame(rows, SCHEMA, orient="row"))
    return list(drawn)


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["epsilon", "rho"])
@pytest.mark.parametrize(
    "bounds", [{"max_rows": 1, "max_groups": 3}, {"max_rows": 3, "max_rows_per_group": 2, "max_groups": 2}]
)
def test_the_other_unit_is_charged_what_laplace_noise_costs_there(unit, bounds, relation, monkeypatch):
    """Also a mean, whose halves share a rho by the root of two each: charged as one draw, it would cost √2 as much."""
    exprs = asks(**{unit: 0.25}, mechanism="discrete_laplace")
    found, query = changes(monkeypatch, exprs, **bounds, neighboring_relation=relation)
    for ask in query._asks:
        claim, scaled = ask.query.claim, np.concatenate([draw.scaled for draw in found[ask.name]], axis=1)
        change = np.abs(scaled)
        if relation == "replace_one":
            pairs = np.concatenate([np.abs(scaled - one) for one in scaled])
            change = np.unique(np.sort(pairs, axis=1), axis=0)
        cost = largest(found[ask.name], relation)
        assert cost <= claim.cost("epsilon"), ask.name
        if ask.name == "len" and (relation == "add_or_remove_one" or bounds["max_rows"] == 1):
            # Two people of several rows need more than three groups.
            assert cost >= claim.cost("epsilon") * (1 - ROUNDED)
        for order in (1.001, 2, 9, 50):
            worst = laplace_divergence(change, order).sum(axis=1).max()
            assert worst <= order * claim.cost("rho") * (1 + 1e-9), ask.name


def laplace_divergence(x: np.ndarray, order: float) -> np.ndarray:
    """The Rényi divergence of randomized response, the worst that has the pure epsilon x."""
    p = 1 / (1 + np.exp(-x))
    return np.log(p**order * (1 - p) ** (1 - order) + (1 - p) ** order * p ** (1 - order)) / (order - 1)


def test_a_mean_pays_for_two_draws():
    mean = dpp.mean("x", 0, 1, step=1, rho=0.5, mechanism="discrete_laplace").query
    sum_, count = mean.noise()
    assert sum_.rate == count.rate == mean.claim.rate == mean.claim.cost("epsilon") / 2
    assert mean.claim.cost("rho") == Fraction(1, 2)
    assert pure_rho(mean.claim.cost("epsilon") / 2) == pytest.approx(0.25)
    pure = dpp.mean("x", 0, 1, step=1, epsilon=1).query.claim
    assert float(pure.cost("rho")) == pytest.approx(2 * 0.5 * math.tanh(0.25))
    assert pure.cost("epsilon", 3) == 3


# The laws of the noise themselves


def log_law(rate: float, mechanism: str, shift: int, last: int) -> np.ndarray:
    x = np.abs(np.arange(-last, last + 1) - shift).astype(float)
    logs = -x * rate if mechanism == "discrete_laplace" else -((x * rate) ** 2) / 2
    return logs - np.log(np.exp(logs).sum())


@pytest.mark.parametrize("rate", [0.05, 0.4, 1.0, 3.0])
@pytest.mark.parametrize("shift", [1, 2, 5])
def test_laplace_noise_of_an_integer_loses_its_rate_times_the_shift(rate, shift):
    last = math.ceil(60 / rate) + shift
    p, q = (log_law(rate, "discrete_laplace", s, last) for s in (0, shift))
    inner = slice(shift + 1, -shift - 1)
    assert (p - q)[inner].max() == pytest.approx(rate * shift, rel=1e-9)


@pytest.mark.parametrize("rate", [0.1, 0.5, 2.0])
@pytest.mark.parametrize("shift", [1, 2, 7])
def test_gaussian_noise_of_an_integer_keeps_its_rho(rate, shift):
    last = math.ceil(60 / rate + 60 * shift)
    for order in (1.001, 1.5, 2, 5, 17, 50):
        p, q = (log_law(rate, "discrete_gaussian", s, last) for s in (0, shift))
        found = renyi(p, q, order)
        assert found <= order * (rate * shift) ** 2 / 2 * (1 + 1e-6)
        if order == int(order):
            assert found >= order * (rate * shift) ** 2 / 2 * (1 - 1e-6)  # integer orders attain it


@pytest.mark.parametrize("mechanism", ["discrete_laplace", "discrete_gaussian"])
def test_the_noise_has_the_rate_of_its_claim(mechanism, monkeypatch):
    given = {}
    monkeypatch.setattr(noise, "laplace_noise", lambda n, scale: given.setdefault("scale", scale) and np.zeros(n, int))
    monkeypatch.setattr(noise, "gaussian_noise", lambda n, var: given.setdefault("variance", var) and np.zeros(n, int))
    claim = Claim(Loss(Fraction(1, 8), "rho"), mechanism, Fraction(3), Contributions(2, 1), "add_or_remove_one")
    noise.noise_of(claim, 3)
    if mechanism == "discrete_gaussian":
        assert given == {"variance": 1 / claim.rate**2}
        assert float(given["variance"]) == pytest.approx(72)  # 1/8 = (3/σ)²·2/2
    else:
        assert given == {"scale": 1 / claim.rate}
        assert 2 * pure_rho(3 / given["scale"]) == pytest.approx(Fraction(1, 8))
