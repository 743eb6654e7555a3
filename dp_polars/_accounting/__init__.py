"""What a release costs a person: losses, claims, the budget and its ledger.

Imports `_base` only. What a caller asks comes in as numbers; out goes a frozen `Claim`, with the rate that keeps it,
or a durable charge. No private row comes here.
"""
