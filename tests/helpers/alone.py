"""Queries without shared sums: each statistic has draws of its own, as if it were the only one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dp_polars._frames.query import PrivateQuery

if TYPE_CHECKING:
    from dp_polars._release.request import Request


def alone(query: PrivateQuery) -> PrivateQuery:
    request: Request = query._request  # type: ignore[assignment]  # of columns
    return PrivateQuery(request.alone, query._source, query.budget)
