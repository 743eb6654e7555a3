"""Names of steps: those that look at their own row alone, and how users write them.

The lists hold what was tried on extreme rows of every type on Polars 2.1.0: a frame at once, its rows one by one, its
rows reversed, and short chunks must agree. What is not listed is refused, also what a later Polars will add; what is
listed is refused where a rule of rules.py says so. Polars 1 takes a short list of its own.
"""

from __future__ import annotations


def names(text: str) -> frozenset[str]:
    """Return the names in a text."""
    return frozenset(text.split())


DIVISIONS = names("/ // %")
ARITHMETIC = DIVISIONS | names("+ - *")
COMPARISONS = names("== != < <= > >=")
OPERATORS = ARITHMETIC | COMPARISONS | names("eq_missing ne_missing & | ^")

# Functions of several columns of the same row.
OF_COLUMNS = names(
    """
    all_horizontal any_horizontal arctan2 as_struct coalesce fill_null is_between is_close is_in
    max_horizontal mean_horizontal min_horizontal sum_horizontal
    arr.concat arr.contains bin.contains bin.ends_with bin.starts_with dt.business_day_count dt.combine
    dt.datetime_function dt.duration list.concat list.contains list.set_operation str.concat_horizontal
    str.ends_with str.format str.starts_with str.strip_prefix str.strip_suffix
    """
)
# Those of them that make one column of all that are selected; the others make one of each.
OF_ALL_COLUMNS = names(
    """
    all_horizontal any_horizontal arr.concat as_struct coalesce list.concat max_horizontal mean_horizontal
    min_horizontal str.concat_horizontal sum_horizontal
    """
)
# Functions of one column: their further inputs must be public constants.
OF_ONE_COLUMN = names(
    """
    abs arccos arccosh arcsin arcsinh arctan arctanh bin_intervals bitwise_count_ones bitwise_count_zeros
    bitwise_leading_ones bitwise_leading_zeros bitwise_trailing_ones bitwise_trailing_zeros cbrt ceil clip
    cos cosh cot cut degrees erf erfc exp floor hash is_finite is_infinite is_nan is_not_nan is_not_null
    is_null log log1p negate not pow radians reinterpret replace replace_strict round round_sig_figs sign sin
    sinh sqrt tan tanh to_physical truncate
    arr.arg_max arr.arg_min arr.count_matches arr.get arr.join arr.length arr.max arr.median arr.min
    arr.shift arr.sort arr.std arr.sum arr.to_list arr.to_struct arr.var
    bin.base64_decode bin.base64_encode bin.get bin.head bin.hex_decode bin.hex_encode bin.reinterpret
    bin.size bin.slice bin.tail
    cat.ends_with cat.len_bytes cat.len_chars cat.slice cat.starts_with
    dt.add_business_day dt.base_utc_offset dt.cast_time_unit dt.century dt.convert_time_zone dt.date dt.day
    dt.days_in_month dt.dst_offset dt.hour dt.is_business_day dt.is_leap_year dt.iso_year dt.microsecond
    dt.millennium dt.millisecond dt.minute dt.month dt.month_end dt.month_start dt.nanosecond dt.offset_by
    dt.ordinal_day dt.quarter dt.replace_time_zone dt.round dt.second dt.time dt.time_stamp dt.to_string
    dt.total_days dt.total_hours dt.total_microseconds dt.total_milliseconds dt.total_minutes
    dt.total_nanoseconds dt.total_seconds dt.truncate dt.week dt.week_day dt.year
    ext.storage
    list.agg list.all list.any list.arg_max list.arg_min list.count_matches list.drop_nulls list.eval list.gather
    list.gather_every list.get list.join list.length list.max list.median list.min list.n_unique
    list.reverse list.shift list.slice list.sort list.std list.sum list.to_array list.to_struct list.var
    str.base64_decode str.base64_encode str.contains str.contains_any str.count_matches str.escape_regex
    str.extract str.extract_all str.extract_groups str.extract_many str.find str.find_many str.head
    str.hex_decode str.hex_encode str.json_path_match str.len_bytes str.len_chars str.lowercase str.normalize
    str.pad_end str.pad_start str.replace str.replace_many str.reverse str.slice str.split str.split_exact
    str.split_n str.strip_chars str.strip_chars_end str.strip_chars_start str.strptime str.tail str.titlecase
    str.to_decimal str.to_integer str.uppercase str.zfill
    struct.field_by_name struct.prefix_fields struct.rename_fields struct.select_fields
    struct.suffix_fields
    """
)
# Those of them that may have other parameters in each row.
OF_ROWS_PARAMETERS = names("list.gather list.get list.shift list.slice str.head str.slice str.split str.tail")
FUNCTIONS = OF_COLUMNS | OF_ONE_COLUMN
TAKEN = {"operator": OPERATORS, "function": FUNCTIONS, "cast": names("cast"), "other": frozenset({"a name", "when"})}

# What Polars 1 takes, and of which kinds of values. Numbers are integers of up to 64 bits and floats of 32 or 64. Its
# casts and functions of other types look at whole columns.
NUMBERS, TEXTS, BOOLEANS = names("number"), names("text"), names("boolean")
PLAIN, ANY = NUMBERS | TEXTS | BOOLEANS, names("any")
ON_POLARS_1 = {
    ARITHMETIC | names("negate"): NUMBERS,
    COMPARISONS | names("eq_missing ne_missing fill_null is_in when"): PLAIN,
    names("& | ^ not all_horizontal any_horizontal"): BOOLEANS,
    names("cast"): PLAIN,
    names("is_nan is_not_nan"): NUMBERS,
    names("is_null is_not_null"): ANY,
    names(
        """
        str.concat_horizontal str.contains str.contains_any str.count_matches str.ends_with str.escape_regex
        str.extract str.find str.head str.len_bytes str.len_chars str.lowercase str.normalize str.pad_end str.pad_start
        str.replace str.replace_many str.reverse str.slice str.starts_with str.strip_chars str.strip_chars_end
        str.strip_chars_start str.strip_prefix str.strip_suffix str.tail str.titlecase str.uppercase str.zfill
        """
    ): TEXTS,
}
# The inputs of these are all of one kind there, and their columns all of one type.
OF_ONE_TYPE = OPERATORS | names("fill_null is_in when")

