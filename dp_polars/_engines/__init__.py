"""From private rows to histograms: the contract of an engine, Polars, and the bounds on a person's rows.

Imports `_questions` and below. Private rows come in; histograms, still private, go out to the draw.
"""
