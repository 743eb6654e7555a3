"""The laws of private numbers on public rows: what noise makes of the totals that the bounds leave."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from dp_polars._mechanisms.noise import check_scale, noise_bound
from dp_polars._questions.averages import Mean
from dp_polars._questions.measures import Multiple
from dp_polars._questions.variances import Variance
from dp_polars.analysis._noise_laws import NoiseLaw

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dp_polars._accounting.claims import Claim
    from dp_polars._base.arrays import Ints
    from dp_polars._questions.measures import Measure, Total, ValueCounts
    from dp_polars._questions.question import Columns

# Both ends of a range are exceeded with this probability.
_END = 0.05
# Noisy counts that a mean's law is added up over.
_CELLS = 2049
# The same for each of the three draws of a variance, on either side of 0.
_FEW_CELLS = 48


def law_of_total(
    question: Total, types: Columns, truly: list[Ints], bounded: list[Ints]
) -> Callable[[Claim], pl.DataFrame]:
    """Return what gives the law of a count, a sum or a mean at a claim, a row per group.

    Parameters
    ----------
    truly, bounded
        For each histogram, the sum of weights of each group, shape (g,): of all rows, and of those that count.
    """
    if isinstance(question, Mean):
        return lambda claim: _of_mean(question.with_claim(claim), types, truly, bounded)
    if isinstance(question, Variance):
        return lambda claim: _of_variance(question.with_claim(claim), types, truly, bounded)
    if not isinstance(question, Multiple):
        msg = f"simulate: the law of a {type(question).__name__} is not known."
        raise TypeError(msg)
    step = float(question.answer_step(*types))

    def law(claim: Claim) -> pl.DataFrame:
        noise, noisy = _noise(question.with_claim(claim), types)
        bound, bias = noise_bound(noise, 2 * _END), bounded[0] - truly[0]
        return pl.DataFrame(
            {
                "true_answer": question.named(truly, *types),
                "probability_true": noisy.probability(bias),
                "expected_error": noisy.error(bias) * step,
                "answer_5": question.named([bounded[0] - bound], *types),
                "answer_95": question.named([bounded[0] + bound], *types),
            }
        )

    return law


def law_of_counts(question: ValueCounts, types: Columns, truly: Ints, bounded: Ints) -> Callable[[Claim], pl.DataFrame]:
    """Return what gives the law of the counts of all candidates at a claim, a row per group.

    Parameters
    ----------
    truly, bounded
        The counts of all candidates, group after group: of all rows, and of those that count.
    """
    size = question.coding(*types).size

    def law(claim: Claim) -> pl.DataFrame:
        noise, noisy = _noise(question.with_claim(claim), types)
        bound, bias = noise_bound(noise, 2 * _END), bounded - truly
        return pl.DataFrame(
            {
                "true_answer": question.named(truly, *types),
                "probability_true": noisy.probability(bias).reshape(-1, size).prod(axis=1),
                "expected_error": noisy.error(bias).reshape(-1, size).mean(axis=1),
                "answer_5": question.named(bounded - bound, *types),
                "answer_95": question.named(bounded + bound, *types),
            }
        )

    return law


def _noise(question: Measure, types: Columns) -> tuple[Claim, NoiseLaw]:
    (claim,) = question.noise(*types)
    check_scale(claim)
    return claim, NoiseLaw(claim)


def _of_mean(question: Mean, types: Columns, truly: list[Ints], bounded: list[Ints]) -> pl.DataFrame:
    """Return the law of a mean: given the noisy count, it is a line in the noise of the sum, cut at the bounds."""
    claims = question.noise(*types)
    for claim in claims:
        check_scale(claim)
    noisy = NoiseLaw(claims[0])
    low, high = float(question.lower), float(question.upper)
    middle, unit = (low + high) / 2, float(question.units(*types).step) / 2
    off, shares = cells_of_noise(claims[1])
    true = question.named(truly, *types).to_numpy()
    ends, errors = np.empty((len(true), 2)), np.empty(len(true))
    for group, (distance, count) in enumerate(zip(*(part.tolist() for part in bounded), strict=True)):
        per_unit = np.maximum(count + off, 1) / unit

        def noise_at(mean: Any, per_unit: Any = per_unit, distance: int = distance) -> Any:  # noqa: ANN401
            """Return the noise of the sum, for each noisy count, at which the mean is this one before it is cut."""
            return (mean - middle) * per_unit - distance

        def up_to(means: NDArray[np.float64], noise_at: Any = noise_at) -> NDArray[np.float64]:  # noqa: ANN401
            upto: NDArray[np.float64] = noisy.up_to(np.floor(noise_at(means[:, None]))) @ shares
            return upto

        ends[group] = _quantiles(up_to, low, high)
        at, at_low, at_high = noise_at(true[group]), noise_at(low), noise_at(high)
        above = noisy.excess(at) - noisy.excess(at_high)
        below = noisy.excess(-at) - noisy.excess(-at_low)
        errors[group] = ((above + below) / per_unit) @ shares
    return _law_of_groups(true, errors, ends, truly[-1])


def _law_of_groups(
    true: NDArray[np.float64], errors: NDArray[np.float64], ends: NDArray[np.float64], counts: Ints
) -> pl.DataFrame:
    """Return the law of a number that a group without values lacks."""
    return pl.DataFrame(
        {
            "true_answer": true,
            "probability_true": pl.Series([None] * len(true), dtype=pl.Float64),
            "expected_error": errors,
            "answer_5": ends[:, 0],
            "answer_95": ends[:, 1],
        }
    ).with_columns(
        pl.when(pl.Series(counts > 0)).then(pl.col(name)).alias(name) for name in ("true_answer", "expected_error")
    )


def _of_variance(question: Variance, types: Columns, truly: list[Ints], bounded: list[Ints]) -> pl.DataFrame:
    """Return the law of a variance, or of its root: from all combinations of what the noise of its three draws is."""
    claims = question.noise(*types)
    for claim in claims:
        check_scale(claim)
    (off, *of_off), (by, *of_by), (more, *of_more) = (_coarse_cells(claim) for claim in claims)
    noise = [part.ravel() for part in np.meshgrid(off, by, more, indexing="ij")]
    law = np.einsum("i,j,k->ijk", *of_off, *of_by, *of_more).ravel()
    true = question.of_totals(truly, *types)
    ends, errors = np.empty((len(true), 2)), np.empty(len(true))
    for group, totals in enumerate(zip(*(part.tolist() for part in bounded), strict=True)):
        answers = question.of_totals([total + part for total, part in zip(totals, noise, strict=True)], *types)
        errors[group] = law @ abs(answers - true[group])
        order = np.argsort(answers)
        upto = np.cumsum(law[order])
        ends[group] = answers[order[np.searchsorted(upto, [_END, 1 - _END])]]
    return _law_of_groups(true, errors, ends, truly[-1])


def _coarse_cells(claim: Claim) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return means of the noise in stretches, and their probabilities: wider ones far from 0."""
    law, reach = NoiseLaw(claim), noise_bound(claim, 1e-9)
    ends = np.unique(np.ceil(reach * np.linspace(0, 1, _FEW_CELLS + 1) ** 2))  # each stretch ends with one of these
    upto, above = law.up_to(ends), law.excess(ends)
    beyond = above + ends * (1 - upto)  # E(X; X > end)
    shares = np.append(-np.diff(1 - upto), 1 - upto[-1])
    means = np.append(-np.diff(beyond), beyond[-1]) / np.where(shares > 0, shares, 1)
    middle = 2 * upto[0] - 1  # P(X = 0)
    return np.concatenate([-means[::-1], [0.0], means]), np.concatenate([shares[::-1], [middle], shares])


def cells_of_noise(claim: Claim) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return values of the noise of a count, and their probabilities: one each, or the middles of even stretches."""
    reach = noise_bound(claim, 1e-9)
    width = -(-(2 * reach + 1) // _CELLS)
    first = np.arange(-reach, reach + 1, width).astype(np.float64)
    law = NoiseLaw(claim)
    shares = law.up_to(first + width - 1) - law.up_to(first - 1)
    return first + (width - 1) / 2, shares / shares.sum()


def _quantiles(
    up_to: Callable[[NDArray[np.float64]], NDArray[np.float64]], low: float, high: float
) -> NDArray[np.float64]:
    """Return the first values that are not exceeded with these probabilities, by bisection."""
    shares = np.array([_END, 1 - _END])
    below, above = np.full(2, low), np.full(2, high)
    above[up_to(below) >= shares] = low
    for _ in range(50):
        middle = (below + above) / 2
        enough = up_to(middle) >= shares
        above, below = np.where(enough, middle, above), np.where(enough, below, middle)
    return above
