"""What a rule asks of a step: its types, its parameters, which of its inputs vary from row to row.

The inputs of a step are proved before it is asked about, and the step varies.
"""

from __future__ import annotations

import polars as pl

from dp_polars._rowwise import nodes, trials
from dp_polars._rowwise.names import (
    ANY,
    DIVISIONS,
    OF_ONE_COLUMN,
    OF_ONE_TYPE,
    OF_OPAQUE,
    OF_ROWS_PARAMETERS,
    OF_SIGNED_ZEROS,
    ON_POLARS_1,
    SETS,
    TAKEN,
    names,
)
from dp_polars._rowwise.nodes import Step, bases, is_opaque, parts_of
from dp_polars._rowwise.zeros import has_floats

# What adds up a row's own list.
_ADDS = names("arr.mean arr.sum list.mean list.sum")
# The kinds of values that Polars 1 takes.
_KINDS: dict[object, str] = {
    pl.Boolean: "boolean",
    pl.String: "text",
    **dict.fromkeys((pl.Int8, pl.Int16, pl.Int32, pl.Int64, pl.UInt8, pl.UInt16, pl.UInt32, pl.UInt64), "number"),
    **dict.fromkeys((pl.Float32, pl.Float64), "number"),
}


def always(_: Step) -> bool:
    return True


def is_float(step: Step) -> bool:
    """Return whether a step's result is a float, or one of its columns is."""
    return any(dtype.is_float() for dtype in step.dtypes())


def divides_floats(step: Step) -> bool:
    """Return whether a step divides a column to floats, whose last bit depends on how Polars does it."""
    return step.kind == "operator" and step.name in DIVISIONS and step.inputs[0].varies and is_float(step)


def shows_zeros(step: Step) -> bool:
    """Return whether a step shows the sign of a zero: also where it makes a text of a number among texts."""
    return step.name in OF_SIGNED_ZEROS or (step.name != "as_struct" and pl.String in bases(step))


def is_bounded(step: Step) -> bool:
    """Return whether dates that go into a step are moved to where no function panics on them."""
    return step.kind != "operator" and step.name not in {"a name", "is_null", "is_not_null"}


def is_unlisted(step: Step) -> bool:
    return step.name not in TAKEN.get(step.kind, ())


def is_spelled_on_polars_2(step: Step) -> bool:
    """Return whether a step is none of Polars 1 here, but may be said in other steps on Polars 2."""
    of_rows = step.name.startswith(("arr.", "list.")) or step.name in {"dt.replace", "struct.with_fields"}
    return of_rows and is_unlisted(step) and needs_polars_2(step)


def needs_polars_2(step: Step) -> bool:
    """Return whether a step is not on the short list of Polars 1, if that is what runs."""
    if not pl.__version__.startswith("1.") or step.name == "a name":
        return False
    taken = next((kinds for steps, kinds in ON_POLARS_1.items() if step.name in steps), None)
    if taken is None or taken == ANY:
        return taken is None
    values = step.inputs[1:] if step.name == "when" else step.inputs
    if step.name in OF_ONE_COLUMN and parameters_vary(step):
        return True
    if step.name.startswith("str."):  # whose further inputs may be numbers
        values = varying(step)
    kinds = {_KINDS.get(base) for base in bases(*values) - {pl.Null, pl.List}}
    types = {dtype for value in values if value.varies for dtype in value.dtypes()}
    is_mixed = step.name in OF_ONE_TYPE and (len(kinds) > 1 or len(types) > 1)
    return (
        is_mixed
        or not kinds <= taken
        or any(pl.List in map(type, value.dtypes()) for value in step.inputs if value.varies)
        or not all(dtype.base_type() in _KINDS for dtype in step.dtypes())
    )


def looks_into_the_opaque(step: Step) -> bool:
    """Return whether a step does more with an Extension or Object than to carry and to count it."""
    types = [dtype for value in step.inputs for dtype in value.dtypes()]
    return step.name not in OF_OPAQUE and any(map(is_opaque, types))


def varying(step: Step) -> list[Step]:
    return [value for value in step.inputs if value.varies]


def parameters_vary(step: Step) -> bool:
    if step.name in OF_ROWS_PARAMETERS or (step.name == "str.contains" and step.parameters["literal"]):
        return False
    return any(value.varies for value in step.inputs[1:])


def parameters_are_structs(step: Step) -> bool:
    return pl.Struct in bases(*step.inputs[1:])


