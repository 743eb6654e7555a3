"""The engine of Polars: `engine.PolarsEngine`, the contribution limits, people and sums."""
