"""Noise by inversion: a law and random words in, exact draws out, at the price of looking up a table.

The noise is the largest n with P(X < n) <= U. A table holds the first 64 bits of every P(X < n), so the first 64 bits
of U decide nearly always, and nearly always the first 16 do. What they leave open goes to Arb, with as many more bits
as it takes. So every draw has exactly the probability that the law gives.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dp_polars._base.intervals import ball, lower, precision, upper
from dp_polars._mechanisms.exact_race import Uniform, is_less

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flint import arb

    from dp_polars._base.words import WordSource

# Bits of U that are looked up at first: their table of 2**16 values stays in the cache.
_GUIDE_BITS = 16
_CELL = np.uint64(64 - _GUIDE_BITS)
# A table is worth making from this number of draws per entry: an entry takes as long as some 50 draws without one.
_DRAWS_PER_ENTRY = 50
# Smaller scales have probabilities whose intervals may reach 0.
_SMALLEST_SCALE = Fraction(1, 64)


class Law(Protocol):
    """A law of whole numbers that is symmetric around 0."""

    @property
    def reach(self) -> int:
        """An m with P(X >= m) < 2**-64."""

    def tails(self, first: int, last: int, bits: int) -> Sequence[arb]:
        """Return balls of P(X >= n) for n from `first` >= 1 to `last`, with relative radii of some 2**-bits."""


@dataclass(frozen=True)
class DiscreteLaplace:
    """P(X = n) ∝ exp(−│n│/scale), so P(X >= n) = q^n/(1 + q) for n >= 1, with q = exp(−1/scale)."""

    scale: Fraction

    @property
    def reach(self) -> int:
        return math.ceil(Fraction(45) * self.scale) + 1  # 64·ln 2 < 45

    def tails(self, first: int, last: int, bits: int) -> list[arb]:
        with precision(bits + 64):
            q = ball(-1 / self.scale).exp()
            tail = ball(-first / self.scale).exp() / (1 + q)
            found = []
            for _ in range(first, last + 1):
                found.append(tail)
                tail *= q
            return found


@dataclass(frozen=True)
class DiscreteGaussian:
    """P(X = n) ∝ exp(−n²/(2·variance))."""

    variance: Fraction

    @property
    def reach(self) -> int:
        # The weights add up to more than one, and those from m on to less than 2·σ·exp(−m²/(2σ²)) + exp(−m²/(2σ²)).
        deviation = math.sqrt(self.variance)
        return math.ceil(deviation * math.sqrt(2 * (45 + math.log(2 * deviation + 1)))) + 1

    def tails(self, first: int, last: int, bits: int, most_terms: int | None = None) -> list[arb]:
        """See `Law.tails`; a radius may be larger where `most_terms` is less than what `bits` take."""
        from flint import acb, arb

        with precision(bits + 64):
            # Σ e^(−x²/(2σ²)) over all integers: Jacobi's θ₃ at 0.
            theta = acb.modular_theta(acb(0), acb(0, 1 / (2 * arb.pi() * ball(self.variance))))[2].real
            tail = self._weight_from(last, bits, most_terms)
            found = [tail]
            for weight in reversed(self._weights(first, last - first)):
                tail += weight
                found.append(tail)
            return [partial / theta for partial in reversed(found)]

    def _weight_from(self, first: int, bits: int, most_terms: int | None) -> arb:
        """Return Σ e^(−x²/(2σ²)) over all x >= `first` >= 1.

        Terms are added up until the others don't matter at `bits` bits, or there are too many. The terms fall, so the
        others add up to between the integral from where they begin and one term more.
        """
        from flint import arb

        terms = max(math.isqrt(math.floor(first**2 + 2 * bits * self.variance)) + 2 - first, 1)
        terms = terms if most_terms is None else min(terms, most_terms)
        *weights, after = self._weights(first, terms + 1)
        deviation = ball(self.variance).sqrt()
        integral = deviation * (arb.pi() / 2).sqrt() * (ball(first + terms) / (deviation * arb(2).sqrt())).erfc()
        return sum(weights, integral.union(integral + after))

    def _weights(self, first: int, count: int) -> list[arb]:
        """Return e^(−x²/(2σ²)) for `count` numbers x from `first` on."""
        # From one x to the next: times `ratio`, which itself shrinks by `square`.
        weight = ball(-(Fraction(first) ** 2) / (2 * self.variance)).exp()
        ratio, square = ball(-Fraction(2 * first + 1) / (2 * self.variance)).exp(), ball(-1 / self.variance).exp()
        weights = []
        for _ in range(count):
            weights.append(weight)
            weight *= ratio
            ratio *= square
        return weights


def below(law: Law, n: int, bits: int) -> arb:
    """Return a ball of P(X < n)."""
    if n <= 0:
        return law.tails(1 - n, 1 - n, bits)[0]
    return 1 - law.tails(n, n, bits)[0]


@dataclass(frozen=True)
class Table:
    """What 64 bits of U say about a draw.

    Parameters
    ----------
    law
        The law.
    first
        P(X < first) is below 2**-64, like P(X > −first).
    thresholds
        Shape (m,), ascending: ⌊2**64·P(X < first + i)⌋. A word above it means X >= first + i, one below it X < first +
        i, and one that equals it leaves that open. The first one is 0 and the last one 2**64 − 1.
    guide
        Shape (2**16,): the draw for each value of the first 16 bits; the smallest number of the type where these do not
        decide.
    """

    law: Law
    first: int
    thresholds: NDArray[np.uint64]
    guide: NDArray[Any]

    @classmethod
    def of(cls, law: Law) -> Table:
        """Return the table of a law."""
        reach = law.reach
        upper_half = _floors(law, reach)  # of P(X >= 1), P(X >= 2), …
        # P(X < n) is P(X >= 1 − n), and 1 − P(X >= n). No such probability is a multiple of 2**-64.
        thresholds = np.concatenate([upper_half[::-1], ~upper_half])
        edges = np.arange(1 << _GUIDE_BITS, dtype=np.uint64) << _CELL
        begin = np.searchsorted(thresholds, edges)
        decided = begin == np.searchsorted(thresholds, edges | ~(~np.uint64(0) << _CELL), side="right")
        dtype = np.int16 if reach < 2**15 else np.int64
        guide = np.where(decided, begin - reach, np.iinfo(dtype).min).astype(dtype)
        return cls(law, 1 - reach, thresholds, guide)

    def draw(self, count: int, words: WordSource) -> NDArray[np.int64]:
        """Return independent draws, shape (count,)."""
        leading = words(-(-count * _GUIDE_BITS // 64)).view(np.uint16)[:count]
        found = self.guide[leading]
        drawn = found.astype(np.int64)
        open_at = np.flatnonzero(found == np.iinfo(found.dtype).min)
        if len(open_at):
            word = leading[open_at].astype(np.uint64) << _CELL | words(len(open_at)) >> np.uint64(_GUIDE_BITS)
            drawn[open_at] = self._by_words(word, words)
        return drawn

    def _by_words(self, word: NDArray[np.uint64], words: WordSource) -> NDArray[np.int64]:
        position = np.searchsorted(self.thresholds, word)
        drawn: NDArray[np.int64] = self.first - 1 + position
        for i in np.flatnonzero(self.thresholds[position] == word).tolist():
            drawn[i] = invert(self.law, Uniform(int(word[i]), 64, words), int(drawn[i]))
        return drawn


def invert(law: Law, uniform: Uniform, guess: int) -> int:
    """Return the largest n with P(X < n) <= uniform, by a search that begins at `guess`."""

    def is_below(n: int) -> bool:
        return is_less(uniform, lambda bits: below(law, n, bits))

    while is_below(guess):
        guess -= 1
    while not is_below(guess + 1):
        guess += 1
    return guess


def _floors(law: Law, reach: int) -> NDArray[np.uint64]:
    """Return ⌊2**64·P(X >= n)⌋ for n from 1 to `reach`."""
    bits = 128
    while True:
        tails = law.tails(1, reach, bits)
        with precision(bits + 64):
            least, most = ([math.floor(end(tail) * 2**64) for tail in tails] for end in (lower, upper))
        if least == most:
            return np.array(least, np.uint64)
        bits *= 2


@lru_cache(maxsize=16)
def _table(law: Law) -> Table:
    return Table.of(law)


def table_for(law: DiscreteLaplace | DiscreteGaussian, scale: Fraction, count: int) -> Table | None:
    """Return a table of the law, of about this scale, if `count` draws are worth making one."""
    if scale < _SMALLEST_SCALE or 90 * scale * _DRAWS_PER_ENTRY > count:
        return None
    return _table(law)
