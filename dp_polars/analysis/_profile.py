"""Privacy profiles: delta as a function of epsilon, of one release and of many.

Let x be the pure epsilon of a release. The pairs of distributions that dominate it have privacy losses on [−x, x] with
the density w·exp((s − x)/2)/2, and atoms at both ends. For permute-and-flip they are those of Laplace noise, for the
exponential mechanism of bounded range x, for discrete Laplace noise of randomized response. For a discrete Gaussian it
is a continuous one that is a little narrower (`_widest_of`). Pairs that dominate compose, and so do their Rényi
divergences, which prove more if δ is tiny: `docs/proofs/composition.md`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from dp_polars._accounting import costs
from dp_polars._accounting.claims import Claim, check_mechanism
from dp_polars._accounting.terms import ONE_RELEASE, Mechanism, check_delta
from dp_polars._base.calls import called
from dp_polars._base.extras import require
from dp_polars._base.numbers import as_fraction, ball, float_up, given, positive_int, positive_loss, precision

if TYPE_CHECKING:
    from flint import arb

    from dp_polars._base.numbers import Number


Release: TypeAlias = "Claim | tuple[Number, str]"
Parts: TypeAlias = "tuple[tuple[Mechanism, Fraction, int | Fraction], ...]"

# Losses are composed by FFT. This is added to a delta for its rounding, for each part and for each 1,000 releases. It
# is 4 times the largest error against exact binomials, for which the grid itself has none. For smaller deltas we use
# only zCDP and Rényi divergences.
_ROUNDING, _SMALLEST_DELTA = 1.5e-14, 1e-10
# More than the rounding of composition in floats; and the precision, in bits, of the balls for one release.
_SLACK, _BITS = 1 + 1e-12, 128
# Steps of the grid of losses: up to the smallest pure epsilon, and at most up to their sum.
_STEPS, _MOST_STEPS = 500, 500_000
# Deviations of a Gaussian's privacy loss within the grid; and the addition to a delta for the tails.
_WIDTH, _TAILS = 20, 1e-24


@dataclass(frozen=True)
class _Pair:
    """The distributions that dominate a release of the pure epsilon x."""

    weight: Callable[[float], float]  # x -> w, of the density w·exp((s − x)/2)/2 of privacy losses s
    atoms: Callable[[float], tuple[float, float]]  # x -> the masses of the atoms at −x and x
    delta: Callable[[arb, arb], arb]  # the least δ at an epsilon t below x, from t − x and x
    epsilon: Callable[[Fraction, Fraction], float]  # the least epsilon at a δ above 0, from x and δ
    # The mean of exp(a·(s − x)) over the losses s, from a and x: exp(a·(D − x)), with D the Rényi divergence of order 1
    # + a.
    moment: Callable[[arb, arb], arb]
    # Whether no spread of a person's rows is worse than full groups and a rest (`docs/proofs/spreads.md`).
    are_worst_filled: bool = True


def _epsilon_by(below: arb, pure: Fraction) -> float:
    """Return the t at which 1 − exp((t − x)/2) is `below`."""
    return max(0.0, costs.float_above(ball(pure) + 2 * (-below).log1p()))


# By the proof of the mechanism's rho: for a curve without a key here, no pair is known.
_PAIRS = {
    costs.LAPLACE_CURVE: _Pair(
        lambda _: 0.5,
        lambda x: (math.exp(-x) / 2, 0.5),
        lambda below, _: -(below / 2).expm1(),
        lambda pure, delta: _epsilon_by(ball(delta), pure),
        lambda a, x: 1 + a / (1 + 2 * a) * (-(1 + 2 * a) * x).expm1(),
    ),
    costs.BOUNDED_RANGE_CURVE: _Pair(
        lambda x: 1 / -math.expm1(-x),
        lambda _: (0.0, 0.0),
        lambda below, x: (below / 2).expm1() ** 2 / -(-x).expm1(),
        lambda pure, delta: _epsilon_by((ball(delta) * -ball(-pure).expm1()).sqrt(), pure),
        lambda a, x: (-(1 + 2 * a) * x).expm1() / ((1 + 2 * a) * (-x).expm1()),
    ),
    costs.PURE_CURVE: _Pair(
        lambda _: 0.0,
        lambda x: (math.exp(-x) / (1 + math.exp(-x)), 1 / (1 + math.exp(-x))),
        lambda below, x: -below.expm1() / (1 + (-x).exp()),
        costs.pure_epsilon,
        lambda a, x: (1 + (-(1 + 2 * a) * x).exp()) / (1 + (-x).exp()),
        are_worst_filled=False,
    ),
}


@dataclass(frozen=True)
class PrivacyProfile:
    """The proved (epsilon, delta) for one person after one release, or several.

    Made by `privacy_profile`, `PrivacyProfile.of` and `compose`.

    Parameters
    ----------
    parts
        (mechanism, pure epsilon of one release, number of such releases), once for each kind of release. A discrete
        Gaussian has the shift over the deviation of its noise instead of the pure epsilon. Its number need not be
        whole, as only the sum of the squared shifts matters.
    rho
        The cost of all releases in rho. The parts may cost more, as they combine cases of a person's spread rows.
    spent_delta
        The sum of the deltas that releases of keys spend in addition.
    """

    parts: Parts
    rho: Fraction
    spent_delta: Fraction = Fraction(0)

    @classmethod
    def of(cls, releases: Iterable[Release]) -> PrivacyProfile:
        """Return the profile of all `releases`: claims, or pairs of a pure epsilon and a mechanism."""
        counts: dict[tuple[Mechanism, Fraction], int | Fraction] = defaultdict(int)
        relations, rho, spent_delta = set(), Fraction(0), Fraction(0)
        for position, release in enumerate(releases):
            if isinstance(release, Claim):
                relations.add(release.neighboring_relation)
                rho, spent_delta = rho + release.cost("rho"), spent_delta + release.delta
                for loss, times in _worst_spread(release):
                    counts[release._charged_as, loss] += times
            elif not isinstance(release, tuple) or len(release) != 2:
                msg = (
                    f"releases[{position}] must be a claim or a pair (epsilon, mechanism), got {given(release)}.\n\n"
                    'Hint: expr.query.claim, or (0.1, "permute_and_flip").'
                )
                raise TypeError(msg)
            else:
                chosen = check_mechanism("choice", release[1], "epsilon")
                loss = positive_loss("epsilon", release[0])
                rho += costs.scaled_cost("rho", chosen, loss, ONE_RELEASE)
                counts[chosen, loss] += 1
        named = sorted(relation for relation in relations if relation is not None)
        if len(named) > 1:
            msg = (
                f"releases must all be for one neighboring_relation, got {named}.\n\n"
                "Hint: losses of different relations do not add up."
            )
            raise ValueError(msg)
        if not counts:
            msg = "releases must hold at least one release, got none."
            raise ValueError(msg)
        return cls(tuple((mechanism, loss, n) for (mechanism, loss), n in counts.items()), rho, spent_delta)

    def compose(self, times: int) -> PrivacyProfile:
        """Return the profile of `times` times these releases. They may be chosen adaptively."""
        count = positive_int("times", times)
        parts = tuple((mechanism, loss, n * count) for mechanism, loss, n in self.parts)
        return PrivacyProfile(parts, self.rho * count, self.spent_delta * count)

    def delta(self, epsilon: Number) -> float:
        """Return the least delta that is proved for `epsilon` (0 or more)."""
        exact = as_fraction("epsilon", epsilon)
        if not exact >= 0:
            msg = f"epsilon must be at least 0, got {epsilon!r}."
            raise ValueError(msg)
        of_losses = self._delta_of_losses(exact)
        if not self.spent_delta:
            return of_losses
        rest = (1 - self.spent_delta) * Fraction(of_losses)
        return min(1.0, float_up(self.spent_delta + rest)) if self.spent_delta < 1 else 1.0

    def _delta_of_losses(self, exact: Fraction) -> float:
        pure = self._pure()
        if pure is not None and exact >= pure:
            return 0.0
        proved = min(costs.zcdp_delta(self.rho, exact), costs.renyi_delta(self._log_moment, self.rho, exact))
        if _shift_of(self.parts) == math.inf:
            return proved
        if self._is_gaussian():
            return min(proved, _gaussian_delta(_shift_of(self.parts), float(exact)))
        if self._is_single():  # one dominating pair, at an epsilon below the pure one
            mechanism, loss, _ = self.parts[0]
            with precision(_BITS):
                return min(proved, costs.float_above(_pair_of(mechanism).delta(ball(exact - loss), ball(loss))))
        composed = float(_composed(self.parts).get_delta_for_epsilon(_below(exact))) * _SLACK
        return min(proved, max(composed + self._rounding(), _SMALLEST_DELTA))

    def epsilon(self, delta: Number) -> float:
        """Return the least proved epsilon for `delta` (0 or more, below 1); infinity if keys spent more."""
        exact = costs.delta_left(check_delta(delta), self.spent_delta)
        return math.inf if exact is None else self._epsilon_of_losses(exact)

    def _epsilon_of_losses(self, exact: Fraction) -> float:
        pure, wanted = self._pure(), _below(exact)
        if wanted <= 0:
            return math.inf if pure is None else float_up(pure)
        proved = min(costs.zcdp_epsilon(self.rho, wanted), costs.renyi_epsilon(self._log_moment, self.rho, wanted))
        if _shift_of(self.parts) == math.inf:
            return proved
        if self._is_gaussian():
            return min(proved, _gaussian_epsilon(_shift_of(self.parts), wanted))
        if self._is_single() and wanted >= self._delta_of_losses(Fraction(0)):
            return 0.0
        if self._is_single():
            with precision(_BITS):
                mechanism, loss, _ = self.parts[0]
                proved = min(proved, _pair_of(mechanism).epsilon(loss, exact))
        elif wanted >= _SMALLEST_DELTA:
            proved = min(proved, self._composed_epsilon(max(0.0, wanted - self._rounding())))
        return proved if pure is None else min(float_up(pure), proved)

    def _log_moment(self, a: arb) -> arb:
        """Return `a` times a bound on the Rényi divergence of order 1 + a: of each part its pair's, or by its rho."""
        total = ball(Fraction(0))
        for mechanism, loss, n in self.parts:
            curve = costs.PROOFS[mechanism].curve
            log = a * (1 + a) * ball(_rho_of(curve, loss))
            if curve.is_pure:
                x = ball(loss)
                log = log.min(a * x + _pair_of(mechanism).moment(a, x).log())
            total += ball(Fraction(n)) * log
        return total

    def _composed_epsilon(self, delta: float) -> float:
        """Return an epsilon at which the parts have at most that delta, up to `_rounding`.

        The library searches by subtracting steps of the grid one by one, and that rounding adds up.
        """
        composed = _composed(self.parts)
        epsilon = float(composed.get_epsilon_for_delta(delta)) * _SLACK
        more = max(epsilon, 1.0) * 1e-12
        while epsilon < math.inf and composed.get_delta_for_epsilon(epsilon) * _SLACK > delta:
            epsilon, more = epsilon + more, 2 * more
        return epsilon

    def _rounding(self) -> float:
        """Return the most by which floats may lower a delta when parts are composed."""
        return _ROUNDING * (len(self.parts) + sum(n for _, _, n in self.parts) / 1000)

    def _is_single(self) -> bool:
        return len(self.parts) == 1 and self.parts[0][2] == 1

    def _is_gaussian(self) -> bool:
        return not any(costs.PROOFS[mechanism].curve.is_pure for mechanism, _, _ in self.parts)

    def _pure(self) -> Fraction | None:
        if not all(costs.PROOFS[mechanism].curve.is_pure for mechanism, _, _ in self.parts):
            return None
        return sum((loss * n for _, loss, n in self.parts), Fraction(0))


