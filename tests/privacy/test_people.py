"""People as rows: the loss of n_rows_dropped, for all small frames that differ in one person, by enumeration.

A person has any rows, up to three, in two listed groups and one that is not; so many people, some of them beside
others. Of the package come the numbers that are drawn from, the rates and the claims; the laws are written here.
"""

import itertools
from fractions import Fraction

import polars as pl
import pytest

import dp_polars as dpp
from dp_polars._engines.polars.engine import PolarsEngine
from tests.registry import RELATIONS

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
    engine = PolarsEngine.of(frame)
    found = engine.prepare_histograms(query._request.bind(engine))()
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


OUTPUTS = {
    "len": dpp.len(epsilon=1),
    "people": dpp.n_people(epsilon=1),
    "counts": dpp.value_counts("x", [1, 2], epsilon=1),
    "sum": dpp.sum("x", 0, 2, epsilon=1),
    "heaviest": dpp.mode("x", [1, 2], counts=dpp.weights("x", max_weight=1), epsilon=1),
}


@pytest.mark.parametrize("most", [1, 2, 5])
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
def test_one_person_changes_the_number_of_what_is_cut_by_the_public_number(bounds, names, most):
    """And so the law of the answer by what is charged: neither more nor less, whatever the bounds are."""

    def query(relation, **loss):
        private = dpp.protect("p", neighboring_relation=relation, **bounds).group_by(KEYS)
        asked = private.agg(**{name: OUTPUTS[name] for name in names})
        return asked.n_rows_dropped(most, **loss)

    found = every(query(RELATIONS[0], epsilon=1))
    for relation in RELATIONS:
        moved = set()
        for pair in neighbours(found, relation):
            a, b = (sum(weight for counts in each for _, weight in counts) for each in pair)
            moved.add(abs(a - b))
        assert moved == {0, 1} if most == 1 else max(moved) <= most
        # ln of the ratio of exp(−rate·|x − a|) and exp(−rate·|x − b|); of Gaussian noise rate²·(a − b)²/2.
        pure, gaussian = query(relation, epsilon=Fraction(1, 2)), query(relation, rho=Fraction(1, 8))
        assert pure._asks[0].query.claim.rate * most == pure.loss.value == Fraction(1, 2)
        assert (gaussian._asks[0].query.claim.rate * most) ** 2 / 2 == gaussian.loss.value == Fraction(1, 8)
