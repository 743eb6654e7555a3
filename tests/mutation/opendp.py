"""Mutants of the adapter for OpenDP, and of the `.dp` that both packages share."""
# fmt: off

from tests.mutation.mutant import of

_measurement = of("opendp/test_measurement.py", needs="opendp")

MUTANTS = [
    # --- What OpenDP charges
    _measurement("make_private_query", "ask.query.claim.cost(unit, distance)", "ask.query.claim.cost(unit)",
        "many rows of a person cost as much as one", "::test_the_map_is_that_of_the_design_at_every_distance"),
    _measurement("opendp:_metric", "query.protection.unit or ()", "()", "people are rows to OpenDP",
        "::test_the_metric_says_what_a_person_is"),
    _measurement("_at_loss", "claim.cost(total.unit) * factor", "total.value * factor",
        "each output costs as much as all together", "::test_all_outputs_keep_their_shares_of_another_loss"),
    _measurement("_at_most_its_float", "min(value, Fraction(float(value)))", "value",
        "a loss is more than the float that OpenDP was given", "::test_a_loss_is_the_float_that_opendp_takes_it_for"),
    _measurement("opendp:make_measurement", "nearest_float_up(cost(distance))", "float(cost(distance)) * (1 - 1e-15)",
        "a map rounds down", "::test_the_map_is_that_of_the_design_at_every_distance"),
    _measurement("opendp:measure_of", "approximate if has_delta else of_loss", "of_loss",
        "a delta is spent that nobody is told of", "::test_a_delta_makes_the_measure_approximate"),
    _measurement("opendp:loss_unit", "measure == measure_of(unit, has_delta=has_delta)", "True",
        "rho is charged as epsilon", "::test_domains_and_measures_that_are_refused"),
    _measurement("assert_features", '_mod.assert_features("contrib", "honest-but-curious")',
        '_mod.enable_features("contrib", "honest-but-curious")',
        "the features that a user must ask for are switched on", "::test_features_are_asked_for_and_never_switched_on"),
    # --- Selection from scores
    of("opendp/test_selection.py")("make_selection", "1 if is_monotonic else 2", "1",
        "scores that move both ways cost half", "::test_the_map_is_exact_and_never_above_that_of_noisy_max",
        needs="opendp"),
]
