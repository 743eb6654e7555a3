"""Row by row: the proof that an expression makes a row's result from that row alone.

What a private frame promises per person rests on it: a step that looks at other rows carries one person's data
into another's. `Expr.meta.is_row_separable` looks at an expression's top node only, so that `x - x.mean()` passes
it. Here the whole expression is walked, against the lists of _steps.py. An accepted expression is then rewritten
so that no value in a row makes it raise: an error would print the value, and that there is one would say that the
row is there.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import polars as pl
from polars.exceptions import ComputeError, PolarsError

from dp_polars._rowwise import steps, trials
from dp_polars._rowwise.steps import Step, bases

if TYPE_CHECKING:
    from collections.abc import Sequence

    from polars._typing import PolarsDataType

_ARITHMETIC = "cast Decimals to pl.Float64 first; take elements from lists with list.get."
_COMPARISON = "put the column before the constant; compare an Enum as cast(pl.String)."
_WAYS_OUT = {
    **dict.fromkeys(["+", "-", "*", "/", "//", "%"], _ARITHMETIC),
    **dict.fromkeys(["==", "!=", "<", "<=", ">", ">="], _COMPARISON),
    **dict.fromkeys(["arr.mean", "list.mean"], "divide the sum of integers by list.len or arr.len."),
    "a Python function": "write it with native expressions.",
    "a Series": "pass a single value, or a list where a set is meant: is_in([1, 2]).",
    "dt.add_business_day": 'pass roll="forward" or roll="backward".',
    "dt.datetime_function": "make a text with pl.format and parse it with str.to_datetime(format).",
    "dt.replace": "use dt.truncate and dt.offset_by.",
    "list.eval": "use the methods of `list`.",
    "pow": "give the exponent as a number, not a negative one for integers.",
    "replace_strict": "pass default=None.",
}
ALONE = "whose last bit Polars rounds differently where a row is alone in its chunk"

# What makes a function give null where it would raise: a path into its JSON and the value there.
_UNSTRICT: dict[str, tuple[list[str | int], object]] = {
    "arr.get": (["ArrayExpr", "Get"], True),
    "bin.base64_decode": (["BinaryExpr", "Base64Decode"], False),
    "bin.get": (["BinaryExpr", "Get"], True),
    "bin.hex_decode": (["BinaryExpr", "HexDecode"], False),
    "dt.replace_time_zone": (["TemporalExpr", "ReplaceTimeZone", 1], "Null"),
    "list.gather": (["ListExpr", "Gather"], True),
    "list.get": (["ListExpr", "Get"], True),
    "str.base64_decode": (["StringExpr", "Base64Decode"], False),
    "str.hex_decode": (["StringExpr", "HexDecode"], False),
    "str.strptime": (["StringExpr", "Strptime", 1, "strict"], False),
    "str.to_integer": (["StringExpr", "ToInteger", "strict"], False),
}


def row_by_row(expr: pl.Expr, frame_schema: pl.Schema, what: str) -> pl.Expr:
    """Return an expression that gives each row its own result and raises on none; refuse any other.

    Parameters
    ----------
    expr
        The expression, of one or several outputs (a selector stands for the columns that it selects).
    frame_schema
        The columns of the private frame.
    what
        What the expression is, for messages: "The predicate of filter".

    Returns
    -------
    Expr
        `expr` itself, or its like in which no value raises: casts and parsers are non-strict (null for what does
        not fit), `list.get` may be out of bounds, local times that a clock change leaves out or has twice are
        null, dates beyond the years 1 to 9999 are moved to these. Float division is rounded correctly: Polars
        multiplies by a constant's reciprocal, but not where a row is alone in its chunk, so that a row's last bit
        would depend on the number of the others. An expression of constants alone stays one (a `select` of
        nothing else has one row).

    Raises
    ------
    TypeError
        If `expr` is not an expression.
    ValueError
        If a part of it is not known to be row by row, or raises on some value of the types that it is given.
    polars.exceptions.PolarsError
        What Polars says of the schema: a column that is not there, types that don't fit.
    """
    if not isinstance(expr, pl.Expr):
        msg = f"{what} must be a Polars expression, got {type(expr).__name__}."
        raise TypeError(msg)
    frame = pl.LazyFrame(schema={name: trials.apart_type(dtype) for name, dtype in frame_schema.items()})
    try:
        own = json.loads(expr.meta.serialize(format="json"))
        tree = trials.apart(own)
        step = steps.read(tree, frame)
    except (ComputeError, RecursionError) as error:
        msg = (
            f"{what} must be an expression that can be looked into, got a Python function or a very deep one "
            f"({type(error).__name__}).\n\nHint: write it with native expressions."
        )
        raise ValueError(msg) from None
    gate = _ExpressionGate(what)
    names_categories = tree != own
    try:
        gate.has_rows(step)
        if gate.rewritten:
            expr = steps.write(trials.home(tree), what)
        tried = steps.without_nan(tree) if names_categories else expr
        frame.select(tried).collect_schema()
    except _RaisesError:
        failure = trials.failure_on(frame.collect(), steps.without_nan(trials.apart(own)))
        if failure is None:
            raise
        msg = f"{what} must be an expression that Polars can run: {failure}"
        raise ValueError(msg) from None
    except PolarsError as error:
        msg = f"{what} must fit the columns: {str(error).partition(chr(10))[0]}"
        raise type(error)(msg) from None
    failure = trials.failure_on(trials.made_up(frame_schema), tried)
    if failure is not None:
        msg = f"{what} must be an expression that Polars can run, got on made-up rows: {failure}"
        raise ValueError(msg)
    return expr


class _RaisesError(ValueError):
    """A step raises on some value, or on all."""


class Gate:
    """Refuses an expression in which a row's result may depend on another row."""

    def __init__(self, what: str) -> None:
        self.what = what

    def refusal(self, step: Step, reason: str, way_out: str | None = None) -> ValueError:
        """Return the error that says what is refused, why, and what to do instead."""
        way_out = way_out or _WAYS_OUT.get(step.name) or "use what depends on the row and on constants alone."
        return ValueError(f"{self.what} must be row by row, got {step.name}, {reason}.\n\nHint: {way_out}")

    def has_rows(self, step: Step) -> bool:
        """Return whether a step has one value per row, False if it has one in all; refuse it otherwise."""
        if step.kind in {"column", "literal"}:
            return step.kind == "column"
        listed = {"operator": steps.OPERATORS, "function": steps.FUNCTIONS, "cast": {"cast"}, "other": {step.name}}
        if step.name not in listed.get(step.kind, ()):
            raise self.refusal(step, "which is not known to look at its own row alone")
        sets = steps.SETS.get(step.name, ())
        rows = [
            not (value.kind == "series" and place in sets) and self.has_rows(value)
            for place, value in enumerate(step.inputs)
        ]
        if any(rows):
            self.check(step, rows)
        else:
            self.check_constant(step)
        return any(rows)

    def check_constant(self, step: Step) -> None:
        """Refuse a step that is worked out once, whatever the rows."""

    def check(self, step: Step, rows: Sequence[bool]) -> None:
        """Refuse a step that is listed, but whose types or parameters let it look beyond a row."""
        self._check_new_categories(step)
        self._check_nested(step)
        if step.kind == "function":
            self._check_function(step, rows)
        elif step.kind == "cast":
            types = bases(step, *step.inputs)
            if pl.Categorical in types and not types <= {pl.Categorical, pl.Enum, pl.String, pl.Null}:
                raise self._category_refusal(step)
            if pl.String in types and types & {pl.Date, pl.Datetime, pl.Time} and pl.String not in bases(step):
                raise self.refusal(step, "which guesses a format", "use str.to_datetime(format).")
            if pl.Decimal in bases(step) and _is_float(step.inputs[0]):
                way_out = "use (x * 100).round().cast(pl.Int64), in units of the last digit."
                raise self.refusal(step, "which raises on some values", way_out)
            if types & {pl.List, pl.Array, pl.Struct}:
                raise self.refusal(step, "which is not by row for all nested types", "cast fields or elements.")

    def _check_new_categories(self, step: Step) -> None:
        """Refuse what may add categories to those that the rows hold, where there may be no room for them."""
        if step.name in steps.OF_NEW_CATEGORIES:
            # The result's type is not known where there is no room: to plan such a step adds the category.
            types = step.dtypes() if step.kind == "cast" else [own for value in step.inputs for own in value.dtypes()]
            if any(map(_has_few_categories, types)):
                way_out = "cast the Categorical to pl.String first, or use pl.Categorical."
                raise self.refusal(step, "which raises where the rows hold too many categories", way_out)

    def _check_nested(self, step: Step) -> None:
        """Refuse what Polars does to lists, arrays and structs by looking at the whole column."""
        if step.kind == "operator" or step.name in {"when"} | (steps.OF_COLUMNS - steps.OF_MIXED_TYPES):
            others = {0} if step.name == "when" else steps.SETS.get(step.name, set())
            values = [value for place, value in enumerate(step.inputs) if place not in others]
            types = {dtype for value in values for dtype in value.dtypes() if dtype != pl.Null}
            if len(types) > 1 and any(dtype.is_nested() for dtype in types):
                reason = "which converts a whole column to a nested type"
                raise self.refusal(step, reason, "give a constant the column's very type: pl.lit(value, dtype=…).")
        if step.kind == "operator" and step.name in steps.ARITHMETIC and _holds_floats(step):
            raise self.refusal(step, ALONE, "take elements from lists with list.get, and fields from structs.")

    def _check_function(self, step: Step, rows: Sequence[bool]) -> None:
        name = step.name
        if name in steps.OF_ONE_COLUMN and any(rows[1:]):
            reason = "which takes a parameter from the rows"
            raise self.refusal(step, reason, _WAYS_OUT.get(name, "pass it as a constant."))
        if name in steps.OF_ONE_COLUMN and pl.Struct in bases(*step.inputs[1:]):
            raise self.refusal(step, "which takes no struct as a parameter")  # and Polars 1 may crash on one
        if name == "is_in" and rows[1] and (_has_lists(step.inputs[0]) or not _has_lists(step.inputs[1])):
            raise self.refusal(step, "which looks a value up in other rows", "pass a list, or a column of lists.")
        if name == "str.strptime" and step.parameters is None:
            raise self.refusal(step, "which guesses its format from other rows", "pass the format.")
        if name in steps.OF_FLOAT_BITS and any(map(_is_float, step.inputs)):
            reason = "which Polars does differently on NaN or −0 where a row is alone in its chunk"
            raise self.refusal(step, reason, "use clip for constants, pl.when(x > y).then(x).otherwise(y) for columns.")
        if name in steps.OF_SUMS and _holds_floats(step.inputs[0]):
            reason = "which Polars rounds differently where another row has a null"
            raise self.refusal(step, reason, "sum integers.")
        is_long = name in steps.OF_LONG_SUMS and sum(len(value.dtypes()) for value in step.inputs) > 2
        if is_long and (name == "mean_horizontal" or any(map(_is_float, step.inputs))):
            raise self.refusal(step, "whose last bit hangs on the number of threads", "add columns up with +.")
        if name in steps.OF_TEXTS and any(map(_holds_floats, step.inputs)):
            raise self.refusal(step, "which shows the signs of zeros in nested types", "give its fields or elements.")
        if (name == "arr.contains" and not _fits_array(*step.inputs)) or (
            name == "is_in" and not _fits_array(step.inputs[1], step.inputs[0])
        ):
            raise self.refusal(step, "which raises on some values", "give values of the array's very type.")
        if name in steps.OF_CLOCKS and _is_local(step.inputs[0]):
            raise self.refusal(step, "which raises where clocks change", "use dt.replace_time_zone(None) first.")
        if name not in steps.OF_CATEGORIES and pl.Categorical in bases(*_with_rows(step, rows)):
            raise self._category_refusal(step)

    def _category_refusal(self, step: Step) -> ValueError:
        reason = "which may take a category's number, and other rows decide that"
        return self.refusal(step, reason, "cast the Categorical to pl.String first.")


