"""The arguments of a budget, checked."""

from __future__ import annotations

import linecache
import os
from pathlib import Path
from typing import TYPE_CHECKING

from dp_polars._accounting.amounts import exact
from dp_polars._accounting.locks import lock
from dp_polars._accounting.terms import check_delta
from dp_polars._base.callers import caller, warn
from dp_polars._base.numbers import given
from dp_polars._base.paths import expanded

if TYPE_CHECKING:
    from fractions import Fraction
    from types import CodeType

    from dp_polars._accounting.terms import Unit

# Names of budgets in memory, for as long as the process lives: their objects may be gone.
_taken: set[str] = set()
# What made budgets without a name or a path, by the text of the cell and the function in it.
_runs: dict[tuple[str, str], list[CodeType]] = {}


def take_name(name: str | None) -> None:
    """Give a budget in memory its name; refuse one that a budget in memory had before."""
    with lock:
        if name in _taken:
            msg = (
                f"a Budget without a path must have a name that none had before in this process, got {name!r} again: "
                "what the other has spent would be forgotten, as where a cell of a notebook runs again.\n\n"
                "Hint: give it a path, which keeps what was spent."
            )
            raise ValueError(msg)
        if name is not None:
            _taken.add(name)


def notice_again() -> None:
    """Warn where a cell of a notebook makes a budget in memory that it made before: each of them starts full.

    A cell is code that is in no file, but whose text Python has. It runs again where the same text is compiled anew. So
    a loop, or a function that is called again, may make several.
    """
    code = caller().f_code
    text = "".join(linecache.getlines(code.co_filename))
    if not text or os.path.exists(code.co_filename):  # noqa: PTH110  # False for whatever is no path
        return
    with lock:
        runs = _runs.setdefault((text, code.co_qualname), [])
        is_new = all(run is not code for run in runs)
        runs += [code] * is_new
    if is_new and len(runs) > 1:
        msg = (
            f"this cell has made {len(runs)} budgets that have neither a name nor a path: each starts full, and what "
            "the others have spent is forgotten.\n\n"
            "Hint: give it a path, which keeps what was spent. With a name alone, the second one is an error."
        )
        warn(msg, UserWarning)


def total_delta(delta: object) -> Fraction:
    """Return the delta of a budget, above 0 and below 1."""
    checked = check_delta(delta)
    if not checked > 0:
        msg = (
            f"delta must be greater than 0 and below 1, got {delta!r}.\n\n"
            "Hint: leave it out of a promise in epsilon alone, and of a budget in rho whose releases spend none."
        )
        raise ValueError(msg)
    return checked


def keys_delta_of(keys_delta: object, delta: Fraction | None, unit: Unit) -> Fraction | None:
    """Return the part of a promise's delta that keys may spend: a half unless said. None: it is no promise of both."""
    if delta is not None and unit == "epsilon":
        checked = delta / 2 if keys_delta is None else check_delta(keys_delta, "keys_delta")
        if checked > delta:
            msg = f"keys_delta must be at most delta={exact(delta)}, of which it is a part, got {keys_delta!r}."
            raise ValueError(msg)
        return checked
    if keys_delta is not None:
        msg = (
            f"keys_delta must be left out of a budget in {unit}{'' if delta is None else ' with a delta'}, got "
            f"{given(keys_delta)}: it is the part of a promise of epsilon and delta that keys may spend.\n\n"
            "Hint: Budget(epsilon=…, delta=…, keys_delta=…)."
        )
        raise TypeError(msg)
    return None


def absolute(path: str | os.PathLike[str]) -> Path:
    """Return where a ledger lies, in a folder that is there."""
    given = os.fspath(path)
    if not isinstance(given, str):
        msg = f"path must be a string or a path-like object of strings, got {path!r}."
        raise TypeError(msg)
    target = expanded(given)
    folder = target.parent
    if not folder.is_dir():
        msg = f"path must be in an existing folder, got {given!r}.\n\nHint: create the folder first."
        raise FileNotFoundError(msg)
    return folder.resolve() / target.name
