"""A page about a release for readers who never heard of differential privacy."""

from __future__ import annotations

import html
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack, cast

import polars as pl

from dp_polars._base.calls import called
from dp_polars._base.column_types import frame_of_arrow
from dp_polars._base.files import expanded, replacing
from dp_polars._base.labels import Labels, texts
from dp_polars._base.numbers import Number, given, one_of, plural, show
from dp_polars._frames.cube import COUNT, Cube
from dp_polars._frames.cube_query import CubeQuery
from dp_polars._frames.cube_query import tables_of as cube_tables_of
from dp_polars._frames.publication import Publication
from dp_polars._frames.query import PrivateQuery
from dp_polars._frames.requests import KeyRequest, PeopleRequest
from dp_polars._frames.synthetic_query import SyntheticQuery
from dp_polars._publish.tables import (
    TOTAL,
    Cell,
    Column,
    columns_of,
    crossed_with_margins,
    named_quantile,
    tables_of,
    text_of,
)
from dp_polars._release.contract import names_of_ends
from dp_polars._release.found import THE_GROUPS
from dp_polars._release.request import Ask, Request, said_once, with_ends
from dp_polars._statistics.answer_lists import QuantileList
from dp_polars._statistics.categories import QuantileWithInterval
from dp_polars._statistics.measures import BETA
from dp_polars._statistics.statement import Statement
from dp_polars._statistics.statement_facts import AT_DELTA, Facts, Known, KnownButNotes, guaranteed
from dp_polars._statistics.statistic import Asked

if TYPE_CHECKING:
    import altair as alt

    from dp_polars.plot._charts import Look

# The most groups of a figure, and the most small panels of lines and of a cube: these fit a page. The table has all.
_FIGURES, _PANELS, _OF_CUBE = 60, 30, 18
_PAGE = 1500  # the height of a figure in pixels that a printed page can still show
# The width of a figure's panels on a phone, and how much smaller such a figure may be drawn.
_SLIM, _LEAST = 300, 0.85
_STYLE = """
:root { color-scheme: light dark; --quiet: #5a5f66; --line: #8886; --shade: #8881; }
@media (prefers-color-scheme: dark) { :root { --quiet: #a9adb3; } }
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 62rem; margin: 0 auto; padding: 1rem; overflow-wrap: anywhere; }
h1 { line-height: 1.2; }
h2 { margin-top: 2.5rem; border-top: 1px solid var(--line); padding-top: 1rem; line-height: 1.25; }
p, dd, li { max-width: 44rem; }
.about { font-size: 1.1rem; }
.wide, figure, dd { overflow-x: auto; }
table { border-collapse: collapse; min-width: min(24rem, 100%); margin: .5rem 0 1rem; overflow-wrap: break-word;
  font-size: .9rem; }
caption { text-align: left; font-weight: 600; padding: .3rem 0; }
th, td { border-bottom: 1px solid var(--line); padding: .3rem .7rem; text-align: left; vertical-align: top; }
td { text-align: right; font-variant-numeric: tabular-nums; }
thead th { border-bottom-width: 2px; vertical-align: bottom; text-align: right; }
thead th:first-child { text-align: left; }
tbody th { font-weight: normal; }
.crossed thead th { white-space: nowrap; }
caption .quiet { font-weight: normal; }
td ol { margin: 0; padding-left: 1.3rem; text-align: left; }
.small, .range, .quiet { color: var(--quiet); }
.small { font-style: italic; }
.range { font-size: .85em; white-space: nowrap; }
figure { margin: 1rem 0; }
figcaption { font-size: .9rem; color: var(--quiet); max-width: 44rem; position: sticky; left: 0; }
figure svg { display: block; height: auto; margin-bottom: .5rem; }
.slim { display: none !important; }
.notes { font-size: .9rem; padding-left: 1.2rem; }
summary { cursor: pointer; font-weight: 600; margin: .5rem 0; }
dt { font-weight: 600; margin-top: .8rem; }
dd { margin: .2rem 0 .2rem 1rem; }
dd td, dd th { text-align: left; }
dd:has(table) { max-width: none; }
@media screen and (max-width: 500px) {
  th, td { padding: .25rem .4rem; }
  figure .broad { display: none; }
  figure .slim { display: block !important; max-width: 100%; }
}
@media print {
  :root { color-scheme: light; --quiet: #5a5f66; }
  @page { margin: 1cm; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  .wide, figure, dd { overflow: visible; }
  table { font-size: 8pt; overflow-wrap: anywhere; }
  thead th, .range { overflow-wrap: normal; }
  th, td { padding: .15rem .3rem; }
  .dp-statement th, .dp-statement td:nth-child(3) { overflow-wrap: normal; }
  .dp-statement td { min-width: 3.5rem; }
  .range { white-space: normal; }
  .wide > table:not(.crossed) tr:not(:has(> :nth-child(13))) > * { min-width: 4.6em; }
  .crossed { font-size: 6.5pt; overflow-wrap: normal; }
  .crossed th { white-space: normal; }
  .crossed td { white-space: nowrap; }
  .crossed tr:has(> :nth-child(14)) > th:not(:first-child) { writing-mode: vertical-rl; }
  .crossed th, .crossed td { padding: .1rem 2px; }
  .crossed .range { display: block; }
  figure svg { max-width: 100%; max-height: 22cm; }
  .tall svg { max-height: none; }
  tr, figure:not(.tall) svg { break-inside: avoid; }
  h1, h2, h3, dt, caption { break-after: avoid; }
  thead { display: table-header-group; }
  details::details-content { content-visibility: visible; display: block; }
  nav { display: none; }
}
"""


