"""What stays of a person's rows: the exact joint law by enumeration, whatever others have and however words tie."""

from collections import Counter, defaultdict
from fractions import Fraction

import numpy as np
import pytest

from dp_polars._base import numbers as arrays
from dp_polars._base.numbers import system_rng
from dp_polars._engines.polars import bounding
from dp_polars._engines.polars.bounding import BoundedRows, keep
from dp_polars._release.protection import Layout, Limits
from tests.engines.orders import SOME, SPREAD, TALLIES, TOGETHER, Bounded, follows, independent, joint_law, law

COPIES = 8_000


def asked_of(spec, codes):
    sees = None if spec.sees is None else np.isin(codes, spec.sees)
    return BoundedRows(spec.limits, sees, codes if spec.people else None)


def stays(rows, *specs, others=(), words=None):
    """What stays of each of many copies of the person for each spec, each copy among the others."""
    people = []
    for copy in range(COPIES):
        people.append(rows)
        if copy % 100 == 0:
            people += others
    lengths = np.array([len(own) for own in people], np.int64)
    groups, codes = np.array([row for own in people for row in sorted(own)], np.int64).T
    whose = np.repeat(np.arange(len(people)), lengths)
    copies = [i for i, own in enumerate(people) if own is rows]
    found = []
    for kept in keep(lengths, groups, [asked_of(spec, codes) for spec in specs], words):
        own = defaultdict(list)
        for row in kept.rows.tolist():
            own[whose[row]].append((int(groups[row]), int(codes[row])))
        found.append([tuple(sorted(own[i])) for i in copies])
    return list(zip(*found, strict=True))


FEW = Limits(groups=1), Limits(groups=2), Limits(groups=3), Limits(), Limits(rows_per_group=1)
OF_ROWS = Limits(groups=2), Limits(rows=3), Limits(rows_per_group=2), Limits(rows=7), Limits(rows=3, rows_per_group=2)
OF_ROWS += Limits(2, 2, 2), Limits(1, 3, 1), Limits(100, 100, 100)
CASES = [(SPREAD, limits, True) for limits in (*FEW, Limits(rows=2, rows_per_group=2))]
CASES += [(SPREAD, limits, False) for limits in OF_ROWS]
CASES += [(((5, 7),) * 5, Limits(rows=2), False), (((5, 7),) * 5, Limits(groups=1), True)]
CASES += [(((15, 9),), Limits(1, 1, 1), False)]
OTHERS = {
    "alone": [],
    "beside people with less": [[(0, 0)], [(1, 1)] * 2],
    "beside people with more": [[(group, code) for group in range(16) for code in range(30)], [(2, 5)] * 200],
}


@pytest.fixture(params=["a table", "sorting"])
def numbering(request, monkeypatch):
    """Each way in which pairs are numbered."""
    if request.param == "sorting":
        monkeypatch.setattr(bounding, "_PAIRS_PER_ROW", 0)


@pytest.mark.slow
@pytest.mark.usefixtures("numbering")
@pytest.mark.parametrize(("rows", "limits", "people"), CASES)
@pytest.mark.parametrize("others", OTHERS)
def test_what_stays_follows_the_law_of_the_persons_own_rows(rows, limits, people, others):
    found = stays(rows, Bounded(limits, people), others=OTHERS[others])
    assert follows([own for (own,) in found], law(rows, limits, people=people))


@pytest.mark.slow
@pytest.mark.parametrize("others", OTHERS)
@pytest.mark.parametrize("names", TOGETHER, ids="+".join)
def test_tallies_together_follow_the_joint_law(names, others):
    specs = [TALLIES[name] for name in names]
    found, expected = stays(SOME, *specs, others=OTHERS[others]), joint_law(SOME, *specs)
    assert follows(found, expected)
    assert not follows(found, {**dict.fromkeys(found, 0), **independent(expected)})


def test_groups_and_rows_have_orders_of_their_own():
    """Were the groups in the order of their first rows, the one with more rows would come first more often."""
    rows = ((0, 0),) * 3 + ((1, 1),)
    specs = Bounded(Limits(groups=1)), Bounded(Limits(rows=1))
    found = stays(rows, *specs)
    assert follows(found, joint_law(rows, *specs))
    by_rows = {outcome: Fraction(3 if outcome[1] == ((0, 0),) else 1, 4) for outcome in joint_law(rows, *specs)}
    together = {outcome: chance for outcome, chance in by_rows.items() if outcome[0][0][0] == outcome[1][0][0]}
    assert sum(together.values()) == 1
    assert not follows(found, {**dict.fromkeys(found, 0), **together})


def test_a_choice_of_groups_by_their_rows_would_be_found_out():
    found = [own for (own,) in stays(SPREAD, Bounded(Limits(groups=1), people=True))]
    weights = Counter(group for group, _ in SPREAD)
    uniform = law(SPREAD, Limits(groups=1), people=True)
    by_rows = {outcome: Fraction(weights[outcome[0][0]], len(SPREAD)) for outcome in uniform}
    assert not follows(found, by_rows)


