"""Whole numbers in the place of people: equal exactly where the persons are."""

import datetime as dt
from decimal import Decimal

import numpy as np
import polars as pl
import pytest

from dp_polars._base.numbers import numbered
from dp_polars._engines.polars import labels
from dp_polars._engines.polars.labels import labelled

RNG = np.random.default_rng(5)


def some(values, dtype=None, rows=2000):
    values = pl.Series(values, dtype=dtype, strict=False)
    return values.gather(RNG.integers(0, len(values), rows))


LONG = "the same beginning of a text that is longer than twelve bytes "
TEXTS = ["", "a", "A", "ä", "a ", "a\x00", "a\x00\x00", *(LONG + str(i) for i in range(300))]
PEOPLE = {
    "texts": some(TEXTS),
    "short texts": some([str(i) for i in range(50)]),
    "categories": some(TEXTS).cast(pl.Categorical),
    "enum": some(["a", "b"], pl.Enum(["b", "c", "a"])),
    "integers": some([-(2**63), 2**63 - 1, 0, 5], pl.Int64),
    "wide": some([-(2**127), 2**127 - 1, 0], pl.Int128),
    "unsigned": some([2**64 - 1, 0, 1], pl.UInt64),
    "floats": some([0.0, -0.0, 1.5, float("inf"), 5e-324]),
    "decimals": some([Decimal("0.10"), Decimal("0.1"), Decimal(10)], pl.Decimal(20, 2)),
    "times": some([dt.datetime(2020, 1, 1), dt.datetime(1960, 1, 1)], pl.Datetime("ns")),
    "booleans": some([True, False]),
    "bytes": some([b"", b"a", b"a\x00"]),
    "nobody": pl.Series([], dtype=pl.String),
    "one": pl.Series(["a"]),
}
PEOPLE |= {
    "a pair": pl.select(pl.struct(a=some(range(40)), b=some(range(-3, 4), pl.Int8))).to_series(),
    # ("a", "bc") is not ("ab", "c").
    "texts twice": pl.select(pl.struct(a=some(["a", "ab", ""]), b=some(["bc", "c", "abc"]))).to_series(),
    "of all types": pl.select(
        pl.struct(a=some(TEXTS[:9]), b=some([0.0, -0.0, 2.5]), c=some([dt.date(2024, 1, 1), dt.date(1950, 1, 1)]))
    ).to_series(),
    "with far ends": pl.select(
        pl.struct(
            a=some([0, 2**64 - 1, 7], pl.UInt64), b=some([-(2**63), 2**63 - 1], pl.Int64), c=some([1]), d=some([1, 2])
        )
    ).to_series(),
    "of nobody": pl.Series([], dtype=pl.Struct({"a": pl.Int64, "b": pl.String})),
}


def check(person):
    found = labelled(person)
    assert found.dtype.is_integer()
    assert found.name == person.name
    pairs = pl.DataFrame({"person": person, "label": found}).unique()
    assert pairs.height == person.n_unique() == found.n_unique()


@pytest.mark.parametrize("part", [1 << 18, 7])
@pytest.mark.parametrize("name", PEOPLE)
def test_labels_are_equal_where_people_are(name, part, monkeypatch):
    monkeypatch.setattr(labels, "_PART", part)
    check(PEOPLE[name].alias("person"))
    check(pl.concat([PEOPLE[name], PEOPLE[name].head(5)], rechunk=False).alias("p"))


@pytest.mark.parametrize("hashes", ["alike", "equal", "all alike"])
def test_texts_with_the_same_hash_are_two_people(hashes, monkeypatch):
    """As sorted words hold only the first bits of a hash, these may be equal, or all of them."""
    lengths = {"alike": 2, "equal": 1, "all alike": 1}[hashes]

    def weak(texts):
        sizes = texts.str.len_bytes().cast(pl.UInt64)
        if hashes == "equal":
            return sizes
        low = texts.str.slice(-3).str.to_integer(strict=False).fill_null(999).cast(pl.UInt64)
        return low + (sizes % lengths) * pl.Series([1 << 60], dtype=pl.UInt64)

    monkeypatch.setattr(pl.Series, "hash", weak)
    texts = [f"{i:03}" for i in range(200)] + [f"{i:04}" for i in range(200, 300)]
    person = some(texts)
    assert (labels._of_texts(person) is None) == (hashes == "equal")
    check(person.alias("p"))


def test_a_wrong_hash_of_equal_texts_would_be_found(monkeypatch):
    """The check can fail: with hashes that differ where texts don't, a person has two labels."""
    monkeypatch.setattr(
        pl.Series, "hash", lambda texts: pl.Series([i << 60 for i in range(len(texts))], dtype=pl.UInt64)
    )
    with pytest.raises(AssertionError):
        check(pl.Series("p", ["a", "a"]))


@pytest.mark.parametrize("most", [0, 1, 50, 2**50, 2**63])
def test_values_are_numbered_in_their_order(most):
    """Also where a value and its place don't fit into one word."""
    for rows in (0, 1, 2, 1000):
        values = RNG.integers(0, most, rows, np.uint64, endpoint=True)
        found, places = numbered(values)
        assert (np.diff(found.astype(object)) > 0).all()
        assert (found[places] == values).all()
        assert len(found) == len(set(values.tolist()))
