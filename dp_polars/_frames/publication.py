"""Publications of several queries, statements of releases, and the adapters' own releases of queries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict, TypeVar, Unpack

import polars as pl

from dp_polars._accounting import ledger
from dp_polars._accounting.budget import Budget
from dp_polars._accounting.claims import Claim, delta_of, in_words, loss_of, mechanisms_of
from dp_polars._accounting.terms import Loss
from dp_polars._base.calls import all_called, called
from dp_polars._base.numbers import Number, given, positive_int
from dp_polars._frames.query import OfAnswers, PrivateQuery, followed, scaled, without_data
from dp_polars._frames.requests import KeyRequest
from dp_polars._frames.statements import ledger_facts, loss_of_ledger, statement_of, unit_facts
from dp_polars._release.contract import AS_DRAWN, Engine, Intervals, Presentation
from dp_polars._release.protection import Parts, Protection
from dp_polars._release.public_keys import public_keys
from dp_polars._release.release import Part, charged_as, release_all, release_by
from dp_polars._release.request import AnyRequest, Request, explained
from dp_polars._release.staged import StagedRequest
from dp_polars._sources.marks import refuse_two_units
from dp_polars._sources.source import Opened, PrivateRows
from dp_polars._statistics.statement import Statement
from dp_polars._statistics.statement_facts import AT_DELTA, NOT_RECORDED, Facts, Known, loss_facts
from dp_polars._statistics.statistic import Asked, KeysThatAreThere

if TYPE_CHECKING:
    from polars._typing import EngineType

    from dp_polars._bins.candidates import Values


ReleasedT = TypeVar("ReleasedT")


class Charged(TypedDict, total=False):
    """The arguments of an adapter, in addition to a query and its rows."""

    budget: Budget | None
    ignore_cache: bool
    unchecked: bool


class ChargedAndShown(Charged, total=False):
    """And options for how frames are shown."""

    intervals: Intervals
    min_people: int | None
    sure: bool


@all_called
class Publication(OfAnswers):
    """Several queries about the same people, requested but not yet released. Made by `dp_polars.publication`.

    Each has its own rows, transformations, limits and keys: answers, cubes, selected keys, numbers of dropped rows,
    synthetic rows. All of them may have one joint guarantee, and each call of `release` is charged as one.

    Attributes
    ----------
    queries
        The queries by their names, in the order of the publication.
    budget
        The budget that pays, or None.
    """

    _answers = 'publication.release()["name"]'

    def __init__(self, queries: Mapping[str, PrivateQuery]) -> None:
        self.queries: Final = dict(queries)
        self.budget: Final[Budget | None] = self._first.budget

    @property
    def loss(self) -> Loss:
        """The loss of one person by one release: in rho if all are given in rho, or one has no epsilon."""
        return loss_of(self._claims())

    @property
    def delta(self) -> Fraction:
        """The delta of one release, in addition to its loss: above 0 only for selected keys."""
        return delta_of(self._claims())

    def scaled_to(
        self, *, epsilon: Number | None = None, rho: Number | None = None, delta: Number | None = None
    ) -> Publication:
        """Return this publication with one guarantee for all outputs of all queries, in one unit.

        Parameters, and errors, are those of `PrivateQuery.scaled_to`, of all outputs together. Nothing is read or
        charged.

        Examples
        --------
        >>> import dp_polars as dpp
        >>> visits = dpp.protect("patient", max_groups=2)
        >>> by_ward = visits.group_by({"ward": ["A", "B"]}).agg(dpp.n_people())
        >>> report = dpp.publication(in_all=visits.agg(dpp.n_people()), by_ward=by_ward)
        >>> str(report.scaled_to(epsilon=1).loss)
        'epsilon=1'
        """
        queries = scaled(list(self.queries.values()), epsilon, rho, delta)
        return Publication(dict(zip(self.queries, queries, strict=True)))

    def explain(self) -> pl.DataFrame:
        """Return the cost and the accuracy of a release, without reading a row.

        Returns
        -------
        DataFrame
            `PrivateQuery.explain` of all queries, with a first column `query`: their names. The first `note` ends with
            the cost of the whole release.
        """
        return explained([(name, query._request, query._public_engine) for name, query in self.queries.items()])

    def release(
        self,
        frame: PrivateRows | Mapping[str, PrivateRows] | None = None,
        *,
        intervals: Intervals = False,
        min_people: int | None = None,
        sure: bool = False,
        engine: EngineType = "auto",
        partitions: int | None = None,
        ignore_cache: bool = False,
        unchecked: bool = False,
    ) -> dict[str, Any]:
        """Release all queries once, by one charge to the budget before a row is read: all or nothing.

        Parameters
        ----------
        frame
            The private rows, if the queries were built without any: those of all queries, or a dict of them by the
            names of the queries. Each as for `PrivateQuery.release`.
        intervals, min_people, sure, engine, partitions, ignore_cache, unchecked
            As for `PrivateQuery.release`, of every query. `intervals` are not for cubes: their answers have them
            anyway. `min_people` and `sure` are for the queries with groups, and each of these must count its people.

        Returns
        -------
        dict
            The answers by the names of the queries: frames; for a cube a `Cube`, and for synthetic rows a `Synthetic`.
            Errors are those of `PrivateQuery.release`, for all of them together. If the engine fails on the rows of
            one, nothing is released or cached, and the charge stays.

        Notes
        -----
        Answers are cached for each query: cached ones cost nothing, and the others are charged together.
        """
        frames = self._tables(frame)
        opened = Opened()

        def part(name: str, query: PrivateQuery) -> Part[pl.DataFrame]:
            shown = self._presentation(name, intervals, min_people, sure)
            return query._part(frames[name], shown, opened, engine, partitions, name=name)

        with opened:
            return self._released(part, self.budget, ignore_cache=ignore_cache, unchecked=unchecked, opened=opened)

    def _presentation(self, name: str, intervals: object, min_people: object, sure: object) -> Presentation:
        """Return the presentation of one query; `min_people` applies to queries with groups, if there are some."""
        requests = {one: query._request for one, query in self.queries.items()}
        of_frames = [one for one, request in requests.items() if not request.has_own_ranges]
        of_groups = [one for one in of_frames if requests[one].answers_groups]
        if of_frames and name not in of_frames:
            return AS_DRAWN
        if of_groups and name not in of_groups:
            min_people, sure = None, False
        return requests[name].presentation(intervals, min_people, sure)

    def _released(
        self,
        part: Callable[[str, PrivateQuery], Part[ReleasedT]],
        budget: Budget | None,
        *,
        ignore_cache: bool,
        unchecked: bool,
        opened: Opened | None = None,
    ) -> dict[str, Any]:
        """Release the result of `part` for each query, as one."""
        queries = {name: query._handed_over(unchecked) for name, query in self.queries.items()}
        parts = [part(name, query) for name, query in queries.items()]
        if opened is not None:
            refuse_two_units([one.readings for one in opened.values()], "publication")
        released = release_all(parts, budget, ignore_cache=ignore_cache)
        return {name: query._made(one) for (name, query), one in zip(queries.items(), released, strict=True)}

    def _tables(self, given_one: object) -> dict[str, Any]:
        """Return the table of each query: one for all, or one each from a dict; raise for other names."""
        if not isinstance(given_one, Mapping):
            return dict.fromkeys(self.queries, given_one)
        if self._first._protection.parts is not None:
            msg = "a publication with by must be given one table, for all of its queries, got a dict."
            raise ValueError(msg)
        if given_one.keys() != self.queries.keys():
            msg = f"a dict of tables must have the names of the queries, {list(self.queries)}, got {list(given_one)}."
            raise ValueError(msg)
        return dict(given_one)

    def statement(self, *, at_delta: Number = AT_DELTA, **known: Unpack[Known]) -> Statement:
        """Return one privacy statement of all queries: see `PrivateQuery.statement`.

        A note about all queries appears once, and a note about some of them after their names.
        """
        return self._stated(known, at_delta, "planned")

    def _stated(self, known: Known, at_delta: Number, state: Literal["planned", "published"]) -> Statement:
        releases = {name: (query._request, query._described(at_delta)) for name, query in self.queries.items()}
        return statement_of(releases, self.budget, known, at_delta, state=state)

    def __repr__(self) -> str:
        names = "\n".join(f"  {name}: {', '.join(map(str, query._asks))}" for name, query in self.queries.items())
        claims = self._claims()
        is_open = any(claim._is_open for claim in claims)
        costs = "not known: publication.scaled_to(epsilon=1, delta=1e-6)" if is_open else in_words(claims)
        unit = self._first._protection.privacy_unit
        who = "one person per row" if unit is None else f"one person per {unit!r}"
        if (parts := self._first._protection.parts) is not None:
            who = f"{who}, {parts}"
        return f"<Publication: {who}\n{names}\n  costs: {costs}>"

    @property
    def _first(self) -> PrivateQuery:
        return next(iter(self.queries.values()))

    def _claims(self) -> list[Claim]:
        return [claim for query in self.queries.values() for claim in query._request.claims]


def queries_of(query: PrivateQuery | Publication) -> list[PrivateQuery]:
    return [*query.queries.values()] if isinstance(query, Publication) else [query]


def release_with(
    engine_of: Callable[[AnyRequest[Asked], Any, str | None], Engine[ReleasedT]],
    query: PrivateQuery | Publication,
    table: object,
    budget: Budget | None,
    *,
    intervals: object,
    min_people: object,
    sure: object,
    ignore_cache: bool,
    unchecked: bool,
) -> Any:  # noqa: ANN401  # a frame of the engine, a cube, or a dict of these
    """Release a query, or a whole publication as one, by an adapter's engines for requests and tables."""
    if not isinstance(query, Publication):
        request, payer = without_data(query, budget, unchecked=unchecked)
        engine = engine_of(request, table, None)
        presentation = request.presentation(intervals, min_people, sure)
        released = release_by(
            request, engine, payer, presentation=presentation, ignore_cache=ignore_cache, on_settled=query._settle
        )
        return query._handed_over(unchecked)._made(released)
    tables, payers = query._tables(table), [without_data(one, budget)[1] for one in query.queries.values()]

    def part(name: str, one: PrivateQuery) -> Part[ReleasedT]:
        engine = engine_of(one._planned, tables[name], name)
        shown = query._presentation(name, intervals, min_people, sure)
        return Part(one._planned, engine, shown, on_settled=one._settle, name=name)

    return query._released(part, payers[0], ignore_cache=ignore_cache, unchecked=unchecked)


