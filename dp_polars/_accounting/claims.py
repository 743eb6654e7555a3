"""The privacy claim: what a release costs one person, and the rate at which it costs no more.

The words and formulas are those of permute-and-flip (McKenna & Sheldon 2020, arXiv 2010.12603), of the
exponential mechanism's bounded range (Cesar & Rogers 2021; Dong, Durfee & Rogers 2020, arXiv 1909.13830), and of
report-noisy-max with exponential noise (Ding et al. 2021, arXiv 2105.07260). Everything is an exact rational;
what is irrational is rounded so that the claim stays true: a rate down, a cost up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal, TypeAlias, TypeVar, get_args

import numpy as np

from dp_polars._numeric.intervals import ball, precision, upper
from dp_polars._numeric.numbers import Number, as_fraction, given, positive_fraction, positive_int, show

Unit: TypeAlias = Literal["epsilon", "rho"]
Choosing: TypeAlias = Literal["permute_and_flip", "exponential"]
Mechanism: TypeAlias = Literal["permute_and_flip", "exponential", "discrete_laplace", "discrete_gaussian"]
NeighboringRelation: TypeAlias = Literal["add_or_remove_one", "replace_one"]
Word = TypeVar("Word", bound=str)

_UNITS: tuple[Unit, ...] = get_args(Unit)
_CHOOSING: tuple[Choosing, ...] = get_args(Choosing)
_NOISE: tuple[Mechanism, ...] = ("discrete_laplace", "discrete_gaussian")
_MECHANISMS: tuple[Mechanism, ...] = get_args(Mechanism)
_RELATIONS: tuple[NeighboringRelation, ...] = get_args(NeighboringRelation)

# Irrational rates and costs are rounded to this many significant bits: far below what any choice could show.
_BITS = 96
# The racing floats hold rates inside these bounds (`_mechanisms/racing.py`).
_SMALLEST_RATE = Fraction(1, 2**1000)
_LARGEST_RATE = Fraction(2**1000)


@dataclass(frozen=True)
class Loss:
    """A privacy loss: `value` in pure DP ("epsilon") or in zero-concentrated DP ("rho")."""

    value: Fraction
    unit: Unit

    def __post_init__(self) -> None:
        positive_fraction(str(check_unit(self.unit)), self.value)
        object.__setattr__(self, "value", as_fraction(self.unit, self.value))

    @classmethod
    def of(cls, *, epsilon: Number | None, rho: Number | None) -> Loss:
        """Return the one loss that was given."""
        if (epsilon is None) == (rho is None):
            msg = (
                f"exactly one of epsilon and rho must be given, got {'neither' if rho is None else 'both'}.\n\n"
                "Hint: epsilon=1.0 for pure differential privacy, rho=0.1 for zero-concentrated."
            )
            raise TypeError(msg)
        if epsilon is not None:
            return cls(positive_fraction("epsilon", epsilon), "epsilon")
        return cls(positive_fraction("rho", rho), "rho")

    def __str__(self) -> str:
        return f"{self.unit}={show(self.value, up=True)}"


@dataclass(frozen=True)
class Contributions:
    """How one person's rows may spread: `total` in all, at most `per_group` of them in one group."""

    total: int
    per_group: int

    def __post_init__(self) -> None:
        if not 1 <= self.per_group <= self.total:
            msg = f"contributions must have 1 <= per_group <= total, got {self}."
            raise ValueError(msg)

    @property
    def full_groups(self) -> int:
        """Groups that a person can fill (every cost is convex, so filling groups is the worst case)."""
        return self.total // self.per_group

    @property
    def rest(self) -> int:
        """Rows left over for one more group."""
        return self.total - self.full_groups * self.per_group

    @property
    def squares(self) -> int:
        """The largest sum of squares of a person's rows per group."""
        return self.full_groups * self.per_group**2 + self.rest**2


# Of a person whose contribution the caller's sensitivity describes.
ONE_RELEASE = Contributions(1, 1)


def range_of(sensitivity: Number, monotonic: bool) -> Fraction:
    """Return R for scores of the caller's own: the most that one person changes the difference of two of them."""
    exact = positive_fraction("sensitivity", sensitivity)
    if not isinstance(monotonic, (bool, np.bool_)):
        msg = f"monotonic must be True or False, got {given(monotonic)}."
        raise TypeError(msg)
    return exact if monotonic else 2 * exact


def check_mechanism(mechanism: str | None, unit: Unit) -> Choosing:
    """Return the mechanism of a choice that is asked for, or the better one for the unit of the loss.

    At equal epsilon permute-and-flip is never worse (McKenna & Sheldon 2020, Theorem 2); at equal rho the
    exponential mechanism is better up to about rho = 1, for only it has a bounded range.
    """
    if mechanism is None:
        return "permute_and_flip" if unit == "epsilon" else "exponential"
    return _one_of("mechanism", mechanism, _CHOOSING, f"one of {list(_CHOOSING)} or None")


