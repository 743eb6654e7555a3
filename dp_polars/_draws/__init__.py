"""How a histogram becomes answers: scores, histograms, and the draws on them, all groups at once.

Imports `_codes`, `_mechanisms` and below, and knows no question.
Histograms and codes of rows come in; codes of answers go out.
"""
