"""OpenDP's modules, and wrappers that offer our draws as OpenDP user measurements."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import polars as pl

from dp_polars._accounting.claims import check_mechanism, claim_of_choice
from dp_polars._accounting.costs import scaled_cost
from dp_polars._accounting.terms import ONE_RELEASE, Loss, Terms, Unit
from dp_polars._base.column_types import shown
from dp_polars._base.extras import require
from dp_polars._base.numbers import (
    Number,
    kind_of_frame,
    nearest_float_up,
    positive_fraction,
    positive_loss,
    system_rng,
)
from dp_polars._base.silence import silenced
from dp_polars._expressions.expression import PrivateExpr
from dp_polars._frames.protect import protect
from dp_polars._frames.publication import Publication, queries_of
from dp_polars._frames.query import PrivateQuery
from dp_polars._frames.synthetic_query import SyntheticQuery
from dp_polars._mechanisms.racing import LAWS
from dp_polars._mechanisms.selection import best_rows
from dp_polars._release.staged import StagedRequest
from dp_polars._statistics.statistic import Asked, of_histogram

if TYPE_CHECKING:
    from collections.abc import Callable

    from opendp.mod import Domain, Measure, Measurement, Metric

__all__ = ["as_measurement", "frame_domain", "make_private_query", "make_selection", "register", "then_selection"]

_AnyQuery: TypeAlias = "PrivateQuery | Publication | PrivateExpr"

_domains: Any = require("opendp.domains", extra="opendp")
_measurements: Any = require("opendp.measurements", extra="opendp")
_measures: Any = require("opendp.measures", extra="opendp")
_metrics: Any = require("opendp.metrics", extra="opendp")
_mod: Any = require("opendp.mod", extra="opendp")


def __dir__() -> list[str]:
    return __all__


def assert_features() -> None:
    """Raise OpenDP's error, which shows how to enable them, unless the features for user measurements are enabled."""
    _mod.assert_features("contrib", "honest-but-curious")


def loss_unit(measure: Measure, *, has_delta: bool = False) -> Unit:
    unit: Unit
    for unit in ("epsilon", "rho"):
        if measure == measure_of(unit, has_delta=has_delta):
            return unit
    names, more = ["max_divergence()", "zero_concentrated_divergence()"], ""
    hint = "\n\nHint: OpenDP's make_approximate and make_zCDP_to_approxDP go from there to delta."
    if has_delta:
        names, more, hint = [f"approximate({name})" for name in names], " for a query that spends a delta", ""
    msg = f"output_measure must be {' or '.join(names)}{more}, got {measure}.{hint}"
    raise ValueError(msg)


def measure_of(unit: Unit, *, has_delta: bool) -> Measure:
    of_loss: Measure = _measures.max_divergence() if unit == "epsilon" else _measures.zero_concentrated_divergence()
    approximate: Measure = _measures.approximate(of_loss)
    return approximate if has_delta else of_loss


def make_measurement(
    domain: Domain,
    metric: Metric,
    measure: Measure,
    draw: Callable[[Any], object],
    cost: Callable[[Fraction], Fraction],
    output_type: str,
    delta: Callable[[Fraction], Fraction] | None = None,
) -> Measurement:
    """Return a measurement that draws by `draw` and costs `cost` at a distance, and also `delta`."""

    def function(data: object) -> object:
        try:
            return draw(data)
        except Exception:
            raise  # errors about arguments or schemas, or a ReleaseError: OpenDP prints them in full
        except BaseException as error:
            # An interrupt, or a panic of Polars, would end the process if it passed through OpenDP's library.
            stopped = type(error).__name__
        msg = f"The release was stopped by {stopped}; nothing was released."
        raise RuntimeError(msg)

    def privacy_map(d_in: float) -> float | tuple[float, float]:
        if not 0 <= d_in < math.inf:
            msg = f"d_in must be finite and not negative, got {d_in!r}."
            raise ValueError(msg)
        distance = Fraction(d_in)
        loss = nearest_float_up(cost(distance))
        return loss if delta is None else (loss, nearest_float_up(min(delta(distance), Fraction(1))))

    measurement: Measurement = _measurements.make_user_measurement(
        domain, metric, measure, function, privacy_map, TO=output_type
    )
    return measurement


def frame_domain() -> Domain:
    """Return the domain of `as_measurement`: all LazyFrames and DataFrames.

    All such domains are equal, so measurements of different queries can join one composition.
    OpenDP's own measurements can join, too, after a transformation from this domain.
    A query's columns are checked when it is invoked.
    An OpenDPException shows how to enable the features "contrib" and "honest-but-curious" if they are disabled.
    """
    assert_features()
    domain: Domain = _domains.user_domain("dp_polars: Polars frames", _is_frame)
    return domain


