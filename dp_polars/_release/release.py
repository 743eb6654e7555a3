"""One release: checked, charged, drawn and kept, whatever the engine; and its text, by which an answer is kept."""

from __future__ import annotations

import json
import logging
import secrets
from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime
from fractions import Fraction
from functools import cached_property, partial
from hmac import compare_digest
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic

import polars as pl
from polars import selectors as cs

from dp_polars._accounting.ledger import RowsOf, StoredQuestion
from dp_polars._base.calls import warn
from dp_polars._base.digests import ipc_of, sha256_of
from dp_polars._base.progress import shown
from dp_polars._base.silence import silenced
from dp_polars._bins.binning import CategoryBinning
from dp_polars._release.contract import AS_DRAWN, Engine, KeyWork, Product, Released, UnreadableError, Work
from dp_polars._release.pipeline import CheckedPipeline

if TYPE_CHECKING:
    from dp_polars._accounting.budget import Budget
    from dp_polars._accounting.claims import Claim
    from dp_polars._questions.question import Asked
    from dp_polars._release.contract import Drawn, Presentation
    from dp_polars._release.request import AnyRequest, Ask


def question_of(
    request: AnyRequest[Asked], engine: Engine[Released], work: object, preparation: str, dataset: str
) -> StoredQuestion:
    """Return what is asked of a data set, in words and as a text.

    `preparation` is the text of what made the rows: another preparation is another data set.
    """
    proved = request.checked_on(engine, ())
    schema, pipeline, live = proved.schemas[0], request.pipeline, partial(_read, request, proved)
    # An engine that runs no expressions has no steps, and the types of its columns stand in the work.
    read = live(0) if engine.runs_expressions else []
    if not any(step.looks_at_order for step in pipeline.steps):
        read.sort()
    parts = {
        "dp_polars": import_module("dp_polars").__version__,
        "polars": pl.__version__,
        "engine": _kind(engine),
        "dataset": dataset,
        "preparation": preparation,
        "request": _kind(request),
        "protection": written(request.protection),
        "columns": written(pl.Schema((name, schema[name]) for name in read)),
        "steps": written(
            [(type(step).__name__, *step.parts(partial(live, n))) for n, step in enumerate(pipeline.steps)]
        ),
        "work": written(work, but="rows"),
    }
    words = ", ".join(map(str, request.asks))
    loss = f"{request.loss}, delta={float(request.delta)!r}" if request.delta else str(request.loss)
    return StoredQuestion(dataset, words, loss, engine.mark(), json.dumps(parts))


def _read(request: AnyRequest[Asked], proved: CheckedPipeline, first: int) -> list[str]:
    """Return which columns the steps from `first` on and the outputs read, as Polars' optimizer finds it."""
    schema = proved.schemas[first]
    return _projected(proved.rows(pl.LazyFrame(schema=schema), first), request.reads, schema)


def columns_read(work: Work | KeyWork, schema: pl.Schema) -> list[str]:
    """Return which columns of the rows the steps and the outputs of a work read."""
    if isinstance(work, KeyWork):
        names, exprs = [*(work.privacy_unit or ()), *work.types], list[pl.Expr]()
    else:
        of = work if work.per_person is None else work.per_person
        specs = work.specs if work.per_person is None else work.per_person.cut
        names = [*(of.privacy_unit or ()), *(() if of.keys is None else of.keys.columns)]
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
        names = [field.name for field in fields(value) if field.compare and field.name != but]
        return [kind, [[name, written(getattr(value, name))] for name in names]]
    msg = (
        f"a question whose answer is to be kept must consist of values that can be written down, got {kind}.\n\n"
        "Hint: leave dataset out of protect; then nothing is kept."
    )
    raise TypeError(msg)


def _hidden(value: Any) -> set[str]:  # noqa: ANN401  # a dataclass
    """Return attributes that are no fields and do not follow from them."""
    others = getattr(value, "__dict__", {}).keys() - {field.name for field in fields(value)}
    return {name for name in others if not isinstance(getattr(type(value), name, None), cached_property)}


