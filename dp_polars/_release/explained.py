"""What `explain` returns: a frame of many columns, which printed alone shows what a reader wants, and all notes."""

from __future__ import annotations

import html
from textwrap import wrap
from typing import Any

import polars as pl

from dp_polars._base.numbers import as_fraction, show

_WIDTH = 80
_SHOWN = ("output", "asked", "mechanism", "error_95", "loss")


class Explained(pl.DataFrame):
    """A DataFrame that prints itself as a short table with its notes below. What is made of it prints as usual."""

    def __str__(self) -> str:
        needed = {"output", "selects", "mechanism", "error_95", "error_unit", "epsilon", "rho", "delta", "note"}
        if not needed <= {*self.columns}:
            return super().__str__()
        rows = self.rows(named=True)
        names = [f"{row['query']}: {row['output']}" if row.get("query") else str(row["output"]) for row in rows]
        cells = [
            (name, str(row["selects"]), row["mechanism"] or "", _error(row), _loss(row))
            for name, row in zip(names, rows, strict=True)
        ]
        widths = [max(map(len, column)) for column in zip(_SHOWN, *cells, strict=True)]
        lines = [_line(_SHOWN, widths), "  ".join("─" * width for width in widths), *(_line(r, widths) for r in cells)]
        for name, row in zip(names, rows, strict=True):
            lines += ["", *wrap(f"{name}: {row['note']}", _WIDTH, subsequent_indent="  ", break_long_words=False)]
        return "\n".join([*lines, "", f"All {self.width} columns: .columns; this is a DataFrame."])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self, **options: Any) -> str:  # noqa: ANN401  # as Polars calls it
        text = str(self)
        if text == super().__str__():
            return super()._repr_html_(**options)
        return f"<pre>{html.escape(text)}</pre>"


def _line(cells: tuple[str, ...], widths: list[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def _error(row: dict[str, Any]) -> str:
    """Return an error with its unit, in three digits rounded up."""
    if row["error_95"] is None or not row["error_95"] < float("inf"):
        return "see below"
    unit = row["error_unit"] or ""
    within = "in " if unit.startswith("the ") else ""
    return f"±{show(as_fraction('error_95', row['error_95']), 3, up=True)} {within}{unit}".rstrip()


def _loss(row: dict[str, Any]) -> str:
    found = next((unit for unit in ("epsilon", "rho") if row[unit] is not None), None)
    if found is None:
        return "none yet"
    delta = f", delta={row['delta']:.3g}" if row["delta"] else ""
    return f"{found}={show(as_fraction(found, row[found]), 4, up=True)}{delta}"
