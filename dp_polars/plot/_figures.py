"""Released answers as panels: dots, lines over time, heat maps."""

from __future__ import annotations

import re
from collections.abc import Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Any, NamedTuple

import polars as pl

from dp_polars._base.extras import require
from dp_polars._base.labels import Labels
from dp_polars._release.contract import names_of_ends
from dp_polars.plot._charts import COLORS, DASHES, WIDTH, Look, axis_of, names_axis

if TYPE_CHECKING:
    from collections.abc import Iterator

    import altair as alt
else:
    alt = require("altair", extra="plot")


_WORD, _NUMBERS = 420, 140  # the widest column of words, and the narrowest one of numbers
_IN_A_ROW, PANEL = 4, 150  # the most small panels in a row, and how narrow one may be
_GROUPED = 6  # a second key with up to this many values has its dots in one row
_COLUMNS = 24  # the most values of a second key side by side in a heat map
_NAME, _PAGE = 340, 660  # the widest name, and a page
_GAP = 24
_MOST_HIGH_ROWS = 30  # with more groups than this, rows are lower
_SHADES = ["#F1F6FA", "#6BB4DE"]  # of a heat map: both with a contrast of 7 and more to black text
_RANGE = ("number", "low", "high")
# Names of keys of whole numbers that mean times, and texts that are dates.
_TIME = re.compile(r"(?:.*[_ ])?(year|quarter|month|week|weekday|day|date|hour)s?", re.IGNORECASE)
_DATES = re.compile(r"\d{4}(-(Q[1-4]|W?\d{2})(-\d{2})?)?")
_LEAST_OF_A_LINE = 3


def width_of(look: Look) -> int:
    return look.get("width", WIDTH)


def _width_next_to(names: Sequence[str], look: Look) -> int:
    """Return the width of panels next to names, so that both together fit a printed page."""
    of_names = min(_NAME, 7 * max(map(len, names)))
    return look.get("width", max(2 * _NUMBERS, min(WIDTH, _PAGE - of_names)))


