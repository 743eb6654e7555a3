"""What one output asks: a frozen value that says which histograms it needs, what it may cost, and how it is drawn.

Imports `_draws`, `_codes` and below, and knows no engine. Histograms, or rows of codes, come in; answers go out.
"""
