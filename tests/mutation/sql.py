"""Mutants of private queries in databases and on Spark: what is kept of a person's rows, and what is counted.

They need Ibis with DuckDB, some also Postgres or Spark: see "Set up" in CONTRIBUTING.md.
"""
# fmt: off

from tests.mutation.mutant import of

_BOUNDS = "sql/test_counting.py::test_a_person_changes_the_histogram_by_no_more_than_the_bounds"
_TOGETHER = "sql/test_conformance.py::TestDuckDB::test_one_order_decides_what_tallies_keep_together"
_ALL = "sql/test_counting.py::test_outputs_with_the_same_bounds_keep_all_that_these_let_by"
_SUM = "sql/test_conformance.py::TestDuckDB::test_what_stays_of_a_sum_is_a_random_subset"
_COLUMNS = "sql/test_conformance.py::TestDuckDB::test_people_of_several_columns_differ_in_one_of_them"
_counting = of("sql/test_counting.py", needs="ibis")
_people = of("sql/test_people.py", needs="ibis")
_arithmetic = of("sql/test_arithmetic.py", needs="ibis")
_dialects = of("sql/test_seams.py", needs="ibis")
_engine = of("sql/test_counting.py", needs="ibis")
_tables = of("sql/test_public_values.py", needs="ibis")

