"""What one person moves in a cube: every way to fill small ones, and what is drawn for it."""

import itertools
from fractions import Fraction

import numpy as np
import polars as pl
import pytest

import dp_polars as dpp
from dp_polars._engines.polars.engine import PolarsEngine
from dp_polars._mechanisms import residuals
from dp_polars._release.release import prepare

DIMENSIONS = {"a": [0, 1], "b": [0, 1, 2]}
SHAPE = (2, 3)
TABLES = [("a", "b"), ("a",), ("b",), ()]
BOUNDS = [
    {"max_rows": 3},
    {"max_groups": 2, "max_rows_per_group": 2},
    {"max_groups": 3, "max_rows_per_group": 1},
    {"max_rows": 3, "max_rows_per_group": 2},
    {"max_groups": 1, "max_rows_per_group": 3},
]


def of_one_person(bounds):
    """Every number of rows in each cell that the bounds leave a person."""
    total = bounds.get("max_rows", 99)
    groups, each = bounds.get("max_groups", 6), bounds.get("max_rows_per_group", bounds.get("max_rows"))
    return [
        np.array(rows).reshape(SHAPE)
        for rows in itertools.product(range(each + 1), repeat=6)
        if sum(rows) <= total and sum(n > 0 for n in rows) <= groups
    ]


def changes(bounds, relation):
    people = of_one_person(bounds)
    return people if relation == "add_or_remove_one" else [b - a for a, b in itertools.product(people, repeat=2)]


def costs(query, change, unit):
    """What each histogram loses to a change of the cells, by the law of its noise."""
    for ask, axes in zip(query._asks, query._request.drawn, strict=True):
        moved = change.sum(axis=tuple({0, 1} - set(axes)))
        claim = ask.query.claim
        if unit == "epsilon":
            assert claim.mechanism == "discrete_laplace"
            yield claim.rate * int(abs(moved).sum())
        else:
            assert claim.mechanism == "discrete_gaussian"
            yield claim.rate**2 * int((moved**2).sum()) / 2


def check_shares(query, moves, unit, least):
    """All histograms lose the loss together, or nearly all of it; each by itself at least so large a part of its most.

    What each has most is more than its share where nobody has it in all.
    """
    found = [list(costs(query, change, unit)) for change in moves]
    shares, most = [ask.query.claim.loss.value for ask in query._asks], [max(own) for own in zip(*found, strict=True)]
    assert sum(shares) == query.loss.value
    (attained,) = {ask.query.claim._attained for ask in query._asks}
    assert all(share * least < each * attained <= share for share, each in zip(shares, most, strict=True)), most
    assert query.loss.value * least < max(map(sum, found)) <= query.loss.value
    return attained


@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
@pytest.mark.parametrize(("unit", "tables"), [("epsilon", None), ("rho", None), ("rho", TABLES), ("rho", TABLES[1:])])
def test_no_person_moves_a_histogram_by_more_than_its_share_and_one_by_nearly_all(bounds, relation, unit, tables):
    private = dpp.protect("p", **bounds, neighboring_relation=relation)
    query = private.cube(DIMENSIONS, counts="rows", tables=tables, **{unit: 2})
    # Of a dimension of three values, two spreads may have to share one: then a replacement moves it by less.
    least = Fraction(999, 1000) if relation == "add_or_remove_one" else Fraction(6, 10)
    attained = check_shares(query, changes(bounds, relation), unit, least)
    # Cells don't meet both in `a` and in `b`.
    if relation == "add_or_remove_one":
        assert (attained < 1) == (tables == TABLES[1:] and bounds in BOUNDS[1:4])


@pytest.mark.parametrize("sizes", [(2, 3, 2), (4, 4), (3, 1, 4), (2, 2, 2)])
def test_the_largest_squares_are_those_of_some_cells(sizes):
    """Against all ways to put three combinations, by random weights of all histograms."""
    rng = np.random.default_rng(7)
    cells = list(itertools.product(*map(range, sizes)))
    axes = [one for n in range(len(sizes) + 1) for one in itertools.combinations(range(len(sizes)), n)]
    for rows in ([2, 2, 1], [1, 1, 1], [3, 1], [4], [1, 1, 1, 1]):
        for _ in range(3):
            weights = {one: Fraction(int(rng.integers(0, 9)), 7) for one in axes}
            worst = 0
            for found in itertools.combinations(cells, len(rows)):
                for order in set(itertools.permutations(rows)):
                    sums = {}
                    for (one, weight), (cell, n) in itertools.product(weights.items(), zip(found, order, strict=True)):
                        sums.setdefault((one, tuple(cell[axis] for axis in one)), [weight, 0])[1] += n
                    worst = max(worst, sum(weight * n * n for weight, n in sums.values()))
            assert residuals.largest_squares(sizes, rows, weights) == worst
            with pytest.MonkeyPatch.context() as patch:  # too many to try: a bound
                patch.setattr(residuals, "_MOST_MEETING", 0)
                assert residuals.largest_squares(sizes, rows, weights) >= worst


