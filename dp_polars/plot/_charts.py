"""Charts, panels and their words, made by one function; and figures for planning."""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from textwrap import wrap
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack

import numpy as np
import polars as pl

from dp_polars._base.extras import require
from dp_polars._base.labels import Labels, texts
from dp_polars._base.numbers import Floats, given, positive_int
from dp_polars.analysis._laws import LAPLACE

if TYPE_CHECKING:
    import altair as alt
else:
    alt = require("altair", extra="plot")


# Six colours, each with a dash of its own. All pairs differ by more than 26 (CIE 1976), also to people who lack one
# kind of cones. Each has a contrast of 3 or more on white and on a dark page: `tests/plot` simulates it.
COLORS = ["#017EB7", "#DB7900", "#895B6E", "#8222FC", "#889A69", "#C61A25"]
DASHES = [[1, 0], [7, 3], [2, 2], [10, 3, 2, 3], [14, 4], [4, 2, 1, 2, 1, 2]]
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
# Characters that XML, and so SVG, forbids.
_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")
SYMBOLS = {"epsilon": "ε", "rho": "ρ"}


ChartT = TypeVar("ChartT")


class Look(TypedDict, total=False):
    """The labels and the size of a figure."""

    title: str
    subtitle: str
    caption: str
    labels: Mapping[Any, str]
    width: int
    height: int


WIDTH = 560  # default pixels of panels side by side: with names they fit 700


def checked(look: Look) -> Look:
    """Return the look of a figure if it is valid; TypeError or ValueError otherwise."""
    for name, value in look.items():
        if name not in Look.__annotations__:
            msg = f"{name!r} must be left out: a figure takes {', '.join(Look.__annotations__)}."
            raise TypeError(msg)
        if name in ("width", "height"):
            positive_int(name, value)
        elif name == "labels":
            texts(name, value)
        elif not isinstance(value, str):
            msg = f"{name} must be a text, got {given(value)}."
            raise TypeError(msg)
    return look


