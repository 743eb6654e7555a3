"""Figures that a person understands at once: Altair charts of exact errors, simulations and budgets (extra ``plot``).

Every function returns an Altair chart: notebooks show it, and `chart.save("figure.png", scale_factor=2)` writes it
without a browser. Series differ in colour (Okabe & Ito's palette, safe for colour-blind readers) and also in dash or
shade, so that they stay apart in grey print.

**Nothing here is private.** Plot public scores, simulations on public frames, budgets, and what was released. Every
function raises TypeError or ValueError for an argument that is not as described.
"""

from __future__ import annotations

from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from dp_polars import analysis
from dp_polars._accounting.terms import Unit, check_unit
from dp_polars._base.column_types import Exact, float_of
from dp_polars._base.extras import require
from dp_polars._base.numbers import Floats, Number, positive_int, positive_loss
from dp_polars.analysis._laws import LAPLACE, Comparable, check_comparable, checked_scores
from dp_polars.analysis._simulation import SIMULATED
from dp_polars.plot import _charts
from dp_polars.plot._answers import answers, box, cube
from dp_polars.plot._charts import best_by_gap, error_by_size, lines, rows_dropped

if TYPE_CHECKING:
    from collections.abc import Sequence

    import altair as alt
    from numpy.typing import ArrayLike

    from dp_polars._accounting.budget import Budget
else:
    alt = require("altair", extra="plot")

__all__ = [
    "answers",
    "best_by_gap",
    "box",
    "budget",
    "cube",
    "error_by_size",
    "error_curve",
    "lines",
    "probabilities",
    "rows_dropped",
    "simulation",
]

