"""Exact draws: the race, noise, top k, above threshold, partition selection, and their histograms.

Begin with `drawing.Draw`. Imports `_accounting`, `_bins` and `_base`, and knows no statistic. The input is histograms;
the output is draws only.
"""
