"""The planner's page: parts of it in HTML, with every text escaped."""

from __future__ import annotations

import html
import math
from typing import TYPE_CHECKING, Any
from zlib import crc32

import polars as pl

from dp_polars._accounting.claims import in_words
from dp_polars._base.column_types import family
from dp_polars._base.numbers import as_fraction, plural, show
from dp_polars._publish.plan import (
    at_known_limits,
    dropped_by_limits,
    field_of,
    short,
    title_of,
    values_field_of,
)
from dp_polars._publish.schema import MORE, Statistic
from dp_polars._release.found import THE_GROUPS
from dp_polars.analysis import best_by_gap, error_by_size, size_needed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import altair as alt

    from dp_polars._frames.publication import Publication
    from dp_polars._frames.query import PrivateQuery
    from dp_polars._publish.plan import Draft, Plan
    from dp_polars.plot._charts import Look


BOUNDS = [1, 2, 3, 4, 5, 7, 10, 15, 20, 30, 50]
# Lines that one figure can tell apart, and its width in pixels: with axes two fit next to each other.
_MOST_LINES, _WIDTH = 6, 215
_ALONE = (450, 200)  # the width and height of a figure that has no other one next to it
_SIZES = [factor * 10**power for power in range(1, 5) for factor in (1, 2, 5)] + [10**5]
_SURE = 0.95
_IN_ITS_UNIT = ("mean", "sum", "share", "var", "std")  # statistics whose errors are neither people nor rows

STYLE = """
.dp-planner { --line: #8884; font-size: .95rem; line-height: 1.45; overflow-wrap: break-word; max-width: 1240px;
  margin: 0 auto; display: grid; grid-template-columns: minmax(0, 25rem) minmax(0, 1fr); gap: 1rem 1.5rem; }
.dp-planner header { grid-column: 1 / -1; }
.dp-planner .dp-title { font-size: 1.5rem; line-height: 1.2; margin-bottom: .2rem; font-weight: 700; }
.dp-planner .dp-head { font-size: 1.02rem; margin-bottom: .35rem; font-weight: 650; }
.dp-planner .dp-head b { color: #0072B2; margin-right: .35rem; }
.dp-planner p { margin: .2rem 0 .4rem; }
.dp-planner .dp-quiet { color: #5a6270; font-size: .86rem; }
.dp-planner section { border: 1px solid var(--line); border-radius: .5rem; padding: .8rem .9rem; margin-bottom: .8rem; }
.dp-planner .dp-field { display: block; margin: .55rem 0 .2rem; }
.dp-planner .dp-field:focus-within, .dp-planner marimo-switch:focus-within { outline: 2px solid #0072B2;
  outline-offset: 2px; border-radius: .2rem; }
.dp-planner marimo-slider { overflow-wrap: normal; word-break: keep-all; }
.dp-planner .dp-name { font-weight: 600; font-size: .88rem; display: block; margin-bottom: .1rem; }
.dp-planner .dp-wrong { border-left: 3px solid #D55E00; background: #D55E0014; padding: .3rem .6rem;
  margin: .25rem 0 .5rem; white-space: pre-line; font-size: .86rem; overflow-wrap: anywhere; }
.dp-planner .dp-scroll { overflow-x: auto; }
.dp-planner header .dp-scroll { max-height: 20rem; }
.dp-planner header td:last-child { overflow-wrap: anywhere; }
.dp-planner table { border-collapse: collapse; width: 100%; font-size: .86rem; }
.dp-planner th, .dp-planner td { text-align: right; padding: .25rem .35rem; border-bottom: 1px solid var(--line); }
.dp-planner th:first-child, .dp-planner td:first-child { text-align: left; overflow-wrap: anywhere; min-width: 5rem; }
.dp-planner th { font-weight: 600; vertical-align: bottom; }
.dp-planner .dp-cost { display: flex; flex-wrap: wrap; gap: .2rem 1rem; align-items: baseline; }
.dp-planner .dp-cost strong { font-size: 1.4rem; }
.dp-planner .dp-figures { display: flex; flex-wrap: wrap; gap: .8rem 1rem; }
.dp-planner figure { margin: 0; background: white; color: black; max-width: 100%; width: 19rem; flex: 1 1 16rem; }
.dp-planner figcaption { font-weight: 600; font-size: .88rem; margin-bottom: .3rem; }
.dp-planner figure svg { display: block; max-width: 100%; height: auto; }
.dp-planner mark { background: #F0E442; color: black; padding: 0 .2rem; }
.dp-planner summary { cursor: pointer; font-weight: 600; }
.dp-planner pre { white-space: pre; overflow-x: auto; font-size: .78rem !important; margin: .3rem 0; }
.dp-planner .dp-statement { font-size: .86rem; margin: .6rem 0 0; max-height: 30rem; overflow: auto; }
.dp-planner .dp-part { font-size: 1rem; font-weight: 650; margin-top: .8rem; }
.dp-planner .dp-statement dt { font-weight: 600; margin-top: .5rem; }
.dp-planner .dp-statement dd { margin-left: .8rem; }
.dp-planner .dp-bar { display: none; }
@media (min-width: 901px) {
  .dp-planner .dp-seen { position: sticky; top: 0; align-self: start; max-height: 100vh; overflow-y: auto; }
}
@media (max-width: 900px) {
  .dp-planner { grid-template-columns: minmax(0, 1fr); gap: 0; }
  .dp-planner .dp-bar { display: block; position: sticky; bottom: 0; background: #0072B2; color: white; z-index: 2;
    padding: .35rem .8rem; border-radius: .5rem .5rem 0 0; font-weight: 600; }
}
@media (max-width: 500px) {
  .dp-planner section { padding: .7rem .6rem; }
  .dp-planner .dp-wide { display: none; }
}
"""


