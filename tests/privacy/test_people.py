"""People as rows: the loss of n_cut and of bounds, for all small frames that differ in one person, by enumeration.

A person has any rows, up to three, in two listed groups and one that is not; so many people, some of them beside
others. Of the package come the numbers that are drawn from, the rates and the claims; the laws are written here.
"""

import itertools
from fractions import Fraction

import numpy as np
import polars as pl
import pytest

import dp_polars as dpp
from dp_polars._engines.polars.engine import PolarsEngine
from tests.helpers.reference import floats, law
from tests.privacy.datasets import renyi
from tests.registry import RELATIONS, quantile_scores

pytestmark = pytest.mark.slow

KEYS = {"k": [0, 1]}
CELLS = [(0, 1), (0, 2), (1, 1), (2, 1), (1, None)]  # group, value: the third group is not listed
PEOPLE = [rows for n in range(4) for rows in itertools.combinations_with_replacement(CELLS, n)]
BASES = [
    [],
    [[(0, 1)], [(0, 1), (1, 2), (1, 2)], [(2, 1)]],
    [[(0, 1)] * (1 + i % 2) + [(1, 1)] * (i % 3) for i in range(30)],
]


def histograms(query, base, person):
    """What each output is drawn from, with one more person: code -> weight."""
    people = [*base, person]
    rows = [(number, *cell) for number, own in enumerate(people) for cell in own]
    frame = pl.DataFrame(rows, dict.fromkeys(["p", "k", "x"], pl.Int64), orient="row").lazy()
    engine = PolarsEngine(frame, lambda: frame)
    found = engine.prepare_histograms(query.request.bind(engine))()
    return tuple(tuple(zip(each.codes.tolist(), each.weights.tolist(), strict=True)) for each in found)


def every(query):
    """What is drawn from, of each base alone, and with each person in addition."""
    return [(histograms(query, base, []), {histograms(query, base, person) for person in PEOPLE}) for base in BASES]


def neighbours(found, relation):
    """Pairs of what is drawn from, of frames with and without a person, or with another one in their place."""
    for without, with_one in found:
        others = with_one if relation == "replace_one" else {without}
        for one, other in itertools.product(with_one, others):
            yield from ((one, other), (other, one))


# --- n_cut ---


OUTPUTS = {
    "len": dpp.len(epsilon=1),
    "people": dpp.n_people(epsilon=1),
    "counts": dpp.value_counts("x", [1, 2], epsilon=1),
    "sum": dpp.sum("x", 0, 2, epsilon=1),
    "heaviest": dpp.mode("x", [1, 2], weights="x", max_weight=1, epsilon=1),
}


@pytest.mark.parametrize("most", [None, 1, 2, 5])
@pytest.mark.parametrize("names", [["len"], ["people", "sum"], list(OUTPUTS)], ids=",".join)
@pytest.mark.parametrize(
    "bounds",
    [
        {"max_rows": 1},
        {"max_rows_per_group": 2},
        {"max_groups": 1, "max_rows_per_group": 1},
        {"max_rows": 2, "max_groups": 1, "max_rows_per_group": 1},
    ],
    ids=str,
)
def test_one_person_changes_the_numbers_of_what_is_cut_by_one_or_by_the_public_number(bounds, names, most):
    """And so the law of the answer by what is charged: neither more nor less, whatever the bounds are.

    The number is of people, whom one person changes by one; or, where there is a most, of rows.
    """

    def query(relation, **loss):
        private = dpp.protect("p", neighboring_relation=relation, **bounds).group_by(KEYS)
        asked = private.agg(**{name: OUTPUTS[name] for name in names})
        return asked.n_cut(**loss) if most is None else asked.n_rows_dropped(most, **loss)

    found, by = every(query(RELATIONS[0], epsilon=1)), most or 1
    for relation in RELATIONS:
        moved = set()
        for pair in neighbours(found, relation):
            a, b = (sum(weight for counts in each for _, weight in counts) for each in pair)
            moved.add(abs(a - b))
        assert moved == {0, 1} if by == 1 else max(moved) <= by
        # ln of the ratio of exp(−rate·|x − a|) and exp(−rate·|x − b|); of Gaussian noise rate²·(a − b)²/2.
        pure, gaussian = query(relation, epsilon=Fraction(1, 2)), query(relation, rho=Fraction(1, 8))
        assert pure.asks[0].query.claim.rate * by == pure.loss.value == Fraction(1, 2)
        assert (gaussian.asks[0].query.claim.rate * by) ** 2 / 2 == gaussian.loss.value == Fraction(1, 8)


# --- bounds ---


def log_laws(query, found):
    """Log-probabilities of the candidates of each output."""
    laws = []
    for ask, counts in zip(query.asks, found, strict=True):
        asked, by_code = ask.query, dict(counts)
        dense = [by_code.get(code, 0) for code in range(asked.candidates.size)]
        scores = quantile_scores(dense, asked.alpha.numerator, asked.alpha.denominator)
        exact = law(scores, rate=asked.claim.rate, mechanism=asked.claim.mechanism, digits=30)
        laws.append(np.log(floats(exact)))
    return laws


@pytest.mark.parametrize("share", [Fraction(1, 5), Fraction(1, 2)])
def test_bounds_cost_one_person_what_is_charged_for_both(share):
    queries = {
        relation: dpp.protect("p", neighboring_relation=relation).bounds(KEYS, share, epsilon=1, candidates=range(1, 4))
        for relation in RELATIONS
    }
    found = every(queries[RELATIONS[0]])
    for relation, query in queries.items():
        worst, laws = [0.0, 0.0, 0.0], {}
        for pair in neighbours(found, relation):
            p, q = (laws.setdefault(each, log_laws(query, each)) for each in pair)
            ratios = [float((a - b).max()) for a, b in zip(p, q, strict=True)]
            worst = [max(*both) for both in zip(worst, [*ratios, sum(ratios)], strict=True)]  # each draws by itself
        assert max(worst[:2]) <= 0.5
        # One person moves both: with the whole loss for each of them, this would be above 1.
        assert 0.5 < worst[2] <= 1


def test_bounds_keep_their_rho():
    rho = Fraction(1, 8)
    for relation in RELATIONS:
        query = dpp.protect("p", neighboring_relation=relation).bounds(KEYS, 0.5, rho=rho, candidates=range(1, 4))
        worst, laws = 0.0, {}
        for pair in neighbours(every(query), relation):
            p, q = (laws.setdefault(each, log_laws(query, each)) for each in pair)
            for order in (1.0001, 2, 30, 1000):
                worst = max(worst, sum(renyi(a, b, order) for a, b in zip(p, q, strict=True)) / order)
        assert rho / 3 < worst <= rho
