"""The losses of outputs from one promise for all of them: shared, in the unit with the smaller errors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeAlias

from dp_polars._accounting.amounts import exact
from dp_polars._accounting.promises import Promise
from dp_polars._accounting.terms import Loss
from dp_polars._base.numbers import as_fraction, show
from dp_polars._frames import whole_cost
from dp_polars._frames.taken import Taken
from dp_polars._questions.measures import BETA
from dp_polars._questions.question import HistogramQuery
from dp_polars._questions.within import at_most, error_95, with_loss_for

if TYPE_CHECKING:
    from dp_polars._accounting.budgets import Budget
    from dp_polars._accounting.claims import Claim
    from dp_polars._accounting.terms import Unit
    from dp_polars._frames.request import Ask
    from dp_polars._questions.question import Columns

# An output, and the types of its columns, as far as they are known.
Typed: TypeAlias = "tuple[Ask[Any], Columns]"

_OTHER: dict[Unit, Unit] = {"epsilon": "rho", "rho": "epsilon"}
# Errors of means are compared for groups of this many rows, where none is asked for.
_ROWS = 1000


def shared(outputs: Sequence[Typed], target: Loss) -> list[Ask[Any]]:
    """Return outputs that cost `target` together, or just less.

    Those with a loss, or asked `within` an error, keep it, and the others share the rest. Where all have one, all are
    scaled by one factor.

    Raises
    ------
    ValueError
        If nothing is left to be shared, or an output has no loss in the unit of `target`.
    """
    if any(ask.query.claim.is_open for ask, _ in outputs):
        return _in_unit(outputs, target)
    claims = whole_cost.scaled([(ask.name, ask.query.claim) for ask, _ in outputs], target)
    return [ask.with_claim(claim) for (ask, _), claim in zip(outputs, claims, strict=True)]


def at_promise(
    outputs: Sequence[Typed], epsilon: Fraction, delta: Fraction, budget: Budget | None
) -> tuple[list[Ask[Any]], Taken]:
    """Return outputs that keep (epsilon, delta) together, in the unit with the smaller errors, and which one that is.

    The promise is as the budget has it: which rho it is, and how much of delta is left to keys. Without one there, a
    half of delta is.

    Raises
    ------
    ValueError
        If keys spend more of delta, or the outputs can be had in neither unit.
    """
    of_all = None if budget is None else budget.promise
    promise = Promise.of(epsilon, delta) if of_all is None else of_all.part(epsilon, delta)
    gone = sum((ask.query.claim.delta for ask, _ in outputs), Fraction(0))
    if gone > promise.keys_delta:
        msg = (
            f"delta must leave room for the keys, which spend {show(gone, up=True)}, got {show(delta)}, of which "
            f"{show(promise.keys_delta)} is for keys.\n\nHint: a larger delta, or keys with a smaller one."
        )
        raise ValueError(msg)
    targets = [Loss(epsilon, "epsilon")] + [Loss(promise.rho, "rho") for _ in range(promise.rho > 0)]
    found: dict[Unit, list[Ask[Any]]] = {}
    refused: dict[Unit, str] = {} if promise.rho else {"rho": "all of delta is for keys"}
    for target in targets:
        try:
            found[target.unit] = _in_unit(outputs, target)
        except ValueError as error:
            refused[target.unit] = str(error).partition("\n")[0].removesuffix(".")
    if not found:
        reasons = "; ".join(f"in {unit}, {reason}" for unit, reason in refused.items())
        msg = (
            f"scaled_to must be given a promise that the outputs can keep, got {_promised(epsilon, delta)}: {reasons}."
            "\n\nHint: a larger promise, or fewer outputs with a loss of their own."
        )
        raise ValueError(msg)
    errors = {
        unit: tuple(_error(ask, types) for ask, (_, types) in zip(asks, outputs, strict=True))
        for unit, asks in found.items()
    }
    unit, why = _chosen(outputs, found, errors, refused, budget)
    words = f"For {_promised(epsilon, delta)} in all, the unit is {unit}{why}."
    promised = f"ε = {exact(epsilon)} and δ = {exact(delta)}"
    return found[unit], Taken(promised, words, _OTHER[unit], errors.get(_OTHER[unit], (None,) * len(outputs)))


def _in_unit(outputs: Sequence[Typed], target: Loss) -> list[Ask[Any]]:
    """Return outputs that cost a sum together, each by the better mechanism for its unit."""
    is_part = any(ask.query.claim.is_open for ask, _ in outputs)
    claims = [ask.query.claim for ask, _ in outputs]
    shares = [claim.share for claim in claims] if is_part else _shares(claims)
    in_unit = [
        _kept(ask, types, target.unit) if share is None else replace(ask, query=ask.query.in_unit(target.unit))
        for (ask, types), share in zip(outputs, shares, strict=True)
    ]
    gone = whole_cost.cost(
        [ask.query.claim for ask, share in zip(in_unit, shares, strict=True) if share is None], target.unit
    )
    rest, parts = target.value - gone, sum(share for share in shares if share is not None)
    if not rest > 0:
        msg = (
            f"the outputs with a loss cost {Loss(gone, target.unit)} of {target}, which leaves nothing to the others"
            ".\n\nHint: a larger promise, or fewer outputs with a loss of their own."
        )
        raise ValueError(msg)
    return [
        ask if share is None else _at_cost(ask, Loss(rest * share / parts, target.unit))
        for ask, share in zip(in_unit, shares, strict=True)
    ]


def _shares(claims: Sequence[Claim]) -> list[Fraction | None]:
    """Return the losses of outputs that all have one, as numbers; of different units, in the one that all have."""
    units = {claim.loss.unit for claim in claims}
    return [claim.loss.value if len(units) == 1 else claim.cost("rho") for claim in claims]


def _kept(ask: Ask[Any], types: Columns, unit: Unit) -> Ask[Any]:
    """Return an output that keeps its loss, or is as accurate as it was asked to be in a unit."""
    if ask.within is None:
        return ask
    with ask.named():
        return replace(ask, query=with_loss_for(at_most(ask.query, unit), ask.within, *types))


def _at_cost(ask: Ask[Any], loss: Loss) -> Ask[Any]:
    with ask.named():
        return ask.with_claim(ask.query.claim.at_cost(loss))


def _error(ask: Ask[Any], types: Columns) -> float | None:
    """Return how far off an answer is at most with probability 0.95; None where the column's type must be known."""
    if not isinstance(ask.query, HistogramQuery):
        return float(ask.query.selection.people_for(1 - BETA))
    return error_95(ask.query, ask.rows or (_ROWS if ask.query.error_needs_rows else None), *types)


