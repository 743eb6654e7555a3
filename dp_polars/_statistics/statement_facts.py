"""The facts of a statement, as plain values: known facts, losses, outputs, software."""

from __future__ import annotations

import datetime as dt
import math
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from fractions import Fraction
from importlib import import_module
from typing import Any, Literal, NamedTuple, TypeAlias, TypedDict

import polars as pl

from dp_polars._accounting.claims import Claim, delta_of, epsilon_of, loss_of
from dp_polars._accounting.costs import epsilon_at
from dp_polars._accounting.terms import LARGEST, Unit, check_delta, exact
from dp_polars._base.digests import listed
from dp_polars._base.numbers import Number, as_fraction, cost_up, float_up, given, loss_up, one_of, show
from dp_polars._bins.candidates import Digits, Grid, ends_of
from dp_polars._statistics.shared_sums import draws_shared, first_draw
from dp_polars._statistics.statistic import Asked

#: The δ at which a loss is also given as an ε, if no other δ is requested.
AT_DELTA = Fraction(1, 10**6)
#: Placeholder for a missing text.
TO_BE_STATED = "TO BE STATED"

FactKind: TypeAlias = Literal["text", "texts", "date", "word", "fact", "number"]


class KnownButNotes(TypedDict, total=False):
    """Facts from people about a release, as arguments: all except their notes, which a report has for each query."""

    name: str
    data_curators: str | Sequence[str]
    description: str
    intended_use: str
    data_product_type: str
    data_product_region: str
    data_product_sector: str
    publication_date: str | dt.date
    data_domain: str
    unprotected_quantities: str
    privacy_unit: str
    privacy_unit_details: str
    privacy_parameters_details: str
    model_name: str
    model_name_details: str
    actors: str
    release_type: str
    release_type_details: str
    data_source_type: str
    data_source_type_details: str
    access_type: str
    access_type_details: str
    post_processing: str
    composition: str
    preprocessing_and_hyperparameter_tuning: str
    mechanisms: str
    justification: str
    sources: str
    registry_authors: str | Sequence[str]
    url_slug: str
    status: str
    tier: int


class Known(KnownButNotes, total=False):
    """Facts from people about a release, as arguments."""

    notes: str


class Field(NamedTuple):
    """A field of the schema: its place, the tier that first requires it, and its kind.

    Only the package knows a "fact". `words` are the values of an enumeration, and `usual` is the default.
    """

    section: str
    name: str
    label: str
    kind: FactKind
    tier: int | None
    words: tuple[str, ...] = ()
    usual: str | None = None
    is_required: bool = False


_STATUS = ("Converted", "Draft", "Pending", "Changes Required", "Approved", "Approved (Update Requested)")
_PRODUCTS = (
    *("Summary statistics", "Machine learning model", "Dataset", "Synthetic data", "Interactive API", "SQL queries"),
)
_SECTORS = ("Technology", "Healthcare", "Education", "Government", "Energy", "Finance")
_MODELS = ("Local", "Central", "Shuffle", "Federated", "Varies")

