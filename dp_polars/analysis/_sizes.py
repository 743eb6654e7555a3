"""Numbers for choosing a plan: sizes of groups, gaps of candidates, losses by limits, and rows to rehearse on."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import partial
from itertools import product
from typing import NamedTuple, TypeAlias

import numpy as np
import polars as pl

from dp_polars._base import column_types
from dp_polars._base.calls import called
from dp_polars._base.column_types import has_value
from dp_polars._base.numbers import Number, as_fraction, given, kind_of_frame, positive_fraction, positive_int
from dp_polars._bins.candidates import Categories, Values, grid, ordered
from dp_polars._engines.polars.rows import is_a_person
from dp_polars._frames.cube_query import CubeRequest
from dp_polars._frames.publication import Publication
from dp_polars._frames.query import PrivateQuery
from dp_polars._frames.requests import KeyRequest
from dp_polars._frames.synthetic_query import SyntheticQuery
from dp_polars._release.request import Ask
from dp_polars._statistics.averages import Average
from dp_polars._statistics.categories import Mode
from dp_polars._statistics.limits import LimitChoice
from dp_polars._statistics.measures import BETA, Sum, error_95
from dp_polars._statistics.statistic import Columns, HistogramQuery
from dp_polars.analysis._laws import block_probabilities
from dp_polars.analysis._simulation import answers_of, several

_MOST = 2**53  # the largest group in the search
_SIZES = {"query": pl.String, "output": pl.String, "size": pl.Int64, "size_unit": pl.String}


@called
def error_by_size(query: PrivateQuery | Publication, sizes: Iterable[int]) -> pl.DataFrame:
    """Return the `error_95` of every output in groups of these sizes. It reads no row.

    Parameters
    ----------
    query
        A query of a private frame, with or without rows, and not for keys; or a publication: its selected keys and
        synthetic rows are left out. Its losses count.
    sizes
        The numbers of rows of a group, after all limits, or of people, if an output counts people: at least 1.

    Returns
    -------
    DataFrame
        One row per output, or table of a cube, and size: of a publication `query` (String), and then `output` (String),
        `size` (Int64), `size_unit` (String: "rows" or "people"), `error_95` (Float64) and `error_unit` as in
        `PrivateQuery.explain`, and `relative` (Float64): that error divided by the largest answer that a group of this
        size may have. For counts this is the size, for sums the size times the larger bound. Errors of quantiles and
        modes are in rows or people: for them it is the size (by weight, times the largest weight). For means and their
        like it is the distance between the smallest and the largest answer. Above 1 an answer is only noise. Errors are
        null if only the column's type names the candidates and the query has no rows.

    Examples
    --------
    >>> import dp_polars as dpp
    >>> query = dpp.protect("patient", max_groups=1, max_rows_per_group=1).agg(
    ...     people=dpp.n_people(within=10), days=dpp.mean("days", 0, 30, step=1, epsilon=1)
    ... )
    >>> errors = error_by_size(query, [100, 1000])
    >>> errors.select("output", "size", pl.col("error_95", "relative").round(3)).rows()[1:3]
    [('people', 1000, 10.0, 0.01), ('days', 100, 1.107, 0.037)]
    """
    numbers = [positive_int(f"sizes[{i}]", size) for i, size in enumerate(several("sizes", sizes))]
    rows = []
    for one in _sized(query):
        for size in numbers:
            error = one.error(size)
            relative = None if error is None else error / one.answer(size)
            rows.append((one.query, one.output, size, one.unit, error, one.error_unit, relative))
    schema = _SIZES | {"error_95": pl.Float64, "error_unit": pl.String, "relative": pl.Float64}
    return _of(query, pl.DataFrame(rows, schema, orient="row"))


@called
def size_needed(
    query: PrivateQuery | Publication, relative: Number = Fraction(1, 10), *, rehearsal: pl.DataFrame | None = None
) -> pl.DataFrame:
    """Return how many people, or rows, a group must have for a small relative error. It reads no row.

    Parameters
    ----------
    query
        As for `error_by_size`. For selected keys of a publication, the size is the number of people from which on a key
        is shown with probability 0.95.
    relative
        The most that `relative` of `error_by_size` may be: above 0.
    rehearsal
        The result of `simulate` for this publication: then the error is relative to its answers, and not to the largest
        possible ones. Answers of means stay as they are; those of sums grow with the size.

    Returns
    -------
    DataFrame
        One row per output: of a publication `query` (String), and then `output` (String), `size` (Int64) and
        `size_unit` (String: "rows" or "people"), counting only rows within the limits. In every group of this size or
        more, the error is that small with probability 0.95. Null if the error is not known, or no group of 2⁵³ is large
        enough.

    Notes
    -----
    An error in rows, people or the column's unit does not depend on the group. Divided by the largest answer, it falls
    like one over the size. A mean's relative error never grows with the size. So all sizes from the smallest one on are
    enough, and bisection finds it.

    Examples
    --------
    >>> import dp_polars as dpp
    >>> query = dpp.protect("patient", max_groups=1).agg(people=dpp.n_people(within=10))
    >>> size_needed(query, 0.05).rows()
    [('people', 200, 'people')]
    """
    goal = positive_fraction("relative", relative)
    values = _values_of(query, rehearsal)
    rows: list[tuple[str, str, int | None, str]] = []
    for name, one in _named(query):
        if isinstance(query, Publication) and isinstance(one._request, KeyRequest):
            (ask,) = one._asks
            one._request.refuse_open("query")
            rows.append((name, ask.name, one._request.asks[0].query.selection.people_for(1 - BETA), "people"))
        else:
            rows += [(name, of.output, _smallest(of, goal), of.unit) for of in _sized_of(name, one, values)]
    return _of(query, pl.DataFrame(rows, _SIZES, orient="row"))


@called
def best_by_gap(query: PrivateQuery, gaps: Iterable[Number]) -> pl.DataFrame:
    """Return the least probability of the most common candidate, by its gap. It reads no row.

    Parameters
    ----------
    query
        A query of a private frame with a mode among its outputs; the others are left out.
    gaps
        By how many people (or rows, or by how much weight) the most common candidate of a group exceeds every other
        one, 0 or more, counting rows that the limits keep.

    Returns
    -------
    DataFrame
        One row per mode and gap: `output` (String), `gap` (Float64), `gap_unit` (String: "people", "rows" or "the
        weights' unit") and `probability` (Float64): that the most common candidate is the answer. It is exact if all
        other candidates are equally common, and larger for all other counts with this gap.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, no output is a mode, or only the column's type names its candidates and the
        query has no rows.

    Notes
    -----
    With coins p = exp(−λ·gap), permute-and-flip answers the best candidate with probability ∫₀¹ ∏(1 − p_i·t) dt and the
    exponential mechanism with 1/(1 + Σp_i), over all others. Both fall as a coin grows. So at a gap of g or more, the
    worst case is that all coins are exp(−λ·g).

    Examples
    --------
    >>> import dp_polars as dpp
    >>> query = dpp.protect("patient", max_groups=1).agg(
    ...     dpp.mode("reason", ["fall", "flu", "cold"], epsilon=0.1)
    ... )
    >>> best_by_gap(query, [0, 10, 50])["probability"].round(3).to_list()
    [0.333, 0.677, 0.993]
    """
    numbers = [as_fraction(f"gaps[{i}]", gap) for i, gap in enumerate(several("gaps", gaps))]
    for gap in numbers:
        if not gap >= 0:
            msg = f"gaps must be 0 or more, got {float(gap):g}."
            raise ValueError(msg)
    rows = []
    for ask, types, unit in _outputs(query):
        mode = ask.query
        if not isinstance(mode, Mode):
            continue
        size = mode.size_of(*types)
        if size is None:
            msg = (
                f"Output {ask.name!r}: candidates must be known, and only the column's type names them.\n\n"
                "Hint: give candidates=…, or use a private frame that has data."
            )
            raise ValueError(msg)
        others, claim = size - 1 + (mode.too_few is not None), mode.claim
        for gap in numbers:
            blocks = np.array([0.0, float(gap)]), [1, others]
            best = block_probabilities(*blocks, claim.rate, claim.mechanism)[0] if others else 1.0
            rows.append((ask.name, float(gap), mode.error_unit or unit, float(best)))
    if not rows:
        msg = "query must have a mode among its outputs.\n\nHint: dp_polars.mode(…)."
        raise TypeError(msg)
    schema = {"output": pl.String, "gap": pl.Float64, "gap_unit": pl.String, "probability": pl.Float64}
    return pl.DataFrame(rows, schema, orient="row")


@called
def rows_dropped(
    frame: pl.DataFrame | pl.LazyFrame,
    privacy_unit: str | Sequence[str],
    *,
    by: str | Sequence[str] = (),
    max_groups: Iterable[int | None] = (None,),
    max_rows_per_group: Iterable[int | None] = (None,),
) -> pl.DataFrame:
    """Return the share of *public* rows that contribution limits would drop. The result is not private.

    Use last year's published rows, or synthetic ones: see `synthetic`. Its `skew` sets how unequal people are.

    Parameters
    ----------
    frame
        The public rows.
    privacy_unit
        The column, or columns, that identify people. Rows of null and NaN people are left out.
    by
        The columns of the groups. Rows with a null there are in no group, and left out.
    max_groups, max_rows_per_group
        The limits to try, each at least 1, as lists: all combinations are. None: no limit.

    Returns
    -------
    DataFrame
        One row per combination: `max_groups`, `max_rows_per_group` (Int64), `rows_dropped` (Float64), the mean share of
        dropped rows over the random subsets that may be kept, and `people_cut` (Float64), the share of people with a
        dropped row. Both are null without rows.

    Notes
    -----
    A person with G groups keeps min(g, G) of them, all subsets being equally probable, and min(n, m) of the n rows in
    such a group. So the mean number of rows kept is min(1, g/G)·Σ min(n, m). This applies to modes, quantiles and other
    choices. In numbers no rows are dropped: people beyond the limits count in part, and lose no more than that.

    Examples
    --------
    >>> visits = pl.DataFrame({"patient": [1, 1, 1, 2], "ward": ["A", "A", "B", "A"]})
    >>> rows_dropped(
    ...     visits, "patient", by="ward", max_groups=[1, 2], max_rows_per_group=[1]
    ... ).rows()
    [(1, 1, 0.5, 0.5), (2, 1, 0.25, 0.5)]
    """
    if not isinstance(frame, (pl.DataFrame, pl.LazyFrame)):
        msg = f"frame must be a DataFrame or a LazyFrame, got {kind_of_frame(frame)}"
        raise TypeError(msg)
    unit, keys = ([names] if isinstance(names, str) else list(names) for names in (privacy_unit, by))
    known = frame.collect_schema()
    missing = [name for name in (*unit, *keys) if name not in known]
    if missing or not unit:
        msg = f"privacy_unit and by must name columns of the frame, got {missing or unit} where they are {list(known)}."
        raise ValueError(msg)
    groups, rows = (
        [None if limit is None else positive_int(f"{name}[{i}]", limit) for i, limit in enumerate(several(name, given))]
        for name, given in (("max_groups", max_groups), ("max_rows_per_group", max_rows_per_group))
    )
    has_keys = (has_value(pl.col(key), known[key]) for key in keys)
    counted = frame.lazy().filter(is_a_person(tuple(unit), known), *has_keys)
    per_group = counted.group_by(*unit, *(key for key in keys if key not in unit)).agg(pl.len().alias("\0n"))
    least = {limit: pl.col("\0n") if limit is None else pl.min_horizontal("\0n", limit) for limit in rows}
    left_of = [rows_left.sum().alias(f"\0{limit}") for limit, rows_left in least.items()]
    people = per_group.group_by(unit).agg(pl.len().alias("\0groups"), pl.col("\0n").sum(), *left_of).collect()
    n, number = people["\0n"].to_numpy().astype(float), people["\0groups"].to_numpy()
    results = []
    for most, limit in product(groups, rows):
        left = people[f"\0{limit}"].to_numpy() * (1.0 if most is None else np.minimum(1.0, most / number))
        cut = left < n
        shares = (float(1 - left.sum() / n.sum()), float(cut.mean())) if len(n) else (None, None)
        results.append((most, limit, *shares))
    limits, shares_of = ("max_groups", "max_rows_per_group"), ("rows_dropped", "people_cut")
    schema = {**dict.fromkeys(limits, pl.Int64), **dict.fromkeys(shares_of, pl.Float64)}
    return pl.DataFrame(results, schema, orient="row")


def _outputs(query: PrivateQuery) -> Iterator[tuple[Ask[HistogramQuery], Columns, str]]:
    if not isinstance(query, PrivateQuery):
        msg = f"query must be a PrivateQuery, got {given(query)}."
        raise TypeError(msg)
    request = answers_of(query)
    request.refuse_open("query")
    for ask, types in request.typed(query._public_engine):
        if isinstance(ask.query, HistogramQuery) and not isinstance(ask.query, LimitChoice):
            yield ask, types, request.counts(ask.query)


def _error(statistic: HistogramQuery, size: int, types: Columns) -> float | None:
    return (
        statistic.error_among(size, BETA, *types) if statistic.error_needs_rows else error_95(statistic, None, *types)
    )


class _Sized(NamedTuple):
    """An output's error in groups of a size, and the size of its answer: the largest, or that in a rehearsal."""

    query: str
    output: str
    unit: str
    error_unit: str
    error: Callable[[int], float | None]
    answer: Callable[[int], float]


def _named(query: PrivateQuery | Publication) -> Iterable[tuple[str, PrivateQuery]]:
    return query.queries.items() if isinstance(query, Publication) else [("", query)]


def _of(query: PrivateQuery | Publication, found: pl.DataFrame) -> pl.DataFrame:
    return found if isinstance(query, Publication) else found.drop("query")


_Values: TypeAlias = "Mapping[tuple[str, str], tuple[float | None, float | None]]"  # and sizes of groups


def _sized(query: PrivateQuery | Publication) -> Iterator[_Sized]:
    for name, one in _named(query):
        if not isinstance(query, Publication) or not isinstance(one._request, KeyRequest):
            yield from _sized_of(name, one, {})


def _sized_of(name: str, query: PrivateQuery, values: _Values) -> Iterator[_Sized]:
    if isinstance(query, SyntheticQuery) and name:
        return
    request = query._request if isinstance(query, PrivateQuery) else None
    if isinstance(request, CubeRequest) and request.tables and not isinstance(query, SyntheticQuery):
        request.refuse_open("query")
        for line in request.lines(query._public_engine)[: len(request.tables)]:
            counted, error = request.counts(request.asks[0].query), line.row["error_95"]
            yield _Sized(name, line.row["output"], counted, counted, partial(_constant, error), float)
        return
    for ask, types, unit in _outputs(query):
        # Where bounds are still to be found, errors and answers are both in parts of them.
        known, size = (None, None) if ask.query.finds else values.get((name, ask.name), (None, None))
        yield _Sized(
            *(name, ask.name, unit, ask.query.error_unit or unit),
            partial(_error, ask.query, types=types),
            partial(_answer, ask.query, known=known, of=size),
        )


def _constant(error: float, size: int) -> float:  # noqa: ARG001  # it is the same in all groups
    return error


def _answer(statistic: HistogramQuery, size: int, *, known: float | None, of: float | None) -> float:
    """Return the size of an answer in a group of a size, from a known one if given; else the largest."""
    if known and isinstance(statistic, Average):
        return known
    if known and of and isinstance(statistic, Sum):
        return size * known / of
    return _largest_answer(statistic, size)


def _values_of(query: PrivateQuery | Publication, rehearsal: pl.DataFrame | None) -> _Values:
    if rehearsal is None:
        return {}
    needed = ["query", "output", "value", "size"]
    is_one = isinstance(rehearsal, pl.DataFrame) and {*needed} <= {*rehearsal.columns}
    rows = rehearsal.select(needed).rows() if is_one and isinstance(query, Publication) else []
    if not rows or not {row[0] for row in rows} <= {name for name, _ in _named(query)}:
        msg = (
            f"rehearsal must be what simulate gave of this publication, got {given(rehearsal)}.\n\n"
            "Hint: rehearsal=analysis.simulate(publication, rows)."
        )
        raise ValueError(msg)
    return {(row[0], row[1]): (row[2], row[3]) for row in rows}


def _largest_answer(statistic: HistogramQuery, size: int) -> float:
    if isinstance(statistic, Average):
        low, high = statistic.ends
        return high - low
    return float(size * (statistic.largest if isinstance(statistic, Sum) else statistic.weights.most))


def _smallest(one: _Sized, goal: Fraction) -> int | None:
    """Return the smallest group with a relative error of at most a goal; None if there is none, or it is unknown."""

    def is_enough(size: int) -> bool:
        error = one.error(size)
        return error is not None and error / one.answer(size) <= float(goal)

    low, high = 0, 1
    while not is_enough(high):
        low, high = high, 2 * high
        if high > _MOST:
            return None
    return low + 1 + bisect_left(range(low + 1, high), True, key=is_enough)


_SEED = 0
_MOST_SKEW = 4
_TEXTS = tuple("abcdefghij")
_FIRST, _LAST = date(2024, 1, 1), date(2024, 12, 31)


@called
def synthetic(
    schema: Mapping[str, pl.DataType | type[pl.DataType]],
    *,
    people: int,
    rows: int,
    values: Mapping[str, Values] | None = None,
    privacy_unit: str | Sequence[str] | None = None,
    skew: Number = 0.5,
) -> pl.DataFrame:
    """Return synthetic rows to try a query on, from public values only.

    No private row is read: `schema` has the types of columns, which count as public here as everywhere. The same
    arguments give the same rows. They show nothing about real rows beyond your arguments: try several sizes.

    Parameters
    ----------
    schema
        The type of every column by its name, such as `frame.collect_schema()`: numbers, text, categories, booleans,
        dates and times.
    people, rows
        The number of people, and of all rows: at least one for each person.
    values
        The public values of columns, by name: candidates and keys, as lists, ranges, grids, Series or arrays. Columns
        without any get a few by their type: whole numbers from 0 to 99, other numbers from 0 to 99.99, the letters a to
        j, the categories of an Enum, the days or hours of 2024, the minutes of a day.
    privacy_unit
        The column, or columns, that identify people. None: the first one. Their values are whole numbers from 0 on, or
        such numbers as text. For other types, `values` must have one for each person.
    skew
        How unequal people are, from 0 to 4. At 0 each row belongs to a random person. At 0.5 a minority has many rows,
        at 1 or more a few people have most of them.

    Returns
    -------
    DataFrame
        With these columns and types, without null, in no order. Columns are independent of each other. The person of
        rank r has one row and a part of the other rows in proportion to 1/r^skew, so that some have many rows. Text,
        categories and booleans are as frequent as 1/r, r their place in the list, so that groups have different sizes.
        Numbers and times are between their smallest and largest value, most of them in the middle: each is the mean of
        two that are evenly spread.

    Examples
    --------
    >>> schema = {"patient": pl.Int64, "ward": pl.Enum(["A", "B"]), "age": pl.Int8}
    >>> rows = synthetic(schema, people=100, rows=300, values={"age": range(121)})
    >>> rows.schema == pl.Schema(schema), rows.height, rows["patient"].n_unique()
    (True, 300, 100)
    """
    types = _types(schema)
    positive_int("people", people)
    if not positive_int("rows", rows) >= people:
        msg = f"rows must be at least people, {people:,}, for each has one, got {rows:,}."
        raise ValueError(msg)
    inequality = as_fraction("skew", skew)
    if not 0 <= inequality <= _MOST_SKEW:
        msg = f"skew must be from 0 to {_MOST_SKEW}, got {skew!r}."
        raise ValueError(msg)
    chosen = {} if values is None else values
    if not isinstance(chosen, Mapping):
        msg = f"values must be a dict of columns and their public values, got {given(values)}."
        raise TypeError(msg)
    unit = [privacy_unit] if isinstance(privacy_unit, str) else list(privacy_unit or [next(iter(types))])
    for name, columns in (("values", chosen), ("privacy_unit", unit)):
        if missing := sorted(set(columns) - set(types)):
            msg = f"{name} must name columns of the schema, got {missing} where they are {list(types)}."
            raise ValueError(msg)
    random = np.random.default_rng(_SEED)
    weights = np.arange(1, people + 1) ** -float(inequality)
    others = random.choice(people, rows - people, p=weights / weights.sum())
    owner = random.permutation(np.append(np.arange(people), others))
    return pl.DataFrame(
        {
            name: _people(name, dtype, chosen.get(name), people).gather(owner)
            if name in unit
            else _drawn(name, dtype, chosen.get(name), rows, random)
            for name, dtype in types.items()
        }
    )


def _types(schema: Mapping[str, pl.DataType | type[pl.DataType]]) -> pl.Schema:
    try:
        types = pl.DataFrame(schema=dict(schema)).schema
    except (TypeError, ValueError, pl.exceptions.PolarsError):
        types = pl.Schema()
    if not types:
        msg = (
            f"schema must be the types of columns by their names, got {given(schema)}.\n\n"
            'Hint: {"patient": pl.Int64, "ward": pl.String}, or frame.collect_schema().'
        )
        raise TypeError(msg)
    for name, dtype in types.items():
        if column_types.family(dtype) is None:
            msg = (
                f"schema must have numbers, text, categories, booleans, dates and times, got {dtype} of column "
                f"{name!r}.\n\nHint: leave the column out, and add it to the rows yourself if the query needs it."
            )
            raise TypeError(msg)
    return types


def _people(name: str, dtype: pl.DataType, values: Values | None, people: int) -> pl.Series:
    if values is not None:
        series = Categories.of(values, f"values[{name!r}]").for_column(None)
        if not len(series) >= people:
            msg = f"values[{name!r}] must have one for each of {people:,} people, got {len(series):,}."
            raise ValueError(msg)
        return _as(name, dtype, series[:people])
    if not (dtype.is_integer() or isinstance(dtype, (pl.String, pl.Categorical))):
        msg = (
            f"values must be given for the privacy unit {name!r} of type {dtype}: they make up people by whole numbers "
            f'and text only.\n\nHint: values={{"{name}": […]}}, or privacy_unit="…" where it is another column.'
        )
        raise ValueError(msg)
    numbers = pl.Series(range(people), dtype=pl.Int64)
    return _as(name, dtype, numbers if dtype.is_integer() else numbers.cast(pl.String))


def _drawn(name: str, dtype: pl.DataType, values: Values | None, rows: int, random: np.random.Generator) -> pl.Series:
    chosen = _default(dtype) if values is None else values
    if column_types.family(dtype) in ("text", "boolean"):
        series = _as(name, dtype, Categories.of(chosen, f"values[{name!r}]").for_column(None))
        weights = 1 / np.arange(1, len(series) + 1)
        return series.gather(random.choice(len(series), rows, p=weights / weights.sum()))
    points = ordered(chosen)
    return _as(name, dtype, points.take((random.random((2, rows)).mean(axis=0) * points.size).astype(np.int64)))


def _as(name: str, dtype: pl.DataType, series: pl.Series) -> pl.Series:
    try:
        cast = series.cast(dtype)
    except pl.exceptions.PolarsError:
        cast = None
    if cast is None or (not dtype.is_float() and cast.cast(series.dtype).ne_missing(series).any()):
        msg = f"values[{name!r}] must be values that a column of type {dtype} can hold, got {series.dtype}."
        raise ValueError(msg)
    return cast.alias(name)


def _default(dtype: pl.DataType) -> Values:
    if isinstance(dtype, pl.Enum):
        return dtype.categories
    if isinstance(dtype, pl.Decimal):
        last_digit, digits = Decimal(1).scaleb(-dtype.scale), min(2, (dtype.precision or 38) - dtype.scale)
        return grid(0, 10**digits - last_digit, step=last_digit)
    defaults: dict[object, Values] = {
        pl.Boolean: [False, True],
        pl.Date: pl.date_range(_FIRST, _LAST, eager=True),
        pl.Duration: [timedelta(hours=hours) for hours in range(100)],
        pl.Time: grid(time(0), time(23, 59), step="1m"),
    }
    if isinstance(dtype, pl.Datetime):
        return pl.datetime_range(_FIRST, _LAST, "1h", time_unit=dtype.time_unit, time_zone=dtype.time_zone, eager=True)
    if dtype.is_float():
        return grid(0, 99.99, step=0.01)
    return defaults.get(dtype.base_type(), range(100) if dtype.is_integer() else _TEXTS)
