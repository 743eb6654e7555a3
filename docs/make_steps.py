"""Writes the page on supported transformations from tables of the package: `python docs/make_steps.py`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from pathlib import Path

from dp_polars import PrivateFrame
from dp_polars._frames.frame import METHODS
from dp_polars._sources.check import KINDS
from dp_polars._steps.nodes import (
    FUNCTIONS,
    OF_CATEGORIES,
    OF_COLUMNS,
    OF_MIXED_TYPES,
    OF_ONE_COLUMN,
    OF_ONE_TYPE,
    ON_POLARS_1,
    OPERATORS,
    TESTED,
    written,
)
from dp_polars._steps.rewriting import SPELLINGS
from dp_polars._steps.rules import LISTED, NEEDS_POLARS_2, RAISING, UNLISTED, Rule

PAGE = Path(__file__).parent / "api" / "steps.md"
# What is too long to list in a table.
LABELS = {
    OPERATORS: "operators",
    OPERATORS | {"when"} | (OF_COLUMNS - OF_MIXED_TYPES): "operators, `pl.when`, functions of several columns",
    OF_ONE_COLUMN: "functions of one column",
    FUNCTIONS - OF_CATEGORIES: "functions that look at more than a category's text",
}
HEAD = """\
# Supported transformations

<!-- Written by docs/make_steps.py from the tables of the package. -->

A private frame accepts transformations that make a row's result from that row only.
Otherwise one person could change another person's rows, and the limits of `protect` would fail.
So each expression is inspected as a whole, and refused unless it is known to be row by row.
The error gives the reason and a replacement.
This was tested on Polars {tested}.
On a newer Polars, a private frame warns once.

No value in a row may raise an error, because the error would reveal that value.
So a value that does not fit becomes null.
Casts and parsers are non-strict, and `list.get` returns null beyond the end.
`pl.date` and `pl.datetime` return null if there is no such date.
Local times that a clock change skips or repeats are null.
Dates beyond the years 1 to 9999 are moved to these.
"""


FLOATS = """\
### Sums of floats

The last bit of a float sum depends on the order of addition, and that follows from other rows.
So `list.sum` and `list.mean` of floats add whole numbers ([proof](../proofs/whole-numbers.md)):

- Each float counts to the nearest 2⁻⁴⁰, which is about 10⁻¹².
- A float beyond ±2⁵⁴ (about 1.8 · 10¹⁶), an infinity or NaN makes the answer of that list null.

`explain` mentions it, and no warning depends on values.
Means of integers, booleans and Decimals are exact sums, divided by the count.
Sums of Decimals beyond 2⁹⁴ units of the last digit are null.

## Several rows of one person