def shown(name: str) -> str:
    """Return a name as readers see it: quoted where signs of it can't be seen."""
    return name if name.isprintable() and name == name.strip(" '\"") != "" else repr(name)


def heading(text: str, number: int | None = None) -> str:
    """Return the heading of a section: no element of headings, which the notebook would list at its side."""
    before = "" if number is None else f"<b>{number}</b>"
    return f'<div class="dp-head" role="heading" aria-level="2">{before}{html.escape(text)}</div>'


def section(title: str, *parts: str, number: int | None = None, hidden: bool = False) -> str:
    return f"<section{' hidden' * hidden}>{heading(title, number)}{''.join(parts)}</section>"


def quiet(text: str) -> str:
    return f'<p class="dp-quiet">{html.escape(text)}</p>'


def _note(text: str) -> str:
    return f'<div class="dp-quiet">{html.escape(text)}</div>' if text else ""


def message(messages: Mapping[str, str], *fields: str) -> str:
    return "".join(
        f'<div class="dp-wrong" role="alert">{html.escape(messages[name])}</div>' for name in fields if name in messages
    )


def fielded(name: str, element: object, wrong: str = "", note: str = "") -> str:
    """Return a field with its name above it, and with what is wrong below.

    It has a tag of its own: drawn in the place of another one, it would keep what that one showed.
    """
    drawn = f"{element}"
    tag = f"dp-{crc32(drawn.encode()):08x}"
    above, below = f'<span class="dp-name">{html.escape(name)}</span>', f"{_note(note)}{wrong}"
    return f'<{tag} class="dp-field">{above}{drawn}{below}</{tag}>'


def each_fielded(before: str, kind: str, fields: Mapping[str, object], wrong: Mapping[str, str]) -> Iterator[str]:
    for name, field in fields.items():
        yield fielded(f"{before} {shown(name)}", field, message(wrong, f"{kind} {name}"))


def further_fielded(fields: Mapping[str, object], wrong: Mapping[str, str]) -> Iterator[str]:
    for name, field in fields.items():
        kind, _, column = name.partition(" ")
        yield fielded(f"{MORE[kind].title} {shown(column)}", field, message(wrong, name))


def shares(plan: Plan, drafted: Draft, fields: Mapping[Statistic, object]) -> Iterator[str]:
    found = {one["output"]: one for one in drafted.explained}
    for name, statistic in plan.named().items():
        wanted = plan.statistics[statistic]
        of_rows = dict.fromkeys(("median", "quantile", "len"), " rows")
        has_weights = plan.more.get(f"weights {statistic.column}", "").strip() and statistic.ask in MORE["weights"].asks
        unit = "" if statistic.ask in _IN_ITS_UNIT or has_weights else of_rows.get(statistic.ask, " people")
        what = f"{wanted:g} part{'s' * (wanted != 1)}"
        if plan.by_error:
            what = f"ε = {wanted:g}" if statistic.ask == "first_above" else f"off by at most {wanted:,g}{unit}"
        note = "not requested yet"
        if name in found:
            cost = found[name]
            note = f"costs ε = {_number(cost['epsilon'])}" if plan.by_error else f"error: {_error(cost)}"
        if values_field_of(statistic) in drafted.messages and name not in found:
            of = name if statistic.column is None else statistic.column
            note = f"not requested yet: see the public values of {shown(of)}"
        yield fielded(f"{shown(name)}: {what}", fields[statistic], message(drafted.messages, field_of(statistic)), note)


