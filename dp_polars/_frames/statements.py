"""The facts of requests and ledgers, as statements."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from dp_polars._accounting.claims import mechanisms_of
from dp_polars._accounting.terms import Unit
from dp_polars._base.column_types import unit_of_text
from dp_polars._base.digests import ipc_of, listed, sha256_of
from dp_polars._base.numbers import Number, as_fraction, plural
from dp_polars._engines.polars.engine import PolarsEngine
from dp_polars._frames.requests import KeyRequest, PeopleRequest
from dp_polars._release.contract import Product
from dp_polars._release.pipeline import EachColumn, Expressions, Join, Rename
from dp_polars._release.protection import most_in_words
from dp_polars._release.request import AnyRequest, Ask, Line, said_once
from dp_polars._release.selected import SelectingRequest
from dp_polars._sources.plans import steps_and_urls
from dp_polars._statistics.statement import Statement
from dp_polars._statistics.statement_facts import (
    NOT_RECORDED,
    facts_of_claims,
    follows_facts,
    number_facts,
    output_facts,
)
from dp_polars._statistics.statistic import Asked
from dp_polars._steps.words import in_words as expression_in_words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from dp_polars._accounting import ledger
    from dp_polars._accounting.budget import Budget
    from dp_polars._release.pipeline import Pipeline, Step
    from dp_polars._statistics.statement_facts import Facts


# Transformations in words; the others appear by the name of their method.
_STEPS = {
    "filter": "rows are kept where",
    "remove": "rows are left out where not",
    "with_columns": "columns are made",
    "with_columns_seq": "columns are made, one after the other",
    "select": "columns are kept or made",
    "select_seq": "columns are kept or made, one after the other",
    "drop": "columns are left out; kept are",
    "rename": "columns are renamed",
    "cast": "columns get another type",
    "drop_nulls": "rows with nulls are left out; kept where",
    "drop_nans": "rows with NaN are left out; kept where",
    "fill_null": "nulls are filled",
    "fill_nan": "NaNs are filled",
    "join": "rows are joined with others",
}
_LONGEST = 500  # the longest text of a transformation


def statement_of(
    releases: Mapping[str, tuple[AnyRequest[Asked], Facts]],
    budget: Budget | None,
    known: Mapping[str, object],
    at_delta: Number,
    *,
    state: Literal["planned", "released", "published"],
) -> Statement:
    """Return one statement of requests by their names ("" for a single one), and of the charges to the budget."""
    requests = [request for request, _ in releases.values()]
    claims = [claim for request in requests for claim in request.claims]
    ledger = None
    if budget is not None:
        head, charges = budget._charged()
        asked = [charge.what for charge in charges if charge.mechanism in mechanisms_of("keys")]
        ledger = ledger_facts(budget, head, charges, [""] * len(charges), asked)
    protection = requests[0].protection
    return Statement.of(
        state,
        known,
        loss=facts_of_claims(claims, at_delta),
        guarantee=None if requests[0].taken is None else requests[0].taken.guarantee,
        unit=unit_facts(protection.privacy_unit, protection.neighboring_relation),
        releases=[{"name": name, **facts} for name, (_, facts) in releases.items()],
        ledger=ledger,
    )


def loss_of_ledger(head: ledger.Head) -> tuple[Unit, Fraction, Fraction]:
    """Return the loss of a whole ledger: its sums, or the guarantee of (epsilon, delta) that it keeps in any case."""
    if head.unit == "rho" or head.delta is None:
        return "rho" if head.unit == "rho" else "epsilon", Fraction(head.spent or 0), Fraction(head.spent_delta)
    return "epsilon", Fraction(head.total), Fraction(head.delta)


def ledger_facts(
    budget: Budget,
    head: ledger.Head,
    charges: Sequence[ledger.Charge],
    recorded: Sequence[str],
    asked_before: Sequence[str],
) -> Facts:
    spent = _amount(head.unit, head.spent or "0", head.spent_delta)
    if budget._guarantee is not None:
        at = budget._epsilon_of(head, charges, budget._guarantee.delta).spent
        spent = _amount(head.unit, str(as_fraction("epsilon", at)), head.delta)
    entries = [
        {
            "when": f"{datetime.fromtimestamp(charge.microseconds // 10**6, UTC):%Y-%m-%d %H:%M} UTC",
            "what": charge.what,
            "mechanism": charge.mechanism,
            "loss": _amount(charge.unit, charge.loss, charge.delta),
            "recorded": where,
            "unchecked": bool(charge.unchecked),
        }
        for charge, where in zip(charges, recorded, strict=True)
    ]
    return {
        "total": _amount(head.unit, head.total, head.delta),
        "spent": spent,
        "is_guarantee": budget._guarantee is not None,
        "charges": head.charges,
        "digest": head.last_digest or None,
        "delta_for": [charge.what for charge in charges if Fraction(charge.delta)],
        "asked_before": list(asked_before),
        "unrecorded": recorded.count(NOT_RECORDED),
        "entries": entries,
    }


def _amount(unit: str, value: str, delta: str | None) -> Facts:
    return {"unit": unit, **number_facts(Fraction(value)), "delta": number_facts(Fraction(delta or 0))}


def facts_of_request(request: AnyRequest[Asked], source: pl.LazyFrame | None, at_delta: Number) -> Facts:
    engine = None if source is None else PolarsEngine.of(source)
    steps, is_of_people = request.pipeline.steps, isinstance(request, PeopleRequest)
    frames = [step.public for step in steps if isinstance(step, Join)]
    limits = {name: str(number) for name, number in request.protection.limits.items()}
    return {
        "loss": facts_of_claims(request.claims, at_delta),
        "asks": "keys" if isinstance(request, KeyRequest) else "people" if is_of_people else "answers",
        "protection": _protection(request),
        "limits": {} if is_of_people else limits,
        # Without data, `release` gets the rows, and may accept them unchecked.
        "unchecked": request.pipeline.unchecked or (None if source is None else False),
        "table": _table(request.pipeline, source),
        "keys": None if request.keys is None else _keys(request, request.keys),
        "public_frames": list(map(_public_frame, frames)),
        "steps": list(map(_step, steps)),
        "outputs": [_output(line, request.protection.changed_parts) for line in request.lines(engine)],
    }


def unit_facts(unit: str | None, relation: str) -> Facts:
    """Return the facts about who is a person: `unit` is the privacy unit from a ledger, None if every row is one."""
    names = unit_of_text(unit)
    if names is None:
        return {"person": "every row is a person of its own", "relation": relation, "notes": []}
    notes = ["A person may have any number of rows. Rows without a privacy unit (null or NaN) are dropped."]
    if len(names) == 1:
        return {"person": f"all rows with one value of {names[0]!r}", "relation": relation, "notes": notes}
    notes.append("The guarantee is for one combination, not for all rows that share one of its values.")
    person = f"all rows with one combination of values of {' and '.join(map(repr, names))}"
    return {"person": person, "relation": relation, "notes": notes}


def _protection(request: AnyRequest[Asked]) -> str:
    """Return the limits of one person in words: in all rows or, with disjoint parts, in each part."""
    limited, parts = _limited(request), request.protection.parts_in_words()
    return limited if parts is None else f"{parts} In each part: {limited}"


def _limited(request: AnyRequest[Asked]) -> str:
    if isinstance(request, PeopleRequest):
        return "Each person is one value at most, whatever rows they have."
    if isinstance(request, KeyRequest):
        return f"A person counts for {plural(request.asks[0].query.keys_per_person, 'key')} at most."
    protection = request.protection
    if protection.unit is None:
        return "Each person is one row."
    most = said_once({ask.name: [_most_of(request, ask)] for ask in request.asks})
    beyond = said_once({ask.name: [_beyond(ask)] for ask in request.asks if request.dropping(ask)})
    return " ".join([*most, *beyond])


def _beyond(ask: Ask[Any]) -> str:
    if not ask.query.in_parts:
        return "Beyond that, rows or groups of the person are dropped at random."
    norm = "the sum" if ask.query.claim._has_epsilon else "the root of the sum of squares"
    return (
        f"A person with more counts in part. Rows of that person get weights below 1, so that {norm} of what counts "
        "in each group is at most that. No row is dropped."
    )


def _most_of(request: AnyRequest[Asked], ask: Ask[Asked]) -> str:
    clips, limits = request.clips(ask), request.limits_of(ask)
    counts = most_in_words(limits, in_parts=ask.query.in_parts) if limits else "Each person counts with all rows."
    return counts + ("" if clips is None else " The {} of a person in a group is clipped to {}.".format(*clips))


def _table(pipeline: Pipeline, source: pl.LazyFrame | None) -> Facts:
    if source is None:
        return {"columns": None, "files": None, "before": None}
    # As of `protect`: the files may be gone when the statement is written.
    before, urls = steps_and_urls(source)
    files = pl.Series([PurePath(path).name for path, *_ in pipeline.files] + urls, dtype=pl.String)
    return {
        "columns": {name: _type(dtype) for name, dtype in source.collect_schema().items()},
        "files": f"{listed(files.to_frame())} ({plural(len(files), 'file')})" if len(files) else None,
        "before": before,
    }


def _type(dtype: pl.DataType) -> str:
    """Return a type without the contents of an Enum, a Categorical or a nested type: a literal may contain them."""
    if isinstance(dtype, (pl.Enum, pl.Categorical)) or dtype.is_nested():
        return str(dtype.base_type())
    return str(dtype)


def _keys(request: AnyRequest[Asked], keys: pl.DataFrame | Product) -> Facts:
    are_selected = isinstance(request, SelectingRequest) and request.selects_groups
    if not request.groups_are_known:
        return {"columns": keys.columns, "number": None, "values": "", "are_selected": are_selected}
    by_column = [f"{one.name}: {listed(one.to_frame())}" for one in keys.values] if isinstance(keys, Product) else []
    values = listed(keys) if isinstance(keys, pl.DataFrame) else "; ".join(by_column)
    return {"columns": keys.columns, "number": keys.height, "values": values, "are_selected": are_selected}


def _public_frame(frame: pl.DataFrame) -> str:
    columns = ", ".join(frame.columns)
    return f"{plural(frame.height, 'row')} of {columns} (SHA-256 of it as Arrow IPC: {sha256_of(ipc_of(frame))})"


def _step(step: Step) -> str:
    arguments: list[object] = []
    if isinstance(step, Expressions):
        arguments = [*map(expression_in_words, step.expressions)]
    elif isinstance(step, EachColumn):
        every = (argument for columns, values in step.columns for argument in (columns, *values))
        arguments = [expression_in_words(one) if isinstance(one, pl.Expr) else one for one in every]
    elif isinstance(step, Rename) and not callable(step.mapping):
        arguments = [f"{old}: {new}" for old, new in step.mapping.items()]
    elif isinstance(step, Join):
        arguments = [f"a public frame, how={step.how!r}, on {', '.join(step.left_on)}"]
    said = ", ".join(map(str, arguments))
    text = " ".join(": ".join(filter(None, [_STEPS.get(step.name, step.name), said])).split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _output(line: Line[Asked], parts: int) -> Facts:
    """Return the facts of an output: its whole line. Its loss is for this number of disjoint parts."""
    row, ask = line.row, line.ask
    said = {name: row[name] for name in ("error_95", "error_unit", "limits", "note")}
    if said["error_95"] is not None and not math.isfinite(said["error_95"]):
        said["error_95"] = None
    if ask is None:
        return follows_facts(row["output"], row["selects"]) | said
    columns = ", ".join(map(expression_in_words, ask.columns))
    selects = f"{row['selects']}, of {columns}" if columns else row["selects"]
    return output_facts(row["output"], ask.query, selects, line.types, parts) | said
