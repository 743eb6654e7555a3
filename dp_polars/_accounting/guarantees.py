"""A guarantee of (epsilon, delta), for releases in either unit. Proof: `docs/proofs/guarantees.md`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from fractions import Fraction
from functools import reduce
from typing import NamedTuple, TypeAlias

from dp_polars._accounting import costs, gaussians
from dp_polars._accounting.claims import Claim
from dp_polars._accounting.terms import BudgetExceededError, Remaining, Unit, argument
from dp_polars._base.numbers import error_up, float_up, rounded_down

Ends: TypeAlias = "tuple[datetime, datetime] | None"

# Significant decimals of the order less one, and of the largest rho. Rounding the order hardly matters near the best.
_DIGITS_OF_ORDER, _DIGITS_OF_RHO = 5, 10


@dataclass(frozen=True)
class Guarantee:
    """The (epsilon, delta) guarantee of all releases together."""

    epsilon: Fraction
    delta: Fraction
    keys_delta: Fraction  # the part of delta for keys, from 0 to `delta`
    order: Fraction  # α, above 1: the order of the divergences that are added up
    # The largest rho that fits by itself: divergences may add up to α·rho. 0: only pure releases fit.
    rho: Fraction
    # Whether the part for keys was given. Otherwise the first release fixes it.
    is_said: bool = field(default=False, compare=False)
    is_closed: bool = False  # whether one release took all of it

    @classmethod
    def of(cls, epsilon: Fraction, delta: Fraction, keys_delta: Fraction | None = None) -> Guarantee:
        """Return a guarantee with the order that fits the largest rho; half of delta is for keys by default."""
        for_keys, is_said = delta / 2 if keys_delta is None else keys_delta, keys_delta is not None
        left = costs.delta_left(delta, for_keys)
        if not left:
            return cls(epsilon, delta, for_keys, Fraction(2), Fraction(0), is_said)
        order = 1 + rounded_down(Fraction(costs.best_order(epsilon, left)), _DIGITS_OF_ORDER)
        most = costs.divergence_for(epsilon, left, order)
        rho = rounded_down(most / order, _DIGITS_OF_RHO) if most > 0 else Fraction(0)
        return cls(epsilon, delta, for_keys, order, rho, is_said)

    def part(self, epsilon: Fraction, delta: Fraction) -> Guarantee:
        """Return a guarantee with other numbers and the same part of delta for keys; itself for its own numbers."""
        if (epsilon, delta) == (self.epsilon, self.delta):
            return self
        return Guarantee.of(epsilon, delta, delta * self.keys_delta / self.delta)

    @property
    def without_keys(self) -> Guarantee:
        """The guarantee if its first release takes all and selects no keys; itself if the keys' part was given."""
        return self if self.is_said else replace(Guarantee.of(self.epsilon, self.delta, Fraction(0)), is_said=False)

    def fixed_by(self, claims: Sequence[Claim]) -> Guarantee:
        """Return the guarantee that its first release fixes.

        A release that does not fit with a part for keys may fit without it.
        Gaussian noise may take all of the guarantee, by its own proof: then nothing else is ever released.
        `docs/proofs/guarantees.md`, Theorems 1 and 4.
        """
        only_losses = self.without_keys
        for one in (self, only_losses):
            if one.fits(sum_of(map(one.cost, claims)), one.left(FREE)):
                return one
        return replace(only_losses, is_closed=True) if self.is_kept_by(claims) else self

    def is_kept_by(self, claims: Sequence[Claim]) -> bool:
        """Return whether discrete Gaussians satisfy the whole guarantee if nothing else is ever released."""
        if any(claim.mechanism != "discrete_gaussian" for claim in claims):
            return False
        shift = gaussians.shift_of(move for claim in claims for move in claim._moves)
        return shift is not None and gaussians.delta_of(shift, self.epsilon) <= self.delta_of_whole

    @property
    def delta_of_whole(self) -> Fraction:
        """The delta that a release may use if it takes all of the guarantee."""
        return self.delta - self.keys_delta if self.is_said else self.delta

    @property
    def divergence(self) -> Fraction:
        """B: the limit for the sum of divergences of this order."""
        return self.order * self.rho

    @property
    def terms(self) -> tuple[object, ...]:
        """The guarantee without its order."""
        return "epsilon", self.epsilon, self.delta

    def is_opened_as(self, other: Guarantee | Sums) -> bool:
        """Return whether a budget with these numbers may open a ledger with the other's."""
        if not isinstance(other, Guarantee) or self.terms != other.terms:
            return False
        return not self.is_said or self.keys_delta == other.keys_delta

    def __str__(self) -> str:
        text = f"epsilon={argument(self.epsilon)}, delta={argument(self.delta)}"
        is_half = 2 * self.keys_delta == self.delta
        return text if is_half or not self.is_said else f"{text}, keys_delta={argument(self.keys_delta)}"

    def takes(self, claim: Claim) -> bool:  # noqa: ARG002
        """Return whether such a claim is accepted, if enough is left."""
        return True

    def cost(self, claim: Claim) -> Cost:
        loss, rho = claim.cost("epsilon") if claim._has_epsilon else None, claim.cost("rho")
        return Cost(loss, self.order * rho if loss is None else min(loss, self.order * rho), claim.delta)

    def written(self, claim: Claim) -> tuple[Unit, Fraction, Fraction | None]:
        return claim.loss.unit, claim.loss.value, claim.cost("rho")

    def left(self, spent: Cost) -> Cost:
        """Return the largest epsilon, divergence and delta that still fit after some spending."""
        divergence = max(self.divergence - spent.divergence, Fraction(0))
        # A pure release's divergence is at most its epsilon.
        pure = divergence if spent.loss is None else max(self.epsilon - spent.loss, divergence)
        return Cost(pure, divergence, self.keys_delta - spent.delta)

    def fits(self, cost: Cost, left: Cost) -> bool:
        return (_is_within(cost.loss, left.loss) or cost.divergence <= left.divergence) and cost.delta <= left.delta

    def remaining(self, left: Cost) -> Remaining:
        return Remaining(left.loss, left.divergence / self.order)

    def refusal(self, requested: Cost, left: Cost, path: str | None, charged: Ends) -> BudgetExceededError:
        in_rho = (requested.divergence / self.order, left.divergence / self.order)
        deltas = (requested.delta, left.delta)
        if requested.loss is None or left.loss is None:
            return BudgetExceededError(*in_rho, "rho", *deltas, path, charged, *in_rho)
        return BudgetExceededError(requested.loss, left.loss, "epsilon", *deltas, path, charged, *in_rho)

    def epsilon_at(self, delta: Fraction, spent: Cost, rho: Fraction) -> costs.EpsilonAt:
        """Return an epsilon at another delta, for the spending (in total `rho`) and for the whole guarantee."""
        proved = [costs.epsilon_at("rho", rho, delta, spent.delta)]
        if self.is_closed:
            proved += [float_up(self.epsilon)] * (delta >= self.delta)
            return costs.EpsilonAt(min(proved), min(proved))
        if spent.loss is not None:
            proved.append(costs.epsilon_at("epsilon", spent.loss, delta, spent.delta))
        left = costs.delta_left(delta, spent.delta)
        if left and spent.divergence:
            proved.append(costs.epsilon_of_divergence(spent.divergence, left, self.order))
        total = self._total_at(delta)
        if spent == FREE:  # a single release may still take all of it
            total = max(total, self.without_keys._total_at(delta), self._whole_at(delta))
        return costs.EpsilonAt(min(proved), total)

    def _whole_at(self, delta: Fraction) -> float:
        """Return an epsilon at another delta for any release that takes all of the guarantee by `is_kept_by`."""
        if delta >= self.delta:
            return float_up(self.epsilon)
        least = gaussians.epsilon_of(gaussians.largest_shift(self.epsilon, self.delta), delta)
        return math.inf if least is None else float_up(least)

    def _total_at(self, delta: Fraction) -> float:
        """Return the proof's epsilon with another delta in place of the guarantee's."""
        pure = float_up(self.epsilon)
        if delta >= self.delta:
            return pure
        left = costs.delta_left(delta, self.keys_delta)
        if left is not None and self.rho == 0:
            return pure
        return max(pure, costs.epsilon_of_divergence(self.divergence, left, self.order)) if left else math.inf