class _ExpressionGate(Gate):
    """Refuses also what raises on a value in a row, and rewrites what need not."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.rewritten = False

    def check_constant(self, step: Step) -> None:
        self._try_out(step, [False] * len(step.inputs))

    def check(self, step: Step, rows: Sequence[bool]) -> None:
        super().check(step, rows)
        if step.kind == "cast":
            self._set(step.tree["Cast"], "options", "NonStrict", unless="Overflowing")
        elif step.kind == "function":
            self._check_clocks(step)
            self._make_lenient(step)
        if step.kind != "operator" and step.name not in {"a name", "is_null", "is_not_null"}:
            for value in _with_rows(step, rows):
                self._bound_dates(value)
        self._try_out(step, rows)
        if step.name in steps.OF_SIGNED_ZEROS or (step.kind == "cast" and pl.String in bases(step)):
            for value in _with_rows(step, rows):
                if _is_float(value):
                    self._set_zeros(value.tree, value, value)
        if divides_floats(step, rows):
            self._divide(step)
        elif step.name in steps.DIVISIONS and rows[1] and _is_float(step.inputs[1]):
            self._set_zeros(step.inputs[1].tree, step.inputs[1], step.inputs[1])

    def _try_out(self, step: Step, rows: Sequence[bool]) -> None:
        failure = None if step.name == "a name" else trials.failure(step, rows)
        if failure is not None:
            raise _RaisesError(*self.refusal(step, f"which raises on some values ({failure})").args)

    def _check_clocks(self, step: Step) -> None:
        if step.name == "str.strptime" and _is_local(step) and "%z" not in step.parameters:
            raise self.refusal(step, "which raises where clocks change", "parse, then use dt.replace_time_zone.")
        if step.name == "dt.replace_time_zone":
            match step.tree["Function"]["input"][1]:
                case {"Literal": {"Scalar": {"String": "raise"} as scalar}}:
                    self._set(scalar, "String", "null")
                case {"Literal": {"Scalar": {"String": _}}}:
                    pass
                case _:
                    raise self.refusal(step, "which may raise where clocks change", 'pass ambiguous="earliest".')

    def _make_lenient(self, step: Step) -> None:
        if step.name in _UNSTRICT:
            path, value = _UNSTRICT[step.name]
            place = step.tree["Function"]["function"]
            for key in path[:-1]:
                place = place[key]
            self._set(place, path[-1], value)

    def _bound_dates(self, value: Step) -> None:
        """Make dates stay where no function panics on them."""
        dtypes = value.dtypes()
        if not any(map(trials.bounds, dtypes)):
            return
        if len(set(dtypes)) > 1:
            raise self.refusal(value, "which has dates of several types", "work on one type at a time.")
        ends = [_constant(end, dtypes[0]) for end in trials.bounds(dtypes[0]) or ()]
        clip = {"Clip": {"has_min": True, "has_max": True}}
        self._replace(value.tree, {"Function": {"input": [dict(value.tree), *ends], "function": clip}})

    def _divide(self, step: Step) -> None:
        """Make the divisor a full column, so that Polars divides, and never multiplies by a reciprocal.

        A column as divisor too: Polars may know it to be one value (a literal, a Hive key).
        """
        if pl.Duration in bases(step.inputs[0]):
            raise self.refusal(step, ALONE, "divide durations as dt.total_seconds(fractional=True).")
        self._set_zeros(step.inputs[1].tree, step.inputs[0], step)

    def _set_zeros(self, tree: dict[str, Any], column: Step, typed: Step) -> None:
        """Add zeros, which are a full column where `column` is one, and make −0 to 0 on every path.

        Polars' own x + 0 and 0 − x give 0 or −0 for the same x, by whether the row is alone in its chunk.
        """
        dtypes = {str(dtype) for dtype in typed.dtypes()}
        if len(dtypes) > 1:
            raise self.refusal(typed, "which has floats among other types", "work on one type at a time.")
        zero = {"Literal": {"Dyn": {"Float": 0.0}}}
        negative = _operator(_cast(dict(column.tree), "Float64"), "Lt", zero)
        zeros = _operator(_cast(negative, dtypes.pop()), "Multiply", zero)
        self._replace(tree, _operator(dict(tree), "Plus", zeros))

    def _set(self, place: Any, key: str | int, value: object, *, unless: object = None) -> None:  # noqa: ANN401
        if place[key] not in (value, unless):
            place[key] = value
            self.rewritten = True

    def _replace(self, tree: dict[str, Any], other: dict[str, Any]) -> None:
        tree.clear()
        tree.update(other)
        self.rewritten = True


def divides_floats(step: Step, rows: Sequence[bool]) -> bool:
    """Return whether a step divides a column to floats, whose last bit depends on how Polars does it."""
    return step.kind == "operator" and step.name in steps.DIVISIONS and rows[0] and _is_float(step)


def _with_rows(step: Step, rows: Sequence[bool]) -> list[Step]:
    return [value for value, has_rows in zip(step.inputs, rows, strict=True) if has_rows]


def _has_lists(step: Step) -> bool:
    return all(isinstance(dtype, (pl.List, pl.Array)) for dtype in step.dtypes())


def _is_float(step: Step) -> bool:
    return any(dtype.is_float() for dtype in step.dtypes())


def _holds_floats(step: Step) -> bool:
    """Return whether a step's result has floats inside a nested type."""
    return any(dtype.is_nested() for dtype in step.dtypes()) and any(base.is_float() for base in bases(step))


