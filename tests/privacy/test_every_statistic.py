"""Every way to ask, as users ask it: the largest loss of a person over all groups, by enumeration, against the claim.

The loss of one group is a table: i rows (or people) go and j come, whatever the rows and those of all others are. The
tables of groups are added up over all ways in which a person's rows, and those of who takes their place, may spread.
Bounds and laws are written here anew; of the package come only the rates of the draws, and what it claims. What is
asked stands in `STATISTICS` of `tests/registry.py`.
"""

import itertools
import math
from fractions import Fraction
from functools import lru_cache, partial

import numpy as np
import polars as pl
import pytest

import dp_polars as dpp
from dp_polars._statistics.of_shared_draws import Bernstein
from tests.helpers.first_above_laws import log_law
from tests.registry import COUNTED, NUMBERS, OF_CONDITIONS, OF_NO_COLUMN, STATISTICS, under

LOSSES = [{"epsilon": Fraction(1, 2)}, {"epsilon": 4}, {"rho": Fraction(1, 100)}, {"rho": 2}]
# Near 1 the bound on choices is attained, at 2 and above other spreads of what is only pure.
GAPS = 8  # in whole rows; all larger ones are as one
ORDERS = (1.0001, 1.2, 2, 5, 30, 1000)


def log_sum(logs):
    top = logs.max(axis=-1, keepdims=True)
    return np.log(np.exp(logs - top).sum(axis=-1)) + top[..., 0]


def losses(p, q):
    """The largest log-ratio of two laws, and their Rényi divergences, each over its order; of log-probabilities."""
    divergences = [log_sum(a * p + (1 - a) * q) / (a - 1) / a for a in ORDERS]
    return np.stack([(p - q).max(axis=-1), *divergences], axis=-1)


