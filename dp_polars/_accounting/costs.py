"""The cost of each mechanism in each unit, and the corresponding (epsilon, delta)."""

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

# Irrational rates and costs are rounded to this many significant bits: the error is far below any visible effect.
BITS = 96
# Enough for a guess next to the answer. The search that follows is correct for any guess.
_SECANTS = 30

HALF, ALL = Fraction(1, 2), Fraction(1)

# One candidate of each group; the first candidate in an order that reaches a threshold; a number with noise; or the
# keys with enough people. Keys can't be shown without a delta.
MechanismKind: TypeAlias = Literal["choice", "threshold", "number", "keys"]


@dataclass(frozen=True)
class Curve:
    """The rho of a draw."""

    # The pure loss x of a draw -> its rho, rounded up: at most x and `square`·x², and rho/x grows with x.
    rho: Callable[[Fraction], Fraction]
    square: Fraction = HALF  # a tight value saves time
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
    """Return the cost of all draws of a release with rate times range `x`, rounded up if irrational.

    Proof: `docs/proofs/spreads.md`, Theorems 1 and 2. If rows are replaced (`same_group`): Theorem 4, and Theorem 5 for
    several numbers that the same rows move. `groups`: the number of groups. None: unknown.
    `levels` replaces `same_group` and `draws` for the levels of a list of quantiles (`docs/proofs/quantiles.md`,
    Theorem 2).
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
    # A group costs at most x, and at most `square`·x². So the answer is at least this, except for rounding.
    of_one = loss / draws
    low = max(_sqrt_down(of_one / curve.square / contributions.squares), of_one / contributions.total)
    return _invert_down(loss, cost, low)


@dataclass(frozen=True)
class Replaced:
    """A replaced person: a group that loses p rows and gets q moves by a·max(p, q) + b·min(p, q)."""

    a: Fraction
    b: Fraction  # from 0 to `a`
    contributions: Contributions
    groups: int | None = None  # the number of groups; None: unknown

    @property
    def moved(self) -> Fraction:
        """The largest joint move of all groups."""
        return self._worst(lambda moved: moved)

    def squares(self, draws: int) -> Fraction:
        """Return the largest sum of squares of all groups' moves, on average over the draws.

        If people count in part, their squares are limited (`docs/proofs/norms.md`, Theorem 3).
        One draw moves a group by at most the joint contribution of both people there.
        """
        every = 2 * (self.a**2 + self.b**2) * self.contributions.squares
        if draws > 1 or self.groups is None:
            return every
        return min(every, self.groups * ((self.a + self.b) * self.contributions.per_group) ** 2)

    def rho(self, curve: Curve) -> Fraction:
        """Return the largest joint loss of all groups."""
        if curve.is_convex:
            return self._worst(curve.rho)
        total, most = self.contributions.total, self.contributions.per_group
        together = _rho_of_parts(curve, self.moved, (self.a + self.b) * most)
        return together if self.b else min(together, 2 * _rho_of_parts(curve, self.a * total, self.a * most))

    def _worst(self, loss: Callable[[Fraction], Fraction]) -> Fraction:
        return max(sum((n * loss(moved) for moved, n in corner), Fraction(0)) for corner in self.corners())

    def corners(self) -> Iterator[list[tuple[Fraction, int]]]:
        """Yield the ways in which full groups and the rests of both people may overlap: moves with their numbers.

        The joint loss is linear in the number of full groups that overlap: the smallest and the largest number suffice.
        """
        m, r, full = self.contributions.per_group, self.contributions.rest, self.contributions.full_groups
        # The groups with a rest, and the number of full groups of each person that remain.
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
    """Return the largest loss of parts up to `most` that add up to `total` (`docs/proofs/spreads.md`, Theorem 2)."""
    if not total:
        return total
    full, rest = divmod(total, most)
    filled = full * curve.rho(most) + curve.rho(rest)
    if curve.is_convex or not rest:
        return filled
    return max(filled, (full + 1) * curve.rho(total / (full + 1)))


def gaussian_rho(x: Fraction) -> Fraction:
    """Return x²/2: for noise of deviation σ and sensitivity xσ (Canonne, Kamath & Steinke 2020, Theorem 14)."""
    return x**2 / 2


def pure_rho(x: Fraction) -> Fraction:
    """Return x·tanh(x/2), rounded up: the rho of any x-DP mechanism (`docs/proofs/composition.md`, Theorem 1).

    Discrete Laplace noise between two neighbouring integers is randomized response, which has exactly this rho.
    For a choice with its gap, and for the first above a threshold, only the pure loss is known.
    A key shown by partition selection has this rho δ-approximately (`docs/proofs/keys.md`).
    """
    return _rounded_up(x, lambda exact: exact * -(-exact).expm1() / (1 + (-exact).exp()))


def laplace_rho(x: Fraction) -> Fraction:
    """Return x + exp(−x) − 1, rounded up: the tight rho of a Laplace mechanism (Harrison & Manurangsi 2026).

    Permute-and-flip loses at most this. Ding et al. 2021 claim that it has a bounded range, but it has none:
    `docs/proofs/permute-and-flip.md`, Theorems 4 and 6.
    """
    return _rounded_up(x, lambda exact: exact + (-exact).expm1())


def bounded_range_rho(x: Fraction) -> Fraction:
    """Return y − 1 − ln y for y = x/(exp(x) − 1), rounded up: the rho of any mechanism with bounded range x.

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
    """Return a result of about x² with enough bits: a small x loses its leading zeros two or three times."""
    if x == 0:
        return Fraction(0)
    with precision(BITS + 3 * max(0, floor_log2(1 / x)) + 32):
        return round_up(upper(rho(ball(x))))


