"""A mutant: one place of the package that is changed so that a guarantee breaks, and the tests that must notice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """One change.

    Parameters
    ----------
    function
        The qualified name of what is changed: `function`, `Class.method`, `Class`, or the `NAME` of a constant.
        Where several files define it, a part of the path goes first: `sql:function`.
    old, new
        An expression, statements or arguments of a call, which the function has once, and what stands there instead;
        with no new text, the old one is left out.
    breaks
        What goes wrong then.
    tests
        Arguments of pytest, paths below `tests/`: the fewest tests that fail.
    equivalent
        Why no test can fail, where that is so. Such a mutant is listed so that nobody looks at it again.
    needs
        Modules and commands that the tests need, apart by spaces; they are not run where one is missing.
    """

    function: str
    old: str
    new: str
    breaks: str
    tests: str
    equivalent: str = ""
    needs: str = ""


def of(usual: str, *, needs: str = "") -> Callable[..., Mutant]:
    """Return what makes mutants.

    The usual tests are run where a mutant names none; what begins with `::` or `-k` is of the usual file.
    """
    module = needs

    def make(
        function: str, old: str, new: str, breaks: str, tests: str = "", *, equivalent: str = "", needs: str = module
    ) -> Mutant:
        if not tests or tests.startswith(("::", "-k")):
            tests = f"{usual}{'' if tests.startswith('::') else ' '}{tests}".strip()
        return Mutant(function, old, new, breaks, tests, equivalent, needs)

    return make
