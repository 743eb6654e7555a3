"""Cached answers: the text by which an answer is found, and the rows that a name stands for."""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from datetime import UTC, date, datetime
from fractions import Fraction
from functools import cached_property, partial
from hmac import compare_digest
from importlib import import_module
from typing import TYPE_CHECKING, Any

import polars as pl
from polars import selectors as cs

from dp_polars._accounting.ledger import RowsOf, StoredAnswer, StoredDraw, StoredQuery
from dp_polars._base.calls import warn
from dp_polars._base.digests import ipc_of, sha256_of
from dp_polars._release.contract import Engine, KeyWork, Released, Work
from dp_polars._release.pipeline import CheckedPipeline

if TYPE_CHECKING:
    from dp_polars._accounting.budget import Budget
    from dp_polars._release.contract import Drawn
    from dp_polars._release.request import AnyRequest
    from dp_polars._statistics.statistic import Asked


def stored_query_of(
    request: AnyRequest[Asked], engine: Engine[Released], work: object, preprocessing: str, dataset: str
) -> StoredQuery:
    """Return the query of a data set, in words and as a text.

    `preprocessing` is the text of what made the rows: other preprocessing is another data set.
    """
    proved = request.checked_on(engine, ())
    parts = facts_of_rows(request, engine, preprocessing, proved) | {
        "dataset": dataset,
        "request": _kind(request),
        "work": written(work, but="rows"),
        "found first": written([ask.query for ask in request.found_first]),
    }
    return StoredQuery(dataset, *said_of(request), engine.mark(), json.dumps(parts))


def said_of(request: AnyRequest[Asked]) -> tuple[str, str]:
    """Return a query in words, and its loss."""
    loss = f"{request.loss}, delta={float(request.delta)!r}" if request.delta else str(request.loss)
    return ", ".join(map(str, request.asks)), loss


def facts_of_rows(
    request: AnyRequest[Asked], engine: Engine[Released], preprocessing: str, proved: CheckedPipeline
) -> dict[str, object]:
    """Return what decides which rows a query reads, and the versions that read them, as texts."""
    schema, pipeline, live = proved.schemas[0], request.pipeline, partial(_read, request, proved)
    # An engine that runs no expressions has no steps, and the types of its columns are in the work.
    read = live(0) if engine.runs_expressions else []
    if not any(step.looks_at_order for step in pipeline.steps):
        read.sort()
    return {
        "dp_polars": import_module("dp_polars").__version__,
        "polars": pl.__version__,
        "engine": _kind(engine),
        "dataset": pipeline.dataset,
        "preprocessing": preprocessing,
        "protection": written(request.protection),
        "columns": written(pl.Schema((name, schema[name]) for name in read)),
        "steps": written(
            [(type(step).__name__, *step.parts(partial(live, n))) for n, step in enumerate(pipeline.steps)]
        ),
    }


def _read(request: AnyRequest[Asked], proved: CheckedPipeline, first: int) -> list[str]:
    """Return which columns the steps from `first` on and the outputs read, as Polars' optimizer finds it."""
    schema = proved.schemas[first]
    return _projected(proved.rows(pl.LazyFrame(schema=schema), first), request.reads, schema)


def columns_needed(work: Work | KeyWork, schema: pl.Schema) -> list[str]:
    """Return which columns of the rows the steps and the outputs of a work read."""
    if isinstance(work, KeyWork):
        names, exprs = [*(work.privacy_unit or ()), *work.types], list[pl.Expr]()
    else:
        of = work if work.per_person is None else work.per_person
        specs = work.specs if work.per_person is None else work.per_person.specs
        names = [*(of.privacy_unit or ()), *of.columns]
        exprs = [column for spec in specs for column in spec.columns]
    by_name = [cs.by_name(name).as_expr() for name in dict.fromkeys(names)]
    source = pl.LazyFrame(schema=schema)
    rows = work.rows(source)
    if rows is source and not names and not exprs:  # of which Polars 1 says that they need the first column
        return []
    return _projected(rows, [*by_name, *exprs], schema)


def _projected(rows: pl.LazyFrame, exprs: Sequence[pl.Expr], schema: pl.Schema) -> list[str]:
    """Return the columns of the source of a plan that expressions of its rows need, as Polars finds it."""
    rows = rows.select([expr.alias(str(number)) for number, expr in enumerate(exprs)] or pl.len())
    plan = rows._ldf.with_optimizations(pl.QueryOptFlags.none(projection_pushdown=True)._pyoptflags).visit()
    inputs = [plan.get_node()]
    while inputs:
        plan.set_node(inputs[0])  # of a join the left side, which is the private one
        inputs = plan.get_inputs()
    found = plan.view_current_node().projection
    return [name for name in schema if found is None or name in found]


