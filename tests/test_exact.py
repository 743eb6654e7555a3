"""The exact path: every verdict against 200-digit arithmetic on the very bits that it drew."""

import math
from fractions import Fraction

import numpy as np
import pytest
from flint import arb, ctx

from dp_polars import _exact, mechanisms
from dp_polars._exact import first_arrival
from dp_polars._random import system_words
from dp_polars.mechanisms import Blocks, race
from tests import reference
from tests.statistical.goodness import check_sampler, fits, tally
from tests.statistical.racing import MECHANISMS

ONES = 2**64 - 1


class Words:
    """A source of words that begins as it is told, call by call, and is random from then on."""

    def __init__(self, *calls):
        self.calls, self.random = list(calls), system_words()

    def __call__(self, count):
        return np.array(self.calls.pop(0)(count), np.uint64) if self.calls else self.random(count)


def always(word):
    return lambda count: np.full(count, word, np.uint64)


@pytest.fixture
def verdicts(monkeypatch):
    """What the exact path was asked, and the bits that it used: (positions, uniforms) of each call."""
    calls = []
    original, uniform = _exact.first_arrival, _exact._Uniform

    class Recorded(uniform):
        def __init__(self, *args):
            super().__init__(*args)
            calls[-1][1].append(self)

    def recording(gap, multiplicities, words_drawn, *rest):
        calls.append((list(words_drawn), []))
        winner = original(gap, multiplicities, words_drawn, *rest)
        for uniform, word in zip(calls[-1][1], words_drawn.values(), strict=False):
            assert uniform.prefix >> (uniform.bits - 64) == word  # more bits, not other ones
        return winner

    monkeypatch.setattr(_exact, "_Uniform", Recorded)
    monkeypatch.setattr(_exact, "first_arrival", recording)
    return calls


def certify(winner, gaps, multiplicities, bits_of, rate, mechanism):
    """Every V within its drawn bits makes `winner` the first: so says reference.arrival at 200 digits.

    `bits_of` is position -> (prefix, bits): V lies between prefix/2**bits and (prefix + 1)/2**bits.
    """

    def arrival(position, v):
        if v == 1:
            return arb("inf") if mechanism == "exponential" else arb(1) * reference.arrival(
                1 - Fraction(1, 2**4000), gaps[position], multiplicities[position], rate=rate, mechanism=mechanism
            )
        return reference.arrival(v, gaps[position], multiplicities[position], rate=rate, mechanism=mechanism)

    ends = {p: (Fraction(prefix, 2**bits), Fraction(prefix + 1, 2**bits)) for p, (prefix, bits) in bits_of.items()}
    with ctx.workprec(800):
        latest = arrival(winner, ends[winner][1])
        assert all(arrival(p, low) > latest for p, (low, _) in ends.items() if p != winner)


def tie(word_of_first, gaps, multiplicities, rate, mechanism, bits):
    """The leading bits of a V for each block such that all arrive at one time; the first block has the V given."""
    with ctx.workprec(4 * bits + 400):
        v = arb(2 * word_of_first + 1) / arb(2) ** 65
        time = reference.arrival(Fraction(2 * word_of_first + 1, 2**65), gaps[0], multiplicities[0], rate=rate, mechanism=mechanism, digits=bits)  # fmt: skip
        values = [v]
        for gap, m in zip(gaps[1:], multiplicities[1:], strict=True):
            first = time * (-reference._arb(rate) * reference._arb(gap)).exp()
            values.append(1 - (-m * first).exp() if mechanism == "exponential" else 1 - (1 - first) ** m)
        return [int((value * arb(2) ** bits).floor().unique_fmpz()) for value in values]
