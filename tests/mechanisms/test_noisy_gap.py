"""The race with its gap: its corners, and every verdict against high-precision arithmetic on the very bits drawn."""

from fractions import Fraction

import numpy as np
import pytest
from flint import arb, ctx

from dp_polars._base.numbers import system_rng
from dp_polars._mechanisms import noisy_gap
from dp_polars._mechanisms import racing as exact_race
from dp_polars._mechanisms.noisy_gap import LARGEST_GAP, race_with_gap
from dp_polars._mechanisms.racing import LAWS
from tests.helpers import reference
from tests.mechanisms.test_exact_race import tie
from tests.statistical.racing import blocks_of

ONES, SLACK = 2**64 - 1, noisy_gap._SLACK


def recorded_words(seed):
    """The same words in every call with this seed, for tests alone."""
    rng = np.random.default_rng(seed)
    return lambda count: rng.integers(0, 2**64, count, np.uint64)


def test_winners_and_gaps_of_certain_races(mechanism):
    found = race_with_gap(
        blocks_of([0, 7000, 0, 9000, 5000, 0], [0, 2, 5]), Fraction(1000), Fraction(1), LAWS[mechanism], system_rng()
    )
    assert found[0].tolist() == [0, 2, 5]
    # To within the noise, of at most one unit: rounded down.
    assert [6999, 4999] <= found[1][:2].tolist() <= [7000, 5000]
    assert found[1][2] == -1  # it was alone
    assert found[0].dtype == found[1].dtype == np.int64


def test_no_groups(mechanism):
    empty = race_with_gap(
        blocks_of(np.empty(0), np.empty(0, np.int64)), Fraction(1), Fraction(1), LAWS[mechanism], None
    )
    assert len(empty[0]) == len(empty[1]) == 0


def test_blocks_of_none_neither_win_nor_follow(mechanism):
    m = np.array([0, 1, 0, 0, 2, 0, 1, 1])
    starts = (np.arange(300)[:, None] * 8 + [0, 3, 5]).ravel()
    gaps = np.tile([0, 3, 0, 0, 0, 0, 0, 9], 300)
    found = race_with_gap(
        blocks_of(gaps, starts, np.tile(m, 300)), Fraction(1), Fraction(1), LAWS[mechanism], system_rng()
    )
    won, noisy_gaps = found[0].reshape(300, 3) % 8, found[1].reshape(300, 3)
    assert (won[:, 0] == 1).all()
    assert (noisy_gaps[:, 0] == -1).all()
    assert (won[:, 1] == 4).all()
    assert noisy_gaps[:, 1].max() >= 1  # the second within the block
    assert set(won[:, 2]) <= {6, 7}


@pytest.mark.parametrize("rate", [Fraction(1, 2**1000), Fraction(2**1000)])
@pytest.mark.parametrize("unit", [Fraction(1, 2**900), Fraction(1), Fraction(2**900)])
@pytest.mark.parametrize("gap", [0, 1, 2**63 - 1, 5e-324, 1.7e308, np.inf])
def test_extreme_rates_units_and_gaps(gap, unit, rate, mechanism):
    # Warnings are errors here.
    true = Fraction(2) ** 1024 if gap == np.inf else Fraction(gap)
    found = race_with_gap(
        blocks_of(np.tile([0, gap], 20), np.arange(20) * 2), rate, unit, LAWS[mechanism], system_rng()
    )
    # The noise is at most 100 of its scales, but for a probability below 1e-40.
    low, high = (min(max((true + sign * 100 / rate) / unit, 0), LARGEST_GAP) for sign in (-1, 1))
    wins = found[0] % 2 == 0
    if true * rate > 200:
        assert wins.all()
        assert ((found[1] >= low - 1) & (found[1] <= high)).all()
    assert ((found[1] >= 0) & (found[1] <= high)).all()


