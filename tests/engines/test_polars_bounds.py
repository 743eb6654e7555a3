"""Sums of what stays of people's rows: exact, slice by slice, and with whatever the columns are."""

import numpy as np
import polars as pl
import pytest

import dp_polars as dpp
from dp_polars._engines.polars import engine as polars_engine
from dp_polars._engines.polars import people as polars_people
from dp_polars._engines.polars.engine import count
from dp_polars._engines.polars.labels import labelled
from dp_polars._engines.polars.rows import with_groups
from dp_polars._release.protection import Limits
from tests.helpers.specs import as_frame, spec_of


@pytest.mark.parametrize("most", [0, 2, 2**60])
@pytest.mark.parametrize(
    "people",
    [
        pl.Series([3, 1, 3, 2, 1, 3], dtype=pl.UInt8),
        pl.Series([-128, 127, -128, 0, -1], dtype=pl.Int8),
        pl.Series([2**63 - 1, 2**63 - 2, 2**63 - 1], dtype=pl.Int64),
        pl.Series([2**64 - 1, 0, 2**64 - 1, 1], dtype=pl.UInt64),
        # With three bits for the place: as far apart as fits into one word, and further.
        pl.Series([-(2**60), 2**60 - 1, -(2**60), 5, 2**60 - 1], dtype=pl.Int64),
        pl.Series([-(2**60), 2**60, 7, -(2**60), 2**60], dtype=pl.Int64),
        pl.Series([2**61, 2**62, 0, 2**61], dtype=pl.Int64),
        pl.Series([-(2**63), 2**63 - 1, -(2**63)], dtype=pl.Int64),
        pl.Series([-(2**127), 2**127 - 1, -(2**127)], dtype=pl.Int128),
        pl.Series(["b", "a", "b"]),
        pl.Series([5], dtype=pl.Int64),
        pl.Series([], dtype=pl.Int64),
    ],
    ids=lambda people: f"{people.dtype} {people.to_list()}",
)
def test_rows_of_a_person_come_together(people, most):
    groups = np.random.default_rng(0).integers(0, most, len(people), np.uint64, endpoint=True)
    found = polars_people.by_person(labelled(people), groups)
    lengths, (own_groups, rows) = found.lengths, found.part(0, len(people))
    assert (own_groups == groups[rows]).all()
    assert sorted(rows.tolist()) == list(range(len(people)))
    whose = [{people[int(row)] for row in own} for own in np.split(rows, np.cumsum(lengths)[:-1]) if len(own)]
    assert all(len(own) == 1 for own in whose)
    assert len(whose) == len(lengths) == people.n_unique()
    assert all((np.diff(groups[own].astype(np.int64)) >= 0).all() for own in np.split(rows, np.cumsum(lengths)))


@pytest.mark.parametrize("table_bits", [0, 14])
@pytest.mark.parametrize("apart", [1, 2**46])
def test_codes_stand_in_words_where_there_is_room(apart, table_bits, monkeypatch):
    """Four groups take 2 bits and codes 12, people up to 6 or 52. Both ways count the same, in a table or not."""
    monkeypatch.setattr(polars_people, "_TABLE_BITS", table_bits)
    rng = np.random.default_rng(3)
    frame = pl.DataFrame({"p": rng.integers(0, 60, 500), "g": rng.integers(0, 4, 500), "x": rng.integers(0, 5, 500)})
    frame = frame.with_columns(y=pl.int_range(500), x=pl.when(pl.col("x") < 4).then("x"))
    codes = polars_people.Codes(
        {
            "x": (frame["x"].fill_null(3).clip(upper_bound=3).cast(pl.UInt8).to_numpy(), 3),
            "y": (frame["y"].cast(pl.UInt16).to_numpy(), 1000),
        }
    )
    assert codes.all_count == {"y"}
    found = polars_people.by_person(frame["p"] * apart, frame["g"].to_numpy(), codes)
    assert found.is_packed == (apart == 1)
    groups, tails = found.part(0, 500)
    read = codes.unpacked if found.is_packed else codes.at
    own = zip(np.repeat(range(60), found.lengths), groups, read(tails, "x"), read(tails, "y"), strict=True)
    expected = frame.select("p", "g", pl.col("x").fill_null(3).clip(upper_bound=3), "y").rows()
    assert sorted(own) == sorted(expected)
    specs = [
        spec_of(frame, "x", dpp.mode("x", range(3), epsilon=1).query, Limits(groups=4), people=True),
        spec_of(frame, "x", dpp.mode("x", range(3), epsilon=1).query, Limits(groups=4)),
        spec_of(frame, None, dpp.len(epsilon=1).query, Limits(groups=4)),
        spec_of(frame, "y", dpp.mode("y", range(500), epsilon=1).query, Limits(groups=4)),
    ]
    keys, far = pl.DataFrame({"g": [0, 1, 2, 3]}), frame.with_columns(pl.col("p") * apart)
    found = [as_frame(each).rows() for each in count(far.lazy(), ("p",), keys, specs)]
    seen = frame.filter(pl.col("x") < 3)
    assert found[0] == seen.group_by("g", "x").agg(pl.n_unique("p").cast(pl.Int64)).sort("g", "x").rows()
    assert found[1] == seen.group_by("g", "x").agg(pl.len().cast(pl.Int64)).sort("g", "x").rows()
    assert found[2] == [(g, 0, n) for g, n in frame.group_by("g").agg(pl.len()).sort("g").rows()]
    assert found[3] == [(g, y, 1) for g, y in frame.select("g", "y").sort("g", "y").rows()]


