"""What a release reads of private rows: outputs with their limits, what `explain` shows, and the ends of intervals."""

from __future__ import annotations

import html
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fractions import Fraction
from itertools import chain, permutations
from textwrap import wrap
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, Self, TypeVar

import numpy as np
import polars as pl
from polars import selectors as cs

from dp_polars._accounting.claims import SAY_A_LOSS, Claim, costs_no_more, loss_of, notes_of_cost
from dp_polars._accounting.terms import Loss, Terms, Unit, Within, in_words
from dp_polars._base.column_types import without_nul
from dp_polars._base.numbers import as_fraction, cost_up, error_up, flag, given, loss_up, plural, positive_int
from dp_polars._release.contract import (
    Engine,
    HistogramSpec,
    KeyWork,
    Output,
    Presentation,
    Product,
    Released,
    Work,
    names_of_ends,
)
from dp_polars._release.pipeline import CheckedPipeline, Pipeline
from dp_polars._release.protection import Protection, limits_in_words
from dp_polars._release.public_keys import in_types_of
from dp_polars._statistics.measures import BETA, Count, Multiple, at_most, checked, error_95, with_loss_for
from dp_polars._statistics.shared_sums import (
    Part,
    alone,
    draws_shared,
    first_draw,
    part_that_is_needed,
    whole_claim,
    with_shared_sums,
)
from dp_polars._statistics.statistic import Asked, Columns, HistogramQuery
from dp_polars._steps.gate import row_by_row

if TYPE_CHECKING:
    from dp_polars._accounting.guarantees import UnitTaken


AskedT = TypeVar("AskedT", bound=Asked, covariant=True)

_ADDS_FLOATS = (
    "Floats of a list count to the nearest 2⁻⁴⁰ in sums and means; one beyond ±2⁵⁴ makes that null. NaN or an infinity "
    "of the list stays."
)

# Polars prints the first and last four columns of a frame made of it: they are what a reader wants.
_EXPLAINED = {
    **dict.fromkeys(["output", "selects"], pl.String),
    "error_95": pl.Float64,
    **dict.fromkeys(["error_unit", "mechanism"], pl.String),
    "candidates": pl.Int64,
    **dict.fromkeys(["neighboring_relation", "privacy_unit", "limits"], pl.String),
    **dict.fromkeys(["score_range", "rate", "delta"], pl.Float64),
    "groups": pl.Int64,
    **dict.fromkeys(["epsilon", "rho"], pl.Float64),
    "note": pl.String,
}
# What is in the place of a cost where an output has no loss.
_OPEN = "Nothing can be released yet: query.scaled_to(epsilon=1, delta=1e-6) shares one guarantee over all outputs."
_ROWS = (1000, 100)  # for groups of how many rows the error of a mean is said

# What to write where an engine runs no filter, by what is counted.
_IN_SQL = {
    "rows": ': CASE WHEN condition THEN 1 END, and request dpp.count("column")',
    "people": ': CASE WHEN condition THEN 1 ELSE 0 END, and request dpp.sum("column", 0, 1, per_person=(0, 1))',
    "values": ": CASE WHEN condition THEN value END",
    "nulls": ': CASE WHEN condition AND value IS NULL THEN 1 END, and request dpp.count("column")',
}


@dataclass(frozen=True)
class Ask(Generic[AskedT]):
    """One output of a private query: its name, the columns that it reads, and the statistic."""

    name: str
    columns: tuple[pl.Expr, ...]
    query: AskedT
    filtered: bool = False  # then it has been seen to that the first column is null in rows that don't count
    within: Within | None = None  # how wrong the answer may be, where the loss follows from that
    among: int | None = None  # what `rows` was, where the loss followed from that, but is another one now
    reads: int | None = None  # the place of the output whose columns its draws are of, if it is another one

    def __post_init__(self) -> None:
        without_nul(self.name, "names of outputs")

    @property
    def rows(self) -> int | None:
        """For groups of at least how many rows `explain` gives an error; None: for every group."""
        return self.among if self.within is None else self.within.rows

    @property
    def selects(self) -> str:
        return f"{self.query}, where a condition is true" if self.filtered else str(self.query)

    def with_terms(self, terms: Terms) -> Ask[AskedT]:
        with self.named():
            return replace(self, query=self.query.with_terms(terms), within=None, among=self.rows)

    def read_from(self, schema: pl.Schema) -> tuple[tuple[pl.Expr, ...], Columns]:
        """Return what gives each row its own values, and their types, of rows of such columns."""
        what = f"The column of output {self.name!r}" + ", its filter read as pl.when(…).then(…)" * self.filtered
        typed = [_typed(column, schema, what) for column in self.columns]
        return tuple(column for column, _ in typed), tuple(dtype for _, dtype in typed)

    def reaching(self, types: Columns, unit: Unit) -> Ask[AskedT]:
        """Return the output at the loss in a unit that makes it as accurate as was requested, if that was."""
        if self.within is None or not isinstance(self.query, HistogramQuery):
            return self
        with self.named():
            return replace(self, query=with_loss_for(at_most(self.query, unit), self.within, *types))

    def is_within(self, types: Columns) -> bool:
        """Return whether a mean is as accurate as was requested, from draws that others share; True for all others.

        A shared sum and count give it no larger squared error than its own pair, but `error_95` may be larger.
        """
        if self.within is None or not isinstance(self.query, HistogramQuery) or not self.query.error_needs_rows:
            return True
        error = error_95(self.query, self.within.rows, *types)
        return error is not None and error <= float(self.within.value)

    @contextmanager
    def named(self) -> Iterator[None]:
        try:
            yield
        except (TypeError, ValueError) as error:
            msg = f"Output {self.name!r}: {error}"
            raise type(error)(msg) from None

    def __str__(self) -> str:
        return f"{self.name}: {self.selects}"


