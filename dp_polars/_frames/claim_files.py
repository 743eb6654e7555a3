"""The claim in a file of answers."""

from __future__ import annotations

import json
import os
from typing import Any

import polars as pl

from dp_polars._base.files import expanded
from dp_polars._release.contract import KeyWork, Work
from dp_polars._statistics.statement import Statement

CLAIM_KEY = b"dp_polars.claim"  # the name in the file's metadata
STATEMENT = "statement"  # the name in the claim


def refuse_wide_integers(work: Work | KeyWork) -> None:
    if isinstance(work, KeyWork):
        types = work.types.dtypes()
    else:
        types = [*([] if work.keys is None else work.keys.dtypes), *(output.dtype for output in work.outputs)]
    if wide := sorted({str(dtype) for dtype in types if dtype in (pl.Int128, pl.UInt128)}):
        msg = (
            f"sink_parquet can't write keys or answers of the type {wide[0]}: Parquet files have no such integers.\n\n"
            "Hint: cast the column to pl.Int64 or pl.String before group_by, or use release()."
        )
        raise TypeError(msg)


def read_claim(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Return the privacy claim in a Parquet file from `PrivateQuery.sink_parquet`.

    ValueError if it contains none.

    Returns
    -------
    dict
        `date` (ISO), `protection` (who is a person, and the limits), `groups` (their number), `loss` (of one person to
        the whole file) and `columns`: name -> `selects`, `mechanism`, `loss` (`unit`, `value`, None beyond all floats,
        and the `exact` ratio), `delta` (only for keys), `neighboring_relation`, `privacy_unit`, `limits` (name ->
        number, for the output's limits). `statement` is the `Statement` of the release. A file of `Cube.write` has
        none: use `CubeQuery.statement`.
    """
    from pyarrow import parquet

    metadata = parquet.read_schema(expanded(path)).metadata or {}
    if CLAIM_KEY not in metadata:
        msg = f"the file must have been written by PrivateQuery.sink_parquet, got {str(path)!r} without a claim."
        raise ValueError(msg)
    claim: dict[str, Any] = json.loads(metadata[CLAIM_KEY])
    if STATEMENT in claim:
        claim[STATEMENT] = Statement(claim[STATEMENT])
    return claim
