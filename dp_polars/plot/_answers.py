"""Figures of releases: answers, boxes, cubes."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Unpack, get_args

import polars as pl

from dp_polars._base.calls import called
from dp_polars._base.extras import require
from dp_polars._base.labels import Labels
from dp_polars._base.numbers import as_fraction, given, one_of, plural, positive_int, show
from dp_polars._expressions.expression import PrivateExpr, refuse_several
from dp_polars._frames.cube import COUNT, SHARE, Cube
from dp_polars._frames.query import PrivateQuery
from dp_polars._frames.requests import KeyRequest
from dp_polars._frames.statements import unit_facts
from dp_polars._release.contract import names_of_ends
from dp_polars._release.protection import limits_in_words
from dp_polars._release.request import Ask, said_once, with_ends
from dp_polars._statistics.answer_lists import QuantileList
from dp_polars._statistics.categories import QuantileWithInterval
from dp_polars._statistics.measures import Total
from dp_polars._statistics.statement_facts import AT_DELTA, facts_of_claims, guaranteed, loss_facts
from dp_polars.plot import _charts
from dp_polars.plot._charts import Look, checked, figure
from dp_polars.plot._figures import (
    PANEL,
    Groups,
    Points,
    groups_of,
    names_of,
    panels_of,
    width_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import altair as alt

    from dp_polars._statistics.statistic import Asked
else:
    alt = require("altair", extra="plot")


_Sort: TypeAlias = Literal["keys", "largest"]
_SORTS: tuple[_Sort, ...] = get_args(_Sort)
_MOST_LISTED = 5  # the most elements of a list in a text
_MOST_NAMED = 3  # the most outputs in a title


@called
def answers(
    released: pl.DataFrame, query: PrivateQuery, *, most: int = 30, sort: str = "keys", **look: Unpack[Look]
) -> alt.VConcatChart:
    """Plot released answers with their confidence intervals, by the kind of their keys. A figure that you can share.

    Nothing but the release is shown, so the figure is as private as that. `chart.save("figure.svg")` writes it; `.png`
    and `.html` work as well.

    Parameters
    ----------
    released
        The result of `query.release()`, or a part of its rows; with or without `intervals`.
    query
        The released query. The caption shows the guarantee, the limits and the clipping bounds.
    most
        The most groups, or lines along time, in the figure.
    sort
        "keys": the groups stay in the order of their public keys, or in that of `released`. "largest": the groups with
        the largest first number come first.
    **look
        `title`, `subtitle` and `caption`: texts, each instead of the usual one; "" leaves it out. `labels`: names of
        columns and values, such as `{"n_people": "People", "N": "North"}`. `width`: pixels of the panels side by side,
        without the names of groups. `height`: pixels of each panel.

    Returns
    -------
    altair.VConcatChart
        One key of dates, months or years gives lines with bands, and a further key gives lines in colours: small panels
        if there are more than six. Two other keys give dots in colours, or a table of coloured cells if the second has
        more than six values. All other keys give a row for each group, with a dot for each number in a line from
        `NAME_low` to `NAME_high`. If a release has no such columns, the intervals of counts and sums follow from the
        query; those of means don't. Answers that are no numbers are columns of words, next to dots only: choices, with
        their gap if that was requested; lists of quantiles and of the top k; value counts, the largest first. The
        caption lists what is left out.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, `released` has no row, or an output or a key is named like the end of an
        interval.

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
    >>> chart = answers(query.release(), query, title="Patients by ward")
    """
    rows, notes, title = drawn(released, query, most, sort, checked(look))
    request = query._request
    labels = Labels.of(look.get("labels"))
    limits = said_once({labels.column(ask.name): request.limited(ask, anyway=False) for ask in query._asks})
    caption = [*notes, *limits, _guarantee(query)]
    return figure(rows, look, title=title, caption=caption)


def _guarantee(query: PrivateQuery) -> str:
    request, protection = query._request, query._protection
    loss = facts_of_claims(request.claims, AT_DELTA)
    guarantee = guaranteed(loss) if request.taken is None else request.taken.guarantee
    person = unit_facts(protection.privacy_unit, protection.neighboring_relation)["person"]
    return f"Differential privacy with {guarantee}. One person: {person}."


def _of_claim(columns: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the limits and the guarantee of a released cube."""
    first, loss = columns[0], sum(Fraction(one["loss"]["exact"]) for one in columns)
    if first["limits"]:
        yield limits_in_words(first["limits"], in_parts=False)
    guarantee = guaranteed(loss_facts(first["loss"]["unit"], Fraction(loss), Fraction(0), AT_DELTA))
    yield f"Differential privacy with {guarantee}. One person: {unit_facts(first['privacy_unit'], '')['person']}."


