"""Panels with a row per group: for released answers, and for one output of a simulation.

Panels of a simulation may also be over losses, or over shares of groups.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from dp_polars._base.extras import require
from dp_polars._engines.outputs import names_of_ends
from dp_polars.plot import _charts

if TYPE_CHECKING:
    from collections.abc import Iterator

    import altair as alt
    from numpy.typing import NDArray
else:
    alt = require("altair", extra="plot")


# Numbers, which are hardly ever the true ones: what matters is how far they are off.
NOISE = {"discrete_laplace": "discrete Laplace noise", "discrete_gaussian": "discrete Gaussian noise"}

_RANGE = ("number", "low", "high")


# With more groups than this, rows are lower and names smaller.
_MOST_HIGH_ROWS = 30
# A group is hopeless if it is more than five times worse than three quarters of the groups. Beyond a factor of 200 the
# others are as good as zero, and need no room.
_HOPELESS, _NOUGHT = 5, 200
# The widest column of words, in pixels; what is longer ends in "…".
_WIDEST = 420
# The width of a column of numbers.
_NUMBERS = 210


def _row_height(groups: int) -> tuple[int, int]:
    """Return the height of a group's row and the font size of its name."""
    return (20, 12) if groups <= _MOST_HIGH_ROWS else (12, 10)


def _end(values: NDArray[np.float64]) -> float | None:
    """Return where an axis ends, so that hopeless groups leave room for the others; None: at the largest value."""
    most, usual = float(values.max()), float(np.quantile(values, 0.75, method="lower"))
    if not most / _NOUGHT <= usual < most / _HOPELESS:
        return None
    return 1.25 * float(values[values <= _HOPELESS * usual].max())


def _written(value: float, column: str) -> str:
    if column == "probability_true":
        return f"{value:.0%}"
    return f"{value:.3g}" if value >= 0.001 or value == 0 else "< 0.001"


def _measures(part: pl.DataFrame) -> list[tuple[str, str, alt.Scale, dict[str, Any]]]:
    """Return column, title, scale and axis style of the measures of an output; a number has only its error."""
    unit = part.item(0, "error_unit")
    unit = {"score": "units of the score", "the column's unit": "in the column's unit"}.get(unit, unit)
    error = ("expected_error", f"expected error ({unit})", alt.Scale(zero=True), {"tickCount": 6})
    if part.item(0, "mechanism") in NOISE:
        return [error]
    probability = "probability of the true answer"
    return [("probability_true", probability, alt.Scale(domain=[0, 1]), {"format": "%", "tickCount": 5}), error]


def over_losses(part: pl.DataFrame, title: str) -> list[Any]:
    """Return the panels of one output at several losses: middle and spread over the groups."""
    panels = []
    for column, y_title, scale, style in _measures(part):
        value = pl.col(column)
        middle = part.group_by("loss", maintain_order=True).agg(
            low=value.quantile(0.1, "linear"), middle=value.median(), high=value.quantile(0.9, "linear")
        )
        base = alt.Chart(middle).encode(x=_charts.along(middle, "loss", title, log=True, width=250))
        largest = float(middle.get_column("high").to_numpy().max())
        if column == "expected_error" and largest > 0:
            # Errors fall like one over the loss, and a hopeless group would flatten the others on a linear axis.
            least = max(float(middle.get_column("low").to_numpy().min()), largest * 1e-4)
            middle = middle.with_columns(pl.col("low", "middle", "high").clip(least))
            scale, style = _charts.scale(log=True, domain=(least, largest * 1.1)), _charts.ticks(least, largest * 1.1)
            base = alt.Chart(middle).encode(x=_charts.along(middle, "loss", title, log=True, width=250))
        y_axis = _charts.axis(y_title, **style)
        band = base.mark_area(color=_charts.PALE, opacity=0.4).encode(
            y=alt.Y("low:Q", scale=scale, axis=y_axis), y2="high:Q"
        )
        line = base.mark_line(color=_charts.COLORS[0], point={"size": 40, "fill": _charts.COLORS[0]}).encode(
            y=alt.Y("middle:Q", scale=scale, axis=y_axis), tooltip=["loss", "low", "middle", "high"]
        )
        panels.append(alt.LayerChart(layer=[band, line], width=250, height=200))
    return panels