@dataclass(frozen=True)
class Sums:
    """One sum of losses in a unit, and one of deltas; `delta` is None if no release may spend any."""

    unit: Unit
    total: Fraction
    delta: Fraction | None

    @property
    def terms(self) -> tuple[object, ...]:
        return self.unit, self.total, self.delta

    def is_opened_as(self, other: Guarantee | Sums) -> bool:
        """Return whether a budget with these numbers may open a ledger with the other's."""
        return self == other

    def fixed_by(self, claims: Sequence[Claim]) -> Sums:  # noqa: ARG002
        """Return the sums themselves: no release changes the guarantee."""
        return self

    def __str__(self) -> str:
        total = f"{self.unit}={argument(self.total)}"
        return total if self.delta is None else f"{total}, delta={argument(self.delta)}"

    def takes(self, claim: Claim) -> bool:
        """Return whether such a claim is accepted, if enough is left."""
        return claim._has_epsilon or self.unit == "rho"

    def cost(self, claim: Claim) -> Cost:
        return Cost(claim.cost(self.unit), Fraction(0), claim.delta)

    def written(self, claim: Claim) -> tuple[Unit, Fraction, Fraction | None]:
        return self.unit, claim.cost(self.unit), None

    def left(self, spent: Cost) -> Cost:
        return Cost(self.total - (spent.loss or 0), Fraction(0), (self.delta or Fraction(0)) - spent.delta)

    def fits(self, cost: Cost, left: Cost) -> bool:
        return _is_within(cost.loss, left.loss) and cost.delta <= left.delta

    def remaining(self, left: Cost) -> Remaining:
        return Remaining(left.loss, None) if self.unit == "epsilon" else Remaining(None, left.loss)

    def refusal(self, requested: Cost, left: Cost, path: str | None, charged: Ends) -> BudgetExceededError:
        gone, left_of_delta = (None, None) if self.delta is None else (requested.delta, left.delta)
        loss, remaining = (one.loss or Fraction(0) for one in (requested, left))
        return BudgetExceededError(loss, remaining, self.unit, gone, left_of_delta, path, charged)

    def epsilon_at(self, delta: Fraction, spent: Cost, rho: Fraction) -> costs.EpsilonAt:  # noqa: ARG002
        gone = costs.epsilon_at(self.unit, spent.loss or Fraction(0), delta, spent.delta)
        return costs.EpsilonAt(gone, costs.epsilon_at(self.unit, self.total, delta, self.delta or Fraction(0)))


