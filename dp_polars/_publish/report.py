"""A page about a release for readers who never heard of differential privacy."""

from __future__ import annotations

import html
import os
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple, Unpack

import polars as pl

from dp_polars._base.calls import called
from dp_polars._base.column_types import frame_of_arrow
from dp_polars._base.files import expanded, replacing
from dp_polars._base.numbers import Number, given, show
from dp_polars._frames.cube import COUNT, Cube
from dp_polars._frames.cube_query import CubeQuery, tables_of
from dp_polars._frames.publication import Publication
from dp_polars._frames.query import PrivateQuery
from dp_polars._frames.requests import KeyRequest, PeopleRequest
from dp_polars._questions.categories import QuantileWithInterval
from dp_polars._questions.question import Asked
from dp_polars._questions.statement import Statement
from dp_polars._questions.statement_facts import AT_DELTA, Known, guaranteed
from dp_polars._release.contract import names_of_ends
from dp_polars._release.request import Ask, said_once, with_ends

# Rows of a release that the page shows.
_MOST = 1000
_STYLE = """
:root { color-scheme: light dark; }
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 62rem; margin: 0 auto; padding: 1rem; overflow-wrap: anywhere; }
p, dd { max-width: 44rem; }
.wide, figure, dd { overflow-x: auto; }
table { border-collapse: collapse; margin: 1rem 0; overflow-wrap: break-word; font-size: .9rem; }
th, td { border-bottom: 1px solid #8888; padding: .3rem .7rem; text-align: left; vertical-align: top; }
th { border-bottom-width: 2px; }
.range { font-size: .85em; white-space: nowrap; }
figure { background: white; color-scheme: light; color: black; margin: 1rem 0; padding: .5rem; }
figcaption { font-size: .9rem; margin-bottom: 1rem; position: sticky; left: 0; }
figure svg { display: block; height: auto; margin-bottom: 1rem; }
dt { font-weight: 600; margin-top: .8rem; }
dd { margin: .2rem 0 .2rem 1rem; }
dd:has(table) { max-width: none; }
.dp-statement { border-top: 2px solid GrayText; margin-top: 2rem; }
@media print {
  :root { color-scheme: light; }
  @page { margin: 1cm; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  .wide, figure, dd { overflow: visible; }
  table { font-size: 8pt; overflow-wrap: anywhere; }
  th, td { padding: .2rem .4rem; }
  .dp-statement th, .dp-statement td:nth-child(3) { overflow-wrap: normal; }
  .dp-statement td { min-width: 3.5rem; }
  figure svg { max-width: 100%; max-height: 26cm; }
  tr, svg { break-inside: avoid; }
  h1, h2, h3, dt { break-after: avoid; }
  thead { display: table-header-group; }
}
"""


class Section(NamedTuple):
    """What a page shows of one query: its name in a publication, and what was released."""

    name: str
    query: PrivateQuery
    released: pl.DataFrame
    cube: Cube | None = None  # what this is a table of
    by: Sequence[str] = ()  # its dimensions

    @property
    def outputs(self) -> list[str]:
        return [ask.name for ask in self.query._asks] if self.cube is None else [COUNT]


