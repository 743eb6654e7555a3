"""Figures that explain themselves: Altair charts of answers, simulations and budgets (extra ``plot``).

Every function returns an Altair chart: notebooks show it, and `chart.save("figure.png", scale_factor=2)` writes it
without a browser. Series differ in colour, also to colour-blind readers and on dark pages. They also differ in dash or
shade, so that they are distinct in grey print. `plot.scores` has figures of the laws of given scores.

**Nothing here is private.** Plot simulations on public frames, budgets, and releases. Every function raises TypeError
or ValueError for an argument that is not as described.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

import polars as pl

from dp_polars._base.extras import require
from dp_polars._base.labels import Labels
from dp_polars.analysis._simulation import SIMULATED
from dp_polars.plot import _charts, scores
from dp_polars.plot._answers import answers, box, cube
from dp_polars.plot._charts import Look, best_by_gap, error_by_size, rows_dropped

if TYPE_CHECKING:
    import altair as alt

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
    "rows_dropped",
    "scores",
    "simulation",
]

_MOST_CHARGES, _MOST_GROUPS = 30, 60  # charges and groups with a bar each; more are drawn as one line


def __dir__() -> list[str]:
    return __all__


def simulation(frame: pl.DataFrame, **look: Unpack[Look]) -> alt.VConcatChart:
    """Plot the result of `dp_polars.analysis.simulate`: one row of panels per output.

    With several losses: probability of the true answer and expected error against the loss. The line is the median over
    all groups with a true answer, the band the middle 80% of them. Errors below a ten-thousandth of the largest one are
    drawn there.

    With one loss: a bar per group, and the 5–95% range of its answer for numbers and for quantiles of numbers or dates.
    If a group is much worse than most, its bar is cut and orange, its value ends in », and its confidence interval
    fills the panel. More than 60 groups are drawn as fractions of groups instead.

    A number has no panel of the probability, since hardly any released number is the true one.

    Parameters
    ----------
    frame
        The result of `simulate`, or a part of its rows.
    **look
        `title`, `subtitle`, `caption` and `labels` as for `answers`; panels have sizes of their own.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, the frame lacks columns of `simulate`, or has no row with a true answer.

    Examples
    --------
    >>> import dp_polars as dpp
    >>> from dp_polars import analysis
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
    if sizes := [name for name in ("width", "height") if name in _charts.checked(look)]:
        msg = f"simulation: {' and '.join(sizes)} must be left out: its panels have sizes of their own."
        raise TypeError(msg)
    labels = Labels.of(look.get("labels"))
    keys = [name for name in frame.columns if name not in SIMULATED]
    rows: list[Any] = []
    for part in known.partition_by("output", maintain_order=True):
        first, losses = part.row(0, named=True), part.get_column("loss").n_unique()
        by = f" by {', '.join(map(labels.column, keys))}" if keys else ""
        heading = f"{labels.column(first['output'])}{by}: {first['selects']}"
        note, symbol = _charts.MECHANISMS[first["mechanism"]], _charts.SYMBOLS[first["loss_unit"]]
        if losses > 1:
            if part.height > losses:
                note += f"; line and band: median and middle 80% of {part.height // losses:,} groups"
            panels = _charts.over_losses(part, f"loss {symbol} of one person to this output")
        else:
            note += f", {symbol} = {first['loss']:g}"
            panels = _charts.over_shares(part) if part.height > _MOST_GROUPS else _charts.over_groups(part, keys)
        rows.append(alt.HConcatChart(hconcat=panels, spacing=24, title=_charts.title(heading, note)))
    return _charts.looking(alt.VConcatChart(vconcat=rows, spacing=28), look)


def budget(budget: Budget, **look: Unpack[Look]) -> alt.LayerChart | alt.VConcatChart:
    """Plot every charge to a budget, and the rest.

    Up to 30 charged outputs have a bar each, from the sum before it to the sum after it; more are one rising line. For
    a guarantee of (epsilon, delta), it shows the sum with more room: the sum of epsilons, or of divergences in rho.

    Parameters
    ----------
    budget
        The budget; its log is read, nothing is charged.
    **look
        As for `answers`; `labels` are those of charged outputs. The width is 420 pixels, without their names.

    Examples
    --------
    >>> from dp_polars._accounting.budget import Budget
    >>> chart = budget(Budget(epsilon=1))
    """
    labels_of = Labels.of(_charts.checked(look).get("labels"))
    total, running, symbol = float(budget.total), "running_total", _charts.SYMBOLS[budget.unit]
    log, guarantee = budget.log(), budget._guarantee
    if guarantee is not None and log.height:
        last, in_rho = log.row(-1, named=True), float(guarantee.rho)
        # A null sum of epsilons is beyond its budget: then the other sum allowed the last charge.
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
        width, height = look.get("width", 460), look.get("height", 260)
        rising = alt.LayerChart(layer=[line, rule, text], width=width, height=height, title=title)
        return _charts.looking(rising, look)
    labels = [*(f"{i + 1}. {labels_of.value(what)}" for i, what in enumerate(steps["what"])), labels_of.value("left")]
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
    texts = base.mark_text(**_charts.BESIDE).encode(x="after:Q", text="text:N")
    rule = edge.mark_rule(**dashed).encode(x="total:Q")
    width, tall = look.get("width", 420), look.get("height", alt.Step(26))
    return _charts.looking(alt.LayerChart(layer=[rule, bars, texts], width=width, height=tall, title=title), look)
