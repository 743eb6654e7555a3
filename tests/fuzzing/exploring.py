"""How the fuzzers search: the same examples every time, or new ones for as long as `--long` says."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, example, given, seed, settings
from hypothesis.strategies import SearchStrategy

# The tests that share what `--long` gives.
SEARCHES = 11
_PER_ROUND = 300


def explore(
    holds: Callable[[Any], None],
    cases: SearchStrategy[Any],
    *,
    examples: int,
    known: Iterable[Any] = (),
    config: pytest.Config | None = None,
    shrinks: bool = True,
) -> None:
    """Raise where a case does not hold: of known ones first, and then of always the same examples.

    With `--long` of the config, new examples are tried until the time is over. With `shrinks`, a case that fails is
    made as small as it can be.
    """
    seconds = None if config is None else config.getoption("--long")
    if seconds is None:
        _round(holds, cases, known, examples, shrinks=shrinks)
        return
    until = time.monotonic() + seconds / SEARCHES
    while time.monotonic() < until:
        number = secrets.randbits(64)
        print(f"seed {number}")  # shown where the round fails
        _round(holds, cases, known, _PER_ROUND, number)


def _round(holds, cases, known, examples, number=None, *, shrinks=True):
    def search(case):
        holds(case)

    run = given(cases)(search)
    for case in known:
        run = example(case)(run)
    phases = set(Phase) - {Phase.explain, Phase.reuse} - (set() if shrinks else {Phase.shrink})
    chosen = settings(
        max_examples=examples,
        derandomize=number is None,
        database=None,
        deadline=None,
        phases=phases,
        suppress_health_check=list(HealthCheck),
    )
    run = chosen(run)
    (run if number is None else seed(number)(run))()