def check_noise(mechanism: str | None, unit: Unit) -> Mechanism:
    """Return the noise of a number that is asked for, or the one that the unit of the loss chooses."""
    if mechanism is None:
        return "discrete_laplace" if unit == "epsilon" else "discrete_gaussian"
    return _one_of("mechanism", mechanism, _NOISE, f"{', '.join(map(repr, _NOISE))} or None")


def check_unit(unit: str) -> Unit:
    """Return the unit of a loss asked for."""
    return _one_of("unit", unit, _UNITS)


def check_relation(relation: str) -> NeighboringRelation:
    """Return the neighbouring relation asked for."""
    return _one_of("neighboring_relation", relation, _RELATIONS)


def _one_of(name: str, value: object, words: tuple[Word, ...], wanted: str | None = None) -> Word:
    """Return the word that was given, if it is one of these."""
    for word in words:
        if isinstance(value, str) and value == word:
            return word
    msg = f"{name} must be {wanted or f'one of {list(words)}'}, got {given(value)}."
    raise ValueError(msg)


@dataclass(frozen=True)
class Claim:
    """What one release promises to one person, and the rate at which the promise holds.

    The rate follows from the other fields, however a claim is made, also by `dataclasses.replace`. So no claim is
    charged less than its draws cost.

    Parameters
    ----------
    loss
        What one person loses in all, over all groups: the loss that the caller asked for.
    mechanism
        "permute_and_flip" or "exponential", of a choice; "discrete_laplace" or "discrete_gaussian", of a number.
    score_range
        R: the most that one row (one person, for counts of people; one neighbour, for scores of the caller's own)
        can change the difference of two scores, or a number that gets noise, under `neighboring_relation`. Of a list of
        quantiles it is 1, or 2 under "replace_one": a draw whose scores have another range R has the rate λ/R.
    contributions
        How one person's rows may spread over the groups.
    neighboring_relation
        "add_or_remove_one", "replace_one", or None where the caller's sensitivity implies it.
    draws
        How many draws share the loss equally, each of them at `rate`: two for a mean, k for the top k in
        rounds; for a list of quantiles the levels of its tree, each of which draws once from every row.
    lead
        Whether a choice is released with its lead. That changes nothing in epsilon. In rho it is charged as whatever
        has the same epsilon.

    Attributes
    ----------
    rate
        λ: a candidate whose score is less than the best one by `gap` has the coin exp(−λ·gap). Of noise it is one over
        the scale (discrete Laplace) or over the standard deviation (discrete Gaussian). The largest that `loss` pays
        for, rounded down.

    Raises
    ------
    TypeError, ValueError
        If a field is not as described, or the rate lies beyond 2**±1000.
    """

    loss: Loss
    mechanism: Mechanism
    score_range: Fraction
    contributions: Contributions
    neighboring_relation: NeighboringRelation | None
    draws: int = field(default=1, kw_only=True)
    lead: bool = field(default=False, kw_only=True)
    rate: Fraction = field(init=False)

    def __post_init__(self) -> None:
        _one_of("mechanism", self.mechanism, _MECHANISMS)
        if not self.has_epsilon and self.loss.unit == "epsilon":
            msg = "a discrete Gaussian has no epsilon: give its loss as rho."
            raise ValueError(msg)
        positive_fraction("score_range", self.score_range)
        positive_int("draws", self.draws)
        if self.lead and self.mechanism not in _CHOOSING:
            msg = f"a lead must be that of a choice, got the mechanism {self.mechanism!r}."
            raise ValueError(msg)
        if self.neighboring_relation is not None:
            check_relation(self.neighboring_relation)
        share = Loss(self.loss.value / self.draws, self.loss.unit)
        rate = _scaled_rate(share, self.charged_as, self.contributions) / self.score_range
        object.__setattr__(self, "rate", check_rate(rate, self.loss))

    @classmethod
    def of(
        cls,
        loss: Loss,
        mechanism: str | None,
        score_range: Fraction,
        contributions: Contributions,
        neighboring_relation: NeighboringRelation | None,
    ) -> Claim:
        """Return the claim by this mechanism, or by the one that the unit of the loss chooses."""
        return cls(loss, check_mechanism(mechanism, loss.unit), score_range, contributions, neighboring_relation)

    @classmethod
    def for_scores(cls, loss: Loss, mechanism: str | None, sensitivity: Number, monotonic: bool) -> Claim:
        """Return the claim of a selection by scores of the caller's own sensitivity, for the caller's own relation."""
        return cls.of(loss, mechanism, range_of(sensitivity, monotonic), ONE_RELEASE, None)

    @property
    def has_epsilon(self) -> bool:
        """Whether the release has a loss in pure DP: a Gaussian has none."""
        return self.mechanism != "discrete_gaussian"

    @property
    def charged_as(self) -> Mechanism:
        """The mechanism whose cost in rho this release has.

        The curves of both choices hold for the choice alone. With its lead, all that is known is the pure loss; what
        loses most in rho at that is randomized response, which discrete Laplace noise is.
        """
        return "discrete_laplace" if self.lead else self.mechanism

    def cost(self, unit: Unit, distance: int | Fraction = 1) -> Fraction:
        """Return what `distance` people together lose, in `unit`: never less than they do.

        At the unit that was asked for and one person it is the loss that was asked for. A ValueError where a discrete
        Gaussian is asked for its epsilon.
        """
        if unit == "epsilon" and not self.has_epsilon:
            msg = (
                "a discrete Gaussian has no loss in epsilon.\n\n"
                "Hint: keep a budget in rho, or ask with epsilon= instead of rho=: that draws discrete Laplace noise."
            )
            raise ValueError(msg)
        if unit == self.loss.unit and distance == 1:
            return self.loss.value
        x = self.rate * self.score_range * distance
        return self.draws * scaled_cost(unit, self.charged_as, x, self.contributions)


