"""Numbers about a column: counts, sums, means, variances, shares."""

from __future__ import annotations

from fractions import Fraction
from typing import Literal

import numpy as np

from dp_polars._accounting.terms import Terms
from dp_polars._base.calls import called
from dp_polars._base.numbers import Number, given
from dp_polars._bins.candidates import Categories, Values
from dp_polars._bins.weights import bounds_given, ends_of_person
from dp_polars._expressions.expression import IntoColumn, PrivateExpr, condition_of, on_terms, where_true
from dp_polars._statistics.averages import Deviation, Mean, Share, Variance
from dp_polars._statistics.measures import Count, Sum, SumOfPeople, ValueCounts, sum_of_found_totals


@called
def len(  # noqa: A001 (Polars' own name)
    *,
    where: IntoColumn | None = None,
    within: Number | None = None,
    epsilon: Number | None = None,
    rho: Number | None = None,
    loss_weight: Number | None = None,
    contributions: int = 1,
    mechanism: str | None = None,
) -> PrivateExpr:
    r"""Count the rows of each group, with noise.

    The answer is `epsilon`-differentially private (or `rho`-zCDP), over all groups together, if one person with at most
    `contributions` rows is added or removed. On a private frame, `protect` has the limits and the neighbouring
    relation.

    Parameters
    ----------
    where
        A condition about the columns of a row, or the name of a Boolean column: only rows for which it is true are
        counted. On a private frame it must be row by row, and the other rows do not count toward the limits. None:
        every row.
    within
        As for `.dp.mode`. 0 is for counts of people who can't be beyond the limits: every answer is right, with
        probability 0.95.
    epsilon, rho
        The privacy loss of one person over all groups: one of them at most, and none with `within`. On a private frame
        all may be left out, as for `.dp.mode`. `epsilon` draws discrete Laplace noise, `rho` discrete Gaussian noise,
        both exactly.
    loss_weight
        As for `.dp.mode`.
    contributions
        As for `.dp.mode`. On a private frame, leave it out: `protect` has contribution limits.
    mechanism
        None, or the noise by name: "discrete_laplace" or "discrete_gaussian" (under `rho` only).

    Returns
    -------
    PrivateExpr
        One Int64 per group, which may be negative: `.clip(0)` afterwards is free. Every evaluation is a release.
        On a private frame, people beyond the limits count in part: all of a person's rows are weighted, and none is
        dropped. So the answer is too low if people have more rows than the limits allow.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

    Notes
    -----
    P(noise = x) is proportional to exp(−abs(x)·epsilon/T), or exp(−x²·rho/T), if a person has at most T rows (Ghosh,
    Roughgarden & Sundararajan 2012; Canonne, Kamath & Steinke 2020, arXiv 2004.00010). Gaussian noise is smaller if the
    rows in one group are bounded, as on a private frame.

    Proof: :doc:`/proofs/numbers`.

    Examples
    --------
    >>> import polars as pl
    >>> import dp_polars as dpp
    >>> df = pl.DataFrame({"ward": ["A"] * 50})
    >>> df.select(dpp.len(epsilon=100)).item()
    50
    >>> df.select(dpp.len(where=pl.col("ward") == "B", epsilon=100)).item()
    0
    """
    terms = Terms.of(epsilon, rho, contributions, mechanism, within=within, loss_weight=loss_weight)
    return on_terms(Count("rows", terms), *where_true(where), name="len")


