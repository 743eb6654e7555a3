"""Bernstein sums: what follows from them, when they are drawn, and that no statistic is worse than alone."""

import itertools
from fractions import Fraction

import numpy as np
import polars as pl
import pytest

import dp_polars as dpp
from dp_polars._accounting.claims import cost
from dp_polars._statistics.averages import Variance
from dp_polars._statistics.measures import error_95
from dp_polars._statistics.of_shared_draws import Bernstein
from tests.helpers.alone import alone
from tests.helpers.noised import record
from tests.registry import RELATIONS

X, Y = pl.col("x"), pl.col("y")
SHAPES = [{"max_rows": 1}, {"max_groups": 4, "max_rows_per_group": 3}, {"max_norm": 5}, None]
BOUNDS = [(0, 8), (-4, 4), (90, 98), (-7, -3), (-1, 9)]


def kinds(low, high):
    """The statistics that a pair gives, by their names."""
    return {
        "rows": lambda **loss: dpp.count(X, **loss),
        "total": lambda **loss: X.dp.sum(low, high, step=1, **loss),
        "mean": lambda **loss: X.dp.mean(low, high, step=1, **loss),
    }


def private(groups=3, *, relation="add_or_remove_one", limits=SHAPES[1]):
    frame = dpp.protect("person" if limits else None, **limits or {}, neighboring_relation=relation)
    return frame.group_by({"g": range(groups)})


def spreads(low, high):
    return {
        "var": lambda **loss: X.dp.var(low, high, step=1, **loss),
        "std": lambda **loss: X.dp.std(low, high, step=1, ddof=0, **loss),
    }


def pairs_of(query, sums=2):
    """The names of the outputs of each pair that is drawn, or of each three sums."""
    draws = {draw for ask in query._asks for draw in getattr(ask.query, "shared", ()) if draw.sums == sums}
    return sorted(draw.outputs for draw in draws)


def test_pairs_are_for_pure_losses_of_rows_that_come_or_go():
    def paired(relation="add_or_remove_one", **loss):
        asked = {name: ask(**loss) for name, ask in kinds(0, 8).items()}
        query = private(relation=relation).agg(**asked, share=dpp.share(Y > 3, **loss))
        return pairs_of(query)

    assert paired(epsilon=1) == [("rows", "total", "mean"), ("share",)]
    assert paired(epsilon=1, mechanism="discrete_laplace") == [("rows", "total", "mean"), ("share",)]
    assert paired(rho=1) == []
    assert paired(rho=1, mechanism="discrete_laplace") == []
    assert paired("replace_one", epsilon=1) == []


def test_a_pair_is_one_charge():
    query = private().agg(mean=X.dp.mean(0, 8, epsilon=1))
    ((text, claim),) = query._request.charged
    assert (text, claim.cost("epsilon"), claim._draws) == ("mean: mean of values from 0 to 8", 1, 1)
    assert query.explain()["rho"].item() == pytest.approx(float(claim.cost("rho")), rel=1e-12)
    assert "drawn once" not in query.explain()["note"].item()
    query = private().agg(mean=X.dp.mean(0, 8, epsilon=2), rows=dpp.count(X, epsilon=1))
    ((text, claim),) = query._request.charged
    assert (text, claim.cost("epsilon")) == ("mean, rows: sums of distances from 0 and from 8", 3)
    note = "The sums of distances from 0 and from 8 are drawn once for mean and rows, with epsilon=3."
    assert all(note in text for text in query.explain()["note"])


