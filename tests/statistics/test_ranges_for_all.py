"""The ranges R, proved for all integers by an SMT solver (z3): no neighbours exceed R, and some attain it.

The scores are the code's own: its functions run on unknown integers (`tests/helpers/symbolic.py`). R is the code's
`range_of`. What the solver finds is put into the code again, as numbers.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
import z3

import dp_polars as dpp
from dp_polars._accounting.claims import range_of
from dp_polars._bins.candidates import Categories, ordered
from dp_polars._bins.weights import ONE_EACH, Weights
from dp_polars._mechanisms.histograms import CountScore, Histogram, QuantileScore
from dp_polars._mechanisms.selection import _exact_gap
from dp_polars._statistics.answer_lists import QuantileList, TopK
from dp_polars._statistics.averages import Mean, Share, Variance
from dp_polars._statistics.categories import Mode, Quantile
from dp_polars._statistics.extremes import FirstAbove
from dp_polars._statistics.measures import Count, RowsCut, Sum, SumOfPeople, ValueCounts
from tests.helpers import machine_checked
from tests.helpers.symbolic import Terms, integers, larger, smaller

ALPHAS = [Fraction(n, d) for n, d in ((1, 20), (1, 10), (1, 4), (1, 3), (1, 2), (3, 4), (9, 10), (19, 20), (99, 100))]
LISTS = [
    tuple(Fraction(a) for a in alphas)
    for alphas in (("1/4", "1/2", "3/4"), ("1/20", "1/2", "19/20"), [Fraction(i, 10) for i in range(1, 10)])
]
# With what they attain: other ones than R, but R is attained by some.
SENSITIVITIES = {(1, 2, 5): None, (7, 3, 1): Fraction(7, 4), (1, 1, 1): 1}
ADD, REPLACE = "add_or_remove_one", "replace_one"
# Cells of a histogram: the rows before one candidate, at it, between it and another one, at that one, and beyond.
CELLS, X, Y = 5, 1, 3
VALUES = Categories.of(pl.Series(list("abcde")))


TERMS = dpp.len(epsilon=1).query.terms


@dataclass(frozen=True)
class Case:
    """What neighbours change of a statistic, and the R that the code has for it.

    Parameters
    ----------
    change
        Of the difference of two scores, or of a number: a term.
    neighbours
        What holds of two neighbours.
    rows
        How many rows go, or come: R is that of each.
    most
        The most that neighbours change, where that is less than R.
    scores
        Numbers of the solver -> what the code's own score makes of them: a change again.
    """

    statistic: str
    relation: str
    largest: Fraction
    change: z3.ExprRef
    neighbours: list = field(repr=False)
    rows: object = 1
    most: Fraction | int | None = None
    scores: object = None

    def model(self, bound, *, is_reached):
        """Return neighbours who change more than the bound, or who reach it; None: there are none."""
        solver = z3.Solver()
        solver.set("timeout", 60_000)
        solver.add(*self.neighbours)
        limit = bound * self.rows
        above = [side >= limit if is_reached else side > limit for side in (self.change, -self.change)]
        solver.add(z3.Or(*above))
        verdict = solver.check()
        assert verdict != z3.unknown, solver.reason_unknown()
        return solver.model() if verdict == z3.sat else None


def size_of(term):
    return z3.If(term >= 0, term, -term)


def some_rows(name, most=1):
    """Return how many rows come to each cell, `most` in all, and what holds of these numbers."""
    rows = integers(name, CELLS)
    return rows, [*(n >= 0 for n in rows), z3.Sum(rows) <= most]


def some_people(name, weight=1):
    """Return what one person adds to each cell: up to a weight, to any of them."""
    rows = integers(name, CELLS)
    return rows, [z3.And(n >= 0, n <= weight) for n in rows]


def counts(name):
    rows = integers(name, CELLS)
    return rows, [n >= 0 for n in rows]


def moved(score, before, after, x=X, y=Y):
    """Return by how much the difference of the scores of two candidates changes."""
    old, new = (score.dense_gaps(Terms.of(rows))[0] for rows in (before, after))
    return (new[x] - new[y]) - (old[x] - old[y])


def by_code(score, before, after, x=X, y=Y):
    """Return the same for numbers: what the code makes of them."""

    def at(model):
        values = [
            np.array([[model.eval(n, model_completion=True).as_long() for n in map(z3.simplify, map(z3.Sum, rows))]])
            for rows in ([[n] for n in before], [[n] for n in after])
        ]
        old, new = (score.dense_gaps(rows)[0] for rows in values)
        return int((new[x] - new[y]) - (old[x] - old[y]))

    return at


def one_group(score, change, name="n", x=X, y=Y):
    """Return how rows that come change the scores of one group, what holds of it, and the code's word."""
    before, holds = counts(name)
    after = [n + d for n, d in zip(before, change, strict=True)]
    return moved(score, before, after, x, y), [*holds, *(n >= 0 for n in after)], by_code(score, before, after, x, y)


