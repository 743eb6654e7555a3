"""Mutants of what people plan by and publish: the planner, sizes and losses, figures, and statements."""
# fmt: off

from tests.mutation.mutant import of

_schema = of("publish/test_schema.py", needs="marimo")
_plan = of("publish/test_plan.py", needs="altair vl_convert")
_sizes = of("analysis/test_sizes.py")
_planning = of("analysis/test_planning.py")
_laws = of("analysis/test_analysis.py")
_profile = of("analysis/test_profile.py", needs="dp_accounting")

_FOOTER = "publish/test_schema.py::test_no_byte_before_the_footer_is_read"
_CODE = "publish/test_plan.py::test_every_question_becomes_code_that_runs"
_STEPS = "publish/test_plan.py::test_steps_and_usual_accuracies_follow_the_ends"
_ENDS = "publish/test_plan.py::test_steps_follow_both_ends"
_REFUSED = "publish/test_plan.py::test_what_does_not_fit_is_said_at_its_field"
_PROMISE = "publish/test_plan.py::test_the_page_begins_with_the_promise"
_UNIT = "publish/test_plan.py::test_the_likely_unit"
_SHARES = "analysis/test_sizes.py::test_errors_are_those_of_explain_and_shares_of_the_largest_answer"
_TOP = "analysis/test_sizes.py::test_the_right_top_is_at_least_as_probable_as_that"
_KEYS = "accounting/test_deltas.py::test_a_profile_has_what_keys_spend"