class Section(NamedTuple):
    """The content of a page about one query: its name in a publication, and its answers."""

    name: str
    query: PrivateQuery
    released: pl.DataFrame
    cube: Cube | None = None  # what this is a table of
    by: Sequence[str] = ()  # its dimensions

    @property
    def keys(self) -> list[str]:
        if self.cube is not None:
            return [*self.by]
        request = self.query._request
        if isinstance(request, KeyRequest):
            return [name for name in request.asks[0].query.columns if name in self.released.columns]
        listed = request.keys
        outputs = {name for ask in self.query._asks for name in (ask.name, *names_of_ends(ask.name))}
        of_query = [] if listed is None else listed.columns
        return [name for name in self.released.columns if name in of_query or name not in outputs]


class Words(NamedTuple):
    """The caller's words on a page: its title and those of tables, names, units, and notes."""

    title: str
    titles: Mapping[str, str]
    labels: Labels
    notes: Mapping[str, str]
    about: Sequence[str]  # of all tables
    look: Look


@called
def report(
    released: pl.DataFrame | Mapping[str, object] | object,
    query: PrivateQuery | Publication,
    path: str | os.PathLike[str] = "report.html",
    *,
    titles: str | Mapping[str, str] | None = None,
    labels: Mapping[Any, str] | None = None,
    units: Mapping[str, str] | None = None,
    sort: str = "keys",
    notes: str | Mapping[str, str] | None = None,
    at_delta: Number = AT_DELTA,
    **known: Unpack[KnownButNotes],
) -> Path:
    r"""Write a release as one page of HTML for everybody: tables, figures, how to read them, and the statement.

    The page needs no network. It shows the release, what follows from it, and the statement of the query, and no more:
    it is as private as these. Every text of keys, names and arguments is escaped.

    Parameters
    ----------
    released
        What `query.release()` or `dp_polars.spark.release` returned, or a part of its rows; with or without
        `intervals`. For a cube, the page has a table and a figure for each of its tables. Those of Spark come to this
        process, sorted by their keys. For a publication, the dict.
    query
        The query that was released, or the publication. If a publication also has `cut=query.n_rows_dropped(…)`, the
        page says how many rows the limits of `query` dropped.
    path
        The file; `~` is the home folder. One that is there is replaced.
    titles
        The title of the page, or a dict of titles of queries by their names.
    labels
        Names of columns and values in plain words, such as `{"n_people": "People", "N": "North"}`.
    units
        The units of outputs and keys, such as `{"wait": "minutes"}`.
    sort
        "keys": in the order of the keys. "largest": groups with the largest first number come first.
    notes
        A note on the whole page, also for the statement, or a dict of notes on queries by their names.
    at_delta, **known
        As for `PrivateQuery.statement`. `name` also is the title of the page; without it there is no statement.
        `description` is below the title.

    Returns
    -------
    Path
        The file. Each query has a table in the order of its keys, and a figure that fits them, as `plot.answers` draws
        it. With two keys, the second of at most 24 values, the table is crossed. Ends of intervals are rounded
        outwards. Groups that may be empty are grey. Without the extra `plot` the page has no figures, and says so.

    Raises
    ------
    TypeError, ValueError
        If `released` is no release of this query, or another argument is not as described.
    OSError
        If the file can't be written.

    Examples
    --------
    >>> import polars as pl
    >>> import dp_polars as dpp
    >>> visits = pl.DataFrame({"patient": range(90), "ward": ["A", "A", "B"] * 30})
    >>> private = visits.dp.protect("patient", max_groups=1)
    >>> query = private.group_by({"ward": ["A", "B"]}).agg(people=dpp.n_people(epsilon=1))
    >>> report(query.release(), query, "report.html", name="People by ward").name
    'report.html'
    """
    if not isinstance(query, (PrivateQuery, Publication)):
        msg = f"query must be a PrivateQuery or a publication, got {given(query)}."
        raise TypeError(msg)
    order = one_of("sort", sort, ("keys", "largest"))
    if isinstance(query, Publication):
        if not isinstance(released, Mapping) or released.keys() != query.queries.keys():
            names = list(query.queries)
            msg = f"released must be what publication.release() returned, a dict of {names}, got {given(released)}."
            raise TypeError(msg)
        parts = [(name, one, released[name]) for name, one in query.queries.items()]
        sections = [section for part in parts for section in _sections(*part, order)]
    else:
        sections = _sections("", query, released, order)
    if not sections:
        msg = (
            "report: there is no page of synthetic rows: they would look like counts, and have no confidence intervals."
            "\n\nHint: made.counts(by=…) has the measured tables; query.statement() is the statement."
        )
        raise TypeError(msg)
    words = _words_of(titles, labels, units, notes, known, [section.name for section in sections])
    stated = cast("Known", {**known, **({"notes": notes} if isinstance(notes, str) else {})})
    statement = query._stated(stated, at_delta, "published")
    lines = _page(sections, statement, words, has_statement="name" in known)
    target = expanded(path)
    with replacing(target) as file:
        file.write("\n".join(lines).encode())
    return target


