"""What accountants prove of the same plan: this package, dp_accounting's two, OpenDP, and exact convolution.

A plan is a list of releases that are fixed beforehand, and a δ. All answers are an ε: the less, the better.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property
from typing import Any

import numpy as np

from dp_polars._accounting.claims import Claim
from dp_polars._accounting.terms import Contributions, Loss
from dp_polars.analysis import PrivacyProfile
from tests.helpers.needs import need

# How many steps of the noise a row of a "sum" is worth, the δ of a release of "keys", and a person's bounds in "rows".
STEPS, KEYS_DELTA, BOUNDS = 10, Fraction(1, 10**9), Contributions(3, 2)
SPREADS = ((2, 1), (1, 1, 1))


@dataclass(frozen=True)
class Part:
    """The same release, so many times: its kind, and its loss (ε; of "gaussian" a ρ)."""

    kind: str
    loss: Fraction
    times: int

    @property
    def claim(self) -> Claim:
        mechanism, score_range, bounds = {
            "permute_and_flip": ("permute_and_flip", 1, Contributions(1, 1)),
            "exponential": ("exponential", 1, Contributions(1, 1)),
            "count": ("discrete_laplace", 1, Contributions(1, 1)),
            "sum": ("discrete_laplace", STEPS, Contributions(1, 1)),
            "rows": ("discrete_laplace", 1, BOUNDS),
            "gaussian": ("discrete_gaussian", 1, Contributions(1, 1)),
            "keys": ("partition_selection", 1, Contributions(1, 1)),
            "first_above": ("first_above", 2, Contributions(1, 1)),
        }[self.kind]
        unit = "rho" if self.kind == "gaussian" else "epsilon"
        delta = KEYS_DELTA if self.kind == "keys" else Fraction(0)
        return Claim(Loss(self.loss, unit), mechanism, Fraction(score_range), bounds, "add_or_remove_one", delta=delta)

    @property
    def pure(self) -> float:
        return math.inf if self.kind == "gaussian" else float(self.loss)

    @property
    def width(self) -> float:
        """About the largest loss of one release: of a discrete Gaussian, at ten deviations."""
        return 10 * math.sqrt(2 * float(self.loss)) if self.kind == "gaussian" else float(self.loss)

    def distribution(self, step: float, spread: Sequence[int]) -> Any:
        """Return dp_accounting's privacy loss distribution of one release, by its nearest constructor."""
        pld = need("dp_accounting.pld.privacy_loss_distribution")
        parameters = need("dp_accounting.pld.common").DifferentialPrivacyParameters
        x = float(self.loss)

        def pure(loss: float, delta: float = 0.0) -> Any:
            return pld.from_privacy_parameters(parameters(loss, delta), value_discretization_interval=step)

        dots = {"value_discretization_interval": step, "use_connect_dots": True}
        match self.kind:
            case "permute_and_flip":
                return pld.from_laplace_mechanism(1 / x, **dots)
            case "count":
                return pld.from_discrete_laplace_mechanism(x, 1, **dots)
            case "sum":
                return pld.from_discrete_laplace_mechanism(x / STEPS, STEPS, **dots)
            case "gaussian":
                return pld.from_discrete_gaussian_mechanism(1 / math.sqrt(2 * x), 1, **dots)
            case "keys":
                return pure(x, float(KEYS_DELTA))
            case "rows":
                groups = [pld.from_discrete_laplace_mechanism(x * n / 3, 1, **dots) for n in spread]
                result = groups[0]
                for group in groups[1:]:
                    result = result.compose(group)
                return result
            case _:  # no more is known than a pure loss
                return pure(x)

    def divergences(self, orders: np.ndarray) -> np.ndarray:
        """Return the Rényi divergences by which dp_accounting's newest commit charges one release."""
        x = float(self.loss)
        match self.kind:
            case "permute_and_flip":  # Mironov 2017, arXiv 1702.07476, Proposition 6
                return x + np.log1p((orders - 1) * np.expm1((1 - 2 * orders) * x) / (2 * orders - 1)) / (orders - 1)
            case "exponential":  # Cesar & Rogers 2021, arXiv 2004.07223, section 3
                y = x / math.expm1(x)
                return np.minimum(y - 1 - math.log(y) + x**2 / 8 * (orders - 1), x)
            case "gaussian":
                return x * orders
            case _:  # randomized response
                return np.logaddexp(x * orders, x * (1 - orders)) / (orders - 1) - np.logaddexp(0, x) / (orders - 1)

    def opendp_rho(self) -> float:
        """Return the ρ that OpenDP charges for one release."""
        dp = need("opendp.prelude")
        dp.enable_features("contrib")
        x = float(self.loss)
        if self.kind == "gaussian":
            return x
        if self.kind == "exponential":
            scores = dp.vector_domain(dp.atom_domain(T=float, nan=False))
            distance = dp.linf_distance(T=float, monotonic=True)
            measure = dp.zero_concentrated_divergence()
            return dp.m.make_noisy_max(scores, distance, measure, scale=1 / x).map(1.0)
        noise = dp.m.make_laplace(dp.atom_domain(T=int), dp.absolute_distance(T=int), scale=1 / x)
        return dp.c.make_pureDP_to_zCDP(noise).map(1)


