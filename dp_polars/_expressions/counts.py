"""Private counts as expressions: of rows, people, values and nulls, and of each candidate."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dp_polars._accounting.claims import Claim
from dp_polars._accounting.terms import Bounds, Terms
from dp_polars._base.calls import called
from dp_polars._codes.candidates import Categories
from dp_polars._expressions.expressions import IntoColumn, PrivateExpr, on_terms, where_true
from dp_polars._questions.measures import Count, ValueCounts

if TYPE_CHECKING:
    from dp_polars._accounting.terms import Bound
    from dp_polars._base.numbers import Number
    from dp_polars._codes.candidates import Values


@called
def len(  # noqa: A001 (Polars' own name)
    *,
    where: IntoColumn | None = None,
    within: Number | None = None,
    epsilon: Number | None = None,
    rho: Number | None = None,
    loss_share: Number | None = None,
    contributions: int = 1,
    neighboring_relation: str = "add_or_remove_one",
    mechanism: str | None = None,
    max_rows: Bound = "protect",
    max_groups: Bound = "protect",
    max_rows_per_group: Bound = "protect",
) -> PrivateExpr:
    r"""Count the rows of each group, with noise.

    The answer is `epsilon`-differentially private (or `rho`-zCDP) under `neighboring_relation` for a person with at
    most `contributions` rows, over all groups together.

    Parameters
    ----------
    where
        A condition about the columns of a row, or the name of a Boolean column: only rows where it is true are counted.
        On a private frame it must be row by row, and the other rows take no place among those that the bounds keep.
        None: every row.
    within
        As for `mode`. 0 is for counts: every answer is right, with probability 0.95.
    epsilon, rho
        The privacy loss of one person in all, over all groups: one of them at most, and none with `within`. On a
        private frame all may be left out, as for `mode`. `epsilon` draws discrete Laplace noise, `rho` discrete
        Gaussian noise, both exactly.
    loss_share
        As for `mode`.
    contributions, neighboring_relation
        As for `mode`. On a private frame, leave them out: `protect` has them.
    mechanism
        None, or the noise by name: "discrete_laplace" or "discrete_gaussian" (under `rho` only).
    max_rows, max_groups, max_rows_per_group
        As for `mode`.

    Returns
    -------
    PrivateExpr
        One Int64 per group, which may be negative: `.clip(0)` afterwards is free. Every evaluation is a release.

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
    bounds = Bounds(max_rows, max_groups, max_rows_per_group)
    of_person = (contributions, neighboring_relation, mechanism, bounds)
    terms = Terms.of(epsilon, rho, *of_person, within=within, loss_share=loss_share)
    return on_terms(Count("rows", Claim.on(terms, "number")), terms, *where_true(where), name="len")


@called
def n_people(
    *,
    where: IntoColumn | None = None,
    within: Number | None = None,
    epsilon: Number | None = None,
    rho: Number | None = None,
    loss_share: Number | None = None,
    contributions: int = 1,
    neighboring_relation: str = "add_or_remove_one",
    mechanism: str | None = None,
    max_rows: Bound = "protect",
    max_groups: Bound = "protect",
    max_rows_per_group: Bound = "protect",
) -> PrivateExpr:
    r"""Count the distinct people of each group, with noise: on a private frame that has a privacy unit.

    Parameters
    ----------
    where
        As for `dp_polars.len`: people are counted who have a row where it is true.
    within, epsilon, rho, loss_share, contributions, neighboring_relation, mechanism, max_rows, max_groups
        As for `dp_polars.len`.
    max_rows_per_group
        As for `dp_polars.len`. The noise grows with the number of groups that one person may be in (`max_groups`).
        `max_rows_per_group` does nothing here.

    Returns
    -------
    PrivateExpr
        One Int64 per group, which may be negative.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described. On a plain frame, Polars raises a ComputeError, since an expression does not
        know who is a person.

    Notes
    -----
    Proof: :doc:`/proofs/numbers`.

    Examples
    --------
    >>> import polars as pl
    >>> import dp_polars as dpp
    >>> df = pl.DataFrame({"patient": [1, 1, 2, 3, 3, 3] * 10})
    >>> df.dp.protect("patient").agg(dpp.n_people(epsilon=100)).release().item()
    3
    """
    bounds = Bounds(max_rows, max_groups, max_rows_per_group)
    of_person = (contributions, neighboring_relation, mechanism, bounds)
    terms = Terms.of(epsilon, rho, *of_person, within=within, loss_share=loss_share)
    return on_terms(Count("people", Claim.on(terms, "number")), terms, *where_true(where), name="n_people")