@dataclass(frozen=True)
class Line(Generic[AskedT]):
    """One line of `explain` and of a statement, so that both have the same numbers and notes for the same output."""

    row: dict[str, Any]  # by the columns of `explain`
    ask: Ask[AskedT] | None  # what is drawn for it; None: nothing, for it follows from other lines
    types: Columns = ()  # of what `ask` reads, as far as they are known

    @property
    def clipping(self) -> str | None:
        return None if self.ask is None else self.ask.query.clipping

    def noted(self, *notes: str | None) -> dict[str, Any]:
        """Return the row with further notes."""
        return self.row | {"note": " ".join(filter(None, [self.row["note"], *notes]))}


@dataclass(frozen=True)
class AnyRequest(ABC, Generic[AskedT]):
    """Transformations, public keys and outputs, each with its terms. It never changes, and holds no private row."""

    has_own_ranges: ClassVar[bool] = False  # whether each answer comes with its range, so that none is asked for

    pipeline: Pipeline
    keys: pl.DataFrame | Product | None
    asks: tuple[Ask[AskedT], ...]
    taken: UnitTaken | None = field(default=None, kw_only=True)

    @property
    def protection(self) -> Protection:
        return self.pipeline.protection

    @property
    def groups(self) -> int:
        """How many public groups there are, in each part."""
        parts = self.protection.parts
        return 1 if self.keys is None else self.keys.height // (1 if parts is None else parts.number)

    @property
    def groups_are_known(self) -> bool:
        """Whether it is known how many groups there are."""
        return True

    @property
    def answers_groups(self) -> bool:
        """Whether each public group has an answer of its own."""
        return self.keys is not None

    @property
    def found_first(self) -> tuple[Ask[Any], ...]:
        """The limits and keys that are found before the outputs are drawn."""
        return ()

    @property
    def every(self) -> tuple[Ask[Any], ...]:
        """All that is drawn and paid for: what is found first, and the outputs."""
        return *self.found_first, *self.asks

    @property
    def every_unruled(self) -> tuple[Ask[Any], ...]:
        """The same, without the public numbers that follow from losses."""
        return self.every

    @property
    def charged(self) -> tuple[tuple[str, Claim], ...]:
        """The entries of a charge with their claims: each output, or the sums that several outputs share.

        In disjoint parts, that is one entry for each part in which one person may change something.
        """
        found: dict[object, tuple[str, Claim]] = {}
        for place, ask in enumerate(self.every):
            draws = draws_shared(ask.query)
            if not any(draw.is_shared for draw in draws):
                found[place] = str(ask), self._charged_as(ask, whole_claim(ask.query))
                continue
            for draw in draws:
                found[draw] = str(draw), self._charged_as(ask, draw.claim)
        parts = self.protection.parts
        if parts is None:
            return tuple(found.values())
        where = f"in one part by {', '.join(parts.columns)}"
        of_part = ((f"{text}, {where}", claim) for text, claim in found.values())
        return tuple(entry for entry in of_part for _ in range(self.protection.changed_parts))

    def _charged_as(self, ask: Ask[Any], claim: Claim) -> Claim:  # noqa: ARG002
        """Return what is charged for the claim of an output, or of one of its draws."""
        return claim

    @property
    def claims(self) -> tuple[Claim, ...]:
        return tuple(claim for _, claim in self.charged)

    def stage(self, work: Work | KeyWork, engine: Engine[Any]) -> Work | KeyWork | None:  # noqa: ARG002
        """Return the work of the next stage, which finds what the outputs need; None: nothing is left to find.

        `work`: what `bind` gave.
        """
        return None

    def settled(self, found: pl.DataFrame, work: Work | KeyWork) -> tuple[AnyRequest[AskedT], Work | KeyWork]:  # noqa: ARG002
        """Return the request with the draws of its stage in place, and its work; `work`: as for `stage`.

        The request may have a stage of its own. It follows from released values only.
        """
        return self, work

    @property
    def readers(self) -> tuple[Ask[AskedT], ...]:
        """The outputs that read columns of the rows."""
        return self.asks

    @property
    def reads(self) -> tuple[pl.Expr, ...]:
        """The columns that are read after all transformations: the privacy unit, the keys, and those of outputs."""
        names = dict.fromkeys([*(self.protection.unit or ()), *([] if self.keys is None else self.keys.columns)])
        by_name = (cs.by_name(name).as_expr() for name in names)
        return *by_name, *(column for ask in self.readers for column in ask.columns)

    @property
    def mentions(self) -> list[str]:
        """The names of columns that are in the steps and in what is read after them."""
        exprs = (expr for step in self.pipeline.steps for expr in getattr(step, "expressions", ()))
        columns = (column for ask in self.readers for column in ask.columns)
        keys = [] if self.keys is None else self.keys.columns
        roots = (name for expr in chain(exprs, columns) for name in expr.meta.root_names())
        return [*dict.fromkeys(chain(self.protection.unit or (), keys, roots))]

    @property
    def loss(self) -> Loss:
        """The loss of one person by one release: in rho if all are given in rho, or one has no epsilon."""
        return loss_of(self.claims)

    @property
    def is_open(self) -> bool:
        return any(claim._is_open for claim in self.claims)

    def refuse_open(self, call: str) -> None:
        if names := [ask.name for ask in self.every if ask.query.claim._is_open]:
            msg = f"{call}: every output must have a loss, got none for {', '.join(map(repr, names))}.\n\n{SAY_A_LOSS}"
            raise ValueError(msg)

    @property
    def delta(self) -> Fraction:
        return sum((claim.delta for claim in self.claims), Fraction(0))

    @property
    @abstractmethod
    def about(self) -> str:
        """The columns that the outputs are about."""

    @abstractmethod
    def bind(self, engine: Engine[Released]) -> Work | KeyWork:
        """Return the work on the engine's columns: everything proved and typed, nothing read."""

    def presentation(self, intervals: object = False, min_people: object = None, sure: object = False) -> Presentation:
        """Return how a release is shown, of arguments that a caller gave; a TypeError or ValueError for wrong ones."""
        if not isinstance(intervals, (bool, np.bool_)) and not (isinstance(intervals, str) and intervals == "all"):
            msg = (
                f'intervals must be True, False or "all", got {given(intervals)}.\n\n'
                'Hint: True gives each number a 95 % confidence interval; "all" gives wider ones, which all hold with '
                "95 %."
            )
            raise (ValueError if isinstance(intervals, str) else TypeError)(msg)
        sure = flag("sure", sure)
        shown = Presentation("all" if intervals == "all" else bool(intervals))
        if min_people is None:
            if sure:
                msg = (
                    "sure must be left out without min_people: it says how that is compared.\n\n"
                    "Hint: release(min_people=20, sure=True)."
                )
                raise ValueError(msg)
            return shown
        least = positive_int("min_people", min_people)
        return replace(shown, people=self._people_output(), min_people=least, sure=sure)

    def _people_output(self) -> str:
        msg = (
            f"min_people must be left out of a query for {self.asks[0].name}: it counts no people of groups.\n\n"
            "Hint: private.group_by(keys).agg(people=dpp.n_people(…), …).release(min_people=…)."
        )
        raise ValueError(msg)

    def explain(self, engine: Engine[Released] | None) -> pl.DataFrame:
        return Explained(explained([("", self, engine)]).drop("query"))

    def lines(self, engine: Engine[Released] | None) -> list[Line[AskedT]]:
        """Return what is said of each output, without clipping, the whole release and another unit."""
        lines = self._lines(engine)
        if self.pipeline.adds_floats:
            lines[0] = replace(lines[0], row=lines[0].noted(_ADDS_FLOATS))
        parts = self.protection.parts_in_words()
        if parts is None:
            return lines
        changed = plural(self.protection.changed_parts, "part")
        note = f"{parts} One person may change {changed}, so the loss of an output is that of {changed}."
        return [replace(line, row=line.noted(note)) for line in lines]

    @abstractmethod
    def _lines(self, engine: Engine[Released] | None) -> list[Line[AskedT]]:
        """Return a line for each output, and for each table that follows from some."""

    def drops(self) -> bool:
        return self.protection.drops_parts or any(self.dropping(ask) or self.clips(ask) for ask in self.asks)

    def dropping(self, ask: Ask[Any]) -> dict[str, int]:  # noqa: ARG002
        return {}

    def clips(self, ask: Ask[Any]) -> tuple[str, str] | None:  # noqa: ARG002
        """Return what is clipped of a person's rows together, and its bounds; None: nothing."""
        return None

    def clipped(self, ask: Ask[Any], *, anyway: bool = True) -> Iterator[str]:
        """Yield the clipping bounds of an output; `anyway`: also those beyond which no value lies."""
        if (clips := self.clips(ask)) is not None:
            yield "A person's {} in a group is clipped to {}: what is beyond counts as the bound.".format(*clips)
        if ask.query.clips_values or (anyway and ask.query.clipping is not None):
            yield str(ask.query.clipping)

    def limited(self, ask: Ask[Any], *, anyway: bool = True) -> Iterator[str]:
        """Yield what limits drop of an output, and its clipping bounds; `anyway`: see `clipped`."""
        if self.protection.drops_parts:
            yield str(self.protection.parts_in_words())
        if limits := self.dropping(ask):
            yield limits_in_words(limits, in_parts=ask.query.in_parts)
        yield from self.clipped(ask, anyway=anyway)

    def limits_of(self, ask: Ask[Any]) -> dict[str, int]:  # noqa: ARG002
        return {}

    def handed_over(self, *, unchecked: object) -> Self:
        is_unchecked = flag("unchecked", unchecked) and not self.pipeline.unchecked
        return replace(self, pipeline=replace(self.pipeline, unchecked=True)) if is_unchecked else self

    def with_asks(self, asks: Iterable[Ask[AskedT]], taken: UnitTaken | None = None) -> Self:
        return replace(self, asks=tuple(asks), taken=taken)

    def reaching(self, ask: Ask[Any], types: Columns, unit: Unit) -> Ask[Any]:
        """Return an output at the loss that makes it as accurate as was requested, drawn as if it were the only one."""
        return ask.reaching(types, unit)

    def on_columns(self, filled: frozenset[str]) -> Self:  # noqa: ARG002
        """Return the request on rows of which these columns have a value in every row."""
        return self

    def about_one_of(self, requests: Iterable[AnyRequest[Any]]) -> Self:  # noqa: ARG002
        """Return the request about one of others as that is now, if it is about what one of them does; else itself."""
        return self

    @property
    def needed(self) -> list[Fraction]:
        """How much of its part of a loss each output without a loss needs."""
        return [Fraction(1)] * len(self.every)

    def typed(self, engine: Engine[Released] | None) -> list[tuple[Ask[AskedT], Columns]]:  # noqa: ARG002
        """Return every output with the types of its columns; none without an engine."""
        return [(ask, ()) for ask in self.every]

    def _explained(self, ask: Ask[AskedT]) -> dict[str, object]:
        claim, parts = whole_claim(ask.query), self.protection.changed_parts
        return {
            "output": ask.name,
            "selects": ask.selects,
            "mechanism": None if claim._is_open and not claim._is_asked else claim.mechanism,
            "neighboring_relation": self.protection.neighboring_relation,
            "privacy_unit": self.protection.privacy_unit,
            "limits": in_words(self.limits_of(ask)) or None,
            "score_range": float(first_draw(ask.query).score_range),
            "rate": None if claim._is_open else float(first_draw(ask.query).rate),
            "delta": loss_up(parts * claim.delta),
            "epsilon": loss_up(parts * claim.cost("epsilon")) if claim._has_epsilon and not claim._is_open else None,
            "rho": None if claim._is_open else loss_up(parts * claim.cost("rho")),
        }

    def claim_for_json(self) -> dict[str, object]:
        columns, parts = {}, self.protection.changed_parts
        for ask in self.every:
            claim = ask.query.claim
            loss, delta = parts * claim.loss.value, parts * claim.delta
            value = loss_up(loss)
            columns[ask.name] = {
                "selects": ask.selects,
                "mechanism": claim.mechanism,
                "loss": {
                    "unit": claim.loss.unit,
                    "value": value if math.isfinite(value) else None,  # JSON has no word for infinity
                    "exact": str(loss),
                },
                **({"delta": loss_up(delta)} if delta else {}),
                "neighboring_relation": self.protection.neighboring_relation,
                "privacy_unit": self.protection.privacy_unit,
                "limits": self.limits_of(ask),
            }
        return {
            "date": datetime.now(UTC).date().isoformat(),
            "protection": str(self.protection),
            "groups": self.groups,
            "loss": str(self.loss),
            **({"unchecked": True} if self.pipeline.unchecked else {}),
            "columns": columns,
        }

    def checked_on(self, engine: Engine[Released], names: Iterable[str]) -> CheckedPipeline:
        """Return the steps, proved on these columns of the engine; refuse expressions that it does not run."""
        if engine.runs_expressions:
            return self.pipeline.proved(engine.schema(dict.fromkeys(names)))
        self._refuse_expressions(engine)
        return CheckedPipeline((engine.schema(dict.fromkeys(names)),))

    def _refuse_expressions(self, engine: Engine[Released]) -> None:
        if self.pipeline.steps:
            msg = (
                "query must not have row operations (filter, with_columns, select, join): they are Polars expressions."
                f"\n\nHint: do them on {engine.rows_are} first, row by row."
            )
            raise TypeError(msg)
        for ask, column in ((one, column) for one in self.asks for column in one.columns):
            names = column.meta.root_names()
            if len(names) != 1 or not column.meta.undo_aliases().meta.eq(pl.col(names[0])):
                how = _IN_SQL.get(getattr(ask.query, "counted", ""), _IN_SQL["values"]) if ask.filtered else ""
                msg = (
                    f"Output {ask.name!r} must read a column as it is: Polars expressions can't be run here.\n\n"
                    f"Hint: make the column on {engine.rows_are} first, row by row{how}."
                )
                raise TypeError(msg)