@lru_cache(maxsize=1024)
def _rho_of(curve: costs.Curve, loss: Fraction) -> Fraction:
    return curve.rho(loss)


def _pair_of(mechanism: Mechanism) -> _Pair:
    return _PAIRS[costs.PROOFS[mechanism].curve]


def _worst_spread(claim: Claim) -> list[tuple[Fraction, int | Fraction]]:
    """Return the losses of pairs that dominate all draws, with their numbers, for any spread of a person's rows.

    For both choices, full groups and a rest are the worst (`docs/proofs/spreads.md`). For randomized response it is all
    rows in one group, as nothing of the same pure loss is worse. For noise and a person in another's place: Theorem 6.
    """
    if not claim._has_epsilon:
        return [(move, int(n) if n == int(n) else n) for move, n in claim._moves]
    row, spread, times = claim.rate * claim.score_range, claim.contributions, claim._draws
    if claim._same_group == costs.HALF and claim._draws == 1:  # rows of the old person and of the new one, each by half
        row, times = row / 2, 2
    parts = [(row * spread.per_group, times * spread.full_groups), (row * spread.rest, times)]
    if not _pair_of(claim._charged_as).are_worst_filled:
        if spread.per_group > 1:
            parts = [(row * spread.total, times)]
        if claim._same_group < costs.ALL and (pure := claim.cost("epsilon")) < sum(x * n for x, n in parts):
            parts = [(pure, 1)]
    return [(x, n) for x, n in parts if x]