@pytest.mark.parametrize("limits", SHAPES, ids=str)
@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
def test_answers_follow_from_the_pair(bounds, limits, monkeypatch):
    """Without noise they are those of clipped values, of the rows that count; ends are on either side."""
    low, high = bounds
    rng = np.random.default_rng(1)
    frame = pl.DataFrame(
        {"person": range(300), "g": rng.integers(0, 4, 300), "x": rng.integers(low - 3, high + 4, 300)}
    )
    frame = frame.with_columns(x=pl.when(pl.int_range(pl.len()) % 7 > 0).then("x"))
    record(monkeypatch)
    query = private(4, limits=limits).agg(**{name: ask(epsilon=1) for name, ask in kinds(low, high).items()})
    assert pairs_of(query) == [("rows", "total", "mean")]
    found = query.release(frame, intervals=True)
    clipped = frame.filter(pl.col("x").is_not_null()).with_columns(pl.col("x").clip(low, high)).sort("g")
    true = clipped.group_by("g", maintain_order=True).agg(rows=pl.len(), total=pl.sum("x"), mean=pl.mean("x"))
    assert found["rows"].to_list() == true["rows"].to_list()
    assert found["total"].to_list() == true["total"].to_list()
    assert found["mean"].to_list() == pytest.approx(true["mean"].to_list(), rel=1e-12)
    for name in ("rows", "total", "mean"):
        assert (found[f"{name}_low"] < found[name]).all()
        assert (found[f"{name}_high"] > found[name]).all()
    alike = alone(query).release(frame)
    assert found.select("rows", "total").equals(alike.select("rows", "total"))


@pytest.mark.parametrize("step", [1, Fraction(1, 10**4)], ids=str)
@pytest.mark.parametrize("limits", SHAPES, ids=str)
@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
def test_answers_follow_from_three_sums(bounds, limits, step, monkeypatch):
    """Without noise they are those of clipped values; with many steps squares are rounded, and nothing else."""
    low, high = bounds
    rng = np.random.default_rng(1)
    values = rng.integers((low - 3) * 1000, (high + 4) * 1000, 300)
    values = values // 1000 if step == 1 else values / 1000
    frame = pl.DataFrame({"person": range(300), "g": rng.integers(0, 4, 300), "x": values})
    frame = frame.with_columns(x=pl.when(pl.int_range(pl.len()) % 7 > 0).then("x"))
    record(monkeypatch)
    asked = {
        "rows": X.dp.count(epsilon=1),
        "total": X.dp.sum(low, high, step=step, epsilon=1),
        "mean": X.dp.mean(low, high, step=step, epsilon=1),
        "var": X.dp.var(low, high, step=step, epsilon=1),
        "std": X.dp.std(low, high, step=step, ddof=0, epsilon=1),
    }
    query = private(4, limits=limits).agg(**asked)
    assert pairs_of(query, 3) == [tuple(asked)]
    found = query.release(frame, intervals=True)
    clipped = frame.filter(pl.col("x").is_not_null()).with_columns(pl.col("x").clip(low, high)).sort("g")
    true = clipped.group_by("g", maintain_order=True).agg(
        rows=pl.len(), total=pl.sum("x"), mean=pl.mean("x"), var=pl.var("x"), std=pl.std("x", ddof=0)
    )
    assert found["rows"].to_list() == true["rows"].to_list()
    assert found["total"].to_list() == pytest.approx(true["total"].to_list(), abs=0 if step == 1 else 1e-9)
    assert found["mean"].to_list() == pytest.approx(true["mean"].to_list(), rel=1e-12)
    for name in ("var", "std"):
        assert found[name].to_list() == pytest.approx(true[name].to_list(), rel=1e-12 if step == 1 else 1e-7)
    for name in asked:
        assert (found[f"{name}_low"] < found[name]).all()
        assert (found[f"{name}_high"] > found[name]).all()


