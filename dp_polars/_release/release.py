"""One release: checked, charged, drawn and cached, whatever the engine."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, NoReturn

import polars as pl

from dp_polars._accounting.ledger import StoredDraw, StoredQuery
from dp_polars._base.progress import shown
from dp_polars._base.silence import silenced
from dp_polars._bins.binning import CategoryBinning
from dp_polars._release.cached import answer_with_draws, cache_answers, cached_answer, known_query, logger
from dp_polars._release.cached_draws import QueryTexts
from dp_polars._release.contract import (
    AS_DRAWN,
    Drawn,
    Engine,
    KeyWork,
    PartChoice,
    Product,
    Released,
    UnreadableError,
    Work,
    in_polars,
)
from dp_polars._release.public_keys import in_types_of

if TYPE_CHECKING:
    from dp_polars._accounting.budget import Budget
    from dp_polars._accounting.claims import Claim
    from dp_polars._release.contract import Presentation
    from dp_polars._release.request import AnyRequest
    from dp_polars._statistics.statistic import Asked


_LENGTH = 8  # bytes of how long what a first stage has drawn is, in what is cached

_FAILED = (
    "The release failed while the engine ran on the private rows. Its message may hold values of them and is not "
    "shown; what was charged stays charged.\n\n"
    "Hint: run the same steps on public or synthetic rows of the same types to see what fails. A CSV file may "
    "hold what does not fit the types that were guessed from its first rows: pl.scan_csv(…, infer_schema=False) reads "
    "texts; cast them with strict=False before `protect`."
)


class ReleaseError(RuntimeError):
    """The engine failed on private rows. Its own message may hold values of them, so it is not shown."""

    def __init__(self, message: str = _FAILED) -> None:
        super().__init__(message)


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
    # It is called with the request as its first stage has settled it, if it has one.
    on_settled: Callable[[AnyRequest[Asked]], None] = lambda _: None
    name: str | None = None  # in a publication, the name of the query

    @property
    def entries(self) -> list[tuple[str, Claim]]:
        return [(charged_as(self.name, text), claim) for text, claim in self.request.charged]


@dataclass(frozen=True)
class _Ready(Generic[Released]):
    """A part that is typed, proved, and checked for what is free: what runs it, or the answer that is cached."""

    part: Part[Released]
    run: Callable[[], Drawn[Released]] | None
    stored_query: StoredQuery | None
    answer: Drawn[Released] | None
    draws: Sequence[StoredDraw] = ()  # that are stored for later queries


def charged_as(name: str | None, text: str) -> str:
    """Return the text of an output in the ledger; in a publication, the name of its query goes first."""
    return text if name is None else f"{name}: {text}"


def release_by(
    request: AnyRequest[Asked],
    engine: Engine[Released],
    budget: Budget | None = None,
    *,
    presentation: Presentation = AS_DRAWN,
    ignore_cache: bool = False,
    on_settled: Callable[[AnyRequest[Asked]], None] = lambda _: None,
) -> Released:
    """Release all outputs of one request once: see `release_all`, and `Part` for `on_settled`."""
    part = Part(request, engine, presentation, on_settled=on_settled)
    (released,) = release_all([part], budget, ignore_cache=ignore_cache)
    return released


def release_all(
    parts: Sequence[Part[Released]],
    budget: Budget | None,
    *,
    ignore_cache: bool = False,
    is_stated: bool = False,
) -> list[Released]:
    """Release all outputs of all parts once, by one charge to the budget before a row is read.

    Where the data set has a name, what the budget caches as drawn for the same statistic is shown instead, and nothing
    is charged for it; unless it gets `ignore_cache`. Draws of another query serve, too, if all outputs follow from
    them: but in no publication, and not if the loss `is_stated` with the answer, since theirs may be larger. How it is
    shown is no part of the statistic. Where one part fails, nothing is released or cached, and the charge stays.

    Raises what `PrivateQuery.release` does. It also raises a ValueError, before the charge, where an engine takes two
    public keys or candidates for one.
    """
    for part in parts:
        part.request.refuse_open("release")
    choice = PartChoice()
    uses_draws = not is_stated and [part.name for part in parts] == [None]
    ready = [_ready(part, budget, choice, ignore_cache=ignore_cache, uses_draws=uses_draws) for part in parts]
    drawn = [one for one in ready if one.answer is None]
    if drawn and budget is not None:
        protection = parts[0].request.protection
        budget._charge(
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
                released = silenced(_cached_and_shown)(ready, budget)
    except (Exception, pl.exceptions.PanicException):
        released = None
    for one in drawn:
        _tell("has ended", one.part.request)  # whether it failed, rows decide
    if released is None:  # raised here, where no exception with private values is its context
        raise ReleaseError
    return released


def _ready(
    part: Part[Released], budget: Budget | None, choice: PartChoice, *, ignore_cache: bool, uses_draws: bool
) -> _Ready[Released]:
    """Return a part that may be charged, or the answer that is cached; raise all that is free."""
    request, engine, presentation = part.request, part.engine, part.presentation
    work, run, stored_query, texts = None, None, None, None
    error: Exception | None = None
    with suppress(UnreadableError):  # that it failed says something of the rows, so it is paid for
        try:
            request = request.on_columns(engine.filled())
            part = replace(part, request=request)
            keep_parts(request, engine, choice)
            work, run = prepare(request, engine, presentation)
            run = _in_stages(part, work, run)
        except (TypeError, ValueError, pl.exceptions.PolarsError) as misfit:
            error = misfit
    if error is not None:
        part.on_misfit()
        raise error
    if run is not None and work is not None:
        if budget is not None and request.pipeline.dataset is not None:
            stored_query = known_query(request, engine, work, budget, request.pipeline.dataset)
        if budget is not None and stored_query is not None:
            packed = None if ignore_cache else cached_answer(stored_query, budget)
            if packed is not None:
                return _Ready(part, None, stored_query, _unpacked(part, work, packed))
            texts = QueryTexts.of(request, engine, work, engine.preprocessing() or "")
            answer = None if ignore_cache or not uses_draws else _from_draws(part, texts, stored_query, budget)
            if answer is not None:
                return _Ready(part, None, stored_query, answer)
        if isinstance(work, Work):
            _check_public_values(work, engine)
    part.before_charge(work)
    return _Ready(part, run, stored_query, None, () if texts is None else texts.draws)


def _from_draws(
    part: Part[Released], texts: QueryTexts | None, stored_query: StoredQuery, budget: Budget
) -> Drawn[Released] | None:
    """Return the answer if it follows from what was drawn for another query."""
    found = None if texts is None else texts.answered(budget)
    packed = None if found is None else answer_with_draws(stored_query, found.number, budget)
    if found is None or packed is None:
        return None
    picked = part.engine.picked(packed, len(found.work.columns), found.places)
    return part.engine.unpacked(picked, found.work, part.presentation)


def _cached_and_shown(ready: Sequence[_Ready[Released]], budget: Budget | None) -> list[Released]:
    drawn = [one.answer if one.run is None else one.run() for one in ready]
    answers = [(one, answer) for one, answer in zip(ready, drawn, strict=True) if answer is not None]
    if budget is not None:
        new = [(one.stored_query, answer, one.draws) for one, answer in answers if one.run and one.stored_query]
        cache_answers(new, budget)
    return [answer.presented() for _, answer in answers]


def _tell(what: str, request: AnyRequest[Asked]) -> None:
    """Log what follows from the query alone."""
    with suppress(Exception):  # of a handler: what is charged is released all the same
        asked = ", ".join(f"{ask.name!r} ({ask.query.claim.loss})" for ask in request.every)
        logger.info("The release of %s %s.", asked, what)


@silenced
def keep_parts(request: AnyRequest[Asked], engine: Engine[Released], choice: PartChoice) -> None:
    """Leave rows in the parts of a request alone, if it is about parts: nothing is read."""
    protection = request.protection
    if protection.parts is not None:
        keys = in_types_of(protection.parts.keys, engine.schema(protection.parts.columns))
        engine.keep_parts(keys, protection.parts.most, protection.unit, choice)


@silenced
def prepare(
    request: AnyRequest[Asked], engine: Engine[Released], presentation: Presentation = AS_DRAWN
) -> tuple[Work | KeyWork, Callable[[], Drawn[Released]]]:
    """Return the work and what runs it: everything proved, typed and fit for the engine, nothing read."""
    work = request.bind(engine)
    return work, engine.prepare(work, presentation)


def _in_stages(
    part: Part[Released], work: Work | KeyWork, run: Callable[[], Drawn[Released]] | None = None
) -> Callable[[], Drawn[Released]]:
    """Return what runs the stages that find what the outputs need, one after the other, and then the outputs.

    `run`: what runs the work by itself, if it is prepared.
    """
    stage = part.request.stage(work, part.engine)
    if stage is None:
        return part.engine.prepare(work, part.presentation) if run is None else run
    find = part.engine.prepare_stage(stage)

    def all_stages() -> Drawn[Released]:
        found = find()
        after, then = _settled(part, work, found)
        if isinstance(stage, KeyWork) and isinstance(then, Work):
            _check_public_values(then, part.engine)
        drawn = _in_stages(after, then)()
        return Drawn(lambda: len(found).to_bytes(_LENGTH) + found + drawn.packed(), drawn.presented)

    return all_stages


def _settled(part: Part[Released], work: Work | KeyWork, found: bytes) -> tuple[Part[Released], Work | KeyWork]:
    """Return the part with what its stage has found, and its work."""
    settled, then = part.request.settled(in_polars(found), work)
    part.on_settled(settled)
    return replace(part, request=settled), then


def with_found(request: AnyRequest[Asked], engine: Engine[pl.DataFrame]) -> AnyRequest[Asked]:
    """Return a request with what its stages find on rows that are public: nothing is charged for it."""
    work = request.bind(engine)
    while (stage := request.stage(work, engine)) is not None:
        request, work = request.settled(in_polars(engine.prepare_stage(stage)()), work)
    return request


def _unpacked(part: Part[Released], work: Work | KeyWork, packed: bytes) -> Drawn[Released]:
    """Return what is cached: of a release in stages, what each has drawn."""
    if part.request.stage(work, part.engine) is None:
        return part.engine.unpacked(packed, work, part.presentation)
    end = _LENGTH + int.from_bytes(packed[:_LENGTH])
    drawn = _unpacked(*_settled(part, work, packed[_LENGTH:end]), packed[end:])
    return Drawn(lambda: packed, drawn.presented)


def _check_public_values(work: Work, engine: Engine[Released]) -> None:
    """Refuse public keys and candidates of which two are one value to the engine: a row would count for both."""
    keys = work.keys if work.per_person is None else work.per_person.keys
    listed = [one.to_frame() for one in keys.values] if isinstance(keys, Product) else [keys]
    lists = [(one, "keys") for one in listed if one is not None and one.height]
    seen: set[tuple[str, CategoryBinning]] = set()
    for output in work.outputs:
        cut = () if work.per_person is None else work.per_person.specs
        for spec in (*(work.specs[number] for number in output.specs), *cut):
            if isinstance(spec.binning, CategoryBinning):
                name = next(iter(spec.columns[0].meta.root_names()), "")
                if (name, spec.binning) not in seen:
                    seen.add((name, spec.binning))
                    candidates = spec.binning.values.alias(name).to_frame()
                    lists.append((candidates, f"Output {output.name!r}: candidates"))
    numbers = engine.distinct([constants for constants, _ in lists]) if lists else []
    for (constants, what), number in zip(lists, numbers, strict=True):
        if number != constants.height:
            _refuse_equal(constants, what, engine)


def _refuse_equal(constants: pl.DataFrame, what: str, engine: Engine[Released]) -> NoReturn:
    """Name two of the constants that are one value to the engine."""

    def distinct(start: int, stop: int) -> int:
        return engine.distinct([constants[start:stop]])[0]

    # The second one ends the shortest start of the list that has fewer values, the first begins its shortest end.
    last = bisect_left(range(constants.height), 1, key=lambda end: distinct(0, end + 1) <= end)
    back = bisect_left(range(last), 1, key=lambda rows: distinct(last - rows, last + 1) <= rows)
    one, other = (row[0] if len(row) == 1 else row for row in map(constants.row, (last - back, last)))
    msg = (
        f"{what} must be different values where {engine.rows_are} compares them, got {one!r} and {other!r}: a row "
        "would count for both.\n\nHint: list one of them, or make a column that tells them apart."
    )
    raise ValueError(msg)
