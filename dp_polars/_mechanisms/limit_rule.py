"""Contribution limits and clipping bounds, found privately: candidates are scored by the people beyond them.

N(b) is the number of people beyond b. One person changes it by at most one, for all b together and in one direction.
The score −max(N(b) − T(b), 0) − o(b) has the range 1, and −max(N(b) − T(b), 2·N(b) − N(0), 0) − o(b) the range 2. T
and o are public whole numbers, so that scores are exact. Proof: `docs/proofs/limits.md`. Constants:
`benchmarks/limits_study.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Generic, Literal, TypeAlias, TypeVar

import numpy as np

from dp_polars._accounting.claims import Claim
from dp_polars._accounting.terms import Loss
from dp_polars._base.numbers import Ints, Rng, ball, precision, upper
from dp_polars._mechanisms.racing import LAWS
from dp_polars._mechanisms.selection import best_rows

if TYPE_CHECKING:
    from flint import arb

#: Kinds of limits. "linear": an L1 norm, for Laplace noise. "norm": an L2 norm by rows, for Gaussian noise. "root":
#: groups of a person who counts once in each, for Gaussian noise. "selection": groups or rows; a sample of them is
#: used.
LimitKind: TypeAlias = Literal["linear", "norm", "root", "selection"]
Value = TypeVar("Value", int, Fraction)

# Parts of a loss; T should be at least this many times the scale 1/ε of the choice.
_PARTS = tuple(Fraction(percent, 100) for percent in (2, 3, 5, 7, 10, 15, 20, 30))
_ENOUGH = 8
# The largest part from a number of cells on.
_LARGEST_PARTS = {1: Fraction(30, 100), 4: Fraction(20, 100), 8: Fraction(15, 100), 16: Fraction(10, 100)}

# Limits: the first two digits of those above 10, and the power of ten that ends them.
_DIGITS = (100, 110, 125, 140, 160, 180, 200, 225, 250, 280, 320, 360, 400, 450, 500, 560, 630, 700, 800, 900)
_LAST_POWER = 6

# T rises with the logarithm of the limit, up to a largest factor: beyond small limits, people have many more rows.
_FACTOR, _LARGEST_FACTOR = Fraction(1, 2), Fraction(5, 2)
# A step of a norm L2 saves a person beyond it more than one row: about K^(1/5) by rows, and more by people.
_SPREAD = Fraction(1, 5)
_OF_ROOTS = Fraction(7, 4)
# The weight of b falls as b^−a through o: faster with more cells, because each of them adds to T.
_POWER, _POWER_PER_LOG, _LARGEST_POWER = Fraction(11, 5), Fraction(6, 5), Fraction(6)

# Bounds: a person beyond one has several rows. o by candidate: small ones of columns of fractions are likely, too.
_ROWS_BEYOND = 16
_UP_TO_ONE, _ABOVE_ONE = Fraction(1, 2), Fraction(5, 2)
# For quantiles: wider bounds do hardly any harm, so a smaller part finds them.
_OF_RANKS, _ENOUGH_OF_RANKS = (Fraction(1, 8), Fraction(1, 4)), 1

#: One person's loss is released in this many parts of the most that counts. Roots are cut to such parts of one.
PARTS, _ROOTS = 1024, 2**20

# T and o are rounded up, except for less than this, which exceeds the radius of any interval of 128 bits. And their
# largest value.
_BITS, _ROUNDING, _LARGEST = 128, Fraction(1, 2**64), 2**60


def part_of_loss(loss: Loss, cells: int, noise: Fraction, *, of_ranks: bool = False) -> Fraction:
    """Return the public part of a loss that finds a limit: the smallest one that can distinguish T people from none.

    `noise`: see `limit_rule`, at the whole loss. `of_ranks`: for the bounds of a grid of quantiles.
    """
    enough = _ENOUGH_OF_RANKS if of_ranks else _ENOUGH
    most = next(part for at, part in reversed(_LARGEST_PARTS.items()) if cells >= at)
    # ε of the choice, or in rho √(8ρ), times `noise`: squared, so that it is rational.
    power = 2 if loss.unit == "epsilon" else 1
    square = (loss.value if loss.unit == "epsilon" else 8 * loss.value) ** power * noise**2
    allowed = [part for part in _PARTS if part <= most]
    return next((part for part in allowed if part**power * square >= enough**2), allowed[-1])


@dataclass(frozen=True)
class Rule(Generic[Value]):
    """Candidates, and the terms of their scores."""

    candidates: tuple[Value, ...]
    targets: tuple[int, ...]  # T
    offsets: tuple[int, ...]  # o
    at_median: bool = False  # whether at most half of all people may be beyond, for any T

    @property
    def counted(self) -> tuple[int | Fraction, ...]:
        """The numbers b with a needed N(b): the candidates, after 0 if all people are compared."""
        return (0, *self.candidates) if self.at_median and self.candidates[0] != 0 else self.candidates

    @property
    def score_range(self) -> int:
        """R of the scores, under both neighbouring relations."""
        return 2 if self.at_median else 1

    def first(self, number: int) -> Rule[Value]:
        """Return the rule with only the first candidates, `number` of them."""
        return replace(
            self,
            candidates=self.candidates[:number],
            targets=self.targets[:number],
            offsets=self.offsets[:number],
        )

    def scores(self, beyond: Ints) -> Ints:
        """Return the scores of the candidates. `beyond`: the number of people beyond each b of `counted`."""
        of_candidates = beyond[-len(self.candidates) :]
        surplus = np.maximum(of_candidates - np.array(self.targets, np.int64), 0)
        if self.at_median:
            surplus = np.maximum(surplus, 2 * of_candidates - beyond[0])
        scores: Ints = -surplus - np.array(self.offsets, np.int64)
        return scores

    def most_lost(self, place: int, kind: LimitKind | None) -> Fraction:
        """Return the most that counts of what one person loses: up to the first candidate of three times the limit.

        0 if nothing is larger than the chosen one.
        """
        return _lost(self._top(place), self.candidates[place], kind)

    def parts_lost(self, place: int, kind: LimitKind | None) -> Ints:
        """Return how much a person loses between each candidate and the next, from the chosen one on, in parts.

        `PARTS` are `most_lost`. Between two candidates a person is taken to be in the middle.
        """
        chosen, top, most = self.candidates[place], self._top(place), self.most_lost(place, kind)
        ends = self.candidates[place:]
        closed = 0 if kind in (None, "norm") else 1  # of whole numbers, one more is the first beyond
        middles = [Fraction(low + end + closed) / 2 for low, end in pairwise(ends)] + [Fraction(0)]
        parts = [
            PARTS if abs(low) >= abs(top) else _in_parts(_lost(middle, chosen, kind), most)
            for low, middle in zip(ends, middles, strict=True)
        ]
        return np.array(parts if most else [0] * len(parts), np.int64)

    def _top(self, place: int) -> Value:
        chosen = self.candidates[place]
        return next((b for b in self.candidates[place:] if abs(b) >= 3 * abs(chosen)), self.candidates[-1])

    def place(self, beyond: Ints, claim: Claim, rng: Rng) -> int:
        """Draw a candidate by the mechanism and the rate of a claim, and return its place."""
        scores = self.scores(beyond)
        return int(best_rows(scores, np.array([len(scores)]), claim.rate, LAWS[claim.mechanism], rng)[0])


def _lost(x: int | Fraction, b: int | Fraction, kind: LimitKind | None) -> Fraction:
    """Return what a person loses whose number is x: in L2 of groups, where each counts √(b/x), of the groups."""
    if kind == "root":
        return x - Fraction(math.isqrt(math.floor(x * b * _ROOTS**2)), _ROOTS)
    return abs(Fraction(x - b))


def _in_parts(lost: Fraction, most: Fraction) -> int:
    return min(round(PARTS * lost / most), PARTS)


def limit_rule(kind: LimitKind, loss: Loss, cells: int, noise: Fraction, most: int | None = None) -> Rule[int]:
    """Return the rule of a contribution limit.

    `loss`: of this choice. `cells`: public groups, times the candidates of `value_counts`. `most`: the largest limit
    that can bind, if known. `noise`: the expected absolute noise of all cells together at the limit 1, in rows or
    people; a selection doesn't need it.
    """
    candidates = limits_up_to(most)
    at_median = kind == "selection"
    with precision(_BITS):
        scale = (2 if at_median else 1) / _epsilon(loss)
        power = (ball(_POWER) + ball(_POWER_PER_LOG) * ball(cells).log()).min(ball(_LARGEST_POWER))
        offsets = _ascending(_whole(power * ball(b).log() * scale) for b in candidates)
        targets = tuple(_LARGEST if at_median else _whole(_target(kind, b, cells) * ball(noise)) for b in candidates)
    return Rule(candidates, targets, offsets, at_median)


def _target(kind: LimitKind, b: int, cells: int) -> arb:
    """Return T in units of the noise at the limit 1."""
    factor = (ball(_FACTOR) + ball(b).log()).min(ball(_LARGEST_FACTOR))
    if kind == "norm":
        return factor * (-ball(_SPREAD) * ball(cells).log()).exp()
    if kind == "root":
        return factor * ball(_OF_ROOTS) * (ball(b + 1).sqrt() - ball(b).sqrt())
    return factor


def limits_up_to(most: int | None) -> tuple[int, ...]:
    """Return the candidates of a limit. `most`: the largest one that can bind, if known."""
    larger = (digits * 10**power // 100 for power in range(1, _LAST_POWER) for digits in _DIGITS)
    every = [*range(1, 10), *larger, 10**_LAST_POWER]
    return tuple(every if most is None else [*(b for b in every if b < most), most])


def bound_rule(loss: Loss, noise: Fraction | None, candidates: Iterable[Fraction]) -> Rule[Fraction]:
    """Return the rule of one clipping bound: N(b) is the number of people with a contributing value beyond b.

    `candidates`: away from 0, with the sign of the bound: see `bounds_up_to`. `loss`, `noise`: as for a limit. None as
    `noise`: for the grid of quantiles, which should have no person beyond.
    """
    values, of_ranks = tuple(candidates), noise is None
    # The offset is 0 for 0 and for the smallest upper bound: a column has values. Negative upper bounds are rarer.
    free = 1 if values[-1] < 0 else 2
    small, large = _OF_RANKS if of_ranks else (_UP_TO_ONE, _ABOVE_ONE)
    steps = (Fraction(0) if i < free else small if abs(b) <= 1 else large for i, b in enumerate(values))
    with precision(_BITS):
        scale = (1 if of_ranks else 2) / _epsilon(loss)
        offsets = _ascending(_whole(ball(total) * scale) for total in accumulate(steps))
        target = 0 if noise is None else _whole(ball(_ROWS_BEYOND * noise))
    return Rule(values, (target,) * len(values), offsets, at_median=not of_ranks)


def bounds_up_to(smallest: Fraction, largest: Fraction) -> tuple[Fraction, ...]:
    """Return 0 and all {1, 2, 5}·10^k from `smallest` to `largest`."""
    first, last = (math.floor(math.log10(end)) for end in (smallest, largest))
    every = (digit * Fraction(10) ** k for k in range(first - 1, last + 2) for digit in (1, 2, 5))
    return (Fraction(0), *(b for b in every if smallest <= b <= largest))


def _epsilon(loss: Loss) -> arb:
    """Return the ε of a choice, in rho approximately that of bounded range."""
    return ball(loss.value) if loss.unit == "epsilon" else ball(8 * loss.value).sqrt()


def _ascending(offsets: Iterable[int]) -> tuple[int, ...]:
    """Return strictly ascending whole numbers: among candidates that fit, the smallest wins."""
    return tuple(accumulate(offsets, lambda before, one: max(before + 1, one)))


def _whole(value: arb) -> int:
    return min(math.ceil(upper(value) - _ROUNDING), _LARGEST)
