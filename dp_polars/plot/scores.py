"""Figures of the exact laws of given scores, and lines of any points.

**Nothing here is private.** Plot public scores. Every function raises TypeError or ValueError for an argument that is
not as described.
"""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np
import polars as pl

from dp_polars._accounting.terms import Unit, check_unit
from dp_polars._base.column_types import Exact, float_of
from dp_polars._base.extras import require
from dp_polars._base.labels import Labels
from dp_polars._base.numbers import Floats, Number, positive_int, positive_loss
from dp_polars.analysis import scores as exact
from dp_polars.analysis._laws import Comparable, check_comparable, checked_scores
from dp_polars.plot import _charts
from dp_polars.plot._charts import Look, checked, lines, looking

if TYPE_CHECKING:
    from collections.abc import Sequence

    import altair as alt
    from numpy.typing import ArrayLike
else:
    alt = require("altair", extra="plot")

__all__ = ["error_curve", "lines", "probabilities"]

_BOTH: tuple[Comparable, ...] = ("permute_and_flip", "exponential")
# Candidates with smaller probabilities have no bar of their own if others have much larger ones.
_UNLIKELY = 0.005


def __dir__() -> list[str]:
    return __all__


def error_curve(
    scores: ArrayLike,
    losses: Sequence[Number],
    *,
    mechanisms: Sequence[Comparable] = _BOTH,
    unit: Unit = "epsilon",
    sensitivity: Number = 1,
    monotonic: bool = False,
    **look: Unpack[Look],
) -> alt.LayerChart | alt.VConcatChart:
    """Plot the exact expected error on given scores against the privacy loss, one line per mechanism.

    Parameters
    ----------
    scores
        Shape (k,): public scores, as for `dp_polars.analysis.scores.selection_probabilities`.
    losses
        The privacy losses of one release, at least two, in `unit`. Both axes are logarithmic: even ratios, as from
        `numpy.geomspace`, make the smoothest line.
    mechanisms
        Any of "permute_and_flip", "exponential" and (in epsilon only) "report_noisy_max_laplace".
    unit
        "epsilon" or "rho".
    sensitivity, monotonic
        As for `dp_polars.analysis.scores.selection_probabilities`.
    **look
        As for `lines`.

    Returns
    -------
    altair.LayerChart, altair.VConcatChart
        Errors in units of the scores. The lines end at a ten-thousandth of the largest.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, or all scores are equal, so that there is no error.

    Examples
    --------
    >>> chart = error_curve([120, 117, 80, 3], np.geomspace(0.01, 1, 30), monotonic=True)
    """
    amounts = [float(positive_loss(f"losses[{i}]", loss)) for i, loss in enumerate(losses)]
    if not (len(amounts) >= 2 and len(mechanisms) >= 1):
        msg = f"losses must be at least two and mechanisms at least one, got {len(amounts)} and {len(mechanisms)}."
        raise ValueError(msg)
    symbol = _charts.SYMBOLS[check_unit(unit)]
    scored: Any = partial(exact.expected_error, scores, sensitivity=sensitivity, monotonic=monotonic)
    points = [
        (name, loss, scored(mechanism=mechanism, **{unit: loss}))
        for name, mechanism in zip(_labels(mechanisms, unit), mechanisms, strict=True)
        for loss in amounts
    ]
    frame = pl.DataFrame(points, ["mechanism", "loss", "error"], orient="row")
    largest = max(error for _, _, error in points)
    if not largest > 0:
        msg = "scores must not all be equal: then no answer is wrong."
        raise ValueError(msg)
    return lines(
        frame,
        "loss",
        "error",
        "mechanism",
        x_title=f"privacy loss {symbol} of one person",
        y_title="expected error (units of the scores)",
        log_x=True,
        log_y=True,
        y_domain=(max(min(error for _, _, error in points), largest * 1e-4), largest * 1.1),
        **look,
    )


def _labels(mechanisms: Sequence[Comparable], unit: Unit) -> list[str]:
    return [_charts.MECHANISMS[check_comparable(mechanism, unit)] for mechanism in mechanisms]