@dataclass(frozen=True)
class Plan:
    """Releases, whatever their order."""

    parts: tuple[Part, ...]

    def __str__(self) -> str:
        return " + ".join(f"{part.times} × {part.kind} {float(part.loss):g}" for part in self.parts)

    @property
    def kinds(self) -> set[str]:
        return {part.kind for part in self.parts}

    @cached_property
    def profile(self) -> PrivacyProfile:
        return PrivacyProfile.of([part.claim for part in self.parts for _ in range(part.times)])

    @property
    def spent_delta(self) -> Fraction:
        return sum((part.claim.delta * part.times for part in self.parts), Fraction(0))

    @cached_property
    def least_delta(self) -> float:
        """The least δ at which there is something to prove: one without Gaussians has a pure loss."""
        return 0.0 if "keys" not in self.kinds and self.pure < math.inf else float(self.spent_delta) + 1e-300

    @property
    def pure(self) -> float:
        """Every loss added: what all of them say at δ = 0."""
        return math.fsum(part.pure * part.times for part in self.parts)

    @cached_property
    def distributions(self) -> list[Any]:
        """dp_accounting's privacy loss distributions, one for each spread of rows: the worst counts."""
        total = sum(part.width * part.times for part in self.parts)
        # Steps at least as fine as its default, 1e-4, and as those of this package, unless there would be too many.
        step = max(min(1e-4, min(part.width for part in self.parts) / 1000), total / 400_000)
        return [self._composed(step, spread) for spread in (SPREADS if "rows" in self.kinds else SPREADS[:1])]

    def _composed(self, step: float, spread: Sequence[int]) -> Any:
        result = None
        for part in self.parts:
            several = part.distribution(step, spread).self_compose(part.times)
            result = several if result is None else result.compose(several)
        return result

    def by_distributions(self, delta: float) -> float:
        return max(one.get_epsilon_for_delta(delta) for one in self.distributions)

    def by_divergences(self, delta: float) -> float:
        """Return what dp_accounting's Rényi accountant proves, with its orders, composing one by one."""
        rdp = need("dp_accounting.rdp.rdp_privacy_accountant")
        orders = np.array(rdp.DEFAULT_RDP_ORDERS)
        total = sum(part.times * part.divergences(orders) for part in self.parts)
        left = (delta - float(self.spent_delta)) / (1 - float(self.spent_delta))
        return rdp.compute_epsilon(orders, total, left)[0]

    def by_opendp(self, delta: float) -> float:
        """Return the less of what OpenDP proves by pure losses, and by its ρs."""
        rho = math.fsum(part.opendp_rho() * part.times for part in self.parts)
        left = (delta - float(self.spent_delta)) / (1 - float(self.spent_delta))
        return min(self.pure, opendp_zcdp(rho, left))

    def by_others(self, delta: float) -> dict[str, float]:
        if delta == 0:
            return {"pure": self.pure}
        ways = {"PLD": self.by_distributions, "Rényi": self.by_divergences, "OpenDP": self.by_opendp}
        return {name: way(delta) for name, way in ways.items()}


