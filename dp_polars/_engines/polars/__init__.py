"""The engine of Polars: `engine.PolarsEngine`, the bounds on a person's rows, people and sums."""