def explained(requests: Sequence[tuple[str, AnyRequest[Any], Engine[Released] | None]]) -> pl.DataFrame:
    """Return what one release of several requests would cost, and how good it would be, each under its name."""
    rows = []
    for name, request, engine in requests:
        places = {ask.name: place for place, ask in enumerate(request.every)}
        for line in request.lines(engine):
            other = None
            if request.taken is not None and line.ask is not None:
                other = request.taken.note(places[line.ask.name], needs_rows=line.row["error_95"] is None)
            rows.append({"query": name, **line.noted(line.clipping, other)})
    of_all, claims = [], [claim for _, request, _ in requests for claim in request.claims]
    taken = requests[0][1].taken
    if taken is not None:
        of_all.append(taken.words)
    of_all += [_OPEN] if any(claim._is_open for claim in claims) else notes_of_cost(claims)
    rows[0]["note"] = " ".join([str(rows[0]["note"]), *of_all])
    return Explained(rows, {"query": pl.String, **_EXPLAINED})


@dataclass(frozen=True)
class Request(AnyRequest[HistogramQuery]):
    """Answers about columns, for each public group, or for all rows together."""

    shares_sums: ClassVar[bool] = True  # whether statistics of the same rows share their sums

    @classmethod
    def of(
        cls,
        pipeline: Pipeline,
        keys: pl.DataFrame | None,
        asks: Iterable[Ask[HistogramQuery]],
        unit: Unit = "epsilon",
        engine: Engine[Released] | None = None,
    ) -> Request:
        """Return the request of these outputs; losses that follow from an error are found in `unit`."""
        groups = 1 if keys is None else keys.height
        asks = [asked_in(ask, unit) for ask in asks]
        bounded = (replace(ask, query=under(pipeline.protection, ask, groups)) for ask in asks)
        request = cls(pipeline, keys, tuple(bounded))
        if all(ask.within is None for ask in request.asks):
            return request.with_asks(request.asks)
        typed = request.typed(engine)
        found = request.with_asks(request.reaching(ask, types, unit) for ask, types in typed)
        if all(ask.is_within(types) for ask, (_, types) in zip(found.asks, typed, strict=True)):
            return found
        return request.with_asks(ask.reaching(types, unit) for ask, types in typed)

    def protection_of(self, ask: Ask[HistogramQuery]) -> Protection:  # noqa: ARG002
        """Return the contribution limits of one output."""
        return self.protection

    def with_asks(self, asks: Iterable[Ask[HistogramQuery]], taken: UnitTaken | None = None) -> Self:
        """Return the request of outputs at other losses: those of the same rows share their sums."""
        asks = tuple(asks)
        if not self.shares_sums:
            return super().with_asks(asks, taken)
        return super().with_asks(self._shared(asks), taken)

    def _shared(self, asks: Sequence[Ask[HistogramQuery]]) -> Iterator[Ask[HistogramQuery]]:
        """Yield outputs with the draws that they share."""
        shared = with_shared_sums(self.sharing(asks), self.groups)
        for place, (ask, drawn) in enumerate(zip(asks, shared, strict=True)):
            yield replace(ask, query=drawn.query, reads=None if drawn.reads == place else drawn.reads)

    @property
    def alone(self) -> Self:
        """The request of the same outputs, each drawn as if it were the only one."""
        return replace(self, asks=tuple(one for ask in self.asks for one in self._shared([ask])))

    def reaching(self, ask: Ask[Any], types: Columns, unit: Unit) -> Ask[Any]:
        if ask.within is None or not self.shares_sums:
            return ask.reaching(types, unit)
        (drawn_by_itself,) = self._shared([replace(ask, query=at_most(alone(ask.query), unit))])
        return drawn_by_itself.reaching(types, unit)

    def on_columns(self, filled: frozenset[str]) -> Self:
        """Return the request on rows of which these columns have a value in every row: more outputs may share sums.

        It is the request itself if sharing would cost more in either unit, or take more of a guarantee; or if the loss
        of an output follows from its error, since shared draws may give a mean a larger bound.
        """
        is_fixed = type(self) is not Request or any(ask.within is not None for ask in self.asks)
        if is_fixed or not filled or self.pipeline.steps:
            return self
        shared = replace(self, pipeline=replace(self.pipeline, filled_before=filled)).with_asks(self.asks, self.taken)
        return shared if costs_no_more(shared.claims, self.claims, as_whole=self.taken is not None) else self

    def sharing(self, asks: Sequence[Ask[HistogramQuery]]) -> list[Part]:
        """Return statistics with what tells whose rows contribute: those of the same rows may share sums."""
        found = []
        for ask in asks:
            which, columns = self.contributing(ask)
            rows = which, *map(serialized, columns)
            found.append(Part(ask.name, tuple(map(serialized, ask.columns)), rows, ask.query))
        return found

    def contributing(self, ask: Ask[HistogramQuery]) -> tuple[Literal["rows", "values"], tuple[pl.Expr, ...]]:
        """Return which rows contribute to an output: those for which conditions are true, or with values of columns.

        If a column has a value in every row, as far as is public, these are all rows, or those of a condition.
        """
        if not ask.columns:
            return "rows", ()
        if len(ask.columns) == 1:
            condition, value = _condition_and_value(ask.columns[0].meta.undo_aliases())
            if _is_filled(value.meta.undo_aliases(), self.pipeline.filled):
                return "rows", () if condition is None else (condition,)
        return "values", ask.columns

    @property
    def needed(self) -> list[Fraction]:
        """How much of its part of a loss each output without a loss needs, since some share sums."""
        if not self.shares_sums:
            return [Fraction(1)] * len(self.asks)
        return part_that_is_needed(self.sharing(self.asks), self.groups)

    @property
    def about(self) -> str:
        return "one group" if self.keys is None else plural(self.keys.height, "public group")

    def presentation(self, intervals: object = False, min_people: object = None, sure: object = False) -> Presentation:
        shown = super().presentation(intervals, min_people, sure)
        self._check_names_of_ends(intervals=bool(shown.intervals))
        return shown

    def _people_output(self) -> str:
        counts = {ask.name: ask.query.counted for ask in self.asks if isinstance(ask.query, Count) and not ask.columns}
        names = [name for name, what in counts.items() if what == "people"]
        if not names and self.protection.counts(Count("rows", Terms.at(self.asks[0].query.terms.loss))) == "people":
            names = [name for name, what in counts.items() if what == "rows"]  # every row is a person
        if len(names) != 1:
            msg = (
                "min_people must be given where exactly one output counts the people of a group, got "
                f"{f'{len(names)}: {names}' if names else 'none'}.\n\n"
                "Hint: one dpp.n_people(…) without where in agg (where every row is a person, dpp.len(…))."
            )
            raise ValueError(msg)
        return names[0]

    def bind(self, engine: Engine[Released]) -> Work:
        proved = self.proved_on(engine)
        schema = proved.schemas[-1]
        keys = self.keys_on(schema)
        self._check_names_of_ends(intervals=False)
        return self._work(keys, [ask.read_from(schema) for ask in self.asks], proved.rows)

    def proved_on(self, engine: Engine[Released]) -> CheckedPipeline:
        """Return the transformations, proved on the columns of an engine that the outputs and the keys need."""
        names = [name for ask in self.asks for column in ask.columns for name in column.meta.root_names()]
        return self.checked_on(engine, names + ([] if self.keys is None else self.keys.columns))

    def on_columns_of(self, work: Work) -> Work:
        """Return the work of these outputs on what another one reads, of as many outputs: nothing is proved again."""
        specs = [work.specs[output.specs[0]] for output in work.outputs]
        read = [(spec.columns, spec.types) for spec in specs]
        return self._work(work.keys, read, work.rows)

    def _work(
        self,
        keys: pl.DataFrame | Product | None,
        read: Sequence[tuple[tuple[pl.Expr, ...], Columns]],
        rows: Callable[[pl.LazyFrame], pl.LazyFrame],
    ) -> Work:
        """Return the work of the outputs. `read`: the columns of each, and their types."""
        specs: list[HistogramSpec] = []
        outputs, shared = [], dict[object, int]()
        for place, ask in enumerate(self.asks):
            columns, types = read[place if ask.reads is None else ask.reads]
            with ask.named():
                ask.query.answer_type(*types)
                needed = ask.query.count_rules(*types)
            protection = self.protection_of(ask)
            limits = protection.drawn_limits(ask.query, self.groups)
            people = protection.counts_people(ask.query)
            weight = protection.weight(ask.query, self.groups) if ask.query.in_parts else None
            bits = ask.query.bits_of_parts(*types)
            of_pieces = (
                HistogramSpec(columns, types, piece, limits, people, weight, bit)
                for piece, bit in zip(needed, bits, strict=True)
            )
            # A sum that several share is drawn once, of the rows of the first: no other histogram is needed.
            parts: list[object] = [part for draw in draws_shared(ask.query) for part in draw.parts]
            parts = parts or [object() for _ in needed]
            positions = []
            for spec, part in zip(of_pieces, parts, strict=True):
                if part not in shared:
                    shared[part] = _place(specs, spec)
                positions.append(shared[part])
            outputs.append(Output(ask.name, ask.query, types, tuple(positions)))
        return Work(self.protection.members, keys, tuple(specs), tuple(outputs), rows)

    def keys_on(self, schema: pl.Schema) -> pl.DataFrame | Product | None:
        """Return the public keys in the types of the private columns."""
        if isinstance(self.keys, Product):
            return Product(tuple(in_types_of(one.to_frame(), schema).to_series() for one in self.keys.values))
        return None if self.keys is None else in_types_of(self.keys, schema)

    def _lines(self, engine: Engine[Released] | None) -> list[Line[HistogramQuery]]:
        return [Line(self._explained(ask) | self._errors(ask, types), ask, types) for ask, types in self.typed(engine)]

    def typed(self, engine: Engine[Released] | None) -> list[tuple[Ask[HistogramQuery], Columns]]:
        types = [()] * len(self.asks) if engine is None else [output.types for output in self.bind(engine).outputs]
        return list(zip(self.asks, types, strict=True))

    def limits_of(self, ask: Ask[HistogramQuery]) -> dict[str, int]:
        return self.protection_of(ask).limits_of(ask.query)

    def counts(self, query: HistogramQuery) -> Literal["people", "rows"]:
        return self.protection.counts(query)

    def dropping(self, ask: Ask[HistogramQuery]) -> dict[str, int]:
        return self.protection_of(ask).dropping(ask.query, self.groups)

    def clips(self, ask: Ask[HistogramQuery]) -> tuple[str, str] | None:
        return ask.query.clips if self.protection.counts_people(ask.query) else None

    def _errors(self, ask: Ask[HistogramQuery], types: Columns) -> dict[str, object]:
        size = ask.query.size_of(*types)
        return {
            "error_95": error_95(ask.query, ask.rows, *types),
            "error_unit": ask.query.error_unit or self.counts(ask.query),
            "candidates": size,
            "groups": self.groups,
            "note": " ".join(self._notes(ask, size, types)),
        }

    def _notes(self, ask: Ask[HistogramQuery], size: int | None, types: Columns) -> Iterator[str]:
        """Yield what should be known of an output before its release, the most important thing first.

        Each note begins with what it says: Polars prints 30 characters or so of a frame made of it.
        """
        is_open = ask.query.claim._is_open
        note = None if size is None or is_open else ask.query.note(size, self._alternative(ask, types))
        lost, dropping = list[str](), self.dropping(ask)
        if dropping:
            if ask.query.in_parts:
                what, fewer = f"counts people beyond {in_words(dropping)} in part", "so their rows count less"
            else:
                what = f"drops rows beyond {in_words(dropping)} of a person"
                fewer = "so it is only of kept rows; people with more count less"
            lost.append(f"{what}, {'which makes it too low' if ask.query.adds_up else fewer}")
        if (clips := self.clips(ask)) is not None:
            lost.append("clips a person's {} to {}".format(*clips))
        what = "; ".join(lost) or "no row is dropped"
        error = f"{what[0].upper()}{what[1:]}. The error is that of the noise alone."
        if is_open:
            yield f"{str(ask.query.claim).capitalize()}: so no error is known."
        if ask.query.error_needs_rows and ask.rows is None and not (is_open or ask.query.finds):
            many, some = (rounded_up(ask.query.error_among(rows, BETA, *types)) for rows in _ROWS)
            yield f"{_ROWS[0]:,} rows: ±{many}; {_ROWS[1]}: ±{some}."
        if ask.rows is not None:
            yield f"error_95 is for {ask.rows:,} rows or more."
        if self.groups_are_known and self._grows(ask):
            yield f"Noise grows with all {self.groups:,} groups: give max_groups."
        yield from filter(None, [error, note] if lost else [note, error])
        if self.groups_are_known and (most := dropping.get("max_groups", self.groups)) < self.groups:
            yield f"A person in all {self.groups:,} listed groups counts in {most / self.groups:.0%} of them."
        if (values := ask.query.of_values(*types)) is not None:
            yield values
        for draw in draws_shared(ask.query):
            if draw.is_shared:
                is_or_are = "is" if draw.sums == 1 else "are"
                yield f"The {draw.what} {is_or_are} drawn once for {' and '.join(draw.outputs)}, with {draw.claim}."

    def _grows(self, ask: Ask[HistogramQuery]) -> bool:
        """Return whether one more group would add noise to an output, for no limit says in how many a person counts."""
        protection, groups = self.protection_of(ask), self.groups
        has_norm = protection.max_norm is not None and ask.query.weighs_people
        if protection.max_groups is not None or has_norm or groups == 1:
            return False
        now, then = (under(protection, ask, number).claim for number in (groups, groups + 1))
        return now.contributions.total < then.contributions.total or then.rate < now.rate

    def _alternative(self, ask: Ask[HistogramQuery], types: Columns) -> HistogramQuery | None:
        """Return what may answer an output better, under this protection; None where that lacks a limit."""
        with suppress(ValueError):  # also where the other noise would be too wide for whole numbers
            other = ask.query.alternative(*types)
            return other and under(self.protection_of(ask), replace(ask, query=other), self.groups)
        return None

    def _check_names_of_ends(self, *, intervals: bool) -> None:
        taken = [ask.name for ask in self.asks] + ([] if self.keys is None else self.keys.columns)
        ends = {end for ask in self.asks if ask.query.has_ends(intervals=intervals) for end in names_of_ends(ask.name)}
        if repeated := sorted(ends.intersection(taken)):
            msg = (
                f"outputs and keys must not be named like the ends of a confidence interval, got {repeated}.\n\n"
                f"Hint: rename them{', or leave intervals=True out' * intervals}."
            )
            raise ValueError(msg)