@called
def n_people(
    *,
    where: IntoColumn | None = None,
    within: Number | None = None,
    epsilon: Number | None = None,
    rho: Number | None = None,
    loss_weight: Number | None = None,
    contributions: int = 1,
    mechanism: str | None = None,
) -> PrivateExpr:
    r"""Count the distinct people of each group, with noise: on a private frame that has a privacy unit.

    Proof: :doc:`/proofs/numbers`.

    Parameters
    ----------
    where
        As for `dp_polars.len`: people with a row for which it is true are counted.
    all others
        As for `dp_polars.len`.

    Returns
    -------
    PrivateExpr
        One Int64 per group, which may be negative. A person in more groups than `max_groups` counts in part in each of
        them. Errors are those of `dp_polars.len`. On a plain frame Polars raises a ComputeError, since an expression
        does not know who is a person.

    Examples
    --------
    >>> import polars as pl
    >>> import dp_polars as dpp
    >>> df = pl.DataFrame({"patient": [1, 1, 2, 3, 3, 3] * 10})
    >>> df.dp.protect("patient").agg(dpp.n_people(epsilon=100)).release().item()
    3
    """
    terms = Terms.of(epsilon, rho, contributions, mechanism, within=within, loss_weight=loss_weight)
    return on_terms(Count("people", terms), *where_true(where), name="n_people")


@called
def count(
    column: IntoColumn,
    *,
    within: Number | None = None,
    epsilon: Number | None = None,
    rho: Number | None = None,
    loss_weight: Number | None = None,
    contributions: int = 1,
    mechanism: str | None = None,
) -> PrivateExpr:
    r"""Count the rows of each group that have a value, with noise: `.dp.count` as a function.

    Parameters
    ----------
    column
        The column's name, or an expression with one output: any type.
    all others
        As for the method, which also documents results and errors.

    Examples
    --------
    >>> import polars as pl
    >>> import dp_polars as dpp
    >>> df = pl.DataFrame({"age": [40, None] * 20})
    >>> df.select(dpp.count("age", epsilon=100)).item()
    20
    """
    terms = Terms.of(epsilon, rho, contributions, mechanism, within=within, loss_weight=loss_weight)
    return on_terms(Count("values", terms), column)


@called
def null_count(
    column: IntoColumn,
    *,
    within: Number | None = None,
    epsilon: Number | None = None,
    rho: Number | None = None,
    loss_weight: Number | None = None,
    contributions: int = 1,
    mechanism: str | None = None,
) -> PrivateExpr:
    r"""Count the nulls of each group, with noise: `.dp.null_count` as a function.

    Parameters
    ----------
    column
        The column's name, or an expression with one output: any type.
    all others
        As for the method, which also documents results and errors.

    Examples
    --------
    >>> import polars as pl
    >>> import dp_polars as dpp
    >>> df = pl.DataFrame({"age": [40.5, None, float("nan"), 7.0] * 20})
    >>> df.select(dpp.null_count("age", epsilon=100)).item()
    20
    """
    terms = Terms.of(epsilon, rho, contributions, mechanism, within=within, loss_weight=loss_weight)
    return on_terms(Count("nulls", terms), column)


@called
def value_counts(
    column: IntoColumn,
    candidates: Values,
    *,
    within: Number | None = None,
    epsilon: Number | None = None,
    rho: Number | None = None,
    loss_weight: Number | None = None,
    contributions: int = 1,
    mechanism: str | None = None,
) -> PrivateExpr:
    r"""Count every candidate in each group, with noise: `.dp.value_counts` as a function.

    Parameters
    ----------
    column
        The column's name, or an expression with one output: as for `.dp.mode`.
    all others
        As for the method, which also documents results and errors.

    Examples
    --------
    >>> import polars as pl
    >>> import dp_polars as dpp
    >>> df = pl.DataFrame({"band": ["young"] * 30 + ["old"] * 12})
    >>> counts = dpp.value_counts("band", ["young", "middle", "old"], epsilon=100)
    >>> df.select(counts).explode("band").unnest("band").rows()
    [('young', 30), ('middle', 0), ('old', 12)]
    """
    terms = Terms.of(epsilon, rho, contributions, mechanism, within=within, loss_weight=loss_weight)
    if candidates is None:
        msg = (
            "candidates must be given: every one of them gets a count.\n\n"
            "Hint: a polars.Enum names its categories. Or group by the column, which selects values that enough people "
            'have: private.group_by("diagnosis").agg(people=dp_polars.n_people()).scaled_to(epsilon=1, delta=1e-6).'
        )
        raise TypeError(msg)
    return on_terms(ValueCounts(Categories.of(candidates), terms), column)