def _words_of(
    titles: object, labels: object, units: object, notes: object, known: KnownButNotes, names: Sequence[str]
) -> Words:
    said = {}
    for what, value in (("titles", titles), ("notes", notes)):
        of = {} if isinstance(value, str) else texts(what, value)
        if unknown := [name for name in of if name not in names]:
            msg = f"{what} must be by the names of the queries, {list(names)}, got {unknown[0]!r}."
            raise ValueError(msg)
        said[what] = of
    title = titles if isinstance(titles, str) else known.get("name", "Private answers")
    about = [*filter(None, [known.get("description"), notes if isinstance(notes, str) else None])]
    look: Look = {"labels": texts("labels", labels)}
    return Words(title, said["titles"], Labels.of(labels, units), said["notes"], about, look)


def _sections(name: str, query: PrivateQuery, released: object, order: str) -> list[Section]:
    """Return what a page shows of a query: each table of a cube, and nothing of synthetic rows."""
    if isinstance(query, SyntheticQuery):
        return []
    if not isinstance(query, CubeQuery):
        return [_section(name, query, released, order)]
    if not isinstance(released, Cube):
        msg = f"released must be what query.release() returned, a Cube, got {given(released)}."
        raise TypeError(msg)
    tables = cube_tables_of(query, released)
    names = {table: f"{name}: {table}" if name and len(tables) > 1 else name or table for table in tables}
    return [Section(names[table], query, counts, released, by) for table, (by, counts) in tables.items()]


def _section(name: str, query: PrivateQuery, released: object, order: str) -> Section:
    if hasattr(released, "toArrow"):  # of Spark, whose rows come in no order
        released, keys = frame_of_arrow(released.toArrow()), query._request.keys
        released = released if keys is None else released.sort(keys.columns)
    if not isinstance(released, pl.DataFrame):
        msg = f"released must be what query.release() returned, got {given(released)}."
        raise TypeError(msg)
    if missing := [ask.name for ask in query._asks if ask.name not in released.columns and not _are_keys(query)]:
        msg = f"released must be the release of this query, it lacks {missing}."
        raise ValueError(msg)
    if order == "largest" and not _are_keys(query):
        numbers = [ask.name for ask in query._asks if released.schema[ask.name].is_numeric()]
        released = released.sort(numbers[:1], descending=True, nulls_last=True, maintain_order=True)
    return Section(name, query, released)


