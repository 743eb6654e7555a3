"""How plans on private rows are run by Polars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import polars as pl

from dp_polars._base.numbers import given, one_of

if TYPE_CHECKING:
    from polars._typing import EngineType


# On Polars 1, what is in a plan twice becomes a column of one chunk. Where rows lie in several chunks, a plan then
# fails or not by one row.
_TWINS = not pl.__version__.startswith("1.")
ANY_FILTER = pl.QueryOptFlags(comm_subexpr_elim=_TWINS)
# In a scan, a filter leaves out row groups by what it gives on their least and largest values: x * 2 > 0 on a group
# with a value so large that it overflows is false, and the group's other rows are gone. NaN may be in neither. Where
# Polars takes a filtered scan that is in a plan twice for one, it moves the filter all the same. Polars 1 needs
# that: otherwise it loses columns of a scan that is joined with itself.
NO_FILTER_IN_SCANS = pl.QueryOptFlags(comm_subexpr_elim=_TWINS, predicate_pushdown=False, comm_subplan_elim=not _TWINS)

_Engine: TypeAlias = Literal["auto", "in-memory", "streaming"]
_ENGINES: tuple[_Engine, ...] = get_args(_Engine)
# What Polars takes for "auto" where its settings name no engine. These may name a GPU, or another machine.
_AUTO: EngineType = "in-memory" if pl.__version__.startswith("1.") else "streaming"


def by_name(engine: EngineType) -> EngineType:
    """Return Polars' engine by its name, so that no setting of the process chooses it."""
    return _AUTO if engine == "auto" else engine


def on_cpu(engine: object) -> _Engine:
    """Return the name of an engine on which the steps of private frames were tried."""
    if isinstance(engine, pl.GPUEngine) or (isinstance(engine, str) and engine == "gpu"):
        msg = (
            f"engine must be one of {list(_ENGINES)}, got {given(engine)}: whether a step looks at other rows was "
            "tried on the CPU's engines alone.\n\nHint: leave it out."
        )
        raise ValueError(msg)
    return one_of("engine", engine, _ENGINES)


def collected(plans: Sequence[pl.LazyFrame], engine: EngineType) -> list[pl.DataFrame]:
    """Return what plans on private rows give. Each plan reads its rows by itself."""
    return pl.collect_all(plans, engine=by_name(engine), optimizations=NO_FILTER_IN_SCANS)