def test_three_sums_are_for_pure_losses_of_rows_that_come_or_go():
    def threes(relation="add_or_remove_one", **losses):
        asked = {name: (kinds(0, 8) | spreads(0, 8))[name](**loss) for name, loss in losses.items()}
        return pairs_of(private(relation=relation).agg(**asked), 3)

    one, rho, gaussian = {"epsilon": 1}, {"rho": 1}, {"rho": 1, "mechanism": "discrete_laplace"}
    assert threes(mean=one, var=one) == [("mean", "var")]
    assert threes(var=one, std=one, rows=one) == [("var", "std", "rows")]
    assert threes("replace_one", mean=one, var=one) == []
    assert threes(mean=rho, var=rho) == threes(mean=gaussian, var=gaussian) == []
    assert threes(var=one) == []
    # A variance needs nine eighths of its loss, and so does a mean; a count needs three times its own.
    assert threes(mean={"epsilon": Fraction(1, 8)}, std=one) == []
    assert threes(mean=one, std={"epsilon": Fraction(1, 8)}) == [("mean", "std")]
    assert threes(mean=one, std={"epsilon": Fraction(1, 9)}) == []
    assert threes(rows=one, var=one, std=one) == [("rows", "var", "std")]
    assert threes(rows=one, var=one, std={"epsilon": Fraction(9, 10)}) == []
    query = private().agg(mean=X.dp.mean(0, 8, epsilon=1), var=X.dp.var(0, 8, epsilon=2), rows=dpp.count(X, epsilon=1))
    ((text, claim),) = query._request.charged
    assert text == "mean, var, rows: sums of squared distances from 0 and 8, and of twice their product"
    assert claim.cost("epsilon") == 4


def parts_of_variance(query, mean, square):
    """The factors of all noise, in units of a row, of the variance of a large group, times the number of its rows.

    Values are from −1 to 1, and have a mean and a mean square.
    """
    left = 2 * mean**2 - square
    if isinstance(query, Bernstein):
        return [1 + left - 2 * mean, left - 1, 1 + left + 2 * mean]
    return [-2 * mean, 0.5, left + 0.5]


def of_variance(query, mean, square, *types):
    """The squared noise of that."""
    claims, bits, rows = query.noise(*types), query.bits_of_parts(*types), query.changes(*types)
    scales = [float(1 / claim.rate / 2**bit / row) for claim, bit, row in zip(claims, bits, rows, strict=True)]
    return sum((by * of) ** 2 for by, of in zip(parts_of_variance(query, mean, square), scales, strict=True))


def test_the_noise_of_a_variance_is_what_moves_it():
    """By small moves of each sum, alone and of three: of the variance in units of the bounds' half distance."""
    query = private(limits=None).agg(
        mean=X.dp.mean(-1, 1, step=0.01, epsilon=1), var=X.dp.var(-1, 1, step=0.01, ddof=0, epsilon=1)
    )
    types, rows = (pl.Float64(),), 10**4
    for made in (query._asks[1].query, alone(query)._asks[1].query):
        units = [float(one) for one in made.changes(*types)]
        for mean, square in ((0.0, 0.5), (0.4, 0.3), (-0.7, 0.6)):
            of_row = [mean, 2 * square - 1, 1]
            if isinstance(made, Bernstein):
                of_row = [(1 + 2 * mean + square) / 4, (1 - square) / 2, (1 - 2 * mean + square) / 4]
            totals = [np.array([one * unit * rows]) for one, unit in zip(of_row, units, strict=True)]
            true = made.of_totals(totals, *types)
            assert true == pytest.approx(square - mean**2)
            for place, by in enumerate(parts_of_variance(made, mean, square)):
                moved = [
                    total + unit * (number == place)
                    for number, (total, unit) in enumerate(zip(totals, units, strict=True))
                ]
                assert (made.of_totals(moved, *types) - true)[0] * rows == pytest.approx(by, abs=1e-3)


def test_three_sums_with_a_loss_give_five_quarters_of_the_squared_error_at_most():
    """Of a variance over all means and mean squares; of a mean beside its pair. It is nearly reached."""
    query = private(limits=None).agg(mean=X.dp.mean(-1, 1, epsilon=1), var=X.dp.var(-1, 1, epsilon=1))
    three, one = query._asks[1].query, alone(query)._asks[1].query
    places = [(mean, square) for mean in np.linspace(-1, 1, 81) for square in np.linspace(mean**2, 1, 81)]
    ratios = [of_variance(three, *place) * 4 / of_variance(one, *place) for place in places]  # of twice the loss
    assert 1.235 < max(ratios) <= 1.25
    assert min(ratios) < 0.3
    for v in np.linspace(0, 1, 101):
        assert (1 - v) ** 2 + (0.5 - v) ** 2 + v**2 <= 1.25 * ((1 - v) ** 2 + v**2) + 1e-12


