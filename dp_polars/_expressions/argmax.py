"""The best row, by scores of the caller's own, as an expression."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from dp_polars._accounting.claims import Claim, range_of
from dp_polars._accounting.terms import Loss
from dp_polars._base.calls import called
from dp_polars._base.numbers import given, positive_fraction
from dp_polars._codes.multiples import check_terms
from dp_polars._expressions.expressions import IntoColumn, PrivateExpr, as_expression
from dp_polars._questions.argmax import ArgMax, ArgMaxOfOwn
from dp_polars._questions.question import claim_with_lead

if TYPE_CHECKING:
    from dp_polars._base.numbers import Number


@called
def argmax(
    column: IntoColumn,
    *,
    sensitivity: Number | pl.Expr,
    monotonic: bool = False,
    lead: bool = False,
    lead_step: Number | None = None,
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
    lead
        Whether the answer comes with its lead: how much higher (for argmin: lower) its score was than the next one,
        with noise. It costs nothing more, but needs `epsilon`. It must be left out with a column of sensitivities.
    lead_step
        The public unit to which a lead is rounded down, above 0. None: 1 for integers, the last digit for decimals.
        Floats need one.
    epsilon, rho, mechanism
        As for `mode`.

    Returns
    -------
    PrivateExpr
        The position of the chosen row in its group, UInt32; null where no row has a finite score. With `lead`, a
        struct: `answer` is the position, and `lead` a Float64 for floats and for a step that is a float or a Fraction,
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

    Proofs: :doc:`/proofs/permute-and-flip`, :doc:`/proofs/ranges`, :doc:`/proofs/leads`.

    Examples
    --------
    >>> import polars as pl
    >>> import dp_polars as dpp
    >>> prices = pl.DataFrame({"price": [1, 2, 3], "revenue": [100, 900, 300]})
    >>> best = dpp.argmax("revenue", epsilon=1.0, sensitivity=3, monotonic=True)
    >>> prices.select(pl.col("price").get(best)).item()
    2
    >>> prices.select(
    ...     pl.col("price").get(
    ...         dpp.argmax("revenue", epsilon=1.0, sensitivity=pl.col("price"))
    ...     )
    ... ).item()
    2
    """
    loss = Loss.of(epsilon=epsilon, rho=rho)
    return _best(column, loss, mechanism, sensitivity, monotonic, lead, lead_step, lowest=False)


@called
def argmin(
    column: IntoColumn,
    *,
    sensitivity: Number | pl.Expr,
    monotonic: bool = False,
    lead: bool = False,
    lead_step: Number | None = None,
    epsilon: Number | None = None,
    rho: Number | None = None,
    mechanism: str | None = None,
) -> PrivateExpr:
    r"""Select the row with the lowest score in each group: `argmax` of the negated scores.

    Parameters
    ----------
    column, sensitivity, monotonic, lead, lead_step, epsilon, rho, mechanism
        As for `argmax`.

    Returns
    -------
    PrivateExpr
        As for `argmax`.

    Raises
    ------
    TypeError, ValueError
        As for `mode`.

    Notes
    -----
    Proofs: :doc:`/proofs/permute-and-flip`, :doc:`/proofs/ranges`, :doc:`/proofs/leads`.

    Examples
    --------
    >>> import polars as pl
    >>> import dp_polars as dpp
    >>> errors = pl.DataFrame({"model": ["a", "b"], "error": [700, 20]})
    >>> errors.select(
    ...     pl.col("model").get(dpp.argmin("error", epsilon=1.0, sensitivity=5))
    ... ).item()
    'b'
    """
    loss = Loss.of(epsilon=epsilon, rho=rho)
    return _best(column, loss, mechanism, sensitivity, monotonic, lead, lead_step, lowest=True)


def _best(
    column: IntoColumn,
    loss: Loss,
    mechanism: str | None,
    sensitivity: Number | pl.Expr,
    monotonic: bool,
    lead: bool,
    lead_step: Number | None,
    *,
    lowest: bool,
) -> PrivateExpr:
    """Return the expression of these arguments."""
    if isinstance(sensitivity, pl.Expr):
        range_of(1, monotonic)  # checks it
        if monotonic:
            msg = (
                "monotonic must be left out where sensitivity is a column: each score is then compared with all "
                "others, in units of both sensitivities, and may rise or fall whichever way the rows' own scores move."
            )
            raise ValueError(msg)
        claim = Claim.for_scores(loss, mechanism, 1, monotonic=False)
        if claim_with_lead(claim, lead=lead).lead or lead_step is not None:
            msg = (
                "lead and lead_step must be left out where sensitivity is a column: what leads is then no score of a "
                "row, but its distance to the others in units of their sensitivities."
            )
            raise ValueError(msg)
        return as_expression(ArgMaxOfOwn(claim, lowest), column, sensitivity)
    claim = claim_with_lead(Claim.for_scores(loss, mechanism, sensitivity, monotonic), lead=lead)
    if lead_step is None:
        return as_expression(ArgMax(claim, lowest), column)
    if not lead:
        msg = f"lead_step must be left out without lead=True, got {given(lead_step)}."
        raise ValueError(msg)
    step = positive_fraction("lead_step", lead_step)
    check_terms("lead_step", step)
    query = ArgMax(claim, lowest, step, isinstance(lead_step, (float, np.floating, Fraction)))
    return as_expression(query, column)
