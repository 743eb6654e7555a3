"""Requests about keys, and about people as rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import polars as pl

from dp_polars._accounting.terms import ONE_RELEASE, Terms
from dp_polars._base.numbers import plural
from dp_polars._release.contract import ROWS_CUT, HistogramSpec, KeyWork, Output, PerPerson, Product, Work
from dp_polars._release.protection import Limits
from dp_polars._release.request import AnyRequest, Ask, Line, Request
from dp_polars._release.staged import StagedRequest
from dp_polars._statistics.measures import RowsCut
from dp_polars._statistics.statistic import HistogramQuery, KeysThatAreThere

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TypeGuard

    from dp_polars._release.contract import Engine, Released


@dataclass(frozen=True)
class KeyRequest(AnyRequest[KeysThatAreThere]):
    """The keys that enough people have."""

    about: ClassVar[str] = "selected keys"

    def bind(self, engine: Engine[Released]) -> KeyWork:
        statistic = self.asks[0].query
        proved = self.checked_on(engine, statistic.columns)
        types = statistic.types(proved.schemas[-1])
        return KeyWork(self.protection.members, types, statistic.keys_per_person, statistic, proved.rows)

    def _lines(self, engine: Engine[Released] | None) -> list[Line[KeysThatAreThere]]:  # noqa: ARG002  # no type matters
        (ask,) = self.asks
        people, note = ask.query.people_needed
        return [Line(self._explained(ask) | {"error_95": people, "error_unit": "people", "note": note}, ask)]


@dataclass(frozen=True)
class PeopleRequest(Request):
    """The number of rows that the limits of another request drop.

    A person is one row if limits drop some of theirs, and none if not. Its weight is the number of dropped rows,
    clipped to a public number. So R is that number, in one group, for any limits.
    """

    bounded: Request
    groups: ClassVar[int] = 1
    answers_groups: ClassVar[bool] = False  # one number for all groups together

    @classmethod
    def of_cut(cls, bounded: Request, terms: Terms, most: int) -> PeopleRequest:
        """Return the request; raise if limits drop nothing of anybody. `most` rows of a person are counted."""
        protection = bounded.protection
        if isinstance(bounded.keys, Product):
            msg = (
                "n_rows_dropped: a cube must be requested without tables, got one with some.\n\n"
                "Hint: call it on private.agg(dpp.len(…)) under the same limits."
            )
            raise TypeError(msg)
        protection.refuse_no_unit("n_rows_dropped", "every row is a person, and nobody is cut")
        if not bounded.drops():
            msg = (
                "n_rows_dropped: an output must be bounded, got none that can lose anything: nobody is cut.\n\n"
                "Hint: leave it out. protect(…, max_groups=3), or another limit, is what cuts people."
            )
            raise ValueError(msg)
        query = RowsCut.of(most, terms).under(ONE_RELEASE, protection.neighboring_relation, 1)
        return cls(bounded.pipeline, bounded.keys, (Ask("n_rows_dropped", (pl.col(ROWS_CUT),), query),), bounded)

    def is_about(self, request: AnyRequest[Any]) -> TypeGuard[Request]:
        """Return whether it counts the rows that another request drops; losses don't matter."""
        bounded = self.bounded
        if isinstance(request, StagedRequest):  # its limits may be found anew by another release
            return False
        is_same = isinstance(request, Request) and bounded.pipeline is request.pipeline and bounded.keys is request.keys
        return is_same and [ask.name for ask in bounded.asks] == [ask.name for ask in request.asks]

    def about_one_of(self, requests: Iterable[AnyRequest[Any]]) -> PeopleRequest:
        """Return the request about the rows that another one drops; the losses of that decide the norm."""
        bounded = next(filter(self.is_about, requests), self.bounded)
        return self if bounded is self.bounded else replace(self, bounded=bounded)

    @property
    def readers(self) -> tuple[Ask[HistogramQuery], ...]:
        return self.bounded.asks

    @property
    def about(self) -> str:
        return "all people" if self.keys is None else f"people in {plural(self.keys.height, 'public group')}"

    def bind(self, engine: Engine[Released]) -> Work:
        (ask,) = self.asks
        if not engine.counts_per_person:
            msg = f"Output {ask.name!r}: this engine can't count the rows of each person."
            raise TypeError(msg)
        bounded, types = self.bounded.bind(engine), (pl.Int64(),)
        per_person = PerPerson(bounded.privacy_unit or (), bounded.keys, bounded.specs)  # type: ignore[arg-type]  # no product
        (rule,) = ask.query.count_rules(*types)
        spec = HistogramSpec(ask.columns, types, rule, Limits(), people=False)
        return Work(None, None, (spec,), (Output(ask.name, ask.query, types, (0,)),), bounded.rows, per_person)

    # As for a request about no columns.
    _people_output = AnyRequest._people_output
    limits_of = AnyRequest.limits_of
    dropping = AnyRequest.dropping

    def counts(self, query: HistogramQuery) -> Literal["people", "rows"]:  # noqa: ARG002
        return "people"
