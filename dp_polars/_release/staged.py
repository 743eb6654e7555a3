"""Releases in two stages: contribution limits and clipping bounds are found first, by what one guarantee pays for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import polars as pl

from dp_polars._accounting.claims import Claim
from dp_polars._accounting.terms import Unit, in_words
from dp_polars._bins.binning import OneCode
from dp_polars._bins.candidates import grid_rule
from dp_polars._release.contract import HistogramSpec, KeyWork, Output, PerPerson, PersonNumber, Presentation, Work
from dp_polars._release.found import Found
from dp_polars._release.left_out import are_all, limits_needed, refuse_within, with_people
from dp_polars._release.protection import Limits, Protection
from dp_polars._release.request import AnyRequest, Ask, Request, asked_in, rounded_up
from dp_polars._release.ruled import OneSet, RuledRequest, Types, ends_of
from dp_polars._statistics.categories import Ranked
from dp_polars._statistics.limits import LimitChoice, is_bound
from dp_polars._statistics.measures import BETA, Clipped, SumOfPeople
from dp_polars._statistics.statistic import Columns, CountRule, HistogramQuery

if TYPE_CHECKING:
    from dp_polars._accounting.guarantees import UnitTaken
    from dp_polars._release.contract import Engine

_FEW = 100  # candidates of a narrow grid, of which the error is shown, too


def refuse_unknown_limits(request: AnyRequest[Any], call: str) -> None:
    """Raise where limits or clipping bounds are still to be found, which a release does."""
    if isinstance(request, StagedRequest) and not request.is_settled:
        names = ", ".join(ask.name for ask in request.found_first)
        msg = (
            f"{call} must have all limits and clipping bounds, got a query that finds {names} when it is released.\n\n"
            'Hint: give them, as in protect(…, max_rows=9), sum(0, 9) and mode(["a", "b"]). Or release the query first.'
        )
        raise ValueError(msg)


def request_of(
    pipeline: Any,  # noqa: ANN401
    keys: pl.DataFrame | None,
    asks: Iterable[Ask[HistogramQuery]],
    unit: Unit,
    engine: Engine[Any] | None,
) -> Request:
    """Return the request of these outputs; in two stages where limits or clipping bounds are left out."""
    groups = 1 if keys is None else keys.height
    protection = pipeline.protection
    given = tuple(asks)
    asks, people = with_people(given, protection, unit, [] if keys is None else keys.columns)
    needed = limits_needed(asks, protection, groups, unit)
    if not any(limit or ask.query.finds for limit, ask in zip(needed, asks, strict=True)):
        return Request.of(pipeline, keys, asks, unit, engine)
    refuse_within(asks)
    request = StagedRequest.in_stages(pipeline, keys, [asked_in(ask, unit) for ask in asks], needed, unit)
    if engine is not None and any(ask.query.finds for ask in asks):
        types = [types for _, types in Request.typed(request, engine)]
        known = tuple(replace(ask, query=_of_type(ask.query, *of)) for ask, of in zip(asks, types, strict=True))
        if not any(limit or ask.query.finds for limit, ask in zip(needed, known, strict=True)):
            return Request.of(pipeline, keys, known, unit, engine)
        request = StagedRequest.in_stages(pipeline, keys, [asked_in(ask, unit) for ask in known], needed, unit)
    return replace(request, people=people, added=len(asks) > len(given))


@dataclass(frozen=True)
class StagedRequest(RuledRequest):
    """Answers whose limits or clipping bounds are found before they are drawn.

    The losses of both stages are fixed before. The noise of an answer follows from what was found, so its claim holds
    whatever that is: `docs/proofs/limits.md`.
    """

    found: tuple[Found, ...] = field(default=(), kw_only=True)
    people: str | None = field(default=None, kw_only=True)  # the number of people that decides which quantiles are null
    added: bool = field(default=False, kw_only=True)  # whether it was added for that
    planned: Self | None = field(default=None, kw_only=True)  # what was charged, of a request with what was found

    @property
    def is_settled(self) -> bool:
        """Whether all is found that the outputs need."""
        return bool(self.found)

    @property
    def all_found(self) -> tuple[Found, ...]:
        """The limits and bounds that were found so far."""
        return self.found

    @cached_property
    def charged(self) -> tuple[tuple[str, Claim], ...]:
        return super().charged if self.planned is None else self.planned.charged

    def with_asks(self, asks: Iterable[Ask[Any]], taken: UnitTaken | None = None) -> Self:
        return replace(super().with_asks(asks, taken), found=(), planned=None)

    def typed(self, engine: Engine[Any] | None) -> list[tuple[Ask[Any], Columns]]:
        typed = super().typed(engine)
        request = self if engine is None or self.found else self.of_types({ask.name: types for ask, types in typed})
        return [*((ask, ()) for ask in request.choices), *typed]

    # --- Both stages ------------------------------------------------------------------------------------------------

    def _work(self, keys: Any, read: Any, rows: Any) -> Work:  # noqa: ANN401  # as of any request
        asks = [
            replace(ask, query=ask.query.until_found(*types)) if isinstance(ask.query, Clipped) else ask
            for ask, (_, types) in zip(self.asks, read, strict=True)
        ]
        return Request._work(replace(self, asks=tuple(asks)), keys, read, rows)

    def _check_ends(self, work: Work) -> None:
        """Refuse what could not be answered, whatever is found."""
        if self.sets and not self._has_open:
            self.of_types(_types_of(work))._check_smallest()

    def stage(self, work: Work | KeyWork, engine: Engine[Any]) -> Work | KeyWork | None:
        if self.found:
            return None
        assert isinstance(work, Work), "keys need no first stage"
        return self.of_types(_types_of(work))._stage(work, engine)

    def _stage(self, work: Work, engine: Engine[Any]) -> Work:
        unit = work.privacy_unit
        numbers, outputs, specs = list[PersonNumber](), list[Output](), list[HistogramSpec]()
        of_output = {output.name: output for output in work.outputs}
        for place, (of, choice) in enumerate(zip(self.sets, self.choices, strict=True)):
            ask = self.asks[of.asks[0]]
            output = of_output[ask.name]
            is_all = not ask.query.weighs_people or are_all(ask)
            number = _number(ask.query, choice.query, work.specs[output.specs[0]], self.protection, is_all=is_all)
            numbers.append(number)
            if unit is None:
                spec = number.spec
            else:
                column, types = (pl.col(PersonNumber.name(place)),), (pl.Int64(),)
                spec = HistogramSpec(column, types, choice.query.count_rules()[0], Limits(), people=False)
            specs.append(spec)
            outputs.append(Output(choice.name, choice.query, spec.types, (place,)))
        if unit is None:
            return Work(None, None, tuple(specs), tuple(outputs), work.rows)
        if not engine.counts_per_person:
            msg = "limits must be given here: this engine can't count the rows of each person."
            raise TypeError(msg)
        per_person = PerPerson(unit, self.keys if work.keys is None else work.keys, numbers=tuple(numbers))  # type: ignore[arg-type]
        return Work(None, None, tuple(specs), tuple(outputs), work.rows, per_person)

    def settled(self, found: pl.DataFrame, work: Work | KeyWork) -> tuple[StagedRequest, Work]:
        assert isinstance(work, Work), "keys need no first stage"
        ruled, columns = self.of_types(_types_of(work)), iter(found.get_columns())
        drawn = [[int(next(columns).item()) for _ in choice.query.drawn_types()] for choice in ruled.choices]
        values = [of[place] for of, (place, *_) in zip(ruled._values(), drawn, strict=True)]
        request = replace(ruled._with(values), planned=self)
        every = (
            Found(
                choice.query.what,
                tuple(map(self._name_at, of.asks)),
                value,
                people,
                choice.query.people_bound(BETA),
                *choice.query.lost(place, parts, BETA),
                request._noise_beside(of, value),
            )
            for of, choice, value, (place, people, parts) in zip(self.sets, ruled.choices, values, drawn, strict=True)
        )
        request = replace(request, found=tuple(every))
        return request, request.on_columns_of(work)

    def _noise_beside(self, of: OneSet, value: Fraction) -> Fraction:
        """Return the noise of all groups with what was found, as `Found.lost` is measured: the least of its outputs."""
        unit = abs(value) if is_bound(of.what) else Fraction(1)
        return unit * min(self._of_all_groups(self._alone_at(place).query) for place in of.asks)

    @property
    def _on_found_grids(self) -> frozenset[str]:
        """The names of quantiles whose grid is found."""
        of_ranks = (of for of, one in zip(self.sets, self.unruled, strict=True) if one.query.of_ranks)
        return frozenset(self._name_at(place) for of in of_ranks for place in of.asks)

    def presentation(self, intervals: object = False, min_people: object = None, sure: object = False) -> Presentation:
        shown = super().presentation(intervals, min_people, sure)
        return replace(shown, people=self.people, hides=self._on_found_grids) if min_people is None else shown

    # --- Words ------------------------------------------------------------------------------------------------------

    def _of_choice(self, name: str, query: LimitChoice) -> dict[str, object]:
        notes = []
        found = next((one for one in self.all_found if one.name == name), None)
        if found is not None:
            notes += [found.warning] if found.is_large else []
            notes.append(f"Found {found}.")
        elif query.claim._is_open:
            notes.append("Found before the answers, by a part of the loss.")
        else:
            notes.append("Found before the answers are drawn.")
        error = None if query.claim._is_open else query.error(query.size_of() or 1, BETA)
        return {
            "error_95": error,
            "error_unit": "people",
            "candidates": query.size_of(),
            "groups": 1,
            "note": " ".join(notes),
        }

    def _of_grid(self, ask: Ask[HistogramQuery], types: Columns) -> Iterator[str]:
        """Yield what is said of a quantile whose grid is found."""
        query = ask.query
        if not self.found:
            rule = f": {grid_rule(types[0])}" if types else ""
            yield f"Its grid is found first{rule}."
        if types and not query.claim._is_open:
            size, narrow = query.size_of(*types) or 1, rounded_up(query.error(_FEW, BETA))
            most = "" if self.found else ", the most that there may be"
            yield f"error_95 is for {size:,} candidates{most}; for {_FEW} it is {narrow}."
            counted = next(one.query for one in self.asks if one.name == self.people)
            least = query.least_people(counted, *types)
            yield f"Groups of fewer than {least:,} people, by {self.people}, show null; min_people=… changes that."
        else:
            yield f"Groups of few people, by {self.people}, show null."

    def _errors(self, ask: Ask[HistogramQuery], types: Columns) -> dict[str, object]:
        if isinstance(ask.query, LimitChoice):
            return self._of_choice(ask.name, ask.query)
        errors = super()._errors(ask, types)
        if ask.name == self.people and self.added:
            errors["note"] = f"Added: it decides where quantiles are null. {errors['note']}"
        if ask.name in self._on_found_grids:
            errors["note"] = " ".join([*self._of_grid(ask, types), str(errors["note"])])
        if self.found:
            return errors
        if ask.query.finds and not isinstance(ask.query, Ranked):
            errors["error_95"] = None
            errors["note"] = f"Its clipping bounds are found first, so no error is known. {errors['note']}"
        elif limits := self.limits.get(ask.name):
            are = "limit is" if len(limits) == 1 else "limits are"
            errors["note"] = f"error_95 is at {in_words(limits)}; the {are} found first. {errors['note']}"
        return errors


def _types_of(work: Work) -> Types:
    return {output.name: output.types for output in work.outputs}


def _of_type(query: HistogramQuery, *columns: pl.DataType) -> HistogramQuery:
    """Return a statistic with the bounds that the column's type sets, of those that were to be found."""
    if not query.finds or not isinstance(query, Clipped) or not columns:
        return query
    lower, upper = query.sought
    is_boolean = columns[0] == pl.Boolean
    is_known = {
        "lower": (columns[0].is_unsigned_integer() or is_boolean) and upper > 0,
        # That 1 is a multiple of the step is not looked at here.
        "upper": is_boolean and not isinstance(query, SumOfPeople) and query.step is None and lower < 1,
    }
    known = [name for name in query.finds if is_known[name]]
    ends = (Fraction(name == "upper") if name in known else end for name, _, end in ends_of(query))
    finds = tuple(name for name in query.finds if name not in known)
    return replace(query.with_sought(*ends), finds=finds).until_found(*columns)


def _number(
    query: HistogramQuery, choice: LimitChoice, spec: HistogramSpec, protection: Protection, *, is_all: bool
) -> PersonNumber:
    """Return which number of a person decides."""
    plain = replace(spec, limits=Limits(), weight=None, bits=0)
    if choice.is_bound and isinstance(query, SumOfPeople):
        totals = replace(plain, rule=CountRule(OneCode(), query.totals(*spec.types)), people=True)
        return PersonNumber(totals, "smallest total" if choice.what == "lower" else "largest total")
    if choice.is_bound:
        codes = CountRule(choice.of_rows(spec.types[0]))
        largest = "smallest code" if choice.what == "lower" else "largest code"
        return PersonNumber(replace(plain, rule=codes, people=False), largest)  # type: ignore[arg-type]
    plain = replace(plain, rule=CountRule(spec.binning))
    if is_all:
        plain = HistogramSpec((), (), CountRule(OneCode()), Limits(), people=False)
    if choice.what == "max_groups":
        return PersonNumber(plain, "groups")
    if choice.is_drawn:
        return PersonNumber(plain, "rows" if choice.what == "max_rows" else "most rows")
    return PersonNumber(plain, "squares" if choice.squares else "rows", protection.max_rows_per_group)
