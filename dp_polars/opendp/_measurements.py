"""OpenDP's modules, and wrappers that expose our draws as OpenDP user measurements."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from dp_polars._numeric.extras import require
from dp_polars._numeric.numbers import nearest_float_up

if TYPE_CHECKING:
    from collections.abc import Callable

    from opendp.mod import Domain, Measure, Measurement, Metric

    from dp_polars._accounting.claims import Unit

domains, measurements, measures, metrics, mod = (
    require(f"opendp.{name}", extra="opendp") for name in ("domains", "measurements", "measures", "metrics", "mod")
)


def assert_features() -> None:
    """Raise OpenDP's error, which has the call that enables them, unless the features of user measurements are."""
    mod.assert_features("contrib", "honest-but-curious")


def loss_unit(measure: Measure) -> Unit:
    """Return our word for the unit of one of OpenDP's measures."""
    if measure == measures.max_divergence():
        return "epsilon"
    if measure == measures.zero_concentrated_divergence():
        return "rho"
    msg = (
        f"output_measure must be max_divergence() or zero_concentrated_divergence(), got {measure}.\n\n"
        "Hint: OpenDP's make_approximate and make_zCDP_to_approxDP go from there to delta."
    )
    raise ValueError(msg)


def make_measurement(
    domain: Domain,
    metric: Metric,
    measure: Measure,
    draw: Callable[[Any], object],
    cost: Callable[[Fraction], Fraction],
    output_type: str,
) -> Measurement:
    """Return a measurement that draws by `draw` and costs `cost` at a distance."""

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

    def privacy_map(d_in: float) -> float:
        if not 0 <= d_in < math.inf:
            msg = f"d_in must be finite and not negative, got {d_in!r}."
            raise ValueError(msg)
        return nearest_float_up(cost(Fraction(d_in)))

    measurement: Measurement = measurements.make_user_measurement(
        domain, metric, measure, function, privacy_map, TO=output_type
    )
    return measurement
