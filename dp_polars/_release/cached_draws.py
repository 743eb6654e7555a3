"""Draws of cached answers, from which later queries are answered that need no other sums."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING

import polars as pl

from dp_polars._accounting.ledger import StoredDraw, digest_of_text
from dp_polars._release.cached import facts_of_rows, written
from dp_polars._release.contract import Engine, Output, Released, Work
from dp_polars._release.request import AnyRequest, Ask, Request
from dp_polars._statistics.measures import Measure
from dp_polars._statistics.shared_sums import draws_shared
from dp_polars._statistics.stored_sums import (
    Answered,
    Noise,
    Stored,
    StoredStatistic,
    Texts,
    drawn_sums,
    from_stored,
)

if TYPE_CHECKING:
    from dp_polars._accounting.budget import Budget
    from dp_polars._release.contract import KeyWork
    from dp_polars._statistics.statistic import Asked, HistogramQuery


@dataclass(frozen=True)
class FromDraws:
    """The outputs of a query as they follow from an answer: its number, and the places of what was drawn for it."""

    number: int
    work: Work
    places: tuple[int, ...]


@dataclass(frozen=True)
class QueryTexts:
    """A query of numbers, with texts of which rows contribute to each output and what it reads of them."""

    request: Request
    work: Work
    rows: tuple[str, ...]
    statistics: tuple[Texts, ...]

    @classmethod
    def of(
        cls, request: AnyRequest[Asked], engine: Engine[Released], work: Work | KeyWork, preprocessing: str
    ) -> QueryTexts | None:
        """Return the texts; None if the query finds something first, or its outputs don't follow from sums."""
        if type(request) is not Request or not isinstance(work, Work):
            return None
        proved = request.checked_on(engine, ())
        of_all = [written(work.privacy_unit), written(work.keys)]

        def facts_of(ask: Ask[HistogramQuery], columns: Sequence[pl.Expr]) -> dict[str, object]:
            reading = replace(request, asks=(replace(ask, columns=tuple(columns), reads=None),))
            facts = facts_of_rows(reading, engine, preprocessing, proved)
            return facts | {"read": written([column.meta.undo_aliases() for column in columns])}

        rows, statistics = [], []
        for ask, output in zip(request.asks, work.outputs, strict=True):
            query, claim, spec = output.query, output.query.claim, work.specs[output.specs[0]]
            which, columns = request.contributing(ask)
            of_person = [spec.limits, spec.people, spec.weight, query.in_parts]
            of_claim = [claim.mechanism, claim.loss.unit, claim.contributions, claim.neighboring_relation]
            types = written(output.types if which == "values" else None)
            facts = facts_of(ask, ask.columns)
            of_rows = facts if columns is ask.columns else facts_of(ask, columns)
            rows.append(json.dumps([of_rows, which, types, of_all, written([*of_person, *of_claim])]))
            values = digest_of_text(json.dumps([facts, written(output.types)]))
            formula = written(query.alone if isinstance(query, Measure) else query, but="claim")
            statistics.append(Texts(values, json.dumps(formula), output.types))
        return cls(request, work, tuple(rows), tuple(statistics))

    @property
    def draws(self) -> list[StoredDraw]:
        """The draws of the query and its statistics, for later ones."""
        column, found, places, firsts = 0, list[StoredDraw](), dict[object, int](), list[list[int]]()
        for ask, output, rows, texts in self._outputs:
            # The sums of another output are stored with that one.
            sums, columns = drawn_sums(output.query, texts) if ask.reads is None else [], len(output.drawn_types)
            firsts.append([column + number * columns // len(sums) for number in range(len(sums))])
            for place, (what, noise) in zip(firsts[-1], sums, strict=True):
                found.append(StoredDraw(rows, what, json.dumps(noise, default=str), place))
            places |= dict(zip(draws_shared(output.query), firsts[-1], strict=False))
            column += columns
        for (_, output, rows, texts), of_output in zip(self._outputs, firsts, strict=True):
            if isinstance(output.query, Measure):
                used = [places[draw] for draw in draws_shared(output.query)] or of_output
                loss = str(output.query.claim.loss.value)
                found.append(StoredDraw(rows, texts.statistic, json.dumps([loss, used]), -1))
        return found

    @property
    def _outputs(self) -> list[tuple[Ask[HistogramQuery], Output, str, Texts]]:
        return list(zip(self.request.asks, self.work.outputs, self.rows, self.statistics, strict=True))

    def answered(self, budget: Budget) -> FromDraws | None:
        """Return the query as it follows from the draws of one cached answer; None if that would be less exact.

        It depends on no row, only on texts and losses: `docs/proofs/shared-sums.md`, Theorem 5.
        """
        by_rows = {rows: budget._stored_draws(rows) for rows in self.rows}
        numbers = set[int].intersection(*({number for number, _ in draws} for draws in by_rows.values()))
        for number in sorted(numbers, reverse=True):
            of_rows = {rows: [draw for of, draw in draws if of == number] for rows, draws in by_rows.items()}
            if (found := self._answered_by(number, of_rows)) is not None:
                return found
        return None

    def _answered_by(self, number: int, stored: dict[str, list[StoredDraw]]) -> FromDraws | None:
        outputs, places = list[Output](), list[int]()
        for part, (ask, output, rows, texts) in zip(
            self.request.sharing(self.request.asks), self._outputs, strict=True
        ):
            reads = texts if ask.reads is None else self.statistics[ask.reads]
            found = from_stored(part, texts, reads, self.work.groups, _answered(stored[rows]))
            if found is None:
                return None
            outputs.append(replace(output, query=found.query, types=found.types))
            places += found.places
        return FromDraws(number, replace(self.work, outputs=tuple(outputs)), tuple(places))


def _answered(stored: Sequence[StoredDraw]) -> Answered:
    draws, statistics = list[Stored](), list[StoredStatistic]()
    for one in stored:
        numbers = json.loads(one.claim)
        if one.place < 0:
            statistics.append(StoredStatistic(one.what, Fraction(numbers[0]), tuple(numbers[1])))
        else:
            draws.append(Stored(one.what, Noise.read(numbers), one.place))
    return Answered(tuple(draws), tuple(statistics))
