"""Try expressions on extreme values, and on categories of our own in place of the user's."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING, Any, TypeAlias

import polars as pl
from polars.exceptions import PanicException, PolarsError

from dp_polars._base.column_types import with_leaves
from dp_polars._steps.nodes import ExprNode, inside, without_nan

if TYPE_CHECKING:
    from polars._typing import PolarsDataType


# The prefix of the names of Categories for synthetic rows, with their physical types as in JSON.
_BESIDE = "synthetic rows of dp_polars: "
_PHYSICAL: dict[str, PolarsDataType] = {"U8": pl.UInt8, "U16": pl.UInt16, "U32": pl.UInt32}
_SECRET = secrets.token_hex(8)  # in the texts that fill them, so that no user's constant equals one
_Named: TypeAlias = "tuple[str, str, str]"  # Categories by name, namespace and physical type


def apart(tree: Any) -> Any:  # noqa: ANN401
    """Replace Categories in a serialized expression by our own."""
    return _renamed(tree, _beside)


def home(tree: Any) -> Any:  # noqa: ANN401
    """Undo `apart`."""
    return _renamed(tree, lambda named: (named[0].removeprefix(_BESIDE), named[1].removeprefix(_BESIDE), named[2]))


def apart_type(dtype: PolarsDataType) -> PolarsDataType:
    """Replace Categories in a type by our own."""

    def of_ours(leaf: PolarsDataType) -> PolarsDataType:
        return _values(_beside(_named(leaf.categories))).dtype if isinstance(leaf, pl.Categorical) else leaf

    return with_leaves(dtype, of_ours)


def _renamed(tree: Any, rename: Callable[[_Named], _Named]) -> Any:  # noqa: ANN401
    match tree:
        case {"name": str(name), "namespace": str(namespace), "physical": "U8" | "U16" | "U32" as bits}:
            name, namespace, _ = rename((name, namespace, bits))
            return {**tree, "name": name, "namespace": namespace}
    return inside(tree, lambda value: _renamed(value, rename))


def _named(categories: pl.Categories) -> _Named:
    bits = next(bits for bits, physical in _PHYSICAL.items() if physical == categories.physical())
    return categories.name(), categories.namespace(), bits


def _beside(named: _Named) -> _Named:
    """Return our Categories for the user's; ours stay."""
    name, namespace, bits = named
    if not namespace.startswith(_BESIDE):
        named = f"{_BESIDE}{name}", f"{_BESIDE}{namespace}", bits
    _values(named)  # fills them
    return named


@lru_cache(maxsize=16)
def _values(named: _Named) -> pl.Series:
    """Return values of our own Categories, null first. The cache keeps the Categories full."""
    name, namespace, bits = named
    dtype = pl.Categorical(pl.Categories(name, namespace, _PHYSICAL[bits]))
    if bits == "U32":
        return pl.Series([None, "", "a"], dtype=dtype)
    texts = [f"{_SECRET} {number}" for number in range(2 ** int(bits[1:]) - 1)]
    return pl.Series([None, *texts], dtype=dtype)[:3]


# The years 1 to 9999, in days since 1970: the dates that Python can represent. Polars panics far beyond.
_FIRST_DAY, _LAST_DAY, _A_SATURDAY = -719_162, 2_932_896, 10_957
_UNITS_PER_DAY = {"ms": 86_400 * 10**3, "us": 86_400 * 10**6, "ns": 86_400 * 10**9}
_TEXTS: list[object] = [None, "", "a", "é🎉\0", "-12", "2020-13-45", "{"]
_ROWS, _ROWS_IN_COMPANY = 400, 16
# The places of inputs in a serialized operation.
_PLACES = {
    "BinaryExpr": ["left", "right"],
    "Cast": ["expr"],
    "Eval": ["expr"],
    "StructEval": ["expr"],
    "Ternary": ["predicate", "truthy", "falsy"],
}
_OBJECTS = [object(), object()]


def bounds(dtype: PolarsDataType) -> tuple[int, int] | None:
    """Return the first and last date or time of day that every function accepts. None: they accept all."""
    if dtype != pl.Date and (not isinstance(dtype, pl.Datetime) or dtype.time_unit == "ns"):
        return None
    day = _per_day(dtype)
    return _FIRST_DAY * day, (_LAST_DAY + 1) * day - 1