def of_choice(name, query, score, coming, most=None, x=X, y=Y):
    """Yield the cases of a statistic that is drawn by a score; `coming(name)` is what one row, or person, adds."""

    def case(relation, largest, change, holds, by_code=None, attained=None):
        return Case(name, relation, Fraction(largest), change, holds, most=attained, scores=by_code)

    come, holds = coming("a")
    change, group, code = one_group(score, come, x=x, y=y)
    yield case("add or remove", query.range_of(ADD), change, group + holds, code)
    go, goes = coming("b")
    other, of_other, _ = one_group(score, go, "o", x, y)
    both = size_of(change) + size_of(other)
    yield case("replace, in two groups", query.range_of(REPLACE), both, [*group, *holds, *of_other, *goes])
    exchanged, group, code = one_group(score, [c - g for c, g in zip(come, go, strict=True)], x=x, y=y)
    one = query.range_of(REPLACE, 1)
    yield case("replace, one group", one, exchanged, group + holds + goes, code, most)
    share = query.range_of(REPLACE) * query.same_group_of(REPLACE)
    yield case("replace, in the same of several groups", share, exchanged, group + holds + goes, code, most)


def modes():
    score = CountScore()
    for name, people, weights, coming in (
        ("mode, by rows", False, ONE_EACH, some_rows),
        ("mode, by people", True, ONE_EACH, some_people),
        ("mode by weights up to 7, by rows", False, Weights(Fraction(7), Fraction(1)), lambda n: some_rows(n, 7)),
        ("mode by weights up to 7, by people", True, Weights(Fraction(7), Fraction(1)), lambda n: some_people(n, 7)),
    ):
        yield from of_choice(name, Mode(VALUES, TERMS, people, None, weights), score, coming)
    # The candidate for too few comes last; its count is the same on both sides, whatever it is.
    query = Mode(VALUES, TERMS, True, 3)

    def of_others(name):
        rows, holds = some_people(name)
        return rows, [*holds, rows[-1] == 0]

    yield from of_choice("mode with `too_few`, against null", query, score, of_others, y=CELLS - 1, most=1)


def quantiles():
    candidates = ordered(list(range(CELLS)))
    for alpha in ALPHAS:
        query = Quantile(alpha, candidates, TERMS)
        yield from of_choice(f"{alpha}-quantile", query, query.score, some_rows)
        # Several rows of one person: `rows` of them, whatever that number is.
        m, name = z3.Int("m"), f"{alpha}-quantile, each of m rows"
        come, holds = some_rows("a", m)
        change, group, _ = one_group(query.score, come)
        yield Case(name, "add or remove", query.range_of(ADD), change, [*group, *holds, m >= 1], m)
        # i rows go and j come: R of a replaced row for the pairs, and R of a row for the others.
        i, j = z3.Ints("i j")
        (come, holds), (go, goes) = some_rows("a", j), some_rows("b", i)
        change, group, _ = one_group(query.score, [c - g for c, g in zip(come, go, strict=True)])
        pairs = query.range_of(REPLACE) * query.same_group_of(REPLACE)
        most = int(pairs) * smaller(i, j) + int(query.range_of(ADD)) * larger(i - j, j - i)
        name = f"{alpha}-quantile, i rows go and j come"
        yield Case(name, "replace, as charged in rho", Fraction(1), change, [*group, *holds, *goes, i + j >= 1], most)


