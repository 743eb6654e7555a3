"""Engines of SQL: which rows of a person count, and what they weigh, written once; and what each engine does otherwise.

Everything here is an expression of Ibis; the adapter `sql` makes statements of it.
"""
