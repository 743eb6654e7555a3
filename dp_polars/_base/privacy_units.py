"""The privacy unit: the columns whose values together say whose a row is."""

from __future__ import annotations

import json
from typing import TypeAlias

from dp_polars._base.numbers import given

#: Names of columns, sorted, each once.
PrivacyUnit: TypeAlias = tuple[str, ...]


def privacy_unit_of(names: object) -> PrivacyUnit | None:
    """Return what `protect` is given as the privacy unit, checked: None, a name or a list of names, in any order."""
    if names is None:
        return None
    unit = (names,) if isinstance(names, str) else names
    if not isinstance(unit, (list, tuple)) or not all(isinstance(name, str) for name in unit):
        msg = f"privacy_unit must be the name of a column, a list of names, or None, got {given(names)}."
        raise TypeError(msg)
    if not unit or len({*unit}) < len(unit):
        msg = (
            f"privacy_unit must name at least one column, and each once, got {list(unit)}.\n\n"
            "Hint: protect(None) says that every row is another person."
        )
        raise ValueError(msg)
    return tuple(sorted(unit))


def text_of(unit: PrivacyUnit | None) -> str | None:
    """Return a privacy unit as a ledger holds it, no two alike: the name of one column, or several as JSON."""
    if unit is None:
        return None
    is_name = len(unit) == 1 and not unit[0].startswith("[")  # such a name could be what several are written as
    return unit[0] if is_name else json.dumps(unit, ensure_ascii=False)


def unit_of_text(text: str | None) -> PrivacyUnit | None:
    """Return the privacy unit that `text_of` wrote."""
    if text is None:
        return None
    return tuple(json.loads(text)) if text.startswith("[") else (text,)


def shown(unit: PrivacyUnit) -> str:
    """Return a privacy unit as a user writes it in `protect`."""
    return repr(unit[0] if len(unit) == 1 else list(unit))


def as_arguments(unit: PrivacyUnit) -> str:
    """Return the names of a privacy unit as a user writes them in `group_by` or `over`."""
    return ", ".join(map(repr, unit))
