"""Released numbers against the exact laws of their noise, with samplers at other rates that must fail."""

from fractions import Fraction
from itertools import combinations
from statistics import NormalDist
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

import dp_polars as dpp
from dp_polars._base import numbers as words
from tests.helpers.alone import alone
from tests.helpers.reference import floats, law
from tests.registry import NOISE
from tests.statistical.goodness import CONTROLS, cell_counts, check_sampler, fits

DRAWS, ROWS = 60_000, 2
FRAME = pl.DataFrame({"g": np.repeat(np.arange(DRAWS), ROWS), "x": [1, 5] * DRAWS})
LAST = 25


def noise_law(scale, mechanism, bits=0, last=LAST):
    """P of noise from −last to last; what lies beyond counts as the end. It is drawn in parts, and rounded, ties up."""
    if bits:
        edges = (np.arange(-last, last) + 0.5) * 2**bits  # what is drawn is less than the first, then the second, …
        below = np.array([1 - at_least(edge, scale * 2**bits, mechanism) for edge in edges])
        return np.diff(below, prepend=0, append=1)
    x = np.arange(-400, 401)
    weights = np.exp(-abs(x) / scale) if mechanism == "discrete_laplace" else np.exp(-(x**2) / (2 * scale**2))
    weights /= weights.sum()
    inner = weights[400 - last : 401 + last].copy()
    inner[0] += weights[: 400 - last].sum()
    inner[-1] += weights[401 + last :].sum()
    return inner


def at_least(edge, scale, mechanism):
    """P of a whole number of parts that is at least another one."""
    if mechanism == "discrete_gaussian":  # of so fine parts, but for 2^-40, the integral
        return NormalDist().cdf((0.5 - edge) / scale)
    q = np.exp(-1 / scale)
    return q**edge / (1 + q) if edge >= 1 else 1 - q ** (1 - edge) / (1 + q)


# Output -> who asks, what it is without noise, and the noise's scale (Laplace at epsilon 1) in what is shown.
NUMBERS = {
    "len": (lambda **loss: dpp.len(**loss), 2, 1),
    "count": (lambda **loss: dpp.count("x", **loss), 2, 1),
    "sum": (lambda **loss: dpp.sum("x", 0, 3, **loss), 4, 3),
    "negative": (lambda **loss: dpp.sum(-pl.col("x"), -3, 0, **loss), -4, 3),
    "halves": (lambda **loss: dpp.sum("x", 0, 1, step=Fraction(1, 2), **loss) * 2, 4, 2),
    "tenths": (lambda **loss: dpp.sum(pl.col("x") / 10, 0, 0.3, step=0.1, **loss) * 10, 4, 3),
}


def at(factor, mechanism):
    """The loss at which a noise of that scale, over the factor, is drawn."""
    return {"epsilon": factor} if mechanism == "discrete_laplace" else {"rho": factor**2 / 2}


def cells(numbers, true):
    return np.clip(numbers.cast(pl.Float64).round().cast(pl.Int64).to_numpy() - true, -LAST, LAST) + LAST


@pytest.mark.parametrize("mechanism", NOISE)
@pytest.mark.parametrize("output", NUMBERS)
def test_expressions_have_the_exact_law(output, mechanism):
    ask, true, largest = NUMBERS[output]

    def draw(factor):
        return cells(FRAME.group_by("g").agg(ask(**at(factor, mechanism)).alias("n"))["n"], true)

    check_sampler(draw, noise_law(largest, mechanism))


@pytest.mark.parametrize("mechanism", NOISE)
@pytest.mark.parametrize("people", [0, 1])
def test_private_frames_have_the_exact_law(people, mechanism):
    """Groups without people, and values that nobody has, too: a 0 there, or less noise, would tell."""
    nobody = pl.DataFrame({"g": [-1, 0], "x": [1, 1], "person": [1, 2]})
    frame, rows = (FRAME.with_columns(person=pl.col("g")), ROWS) if people else (nobody, 1)
    private = frame.dp.protect("person", max_rows_per_group=rows, max_groups=1).group_by({"g": range(DRAWS)})
    exprs = {name: ask for name, (ask, _, _) in NUMBERS.items() if name not in ("halves", "tenths")}

    def draw(factor):
        loss = at(rows * factor, mechanism)  # the bounds make the noise as many times as large
        asks = {name: ask(**loss) for name, ask in exprs.items()}
        asks |= {"people": dpp.n_people(**at(factor, mechanism)), "counts": dpp.value_counts("x", [1, 5], **loss)}
        found = alone(private.agg(**asks, mean=dpp.mean("x", 0, 3, **loss))).release()
        return {**found.to_dict(), "counts": found["counts"].list.explode().struct.field("count")}

    released = {factor: draw(factor) for factor in (Fraction(1), *CONTROLS)}
    for name in (*exprs, "people", "counts"):
        _, true, largest = NUMBERS.get(name, (None, 1, 1))
        bits = 21 - largest.bit_length()  # who is beyond the limits counts in parts, so all noise is drawn in parts
        check_sampler(
            lambda factor, name=name, true=true: cells(released[factor][name], people * true),
            noise_law(largest, mechanism, bits),
        )
        if (name, mechanism) == ("len", "discrete_laplace"):  # the control: noise in whole rows
            whole = noise_law(largest, mechanism)
            assert not fits(cell_counts(cells(released[Fraction(1)][name], people * true), whole), whole)
    assert released[Fraction(1)]["mean"].n_unique() > (0 if people else LAST)


