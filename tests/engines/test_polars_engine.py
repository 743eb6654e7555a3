"""Histograms of rows and of people, against counting by hand; draws from them."""

import math
from datetime import datetime

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal

import dp_polars as dpp
from dp_polars._engines.polars import engine as polars_engine
from dp_polars._engines.polars.engine import PolarsEngine, count
from dp_polars._engines.polars.people import AlikeSpecs
from dp_polars._engines.polars.rows import in_parts
from dp_polars._mechanisms import drawing
from dp_polars._mechanisms.drawing import draw_groups
from dp_polars._mechanisms.person_weights import UNIT
from dp_polars._release.protection import Layout, Limits
from tests.engines.conformance import CODES, FLAVOURS, GROUPS, visits
from tests.helpers import by_hand
from tests.helpers.runs import histograms_by
from tests.helpers.specs import as_frame, as_histogram, histogram, spec_of
from tests.registry import ENGINES, KEYS
from tests.statistical.goodness import fits


def mode(candidates, epsilon=1):
    return dpp.mode("x", candidates, epsilon=epsilon).query


def median(candidates, epsilon=1):
    return dpp.median("x", candidates, epsilon=epsilon).query


def only(frame, unit, keys, column, query, limits=None, *, people=False, **options):
    """The histogram of one spec."""
    spec = spec_of(frame, column, query, limits, people=people)
    (counted,) = count(frame.lazy(), unit and (unit,), keys, [spec], **options)
    assert len(counted.sizes) == (1 if keys is None else len(keys))
    return as_frame(counted)


def by_reference(frame, keys, column, code_of, **how):
    """The same histogram in plain Python."""
    found = by_hand.histograms(frame.to_dicts(), None if keys is None else keys.to_dicts(), column, code_of, **how)
    return histogram({(i, code): n for i, own in enumerate(found.values()) for code, n in own.items()})


@pytest.fixture
def rows():
    """Rows with nulls, unlisted keys and values that are no candidate; several chunks."""
    return pl.concat([visits()[i : i + 90] for i in range(0, 600, 90)], rechunk=False)


BATCHES = {"engine._MOST_GROUPED": 0}
HELD = {**BATCHES, "engine._MOST_COUNTERS": 0, "engine._SLICE_ROWS": 50, "engine._MOST_ROWS": 50}
WAYS = {
    "grouped": {},
    "arrays": BATCHES,
    "small batches": {**BATCHES, "engine._SLICE_ROWS": 50, "engine._MOST_ROWS": 50},
    "joined keys": {"engine._MOST_COMBINATIONS": 0},
    "hashed, or held": {"engine._MOST_COUNTERS": 0},
    "held of joined keys": {"engine._MOST_COUNTERS": 0, "engine._MOST_COMBINATIONS": 0},
    "held in small batches": HELD,
    "too many to hold": {**HELD, "held._MOST_HELD": 120},
}


@pytest.fixture(params=WAYS)
def way(request, monkeypatch):
    """Each way in which rows are counted."""
    for name, value in WAYS[request.param].items():
        monkeypatch.setattr(f"dp_polars._engines.polars.{name}", value)


FLAVOUR = "flavour", mode(FLAVOURS)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("keys", [GROUPS, None], ids=["grouped", "whole"])
@pytest.mark.parametrize("unit", [None, "p"])
@pytest.mark.parametrize("asked", [FLAVOUR, ("price", median(range(11)))], ids=lambda asked: asked[0])
def test_rows_are_counted_exactly_where_nothing_is_bounded(rows, keys, asked, unit, engine):
    expected = by_reference(rows, keys, asked[0], CODES[asked[0]], unit=unit)
    assert_frame_equal(only(rows, unit, keys, *asked, engine=engine), expected)


def test_people_whose_hash_is_equal_are_still_two(rows, monkeypatch):
    expected = by_reference(rows, GROUPS, "flavour", CODES["flavour"], unit="p", people=True)
    monkeypatch.setattr(pl.Expr, "hash", lambda self, seed=0: self.is_null().cast(pl.UInt64))
    assert_frame_equal(only(rows, "p", GROUPS, *FLAVOUR, people=True, partitions=3), expected)


