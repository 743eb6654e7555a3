"""A query on public or synthetic rows: the exact law of its answers."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import cast

import numpy as np
import polars as pl

from dp_polars._accounting.claims import NO_LOSS, Claim
from dp_polars._base import column_types
from dp_polars._base.numbers import Ints, given, kind_of_frame, owners
from dp_polars._bins.candidates import distance_unit
from dp_polars._engines.polars.engine import PolarsEngine
from dp_polars._engines.polars.rows import is_a_person
from dp_polars._expressions.expression import PrivateExpr, refuse_of_frames, refuse_several
from dp_polars._frames.cube_query import CubeRequest
from dp_polars._frames.query import PrivateQuery
from dp_polars._mechanisms.histograms import Histogram
from dp_polars._mechanisms.person_weights import UNIT_BITS, rounded
from dp_polars._release.contract import PartChoice, Work
from dp_polars._release.protection import Limits
from dp_polars._release.release import keep_parts, with_found
from dp_polars._release.request import Request
from dp_polars._release.staged import StagedRequest, refuse_unknown_limits
from dp_polars._sources.marks import all_places
from dp_polars._sources.views import sources_read
from dp_polars._statistics.averages import Average
from dp_polars._statistics.categories import Choice, NoCandidate, Quantile
from dp_polars._statistics.extremes import ArgMax, ArgMaxOfOwn, FirstAbove
from dp_polars._statistics.measures import Total, ValueCounts, totals_of
from dp_polars._statistics.of_shared_draws import Combined
from dp_polars._statistics.statistic import Columns, CountRule, HistogramQuery, ListQuery, Query
from dp_polars.analysis import _simulated
from dp_polars.analysis._simulated import Histograms, Law


def refuse_own_rows(call: str, query: PrivateQuery, table: pl.LazyFrame) -> None:
    """Raise for rows, or files, that the query protects: the result would show them. Copies are not recognised."""
    protected = set() if query._source is None else {*_marks(query._source)}
    if not protected.isdisjoint(_marks(table)):
        msg = (
            f"{call} must be given public or synthetic rows, got the very ones that the query protects. The result is "
            "not private: it shows true answers, or follows from them without noise.\n\n"
            "Hint: give last year's published rows, or analysis.synthetic(schema, people=…, rows=…). Where the rows "
            "are public themselves, or the result is for those alone who may see the rows: allow_private=True."
        )
        raise ValueError(msg)


def _marks(frame: pl.LazyFrame) -> Iterator[Hashable]:
    """Yield keys that identify a plan's sources: places of columns in memory, paths of files, datasets."""
    try:
        for files, of in sources_read(frame):
            if of is None:
                yield from (path if "://" in path else os.path.realpath(path) for path in files)
            elif not callable(of):
                yield from all_places(of) if isinstance(of, pl.DataFrame) else [id(of)]
    except ValueError:  # `protect` accepts no plan that Polars can't show
        return


# The columns of the result, after the keys.
SIMULATED = [
    "output",
    "true_answer",
    "probability_true",
    "expected_error",
    "error_unit",
    "expected_rank_error",
    "answer_5",
    "answer_95",
    "counted",
    "left_out",
    "selects",
    "mechanism",
    "loss",
    "loss_unit",
    "ordered",
]
# A person for each row without one.
_EACH = "\0person"
_ANSWERS = ("true_answer", "answer_5", "answer_95")


@dataclass(frozen=True)
class Simulated:
    """One output of a query on given rows: `law` maps a claim to the quality of each group's answer."""

    name: str
    query: Query
    error_unit: str
    counted: Ints
    left_out: Ints
    law: Law


def public_table(
    call: str, query: PrivateQuery, name: str, frame: pl.DataFrame | pl.LazyFrame, *, allow_private: bool
) -> pl.LazyFrame:
    table = plan_of(name, frame)
    if not allow_private:
        refuse_own_rows(call, query, table)
    return table


