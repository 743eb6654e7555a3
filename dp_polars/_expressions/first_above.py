"""The first candidate above a threshold as an expression."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dp_polars._accounting.claims import Claim
from dp_polars._accounting.terms import Bounds, Terms
from dp_polars._base.calls import called
from dp_polars._codes.candidates import Categories
from dp_polars._codes.grids import Grid
from dp_polars._expressions.expressions import IntoColumn, PrivateExpr, on_terms
from dp_polars._questions.first_above import FirstAbove, as_threshold
from dp_polars._questions.of_categories import counts_people_of
from dp_polars._questions.question import claim_with_lead

if TYPE_CHECKING:
    from dp_polars._accounting.terms import Bound
    from dp_polars._base.numbers import Number
    from dp_polars._codes.candidates import Values


@called
def first_above(
    column: IntoColumn,
    candidates: Values,
    *,
    threshold: Number,
    epsilon: Number | None = None,
    rho: Number | None = None,
    loss_share: Number | None = None,
    counts: str = "people",
    lead: bool = False,
    contributions: int = 1,
    neighboring_relation: str = "add_or_remove_one",
    max_rows: Bound = "protect",
    max_groups: Bound = "protect",
    max_rows_per_group: Bound = "protect",
) -> PrivateExpr:
    r"""Select the first candidate of each group, in their public order, whose count is at least about a threshold.

    The answer is `epsilon`-differentially private under `neighboring_relation` for a person with at most
    `contributions` rows, over all groups together.

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
    epsilon
        The privacy loss of one person in all, over all groups, in pure DP. On a private frame it may be left out, as
        for `mode`.
    rho
        Must be left out. A budget in rho takes `epsilon`, and is charged epsilon·tanh(epsilon/2) in each group.
    loss_share
        As for `mode`.
    counts
        "people" or "rows", as for `mode`: what a private frame with a privacy unit counts. Elsewhere rows are counted.
    lead
        Whether the answer comes with its lead: how many people (or rows) it has above the threshold, with noise that
        both have. It costs nothing more.
    contributions, max_rows, max_groups, max_rows_per_group
        As for `mode`.
    neighboring_relation
        "add_or_remove_one" or "replace_one". The range R is 2 under the first, and 3 under the other one.

    Returns
    -------
    PrivateExpr
        One answer per group, of the column's type (of a Categorical, a String) or of the grid's; null where no
        candidate reaches the threshold. With `lead`, a struct: `answer` of that type, and `lead`, an Int64 of at least
        0, rounded down; null where the answer is null. Every evaluation is a release: collecting twice pays twice.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described. What depends on the column's type, Polars raises as a ComputeError with the
        same words when it resolves the schema. No value in a row raises.

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

    A run of candidates with one count, such as 0, is drawn as one, exactly. So time and memory grow with the candidates
    that somebody has.

    Proof: :doc:`/proofs/first-above`.

    Examples
    --------
    >>> import polars as pl
    >>> import dp_polars as dpp
    >>> df = pl.DataFrame({"week": [1] * 20 + [2] * 40 + [3] * 400 + [4] * 900})
    >>> df.select(dpp.first_above("week", range(1, 53), threshold=200, epsilon=1)).item()
    3
    """
    bounds = Bounds(max_rows, max_groups, max_rows_per_group)
    of_person = (contributions, neighboring_relation, None, bounds)
    terms = Terms.of(epsilon, rho, *of_person, within=None, loss_share=loss_share)
    if terms.loss.unit != "epsilon":
        msg = (
            f"the first above a threshold must be asked for with epsilon, got {terms.loss}: it is drawn with noise of "
            "pure differential privacy.\n\nHint: epsilon=1.0, which a budget in rho takes too."
        )
        raise ValueError(msg)
    query = FirstAbove(
        as_threshold(threshold),
        candidates if isinstance(candidates, Grid) else Categories.of(candidates),
        claim_with_lead(Claim.on(terms, "threshold"), lead=lead),
        counts_people_of(counts),
    )
    return on_terms(query, terms, column)