@called
def privacy_profile(epsilon: Number, mechanism: Mechanism | None = None) -> PrivacyProfile:
    """Return delta as a function of epsilon for one release that is `epsilon`-DP.

    Proof: :doc:`/proofs/composition`.

    Parameters
    ----------
    epsilon
        The pure loss of the release, above 0.
    mechanism
        "permute_and_flip" (the default): delta(t) = 1 − exp((t − epsilon)/2), which two candidates attain exactly.
        "exponential": delta(t) = (1 − exp((t − epsilon)/2))² / (1 − exp(−epsilon)), the optimal profile of bounded
        range epsilon (Dong, Durfee & Rogers 2020, arXiv 1909.13830).

    Returns
    -------
    PrivacyProfile
        With the methods `delta(epsilon)`, `epsilon(delta)` and `compose(times)`.

    Examples
    --------
    >>> profile = privacy_profile(1)
    >>> round(profile.delta(0.5), 4), round(profile.epsilon(1e-6), 6)
    (0.2212, 0.999998)
    """
    return PrivacyProfile.of([(epsilon, check_mechanism("choice", mechanism, "epsilon"))])


@called
def compose(releases: Iterable[Release], *, delta: Number) -> float:
    """Return an epsilon that is proved for many releases together, at `delta`.

    Proof: :doc:`/proofs/composition`.

    Parameters
    ----------
    releases
        At least one. Claims (with the loss of one person's rows in all groups), or pairs of a pure epsilon and a
        mechanism ("permute_and_flip", "exponential"). They may depend on earlier answers. Their losses and mechanisms
        must not: the list is fixed before the first draw. `Budget` needs no such list.
    delta
        0 or more, below 1. 0 gives the sum of the pure losses.

    Returns
    -------
    float
        The smallest epsilon from any of these proofs:

        - the sum of the pure losses;
        - zCDP, and the Rényi divergences of the dominating pairs (Canonne, Kamath & Steinke 2020, arXiv 2004.00010,
          Corollary 13 and Proposition 12);
        - for delta from 1e-10 on, the privacy loss distributions of the dominating pairs, rounded up to a grid and
          composed by Google's ``dp_accounting`` (extra ``accounting``);
        - for only discrete Gaussians, the profile of a continuous one that is a little narrower, at every delta (Balle
          & Wang 2018, arXiv 1805.06530).

        With a discrete Gaussian among the releases, delta 0 gives infinity. If one of them finds keys, or has a rho
        above 4.5, only zCDP and Rényi divergences apply. Deltas that releases of keys spend are subtracted from `delta`
        first. `tests/analysis/test_never_above.py` compares 1,000 lists with the proofs of other accountants.

    Examples
    --------
    >>> round(compose([(0.1, "permute_and_flip")] * 100, delta=1e-6), 2)
    4.69
    """
    return PrivacyProfile.of(releases).epsilon(delta)