def drawn(
    released: pl.DataFrame,
    query: PrivateQuery,
    most: int,
    sort: str,
    look: Look,
    units: Mapping[str, str] | None = None,
    *,
    with_words: bool = True,
) -> tuple[list[Any], list[str], str]:
    """Return rows of panels, the notes on them, and the title."""
    if not isinstance(query, PrivateQuery):
        msg = f"query must be a PrivateQuery, got {type(query).__name__}."
        raise TypeError(msg)
    shown, names = positive_int("most", most), [ask.name for ask in query._asks]
    order, labels = one_of("sort", sort, _SORTS), Labels.of(look.get("labels"), units)
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
    numbers = [
        Points(ask.name, getattr(ask.query, "adds_up", False))
        for ask in query._asks
        if _is_on_a_line(ask, released.schema[ask.name])
    ]
    points = [one.name for one in numbers]
    if taken := sorted({end for name in points for end in names_of_ends(name)}.intersection([*names, *listed])):
        msg = (
            f"outputs and keys must not be named like the ends of a bar, got {taken}: the bar would be drawn from them."
            "\n\nHint: name them otherwise in the query."
        )
        raise ValueError(msg)
    words = [ask for ask in query._asks if with_words and ask.name not in points]
    if order == "largest" and points:
        released = released.sort(points[0], descending=True, nulls_last=True, maintain_order=True)
    ranged = with_ends(released, query._asks)
    bare = [name for name in points if not {*names_of_ends(name)} <= {*ranged.columns}]
    part, every = _first(ranged, keys, shown, has_numbers=bool(points))
    part = part.with_columns(
        *(pl.lit(None, pl.Float64).alias(end) for name in bare for end in names_of_ends(name)),
        *(_as_words(ask, released).alias(ask.name) for ask in words),
    )
    rows, marks, missing = panels_of(part, keys, numbers, [ask.name for ask in words], labels, look)
    left_out = [f"The first {shown:,} of {every:,} groups are shown."] if every > shown else []
    if missing:
        left_out.append(f"Not drawn: {', '.join(map(labels.column, missing))}.")
    listed = [ask.name for ask in words if ask.name not in missing]
    notes = _notes(query, part, points, bare, listed, labels, marks)
    named = ", ".join(map(labels.column, names)) if len(names) <= _MOST_NAMED else "Answers"
    title = f"{named} by {', '.join(map(labels.column, keys))}" if keys else named
    return rows, [*notes, *left_out], title


def _first(released: pl.DataFrame, keys: list[str], shown: int, *, has_numbers: bool) -> tuple[pl.DataFrame, int]:
    """Return the rows of the first groups, as many as are shown, and the number of groups."""
    groups = groups_of(released, keys) if has_numbers else Groups(keys, None, None)
    if groups.keys == keys:
        return released.head(shown), released.height
    if not groups.keys:
        return released, 1
    of = released.select(groups.keys).unique(maintain_order=True)
    part = released.join(of.head(shown), on=groups.keys, how="semi", nulls_equal=True, maintain_order="left")
    return part, of.height


def has_numbers(released: pl.DataFrame, query: PrivateQuery) -> bool:
    return any(_is_on_a_line(ask, released.schema[ask.name]) for ask in query._asks)


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
    elif ask.query.claim._gap:
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
    query: PrivateQuery,
    part: pl.DataFrame,
    points: list[str],
    bare: list[str],
    words: list[str],
    labels: Labels,
    marks: str,
) -> list[str]:
    intervals = {ask.name: ask.query for ask in query._asks if isinstance(ask.query, QuantileWithInterval)}
    clipped = " of clipped values" * any(ask.query.clips_values for ask in query._asks)
    limited = " within the contribution limits" * query._request.drops()
    of_what = f",{clipped}{limited}," if clipped or limited else ""
    notes = [f"{marks} are released numbers, with noise."] if points else []
    lies = "lies in the band" if marks == "Lines" else "lies in the interval"
    if marks == "Cells":
        lies = "is that far off at most"
        notes += filter(None, (_off(part, name, labels) for name in points))
    if not {*points} <= {*intervals, *bare}:
        notes.append(f"The number without noise{of_what} {lies} with a probability of 95 %.")
    by_probability: dict[Fraction, list[str]] = {}
    for name in filter(intervals.get, points):
        by_probability.setdefault(intervals[name].probability, []).append(labels.column(name))
    notes += [
        f"{', '.join(names)}: the quantile{of_what} {lies} with a probability of {show(100 * probability)} %."
        for probability, names in by_probability.items()
    ]
    if bare:
        names = ", ".join(map(labels.column, bare))
        notes.append(f"There is no interval of {names}: release(intervals=True) has it.")
    if long := [labels.column(name) for name in words if part[name].str.ends_with(", …").any()]:
        notes.append(f"Only {_MOST_LISTED} of a list are shown: {', '.join(long)}.")
    if query._request.drops():
        notes.append("No interval covers what limits take away: counts and sums are too low if people have more.")
    return notes