def test_people_are_divided_by_the_texts_of_their_categories(monkeypatch):
    """In the next scan the number of a category may be another one."""
    monkeypatch.setattr("os.urandom", bytes)
    people = [f"person {i}" for i in range(50)]
    divided = []
    for order in (people, people[::-1]):
        categories = pl.Series(order, dtype=pl.Categorical(pl.Categories.random()))
        rows = pl.LazyFrame({"p": pl.Series(people, dtype=categories.dtype)})
        parts = in_parts(rows, ("p",), 3)
        divided.append([part.collect()["p"].cast(pl.String).to_list() for part in parts])
    assert divided[0] == divided[1]
    assert all(divided[0])


def test_the_cell_of_more_than_32_bits_has_its_group():
    frame = pl.DataFrame({"code": [2**31 - 1], "group": [3]}, schema={"code": pl.UInt32, "group": pl.UInt8})
    kind = AlikeSpecs((0,), (), Layout(group_bits=2, code_bits=31), "code", {})
    assert frame.select(kind.cell).item() == 2**33 - 1


@pytest.mark.parametrize("unit", [None, "p"])
def test_cells_of_more_than_32_bits_keep_their_groups(unit):
    frame = pl.DataFrame({"p": range(4), "k": range(4), "x": [0, 2**31 - 1, 5, 2**30]})
    fine, limits = median(dpp.grid(0, 2**31 - 1, step=1)), Limits(rows=1) if unit else Limits()
    found = only(frame, unit, pl.DataFrame({"k": range(4)}), "x", fine, limits)
    assert found.rows() == [(group, code, 1) for group, code in enumerate(frame["x"])]


def test_limits_of_one_spec_are_not_those_of_another():
    frame = pl.DataFrame({"p": [1] * 5 + [2] * 5, "x": [0] * 10})
    limits = Limits(rows=1), Limits(rows=3), Limits(rows=4)
    specs = [spec_of(frame, "x", median([0, 1]), limit) for limit in limits]
    found = count(frame.lazy(), ("p",), None, specs)
    assert [int(one.weights.sum()) for one in found] == [2, 6, 8]


@pytest.mark.parametrize("engine", ENGINES)
def test_names_of_columns_can_not_be_in_the_way(engine):
    names = ["code", "cell", "group", "key 0", "person", "count", "len", ""]
    frame = pl.DataFrame({name: [i, i, i + 1] for i, name in enumerate(names)})
    keys = frame.select("group", "person", "code").unique().sort("code")
    asked = pl.col("key 0") + pl.col("cell"), mode([6, 4]), Limits(groups=2)
    found = only(frame, "count", keys, *asked, people=True, engine=engine, partitions=2)
    assert_frame_equal(found, histogram({(0, 1): 1, (1, 0): 1}))


def test_wide_cells_leave_room_for_few_people_at_a_time():
    grid = dpp.grid(0, 2**53 - 1, step=1)
    rows = [(p, k, 2**53 - 1 - p % 3) for p in range(300) for k in (0, 1023, 1023)]
    frame = pl.DataFrame(rows, schema=["p", "k", "x"], orient="row")
    found = only(frame, "p", pl.DataFrame({"k": range(1024)}), "x", median(grid), people=True)
    assert found.rows() == [(k, 2**53 - 1 - i, 100) for k in (0, 1023) for i in (2, 1, 0)]


def test_groups_and_candidates_beyond_64_bits_are_refused_before_the_charge():
    budget = dpp.Budget(epsilon=1)
    rows, keys = pl.LazyFrame({"k": [1], "x": [1]}), {"k": range(3000)}
    vast = dpp.median("x", dpp.grid(0, 2**53 - 1, step=1), epsilon=1)
    message = r"^Output 'x': groups times candidates must fit into 64 bits, got 3,000 groups .*\n\nHint: take fewer"
    with pytest.raises(ValueError, match=message):
        rows.dp.protect(None, budget=budget).group_by(keys).agg(vast)
    with pytest.raises(ValueError, match=message):
        dpp.protect(None, budget=budget).group_by(keys).agg(vast).release(rows)
    assert budget.spent == 0


