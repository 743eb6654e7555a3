"""Released numbers with their ranges, as a figure that you can share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from dp_polars._base.extras import require
from dp_polars._base.numbers import positive_int
from dp_polars._engines.outputs import names_of_ends
from dp_polars._frames.query import PrivateQuery
from dp_polars.plot import _charts, _panels

if TYPE_CHECKING:
    import altair as alt
else:
    alt = require("altair", extra="plot")


def answers(released: pl.DataFrame, query: PrivateQuery, *, most: int = 30) -> alt.HConcatChart:
    """Plot released numbers with their 95 % ranges, a row per group: a figure that you can share.

    Groups are sorted by the first number, the largest first. Choices (modes, quantiles) stand next to the numbers as
    text, without their leads: they have no range, and the number of people next to them tells which to trust. Nothing
    but the release is shown, so the figure is as private as that.

    Parameters
    ----------
    released
        What `query.release(ranges=True)` returned, or a part of its rows.
    query
        The query that was released. The title names the protected unit and the loss.
    most
        How many groups are shown at most.

    Returns
    -------
    altair.HConcatChart
        A dot for each number, in a bar from `NAME_low` to `NAME_high`. Value counts are left out: they are lists. The
        title says so where the bounds can drop rows: no bar holds what these would change.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, or there is no number with a range.

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
    ...         stay=pl.col("days").dp.mean(0, 30, epsilon=0.5),
    ...     )
    ... )
    >>> chart = answers(query.release(ranges=True), query)
    """
    if not isinstance(query, PrivateQuery):
        msg = f"query must be a PrivateQuery, got {type(query).__name__}."
        raise TypeError(msg)
    shown, names = positive_int("most", most), [ask.name for ask in query.asks]
    missing = [name for name in names if name not in released.columns]
    if missing:
        msg = f"released must be the release of this query, it lacks {missing}."
        raise ValueError(msg)
    led = [ask.name for ask in query.asks if ask.query.claim.lead]
    released = released.with_columns(pl.col(led).struct.field("answer").name.keep())
    ends = {name: names_of_ends(name) for name in names}
    numbers = [
        name
        for name in names
        if set(ends[name]) <= set(released.columns) and released.schema[ends[name][0]].is_numeric()
    ]
    if not (numbers and released.height):
        msg = (
            "released must have a group and a number with its range, got none.\n\n"
            "Hint: query.release(ranges=True), and a count, a sum or a mean among the outputs."
        )
        raise ValueError(msg)
    texts = [name for name in names if name not in numbers and not released.schema[name].is_nested()]
    keys = [name for name in released.columns if name not in {*names, *(end for both in ends.values() for end in both)}]
    largest = released.sort(numbers[0], descending=True, maintain_order=True).head(shown)
    under = ["dot: released, with noise · bar: holds the number without noise with probability 95 %"]
    if shown < released.height:
        under[0] += f" · the first {shown} of {released.height:,} groups"
    if query.request.drops():
        under.append(
            "ranges are of the noise alone: counts and sums are too low where people have more than the bounds keep"
        )
    loss = f"{_charts.SYMBOLS[query.loss.unit]} = {float(query.loss.value):g}"
    title = _charts.title(f"Private answers at {loss}", *under, query.request.promise)
    return alt.HConcatChart(hconcat=_panels.answers(largest, keys, numbers, texts), spacing=24, title=title)
