"""The release of a private query, in the one order that keeps the promise: type, charge, run, shield, draw, keep."""

from __future__ import annotations

import logging
from bisect import bisect_left
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Generic, TypeVar

import polars as pl

from dp_polars._base.callers import warn
from dp_polars._base.settings import deaf
from dp_polars._codes.codings import CategoryCoding
from dp_polars._engines.contract import Engine, Output, Released, Tally, UnreadableError, Work, names_of_ends
from dp_polars._frames import group_keys
from dp_polars._frames.question_text import question_of
from dp_polars._questions.question import Asked
from dp_polars._rowwise.gate import row_by_row

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dp_polars._accounting.budgets import Budget
    from dp_polars._accounting.kept import Question
    from dp_polars._engines.contract import KeyWork
    from dp_polars._frames.query import PrivateQuery

AskedT = TypeVar("AskedT", bound=Asked, covariant=True)

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


@dataclass(frozen=True)
class Ask(Generic[AskedT]):
    """One output of a private query: its name, the columns that are asked about, and what is asked."""

    name: str
    columns: tuple[pl.Expr, ...]
    query: AskedT


def release_by(
    query: PrivateQuery,
    engine: Engine[Released],
    budget: Budget | None = None,
    *,
    ranges: bool = False,
    fresh: bool = False,
    before_charge: Callable[[], None] = lambda: None,
) -> Released:
    """Release all outputs once by an engine, charged to the query's own budget, or the one given, before a row is read.

    `before_charge` looks at the source once more: it raises what is free.

    Where the data set has a name, the answer that the budget keeps to the same question is returned instead, and
    nothing is charged; unless it is asked `fresh`.

    Raises
    ------
    BudgetExceededError
        If the budget has too little left. Nothing is charged then, and no row is read.
    ReleaseError
        If the engine fails on the private rows, or they can't be read; the charge stays.
    TypeError, ValueError
        If the query does not fit the columns, or the engine, or the engine takes two public keys or candidates for one.
        Nothing is charged then.
    """
    released: Released | None = None
    work: Work | KeyWork | None = None
    question = None
    budget = query._budget if budget is None else budget
    with suppress(UnreadableError):  # that it failed says something of the rows, so it is paid for
        work = query._bound_to(engine, ranges=ranges)
    if work is not None and budget is not None and query._recipe.dataset is not None:
        question = question_of(query, engine, work, query._recipe.dataset)
        kept = None if fresh else _kept(question, engine, budget)
        if kept is not None:
            return kept
    if isinstance(work, Work):
        _check_public_values(work, engine)
    before_charge()
    _charge(query, budget)
    try:
        if work is not None:
            with deaf():
                released = work.run(engine)
    except (Exception, pl.exceptions.PanicException):
        released = None
    if released is None:  # raised here, where no exception with private values is its context
        raise ReleaseError
    if question is not None and budget is not None:
        _keep(question, released, engine, budget)
    return released


def _kept(question: Question, engine: Engine[Released], budget: Budget) -> Released | None:
    """Return the answer that the budget keeps, and say so; None if there is none."""
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
    return engine.unpacked(packed)


def _keep(question: Question, released: Released, engine: Engine[Released], budget: Budget) -> None:
    """Keep what is charged and drawn. If that fails it is released all the same, and charged when it is asked again."""
    try:
        budget.keep(question, engine.packed(released))
    except Exception:
        _log.warning("The answer about %r could not be kept: asked again, it is charged again.", question.dataset)


