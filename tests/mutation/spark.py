"""Mutants of what Spark's executors run in Python, and of the one run of a release.

They need PySpark and Java: see "Set up" in CONTRIBUTING.md. Of what Spark counts itself, few are here.
"""
# fmt: off

from tests.mutation.mutant import of

_spark = of("spark/test_spark.py", needs="pyspark java")
_weighing = of("spark/test_weighing.py", needs="pyspark java")
_conformance = of("spark/test_conformance.py", needs="pyspark java")

MUTANTS = [
    _conformance("_code_by_pieces", "place + long(first)", "place", "values of all decades have the codes of the first",
        "-k codes_of_grids"),
    # --- Groups stay whole
    _spark("_engines/spark/workers:whole_groups", 'held[0]["group"][0].as_py() == groups[0]', "False",
        "a group that batches cut is drawn twice", "::test_groups_that_batches_cut_are_whole_again"),
    _spark("_added_up", 'histogram.filter(is_marker), counted', "counted", "a long group loses its key",
        "::test_a_long_group_is_added_up_on_its_way"),
    _spark("_engines/spark/workers:_parts", "np.append(True, groups[1:] != groups[:-1])", "np.ones(len(groups), bool)",
        "a group is divided between two parts", "::test_many_groups_of_many_candidates_are_drawn_in_parts"),
    _spark("_engines/spark/workers:_histogram", "not np.isin(groups, listed).all()", "False",
        "counts of a group without its key go to another group", "::test_a_group_without_its_key_is_not_drawn"),
    # --- People who count in part
    _weighing("_engines/spark/weighing:_Columns.scaled_root",
        'sf.floor(sf.lit(unit) * sf.sqrt(sf.lit(limit) / by.cast("double")))',
        'sf.ceil(sf.lit(unit) * sf.sqrt(sf.lit(limit) / by.cast("double")))', "a weight in rho is rounded up",
        "::test_the_arithmetic_of_weights_is_exact"),
    _weighing("_engines/spark/weighing:with_weights", "Window.partitionBy(*owner)", 'Window.partitionBy(*owner, "group")',
        "each group has a norm of its own", "-k weighed_numbers_are_those"),
    _weighing("_engines/spark/weighing:with_weights", "sf.when(is_first, found).otherwise(long(0))", "found",
        "a group counts for a norm once for each of its codes", "-k weighed_numbers_are_those"),
    _weighing("numbers_of_codes", '(found > 0).cast("long")', "found",
        "a person counts once for each row among people", "-k weighed_numbers_are_those"),
    _weighing("_engines/spark/weighing:columns_of_numbers", "(tracks.rows[one.number], one.spec.people, one.spec.weight)",
        "(tracks.rows[one.number], one.spec.people)", "a number has the limits of another one",
        "-k weighed_numbers_are_those"),
    _weighing("cells_of_people", "sf.when(one.contributes, column)", "column",
        "rows without a value count", "-k weighed_numbers_are_those"),
    _weighing("_engines/spark/weighing:parts_of_people",
        'part_of(found, sf.col(f"weight of {numbers[one.number]}"), one.spec.bits, _OF)',
        "found * long(1 << one.spec.bits)", "everybody counts in full", "-k weighed_numbers_are_those"),
    _weighing("_engines/spark/weighing:parts_of_people", 'sf.when(sf.col(tracks.rows[one.number]) > 0, found)', "found",
        "who has no row in a group adds the least total", "-k weighed_numbers_are_those"),
    _weighing("_engines/spark/weighing:total_of", "one.of_total(sf.col(tracks.sum[one.number]))",
        "sf.col(tracks.sum[one.number])", "a person's total is not clipped", "-k weighed_numbers_are_those"),
    # --- Rows in long form
    _spark("Tracks.coded", 'same.append(sf.col("track") == sf.col("its track"))', "pass",
        "a value counts by the list of another statistic", "::test_spark_counts_what_polars_counts"),
    _weighing("Tracks._chosen", "len(parts[0][1]) == len(self.tracks)", "len(parts) == 1",
        "rows add to a statistic of another track", "-k weighed_numbers_are_those"),
    _spark("_engines/spark/counting:bounded", "sf.dense_rank()", "sf.lit(1)", "a person counts in every group",
        "-k a_person_changes_the_histograms"),
    _spark("_engines/spark/counting:_within", 'is_within | ~sf.col("track").isin(limited)', "is_within",
        "a statistic has the limits of another one", "-k a_person_changes_the_histograms"),
    _spark("_Drawn.of", "cls(limits, one.has, one.spec.people)", "cls(limits)",
        "rows of one statistic are numbered among those of another", "-k a_person_changes_the_histograms"),
    # --- What is drawn, and what is shown
    _conformance("_engines/spark/workers:_draw", "np.flatnonzero(specs == spec)", "np.flatnonzero(specs != MARKER)",
        "an output is drawn from the counts of all outputs", "-k huge_loss"),
    _spark("_engines/spark/workers:encoding", 'pl.col("code") < binning.size', "True",
        "values that are no candidates are counted", "::test_spark_counts_what_polars_counts",
        equivalent="Spark leaves them out before: `keeps` is true of contributing rows alone, and lists are looked up there"),
    of("spark/test_keys.py")("_engines/spark/workers:selecting", "pa.array(shown)", "pa.array([True] * len(shown))",
        "every key is shown, also that of one person", "::test_keys_are_shown_with_their_probability",
        needs="pyspark java"),
    _conformance("_engines/spark/workers:presenting", "shown.columns(drawn)", "shown.columns(drawn[::-1])",
        "an answer is shown under another's name", "-k huge_loss"),
    _spark("_engines/spark/workers:_silenced_stage", "silenced(next)(results, None)", "next(results, None)",
        "executors warn of values, and raise where warnings are errors",
        "::test_executors_hear_nothing_of_what_a_process_sets"),
    # --- One run
    _spark("spark:_published", "drawn.checkpoint(eager=True)", "drawn", "every look at a release draws anew",
        "::test_an_undisturbed_release_draws_each_group_once"),
    _spark("_SparkEngine._shown_once", "drawn = rows", "pass", "what is cached is another draw than what is published",
        "::test_a_cached_answer_goes_where_a_new_one_goes"),
    _spark("spark:_SparkEngine._shown_once", "self._target is None and isinstance(drawn, pa.Table)",
        "self._target is None", "every look at what executors draw draws anew",
        "::test_an_undisturbed_release_draws_each_group_once"),
    _spark("_engines/spark/workers:_check", "found != {VERSION}", "False",
        "executors with another version of the package draw",
        "::test_executors_with_another_version_are_refused_before_the_charge"),
    _spark("spark:_check_unit", '"collate" in kind', "False", "several people are one to Spark",
        "::test_what_can_not_run_on_spark_is_refused_before_the_charge"),
    _spark("_engines/spark/rows:text_of_frame", "_NO_TEXT.search(tree)", "False",
        "another Python function gets the cached answer", "::test_other_preprocessing_is_another_data_set"),
    _spark("/spark:release", "one.isStreaming", "False", "a stream is released again and again",
        "::test_frames_that_are_not_batches_of_a_spark_session_are_refused"),
]
