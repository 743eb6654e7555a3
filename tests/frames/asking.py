"""What several files of this folder use: the rows of a private frame."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

if TYPE_CHECKING:
    import dp_polars as dpp


def people_with_rows(
    columns: Callable[[np.random.Generator, int], dict[str, Any]],
    beside: dict[str, Any],
    people: int = 600,
    seed: int = 1,
) -> pl.DataFrame:
    """People `p` with one to four rows, with columns of so many rows, and with rows beside them, in random order."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(1, 5, people)
    frame = pl.DataFrame({"p": np.repeat(np.arange(people), rows), **columns(rng, int(rows.sum()))})
    every = pl.concat([frame, pl.DataFrame(beside).cast(dict(frame.schema))])
    return every.sample(fraction=1, shuffle=True, seed=2)


def rows_of(
    private: dpp.PrivateFrame, table: pl.DataFrame | pl.LazyFrame | None = None, *, engine: str = "in-memory"
) -> pl.DataFrame:
    """The private rows after all steps, of the frame's own table or of another."""
    table = private._source if table is None else table
    return private._pipeline.proved(table.collect_schema()).rows(table.lazy()).collect(engine=engine)
