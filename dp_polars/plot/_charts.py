"""How our figures look: colours and dashes that stay apart for every reader and in grey print, axes, titles.

Chart objects carry no top-level configuration, so that they can be concatenated and layered.
"""

from __future__ import annotations

import json
import math
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import polars as pl

from dp_polars._base.extras import require

if TYPE_CHECKING:
    from collections.abc import Sequence

    import altair as alt
else:
    alt = require("altair", extra="plot")

# Okabe & Ito (2008), the two that differ most first, each with a dash of its own.
COLORS = ["#0072B2", "#D55E00", "#000000", "#009E73", "#CC79A7", "#56B4E9"]
_DASHES = [[1, 0], [7, 3], [2, 2], [10, 3, 2, 3], [14, 4], [4, 2, 1, 2, 1, 2]]
# Bars have no dashes: dark, light, and white, with black edges.
FILLS = ["#0072B2", "#E69F00", "#FFFFFF"]
PALE = "#56B4E9"
_AXIS: dict[str, Any] = {
    "labelFontSize": 11,
    "titleFontSize": 12,
    "titleFontWeight": "normal",
    "gridColor": "#e4e4e4",
    "labelFlush": False,
}
# What XML can't hold, and an SVG is XML.
_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
SYMBOLS = {"epsilon": "ε", "rho": "ρ"}