class Cost(NamedTuple):
    loss: Fraction | None  # in the unit of the total; None: a guarantee's epsilon, for a release without one
    divergence: Fraction  # of the guarantee's order; 0 for sums
    delta: Fraction  # spent on keys

    def plus(self, other: Cost) -> Cost:
        """Return the joint cost: without an epsilon for one, there is none for both."""
        loss = None if self.loss is None or other.loss is None else self.loss + other.loss
        return Cost(loss, self.divergence + other.divergence, self.delta + other.delta)


FREE = Cost(Fraction(0), Fraction(0), Fraction(0))


def sum_of(costs: Iterable[Cost]) -> Cost:
    return reduce(Cost.plus, costs, FREE)


class State(NamedTuple):
    """A budget's guarantee, and what is spent of it, at a moment."""

    account: Guarantee | Sums
    spent: Cost
    is_fresh: bool  # whether nothing was ever charged

    @property
    def left(self) -> Cost:
        return self.account.left(self.spent)

    @property
    def remaining(self) -> Remaining:
        return self.account.remaining(self.left)

    @property
    def guarantee(self) -> Guarantee | None:
        """The guarantee of (epsilon, delta), with the largest rho that fits into all of it. None: another budget."""
        return self.account if isinstance(self.account, Guarantee) else None

    def has_room(self, claims: Iterable[Claim]) -> bool:
        """Return whether a release with these claims would fit."""
        claims = list(claims)
        if not all(map(self.account.takes, claims)):
            return False
        account = self.account.fixed_by(claims) if self.is_fresh else self.account
        return account != self.account or account.fits(sum_of(map(account.cost, claims)), self.left)


def _is_within(loss: Fraction | None, left: Fraction | None) -> bool:
    return loss is not None and left is not None and loss <= left


class UnitTaken(NamedTuple):
    """The unit that was chosen for a guarantee."""

    guarantee: str | None  # the guarantee, for people; None: it follows from the losses
    words: str  # the guarantee, the unit, and the reason for it
    other: Unit  # the other unit
    # Each output's `error_95` there, for a mean without `rows` in groups of 1,000. None: unknown.
    errors: tuple[float | None, ...]

    def part(self, first: int, number: int) -> UnitTaken:
        return self._replace(errors=self.errors[first : first + number])

    def note(self, output: int, *, needs_rows: bool) -> str | None:
        """Return an output's error in the other unit; for a mean without `rows`, for 1,000 rows."""
        error = self.errors[output]
        if error is None:
            return None
        return f"In {self.other} {'1,000 rows: ±' if needs_rows else 'error_95 would be '}{error_up(error)}."
