"""Choices of rows and first candidates: argmax, argmin, first_above."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import polars as pl

from dp_polars._accounting.claims import range_of
from dp_polars._accounting.terms import Loss, Terms
from dp_polars._base.calls import called
from dp_polars._base.numbers import Number, given, one_of, positive_fraction
from dp_polars._bins.candidates import Categories, Grid, Values
from dp_polars._bins.weights import check_terms
from dp_polars._expressions.expression import IntoColumn, PrivateExpr, as_expression, on_terms
from dp_polars._statistics.extremes import ArgMax, ArgMaxOfOwn, FirstAbove, as_threshold
from dp_polars._statistics.statistic import terms_with_gap


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
    r"""Select the row with the highest score in each group: `.dp.argmax` as a function.

    Parameters
    ----------
    column
        The column's name, or an expression with one output: the scores, integers, floats or decimals.
    all others
        As for the method, which also documents results and errors.

    Examples
    --------
    >>> import polars as pl
    >>> import dp_polars as dpp
    >>> prices = pl.DataFrame({"price": [1, 2, 3], "revenue": [100, 900, 300]})
    >>> best = dpp.argmax("revenue", epsilon=1.0, sensitivity=3, monotonic=True)
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
    r"""Select the row with the lowest score in each group: `.dp.argmin` as a function.

    Parameters
    ----------
    column
        The column's name, or an expression with one output: the scores, integers, floats or decimals.
    all others
        As for the method, which also documents results and errors.

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
    terms = replace(Terms.at(loss, mechanism=mechanism), neighboring_relation=None)
    if isinstance(sensitivity, pl.Expr):
        range_of(1, monotonic)  # validates it
        if monotonic:
            msg = (
                "monotonic must be left out where sensitivity is a column: each score is then compared with all "
                "others, in units of both sensitivities, and may rise or fall whichever way the rows' own scores move."
            )
            raise ValueError(msg)
        if terms_with_gap(terms, gap=gap).gap or gap_step is not None:
            msg = (
                "gap and gap_step must be left out where sensitivity is a column: what is ahead then is no score of a "
                "row, but its distance to the others in units of their sensitivities."
            )
            raise ValueError(msg)
        return as_expression(ArgMaxOfOwn(terms, lowest), column, sensitivity)
    score_range, terms = range_of(sensitivity, monotonic), terms_with_gap(terms, gap=gap)
    if gap_step is None:
        return as_expression(ArgMax(terms, score_range, lowest), column)
    if not gap:
        msg = f"gap_step must be left out without gap=True, got {given(gap_step)}."
        raise ValueError(msg)
    step = positive_fraction("gap_step", gap_step)
    check_terms("gap_step", step)
    of_floats = isinstance(gap_step, (float, np.floating, Fraction))
    return as_expression(ArgMax(terms, score_range, lowest, step, of_floats), column)


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
    r"""Select the first candidate of each group with a count of about a threshold or more: `.dp.first_above`.

    Parameters
    ----------
    column
        The column's name, or an expression with one output: as for `mode`, or numbers with a grid.
    all others
        As for the method, which also documents results and errors.

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
        terms_with_gap(terms, gap=gap),
        one_of("counts", counts, ("people", "rows"), "'people' or 'rows'") == "people",
    )
    return on_terms(query, column)
