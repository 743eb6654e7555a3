"""The statement of all that a ledger has charged."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Unpack

from dp_polars._accounting.budgets import Budget
from dp_polars._accounting.claims import mechanisms_of
from dp_polars._base.calls import called
from dp_polars._base.numbers import Number, given
from dp_polars._frames.facts import ledger_facts, loss_of_ledger, unit_facts
from dp_polars._frames.publication import Publication
from dp_polars._frames.query import PrivateQuery
from dp_polars._frames.release import charged_as
from dp_polars._statements.facts import NOT_RECORDED, loss_facts, software
from dp_polars._statements.known import AT_DELTA, Known, checked
from dp_polars._statements.statement import Statement

if TYPE_CHECKING:
    from dp_polars._accounting import ledger
    from dp_polars._statements.facts import Facts


@called
def statement(
    budget: Budget,
    queries: Sequence[PrivateQuery | Publication] = (),
    *,
    at_delta: Number = AT_DELTA,
    **known: Unpack[Known],
) -> Statement:
    r"""Return the privacy statement of all that a budget was charged for.

    A ledger holds the unit, the relation, the sums, and of each output a text, its mechanism, its loss and the time.
    Everything else is known of `queries` alone. Nothing is read of the rows, or charged. Where the budget is a promise
    of (epsilon, delta), the statement is about this promise, and says what is charged of it.

    Parameters
    ----------
    budget
        Its ledger is read whole.
    queries
        The queries and publications that were released, once for each release. Each output must stand in the ledger, by
        its text, mechanism and loss. What stands there and in no query is "not recorded".
    at_delta
        The δ at which the sum of all losses is also given as an ε.
    **known
        What only people know: see `PrivateQuery.statement`.

    Returns
    -------
    Statement

    Raises
    ------
    TypeError, ValueError
        If an output of a query is not in the ledger, a query has another privacy unit or relation than the ledger, the
        ledger is damaged, or an argument is not as described.

    Examples
    --------
    >>> import polars as pl
    >>> import dp_polars as dpp
    >>> budget = dpp.Budget(epsilon=1, name="visits")
    >>> visits = pl.DataFrame({"patient": [1, 1, 2]})
    >>> query = visits.dp.protect("patient", budget=budget).agg(dpp.n_people(epsilon=0.5))
    >>> released = query.release()
    >>> dpp.statement(budget, [query]).facts["loss"]["exact"]
    '1/2'
    """
    if not isinstance(budget, Budget):
        msg = (
            f"budget must be a Budget, got {given(budget)}.\n\nHint: one query without a budget has query.statement()."
        )
        raise TypeError(msg)
    every: list[tuple[str | None, PrivateQuery]] = []
    for query in queries:
        if not isinstance(query, (PrivateQuery, Publication)):
            msg = f"queries must be queries of private frames, got {given(query)}.\n\nHint: [private.agg(…)]."
            raise TypeError(msg)
        every += query.queries.items() if isinstance(query, Publication) else [(None, query)]
    head, charges = budget.charged()
    places = _places([name for name, _ in every])
    recorded = _matched(every, places, budget, head, charges)
    releases = [
        {"name": "" if name is None else place, **query.described(at_delta)}
        for (name, query), place in zip(every, places, strict=True)
    ]
    of_release = {place: one["asks"] for place, one in zip(places, releases, strict=True)}
    asked_before = [
        charge.what
        for charge, where in zip(charges, recorded, strict=True)
        if charge.mechanism in mechanisms_of("keys") or of_release.get(where, "answers") != "answers"
    ]
    unit: Facts = {"person": None, "why": "not known, for nothing is charged yet.", "relation": None, "notes": []}
    if head.charges and head.neighboring_relation is not None:
        unit = unit_facts(head.privacy_unit, head.neighboring_relation)
    return Statement.of(
        {
            **software(),
            "state": "charged",
            "known": checked(known),
            "loss": loss_facts(*loss_of_ledger(head), at_delta),
            "promise": None,
            "unit": unit,
            "releases": releases,
            "ledger": ledger_facts(budget, head, charges, recorded, asked_before),
        }
    )


def _places(names: Sequence[str | None]) -> list[str]:
    """Return what releases are called: as their queries in publications, with a number where two have one name."""
    numbered = [f"release {number}" for number in range(1, len(names) + 1)]
    return [
        number if name is None else name if names.count(name) == 1 else f"{name} ({number})"
        for name, number in zip(names, numbered, strict=True)
    ]


def _matched(
    queries: Sequence[tuple[str | None, PrivateQuery]],
    names: Sequence[str],
    budget: Budget,
    head: ledger.Head,
    charges: Sequence[ledger.Charge],
) -> list[str]:
    """Return in which release the query of each charge stands; refuse an output that no charge is left for."""
    recorded = [NOT_RECORDED] * len(charges)
    left: dict[tuple[object, ...], list[int]] = {}
    for place, one in reversed([*enumerate(charges)]):
        key = (one.what, one.mechanism, (one.unit, Fraction(one.loss)), Fraction(one.delta))
        left.setdefault(key, []).append(place)
    for (name, query), of_release in zip(queries, names, strict=True):
        promised = (query.protection.privacy_unit, query.protection.neighboring_relation)
        if head.charges and promised != (head.privacy_unit, head.neighboring_relation):
            msg = (
                f"queries must have the privacy unit and the relation of the ledger, {head.privacy_unit!r} and "
                f"{head.neighboring_relation!r}, got {promised[0]!r} and {promised[1]!r}."
            )
            raise ValueError(msg)
        for ask in query.asks:
            claim = ask.query.claim
            places = left.get((charged_as(name, ask), claim.mechanism, budget.as_charged(claim), claim.delta), [])
            if not places:
                msg = (
                    f"queries must have been charged to this budget: output {ask.name!r} ({ask}, {claim}) is not in "
                    "the ledger, or not as often as it was given.\n\n"
                    "Hint: budget.log() lists what is. Give each query once for each of its releases."
                )
                raise ValueError(msg)
            recorded[places.pop()] = of_release
    return recorded
