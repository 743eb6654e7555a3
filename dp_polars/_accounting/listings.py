"""What a ledger holds, as frames for people."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dp_polars._accounting.kept import StoredAnswer
    from dp_polars._accounting.ledger import Charge

_WHEN = pl.col("when").cast(pl.Datetime("us", "UTC"))


def frame_of_charges(charges: Iterable[Charge], order: Fraction) -> pl.DataFrame:
    """Return one row per charge. Polars prints the first four columns and the last four."""
    rows = [
        (
            *(one.microseconds, one.what, float(Fraction(one.loss))),
            None if one.running_total is None else float(Fraction(one.running_total)),
            *(one.loss, one.delta, None if one.rho is None else float(Fraction(one.running_divergence) / order)),
            *(bool(one.unchecked), one.unit, one.mechanism),
            *(float(Fraction(one.delta)), float(Fraction(one.running_delta))),
        )
        for one in charges
    ]
    schema = {
        "when": pl.Int64,
        "what": pl.String,
        "loss": pl.Float64,
        "running_total": pl.Float64,
        "exact_loss": pl.String,
        "exact_delta": pl.String,
        "running_rho": pl.Float64,
        "unchecked": pl.Boolean,
        "unit": pl.String,
        "mechanism": pl.String,
        "delta": pl.Float64,
        "running_delta": pl.Float64,
    }
    return pl.DataFrame(rows, schema, orient="row").with_columns(_WHEN)


def frame_of_answers(answers: Iterable[StoredAnswer]) -> pl.DataFrame:
    """Return one row per answer that is kept."""
    rows = [
        (
            *(one.microseconds, one.question.dataset, one.question.words, one.question.loss),
            *(one.size, one.question.source, one.question.text),
        )
        for one in answers
    ]
    schema = {
        "when": pl.Int64,
        "dataset": pl.String,
        "question": pl.String,
        "loss": pl.String,
        "bytes": pl.Int64,
        "source": pl.String,
        "text": pl.String,
    }
    return pl.DataFrame(rows, schema, orient="row").with_columns(_WHEN)
