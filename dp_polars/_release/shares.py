"""What all outputs cost together, and in which unit a promise is taken."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, NamedTuple

from dp_polars._accounting.costs import epsilon_at
from dp_polars._accounting.terms import Loss
from dp_polars._base.numbers import as_fraction, show

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from dp_polars._accounting.claims import Claim
    from dp_polars._accounting.terms import Unit


# From this size on, errors are shown as whole numbers.
_WHOLE = 100


class UnitTaken(NamedTuple):
    """In which unit a promise was taken.

    Parameters
    ----------
    promise
        What was promised, for people.
    words
        The promise, the unit, and why it is this one.
    other
        The other unit.
    errors
        The `error_95` of each output there, of a mean without `rows` in groups of 1,000; None where it is not known.
    """

    promise: str
    words: str
    other: Unit
    errors: tuple[float | None, ...]

    def part(self, first: int, number: int) -> UnitTaken:
        """Return the same of some of the outputs."""
        return self._replace(errors=self.errors[first : first + number])

    def note(self, output: int, *, needs_rows: bool) -> str | None:
        """Return what the other unit would have cost an output in error; of a mean without `rows`, for 1,000 rows."""
        error = self.errors[output]
        if error is None:
            return None
        shown = f"{math.ceil(error):,}" if error >= _WHOLE else show(as_fraction("error_95", error), 3, up=True)
        return f"In {self.other} {'1,000 rows: ±' if needs_rows else 'error_95 would be '}{shown}."


# The δ at which losses of both units are compared: below one over the number of people, nearly everywhere.
_DELTA, _AT_DELTA = Fraction(1, 10**6), "at δ = 10⁻⁶"
# A budget of the other unit is named where it charges at most this share, both as ε at that δ.
_CHEAPER = 0.9


def cost(claims: Sequence[Claim], unit: Unit) -> Fraction:
    """Return what outputs cost together, in a unit."""
    return sum((times * claim.cost(unit) for claim, times in Counter(claims).items()), Fraction(0))


def loss_of(claims: Sequence[Claim]) -> Loss:
    """Return what outputs cost together: in rho if all are given in rho, or one has no epsilon."""
    # A discrete Gaussian has a loss in rho only.
    is_pure = _is_pure(claims) and {claim.loss.unit for claim in claims} != {"rho"}
    unit: Unit = "epsilon" if is_pure else "rho"
    return Loss(cost(claims, unit), unit)


def epsilon_of(claims: Sequence[Claim]) -> float:
    """Return what outputs cost together, as an ε at δ = 10⁻⁶."""
    loss = loss_of(claims)
    return epsilon_at(loss.unit, loss.value, _DELTA, delta_of(claims))


def in_words(claims: Sequence[Claim]) -> str:
    """Return what outputs cost together: in the unit of the query, in the other one, and as (ε, δ)."""
    loss, gone = loss_of(claims), delta_of(claims)
    meant = [str(_in_other_unit(claims))] if _is_pure(claims) else []
    epsilon = epsilon_of(claims)
    if epsilon < math.inf:
        meant.append(_at_delta(epsilon))
    text = f"{loss}, delta={show(gone, up=True)}" if gone else str(loss)
    return f"{text} ({'; '.join(meant)})" if meant else text


def notes(claims: Sequence[Claim]) -> Iterator[str]:
    """Yield what should be known of the cost of the whole release."""
    yield f"The release costs {in_words(claims)}."
    if not _is_pure(claims):
        return
    loss, other = loss_of(claims), _in_other_unit(claims)
    here, there = (epsilon_at(one.unit, one.value, _DELTA, delta_of(claims)) for one in (loss, other))
    if there < math.inf and there <= _CHEAPER * here:
        unit = other.unit
        yield f"It costs less in {unit}: a budget in {unit} charges {other}, which is {_at_delta(there)}."


def scaled_claims(claims: Sequence[tuple[str, Claim]], target: Loss) -> list[Claim]:
    """Return the claims of outputs, each with its name, at losses times one factor, so that they cost a sum together.

    The factor is the largest one for which the sum is at most `target`; of four significant digits, where a loss has
    another unit and so no factor may cost that sum exactly.
    """
    for name, claim in claims:
        if target.unit == "epsilon" and not claim.has_epsilon:
            msg = (
                f"scaled_to must be given rho, got epsilon: output {name!r} has discrete Gaussian noise, which has no "
                "loss in epsilon.\n\n"
                "Hint: scaled_to(rho=…), or ask for the output with epsilon=…: that draws discrete Laplace noise."
            )
            raise ValueError(msg)
    every = [claim for _, claim in claims]
    if {claim.loss.unit for claim in every} == {target.unit}:
        factor = target.value / cost(every, target.unit)
    else:
        factor = _factor(every, target)
    return [_times(claim, factor) for claim in every]


def _factor(claims: Sequence[Claim], target: Loss) -> Fraction:
    """Return the largest factor of four significant digits at which outputs cost at most a sum."""

    def holds(factor: Fraction) -> bool:
        return cost([_times(claim, factor) for claim in claims], target.unit) <= target.value

    # What an output costs grows with its loss, whatever the units are.
    power = Fraction(1)
    while holds(10 * power):
        power *= 10
    while not holds(power):
        power /= 10
    digits = range(1000, 10_000)
    return digits[bisect_left(digits, True, key=lambda number: not holds(number * power / 1000)) - 1] * power / 1000


def _times(claim: Claim, factor: Fraction) -> Claim:
    return replace(claim, loss=Loss(claim.loss.value * factor, claim.loss.unit))


def _in_other_unit(claims: Sequence[Claim]) -> Loss:
    """Return what outputs that all have an epsilon cost together, in the unit that `loss_of` doesn't choose."""
    unit: Unit = "rho" if loss_of(claims).unit == "epsilon" else "epsilon"
    return Loss(cost(claims, unit), unit)


def _is_pure(claims: Sequence[Claim]) -> bool:
    return all(claim.has_epsilon for claim in claims)


def delta_of(claims: Sequence[Claim]) -> Fraction:
    """Return what outputs spend of delta together."""
    return sum((claim.delta for claim in claims), Fraction(0))


def _at_delta(epsilon: float) -> str:
    return f"ε = {show(as_fraction('epsilon', epsilon), 4, up=True)} {_AT_DELTA}"
