"""A statistic as a frozen value: its histograms, its terms and its claim, how it is drawn, and how it is stated.

Begin with `statistic.Asked`. Imports `_mechanisms` and below, and knows no engine. The input is histograms, or rows of
codes; the output is answers.
"""
