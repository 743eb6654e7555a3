"""Choices of rows and first candidates: argmax, argmin, first_above."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import polars as pl

from dp_polars._accounting.claims import Claim, range_of
from dp_polars._accounting.terms import Loss, Terms
from dp_polars._base.calls import called
from dp_polars._base.numbers import Number, given, one_of, positive_fraction
from dp_polars._bins.candidates import Categories, Grid, Values
from dp_polars._bins.weights import check_terms
from dp_polars._expressions.expression import IntoColumn, PrivateExpr, as_expression, on_terms
from dp_polars._questions.extremes import ArgMax, ArgMaxOfOwn, FirstAbove, as_threshold
from dp_polars._questions.question import claim_with_gap


@called
def argmax(
    column: IntoColumn,
    *,
    sensitivity: Number | pl.Expr,
    monotonic: bool = False,
    gap: bool = False,
    gap_step: Number | None = None,
    epsilon: Number | None = None,
    rho: Number | None = None,
    mechanism: str | None = None,
) -> PrivateExpr:
    r"""Select the row with the highest score in each group, by scores of the caller's own.

    The answer is `epsilon`-differentially private (or `rho`-zCDP) for any change of the rows that moves the scores by
    at most `sensitivity`.

    Parameters
    ----------
    column
        The scores' column or expression: integers, floats or decimals (these as 64-bit multiples of their last digit).
    sensitivity
        The most that one person can change any one score, *summed over all groups* that this person touches. We don't
        check this: if it is too small, the answer is less private than `epsilon` says. Or an expression such as
        `pl.col("price")`: a *public* sensitivity for every row. Then a person's largest change in a group is measured
        in units of the row's own sensitivity, and these changes must add up to at most 1 over all groups. So where a
        person touches several groups, each sensitivity must be as many times larger. A row whose sensitivity is null,
        NaN, infinite or not above 0 can't win. A group may have at most 4,096 rows that can win.
    monotonic
        Whether one person moves all scores in the same direction. We don't check this. R is then `sensitivity` instead
        of twice that. Counts are monotonic where a person comes or goes, but not where one is replaced. It must be left
        out with a column of sensitivities.
    gap
        Whether the answer comes with its gap: how much higher (for argmin: lower) its score was than the next one,
        with noise. It costs nothing more, but needs `epsilon`. It must be left out with a column of sensitivities.
    gap_step
        The public unit to which a gap is rounded down, above 0. None: 1 for integers, the last digit for decimals.
        Floats need one.
    epsilon, rho, mechanism
        As for `mode`.

    Returns
    -------
    PrivateExpr
        The position of the chosen row in its group, UInt32; null where no row has a finite score. With `gap`, a
        struct: `answer` is the position, and `gap` a Float64 for floats and for a step that is a float or a Fraction,
        a Decimal for decimals and for a step with decimal places, else Int64; null where no other row has a finite
        score. Every evaluation is a release: collecting twice pays twice.

    Raises
    ------
    TypeError, ValueError
        As for `mode`.

    Notes
    -----
    Which rows exist, and which of them have a finite score, is taken as public. A row with a null, NaN or infinite
    score can't win. McKenna & Sheldon 2020, arXiv 2010.12603.

    With sensitivities D of their own, the score of row i is the least of ((q_i − t·D_i) − (q_j − t·D_j))/(D_i + D_j)
    over all j, of exactly these numbers: its sensitivity is 1, and R = 2 (Raskhodnikova & Smith 2016, arXiv
    1504.07912). Here t = ln(k/β)/λ for k rows and β = 0.05 (permute-and-flip: (k − 1)/2 for k), rounded. With
    probability 1 − β, the chosen row has q_i >= q_j − 2·t·D_j for all j: it is near the best row by *that* row's
    sensitivity, not the largest one. All pairs of rows of a group are compared.

    Proofs: :doc:`/proofs/permute-and-flip`, :doc:`/proofs/ranges`, :doc:`/proofs/gaps`.

    Examples
    --------
    >>> import polars as pl
    >>> import dp_polars as dpp
    >>> prices = pl.DataFrame({"price": [1, 2, 3], "revenue": [100, 900, 300]})
    >>> best = dpp.argmax("revenue", epsilon=1.0, sensitivity=3, monotonic=True)
    >>> prices.select(pl.col("price").get(best)).item()
    2
    >>> best = dpp.argmax("revenue", epsilon=1.0, sensitivity=pl.col("price"))
    >>> prices.select(pl.col("price").get(best)).item()
    2
    """
    loss = Loss.of(epsilon=epsilon, rho=rho)
    return _best(column, loss, mechanism, sensitivity, monotonic, gap, gap_step, lowest=False)


@called
def argmin(
    column: IntoColumn,
    *,
    sensitivity: Number | pl.Expr,
    monotonic: bool = False,
    gap: bool = False,
    gap_step: Number | None = None,
    epsilon: Number | None = None,
    rho: Number | None = None,
    mechanism: str | None = None,
) -> PrivateExpr:
    r"""Select the row with the lowest score in each group: `argmax` of the negated scores.

    Proofs: :doc:`/proofs/permute-and-flip`, :doc:`/proofs/ranges`, :doc:`/proofs/gaps`.

    Parameters
    ----------
    all
        As for `argmax`.

    Returns
    -------
    PrivateExpr
        As for `argmax`.

    Raises
    ------
    TypeError, ValueError
        As for `mode`.

    Examples
    --------
    >>> import polars as pl
    >>> import dp_polars as dpp
    >>> errors = pl.DataFrame({"model": ["a", "b"], "error": [700, 20]})
    >>> best = dpp.argmin("error", epsilon=1.0, sensitivity=5)
    >>> errors.select(pl.col("model").get(best)).item()
    'b'
    """
    loss = Loss.of(epsilon=epsilon, rho=rho)
    return _best(column, loss, mechanism, sensitivity, monotonic, gap, gap_step, lowest=True)


def _best(
    column: IntoColumn,
    loss: Loss,
    mechanism: str | None,
    sensitivity: Number | pl.Expr,
    monotonic: bool,
    gap: bool,
    gap_step: Number | None,
    *,
    lowest: bool,
) -> PrivateExpr:
    if isinstance(sensitivity, pl.Expr):
        range_of(1, monotonic)  # checks it
        if monotonic:
            msg = (
                "monotonic must be left out where sensitivity is a column: each score is then compared with all "
                "others, in units of both sensitivities, and may rise or fall whichever way the rows' own scores move."
            )
            raise ValueError(msg)
        claim = Claim.for_scores(loss, mechanism, 1, monotonic=False)
        if claim_with_gap(claim, gap=gap).gap or gap_step is not None:
            msg = (
                "gap and gap_step must be left out where sensitivity is a column: what is ahead then is no score of a "
                "row, but its distance to the others in units of their sensitivities."
            )
            raise ValueError(msg)
        return as_expression(ArgMaxOfOwn(claim, lowest), column, sensitivity)
    claim = claim_with_gap(Claim.for_scores(loss, mechanism, sensitivity, monotonic), gap=gap)
    if gap_step is None:
        return as_expression(ArgMax(claim, lowest), column)
    if not gap:
        msg = f"gap_step must be left out without gap=True, got {given(gap_step)}."
        raise ValueError(msg)
    step = positive_fraction("gap_step", gap_step)
    check_terms("gap_step", step)
    return as_expression(ArgMax(claim, lowest, step, isinstance(gap_step, (float, np.floating, Fraction))), column)


@called
def first_above(
    column: IntoColumn,
    candidates: Values,
    *,
    threshold: Number,
    epsilon: Number | None = None,
    rho: Number | None = None,
    loss_weight: Number | None = None,
    counts: str = "people",
    gap: bool = False,
    contributions: int = 1,
) -> PrivateExpr:
    r"""Select the first candidate of each group, in their public order, whose count is at least about a threshold.

    The answer is `epsilon`-differentially private, over all groups together, if one person with at most `contributions`
    rows comes or goes. On a private frame, `protect` has the limits and the neighbouring relation. The range R is 2,
    and 3 under "replace_one".

    Parameters
    ----------
    column
        As for `mode`; with a `dp_polars.grid` of candidates as for `quantile`.
    candidates
        The public answers, in the order in which they are looked at: as for `mode` a list, a range, a Series, an Arrow
        array or a `polars.Enum`. Or a `dp_polars.grid`, ascending, which takes no memory: each value counts as its
        nearest point then, and values beyond the ends count as the ends. Never take them from the data.
    threshold
        A public number of people or rows, above 0 and at most 2**62: an int, float, Fraction or Decimal.
    rho
        Must be left out. A budget in rho takes `epsilon`, and is charged epsilon·tanh(epsilon/2) in each group.
    gap
        Whether the answer comes with its gap: how many people (or rows) it has above the threshold, with noise that
        both have. It costs nothing more.
    all others
        As for `mode`.

    Returns
    -------
    PrivateExpr
        One answer per group, of the column's type (of a Categorical, a String) or of the grid's; null where no
        candidate reaches the threshold. With `gap`, a struct: `answer` of that type, and `gap`, an Int64 of at least
        0, rounded down; null where the answer is null. Every evaluation is a release: collecting twice pays twice.

    Raises
    ------
    TypeError, ValueError
        As for `mode`.

    Notes
    -----
    Nulls and values outside a list of candidates are ignored. The threshold gets exponential noise once in each group,
    and each count once; the first noisy count that reaches the noisy threshold is the answer. The rate of both is λ =
    epsilon/(R·T), T the rows of a person, or the groups where people are counted. So the loss does not depend on how
    many candidates are looked at. Exponential noise has half the variance of the Laplace noise that this is usually
    drawn with (Dwork & Roth 2014, section 3.6; Durfee 2023, NeurIPS).

    With probability 0.95 no candidate that was passed over has ln(10)/λ or more above the threshold, and with
    probability 0.95 the answer of k candidates has more than the threshold less ln(10·k)/λ; `explain` shows both.
    Where one person has few candidates in a group, `value_counts` is better, and shows all counts; `explain` says so.
    Time and memory grow with the candidates that somebody has.

    Proof: :doc:`/proofs/first-above`.

    Examples
    --------
    >>> import polars as pl
    >>> import dp_polars as dpp
    >>> df = pl.DataFrame({"week": [1] * 20 + [2] * 40 + [3] * 400 + [4] * 900})
    >>> df.select(dpp.first_above("week", range(1, 53), threshold=200, epsilon=1)).item()
    3
    """
    terms = Terms.of(epsilon, rho, contributions, None, within=None, loss_weight=loss_weight)
    if terms.loss.unit != "epsilon":
        msg = (
            f"the first above a threshold must be requested with epsilon, got {terms.loss}: it is drawn with noise of "
            "pure differential privacy.\n\nHint: epsilon=1.0, which a budget in rho takes too."
        )
        raise ValueError(msg)
    query = FirstAbove(
        as_threshold(threshold),
        candidates if isinstance(candidates, Grid) else Categories.of(candidates),
        claim_with_gap(Claim.on(terms, "threshold"), gap=gap),
        one_of("counts", counts, ("people", "rows"), "'people' or 'rows'") == "people",
    )
    return on_terms(query, terms, column)
