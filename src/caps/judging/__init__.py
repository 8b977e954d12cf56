"""Judges: language models, Python functions, recorded verdicts, simulations."""
