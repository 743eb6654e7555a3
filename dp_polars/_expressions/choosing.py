"""Choices about a column: mode, median, quantiles, top k."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from dp_polars._accounting.claims import Claim, mechanisms_of
from dp_polars._accounting.terms import Terms
from dp_polars._base.calls import called
from dp_polars._base.numbers import Number, one_of, positive_int
from dp_polars._bins.candidates import Categories, Values, ordered
from dp_polars._bins.weights import ONE_EACH, Weights
from dp_polars._expressions.expression import IntoColumn, PrivateExpr, as_column, on_terms
from dp_polars._mechanisms.quantile_trees import levels_of
from dp_polars._questions.answer_lists import Alphas, QuantileList, TopK, as_alphas, check_number, is_joint
from dp_polars._questions.categories import Mode, ask_quantile
from dp_polars._questions.question import claim_with_gap


@dataclass(frozen=True, eq=False)
class WeightedCounts:
    """What a row or a person counts in a choice, as `dp_polars.weights` returns it."""

    of_people: bool
    weights: Weights = ONE_EACH
    columns: tuple[pl.Expr, ...] = ()  # that of the weights, or none

    @classmethod
    def of(cls, counts: object) -> WeightedCounts:
        """Return the argument `counts` of a choice, if it is "people", "rows" or what `weights` returns."""
        if isinstance(counts, WeightedCounts):
            return counts
        wanted = "'people', 'rows' or dp_polars.weights(…)"
        return cls(one_of("counts", counts, ("people", "rows"), wanted) == "people")


@called
def weights(
    column: IntoColumn, *, max_weight: Number, step: Number | None = None, of: str = "people"
) -> WeightedCounts:
    r"""Compare candidates by the sum of a column: `counts=dpp.weights("hours", max_weight=40)` of `mode` and `top_k`.

    Parameters
    ----------
    column
        The weights: a column or expression of numbers or booleans, one for each row. Negative, null and NaN weights
        count as 0.
    max_weight
        The largest weight of a person (or row), from public knowledge. It is R: the more it is, the more noise there
        is.
    step
        The public step: weights are rounded to its nearest whole multiple, ties to even. Float weights need one. None:
        1 for integers and booleans, the last digit for decimals. `max_weight` must be at most 2**30 steps.
    of
        What `max_weight` clips. "people": a person's sum for a candidate in a group, on a private frame with a privacy
        unit, however many rows they have. "rows": each row's weight. Elsewhere it is each row's weight.

    Returns
    -------
    WeightedCounts
        For the parameter `counts` of `mode` and `top_k`.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described.

    Examples
    --------
    >>> import polars as pl
    >>> import dp_polars as dpp
    >>> df = pl.DataFrame(
    ...     {"patient": range(90), "ward": ["A", "B", "B"] * 30, "days": [9, 1, 2] * 30}
    ... )
    >>> by_days = dpp.weights("days", max_weight=10)
    >>> longest = pl.col("ward").dp.mode(["A", "B"], counts=by_days, epsilon=10)
    >>> df.dp.protect("patient", max_groups=1).agg(longest).release().item()
    'A'
    """
    of_people = one_of("of", of, ("people", "rows"), "'people' or 'rows'") == "people"
    return WeightedCounts(of_people, Weights.of(max_weight, step), (as_column(column),))


@called
def mode(
    column: IntoColumn,
    candidates: Values | None = None,
    *,
    within: Number | None = None,
    epsilon: Number | None = None,
    rho: Number | None = None,
    loss_weight: Number | None = None,
    counts: str | WeightedCounts = "people",
    too_few: int | None = None,
    gap: bool = False,
    contributions: int = 1,
    mechanism: str | None = None,
) -> PrivateExpr:
    r"""Select the most common candidate of each group.

    The answer is `epsilon`-differentially private (or `rho`-zCDP), over all groups together, if one person with at most
    `contributions` rows comes or goes. On a private frame, `protect` has the limits and the neighbouring relation.
    Group keys that come from the data are not protected: see the notes.

    Parameters
    ----------
    column
        The column's name, or an expression with one output: strings, categoricals, enums, integers, booleans, dates,
        times, durations or decimals.
    candidates
        The public answers, at most 10⁷: a list, a range, a Series, an Arrow array or a `polars.Enum`, without nulls and
        repetitions. They may be left out where the column's type names them (Enum, Boolean). Never take them from the
        data.
    within
        How wrong the answer may be, in the place of a loss: with probability 0.95 it is at most this far off, in the
        unit and the sense of `error_95` (see `PrivateQuery.explain`). The loss is the smallest of four significant
        digits that does it. On a private frame `agg` finds it under its bounds, in the unit of its budget (in epsilon
        without one); elsewhere it is found at once, in epsilon.
    epsilon, rho
        The privacy loss of one person in all, over all groups, in pure DP or in zCDP: one of them at most, and none
        with `within`. An int, float, Fraction or Decimal; a float is the decimal that it prints as, rounded down to 12
        digits: so eleven losses of 1/11 fit a budget of 1. In the `agg` of a private frame all of them may be left out:
        then `PrivateQuery.scaled_to` says the loss, for all outputs together. A plain expression must have one.
    loss_weight
        Where no loss and no `within` is given: how large a part of what `PrivateQuery.scaled_to` shares this output
        takes. A number above 0; left out, it is 1. With 2 it gets twice the loss.
    counts
        "people" or "rows": what a private frame with a privacy unit counts. The most common destination by aircraft
        need not be the one by flights. To count rows, `protect` must bound the rows of a person, as for quantiles.
        Elsewhere rows are counted. Or `dp_polars.weights(…)`: the candidate with the largest sum of a column is
        selected.
    too_few
        A whole number of at least 1, or None. It adds a public candidate with this constant score, which means "fewer
        than about this number". Where that candidate wins, the answer is null. It costs nothing: nobody changes a
        constant, so R stays the same.
    gap
        Whether the answer comes with its gap: by how many people (or rows) it was ahead of the next candidate, with
        noise. It costs nothing more, but needs `epsilon`. The candidate of `too_few` counts as a next one, too.
    contributions
        How many rows one person can have. We don't check this: if a person has more, they lose more than `epsilon`
        says. With `group_by_dynamic` or `rolling`, count a row once for each window that it is in.
    mechanism
        None: permute-and-flip under `epsilon`, the exponential mechanism under `rho`. Or "permute_and_flip" or
        "exponential", which are charged what is proved for them.

    Returns
    -------
    PrivateExpr
        One answer per group, of the column's type; of a Categorical, a String. With `gap`, a struct: `answer` of that
        type, and `gap`, an Int64 of at least 0, rounded down; null where there is no other candidate. Take it apart
        after collecting (`unnest`): an expression that names both fields may draw twice. Every evaluation is a release:
        collecting twice pays twice.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described. What depends on the column's type, Polars raises as a ComputeError with the
        same words when it resolves the schema. No value in a row raises.

    Notes
    -----
    Nulls and values outside the candidates are ignored. In a group without rows, every candidate is equally likely. The
    score is the count, R = 1 per row (McKenna & Sheldon 2020, arXiv 2010.12603). `DataFrame.group_by` takes its keys
    from the data, which publishes that each group exists. Where that is private, use `LazyFrame.dp.protect`.

    Proofs: :doc:`/proofs/permute-and-flip`, :doc:`/proofs/exponential`, :doc:`/proofs/ranges`, :doc:`/proofs/gaps`.

    Examples
    --------
    >>> import polars as pl
    >>> import dp_polars as dpp
    >>> df = pl.DataFrame(
    ...     {"ward": [1] * 50 + [2] * 50, "diagnosis": ["flu"] * 50 + ["cold"] * 50}
    ... )
    >>> mode = dpp.mode("diagnosis", ["cold", "flu"], epsilon=1.0)
    >>> df.group_by("ward", maintain_order=True).agg(mode)
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
    terms = Terms.of(epsilon, rho, contributions, mechanism, within=within, loss_weight=loss_weight)
    too_few_count = None if too_few is None else positive_int("too_few", too_few)
    if too_few_count is not None and not too_few_count < 2**31:
        msg = f"too_few must be below 2**31, got {too_few_count}."
        raise ValueError(msg)
    weighed = WeightedCounts.of(counts)
    query = Mode(
        Categories.of(candidates),
        claim_with_gap(Claim.on(terms, "choice"), gap=gap),
        weighed.of_people,
        too_few_count,
        weighed.weights,
    )
    return on_terms(query, terms, column, *weighed.columns)


