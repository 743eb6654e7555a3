"""What several files of this folder use: the rows of a private frame."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

    import dp_polars as dpp


def rows_of(
    private: dpp.PrivateFrame, table: pl.DataFrame | pl.LazyFrame | None = None, *, engine: str = "in-memory"
) -> pl.DataFrame:
    """The private rows after all steps, of the frame's own table or of another."""
    table = private._source if table is None else table
    return private._pipeline.proved(table.collect_schema()).rows(table.lazy()).collect(engine=engine)
