"""The methods of a private frame that find what nobody listed: keys, and bounds on a person's rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from dp_polars._accounting.budget import Budget
from dp_polars._accounting.terms import ONE_RELEASE, Loss, Terms, check_delta, warn_if_large
from dp_polars._base.calls import all_called
from dp_polars._base.column_types import without_nul
from dp_polars._base.numbers import Number, flag, given
from dp_polars._bins.candidates import Values
from dp_polars._frames.facts import KeyRequest, PeopleRequest
from dp_polars._frames.query import PrivateQuery
from dp_polars._questions.categories import as_alpha, ask_quantile
from dp_polars._questions.question import COUNT, KeysThatAreThere
from dp_polars._release.contract import GROUPS, ROWS, ROWS_IN_GROUP
from dp_polars._release.pipeline import Pipeline
from dp_polars._release.request import Ask
from dp_polars._release.sources import PublicKeys, public_keys


@all_called
class Unlisted:
    """Questions about what can't be listed in advance."""

    _pipeline: Pipeline
    _sources: tuple[pl.LazyFrame, ...]
    _budget: Budget | None

    def keys(
        self,
        *columns: str,
        delta: Number,
        epsilon: Number | None = None,
        rho: Number | None = None,
        counts: bool = False,
    ) -> PrivateQuery:
        r"""Ask which keys there are, where nobody can list them: those that enough people have.

        The release is (epsilon, delta)-DP for one person, or delta-approximately rho-zCDP. A key that one person alone
        has is shown with probability at most delta. It costs what one person loses over all keys together.

        Parameters
        ----------
        *columns
            Names of columns: a key is a combination of their values. Null is never a key, and a row with a null in one
            of these columns is left out. Floats are refused.
        delta
            Above 0 and below 1, and far below one over the number of people: 1e-8, say. It is spent in addition to the
            loss.
        epsilon, rho
            The loss, exactly one of them. epsilon: by optimal partition selection. rho: by discrete Gaussian noise on
            the numbers of people, and a threshold.
        counts
            Whether the noisy numbers of people come along, in a column "count". Only with rho.

        Returns
        -------
        PrivateQuery
            Its release is a frame of the keys that are shown, sorted, one column for each of `columns`, in that
            column's type (String for a Categorical); perhaps without rows. It goes into `group_by(frame)`, and a column
            of it into `mode(candidates)`. `ranges=True` adds nothing to it. Its `explain` has one row, which says from
            how many people on a key is shown with probabilities of 95, 50 and 5 %; its `rate` is the epsilon of one
            key, or one over the standard deviation of the noise.

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described, a column is missing or of floats, or there is a privacy unit and
            `protect` was given no `max_groups` (nor `max_rows`).

        Notes
        -----
        Where there is a privacy unit, people are counted; rows elsewhere, each of another person. A person who has more
        keys than `max_groups` counts for that many of them, chosen at random from that person's own rows. The larger
        that bound, the more people a key needs. 128-bit integers and decimals beyond 64 bits are never shown.

        With epsilon: Desfontaines, Voss, Gipson & Mandayam 2022 (arXiv 2006.03684, Theorem 1). With rho: Canonne,
        Kamath & Steinke 2020 (arXiv 2004.00010); Bun & Steinke 2016 (arXiv 1605.02065, Definition 8.1).

        Proof: :doc:`/proofs/keys`.

        Examples
        --------
        >>> import polars as pl
        >>> import dp_polars as dpp
        >>> visits = pl.DataFrame(
        ...     {"patient": range(100), "town": ["Bern"] * 60 + ["Olten"] * 39 + ["Twann"]}
        ... )
        >>> private = visits.dp.protect("patient", max_groups=1)
        >>> towns = private.keys("town", epsilon=1, delta=1e-8).release()
        >>> towns["town"].to_list()
        ['Bern', 'Olten']
        >>> private.group_by(towns).agg(dpp.n_people(epsilon=1)).release().height
        2
        """
        loss, protection = Loss.of(epsilon=epsilon, rho=rho), self._pipeline.calibration
        _check_names(columns)
        counts = flag("counts", counts)
        if counts and loss.unit == "epsilon":
            msg = (
                "counts must be left out with epsilon: partition selection puts no noise on the numbers of people.\n\n"
                "Hint: give rho, or ask for counts of the keys that were released: group_by(keys).agg(…)."
            )
            raise ValueError(msg)
        if counts and COUNT in columns:
            msg = f"keys: no column may be named {COUNT!r} with counts=True.\n\nHint: rename it."
            raise ValueError(msg)
        person = protection.keys_per_person, protection.neighboring_relation
        question = KeysThatAreThere.of(columns, loss, check_delta(delta), *person, counts=counts)
        warn_if_large(loss, question.claim.delta)
        request = KeyRequest(self._pipeline, None, (Ask("keys", tuple(map(pl.col, columns)), question),))
        return PrivateQuery(request, self._sources, self._budget)

    def rows_per_person(
        self,
        alpha: Number,
        candidates: Values,
        *,
        keys: PublicKeys | None = None,
        epsilon: Number | None = None,
        rho: Number | None = None,
        mechanism: str | None = None,
    ) -> PrivateQuery:
        r"""Ask for a quantile of how many rows people have: a bound for `protect`, found privately.

        Pure DP (epsilon) or zCDP (rho) for one person. Each person is one value, whatever rows they have: so nothing
        has to be bounded first, and the bounds of `protect` do nothing here.

        Proof: :doc:`/proofs/contributions`.

        Parameters
        ----------
        alpha
            Strictly between 0 and 1. 0.95: all but a twentieth of the people have no more rows than the answer.
        candidates, mechanism
            The public answers, `range(1, 101)` say, and the mechanism, as for `quantile`.
        keys
            None: all rows of a person count, a bound for `max_rows`. Or public groups, as for `group_by`: the value of
            a person is the largest number of rows in one of these groups, a bound for `max_rows_per_group`.
        epsilon, rho
            The loss, exactly one of them.

        Returns
        -------
        PrivateQuery
            With one output, "rows_per_person". People without rows don't count; with keys, people without a row in any
            of these groups. That is after the frame's steps: to count only what an answer will be asked of, do these
            first.

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described, or there is no privacy unit.

        Examples
        --------
        >>> import polars as pl
        >>> import dp_polars as dpp
        >>> visits = pl.DataFrame({"patient": [i // 3 for i in range(3000)]})
        >>> visits.dp.protect("patient").rows_per_person(
        ...     0.95, range(1, 51), epsilon=1
        ... ).release().item()
        3
        """
        terms = Terms.at(Loss.of(epsilon=epsilon, rho=rho), mechanism=mechanism)
        listed, column = (None, ROWS) if keys is None else (public_keys(keys), ROWS_IN_GROUP)
        return self._of_people("rows_per_person", listed, column, alpha, candidates, terms)

    def groups_per_person(
        self,
        keys: PublicKeys,
        alpha: Number,
        candidates: Values,
        *,
        epsilon: Number | None = None,
        rho: Number | None = None,
        mechanism: str | None = None,
    ) -> PrivateQuery:
        r"""Ask for a quantile of how many of the public groups people have rows in: a bound for `max_groups`.

        All is as for `rows_per_person`, but the name of the output, "groups_per_person".

        Proof: :doc:`/proofs/contributions`.

        Examples
        --------
        >>> import polars as pl
        >>> import dp_polars as dpp
        >>> visits = pl.DataFrame(
        ...     {"patient": [i // 3 for i in range(3000)], "ward": ["A", "A", "B"] * 1000}
        ... )
        >>> private = visits.dp.protect("patient")
        >>> private.groups_per_person(
        ...     {"ward": ["A", "B"]}, 0.95, range(1, 3), epsilon=1
        ... ).release().item()
        2
        """
        terms = Terms.at(Loss.of(epsilon=epsilon, rho=rho), mechanism=mechanism)
        return self._of_people("groups_per_person", public_keys(keys), GROUPS, alpha, candidates, terms)

    def bounds(
        self,
        keys: PublicKeys | None,
        share: Number = 0.95,
        *,
        epsilon: Number | None = None,
        rho: Number | None = None,
        candidates: Values = range(1, 101),
    ) -> PrivateQuery:
        r"""Ask for `max_groups` and `max_rows_per_group` that cut few people, for `with_limits`.

        Pure DP (epsilon) or zCDP (rho) for one person. Each person is one value of each of the two, whatever rows they
        have: so nothing has to be bounded first. A bound that `protect` has is not asked for.

        Parameters
        ----------
        keys
            The public groups, as for `group_by`. None: one group, which needs `max_rows_per_group` alone.
        share
            Strictly between 0 and 1: the share of the people who shall be within all bounds that are asked for.
        epsilon, rho
            The loss, exactly one of them: of both bounds together, in equal parts.
        candidates
            The public answers: whole numbers of at least 1.

        Returns
        -------
        PrivateQuery
            Its release is a frame of one row with the columns "max_groups" and "max_rows_per_group", of those that are
            asked for. People without a row in any of the groups don't count.

        Raises
        ------
        TypeError, ValueError
            If an argument is not as described, there is no privacy unit, or `protect` has all these bounds.

        Notes
        -----
        Each of j bounds is a quantile over people at 1 − (1 − `share`)/j. So without noise at most 1 − `share` of the
        people are above one of them. `explain` bounds how many people the noise is off. A bound above all candidates
        becomes the largest one: see how many people are cut with `PrivateQuery.n_cut`.

        Proof: :doc:`/proofs/contributions`.

        Examples
        --------
        >>> import polars as pl
        >>> import dp_polars as dpp
        >>> patients = [i // 3 for i in range(30_000)]
        >>> visits = pl.DataFrame({"patient": patients, "ward": ["A", "A", "B"] * 10_000})
        >>> private = visits.dp.protect("patient")
        >>> found = private.bounds({"ward": ["A", "B"]}, epsilon=1).release()
        >>> private.with_limits(**found.row(0, named=True)).protection.bounds
        {'max_groups': 2, 'max_rows_per_group': 2}
        """
        protection, loss = self._pipeline.protection, Loss.of(epsilon=epsilon, rho=rho)
        protection.refuse_no_unit("bounds")
        listed = None if keys is None else public_keys(keys)
        columns = {"max_groups": GROUPS, "max_rows_per_group": ROWS_IN_GROUP}
        if listed is None:
            del columns["max_groups"]
        wanted = {name: column for name, column in columns.items() if name not in protection.bounds}
        if not wanted:
            msg = (
                f"bounds: one of {list(columns)} must be left out of protect, or there is nothing to find.\n\n"
                "Hint: protect(…) without it."
            )
            raise ValueError(msg)
        parts = len(wanted)
        alpha = 1 - (1 - as_alpha("share", share, parts)) / parts
        terms = Terms(Loss(loss.value / parts, loss.unit), ONE_RELEASE, protection.neighboring_relation)
        query = ask_quantile(alpha, candidates, terms)
        values = query.candidates
        if not (values.dtype.is_integer() and values.take(np.zeros(1, np.int64)).item() >= 1):
            msg = f"bounds: candidates must be whole numbers of at least 1, got {values}.\n\nHint: range(1, 101)."
            raise ValueError(msg)
        warn_if_large(loss)
        asked = {name: (column, query) for name, column in wanted.items()}
        return PrivateQuery(PeopleRequest.over(self._pipeline, listed, asked), self._sources, self._budget)

    def _of_people(
        self, name: str, listed: pl.DataFrame | None, column: str, alpha: Number, candidates: Values, terms: Terms
    ) -> PrivateQuery:
        if isinstance(alpha, (list, tuple, np.ndarray)):
            msg = (
                f"{name}: alpha must be one number, got {given(alpha)}.\n\n"
                f"Hint: ask for one quantile after the other, each with a part of the loss: {name}(alpha=0.5, …)."
            )
            raise TypeError(msg)
        protection = self._pipeline.protection
        protection.refuse_no_unit(name)
        query = ask_quantile(alpha, candidates, replace(terms, neighboring_relation=protection.neighboring_relation))
        warn_if_large(query.claim.loss)
        request = PeopleRequest.over(self._pipeline, listed, {name: (column, query)})
        return PrivateQuery(request, self._sources, self._budget)


def _check_names(columns: tuple[object, ...]) -> None:
    if not columns:
        msg = 'keys must be given at least one column, got none.\n\nHint: keys("town", delta=…, epsilon=…).'
        raise ValueError(msg)
    for name in columns:
        if not isinstance(name, str):
            hint = "make a column with with_columns first."
            msg = f"keys must be given names of columns, got {given(name)}.\n\nHint: {hint}"
            raise TypeError(msg)
        without_nul(name, "names of keys")
    if len(set(columns)) < len(columns):
        msg = f"keys must be given each column once, got {list(columns)}."
        raise ValueError(msg)
