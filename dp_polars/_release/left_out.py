"""Which limits and clipping bounds outputs need that are left out, and which outputs share what is found."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from fractions import Fraction

from dp_polars._accounting.costs import PROOFS
from dp_polars._accounting.terms import Loss, Terms, Unit
from dp_polars._release.protection import Protection
from dp_polars._release.request import Ask, asked_in, serialized
from dp_polars._statistics.averages import Share
from dp_polars._statistics.categories import Ranked
from dp_polars._statistics.limits import What
from dp_polars._statistics.measures import Count, SumOfPeople, ValueCounts
from dp_polars._statistics.statistic import HistogramQuery

# The loss of the number of people that is added for quantiles, as a part of that of one of them.
_OF_PEOPLE = Fraction(1, 8)

OWN_LOSS = (
    "{} must have no loss of its own without {}: a part of one guarantee finds what is left out, before answers are "
    "drawn.\n\nHint: leave epsilon, rho and within out, and share one guarantee: query.scaled_to(epsilon=1, "
    "delta=1e-6). Or {}."
)


def limit_needed(protection: Protection, query: HistogramQuery, groups: int) -> tuple[What, ...]:
    """Return which contribution limits a statistic needs that are left out.

    In rho, rows in several groups cost less than as many in one: so there are two limits of rows that are drawn.
    """
    if protection.unit is None or protection.max_rows is not None:
        return ()
    by_norm = query.weighs_people
    if by_norm and protection.max_norm is not None:
        return ()
    if query.counts_people and query.limits_people:
        is_given = protection.max_groups is not None or groups == 1
        return ("max_groups",) if not is_given and "max_groups" in protection.left_out else ()
    in_groups = groups == 1 or protection.max_groups is not None or "max_groups" not in protection.left_out
    if query.counts_people and query.fixed_size == 1 and in_groups:  # a person counts once in each group
        return ()
    if protection.max_rows_per_group is not None and in_groups:
        return ()
    name: What = "max_norm" if by_norm else "max_rows"
    if name not in protection.left_out:
        return ()
    claim = query.claim
    is_spread = claim.loss.unit == "rho" and PROOFS[claim._charged_as].curve.is_convex
    is_one = by_norm or not is_spread or min(protection.max_groups or groups, groups) == 1
    return (name,) if is_one or "max_rows_per_group" not in protection.left_out else (name, "max_rows_per_group")


def limits_needed(
    asks: Sequence[Ask[HistogramQuery]], protection: Protection, groups: int, unit: Unit
) -> list[tuple[What, ...]]:
    """Return which limits each output needs that are left out; refuse a loss of its own where bounds are."""
    needed: list[tuple[What, ...]] = []
    for ask in asks:
        is_open = ask.query.claim._is_open and ask.within is None
        needed.append(limit_needed(protection, asked_in(ask, unit).query, groups) if is_open else ())
        if not is_open and ask.query.finds:
            what, call = ask.query.left_out
            raise ValueError(OWN_LOSS.format(f"Output {ask.name!r}", what, f"give {what}, as in {call}"))
    return needed


def refuse_within(asks: Iterable[Ask[HistogramQuery]]) -> None:
    if accurate := [ask.name for ask in asks if ask.within is not None]:
        msg = (
            f"within must be left out of a query whose limits are found privately, got it for {accurate}: the loss "
            "follows from the limits.\n\nHint: give protect the limits, or request those outputs in another query."
        )
        raise ValueError(msg)


def with_people(
    asks: tuple[Ask[HistogramQuery], ...], protection: Protection, unit: Unit, taken: Sequence[str]
) -> tuple[tuple[Ask[HistogramQuery], ...], str | None]:
    """Return outputs with one that counts people, if some are null where these are few; and its name, None: none is."""
    weights = [ask.query.claim._loss_weight or 0 for ask in asks if isinstance(ask.query, Ranked) and ask.query.finds]
    if not weights:
        return asks, None
    for ask in asks:
        if isinstance(ask.query, Count) and not ask.columns and protection.counts(ask.query) == "people":
            return asks, ask.name
    names = ("n_people", *(f"n_people_{number}" for number in range(2, len(asks) + len(taken) + 3)))
    name = next(name for name in names if name not in {*taken, *(ask.name for ask in asks)})
    weight = _OF_PEOPLE * (max(weights) or 1)
    terms = replace(Terms.at(Loss(Fraction(1), unit)), loss_weight=weight)
    return (*asks, Ask(name, (), Count("rows" if protection.unit is None else "people", terms))), name


def values_apart(ask: Ask[HistogramQuery]) -> tuple[object, ...]:
    """Return what tells outputs apart whose bounds are of other values, or of other totals of people.

    Quantiles, for which nobody should be beyond, have bounds of their own.
    """
    column = tuple(map(serialized, ask.columns))
    query = ask.query
    if isinstance(query, SumOfPeople):
        return (*column, query.lower, query.upper, query.step, query.free)
    return (*column, isinstance(query, Ranked))


def rows_apart(ask: Ask[HistogramQuery]) -> tuple[object, ...]:
    """Return what tells outputs of other contributing rows apart. Those whose rows are drawn share one choice."""
    is_drawn = not ask.query.weighs_people
    by_name = ask.query.claim.mechanism if not is_drawn and ask.query.claim._is_asked else ""
    if is_drawn or are_all(ask):
        return "all rows", is_drawn, by_name
    column = tuple(map(serialized, ask.columns))
    return *column, getattr(ask.query, "counted", "") == "nulls", ask.query.counts_people, by_name


def are_all(ask: Ask[HistogramQuery]) -> bool:
    """Return whether all rows may contribute to an output: those without a value are taken to be few."""
    is_plain = not ask.filtered and not isinstance(ask.query, (Share, ValueCounts, SumOfPeople))
    return is_plain and getattr(ask.query, "counted", "") not in ("nulls", "people" if ask.columns else "")
