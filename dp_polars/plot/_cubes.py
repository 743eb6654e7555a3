"""Figures of released cubes: a panel for each combination of some dimensions, along another one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from dp_polars._base.extras import require
from dp_polars._base.numbers import given, plural, positive_int
from dp_polars._frames.cube import COUNT, SHARE, Cube
from dp_polars.plot import _charts

if TYPE_CHECKING:
    from collections.abc import Sequence

    import altair as alt
else:
    alt = require("altair", extra="plot")

_WIDTH, _HEIGHT, _IN_A_ROW = 220, 130, 3
# Values with at most this number of characters are written upright.
_SHORT = 7


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
        A dot for each number, in a bar from one end of its 95 % range to the other. All panels have the same axes. The
        title names who is protected and the loss, the subtitle what is left out.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

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
    if not isinstance(found, pl.DataFrame):  # there is a dimension
        raise TypeError
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
    notes = ["Bars: 95 % ranges of the noise alone, each by itself."]
    if every > shown:
        notes.append(f"The first {shown} of {plural(every, 'panel')}.")
    title = _charts.title(f"{claim['protection']}, {claim['loss']}", *notes)
    order = places.cast(pl.String).to_list()
    is_short = max(map(len, order)) <= _SHORT
    axis = _charts.axis(along, labelAngle=0 if is_short else -60, labelOverlap=True)
    style = {"format": "%"} if name == SHARE else {"tickCount": 5}
    what = counted if name == COUNT else f"share of the {counted}"
    base = alt.Chart(found).encode(x=alt.X("place:O", sort=order, axis=axis))
    bar = base.mark_rule(color=_charts.PALE, strokeWidth=4).encode(
        y=alt.Y("low:Q", axis=_charts.axis(what, **style)), y2="high:Q"
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
