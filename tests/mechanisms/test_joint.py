"""The blocks of the joint mechanism: their sequences by enumeration, and what floats say of huge numbers."""

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from flint import arb, ctx

from dp_polars._mechanisms import top_k as joint
from dp_polars._mechanisms.drawing import Draw
from dp_polars._mechanisms.histograms import CountScore
from dp_polars._mechanisms.racing import LAWS
from dp_polars._mechanisms.top_k import Ranking, draw_jointly
from tests.helpers.top_k_laws import lists
from tests.mechanisms.test_exact_race import tie
from tests.mechanisms.test_ranking import histogram_of


def blocks_of(counts, k):
    """How many lists have an error, and attain it first at a rank; −1 where they have none."""
    best = sorted(counts, reverse=True)
    found = Counter()
    for chosen in lists(len(counts), k):
        errors = [most - counts[candidate] for most, candidate in zip(best, chosen, strict=False)]
        found[max(errors), errors.index(max(errors)) if max(errors) else -1] += 1
    return found


@pytest.mark.parametrize("k", [1, 2, 3, 4, 5])
def test_the_blocks_are_all_lists_each_once(k):
    rng = np.random.default_rng(k)
    counts = np.concatenate([rng.integers(0, n, (40, 5)) for n in (1, 2, 4, 30)])
    steps = joint._Steps.of(Ranking.of(histogram_of(counts), 5), k)
    logs, off = steps.log_multiplicities()
    assert off < 1e-12
    ends = np.cumsum(steps.sizes)
    for group, end in enumerate(ends.tolist()):
        found = {}
        for block in range(end - steps.sizes[group], end):
            found[int(steps.errors[block]), int(steps.ranks[block])] = steps.multiplicity(block)
            assert abs(logs[block] - math.log(steps.multiplicity(block))) <= off
        assert len(found) == steps.sizes[group]
        assert found == blocks_of(counts[group].tolist(), k)
        assert sum(found.values()) == math.perm(5, k)


@pytest.mark.parametrize(("size", "k"), [(3000, 40), (10**6, 12), (2000, 1), (60, 60)])
def test_logarithms_of_huge_multiplicities_are_as_near_as_they_say(size, k):
    rng = np.random.default_rng(size)
    occupied = np.sort(rng.choice(size, min(size, 2000), replace=False))
    counts = np.zeros((1, size), np.int64)
    counts[0, occupied] = rng.integers(1, 3000, len(occupied))
    steps = joint._Steps.of(Ranking.of(histogram_of(counts), size), k)
    logs, off = steps.log_multiplicities()
    assert off < 1e-9
    looked_at = np.unique(np.append(rng.integers(0, len(logs), 60), [0, len(logs) - 1]))
    with ctx.workprec(200):
        for block in looked_at.tolist():
            exact = arb(steps.multiplicity(block)).log()
            assert abs(float(exact - arb(logs[block]))) <= off
    # All lists, in blocks: sums of very many exact numbers would take long, so their floats.
    assert np.exp(logs - logs.max()).sum() * math.exp(logs.max() - _log_lists(size, k)) == pytest.approx(1, abs=1e-6)


def _log_lists(size, k):
    return sum(math.log(size - j) for j in range(k))


@pytest.mark.parametrize("slice_of", [1, 7, 1 << 19])
def test_at_a_large_rate_the_list_is_the_best_one(slice_of, monkeypatch):
    monkeypatch.setattr(joint, "_STEPS", slice_of)
    rng = np.random.default_rng(5)
    counts = rng.integers(0, 9, (100, 6))
    drawn = draw_jointly(Draw(6, CountScore(), Fraction(10**6), LAWS["exponential"]), histogram_of(counts), 4)
    assert (np.take_along_axis(counts, drawn, axis=1) == -np.sort(-counts, axis=1)[:, :4]).all()
    assert all(len(set(each)) == 4 for each in drawn.tolist())


@pytest.mark.parametrize("rate", [Fraction(2**1000), Fraction(1, 2**1000), Fraction(1, 3)])
def test_rates_and_counts_at_the_ends(rate):
    counts = np.array([[2**61, 2**61, 0, 1, 5], [0, 0, 0, 0, 0], [2**40, 1, 1, 1, 1]])
    drawn = draw_jointly(Draw(5, CountScore(), rate, LAWS["exponential"]), histogram_of(counts), 5)
    assert [sorted(each) for each in drawn.tolist()] == [list(range(5))] * 3


def test_what_floats_leave_open_is_raced_exactly():
    """Words at the ends: a V of no leading bits, and one of all of them."""
    counts = np.array([[4, 3, 3, 1]] * 4)
    for first in (0, 2**64 - 1):
        words = iter([first])

        def source(n, words=words):
            drawn = np.random.default_rng(0).integers(0, 2**64, n, np.uint64)
            for i in itertools.islice(range(n), 3):
                drawn[i] = next(words, drawn[i])
            return drawn

        draw = Draw(4, CountScore(), Fraction(1, 2), LAWS["exponential"], lambda source=source: source)
        drawn = draw_jointly(draw, histogram_of(counts), 2)
        assert drawn.shape == (4, 2)
        # The first block of the first group, without error, arrives before or after everything else.
        assert (drawn[0, 0] == 0 and drawn[0, 1] in (1, 2)) == (first == 0)


@pytest.mark.slow
def test_near_ties_are_decided_exactly(monkeypatch):
    """Words with which the best lists, and very many others, arrive at nearly the same time."""
    rng, number = np.random.default_rng(3), 60
    steps = joint._Steps.of(Ranking.of(histogram_of([[1000] * 40 + [0] * 600] * number), 640), 40)
    width = int(steps.sizes[0])
    pair = [0, width - 1]  # of these many, most have their error from the first rank on
    errors, counts = steps.errors[pair].tolist(), [steps.multiplicity(block) for block in pair]
    rate = Fraction(round(math.log(counts[1]) - math.log(counts[0])), errors[1])
    drawn = np.full((number, width), 2**64 - 1, np.uint64)
    for i, v in enumerate(rng.integers(2**48, 2**51, number).tolist()):
        first, second = tie(Fraction(v, 2**52), errors, counts, rate, "exponential", 64)
        # Off by a few of the last bits that floats know, or by fewer; but 64 bits tell.
        drawn[i, pair] = first, second + 2 ** int(rng.integers(4, 16)) * int(rng.choice([-1, 1]))

    def found(slack):
        monkeypatch.setattr(joint, "_SLACK", slack)
        left = [drawn.ravel()]
        words = lambda count: left.pop() if count == drawn.size else np.zeros(count, np.uint64)  # noqa: E731
        return (joint._race(steps, Draw(640, CountScore(), rate, LAWS["exponential"]), words) % width).tolist()

    exactly = found(1e6)  # so that floats can decide nothing
    assert set(exactly) == set(pair)
    assert found(2.0**-46) == exactly
    # The control: what floats alone say.
    v = drawn[:, pair] * 2.0**-64
    times = np.log(-np.log1p(-v)) + np.array(errors) * float(rate) - [math.log(count) for count in counts]
    assert np.array(pair)[times.argmin(axis=1)].tolist() != exactly


def test_no_groups():
    draw = Draw(4, CountScore(), Fraction(1), LAWS["exponential"])
    assert draw_jointly(draw, histogram_of(np.zeros((0, 4), int)), 3).shape == (0, 3)