@called
def quantile(
    column: IntoColumn,
    quantile: Number | Alphas,
    candidates: Values,
    *,
    confidence: Number | None = None,
    within: Number | None = None,
    epsilon: Number | None = None,
    rho: Number | None = None,
    loss_weight: Number | None = None,
    contributions: int = 1,
    mechanism: str | None = None,
) -> PrivateExpr:
    r"""Select the candidate nearest to the lower α-quantile of each group, or the candidates nearest to several.

    The answer is `epsilon`-differentially private (or `rho`-zCDP), over all groups and all quantiles of a list
    together, if one person with at most `contributions` rows comes or goes. On a private frame, `protect` has the
    limits and the neighbouring relation.

    Parameters
    ----------
    column
        The column's name, or an expression with one output: numbers, dates, datetimes, times or durations.
    quantile
        Strictly between 0 and 1, with a denominator of at most 10,000. Or such numbers in a list, a tuple or a NumPy
        array, strictly ascending.
    candidates
        The public answers: a `dp_polars.grid` or a range, which take no memory, or a list, Series or Arrow array
        without nulls, NaN and repetitions, in any order. Never take them from the data.
    confidence
        On a private frame only, of one quantile: with which probability two more columns of the release, `NAME_low` and
        `NAME_high`, hold the candidate nearest to the true quantile of the rows that the limits keep. Strictly between
        0.5 and 1, with a denominator of at most 10,000; 0.95 is usual. None: no such columns. The answer and both ends
        share the loss equally, so each of these three draws errs about three times as far, in rows, as the answer alone
        would (with `rho` 1.7 times).
    all others
        As for `mode`.

    Returns
    -------
    PrivateExpr
        One answer per group, of the candidates' type; for a list of quantiles a List of that type, in the order of the
        list and never decreasing. Every evaluation is a release: collecting twice pays twice.

    Raises
    ------
    TypeError, ValueError
        As for `mode`. Also if a list of quantiles is empty, repeats one or does not ascend, or if the denominators of
        its fractions are such that a quantile of a part of the rows has one above 2**24.

    Notes
    -----
    Null and NaN are ignored. Every other value counts as its nearest candidate, ties down; values beyond the ends count
    as the ends. Among these values the score is minus the number of rows, in units of 1/den for α = num/den, by which
    the candidate misses being the lower quantile: −max(0, num·N − den·A, den·L − num·N + 1) with L rows below it, A at
    or below it, N in all; R = 2·max(num, den − num) per row. Under "replace_one" R is twice that, but only 2·den on a
    private frame without groups or with one, where no row can go from one group to another; in several groups `rho`
    pays for the worse of a row that stays in its group and one that does not. At α = 1/2 the score is that of the
    median in McKenna & Sheldon 2020 (arXiv 2010.12603, Section 6). In a group without rows, every candidate is equally
    likely.

    An interval's ends are the same quantile of the group's rows and of further, public ones that equal the first or the
    last candidate: as many as it takes for each end to miss with probability (1 − confidence)/2, in groups of any size.
    What is released is the least and the greatest of the three draws, and the answer as it was drawn, between them.

    A list is drawn by ApproximateQuantiles (Kaplan, Schnapp & Stemmer 2022, arXiv 2110.05429): a middle quantile first,
    and the others from the rows on either side of its answer. A row is in one part of each level, so m quantiles cost L
    = ⌈log₂(m + 1)⌉ levels, and each draw has the loss epsilon/L or rho/L, where m separate ones would have 1/m each.
    Rows that equal an answer are divided by a random second digit of 20 bits, which is never published. The claim's
    `draws` are the levels; its `rate` is for a range of 1, and a draw whose score has the range R has rate/R.

    Proof: :doc:`/proofs/quantiles`.

    Examples
    --------
    >>> import polars as pl
    >>> import dp_polars as dpp
    >>> df = pl.DataFrame({"age": [40] * 200})
    >>> df.select(dpp.quantile("age", 0.9, range(0, 121), epsilon=2)).item()
    40
    >>> quartiles = dpp.quantile("age", [0.25, 0.5, 0.75], range(0, 121), epsilon=8)
    >>> df.select(quartiles).item().to_list()
    [40, 40, 40]
    """
    terms = Terms.of(epsilon, rho, contributions, mechanism, within=within, loss_weight=loss_weight)
    # No Series: it may be a private column, given by mistake, and a message would show its values.
    if not isinstance(quantile, (list, tuple, np.ndarray)):
        return on_terms(ask_quantile(quantile, candidates, terms, confidence), terms, column)
    if confidence is not None:
        msg = (
            "confidence must be left out for a list of quantiles: only one alone has an interval.\n\n"
            "Hint: ask for each of them by itself, at its own loss, as in quantile(0.25, …, confidence=0.95)."
        )
        raise ValueError(msg)
    alphas = as_alphas(quantile)
    claim = Claim.on(terms, "choice", draws=levels_of(len(alphas)))
    return on_terms(QuantileList(alphas, ordered(candidates), claim), terms, column)