@called
def count(
    column: IntoColumn,
    *,
    within: Number | None = None,
    epsilon: Number | None = None,
    rho: Number | None = None,
    loss_share: Number | None = None,
    contributions: int = 1,
    neighboring_relation: str = "add_or_remove_one",
    mechanism: str | None = None,
    max_rows: Bound = "protect",
    max_groups: Bound = "protect",
    max_rows_per_group: Bound = "protect",
) -> PrivateExpr:
    r"""Count the rows of each group that have a value, with noise. Null and NaN are no values.

    Parameters
    ----------
    column
        The column's name, or an expression with one output, of any type.
    within, epsilon, rho, loss_share, contributions, neighboring_relation, mechanism, max_rows, max_groups
        As for `dp_polars.len`.
    max_rows_per_group
        As for `dp_polars.len`.

    Returns
    -------
    PrivateExpr
        One Int64 per group, which may be negative.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

    Notes
    -----
    Proof: :doc:`/proofs/numbers`.

    Examples
    --------
    >>> import polars as pl
    >>> import dp_polars as dpp
    >>> df = pl.DataFrame({"age": [40, None] * 20})
    >>> df.select(dpp.count("age", epsilon=100)).item()
    20
    """
    bounds = Bounds(max_rows, max_groups, max_rows_per_group)
    of_person = (contributions, neighboring_relation, mechanism, bounds)
    terms = Terms.of(epsilon, rho, *of_person, within=within, loss_share=loss_share)
    return on_terms(Count("values", Claim.on(terms, "number")), terms, column)


@called
def null_count(
    column: IntoColumn,
    *,
    within: Number | None = None,
    epsilon: Number | None = None,
    rho: Number | None = None,
    loss_share: Number | None = None,
    contributions: int = 1,
    neighboring_relation: str = "add_or_remove_one",
    mechanism: str | None = None,
    max_rows: Bound = "protect",
    max_groups: Bound = "protect",
    max_rows_per_group: Bound = "protect",
) -> PrivateExpr:
    r"""Count the nulls of each group, with noise. NaN is no null.

    Parameters
    ----------
    column
        The column's name, or an expression with one output, of any type.
    within, epsilon, rho, loss_share, contributions, neighboring_relation, mechanism, max_rows, max_groups
        As for `dp_polars.len`.
    max_rows_per_group
        As for `dp_polars.len`. Rows where the column is not null take no place among those that the bounds keep.

    Returns
    -------
    PrivateExpr
        One Int64 per group, which may be negative.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

    Notes
    -----
    Proof: :doc:`/proofs/numbers`.

    Examples
    --------
    >>> import polars as pl
    >>> import dp_polars as dpp
    >>> df = pl.DataFrame({"age": [40.5, None, float("nan"), 7.0] * 20})
    >>> df.select(dpp.null_count("age", epsilon=100)).item()
    20
    """
    bounds = Bounds(max_rows, max_groups, max_rows_per_group)
    of_person = (contributions, neighboring_relation, mechanism, bounds)
    terms = Terms.of(epsilon, rho, *of_person, within=within, loss_share=loss_share)
    return on_terms(Count("nulls", Claim.on(terms, "number")), terms, column)


@called
def value_counts(
    column: IntoColumn,
    candidates: Values,
    *,
    within: Number | None = None,
    epsilon: Number | None = None,
    rho: Number | None = None,
    loss_share: Number | None = None,
    contributions: int = 1,
    neighboring_relation: str = "add_or_remove_one",
    mechanism: str | None = None,
    max_rows: Bound = "protect",
    max_groups: Bound = "protect",
    max_rows_per_group: Bound = "protect",
) -> PrivateExpr:
    r"""Count every candidate in each group, with noise.

    Parameters
    ----------
    column, candidates
        As for `mode`. Candidates must be given.
    within, epsilon, rho, loss_share, contributions, neighboring_relation, mechanism, max_rows, max_groups
        As for `dp_polars.len`.
    max_rows_per_group
        As for `dp_polars.len`. On a private frame people are counted, each for at most `max_rows_per_group` candidates
        of a group: a random subset is kept.

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
    >>> df.select(
    ...     dpp.value_counts("band", ["young", "middle", "old"], epsilon=100)
    ... ).explode("band").unnest("band").rows()
    [('young', 30), ('middle', 0), ('old', 12)]
    """
    bounds = Bounds(max_rows, max_groups, max_rows_per_group)
    of_person = (contributions, neighboring_relation, mechanism, bounds)
    terms = Terms.of(epsilon, rho, *of_person, within=within, loss_share=loss_share)
    if candidates is None:
        msg = "candidates must be given: every one of them gets a count.\n\nHint: a polars.Enum names its categories."
        raise TypeError(msg)
    query = ValueCounts(Categories.of(candidates), Claim.on(terms, "number"))
    return on_terms(query, terms, column)