def as_measurement(
    query: _AnyQuery, *, input_domain: Domain | None = None, output_measure: Measure | None = None
) -> Measurement:
    r"""Make an OpenDP measurement that releases a private query.

    Parameters
    ----------
    query
        A `PrivateQuery` that `dp_polars.protect(…)` made without data and without a budget of its own, or a publication
        of such queries; or, on frames of one row per person, a mode, median or quantile (`PrivateExpr`) without
        `contributions`, which may come or go.
    input_domain
        None: `frame_domain()`. Or the domain of an OpenDP context over a LazyFrame (`context.accountant.input_domain`;
        OpenDP wants its own version of Polars there): then it goes with OpenDP's Polars queries.
    output_measure
        `max_divergence()` (epsilon) or `zero_concentrated_divergence()` (rho); `approximate(…)` of one of them for a
        query that spends a delta. None: the measure of the query's loss.

    Returns
    -------
    opendp.mod.Measurement
        From a LazyFrame or DataFrame to the DataFrame that `PrivateQuery.release` gives; of a cube to the count in
        each cell, or of each table, where dimensions that it leaves out are null; of a publication to a dict of these.
        The metric counts rows
        (`symmetric_distance`, or `change_one_distance` under "replace_one"), or people if the query has a privacy
        unit (`symmetric_id_distance`, `change_one_id_distance`). The privacy map adds up what the outputs cost at that
        distance, exactly, and rounds up to a float64.

    Raises
    ------
    OpenDPException
        As for `frame_domain`.
    TypeError, ValueError
        If an argument is not as described, or the query has no loss in that measure (a Gaussian has no epsilon). On
        invocation, as an OpenDPException: if the data is no frame, or has other columns than the query needs; never
        with a value of a row.

    Notes
    -----
    At distance d, for rate λ, range R and T rows of a person in all, epsilon is dλRT. :doc:`/proofs/spreads` has the
    formulas in rho, of all mechanisms and both relations (Harrison & Manurangsi 2026, arXiv 2510.25746).

    A query that joins tables, or uses several rows of one person, needs preprocessed rows. Make them by a
    `make_user_transformation` from `frame_domain()` to itself, of stability 1.

    A loss such as 0.3 is 3/10 in this package, and the nearest float64, slightly less, in OpenDP. The measurement then
    runs at the smaller loss, so that exact splits of a budget fit.

    Examples
    --------
    >>> import opendp.prelude as dp
    >>> import polars as pl
    >>> import dp_polars as dpp
    >>> from dp_polars.opendp import as_measurement
    >>> dp.enable_features("contrib", "honest-but-curious")
    >>> query = dpp.protect(None).agg(pl.col("age").dp.median(range(121), epsilon=0.5))
    >>> measurement = as_measurement(query)
    >>> measurement.map(2)
    1.0
    >>> measurement(pl.DataFrame({"age": [40] * 1000})).item()
    40
    """
    private = _unbound(query)
    space = frame_domain() if input_domain is None else input_domain, _metric(private)
    return make_private_query(*space, private, private.loss.value, output_measure)


def make_private_query(
    input_domain: Domain, input_metric: Metric, query: _AnyQuery, loss: Number, output_measure: Measure | None = None
) -> Measurement:
    """Make the measurement of `as_measurement` with another loss; each output keeps its share of it.

    After `register()` a context's query can end in it: `context.query().private_query(query, 0.5)`, or without the
    loss, which OpenDP then searches for.

    `input_metric` must be the query's. `loss` is one person's loss to all outputs together, in the unit of
    `query.loss`. All else, and errors, are as for `as_measurement`.
    """
    assert_features()
    private = _at_loss(_unbound(query), positive_loss("loss", loss))
    metric, parts = _metric(private), queries_of(private)
    claims = [claim for part in parts for claim in part._planned.claims]
    if input_metric != metric:
        msg = (
            f"input_metric must be {metric}, which is what {parts[0]._protection} means, got {input_metric}.\n\n"
            "Hint: unit_of(contributions=…) counts rows, with identifier=… people of that column, and changes=… is for "
            'neighboring_relation="replace_one".'
        )
        raise ValueError(msg)
    if input_domain != frame_domain() and not isinstance(input_domain, _mod.LazyFrameDomain):
        msg = f"input_domain must be frame_domain() or a LazyFrameDomain, got {input_domain}."
        raise ValueError(msg)
    has_delta = private.delta > 0
    unit = private.loss.unit if output_measure is None else loss_unit(output_measure, has_delta=has_delta)

    def release(frame: object) -> object:
        if not _is_frame(frame):
            msg = f"the data must be a LazyFrame or a DataFrame, got {kind_of_frame(frame)}"
            raise TypeError(msg)
        return private.release(frame)

    of_parts = parts[0]._protection.parts_of_people

    def cost(distance: Fraction) -> Fraction:
        return sum((claim.cost(unit, distance) for claim in claims), Fraction(0)) * of_parts(distance)

    cost(Fraction(1))  # refused here, not when the map is called: a Gaussian has no epsilon

    def delta(distance: Fraction) -> Fraction:
        return sum((claim._delta_of(distance) for claim in claims), Fraction(0)) * of_parts(distance)

    measure = measure_of(unit, has_delta=has_delta)
    given = (input_domain, input_metric, measure, release, cost, "ExtrinsicObject")
    return make_measurement(*given, delta if has_delta else None)