LAPLACE_CURVE = Curve(laplace_rho)
BOUNDED_RANGE_CURVE = Curve(bounded_range_rho, Fraction(1, 8))
PURE_CURVE = Curve(pure_rho, is_convex=False)
GAUSSIAN_CURVE = Curve(gaussian_rho, is_pure=False)

# Words without an entry here are no mechanisms. A choice's race has its own table: `_mechanisms/racing.py`.
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
    "renyi_partition_selection": Proof(
        "keys",
        GAUSSIAN_CURVE,
        "Partition selection in rho (Harrison & Manurangsi 2026, arXiv 2603.09167): which keys are shown.",
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
    """Return the largest x (to `BITS` bits) that costs at most `rho`: a secant's guess from `low`, then verified."""
    step = _last_bit(low)

    def cost(steps: int) -> Fraction:
        return cost_of(steps * step)

    before, guess = math.floor(low / step), math.ceil(2 * low / step)
    cost_before, cost_guess = cost(before), cost(guess)
    for _ in range(_SECANTS):
        # Costs grow and are nearly convex, so secants converge.
        if abs(guess - before) <= 1 or cost_guess == cost_before:
            break
        ahead = math.floor((rho - cost_guess) * (guess - before) / (cost_guess - cost_before))
        before, cost_before = guess, cost_guess
        guess = max(guess + ahead, 1)
        cost_guess = cost(guess)
    return largest(lambda steps: cost(steps) <= rho, guess) * step


def largest(holds: Callable[[int], bool], guess: int) -> int:
    """Return the largest number up to which a condition holds, by a search around `guess`."""
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
    """Return √x if it is rational, otherwise the nearest number of `BITS` bits below."""
    root = Fraction(math.isqrt(x.numerator), math.isqrt(x.denominator))
    if root**2 == x:
        return root
    shift = max(0, BITS - floor_log2(x) // 2)
    return Fraction(math.isqrt(math.floor(x * 4**shift)), 2**shift)


def round_up(x: Fraction) -> Fraction:
    """Return the nearest number of `BITS` bits above, so that ledgers stay short."""
    step = _last_bit(x)
    return math.ceil(x / step) * step


def round_down(x: Fraction) -> Fraction:
    step = _last_bit(x)
    return math.floor(x / step) * step


def _last_bit(x: Fraction) -> Fraction:
    return Fraction(2) ** (floor_log2(x) - BITS)


_BITS = 128
# Floats can represent a rho up to this, its inverse, their squares, and products with orders.
_LARGEST = Fraction(2**500)
# The smallest order, less one: a smaller one would be rounded away, and proves hardly more.
_SMALLEST_ORDER = 2.0**-50
# exp of this is 0 in float64.
_UNDERFLOW = -1000

# Any order α > 1 gives a proof (Canonne, Kamath & Steinke 2020, arXiv 2004.00010, Proposition 12 and Corollary 13), so
# the search need not be exact. It divides an interval by thirds in 40 steps. The interval lies between two multiples
# (as logarithms) of the α − 1 that is about best for Gaussian noise. A pure loss may have its best order far above.
_THIRDS, _FARTHEST = 40, (-2.0, 6.0)

# a > 0 -> a times a bound on the Rényi divergence of order 1 + a.
LogMoment: TypeAlias = "Callable[[arb], arb]"


def zcdp_delta(rho: Fraction, epsilon: Fraction) -> float:
    """Return a delta above 0 that rho-zCDP proves, rounded up."""
    return renyi_delta(_of_zcdp(rho), rho, epsilon)


def zcdp_epsilon(rho: Fraction, delta: float) -> float:
    """Return an epsilon that rho-zCDP proves, rounded up."""
    return renyi_epsilon(_of_zcdp(rho), rho, delta)


def _of_zcdp(rho: Fraction) -> LogMoment:
    return lambda a: a * (1 + a) * ball(rho)


def renyi_delta(log_moment: LogMoment, rho: Fraction, epsilon: Fraction) -> float:
    """Return a delta, however small but above 0, proved by divergences of at most rho times their order; rounded up."""
    if epsilon <= rho:
        return 1.0
    around = float(min(max((epsilon - rho) / (2 * rho), 1 / _LARGEST), _LARGEST))
    with precision(_BITS):
        log = _least(lambda a: log_moment(a) - a * ball(epsilon) + _log_share(a), around)
        # Below the smallest float. Exact numbers would need as many digits as the exponent is large.
        return min(1.0, float_above(log.max(ball(_UNDERFLOW)).exp()))


def renyi_epsilon(log_moment: LogMoment, rho: Fraction, delta: float) -> float:
    """Return an epsilon proved by divergences of at most rho times their order, rounded up."""
    around = math.sqrt(-math.log(delta) / float(rho))
    with precision(_BITS):
        log = -ball(Fraction(delta)).log()
        return max(0.0, float_above(_least(lambda a: (log_moment(a) + _log_share(a) + log) / a, around)))


def _log_share(a: arb) -> arb:
    """Return the logarithm of (1 − 1/α)^α/(α − 1), for α = 1 + a."""
    return -a.log() - (1 + a) * (1 / a).log1p()


def best_order(epsilon: Fraction, delta: Fraction) -> float:
    """Return about the best order, less one, for the largest rho that proves (epsilon, delta) by `divergence_for`."""
    log = -math.log(float_up(delta))
    share = log / float(min(max(epsilon, 1 / _LARGEST), _LARGEST))
    # For a large delta, no order far above its inverse is needed.
    around = min(max(share + math.sqrt(share * (share + 1)), _SMALLEST_ORDER), 1 / float_up(delta), float(_LARGEST))
    with precision(_BITS):
        most = ball(epsilon)
        return _least_at(lambda a: (-most).max((_log_share(a) - ball(delta).log()) / a - most) / (1 + a), around)


def divergence_for(epsilon: Fraction, delta: Fraction, order: Fraction) -> Fraction:
    """Return the largest divergence of an order that proves (epsilon, delta), rounded down; it may be below 0.

    It is limited to epsilon, because a large delta would prove more.
    """
    with precision(_BITS):
        a = ball(order - 1)
        return min(epsilon, lower(ball(epsilon) + (ball(delta).log() - _log_share(a)) / a))


def epsilon_of_divergence(divergence: Fraction, delta: Fraction, order: Fraction) -> float:
    """Return an epsilon proved by a divergence of an order at a delta, rounded up."""
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
    """Return an epsilon proved at `delta` for a sum of losses and a sum of deltas, rounded up."""
    left = delta_left(delta, gone)
    if left is None:
        return math.inf
    if loss == 0:
        return 0.0
    if unit == "epsilon":
        return pure_epsilon(loss, left)
    below = -float_up(-left)
    # A proof for a larger loss covers a smaller one.
    return zcdp_epsilon(max(loss, 1 / _LARGEST), below) if below > 0 and loss <= _LARGEST else math.inf


def pure_epsilon(epsilon: Fraction, delta: Fraction) -> float:
    """Return the smallest epsilon proved at `delta` for any `epsilon`-DP mechanism: δ(t) = (e^ε − e^t)/(1 + e^ε).

    `docs/proofs/composition.md`, Theorem 1. Rounded up.
    """
    with precision(_BITS):
        least = ball(-epsilon).exp()
        share = 1 - ball(delta) * (1 + least)  # exp(t − ε)
        return 0.0 if share <= least else max(0.0, float_above(ball(epsilon) + share.max(least).log()))


def delta_left(delta: Fraction, spent: Fraction) -> Fraction | None:
    """Return δ′ with δ = spent + (1 − spent)·δ′ (`docs/proofs/composition.md`, Theorem 3). None: more is spent."""
    return None if spent >= 1 or delta < spent else (delta - spent) / (1 - spent)


def float_above(value: arb) -> float:
    return float_up(upper(value))