def probabilities(
    scores: ArrayLike,
    *,
    candidates: Sequence[object] | None = None,
    epsilon: Number | None = None,
    rho: Number | None = None,
    sensitivity: Number = 1,
    monotonic: bool = False,
    mechanisms: Sequence[Comparable] = _BOTH,
    most: int = 12,
    **look: Unpack[Look],
) -> alt.LayerChart | alt.VConcatChart:
    """Plot the exact probability that each candidate is chosen, the best candidate first.

    Parameters
    ----------
    scores
        Shape (k,): public scores, as for `dp_polars.analysis.scores.selection_probabilities`.
    candidates
        Names of the candidates, k of them. None: their positions.
    epsilon, rho, sensitivity, monotonic
        As for `dp_polars.analysis.scores.selection_probabilities`.
    mechanisms
        Up to three of "permute_and_flip", "exponential" and (in epsilon only) "report_noisy_max_laplace".
    most
        The most candidates with bars of their own. One more bar is for all others together, and for candidates that are
        hardly ever chosen.
    **look
        As for `plot.answers`; `labels` are for candidates and mechanisms, and `width` is 420 pixels, without the names
        of candidates.

    Examples
    --------
    >>> names = ["flu", "asthma", "none"]
    >>> chart = probabilities([120, 117, 80], candidates=names, epsilon=0.1, monotonic=True)
    """
    array, most = checked_scores("scores", scores), positive_int("most", most)
    words = Labels.of(checked(look).get("labels"))
    named = [f"candidate {i}" for i in range(len(array))] if candidates is None else map(str, candidates)
    names = list(map(words.value, named))
    if not (len(names) == len(array) and 1 <= len(mechanisms) <= len(_charts.FILLS)):
        msg = (
            f"candidates must be as many as the {len(array)} scores and mechanisms from one to {len(_charts.FILLS)}, "
            f"got {len(names)} and {len(mechanisms)}."
        )
        raise ValueError(msg)
    terms: dict[str, Any] = {"epsilon": epsilon, "rho": rho, "sensitivity": sensitivity, "monotonic": monotonic}
    laws = np.array([exact.selection_probabilities(scores, mechanism=one, **terms) for one in mechanisms])
    labels, shares = _with_a_bar(array, names, laws, most)
    series = list(map(words.value, _labels(mechanisms, "epsilon" if rho is None else "rho")))
    bars = pl.DataFrame(
        [
            (rank, labels[rank], name, p, f"{p:.1%}" if p >= 0.0005 else "< 0.1%")
            for name, law in zip(series, shares.tolist(), strict=True)
            for rank, p in enumerate(law)
        ],
        ["rank", "candidate", "mechanism", "probability", "text"],
        orient="row",
    )
    loss = f"ε = {float(epsilon):g}" if epsilon is not None else f"ρ = {float(rho or 0):g}"
    base = alt.Chart(bars).encode(
        y=alt.Y("rank:O", axis=_charts.names_axis(labels), scale=alt.Scale(paddingInner=0.3)),
        yOffset=alt.YOffset("mechanism:N", sort=series),
        x=alt.X(
            "probability:Q",
            scale=alt.Scale(domain=[0, min(1.0, 1.15 * float(shares.max()))]),
            axis=_charts.axis_of(f"probability of being chosen, {loss}", format="%", tickCount=8),
        ),
        tooltip=["candidate", "mechanism", "probability"],
    )
    legend = alt.Legend(title=None, orient="top", labelFontSize=12, labelLimit=0)
    drawn = base.mark_bar(stroke="black", strokeWidth=0.7).encode(
        fill=alt.Fill("mechanism:N", sort=series, scale=alt.Scale(domain=series, range=_charts.FILLS), legend=legend)
    )
    texts = base.mark_text(**_charts.BESIDE).encode(text="text:N")
    height = look.get("height", alt.Step(15 if len(series) > 1 else 22))
    return looking(alt.LayerChart(layer=[drawn, texts], width=look.get("width", 420), height=height), look)


def _with_a_bar(scores: Exact, names: list[str], laws: Floats, most: int) -> tuple[list[str], Floats]:
    order, likely = np.argsort(scores, kind="stable")[::-1], laws.max(axis=0)
    shown = min(most, int(np.count_nonzero(likely >= min(_UNLIKELY, likely.max() / 10))))
    labels = [f"{names[i]} (score {_shown(scores.item(i))})" for i in order[:shown].tolist()]
    shares = laws[:, order[:shown]]
    if shown < len(order):
        labels.append(f"{len(order) - shown:,} others together")
        shares = np.column_stack([shares, laws[:, order[shown:]].sum(axis=1)])
    return labels, shares


def _shown(score: float | Fraction) -> str:
    return f"{float_of(score) if isinstance(score, Fraction) else score:,}"
