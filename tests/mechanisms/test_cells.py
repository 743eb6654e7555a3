"""Second digits drawn only where they are needed: the same rows, the same law as digits drawn for each row."""

import itertools
import math

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from dp_polars._base.numbers import system_rng
from dp_polars._mechanisms import quantile_trees as module
from dp_polars._mechanisms.quantile_trees import Cells
from tests.statistical.goodness import fits


def cells_of(counts, bits):
    """The cells of histograms of shape (g, values)."""
    counts = np.asarray(counts)
    return Cells.of_values(np.nonzero(counts)[1], counts[counts > 0], (counts > 0).sum(axis=1), bits)


def split(cells):
    """The cells of each group, as (first pair, pairs, rows)."""
    ends = np.cumsum(cells.sizes)
    rows = list(zip(cells.codes.tolist(), (1 << cells.bits.astype(int)).tolist(), cells.counts.tolist(), strict=True))
    return [rows[end - size : end] for end, size in zip(ends.tolist(), cells.sizes.tolist(), strict=True)]


@st.composite
def windows(draw):
    groups = draw(st.integers(1, 4))
    counts = [draw(st.lists(st.integers(0, 200), min_size=4, max_size=4)) for _ in range(groups)]
    bits = draw(st.sampled_from([0, 1, 3, 20]))
    asked = []
    for _ in range(draw(st.integers(1, 3))):
        lows = [draw(st.integers(0, max(sum(one) - 1, 0))) for one in counts]
        highs = [draw(st.integers(low + (sum(one) > 0), sum(one))) for low, one in zip(lows, counts, strict=True)]
        asked.append((np.array(lows), np.array(highs)))
    return np.array(counts), bits, asked


@given(windows())
@settings(max_examples=150)
def test_ranks_that_are_asked_for_are_known_and_all_rows_stay(case):
    counts, bits, asked = case
    cells = cells_of(counts, bits)
    for low, high in asked:
        before = split(cells)
        cells, begin, end = cells.drawn(low, high, system_rng())
        assert (cells.totals == counts.sum(axis=1)).all()
        begins = np.cumsum(cells.sizes) - cells.sizes
        for group, own in enumerate(split(cells)):
            assert all(n >= 1 and first % pairs == 0 for first, pairs, n in own)
            assert all(a[0] + a[1] <= b[0] for a, b in itertools.pairwise(own))  # ascending, and apart
            for first, pairs, n in before[group]:  # what was known is refined, never changed
                assert sum(m for a, _, m in own if first <= a < first + pairs) == n
            upto = np.cumsum([0, *(n for _, _, n in own)])
            a, b = begin[group] - begins[group], end[group] - begins[group]
            assert all(pairs == 1 for _, pairs, _ in own[a:b])
            if counts[group].sum():
                assert upto[a] <= low[group] < high[group] <= upto[b]
            else:
                assert a == b == 0


@given(windows(), st.data())
@settings(max_examples=60)
def test_a_cut_leaves_every_cell_on_its_side(case, data):
    counts, bits, _ = case
    cells = cells_of(counts, bits)
    cells = cells.drawn(np.zeros(len(counts), np.int64), cells.totals, system_rng())[0]
    codes = np.array([data.draw(st.integers(0, (4 << bits) - 1)) for _ in counts])
    left, right = cells.cut(codes)
    for code, own, low, high in zip(codes.tolist(), split(cells), split(left), split(right), strict=True):
        assert low == [cell for cell in own if cell[0] <= code]
        assert high == [cell for cell in own if cell[0] > code]
    assert split(cells.by_value(bits)) == [
        [(value, 1, n) for value, n in enumerate(one) if n] for one in counts.tolist()
    ]
    parts = {group: cells.part(group, group + 1) for group in range(len(counts))}
    assert split(cells.replaced({g: part for g, part in parts.items() if g % 2})) == split(cells)


def test_a_group_is_replaced_by_its_own_cells():
    cells = cells_of([[3, 1], [0, 0], [0, 7], [2, 2]], 4)
    other = {1: cells_of([[9, 9]], 4), 3: cells_of([[0, 0]], 4)}
    assert split(cells.replaced(other)) == [*split(cells)[:1], *split(other[1]), split(cells)[2], []]


# The law