@called
def median(
    column: IntoColumn,
    candidates: Values,
    *,
    confidence: Number | None = None,
    within: Number | None = None,
    epsilon: Number | None = None,
    rho: Number | None = None,
    loss_weight: Number | None = None,
    contributions: int = 1,
    mechanism: str | None = None,
) -> PrivateExpr:
    r"""Select the candidate nearest to the (lower) median of each group: `quantile` at α = 1/2, where R = 2 per row.

    Proof: :doc:`/proofs/quantiles`.

    Parameters
    ----------
    all
        As for `quantile`.

    Returns
    -------
    PrivateExpr
        One answer per group, of the candidates' type. Every evaluation is a release: collecting twice pays twice.

    Raises
    ------
    TypeError, ValueError
        As for `mode`.

    Examples
    --------
    >>> import polars as pl
    >>> import dp_polars as dpp
    >>> df = pl.DataFrame({"cost": [19.99] * 200})
    >>> df.select(dpp.median("cost", dpp.grid(0, 1000, step=0.01), rho=0.5)).item()
    19.99
    """
    terms = Terms.of(epsilon, rho, contributions, mechanism, within=within, loss_weight=loss_weight)
    return on_terms(ask_quantile(0.5, candidates, terms, confidence), terms, column)


@called
def top_k(
    column: IntoColumn,
    k: int,
    candidates: Values | None = None,
    *,
    within: Number | None = None,
    epsilon: Number | None = None,
    rho: Number | None = None,
    loss_weight: Number | None = None,
    counts: str | WeightedCounts = "people",
    contributions: int = 1,
    mechanism: str | None = None,
) -> PrivateExpr:
    r"""Select the k most common candidates of each group, best first.

    The list is `epsilon`-differentially private (or `rho`-zCDP), over all groups together, if one person with at most
    `contributions` rows comes or goes. On a private frame, `protect` has the limits and the neighbouring relation.

    Parameters
    ----------
    k
        How many candidates to select: a whole number from 1 to the number of candidates.
    mechanism
        None: under `rho` "exponential"; under `epsilon` "permute_and_flip" for k up to 4, "joint" for more. Or

        - "permute_and_flip", "exponential": k rounds without replacement, each at a k-th of the loss. The exponential
          ones have the law of one-shot Gumbel noise.
        - "joint": one exponential mechanism on all lists of k distinct candidates, by the largest count that a list
          misses. R is twice that of a mode (for k = 1 that of a mode), and all of the loss pays for one draw.
    all others
        As for `mode`.

    Returns
    -------
    PrivateExpr
        One list per group: k distinct values of the column's type; of a Categorical, Strings. Every evaluation is a
        release: collecting twice pays twice.

    Raises
    ------
    TypeError, ValueError
        As for `mode`.

    Notes
    -----
    Nulls and values outside the candidates are ignored. In a group without rows, all lists are equally likely.

    The counts of the list are not released. Where one person has few candidates in a group, sorted `value_counts` are
    better: their noise does not grow with k, and they give the counts; `explain` says so. It bounds the largest count
    that is missed: the most by which the j-th best count exceeds the count of the j-th answer, over all j.

    The rounds: McKenna & Sheldon 2020 (arXiv 2010.12603); Durfee & Rogers 2019 (arXiv 1905.04273). The joint
    mechanism: Gillenwater et al. 2022 (arXiv 2201.12333).

    Proof: :doc:`/proofs/top-k`.

    Examples
    --------
    >>> import polars as pl
    >>> import dp_polars as dpp
    >>> df = pl.DataFrame({"diagnosis": ["flu"] * 300 + ["cold"] * 200 + ["gout"] * 9})
    >>> top = dpp.top_k("diagnosis", 2, ["cold", "flu", "gout"], epsilon=1.0)
    >>> df.select(top).item().to_list()
    ['flu', 'cold']
    """
    number = positive_int("k", k)
    categories = Categories.of(candidates)
    if categories.values is not None:
        check_number(number, len(categories.values))
    terms = Terms.of(epsilon, rho, contributions, mechanism, within=within, loss_weight=loss_weight)
    if mechanism is None:
        joint = is_joint(number, terms.loss.unit)
    else:
        words = (*mechanisms_of("choice"), "joint")
        joint = one_of("mechanism", mechanism, words, f"one of {list(words)} or None") == "joint"
    on = replace(terms, mechanism="exponential") if joint else terms
    claim = Claim.on(on, "choice", draws=1 if joint else number)
    claim = replace(claim, is_asked=mechanism is not None)
    weighed = WeightedCounts.of(counts)
    query = TopK(number, categories, claim, weighed.of_people, joint, weighed.weights)
    return on_terms(query, terms, column, *weighed.columns)
