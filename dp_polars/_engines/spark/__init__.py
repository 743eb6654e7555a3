"""The Spark engine, on the driver and on executors."""