def failure(step: ExprNode, rewrite: Callable[[dict[str, Any]], dict[str, Any]] | None = None) -> str | None:
    """Return the error of an operation, after `rewrite`, on some value of its inputs' types. None: it never raises."""
    tree, dtypes = on_columns(step)
    values = many_values if len(dtypes) == 1 else extremes
    columns = [values(dtype).alias(f"{n}") for n, dtype in enumerate(dtypes)]
    return failure_on(_combine(columns), without_nan(rewrite(tree) if rewrite else tree))


def on_columns(step: ExprNode) -> tuple[dict[str, Any], list[PolarsDataType]]:
    """Return an operation on columns 0, 1, … in place of its varying inputs, and their types."""
    dtypes: list[PolarsDataType] = []
    inputs: list[Any] = []
    for value in step.inputs:
        types = value.dtypes() if value.varies else ()
        names = [f"{len(dtypes) + n}" for n in range(len(types))]
        dtypes += types
        inputs.append({"Selector": {"ByName": {"names": names, "strict": True}}} if names else value.tree)
    return with_inputs(step.tree, inputs), dtypes


@lru_cache(maxsize=1024)  # `agg` and each release prove the same output
def depends_on_company(dtypes: tuple[PolarsDataType, ...], text: str) -> bool:
    """Return whether a row's result changes if the row is repeated, or next to a null."""
    if not dtypes:  # a selector without columns
        return False
    expr = without_nan(json.loads(text))
    frame = _combine([extremes(dtype).alias(f"{n}") for n, dtype in enumerate(dtypes)], _ROWS_IN_COMPANY)
    null = frame.height
    frame = pl.concat([frame, frame.clear(1)])
    try:
        # `frame[[row]]` gathers: slices would still contain elements of other rows.
        by_themselves = pl.concat([frame[[row]].select(expr) for row in range(null + 1)])
        for row in range(null):
            for rows in ([row, row], [row, null], [null, row]):
                if not frame[rows].select(expr).equals(by_themselves[rows]):
                    return True
    except (PolarsError, PanicException):
        return True
    return False


def failure_on(frame: pl.DataFrame, expr: pl.Expr) -> str | None:
    """Return the error of an expression on a frame, or on columns that Polars stores as single values."""
    try:
        planned = frame.lazy().select(expr).collect_schema().dtypes()
        if frame.select(expr).dtypes != planned:
            return "it gives another type than Polars plans"
        if frame.width:
            frame.with_columns(expr)
            frame.clear(2).with_columns(expr)  # only nulls
            frame.head(2).with_columns(pl.all().last()).with_columns(expr)
    except (PolarsError, PanicException) as error:
        return str(error).partition("\n")[0]
    return None


def made_up(schema: pl.Schema) -> pl.DataFrame:
    return _combine([extremes(dtype).alias(name) for name, dtype in schema.items()])


def many_values(dtype: PolarsDataType) -> pl.Series:
    """Return extreme values of a type and values in between: all magnitudes of a number, all values of an Enum."""
    values = extremes(dtype)
    if isinstance(dtype, pl.Enum):
        return pl.Series([None, *dtype.categories], dtype=dtype)
    if dtype.is_float():
        more: list[object] = [sign * 10.0**power for power in range(-40, 41) for sign in (1, -1)]
    elif isinstance(dtype, pl.Decimal):
        digits = [(1,) + (0,) * zeros for zeros in range(dtype.precision)]
        more = [Decimal((sign, digit, -dtype.scale)) for digit in digits for sign in (0, 1)]
    elif dtype.is_integer():
        low, high = values.min(), values.max()
        powers = [base**power for base in (2, 10) for power in range(1, 128 if base == 2 else 39)]
        around = [sign * power + one for power in powers for sign in (1, -1) for one in (-1, 0)]
        more = [number for number in around if low <= number <= high]
    else:
        return values
    return pl.concat([values, pl.Series(more, dtype=pl.Float64 if dtype.is_float() else dtype).cast(dtype)])