def _page(sections: Sequence[Section], statement: Statement, words: Words, *, has_statement: bool) -> Iterator[str]:
    facts, title = statement.facts, html.escape(words.title)
    yield "<!DOCTYPE html>"
    yield f'<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<style>{_STYLE}</style></head><body><main>"
    yield f"<h1>{title}</h1>"
    yield from (f'<p class="about">{html.escape(text)}</p>' for text in words.about)
    yield f"<p>{_guarantee(facts)}</p>"
    yield f"<p>What counts as one person: {html.escape(facts['unit']['person'])}.</p>"
    headings = [words.titles.get(section.name, _heading(section, words.labels)) for section in sections]
    if len(sections) > _FEW:
        listed = (f'<li><a href="#q{place}">{html.escape(one)}</a></li>' for place, one in enumerate(headings))
        yield f'<nav aria-label="Tables"><ol>{"".join(listed)}</ol></nav>'
    for place, (section, heading) in enumerate(zip(sections, headings, strict=True)):
        yield f'<section id="q{place}">'
        if section.name:
            yield f"<h2>{html.escape(heading)}</h2>"
        yield from _shown(section, heading or words.title, words, sections)
        yield "</section>"
    yield "<section><h2>How to read this</h2>"
    yield from (f"<p>{text}</p>" for text in _reading([section.query for section in sections], words.labels))
    yield "</section>"
    if has_statement:
        yield "<section><h2>Methods</h2>"
        yield (
            "<p>The privacy statement is for experts who want to check what was done: it says exactly how much the "
            "numbers can reveal about one person, and what is not protected.</p>"
        )
        yield f"<details><summary>Privacy statement</summary>{statement.to_html()}</details></section>"
    else:
        yield (
            '<p class="quiet">This page has no privacy statement. To add one, give <code>report</code> a '
            "<code>name=</code>, and what else you can state.</p>"
        )
    yield "</main></body></html>"


def _heading(section: Section, labels: Labels) -> str:
    if section.cube is not None and not {*section.by, COUNT}.isdisjoint(labels.words):
        return f"{labels.column(COUNT)} by {' and '.join(map(labels.column, section.by))}"
    return labels.value(section.name)


_FEW = 3  # sections from which on a page begins with a list of them


def _guarantee(facts: Facts) -> str:
    """Return what all numbers guarantee to one person, in words and numbers."""
    loss, guarantee = facts["loss"], facts["guarantee"]
    said = html.escape(guarantee or guaranteed(loss)).replace(" = ", "\u00a0=\u00a0")
    change = "were left out" if facts["unit"]["relation"] == "add_or_remove_one" else "were replaced by others"
    return (
        "These numbers are about people, and protect each of them. Every number was changed at random, so that the "
        f"page would be nearly as likely to look like this if any one person's data {change}. How nearly, is a "
        f"guarantee: differential privacy with {said}."
    )


def _shown(section: Section, heading: str, words: Words, sections: Sequence[Section]) -> Iterator[str]:
    """Yield a figure, the tables, and what limits and clipping did."""
    name, query, released, *_ = section
    labels, request = words.labels, query._request
    large = (one for one in query.found or () if one.is_large)
    yield from (f"<p><strong>{html.escape(one.warning)}</strong></p>" for one in large)
    if note := words.notes.get(name):
        yield f"<p>{html.escape(note)}</p>"
    yield _figure(section, heading, words)
    asks = [] if _are_keys(query) else query._asks
    people = None
    if section.cube is None and isinstance(request, Request):
        with suppress(ValueError):
            people = request._people_output()
    columns: Sequence[Column]
    keys = released.select(section.keys)
    if section.cube is not None:
        keys, columns = _of_cube(section, section.cube, labels)
    elif _are_keys(query):
        numbers = released.select(pl.exclude(section.keys))
        columns = [Column(labels.column(one.name), [*map(Cell, one)]) for one in numbers]
    else:
        columns = columns_of(released, asks, labels, people)
    for table in tables_of(keys, columns, heading, labels):
        yield from table.to_html()
    below = said_once({labels.column(ask.name): _cut_of(query, ask) for ask in query._asks})
    below += [*_found(query, labels), *_how_much(query, sections, words.titles), *_ranks(query, labels)]
    if any(cell.small for column in columns for cell in column.cells):
        below.append("Grey groups may be empty: their number of people is within its noise. Read nothing into them.")
    if isinstance(request, KeyRequest):
        below.append(f"These are the groups that enough people have. {request.asks[0].query.people_needed[1]}")
    if request.pipeline.unchecked:
        below.append("The table was taken unchecked: its owner says that each person's rows follow from that person's.")
    if section.cube is not None and released[COUNT].dtype.is_float():
        below.append("Parts add up to their sums. Rounded numbers may miss them by the rounding.")
    if below:
        yield f'<ul class="notes">{"".join(f"<li>{html.escape(text)}</li>" for text in below)}</ul>'


