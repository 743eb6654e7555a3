"""Mutants of the adapter for OpenDP, and of the `.dp` that both packages share."""
# fmt: off

from tests.mutation.mutant import of

_opendp = of("opendp/test_measurement.py", needs="opendp")
_selection = of("opendp/test_selection.py", needs="opendp")

_MAP = "opendp/test_selection.py::test_the_map_is_exact_and_never_above_that_of_noisy_max"

MUTANTS = [
    # --- What OpenDP charges
    _opendp("make_private_query", "ask.query.claim.cost(unit, distance)", "ask.query.claim.cost(unit)",
        "many rows of a person cost as much as one",
        "opendp/test_measurement.py::test_the_map_is_that_of_the_design_at_every_distance"),
    _opendp("opendp:_metric", "unit is None", "True", "people are rows to OpenDP",
        "opendp/test_measurement.py::test_the_metric_says_what_a_person_is"),
    _opendp("_at_loss", "claim.cost(total.unit) * factor", "total.value * factor",
        "each output costs as much as all together",
        "opendp/test_measurement.py::test_all_outputs_keep_their_shares_of_another_loss"),
    _opendp("_at_most_its_float", "min(value, Fraction(float(value)))", "value",
        "a loss is more than the float that OpenDP was given",
        "opendp/test_measurement.py::test_a_loss_is_the_float_that_opendp_takes_it_for"),
    _opendp("opendp:make_measurement", "nearest_float_up(cost(distance))", "float(cost(distance)) * (1 - 1e-15)",
        "a map rounds down", "opendp/test_measurement.py::test_the_map_is_that_of_the_design_at_every_distance"),
    _opendp("opendp:measure_of", "approximate if has_delta else of_loss", "of_loss",
        "a delta is spent that nobody is told of",
        "opendp/test_measurement.py::test_a_delta_makes_the_measure_approximate"),
    _opendp("opendp:loss_unit", "measure == measure_of(unit, has_delta=has_delta)", "True",
        "rho is charged as epsilon", "opendp/test_measurement.py::test_domains_and_measures_that_are_refused"),
    _opendp("assert_features", '_mod.assert_features("contrib", "honest-but-curious")',
        '_mod.enable_features("contrib", "honest-but-curious")', "the features that a user must ask for are switched on",
        "opendp/test_measurement.py::test_features_are_asked_for_and_never_switched_on"),
    # --- Selection from scores
    _selection("make_selection", "1 if is_monotonic else 2", "1", "scores that move both ways cost half", _MAP),
]