def lists():
    candidates = ordered(list(range(CELLS)))
    for alphas in LISTS:
        query = QuantileList(alphas, candidates, TERMS)
        name = "quantiles " + ", ".join(map(str, alphas))
        for node in query.root.nodes():
            score, unit = QuantileScore(node.alpha), node.score_range
            come, holds = some_rows("a")
            change, group, code = one_group(score, come)
            largest = query.range_of(ADD) * unit
            of_part = f"{name}: the one at {node.alpha} of its part"
            yield Case(of_part, "add or remove", largest, change, group + holds, 1, None, code)
        # A row goes from the part of one draw of a level, and another one comes to the part of another.
        left, right = query.root.left, query.root.right
        changes, hold = zip(*(part_of(node, name) for node, name in ((left, "l"), (right, "r"))), strict=True)
        total = size_of(changes[0]) * right.score_range + size_of(changes[1]) * left.score_range
        largest = query.range_of(REPLACE) * left.score_range * right.score_range
        yield Case(f"{name}: two draws of a level", "replace", largest, total, [*hold[0], *hold[1]])


def part_of(node, name):
    come, holds = some_rows(f"{name}a")
    change, group, _ = one_group(QuantileScore(node.alpha), come, f"{name}n")
    return change, group + holds


def missed(counted, chosen):
    """The largest count that a list misses: of numbers or of terms."""
    best = list(counted)
    for last in range(len(best) - 1, 0, -1):  # the highest ones come first
        for i in range(last):
            best[i], best[i + 1] = larger(best[i], best[i + 1]), smaller(best[i], best[i + 1])
    found = best[0] - counted[chosen[0]]
    for most, candidate in zip(best[1:], chosen[1:], strict=False):
        found = larger(found, most - counted[candidate])
    return found


def tops():
    in_rounds = TopK(3, VALUES, TERMS)
    yield from of_choice("top 3 in rounds, each of them, by people", in_rounds, CountScore(), some_people)
    for k, size in ((1, 3), (2, 4)):
        query = TopK(k, VALUES, TERMS, joint=True)
        first = tuple(range(k))
        for relation, groups in ((ADD, None), (REPLACE, 1)):
            rows, holds = integers("n", size), []
            come, go = integers("a", size), integers("b", size)
            holds += [
                z3.And(n >= 0, c >= 0, c <= 1, g >= 0, g <= 1, n >= g) for n, c, g in zip(rows, come, go, strict=True)
            ]
            if relation == ADD:
                holds += [g == 0 for g in go]
            after = [n + c - g for n, c, g in zip(rows, come, go, strict=True)]
            # Any two lists: the first one by name, as names mean nothing.
            others = list(itertools.permutations(range(size), k))
            moves = [
                (missed(after, first) - missed(after, other)) - (missed(rows, first) - missed(rows, other))
                for other in others
            ]
            which = z3.Int("which")
            change = z3.IntVal(0)
            for number, move in enumerate(moves):
                change = z3.If(which == number, move, change)
            name = f"top {k} of {size} jointly, by people"
            shown = "add or remove" if relation == ADD else "replace, one group"
            yield Case(name, shown, query.range_of(relation, groups), change, holds)


def numbers():
    yield from of_weights("number of rows", Count("rows", TERMS), (0, 1))
    yield from of_weights("number of people", Count("people", TERMS), (0, 1))
    yield from of_weights("number of rows that are cut, up to 9 of a person", RowsCut.of(9, TERMS), (0, 9))
    rows, people = Fraction(3), Fraction(-2)
    one_sided = Sum(Fraction(0), Fraction(50), Fraction(1), False, TERMS)
    yield from of_weights("sum from 0 to 50", one_sided, ends_of(one_sided))
    negative = Sum(Fraction(-50), Fraction(-10), Fraction(5), False, TERMS)
    yield from of_weights("sum from −50 to −10 in steps of 5", negative, ends_of(negative), 5)
    two_sided = Sum(Fraction(-20), Fraction(50), Fraction(1), False, TERMS)
    yield from of_weights("sum from −20 to 50", two_sided, ends_of(two_sided), exchanged=70)
    by_person = SumOfPeople(rows, Fraction(9), Fraction(1), False, TERMS, people, Fraction(40))
    of_person = by_person.units(pl.Int64()).of_person
    yield from of_weights("sum of people's totals from −2 to 40", by_person, of_person, exchanged=42)
    mean = Mean(Fraction(-20), Fraction(50), Fraction(1), TERMS)
    yield from of_weights("mean from −20 to 50: the distances", mean, ends_of(mean), 1 / mean.changes(pl.Int64())[0])
    share = Share.of(TERMS)
    flag = pl.Boolean()
    yield from of_weights("share: the distances", share, ends_of(share, flag), 1 / share.changes(flag)[0])
    for top in (9, 200, 10**6):
        variance = Variance(Fraction(0), Fraction(top), Fraction(1), TERMS)
        row_weight = variance.squares(pl.Int64())
        yield from of_weights(
            f"variance from 0 to {top:,}: the squares",
            variance,
            ends_of(variance, of=row_weight),
            1 / variance.changes(pl.Int64())[1],
        )
    # Each row is in one count: of all of them together.
    query, (come, holds), (go, goes) = ValueCounts(VALUES, TERMS), some_rows("a"), some_rows("b")
    yield Case("counts of all candidates together", "add or remove", query.range_of(ADD), z3.Sum(come), holds)
    exchanged = z3.Sum([size_of(c - g) for c, g in zip(come, go, strict=True)])
    yield Case("counts of all candidates together", "replace", query.range_of(REPLACE), exchanged, holds + goes)


