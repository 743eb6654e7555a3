"""The quality of a query's, or a whole publication's, answers: their laws on public or synthetic rows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np
import polars as pl

from dp_polars._base.calls import called
from dp_polars._base.numbers import Number, as_loss, given, positive_loss
from dp_polars._bins.candidates import ends_of
from dp_polars._engines.polars.engine import PolarsEngine
from dp_polars._expressions.expression import PrivateExpr
from dp_polars._frames.cube_query import CubeRequest, name_of, sums_of
from dp_polars._frames.publication import Publication
from dp_polars._frames.query import PrivateQuery
from dp_polars._frames.requests import KeyRequest, PeopleRequest
from dp_polars._frames.synthetic_query import SyntheticQuery
from dp_polars._mechanisms.residuals import Floats
from dp_polars._release.contract import PartChoice, Product, Work
from dp_polars._release.public_keys import product
from dp_polars._release.release import keep_parts
from dp_polars._statistics.answer_lists import QuantileList
from dp_polars._statistics.averages import Mean, Variance
from dp_polars._statistics.categories import Quantile
from dp_polars._statistics.measures import Sum
from dp_polars.analysis._simulation import (
    SIMULATED,
    Counted,
    as_text,
    claims_of,
    counted,
    law_at,
    of_expression,
    plan_of,
    public_table,
    several,
)

# A loss with practically no noise.
_NO_NOISE = 10**15
# More keys than a person has.
_ALL_KEYS = 2**31


@called
def simulate(
    query: PrivateQuery | Publication | PrivateExpr,
    frame: pl.DataFrame | pl.LazyFrame | Mapping[str, pl.DataFrame | pl.LazyFrame],
    *,
    by: str | Sequence[str] | None = None,
    losses: Iterable[Number] | None = None,
    allow_private: bool = False,
) -> pl.DataFrame:
    """Return how good the answers of a private query would be on a *public* frame. The result is not private.

    Use last year's published rows, or synthetic ones: the result shows true answers and exact probabilities. For lists
    of quantiles and top-k it shows estimates from many draws. Nothing is released, and no budget is charged.

    Parameters
    ----------
    query
        A query of a private frame, with or without private rows of its own (they are not touched), or a private
        expression (without `over`). For a cube it is the count in each cell, at the loss of that histogram. For a
        publication the result is another one, its *rehearsal*: see below.
    frame
        The public rows, with the columns that the query needs. For a publication, those of all queries, or a dict of
        them by their names.
    by
        For an expression, the columns to group by: the groups are those of the public frame. None: one group. Must be
        left out for a query of a private frame, which has its keys.
    losses
        Losses to try, above 0, each in the unit of the output's own loss: one person's whole loss to that output. None:
        the loss of each output.
    allow_private
        False refuses rows, and files, that the query itself protects: a mistake that shows true answers. True accepts
        them, if they are public or you may see them anyway. Then the result must not be passed on. Copies, such as the
        same file in another folder, are not recognised.

    Returns
    -------
    DataFrame
        One row per output, loss and group, in this order, groups in the order of the keys. The group's keys, then

        - `output` (String);
        - `true_answer`: the answer without noise and without contribution limits (the clipping bounds of a sum or a
          mean are part of the statistic), of several equally good ones the first. Null in a group without rows that
          count, like the four columns that follow, except for counts and sums, which are 0 there; of a first above a
          threshold, null if none reaches it;
        - `probability_true` (Float64): how probable an answer as good as the true one is; of value counts, that all of
          them are true; of a first above a threshold, that it is the true one; null for a mean, which hardly ever is;
        - `expected_error` (Float64) and `error_unit` (String): the mean of how wrong the private answer is. A quantile,
          a sum, a mean: how far it is from the true one, in "the column's unit", "days" (dates) or "seconds" (other
          times); a list of quantiles: the mean over its answers; a top k: the largest count missed. A count: in "rows"
          or "people"; value counts: the mean over their candidates. A mode: how many fewer have it. A first above a
          threshold: how far it is below, or one before it above, whichever is more. By weight: in "the weights' unit".
          An argmax: how much worse its "score" is. Gaps are left out: the law of their answers is the same.
        - `expected_rank_error` (Float64): how many rows or people a quantile (or each of a list) is off, on average;
          else null. It is of little use for a small group, as its few ranks are far apart.
        - `answer_5`, `answer_95`: the private answer is at least the one, and at most the other, with probability 0.95
          each. Quantiles (each of a list) and a first above a threshold have the order of the candidates, with null
          last. Numbers (each of value counts) have their own order. Modes and argmax are ordered from the worst answer
          to the best.
        - `counted`, `left_out` (Int64): how many rows or people count, and how many don't: the limits drop them or
          scale them away, or they are rows without a person, and each of these counts as one person. (In a mode that
          counts people, and in value counts, a person counts for each of their candidates.)
        - `selects`, `mechanism` (String), `loss` (Float64), `loss_unit` (String: "epsilon" or "rho");
        - `ordered` (Boolean): whether the answers are on a line, as for quantiles, counts, sums and means.

        `true_answer`, `answer_5` and `answer_95` have the answer's own type if all outputs have the same one, and are
        String otherwise.

        For a **publication** there is one row per statistic, with its errors on average over its groups. `query`,
        `output` (String), `groups` (Int64), the number of groups with rows, and `error_unit`; then, in this unit,

        - `size` (Float64): how many rows or people a group has, limits or not; null for keys;
        - `value`: the size of the true answer. For answers that are no numbers, the group's size; null if that is
          no number in the unit. For keys it is how many there are;
        - `noise`: the mean error that the noise makes, if the rows that limits keep were all;
        - `dropped`: the error without noise, from rows that limits drop or scale away;
        - `clipped`: how far clipping bounds move the true answer; null if values have none, or are no numbers;
        - `error`: that of noise and limits together, as `expected_error`, and `relative`: it over `value`.

        Keys have the unit "keys": their error is the number of keys that are not shown. Tables of a cube have a row
        each. Synthetic rows have none.

    Raises
    ------
    TypeError, ValueError
        If an argument is not as described, the query protects these very rows, or a key column has the name of another
        column of the result.

    Notes
    -----
    The laws are exact for the counted histogram: for choices to float64, for counts and sums to a few 1e-9, for a first
    above a threshold to about 1e-13, for means to about 1e-4, for variances to about 1e-3 of the error. Lists are drawn
    200 times instead: a mean is off by some 7 % of the standard deviation of one draw. If a person of the public frame
    has more rows or groups than the limits of the query, that person counts in part in numbers. For other outputs a
    random subset of the rows counts, as in a release: the result is for one such draw. `left_out` shows how much does
    not count. Errors are measured on all rows. It takes some 0.1 ms per choice, loss and group, and tenths of a second
    per variance.

    Examples
    --------
    >>> import dp_polars as dpp
    >>> last_year = pl.DataFrame(
    ...     {"ward": ["A"] * 50 + ["B"] * 6, "age": [30, 40, 50, 60, 70] * 11 + [30]}
    ... )
    >>> median = dpp.median("age", range(121), epsilon=1)
    >>> result = simulate(median, last_year, by="ward", losses=[0.2, 1])
    >>> shown = result.select("ward", "loss", "true_answer", "answer_5", "answer_95")
    >>> shown.filter(ward="A").rows()
    [('A', 0.2, 50, 35, 66), ('A', 1.0, 50, 50, 50)]
    """
    if isinstance(query, Publication):
        if by is not None or losses is not None:
            msg = (
                "by and losses must be left out for a publication: its queries have their keys and losses.\n\n"
                "Hint: simulate(publication.queries[name], frame, losses=[0.5, 1])."
            )
            raise ValueError(msg)
        return _rehearsed(query, query._tables(frame), allow_private=allow_private)
    frame = cast("pl.DataFrame | pl.LazyFrame", frame)
    if isinstance(query, PrivateQuery):
        if by is not None:
            msg = f"by must be left out for a query of a private frame, which has its keys, got {given(by)}."
            raise ValueError(msg)
        table = public_table("simulate", query, "frame", frame, allow_private=allow_private)
        keys, _, of_outputs = counted(query, table, each_alone=losses is not None)
        outputs = [one.simulated for one in of_outputs]
    elif isinstance(query, PrivateExpr):
        keys, outputs = of_expression(query, plan_of("frame", frame), by)
    else:
        msg = f"query must be a PrivateQuery, a publication or a PrivateExpr, got {type(query).__name__}."
        raise TypeError(msg)
    if clashes := sorted(set(keys.columns) & set(SIMULATED)):
        msg = f"keys must not be named like columns of the result, got {clashes}.\n\nHint: rename them first."
        raise ValueError(msg)
    tried, paid = None, query._protection.changed_parts if isinstance(query, PrivateQuery) else 1
    if losses is not None:
        tried = [positive_loss(f"losses[{i}]", value) / paid for i, value in enumerate(several("losses", losses))]
    parts = [law_at(output, claim) for output in outputs for claim in claims_of(output.query.claim, tried)]
    if paid > 1:  # of several disjoint parts
        parts = [part.with_columns(loss=paid * pl.col("loss")) for part in parts]
    if len({part["true_answer"].dtype for part in parts}) > 1:
        parts = [as_text(part) for part in parts]
    return pl.concat([pl.concat([keys, part], how="horizontal") for part in parts])


class _Rehearsed(NamedTuple):
    """The errors of one statistic of a publication, on average over its groups."""

    query: str
    output: str
    groups: int
    error_unit: str
    size: float | None
    value: float | None
    noise: float | None
    dropped: float | None
    clipped: float | None
    error: float | None


def _rehearsed(
    publication: Publication, tables: Mapping[str, pl.DataFrame | pl.LazyFrame], *, allow_private: bool
) -> pl.DataFrame:
    for query in publication.queries.values():
        query._request.refuse_open("simulate")
    rows: list[_Rehearsed] = []
    for name, query in publication.queries.items():
        if not isinstance(query, SyntheticQuery):
            table = public_table("simulate", query, "frame", tables[name], allow_private=allow_private)
            rows += _of_one(name, query, table)
    floats = dict.fromkeys(["size", "value", "noise", "dropped", "clipped", "error"], pl.Float64)
    schema = {"query": pl.String, "output": pl.String, "groups": pl.Int64, "error_unit": pl.String, **floats}
    value = pl.col("value")
    return pl.DataFrame(rows, schema, orient="row").with_columns(
        relative=pl.when(value > 0).then(pl.col("error") / value)
    )


def _of_one(name: str, query: PrivateQuery, table: pl.LazyFrame) -> Iterator[_Rehearsed]:
    request = query._request
    if isinstance(request, KeyRequest):
        yield _of_keys(name, request, table)
    elif isinstance(request, CubeRequest) and request.tables:
        yield from _of_tables(name, request, table)
    else:
        _, work, outputs = counted(query, table)
        rows = None if isinstance(request, PeopleRequest) else work.rows(table)
        for output in outputs:
            yield _of_output(name, output, rows, work)


def _of_output(name: str, output: Counted, rows: pl.LazyFrame | None, work: Work) -> _Rehearsed:
    claim, all_rows = output.query.claim, output.simulated
    law = all_rows.law(claim)
    noise = output.as_if_kept_were_all.law(claim)["expected_error"]
    dropped = all_rows.law(claim._with_loss(as_loss("loss", _NO_NOISE)))["expected_error"]
    has_truth = law["expected_error"].is_not_null()
    sizes = pl.Series(all_rows.counted + all_rows.left_out).cast(pl.Float64)
    values = _values(law["true_answer"])
    if values is None and all_rows.error_unit in ("rows", "people"):
        values = sizes
    moved = None if rows is None else _clipped(output, rows, work, law["true_answer"])
    of_groups = (sizes, values, noise, dropped, moved, law["expected_error"])
    means = [None if one is None else _mean(one.filter(has_truth)) for one in of_groups]
    return _Rehearsed(name, output.name, int(has_truth.sum()), all_rows.error_unit, *means)


def _mean(numbers: pl.Series) -> float | None:
    return cast("float | None", numbers.mean())


def _values(answers: pl.Series) -> pl.Series | None:
    """Return the sizes of answers; None if they are no numbers."""
    dtype: Any = answers.dtype
    if dtype.is_numeric():
        return answers.cast(pl.Float64).abs()
    if not isinstance(dtype, pl.List):
        return None
    inner: Any = dtype.inner
    if isinstance(inner, pl.Struct) and [field.name for field in inner.fields] == ["value", "count"]:
        return answers.list.eval(pl.element().struct.field("count").cast(pl.Float64).abs()).list.mean()
    return answers.list.eval(pl.element().cast(pl.Float64).abs()).list.mean() if inner.is_numeric() else None


def _clipped(output: Counted, rows: pl.LazyFrame, work: Work, true: pl.Series) -> pl.Series | None:
    """Return by how much clipping moves each group's answer, from all rows without noise; None if unknown."""
    query = output.query
    if not query.clips_values or not output.types or not output.types[0].is_numeric():
        return None
    place = next(place for place, one in enumerate(work.outputs) if one.name == output.name)
    column = work.specs[work.outputs[place].specs[0]].columns[0].cast(pl.Float64)
    if isinstance(query, (Quantile, QuantileList)):
        if not query.points.dtype.is_numeric():
            return None
        low, high = (float(cast("Any", end)) for end in ends_of(query.points))
        alphas = query.alphas if isinstance(query, QuantileList) else (query.alpha,)
        at = [column.quantile(float(alpha), "lower") for alpha in alphas]
        return _by_group(rows, work, pl.mean_horizontal((one - one.clip(low, high)).abs() for one in at))
    if isinstance(query, Variance):
        raw = column.var(query.ddof).sqrt() if query._is_root else column.var(query.ddof)
    elif isinstance(query, Mean):
        raw = column.mean()
    elif isinstance(query, Sum):
        raw = column.sum()
    else:
        return None
    return (_by_group(rows, work, raw) - true.cast(pl.Float64)).abs()


