"""The versions of Polars on which steps were tried on extreme rows."""

from __future__ import annotations

from functools import cache

from dp_polars._base.callers import warn

TESTED = ("1.36.1", "2.1.x")
_NEWEST = (2, 1)


@cache
def warn_if_untested(version: str) -> None:
    """Warn once in a process if Polars is newer than what was tested."""
    if tuple(int(part) for part in version.split(".")[:2]) > _NEWEST:
        msg = (
            f"private frames were tested on Polars {' and '.join(TESTED)}, this is {version}: a step may have changed "
            "there, so that a row's result depends on other rows.\n\n"
            "Hint: use a tested version for what you publish, or a newer dp_polars."
        )
        warn(msg, UserWarning)