def said_once(texts: Mapping[str, Iterable[str]]) -> list[str]:
    """Return texts about outputs by their names: each once, after the names of those that it is about, if not all."""
    found: dict[str, list[str]] = {}
    for name, of_name in texts.items():
        for text in of_name:
            found.setdefault(text, []).append(name)
    return [text if len(of) == len(texts) else f"{', '.join(of)}: {text}" for text, of in found.items()]


def only_counted(request: AnyRequest[Asked]) -> frozenset[str]:
    """Return the columns that are only tested for missing values: they may have any type."""
    counted: set[str] = set()
    others = set(() if request.keys is None else request.keys.columns)
    for ask in request.readers:
        names = {name for column in ask.columns for name in column.meta.root_names()}
        (counted if isinstance(ask.query, Count) else others).update(names)
    return frozenset(counted - others)


def asked_in(ask: Ask[HistogramQuery], unit: Unit) -> Ask[HistogramQuery]:
    if ask.within is not None:
        return replace(ask, query=at_most(ask.query, unit))
    return replace(ask, query=ask.query.in_unit(unit)) if ask.query.claim._is_open else ask


def under(protection: Protection, ask: Ask[HistogramQuery], groups: int) -> HistogramQuery:
    with ask.named():
        bounds = protection.contributions(ask.query, groups)
        query = ask.query.under(bounds, protection.neighboring_relation, groups)
        if not query.weighs_people:
            return query
        return checked(query, in_parts=protection.weight(query, groups) is not None)


