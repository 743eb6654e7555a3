"""The statement of a plain expression, which knows its question and its loss, and neither people nor data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dp_polars._questions.statement import Statement
from dp_polars._questions.statement_facts import checked, loss_facts, output_facts, software

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dp_polars._accounting.terms import Bounds, Within
    from dp_polars._base.numbers import Number
    from dp_polars._questions.question import Query


def statement_of_expression(
    name: str, query: Query, bounds: Bounds, within: Within | None, known: Mapping[str, object], at_delta: Number
) -> Statement:
    """Return the statement of one evaluation."""
    claim = query.claim
    if not claim.is_open and (within is None or within.unreached is None):
        loss = loss_facts(claim.loss.unit, claim.loss.value, claim.delta, at_delta)
        outputs = [output_facts(name, query, str(query))]
    else:
        loss, outputs = None, []
    protection = "It is calibrated to the sensitivity that the caller gave."
    if claim.neighboring_relation is not None:
        rows = claim.contributions.total
        protection = f"It is calibrated to one person who has {rows} rows at most. Nothing drops more, which lose more."
    where = "None is said." if claim.is_open else f"agg of a private frame finds it, from {within}."
    release = {
        "loss": loss,
        "asks": "answers",
        "protection": protection,
        "bounds": {bound: str(number) for bound, number in bounds.given.items()},
        "unchecked": None,
        "tables": [{"columns": None, "files": None, "before": None}],
        "keys": None,
        "public_frames": [],
        "steps": None,
        "outputs": outputs,
    }
    return Statement.of(
        {
            **software(),
            "state": "asked",
            "known": checked(known),
            "loss": loss,
            "promise": None,
            "no_loss": f"the loss of the {query}. {where}",
            "unit": {
                "person": None,
                "why": "not known, for a plain expression does not know whose a row is.",
                "relation": claim.neighboring_relation,
                "notes": [],
            },
            "releases": [release],
            "ledger": None,
        }
    )