def plan_of(name: str, frame: object) -> pl.LazyFrame:
    if not isinstance(frame, (pl.DataFrame, pl.LazyFrame)):
        msg = f"{name} must be a DataFrame or a LazyFrame, got {kind_of_frame(frame)}"
        raise TypeError(msg)
    return frame.lazy()


def several(name: str, values: object) -> list[object]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        msg = f"{name} must be a list of numbers, got {given(values)}."
        raise TypeError(msg)
    listed = list(values)
    if not listed:
        msg = f"{name} must not be empty."
        raise ValueError(msg)
    return listed


def claims_of(asked: Claim, losses: list[Fraction] | None) -> list[Claim]:
    if losses is not None:
        return [asked._with_loss(value) for value in losses]  # the rate follows
    if asked._is_open:
        msg = f"simulate: {NO_LOSS} Or simulate(…, losses=[0.5, 1, 2])."
        raise ValueError(msg)
    return [asked]


@dataclass(frozen=True)
class Counted:
    """The counts for one output of a query on given rows; the last histograms count rows or people."""

    name: str
    query: HistogramQuery
    types: Columns
    unit: str
    parts: list[Histograms]
    bits: list[int]  # in how many parts units of the counted rows are divided

    @property
    def simulated(self) -> Simulated:
        return _output(self.name, self.query, self.types, self.unit, self.parts, self.bits)

    @property
    def as_if_kept_were_all(self) -> Simulated:
        """The output if the rows that the limits keep were all rows: its errors come from noise only."""
        whole = [_in_whole(one, bit).bounded for one, bit in zip(self.parts, self.bits, strict=True)]
        parts = [one._replace(everything=part) for one, part in zip(self.parts, whole, strict=True)]
        return replace(self, parts=parts).simulated


def counted(
    query: PrivateQuery, table: pl.LazyFrame, *, each_alone: bool = False
) -> tuple[pl.DataFrame, Work, list[Counted]]:
    """Return the public keys, the work and the counts for each output; `each_alone`: no output shares sums."""
    # The rows are public, so their plan is not checked.
    engine = PolarsEngine.of(table)
    request, choice = answers_of(query), PartChoice()
    if isinstance(request, StagedRequest) and not request.is_settled:  # its limits are drawn on these rows, once
        request.refuse_open("query")
        of_parts = PolarsEngine.of(table)
        keep_parts(request, of_parts, choice)
        request = cast("Request", with_found(request, of_parts))
        if isinstance(request.keys, pl.DataFrame) and request.keys.is_empty():
            msg = (
                "query must select a group on these rows, got none: no group has enough people.\n\n"
                'Hint: give more rows, or list the groups, as in group_by({"ward": ["A", "B"]}).'
            )
            raise ValueError(msg)
        if names := [ask.name for ask in request.asks if isinstance(ask.query, NoCandidate)]:
            msg = (
                f"query must select a candidate of {', '.join(names)} on these rows, got none: no value has enough "
                'people.\n\nHint: give more rows, or list the candidates, as in mode(["a", "b"]).'
            )
            raise ValueError(msg)
    if each_alone:
        request = request.alone
    work, wanted = request.bind(engine), []
    for output in work.outputs:
        specs = [work.specs[n] for n in output.specs]  # for the same rows with other weights
        pieces = _also_counting([spec.rule for spec in specs])
        bits = [*(spec.bits for spec in specs), UNIT_BITS if specs[0].weight is not None else 0]
        wanted.append([replace(specs[0], rule=piece, bits=bit) for piece, bit in zip(pieces, bits, strict=False)])
    work = replace(work, specs=tuple(spec for specs in wanted for spec in specs))
    everything = iter(_unbounded(engine, work))
    keep_parts(request, engine, choice)
    bounded = iter(engine.prepare_histograms(work)())
    outputs = []
    for output, specs in zip(work.outputs, wanted, strict=True):
        unit = request.counts(output.query)
        parts = [Histograms(next(everything), next(bounded)) for _ in specs]
        outputs.append(Counted(output.name, output.query, output.types, unit, parts, [spec.bits for spec in specs]))
    return work.keys if isinstance(work.keys, pl.DataFrame) else pl.DataFrame(), work, outputs