def _fits_array(array: Step, value: Step) -> bool:
    """Return whether a value may be looked up in an array: it has the elements' type, or both are integers."""
    pairs = [(kind.inner, own) for kind in array.dtypes() if isinstance(kind, pl.Array) for own in value.dtypes()]
    return all(inner == own or (inner.is_integer() and own.is_integer()) for inner, own in pairs)


def _has_few_categories(dtype: PolarsDataType) -> bool:
    """Return whether a type is, or holds, a Categorical of less than 32 bits, which may be full."""
    if isinstance(dtype, (pl.List, pl.Array)):
        return _has_few_categories(dtype.inner)
    if isinstance(dtype, pl.Struct):
        return any(_has_few_categories(field.dtype) for field in dtype.fields)
    return isinstance(dtype, pl.Categorical) and dtype.categories.physical() != pl.UInt32


def _is_local(step: Step) -> bool:
    return any(isinstance(dtype, pl.Datetime) and dtype.time_zone not in {None, "UTC"} for dtype in step.dtypes())


def _operator(left: object, name: str, right: object) -> dict[str, object]:
    return {"BinaryExpr": {"left": left, "op": name, "right": right}}


def _cast(value: object, dtype: str) -> dict[str, object]:
    return {"Cast": {"expr": value, "dtype": {"Literal": dtype}, "options": "NonStrict"}}


def _constant(value: int, dtype: PolarsDataType) -> Any:  # noqa: ANN401
    return json.loads(pl.lit(value, dtype=pl.Int64).cast(dtype).meta.serialize(format="json"))
