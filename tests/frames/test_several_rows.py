"""`explode` and `unpivot` of a private frame: what comes out, on both engines, and what is refused."""

import struct
from collections import Counter

import polars as pl
import polars.selectors as cs
import pytest

import dp_polars as dpp
from dp_polars._steps.trials import extremes
from tests.frames.asking import rows_of

NAN = float("nan")
LISTS = pl.DataFrame(
    {
        "p": [1, 1, 2, 3, 3, None],
        "l": [[1, 2], [], None, [None], [3], [4]],
        "a": pl.Series([[1, 2], [3, 4], None, [None, 5], [6, 7], [8, 9]], dtype=pl.Array(pl.Int64, 2)),
        "x": range(6),
    }
)


def bits(frame):
    """The rows as a count of tuples in which floats are their bits."""
    return Counter(
        tuple(struct.pack("<d", value) if isinstance(value, float) else value for value in row) for row in frame.rows()
    )


@pytest.mark.parametrize("keep_nulls", [True, False])
@pytest.mark.parametrize("empty_as_null", [True, False])
def test_explode_is_that_of_plain_python(empty_as_null, keep_nulls, engine):
    private = LISTS.dp.protect("p").explode("l", empty_as_null=empty_as_null, keep_nulls=keep_nulls)
    expected = Counter()
    for p, values, array, x in LISTS.rows():
        nothing = keep_nulls if values is None else empty_as_null
        for value in values or ([None] if nothing else []):
            expected[p, value, tuple(array or ()), x] += 1
    found = rows_of(private, LISTS, engine=engine)
    assert Counter((p, value, tuple(array or ()), x) for p, value, array, x in found.rows()) == expected
    assert private.collect_schema() == found.schema


def test_explode_is_that_of_polars_2_by_default_and_takes_arrays_and_selectors():
    found = rows_of(LISTS.dp.protect("p").explode("l"), LISTS)
    assert found["l"].to_list() == [1, 2, None, None, 3, 4]
    arrays = rows_of(LISTS.dp.protect("p").explode(cs.array()), LISTS)
    assert arrays["a"].to_list() == [1, 2, 3, 4, None, None, 5, 6, 7, 8, 9]
    assert arrays.height == 11


@pytest.mark.parametrize(
    "inner",
    [
        pl.Int8, pl.Float64, pl.String, pl.Boolean, pl.Date, pl.Categorical, pl.Enum(["a", "b"]), pl.List(pl.Int64),
        pl.Struct({"a": pl.Int64, "b": pl.String}), pl.Decimal(10, 2), pl.Binary, pl.Null,
    ],
    ids=str,
)  # fmt: skip
def test_lists_of_every_type_each_row_alone_and_all_together(inner, engine):
    values = extremes(pl.List(inner))
    frame = pl.DataFrame({"p": [i % 2 for i in range(len(values))], "l": values, "x": range(len(values))})
    private = frame.dp.protect("p").explode("l")
    together = rows_of(private, pl.concat([frame[1:], frame[:1]], rechunk=False), engine=engine)
    alone = pl.concat([rows_of(private, frame[[row]], engine=engine) for row in range(frame.height)])
    assert together.sort("x", maintain_order=True).equals(alone)


def test_unpivot_is_that_of_plain_python(engine):
    frame = pl.DataFrame({"p": [1, 1, None], "a": [1, None, 3], "b": [4, 5, 6], "d": ["x", "y", "z"]})
    private = frame.dp.protect("p")
    expected = Counter((row["p"], row["d"], name, row[name]) for row in frame.rows(named=True) for name in ("a", "b"))
    for made in (private.unpivot(["a", "b"], index="d"), private.unpivot(cs.integer() - cs.by_name("p"), index="d")):
        found = rows_of(made, frame, engine=engine)
        assert found.columns == made.columns == ["p", "d", "variable", "value"]
        assert Counter(found.rows()) == expected
    named = rows_of(private.unpivot(index=["p", "d"], variable_name="what", value_name="n"), frame, engine=engine)
    assert named.columns == ["p", "d", "what", "n"]
    assert Counter(named.rows()) == expected
    assert rows_of(private.unpivot(["a"]), frame, engine=engine).columns == ["p", "variable", "value"]
    # A new column may be named like one that goes.
    same = private.unpivot(["a", "b"], index="d", variable_name="b", value_name="a")
    read = same.select("a", "d")._pipeline.proved(frame.schema).rows(frame.lazy()).collect(engine=engine)
    assert Counter(read.select("p", "d", "a").rows()) == Counter(
        (p, d, value) for p, d, _, value in expected.elements()
    )


