"""Methods of Polars' frames that a private frame does not have: why, and what to do instead."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar, NoReturn

import polars as pl
from polars.dataframe.group_by import GroupBy

from dp_polars._rowwise.names import names
from dp_polars._rowwise.rules import BOUNDS, PEOPLE, Rule

_RELEASE = "ask for private answers with agg(…), then release() the query."
_COMBINES = "combines the rows of several people, and would show the result without noise"

# The last rule is for what no other names.
METHODS = (
    Rule(
        names("head limit slice tail first last sample top_k bottom_k gather gather_every"),
        f"keeps rows by their place among the others, {PEOPLE}",
        "leave it out, or filter by what the row itself holds.",
    ),
    Rule(
        names("sort"),
        "goes by the order of the rows, and a private frame has none",
        "leave it out; sort the answers: query.release().sort(…). For what a person has first, sort inside: "
        'group_by(unit).agg(pl.col("diagnosis").sort_by("day").first()).',
    ),
    Rule(
        names("reverse set_sorted is_sorted with_row_index with_row_count"),
        "goes by the order of the rows, and a private frame has none",
        "leave it out; sort the answers: query.release().sort(…).",
    ),
    Rule(
        names("shift interpolate upsample"),
        f"takes values from other rows, {PEOPLE}",
        "use what depends on the row and on constants alone.",
    ),
    Rule(names("is_duplicated is_unique"), f"compares a row with the others, {PEOPLE}", BOUNDS),
    Rule(
        names(
            """
            sum mean median quantile min max std var product null_count n_unique approx_n_unique describe corr all
            estimated_size
            """
        ),
        _COMBINES,
        _RELEASE,
    ),
    Rule(
        names("count len height shape is_empty"),
        _COMBINES,
        "agg(dp_polars.len(epsilon=…)) counts rows, agg(dp_polars.n_people(epsilon=…)) people; then release() the "
        "query.",
    ),
    Rule(
        names("having"),
        "chooses groups by their rows, and that there is a group would tell of people",
        "filter the released answers: query.release().filter(…); or choose among one person's groups: "
        "group_by(unit, …).having(…).",
    ),
    Rule(
        names("group_by_dynamic rolling partition_by pivot unstack transpose to_dummies"),
        "makes groups from the rows, and that there is a group would tell that a row is there",
        'group by public keys: group_by({"ward": ["A", "B"]}).',
    ),
    Rule(names("melt"), "is the old name of `unpivot`", "use unpivot(…)."),
    Rule(
        names(
            "join_asof join_where merge_sorted update hstack vstack extend insert_column replace_column with_context"
        ),
        "brings in rows or columns otherwise than by a key",
        "join a public frame, a private one on the privacy unit, or owned rows: join(…, on=…).",
    ),
    Rule(
        names("map_batches map_columns map_rows map_groups inspect fold pipe_with_schema"),
        "runs a Python function on the rows, which may combine them or print them",
        "write it with native expressions: with_columns(…), filter(…).",
    ),
    Rule(names("sql"), "is not inspected", "use filter, with_columns and select."),
    Rule(
        names(
            """
            collect collect_async collect_batches execute fetch profile show glimpse plot style equals get_column
            get_columns item row rows rows_by_key hash_rows serialize iter_… sink_… to_… write_…
            """
        ),
        "shows private rows",
        _RELEASE,
    ),
    Rule(
        names("lazy clone cache rechunk shrink_to_fit clear"),
        "does nothing here: a private frame is lazy, and every method gives a new one",
        "leave it out.",
    ),
    Rule(
        names("remote"),
        "runs on machines where nothing protects the rows or pays for the answer",
        "ask with agg(…), and release() the query here.",
    ),
    Rule(names("explain show_graph"), "shows how private rows are read", "explain the query: frame.agg(…).explain()."),
    Rule(names("dtypes width"), "is a part of the schema", "use collect_schema()."),
    Rule(names("release"), "is of a query, and nothing is asked yet", "ask with agg first: agg(…).release()."),
    Rule(names("dp"), "frame is already protected", "go on with filter, with_columns, group_by or agg."),
    Rule(
        frozenset(),
        "is not known to look at one row alone",
        "use filter, with_columns, select, join, group_by and agg; the page Steps of a private frame lists all.",
    ),
)


def refusal(method: str, call: str = "") -> str:
    """Return why a private frame does not have a method, written as `call`, and what to do instead."""
    family = re.sub("^(iter|sink|to|write)_.*", r"\1_…", method)
    rule = next(rule for rule in METHODS if not rule.steps or method in rule.steps or family in rule.steps)
    return rule.message(call or method, "this")


class Refusing:
    """Says what to do instead of a method of Polars that would reveal private rows."""

    _polars: ClassVar[tuple[type, ...]] = (pl.LazyFrame, pl.DataFrame, GroupBy)

    if not TYPE_CHECKING:  # so that a type checker knows the methods that there are

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("_") or not (name == "release" or any(hasattr(kind, name) for kind in self._polars)):
                msg = f"{type(self).__name__!r} object has no attribute {name!r}"
                raise AttributeError(msg, name=name, obj=self)
            raise AttributeError(refusal(name))

    def __len__(self) -> int:
        raise TypeError(refusal("len"))

    def __iter__(self) -> NoReturn:
        raise TypeError(refusal("rows", "iter"))

    def __getitem__(self, item: object) -> NoReturn:
        raise TypeError(refusal("rows", "frame[…]"))