def opendp_zcdp(rho: float, delta: float) -> float:
    """Return what OpenDP proves of ρ-zCDP at a δ."""
    dp = need("opendp.prelude")
    dp.enable_features("contrib")
    domain = dp.atom_domain(T=float, nan=False)
    noise = dp.m.make_gaussian(domain, dp.absolute_distance(T=float), scale=1 / math.sqrt(2 * rho))
    return dp.c.make_zCDP_to_approxDP(noise).map(1.0).epsilon(delta)


DELTAS = (0.0, 1e-12, 1e-9, 1e-6, 1e-3)
_KINDS = ("permute_and_flip", "exponential", "count", "sum", "gaussian", "keys", "first_above", "rows")
_LOSSES = tuple(Fraction(x) for x in ("0.01", "0.1", "0.5", "2"))
_TIMES = (1, 3, 10, 100)
_MOST = 60  # a sum of pure losses


def _size(kind: str, x: Fraction) -> Fraction:
    return x**2 / 2 if kind == "gaussian" else x


def plans() -> Iterator[tuple[Plan, float]]:
    """Yield the 1,000 plans: of one kind, of two and of all."""
    single = [
        Plan((Part(kind, _size(kind, x), times),))
        for kind, x, times in itertools.product(_KINDS, _LOSSES, _TIMES)
        if x * times <= _MOST
    ]
    pairs = [
        Plan((Part(one, _size(one, x), times), Part(other, _size(other, 3 * x), 4)))
        for (one, other), (x, times) in itertools.product(
            itertools.permutations(_KINDS[:6], 2),
            ((Fraction(1, 10), 30), (Fraction(1, 4), 6), (Fraction(1), 2), (Fraction(1, 50), 10)),
        )
    ]
    rest = [
        Plan(tuple(Part(kind, _size(kind, x), times) for kind in _KINDS[:-1] if kind not in left_out))
        for x, times, left_out in itertools.product(
            (Fraction(1, 20), Fraction(1, 5), Fraction(1, 2), Fraction(1)),
            (1, 4),
            ((), ("gaussian",), ("sum",), ("sum", "gaussian")),
        )
    ]
    every = itertools.product((*single, *rest, *pairs), DELTAS)
    yield from itertools.islice(((plan, delta) for plan, delta in every if delta >= plan.least_delta), 1000)


# Why a plan may cost more than the best of the others proves, in the order in which they are asked; and by which factor
# at most. Elsewhere it is only the grids of losses that differ.
GRIDS = 1 + 1e-6
REASONS = {
    "a person's rows may spread over groups in several ways, and one pair stands for all of them": 1.37,
    "a claim does not say how many steps of the noise a row is worth, and the worst number is taken": 1.41,
    "below a δ of 1e-10 the rounding of an FFT is not bounded, and Rényi divergences take its place": 1.04,
}


def reason(plan: Plan, delta: float) -> str | None:
    rows, steps, tiny = REASONS
    if "rows" in plan.kinds:
        return rows
    if plan.kinds & {"sum", "gaussian"}:
        return steps
    return tiny if 0 < delta < 1e-10 else None


@dataclass(frozen=True)
class Found:
    """What is proved of a plan at a δ."""

    plan: Plan
    delta: float
    ours: float
    others: dict[str, float]

    @property
    def best(self) -> float:
        return min(self.others.values())

    @property
    def factor(self) -> float:
        """Ours over the best of the others: 1 where both are 0, or none is finite."""
        return 1.0 if self.ours == self.best else self.ours / self.best if self.best > 0 else math.inf

    @property
    def reason(self) -> str | None:
        return reason(self.plan, self.delta)

    @property
    def allowed(self) -> float:
        return REASONS[self.reason] if self.reason else GRIDS


@cache
def table() -> tuple[Found, ...]:
    """Return what is proved of the 1,000 plans."""
    return tuple(Found(plan, at, plan.profile.epsilon(at), plan.by_others(at)) for plan, at in plans())