def rounded_up(error: float | None) -> str:
    return "?" if error is None else error_up(error)


def _typed(column: pl.Expr, schema: pl.Schema, what: str) -> tuple[pl.Expr, pl.DataType]:
    """Return what gives each row its own value, and its type: a column as it is does, without a look at the gate."""
    if column.meta.is_column() and (name := column.meta.output_name()) in schema:
        return column, schema[name]
    column = row_by_row(column, schema, what)
    return column, pl.LazyFrame(schema=schema).select(column).collect_schema().dtypes()[0]


def _condition_and_value(column: pl.Expr) -> tuple[pl.Expr | None, pl.Expr]:
    """Return when a column has which value; None: always."""
    if len(parts := column.meta.pop()) == 3:
        for condition, value, _ in permutations(parts):
            if pl.when(condition).then(value).otherwise(None).meta.eq(column):
                return condition, value
    return None, column


def _is_filled(value: pl.Expr, filled: Collection[str]) -> bool:
    """Return whether there is a value in every row, of columns that have one in every row."""
    names = value.meta.root_names()
    if len(names) != 1:
        return False
    column = pl.col(names[0])
    return value.meta.eq(column.is_null()) or (value.meta.eq(column) and names[0] in filled)


def serialized(column: pl.Expr) -> bytes:
    """Return what a column is called by what it reads, under whatever name."""
    return bytes(column.meta.undo_aliases().meta.serialize())


