"""Where a mutant fits: the definition that it names, and what there reads as its old text.

Both are compared as syntax trees. Layout, comments, quotes, files and packages don't matter.
"""

from __future__ import annotations

import ast
from copy import deepcopy
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.helpers.places import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.mutation.mutant import Mutant

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign)
_TOGETHER = {ast.Call: ("args", "keywords"), ast.Dict: ("keys", "values")}  # what stands in one list of the text


class MisfitError(Exception):
    """Why a mutant can't be applied."""


@dataclass(frozen=True)
class Definition:
    """A statement that binds a name in a module or in a class; `path` is below `dp_polars/`."""

    path: Path
    node: Any

    @property
    def first_line(self) -> int:
        return min(part.lineno for part in [self.node, *getattr(self.node, "decorator_list", [])])


@dataclass(frozen=True)
class _Place:
    """`count` neighbours from `start` on, among the parts of `owner` that stand in one list of its text."""

    owner: ast.AST
    fields: tuple[str, ...]
    start: int
    count: int

    def parts(self) -> list[Any]:
        values = [getattr(self.owner, field) for field in self.fields]
        if isinstance(self.owner, ast.Dict):
            return list(chain(*zip(*values, strict=True)))
        return [part for value in values for part in (value if isinstance(value, list) else [value])]

    def may_become(self, new: Sequence[ast.AST]) -> bool:
        if isinstance(self.owner, ast.Dict | ast.Compare):
            return len(new) % 2 == self.count % 2
        return bool(new) or isinstance(getattr(self.owner, self.fields[0]), list)

    def change(self, new: Sequence[ast.AST]) -> None:
        parts = self.parts()
        parts[self.start : self.start + self.count] = new
        if isinstance(self.owner, ast.Dict):
            self.owner.keys, self.owner.values = parts[::2], parts[1::2]
        elif isinstance(self.owner, ast.Call) and len(self.fields) == 2:
            self.owner.args = [part for part in parts if not isinstance(part, ast.keyword)]
            self.owner.keywords = [part for part in parts if isinstance(part, ast.keyword)]
        elif isinstance(getattr(self.owner, self.fields[0]), list):
            setattr(self.owner, self.fields[0], parts or ([ast.Pass()] if self.fields == ("body",) else []))
        else:
            setattr(self.owner, self.fields[0], parts[0])


@cache
def definitions(package: Path = ROOT / "dp_polars") -> dict[str, list[Definition]]:
    """Return what the package defines, by qualified name; what a function defines is a part of it."""
    found: dict[str, list[Definition]] = {}

    def collect(path: Path, body: Sequence[ast.AST], prefix: str) -> None:
        for node in body:
            if isinstance(node, _DEFINITIONS):
                for name in _names(node):
                    found.setdefault(prefix + name, []).append(Definition(path, node))
                if isinstance(node, ast.ClassDef):
                    collect(path, node.body, f"{prefix}{node.name}.")
            elif isinstance(node, ast.If | ast.Try):
                collect(path, [part for part in ast.iter_child_nodes(node) if isinstance(part, ast.stmt)], prefix)

    for path in sorted(package.rglob("*.py")):
        collect(path.relative_to(package), ast.parse(path.read_text(encoding="utf-8")).body, "")
    return found


def _names(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Assign | ast.AnnAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        return [part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name)]
    return [node.name]


def defined(name: str, package: Path = ROOT / "dp_polars") -> list[Definition]:
    """Return the definitions of a name, `hint:name` where several files have it: all of them are in one file."""
    hint, _, name = name.rpartition(":")
    known = definitions(package)
    found = [each for each in known.get(name, []) if f"/{hint}/" in f"//{each.path.with_suffix('').as_posix()}/"]
    files = sorted({each.path.as_posix() for each in found})
    if len(files) > 1:
        raise MisfitError(
            f"it is defined in {', '.join(files)}: say in which, as in {files[0].removesuffix('.py')}:{name}"
        )
    if not found:
        last = name.rpartition(".")[2]
        near = [other for other in known if other.rpartition(".")[2] == last] or get_close_matches(name, known)
        raise MisfitError(f"nothing has that name{_nearest(near)}")
    return found


def _nearest(near: Sequence[str]) -> str:
    return f"; the nearest: {', '.join(near[:3])}" if near else ""