@called
def publication(
    queries: Mapping[str, PrivateQuery] | None = None,
    /,
    *,
    by: Mapping[str, Values] | None = None,
    max_parts: int | None = None,
    **named: PrivateQuery,
) -> Publication:
    """Put several queries about the same people together: one guarantee, one charge, one statement and one report.

    With `by`, the same queries are answered for public, disjoint parts of one table. You pay for `max_parts` parts, not
    for all.

    Pure DP (epsilon), zCDP (rho) or (epsilon, delta)-DP for one person, as its queries.

    Proof: :doc:`/proofs/parts`.

    Parameters
    ----------
    queries, **named
        The queries by their names, as a dict or as arguments: those of `agg`, `cube`, `keys`, `n_rows_dropped` and
        `synthetic`. They may be of several private frames.
    by
        Columns of the protected table and their public values, such as `{"region": ["North", "South"]}`. Each query is
        answered for each value, or each combination, and its answers begin with these columns. A row with other values
        is in no part. All queries are of one protected table and have contribution limits, which apply in each part.
        Transformations leave these columns as they are. Cubes, synthetic rows and `n_rows_dropped` are refused.
    max_parts
        The number of parts in which each person counts. None: 1. A person with more parts counts in random ones, the
        same in all queries, and rows in other parts are dropped. A larger number drops fewer rows and costs more. A
        release costs as much as `max_parts` parts, and as twice as many under "replace_one".

    Raises
    ------
    TypeError, ValueError
        If there is no query, or one is no private query of frames. If queries differ in privacy unit, neighbouring
        relation or budget, or some have rows and some have none. If `by` is not as described, or a query can't be about
        parts.

    Examples
    --------
    >>> import polars as pl
    >>> import dp_polars as dpp
    >>> visits = pl.DataFrame({"patient": range(300), "ward": ["A", "B", "B"] * 100})
    >>> private = visits.dp.protect("patient", max_groups=1)
    >>> in_all = private.agg(people=dpp.n_people())
    >>> by_ward = private.group_by({"ward": ["A", "B"]}).agg(people=dpp.n_people())
    >>> report = dpp.publication(in_all=in_all, by_ward=by_ward).scaled_to(epsilon=20)
    >>> released = report.release()
    >>> released["by_ward"].height
    2

    Each ward gets a report of its own, and a patient's loss is as large as from one report:

    >>> report = dpp.publication(in_all=in_all, by={"ward": ["A", "B"]}).scaled_to(
    ...     epsilon=1
    ... )
    >>> report.release()["in_all"].columns
    ['ward', 'people']
    >>> report.queries["in_all"].explain()["epsilon"].item()
    1.0
    """
    every = {**(queries if isinstance(queries, Mapping) else {}), **named}
    if not isinstance(queries, Mapping | None) or not every:
        msg = (
            f"publication must be given queries by their names, got {given(queries)}.\n\n"
            "Hint: dp_polars.publication(by_ward=private.group_by(…).agg(…), in_all=private.agg(…))."
        )
        raise TypeError(msg)
    for name, query in every.items():
        if not isinstance(query, PrivateQuery):
            msg = f"publication: {name!r} must be a query of a private frame, got {given(query)}."
            raise TypeError(msg)
        if query._protection.parts is not None:
            msg = (
                f"publication: {name!r} must be a query that is not of the disjoint parts of another publication.\n\n"
                "Hint: give the queries that were made of the private frame, and by."
            )
            raise ValueError(msg)
        if not isinstance(name, str):
            msg = f"publication: names must be strings, got {given(name)}."
            raise TypeError(msg)
    (first, one), *others = every.items()
    for name, other in others:
        _refuse_others(f"publication: all queries, {first!r} and {name!r} among them,", one, other)
        if one._has_rows != other._has_rows:
            with_rows, without = (first, name) if one._has_rows else (name, first)
            msg = f"publication: all queries must have rows, or none: {with_rows!r} has rows, {without!r} has none yet."
            raise ValueError(msg)
    # The guarantee of one query is not the guarantee of all of them.
    apart = [query._with_asks(query._planned.every, None) for query in every.values()]
    if by is None and max_parts is not None:
        msg = (
            f"publication: max_parts must be left out without by, got {given(max_parts)}.\n\n"
            'Hint: by={"region": ["North", "South"]} names a column and its public values.'
        )
        raise ValueError(msg)
    if by is not None:
        parts = _parts_of(by, max_parts, one._protection)
        if any(query._source is not one._source for query in every.values()):
            msg = (
                "publication: with by, all queries must be of one protected table, got several: each person counts in "
                "the same parts in all queries.\n\n"
                "Hint: protect once, private = frame.dp.protect(…), and begin all queries with private."
            )
            raise ValueError(msg)
        apart = [_in_parts(name, query, parts) for name, query in zip(every, apart, strict=True)]
    return Publication(dict(zip(every, followed(apart), strict=True)))


