"""Mutants of the bounds on a person's rows, the engine, private frames, their release, and answers that are kept."""

from tests.mutation.mutant import of

_protection = of("_frames/protection.py", "frames/test_protection.py")
_bounding = of("_engines/bounding.py", "engines/test_bounding.py")
_polars = of("_engines/polars_engine.py", "engines/test_polars_engine.py")
_rows = of("_engines/polars_rows.py", "engines/test_polars_engine.py")
_arrays = of("_engines/polars_arrays.py", "engines/test_polars_engine.py")
_scans = of("_rowwise/scans.py", "rowwise/test_scans.py")
_people = of("_engines/polars_people.py", "engines/test_conformance.py -k TestPolarsInMemory")
_questions = of("_frames/question_text.py", "frames/test_kept.py")
_contract = of("_engines/contract.py", "engines/test_conformance.py -k TestPolarsInMemory")
_release = of("_frames/release.py", "frames/test_frame.py")
_query = of("_frames/query.py", "frames/test_frame.py")
_sources = of("_frames/sources.py", "frames/test_frame.py")
_files = of("_rowwise/files.py", "frames/test_kept.py")
_recipe = of("_frames/recipe.py", "frames/test_frame.py frames/test_steps.py")
_keys = of("_frames/group_keys.py", "frames/test_frame.py")
_expressions = of("_expressions/expressions.py", "expressions/test_expressions.py interop/test_serialisation.py")
_sharing = of("_expressions/sharing.py", "opendp/test_sharing.py")
_sources = of("_frames/sources.py", "frames/test_frame.py")
_paths = of("_base/paths.py", "frames/test_frame.py")
_settings = of("_base/settings.py", "interop/test_settings.py")
_threads = of("_base/threads.py", "interop/test_settings.py")
_claims = of("_accounting/claims.py", "questions/test_weights.py")

