"""How values become bins: candidates and grids, the binning of columns, and the weights of rows.

Begin with `binning.Binning`. Imports `_base` alone. Columns come in; whole numbers go out. No draw is made here.
"""
