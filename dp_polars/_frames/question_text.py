"""The canonical text of a question: two questions that have one text have answers of one law on the same rows.

A release hands its `Work` to an engine, and nothing else. So the text holds every field of it, however deep, and
the row-by-row steps, the columns that are read, the kind of engine and the versions. What is long or binary stands
there as a digest. What can't be written down is refused: a question that hides something must not share the answer of
another.
"""

from __future__ import annotations

import json
from dataclasses import fields, is_dataclass
from fractions import Fraction
from functools import cached_property, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import polars as pl

from dp_polars._accounting.kept import Question
from dp_polars._base.digests import ipc_of, sha256_of
from dp_polars._frames.recipe import Joining

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from dp_polars._engines.contract import Engine, Released
    from dp_polars._frames.recipe import Proved
    from dp_polars._frames.request import AnyRequest
    from dp_polars._frames.step import Step
    from dp_polars._questions.question import Asked


def question_of(
    request: AnyRequest[Asked], engine: Engine[Released], work: object, preparation: str, *datasets: str
) -> Question:
    """Return what is asked of data sets, one for each table that is read, in words and as a text.

    `preparation` is the text of what made the rows: another preparation is another data set.

    Raises
    ------
    TypeError
        If the question holds something that has no text.
    """
    proved = request.proved_on(engine, ())
    schema, recipe, live = proved.schemas[0], request.recipe, partial(_read, request, proved)
    # An engine that runs no expressions has no steps, and the types of its columns stand in the work.
    read = live(0) if engine.runs_expressions else []
    if not any(step.looks_at_order for step in recipe.steps):
        read.sort()
    parts = {
        "dp_polars": import_module("dp_polars").__version__,
        "polars": pl.__version__,
        "engine": _kind(engine),
        "datasets": datasets,
        "preparation": preparation,
        "request": _kind(request),
        "protection": _written(request.protection),
        "columns": _written([pl.Schema((name, schema[name]) for name in read), *proved.of_sources[1:]]),
        "steps": _written(_parts(recipe.steps, proved, live)),
        "work": _written(work, but="rows"),
    }
    words = ", ".join(map(str, request.asks))
    loss = f"{request.loss}, delta={float(request.delta)!r}" if request.delta else str(request.loss)
    return Question(" and ".join(datasets), words, loss, engine.mark(), json.dumps(parts))


def _parts(steps: Sequence[Step], proved: Proved, live: Callable[[int], Sequence[str]]) -> list[tuple[object, ...]]:
    """Return all that decides what steps do, of joins also the steps on the other side, where every column is live."""
    parts = []
    for number, step in enumerate(steps):
        written = (type(step).__name__, *step.parts(partial(live, number)))
        if isinstance(step, Joining):
            other = step.further(*proved.sources[number])
            names = [schema.names() for schema in other.schemas]
            written = (*written, _parts(step.further_steps, other, names.__getitem__))
        parts.append(written)
    return parts


def _read(request: AnyRequest[Asked], proved: Proved, first: int) -> list[str]:
    """Return which columns the steps from `first` on and the outputs read, as Polars' optimizer finds it."""
    schema = proved.schemas[first]
    joined = (columns for sources in proved.sources[first:] for columns in sources)
    rows = proved.rows(*(pl.LazyFrame(schema=columns) for columns in (schema, *joined)), first=first)
    rows = rows.select([expr.alias(str(number)) for number, expr in enumerate(request.reads)] or pl.len())
    plan = rows._ldf.with_optimizations(pl.QueryOptFlags.none(projection_pushdown=True)._pyoptflags).visit()
    inputs = [plan.get_node()]
    while inputs:
        plan.set_node(inputs[0])  # of a join the left side, which is the private one
        inputs = plan.get_inputs()
    found = plan.view_current_node().projection
    return [name for name in schema if found is None or name in found]


def _written(value: object, but: str = "") -> Any:  # noqa: ANN401  # what JSON takes
    """Return a value as lists of strings, each with its kind, so that no two values are written alike."""
    kind = _kind(value)
    if value is None or isinstance(value, (bool, str)):
        return [kind, value]
    if isinstance(value, (int, Fraction)):
        return [kind, str(value)]
    if isinstance(value, float):
        return [kind, value.hex()]
    if isinstance(value, (tuple, list)):
        return [kind, [_written(one) for one in value]]
    if isinstance(value, pl.DataType):
        return ["type", str(value), sha256_of(pl.LazyFrame(schema={"": value}).serialize())]
    if isinstance(value, pl.Schema):
        return [kind, [[name, _written(dtype)] for name, dtype in value.items()]]
    if isinstance(value, pl.Expr):
        return ["expression", sha256_of(value.meta.serialize())]  # whichever class: pl.when(…).then(…) has its own
    if isinstance(value, pl.Series):
        return [kind, value.name, len(value), _written(value.dtype), sha256_of(ipc_of(value.alias("").to_frame()))]
    if isinstance(value, pl.DataFrame):
        return [kind, value.height, _written(value.schema), sha256_of(ipc_of(value))]
    if is_dataclass(value) and not isinstance(value, type) and not _hidden(value):
        names = [field.name for field in fields(value) if field.compare and field.name != but]
        return [kind, [[name, _written(getattr(value, name))] for name in names]]
    msg = (
        f"a question whose answer is to be kept must consist of values that can be written down, got {kind}.\n\n"
        "Hint: leave dataset out of protect; then nothing is kept."
    )
    raise TypeError(msg)


def _hidden(value: Any) -> set[str]:  # noqa: ANN401  # a dataclass
    """Return attributes that are no fields and do not follow from them."""
    known = {field.name for field in fields(value)}
    return {
        name
        for name in getattr(value, "__dict__", {})
        if name not in known and not isinstance(getattr(type(value), name, None), cached_property)
    }


def _kind(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"
