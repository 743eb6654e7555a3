"""The query for keys that nobody listed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from dp_polars._base.numbers import float_up
from dp_polars._engines.contract import KeyWork
from dp_polars._frames.query import PrivateQuery
from dp_polars._frames.release import Ask, typed_rows
from dp_polars._mechanisms.key_selection import GaussianThreshold

if TYPE_CHECKING:
    from dp_polars._accounting.budgets import Budget
    from dp_polars._engines.contract import Engine
    from dp_polars._frames.recipe import Recipe
    from dp_polars._questions.unlisted_keys import KeysThatAreThere

# Of the probabilities with which `explain` says that a key is shown.
_CHANCES = (5, 50, 95)


class PrivateKeys(PrivateQuery):
    """Keys that nobody listed, asked for but not yet released: `release` returns those that enough people have."""

    def __init__(
        self, recipe: Recipe, source: pl.LazyFrame | None, budget: Budget | None, question: KeysThatAreThere
    ) -> None:
        self._recipe, self._source, self._budget, self._keys = recipe, source, budget, None
        self._asks = (Ask("keys", tuple(map(pl.col, question.columns)), question),)
        self._check_source()

    def explain(self) -> pl.DataFrame:
        """Return what a release would cost and which keys it would show, without reading a row.

        Returns
        -------
        DataFrame
            One row: `output` ("keys"), `selects`, `epsilon` and `rho` (the loss of one person over all keys, in both
            units; a Gaussian has no epsilon), `delta` (spent beside it), `shown_5`, `shown_50` and `shown_95` (from how
            many people on a key is shown with a probability of 5, 50 and 95 %; at most 2**62), `mechanism`, `threshold`
            (of the noisy number; null for partition selection), `keys_per_person` (for how many a person counts at
            most), `neighboring_relation`, `privacy_unit` and `rate` (the epsilon of one key, or one over the standard
            deviation of the noise).
        """
        question = self._question
        claim, selection = question.claim, question.selection
        row: dict[str, Any] = {
            "output": "keys",
            "selects": str(question),
            "epsilon": float_up(claim.cost("epsilon")) if claim.has_epsilon else None,
            "rho": float_up(claim.cost("rho")),
            "delta": float_up(claim.delta),
            **{f"shown_{chance}": selection.people_for(chance / 100) for chance in _CHANCES},
            "mechanism": claim.mechanism,
            "threshold": selection.threshold if isinstance(selection, GaussianThreshold) else None,
            "keys_per_person": question.keys_per_person,
            "neighboring_relation": self.protection.neighboring_relation,
            "privacy_unit": self.protection.privacy_unit,
            "rate": float(claim.rate),
        }
        return pl.DataFrame([row])

    @property
    def _question(self) -> KeysThatAreThere:
        question: KeysThatAreThere = self._asks[0].query
        return question

    def _of_what(self) -> str:
        return "unlisted keys"

    def _bound_to(self, engine: Engine[Any], *, ranges: bool = False) -> KeyWork:  # noqa: ARG002  # of numbers alone
        question = self._question
        types = question.types(typed_rows(self, engine, question.columns).collect_schema())
        work = KeyWork(self.protection.privacy_unit, types, question.keys_per_person, question, self._recipe.rows)
        engine.check_keys(work)
        return work