def _kind(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


_FAILED = (
    "The release failed while the engine ran on the private rows. Its message may hold values of them and is not "
    "shown; what was charged stays charged.\n\n"
    "Hint: run the same steps on public or synthetic rows of the same types to see what fails. A CSV file may "
    "hold what does not fit the types that were guessed from its first rows: pl.scan_csv(…, infer_schema=False) reads "
    "texts; cast them with strict=False before `protect`."
)


_log = logging.getLogger("dp_polars")


class ReleaseError(RuntimeError):
    """The engine failed on private rows. Its own message may hold values of them, so it is not shown."""

    def __init__(self, message: str = _FAILED) -> None:
        super().__init__(message)


class KeptAnswerWarning(UserWarning):
    """An answer that is kept was returned for rows of files that have changed since it was drawn.

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
class Part(Generic[Released]):
    """A request of a release, and where it is answered."""

    # What is asked, of which rows, and how it is shown.
    request: AnyRequest[Asked]
    engine: Engine[Released]
    presentation: Presentation = AS_DRAWN
    # It looks at the source once more, and at the work (None where the rows can't be opened): it raises what is free.
    before_charge: Callable[[Work | KeyWork | None], None] = lambda _: None
    # It is called where the columns don't fit the request, and raises what tells more of why.
    on_misfit: Callable[[], None] = lambda: None
    name: str | None = None  # in a publication, the name of the query

    @property
    def entries(self) -> list[tuple[str, Claim]]:
        return [(charged_as(self.name, ask), ask.query.claim) for ask in self.request.asks]


@dataclass(frozen=True)
class _Ready(Generic[Released]):
    """A part that is typed, proved, and checked for what is free: what runs it, or the answer that is kept."""

    part: Part[Released]
    run: Callable[[], Drawn[Released]] | None
    question: StoredQuestion | None
    answer: Drawn[Released] | None


def charged_as(name: str | None, ask: Ask[Asked]) -> str:
    """Return the text of an output in the ledger; in a publication, the name of its query goes first."""
    return str(ask) if name is None else f"{name}: {ask}"


def release_by(
    request: AnyRequest[Asked],
    engine: Engine[Released],
    budget: Budget | None = None,
    *,
    presentation: Presentation = AS_DRAWN,
    fresh: bool = False,
) -> Released:
    """Release all outputs of one request once: see `release_all`."""
    (released,) = release_all([Part(request, engine, presentation)], budget, fresh=fresh)
    return released


def release_all(parts: Sequence[Part[Released]], budget: Budget | None, *, fresh: bool = False) -> list[Released]:
    """Release all outputs of all parts once, by one charge to the budget before a row is read.

    Where the data set has a name, what the budget keeps as drawn for the same question is shown instead, and nothing is
    charged for it; unless it is asked `fresh`. How it is shown is no part of the question. Where one part fails,
    nothing is released or kept, and the charge stays.

    Raises what `PrivateQuery.release` does. It also raises a ValueError, before the charge, where an engine takes two
    public keys or candidates for one.
    """
    for part in parts:
        part.request.refuse_open("release")
    ready = [_ready(part, budget, fresh=fresh) for part in parts]
    drawn = [one for one in ready if one.answer is None]
    if drawn and budget is not None:
        protection = parts[0].request.protection
        budget.charge(
            [entry for one in drawn for entry in one.part.entries],
            privacy_unit=protection.privacy_unit,
            neighboring_relation=protection.neighboring_relation,
            unchecked=any(one.part.request.pipeline.unchecked for one in drawn),
        )
    if not drawn:
        return [one.answer.presented() for one in ready if one.answer is not None]
    for one in drawn:
        _tell("begins", one.part.request)
    released: list[Released] | None = None
    try:
        if all(one.run is not None for one in drawn):
            with shown(parts[0].engine.step):
                released = silenced(_kept_and_shown)(ready, budget)
    except (Exception, pl.exceptions.PanicException):
        released = None
    for one in drawn:
        _tell("has ended", one.part.request)  # whether it failed, rows decide
    if released is None:  # raised here, where no exception with private values is its context
        raise ReleaseError
    return released


def _ready(part: Part[Released], budget: Budget | None, *, fresh: bool) -> _Ready[Released]:
    """Return a part that may be charged, or what is kept of it; raise all that is free."""
    request, engine, presentation = part.request, part.engine, part.presentation
    work, run, question = None, None, None
    error: Exception | None = None
    with suppress(UnreadableError):  # that it failed says something of the rows, so it is paid for
        try:
            work, run = prepare(request, engine, presentation)
        except (TypeError, ValueError, pl.exceptions.PolarsError) as misfit:
            error = misfit
    if error is not None:
        part.on_misfit()
        raise error
    if run is not None and work is not None:
        if budget is not None and request.pipeline.dataset is not None:
            question = _question(request, engine, work, budget, request.pipeline.dataset)
        if budget is not None and question is not None:
            packed = None if fresh else _kept_answer(question, budget)
            if packed is not None:
                return _Ready(part, None, question, engine.unpacked(packed, work, presentation))
        if isinstance(work, Work):
            _check_public_values(work, engine)
    part.before_charge(work)
    return _Ready(part, run, question, None)


def _kept_and_shown(ready: Sequence[_Ready[Released]], budget: Budget | None) -> list[Released]:
    drawn = [one.answer if one.run is None else one.run() for one in ready]
    answers = [(one, answer) for one, answer in zip(ready, drawn, strict=True) if answer is not None]
    if budget is not None:
        _keep_answers([(one.question, answer) for one, answer in answers if one.run and one.question], budget)
    return [answer.presented() for _, answer in answers]


def _question(
    request: AnyRequest[Asked], engine: Engine[Released], work: object, budget: Budget, dataset: str
) -> StoredQuestion | None:
    """Return what is asked of a data set that has a name; None where what made its rows has no text.

    Refuse other rows in memory than those that the name stood for before.
    """
    preparation = engine.preparation()
    if preparation is None:
        return None
    question = question_of(request, engine, work, preparation, dataset)
    about = json.dumps([dataset, preparation, pl.__version__])  # whose hashes are other ones in other versions
    known = budget.rows_of(about)
    key = secrets.token_bytes(32) if known is None else known.key
    if digest := engine.digest_of_rows(key):
        known = known or budget.note_rows(about, RowsOf(key, digest))
        if not compare_digest(known.digest, digest if known.key == key else engine.digest_of_rows(known.key) or ""):
            msg = (
                f"the data set {question.dataset!r} must have the same rows as when an answer about it was first asked "
                "for, got others.\n\nHint: give protect another dataset for other rows."
            )
            raise ValueError(msg)
    return None if digest is None else question


def _tell(what: str, request: AnyRequest[Asked]) -> None:
    """Log what follows from the query alone."""
    with suppress(Exception):  # of a handler: what is charged is released all the same
        asked = ", ".join(f"{ask.name!r} ({ask.query.claim.loss})" for ask in request.asks)
        _log.info("The release of %s %s.", asked, what)


def _kept_answer(question: StoredQuestion, budget: Budget) -> bytes | None:
    found = budget.cached(question)
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


def _keep_answers(answers: Sequence[tuple[StoredQuestion, Drawn[Released]]], budget: Budget) -> None:
    """Keep what is charged and drawn, all or none. If that fails it is released all the same, and charged again."""
    if not answers:
        return
    try:
        budget.keep([(question, drawn.packed()) for question, drawn in answers])
    except Exception:
        names = " and ".join({repr(question.dataset): None for question, _ in answers})
        _log.warning("The answer about %s could not be kept: asked again, it is charged again.", names)


@silenced
def prepare(
    request: AnyRequest[Asked], engine: Engine[Released], presentation: Presentation = AS_DRAWN
) -> tuple[Work | KeyWork, Callable[[], Drawn[Released]]]:
    """Return the work and what runs it: everything proved, typed and fit for the engine, nothing read."""
    work = request.bind(engine)
    return work, engine.prepare(work, presentation)


def _check_public_values(work: Work, engine: Engine[Released]) -> None:
    """Refuse public keys and candidates of which two are one value to the engine: a row would count for both."""
    keys = work.keys if work.per_person is None else work.per_person.keys
    for listed in [one.to_frame() for one in keys.values] if isinstance(keys, Product) else [keys]:
        if listed is not None:
            _check_distinct(listed, "keys", engine)
    seen: set[tuple[str, CategoryBinning]] = set()
    for output in work.outputs:
        cut = () if work.per_person is None else work.per_person.cut
        for spec in (*(work.specs[number] for number in output.specs), *cut):
            if isinstance(spec.binning, CategoryBinning):
                name = next(iter(spec.columns[0].meta.root_names()), "")
                if (name, spec.binning) not in seen:
                    seen.add((name, spec.binning))
                    candidates = spec.binning.values.alias(name).to_frame()
                    _check_distinct(candidates, f"Output {output.name!r}: candidates", engine)


def _check_distinct(constants: pl.DataFrame, what: str, engine: Engine[Released]) -> None:
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
