"""Mutants of private queries in databases and on Spark: what is kept of a person's rows, and what is counted.

They need Ibis with DuckDB, some also Postgres or Spark: see "Set up" in CONTRIBUTING.md.
"""
# fmt: off

from tests.mutation.mutant import of

_BOUNDS = "sql/test_counting.py::test_a_person_changes_the_histogram_by_no_more_than_the_bounds"
_ALL = "sql/test_counting.py::test_outputs_with_the_same_bounds_keep_all_that_these_let_by"
_SUM = "sql/test_conformance.py::TestDuckDB::test_what_stays_of_a_sum_is_a_random_subset"
_RACE = "sql/test_conformance.py::TestDuckDB::test_one_order_decides_what_tallies_keep_together"
_COLUMNS = "sql/test_conformance.py::TestDuckDB::test_people_of_several_columns_differ_in_one_of_them"
_counting = of("sql/test_counting.py", needs="ibis")
_people = of("sql/test_people.py", needs="ibis")
_arithmetic = of("sql/test_arithmetic.py", needs="ibis")
_dialects = of("sql/test_seams.py", needs="ibis")
_engine = of("sql/test_counting.py", needs="ibis")
_tables = of("sql/test_public_values.py", needs="ibis")
_steps = of("sql/test_gate.py -k 'refused_by_name'", needs="ibis")

