"""The SQL engines: Ibis expressions shared by all databases, and each database's dialect."""
