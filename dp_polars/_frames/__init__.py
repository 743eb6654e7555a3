"""The user's side of private frames: protect, transformations, joins, queries, cubes, publications.

Begin with `frame.PrivateFrame`. Imports `_release`, the engines and below. A source provides private rows, and an
engine reads them after the charge. The only output is a release.
"""
