"""The table of rules: which steps a private frame refuses, why, and what to write instead.

The gate walks an expression against this table, and docs/steps.md is made from it: nothing else decides. A rule is
a value; what it asks of a step is a small function of that step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dp_polars._rowwise import conditions as when
from dp_polars._rowwise.names import (
    ARITHMETIC,
    COMPARISONS,
    FUNCTIONS,
    OF_CATEGORIES,
    OF_COLUMNS,
    OF_MIXED_TYPES,
    OF_ONE_COLUMN,
    OF_TEXTS,
    OPERATORS,
    names,
)
from dp_polars._rowwise.nodes import Step


@dataclass(frozen=True)
class Rule:
    """A reason to refuse a step, and the way out.

    Attributes
    ----------
    steps
        The names of the steps that it is about; none: all.
    why
        What the step does, said after its name, and what follows from it.
    instead
        What to write.
    where
        Which of these steps are refused.
    condition
        The same in words, for the documentation.
    """

    steps: frozenset[str]
    why: str
    instead: str
    where: Callable[[Step], bool] = when.always
    condition: str = ""

    def refuses(self, step: Step) -> bool:
        """Return whether the step is refused for this reason."""
        return (not self.steps or step.name in self.steps) and self.where(step)

    def message(self, call: str, step: str, details: str = "") -> str:
        """Return the error of a user's call: what is refused, why, and what to write instead."""
        return f"{call}: {step} {self.why}{details}.\n\nHint: {self.instead}"


# The table.

PEOPLE = "so one person could change another's result"
COMBINES = f"combines several rows, {PEOPLE}"
_CONSTANT = "use a public constant, for example last year's mean; after `protect`, of one person's rows: over(unit)."
BOUNDS = "leave it out: `protect` bounds how many rows of a person count, and a mode counts each person once."
LAST_BIT = f"rounds a row's last bit differently where the row is alone in its chunk, {PEOPLE}"
_CATEGORY = f"may take a category's number, which other rows decide, {PEOPLE}"
CLOCKS = "raises on a local time that a clock change leaves out, and the error would tell that a row has it"
RAISES = "raises on some values, and the error would tell that a row has one"

_TOO_MANY = "raises where the rows hold too many categories, and the error would tell that they do"
_NO_FEW = "cast the Categorical to pl.String first, or use pl.Categorical."

# Steps that are not taken, whatever they are given. The last one is for what no other names.
UNLISTED: tuple[Rule, ...] = (
    Rule(
        names(
            """
            approx_n_unique approx_quantile arg_max arg_min bitwise_and bitwise_or bitwise_xor correlation count entropy
            all any has_nulls hist implode is_empty is_sorted kurtosis len max max_by mean median min
            min_by mode n_unique null_count product quantile skew std sum var str.concat_vertical
            """
        ),
        COMBINES,
        _CONSTANT,
    ),
    Rule(
        names("over rolling rolling_expr rolling_expr_by eval ewm_mean ewm_mean_by ewm_std ewm_var"),
        COMBINES,
        "take one person's rows, after `protect`: with_columns(pl.col('x').max().over(unit)); or group by public keys: "
        "group_by({…}).agg(…).",
    ),
    Rule(
        names(
            """
            arg_sort arg_where bottom_k cum_count cum_max cum_min cum_prod cum_sum diff first gather gather_every
            index_of item last lower_bound pct_change peak_max peak_min range range.int_range rank reverse rle rleid
            search_sorted set_sorted_flag shift slice sort sort_by top_k top_k_by upper_bound
            """
        ),
        f"depends on the place of a row among the others, {PEOPLE}",
        "leave it out: use what depends on the row and on constants alone.",
    ),
    Rule(
        names("fill_null_with_strategy interpolate interpolate_by"),
        f"fills a row from the others, {PEOPLE}",
        "fill with a constant: fill_null(0).",
    ),
    Rule(
        names(
            "arg_unique is_duplicated is_first_distinct is_last_distinct is_unique unique unique_counts value_counts"
        ),
        f"compares a row with the others, {PEOPLE}",
        BOUNDS,
    ),
    Rule(
        names("append drop_nans drop_nulls explode filter repeat_by reshape"),
        "changes the number of rows",
        "filter the frame: frame.filter(…), frame.drop_nulls(…); or filter last: (x + 1).filter(…).dp.mean(…) in agg; "
        "explode the frame: frame.explode(…).",
    ),
    Rule(
        names("bin_quantiles q_cut"),
        f"takes its breaks from the rows, {PEOPLE}",
        "cut at public breaks: bin_intervals([…]), which Polars 1 calls cut([…]).",
    ),
    Rule(names("random list.sample"), "draws at random, for all rows together", "keep a part by hash() % 10 == 0."),
    Rule(
        frozenset({"a Python function", "fold_horizontal"}),
        "can't be inspected, and may combine rows",
        "write it with native expressions.",
    ),
    Rule(
        frozenset({"a step that Polars does not show"}),  # in a plan
        "can't be inspected, and may combine rows",
        "leave it out, or do it after `protect`, with native expressions.",
    ),
    Rule(
        frozenset({"a Series"}),
        "has values of its own for the rows by their place",
        "pass a single value, or a list where a set is meant: is_in([1, 2]).",
    ),
    Rule(
        names("str.json_decode struct.json_encode"),
        "is not by row for all types, or raises on some values",
        "use str.json_path_match for texts, and pl.format on the fields of structs.",
    ),
    Rule(
        frozenset(),
        "is not known to look at its own row alone",
        "use what depends on the row and on constants alone; the page Steps of a private frame lists what is taken.",
        when.is_unlisted,
        "any step that is not listed as taken",
    ),
)

# Those that name steps.
NAMED = UNLISTED[:-1]

