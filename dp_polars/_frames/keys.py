"""The request for keys that nobody listed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from dp_polars._base.numbers import plural
from dp_polars._engines.contract import Engine, KeyWork, Released
from dp_polars._frames.request import AnyRequest, Ask
from dp_polars._mechanisms.key_selection import GaussianThreshold
from dp_polars._questions.unlisted_keys import KeysThatAreThere

if TYPE_CHECKING:
    from dp_polars._frames.recipe import Recipe

# `explain` says from how many people on a key is shown with these probabilities, in percent.
_CHANCES = (95, 50, 5)


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
