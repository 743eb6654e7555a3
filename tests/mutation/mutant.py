"""A mutant: one place of the package that is changed so that a promise breaks, and the tests that must notice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """One change.

    Parameters
    ----------
    file
        Below `dp_polars/`.
    old, new
        The exact text, which the file has once, and what stands there instead.
    breaks
        What goes wrong then.
    tests
        Arguments of pytest, paths below `tests/`: the fewest tests that fail.
    equivalent
        Why no test can fail, where that is so. Such a mutant is listed so that nobody looks at it again.
    needs
        A module that the tests need; they are not run where it is missing.
    """

    file: str
    old: str
    new: str
    breaks: str
    tests: str
    equivalent: str = ""
    needs: str = ""


def of(file: str, usual: str, *, needs: str = "") -> Callable[..., Mutant]:
    """Return what makes mutants of one file; the usual tests are run where a mutant names none."""
    module = needs

    def make(
        old: str, new: str, breaks: str, tests: str = usual, *, equivalent: str = "", needs: str = module
    ) -> Mutant:
        return Mutant(file, old, new, breaks, tests, equivalent, needs)

    return make
