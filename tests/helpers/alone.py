"""Queries without shared sums: each statistic has draws of its own, as if it were the only one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dp_polars._frames.query import PrivateQuery
from dp_polars._statistics import shared_sums

if TYPE_CHECKING:
    from dp_polars._release.request import Request


def alone(query: PrivateQuery) -> PrivateQuery:
    request: Request = query._request  # type: ignore[assignment]  # of columns
    asks = tuple(replace(ask, query=shared_sums.alone(ask.query)) for ask in request.asks)
    return PrivateQuery(replace(request, asks=asks), query._source, query.budget)
