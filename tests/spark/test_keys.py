"""Selected keys, released from a Spark cluster."""

from fractions import Fraction

import numpy as np
import polars as pl
import pytest

import dp_polars as dpp
from dp_polars._mechanisms.partition_selection import PartitionSelection
from dp_polars._mechanisms.renyi_selection import RenyiSelection
from tests.spark.tools import MARKS, need_spark, on_both, partitions_of, to_polars, to_spark
from tests.statistical.goodness import fits

need_spark()

import dp_polars.spark

pytestmark = MARKS


def visits(towns, each):
    """Rows of people who live in as many towns, each of them in one."""
    people = range(towns * each)
    return pl.DataFrame(
        {"p": people, "town": [f"town {p % towns:05}" for p in people], "year": [p % 3 for p in people]}
    )


@on_both
@pytest.mark.parametrize("to_path", [False, True])
@pytest.mark.parametrize("loss", [{"epsilon": 2}, {"rho": 0.5}, {"rho": 0.5, "with_counts": True}])
def test_shown_keys_lie_sorted_in_one_partition(spark, tmp_path, loss, to_path):
    """Where they lay would tell of those that are not shown."""
    alone = visits(500, 1).with_columns(pl.col("p") + 10**6, town=pl.format("alone in {}", "town"))
    rows = pl.concat([visits(50, 60), alone])
    budget = dpp.Budget(epsilon=2, delta=2e-6) if "epsilon" in loss else dpp.Budget(rho=2, delta=1e-6)
    query = dpp.protect("p", max_groups=1, budget=budget).keys("town", delta=1e-6, **loss)
    path = tmp_path / "towns" if to_path else None
    released = dpp.spark.release(query, to_spark(spark, rows), path=path)
    assert partitions_of(released) == 1
    if to_path:
        assert len(list(path.glob("*.parquet"))) == 1
        assert not any(b"alone" in file.read_bytes() for file in path.rglob("*") if file.is_file())
    towns = to_polars(released)
    assert towns["town"].to_list() == sorted(f"town {i:05}" for i in range(50))
    assert towns.columns == ["town", "count"][: towns.width]
    assert budget.remaining_delta == 0
    again = dpp.protect("p", max_groups=1).group_by(towns.select("town")).agg(dpp.n_people(epsilon=100))
    counted = to_polars(dpp.spark.release(again, to_spark(spark, rows)))
    assert sorted(counted["town"]) == towns["town"].to_list()


@pytest.mark.parametrize(
    ("unit", "selection"),
    [
        ("epsilon", PartitionSelection(Fraction(1), Fraction(1, 200))),
        ("rho", RenyiSelection(Fraction(1), Fraction(1, 200))),
    ],
)
def test_keys_are_shown_with_their_probability(spark, unit, selection):
    """Of many keys of as many people each; at 0.7 and 1.3 of the loss it must be found out."""
    towns, each = 20_000, selection.people_for(0.3)
    frame = to_spark(spark, visits(towns, each))
    chance = float(selection.chances(np.array([each]))[0])
    for factor in (1, 0.7, 1.3):
        query = dpp.protect("p", max_groups=1).keys("town", **{unit: factor}, delta=0.005)
        shown = dpp.spark.release(query, frame).count()
        assert fits([shown, towns - shown], [chance, 1 - chance]) == (factor == 1)
