"""Faults that audits of other libraries found in 2026, and what each would do here (docs/found-elsewhere.md)."""

from __future__ import annotations

import math
import re
import warnings
from fractions import Fraction

import numpy as np
import polars as pl
import pytest

import dp_polars as dpp
from dp_polars import analysis
from dp_polars._rowwise.gate import row_by_row
from dp_polars.opendp import make_selection
from tests.helpers import reference
from tests.helpers.needs import need
from tests.helpers.noised import record
from tests.registry import MECHANISMS
from tests.statistical.goodness import check_sampler, fits, tally

NAN = math.nan


def renyi(p: list[float], q: list[float], order: float) -> float:
    """The Rényi divergence of two distributions; of order 1 that of Kullback and Leibler."""
    if order == 1:
        return math.fsum(a * math.log(a / b) for a, b in zip(p, q, strict=True))
    return math.log(math.fsum(a**order * b ** (1 - order) for a, b in zip(p, q, strict=True))) / (order - 1)


# --- opendp #2911: noisy max, which is permute-and-flip, was charged epsilon²/8 in zCDP ------------------------------


def test_noisy_max_is_not_charged_as_bounded_range():
    """(0, 0) and (1, −1) at epsilon = 2: 0.69 where epsilon²/8 is 0.5. A release costs more, and no less is taken."""
    p, q = ([float(x) for x in reference.law(s, rate=1, mechanism="permute_and_flip")] for s in ([0, 0], [1, -1]))
    orders = [1, 1.5, 2, 4]
    true = max(max(renyi(p, q, order), renyi(q, p, order)) / order for order in orders)
    assert true > 1.3 * 2**2 / 8
    asked = dpp.mode("x", ["a", "b"], epsilon=2, neighboring_relation="replace_one")
    assert asked.query.claim.mechanism == "permute_and_flip"
    assert asked.query.claim.cost("rho") >= true
    budget = dpp.Budget(rho=Fraction(1, 2))  # what the fault would charge
    frame = pl.DataFrame({"x": ["a", "b"]}).dp.protect(None, budget=budget, neighboring_relation="replace_one")
    with pytest.raises(dpp.BudgetExceededError):
        frame.agg(asked).release()
    assert budget.spent == 0


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_what_is_asked_in_rho_is_kept_in_rho(mechanism):
    """Whichever mechanism is asked for: on the pair that the report has, and at every order."""
    claim = dpp.mode("x", ["a", "b"], rho=0.5, mechanism=mechanism, neighboring_relation="replace_one").query.claim
    p, q = (
        [float(x) for x in reference.law(scores, rate=claim.rate, mechanism=mechanism)] for scores in ([0, 0], [1, -1])
    )
    for order in (1, 1.01, 1.5, 2, 4, 16):
        assert max(renyi(p, q, order), renyi(q, p, order)) <= 0.5 * order * (1 + 1e-9)


def test_under_zcdp_opendp_gets_the_exponential_mechanism():
    """Its map at scale 1 is at most 1/2, the 2²/8 of the report: so it draws by a mechanism for which that is true."""
    odp = need("opendp.prelude")
    features = "contrib", "honest-but-curious"
    odp.enable_features(*features)
    try:
        space = odp.vector_domain(odp.atom_domain(T=int)), odp.linf_distance(T=int)
        selection = make_selection(*space, odp.zero_concentrated_divergence(), scale=1.0)
        assert selection.map(1) == pytest.approx(float(reference.bounded_range_rho(2)))
        assert selection.map(1) < 2**2 / 8
        counts = tally([selection([1, -1]) for _ in range(20_000)], [0, 0])
    finally:
        odp.disable_features(*features)
    laws = {m: [float(x) for x in reference.law([1, -1], rate=1, mechanism=m)] for m in MECHANISMS}
    assert fits(counts, laws["exponential"])
    assert not fits(counts, laws["permute_and_flip"])


# --- opendp #2939: `cut` makes null of NaN, but the result was taken to have no nulls, and its count to be public ---


def cut(breaks: list[float], labels: list[str] | None = None) -> pl.Expr:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # since Polars 2.1
        return pl.col("x").fill_null(0.0).cut(breaks, labels=labels)


def test_polars_still_makes_null_of_nan():
    assert pl.DataFrame({"x": [NAN, 1.0]}).select(cut([1.5]).count()).item() == 1