def check_rate(rate: Fraction, loss: Loss) -> Fraction:
    """Return the rate of a draw that a loss pays for, if the racing floats hold it."""
    if not _SMALLEST_RATE <= rate <= _LARGEST_RATE:
        msg = f"{loss.unit} over the range of the score must lie between 2**-1000 and 2**1000, got {loss}."
        raise ValueError(msg)
    return rate


def scaled_cost(unit: Unit, mechanism: Mechanism, x: Fraction, contributions: Contributions) -> Fraction:
    """Return the cost of a release whose rate times range is `x`, rounded up where it is irrational."""
    if unit == "epsilon":
        return x * contributions.total
    if mechanism == "exponential":
        # Bounded range x gives x²/8 (Cesar & Rogers 2021), once for each group.
        return x**2 * contributions.squares / 8
    if mechanism != "permute_and_flip":
        # A Gaussian of deviation σ and sensitivity d has d²/(2σ²) (Canonne, Kamath & Steinke 2020, arXiv 2004.00010,
        # Theorem 14). Discrete Laplace is x-DP in a group, and so x²/2-zCDP (Bun & Steinke 2016, arXiv 1605.02065,
        # Proposition 1.4). Between two neighbouring integers it is randomized response: no Laplace curve holds for it.
        return x**2 * contributions.squares / 2
    full = laplace_rho(x * contributions.per_group)
    return contributions.full_groups * full + laplace_rho(x * contributions.rest)


def laplace_rho(x: Fraction) -> Fraction:
    """Return x + exp(−x) − 1, rounded up: the rho of a Laplace mechanism with epsilon x.

    Permute-and-flip's trade-off curve is never worse than that mechanism's. It is not bounded range, and x²/8 is
    false for it (Ding et al. 2021, arXiv 2105.07260, Proposition 8 and Corollary 10).
    """
    if x == 0:
        return Fraction(0)
    # The result is about x²/2, so a small x loses twice its leading zeros.
    leading = max(0, _floor_log2(1 / x))
    with precision(_BITS + 3 * leading + 32):
        return _round_up(upper(ball(x) + (-ball(x)).expm1()))


def _scaled_rate(loss: Loss, mechanism: Mechanism, contributions: Contributions) -> Fraction:
    """Return the largest rate times range that `loss` pays for, rounded down."""
    if loss.unit == "epsilon":
        return loss.value / contributions.total
    if mechanism != "permute_and_flip":
        return _sqrt_down((8 if mechanism == "exponential" else 2) * loss.value / contributions.squares)
    return _invert_down(loss.value, contributions)


def _invert_down(rho: Fraction, contributions: Contributions) -> Fraction:
    """Return the largest x (to `_BITS` bits) whose permute-and-flip cost is at most `rho`, by bisection."""

    def affordable(x: Fraction) -> bool:
        return scaled_cost("rho", "permute_and_flip", x, contributions) <= rho

    # f(x) <= x²/2 and f(x) >= x − 1, so the answer lies between these.
    low = _sqrt_down(2 * rho / contributions.squares)
    high = max(2 * low, (rho + contributions.full_groups + 1) / contributions.total)
    step = Fraction(2) ** (_floor_log2(low) - _BITS)
    low_steps, high_steps = math.floor(low / step), math.ceil(high / step)
    while not affordable(low_steps * step):  # only where the rounded-up cost of `low` itself is slightly over
        low_steps -= 1
    while high_steps - low_steps > 1:
        middle = (low_steps + high_steps) // 2
        if affordable(middle * step):
            low_steps = middle
        else:
            high_steps = middle
    return low_steps * step


def _floor_log2(x: Fraction) -> int:
    """Return the largest n with 2**n <= x, or one less."""
    return x.numerator.bit_length() - x.denominator.bit_length() - 1


def _sqrt_down(x: Fraction) -> Fraction:
    """Return √x where it is rational, otherwise the nearest below of `_BITS` bits."""
    root = Fraction(math.isqrt(x.numerator), math.isqrt(x.denominator))
    if root**2 == x:
        return root
    shift = max(0, _BITS - _floor_log2(x) // 2)
    return Fraction(math.isqrt(math.floor(x * 4**shift)), 2**shift)


def _round_up(x: Fraction) -> Fraction:
    """Return the nearest above of `_BITS` bits, so that ledgers stay short."""
    step = Fraction(2) ** (_floor_log2(x) - _BITS)
    return math.ceil(x / step) * step