def test_pairs_follow_their_law():
    """Both sums of a pair, which a sum from 0 to 1 and a number of rows show: each has noise of its own."""
    far = 3

    def draw(factor):
        loss = {"epsilon": Fraction(1, 4) * factor}
        private = FRAME.lazy().dp.protect(None).group_by({"g": range(DRAWS)})
        query = private.agg(rows=dpp.count(pl.col("x") - 3, **loss), ones=dpp.sum(pl.col("x") - 3, 0, 1, **loss))
        assert len(query._request.claims) == 1
        found = query.release()
        first = np.clip(found["ones"].to_numpy() - 1, -far, far) + far
        second = np.clip((found["rows"] - found["ones"]).to_numpy() - 1, -far, far) + far
        return first * (2 * far + 1) + second

    one = noise_law(2, "discrete_laplace", last=far)  # both pay: ε = 1/2
    check_sampler(draw, np.outer(one, one).ravel())


@pytest.mark.parametrize("output", ["rows", "ones"])
def test_three_sums_follow_their_law(output):
    """A number of rows shows all three noises, and a sum from 0 to 1 the first one and half of the second one."""
    far, scale = 12, 2.0  # all pay: ε = 1/2

    def draw(factor):
        of_rows, of_ones, of_var = ({"epsilon": Fraction(1, one) * factor} for one in (8, 8, 4))
        private, x = FRAME.lazy().dp.protect(None).group_by({"g": range(DRAWS)}), pl.col("x") - 3
        query = private.agg(
            rows=dpp.count(x, **of_rows), ones=dpp.sum(x, 0, 1, **of_ones), var=dpp.var(x, 0, 1, **of_var)
        )
        assert [claim.loss.value for claim in query._request.claims] == [Fraction(1, 2) * factor]
        found = query.release()[output].to_numpy() - (ROWS if output == "rows" else 1)
        return np.clip(found, -far, far) + far

    edges = np.arange(-far, far) + 0.5
    t = abs(edges) / scale
    tail = (8 + 5 * t + t**2) / 8 * np.exp(-t) if output == "rows" else (4 * np.exp(-t) - np.exp(-2 * t)) / 3
    below = np.where(edges < 0, tail / 2, 1 - tail / 2)
    check_sampler(draw, np.diff(below, prepend=0, append=1))


@pytest.mark.parametrize("on", ["expression", "frame"])
def test_too_few_is_one_more_candidate_of_a_constant_score(on, mechanism):
    frame = FRAME.with_columns(person=pl.int_range(pl.len()))

    def draw(factor):
        expr = dpp.mode("x", [1, 5, 7], too_few=3, epsilon=factor, mechanism=mechanism)
        if on == "expression":
            found = frame.group_by("g").agg(expr)["x"]
        else:
            protected = frame.dp.protect("person", max_groups=1)
            found = protected.group_by({"g": range(DRAWS)}).agg(expr).release()["x"]
        return found.replace_strict({1: 0, 5: 1, 7: 2, None: 3}, return_dtype=pl.Int64).to_numpy()

    exact = np.array(floats(law([1, 1, 0, 3], rate=1, mechanism=mechanism)))
    check_sampler(draw, exact)
    wrong = np.array(floats(law([1, 1, 0, 2], rate=1, mechanism=mechanism)))
    assert not fits(cell_counts(draw(Fraction(1)), wrong), wrong)


GROUPS, FAR = 5000, 2


def released():
    """Noise of two numbers and two choices of the same rows; in each group both candidates are as common."""
    frame = pl.DataFrame({"p": np.arange(2 * GROUPS), "g": np.arange(2 * GROUPS) % GROUPS})
    frame = frame.with_columns(x=(pl.col("p") >= GROUPS).cast(pl.Int64))
    query = (
        dpp.protect("p", max_rows=1)
        .group_by({"g": range(GROUPS)})
        .agg(
            rows=dpp.len(epsilon=1),
            values=dpp.count("x", epsilon=1),
            people=dpp.n_people(epsilon=1),
            one=dpp.mode("x", [0, 1], epsilon=1),
            other=dpp.mode("x", [0, 1], epsilon=1),
            middle=dpp.median("x", [0, 1], rho=1),
        )
    )
    found = query.release(frame)
    return {
        name: found[name].to_numpy()
        if name in ("one", "other", "middle")
        else np.clip(found[name] - 2, -FAR, FAR) + FAR
        for name in found.columns[1:]
    }