def test_types_of_answers_are_those_alone():
    frame = pl.DataFrame({"x": [1.25, 2.5, None], "d": pl.Series(["1.25", "2.5", None]).cast(pl.Decimal(10, 2))})
    frame = frame.with_columns(b=pl.col("x") > 2, u=pl.Series([1, 2, None], dtype=pl.UInt8))
    for column, step in (("x", None), ("x", 0.5), ("d", None), ("u", None), ("b", 1)):
        asked = {
            "total": pl.col(column).dp.sum(0, 4 if column != "b" else 1, step=step, epsilon=10**12),
            "rows": pl.col(column).dp.count(epsilon=10**12),
        }
        query = dpp.protect(None).agg(**asked)
        assert pairs_of(query) == [("total", "rows")]
        found, own = query.release(frame), alone(query).release(frame)
        assert found.schema == own.schema
        assert found.equals(own)


@pytest.mark.parametrize("limits", SHAPES, ids=str)
def test_nothing_is_worse_than_alone(limits):
    """For all pairs and triples of statistics, at losses that differ by far: each error, and the sum of losses."""
    shared = threes = 0
    for bounds in BOUNDS:
        ways = kinds(*bounds) | spreads(*bounds)
        names = [*itertools.combinations(ways, 2), *itertools.combinations(ways, 3), tuple(ways)]
        losses = ((1,) * 5, (1, Fraction(1, 10), Fraction(1, 3), 1, 1), (Fraction(1, 20), 1, 1, 1, 1))
        for chosen, of in itertools.product(names, losses):
            asked = {name: ways[name](epsilon=loss) for name, loss in zip(chosen, of, strict=False)}
            query = private(limits=limits).agg(**asked)
            shared += any(len(names) > 1 for names in pairs_of(query))
            threes += bool(pairs_of(query, 3))
            assert cost(query._request.claims, "epsilon") == sum(of[: len(chosen)])
            for ask, one in zip(query._asks, alone(query)._asks, strict=True):
                rows = 100 if ask.query.error_needs_rows else None
                if isinstance(ask.query, Bernstein):
                    # Alone, a count is a whole number: of a pair, it is rounded.
                    rounded = 0.5 if rows is None else 0.0
                    assert error_95(ask.query, rows) <= error_95(one.query, rows) * (1 + 1e-5) + rounded
                    assert spread(ask.query) <= spread(one.query) * (1 + 1e-9)
    assert shared > 10
    assert threes > 100


def spread(query):
    """The mean squared error in units of a row, of a mean the largest one of its numerator."""
    if isinstance(query, Variance):  # where three sums have the largest one, beside that alone
        return of_variance(query, 0, 0.57)
    scales = [float(1 / claim.rate) / 2**bits for claim, bits in zip(query.noise(), query.bits_of_parts(), strict=True)]
    if isinstance(query, Bernstein):
        width = float(query.changes()[0])
        one = scales[0] / width
        if hasattr(query, "coefficients"):
            return sum(2 * (float(by) * scale) ** 2 for by, scale in zip(query.coefficients(), scales, strict=True))
        middle = len(scales) - 2  # of three sums
        return 2 * max((1 - v) ** 2 + middle * v**2 + (1 + v) ** 2 for v in (0, 1)) * one**2
    if len(scales) == 2:
        width = float(query.changes()[0])
        return 2 * ((scales[0] / width) ** 2 + scales[1] ** 2)
    return 2 * scales[0] ** 2