@called
def report(
    released: pl.DataFrame | Mapping[str, object] | object,
    query: PrivateQuery | Publication,
    path: str | os.PathLike[str] = "report.html",
    *,
    at_delta: Number = AT_DELTA,
    **known: Unpack[Known],
) -> Path:
    r"""Write a release as one page of HTML for everybody: tables, figures, what the numbers mean, and the statement.

    The page needs no network. It shows the release, what follows from it, and the statement of the query, and no more:
    it is as private as these. Every text of keys, names and arguments is escaped.

    Parameters
    ----------
    released
        What `query.release()` or `dp_polars.spark.release` returned, or a part of its rows; with or without
        `intervals`. For a cube, the page has a table and a figure for each of its tables.
        1,000 rows are shown at most; those of Spark come to this process, sorted by their keys. For a publication, the
        dict. Below each table stands which limits and clipping bounds cut what, and how much they cut where the
        publication has that, too:
        `publication(visits=query, cut=query.n_rows_dropped(…))`.
    query
        The query that was released, or the publication.
    path
        The file; `~` is the home folder. One that is there is replaced.
    at_delta, **known
        As for `PrivateQuery.statement`; `name` is the title.

    Returns
    -------
    Path
        The file. Its figures have the panels of `plot.answers`, below one another where they are too wide for a page;
        without the extra `plot` the page has none, and says so.

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
    if isinstance(query, Publication):
        if not isinstance(released, Mapping) or released.keys() != query.queries.keys():
            names = list(query.queries)
            msg = f"released must be what publication.release() returned, a dict of {names}, got {given(released)}."
            raise TypeError(msg)
        sections = [_section(name, one, released[name]) for name, one in query.queries.items()]
    elif isinstance(query, CubeQuery):
        if not isinstance(released, Cube):
            msg = f"released must be what query.release() returned, a Cube, got {given(released)}."
            raise TypeError(msg)
        tables = tables_of(query, released)
        sections = [Section(name, query, counts, released, by) for name, (by, counts) in tables.items()]
    else:
        sections = [_section("", query, released)]
    statement = query._stated(known, at_delta, "published")
    lines = _page(sections, statement, html.escape(known.get("name", "Private answers")))
    target = expanded(path)
    with replacing(target) as file:
        file.write("\n".join(lines).encode())
    return target


def _section(name: str, query: PrivateQuery, released: object) -> Section:
    if hasattr(released, "toArrow"):  # of Spark, whose rows come in no order
        released, keys = frame_of_arrow(released.toArrow()), query._request.keys
        released = released if keys is None else released.sort(keys.columns)
    if not isinstance(released, pl.DataFrame):
        msg = f"released must be what query.release() returned, got {given(released)}."
        raise TypeError(msg)
    if missing := [ask.name for ask in query._asks if ask.name not in released.columns and not _are_keys(query)]:
        msg = f"released must be the release of this query, it lacks {missing}."
        raise ValueError(msg)
    return Section(name, query, released)


def _page(sections: Sequence[Section], statement: Statement, title: str) -> Iterator[str]:
    facts = statement.facts
    yield "<!DOCTYPE html>"
    yield f'<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<style>{_STYLE}</style></head><body>"
    yield f"<h1>{title}</h1>"
    yield (
        "<p>These numbers are about people. Each was changed at random before it was published. That limits what "
        "anybody can learn from them about one person. What counts as one person: "
        f"{html.escape(facts['unit']['person'])}.</p>"
    )
    promise = html.escape(facts["promise"] or guaranteed(facts["loss"]))
    yield f"<p>The guarantee of all numbers together is {promise}.</p>"
    for section in sections:
        name, query, released, *_ = section
        if name:
            yield f"<section><h2>{html.escape(name)}</h2>"
        has_ends = section.cube is not None or _are_keys(query)
        yield from _table(released if has_ends else with_ends(released, query._asks), section.outputs)
        cut = said_once({ask.name: _cut_of(query, ask) for ask in query._asks})
        yield from (f"<p>{html.escape(text)}</p>" for text in (*cut, *_how_much(query, sections)))
        yield _figure(section)
        if name:
            yield "</section>"
    yield "<h2>What the numbers mean</h2>"
    yield from (f"<p>{text}</p>" for text in _words([section.query for section in sections]))
    yield (
        "<p>The rest of this page is the privacy statement. It is for experts who want to check what was done: it says "
        "exactly how much the numbers can reveal about one person, and what is not protected.</p>"
    )
    yield statement.to_html()
    yield "</body></html>"


def _cut_of(query: PrivateQuery, ask: Ask[Asked]) -> Iterator[str]:
    """Yield what limits drop of an output, and what is clipped."""
    request = query._request
    is_cut = request.dropping(ask) or request.clips(ask)
    if not (is_cut or isinstance(request, (KeyRequest, PeopleRequest)) or query._protection.unit is None):
        yield "No limit drops anything of a person."
    yield from request.limited(ask)


def _how_much(query: PrivateQuery, sections: Sequence[Section]) -> Iterator[str]:
    for name, other, released, *_ in sections:
        asked = other._request
        if not isinstance(asked, PeopleRequest) or asked.bounded.pipeline is not query._request.pipeline:
            continue
        if asked.bounded.keys is not getattr(query._request, "keys", None):
            continue  # the same rows in other groups
        ask = other._asks[0]
        same = [one.name for one in asked.bounded.asks] == [one.name for one in query._asks]
        if same and released.height == 1:
            number, low, high = with_ends(released, other._asks).select(ask.name, *names_of_ends(ask.name)).row(0)
            between = f"{_text(low)} to {_text(high)}; see {name}"
            yield f"About {_text(number)} rows do not count because of these limits ({between})."


def _are_keys(query: PrivateQuery) -> bool:
    """Return whether a query asks which keys there are: its release has no column of its output's name."""
    return isinstance(query._request, KeyRequest)


def _table(shown: pl.DataFrame, outputs: Sequence[str]) -> Iterator[str]:
    ends = {end for name in outputs for end in names_of_ends(name)} & {*shown.columns}
    columns = [name for name in shown.columns if name not in ends]
    yield '<div class="wide"><table><thead><tr>'
    yield "".join(f'<th scope="col">{html.escape(name)}</th>' for name in columns)
    yield "</tr></thead><tbody>"
    for row in shown.head(_MOST).iter_rows(named=True):
        cells = []
        for name in columns:
            low, high = names_of_ends(name)
            cells.append(f"<td>{_cell(row[name], row[low], row[high]) if low in ends else _cell(row[name])}</td>")
        yield f"<tr>{''.join(cells)}</tr>"
    yield "</tbody></table></div>"
    if shown.height > _MOST:
        yield f"<p>The first {_MOST:,} of {shown.height:,} rows are shown.</p>"


