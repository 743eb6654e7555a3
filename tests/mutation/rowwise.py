"""Mutants of the proof that a step looks at one row, and of privacy profiles."""

from tests.mutation.mutant import of

_gate = of("_rowwise/gate.py", "rowwise/test_gate.py")
_conditions = of("_rowwise/conditions.py", "rowwise/test_gate.py")
_rules = of("_rowwise/rules.py", "rowwise/test_gate.py")
_lenient = of("_rowwise/lenient.py", "rowwise/test_gate.py")
_steps = of("_rowwise/nodes.py", "rowwise/test_gate.py")
_trials = of("_rowwise/trials.py", "rowwise/test_trials.py rowwise/test_gate.py")
_names = of("_rowwise/names.py", "rowwise/test_gate.py")
_plans = of("_rowwise/plans.py", "rowwise/test_plans.py")
_plan_rules = of("_rowwise/plan_rules.py", "rowwise/test_plans.py")
_views = of("_rowwise/views.py", "rowwise/test_plans.py frames/test_frame.py")
_files = of("_rowwise/files.py", "rowwise/test_plans.py")
_recipe = of("_frames/recipe.py", "frames/test_steps.py")
_profile = of("analysis/_profile.py", "analysis/test_profile.py")

MUTANTS = [
    _gate(
        '        for place, value in enumerate(step.inputs):\n            if value.kind != "series" or place not in sets:\n                self.walk(value)\n',
        "",
        "only the top node is looked at: x - x.mean() passes",
        "rowwise/test_gate.py::test_an_accepted_expression_is_row_by_row",
    ),
    _gate(
        '            if value.kind != "series" or place not in sets:\n',
        '            if value.kind != "series":\n',
        "a Series of row-by-row values passes",
        "rowwise/test_gate.py::test_a_refused_expression_is_named_with_the_reason",
    ),
    _gate(
        "        self.refuse_by(rules.UNLISTED, step)\n",
        "",
        "aggregations and windows pass",
        "rowwise/test_gate.py::test_a_refused_expression_is_named_with_the_reason",
    ),
    _gate(
        "            self.refuse_by(self.listed, step)\n",
        "            pass\n",
        "listed functions pass in every way",
        "rowwise/test_gate.py::test_a_refused_expression_is_named_with_the_reason",
    ),
    _gate(
        "            self.rewritten |= lenient.before_trial(step)\n",
        "            pass\n",
        "strict casts raise and print a row's value",
        "rowwise/test_gate.py::test_an_accepted_expression_is_row_by_row",
    ),
    _gate(
        "            self.rewritten |= lenient.after_trial(step)\n",
        "            pass\n",
        "a quotient's last bit hangs on the number of rows",
        "rowwise/test_gate.py::test_an_accepted_expression_is_row_by_row",
    ),
    _gate(
        "        if failure is not None:\n            rule = next",
        "        if False:\n            rule = next",
        "steps that raise on some value pass",
        "rowwise/test_gate.py::test_a_refused_expression_is_named_with_the_reason",
    ),
    _gate(
        "        if gate.rewritten:\n            expr = _written(categories.home(step.tree), what)\n",
        "",
        "the proved expression is not the one that is run",
        "rowwise/test_gate.py::test_an_accepted_expression_is_row_by_row",
    ),
    _conditions(
        "    return step.name not in TAKEN.get(step.kind, ())\n",
        '    return step.kind == "unknown"\n',
        "functions that a later Polars adds pass",
        "rowwise/test_gate.py::test_what_is_on_no_list_is_refused",
    ),
    _conditions(
        "    return among.varies and (has_lists(value) or not has_lists(among))\n",
        "    return False\n",
        "is_in looks a value up in other rows",
        "rowwise/test_gate.py::test_a_refused_expression_is_named_with_the_reason",
    ),
    _conditions(
        "    return any(value.varies for value in step.inputs[1:])\n",
        "    return False\n",
        "parameters come from the rows",
        "rowwise/test_gate.py::test_a_refused_expression_is_named_with_the_reason",
    ),
    _conditions(
        "    return step.parameters is None\n",
        "    return False\n",
        "a format is guessed from other rows",
        "rowwise/test_gate.py::test_a_refused_expression_is_named_with_the_reason",
    ),
    _conditions(
        "    return pl.Categorical in bases(*varying(step))\n",
        "    return False\n",
        "a category's number is read off (opendp #2944)",
        "rowwise/test_gate.py::test_a_refused_expression_is_named_with_the_reason",
    ),
    _conditions(
        "    return pl.Categorical in types and not types <= {pl.Categorical, pl.Enum, pl.String, pl.Null}\n",
        "    return False\n",
        "a cast reads a category's number off",
        "rowwise/test_gate.py::test_a_refused_expression_is_named_with_the_reason",
    ),
    _conditions(
        '    return several and (step.name == "mean_horizontal" or takes_floats(step))\n',
        "    return False\n",
        "sums of several columns hang on the number of threads",
        "rowwise/test_gate.py::test_a_refused_expression_is_named_with_the_reason",
    ),
    _conditions(
        "    return any(dtype.is_nested() for dtype in step.dtypes()) and any(base.is_float() for base in bases(step))\n",
        "    return False\n",
        "floats in lists are rounded by the nulls of other rows",
        "rowwise/test_gate.py::test_a_refused_expression_is_named_with_the_reason",
    ),
    _conditions(
        '    return any(isinstance(dtype, pl.Datetime) and dtype.time_zone not in {None, "UTC"} for dtype in step.dtypes())\n',
        "    return False\n",
        "a local time that a clock change leaves out raises",
        "rowwise/test_gate.py::test_a_refused_expression_is_named_with_the_reason",
    ),
    _conditions(
        "    return pl.Decimal in bases(step) and is_float(step.inputs[0])\n",
        "    return False\n",
        "a float raises in a cast to Decimal",
        "rowwise/test_gate.py::test_a_refused_expression_is_named_with_the_reason",
    ),
    _names(
        "    all_horizontal any_horizontal arctan2 as_struct",
        "    shift all_horizontal any_horizontal arctan2 as_struct",
        "shift is taken",
        "rowwise/test_gate.py::test_the_lists_hold_nothing_that_was_not_tried",
    ),
    _lenient(
        '        changed = _set(step.tree["Cast"], "options", "NonStrict", unless="Overflowing")\n',
        "        changed = False\n",
        "a strict cast raises and prints a row's value",
        "rowwise/test_gate.py::test_an_accepted_expression_is_row_by_row",
    ),
    _lenient(
        "        _set_zeros(divisor.tree, step.inputs[0], step)\n",
        "        pass\n",
        "Polars multiplies by a reciprocal, but not where a row is alone",
        "rowwise/test_gate.py::test_an_accepted_expression_is_row_by_row",
    ),
    _lenient(
        "            changed |= _bound_dates(value)\n",
        "            pass\n",
        "a date beyond the year 9999 panics",
        "rowwise/test_gate.py::test_dates_that_no_function_takes_are_moved",
    ),
    _lenient(
        '        changed = _set(zone["ReplaceTimeZone"], 1, "Null")\n',
        "        changed = False\n",
        "a local time that a clock change leaves out raises",
        "rowwise/test_gate.py::test_an_accepted_expression_is_row_by_row",
    ),
    _steps(
        '            return step("unknown", "a Python function")\n',
        '            return step("function", "abs")\n',
        "a Python function passes",
        "rowwise/test_gate.py::test_a_refused_expression_is_named_with_the_reason",
    ),
    _trials(
        "        if frame.select(expr).dtypes != planned:\n",
        "        if False:\n",
        "a step gives another type than planned",
        "rowwise/test_gate.py::test_a_step_is_tried_alone",
    ),
    _trials(
        "            frame.head(2).with_columns(pl.all().last()).with_columns(expr)\n",
        "",
        "a step that raises on a constant column passes",
        "rowwise/test_gate.py::test_a_refused_expression_is_named_with_the_reason",
    ),
    # --- Plans before protect
    _plans(
        "            self.walk(step)\n",
        "",
        "a window before protect passes",
        "rowwise/test_plans.py::test_refused_with_the_reason",
    ),
    _plans(
        "        for value in inputs:\n            self.check_node(value)\n",
        "",
        "only the last step of a plan is looked at",
        "rowwise/test_plans.py::test_refused_with_the_reason",
    ),
    _plans(
        "        refuse_repeated_files(gate.files)\n",
        "        pass\n",
        "a file is read twice where every row is a person",
        "rowwise/test_plans.py::test_no_file_may_be_read_twice_where_every_row_is_a_person",
    ),
    _plans(
        '            self._check_rows(options["pre_slice"], options["row_index"])\n',
        "            pass\n",
        "a head of an IPC file passes",
        "rowwise/test_plans.py::test_refused_scans",
    ),
    _plan_rules(
        '    Rule(names("cast"), RAISES, _AFTER, when.may_not_fit, "of values that the type may not hold"),\n',
        "",
        "a strict cast before protect raises on a row",
        "rowwise/test_plans.py::test_refused_with_the_reason",
    ),
    _plan_rules(
        '    Rule(DIVISIONS, ALONE, "divide after `protect`.", when.divides_by_a_constant, "of floats by a constant"),\n',
        "",
        "a division before protect hangs on the number of rows",
        "rowwise/test_plans.py::test_refused_with_the_reason",
    ),
    _views(
        "    except (Exception, exceptions.PanicException):\n        unresolved = None\n",
        "    except exceptions.PanicException:\n        unresolved = None\n",
        "an error while the schema is found out shows a row",
        "rowwise/test_plans.py::test_a_file_without_a_schema_says_nothing_of_its_rows",
    ),
    # --- Files, and what is refused by what it is
    _files(
        "        if own & seen:\n",
        "        if own <= seen:\n",
        "a URL that may be either of two files passes beside one of them, whose rows count twice",
        "rowwise/test_plans.py::test_a_url_that_may_be_either_of_two_files_is_not_beside_one_of_them",
    ),
    _files(
        "own.st_ino, own.st_size, own.st_mtime_ns, own.st_ctime_ns)",
        "0, 0, 0, 0)",
        "a file that was rewritten is taken for the one that was protected",
        "rowwise/test_plans.py::test_a_file_that_is_rewritten_after_protect_is_free",
    ),
    _plans(
        "        is_another = columns_of_scans(read_anew(frame)) != columns_of_scans(frame)\n",
        "        pass\n",
        "another column of a rewritten file is the privacy unit",
        "rowwise/test_plans.py::test_a_file_whose_columns_were_found_out_before_it_was_rewritten_is_free",
    ),
    _plans(
        '        if not self.plan.get_schema():\n            self._refuse("a plan without columns")\n',
        "",
        "a plan without columns forgets how many rows it has",
        "rowwise/test_plans.py::test_a_plan_that_drops_all_columns_is_refused",
    ),
    _views(
        "        if unresolved is None:\n",
        "        unresolved = None\n        if True:\n",
        "an Iceberg table passes unseen, or Polars never returns from it",
        "rowwise/test_plans.py::test_iceberg --timeout 20",
        needs="pyiceberg",
    ),
    _views(
        '    return scans is None or any(set(scan["sources"]) != {"Paths"} for scan in scans)\n',
        "    return False\n",
        "bytes in memory are pickled",
        "rowwise/test_plans.py::test_a_scan_of_bytes_is_not_pickled",
    ),
    _conditions(
        "    return any(len(set(dtypes)) > 1 and any(map(trials.bounds, dtypes)) for dtypes in kinds)\n",
        "    return False\n",
        "a step on dates of two types panics on an extreme one",
        "rowwise/test_gate.py::test_dates_of_several_types_are_refused",
    ),
    _conditions(
        '    return step.name in OF_SIGNED_ZEROS or (step.name != "as_struct" and pl.String in bases(step))\n',
        '    return step.name in OF_SIGNED_ZEROS or (step.kind == "cast" and pl.String in bases(step))\n',
        "a text beside a number shows the sign of its zero, which hangs on the number of rows",
        "rowwise/test_gate.py::test_no_text_shows_the_sign_of_a_zero",
    ),
    _gate(
        "            if trials.depends_on_company(*_as_run(step)):\n",
        "            if False:\n",
        "a step that no rule knows looks at other rows",
        "rowwise/test_gate.py -k in_company",
    ),
    _gate(
        '        if name.startswith("^") and name.endswith("$"):\n',
        "        if False:\n",
        "a privacy unit that is named like a pattern is another column",
        "rowwise/test_plans.py::test_no_column_is_named_like_a_pattern",
    ),
    _gate(
        "        self.refuse_by((rules.NEEDS_POLARS_2,), step)\n",
        "",
        "Polars 1 takes what only Polars 2 was tried on",
        equivalent="on Polars 2; on 1.36.1 test_an_accepted_expression_is_row_by_row kills it",
    ),
    _trials(
        "            for rows in ([row, row], [row, null], [null, row]):\n",
        "            for rows in ([row, null], [null, row]):\n",
        "a row's twin changes its result",
        "rowwise/test_trials.py::test_what_a_row_gets_in_company",
    ),
    _recipe(
        "        is_nan = key.dtype.is_float() and key.is_nan().any()\n",
        "        is_nan = False\n",
        "a NaN equals a NaN or not by the number of rows",
        "frames/test_steps.py::test_no_key_of_a_join_is_nan",
    ),
    # --- Profiles
    _profile(
        "        parts = tuple((mechanism, loss, n * count) for mechanism, loss, n in self.parts)\n",
        "        parts = tuple((mechanism, loss, max(n, count)) for mechanism, loss, n in self.parts)\n",
        "a profile composed twice forgets the first time",
        "analysis/test_profile.py::test_composed_twice",
    ),
    _profile(
        "            proved = max(composed, _SMALLEST_DELTA)\n",
        "            proved = composed\n",
        "the noise of an FFT is taken for a delta",
        "analysis/test_profile.py::test_what_fft_can_not_see_is_left_to_zcdp",
    ),
    _profile(
        "        elif wanted >= _SMALLEST_DELTA:\n",
        "        else:\n",
        "the noise of an FFT is taken for a delta",
        "analysis/test_profile.py::test_what_fft_can_not_see_is_left_to_zcdp",
    ),
    _profile(
        "        return sum((loss * n for _, loss, n in self.parts), Fraction(0))\n",
        "        return sum((loss for _, loss, n in self.parts), Fraction(0))\n",
        "pure losses do not add up",
        "analysis/test_profile.py::test_sums_are_not_rounded_down",
    ),
    _profile(
        "        return min(float_up(pure), proved)\n",
        "        return min(float(pure), proved)\n",
        "a sum of thirds is rounded down",
        "analysis/test_profile.py::test_nor_are_sums_at_a_delta_so_small_that_nothing_else_is_proved",
    ),
    _profile(
        "        return min(float_up(pure), proved)\n",
        "        return min(round(float(pure), 12), proved)\n",
        "a sum of sevenths is rounded down",
        "analysis/test_profile.py::test_nor_are_sums_at_a_delta_so_small_that_nothing_else_is_proved",
    ),
    _profile(
        '                rho += scaled_cost("rho", chosen, loss, ONE_RELEASE)\n',
        '                rho += scaled_cost("rho", "exponential", loss, ONE_RELEASE)\n',
        "permute-and-flip composes as bounded range",
    ),
    _profile(
        'below = ball(delta) if mechanism == "permute_and_flip" else',
        "below = ball(delta) if False else",
        "permute-and-flip has the profile of bounded range",
        "analysis/test_profile.py::test_profiles_of_one_release",
    ),
    _profile(
        "                    counts[release.charged_as, loss] += times * release.draws\n",
        "                    counts[release.charged_as, loss] += times\n",
        "a mean composes as one draw",
    ),
    _profile(
        "    parts = ((row * spread.per_group, people * spread.full_groups), (row * spread.rest, people))\n",
        "    parts = ((row * spread.per_group, people), (row * spread.rest, people))\n",
        "a person's losses in several groups do not compose",
    ),
    _profile(
        "    if claim.charged_as in _RESPONSES and spread.per_group > 1:\n",
        "    if False:\n",
        "full groups are taken for the worst spread of randomized response",
        "analysis/test_profile.py::test_no_spread_of_rows_loses_more_than_is_composed",
    ),
    _profile(
        "        row, people = row / 2, 2\n",
        "        row, people = row / 2, 1\n",
        "of a replaced person, only the old one composes",
        "analysis/test_profile.py::test_a_replaced_number_composes_as_two_people",
    ),
    _profile(
        '    weight = {"exponential": 1 / -math.expm1(-x), "permute_and_flip": 0.5}.get(mechanism, 0.0)\n',
        '    weight = {"exponential": 1 / -math.expm1(-x), "permute_and_flip": 0.25}.get(mechanism, 0.0)\n',
        "a part of the losses is forgotten",
    ),
    _profile("        if len(named) > 1:\n", "        if False:\n", "losses of different relations compose"),
]
