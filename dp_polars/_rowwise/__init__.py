"""The proof that a step looks at one row, or at one person's: rules, expressions, trials on extreme values, and plans.

Imports nothing of this package but `_base`. An expression, or a plan that is not run, comes in with a schema. Out
goes an expression that is proved row by row, or an error that depends on public things alone. No private row is read.
"""
