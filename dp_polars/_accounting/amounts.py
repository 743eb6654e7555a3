"""Amounts of a loss: as ledgers store them, as people read them, and the error where there is too little."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from dp_polars._base.numbers import show

if TYPE_CHECKING:
    from datetime import datetime

    from dp_polars._accounting.terms import Unit

# Bits of a numerator or denominator: the differences of such sums still print (Python stops at 4,300 digits).
_LONGEST = 4_000
# Characters of a ratio that people still read.
_SHORT = 20


class BudgetExceededError(ValueError):
    """A release costs more than its budget has left: nothing was charged, and no row was read.

    Attributes
    ----------
    requested, remaining, short_by
        Exact numbers (`Fraction`), in `unit`.
    unit
        "epsilon" or "rho".
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
    ) -> None:
        super().__init__(requested, remaining, unit, requested_delta, remaining_delta, ledger, charged)
        self.requested = requested
        self.remaining = remaining
        self.short_by: Fraction = max(requested - remaining, Fraction(0))
        self.unit = unit
        self.requested_delta: Fraction | None = requested_delta
        self.remaining_delta: Fraction | None = remaining_delta
        self.ledger: str | None = ledger
        self.first_charge: datetime | None = None if charged is None else charged[0]
        self.last_charge: datetime | None = None if charged is None else charged[1]
        self.short_by_delta: Fraction | None = None
        if requested_delta is not None and remaining_delta is not None:
            self.short_by_delta = max(requested_delta - remaining_delta, Fraction(0))

    def __str__(self) -> str:
        asked: list[tuple[str, Fraction, Fraction, Fraction]] = [
            (self.unit, self.requested, self.remaining, self.short_by)
        ]
        if self.requested_delta is not None and self.remaining_delta is not None and self.short_by_delta is not None:
            asked.append(("delta", self.requested_delta, self.remaining_delta, self.short_by_delta))
        numbers = "; ".join(
            f"requested {name}={exact(requested)}, remaining {exact(remaining)}, short by {exact(short_by)}"
            for name, requested, remaining, short_by in asked
        )
        charged = "was never charged"
        if self.first_charge is not None and self.last_charge is not None:
            first, last = (f"{when:%Y-%m-%d %H:%M} UTC" for when in (self.first_charge, self.last_charge))
            charged = f"was first charged on {first} and last on {last}; budget.log() lists the charges of all runs"
        where = "" if self.ledger is None else f" The ledger {self.ledger!r} {charged}."
        return (
            f"The release does not fit the budget: {numbers}. Nothing was charged.{where}\n\n"
            "Hint: ask for smaller losses or fewer outputs. A new budget is new loss to the same people."
        )


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


def total_of(unit: str, total: Fraction, delta: Fraction | None) -> str:
    """Return the arguments that make a budget of this total."""
    return f"{unit}={exact(total)}" + ("" if delta is None else f", delta={exact(delta)}")