@deaf()
def bind(query: PrivateQuery, engine: Engine[Released], *, ranges: bool = False) -> Work:
    """Return the query on the engine's columns: everything proved, typed and fit for the engine, nothing read."""
    protection = query.protection
    names = [name for ask in query.asks for column in ask.columns for name in column.meta.root_names()]
    names += [] if query._keys is None else query._keys.columns
    rows = typed_rows(query, engine, names)
    schema = rows.collect_schema()
    keys = None if query._keys is None else group_keys.in_types_of(query._keys, schema)
    groups = 1 if keys is None else keys.height
    if ranges:
        _check_names_of_ranges(query)
    tallies: list[Tally] = []
    outputs = []
    for ask in query.asks:
        columns = tuple(row_by_row(column, schema, f"The column of output {ask.name!r}") for column in ask.columns)
        types = tuple(rows.select(column).collect_schema().dtypes()[0] for column in columns)
        try:
            ask.query.answer_type(*types)
            needed = ask.query.evidence(*types)
        except (TypeError, ValueError) as error:
            msg = f"Output {ask.name!r}: {error}"
            raise type(error)(msg) from None
        kept, people = protection.kept(ask.query, groups), protection.counts_people(ask.query)
        positions = tuple(_place(tallies, Tally(columns, types, evidence, kept, people)) for evidence in needed)
        outputs.append(Output(ask.name, ask.query, types, positions))
    work = Work(protection.privacy_unit, keys, tuple(tallies), tuple(outputs), query._recipe.rows, ranges)
    engine.check(work)
    return work


def _check_public_values(work: Work, engine: Engine[Released]) -> None:
    """Refuse public keys and candidates of which two are one value to the engine: a row would count for both."""
    keys = work.keys if work.per_person is None else work.per_person.keys
    if keys is not None:
        _check_distinct(keys, "keys", engine)
    seen: set[tuple[str, CategoryCoding]] = set()
    for output in work.outputs:
        for tally in (work.tallies[number] for number in output.tallies):
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


def typed_rows(query: PrivateQuery, engine: Engine[Released], names: Iterable[str]) -> pl.LazyFrame:
    """Return an empty frame with the types of the rows after all steps; `names` are the columns that are read.

    Where the engine runs no expressions, a query with some is refused.
    """
    if not engine.runs_expressions:
        _refuse_expressions(query, engine)
    rows = pl.LazyFrame(schema=engine.schema(dict.fromkeys(names)))
    return query._recipe.rows(rows) if engine.runs_expressions else rows


def _check_names_of_ranges(query: PrivateQuery) -> None:
    """Refuse names that the ends of ranges would repeat."""
    taken = [ask.name for ask in query.asks] + ([] if query._keys is None else query._keys.columns)
    ends = {end for ask in query.asks if ask.query.has_ranges for end in names_of_ends(ask.name)}
    repeated = sorted(ends.intersection(taken))
    if repeated:
        msg = (
            f"outputs and keys must not be named like the ends of a range, got {repeated}.\n\n"
            "Hint: rename them, or leave ranges=True out."
        )
        raise ValueError(msg)


def _place(tallies: list[Tally], tally: Tally) -> int:
    """Return the position of a tally among those that there are, or of a new one."""
    for position, made in enumerate(tallies):
        if tally.keeps_like(made) and tally.weighing == made.weighing:
            return position
    tallies.append(tally)
    return len(tallies) - 1


def _refuse_expressions(query: PrivateQuery, engine: Engine[Released]) -> None:
    """Refuse steps, and outputs about anything but a column as it is."""
    if query._recipe.steps:
        msg = (
            "query must not have row operations (filter, with_columns, select, join): they are Polars expressions.\n\n"
            f"Hint: do them on {engine.rows_are} first, row by row."
        )
        raise TypeError(msg)
    for ask in query.asks:
        for column in ask.columns:
            names = column.meta.root_names()
            if len(names) != 1 or not column.meta.undo_aliases().meta.eq(pl.col(names[0])):
                msg = (
                    f"Output {ask.name!r} must be asked of a column as it is: Polars expressions can't be run here.\n\n"
                    f"Hint: make the column on {engine.rows_are} first, row by row."
                )
                raise TypeError(msg)


def _charge(query: PrivateQuery, budget: Budget | None) -> None:
    if budget is not None:
        budget.charge(
            [(f"{ask.name}: {ask.query}", ask.query.claim) for ask in query.asks],
            privacy_unit=query.protection.privacy_unit,
            neighboring_relation=query.protection.neighboring_relation,
        )