def readings(old: str, new: str) -> Iterator[tuple[Any, list[Any], list[Any]]]:
    """Yield what two texts may mean: in which nodes to look, for what, and what stands there instead."""
    before, after = _read("{}", old), _read("{}", new)
    if before and after is not None:
        alone = [each.value for each in before + after if isinstance(each, ast.Expr)]
        is_expression = len(before) == 1 and len(after) < 2 and len(alone) == len(before + after)
        if is_expression:
            yield ast.AST, alone[:1], alone[1:]
        if not is_expression or not after:
            yield ast.AST, before, after
    called, otherwise = _read("_({})", old), _read("_({})", new)
    if called and otherwise:
        parts, others = ([*each[0].value.args, *each[0].value.keywords] for each in (called, otherwise))
        if len(parts) > 1 or len(others) > 1 or any(isinstance(part, ast.keyword) for part in parts):
            yield ast.Call | ast.Tuple | ast.List | ast.Set, parts, others
    entries, others = _read("{{{}}}", old), _read("{{{}}}", new)
    if entries and others and all(isinstance(each[0].value, ast.Dict) for each in (entries, others)):
        yield ast.Dict, *(_Place(each[0].value, _TOGETHER[ast.Dict], 0, 0).parts() for each in (entries, others))


def _read(form: str, text: str) -> list[Any] | None:
    try:
        return ast.parse(form.format(text)).body
    except SyntaxError:
        return None


def places(node: ast.AST, parts: Sequence[ast.AST], owners: Any = ast.AST) -> list[_Place]:
    """Return where a run of nodes reads as those do."""
    found: list[_Place] = []
    for owner in ast.walk(node):
        for place in _lists(owner) if isinstance(owner, owners) else ():
            own, count = place.parts(), len(parts)
            starts = range(len(own) - count + 1)
            found += [_Place(owner, place.fields, i, count) for i in starts if _same(own[i : i + count], parts)]
    return found


def _same(a: Any, b: Any) -> bool:
    """Return whether two parts of syntax trees read alike; a name that is set reads like one that is read."""
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, ast.expr_context):
        return isinstance(b, ast.expr_context)
    if isinstance(a, ast.AST):
        return type(a) is type(b) and all(
            _same(getattr(a, field, None), getattr(b, field, None)) for field in a._fields
        )
    return type(a) is type(b) and repr(a) == repr(b)


def _lists(owner: ast.AST) -> Iterator[_Place]:
    together = _TOGETHER.get(type(owner), ())
    for fields in (together, *((field,) for field in owner._fields if field not in together)):
        if fields and isinstance(getattr(owner, fields[0], None), list | ast.AST):
            yield _Place(owner, fields, 0, 0)


def matches(mutant: Mutant, found: Sequence[Definition]) -> list[tuple[Definition, _Place, list[Any]]]:
    """Return where the old text is in some definitions, and what would stand there."""
    return [
        (each, place, new)
        for owners, old, new in readings(mutant.old, mutant.new)
        for each in found
        for place in places(each.node, old, owners)
        if place.may_become(new)
    ]


def mutated(mutant: Mutant, package: Path = ROOT / "dp_polars") -> tuple[Path, str]:
    """Return the file that a mutant changes, below `dp_polars/`, and its text with the mutant."""
    found = matches(mutant, [Definition(each.path, deepcopy(each.node)) for each in defined(mutant.function, package)])
    if len(found) != 1:
        near = "" if found else _nearest(_alike(mutant.old, mutant.function, package))
        raise MisfitError(f"the old text must be there once, is there {len(found)} times{near}")
    definition, place, new = found[0]
    if _same(place.parts()[place.start : place.start + place.count], new):
        raise MisfitError("the mutant changes nothing")
    lines = (package / definition.path).read_text(encoding="utf-8").split("\n")
    before, after = lines[: definition.first_line - 1], lines[definition.node.end_lineno :]
    place.change(new)
    return definition.path, "\n".join([*before, _written(definition.node), *after])


def _written(node: Any) -> str:
    """Return the text of a definition at its depth, which blocks around it make: to indent lines would change strings."""
    depth = node.col_offset // 4
    for _ in range(depth):
        node = ast.If(ast.Constant(True), [node], [])
    return ast.unparse(node).split("\n", depth)[depth]


def _alike(text: str, function: str, package: Path) -> list[str]:
    """Return what reads most like a text: parts of its function, or other functions that have it."""
    parts = next((old for _, old, _ in readings(text, text)), [])
    others = [
        name for name, found in definitions(package).items() if parts and any(places(e.node, parts) for e in found)
    ]
    here = {
        ast.unparse(part)
        for each in defined(function, package)
        for part in ast.walk(each.node)
        if isinstance(part, ast.expr | ast.stmt | ast.keyword)
    }
    return [*(f"`{near}`" for near in get_close_matches(text, here, 2, 0.5)), *(f"in {name}" for name in others)]
