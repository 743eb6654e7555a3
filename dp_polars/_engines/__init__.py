"""Engines turn private rows into histograms: Polars, SQL through Ibis, and Spark.

Files of the same name do the same. Each engine fulfils the contract of `_release.contract`.
Histograms are still private. The draw reads them.
"""