# The worst holes were on Polars 1 alone.
NEEDS_POLARS_2 = Rule(
    frozenset(),
    "needs Polars 2",
    "install Polars 2; the page Steps of a private frame lists the few steps that Polars 1 takes.",
    when.needs_polars_2,
    "any step that is not on the short list above, on Polars 1",
)

# What a trial on extreme rows finds: each row by itself, twice, before and after nulls.
COMPANY = Rule(
    frozenset(),
    f"gives a row another result alone than among others, {PEOPLE}",
    "cast its columns to one type in the step before.",
)

# What `list.eval` can't do to a row's own list.
OWN_LIST = Rule(
    frozenset({"list.agg", "list.eval"}),
    "takes row-by-row steps on pl.element(), and single functions that follow from a list's own elements",
    "use list.sum, list.mean, list.var, list.std, list.median for floats, and another list.eval for what comes after.",
)

# Steps that are taken, but not in every way.
LISTED: tuple[Rule, ...] = (
    Rule(
        frozenset(),
        f"looks into a type that only its owner knows: categories' numbers may show, {PEOPLE}, or a value raise",
        'take the storage of an Extension first: pl.col("place").ext.storage(); columns of Objects are only carried '
        "along: take what you need of them before `protect`.",
        when.looks_into_the_opaque,
        "any step on Extension types or Objects but `is_null`, `is_not_null`, `ext.storage` and `struct.field`",
    ),
    Rule(
        names("cast coalesce fill_null replace replace_strict when"),
        _TOO_MANY,
        _NO_FEW,
        when.has_few_categories,
        "on Categoricals of 8 or 16 bits, also in nested types; `cast` to them",
    ),
    Rule(
        OPERATORS | {"when"} | (OF_COLUMNS - OF_MIXED_TYPES),
        f"converts a whole column to a nested type, {PEOPLE}",
        "give a constant the column's very type: pl.lit(value, dtype=…).",
        when.converts_nested,
        "on lists, arrays or structs of different types",
    ),
    Rule(
        ARITHMETIC,
        LAST_BIT,
        "take elements from lists with list.get, and fields from structs.",
        when.holds_floats,
        "with floats in lists, arrays or structs",
    ),
    Rule(
        OF_ONE_COLUMN,
        "takes a parameter from the rows",
        "pass it as a constant; choose among constants by pl.when.",
        when.parameters_vary,
        "with a parameter that is a column",
    ),
    Rule(
        OF_ONE_COLUMN,
        "takes no struct as a parameter",  # Polars 2.1 hangs on one in str.zfill
        "pass a single value or a list.",
        when.parameters_are_structs,
        "with a parameter that is a struct",
    ),
    Rule(
        names("arctan2"),
        "takes numbers only",  # Polars 2.1 crashes on a struct
        "take elements from lists with list.get, and fields from structs.",
        when.takes_nested,
        "of lists, arrays or structs",
    ),
    Rule(
        names("is_in"),
        f"looks a value up in other rows, {PEOPLE}",
        "pass a list, or a column of lists.",
        when.looks_up_rows,
        "in a column",
    ),
    Rule(
        names("str.strptime"),
        f"guesses its format from other rows, {PEOPLE}",
        'pass the format: str.to_date("%Y-%m-%d").',
        when.has_no_format,
        "without a format",
    ),
    Rule(
        names("reinterpret"),
        f"treats NaN or −0 differently where the row is alone in its chunk, {PEOPLE}",
        "cast to the integers that you mean.",
        when.takes_floats,
        "on floats",
    ),
    Rule(
        OF_TEXTS,
        "shows the signs of zeros in nested types, which other rows may decide",
        "give its fields or elements.",
        when.input_holds_floats,
        "on lists, arrays or structs of floats",
    ),
    Rule(
        names("arr.contains is_in"),
        RAISES,
        "give values of the array's very type.",
        when.does_not_fit_the_array,
        "in an array of another type",
    ),
    Rule(
        FUNCTIONS - OF_CATEGORIES,
        _CATEGORY,
        "cast the Categorical to pl.String first.",
        when.takes_category,
        "on a Categorical",
    ),
    Rule(
        names("replace replace_strict"),
        _CATEGORY,
        "give texts for categories, or cast the Categorical to pl.String first.",
        when.replaces_categories_by_number,
        "of categories by or with what is no text",
    ),
    Rule(
        names("cast"),
        _CATEGORY,
        "cast the Categorical to pl.String first.",
        when.casts_category,
        "between a Categorical and anything but texts and Enums",
    ),
    Rule(
        names("cast"),
        "guesses a format",
        "use str.to_datetime(format).",
        when.guesses_times,
        "of a text to a date or time",
    ),
    Rule(
        names("cast"),
        "is not by row for all nested types",
        "cast fields or elements.",
        when.casts_nested,
        "of lists, arrays or structs",
    ),
    Rule(
        names("dt.datetime_function dt.replace_time_zone"),
        CLOCKS,
        'pass ambiguous="earliest".',
        when.ambiguous_is_no_word,
        "with a column as `ambiguous`",
    ),
)

# Steps that raise on some value, found by a trial on extreme values of the types that they are given.
RAISING = tuple(
    Rule(steps, RAISES, instead)
    for steps, instead in [
        (ARITHMETIC, "cast Decimals to pl.Float64 first; take elements from lists with list.get."),
        (COMPARISONS, "put the column before the constant; compare an Enum as cast(pl.String)."),
        (names("dt.add_business_day"), 'pass roll="forward" or roll="backward".'),
        (names("pow"), "give the exponent as a number, not a negative one for integers."),
        (names("replace_strict"), "pass default=None."),
        (frozenset[str](), "give it only values that fit: clip numbers, or cast to a wider type, in the step before."),
    ]
)