def law(gaps, rate, mechanism, numbers=1.0):
    """Logs of the chance of each block of candidates: so many with one gap."""
    logs = np.log(numbers) - rate * gaps
    if mechanism == "exponential":
        return logs - log_sum(logs)[..., None]
    # p·∫₀¹ ∏(1 − t·p_j) dt over the others: a polynomial of at most this degree.
    t, weights = np.polynomial.legendre.leggauss(int(np.sum(numbers * np.ones(gaps.shape[-1]))) // 2 + 1)
    others = np.log1p(-np.exp(-rate * gaps)[..., None] * (t + 1) / 2)
    every = (others * (np.ones(gaps.shape[-1]) * numbers)[:, None]).sum(axis=-2, keepdims=True)
    return logs + np.log((np.exp(every - others) * weights / 2).sum(axis=-1))


def table_of(laws, gone, come, most):
    """The losses where at most i go and at most j come: of all pairs of laws, shape (most + 1, most + 1, losses)."""
    table = np.zeros((most + 1, most + 1, 1 + len(ORDERS)))
    for one, i, j in zip(laws, gone, come, strict=True):
        near = (i <= most) & (j <= most)
        np.maximum.at(table, (i[near], j[near]), losses(one, laws[near]))
    return np.maximum.accumulate(np.maximum.accumulate(table, axis=0), axis=1)


def counts(size, most, *, in_all=True):
    every = itertools.product(range(most + 1), repeat=size)
    return np.array([one for one in every if not in_all or sum(one) <= most])


def moved(before, *, by=1, people=False):
    """How many rows must go, and how many come, to make each histogram of each other one; a person moves all codes."""
    change = before - before[:, None]
    # Each row, or person, moves a code by at most so much.
    gone, come = (-(-np.maximum(sign * change, 0) // by) for sign in (-1, 1))
    return (gone.max(axis=2), come.max(axis=2)) if people else (gone.sum(axis=2), come.sum(axis=2))


def of_quantile(alpha, query, most):
    num, den = alpha.numerator, alpha.denominator
    # Rows lie at three points, with many candidates on some stretches between them.
    rows = counts(3, 10 if den == 10 and most == 1 else 7)
    table = 0
    many = (1e9, 5) if query.claim.mechanism == "exponential" else (50,)
    for stretch, size in itertools.product((2, 4), many):
        cells = np.zeros((len(rows), 7), int)
        cells[:, 1::2] = rows
        upto, total = cells.cumsum(axis=1), rows.sum(axis=1, keepdims=True)
        gaps = np.maximum(np.maximum(num * total - den * upto, den * (upto - cells) - num * total + 1), 0)
        gaps[total[:, 0] == 0] = 0
        numbers = np.ones(7)
        numbers[stretch] = size
        laws = law(gaps, float(query.draw(pl.Int64()).rate), query.claim.mechanism, numbers)
        table = np.maximum(table, table_of(laws, *moved(rows), most))
    return table


def of_counts(law_of, query, most, people, by=1):
    few = 7 if by == 1 else max(by * most + 1, 3)
    table = 0
    for size, rows in ((2, 2 * by * most), (3, few)):
        if size >= getattr(query, "k", 1):
            found = counts(size, rows, in_all=size == 3 and by == 1)
            table = np.maximum(table, table_of(law_of(query, found), *moved(found, by=by, people=people), most))
    return table


def of_modes(query, rows, constant=None, by=1):
    scores = rows if constant is None else np.concatenate([rows, np.full((len(rows), 1), constant)], axis=1)
    rate = float(query.draw(pl.Int64(), *[pl.Float64()] * (by > 1)).rate)
    if not query.has_gap:
        return law(scores.max(axis=1, keepdims=True) - scores, rate, query.claim.mechanism)
    # Who gaps by so much or more wins with a score that is so much lower; the last cell is of all larger gaps.
    tails = np.zeros((*scores.shape, GAPS + 1))
    for code, gap in itertools.product(range(scores.shape[1]), range(GAPS)):
        lower = scores.copy()
        lower[:, code] -= gap
        wins = law(lower.max(axis=1, keepdims=True) - lower, rate, query.claim.mechanism)
        tails[:, code, gap] = np.exp(wins[:, code])
    return np.log(-np.diff(tails, axis=2)).reshape(len(rows), -1)


def of_first_above(query, rows):
    return log_law(rows, float(query.threshold), float(query.claim.rate), GAPS if query.has_gap else 1)


def of_tops(query, rows):
    rate, size = float(query.claim.rate), rows.shape[1]
    lists = list(itertools.permutations(range(size), query.k))
    if query.joint:
        best = -np.sort(-rows, axis=1)[:, : query.k]
        missed = np.stack([(best - rows[:, one]).max(axis=1) for one in lists], axis=1)
        return law(missed - missed.min(axis=1, keepdims=True), rate, "exponential")
    laws = np.zeros((len(rows), len(lists)))
    for number, one in enumerate(lists):
        for turn, code in enumerate(one):
            left = [other for other in range(size) if other not in one[:turn]]
            scores = rows[:, left]
            own = law(scores.max(axis=1, keepdims=True) - scores, rate, query.claim.mechanism)
            laws[:, number] += own[:, left.index(code)]
    return laws


@lru_cache
def of_noise(rate, mechanism, shift):
    """The losses of a number that is moved."""
    if mechanism == "discrete_gaussian":
        return np.array([np.nan, *[(rate * shift) ** 2 / 2] * len(ORDERS)])  # Canonne, Kamath & Steinke 2020
    if rate < 1e-3:
        return of_fine_laplace_noise(rate, abs(shift))
    x = np.arange(-np.ceil(700 / rate), np.ceil(700 / rate) + abs(shift) + 1)
    p, q = -rate * abs(x), -rate * abs(x - shift)
    return losses(p - log_sum(p), q - log_sum(p))


def of_fine_laplace_noise(rate, shift):
    """The same of many parts: the losses are shift, shift − 2, … −shift, with geometric probabilities in between."""
    if not shift:
        return np.zeros(1 + len(ORDERS))
    pure, found = rate * shift, []
    for a in ORDERS:
        ends = 1 + math.exp(-pure * (2 * a - 1))
        ratio = math.expm1(-rate) / math.expm1(-rate * (2 * a - 1))
        between = ratio * math.exp(-rate * (2 * a - 1)) * -math.expm1(-rate * (2 * a - 1) * (shift - 1))
        found.append(((a - 1) * pure + math.log((ends + between) / (1 + math.exp(-rate)))) / (a - 1) / a)
    return np.array([pure, *found])


def of_numbers(moves, claims, most):
    table = np.zeros((most + 1, most + 1, 1 + len(ORDERS)))
    for i, j in itertools.product(range(most + 1), repeat=2):
        for shifts in moves(i, j):
            rates = claims if len(claims) == len(shifts) else claims * len(shifts)
            found = sum(
                of_noise(float(c.rate), c.mechanism, shift * 2**bits)
                for (c, bits), shift in zip(rates, shifts, strict=True)
            )
            table[i, j] = np.maximum(table[i, j], found)
    return np.maximum.accumulate(np.maximum.accumulate(table, axis=0), axis=1)


def of_ends(low, high, step=1):
    ends = int(low / step), int(high / step)
    return lambda i, j: [(i * a - j * b,) for a, b in itertools.product(ends, repeat=2)]


def of_mean(low, high):
    """Distances from the middle of the bounds, in halves of a step of 1; and rows."""
    return lambda i, j: [((i + j) * (high - low), i - j)]


def of_pair(low, high):
    """Distances from both clipping bounds, in steps of 1: those of one row are the bounds' together."""
    width = high - low
    return lambda i, j: [
        (gone - come, (i - j) * width - gone + come)
        for gone, come in itertools.product(range(i * width + 1), range(j * width + 1))
    ]


def of_values(*, people):
    """All rows of one value, and all that come of another one; a person has each value once."""
    return lambda i, j: [(1,) * min(i + j, 3)] if people else [(i, j)]


def losses_of_group(statistic, query, most, people):
    """The table of a group."""
    way, options = statistic.way, statistic.options
    if way in ("median", "quantile"):
        return of_quantile(Fraction(str(statistic.arguments[0])) if way == "quantile" else Fraction(1, 2), query, most)
    if way == "mode":
        by = 1 if options.get("counts", "people") in ("people", "rows") else 2  # of two columns: values and weights
        return of_counts(partial(of_modes, constant=options.get("too_few"), by=by), query, most, people, by)
    if way in ("top_k", "first_above"):
        return of_counts(of_tops if way == "top_k" else of_first_above, query, most, people)
    of_two = of_pair if isinstance(query, Bernstein) else of_mean
    moves = {
        "sum": lambda: of_ends(*options.get("per_person", statistic.arguments), options.get("step", 1)),
        "mean": lambda: of_two(*statistic.arguments),
        "share": lambda: of_two(0, 1),
        "value_counts": lambda: of_values(people=people),
    }
    dtype = pl.Boolean() if way == "share" else pl.Int64()
    claims = tuple(zip(query.noise(dtype), query.bits_of_parts(dtype), strict=True))
    return of_numbers(moves.get(way, lambda: of_ends(1, 1))(), claims, most)


# The rows of a person in all and in a group, and the groups of a person.
BOUNDS = [(1, None, None), (2, None, None), (3, 2, 2), (None, 2, 1), (2, 3, 1), (3, 3, 1)]


def worst(table, total, per_group, groups, of_person, relation):
    """The largest losses over all ways to spread a person's rows, and those of the one who comes instead."""
    replaced = relation == "replace_one"
    spread = min(groups, total * (1 + replaced))
    ways = np.array(
        [
            way
            for way in itertools.product(range(per_group + 1), repeat=spread)
            if sum(way) <= total and np.count_nonzero(way) <= of_person
        ]
    )
    firsts = np.unique(-np.sort(-ways, axis=1), axis=0)
    if replaced:
        return np.max([table[one, ways].sum(axis=1).max(axis=0) for one in firsts], axis=0)
    return np.maximum(table[firsts, 0].sum(axis=1).max(axis=0), table[0, firsts].sum(axis=1).max(axis=0))


def asked(statistic, relation, **more):
    """The statistic as an expression and on private frames, and how a person's rows may spread, by the docs."""
    every = 9  # an expression may be asked of any number of groups
    expr, counts_values = statistic.ask(**more), statistic.way == "value_counts"
    if statistic.way != "n_people" and "per_person" not in statistic.options:
        for rows in (1, 2, 3):
            query = under(relation, statistic.ask(**more, contributions=rows).query)
            yield query, (rows, rows, every, rows), False
        private = dpp.protect(None, neighboring_relation=relation)
        for groups, frame in ((1, private), (3, private.group_by({"g": range(3)}))):
            yield frame.agg(a=expr)._asks[0].query, (1, 1, groups, 1), False
    for (most, of_person, per_group), groups in itertools.product(BOUNDS, (None, 1, 2, 4)):
        given = {"max_rows": most, "max_groups": of_person, "max_rows_per_group": per_group}
        frame = dpp.protect("p", **{key: n for key, n in given.items() if n}, neighboring_relation=relation)
        query = (frame if groups is None else frame.group_by({"g": range(groups)})).agg(a=expr)._asks[0].query
        number, few = groups or 1, min(of_person or every, groups or 1)
        if statistic.of_people:
            in_all = min(most or every, few)
            yield query, (in_all, 1, number, in_all), True
        else:
            in_group = min(n for n in (most, per_group, 3 if counts_values else None) if n)
            in_all = min(most or every, few * in_group)
            yield query, (in_all, min(in_group, in_all), number, few), counts_values


# Of lists of two, larger data sets than these attain the bound; the last of three is known by the others.
LEAST = {"top 2": (0.89, 0.3), "top 2 of rows": (0.78, 0.3), "top 3": (0.65, 0.3), "three fifths": (0.97, 0.24)}


@pytest.mark.parametrize(
    "name", [name for name, statistic in STATISTICS.items() if statistic.way not in ("var", "std")]
)
def test_no_statistic_is_charged_less_than_it_costs(name, relation):
    statistic, attained = STATISTICS[name], {}
    for loss, mechanism in itertools.product(LOSSES, statistic.mechanisms):
        if (mechanism == "discrete_gaussian" and "epsilon" in loss) or (statistic.is_pure and "rho" in loss):
            continue
        tables = {}
        for query, spread, people in asked(statistic, relation, mechanism=mechanism, **loss):
            total, per_group, groups, of_person = spread
            key = query.claim.rate, query.claim.score_range, per_group, people, getattr(query, "in_parts", False)
            charged = query.claim
            if isinstance(query, Bernstein):
                (draw,) = query.shared  # which is what the release charges, once for both sums
                key, charged = (*key, "pair"), draw.claim
            if key not in tables:
                tables[key] = losses_of_group(statistic, query, per_group, people)
            found = worst(tables[key], total, per_group, groups, of_person, relation)
            costs = [("rho", found[1:].max())]
            if charged._has_epsilon:
                costs.append(("epsilon", found[0]))
            for unit, cost in costs:
                share = cost / float(charged.cost(unit))
                assert share <= 1 + 1e-9, (charged, unit, spread)
                attained[mechanism, unit] = max(share, attained.get((mechanism, unit), 0))
    # The bounds are no larger than they must be.
    largest, smallest = LEAST.get(name, (0.97, 0.3))
    assert max(attained.values()) >= largest, attained
    assert min(attained.values()) >= smallest, attained
    if name in ("mode", "top 1"):
        assert min(share for (_, unit), share in attained.items() if unit == "epsilon") >= 0.95, attained


@pytest.mark.parametrize(("rate", "shift"), [(0.2, 1), (0.05, 7), (0.01, 300)])
def test_losses_of_fine_noise_are_those_of_its_law(rate, shift):
    x = np.arange(-(60 / rate) // 1 - shift, (60 / rate) // 1 + 2 * shift)
    p, q = -rate * abs(x), -rate * abs(x - shift)
    found, exact = of_fine_laplace_noise(rate, shift), losses(p - log_sum(p), q - log_sum(q))
    assert found == pytest.approx(exact, rel=1e-6)


def test_every_way_to_ask_is_enumerated():
    """Of variances, what rows move is enumerated by `test_numbers.py`."""
    assert {statistic.way for statistic in STATISTICS.values()} == {*COUNTED, *NUMBERS, *OF_NO_COLUMN, *OF_CONDITIONS}