def _error(output: Mapping[str, Any]) -> str:
    if output["error_95"] is None:
        return "by size"
    unit = "" if output["error_unit"] == "the column's unit" else f" {output['error_unit']}"
    return f"± {_number(output['error_95'])}{unit}"


def may_group(dtype: pl.DataType) -> bool:
    return family(dtype) not in (None, "duration")


def example_of_keys(dtype: pl.DataType) -> str:
    if dtype == pl.Date:
        return "public values, one a line; or 2026-01..2026-12, the first days of months"
    return "public values, one a line; or 1..12"


def example(dtype: pl.DataType) -> tuple[str, int | None]:
    if dtype == pl.Time:
        return "one time a line", None
    if dtype.is_temporal():
        return "for example 2026-01-01..2026-12-31", None
    if dtype.is_integer():
        return "for example 0..120; or values, one a line", 1
    return ("for example 0..120, or 0..30 by 0.5", None) if dtype.is_numeric() else ("public values, one a line", 4)


def columns(schema: pl.Schema) -> str:
    rows = "".join(
        f"<tr><td>{html.escape(shown(name))}</td><td>{html.escape(str(dtype))}</td></tr>"
        for name, dtype in schema.items()
    )
    number = plural(len(schema), "column")
    return f'<details><summary>{number}</summary><div class="dp-scroll"><table>{rows}</table></div></details>'


def guaranteed_by(plan: Plan) -> str:
    return f"ε = {short(plan.epsilon)}, δ = {short(plan.delta)}"


def costs(plan: Plan, drafted: Draft, query: PrivateQuery) -> str:
    taken = query._request.taken
    claims = query._request.claims if drafted.publication is None else drafted.publication._claims()
    why = f"These errors cost {in_words(claims)} of it." if taken is None else taken.words
    return (
        f'<div class="dp-cost"><strong>{guaranteed_by(plan)}</strong></div>'
        '<p class="dp-quiet">This is what all answers together guarantee to each person: the smaller, the better '
        f"protected.</p>{quiet(why)}{message(drafted.messages, 'cost')}"
    )


def outputs(drafted: Draft, query: PrivateQuery, relative: float) -> str:
    needed = size_needed(at_known_limits(query), relative)
    explained, rows = drafted.explained if query is drafted.query else query.explain().rows(named=True), []
    selection = "".join(quiet(f"Groups: {one['note']}") for one in explained if one["output"] == THE_GROUPS)
    explained = [one for one in explained if one["output"] in needed["output"]]  # and not what is found before
    for one, size in zip(explained, needed.iter_rows(named=True), strict=True):
        least = "?" if size["size"] is None else f"{size['size']:,} {size['size_unit']}"
        epsilon = "–" if one["epsilon"] is None else _number(one["epsilon"])
        cells = [f"<td>{html.escape(cell)}</td>" for cell in (shown(one["output"]), least, _error(one), epsilon)]
        rows.append(f'<tr>{"".join(cells)}<td class="dp-wide">{_number(one["rho"])}</td></tr>')
    head = "<th>output</th><th>a group must have</th><th>error</th><th>ε</th><th class='dp-wide'>ρ</th>"
    body = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    return f'<div class="dp-scroll">{body}</div>{selection}'


def tables(drafted: Draft, relative: float) -> Iterator[str]:
    queries = {} if drafted.publication is None else drafted.publication.queries
    for name, query in queries.items():
        yield f'<div class="dp-part">{html.escape(shown(name))}</div>' * (len(queries) > 1)
        yield outputs(drafted, query, relative)


def figures(drafted: Draft) -> Iterator[str]:
    if drafted.query is None:
        return
    from dp_polars import plot  # what draws takes long to load: the page is there before

    query = at_known_limits(drafted.query)
    errors = _first(error_by_size(query, _SIZES))
    modes = [row for row in drafted.explained if row["selects"].startswith("mode of")]
    if errors["relative"].count():
        look: Look = {"width": _WIDTH} if modes else {"width": _ALONE[0], "height": _ALONE[1]}
        yield figure("How far off, by the size of a group", plot.error_by_size(errors, **look))
    if modes:
        step = math.ceil(max(row["error_95"] or 1 for row in modes) / 20)
        gaps = _first(best_by_gap(query, range(0, 41 * step, step)))
        sure = gaps.filter(pl.col("probability") >= _SURE).group_by("output", maintain_order=True).first()
        said = [
            f"{one['output']} is right in 95 % of releases with a gap of {one['gap']:,.0f} {one['gap_unit']}."
            for one in sure.rows(named=True)
        ]
        yield figure("Is the top one right? By its gap", plot.best_by_gap(gaps, width=_WIDTH), " ".join(said))


