"""Where private rows come from: frames, files and tables, the check of what made them, and marks that tell them apart.

Imports `_steps` and below. Plans of private rows come in; nothing here reads a row before the charge.
"""
