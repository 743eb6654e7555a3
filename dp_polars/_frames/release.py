"""The release of a private query, in the one order that keeps the promise: type, charge, run, shield, draw, keep."""

from __future__ import annotations

import logging
from bisect import bisect_left
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import polars as pl

from dp_polars._base.callers import warn
from dp_polars._base.progress import shown
from dp_polars._base.settings import deaf
from dp_polars._codes.codings import CategoryCoding
from dp_polars._engines.contract import Engine, Released, UnreadableError, Work
from dp_polars._engines.outputs import AS_DRAWN
from dp_polars._frames.question_text import question_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from dp_polars._accounting.budgets import Budget
    from dp_polars._accounting.kept import Question
    from dp_polars._engines.contract import Drawn, KeyWork
    from dp_polars._engines.outputs import Presentation
    from dp_polars._frames.request import AnyRequest
    from dp_polars._questions.question import Asked

_FAILED = (
    "The release failed while the engine ran on the private rows. Its message may hold values of them and is not "
    "shown; what was charged stays charged.\n\n"
    "Hint: run the same steps on public or synthetic rows of the same types to see what fails."
)


_log = logging.getLogger("dp_polars")


class ReleaseError(RuntimeError):
    """The engine failed on private rows. Its own message may hold values of them, so it is not shown."""

    def __init__(self, message: str = _FAILED) -> None:
        super().__init__(message)


class KeptAnswerWarning(UserWarning):
    """An answer that is kept was returned for rows of another source than those that it was drawn from.

    The name that `protect(…, dataset=…)` gives stands for the same rows for good. The ledger notes what kind of source
    they came from, and of files their paths, inode numbers and times of change. Where these are others now, the kept
    answer is returned all the same: nothing is charged. `release(fresh=True)` draws from the rows at hand and is
    charged; another `dataset` keeps the answers apart.

    Examples
    --------
    To stop instead:

    >>> import warnings
    >>> import dp_polars as dpp
    >>> warnings.filterwarnings("error", category=dpp.KeptAnswerWarning)
    """


def release_by(
    request: AnyRequest[Asked],
    engine: Engine[Released],
    budget: Budget | None = None,
    *,
    presentation: Presentation = AS_DRAWN,
    fresh: bool = False,
    before_charge: Callable[[Work | KeyWork | None], None] = lambda _: None,
) -> Released:
    """Release all outputs once by an engine, charged to the budget before a row is read.

    `before_charge` looks at the source once more, and at the work (None where the rows can't be opened): it raises what
    is free.

    Where the data set has a name, what the budget keeps as drawn for the same question is shown instead, and nothing is
    charged; unless it is asked `fresh`. How it is shown is no part of the question.

    Raises what `PrivateQuery.release` does. It also raises a ValueError, before the charge, where the engine takes two
    public keys or candidates for one.
    """
    released: Released | None = None
    work: Work | KeyWork | None = None
    run: Callable[[], Drawn[Released]] | None = None
    question = None
    with suppress(UnreadableError):  # that it failed says something of the rows, so it is paid for
        work, run = prepare(request, engine, presentation)
    if run is not None and work is not None:
        if budget is not None and request.recipe.datasets is not None:
            question = question_of(request, engine, work, *request.recipe.datasets)
            packed = None if fresh else _kept_answer(question, budget)
            if packed is not None:
                return engine.unpacked(packed, work, presentation).presented()
        if isinstance(work, Work):
            _check_public_values(work, engine)
    before_charge(work)
    if budget is not None:
        budget.charge(
            [(str(ask), ask.query.claim) for ask in request.asks],
            privacy_unit=request.protection.privacy_unit,
            neighboring_relation=request.protection.neighboring_relation,
        )
    _tell("begins", request)
    try:
        if run is not None:
            with shown(engine.step):
                released = deaf(_kept_and_shown)(run, question, budget)
    except (Exception, pl.exceptions.PanicException):
        released = None
    _tell("has ended", request)  # whether it failed, rows decide
    if released is None:  # raised here, where no exception with private values is its context
        raise ReleaseError
    return released