def ends_of(query, column=None, of=None):
    """Return what a row weighs at least and at most, by the code's own row weight of a value within the bounds."""
    row_weight = of or query.units(column or pl.Int64())
    value = z3.Int("value")
    low, high = int(row_weight.lower / row_weight.step), int(row_weight.upper / row_weight.step)
    weight = row_weight.of_units(Terms.of([value]))[0, 0]
    optimum = []
    for sign in (1, -1):
        optimizer = z3.Optimize()
        optimizer.add(value >= low, value <= high)
        best = optimizer.minimize(sign * weight) if row_weight.largest <= 2 * (high - low) else None
        if best is not None:
            assert optimizer.check() == z3.sat
            optimum.append(sign * optimizer.model().eval(sign * weight).as_long())
    return tuple(optimum) if optimum else square_ends(row_weight, weight, value, low, high)


def square_ends(row_weight, weight, value, low, high):
    """Return the ends of a weight that is no linear term: those that the solver says it never passes, and attains."""
    for bound, sign in ((row_weight.largest, 1), (-row_weight.largest, -1)):
        solver = z3.Solver()
        solver.set("timeout", 20_000)
        solver.add(value >= low, value <= high)
        solver.add(sign * weight > sign * bound)
        assert solver.check() == z3.unsat
    assert row_weight.of_units(high) == row_weight.of_units(low) == row_weight.largest
    return -row_weight.largest, row_weight.largest


def of_weights(name, query, ends, step=1, exchanged=None):
    """Yield the cases of a number that rows (or people) weigh in on: one that does not count weighs nothing.

    `exchanged` is the most that a row in the place of another changes, where several groups are charged more.
    """
    least, highest = ends
    come, go = z3.Ints("come go")
    holds = [z3.Or(w == 0, z3.And(w >= least, w <= highest)) for w in (come, go)]
    # What several draws cost together says nothing of one of them alone.
    share = query.same_group_of(REPLACE) if len(query.changes()) == 1 else 1
    for relation, largest, change, attained in (
        ("add or remove", query.range_of(ADD), come, None),
        ("replace, in two groups", query.range_of(REPLACE), size_of(come) + size_of(go), None),
        ("replace, one group", query.range_of(REPLACE, 1), come - go, None),
        ("replace, in the same of several groups", query.range_of(REPLACE) * share, come - go, exchanged),
    ):
        yield Case(name, relation, Fraction(largest) / Fraction(step), change, holds, most=attained)


def own():
    """Scores of the caller's own: each of them moves by the sensitivity at most."""
    (x, y), sensitivity = z3.Reals("x y"), 3
    for monotonic in (True, False):
        least = 0 if monotonic else -sensitivity
        holds = [z3.And(move >= least, move <= sensitivity) for move in (x, y)]
        name = f"own scores, sensitivity {sensitivity}{', monotonic' if monotonic else ''}"
        yield Case(name, "as claimed", range_of(sensitivity, monotonic), x - y, holds)
    for weights, most in SENSITIVITIES.items():
        scores, moves = (z3.Reals(" ".join(f"{name}{i}" for i in range(3))) for name in "qd")
        t = z3.Real("t")
        holds = [t >= 0, *(z3.And(move <= d, -move <= d) for move, d in zip(moves, weights, strict=True))]
        after = [score + move for score, move in zip(scores, moves, strict=True)]
        old, new = (own_gaps(q, weights, t) for q in (scores, after))
        change = (new[0] - new[1]) - (old[0] - old[1])
        name = f"own scores with the sensitivities {', '.join(map(str, weights))}"
        yield Case(name, "as claimed", range_of(1, False), change, holds, most=most)