def extremes(dtype: PolarsDataType) -> pl.Series:
    """Return edge-case values of a type, null first. Categories are our own: see `apart`."""
    dtype = apart_type(dtype)
    base = dtype.base_type()
    if isinstance(dtype, (pl.List, pl.Array)):
        inner = extremes(dtype.inner)
        if isinstance(dtype, pl.Array):  # all inner values, in the necessary number of rows
            rows = -(-len(inner) // dtype.size) if dtype.size else 1
            picks = [[(n * dtype.size + k) % len(inner) for k in range(dtype.size)] for n in range(rows + 1)]
        else:
            picks = [[], [0], [1 % len(inner)], [(2 + k) % len(inner) for k in range(3)], [*range(len(inner))]]
        none = pl.Series([None], dtype=pl.List(dtype.inner))
        values = pl.concat([none, *(inner.gather(pick).implode() for pick in picks)])
        return values.list.to_array(dtype.size) if isinstance(dtype, pl.Array) else values
    if isinstance(dtype, pl.Struct) and dtype.fields:
        fields = _combine([extremes(field.dtype).alias(field.name) for field in dtype.fields])
        return pl.concat([pl.Series([None], dtype=dtype), fields.to_struct().cast(dtype)])
    if isinstance(dtype, pl.BaseExtension):
        return extremes(dtype.ext_storage()).ext.to(dtype)
    if base == pl.Object:
        return pl.Series([None, *_OBJECTS], dtype=dtype)
    if isinstance(dtype, pl.Enum):
        return pl.Series([None, *dtype.categories[:9]], dtype=dtype)
    if isinstance(dtype, pl.Categorical):
        return _values(_named(dtype.categories))
    if isinstance(dtype, pl.Decimal):
        digits = (9,) * dtype.precision
        ends = [Decimal((sign, digits, -dtype.scale)) for sign in (0, 1)]
        return pl.Series([None, Decimal(0), Decimal((0, (1,), -dtype.scale)), *ends], dtype=dtype)
    if base.is_float():
        return pl.Series([None, 0.0, -1.5, float("nan"), float("inf"), float("-inf"), 1e4], dtype=dtype)
    if base.is_integer():
        bits = int(re.sub("[^0-9]", "", str(dtype)))
        low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if base.is_signed_integer() else (0, 2**bits - 1)
        middle = () if base.is_signed_integer() else (2 ** (bits - 1),)
        return pl.Series([None, 0, 1, *middle, low, high], dtype=dtype)
    if base == pl.Time:
        return pl.Series([None, 0, 86_400 * 10**9 - 1], dtype=pl.Int64).cast(dtype)
    if base.is_temporal():
        first, last = bounds(dtype) or (-(2**63) + 1, 2**63 - 1)
        return pl.Series([None, 0, first, last, _A_SATURDAY * _per_day(dtype)], dtype=pl.Int64).cast(dtype)
    flat: dict[type, list[object]] = {
        pl.Boolean: [None, True, False],
        pl.String: _TEXTS,
        pl.Binary: [None, b"", b"a", b"\xff"],
    }
    return pl.Series(flat.get(base, [None]), dtype=dtype)


def _per_day(dtype: PolarsDataType) -> int:
    return _UNITS_PER_DAY[dtype.time_unit] if isinstance(dtype, (pl.Datetime, pl.Duration)) else 1


def _combine(columns: Sequence[pl.Series], most: int = _ROWS) -> pl.DataFrame:
    """Return combinations of the columns' values, all or many; `most` at most."""
    if len(columns) <= 3:
        indices = list(product(*(range(len(column)) for column in columns)))
        indices = indices[:: len(indices) // most + 1]
    else:  # rows with each column's n-th value, and shifted ones
        rows_of = range(min(100, most))
        indices = [tuple((n * (k + 1)) % len(column) for k, column in enumerate(columns)) for n in rows_of]
    rows = zip(*indices, strict=True) if columns else ()
    return pl.DataFrame({column.name: column.gather(list(row)) for column, row in zip(columns, rows, strict=True)})


def inputs_of(tree: Any) -> list[Any]:  # noqa: ANN401
    ((kind, node),) = tree.items()
    return [*node["input"]] if kind == "Function" else [node[place] for place in _PLACES[kind]]


def with_inputs(tree: Any, inputs: Sequence[Any]) -> dict[str, Any]:  # noqa: ANN401
    ((kind, node),) = tree.items()
    if kind == "Function":
        return {kind: {**node, "input": inputs}}
    return {kind: {**node, **dict(zip(_PLACES[kind], inputs, strict=True))}}