def law_of(name, answers):
    if name in ("one", "other"):
        return np.array([0.5, 0.5])
    if name == "middle":
        return np.bincount(answers) / len(answers)
    return noise_law(1, "discrete_laplace", bits=20, last=FAR)


def pairs_that_fit(answers):
    """Which two outputs have the joint law of independent ones."""
    laws = {name: law_of(name, own) for name, own in answers.items()}
    return {
        (one, other): fits(
            cell_counts(answers[one] * len(laws[other]) + answers[other], np.outer(laws[one], laws[other]).ravel()),
            np.outer(laws[one], laws[other]).ravel(),
        )
        for one, other in combinations(answers, 2)
    }


def test_answers_are_independent():
    found = pairs_that_fit(released())
    assert len(found) == 15
    assert all(found.values()), found


def test_answers_by_the_same_words_are_found_out(monkeypatch):
    """Where every output draws from a stream of its own, but all streams have the same key."""
    monkeypatch.setattr(words, "os", SimpleNamespace(urandom=bytes))
    found = pairs_that_fit(released())
    assert len(found) == 15
    assert not any(found.values()), found


def test_intervals_hold_the_weighted_numbers():
    """In each group one of two people has seven rows, of which three count: 3/7 of each."""
    values = [1, 1, 1, 1, 8, 8, 8, 2]
    frame = pl.DataFrame({"g": np.repeat(np.arange(DRAWS), 8), "x": values * DRAWS})
    person = pl.when(pl.int_range(pl.len()) % 8 < 7).then(2 * pl.col("g")).otherwise(2 * pl.col("g") + 1)
    private = frame.with_columns(person=person).lazy().dp.protect("person", max_rows=3).group_by({"g": range(DRAWS)})
    loss = {"epsilon": Fraction(1, 2)}
    query = private.agg(
        rows=dpp.len(**loss),
        total=dpp.sum("x", 0, 9, epsilon=4),
        mean=dpp.mean("x", 0, 9, epsilon=400),
        people=dpp.n_people(**loss),
    )
    found = alone(query).release(intervals=True)
    of_row = Fraction(2**20 * 3 // 7, 2**20)
    rows, total = 7 * of_row + 1, 28 * of_row + 2
    true = {"rows": rows, "total": total, "mean": total / rows, "people": 2}

    def inside(name, number):
        return found.select(
            pl.lit(float(number)).is_between(f"{name}_low", f"{name}_high", closed="both").mean()
        ).item()

    for name, number in true.items():
        assert inside(name, number) > 0.945, name  # 5.6 deviations below 0.95
    assert inside("rows", true["rows"]) < 0.97  # also what rounding outward adds
    assert inside("total", true["total"]) < 0.965
    # The controls: rows that count in full.
    assert inside("mean", Fraction(30, 8)) < 0.945
    assert inside("total", 30) < 0.945


@pytest.mark.parametrize("loss", [{"epsilon": 1}, {"rho": Fraction(1, 10)}], ids=str)
@pytest.mark.parametrize("people", [4, 60])
def test_intervals_of_means_hold_as_often_as_they_say(loss, people):
    """Small and large groups, means in the middle and at an end, with and without weights: 95 %, hardly more."""
    groups = 20_000
    frame = pl.DataFrame({"g": np.repeat(np.arange(groups), people), "x": np.tile(np.arange(people) % 4, groups)})
    frame = frame.with_columns(person=pl.int_range(pl.len()), high=9 - pl.col("x") // 3)
    for unit, limits in (("person", {"max_rows": 1}), (None, {})):
        found = (
            frame.lazy()
            .dp.protect(unit, **limits)
            .group_by({"g": range(groups)})
            .agg(
                mean=dpp.mean("x", 0, 3, step=0.01, **loss),
                high=dpp.mean("high", 0, 9, step=0.01, **loss),
                share=dpp.share(dpp.col("x") < 2, **loss),
            )
            .release(intervals=True)
        )
        values = frame.head(people)["x"]
        true = {"mean": values.mean(), "high": (9 - values // 3).mean(), "share": (values < 2).mean()}
        for name, number in true.items():
            inside = found.select(pl.lit(number).is_between(f"{name}_low", f"{name}_high", closed="both").mean()).item()
            # The limits are 4.2 deviations beyond 0.95 and 0.965. Rows that are whole numbers have wider intervals.
            assert 0.9435 < inside < (0.9705 if unit else 0.985), (unit, name, inside)