def own_gaps(scores, weights, t):
    """The gaps of scores with sensitivities of their own, as their module says: the best one cancels."""
    c = [t * weight - score for score, weight in zip(scores, weights, strict=True)]
    found = []
    for i, j_first in enumerate(c):
        gap = 0
        for j, other in enumerate(c):
            if i != j:
                gap = larger(gap, (j_first - other) / (weights[i] + weights[j]))
        found.append(gap)
    return found


def first_above():
    """The loss of the shifts in the proof: z comes later by j, and the noise of the answer by what that takes."""
    name, query = "first above a threshold: the loss over λ", FirstAbove(Fraction(5), VALUES, TERMS)
    i, j, go, come, q, q_after, passed, passed_after = z3.Ints("i j go come q q_after passed passed_after")
    z, threshold, gap, noise = z3.Reals("z threshold gap noise")
    holds = [i >= 0, j >= 0, z >= 0, gap >= 0, noise == threshold + z + gap - q, noise >= 0]
    holds += [z3.And(new >= old - i, new <= old + j) for old, new in ((q, q_after), (passed, passed_after))]
    shifted = threshold + z + j + gap - q_after
    # Noise below 0 has no density, and whom a candidate is passed over by must not gain: else the shift costs anything.
    fails = z3.Or(shifted < 0, shifted < noise, threshold + z + j - passed_after < threshold + z - passed)
    loss = z3.If(fails, z3.RealVal(10**6), j + shifted - noise)
    for relation, largest, rows in (
        ("add or remove", query.range_of(ADD), [i + j == 1]),
        ("replace, in one group", query.range_of(REPLACE), [i == 1, j == 1]),
    ):
        yield Case(name, relation, largest, loss, holds + rows)
    # In two groups a row goes from one and comes to the other: one way, i + 2j of each add up.
    two = [go + come == 2, go == 1]
    yield Case(name, "replace, in two groups", query.range_of(REPLACE), go + 2 * come, two)


KINDS = (modes, quantiles, lists, tops, numbers, own, first_above)


@cache
def cases(kind):
    return tuple(kind())


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_no_neighbours_exceed_the_range_and_some_attain_it(kind):
    for case in cases(kind):
        check(case)


def check(case):
    assert case.model(case.largest, is_reached=False) is None
    most = case.largest if case.most is None else case.most
    assert most <= case.largest
    if case.most is not None:
        assert case.model(most, is_reached=False) is None
    found = case.model(most, is_reached=True)
    assert found is not None
    if case.scores is not None:
        assert abs(case.scores(found)) == most
    # The control: with one less, the solver finds neighbours who exceed it.
    assert case.model(most - 1, is_reached=False) is not None


def any_alpha():
    """α = num/den, of which nothing is known but that it lies between 0 and 1."""
    num, den = z3.Ints("num den")
    return SimpleNamespace(numerator=Terms.of([num]), denominator=Terms.of([den])), num, den, [num >= 1, den > num]


@pytest.mark.slow
@pytest.mark.parametrize("relation", [ADD, REPLACE])
def test_the_range_of_every_quantile(relation):
    """For every α, at that: here products of two unknowns are in the formula."""
    alpha, num, den, holds = any_alpha()
    largest = 2 * larger(num, den - num) if relation == ADD else 2 * den
    unit = [[int(i == cell) for i in range(CELLS)] for cell in range(CELLS)]
    going = [[0] * CELLS] if relation == ADD else unit
    reached = False
    for come, go in itertools.product(unit, going):
        change, group, _ = one_group(QuantileScore(alpha), [c - g for c, g in zip(come, go, strict=True)])
        case = Case("every quantile", relation, Fraction(1), change, group + holds, largest)
        assert case.model(1, is_reached=False) is None
        reached = reached or case.model(1, is_reached=True) is not None
    assert reached
    # The control, and R as the code has it.
    assert any(
        Case("", "", Fraction(1), one_group(QuantileScore(alpha), come)[0], holds, larger(num, den - num)).model(
            1, is_reached=False
        )
        for come in unit
    )
    for fraction in {Fraction(n, d) for d in range(2, 101) for n in range(1, d)}:
        by_hand = 2 * max(fraction.numerator, fraction.denominator - fraction.numerator)
        by_hand = by_hand if relation == ADD else 2 * fraction.denominator
        assert QuantileScore(fraction).range(relation, 1) == by_hand


