"""The start of private queries: `protect`, and the `.dp` accessor of frames. Other modules are loaded when used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps
from types import EllipsisType
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import polars as pl

from dp_polars._base.calls import Suggesting, called

if TYPE_CHECKING:
    from dp_polars._accounting.budget import Budget
    from dp_polars._frames.frame import PrivateFrame
    from dp_polars._release.pipeline import Pipeline
    from dp_polars._release.protection import Protection

P = ParamSpec("P")
T = TypeVar("T")


def _rows_go_first(function: Callable[P, T]) -> Callable[P, T]:
    """Return a function that raises with the right call if it receives a frame."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        if any(not isinstance(arg, (str, list, tuple, type(None))) for arg in (*args, kwargs.get("privacy_unit"))):
            from dp_polars._base.numbers import before_unit

            every = (*args, *kwargs.values())
            unit = next((arg for arg in every if isinstance(arg, str)), "patient")
            for frame in every:
                if (msg := before_unit(frame, unit)) is not None:
                    raise TypeError(msg)
        return function(*args, **kwargs)

    return call


@_rows_go_first
@called
def protect(
    privacy_unit: str | Sequence[str] | None,
    *,
    budget: Budget | None = None,
    max_rows: int | EllipsisType | None = ...,
    max_groups: int | EllipsisType | None = ...,
    max_rows_per_group: int | EllipsisType | None = ...,
    max_norm: int | EllipsisType | None = ...,
    neighboring_relation: str = "add_or_remove_one",
    dataset: str | None = None,
    unchecked: bool = False,
) -> PrivateFrame:
    r"""Begin a private query without data: a pipeline that gets the rows later, by `release(frame)`.

    On data it is the method `.dp.protect` of a LazyFrame or a DataFrame, with the same arguments.

    Parameters
    ----------
    privacy_unit
        The column that identifies a person. Rows with null or NaN in it are dropped. A list of columns protects each
        combination of their values, such as one month of one patient: the guarantee is then for that month only. None:
        every row is another person.
    budget
        The budget that every release charges, before a row is read. None: nothing is recorded.
    max_rows, max_groups, max_rows_per_group
        Contribution limits: the most that counts of one person in one output, as rows in all, groups, and rows in each
        group. In numbers (counts, sums, means, variances), a person beyond them counts in part: all rows of that person
        get one weight below 1. For modes, quantiles and other choices, a random subset of the rows counts. A mode
        counts distinct people, so only `max_groups` matters. A quantile needs a limit on rows. If left out, the limits
        that a statistic needs are found privately, if its query is `scaled_to` one guarantee. None: no limit.
        `PrivateFrame.with_limits` sets other limits.
    max_norm
        A limit for numbers only, in place of `max_rows` and `max_groups`: on the norm of a person's numbers of rows per
        group. With a loss in epsilon, the norm is their sum. With a loss in rho, or a guarantee of (epsilon, delta), it
        is the root of the sum of their squares. `max_rows_per_group` caps each number first.
    neighboring_relation
        "add_or_remove_one" (person) or "replace_one".
    dataset
        A name for these very rows, such as "visits 2026-11". `budget` must have a path then, and caches every released
        answer. The same statistic about the same name returns that answer again and costs nothing. You guarantee that
        the name denotes the same rows for good: for other rows the cached answer would be wrong, though no leak.
        Preprocessing belongs to the data set, so another plan under the same name is charged. Plans that run Python
        code are not cached. Other rows in memory are refused, and a `CachedAnswerWarning` reports changed files.
        `release(ignore_cache=True)` pays for a new answer. Another version of Polars or of this package may do so,
        too. None: nothing is cached.
    unchecked
        Whether to accept any preprocessing: "I know that each person's rows follow from that person's". If they don't,
        one person changes other people's rows, and the loss has no limit. The claim, the ledger, the statement and the
        report mention it.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described. On data also if the plan visibly mixes people: an aggregation or a window
        without the unit, unique, head or slice. Or if Polars can't resolve the columns. Its own message may quote a
        row, so it is not shown. Without a privacy unit also if the plan may repeat rows or read a file twice.

    Notes
    -----
    The data set is the table that you give. Neighbours are two such tables, one without the rows of one person. You
    guarantee that keys, candidates, limits and clipping bounds are public, and that preprocessing carries nothing of
    others into a person's rows.

    Proof: :doc:`/proofs/contributions`, of numbers :doc:`/proofs/norms`, and of limits that are found
    :doc:`/proofs/limits`.

    Examples
    --------
    >>> import polars as pl
    >>> import dp_polars as dpp
    >>> visits = pl.DataFrame(
    ...     {"patient": range(100), "ward": ["A", "B"] * 50, "age": [30, 60] * 50}
    ... )
    >>> query = (
    ...     visits.dp.protect("patient", max_rows=1)
    ...     .group_by({"ward": ["A", "B", "C"]})
    ...     .agg(pl.col("age").dp.median(range(121), epsilon=1))
    ... )
    >>> query.release()["ward"].to_list()
    ['A', 'B', 'C']
    """
    from dp_polars._frames.frame import PrivateFrame
    from dp_polars._release.protection import Protection

    limits = max_rows, max_groups, max_rows_per_group, neighboring_relation, max_norm
    protection = Protection.of(privacy_unit, *limits)
    return PrivateFrame(_pipeline_of(protection, dataset, budget, unchecked), None, budget)


