"""A private query: what it will cost, and its release."""

from __future__ import annotations

import json
import math
import os
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias, get_args

import polars as pl
from polars import selectors as cs

from dp_polars._accounting.terms import Loss
from dp_polars._base.column_types import float_of
from dp_polars._base.numbers import float_up, one_of, plural, positive_int
from dp_polars._base.paths import expanded, replacing
from dp_polars._engines.polars_engine import PolarsEngine
from dp_polars._frames.release import Ask, bind, release_by
from dp_polars._frames.sources import PrivateRows, Source, WithoutRows, source_of
from dp_polars._questions.measures import Count

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Self

    from polars._typing import EngineType

    from dp_polars._accounting.budgets import Budget
    from dp_polars._accounting.claims import Claim
    from dp_polars._accounting.terms import Unit
    from dp_polars._engines.contract import Engine
    from dp_polars._frames.protection import Protection
    from dp_polars._frames.recipe import Recipe
    from dp_polars._questions.question import Columns, HistogramQuery

_CLAIM_KEY = b"dp_polars.claim"
_EXPLAINED = {
    **dict.fromkeys(["output", "selects"], pl.String),
    **dict.fromkeys(["epsilon", "rho", "error_95"], pl.Float64),
    **dict.fromkeys(["error_unit", "mechanism"], pl.String),
    **dict.fromkeys(["candidates", "groups"], pl.Int64),
    **dict.fromkeys(["neighboring_relation", "privacy_unit"], pl.String),
    **dict.fromkeys(["score_range", "rate"], pl.Float64),
    "note": pl.String,
}
_Engine: TypeAlias = Literal["auto", "in-memory", "streaming"]
_ENGINES: tuple[_Engine, ...] = get_args(_Engine)