def test_cubes_of_more_dimensions_cost_less_than_their_histograms():
    """Of all pairs or all triples of four dimensions, three cells of twenty rows: by how much the noise is smaller."""
    dimensions = {name: range(10) for name in "abcd"}
    private = dpp.protect("p", max_groups=3, max_rows_per_group=20)
    for number, factor in ((2, 0.82), (3, 0.71)):
        tables = list(itertools.combinations("abcd", number))
        query = private.cube(dimensions, counts="rows", tables=tables, rho=1)
        assert float(query._asks[0].query.claim._attained) ** 0.5 < factor


@pytest.mark.parametrize(("unit", "tables"), [("epsilon", None), ("rho", None), ("rho", TABLES)])
def test_people_are_in_one_cell(relation, unit, tables):
    for private in (
        dpp.protect("p", max_groups=1, neighboring_relation=relation),
        dpp.protect("p", max_rows=1, neighboring_relation=relation),
        dpp.protect(None, neighboring_relation=relation),
    ):
        query = private.cube(DIMENSIONS, tables=tables, **{unit: 1})
        check_shares(query, changes({"max_rows": 1}, relation), unit, Fraction(999, 1000))


@pytest.mark.parametrize("engine", ["in-memory", "streaming"])
@pytest.mark.parametrize("tables", [TABLES, TABLES[1:]], ids=["with all", "without"])
def test_the_bounds_hold_for_every_table(tables, engine):
    # One person everywhere, and many with one row each: whatever the bounds drop is dropped from all histograms.
    many = pl.DataFrame({"p": range(1, 7), "a": [0, 0, 0, 1, 1, 1], "b": [0, 1, 2, 0, 1, 2]})
    one = pl.concat([many.with_columns(p=pl.lit(0, pl.Int64))] * 5)
    for bounds in BOUNDS:
        private = pl.concat([many, one]).lazy().dp.protect("p", **bounds)
        query = private.cube(DIMENSIONS, counts="rows", tables=tables, rho=10**9)
        for partitions in (None, 2):
            cube = query.release(engine=engine, partitions=partitions)
            left = cube.counts(by="a")["count"].to_numpy() - 3, cube.counts(by="b")["count"].to_numpy() - 2
            assert any(
                np.allclose(kept.sum(axis=1), left[0]) and np.allclose(kept.sum(axis=0), left[1])
                for kept in of_one_person(bounds)
            )
            assert left[0].sum() == left[1].sum() == cube.count().value - 6
            if ("a", "b") in tables:
                cells = cube.counts(by=["a", "b"])["count"].to_numpy().reshape(SHAPE) - 1
                assert any(np.allclose(cells, kept) for kept in of_one_person(bounds))
                assert cells.sum() == min(bounds.get("max_rows", 99), bounds.get("max_groups", 6) * cells.max())


@pytest.mark.parametrize("unit", ["epsilon", "rho"])
def test_each_cell_has_noise_of_its_loss(unit):
    # Nobody is there, so all that is released is noise: against its exact law, by χ².
    nobody = pl.DataFrame({"a": [], "b": []}, schema={"a": pl.Int64, "b": pl.Int64})
    cube = nobody.dp.protect(None).cube({"a": range(1000), "b": range(1000)}, **{unit: 0.5}).release()
    counts = cube.to_frame()["count"]
    assert _chi_square(counts, unit, 0.5) < 6
    assert min(_chi_square(counts, unit, loss) for loss in (0.35, 0.65)) > 6  # negative controls: 0.7 and 1.3 of it
    assert abs(np.corrcoef(counts.to_numpy()[:-1], counts.to_numpy()[1:])[0, 1]) < 0.005


def test_each_cell_of_each_histogram_has_noise_of_its_share():
    nobody = pl.DataFrame({"a": [], "b": []}, schema={"a": pl.Int64, "b": pl.Int64})
    dimensions = {"a": range(700), "b": range(700)}
    query = nobody.dp.protect(None).cube(dimensions, tables=[("a",), ("b",), ("a", "b")], weights=[1, 1, 50], rho=2)
    work, run = prepare(query._request, PolarsEngine.of(nobody.lazy()))
    drawn, start = pl.read_ipc(run().packed()).to_series(), 0
    for ask, axes in zip(query._asks, query._request.drawn, strict=True):
        counts = drawn[start : start + work.plan.cells(axes)]
        start += len(counts)
        if len(counts) > 10**5:
            loss = float(ask.query.claim.loss.value)
            assert loss < 1.99
            assert _chi_square(counts, "rho", loss) < 6
            assert min(_chi_square(counts, "rho", loss * part) for part in (0.7, 1.3)) > 6
    assert start == len(drawn) > 490_000


def _chi_square(counts, unit, loss):
    """By how many standard deviations χ² is above its mean: above 6 with a probability below 1e-6."""
    x = np.arange(-200, 201)
    law = np.exp(-abs(x) * loss) if unit == "epsilon" else np.exp(-(x**2) * loss)
    law /= law.sum()
    bins = np.clip(x, -4, 4)
    wanted = np.array([law[bins == each].sum() for each in range(-4, 5)]) * len(counts)
    found = np.bincount(np.clip(counts.to_numpy(), -4, 4) + 4, minlength=9)
    is_used = wanted > 5
    degrees = is_used.sum() - 1
    return (((found - wanted) ** 2 / wanted)[is_used].sum() - degrees) / np.sqrt(2 * degrees)