def _chosen(
    outputs: Sequence[Typed],
    found: Mapping[Unit, Sequence[Ask[Any]]],
    errors: Mapping[Unit, Sequence[float | None]],
    refused: Mapping[Unit, str],
    budget: Budget | None,
) -> tuple[Unit, str]:
    """Return the unit that is taken, and why, in words that go on from it."""
    for other, reason in refused.items():
        return _OTHER[other], f", not {other}: {reason}"
    of_all = not any(ask.query.claim.is_open for ask, _ in outputs)
    moved = [ask for ask, _ in outputs if of_all or ask.query.claim.is_open]
    unit: Unit = "rho" if _size(errors["rho"]) < _size(errors["epsilon"]) else "epsilon"
    why = ""
    if only := [ask.name for ask in moved if ask.query.loss_units == ("epsilon",)]:
        unit, why = "epsilon", f", in which alone {', '.join(map(repr, only))} can be asked"

    def has_room(unit: Unit) -> bool:
        return budget is None or budget.has_room(ask.query.claim for ask in found[unit])

    if not has_room(unit) and has_room(_OTHER[unit]):
        unit, why = _OTHER[unit], ", in which alone the budget has room"
    return unit, f"{why}: {_compared(errors, unit)}"


def _size(errors: Sequence[float | None]) -> tuple[int, float]:
    """Return what is smaller for smaller errors: how many are not 0, and the logarithm of the product of these."""
    logs = [math.log(error) for error in errors if error]
    return len(logs), math.fsum(logs)


def _compared(errors: Mapping[Unit, Sequence[float | None]], unit: Unit) -> str:
    """Return how large the errors in a unit are, as a multiple of those in the other one, by their geometric means."""
    pairs = zip(errors[unit], errors[_OTHER[unit]], strict=True)
    logs = [math.log(here / there) for here, there in pairs if here and there]
    if not logs:
        return "no errors are known that differ"
    ratio = as_fraction("ratio", math.exp(math.fsum(logs) / len(logs)))
    return f"errors are {show(ratio, 2)} times those in {_OTHER[unit]}"


def _promised(epsilon: Fraction, delta: Fraction) -> str:
    return f"epsilon={show(epsilon, up=True)}, delta={show(delta, up=True)}"
