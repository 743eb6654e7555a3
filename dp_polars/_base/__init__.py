"""The foundation: numbers and rigorous intervals, column types, random bits, and settings of the process.

Imports nothing of this package, and everything else may import it. Private rows only come here as arrays of numbers.
"""
