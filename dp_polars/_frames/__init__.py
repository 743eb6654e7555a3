"""Private frames, as users write them: protect, steps, joins, queries, cubes, publications.

Begin with `frame.PrivateFrame`. Imports `_release`, the engines and below. Private rows come in by a source and are
read by an engine, after the charge; a release is all that goes out.
"""
