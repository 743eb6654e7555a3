"""Where private queries begin: `protect`, and the `.dp` accessor of frames. What they need is loaded when used."""

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
    """Return a function that says where a frame goes that is given to it."""

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
    r"""Begin a private query without data: a pipeline whose `release(frame)` takes the rows later.

    On data it is the method `.dp.protect` of a LazyFrame or a DataFrame, with the same arguments.

    Parameters
    ----------
    privacy_unit
        The column that tells people apart; null and NaN in it are dropped. Or a list of columns, in any order: each
        combination of their values is one "person", such as a month of a patient, and what is guaranteed is guaranteed
        to that month alone. A null or NaN in one of them drops the row. None: every row is another person.
    budget
        The budget that every release charges, before a row is read. None: nothing is recorded.
    max_rows, max_groups, max_rows_per_group
        How much of one person may count in one output: rows in all, groups, rows in each group. In numbers (counts,
        sums, means, variances), a person with more counts in part: all of that person's rows get the same weight below
        one. For modes, quantiles and other choices a random subset of that person's rows is kept. Modes count distinct
        people, so that only the number of a person's groups matters to them; quantiles need a limit on rows.
        `PrivateFrame.with_limits` sets other ones. Left out: the limits that a statistic needs are found privately,
        where its query is `scaled_to` one guarantee. None: no such limit.
    max_norm
        For numbers alone, in place of `max_rows` and `max_groups`: the most that the norm of a person's numbers of rows
        per group may be, in full. With a loss in epsilon it is their sum; with a loss in rho, or a guarantee of
        (epsilon, delta), the root of the sum of their squares. `max_rows_per_group` caps each number first.
    neighboring_relation
        "add_or_remove_one" (person) or "replace_one".
    dataset
        A name for these very rows, such as "visits 2026-11". Then `budget`, which must have a path, caches every
        released answer, and the same statistic about the same name gives that answer again and costs nothing. You
        guarantee that the name stands for the same rows for good: for other rows the cached answer would be wrong,
        though no leak. Preprocessing belongs to the data set: another plan under the same name is drawn and
        charged, and what runs Python code is not cached. Other rows in memory are refused, and a `CachedAnswerWarning`
        says where files have changed. `release(ignore_cache=True)` draws and pays anew. Another version of Polars or
        of this package may take a statistic for another one: then it is charged. None: nothing is cached.
    unchecked
        Whether to leave out the look at what made the rows, for transformations that it can't follow. "I know that each
        person's rows follow from that person's": where they don't, one person changes the rows of others, and the loss
        has no limit. It is in the claim, the ledger, the statement and the report.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, or, on data, if the frame's plan visibly mixes people (an aggregation or a
        window without the unit, unique, head or slice …); if, without a privacy unit, it may make several rows of one
        or read a file twice; or if Polars can't find out the columns (what it says may quote a row, and is not shown).

    Notes
    -----
    The data set is the table that is handed over; neighbours are two such tables, one without the rows of one person.
    The caller guarantees that keys, candidates, limits and clipping bounds are public, and that what made the
    table carries nothing of others into a person's rows.

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
        """Take the frame's rows as private: see `dp_polars.protect`."""
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