#: In the order of the schema of the registry of deployments (OpenDP, MIT).
FIELDS: tuple[Field, ...] = (
    Field("record", "url_slug", "URL slug", "text", None, is_required=True),
    Field("record", "status", "Status of the record", "word", None, (*_STATUS, "Approved (Pending)"), "Draft", True),
    Field("record", "tier", "Tier", "number", None, is_required=True),
    Field("basic", "name", "Name", "text", 1, is_required=True),
    Field("basic", "data_curators", "Curators", "texts", 1, is_required=True),
    Field("basic", "intended_use", "Intended use", "text", 1, is_required=True),
    Field("basic", "data_product_type", "Type", "word", 1, _PRODUCTS, "Summary statistics", True),
    Field("basic", "data_product_region", "Region", "text", 1, is_required=True),
    Field("basic", "description", "Description", "text", 1, is_required=True),
    Field("basic", "publication_date", "Date of publication", "date", 1, is_required=True),
    Field("basic", "data_product_sector", "Sector", "word", 1, _SECTORS),
    Field("dp_variant", "variant_name", "Variant", "fact", 2),
    Field("dp_variant", "data_domain", "Data", "text", 3),
    Field("dp_variant", "unprotected_quantities", "Not protected", "text", 3),
    Field("privacy_loss", "privacy_unit", "Who is protected", "text", 2),
    Field("privacy_loss", "privacy_parameters", "Loss", "fact", 2),
    Field("privacy_loss", "privacy_unit_details", "Meaning of the unit", "text", 3),
    Field("privacy_loss", "privacy_parameters_details", "Meaning of the loss", "text", 3),
    Field("deployment_model", "model_name", "Model", "word", 2, _MODELS, "Central"),
    Field("deployment_model", "model_name_details", "Who is trusted", "text", None),
    Field("deployment_model", "actors", "Actors", "text", 3),
    Field("deployment_model", "release_type", "Releases", "word", 2, ("One release", "Many releases")),
    Field("deployment_model", "release_type_details", "Further releases", "text", None),
    Field("deployment_model", "data_source_type", "Source of the data", "word", 2, ("Static", "Dynamic")),
    Field("deployment_model", "data_source_type_details", "More on the source", "text", 3),
    Field("deployment_model", "access_type", "Access", "word", 2, ("Interactive", "Non-interactive")),
    Field("deployment_model", "access_type_details", "More on access", "text", 3),
    Field("accounting", "post_processing", "After the release", "text", 3),
    Field("accounting", "composition", "Composition", "text", 3),
    Field("implementation", "preprocessing_and_hyperparameter_tuning", "Before the release", "text", 3),
    Field("implementation", "mechanisms", "Mechanisms", "text", 3),
    Field("implementation", "justification", "Justification", "text", 3),
    Field("administrative", "sources", "Sources", "text", 1),
    Field("administrative", "notes", "Notes", "text", 1),
    Field("administrative", "registry_authors", "Authors of this record", "texts", None, is_required=True),
)
_OF_NAME = {field.name: field for field in FIELDS if field.kind != "fact"}


def checked(known: Mapping[str, object]) -> dict[str, object]:
    facts = [field.name for field in FIELDS if field.kind == "fact"]
    for name in known:
        if name not in _OF_NAME:
            why = "is what the package knows" if name in facts else "is no field"
            msg = f"statement: {name!r} must be left out, for it {why}.\n\nHint: the fields are {', '.join(_OF_NAME)}."
            raise TypeError(msg)
    return {name: _checked(_OF_NAME[name], value) for name, value in known.items()}


def _checked(field: Field, value: object) -> object:
    name = field.name
    if field.kind == "word":
        return one_of(name, value, field.words)
    if field.kind == "number":
        if isinstance(value, bool) or value not in (1, 2, 3):
            msg = f"{name} must be 1, 2 or 3, got {given(value)}."
            raise ValueError(msg)
        return value
    if field.kind == "date":
        return _date(name, value)
    if field.kind == "texts" and isinstance(value, Sequence) and not isinstance(value, str):
        if not value:
            msg = f"{name} must have at least one text, got none."
            raise ValueError(msg)
        return [_text(name, one) for one in value]
    text = _text(name, value)
    return [text] if field.kind == "texts" else text


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        msg = f"{name} must be a text, got {given(value)}."
        raise TypeError(msg)
    if not value.strip():
        msg = f"{name} must not be blank.\n\nHint: leave it out, and the statement says {TO_BE_STATED!r}."
        raise ValueError(msg)
    return value


def _date(name: str, value: object) -> str:
    if isinstance(value, dt.date):
        return (value.date() if isinstance(value, dt.datetime) else value).isoformat()
    try:
        return dt.datetime.strptime(_text(name, value), "%Y-%m-%d").date().isoformat()
    except ValueError:
        msg = f"{name} must be a date such as '2026-11-23', got {given(value)}."
        raise ValueError(msg) from None


Facts: TypeAlias = "dict[str, Any]"  # JSON values, nested

