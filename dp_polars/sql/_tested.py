"""The engines that are tested."""

from __future__ import annotations

from dp_polars.sql._dialects import DUCKDB, POSTGRES
from dp_polars.sql._sqlite import SQLITE

TESTED = {dialect.name: dialect for dialect in (DUCKDB, POSTGRES, SQLITE)}
