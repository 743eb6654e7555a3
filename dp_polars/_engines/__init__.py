"""From private rows to histograms: Polars, SQL by Ibis, and Spark. Files of the same name do the same.

Each fulfils the contract of `_release.contract`. Private rows come in; histograms, still private, go out to the draw.
"""
