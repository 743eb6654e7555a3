"""Exact draws: the race, noise, top k, above threshold, partition selection, and the histograms that they draw from.

Begin with `drawing.Draw`. Imports `_accounting`, `_bins` and `_base`, and knows no statistic. Histograms come in, and
only what was drawn goes out.
"""
