"""The cost of releases: losses, terms, claims and their costs, guarantees, the budget and its ledger.

Begin with `claims.Claim`. Imports only `_base`. A caller's numbers come in.
Out comes a frozen claim with its rate, or a durable charge. No private row comes here.
"""
