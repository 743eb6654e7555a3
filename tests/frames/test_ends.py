"""Ends of ranges that follow from a release without any."""

from decimal import Decimal
from fractions import Fraction

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import dp_polars as dpp
from dp_polars._release.request import with_ends

ROWS = pl.DataFrame(
    {
        "p": [i // 2 for i in range(400)],
        "ward": ["A", "B"] * 200,
        "x": [i % 50 for i in range(400)],
        "yes": [i % 3 == 0 for i in range(400)],
        "f": [i / 7 for i in range(400)],
        "m": pl.Series([Decimal(i) / 4 for i in range(400)], dtype=pl.Decimal(10, 2)),
    }
)
X, M = pl.col("x"), pl.col("m")


@pytest.mark.parametrize("loss", [{"epsilon": 0.1}, {"rho": Fraction(1, 300)}], ids=str)
def test_ends_are_those_of_a_release_with_ranges(tmp_path, loss, relation):
    asked = {
        "people": dpp.n_people(**loss), "rows": dpp.len(**loss), "values": X.dp.count(**loss),
        "sum": X.dp.sum(-3, 50, **loss), "fives": X.dp.sum(0, 50, step=5, **loss),
        "tenths": X.dp.sum(0, 50, step=Decimal("0.1"), **loss), "halves": X.dp.sum(0, 50, step=0.5, **loss),
        "yes": pl.col("yes").dp.sum(0, 1, **loss), "floats": pl.col("f").dp.sum(0, 50, step=Fraction(1, 3), **loss),
        "money": M.dp.sum(0, 100, **loss), "quarters": M.dp.sum(0, 100, step=Decimal("0.25"), **loss),
        "person": M.dp.sum(0, 100, per_person=(0, 150), **loss),
    }  # fmt: skip
    budget = dpp.Budget(**{next(iter(loss)): 100}, path=tmp_path / "ledger.db")
    protected = ROWS.dp.protect("p", max_rows=2, budget=budget, dataset="rows", neighboring_relation=relation)
    query = protected.group_by({"ward": ["A", "B", "C"]}).agg(**asked, mean=X.dp.mean(0, 50, **loss))
    released, ranged = query.release(), query.release(ranges=True)
    ends = [f"{name}_{end}" for name in asked for end in ("low", "high")]
    found = with_ends(released, query.asks)
    assert found.columns == [*released.columns, *ends]
    assert_frame_equal(found.select(ends), ranged.select(pl.col(ends).cast(pl.Float64)))
    assert_frame_equal(found.select(released.columns), released)
    assert with_ends(ranged, query.asks) is not ranged
    assert_frame_equal(with_ends(ranged, query.asks), ranged)  # it has its ends
    hidden = with_ends(query.release(min_people=10**6), query.asks)
    assert hidden["sum_low"].null_count() == hidden["money_high"].null_count() == 3
