"""Noise by table: thresholds against Arb at other precisions, words that a table can't decide, and its limits."""

import math
from fractions import Fraction

import numpy as np
import pytest
from flint import arb, ctx

from dp_polars._mechanisms import noise
from dp_polars._mechanisms.noise import DiscreteGaussian, DiscreteLaplace, NoiseTable, below, invert, table_for
from dp_polars._mechanisms.racing import Uniform
from tests.statistical.racing import Words

LAWS = [
    DiscreteLaplace(Fraction(1, 64)),
    DiscreteLaplace(Fraction(1, 3)),
    DiscreteLaplace(Fraction(2)),
    DiscreteLaplace(Fraction(37, 3)),
    DiscreteLaplace(Fraction(60)),
    DiscreteGaussian(Fraction(1, 64)),
    DiscreteGaussian(Fraction(1, 9)),
    DiscreteGaussian(Fraction(4)),
    DiscreteGaussian(Fraction(10_001, 7)),
]


def weight(law, n):
    """What P(X = n) is proportional to, in the current precision."""
    if isinstance(law, DiscreteLaplace):
        return (-arb(abs(n)) * law.scale.denominator / law.scale.numerator).exp()
    return (-arb(n * n) * law.variance.denominator / (2 * law.variance.numerator)).exp()


def exact_thresholds(law, first, size):
    """⌊2**64·P(X < n)⌋ for so many n from `first` on, by adding up weights in 1,000 digits."""
    far = 9 * law.reach + 9 if isinstance(law, DiscreteLaplace) else 6 * law.reach + 40
    with ctx.workdps(1000):
        weights = {n: weight(law, n) for n in range(-far, far + 1)}
        total, upto, found = sum(weights.values(), arb(0)), arb(0), []
        for n in range(-far, first + size):
            if n >= first:
                found.append(int((upto / total * 2**64).floor().unique_fmpz()))
            upto += weights[n]
    return found


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_thresholds_are_the_first_64_bits_of_the_distribution_function(law):
    table = NoiseTable.of(law)
    assert table.thresholds.tolist() == exact_thresholds(law, table.first, len(table.thresholds))
    assert table.thresholds[0] == 0
    assert table.thresholds[-1] == 2**64 - 1


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_every_entry_of_the_guide_is_what_its_words_say(law):
    table = NoiseTable.of(law)
    cells = np.arange(2**16, dtype=np.uint64) << np.uint64(48)
    nothing = np.iinfo(table.guide.dtype).min
    for offset in (0, 1, 2**47, 2**48 - 1):
        word = cells + np.uint64(offset)
        position = np.searchsorted(table.thresholds, word)
        decided = table.guide != nothing
        assert not (table.thresholds[position] == word)[decided].any()
        assert ((table.first - 1 + position) == table.guide)[decided].all()
    assert decided.any()
    assert not decided[[0, -1]].any()  # the ends of the law


def zeros(count):
    return np.zeros(count, np.uint64)


@pytest.mark.parametrize("law", [LAWS[2], LAWS[7]], ids=str)
@pytest.mark.parametrize("is_below", [True, False])
def test_words_that_equal_a_threshold_are_decided_by_more_bits(law, is_below):
    table = NoiseTable.of(law)
    for n in (-3, 0, 1, 5):
        with ctx.workprec(1000):
            bits = int((below(law, n, 900) * 2**192).floor().unique_fmpz())
        word, more = bits >> 128, [bits >> 64 & (2**64 - 1), bits & (2**64 - 1)]
        more[1] += -1 if is_below else 1  # the 192 bits just below, or just above, P(X < n)
        source = Words([word >> 48], [(word & 2**48 - 1) << 16], more[:1], more[1:], *[[0]] * 8)
        assert table.draw(1, source).tolist() == [n - 1 if is_below else n]


@pytest.mark.parametrize("law", [LAWS[1], LAWS[2], LAWS[7]], ids=str)
def test_the_ends_of_the_table_are_no_ends_of_the_law(law):
    """A uniform of 200 leading zeros, or ones, lies beyond all thresholds."""
    for ones in (False, True):
        prefix = (2**200 - 1) << 56 if ones else 1
        found = invert(law, Uniform(prefix, 256, zeros), law.reach if ones else 1 - law.reach)
        with ctx.workprec(3000):
            u = arb(2**20 * prefix + 1) / 2**276
            assert below(law, found, 2000) < u < below(law, found + 1, 2000)
        assert found >= law.reach if ones else found <= -law.reach


def test_a_table_is_made_where_it_pays():
    law = DiscreteLaplace(Fraction(2))
    assert table_for(law, Fraction(2), 100_000) is table_for(law, Fraction(2), 100_000)
    assert table_for(law, Fraction(2), 1000) is None
    assert table_for(DiscreteLaplace(Fraction(10**6)), Fraction(10**6), 10**9) is None
    assert table_for(DiscreteLaplace(Fraction(1, 65)), Fraction(1, 65), 10**9) is None


@pytest.mark.parametrize("count", [1, 3, 4, 5, 1001])
def test_any_number_of_draws(count):
    assert NoiseTable.of(LAWS[2]).draw(count, lambda n: np.zeros(n, np.uint64) + np.uint64(2**63 + 5)).shape == (count,)


def test_reach_is_beyond_64_bits():
    for law in LAWS:
        assert float(law.tails(law.reach, law.reach, 64)[0]) < 2.0**-64


@pytest.mark.parametrize("most_terms", [1, 2, 30])
@pytest.mark.parametrize("variance", [Fraction(4), Fraction(10_001, 7), Fraction(10**5)])
def test_a_tail_by_few_terms_lies_between_its_bounds(variance, most_terms):
    """The terms that are left out lie between two integrals: the ball must hold the sum of all of them."""
    law = DiscreteGaussian(variance)
    with ctx.workprec(400):
        weights = [weight(law, n) for n in range(6 * law.reach)]
        total = weights[0] + 2 * sum(weights[1:], arb(0))
        for first in (1, 2, 5, law.reach // 3):
            true = sum(weights[first:], arb(0)) / total
            (found,) = law.tails(first, first, 256, most_terms)
            assert found.lower() <= true <= found.upper()
            assert 0 < found.rad() < true  # the ends are no far ones, and neither of them is the sum


def test_noise_takes_the_table(monkeypatch):
    asked = []
    monkeypatch.setattr(noise, "table_for", lambda law, scale, count: asked.append((law, scale, count)))
    noise.laplace_noise(5, Fraction(3))
    noise.gaussian_noise(6, Fraction(9))
    assert asked == [(DiscreteLaplace(Fraction(3)), 3, 5), (DiscreteGaussian(Fraction(9)), math.sqrt(9), 6)]