def _ddof(ddof: object) -> Literal[0, 1]:
    if isinstance(ddof, bool) or ddof not in (0, 1):
        msg = f"ddof must be 0 or 1, got {given(ddof)}."
        raise ValueError(msg)
    return 1 if ddof else 0


@called
def sum(  # noqa: A001 (Polars' own name)
    column: IntoColumn,
    lower: Number | None = None,
    upper: Number | None = None,
    *,
    step: Number | None = None,
    per_person: tuple[Number, Number] | Literal[True] | None = None,
    within: Number | None = None,
    epsilon: Number | None = None,
    rho: Number | None = None,
    loss_weight: Number | None = None,
    contributions: int = 1,
    mechanism: str | None = None,
) -> PrivateExpr:
    r"""Add up the values of each group, clipped to clipping bounds, with noise: `.dp.sum` as a function.

    Parameters
    ----------
    column
        The column's name, or an expression with one output: integers, decimals, floats or booleans (0 and 1).
    all others
        As for the method, which also documents results and errors.

    Examples
    --------
    >>> import polars as pl
    >>> import dp_polars as dpp
    >>> df = pl.DataFrame({"cost": [19.99, 5.01, 7000.0]})
    >>> df.select(dpp.sum("cost", 0, 100, step=0.01, epsilon=10**7)).item()
    125.0
    """
    terms = Terms.of(epsilon, rho, contributions, mechanism, within=within, loss_weight=loss_weight)
    of_floats = isinstance(step, (float, np.floating, Fraction))
    ends, finds = bounds_given(lower, upper, step)
    if per_person is None:
        return on_terms(Sum(*ends, of_floats, terms, finds=finds), column)
    if per_person is True:
        return on_terms(sum_of_found_totals(ends, finds, terms, of_floats=of_floats), column)
    if finds:
        msg = (
            f"{' and '.join(finds)} must be given with per_person={given(per_person)}: only bounds of values or of "
            "totals are found privately.\n\n"
            "Hint: per_person=True finds the bounds of totals, and no others are needed."
        )
        raise TypeError(msg)
    return on_terms(SumOfPeople(*ends, of_floats, terms, *ends_of_person(per_person, ends[2])), column)


@called
def mean(
    column: IntoColumn,
    lower: Number | None = None,
    upper: Number | None = None,
    *,
    step: Number | None = None,
    within: Number | None = None,
    rows: int | None = None,
    epsilon: Number | None = None,
    rho: Number | None = None,
    loss_weight: Number | None = None,
    contributions: int = 1,
    mechanism: str | None = None,
) -> PrivateExpr:
    r"""Average the values of each group, clipped to clipping bounds, with noise: `.dp.mean` as a function.

    Parameters
    ----------
    column
        The column's name, or an expression with one output: integers, decimals, floats or booleans.
    all others
        As for the method, which also documents results and errors.

    Examples
    --------
    >>> import polars as pl
    >>> import dp_polars as dpp
    >>> df = pl.DataFrame({"days": [1, 2, 3, 90] * 100})
    >>> round(df.select(dpp.mean("days", 0, 60, epsilon=1000)).item(), 1)
    16.5
    """
    terms = Terms.of(epsilon, rho, contributions, mechanism, within=within, rows=rows, loss_weight=loss_weight)
    ends, finds = bounds_given(lower, upper, step)
    return on_terms(Mean(*ends, terms, finds=finds), column)


