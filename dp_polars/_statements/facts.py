"""Facts of a release as plain values that JSON takes: what a loss is and means, an output, and the software."""

from __future__ import annotations

import math
import platform
from datetime import UTC, datetime
from fractions import Fraction
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import polars as pl

from dp_polars._accounting.amounts import exact
from dp_polars._accounting.conversions import epsilon_at
from dp_polars._accounting.terms import LARGEST, check_delta
from dp_polars._base.digests import listed
from dp_polars._base.numbers import as_fraction, float_up, show
from dp_polars._codes.grids import Grid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dp_polars._accounting.claims import Claim
    from dp_polars._accounting.terms import Unit
    from dp_polars._base.numbers import Number
    from dp_polars._questions.question import Asked

Facts: TypeAlias = "dict[str, Any]"  # what JSON takes, however deep

#: What stands where a ledger has an output and its query was not given.
NOT_RECORDED = "not recorded"

_VARIANTS = {
    ("epsilon", False): ("Pure DP", None),
    ("epsilon", True): ("Approximate DP", None),
    ("rho", False): ("Zero-concentrated DP", None),
    ("rho", True): (
        "Custom",
        "δ-approximate ρ-zero-concentrated DP (Bun & Steinke 2016, arXiv 1605.02065, Definition 8.1): for any two "
        "neighbouring data sets there are two events, each of probability 1 − δ at least, given which the Rényi "
        "divergence of every order α above 1 between the two releases is at most ρ·α.",
    ),
}


def software() -> Facts:
    """Return the date, and the versions of what runs."""
    versions = {"dp_polars": import_module("dp_polars").__version__, "polars": pl.__version__}
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "versions": {**versions, "python": platform.python_version()},
    }


def loss_facts(unit: Unit, value: Fraction, delta: Fraction, at_delta: Number) -> Facts:
    """Return what a loss is, exactly, which variant it is of, and what it means; `at_delta` is where ε is given."""
    at = check_delta(at_delta)
    variant, definition = _VARIANTS[unit, delta > 0]
    epsilon = epsilon_at(unit, value, at, delta)
    return {
        "unit": unit,
        **number_facts(value),
        "delta": number_facts(delta),
        "variant": variant,
        "definition": definition,
        "means": _meaning(unit, value, delta),
        "at_delta": number_facts(at) | {"epsilon": epsilon if math.isfinite(epsilon) else None},
    }


def number_facts(value: Fraction) -> Facts:
    """Return an exact number, a float that is no less (None beyond all floats), and its text."""
    up = float_up(value)
    return {"exact": str(value), "value": up if math.isfinite(up) else None, "text": exact(value)}


def _meaning(unit: Unit, value: Fraction, delta: Fraction) -> str:
    """Return in a sentence what a loss promises."""
    if unit == "rho":
        part = " (given the two events)" if delta else ""
        return (
            "For any two neighbouring data sets, the Rényi divergence of every order α above 1 between what is "
            f"released of one and of the other{part} is at most {exact(value)}·α."
        )
    power = exact(value)
    factor = f"e^({power})" if "/" in power else f"e^{power}"
    if value <= LARGEST:
        factor += f" (about {show(as_fraction('factor', math.exp(float_up(value))), 3, up=True)})"
    plus = f", plus {exact(delta)}" if delta else ""
    return (
        "For any two neighbouring data sets, any set of results is released of one with at most "
        f"{factor} times the probability with which it is released of the other{plus}."
    )


def output_facts(name: str, query: Asked, selects: str, types: Sequence[pl.DataType] = ()) -> Facts:
    """Return what an output is, by which mechanism it is drawn, and how random it is."""
    claim = query.claim
    return {
        "name": name,
        "selects": selects,
        "mechanism": claim.mechanism,
        "loss": loss_of_claim(claim),
        "rate": float(claim.rate),
        "scale": float(1 / claim.rate) if "discrete" in claim.mechanism else None,
        "score_range": str(claim.score_range),
        "draws": claim.draws,
        "candidates": _candidates(query, types),
    }


def loss_of_claim(claim: Claim) -> Facts:
    """Return what an output costs, exactly."""
    return {"unit": claim.loss.unit, **number_facts(claim.loss.value), "delta": number_facts(claim.delta)}


def _candidates(query: Asked, types: Sequence[pl.DataType]) -> str | None:
    """Return the public candidates of a question in words; None where it has none."""
    candidates = getattr(query, "candidates", None)
    if candidates is None:
        return None
    if isinstance(candidates, Grid):
        first, last = candidates.take(np.array([0, candidates.size - 1])).to_list()
        return f"{candidates}, evenly from {first} to {last}"
    values: pl.Series | None = candidates.values
    if values is None and types:
        values = candidates.for_column(types[0])
    return "those of the column's type" if values is None else listed(values.to_frame())
