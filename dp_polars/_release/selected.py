"""Releases whose groups nobody lists: they are selected privately first, by a part of one guarantee, then answered.

Proof: `docs/proofs/limits.md`, Theorems 2 and 7, and `docs/proofs/keys.md`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Self

import polars as pl

from dp_polars._accounting import costs
from dp_polars._accounting.claims import Claim, claim_on
from dp_polars._accounting.terms import LARGEST, ONE_RELEASE, Contributions, Loss, Terms, Unit
from dp_polars._base.numbers import plural
from dp_polars._bins.candidates import MOST
from dp_polars._mechanisms.limit_rule import limit_rule
from dp_polars._release.contract import HistogramSpec, KeyWork, Output, PerPerson, PersonNumber, Work
from dp_polars._release.protection import Limits, Protection
from dp_polars._release.public_keys import in_types_of
from dp_polars._release.request import Ask, asked_in
from dp_polars._release.staged import REFERENCE, THE_GROUPS, Found, StagedRequest, limit_needed, with_people
from dp_polars._statistics.limits import LimitChoice
from dp_polars._statistics.measures import BETA
from dp_polars._statistics.statistic import KeysThatAreThere

if TYPE_CHECKING:
    from dp_polars._accounting.guarantees import UnitTaken
    from dp_polars._release.contract import Engine, Product
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


def request_of_selected(
    pipeline: Any,  # noqa: ANN401
    columns: tuple[str, ...],
    asks: Iterable[Ask[HistogramQuery]],
    unit: Unit,
) -> SelectingRequest:
    """Return the request of outputs for groups that are selected by these columns."""
    asks = tuple(asks)
    for ask in asks:
        if ask.within is not None or not ask.query.claim._is_open:
            raise ValueError(_OWN_LOSS.format(columns=", ".join(map(repr, columns)), name=ask.name))
    protection: Protection = pipeline.protection
    given = len(asks)
    asks, people = with_people(asks, protection, unit, columns)
    needed = [limit_needed(protection, ask.query, REFERENCE_GROUPS) for ask in asks]
    terms = Terms.of(None, None, within=None)
    finds_limit = {"max_groups", "max_rows"} <= {*protection.left_out} and protection.unit is not None
    most = REFERENCE if finds_limit else protection.keys_per_person
    relation = protection.neighboring_relation
    weight = _PART * sum(ask.query.claim._loss_weight or 0 for ask in asks)
    statistic = KeysThatAreThere.of(
        columns, replace(terms, loss_weight=weight), Fraction(0), most, relation, counts=False
    ).in_unit(unit)
    limit = None
    if finds_limit:
        claim = claim_on(replace(terms, loss_weight=weight * _PART_OF_LIMIT), "choice")
        choice = LimitChoice("max_groups", THE_GROUPS, is_drawn=True, claim=claim).in_unit(unit)
        limit = Ask(f"max_groups of {THE_GROUPS}", (), choice.under(ONE_RELEASE, relation))
    return SelectingRequest.in_stages(
        pipeline,
        pl.DataFrame(schema=dict.fromkeys(columns, pl.Null)),
        [asked_in(ask, unit) for ask in asks],
        needed,
        unit,
        selection=Ask(THE_GROUPS, tuple(map(pl.col, columns)), statistic),
        limit=limit,
        people=people,
        added=len(asks) > given,
    )


@dataclass(frozen=True)
class SelectingRequest(StagedRequest):
    """Answers for groups that are selected before.

    Its stages: a limit on groups per person, if none is given; the selection; limits and clipping bounds of the
    outputs in the selected groups, if some are left out; the answers. All losses are fixed before.
    """

    selection: Ask[KeysThatAreThere] = field(kw_only=True)
    limit: Ask[LimitChoice] | None = field(default=None, kw_only=True)  # of the selection; None: it is given
    found_limit: Found | None = field(default=None, kw_only=True)
    is_selected: bool = field(default=False, kw_only=True)  # whether `keys` are the groups; before, they have no row
    at: int = field(default=REFERENCE_GROUPS, kw_only=True)  # for how many groups outputs are until then

    @property
    def groups(self) -> int:
        assert isinstance(self.keys, pl.DataFrame)
        return max(self.keys.height, 1) if self.is_selected else self.at

    @property
    def groups_are_known(self) -> bool:
        return self.is_selected

    @property
    def about(self) -> str:
        columns = ", ".join(map(repr, self.selection.query.columns))
        if self.is_selected and self.keys is not None:
            return f"{plural(self.keys.height, 'selected group')} by {columns}"
        return f"groups by {columns}, which are selected"

    @property
    def is_settled(self) -> bool:
        return self.is_selected and (bool(self.found) or not self.sets or not self._has_groups)

    @property
    def all_found(self) -> tuple[Found, ...]:
        return (*(() if self.found_limit is None else (self.found_limit,)), *self.found)

    @property
    def _has_groups(self) -> bool:
        return self.keys is not None and self.keys.height > 0

    # --- What is charged --------------------------------------------------------------------------------------------

    @property
    def _before(self) -> tuple[Ask[Any], ...]:
        return (self.selection,) if self.limit is None else (self.limit, self.selection)

    @property
    def found_first(self) -> tuple[Ask[Any], ...]:
        return *self._before, *super().found_first

    def _charged_as(self, ask: Ask[Any], claim: Claim) -> Claim:
        return claim if ask in self.choices else at_worst(claim)

    def typed(self, engine: Engine[Any] | None) -> list[tuple[Ask[Any], Columns]]:
        return [*((ask, ()) for ask in self._before), *super().typed(engine)]

    def with_asks(self, asks: Iterable[Ask[Any]], taken: UnitTaken | None = None) -> Self:
        every, number = tuple(asks), len(self._before)
        request = super().with_asks(every[number:], taken)
        limit = None if self.limit is None else _ruled(every[0])
        return replace(request, limit=limit, selection=every[number - 1], found_limit=None)

    # --- The stages -------------------------------------------------------------------------------------------------

    def keys_on(self, schema: pl.Schema) -> pl.DataFrame | Product | None:
        return super().keys_on(schema) if self.is_selected else pl.DataFrame(schema=self.selection.query.types(schema))

    def bind(self, engine: Engine[Any]) -> Work:
        work = super().bind(engine)
        if not self.is_selected and not self.is_open:
            for number in _CHECKED:
                replace(self, at=number)._for_groups()._check_ends(work)
        return work

    def stage(self, work: Work | KeyWork, engine: Engine[Any]) -> Work | KeyWork | None:
        if self.is_selected:
            return None if self.is_settled else super().stage(work, engine)
        assert isinstance(work, Work), "keys need no other groups"
        assert isinstance(work.keys, pl.DataFrame), "the columns of keys are typed"
        statistic, types, unit = self.selection.query, work.keys.schema, self.protection.unit
        select = KeyWork(unit, types, statistic.keys_per_person, statistic, work.rows)
        if self.limit is None or self.found_limit is not None:
            return select
        if unit is None or not engine.counts_per_person:
            msg = "max_groups must be given here: this engine can't count the groups of each person."
            raise TypeError(msg)
        engine.prepare_stage(select)  # what it refuses is free
        (rule,) = self.limit.query.count_rules()
        spec = HistogramSpec((pl.col(PersonNumber.name(0)),), (pl.Int64(),), rule, Limits(), people=False)
        output = Output(self.limit.name, self.limit.query, spec.types, (0,))
        return Work(None, None, (spec,), (output,), work.rows, PerPerson(unit, by=types))

    def settled(self, found: pl.DataFrame, work: Work | KeyWork) -> tuple[StagedRequest, Work]:
        assert isinstance(work, Work), "keys need no other groups"
        planned = self.planned or self
        if self.is_selected:
            request, then = super().settled(found, work)
            return replace(request, planned=planned), then
        if self.limit is not None and self.found_limit is None:
            choice, (place, people, parts) = self.limit.query, found.row(0)
            most, bound, lost = choice.values[place], choice.people_bound(BETA), choice.lost(place, parts, BETA)
            found_limit = Found("max_groups", (), most, people, bound, *lost, noise=None)
            selection = self._selection_at(int(most))
            return replace(self, found_limit=found_limit, selection=selection, planned=planned), work
        if found.height > MOST:
            msg = f"at most {MOST:,} groups must be selected."
            raise ValueError(msg)
        assert isinstance(work.keys, pl.DataFrame), "the columns of keys are typed"
        keys = found.rename(dict(zip(found.columns, self.selection.query.columns, strict=True)))
        keys = in_types_of(keys, work.keys.schema)
        selected = replace(self, keys=keys, is_selected=True, planned=planned)._for_groups()
        return selected, selected.on_columns_of(replace(work, keys=keys))

    def _selection_at(self, most: int) -> Ask[KeysThatAreThere]:
        """Return the selection in which a person counts for at most this number of groups, at the same loss."""
        statistic = self.selection.query
        both = 1 if self.protection.neighboring_relation == "add_or_remove_one" else 2
        claim = replace(statistic.claim, contributions=Contributions(most * both, 1))
        return replace(self.selection, query=replace(statistic, keys_per_person=most, claim=claim))

    def _for_groups(self) -> Self:
        """Return the request with the rates and rules that the same losses pay for in this number of groups."""
        request = replace(self, asks=tuple(self._shared([self._bounded(ask) for ask in self.asks])))
        return request._ruled() if self.sets else request

    # --- Words ------------------------------------------------------------------------------------------------------

    def limits_of(self, ask: Ask[Any]) -> dict[str, int]:
        return {} if isinstance(ask.query, KeysThatAreThere) else super().limits_of(ask)

    def _errors(self, ask: Ask[Any], types: Columns) -> dict[str, object]:
        if isinstance(ask.query, KeysThatAreThere):
            people, note = ask.query.people_needed
            if self.limit is not None and self.found_limit is None:
                note = f"{note} The limit is found first; this is at {REFERENCE}."
            return {"error_95": people, "error_unit": "people", "candidates": None, "groups": None, "note": note}
        errors = super()._errors(ask, types)
        if not self.is_selected and ask not in self.found_first:
            errors["groups"] = None
            known = "" if errors["error_95"] is None else f"; error_95 is for {self.groups} of them"
            errors["note"] = f"Groups are selected first{known}. {errors['note']}"
        return errors


def at_worst(claim: Claim) -> Claim:
    """Return the claim of the same loss that costs most in the other unit, in whatever groups and under any limit.

    In epsilon all of a person's loss in one draw costs most in rho. In rho it costs most in epsilon if it is spread
    over as many draws as can be. `docs/proofs/limits.md`, Theorem 7.
    """
    if claim._is_open or not claim._has_epsilon:
        return claim
    cells = 1 if claim.loss.unit == "epsilon" else _MOST_CELLS * claim._draws
    return replace(
        claim,
        score_range=Fraction(1),
        contributions=Contributions(cells, 1),
        _draws=1,
        _same_group=costs.ALL,
        _groups=None,
        _levels=(),
    )


def _ruled(ask: Ask[LimitChoice]) -> Ask[LimitChoice]:
    """Return the choice of the limit of a selection with its public numbers, which follow from its loss."""
    query = ask.query
    if query.claim._is_open:
        return ask
    # What else is released of people beyond is paid for: offsets follow from what is left for the choice.
    loss = Loss(min(query.claim.rate * query.range_of_scores, Fraction(LARGEST)), "epsilon")
    rule = limit_rule("selection", loss, REFERENCE_GROUPS, Fraction(1))
    return replace(ask, query=replace(query, rule=rule, kind="selection"))
