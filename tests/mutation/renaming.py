"""Names of the package that changed are written into the mutants."""

from __future__ import annotations

import ast
import re
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def rename(names: Mapping[str, str], folder: Path) -> list[Path]:
    """Change words in the functions and texts of the mutants in a folder; return the files that changed."""
    changed = []
    for path in sorted(folder.glob("*.py")):
        source = path.read_bytes()
        new = renamed(source, names) if b"MUTANTS = [" in source else source
        if new != source:
            path.write_bytes(new)
            changed.append(path)
    return changed


def renamed(source: bytes, names: Mapping[str, str]) -> bytes:
    """Return a file of mutants in which the first three arguments of each have the new names."""
    words = re.compile(rf"\b({'|'.join(map(re.escape, names))})\b")
    starts = [0, *accumulate(map(len, source.splitlines(keepends=True)))]
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call) and len(node.args) > 3]
    pieces, done = [], 0
    for text in sorted((arg for call in calls for arg in call.args[:3]), key=lambda arg: (arg.lineno, arg.col_offset)):
        start, end = starts[text.lineno - 1] + text.col_offset, starts[text.end_lineno - 1] + text.end_col_offset
        pieces += [source[done:start], words.sub(lambda word: names[word[0]], source[start:end].decode()).encode()]
        done = end
    return b"".join([*pieces, source[done:]])
