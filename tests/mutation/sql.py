"""Mutants of private queries in databases and on Spark: what is kept of a person's rows, and what is counted.

They need Ibis with DuckDB, some also Postgres or Spark: see "Set up" in CONTRIBUTING.md.
"""

from tests.mutation.mutant import of

_BOUNDS = "sql/test_counting.py::test_a_person_changes_the_histogram_by_no_more_than_the_bounds"
_counting = of("sql/_counting.py", "sql/test_counting.py", needs="ibis")
_people = of("sql/_people.py", "sql/test_people.py", needs="ibis")
_arithmetic = of("sql/_arithmetic.py", "sql/test_arithmetic.py", needs="ibis")
_dialects = of("sql/_dialects.py", "sql/test_seams.py", needs="ibis")
_engine = of("sql/__init__.py", "sql/test_counting.py", needs="ibis")
_tables = of("sql/_tables.py", "sql/test_public_values.py", needs="ibis")
_spark = of("spark/__init__.py", "spark/test_conformance.py -k mean", needs="pyspark")

MUTANTS = [
    # --- What is kept of a person
    _counting(
        '    return numbered.filter(numbered["rank"] < most).drop("rank")\n',
        '    return numbered.filter(numbered["rank"] <= most).drop("rank")\n',
        "who is over the bound keeps one more",
        _BOUNDS,
    ),
    _counting(
        '            rows = rows.anti_join(own.filter(own["rank"] >= kept.groups), ["person", "group"])\n',
        '            rows = rows.anti_join(own.filter(own["rank"] > kept.groups), ["person", "group"])\n',
        "a person keeps one group more",
        _BOUNDS,
    ),
    _counting(
        'own.semi_join(many.filter(many["groups"] > kept.groups), "person")',
        'own.semi_join(many.filter(many["groups"] > kept.groups + 1), "person")',
        "who has one group too many keeps it",
        _BOUNDS,
    ),
    _counting(
        '        own = first(own, ["person"], ["group"], kept.groups, 0)\n',
        '        own = first(own, ["person"], ["group"], kept.groups + 1, 0)\n',
        "in Postgres a person keeps one group more",
        _BOUNDS,
        needs="psycopg",
    ),
    _counting(
        '    rows = first(rows, ["person", "group"], says, kept.rows_per_group, 1)\n',
        "",
        "max_rows_per_group is not enforced",
        f"{_BOUNDS} -k 'duckdb and median-kept3'",
    ),
    _counting(
        '    return first(rows, ["person"], says, kept.rows, 2)\n',
        "    return rows\n",
        "max_rows is not enforced",
        _BOUNDS,
    ),
    _counting(
        '        says.append("copy")\n',
        "",
        "of equal rows of a person it is left to the engine which ones stay",
        equivalent="they say the same, so whichever stay the histogram is the same; ROW_NUMBER gives no number twice",
    ),
    _counting(
        "rows = _together(rows, says, weights, dialect) if weights else rows.select(",
        "rows = rows if weights else rows.select(",
        "a person's rows weigh in full",
        _BOUNDS,
    ),
    _counting(
        "ibis.least(_sum(rows[name], dialect), integer(largest)) for",
        "_sum(rows[name], dialect) for",
        "a person weighs more than the most",
        _BOUNDS,
    ),
    _counting(
        '    count = cast(rows["person"].nunique() if people else rows.count(), "int64")\n',
        '    count = cast(rows.count(), "int64")\n',
        "rows are counted for people",
        "sql/test_conformance.py::TestDuckDB::test_rows_and_people_are_counted_as_by_the_reference",
    ),
    _counting(
        "        needed.append(is_evidence(unit, dialect))\n",
        "        pass\n",
        "rows of nobody count",
        "sql/test_counting.py::test_sql_counts_what_polars_counts",
    ),
    _counting(
        "        return ibis.ifelse(unit == zero, zero, unit)\n",
        "        return unit\n",
        "-0.0 and 0.0 are two people",
        equivalent="both engines take them for equal where people are grouped, joined or ranked; in Postgres, where "
        "hashes are of texts, only the order of one person's rows is another, as random as before",
    ),
    _dialects(
        '    return cast(ibis.greatest(next(ends), ibis.least(numbers.sum(), next(ends))), "int64")\n',
        '    return cast(numbers.sum(), "int64")\n',
        "a sum that leaves 64 bits tells of the rows by an error",
        "sql/test_counting.py::test_sums_beyond_64_bits_are_clamped",
    ),
    _counting(
        '    place = dialect.order(rows["person"], [rows[name] for name in by], secret)\n',
        '    place = rows["person"]\n',
        "the first of a person's rows stay, not random ones",
        "sql/test_counting.py::test_sums_under_bounds_keep_a_random_subset",
    ),
    # --- Keys, and quantiles over people
    _people(
        'few(rows.distinct(), ["person"], names, work.most, secret, dialect)',
        'few(rows, ["person"], names, work.most, secret, dialect)',
        "a person counts for a key as often as they have it",
        "sql/test_people.py::test_a_person_changes_no_more_keys_than_the_bound",
    ),
    _people(
        'few(rows.distinct(), ["person"], names, work.most, secret, dialect)',
        "rows.distinct()",
        "a person counts for all of their keys",
        "sql/test_people.py::test_a_person_changes_no_more_keys_than_the_bound",
    ),
    _people(
        "        rows = table.filter(is_evidence(unit, dialect), *needed).select(",
        "        rows = table.filter(*needed).select(",
        "rows of nobody count as one person's in keys",
        "sql/test_conformance.py -k keys",
    ),
    _people(
        '        rows = in_groups(rows, table, keys, dialect).select("person", "group").distinct()\n',
        '        rows = in_groups(rows, table, keys, dialect).select("person", "group")\n',
        "rows count in a quantile of groups",
        "sql/test_conformance.py::TestDuckDB::test_rows_and_groups_of_people_are_counted_as_by_the_reference",
    ),
    # --- Weights and evidence
    _arithmetic(
        "        units = _clip(units, integer(low), integer(high))\n",
        "        pass\n",
        "values beyond the bounds count in full",
        "sql/test_arithmetic.py",
    ),
    _arithmetic(
        "        return value.notnull() & ~value.isnan()\n",
        "        return value.notnull()\n",
        "NaN is a value, and a person",
        "sql/test_counting.py::test_sql_counts_what_polars_counts",
    ),
    _arithmetic(
        "        units = ibis.ifelse(is_evidence(value, dialect), units, integer(0))\n",
        "        pass\n",
        "a NaN weight is the largest one",
        "sql/test_public_values.py::test_a_weight_that_is_none_is_zero",
    ),
    # --- Public values
    _tables(
        "value.cast(kind.copy(scale=MICROSECONDS) if kind.is_timestamp() else kind)",
        "value.cast(kind)",
        "public times are rounded to the digits of a column: a row counts for many keys",
        needs="psycopg",
    ),
    _tables(
        '        return values.dt.strftime("%Y-%m-%d %H:%M:%S%.6f")\n',
        '        return values.dt.strftime("%Y-%m-%d %H:%M:%S%.3f")\n',
        "public times are cut to milliseconds: two keys become one",
    ),
    _tables(
        "    free = [chr(point) for point in _SEPARATORS if chr(point) not in used]\n",
        "    free = [chr(point) for point in _SEPARATORS]\n",
        "public texts with U+E000 are split: rows count for other groups",
    ),
    _engine(
        '            listed = listed.drop("number").distinct()\n',
        '            listed = listed.drop("number")\n',
        "two keys that the database takes for one are let through",
        "sql/test_public_values.py -k takes_two_for_one",
    ),
    _people(
        "    except UnicodeDecodeError:\n        return None\n",
        '    except UnicodeDecodeError:\n        return found.decode("latin1")\n',
        "a key is released that nobody has",
        "sql/test_public_values.py -k bytes_that_are_no_text",
    ),
    _engine(
        '        warnings.simplefilter("ignore")\n',
        "",
        "what a driver warns of rows is shown",
        "sql/test_release.py -k warnings_of_a_driver",
    ),
    # --- On Spark
    _spark(
        "            for own in alike(work.tallies)\n",
        "            for own in [[number] for number in range(len(work.tallies))]\n",
        "a mean's sum and its number are of different rows",
    ),
    # --- The secret
    _engine(
        "            secret = secrets.randbits(_SECRET_BITS)\n",
        "            secret = 2**63\n",
        "every release keeps the same rows",
        "sql/test_counting.py::test_every_release_has_a_secret_of_its_own",
    ),
    _dialects(
        '    place = _hash(_xor(_hash(person), constant(secret, "uint64")))\n',
        '    place = _hash(_xor(_hash(person), constant(0, "uint64")))\n',
        "every release keeps the same rows in DuckDB",
        _BOUNDS,
    ),
]
