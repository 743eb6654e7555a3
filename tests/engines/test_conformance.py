"""The engines that are always there run the conformance suite, and so does one that was written from the contract."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dp_polars._engines.polars import engine as polars_arrays
from dp_polars._engines.polars import people as polars_people
from dp_polars._engines.polars.engine import PolarsEngine
from dp_polars._sources.source import Source
from tests.engines.conformance import Conformance
from tests.engines.toy import ToyEngine


class OfPolars(Conformance):
    engine: str
    partitions: int | None = None

    def make(self, frame, read=None):
        def noted(rows):
            read()
            return rows

        plan = rows = frame.lazy()
        if read is not None:
            rows = rows.map_batches(noted, schema=frame.schema, projection_pushdown=False)
        return PolarsEngine(Source(plan, lambda: rows, marked=lambda: rows), self.engine, self.partitions)


class TestPolarsInMemory(OfPolars):
    engine = "in-memory"


class TestPolarsStreaming(OfPolars):
    engine = "streaming"


class TestPolarsInParts(OfPolars):
    engine = "auto"
    partitions = 3


class TestPolarsInSmallBatches(OfPolars):
    """Many batches and slices; and several key columns are joined, not looked up in a table."""

    engine = "auto"

    @pytest.fixture(autouse=True)
    def small(self, monkeypatch):
        for name, value in {"_SLICE_ROWS": 7, "_MOST_ROWS": 7, "_MOST_COMBINATIONS": 0}.items():
            monkeypatch.setattr(polars_arrays, name, value)
        monkeypatch.setattr(polars_people, "_PEOPLE_ROWS", 1000)


class TestPolarsByHashing(OfPolars):
    """As where there are more cells than an array has room for. Single rows of several parts are held together."""

    engine = "auto"
    partitions = 2

    @pytest.fixture(autouse=True)
    def no_room(self, monkeypatch):
        monkeypatch.setattr(polars_arrays, "_MOST_COUNTERS", 0)


class TestToy(Conformance):
    kinds = Conformance.kinds - {"List", "Struct"}  # lists and dicts can't be hashed

    def make(self, frame, read=None):
        class Rows:
            def __iter__(self) -> Iterator[dict[str, object]]:
                if read is not None:
                    read()
                return iter(frame.to_dicts())

        return ToyEngine(Rows(), dict(frame.schema))


def test_the_toy_is_small():
    """The contract suffices for an engine of less than 250 lines."""
    assert len(Path(__file__).with_name("toy.py").read_text(encoding="utf-8").splitlines()) < 250
