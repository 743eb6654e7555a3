"""Tables of a report: numbers with their intervals, crossed where two keys allow it, and words."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal
from fractions import Fraction
from functools import cached_property

import polars as pl

from dp_polars._base.labels import Labels, as_texts
from dp_polars._base.numbers import show
from dp_polars._release.contract import names_of_ends
from dp_polars._release.request import Ask, with_ends
from dp_polars._statistics.answer_lists import QuantileList, TopK
from dp_polars._statistics.measures import Multiple
from dp_polars._statistics.statistic import Asked

_MOST_COLUMNS = 24  # values of a second key that stand side by side
_USUAL_COLUMNS = 8  # with more of them a table is wide, and is turned if its first key has no more
_LONG = 40  # rows from which on a table is folded
MOST = 1000  # rows of a table that are shown
_PART_OF_A_WORD = re.compile(r"(\S{16}(?=\S{4}))")
_DIGITS = 4  # significant digits of a number without an interval
TOTAL = "Total"


@dataclass(frozen=True)
class Cell:
    """An answer with the ends of its interval, and whether its group is too small to say anything."""

    value: object
    low: object = None
    high: object = None
    small: bool = False


@dataclass(frozen=True)
class Column:
    """The cells of one output, one for each row of a release."""

    title: str
    cells: Sequence[Cell]
    is_ranked: bool = False  # whether a cell is a list, the best first
    is_sum: bool = False  # whether noise is added to it: then all numbers are off alike
    margins: frozenset[int] = frozenset()  # the places of sums

    @cached_property
    def off(self) -> Decimal | None:
        """How far off each number is at most, if that is the same for all."""
        inner = [cell for place, cell in enumerate(self.cells) if place not in self.margins and cell.value is not None]
        if not (self.is_sum and inner and all(map(_has_ends, inner))):
            return None
        widths = [abs(_exact(end) - _exact(cell.value)) for cell in inner for end in (cell.low, cell.high)]
        least, most = min(widths), max(widths)
        # Ends that are floats were rounded, and those of whole numbers outwards.
        slack = 1 if all(isinstance(cell.value, int) for cell in inner) else most * Decimal("1e-9")
        return most if 0 < most <= least + slack else None

    @cached_property
    def decimals(self) -> int:
        """How many decimals tell what the interval tells: two digits of its narrowest half."""
        numbers = [cell for cell in self.cells if isinstance(cell.value, (float, Decimal))]
        if not numbers:
            return 0
        halves = [abs(float(cell.high) - float(cell.low)) / 2 for cell in numbers if _has_ends(cell)]  # type: ignore[arg-type]
        if halves := [half for half in halves if 0 < half < math.inf]:
            return min(9, max(0, 1 - math.floor(math.log10(min(halves)))))
        most = max((abs(float(cell.value)) for cell in numbers if math.isfinite(float(cell.value))), default=0.0)  # type: ignore[arg-type]
        return min(9, max(0, _DIGITS - 1 - math.floor(math.log10(most)))) if most else 0


def _has_ends(cell: Cell) -> bool:
    ends = (cell.low, cell.high)
    return all(isinstance(end, (int, float, Decimal)) and math.isfinite(end) for end in ends)


def _exact(value: object) -> Decimal:
    return value if isinstance(value, Decimal) else Decimal(repr(value) if isinstance(value, float) else str(value))


def columns_of(released: pl.DataFrame, asks: Sequence[Ask[Asked]], labels: Labels, people: str | None) -> list[Column]:
    """Return what is shown of a release; a list of quantiles has a column for each of them."""
    ranged = with_ends(released, asks)
    small = _small(ranged, asks, people)
    found: list[Column] = []
    for ask in asks:
        title, values = labels.column(ask.name), ranged[ask.name].to_list()
        ends = [ranged[end].to_list() if end in ranged.columns else [None] * ranged.height for end in _ends(ask)]
        rows = list(zip(values, *ends, small, strict=True))
        if isinstance(ask.query, QuantileList):
            for place, alpha in enumerate(ask.query.alphas):
                cells = [Cell(None if value is None else value[place], small=is_small) for value, *_, is_small in rows]
                found.append(Column(f"{title}, {named_quantile(alpha)}", cells))
        else:
            cells = [Cell(*row) for row in rows]
            found.append(Column(title, cells, isinstance(ask.query, TopK), isinstance(ask.query, Multiple)))
    return found


def _ends(ask: Ask[Asked]) -> tuple[str, str]:
    return names_of_ends(ask.name)


def named_quantile(alpha: Fraction) -> str:
    return "median" if alpha == Fraction(1, 2) else f"{show(100 * alpha)}\u00a0%"


def _small(ranged: pl.DataFrame, asks: Sequence[Ask[Asked]], people: str | None) -> list[bool]:
    """Return which groups may be empty, for all that their released number of people, or of rows, says."""
    if people is None:
        return [False] * ranged.height
    low = ranged[names_of_ends(people)[0]]
    hidden = [ranged[ask.name].is_null() for ask in asks if ask.name != people]
    empty = (low <= 0).fill_null(value=True)
    return [bool(one) for one in (empty | _all(hidden) if hidden else empty)]


def _all(marks: Sequence[pl.Series]) -> pl.Series:
    whole = marks[0]
    for one in marks[1:]:
        whole = whole & one
    return whole


@dataclass(frozen=True)
class Table:
    """A table under a caption: headers, and rows of headers and cells."""

    caption: str
    corner: Sequence[str]  # what the headers of rows are about
    headers: Sequence[str]
    rows: Sequence[tuple[Sequence[str], Sequence[str]]]
    note: str = ""
    is_crossed: bool = False

    def to_html(self) -> Iterator[str]:
        is_long = len(self.rows) > _LONG
        if is_long:
            yield f"<details><summary>Table of {len(self.rows):,} rows: {html.escape(self.caption)}</summary>"
        note = f'. <span class="quiet">{html.escape(self.note)}</span>' if self.note else ""
        yield f'<div class="wide" tabindex="0"><table{" class=crossed" * self.is_crossed}>'
        yield f"<caption>{html.escape(self.caption)}{note}</caption><thead><tr>"
        yield "".join(f'<th scope="col">{_breakable(name)}</th>' for name in (*self.corner, *self.headers))
        yield "</tr></thead><tbody>"
        for names, cells in self.rows[:MOST]:
            heads = "".join(f'<th scope="row">{_breakable(name)}</th>' for name in names)
            yield f"<tr>{heads}{''.join(cells)}</tr>"
        yield "</tbody></table></div>"
        if len(self.rows) > MOST:
            yield f"<p>The first {MOST:,} of {len(self.rows):,} rows are shown.</p>"
        if is_long:
            yield "</details>"


def tables_of(keys: pl.DataFrame, columns: Sequence[Column], title: str, labels: Labels) -> list[Table]:
    """Return one table of all outputs; for two keys, the second of few values, a crossed table of each."""
    names = {name: labels.values(keys[name]) for name in keys.columns}
    corner = [labels.column(name) for name in names]
    if not names:
        rows = [([column.title], [_td(column.cells[0], column, in_full=True)]) for column in columns if column.cells]
        return [Table(title, ["Number"], ["All together"], rows)]
    if len(names) == 2:
        first, second = names.values()
        if len({*second}) > _USUAL_COLUMNS >= len({*first}):  # a long table is easier to read than a wide one
            first, second, corner = second, first, corner[::-1]
        down, across, places = [*dict.fromkeys(first)], [*dict.fromkeys(second)], list(zip(first, second, strict=True))
        if 1 < len(across) <= _MOST_COLUMNS and len(down) > 1 and len({*places}) == len(places):
            return [_crossed(column, places, down, across, corner) for column in columns]
    note = " ".join(f"{column.title}: {said}." for column in columns if (said := _said_off(column)))
    tds = [[_td(cell, column) for cell in column.cells] for column in columns]
    heads = zip(*names.values(), strict=True)
    rows = [(list(head), [td[place] for td in tds]) for place, head in enumerate(heads)]
    return [Table(title, corner, [column.title for column in columns], rows, note)]


def _crossed(
    column: Column,
    places: Sequence[tuple[str, ...]],
    down: Sequence[str],
    across: Sequence[str],
    corner: Sequence[str],
) -> Table:
    cells = {place: _td(cell, column) for place, cell in zip(places, column.cells, strict=True)}
    for place, (key, cell) in enumerate(zip(places, column.cells, strict=True)):
        if place in column.margins:
            cells[key] = _td(cell, replace(column, cells=[cell], margins=frozenset()), in_full=True)
    rows = [([one], [cells.get((one, other), "<td></td>") for other in across]) for one in down]
    said = _said_off(column)
    note = f"{said[0].upper()}{said[1:]}." if said else ""
    caption = f"{column.title}: {corner[0]} and {corner[1]}"
    return Table(caption, [f"{corner[0]} \\ {corner[1]}"], across, rows, note, is_crossed=True)


def _said_off(column: Column) -> str:
    """Return how far off all numbers of a column are, where that is the same."""
    if (off := column.off) is None:
        return ""
    return f"each number ± {_number(off, column.decimals, ROUND_CEILING)}"


def _td(cell: Cell, column: Column, *, in_full: bool = False) -> str:
    kind = " class=small" if cell.small else ""
    if column.is_ranked and isinstance(cell.value, list):
        return f"<td{kind}><ol>{''.join(f'<li>{_answer(Cell(one), 0)}</li>' for one in cell.value)}</ol></td>"
    shown = replace(cell, low=None, high=None) if column.off is not None and not in_full else cell
    return f"<td{kind}>{_answer(shown, column.decimals)}</td>"


def _answer(cell: Cell, decimals: int) -> str:
    """Return an answer with its interval in HTML; each part of a list has a line."""
    value, low, high = cell.value, cell.low, cell.high
    if isinstance(value, list):
        none = [None] * len(value)
        ends = (low, high) if isinstance(low, list) and isinstance(high, list) else (none, none)
        return "<br>".join(_answer(Cell(*one), decimals) for one in zip(value, *ends, strict=True))
    if isinstance(value, Mapping) and "gap" not in value:  # of value counts: the value, and the interval of its count
        first, second = value.values()
        least, most = ([*end.values()][1] if isinstance(end, Mapping) else None for end in (low, high))
        return f"{html.escape(text_of(first))}: {_answer(Cell(second, least, most), decimals)}"
    said = _breakable(text_of(value, decimals))
    if low is None or high is None:
        return said
    least, most = (
        html.escape(text_of(*end)) for end in ((low, decimals, ROUND_FLOOR), (high, decimals, ROUND_CEILING))
    )
    return f'{said} <span class="range">({least} to {most})</span>'


def _breakable(text: str) -> str:
    """Return a text in HTML whose long words may be broken: a column would be as wide as its longest word."""
    return "".join(
        f"{html.escape(part)}{'<wbr/>' * (place % 2)}" for place, part in enumerate(_PART_OF_A_WORD.split(text))
    )


def text_of(value: object, decimals: int | None = None, rounding: str = ROUND_HALF_EVEN) -> str:
    """Return an answer as a text; the ends of an interval are rounded outwards."""
    if value is None:
        return "–"
    if isinstance(value, bool | str):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, (float, Decimal)):
        if not math.isfinite(value):
            return str(value)
        if decimals is None:
            decimals = Column("", [Cell(value)]).decimals
        return _number(_exact(value), decimals, rounding)
    if isinstance(value, Mapping):
        answer, gap = (text_of(one) for one in value.values())
        return f"{answer} (ahead by {gap})"
    if isinstance(value, date):
        return str(value)
    return str(value)


def _number(value: Decimal, decimals: int, rounding: str) -> str:
    shown = value.quantize(Decimal(1).scaleb(-decimals), rounding)
    return f"{shown + 0:,}"  # no −0


def crossed_with_margins(
    counts: pl.DataFrame, by: Sequence[str], sums: Callable[[Sequence[str]], pl.DataFrame], labels: Labels, output: str
) -> tuple[pl.DataFrame, Column]:
    """Return the keys and the cells of a table of a cube, with the sums over each of its two dimensions."""
    frames = [counts.select(*(as_texts(counts[name]) for name in by), *_of(output))]
    for remaining in ([by[0]], [by[1]], []):
        frame = sums(remaining)
        names = [as_texts(frame[name]) if name in remaining else pl.lit(TOTAL).alias(name) for name in by]
        frames.append(frame.select(*names, *_of(output)))
    whole = pl.concat(frames)
    cells = [Cell(*row) for row in whole.select(_of(output)).iter_rows()]
    margins = frozenset(range(counts.height, whole.height))
    return whole.select(by), Column(labels.column(output), cells, is_sum=True, margins=margins)


def _of(output: str) -> list[pl.Expr]:
    return [pl.col(name).cast(pl.Float64) for name in (output, *names_of_ends(output))]
