"""Numbers as users give them, rigorous intervals, random words, threads and arrays.

Imports nothing of this package. Everything else may import it. Private rows come here only as arrays of numbers.
"""