@pytest.mark.parametrize("bounds", [(0, 3), (-1, 2), (2, 5)], ids=str)
def test_noise_is_more_peaked_than_alone(bounds):
    """By its exact law in whole rows: at each distance, up to a step of what is drawn."""
    low, high = bounds
    numbers = np.arange(-3000, 3001)

    def law(claim):
        weights = np.exp(-abs(numbers) * float(claim.rate))
        return weights / weights.sum()

    for name, share in (("rows", 2), ("total", Fraction(abs(low) + abs(high), max(abs(low), abs(high))))):
        asked = {name: kinds(low, high)[name](epsilon=Fraction(1, 10)), "mean": X.dp.mean(low, high, step=1, epsilon=1)}
        asked["mean"] = X.dp.mean(low, high, step=1, epsilon=(share - 1) / Fraction(10)) if share > 1 else asked["mean"]
        query = private(limits=None).agg(**asked)
        assert pairs_of(query) == [(name, "mean")]
        made, own = query._asks[0].query, alone(query)._asks[0].query
        types = (pl.Int64(),)
        both = [law(claim) for claim in made.noise(*types)]
        (of_own,) = (law(claim) for claim in own.noise(*types))
        by = [float(one) for one in made.coefficients(*types)]
        off = abs(by[0] * numbers[:, None] + by[1] * numbers[None, :])
        joint = both[0][:, None] * both[1][None, :]
        for far in range(1, 90, 8):
            assert joint[off > far].sum() <= of_own[abs(numbers) >= far].sum() + 1e-12
        error = made.error(1, 0.05, *types)
        assert joint[off > error - 0.5].sum() <= 0.05 < joint[off > 0.7 * error].sum()


@pytest.mark.parametrize("rows", [1, 3, 40])
@pytest.mark.parametrize("true", [0.0, 0.3, 1.0])
def test_a_mean_is_within_its_error(true, rows):
    """By all noise of both sums; in steps of a tenth of the bounds."""
    query = private(limits=None).agg(mean=X.dp.mean(-5, 5, step=1, epsilon=1))._asks[0].query
    types = (pl.Int64(),)
    first, second = round(true * 10) * rows, (10 - round(true * 10)) * rows
    claim, _ = query.noise(*types)
    numbers = np.arange(-400, 401)
    weights = np.exp(-abs(numbers) * float(claim.rate))
    weights /= weights.sum()
    totals = [first + numbers[:, None], second + numbers[None, :]]
    answers = query.of_totals([np.broadcast_to(one, (801, 801)) for one in totals], *types)
    off = abs(answers - query.of_totals([np.array([first]), np.array([second])], *types)[0])
    law = weights[:, None] * weights[None, :]
    error = query.error_among(rows, 0.05, *types)
    assert law[off > error * (1 + 1e-9)].sum() <= 0.05
    if rows == 40:
        assert law[off > error / 2].sum() > 0.02


def test_the_way_with_the_smallest_errors_is_taken():
    """One number of rows for means of three clipping bounds; a pair each for two; sums that need more are alone."""
    loss = {"epsilon": 1}
    means = {f"to {high}": X.dp.mean(0, high, **loss) for high in (10, 20, 30)}
    two = dict([*means.items()][:2])
    assert pairs_of(private().agg(**two)) == [("to 10",), ("to 20",)]
    assert pairs_of(private().agg(**means)) == []
    assert len(private().agg(**means)._request.claims) == 4
    # A number of rows needs twice its loss of a pair: if there is less, it is drawn, and a sum from the middle.
    few = private().agg(mean=X.dp.mean(0, 10, epsilon=Fraction(1, 2)), rows=dpp.count(X, epsilon=1))
    assert pairs_of(few) == []
    assert len(few._request.claims) == 2
    least = private().agg(mean=X.dp.mean(0, 10, epsilon=Fraction(1, 100)), total=X.dp.sum(-10, 10, epsilon=1))
    assert pairs_of(least) == [("mean",)]
    enough = private().agg(mean=X.dp.mean(0, 10, epsilon=1), rows=dpp.count(X, epsilon=1))
    assert pairs_of(enough) == [("mean", "rows")]
    # It goes to one pair alone.
    query = private().agg(**two, rows=dpp.count(X, **loss))
    assert sum("rows" in names for names in pairs_of(query)) <= 1
    assert cost(query._request.claims, "epsilon") == 3