def written(value: object, but: str = "") -> Any:  # noqa: ANN401  # what JSON takes
    """Return a value as lists of strings, each with its kind, so that no two values are written alike."""
    kind = _kind(value)
    if value is None or isinstance(value, (bool, str)):
        return [kind, value]
    if isinstance(value, (int, Fraction)):
        return [kind, str(value)]
    if isinstance(value, float):
        return [kind, value.hex()]
    if isinstance(value, (tuple, list)):
        return [kind, [written(one) for one in value]]
    if isinstance(value, pl.DataType):
        return ["type", str(value), sha256_of(pl.LazyFrame(schema={"": value}).serialize())]
    if isinstance(value, pl.Schema):
        return [kind, [[name, written(dtype)] for name, dtype in value.items()]]
    if isinstance(value, pl.Expr):
        return ["expression", sha256_of(value.meta.serialize())]  # whichever class: pl.when(…).then(…) has its own
    if isinstance(value, pl.Series):
        return [kind, value.name, len(value), written(value.dtype), sha256_of(ipc_of(value.alias("").to_frame()))]
    if isinstance(value, pl.DataFrame):
        return [kind, value.height, written(value.schema), sha256_of(ipc_of(value))]
    if is_dataclass(value) and not isinstance(value, type) and not _hidden(value):
        # A statistic's claim in the place of its terms: all terms that make the same claim are written alike.
        names = ["claim" if field.name == "terms" else field.name for field in fields(value) if field.compare]
        names = [name for name in names if name != but]
        return [kind, [[name, written(getattr(value, name))] for name in names]]
    msg = (
        f"a statistic whose answer is to be cached must consist of values that can be written down, got {kind}.\n\n"
        "Hint: leave dataset out of protect; then nothing is cached."
    )
    raise TypeError(msg)


def _hidden(value: Any) -> set[str]:  # noqa: ANN401  # a dataclass
    """Return attributes that are no fields and do not follow from them."""
    others = getattr(value, "__dict__", {}).keys() - {field.name for field in fields(value)}
    return {name for name in others if not isinstance(getattr(type(value), name, None), cached_property)}


def _kind(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


logger = logging.getLogger("dp_polars")


class CachedAnswerWarning(UserWarning):
    """An answer that is cached was returned for rows of files that have changed since it was drawn.

    The name that `protect(…, dataset=…)` gives stands for the same rows for good. The ledger notes what kind of source
    they came from, and of files their paths, inode numbers and times of change. Where these are others now, the cached
    answer is returned all the same: nothing is charged. `release(ignore_cache=True)` draws from the rows at hand and is
    charged; another `dataset` caches the answers apart.

    Examples
    --------
    To stop instead:

    >>> import warnings
    >>> import dp_polars as dpp
    >>> warnings.filterwarnings("error", category=dpp.CachedAnswerWarning)
    """


def known_query(
    request: AnyRequest[Asked], engine: Engine[Released], work: object, budget: Budget, dataset: str
) -> StoredQuery | None:
    """Return the query of a data set that has a name; None where what made its rows has no text.

    Refuse other rows in memory than those that the name stood for before.
    """
    preprocessing = engine.preprocessing()
    if preprocessing is None:
        return None
    stored_query = stored_query_of(request, engine, work, preprocessing, dataset)
    about = json.dumps([dataset, preprocessing, pl.__version__])  # whose hashes are other ones in other versions
    known = budget._rows_of(about)
    key = secrets.token_bytes(32) if known is None else known.key
    if digest := engine.digest_of_rows(key):
        known = known or budget._note_rows(about, RowsOf(key, digest))
        if not compare_digest(known.digest, digest if known.key == key else engine.digest_of_rows(known.key) or ""):
            msg = (
                f"the data set {stored_query.dataset!r} must have the same rows as when an answer about it was first "
                "requested, got others.\n\nHint: give protect another dataset for other rows."
            )
            raise ValueError(msg)
    return None if digest is None else stored_query


def cached_answer(stored_query: StoredQuery, budget: Budget) -> bytes | None:
    found = budget._cached_answer(stored_query)
    if found is None:
        return None
    answer, packed = found
    _warn_of_source(answer, stored_query, "is returned once more, from {}")
    logger.info(
        "The answer of %s about %r is returned once more, from %s: nothing is charged. release(ignore_cache=True) "
        "draws anew.",
        *(_day_of(answer), stored_query.dataset, budget._path),
    )
    return packed


def answer_with_draws(stored_query: StoredQuery, number: int, budget: Budget) -> bytes | None:
    """Return the answer of a number, from whose draws another query is answered."""
    found = budget._answer_numbered(number)
    if found is None:
        return None
    answer, packed = found
    _warn_of_source(answer, stored_query, "follows from draws of {}")
    logger.info(
        "The answer of %s about %r follows from what was drawn on %s for %s, at %s: nothing is charged. "
        "release(ignore_cache=True) draws anew.",
        *(stored_query.words, stored_query.dataset, _day_of(answer), answer.query.words, answer.query.loss),
    )
    return packed


def _day_of(answer: StoredAnswer) -> date:
    return datetime.fromtimestamp(answer.microseconds // 10**6, UTC).date()


def _warn_of_source(answer: StoredAnswer, stored_query: StoredQuery, what: str) -> None:
    if answer.query.source != stored_query.source:
        msg = (
            f"the answer about {stored_query.dataset!r} {what.format(_day_of(answer))}, and nothing is charged; "
            "but it was drawn from another source, or from files that have changed since.\n\n"
            "Hint: release(ignore_cache=True) draws from these rows, and is charged. Give protect another dataset if "
            "they are other data."
        )
        warn(msg, CachedAnswerWarning)


def cache_answers(answers: Sequence[tuple[StoredQuery, Drawn[Released], Sequence[StoredDraw]]], budget: Budget) -> None:
    """Keep what is charged and drawn, all or none. If that fails it is released all the same, and charged again."""
    if not answers:
        return
    try:
        budget._cache_answers([(query, drawn.packed(), draws) for query, drawn, draws in answers])
    except Exception:
        names = " and ".join({repr(stored_query.dataset): None for stored_query, _, _ in answers})
        logger.warning("The answer about %s could not be cached: released again, it is charged again.", names)
