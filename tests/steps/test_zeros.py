"""Floats that are equal are the same to the bit: two zeros, and NaN with any bits."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from dp_polars._steps.whole_numbers import of_one_kind

WAYS = {
    "Float64": (pl.Float64, np.uint64, [0, 1 << 63], [0x7FF8 << 48, 0xFFF8 << 48, (0x7FF8 << 48) + 5], 48, 0x7FF0),
    "Float32": (pl.Float32, np.uint32, [0, 1 << 31], [0x7FC0 << 16, 0xFFC0 << 16, (0x7FC0 << 16) + 5], 16, 0x7F80),
}


def bits(column: pl.Series, word: type) -> list[int]:
    return column.to_numpy(allow_copy=True).view(word).tolist()


@pytest.mark.parametrize("kind", WAYS)
def test_equal_floats_are_the_same_to_the_bit(kind):
    dtype, word, zeros, nans, shift, infinite = WAYS[kind]
    others = [1 << shift, infinite << shift, (infinite << shift) - 1, (0x8000 | infinite) << shift]
    floats = np.array([*zeros, *nans, *others], word).view(word.__name__.replace("uint", "float"))
    frame = pl.DataFrame({"x": pl.Series(floats, dtype=dtype)})
    assert len(set(bits(frame["x"], word))) == len(floats)  # so there is something to make alike
    found = bits(frame.select(of_one_kind("x", dtype()))["x"], word)
    assert found[: len(zeros)] == [0] * len(zeros)
    assert len({*found[len(zeros) : -len(others)]}) == 1
    assert found[-len(others) :] == others
    without = frame.select(of_one_kind("x", dtype(), nan=None))["x"]
    assert without.is_null().to_list() == [False] * len(zeros) + [True] * len(nans) + [False] * len(others)
