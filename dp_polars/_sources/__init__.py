"""Sources of private rows: frames, files and tables, checks of their preprocessing, and marks to distinguish them.

Imports `_steps` and below. Plans of private rows come in. No row is read before the charge.
"""
