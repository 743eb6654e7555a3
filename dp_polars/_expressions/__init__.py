"""`.dp` on Polars expressions: the namespace, the private expression, and sharing `.dp` with OpenDP.

Imports `_queries` and below. Here rows come in as Polars runs a plan, and answers go out into its result.
"""