def _off(part: pl.DataFrame, name: str, labels: Labels) -> str | None:
    """Return the errors of a heat map's numbers, in words."""
    if part.schema[name].is_temporal():
        return None
    number, low, high = (pl.col(column).cast(pl.Float64) for column in (name, *names_of_ends(name)))
    widest = part.select(pl.max_horizontal(high - number, number - low).max()).item()
    return None if widest is None else f"{labels.column(name)}: each number ± {show(as_fraction('off', widest), 3)}."


_FIVE = ("low", "box_low", "middle", "box_high", "high")
_COLUMNS = {3: _FIVE[1:4], 5: _FIVE}
_HINT = "dp_polars.quantile(column, [0.25, 0.5, 0.75], …) is such an output, and so is one of five quantiles."


@called
def box(
    released: pl.DataFrame,
    query: PrivateQuery | PrivateExpr,
    *,
    output: str | None = None,
    most: int = 30,
    sort: str = "keys",
    **look: Unpack[Look],
) -> alt.VConcatChart:
    """Plot released lists of three or five quantiles as boxes, a row per group: a figure that you can share.

    Nothing but the release is shown, so the figure is as private as that. A small group's box looks as sharp as any
    other: also publish the number of its people.

    Parameters
    ----------
    released
        The answers of the query, or a part of their rows; one row per group.
    query
        The released query: a query of a private frame, or the private expression of `group_by(…).agg(…)`.
    output
        The output to show. None: the only list of three or five quantiles.
    most
        The most groups in the figure.
    sort
        "keys": in the order of `released`. "largest": by the middle quantile, the largest first.
    **look
        As for `answers`.

    Returns
    -------
    altair.VConcatChart
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
    lists, others, under = _outputs_of(query)
    name = _the_output(lists, output)
    if name not in released.columns or not released.height:
        msg = f"released must be a release of this query, with a column {name!r} and a group in it."
        raise ValueError(msg)
    labels = Labels.of(checked(look).get("labels"))
    inner = lists[name].points.dtype
    is_date = inner in (pl.Date, pl.Datetime)
    if not (is_date or inner.is_numeric()):
        msg = f"the answers must be lists of numbers, dates or datetimes, got lists of {inner}."
        raise TypeError(msg)
    keys = [column for column in released.columns if column not in others]
    columns = _COLUMNS[lists[name].width]
    numbers = [pl.col(name).list.get(i).alias(to) for i, to in enumerate(columns)]
    part = released.select(*keys, *(number if is_date else number.cast(pl.Float64) for number in numbers))
    if one_of("sort", sort, _SORTS) == "largest":
        part = part.sort("middle", descending=True, nulls_last=True, maintain_order=True)
    alphas = dict(zip(columns, map(show, lists[name].alphas), strict=True))
    notes = [
        f"Boxes go from the {alphas['box_low']} to the {alphas['box_high']} quantile, with a line at "
        f"{alphas['middle']}."
    ]
    if columns == _FIVE:
        notes.append(f"Whiskers go to {alphas['low']} and {alphas['high']}.")
    if shown < released.height:
        notes.append(f"The first {shown:,} of {released.height:,} groups are shown.")
    title = f"{labels.column(name)} by {', '.join(map(labels.column, keys))}" if keys else labels.column(name)
    boxes = _boxes(part.head(shown), keys, columns, labels, look, labels.column(name), is_date=is_date)
    return figure([boxes], look, title=title, caption=[*notes, under])


def _outputs_of(query: object) -> tuple[dict[str, QuantileList], set[str], str]:
    if isinstance(query, PrivateQuery):
        asks: dict[str, Asked] = {ask.name: ask.query for ask in query._asks}
        others = {column for ask in query._asks for column in (ask.name, *names_of_ends(ask.name))}
        under = _guarantee(query)
    elif isinstance(query, PrivateExpr):
        refuse_several(query)
        name, claim = query.meta.output_name(), query.query.claim
        asks, others = {name: query.query}, {name}
        loss = guaranteed(facts_of_claims([claim], AT_DELTA))
        under = f"Differential privacy with {loss}. One person: at most {plural(claim.contributions.total, 'row')}."
    else:
        msg = f"query must be a PrivateQuery or a PrivateExpr, got {type(query).__name__}."
        raise TypeError(msg)
    lists = {name: one for name, one in asks.items() if isinstance(one, QuantileList) and one.width in _COLUMNS}
    return lists, others, under


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
    drawn: pl.DataFrame,
    keys: list[str],
    columns: tuple[str, ...],
    labels: Labels,
    look: Look,
    name: str,
    *,
    is_date: bool,
) -> alt.LayerChart:
    names = _charts.names_axis(names_of(drawn, keys, labels))
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
    height = look.get("height", 26 * drawn.height)
    layers = [*(whiskers if "low" in columns else []), boxes, *lines]
    return alt.LayerChart(layer=layers, width=width_of(look), height=height)


_HEIGHT, _IN_A_ROW = 130, 3
_LETTER = 6  # pixels of a letter below the x axis


@called
def cube(
    cube: Cube,
    along: str,
    *where: pl.Expr,
    by: str | Sequence[str] | None = None,
    share: pl.Expr | None = None,
    most: int = 12,
    **look: Unpack[Look],
) -> alt.VConcatChart:
    """Plot a released cube as small multiples: counts, or shares, along a dimension. A figure that you can share.

    Nothing but the release is shown, so the figure is as private as that.

    Parameters
    ----------
    cube
        The answer of a query of `PrivateFrame.cube`.
    along
        The dimension along the x axis, with its values in their order.
    *where
        Filters, as for `Cube.count`.
    by
        One or several others: a panel for each of their combinations. None: one panel.
    share
        A condition: show its shares instead of counts.
    most
        The most panels in the figure: the first ones are shown.
    **look
        As for `answers`; `width` is for all panels in a row.

    Returns
    -------
    altair.VConcatChart
        A dot for each number, in a line from one end of its 95 % confidence interval to the other. All panels have the
        same axes. The caption shows who is protected, the guarantee, and what is left out.

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
    labels = Labels.of(checked(look).get("labels"))
    claim = cube.claim
    counted = next(iter(claim["columns"].values()))["selects"]
    notes = ["Lines are 95 % intervals of the noise alone, each by itself."]
    if every > shown:
        notes.append(f"The first {shown} of {plural(every, 'panel')}.")
    notes += _of_claim([*claim["columns"].values()])
    order = labels.values(places)
    named = dict(zip(places.cast(pl.String), order, strict=True))
    found = found.with_columns(
        pl.Series("panel", labels.values(found["panel"])), pl.Series("place", [named[one] for one in found["place"]])
    )
    style = {"format": "%"} if name == SHARE else {"tickCount": 5}
    what = labels.column(counted) if name == COUNT else f"share of the {labels.column(counted)}"
    listed = found["panel"].unique(maintain_order=True).to_list()
    columns = max(1, min(_IN_A_ROW, len(listed), width_of(look) // PANEL)) if panels else 1
    width = width_of(look) // columns
    upright = _LETTER * max(map(len, order)) <= width // len(order)
    axis = _charts.axis_of(labels.column(along), labelAngle=0 if upright else -60, labelOverlap=True)
    base = alt.Chart(found).encode(x=alt.X("place:O", sort=order, axis=axis))
    y = alt.Y("low:Q", axis=_charts.axis_of(what, **style))
    line = base.mark_rule(color=_charts.COLORS[0], strokeWidth=2).encode(y=y, y2="high:Q")
    ends = [
        base.mark_tick(color=_charts.COLORS[0], thickness=2, size=11).encode(y=f"{end}:Q") for end in ("low", "high")
    ]
    dot = base.mark_circle(color=_charts.COLORS[0], size=36, opacity=1).encode(
        y="number:Q", tooltip=["panel", "place", "number", "low", "high"]
    )
    layers: list[Any] = [line, *ends, dot]
    chart: Any = alt.LayerChart(layer=layers, data=found, width=width, height=look.get("height", _HEIGHT))
    if panels:
        header = alt.Header(title=None, labelFontSize=12, labelFontWeight="bold", labelAnchor="start")
        chart = chart.facet(alt.Facet("panel:N", sort=listed, header=header), columns=columns)
    title = f"{what} by {', '.join(map(labels.column, names))}"
    return figure([chart], look, title=title, caption=notes)
