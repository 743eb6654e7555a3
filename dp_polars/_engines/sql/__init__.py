"""What `dp_polars.sql` runs on databases: expressions of Ibis, written once, and what each database does otherwise."""
