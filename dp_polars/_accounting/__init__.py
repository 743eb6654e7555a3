"""What a release costs a person: losses, claims and their costs, guarantees, the budget and its ledger.

Begin with `claims.Claim`. Imports `_base` only. What a caller asks comes in as numbers; out goes a frozen claim, with
the rate that keeps it, or a durable charge. No private row comes here.
"""