def _in_whole(histograms: Histograms, bits: int) -> Histograms:
    """Return histograms in whole units; the counted rows are given in parts."""
    bounded = histograms.bounded
    return histograms._replace(bounded=replace(bounded, weights=rounded(bounded.weights, bits)))


def request_of(query: PrivateQuery) -> Request:
    """Return the outputs of a query as `answers_of` does; raise if its limits are still to be found."""
    request = answers_of(query)
    refuse_unknown_limits(request, "query")
    return request


def answers_of(query: PrivateQuery) -> Request:
    """Return the outputs of a query, for a cube the count in each cell; raise for keys."""
    if not isinstance(query._request, Request):
        msg = (
            "query must be one for answers, got one for keys: which of them are shown depends on their people.\n\n"
            "Hint: query.explain() says from how many people on a key is shown."
        )
        raise TypeError(msg)
    return query._request.cells if isinstance(query._request, CubeRequest) else query._request


def _also_counting(rules: Sequence[CountRule]) -> list[CountRule]:
    """Return the rules of an output, and one that counts rows or people if all others have weights."""
    if any(rule.row_weight is None for rule in rules):
        return [*rules]
    return [*rules, CountRule(rules[0].binning)]


def _unbounded(engine: PolarsEngine, work: Work) -> list[Histogram]:
    """Return the histograms of all rows. Each row without a person counts as one more person."""
    specs = tuple(replace(spec, limits=Limits(), weight=None, bits=0) for spec in work.specs)
    histograms = engine.prepare_histograms(replace(work, specs=specs))()
    if (unit := work.privacy_unit) is None:
        return histograms

    def of_nobody(*tables: pl.LazyFrame) -> pl.LazyFrame:
        rows = work.rows(*tables)
        return rows.filter(~is_a_person(unit, rows.collect_schema())).with_row_index(_EACH)

    others = engine.prepare_histograms(replace(work, privacy_unit=(_EACH,), specs=specs, rows=of_nobody))()
    return [_added(a, b, spec.binning.size) for a, b, spec in zip(histograms, others, work.specs, strict=True)]


def _added(one: Histogram, other: Histogram, size: int) -> Histogram:
    order = np.argsort(np.append(owners(one.sizes), owners(other.sizes)), kind="stable")
    codes, weights = np.append(one.codes, other.codes)[order], np.append(one.weights, other.weights)[order]
    return Histogram.of_rows(codes, weights, one.sizes + other.sizes, size)


def of_expression(
    expr: PrivateExpr, rows: pl.LazyFrame, by: str | Sequence[str] | None
) -> tuple[pl.DataFrame, list[Simulated]]:
    if expr.columns is None:
        msg = "query must not be an expression with over.\n\nHint: leave over out and give its columns as by."
        raise ValueError(msg)
    refuse_several(expr)
    query, name = expr.query, expr.meta.output_name()
    if query.needs_people:
        msg = f"query must be one of a private frame with a privacy unit, for a {query}."
        raise ValueError(msg)
    refuse_of_frames(expr.within)
    # A count of rows reads no column, so any column is right.
    read = expr.columns or (pl.int_range(pl.len()),)
    names = [f"\0{i}" for i in range(len(read))]
    lists = [column.implode().alias(name) for column, name in zip(read, names, strict=True)]
    grouped = (rows.select(lists) if by is None else rows.group_by(by, maintain_order=True).agg(lists)).collect()
    keys, columns = grouped.drop(names), [grouped[name].explode(empty_as_null=False) for name in names]
    lengths, values = grouped[names[0]].list.len().to_numpy().astype(np.int64), columns[0]
    types = tuple(column.dtype for column in columns) if expr.columns else ()
    query.answer_type(*types)
    if isinstance(query, (ArgMax, ArgMaxOfOwn)):
        if isinstance(query, ArgMaxOfOwn):
            blocks_at, unit = _simulated.of_own_sensitivities(values, columns[1], lengths, query.lowest), Fraction(1)
        else:
            blocks_at = _simulated.of_scores(values, lengths, query.lowest)
            unit = column_types.tick(values.dtype) or Fraction(1)
        some = blocks_at(query.claim)
        counted = some.sizes * some.has_truth
        return keys, [Simulated(name, query, "score", counted, np.zeros_like(counted), _law_of(blocks_at, unit))]
    if not isinstance(query, HistogramQuery):
        raise no_law(query)
    parts = []
    for rule in _also_counting(query.count_rules(*types)):
        histogram = Histogram.of_rows(*rule.of_rows(columns), lengths, rule.binning.size)
        parts.append(Histograms(histogram, histogram))
    return keys, [_output(name, query, types, "rows", parts, [0] * len(parts))]


