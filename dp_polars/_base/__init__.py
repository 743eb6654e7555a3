"""What everything rests on: numbers and rigorous intervals, types of columns, random bits, and what a process sets.

Imports nothing of this package. Everything else may import it. Private rows come here only as arrays of numbers.
"""
