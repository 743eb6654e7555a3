"""The request for keys that nobody listed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from dp_polars._base.numbers import float_up
from dp_polars._engines.contract import Engine, KeyWork, Released
from dp_polars._frames.request import AnyRequest, Ask
from dp_polars._mechanisms.key_selection import GaussianThreshold
from dp_polars._questions.unlisted_keys import KeysThatAreThere

if TYPE_CHECKING:
    from dp_polars._frames.recipe import Recipe

# `explain` says from how many people on a key is shown with these probabilities, in percent.
_CHANCES = (5, 50, 95)


@dataclass(frozen=True)
class KeyRequest(AnyRequest[KeysThatAreThere]):
    """The keys that enough people have."""

    @classmethod
    def of(cls, recipe: Recipe, question: KeysThatAreThere) -> KeyRequest:
        """Return the request whose one output is all keys."""
        return cls(recipe, None, (Ask("keys", tuple(map(pl.col, question.columns)), question),))

    @property
    def about(self) -> str:
        return "unlisted keys"

    def bind(self, engine: Engine[Released]) -> KeyWork:
        question = self.asks[0].query
        proved = self.proved_on(engine, question.columns)
        types = question.types(proved.schemas[-1])
        return KeyWork(self.protection.unit, types, question.keys_per_person, question, proved.rows)

    def explain(self, engine: Engine[Released] | None) -> pl.DataFrame:  # noqa: ARG002  # no type matters
        question = self.asks[0].query
        claim, selection = question.claim, question.selection
        row = {
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
