"""The smallest loss at which an answer is accurate enough."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, TypeVar

from dp_polars._accounting.terms import LARGEST, Loss, Within
from dp_polars._questions.measures import BETA
from dp_polars._questions.question import HistogramQuery

if TYPE_CHECKING:
    import polars as pl

    from dp_polars._accounting.terms import Unit

QueryT = TypeVar("QueryT", bound=HistogramQuery)

# The losses that are tried: all numbers of four significant digits from 1e-30 to 1e30, by their places.
_PER_DECADE = 9000
_PLACES = range(-30 * _PER_DECADE, 30 * _PER_DECADE)


def error_95(query: HistogramQuery, rows: int | None, *columns: pl.DataType) -> float | None:
    """Return how far off an answer is at most with probability 0.95; None where that, or the loss, is not known.

    In groups of at least `rows` rows; None: in every group.
    """
    if query.claim.is_open:
        return None
    if rows is not None:
        return query.error_among(rows, BETA, *columns)
    size = query.size_of(*columns)
    return None if size is None else query.error(size, BETA, *columns)


def check_within(query: HistogramQuery, within: Within) -> None:
    """Refuse an accuracy that a question can't have, whatever the loss."""
    if within.value == 0 and not query.is_count:
        msg = (
            "within must be greater than 0, got 0: no loss makes this answer surely right.\n\n"
            "Hint: within=0 is for counts; a small number such as within=1 is for all others."
        )
        raise ValueError(msg)
    if query.error_needs_rows and within.rows is None:
        msg = (
            "rows must be given with within: the fewer rows a group has, the further off is this answer.\n\n"
            "Hint: rows=1000 is for groups of at least 1,000 rows with a value. Choose it from public knowledge."
        )
        raise TypeError(msg)


def at_most(query: QueryT, unit: Unit) -> QueryT:
    """Return the question at the largest loss in this unit that may be found for it, with the mechanism for that."""
    largest = query.with_claim(replace(query.claim, loss=replace(query.claim.loss, value=Fraction(LARGEST))))
    return largest.in_unit(unit)


def with_loss_for(query: QueryT, within: Within, *columns: pl.DataType) -> QueryT:
    """Return the question at the smallest loss of four significant digits whose `error_95` is at most `within`.

    The loss has the unit of the question's claim. No error grows with the loss: a larger loss pays for a larger rate;
    then noise is nearer to 0, and a candidate of a given gap is less likely. An error of several draws grows with each
    of theirs. So the losses that suffice are all those from the smallest one on, which bisection finds.

    Raises
    ------
    ValueError
        If there is no such loss, or it is above 20, or the column's type must be known.
    """
    if query.left_to_column is not None and not columns:
        msg = (
            f"{query.left_to_column} must be given with {within}: the loss depends on it, and here only the column's "
            f"type tells it.\n\nHint: give {query.left_to_column}=…, or ask a private frame that has data."
        )
        raise ValueError(msg)

    def at(place: int) -> QueryT:
        decade, digits = divmod(place, _PER_DECADE)
        value = (1000 + digits) * Fraction(10) ** (decade - 3)
        return query.with_claim(replace(query.claim, loss=Loss(value, query.claim.loss.unit)))

    def error_at(place: int) -> float | None:
        try:
            return error_95(at(place), within.rows, *columns)
        except ValueError:  # a rate too small, or noise that does not fit into 64 bits
            return None

    def suffices(place: int) -> bool:
        error = error_at(place)
        return error is not None and error <= float(within.value)

    place = _PLACES[0] + bisect_left(_PLACES, True, key=suffices)
    if place not in _PLACES:
        msg = (
            f"{within} is never reached: error_95 is {error_at(_PLACES[-1])} at least, however large the loss.\n\n"
            "Hint: a larger within, or epsilon or rho."
        )
        raise ValueError(msg)
    if place == _PLACES[0] or error_at(place - 1) is None:
        msg = (
            f"{within} must be smaller: every loss that can be drawn with reaches it (any does where there is one "
            "candidate), so none is the smallest.\n\nHint: give epsilon or rho."
        )
        raise ValueError(msg)
    found = at(place)
    if found.claim.loss.value > LARGEST:
        msg = (
            f"{within} would take {found.claim.loss}: a loss above {LARGEST} protects nobody.\n\n"
            "Hint: a larger within, or tighter bounds on a person's rows, groups or values."
        )
        raise ValueError(msg)
    return found
