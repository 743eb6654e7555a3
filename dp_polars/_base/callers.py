"""Warnings at the line of the caller."""

from __future__ import annotations

import sys
import warnings


def warn(message: str, category: type[Warning]) -> None:
    """Warn at the line that called this package, however deep in it we are: Python's filters then know that line."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "dp_polars":
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
