"""Numbers as users give them, rigorous intervals, random words, threads and arrays.

Imports nothing of this package. Everything else may import it. No private row comes here but as an array of numbers.
"""
