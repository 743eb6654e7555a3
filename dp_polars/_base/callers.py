"""Who called this package, and warnings at that line."""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType


def caller() -> FrameType:
    """Return the frame that called this package, however deep in it we are."""
    return _caller()[0]


def _caller() -> tuple[FrameType, int]:
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "dp_polars":
        frame, level = frame.f_back, level + 1
    return frame, level


def warn(message: str, category: type[Warning]) -> None:
    """Warn at the line that called this package, however deep in it we are: Python's filters then know that line."""
    warnings.warn(message, category, stacklevel=_caller()[1])