class PrivateQuery(WithoutRows):
    """Outputs of a private frame, asked for but not yet released. Made by `PrivateFrame.agg`.

    Each call of `release` is charged as one release. No other method reads the private rows.
    """

    def __init__(
        self,
        recipe: Recipe,
        source: pl.LazyFrame | None,
        budget: Budget | None,
        keys: pl.DataFrame | None,
        asks: tuple[Ask[HistogramQuery], ...],
    ) -> None:
        self._recipe, self._source, self._budget, self._keys = recipe, source, budget, keys
        protection, groups = recipe.protection, 1 if keys is None else keys.height
        self._asks: tuple[Ask[Any], ...] = tuple(replace(ask, query=_under(protection, ask, groups)) for ask in asks)
        self._check_source()

    @property
    def protection(self) -> Protection:
        """Who is protected, and by which bounds."""
        return self._recipe.protection

    @property
    def asks(self) -> tuple[Ask[Any], ...]:
        """The outputs, each with its claim."""
        return self._asks

    @property
    def reads(self) -> tuple[pl.Expr, ...]:
        """What is read of the rows after all steps: the privacy unit, the keys, and what is asked about."""
        return *columns(self.protection.privacy_unit, self._keys), *(each for ask in self._asks for each in ask.columns)

    @property
    def loss(self) -> Loss:
        """What one release of all outputs costs one person: in rho if all are given in rho, or one has no epsilon."""
        units = {ask.query.claim.loss.unit for ask in self._asks}
        # A discrete Gaussian has a loss in rho only.
        has_epsilon = all(ask.query.claim.has_epsilon for ask in self._asks)
        unit: Unit = "epsilon" if has_epsilon and units != {"rho"} else "rho"
        return Loss(sum((ask.query.claim.cost(unit) for ask in self._asks), Fraction(0)), unit)

    @property
    def delta(self) -> Fraction:
        """What one release spends of delta beside its loss: above 0 only where keys are shown that nobody listed."""
        return sum((ask.query.claim.delta for ask in self._asks), Fraction(0))

    def _with_claims(self, claims: Sequence[Claim]) -> Self:
        """Return the same query with another claim for each output: of other losses, never of other bounds."""
        made = object.__new__(type(self))
        made.__dict__.update(self.__dict__)
        made._asks = tuple(
            replace(ask, query=ask.query.with_claim(claim)) for ask, claim in zip(self._asks, claims, strict=True)
        )
        return made

    def explain(self) -> pl.DataFrame:
        """Return what a release would cost and how good it would be, without reading a row.

        Returns
        -------
        DataFrame
            One row per output: `output`, `selects`, `epsilon` and `rho` (the loss of one person over all groups, in
            both units; a discrete Gaussian has no epsilon), `error_95` (with probability 0.95 the answer of a group is
            at most this far from the best one, or from the true number, counting the rows that the bounds keep; all
            answers of a list of quantiles are, with that probability; null for means, where it depends on the group's
            rows) and
            `error_unit` ("people", "rows", "the column's unit" or "the weights' unit"; a lead, which `selects` tells
            of, has the same), `mechanism`, `candidates` (null where only the column's type names them and no data is
            bound; 1 for a number), `groups`, `neighboring_relation`, `privacy_unit`, `score_range` (R of one person's
            row, or of one person where people are counted; of a list of quantiles 1 or 2, see `dp_polars.quantile`),
            `rate` (λ) and `note` (why this mechanism was chosen, whether another question would do better, and whether
            the bounds can drop rows, which `error_95` leaves out; null where there is nothing to say).
        """
        types: dict[str, Columns] = {}
        if self._source is not None:
            source = self._source
            work = self._bound_to(PolarsEngine(source, lambda: source))
            types = {output.name: output.types for output in work.outputs}
        return pl.DataFrame([self._explain_one(ask, types.get(ask.name, ())) for ask in self._asks], _EXPLAINED)

    def release(
        self,
        frame: PrivateRows | None = None,
        *,
        ranges: bool = False,
        engine: EngineType = "auto",
        partitions: int | None = None,
        fresh: bool = False,
    ) -> pl.DataFrame:
        """Release all outputs once, charged to the budget before a row is read.

        Parameters
        ----------
        frame
            The private rows, if the query was built without any: a LazyFrame, a DataFrame, a pyarrow dataset, or an
            object with Arrow's C stream (a pyarrow Table or RecordBatchReader, a DuckDB relation, pandas). A reader
            gives its rows once: rows that were read from it before are not counted, and after a release it is refused.
        ranges
            Whether every number comes with the ends of its 95 % range, `NAME_low` and `NAME_high`. The number without
            noise, of the rows that the bounds keep, lies between them with probability 0.95 at least. That follows from
            the noise alone, and costs nothing. No range tells of rows that the bounds drop: counts and sums are too low
            where people have more than the bounds of `protect` keep, and their ranges are, too.
        engine
            Polars' engine: "auto", "in-memory" or "streaming".
        partitions
            Into how many parts the people are divided, one being counted after the other: more parts take less
            memory and more time. None: a part for every 2**24 rows, which are counted first.
        fresh
            Whether to draw and pay anew where the budget keeps an answer to this question: see `dataset` of
            `dp_polars.protect`.

        Returns
        -------
        DataFrame
            The public keys, each once and in their given order, then one column per output. Groups without rows are
            answered like any other. Rows of other keys are ignored.

        Raises
        ------
        BudgetExceededError
            If the budget has too little left. Nothing is charged then, and no row is read.
        ReleaseError
            If the engine fails on the private rows, or they can't be read; the charge stays.
        TypeError, ValueError
            If the frame is missing or has other columns than the query needs, or if a file was rewritten since its
            columns were found out, or since `protect`. Nothing is charged then.

        Notes
        -----
        The columns' types are taken as public. If they would be inferred from values (pandas' object columns, a CSV
        file without a schema), state them beforehand.
        """
        if partitions is not None:
            positive_int("partitions", partitions)
        source = self._source_of(frame)
        made = source.by_polars(one_of("engine", engine, _ENGINES), partitions)
        known = self._recipe.files if frame is None else None
        return release_by(
            self, made, ranges=ranges, fresh=fresh, before_charge=lambda: source.refuse_rewritten_files(known)
        )

    def collect(self, *args: object, **kwargs: object) -> NoReturn:  # noqa: ARG002
        """Raise: `collect` looks repeatable, but each release costs again."""
        msg = "a private query must be released, not collected.\n\nHint: release()."
        raise TypeError(msg)

    def sink_parquet(
        self,
        path: str | os.PathLike[str],
        frame: PrivateRows | None = None,
        *,
        ranges: bool = False,
        engine: EngineType = "auto",
        partitions: int | None = None,
        fresh: bool = False,
    ) -> None:
        """Release once into a Parquet file that carries its claim: `read_claim` reads it back.

        The file is written beside `path` and then renamed, so it is never incomplete. An existing file is replaced, and
        the new one has its mode, but its owner is the user who writes. Through a symbolic link, the file that it leads
        to is replaced. A process that is killed meanwhile leaves nothing behind, but where the folder has no files
        without a name (O_TMPFILE; macOS and network file systems have none): there a file `.NAME-…` may be left.

        Parameters
        ----------
        path
            The file; `~` is the home folder.
        frame, ranges, engine, partitions, fresh
            As for `release`.
        """
        from pyarrow import parquet

        target = expanded(path)
        if not target.parent.is_dir() or target.is_dir():
            msg = f"path must be a file in an existing folder, got {str(path)!r}."
            raise (IsADirectoryError if target.is_dir() else FileNotFoundError)(msg)
        claim = json.dumps(self._claim()).encode()
        # Opened before anything is charged, so that a folder that can't be written costs nothing.
        with replacing(target) as file:
            released = self.release(frame, ranges=ranges, engine=engine, partitions=partitions, fresh=fresh)
            table = released.to_arrow()
            table = table.replace_schema_metadata({**(table.schema.metadata or {}), _CLAIM_KEY: claim})
            parquet.write_table(table, file)

    def __repr__(self) -> str:
        asks = "\n".join(
            f"  {ask.name}: {ask.query}, {ask.query.claim}, {ask.query.claim.mechanism}" for ask in self._asks
        )
        return f"<{type(self).__name__}: {self._of_what()}, {self.protection}\n{asks}>"

    def _of_what(self) -> str:
        """Return what the outputs are about."""
        return "one group" if self._keys is None else plural(self._keys.height, "public group")

    def _bound_to(self, engine: Engine[Any], *, ranges: bool = False) -> Any:  # noqa: ANN401  # what `Engine` runs
        """Return the work of a release: everything proved, typed and fit for the engine, nothing read."""
        return bind(self, engine, ranges=ranges)

    def _check_source(self) -> None:
        """Refuse what does not fit the rows that the query is bound to, if there are some."""
        source = self._source
        if source is not None:
            self._bound_to(PolarsEngine(source, lambda: source))

    def _counts(self, ask: Ask[Any]) -> Literal["people", "rows"]:
        """Return what an output counts."""
        return self.protection.counts(ask.query)

    def _source_of(self, frame: PrivateRows | None) -> Source:
        """Return the rows: those given, or those that the query is bound to."""
        if (frame is None) == (self._source is None):
            msg = (
                "release must be given a frame, for the query was built without one."
                if frame is None
                else "release must not be given a frame: the query was built on one."
            )
            raise TypeError(msg)
        return source_of(self._source if frame is None else frame, self.protection)

    def _explain_one(self, ask: Ask[Any], types: Columns) -> dict[str, Any]:
        claim = ask.query.claim
        size = ask.query.fixed_size
        if size is None and types:
            size = ask.query.evidence(*types)[0].coding.size
        return {
            "output": ask.name,
            "selects": str(ask.query),
            "epsilon": float_up(claim.cost("epsilon")) if claim.has_epsilon else None,
            "rho": float_up(claim.cost("rho")),
            "error_95": None if size is None else ask.query.error(size, 0.05, *types),
            "error_unit": ask.query.error_unit or self._counts(ask),
            "mechanism": claim.mechanism,
            "candidates": size,
            "groups": 1 if self._keys is None else self._keys.height,
            "neighboring_relation": self.protection.neighboring_relation,
            "privacy_unit": self.protection.privacy_unit,
            "score_range": float(claim.score_range),
            "rate": float(claim.rate),
            "note": " ".join(self._notes(ask, size, types)) or None,
        }

    def _notes(self, ask: Ask[HistogramQuery], size: int | None, types: Columns) -> Iterator[str]:
        """Yield what should be known of an output before its release."""
        note = None if size is None else ask.query.note(size, self._alternative(ask, types))
        if note is not None:
            yield note
        if self._drops(ask):
            yield (
                "Of the rows that the bounds keep: too low where people have more, which no range or error_95 includes."
                if ask.query.adds_up
                else "Of the rows that the bounds keep: what dropped rows would change is in no range or error_95."
            )

    def _drops(self, ask: Ask[Any]) -> bool:
        """Return whether the bounds can drop rows of an output, or groups of a person."""
        return self.protection.drops(ask.query, 1 if self._keys is None else self._keys.height)

    def _alternative(self, ask: Ask[HistogramQuery], types: Columns) -> HistogramQuery | None:
        """Return what may answer an output better, under this protection; None where that lacks a bound."""
        other = ask.query.alternative(*types)
        if other is None:
            return None
        with suppress(ValueError):
            return _under(self.protection, replace(ask, query=other), 1 if self._keys is None else self._keys.height)
        return None

    def _claim(self) -> dict[str, Any]:
        """Return what `sink_parquet` writes beside the answers."""
        columns = {}
        for ask in self._asks:
            claim = ask.query.claim
            value = float_of(claim.loss.value)
            columns[ask.name] = {
                "selects": str(ask.query),
                "mechanism": claim.mechanism,
                "loss": {
                    "unit": claim.loss.unit,
                    "value": value if math.isfinite(value) else None,  # JSON has no word for infinity
                    "exact": str(claim.loss.value),
                },
                **({"delta": float_up(claim.delta)} if claim.delta else {}),
                "neighboring_relation": self.protection.neighboring_relation,
                "privacy_unit": self.protection.privacy_unit,
            }
        return {
            "date": datetime.now(UTC).date().isoformat(),
            "protection": str(self.protection),
            "groups": 1 if self._keys is None else self._keys.height,
            "loss": str(self.loss),
            "columns": columns,
        }