@pytest.mark.parametrize("number", [8, 9])
def test_few_keys_are_compared_and_many_joined(number):
    """Of every type that may be compared, and one that may not."""
    rows = pl.LazyFrame({"key 0": ["a", None, "b", "x", ""], "key 1": [1, 1, None, 2, 3], "x": range(5)})
    keys = pl.DataFrame({"key 0": ["b", "", "x", "a", *"cdefg"], "key 1": [1, 3, 2, 1, 5, 6, 7, 8, 9]}).head(number)
    expected = {(1, 4), (2, 3), (3, 0)}
    days = pl.date(2000, 1, 1) + pl.duration(days="key 1")
    for other in ("key 1", pl.col("key 1").cast(pl.Float64), days.alias("key 1"), (pl.col("key 1") % 2 > 0)):
        plan = with_groups(rows.with_columns(other), keys.with_columns(other))
        is_compared = number == 8 and keys.select(other).dtypes != [pl.Float64]
        assert ("JOIN" in plan.explain()) != is_compared
        assert plan.collect_schema().names() in (["group", "x"], ["x", "group"])
        assert set(plan.select("group", "x").collect().rows()) == expected


@pytest.mark.parametrize("rows", [3, 1 << 17])
@pytest.mark.parametrize("largest", [3, 2**29])
def test_slices_change_no_sum(rows, largest, monkeypatch):
    monkeypatch.setattr(polars_people, "_PEOPLE_ROWS", rows)
    rng = np.random.default_rng(2)
    values = rng.integers(-largest, largest, 500, endpoint=True)
    frame = pl.DataFrame({"p": rng.integers(0, 60, 500), "g": rng.integers(0, 4, 500), "x": values})
    frame = frame.with_columns(x=pl.when(pl.col("x") % 7 > 0).then("x"))
    total = dpp.sum("x", -largest, largest, epsilon=1).query
    specs = [
        spec_of(frame, "x", total, Limits(groups=4)),
        spec_of(frame, "x", total, Limits(groups=4), people=True),
        spec_of(frame, None, dpp.len(epsilon=1).query, Limits(groups=4)),
        spec_of(frame, "p", dpp.mode("p", range(50), epsilon=1).query, Limits(groups=4), people=True),
    ]
    found = [as_frame(each).rows() for each in count(frame.lazy(), ("p",), pl.DataFrame({"g": [2, 0, 3]}), specs)]
    listed = [(2, 0), (0, 1), (3, 2)]
    seen = frame.filter(pl.col("x").is_not_null())
    clipped = seen.group_by("g", "p").agg(pl.col("x").sum().clip(-largest, largest))
    assert found[0] == [(i, 0, seen.filter(g=g)["x"].sum()) for g, i in listed]
    assert found[1] == [(i, 0, clipped.filter(g=g)["x"].sum()) for g, i in listed]
    assert found[2] == [(i, 0, frame.filter(g=g).height) for g, i in listed]
    people = {(i, p) for g, i in listed for p in frame.filter(g=g)["p"] if p < 50}
    assert found[3] == [(i, p, 1) for i, p in sorted(people)]


def test_columns_that_are_read_alike_are_encoded_once():
    """Five specs of one column: one column of codes, and one of weights for sums and means."""
    frame, column = pl.LazyFrame({"p": [1, 1, 2], "x": [1.0, 2.0, None]}), pl.col("x")
    total = dpp.sum("x", 0, 3, step=1, epsilon=1).query
    mean = dpp.mean("x", 0, 3, step=1, epsilon=1).query
    number = dpp.count("x", epsilon=1).query
    asked = [(total, 0), (total, 0), (mean, 0), (mean, 1), (number, 0)]
    limits = [Limits(rows=5), Limits(rows=4), Limits(rows=5), Limits(rows=3), Limits(rows_per_group=3)]
    specs = [spec_of(frame, column, query, most, part=part) for (query, part), most in zip(asked, limits, strict=True)]
    assert len(polars_engine._made(specs)) == 2  # codes; whole steps, which means add up, too
    assert [as_frame(each)["count"].item() for each in count(frame, ("p",), None, specs)] == [3, 3, 0, 2, 2]


@pytest.mark.parametrize("most", [(7, 2), (2, 7)])
def test_each_weight_of_a_person_has_a_bound_of_its_own(most):
    """One person has 8 days in A, three others have one each in B: of the 8 count 7, or 2, as the output says."""
    rows = pl.DataFrame({"p": [0, 0, 1, 2, 3], "ward": list("AABBB"), "days": [4, 4, 1, 1, 1]})
    asks = {
        f"by {bound}": dpp.mode("ward", ["A", "B"], counts=dpp.weights("days", max_weight=bound), epsilon=10**6)
        for bound in most
    }
    found = rows.dp.protect("p", max_rows=2).agg(**asks).release().row(0)
    assert found == tuple("A" if bound == 7 else "B" for bound in most)
