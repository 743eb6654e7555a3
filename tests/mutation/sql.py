"""Mutants of private queries in databases and on Spark: what is kept of a person's rows, and what is counted.

They need Ibis with DuckDB, some also Postgres or Spark: see "Set up" in CONTRIBUTING.md.
"""
# fmt: off

from tests.mutation.mutant import of

_counting = of("sql/test_counting.py", needs="ibis")
_duck_db = of("sql/test_conformance.py::TestDuckDB", needs="ibis")
_arithmetic = of("sql/test_arithmetic.py", needs="ibis")
_people = of("sql/test_people.py", needs="ibis")
_public_values = of("sql/test_public_values.py", needs="ibis")
_gate = of("sql/test_gate.py", needs="ibis")

MUTANTS = [
    of("sql/test_conformance.py")("_engines/sql/counting:_reading_values", "table[old].isnull()",
        "table[old].notnull()", "values are counted in the place of nulls", "::TestDuckDB -k codes_of_the_reference",
        needs="ibis"),
    # --- What is kept of a person
    _counting("_marked", "at[of] <= most[of]", "at[of] <= most[of] + 1", "who is over a bound on rows keeps one more",
        "::test_a_person_changes_the_histogram_by_no_more_than_the_bounds"),
    _counting("_engines/sql/counting:_split", 'pairs["rows"] > smallest["rows_per_group"]',
        'pairs["rows"] > smallest["rows_per_group"] + 1', "who has one row too many in a group keeps it",
        "::test_outputs_with_the_same_bounds_keep_all_that_these_let_by"),
    _counting("_engines/sql/counting:_place", "ibis.row_number().over(until) + 1", "ibis.row_number().over(until)",
        "a person keeps one row more", "::test_a_person_changes_the_histogram_by_no_more_than_the_bounds"),
    _duck_db("_copies_duckdb", 'ibis.range(distinct["copies"]).unnest()', "0",
        "equal rows of a person become one in DuckDB", "::test_what_stays_of_a_sum_is_a_random_subset"),
    _duck_db("_engines/sql/dialects:_race", "cast(copies, 'float64')", "1", "equal rows of a person are one in a race",
        "::test_one_order_decides_what_tallies_keep_together"),
    _duck_db("_raced", 'crowded["groups"] > most', 'crowded["groups"] > most + 1',
        "who has one group too many keeps it, where one row counts of each",
        "::test_one_order_decides_what_tallies_keep_together"),
    _counting("_raced", 'cells.anti_join(pairs.filter(~pairs[f"stays{names[only]}"]), pair)', "cells",
        "people count in all of their groups, where one row of others counts",
        "::test_a_person_changes_the_histogram_by_no_more_than_the_bounds"),
    _counting("_winner", "within(said[name], low, high)", "said[name]",
        "a row that is evidence for nothing raises",
        "::test_a_person_changes_the_histogram_by_no_more_than_the_bounds"),
    _counting("Common.once", 'name = f"dp_polars_{OF_GROUPS}_{len(self.tables)}"',
        'name = f"dp_polars_{len(self.tables)}"',
        "a table of the database is not read, where a statement has a name like its own",
        "::test_a_table_may_have_any_name"),
    _counting("_of_person",
        "within(dialect.total(weight, LARGEST_VALUE), low, high)",
        "dialect.total(weight, LARGEST_VALUE)", "a person weighs more than the most",
        "::test_a_person_changes_the_histogram_by_no_more_than_the_bounds"),
    _duck_db("_engines/sql/counting:_found", "number.person.nunique(where=number.counts)",
        "rows.count(where=number.counts)", "rows are counted for people",
        "::test_lists_of_the_most_common_are_the_true_ones_at_a_large_loss"),
    _duck_db("_native", "needed += is_somebody(table, work.privacy_unit, dialect)", "pass", "rows of nobody count",
        "::test_the_first_above_a_threshold_is_the_true_one_at_a_large_loss"),
    _duck_db("rows_of_people", "table.filter(is_somebody(table, unit, dialect))", "table",
        "rows of nobody count where there are bounds", "::test_no_rows_are_empty_histograms"),
    _counting("_engines/sql/dialects:_total", "ibis.greatest(next(ends), ibis.least(numbers.sum(), next(ends)))",
        "numbers.sum()", "a sum that leaves 64 bits tells of the rows by an error",
        "::test_sums_beyond_64_bits_are_clamped"),
    # --- People of several columns
    _duck_db("_engines/sql/counting:people_of", "enumerate(unit)", "enumerate(unit[:1])",
        "people who differ in one column are one", "::test_people_of_several_columns_differ_in_one_of_them"),
    _duck_db("_engines/sql/counting:is_somebody", "[is_evidence(table[name], dialect) for name in unit]",
        "[is_evidence(table[name], dialect) for name in unit[:1]]", "who lacks a column is somebody",
        "::test_people_of_several_columns_differ_in_one_of_them"),
    # --- Keys, and quantiles over people
    _people("_engines/sql/people:people_by_key", "rows.distinct()", "rows",
        "a person counts for a key as often as they have it", "::test_a_person_changes_no_more_keys_than_the_bound"),
    _people("_engines/sql/people:_few", 'numbered["rank"] < most', 'numbered["rank"] <= most',
        "a person counts for one key more", "::test_a_person_changes_no_more_keys_than_the_bound"),
    _duck_db("_engines/sql/people:one_row_per_person", "by_group.count()", "by_group[ROWS].sum()",
        "rows count in a quantile of groups", "::test_rows_and_groups_of_people_are_counted_as_by_the_reference"),
    # --- Weights and evidence
    _arithmetic("_engines/sql/arithmetic:units",
        "within(_nearest(found * integer(steps) if steps > 1 else found, per, dialect), low, high)",
        "_nearest(found * integer(steps) if steps > 1 else found, per, dialect)",
        "values beyond the bounds count in full"),
    _arithmetic("_engines/sql/arithmetic:_units_of_floats", "value > last", "value < first",
        "floats beyond the bounds count in full", "-k weights_of_floats"),
    _duck_db("_packed", "_bits((low, high + 1))", "_bits((low, high))",
        "of what rows say in one integer, the largest number has no place", "-k codes_of_the_reference"),
    _duck_db("_engines/sql/arithmetic:is_evidence", "value.notnull() & ~value.isnan()", "value.notnull()",
        "NaN is a value, and a person", "::test_values_of_every_type_have_the_codes_of_the_reference"),
    # --- Public values
    _public_values("comparable", "kind.copy(scale=MICROSECONDS) if kind.is_timestamp() else kind", "kind",
        "public times are rounded to the digits of a column: a row counts for many keys", needs="psycopg"),
    _public_values("_engines/sql/rows:_text", '"%Y-%m-%d %H:%M:%S%.6f"', '"%Y-%m-%d %H:%M:%S%.3f"',
        "public times are cut to milliseconds: two keys become one"),
    _public_values("_unused", "chr(point) not in used", "",
        "public texts with U+E000 are split: rows count for other groups"),
    _public_values("_SqlEngine.distinct", 'listed.drop("number").distinct()', 'listed.drop("number")',
        "two keys that the database takes for one are let through", "-k takes_two_for_one"),
    _public_values("_engines/sql/people:_text", "return None", 'return found.decode("latin1")',
        "a key is released that nobody has", "-k bytes_that_are_no_text"),
    # --- Expressions of Ibis
    _gate("sql:release", "refuse_mixed_people(one, request.protection.unit)", "[]",
        "no expression of Ibis is looked at", "::test_cubes_are_checked_too"),
    _gate("refuse_mixed_people", "one.unit is None or one.unit != other.unit", "False",
        "a row belongs to a patient and to a doctor", "-k 'refused_by_name'"),
    _gate("_Reader._keys", "node.name.casefold()", "node.name", "a table under two cases has two units",
        "-k 'refused_by_name'"),
    _gate("_Reader._step", "cached is None", "True", "what was cached is not looked at", "-k 'refused_by_name'"),
    _gate("_engines/sql/reading:_seen", "_named((key for key in part.group_by if isinstance(key, _ops.Field)), named)",
        'frozenset(getattr(key, "name", "") for key in part.group_by)',
        "a window by the partner of a left join holds several people", "-k 'refused_by_name'"),
    _gate("_Reader.made", "part not in in_windows", "False", "a reduction of all rows stands in what a join gives",
        "-k 'refused_by_name'"),
    _gate("_engines/sql/reading:_pairs", "_is_of_one_type(*sides)", "True", "people are joined by numbers of two types",
        "-k 'refused_by_name'"),
    _gate("_SqlEngine.refuse_coarse", "check_types(self._dialect, table, found, (column.name,))", "pass",
        "'ann' and 'Ann' are one person to citext", "-k texts_without_case"),
    _gate("Common.read_again", "not self.is_prepared", "True",
        "a sum of floats is another one each time that it is read", "-k 'made_once and duckdb'"),
    _gate("_engines/sql/dialects:_wrap", "node.replace(_sql.TryCast(this=node.this, to=node.to))", "pass",
        "a cast of a row raises on DuckDB", "::test_no_row_of_a_preparation_raises_on_duckdb"),
    _gate("_describe_duckdb", 'type(error).__name__ != "FatalException"', "True",
        "a connection that has failed says why, by a value", "-k does_not_say_why"),
    _gate("has_text", 'getattr(part, "__input_type__", None) is _BUILTIN', "True",
        "rows in memory have a kept answer by their name", "-k kept_answer"),
    # --- The secret
    _counting("Select.sealed", "secrets.randbits(_SECRET_BITS)", "2**62", "every release keeps the same rows",
        "::test_every_release_has_a_secret_of_its_own"),
    _counting("_order_duckdb", 'secret, "uint64"', '0, "uint64"', "every release keeps the same rows in DuckDB",
        "::test_a_person_changes_the_histogram_by_no_more_than_the_bounds"),
]