CASES = {  # gaps, multiplicities, rate, unit
    "two": ([0, 0], None, Fraction(1), Fraction(1)),
    "far": ([0, 3000], None, Fraction(1), Fraction(1)),
    "many": ([5, 0, 1, 1, 0, 7], None, Fraction(1, 3), Fraction(1, 2)),
    "blocks": ([0, 1, 5], [1, 4, 10**6], Fraction(2, 7), Fraction(3)),
    "one block": ([0], [5], Fraction(1, 2), Fraction(1, 10)),
    "floats": ([0.0, 0.1, 1e-9], None, Fraction(10), Fraction(1, 1000)),
    "huge": ([0, 2**60], [1, 1], Fraction(1, 2**58), Fraction(2**50)),
}


@pytest.mark.parametrize("case", CASES)
def test_floats_and_the_exact_path_agree_on_the_same_words(case, mechanism, monkeypatch):
    gaps, m, rate, unit = CASES[case]
    groups, width = 400, len(gaps)
    blocks = blocks_of(np.tile(gaps, groups), np.arange(groups) * width, None if m is None else np.tile(m, groups))
    calls = []
    original = exact_race.first_and_gap
    monkeypatch.setattr(exact_race, "first_and_gap", lambda *args: (calls.append(1), original(*args))[1])
    by_floats = race_with_gap(blocks, rate, unit, LAWS[mechanism], recorded_words(3))
    assert len(calls) <= 4
    calls.clear()
    monkeypatch.setattr(noisy_gap, "_SLACK", 1e6)  # so that floats can decide nothing
    exactly = race_with_gap(blocks, rate, unit, LAWS[mechanism], recorded_words(3))
    assert len(calls) == groups
    assert (exactly[0] == by_floats[0]).all()
    assert (exactly[1] == by_floats[1]).all()
    assert len(set(exactly[1].tolist())) > 1


@pytest.mark.parametrize("ahead", [0, 1, 7, 2**22, 2**22 + 1, 2**22 + 7])
def test_near_ties_and_gaps_near_whole_units_are_decided_exactly(ahead, mechanism, monkeypatch):
    """The second of two arrives so nearly a whole number of units after the first that floats must leave it open.

    Floats of large gaps are off by more than the absolute slack.
    """
    rng, rate, unit = np.random.default_rng(11), Fraction(1, 3), Fraction(1, 2)
    gaps, drawn = [0, 5 + (2**21 if ahead >= 2**22 else 0)], []
    for v in rng.integers(2**48, 2**51, 200).tolist():
        first, second = tie(Fraction(v, 2**52), [0, gaps[1] - ahead * unit], [1, 1], rate, mechanism, 64)
        # Off by a few of the last bits that floats know, or by fewer; but 64 bits tell.
        drawn += [first, second + 2 ** int(rng.integers(4, 12)) * int(rng.choice([-1, 1]))]

    def words():
        left = [np.array(drawn, np.uint64)]
        return lambda count: left.pop() if count == len(drawn) else np.zeros(count, np.uint64)

    def found(slack):
        monkeypatch.setattr(noisy_gap, "_SLACK", slack)
        race = race_with_gap(blocks_of(np.tile(gaps, 200), np.arange(200) * 2), rate, unit, LAWS[mechanism], words())
        return [*race[0].tolist(), *race[1].tolist()]

    exactly = found(1e6)  # so that floats can decide nothing
    assert found(SLACK) == exactly
    if ahead < 2**22:  # the control: what floats alone say
        v = np.array(drawn).reshape(200, 2) * 2.0**-64
        times = np.log(v if mechanism == "permute_and_flip" else -np.log1p(-v)) + np.array(gaps) * float(rate)
        noisy_gaps = np.floor(abs(times[:, 0] - times[:, 1]) / float(rate * unit))
        assert [*(times.argmin(axis=1) + np.arange(200) * 2).tolist(), *noisy_gaps.tolist()] != exactly


