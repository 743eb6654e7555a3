"""From values to bins: candidates and grids, the binning of columns, and the weights of rows.

Begin with `binning.Binning`. Imports only `_base`. The input is columns; the output is whole numbers. Nothing is drawn
here.
"""