# Lattices are checked one by one up to this x. Below the smallest, all of them suffice.
_SMALLEST_X, _LARGEST_X = 0.005, 3.0
_MOST_GAUSSIANS = 10**8
_TAIL = 13.5  # thresholds beyond this number of deviations are left out, also after the shift


def _shift_of(parts: Parts) -> float:
    """Return the shift of the continuous Gaussian that dominates the Gaussian parts: the norm of theirs, widened."""
    gaussians = [part for part in parts if not costs.PROOFS[part[0]].curve.is_pure]
    if any(mechanism != "discrete_gaussian" for mechanism, _, _ in gaussians):  # keys: only their rho is used
        return math.inf
    if sum(n for _, _, n in gaussians) > _MOST_GAUSSIANS:
        return math.inf
    return math.sqrt(sum(n * _widest_of(float_up(loss)) ** 2 for _, loss, n in gaussians)) * _SLACK


@lru_cache(maxsize=1024)
def _widest_of(x: float) -> float:
    """Return the least shift, over the deviation, of a continuous Gaussian that dominates discrete ones with shift x.

    `docs/proofs/composition.md`, Theorem 6. Tails and factors add less than `_TAILS` to a delta of up to 10⁸ releases.
    """
    if x > _LARGEST_X:
        return math.inf
    if x < _SMALLEST_X:
        return _of_fine(x, 1) * _SLACK
    widest, steps = 0.0, 1
    while 2 * x >= steps or _of_fine(x, steps) > widest:  # at most seven: one step nearly always needs the most
        h = x / steps
        last = math.ceil((_TAIL + x) / h) + 2
        masses = np.exp(-((np.arange(2 * last) * h) ** 2) / 2)
        above = np.cumsum(masses[::-1])[::-1][: last + 1]  # at k and above, for k = 0, 1, …
        points = np.array([-NormalDist().inv_cdf(p) for p in (above[1:] / (above[0] + above[1])).tolist()])
        widest, steps = max(widest, steps * float(np.diff(points, prepend=-points[0]).max())), steps + 1
    return widest * (1 + 1e-9)


