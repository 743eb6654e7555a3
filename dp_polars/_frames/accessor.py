"""The `.dp` accessor of frames. Private frames are loaded when it is used."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from dp_polars._base.process import called

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dp_polars._accounting.budget import Budget
    from dp_polars._frames.frame import PrivateFrame


@pl.api.register_lazyframe_namespace("dp")
@pl.api.register_dataframe_namespace("dp")
class FrameNamespace:
    """The method `.dp.protect` of a LazyFrame or a DataFrame."""

    def __init__(self, frame: pl.LazyFrame | pl.DataFrame) -> None:
        self._frame = frame

    def __repr__(self) -> str:
        return f"<.dp of a {type(self._frame).__name__}: protect(privacy_unit, …) takes its rows as private>"

    @called
    def protect(
        self,
        privacy_unit: str | Sequence[str] | None,
        *,
        budget: Budget | None = None,
        max_rows: int | None = None,
        max_groups: int | None = None,
        max_rows_per_group: int | None = None,
        neighboring_relation: str = "add_or_remove_one",
        dataset: str | None = None,
        unchecked: bool = False,
    ) -> PrivateFrame:
        """Take the frame's rows as private: see `dp_polars.protect`."""
        from dp_polars._frames.frame import PrivateFrame
        from dp_polars._frames.protect import recipe_of
        from dp_polars._release.protection import Protection
        from dp_polars._release.sources import source_of
        from dp_polars._steps.scans import identities

        protection = Protection.of(privacy_unit, max_rows, max_groups, max_rows_per_group, neighboring_relation)
        recipe = recipe_of(protection, dataset, budget, unchecked)
        source = source_of(self._frame, protection.unit, unchecked=recipe.unchecked)
        sources = () if source.unread is None else (source.unread,)
        return PrivateFrame(replace(recipe, files=identities(source.files)), sources, budget)
