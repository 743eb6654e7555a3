"""Private frames: the recipe of steps, protection, public keys, sources of rows, and the release.

Imports `_expressions`, `_engines` and below. Private rows come in by a source and are read by an engine, after the
charge; a release is all that goes out.
"""