def enumerated(rows, digits):
    """Probability of each number of rows per digit, in the order of `itertools.product`."""
    every = [each for each in itertools.product(range(rows + 1), repeat=digits) if sum(each) == rows]
    ways = [math.factorial(rows) / math.prod(map(math.factorial, each)) / digits**rows for each in every]
    return every, ways


@pytest.mark.slow
@pytest.mark.parametrize("few", [0, 1, 32])
@pytest.mark.parametrize("asked", [[(0, 1)], [(2, 4)], [(4, 5), (0, 1)], [(1, 2), (0, 5)], [(0, 5)]])
def test_digits_have_the_law_of_independent_ones(few, asked, monkeypatch):
    """Whatever is asked for first; with `_FEW` = 0 nearly everything is halved, with 32 nothing."""
    monkeypatch.setattr(module, "_ROWS_LEFT_WHOLE", few)
    rows, bits, groups = 5, 2, 40_000
    every, law = enumerated(rows, 4)
    cells = cells_of(np.full((groups, 1), rows), bits)
    for low, high in [*asked, (0, rows)]:
        cells = cells.drawn(np.full(groups, low), np.full(groups, high), system_rng())[0]
    counts = np.zeros((groups, 4), np.int64)
    counts[np.repeat(np.arange(groups), cells.sizes), cells.codes] = cells.counts
    found = np.bincount([every.index(tuple(one)) for one in counts.tolist()], minlength=len(every))
    assert fits(found, law)


@pytest.mark.slow
def test_whether_more_is_asked_for_may_depend_on_what_is_known():
    """The law of the lowest digit, where the rest is drawn only of groups in which it is 0, as a race would have it."""
    rows, bits, groups = 4, 2, 40_000
    every, law = enumerated(rows, 4)
    cells, begin, _ = cells_of(np.full((groups, 1), rows), bits).drawn(
        np.zeros(groups, np.int64), np.ones(groups, np.int64), system_rng()
    )
    low = np.where(cells.codes[begin] == 0, 1, 3)
    cells = cells.drawn(low, np.full(groups, rows), system_rng())[0]
    cells = cells.drawn(np.zeros(groups, np.int64), np.full(groups, rows), system_rng())[0]
    counts = np.zeros((groups, 4), np.int64)
    counts[np.repeat(np.arange(groups), cells.sizes), cells.codes] = cells.counts
    assert fits(np.bincount([every.index(tuple(one)) for one in counts.tolist()], minlength=len(every)), law)


@pytest.mark.parametrize("chunk", [1, 3, 1 << 22])
def test_halves_count_the_ones_of_their_own_bits(chunk, monkeypatch):
    monkeypatch.setattr(module, "_CHUNK", chunk)
    rng = np.random.default_rng(0)
    counts = np.array([1, 7, 8, 9, 64, 65, 200, 1, 16])
    taken = []

    def words(number):
        taken.append(rng.integers(0, 2**64, number, np.uint64))
        return taken[-1].copy()

    heads = module._binomial_halves(counts, words)
    size = sum((n + 7) // 8 for n in counts)
    drawn, left = b"", size
    for part in taken:  # of each chunk as many bytes as it has
        drawn += part.tobytes()[: min(chunk, left)]
        left -= min(chunk, left)
    position = 0
    for n, head in zip(counts.tolist(), heads.tolist(), strict=True):
        own = drawn[position : position + (n + 7) // 8]
        position += len(own)
        bits = [byte >> i & 1 for byte in own for i in range(8)]
        assert head == sum(bits[:n])


@pytest.mark.slow
def test_halves_are_binomial():
    for n in (1, 5, 8, 11):
        heads = module._binomial_halves(np.full(60_000, n), system_rng())
        assert fits(np.bincount(heads, minlength=n + 1), [math.comb(n, i) / 2**n for i in range(n + 1)])


def test_a_few_ranks_of_very_many_rows_cost_little():
    drawn = 0

    def words(number):
        nonlocal drawn
        drawn += number
        return system_rng()(number)

    rows = 2**28
    cells, begin, end = cells_of([[rows, rows]], 20).drawn(np.array([rows - 50]), np.array([rows + 50]), words)
    assert drawn < 2 * 2 * rows / 64 * 1.01 + 1000  # a bit each on the first level, then ever fewer
    assert cells.totals.tolist() == [2 * rows]
    assert end[0] - begin[0] >= 2
    assert len(cells.codes) < 500
