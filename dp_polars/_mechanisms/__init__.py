"""Exact draws: the race of score blocks, its exact path, and selection by scores of the caller's own.

Imports `_accounting` and `_base`. Scores come in as arrays, and only what was drawn goes out.
"""
