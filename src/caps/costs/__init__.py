"""Costs: closed forms, the ledger and the V1-Infer baseline, prices."""
