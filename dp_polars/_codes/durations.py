"""Durations as Polars writes them."""

from __future__ import annotations

import re
from datetime import timedelta

from dp_polars._base.numbers import given

# In nanoseconds.
_UNITS = {
    "ns": 1,
    "us": 10**3,
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
    "d": 86_400 * 10**9,
    "w": 7 * 86_400 * 10**9,
}


def nanoseconds(step: object) -> int:
    """Return a fixed duration, a timedelta or a string such as "1h30m", in nanoseconds."""
    if isinstance(step, timedelta):
        return step // timedelta(microseconds=1) * 1000
    if not isinstance(step, str):
        msg = f"step must be a timedelta or a duration string between times, got {given(step)}."
        raise TypeError(msg)
    if re.fullmatch(r"-?(\d+[a-z]+)*\d+(mo|q|y)(\d+[a-z]+)*", step):
        msg = (
            f"step must be a fixed duration, got {step!r}.\n\n"
            "Hint: months, quarters and years vary in length; pass a list such as pl.date_range(…, eager=True)."
        )
        raise ValueError(msg)
    parts = re.fullmatch(r"(-?)((?:\d+(?:ns|us|ms|s|m|h|d|w))+)", step)
    if parts is None:
        msg = f'step must be a duration such as "1d" or "1h30m", got {step!r}.'
        raise ValueError(msg)
    total = sum(int(n) * _UNITS[unit] for n, unit in re.findall(r"(\d+)(ns|us|ms|s|m|h|d|w)", parts[2]))
    return -total if parts[1] else total
