"""A loss so large that it protects nobody."""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dp_polars._accounting.claims import Loss

# In epsilon, and in rho, of which so much is worth a larger epsilon still.
LARGEST = 20

_warned: list[Loss] = []


class LargeLossWarning(UserWarning):
    """A release was asked for with a loss above 20, in epsilon or rho: it is said once in a process.

    An answer may then be e²⁰, some five hundred million times, as likely with a person's rows as without them.

    Examples
    --------
    Where that is meant, as for tests on synthetic rows:

    >>> import warnings
    >>> import dp_polars as dpp
    >>> warnings.filterwarnings("ignore", category=dpp.LargeLossWarning)
    """


def warn_if_large(loss: Loss) -> None:
    """Warn, once in a process, of a loss of one release that protects nobody."""
    if loss.value <= LARGEST or _warned:
        return
    _warned.append(loss)
    # The warning is shown at the caller's line, not at one of this package.
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("dp_polars"):
        frame, level = frame.f_back, level + 1
    msg = (
        f"{loss} protects nobody: an answer may be more than e**{LARGEST} times as likely with a person's rows as "
        "without them. This is said once.\n\n"
        "Hint: losses of about 1 are usual. Where rows are synthetic, as in tests, ignore dp_polars.LargeLossWarning."
    )
    warnings.warn(msg, LargeLossWarning, stacklevel=level)
