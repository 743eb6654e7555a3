"""What is typed into a field, as the value that it stands for and as the code that makes it."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from functools import partial
from keyword import iskeyword
from typing import NamedTuple, TypeAlias
from unicodedata import normalize

import polars as pl

from dp_polars._codes.grids import grid

# Characters of a line of code, so that it fits next to the fields.
_WIDTH = 76
# One text in quotes, as Python writes it.
_QUOTED = re.compile(r"'([^'\\]|\\.)*'|\"([^\"\\]|\\.)*\"")
# Two ends, and a step: 0..120, or 0..30 by 0.5.
_RANGE = re.compile(r"\s*(?P<first>\S+?)\s*\.\.\s*(?P<last>\S+)(?:\s+(?:by|step)\s+(?P<step>\S+))?\s*")


Code: TypeAlias = "str | Bracket"


class Bracket(NamedTuple):
    """Code in brackets, each part with what stands before it: in one line, or in lines of their own."""

    begin: str
    parts: list[tuple[str, Code]]
    end: str

    def __str__(self) -> str:
        return f"{self.begin}{', '.join(f'{before}{code}' for before, code in self.parts)}{self.end}"


class Written(NamedTuple):
    """A value with the code that makes it."""

    value: object
    code: Code


def public(value: object) -> object:
    """Return a value without the code that makes it."""
    return value.value if isinstance(value, Written) else value


class Ends(NamedTuple):
    """Two ends and a step that were typed; what is missing is None."""

    first: object
    last: object
    step: object


def as_code(value: object) -> Code:
    """Return a value as Python writes it, text in double quotes."""
    if isinstance(value, Written):
        return value.code
    if isinstance(value, str):
        text = repr(value)
        return text if '"' in value else f'"{text[1:-1]}"'
    if isinstance(value, Decimal):
        return f'Decimal("{value}")'
    if isinstance(value, list):
        return Bracket("[", [("", as_code(item)) for item in value], "]")
    if isinstance(value, Mapping):
        return Bracket("{", [(f"{as_code(name)}: ", as_code(item)) for name, item in value.items()], "}")
    if isinstance(value, pl.Enum):
        return call("pl.Enum", value.categories.to_list())
    return f"pl.{value}" if isinstance(value, pl.DataType) else repr(value)


def call(name: str, /, *arguments: object, **named: object) -> Bracket:
    """Return the code of a call. Names that Python doesn't take, or takes for other ones, are those of a dict."""
    parts = [("", as_code(item)) for item in arguments]
    if all(key.isidentifier() and not iskeyword(key) and key == normalize("NFKC", key) for key in named):
        return Bracket(f"{name}(", [*parts, *((f"{key}=", as_code(item)) for key, item in named.items())], ")")
    return Bracket(f"{name}(", [*parts, ("**", as_code(named))], ")")


def laid_out(code: Code, before: str = "", indent: str = "", after: str = "") -> str:
    """Return code in lines that are no longer than they must be, with what stands before and after it."""
    line = f"{indent}{before}{code}{after}"
    if isinstance(code, str) or len(line) <= _WIDTH:
        return line
    deeper, lines = indent + " " * 4, [f"{indent}{before}{code.begin}"]
    is_list = all(isinstance(part, str) and not prefix for prefix, part in code.parts)
    for prefix, part in code.parts:
        if is_list and len(lines) > 1 and len(lines[-1]) + len(part) + 2 <= _WIDTH:
            lines[-1] += f" {part},"
        else:
            lines.append(laid_out(part, prefix, deeper, ","))
    return "\n".join([*lines, f"{indent}{code.end}{after}"])


def one(text: str, dtype: pl.DataType) -> object:
    """Return the value of a line for a column of this type; the text itself where it is none, to be refused."""
    text = text.strip()
    if text in ("null", "None"):
        return None
    if _QUOTED.fullmatch(text):
        try:
            return str(ast.literal_eval(text))
        except (SyntaxError, ValueError):
            return text
    for reader in _readers(dtype):
        try:
            return reader(text)
        except (ValueError, InvalidOperation):
            continue
    return text


def _readers(dtype: pl.DataType) -> tuple[Callable[[str], object], ...]:
    if isinstance(dtype, pl.Decimal):
        return (int, Decimal)
    if dtype.is_numeric():
        return (int, float)
    of_type: dict[object, Callable[[str], object]] = {
        pl.Boolean: _boolean,
        pl.Date: date.fromisoformat,
        pl.Datetime: partial(_datetime, zone=getattr(dtype, "time_zone", None)),
        pl.Time: time.fromisoformat,
    }
    reader = of_type.get(dtype.base_type())
    return () if reader is None else (reader,)


def _datetime(text: str, zone: str | None) -> datetime:
    read = datetime.fromisoformat(text)
    return read.replace(tzinfo=UTC) if zone == "UTC" and read.tzinfo is None else read


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError
    return text.lower() == "true"


def ends(text: str, dtype: pl.DataType) -> Ends | None:
    """Return the two ends that a text has, and its step; None where it has none."""
    found = None if _is_text(dtype) else _RANGE.fullmatch(text)
    if found is None:
        return None
    step = found["step"]
    first, last = (one(found[end], dtype) for end in ("first", "last"))
    return Ends(first, last, step if step is None or dtype.is_temporal() else one(step, dtype))


def several(text: str, dtype: pl.DataType) -> object:
    """Return the public values that a text has, one a line: a list, or what its ends stand for."""
    found = ends(text, dtype)
    if found is None:
        return [one(line, dtype) for line in text.splitlines() if line.strip()]
    first, last, step = found
    if isinstance(first, int) and isinstance(last, int) and step is None:
        return range(first, last + 1) if first else Written(range(last + 1), f"range({last + 1})")
    step = ("1d" if dtype == pl.Date else 1) if step is None else step
    points = grid(first, last, step=step)  # type: ignore[call-overload]  # it says what does not fit
    return Written(points, call("dpp.grid", first, last, step=step))


def _is_text(dtype: pl.DataType) -> bool:
    return isinstance(dtype, (pl.String, pl.Categorical, pl.Enum))