def _cell(value: object, low: object = None, high: object = None) -> str:
    """Return an answer with its confidence interval, or a key, in HTML; each part of an answer has a line."""
    if isinstance(value, list):
        none = [None] * len(value)
        ends = (low, high) if isinstance(low, list) and isinstance(high, list) else (none, none)
        return "<br>".join(map(_cell, value, *ends))
    if isinstance(value, dict) and "gap" not in value:  # of value counts: the value, and the range of its count
        first, second = value.values()
        counts = ([*end.values()][1] if isinstance(end, dict) else end for end in (low, high))
        return f"{html.escape(_text(first))}: {_cell(second, *counts)}"
    said = html.escape(_text(value))
    if low is None or high is None:
        return said
    return f'{said} <span class="range">({html.escape(_text(low))} to {html.escape(_text(high))})</span>'


def _text(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool | str):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    if isinstance(value, dict):
        answer, gap = map(_text, value.values())
        return f"{answer} (ahead by {gap})"
    return str(value)


def _figure(section: Section) -> str:
    _, query, released, cube, by = section
    if cube is not None and not by:
        return ""  # of one number
    if not released.height or _are_keys(query):
        return "<p>There is no figure, because this is a list of groups or has no rows.</p>"
    if not (find_spec("altair") and find_spec("vl_convert")):
        return "<p>There is no figure, because the extra <code>plot</code> of dp_polars is not installed.</p>"
    from dp_polars.plot._answers import cube as figure_of_a_cube
    from dp_polars.plot._answers import drawn
    from dp_polars.plot._charts import svg_of
    from dp_polars.plot._figures import figure

    if cube is not None:
        *others, along = by
        return f"<figure>{svg_of(figure_of_a_cube(cube, along, by=others))}</figure>"
    rows, notes, _ = drawn(released, query, 30, "keys", {})
    caption = "<br>".join(map(html.escape, notes))
    return f"<figure><figcaption>{caption}</figcaption>{svg_of(figure(rows, {}))}</figure>"


def _words(queries: Sequence[PrivateQuery]) -> Iterator[str]:
    yield (
        "<strong>The numbers are a little wrong, on purpose.</strong> Before a number was published, a random amount "
        "was added to it or taken away. This is called noise, and it hides what any one person contributed. Where the "
        "answer is one of several possible values, such as the most common one or a median, chance may have picked "
        "another value that is nearly as good. The same query, released again, would get slightly different answers."
    )
    yield (
        "<strong>The range in brackets says how wrong a number may be.</strong> In at least 95 of 100 cases, the "
        "number without noise lies in it. The range covers the noise alone. It does not cover what is left out or "
        "clipped, mistakes in the data, or people who are missing from the data."
    )
    asks = [ask for query in queries for ask in query._asks]
    for ask in asks:
        if isinstance(ask.query, QuantileWithInterval):
            yield (
                f"<strong>The range of {html.escape(ask.name)}</strong> holds the value without noise in at least "
                f"{show(100 * ask.query.probability)} of 100 cases."
            )
    if any(ask.query.claim.gap for ask in asks):
        yield (
            "<strong>“Ahead by”</strong> says how far the answer was in front of the next best one. This number has "
            "noise too. Where it is small, another answer may be the true best one."
        )
    if any(query._request.drops() for query in queries):
        yield (
            "<strong>Some data count less, or not at all.</strong> So that no person has too much influence, a person "
            "with many rows counts in part, or only some of these rows are used, or a person's total is clipped. The "
            "limits stand below each table. Then counts and sums are too low, and the intervals do not show it."
        )
    if any(ask.query.clips_values for ask in asks):
        yield (
            "<strong>Values are clipped.</strong> A value below the lower clipping bound counts as that bound, and one "
            "above the upper bound as the upper one. The bounds stand below each table. If many values lie beyond "
            "them, the answer is far from that of the values as they are, and the intervals do not show it."
        )
    yield (
        "<strong>Small groups say little.</strong> The noise of a count is as large for ten people as for ten "
        "thousand. A number that is smaller than the width of its confidence interval may come from nobody at all, and "
        "a count may "
        "even be below 0. A dash (–) is an answer that is not shown, because the group seemed too small."
    )
    yield (
        "<strong>What the numbers are not.</strong> No number is about a single person. A difference between two "
        "numbers that is smaller than their intervals may be noise alone."
    )
