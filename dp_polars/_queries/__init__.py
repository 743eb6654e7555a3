"""What is asked: queries, scores, candidates, how values become codes, and how a histogram becomes answers.

Imports `_mechanisms` and below, and knows no engine. Columns come in as codes, histograms or rows of codes;
answers go out.
"""
