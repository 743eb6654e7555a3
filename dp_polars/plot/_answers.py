"""Released answers with their ranges, as a figure that you can share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import polars as pl
from polars import selectors as cs

from dp_polars._base.extras import require
from dp_polars._base.numbers import one_of, positive_int, show
from dp_polars._engines.outputs import names_of_ends
from dp_polars._frames.ends import with_ends
from dp_polars._frames.keys import KeyRequest
from dp_polars._frames.query import PrivateQuery
from dp_polars._questions.choices import QuantileWithInterval
from dp_polars._questions.measures import Total
from dp_polars.plot import _charts, _panels

if TYPE_CHECKING:
    import altair as alt

    from dp_polars._frames.request import Ask
    from dp_polars._questions.question import Asked
else:
    alt = require("altair", extra="plot")


_Sort: TypeAlias = Literal["largest", "keys"]
_SORTS: tuple[_Sort, ...] = get_args(_Sort)
# How much of a list is written.
_MOST_LISTED = 5
# Pixels of a row of panels on a page, without the names of the groups.
_PAGE = 520


def answers(released: pl.DataFrame, query: PrivateQuery, *, most: int = 30, sort: str = "largest") -> alt.HConcatChart:
    """Plot released answers, a row per group: numbers with their ranges, and words. A figure that you can share.

    Nothing but the release is shown, so the figure is as private as that.

    Parameters
    ----------
    released
        What `query.release()` returned, or a part of its rows; with or without `ranges`.
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
        A dot for each number, and for each quantile that was asked for with an interval, in a bar from `NAME_low` to
        `NAME_high`. Where a release has no such columns, the bars of counts and sums follow from the query; those of
        means don't. All other answers are words: choices, with their lead where that was asked for; lists of quantiles
        and of the top k; value counts, the largest first. The subtitle says what is left out, and where the bounds can
        drop rows: no bar holds what these would change.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, `released` has no row, or an output or a key is named like the end of a bar.

    Examples
    --------
    >>> import polars as pl
    >>> import dp_polars as dpp
    >>> visits = pl.DataFrame(
    ...     {"patient": range(90), "ward": ["A", "A", "B"] * 30, "days": [1, 5, 3] * 30}
    ... )
    >>> query = (
    ...     visits.dp.protect("patient", max_groups=1, max_rows_per_group=1)
    ...     .group_by({"ward": ["A", "B", "C"]})
    ...     .agg(
    ...         people=dpp.n_people(epsilon=0.5),
    ...         stay=pl.col("days").dp.median(range(31), interval=0.95, epsilon=1),
    ...     )
    ... )
    >>> chart = answers(query.release(), query, sort="keys")
    """
    notes, panels = _drawn(released, query, most, sort)
    title = _charts.title(
        f"Private answers at {_charts.SYMBOLS[query.loss.unit]} = {float(query.loss.value):g}",
        *(" · ".join(line) for line in notes if line),
        query.request.promise,
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
    shown, names = positive_int("most", most), [ask.name for ask in query.asks]
    order = one_of("sort", sort, _SORTS)
    missing = [name for name in names if name not in released.columns]
    if isinstance(query.request, KeyRequest):
        msg = (
            "query must have answers for groups, got a query of keys, whose release is the list of them.\n\n"
            "Hint: report(released, query) shows it as a table; private.group_by(released) asks about these keys."
        )
        raise ValueError(msg)
    if missing:
        msg = f"released must be the release of this query, it lacks {missing}."
        raise ValueError(msg)
    if not released.height:
        msg = "released must have a row, got none."
        raise ValueError(msg)
    listed = [] if query.request.keys is None else query.request.keys.columns
    others = {column for name in names for column in (name, *names_of_ends(name))}.difference(listed)
    keys = [name for name in released.columns if name not in others]
    points = [ask.name for ask in query.asks if _is_on_a_line(ask, released.schema[ask.name])]
    taken = sorted({end for name in points for end in names_of_ends(name)}.intersection([*names, *listed]))
    if taken:
        msg = (
            f"outputs and keys must not be named like the ends of a bar, got {taken}: the bar would be drawn from them."
            "\n\nHint: name them otherwise in the query."
        )
        raise ValueError(msg)
    words = [ask for ask in query.asks if ask.name not in points]
    if order == "largest" and points:
        released = released.sort(points[0], descending=True, nulls_last=True, maintain_order=True)
    ranged = with_ends(released, query.asks)
    bare = [name for name in points if not {*names_of_ends(name)} <= {*ranged.columns}]
    part = ranged.head(shown).with_columns(
        *(pl.lit(None, pl.Float64).alias(end) for name in bare for end in names_of_ends(name)),
        *(_as_words(ask, released).alias(ask.name) for ask in words),
    )
    texts = [ask.name for ask in words]
    rows = [(points, texts)] if widest is None else _panels.in_rows(part, points, texts, widest)
    notes = _notes(query, released, part.height, points, bare)
    return notes, [_panels.answers(part, keys, *row) for row in rows]


def _is_on_a_line(ask: Ask[Asked], dtype: pl.DataType) -> bool:
    """Return whether an output is drawn as dots: numbers, and quantiles with an interval."""
    is_number = isinstance(ask.query, Total)
    has_bar = isinstance(ask.query, QuantileWithInterval) and (dtype.is_numeric() or dtype in (pl.Date, pl.Datetime))
    return is_number or has_bar


def _as_words(ask: Ask[Asked], released: pl.DataFrame) -> pl.Expr:
    """Return an output as text."""
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
    elif ask.query.claim.lead:
        answer, lead = (column.struct.field(name).cast(pl.String) for name in ("answer", "lead"))
        text = answer + pl.coalesce(pl.format(" (ahead by {})", lead), pl.lit(""))
    else:
        text = _as_text(column, dtype)
    if isinstance(ask.query, QuantileWithInterval):
        low, high = (_as_text(pl.col(end), dtype) for end in names_of_ends(ask.name))
        text = pl.format("{} ({} to {})", text, low, high)
    return text.fill_null("–")


def _as_text(column: pl.Expr, dtype: object) -> pl.Expr:
    """Return values of a type as text; durations in Polars' own words."""
    return column.dt.to_string("polars") if isinstance(dtype, pl.Duration) else column.cast(pl.String)


def _notes(
    query: PrivateQuery, released: pl.DataFrame, shown: int, points: list[str], bare: list[str]
) -> list[list[str]]:
    """Return the lines under the title: what dots and bars are, and what is left out."""
    intervals = {ask.name: ask.query for ask in query.asks if isinstance(ask.query, QuantileWithInterval)}
    legend = ["dot: released, with noise"] if points else []
    if not {*points} <= {*intervals, *bare}:
        legend.append("bar: the exact number lies in it with probability 95 %")
    legend += [
        f"bar of {name}: the quantile lies in it with probability {show(100 * interval.probability)} %"
        for name, interval in intervals.items()
        if name in points
    ]
    left_out = []
    if shown < released.height:
        left_out.append(f"the first {shown} of {released.height:,} groups, {released.height - shown:,} are left out")
    if bare:
        left_out.append(f"no range of {', '.join(bare)}: release(ranges=True) has it")
    lists = released.head(shown).select(cs.list().list.len().max() > _MOST_LISTED)
    long = [ask.name for ask in query.asks if ask.name in lists.columns and lists[ask.name].item()]
    if long:
        left_out.append(f"only {_MOST_LISTED} of a list: {', '.join(long)}")
    dropped = "ranges are of the noise alone: counts and sums are too low where people have more than the bounds keep"
    return [legend, left_out, [dropped] if query.request.drops() else []]