def _by_group(rows: pl.LazyFrame, work: Work, aggregate: pl.Expr) -> pl.Series:
    """Return an aggregate of the rows of each public group, in the order of the keys."""
    if not isinstance(work.keys, pl.DataFrame):
        return rows.select(aggregate.alias("")).collect().to_series()
    found = rows.group_by(work.keys.columns).agg(aggregate.alias("\0of")).collect()
    return work.keys.join(found, on=work.keys.columns, how="left", maintain_order="left")["\0of"]


def _of_keys(name: str, request: KeyRequest, table: pl.LazyFrame) -> _Rehearsed:
    """Return the number of missing keys."""
    engine, every = PolarsEngine.of(table), PolarsEngine.of(table)
    work = request.bind(engine)
    keep_parts(request, engine, PartChoice())
    keep_parts(_in_all_parts(request), every, PartChoice())
    _, limited = engine.prepare_people_by_key(work)()
    _, people = every.prepare_people_by_key(replace(work, most=_ALL_KEYS))()
    noise, error = (len(people) - float(work.statistic.selection.chances(of).sum()) for of in (people, limited))
    numbers = (None, float(len(people)), noise, error - noise, None, error)
    return _Rehearsed(name, request.asks[0].name, 1, "keys", *numbers)


def _in_all_parts(request: KeyRequest) -> KeyRequest:
    """Return a request in which a person counts in all disjoint parts, if it has parts."""
    protection = request.protection
    if protection.parts is None:
        return request
    parts = replace(protection.parts, most=protection.parts.number)
    return replace(request, pipeline=replace(request.pipeline, protection=replace(protection, parts=parts)))


