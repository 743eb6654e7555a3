"""Mutants of the adapter for OpenDP, and of the `.dp` that both packages share."""
# fmt: off

from tests.mutation.mutant import of

_opendp = of("opendp/test_measurement.py", needs="opendp")
_selection = of("opendp/test_selection.py", needs="opendp")
_keys = of("opendp/test_keys.py", needs="opendp")
_sharing = of("opendp/test_sharing.py", needs="opendp")

_LAW = "opendp/test_selection.py::test_the_law_is_the_exact_one_and_that_of_noisy_max"
_MAP = "opendp/test_selection.py::test_the_map_is_exact_and_never_above_that_of_noisy_max"

MUTANTS = [
    # --- What OpenDP charges
    _opendp("make_private_query", "ask.query.claim.cost(unit, distance)", "ask.query.claim.cost(unit)",
        "many rows of a person cost as much as one",
        "opendp/test_measurement.py::test_the_map_is_that_of_the_design_at_every_distance"),
    _keys("make_private_query", "ask.query.claim.delta_of(distance)", "ask.query.claim.delta",
        "the delta of several people is that of one",
        "opendp/test_keys.py::test_the_delta_of_several_people_holds_for_their_keys"),
    _opendp("make_private_query", "input_metric != metric", "False",
        "what is claimed for people is charged for rows",
        "opendp/test_measurement.py::test_a_metric_that_is_not_the_querys_is_refused"),
    _opendp("make_private_query", "input_domain != frame_domain() and not isinstance(input_domain, _mod.LazyFrameDomain)",
        "False", "a domain of other data is taken", "opendp/test_measurement.py -k refused"),
    _opendp("make_private_query", "cost(Fraction(1))", "",
        "a loss that a mechanism does not have is an error in the middle of a composition",
        "opendp/test_numbers.py::test_a_gaussian_has_no_map_in_epsilon"),
    _opendp("opendp:_metric", "unit is None", "True", "people are rows to OpenDP",
        "opendp/test_measurement.py::test_the_metric_says_what_a_person_is"),
    _opendp("opendp:_metric", 'relation == "add_or_remove_one"', "True",
        "a row that is replaced is one that comes",
        "opendp/test_measurement.py::test_the_metric_says_what_a_person_is"),
    _opendp("opendp:_unbound", "asked.claim.contributions.total != 1", "False",
        "contributions are paid for twice", "opendp/test_measurement.py::test_queries_that_are_none"),
    _opendp("opendp:_unbound", "query.has_rows or query.budget is not None", "query.has_rows",
        "a budget is left out of account", "opendp/test_measurement.py::test_queries_that_are_none"),
    _opendp("_at_loss", "claim.cost(total.unit) * factor", "total.value * factor",
        "each output costs as much as all together",
        "opendp/test_measurement.py::test_all_outputs_keep_their_shares_of_another_loss"),
    _keys("_at_loss", "claim.delta * hair", "claim.delta",
        "a delta is more than the float that OpenDP was given, so that exact splits do not fit",
        "opendp/test_keys.py::test_the_map_of_one_person_is_at_most_the_delta_that_was_given"),
    _opendp("_at_most_its_float", "min(value, Fraction(float(value)))", "value",
        "a loss is more than the float that OpenDP was given",
        "opendp/test_measurement.py::test_a_loss_is_the_float_that_opendp_takes_it_for"),
    _opendp("opendp:make_measurement", "nearest_float_up(cost(distance))", "float(cost(distance)) * (1 - 1e-15)",
        "a map rounds down", "opendp/test_measurement.py::test_the_map_is_that_of_the_design_at_every_distance"),
    _opendp("opendp:make_measurement", "not 0 <= d_in < math.inf", "False",
        "a distance below 0 has a loss below 0", "opendp/test_selection.py::test_distances_that_are_none"),
    _opendp("opendp:make_measurement", "BaseException", "GeneratorExit",
        "an interrupt in a release ends the process",
        "opendp/test_measurement.py::test_an_interrupt_or_a_panic_does_not_end_the_process"),
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
    _selection("make_selection", "LAWS[mechanism]", 'LAWS["permute_and_flip"]',
        "in rho it draws by what costs more than is charged", _LAW),
    _selection("make_selection", "lowest=negate", "lowest=False", "the lowest score is the highest", _LAW),
    _selection("make_selection", "np.nan_to_num(scores, nan=-largest, posinf=largest, neginf=-largest)", "scores",
        "infinite scores fail", "opendp/test_selection.py::test_infinite_scores_count_as_the_largest_floats_like_theirs"),
    _selection("make_selection", 'np.asarray(values, dtype)', "np.asarray(values)",
        "large integers are rounded", "opendp/test_selection.py::test_scores_beyond_the_integers_of_float64"),
    # --- One `.dp` beside OpenDP: see also `frames`
    _sharing("_expressions/namespace:_register", "theirs is not None", "False", "OpenDP's methods are gone",
        "opendp/test_sharing.py::test_the_accessor_offers_the_methods_of_both"),
    _sharing("_Watch._then_register", "_register(self._ours, module)", "pass",
        "our methods are gone where OpenDP is imported later",
        "opendp/test_sharing.py::test_the_accessor_offers_the_methods_of_both"),
    _sharing("_unregister", 'accessor.__module__.partition(".")[0] in ("dp_polars", "opendp")', "True",
        "another package loses its `.dp` without a word",
        "opendp/test_sharing.py::test_another_package_that_owns_the_accessor_is_not_taken_over_silently", needs=""),
    _sharing("_shared", "kwargs.get(name, p.default) == p.default", "True",
        "beside OpenDP a loss is ignored",
        "opendp/test_sharing.py::test_arguments_of_both_are_refused_and_ours_are_never_ignored"),
]