@pl.api.register_lazyframe_namespace("dp")
@pl.api.register_dataframe_namespace("dp")
class FrameNamespace(Suggesting):
    """The method `.dp.protect` of a LazyFrame or a DataFrame."""

    _who = "frame.dp"

    def __init__(self, frame: pl.LazyFrame | pl.DataFrame) -> None:
        self._frame = frame

    def __repr__(self) -> str:
        return f"<.dp of a {type(self._frame).__name__}: protect(privacy_unit, …) takes its rows as private>"

    def _instead_of(self, name: str) -> str | None:
        from dp_polars._frames.frame import PrivateFrame

        if name in dir(PrivateFrame):
            return f'protect the rows first: frame.dp.protect("patient", max_rows=1).{name}(…).'
        return super()._instead_of(name)

    @called
    def protect(
        self,
        privacy_unit: str | Sequence[str] | None,
        *,
        budget: Budget | None = None,
        max_rows: int | EllipsisType | None = ...,
        max_groups: int | EllipsisType | None = ...,
        max_rows_per_group: int | EllipsisType | None = ...,
        max_norm: int | EllipsisType | None = ...,
        neighboring_relation: str = "add_or_remove_one",
        dataset: str | None = None,
        unchecked: bool = False,
    ) -> PrivateFrame:
        """Protect the frame's rows as private: see `dp_polars.protect`."""
        from dp_polars._frames.frame import PrivateFrame
        from dp_polars._release.protection import Protection
        from dp_polars._sources.files import identities
        from dp_polars._sources.source import source_of

        limits = max_rows, max_groups, max_rows_per_group, neighboring_relation, max_norm
        protection = Protection.of(privacy_unit, *limits)
        pipeline = _pipeline_of(protection, dataset, budget, unchecked)
        source = source_of(self._frame, protection.unit, unchecked=pipeline.unchecked)
        return PrivateFrame(replace(pipeline, files=identities(source.files)), source.unread, budget)


def _pipeline_of(protection: Protection, dataset: object, budget: object, unchecked: object) -> Pipeline:
    from dp_polars._accounting.budget import Budget
    from dp_polars._base.numbers import flag, given
    from dp_polars._release.pipeline import Pipeline

    pipeline = Pipeline(protection, unchecked=flag("unchecked", unchecked))
    if dataset is None:
        return pipeline
    if not isinstance(dataset, str) or not dataset:
        msg = f"dataset must be a name or None, got {given(dataset)}."
        raise TypeError(msg)
    if not isinstance(budget, Budget) or budget._path is None:
        what = "none" if budget is None else "one without a path"
        msg = (
            f"budget must have a path where dataset is given, for its ledger caches the answers, got {what}.\n\n"
            'Hint: budget=dp_polars.Budget(epsilon=1, path="my-report.db").'
        )
        raise ValueError(msg)
    return replace(pipeline, dataset=dataset)
