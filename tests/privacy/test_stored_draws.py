"""Queries that follow from stored draws: all that is ever drawn is charged, and they depend on nothing else."""

from fractions import Fraction

import numpy as np
import polars as pl
import pytest

import dp_polars as dpp
from tests.helpers.noised import record
from tests.registry import RELATIONS

X = pl.col("x")
ROWS = pl.DataFrame(
    {
        "person": ["a", "a", "b", "b", "c", "d", "d", "e"],
        "group": [0, 1, 0, 0, 1, 1, 0, 0],
        "x": [-4, 3, 3, 3, -4, 1, 1, None],
    }
)
HALF = Fraction(1, 2)


def report(low, high, loss):
    return {
        "rows": X.dp.count(**loss),
        "total": X.dp.sum(low, high, step=1, **loss),
        "mean": X.dp.mean(low, high, step=1, **loss),
        "spread": X.dp.var(low, high, **loss),
        "people": dpp.n_people(**loss),
    }


def loss_of(drawn, others, unit):
    """The exact loss of all draws for these two tables."""
    moves = [(one.values - two.values) * float(one.claim.rate) for one, two in zip(drawn, others, strict=True)]
    moved = np.abs(np.concatenate(moves))
    return moved.sum() if unit == "epsilon" else (moved**2).sum() / 2


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("unit", ["epsilon", "rho"])
@pytest.mark.parametrize("ends", [(-4, 3), (0, 3), (-3, 3)], ids=str)
def test_what_later_queries_show_was_charged_once(tmp_path, monkeypatch, ends, unit, relation):
    """For all neighbours of a small table: the loss of every draw, of both queries together, is at most the charge."""
    noised, loss = record(monkeypatch), {unit: HALF}
    options = {"max_groups": 2, "max_rows_per_group": 2, "neighboring_relation": relation, "dataset": "visits"}

    def both(rows, name):
        """What gets noise in a report and in all later queries, and what these show."""
        ROWS.write_parquet(tmp_path / f"{name}.parquet")
        budget = dpp.Budget(**{unit: 50}, path=tmp_path / f"{name}.db")
        del noised[:]
        rows.write_parquet(tmp_path / f"{name}.parquet")

        def asked(**outputs):
            table = pl.scan_parquet(tmp_path / f"{name}.parquet")
            frame = table.dp.protect("person", budget=budget, **options)
            return frame.group_by({"group": [0, 1]}).agg(**outputs)

        outputs = report(*ends, loss)
        first, shown = asked(**outputs).release(), []
        drawn = [*noised]
        # Other rows are there now: the ledger alone answers.
        ROWS.clear().write_parquet(tmp_path / f"{name}.parquet")
        for output, ask in outputs.items():
            with pytest.warns(dpp.CachedAnswerWarning):
                shown.append(asked(**{output: ask}).release())
            assert shown[-1].equals(first.select("group", output))
        smaller = X.dp.mean(*ends, step=1, **{unit: HALF / 4})
        with pytest.warns(dpp.CachedAnswerWarning):
            shown.append(asked(mean=smaller).release())
        assert len(noised) == len(drawn)
        return drawn, budget.spent, shown

    of_all, spent, _ = both(ROWS, "all")
    assert spent == 5 * HALF
    worst = 0.0
    for person in ROWS["person"].unique(maintain_order=True):
        others = ROWS.filter(pl.col("person") != person)
        if relation == "replace_one":
            comes = ROWS.filter(pl.col("person") == person).with_columns(x=-X, group=1 - pl.col("group"))
            others = others.vstack(comes)
        of_others, _, _ = both(others, f"without {person}")
        worst = max(worst, loss_of(of_all, of_others, unit))
    assert worst <= float(spent) * (1 + 1e-9)
    assert worst > float(spent) / 8  # it is no test of nothing: rows of these people move the draws


def test_a_second_draw_would_cost_more(tmp_path, monkeypatch):
    """The control: what is drawn anew for the later query is a loss of its own, and is charged."""
    noised = record(monkeypatch)
    budget = dpp.Budget(epsilon=50, path=tmp_path / "ledger.db")
    frame = ROWS.dp.protect("person", max_rows=2, budget=budget, dataset="visits")
    for _ in range(2):
        frame.agg(mean=X.dp.mean(-4, 3, step=1, epsilon=1)).release(ignore_cache=True)
    assert len(noised) == 4
    assert budget.spent == 2