def make_selection(
    input_domain: Domain, input_metric: Metric, output_measure: Measure, scale: float, negate: bool = False
) -> Measurement:
    r"""Make a measurement that takes a vector of scores and selects the position of the highest one.

    It has the parameters and the law of OpenDP's `make_noisy_max`, and samples by this package. Its map is the same in
    epsilon, and tighter in rho.

    Parameters
    ----------
    input_domain
        `vector_domain(atom_domain(T))` of integers, or of floats with `nan=False`.
    input_metric
        `linf_distance(T, monotonic=…)`: by how much one score can change; monotonic: all in one direction.
    output_measure
        `max_divergence()` draws by permute-and-flip, `zero_concentrated_divergence()` by the exponential mechanism.
    scale
        The noise's scale 1/λ: the coin of a candidate is exp(−gap/scale). Greater than 0 (OpenDP takes 0 for no
        privacy).
    negate
        Whether to select the lowest score.

    Returns
    -------
    opendp.mod.Measurement
        From a list or array of scores, at least one, to a position. Infinite scores count as the largest floats, as in
        OpenDP. With R = d (monotonic) or 2d at distance d, the map is x = R/scale in epsilon and y − 1 − ln y in rho,
        y = x/(exp(x) − 1).

    Raises
    ------
    OpenDPException, TypeError, ValueError
        If a domain, metric, measure or scale is not as described, or the features are not enabled.

    Notes
    -----
    McKenna & Sheldon 2020 (arXiv 2010.12603); Harrison & Manurangsi 2026 (arXiv 2510.25746). OpenDP's own map in rho is
    x²/8, a little more.

    Examples
    --------
    >>> import opendp.prelude as dp
    >>> from dp_polars.opendp import then_selection
    >>> dp.enable_features("contrib", "honest-but-curious")
    >>> space = dp.vector_domain(dp.atom_domain(T=int)), dp.linf_distance(T=int)
    >>> selection = space >> then_selection(dp.max_divergence(), scale=2.0)
    >>> selection.map(1)
    1.0
    >>> selection([0, 100, 3])
    1
    """
    assert_features()
    exact_scale = positive_fraction("scale", scale)
    _measurements.make_noisy_max(input_domain, input_metric, output_measure, float(scale), negate)  # checks all
    unit = loss_unit(output_measure)
    mechanism = check_mechanism("choice", None, unit)
    is_monotonic = input_metric == _metrics.linf_distance(T=input_metric.distance_type, monotonic=True)
    score_range = Fraction(1 if is_monotonic else 2)
    loss = Loss(scaled_cost(unit, mechanism, score_range / exact_scale, ONE_RELEASE), unit)
    claim = claim_of_choice(loss, mechanism, score_range, ONE_RELEASE, None)  # with rate 1/scale
    # NumPy's own choice of a type would round large integers.
    dtype = {"i": np.int64, "u": np.uint64, "f": np.float64}[str(input_metric.distance_type)[0]]
    largest = np.finfo(np.float64).max

    @silenced
    def select(values: Any) -> int:  # noqa: ANN401
        scores: Any = np.asarray(values, dtype)
        if not len(scores):
            msg = "the vector of scores must not be empty."
            raise ValueError(msg)
        if dtype is np.float64:
            # Clipped scores change by at most as much as the scores; refusing them would depend on the data.
            scores = np.nan_to_num(scores, nan=-largest, posinf=largest, neginf=-largest)
        lengths = np.array([len(scores)])
        return int(best_rows(scores, lengths, claim.rate, LAWS[mechanism], system_rng(), lowest=negate)[0])

    return make_measurement(
        input_domain, input_metric, output_measure, select, lambda distance: claim.cost(unit, distance), "usize"
    )


def then_selection(output_measure: Measure, scale: float, negate: bool = False) -> Any:  # noqa: ANN401
    """Make `make_selection` for `input_space >> then_selection(…)`, which passes the domain and the metric."""
    return _mod._PartialConstructor(
        lambda domain, metric: make_selection(domain, metric, output_measure, scale, negate)
    )