MUTANTS = [
    # --- The planner reads no row
    _schema("_publish/schema:_footer", "file.seek(size - len(_END) - length)", "file.seek(0)", "the planner reads rows", _FOOTER),
    _schema("_publish/schema:_footer", "_MARK + file.read(length) + end", "(file.seek(0), file.read())[1]",
        "the planner reads the whole file", _FOOTER),
    _plan("_publish/plan:_frame", "pl.LazyFrame(schema=plan.schema)", "pl.scan_parquet(plan.file)",
        "the planner's query reads the file", _CODE),
    _plan("_publish/plan:_frame", "**plan.bounds()", "", "the planner plans without the bounds", _CODE),
    # --- What the planner writes
    _plan("_publish/plan:code_of", 'call(begin, plan.unit, budget=Written(None, "budget"), **plan.bounds(), dataset=stem)',
        'call(begin, plan.unit, budget=Written(None, "budget"), dataset=stem)',
        "the code has other bounds than the page", _CODE),
    _plan("_publish/plan:code_of", "plan.unit", "None", "the code protects rows in the place of people", _CODE),
    _plan("_publish/plan:code_of", "plan.public_keys()", '{name: "all" for name in plan.keys}', "the code asks for other groups", _CODE),
    _plan("_publish/plan:_asked", "**plan.promise()", "epsilon=plan.epsilon, delta=plan.delta / 2",
        "the page promises another delta than the code", _CODE),
    _plan("_publish/plan:_frame", "delta=plan.delta", "delta=plan.delta, keys_delta=0", "the page has a larger budget than the code", _CODE),
    _plan("_publish/plan:draft", "not asked.budget.has_room(claims)", "False",
        "the code asks for more than its budget has",
        "publish/test_plan.py::test_errors_that_cost_more_than_the_promise_have_no_code"),
    _plan("Plan.amount", '{"loss_share": whole}', "{}", "no answer gets a larger part",
        "publish/test_plan.py::test_what_is_promised_is_shared_and_spent"),
    _plan("Plan.amount", '{"rows": self.rows} if question.ask in ("mean", "share", "var", "std") else {}', "{}",
        "the accuracy of a mean is that of another size", _CODE),
    _plan("Plan.named", "name in taken or name in self.keys", "name in taken", "an output hides a key",
        "publish/test_plan.py::test_names_of_outputs_are_apart"),
    _plan("_publish/plan:questions_of", "name == unit", "False", "the page asks for the most common person", _CODE),
    _plan("Plan.steps", '"mean": high - low', '"mean": high', "the error of a mean is a share of its upper bound", _ENDS),
    _plan("Plan.steps", "max(abs(low), abs(high))", "high", "the error of a sum forgets its lower bound", _ENDS),
    _plan("Plan.usual", "self.rows / 10", "self.rows", "a usual error is as large as a group", _STEPS),
    _plan("_publish/plan:_query", 'messages["cost"] = "\\n\\n".join(said)', "pass",
        "nobody reads that a loss protects nobody",
        "publish/test_plan.py::test_an_accuracy_that_nobody_can_afford_is_refused_at_its_slider"),
    _plan("_publish/plan:_groups", "frame.group_by({name: listed}).agg(dpp.len())", "pass",
        "keys that don't fit are told at another field", _REFUSED),
    _plan("dropped_by_bounds", "round(people * rows_each)", "people", "each synthetic person has one row",
        "publish/test_plan.py::test_bounds_are_tried_on_synthetic_people"),
    _plan("_publish/plan:_synthetic_code", '{} if plan.unit is None else {"privacy_unit": plan.unit}', "{}",
        "rows of the example have no people", "publish/test_plan.py::test_synthetic_rows_have_the_people_that_were_picked"),
    _plan("_publish/schema:likely_unit", "dtype.is_integer()", "dtype.is_numeric()", "a measurement is taken for people", _UNIT),
    # --- What its page says
    _plan("_publish/page:costs", "in_words(claims)", "promised(plan)",
        "the page says that all of the promise is spent", _PROMISE),
    _plan("_publish/page:shown", "name.isprintable()", "True", "two columns look alike",
        "publish/test_plan.py::test_names_that_can_not_be_seen_are_quoted"),
    _plan("_publish/page:message", "html.escape(messages[name])", "messages[name]", "a column's name is run as HTML",
        "publish/test_plan.py::test_the_page_escapes_what_it_shows"),
    _plan("_publish/page:outputs", "html.escape(cell)", "cell", "an output's name is run as HTML",
        "publish/test_plan.py::test_the_page_escapes_what_it_shows"),
    _plan("_publish/page:columns", "html.escape(str(dtype))", "str(dtype)", "a category is run as HTML",
        "publish/test_plan.py::test_the_page_escapes_what_it_shows"),
    _plan("_publish/page:figures", 'pl.col("probability") >= _SURE', 'pl.col("probability") >= 0.5',
        "a lead is called sure that is not", "publish/test_plan.py::test_a_lead_is_sure_from_95_percent_on"),
    _plan("_publish/page:dropped", 'pl.col("max_groups").eq_missing(chosen) & (pl.col("max_rows_per_group") == plan.max_rows_per_group)',
        'pl.col("max_rows_per_group") == plan.max_rows_per_group', "what is dropped is told of other bounds",
        "publish/test_plan.py::test_the_page_tells_what_its_own_bounds_drop"),
    _plan("_publish/page:dropped", '"rows_dropped", "people_cut"', '"people_cut", "rows_dropped"',
        "rows that are dropped are told as people",
        "publish/test_plan.py::test_the_page_tells_what_its_own_bounds_drop"),
    # --- How large a group must be
    _sizes("_largest_answer", "high - low", "high", "the error of a mean is a share of its upper end", _SHARES),
    _sizes("_largest_answer", "question.largest if isinstance(question, Sum) else Fraction(1)", "Fraction(1)",
        "the error of a sum is a share of the number of rows", _SHARES),
    _sizes("_largest_answer", "question.most if isinstance(question, OfCategories) else most", "most",
        "the error by weight is a share of the number of people", _SHARES),
    _sizes("analysis/_sizes:_smallest", "error / _largest_answer(question, size) <= float(goal)", "error / _largest_answer(question, size) < float(goal)",
        "one person more than needed is asked for", "analysis/test_sizes.py -k an_accuracy_that_was"),
    _sizes("analysis/_sizes:_smallest", "return high", "return low", "a group that is too small is said to be enough",
        "analysis/test_sizes.py -k an_accuracy_that_was"),
    _sizes("analysis/_sizes:_smallest", "(low, middle) if is_enough(middle) else (middle, high)", "(low, middle)",
        "any size is said to be enough", "analysis/test_sizes.py -k an_accuracy_that_was"),
    _sizes("analysis/_sizes:best_by_gap", "claim.mechanism", '"permute_and_flip"',
        "the right top is more probable than it is", _TOP),
    _sizes("analysis/_sizes:best_by_gap", "not gap >= 0", "False", "a lead below 0 is told as one",
        "analysis/test_sizes.py::test_what_does_not_fit_is_refused"),
    # --- From an accuracy to a loss
    _planning("_smallest_rate", "return Fraction(2.0**high)", "return Fraction(2.0**low)",
        "a loss does not reach its goal", equivalent="what follows nudges the loss upward until it does"),
    # --- Profiles
    _profile("PrivacyProfile.delta", "(1 - self.spent_delta) * Fraction(of_losses)", "Fraction(0)",
        "what keys spend is all that is told", _KEYS),
    _profile("PrivacyProfile.delta", "float_up(self.spent_delta + rest)", "float(of_losses)", "what keys spend of delta is forgotten", _KEYS),
    _profile("PrivacyProfile.of", "spent_delta + release.delta", "max(spent_delta, release.delta)", "deltas of keys do not add up",
        "accounting/test_deltas.py::test_deltas_of_several_keys_add_up"),
    _profile("PrivacyProfile.compose", "self.spent_delta * count", "self.spent_delta", "composed deltas of keys are those of one", _KEYS),
    _profile("PrivacyProfile.epsilon", "delta_left(check_delta(delta), self.spent_delta)", "check_delta(delta)",
        "what keys spent of a delta is spent once more", _KEYS),
    # --- Laws
    _laws("share_of_best", "others < 0.5", "False", "a sure answer is rounded",
        equivalent="the two ways to add up differ by rounding alone"),
    _laws("blocks_of", "len(values) - 1 - position", "position", "probabilities belong to other candidates",
        "analysis/test_analysis.py"),
    _laws("_exponential_log_factors", "-math.log(expected)", "-math.log(expected + 1)", "probabilities add up to less than 1",
        "analysis/test_analysis.py"),
]
