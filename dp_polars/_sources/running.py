"""Run plans on private rows in Polars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias, get_args

import polars as pl

from dp_polars._base.numbers import given, one_of

if TYPE_CHECKING:
    from polars._typing import EngineType


# Polars 1 stores a repeated part of a plan as one chunk. With rows in several chunks, a single row could then decide
# whether the plan fails.
_TWINS = not pl.__version__.startswith("1.")
ANY_FILTER = pl.QueryOptFlags(comm_subexpr_elim=_TWINS)
# A filter in a scan drops row groups by evaluating it on their smallest and largest values. If a value of a group
# overflows, x * 2 > 0 is false, and the group's other rows are lost. NaN may be missing from both values. If Polars
# merges repeated filtered scans, it moves the filter anyway. Polars 1 needs the merging: otherwise it loses columns of
# a scan that is joined with itself.
NO_FILTER_IN_SCANS = pl.QueryOptFlags(comm_subexpr_elim=_TWINS, predicate_pushdown=False, comm_subplan_elim=not _TWINS)

_Engine: TypeAlias = Literal["auto", "in-memory", "streaming"]
_ENGINES: tuple[_Engine, ...] = get_args(_Engine)
# Polars' meaning of "auto" without settings. Settings could name a GPU or another machine.
_AUTO: EngineType = "in-memory" if pl.__version__.startswith("1.") else "streaming"


def by_name(engine: EngineType) -> EngineType:
    """Name Polars' engine explicitly, so that no setting of the process chooses it."""
    return _AUTO if engine == "auto" else engine


def on_cpu(engine: object) -> _Engine:
    """Return the name of an engine on which private frames are tested."""
    if isinstance(engine, pl.GPUEngine) or (isinstance(engine, str) and engine == "gpu"):
        msg = (
            f"engine must be one of {list(_ENGINES)}, got {given(engine)}: whether a step looks at other rows was "
            "tried on the CPU's engines alone.\n\nHint: leave it out."
        )
        raise ValueError(msg)
    return one_of("engine", engine, _ENGINES)


def collected(plans: Sequence[pl.LazyFrame], engine: EngineType) -> list[pl.DataFrame]:
    """Collect plans on private rows. Each plan reads its own rows."""
    return pl.collect_all(plans, engine=by_name(engine), optimizations=NO_FILTER_IN_SCANS)
