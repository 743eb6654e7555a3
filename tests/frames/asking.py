"""What several files of this folder use: the rows of a private frame."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

    import dp_polars as dpp


def rows_of(private: dpp.PrivateFrame, *tables: Any, engine: str = "in-memory") -> pl.DataFrame:
    """The private rows after all steps, of the frame's own tables or of others."""
    tables = tables or private._sources
    proved = private._pipeline.proved(*(table.collect_schema() for table in tables))
    return proved.rows(*(table.lazy() for table in tables)).collect(engine=engine)
