"""Private lists of the most common candidates as expressions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from dp_polars._accounting.claims import Claim, mechanisms_of
from dp_polars._accounting.terms import Bounds, Terms
from dp_polars._base.calls import called
from dp_polars._base.numbers import one_of, positive_int
from dp_polars._codes.candidates import Categories
from dp_polars._expressions.expressions import IntoColumn, PrivateExpr, on_terms
from dp_polars._questions.of_categories import counts_people_of, weights_of
from dp_polars._questions.tops import TopK, check_number, is_joint

if TYPE_CHECKING:
    from dp_polars._accounting.terms import Bound
    from dp_polars._base.numbers import Number
    from dp_polars._codes.candidates import Values


@called
def top_k(
    column: IntoColumn,
    k: int,
    candidates: Values | None = None,
    *,
    within: Number | None = None,
    epsilon: Number | None = None,
    rho: Number | None = None,
    loss_share: Number | None = None,
    counts: str = "people",
    weights: IntoColumn | None = None,
    max_weight: Number | None = None,
    step: Number | None = None,
    contributions: int = 1,
    neighboring_relation: str = "add_or_remove_one",
    mechanism: str | None = None,
    max_rows: Bound = "protect",
    max_groups: Bound = "protect",
    max_rows_per_group: Bound = "protect",
) -> PrivateExpr:
    r"""Select the k most common candidates of each group, best first.

    The list is `epsilon`-differentially private (or `rho`-zCDP) under `neighboring_relation` for a person with at most
    `contributions` rows, over all groups together.

    Parameters
    ----------
    column
        As for `mode`.
    k
        How many candidates to select: a whole number from 1 to the number of candidates.
    candidates
        As for `mode`. They may be left out where the column's type names them (Enum, Boolean).
    within, epsilon, rho, loss_share, counts, weights, max_weight, step, contributions, neighboring_relation, max_rows
        As for `mode`.
    max_groups, max_rows_per_group
        As for `mode`.
    mechanism
        None: under `rho` "exponential"; under `epsilon` "permute_and_flip" for k up to 4, "joint" for more. Or

        - "permute_and_flip", "exponential": k rounds without replacement, each at a k-th of the loss. The exponential
          ones have the law of one-shot Gumbel noise.
        - "joint": one exponential mechanism on all lists of k distinct candidates, by the largest count that a list
          misses. R is twice that of a mode (for k = 1 that of a mode), and all of the loss pays for one draw.

    Returns
    -------
    PrivateExpr
        One list per group: k distinct values of the column's type; of a Categorical, Strings. Every evaluation is a
        release: collecting twice pays twice.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described. What depends on the column's type, Polars raises as a ComputeError with the
        same words when it resolves the schema. No value in a row raises.

    Notes
    -----
    Nulls and values outside the candidates are ignored. In a group without rows, all lists are equally likely.

    The counts of the list are not released. Where one person has few candidates in a group, sorted `value_counts` are
    better: their noise does not grow with k, and they give the counts. `explain` of a private query says so, and so
    does the printed expression. Where a person may have any number of candidates, take `top_k`.

    `explain` bounds the largest count that is missed: the most by which the j-th best count exceeds the count of the
    j-th answer, over all j.

    A joint draw costs O(k) per distinct count of a group in time and memory, all groups together in NumPy; rounds cost
    one race over the distinct counts each.

    The rounds: McKenna & Sheldon 2020 (arXiv 2010.12603); Durfee & Rogers 2019 (arXiv 1905.04273). The joint
    mechanism: Gillenwater et al. 2022 (arXiv 2201.12333).

    Proof: :doc:`/proofs/top-k`.

    Examples
    --------
    >>> import polars as pl
    >>> import dp_polars as dpp
    >>> df = pl.DataFrame({"diagnosis": ["flu"] * 300 + ["cold"] * 200 + ["gout"] * 9})
    >>> df.select(
    ...     dpp.top_k("diagnosis", 2, ["cold", "flu", "gout"], epsilon=1.0)
    ... ).item().to_list()
    ['flu', 'cold']
    """
    number = positive_int("k", k)
    categories = Categories.of(candidates)
    if categories.values is not None:
        check_number(number, len(categories.values))
    bounds = Bounds(max_rows, max_groups, max_rows_per_group)
    of_person = (contributions, neighboring_relation, mechanism, bounds)
    terms = Terms.of(epsilon, rho, *of_person, within=within, loss_share=loss_share)
    if mechanism is None:
        joint = is_joint(number, terms.loss.unit)
    else:
        words = (*mechanisms_of("choice"), "joint")
        joint = one_of("mechanism", mechanism, words, f"one of {list(words)} or None") == "joint"
    claim = Claim.on(
        replace(terms, mechanism="exponential") if joint else terms, "choice", draws=1 if joint else number
    )
    query = TopK(
        number,
        categories,
        replace(claim, is_asked=mechanism is not None),
        counts_people_of(counts),
        joint,
        is_asked=mechanism is not None,
        weights=weights_of(max_weight, step, weighted=weights is not None),
    )
    return on_terms(query, terms, column, *(() if weights is None else (weights,)))
