"""A loss so large that it protects nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dp_polars._accounting.terms import LARGEST
from dp_polars._base.callers import warn

if TYPE_CHECKING:
    from dp_polars._accounting.terms import Loss


class LargeLossWarning(UserWarning):
    """A release was asked for with a loss above 20, in epsilon or rho, or a budget was made with such a total.

    For a private frame the losses of all outputs are added up. The warning is of the caller's line: unless Python's
    filters are set otherwise, they show it once for each line. Nothing of `dp_polars.analysis` warns, nor `explain`.

    An answer may then be e²⁰, some five hundred million times, as likely with a person's rows as without them.

    Examples
    --------
    Where that is meant, as for tests on synthetic rows:

    >>> import warnings
    >>> import dp_polars as dpp
    >>> warnings.filterwarnings("ignore", category=dpp.LargeLossWarning)
    """


def warn_if_large(loss: Loss) -> None:
    """Warn, at the caller's line, of a loss that protects nobody."""
    if loss.value > LARGEST:
        msg = (
            f"{loss} protects nobody: what is released may be more than e**{LARGEST} times as likely with a person's "
            "rows as without them.\n\n"
            "Hint: losses of about 1 are usual. Where rows are synthetic, as in tests, ignore "
            "dp_polars.LargeLossWarning."
        )
        warn(msg, LargeLossWarning)
