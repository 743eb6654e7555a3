"""Private choices as expressions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dp_polars._expressions.expressions import IntoColumn, PrivateExpr, as_expression
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
