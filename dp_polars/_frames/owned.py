"""Rows without a privacy unit that belong to those who name them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from dp_polars._base.numbers import flag, given, kind_of_frame
from dp_polars._frames.recipe import Origin
from dp_polars._frames.sources import WithoutRows
from dp_polars._rowwise.files import identities
from dp_polars._rowwise.plans import files_of, preparation_of

if TYPE_CHECKING:
    from typing import NoReturn


class OwnedRows(WithoutRows):
    """Private rows without the privacy unit, which belong to those who name them. Made by `owned`.

    They can only stand on the right of a private frame's `join`.
    """

    def __init__(self, sources: tuple[pl.LazyFrame, ...], origin: Origin) -> None:
        self._sources = sources
        self.origin: Origin = origin

    def collect(self, *args: object, **kwargs: object) -> NoReturn:  # noqa: ARG002
        """Refuse: owned rows are private."""
        msg = "owned rows must not be collected: they are private.\n\nHint: private.join(owned, …), then agg(…)."
        raise TypeError(msg)

    def __repr__(self) -> str:
        rows = "private, only answers leave" if self._sources else "none yet, release(frames) takes them"
        return f"<OwnedRows\nrows:     {rows}\nuse:      private.join(owned, …)>"


def owned(
    frame: pl.LazyFrame | pl.DataFrame | None = None, *, dataset: str | None = None, unchecked: bool = False
) -> OwnedRows:
    r"""Take rows that carry no privacy unit, but belong to those who name them: line items of orders.

    A private frame's `join` brings them to the people whose rows name them. They are as private as that frame: nothing
    of them is shown, kept or pickled. With a person go that person's own rows; an owned row that nobody else names then
    reaches no answer. A change of an owned row that k people name is a change of k people.

    Parameters
    ----------
    frame
        The rows, also larger than memory (a scan). What happened to them before must be by row, or include all
        columns of the later join, as before `protect` the unit. None: `release` takes
        them later, as for a query without data.
    dataset
        A name for these very rows, as of `protect`: only where all frames of a query have one are answers kept.
    unchecked
        As for `protect`.

    Returns
    -------
    OwnedRows
        For the right side of `PrivateFrame.join`, on columns that are no floats. Null equals nothing.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described. `join` refuses a plan that visibly mixes rows of several who name them.

    Notes
    -----
    Proof: :doc:`/proofs/contributions`.

    Examples
    --------
    >>> import polars as pl
    >>> import dp_polars as dpp
    >>> orders = pl.DataFrame({"customer": range(100), "order": range(100)})
    >>> items = pl.DataFrame({"order": [i // 3 for i in range(300)], "cents": [250] * 300})
    >>> query = (
    ...     orders.dp.protect("customer", max_rows=5)
    ...     .join(dpp.owned(items), on="order", how="inner")
    ...     .agg(pl.col("cents").dp.median(range(0, 1001, 50), epsilon=1))
    ... )
    >>> query.release().item()
    250
    """
    if dataset is not None and (not isinstance(dataset, str) or not dataset):
        msg = f"dataset must be a name or None, got {given(dataset)}."
        raise TypeError(msg)
    is_unchecked = flag("unchecked", unchecked)
    if frame is None:
        return OwnedRows((), Origin(dataset, unchecked=is_unchecked))
    if not isinstance(frame, (pl.LazyFrame, pl.DataFrame)):
        msg = f"owned rows must be a LazyFrame, a DataFrame or None, got {kind_of_frame(frame)}"
        if isinstance(frame, WithoutRows):
            msg += "\n\nHint: a private frame has its own privacy unit: private.join(other, on=…) takes it as it is."
        raise TypeError(msg)
    plan = frame.lazy()
    # It is looked at again when the columns of the join are known.
    preparation = preparation_of(plan, (), "owned", is_owned=True, unchecked=is_unchecked)
    return OwnedRows((plan,), Origin(dataset, identities(files_of(preparation.readings)), unchecked=is_unchecked))