def _of_tables(name: str, request: CubeRequest, table: pl.LazyFrame) -> Iterator[_Rehearsed]:
    """Yield the error of each table of a cube, by the variance of its cells: as if they were normal."""
    plan, engine = request.plan, PolarsEngine.of(table)
    work = request.bind(engine)
    (cells,) = engine.prepare_histograms(work)()
    bounded = sums_of(cells.codes, cells.weights, plan.sizes, plan.tables)
    values, unit = cast("Product", work.keys).values, request.counts(request.asks[0].query)
    rows = work.rows(table).filter(pl.col(one.name).is_in(one.implode()) for one in values)
    number = pl.struct(work.privacy_unit).n_unique() if unit == "people" and work.privacy_unit else pl.len()
    for axes in plan.tables:
        by = [values[axis] for axis in axes]
        names = [one.name for one in by]
        if by:
            found = rows.group_by(names).agg(number.alias("\0of")).collect()
            listed = product(by).join(found, on=names, how="left", maintain_order="left")
            truly: Floats = listed["\0of"].fill_null(0).to_numpy().astype(np.float64)
        else:
            truly = np.array([rows.select(number).collect().item()], np.float64)
        bias, deviation = np.abs(bounded[axes].ravel() - truly), math.sqrt(plan.variance(axes))
        noise = deviation * math.sqrt(2 / math.pi)
        folded = [
            noise * math.exp(-((one / deviation) ** 2) / 2) + one * math.erf(one / (deviation * math.sqrt(2)))
            for one in bias.tolist()
        ]
        value = float(truly.mean())
        numbers = (value, value, noise, float(bias.mean()), None, math.fsum(folded) / len(folded))
        yield _Rehearsed(name, name_of(values, axes), len(truly), unit, *numbers)
