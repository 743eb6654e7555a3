"""In which unit a promise was taken, and what the other one would have cost in error."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from dp_polars._base.numbers import as_fraction, show

if TYPE_CHECKING:
    from dp_polars._accounting.terms import Unit

# From this size on, errors are shown as whole numbers.
_WHOLE = 100


class Taken(NamedTuple):
    """In which unit a promise was taken.

    Parameters
    ----------
    promise
        What was promised, for people.
    words
        The promise, the unit, and why it is this one.
    other
        The other unit.
    errors
        The `error_95` of each output there, of a mean without `rows` in groups of 1,000; None where it is not known.
    """

    promise: str
    words: str
    other: Unit
    errors: tuple[float | None, ...]

    def part(self, first: int, number: int) -> Taken:
        """Return the same of some of the outputs."""
        return self._replace(errors=self.errors[first : first + number])

    def note(self, output: int, *, needs_rows: bool) -> str | None:
        """Return what the other unit would have cost an output in error; of a mean without `rows`, for 1,000 rows."""
        error = self.errors[output]
        if error is None:
            return None
        shown = f"{math.ceil(error):,}" if error >= _WHOLE else show(as_fraction("error_95", error), 3, up=True)
        return f"In {self.other} {'1,000 rows: ±' if needs_rows else 'error_95 would be '}{shown}."
