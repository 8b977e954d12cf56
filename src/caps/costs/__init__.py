"""Costs: closed forms, forecasts, ledgers, prices and capacity."""