def refused_on_polars_1(column: pl.Expr) -> bool:
    """Whether this is Polars 1, which takes no such step on a private frame."""
    if not pl.__version__.startswith("1."):
        return False
    with pytest.raises(ValueError, match="needs Polars 2"):
        row_by_row(column, pl.Schema({"x": pl.Float64()}), "select")
    return True


def test_a_count_after_cut_is_of_the_values_that_are_there_and_gets_noise(monkeypatch):
    """One NaN more or less moves the count by one, which is charged; the fault gave the count away for nothing."""
    if refused_on_polars_1(cut([1.5])):
        return
    found = []
    for values in ([NAN, *[1.0] * 15], [2.0, *[1.0] * 15]):
        drawn = record(monkeypatch)
        protected = pl.DataFrame({"x": values}).dp.protect(None, neighboring_relation="replace_one")
        query = protected.agg(n=cut([1.5]).dp.count(epsilon=1))
        assert query.loss == dpp.Loss(Fraction(1), "epsilon")
        query.release()
        (count,) = drawn
        assert count.claim.cost("epsilon") == 1
        found.append(count)
    with_nan, without = found
    assert (with_nan.values.tolist(), without.values.tolist()) == ([15], [16])
    assert abs(with_nan.scaled - without.scaled).item() <= 1


def test_what_cut_makes_null_is_no_evidence_of_a_mode():
    frame = pl.DataFrame({"x": [NAN] * 90 + [1.0] * 6 + [2.0] * 4})
    column = cut([1.5], ["low", "high"]).cast(pl.String)
    if refused_on_polars_1(column):
        return
    answer = frame.dp.protect(None).agg(x=column.dp.mode(["high", "low"], epsilon=1000)).release()
    assert answer.item() == "low"


# --- opendp #2944: `cut().to_physical()` numbers the bins by where they first appear ---------------------------------


REFUSED = re.compile("may take a category's number, which other rows decide|needs Polars 2")


def physical(values: list[float]) -> list[int] | None:
    """The codes as a private frame makes them; None where it refuses the step."""
    frame = pl.DataFrame({"x": values})
    try:
        safe = row_by_row(cut([1.0]).to_physical(), frame.schema, "select")
    except ValueError as error:
        assert REFUSED.search(str(error))  # noqa: PT017
        return None
    return frame.select(safe).to_series().to_list()


def test_one_row_does_not_change_the_codes_of_all_others():
    """The rows of the report: where its codes are 0 a hundred times, one row before them made them 1."""
    alone, beside = physical([0.5] * 100), physical([2.0] + [0.5] * 100)
    assert (alone is None) == (beside is None)
    if alone is not None and beside is not None:  # since Polars 2.1 the bins are an Enum
        assert alone == beside[1:]


def test_a_categorys_number_hangs_on_the_rows_before_and_is_refused():
    codes = []
    for before in ([], ["high"]):
        dtype = pl.Categorical(pl.Categories.random())
        frame = pl.DataFrame({"x": pl.Series([*before, "low", "low"], dtype=dtype)})
        codes.append(frame.select(pl.col("x").to_physical()).to_series().to_list()[-2:])
        for step in (pl.col("x").to_physical(), pl.col("x").cast(pl.UInt32), pl.col("x").hash()):
            with pytest.raises(ValueError, match=REFUSED):
                frame.dp.protect(None).select(step)
    assert codes[0] != codes[1]  # so there is something to refuse


# --- opendp #2945: a group of k rows was taken to change by at most k: if all are replaced, it changes by 2k -----


@pytest.mark.parametrize("unit", ["epsilon", "rho"])
def test_three_rows_replaced_are_six_rows_changed(monkeypatch, unit):
    """From 10, 10, 10 to −10, −10, −10 the sum moves by 60. Noise for 30 loses twice epsilon, four times rho."""
    found = []
    for value in (10, -10):
        drawn = record(monkeypatch)
        frame = pl.DataFrame({"a": ["a"] * 3, "p": [1] * 3, "b": [value] * 3})
        protected = frame.dp.protect("p", max_rows_per_group=3, max_groups=1, neighboring_relation="replace_one")
        protected.group_by({"a": ["a"]}).agg(pl.col("b").dp.sum(-10, 10, **{unit: 1})).release()
        found.append(drawn[0])
    moved = abs(found[0].values - found[1].values).item()
    assert moved == 60
    rate = float(found[0].claim.rate)
    lost = moved * rate if unit == "epsilon" else (moved * rate) ** 2 / 2
    assert lost == pytest.approx(1, rel=1e-12)


