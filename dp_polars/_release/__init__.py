"""A release, whatever the engine: protection, transformations, the request, the charge, the cache.

Begin with `release.release_all`; the contract of an engine is `contract.Engine`. Imports `_expressions` and below.
"""