_MECHANISMS = {
    "permute_and_flip": "permute-and-flip",
    "exponential": "exponential mechanism",
    LAPLACE: "report-noisy-max, Laplace noise",
    "first_above": "first above a threshold",
    **_charts.NOISE,
}
_BOTH: tuple[Comparable, ...] = ("permute_and_flip", "exponential")
_MOST_CHARGES, _MOST_GROUPS = 30, 60  # charges and groups that have a bar each; more are drawn as one line
# Candidates with smaller probabilities have no bar of their own, where others have much larger ones.
_UNLIKELY = 0.005
# A text at the end of a bar.
_BESIDE: dict[str, Any] = {"align": "left", "baseline": "middle", "dx": 4, "fontSize": 11}


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
) -> alt.LayerChart:
    """Plot the exact expected error on given scores against the privacy loss, one line per mechanism.

    Parameters
    ----------
    scores
        Shape (k,): public scores, as for `dp_polars.analysis.selection_probabilities`.
    losses
        The privacy losses of one release, at least two, in `unit`. Both axes are logarithmic: even ratios, as of
        `numpy.geomspace`, make the smoothest line.
    mechanisms
        Any of "permute_and_flip", "exponential" and (in epsilon only) "report_noisy_max_laplace".
    unit
        "epsilon" or "rho".
    sensitivity, monotonic
        As in `dp_polars.analysis`.

    Returns
    -------
    altair.LayerChart
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
    scored: Any = partial(analysis.expected_error, scores, sensitivity=sensitivity, monotonic=monotonic)
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
    return _charts.lines(
        frame,
        "loss",
        "error",
        "mechanism",
        x_title=f"privacy loss {symbol} of one person",
        y_title="expected error (units of the scores)",
        log_x=True,
        log_y=True,
        y_domain=(max(min(error for _, _, error in points), largest * 1e-4), largest * 1.1),
    )


def _labels(mechanisms: Sequence[Comparable], unit: Unit) -> list[str]:
    return [_MECHANISMS[check_comparable(mechanism, unit)] for mechanism in mechanisms]


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
) -> alt.LayerChart:
    """Plot the exact probability that each candidate is chosen, the best candidate first.

    Parameters
    ----------
    scores
        Shape (k,): public scores, as for `dp_polars.analysis.selection_probabilities`.
    candidates
        Names of the candidates, k of them. None: their positions.
    epsilon, rho, sensitivity, monotonic
        As in `dp_polars.analysis`.
    mechanisms
        Up to three of "permute_and_flip", "exponential" and (in epsilon only) "report_noisy_max_laplace".
    most
        How many candidates have bars of their own at most. One more bar stands for all others together, and for
        candidates that are hardly ever chosen.

    Examples
    --------
    >>> names = ["flu", "asthma", "none"]
    >>> chart = probabilities([120, 117, 80], candidates=names, epsilon=0.1, monotonic=True)
    """
    array, most = checked_scores("scores", scores), positive_int("most", most)
    names = [f"candidate {i}" for i in range(len(array))] if candidates is None else [str(name) for name in candidates]
    if not (len(names) == len(array) and 1 <= len(mechanisms) <= len(_charts.FILLS)):
        msg = (
            f"candidates must be as many as the {len(array)} scores and mechanisms from one to {len(_charts.FILLS)}, "
            f"got {len(names)} and {len(mechanisms)}."
        )
        raise ValueError(msg)
    terms: dict[str, Any] = {"epsilon": epsilon, "rho": rho, "sensitivity": sensitivity, "monotonic": monotonic}
    laws = np.array([analysis.selection_probabilities(scores, mechanism=one, **terms) for one in mechanisms])
    labels, shares = _with_a_bar(array, names, laws, most)
    series = _labels(mechanisms, "epsilon" if rho is None else "rho")
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
    texts = base.mark_text(**_BESIDE).encode(text="text:N")
    return alt.LayerChart(layer=[drawn, texts], width=420, height=alt.Step(15 if len(series) > 1 else 22))


def _with_a_bar(scores: Exact, names: list[str], laws: Floats, most: int) -> tuple[list[str], Floats]:
    order, likely = np.argsort(scores, kind="stable")[::-1], laws.max(axis=0)
    shown = min(most, int(np.count_nonzero(likely >= min(_UNLIKELY, likely.max() / 10))))
    labels = [f"{names[i]} (score {_shown(scores.item(i))})" for i in order[:shown].tolist()]
    shares = laws[:, order[:shown]]
    if shown < len(order):
        labels.append(f"{len(order) - shown:,} others together")
        shares = np.column_stack([shares, laws[:, order[shown:]].sum(axis=1)])
    return labels, shares


def simulation(frame: pl.DataFrame) -> alt.VConcatChart:
    """Plot the result of `dp_polars.analysis.simulate`: one row of panels per output.

    With several losses: probability of the true answer and expected error against the loss. The line is the median over
    all groups that have a true answer, the band the middle 80% of them. Errors below a ten-thousandth of the largest
    one are drawn there.

    With one loss: a bar per group, and the 5–95% range of its answer for numbers and for quantiles of numbers or dates.
    If a group is much worse than most, its bar is cut and orange, its value ends in », and its confidence interval
    fills the panel.
    More than 60 groups are drawn as shares of groups instead.

    A number has no panel of the probability, since hardly any released number is the true one.

    Parameters
    ----------
    frame
        What `simulate` returned, or a part of its rows.

    Raises
    ------
    ValueError
        If the frame lacks columns of `simulate`, or has no row with a true answer.

    Examples
    --------
    >>> import dp_polars as dpp
    >>> last_year = pl.DataFrame(
    ...     {"ward": ["A"] * 50 + ["B"] * 6, "age": [30, 40, 50, 60, 70] * 11 + [30]}
    ... )
    >>> median = dpp.median("age", range(121), epsilon=1)
    >>> chart = simulation(
    ...     analysis.simulate(median, last_year, by="ward", losses=[0.1, 0.3, 1])
    ... )
    """
    _charts.check_columns(frame, "simulate", SIMULATED)
    known = frame.filter(pl.col("expected_error").is_not_null())
    if not known.height:
        msg = "frame must have a row with a true answer, got none.\n\nHint: do candidates and keys match the rows?"
        raise ValueError(msg)
    keys = [name for name in frame.columns if name not in SIMULATED]
    rows: list[Any] = []
    for part in known.partition_by("output", maintain_order=True):
        first, losses = part.row(0, named=True), part.get_column("loss").n_unique()
        heading = f"{first['output']}{' by ' if keys else ''}{', '.join(keys)}: {first['selects']}"
        note, symbol = _MECHANISMS[first["mechanism"]], _charts.SYMBOLS[first["loss_unit"]]
        if losses > 1:
            if part.height > losses:
                note += f"; line and band: median and middle 80% of {part.height // losses:,} groups"
            panels = _charts.over_losses(part, f"loss {symbol} of one person to this output")
        else:
            note += f", {symbol} = {first['loss']:g}"
            panels = _charts.over_shares(part) if part.height > _MOST_GROUPS else _charts.over_groups(part, keys)
        rows.append(alt.HConcatChart(hconcat=panels, spacing=24, title=_charts.title(heading, note)))
    return alt.VConcatChart(vconcat=rows, spacing=28)


def budget(budget: Budget) -> alt.LayerChart:
    """Plot what every charge took of a budget, and what is left.

    Up to 30 charged outputs have a bar each, from what was spent before it to what was spent after it; more are one
    rising line. For a guarantee of (epsilon, delta), it shows the sum with more room: that of epsilons, or that of
    divergences in rho.

    Parameters
    ----------
    budget
        The budget; its log is read, nothing is charged.

    Examples
    --------
    >>> from dp_polars._accounting.budget import Budget
    >>> chart = budget(Budget(epsilon=1))
    """
    total, running, symbol = float(budget.total), "running_total", _charts.SYMBOLS[budget.unit]
    log, promise = budget.log(), budget._guarantee
    if promise is not None and log.height:
        last, in_rho = log.row(-1, named=True), float(promise.rho)
        # Null sums of epsilons have no room; the last charge was allowed by the other sum then.
        if last[running] is None or last[running] * in_rho > last["running_rho"] * total:
            total, running, symbol = in_rho, "running_rho", _charts.SYMBOLS["rho"]
    log = log.with_columns(running_total=running, loss=pl.col(running) - pl.col(running).shift(fill_value=0.0))
    spent = log.item(-1, "running_total") if log.height else 0.0
    left = max(total - spent, 0.0)
    title = _charts.title(f"{symbol}: {spent:.4g} of {total:.4g} spent, {left:.4g} left")
    summed = _charts.axis_of(f"privacy loss {symbol} of one person, added up")
    scale = alt.Scale(domain=[0, 1.08 * total], nice=False)
    steps = log.select("what", before=pl.col("running_total") - pl.col("loss"), after="running_total", loss="loss")
    edge = alt.Chart(pl.DataFrame({"total": [total], "label": ["the budget"]}))
    dashed: dict[str, Any] = {"strokeDash": [6, 3], "strokeWidth": 1.5}
    if steps.height > _MOST_CHARGES:
        numbered = alt.Chart(steps.with_columns(number=pl.int_range(1, pl.len() + 1)))
        line = numbered.mark_line(interpolate="step-after", strokeWidth=2, color=_charts.COLORS[0]).encode(
            x=alt.X("number:Q", axis=_charts.axis_of("charged outputs, in their order")),
            y=alt.Y("after:Q", scale=scale, axis=summed),
            tooltip=["number", "what", "after"],
        )
        rule = edge.mark_rule(**dashed).encode(y="total:Q")
        named = edge.mark_text(align="left", dx=4, dy=-7, fontSize=12)
        text = named.encode(y="total:Q", x=alt.value(0), text="label:N")
        return alt.LayerChart(layer=[line, rule, text], width=460, height=260, title=title)
    labels = [*(f"{i + 1}. {what}" for i, what in enumerate(steps["what"])), "left"]
    ending = pl.DataFrame([("left", spent, total, left)], steps.schema, orient="row")
    steps = pl.concat([steps, ending]).with_row_index("rank")
    steps = steps.with_columns(
        fill=pl.when(pl.col("rank") < log.height).then(pl.lit(_charts.FILLS[0])).otherwise(pl.lit(_charts.FILLS[2])),
        text=pl.Series([f"{loss:.3g}" for loss in steps["loss"]]),
    )
    base = alt.Chart(steps).encode(
        y=alt.Y("rank:O", axis=_charts.names_axis(labels)), tooltip=["what", "loss", "before", "after"]
    )
    bars = base.mark_bar(stroke="black", strokeWidth=0.7, height={"band": 0.7}).encode(
        x=alt.X("before:Q", scale=scale, axis=summed), x2="after:Q", fill=alt.Fill("fill:N", scale=None)
    )
    texts = base.mark_text(**_BESIDE).encode(x="after:Q", text="text:N")
    rule = edge.mark_rule(**dashed).encode(x="total:Q")
    return alt.LayerChart(layer=[rule, bars, texts], width=420, height=alt.Step(26), title=title)


def _shown(score: float | Fraction) -> str:
    return f"{float_of(score) if isinstance(score, Fraction) else score:,}"