MUTANTS = [
    # --- What is promised to a person
    _protection(
        "            if in_groups * bounds.per_group <= bounds.total or bounds.per_group < bounds.total\n",
        "            if in_groups * bounds.per_group <= bounds.total\n",
        "max_rows_per_group is not enforced beside max_rows: under rho 9 is charged where 25 is lost",
        "frames/test_protection.py::test_a_person_with_many_rows_has_just_the_contributions_that_are_charged",
    ),
    _protection(
        "            groups=in_groups if in_groups < groups else None,\n",
        "            groups=in_groups if in_groups < groups and bounds.per_group == 1 else None,\n",
        "max_groups is not enforced beside max_rows_per_group",
        "frames/test_protection.py::test_a_person_with_many_rows_has_just_the_contributions_that_are_charged",
    ),
    _protection(
        "            rows=bounds.total if bounds.total < in_groups * bounds.per_group else None,\n",
        "            rows=None,\n",
        "max_rows is not enforced",
        "frames/test_protection.py::test_a_person_with_many_rows_has_just_the_contributions_that_are_charged",
    ),
    _protection(
        "            return Kept(groups=bounds.total if bounds.total < groups else None)\n",
        "            return Kept()\n",
        "a person counts in every group",
        "frames/test_protection.py::test_a_person_with_many_rows_has_just_the_contributions_that_are_charged",
    ),
    _protection(
        "            return Contributions(min(self.max_rows or in_groups, in_groups), 1)\n",
        "            return Contributions(1, 1)\n",
        "a person is charged for one group and counts in many",
    ),
    _protection(
        "        total = min(self.max_rows or in_groups * per_group, in_groups * per_group)\n",
        "        total = min(self.max_rows or per_group, in_groups * per_group)\n",
        "a person is charged for one group and counts in many",
    ),
    _protection(
        "        in_groups = min(self.max_groups or groups, groups)\n        if self._bounds_groups_only(query):\n            return Contributions",
        "        in_groups = self.max_groups or 1\n        if self._bounds_groups_only(query):\n            return Contributions",
        "without max_groups a person is charged for one group",
        "frames/test_protection.py::test_a_person_with_many_rows_has_just_the_contributions_that_are_charged",
    ),
    _protection(
        "            per_group = min(per_group or query.fixed_size, query.fixed_size)\n",
        "            per_group = 1\n",
        "counts of all values are charged as one",
    ),
    _protection(
        "        return self.privacy_unit is not None and query.counts_people\n",
        "        return False\n",
        "a mode counts a person's rows",
        "frames/test_frame.py -k TestBounds",
    ),
    _protection(
        "        if query.needs_people and self.privacy_unit is None:\n",
        "        if False:\n",
        "people are counted where nobody knows who is one",
        "frames/test_numbers.py questions/test_measures.py",
    ),
    _protection(
        "        return self.counts_people(query) and query.bounds_people\n",
        "        return self.counts_people(query)\n",
        "counts of all values are charged for one candidate",
        "frames/test_protection.py::test_a_person_with_many_rows_has_just_the_contributions_that_are_charged",
    ),
    # --- What is kept of a person
    _bounding(
        "    first = (starts(lengths)[:, None] + np.arange(most)).ravel()\n",
        "    first = (starts(lengths)[:, None] + np.arange(most + 1)).ravel()\n",
        "who is over the bound keeps one more",
    ),
    _bounding(
        "    over = lengths > most\n",
        "    over = lengths > most + 1\n",
        "a person keeps one more than the bound",
        "engines/test_bounding.py::test_what_stays_follows_the_law_of_the_persons_own_rows",
    ),
    _bounding(
        "    order = _shuffle(owners(lengths).view(np.uint64), words)\n",
        "    order = np.arange(int(lengths.sum()))\n",
        "the first of a person's rows stay, not random ones",
        "engines/test_bounding.py::test_what_stays_follows_the_law_of_the_persons_own_rows",
    ),
    _bounding(
        "        stays = random_few(run_lengths(pairs[first] >> group_bits), kept.groups, words)\n",
        "        stays = random_few(run_lengths(pairs >> group_bits), kept.groups, words)[first]\n",
        "groups are chosen by their rows",
        "engines/test_bounding.py::test_what_stays_follows_the_law_of_the_persons_own_rows",
    ),
    _bounding(
        "        only(random_few(run_lengths(pairs >> group_bits), kept.rows, words))\n",
        "        only(random_few(run_lengths(pairs), kept.rows, words))\n",
        "the bound on all rows holds in each group only",
        "engines/test_bounding.py::test_what_stays_follows_the_law_of_the_persons_own_rows",
    ),
    _bounding(
        "        only(random_few(run_lengths(pairs), kept.rows_per_group, words))\n",
        "        only(random_few(run_lengths(pairs >> group_bits), kept.rows_per_group, words))\n",
        "the bound on the rows of a group holds for all together",
        "engines/test_bounding.py::test_what_stays_follows_the_law_of_the_persons_own_rows",
    ),
    _bounding(
        "        keys = keys[first]\n",
        "",
        "a person's equal rows count more than once",
        "engines/test_bounding.py::test_what_stays_follows_the_law_of_the_persons_own_rows",
    ),
    _bounding(
        "            weights = [np.minimum(own, largest) for own, largest in zip(sums, most, strict=True)]\n",
        "            weights = list(sums)\n",
        "a person weighs more than the most",
        "engines/test_conformance.py::TestPolarsInMemory::test_weights_are_added_up",
    ),
    _bounding(
        "    return order[_shuffle(np.concatenate([np.zeros(1, np.uint64), np.cumsum(is_new, dtype=np.uint64)]), words)]\n",
        "    return order\n",
        "ties are broken by the order of rows",
        "engines/test_bounding.py::test_equal_words_never_keep_more_than_the_bound",
    ),
    _bounding(
        "        if not layout.bits <= 64:\n",
        "        if not layout.bits <= 65:\n",
        "cells of several groups are one",
        "engines/test_bounding.py::test_groups_and_candidates_beyond_64_bits_are_refused",
    ),
    _bounding(
        "        return 1 << min(63, 64 - (self.bits if people else self.group_bits))\n",
        "        return 1 << 63\n",
        "people are merged where cells leave no room for their numbers",
        "engines/test_bounding.py::test_cells_of_64_bits_leave_room_for_one_person",
    ),
    # --- The engine
    _polars(
        "        rows = rows.filter(is_a_person(privacy_unit, rows.collect_schema()[privacy_unit]))\n",
        "        pass\n",
        "rows of nobody count as one person's",
        "engines/test_polars_engine.py::test_rows_are_counted_exactly_where_nothing_is_bounded",
    ),
    _rows(
        "    return unit.is_not_null() & unit.is_not_nan() if dtype.is_float() else unit.is_not_null()\n",
        "    return unit.is_not_null()\n",
        "NaN is a person",
        "engines/test_polars_engine.py::test_units_of_all_types_are_bounded_and_never_merged",
    ),
    _rows(
        "        unit = unit.cast(pl.String)\n",
        "        pass\n",
        "a person of a Categorical is divided over parts",
        equivalent="on Polars 2 a hash is of the text; on 1.36.1 test_people_are_divided_by_the_texts_of_their_categories kills it",
    ),
    _polars(
        "    unsigned = pl.UInt32 if layout.bits <= 32 else pl.UInt64\n",
        "    unsigned = pl.UInt32 if layout.bits <= 33 else pl.UInt64\n",
        "rows are counted for the wrong group",
        "engines/test_polars_engine.py::test_cells_of_more_than_32_bits_keep_their_groups",
    ),
    _rows(
        "NO_FILTER_IN_SCANS = pl.QueryOptFlags(comm_subexpr_elim=_TWINS, predicate_pushdown=False)",
        "NO_FILTER_IN_SCANS = pl.QueryOptFlags(comm_subexpr_elim=_TWINS)",
        "a filter that is pushed into a scan makes one row decide whether others are read",
        "frames/test_frame.py::test_nobody_decides_which_rows_of_a_dataset_are_read",
    ),
    _rows(
        '_TWINS = not pl.__version__.startswith("1.")',
        "_TWINS = True",
        "on Polars 1 a step fails or not by one row, where rows lie in several chunks",
        equivalent="on Polars 2; on 1.36.1 test_what_stands_twice_is_no_column_of_its_own_on_polars_1 kills it",
    ),
    _rows(
        '    part = unit.hash(int.from_bytes(os.urandom(8), "little")) % partitions\n',
        "    part = pl.int_range(pl.len()) % partitions\n",
        "people are divided by the places of their rows",
        "engines/test_polars_engine.py::test_distinct_people_are_counted_exactly",
    ),
    _arrays(
        "        rows[self._groups], rows[:, self._size] = 0, 0\n",
        "        rows[self._groups] = 0\n",
        "rows without a value are counted",
        "engines/test_polars_engine.py::test_rows_without_a_value_are_not_counted",
    ),
    _arrays(
        "        rows[self._groups], rows[:, self._size] = 0, 0\n",
        "        rows[:, self._size] = 0\n",
        "rows of keys that are not listed have a histogram of their own",
        "engines/test_polars_engine.py::test_keys_of_every_type_find_their_groups",
    ),
    _arrays(
        "group.astype(np.int64) * (self._size + 1)",
        "group.astype(np.int64) * self._size",
        "rows are counted for another group",
        "engines/test_polars_engine.py::test_keys_of_every_type_find_their_groups",
    ),
    _arrays(
        "    table = np.full(math.prod(sizes), keys.height)\n",
        "    table = np.zeros(math.prod(sizes), np.int64)\n",
        "rows of keys that are not listed are counted for the first group",
        "engines/test_polars_engine.py::test_keys_of_every_type_find_their_groups",
    ),
    _arrays(
        "            self._rows += rows\n",
        "            self._rows = rows\n",
        "the last batch alone is counted",
        "engines/test_polars_engine.py::test_rows_are_counted_exactly_where_nothing_is_bounded",
    ),
    _arrays(
        "    filters_scans = not is_joined and may_filter_scans(rows)",
        "    filters_scans = not is_joined",
        "a filter that is pushed into a scan makes one row decide whether others are read",
        "frames/test_frame.py::test_nobody_decides_which_rows_of_a_parquet_file_are_read",
    ),
    _scans(
        'kinds == {"Column", "Literal"} and ',
        "",
        "a filter on a sum that overflows reaches the scan",
    ),
    _scans(
        " and types[0] == types[1] and _has_order(types[0])",
        "",
        "a filter of floats reaches the scan, whose extremes leave NaN out",
    ),
    _scans(
        "    if filtered and not (kind ==",
        "    if filtered and False and not (kind ==",
        "a filter of a column that a step made is moved through that step into the scan",
    ),
    _polars(
        '                counted = added_up([found[own[0]], counted], ["cell"], engine)\n',
        "                pass\n",
        "only the last part of the people is counted",
        "engines/test_polars_engine.py::test_distinct_people_are_counted_exactly",
    ),
    _contract(
        "            (self.types, self.coding, self.kept, self.people) == (other.types, other.coding, other.kept, other.people)\n",
        "            (self.types, self.coding) == (other.types, other.coding)\n",
        "an output with narrow bounds is answered from rows that were kept for wide ones",
        "engines/test_polars_engine.py::test_outputs_that_keep_other_rows_of_a_person_share_nothing",
    ),
    # --- The release
    _release(
        "    if isinstance(work, Work):\n        _check_public_values(work, engine)\n",
        "",
        "two public values that are one to the engine are let through: a row counts for both",
        "engines/test_conformance.py -k 'TestToy and refused_for_free'",
    ),
    _release(
        "    keys = work.keys if work.per_person is None else work.per_person.keys\n",
        "    keys = work.keys\n",
        "groups of people are not checked: a group counts twice",
        "engines/test_conformance.py -k 'TestToy and refused_for_free'",
    ),
    _release(
        "    _charge(query, budget)\n    try:\n        if work is not None:\n            with deaf():\n                released = work.run(engine)\n",
        "    try:\n        if work is not None:\n            released = work.run(engine)\n        _charge(query, budget)\n",
        "rows are read before the charge",
        "engines/test_conformance.py::TestPolarsInMemory::test_rows_are_read_only_after_a_charge",
    ),
    _release(
        "    except (Exception, pl.exceptions.PanicException):\n        released = None\n    if released is None:",
        "    except Exception:\n        released = None\n    if released is None:",
        "a panic shows what is in a row",
        "frames/test_frame.py -k test_a_panic",
    ),
    _release(
        "        released = None\n    if released is None:",
        "        released = None\n        raise\n    if released is None:",
        "an error of the engine shows what is in a row",
        "engines/test_conformance.py::TestPolarsInMemory::test_a_failure_shows_no_value_and_stays_charged",
    ),
    _release(
        "            neighboring_relation=query.protection.neighboring_relation,\n",
        '            neighboring_relation="add_or_remove_one",\n',
        "every release is charged under one relation",
        "frames/test_frame.py -k own_relation",
    ),
    _release(
        '            [(f"{ask.name}: {ask.query}", ask.query.claim) for ask in query.asks],\n',
        '            [(f"{ask.name}: {ask.query}", ask.query.claim) for ask in query.asks[:1]],\n',
        "only the first output is charged",
        "frames/test_frame.py::TestBudget::test_every_release_is_charged_before_a_row_is_read",
    ),
    _release(
        "        kept, people = protection.kept(ask.query, groups), protection.counts_people(ask.query)\n",
        "        kept, people = protection.kept(ask.query, 1), protection.counts_people(ask.query)\n",
        "bounds are those of one group",
        "engines/test_conformance.py::TestPolarsInMemory::test_what_stays_is_a_random_subset_of_a_persons_own_rows",
    ),
    _release(
        "        if tally.keeps_like(made) and tally.weighing == made.weighing:\n",
        "        if tally.keeps_like(made):\n",
        "a sum and a count are drawn from the same numbers",
        "questions/test_sums.py::test_noise_is_in_the_unit_of_what_it_is_added_to",
    ),
    _release(
        '        columns = tuple(row_by_row(column, schema, f"The column of output {ask.name!r}") for column in ask.columns)\n',
        "        columns = ask.columns\n",
        "a question is asked of x − x.mean()",
        "frames/test_frame.py::test_outputs_that_are_refused",
    ),
    _query(
        "        bounds = protection.contributions(ask.query, groups)\n",
        "        bounds = protection.contributions(ask.query, 1)\n",
        "the noise is that of one group",
        "frames/test_protection.py::test_a_release_keeps_what_its_claim_is_charged_for",
    ),
    _query(
        "        return ask.query.under(bounds, protection.neighboring_relation, groups)\n",
        '        return ask.query.under(bounds, "add_or_remove_one", groups)\n',
        "a replacement is charged as one row",
        "privacy/test_private_frames.py::test_replacing_a_person_costs_at_most_the_loss",
    ),
    _query(
        '        unit: Unit = "epsilon" if has_epsilon and units != {"rho"} else "rho"\n',
        "        unit: Unit = next(iter(sorted(units, reverse=True)))\n",
        "losses of mixed units are added up in one that a person can't read",
        "frames/test_frame.py::TestBudget::test_loss_of_a_query",
    ),
    _paths(
        "            os.fsync(descriptor)\n",
        "",
        "a power cut leaves an empty file that was paid for",
        "frames/test_frame.py -k on_the_disk",
    ),
    # --- Steps on a private frame
    _recipe(
        "        proved = [row_by_row(expr, schema, call) for expr in self.expressions]\n",
        "        proved = list(self.expressions)\n",
        "steps look at other rows",
        "frames/test_frame.py::TestSteps::test_steps_that_look_at_other_rows_are_refused",
    ),
    _recipe(
        "            if unit in names and not _is_selection(expr):\n",
        "            if False:\n",
        "a step makes other people of the rows",
        "frames/test_frame.py::TestSteps::test_the_privacy_unit_can_not_be_changed",
    ),
    _recipe(
        "        if any((old == unit) != (new == unit) for old, new in mapping.items()):\n",
        "        if False:\n",
        "another column becomes the privacy unit",
        "frames/test_steps.py::test_steps_that_are_refused",
    ),
    _recipe(
        "    if public.select(right).is_duplicated().any():\n",
        "    if False:\n",
        "a join multiplies a person's rows",
        "frames/test_frame.py::TestSteps::test_join_that_repeats_a_key_is_refused",
    ),
    _recipe(
        "        if unit in self.public.columns and (unit, unit) not in zip(self.left_on, self.right_on, strict=True):\n",
        "        if False:\n",
        "a join brings other people",
        "frames/test_frame.py::TestSteps::test_join_arguments",
    ),
    _recipe(
        "    return Join(public, left, right, kind)\n",
        '    return Join(public, left, right, "inner")\n',
        "every join drops the rows without a match",
        "frames/test_frame.py::TestSteps::test_join_with_a_public_frame",
    ),
    _recipe(
        "    return Join(public, left, right, kind)\n",
        '    return Join(public, left, right, "left")\n',
        "every join keeps the rows without a match",
        "frames/test_frame.py::TestSteps::test_join_with_a_public_frame",
    ),
    _recipe(
        "    public = unshared(public)\n",
        "",
        "a public frame that is changed after the check multiplies rows",
        "frames/test_frame.py::TestSteps::test_a_public_frame_that_is_changed_later_stays_as_it_was_checked",
    ),
    # --- Keys
    _keys(
        '    frame = unshared(keys if isinstance(keys, pl.DataFrame) else column_types.of_arrow("keys", keys, pl.DataFrame))\n',
        "    frame = keys if isinstance(keys, pl.DataFrame) else pl.DataFrame(keys)\n",
        "groups that come to be after the query was made are not paid for",
        "frames/test_frame.py::test_keys_that_are_changed_later_stay_as_they_were_checked",
    ),
    _keys(
        "    if frame.is_duplicated().any():\n",
        "    if False:\n",
        "a group is answered twice at the price of one",
        "frames/test_frame.py::test_keys_that_are_refused",
    ),
    _keys(
        "    if isinstance(keys, (pl.LazyFrame, pl.Series)) or not (\n",
        "    if not (\n",
        "keys are read off a column",
        "frames/test_frame.py::TestData::test_messages_do_not_show_a_frame_that_is_given_by_mistake",
    ),
    _keys(
        '    if frame.null_count().sum_horizontal().item():\n        msg = "keys must not contain null."\n        raise ValueError(msg)\n',
        "",
        "nothing",
        equivalent="each column is refused a null once more, in _values",
    ),
    # --- Keys that nobody listed, and quantiles over people
    _people(
        "        keys = keys.filter(pl.Series(random_few(lengths, most, system_words())))\n",
        "        keys = keys.filter(pl.Series(random_few(lengths, most + 1, system_words())))\n",
        "a person counts for one more key than the bound",
        "engines/test_conformance.py::TestPolarsInMemory::test_a_persons_keys_are_a_random_subset",
    ),
    _people(
        "    if lengths.max(initial=0) > most:\n",
        "    if lengths.min(initial=most) > most:\n",
        "a person's keys are bounded where all have too many",
        "engines/test_conformance.py::TestPolarsInMemory::test_a_persons_keys_are_a_random_subset",
    ),
    _people(
        "agg(pl.col(names).unique())",
        "agg(pl.col(names))",
        "a person counts for a key as often as they have it",
        "engines/test_conformance.py::TestPolarsInMemory::test_keys_are_found_as_by_the_reference",
    ),
    _people(
        '        return rows.group_by("person").agg(pl.col(names).unique())\n    return rows.group_by("person", *names).agg().group_by("person").agg(names)\n',
        '        return rows.group_by("person").agg(pl.col(names).unique())\n    return rows.group_by("person").agg(names)\n',
        "a person counts for a key of several columns as often as they have it",
        "engines/test_conformance.py::TestPolarsInMemory",
    ),
    _people(
        "_keys_of_people(own, names).filter(somebody)]",
        "_keys_of_people(own, names)]",
        "rows of nobody count as one person's in keys",
        "engines/test_conformance.py::TestPolarsInMemory::test_people_of_every_type_are_told_apart_by_key",
    ),
    _people(
        "    rows = rows.filter(is_a_person(unit, rows.collect_schema()[unit]))\n",
        "",
        "rows of nobody count as one person's in quantiles over people",
        "engines/test_conformance.py::TestPolarsInMemory::test_people_of_every_type_are_one_row_each",
    ),
    _people(
        '        people = coded.group_by("person", "group").agg()\n',
        "        people = coded\n",
        "rows count in a quantile of groups",
        "engines/test_conformance.py::TestPolarsInMemory::test_rows_and_groups_of_people_are_counted_as_by_the_reference",
    ),
    of("_frames/people.py", "frames/test_keys.py")(
        "query.under(ONE_RELEASE, recipe.protection.neighboring_relation, 1)",
        'query.under(ONE_RELEASE, "add_or_remove_one", 1)',
        "in a quantile over people a replaced person is charged as one who goes",
        "privacy/test_keys.py::test_a_quantile_over_people_costs_what_one_value_costs frames/test_keys.py",
    ),
    of("_frames/keys.py", "frames/test_keys.py")(
        "        work = KeyWork(self.protection.privacy_unit, types, question.keys_per_person, question, self._recipe.rows)\n",
        "        work = KeyWork(self.protection.privacy_unit, types, question.keys_per_person + 1, question, self._recipe.rows)\n",
        "a person counts for one more key than is charged",
        "privacy/test_keys.py::test_releases_follow_the_law",
    ),
    of("_frames/unlisted.py", "frames/test_keys.py")(
        "            protection.keys_per_person,\n",
        "            1,\n",
        "a person counts for one key, whatever bound is given",
        "frames/test_keys.py::test_the_bound_is_the_smaller_one_of_groups_and_rows",
    ),
    _query(
        "        return ask.query.under(bounds, protection.neighboring_relation, groups)\n",
        "        return ask.query.under(bounds, protection.neighboring_relation, 1)\n",
        "every release is charged as one of one group",
        "privacy/test_brute_force.py::test_a_row_that_leaves_one_group_and_enters_another_may_lose_all_of_epsilon",
    ),
    # --- Answers that are kept
    _release(
        "        kept = None if fresh else _kept(question, engine, budget)\n",
        "        kept = _kept(question, engine, budget)\n",
        "a fresh answer is the old one",
        "frames/test_kept.py::test_fresh_draws_and_pays_anew_and_the_newest_is_kept",
    ),
    _release(
        "    _charge(query, budget)\n    try:\n",
        "    if question is None:\n        _charge(query, budget)\n    try:\n",
        "what is asked of a data set with a name is free",
        "frames/test_kept.py::test_the_same_question_is_answered_once_more_for_nothing",
    ),
    _release(
        "    if question is not None and budget is not None:\n        _keep(question, released, engine, budget)\n",
        "    if question is not None and budget is not None and not fresh:\n        _keep(question, released, engine, budget)\n",
        "a fresh answer is not kept",
        "frames/test_kept.py::test_fresh_draws_and_pays_anew_and_the_newest_is_kept",
    ),
    _questions(
        '        "protection": _written(query.protection),\n',
        "",
        "nothing",
        equivalent="the work says it too: whose rows they are, what is kept of a person, and all claims",
    ),
    _questions(
        '        "steps": _written(query._recipe.parts(given, partial(_read, query))),\n',
        "",
        "an answer about other rows is returned",
        "frames/test_kept.py::test_no_two_questions_share_a_text",
    ),
    _questions(
        '        "columns": _written(pl.Schema((name, schema[name]) for name in read)),\n',
        "",
        "an answer about columns of other types is returned",
        "frames/test_kept.py::test_no_two_questions_share_a_text",
    ),
    _questions(
        '        "dataset": dataset,\n',
        "",
        "an answer about another data set is returned",
        "frames/test_kept.py::test_no_two_questions_share_a_text",
    ),
    _questions(
        "    if isinstance(value, (int, Fraction)):\n        return [kind, str(value)]\n",
        "    if isinstance(value, (int, Fraction)):\n        return [kind, str(float(value))]\n",
        "an answer to nearly the same loss is returned",
        "frames/test_kept.py::test_no_two_values_are_written_alike",
    ),
    _questions(
        "    return {\n        name\n",
        "    return set() and {\n        name\n",
        "a question that hides something gets the answer of another",
        "frames/test_kept.py::test_a_question_that_hides_something_is_refused_before_it_is_charged",
    ),
    _questions(
        '        "engine": _kind(engine),\n',
        '        "engine": "",\n',
        "answers of Spark and of databases share a text",
        "frames/test_kept.py::test_the_engine_is_part_of_the_question",
    ),
    _questions(
        "    if not any(step.looks_at_order for step in steps):\n        read.sort()\n",
        "    read.sort()\n",
        "an answer about columns that were put together in another order is returned",
        "frames/test_kept.py::test_an_order_of_columns_that_a_step_looks_at_is_part_of_a_question",
    ),
    _questions(
        "    rows = pl.LazyFrame(schema=schema)  # not of the steps before: of these columns\n",
        "    rows = frame\n",
        "two questions that differ in a renaming of columns that were made share an answer",
        "frames/test_kept.py::test_a_name_that_a_step_gives_is_part_of_the_question",
    ),
    _questions(
        "    found = plan.view_current_node().projection\n",
        "    found = None\n",
        "a column that nobody asks about is a part of every question, which is charged again where it goes",
        "frames/test_kept.py -k no_part_of_a_question",
    ),
    _recipe(
        "            frame = step.apply(frame, self.protection.privacy_unit)\n        return parts\n",
        "        return parts\n",
        "two questions that differ in a renaming of columns that were made share an answer",
        "frames/test_kept.py::test_a_name_that_a_step_gives_is_part_of_the_question",
    ),
    _release(
        "    if answer.question.source != question.source:\n",
        "    if False:\n",
        "an answer about other files is returned without a word",
        "frames/test_kept.py -k said",
    ),
    _files(
        "status.st_ino, status.st_mtime_ns))",
        "status.st_ino, status.st_mtime_ns, status.st_size))",
        "the ledger tells of the size of a file, and so of its rows",
        "frames/test_kept.py::test_a_mark_tells_of_no_size",
    ),
    _files(
        "status.st_ino, status.st_mtime_ns))",
        "status.st_ino))",
        "a file that was written anew is taken for what it was",
        "frames/test_kept.py -k files_that_changed",
    ),
    _files(
        "status.st_ino, status.st_mtime_ns))",
        "status.st_mtime_ns))",
        "a file that was replaced by one of the same time is taken for what it was",
        "frames/test_kept.py -k files_that_changed",
    ),
    # --- Found by the second trial
    _contract(
        "(self.types, self.coding, self.kept, self.people) == (other.types, other.coding, other.kept, other.people)",
        "(self.types, self.coding, self.kept) == (other.types, other.coding, other.kept)",
        "counts of people and of rows share a histogram where their bounds agree",
        "engines/test_polars_engine.py::test_people_and_rows_have_histograms_of_their_own",
    ),
    _query(
        '            "rho": float_up(claim.cost("rho")),\n            "error_95"',
        '            "rho": float(claim.cost("rho")),\n            "error_95"',
        "explain shows a rho below what is charged",
        "frames/test_frame.py::test_explain_never_shows_less_than_the_cost",
    ),
    _sources(
        "        except Exception:  # pandas and DuckDB convert, or run, here: their messages hold values\n",
        "        except pa.ArrowInvalid:  # pandas and DuckDB convert, or run, here: their messages hold values\n",
        "an error while a stream is opened shows values, and is free",
        "frames/test_frame.py::test_errors_of_all_kinds_while_a_frame_is_opened_are_replaced_and_paid_for",
    ),
    _bounding(
        "            weights = [np.minimum(own, largest) for own, largest in zip(sums, most, strict=True)]\n",
        "            weights = [np.minimum(own, most[0]) for own in sums]\n",
        "of two weighted modes by people the second has the max_weight of the first: a person weighs more than is charged",
        "engines/test_bounding.py::test_each_weight_of_a_person_has_a_bound_of_its_own",
    ),
    # --- One `.dp` beside OpenDP
    _sharing(
        "            expr = self._ours.mean(\n                self,\n                lower,\n                upper,\n                step=step,\n                epsilon=epsilon,\n                rho=rho,\n                contributions=contributions,\n",
        "            expr = self._ours.mean(\n                self,\n                lower,\n                upper,\n                step=step,\n                epsilon=epsilon,\n                rho=rho,\n",
        "beside OpenDP a mean of n contributions is charged as one row: n times the loss",
        "opendp/test_sharing.py::test_every_argument_of_ours_arrives",
    ),
    _sharing(
        "            expr = self._ours.count(\n                self,\n                epsilon=epsilon,\n                rho=rho,\n                contributions=contributions,\n                neighboring_relation=neighboring_relation,\n                mechanism=mechanism,\n",
        "            expr = self._ours.count(\n                self,\n                epsilon=epsilon,\n                rho=rho,\n                contributions=contributions,\n                neighboring_relation=neighboring_relation,\n",
        "beside OpenDP a count forgets its mechanism",
        "opendp/test_sharing.py::test_every_argument_of_ours_arrives",
    ),
    _sharing(
        '{"scale": scale, "signed": signed}',
        '{"scale": scale}',
        "OpenDP's signed is dropped without a word beside a loss",
        "opendp/test_sharing.py::test_numbers_of_both_packages_are_told_apart_by_their_arguments",
        needs="opendp",
    ),
    # --- What a process sets
    _settings(
        "        return _is_deaf.get()\n",
        "        return True\n",
        "all warnings of all threads are lost",
    ),
    _settings(
        '        with np.errstate(all="ignore"):\n',
        '        with np.errstate(under="ignore"):\n',
        "a value that overflows raises, or warns, where the process says so",
        "interop/test_settings.py::test_a_deaf_block_is_deaf_and_nothing_else",
    ),
    _settings(
        "    if [*warnings.filters[:1]] != [_FILTER]:",
        "    if True:",
        "each release lets Python repeat all warnings that it says once",
        "interop/test_settings.py::test_a_warning_is_not_repeated_because_of_a_deaf_block",
    ),
    _threads(
        "    work = deaf()(work)\n",
        "    work = work\n",
        "worker threads warn of values, and raise where warnings are errors",
        "interop/test_settings.py::test_worker_threads_are_deaf",
    ),
    _expressions(
        "        with deaf():\n            return self.of(series)\n",
        "        return self.of(series)\n",
        "a denormal fails an expression where the process makes NumPy raise",
        "interop/test_settings.py::test_answers_are_the_same_whatever_a_process_sets",
    ),
    _rows(
        '    return _AUTO if engine == "auto" else engine\n',
        "    return engine\n",
        "a setting of the process sends private rows to a GPU, or to another machine",
        "interop/test_settings.py::test_answers_are_the_same_whatever_a_process_sets",
    ),
    # --- Files, readers, and numbers beyond floats
    _sources(
        "        if is_reader and frame in _READ:\n",
        "        if False:\n",
        "a used-up reader is released, and charged, as no rows",
        "frames/test_frame.py::TestBudget::test_a_reader_that_is_used_up_costs_nothing",
    ),
    _paths(
        "    target = Path(os.path.realpath(path))\n",
        "    target = path\n",
        "a symbolic link is replaced by a released file",
        "frames/test_frame.py::TestExplainAndClaims::test_a_file_keeps_its_mode_and_a_link_its_place",
    ),
    _paths(
        "            if mode is not None:  # the process may mask some of it\n                os.fchmod(descriptor, mode)\n",
        "",
        "a released file has fewer rights than the one it replaces",
        "frames/test_frame.py::TestExplainAndClaims::test_a_file_keeps_its_mode_and_a_link_its_place",
    ),
    _paths(
        "    mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else None\n",
        "    mode = None\n",
        "a file that its owner alone may read is replaced by one for everybody",
        "frames/test_frame.py::TestExplainAndClaims::test_a_file_keeps_its_mode_and_a_link_its_place",
    ),
    _paths(
        "        if _place(descriptor).exists():\n",
        "        if False:\n",
        "a release that is killed leaves a file without a use",
        "frames/test_frame.py::TestExplainAndClaims::test_a_sink_that_is_killed_leaves_nothing",
    ),
    _claims(
        "        return min(self.rate * step, _LARGEST_RATE)\n",
        "        return self.rate * step\n",
        "a release at a huge loss over wide steps fails after the charge",
        "questions/test_weights.py::test_a_rate_per_step_beyond_all_floats_chooses_the_best",
    ),
]
