"""What floats can't decide of a first above a threshold goes to Arb, on the same random bits."""

from fractions import Fraction

import numpy as np
import pytest
from flint import arb, ctx, fmpq

from dp_polars._mechanisms.above_threshold import CountRuns, first_reached


def exact(value):
    return arb(fmpq(value.numerator, value.denominator))


def uniform(word, more):
    """The uniform real with this word first and then many others."""
    number, bits = word, 64
    for _ in range(20):
        number, bits = number << 64 | more, bits + 64
    return Fraction(number, 2**bits)


def whole(value):
    return int(value.floor().unique_fmpz())


def by_hand(counts, multiplicities, threshold, rate, words, more):
    """Run, place and gap, by arithmetic of 1,500 bits."""
    z, *runs, fresh = (-(-exact(uniform(word, more))).log1p() for word in words)
    for i, (count, m, drawn) in enumerate(zip(counts, multiplicities, runs, strict=True)):
        missing = z + exact(rate * (threshold - count))
        if missing < 0:
            return i, 0, whole((fresh - missing) / exact(rate))
        hazard = -(-(-missing).exp()).log1p()
        if drawn < m * hazard:
            return i, whole(drawn / hazard), whole(fresh / exact(rate))
    return -1, 0, -1


@pytest.mark.slow
@pytest.mark.parametrize("more", [0, 1, 2**63, 2**64 - 1])
def test_near_ties_of_all_kinds_are_decided_exactly(more):
    """The uniforms lie where a run is just reached, its next candidate is the first, or the gap is a whole number."""
    rng, kinds = np.random.default_rng(28), set()
    ctx.prec = 1500
    try:
        for trial in range(400):
            rate, threshold = Fraction(int(rng.integers(1, 200)), 97), Fraction(int(rng.integers(1, 60)), 7)
            counts, m = [int(rng.integers(0, 9)), int(rng.integers(0, 9))], [int(rng.integers(1, 6)), 3]
            z = int(rng.integers(0, 2**63)) * 2 + 1
            missing = -(-exact(uniform(z, more))).log1p() + exact(rate * (threshold - counts[0]))
            passed = -(-missing).exp() if missing > 0 else arb(-1) + exact(Fraction(1, 2**40))
            near = 1 - (1 + passed) ** int(rng.integers(1, m[0] + 1))
            on_top = 1 - exact(-rate * int(rng.integers(1, 9))).exp()
            words = [z]
            for aim in (near, 1 - exact(Fraction(int(rng.integers(1, 99)), 99)), on_top):
                word = int((aim * 2**64).floor().unique_fmpz()) + int(rng.integers(-1, 2)) * (trial % 3)
                words.append(min(max(word, 0), 2**64 - 1))
            given = iter(
                [np.array(words[:1], np.uint64), np.array(words[1:3], np.uint64), np.array(words[3:], np.uint64)]
            )
            runs = CountRuns(np.array(counts), np.array(m), np.array([2]))
            found = first_reached(
                runs, threshold, rate, lambda n, given=given: next(given, np.full(n, more, np.uint64))
            )
            result = tuple(int(one[0]) for one in found)
            assert result == by_hand(counts, m, threshold, rate, words, more)
            kinds.add(result[:2])
    finally:
        ctx.prec = 53
    assert len(kinds) >= 7  # both runs, several places, and none