@called
def var(
    column: IntoColumn,
    lower: Number | None = None,
    upper: Number | None = None,
    *,
    step: Number | None = None,
    ddof: Literal[0, 1] = 1,
    within: Number | None = None,
    rows: int | None = None,
    epsilon: Number | None = None,
    rho: Number | None = None,
    loss_weight: Number | None = None,
    contributions: int = 1,
    mechanism: str | None = None,
) -> PrivateExpr:
    r"""Find the variance of the values of each group, clipped to clipping bounds, with noise: `.dp.var`.

    Parameters
    ----------
    column
        The column's name, or an expression with one output: numbers, or booleans (0 and 1).
    all others
        As for the method, which also documents results and errors.

    Examples
    --------
    >>> import polars as pl
    >>> import dp_polars as dpp
    >>> df = pl.DataFrame({"days": [1, 2, 3, 90] * 1000})
    >>> round(df.select(dpp.var("days", 0, 60, epsilon=1000)).item())
    631
    """
    terms = Terms.of(epsilon, rho, contributions, mechanism, within=within, rows=rows, loss_weight=loss_weight)
    ends, finds = bounds_given(lower, upper, step)
    query = Variance(*ends, terms, _ddof(ddof), finds=finds)
    return on_terms(query, column)


@called
def std(
    column: IntoColumn,
    lower: Number | None = None,
    upper: Number | None = None,
    *,
    step: Number | None = None,
    ddof: Literal[0, 1] = 1,
    within: Number | None = None,
    rows: int | None = None,
    epsilon: Number | None = None,
    rho: Number | None = None,
    loss_weight: Number | None = None,
    contributions: int = 1,
    mechanism: str | None = None,
) -> PrivateExpr:
    r"""Find the standard deviation of the values of each group, with noise: `.dp.std` as a function.

    Parameters
    ----------
    column
        The column's name, or an expression with one output: as for `var`.
    all others
        As for the method, which also documents results and errors.

    Examples
    --------
    >>> import polars as pl
    >>> import dp_polars as dpp
    >>> df = pl.DataFrame({"days": [1, 2, 3, 90] * 1000})
    >>> round(df.select(dpp.std("days", 0, 60, epsilon=1000)).item())
    25
    """
    terms = Terms.of(epsilon, rho, contributions, mechanism, within=within, rows=rows, loss_weight=loss_weight)
    ends, finds = bounds_given(lower, upper, step)
    query = Deviation(*ends, terms, _ddof(ddof), finds=finds)
    return on_terms(query, column)


@called
def share(
    condition: IntoColumn,
    *,
    within: Number | None = None,
    rows: int | None = None,
    epsilon: Number | None = None,
    rho: Number | None = None,
    loss_weight: Number | None = None,
    contributions: int = 1,
    mechanism: str | None = None,
) -> PrivateExpr:
    r"""Find the share of the rows of each group for which a condition is true, with noise.

    It is the mean of the condition, as 1 for true and 0 for false: half of the loss pays for a noisy sum, half for a
    noisy number of rows. In ε, a private frame instead draws two counts with all of the loss: the rows with the
    condition, and those without.

    Proof: :doc:`/proofs/numbers`, :doc:`/proofs/sum-pairs`, and of intervals :doc:`/proofs/mean-intervals`.

    Parameters
    ----------
    condition
        A condition about the columns of a row, or the name of a Boolean column. On a private frame it must be row by
        row. A row with null is left out of both numbers: the true rows, and all rows.
    within, rows
        As for `.dp.mean`, as shares: `within=0.02`.
    all others
        As for `dp_polars.len`.

    Returns
    -------
    PrivateExpr
        One Float64 from 0 to 1 per group, named "share", else as for `.dp.mean`. It is a share of *rows*: with two
        numbers of people, divide `dp_polars.n_people(where=…)` by `dp_polars.n_people()` after the release. If the
        condition is not Boolean, Polars raises a ComputeError.

    Examples
    --------
    >>> import polars as pl
    >>> import dp_polars as dpp
    >>> df = pl.DataFrame({"age": [15, 30, 70, None] * 100})
    >>> round(df.select(dpp.share(pl.col("age") >= 65, epsilon=1000)).item(), 2)
    0.33
    """
    terms = Terms.of(epsilon, rho, contributions, mechanism, within=within, rows=rows, loss_weight=loss_weight)
    asked_of = condition_of("condition", condition, 'dpp.share(pl.col("age") >= 65, epsilon=…)')
    return on_terms(Share.of(terms), asked_of, name="share")