def _of_cube(section: Section, cube: Cube, labels: Labels) -> tuple[pl.DataFrame, list[Column]]:
    """Return the keys and the counts of a table of a cube; of two dimensions with their sums."""
    by, counts = list(section.by), section.released
    values = [cube.dimensions[name].cast(pl.String) for name in by]
    if len(by) == 2 and not any(TOTAL in listed for listed in values):

        def sums(names: Sequence[str]) -> pl.DataFrame:
            if names:
                return cube.counts(by=names)
            return pl.DataFrame([cube.count()], [COUNT, *names_of_ends(COUNT)], orient="row")

        keys, column = crossed_with_margins(counts, by, sums, labels, COUNT)
        return keys, [column]
    cells = [Cell(*row) for row in counts.select(COUNT, *names_of_ends(COUNT)).iter_rows()]
    return counts.select(by), [Column(labels.column(COUNT), cells, is_sum=True)]


def _ranks(query: PrivateQuery, labels: Labels) -> Iterator[str]:
    """Yield how far off lists of quantiles are, in ranks, and why that gives no interval in values."""
    for ask in query._asks:
        if isinstance(ask.query, QuantileList) and (size := ask.query.size_of()) is not None:
            off, alphas = math.ceil(ask.query.error(size, BETA)), ask.query.alphas
            outer = min(alphas, key=lambda alpha: min(alpha, 1 - alpha))
            at_an_end = math.ceil(off / min(outer, 1 - outer))
            end = "smallest" if outer < Fraction(1, 2) else "largest"
            may_be = "any value" if outer == Fraction(1, 2) else f"the {end} value that is allowed"
            yield (
                f"{labels.column(ask.name)}: with a probability of 95 %, no quantile of a group is off by more than "
                f"{plural(off, 'row')} in rank. In a group of {20 * off:,} rows the median then lies between the 45 % "
                f"and the 55 % quantile. In groups of fewer than {at_an_end:,} rows the "
                f"{named_quantile(outer)} one may be {may_be}. There are no intervals in values, because they "
                "depend on how many rows of a group count, which is not released."
            )


def _cut_of(query: PrivateQuery, ask: Ask[Asked]) -> Iterator[str]:
    """Yield what limits drop of an output, and what is clipped."""
    request = query._request
    is_found = any(ask.name in one.outputs for one in query.found or ())  # what that does to people is said there
    is_cut = is_found or request.protection.drops_parts or request.dropping(ask) or request.clips(ask)
    if not (is_cut or isinstance(request, (KeyRequest, PeopleRequest)) or query._protection.unit is None):
        yield "No limit drops anything of a person."
    yield from request.limited(ask)


def _found(query: PrivateQuery, labels: Labels) -> Iterator[str]:
    """Yield how many people are beyond the limits and clipping bounds that the release found."""
    for one in query.found or ():
        of = ", ".join(map(labels.column, one.outputs)) or THE_GROUPS
        low, high = (text_of(max(one.people + end, 0)) for end in (-one.bound, one.bound))
        has = {"lower": "have values below it", "upper": "have values above it"}.get(one.what, "have more")
        kind = "clipping bound" if one.is_bound else "limit"
        what = f"the {kind} of {one.shown}{' candidates' * (one.what == 'max_candidates')}"
        people = f"about {text_of(max(one.people, 0))} people {has} ({low} to {high})"
        lost = f"; {one.loss_in_words}" if one.lost_bound else ""
        yield f"{of}: {what} was found privately; {people}{lost}."


def _how_much(query: PrivateQuery, sections: Sequence[Section], titles: Mapping[str, str]) -> Iterator[str]:
    for name, other, released, *_ in sections:
        asked = other._request
        if isinstance(asked, PeopleRequest) and asked.is_about(query._request) and released.height == 1:
            ask = other._asks[0]
            number, low, high = with_ends(released, other._asks).select(ask.name, *names_of_ends(ask.name)).row(0)
            between = f"{text_of(low, 0)} to {text_of(high, 0)}; see {titles.get(name, name)}"
            yield f"About {text_of(number)} rows do not count because of these limits ({between})."


def _are_keys(query: PrivateQuery) -> bool:
    """Return whether a query asks which keys there are: its release has no column of its output's name."""
    return isinstance(query._request, KeyRequest)


