"""The request about people themselves: a quantile of how many rows, or groups, they have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import polars as pl

from dp_polars._accounting.terms import ONE_RELEASE
from dp_polars._base.numbers import plural
from dp_polars._engines.bounding import Limits
from dp_polars._engines.contract import GROUPS, ROWS, Engine, Output, PerPerson, Released, Tally, Work
from dp_polars._frames import group_keys
from dp_polars._frames.request import Ask, Request

if TYPE_CHECKING:
    from dp_polars._frames.recipe import Recipe
    from dp_polars._questions.question import HistogramQuery

_TYPES = (pl.Int64(),)


@dataclass(frozen=True)
class PeopleRequest(Request):
    """A quantile over people; with keys, of the number of these groups.

    Each person is one value, whatever rows they have: so R is that of one row, in one group, and nothing has to be
    bounded.
    """

    @classmethod
    def over(cls, recipe: Recipe, keys: pl.DataFrame | None, name: str, query: HistogramQuery) -> PeopleRequest:
        """Return the request with this one output."""
        query.answer_type(*_TYPES)
        query = query.under(ONE_RELEASE, recipe.protection.neighboring_relation, 1)
        return cls(recipe, keys, (Ask(name, (pl.col(ROWS if keys is None else GROUPS),), query),))

    @property
    def groups(self) -> int:
        return 1

    @property
    def reads(self) -> tuple[pl.Expr, ...]:
        return self._unit_and_keys()

    @property
    def about(self) -> str:
        return "all people" if self.keys is None else f"people in {plural(self.keys.height, 'public group')}"

    def bind(self, engine: Engine[Released], *, ranges: bool = False) -> Work:
        unit, (ask,) = str(self.protection.privacy_unit), self.asks
        if not engine.counts_per_person:
            msg = f"Output {ask.name!r}: this engine can't count the rows or groups of each person."
            raise TypeError(msg)
        proved = self.proved_on(engine, [] if self.keys is None else self.keys.columns)
        keys = None if self.keys is None else group_keys.in_types_of(self.keys, proved.schemas[-1])
        evidence = ask.query.evidence(*_TYPES)
        tallies = tuple(Tally(ask.columns, _TYPES, piece, Limits(), people=False) for piece in evidence)
        outputs = (Output(ask.name, ask.query, _TYPES, tuple(range(len(tallies)))),)
        return Work(None, None, tallies, outputs, proved.rows, ranges, PerPerson(unit, keys))

    def counts(self, query: HistogramQuery) -> Literal["people", "rows"]:  # noqa: ARG002
        return "people"

    def bounds_of(self, ask: Ask[HistogramQuery]) -> dict[str, int]:  # noqa: ARG002
        return {}

    def _dropping(self, ask: Ask[HistogramQuery]) -> dict[str, int]:  # noqa: ARG002
        return {}
