"""What each mechanism costs in each unit, and what that means as (epsilon, delta)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

from dp_polars._accounting.terms import Contributions, Mechanism, Unit
from dp_polars._base.numbers import ball, float_up, lower, precision, upper

if TYPE_CHECKING:
    from flint import arb

# Irrational rates and costs are rounded to this many significant bits: far below what any choice could show.
BITS = 96
# Enough for a guess next to the answer; the search after it needs no more than luck.
_SECANTS = 30

HALF, ALL = Fraction(1, 2), Fraction(1)

# One candidate of each group, the first one of an order that reaches a threshold, a number with noise, or the keys that
# enough people have. Keys spend a delta: they can't be shown without one.
MechanismKind: TypeAlias = Literal["choice", "threshold", "number", "keys"]


@dataclass(frozen=True)
class Curve:
    """The rho of a draw."""

    # The pure loss x of a draw -> its rho, rounded up: at most x and `square`·x², and rho/x grows with x.
    rho: Callable[[Fraction], Fraction]
    square: Fraction = HALF  # a good one saves time
    is_convex: bool = True
    # Whether there is a pure loss. Gaussian noise has none: its x is the sensitivity over the standard deviation.
    is_pure: bool = True


@dataclass(frozen=True)
class Proof:
    """The draws of a mechanism, the proof of one draw, and its sentence in statements."""

    kind: MechanismKind
    curve: Curve
    said: str


def scaled_cost(
    unit: Unit,
    mechanism: Mechanism,
    x: Fraction,
    contributions: Contributions,
    same_group: Fraction = ALL,
    *,
    groups: int | None = None,
    draws: int = 1,
    levels: tuple[Fraction, ...] = (),
) -> Fraction:
    """Return the cost of all draws of a release whose rate times range is `x`, rounded up where it is irrational.

    `docs/proofs/spreads.md` proves it: Theorems 1 and 2; where rows are replaced (`same_group`), Theorem 4, and of
    several numbers that the same rows move, Theorem 5. `groups` is how many there are; None: nobody knows. `levels` has
    the place of `same_group` and `draws` for the levels of a list of quantiles (`docs/proofs/quantiles.md`, Theorem 2).
    """
    if levels:
        return sum((scaled_cost(unit, mechanism, x, contributions, one) for one in levels), Fraction(0))
    curve, total, most = PROOFS[mechanism].curve, x * contributions.total, x * contributions.per_group
    if same_group == ALL:
        return draws * (total if unit == "epsilon" else _rho_of_parts(curve, total, most))
    replaced = Replaced(x / 2, x * (same_group - HALF), contributions, groups)
    if unit == "epsilon":
        return draws * replaced.moved
    if curve is GAUSSIAN_CURVE:
        return draws * replaced.squares(draws) / 2
    if draws == 1 or PROOFS[mechanism].kind != "number":
        return draws * replaced.rho(curve)
    return min(_rho_of_parts(curve, draws * replaced.moved, most), draws * _rho_of_parts(curve, total, most))


def scaled_rate(
    unit: Unit,
    mechanism: Mechanism,
    loss: Fraction,
    contributions: Contributions,
    same_group: Fraction = ALL,
    *,
    groups: int | None = None,
    draws: int = 1,
    levels: tuple[Fraction, ...] = (),
) -> Fraction:
    """Return the largest rate times range that a loss pays for, rounded down."""

    def cost(x: Fraction) -> Fraction:
        return scaled_cost(unit, mechanism, x, contributions, same_group, groups=groups, draws=draws, levels=levels)

    curve = PROOFS[mechanism].curve
    if unit == "epsilon":
        return loss / cost(ALL)
    if curve is GAUSSIAN_CURVE:
        return _sqrt_down(loss / cost(ALL))
    # The costs are at most x, and `square`·x², a group: so the answer lies above this, but for a hair of rounding.
    of_one = loss / draws
    low = max(_sqrt_down(of_one / curve.square / contributions.squares), of_one / contributions.total)
    return _invert_down(loss, cost, low)


@dataclass(frozen=True)
class Replaced:
    """A person in the place of another: a group that loses p rows and gets q moves by a·max(p, q) + b·min(p, q)."""

    a: Fraction
    b: Fraction  # from 0 to `a`
    contributions: Contributions
    groups: int | None = None  # how many there are; None: nobody knows

    @property
    def moved(self) -> Fraction:
        """The most that all groups move together."""
        return self._worst(lambda moved: moved)

    def squares(self, draws: int) -> Fraction:
        """Return the most that the squares of what all groups move add up to, on average over the draws.

        People count in real parts, of which the squares are limited (`docs/proofs/norms.md`, Theorem 3). One draw moves
        a group by no more than all that both people may have there.
        """
        every = 2 * (self.a**2 + self.b**2) * self.contributions.squares
        if draws > 1 or self.groups is None:
            return every
        return min(every, self.groups * ((self.a + self.b) * self.contributions.per_group) ** 2)

    def rho(self, curve: Curve) -> Fraction:
        """Return the most that all groups lose."""
        if curve.is_convex:
            return self._worst(curve.rho)
        total, most = self.contributions.total, self.contributions.per_group
        together = _rho_of_parts(curve, self.moved, (self.a + self.b) * most)
        return together if self.b else min(together, 2 * _rho_of_parts(curve, self.a * total, self.a * most))

    def _worst(self, loss: Callable[[Fraction], Fraction]) -> Fraction:
        return max(sum((n * loss(moved) for moved, n in corner), Fraction(0)) for corner in self.corners())

    def corners(self) -> Iterator[list[tuple[Fraction, int]]]:
        """Yield the ways in which full groups and a rest of both may meet: how far a group moves, how many do so.

        All that groups lose is linear in how many full ones meet: the fewest and the most will do.
        """
        m, r, full = self.contributions.per_group, self.contributions.rest, self.contributions.full_groups
        # Which groups have a rest, and how many full groups of each are left.
        ways: list[tuple[list[tuple[int, int]], int, int]] = [([], full, full)]
        if r:
            ways = [([(r, 0), (0, r)], full, full), ([(r, r)], full, full)]
            if full:
                ways += [([(m, r), (r, 0)], full - 1, full), ([(m, r), (r, m)], full - 1, full - 1)]
        for rests, of_one, of_other in ways:
            left = of_one + of_other
            fewest = 0 if self.groups is None else max(0, left + len(rests) - self.groups)
            most = min(of_one, of_other)
            for meet in {fewest, most} if fewest <= most else ():
                met = [*((pair, 1) for pair in rests), ((m, m), meet), ((m, 0), left - 2 * meet)]
                yield [(self.a * max(pair) + self.b * min(pair), n) for pair, n in met if n]


def _rho_of_parts(curve: Curve, total: Fraction, most: Fraction) -> Fraction:
    """Return the most that parts up to `most` lose that add up to `total` (`docs/proofs/spreads.md`, Theorem 2)."""
    if not total:
        return total
    full, rest = divmod(total, most)
    filled = full * curve.rho(most) + curve.rho(rest)
    if curve.is_convex or not rest:
        return filled
    return max(filled, (full + 1) * curve.rho(total / (full + 1)))


def gaussian_rho(x: Fraction) -> Fraction:
    """Return x²/2: of noise of deviation σ and sensitivity xσ (Canonne, Kamath & Steinke 2020, Theorem 14)."""
    return x**2 / 2


def pure_rho(x: Fraction) -> Fraction:
    """Return x·tanh(x/2), rounded up: the rho of whatever is x-DP (`docs/proofs/composition.md`, Theorem 1).

    Discrete Laplace noise between two neighbouring integers is randomized response, which has no less. For a choice
    with its gap, and for the first above a threshold, only the pure loss is known. A key shown by partition selection
    has this rho δ-approximately (`docs/proofs/keys.md`).
    """
    return _rounded_up(x, lambda exact: exact * -(-exact).expm1() / (1 + (-exact).exp()))


def laplace_rho(x: Fraction) -> Fraction:
    """Return x + exp(−x) − 1, rounded up: the tight rho of a Laplace mechanism (Harrison & Manurangsi 2026).

    Permute-and-flip loses no more, and has no bounded range, though Ding et al. 2021 say so:
    `docs/proofs/permute-and-flip.md`, Theorems 4 and 6.
    """
    return _rounded_up(x, lambda exact: exact + (-exact).expm1())


def bounded_range_rho(x: Fraction) -> Fraction:
    """Return y − 1 − ln y for y = x/(exp(x) − 1), rounded up: the rho of whatever has bounded range x.

    Harrison & Manurangsi 2026 (arXiv 2510.25746); never above x²/8: `docs/proofs/exponential.md`, Theorem 3.
    """

    def rho(exact: arb) -> arb:
        complement = -(-exact).expm1()  # 1 − exp(−x)
        if x < 1:
            above = (exact * (-exact).exp() - complement) / complement  # y − 1
            return above - above.log1p()
        # exp(−x) may be too small for a logarithm
        return exact * (-exact).exp() / complement - 1 - (exact / complement).log() + exact

    return min(_rounded_up(x, rho), x**2 / 8)  # for a tiny x both round to the same


def _rounded_up(x: Fraction, rho: Callable[[arb], arb]) -> Fraction:
    """Return a result of about x², by enough bits: the leading zeros of a small x are lost twice, or thrice."""
    if x == 0:
        return Fraction(0)
    with precision(BITS + 3 * max(0, floor_log2(1 / x)) + 32):
        return round_up(upper(rho(ball(x))))


LAPLACE_CURVE = Curve(laplace_rho)
BOUNDED_RANGE_CURVE = Curve(bounded_range_rho, Fraction(1, 8))
PURE_CURVE = Curve(pure_rho, is_convex=False)
GAUSSIAN_CURVE = Curve(gaussian_rho, is_pure=False)

# A word that is no key here is no mechanism. What a choice's race must know besides: `_mechanisms/racing.py`.
PROOFS: dict[Mechanism, Proof] = {
    "permute_and_flip": Proof(
        "choice",
        LAPLACE_CURVE,
        "Permute-and-flip (McKenna & Sheldon 2020, arXiv 2010.12603): one candidate of each group.",
    ),
    "exponential": Proof(
        "choice", BOUNDED_RANGE_CURVE, "The exponential mechanism, with its bounded range: one candidate of each group."
    ),
    "discrete_laplace": Proof(
        "number", PURE_CURVE, "Discrete Laplace noise on whole numbers (Ghosh, Roughgarden & Sundararajan 2009)."
    ),
    "discrete_gaussian": Proof(
        "number",
        GAUSSIAN_CURVE,
        "Discrete Gaussian noise on whole numbers (Canonne, Kamath & Steinke 2020, arXiv 2004.00010).",
    ),
    "partition_selection": Proof(
        "keys",
        PURE_CURVE,
        "Optimal partition selection (Desfontaines et al. 2022, arXiv 2006.03684): which keys are shown.",
    ),
    "discrete_gaussian_threshold": Proof(
        "keys", GAUSSIAN_CURVE, "Discrete Gaussian noise on numbers of people, and a threshold: which keys are shown."
    ),
    "first_above": Proof(
        "threshold",
        PURE_CURVE,
        "Online selection with exponential noise on each count and on the threshold: the first candidate above the "
        "threshold.",
    ),
}


def _invert_down(rho: Fraction, cost_of: Callable[[Fraction], Fraction], low: Fraction) -> Fraction:
    """Return the largest x (to `BITS` bits) whose cost is at most `rho`: a secant's guess from `low`, made certain."""
    step = _last_bit(low)

    def cost(steps: int) -> Fraction:
        return cost_of(steps * step)

    before, guess = math.floor(low / step), math.ceil(2 * low / step)
    cost_before, cost_guess = cost(before), cost(guess)
    for _ in range(_SECANTS):
        # A cost grows, and is nearly convex, so the secants close in on the answer.
        if abs(guess - before) <= 1 or cost_guess == cost_before:
            break
        ahead = math.floor((rho - cost_guess) * (guess - before) / (cost_guess - cost_before))
        before, cost_before = guess, cost_guess
        guess = max(guess + ahead, 1)
        cost_guess = cost(guess)
    return largest(lambda steps: cost(steps) <= rho, guess) * step


