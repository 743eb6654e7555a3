"""What is typed into a field, as the value that it stands for and as the code that makes it."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import NamedTuple

import polars as pl

from dp_polars._codes.grids import grid

_WIDTH = 84
_INDENT = " " * 4
# Two ends, and a step: 0..120, or 0..30 by 0.5.
_RANGE = re.compile(r"\s*(?P<first>[^.\s]\S*?|\S+?)\s*\.\.\s*(?P<last>\S+)(?:\s+(?:by|step)\s+(?P<step>\S+))?\s*")


class Written(NamedTuple):
    """A value with the code that makes it."""

    value: object
    code: str


class Ends(NamedTuple):
    """Two ends and a step that were typed; what is missing is None."""

    first: object
    last: object
    step: object


def as_code(value: object) -> str:
    """Return a value as Python writes it, text in double quotes."""
    if isinstance(value, Written):
        return value.code
    if isinstance(value, str):
        text = repr(value)
        return text if '"' in value else f'"{text[1:-1]}"'.replace("\\'", "'")
    if isinstance(value, list):
        return _wrapped("[", [as_code(each) for each in value], "]")
    if isinstance(value, Mapping):
        return _wrapped("{", [f"{as_code(name)}: {as_code(each)}" for name, each in value.items()], "}")
    return repr(value)


def call(name: str, /, *arguments: object, **named: object) -> str:
    """Return the code of a call, broken into lines where it is long."""
    plain = [as_code(each) for each in arguments]
    if all(key.isidentifier() and not _is_keyword(key) for key in named):
        return _wrapped(f"{name}(", [*plain, *(f"{key}={as_code(each)}" for key, each in named.items())], ")")
    return _wrapped(f"{name}(", [*plain, f"**{as_code(named)}"], ")")


def _is_keyword(name: str) -> bool:
    try:
        ast.parse(f"f({name}=1)")
    except SyntaxError:
        return True
    return False


def _wrapped(begin: str, parts: list[str], end: str) -> str:
    """Return parts in brackets: in one line, or in lines of their own."""
    line = f"{begin}{', '.join(parts)}{end}"
    if len(line) <= _WIDTH - 24 and "\n" not in line:
        return line
    return "\n".join([begin, *(indented(f"{part},") for part in _filled(parts)), end])


def _filled(parts: list[str]) -> list[str]:
    """Return parts of a long list with several in a line."""
    if len(parts) <= 12 or any("\n" in part or "=" in part for part in parts):
        return parts
    lines = [parts[0]]
    for part in parts[1:]:
        if len(lines[-1]) + len(part) + 2 <= _WIDTH - 24:
            lines[-1] += f", {part}"
        else:
            lines.append(part)
    return lines


def indented(code: str) -> str:
    """Return code one step further to the right."""
    return "\n".join(_INDENT + line for line in code.split("\n"))


def one(text: str, dtype: pl.DataType) -> object:
    """Return the value of a line for a column of this type; the text itself where it is none: the package refuses it."""
    text = text.strip()
    if text in ("null", "None"):
        return None
    if text[:1] in ("'", '"'):
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
        pl.Datetime: datetime.fromisoformat,
        pl.Time: time.fromisoformat,
    }
    reader = of_type.get(dtype.base_type())
    return () if reader is None else (reader,)


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
    made = grid(first, last, step=step)  # type: ignore[call-overload]  # it says what does not fit
    return Written(made, call("dpp.grid", first, last, step=step))


def _is_text(dtype: pl.DataType) -> bool:
    return isinstance(dtype, (pl.String, pl.Categorical, pl.Enum))
