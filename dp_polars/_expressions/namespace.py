"""The `.dp` accessor of expressions: one method for each statistic of a column."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal, Protocol

import polars as pl

from dp_polars import _expressions as functions
from dp_polars._base.calls import Suggesting, all_called
from dp_polars._expressions.sharing import share

if TYPE_CHECKING:
    from polars._typing import PolarsDataType, PythonDataType

    from dp_polars._base.numbers import Number
    from dp_polars._bins.candidates import Values
    from dp_polars._expressions.choosing import WeightedCounts
    from dp_polars._expressions.expression import PrivateExpr
    from dp_polars._statistics.answer_lists import Alphas

    class Column(pl.Expr):
        """The type of a column of `col` to type checkers: an expression with `.dp`. No object has this class."""

        @property
        def dp(self) -> PrivateNamespace: ...


# Alternatives to other methods that users may look for in `.dp`.
_A_QUANTILE = "use a high or low quantile, .dp.quantile(0.99, …): an extreme is one person's value."
_PEOPLE = "dp_polars.n_people(epsilon=…) counts the people of a group; other distinct values are not counted."
_INSTEAD = {
    **dict.fromkeys(("max", "min"), _A_QUANTILE),
    "arg_max": f".dp.argmax(…), of public candidates with their scores. For the largest value {_A_QUANTILE}",
    "arg_min": f".dp.argmin(…), of public candidates with their scores. For the smallest value {_A_QUANTILE}",
    **dict.fromkeys(("n_unique", "approx_n_unique", "n_people"), _PEOPLE),
    **dict.fromkeys(("len", "size"), "dp_polars.len(epsilon=…) counts the rows of a group."),
    **dict.fromkeys(("avg", "average"), ".dp.mean(lower, upper, epsilon=…)."),
    **dict.fromkeys(("hist", "histogram", "unique_counts"), ".dp.value_counts(candidates, epsilon=…)."),
    **dict.fromkeys(("first", "last", "item"), ".dp.mode(candidates, epsilon=…), or a quantile."),
    **dict.fromkeys(("share", "proportion", "ratio"), 'dp_polars.share(pl.col("age") >= 65, epsilon=…).'),
    "unique": 'the keys that enough people have: frame.dp.protect("patient", …).keys("column", …).',
    "quantiles": ".dp.quantile([0.25, 0.5, 0.75], candidates, epsilon=…).",
    "percentile": ".dp.quantile(0.9, candidates, epsilon=…).",
}


@share
@all_called
class PrivateNamespace(Suggesting):
    """Private statistics of a column, as `.dp` of a Polars expression: `pl.col("age").dp.median(…)`.

    Each method returns a private expression. On a private frame it goes into `agg`; on a plain frame it is an
    expression like any other, and every evaluation of it is a release.
    """

    _who = ".dp"

    def __init__(self, expr: pl.Expr) -> None:
        self._expr = expr

    def __repr__(self) -> str:
        asks = ", ".join(name for name in dir(self) if not name.startswith("_"))
        return f"<.dp of {self._expr}: {asks}>"

    def _instead_of(self, name: str) -> str:
        meant = super()._instead_of(name)
        return _INSTEAD.get(name) or meant or "the page Choose a statistic lists all."

    def mode(
        self,
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
        r"""Select the most common value of the column in each group, among public candidates.

        The answer is `epsilon`-differentially private (or `rho`-zCDP), over all groups together, if one person with at
        most `contributions` rows is added or removed. On a private frame, `protect` has the limits and the neighbouring
        relation. Group keys that come from the data are not protected: see the notes.

        Parameters
        ----------
        candidates
            The public answers, at most 10⁷: a list, a range, a Series, an Arrow array or a `polars.Enum`, without nulls
            and repetitions. Never take them from the data. You may leave them out if the column's type names them
            (Enum, Boolean). On a private frame you may also leave them out with the loss: a part of the joint guarantee
            then selects the values that enough people have, over all groups together. If none is selected, the answer
            is null. A query built without data selects them in all cases, because it doesn't know the type.
        within
            The accuracy, instead of a loss: with probability 0.95 the answer is at most this far off, in the unit of
            `error_95` (see `PrivateQuery.explain`). The loss is the smallest one of four significant digits. On a
            private frame `agg` finds it, in the unit of its budget (in epsilon without one). On a plain frame it is in
            epsilon.
        epsilon, rho
            The privacy loss of one person over all groups, in pure DP or in zCDP: at most one of them, and none with
            `within`. An int, float, Fraction or Decimal. A float is the decimal that it prints as, rounded down to 12
            digits, so eleven losses of 1/11 fit a budget of 1. On a private frame you may leave out both: then
            `PrivateQuery.scaled_to` sets the loss of all outputs together. A plain expression needs one.
        loss_weight
            Set while the loss is undecided: this statistic's weight in the joint guarantee, above 0. The default is 1,
            and 2 gets twice the loss.
        counts
            "people" (the default) or "rows", on a private frame with a privacy unit. The most common destination by
            aircraft need not be the one by flights. To count rows, a person's rows need a limit. Without a privacy
            unit, rows are counted. `dp_polars.weights(…)` selects the candidate with the largest sum of a column.
        too_few
            A whole number of at least 1, or None. It adds a public candidate with this constant score, "fewer than
            about this number". If that candidate wins, the answer is null. It costs nothing, because nobody changes a
            constant.
        gap
            Whether to add the gap: the noisy number of people (or rows) by which the answer was ahead of the next
            candidate, including that of `too_few`. It costs nothing more, but needs `epsilon`.
        contributions
            The most rows that one person has, unchecked. A person with more loses more than `epsilon`. With
            `group_by_dynamic` or `rolling`, count a row once for each of its windows.
        mechanism
            None: permute-and-flip under `epsilon`, the exponential mechanism under `rho`. Or "permute_and_flip" or
            "exponential", which are charged their proved cost.

        Returns
        -------
        PrivateExpr
            One answer per group, of the column's type; of a Categorical, a String. With `gap`, a struct of `answer` and
            `gap`, an Int64 of at least 0, rounded down, or null without another candidate. Use `unnest` after
            collecting, because an expression that names both fields may draw twice. Every evaluation is a release:
            collecting twice pays twice.

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described. Errors about the column's type come from Polars, as a ComputeError with
            the same words when it resolves the schema. No value in a row raises.

        Notes
        -----
        Nulls and values outside the candidates are ignored. In a group without rows, every candidate is equally likely.
        The score is the count, R = 1 per row (McKenna & Sheldon 2020, arXiv 2010.12603). `DataFrame.group_by` takes its
        keys from the data, which reveals that each group exists. If that is private, use `LazyFrame.dp.protect`.

        Proofs: :doc:`/proofs/permute-and-flip`, :doc:`/proofs/exponential`, :doc:`/proofs/ranges`, :doc:`/proofs/gaps`.

        Examples
        --------
        >>> import polars as pl
        >>> import dp_polars as dpp
        >>> visits = pl.DataFrame({"patient": range(100), "diagnosis": ["flu", "cold"] * 50})
        >>> visits = visits.with_columns(ward=pl.col("patient") % 2)
        >>> mode = pl.col("diagnosis").dp.mode(["cold", "flu"], epsilon=1)
        >>> private = visits.dp.protect("patient", max_groups=1)
        >>> private.group_by({"ward": [0, 1]}).agg(mode).release()
        shape: (2, 2)
        ┌──────┬───────────┐
        │ ward ┆ diagnosis │
        │ ---  ┆ ---       │
        │ i64  ┆ str       │
        ╞══════╪═══════════╡
        │ 0    ┆ flu       │
        │ 1    ┆ cold      │
        └──────┴───────────┘

        On a plain frame it is an expression like any other:

        >>> visits.filter(pl.col("ward") == 0).select(mode).item()
        'flu'
        """
        return functions.choosing.mode(
            self._expr,
            candidates,
            within=within,
            epsilon=epsilon,
            rho=rho,
            loss_weight=loss_weight,
            counts=counts,
            too_few=too_few,
            gap=gap,
            contributions=contributions,
            mechanism=mechanism,
        )

    def median(
        self,
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
        r"""Select the public candidate nearest to the (lower) median of the column in each group: the 0.5-quantile.

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
        >>> visits = pl.DataFrame({"patient": range(200), "cost": [19.99] * 200})
        >>> median = pl.col("cost").dp.median(dpp.grid(0, 1000, step=0.01), rho=0.5)
        >>> visits.dp.protect("patient", max_rows=1).agg(median).release().item()
        19.99
        """
        return functions.choosing.median(
            self._expr,
            candidates,
            confidence=confidence,
            within=within,
            epsilon=epsilon,
            rho=rho,
            loss_weight=loss_weight,
            contributions=contributions,
            mechanism=mechanism,
        )

    def quantile(
        self,
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
        r"""Select the public candidate nearest to a quantile of the column in each group, or those nearest to several.

        The answer is `epsilon`-differentially private (or `rho`-zCDP), over all groups and all quantiles of a list
        together, if one person with at most `contributions` rows is added or removed. On a private frame, `protect` has
        the limits and the neighbouring relation.

        Parameters
        ----------
        quantile
            Strictly between 0 and 1, with a denominator of at most 10,000. Or such numbers in a list, a tuple or a
            NumPy array, strictly ascending.
        candidates
            The public answers: a `dp_polars.grid` or a range, which take no memory, or a list, Series or Arrow array
            without nulls, NaN and repetitions, in any order. Never take them from the data. None, on a private frame
            and without a loss: a public grid between bounds that are found privately, before the answers. Integers have
            whole numbers, if these are at most 2**16. Other integers, decimals, floats and durations have three
            significant digits. Dates have days. Datetimes have the finest of 1, 5, 15 and 60 minutes with at most 2**16
            points, or days.
        confidence
            For one quantile on a private frame: two more columns, `NAME_low` and `NAME_high`. With this probability the
            candidate nearest to the true quantile, of the rows that the limits keep, is between them. Strictly between
            0.5 and 1, with a denominator of at most 10,000. None: no such columns. The answer and both ends share the
            loss equally, so each errs about three times as far, in rows (with `rho` 1.7 times).
        all others
            As for `mode`.

        Returns
        -------
        PrivateExpr
            One answer per group, of the candidates' type. A list of quantiles returns a List of that type, which never
            decreases. Every evaluation is a release: collecting twice pays twice. Without candidates, the answer is
            null in groups with too few people: there it may be beyond all values. `dp_polars.n_people` decides that,
            and is added if the query has none, with an eighth of the quantile's `loss_weight`. `explain` shows the
            number, and `release(min_people=…)` changes it.

        Raises
        ------
        TypeError, ValueError
            As for `mode`. Also if a list of quantiles is empty, repeats one or does not ascend, or if its denominators
            are too large together.

        Notes
        -----
        Null and NaN are ignored. Every other value counts as its nearest candidate, ties down; values beyond the ends
        count as the ends. Among these values the score is minus the number of rows by which the candidate misses the
        lower quantile, in units of 1/den for α = num/den: −max(0, num·N − den·A, den·L − num·N + 1) with L rows below
        it, A at or below it, N in all; R = 2·max(num, den − num) per row. Under "replace_one" R is twice that, but only
        2·den on a private frame without groups or with one, as no row can go from one group to another. In several
        groups `rho` pays for the worse of two cases: a row stays in its group, or does not. At α = 1/2 the score is the
        median's score in McKenna & Sheldon 2020 (arXiv 2010.12603, Section 6). In a group without rows, every candidate
        is equally likely.

        An interval's ends are the same quantile of the group's rows and of further, public rows that equal the first or
        the last candidate. There are enough of these for each end to miss with probability (1 − confidence)/2, in
        groups of any size. The released ends are the least and the greatest of the three draws. The answer is between
        them, as it was drawn.

        A list is drawn by ApproximateQuantiles (Kaplan, Schnapp & Stemmer 2022, arXiv 2110.05429): a middle quantile
        first, and the others from the rows on either side of its answer. A row is in one part of each level, so m
        quantiles cost L = ⌈log₂(m + 1)⌉ levels. Each draw has the loss epsilon/L or rho/L; m separate ones would have
        1/m each. Rows that equal an answer are divided by a random second digit of 20 bits, which is never published.
        The claim's `draws` are the levels. Its `rate` is for a range of 1, and a draw with a score of range R has
        rate/R.

        Proof: :doc:`/proofs/quantiles`.

        Examples
        --------
        >>> import polars as pl
        >>> import dp_polars as dpp
        >>> visits = pl.DataFrame({"patient": range(200), "age": [40] * 200})
        >>> private = visits.dp.protect("patient", max_rows=1)
        >>> age = pl.col("age").dp
        >>> private.agg(age.quantile(0.9, range(121), epsilon=2)).release().item()
        40
        >>> quartiles = age.quantile([0.25, 0.5, 0.75], range(121), epsilon=8)
        >>> private.agg(quartiles).release().item().to_list()
        [40, 40, 40]
        >>> private.agg(age.quantile(0.9)).scaled_to(epsilon=20).release()["age"].item()
        40
        """
        return functions.choosing.quantile(
            self._expr,
            quantile,
            candidates,
            confidence=confidence,
            within=within,
            epsilon=epsilon,
            rho=rho,
            loss_weight=loss_weight,
            contributions=contributions,
            mechanism=mechanism,
        )

    def first_above(
        self,
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
        r"""Select the first candidate of each group, in their public order, with a count of at least about a threshold.

        The answer is `epsilon`-differentially private, over all groups together, if one person with at most
        `contributions` rows is added or removed. On a private frame, `protect` has the limits and the neighbouring
        relation. The range R is 2, and 3 under "replace_one".

        Parameters
        ----------
        candidates
            The public answers in their order: as for `mode` a list, a range, a Series, an Arrow array or a
            `polars.Enum`. Or a `dp_polars.grid`, ascending, which takes no memory: each value counts as its nearest
            point then, and values beyond the ends count as the ends. Never take them from the data.
        threshold
            A public number of people or rows, above 0 and at most 2**62: an int, float, Fraction or Decimal.
        rho
            Must be left out. A budget in rho accepts `epsilon`, and is charged epsilon·tanh(epsilon/2) in each group.
        gap
            Whether to add the gap: by how many people (or rows) the answer is above the threshold, with the noise of
            both. It costs nothing more.
        all others
            As for `mode`.

        Returns
        -------
        PrivateExpr
            One answer per group, of the column's type (of a Categorical, a String) or of the grid's; null if no
            candidate reaches the threshold. With `gap`, a struct: `answer` of that type, and `gap`, an Int64 of at
            least 0, rounded down; null if the answer is null. Every evaluation is a release: collecting twice pays
            twice.

        Raises
        ------
        TypeError, ValueError
            As for `mode`.

        Notes
        -----
        Nulls and values outside a list of candidates are ignored. The threshold gets exponential noise once in each
        group, and each count once; the first noisy count that reaches the noisy threshold is the answer. The rate of
        both is λ = epsilon/(R·T), T the rows of a person, or the groups if people are counted. So the loss does not
        depend on the number of candidates before the answer. Exponential noise has half the variance of the Laplace
        noise that this is usually drawn with (Dwork & Roth 2014, section 3.6; Durfee 2023, NeurIPS).

        With probability 0.95 no candidate before the answer is ln(10)/λ or more above the threshold. With probability
        0.95 the answer among k candidates has more than the threshold minus ln(10·k)/λ. `explain` shows both. If one
        person has few candidates in a group, `value_counts` is better, and shows all counts; `explain` notes it. Time
        and memory grow with the number of occurring candidates.

        Proof: :doc:`/proofs/first-above`.

        Examples
        --------
        >>> import polars as pl
        >>> import dp_polars as dpp
        >>> weeks = [1] * 20 + [2] * 40 + [3] * 400 + [4] * 900
        >>> cases = pl.DataFrame({"patient": range(1360), "week": weeks})
        >>> first = pl.col("week").dp.first_above(range(1, 53), threshold=200, epsilon=1)
        >>> cases.dp.protect("patient").agg(first).release().item()
        3
        """
        return functions.best_rows.first_above(
            self._expr,
            candidates,
            threshold=threshold,
            epsilon=epsilon,
            rho=rho,
            loss_weight=loss_weight,
            counts=counts,
            gap=gap,
            contributions=contributions,
        )

    def top_k(
        self,
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
        r"""Select the k most common values of the column in each group, among public candidates, best first.

        The list is `epsilon`-differentially private (or `rho`-zCDP), over all groups together, if one person with at
        most `contributions` rows is added or removed. On a private frame, `protect` has the limits and the neighbouring
        relation.

        Parameters
        ----------
        k
            How many candidates to select: a whole number from 1 to the number of candidates. If these are selected
            privately, and fewer, lists have all of them.
        mechanism
            None: under `rho` "exponential"; under `epsilon` "permute_and_flip" for k up to 4, "joint" for more. Or

            - "permute_and_flip", "exponential": k rounds without replacement, each at a k-th of the loss. The
              exponential ones have the law of one-shot Gumbel noise.
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

        The counts of the list are not released. If one person has few candidates in a group, sorted `value_counts` are
        better: their noise does not grow with k, and they show the counts. `explain` notes it. It bounds the largest
        count that is missed: the most by which the j-th best count exceeds the count of the j-th answer, over all j.

        The rounds: McKenna & Sheldon 2020 (arXiv 2010.12603); Durfee & Rogers 2019 (arXiv 1905.04273). The joint
        mechanism: Gillenwater et al. 2022 (arXiv 2201.12333).

        Proof: :doc:`/proofs/top-k`.

        Examples
        --------
        >>> import polars as pl
        >>> import dp_polars as dpp
        >>> diagnoses = ["flu"] * 300 + ["cold"] * 200 + ["gout"] * 9
        >>> visits = pl.DataFrame({"patient": range(509), "diagnosis": diagnoses})
        >>> top = pl.col("diagnosis").dp.top_k(2, ["cold", "flu", "gout"], epsilon=1)
        >>> visits.dp.protect("patient").agg(top).release().item().to_list()
        ['flu', 'cold']
        """
        return functions.choosing.top_k(
            self._expr,
            k,
            candidates,
            within=within,
            epsilon=epsilon,
            rho=rho,
            loss_weight=loss_weight,
            counts=counts,
            contributions=contributions,
            mechanism=mechanism,
        )

    def argmax(
        self,
        *,
        sensitivity: Number | pl.Expr,
        monotonic: bool = False,
        gap: bool = False,
        gap_step: Number | None = None,
        epsilon: Number | None = None,
        rho: Number | None = None,
        mechanism: str | None = None,
    ) -> PrivateExpr:
        r"""Select the row with the highest score in each group: the column has scores of the caller's own.

        The answer is `epsilon`-differentially private (or `rho`-zCDP) for any change of the rows that moves the scores
        by at most `sensitivity`.

        Parameters
        ----------
        sensitivity
            The most that one person can change any one score, *summed over all groups* that this person touches. We
            don't check this. If it is too small, the answer is less private than `epsilon`. Or an expression such as
            `pl.col("price")`: a *public* sensitivity for every row. Then a person's largest change in a group is
            measured in units of the row's own sensitivity. These changes must add up to at most 1 over all groups. So
            if a person touches several groups, each sensitivity must be as many times larger. A row with a sensitivity
            that is null, NaN, infinite or not above 0 can't win. A group may have at most 4,096 rows that can win.
        monotonic
            Whether one person moves all scores in the same direction. We don't check this. R is then `sensitivity`
            instead of twice that. Counts are monotonic if a person is added or removed, but not if one is replaced. It
            must be left out with a column of sensitivities.
        gap
            Whether to add the gap: how much higher (for argmin: lower) the answer's score was than the next one, with
            noise. It costs nothing more, but needs `epsilon`. It must be left out with a column of sensitivities.
        gap_step
            The public unit to which a gap is rounded down, above 0. None: 1 for integers, the last digit for decimals.
            Floats need one.
        epsilon, rho, mechanism
            As for `mode`.

        Returns
        -------
        PrivateExpr
            The position of the chosen row in its group, UInt32; null if no row has a finite score. With `gap`, a
            struct: `answer` is the position, and `gap` a Float64 for floats and for a step that is a float or a
            Fraction, a Decimal for decimals and for a step with decimal places, else Int64; null if no other row has a
            finite score. Every evaluation is a release: collecting twice pays twice.

        Raises
        ------
        TypeError, ValueError
            As for `mode`.

        Notes
        -----
        The existing rows, and which of them have a finite score, count as public. A row with a null, NaN or infinite
        score can't win. McKenna & Sheldon 2020, arXiv 2010.12603.

        With sensitivities D of their own, the score of row i is the least of ((q_i − t·D_i) − (q_j − t·D_j))/(D_i +
        D_j) over all j, computed exactly. Its sensitivity is 1, and R = 2 (Raskhodnikova & Smith 2016, arXiv
        1504.07912). Here t = ln(k/β)/λ for k rows and β = 0.05 (permute-and-flip: (k − 1)/2 for k), rounded. With
        probability 1 − β, the chosen row has q_i >= q_j − 2·t·D_j for all j: it is near the best row by *that* row's
        sensitivity, not the largest one. All pairs of rows of a group are compared.

        Proofs: :doc:`/proofs/permute-and-flip`, :doc:`/proofs/ranges`, :doc:`/proofs/gaps`.

        Examples
        --------
        >>> import polars as pl
        >>> import dp_polars as dpp
        >>> prices = pl.DataFrame({"price": [1, 2, 3], "revenue": [100, 900, 300]})
        >>> best = pl.col("revenue").dp.argmax(epsilon=1, sensitivity=3, monotonic=True)
        >>> prices.select(pl.col("price").get(best)).item()
        2
        >>> best = pl.col("revenue").dp.argmax(epsilon=1, sensitivity=pl.col("price"))
        >>> prices.select(pl.col("price").get(best)).item()
        2
        """
        return functions.best_rows.argmax(
            self._expr,
            sensitivity=sensitivity,
            monotonic=monotonic,
            gap=gap,
            gap_step=gap_step,
            epsilon=epsilon,
            rho=rho,
            mechanism=mechanism,
        )

    def argmin(
        self,
        *,
        sensitivity: Number | pl.Expr,
        monotonic: bool = False,
        gap: bool = False,
        gap_step: Number | None = None,
        epsilon: Number | None = None,
        rho: Number | None = None,
        mechanism: str | None = None,
    ) -> PrivateExpr:
        r"""Select the row with the lowest score in each group: `argmax` of the negated scores.

        Proofs: :doc:`/proofs/permute-and-flip`, :doc:`/proofs/ranges`, :doc:`/proofs/gaps`.

        Parameters
        ----------
        all
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
        >>> best = pl.col("error").dp.argmin(epsilon=1, sensitivity=5)
        >>> errors.select(pl.col("model").get(best)).item()
        'b'
        """
        return functions.best_rows.argmin(
            self._expr,
            sensitivity=sensitivity,
            monotonic=monotonic,
            gap=gap,
            gap_step=gap_step,
            epsilon=epsilon,
            rho=rho,
            mechanism=mechanism,
        )

    def count(
        self,
        *,
        within: Number | None = None,
        epsilon: Number | None = None,
        rho: Number | None = None,
        loss_weight: Number | None = None,
        contributions: int = 1,
        mechanism: str | None = None,
    ) -> PrivateExpr:
        r"""Count the rows of each group that have a value in the column, with noise. Null and NaN are no values.

        The column may have any type.

        Proof: :doc:`/proofs/numbers`.

        Parameters
        ----------
        all
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
        >>> visits = pl.DataFrame({"patient": range(40), "age": [40, None] * 20})
        >>> private = visits.dp.protect("patient", max_rows=1)
        >>> private.agg(pl.col("age").dp.count(epsilon=100)).release().item()
        20
        """
        return functions.measuring.count(
            self._expr,
            within=within,
            epsilon=epsilon,
            rho=rho,
            loss_weight=loss_weight,
            contributions=contributions,
            mechanism=mechanism,
        )

    def null_count(
        self,
        *,
        within: Number | None = None,
        epsilon: Number | None = None,
        rho: Number | None = None,
        loss_weight: Number | None = None,
        contributions: int = 1,
        mechanism: str | None = None,
    ) -> PrivateExpr:
        r"""Count the nulls of the column in each group, with noise. NaN is no null.

        The column may have any type.

        Proof: :doc:`/proofs/numbers`.

        Parameters
        ----------
        all others
            As for `dp_polars.len`. Rows without a null in the column do not count toward the limits.

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
        >>> ages = [40.5, None, float("nan"), 7.0] * 20
        >>> visits = pl.DataFrame({"patient": range(80), "age": ages})
        >>> private = visits.dp.protect("patient", max_rows=1)
        >>> private.agg(pl.col("age").dp.null_count(epsilon=100)).release().item()
        20
        """
        return functions.measuring.null_count(
            self._expr,
            within=within,
            epsilon=epsilon,
            rho=rho,
            loss_weight=loss_weight,
            contributions=contributions,
            mechanism=mechanism,
        )

    def sum(
        self,
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
        r"""Add up the values of the column in each group, clipped to public clipping bounds, with noise.

        The column must have integers, decimals, floats or booleans (0 and 1).

        Parameters
        ----------
        lower, upper
            The public clipping bounds, of either sign. A value beyond them counts as the nearer one. Wider ones mean
            more noise. Never take them from the data. None: found privately, if the query of a private frame is
            `scaled_to` one guarantee.
        step
            The public unit in which values are added up; each counts as its nearest multiple, ties to even. None: 1 for
            integers, the last digit for decimals; for floats, and for decimals of too many digits, the power of ten at
            or below a millionth of `upper - lower` (of the ends of `per_person`, if given), or a larger one if sums
            would not fit into 62 bits: `explain` shows it. The bounds must be multiples of it, and at most 2**30 of
            them.
        per_person
            The public clipping bounds (lo, hi) of one person's total in a group, multiples of the step with lo below
            hi; on a private frame with a privacy unit only. Each value is clipped to [lower, upper] first, and then the
            total of a person to [lo, hi]. A person without a value adds 0, not lo. The number of rows does not matter.
            Totals in more groups than `max_groups` (or `max_rows`, if it is smaller) count in part. The noise has the
            scale of the larger of │lo│ and │hi│ times these groups. `max_rows_per_group` does nothing then. True: the
            bounds are found privately, as `lower` and `upper` are; values then need none. None: values are added up
            as rows.
        all others
            As for `dp_polars.len`. The noise has the scale of the larger clipping bound times a person's rows.

        Returns
        -------
        PrivateExpr
            One number per group: Float64 for floats and for a step that is a float or a Fraction, Decimal for decimals
            and for a step with decimal places, else Int64. A number beyond the type's range becomes its largest or
            smallest one. The sum of a group without values is 0 plus noise. Every evaluation is a release. On a private
            frame, values of people beyond the limits count in part, as in `dp_polars.len`.

        Raises
        ------
        TypeError, ValueError
            As for `mode`.

        Notes
        -----
        Nulls and NaN are ignored. Sums are exact below 2**62 steps: 2**32 rows with the largest bounds. If values are
        no multiples of the step, rounding moves a sum by at most half a step a row, in addition to `error_95` and to
        intervals.

        Proof: :doc:`/proofs/numbers`.

        Examples
        --------
        >>> import polars as pl
        >>> import dp_polars as dpp
        >>> visits = pl.DataFrame({"patient": [1, 2, 3], "cost": [19.99, 5.01, 7000.0]})
        >>> cost = pl.col("cost").dp.sum(0, 100, step=0.01, epsilon=10**7)
        >>> visits.dp.protect("patient", max_rows=1).agg(cost).release().item()
        125.0
        """
        return functions.measuring.sum(
            self._expr,
            lower,
            upper,
            step=step,
            per_person=per_person,
            within=within,
            epsilon=epsilon,
            rho=rho,
            loss_weight=loss_weight,
            contributions=contributions,
            mechanism=mechanism,
        )

    def mean(
        self,
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
        r"""Average the values of the column in each group, clipped to public clipping bounds, with noise.

        Half of the loss pays for a sum of distances from the middle of the bounds, half for the number of values. In ε,
        a private frame draws the sums of the distances from both bounds, with all of the loss.

        Parameters
        ----------
        lower, upper, step
            As for `sum`.
        within
            As for `dp_polars.len`, in the column's unit, for groups of at least `rows` rows.
        rows
            With `within` only: a public number of rows with a value, counted under the limits. A group with fewer may
            be further off, because the sum and the number of its rows have the same noise.
        all others
            As for `dp_polars.len`.

        Returns
        -------
        PrivateExpr
            One Float64 per group, between the bounds. In a group with few values the answer is mostly noise; the
            confidence interval of `release(intervals=True)` shows it. On a private frame it is a weighted mean: all
            values of a person beyond the limits weigh less.

        Raises
        ------
        TypeError, ValueError
            As for `sum`.

        Notes
        -----
        Nulls and NaN are ignored. `error_95` and intervals include the rounding to the step.

        Proof: :doc:`/proofs/numbers`, :doc:`/proofs/sum-pairs`, and of intervals :doc:`/proofs/mean-intervals`.

        Examples
        --------
        >>> import polars as pl
        >>> import dp_polars as dpp
        >>> stays = pl.DataFrame({"patient": range(400), "days": [1, 2, 3, 90] * 100})
        >>> private = stays.dp.protect("patient", max_rows=1)
        >>> round(private.agg(pl.col("days").dp.mean(0, 60, epsilon=1000)).release().item(), 1)
        16.5
        """
        return functions.measuring.mean(
            self._expr,
            lower,
            upper,
            step=step,
            within=within,
            rows=rows,
            epsilon=epsilon,
            rho=rho,
            loss_weight=loss_weight,
            contributions=contributions,
            mechanism=mechanism,
        )

    def var(
        self,
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
        r"""Find the variance of the column in each group, clipped to public clipping bounds, with noise.

        A third of the loss pays for each of three noisy numbers: the sum of the distances from the middle of the
        bounds, the sum of their squares, and the number of values.

        Parameters
        ----------
        lower, upper, step
            As for `sum`. Wide bounds cost more than in a mean: the noise grows with the square of their distance.
        ddof
            The divisor is the noisy number of values minus this number, as in Polars: 0 or 1. With 1, the variance is 0
            if the noisy number is at most 1.
        within, rows
            As for `mean`, in the column's unit, squared.
        all others
            As for `dp_polars.len`.

        Returns
        -------
        PrivateExpr
            One Float64 per group, from 0 to ((upper - lower) / 2)², the most for values between the bounds; with ddof=1
            up to twice that. Otherwise as for `mean`.

        Raises
        ------
        TypeError, ValueError
            As for `sum`.

        Notes
        -----
        Nulls and NaN are ignored. Values are rounded to the step, which moves the standard deviation by at most half of
        it. Squares have a step of their own, which follows from the bounds and the step: a row has at most 2**30 of
        them. If (upper - lower) / step is at most 2**15, they are exact. Beyond, the variance is off by less than
        2**-27 of the largest one.

        Proof: :doc:`/proofs/numbers`, :doc:`/proofs/sum-pairs`.

        Examples
        --------
        >>> import polars as pl
        >>> import dp_polars as dpp
        >>> stays = pl.DataFrame({"patient": range(4000), "days": [1, 2, 3, 90] * 1000})
        >>> private = stays.dp.protect("patient", max_rows=1)
        >>> round(private.agg(pl.col("days").dp.var(0, 60, epsilon=1000)).release().item())
        631
        """
        return functions.measuring.var(
            self._expr,
            lower,
            upper,
            step=step,
            ddof=ddof,
            within=within,
            rows=rows,
            epsilon=epsilon,
            rho=rho,
            loss_weight=loss_weight,
            contributions=contributions,
            mechanism=mechanism,
        )

    def std(
        self,
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
        r"""Find the standard deviation of the column in each group, clipped to public clipping bounds, with noise.

        It is the root of `var`, from the same three noisy numbers.

        Parameters
        ----------
        lower, upper, step, ddof
            As for `var`.
        within, rows
            As for `mean`, in the column's unit. It applies to values of any deviation. If the deviation is not near 0,
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
            As for `sum`.

        Notes
        -----
        See `var`. Proof: :doc:`/proofs/numbers`.

        Examples
        --------
        >>> import polars as pl
        >>> import dp_polars as dpp
        >>> stays = pl.DataFrame({"patient": range(4000), "days": [1, 2, 3, 90] * 1000})
        >>> private = stays.dp.protect("patient", max_rows=1)
        >>> round(private.agg(pl.col("days").dp.std(0, 60, epsilon=1000)).release().item())
        25
        """
        return functions.measuring.std(
            self._expr,
            lower,
            upper,
            step=step,
            ddof=ddof,
            within=within,
            rows=rows,
            epsilon=epsilon,
            rho=rho,
            loss_weight=loss_weight,
            contributions=contributions,
            mechanism=mechanism,
        )

    def value_counts(
        self,
        candidates: Values,
        *,
        within: Number | None = None,
        epsilon: Number | None = None,
        rho: Number | None = None,
        loss_weight: Number | None = None,
        contributions: int = 1,
        mechanism: str | None = None,
    ) -> PrivateExpr:
        r"""Count every public candidate among the values of the column in each group, with noise.

        Parameters
        ----------
        candidates
            As for `mode`. Candidates must be given. On a private frame people are counted, each for at most
            `max_rows_per_group` candidates of a group. A person with more counts in part for each of them.
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
        The noise does not grow with the number of candidates: one row changes one count. Rankings, shares and charts of
        the counts cost nothing more.

        Proof: :doc:`/proofs/numbers`.

        Examples
        --------
        >>> import polars as pl
        >>> import dp_polars as dpp
        >>> visits = pl.DataFrame({"patient": range(42), "band": ["young"] * 30 + ["old"] * 12})
        >>> counts = pl.col("band").dp.value_counts(["young", "middle", "old"], epsilon=100)
        >>> answer = visits.dp.protect("patient", max_rows_per_group=1).agg(counts).release()
        >>> answer.explode("band").unnest("band").rows()
        [('young', 30), ('middle', 0), ('old', 12)]
        """
        return functions.measuring.value_counts(
            self._expr,
            candidates,
            within=within,
            epsilon=epsilon,
            rho=rho,
            loss_weight=loss_weight,
            contributions=contributions,
            mechanism=mechanism,
        )


class Col(Protocol):
    """The type of `col` to type checkers; it has the calls and attributes of `polars.col`."""

    def __call__(
        self,
        name: str | PolarsDataType | PythonDataType | Iterable[str] | Iterable[PolarsDataType | PythonDataType],
        *more_names: str | PolarsDataType | PythonDataType,
    ) -> Column:
        """Return one or several columns, by name or type."""

    def __getattr__(self, name: str) -> Column:
        """Return the column of this name."""


class _Columns(type(pl.col)):  # type: ignore[misc]  # Polars' own class
    """Polars' `col` without columns such as `__signature__`, at which completion in a terminal stops."""

    def __getattr__(self, name: str) -> pl.Expr:
        if name.startswith("__") and name.endswith("__"):
            msg = f"{type(self).__name__!r} object has no attribute {name!r}"
            raise AttributeError(msg)
        column: pl.Expr = super().__getattr__(name)
        return column


# Its type has columns with `.dp`.
col: Col = _Columns()