def _parts_of(by: object, max_parts: object, protection: Protection) -> Parts:
    """Return the disjoint parts from a caller's arguments."""
    if not isinstance(by, Mapping):
        msg = (
            f"publication: by must be a dict of columns and their public values, got {given(by)}.\n\n"
            'Hint: by={"region": ["North", "South"]}.'
        )
        raise TypeError(msg)
    most = 1 if max_parts is None else positive_int("max_parts", max_parts)
    if protection.unit is None and most > 1:
        msg = f"publication: max_parts must be 1 where every row is a person, which is in one part, got {most}."
        raise ValueError(msg)
    if taken := [name for name in by if name in (protection.unit or ())]:
        msg = f"publication: by must not name the privacy unit, got {taken[0]!r}: its values are not public."
        raise ValueError(msg)
    keys = public_keys(by)
    return Parts(keys, min(most, keys.height))


def _in_parts(name: str, query: PrivateQuery, parts: Parts) -> PrivateQuery:
    """Return a query about each part; refuse one about all parts together: `docs/proofs/parts.md`."""
    request, columns = query._planned, parts.columns
    protection, who = request.protection, f"publication: with by, the query {name!r}"
    if type(request) not in (Request, KeyRequest):
        msg = (
            f"{who} must be one of agg or keys, got one for {request.asks[0].name}, which is about all parts together."
        )
        hint = "put the columns of by into the dimensions of a cube; or put the query into a publication without by."
        if isinstance(request, StagedRequest):
            msg = f"{who} must have contribution limits and clipping bounds: they would be found in all parts together."
            hint = f"give protect the limits that {', '.join(ask.name for ask in request.found_first)} would find."
            if not request.groups_are_known:
                msg = f"{who} must list its groups: they would be selected in all parts together."
                hint = 'group_by({"ward": ["A", "B"]}).'
            elif any(isinstance(ask.query, KeysThatAreThere) for ask in request.found_first):
                msg = f"{who} must list its candidates: they would be selected in all parts together."
                hint = 'mode(["a", "b"]).'
        msg += f"\n\nHint: {hint}"
        raise TypeError(msg)
    has = request.asks[0].query.columns if isinstance(request, KeyRequest) else [ask.name for ask in request.asks]
    if taken := sorted({*columns} & {*has, *([] if request.keys is None else request.keys.columns)}):
        msg = (
            f"{who} must have no key and no output named like a column of by, got {taken[0]!r}.\n\nHint: leave it out."
        )
        raise ValueError(msg)
    pipeline = replace(request.pipeline, protection=replace(protection, parts=parts), proof=None)
    if isinstance(request, KeyRequest):
        (ask,) = request.asks
        statistic = replace(ask.query, columns=(*columns, *ask.query.columns))
        ask = replace(ask, columns=(*map(pl.col, columns), *ask.columns), query=statistic)
        return query._with_request(replace(request, pipeline=pipeline, asks=(ask,)))
    keys = parts.keys
    if isinstance(request.keys, pl.DataFrame):
        keys = keys.join(request.keys, how="cross", maintain_order="left_right")
    return query._with_request(replace(request, pipeline=pipeline, keys=keys))