#: Placeholder for an output in a ledger without its query.
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
    versions = {"dp_polars": import_module("dp_polars").__version__, "polars": pl.__version__}
    versions["python"] = platform.python_version()
    return {"date": datetime.now(UTC).date().isoformat(), "versions": versions}


def facts_of_claims(claims: Sequence[Claim], at_delta: Number) -> Facts:
    """Return the joint loss of outputs, with the ε that `explain` also gives."""
    loss, at = loss_of(claims), check_delta(at_delta)
    return loss_facts(loss.unit, loss.value, delta_of(claims), at, epsilon_of(claims, at))


def loss_facts(unit: Unit, value: Fraction, delta: Fraction, at_delta: Number, epsilon: float | None = None) -> Facts:
    """Return the facts of a loss: its exact value, its variant, and its meaning.

    `at_delta` is the δ for ε; `epsilon` is that ε if it is known more exactly than from the loss.
    """
    at = check_delta(at_delta)
    variant, definition = _VARIANTS[unit, delta > 0]
    epsilon = epsilon_at(unit, value, at, delta) if epsilon is None else epsilon
    return {
        "unit": unit,
        **number_facts(value),
        "delta": number_facts(delta),
        "variant": variant,
        "definition": definition,
        "means": _meaning(unit, value, delta),
        "at_delta": number_facts(at) | {"epsilon": epsilon if math.isfinite(epsilon) else None},
    }


def guaranteed(loss: Facts) -> str:
    """Return the guarantee of a loss for one person: rounded up to four digits, in rho as an ε at a δ."""
    value, delta = (cost_up(Fraction(one["exact"])) for one in (loss, loss["delta"]))
    at, symbol = loss["at_delta"], {"epsilon": "ε", "rho": "ρ"}[loss["unit"]]
    if loss["unit"] == "epsilon" or at["epsilon"] is None:
        return f"{symbol} = {value}" + ("" if delta == "0" else f" and δ = {delta}")
    return f"ε = {cost_up(as_fraction('epsilon', at['epsilon']))} and δ = {at['text']} (ρ = {value})"


def number_facts(value: Fraction) -> Facts:
    """Return an exact loss, the same rounded up to a float (None beyond all floats), and its text."""
    up = loss_up(value)
    return {"exact": str(value), "value": up if math.isfinite(up) else None, "text": exact(value)}


def _meaning(unit: Unit, value: Fraction, delta: Fraction) -> str:
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


def output_facts(name: str, query: Asked, selects: str, types: Sequence[pl.DataType] = (), parts: int = 1) -> Facts:
    """Return the facts of an output; its loss is one person's, who changes `parts` disjoint parts."""
    claim, drawn = query.claim, first_draw(query)
    loss, delta = number_facts(parts * claim.loss.value), number_facts(parts * claim.delta)
    return {
        "name": name,
        "selects": selects,
        "mechanism": claim.mechanism,
        "loss": {"unit": claim.loss.unit, **loss, "delta": delta},
        "rate": float(drawn.rate),
        "scale": float(1 / drawn.rate) if "discrete" in claim.mechanism else None,
        "score_range": str(drawn.score_range),
        "draws": len(draws_shared(query)) or claim._draws,
        "candidates": _candidates(query, types),
        "clipping": query.clipping,
    }


def follows_facts(name: str, selects: str) -> Facts:
    """Return the facts of an output that follows from others without a draw."""
    unknown = dict.fromkeys(["mechanism", "loss", "rate", "scale", "score_range", "candidates", "clipping"])
    return {"name": name, "selects": selects, **unknown, "draws": 0}


def _candidates(query: Asked, types: Sequence[pl.DataType]) -> str | None:
    candidates = getattr(query, "candidates", None)
    if candidates is None:
        return None
    if isinstance(candidates, (Grid, Digits)):
        first, last = ends_of(candidates)
        return f"{candidates}, {'evenly ' if isinstance(candidates, Grid) else ''}from {first} to {last}"
    values: pl.Series | None = candidates.values
    if values is None and types:
        values = candidates.for_column(types[0])
    return "those of the column's type" if values is None else listed(values.to_frame())
