"""Amounts of a loss: as ledgers store them, as people read them, and the error where there is too little."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from dp_polars._base.numbers import show

if TYPE_CHECKING:
    from datetime import datetime

    from dp_polars._accounting.terms import Unit

# Bits of a numerator or denominator: the differences of such sums still print (Python stops at 4,300 digits).
_LONGEST = 4_000
# Characters of a ratio that people still read.
_SHORT = 20


class Remaining(Fraction):
    """What a budget has left: an exact `Fraction` in the unit of its total.

    Attributes
    ----------
    epsilon, rho
        The largest loss in this unit that still fits. The other one is None where a budget adds up one unit alone.
    """

    __slots__ = ("epsilon", "rho")
    epsilon: Fraction | None
    rho: Fraction | None

    def __new__(cls, epsilon: Fraction | None, rho: Fraction | None) -> Remaining:  # noqa: PYI034
        self = super().__new__(cls, (rho or 0) if epsilon is None else epsilon)
        self.epsilon, self.rho = epsilon, rho
        return self

    def __str__(self) -> str:
        if self.epsilon is None or self.rho is None:
            return super().__str__()
        return f"epsilon={exact(self.epsilon)} or rho={exact(self.rho)}"

    def __repr__(self) -> str:
        if self.epsilon is None or self.rho is None:
            return repr(Fraction(self))
        return f"Remaining(epsilon={self.epsilon!r}, rho={self.rho!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Remaining, (self.epsilon, self.rho)

    def __copy__(self) -> Remaining:
        return self

    def __deepcopy__(self, memo: Any) -> Remaining:  # noqa: ANN401
        return self


class BudgetExceededError(ValueError):
    """A release costs more than its budget has left: nothing was charged, and no row was read.

    Attributes
    ----------
    requested, remaining, short_by
        Exact numbers (`Fraction`), in `unit`.
    unit
        "epsilon" or "rho". A promise of (epsilon, delta) has "rho" where the release has no epsilon.
    requested_rho, remaining_rho, short_by_rho
        The same in rho, for a promise of (epsilon, delta): a release fits if it is short by 0 in one of both units. A
        pure release counts there with at most its epsilon over the order of the promise. None for other budgets.
    requested_delta, remaining_delta, short_by_delta
        The same of delta: exact numbers, or None where the budget has no delta.
    ledger, first_charge, last_charge
        The path of the budget's file, and the times of its first and last charge (`datetime` in UTC), in whichever run
        they were made; None where the budget has no file, or was never charged.
    """

    def __init__(
        self,
        requested: Fraction,
        remaining: Fraction,
        unit: Unit,
        requested_delta: Fraction | None = None,
        remaining_delta: Fraction | None = None,
        ledger: str | None = None,
        charged: tuple[datetime, datetime] | None = None,
        requested_rho: Fraction | None = None,
        remaining_rho: Fraction | None = None,
    ) -> None:
        deltas, rhos = (requested_delta, remaining_delta), (requested_rho, remaining_rho)
        super().__init__(requested, remaining, unit, *deltas, ledger, charged, *rhos)
        self.requested = requested
        self.remaining = remaining
        self.short_by: Fraction = max(requested - remaining, Fraction(0))
        self.unit = unit
        self.requested_rho, self.remaining_rho, self.short_by_rho = *rhos, _short_by(*rhos)
        self.requested_delta, self.remaining_delta, self.short_by_delta = *deltas, _short_by(*deltas)
        self.ledger: str | None = ledger
        self.first_charge: datetime | None = None if charged is None else charged[0]
        self.last_charge: datetime | None = None if charged is None else charged[1]

    def __str__(self) -> str:
        losses = [_asked(self.unit, self.requested, self.remaining)]
        if self.unit != "rho" and self.requested_rho is not None and self.remaining_rho is not None:
            losses.append(_asked("rho", self.requested_rho, self.remaining_rho))
        numbers = " (or in rho: ".join(losses) + ")" * (len(losses) - 1)
        if self.requested_delta is not None and self.remaining_delta is not None:
            numbers += f"; {_asked('delta', self.requested_delta, self.remaining_delta)}"
        charged = "was never charged"
        if self.first_charge is not None and self.last_charge is not None:
            first, last = (f"{when:%Y-%m-%d %H:%M} UTC" for when in (self.first_charge, self.last_charge))
            charged = f"was first charged on {first} and last on {last}; budget.log() lists the charges of all runs"
        where = "" if self.ledger is None else f" The ledger {self.ledger!r} {charged}."
        return (
            f"The release does not fit the budget: {numbers}. Nothing was charged.{where}\n\n"
            "Hint: ask for smaller losses or fewer outputs. A new budget is new loss to the same people."
        )


def _short_by(requested: Fraction | None, remaining: Fraction | None) -> Fraction | None:
    return None if requested is None or remaining is None else max(requested - remaining, Fraction(0))


def _asked(name: str, requested: Fraction, remaining: Fraction) -> str:
    short_by = max(requested - remaining, Fraction(0))
    return f"requested {name}={exact(requested)}, remaining {exact(remaining)}, short by {exact(short_by)}"


def stored(value: Fraction) -> str:
    """Return an exact rational as the ledger stores it: "1/10"."""
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > _LONGEST:
        msg = (
            f"A loss, and the exact sum of all, must have at most {_LONGEST} bits in numerator and "
            "denominator.\n\nHint: ask for losses with few decimals, such as 0.1."
        )
        raise ValueError(msg)
    return str(value)


def exact(value: Fraction) -> str:
    """Return an exact rational for people: a decimal of up to 20 places if it is one, else a ratio if that is short."""
    if 10**20 % value.denominator:
        return str(value) if len(str(value)) <= _SHORT else f"about {show(value)}"
    whole, places = divmod(value.numerator * (10**20 // value.denominator), 10**20)
    return f"{whole}.{places:020}".rstrip("0").rstrip(".")