def test_a_choice_of_values_instead_of_rows_would_be_found_out():
    rows = ((0, 0),) * 3 + ((0, 1),)
    for people in (True, False):
        limits = Limits(rows_per_group=1) if people else Limits(rows=1)
        found = [own for (own,) in stays(rows, Bounded(limits, people))]
        assert follows(found, {((0, 0),): Fraction(3, 4), ((0, 1),): Fraction(1, 4)})
        assert not follows(found, {((0, 0),): Fraction(1, 2), ((0, 1),): Fraction(1, 2)})


@pytest.mark.parametrize("people", [True, False])
@pytest.mark.parametrize("bits", [1, 4, 20])
def test_words_that_tie_change_nothing(people, bits):
    """The top bits of words take a few values only: ties are decided by more words, exactly."""
    source = system_rng()

    def few_bits(count):
        return source(count) >> np.uint64(64 - bits) << np.uint64(64 - bits)

    limits = Limits(groups=1) if people else Limits(rows=2, groups=2, rows_per_group=2)
    found = stays(SPREAD, Bounded(limits, people), others=OTHERS["beside people with more"], words=few_bits)
    assert follows([own for (own,) in found], law(SPREAD, limits, people=people))


def test_equal_words_never_keep_more_than_the_bound():
    source, calls = system_rng(), []

    def equal_at_first(count):
        calls.append(count)
        return np.zeros(count, np.uint64) if len(calls) <= 3 else source(count)

    found = stays(SPREAD, Bounded(Limits(groups=1), people=True), words=equal_at_first)
    assert len(calls) >= 4
    assert {len({group for group, _ in copy}) for (copy,) in found} == {1}


def test_bounds_hold_for_a_person_with_very_many_rows():
    rng = np.random.default_rng(0)
    lengths, groups = np.array([1 << 18]), np.sort(rng.integers(0, 16, 1 << 18))
    codes = rng.integers(0, 5, 1 << 18)
    rows, people = keep(
        lengths,
        groups,
        [BoundedRows(Limits(rows=1000, groups=7, rows_per_group=200)), BoundedRows(Limits(groups=7), None, codes)],
    )
    few = groups[rows.rows]
    assert len(few) == 1000
    assert np.unique(few).size <= 7
    assert np.bincount(few).max() <= 200
    cells = set(zip(groups[people.rows].tolist(), codes[people.rows].tolist(), strict=True))
    assert len(people.rows) == len(cells) == 7 * 5
    assert set(few.tolist()) <= {group for group, _ in cells}  # the same order of groups


def test_only_people_over_a_bound_are_put_in_order():
    """No word is drawn for the others."""
    drawn, source = [], system_rng()

    def counted(count):
        drawn.append(count)
        return source(count)

    lengths, groups = np.array([3, 4, 2]), np.array([0, 0, 1, 0, 0, 0, 1, 0, 1])
    keep(
        lengths,
        groups,
        [BoundedRows(Limits(groups=2, rows_per_group=2)), BoundedRows(Limits(rows_per_group=9))],
        counted,
    )
    assert [n for n in drawn if n] == [3]
    drawn.clear()
    keep(lengths, groups, [BoundedRows(Limits(groups=1)), BoundedRows(Limits(rows=3))], counted)
    assert [n for n in drawn if n] == [6, 4]  # all groups of everybody; the rows of the second person


def test_huge_bounds_cost_nothing():
    (found,) = keep(np.array([2, 1]), np.array([0, 0, 1]), [BoundedRows(Limits(2**62, 2**62, 2**62))])
    assert found.rows.tolist() == [0, 1, 2]


@pytest.mark.usefixtures("numbering")
def test_nobody_is_no_rows():
    empty = np.empty(0, np.int64)
    for codes in (None, empty):
        for lengths in (empty, np.zeros(2, np.int64)):
            (found,) = keep(lengths, empty, [BoundedRows(Limits(1, 1, 1), None, codes)])
            assert found.rows.tolist() == []


def test_the_layout_has_room_for_every_group_and_code():
    groups_and_codes = [(1, 1), (0, 3), (2, 2), (3, 5), (10**7, 2**40), (2**11, 2**53)]
    bits = [(0, 0), (0, 2), (1, 1), (2, 3), (24, 40), (11, 53)]
    assert [Layout.of(*each) for each in groups_and_codes] == [Layout(*each) for each in bits]


def test_codes_of_64_bits_are_told_apart():
    """A pair and its code then share no word: codes are numbered first."""
    codes = np.array([2**64 - 1, 2**64 - 1, 5, 2**64 - 2, 5, 5], np.uint64)
    (found,) = keep(np.array([4, 2]), np.array([0, 0, 0, 0, 0, 1]), [BoundedRows(Limits(), None, codes)])
    assert codes[found.rows].tolist() == [2**64 - 1, 5, 2**64 - 2, 5, 5]
    assert found.whose.tolist()[0] == found.whose.tolist()[1]
    assert len(set(found.whose.tolist())) == 5


@pytest.mark.parametrize("sort", [np.sort, arrays._sorted_by_polars, arrays.sorted_words])
@pytest.mark.parametrize("number", [0, 1, 5_000, arrays._MANY_WORDS])
def test_each_sort_of_words_gives_the_same(sort, number):
    """Which one runs is measured, so either must do."""
    words = system_rng()(number)
    ascending = sort(words)
    assert ascending.dtype == np.uint64
    assert ascending.tolist() == sorted(words.tolist())
