"""Released lists of three or five quantiles as boxes, with whiskers where there are five."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from dp_polars._base.extras import require
from dp_polars._base.numbers import given, positive_int, show
from dp_polars._engines.outputs import names_of_ends
from dp_polars._expressions.expressions import PrivateExpr, refuse_several
from dp_polars._frames.query import PrivateQuery
from dp_polars._questions.quantile_lists import QuantileList
from dp_polars.plot import _charts, _panels

if TYPE_CHECKING:
    import altair as alt

    from dp_polars._accounting.terms import Loss
    from dp_polars._questions.question import Asked
else:
    alt = require("altair", extra="plot")

_FIVE = ("low", "box_low", "middle", "box_high", "high")
_COLUMNS = {3: _FIVE[1:4], 5: _FIVE}
_HINT = "dp_polars.quantile(column, [0.25, 0.5, 0.75], …) is such an output, and so is one of five quantiles."


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
        What was asked: the query of a private frame, or the private expression of `group_by(…).agg(…)`.
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
    >>> import polars as pl
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
    """Return the lists of three or five quantiles, the names of all that is no key, the loss, and who is protected."""
    if isinstance(query, PrivateQuery):
        asks: dict[str, Asked] = {ask.name: ask.query for ask in query.asks}
        others = {column for ask in query.asks for column in (ask.name, *names_of_ends(ask.name))}
        loss, under = query.loss, query.request.promise
    elif isinstance(query, PrivateExpr):
        refuse_several(query)
        name, claim = query.meta.output_name(), query.query.claim
        asks, others, loss = {name: query.query}, {name}, claim.loss
        under = f"{claim.neighboring_relation}, rows of one person: {claim.contributions.total}"
    else:
        msg = f"query must be a PrivateQuery or a PrivateExpr, got {type(query).__name__}."
        raise TypeError(msg)
    lists = {
        name: query_of_output
        for name, query_of_output in asks.items()
        if isinstance(query_of_output, QuantileList) and query_of_output.width in _COLUMNS
    }
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
    names = _charts.names_axis(_panels.labels(drawn, keys))
    numbers = drawn.select(pl.int_range(pl.len()).alias("rank"), *columns)
    ends: dict[str, Any] = {
        "type": "temporal" if is_date else "quantitative",
        "axis": _charts.axis(name, tickCount=6),
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