MUTANTS = [
    _counting("_relational/counting:_reading_values", "table[old].isnull()", "table[old].notnull()",
        "values are counted in the place of nulls", "sql/test_conformance.py::TestDuckDB -k codes_of_the_reference"),
    _arithmetic("_relational/arithmetic:doubled", "integer(weighing.half)", "integer(0)",
        "squares are rounded down in a database", "sql/test_arithmetic.py -k weights"),
    # --- What is kept of a person
    _counting("_marked", "at[of] <= most[of]", "at[of] <= most[of] + 1",
        "who is over a bound on rows keeps one more", _BOUNDS),
    _counting("_relational/counting:_split", 'pairs["rows"] > smallest["rows_per_group"]', 'pairs["rows"] > smallest["rows_per_group"] + 1',
        "who has one row too many in a group keeps it", _BOUNDS),
    _counting("_relational/counting:_split", "pairs[column] > smallest[what]", "pairs[column] > smallest[what] + 1",
        "who has one group, or one row, too many keeps it", _BOUNDS),
    _counting("_relational/counting:_split", 'crowded.count(where=crowded[f"has{i}"] > 0 if i in codes else None).over(until)',
        'crowded.count(where=crowded[f"has{i}"] > 0 if i in codes else None).over(until) - 1',
        "a person keeps one group more", _BOUNDS),
    _counting("_relational/counting:_split", 'crowded[f"has{i}"] > 0 if i in codes else None', "None",
        "a group without evidence for an output takes a place among its groups", _TOGETHER),
    _counting("_marked", '("rows_per_group", [*person_in(tight), "group"])', '("rows_per_group", [*person_in(tight), "group", "place"])',
        "max_rows_per_group is not enforced", _BOUNDS),
    _counting("_marked", '("rows", person_in(tight))', '("rows", [*person_in(tight), "place"])',
        "max_rows is not enforced", _BOUNDS),
    _counting("_marked", "[has(tight, name)]", "[]",
        "a row that is no evidence for an output takes a place among its rows", _TOGETHER),
    _counting("_relational/counting:_split", 'says.append("copy")', "",
        "equal rows of a person have one number: they stay or go together", _SUM),
    _counting("_relational/counting:_split", 'dialect.order(owner, said, common.secret ^ _OF_ROWS)', 'tight["group"]',
        "the first of a person's rows stay, not random ones", _SUM),
    _counting("_relational/counting:_split", '(pairs["rows"] == pairs["full"]).all()', '(pairs["rows"] == pairs["full"]).any()',
        "who has one group without nulls is ranked once for all outputs", _ALL),
    _counting("_relational/counting:_split", 'even=pairs["rows"] == pairs["full"]', 'even=pairs["rows"] > 0',
        "rows without evidence for an output take a place where only groups have bounds on rows", _ALL),
    _counting("_marked", "limits.groups is limits.rows_per_group is None", "True",
        "rows that were dropped before take a place among all rows of a person", _ALL),
    _counting("_copies_duckdb", 'ibis.range(distinct["copies"]).unnest()', "0",
        "equal rows of a person become one in DuckDB", _SUM),
    _counting("Common.once", 'name = f"dp_polars_{self.secret:016x}_{len(self.tables)}"', 'name = f"dp_polars_{len(self.tables)}"',
        "a table of the database is not read, where a statement has a name like its own",
        "sql/test_counting.py::test_a_table_may_have_any_name"),
    _counting("Common.once", "ibis.table(table.schema(), name=name)", "table",
        "private rows are read twice: drawn at random, they are two samples", _BOUNDS),
    _counting("_of_person", "ibis.greatest(ibis.least(dialect.total(weight, LARGEST_VALUE), integer(high)), integer(low))",
        "dialect.total(weight, LARGEST_VALUE)",
        "a person weighs more than the most", _BOUNDS),
    _counting("_of_person", "integer(low)", "integer(-high)",
        "a person's sum is clipped at one end alone",
        "sql/test_conformance.py::TestDuckDB::test_a_persons_sum_is_clipped_to_both_ends"),
    _counting("_relational/counting:_found", "number.person.nunique(where=number.counts)", "rows.count(where=number.counts)",
        "rows are counted for people",
        "sql/test_conformance.py::TestDuckDB::test_rows_and_people_are_counted_as_by_the_reference"),
    _counting("_native", "needed += is_somebody(table, work.privacy_unit, dialect)", "pass",
        "rows of nobody count", "sql/test_conformance.py::TestDuckDB::test_rows_and_people_are_counted_as_by_the_reference"),
    _counting("rows_of_people", "table.filter(is_somebody(table, unit, dialect))", "table",
        "rows of nobody count where there are bounds",
        "sql/test_conformance.py::TestDuckDB::test_no_rows_are_empty_histograms"),
    _counting("_person_of", "ibis.ifelse(unit.abs() == zero, zero, unit)", "unit",
        "-0.0 and 0.0 are two people",
        equivalent="both engines take them for equal where people are grouped, joined or ranked; in Postgres, where hashes are"
        " of texts, only the order of one person's rows is another, as random as before"),
    _dialects("dialects:_total", "ibis.greatest(next(ends), ibis.least(numbers.sum(), next(ends)))",
        "numbers.sum()",
        "a sum that leaves 64 bits tells of the rows by an error",
        "sql/test_counting.py::test_sums_beyond_64_bits_are_clamped"),
    # --- People of several columns
    _counting("_relational/counting:people_of", "enumerate(unit)", "enumerate(unit[:1])",
        "people who differ in one column are one", _COLUMNS),
    _counting("_relational/counting:is_somebody", "[is_evidence(table[name], dialect) for name in unit]",
        "[is_evidence(table[name], dialect) for name in unit[:1]]",
        "who lacks a column is somebody", _COLUMNS),
    _counting("_native", "len(person) > 1", "False", "people are told apart by one column", _COLUMNS),
    _counting("_goes_with", "one.weighing is not None or several", "one.weighing is not None",
        "people are told apart by one column where outputs are counted together", _COLUMNS),
    # --- Keys, and quantiles over people
    _people("_relational:people_by_key", "rows.distinct()", "rows",
        "a person counts for a key as often as they have it",
        "sql/test_people.py::test_a_person_changes_no_more_keys_than_the_bound"),
    _people("_relational:people_by_key", "_few(rows.distinct(), names, work.most, secret, dialect)",
        "rows.distinct()",
        "a person counts for all of their keys",
        "sql/test_people.py::test_a_person_changes_no_more_keys_than_the_bound"),
    _people("_relational:people_by_key", "*is_somebody(table, work.privacy_unit, dialect)", "",
        "rows of nobody count as one person's in keys", "sql/test_conformance.py -k keys"),
    _people("people:_few", 'numbered["rank"] < most', 'numbered["rank"] <= most',
        "a person counts for one key more", "sql/test_people.py::test_a_person_changes_no_more_keys_than_the_bound"),
    _people("_relational:one_row_per_person", "by_group.count()", "by_group[ROWS].sum()",
        "rows count in a quantile of groups",
        "sql/test_conformance.py::TestDuckDB::test_rows_and_groups_of_people_are_counted_as_by_the_reference"),
    _people("people:_cut", "people[what] > bound", "people[what] > bound + 1",
        "who loses one row, or group, is not counted among those who are cut",
        "sql/test_conformance.py::TestDuckDB::test_people_who_are_cut_are_those_of_the_reference"),
    # --- Weights and evidence
    _arithmetic("arithmetic:units", "found = _clip(found, integer(low), integer(high))", "pass",
        "values beyond the bounds count in full", "sql/test_arithmetic.py"),
    _arithmetic("_relational/arithmetic:is_evidence", "value.notnull() & ~value.isnan()", "value.notnull()",
        "NaN is a value, and a person", "sql/test_conformance.py::TestDuckDB::test_values_of_every_type_have_the_codes_of_the_reference"),
    _arithmetic("arithmetic:units", "ibis.ifelse(is_evidence(value, dialect), found, integer(otherwise))", "found",
        "a NaN weight is the largest one", "sql/test_public_values.py::test_a_weight_that_is_none_is_zero"),
    # --- Public values
    _tables("comparable", "kind.copy(scale=MICROSECONDS) if kind.is_timestamp() else kind", "kind",
        "public times are rounded to the digits of a column: a row counts for many keys", needs="psycopg"),
    _tables("tables:_text", '"%Y-%m-%d %H:%M:%S%.6f"', '"%Y-%m-%d %H:%M:%S%.3f"',
        "public times are cut to milliseconds: two keys become one"),
    _tables("_unused", "chr(point) not in used", "",
        "public texts with U+E000 are split: rows count for other groups"),
    _engine("_SqlEngine.distinct", 'listed.drop("number").distinct()', 'listed.drop("number")',
        "two keys that the database takes for one are let through", "sql/test_public_values.py -k takes_two_for_one"),
    _people("_relational/people:_text", "return None", 'return found.decode("latin1")',
        "a key is released that nobody has", "sql/test_public_values.py -k bytes_that_are_no_text"),
    # --- The secret
    _engine("_SqlEngine.prepare_histograms", "secrets.randbits(_SECRET_BITS)", "2**63",
        "every release keeps the same rows", "sql/test_counting.py::test_every_release_has_a_secret_of_its_own"),
    _dialects("_order_duckdb", 'secret, "uint64"', '0, "uint64"',
        "every release keeps the same rows in DuckDB", _BOUNDS),
]