def _output(
    name: str, query: HistogramQuery, types: Columns, unit: str, in_parts: list[Histograms], bits: list[int]
) -> Simulated:
    """Return the output from its histograms, in parts if people count in part; the last one counts rows or people."""
    parts = [_in_whole(one, bit) for one, bit in zip(in_parts, bits, strict=True)]
    scored, counts = parts[0], parts[-1]
    unit = query.error_unit or unit
    if isinstance(query, Choice):
        unit = distance_unit(query.points.dtype)[0] if isinstance(query, Quantile) else unit
        blocks = _simulated.of_histograms(query, types, scored)
        law = _law_of(lambda _: blocks, query.step(*types))
    elif isinstance(query, FirstAbove):
        law = _simulated.law_of_first_above(query, types, scored)
    elif isinstance(query, ListQuery):
        unit, law = query.distance_unit or unit, _simulated.law_of_lists(query, types, *scored)
    elif isinstance(query, ValueCounts):
        law = _simulated.law_of_numbers(query, types, *(query.counts_of(histogram, *types) for histogram in scored))
    elif isinstance(query, Total):
        number = len(query.changes())
        truly, bounded = ([totals_of(one) for one in side] for side in zip(*parts[:number], strict=True))
        if isinstance(query, (Average, Combined)):
            weighed = zip(in_parts[:number], bits, strict=False)
            bounded = [np.ldexp(totals_of(one.bounded), -bit) for one, bit in weighed]
        law = _simulated.law_of_total(query, types, truly, bounded)
    else:
        raise no_law(query)
    counted = counts.bounded.totals
    return Simulated(name, query, unit, counted, counts.everything.totals - counted, law)


def no_law(query: Query) -> TypeError:
    return TypeError(f"query must be of choices, counts, sums and means, got a {query}.")


def _law_of(blocks_at: Callable[[Claim], _simulated.AnswerBlocks], unit: Fraction) -> Law:
    """Return a function from a claim to the law of a choice; a score of one is a unit."""
    return lambda claim: blocks_at(claim).law(claim._rate_in(unit), claim.mechanism)


def law_at(output: Simulated, claim: Claim) -> pl.DataFrame:
    law = output.law(claim)
    if "expected_rank_error" not in law.columns:
        law = law.with_columns(expected_rank_error=pl.lit(None, pl.Float64))
    return law.with_columns(
        output=pl.lit(output.name),
        error_unit=pl.lit(output.error_unit),
        counted=pl.Series(output.counted),
        left_out=pl.Series(output.left_out),
        selects=pl.lit(str(output.query)),
        mechanism=pl.lit(claim.mechanism),
        loss=pl.lit(column_types.float_of(claim.loss.value)),
        loss_unit=pl.lit(claim.loss.unit),
        ordered=pl.lit(output.query.is_ordered),
    ).select(SIMULATED)


def as_text(part: pl.DataFrame) -> pl.DataFrame:
    dtype, one = part["true_answer"].dtype, pl.element().cast(pl.String)
    if not isinstance(dtype, pl.List):
        return part.with_columns(pl.col(_ANSWERS).cast(pl.String))
    if isinstance(dtype.inner, pl.Struct):
        one = pl.format("{}: {}", pl.element().struct.field("value"), pl.element().struct.field("count"))
    return part.with_columns(pl.col(name).list.eval(one).list.join(", ") for name in _ANSWERS)
