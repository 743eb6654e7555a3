"""From a loss and a sensitivity to the rate, by the same claim that the sampler uses."""

from __future__ import annotations

from typing import Literal, TypeAlias

from dp_polars._accounting.claims import Claim, check_mechanism
from dp_polars._accounting.terms import Loss, Mechanism, Unit
from dp_polars._base.numbers import Number, as_fraction
from dp_polars.analysis._laws import LAPLACE

Comparable: TypeAlias = Mechanism | Literal["report_noisy_max_laplace"]


def claim_of(
    epsilon: Number | None, rho: Number | None, sensitivity: Number, monotonic: bool, mechanism: str | None
) -> Claim:
    """Return the claim of one release."""
    return Claim.for_scores(Loss.of(epsilon=epsilon, rho=rho), mechanism, sensitivity, monotonic)


def rate_of(
    epsilon: Number | None, rho: Number | None, sensitivity: Number, monotonic: bool, mechanism: str | None
) -> tuple[float, str]:
    """Return λ and the mechanism, that for comparison included."""
    name = check_comparable(mechanism, Loss.of(epsilon=epsilon, rho=rho).unit)
    claim = claim_of(epsilon, rho, sensitivity, monotonic, charged_as(name))
    return float(claim.rate), name


def charged_as(mechanism: str) -> Mechanism:
    """Return the mechanism of the claim. Report-noisy-max's noise has the scale 1/λ of pure DP."""
    return check_mechanism("choice", None if mechanism == LAPLACE else mechanism, "epsilon")


def check_comparable(mechanism: str | None, unit: Unit) -> str:
    """Return the mechanism asked for, or the one that the unit chooses."""
    if mechanism != LAPLACE:
        return check_mechanism("choice", mechanism, unit)
    if unit != "epsilon":
        msg = f"mechanism {LAPLACE!r} must be given its loss as epsilon, got {unit}."
        raise ValueError(msg)
    return LAPLACE


def as_probability(name: str, value: object) -> float:
    """Return `value` as a float strictly between 0 and 1."""
    probability = float(as_fraction(name, value))
    if not 0 < probability < 1:
        msg = f"{name} must lie strictly between 0 and 1 in float64, got {value!r}."
        raise ValueError(msg)
    return probability
