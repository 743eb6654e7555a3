"""Figures of what was released: answers, boxes, cubes."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import polars as pl
from polars import selectors as cs

from dp_polars._base.calls import called
from dp_polars._base.extras import require
from dp_polars._base.numbers import given, one_of, plural, positive_int, show
from dp_polars._expressions.expression import PrivateExpr, refuse_several
from dp_polars._frames.cube import COUNT, SHARE, Cube
from dp_polars._frames.query import PrivateQuery
from dp_polars._frames.requests import KeyRequest
from dp_polars._questions.answer_lists import QuantileList
from dp_polars._questions.categories import QuantileWithInterval
from dp_polars._questions.measures import Total
from dp_polars._release.contract import names_of_ends
from dp_polars._release.request import Ask, said_once, with_ends
from dp_polars.plot import _charts

if TYPE_CHECKING:
    from collections.abc import Sequence

    import altair as alt

    from dp_polars._accounting.terms import Loss
    from dp_polars._questions.question import Asked
else:
    alt = require("altair", extra="plot")


_Sort: TypeAlias = Literal["largest", "keys"]
_SORTS: tuple[_Sort, ...] = get_args(_Sort)
_MOST_LISTED = 5  # how much of a list is written
_PAGE = 520  # pixels of a row of panels on a page, without the names of the groups


@called
def answers(released: pl.DataFrame, query: PrivateQuery, *, most: int = 30, sort: str = "largest") -> alt.HConcatChart:
    """Plot released answers, a row per group: numbers with their intervals, and words. A figure that you can share.

    Nothing but the release is shown, so the figure is as private as that.

    Parameters
    ----------
    released
        What `query.release()` returned, or a part of its rows; with or without `intervals`.
    query
        The query that was released. The title names the protected unit and the loss.
    most
        How many groups are shown at most.
    sort
        "largest": the groups with the largest first number come first. "keys": the groups stay in the order of their
        public keys, or in that of `released`.

    Returns
    -------
    altair.HConcatChart
        A dot for each number, and for each quantile that was requested with an interval, in a bar from `NAME_low` to
        `NAME_high`. Where a release has no such columns, the bars of counts and sums follow from the query; those of
        means don't. All other answers are words: choices, with their gap where that was requested; lists of quantiles
        and of the top k; value counts, the largest first. The subtitle says what is left out, between which clipping
        bounds values count, and where limits can drop rows: no bar holds what these change.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, `released` has no row, or an output or a key is named like the end of a bar.

    Examples
    --------
    >>> import dp_polars as dpp
    >>> visits = pl.DataFrame(
    ...     {"patient": range(90), "ward": ["A", "A", "B"] * 30, "days": [1, 5, 3] * 30}
    ... )
    >>> query = (
    ...     visits.dp.protect("patient", max_groups=1, max_rows_per_group=1)
    ...     .group_by({"ward": ["A", "B", "C"]})
    ...     .agg(
    ...         people=dpp.n_people(epsilon=0.5),
    ...         stay=pl.col("days").dp.median(range(31), confidence=0.95, epsilon=1),
    ...     )
    ... )
    >>> chart = answers(query.release(), query, sort="keys")
    """
    notes, panels = _drawn(released, query, most, sort)
    title = _charts.title(
        f"Private answers at {_charts.SYMBOLS[query.loss.unit]} = {float(query.loss.value):g}",
        *(" · ".join(line) for line in notes if line),
        *said_once({ask.name: query._request.clipped(ask, anyway=False) for ask in query._asks}),
        str(query._protection),
    )
    return alt.HConcatChart(hconcat=panels[0], spacing=24, title=title)


def answers_of_a_page(released: pl.DataFrame, query: PrivateQuery) -> tuple[list[str], list[alt.HConcatChart]]:
    """Return the notes of `answers`, and its panels as figures that stand below one another and fit a page."""
    notes, rows = _drawn(released, query, 30, "largest", _PAGE)
    return [note for line in notes for note in line], [alt.HConcatChart(hconcat=row, spacing=24) for row in rows]


def _drawn(
    released: pl.DataFrame, query: PrivateQuery, most: int, sort: str, widest: int | None = None
) -> tuple[list[list[str]], list[list[Any]]]:
    """Return lines of notes, and rows of panels: one row, or rows no wider than `widest` pixels without names."""
    if not isinstance(query, PrivateQuery):
        msg = f"query must be a PrivateQuery, got {type(query).__name__}."
        raise TypeError(msg)
    shown, names = positive_int("most", most), [ask.name for ask in query._asks]
    order = one_of("sort", sort, _SORTS)
    if isinstance(query._request, KeyRequest):
        msg = (
            "query must have answers for groups, got a query of keys, whose release is the list of them.\n\n"
            "Hint: report(released, query) shows it as a table; private.group_by(released) queries these keys."
        )
        raise ValueError(msg)
    if missing := [name for name in names if name not in released.columns]:
        msg = f"released must be the release of this query, it lacks {missing}."
        raise ValueError(msg)
    if not released.height:
        msg = "released must have a row, got none."
        raise ValueError(msg)
    listed = [] if query._request.keys is None else query._request.keys.columns
    others = {column for name in names for column in (name, *names_of_ends(name))}.difference(listed)
    keys = [name for name in released.columns if name not in others]
    points = [ask.name for ask in query._asks if _is_on_a_line(ask, released.schema[ask.name])]
    if taken := sorted({end for name in points for end in names_of_ends(name)}.intersection([*names, *listed])):
        msg = (
            f"outputs and keys must not be named like the ends of a bar, got {taken}: the bar would be drawn from them."
            "\n\nHint: name them otherwise in the query."
        )
        raise ValueError(msg)
    words = [ask for ask in query._asks if ask.name not in points]
    if order == "largest" and points:
        released = released.sort(points[0], descending=True, nulls_last=True, maintain_order=True)
    ranged = with_ends(released, query._asks)
    bare = [name for name in points if not {*names_of_ends(name)} <= {*ranged.columns}]
    part = ranged.head(shown).with_columns(
        *(pl.lit(None, pl.Float64).alias(end) for name in bare for end in names_of_ends(name)),
        *(_as_words(ask, released).alias(ask.name) for ask in words),
    )
    texts = [ask.name for ask in words]
    rows = [(points, texts)] if widest is None else _charts.in_rows(part, points, texts, widest)
    return _notes(query, released, part.height, points, bare), [_charts.answers(part, keys, *row) for row in rows]


def _is_on_a_line(ask: Ask[Asked], dtype: pl.DataType) -> bool:
    has_bar = isinstance(ask.query, QuantileWithInterval) and (dtype.is_numeric() or dtype in (pl.Date, pl.Datetime))
    return isinstance(ask.query, Total) or has_bar


def _as_words(ask: Ask[Asked], released: pl.DataFrame) -> pl.Expr:
    column, dtype = pl.col(ask.name), released.schema[ask.name]
    if isinstance(dtype, pl.List):
        one = pl.element()
        if isinstance(dtype.inner, pl.Struct):  # value counts
            one = one.sort_by(one.struct.field("count"), descending=True, maintain_order=True)
            one = pl.format("{}: {}", one.struct.field("value").cast(pl.String), one.struct.field("count"))
        else:
            one = _as_text(one, dtype.inner)
        text = column.list.eval(one.head(_MOST_LISTED)).list.join(", ")
        text += pl.when(column.list.len() > _MOST_LISTED).then(pl.lit(", …")).otherwise(pl.lit(""))
    elif ask.query.claim.gap:
        answer, gap = (column.struct.field(name).cast(pl.String) for name in ("answer", "gap"))
        text = answer + pl.coalesce(pl.format(" (ahead by {})", gap), pl.lit(""))
    else:
        text = _as_text(column, dtype)
    if isinstance(ask.query, QuantileWithInterval):
        low, high = (_as_text(pl.col(end), dtype) for end in names_of_ends(ask.name))
        text = pl.format("{} ({} to {})", text, low, high)
    return text.fill_null("–")


def _as_text(column: pl.Expr, dtype: object) -> pl.Expr:
    return column.dt.to_string("polars") if isinstance(dtype, pl.Duration) else column.cast(pl.String)


def _notes(
    query: PrivateQuery, released: pl.DataFrame, shown: int, points: list[str], bare: list[str]
) -> list[list[str]]:
    intervals = {ask.name: ask.query for ask in query._asks if isinstance(ask.query, QuantileWithInterval)}
    clipped = " of clipped values" * any(ask.query.clips_values for ask in query._asks)
    limited = " within the contribution limits" * query._request.drops()
    of_what = f",{clipped}{limited}," if clipped or limited else ""
    legend = ["dot: released, with noise"] if points else []
    if not {*points} <= {*intervals, *bare}:
        legend.append(f"bar: the number without noise{of_what} lies in it with probability 95 %")
    by_probability: dict[Fraction, list[str]] = {}
    for name in filter(intervals.get, points):
        by_probability.setdefault(intervals[name].probability, []).append(name)
    bars = [
        f"bar of {', '.join(names)}: the quantile{of_what} lies in it with probability {show(100 * probability)} %"
        for probability, names in by_probability.items()
    ]
    left_out = []
    if shown < released.height:
        left_out.append(f"the first {shown} of {released.height:,} groups, {released.height - shown:,} are left out")
    if bare:
        left_out.append(f"no range of {', '.join(bare)}: release(intervals=True) has it")
    lists = released.head(shown).select(cs.list().list.len().max() > _MOST_LISTED)
    if long := [ask.name for ask in query._asks if ask.name in lists.columns and lists[ask.name].item()]:
        left_out.append(f"only {_MOST_LISTED} of a list: {', '.join(long)}")
    dropped = "bars are of the noise alone: counts and sums are too low where people have more than the limits keep"
    return [legend, bars, left_out, [dropped] if query._request.drops() else []]


_FIVE = ("low", "box_low", "middle", "box_high", "high")
_COLUMNS = {3: _FIVE[1:4], 5: _FIVE}
_HINT = "dp_polars.quantile(column, [0.25, 0.5, 0.75], …) is such an output, and so is one of five quantiles."


@called
def box(
    released: pl.DataFrame, query: PrivateQuery | PrivateExpr, *, output: str | None = None, most: int = 30
) -> alt.LayerChart:
    """Plot released lists of three or five quantiles as boxes, a row per group: a figure that you can share.

    Groups are sorted by the middle quantile, the largest first. Nothing but the release is shown, so the figure is as
    private as that. A small group has a box as sharp as any other: also publish how many people it has.

    Parameters
    ----------
    released
        What the query released, or a part of its rows; one row per group.
    query
        The query that was released: that of a private frame, or the private expression of `group_by(…).agg(…)`.
    output
        The output that is shown. None: the only list of three or five quantiles.
    most
        How many groups are shown at most.

    Returns
    -------
    altair.LayerChart
        For each group a box from the second to the fourth quantile with a line at the third, and whiskers to the first
        and the fifth. Three quantiles are a box from the first to the third, with a line at the second.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, or the answers are no numbers, dates or datetimes.

    Examples
    --------
    >>> import dp_polars as dpp
    >>> stays = pl.DataFrame({"ward": ["A", "B"] * 300, "days": [1, 5, 3, 9, 2, 2] * 100})
    >>> five = dpp.quantile("days", [0.05, 0.25, 0.5, 0.75, 0.95], range(31), epsilon=2)
    >>> chart = box(stays.group_by("ward").agg(five), five)
    """
    if not isinstance(released, pl.DataFrame):
        msg = f"released must be a DataFrame, got {type(released).__name__}."
        raise TypeError(msg)
    shown = positive_int("most", most)
    lists, others, loss, under = _outputs_of(query)
    name = _the_output(lists, output)
    if name not in released.columns or not released.height:
        msg = f"released must be a release of this query, with a column {name!r} and a group in it."
        raise ValueError(msg)
    inner = lists[name].candidates.dtype
    is_date = inner in (pl.Date, pl.Datetime)
    if not (is_date or inner.is_numeric()):
        msg = f"the answers must be lists of numbers, dates or datetimes, got lists of {inner}."
        raise TypeError(msg)
    keys = [column for column in released.columns if column not in others]
    columns = _COLUMNS[lists[name].width]
    numbers = [pl.col(name).list.get(i).alias(to) for i, to in enumerate(columns)]
    drawn = released.select(*keys, *(number if is_date else number.cast(pl.Float64) for number in numbers))
    drawn = drawn.sort("middle", descending=True, nulls_last=True, maintain_order=True).head(shown)
    alphas = dict(zip(columns, map(show, lists[name].alphas), strict=True))
    notes = [f"box: {alphas['box_low']} to {alphas['box_high']} quantiles · line: {alphas['middle']}"]
    if columns == _FIVE:
        notes[0] += f" · whiskers: {alphas['low']} and {alphas['high']}"
    if shown < released.height:
        notes[0] += f" · the first {shown} of {released.height:,} groups"
    title = f"Private quantiles of {name} at {_charts.SYMBOLS[loss.unit]} = {float(loss.value):g}"
    return _boxes(drawn, keys, columns, name, _charts.title(title, *notes, under), is_date=is_date)


def _outputs_of(query: object) -> tuple[dict[str, QuantileList], set[str], Loss, str]:
    if isinstance(query, PrivateQuery):
        asks: dict[str, Asked] = {ask.name: ask.query for ask in query._asks}
        others = {column for ask in query._asks for column in (ask.name, *names_of_ends(ask.name))}
        loss, under = query.loss, str(query._protection)
    elif isinstance(query, PrivateExpr):
        refuse_several(query)
        name, claim = query.meta.output_name(), query.query.claim
        asks, others, loss = {name: query.query}, {name}, claim.loss
        under = f"{claim.neighboring_relation}, rows of one person: {claim.contributions.total}"
    else:
        msg = f"query must be a PrivateQuery or a PrivateExpr, got {type(query).__name__}."
        raise TypeError(msg)
    lists = {name: one for name, one in asks.items() if isinstance(one, QuantileList) and one.width in _COLUMNS}
    return lists, others, loss, under


def _the_output(lists: dict[str, QuantileList], output: str | None) -> str:
    if output is not None and output not in lists:
        msg = f"output must be a list of three or five quantiles of the query, got {given(output)}.\n\nHint: {_HINT}"
        raise ValueError(msg)
    if output is None and len(lists) != 1:
        msg = f"query must have one list of three or five quantiles, got {len(lists)}.\n\nHint: " + (
            f"output= one of {sorted(lists)}." if lists else _HINT
        )
        raise ValueError(msg)
    return next(iter(lists)) if output is None else output


def _boxes(
    drawn: pl.DataFrame, keys: list[str], columns: tuple[str, ...], name: str, title: alt.TitleParams, *, is_date: bool
) -> alt.LayerChart:
    names = _charts.names_axis(_charts.labels(drawn, keys))
    numbers = drawn.select(pl.int_range(pl.len()).alias("rank"), *columns)
    ends: dict[str, Any] = {
        "type": "temporal" if is_date else "quantitative",
        "axis": _charts.axis_of(name, tickCount=6),
        "scale": alt.Scale(zero=False, padding=10, nice=False),
    }
    base = alt.Chart(numbers).encode(y=alt.Y("rank:O", axis=names), tooltip=list(columns))
    black: dict[str, Any] = {"color": "black", "opacity": 1}
    whiskers = [base.mark_rule(strokeWidth=1.2, **black).encode(x=alt.X("low", **ends), x2="high")]
    ticks = {"low": (1.2, 8), "high": (1.2, 8), "middle": (3.5, 16)}
    lines = [
        base.mark_tick(thickness=t, size=n, **black).encode(x=alt.X(at, **ends))
        for at, (t, n) in ticks.items()
        if at in columns
    ]
    boxes = base.mark_bar(stroke="black", strokeWidth=1, height={"band": 0.62}, color=_charts.PALE).encode(
        x=alt.X("box_low", **ends), x2="box_high"
    )
    return alt.LayerChart(
        layer=[*(whiskers if "low" in columns else []), boxes, *lines], width=420, height=alt.Step(26), title=title
    )


_WIDTH, _HEIGHT, _IN_A_ROW = 220, 130, 3
_SHORT = 7  # values with at most this number of characters are written upright


@called
def cube(
    cube: Cube,
    along: str,
    *where: pl.Expr,
    by: str | Sequence[str] | None = None,
    share: pl.Expr | None = None,
    most: int = 12,
) -> alt.FacetChart | alt.LayerChart:
    """Plot a released cube as small multiples: counts, or shares, along a dimension. A figure that you can share.

    Nothing but the release is shown, so the figure is as private as that.

    Parameters
    ----------
    cube
        What a query of `PrivateFrame.cube` released.
    along
        The dimension whose values lie along the x axis, in their order.
    *where
        Filters, as for `Cube.count`.
    by
        One or several others: a panel for each of their combinations. None: one panel.
    share
        A condition: shares for which it is true, in the place of counts.
    most
        How many panels are shown at most, the first ones.

    Returns
    -------
    altair.FacetChart or LayerChart
        A dot for each number, in a bar from one end of its 95 % confidence interval to the other. All panels have the
        same axes. The title names who is protected and the loss, the subtitle what is left out.

    Examples
    --------
    >>> visits = pl.DataFrame(
    ...     {"ward": ["A", "B"] * 500, "year": [2024] * 600 + [2025] * 400}
    ... )
    >>> private = visits.dp.protect(None)
    >>> released = private.cube(
    ...     {"ward": ["A", "B"], "year": [2024, 2025]}, epsilon=1
    ... ).release()
    >>> chart = cube(released, "year", by="ward")
    """
    if not isinstance(cube, Cube):
        msg = f"cube must be a Cube, got {given(cube)}.\n\nHint: private.cube(…).release()."
        raise TypeError(msg)
    panels, name = [by] if isinstance(by, str) else list(by or ()), COUNT if share is None else SHARE
    names = [*panels, along]
    found = cube.counts(*where, by=names) if share is None else cube.share(share, *where, by=names)
    places = cube.dimensions[along]
    size, shown = len(places), positive_int("most", most)
    every = found.height // size
    found = found.head(shown * size).select(
        panel=pl.concat_str([pl.col(panels).cast(pl.String)], separator=" · ") if panels else pl.lit(""),
        place=pl.col(along).cast(pl.String),
        number=name,
        low=f"{name}_low",
        high=f"{name}_high",
    )
    found = found.drop_nulls("number")  # shares of nothing
    claim = cube.claim
    counted = next(iter(claim["columns"].values()))["selects"]
    notes = ["Bars: 95 % intervals of the noise alone, each by itself."]
    if every > shown:
        notes.append(f"The first {shown} of {plural(every, 'panel')}.")
    title = _charts.title(f"{claim['protection']}, {claim['loss']}", *notes)
    order = places.cast(pl.String).to_list()
    axis = _charts.axis_of(along, labelAngle=0 if max(map(len, order)) <= _SHORT else -60, labelOverlap=True)
    style = {"format": "%"} if name == SHARE else {"tickCount": 5}
    what = counted if name == COUNT else f"share of the {counted}"
    base = alt.Chart(found).encode(x=alt.X("place:O", sort=order, axis=axis))
    bar = base.mark_rule(color=_charts.PALE, strokeWidth=4).encode(
        y=alt.Y("low:Q", axis=_charts.axis_of(what, **style)), y2="high:Q"
    )
    dot = base.mark_circle(color=_charts.COLORS[0], size=36, opacity=1).encode(
        y="number:Q", tooltip=["panel", "place", "number", "low", "high"]
    )
    chart = alt.LayerChart(layer=[bar, dot], data=found, width=_WIDTH if panels else 2 * _WIDTH, height=_HEIGHT)
    if not panels:
        return chart.properties(title=title)
    listed = found["panel"].unique(maintain_order=True).to_list()
    header = alt.Header(title=None, labelFontSize=12, labelFontWeight="bold", labelAnchor="start")
    facet = alt.Facet("panel:N", sort=listed, header=header)
    return chart.facet(facet, columns=min(_IN_A_ROW, len(listed))).properties(title=title)