def columns(unit: str | None, keys: pl.DataFrame | None) -> list[pl.Expr]:
    """Return the columns of the privacy unit and of the keys."""
    names = dict.fromkeys([*([] if unit is None else [unit]), *([] if keys is None else keys.columns)])
    return [cs.by_name(name).as_expr() for name in names]


def read_claim(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the privacy claim that a Parquet file written by `PrivateQuery.sink_parquet` carries.

    Parameters
    ----------
    path
        The file; `~` is the home folder.

    Returns
    -------
    dict
        `date` (ISO), `protection` (who is a person, and the bounds), `groups` (their number), `loss` (of one person to
        the whole file) and `columns`: name -> `selects`, `mechanism`, `loss` (`unit`, `value`, None beyond all floats,
        and the `exact` ratio), `delta` (of keys alone), `neighboring_relation`, `privacy_unit`.

    Raises
    ------
    ValueError
        If the file carries no claim.
    """
    from pyarrow import parquet

    metadata = parquet.read_schema(expanded(path)).metadata or {}
    if _CLAIM_KEY not in metadata:
        msg = f"the file must have been written by PrivateQuery.sink_parquet, got {str(path)!r} without a claim."
        raise ValueError(msg)
    claim: dict[str, Any] = json.loads(metadata[_CLAIM_KEY])
    return claim


def check_no_data(query: object, budget: Budget | None) -> None:
    """Refuse what an adapter can't release on its own rows: no query, one that has rows, a second budget."""
    if not isinstance(query, PrivateQuery):
        msg = f"query must be a PrivateQuery, got {type(query).__name__}."
        raise TypeError(msg)
    if query._source is not None:
        msg = "query must be built without data.\n\nHint: begin it with dp_polars.protect(…), not frame.dp.protect(…)."
        raise TypeError(msg)
    if budget is not None and query._budget is not None:
        msg = "budget must be left out where the query has one."
        raise TypeError(msg)


def only_counted(query: PrivateQuery) -> frozenset[str]:
    """Return the columns of which only matters whether there is a value: these may be of any type."""
    counted: set[str] = set()
    others = set(() if query._keys is None else query._keys.columns)
    for ask in query.asks:
        names = {name for column in ask.columns for name in column.meta.root_names()}
        (counted if isinstance(ask.query, Count) else others).update(names)
    return frozenset(counted - others)


def _under(protection: Protection, ask: Ask[HistogramQuery], groups: int) -> HistogramQuery:
    """Return the question of an output under the bounds of a protection; errors name the output."""
    try:
        bounds = protection.contributions(ask.query, groups)
        return ask.query.under(bounds, protection.neighboring_relation, groups)
    except ValueError as error:
        msg = f"Output {ask.name!r}: {error}"
        raise ValueError(msg) from None
