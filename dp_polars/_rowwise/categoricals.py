"""Categories of our own, next to the user's, on which all is proved.

The mapping of Categories is one for the whole process, and to plan an expression is enough to add its texts to it.
No proof may add to the mapping of the private rows, and they must not decide whether there is room for a text. So all
is proved on Categories of our own, of the same physical type. Those of 8 and 16 bits are full: what would add a text
raises, however many categories the user's have.
"""

from __future__ import annotations

import secrets
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Callable

    from polars._typing import PolarsDataType

# What the names of Categories begin with that only synthetic rows have, and the physical types as JSON writes them.
_BESIDE = "synthetic rows of dp_polars: "
_PHYSICAL: dict[str, PolarsDataType] = {"U8": pl.UInt8, "U16": pl.UInt16, "U32": pl.UInt32}
_SECRET = secrets.token_hex(8)  # in the texts that fill them, so that no constant of the user's is among these
_Named: TypeAlias = "tuple[str, str, str]"  # Categories by name, namespace and physical type


def apart(tree: Any) -> Any:  # noqa: ANN401
    """Return a serialized expression with Categories of our own for those that it names."""
    return _renamed(tree, _beside)


def home(tree: Any) -> Any:  # noqa: ANN401
    """Return the serialized expression that `apart` was given."""
    return _renamed(tree, lambda named: (named[0].removeprefix(_BESIDE), named[1].removeprefix(_BESIDE), named[2]))


def apart_type(dtype: PolarsDataType) -> PolarsDataType:
    """Return a type with Categories of our own for those that it holds."""
    if isinstance(dtype, pl.Categorical):
        return _values(_beside(_named(dtype.categories))).dtype
    if isinstance(dtype, pl.List):
        return pl.List(apart_type(dtype.inner))
    if isinstance(dtype, pl.Array):
        return pl.Array(apart_type(dtype.inner), dtype.size)
    if isinstance(dtype, pl.Struct):
        return pl.Struct({field.name: apart_type(field.dtype) for field in dtype.fields})
    if isinstance(dtype, pl.BaseExtension):
        return pl.Extension(dtype.ext_name(), apart_type(dtype.ext_storage()), dtype.ext_metadata())
    return dtype


def values_of(dtype: pl.Categorical) -> pl.Series:
    """Return values of a type of our own, null first."""
    return _values(_named(dtype.categories))


def _renamed(tree: Any, rename: Callable[[_Named], _Named]) -> Any:  # noqa: ANN401
    match tree:
        case {"name": str(name), "namespace": str(namespace), "physical": "U8" | "U16" | "U32" as bits}:
            name, namespace, _ = rename((name, namespace, bits))
            return {**tree, "name": name, "namespace": namespace}
        case dict():
            return {key: _renamed(value, rename) for key, value in tree.items()}
        case list():
            return [_renamed(value, rename) for value in tree]
        case _:
            return tree


def _named(categories: pl.Categories) -> _Named:
    bits = next(bits for bits, physical in _PHYSICAL.items() if physical == categories.physical())
    return categories.name(), categories.namespace(), bits


def _beside(named: _Named) -> _Named:
    """Return our Categories for those of the user; ours stay themselves."""
    name, namespace, bits = named
    if not namespace.startswith(_BESIDE):
        named = f"{_BESIDE}{name}", f"{_BESIDE}{namespace}", bits
    _values(named)  # fills them
    return named


@lru_cache(maxsize=16)
def _values(named: _Named) -> pl.Series:
    """Return values, null first, of Categories of our own. As long as they are cached, these stay full."""
    name, namespace, bits = named
    dtype = pl.Categorical(pl.Categories(name, namespace, _PHYSICAL[bits]))
    if bits == "U32":
        return pl.Series([None, "", "a"], dtype=dtype)
    texts = [f"{_SECRET} {number}" for number in range(2 ** int(bits[1:]) - 1)]
    return pl.Series([None, *texts], dtype=dtype)[:3]
