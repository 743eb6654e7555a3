"""What one output asks, as a frozen value: its histograms, its claim and how it is drawn; and how it is stated.

Begin with `statistic.Query`. Imports `_mechanisms` and below, and knows no engine. Histograms, or rows of codes, come
in; answers go out.
"""