def _place(specs: list[HistogramSpec], spec: HistogramSpec) -> int:
    for position, placed in enumerate(specs):
        if spec.counts_like(placed) and spec.row_weight == placed.row_weight:
            return position
    specs.append(spec)
    return len(specs) - 1


def with_ends(released: pl.DataFrame, asks: Iterable[Ask[Asked]]) -> pl.DataFrame:
    """Return a release, or some of its rows, with the ends of the 95 % intervals of counts and sums, where it has none.

    How far noise goes is public, so nothing is drawn. Means and value counts get none: how far a mean may be off
    depends on its noisy count, which is not shown, and value counts are lists. Ends are Float64, null where the answer
    is. Where people may count in part, answers are rounded: these ends contain those of a release with intervals.
    """
    ends = []
    for ask in asks:
        names = names_of_ends(ask.name)
        if isinstance(ask.query, Multiple) and not set(names) <= set(released.columns):
            answers = released[ask.name]
            off, step = ask.query.error(1, BETA, answers.dtype) or 0.0, float(ask.query.answer_step(answers.dtype))
            low, high = answers.cast(pl.Float64) - off, answers.cast(pl.Float64) + off
            if ask.query.in_parts:
                low, high = (low / step).floor() * step, (high / step).ceil() * step
            ends += [end.alias(name) for end, name in zip((low, high), names, strict=True)]
    return released.with_columns(ends)