def _refuse_others(who: str, one: PrivateQuery, other: PrivateQuery) -> None:
    """Raise for queries about other people, of another relation, or with another budget."""
    protections = one._protection, other._protection
    units, relations = zip(*((of.privacy_unit, of.neighboring_relation) for of in protections), strict=True)
    for what, got in (("privacy unit", units), ("neighboring_relation", relations)):
        if got[0] != got[1]:
            msg = (
                f"{who} must have the same {what}, got {got[0]!r} and {got[1]!r}.\n\n"
                "Hint: losses of different units or relations do not add up. Make a publication of each."
            )
            raise ValueError(msg)
    budgets = one.budget, other.budget
    paths = {None if budget is None else budget._path for budget in budgets}
    if budgets[0] is not budgets[1] and (None in budgets or None in paths or len(paths) > 1):
        had = "one with a budget and one without" if None in budgets else "two budgets"
        msg = (
            f"{who} must have the same budget, got {had}.\n\n"
            "Hint: give protect of both the same Budget; a release is charged to it once."
        )
        raise ValueError(msg)


@called
def statement(
    budget: Budget,
    queries: Sequence[PrivateQuery | Publication] = (),
    *,
    at_delta: Number = AT_DELTA,
    **known: Unpack[Known],
) -> Statement:
    r"""Return the privacy statement of all charges to a budget.

    A ledger contains the unit, the relation, the sums, and for each output a text, its mechanism, its loss and the
    time. All other facts come from `queries`. No rows are read, and nothing is charged. If the budget is a guarantee of
    (epsilon, delta), the statement is about this guarantee, and shows how much of it is charged.

    Parameters
    ----------
    budget, queries
        The ledger is read whole. Each output of the queries and publications that were released, once for each release,
        must be in it, by its text, mechanism and loss. Entries without a query are "not recorded".
    at_delta
        The δ at which the sum of all losses is also given as an ε.
    **known
        Facts that only people know: see `PrivateQuery.statement`.

    Raises
    ------
    TypeError, ValueError
        If an output of a query is not in the ledger, a query has another privacy unit or relation than the ledger, the
        ledger is damaged, or an argument is not as described.

    Examples
    --------
    >>> import polars as pl
    >>> import dp_polars as dpp
    >>> budget = dpp.Budget(epsilon=1, name="visits")
    >>> visits = pl.DataFrame({"patient": [1, 1, 2]})
    >>> query = visits.dp.protect("patient", budget=budget).agg(dpp.n_people(epsilon=0.5))
    >>> released = query.release()
    >>> dpp.statement(budget, [query]).facts["loss"]["exact"]
    '1/2'
    """
    if not isinstance(budget, Budget):
        msg = (
            f"budget must be a Budget, got {given(budget)}.\n\nHint: one query without a budget has query.statement()."
        )
        raise TypeError(msg)
    every: list[tuple[str | None, PrivateQuery]] = []
    for query in queries:
        if not isinstance(query, (PrivateQuery, Publication)):
            msg = f"queries must be queries of private frames, got {given(query)}.\n\nHint: [private.agg(…)]."
            raise TypeError(msg)
        every += query.queries.items() if isinstance(query, Publication) else [(None, query)]
    head, charges = budget._charged()
    places = _places([name for name, _ in every])
    recorded = _matched(every, places, budget, head, charges)
    releases = [
        {"name": "" if name is None else place, **query._described(at_delta)}
        for (name, query), place in zip(every, places, strict=True)
    ]
    of_release = {place: one["asks"] for place, one in zip(places, releases, strict=True)}
    asked_before = [
        charge.what
        for charge, where in zip(charges, recorded, strict=True)
        if charge.mechanism in mechanisms_of("keys") or of_release.get(where, "answers") != "answers"
    ]
    unit: Facts = {"person": None, "why": "not known, for nothing is charged yet.", "relation": None, "notes": []}
    if head.charges and head.neighboring_relation is not None:
        unit = unit_facts(head.privacy_unit, head.neighboring_relation)
    loss = loss_facts(*loss_of_ledger(head), at_delta)
    paid = ledger_facts(budget, head, charges, recorded, asked_before)
    return Statement.of("charged", known, loss=loss, unit=unit, releases=releases, ledger=paid)


