"""What stays of a person's rows: the exact law by enumeration, whatever the others have and however words tie."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest

from dp_polars._base.words import system_words
from dp_polars._engines.bounding import Layout, Limits, keep
from tests.statistical.goodness import fits

COPIES = 8_000
LAYOUT = Layout(group_bits=4, code_bits=30)


def law(rows, limits, *, people):
    """The distribution of the sorted cells that stay of these rows (group, code), by enumeration."""
    rows = sorted(set(rows)) if people else sorted(rows)
    groups = sorted({group for group, _ in rows})
    out = Counter()
    for chosen in subsets(groups, limits.groups):
        by_group = [[row for row in rows if row[0] == group] for group in chosen]
        ways = [list(subsets(own, limits.rows_per_group)) for own in by_group]
        for way in product(*ways):
            last = list(subsets([row for own in way for row in own], limits.rows))
            for few in last:
                out[few] += Fraction(
                    1, len(list(subsets(groups, limits.groups))) * len(list(product(*ways))) * len(last)
                )
    assert sum(out.values()) == 1
    return out


def subsets(items, most):
    return combinations(items, len(items) if most is None else min(most, len(items)))


def stays(rows, limits, *, people, others=(), words=None):
    """What stays of each of many copies of the person, each among the others."""
    # Codes of a copy are its own, so that the cells tell whose they are.
    cells, lengths = [], []
    for copy in range(COPIES):
        cells += [group << 30 | copy * 16 + code for group, code in rows]
        lengths.append(len(rows))
        if copy % 100 == 0:
            for other in others:
                cells += [group << 30 | (1 << 29) + code for group, code in other]
                lengths.append(len(other))
    found, _ = keep(np.array(cells, np.uint64), np.array(lengths, np.int64), limits, LAYOUT, people=people, words=words)
    own = [[] for _ in range(COPIES)]
    for cell in found.tolist():
        code = cell & ((1 << 30) - 1)
        if code < 1 << 29:
            own[code // 16].append((cell >> 30, code % 16))
    return [tuple(sorted(copy)) for copy in own]


def follows(found, expected):
    outcomes = sorted(expected)
    counts = Counter(found)
    assert set(counts) <= set(outcomes)
    return fits([counts[outcome] for outcome in outcomes], [float(expected[outcome]) for outcome in outcomes])


SPREAD = [(0, 0), (0, 1), (0, 1), (1, 2), (2, 3), (2, 4), (2, 5), (2, 5)]
CASES = [
    (SPREAD, Limits(groups=1), True),
    (SPREAD, Limits(groups=2), True),
    (SPREAD, Limits(groups=3), True),
    (SPREAD, Limits(), True),
    (SPREAD, Limits(groups=2), False),
    (SPREAD, Limits(rows=3), False),
    (SPREAD, Limits(rows_per_group=2), False),
    (SPREAD, Limits(rows=2, groups=2, rows_per_group=2), False),
    (SPREAD, Limits(rows=1, groups=3, rows_per_group=1), False),
    (SPREAD, Limits(rows=100, groups=100, rows_per_group=100), False),
    ([(5, 7)] * 5, Limits(rows=2), False),
    ([(5, 7)] * 5, Limits(groups=1), True),
    ([(15, 9)], Limits(1, 1, 1), False),
]
OTHERS = {
    "alone": [],
    "beside people with less": [[(0, 0)], [(1, 1)] * 2],
    "beside people with more": [[(group, code) for group in range(16) for code in range(30)], [(2, 5)] * 200],
}


@pytest.mark.parametrize(("rows", "limits", "people"), CASES)
@pytest.mark.parametrize("others", OTHERS)
def test_what_stays_follows_the_law_of_the_persons_own_rows(rows, limits, people, others):
    assert follows(stays(rows, limits, people=people, others=OTHERS[others]), law(rows, limits, people=people))


def test_a_choice_of_groups_by_their_rows_would_be_found_out():
    found = stays(SPREAD, Limits(groups=1), people=True)
    weights = Counter(group for group, _ in SPREAD)
    uniform = law(SPREAD, Limits(groups=1), people=True)
    by_rows = {outcome: Fraction(weights[outcome[0][0]], len(SPREAD)) for outcome in uniform}
    assert not follows(found, by_rows)


def test_a_choice_of_values_instead_of_rows_would_be_found_out():
    rows = [(0, 0)] * 3 + [(0, 1)]
    found = stays(rows, Limits(rows=1), people=False)
    assert not follows(found, {((0, 0),): Fraction(1, 2), ((0, 1),): Fraction(1, 2)})


@pytest.mark.parametrize("people", [True, False])
@pytest.mark.parametrize("bits", [1, 4, 20])
def test_words_that_tie_change_nothing(people, bits):
    """The top bits of words take a few values only: ties are decided by more words, exactly."""
    source = system_words()

    def few_bits(count):
        return source(count) >> np.uint64(64 - bits) << np.uint64(64 - bits)

    limits = Limits(groups=1) if people else Limits(rows=2, groups=2, rows_per_group=2)
    found = stays(SPREAD, limits, people=people, others=OTHERS["beside people with more"], words=few_bits)
    assert follows(found, law(SPREAD, limits, people=people))


def test_equal_words_never_keep_more_than_the_bound():
    source, calls = system_words(), []

    def equal_at_first(count):
        calls.append(count)
        return np.zeros(count, np.uint64) if len(calls) <= 3 else source(count)

    found = stays(SPREAD, Limits(groups=1), people=True, words=equal_at_first)
    assert len(calls) >= 4
    assert {len({group for group, _ in copy}) for copy in found} == {1}


def test_bounds_hold_for_a_person_with_very_many_rows():
    rng = np.random.default_rng(0)
    cells = (rng.integers(0, 16, 1 << 18).astype(np.uint64) << np.uint64(30)) | rng.integers(0, 5, 1 << 18).astype(
        np.uint64
    )
    lengths = np.array([1 << 18])
    few = keep(cells, lengths, Limits(rows=1000, groups=7, rows_per_group=200), LAYOUT, people=False)[0] >> np.uint64(
        30
    )
    assert len(few) == 1000
    assert np.unique(few).size <= 7
    assert np.bincount(few.astype(np.int64)).max() <= 200
    people, _ = keep(cells, lengths, Limits(groups=7), LAYOUT, people=True)
    assert len(people) == len(np.unique(people)) == 7 * 5


def test_huge_bounds_cost_nothing():
    cells, lengths = np.array([1, 2, 2], np.uint32), np.array([2, 1])
    limits = Limits(2**62, 2**62, 2**62)
    assert sorted(keep(cells, lengths, limits, Layout(1, 2), people=False)[0].tolist()) == [1, 2, 2]


def test_nobody_is_no_rows():
    empty = np.empty(0, np.uint32)
    for people in (True, False):
        assert keep(empty, np.empty(0, np.int64), Limits(1, 1, 1), LAYOUT, people=people)[0].tolist() == []


@pytest.mark.parametrize(
    ("groups", "size", "layout"),
    [
        (1, 1, Layout(0, 0)),
        (0, 3, Layout(0, 2)),
        (2, 2, Layout(1, 1)),
        (3, 5, Layout(2, 3)),
        (10**7, 2**40, Layout(24, 40)),
        (2**11, 2**53, Layout(11, 53)),
    ],
)
def test_the_layout_has_room_for_every_group_and_code(groups, size, layout):
    assert Layout.of(groups, size) == layout


def test_groups_and_candidates_beyond_64_bits_are_refused():
    with pytest.raises(ValueError, match=r"must fit into 64 bits, got 4,096 groups .*\n\nHint: take fewer groups"):
        Layout.of(2**12, 2**53)


def test_cells_of_64_bits_leave_room_for_one_person():
    layout = Layout.of(2**11, 2**53)
    assert layout.most_people(people=True) == 1
    assert layout.most_people(people=False) == 2**53
    cell = (2**11 - 1) << 53 | 2**53 - 1
    cells = np.array([cell, cell, 5], np.uint64)
    assert sorted(keep(cells, np.array([3]), Limits(), layout, people=True)[0].tolist()) == [5, cell]
    assert sorted(keep(cells, np.array([3]), Limits(rows=9), layout, people=False)[0].tolist()) == [5, cell, cell]


def test_each_weight_of_a_person_has_a_bound_of_its_own():
    cells, weight = np.ones(2, np.uint64), np.array([4, 4])
    _, found = keep(
        cells, np.array([2]), Limits(), Layout(1, 2), people=True, weights=[weight, weight], most=[(-9, 7), (-9, 2)]
    )
    assert [own.tolist() for own in found] == [[7], [2]]
    _, found = keep(
        cells, np.array([2]), Limits(), Layout(1, 2), people=True, weights=[weight, -weight], most=[(9, 10), (-3, 5)]
    )
    assert [own.tolist() for own in found] == [[9], [-3]]