def test_a_mean_has_half_of_the_squared_error_of_a_sum_and_a_count():
    query = private().agg(mean=X.dp.mean(0, 8, step=1, epsilon=1))
    assert spread(query._asks[0].query) == pytest.approx(spread(alone(query)._asks[0].query) / 2)
    assert error_95(query._asks[0].query, 100) == pytest.approx(
        error_95(alone(query)._asks[0].query, 100) / 2, rel=1e-4
    )


def test_another_loss_keeps_the_pair_of_a_mean():
    mean = private().agg(mean=X.dp.mean(0, 8, epsilon=1))._asks[0].query
    assert isinstance(mean, Bernstein)
    twice = mean.with_loss(Fraction(2))
    assert isinstance(twice, Bernstein)
    assert twice.noise()[0].rate == 2 * mean.noise()[0].rate
    assert twice.shared[0].claim.loss.value == 2


@pytest.mark.parametrize("relation", RELATIONS)
def test_open_losses_need_no_more_than_they_are_given(relation):
    asked = {name: ask() for name, ask in kinds(0, 8).items()}
    query = private(relation=relation).agg(people=dpp.n_people(), **asked).scaled_to(epsilon=1)
    assert cost(query._request.claims, "epsilon") == 1
    people = query._asks[0].query.claim.loss.value
    assert people == (Fraction(1, 3) if relation == "add_or_remove_one" else people)