# The inputs of functions that may be a Series, because they are taken as a set or a mapping.
SETS = {
    "dt.add_business_day": {2},
    "dt.business_day_count": {2},
    "dt.is_business_day": {1},
    "is_in": {1},
    "replace": {1, 2},
    "replace_strict": {1, 2},
}
# A category's number is that of its first appearance in any row. These functions look at its text only.
OF_CATEGORIES = names(
    """
    as_struct coalesce ext.storage fill_null is_in is_not_null is_null replace replace_strict
    cat.ends_with cat.len_bytes cat.len_chars cat.slice cat.starts_with list.concat list.contains list.get
    list.length str.concat_horizontal str.format struct.field_by_name struct.select_fields
    """
)
# What Extension types and Objects are taken in: they are carried, counted, and opened.
OF_OPAQUE = names("ext.storage is_not_null is_null struct.field_by_name")
# Functions that may land on a local time that a clock change leaves out or has twice.
OF_CLOCKS = names("dt.add_business_day dt.combine dt.month_end dt.month_start dt.offset_by dt.round dt.truncate")
# Functions of several columns, nested ones too, that convert none to the type of another.
OF_MIXED_TYPES = names("arr.contains as_struct is_in list.contains")
OF_TEXTS = names("str.concat_horizontal str.format")
OF_SIGNED_ZEROS = names("arctan2 cot pow") | OF_TEXTS

# How users write the steps that Polars calls otherwise.
_WRITTEN = {
    "arr.concat": "pl.concat_arr",
    "arr.length": "arr.len",
    "arg_where": "arg_true",
    "as_struct": "pl.struct",
    "bin.base64_decode": "bin.decode",
    "bin.base64_encode": "bin.encode",
    "bin.hex_decode": "bin.decode",
    "bin.hex_encode": "bin.encode",
    "bin_quantiles": "bin_quantiles, bin_intervals without breaks",
    "coalesce": "pl.coalesce",
    "correlation": "pl.corr",
    "dt.add_business_day": "dt.add_business_days",
    "dt.business_day_count": "pl.business_day_count",
    "dt.datetime_function": "pl.datetime, pl.date, pl.time",
    "dt.duration": "pl.duration",
    "dt.time_stamp": "dt.timestamp, dt.epoch",
    "dt.to_string": "dt.to_string, dt.strftime",
    "dt.week_day": "dt.weekday",
    "eval": "cumulative_eval",
    "fill_null_with_strategy": "forward_fill, backward_fill, fill_null(strategy=…)",
    "first_non_null": "first(ignore_nulls=True)",
    "fold_horizontal": "pl.fold",
    "gather": "gather, get",
    "last_non_null": "last(ignore_nulls=True)",
    "list.concat": "pl.concat_list, list.concat",
    "list.eval": "list.eval, list.filter, list.unique",
    "list.get": "list.get, list.first, list.last",
    "list.length": "list.len",
    "list.set_operation": "list.set_union, list.set_difference, list.set_intersection, list.set_symmetric_difference",
    "list.slice": "list.slice, list.head, list.tail",
    "log": "log, log10",
    "negate": "neg",
    "not": "~",
    "pow": "pow, **",
    "q_cut": "qcut",
    "random": "sample, shuffle",
    "range": "pl.int_range",
    "range.int_range": "pl.int_range",
    "row_index": "with_row_index",
    "rleid": "rle_id",
    "rolling_expr": "rolling_…",
    "rolling_expr_by": "rolling_…_by",
    "set_sorted_flag": "set_sorted",
    "shift_and_fill": "shift(fill_value=…)",
    "slice": "slice, head, tail, limit",
    "str.base64_decode": "str.decode",
    "str.base64_encode": "str.encode",
    "str.concat_horizontal": "pl.concat_str",
    "str.concat_vertical": "str.join",
    "str.format": "pl.format",
    "str.hex_decode": "str.decode",
    "str.hex_encode": "str.encode",
    "str.lowercase": "str.to_lowercase",
    "str.replace": "str.replace, str.replace_all",
    "str.split_n": "str.splitn",
    "str.strptime": "str.to_datetime, str.to_date, str.to_time, str.strptime",
    "str.titlecase": "str.to_titlecase",
    "str.uppercase": "str.to_uppercase",
    "struct.field_by_name": "struct.field",
    "struct.select_fields": "struct.field",
    "top_k": "top_k, bottom_k",
    "top_k_by": "top_k_by, bottom_k_by",
    "Distinct": "unique",
    "ExtContext": "with_context",
    "GroupBy": "group_by",
    "HConcat": "a horizontal concat",
    "Join": "join",
    "MergeSorted": "merge_sorted",
    "PythonScan": "a Python source",
    "Slice": "head, tail, slice",
    "hint_sorted": "set_sorted",
}


def written(name: str) -> list[str]:
    """Return how users write a step: one or several ways."""
    return _WRITTEN.get(name, name).split(", ")