def test_one_group_with_every_bit_in_the_code():
    grid = dpp.grid(0, 2**32 - 1, step=1)
    frame = pl.DataFrame({"x": [2**32 - 1, 0], "p": [1, 1], "k": [0, 0]})
    for keys in (None, pl.DataFrame({"k": [0]})):
        assert only(frame, "p", keys, "x", median(grid), Limits(rows=2)).rows() == [(0, 0, 1), (0, 2**32 - 1, 1)]


@pytest.mark.parametrize("engine", ENGINES)
def test_files_are_scanned_lazily_in_several_parts(rows, engine, tmp_path):
    rows.write_parquet(tmp_path / "visits.parquet", row_group_size=70)
    scan = pl.scan_parquet(tmp_path / "visits.parquet").filter(pl.col("price") > 3)
    rest = rows.filter(pl.col("price") > 3)
    expected = by_reference(rest, GROUPS, "flavour", CODES["flavour"], unit="p", people=True)
    found = only(scan, "p", GROUPS, *FLAVOUR, Limits(groups=9), people=True, engine=engine, partitions=4)
    assert_frame_equal(found, expected)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("unit", [None, "p"])
def test_no_row_decides_whether_others_of_its_row_group_are_read(unit, engine, tmp_path):
    """A filter that overflows on the largest value of a row group; several histograms are counted by one release."""
    frame = pl.DataFrame({"p": [1, 2, 3, 4], "x": [1, 2**62, 3, 4]})
    frame.write_parquet(tmp_path / "x.parquet", row_group_size=2)
    rows = pl.scan_parquet(tmp_path / "x.parquet").filter(pl.col("x") * 2 > 0)
    limits = Limits() if unit is None else Limits(rows=1)
    specs = [spec_of(rows, "x", query, limits) for query in (mode([1, 3, 4]), median([1, 2, 3, 4]))]
    for found in count(rows, unit and (unit,), None, specs, engine=engine):
        assert found.weights.tolist() == [1, 1, 1]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("before", [True, False])
def test_no_row_decides_whether_others_are_read_where_a_scan_stands_twice(before, engine, tmp_path):
    """The same filtered rows on both sides of a join: Polars makes one scan of them, which must have no filter."""
    frame, large = pl.DataFrame({"p": [1, 2, 3, 4], "x": [1, 2**62, 3, 4]}), pl.col("x") * 2 > 0
    frame.write_parquet(tmp_path / "x.parquet", row_group_size=2)
    scan = pl.scan_parquet(tmp_path / "x.parquet")
    some = scan.filter(large) if before else scan
    rows = some.join(some, on="p").join(some, on="p", suffix="_again").dp.protect("p", max_rows=1)
    query = (rows if before else rows.filter(large)).agg(n=dpp.len(epsilon=1000))
    assert query.release(engine=engine).item() == 3


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("unit", [None, "p"])
def test_all_histograms_come_from_one_scan(rows, unit, partitions, engine):
    """Six outputs of three columns: every row is read once, or once for each part of the people."""
    read = []
    noted = rows.lazy().with_columns(
        pl.col("ward").map_batches(lambda s: read.append(len(s)) or s, return_dtype=pl.String, is_elementwise=True)
    )
    limits, free = Limits() if unit is None else Limits(rows=2), Limits()
    asked = [("price", dpp.quantile("x", a, range(11), epsilon=1).query, limits) for a in (0.2, 0.5, 0.9)]
    asked += [(*FLAVOUR, free), ("year", mode(range(2019, 2030)), free)]
    asked.append(("price", dpp.count("x", epsilon=1).query, limits))  # numbers are grouped in a plan of their own
    specs = [spec_of(rows, *output, people=output[:2] == FLAVOUR and unit is not None) for output in asked]
    counted = count(noted, unit and (unit,), GROUPS, specs, engine=engine, partitions=partitions)
    # The mode of years needs no people, and is counted with the others all the same.
    assert sum(read) == len(rows) * (1 if unit is None else partitions)
    for found, spec, (column, query, *_) in zip(counted, specs, asked, strict=True):
        if spec.limits == free:
            assert_frame_equal(as_frame(found), only(rows, unit, GROUPS, column, query, people=spec.people))


