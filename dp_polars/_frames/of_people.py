"""Requests about people: how many bounds cut, quantiles of their rows, and keys that nobody listed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import polars as pl

from dp_polars._accounting.claims import Claim
from dp_polars._accounting.terms import ONE_RELEASE
from dp_polars._base.numbers import plural
from dp_polars._mechanisms.partition_selection import GaussianThreshold
from dp_polars._questions.measures import Count, RowsCut, checked
from dp_polars._questions.unlisted_keys import KeysThatAreThere
from dp_polars._release import request
from dp_polars._release.contract import (
    ROWS_CUT,
    Engine,
    HistogramSpec,
    KeyWork,
    Output,
    PerPerson,
    Product,
    Released,
    Work,
)
from dp_polars._release.protection import Limits
from dp_polars._release.request import AnyRequest, Ask, Request

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from dp_polars._accounting.terms import Terms
    from dp_polars._questions.question import Columns, HistogramQuery
    from dp_polars._release.pipeline import Pipeline


# `explain` says from how many people on a key is shown with these probabilities, in percent.
_CHANCES = (95, 50, 5)


@dataclass(frozen=True)
class KeyRequest(AnyRequest[KeysThatAreThere]):
    """The keys that enough people have."""

    @classmethod
    def of(cls, pipeline: Pipeline, question: KeysThatAreThere) -> KeyRequest:
        return cls(pipeline, None, (Ask("keys", tuple(map(pl.col, question.columns)), question),))

    @property
    def about(self) -> str:
        return "unlisted keys"

    def bind(self, engine: Engine[Released]) -> KeyWork:
        question = self.asks[0].query
        proved = self.checked_on(engine, question.columns)
        types = question.types(proved.schemas[-1])
        return KeyWork(self.protection.unit, types, question.keys_per_person, question, proved.rows)

    def _explanations(self, engine: Engine[Released] | None) -> list[dict[str, object]]:  # noqa: ARG002  # no type matters
        (ask,) = self.asks
        question, selection = ask.query, ask.query.selection
        shown, half, rarely = (selection.people_for(chance / 100) for chance in _CHANCES)
        notes = [f"Shown with 95 % from {shown:,} people on, with 50 % from {half:,}, with 5 % from {rarely:,}."]
        if isinstance(selection, GaussianThreshold):
            notes.append(f"The noisy number of people must reach {selection.threshold:,}.")
        notes.append(f"A person counts for at most {plural(question.keys_per_person, 'key')}.")
        good = {"error_95": float(shown), "error_unit": "people", "note": " ".join(notes)}
        return [self._explained(ask) | good]


@dataclass(frozen=True)
class PeopleRequest(Request):
    """Questions about numbers of rows, or groups, that people have; with keys, of these groups.

    Each person is one row, whatever rows they have: so R is that of one row, in one group, and nothing has to be
    bounded.
    """

    @classmethod
    def over(
        cls, pipeline: Pipeline, keys: pl.DataFrame | None, asked: Mapping[str, tuple[str, HistogramQuery]]
    ) -> PeopleRequest:
        """Return the request with these outputs: of each its column of `PerPerson`, and what is asked about it."""
        asks = []
        for name, (column, query) in asked.items():
            query.answer_type(pl.Int64())
            query = query.under(ONE_RELEASE, pipeline.protection.neighboring_relation, 1)
            asks.append(Ask(name, (pl.col(column),), query))
        return cls(pipeline, keys, tuple(asks))

    @property
    def groups(self) -> int:
        return 1

    @property
    def readers(self) -> tuple[Ask[HistogramQuery], ...]:
        return ()

    @property
    def about(self) -> str:
        return "all people" if self.keys is None else f"people in {plural(self.keys.height, 'public group')}"

    def bind(self, engine: Engine[Released]) -> Work:
        if not engine.counts_per_person:
            msg = f"Output {self.asks[0].name!r}: this engine can't count the rows or groups of each person."
            raise TypeError(msg)
        per_person, rows = self._people(engine)
        specs, outputs = [], []
        for number, ask in enumerate(self.asks):
            types: Columns = (pl.Int64(),) * len(ask.columns)
            (evidence,) = ask.query.evidence(*types)
            specs.append(HistogramSpec(ask.columns, types, evidence, Limits(), people=False))
            outputs.append(Output(ask.name, ask.query, types, (number,)))
        return Work(None, None, tuple(specs), tuple(outputs), rows, per_person)

    def _people_output(self) -> str:
        return AnyRequest._people_output(self)

    def _people(self, engine: Engine[Released]) -> tuple[PerPerson, Callable[[pl.LazyFrame], pl.LazyFrame]]:
        """Return which people are a row each, and the steps on the rows before."""
        proved = self.checked_on(engine, [] if self.keys is None else self.keys.columns)
        keys = None if self.keys is None else request.in_types_of(self.keys, proved.schemas[-1])
        return PerPerson(self.protection.unit or (), keys), proved.rows  # type: ignore[arg-type]  # no product

    def counts(self, query: HistogramQuery) -> Literal["people", "rows"]:  # noqa: ARG002
        return "people"

    def bounds_of(self, ask: Ask[HistogramQuery]) -> dict[str, int]:  # noqa: ARG002
        return {}

    def dropping(self, ask: Ask[HistogramQuery]) -> dict[str, int]:  # noqa: ARG002
        return {}


@dataclass(frozen=True)
class CutRequest(PeopleRequest):
    """How many people lose evidence to the bounds of another request, or how many rows these leave out.

    A person is one row if they are cut, and none if they are not: so R is 1, whatever these bounds are. The row has the
    number of rows that are left out, which is clipped to a public one: so R is that, where rows are counted.
    """

    bounded: Request

    @classmethod
    def by(cls, bounded: Request, terms: Terms, most: int | None = None) -> CutRequest:
        """Return the request; refuse one that loses nothing of anybody. `most` rows of a person are counted."""
        protection, call = bounded.protection, "n_cut" if most is None else "n_rows_cut"
        if isinstance(bounded.keys, Product):
            msg = (
                f"{call}: a cube must be asked for without tables, got one with some.\n\n"
                "Hint: ask it of private.agg(dpp.len(…)) under the same bounds."
            )
            raise TypeError(msg)
        if protection.privacy_unit is None:
            msg = (
                f"{call}: there must be a privacy unit, got None: every row is a person, and nobody is cut.\n\n"
                "Hint: name the column that tells people apart."
            )
            raise ValueError(msg)
        if not bounded.drops():
            msg = (
                f"{call}: an output must be bounded, got none that can lose anything: nobody is cut.\n\n"
                "Hint: leave it out. protect(…, max_groups=3), or another bound, is what cuts people."
            )
            raise ValueError(msg)
        claim = Claim.on(terms, "number")
        asked: Count | RowsCut = Count("cut", claim) if most is None else RowsCut.of(most, claim)
        query = checked(asked.under(ONE_RELEASE, protection.neighboring_relation, 1))
        columns = () if most is None else (pl.col(ROWS_CUT),)
        return cls(bounded.pipeline, bounded.keys, (Ask(call, columns, query),), bounded)

    @property
    def readers(self) -> tuple[Ask[HistogramQuery], ...]:
        return self.bounded.asks

    def _people(self, engine: Engine[Released]) -> tuple[PerPerson, Callable[[pl.LazyFrame], pl.LazyFrame]]:
        work = self.bounded.bind(engine)
        per_person = PerPerson(work.privacy_unit or (), work.keys, work.specs)  # type: ignore[arg-type]  # no product
        return per_person, work.rows