def lines(
    frame: pl.DataFrame,
    x: str,
    y: str,
    series: str,
    *,
    x_title: str,
    y_title: str,
    log_x: bool = False,
    log_y: bool = False,
    y_domain: tuple[float, float] | None = None,
    width: int = 420,
    height: int = 280,
) -> alt.LayerChart:
    """Return a chart with one line per series, apart in colour and in dash.

    Parameters
    ----------
    frame
        The points; on a logarithmic axis those that are not above 0 are left out.
    x, y
        Columns of numbers.
    series
        The column that names the lines, six different values at most; the legend has them in their order in the frame.
    x_title, y_title
        What the axes show, with the unit.
    log_x, log_y
        Whether an axis is logarithmic.
    y_domain
        The ends of the y axis; lines are cut there. None: those of the points.
    width, height
        In pixels, without axes and legend.

    Raises
    ------
    ValueError
        If there are more than six series, or no points.

    Examples
    --------
    >>> points = pl.DataFrame(
    ...     {
    ...         "n": [1, 2, 1, 2],
    ...         "seconds": [0.1, 0.3, 0.2, 0.7],
    ...         "plan": ["a", "a", "b", "b"],
    ...     }
    ... )
    >>> chart = lines(points, "n", "seconds", "plan", x_title="rows", y_title="time (s)")
    """
    names = frame.get_column(series).cast(pl.String).unique(maintain_order=True).to_list()
    if not len(names) <= len(COLORS):
        msg = f"series must have at most {len(COLORS)} different values, got {len(names)}."
        raise ValueError(msg)
    positive = pl.all_horizontal(pl.lit(value=True), *(pl.col(c) > 0 for c, log in ((x, log_x), (y, log_y)) if log))
    points = frame.filter(positive)
    if not points.height:
        msg = "frame must have a point that can be drawn."
        raise ValueError(msg)
    legend = alt.Legend(
        title=None,
        orient="top",
        symbolSize=900,
        symbolStrokeWidth=2,
        labelFontSize=12,
        labelLimit=0,
        columns=max(1, width // (max(map(len, names)) * 7 + 45)),
    )
    drawn: Any = (
        alt.Chart(points)
        .mark_line(strokeWidth=2, clip=True)
        .encode(
            x=along(points, x, x_title, log=log_x, width=width),
            y=alt.Y(
                y,
                type="quantitative",
                scale=scale(log_y, y_domain),
                axis=axis(y_title, values=_ticks(*(y_domain or _ends(points, y))) if log_y else None),
            ),
            color=alt.Color(
                series, type="nominal", sort=names, scale=alt.Scale(domain=names, range=COLORS), legend=legend
            ),
            strokeDash=alt.StrokeDash(
                series, type="nominal", sort=names, scale=alt.Scale(domain=names, range=_DASHES), legend=legend
            ),
            tooltip=[series, x, y],
        )
    )
    return alt.LayerChart(layer=[drawn], width=width, height=height)


def along(points: pl.DataFrame, x: str, title: str, *, log: bool, width: int) -> alt.X:
    """Return the x axis of a line."""
    style = {"values": _ticks(*_ends(points, x))} if log else {"tickCount": width // 60}
    return alt.X(x, type="quantitative", scale=scale(log), axis=axis(title, **style))


def scale(log: bool, domain: tuple[float, float] | None = None) -> alt.Scale:
    """Return a scale that ends where the points do, if it is logarithmic, and otherwise begins at 0."""
    ends: dict[str, Any] = {} if domain is None else {"domain": list(domain)}
    return alt.Scale(type="log" if log else "linear", nice=not log, **ends)


def axis(title: str, **style: Any) -> alt.Axis:  # noqa: ANN401
    """Return an axis with a title."""
    return alt.Axis(title=title, **_AXIS, **{key: value for key, value in style.items() if value is not None})


def ticks(low: float, high: float) -> dict[str, Any]:
    """Return the style of a logarithmic axis with these ends."""
    return {"values": _ticks(low, high), "format": "~g"}


def names_axis(labels: Sequence[str] | None = None, *, font: int = 12) -> alt.Axis:
    """Return a y axis of names; `labels`, where ranks 0, 1, … stand for them."""
    style: dict[str, Any] = {} if labels is None else {"labelExpr": f"{json.dumps(_drawable([*labels]))}[datum.value]"}
    return alt.Axis(title=None, labelFontSize=font, labelLimit=340, labelPadding=6, ticks=False, domain=False, **style)


def title(text: str, *note: str) -> alt.TitleParams:
    """Return a title at the left, with a note of some lines under it."""
    under: dict[str, Any] = {"subtitle": list(note), "subtitleFontSize": 12, "subtitlePadding": 4} if any(note) else {}
    return alt.TitleParams(text, anchor="start", frame="group", fontSize=14, offset=10, **under)


def heading(text: str) -> alt.TitleParams:
    """Return the title of a column of words, where the others have the titles of their axes."""
    return alt.TitleParams(text, orient="bottom", fontSize=12, fontWeight="normal", offset=22)


def svg_of(chart: alt.TopLevelMixin) -> str:
    """Return a chart as an SVG; one that has not changed is not drawn again."""
    return _drawn(json.dumps(_drawable(chart.to_dict(validate=False))))


@lru_cache(32)
def _drawn(spec: str) -> str:
    svg: str = require("vl_convert", extra="plot").vegalite_to_svg(spec)
    return svg


def _drawable(part: Any) -> Any:  # noqa: ANN401
    """Return a part of a specification without control characters, at which vl-convert ends the process."""
    if isinstance(part, dict):
        return {_drawable(key): _drawable(value) for key, value in part.items()}
    if isinstance(part, list):
        return [_drawable(value) for value in part]
    return _CONTROLS.sub("\ufffd", part) if isinstance(part, str) else part


def _ends(points: pl.DataFrame, column: str) -> tuple[float, float]:
    low, high = points.select(low=pl.col(column).min(), high=pl.col(column).max()).row(0)
    return float(low), float(high)


def _ticks(low: float, high: float) -> list[float]:
    """Return powers of ten between the ends, and where there are few of them 2 and 5 times these."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1,) if len(decades) > 4 else (1, 2, 5)
    ticks = [float(f"{factor}e{decade}") for decade in decades for factor in factors]
    inside = [tick for tick in ticks if low <= tick <= high]
    return inside or [low, high]