def test_a_loss_for_one_relation_is_no_loss_for_the_other():
    """The relation is part of the claim; a budget does not mix the two."""
    frame, budget = pl.DataFrame({"x": [1]}), dpp.Budget(epsilon=1)
    asked = dpp.median("x", [1, 2], epsilon=Fraction(1, 4))
    frame.dp.protect(None, budget=budget).agg(asked).release()
    with pytest.raises(ValueError, match="neighboring_relation"):
        frame.dp.protect(None, budget=budget, neighboring_relation="replace_one").agg(asked).release()
    assert budget.spent == Fraction(1, 4)


# --- opendp #2949: a bound on groups outlived the column of groups ---------------------------------------------------


@pytest.mark.parametrize("loss", [{"rho": 0.5}, {"epsilon": 1}], ids=str)
def test_bounds_hold_on_the_groups_that_are_released(monkeypatch, loss):
    """Two people with a row in each of 100 groups, and all groups made one: the fault lets one person add 100."""
    rows = pl.DataFrame({"id": [0] * 100 + [1] * 100, "g": [*range(100)] * 2})
    found = []
    for frame in (rows, rows.filter(pl.col("id") == 1)):
        drawn = record(monkeypatch)
        protected = frame.dp.protect("id", max_rows_per_group=1, max_groups=100)
        merged = protected.with_columns(g=pl.lit(0, dtype=pl.Int64))
        merged.group_by({"g": [0]}).agg(n=dpp.len(**loss)).release()
        found.append(drawn[0])
    assert [each.values.tolist() for each in found] == [[2], [1]]
    moved = abs(found[0].scaled - found[1].scaled).item()
    assert (moved if "epsilon" in loss else moved**2 / 2) <= 1.0 * float(next(iter(loss.values()))) * (1 + 1e-12)


def test_who_is_a_person_is_not_redefined():
    protected = pl.DataFrame({"id": [0, 1], "g": [0, 0]}).dp.protect("id", max_rows=1)
    for step in ({"id": pl.col("g")}, {"id": pl.lit(0)}, {"id": pl.col("id") // 2}):
        with pytest.raises(ValueError, match="must not change the privacy unit 'id'"):
            protected.with_columns(**step)


# --- diffprivlib #107: all probabilities underflow, and a quantile raises on some data -------------------------------


def test_a_quantile_of_equal_values_among_others_has_an_answer():
    """The data of the report; its probabilities are all 0, and their sum divides them into NaN."""
    rng = np.random.default_rng(0)
    values = np.concatenate([np.full(800_000, 65_000), rng.integers(0, 500_000, 200_000)])
    for epsilon in (0.3, 0.5, 1):
        # Every other candidate is 100,000 rows away: its coin is below exp(−10,000).
        assert (
            pl.DataFrame({"x": values}).select(pl.col("x").dp.median(range(500_001), epsilon=epsilon)).item() == 65_000
        )


@pytest.mark.slow
@pytest.mark.parametrize("call", [dpp.permute_and_flip, dpp.exponential_mechanism])
@pytest.mark.parametrize("lowest", [-(10**6), -(10**15)])
def test_only_differences_of_scores_matter_however_low_they_are(call, lowest):
    """exp of every score is 0 in floats; the law is that of the differences, exactly."""
    scores = np.array([0, -1, -1, -3]) + lowest
    assert np.exp(scores.astype(float)).sum() == 0
    mechanism = "permute_and_flip" if call is dpp.permute_and_flip else "exponential"
    law = [float(x) for x in reference.law([0, -1, -1, -3], rate=1, mechanism=mechanism)]
    several = np.tile(scores, (40_000, 1))
    check_sampler(lambda factor: call(several, epsilon=2 * factor, sensitivity=1), law)


def test_far_scores_have_probabilities_all_the_same():
    """Also where only far candidates are left to compare: no coin of theirs is lost."""
    law = analysis.selection_probabilities([0, -800, -801], epsilon=2, sensitivity=1)
    assert law[0] == 1
    answer = dpp.permute_and_flip([[-800, -801]] * 1000, epsilon=2, sensitivity=1)
    assert set(answer.tolist()) == {0, 1}