def _kept_and_shown(run: Callable[[], Drawn[Released]], question: Question | None, budget: Budget | None) -> Released:
    """Draw, keep what was drawn, and return it as it is shown."""
    drawn = run()
    if question is not None and budget is not None:
        _keep_answer(question, drawn, budget)
    return drawn.presented()


def _tell(what: str, request: AnyRequest[Asked]) -> None:
    """Log what follows from the query alone."""
    with suppress(Exception):  # of a handler: what is charged is released all the same
        asked = ", ".join(f"{ask.name!r} ({ask.query.claim.loss})" for ask in request.asks)
        _log.info("The release of %s %s.", asked, what)


def _kept_answer(question: Question, budget: Budget) -> bytes | None:
    """Return what the budget keeps as drawn for the question, and say so; None if there is none."""
    found = budget.kept(question)
    if found is None:
        return None
    answer, packed = found
    drawn = datetime.fromtimestamp(answer.microseconds // 10**6, UTC).date()
    if answer.question.source != question.source:
        msg = (
            f"the answer about {question.dataset!r} is returned once more, from {drawn}, and nothing is charged; but "
            "it was drawn from another source, or from files that have changed since.\n\n"
            "Hint: release(fresh=True) draws from these rows, and is charged. Give protect another dataset where they "
            "are other data."
        )
        warn(msg, KeptAnswerWarning)
    _log.info(
        "The answer of %s about %r is returned once more, from %s: nothing is charged. release(fresh=True) draws anew.",
        *(drawn, question.dataset, budget.path),
    )
    return packed


def _keep_answer(question: Question, drawn: Drawn[Released], budget: Budget) -> None:
    """Keep what is charged and drawn. If that fails it is released all the same, and charged when it is asked again."""
    try:
        budget.keep(question, drawn.packed())
    except Exception:
        _log.warning("The answer about %r could not be kept: asked again, it is charged again.", question.dataset)


@deaf
def prepare(
    request: AnyRequest[Asked], engine: Engine[Released], presentation: Presentation = AS_DRAWN
) -> tuple[Work | KeyWork, Callable[[], Drawn[Released]]]:
    """Return the work and what runs it: everything proved, typed and fit for the engine, nothing read."""
    work = request.bind(engine)
    return work, engine.prepare(work, presentation)


def _check_public_values(work: Work, engine: Engine[Released]) -> None:
    """Refuse public keys and candidates of which two are one value to the engine: a row would count for both."""
    keys = work.keys if work.per_person is None else work.per_person.keys
    if keys is not None:
        _check_distinct(keys, "keys", engine)
    seen: set[tuple[str, CategoryCoding]] = set()
    for output in work.outputs:
        cut = () if work.per_person is None else work.per_person.cut
        for tally in (*(work.tallies[number] for number in output.tallies), *cut):
            if isinstance(tally.coding, CategoryCoding):
                name = next(iter(tally.columns[0].meta.root_names()), "")
                if (name, tally.coding) not in seen:
                    seen.add((name, tally.coding))
                    candidates = tally.coding.values.alias(name).to_frame()
                    _check_distinct(candidates, f"Output {output.name!r}: candidates", engine)


def _check_distinct(constants: pl.DataFrame, what: str, engine: Engine[Released]) -> None:
    """Refuse constants of which two are one value to the engine; the message names two."""
    if engine.distinct(constants) == constants.height:
        return
    # The second one ends the shortest start of the list that has fewer values, the first begins its shortest end.
    last = bisect_left(range(constants.height), 1, key=lambda end: engine.distinct(constants[: end + 1]) <= end)
    back = bisect_left(range(last), 1, key=lambda rows: engine.distinct(constants[last - rows : last + 1]) <= rows)
    one, other = (row[0] if len(row) == 1 else row for row in map(constants.row, (last - back, last)))
    msg = (
        f"{what} must be different values where {engine.rows_are} compares them, got {one!r} and {other!r}: a row "
        "would count for both.\n\nHint: list one of them, or make a column that tells them apart."
    )
    raise ValueError(msg)
