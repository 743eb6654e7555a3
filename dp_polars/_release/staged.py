"""Releases in two stages: contribution limits and clipping bounds are found first, by what one guarantee pays for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import polars as pl

from dp_polars._accounting.claims import Claim, claim_on
from dp_polars._accounting.terms import LARGEST, ONE_RELEASE, Loss, Terms, Unit, exact
from dp_polars._bins.binning import OneCode
from dp_polars._bins.candidates import grid_rule
from dp_polars._mechanisms.limit_rule import LimitKind, Rule, bound_rule, bounds_up_to, limit_rule, part_of_loss
from dp_polars._release.contract import HistogramSpec, KeyWork, Output, PerPerson, PersonNumber, Presentation, Work
from dp_polars._release.protection import Limits, Protection
from dp_polars._release.request import AnyRequest, Ask, Request, asked_in, rounded_up, under
from dp_polars._statistics.averages import Share
from dp_polars._statistics.categories import Ranked
from dp_polars._statistics.limits import LimitChoice, What
from dp_polars._statistics.measures import BETA, Clipped, Count, Measure, SumOfPeople, ValueCounts
from dp_polars._statistics.shared_sums import Part, draws_shared
from dp_polars._statistics.statistic import Columns, CountRule, HistogramQuery

if TYPE_CHECKING:
    from dp_polars._accounting.guarantees import UnitTaken
    from dp_polars._release.contract import Engine

# What each choice has of the loss of its outputs, where a larger part is not needed.
_SMALLEST_PART = Fraction(1, 50)
# The most that all choices together have of the whole loss, in several groups and in one.
_LARGEST_PART, _LARGEST_PART_OF_ONE = Fraction(1, 5), Fraction(3, 10)
_ROOT_OF_2_BY_PI = Fraction("0.797884560802865")
_SIZES = bounds_up_to(Fraction(1, 1000), Fraction(10) ** 12)
_MOST_ROWS = 10_000  # the largest limit of sums, whose noise must have room in 64 bits with the largest bounds
_MOST_STEPS = 2**29  # of a found bound, where the step is given
_BOUNDS: dict[What, tuple[Fraction, ...]] = {"lower": tuple(-size for size in _SIZES), "upper": _SIZES}

#: The limit at which errors are shown, and units compared, before a limit is found.
REFERENCE = 5
#: The name of the selection of groups.
THE_GROUPS = "the groups"

# The loss of the number of people that is added for quantiles, as a part of that of one of them.
_OF_PEOPLE = Fraction(1, 8)
_FEW = 100  # candidates of a narrow grid, of which the error is shown, too

OWN_LOSS = (
    "{} must have no loss of its own without {}: a part of one guarantee finds what is left out, before answers are "
    "drawn.\n\nHint: leave epsilon, rho and within out, and share one guarantee: query.scaled_to(epsilon=1, "
    "delta=1e-6). Or {}."
)


@dataclass(frozen=True)
class Found:
    """One limit, or clipping bound, that was found privately."""

    what: What
    outputs: tuple[str, ...]  # the outputs that it serves; none: the groups are selected with it
    value: Fraction
    people: int  # how many people are beyond it, with noise
    bound: int  # how far that number may be off, with probability 0.95

    @property
    def name(self) -> str:
        """The limits and bounds that were found, with their outputs."""
        return f"{self.what} of {', '.join(self.outputs) or THE_GROUPS}"

    def __str__(self) -> str:
        low, high = max(self.people - self.bound, 0), max(self.people + self.bound, 0)
        beyond = "people are below it" if self.what == "lower" else "people are beyond it"
        return f"{self.name}: {exact(self.value)} ({low:,} to {high:,} {beyond})"


class FoundLimits(tuple[Found, ...]):
    """Limits and clipping bounds that a release has found privately, one after the other."""

    __slots__ = ()

    @property
    def limits(self) -> dict[str, int]:
        """The contribution limits by name: of several that were found for different outputs, the largest."""
        found: dict[str, int] = {}
        for one in self:
            if one.outputs and one.what not in ("lower", "upper"):
                found[one.what] = max(int(one.value), found.get(one.what, 0))
        return found

    def __repr__(self) -> str:
        return "\n".join(map(str, self))


def limit_needed(protection: Protection, query: HistogramQuery, groups: int) -> What | None:
    """Return which contribution limit a statistic needs that is left out; None: none."""
    if protection.unit is None or protection.max_rows is not None:
        return None
    by_norm = query.weighs_people
    if by_norm and protection.max_norm is not None:
        return None
    if query.counts_people and query.limits_people:
        is_given = protection.max_groups is not None or groups == 1
        return "max_groups" if not is_given and "max_groups" in protection.left_out else None
    in_groups = groups == 1 or protection.max_groups is not None or "max_groups" not in protection.left_out
    if query.counts_people and query.fixed_size == 1 and in_groups:  # a person counts once in each group
        return None
    if protection.max_rows_per_group is not None and in_groups:
        return None
    name: What = "max_norm" if by_norm else "max_rows"
    return name if name in protection.left_out else None


@dataclass(frozen=True)
class _Set:
    """Outputs of the same contributing rows and kind of counting, which share what is found."""

    what: What
    asks: tuple[int, ...]


def refuse_unknown_limits(request: AnyRequest[Any], call: str) -> None:
    """Raise where limits or clipping bounds are still to be found, which a release does."""
    if isinstance(request, StagedRequest) and not request.is_settled:
        names = ", ".join(ask.name for ask in request.found_first)
        msg = (
            f"{call} must have all limits and clipping bounds, got a query that finds {names} when it is released.\n\n"
            "Hint: give them, as in protect(…, max_rows=9) and sum(0, 100); or release the query first."
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
    needed: list[What | None] = []
    for ask in asks:
        is_open = ask.query.claim._is_open and ask.within is None
        needed.append(limit_needed(protection, ask.query, groups) if is_open else None)
        if not is_open and ask.query.finds:
            what, call = ask.query.left_out
            raise ValueError(OWN_LOSS.format(f"Output {ask.name!r}", what, f"give {what}, as in {call}"))
    if not any(limit or ask.query.finds for limit, ask in zip(needed, asks, strict=True)):
        return Request.of(pipeline, keys, asks, unit, engine)
    if accurate := [ask.name for ask in asks if ask.within is not None]:
        msg = (
            f"within must be left out of a query whose limits are found privately, got it for {accurate}: the loss "
            "follows from the limits.\n\nHint: give protect the limits, or request those outputs in another query."
        )
        raise ValueError(msg)
    request = StagedRequest.in_stages(pipeline, keys, [asked_in(ask, unit) for ask in asks], needed, unit)
    return replace(request, people=people, added=len(asks) > len(given))


def with_people(
    asks: tuple[Ask[HistogramQuery], ...], protection: Protection, unit: Unit, taken: Sequence[str]
) -> tuple[tuple[Ask[HistogramQuery], ...], str | None]:
    """Return outputs with one that counts people, if some are null where these are few; and its name, None: none is."""
    weights = [ask.query.claim._loss_weight or 0 for ask in asks if isinstance(ask.query, Ranked) and ask.query.finds]
    if not weights:
        return asks, None
    for ask in asks:
        if isinstance(ask.query, Count) and not ask.columns and protection.counts(ask.query) == "people":
            return asks, ask.name
    names = ("n_people", *(f"n_people_{number}" for number in range(2, len(asks) + len(taken) + 3)))
    name = next(name for name in names if name not in {*taken, *(ask.name for ask in asks)})
    weight = _OF_PEOPLE * (max(weights) or 1)
    claim = claim_on(replace(Terms.at(Loss(Fraction(1), unit)), loss_weight=weight), "number")
    return (*asks, Ask(name, (), Count("rows" if protection.unit is None else "people", claim))), name


@dataclass(frozen=True)
class StagedRequest(Request):
    """Answers whose limits or clipping bounds are found before they are drawn.

    The losses of both stages are fixed before. The noise of an answer follows from what was found, so its claim holds
    whatever that is: `docs/proofs/limits.md`.
    """

    sets: tuple[_Set, ...] = field(default=(), kw_only=True)
    choices: tuple[Ask[LimitChoice], ...] = field(default=(), kw_only=True)
    limits: Mapping[str, Mapping[str, int]] = field(default_factory=dict, kw_only=True)  # by output
    # Which part of the loss of its outputs each choice has, and should have.
    parts: tuple[Fraction, ...] = field(default=(), kw_only=True)
    wanted: tuple[Fraction, ...] = field(default=(), kw_only=True)
    found: tuple[Found, ...] = field(default=(), kw_only=True)
    people: str | None = field(default=None, kw_only=True)  # the number of people that decides which quantiles are null
    added: bool = field(default=False, kw_only=True)  # whether it was added for that
    planned: Self | None = field(default=None, kw_only=True)  # what was charged, of a request with what was found

    @classmethod
    def in_stages(
        cls,
        pipeline: Any,  # noqa: ANN401
        keys: pl.DataFrame | None,
        asks: Sequence[Ask[HistogramQuery]],
        needed: Sequence[What | None],
        unit: Unit,
        **fields: Any,  # noqa: ANN401  # the fields of a subclass
    ) -> Self:
        of: dict[tuple[object, ...], list[int]] = {}
        for place, (ask, limit) in enumerate(zip(asks, needed, strict=True)):
            if limit is not None:
                of.setdefault((limit, *_rows_of(ask)), []).append(place)
            column = [one.meta.undo_aliases().meta.serialize() for one in ask.columns]
            for what in ask.query.finds:  # of quantiles, for which nobody should be beyond, bounds of their own
                of.setdefault((what, isinstance(ask.query, Ranked), *column), []).append(place)
        sets = tuple(_Set(key[0], tuple(places)) for key, places in of.items())  # type: ignore[arg-type]
        request = cls(pipeline, keys, tuple(asks), sets=sets, **fields)
        groups = request.groups
        limits: dict[str, dict[str, int]]
        limits = {
            ask.name: {limit: min(REFERENCE, groups) if limit == "max_groups" else REFERENCE}
            for ask, limit in zip(asks, needed, strict=True)
            if limit is not None
        }
        request = replace(request, limits=limits)
        request = replace(request, asks=tuple(request._bounded(ask) for ask in asks))
        choices = tuple(request._choice(one, unit) for one in sets)
        return replace(request, choices=choices).with_parts((_SMALLEST_PART,) * len(sets))

    # --- What is charged --------------------------------------------------------------------------------------------

    @property
    def found_first(self) -> tuple[Ask[Any], ...]:
        return self.choices

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

    def _charged_as(self, ask: Ask[Any], claim: Claim) -> Claim:
        """Return the claim of what may be found that costs most in the other unit; in its own, all cost the same."""
        if claim._is_open or not claim._has_epsilon or isinstance(ask.query, LimitChoice):
            return claim
        other: Unit = "rho" if claim.loss.unit == "epsilon" else "epsilon"
        claims = self._possible_claims(ask)
        if draws_shared(ask.query):  # all of a row moves a draw by one, whatever the limits are
            claims = (replace(claim, contributions=one.contributions) for one in claims)
        return max(claims, key=lambda one: one.cost(other))

    def _possible_claims(self, ask: Ask[HistogramQuery]) -> Iterator[Claim]:
        query, asks = ask.query, [ask]
        if query.finds and isinstance(query, Clipped):  # bounds of both signs may cost more: most where they are alike
            reach = max([abs(end) for end in (query.lower, query.upper)])
            lower, upper = (sign * reach if name in query.finds else end for name, sign, end in _ends_of(query))
            asks += [replace(ask, query=replace(query, lower=lower, upper=upper))] if lower < upper else []
        protections = [self.protection_of(ask)]
        for limit in self.limits.get(ask.name, ()):
            choices = zip(self.sets, self.choices, strict=True)
            of_ask = (one for of, one in choices if of.what == limit and ask.name in map(self._name_at, of.asks))
            protections = [self.protection.with_limits(**{limit: int(one)}) for one in next(of_ask).query.values]
        yield from (under(protection, one, self.groups).claim for protection in protections for one in asks)

    def _parts(self, asks: Sequence[Ask[HistogramQuery]]) -> list[Part]:
        """Return statistics with what tells whose rows contribute, and which limit is found for them.

        How they share sums must not depend on what is found. It does on clipping bounds, and on limits where rows are
        replaced and losses have another unit, too.
        """
        limit_of, with_bounds = dict[str, int](), set[str]()
        for number, of in enumerate(self.sets):
            names = map(self._name_at, of.asks)
            if of.what in ("lower", "upper"):
                with_bounds.update(names)
            else:
                limit_of |= dict.fromkeys(names, number)
        is_replaced = self.protection.neighboring_relation == "replace_one"

        def is_fixed(part: Part) -> bool:
            return part.name not in with_bounds and not (is_replaced and part.query.claim._has_epsilon)

        return [
            part._replace(rows=(limit_of.get(part.name), part.rows) if is_fixed(part) else None)
            for part in super()._parts(asks)
        ]

    @property
    def needed(self) -> list[Fraction]:
        return [Fraction(1)] * len(self.found_first) + super().needed

    def _name_at(self, place: int) -> str:
        return self.asks[place].name

    def typed(self, engine: Engine[Any] | None) -> list[tuple[Ask[Any], Columns]]:
        return [*((ask, ()) for ask in self.choices), *super().typed(engine)]

    def with_asks(self, asks: Iterable[Ask[Any]], taken: UnitTaken | None = None) -> Self:
        every = tuple(asks)
        number = len(self.choices)
        asks = tuple(self._shared(every[number:]))
        request = replace(self, choices=every[:number], asks=asks, taken=taken, found=(), planned=None)
        return request if any(ask.query.claim._is_open for ask in every) else request._ruled()

    @property
    def has_enough(self) -> bool:
        """Whether the parts of the loss that the choices have are those that they should have."""
        return self.wanted == self.parts

    def with_parts(self, parts: tuple[Fraction, ...]) -> Self:
        """Return the request, nothing of which has a loss, with the parts of the loss that the choices are to have."""
        choices, needed = [], super().needed
        for of, choice, part in zip(self.sets, self.choices, parts, strict=True):
            weights = ((self.asks[place].query.claim._loss_weight or 0) * needed[place] for place in of.asks)
            weight = part / (1 - part) * sum(weights)
            choices.append(choice.with_claim(replace(choice.query.claim, _loss_weight=weight)))
        return replace(self, choices=tuple(choices), parts=parts)

    # --- The rule ---------------------------------------------------------------------------------------------------

    def _choice(self, of: _Set, unit: Unit) -> Ask[LimitChoice]:
        claim = claim_on(replace(Terms.at(Loss(Fraction(1), unit)), loss_weight=Fraction(1)), "choice")
        outputs = ", ".join(self.asks[place].name for place in of.asks)
        first = self.asks[of.asks[0]].query
        is_drawn = of.what in ("max_groups", "max_rows") and not first.weighs_people
        of_ranks = of.what in ("lower", "upper") and isinstance(first, Ranked)
        choice = LimitChoice(of.what, outputs, is_drawn, claim, of_ranks)
        choice = choice.under(ONE_RELEASE, self.protection.neighboring_relation)
        return Ask(f"{of.what} of {outputs}", (), choice)

    def _ruled(self) -> Self:
        """Return the request with the public numbers of its choices, which follow from the losses."""
        choices, wanted = [], []
        for of, choice in zip(self.sets, self.choices, strict=True):
            query, asks = choice.query, [self.asks[place] for place in of.asks]
            losses = [ask.query.claim.loss.value for ask in asks]
            noises = [self._noise(ask, of.what) for ask in asks]
            noise = sum((loss * one for loss, one in zip(losses, noises, strict=True)), Fraction(0)) / sum(losses)
            is_pure = asks[0].query.claim._has_epsilon
            # The number of people beyond is paid for, too: offsets follow from the rate that is left for the choice.
            loss = Loss(min(query.claim.rate * query.range_of_scores, Fraction(LARGEST)), "epsilon")
            widths = [one.query.answer_width() if one.query.is_count else 1 for one in asks]
            cells = self.groups * max(widths)
            rule: Rule[Any]
            if of.what in ("lower", "upper"):
                steps = [
                    one.query.step for one in asks if isinstance(one.query, Clipped) and one.query.step is not None
                ]
                most_steps = min((_MOST_STEPS * step for step in steps), default=None)
                fit = (end for end in _BOUNDS[of.what] if most_steps is None or abs(end) <= most_steps)
                rule = bound_rule(loss, None if query.of_ranks else noise, fit)
            else:
                kind: LimitKind = "linear" if is_pure else "norm" if of.what == "max_norm" else "root"
                of_values = any(isinstance(one.query, Clipped) for one in asks)
                most = self.groups if of.what == "max_groups" else _MOST_ROWS if of_values else None
                rule = limit_rule("selection" if query.is_drawn else kind, loss, cells, noise, most)
            squares = of.what == "max_norm" and not is_pure
            choices.append(replace(choice, query=replace(query, rule=rule, squares=squares)))
            whole = Loss(sum(losses) + query.claim.loss.value, query.claim.loss.unit)
            wanted.append(part_of_loss(whole, cells, noise, of_ranks=query.of_ranks))
        return replace(self, choices=tuple(choices), wanted=self._within_all(wanted))

    def _within_all(self, parts: Sequence[Fraction]) -> tuple[Fraction, ...]:
        """Return parts of the losses of outputs, made smaller where all choices would take too much of all of it."""
        if not parts:
            return ()
        losses = [ask.query.claim.loss.value for ask in self.asks]
        beside = [part / (1 - part) for part in parts]  # of the loss of the outputs
        taken = sum(one * sum(losses[place] for place in of.asks) for of, one in zip(self.sets, beside, strict=True))
        largest = _LARGEST_PART_OF_ONE if self.groups == 1 else _LARGEST_PART
        fits = min(largest / (1 - largest) * sum(losses) / taken, Fraction(1))
        return tuple(one * fits / (1 + one * fits) for one in beside)

    def _noise(self, ask: Ask[HistogramQuery], what: What) -> Fraction:
        """Return the expected noise of all groups at a limit of one, in rows or people; of a sum, in its bounds."""
        limit = what if what not in ("lower", "upper") else next(iter(self.limits.get(ask.name, ())), None)
        query = ask.query if limit is None else under(self.protection.with_limits(**{limit: 1}), ask, self.groups)
        one = query.largest if isinstance(query, Measure) else Fraction(1)
        factor = Fraction(1) if query.claim._has_epsilon else _ROOT_OF_2_BY_PI
        return self.groups * factor / (query.claim.rate * one)

    # --- Both stages ------------------------------------------------------------------------------------------------

    def protection_of(self, ask: Ask[HistogramQuery]) -> Protection:
        limits = self.limits.get(ask.name)
        return self.protection if limits is None else self.protection.with_limits(**limits)

    def _bounded(self, ask: Ask[HistogramQuery]) -> Ask[HistogramQuery]:
        return replace(ask, query=under(self.protection_of(ask), ask, self.groups))

    def bind(self, engine: Engine[Any]) -> Work:
        work = super().bind(engine)
        if not self.found:
            self._check_ends(work)
        return work

    def _check_ends(self, work: Work) -> None:
        """Refuse what could not be answered: whatever is found must be, for it is paid for then."""
        if all(one.query.rule is not None for one in self.choices):
            for end in (0, -1):
                self._with([values[end] for values in self._values(work)], work).on_columns_of(work)

    def stage(self, work: Work | KeyWork, engine: Engine[Any]) -> Work | KeyWork | None:
        if self.found:
            return None
        assert isinstance(work, Work), "keys need no first stage"
        unit = work.privacy_unit
        numbers, outputs, specs = list[PersonNumber](), list[Output](), list[HistogramSpec]()
        of_output = {output.name: output for output in work.outputs}
        for place, (of, choice) in enumerate(zip(self.sets, self.choices, strict=True)):
            ask = self.asks[of.asks[0]]
            output = of_output[ask.name]
            is_all = not ask.query.weighs_people or _are_all(ask)
            number = _number(of, choice.query, work.specs[output.specs[0]], self.protection, is_all=is_all)
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
        columns = found.get_columns()
        every = [
            Found(
                choice.query.what,
                tuple(self.asks[place].name for place in of.asks),
                values[int(columns[2 * number].item())],
                int(columns[2 * number + 1].item()),
                choice.query.people_bound(BETA),
            )
            for number, (of, choice, values) in enumerate(zip(self.sets, self.choices, self._values(work), strict=True))
        ]
        request = replace(self._with([one.value for one in every], work), found=tuple(every), planned=self)
        return request, request.on_columns_of(work)

    def _values(self, work: Work) -> Iterator[tuple[Fraction, ...]]:
        """Yield what each choice may find, of columns of these types."""
        types = {output.name: output.types for output in work.outputs}
        for of, choice in zip(self.sets, self.choices, strict=True):
            yield choice.query.values_of(*(types[self.asks[of.asks[0]].name] if choice.query.is_bound else ()))

    def _with(self, found: Sequence[Fraction], work: Work) -> Self:
        """Return the request with what was found in the place of what was left out."""
        types = {output.name: output.types for output in work.outputs}
        limits = {name: dict(of) for name, of in self.limits.items()}
        ends: dict[str, dict[str, Fraction]] = {}
        for of, value in zip(self.sets, found, strict=True):
            for place in of.asks:
                name = self.asks[place].name
                if of.what in ("lower", "upper"):
                    ends.setdefault(name, {})[of.what] = value
                else:
                    limits[name] = {of.what: int(value)}
        asks = []
        for ask in self.asks:
            query = ask.query
            if ask.name in ends:
                (column,) = types[ask.name]
                query = query.with_bounds(column, **ends[ask.name])
            asks.append(replace(ask, query=query))
        request = replace(self, limits=limits)
        return replace(request, asks=tuple(request._shared([request._bounded(ask) for ask in asks])))

    @property
    def _on_found_grids(self) -> frozenset[str]:
        """The names of quantiles whose grid is found."""
        of_ranks = (of for of, one in zip(self.sets, self.choices, strict=True) if one.query.of_ranks)
        return frozenset(self._name_at(place) for of in of_ranks for place in of.asks)

    def presentation(self, intervals: object = False, min_people: object = None, sure: object = False) -> Presentation:
        shown = super().presentation(intervals, min_people, sure)
        return replace(shown, people=self.people, hides=self._on_found_grids) if min_people is None else shown

    # --- Words ------------------------------------------------------------------------------------------------------

    def _of_choice(self, name: str, query: LimitChoice) -> dict[str, object]:
        notes = []
        found = next((one for one in self.all_found if one.name == name), None)
        if found is not None:
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
        elif ask.name in self.limits:
            ((limit, value),) = self.limits[ask.name].items()
            errors["note"] = f"error_95 is at {limit}={value}; the limit is found first. {errors['note']}"
        return errors


def _ends_of(query: Clipped) -> Iterator[tuple[str, int, Fraction]]:
    """Yield the names of clipping bounds, their usual signs, and the bounds."""
    yield from (("lower", -1, query.lower), ("upper", 1, query.upper))


def _rows_of(ask: Ask[HistogramQuery]) -> tuple[object, ...]:
    """Return what tells outputs of other contributing rows apart. Those whose rows are drawn share one choice."""
    is_drawn = not ask.query.weighs_people
    by_name = ask.query.claim.mechanism if not is_drawn and ask.query.claim._is_asked else ""
    if is_drawn or _are_all(ask):
        return "all rows", is_drawn, by_name
    column = tuple(one.meta.undo_aliases().meta.serialize() for one in ask.columns)
    return *column, getattr(ask.query, "counted", "") == "nulls", ask.query.counts_people, by_name


def _are_all(ask: Ask[HistogramQuery]) -> bool:
    """Return whether all rows may contribute to an output: those without a value are taken to be few."""
    is_plain = not ask.filtered and not isinstance(ask.query, (Share, ValueCounts, SumOfPeople))
    return is_plain and getattr(ask.query, "counted", "") not in ("nulls", "people" if ask.columns else "")


def _number(
    of: _Set, choice: LimitChoice, spec: HistogramSpec, protection: Protection, *, is_all: bool
) -> PersonNumber:
    """Return which number of a person decides."""
    plain = replace(spec, limits=Limits(), weight=None, bits=0)
    if choice.is_bound:
        codes = CountRule(choice.of_rows(spec.types[0]))
        largest = "smallest code" if of.what == "lower" else "largest code"
        return PersonNumber(replace(plain, rule=codes, people=False), largest)  # type: ignore[arg-type]
    plain = replace(plain, rule=CountRule(spec.binning))
    if is_all:
        plain = HistogramSpec((), (), CountRule(OneCode()), Limits(), people=False)
    if of.what in ("max_groups", "max_rows"):
        return PersonNumber(plain, "groups" if of.what == "max_groups" else "rows")
    return PersonNumber(plain, "squares" if choice.squares else "rows", protection.max_rows_per_group)
