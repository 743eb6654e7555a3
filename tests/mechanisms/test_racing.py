"""The race: its bounds, its corners, and what it asks of others."""

from fractions import Fraction

import numpy as np
import pytest

from dp_polars._base.numbers import system_rng
from dp_polars._mechanisms import noisy_gap, racing
from dp_polars._mechanisms.racing import LAWS, Blocks, race
from tests.helpers.reference import floats, law
from tests.registry import MECHANISMS
from tests.statistical.goodness import fits
from tests.statistical.racing import blocks_of, never


def winners_of(*given, rate=1, mechanism="permute_and_flip", exact=None):
    return race(blocks_of(*given, exact=exact), Fraction(rate), LAWS[mechanism], system_rng())


def test_sizes():
    blocks = Blocks(np.zeros(6), np.array([0, 1, 4]), never)
    assert blocks.sizes().tolist() == [1, 3, 2]


def test_winners_are_positions_in_the_flat_blocks(mechanism):
    found = winners_of([0, 7, 0, 9, 9, 0], [0, 2, 5], rate=1000, mechanism=mechanism)
    assert found.blocks.tolist() == [0, 2, 5]
    assert found.blocks.dtype == np.int64
    assert found.left_out == {}


@pytest.mark.parametrize(
    ("has_gap", "chunk"), [(has_gap, n) for has_gap in (False, True) for n in (2 - has_gap, 3 - has_gap, 7, 1 << 15)]
)
def test_groups_of_all_sizes_in_batches_of_all_sizes(has_gap, mechanism, chunk, monkeypatch):
    monkeypatch.setattr(noisy_gap if has_gap else racing, "CHUNK", chunk)
    rng = np.random.default_rng(1)
    sizes = rng.integers(1, 8, 60)
    starts = np.cumsum(sizes) - sizes
    best = starts + rng.integers(0, sizes)
    # Others are far, nearly far, or so far that their exponents overflow; with gaps, far from a whole unit of 100 too.
    gaps = rng.choice([100, 120, 10**3, 10**15] if has_gap else [44, 45, 46, 10**3, 10**18], sizes.sum())
    gaps[best] = 0
    true = [np.sort(gaps[a : a + n])[1] if n > 1 else -1 for a, n in zip(starts, sizes, strict=True)]
    for multiplicities in (None, np.ones(len(gaps), np.int64)):
        if not has_gap:
            assert (winners_of(gaps, starts, multiplicities, mechanism=mechanism).blocks == best).all()
            continue
        blocks = blocks_of(gaps, starts, multiplicities)
        found = noisy_gap.race_with_gap(blocks, Fraction(1), Fraction(100), LAWS[mechanism], system_rng())
        assert (found[0] == best).all()
        assert (abs(found[1] - np.array(true) // 100) <= 1).all()
        assert ((found[1] == -1) == (sizes == 1)).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("gaps", "multiplicities", "rate"),
    [
        ([0] * 12, None, Fraction(1, 2)),
        ([3, 1, 0, 0, 2, 5, 1, 0, 2, 2, 9, 1], None, Fraction(1, 2)),
        (list(range(20)), None, Fraction(1, 7)),
        ([1, 0, 10**17, 2**62, 2], None, Fraction(1, 2)),
        ([25, 0, 12], [10**11, 1, 10**6], Fraction(1)),
    ],
)
def test_who_wins_does_not_depend_on_the_batch(gaps, multiplicities, rate, mechanism, monkeypatch):
    """A later batch of a group leaves out who is late by V alone: no more than that."""
    monkeypatch.setattr(racing, "CHUNK", 4)
    draws = 15_000
    m = None if multiplicities is None else multiplicities * draws
    found = winners_of(gaps * draws, np.arange(draws) * len(gaps), m, rate=rate, mechanism=mechanism)
    expected = floats(law([-gap for gap in gaps], multiplicities, rate=rate, mechanism=mechanism, digits=20))
    assert fits(np.bincount(found.blocks % len(gaps), minlength=len(gaps)), expected)


def test_whole_batches_of_far_blocks(mechanism, monkeypatch):
    monkeypatch.setattr(racing, "CHUNK", 4)
    gaps = [0, *[100] * 30, 0, 0, *[100] * 9, 0]
    assert winners_of(gaps, [0, 32], mechanism=mechanism).blocks[0] in (0, 31)
    assert winners_of([100] * 9 + [0], [0], mechanism=mechanism).blocks.tolist() == [9]
    assert winners_of([0] + [100] * 9, [0], mechanism=mechanism).blocks.tolist() == [0]


@pytest.mark.parametrize("rate", [Fraction(1, 2**1000), Fraction(2**1000)])
@pytest.mark.parametrize("gap", [1, 2**63 - 1, 5e-324, 1.7e308, np.inf])
def test_extreme_rates_and_gaps(gap, rate, mechanism):
    # Warnings are errors here.
    far = gap == np.inf or Fraction(gap) * rate > 100
    starts = np.arange(100) * 2
    # Two floats may lie so far apart that their gap is infinite.
    winners = winners_of(np.tile(np.array([0, gap]), 100), starts, rate=rate, mechanism=mechanism)
    second = (winners.blocks - starts).sum()
    # Otherwise fair, or 2**-64 from it: all of 100 one way has a probability of 2**-99.
    assert second == 0 if far else 0 < second < 100


def test_the_largest_multiplicities(mechanism):
    starts = np.arange(50) * 2
    winners = winners_of([0, 0] * 50, starts, [2**62, 1] * 50, mechanism=mechanism)
    assert (winners.blocks == starts).all()
    # exp(−44.4)·2**62 is 0.24, so that both win.
    winners = winners_of(
        [0, 444] * 200, np.arange(200) * 2, [1, 2**62] * 200, rate=Fraction(1, 10), mechanism=mechanism
    )
    assert len(set((winners.blocks % 2).tolist())) == 2


def test_exact_blocks_are_asked_for_only_where_floats_can_not_decide(mechanism):
    gaps, starts = np.tile([0, 3, 5, 60], 2000), np.arange(2000) * 4
    winners_of(gaps, starts, mechanism=mechanism, exact=never)  # one in 1e10 races would ask
    blocks = blocks_of(gaps, starts, np.tile([1, 5, 10**9, 2**60], 2000), exact=never)
    noisy_gap.race_with_gap(blocks, Fraction(1), Fraction(1), LAWS[mechanism], system_rng())  # one in 1e8


def test_a_v_that_may_be_one_is_no_trouble():
    # All words are ones at first: log(1 − V) is infinite, for all that is known of V.
    calls = []

    def words(count):
        calls.append(count)
        return np.full(count, 2**64 - 1, np.uint64) if len(calls) < 3 else system_rng()(count)

    for mechanism in MECHANISMS:
        calls.clear()
        assert race(blocks_of([0] * 3, [0]), Fraction(1), LAWS[mechanism], words).blocks[0] in (0, 1, 2)


def test_the_rough_bounds_of_a_part_of_a_group_may_overflow(monkeypatch):
    # A batch may hold a single racer of a group, almost far, whose V is almost one: its bound is beyond float32, and no
    # warning may tell.
    monkeypatch.setattr(racing, "CHUNK", 2)
    words = system_rng()

    def almost_ones(count):
        return np.full(count, 0xFFFFFFFE_FFFFFFFE, np.uint64) if count == 1 else words(count)

    for mechanism in MECHANISMS:
        assert race(blocks_of([0, 44, 45], [0]), Fraction(1), LAWS[mechanism], almost_ones).blocks.tolist() == [0]


def test_empty_blocks_never_win(mechanism):
    # Near ones and far ones, in races that floats decide and in ties that go the exact way.
    gaps, m = [0, 0, 0, 2, 100, 0, 100], [1, 0, 1, 0, 0, 1, 5]
    starts = (np.arange(500)[:, None] * 7 + [0, 5]).ravel()
    found = winners_of(gaps * 500, starts, m * 500, mechanism=mechanism).blocks.reshape(500, 2) % 7
    assert set(found[:, 0]) == {0, 2}
    assert set(found[:, 1]) == {5}

    calls, random = [], system_rng()

    def words(count):
        calls.append(count)
        return np.zeros(count, np.uint64) if len(calls) <= 2 else random(count)

    winners = race(blocks_of(gaps, [0, 5], m), Fraction(1), LAWS[mechanism], words).blocks
    assert winners[0] in (0, 2)
    assert winners[1] == 5