def _of_fine(x: float, steps: int) -> float:
    """Return a shift that is enough for lattices of this number of steps, or more: above 2x of them."""
    return x / math.sqrt(1 - (2 * x / steps) ** 2)


def _gaussian_delta(shift: float, epsilon: float) -> float:
    """Return the delta of Gaussian noise (Balle & Wang 2018, arXiv 1805.06530, Theorem 8), rounded up."""
    with precision(_BITS):
        mu, t = ball(Fraction(shift)), ball(Fraction(epsilon))
        root = ball(Fraction(2)).sqrt()
        below, beyond = ((t / mu - mu / 2) / root).erfc() / 2, ((t / mu + mu / 2) / root).erfc() / 2
        return min(1.0, costs.float_above(below - t.exp() * beyond) * _SLACK + _TAILS)


def _gaussian_epsilon(shift: float, delta: float) -> float:
    if delta <= 2 * _TAILS:
        return math.inf
    if _gaussian_delta(shift, 0.0) <= delta:
        return 0.0
    low, high = 0.0, shift**2 / 2 + shift * math.sqrt(-2 * math.log(delta / 2)) + 1  # here it is at most that
    while high - low > 1e-13 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if _gaussian_delta(shift, middle) <= delta else (middle, high)
    return high


def _below(value: Fraction) -> float:
    return -float_up(-value)


@lru_cache(maxsize=16)
def _composed(parts: Parts) -> Any:  # noqa: ANN401 (dp_accounting has no types)
    """Return dp_accounting's privacy loss distribution of all parts together, pessimistic."""
    library = require("dp_accounting.pld.privacy_loss_distribution", extra="accounting")
    shift, pure = _shift_of(parts), [part for part in parts if costs.PROOFS[part[0]].curve.is_pure]
    total = float(sum(loss * n for _, loss, n in pure)) + _WIDTH * shift
    step = max(float(min(loss for _, loss, _ in pure)) / _STEPS, total / _MOST_STEPS)
    result = library.identity(value_discretization_interval=step)
    if shift:
        result = library.from_gaussian_mechanism(1 / shift, value_discretization_interval=step)
    for mechanism, loss, n in pure:
        masses = _rounded_losses(mechanism, float(loss), step)
        several = library.PrivacyLossDistribution.create_from_rounded_probability(masses, 0.0, step).self_compose(n)
        result = result.compose(several)
    return result


def _rounded_losses(mechanism: Mechanism, x: float, step: float) -> dict[int, float]:
    """Return the privacy loss of the dominating pair, moved to multiples of `step`.

    The mass at a loss s goes to the two multiples around it, and both distributions of the pair keep their masses. That
    can only make a pair worse, and it is the least of all ways to do so (Doroshenko et al. 2022, arXiv 2207.04380).
    """
    last = math.ceil(x / step)
    low = np.arange(-last, last) * step
    a, b = np.clip(low, -x, x), np.clip(low + step, -x, x)
    pair = _pair_of(mechanism)
    weight = pair.weight(x)
    mass = weight * np.exp((a - x) / 2) * np.expm1((b - a) / 2)
    # The upper multiple's part of a loss s is (1 − exp(low − s))/(1 − exp(−step)), here integrated from a to b.
    upper = weight * 4 * np.exp((low - x) / 2) * np.sinh((a + b - 2 * low) / 4) * np.sinh((b - a) / 4)
    for index, s, atom in zip((0, -1), (-x, x), pair.atoms(x), strict=True):
        mass[index] += atom
        upper[index] += atom * -math.expm1(low[index] - s)
    upper /= -math.expm1(-step)
    at = np.zeros(2 * last + 1)
    at[:-1] += np.maximum(mass - upper, 0.0)
    at[1:] += upper
    return dict(zip(range(-last, last + 1), at.tolist(), strict=True))
