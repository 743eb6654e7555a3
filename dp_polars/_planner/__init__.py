"""The planner in the browser: a schema and a few choices become a query, what it would give, and the code to copy."""
