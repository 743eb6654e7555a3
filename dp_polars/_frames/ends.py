"""The ends of ranges that follow from a release without any: those of counts and sums."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from dp_polars._engines.outputs import names_of_ends
from dp_polars._questions.measures import BETA, Multiple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dp_polars._frames.request import Ask
    from dp_polars._questions.question import Asked


def with_ends(released: pl.DataFrame, asks: Iterable[Ask[Asked]]) -> pl.DataFrame:
    """Return a release with the ends of the 95 % ranges of counts and sums, where it has none.

    How far noise goes is public, so nothing is drawn. Means and value counts get none: how far a mean may be off
    depends on its noisy count, which is not shown, and value counts are lists.

    Parameters
    ----------
    released
        What a query released, with or without ranges, or a part of its rows.
    asks
        Its outputs: `PrivateQuery.asks`.

    Returns
    -------
    DataFrame
        The same, and `NAME_low` and `NAME_high`, Float64, at the end; null where the answer is.
    """
    ends = []
    for ask in asks:
        names = names_of_ends(ask.name)
        if isinstance(ask.query, Multiple) and not set(names) <= set(released.columns):
            answers = released[ask.name]
            off = ask.query.error(1, BETA, answers.dtype) or 0.0
            ends += [
                (answers.cast(pl.Float64) + sign * off).alias(name) for sign, name in zip((-1, 1), names, strict=True)
            ]
    return released.with_columns(ends)
