"""OpenDP's modules, and wrappers that expose our draws as OpenDP user measurements."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from dp_polars._base.extras import require
from dp_polars._base.numbers import nearest_float_up

if TYPE_CHECKING:
    from collections.abc import Callable

    from opendp.mod import Domain, Measure, Measurement, Metric

    from dp_polars._accounting.terms import Unit

domains, measurements, measures, metrics, mod = (
    require(f"opendp.{name}", extra="opendp") for name in ("domains", "measurements", "measures", "metrics", "mod")
)


_UNITS: tuple[Unit, ...] = ("epsilon", "rho")


def assert_features() -> None:
    """Raise OpenDP's error, which has the call that enables them, unless the features of user measurements are."""
    mod.assert_features("contrib", "honest-but-curious")


def loss_unit(measure: Measure, *, has_delta: bool = False) -> Unit:
    """Return our word for the unit of one of OpenDP's measures: of a loss with a delta, or without."""
    for unit in _UNITS:
        if measure == measure_of(unit, has_delta=has_delta):
            return unit
    if has_delta:
        msg = (
            "output_measure must be approximate(max_divergence()) or approximate(zero_concentrated_divergence()) for a "
            f"query that spends a delta, got {measure}."
        )
        raise ValueError(msg)
    msg = (
        f"output_measure must be max_divergence() or zero_concentrated_divergence(), got {measure}.\n\n"
        "Hint: OpenDP's make_approximate and make_zCDP_to_approxDP go from there to delta."
    )
    raise ValueError(msg)


def measure_of(unit: Unit, *, has_delta: bool) -> Measure:
    """Return OpenDP's measure of losses in a unit, with a delta or without."""
    of_loss: Measure = measures.max_divergence() if unit == "epsilon" else measures.zero_concentrated_divergence()
    approximate: Measure = measures.approximate(of_loss)
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
            raise  # of arguments and schemas, or a ReleaseError: OpenDP prints them in full
        except BaseException as error:
            # An interrupt, or a panic of Polars: passing through OpenDP's library it would end the process.
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

    measurement: Measurement = measurements.make_user_measurement(
        domain, metric, measure, function, privacy_map, TO=output_type
    )
    return measurement