Transformations that read several rows of one person belong before `protect`.
[Prepare person-level data](../people.md) has recipes.
A private frame refuses `group_by` and `over` of the unit, `unique`, and joins with private frames.
The error shows a replacement.
"""


def page() -> str:
    """Return the page."""
    taken = FUNCTIONS | (SPELLINGS.keys() - OPERATORS)
    listed = sorted({way for name in taken for way in written(name)} - {"cast"})
    flat = [name for name in listed if "." not in name or name.startswith("pl.")]
    spaces = sorted({name.partition(".")[0] for name in listed} - {"pl", *flat})
    of_columns = sorted({way for name in OF_COLUMNS for way in written(name)})
    methods = [name for name in dir(PrivateFrame) if not name.startswith("_") and name != "collect"]
    tested = " and ".join(TESTED)
    parts = [
        HEAD.format(tested=tested),
        "## Methods of a private frame\n",
        f"{_code(methods)}.\n",
        "Their parameters are on the page [`PrivateFrame`](private_frame.md).\n",
        "## Accepted expressions\n",
        f"- Columns, selectors, constants, names, casts, `pl.when`, `fill_nan`; {_code(sorted(OPERATORS))}.",
        f"- Functions: {_code(flat)}.",
        *(
            f"- `{space}`: {_code(n.partition('.')[2] for n in listed if n.startswith(space + '.'))}."
            for space in spaces
        ),
        f"\nParameters must be constants, except in {_code(of_columns)}: their inputs may all be columns.\n",
        FLOATS,
        "## Accepted on Polars 1\n",
        "On Polars 1, functions of many types look at whole columns.",
        "There a private frame accepts a short list for numbers (integers of up to 64 bits, floats of 32 and 64),",
        "texts and booleans.",
        "Every other transformation needs Polars 2:\n",
        *(
            f"- {_kinds(kinds)}: {_code(sorted({way for name in steps for way in written(name)}))}."
            for steps, kinds in ON_POLARS_1.items()
        ),
        f"\n{_code(sorted(OF_ONE_TYPE))} take columns of one type there, with constants of that kind.\n",
        "## Refused expressions\n",
        _table((*UNLISTED, NEEDS_POLARS_2, *LISTED)),
        "Every transformation also runs on extreme values of its types, and is refused if it raises on one:\n",
        _table(RAISING),
        "It runs on each of them alone, twice, and before and after a null, and is refused if the results differ.\n",
        "## Refused methods\n",
        _table(METHODS),
        "## Refused before `protect`\n",
        "Everything before `protect` is [your preprocessing](../protected.md#the-data-set).\n",
        "A LazyFrame is checked only for slips: transformations that visibly mix people.",
        "The unit is followed through renames and selections.",
        "Casts, parsers, arithmetic, dates, floats, orders, lists, joins with other tables, and windows and groups that",  # noqa: E501
        "include the unit pass.",
        "A refusal gives the reason, and `unchecked=True` accepts the plan:\n",
        "| transformation | why | what to do |",
        "|---|---|---|",
        *(f"| {what} | {kind.does} | {kind.hint} |".replace("{unit}", "the unit") for what, kind in KINDS.items()),
        "",
        "Fix the order of a person's rows yourself, before you use `first`, `head`, `shift` or running values.",
        "`group_by`, `unique`, `join` and `sort` of ties keep an order only with `maintain_order=True`.",
        "Without it, other people's rows may decide which row comes first.",
        "So sort by columns that never tie, or write `maintain_order=True`.",
    ]
    return "\n".join(parts).rstrip() + "\n"


def _kinds(kinds: Iterable[str]) -> str:
    words = {"any": "values of any type", "number": "numbers", "text": "texts", "boolean": "booleans"}
    return ", ".join(words[kind] for kind in sorted(kinds)).capitalize()


def _code(names: Iterable[str]) -> str:
    return ", ".join(name if name.startswith("a ") else f"`{name}`" for name in names)


def _marked(text: str) -> str:
    """Return a hint in which what is Python stands as code: from each word on, the most words that can be parsed."""
    words, marked = text.split(" "), []
    while words:
        for end in range(len(words), 0, -1):
            code = " ".join(words[:end])
            after = code[len(code.rstrip(".,;:")) :]
            code = code.removesuffix(after)
            if _is_code(code):
                marked.append(f"`{code}`{after}")
                break
        else:
            end = 1
            marked.append(words[0])
        words = words[end:]
    return " ".join(marked)


def _is_code(text: str) -> bool:
    """Whether a text is Python and calls, reads or sets something; `…` stands for anything."""
    try:
        (statement,) = ast.parse(text.replace("…", "...")).body
    except (SyntaxError, ValueError):
        return False
    if not isinstance(statement, ast.Expr):
        return isinstance(statement, ast.Assign)
    nodes = list(ast.walk(statement.value))
    # `a in b`, `a and b`, `a, b` and `use (a)` are English here.
    is_english = isinstance(statement.value, ast.Tuple) or any(isinstance(node, (ast.BoolOp, ast.In)) for node in nodes)
    is_english |= re.match(r"\w+ \(", text) is not None
    return not is_english and any(isinstance(node, (ast.Attribute, ast.Call, ast.Subscript)) for node in nodes)


def _table(rules: tuple[Rule, ...]) -> str:
    rows = ["| Transformation | Why not | Instead |", "|---|---|---|"]
    for rule in rules:
        ways = sorted({way for name in rule.steps for way in written(name)})
        steps = LABELS.get(rule.steps) or (_code(ways) if ways else "" if rule.condition else "any other")
        cells = [f"{steps} {rule.condition}".strip(), rule.why, _marked(rule.instead)]
        rows.append("| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