@pytest.mark.parametrize("m", [None, 1, 7, 10**9, 2**60])
def test_floats_bound_the_logarithms_of_arrival_times(m, mechanism, monkeypatch):
    """At both ends of what the bits drawn leave open, against 400 bits; exponents are exact here."""
    rng, number = np.random.default_rng(5), 500
    leading_part = np.concatenate([rng.integers(1, 2**53 - 1, number), 2 ** rng.integers(1, 53, number)])
    words, exponents = (leading_part << 11).astype(np.uint64), np.repeat([0.0, 0.5], number)
    counts = None if m is None else np.full(2 * number, m)
    times = noisy_gap._log_times(words, exponents, counts, LAWS[mechanism])
    monkeypatch.setattr(noisy_gap, "_SLACK", 0.0)
    monkeypatch.setattr(noisy_gap, "_RELATIVE_SLACK", 0.0)
    sharp = noisy_gap._log_times(words, exponents, counts, LAWS[mechanism])
    outside = 0
    with ctx.workprec(400):
        for i, v in enumerate(leading_part.tolist()):
            low, high = (
                reference.arrival(Fraction(v + end, 2**53), 0, m or 1, rate=1, mechanism=mechanism).log()
                + arb(exponents[i])
                for end in (0, 1)
            )
            assert arb(times.low[i]) < low < high < arb(times.high[i])
            outside += not (arb(sharp.low[i]) <= low < high <= arb(sharp.high[i]))
    assert outside > 0  # the control: without slack the bounds do not hold


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("word", [0, ONES, 2**63, ONES << 11 & ONES, 0x0123456789ABCDEF])
@pytest.mark.parametrize("second", [None, 0, ONES, 2**62])
@pytest.mark.parametrize("later", [0, ONES, None])
def test_verdicts_of_the_exact_path(case, word, second, later, mechanism, monkeypatch):
    """All V within the bits that were drawn give this winner and this gap: so says arithmetic of 6,000 bits."""
    gaps, m, rate, unit = CASES[case]
    counts = m or [1] * len(gaps)
    made, uniform, random, budget = [], exact_race.Uniform, system_rng(), [12]

    class Recorded(uniform):
        def __init__(self, *args):
            super().__init__(*args)
            made.append(self)

    def words(count):  # at first such as don't tell the blocks apart
        budget[0] -= 1
        return random(count) if later is None or budget[0] < 0 else np.full(count, later, np.uint64)

    monkeypatch.setattr(exact_race, "Uniform", Recorded)
    drawn = dict.fromkeys(range(len(gaps)), word)
    seconds = {} if second is None else dict.fromkeys(drawn, second)
    exact = [Fraction(gap) for gap in gaps]
    winner, ahead = exact_race.first_and_gap(
        exact.__getitem__, counts, drawn, seconds, rate, unit, LAWS[mechanism], words
    )
    assert all(each.prefix >> (each.bits - 64) == word for each in made[: len(gaps)])
    assert len(made) == len(gaps) + (counts[winner] > 1)
    if counts[winner] > 1 and second is not None:
        assert made[-1].prefix >> (made[-1].bits - 64) == second  # more bits, not other ones

    with ctx.workprec(6000):

        def log_time(position, end, *, is_second=False):
            survival = arb(0)
            for each, left in ((made[position], 0), (made[-1], 1))[: 1 + is_second]:
                v = arb(each.prefix + end) / arb(2) ** each.bits
                survival += arb("-inf") if v == 1 else (1 - v).log() / (counts[position] - left)
            value = -survival if mechanism == "exponential" else -survival.expm1()
            return (arb("-inf") if value == 0 else value.log()) + reference._arb(rate) * reference._arb(exact[position])

        earliest, latest = (log_time(winner, end) for end in (0, 1))
        rivals = [[log_time(p, end) for end in (0, 1)] for p in range(len(gaps)) if p != winner]
        assert all(latest < low for low, _ in rivals)
        if counts[winner] > 1:
            rivals.append([log_time(winner, end, is_second=True) for end in (0, 1)])
        step = reference._arb(rate * unit)
        assert all((low - latest) / step >= ahead for low, _ in rivals)
        assert any((high - earliest) / step <= ahead + 1 for _, high in rivals)
