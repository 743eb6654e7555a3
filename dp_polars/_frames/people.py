"""The query about people themselves: a quantile of how many rows, or groups, they have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from dp_polars._accounting.terms import ONE_RELEASE
from dp_polars._base.numbers import plural
from dp_polars._engines.bounding import Kept
from dp_polars._engines.contract import PER_PERSON, Output, PerPerson, Tally, Work
from dp_polars._frames import group_keys
from dp_polars._frames.query import PrivateQuery, columns
from dp_polars._frames.release import Ask, typed_rows

if TYPE_CHECKING:
    from dp_polars._accounting.budgets import Budget
    from dp_polars._engines.contract import Engine
    from dp_polars._frames.recipe import Recipe
    from dp_polars._questions.choices import Quantile

_TYPES = (pl.Int64(),)


class PeopleQuery(PrivateQuery):
    """A quantile over people, asked for but not yet released. Made by `PrivateFrame.rows_per_person` and its like.

    Each person is one value, whatever rows they have: so R is that of one row, in one group, and nothing has to be
    bounded.
    """

    def __init__(
        self,
        recipe: Recipe,
        source: pl.LazyFrame | None,
        budget: Budget | None,
        listed: pl.DataFrame | None,
        ask: tuple[str, Quantile],
    ) -> None:
        self._recipe, self._source, self._budget, self._keys, self._listed = recipe, source, budget, None, listed
        name, query = ask
        query.answer_type(*_TYPES)
        self._asks = (
            Ask(name, (pl.col(PER_PERSON),), query.under(ONE_RELEASE, recipe.protection.neighboring_relation, 1)),
        )
        self._check_source()

    @property
    def reads(self) -> tuple[pl.Expr, ...]:
        """What is read of the rows after all steps: the privacy unit, and the keys."""
        return tuple(columns(self.protection.privacy_unit, self._listed))

    def _of_what(self) -> str:
        return "all people" if self._listed is None else f"people in {plural(self._listed.height, 'public group')}"

    def _counts(self, ask: Ask[Any]) -> Literal["people"]:  # noqa: ARG002
        return "people"

    def _drops(self, ask: Ask[Any]) -> bool:  # noqa: ARG002
        return False

    def _bound_to(self, engine: Engine[Any], *, ranges: bool = False) -> Work:
        unit, (ask,) = str(self.protection.privacy_unit), self._asks
        if not engine.counts_per_person:
            msg = f"Output {ask.name!r}: this engine can't count the rows or groups of each person."
            raise TypeError(msg)
        schema = typed_rows(self, engine, [] if self._listed is None else self._listed.columns).collect_schema()
        keys = None if self._listed is None else group_keys.in_types_of(self._listed, schema)
        tallies = tuple(Tally(ask.columns, _TYPES, made, Kept(), people=False) for made in ask.query.evidence(*_TYPES))
        outputs = (Output(ask.name, ask.query, _TYPES, tuple(range(len(tallies)))),)
        work = Work(None, None, tallies, outputs, self._recipe.rows, ranges, PerPerson(unit, keys))
        engine.check(work)
        return work