def _figure(section: Section, heading: str, words: Words) -> str:
    _, query, released, cube, by = section
    if not section.keys or _are_keys(query) or not released.height:
        return ""  # of one number, or of a list of groups
    if not (find_spec("altair") and find_spec("vl_convert")):
        return "<p>There is no figure, because the extra <code>plot</code> of dp_polars is not installed.</p>"
    from dp_polars.plot._answers import cube as figure_of_a_cube
    from dp_polars.plot._answers import drawn, has_numbers
    from dp_polars.plot._charts import figure, svg_on_page
    from dp_polars.plot._figures import groups_of

    if cube is None and not has_numbers(released, query):
        return ""  # of words, which the table has
    of_lines = cube is None and groups_of(released, section.keys).time is not None

    def chart(look: Look) -> tuple[alt.VConcatChart, list[str]]:
        if cube is not None:
            *others, along = by
            bare: Look = {**look, "title": "", "caption": ""}
            of_cube = figure_of_a_cube(cube, along, by=others, most=_OF_CUBE, **bare)
            panels = math.prod(len(cube.dimensions[name]) for name in others)
            left_out = f" The first {_OF_CUBE} of {panels:,} groups are shown." * (panels > _OF_CUBE)
            return of_cube, [f"Lines are 95 % intervals of the noise alone.{left_out}"]
        most = _PANELS if of_lines else _FIGURES
        rows, notes, _ = drawn(released, query, most, "keys", look, words.labels.units, with_words=False)
        return figure(rows, {}), notes

    said = f"Figure: {heading}. The table below has its numbers."
    broad, notes = chart(words.look)
    slim, _ = chart({**words.look, "width": _SLIM})  # in the place of the other one on a phone
    drawing = svg_on_page(broad, said, "broad")
    caption = " ".join(map(html.escape, notes))
    height = re.search(r'height="(\d+)"', drawing)
    kind = " class=tall" if height is not None and int(height[1]) > _PAGE else ""
    both = f"{drawing}{svg_on_page(slim, said, 'slim', _LEAST)}"
    return f'<figure{kind} tabindex="0">{both}<figcaption>{caption}</figcaption></figure>'


def _reading(queries: Sequence[PrivateQuery], labels: Labels) -> Iterator[str]:
    yield (
        "<strong>The numbers are a little wrong, on purpose.</strong> Before a number was published, a random amount "
        "was added to it or taken away. This is called noise, and it hides what any one person contributed. If the "
        "answer is one of several possible values, such as the most common one or a median, chance may have picked "
        "another value that is nearly as good. The same query, released again, would get slightly different answers."
    )
    yield (
        "<strong>The interval in brackets says how wrong a number may be.</strong> So does “±”. In at least 95 of 100 "
        "cases, the number without noise lies in it. The interval covers the noise alone. It does not cover what is "
        "left out or clipped, mistakes in the data, or people who are missing from the data."
    )
    asks = [ask for query in queries for ask in query._asks]
    for ask in asks:
        if isinstance(ask.query, QuantileWithInterval):
            yield (
                f"<strong>The interval of {html.escape(labels.column(ask.name))}</strong> holds the value without "
                f"noise in at least {show(100 * ask.query.probability)} of 100 cases."
            )
    if any(ask.query.claim._gap for ask in asks):
        yield (
            "<strong>“Ahead by”</strong> says how far the answer was in front of the next best one. This number has "
            "noise too. If it is small, another answer may be the true best one."
        )
    if any(query._request.drops() for query in queries):
        yield (
            "<strong>Some data count less, or not at all.</strong> So that no person has too much influence, a person "
            "with many rows counts in part, or only some of these rows are used, or a person's total is clipped. The "
            "limits are below each table. Then counts and sums are too low, and the intervals do not show it."
        )
    if any(ask.query.clips_values for ask in asks):
        yield (
            "<strong>Values are clipped.</strong> A value below the lower clipping bound counts as that bound, and one "
            "above the upper bound as the upper one. The bounds are below each table. If many values lie beyond "
            "them, the answer is far from that of the values as they are, and the intervals do not show it."
        )
    yield (
        "<strong>Small groups say little.</strong> The noise of a count is as large for ten people as for ten "
        "thousand. A number that is smaller than the width of its confidence interval may come from nobody at all, and "
        "a count may even be below 0. A dash (–) is an answer that is not shown, because the group seemed too small."
    )
    yield (
        "<strong>What the numbers are not.</strong> No number is about a single person. A difference between two "
        "numbers that is smaller than their intervals may be noise alone."
    )
