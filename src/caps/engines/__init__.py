"""Engines: live, Batch API and Ray, with their scheduler and budgets."""