def figure(
    rows: Sequence[Any], look: Look, *, title: str = "", subtitle: str = "", caption: Sequence[str] = ()
) -> alt.VConcatChart:
    """Return rows of panels under a title and above a caption, with the texts of `look` if given.

    Title and caption belong to two charts, so `chart.properties(title=…)` leaves the caption as it is.
    """
    width = max(look.get("width", WIDTH), 300) + 100
    under = [line for text in _given(look, "caption", caption) for line in wrap(text, width // 6)]
    quiet: dict[str, Any] = {"anchor": "start", "frame": "group", "orient": "bottom"}
    below = alt.TitleParams(under, fontSize=11, fontWeight="normal", lineHeight=15, offset=12, **quiet)
    body = alt.VConcatChart(vconcat=list(rows), spacing=20, title=below if under else alt.Undefined)
    above = wrap(look.get("title", title), width // 8)
    note = [line for text in _given(look, "subtitle", [subtitle]) for line in wrap(text, width // 6)]
    if not (above or note):
        return body
    more: dict[str, Any] = {"subtitle": note, "subtitleFontSize": 12, "subtitlePadding": 4} if note else {}
    head = alt.TitleParams(above, anchor="start", frame="group", fontSize=15, offset=12, **more)
    return alt.VConcatChart(vconcat=[body], title=head)


def _given(look: Look, name: str, usual: Sequence[str]) -> Sequence[str]:
    text = dict(look).get(name)
    return usual if text is None else str(text).splitlines()


def looking(chart: ChartT, look: Look) -> ChartT | alt.VConcatChart:
    """Return a chart under a title and above a caption, if `look` has them: then its own title is left out."""
    if not {"title", "subtitle", "caption"} & look.keys():
        return chart
    if "title" in look:
        chart.title = alt.Undefined  # type: ignore[attr-defined]  # every chart has one
    return figure([chart], look)


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
    **look: Unpack[Look],
) -> alt.LayerChart | alt.VConcatChart:
    """Return a chart with one line per series, apart in colour and in dash.

    Parameters
    ----------
    frame
        The points; on a logarithmic axis, points that are not above 0 are left out.
    x, y
        Columns of numbers.
    series
        The column that names the lines, six different values at most. The legend keeps their order in the frame.
    x_title, y_title
        Titles of the axes, with the unit.
    log_x, log_y
        Whether an axis is logarithmic.
    y_domain
        The ends of the y axis; lines are cut there. None: the ends of the points.
    **look
        As for `plot.answers`: `title`, `subtitle`, `caption`, `labels` of series and axes; `width` and `height`, in
        pixels, are without axes and legend: 420 and 280.

    Raises
    ------
    TypeError, ValueError
        If there are more than six series, or no points.

    Examples
    --------
    >>> points = pl.DataFrame({"n": [1, 2], "seconds": [0.1, 0.3], "plan": ["a", "b"]})
    >>> chart = lines(points, "n", "seconds", "plan", x_title="rows", y_title="time (s)")
    """
    width, height, labels = checked(look).get("width", 420), look.get("height", 280), Labels.of(look.get("labels"))
    frame = frame.with_columns(pl.Series(series, labels.values(frame[series]), pl.String))
    names = frame.get_column(series).unique(maintain_order=True).to_list()
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
    y_axis = axis_of(
        labels.words.get(y_title, y_title), **({"values": _ticks(*(y_domain or _ends(points, y)))} if log_y else {})
    )
    of_series: dict[str, Any] = {"type": "nominal", "sort": names, "legend": legend}
    line = alt.Chart(points).mark_line(strokeWidth=2, clip=True)
    drawn: Any = line.encode(
        x=along(points, x, labels.words.get(x_title, x_title), log=log_x, width=width),
        y=alt.Y(y, type="quantitative", scale=scale_of(log_y, y_domain), axis=y_axis),
        color=alt.Color(series, scale=alt.Scale(domain=names, range=COLORS), **of_series),
        strokeDash=alt.StrokeDash(series, scale=alt.Scale(domain=names, range=DASHES), **of_series),
        tooltip=[series, x, y],
    )
    return looking(alt.LayerChart(layer=[drawn], width=width, height=height), look)


def along(points: pl.DataFrame, x: str, title: str, *, log: bool, width: int) -> alt.X:
    style = {"values": _ticks(*_ends(points, x))} if log else {"tickCount": width // 60}
    return alt.X(x, type="quantitative", scale=scale_of(log), axis=axis_of(title, **style))


def scale_of(log: bool, domain: tuple[float, float] | None = None) -> alt.Scale:
    """Return a scale from 0, or a logarithmic one between the points' ends."""
    ends: dict[str, Any] = {} if domain is None else {"domain": list(domain)}
    return alt.Scale(type="log" if log else "linear", nice=not log, **ends)


def axis_of(title: str, **style: Any) -> alt.Axis:  # noqa: ANN401
    return alt.Axis(title=title, **{**_AXIS, **style})


def names_axis(labels: Sequence[str], *, font: int = 12, limit: int = 340) -> alt.Axis:
    """Return a y axis of names, of ranks 0, 1, …."""
    style: dict[str, Any] = {"labelFontSize": font, "labelExpr": f"{json.dumps(_drawable([*labels]))}[datum.value]"}
    return alt.Axis(title=None, labelLimit=limit, labelPadding=6, ticks=False, domain=False, **style)


def title(text: str, *note: str) -> alt.TitleParams:
    under: dict[str, Any] = {"subtitle": list(note), "subtitleFontSize": 12, "subtitlePadding": 4} if any(note) else {}
    return alt.TitleParams(text, anchor="start", frame="group", fontSize=14, offset=10, **under)


def svg_of(chart: alt.TopLevelMixin) -> str:
    return _drawn(json.dumps(_drawable(chart.to_dict(validate=False))))


# Black, and the greys of lines, and their colours on other pages.
_ON_PAGE = (
    (re.compile(r'="(?:#000|#000000|black)"'), '="currentColor"'),
    (re.compile(r'(stroke)="(?:#ddd|#e4e4e4)"'), r'\1="#8885"'),
    (re.compile(r'<rect [^>]*fill="white"/>'), ""),
)


def svg_on_page(chart: alt.TopLevelMixin, said: str, kind: str, least: float = 0) -> str:
    """Return a figure for a light or dark page, with its text for screen readers."""
    spec = chart.to_dict(validate=False)
    spec["config"] = {**spec.get("config", {}), "aria": False}
    svg = _drawn(json.dumps(_drawable(spec)))
    for pattern, instead in _ON_PAGE:
        svg = pattern.sub(instead, svg, count=1 if instead == "" else 0)
    width = re.search(r'width="(\d+)"', svg)
    least_wide = f' style="min-width: {math.floor(least * int(width[1]))}px"' if least and width else ""
    svg = svg.replace('class="marks"', f'class="{kind}"{least_wide}', 1)
    return svg.replace("<svg ", f'<svg role="img" aria-label="{html.escape(_drawable(said))}" ', 1)


@lru_cache(32)
def _drawn(spec: str) -> str:
    return str(require("vl_convert", extra="plot").vegalite_to_svg(spec))


def _drawable(part: Any) -> Any:  # noqa: ANN401
    """Return a part of a specification without control characters: vl-convert would end the process."""
    if isinstance(part, dict):
        return {_drawable(key): _drawable(value) for key, value in part.items()}
    if isinstance(part, list):
        return [_drawable(value) for value in part]
    return _CONTROLS.sub("\ufffd", part) if isinstance(part, str) else part


def _ends(points: pl.DataFrame, column: str) -> tuple[float, float]:
    low, high = points.select(low=pl.col(column).min(), high=pl.col(column).max()).row(0)
    return float(low), float(high)


def _ticks(low: float, high: float) -> list[float]:
    """Return powers of ten between the ends; if these are few, also 2 and 5 times these."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    factors = (1,) if len(decades) > 4 else (1, 2, 5)
    ticks = [float(f"{factor}e{decade}") for decade in decades for factor in factors]
    return [tick for tick in ticks if low <= tick <= high] or [low, high]


# A text at the end of a bar.
BESIDE: dict[str, Any] = {"align": "left", "baseline": "middle", "dx": 4, "fontSize": 11}
NOISE = {"discrete_laplace": "discrete Laplace noise", "discrete_gaussian": "discrete Gaussian noise"}
MECHANISMS = {
    "permute_and_flip": "permute-and-flip",
    "exponential": "exponential mechanism",
    LAPLACE: "report-noisy-max, Laplace noise",
    "first_above": "first above a threshold",
    **NOISE,
}

_MOST_HIGH_ROWS = 30  # with more groups than this, rows are lower and names smaller
# A group is hopeless if it is more than five times worse than three quarters of the groups. If it is more than 200
# times worse, the others are as good as zero, and need no room.
_HOPELESS, _NOUGHT = 5, 200


def _end(values: Floats) -> float | None:
    """Return an axis end that leaves room for all but hopeless groups; None: the largest value."""
    most, usual = float(values.max()), float(np.quantile(values, 0.75, method="lower"))
    if not most / _NOUGHT <= usual < most / _HOPELESS:
        return None
    return 1.25 * float(values[values <= _HOPELESS * usual].max())


def _written(value: float, column: str) -> str:
    if column == "probability_true":
        return f"{value:.0%}"
    return f"{value:.3g}" if value >= 0.001 or value == 0 else "< 0.001"


def _measures(part: pl.DataFrame) -> list[tuple[str, str, alt.Scale, dict[str, Any]]]:
    unit = part.item(0, "error_unit")
    unit = {"score": "units of the score", "the column's unit": "in the column's unit"}.get(unit, unit)
    error = ("expected_error", f"expected error ({unit})", alt.Scale(zero=True), {"tickCount": 6})
    if part.item(0, "mechanism") in NOISE:
        return [error]
    probability = "probability of the true answer"
    return [("probability_true", probability, alt.Scale(domain=[0, 1]), {"format": "%", "tickCount": 5}), error]


def over_losses(part: pl.DataFrame, title: str) -> list[Any]:
    panels = []
    for column, y_title, scale, style in _measures(part):
        value = pl.col(column)
        middle = part.group_by("loss", maintain_order=True).agg(
            low=value.quantile(0.1, "linear"), middle=value.median(), high=value.quantile(0.9, "linear")
        )
        largest = float(middle.get_column("high").to_numpy().max())
        if column == "expected_error" and largest > 0:
            # Errors fall like one over the loss, and a hopeless group would flatten the others on a linear axis.
            least = max(float(middle.get_column("low").to_numpy().min()), largest * 1e-4)
            middle = middle.with_columns(pl.col("low", "middle", "high").clip(least))
            scale = scale_of(log=True, domain=(least, largest * 1.1))
            style = {"values": _ticks(least, largest * 1.1), "format": "~g"}
        base = alt.Chart(middle).encode(x=along(middle, "loss", title, log=True, width=250))
        y_axis = axis_of(y_title, **style)
        band = base.mark_area(color=PALE, opacity=0.4).encode(y=alt.Y("low:Q", scale=scale, axis=y_axis), y2="high:Q")
        line = base.mark_line(color=COLORS[0], point={"size": 40, "fill": COLORS[0]}).encode(
            y=alt.Y("middle:Q", scale=scale, axis=y_axis), tooltip=["loss", "low", "middle", "high"]
        )
        panels.append(alt.LayerChart(layer=[band, line], width=250, height=200))
    return panels


def over_groups(part: pl.DataFrame, keys: list[str]) -> list[Any]:
    """Return the panels of one output at one loss: a mark per group, with its value next to it.

    A bar that is too long for the axis is cut. It has the colour of warnings, and its value ends in ».
    """
    named, (height, font) = labels(part, keys), (20, 12) if part.height <= _MOST_HIGH_ROWS else (12, 10)
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
            fill=pl.Series([COLORS[1] if is_cut else COLORS[0] for is_cut in cut], dtype=pl.String),
            text=pl.Series(
                [_written(value, column) + (" »" if is_cut else "") for value, is_cut in zip(values, cut, strict=True)],
                dtype=pl.String,
            ),
        )
        axis = None if panels else names_axis(named, font=font)
        base = alt.Chart(drawn).encode(
            y=alt.Y("rank:O", axis=axis), x=alt.X("length:Q", scale=scale, axis=axis_of(title, **style)), tooltip=column
        )
        bars = base.mark_bar(height={"band": 0.6}).encode(fill=alt.Fill("fill:N", scale=None))
        place: dict[str, Any] = {"align": "left", "baseline": "middle", "dx": 4, "fontSize": font - 1}
        said = base.mark_text(**place).encode(text="text:N")
        panels.append(alt.LayerChart(layer=[bars, said], width=170, height=alt.Step(height)))
    return [*panels, *_ranges(part, height)]


def labels(part: pl.DataFrame, keys: list[str]) -> list[str]:
    text = pl.concat_str([pl.col(key).cast(pl.String) for key in keys], separator=", ") if keys else pl.lit("all rows")
    return part.select(text.alias("group"))["group"].to_list()


def _ranges(part: pl.DataFrame, height: int) -> list[Any]:
    if not part.item(0, "ordered"):
        return []
    answers = part.select("rank", "true_answer", "answer_5", "answer_95")
    is_date = answers["true_answer"].dtype in (pl.Date, pl.Datetime)
    if answers["true_answer"].dtype.is_numeric() or answers["true_answer"].dtype == pl.String:
        # With outputs of several types, numbers are text.
        answers = answers.with_columns(pl.exclude("rank").cast(pl.Float64, strict=False))
    if not (is_date or (answers["true_answer"].dtype == pl.Float64 and not answers["true_answer"].null_count())):
        return []
    axis = axis_of("true answer (dot), private one 5–95% (bar)", tickCount=6)
    ends: dict[str, Any] = {"type": "temporal" if is_date else "quantitative", "axis": axis}
    base = alt.Chart(answers, width=220, height=alt.Step(height)).encode(
        y=alt.Y("rank:O", axis=None), tooltip=answers.columns[1:]
    )
    x = alt.X("answer_5", scale=alt.Scale(zero=False, padding=8) if is_date else _scale_of_ranges(answers), **ends)
    rule = base.mark_rule(strokeWidth=5, color=PALE, clip=True).encode(x=x, x2="answer_95")
    dot = base.mark_point(size=45, filled=True, color="black", opacity=1).encode(x=alt.X("true_answer", **ends))
    return [alt.LayerChart(layer=[rule, dot])]


def _scale_of_ranges(answers: pl.DataFrame) -> alt.Scale:
    """Return a scale on which hopeless intervals fill the width, and the others are distinct."""
    low, truth, high = (answers.get_column(name).to_numpy() for name in ("answer_5", "true_answer", "answer_95"))
    widths = high - low
    if (end := _end(widths)) is None:
        return alt.Scale(zero=False, padding=8)
    shown = np.concatenate([truth, low[widths <= end], high[widths <= end]])
    ends, room = (float(shown.min()), float(shown.max())), float(np.ptp(shown)) / 10
    return alt.Scale(domain=[ends[0] - room, ends[1] + room], nice=False)


def over_shares(part: pl.DataFrame) -> list[Any]:
    panels: list[Any] = []
    for column, title, scale, style in _measures(part):
        ranked = part.select(pl.col(column).sort(descending=column == "expected_error")).select(
            share=(pl.int_range(pl.len()) + 0.5) / pl.len(), value=column
        )
        # Enough points for the eye, few enough for a small file.
        at = np.unique(np.linspace(0, ranked.height - 1, 400).astype(np.int64))
        share = axis_of(f"{part.height:,} groups, the hardest first", format="%", tickCount=5)
        line = alt.Chart(ranked[at], width=250, height=200).mark_line(color=COLORS[0], strokeWidth=2)
        x = alt.X("share:Q", scale=alt.Scale(domain=[0, 1]), axis=share)
        y = alt.Y("value:Q", scale=scale, axis=axis_of(title, **style))
        panels.append(line.encode(x=x, y=y, tooltip=["share", "value"]))
    return panels


_LEAST = 0.001  # smaller relative errors are drawn there


def error_by_size(frame: pl.DataFrame, **look: Unpack[Look]) -> alt.LayerChart | alt.VConcatChart:
    """Plot the relative error of every output by the size of a group, one line per output.

    Parameters
    ----------
    frame
        The result of `dp_polars.analysis.error_by_size`, of six outputs at most. Unknown values are left out.
    **look
        As for `plot.answers`; `width` is 420 pixels, without axes.

    Returns
    -------
    altair.LayerChart, altair.VConcatChart
        Both axes are logarithmic. Errors below 0.1 % are drawn there, and lines end at 100 %.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, the frame lacks columns, or has more than six outputs, or no known error.

    Examples
    --------
    >>> import dp_polars as dpp
    >>> query = dpp.protect("patient").agg(people=dpp.n_people(within=10))
    >>> sizes = [50, 100, 200, 500, 1000]
    >>> chart = error_by_size(dpp.analysis.error_by_size(query, sizes))
    """
    check_columns(frame, "error_by_size", ("output", "size", "size_unit", "relative"))
    known = frame.filter(pl.col("relative").is_not_null())
    points = known.with_columns(pl.col("relative").clip(_LEAST) * 100)
    units = " or ".join(known["size_unit"].unique(maintain_order=True).sort())
    return _lines(
        points,
        "size",
        "relative",
        "output",
        x_title=f"{units} in the group",
        y_title="error, % of the largest answer",
        log_x=True,
        log_y=True,
        y_domain=(100 * _LEAST, 100),
        **look,
    )


def best_by_gap(frame: pl.DataFrame, **look: Unpack[Look]) -> alt.LayerChart | alt.VConcatChart:
    """Plot the least probability of the most common candidate, by its gap, one line per mode.

    `frame` is the result of `dp_polars.analysis.best_by_gap`, of six modes at most. `look`, and errors, are as for
    `error_by_size`.

    Examples
    --------
    >>> import dp_polars as dpp
    >>> query = dpp.protect("patient").agg(dpp.mode("reason", ["flu", "cold"], epsilon=0.1))
    >>> chart = best_by_gap(dpp.analysis.best_by_gap(query, range(0, 100, 5)))
    """
    check_columns(frame, "best_by_gap", ("output", "gap", "gap_unit", "probability"))
    return _lines(
        frame.with_columns(pl.col("probability") * 100),
        "gap",
        "probability",
        "output",
        x_title=f"gap of the most common value ({' or '.join(frame['gap_unit'].unique(maintain_order=True))})",
        y_title="right top one, % of releases",
        y_domain=(0, 100),
        **look,
    )


def rows_dropped(frame: pl.DataFrame, **look: Unpack[Look]) -> alt.LayerChart | alt.VConcatChart:
    """Plot the share of dropped rows, by the limit on rows, one line for each limit on groups.

    `frame` is the result of `dp_polars.analysis.rows_dropped`, with six limits on groups at most. Rows without a limit
    on rows per group are left out. `look`, and errors, are as for `error_by_size`.

    Examples
    --------
    >>> from dp_polars import analysis
    >>> rows = analysis.synthetic({"patient": pl.Int64}, people=100, rows=900)
    >>> chart = rows_dropped(
    ...     analysis.rows_dropped(rows, "patient", max_rows_per_group=[1, 2, 5])
    ... )
    """
    check_columns(frame, "rows_dropped", ("max_groups", "max_rows_per_group", "rows_dropped"))
    bounded = frame.filter(pl.col("max_rows_per_group").is_not_null() & pl.col("rows_dropped").is_not_null())
    groups = pl.col("max_groups")
    named = pl.format("{} group{}", groups, pl.when(groups > 1).then(pl.lit("s")).otherwise(pl.lit("")))
    return _lines(
        bounded.with_columns(pl.col("rows_dropped") * 100, line=named.fill_null(pl.lit("all groups"))),
        "max_rows_per_group",
        "rows_dropped",
        "line",
        x_title="rows of a person in a group that count, at most",
        y_title="% of rows that are dropped",
        **look,
    )


def _lines(frame: pl.DataFrame, x: str, y: str, series: str, **style: Any) -> alt.LayerChart | alt.VConcatChart:  # noqa: ANN401
    height = max(round(style.get("width", 420) * 2 / 3), 190)
    return lines(frame, x, y, series, **{"height": height, **style})


def check_columns(frame: pl.DataFrame, name: str, columns: Sequence[str]) -> None:
    if missing := [column for column in columns if column not in frame.columns]:
        msg = f"frame must have the columns of dp_polars.analysis.{name}, it lacks {missing}."
        raise ValueError(msg)
