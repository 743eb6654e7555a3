"""How values become codes: candidates, grids, steps, and the encoders of columns.

Imports `_base` alone. Columns come in; whole numbers go out. No draw is made here.
"""
