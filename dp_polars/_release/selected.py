"""Releases whose groups, or candidates, nobody lists: a part of one guarantee selects them, then answers follow.

Proof: `docs/proofs/limits.md`, Theorems 2 and 7, and `docs/proofs/keys.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import polars as pl

from dp_polars._accounting.claims import Claim
from dp_polars._accounting.terms import (
    LARGEST,
    Contributions,
    Loss,
    NeighboringRelation,
    Terms,
    Unit,
)
from dp_polars._base.numbers import plural
from dp_polars._bins.candidates import MOST, Categories, Unselected
from dp_polars._mechanisms.limit_rule import limit_rule
from dp_polars._release.contract import HistogramSpec, KeyWork, Output, PerPerson, PersonNumber, Work
from dp_polars._release.found import THE_GROUPS, Found
from dp_polars._release.left_out import limits_needed, refuse_within, with_people
from dp_polars._release.protection import Limits, Protection
from dp_polars._release.public_keys import in_types_of
from dp_polars._release.request import Ask, Request, asked_in, serialized
from dp_polars._release.ruled import REFERENCE, at_worst
from dp_polars._release.staged import StagedRequest, request_of
from dp_polars._statistics.categories import NoCandidate, OfCategories
from dp_polars._statistics.limits import LimitChoice, What
from dp_polars._statistics.measures import BETA
from dp_polars._statistics.statistic import KeysThatAreThere

if TYPE_CHECKING:
    from dp_polars._accounting.guarantees import UnitTaken
    from dp_polars._release.contract import Engine, Product
    from dp_polars._release.pipeline import Pipeline
    from dp_polars._statistics.statistic import Columns, HistogramQuery

#: For how many groups errors are shown, and units compared, before groups are selected.
REFERENCE_GROUPS = 10
# What the selection has of the loss of the outputs, and of that the limit on groups per person.
_PART, _PART_OF_LIMIT = Fraction(1, 5), Fraction(1, 10)
# Numbers of groups with which outputs are bound before the charge: whatever is selected should be answered.
_CHECKED = (1, 2**16)
# In how many groups both people of a replacement may be.
_MOST_CELLS = 2 * MOST

_OWN_LOSS = (
    "group_by({columns}): output {name!r} must have no loss of its own: one guarantee pays for the selection of groups "
    "and for all answers.\n\nHint: leave epsilon, rho and within out, and call query.scaled_to(epsilon=1, delta=1e-6). "
    "Or select groups first: group_by(private.keys({columns}, epsilon=1, delta=1e-8).release())."
)


def request_of_any(
    pipeline: Pipeline,
    keys: pl.DataFrame | tuple[str, ...] | None,
    asks: Iterable[Ask[HistogramQuery]],
    unit: Unit,
    engine: Engine[Any] | None,
) -> Request:
    """Return the request of these outputs: in stages where groups, candidates, limits or bounds are found first.

    `keys`: public groups; or the columns by which groups are selected.
    """
    by = keys if isinstance(keys, tuple) else ()
    given = [_selecting(ask, pipeline, engine) for ask in asks]
    if not (by or any(map(_selects, given))):
        assert not isinstance(keys, tuple), "a group has columns"
        return request_of(pipeline, keys, given, unit, engine)
    for ask in given if by else ():
        if ask.within is not None or not ask.query.claim._is_open:
            raise ValueError(_OWN_LOSS.format(columns=", ".join(map(repr, by)), name=ask.name))
    protection = pipeline.protection
    public = pl.DataFrame(schema=dict.fromkeys(by, pl.Null)) if isinstance(keys, tuple) else keys
    asks, people = with_people(tuple(given), protection, unit, [] if public is None else public.columns)
    groups = REFERENCE_GROUPS if by else 1 if public is None else public.height
    needed = limits_needed(asks, protection, groups, unit)
    refuse_within(asks)
    of_columns: dict[bytes, list[int]] = {}
    for place, ask in enumerate(asks):
        if _selects(ask):
            of_columns.setdefault(serialized(ask.columns[0]), []).append(place)
    selections = [_selection_of_groups(by, asks, protection, unit)] if by else []
    selections += [_selection_of_candidates(places, asks, protection, unit) for places in of_columns.values()]
    return SelectingRequest.in_stages(
        pipeline,
        public,
        [asked_in(ask, unit) for ask in asks],
        needed,
        unit,
        selections=tuple(selections),
        people=people,
        added=len(asks) > len(given),
    )


def _selecting(ask: Ask[HistogramQuery], pipeline: Pipeline, engine: Engine[Any] | None) -> Ask[HistogramQuery]:
    """Return an output whose candidates are selected if none are given, and no type is known that names them."""
    query = ask.query
    is_open = query.claim._is_open and ask.within is None
    if not (is_open and isinstance(query, OfCategories) and query.candidates == Categories(None)):
        return ask
    if engine is not None:
        _, types = ask.read_from(Request(pipeline, None, (ask,)).proved_on(engine).schemas[-1])
        if isinstance(types[0], pl.Enum) or types[0] == pl.Boolean:
            return ask
    return replace(ask, query=replace(query, candidates=Unselected(None)))  # type: ignore[type-var]


def _selects(ask: Ask[Any]) -> bool:
    return isinstance(ask.query, OfCategories) and ask.query.selects


@dataclass(frozen=True)
class Selection:
    """The private selection of the groups, or of the candidates of some outputs, after its limit."""

    ask: Ask[KeysThatAreThere]
    unruled: Ask[LimitChoice] | None  # the limit, without its rule; None: it is given
    outputs: tuple[int, ...] = ()  # the places of those whose candidates are selected; none: the groups are
    found: Found | None = None  # the limit
    is_done: bool = False

    @cached_property
    def limit(self) -> Ask[LimitChoice] | None:
        """The choice of the limit."""
        return None if self.unruled is None else _ruled(self.unruled)

    @property
    def asks(self) -> tuple[Ask[Any], ...]:
        """All that is drawn."""
        return (self.ask,) if self.limit is None else (self.limit, self.ask)

    def at(self, most: int, relation: NeighboringRelation) -> Ask[KeysThatAreThere]:
        """Return the selection in which a person counts for at most this number of keys, at the same loss."""
        statistic = self.ask.query
        both = 1 if relation == "add_or_remove_one" else 2
        terms = replace(statistic.terms, contributions=Contributions(most * both, 1))
        return replace(self.ask, query=replace(statistic, keys_per_person=most, terms=terms))


def _selection_of_groups(
    by: tuple[str, ...], asks: Sequence[Ask[HistogramQuery]], protection: Protection, unit: Unit
) -> Selection:
    is_found = {"max_groups", "max_rows"} <= {*protection.left_out} and protection.unit is not None
    most = None if is_found else protection.keys_per_person
    return _selection(THE_GROUPS, by, "max_groups", (), most, asks, protection, unit)


def _selection_of_candidates(
    places: Sequence[int], asks: Sequence[Ask[HistogramQuery]], protection: Protection, unit: Unit
) -> Selection:
    """Return the selection of values of the column that these outputs read, over all groups together."""
    served = [asks[place] for place in places]
    column = served[0].columns[0]
    name = column.meta.output_name() if column.meta.is_column() else served[0].name
    most = 1 if protection.unit is None or protection.max_rows == 1 else None
    of = ", ".join(ask.name for ask in served)
    return _selection(of, (name,), "max_candidates", places, most, served, protection, unit)


def _selection(
    of: str,
    columns: tuple[str, ...],
    what: What,
    outputs: Sequence[int],
    most: int | None,
    asks: Sequence[Ask[HistogramQuery]],
    protection: Protection,
    unit: Unit,
) -> Selection:
    """Return a selection with its part of the loss of some outputs. `most`: its limit; None: it is found."""
    relation = protection.neighboring_relation
    terms = replace(Terms.of(None, None, within=None), neighboring_relation=relation)
    weight = _PART * sum(ask.query.claim._loss_weight or 0 for ask in asks)
    at = REFERENCE if most is None else most
    statistic = KeysThatAreThere.of(
        columns, replace(terms, loss_weight=weight), Fraction(0), at, relation, counts=False
    ).in_unit(unit)
    limit = None
    if most is None:
        terms = replace(terms, loss_weight=weight * _PART_OF_LIMIT)
        limit = Ask(f"{what} of {of}", (), LimitChoice(what, of, is_drawn=True, terms=terms).in_unit(unit))
    name = of if not outputs else f"candidates of {of}"
    return Selection(Ask(name, tuple(map(pl.col, columns)), statistic), limit, tuple(outputs))


@dataclass(frozen=True)
class SelectingRequest(StagedRequest):
    """Answers for groups, or among candidates, that are selected before.

    Its stages: for the groups and then for the candidates of each column a limit per person, if none is given, and the
    selection; limits and clipping bounds of the outputs, if some are left out; the answers. All losses are fixed
    before.
    """

    selections: tuple[Selection, ...] = field(kw_only=True)
    at: int = field(default=REFERENCE_GROUPS, kw_only=True)  # how many groups there are before they are selected

    @property
    def selects_groups(self) -> bool:
        return not self.selections[0].outputs

    @property
    def groups(self) -> int:
        if not self.selects_groups:
            return super().groups
        assert isinstance(self.keys, pl.DataFrame)
        return max(self.keys.height, 1) if self.groups_are_known else self.at

    @property
    def groups_are_known(self) -> bool:
        """Whether `keys` are the groups; before, they have no row."""
        return self.selections[0].is_done or not self.selects_groups

    @property
    def about(self) -> str:
        if not self.selects_groups:
            return super().about
        columns = ", ".join(map(repr, self.selections[0].ask.query.columns))
        if self.groups_are_known and self.keys is not None:
            return f"{plural(self.keys.height, 'selected group')} by {columns}"
        return f"groups by {columns}, which are selected"

    @property
    def is_settled(self) -> bool:
        return self._is_selected and (bool(self.found) or not self.sets or not self._has_groups)

    @property
    def all_found(self) -> tuple[Found, ...]:
        return (*(one.found for one in self.selections if one.found is not None), *self.found)

    @property
    def _is_selected(self) -> bool:
        return all(one.is_done for one in self.selections)

    @property
    def _has_groups(self) -> bool:
        return self.keys is None or self.keys.height > 0

    # --- What is charged --------------------------------------------------------------------------------------------

    @property
    def _before(self) -> tuple[Ask[Any], ...]:
        return tuple(ask for one in self.selections for ask in one.asks)

    @property
    def _before_unruled(self) -> tuple[Ask[Any], ...]:
        return tuple(ask for one in self.selections for ask in (one.unruled, one.ask) if ask is not None)

    @property
    def found_first(self) -> tuple[Ask[Any], ...]:
        return *self._before, *super().found_first

    @property
    def every_unruled(self) -> tuple[Ask[Any], ...]:
        return *self._before_unruled, *super().every_unruled

    def _charged_as(self, ask: Ask[Any], claim: Claim) -> Claim:
        if ask in self.choices:
            return claim
        is_before = isinstance(ask.query, (KeysThatAreThere, LimitChoice))
        if is_before or self.selects_groups:
            return at_worst(claim, _MOST_CELLS)
        return super()._charged_as(ask, claim)

    def typed(self, engine: Engine[Any] | None) -> list[tuple[Ask[Any], Columns]]:
        return [*((ask, ()) for ask in self._before), *super().typed(engine)]

    def with_asks(self, asks: Iterable[Ask[Any]], taken: UnitTaken | None = None) -> Self:
        every, number = tuple(asks), len(self._before_unruled)
        request, left = super().with_asks(every[number:], taken), iter(every)
        selections = []
        for one in self.selections:
            limit = None if one.unruled is None else next(left)
            selections.append(Selection(next(left), limit, one.outputs))
        return replace(request, selections=tuple(selections))

    # --- The stages -------------------------------------------------------------------------------------------------

    def keys_on(self, schema: pl.Schema) -> pl.DataFrame | Product | None:
        if self.groups_are_known:
            return super().keys_on(schema)
        return pl.DataFrame(schema=self.selections[0].ask.query.types(schema))

    def bind(self, engine: Engine[Any]) -> Work:
        work = super().bind(engine)
        if not self._is_selected and not self.is_open:
            for request in (self, *(self._among(one, pl.Series(dtype=pl.String)) for one in self._of_candidates)):
                for number in (request.groups,) if request.groups_are_known else _CHECKED:
                    replace(request, at=number)._for_groups()._check_ends(work)
        return work

    @property
    def _of_candidates(self) -> tuple[Selection, ...]:
        return tuple(one for one in self.selections if one.outputs)

    def stage(self, work: Work | KeyWork, engine: Engine[Any]) -> Work | KeyWork | None:
        selection = next((one for one in self.selections if not one.is_done), None)
        if selection is None:
            return None if self.is_settled else super().stage(work, engine)
        assert isinstance(work, Work), "keys need no other groups"
        select = _in_groups(selection, work) if not selection.outputs else _of_column(selection, work, engine)
        select = replace(select, privacy_unit=self.protection.unit)
        if selection.limit is None or selection.found is not None:
            return select
        if select.privacy_unit is None or not engine.counts_per_person:
            left_out, of = ("candidates", "candidates") if selection.outputs else ("max_groups", "groups")
            msg = f"{left_out} must be given here: this engine can't count the {of} of each person."
            raise TypeError(msg)
        engine.prepare_stage(select)  # what it refuses is free
        (rule,) = selection.limit.query.count_rules()
        spec = HistogramSpec((pl.col(PersonNumber.name(0)),), (pl.Int64(),), rule, Limits(), people=False)
        output = Output(selection.limit.name, selection.limit.query, spec.types, (0,))
        per_person = PerPerson(select.privacy_unit, by=select.types)
        return Work(None, None, (spec,), (output,), select.rows, per_person)

    def settled(self, found: pl.DataFrame, work: Work | KeyWork) -> tuple[StagedRequest, Work]:
        assert isinstance(work, Work), "keys need no other groups"
        planned = self.planned or self
        selection = next((one for one in self.selections if not one.is_done), None)
        if selection is None:
            request, then = super().settled(found, work)
            return replace(request, planned=planned), then
        if selection.limit is not None and selection.found is None:
            choice, (place, people, parts) = selection.limit.query, found.row(0)
            most, bound, lost = choice.values[place], choice.people_bound(BETA), choice.lost(place, parts, BETA)
            outputs = tuple(map(self._name_at, selection.outputs))
            limit = Found(choice.what, outputs, most, people, bound, *lost, noise=None)
            ask = selection.at(int(most), self.protection.neighboring_relation)
            return self._after(selection, replace(selection, ask=ask, found=limit), planned), work
        if found.height > MOST:
            msg = f"at most {MOST:,} groups, or candidates, must be selected."
            raise ValueError(msg)
        selected = self._after(selection, replace(selection, is_done=True), planned)
        if selection.outputs:
            schema = pl.Schema({"": work.outputs[selection.outputs[0]].types[0]})
            values = in_types_of(found.to_series().alias("").to_frame(), schema).to_series()
            selected = selected._among(selection, values)._for_groups()
            return selected, selected.on_columns_of(work)
        assert isinstance(work.keys, pl.DataFrame), "the columns of keys are typed"
        keys = found.rename(dict(zip(found.columns, selection.ask.query.columns, strict=True)))
        keys = in_types_of(keys, work.keys.schema)
        selected = replace(selected, keys=keys)._for_groups()
        return selected, selected.on_columns_of(replace(work, keys=keys))

    def _after(self, selection: Selection, then: Selection, planned: Self) -> Self:
        """Return the request after a stage of a selection."""
        selections = tuple(then if one is selection else one for one in self.selections)
        return replace(self, selections=selections, planned=planned)

    def _among(self, selection: Selection, values: pl.Series) -> Self:
        """Return the request whose outputs choose among these candidates."""
        asks = list(self.asks)
        for place in selection.outputs:
            query = asks[place].query
            assert isinstance(query, OfCategories), "others have no candidates"
            chosen = query.among(values) if len(values) else NoCandidate(query, query.terms)
            asks[place] = replace(asks[place], query=chosen)
        return replace(self, asks=tuple(asks))

    def _for_groups(self) -> Self:
        """Return the request with the rates that the same losses pay for in this number of groups."""
        return replace(self, asks=tuple(self._shared([self._bounded(ask) for ask in self.asks])))

    # --- Words ------------------------------------------------------------------------------------------------------

    def limits_of(self, ask: Ask[Any]) -> dict[str, int]:
        return {} if isinstance(ask.query, KeysThatAreThere) else super().limits_of(ask)

    def _errors(self, ask: Ask[Any], types: Columns) -> dict[str, object]:
        if isinstance(ask.query, KeysThatAreThere):
            people, note = ask.query.people_needed
            selection = next(one for one in self.selections if one.ask.name == ask.name)
            if selection.limit is not None and selection.found is None:
                note = f"{note} The limit is found first; this is at {REFERENCE}."
            return {"error_95": people, "error_unit": "people", "candidates": None, "groups": None, "note": note}
        errors = super()._errors(ask, types)
        if isinstance(ask.query, LimitChoice):
            return errors
        if not self.groups_are_known:
            errors["groups"] = None
            known = "" if errors["error_95"] is None else f"; error_95 is for {self.groups} of them"
            errors["note"] = f"Groups are selected first{known}. {errors['note']}"
        if _selects(ask):
            known = "" if errors["error_95"] is None else f"; error_95 is for {errors['candidates']} of them"
            errors["candidates"] = None
            errors["note"] = f"Candidates are selected first, over all rows{known}. {errors['note']}"
        return errors


def _in_groups(selection: Selection, work: Work) -> KeyWork:
    assert isinstance(work.keys, pl.DataFrame), "the columns of keys are typed"
    statistic = selection.ask.query
    return KeyWork(None, work.keys.schema, statistic.keys_per_person, statistic, work.rows)


def _of_column(selection: Selection, work: Work, engine: Engine[Any]) -> KeyWork:
    """Return the work that selects values of a column. An expression becomes a column, where there are any."""
    spec = work.specs[work.outputs[selection.outputs[0]].specs[0]]
    column, dtype, unit = spec.columns[0], spec.types[0], work.privacy_unit or ()
    name, rows = column.meta.root_names()[0], work.rows
    if engine.runs_expressions:
        name = "".join([*unit, "_"])  # none of the columns that tell people apart
        rows = _with_column(work.rows, column.alias(name))
    statistic = replace(selection.ask.query, columns=(name,))
    return KeyWork(None, statistic.types(pl.Schema({name: dtype})), statistic.keys_per_person, statistic, rows)


def _with_column(
    rows: Callable[[pl.LazyFrame], pl.LazyFrame], column: pl.Expr
) -> Callable[[pl.LazyFrame], pl.LazyFrame]:
    return lambda frame: rows(frame).with_columns(column)


def _ruled(ask: Ask[LimitChoice]) -> Ask[LimitChoice]:
    """Return the choice of the limit of a selection with its public numbers, which follow from its loss."""
    query = ask.query
    if query.claim._is_open:
        return ask
    # What else is released of people beyond is paid for: offsets follow from what is left for the choice.
    loss = Loss(min(query.claim.rate * query.range_of_scores, Fraction(LARGEST)), "epsilon")
    rule = limit_rule("selection", loss, REFERENCE_GROUPS, Fraction(1))
    return replace(ask, query=replace(query, rule=rule, kind="selection"))