@pytest.mark.parametrize("score", [CountScore(), *map(QuantileScore, ALPHAS)], ids=str)
def test_terms_are_what_the_code_gives_for_numbers(score):
    rng, names = np.random.default_rng(1), integers("n", CELLS)
    terms = score.dense_gaps(Terms.of(names))[0]
    for counted in np.concatenate([rng.integers(0, top, (20, CELLS)) for top in (1, 3, 10**6)]):
        values = [(name, z3.IntVal(int(n))) for name, n in zip(names, counted, strict=True)]
        found = [z3.simplify(z3.substitute(z3.Sum([term]), *values)).as_long() for term in terms]
        assert found == score.dense_gaps(counted[None, :])[0].tolist()


@pytest.mark.parametrize("score", [CountScore(), *map(QuantileScore, ALPHAS)], ids=str)
def test_five_cells_are_as_good_as_any_number_of_candidates(score):
    """The difference of two scores depends on the rows before, between and beyond two candidates, and at them."""
    rng = np.random.default_rng(2)
    for top in (1, 3, 100):
        for _ in range(100):
            counted = rng.integers(0, top, 12)
            first, second = np.sort(rng.choice(12, 2, replace=False))
            cells = np.array([part.sum() for part in np.split(counted, [first, first + 1, second, second + 1])])
            whole, few = score.dense_gaps(counted[None, :])[0], score.dense_gaps(cells[None, :])[0]
            assert whole[first] - whole[second] == few[X] - few[Y]


def test_the_error_of_a_list_is_that_of_the_code():
    rng = np.random.default_rng(3)
    for k in (1, 2):
        query = TopK(k, VALUES, TERMS, joint=True)
        for _ in range(100):
            counted = rng.integers(0, 5, 5)
            chosen = rng.choice(5, k, replace=False)
            histogram = Histogram(np.arange(5), counted, np.array([5]))
            mistakes = query.mistakes(chosen[None, :], histogram, pl.String())
            assert missed(counted.tolist(), chosen.tolist()) == mistakes.wrong[0]


def test_the_gaps_of_own_sensitivities_are_those_of_the_code():
    rng = np.random.default_rng(4)
    for _ in range(100):
        scores, weights = (list(map(Fraction, rng.integers(1, 20, 3).tolist())) for _ in range(2))
        t = Fraction(int(rng.integers(0, 9)), 2)
        c = [max(scores) - score + t * weight for score, weight in zip(scores, weights, strict=True)]
        exact = _exact_gap(c, weights, Fraction(1))
        assert own_gaps(scores, weights, t) == [exact(row) for row in range(3)]


def table():
    """Return the table of the page: a row for each statistic, and R for each relation."""
    columns = ["add or remove", "replace, in two groups", "replace, one group"]
    rows = {}
    for kind in KINDS:
        for case in cases(kind):
            if not isinstance(case.rows, int) or z3.is_expr(case.rows) or ": the one at" in case.statistic:
                continue
            shown = str(case.largest) if case.most is None else f"{case.largest} ({case.most})"
            relation = {"replace": columns[1], "as claimed": columns[0], "replace, in one group": columns[2]}
            column = relation.get(case.relation, case.relation)
            if column in columns:
                rows.setdefault(case.statistic, {})[column] = shown
    lines = ["| statistic | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for name, found in rows.items():
        lines.append(f"| {name} | " + " | ".join(found.get(column, "") for column in columns) + " |")
    return "\n".join(lines)


def test_the_page_has_these_ranges():
    assert machine_checked.table("ranges") == table(), "run python -m tests.helpers.machine_checked"
