"""Numbers about a column: counts, sums, means, variances, shares."""

from __future__ import annotations

from fractions import Fraction
from typing import Literal

import numpy as np

from dp_polars._accounting.claims import Claim
from dp_polars._accounting.terms import Terms
from dp_polars._base.calls import called
from dp_polars._base.numbers import Number, given
from dp_polars._bins.candidates import Categories, Values
from dp_polars._bins.weights import bounds_of, ends_of_person
from dp_polars._expressions.expression import IntoColumn, PrivateExpr, condition_of, on_terms, where_true
from dp_polars._questions.averages import Deviation, Mean, Share, Variance
from dp_polars._questions.measures import Count, Sum, SumOfPeople, ValueCounts


@called
def len(  # noqa: A001 (Polars' own name)
    *,
    where: IntoColumn | None = None,
    within: Number | None = None,
    epsilon: Number | None = None,
    rho: Number | None = None,
    loss_weight: Number | None = None,
    contributions: int = 1,
    neighboring_relation: str = "add_or_remove_one",
    mechanism: str | None = None,
) -> PrivateExpr:
    r"""Count the rows of each group, with noise.

    The answer is `epsilon`-differentially private (or `rho`-zCDP) under `neighboring_relation` for a person with at
    most `contributions` rows, over all groups together.

    Parameters
    ----------
    where
        A condition about the columns of a row, or the name of a Boolean column: only rows where it is true are counted.
        On a private frame it must be row by row, and the other rows do not count toward the limits. None: every row.
    within
        As for `mode`. 0 is for counts: every answer is right, with probability 0.95.
    epsilon, rho
        The privacy loss of one person in all, over all groups: one of them at most, and none with `within`. On a
        private frame all may be left out, as for `mode`. `epsilon` draws discrete Laplace noise, `rho` discrete
        Gaussian noise, both exactly.
    loss_weight
        As for `mode`.
    contributions, neighboring_relation
        As for `mode`. On a private frame, leave them out: `protect` has them.
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
    P(noise = x) is proportional to exp(−abs(x)·epsilon/T), or exp(−x²·rho/T), where a person has at most T rows (Ghosh,
    Roughgarden & Sundararajan 2012; Canonne, Kamath & Steinke 2020, arXiv 2004.00010). Gaussian noise is smaller where
    the rows in one group are bounded, as on a private frame.

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
    terms = Terms.of(
        epsilon, rho, contributions, neighboring_relation, mechanism, within=within, loss_weight=loss_weight
    )
    return on_terms(Count("rows", Claim.on(terms, "number")), terms, *where_true(where), name="len")


@called
def n_people(
    *,
    where: IntoColumn | None = None,
    within: Number | None = None,
    epsilon: Number | None = None,
    rho: Number | None = None,
    loss_weight: Number | None = None,
    contributions: int = 1,
    neighboring_relation: str = "add_or_remove_one",
    mechanism: str | None = None,
) -> PrivateExpr:
    r"""Count the distinct people of each group, with noise: on a private frame that has a privacy unit.

    Proof: :doc:`/proofs/numbers`.

    Parameters
    ----------
    where
        As for `dp_polars.len`: people are counted who have a row where it is true.
    all others
        As for `dp_polars.len`.

    Returns
    -------
    PrivateExpr
        One Int64 per group, which may be negative. A person in more groups than `max_groups` counts in part in each of
        them. Errors are those of `dp_polars.len`; and on a plain frame Polars raises a ComputeError, since an
        expression does not know who is a person.

    Examples
    --------
    >>> import polars as pl
    >>> import dp_polars as dpp
    >>> df = pl.DataFrame({"patient": [1, 1, 2, 3, 3, 3] * 10})
    >>> df.dp.protect("patient").agg(dpp.n_people(epsilon=100)).release().item()
    3
    """
    terms = Terms.of(
        epsilon, rho, contributions, neighboring_relation, mechanism, within=within, loss_weight=loss_weight
    )
    return on_terms(Count("people", Claim.on(terms, "number")), terms, *where_true(where), name="n_people")


@called
def count(
    column: IntoColumn,
    *,
    within: Number | None = None,
    epsilon: Number | None = None,
    rho: Number | None = None,
    loss_weight: Number | None = None,
    contributions: int = 1,
    neighboring_relation: str = "add_or_remove_one",
    mechanism: str | None = None,
) -> PrivateExpr:
    r"""Count the rows of each group that have a value, with noise. Null and NaN are no values.

    Proof: :doc:`/proofs/numbers`.

    Parameters
    ----------
    column
        The column's name, or an expression with one output, of any type.
    all others
        As for `dp_polars.len`.

    Returns
    -------
    PrivateExpr
        One Int64 per group, which may be negative.

    Raises
    ------
    TypeError, ValueError
        As for `dp_polars.len`.

    Examples
    --------
    >>> import polars as pl
    >>> import dp_polars as dpp
    >>> df = pl.DataFrame({"age": [40, None] * 20})
    >>> df.select(dpp.count("age", epsilon=100)).item()
    20
    """
    terms = Terms.of(
        epsilon, rho, contributions, neighboring_relation, mechanism, within=within, loss_weight=loss_weight
    )
    return on_terms(Count("values", Claim.on(terms, "number")), terms, column)


@called
def null_count(
    column: IntoColumn,
    *,
    within: Number | None = None,
    epsilon: Number | None = None,
    rho: Number | None = None,
    loss_weight: Number | None = None,
    contributions: int = 1,
    neighboring_relation: str = "add_or_remove_one",
    mechanism: str | None = None,
) -> PrivateExpr:
    r"""Count the nulls of each group, with noise. NaN is no null.

    Proof: :doc:`/proofs/numbers`.

    Parameters
    ----------
    column
        The column's name, or an expression with one output, of any type.
    all others
        As for `dp_polars.len`. Rows where the column is not null do not count toward the limits.

    Returns
    -------
    PrivateExpr
        One Int64 per group, which may be negative.

    Raises
    ------
    TypeError, ValueError
        As for `dp_polars.len`.

    Examples
    --------
    >>> import polars as pl
    >>> import dp_polars as dpp
    >>> df = pl.DataFrame({"age": [40.5, None, float("nan"), 7.0] * 20})
    >>> df.select(dpp.null_count("age", epsilon=100)).item()
    20
    """
    terms = Terms.of(
        epsilon, rho, contributions, neighboring_relation, mechanism, within=within, loss_weight=loss_weight
    )
    return on_terms(Count("nulls", Claim.on(terms, "number")), terms, column)


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
    neighboring_relation: str = "add_or_remove_one",
    mechanism: str | None = None,
) -> PrivateExpr:
    r"""Count every candidate in each group, with noise.

    Parameters
    ----------
    column, candidates
        As for `mode`. Candidates must be given.
    max_rows_per_group
        On a private frame people are counted, each for at most this many candidates of a group. A person with more
        counts in part for each of them.
    all others
        As for `dp_polars.len`.

    Returns
    -------
    PrivateExpr
        One list per group: structs of `value` (the column's type, or String for a Categorical) and `count` (Int64,
        which may be negative), in the order of the candidates.

    Raises
    ------
    TypeError, ValueError
        As for `mode`.

    Notes
    -----
    The noise does not grow with the number of candidates: one row changes one count. Rankings, shares and charts of the
    counts cost nothing more.

    Proof: :doc:`/proofs/numbers`.

    Examples
    --------
    >>> import polars as pl
    >>> import dp_polars as dpp
    >>> df = pl.DataFrame({"band": ["young"] * 30 + ["old"] * 12})
    >>> counts = dpp.value_counts("band", ["young", "middle", "old"], epsilon=100)
    >>> df.select(counts).explode("band").unnest("band").rows()
    [('young', 30), ('middle', 0), ('old', 12)]
    """
    terms = Terms.of(
        epsilon, rho, contributions, neighboring_relation, mechanism, within=within, loss_weight=loss_weight
    )
    if candidates is None:
        msg = "candidates must be given: every one of them gets a count.\n\nHint: a polars.Enum names its categories."
        raise TypeError(msg)
    return on_terms(ValueCounts(Categories.of(candidates), Claim.on(terms, "number")), terms, column)


def _ddof(ddof: object) -> Literal[0, 1]:
    if isinstance(ddof, bool) or ddof not in (0, 1):
        msg = f"ddof must be 0 or 1, got {given(ddof)}."
        raise ValueError(msg)
    return 1 if ddof else 0


@called
def sum(  # noqa: A001 (Polars' own name)
    column: IntoColumn,
    lower: Number,
    upper: Number,
    step: Number | None = None,
    *,
    per_person: tuple[Number, Number] | None = None,
    within: Number | None = None,
    epsilon: Number | None = None,
    rho: Number | None = None,
    loss_weight: Number | None = None,
    contributions: int = 1,
    neighboring_relation: str = "add_or_remove_one",
    mechanism: str | None = None,
) -> PrivateExpr:
    r"""Add up the values of each group, clipped to public clipping bounds, with noise.

    Parameters
    ----------
    column
        The column's name, or an expression with one output: integers, decimals, floats or booleans (0 and 1).
    lower, upper
        The public clipping bounds, of either sign. A value beyond them counts as the nearer one. The wider they are,
        the more noise there is. Never take them from the data.
    step
        The public unit in which values are added up; each counts as its nearest multiple, ties to even. None: 1 for
        integers, the last digit for decimals; for floats, and for decimals of too many digits, the power of ten at or
        below a millionth of `upper - lower` (of the ends of `per_person`, if given), or a larger one where sums would
        leave 62 bits: `explain` says which. The bounds must be multiples of it, and at most 2**30 of them.
    per_person
        The public clipping bounds (lo, hi) of one person's total in a group, multiples of the step with lo below hi; on
        a private frame with a privacy unit only. Each value is clipped to [lower, upper] first, and then the total of a
        person to [lo, hi]. A person without a value adds 0, not lo. The number of rows does not matter. Totals in more
        groups than `max_groups` (or `max_rows`, if it is smaller) count in part. The noise has the scale of the larger
        of │lo│ and │hi│ times these groups. `max_rows_per_group` does nothing then. None: values are added up as rows.
    all others
        As for `dp_polars.len`. The noise has the scale of the larger bound times a person's rows.

    Returns
    -------
    PrivateExpr
        One number per group: Float64 for floats and for a step that is a float or a Fraction, Decimal for decimals and
        for a step with decimal places, else Int64. A number that the type can't hold becomes its largest or smallest
        one. The sum of a group without values is 0 plus noise. Every evaluation is a release. On a private frame,
        values of people beyond the limits count in part, as in `dp_polars.len`.

    Raises
    ------
    TypeError, ValueError
        As for `dp_polars.mode`.

    Notes
    -----
    Nulls and NaN are ignored. Sums are exact below 2**62 steps: 2**32 rows with the largest bounds. Where values are no
    multiples of the step, rounding moves a sum by at most half a step a row, in addition to `error_95` and to
    intervals.

    Proof: :doc:`/proofs/numbers`.

    Examples
    --------
    >>> import polars as pl
    >>> import dp_polars as dpp
    >>> df = pl.DataFrame({"cost": [19.99, 5.01, 7000.0]})
    >>> df.select(dpp.sum("cost", 0, 100, step=0.01, epsilon=10**7)).item()
    125.0
    """
    terms = Terms.of(
        epsilon, rho, contributions, neighboring_relation, mechanism, within=within, loss_weight=loss_weight
    )
    of_floats = isinstance(step, (float, np.floating, Fraction))
    ends, claim = bounds_of(lower, upper, step), Claim.on(terms, "number")
    if per_person is None:
        return on_terms(Sum(*ends, of_floats, claim), terms, column)
    return on_terms(SumOfPeople(*ends, of_floats, claim, *ends_of_person(per_person, ends[2])), terms, column)


@called
def mean(
    column: IntoColumn,
    lower: Number,
    upper: Number,
    step: Number | None = None,
    *,
    within: Number | None = None,
    rows: int | None = None,
    epsilon: Number | None = None,
    rho: Number | None = None,
    loss_weight: Number | None = None,
    contributions: int = 1,
    neighboring_relation: str = "add_or_remove_one",
    mechanism: str | None = None,
) -> PrivateExpr:
    r"""Average the values of each group, clipped to public clipping bounds, with noise.

    Half of the loss pays for a sum of distances from the middle of the bounds, half for the number of values.

    Parameters
    ----------
    column, lower, upper, step
        As for `dp_polars.sum`.
    within
        As for `dp_polars.len`, in the column's unit, for groups of at least `rows` rows.
    rows
        With `within` only: a public number of rows with a value, counted under the limits. A group with fewer may be
        further off, for the sum and the number of its rows have the same noise.
    all others
        As for `dp_polars.len`.

    Returns
    -------
    PrivateExpr
        One Float64 per group, between the bounds. In a group with few values the answer is mostly noise; the confidence
        interval of `release(intervals=True)` shows it. On a private frame it is a weighted mean: all values of a person
        beyond the limits weigh less.

    Raises
    ------
    TypeError, ValueError
        As for `dp_polars.sum`.

    Notes
    -----
    Nulls and NaN are ignored. What rounding to the step does is in `error_95` and in intervals.

    Proof: :doc:`/proofs/numbers`.

    Examples
    --------
    >>> import polars as pl
    >>> import dp_polars as dpp
    >>> df = pl.DataFrame({"days": [1, 2, 3, 90] * 100})
    >>> round(df.select(dpp.mean("days", 0, 60, epsilon=1000)).item(), 1)
    16.5
    """
    terms = Terms.of(
        epsilon, rho, contributions, neighboring_relation, mechanism, within=within, rows=rows, loss_weight=loss_weight
    )
    return on_terms(Mean(*bounds_of(lower, upper, step), Claim.on(terms, "number", draws=2)), terms, column)


@called
def var(
    column: IntoColumn,
    lower: Number,
    upper: Number,
    step: Number | None = None,
    *,
    ddof: Literal[0, 1] = 1,
    within: Number | None = None,
    rows: int | None = None,
    epsilon: Number | None = None,
    rho: Number | None = None,
    loss_weight: Number | None = None,
    contributions: int = 1,
    neighboring_relation: str = "add_or_remove_one",
    mechanism: str | None = None,
) -> PrivateExpr:
    r"""Find the variance of the values of each group, clipped to public clipping bounds, with noise.

    A third of the loss pays for each of three noisy numbers: the sum of the distances from the middle of the bounds,
    the sum of their squares, and the number of values.

    Parameters
    ----------
    column, lower, upper, step
        As for `dp_polars.sum`. Wide bounds cost more than in a mean: the noise grows with the square of their distance.
    ddof
        What is taken from the number of values before it divides, as in Polars: 0, or 1. The number is the noisy one.
        With 1, the variance is 0 where that is at most 1.
    within, rows
        As for `dp_polars.mean`, in the column's unit, squared.
    all others
        As for `dp_polars.len`.

    Returns
    -------
    PrivateExpr
        One Float64 per group, from 0 to ((upper - lower) / 2)², which no values between the bounds exceed; with ddof=1
        up to twice that. Otherwise as for `dp_polars.mean`.

    Raises
    ------
    TypeError, ValueError
        As for `dp_polars.sum`.

    Notes
    -----
    Nulls and NaN are ignored. Values are rounded to the step, which moves the standard deviation by at most half of it.
    Squares have a step of their own, which follows from the bounds and the step: a row has at most 2**30 of them. Where
    (upper - lower) / step is at most 2**15, they are exact; beyond, the variance is off by less than 2**-30 of the
    largest one.

    Proof: :doc:`/proofs/numbers`.

    Examples
    --------
    >>> import polars as pl
    >>> import dp_polars as dpp
    >>> df = pl.DataFrame({"days": [1, 2, 3, 90] * 1000})
    >>> round(df.select(dpp.var("days", 0, 60, epsilon=1000)).item())
    631
    """
    terms = Terms.of(
        epsilon, rho, contributions, neighboring_relation, mechanism, within=within, rows=rows, loss_weight=loss_weight
    )
    query = Variance(*bounds_of(lower, upper, step), Claim.on(terms, "number", draws=3), _ddof(ddof))
    return on_terms(query, terms, column)


@called
def std(
    column: IntoColumn,
    lower: Number,
    upper: Number,
    step: Number | None = None,
    *,
    ddof: Literal[0, 1] = 1,
    within: Number | None = None,
    rows: int | None = None,
    epsilon: Number | None = None,
    rho: Number | None = None,
    loss_weight: Number | None = None,
    contributions: int = 1,
    neighboring_relation: str = "add_or_remove_one",
    mechanism: str | None = None,
) -> PrivateExpr:
    r"""Find the standard deviation of the values of each group, clipped to public clipping bounds, with noise.

    It is the root of `dp_polars.var`, from the same three noisy numbers.

    Parameters
    ----------
    column, lower, upper, step, ddof
        As for `dp_polars.var`.
    within, rows
        As for `dp_polars.mean`, in the column's unit. It holds for values of any deviation: where that is not near 0,
        the error is far smaller.
    all others
        As for `dp_polars.len`.

    Returns
    -------
    PrivateExpr
        One Float64 per group, from 0 to (upper - lower) / 2; with ddof=1 up to the root of 2 times that.

    Raises
    ------
    TypeError, ValueError
        As for `dp_polars.sum`.

    Notes
    -----
    See `dp_polars.var`. Proof: :doc:`/proofs/numbers`.

    Examples
    --------
    >>> import polars as pl
    >>> import dp_polars as dpp
    >>> df = pl.DataFrame({"days": [1, 2, 3, 90] * 1000})
    >>> round(df.select(dpp.std("days", 0, 60, epsilon=1000)).item())
    25
    """
    terms = Terms.of(
        epsilon, rho, contributions, neighboring_relation, mechanism, within=within, rows=rows, loss_weight=loss_weight
    )
    query = Deviation(*bounds_of(lower, upper, step), Claim.on(terms, "number", draws=3), _ddof(ddof))
    return on_terms(query, terms, column)


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
    neighboring_relation: str = "add_or_remove_one",
    mechanism: str | None = None,
) -> PrivateExpr:
    r"""Find the share of the rows of each group for which a condition is true, with noise.

    It is the mean of the condition, true being 1 and false 0: half of the loss pays for a noisy sum, half for a noisy
    number of rows.

    Proof: :doc:`/proofs/numbers`.

    Parameters
    ----------
    condition
        A condition about the columns of a row, or the name of a Boolean column. On a private frame it must be row by
        row. A row where it is null is left out of both numbers: of those for whom it is true, and of all.
    within, rows
        As for `dp_polars.mean`, as shares: `within=0.02`.
    all others
        As for `dp_polars.len`.

    Returns
    -------
    PrivateExpr
        One Float64 from 0 to 1 per group, named "share", else as for `dp_polars.mean`. It is a share of *rows*: with
        two numbers of people, divide `dp_polars.n_people(where=…)` by `dp_polars.n_people()` after the release. Where
        the condition is not Boolean, Polars raises a ComputeError.

    Examples
    --------
    >>> import polars as pl
    >>> import dp_polars as dpp
    >>> df = pl.DataFrame({"age": [15, 30, 70, None] * 100})
    >>> round(df.select(dpp.share(pl.col("age") >= 65, epsilon=1000)).item(), 2)
    0.33
    """
    terms = Terms.of(
        epsilon, rho, contributions, neighboring_relation, mechanism, within=within, rows=rows, loss_weight=loss_weight
    )
    asked_of = condition_of("condition", condition, 'dpp.share(pl.col("age") >= 65, epsilon=…)')
    return on_terms(Share.of(Claim.on(terms, "number", draws=2)), terms, asked_of, name="share")
