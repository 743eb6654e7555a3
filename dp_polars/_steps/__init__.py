"""The row gate: what a private frame may do to rows after `protect`, and the proof that each step looks at one row.

Begin with `gate.row_by_row`. Imports `_base` alone. An expression, or a plan that is not run, comes in with a schema;
out goes an expression that is proved, or an error that depends on public things alone. No private row is read.
"""
