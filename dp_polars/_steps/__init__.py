"""The steps of a private frame: what makes them safe, the proof that each follows from one person's rows, and sources.

Begin with `gate.row_by_row`. Imports `_base` alone. An expression, or a plan that is not run, comes in with a schema;
out goes an expression that is proved, or an error that depends on public things alone. No private row is read.
"""