MUTANTS = [
    _counting("_engines/sql/counting:_reading_values", "table[old].isnull()", "table[old].notnull()",
        "values are counted in the place of nulls", "sql/test_conformance.py::TestDuckDB -k codes_of_the_reference"),
    _arithmetic("Squares.of_units", "constant(self.half)", "constant(0)",
        "squares are rounded down in a database", "sql/test_arithmetic.py -k weights"),
    # --- What is kept of a person
    _counting("_marked", "at[of] <= most[of]", "at[of] <= most[of] + 1",
        "who is over a bound on rows keeps one more", _BOUNDS),
    _counting("_engines/sql/counting:_split", 'pairs["rows"] > smallest["rows_per_group"]', 'pairs["rows"] > smallest["rows_per_group"] + 1',
        "who has one row too many in a group keeps it", _ALL),
    _counting("_engines/sql/counting:_place", "ibis.row_number().over(until) + 1", "ibis.row_number().over(until)",
        "a person keeps one row more", _BOUNDS),
    _counting("_copies_duckdb", 'ibis.range(distinct["copies"]).unnest()', "0",
        "equal rows of a person become one in DuckDB", _SUM),
    _counting("_engines/sql/dialects:_race", "cast(copies, 'float64')", "1", "equal rows of a person are one in a race", _RACE),
    _counting("_raced", 'crowded["groups"] > most', 'crowded["groups"] > most + 1',
        "who has one group too many keeps it, where one row counts of each", _RACE),
    _counting("_raced", 'cells.anti_join(pairs.filter(~pairs[f"stays{names[only]}"]), pair)', "cells",
        "people count in all of their groups, where one row of others counts", _BOUNDS),
    _counting("_winner", "ibis.greatest(ibis.least(said[name], integer(high)), integer(low))", "said[name]",
        "a row that is evidence for nothing raises", _BOUNDS),
    _counting("Common.once", 'name = f"dp_polars_{OF_GROUPS}_{len(self.tables)}"', 'name = f"dp_polars_{len(self.tables)}"',
        "a table of the database is not read, where a statement has a name like its own",
        "sql/test_counting.py::test_a_table_may_have_any_name"),
    _counting("_of_person", "ibis.greatest(ibis.least(dialect.total(weight, LARGEST_VALUE), integer(high)), integer(low))",
        "dialect.total(weight, LARGEST_VALUE)",
        "a person weighs more than the most", _BOUNDS),
    _counting("_engines/sql/counting:_found", "number.person.nunique(where=number.counts)", "rows.count(where=number.counts)",
        "rows are counted for people",
        "sql/test_conformance.py::TestDuckDB::test_lists_of_the_most_common_are_the_true_ones_at_a_large_loss"),
    _counting("_native", "needed += is_somebody(table, work.privacy_unit, dialect)", "pass",
        "rows of nobody count",
        "sql/test_conformance.py::TestDuckDB::test_the_first_above_a_threshold_is_the_true_one_at_a_large_loss"),
    _counting("rows_of_people", "table.filter(is_somebody(table, unit, dialect))", "table",
        "rows of nobody count where there are bounds",
        "sql/test_conformance.py::TestDuckDB::test_no_rows_are_empty_histograms"),
    _dialects("_engines/sql/dialects:_total", "ibis.greatest(next(ends), ibis.least(numbers.sum(), next(ends)))",
        "numbers.sum()",
        "a sum that leaves 64 bits tells of the rows by an error",
        "sql/test_counting.py::test_sums_beyond_64_bits_are_clamped"),
    # --- People of several columns
    _counting("_engines/sql/counting:people_of", "enumerate(unit)", "enumerate(unit[:1])",
        "people who differ in one column are one", _COLUMNS),
    _counting("_engines/sql/counting:is_somebody", "[is_evidence(table[name], dialect) for name in unit]",
        "[is_evidence(table[name], dialect) for name in unit[:1]]",
        "who lacks a column is somebody", _COLUMNS),
    # --- Keys, and quantiles over people
    _people("_engines/sql/people:people_by_key", "rows.distinct()", "rows",
        "a person counts for a key as often as they have it",
        "sql/test_people.py::test_a_person_changes_no_more_keys_than_the_bound"),
    _people("_engines/sql/people:_few", 'numbered["rank"] < most', 'numbered["rank"] <= most',
        "a person counts for one key more", "sql/test_people.py::test_a_person_changes_no_more_keys_than_the_bound"),
    _people("_engines/sql/people:one_row_per_person", "by_group.count()", "by_group[ROWS].sum()",
        "rows count in a quantile of groups",
        "sql/test_conformance.py::TestDuckDB::test_rows_and_groups_of_people_are_counted_as_by_the_reference"),
    _people("_engines/sql/people:_cut", "people[what] > bound", "people[what] > bound + 1",
        "who loses one row, or group, is not counted among those who are cut",
        "sql/test_conformance.py::TestDuckDB::test_people_who_are_cut_are_those_of_the_reference"),
    # --- Weights and evidence
    _counting("_packed", "(high - low + 1).bit_length()", "(high - low).bit_length()",
        "of what rows say in one integer, the largest number has no place", "sql/test_conformance.py::TestDuckDB -k codes_of_the_reference"),
    _arithmetic("_engines/sql/arithmetic:_units_of_floats", "value > last", "value < first",
        "floats beyond the bounds count in full", "sql/test_arithmetic.py -k weights_of_floats"),
    _arithmetic("_engines/sql/arithmetic:units", "_within(_nearest(found * integer(steps) if steps > 1 else found, per, dialect), low, high)",
        "_nearest(found * integer(steps) if steps > 1 else found, per, dialect)",
        "values beyond the bounds count in full", "sql/test_arithmetic.py"),
    _arithmetic("_engines/sql/arithmetic:is_evidence", "value.notnull() & ~value.isnan()", "value.notnull()",
        "NaN is a value, and a person", "sql/test_conformance.py::TestDuckDB::test_values_of_every_type_have_the_codes_of_the_reference"),
    # --- Public values
    _tables("comparable", "kind.copy(scale=MICROSECONDS) if kind.is_timestamp() else kind", "kind",
        "public times are rounded to the digits of a column: a row counts for many keys", needs="psycopg"),
    _tables("_engines/sql/rows:_text", '"%Y-%m-%d %H:%M:%S%.6f"', '"%Y-%m-%d %H:%M:%S%.3f"',
        "public times are cut to milliseconds: two keys become one"),
    _tables("_unused", "chr(point) not in used", "",
        "public texts with U+E000 are split: rows count for other groups"),
    _engine("_SqlEngine.distinct", 'listed.drop("number").distinct()', 'listed.drop("number")',
        "two keys that the database takes for one are let through", "sql/test_public_values.py -k takes_two_for_one"),
    _people("_engines/sql/people:_text", "return None", 'return found.decode("latin1")',
        "a key is released that nobody has", "sql/test_public_values.py -k bytes_that_are_no_text"),
    # --- Expressions of Ibis
    _steps("sql:release", "refuse_mixed_people(one, request.protection.unit)", "[]",
        "no expression of Ibis is looked at", "sql/test_gate.py::test_cubes_are_checked_too"),
    _steps("refuse_mixed_people", "one.unit is None or one.unit != other.unit", "False",
        "a row belongs to a patient and to a doctor"),
    _steps("_Reader._keys", "node.name.casefold()", "node.name", "a table under two cases has two units"),
    _steps("_Reader._step", "cached is None", "True", "what was cached is not looked at"),
    _steps("_engines/sql/reading:_seen", "_named((key for key in part.group_by if isinstance(key, _ops.Field)), named)",
        'frozenset(getattr(key, "name", "") for key in part.group_by)',
        "a window by the partner of a left join holds several people"),
    _steps("_Reader.made", "part not in in_windows", "False", "a reduction of all rows stands in what a join gives"),
    _steps("_engines/sql/reading:_pairs", "_is_of_one_type(*sides)", "True", "people are joined by numbers of two types"),
    _steps("_SqlEngine.refuse_coarse", "check_types(self._dialect, table, found, (column.name,))", "pass",
        "'ann' and 'Ann' are one person to citext", "sql/test_gate.py -k texts_without_case"),
    _steps("Common.read_again", "not self.is_prepared", "True",
        "a sum of floats is another one each time that it is read", "sql/test_gate.py -k 'made_once and duckdb'"),
    _steps("_engines/sql/dialects:_wrap", "node.replace(_sql.TryCast(this=node.this, to=node.to))", "pass",
        "a cast of a row raises on DuckDB", "sql/test_gate.py::test_no_row_of_a_preparation_raises_on_duckdb"),
    _steps("_describe_duckdb", 'type(error).__name__ != "FatalException"', "True",
        "a connection that has failed says why, by a value", "sql/test_gate.py -k does_not_say_why"),
    _steps("has_text", 'getattr(part, "__input_type__", None) is _BUILTIN', "True",
        "rows in memory have a kept answer by their name", "sql/test_gate.py -k kept_answer"),
    # --- The secret
    _dialects("Select.sealed", "secrets.randbits(_SECRET_BITS)", "2**62",
        "every release keeps the same rows", "sql/test_counting.py::test_every_release_has_a_secret_of_its_own"),
    _dialects("_order_duckdb", 'secret, "uint64"', '0, "uint64"',
        "every release keeps the same rows in DuckDB", _BOUNDS),
]
