"""A release, whatever the engine: protection, the pipeline of steps, the request, the charge, and what is kept.

Begin with `release.release_by`; the contract of an engine is `contract.Engine`. Imports `_expressions` and below.
"""
