"""The Polars engine: `engine.PolarsEngine`, contribution limits, people and sums."""
