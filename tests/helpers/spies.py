"""What expressions hand to Python while Polars evaluates them."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace

from dp_polars._base import numbers as words
from dp_polars._expressions import expression as expressions
from dp_polars._mechanisms import quantile_trees
from dp_polars._statistics import answer_lists, categories, extremes


@dataclass
class Calls:
    """How long each column was that encoders and draws were called with: rows for encoders, groups for draws."""

    encoded: list[int] = field(default_factory=list)
    drawn: list[int] = field(default_factory=list)

    def clear(self) -> None:
        self.encoded.clear()
        self.drawn.clear()


def watch(monkeypatch) -> Calls:
    """Record every call from now on."""
    calls = Calls()
    for name in ("Encode", "DrawCodes", "DrawRows"):
        record = calls.encoded if name == "Encode" else calls.drawn
        original = getattr(expressions, name).__call__

        def recorded(self, series, *, return_dtype=None, original=original, record=record):
            record.append(len(series[0]))
            return original(self, series, return_dtype=return_dtype)

        monkeypatch.setattr(getattr(expressions, name), "__call__", recorded)
    return calls


def forbid(monkeypatch) -> None:
    """Make every draw an error."""

    def refuse(*_args, **_kwargs):
        raise AssertionError("something was drawn")

    for owner, names in (
        (categories, ("draw_from_rows", "draw_groups", "gap_groups", "gap_from_rows")),
        (extremes, ("first_above_groups", "best_rows", "best_rows_with_gap")),
        (extremes.OwnSensitivities, ("best",)),
        (answer_lists, ("draw_in_rounds", "draw_jointly")),
        (quantile_trees, ("_draw_one",)),
    ):
        for name in names:
            monkeypatch.setattr(owner, name, refuse)


def fix_words(change=setattr) -> None:
    """Give every stream of random words in this process the same key: for good, or by `monkeypatch.setattr`."""
    change(words, "os", SimpleNamespace(urandom=bytes))