def register() -> None:
    """Add `.private_query(query, loss)` and `.selection(measure, scale)` to queries of OpenDP's Context API.

    The last number may be left out in a context with a known loss: OpenDP searches for the best one. Calling this
    twice changes nothing. It imports `opendp.context`, and with it OpenDP's Polars extra.
    """
    context = require("opendp.context", extra="opendp")
    for constructor in (make_private_query, make_selection):
        if constructor.__name__.removeprefix("make_") not in context.constructors:
            context.register(constructor)


def _unbound(query: _AnyQuery) -> PrivateQuery | Publication:
    if isinstance(query, Publication):
        return Publication({name: _unbound_query(one) for name, one in query.queries.items()})
    if isinstance(query, PrivateQuery) and query._protection.parts is not None:
        msg = (
            "query must not be of the disjoint parts of a publication: all its queries see the same parts.\n\n"
            "Hint: as_measurement(publication)."
        )
        raise TypeError(msg)
    return _unbound_query(query)


def _unbound_query(query: PrivateQuery | PrivateExpr) -> PrivateQuery:
    if isinstance(query, PrivateQuery):
        if query._has_rows or query.budget is not None:
            msg = (
                "query must have no data and no budget of its own: OpenDP gives the one and keeps the other.\n\n"
                "Hint: begin with dp_polars.protect(…) instead of frame.dp.protect(…), without budget."
            )
            raise ValueError(msg)
        if isinstance(query, SyntheticQuery):
            msg = (
                "query must not be of synthetic rows: what rounds of unknown losses cost several people is not proved, "
                "and OpenDP's map is for any number.\n\nHint: release the query without OpenDP."
            )
            raise TypeError(msg)
        if isinstance(query._planned, StagedRequest):
            msg = (
                "query must be given all limits and clipping bounds: what it loses to several people at once is not "
                "proved where they are found, and OpenDP's map is for any number.\n\n"
                "Hint: dp_polars.protect(…, max_rows=9), and sum(0, 100); or release the query without OpenDP."
            )
            raise TypeError(msg)
        unit = query._protection.unit or ()
        if len(unit) > 1:
            msg = (
                f"query must have a privacy unit of one column, got {shown(unit)}: OpenDP knows one identifier.\n\n"
                f"Hint: protect({unit[0]!r}, …) or another one of them; or release the query without OpenDP."
            )
            raise ValueError(msg)
        return query
    if not isinstance(query, PrivateExpr):
        msg = f"query must be a PrivateQuery, a publication or a PrivateExpr, got {type(query).__name__}."
        raise TypeError(msg)
    asked = of_histogram(query.query, "query", "make_selection, after an OpenDP transformation that makes the scores.")
    if asked.claim.contributions.total != 1:
        msg = (
            "query must be given without contributions: the privacy map takes the distance in rows.\n\n"
            "Hint: OpenDP's unit_of(contributions=…) says how many rows a person has; or name the person's column: "
            "dp_polars.protect(…)."
        )
        raise ValueError(msg)
    return protect(None).agg(query)


def _at_loss(query: PrivateQuery | Publication, loss: Fraction) -> PrivateQuery | Publication:
    """Scale the query's loss to `loss`, or to the next float64 below it."""
    total = query.loss
    factor = _at_most_its_float(loss) / total.value
    # Deltas stay, except for the same rounding.
    hair = _at_most_its_float(query.delta) / query.delta if query.delta else Fraction(1)

    def scaled(statistic: Asked) -> Terms:
        claim, terms = statistic.claim, statistic.terms
        # In another unit the mechanism stays, too.
        mechanism = terms.mechanism if claim.loss.unit == total.unit else claim.mechanism
        loss = replace(total, value=claim.cost(total.unit) * factor)
        return replace(terms, loss=loss, mechanism=mechanism, delta=terms.delta * hair)

    def of_query(one: PrivateQuery) -> PrivateQuery:
        asks = [ask.with_terms(scaled(ask.query)) for ask in one._planned.every]
        return PrivateQuery(one._request.with_asks(asks), None, None)

    if isinstance(query, Publication):
        return Publication({name: of_query(one) for name, one in query.queries.items()})
    return of_query(query)


def _at_most_its_float(value: Fraction) -> Fraction:
    """Return an exact rational, or the next float64 below it, which OpenDP uses in its place."""
    return min(value, Fraction(float(value)))


def _metric(query: PrivateQuery | Publication) -> Metric:
    protection = queries_of(query)[0]._protection
    relation, unit = protection.neighboring_relation, protection.unit or ()
    name = "symmetric" if relation == "add_or_remove_one" else "change_one"
    metric: Metric = getattr(_metrics, f"{name}_id_distance" if unit else f"{name}_distance")(*unit)
    return metric


def _is_frame(value: object) -> bool:
    return isinstance(value, (pl.LazyFrame, pl.DataFrame))