@pytest.mark.parametrize(
    "dtype",
    [pl.Float32, pl.String, pl.Boolean, pl.Date, pl.Categorical, pl.Enum(["a", "b"]), pl.List(pl.Int64)],
    ids=str,
)
def test_columns_of_every_type_each_row_alone_and_all_together(dtype, engine):
    values = extremes(dtype)
    frame = pl.DataFrame({"p": [0] * len(values), "x": range(len(values)), "a": values, "b": values.reverse()})
    private = frame.dp.protect("p").unpivot(["a", "b"], index="x")
    together = rows_of(private, pl.concat([frame[1:], frame[:1]], rechunk=False), engine=engine)
    alone = pl.concat([rows_of(private, frame[[row]], engine=engine) for row in range(frame.height)])
    assert together.sort("x", "variable").equals(alone.sort("x", "variable"))
    assert together.schema["value"] == values.dtype


def test_a_whole_release_of_such_steps():
    private = LISTS.dp.protect("p", max_rows=10).explode("l").drop("a").unpivot(["l", "x"])
    query = private.agg(n=dpp.len(epsilon=10**6), people=dpp.n_people(epsilon=10**6))
    assert query.release().rows() == [(10, 3)]


@pytest.mark.parametrize(
    "types",
    [
        [pl.Enum([f"{n}" for n in range(100)] + [last]) for last in "ab"],
        [pl.Categorical(pl.Categories(f"unpivot {n}")) for n in range(2)],
        [pl.Datetime("us"), pl.Datetime("us", "UTC")],
        [pl.Decimal(10, 2), pl.Decimal(10, 3)],
    ],
    ids=["enums", "categories", "zones", "scales"],
)
def test_types_that_look_alike_are_not_one_type(types):
    frame = pl.DataFrame({"p": [1], "a": [None], "b": [None]}, {"p": pl.Int64, "a": types[0], "b": types[1]})
    with pytest.raises(TypeError, match="must be of one type, got columns of"):
        frame.dp.protect("p").unpivot(["a", "b"])


def test_what_is_refused():
    private = LISTS.dp.protect("p")
    for call, error, match in [
        (lambda: LISTS.dp.protect(None).explode("l"), ValueError, "explode: there must be a privacy unit"),
        (lambda: LISTS.dp.protect(None).unpivot("x"), ValueError, "unpivot: there must be a privacy unit"),
        (lambda: private.explode(["l", "a"]), ValueError, r"one column must be named, got \['l', 'a'\]: of several"),
        (lambda: private.explode("x"), TypeError, "'x' must be one of lists or arrays, got one of the type Int64"),
        (lambda: private.explode("p"), TypeError, "'p' must be one of lists or arrays, got the privacy unit"),
        (lambda: private.explode("l", keep_nulls=1), TypeError, "must be True or False, got 1"),
        (lambda: private.unpivot(["l", "x"]), TypeError, r"must be of one type, got columns of Int64, List\(Int64\)"),
        (lambda: private.unpivot([]), TypeError, "must be of one type, got no column"),
        (lambda: private.unpivot(["p", "x"]), ValueError, "unpivot: the privacy unit 'p' must stay as it is"),
        (lambda: private.unpivot("x", value_name="p"), ValueError, "must be different, got"),
        (lambda: private.unpivot("x", variable_name="value"), ValueError, "must be different, got"),
        (lambda: private.unpivot("x", index="l", variable_name="l"), ValueError, "must be different, got"),
        (lambda: private.unpivot("x", variable_name=1), TypeError, "must be names, got 1"),
    ]:
        with pytest.raises(error, match=match):
            call()