def test_wide_pairs_do_not_leave_64_bits(monkeypatch):
    """Numbers of parts times the bounds do: then exact integers decide."""
    record(monkeypatch)
    most, people = 2**29, 10_000
    frame = pl.DataFrame({"person": range(people), "x": [most] * (people - 1) + [most // 2]})
    private = frame.lazy().dp.protect("person", max_rows=1)
    query = private.agg(rows=X.dp.count(epsilon=1), total=X.dp.sum(-1, most, step=1, epsilon=2))
    assert pairs_of(query) == [("rows", "total")]
    assert query.release().row(0) == (people, most * people - most // 2)


def within_of_pair(most, rate):
    """The probability that two discrete Laplace variables add up to a number of at most so much."""
    weights = np.exp(-rate * np.abs(np.arange(-1000, 1001)))
    sums = np.convolve(weights, weights)
    middle = len(sums) // 2
    return sums[middle - most : middle + most + 1].sum() / sums.sum()


def test_intervals_cover_and_answers_agree():
    """Intervals hold with 95 %, and the number of rows is off as both sums say."""
    groups = 20_000
    frame = pl.DataFrame({"g": np.repeat(np.arange(groups), 8), "x": np.tile(np.arange(8), groups)})
    frame = frame.with_columns(person=pl.int_range(pl.len()))
    for person, limits in (("person", {"max_rows": 1}), (None, {})):
        private = frame.lazy().dp.protect(person, **limits).group_by({"g": range(groups)})
        query = private.agg(**{name: ask(epsilon=Fraction(1, 4)) for name, ask in kinds(0, 10).items()})
        assert pairs_of(query) == [("rows", "total", "mean")]
        found = query.release(intervals=True)
        for name, true in (("rows", 8), ("total", 28), ("mean", 3.5)):
            inside = found.select(pl.lit(true).is_between(f"{name}_low", f"{name}_high").mean()).item()
            if name == "rows":  # whole numbers outside of 8 ± 5.6: noise of 65 tenths of a row has 8 inside
                assert inside == pytest.approx(within_of_pair(65, 0.075), abs=0.0056), (person, inside)  # 5 deviations
            else:
                assert 0.9435 < inside < 0.975, (person, name, inside)
        # X + Y is off by three halves of the scale of a pair.
        assert (found["rows"] - 8).abs().mean() == pytest.approx(1.5 / (3 / 4), rel=0.05)


def test_intervals_of_three_sums_cover():
    """Of means and sums they hold with 95 %, of variances with more; errors are within `error_95` as often."""
    groups, values = 20_000, np.array([0, 1, 1, 2, 5, 7, 10, 10] * 4)
    frame = pl.DataFrame({"g": np.repeat(np.arange(groups), 32), "x": np.tile(values, groups)})
    private = dpp.protect(None).group_by({"g": range(groups)})
    loss = {"epsilon": Fraction(1, 4)}
    query = private.agg(**{name: ask(**loss) for name, ask in (kinds(0, 10) | spreads(0, 10)).items()})
    assert pairs_of(query, 3) == [("rows", "total", "mean", "var", "std")]
    found = query.release(frame, intervals=True)
    true = {"rows": 32, "total": values.sum(), "mean": values.mean(), "var": values.var(ddof=1), "std": values.std()}
    for name, value in true.items():
        inside = found.select(pl.lit(value).is_between(f"{name}_low", f"{name}_high").mean()).item()
        # 0.0015 is the deviation of such a part. Whole rows and sums are rounded outward.
        least, most = {"rows": (0.96, 0.99), "mean": (0.942, 0.958), "total": (0.942, 0.97)}.get(name, (0.96, 1))
        assert least < inside <= most, name
    for ask in query._asks:
        rows = 32 if ask.query.error_needs_rows else None
        within = (found[ask.name] - true[ask.name]).abs() <= error_95(ask.query, rows, pl.Int64())
        assert within.mean() > 0.943, ask.name


def far_off(query, totals, mean, *, least):
    """By the exact law: how often the answer is off by each distance, and how often the number of rows is below 1."""
    types, laws, steps = (pl.Int64(),), [], []
    for claim, bits in zip(query.noise(*types), query.bits_of_parts(*types), strict=True):
        assert not bits
        reach = int(np.ceil(30 / float(claim.rate)))
        steps.append(np.arange(-reach, reach + 1))
        weights = np.exp(-abs(steps[-1]) * float(claim.rate))
        laws.append(weights / weights.sum())
    first, second = (total + step for total, step in zip(totals, np.meshgrid(*steps, indexing="ij"), strict=True))
    joint = laws[0][:, None] * laws[1][None, :]
    off = abs(query.of_totals([first, second], *types) - mean)
    rows = (first + second) / float(query.changes(*types)[0]) if isinstance(query, Bernstein) else second
    return [joint[off >= one].sum() for one in least], joint[rows < 1].sum()


@pytest.mark.parametrize("place", [0, 1, 2], ids=["at the lower bound", "between", "in the middle"])
def test_a_mean_is_further_off_than_alone_in_tiny_groups_only(place):
    """Its noise is more peaked at every position, but a number of rows below 1 is cut: by the exact laws."""
    width, loss, worse = 4, Fraction(2, 5), 0.0
    distances = np.linspace(0.01, width, 40)
    pair = dpp.protect(None).agg(mean=X.dp.mean(0, width, step=1, epsilon=loss))._asks[0].query
    assert isinstance(pair, Bernstein)
    for rows in (1, 2, 4, 8, 16, 40, 120):
        of_pair, _ = far_off(pair, (rows * place, rows * (width - place)), place, least=distances)
        # Draws are whole numbers: they move a mean by a step of a row, and a count by one.
        nearer = np.maximum(distances - 2 * width / rows, 0)
        of_own, below = far_off(pair.alone, (rows * (2 * place - width), rows), place, least=nearer)
        assert (np.array(of_pair) <= np.array(of_own) + 2 * below + 1e-9).all(), rows
        of_own, _ = far_off(pair.alone, (rows * (2 * place - width), rows), place, least=distances)
        worse = max(worse, (np.array(of_pair) - np.array(of_own)).max() if rows <= 4 else 0.0)
        if rows >= 40:  # with many rows it is much nearer
            assert sum(of_pair[1:]) < 0.8 * sum(of_own[1:])
    if place == width // 2:
        assert worse > 0.01  # so the exception is needed