_WIDTH = 80
# How sentences begin that are about the whole release, not about the output in whose note they stand.
_OF_ALL = ("For epsilon=", _COSTS := "The release costs ", "It costs less in ", _OPEN.partition(":")[0])
_SENTENCES = re.compile(r"(?<=\.) (?=[A-Z])")


class Explained(pl.DataFrame):
    """A DataFrame that prints itself as a short table with its notes below. Frames made of it print as usual."""

    def __str__(self) -> str:
        needed = {"output", "selects", "mechanism", "error_95", "error_unit", "epsilon", "rho", "delta", "note"}
        if not needed <= {*self.columns}:
            return super().__str__()
        rows = self.rows(named=True)
        # In the unit of the release's cost, so that they can be compared. While that is open: in rho, if one must be.
        is_in_rho = any(f"{_COSTS}rho=" in str(row["note"]) for row in rows)
        must_be = any(row["epsilon"] is None and row["rho"] is not None for row in rows)
        loss = "rho" if is_in_rho or must_be else "epsilon"
        several, deltas = ["query"] * ("query" in self.columns), ["delta"] * any(row["delta"] for row in rows)
        headers = [*several, "output", "selects", "mechanism", "error_95", loss, *deltas]
        cells = [[_cell(row, name) for name in headers] for row in rows]
        widths = [max(map(len, column)) for column in zip(headers, *cells, strict=True)]
        lines = [_line(row, widths) for row in (headers, ["─" * width for width in widths], *cells)]
        names = [(_cell(row, "query") if several else "", _cell(row, "output")) for row in rows]
        for places, note in _notes_of([str(row["note"]) for row in rows]):
            of = _named(names, places)
            text = f"{of}: {note}" if of else note
            lines += ["", *wrap(text, _WIDTH, subsequent_indent="  " if of else "", break_long_words=False)]
        return "\n".join([*lines, "", f"All {self.width} columns: .columns; this is a DataFrame."])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self, **options: Any) -> str:  # noqa: ANN401  # as Polars calls it
        text = str(self)
        if text == super().__str__():
            return super()._repr_html_(**options)
        return f"<pre>{html.escape(text)}</pre>"