def over_groups(part: pl.DataFrame, keys: list[str]) -> list[Any]:
    """Return the panels of one output at one loss: a mark per group, with its value next to it.

    A bar that is too long for the axis is cut; it has the colour of warnings, and its value ends in ».
    """
    named, (height, font) = labels(part, keys), _row_height(part.height)
    part = part.with_row_index("rank")
    panels: list[Any] = []
    for column, title, scale, style in _measures(part):
        values = part.get_column(column)
        end = None if column == "probability_true" else _end(values.to_numpy())
        cut = values > (math.inf if end is None else end)
        if end is not None:
            scale = alt.Scale(domain=[0, end], nice=False)
        drawn = part.select(
            "rank",
            column,
            length=values.clip(upper_bound=end),
            fill=pl.Series([_charts.COLORS[1] if is_cut else _charts.COLORS[0] for is_cut in cut], dtype=pl.String),
            text=pl.Series(
                [_written(value, column) + (" »" if is_cut else "") for value, is_cut in zip(values, cut, strict=True)],
                dtype=pl.String,
            ),
        )
        axis = None if panels else _charts.names_axis(named, font=font)
        base = alt.Chart(drawn).encode(
            y=alt.Y("rank:O", axis=axis),
            x=alt.X("length:Q", scale=scale, axis=_charts.axis(title, **style)),
            tooltip=column,
        )
        bars = base.mark_bar(height={"band": 0.6}).encode(fill=alt.Fill("fill:N", scale=None))
        place: dict[str, Any] = {"align": "left", "baseline": "middle", "dx": 4, "fontSize": font - 1}
        said = base.mark_text(**place).encode(text="text:N")
        panels.append(alt.LayerChart(layer=[bars, said], width=170, height=alt.Step(height)))
    return [*panels, *_ranges(part, height)]


def answers(released: pl.DataFrame, keys: list[str], numbers: list[str], texts: list[str]) -> list[Any]:
    """Return a panel of dots and ranges for each number, and one of words for each text."""
    named, ranked = labels(released, keys), released.with_row_index("rank")
    height: Any = alt.Step(22)
    panels: list[Any] = []
    # All rows in each panel: one that a panel shows nothing of would let the others move up, to other groups' names.
    scale = alt.Scale(domain=[*range(len(named))])

    def rows() -> alt.Y:
        return alt.Y("rank:O", scale=scale, axis=None if panels else _charts.names_axis(named))

    for name in numbers:
        is_date = ranked.schema[name] in (pl.Date, pl.Datetime)
        columns = [pl.col(column) for column in (name, *names_of_ends(name))]
        if not is_date:
            columns = [column.cast(pl.Float64) for column in columns]
        points = ranked.select("rank", *(column.alias(to) for column, to in zip(columns, _RANGE, strict=True)))
        axis = _charts.axis(name, tickCount=5)
        x: dict[str, Any] = {"type": "temporal" if is_date else "quantitative", "axis": axis}
        base = alt.Chart(points, width=_NUMBERS, height=height).encode(y=rows(), tooltip=list(_RANGE))
        bar = base.mark_rule(strokeWidth=7, color=_charts.PALE).encode(
            x=alt.X("low", scale=alt.Scale(zero=False, padding=8), **x), x2="high"
        )
        dot = base.mark_point(size=55, filled=True, color=_charts.COLORS[1], opacity=1).encode(x=alt.X("number", **x))
        panels.append(alt.LayerChart(layer=[bar, dot]))
    for name in texts:
        words, width = ranked.select("rank", text=name), _width(released, name)
        no_frame = alt.ViewBackground(stroke=None)
        chart = alt.Chart(words, width=width, height=height, title=_charts.heading(name), view=no_frame)
        panels.append(chart.mark_text(fontSize=12, limit=width).encode(y=rows(), text="text:N", x=alt.value(width / 2)))
    return panels