def largest(holds: Callable[[int], bool], guess: int) -> int:
    """Return the largest number for which something holds that holds up to some number, by a search around `guess`."""
    low, reach = guess, 1
    while not holds(low):
        low, reach = low - reach, 2 * reach
    high, reach = low + 1, 1
    while holds(high):
        low, high, reach = high, high + reach, 2 * reach
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def floor_log2(x: Fraction) -> int:
    """Return the largest n with 2**n <= x, or one less."""
    return x.numerator.bit_length() - x.denominator.bit_length() - 1


def _sqrt_down(x: Fraction) -> Fraction:
    """Return √x where it is rational, otherwise the nearest below of `BITS` bits."""
    root = Fraction(math.isqrt(x.numerator), math.isqrt(x.denominator))
    if root**2 == x:
        return root
    shift = max(0, BITS - floor_log2(x) // 2)
    return Fraction(math.isqrt(math.floor(x * 4**shift)), 2**shift)


def round_up(x: Fraction) -> Fraction:
    """Return the nearest above of `BITS` bits, so that ledgers stay short."""
    step = _last_bit(x)
    return math.ceil(x / step) * step


def round_down(x: Fraction) -> Fraction:
    step = _last_bit(x)
    return math.floor(x / step) * step


def _last_bit(x: Fraction) -> Fraction:
    return Fraction(2) ** (floor_log2(x) - BITS)


_BITS = 128
# A rho up to this, and its inverse, are held by floats, also squared and multiplied by orders.
_LARGEST = Fraction(2**500)
# An order, less one, that is smaller would be rounded away; it proves next to nothing more.
_SMALLEST_ORDER = 2.0**-50
# exp of it is 0 in float64.
_UNDERFLOW = -1000

# Any order α > 1 gives a proof (Canonne, Kamath & Steinke 2020, arXiv 2004.00010, Proposition 12 and Corollary 13), so
# a search needs no certainty. It takes 40 steps, by thirds, between two multiples of the α − 1 that is about the best
# for Gaussian noise (their logarithms). What has a pure loss, too, may have its best order far above.
_THIRDS, _FARTHEST = 40, (-2.0, 6.0)

# a > 0 -> a times a bound on the Rényi divergence of order 1 + a.
LogMoment: TypeAlias = "Callable[[arb], arb]"


def zcdp_delta(rho: Fraction, epsilon: Fraction) -> float:
    """Return a delta that rho-zCDP proves, rounded up: above 0."""
    return renyi_delta(_of_zcdp(rho), rho, epsilon)


def zcdp_epsilon(rho: Fraction, delta: float) -> float:
    """Return an epsilon that rho-zCDP proves, rounded up."""
    return renyi_epsilon(_of_zcdp(rho), rho, delta)


def _of_zcdp(rho: Fraction) -> LogMoment:
    return lambda a: a * (1 + a) * ball(rho)


def renyi_delta(log_moment: LogMoment, rho: Fraction, epsilon: Fraction) -> float:
    """Return a delta that divergences of at most rho times their order prove, rounded up: above 0, however small."""
    if epsilon <= rho:
        return 1.0
    around = float(min(max((epsilon - rho) / (2 * rho), 1 / _LARGEST), _LARGEST))
    with precision(_BITS):
        log = _least(lambda a: log_moment(a) - a * ball(epsilon) + _log_share(a), around)
        # Below the smallest float, and without numbers of as many digits as the exponent is large.
        return min(1.0, float_above(log.max(ball(_UNDERFLOW)).exp()))


def renyi_epsilon(log_moment: LogMoment, rho: Fraction, delta: float) -> float:
    """Return an epsilon that divergences of at most rho times their order prove, rounded up."""
    around = math.sqrt(-math.log(delta) / float(rho))
    with precision(_BITS):
        log = -ball(Fraction(delta)).log()
        return max(0.0, float_above(_least(lambda a: (log_moment(a) + _log_share(a) + log) / a, around)))


def _log_share(a: arb) -> arb:
    """Return the logarithm of (1 − 1/α)^α/(α − 1), for α = 1 + a."""
    return -a.log() - (1 + a) * (1 / a).log1p()


def best_order(epsilon: Fraction, delta: Fraction) -> float:
    """Return about the order, less one, at which the largest rho proves (epsilon, delta) by `divergence_for`."""
    log = -math.log(float_up(delta))
    share = log / float(min(max(epsilon, 1 / _LARGEST), _LARGEST))
    # Where delta is large, no order far above its inverse is needed.
    around = min(max(share + math.sqrt(share * (share + 1)), _SMALLEST_ORDER), 1 / float_up(delta), float(_LARGEST))
    with precision(_BITS):
        most = ball(epsilon)
        return _least_at(lambda a: (-most).max((_log_share(a) - ball(delta).log()) / a - most) / (1 + a), around)


def divergence_for(epsilon: Fraction, delta: Fraction, order: Fraction) -> Fraction:
    """Return the largest divergence of an order that proves (epsilon, delta), rounded down; it may be below 0.

    At most epsilon: more than that is proved where delta is large.
    """
    with precision(_BITS):
        a = ball(order - 1)
        return min(epsilon, lower(ball(epsilon) + (ball(delta).log() - _log_share(a)) / a))


def epsilon_of_divergence(divergence: Fraction, delta: Fraction, order: Fraction) -> float:
    """Return an epsilon that a divergence of an order proves at a delta, rounded up."""
    with precision(_BITS):
        a = ball(order - 1)
        return max(0.0, float_above(ball(divergence) + (_log_share(a) - ball(delta).log()) / a))


def _least(value: Callable[[arb], arb], around: float) -> arb:
    return value(ball(Fraction(_least_at(value, around))))


def _least_at(value: Callable[[arb], arb], around: float) -> float:
    def at(log: float) -> arb:
        return value(ball(Fraction(around * math.exp(log))))

    low, high = _FARTHEST
    for _ in range(_THIRDS):
        third = (high - low) / 3
        if at(low + third).mid() <= at(high - third).mid():
            high -= third
        else:
            low += third
    return around * math.exp((low + high) / 2)


class EpsilonAt(NamedTuple):
    """A budget in (epsilon, delta): `spent` for all charges so far, `total` for the whole budget."""

    spent: float
    total: float


def epsilon_at(unit: Unit, loss: Fraction, delta: Fraction, gone: Fraction) -> float:
    """Return an epsilon that is proved at `delta` for a sum of losses and a sum of deltas, rounded up."""
    left = delta_left(delta, gone)
    if left is None:
        return math.inf
    if loss == 0:
        return 0.0
    if unit == "epsilon":
        return pure_epsilon(loss, left)
    below = -float_up(-left)
    # What a loss proves, a larger one proves, too.
    return zcdp_epsilon(max(loss, 1 / _LARGEST), below) if below > 0 and loss <= _LARGEST else math.inf


def pure_epsilon(epsilon: Fraction, delta: Fraction) -> float:
    """Return the least epsilon that is proved at `delta` for whatever is `epsilon`-DP: δ(t) = (e^ε − e^t)/(1 + e^ε).

    `docs/proofs/composition.md`, Theorem 1. Rounded up.
    """
    with precision(_BITS):
        least = ball(-epsilon).exp()
        share = 1 - ball(delta) * (1 + least)  # exp(t − ε)
        return 0.0 if share <= least else max(0.0, float_above(ball(epsilon) + share.max(least).log()))


def delta_left(delta: Fraction, spent: Fraction) -> Fraction | None:
    """Return the δ′ with δ = spent + (1 − spent)·δ′ (`docs/proofs/composition.md`, Theorem 3); None: more is spent."""
    return None if spent >= 1 or delta < spent else (delta - spent) / (1 - spent)


def float_above(value: arb) -> float:
    return float_up(upper(value))