def _notes_of(notes: Sequence[str]) -> Iterator[tuple[tuple[int, ...], str]]:
    """Yield what is noted of the release, of each output, and then, once, of several; a note is made of sentences.

    Outputs are said by their places; none of them: the release.
    """
    said: dict[str, list[int]] = {}
    of_all = list[str]()
    for place, note in enumerate(notes):
        for sentence in dict.fromkeys(_SENTENCES.split(note)):
            if sentence.startswith(_OF_ALL):
                of_all.append(sentence)
            else:
                said.setdefault(sentence, []).append(place)
    if of_all:
        yield (), " ".join(of_all)
    by_places: dict[tuple[int, ...], list[str]] = {(place,): [] for place in range(len(notes))}
    for sentence, of in said.items():
        by_places.setdefault(tuple(of), []).append(sentence)
    yield from ((of, " ".join(sentences)) for of, sentences in by_places.items() if sentences)


def _named(names: Sequence[tuple[str, str]], places: Sequence[int]) -> str:
    """Return what outputs are called, each under its query; a query alone where all of its outputs are meant."""
    every, found = dict[str, list[str]](), dict[str, list[str]]()
    for place, (query, output) in enumerate(names):
        every.setdefault(query, []).append(output)
        if place in places:
            found.setdefault(query, []).append(output)
    return "; ".join(
        query if query and outputs == every[query] else ": ".join(filter(None, [query, ", ".join(outputs)]))
        for query, outputs in found.items()
    )


def _line(cells: Sequence[str], widths: list[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def _cell(row: dict[str, Any], name: str) -> str:
    value = row[name]
    if name in ("query", "output"):
        return str(value) if value else repr(value)
    if name == "error_95":
        known = value is not None and value < float("inf")
        unit = row["error_unit"] or ""
        within = "in " if unit.startswith("the ") else ""
        return f"±{error_up(value)} {within}{unit}".rstrip() if known else "see below"
    if name in ("epsilon", "rho"):
        return "none yet" if value is None else cost_up(as_fraction(name, value))
    return "" if value is None else cost_up(as_fraction(name, value)) if name == "delta" else str(value)