def _places(names: Sequence[str | None]) -> list[str]:
    """Return names of releases: those of their queries in publications, with a number if a name repeats."""
    return [
        f"release {number}" if name is None else name if names.count(name) == 1 else f"{name} (release {number})"
        for number, name in enumerate(names, 1)
    ]


def _matched(
    queries: Sequence[tuple[str | None, PrivateQuery]],
    names: Sequence[str],
    budget: Budget,
    head: ledger.Head,
    charges: Sequence[ledger.Charge],
) -> list[str]:
    """Return the release of each charge; raise for an output without a charge that is left."""
    recorded = [NOT_RECORDED] * len(charges)
    left: dict[tuple[object, ...], list[int]] = {}
    for place, one in reversed([*enumerate(charges)]):
        key = (one.what, one.mechanism, (one.unit, Fraction(one.loss)), Fraction(one.delta))
        left.setdefault(key, []).append(place)
    for (name, query), of_release in zip(queries, names, strict=True):
        guaranteed = (query._protection.privacy_unit, query._protection.neighboring_relation)
        if head.charges and guaranteed != (head.privacy_unit, head.neighboring_relation):
            msg = (
                f"queries must have the privacy unit and the relation of the ledger, {head.privacy_unit!r} and "
                f"{head.neighboring_relation!r}, got {guaranteed[0]!r} and {guaranteed[1]!r}."
            )
            raise ValueError(msg)
        for text, claim in query._request.charged:
            places = left.get((charged_as(name, text), claim.mechanism, budget._as_charged(claim), claim.delta), [])
            if not places:
                msg = (
                    f"queries must have been charged to this budget: output {text!r} ({claim}) is not in "
                    "the ledger, or not as often as it was given.\n\n"
                    "Hint: budget.log() lists what is. Give each query once for each of its releases."
                )
                raise ValueError(msg)
            recorded[places.pop()] = of_release
    return recorded
