"""From private rows to histograms: Polars, SQL by Ibis, and Spark, with the same names of files in each.

Each fulfils the contract of `_release.contract`. Private rows come in; histograms, still private, go out to the draw.
"""
