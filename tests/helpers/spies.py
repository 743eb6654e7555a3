"""What expressions hand to Python while Polars evaluates them."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace

from dp_polars._base import numbers as words
from dp_polars._expressions import expression as expressions
from dp_polars._mechanisms import quantile_trees
from dp_polars._questions import answer_lists as tops
from dp_polars._questions import categories as choices
from dp_polars._questions import categories as modes
from dp_polars._questions import extremes as argmax
from dp_polars._questions import extremes as first_above


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

    for module, name in (
        (choices, "draw_from_rows"),
        (choices, "draw_groups"),
        (first_above, "first_above_groups"),
        (modes, "lead_groups"),
        (modes, "lead_from_rows"),
        (quantile_trees, "_draw_one"),
        (tops, "draw_in_rounds"),
        (tops, "draw_jointly"),
        (argmax, "best_rows"),
        (argmax, "leading_rows"),
        (argmax.OwnSensitivities, "best"),
    ):
        monkeypatch.setattr(module, name, refuse)


def fix_words(change=setattr) -> None:
    """Give every stream of random words in this process the same key: for good, or by `monkeypatch.setattr`."""
    change(words, "os", SimpleNamespace(urandom=bytes))