def converts_nested(step: Step) -> bool:
    others = {0} if step.name == "when" else SETS.get(step.name, set())
    values = [value for place, value in enumerate(step.inputs) if place not in others]
    types = {dtype for value in values for dtype in value.dtypes() if dtype != pl.Null}
    return len(types) > 1 and any(dtype.is_nested() for dtype in types)


def holds_floats(step: Step) -> bool:
    return any(dtype.is_nested() for dtype in step.dtypes()) and any(base.is_float() for base in bases(step))


def input_holds_floats(step: Step) -> bool:
    return any(map(holds_floats, step.inputs))


def takes_nested(step: Step) -> bool:
    return any(dtype.is_nested() for value in step.inputs for dtype in value.dtypes())


def takes_floats(step: Step) -> bool:
    return any(map(is_float, step.inputs))


def has_few_categories(step: Step) -> bool:
    """Return whether there may be no room for a category that a step adds, also in a nested type."""
    # The result's type is not known where there is no room: to plan such a step adds the category.
    values = [step] if step.kind == "cast" else step.inputs
    parts = [part for value in values for dtype in value.dtypes() for part in parts_of(dtype)]
    return any(isinstance(part, pl.Categorical) and part.categories.physical() != pl.UInt32 for part in parts)


def adds_floats(step: Step) -> bool:
    """Return whether floats of a row's own lists are added up."""
    if step.name in _ADDS and any(has_floats(dtype) for dtype in step.inputs[0].dtypes()):
        return True
    return any(map(adds_floats, step.inputs))


def has_lists(step: Step) -> bool:
    return all(isinstance(dtype, (pl.List, pl.Array)) for dtype in step.dtypes())


def is_set(series: Step) -> bool:
    """Return whether a Series is a set of values: the values themselves, or one list of them."""
    return not has_lists(series) or pl.select(nodes.without_nan(series.tree)).height == 1


def looks_up_rows(step: Step) -> bool:
    value, among = step.inputs[:2]
    return among.varies and (has_lists(value) or not has_lists(among))


def does_not_fit_the_array(step: Step) -> bool:
    array, value = step.inputs if step.name == "arr.contains" else (step.inputs[1], step.inputs[0])
    pairs = [
        (kind.inner, of_value) for kind in array.dtypes() if isinstance(kind, pl.Array) for of_value in value.dtypes()
    ]
    return not all(inner == of_value or (inner.is_integer() and of_value.is_integer()) for inner, of_value in pairs)


def has_no_format(step: Step) -> bool:
    return step.parameters is None


def is_local(step: Step) -> bool:
    return any(isinstance(dtype, pl.Datetime) and dtype.time_zone not in {None, "UTC"} for dtype in step.dtypes())


def starts_local(step: Step) -> bool:
    return is_local(step.inputs[0])


def parses_local(step: Step) -> bool:
    return is_local(step) and "%z" not in step.parameters


def ambiguous_is_no_word(step: Step) -> bool:
    match step.inputs[-1].tree:
        case None | {"Literal": {"Scalar": {"String": _}}}:
            return False
    return True


def takes_category(step: Step) -> bool:
    return pl.Categorical in bases(*varying(step))


def replaces_categories_by_number(step: Step) -> bool:
    """Return whether values that are no texts stand for, or become, categories."""
    _, old, *others = step.inputs
    values = [old] if pl.Categorical in bases(step.inputs[0]) else []
    values += others if pl.Categorical in bases(step) else []
    return not bases(*values) <= {pl.Categorical, pl.Enum, pl.String, pl.Null, pl.List}


def casts_category(step: Step) -> bool:
    types = bases(step, *step.inputs)
    return pl.Categorical in types and not types <= {pl.Categorical, pl.Enum, pl.String, pl.Null}


def guesses_times(step: Step) -> bool:
    types = bases(step, *step.inputs)
    return pl.String in types and bool(types & {pl.Date, pl.Datetime, pl.Time}) and pl.String not in bases(step)


def casts_nested(step: Step) -> bool:
    return bool(bases(step, *step.inputs) & {pl.List, pl.Array, pl.Struct})


def may_not_fit(step: Step) -> bool:
    return not trials.fits(*step.inputs[0].dtypes(), *step.dtypes(), strict=step.strict)


def is_strict(step: Step) -> bool:
    return step.strict


def has_no_default(step: Step) -> bool:
    return len(step.inputs) < 4


def holds_decimals(step: Step) -> bool:
    return step.kind == "operator" and pl.Decimal in bases(step)


def divides_by_a_constant(step: Step) -> bool:
    return divides_floats(step) and not step.inputs[1].varies