def in_rows(
    released: pl.DataFrame, numbers: list[str], texts: list[str], widest: int
) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the numbers and the texts of each row of panels that is no wider than `widest`, or has one panel."""
    row: tuple[list[str], list[str]] = ([], [])
    total = 0
    for place, name in (*((0, name) for name in numbers), *((1, name) for name in texts)):
        width = _width(released, name) if place else _NUMBERS
        if total and total + width > widest:
            yield row
            row, total = ([], []), 0
        row[place].append(name)
        total += width
    yield row


def _width(released: pl.DataFrame, name: str) -> int:
    """Return the width of a panel of words."""
    lengths: list[int] = released[name].str.len_chars().to_list()
    return min(_WIDEST, 30 + 7 * max(len(name), *lengths))


def labels(part: pl.DataFrame, keys: list[str]) -> list[str]:
    """Return the names of the groups."""
    text = pl.concat_str([pl.col(key).cast(pl.String) for key in keys], separator=", ") if keys else pl.lit("all rows")
    return part.select(text.alias("group"))["group"].to_list()


def _ranges(part: pl.DataFrame, height: int) -> list[Any]:
    """Return a panel with the true answer and the range of the private one, for numbers and quantiles."""
    if not part.item(0, "ordered"):
        return []
    answers = part.select("rank", "true_answer", "answer_5", "answer_95")
    is_date = answers["true_answer"].dtype in (pl.Date, pl.Datetime)
    if answers["true_answer"].dtype.is_numeric() or answers["true_answer"].dtype == pl.String:
        # With outputs of several types, numbers are text.
        answers = answers.with_columns(pl.exclude("rank").cast(pl.Float64, strict=False))
    lie_on_a_line = is_date or (answers["true_answer"].dtype == pl.Float64 and not answers["true_answer"].null_count())
    if not lie_on_a_line:
        return []
    axis = _charts.axis("true answer (dot), private one 5–95% (bar)", tickCount=6)
    ends: dict[str, Any] = {"type": "temporal" if is_date else "quantitative", "axis": axis}
    base = alt.Chart(answers, width=220, height=alt.Step(height)).encode(
        y=alt.Y("rank:O", axis=None), tooltip=answers.columns[1:]
    )
    scale = alt.Scale(zero=False, padding=8) if is_date else _scale_of_ranges(answers)
    rule = base.mark_rule(strokeWidth=5, color=_charts.PALE, clip=True).encode(
        x=alt.X("answer_5", scale=scale, **ends), x2="answer_95"
    )
    dot = base.mark_point(size=45, filled=True, color="black", opacity=1).encode(x=alt.X("true_answer", **ends))
    return [alt.LayerChart(layer=[rule, dot])]


def _scale_of_ranges(answers: pl.DataFrame) -> alt.Scale:
    """Return a scale on which hopeless ranges go from edge to edge, and the others can be told apart."""
    low, truth, high = (answers.get_column(name).to_numpy() for name in ("answer_5", "true_answer", "answer_95"))
    widths = high - low
    end = _end(widths)
    if end is None:
        return alt.Scale(zero=False, padding=8)
    shown = np.concatenate([truth, low[widths <= end], high[widths <= end]])
    ends, room = (float(shown.min()), float(shown.max())), float(np.ptp(shown)) / 10
    return alt.Scale(domain=[ends[0] - room, ends[1] + room], nice=False)


def over_shares(part: pl.DataFrame) -> list[Any]:
    """Return the panels of one output at one loss in many groups: how many of them do as well."""
    panels: list[Any] = []
    for column, title, scale, style in _measures(part):
        ranked = part.select(pl.col(column).sort(descending=column == "expected_error")).select(
            share=(pl.int_range(pl.len()) + 0.5) / pl.len(), value=column
        )
        # Enough points for the eye, few enough for a small file.
        at = np.unique(np.linspace(0, ranked.height - 1, 400).astype(np.int64))
        share = _charts.axis(f"{part.height:,} groups, the hardest first", format="%", tickCount=5)
        panels.append(
            alt.Chart(ranked[at], width=250, height=200)
            .mark_line(color=_charts.COLORS[0], strokeWidth=2)
            .encode(
                x=alt.X("share:Q", scale=alt.Scale(domain=[0, 1]), axis=share),
                y=alt.Y("value:Q", scale=scale, axis=_charts.axis(title, **style)),
                tooltip=["share", "value"],
            )
        )
    return panels
