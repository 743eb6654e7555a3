"""What `dp_polars.spark` runs on a cluster, on the driver and on executors."""
