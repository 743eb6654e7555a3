"""Statements of what was done for privacy: facts as plain values, and their renderings for people and registries.

Facts come from the rooms above, which know queries and ledgers. Nothing here reads a row.
"""