TEXTS = ["b", "a", "", "ü\0x"]
KINDS = [
    *((dtype, TEXTS) for dtype in (pl.String(), pl.Categorical(), pl.Enum(["z", "a", "b", "y", "", "ü\0x"]))),
    *(KEYS[name] for name in ("Boolean", "Int8", "Date", "Decimal")),
    (pl.UInt64(), [2**64 - 1, 0, 2**63]),
    (pl.Datetime("ns"), [datetime(2026, 1, 2, 3), datetime(1901, 1, 1)]),
]


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(("dtype", "values"), KINDS, ids=str)
def test_keys_of_every_type_find_their_groups(dtype, values):
    """Alone and beside another key; some are not listed, some rows have none."""
    rng = np.random.default_rng(7)
    known = pl.Series([*values, None], dtype=dtype)
    frame = pl.DataFrame({"k": known.gather(rng.integers(0, len(known), 500)), "j": rng.integers(0, 4, 500), "x": 1})
    own = pl.String if isinstance(dtype, pl.Categorical) else dtype
    for listed in (values[:-1][::-1], values):
        alone = pl.DataFrame({"k": pl.Series(listed, dtype=own)})
        both = alone.join(pl.DataFrame({"j": [3, 1, 7]}, schema={"j": frame["j"].dtype}), how="cross").reverse()
        for keys in (alone, both[1:]):
            expected = by_reference(frame, keys, "x", int)
            assert_frame_equal(only(frame, None, keys, "x", mode([0, 1, 2])), expected)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("largest", [1, 2**20 + 1, 2**29])
def test_weights_add_up_exactly(largest):
    """Of either sign, up to the largest that there are."""
    rng = np.random.default_rng(3)
    values = rng.integers(-largest, largest, 1000, endpoint=True)
    values[-3:] = [-largest, largest, -1]
    group = np.arange(1000) % 300
    frame = pl.DataFrame({"g": group, "x": values})
    query = dpp.sum("x", -largest, largest, epsilon=1).query
    keys = pl.DataFrame({"g": [7, 299, *range(300, 310), 0]})
    found = only(frame, None, keys, "x", query)
    expected = {(i, 0): int(sum(map(int, values[group == g]))) for i, (g,) in enumerate(keys.rows()) if g < 300}
    assert_frame_equal(found, histogram(expected))


def test_zeros_of_other_signs_share_nothing():
    """The angle of (0, -0.0) is π, that of (0, 0.0) is 0; to Polars' own `meta.eq` the expressions are the same."""
    frame = pl.DataFrame({"x": [0.0]})
    query = dpp.median("x", [0.0, 3.0], epsilon=1).query
    one, two = (spec_of(frame, pl.arctan2("x", pl.lit(zero)), query) for zero in (0.0, -0.0))
    assert frame.select(one.columns[0]).item() != frame.select(two.columns[0]).item()
    assert not one.counts_like(two)
    assert one.counts_like(spec_of(frame, pl.arctan2("x", pl.lit(0.0)).alias("y"), query))


def test_outputs_that_keep_other_rows_of_a_person_share_nothing():
    """The same codes, but of people, of rows, and in fewer groups than the claim of the others pays for."""
    asked = [
        pl.col("x").dp.mode([0, 1], epsilon=1).alias("people"),
        pl.col("x").dp.mode([0, 1], counts="rows", epsilon=1).alias("rows"),
    ]
    rows = pl.LazyFrame({"p": [1] * 9, "g": [0] * 9, "x": [0] * 9})
    query = dpp.protect("p", max_groups=1, max_rows_per_group=3).group_by({"g": [0, 1]}).agg(*asked)
    engine = PolarsEngine.of(rows)
    work = query._request.bind(engine)
    assert [output.specs for output in work.outputs] == [(0,), (1,)]
    assert [histogram.weights.tolist() for histogram in engine.prepare_histograms(work)()] == [[1], [3]]


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("unit", [None, "p"])
@pytest.mark.parametrize("keys", [None, pl.DataFrame({"g": [0, 1]})])
@pytest.mark.parametrize("beside", [False, True])
def test_rows_without_a_value_are_not_counted(unit, keys, beside):
    """Null and NaN; alone, and beside a choice, from whose plan the totals then come."""
    frame = pl.DataFrame({"p": range(8), "g": [0, 0, 0, 1] * 2, "x": [1.0, None, math.nan, 2.0] * 2})
    asked = [dpp.count("x", epsilon=1), *([dpp.median("x", [1, 2], epsilon=1).alias("m")] if beside else [])]
    bounds = {} if unit is None else {"max_rows": 1}
    protected = dpp.protect(unit, **bounds)
    query = (protected if keys is None else protected.group_by(keys)).agg(*asked)
    engine = PolarsEngine.of(frame.lazy())
    found, *_ = histograms_by(engine, query)
    of_row = 1 if unit is None else UNIT  # people may count in part
    assert found.weights.tolist() == [of_row * rows for rows in ([4] if keys is None else [2, 2])]