def _limit(look: Look) -> int:
    """Return how wide a name may be next to panels of a given width."""
    return min(_NAME, 2 * look.get("width", 5 * _NAME) // 5)


class Points(NamedTuple):
    """A number of each group, and whether its axis begins at 0."""

    name: str
    from_zero: bool


class Groups(NamedTuple):
    """Groups in the form of a figure: along time, by another key, or a row for each."""

    keys: list[str]
    time: str | None  # the key along the lines
    by: str | None  # the key of colours, or of columns


def groups_of(part: pl.DataFrame, keys: list[str]) -> Groups:
    time = next((key for key in reversed(keys) if _is_time(part[key])), None)
    if time is not None:
        return Groups([key for key in keys if key != time], time, None)
    by = keys[-1] if len(keys) == 2 and 1 < part[keys[-1]].n_unique() <= _COLUMNS else None
    return Groups(keys if by is None else keys[:-1], None, by)


def _is_time(values: pl.Series) -> bool:
    dtype = values.dtype
    if values.n_unique() < _LEAST_OF_A_LINE:
        return False
    if dtype in (pl.Date, pl.Datetime):
        return True
    if dtype.is_integer():
        return _TIME.fullmatch(values.name) is not None
    is_text = dtype in (pl.String, pl.Categorical, pl.Enum)
    return is_text and all(_DATES.fullmatch(text or "") for text in values.cast(pl.String).unique())


def _axis_of(name: str, labels: Labels, **style: Any) -> alt.Axis:  # noqa: ANN401
    return axis_of(labels.column(name), **style)


def _drawn_from(part: pl.DataFrame, name: str) -> tuple[pl.DataFrame, dict[str, Any]]:
    """Return a number and its ends, and the format of their axis."""
    is_date = part.schema[name] in (pl.Date, pl.Datetime)
    columns = [pl.col(column) for column in (name, *names_of_ends(name))]
    columns = columns if is_date else [column.cast(pl.Float64) for column in columns]
    points = part.select("rank", *(column.alias(to) for column, to in zip(columns, _RANGE, strict=True)))
    return points, {"type": "temporal" if is_date else "quantitative"}


def names_of(part: pl.DataFrame, keys: Sequence[str], labels: Labels) -> list[str]:
    if not keys:
        return ["all rows"] * part.height
    return [", ".join(names) for names in zip(*(labels.values(part[key]) for key in keys), strict=True)]


def rows_of(
    part: pl.DataFrame, groups: Groups, numbers: Sequence[Points], texts: list[str], labels: Labels, look: Look
) -> list[alt.HConcatChart]:
    """Return panels of dots and words, a row for each group, side by side as far as they fit."""
    series = None if groups.by is None else labels.values(part[groups.by])
    named = names_of(part, groups.keys, labels)
    places = {name: place for place, name in enumerate(dict.fromkeys(named))} if series else None
    rank = range(part.height) if places is None else [places[name] for name in named]
    ranked = part.with_columns(pl.Series("rank", rank, pl.Int64))
    listed = named if places is None else [*places]
    order = list(dict.fromkeys(series or ()))
    step = (26 if len(listed) <= _MOST_HIGH_ROWS else 20) if series is None else 13 * len(order) + 8
    height: Any = look.get("height", step * len(listed))

    def rows(*, first: bool) -> alt.Y:
        # All rows in each panel: without an empty one, others would move up to other names.
        scale = alt.Scale(domain=[*range(len(listed))])
        return alt.Y("rank:O", scale=scale, axis=names_axis(listed, limit=_limit(look)) if first else None)

    found: list[alt.HConcatChart] = []
    widest = _width_next_to(listed, look)
    for of_numbers, of_words in _in_rows(ranked, numbers, texts, labels, widest):
        panels: list[Any] = []
        room = widest - sum(wide + _GAP for wide in of_words.values())
        width = min(3 * _NUMBERS, room // max(1, len(of_numbers)) - _GAP)
        for name, from_zero in of_numbers:
            points, kind = _drawn_from(ranked, name)
            if series is not None:
                points = points.with_columns(pl.Series("series", series))
            x = alt.X("number", scale=_scale(from_zero, padding=8), axis=axis_of("", tickCount=4), **kind)
            base: Any = alt.Chart(points, width=max(_NUMBERS - _GAP, width), height=height)
            base = base.encode(y=rows(first=not panels), tooltip=list(_RANGE))
            color: Any = {}
            if series is not None:
                color = {"color": _color("series", order, labels.column(str(groups.by)))}
                base = base.encode(yOffset=alt.YOffset("series:N", sort=order))
            marks: dict[str, Any] = {} if color else {"color": COLORS[0]}
            bar = base.mark_rule(strokeWidth=2, opacity=1, **marks).encode(
                x=alt.X("low", **_of_ends(x)), x2="high", **color
            )
            ends = [
                base.mark_tick(thickness=2, opacity=1, size=13 if series is None else 9, **marks).encode(
                    x=alt.X(end, **_of_ends(x)), **color
                )
                for end in _RANGE[1:]
            ]
            dot = base.mark_point(size=40, filled=True, opacity=1, **marks).encode(x=x, **color)
            panels.append(alt.LayerChart(layer=[bar, *ends, dot], title=_above(labels.column(name))))
        for name, wide in of_words.items():
            words = ranked.select("rank", text=name)
            chart: Any = alt.Chart(
                words, width=wide, height=height, title=_above(labels.column(name)), view={"stroke": None}
            )
            text = chart.mark_text(fontSize=12, limit=wide, align="left")
            panels.append(text.encode(y=rows(first=not panels), text="text:N", x=alt.value(0)))
        found.append(alt.HConcatChart(hconcat=panels, spacing=_GAP))
    return found


def _of_ends(x: alt.X | alt.Y) -> dict[str, Any]:
    return {"type": x["type"], "scale": x["scale"], "axis": x["axis"]}


def _scale(from_zero: bool, **style: Any) -> alt.Scale:  # noqa: ANN401
    return alt.Scale(zero=from_zero, **style)


def _above(text: str) -> alt.TitleParams:
    """Return the heading of a column of numbers or of words."""
    return alt.TitleParams(wrap(text, 34), anchor="start", frame="group", fontSize=12, fontWeight="bold", offset=6)


# The look of a line in a legend: the width and shade of the line, not those of its band.
_STROKE = {"symbolType": "stroke", "symbolSize": 700, "symbolStrokeWidth": 2, "symbolOpacity": 1}


def _legend(title: str, **symbol: Any) -> alt.Legend:  # noqa: ANN401
    return alt.Legend(title=title, orient="top", labelFontSize=12, titleFontSize=12, labelLimit=0, **symbol)


def _color(field: str, order: Sequence[str], title: str, **symbol: Any) -> alt.Color:  # noqa: ANN401
    legend = _legend(title, **symbol or {"symbolType": "circle"})
    scale = alt.Scale(domain=list(order), range=COLORS[: len(order)])
    return alt.Color(f"{field}:N", sort=list(order), scale=scale, legend=legend)


def _in_rows(
    part: pl.DataFrame, numbers: Sequence[Points], texts: Sequence[str], labels: Labels, widest: int
) -> Iterator[tuple[list[Points], dict[str, int]]]:
    """Yield the numbers and the texts of each row of panels: at most `widest`, or a single panel."""
    row: tuple[list[Points], dict[str, int]] = ([], {})
    total = 0
    both: list[Points | str] = [*numbers, *texts]
    for one in both:
        width = _width(part, one, labels) + _GAP if isinstance(one, str) else _NUMBERS
        if total and total + width > widest:
            yield row
            row, total = ([], {}), 0
        if isinstance(one, str):
            row[1][one] = width - _GAP
        else:
            row[0].append(one)
        total += width
    yield row


def _width(part: pl.DataFrame, name: str, labels: Labels) -> int:
    lengths: list[int] = part[name].str.len_chars().to_list()
    return min(_WORD, 20 + 7 * max(len(labels.column(name)), *lengths))


def over_time(
    part: pl.DataFrame, groups: Groups, time: str, numbers: Sequence[Points], labels: Labels, look: Look
) -> list[Any]:
    """Return a panel of lines with their bands for each number, or small panels if there are many lines."""
    series = names_of(part, groups.keys, labels)
    order = list(dict.fromkeys(series))
    ranked = part.with_columns(pl.Series("series", series), pl.col(time).alias("rank"))
    is_date = part.schema[time] in (pl.Date, pl.Datetime)
    kind: dict[str, Any] = {"type": "temporal"} if is_date else {"type": "ordinal", "sort": None}
    if not is_date:
        ranked = ranked.with_columns(pl.Series("rank", labels.values(part[time])))
    several, one = len(order) > len(COLORS), len(order) == 1
    columns = max(1, min(_IN_A_ROW, len(order), width_of(look) // PANEL)) if several else 1
    width = (width_of(look) - _GAP) // columns - 12 * (columns > 1)
    panels = []
    for name, from_zero in numbers:
        points, style = _drawn_from(ranked, name)
        points = points.with_columns(ranked["series"]).rename({"rank": "time"})
        ticks: dict[str, Any] = (
            {"tickCount": max(2, width // 60), "labelFlush": True} if is_date else {"labelOverlap": True}
        )
        x = alt.X("time", axis=_axis_of(time, labels, **{"labelAngle": 0, "grid": False, **ticks}), **kind)
        y_axis = axis_of(labels.column(name) if not several else "", tickCount=5)
        y = alt.Y("number", scale=_scale(from_zero), axis=y_axis, **style)
        base: Any = alt.Chart(points).encode(x=x)
        color: Any = {}
        title = ", ".join(map(labels.column, groups.keys))
        if not (one or several):
            color = {"color": _color("series", order, title, **_STROKE)}
        mark: dict[str, Any] = {} if color else {"color": COLORS[0]}
        dash: Any = {}
        if color:
            dashes = alt.Scale(domain=order, range=DASHES[: len(order)])
            dash = {
                "strokeDash": alt.StrokeDash("series:N", sort=order, scale=dashes, legend=_legend(title, **_STROKE))
            }
        band = base.mark_area(opacity=0.15 if color else 0.25, **mark).encode(
            y=alt.Y("low", **_of_ends(y)), y2="high", **color
        )
        line = base.mark_line(strokeWidth=2, **mark).encode(y=y, **color, **dash)
        dots = base.mark_point(size=18, filled=True, opacity=1, **mark).encode(y=y, tooltip=["time", *_RANGE], **color)
        layers: list[Any] = [band, line] if several else [band, line, dots]
        height = look.get("height", 100 if several else 220)
        chart: Any = alt.LayerChart(layer=layers, data=points, width=width, height=height)
        if several:
            header = alt.Header(
                title=None, labelFontSize=11, labelFontWeight="bold", labelAnchor="start", labelLimit=width
            )
            facet = alt.Facet("series:N", sort=order, header=header)
            chart = chart.facet(facet, columns=columns, spacing=12, title=_above(labels.column(name)))
        panels.append(chart)
    return panels


def heat_maps(
    part: pl.DataFrame, groups: Groups, by: str, numbers: Sequence[Points], labels: Labels, look: Look
) -> list[Any]:
    """Return a table of coloured cells for each number, with the number in each."""
    named = names_of(part, groups.keys, labels)
    listed = list(dict.fromkeys(named))
    places = {name: place for place, name in enumerate(listed)}
    ranked = part.with_columns(
        pl.Series("rank", [places[name] for name in named], pl.Int64), pl.Series("column", labels.values(part[by]))
    )
    order = ranked["column"].unique(maintain_order=True).to_list()
    width = _width_next_to(listed, look)
    upright = 7 * max(map(len, order)) <= width // len(order)
    top = axis_of(labels.column(by), orient="top", labelAngle=0 if upright else -60, labelLimit=120)
    panels = []
    for name, _ in numbers:
        points, style = _drawn_from(ranked, name)
        points = points.with_columns(ranked["column"])
        if style["type"] != "quantitative":
            continue
        texts = ["–" if value is None else _short(value) for value in points["number"]]
        points = points.with_columns(pl.Series("text", texts))
        height = look.get("height", 22 * len(listed))
        base: Any = alt.Chart(points, width=width, height=height, title=_above(labels.column(name)))
        base = base.encode(
            x=alt.X("column:N", sort=order, axis=top),
            y=alt.Y(
                "rank:O", scale=alt.Scale(domain=[*range(len(listed))]), axis=names_axis(listed, limit=_limit(look))
            ),
            tooltip=list(_RANGE),
        )
        shade = alt.Scale(range=_SHADES)
        cells = base.mark_rect().encode(color=alt.Color("number:Q", scale=shade, legend=None))
        said = base.mark_text(fontSize=11, color="#111111").encode(text="text:N")
        panels.append(alt.LayerChart(layer=[cells, said]))
    return [alt.VConcatChart(vconcat=panels, spacing=20).resolve_scale(color="independent")]


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"


def panels_of(
    part: pl.DataFrame, keys: list[str], numbers: Sequence[Points], texts: list[str], labels: Labels, look: Look
) -> tuple[list[Any], str, list[str]]:
    """Return rows of panels that fit the keys, the kind of marks, and the outputs that are left out."""
    groups = groups_of(part, keys)
    if numbers and groups.time is not None:
        return over_time(part, groups, groups.time, numbers, labels, look), "Lines", texts
    if numbers and groups.by is not None:
        dates = [one.name for one in numbers if part.schema[one.name] in (pl.Date, pl.Datetime)]
        if part[groups.by].n_unique() <= _GROUPED:
            return list(rows_of(part, groups, numbers, [], labels, look)), "Dots", texts
        if len(dates) < len(numbers):
            return heat_maps(part, groups, groups.by, numbers, labels, look), "Cells", texts + dates
    return list(rows_of(part, Groups(keys, None, None), numbers, texts, labels, look)), "Dots", []
