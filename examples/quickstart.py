"""A protected report on real data, with its errors next to the truth.

    python examples/quickstart.py

In 1974, 6,366 married women answered a survey of the magazine Redbook about their affairs (Fair 1978, shipped inside
statsmodels). Each row is a person. The report has four statistics by religion, under one guarantee.
"""

from __future__ import annotations

from pathlib import Path

import polars as pl
import statsmodels.datasets.fair as fair

import dp_polars as dpp

# From the questionnaire, never from the rows.
RELIGION = ["not religious", "mildly", "fairly", "strongly"]
RATING = ["very poor", "poor", "fair", "good", "very good"]
YEARS = [0.5, 2.5, 6.0, 9.0, 13.0, 16.5, 23.0]


def survey() -> pl.DataFrame:
    rows = pl.read_csv(Path(fair.__file__).with_name("fair.csv"))
    number = pl.col("religious", "rate_marriage").cast(pl.Int64)
    return rows.with_columns(number).select(
        religion=pl.col("religious").replace_strict(dict(enumerate(RELIGION, 1))),
        rating=pl.col("rate_marriage").replace_strict(dict(enumerate(RATING, 1))),
        years="yrs_married",
        affair=pl.col("affairs") > 0,
    )


def report(women: pl.DataFrame, budget: dpp.Budget) -> dpp.PrivateQuery:
    return (
        women.dp.protect(None, budget=budget)
        .group_by({"religion": RELIGION})
        .agg(
            women=dpp.len(),
            affair=dpp.share(pl.col("affair")),
            years=pl.col("years").dp.median(YEARS),
            rating=pl.col("rating").dp.mode(RATING),
        )
        .scaled_to()
    )


def truth(women: pl.DataFrame) -> pl.DataFrame:
    return women.group_by("religion").agg(
        women=pl.len(),
        affair=pl.col("affair").mean(),
        years=pl.col("years").median(),
        rating=pl.col("rating").mode().first(),
    )


def main() -> None:
    women = survey()
    budget = dpp.Budget(epsilon=1, delta=1e-6, name="survey of 1974")
    query = report(women, budget)
    print("Before the release, without a look at the rows: an answer is off by at most error_95 (95 %).")
    print(query.explain().select("output", "mechanism", "error_95", "error_unit"))

    released = query.release(intervals=True)
    both = released.join(truth(women), on="religion", suffix="_true", maintain_order="left")
    print("\nThe release, next to the truth. A real release would not show the truth.")
    with pl.Config(tbl_hide_dataframe_shape=True, tbl_hide_column_data_types=True, tbl_cols=12, tbl_width_chars=120):
        numbers = [f"{name}{end}" for name in ("women", "affair") for end in ("", "_low", "_high", "_true")]
        print(both.select("religion", pl.col(numbers).round(3)))
        print(both.select("religion", "years", "years_true", "rating", "rating_true"))
    off = both.select(women=pl.col("women") - pl.col("women_true"), affair=pl.col("affair") - pl.col("affair_true"))
    print("Largest errors:", {name: round(off[name].abs().max(), 4) for name in off.columns})
    print(budget)


if __name__ == "__main__":
    main()
