"""The row gate: transformations of a private frame after `protect`, with a proof that each uses a single row.

Begin with `gate.row_by_row`. Imports only `_base`. An expression, or a plan that is not run, comes in with a schema.
Out comes a proved expression, or an error that depends only on public things. No private row is read.
"""
