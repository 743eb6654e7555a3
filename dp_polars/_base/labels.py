"""Names of columns and values in plain words, as users give them for figures and reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from dp_polars._base.numbers import given


@dataclass(frozen=True)
class Labels:
    """Columns and values in plain words."""

    words: Mapping[str, str]
    units: Mapping[str, str]

    @classmethod
    def of(cls, labels: object, units: object = None) -> Labels:
        return cls(texts("labels", labels), texts("units", units))

    def column(self, name: str) -> str:
        """Return a column's label with its unit."""
        unit = self.units.get(name)
        return f"{self.words.get(name, name)}{'' if unit is None else f' ({unit})'}"

    def value(self, value: str | None) -> str:
        return "–" if value is None else self.words.get(value, value)

    def values(self, column: pl.Series) -> list[str]:
        return [self.value(value) or "(empty)" for value in as_texts(column)]


def as_texts(column: pl.Series) -> pl.Series:
    """Return values as texts: first days of months as months."""
    if column.dtype == pl.Date and column.len() and bool((column.dt.day() == 1).all()):
        return column.dt.to_string("%Y-%m")
    return column.cast(pl.String)


def texts(name: str, value: object) -> dict[str, str]:
    if value is None:
        return {}
    if not (isinstance(value, Mapping) and all(isinstance(text, str) for text in value.values())):
        got = given(value) if not isinstance(value, Mapping) else "a dict with other values than texts"
        msg = f'{name} must be a dict of texts, got {got}.\n\nHint: {name}={{"n_people": "People"}}.'
        raise TypeError(msg)
    return {str(of): text for of, text in value.items()}
