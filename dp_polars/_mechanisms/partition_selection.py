"""Selects which of the occurring keys are shown, by their number of people, at a δ.

Only keys of at least one person are drawn for, and their number must not become visible. It does not: no mechanism
here ever shows a key without people, so a draw for every possible key would give the same.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dp_polars._accounting.costs import BITS, largest, round_down
from dp_polars._base.numbers import Ints, Rng, ball, lower, precision, system_rng
from dp_polars._mechanisms.noise import LARGEST_SCALE, LARGEST_VALUE, DiscreteGaussian, add_noise, gaussian_noise
from dp_polars._mechanisms.racing import Uniform, floor_of, is_less

if TYPE_CHECKING:
    from flint import arb

# The range of δ for which the floats of `PartitionSelection` and their error bound are valid.
SMALLEST_DELTA = Fraction(1, 2**1000)
# The error of `PartitionSelection.floats`, absolute and relative.
_SLACK = 2.0**-37
# More people than can exist.
_NEVER = 2**62
# Terms of a tail that are summed. For a larger deviation, integrals bound the tail.
_MOST_TERMS = 2**15


class KeySelection(ABC):
    """Decides which keys are shown, by the number of people with each key."""

    @abstractmethod
    def draw(self, people: Ints) -> tuple[NDArray[np.bool_], Ints | None]:
        """Draw once for each key, from its number of people (at least 1).

        `shown`: shape (n,): whether the key is shown. `noisy`: shape (n,): the number of people with noise, which may
        be published for shown keys. None: there is none.
        """

    @abstractmethod
    def chances(self, people: Ints) -> NDArray[np.float64]:
        """Return the probability that each key is shown, as floats: for people, not for privacy."""

    @abstractmethod
    def people_for(self, chance: float) -> int:
        """Return the number of people from which on a key is shown with a probability of at least `chance`."""


def delta_of_one_key(delta: Fraction, keys: int) -> Fraction:
    """Return 1 − (1 − delta)^(1/keys), rounded down: the δ of each of a person's keys.

    Then a key that only this person has is shown with probability at most 1 − (1 − that)^keys <= delta.
    """
    if keys == 1:
        return delta
    with precision(BITS + 2 * (keys.bit_length() + delta.denominator.bit_length())):
        return round_down(lower(_share(delta, keys)))


def _share(delta: Fraction, keys: int) -> arb:
    return ball(delta) if keys == 1 else -((-ball(delta)).log1p() / keys).expm1()


@dataclass(frozen=True)
class PartitionSelection(KeySelection):
    """Show a key of n people with the largest probability π(n) that (ε, δ)-DP allows.

    Desfontaines, Voss, Gipson & Mandayam 2022 (arXiv 2006.03684), in closed form: up to n₁ the first branch, from there
    on the second (`docs/proofs/keys.md`, Theorems 1 and 2).

    `epsilon`, `delta`: the loss of one key, for one person more or less. The delta is at least `SMALLEST_DELTA`, and
        below 1.
    """

    epsilon: Fraction
    delta: Fraction

    def __post_init__(self) -> None:
        if not SMALLEST_DELTA <= self.delta < 1:
            msg = "delta must lie between 2**-1000 and 1 for each of a person's keys, got less."
            raise ValueError(msg)

    @cached_property
    def turning_point(self) -> int:
        """n₁ = 1 + ⌊ln(1 + tanh(ε/2)·(1/δ − 1))/ε⌋, up to which the first branch of π is the smaller one.

        The floor is never of an integer: e^(kε) is transcendental for a rational ε. So it solves no equation with
        rational coefficients, and this would be one.
        """

        def ratio(_: int) -> arb:
            epsilon = ball(self.epsilon)
            return ((epsilon / 2).tanh() * ball(1 / self.delta - 1)).log1p() / epsilon

        return 1 + floor_of(ratio)

    def draw(self, people: Ints) -> tuple[NDArray[np.bool_], None]:
        return self.shown(people, system_rng()), None

    def shown(self, people: Ints, rng: Rng) -> NDArray[np.bool_]:
        """Return whether each key is shown: True with probability π(people), exactly; never for a key of 0 people."""
        word = rng(len(people))
        chance = self.floats(people)
        slack = _SLACK * (1 + chance)
        # U is between word and word + 1 units of 2**-64: the float of the word, up to much less than `slack`.
        uniform = word.astype(np.float64) * 2.0**-64
        shown: NDArray[np.bool_] = uniform < chance - slack
        undecided = ~shown & (uniform <= chance + slack) & (people > 0)
        for i in np.flatnonzero(undecided).tolist():
            number = int(people[i])
            shown[i] = is_less(Uniform(int(word[i]), 64, rng), lambda _, n=number: self.real(n))  # type: ignore[misc]
        return shown

    def chances(self, people: Ints) -> NDArray[np.float64]:
        return np.minimum(self.floats(people), 1)

    def people_for(self, chance: float) -> int:
        def enough(people: int) -> bool:
            return people >= _NEVER or bool(self.floats(np.array([people]))[0] >= chance)

        return _smallest(enough, 1)

    def floats(self, people: Ints) -> NDArray[np.float64]:
        """Return π(people) before it is clipped to 1, off by at most `_SLACK`·(1 + π).

        With k = min(n, n₁) and m = n − k: rise = δ·e^((k−1)ε)·(1 − e^(−kε))/(1 − e^(−ε)), and π is rise + (1 − rise +
        c)·(1 − e^(−mε)), with c = δ·e^(−ε)/(1 − e^(−ε)). By the choice of n₁, (k − 1)·ε <= ln(1/δ) < 694. With
        u = 2**-53, the exponent (k − 1)·ε + ln δ is off by at most 694·7u < 2**-40, and e^ of it by as much, relative.
        Each quotient is off by less than 2**-48, relative. So `rise` is off by less than 2**-39. The rest adds that
        once more, and less than 2**-46 of the result.
        """
        epsilon, delta, turn = float(self.epsilon), float(self.delta), min(self.turning_point, _NEVER)
        first = np.minimum(people, turn)
        with np.errstate(over="ignore"):  # e^(−∞) is 0
            rise = np.exp((first - 1) * epsilon + math.log(delta))
            rise *= np.expm1(first * -epsilon) / math.expm1(-epsilon)
            rest = -np.expm1((people - first) * -epsilon)
        ahead: NDArray[np.float64] = rise + (1 - rise + delta * math.exp(-epsilon) / -math.expm1(-epsilon)) * rest
        return ahead

    def real(self, people: int) -> arb:
        """Return a ball with π(people), for at least 1 person, before it is clipped to 1."""
        epsilon, delta, first = ball(self.epsilon), ball(self.delta), min(people, self.turning_point)
        base = (-epsilon).expm1()
        rise = delta * ((first - 1) * epsilon).exp() * (-first * epsilon).expm1() / base
        rest = -(-(people - first) * epsilon).expm1()
        return rise + (1 - rise - delta * (-epsilon).exp() / base) * rest


@dataclass(frozen=True)
class GaussianThreshold(KeySelection):
    """Show a key if its number of people plus discrete Gaussian noise is at least `threshold_for`'s threshold.

    `docs/proofs/keys.md`, Theorem 3.
    """

    variance: Fraction
    threshold: int

    def draw(self, people: Ints) -> tuple[NDArray[np.bool_], Ints]:
        noisy = add_noise(np.minimum(people, LARGEST_VALUE), gaussian_noise(len(people), self.variance))
        return noisy >= self.threshold, noisy

    def chances(self, people: Ints) -> NDArray[np.float64]:
        deviation, (distinct, places) = math.sqrt(self.variance), np.unique(people, return_inverse=True)
        shown = [_float_tail(self.threshold - number, deviation) for number in distinct.tolist()]
        return np.array(shown, np.float64)[places]

    def people_for(self, chance: float) -> int:
        deviation = math.sqrt(self.variance)
        return _smallest(lambda people: _float_tail(self.threshold - people, deviation) >= chance, 1)


@lru_cache(maxsize=1024)
def threshold_for(variance: Fraction, delta: Fraction, keys: int) -> int:
    """Return the smallest threshold of at least 2 that lone people on `keys` keys reach with at most probability delta.

    A lone key has 1 person, and is shown if 1 + noise is at least the threshold. Each key has noise of its own. So
    P(noise >= threshold − 1) must be at most 1 − (1 − delta)^(1/keys). Intervals prove it. Above a standard deviation
    of about 2**11, only integrals bound the tail. Then the threshold may be one or a few above the smallest.
    """
    if not (variance < LARGEST_SCALE**2 and delta / keys >= SMALLEST_DELTA):
        msg = (
            "the noise of a key must have a standard deviation below 2**50, and delta / max_groups be at least "
            "2**-1000, got others."
        )
        raise ValueError(msg)
    # A larger variance has the larger tail from 1 on; at this one it is below e**-(2**10).
    noise = DiscreteGaussian(max(variance, Fraction(1, 2**11)))

    def enough(reached: int) -> bool:
        for bits in (64, 256):
            with precision(2 * bits):
                (tail,), share = noise.tails(reached, reached, bits, _MOST_TERMS), _share(delta, keys)
                if tail <= share:
                    return True
                if tail > share:
                    return False
        return False

    share = float(delta_of_one_key(delta, keys))
    guess = math.floor(-math.sqrt(noise.variance) * NormalDist().inv_cdf(min(share, 0.5)))
    return _smallest(enough, max(guess, 1)) + 1


def _float_tail(reached: int, deviation: float) -> float:
    """Return P(X >= reached) of a discrete Gaussian, as a float: for people, not for privacy."""
    if deviation > 2**12:
        return NormalDist().cdf((0.5 - reached) / deviation)
    far = math.ceil(9 * deviation) + 1
    weights = np.exp(-(np.arange(-far, far + 1) ** 2) / (2 * max(deviation, 1 / 64) ** 2))
    return float(weights[max(reached + far, 0) :].sum() / weights.sum())


def _smallest(holds: Callable[[int], bool], guess: int) -> int:
    """Return the smallest integer of at least 1 from which on a condition is true."""
    return 1 + largest(lambda number: number < 1 or not holds(number), guess)