def test_tables_that_are_joined_are_counted_without_running_the_join(tmp_path):
    items = pl.DataFrame({"k": [i // 2 for i in range(200)], "x": range(200)})
    items.write_parquet(tmp_path / "items.parquet")
    items.write_csv(tmp_path / "items.csv")
    orders, scan = pl.LazyFrame({"p": range(100), "k": range(100)}), pl.scan_parquet(tmp_path / "items.parquet")
    counted = polars_engine.rows_of_joined
    assert counted(orders.join(scan, on="k")) == counted(orders.join(scan.filter(pl.col("x") > 9), on="k")) == 300
    assert counted(scan.filter(pl.col("x") > 9)) is None
    assert counted(orders.join(pl.scan_csv(tmp_path / "items.csv"), on="k")) is None
    (tmp_path / "items.parquet").unlink()
    assert counted(orders.join(pl.scan_parquet(tmp_path / "items.parquet", schema=items.schema), on="k")) is None


def test_the_number_of_parts_follows_from_the_number_of_rows(monkeypatch):
    # A mode of a few texts has codes of one byte, a quantile of a year, too, and a sum weights of four.
    monkeypatch.setattr(polars_engine, "_PARTITION_BYTES", 180 * (polars_engine._BYTES_OF_ROW + 1))
    parts, original = [], polars_engine.in_parts

    def partitions(rows, unit, number):
        parts.append(number)
        return original(rows, unit, number)

    monkeypatch.setattr(polars_engine, "in_parts", partitions)
    top, frame = dpp.mode("flavour", FLAVOURS, epsilon=1), visits()

    def release(frame, *outputs, **options):
        frame.dp.protect("p", max_rows=3).group_by(GROUPS).agg(*outputs).release(**options)

    for rows in (600, 180, 181, 0):
        release(frame[:rows], top)
    release(frame, top, partitions=2)
    others = [dpp.quantile("year", a, range(2000, 2030), epsilon=1).alias(f"{a}") for a in (0.2, 0.3, 0.5)]
    release(frame, top, *others)  # one more byte, for all three
    release(frame, top, *others, dpp.sum("year", 0, 3_000, epsilon=1).alias("sum"))  # five more
    assert parts == [4, 1, 2, 1, 2, 4, 5]


# Drawing


@pytest.mark.parametrize("slices", [1, 3, 1000])
def test_at_a_huge_epsilon_the_draw_is_the_true_answer_of_every_group(slices, monkeypatch):
    monkeypatch.setattr(drawing, "_GROUPS_ROWS", slices)
    monkeypatch.setattr(drawing, "_GROUPS", slices)
    rng = np.random.default_rng(2)
    counts = {
        (group, code): int(rng.integers(1, 10**6)) for group in range(0, 60, 2) for code in rng.permutation(20)[:7]
    }
    counts |= {(61, 3): 1, (61, 19): 1, (61, 4): 1}
    found = draw_groups(mode(range(20), 10**9).draw(), as_histogram(histogram(counts), 64))
    medians = draw_groups(median(range(20), 10**9).draw(), as_histogram(histogram(counts), 64))
    assert found.shape == medians.shape == (64,)
    for group in range(0, 60, 2):
        own = {code: n for (g, code), n in counts.items() if g == group}
        assert found[group] == max(own, key=own.get)
        rows = np.repeat(sorted(own), [own[code] for code in sorted(own)])
        assert medians[group] == rows[(len(rows) + 1) // 2 - 1]
    assert found[61] in (3, 4, 19)
    assert medians[61] == 4


@pytest.mark.parametrize("query", [mode(range(7), 10**6), median(range(7), 10**6)])
def test_groups_without_rows_are_drawn_uniformly(query, monkeypatch):
    monkeypatch.setattr(drawing, "_GROUPS", 1500)
    counts = histogram({(5, 2): 3, (3000, 1): 8})
    found = draw_groups(query.draw(), as_histogram(counts, 7000))
    assert (found[5], found[3000]) == (2, 1)
    assert fits(np.bincount(np.delete(found, [5, 3000]), minlength=7), [1 / 7] * 7)


@pytest.mark.parametrize("most", [10**6, 3], ids=["held", "added up"])
def test_quantiles_of_a_fine_grid_are_drawn_from_rows(most, monkeypatch):
    """Of groups with rows, without any, and of rows without a value; also where these are too many to hold."""
    monkeypatch.setattr("dp_polars._engines.polars.held._MOST_HELD", most)
    drawn = []
    selected = drawing._draw_selected
    monkeypatch.setattr(drawing, "_draw_selected", lambda *given: drawn.append(1) or selected(*given))
    frame = pl.DataFrame({"k": [0, 2, 2, 2, 3, 9], "x": [7, 5, 10**8, 4, None, 1]})
    grid = dpp.grid(0, 10**9, step=1)
    asked = [dpp.quantile("x", alpha, grid, epsilon=10**6).alias(f"{alpha}") for alpha in (0.1, 0.5)]
    several = dpp.quantile("x", [0.5, 0.9], grid, epsilon=10**6).alias("both")
    ends = dpp.median("x", grid, confidence=0.95, epsilon=10**6).alias("ends")
    found = frame.lazy().dp.protect(None).group_by({"k": range(4)}).agg(*asked, several, ends).release(intervals=True)
    assert found["0.1"].to_list()[0::2] == [7, 4]
    assert found["0.5"].to_list()[0::2] == [7, 5]
    assert found["both"].to_list()[2] == [5, 10**8]
    assert found["ends"].to_list()[0::2] == [7, 5]
    assert ((found["ends_low"] <= found["ends"]) & (found["ends"] <= found["ends_high"])).all()
    assert found["ends_low"][2] == 4
    assert len(drawn) == (5 if most > 3 else 0)  # an interval has three draws


def test_a_draw_of_no_group_is_empty():
    assert draw_groups(mode(["a"]).draw(), as_histogram(histogram({}), 0)).tolist() == []


@pytest.mark.parametrize("bits", [8, 40, 64])
@pytest.mark.parametrize("most", [1, 300, 2**40])
def test_histograms_are_sorted_whether_or_not_a_cell_and_its_count_fit_into_one_word(bits, most):
    rng = np.random.default_rng(bits)
    cells = np.unique(rng.integers(0, 2**bits - 1, 1000, dtype=np.uint64, endpoint=True))
    counts = rng.integers(1, most, len(cells), dtype=np.uint64, endpoint=True)
    order = rng.permutation(len(cells))
    frame = pl.DataFrame({"cell": cells[order], "count": counts[order]})
    found, of_them = polars_engine._sorted(frame, Layout(0, bits))
    assert found.tolist() == cells.tolist()
    assert of_them.tolist() == counts.tolist()


def test_negative_sums_of_few_cells_among_many_are_sorted():
    counted = pl.DataFrame({"cell": pl.Series([900, 2, 7], dtype=pl.UInt32), "count": [5, -3, 0]})
    cells, sums = polars_engine._sorted(counted, Layout(10, 0))
    assert (cells.tolist(), sums.tolist()) == ([2, 7, 900], [-3, 0, 5])


@pytest.mark.parametrize("first", [-(2**63), 0, 2**63 + 1, 2**64 - 9])
def test_numbers_of_people_whose_labels_are_close_together(first):
    """Wherever they lie: no error, which would tell of them, and nobody is taken for another one."""
    dtype = pl.Int64 if first < 0 else pl.UInt64
    frame = pl.DataFrame({"p": pl.Series([first + i % 7 for i in range(42)], dtype=dtype), "x": [1] * 42})
    query = dpp.protect("p", max_rows=3).agg(n=dpp.count("x", epsilon=10**9), people=dpp.n_people(epsilon=10**9))
    assert query.release(frame).rows() == [(21, 7)]