def _first(frame: pl.DataFrame) -> pl.DataFrame:
    first = frame.filter(pl.col("output").is_in(frame["output"].unique(maintain_order=True)[:_MOST_LINES].to_list()))
    return first.with_columns(pl.Series("output", map(shown, first["output"]), pl.String))


def figure(title: str, chart: alt.LayerChart | alt.VConcatChart, note: str = "") -> str:
    from dp_polars.plot._charts import svg_of

    return f"<figure><figcaption>{html.escape(title)}</figcaption>{svg_of(chart)}{_note(note)}</figure>"


def dropped(plan: Plan, drafted: Draft, rows_each: float, skew: float) -> str:
    if plan.unit is None:
        return quiet("Each person has one row here: no row is dropped.")
    if plan.finds_limits:
        return quiet(
            "A few percent of the guarantee find how much of a person should count, in the rows themselves. Errors are "
            "shown at limits of 5; the release says which ones it found, and how many people have more."
        )
    if "unit" in drafted.messages:
        return quiet("No synthetic people can be made: see the column that tells people apart.")
    most = 1 if drafted.query is None else drafted.query._request.groups
    chosen = plan.max_groups if plan.keys else None
    tried = [None] if chosen is None else sorted({chosen, *(groups for groups in (1, 2, 3, 5) if groups <= most)})
    try:
        frame = dropped_by_limits(
            plan, people=1000, rows_each=rows_each, skew=skew, max_groups=tried, max_rows_per_group=BOUNDS
        )
    except (TypeError, ValueError) as error:
        return quiet(f"No synthetic people can be made: {error}")
    at_limits = pl.col("max_groups").eq_missing(chosen) & (pl.col("max_rows_per_group") == plan.max_rows_per_group)
    rows, people = frame.filter(at_limits).select("rows_dropped", "people_cut").row(0)
    from dp_polars import plot

    said = f"At your limits: {rows:.0%} of these rows are dropped, and {people:.0%} of these people lose some."
    return figure("Rows of synthetic people that the limits drop", plot.rows_dropped(frame, width=_WIDTH), said)


def seen(plan: Plan, drafted: Draft, relative: Any, code: str, figures: str) -> str:  # noqa: ANN401
    query = drafted.query
    if query is None or drafted.publication is None:
        return section("There is no query yet", "<p>The messages at the fields say why.</p>")
    several = len(drafted.publication.queries) > 1
    parts = [
        section("Guarantee", costs(plan, drafted, query)),
        section(
            "How many people must a group have?",
            fielded(f"For an error of at most {relative.value} %", relative),
            quiet(
                "That is of the largest answer such a group may have: for counts its size, "
                "for a mean the distance between its ends."
            ),
            *tables(drafted, relative.value / 100),
        ),
        section("How good is it?", f'<div class="dp-figures">{figures}</div>'),
        section("The code", quiet("It runs unchanged."), code)
        if drafted.code
        else section("There is no code yet", quiet("The guarantee is too small for these errors.")),
        section(
            "The statement",
            "<details><summary>A draft, with what is missing</summary>",
            statement(drafted.publication if several else query, f"Answers from {title_of(plan)}"),
            "</details>",
        ),
    ]
    return "".join(parts)


def whole(plan: Plan, drafted: Draft, fields: list[str], seen: str) -> str:
    read = "Only the names and types of its columns were read, and no row." if plan.file else "No file was read."
    return (
        f"<style>{STYLE}</style><div class='dp-planner'><header>"
        "<div class='dp-title' role='heading' aria-level='1'>Plan a private release</div>"
        f"<p>Of <strong>{html.escape(title_of(plan))}</strong>. {read}</p>"
        f"{columns(plan.schema)}</header><div>{''.join(fields)}</div><div class='dp-seen'>{seen}</div>"
        f"<div class='dp-bar'>{'no query yet' if drafted.query is None else guaranteed_by(plan)}</div></div>"
    )


def statement(query: PrivateQuery | Publication, title: str) -> str:
    drafted = query.statement(name=title).to_html()
    for level in ("2", "3"):  # no elements of headings: see `heading`
        plain = f'<div role="heading" aria-level="{level}" class="dp-part">'
        drafted = drafted.replace(f"<h{level}>", plain).replace(f"</h{level}>", "</div>")
    return drafted.replace("TO BE STATED", "<mark>TO BE STATED</mark>")


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else show(as_fraction("number", value), 4, up=True)
