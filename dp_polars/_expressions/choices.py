"""Private choices as expressions."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

import polars as pl

from dp_polars._expressions.expressions import IntoColumn, PrivateExpr, as_expression
from dp_polars._queries.argmax import ask_argmax, ask_argmax_of_own
from dp_polars._queries.choices import ask_mode, ask_quantile

if TYPE_CHECKING:
    from dp_polars._numeric.numbers import Number
    from dp_polars._queries.candidates import Values


def mode(
    column: IntoColumn,
    candidates: Values | None = None,
    *,
    epsilon: Number | None = None,
    rho: Number | None = None,
    counts: str = "people",
    too_few: int | None = None,
    lead: bool = False,
    contributions: int = 1,
    neighboring_relation: str = "add_or_remove_one",
    mechanism: str | None = None,
) -> PrivateExpr:
    r"""Select the most common candidate of each group.

    The answer is `epsilon`-differentially private (or `rho`-zCDP) under `neighboring_relation` for a person with at
    most `contributions` rows, over all groups together. Group keys that come from the data are not protected: see the
    notes.

    Parameters
    ----------
    column
        The column's name, or an expression with one output: strings, categoricals, enums, integers, booleans, dates,
        times, durations or decimals.
    candidates
        The public answers: a list, a range, a Series, an Arrow array or a `polars.Enum`, without nulls and
        repetitions. They may be left out where the column's type names them (Enum, Boolean). Never take them from the
        data.
    epsilon, rho
        What one person loses in all, over all groups, in pure DP or in zCDP: exactly one of them. An int, float,
        Fraction or Decimal; a float is the decimal that it prints as.
    counts
        "people" or "rows": what is counted on a private frame that knows who is a person. The top destination by
        aircraft is not the top one by flights. Rows need the bounds that quantiles need. Elsewhere rows are counted.
    too_few
        A whole number of at least 1: a further public candidate with this constant score, which stands for "fewer than
        about so many". Where it wins, the answer is null. It costs nothing: a constant moves with nobody, so R stays.
    lead
        Whether the answer comes with its lead: by how many people (or rows) it was ahead of the next candidate, with
        noise. It costs nothing more, under `epsilon` only. The candidate for too few counts like any other.
    contributions
        How many rows one person can have. With `group_by_dynamic` or `rolling`, windows that overlap multiply them.
    neighboring_relation
        "add_or_remove_one" or "replace_one". The latter doubles R, the most that one row changes the difference of
        two scores.
    mechanism
        None: permute-and-flip under `epsilon`, the exponential mechanism under `rho`. Or "permute_and_flip" or
        "exponential", charged what is proved for it.

    Returns
    -------
    PrivateExpr
        One answer per group, of the column's type; of a Categorical, a String. With `lead`, a struct: `answer` of that
        type, and `lead`, an Int64 of at least 0, rounded down; null where there is no other candidate. Take it apart
        after collecting (`unnest`): an expression that names both fields may be drawn twice. Every evaluation is a
        release: collecting twice pays twice.

    Raises
    ------
    TypeError, ValueError
        Where an argument is not as described. What only the column's type tells, Polars raises with the same words
        (InvalidOperationError) when it resolves the schema. Nothing in the rows raises.

    Notes
    -----
    A null, and a value that is no candidate, is no evidence. A group without rows draws uniformly. The score is the
    count, R = 1 per row (McKenna & Sheldon 2020, arXiv 2010.12603). `DataFrame.group_by` takes its keys from the data,
    which publishes that each group exists: use `LazyFrame.dp.protect` where that must not be.

    Examples
    --------
    >>> import polars as pl
    >>> import dp_polars as dpp
    >>> df = pl.DataFrame({"ward": [1] * 50 + [2] * 50, "diagnosis": ["flu"] * 50 + ["cold"] * 50})
    >>> df.group_by("ward", maintain_order=True).agg(dpp.mode("diagnosis", ["cold", "flu"], epsilon=1.0))
    shape: (2, 2)
    ┌──────┬───────────┐
    │ ward ┆ diagnosis │
    │ ---  ┆ ---       │
    │ i64  ┆ str       │
    ╞══════╪═══════════╡
    │ 1    ┆ flu       │
    │ 2    ┆ cold      │
    └──────┴───────────┘
    """
    query = ask_mode(
        candidates,
        counts=counts,
        too_few=too_few,
        lead=lead,
        epsilon=epsilon,
        rho=rho,
        contributions=contributions,
        neighboring_relation=neighboring_relation,
        mechanism=mechanism,
    )
    return as_expression(query, column)


def quantile(
    column: IntoColumn,
    alpha: Number,
    candidates: Values,
    *,
    epsilon: Number | None = None,
    rho: Number | None = None,
    contributions: int = 1,
    neighboring_relation: str = "add_or_remove_one",
    mechanism: str | None = None,
) -> PrivateExpr:
    r"""Select the candidate nearest to the lower α-quantile of each group.

    The answer is `epsilon`-differentially private (or `rho`-zCDP) under `neighboring_relation` for a person with at
    most `contributions` rows, over all groups together.

    Parameters
    ----------
    column
        The column's name, or an expression with one output: numbers, dates, datetimes, times or durations.
    alpha
        Strictly between 0 and 1, with a denominator of at most 10,000.
    candidates
        The public answers: a `dp_polars.grid` or a range, which are never materialised, or a list, Series or Arrow
        array without nulls, NaN and repetitions, in any order. Never take them from the data.
    epsilon, rho, contributions, neighboring_relation, mechanism
        As for `mode`.

    Returns
    -------
    PrivateExpr
        One answer per group, of the candidates' type. Every evaluation is a release: collecting twice pays twice.

    Raises
    ------
    TypeError, ValueError
        As for `mode`.

    Notes
    -----
    Null and NaN are no evidence. Every value counts as its nearest candidate (ties down, the ends take what lies beyond
    them); among these the score is minus the number of rows, in units of 1/den for α = num/den, by which the candidate
    misses being the lower quantile: −max(0, num·N − den·A, den·L − num·N + 1) with L rows below it, A at or below it,
    N in all; R = 2·max(num, den − num) per row. At α = 1/2 it is the median score of McKenna & Sheldon 2020
    (arXiv 2010.12603, Section 6). A group without rows draws uniformly.

    Examples
    --------
    >>> import polars as pl
    >>> import dp_polars as dpp
    >>> df = pl.DataFrame({"age": [40] * 200})
    >>> df.select(dpp.quantile("age", 0.9, range(0, 121), epsilon=2)).item()
    40
    """
    query = ask_quantile(
        alpha,
        candidates,
        epsilon=epsilon,
        rho=rho,
        contributions=contributions,
        neighboring_relation=neighboring_relation,
        mechanism=mechanism,
    )
    return as_expression(query, column)


def median(
    column: IntoColumn,
    candidates: Values,
    *,
    epsilon: Number | None = None,
    rho: Number | None = None,
    contributions: int = 1,
    neighboring_relation: str = "add_or_remove_one",
    mechanism: str | None = None,
) -> PrivateExpr:
    r"""Select the candidate nearest to the (lower) median of each group: `quantile` at α = 1/2.

    Parameters
    ----------
    column, candidates, epsilon, rho, contributions, neighboring_relation, mechanism
        As for `quantile`.

    Returns
    -------
    PrivateExpr
        One answer per group, of the candidates' type. Every evaluation is a release: collecting twice pays twice.

    Raises
    ------
    TypeError, ValueError
        As for `mode`.

    Notes
    -----
    As for `quantile`; R = 2 per row.

    Examples
    --------
    >>> import polars as pl
    >>> import dp_polars as dpp
    >>> df = pl.DataFrame({"cost": [19.99] * 200})
    >>> df.select(dpp.median("cost", dpp.grid(0, 1000, step=0.01), rho=0.5)).item()
    19.99
    """
    return quantile(
        column,
        0.5,
        candidates,
        epsilon=epsilon,
        rho=rho,
        contributions=contributions,
        neighboring_relation=neighboring_relation,
        mechanism=mechanism,
    )


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

    The answer is `epsilon`-differentially private (or `rho`-zCDP) for whatever relation of data sets `sensitivity`
    holds for.

    Parameters
    ----------
    column
        The scores' column or expression: integers, floats or decimals (these as 64-bit multiples of their last digit).
    sensitivity
        The caller's claim: the most that one person can change any one score, *summed over all groups* that this person
        touches. Or, as an expression such as `pl.col("price")`, a *public* sensitivity for every row: the claim is then
        that, over all groups together, the largest change of a score in units of its own row's sensitivity adds up to
        at most 1. So where a person touches several groups, each sensitivity must be as many times larger. A row
        whose sensitivity is null, NaN, infinite or not above 0 can't win. A group may have 4,096 other rows.
    monotonic
        The caller's claim: all scores of a person move the same way. R is then `sensitivity`, not twice that. It must
        be left out with a column of sensitivities.
    lead
        Whether the answer comes with its lead: how much higher (for argmin: lower) its score was than the next one,
        with noise. It costs nothing more, under `epsilon` only. It must be left out with a column of sensitivities.
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
    Which rows exist and which of them have a finite score is public: that is part of what the caller claims. A null,
    NaN or infinite score is a candidate that can't win. McKenna & Sheldon 2020, arXiv 2010.12603.

    With sensitivities D of their own, the score of row i is the least of ((q_i − t·D_i) − (q_j − t·D_j))/(D_i + D_j)
    over all j, of exactly these numbers: its sensitivity is 1, and R = 2 (Raskhodnikova & Smith 2016, arXiv
    1504.07912). Here t = ln(k/β)/λ for k rows and β = 0.05 (permute-and-flip: (k − 1)/2 for k), rounded. With
    probability 1 − β, the chosen row has q_i >= q_j − 2·t·D_j for all j: it is near the best row by *that* row's
    sensitivity, not the largest one. All pairs of rows of a group are looked at.

    Examples
    --------
    >>> import polars as pl
    >>> import dp_polars as dpp
    >>> prices = pl.DataFrame({"price": [1, 2, 3], "revenue": [100, 900, 300]})
    >>> best = dpp.argmax("revenue", epsilon=1.0, sensitivity=3, monotonic=True)
    >>> prices.select(pl.col("price").get(best)).item()
    2
    >>> prices.select(pl.col("price").get(dpp.argmax("revenue", epsilon=1.0, sensitivity=pl.col("price")))).item()
    2
    """
    asked: _Asked = {
        "monotonic": monotonic,
        "lead": lead,
        "lead_step": lead_step,
        "epsilon": epsilon,
        "rho": rho,
        "mechanism": mechanism,
        "lowest": False,
    }
    return _arg_best(column, sensitivity, asked)


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

    Examples
    --------
    >>> import polars as pl
    >>> import dp_polars as dpp
    >>> errors = pl.DataFrame({"model": ["a", "b"], "error": [700, 20]})
    >>> errors.select(pl.col("model").get(dpp.argmin("error", epsilon=1.0, sensitivity=5))).item()
    'b'
    """
    asked: _Asked = {
        "monotonic": monotonic,
        "lead": lead,
        "lead_step": lead_step,
        "epsilon": epsilon,
        "rho": rho,
        "mechanism": mechanism,
        "lowest": True,
    }
    return _arg_best(column, sensitivity, asked)


class _Asked(TypedDict):
    """What an argmax is asked beside its scores and their sensitivity."""

    monotonic: bool
    lead: bool
    lead_step: Number | None
    epsilon: Number | None
    rho: Number | None
    mechanism: str | None
    lowest: bool


def _arg_best(column: IntoColumn, sensitivity: Number | pl.Expr, asked: _Asked) -> PrivateExpr:
    if isinstance(sensitivity, pl.Expr):
        return as_expression(ask_argmax_of_own(**asked), column, sensitivity)
    return as_expression(ask_argmax(sensitivity=sensitivity, **asked), column)
