"""What an engine makes of a query."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dp_polars._release import release

if TYPE_CHECKING:
    import dp_polars as dpp
    from dp_polars._mechanisms.histograms import Histogram
    from dp_polars._release.contract import Engine, LocalEngine


def release_by(
    query: dpp.PrivateQuery,
    engine: Engine[Any],
    budget: dpp.Budget | None = None,
    *,
    ignore_cache: bool = False,
    **shown: object,
) -> Any:
    """A release by an engine, charged to a budget, or to the query's."""
    payer, presentation = query.budget if budget is None else budget, query._request.presentation(**shown)
    return release.release_by(query._request, engine, payer, presentation=presentation, ignore_cache=ignore_cache)


def histograms_by(engine: LocalEngine, query: dpp.PrivateQuery) -> list[Histogram]:
    """The histograms that a release would draw from."""
    return engine.prepare_histograms(query._request.bind(engine))()
