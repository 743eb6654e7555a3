"""Choices about a column: mode, median, quantiles, top k."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import polars as pl

from dp_polars._accounting.claims import mechanisms_of
from dp_polars._accounting.terms import Terms
from dp_polars._base.calls import called
from dp_polars._base.numbers import Number, one_of, positive_int
from dp_polars._bins.candidates import Categories, Values, ordered
from dp_polars._bins.weights import ONE_EACH, Weights
from dp_polars._expressions.expression import IntoColumn, PrivateExpr, as_column, on_terms
from dp_polars._statistics.answer_lists import Alphas, QuantileList, TopK, as_alphas, check_number, is_joint
from dp_polars._statistics.categories import Mode, ask_quantile
from dp_polars._statistics.statistic import terms_with_gap


@dataclass(frozen=True, eq=False)
class WeightedCounts:
    """The weight of a row or a person in a choice, as `dp_polars.weights` returns it."""

    of_people: bool
    weights: Weights = ONE_EACH
    columns: tuple[pl.Expr, ...] = ()  # the column of weights, or none

    @classmethod
    def of(cls, counts: object) -> WeightedCounts:
        """Return the argument `counts` of a choice, if it is "people", "rows" or from `weights`."""
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
        The largest weight of a person (or row), from public knowledge. It is R: a larger one means more noise.
    step
        The public step: weights are rounded to its nearest whole multiple, ties to even. Float weights need one. None:
        1 for integers and booleans, the last digit for decimals. `max_weight` must be at most 2**30 steps.
    of
        The sums that `max_weight` clips. "people": a person's sum for a candidate in a group, on a private frame with a
        privacy unit, for any number of rows. "rows": each row's weight. Without a privacy unit it is always each row's
        weight.

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
    r"""Select the most common candidate of each group: `pl.col(column).dp.mode(…)` as a function.

    Parameters
    ----------
    column
        The column's name, or an expression with one output: strings, enums, whole numbers, booleans, dates ….
    all others
        As for the method, which also documents results and errors.

    Examples
    --------
    >>> import polars as pl
    >>> import dp_polars as dpp
    >>> df = pl.DataFrame(
    ...     {"ward": [1] * 50 + [2] * 50, "diagnosis": ["flu"] * 50 + ["cold"] * 50}
    ... )
    >>> mode = dpp.mode("diagnosis", ["cold", "flu"], epsilon=1.0)
    >>> df.group_by("ward", maintain_order=True).agg(mode)["diagnosis"].to_list()
    ['flu', 'cold']
    """
    terms = Terms.of(epsilon, rho, contributions, mechanism, within=within, loss_weight=loss_weight)
    too_few_count = None if too_few is None else positive_int("too_few", too_few)
    if too_few_count is not None and not too_few_count < 2**31:
        msg = f"too_few must be below 2**31, got {too_few_count}."
        raise ValueError(msg)
    weighed = WeightedCounts.of(counts)
    query = Mode(
        Categories.of(candidates),
        terms_with_gap(terms, gap=gap),
        weighed.of_people,
        too_few_count,
        weighed.weights,
    )
    return on_terms(query, column, *weighed.columns)


@called
def quantile(
    column: IntoColumn,
    quantile: Number | Alphas,
    candidates: Values | None = None,
    *,
    confidence: Number | None = None,
    within: Number | None = None,
    epsilon: Number | None = None,
    rho: Number | None = None,
    loss_weight: Number | None = None,
    contributions: int = 1,
    mechanism: str | None = None,
) -> PrivateExpr:
    r"""Select the candidate nearest to a quantile of each group, or to several: `.dp.quantile` as a function.

    Parameters
    ----------
    column
        The column's name, or an expression with one output: numbers, dates, datetimes, times or durations.
    all others
        As for the method, which also documents results and errors.

    Examples
    --------
    >>> import polars as pl
    >>> import dp_polars as dpp
    >>> df = pl.DataFrame({"age": [40] * 200})
    >>> df.select(dpp.quantile("age", 0.9, range(0, 121), epsilon=2)).item()
    40
    """
    terms = Terms.of(epsilon, rho, contributions, mechanism, within=within, loss_weight=loss_weight)
    # No Series: it may be a private column, given by mistake, and a message would show its values.
    if not isinstance(quantile, (list, tuple, np.ndarray)):
        return on_terms(ask_quantile(quantile, candidates, terms, confidence), column)
    if confidence is not None:
        msg = (
            "confidence must be left out for a list of quantiles: only one alone has an interval.\n\n"
            "Hint: request each of them by itself, at its own loss, as in quantile(0.25, …, confidence=0.95)."
        )
        raise ValueError(msg)
    alphas = as_alphas(quantile)
    points = None if candidates is None else ordered(candidates)
    return on_terms(QuantileList(alphas, points, terms), column)


@called
def median(
    column: IntoColumn,
    candidates: Values | None = None,
    *,
    confidence: Number | None = None,
    within: Number | None = None,
    epsilon: Number | None = None,
    rho: Number | None = None,
    loss_weight: Number | None = None,
    contributions: int = 1,
    mechanism: str | None = None,
) -> PrivateExpr:
    r"""Select the candidate nearest to the (lower) median of each group: `.dp.median` as a function.

    Parameters
    ----------
    column
        The column's name, or an expression with one output: numbers, dates, datetimes, times or durations.
    all others
        As for the method, which also documents results and errors.

    Examples
    --------
    >>> import polars as pl
    >>> import dp_polars as dpp
    >>> df = pl.DataFrame({"cost": [19.99] * 200})
    >>> df.select(dpp.median("cost", dpp.grid(0, 1000, step=0.01), rho=0.5)).item()
    19.99
    """
    terms = Terms.of(epsilon, rho, contributions, mechanism, within=within, loss_weight=loss_weight)
    return on_terms(ask_quantile(0.5, candidates, terms, confidence), column)


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
    r"""Select the k most common candidates of each group, best first: `.dp.top_k` as a function.

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
    weighed = WeightedCounts.of(counts)
    query = TopK(number, categories, terms, weighed.of_people, joint, weighed.weights)
    return on_terms(query, column, *weighed.columns)
