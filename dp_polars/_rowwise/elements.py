"""What `list.eval`, `list.filter` and `list.agg` do to a row's own list, taken apart.

What is computed from each element is proved row by row, on columns in place of `pl.element()`. In between stand single
functions of the list's own elements, whose result its order decides and no other row.
"""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any, TypeAlias

import polars as pl

from dp_polars._rowwise import nodes
from dp_polars._rowwise.names import names

if TYPE_CHECKING:
    from polars._typing import PolarsDataType

    from dp_polars._rowwise.nodes import Step

Tree: TypeAlias = Any  # an expression as JSON

# Functions of a list's own elements by the types that they take, and whether they give one value for each element, for
# some, or one. Sums of floats are rounded by their order, and those of Decimals overflow.
_OF_ALL = {
    **dict.fromkeys(names("count first last len null_count"), "one"),
    **dict.fromkeys(names("reverse shift"), "each"),
    **dict.fromkeys(names("drop_nulls filter slice unique"), "some"),
}
_OF_NUMBERS = {"max": "one", "min": "one", "rank": "each"}  # floats, too
_OF_EXACT = {
    **_OF_NUMBERS,
    **dict.fromkeys(names("all any n_unique"), "one"),
    **dict.fromkeys(names("cum_count cum_max cum_min diff is_duplicated is_first_distinct is_unique sort"), "each"),
}
_OF_INTEGERS = {"cum_sum": "each", "sum": "one"}
TAKEN = frozenset({*_OF_ALL, *_OF_EXACT, *_OF_INTEGERS})


class Body:
    """An expression on the elements of a list, as steps that are row by row and functions in between.

    `parts` are the steps, each on columns; `refused` says what else there is. `together` puts all in place again.
    """

    def __init__(self, step: Step) -> None:
        dtype: Any = step.inputs[0].dtypes()[0]
        self.columns: dict[str, Any] = {"element": dtype.inner}
        self.made: dict[str, Tree] = {"element": "Element"}
        self.lengths = {"element": "each"}  # whether a column has one value for each element, for some, or one
        self.parts: list[Step] = []
        self.refused, self.rewritten = "", False
        self.whole = self.part(self.lowered(deepcopy(step.tree["Eval"]["evaluation"])))
        if (
            not self.refused
            and self.length(self.whole) == "one"
            and step.name == "list.eval"
            and not _columns(self.whole)
        ):
            self.refused = "no element is in it"

    def lowered(self, tree: Tree) -> Tree:
        """Return an expression with columns in place of elements and of functions of a list."""
        function = _function(tree)
        if function is None:
            match tree:
                case "Element" | {"Column": ""}:
                    return {"Column": "element"}
                case {"Column": _} | {"Selector": _}:
                    self.refused = "a column of the frame"
                case {"Literal": _}:
                    return tree
                case dict():
                    return {key: self.lowered(value) for key, value in tree.items()}
                case list():
                    return [self.lowered(value) for value in tree]
            return tree
        name, places = function
        if name == "len" and not places:
            return self.column(tree, "one", pl.get_index_type())
        trees = [place[key] for place, key in places]
        inputs = [self.part(self.lowered(item)) for item in trees]
        if self.refused:
            return tree
        types = [self.type(item) for item in inputs]
        length = _OF_ALL.get(name)
        if length is None and _is_exact(types[0]):
            length = _OF_EXACT.get(name)
        if length is None and types[0].is_float():
            length = _OF_NUMBERS.get(name)
        if name == "rank" and tree["Function"]["function"]["Rank"]["options"]["method"] in {"Ordinal", "Random"}:
            length = None
        if length is None and types[0].is_integer():
            length = _OF_INTEGERS.get(name)
        if length is None or any(self.length(item) != "each" for item in inputs):
            self.refused = f"{name} of {types[0]}"
            return tree
        for (place, key), item in zip(places, inputs, strict=True):
            place[key] = item
        if name == "unique" and tree["Function"]["function"] != {"Unique": True}:
            tree["Function"]["function"], self.rewritten = {"Unique": True}, True  # in the order of the list
        dtype = pl.LazyFrame(schema=self.columns).select(nodes.without_nan(tree)).collect_schema().dtypes()[0]
        return self.column(tree, length, dtype)

    def part(self, tree: Tree) -> Tree:
        """Note what is to be proved row by row."""
        if not self.refused:
            lengths = sorted(self.lengths[name] for name in _columns(tree) if self.lengths[name] != "one")
            if len(set(lengths)) > 1 or lengths.count("some") > 1:
                self.refused = "lists of several lengths"
            elif tree not in ({"Column": name} for name in self.columns):
                self.parts.append(nodes.read(tree, pl.LazyFrame(schema=self.columns)))
        return tree

    def column(self, tree: Tree, length: str, dtype: PolarsDataType) -> Tree:
        name = f"made {len(self.made)}"
        self.columns[name], self.lengths[name], self.made[name] = dtype, length, tree
        return {"Column": name}

    def type(self, tree: Tree) -> pl.DataType:
        return pl.LazyFrame(schema=self.columns).select(nodes.without_nan(tree)).collect_schema().dtypes()[0]

    def length(self, tree: Tree) -> str:
        return next((self.lengths[name] for name in _columns(tree) if self.lengths[name] != "one"), "one")

    def together(self) -> Tree:
        """Return the whole expression, with the elements and functions again in place of the columns."""

        def put(tree: Tree) -> Tree:
            match tree:
                case {"Column": str(name)}:
                    return "Element" if name == "element" else put(self.made[name])
                case dict():
                    return {key: put(value) for key, value in tree.items()}
                case list():
                    return [put(value) for value in tree]
            return tree

        return put(self.whole)


def _function(tree: Tree) -> tuple[str, list[tuple[Any, str | int]]] | None:
    """Return the name of a function of a list's elements, and where its inputs stand; None for any other."""
    match tree:
        case "Len":
            return "len", []
        case {"Agg": {**kinds}}:
            (kind,) = kinds
            value: Any = kinds[kind]
            is_deep = isinstance(value, dict) and "input" in value
            return nodes.function_name(str(kind)), [(value, "input") if is_deep else (tree["Agg"], str(kind))]
        case {"Filter": {"input": _, "by": _} as place}:
            return "filter", [(place, "input"), (place, "by")]
        case {"Sort": {"expr": _} as place}:
            return "sort", [(place, "expr")]
        case {"Slice": {"input": _, "offset": {"Literal": _}, "length": {"Literal": _}} as place}:
            return "slice", [(place, "input")]
        case {"Function": {"input": inputs, "function": function}}:
            name = nodes.function_of(function)[0]
            is_public = all(isinstance(item, dict) and "Literal" in item for item in inputs[1:])
            if name in TAKEN and is_public:
                return name, [(inputs, 0)]
    return None


def _is_exact(dtype: pl.DataType) -> bool:
    return dtype.is_integer() or dtype.is_temporal() or dtype in (pl.Boolean, pl.String)


def _columns(tree: Tree) -> set[str]:
    match tree:
        case {"Column": str(name)}:
            return {name}
        case dict():
            return set().union(*map(_columns, tree.values()))
        case list():
            return set().union(*map(_columns, tree))
    return set()
